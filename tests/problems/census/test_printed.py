"""Curves of Figures 2, B and C: the iterations are the package's, and the order the paper's."""

import numpy as np
import pytest

import dpcvx as dp
from problems.census.measures import Measures
from problems.census.methods import RATE, Method
from problems.census.printed import CURVES, Curve, Setting, run
from problems.census.records import made_records, shared_out
from problems.census.study import census
from problems.labeled import data_of

N, EDGES, EACH = 4, 5, 20
RECORDS = made_records(1500)


def setting(agents, edges, each, seed=0):
    measures = Measures.of(shared_out(RECORDS, agents, each, seed=seed))
    names = [f"agent {k}" for k in range(agents)]
    return Setting(measures, dp.networks.random(names, edges, seed))


def curve(name):
    (found,) = {own.name: own for own in sum(CURVES.values(), ()) if own.name == name}.values()
    return found


@pytest.mark.parametrize(
    ("name", "method"),
    [
        ("Fixed weights", Method("fixed", "admm", randomness=0.0)),
        ("Huang et al.", Method("Huang", "mixing", ratio=0.9)),
    ],
)
def test_without_noise_the_iterations_are_the_packages(name, method):
    """Of those without random weights; the package's first step size is 1, and 0.9 here."""
    own, printed = setting(N, EDGES, EACH), curve(name)
    if method.ratio is not None:
        printed = Curve(name, lambda k, n: np.full(n.size, 0.9 ** (k - 1)), printed.advance)
    study = census(N, EACH, 14)
    plan = method.plan(study, EDGES, 0, 12, None)
    result = plan.run(data=data_of(own.measures.shares.parts), iterates=True, verbose=False)
    found = run(own, printed, 12, 0, noise=0.0)
    for t, iterate in enumerate(result.iterates, 1):
        X = np.array(iterate.last.vectors)
        np.testing.assert_allclose(own.measures.distance(X), found.distance[t], rtol=1e-9)


@pytest.mark.parametrize("own", sum(CURVES.values(), ()), ids=lambda c: c.name)
def test_without_noise_every_curve_falls(own):
    found = run(setting(10, 30, 100), own, 100, 0, noise=0.0).distance.mean(axis=1)
    assert found[-1] < 0.05 * found[0]


def test_curves_fall_as_their_noise_does_and_end_above_the_start():
    """Over rounds 30 to 100 Algorithm 1 falls like 1.02^-k within a third; one seed."""
    traces = {c.name: run(setting(10, 20, 100), c, 100, 0) for c in CURVES["Figures 2 and B"]}
    for found in traces.values():
        ends = np.log(found.distance.mean(axis=1))
        assert ends[-1] > ends[0]
    ends = np.log(traces["Algorithm 1"].distance.mean(axis=1))
    slope = np.polyfit(np.arange(30, 101), ends[30:], 1)[0]
    assert slope == pytest.approx(-np.log(RATE), rel=1 / 3)


def test_realized_losses_are_those_that_the_paper_reports():
    """Means of five runs over 0.73 and 0.3 to 0.4; single runs stray by 0.02 and 0.04.

    The paper: 30 % less than the worst case on average (Figure 2 b), and 30 % of [45] (Figure C).
    """
    shares, ratios, apart = [], [], []
    for seed in range(5):
        own = run(setting(10, 20, 100, seed), curve("Algorithm 1"), 100, seed)
        shares.append(own.realized / own.claimed)
        shown = setting(10, 40, 100, seed)
        theirs = run(shown, curve("Huang et al."), 100, seed)
        assert theirs.realized == theirs.claimed
        for found, scale in ((ratios, 0.0), (apart, 1.0)):
            starred = run(shown, curve("Algorithm 2*"), 100, seed, apart=scale)
            assert 0 < starred.realized < starred.claimed
            found.append(starred.realized / theirs.claimed)
    assert np.mean(shares) == pytest.approx(0.734, abs=0.01)
    assert np.mean(ratios) == pytest.approx(0.40, abs=0.02)
    assert np.mean(apart) == pytest.approx(0.31, abs=0.03)
    assert starred.claimed / theirs.claimed == pytest.approx(1.64, abs=0.005)


def test_realized_loss_of_a_coordinate_is_that_of_its_interval():
    """One round of Algorithm 1: everything begins at 0, so that no interval is open."""
    own = run(setting(N, EDGES, EACH), curve("Algorithm 1"), 1, 0)
    assert own.realized == pytest.approx(own.claimed)
    wide = run(setting(N, EDGES, EACH), curve("Algorithm 1"), 1, 0, apart=100.0)
    assert wide.realized < 0.1 * wide.claimed


def test_figure_c_has_the_papers_order_and_its_worst_case_the_other():
    """Algorithm 1 ends nearest and costs most; 2* starts worst, and costs more than Huang et al."""
    shown = setting(10, 40, 100)
    found = {c.name: run(shown, c, 100, 0) for c in CURVES["Figure C"]}
    ends = {name: t.distance[-20:].mean() for name, t in found.items()}
    starts = {name: t.distance[5:25].mean() for name, t in found.items()}
    assert ends["Algorithm 1"] < 0.5 * min(ends["Algorithm 2*"], ends["Huang et al."])
    assert starts["Algorithm 2*"] > 1.5 * starts["Huang et al."]
    assert ends["Algorithm 2*"] == pytest.approx(ends["Huang et al."], rel=0.5)
    totals = {name: t.claimed for name, t in found.items()}
    assert totals["Algorithm 1"] > totals["Algorithm 2*"] > 1.5 * totals["Huang et al."]
    assert all(t.spent == pytest.approx(2 / np.sqrt(14) * t.claimed) for t in found.values())
