"""Dispatch and allocation against their closed solutions."""

import numpy as np
import pytest

import dpcvx as dp
from examples.shared_resources import rows
from problems.dispatch.study import economic_dispatch, resource_allocation
from problems.power_flow.study import power_flow


def test_prices_of_generators_inside_their_limits_are_equal_at_the_optimum():
    case = power_flow(5).case
    shared = economic_dispatch(case)
    best = shared.optimum()
    assert best.sum() == pytest.approx(case.bus.pd.sum())
    free = np.flatnonzero(case.gen.pmax > case.gen.pmin)
    low, high = case.gen.pmin[free], case.gen.pmax[free]
    scale = float(np.max(case.gen.c1 + 2 * case.gen.c2 * case.gen.pmax))
    marginal = case.gen.c1[free] / scale + 2 * (case.gen.c2[free] / scale) * best
    marginal += 0.1 / high * best
    inside = (best > low + 1e-5) & (best < high - 1e-5)
    assert inside.sum() >= 1
    assert np.ptp(marginal[inside]) < 1e-4
    # Who is cheaper is at its limit, who is dearer is off.
    price = marginal[inside].mean()
    assert (best[marginal < price - 1e-4] > high[marginal < price - 1e-4] - 1e-5).all()
    assert (best[marginal > price + 1e-4] < low[marginal > price + 1e-4] + 1e-5).all()


def test_an_allocation_gives_everyone_the_same_less_than_was_wished():
    wishes = np.random.default_rng(0).uniform(1.0, 2.0, size=(6, 2))
    supply = wishes.sum(axis=0) - np.array([1.2, 0.6])
    shared = resource_allocation(wishes, supply)
    assert shared.optimum() == pytest.approx(wishes - np.array([0.2, 0.1]), abs=1e-5)
    plan = shared.problem.plan(dp.ResourceADMM(penalty=0.5), mechanism=None, rounds=400)
    assert shared.values(plan.run()) == pytest.approx(wishes - np.array([0.2, 0.1]), abs=1e-7)


def test_the_example_prints_what_runs_cost():
    wishes = np.random.default_rng(0).uniform(0.0, 2.0, size=(4, 2))
    lines = list(rows("allocation", resource_allocation(wishes, np.ones(2)), 10))
    assert len(lines) == 6 and "4 agents" in lines[0] and "(100, 1e-6)" in lines[-1]
    excess = [float(line.split()[-3]) for line in lines[2:]]
    assert abs(excess[0]) < 1e-4
