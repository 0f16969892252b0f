"""Cost of a round in calls of the package's functions: no clock, so the load does not matter."""

import cProfile
import pstats
from pathlib import Path

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp
from dpcvx.solvers import blocks

# Calls a round with one agent, three agents one by one, and a batch of eight, when one agent and
# several had gates, oracles and workers of their own; and how much more a round may take.
CALLS = {
    "LinearizedADMM": {1: 201.8, 8: 563.0},
    "FederatedGradient": {1: 213.8, 3: 504.1, 8: 447.5},
}
ALLOWED = {1: 1.03, 3: 1.03, 8: 1.05}
CASES = [(method, count) for method, counts in CALLS.items() for count in counts]
PACKAGE = str(Path(dp.__file__).parent)


def planned(method, count, rounds):
    w = cp.Variable(3, name="w")
    rng = np.random.default_rng(0)
    agents = []
    for k in range(count):
        rows = rng.normal(size=(6, 3))
        rows /= np.maximum(1, np.linalg.norm(rows, axis=1))[:, None]
        X = dp.Private(rows, name=f"X{k}", adjacency=dp.Rows(1.0))
        factor = 1 + k / 8 if count == 3 else 1.0  # three that are no batch
        cost = factor * cp.sum(cp.logistic(X @ w)) / 6
        agents.append(dp.Agent(cp.Minimize(cost), [cp.abs(w) <= 5], name=f"c{k}"))
    mechanism = dp.Gaussian(noise_multiplier=9.0)
    return dp.Problem(agents).plan(method, rounds=rounds, mechanism=mechanism, delta=1e-6)


def calls(method, count):
    """Return calls of the package's functions in each of 40 rounds."""
    totals = []
    for rounds in (40, 80):
        plan = planned(method, count, rounds)
        plan.run(seed=1, verbose=False, executor=dp.Serial())  # what is made once and cached
        profile = cProfile.Profile()
        profile.enable()
        plan.run(seed=1, verbose=False, executor=dp.Serial())
        profile.disable()
        stats = pstats.Stats(profile).stats
        totals.append(
            sum(row[1] for (file, _, _), row in stats.items() if file.startswith(PACKAGE))
        )
    return (totals[1] - totals[0]) / 40


@pytest.mark.parametrize(("method", "count"), CASES)
def test_a_round_calls_few_functions(method, count):
    made = calls(getattr(dp, method)(), count)
    assert made <= ALLOWED[count] * CALLS[method][count]


def test_runs_use_the_layouts_of_planning(monkeypatch):
    """Newton's method prepares an agent's set once, for planning and for all runs of the plan."""
    prepared, layout_of = [], blocks.layout_of

    def counted(data):
        prepared.append(data)
        return layout_of(data)

    monkeypatch.setattr(blocks, "layout_of", counted)
    x, y = cp.Variable(4, name="x"), cp.Variable(3, name="y")
    d = dp.Private(np.ones(3), name="d", adjacency=dp.Within(0.1))
    cones = [cp.SOC(1 + y[0], x[:2] - x[2:]), cp.sum(x) <= 2, cp.SOC(2 + y[1], x[:2]), y <= 1]
    north = dp.Agent(cp.Minimize(cp.sum_squares(x[:3] + y - d)), cones, name="north")
    south = dp.Agent(cp.Minimize(cp.sum_squares(x - 1)), [cp.abs(x) <= 3], name="south")
    method = dp.LinearizedADMM(penalty=1.0)
    plan = dp.Problem([north, south]).plan(method, rounds=2, epsilon=1.0, delta=1e-6)
    for seed in range(2):
        plan.run(seed=seed, verbose=False)
    local = plan.program.agents[0]
    assert local.kernel and sum(data is local.blocks.conic for data in prepared) == 1
