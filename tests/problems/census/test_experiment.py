"""Runs: one total for all methods, convergence without noise, and the intervals of the losses."""

import numpy as np
import pytest
from scipy.special import expit

import dpcvx as dp
from dpcvx.privacy.accounting import Composition
from problems.census.ex_post import amplification
from problems.census.experiment import iterates, run
from problems.census.exposure import exposure
from problems.census.intervals import intervals, step_of
from problems.census.measures import Measures
from problems.census.methods import DELTA, METHODS, NOISELESS, RATE, Budget, named
from problems.census.records import made_records, shared_out
from problems.census.study import census
from problems.labeled import data_of

N, EDGES, ROUNDS = 4, 4, 6
MEASURES = Measures.of(shared_out(made_records(120, seed=3), N, 20, seed=1))
BUDGET = Budget.of(2.0, ROUNDS)
KINDS = {
    "Laplace": BUDGET,
    "falling Laplace": Budget.of(2.0, ROUNDS, decay=1 / RATE),
    "Gaussian": Budget.of(2.0, ROUNDS, "Gaussian"),
    "falling Gaussian": Budget.of(2.0, ROUNDS, "Gaussian", 1 / RATE),
}
kinds = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture(scope="module")
def study():
    return census(N, 20, 14)


def ran(study, method, rounds, budget):
    """Plan and result of a run."""
    plan = method.plan(study, EDGES, 5, rounds, budget)
    return plan, plan.run(data=data_of(MEASURES.shares.parts), seed=5, record=True, verbose=False)


def recorded(study, method, rounds, budget):
    """Plan and iterates of a run."""
    plan, result = ran(study, method, rounds, budget)
    return plan, iterates(plan, result)


def one(name):
    """The method of a name."""
    (method,) = named(name)
    return method


@pytest.mark.parametrize("method", METHODS, ids=lambda m: m.name)
def test_every_method_has_the_same_total(study, method):
    trace = run(study, method, MEASURES, EDGES, ROUNDS, BUDGET, 3)
    assert trace.guarantee.kind == "worst-case"
    assert trace.guarantee.epsilon == pytest.approx(2.0, rel=1e-5)
    assert trace.guarantee.delta == DELTA
    assert trace.distance.shape == (ROUNDS + 1, N)
    assert trace.gap.shape == (ROUNDS + 1,)
    # The public start is 0.
    np.testing.assert_allclose(trace.distance[0], np.linalg.norm(MEASURES.best) / 14)
    assert trace.gap[0] == 1
    assert (trace.exposure is not None) == method.measured


@kinds
def test_the_budget_is_that_of_the_accountant(kind):
    budget = KINDS[kind]
    total = Composition()
    for t in range(ROUNDS):
        add = total.with_gaussian if "Gaussian" in kind else total.with_laplace
        total = add(budget.multiplier / (RATE**t if "falling" in kind else 1))
    assert total.price(DELTA).epsilon == pytest.approx(2.0, rel=1e-5)
    assert budget.spent(ROUNDS).price(DELTA).epsilon == pytest.approx(2.0, rel=1e-5)
    assert budget.spent(ROUNDS - 1).price(DELTA).epsilon < 2


@pytest.mark.parametrize("method", NOISELESS, ids=lambda m: m.name)
def test_without_noise_all_come_near_the_optimum(study, method):
    trace = run(study, method, MEASURES, EDGES, 60, None, 0)
    assert trace.guarantee.kind == "none" and trace.exposure is None
    # Agents with steps of 0.95^k stop at some distance from each other.
    assert trace.distance[-1].max() < 0.05 * trace.distance[0].max()
    assert trace.gap[-1] < 1e-3


@pytest.mark.parametrize(
    ("random", "fixed"),
    [
        ("Algorithm 1", "Algorithm 1, fixed weights"),
        ("Algorithm 1, exact steps", "Conventional ADMM (exact, fixed)"),
        ("Algorithm 2", "Algorithm 2, fixed weights"),
    ],
)
def test_figure_d_random_weights_do_as_well_as_fixed_ones(study, random, fixed):
    """In every of 40 rounds distances differ by less than a fifth; they fall by 15 and more."""
    own = {method.name: method for method in NOISELESS}
    runs = [run(study, own[name], MEASURES, EDGES, 40, None, 0) for name in (random, fixed)]
    one, other = (trace.distance.mean(axis=1) for trace in runs)
    np.testing.assert_allclose(one, other, rtol=0.2)
    assert max(one[-1], other[-1]) < one[0] / 15
    assert all(trace.guarantee.kind == "none" for trace in runs)


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


def charged(result, X, weight, stretch=1.0):
    """What a replaced record was taken to do, by round and agent, in l2: at the point of the step.

    At most 20 % farther out, it is twice the slope of the logistic loss over the records of an
    agent and the weight of the step.
    """
    entries = [account.entries for account in result.ledger.values()]
    found = np.array([[e.sensitivity for e in own] for own in entries]).T / stretch
    far = np.linalg.norm(X[:-1], axis=2)
    assert (found >= 2 / 20 / weight * expit(far) * (1 - 1e-6)).all()
    assert (found <= 2 / 20 / weight * expit(1.2 * far) * (1 + 1e-3)).all()
    return found


@pytest.mark.parametrize("kind", ["Laplace", "falling Laplace"])
def test_ex_post_losses_are_shares_of_the_worst_case(study, kind):
    plan, result = ran(study, METHODS[0], ROUNDS, KINDS[kind])
    X = iterates(plan, result)
    found = exposure(plan, MEASURES.shares.parts, X, result.ledger)
    # All start at one point: nothing to average in round 1.
    assert found.observed[0] == found.expected[0] == 1
    assert (found.observed[1:] < 1).all() and (found.expected > 0).all()
    np.testing.assert_array_equal(found.rounds, np.arange(1, ROUNDS + 1))
    # By hand: D = 10, 20 records per agent.
    _, length = intervals(plan, MEASURES.shares.parts, X)
    multiplier = KINDS[kind].multiplier / (RATE**3 if kind == "falling Laplace" else 1)
    scale = multiplier * np.sqrt(14) * charged(result, X, 10.0, np.sqrt(14))[3][:, None]
    gamma = amplification(omega=length[3], beta=1 / scale, shift=2 / 20 / 10)
    assert found.expected[3] == pytest.approx(gamma.mean(), rel=1e-3)


def test_observed_losses_have_the_expected_mean(study):
    seen, means = [], []
    for seed in range(8):
        found = run(study, one("Algorithm 2*"), MEASURES, EDGES, ROUNDS, BUDGET, seed).exposure
        seen.append(found.observed[1:])
        means.append(found.expected[1:])
    # Over 8 * 5 * 56 coordinates.
    assert np.mean(seen) == pytest.approx(np.mean(means), abs=0.02)


def test_steps_are_those_of_the_paper(study):
    steps = {m.name: step_of(m.plan(study, EDGES, 0, 3, None), 3) for m in METHODS}
    assert steps["Algorithm 1"] == 0.1
    assert steps["Algorithm 2*"] == pytest.approx(0.93**2)
    assert steps["Huang, Mitra and Vaidya"] == pytest.approx(0.9**2)
    assert steps["Appendix J"] == steps["Random coordinates"] == 0.8
    assert steps["Penalty perturbation (growing D)"] == pytest.approx(0.1 / 1.02**2)


def test_comparators_are_what_they_are_named_for(study):
    """Weights of dual, penalty and output perturbation are fixed; minimizers are exact or not."""
    found = {m.name: m.plan(study, EDGES, 0, 3, None).algorithm for m in METHODS[:5]}
    assert all(isinstance(own, dp.DecentralizedADMM) for own in found.values())
    seen = {
        k: (a.randomness, bool(a.exact), a.growth, 1 / a.step, a.penalty) for k, a in found.items()
    }
    assert seen == {
        "Algorithm 1": (1, False, 1, 10, 0.5),
        "Algorithm 1, exact steps": (1, True, 1, 10, 0.5),
        "Dual perturbation (fixed weights)": (0, False, 1, 10, 0.5),
        "Penalty perturbation (growing D)": (0, False, 1.02, 10, 0.5),
        "Output perturbation (exact steps)": (0, True, 1, 10, 0.5),
    }


def test_networks_are_drawn_anew_for_every_seed(study):
    graphs = [METHODS[0].plan(study, EDGES, seed, 3, None).algorithm.graph for seed in range(4)]
    assert len({graph.edges for graph in graphs}) > 1
    assert all(len(graph.edges) == EDGES for graph in graphs)
    for method in METHODS:
        algorithm = method.plan(study, EDGES, 0, 3, None).algorithm
        if method.name == "Appendix J":  # sums, whoever forms them
            assert isinstance(algorithm, dp.FederatedAveraging)
        else:
            assert algorithm.graph.complete == method.everyone
