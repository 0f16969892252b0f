"""What an answer is worth: at one point for all, in everybody's sets, and nothing left behind."""

import math
from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp
from dpcvx.model.private import seal_all
from dpcvx.run.data import stand_ins
from dpcvx.tuning.copies import Judge, values_kept
from tests.tuning.trials import LOADS, PROXY, balance, network

OPTIMUM = np.sum((LOADS[0] - LOADS[1]) ** 2) / 2


def judge(problem, proxy=PROXY, recourse=False):
    verb = "problem.tune"
    with values_kept(problem):
        proxy = stand_ins(problem, seal_all(proxy, "proxy"), verb, recourse=recourse)
        return Judge(problem, proxy, verb, recourse)


def with_vectors(problem, *vectors):
    """A solution in which agents hold these."""
    plan = problem.plan(dp.LinearizedADMM(penalty=1.0), rounds=1, epsilon=1.0, delta=1e-6)
    data = {name: np.zeros(shape) for name, shape in shapes(problem).items()}
    last = plan.run(data=data, seed=0).last
    return replace(last, vectors=tuple(np.array(x, dtype=float) for x in vectors))


def shapes(problem):
    return {p.spec.name: p.shape for agent in problem.agents for p in agent.private}


def test_agents_copies_are_not_judged_but_what_they_agree_on():
    problem = network()
    apart = with_vectors(problem, *LOADS)  # each at its own optimum, far below the common one
    assert dp.not_private.objective(problem, apart, PROXY) == 0
    found = judge(problem)
    assert found.optimum == pytest.approx(OPTIMUM, abs=1e-7)
    assert found(apart) == pytest.approx(OPTIMUM, abs=1e-7)


def test_the_mean_is_moved_into_everybodys_sets():
    limits = {0: [0, 0.5], 1: [-1, 0.3]}
    problem = network(constraints=lambda x, k: [x >= limits[k][0], x <= limits[k][1]])
    outside = with_vectors(problem, [0.5, 0.5], [0.3, -0.9])  # the mean is (0.4, -0.2)
    at = np.array([0.3, 0.0])
    expected = sum(np.sum((at - load) ** 2) for load in LOADS)
    assert judge(problem)(outside) == pytest.approx(expected, abs=1e-6)


def test_couplings_are_kept():
    problem = balance()
    proxy = {"load 0": 0.3, "load 1": 0.3}
    plan = problem.plan(dp.ResourceADMM(), rounds=1, epsilon=1.0, delta=1e-6)
    last = plan.run(data=proxy, seed=0).last
    broken = replace(last, vectors=(np.array([0.3]), np.array([0.3])))
    at = np.array([0.5, 0.5])  # the closest point of x0 + x1 = 1
    assert judge(problem, proxy)(broken) == pytest.approx(np.sum((at - 0.3) ** 2), abs=1e-6)


def test_what_is_not_finite_is_infinitely_bad():
    problem = network()
    assert judge(problem)(with_vectors(problem, [math.nan, 0], [0, 0])) == math.inf


def test_the_start_is_judged_like_an_answer():
    assert judge(network()).start == pytest.approx(sum(np.sum(load**2) for load in LOADS))
    assert not judge(network()).idle
    assert judge(network(), {"load 0": np.zeros(2), "load 1": np.zeros(2)}).idle


def test_objectives_that_are_not_convex_have_no_optimum_and_are_judged():
    x = cp.Variable(2, name="x")
    load = dp.Private(shape=2, name="load", adjacency=dp.Within(0.01))
    cost = load @ x - cp.sum_squares(x)
    problem = dp.Problem([dp.Agent(cp.Minimize(cost), [cp.abs(x) <= 1], name="a")])
    found = judge(problem, {"load": [1.0, 1.0]})
    assert found.optimum is None and not found.idle
    assert found.start == pytest.approx(0, abs=1e-9)
    assert found.reference([0.5, -1.0]) == -1.0 and found.reference([1.0]) == found.start


@pytest.mark.parametrize("failed", [RuntimeError, KeyboardInterrupt])
def test_values_and_dual_values_are_as_before(failed):
    problem = network()
    (x,) = problem.variables()
    (dual,) = problem.agents[0].constraints[0].dual_variables
    x.value, dual.value = np.array([0.1, 0.2]), np.array([0.3, 0.4])
    with pytest.raises(failed), values_kept(problem):
        judge(problem)
        x.value, dual.value = None, None
        raise failed
    assert np.array_equal(x.value, [0.1, 0.2]) and np.array_equal(dual.value, [0.3, 0.4])


def test_stand_ins_without_an_optimum_are_refused_in_words():
    apart = network(constraints=lambda x, k: [x >= 1 if k == 0 else x <= 0])
    with pytest.raises(dp.ModelError, match="No point lies in the sets of all agents, so problem"):
        judge(apart)
    x = cp.Variable(name="x")
    load = dp.Private(shape=(), name="load", adjacency=dp.Within(0.01))
    falling = dp.Problem([dp.Agent(cp.Minimize(load * x), name="a")])
    with pytest.raises(dp.ModelError, match="objectives are unbounded below, so problem.tune"):
        judge(falling, {"load": 1.0})


def test_recourse_counts_where_it_is_asked_for():
    tie, gen = cp.Variable(name="tie"), cp.Variable(2, name="gen")
    load = dp.Private(shape=2, name="load", adjacency=dp.Within(0.1), proxy=[1.0, 2.0])
    limit = dp.Private(shape=1, name="limit", adjacency=dp.Within(0.1))
    cost = cp.sum_squares(gen + tie - load) + 0.1 * cp.sum_squares(gen)
    a = dp.Agent(cp.Minimize(cost), name="a", recourse=[gen[0] <= limit[0]])
    b = dp.Agent(cp.Minimize(cp.square(tie - 1)), name="b")
    problem = dp.Problem([a, b])
    found = with_vectors(problem, [9.0, -9.0, 0.3], [0.3])  # gen, tie; tie
    plain, kept = judge(problem, {}), judge(problem, {"limit": [0.5]}, recourse=True)
    # gen = (load - tie) / 1.1, the first one cut off at the limit.
    one, other = 0.5, 1.7 / 1.1
    best = sum((g - v) ** 2 + 0.1 * g * g for g, v in ((one, 0.7), (other, 1.7))) + 0.7**2
    assert kept(found) == pytest.approx(best, abs=1e-6)
    assert plain(found) > best + 100
    assert kept.optimum < kept.start < plain.start
    with pytest.raises(dp.ModelError, match=r"'limit' has no proxy data, and problem\.tune"):
        judge(problem, {}, recourse=True)
    found = problem.tune(
        proxy={"limit": [0.5]},
        epsilon=1.0,
        delta=1e-6,
        time_limit=0.5,
        verbose=False,
        recourse=True,
    )
    assert "after every agent's own decision (result.recourse)" in " ".join(str(found).split())
    assert found.optimum == kept.optimum
