"""The utility benchmark: its models, and how answers are judged."""

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp
from tests.benchmarks.utility.judge import Judge
from tests.benchmarks.utility.models import MODELS, Model

SMALL = [name for name in MODELS if name not in ("power flow 118", "elastic net")]


@pytest.mark.parametrize("name", MODELS)
def test_stand_ins_are_of_the_kind_that_is_declared(name):
    model = MODELS[name]()
    private = {p.name(): p for agent in model.problem.agents for p in agent.private}
    assert set(model.stand_in) == set(private)
    dp.not_private.central(model.problem, model.stand_in)  # shapes and bounds are checked


@pytest.mark.parametrize("name", SMALL)
def test_no_answer_is_below_the_optimum(name):
    judge = Judge(MODELS[name]())
    assert judge.nothing > 0
    assert (
        abs(judge.at(judge.best)) < 1e-5 * judge.nothing
    )  # the solver's digits, and their root after a projection


def test_an_answer_is_judged_within_all_sets_at_its_mean():
    x = cp.Variable(2, name="x")
    target = dp.Private([3.0, 0.0], name="target", adjacency=dp.Within(1.0))
    one = dp.Agent(cp.Minimize(cp.sum_squares(x - target)), [x[0] <= 2])
    other = dp.Agent(cp.Minimize(cp.sum_squares(x)), [x[1] >= 1])
    judge = Judge(Model(dp.Problem([one, other]), {}))
    # The optimum is (1.5, 1), the start is moved to (0, 1).
    assert judge.optimum == pytest.approx(1.5**2 + 1 + 1.5**2 + 1)
    assert judge.nothing == pytest.approx(9 + 1 + 1 - judge.optimum)
    assert judge.distance == pytest.approx(np.hypot(1.5, 1))
    # Without projection (4, -2) would have another gap than (2, 1).
    assert judge.at({x: [4.0, -2.0]}) == pytest.approx(1 + 1 + 4 + 1 - judge.optimum, rel=1e-6)
