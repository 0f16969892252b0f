"""What users hold: the verbs of problems and plans, and what a problem knows of its last run."""

import copy
import inspect
import pickle

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp
from tests.instances import power_line

BUDGET = {"rounds": 5, "epsilon": 1.0, "delta": 1e-6}


def parameters(verb):
    """All parameters of a method but the object itself."""
    return list(inspect.signature(verb).parameters.values())[1:]


def test_solve_takes_what_plan_and_run_take_and_says_so():
    both = [*parameters(dp.Problem.plan), *parameters(dp.Plan.run)]
    assert parameters(dp.Problem.solve) == both
    written = dp.Problem.solve.__doc__.split("Parameters")[1].split("Returns")[0]
    for parameter in both:
        assert parameter.name in written


def test_solve_hands_over_every_argument(tmp_path):
    """Each argument, at a value that its default would not give, changes what comes back."""
    given = power_line()
    path = tmp_path / "spent.jsonl"
    arguments = {
        **BUDGET,
        "mechanism": "laplace",
        "release": "once",
        "data": {"load0": given.data["load0"] + 1.0},
        "seed": 3,
        "tolerance": 1e3,
        "record": True,
        "iterates": True,
        "ledger": path,
        "executor": dp.Threads(),
        "verbose": False,
    }
    result = given.problem.solve(dp.ADMM(), **arguments)
    later = {k: v for k, v in arguments.items() if k in inspect.signature(dp.Plan.run).parameters}
    plan = given.problem.plan(dp.ADMM(), **{k: arguments[k] for k in arguments if k not in later})
    assert result.transcript.fingerprint == plan.fingerprint
    again = plan.run(**later | {"ledger": None})
    assert result.status is again.status is dp.Status.CONVERGED
    assert len(result.iterates) == result.rounds == again.rounds < plan.rounds
    for one, two in zip(result.last.vectors, again.last.vectors, strict=True):
        assert np.array_equal(one, two)
    assert dp.Ledger.load(path).to_json() == result.ledger.to_json()


def test_a_problem_has_the_status_of_its_last_run():
    problem = power_line().problem
    plan = problem.plan(**BUDGET)
    assert problem.status is None
    plan.run(seed=1)
    assert problem.status is dp.Status.UNSETTLED
    plan.run(seed=1, tolerance=1e3)
    assert problem.status is dp.Status.CONVERGED
    with pytest.raises(dp.ModelError):
        plan.run(seed=-1)
    assert problem.status is dp.Status.CONVERGED  # of the last run that there was


def test_trying_mechanisms_on_stand_in_data_is_no_run_of_the_problem():
    given = power_line()
    proxy = {"load0": given.data["load0"], "load1": given.data["load1"]}
    given.problem.compare(epsilon=1.0, delta=1e-6, proxy=proxy, time_limit=0.5, verbose=False)
    assert given.problem.status is None


def test_copies_of_a_problem_have_a_status_of_their_own():
    given = power_line()
    plan = given.problem.plan(**BUDGET)
    plan.run(seed=1)
    data = {"load0": given.data["load0"], "load1": given.data["load1"]}
    for twin in (copy.deepcopy(plan), pickle.loads(pickle.dumps(plan))):
        assert twin.problem.status is dp.Status.UNSETTLED
        twin.run(seed=1, data=data, tolerance=1e3)
        assert twin.problem.status is dp.Status.CONVERGED
        assert plan.problem.status is given.problem.status is dp.Status.UNSETTLED


def test_nobody_sees_the_value_of_a_private_objective():
    problem = power_line().problem
    result = problem.solve(**BUDGET, seed=1)
    with pytest.raises(dp.PrivacyError, match=r"'end0'.*dp\.not_private\.objective\(problem, res"):
        problem.value  # noqa: B018
    assert np.isfinite(dp.not_private.objective(problem, result.solution))


def test_the_value_of_a_public_objective_is_that_at_the_variables_values():
    x = cp.Variable(2, name="x")
    agents = [
        dp.Agent(cp.Minimize(cp.sum_squares(x - 1))),
        dp.Agent(cp.Maximize(-cp.sum_squares(x - 3))),
    ]
    problem = dp.Problem(agents)
    assert problem.value is None
    problem.solve(dp.ADMM(), rounds=300)
    assert problem.value == pytest.approx(4.0, abs=1e-6)
    assert problem.value == sum(float(agent.cost.value) for agent in agents)
