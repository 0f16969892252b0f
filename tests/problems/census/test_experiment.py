"""Runs: one total for all methods, convergence without noise, and the intervals of the losses."""

import numpy as np
import pytest

from dpcvx.accounting import Composition
from dpcvx.ex_post import amplification
from problems.census.experiment import Traces, iterates, run, spread
from problems.census.exposure import exposure, intervals, step_of
from problems.census.measures import Measures
from problems.census.methods import DELTA, METHODS, NOISELESS, Budget
from problems.census.records import made_records, shared_out
from problems.census.study import census, data_of

N, EDGES, ROUNDS = 4, 4, 6
MEASURES = Measures.of(shared_out(made_records(120, seed=3), N, 20, seed=1))
BUDGET = Budget.of(2.0, ROUNDS)


@pytest.fixture(scope="module")
def study():
    return census(N, 20, 14)


def recorded(study, method, rounds, budget):
    """Plan and iterates of a run."""
    plan = method.plan(study, EDGES, 5, rounds, budget)
    result = plan.run(data=data_of(MEASURES.shares.parts), seed=5, record=True, verbose=False)
    return plan, iterates(result, N)


@pytest.mark.parametrize("method", METHODS, ids=lambda m: m.name)
def test_every_method_has_the_same_total(study, method):
    trace = run(study, method, MEASURES, EDGES, ROUNDS, BUDGET, 3)
    assert trace.guarantee.kind == "worst-case"
    assert trace.guarantee.epsilon == pytest.approx(2.0, rel=1e-5)
    assert trace.guarantee.delta == DELTA
    assert trace.distance.shape == (ROUNDS + 1, N)
    assert trace.gap.shape == trace.accuracy.shape == (ROUNDS + 1,)
    # The public start is 0.
    np.testing.assert_allclose(trace.distance[0], np.linalg.norm(MEASURES.best) / 14)
    assert trace.gap[0] == 1
    assert (trace.exposure is not None) == method.random


def test_the_budget_is_that_of_the_accountant():
    laplace = Composition().with_laplace(BUDGET.laplace, ROUNDS)
    gaussian = Composition().with_gaussian(BUDGET.gaussian, ROUNDS)
    for each in (laplace, gaussian):
        assert each.price(DELTA).epsilon == pytest.approx(2.0, rel=1e-5)


@pytest.mark.parametrize("method", NOISELESS, ids=lambda m: m.name)
def test_without_noise_all_come_near_the_optimum(study, method):
    trace = run(study, method, MEASURES, EDGES, 60, None, 0)
    assert trace.guarantee.kind == "none" and trace.exposure is None
    # Agents with steps of 0.95^k stop at some distance from each other.
    assert trace.distance[-1].max() < 0.05 * trace.distance[0].max()
    assert trace.gap[-1] < 1e-3


@pytest.mark.parametrize("method", METHODS, ids=lambda m: m.name)
def test_without_noise_iterates_lie_in_the_intervals(study, method):
    plan, X = recorded(study, method, 12, None)
    low, length = intervals(plan, MEASURES.shares.parts, X)
    place = X[1:] - low
    assert (place > -1e-12).all() and (place < length + 1e-12).all()
    assert (length[0] == 0).all()
    if not method.random:
        assert (length < 1e-15).all()
        return
    used = length > 1e-9
    assert used[1:].mean() > 0.5
    shares = place[used] / length[used]
    assert shares.min() < 0.1 and shares.max() > 0.9 and abs(shares.mean() - 0.5) < 0.1


def test_ex_post_losses_are_shares_of_the_worst_case(study):
    plan, X = recorded(study, METHODS[0], ROUNDS, BUDGET)
    found = exposure(plan, MEASURES.shares.parts, X)
    # All start at one point: nothing to average in round 1.
    assert found.observed[0] == found.expected[0] == 1
    assert (found.observed[1:] < 1).all() and (found.expected > 0).all()
    np.testing.assert_array_equal(found.rounds, np.arange(1, ROUNDS + 1))
    # By hand: D = 10, 20 records per agent.
    _, length = intervals(plan, MEASURES.shares.parts, X)
    scale = BUDGET.laplace * 2 * np.sqrt(14) / 20 / 10
    gamma = amplification(omega=length[3], beta=1 / scale, shift=2 / 20 / 10)
    assert found.expected[3] == pytest.approx(gamma.mean(), rel=1e-3)


def test_observed_losses_have_the_expected_mean(study):
    seen, means = [], []
    for seed in range(8):
        found = run(study, METHODS[3], MEASURES, EDGES, ROUNDS, BUDGET, seed).exposure
        seen.append(found.observed[1:])
        means.append(found.expected[1:])
    # Over 8 * 5 * 56 coordinates.
    assert np.mean(seen) == pytest.approx(np.mean(means), abs=0.02)


def test_steps_are_those_of_the_paper(study):
    steps = {m.name: step_of(m.plan(study, EDGES, 0, 3, None), 3) for m in METHODS}
    assert steps["Algorithm 1"] == 0.1
    assert steps["Algorithm 2*"] == pytest.approx(0.93**2)
    assert steps["Huang, Mitra and Vaidya"] == pytest.approx(0.9**2)
    assert steps["Appendix J"] == 0.8


def test_traces_are_gathered_by_run(study):
    runs = tuple(run(study, METHODS[0], MEASURES, EDGES, 3, BUDGET, s) for s in range(2))
    traces = Traces(METHODS[0], runs)
    assert traces.distances.shape == traces.gaps.shape == traces.accuracies.shape == (2, 4)
    assert len(traces.exposures) == 2 and traces.guarantee is runs[0].guarantee
    mean, low, high = spread(traces.gaps)
    assert (low <= mean).all() and (mean <= high).all()


def test_networks_are_drawn_anew_for_every_seed(study):
    graphs = [METHODS[0].plan(study, EDGES, seed, 3, None).algorithm.graph for seed in range(4)]
    assert len({graph.edges for graph in graphs}) > 1
    assert all(len(graph.edges) == EDGES for graph in graphs)
    for method in METHODS:
        assert method.plan(study, EDGES, 0, 3, None).algorithm.graph.complete == method.everyone
