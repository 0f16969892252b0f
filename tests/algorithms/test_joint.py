"""The sets of all agents as one."""

from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp
from dpcvx.algorithms.common_point import common_point
from dpcvx.algorithms.joint import joint_set

W = cp.Variable(3, name="w")
BOX = [cp.abs(W) <= 5, cp.sum(W) <= 2]
BALL = [cp.norm(W - np.array([1.0, 0, 0])) <= 2]


def program(*sets, own=False):
    agents = []
    for k, constraints in enumerate(sets):
        data = dp.Private(np.zeros((6, 3)), name=f"X{k}", adjacency=dp.Rows(1.0))
        cost, more = cp.sum(cp.logistic(data @ W)), []
        if own:
            z = cp.Variable(name=f"z{k}")
            cost, more = cost + cp.square(z - W[0]), [z <= k]
        agents.append(dp.Agent(cp.Minimize(cost), [*constraints, *more], name=f"c{k}"))
    return dp.Problem(agents).plan(dp.LinearizedADMM(), rounds=2, mechanism=None).program


def copied(program):
    """The same, with a set of its own for every agent."""
    agents = [replace(a, constraints=replace(a.constraints)) for a in program.agents]
    return replace(program, agents=tuple(agents))


@pytest.mark.parametrize(
    "sets, apart",
    [([BOX] * 5, 1), ([BALL] * 5, 1), ([BOX, BALL, BOX, BALL], 2)],
    ids=["polyhedra", "balls", "of both"],
)
def test_a_set_that_many_have_is_in_the_joint_set_once(sets, apart):
    shared = program(*sets)
    alone, whole, each = (
        joint_set(p).data for p in (program(*sets[:apart]), shared, copied(shared))
    )
    assert whole.b.size == alone.b.size < each.b.size
    assert whole.cones == alone.cones
    rng = np.random.default_rng(0)
    for _ in range(5):
        vectors = [rng.normal(size=3) * 4] * len(sets)
        one, other = (common_point(p, vectors) for p in (shared, copied(shared)))
        # Objectives of solves are accurate to 1e-11, so points to the root of that.
        assert np.abs(np.subtract(one.vectors, other.vectors)).max() < 1e-5
        assert one.excess == pytest.approx(other.excess, abs=1e-9)


def test_sets_of_components_of_their_own_are_in_it_for_every_agent():
    own = program(BOX, BOX, BOX, own=True)
    assert joint_set(own).data.b.size == joint_set(copied(own)).data.b.size


@pytest.mark.parametrize("place", [0, 1, 3])
def test_what_a_point_misses_of_one_set_shows_among_many_others(place):
    alike, other = program(*[[W[0] >= 2]] * 4), program(*[[W[0] <= 0]] * 4)
    agents = list(alike.agents)
    agents[place] = other.agents[place]
    point = common_point(replace(alike, agents=tuple(agents)), [np.array([9.0, 0, 0])] * 4)
    assert not point.found and point.excess == pytest.approx(9.0)
