"""Figures 1 and 2 as printed, and PPDC: what the paper shows, and what it costs."""

import numpy as np
import pytest

import dpcvx as dp
from problems.labeled import Records, data_of
from problems.nonconvex_classification import printed
from problems.nonconvex_classification.experiment import FIGURE_3, Curve, Size, paper_method
from problems.nonconvex_classification.methods import ETA, GAMMA, OMEGA
from problems.nonconvex_classification.networks import geometric_network
from problems.nonconvex_classification.records import SMOOTHNESS

PAPER, SMALL = Size(), Size(6, 20, 3, None, 0.9)


@pytest.fixture(scope="module")
def shown():
    """Gaps and totals of some curves at the paper's sizes, K = 500."""
    curves = [(0.5, 1.0), (0.9, 1.0), (0.95, 1.0), (0.99, 1.0), (0.95, 0.1), (0.95, 5.0)]
    return {curve: printed.run(Curve(*curve, 501), PAPER, 0) for curve in curves}


def test_curves_have_the_papers_order_and_fall_far_below_the_start(shown):
    ends = [shown[r, 1.0].gap[500] for r in (0.5, 0.9, 0.95, 0.99)]
    assert ends == sorted(ends) and ends[2] < 1.0 < 1e3 < ends[3]
    by_scale = [shown[0.95, u].gap[500] for u in (0.1, 1.0, 5.0)]
    assert by_scale == sorted(by_scale) and by_scale[0] < 1e-10
    # Not so after 30 rounds, where noise has only been put in.
    for trace in shown.values():
        assert trace.gap[30] > 0.1 * trace.gap[0]


def test_what_converges_protects_nothing(shown):
    for trace in shown.values():
        assert trace.epsilon > (1e11 if trace.gap[500] < trace.gap[0] else 1e4)
    assert shown[0.95, 1.0].epsilon == pytest.approx(2.19e12, rel=1e-2)
    assert shown[0.5, 1.0].epsilon > 1e150
    # M of these records is no bound: that for all records of their length is larger.
    assert printed.drawn(PAPER, 0).study.smoothness > 6 * SMOOTHNESS


def test_in_the_end_a_curve_falls_as_one_without_noise(shown):
    silent = printed.run(Curve(0.0, 0.0, 501), PAPER, 0).gap
    noisy = shown[0.5, 1.0].gap
    # Gaps swing: means of their logarithms over fifty rounds.
    falls = [
        np.log(gap[end : end + 50]).mean() - np.log(gap[end - 100 : end - 50]).mean()
        for gap, end in ((noisy, 450), (silent, 300))
    ]
    assert falls[0] == pytest.approx(falls[1], rel=0.2) and falls[0] < -1


def test_without_noise_it_is_the_method_of_the_package():
    arrays = printed.drawn(SMALL, 0)
    found = printed.points(arrays, Curve(0.0, 0.0, 9), 0)
    network = geometric_network(SMALL.agents, SMALL.radius, edges=SMALL.edges)
    plan = arrays.study.problem.plan(paper_method(network), mechanism=None, rounds=9)
    parts = [Records(rows, np.ones(len(rows))) for rows in arrays.signed]
    result = plan.run(data=data_of(parts), iterates=True, executor=dp.Serial())
    expected = np.array([iterate.last.vectors for iterate in result.iterates])
    np.testing.assert_allclose(found[: len(expected)], expected, atol=1e-10)


def test_noise_has_the_printed_scales():
    arrays = printed.drawn(SMALL, 0)
    loud, silent = (printed.points(arrays, Curve(0.5, u, 1), 3)[1] for u in (1.0, 0.0))
    w, e = np.random.default_rng(3).laplace(size=(2, *silent.shape))
    L = arrays.P
    G = 0.1 * np.eye(len(L)) - 0.05 * L
    np.testing.assert_allclose(loud - silent, w - G @ (10 * L @ w) + 0.05 * L @ e, atol=1e-12)


def test_ppdc_noise_beside_points_costs_more_and_disturbs_less():
    """PPDC with the paper's step beside the same with noise in the points; K = 500."""
    for decay in (0.9, 0.95):
        curve = Curve(decay, 1.0, 501)
        beside, within = (printed.primal_dual(curve, PAPER, 0, kept=k) for k in (False, True))
        assert beside.gap[500] == pytest.approx(0.0063, rel=0.05)
        assert 2 * beside.gap[500] < within.gap[500] < 0.2 * beside.gap[0]
        assert beside.epsilon > 1e10 * within.epsilon and within.epsilon > 1e9


def test_ppdc_has_the_papers_step_and_weights():
    """eta = 0.01, gamma = 65, omega = 5; with a step of 0.1 the gap is 37 times as large."""
    assert (ETA, GAMMA / ETA, OMEGA / ETA) == pytest.approx((0.01, 65, 5))
    arrays, curve = printed.drawn(SMALL, 0), Curve(0.5, 1.0, 1)
    moved = printed.primal_dual_points(arrays, curve, 3, kept=False)[1]
    w = np.random.default_rng(3).laplace(size=moved.shape)
    zero = np.zeros_like(moved)
    expected = -0.01 * (arrays.gradients(zero) + 65 * arrays.P @ w)
    np.testing.assert_allclose(moved, expected, atol=1e-12)


@pytest.mark.parametrize("decay", [0.1, 0.5, 0.9])
def test_at_the_papers_settings_dpp2_ends_nearer_than_ppdc(decay):
    """Figure 3: the squared norm of the mean gradient at x^500."""
    arrays, curve = printed.drawn(PAPER, 0), Curve(decay, 1.0, 500)
    ends = (
        printed.points(arrays, curve, 0, FIGURE_3)[-1],
        printed.primal_dual_points(arrays, curve, 0, kept=False)[-1],
    )
    dpp2, ppdc = ((arrays.gradients(X).mean(axis=0) ** 2).sum() for X in ends)
    assert dpp2 < 0.1 * ppdc < 0.1 * 2e-8


@pytest.mark.parametrize("kept", [False, True])
def test_totals_of_ppdc_are_those_of_the_worst_curvature(kept):
    """With curvature -M points part like that, where a change moves gradients by delta."""
    curve, arrays = Curve(0.8, 2.0, 6), printed.drawn(SMALL, 0)
    delta, apart, spent = arrays.study.sensitivity, 0.0, 0.0
    for k in range(curve.rounds):
        scale = curve.scale * curve.decay**k
        if kept:  # both begin at what left
            spent += 0.01 * delta / scale
        else:
            spent += apart / scale
            apart = apart + 0.01 * (delta + SMOOTHNESS * apart)
    found = printed.primal_dual(curve, SMALL, 0, kept=kept).epsilon
    assert found == pytest.approx(np.sqrt(3) * spent, rel=1e-12)


def test_without_noise_ppdc_is_the_method_of_the_package():
    arrays, curve = printed.drawn(SMALL, 0), Curve(0.0, 0.0, 9)
    network = geometric_network(SMALL.agents, SMALL.radius, edges=SMALL.edges)
    method = dp.PrimalDual(network, step=0.01, penalty=65, dual_step=5, returned="last")
    plan = arrays.study.problem.plan(method, mechanism=None, rounds=9)
    parts = [Records(rows, np.ones(len(rows))) for rows in arrays.signed]
    result = plan.run(data=data_of(parts), iterates=True, executor=dp.Serial())
    expected = [arrays.gap(np.array(iterate.last.vectors)) for iterate in result.iterates]
    for kept in (False, True):
        found = printed.primal_dual(curve, SMALL, 0, kept=kept)
        np.testing.assert_allclose(found.gap[1:], expected, rtol=1e-8)
