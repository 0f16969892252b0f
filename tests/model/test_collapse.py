"""Public terms without a gradient: taken out of objectives, met by steps, refused with data."""

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp
from dpcvx.model.collapse import parts_of, summands
from dpcvx.model.layout import layout_of
from dpcvx.solvers.projector import Projector

RNG = np.random.default_rng(5)
M = RNG.normal(size=(3, 3))
POINT, MATRIX = RNG.normal(size=3), (M + M.T) / 2


def vector_case(atom):
    x = cp.Variable(3, name="x")
    return x, POINT, atom(x)


def matrix_case(atom, **attributes):
    X = cp.Variable((3, 3), name="X", **attributes)
    return X, MATRIX, atom(X)


# Convex functions of a vector or a matrix, none of which has a gradient rule.
ATOMS = {
    "log_det": lambda: matrix_case(lambda X: -cp.log_det(X), PSD=True),
    "normNuc": lambda: matrix_case(cp.normNuc),
    "sigma_max": lambda: matrix_case(cp.sigma_max),
    "lambda_max": lambda: matrix_case(cp.lambda_max, symmetric=True),
    "lambda_min": lambda: matrix_case(lambda X: -cp.lambda_min(X), symmetric=True),
    "lambda_sum_largest": lambda: matrix_case(
        lambda X: cp.lambda_sum_largest(X, 2), symmetric=True
    ),
    "tr_inv": lambda: matrix_case(lambda X: cp.tr_inv(X + np.eye(3)), symmetric=True),
    "geo_mean": lambda: vector_case(lambda x: -cp.geo_mean(x)),
    "inv_prod": lambda: vector_case(cp.inv_prod),
    "cummax": lambda: vector_case(lambda x: cp.sum(cp.cummax(x))),
    "dotsort": lambda: vector_case(lambda x: cp.dotsort(x, np.array([1.0, 2.0, 3.0]))),
    "sum_largest of rows": lambda: matrix_case(lambda X: cp.sum(cp.sum_largest(X, 2, axis=1))),
    "square of lambda_max": lambda: matrix_case(
        lambda X: cp.square(cp.pos(cp.lambda_max(X))), symmetric=True
    ),
}


@pytest.mark.parametrize("name", ATOMS)
def test_one_gradient_step_minimizes_a_square_and_a_term_without_a_gradient(name):
    """For ``|x - d|^2`` a step of 1/2 ends where the objective is least, whatever the start."""
    x, d, term = ATOMS[name]()
    private = dp.Private(d, adjacency=dp.Within(0.1), name="d")
    cost = cp.sum_squares(x - private) + 0.4 * term
    problem = dp.Problem([dp.Agent(cp.Minimize(cost), [cp.abs(x) <= 2], name="a")])
    found = problem.solve(dp.LinearizedADMM(step=0.5), mechanism=None, rounds=1, verbose=False)
    central = dp.not_private.joint_problem(problem)
    central.solve(solver=cp.CLARABEL)
    assert found.last[x] == pytest.approx(x.value, abs=2e-4)
    value = dp.not_private.objective(problem, found.last)
    assert value == pytest.approx(central.value, abs=1e-6)
    assert found.violation["a"] <= 1e-7


def two_agents():
    X = cp.Variable((2, 2), name="X", PSD=True)
    d = dp.Private(MATRIX[:2, :2], adjacency=dp.Within(0.1), name="d")
    one = dp.Agent(cp.Minimize(cp.sum_squares(X - d) - cp.log_det(X)), name="one")
    other = dp.Agent(cp.Maximize(0.5 * (cp.log_det(X) - cp.trace(X))), name="other")
    return dp.Problem([one, other]), X


METHODS = {
    "LinearizedADMM": dp.LinearizedADMM(step=0.2, penalty=2.0),
    "ADMM": dp.ADMM(penalty=2.0),
    "OneShot": dp.OneShot(),
    "DecentralizedADMM": dp.DecentralizedADMM(step=0.1, randomness=0.0),
    "PrimalDual": dp.PrimalDual(step=0.2, penalty=1.0, dual_step=1.0),
}


@pytest.mark.parametrize("method", METHODS)
def test_agents_agree_on_the_common_optimum(method):
    problem, X = two_agents()
    rounds = None if method == "OneShot" else 150
    plan = problem.plan(METHODS[method], mechanism=None, rounds=rounds)
    found = plan.run(verbose=False)
    central = dp.not_private.joint_problem(problem)
    central.solve(solver=cp.CLARABEL)
    assert found.last[X] == pytest.approx(X.value, abs=1e-4)
    # Nothing is added to what agents hold.
    assert [a.n for a in plan.program.agents] == [4, 4]


@pytest.mark.parametrize("kind", [dp.DecentralizedGradient, dp.FederatedAveraging])
def test_steps_without_multipliers_end_near_it(kind):
    problem, X = two_agents()
    found = problem.solve(kind(step=0.05), mechanism=None, rounds=150, verbose=False)
    dp.not_private.joint_problem(problem).solve(solver=cp.CLARABEL)
    assert found.last[X] == pytest.approx(X.value, abs=0.05)


def test_a_private_run_is_replayed_from_its_releases():
    problem, X = two_agents()
    plan = problem.plan(dp.LinearizedADMM(step=0.2), rounds=5, epsilon=1.0, delta=1e-6)
    found = plan.run(seed=1, record=True, verbose=False)
    assert all(r.value.shape == (4,) for r in found.transcript.releases)
    again = plan.replay(found.transcript)
    assert np.array_equal(found.last[X], again.last[X])
    assert dp.check_sensitivity(plan).passed


REFUSING = {
    "DPP2": dp.DPP2(),
    "GradientTracking": dp.GradientTracking(),
    "output perturbation": dp.LinearizedADMM(perturb="projected_output"),
    "local searches": dp.DecentralizedADMM(exact=True),
    "random coordinates": dp.DecentralizedGradient(coordinates=1),
}


@pytest.mark.parametrize("method", REFUSING)
def test_methods_that_follow_gradients_alone_refuse_such_terms(method):
    problem, _ = two_agents()
    with pytest.raises(
        dp.ModelError, match=r"'one' has a term without a gradient.*Use dp\.LinearizedADMM"
    ):
        problem.plan(REFUSING[method], mechanism=None)


def test_a_public_block_takes_them_and_users_do_not():
    x, y = cp.Variable(2, name="x"), cp.Variable(2, name="y")
    d = dp.Private(np.array([1.0, 2.0]), adjacency=dp.Within(0.1), name="d")
    user = dp.Agent(cp.Minimize(cp.sum_squares(x - d)), name="user")
    mean = cp.geo_mean(y)
    public = dp.Agent(cp.Maximize(3 * mean - cp.sum(y)), [y <= 3], name="public")
    problem = dp.Problem([user, public], coupling=[x == y])
    found = problem.solve(dp.GradientADMM(), mechanism=None, rounds=200, verbose=False)
    dp.not_private.joint_problem(problem).solve(solver=cp.CLARABEL)
    assert found.last[y] == pytest.approx(y.value, abs=1e-4)
    greedy = dp.Agent(cp.Minimize(cp.sum_squares(x - d) - cp.geo_mean(x)), name="user")
    with pytest.raises(dp.ModelError, match=r"'user' has a term without a gradient.*public agent"):
        dp.Problem([greedy, public], coupling=[x == y]).plan(dp.GradientADMM(), mechanism=None)


def test_terms_add_up_and_factors_are_multiplied_out():
    x, p = cp.Variable(2), cp.Parameter(nonneg=True, value=3.0)
    f = (2 * (cp.sum(x) + 3 * -cp.geo_mean(x)) - (cp.norm(x) + 1)) / p
    terms = summands(f)
    assert len(terms) == 4
    x.value = np.array([1.0, 4.0])
    assert sum(t.value for t in terms) == pytest.approx(f.value)


def test_data_stay_apart_from_terms_without_a_gradient():
    X = cp.Variable((2, 2), symmetric=True)
    d = dp.Private(shape=(2, 2), adjacency=dp.Within(0.1), name="load")
    f = 2 * (cp.sum_squares(X - d) + cp.lambda_max(X)) - cp.log_det(X)
    form, rest = parts_of(f, layout_of([f]), [d], "a")
    assert rest is not None and not rest.parameters()
    X.value = np.array([[2.0, 1.0], [1.0, 3.0]])
    zero = float(np.sum(np.square(X.value)))
    x = np.ravel(X.value, order="F")
    assert form.at_zero().value(x) == pytest.approx(2 * zero)
    expected = 2 * np.linalg.eigvalsh(X.value)[-1] - np.log(5.0)
    assert float(rest.value) == pytest.approx(expected)


@pytest.mark.parametrize("unit", [1e-2, 1e3])
def test_steps_do_not_depend_on_units(unit):
    x, y = cp.Variable((2, 2)), cp.Variable((2, 2))
    v, D = RNG.normal(size=4), np.full(4, 2.0)

    def step(variable, scale, weight):
        agent = dp.Agent(cp.Minimize(cp.normNuc(variable / scale)), name="a")
        program = dp.Problem([agent]).plan(mechanism=None).program.agents[0]
        projector = Projector(program.constraints, "a", program.rest)
        return projector(v * scale, D / scale**2 * weight, weight).x

    plain = step(x, 1.0, 1.0)
    assert step(y, unit, 1.0) / unit == pytest.approx(plain, abs=1e-7)
    assert step(y, 1.0, unit) == pytest.approx(plain, abs=1e-7)


def test_a_set_outside_of_the_domain_is_refused():
    X = cp.Variable((2, 2), symmetric=True)
    agent = dp.Agent(cp.Maximize(cp.log_det(X)), [cp.trace(X) <= -1], name="a")
    with pytest.raises(dp.ModelError, match="'a' lies in the domain"):
        dp.Problem([agent]).plan(mechanism=None)


def test_fingerprints_tell_terms_apart():
    def printed(weight):
        x = cp.Variable(2, name="x")
        agent = dp.Agent(cp.Minimize(cp.sum_squares(x) - weight * cp.geo_mean(x)), name="a")
        return dp.Problem([agent]).plan(mechanism=None).fingerprint

    assert printed(1.0) == printed(1.0) != printed(2.0)
