"""What a solution answers: by variable, by name, and what it does not have."""

import copy

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp


@pytest.fixture
def solved():
    """Two agents that share x; `south` has y to itself; both have another variable named own."""
    x, y = cp.Variable(2, name="x"), cp.Variable(name="y")
    first, second = cp.Variable(name="own"), cp.Variable(name="own")
    d = dp.Private(np.ones(2), name="d", adjacency=dp.Within(0.1))
    limits = [cp.abs(x) <= 3]
    north = dp.Agent(cp.Minimize(cp.sum_squares(x - d) + cp.square(first)), limits, name="north")
    south = dp.Agent(
        cp.Minimize(cp.sum_squares(x) + cp.square(y - 1) + cp.square(second)), name="south"
    )
    problem = dp.Problem([north, south])
    plan = problem.plan(dp.LinearizedADMM(penalty=1.0), rounds=5, epsilon=1.0, delta=1e-6)
    return problem, plan.run(seed=0), {"x": x, "y": y, "first": first, "limits": limits}


def test_a_name_stands_for_its_variable(solved):
    _, result, made = solved
    for solution in (result.solution, result.last):
        for name in ("x", "y"):
            assert np.array_equal(solution[name], solution[made[name]])
            assert np.array_equal(solution.of("south", name), solution.of("south", made[name]))
    assert result.solution["x"].shape == (2,)


def test_ambiguous_names_are_refused(solved):
    _, result, made = solved
    for ask in (lambda: result.solution["own"], lambda: result.solution.of("north", "own")):
        with pytest.raises(dp.ModelError, match="2 variables are called 'own'.*x itself"):
            ask()
    assert result.solution[made["first"]].shape == ()


def test_unknown_names_and_other_things_are_refused(solved):
    _, result, _ = solved
    with pytest.raises(dp.ModelError, match="No agent holds a variable 'z'; there are 'own', 'x'"):
        result.solution["z"]
    with pytest.raises(dp.ModelError, match=r"solution\[x\] takes a cvxpy variable x or its name"):
        result.solution[0]
    with pytest.raises(dp.ModelError, match="No agent 'north' holds a variable 'y'"):
        result.solution.of("north", "y")
    with pytest.raises(dp.ModelError, match="takes the name of an agent first"):
        result.solution.of(0, "y")


def test_names_work_where_the_variable_is_another_object(solved):
    _, result, _ = solved
    twin = copy.deepcopy(result)
    assert np.array_equal(twin.solution["x"], result.solution["x"])
    assert twin.solution["x"] is not result.solution["x"]


def test_a_run_has_no_dual_values_and_says_so(solved):
    problem, result, made = solved
    (limit,) = made["limits"]
    with pytest.raises(dp.PrivacyError, match="no dual values, so constraint.dual_value is None"):
        result.solution.dual(limit)
    assert limit.dual_value is None
    cp.Problem(cp.Minimize(cp.sum(made["x"])), made["limits"]).solve(solver=cp.CLARABEL)
    assert limit.dual_value is not None
    problem.solve(dp.LinearizedADMM(), epsilon=1.0, delta=1e-6, rounds=2, seed=0)
    assert limit.dual_value is None


def priced(algorithm=None, **settings):
    """A market: two agents with private costs, one of them for two plants; demand is public."""
    p, q, demand = cp.Variable(2, name="p"), cp.Variable(name="q"), cp.Parameter(value=3.0)
    cost = dp.Private([1.0, 2.0], name="cost", adjacency=dp.Within(0.1))
    level = dp.Private(1.5, name="level", adjacency=dp.Within(0.1))
    limits, balance = [p >= 0, p <= 2], cp.sum(p) + q == demand
    north = dp.Agent(cp.Minimize(cost @ p + cp.sum_squares(p)), limits, name="north")
    south = dp.Agent(cp.Minimize(cp.square(q - level)), [cp.abs(q) <= 5], name="south")
    plan = dp.Problem([north, south], coupling=[balance]).plan(
        algorithm, epsilon=5.0, delta=1e-6, release="once", **settings
    )
    return plan, balance, limits, demand


def exact_prices(cost, level, demand):
    """The balance's and the limits' prices from cvxpy, for public data."""
    p, q = cp.Variable(2), cp.Variable()
    balance, limits = cp.sum(p) + q == demand, [p >= 0, p <= 2]
    objective = cost @ p + cp.sum_squares(p) + cp.square(q - level)
    cp.Problem(cp.Minimize(objective), [balance, *limits]).solve(solver=cp.CLARABEL)
    return balance.dual_value, *(limit.dual_value for limit in limits)


@pytest.mark.parametrize("algorithm", [None, dp.ResourceADMM()], ids=["default", "steps"])
def test_prices_follow_from_data_that_were_released_once(algorithm):
    plan, balance, limits, _ = priced(algorithm)
    result = plan.run(seed=2)
    expected = exact_prices(result.released["cost"], result.released["level"], 3.0)
    for constraint, price in zip([balance, *limits], expected, strict=True):
        np.testing.assert_allclose(result.solution.dual(constraint), price, atol=1e-6)
    (share,) = np.ravel(result.solution.dual_stability(balance, draws=5, tolerance=0.5))
    assert 0 < share <= 1
    assert result.solution.dual_stability(balance, draws=5, tolerance=1e-9) == 0
    again = plan.replay(plan.run(seed=2, record=True).transcript)
    assert again.solution.dual(balance) == result.solution.dual(balance)


def test_prices_follow_from_linear_coefficients_too():
    """Ten entries enter through two sums: coefficients are released, and not the data."""
    x, M = cp.Variable(2, name="x"), np.arange(20.0).reshape(2, 10) % 7
    d = dp.Private(np.ones(10), name="d", adjacency=dp.Within(0.1))
    limit = cp.sum(x) <= 20
    agent = dp.Agent(cp.Minimize(cp.sum_squares(x - M @ d)), [limit], name="solo")
    plan = dp.Problem([agent]).plan(epsilon=5.0, delta=1e-6, release="once")
    assert not plan.agents[0].publication.whole
    result = plan.run(seed=0)
    assert result.released == {}
    price, (data,) = result.solution.dual(limit), result.solution.surrogates.data
    assert price > 1
    # The gradient of the objective at the solution is the limit's price.
    np.testing.assert_allclose(-2 * (x.value - M @ data), price, atol=1e-5)


def test_prices_belong_to_the_parameters_of_the_plan_and_to_its_own_result():
    plan, balance, _, demand = priced()
    result = plan.run(seed=0)
    with pytest.raises(dp.PrivacyError, match="not of a copy"):
        copy.deepcopy(result).solution.dual(balance)
    demand.value = 4.0
    with pytest.raises(dp.ModelError, match="was 3.0 when the plan was made"):
        result.solution.dual(balance)


def public():
    """Without private data; the optimum is at x = (1, 1), y = 2."""
    x, y = cp.Variable(2, name="x"), cp.Variable(name="y")
    north = dp.Agent(cp.Minimize(cp.sum_squares(x - 1)), name="north")
    south = dp.Agent(cp.Minimize(cp.sum_squares(x - 1) + cp.square(y - 2) + 3), name="south")
    return dp.Problem([north, south]), x, y


def test_a_result_is_read_like_a_mapping_from_names():
    problem, x, y = public()
    result = problem.plan(dp.ADMM(), rounds=60).run()
    for mapping in (result, result.solution):
        assert list(mapping) == ["x", "y"] == list(mapping.keys()) and len(mapping) == 2
        assert "x" in mapping and y in mapping and "z" not in mapping
        assert cp.Variable(name="x") not in mapping
        assert mapping["x"] == pytest.approx(np.ones(2), abs=1e-4)
        assert np.array_equal(mapping[x], mapping["x"])
        for values in (mapping.to_dict(), dict(mapping)):
            assert set(values) == {"x", "y"} and float(values["y"]) == pytest.approx(2, abs=1e-4)


def test_names_that_repeat_cannot_be_listed(solved):
    _, result, _ = solved
    for read in (lambda: list(result), lambda: result.to_dict(), lambda: dict(result.solution)):
        with pytest.raises(dp.ModelError, match=r"called 'own'.*cp\.Variable\(name='power'\)"):
            read()


def test_the_value_of_a_result_stays_that_of_its_own_run():
    problem, x, _ = public()
    result = problem.plan(dp.ADMM(), rounds=60).run()
    x.value = np.array([5.0, 7.0])
    assert result.value == pytest.approx(3.0, abs=1e-6)
    assert np.array_equal(x.value, [5.0, 7.0])


def test_the_value_of_private_objectives_is_refused(solved):
    problem, result, _ = solved
    for name, read in (("result", lambda: result.value), ("problem", lambda: problem.value)):
        with pytest.raises(dp.PrivacyError, match=rf"{name}\.value.*'north'.*not_private"):
            read()
    with pytest.raises(dp.ModelError, match="copied or unpickled"):
        assert copy.deepcopy(result).value is None
