"""Signal beside noise, as text, before any data are read; simulations are tests/tuning's."""

import re
from functools import cache

import cvxpy as cp
import numpy as np
import pytest
from scipy.optimize import minimize

import dpcvx as dp
from dpcvx.defaults.remarks import UNTOLD
from tests.instances import power_line


def target(size, like=None, spread=0.1):
    """One agent's numbers, of which an entry may change by `spread`."""
    x = cp.Variable(size, name="x")
    d = dp.Private(shape=size, name="d", adjacency=dp.Within(spread), proxy=like)
    return dp.Problem([dp.Agent(cp.Minimize(cp.sum_squares(x - d)), name="a")])


def squares(records, columns=2):
    w = cp.Variable(columns, name="w")
    X = dp.Private(shape=(records, columns), name="X", adjacency=dp.Rows(1.0))
    y = dp.Private(shape=records, name="y", adjacency=dp.Rows(1.0))
    return dp.Problem([dp.Agent(cp.Minimize(cp.sum_squares(X @ w - y)), name="a")])


def test_of_releases_without_a_proxy_tells_noise_per_entry_and_no_percentage():
    plan = target(4).plan(epsilon=1.0, delta=1e-6)
    # Laplace noise of scale 0.1 has the standard deviation 0.141.
    assert plan.remarks.startswith(
        "noise has standard deviation 0.141 on each entry of 'd' (one change: 0.1)"
    )
    assert "%" not in plan.remarks and "gap" not in plan.remarks
    assert plan.remarks.split()[0] in str(plan)


def uses(radius, **declared):
    """Four amounts that a utility weighs; the server solves the model as written."""
    d = dp.Private([0.4, 1.2, 0.9, 0.2], name="d", adjacency=dp.Within(radius), **declared)
    x = cp.Variable(4, nonneg=True, name="x")
    utility = cp.sum(cp.multiply(d, cp.sqrt(x)))
    return dp.Problem([dp.Agent(cp.Maximize(utility), [cp.sum(x) <= 1], name="a")])


@pytest.mark.parametrize(
    ("declared", "span", "epsilon"),
    # 10 sqrt(2) 2 / span, rounded up to three digits.
    [
        ({"bounds": (0, 1.5)}, "1.5", "18.9"),
        ({"nonneg": True, "proxy": np.arange(4) / 4}, "0.75", "37.8"),
    ],
)
def test_data_as_small_as_their_privacy_unit_are_said_to_be(declared, span, epsilon):
    radius = 2.0
    plan = uses(radius, **declared).plan(epsilon=1.0, delta=1e-6)
    said = f"the entries of 'd' differ by {span}, and one change is as large as 2"
    assert said in plan.notes and f"From epsilon {epsilon} on" in plan.notes
    assert any(said in note for note in plan.run(seed=0).notes)


def test_data_larger_than_their_privacy_unit_and_quiet_releases_are_not():
    assert (
        "one change is as large"
        not in uses(0.1, bounds=(0, 1.5)).plan(epsilon=1.0, delta=1e-6).notes
    )
    assert (
        "one change is as large"
        not in uses(2.0, bounds=(0, 1.5)).plan(epsilon=25.0, delta=1e-6).notes
    )


def pair(*likes):
    """Two agents with a number each that may lie between -1 and 1, with a stand-in or without."""
    agents, xs = [], []
    for k, like in enumerate(likes):
        x = cp.Variable(2, name=f"x{k}", bounds=[-1, 1])
        d = dp.Private(shape=2, name=f"d{k}", adjacency=dp.Within(0.01), proxy=like)
        agents.append(dp.Agent(cp.Minimize(cp.sum_squares(x - d)), name=f"agent {k}"))
        xs.append(x)
    return dp.Problem(agents, coupling=[xs[0] + xs[1] == 0])


def test_of_releases_without_proxies_for_all_data_asks_for_them():
    like, budget = np.full(2, 0.5), {"epsilon": 1.0, "delta": 1e-6, "release": "once"}
    asks = "For a prediction, declare public proxy data: dp.Private(..., proxy=values)"
    assert asks not in pair(like, like).plan(**budget).remarks
    for likes in [(like, None), (None, like), (None, None)]:
        assert asks in pair(*likes).plan(**budget).remarks


@pytest.mark.parametrize("given", [(), ("X",), ("X", "y")])
def test_records_of_which_some_have_a_stand_in_are_judged_by_their_bounds(given):
    w, like = cp.Variable(2, name="w"), {"X": np.ones((20, 2)), "y": np.ones(20)}
    X, y = (
        dp.Private(
            shape=values.shape,
            name=name,
            adjacency=dp.Rows(2.0),
            proxy=values if name in given else None,
        )
        for name, values in like.items()
    )
    problem = dp.Problem([dp.Agent(cp.Minimize(cp.sum_squares(X @ w - y)), name="a")])
    by = "the proxy data" if len(given) == 2 else "equal records at half their bounds"
    plan = problem.plan(dp.OneShot(), release="once", epsilon=1.0, delta=1e-6)
    assert f"times that of {by}, on the second moments of 'X' and 'y'" in plan.remarks


def test_noise_without_an_end_is_told_in_the_unit_of_the_data():
    """Along x[0] - x[1] nothing bends, and the set ends farther away than numbers can tell."""
    x = cp.Variable(2, name="x", bounds=[0, 1e12])
    d = dp.Private(shape=2, name="d", adjacency=dp.Within(0.1))
    cost = cp.square(cp.sum(x)) - d @ x
    plan = dp.Problem([dp.Agent(cp.Minimize(cost), name="a")]).plan(epsilon=1.0, delta=1e-6)
    assert plan.remarks.startswith("noise has standard deviation 0.141 on each entry of 'd'")


def test_a_plan_without_noise_forecasts_nothing():
    assert power_line().problem.plan(mechanism=None).remarks == ""


def test_a_result_repeats_the_forecast():
    plan = target(4, like=np.full(4, 0.01)).plan(epsilon=1.0, delta=1e-6)
    result = plan.run(data={"d": np.zeros(4)}, seed=1)
    assert "noise has standard deviation 0.141 on each entry" in " ".join(str(result).split())


def logistic(records, epsilon):
    w = cp.Variable(2, name="w")
    X = dp.Private(shape=(records, 2), name="X", adjacency=dp.Rows(1.0))
    cost = cp.sum(cp.logistic(X @ w)) / records
    problem = dp.Problem([dp.Agent(cp.Minimize(cost), [cp.norm(w) <= 5], name="a")])
    return problem.plan(epsilon=epsilon, delta=1e-6).remarks


def test_of_steps_compares_averaged_noise_with_what_records_can_do():
    poor, rich = logistic(10, 0.05), logistic(10_000, 1.0)
    assert poor.startswith("averaged over all steps and agents, the noise is ")
    assert poor.endswith("The solution may say little or nothing about the data")
    assert rich.endswith(UNTOLD)
    assert not any("Needed" in text or "%" in text for text in (poor, rich))


def test_methods_of_which_nothing_is_predicted_tell_noise_from_data():
    """Every user has one record, and the noise of each is as large as that."""
    x, y = cp.Variable(2, name="x"), cp.Variable(2, name="y")
    users = []
    for k in range(4):
        row = dp.Private(shape=(1, 2), name=f"row {k}", adjacency=dp.Rows(1.0))
        users.append(dp.Agent(cp.Minimize(cp.sum(cp.logistic(row @ x))), name=f"user {k}"))
    public = dp.Agent(cp.Minimize(cp.norm1(y)), name="public")
    problem = dp.Problem([*users, public], coupling=[x == y])
    assert "may say little or nothing" in problem.plan(epsilon=1.0, delta=1e-6).remarks
    assert "say little" not in problem.plan(epsilon=300.0, delta=1e-6).remarks


def test_objective_perturbation_states_by_how_much_its_term_raises_the_objective():
    """The bound holds on average; noise that is drawn much smaller would be far below it."""
    rng, w = np.random.default_rng(0), cp.Variable(2, name="w")
    X = rng.normal(size=(60, 2))
    X /= np.maximum(1, np.linalg.norm(X, axis=1, keepdims=True))
    rows = dp.Private(X, name="X", adjacency=dp.Rows(1.0))
    cost = cp.sum(cp.logistic(rows @ w)) / 60 + 0.1 * cp.sum_squares(w)
    method = dp.ObjectivePerturbation(regularization=0.1)
    plan = dp.Problem([dp.Agent(cp.Minimize(cost), [cp.norm(w) <= 9], name="a")]).plan(
        method, epsilon=4.0, delta=0
    )
    (most,) = re.findall(
        r"raises an agent's objective, with its quadratic, by at most (\S+)\.", plan.remarks
    )

    def objective(x):
        return float(np.mean(np.logaddexp(0, X @ x)) + 0.15 * x @ x)

    lowest = minimize(objective, np.zeros(2), tol=1e-10).fun
    raised = [objective(plan.run(seed=k, verbose=False)["w"]) - lowest for k in range(40)]
    # The mean of 40 is above 1.8 times the expectation with a probability below 1e-3.
    assert float(most) / 8 < np.mean(raised) < 1.8 * float(most)
    assert "far from the joint optimum" not in plan.remarks


# What newcomers write --------------------------------------------------------------------------


def fitted(loss, radius=3.0, scale=1.0, most=1.0, box=None):
    """Two agents with 150 records each, of which the loss is fitted."""
    rng, w, agents = np.random.default_rng(2), cp.Variable(3, name="w"), []
    for k in range(2):
        X = rng.normal(size=(150, 3)) * scale
        X *= np.minimum(1, radius / np.linalg.norm(X, axis=1))[:, None]
        y = np.sign(X @ (np.array([1.0, -1.0, 0.5]) / scale) + 0.5 * rng.normal(size=150))
        found = dp.Private(X, name=f"X{k}", adjacency=dp.Rows(radius))
        labels = dp.Private(y, name=f"y{k}", adjacency=dp.Rows(most))
        sets = [] if box is None else [cp.abs(w) <= box]
        agents.append(dp.Agent(cp.Minimize(cp.sum(loss(found, labels, w)) / 150), sets, f"a{k}"))
    return dp.Problem(agents)


def far_and_flat(X, y, w):
    return cp.exp(-cp.multiply(y, X @ w))


def chances(X, y, w):
    return cp.logistic(-cp.multiply(y, X @ w))


def levelled(X, y, w):
    return cp.huber(X @ w - y)


def squared(X, y, w):
    return cp.square(X @ w - y)


def within_bounds():
    x = cp.Variable(4, name="x", bounds=[-1, 1])
    d = dp.Private([0.5, -0.3, 0.1, 0.9], name="d", adjacency=dp.Within(0.05))
    return dp.Problem([dp.Agent(cp.Minimize(cp.sum_squares(x - d)), name="a")])


def like_the_data():
    like = np.array([0.5, -0.3, 0.4, 0.6])
    x = cp.Variable(4, name="x")
    d = dp.Private([0.6, -0.4, 0.3, 0.5], name="d", adjacency=dp.Within(0.1), proxy=like)
    return dp.Problem([dp.Agent(cp.Minimize(cp.sum_squares(x - d)), name="a")])


NEWCOMERS = {
    "logistic": lambda: fitted(chances),
    "columns of other scale": lambda: fitted(chances, 60.0, np.array([30.0, 1.0, 0.1])),
    "huge curvature": lambda: fitted(far_and_flat, box=4),
    "Huber": lambda: fitted(levelled),
    "generous bounds": lambda: fitted(squared, 20.0, most=40.0, box=20),
    "least squares": lambda: fitted(squared),
    "bounds": within_bounds,
    "stand-in": like_the_data,
}


@pytest.mark.parametrize("name", NEWCOMERS)
def test_remarks_predict_nothing_from_bounds(name):
    plan = NEWCOMERS[name]().plan(epsilon=1.0, delta=1e-6)
    assert plan.remarks.startswith(
        (UNTOLD, "noise ", "the variables have no bounds", "averaged over all steps")
    )
    assert not any(word in plan.remarks for word in ("%", "predicted to stay", "Needed", "another"))


def test_steps_of_a_named_method_have_a_forecast_too():
    named = fitted(chances).plan(dp.LinearizedADMM(step=1.0), epsilon=20.0, delta=1e-6)
    assert named.remarks == UNTOLD


def test_a_wrong_sign_is_told_before_and_after_a_run():
    x = cp.Variable(name="x")
    price = dp.Private(2.0, name="price", adjacency=dp.Within(0.1))
    wrong = dp.Agent(cp.Minimize(-cp.square(x - price)), [x >= 0, x <= 9], name="wrong")
    right = dp.Agent(cp.Minimize(cp.square(x - 1)), [x >= 0, x <= 9], name="right")
    method = dp.FederatedAveraging(step=0.1)
    plan = dp.Problem([wrong, right]).plan(method, epsilon=1.0, delta=1e-6)
    said = "by cvxpy's rules the objective of 'wrong' is not convex"
    assert plan.remarks.startswith(said) and said in " ".join(str(plan).split())
    assert said in " ".join(str(plan.run(seed=0)).split())
    assert "nonneg=True" in plan.remarks  # might be all that lacks
    price = dp.Private(2.0, name="price", adjacency=dp.Within(0.1), nonneg=True)
    signed = dp.Agent(cp.Minimize(-cp.square(x) * price), [x >= 0, x <= 9], name="wrong")
    assert dp.Problem([signed, right]).plan(method, mechanism=None).remarks.endswith("a wrong sign")
    assert "not convex" not in dp.Problem([right]).plan(mechanism=None).remarks


# Data that tell hardly anything ----------------------------------------------------------------


def by_chance(loss, columns=4):
    """Three agents with 200 records each, whose labels do not depend on what is next to them."""
    rng, w, agents = np.random.default_rng(5), cp.Variable(columns, name="w"), []
    for k in range(3):
        X = dp.Private(rng.normal(size=(200, columns)), name=f"X{k}", adjacency=CLIPPED)
        y = dp.Private(rng.choice([-1.0, 1.0], 200), name=f"y{k}", adjacency=dp.Rows(1.0))
        cost = cp.sum(loss(X, y, w)) / 200 + 0.01 * cp.sum_squares(w)
        agents.append(dp.Agent(cp.Minimize(cost), name=f"a{k}"))
    return dp.Problem(agents)


def around_the_start(spread):
    """Three agents with 100 places each, whose middle is where everybody starts, or at an edge."""
    rng, x, agents = np.random.default_rng(6), cp.Variable(name="x", bounds=[-20, 80]), []
    for k in range(3):
        places = np.clip(rng.normal(0, spread, 100), -20, 80)
        private = dp.Private(places, name=f"places {k}", adjacency=dp.Rows(80.0))
        agents.append(dp.Agent(cp.Minimize(cp.sum(cp.abs(x - private)) / 100), name=f"a{k}"))
    return dp.Problem(agents)


CLIPPED = dp.Rows(3.0, clip_rows=True)
WEAK = {
    "logistic": lambda: by_chance(chances),
    "more columns": lambda: by_chance(chances, 6),
    "hinge": lambda: by_chance(lambda X, y, w: cp.pos(1 - cp.multiply(y, X @ w))),
    "absolute": lambda: around_the_start(10.0),
    "absolute, near": lambda: around_the_start(1.0),
}


@cache
def planned_weakly(name):
    problem = WEAK[name]()
    return problem, problem.plan(epsilon=1.0, delta=1e-6, scale="declared")


@pytest.mark.parametrize("name", WEAK)
def test_answers_that_may_be_worse_than_the_start_are_announced(name):
    """What noise is said to leave at most is more than the gap of the start, and of most runs."""
    problem, plan = planned_weakly(name)
    (most,) = re.findall(r"may leave a gap of up to about (\S+), in units", plan.remarks)
    assert "If the initial point has a smaller gap, it may be" in plan.remarks
    central = dp.not_private.joint_problem(problem)
    central.solve(cp.CLARABEL, tol_gap_abs=1e-7, tol_gap_rel=1e-7, tol_feas=1e-7)
    optimum = central.value
    for variable in problem.variables():
        variable.value = np.zeros(variable.shape)
    assert central.objective.value - optimum < float(most)
    runs = [plan.run(seed=k, verbose=False).solution for k in range(15)]
    gaps = [dp.not_private.objective(problem, run) - optimum for run in runs]
    assert float(most) / 1000 < np.median(gaps) < float(most)


@pytest.mark.parametrize("name", WEAK)
def test_a_bound_that_dense_data_stay_far_below_is_called_so(name):
    forecast = planned_weakly(name)[1].remarks
    jumps = name in ("hinge", "absolute", "absolute, near")
    assert ("far less where many records lie near the solution" in forecast) == jumps


def test_what_noise_may_leave_scales_with_the_objective():
    said = [
        re.findall(r"up to about (\S+),", declared(dp.Problem(agents)).remarks)
        for factor in (1, 1000)
        for agents in [scaled(by_chance(chances), factor)]
    ]
    assert float(said[1][0]) == pytest.approx(1000 * float(said[0][0]), rel=0.05)  # two digits


def declared(problem):
    return problem.plan(epsilon=1.0, delta=1e-6, scale="declared")


def scaled(problem, factor):
    return [dp.Agent(factor * a.objective, name=a.name) for a in problem.agents]


@pytest.mark.parametrize("bounded", [False, True])
@pytest.mark.parametrize(
    "loss",
    [
        lambda score, y: cp.sum(cp.exp(score) - cp.multiply(y, score)),
        lambda score, y: cp.sum_squares(score - y),
    ],
)
def test_no_figure_is_given_where_nothing_bounds_what_noise_does(loss, bounded):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 3))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    w = cp.Variable(3, name="w")
    rows = dp.Private(X, name="X", adjacency=dp.Rows(1.0, records="person"))
    labels = dp.Private(np.ones(100), name="y", adjacency=dp.Rows(2.0, records="person"))
    cost = loss(rows @ w, labels) / 100
    agent = dp.Agent(cp.Minimize(cost), [cp.norm(w) <= 1] if bounded else [], name="a")
    said = dp.Problem([agent]).plan(epsilon=1.0, delta=1e-6).remarks
    assert ("noise alone may leave a gap of up to" in said) == bounded
    assert ("Bound the variables, for example cp.norm(w, 2) <= 10" in said) != bounded


@pytest.mark.parametrize(
    ("agents", "records", "said"), [(40, 14, True), (40, 4000, False), (9, 14, False)]
)
def test_many_small_agents_hear_what_a_secure_sum_would_save(agents, records, said):
    w, made = cp.Variable(3, name="w"), []
    for k in range(agents):
        X = dp.Private(shape=(records, 3), name=f"X{k}", adjacency=dp.Rows(1.0))
        cost = cp.sum(cp.logistic(X @ w)) / records / agents
        made.append(dp.Agent(cp.Minimize(cost), [cp.norm(w) <= 5]))
    plan = dp.Problem(made).plan(epsilon=1.0, delta=1e-6)
    found = [choice.why for choice in plan.choices if choice.what == "sharing"]
    assert bool(found) == said
    if said:
        assert "6.2 times less" in found[0] and "39th of the gap" in found[0]
        shared = dp.FederatedGradient(sharing=dp.SecretSharing(limit=100.0))
        split = dp.Problem(made).plan(shared, epsilon=1.0, delta=1e-6)
        assert not [choice for choice in split.choices if choice.what == "sharing"]
