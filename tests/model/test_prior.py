"""Public expectations in plans: what they change, what they leave as it is, what is refused."""

from functools import cache

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp
from dpcvx.privacy.randomness import Seeded
from dpcvx.sensitivity.estimates import LIMIT
from tests.sensitivity.test_estimates import density

TOTAL = dict(epsilon=1.0, delta=1e-6)
kinds = pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
LOADS = np.array([0.8, 1.1, 0.4, 0.9])


def budget(mechanism):
    return TOTAL | ({"delta": 0} if mechanism == "laplace" else {})


def shed(loads=LOADS, radius=0.1, within=3.0):
    """Loads that are to be met within limits."""
    n = len(loads)
    x, d = cp.Variable(n, name="x"), dp.Private(loads, name="load", adjacency=dp.Within(radius))
    cost = cp.sum_squares(x - d)
    return dp.Problem([dp.Agent(cp.Minimize(cost), [cp.abs(x) <= within], name="north")]), d


def fit(m=60, n=4):
    """Least squares with private targets: a shaped slope leaves."""
    A = np.random.default_rng(1).normal(size=(m, n)) * np.geomspace(1, 0.1, n)
    x = cp.Variable(n, name="x")
    d = dp.Private(A @ np.ones(n), name="d", adjacency=dp.Within(0.5))
    return dp.Problem([dp.Agent(cp.Minimize(cp.sum_squares(A @ x - d)), name="solo")]), d, A


def planned(problem, mechanism="gaussian", **given):
    return problem.plan(mechanism=mechanism, **(budget(mechanism) | given))


@kinds
def test_the_guarantee_is_the_same_and_says_what_is_expected(mechanism):
    problem, _ = shed()
    plain = planned(problem, mechanism)
    plan = planned(problem, mechanism, prior={"load": dp.Prior(LOADS, 0.1)})
    assert plan.guarantee.epsilon == plain.guarantee.epsilon
    assert plan.agents[0].noise == plain.agents[0].noise
    assert plan.agents[0].publication.sensitivity == plain.agents[0].publication.sensitivity
    said = "The solution uses public priors for 'load'."
    assert any(text.startswith(said) for text in plan.guarantee.assumptions)
    assert not any(text.startswith(said) for text in plain.guarantee.assumptions)
    assert said in " ".join(str(plan.guarantee).split())
    ledgers = [p.run(seed=1, verbose=False).ledger.to_json() for p in (plain, plan)]
    assert ledgers[0] == ledgers[1]
    assert dp.check_sensitivity(plan).passed


@kinds
@pytest.mark.parametrize("named", [True, False])
def test_the_release_is_moved_to_the_posterior_mean_of_two_entries(mechanism, named):
    loads, mean, spread = LOADS[:2], np.array([0.7, 1.3]), np.array([0.08, 0.3])
    problem, d = shed(loads)
    expected = {"load" if named else d: dp.Prior(mean, spread)}
    plan = planned(problem, mechanism, prior=expected)
    found, noise = plan.agents[0].publication, plan.agents[0].noise
    assert found.kind == "data"
    unit = found.units[0]
    deviation = unit * np.sqrt(noise.variance(found.sensitivity))
    kind = {"gaussian": "normal", "laplace": "Laplace"}[mechanism]
    for y in (np.array([0.75, 1.0]), np.array([0.55, 1.55])):
        axes = [m + s * np.linspace(-8, 8, 1601) for m, s in zip(mean, spread, strict=True)]
        d1, d2 = np.meshgrid(*axes, indexing="ij")
        weight = np.exp(-(((d1 - mean[0]) / spread[0]) ** 2) / 2)
        weight *= np.exp(-(((d2 - mean[1]) / spread[1]) ** 2) / 2)
        weight *= density(kind, y[0] - d1, deviation) * density(kind, y[1] - d2, deviation)
        exact = np.array([np.sum(d1 * weight), np.sum(d2 * weight)]) / weight.sum()
        assert (np.abs(exact - y) < LIMIT * deviation).all()
        assert found.restore(y / unit)[0] == pytest.approx(exact, abs=1e-5)


def restored(agent, data, draws=2000):
    """What a release of one private object is taken for, again and again."""
    found = agent.publication
    grid = agent.noise.grid(found.sensitivity, found.size)
    exact, source = found.statistic([data]), Seeded(3, (0,))
    for t in range(draws):
        yield found.restore(agent.noise.release(exact, grid, source.at(t, 1)))[0]


@kinds
def test_right_expectations_bring_the_answer_nearer_and_wrong_ones_cost_a_bounded_factor(mechanism):
    problem, _ = shed(radius=0.3, within=1e3)

    def gap(expected):
        agent = planned(problem, mechanism, prior=expected).agents[0]
        # Far within its bounds, the answer is what was restored.
        return np.mean([np.sum((d - LOADS) ** 2) for d in restored(agent, LOADS)])

    plain = gap(None)
    assert gap({"load": dp.Prior(LOADS + 0.02, 0.05)}) < 0.3 * plain
    assert gap({"load": dp.Prior(LOADS + 0.02)}) < 0.7 * plain
    # The same noise in both, 8000 numbers: standard errors of at most 3 % in each.
    assert gap({"load": dp.Prior(-2.0, 0.05)}) < 1.1 * (1 + LIMIT**2) * plain
    assert gap({"load": dp.Prior(-2.0)}) < 1.1 * plain


@kinds
def test_slopes_know_the_expectation_too(mechanism):
    problem, d, A = fit()
    mean = np.asarray(A @ np.ones(4))

    def ended(expected):
        agent = planned(problem, mechanism, prior=expected).agents[0]
        back = A @ np.linalg.pinv(A)
        errors = [np.sum((back @ (d - mean)) ** 2) for d in restored(agent, mean, 1000)]
        return agent.publication.kind, np.mean(errors)

    (kind, plain), (_, close), (_, unknown) = map(
        ended, (None, {"d": dp.Prior(mean, 0.02)}, {d: dp.Prior(mean)})
    )
    assert kind == "shaped slope"
    assert close < 0.1 * plain and unknown < 0.8 * plain


@cache
def two():
    x = cp.Variable(8, name="x")
    a = dp.Private(np.ones(4), name="a", adjacency=dp.Within(0.1))
    b = dp.Private(np.ones(4), name="b", adjacency=dp.Within(0.2), nonneg=True)
    cost = cp.sum_squares(x[:4] - a) + cp.sum_squares(x[4:] - 2 * b)
    return dp.Problem([dp.Agent(cp.Minimize(cost), [cp.abs(x) <= 9], name="north")])


@pytest.mark.parametrize(
    "expected",
    [
        {"a": dp.Prior(1.0, 0.1)},
        {"b": dp.Prior(1.0)},
        {"a": dp.Prior(1.0, np.full(4, 0.1)), "b": dp.Prior(np.ones(4))},
    ],
)
def test_objects_without_expectation_are_left_as_they_left(expected):
    plan = planned(two(), prior=expected, release="once")
    found = plan.agents[0].publication
    assert found.kind == "data"
    y = np.linspace(-5, 9, 8)
    plain = planned(two(), release="once").agents[0].publication.restore(y)
    for name, one, other in zip("ab", found.restore(y), plain, strict=True):
        assert np.array_equal(one, other) == (name not in expected)
        assert name == "a" or (one >= 0).all()


def test_a_forecast_around_a_prior_mean_has_the_error_of_the_prior():
    problem, _ = shed(radius=0.5)
    found = planned(problem, prior={"load": dp.Prior(LOADS, 0.01)}).forecast(60)
    assert found.error == "the prior's standard deviation"
    # Of squares around known loads: no more than the square of what they may differ by, whose
    # median in 12 copies is below twice its mean but in one of 1e5 suites.
    assert found.gap <= 2 * len(LOADS) * 0.01**2


def test_plans_with_other_expectations_are_other_plans():
    problem, _ = shed()
    expected = [None, dp.Prior(1.0), dp.Prior(1.0, 0.1), dp.Prior(1.0, 0.2)]
    plans = [planned(problem, prior=None if e is None else {"load": e}) for e in expected]
    assert len({plan.fingerprint for plan in plans}) == 4
    again = planned(problem, prior={"load": dp.Prior(np.ones(4), np.full(4, 0.1))})
    assert again.fingerprint == plans[2].fingerprint
    transcript = plans[2].run(seed=1, record=True, verbose=False).transcript
    assert plans[2].replay(transcript).solution["x"] is not None
    with pytest.raises(dp.PrivacyError, match="another plan"):
        plans[3].replay(transcript)


@pytest.mark.parametrize("shrink", [True, False])
def test_released_data_are_moved_towards_a_proxy_unless_shrink_is_off(shrink):
    x = cp.Variable(4, name="x")
    plans = []
    for like in (None, LOADS + 0.1):
        d = dp.Private(LOADS, name="load", adjacency=dp.Within(0.1), proxy=like)
        problem = dp.Problem([dp.Agent(cp.Minimize(cp.sum_squares(x - d)), name="north")])
        method = dp.OneShot(shrink=shrink)
        plans.append(problem.plan(method, epsilon=1.0, delta=1e-6, release="once"))
    ends = [plan.run(seed=1, verbose=False).solution["x"] for plan in plans]
    assert np.array_equal(*ends) == (not shrink)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: dp.Prior("much"), "mean='much'"),
        (lambda: dp.Prior([1.0, np.nan]), "finite"),
        (lambda: dp.Prior(1.0, -0.1), "below zero"),
        (lambda: dp.Prior(1.0, np.inf), "finite"),
    ],
)
def test_expectations_are_numbers(make, match):
    with pytest.raises(dp.ModelError, match=match):
        make()


@pytest.mark.parametrize(
    ("expected", "error", "match"),
    [
        ({"load": 1.0}, dp.ModelError, "dp.Prior"),
        ([1.0], dp.ModelError, "mapping"),
        ({3: dp.Prior(1.0)}, dp.ModelError, "mapping"),
        ({"lode": dp.Prior(1.0)}, dp.ModelError, "no private object has that name"),
        ({"load": dp.Prior(np.ones(3))}, dp.ModelError, r"shape \(3,\)"),
        ({"load": dp.Prior(1.0, np.ones(3))}, dp.ModelError, "std"),
    ],
)
def test_expectations_have_to_fit_the_problem(expected, error, match):
    problem, _ = shed()
    with pytest.raises(error, match=match):
        planned(problem, prior=expected)


def test_nothing_is_expected_of_what_never_leaves():
    x, y = cp.Variable(name="x"), cp.Variable(name="y")
    d = dp.Private(1.0, name="d", adjacency=dp.Within(0.1))
    most = dp.Private(2.0, name="most", adjacency=dp.Within(0.1))
    north = dp.Agent(cp.Minimize(cp.square(x + y - d)), name="north", recourse=[y <= most])
    south = dp.Agent(cp.Minimize(cp.square(x)), name="south")
    with pytest.raises(dp.ModelError, match="'most', which is never released"):
        planned(dp.Problem([north, south]), prior={"most": dp.Prior(1.0)})


def test_a_mean_has_the_declared_sign():
    with pytest.raises(dp.DataError, match="'b'.*nonneg"):
        planned(two(), prior={"b": dp.Prior(-1.0)})


def test_expectations_are_refused_where_they_are_of_no_use():
    problem, _ = shed()
    expected = {"load": dp.Prior(1.0)}
    with pytest.raises(dp.ModelError, match="in each step"):
        planned(problem, prior=expected, release="each_step")
    with pytest.raises(dp.ModelError, match="no effect on a plan without noise"):
        problem.plan(mechanism=None, prior=expected)


def moments():
    w = cp.Variable(2, name="w")
    X = dp.Private(np.eye(2), name="X", adjacency=dp.Rows(1.0))
    return dp.Problem([dp.Agent(cp.Minimize(cp.sum_squares(X @ w)), [cp.abs(w) <= 1])])


def weights():
    w = cp.Variable(2, name="w")
    X = dp.Private(np.ones(2), name="X", adjacency=dp.Within(0.1), nonneg=True)
    cost = X @ cp.square(w - 1)
    return dp.Problem([dp.Agent(cp.Minimize(cost), [cp.abs(w) <= 1])])


@pytest.mark.parametrize("problem", [moments, weights])
def test_expectations_are_refused_where_nothing_is_proved_for_them(problem):
    with pytest.raises(dp.PrivacyError, match="Leave .* out of prior="):
        planned(
            problem(), algorithm=dp.LinearizedADMM(), prior={"X": dp.Prior(0.5)}, release="once"
        )


def test_solve_takes_expectations():
    problem, _ = shed()
    expected = {"load": dp.Prior(LOADS, 0.0)}
    found = problem.solve(prior=expected, seed=3, verbose=False, **TOTAL).solution["x"]
    plain = problem.solve(seed=3, verbose=False, **TOTAL).solution["x"]
    assert np.abs(found - LOADS).max() < np.abs(plain - LOADS).max()


def test_an_expectation_shows_no_values():
    assert repr(dp.Prior(np.array([0.12345]), 0.2)) == (
        "Prior(mean=<ndarray of shape (1,)>, std=<ndarray of shape ()>)"
    )


@pytest.mark.parametrize("spread", [0.0, 1e-300, 1e-150, 1e-100, 1e-20])
@kinds
def test_what_is_known_exactly_or_nearly_is_planned_and_runs(mechanism, spread):
    x = cp.Variable(3, name="x")
    d = dp.Private(np.array([0.9, 1.0, 1.1]), name="d", adjacency=dp.Within(0.1))
    problem = dp.Problem([dp.Agent(cp.Minimize(cp.sum_squares(x - d)), [x <= 2])])
    expected = {"d": dp.Prior(np.ones(3), spread)}
    plan = problem.plan(mechanism=mechanism, prior=expected, **budget(mechanism))
    assert "Accuracy" in str(plan)
    assert plan.run(seed=1).solution[x] == pytest.approx(np.ones(3), abs=1e-6)


def test_models_that_are_solved_as_written_take_expectations():
    """Released data move towards what is expected, and no farther than their noise explains."""
    problem, given = weights(), {"epsilon": 0.1, "delta": 1e-6}

    def released(**more):
        result = problem.plan(dp.OneShot(as_written=True), **given, **more).run(seed=4)
        return result.released["X"]

    far = released(prior={"X": dp.Prior(1.0, 0.1)})
    assert np.abs(far - 1).max() < 0.2 < np.abs(released() - 1).max()
