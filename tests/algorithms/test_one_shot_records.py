"""Records that add a linear term to the objective: one noisy gradient tells all of it."""

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpcvx as dp
from dpcvx.model.quadratic import curved

N, D = 300, 4


def features(seed=0):
    X = np.random.default_rng(seed).normal(size=(N, D)) * [2, 1, 0.5, 0.3]
    return X / np.maximum(1, np.linalg.norm(X, axis=1, keepdims=True))


def components(X=None, **settings):
    """The two leading principal components of records, as a projection."""
    X = features() if X is None else X
    P = cp.Variable((D, D), PSD=True, name="P")
    rows = dp.Private(X, name="X", adjacency=dp.Rows(1.0, **settings))
    constraints = [cp.trace(P) == 2, np.eye(D) >> P]
    return dp.Agent(cp.Maximize(cp.sum(cp.multiply(rows, rows @ P))), constraints, name="clinic")


def direction(k=0, w=None, constraints=True):
    """Labels and features of one person multiply each other, and the variables."""
    X = features(k)
    w = cp.Variable(D, name="w") if w is None else w
    rows = dp.Rows(1.0, records=f"person {k}")
    labels = dp.Private(np.sign(X @ [1, -1, 1, 0.5]), name=f"y{k}", adjacency=rows)
    scores = dp.Private(X, name=f"X{k}", adjacency=rows) @ w
    ball = [cp.norm(w) <= 1] if constraints else []
    return dp.Agent(cp.Minimize(-cp.sum(cp.multiply(labels, scores))), ball, name=f"clinic {k}")


def test_principal_components_are_found_by_one_release():
    plan = dp.Problem([components()]).plan(epsilon=1.0, delta=1e-6)
    assert isinstance(plan.algorithm, dp.OneShot)
    assert (plan.rounds, plan.release) == (1, "each_step")
    moments = features().T @ features()
    best = np.sort(np.linalg.eigvalsh(moments))[-2:].sum()
    found = np.trace(moments @ plan.run(seed=1)["P"])
    assert found > 0.95 * best
    result = plan.run(seed=1)
    (entry,) = result.ledger["clinic"].entries
    assert (entry.released, entry.round) == ("gradient", 1)
    assert dp.check_sensitivity(plan).passed


def test_one_release_ends_nearer_than_noisy_steps():
    """The ratio of gaps is 0.19 by three seeds."""
    problem, moments = dp.Problem([components()]), features().T @ features()
    best = np.sort(np.linalg.eigvalsh(moments))[-2:].sum()

    def gap(**method):
        plan = problem.plan(epsilon=1.0, delta=1e-6, **method)
        runs = [plan.run(seed=seed, verbose=False)["P"] for seed in range(3)]
        return best - np.mean([np.trace(moments @ P) for P in runs])

    assert gap() < 0.4 * gap(algorithm=dp.FederatedGradient(), rounds=30)


def test_linear_costs_of_several_agents_are_summed():
    w = cp.Variable(D, name="w")
    plan = dp.Problem([direction(k, w) for k in range(3)]).plan(epsilon=1.0, delta=1e-6)
    assert isinstance(plan.algorithm, dp.OneShot)
    slope = sum(features(k).T @ np.sign(features(k) @ [1, -1, 1, 0.5]) for k in range(3))
    assert slope @ plan.run(seed=2)["w"] > 0.95 * np.linalg.norm(slope)
    assert dp.check_sensitivity(plan).passed


@pytest.mark.parametrize("relation", ["replace_one", "add_or_remove_one"])
def test_sensitivities_hold_over_neighbors_and_are_met(relation):
    """One record moves the gradient, X'X, by at most what is charged, and some do by that."""
    plan = dp.Problem([components(relation=relation)]).plan(epsilon=1.0, delta=1e-6)
    charged = plan.agents[0].sensitivity.l2
    rng, largest = np.random.default_rng(1), 0.0
    for k in range(200):
        old, new = rng.normal(size=(2, D))
        old /= np.linalg.norm(old)
        new = -old if k == 0 else new / np.linalg.norm(new)
        if relation == "add_or_remove_one":
            new = np.zeros(D)
        largest = max(largest, np.linalg.norm(np.outer(old, old) - np.outer(new, new)))
    assert largest <= charged
    assert largest > 0.45 * charged


def test_release_once_releases_second_moments_or_says_what_to_write():
    plan = dp.Problem([components()]).plan(epsilon=1.0, delta=1e-6, release="once")
    assert plan.agents[0].publication.kind == "second moments"
    w, weights = cp.Variable(D, name="w"), np.linspace(0.5, 1, N)
    rows = dp.Rows(1.0, records="person")
    scores = dp.Private(features(), name="X", adjacency=rows) @ w
    labels = dp.Private(np.ones(N), name="y", adjacency=rows)
    cost = -weights @ cp.multiply(labels, scores)
    agent = dp.Agent(cp.Minimize(cost), [cp.norm(w) <= 1], name="clinic")
    with pytest.raises(dp.PrivacyError, match="Leave release= out"):
        dp.Problem([agent]).plan(epsilon=1.0, delta=1e-6, release="once")


def test_steps_are_taken_where_users_ask_for_them():
    for choice in ({"rounds": 5}, {"algorithm": dp.FederatedGradient()}):
        plan = dp.Problem([components()]).plan(epsilon=1.0, delta=1e-6, **choice)
        assert isinstance(plan.algorithm, dp.FederatedGradient)


def test_costs_without_bounds_are_refused_before_data_are_read():
    with pytest.raises(dp.ModelError, match="no optimum"):
        dp.Problem([direction(constraints=False)]).plan(epsilon=1.0, delta=1e-6)


w = cp.Variable(3)
X = dp.Private(np.zeros((6, 3)), name="X", adjacency=dp.Rows(1.0, records="r"))
y = dp.Private(np.zeros(6), name="y", adjacency=dp.Rows(1.0, records="r"))
STRAIGHT = {
    "scores": cp.sum(X @ w),
    "labels and scores": cp.sum(cp.multiply(y, X @ w)),
    "two products": cp.sum(cp.multiply(y, cp.multiply(y, X @ w))) + y @ (X @ w),
    "beside public squares": cp.sum(cp.multiply(y, X @ w)) + cp.sum_squares(w),
}
BENT = {
    "squares": cp.sum_squares(X @ w),
    "logistic": cp.sum(cp.logistic(X @ w)) - y @ (X @ w),
}


@settings(max_examples=10)
@given(seed=st.integers(0, 2**32 - 1))
@pytest.mark.parametrize("name", [*STRAIGHT, *BENT])
def test_objectives_are_curved_where_data_move_gradients_unalike(name, seed):
    cost = {**STRAIGHT, **BENT}[name]
    agent = dp.Agent(cp.Minimize(cost), [cp.abs(w) <= 1], name="a")
    form = dp.Problem([agent]).plan(mechanism=None).agents[0].form
    assert bool(curved(form)) == (name in BENT)
    rng = np.random.default_rng(seed)
    one, two = ([rng.uniform(-0.5, 0.5, spec.size) for spec in form.private] for _ in range(2))
    x, z = rng.uniform(-1, 1, (2, form.n))
    moved = [form.bind(one).gradient(at) - form.bind(two).gradient(at) for at in (x, z)]
    assert np.allclose(*moved, atol=1e-12) == (name in STRAIGHT)


def covariance(count=1, n=400, **kind):
    """Agents that fit one matrix to the second moments of their records."""
    rng, S, agents = np.random.default_rng(7), cp.Variable((3, 3), PSD=True, name="S"), []
    for k in range(count):
        X = rng.uniform(-1, 1, (n, 3)) @ np.diag([1.0, 0.5, 0.2])
        adjacency = dp.Rows(2.0, records=f"person of {k}", **kind)
        moments = (X := dp.Private(X, name=f"X{k}", adjacency=adjacency)).T @ X / n
        agents.append(dp.Agent(cp.Minimize(cp.norm(S - moments, "fro")), name=f"agent {k}"))
    limit = cp.trace(S) <= 0.3
    agents.append(dp.Agent(cp.Minimize(0.01 * cp.normNuc(S)), [limit], name="public"))
    return dp.Problem(agents), limit


@pytest.mark.parametrize("epsilon", [1.0, 200.0])
@pytest.mark.parametrize("delta", [0, 1e-6])
def test_records_that_enter_by_products_leave_as_second_moments(epsilon, delta):
    problem, limit = covariance(2)
    plan = problem.plan(epsilon=epsilon, delta=delta)
    kinds = [a.publication.kind for a in plan.agents if a.publication]
    assert kinds == ["second moments"] * 2
    assert "second moments of its records are released" in " ".join(str(plan).split())
    result = plan.run(seed=1, record=True)
    assert dp.check_sensitivity(plan, seed=1).passed
    assert (plan.replay(result.transcript)["S"] == result["S"]).all()
    among_owners = plan.run(executor=dp.LoopbackOwners(plan, seed=1), verbose=False)
    for one, other in zip(among_owners.last.vectors, result.last.vectors, strict=True):
        assert one.tobytes() == other.tobytes()
    joint = dp.not_private.joint_problem(problem)
    joint.solve(cp.CLARABEL)
    gap = dp.not_private.objective(problem, result.solution) - joint.value
    price = joint.constraints[-1].dual_value
    for variable in joint.variables():
        variable.value = np.zeros(variable.shape)
    zero, best = joint.objective.value, joint.solution.opt_val
    assert gap < (0.05 if epsilon > 1 else 1.0) * (zero - best)
    if epsilon > 1:
        assert limit.dual_value == pytest.approx(price, abs=0.05)
        assert result.solution.dual_stability(limit, draws=3).item() == 1
    assert result.released["X0"].shape == (400, 3)


def test_prices_of_noisy_moments_are_not_said_to_stay():
    problem, limit = covariance(1, n=40)
    result = problem.plan(epsilon=0.3, delta=1e-6).run(seed=2)
    assert result.solution.dual_stability(limit, draws=5, tolerance=1e-6).item() < 1


def test_moments_with_estimates_or_margins_are_refused():
    problem, _ = covariance(1)
    with pytest.raises(dp.PrivacyError, match="prior= has values for records of agent 'agent 0'"):
        problem.plan(epsilon=1.0, delta=1e-6, prior={"X0": dp.Prior(0.0, 1.0)})
    X = dp.Private(np.eye(3), name="X", adjacency=dp.Rows(1.0))
    S = cp.Variable((3, 3), PSD=True, name="S")
    agent = dp.Agent(cp.Minimize(cp.trace(S)), [X.T @ X << S], name="a")
    with pytest.raises(dp.PrivacyError, match="constraints='released'"):
        dp.Problem([agent]).plan(epsilon=1.0, delta=1e-6)
    assert dp.Problem([agent]).plan(epsilon=1.0, delta=1e-6, constraints="released").run(seed=1)
