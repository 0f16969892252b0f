"""What can be asked of owners: plans that none could be part of are refused before anybody is."""

import re
from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp
from dpcvx.algorithms.learned_scale import ScaleQuestion
from dpcvx.algorithms.summed import Question
from dpcvx.owners import offers, wellformed
from dpcvx.owners.coordinator import Remote
from dpcvx.owners.files import CoordinatorLog
from dpcvx.owners.offers import require_sense

NAMES = ("mill", "forge", "dairy")
LOADS = {f"load of {name}": np.full(3, 3.0) for name in NAMES}


def factories(*slacks, limit=lambda bought, slack: bought <= 6):
    """Three buyers with private loads and one feeder; the first holds what the feeder has left."""
    agents, bought = [], []
    for name, slack in zip(NAMES, (*slacks, None, None, None), strict=False):
        buy = cp.Variable(3, name=f"buy of {name}", nonneg=True)
        load = dp.Private(shape=3, name=f"load of {name}", adjacency=dp.Within(0.05))
        limits = [buy <= 5] if slack is None else [buy <= 5, slack >= 0]
        agents.append(dp.Agent(cp.Minimize(cp.sum_squares(buy - load)), limits, name=name))
        bought.append(buy)
    coupling = [limit(sum(bought), slacks[0] if slacks else None)]
    return dp.Problem(agents, coupling=coupling).plan(epsilon=1.0, delta=1e-6)


def tied(slack=None):
    """The same, by an equality with a slack that the first one holds."""
    slack = cp.Variable(3) if slack is None else slack
    return factories(slack, limit=lambda bought, left: bought + left == 6)


def unwanted(names):
    raise AssertionError(f"{names} are waited for")


def refused(plan):
    """What a coordinator says before it waits for anybody, and owners in one process do too."""
    executors = (
        Remote(unwanted, lambda: CoordinatorLog(None), lambda: "a run"),
        dp.LoopbackOwners(plan, data=LOADS),
    )
    said = set()
    for executor in executors:
        with pytest.raises(dp.ModelError) as refusal:
            plan.run(executor=executor)
        said.add(str(refusal.value))
    (found,) = said
    return found


def hospitals(M):
    """Two hospitals with M labeled records each, and values for them."""
    w, data, agents = cp.Variable(2, name="w"), {}, []
    for k in range(2):
        X = dp.Private(shape=(M, 2), name=f"X{k}", adjacency=dp.Rows(1.0, records=f"of {k}"))
        y = dp.Private(shape=(M,), name=f"y{k}", adjacency=dp.Rows(1.0, records=f"of {k}"))
        data |= {f"X{k}": np.full((M, 2), 0.5), f"y{k}": np.ones(M)}
        loss = cp.Minimize(cp.sum_squares(X @ w - y))
        agents.append(dp.Agent(loss, [cp.abs(w) <= 5], name=f"hospital {k}"))
    return dp.Problem(agents), data


def meters(n):
    """Two meters that agree on n numbers, and values for them."""
    x, data, agents = cp.Variable(n, name="x"), {}, []
    for k in range(2):
        usage = dp.Private(shape=n, name=f"usage {k}", adjacency=dp.Within(0.1))
        data[f"usage {k}"] = np.full(n, 0.5)
        loss = cp.Minimize(cp.sum_squares(x - usage))
        agents.append(dp.Agent(loss, [x >= 0, x <= 1], name=f"meter {k}"))
    return dp.Problem(agents), data


@pytest.mark.parametrize(
    ("build", "size"),
    [(hospitals, 33_000), (meters, 24_000)],  # sides that multiply to more than 2**30
)
def test_loopback_runs_what_one_process_runs_where_sides_are_long(build, size):
    problem, data = build(size)
    plan = problem.plan(dp.FederatedGradient(), rounds=2, epsilon=5.0, delta=1e-6)
    one = plan.run(data=data, seed=1, verbose=False)
    between = plan.run(executor=dp.LoopbackOwners(plan, data=data, seed=1), verbose=False)
    assert one.status == between.status
    x, y = (result.last.vectors[0] for result in (one, between))
    assert x.tobytes() == y.tobytes()


@pytest.mark.parametrize(
    ("limited", "named"),
    [
        ((wellformed, "LARGEST"), "Agent 'meter 0'"),
        ((offers, "MOST_SUMMED"), "dp.FederatedGradient"),
    ],
)
def test_what_owners_cannot_take_is_said_before_they_are_waited_for(limited, named, monkeypatch):
    problem, data = meters(200)
    plan = problem.plan(dp.FederatedGradient(), rounds=2, epsilon=5.0, delta=1e-6)
    assert plan.run(data=data, verbose=False).status.solved  # in one process
    monkeypatch.setattr(*limited, 150)
    with pytest.raises(dp.RefusedError, match=named) as refusal:
        plan.run(
            executor=Remote(unwanted, lambda: CoordinatorLog(None), lambda: "a run"), verbose=False
        )
    assert refusal.value.code == "large"
    assert "200" in str(refusal.value) and "plan.run()" in str(refusal.value)


def test_sums_of_more_than_a_hundred_thousand_components_are_taken():
    problem, _ = meters(30)
    plan = problem.plan(dp.FederatedGradient(), rounds=2, epsilon=5.0, delta=1e-6)
    local = plan.program.agents[0]
    place = np.arange(local.n) * 10_000
    require_sense(Question(np.zeros(local.n), place, 300_000, None), plan.algorithm, local, 0, 2)
    for wrong in (np.zeros(local.n, int), place + 10_000):
        with pytest.raises(dp.RefusedError):
            asked = Question(np.zeros(local.n), wrong, 300_000, None)
            require_sense(asked, plan.algorithm, local, 0, 2)


def test_nobody_is_waited_for_who_cannot_be():
    said = refused(factories())
    assert "inequality" in said and "No owner can be the added agent" in said
    # What it says to write is a variable of the inequality's shape, with which the plan runs.
    written = re.search(r"slack = cp\.Variable\((\d+)\), slack >= 0 among", said)
    slack = cp.Variable(int(written.group(1)))
    plan = tied(slack)
    executor = dp.LoopbackOwners(plan, data=LOADS, seed=1)
    assert plan.run(executor=executor).status.solved
    last = [session.result.last for session in executor.sessions.values()]
    total = sum(one[f"buy of {name}"] for name, one in zip(NAMES, last, strict=True))
    assert np.allclose(total + last[0][slack.name()], 6, atol=1e-6) and (total <= 6 + 1e-6).all()


@pytest.mark.parametrize(
    ("limit", "size"),
    [
        (lambda x, _: cp.sum(x) <= 18, "()"),
        (lambda x, _: cp.reshape(x, (3, 1), order="F") <= 6, "((3, 1))"),
    ],
)
def test_slacks_have_the_shape_of_their_inequality(limit, size):
    assert f"slack = cp.Variable{size}," in refused(factories(limit=limit))


def test_what_owners_keep_is_not_said_to_be_nan():
    plan = tied()
    said = str(plan.run(executor=dp.LoopbackOwners(plan, data=LOADS, seed=1)))
    assert "nan" not in said
    assert "it is not known how well the iterates keep the equalities" in " ".join(said.split())


@pytest.fixture(scope="module")
def learned():
    """Two hospitals whose scale of records is learned in the first 13 of 16 rounds."""
    problem, data = hospitals(40)
    return problem.plan(scale=dp.LearnScale(), rounds=16, epsilon=5.0, delta=1e-6), data


def test_owners_learn_the_scale_that_one_process_learns(learned):
    plan, data = learned
    one = plan.run(data=data, seed=1, verbose=False)
    between = plan.run(executor=dp.LoopbackOwners(plan, data=data, seed=1), verbose=False)
    assert one.notes == between.notes
    x, y = (result.solution.vectors[0] for result in (one, between))
    assert x.tobytes() == y.tobytes()


WRONG = {
    "what": "gradients",
    "limit": 0.0,
    "unit": -1.0,
    "size": 1,
    "at": np.zeros(5),
    "place": np.zeros(2, int),
}


@pytest.mark.parametrize("field", WRONG)
def test_questions_about_no_scale_cost_nothing(field, learned):
    plan, _ = learned
    local = plan.program.agents[0]
    asked = ScaleQuestion(np.zeros(2), np.arange(2), 2, "reaches", 0.5, 1.0)
    require_sense(asked, plan.algorithm, local, 0, 2)
    with pytest.raises(dp.RefusedError):
        require_sense(replace(asked, **{field: WRONG[field]}), plan.algorithm, local, 0, 2)
    for method, k in ((plan.algorithm, 1), (dp.FederatedGradient(0.1), 0)):
        with pytest.raises(dp.RefusedError):
            require_sense(asked, method, local, k, 2)
