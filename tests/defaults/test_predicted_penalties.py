"""Steps that are left out, beside public terms without a Lipschitz gradient and free variables."""

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp
from dpcvx.algorithms.joint import joint_rest
from dpcvx.algorithms.steps import as_step

RNG = np.random.default_rng(1)
M, N = 60, 4
X = RNG.standard_normal((M, N))
X /= np.linalg.norm(X, axis=1, keepdims=True)
Y = np.clip(X @ np.array([0.5, -0.5, 0.25, 0.0]), -1, 1)
BUDGET = {"epsilon": 50.0, "delta": 1e-6, "scale": "declared"}
STEPS = BUDGET | {"release": "each_step"}  # moments of squares would leave once
LOSSES = {"squares": cp.square, "absolute": cp.abs}
PENALTY = 0.02


def records(features=1.0, labels=1.0):
    return (
        dp.Private(X * features, name="X", adjacency=dp.Rows(features, records="p")),
        dp.Private(Y * labels, name="y", adjacency=dp.Rows(labels, records="p")),
    )


def lasso(loss, *, value=1.0, features=1.0, labels=1.0, written="sum / m", apart=False):
    """One agent's records; the penalty with it, or with a public agent."""
    w = cp.Variable(N, name="w")
    A, b = records(features, labels)
    losses = LOSSES[loss](A @ w - b)
    mean = cp.sum(losses) / M if written == "sum / m" else cp.mean(losses)
    # Of the loss' unit, whatever the units of features and labels.
    unit = features * (labels if loss == "squares" else 1.0)
    terms = [value * mean, value * PENALTY * unit * cp.norm1(w)]
    costs = terms if apart else [sum(terms)]
    agents = [dp.Agent(cp.Minimize(cost), name=f"a{k}") for k, cost in enumerate(costs)]
    return dp.Problem(agents), w


def optimum(loss):
    w = cp.Variable(N)
    cost = cp.sum(LOSSES[loss](X @ w - Y)) / M + PENALTY * cp.norm1(w)
    best = cp.Problem(cp.Minimize(cost)).solve(solver=cp.CLARABEL)
    zero = float(LOSSES[loss](-Y).value.sum()) / M
    return best, zero


def value_of(loss, w):
    return float(LOSSES[loss](X @ w - Y).value.sum()) / M + PENALTY * float(np.abs(w).sum())


def left_over(loss, plan, w, factor):
    """The share of the gap between zero and the optimum that a run leaves, in any unit."""
    found = plan.run(seed=0, verbose=False)
    assert found.status is dp.Status.COMPLETED
    best, zero = optimum(loss)
    return (value_of(loss, found.solution[w] * factor) - best) / (zero - best)


@pytest.mark.parametrize("loss", LOSSES)
def test_default_plan_in_other_units_leaves_the_same(loss):
    """Objectives, features and labels in other units are the same problem."""
    plain, w = lasso(loss)
    plan = plain.plan(**STEPS)
    step = as_step(plan.algorithm.step).eta(1)
    assert left_over(loss, plan, w, 1.0) < 0.05
    for value, features, labels in ((0.01, 1, 1), (100, 1, 1), (1, 10, 1), (1, 1, 0.01)):
        problem, w = lasso(loss, value=value, features=features, labels=labels)
        scaled = problem.plan(**STEPS)
        of_length = features / labels
        of_value = value * (labels**2 if loss == "squares" else labels)
        own = as_step(scaled.algorithm.step).eta(1) * of_length**2 * of_value
        assert own == pytest.approx(step, rel=1e-2)  # clips have three digits
        assert scaled.rounds == plan.rounds
        if value != 1:  # a run takes a second
            assert left_over(loss, scaled, w, of_length) < 0.05


@pytest.mark.parametrize("loss", LOSSES)
def test_default_plan_of_other_writings_takes_the_same_step(loss):
    plans = {
        (written, apart): lasso(loss, written=written, apart=apart)
        for written in ("sum / m", "mean")
        for apart in (False, True)
    }
    steps = {}
    for key, (problem, w) in plans.items():
        plan = problem.plan(**STEPS)
        assert type(plan.algorithm) is dp.FederatedGradient
        assert left_over(loss, plan, w, 1.0) < 0.05
        steps[key] = as_step(plan.algorithm.step).eta(1)
    assert steps["mean", False] == pytest.approx(steps["sum / m", False], rel=1e-6)
    assert steps["mean", True] == pytest.approx(steps["sum / m", True], rel=1e-6)


METHODS = {
    "LinearizedADMM": dp.LinearizedADMM(),
    "LinearizedADMM, E = 3": dp.LinearizedADMM(local_updates=3),
    "FederatedAveraging": dp.FederatedAveraging(),
    "FederatedGradient": dp.FederatedGradient(),
    "DecentralizedGradient": dp.DecentralizedGradient(),
    "PrimalDual": dp.PrimalDual(),
    "DecentralizedADMM": dp.DecentralizedADMM(randomness=0.0),
}


@pytest.mark.parametrize("name", METHODS)
def test_named_method_without_noise_ends_at_the_lasso(name):
    w = cp.Variable(N, name="w")
    A, b = records()
    cost = cp.sum_squares(A @ w - b) + PENALTY * M * cp.norm1(w)
    agents = [
        dp.Agent(cp.Minimize(cost / 2), name="one"),
        dp.Agent(cp.Minimize(PENALTY * cp.sum_squares(w)), name="other"),
    ]
    problem = dp.Problem(agents)
    found = problem.plan(METHODS[name], mechanism=None, rounds=300).run(verbose=False)
    assert found.status is not dp.Status.DIVERGED
    v = cp.Variable(N)
    cost = cp.sum_squares(X @ v - Y) / 2 + PENALTY * M / 2 * cp.norm1(v)
    best = cp.Problem(cp.Minimize(cost + PENALTY * cp.sum_squares(v))).solve(solver=cp.CLARABEL)
    start = float(np.sum(Y**2)) / 2
    assert dp.not_private.objective(problem, found.solution) - best < 0.02 * (start - best)


# Public matrices whose curvature is uneven, next to a penalty.
MATRICES = {
    "cumsum": np.tril(np.ones((12, 12))),
    "diag": np.diag(np.linspace(1, 100, 12)),
    "Vandermonde": np.vander(np.linspace(0.1, 2, 12), 6),
}


@pytest.mark.parametrize("noise", [None, "gaussian"], ids=str)
@pytest.mark.parametrize("penalty", ["norm1", "tv"])
@pytest.mark.parametrize("name", MATRICES)
def test_linearized_admm_beside_public_curvature_does_not_diverge(name, penalty, noise):
    A = MATRICES[name]
    x = cp.Variable(A.shape[1], name="x")
    d = dp.Private(A @ np.ones(A.shape[1]), name="d", adjacency=dp.Within(0.1))
    cost = cp.sum_squares(A @ x - d) + 3 * (cp.norm1(x) if penalty == "norm1" else cp.tv(x))
    agents = [
        dp.Agent(cp.Minimize(cost), name="a"),
        dp.Agent(cp.Minimize(0.01 * cp.sum_squares(x)), name="b"),
    ]
    budget = {} if noise is None else BUDGET
    plan = dp.Problem(agents).plan(dp.LinearizedADMM(), mechanism=noise, rounds=60, **budget)
    found = plan.run(seed=0, verbose=False)
    assert found.status is not dp.Status.DIVERGED
    assert float(np.abs(found.last[x]).max()) < 1e3


@pytest.mark.parametrize("noise", [None, "gaussian"], ids=str)
def test_linearized_admm_beside_jumps_and_public_curvature_does_not_diverge(noise):
    """The step follows from jumps; a public square next to them limits it."""
    w = cp.Variable(N, name="w")
    A, b = records()
    uneven = np.diag([0.1, 1.0, 10.0, 100.0])
    cost = cp.sum(cp.abs(A @ w - b)) / M + cp.sum_squares(uneven @ w)
    problem = dp.Problem([dp.Agent(cp.Minimize(cost), name="a")])
    budget = {} if noise is None else BUDGET
    plan = problem.plan(dp.LinearizedADMM(), mechanism=noise, rounds=60, **budget)
    found = plan.run(seed=0, verbose=False)
    assert as_step(plan.algorithm.step).eta(1) <= 1 / (2 * 100.0**2) * (1 + 1e-9)
    assert found.status is not dp.Status.DIVERGED
    assert float(np.abs(found.last[w]).max()) < 10.0


def free_absolute(bounded):
    """Losses whose slopes jump, of labels without a declared bound; slopes as the user has them."""
    w = cp.Variable(N, name="w")
    d = dp.Private(Y, name="d", adjacency=dp.Within(0.1))
    agent = dp.Agent(
        cp.Minimize(cp.sum(cp.abs(X @ w - d))),
        [cp.norm(w) <= 5] if bounded else [],
        sensitivity=dp.Asserted(l1=1.0, l2=1.0),
        name="survey",
    )
    return dp.Problem([agent, dp.Agent(cp.Minimize(0.1 * cp.norm1(w)), name="other")])


NAMED = {
    "default": None,
    "FederatedAveraging": dp.FederatedAveraging(),
    "PrimalDual": dp.PrimalDual(),
    "DecentralizedGradient": dp.DecentralizedGradient(),
    "LinearizedADMM": dp.LinearizedADMM(),
}


@pytest.mark.parametrize("name", NAMED)
def test_plan_without_a_bound_of_the_distance_is_refused_before_the_budget_is_spent(name):
    with pytest.raises(dp.ModelError, match=r"'survey'.*distance.*cp\.norm\(w\) <= 10.*step="):
        free_absolute(False).plan(NAMED[name], **BUDGET)
    plan = free_absolute(True).plan(NAMED[name], **BUDGET)
    assert "size of the set" in " ".join(str(plan).split())


def test_refusal_without_a_bound_names_the_variables_to_bound():
    """The portfolio of a tail loss, held by a simplex, stands before the free threshold."""
    w, t, s = cp.Variable(N, name="w", nonneg=True), cp.Variable(name="t"), cp.Variable(name="s")
    A, _ = records()
    cost = cp.sum(cp.pos(A @ w - t - s)) / M + cp.abs(t) + cp.abs(s)
    simplex = [cp.sum(w) == 1]

    def plan(*bounds):
        agent = dp.Agent(cp.Minimize(cost), [*simplex, *bounds], name="a")
        return dp.Problem([agent]).plan(**BUDGET)

    with pytest.raises(
        dp.ModelError, match=r"such as cp\.norm\(t\) <= 10, cp\.norm\(s\) <= 10 with"
    ):
        plan()
    assert plan(cp.norm(t) <= 10, cp.norm(s) <= 10).guarantee


SLANTED = {
    "quantile": lambda r: cp.sum(cp.maximum(0.9 * r, -0.1 * r)),
    "insensitive": lambda r: cp.sum(cp.pos(cp.abs(r) - 0.05)),
}


@pytest.mark.parametrize("noise", [None, "gaussian"], ids=str)
@pytest.mark.parametrize("loss", SLANTED)
def test_slight_square_beside_jumps_leaves_the_step_to_the_labels(loss, noise):
    """Slope over convexity bounds the distance to the optimum, at 500 times of it."""
    w = cp.Variable(N, name="w")
    A, b = records()
    steps, budget = [], {} if noise is None else BUDGET

    def cost(residuals, w, weight):
        return SLANTED[loss](residuals) / M + weight * cp.sum_squares(w)

    for weight in (0.0, 1e-3):
        problem = dp.Problem([dp.Agent(cp.Minimize(cost(b - A @ w, w, weight)), name="a")])
        plan = problem.plan(mechanism=noise, **budget)
        steps.append(as_step(plan.algorithm.step).eta(1))
    assert steps[1] == pytest.approx(steps[0], rel=0.1)
    found = plan.run(seed=0, verbose=False)
    v = cp.Variable(N)
    best = cp.Problem(cp.Minimize(cost(Y - X @ v, v, 1e-3))).solve(solver=cp.CLARABEL)
    v.value = np.zeros(N)
    start = float(cost(Y - X @ v, v, 1e-3).value)
    assert dp.not_private.objective(problem, found.solution) - best < 0.1 * (start - best)


@pytest.mark.parametrize("share", [0.5, 0.8])
def test_noisy_steps_of_quantiles_fit_labels_well_within_their_bounds(share):
    """Steps for labels at their bounds leave 0.14 and 0.22 of the gap; these leave 0.04, 0.08."""
    rng = np.random.default_rng(5)
    A = rng.standard_normal((400, N))
    A /= np.linalg.norm(A, axis=1, keepdims=True)
    b = np.clip(A @ np.array([0.5, -0.5, 0.25, 0.0]) + 0.1 * rng.standard_normal(400), -1, 1)
    w, v = cp.Variable(N, name="w"), cp.Variable(N)

    def cost(residuals):
        return cp.sum(cp.maximum(share * residuals, (share - 1) * residuals)) / 400

    features = dp.Private(A, name="X", adjacency=dp.Rows(1.0, records="p"))
    labels = dp.Private(b, name="y", adjacency=dp.Rows(1.0, records="p"))
    problem = dp.Problem([dp.Agent(cp.Minimize(cost(labels - features @ w)), name="a")])
    plan = problem.plan(epsilon=0.5, delta=1e-6)
    true = cost(b - A @ v)
    best = cp.Problem(cp.Minimize(true)).solve(solver=cp.CLARABEL)
    v.value = np.zeros(N)
    start, gaps = float(true.value) - best, []
    for seed in range(10):
        v.value = plan.run(seed=seed, verbose=False).solution[w]
        gaps.append(float(true.value) - best)
    assert np.mean(gaps) < 0.11 * start


def test_plan_without_noise_and_without_a_bound_says_so():
    plan = free_absolute(False).plan(dp.FederatedAveraging(), mechanism=None, rounds=5)
    assert "no bound of the distance to the optimum is known" in " ".join(str(plan).split())


def test_plan_says_which_rule_chose_the_step():
    said = " ".join(str(lasso("absolute")[0].plan(**BUDGET)).split())
    assert "exactly minimizes the public terms that have no smoothness constant" in said
    assert "loss for labels at their declared bounds" in said
    assert "if noise dominates, steps are up to three times shorter" in said
    named = lasso("absolute")[0].plan(dp.FederatedAveraging(step=0.1), rounds=5, **BUDGET)
    assert "labels that fill" not in str(named)


def test_penalty_beside_clipped_records_leaves_them_the_stronger_pull():
    """A norm whose slope is above what clipped records could pull leaves everything at zero."""
    w = cp.Variable(N, name="w")
    A, b = records()
    cost = cp.sum(cp.square(A @ w - b)) / M + 0.05 * cp.norm(w)
    problem = dp.Problem([dp.Agent(cp.Minimize(cost), name="a")])
    plan = problem.plan(**BUDGET | {"epsilon": 10.0})
    clip = plan.agents[0].program.clip
    assert clip is not None
    assert M * clip * np.sqrt(2 / (np.pi * N)) >= 2.9 * 0.05
    assert "three times their derivatives" in " ".join(str(plan).split())
    found = plan.run(seed=0, verbose=False).solution[w]
    v = cp.Variable(N)
    cost = cp.sum_squares(X @ v - Y) / M + 0.05 * cp.norm(v)
    best = cp.Problem(cp.Minimize(cost)).solve(solver=cp.CLARABEL)
    value = float(np.sum((X @ found - Y) ** 2)) / M + 0.05 * float(np.linalg.norm(found))
    assert value - best < 0.1 * (float(np.sum(Y**2)) / M - best)


def test_equal_penalties_of_many_agents_are_one_part_of_the_servers_step():
    w = cp.Variable(N, name="w")
    agents = []
    for k in range(5):
        rows = dp.Private(X, name=f"X{k}", adjacency=dp.Rows(1.0))
        cost = cp.sum(cp.logistic(rows @ w)) + 0.3 * cp.norm1(w)
        agents.append(dp.Agent(cp.Minimize(cost), [cp.abs(w) <= 2], name=f"a{k}"))
    program = dp.Problem(agents).plan(dp.FederatedGradient(), rounds=1, **BUDGET).program
    found = joint_rest(program)
    assert found is not None
    one = program.agents[0].rest
    assert one is not None
    assert found.data.A.shape == one.A.shape
    assert found.data.q.sum() == pytest.approx(5 * one.q.sum())


def test_agents_with_penalties_in_closed_form_take_their_steps_together():
    """As without penalties: in one array, and with the same results as one by one."""
    w = cp.Variable(N, name="w")

    def problem(count):
        agents = []
        for k in range(count):
            rows = dp.Private(X, name=f"X{k}", adjacency=dp.Rows(1.0))
            cost = cp.sum(cp.logistic(rows @ w)) + 0.3 * cp.norm1(w)
            agents.append(dp.Agent(cp.Minimize(cost), name=f"a{k}"))
        return dp.Problem(agents)

    plan = problem(3).plan(dp.FederatedAveraging(), rounds=4, **BUDGET)
    assert all(agent.program.proximal().batched for agent in plan.agents)
    run = plan.run(seed=3, verbose=False, record=True)
    again = plan.replay(run.transcript)
    assert np.array_equal(run.last[w], again.last[w])
