"""Figures of the papers: what runs short, what is stored, and what either draws."""

import json
import math

import numpy as np
import pytest

import problems.papers
from problems.elastic_net.certified import certified
from problems.elastic_net.setting import Setting
from problems.nonconvex_classification import printed
from problems.nonconvex_classification.experiment import FIGURE_3, PARAMETERS, Curve, Size
from problems.nonconvex_classification.records import SMOOTHNESS
from problems.nonconvex_classification.theory import Parameters, local_convergence
from problems.papers import chan, ou, rows
from problems.papers.__main__ import STUDIES, main
from problems.papers.rows import Row
from problems.papers.studies import Scope, draw, total


@pytest.mark.parametrize("name", STUDIES)
def test_short_run_has_the_panels_of_the_figure_and_is_drawn(name):
    study = STUDIES[name]
    found = study.run(study.short)
    assert {own.panel for own in found} == set(study.panels)
    for own in found:
        assert len(own.x) == len(own.y) and own.x == tuple(sorted(own.x))
        assert len(own.low) in (0, len(own.y)) and len(own.low) == len(own.high)
        assert own.epsilon is None or own.epsilon > 0
    figure = draw(study, found)
    assert [ax.get_xlabel() for ax in figure.axes][-1] != ""
    title = " ".join(figure.get_suptitle().split())
    assert study.teaches in title and study.records in title and study.assumes in title
    assert all(problems.papers.entry(study.paper, entry) for entry in study.entries)


def test_rows_are_read_as_they_were_written(tmp_path):
    made = [
        rows.row("a", "one run", [0, 1], [[1.23456, math.inf]]),
        rows.row("a", "two runs", [0, 1], [[1, 2], [3, 4]], epsilon=math.inf),
        rows.row("b", "private", [0.5], [[1e-30]], epsilon=1.5, delta=1e-6),
    ]
    rows.write(tmp_path / "x.jsonl", made, "a command", {"rounds": 1})
    head, found = rows.read(tmp_path / "x.jsonl")
    assert head["command"] == "a command" and head["settings"] == {"rounds": 1}
    assert set(head) >= {"commit", "versions", "machine"}
    assert found[1:] == made[1:]
    assert found[0].y[0] == 1.235 and math.isnan(found[0].y[1])
    assert (found[1].y, found[1].low, found[1].high) == ((2, 3), (1, 2), (3, 4))
    for line in (tmp_path / "x.jsonl").read_text().splitlines():
        json.loads(line, parse_constant=pytest.fail)  # no Infinity and no NaN


def test_totals_in_words():
    assert total(Row("a", "b", (), ())) == "no guarantee"
    assert total(Row("a", "b", (), (), epsilon=math.inf)) == "no finite bound"
    assert total(Row("a", "b", (), (), epsilon=2.0, delta=1e-6)) == "epsilon 2 at 1e-06"


def test_command_prints_values_runs_and_draws_again(tmp_path, capsys):
    main([])
    text = capsys.readouterr().out
    assert all(f"{paper}\n" in text for paper in problems.papers.ENTRIES)
    main(["--figure", "ou_figure_2", "--short", "--keep", str(tmp_path)])
    head, _ = rows.read(tmp_path / "ou_figure_2.jsonl")
    assert head["command"].startswith("python -m problems.papers --figure ou_figure_2 --short")
    drawn = tmp_path / "drawn"
    main(["--figure", "ou_figure_2", "--stored", str(tmp_path), "--plot", str(drawn)])
    assert (drawn / "ou_figure_2.png").exists()
    assert "figure_2: r = 0.95" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["--figure", "ou_figure_1", "--stored", str(tmp_path)])


# DiaDSP, and the convergence that holds -----------------------------------------------------------

SMALL = Size(6, 20, 3, None, 0.9)


def test_tracking_has_the_papers_step_and_scales():
    """One round from 0: alpha = 0.01, u_x = 2; in the second directions have noise of u_y = 5."""
    arrays = printed.drawn(SMALL, 0)
    loud = printed.tracking_points(arrays, Curve(0.5, 1.0, 2), 3)
    W, zero = np.eye(6) - arrays.P, np.zeros((6, 3))
    rng = np.random.default_rng(3)
    (w, e), (later, _) = (rng.laplace(size=(2, 6, 3)) for _ in range(2))
    first = arrays.gradients(zero)
    np.testing.assert_allclose(loud[1], W @ (2 * w) - 0.01 * first, atol=1e-12)
    direction = W @ (first + 5 * e) + arrays.gradients(loud[1]) - first
    np.testing.assert_allclose(loud[2], W @ (loud[1] + later) - 0.01 * direction, atol=1e-12)


def test_total_of_tracking_bounds_changes_of_quadratics():
    """Curvatures of at most M, one agent's gradient moved by delta in all entries, no others."""
    arrays, curve = printed.drawn(SMALL, 0), Curve(0.8, 1.0, 6)
    delta = arrays.study.sensitivity
    for h in (-SMOOTHNESS, 0.0, SMOOTHNESS):
        point = before = 0.0
        direction, spent = delta, 0.0
        for k in range(curve.rounds):
            spent += (abs(point) / 2 + abs(direction) / 5) / 0.8**k
            point, before = -0.01 * direction, point
            # Of what the agent adds to the neighbors' mean, which the observer knows.
            direction = h * point - h * before
        bound = math.exp(printed.tracking_log_total(arrays, curve))
        assert np.sqrt(3) * spent <= bound


def test_dpp2_converges_locally_at_the_derivatives_rate():
    """Without noise, on the small records: late gaps fall like rate^(2 k), within a tenth."""
    arrays = printed.drawn(SMALL, 0)
    gaps = np.array([arrays.gap(X) for X in printed.points(arrays, Curve(0.0, 0.0, 1500), 0)])
    end = printed.points(arrays, Curve(0.0, 0.0, 6000), 0)[-1].mean(axis=0)
    gradient = arrays.gradients(np.tile(end, (6, 1))).mean(axis=0)
    own = local_convergence(arrays.P, PARAMETERS, gradient, ou.hessians(arrays, end))
    assert own.holds and own.rate < 1
    late = np.flatnonzero(gaps > 1e-22)[-1]
    fall = np.polyfit(np.arange(late // 2, late), np.log(gaps[late // 2 : late]), 1)[0]
    assert fall == pytest.approx(2 * math.log(own.rate), rel=0.1)


def test_local_convergence_needs_each_of_its_hypotheses():
    """Two agents with curvature h: G, the gradient, the sum's curvature, or the rate may fail."""
    P, one = np.eye(2) - 1 / 2, np.ones((2, 1, 1))
    good = Parameters(0.1, 0.05, 1.0)
    assert local_convergence(P, good, np.zeros(1), one).holds
    assert not local_convergence(P, good, np.ones(1), one).holds
    assert not local_convergence(P, good, np.zeros(1), -one).holds
    assert not local_convergence(P, Parameters(0.1, 0.2, 1.0), np.zeros(1), one).holds
    # Theorem 2's counterexample: the sum is convex and disagreement grows.
    h = np.array([-1.0, -1.0, 3.0])[:, None, None]
    apart = local_convergence(np.eye(3) - 1 / 3, Parameters(0.002, 0.001, 95.0), np.zeros(1), h)
    assert apart.least_curvature > 0 and apart.least_step > 0
    assert apart.rate > 1 and not apart.holds


def test_figure_3_has_the_papers_order_of_methods():
    """K = 500 at r = 0.5 and the paper's sizes: DPP2 below PPDC below DiaDSP."""
    arrays, curve = printed.drawn(Size(), 0), Curve(0.5, 1.0, 500)
    ends = [
        printed.stationarity(arrays, points[-1])
        for points in (
            printed.points(arrays, curve, 0, FIGURE_3),
            printed.primal_dual_points(arrays, curve, 0, kept=False),
            printed.tracking_points(arrays, curve, 0),
        )
    ]
    assert ends == sorted(ends) and ends[2] > 1
    assert Scope(500, 3) == STUDIES["ou_figure_3"].full


def test_secret_draws_lose_less_than_known_ones_where_noise_hides_a_turn():
    proved = certified(Setting(0.25, 0.9).block, 100)
    last = math.inf
    for sigma in (2.0, 5.0, 20.0):
        own = Setting(0.25, 0.9, sigma=sigma)
        epsilon = chan.secret(proved, own, 1000, 100)
        assert 0 < epsilon < min(last, chan.ours(proved, own, 1000, 100))
        assert epsilon < chan.seen(own, 1000, 100)
        last = epsilon
