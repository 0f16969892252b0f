"""Agents that differ in names only, labels of records among them, are compiled and bounded once."""

import math

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpcvx as dp
from dpcvx.algorithms.program import compile_problem
from dpcvx.model.agent import Model
from dpcvx.plan.agent_plan import sensitivities

# Labels of an agent's two objects, "{}" standing for the agent; whether they are the same records.
PATTERNS = {
    ("person of {}", "person of {}"): True,
    ("person of {}", "day of {}"): False,
    ("day of {}", "person of {}"): False,
    (None, None): True,
    (None, "record of {}"): False,
}


def _problem(patterns, change, clip):
    """Agents with two losses each, both of which one change moves if they read the same records."""
    rng = np.random.default_rng(0)
    w = cp.Variable(2, name="w")
    agents = []
    for k, labels in enumerate(patterns):
        names = [label and label.format(k) for label in labels]
        losses = []
        for part, label in enumerate(names):
            X = rng.normal(size=(4, 2))
            X /= np.linalg.norm(X, axis=1)[:, None]
            rows = dp.Rows(1.0, relation=change, records=label)
            data = dp.Private(X, name=f"X{part} of {k}", adjacency=rows)
            losses.append(cp.sum(cp.logistic(data @ w)) / 4)
        agents.append(
            dp.Agent(cp.Minimize(sum(losses)), [cp.abs(w) <= 5], name=f"agent {k}", clip_norm=clip)
        )
    return w, dp.Problem(agents)


def _planned(patterns, change, clip):
    """All that is public of a plan and of a seeded run."""
    w, problem = _problem(patterns, change, clip)
    plan = problem.plan(dp.FederatedGradient(), rounds=2, epsilon=1.0, delta=1e-6)
    result = plan.run(seed=0, verbose=False)
    accounts = {agent.name: agent.account().adjacency for agent in plan.agents}
    bounds = [agent.sensitivity.bound(p) for agent in plan.agents for p in (1, 2)]
    entries = [result.ledger[agent.name].entries for agent in plan.agents]
    facts = (plan.fingerprint, str(plan), plan.guarantee, accounts, bounds, entries)
    return plan, (*facts, w.value.tobytes(), str(result.guarantee))


@settings(max_examples=10, deadline=None)
@given(
    patterns=st.lists(st.sampled_from(list(PATTERNS)), min_size=2, max_size=5),
    change=st.sampled_from(["replace_one", "add_or_remove_one"]),
    clip=st.sampled_from([None, math.inf]),
)
def test_agents_with_labels_of_their_own_are_those_that_are_planned_apart(patterns, change, clip):
    plan, together = _planned(patterns, change, clip)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Model, "key", None)
        alone, apart = _planned(patterns, change, clip)
    assert together == apart
    assert len({agent.kind for agent in alone.agents}) == len(patterns)
    # One kind for the same records and one for others, whatever the labels.
    assert len({agent.kind for agent in plan.agents}) == len({PATTERNS[p] for p in patterns})
    for labels, agent in zip(patterns, plan.agents, strict=True):
        k = agent.name.split()[1]
        told = [spec.adjacency.records for spec in agent.sensitivity.private]
        assert told == [label and label.format(k) for label in labels]


def test_two_objects_with_one_label_still_count_together():
    patterns = [("person of {}",) * 2, ("person of {}", "day of {}"), ("who in {}",) * 2]
    _, problem = _problem(patterns, "replace_one", None)
    found = sensitivities(compile_problem(problem))
    same, other, again = (known.bound(2).value for known in found.values())
    assert same == again == pytest.approx(2 * other)


def test_another_number_in_the_model_or_the_declaration_makes_agents_unlike():
    def kinds(*bounds, weights=(1.0, 1.0)):
        w = cp.Variable(2, name="w")
        agents = []
        for k, (bound, weight) in enumerate(zip(bounds, weights, strict=True)):
            rows = dp.Rows(bound, records=f"person of {k}")
            data = dp.Private(np.zeros((4, 2)), name=f"X{k}", adjacency=rows)
            loss = weight * cp.sum(cp.logistic(data @ w))
            agents.append(dp.Agent(cp.Minimize(loss), [cp.abs(w) <= 5], name=f"agent {k}"))
        return len({local.kind for local in compile_problem(dp.Problem(agents)).agents})

    assert kinds(1.0, 1.0) == 1
    assert kinds(1.0, 1.5) == kinds(1.0, 1.0, weights=(1.0, 1.5)) == 2
