"""Stored rows of the papers' figures: where they come from, what they show, which page says so."""

import re

import numpy as np
import pytest

from problems.nonconvex_classification import printed
from problems.nonconvex_classification.experiment import Size
from problems.papers import entry, rows
from problems.papers.__main__ import STUDIES
from problems.papers.ryu_kim import STUDIES as RYU_KIM
from tests.problems.test_refutations import DOCS

PAGES = {
    "chan_xie_zhao": "chan_xie_zhao.md",
    "ou_wang_liu_lu": "ou_wang_liu_lu.md",
    "ryu_kim": "ryu_kim.md",
    "xiao_ye_devadas": "xiao_ye_devadas.md",
}


@pytest.mark.parametrize("name", STUDIES)
def test_rows_say_where_they_come_from_and_a_page_shows_them(name):
    study = STUDIES[name]
    head, found = rows.read(rows.STORED / f"{name}.jsonl")
    assert re.fullmatch(r"[0-9a-f]{40}", str(head["commit"]))  # of a tree without changes
    assert head["command"] == f"python -m problems.papers --figure {name} --keep docs/papers/stored"
    assert head["settings"] == {"rounds": study.full.rounds, "runs": study.full.runs}
    assert {own.panel for own in found} == set(study.panels)
    assert (rows.STORED / f"{name}.jsonl").stat().st_size < 150_000
    page = (DOCS / PAGES[study.paper]).read_text()
    assert name.lower() in page and any(key in page for key in study.entries)


def ends(figure, panel):
    return {curve: own.y[-1] for (at, curve), own in rows.stored(figure).items() if at == panel}


def test_figure_2_loses_what_the_paper_says_and_random_weights_win_no_accuracy():
    """30 % less on average (the paper); the stored runs: 0.734. Figure B: the same."""
    for figure, share in (("xiao_figure_2", 0.734), ("xiao_figure_B", 0.729)):
        lost, far = ends(figure, "privacy loss"), ends(figure, "accuracy")
        worst = lost["Algorithm 1: worst case"]
        realized = lost["Algorithm 1: realized, no guarantee"]
        assert realized / worst == pytest.approx(share, abs=2e-3)
        claimed = (
            1 - float(str(entry("xiao_ye_devadas", "figure_2b").values["reduction"])[:2]) / 100
        )
        assert realized / worst == pytest.approx(claimed, abs=0.05)
        # Secret constants change the worst case by the longest step, and accuracy by little.
        assert worst < lost["Algorithm 1, secret D_i: worst case"] < worst * 10 / 8
        secret, public = far["Algorithm 1, secret D_i"], far["Algorithm 1"]
        assert secret == pytest.approx(public, rel=0.02)
        assert far["fixed weights, as [42]"] < public < far["growing penalties, [43]"]
        assert all(own.y[0] < own.y[-1] for own in rows.stored(figure).values())


def test_figure_c_loses_a_third_realized_and_more_in_the_worst_case():
    """30 % of [45] (the paper): 0.31 and 0.40 by where agents begin; 1.64 in the worst case."""
    lost, far = ends("xiao_figure_C", "privacy loss"), ends("xiao_figure_C", "accuracy")
    theirs = lost["[45]: worst case"]
    for start, share in (("apart at first", 0.314), ("from one point", 0.401)):
        realized = lost[f"Algorithm 2*, {start}: realized, no guarantee"]
        assert realized / theirs == pytest.approx(share, abs=2e-3)
        assert lost[f"Algorithm 2*, {start}: worst case"] / theirs == pytest.approx(1.64, abs=5e-3)
        # "almost the same utility loss" (the paper) is not so here: 1.7 times the distance.
        assert far[f"Algorithm 2*, {start}"] / far["[45]"] == pytest.approx(1.71, abs=0.01)
    assert far["Algorithm 1"] < 0.3 * far["[45]"]


def test_figures_1_and_2_converge_sooner_with_less_noise_and_cost_more():
    for figure in ("ou_figure_1", "ou_figure_2"):
        found = list(rows.stored(figure).values())
        gaps = [own.y[-1] for own in found]
        # Silent curves come first, and below 1e-25 there are rounding errors only.
        assert gaps == sorted(gaps) or max(gaps[:2]) < 1e-15
        costs = [own.epsilon for own in found if own.epsilon is not None]
        assert costs == sorted(costs, reverse=True) and found[0].epsilon is None
        for own in found:
            if own.y[-1] < own.y[0] and own.epsilon is not None:
                assert own.epsilon > 1e7


def test_figure_3_has_the_papers_order_and_not_one_privacy():
    found = rows.stored("ou_figure_3")
    dpp2, ppdc, tracking = (
        np.array(found["stationarity", name].y) for name in ("DPP2", "PPDC", "DiaDSP")
    )
    assert (dpp2 < 0.1 * ppdc).all() and (ppdc < 1e-6 * tracking).all()
    start = printed.stationarity(printed.drawn(Size(), 0), np.zeros((50, 10)))
    assert start == pytest.approx(0.86, abs=0.005) and tracking.min() > 2 * start
    assert found["stationarity", "DPP2"].x == entry("ou_wang_liu_lu", "figure_3").numbers("r")
    # Larger decays end farther: "higher privacy levels inevitably lead to slower convergence".
    assert (np.diff(dpp2) > 0).all()
    totals = {name: np.array(found["total", name].y) for name in ("DPP2", "PPDC", "DiaDSP")}
    assert (totals["PPDC"] - totals["DPP2"] > 9).all()  # powers of ten
    assert all((np.diff(powers) < 0).all() and powers.min() > 20 for powers in totals.values())


def test_figure_6_has_the_papers_trends_with_the_codes_comparator():
    budgets = entry("ryu_kim", "budgets").numbers("epsilon")
    costs = {b: ends("ryu_kim_figure_6", f"cost, {b:g}") for b in budgets}
    errors = {b: ends("ryu_kim_figure_6", f"test error, {b:g}") for b in budgets}
    for b in budgets:
        loud = ends("ryu_kim_figure_6", f"noise (32), {b:g}")
        for E in (1, 10):
            ours, code = (f"{name}: E = {E}" for name in ("ObjG", "OutG of the code"))
            assert loud[ours] > 10 * loud[code]  # "greater than that for OutG"
            assert costs[b][ours] < costs[b][code]
            # With the step of the text ObjG wins at the small budgets only.
            text = f"OutG of the text: E = {E}"
            if b < 0.5:
                assert costs[b][text] > 1.05 * costs[b][ours]
                assert errors[b][text] > 1.3 * errors[b][ours]
            else:
                assert costs[b][text] == pytest.approx(costs[b][ours], rel=0.03)
    for E in (1, 10):
        falling = [costs[b][f"ObjG: E = {E}"] for b in budgets]
        assert falling == sorted(falling, reverse=True)
    assert errors[budgets[0]]["ObjG: E = 1"] > errors[budgets[-1]]["ObjG: E = 1"]
    assert RYU_KIM["ryu_kim_figure_6"].assumes.endswith("no guarantee")


def test_figure_7_depends_on_the_budget_more_than_on_the_penalty():
    found = rows.stored("ryu_kim_figure_7")
    budgets = entry("ryu_kim", "figure_7_budgets").numbers("epsilon")
    for name in ("OutG of the text", "OutG of the code"):
        errors = np.array(
            [
                [own.y[-1] for (at, curve), own in found.items()
                 if at == f"{b:g} per update" and curve.endswith(name)]
                for b in budgets
            ]
        )  # fmt: skip
        assert errors.shape == (4, 5)
        assert np.ptp(errors, axis=1).max() < 0.5 * np.ptp(errors.mean(axis=1))


def test_sampled_users_of_chan_lose_more_than_one_seen_turn():
    """Both bounds, at the paper's noise levels; gaps grow with the noise as printed."""
    found = rows.stored("chan_sampling")
    sigmas = np.array(found["epsilon", "one turn, all iterates seen"].x)
    theirs, ours, seen = (
        np.array(found["epsilon", name].y)
        for name in (
            "Corollary 6.2's constants",
            "package, order='sampling'",
            "one turn, all iterates seen",
        )
    )
    known = np.isfinite(theirs)
    assert (~known).sum() == 2 and (ours[known] < theirs[known]).all()
    paper = sigmas <= max(entry("chan_xie_zhao", "sigmas").numbers("sigma"))
    assert np.nanmin([theirs[paper], ours[paper], seen[paper]]) > 40
    gaps = [found["gap at x_t", f"sigma = {s:g}: as printed"].y[-1] for s in sigmas[paper]]
    assert gaps == sorted(gaps)
    for sigma, gap in zip(sigmas[paper], gaps, strict=True):
        clipped = found["gap at x_t", f"sigma = {sigma:g}: clipped, beneath it"]
        assert clipped.y[-1] == pytest.approx(gap, rel=0.01)
    once = found["gap at x_t", "sigma = 0.5: dp.GradientADMM, once"]
    many = found["gap at x_t", "sigma = 0.5: as printed"]
    assert many.low[-1] < once.y[0] < many.high[-1]
