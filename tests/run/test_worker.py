"""A worker's public tools know nothing of exact gradients, after any of its turns."""

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp
from dpcvx.plan.agent_plan import AgentPlan
from dpcvx.run.worker import Worker
from dpcvx.solvers.projector import Projector
from tests.replay import observed, released

SETS = {
    "box": lambda x: [cp.abs(x) <= 0.4],
    "polyhedron": lambda x: [cp.sum(x) <= 0.5, x[0] - x[1] <= 0.3, x >= -1, x <= 1],
    "l1 ball": lambda x: [cp.norm1(x) <= 0.5],
    "cone": lambda x: [cp.norm(x[:2]) <= 0.6 + x[2], cp.sum(x) <= 0.4],
}
METHODS = {
    "gradients": {"perturb": "objective"},
    "results": {"perturb": "output"},
    "claimed results": {"perturb": "output", "output_sensitivity": 0.1},
    "claimed and projected": {"perturb": "projected_output", "output_sensitivity": 0.1},
}
DATA = [np.array([0.9, -0.4, 1.3]), np.array([0.2, 0.8, -0.7])]


def planned(constraints, **settings):
    x = cp.Variable(3, name="x")
    agents = [
        dp.Agent(
            cp.Minimize(cp.sum_squares(x - dp.Private(d, name=f"d{k}", adjacency=dp.Within(0.01)))),
            SETS[constraints](x),
            name=f"a{k}",
        )
        for k, d in enumerate(DATA)
    ]
    method = dp.LinearizedADMM(1.0, step=0.1, **settings)
    return dp.Problem(agents).plan(
        method, mechanism=dp.Gaussian(noise_multiplier=2.0), rounds=3, delta=1e-6
    )


def numbers(thing, seen=None):
    """Every number that is reached from a thing, and the answers that its solvers would give."""
    seen = {} if seen is None else seen
    if id(thing) in seen:
        return
    seen[id(thing)] = thing
    if isinstance(thing, np.ndarray):
        yield thing.tobytes()
    elif isinstance(thing, (float, int, str, bytes)):
        yield thing
    elif type(thing).__name__ == "DefaultSolver":
        yield np.array(thing.solve().x).tobytes()
    elif isinstance(thing, dict):
        for key in sorted(thing, key=str):
            yield from numbers(thing[key], seen)
    elif isinstance(thing, (list, tuple)):
        for part in thing:
            yield from numbers(part, seen)
    elif hasattr(thing, "__self__") and not isinstance(thing, type):
        yield from numbers(thing.__self__, seen)
    elif hasattr(thing, "func"):  # functools.partial
        yield from numbers([thing.func, thing.args, thing.keywords], seen)
    else:
        yield from numbers(getattr(thing, "__dict__", {}), seen)
        for cell in getattr(thing, "__closure__", None) or ():
            yield from numbers(cell.cell_contents, seen)


def tools(monkeypatch, plan, data, frozen=None):
    """What is reached from agents' public tools after each of their turns, and what left."""
    found, honest, order = [], Worker.act, {}

    def act(self, *arguments):
        reply = honest(self, *arguments)
        place = order.setdefault(id(self), len(order))
        found.append((place, list(numbers(self._local))))
        return reply

    with monkeypatch.context() as patch:
        patch.setattr(Worker, "act", act)
        exits = observed(plan, data, frozen=frozen)
    assert len(found) == 6
    # By agent: long turns are taken in threads after the first round, and end in any order.
    found.sort(key=lambda turn: turn[0])
    return [reached for _, reached in found], released(exits)


def apart(monkeypatch, plan):
    """Whether the tools tell a change of the data, while everything that left stays the same."""
    given = {f"d{k}": d for k, d in enumerate(DATA)}
    other = {name: d + np.array([0.0, 0.008, 0.0]) for name, d in given.items()}
    one, frozen = tools(monkeypatch, plan, given)
    two, _ = tools(monkeypatch, plan, other, frozen)
    assert all(len(found) > 10 for found in one)
    return one != two


@pytest.mark.parametrize("constraints", SETS)
@pytest.mark.parametrize("method", METHODS)
def test_public_tools_are_the_same_on_neighboring_data(constraints, method, monkeypatch):
    assert not apart(monkeypatch, planned(constraints, **METHODS[method]))


@pytest.mark.parametrize("constraints", ["l1 ball", "cone"])
def test_a_solver_that_the_door_shares_with_public_code_would_tell(constraints, monkeypatch):
    """What the test above looks for is found where a solver is shared."""
    plan, kept = planned(constraints, **METHODS["claimed results"]), {}

    def one(self_or_data, name=None):
        owner = getattr(self_or_data, "name", name)
        if owner not in kept:
            local = getattr(self_or_data, "program", self_or_data)
            kept[owner] = Projector(local.constraints, owner)
        return kept[owner]

    programs = {agent.name: agent.program for agent in plan.agents}
    monkeypatch.setattr(AgentPlan, "projector", one)
    monkeypatch.setattr("dpcvx.run.worker.Projector", lambda data, name, *_: one(programs[name]))

    def fresh(*arguments, honest=observed, **named):
        kept.clear()
        return honest(*arguments, **named)

    monkeypatch.setattr("tests.run.test_worker.observed", fresh)
    assert apart(monkeypatch, plan)
