"""Constraints that an agent keeps for itself: what they may say, and who knows of them."""

import copy
import pickle

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp
from tests.frames import CANARY, leaks

WITHIN = dp.Within(0.1)


def private(name="limit", data=(CANARY,)):
    return dp.Private(list(data), name=name, adjacency=WITHIN)


def pair(own, limit=None):
    """An agent with `own` constraints on its gen and the shared tie, and another one."""
    tie, gen = cp.Variable(2, name="tie"), cp.Variable(3, name="gen")
    limit = private() if limit is None else limit
    load = private("load", np.ones(3))
    cost = cp.sum_squares(gen + tie[0] - load)
    north = dp.Agent(cp.Minimize(cost), name="north", recourse=own(gen, tie, limit))
    south = dp.Agent(cp.Minimize(cp.sum_squares(tie)), name="south")
    return dp.Problem([north, south])


def test_private_data_in_own_constraints_are_kept_apart():
    limit = private()
    problem = pair(lambda gen, tie, d: [gen <= d[0], cp.sum(gen) >= -d[0]], limit)
    north = problem.agents[0]
    assert [p.name() for p in north.private] == ["load"]
    assert len(north.kept) == 1 and north.kept[0] is limit
    assert [v.name() for v in north.variables] == ["gen", "tie"]
    assert len(problem.constraints) == 0
    assert repr(problem) == "<Problem: 2 agents, 2 variables, 2 private objects>"


def test_a_private_object_may_be_in_the_objective_as_well():
    gen, load = cp.Variable(2, name="gen"), private(data=[1.0, 2.0])
    agent = dp.Agent(cp.Minimize(cp.sum_squares(gen - load)), recourse=[gen <= 2 * load])
    assert len(agent.private) == 1 and agent.kept == ()


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda thing: pickle.loads(pickle.dumps(thing))])
def test_copies_have_no_data(copied):
    north = pair(lambda gen, tie, d: [gen <= d[0]]).agents[0]
    twin = copied(north)
    (kept,), (inside,) = twin.kept, twin.recourse[0].parameters()
    assert kept is inside and not kept.bound
    assert np.float64(CANARY).tobytes() not in pickle.dumps(twin)
    assert north.kept[0].bound


def test_objects_without_a_name_are_called_by_where_they_stand():
    def unnamed():
        return dp.Private([CANARY], adjacency=WITHIN)

    x, y, one, other = cp.Variable(name="x"), cp.Variable(name="y"), unnamed(), unnamed()
    agent = dp.Agent(cp.Minimize(cp.square(x + y - one[0])), name="a", recourse=[y <= other[0]])
    problem = dp.Problem([agent, dp.Agent(cp.Minimize(cp.square(x)), name="b")])
    assert [spec.name for spec in agent.specs("a").values()] == [
        "unnamed data of a",
        "unnamed data of recourse= of a",
    ]
    plan = problem.plan(mechanism="gaussian", epsilon=1.0, delta=1e-6)
    assert list(plan.guarantee.agents[0].adjacency) == ["unnamed data of a"]


@pytest.mark.parametrize(
    ("own", "words"),
    [
        (lambda gen, tie, d: [tie <= d[0]], "'tie', or entries of it, that other agents use"),
        (lambda gen, tie, d: [gen + tie[1] <= d[0]], "'tie', or entries of it, that other agents"),
        (lambda gen, tie, d: [cp.Variable(name="z") <= d[0]], "'z'.* neither in its objective"),
        (lambda gen, tie, d: [gen[0] >= 0, cp.norm(gen) >= d[0]], "Constraint 1 in recourse=.*DCP"),
        (lambda gen, tie, d: [d[0] * cp.square(gen[0]) <= 1], "DCP.*nonneg=True"),
        (
            lambda gen, tie, d: gen <= d[0],
            r"constraints in recourse= .* are a Inequality; write a list",
        ),
        (lambda gen, tie, d: [True], r"Constraint 0 in recourse= of agent 'north' is a bool"),
        (lambda gen, tie, d: [1j * gen[0] == d[0]], "complex numbers"),
    ],
)
def test_what_own_constraints_cannot_say_is_refused_in_words(own, words):
    with pytest.raises(dp.ModelError, match=words) as caught:
        pair(own)
    assert not leaks(caught.value)


def test_a_private_object_belongs_to_one_agent_there_as_well():
    tie, limit = cp.Variable(name="tie"), private()
    agents = []
    for k in range(2):
        gen = cp.Variable(name=f"gen {k}")
        cost = cp.Minimize(cp.square(gen + tie))
        agents.append(dp.Agent(cost, name=f"agent {k}", recourse=[gen <= limit[0]]))
    with pytest.raises(dp.PrivacyError, match="'limit' is used by agents 'agent 0' and 'agent 1'"):
        dp.Problem(agents)


def test_two_objects_of_one_name_could_not_be_told_apart():
    with pytest.raises(dp.ModelError, match=r"called 'load', in .*name='load of "):
        pair(lambda gen, tie, d: [gen <= d[0]], private("load"))
