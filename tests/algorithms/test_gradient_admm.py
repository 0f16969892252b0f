"""Gradient ADMM against the printed algorithm, its budget user by user, its noise, its lemma."""

import re
from dataclasses import dataclass, field, replace

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import dpcvx as dp
from dpcvx.algorithms.blocks import eliminated
from dpcvx.algorithms.program import compile_problem
from dpcvx.privacy.accounting import gaussian_multiplier
from dpcvx.solvers.conic import ConicAnswer, ConicProgram, Outcome
from tests.algorithms.networks import laplace, overheard
from tests.run.test_resume import killed, same

STRICT = {"tol_gap_abs": 1e-12, "tol_gap_rel": 1e-12, "tol_feas": 1e-12}


@dataclass
class Model:
    """Least squares of several users, a public function, and the numbers they were built from."""

    problem: dp.Problem
    x: cp.Variable
    y: cp.Variable
    H: list
    b: list
    cost: cp.Expression
    constraints: list = field(default_factory=list)

    def gradient(self, k, x):
        return self.H[k].T @ (self.H[k] @ x - self.b[k])

    @property
    def smoothness(self):
        return max(np.linalg.norm(H.T @ H, 2) for H in self.H)

    def optimum(self):
        """x and y with all data in one place."""
        loss = sum(cp.sum_squares(H @ self.x - b) for H, b in zip(self.H, self.b, strict=True)) / 2
        problem = cp.Problem(
            cp.Minimize(loss + self.cost), [*self.constraints, *self.problem.coupling]
        )
        problem.solve(cp.CLARABEL, **STRICT)
        return self.x.value, self.y.value


def equal(x, y):
    return [x == y]


def elastic_net(y):
    return 0.3 * cp.norm1(y) + 0.2 * cp.sum_squares(y), []


def largest_entry(y):
    return 0.6 * cp.norm_inf(y), []


def boxed(y):
    return 0.1 * cp.sum(y), [y >= -0.2, y <= 0.3]


def model(users=3, n=3, length=None, coupling=equal, public=elastic_net, place=None, seed=0):
    """The public agent comes last, or at a given place."""
    rng = np.random.default_rng(seed)
    x, y = cp.Variable(n, name="x"), cp.Variable(length or n, name="y")
    H = [rng.normal(size=(4, n)) for _ in range(users)]
    b = [rng.normal(size=4) for _ in range(users)]
    agents = []
    for k in range(users):
        d = dp.Private(b[k], name=f"b{k}", adjacency=dp.Within(0.1, norm=2))
        agents.append(dp.Agent(cp.Minimize(cp.sum_squares(H[k] @ x - d) / 2), name=f"user{k}"))
    cost, constraints = public(y)
    agents.insert(users if place is None else place, dp.Agent(cp.Minimize(cost), constraints, "g"))
    return Model(dp.Problem(agents, coupling=coupling(x, y)), x, y, H, b, cost, constraints)


WIDE = np.array([[1.0, 0.5, -1.0, 2.0], [0.0, 1.0, 1.5, -0.5]])
MIX = np.array([[1.0, -0.5, 0.2], [0.3, 1.2, -1.0]])


def wide(x, y):
    return [WIDE @ x + MIX @ y == [0.5, -0.3]]


def noiseless(given, rounds=5, **parameters):
    return given.problem.plan(dp.GradientADMM(**parameters), mechanism=None, rounds=rounds)


def noisy(given, rounds=7, multiplier=None, parameters=(), **arguments):
    settings = {"rounds": rounds, "delta": 1e-6} | arguments
    if multiplier is None:
        settings.setdefault("epsilon", 1.0)
    else:
        settings["mechanism"] = dp.Gaussian(noise_multiplier=multiplier)
    return given.problem.plan(dp.GradientADMM(**dict(parameters)), **settings)


# -- the printed algorithm -------------------------------------------------------------------------


def by_cvxpy(public, rows, beta):
    """The y step as it is printed, by cvxpy."""

    def solve(x, lam):
        y = cp.Variable(rows.B.shape[1])
        cost, constraints = public(y)
        gap = rows.A @ x + rows.B @ y - rows.c
        total = cost - lam @ (rows.B @ y) + beta / 2 * cp.sum_squares(gap)
        alone = [rows.B_alone @ y == rows.c_alone] if rows.c_alone.size else []
        cp.Problem(cp.Minimize(total), constraints + alone).solve(cp.CLARABEL, **STRICT)
        return y.value

    return solve


def printed(gradient, turns, users, A, B, c, minimize, beta, eta, x, left=lambda t, x: x):
    """Algorithm 1, line by line, with the users' turns: ``(x, y, lam)`` after each round."""
    lam, path = np.zeros(c.size), []
    for t, k in enumerate(turns, 1):
        y = minimize(x, lam)  # line 1, Lemma 3.1
        lam = lam - beta * (A @ x + B @ y - c)  # line 2
        step = x - eta * (users * gradient(k, x) + A.T @ (beta * (B @ y - c) - lam))
        # Line 3, Lemma 3.2; noise on x is all that is added to it.
        x = left(t, np.linalg.solve(np.eye(x.size) + eta * beta * A.T @ A, step))
        path.append((x, y, lam))
    return path


def followed(given, result, expected, tolerance):
    assert len(result.iterates) == len(expected)
    for k, iterate in enumerate(result.iterates):
        xs, ys, _ = (np.array(part) for part in zip(*expected[: k + 1], strict=True))
        assert iterate.last[given.x] == pytest.approx(xs[-1], abs=tolerance)
        assert iterate.average[given.x] == pytest.approx(xs.mean(axis=0), abs=tolerance)
        assert iterate.average[given.y] == pytest.approx(ys.mean(axis=0), abs=tolerance)
        if k + 1 < len(expected):  # y follows from x and the multipliers: it opens the next round
            assert iterate.last[given.y] == pytest.approx(expected[k + 1][1], abs=tolerance)


PROX = {  # of the public objectives, with a step of length s
    elastic_net: lambda v, s: np.sign(v) * np.maximum(np.abs(v) - 0.3 * s, 0) / (1 + 0.4 * s),
    boxed: lambda v, s: np.clip(v - 0.1 * s, -0.2, 0.3),
}
# In the form of Remark 3.4, [I, D] x + B y = c, as A, B and c.
SHAPES = {
    "identity": (np.eye(3), -np.eye(3), np.zeros(3)),
    "shifted": (np.eye(3), np.diag([1.0, -2.0, 0.5]), np.array([0.1, -0.2, 0.3])),
    "wide": (np.array([[1, 0, 0.5, -0.3], [0, 1, 0.2, 0.4]]), MIX, np.array([0.5, -0.3])),
}


def by_steps(public, A, B, c, beta):
    """The y step by proximal gradient steps, to the last digit."""
    s = 1 / (beta * np.linalg.norm(B, 2) ** 2)

    def minimize(x, lam):
        y = np.zeros(B.shape[1])
        for _ in range(500):
            y = PROX[public](y - s * B.T @ (beta * (A @ x + B @ y - c) - lam), s)
        return y

    return minimize


def written(shape, public, users):
    """A model with one of these couplings, and the matrices."""
    A, B, c = SHAPES[shape]
    tie = lambda x, y: [A @ x + B @ y == c]  # noqa: E731
    return model(users, A.shape[1], B.shape[1], tie, public), A, B, c


CLOSED = [(shape, public) for shape in SHAPES for public in PROX]
CLOSED.remove(("wide", boxed))  # whose y step is a conic program, which ends at 1e-8


@pytest.mark.parametrize("users", [1, 3])
@pytest.mark.parametrize(("shape", "public"), CLOSED)
@pytest.mark.parametrize("private", [False, True])
def test_a_run_is_algorithm_1(private, shape, public, users):
    given, A, B, c = written(shape, public, users)
    beta, eta, noise = 1.3, 0.05, []
    mechanism = dp.Laplace(noise_multiplier=0.01) if private else None
    plan = given.problem.plan(
        dp.GradientADMM(penalty=beta, step=eta), mechanism=mechanism, rounds=7
    )
    result = plan.run(seed=2, record=True, iterates=True)
    releases = {r.round: r for r in result.transcript.releases}
    turns = [releases[t].agent for t in range(1, 8)]
    assert turns == [t % users for t in range(7)]
    scales = {
        e.round: e.multiplier * e.sensitivity for a in result.ledger.values() for e in a.entries
    }

    def left(t, x):
        if not private:
            return x
        # Of the gradient, the part with data in it leaves, as the map of line 3 takes it to x.
        k = turns[t - 1]
        exact = np.linalg.solve(np.eye(x.size) + eta * beta * A.T @ A, -given.H[k].T @ given.b[k])
        rest = releases[t].value - exact
        noise.extend(rest / scales[t])
        return x - eta * users * rest

    minimize = by_steps(public, A, B, c, beta)
    start = np.zeros(A.shape[1])
    path = printed(given.gradient, turns, users, A, B, c, minimize, beta, eta, start, left)
    followed(given, result, path, 1e-6 if shape == "wide" else 1e-11)
    assert not private or laplace(noise)


@pytest.mark.parametrize("order", ["permutation", "stopping", "sampling"])
def test_random_orders_are_algorithm_1_with_other_turns(order):
    given, A, B, c = written("shifted", elastic_net, 5)
    beta, eta, users = 1.3, 0.05, 5
    method, _, said = overheard(dp.GradientADMM(penalty=beta, step=eta, order=order))
    rounds = 5 if order == "stopping" else 10
    plan = given.problem.plan(method, mechanism=None, rounds=rounds, observer="last_iterate")
    taken = []
    for seed in range(6):
        said.clear()
        result = plan.run(seed=seed)
        who = {t: int(name[-1]) for name, t, _ in said}
        turns = [who[t] for t in range(1, result.rounds + 1)]
        minimize = by_steps(elastic_net, A, B, c, beta)
        path = printed(given.gradient, turns, users, A, B, c, minimize, beta, eta, np.zeros(3))
        for t, (k, (x, _, _)) in enumerate(zip(turns, path, strict=True), 1):
            assert said[f"user{k}", t, 0] == pytest.approx(x, abs=1e-11)
        assert result.last[given.x] == pytest.approx(path[-1][0], abs=1e-11)
        if order == "permutation":
            assert sorted(turns[:5]) == list(range(5)) and turns[5:] == turns[:5]
        elif order == "stopping":
            assert turns == list(range(len(turns))) and len(turns) in (3, 4, 5)
        taken.append(tuple(turns))
    assert len(set(taken)) > 1


PUBLIC = {"closed form": elastic_net, "box": boxed, "conic": largest_entry}


@pytest.mark.parametrize("public", PUBLIC)
@pytest.mark.parametrize("shape", ["identity", "shifted", "wide", "tall"])
def test_rounds_are_those_of_the_paper_for_any_coupling(public, shape):
    couplings = {
        "identity": (3, 3, equal),
        "shifted": (3, 3, lambda x, y: [x == [0.1, -0.2, 0.3] - cp.multiply([1, -2, 0.5], y)]),
        "wide": (4, 3, wide),
        "tall": (2, 3, lambda x, y: [WIDE.T[:, :2] @ x + np.vstack([MIX, MIX * 2]) @ y == 0.1]),
    }
    n, length, coupling = couplings[shape]
    if shape == "tall":
        coupling = lambda x, y: [MIX[:, :2].T @ x == y[:2], x[0] - x[1] + 0.5 * y[2] == 0.1]  # noqa: E731
    given = model(2, n, length, coupling, PUBLIC[public])
    plan = noiseless(given, penalty=0.7, step=0.04)
    rows = eliminated(plan.program)
    assert rows.c_alone.size == (1 if shape == "tall" else 0)
    minimize = by_cvxpy(PUBLIC[public], rows, 0.7)
    expected = printed(
        given.gradient, [0, 1, 0, 1, 0], 2, rows.A, rows.B, rows.c, minimize, 0.7, 0.04, np.zeros(n)
    )
    result = plan.run(iterates=True)
    followed(given, result, expected, 1e-6)
    exact = public != "conic" and shape in ("identity", "shifted")
    assert plan.algorithm.start_server(plan.program).blocks.exact is exact
    assert result.history.failed == 0


def test_residuals_are_those_of_the_optimality_conditions():
    """Of the coupling and of f, where y and the multipliers were computed; g has none there."""
    given = model(2, 4, 3, wide)
    plan = noiseless(given, rounds=4, penalty=0.7, step=0.04)
    rows = eliminated(plan.program)
    minimize = by_cvxpy(elastic_net, rows, 0.7)
    path = printed(
        given.gradient, [0, 1, 0, 1], 2, rows.A, rows.B, rows.c, minimize, 0.7, 0.04, np.zeros(4)
    )
    xs = [np.zeros(4), *(x for x, _, _ in path)]
    gaps = [rows.A @ x + rows.B @ y - rows.c for x, (_, y, _) in zip(xs, path, strict=False)]
    slopes = [2 * given.gradient(t % 2, xs[t]) - rows.A.T @ path[t][2] for t in range(4)]
    history = plan.run().history
    assert history.primal == pytest.approx([np.linalg.norm(g) for g in gaps], abs=1e-6)
    assert history.mismatch == pytest.approx([np.abs(g).max() for g in gaps], abs=1e-6)
    assert history.dual == pytest.approx([np.linalg.norm(s) for s in slopes], abs=1e-5)
    assert history.penalty == [0.7] * 4


@pytest.mark.parametrize("place", [0, 1, 2])
def test_the_public_agent_may_stand_anywhere(place):
    given, last = model(2, place=place), model(2)
    one, other = (noiseless(m, rounds=5, step=0.05).run().last for m in (given, last))
    assert np.array_equal(one[given.x], other[last.x])
    assert np.array_equal(one[given.y], other[last.y])
    assert np.array_equal(one.of("g", given.y), other.of("g", last.y))


def test_rounds_start_at_the_public_start():
    given = model(2)
    problem = replace(given.problem, start={given.x: [1.0, -2.0, 3.0]})
    plan = noiseless(replace(given, problem=problem), rounds=1, penalty=1.0, step=0.05)
    start, (A, B, c) = np.array([1.0, -2.0, 3.0]), SHAPES["identity"]
    minimize = by_steps(elastic_net, A, B, c, 1.0)
    expected = printed(given.gradient, [0], 2, A, B, c, minimize, 1.0, 0.05, start)
    assert plan.run().last[given.x] == pytest.approx(expected[0][0], abs=1e-12)


def test_matrix_variables_and_several_variables_are_columns_of_A():
    """The same problem, written with one vector and with a matrix and a scalar."""
    rng = np.random.default_rng(2)
    H, b, A, B = (rng.normal(size=s) for s in ((5, 5), 5, (3, 5), (3, 2)))
    found = []
    for split in (False, True):
        if split:
            X, z, y = cp.Variable((2, 2), name="X"), cp.Variable(name="z"), cp.Variable(2, name="y")
            x = cp.hstack([cp.vec(X, order="F"), z])
        else:
            X, z, y = None, None, cp.Variable(2, name="y")
            x = cp.Variable(5, name="x")
        d = dp.Private(b, name="b", adjacency=dp.Within(0.1))
        agents = [
            dp.Agent(cp.Minimize(cp.sum_squares(H @ x - d)), name="user"),
            dp.Agent(cp.Minimize(cp.norm1(y)), name="g"),
        ]
        problem = dp.Problem(agents, coupling=[A @ x + B @ y == 1])
        result = problem.plan(dp.GradientADMM(step=0.02), mechanism=None, rounds=6).run()
        x_last = (
            result.last[x] if not split else np.append(result.last[X].ravel("F"), result.last[z])
        )
        found.append((x_last, result.last[y]))
    assert found[0][0] == pytest.approx(found[1][0], abs=1e-7)
    assert found[0][1] == pytest.approx(found[1][1], abs=1e-7)


def test_a_failing_solver_keeps_y_and_ends_no_run(monkeypatch):
    given = model(2, public=largest_entry)
    plan = noiseless(given, rounds=6, step=0.05)
    send, solve, rounds = dp.GradientADMM.send, ConicProgram.solve, []

    def in_round(self, server, t, k):
        rounds.append(t)
        sent = send(self, server, t, k)
        rounds.append(0)
        return sent

    def fails_in_round_2(self, D, c, center):
        failed = ConicAnswer(None, Outcome.FAILED)
        return failed if rounds[-1:] == [2] else solve(self, D, c, center)

    monkeypatch.setattr(dp.GradientADMM, "send", in_round)
    monkeypatch.setattr(ConicProgram, "solve", fails_in_round_2)
    result = plan.run(iterates=True)
    assert result.history.failed == 1
    assert result.history.rounds == [1, 2, 3, 4, 5, 6]
    assert np.isfinite(result.last[given.x]).all()


# -- convergence without noise ---------------------------------------------------------------------


@pytest.mark.parametrize("public", PUBLIC)
@pytest.mark.parametrize("shape", ["identity", "wide", "rank-deficient", "tall"])
def test_one_user_with_all_data_reaches_the_central_optimum(public, shape):
    couplings = {
        "identity": (3, 3, equal),
        "wide": (4, 3, wide),
        "rank-deficient": (4, 3, lambda x, y: [*wide(x, y), (WIDE @ x + MIX @ y)[0] == 0.5]),
        "tall": (2, 3, lambda x, y: [MIX[:, :2].T @ x == y[:2], x[0] - x[1] + 0.5 * y[2] == 0.1]),
    }
    n, length, coupling = couplings[shape]
    given = model(1, n, length, coupling, PUBLIC[public], seed=3)
    result = noiseless(given, rounds=600).run()
    x, y = given.optimum()
    assert result.reported == "last"
    assert result.last[given.x] == pytest.approx(x, abs=1e-6)
    assert result.last[given.y] == pytest.approx(y, abs=1e-6)
    assert all(c.violation().max() < 1e-6 for c in given.problem.coupling)


def test_with_many_users_the_average_comes_near_the_optimum():
    given = model(10, seed=6)
    x, _ = given.optimum()
    distance = []
    for share in (1.0, 0.1):
        eta = share / (10 * given.smoothness)
        averages = noiseless(given, rounds=3000, step=eta, returned="average").run()
        assert averages.reported == "average"
        distance.append(np.linalg.norm(averages.solution[given.x] - x))
    assert distance[1] < 0.05 * np.linalg.norm(x)
    # One user at a time is a gradient with an error of its own, which the step size scales.
    last = noiseless(given, rounds=3000, step=1 / (10 * given.smoothness)).run().last[given.x]
    assert 1e-4 < np.linalg.norm(last - x)
    assert min(distance) < np.linalg.norm(last - x)


def test_a_tolerance_stops_a_run_of_one_user():
    given = model(1)
    result = noiseless(given, rounds=2000).run(tolerance=1e-8)
    assert result.status is dp.Status.CONVERGED
    assert 1 < result.rounds < 2000
    assert result.last[given.x] == pytest.approx(given.optimum()[0], abs=1e-6)


def test_a_start_at_which_y_rests_is_no_end():
    """At x = y = 0 the coupling holds and y does not move; f is far from its minimum."""
    given = model(2)
    plan = noiseless(given, rounds=5, step=0.05)
    history = plan.run().history
    assert history.primal[0] == 0
    assert history.dual[0] > 1
    assert plan.run(tolerance=1e-6).rounds == 5


# -- constants -------------------------------------------------------------------------------------


def test_the_step_size_is_one_over_the_smoothness_of_all_users():
    given = model(3)
    algorithm = noiseless(given).algorithm
    assert algorithm.smoothness == pytest.approx(given.smoothness)
    assert algorithm.step == pytest.approx(1 / (3 * given.smoothness))
    assert algorithm.penalty == pytest.approx(1 / (2 * algorithm.step))
    assert noisy(given, multiplier=1e4).algorithm.step < algorithm.step / 10


def records(users=2, clip=None):
    """Users whose curvature depends on their features, which are private."""
    rng = np.random.default_rng(1)
    w, y = cp.Variable(2, name="w"), cp.Variable(2, name="y")
    agents = []
    for k in range(users):
        X = rng.normal(size=(5, 2))
        X /= np.linalg.norm(X, axis=1, keepdims=True)
        rows = dp.Rows(1.0)
        features = dp.Private(X, name=f"X{k}", adjacency=rows)
        labels = dp.Private(rng.choice([-1.0, 1.0], 5), name=f"y{k}", adjacency=rows)
        loss = cp.sum(cp.logistic(-cp.multiply(labels, features @ w)))
        agents.append(dp.Agent(cp.Minimize(loss), name=f"user{k}", clip_norm=clip))
    return dp.Problem([*agents, dp.Agent(cp.Minimize(cp.norm1(y)), name="g")], coupling=[w == y])


def test_the_curvature_of_records_follows_from_their_bound():
    # Five records of length one, each with a factor of at most one: 5 / 4.
    derived = records().plan(dp.GradientADMM(), mechanism=None)
    assert derived.algorithm.smoothness == pytest.approx(1.25)
    assert derived.algorithm.step == pytest.approx(1 / (2 * 1.25))


def test_a_curvature_that_private_data_do_not_bound_needs_a_constant():
    w, y = cp.Variable(2, name="w"), cp.Variable(2, name="y")
    weight = dp.Private(np.ones(2), name="d", nonneg=True, adjacency=dp.Within(0.1))
    user = dp.Agent(cp.Minimize(weight @ cp.square(w)), name="user0", clip_norm=None)
    problem = dp.Problem([user, dp.Agent(cp.Minimize(cp.norm1(y)), name="g")], coupling=[w == y])
    with pytest.raises(
        dp.ModelError, match=r"'user0'.*dp.GradientADMM\(smoothness=...\).*step=..."
    ):
        problem.plan(dp.GradientADMM(), mechanism=None)
    given = problem.plan(dp.GradientADMM(smoothness=2.5), mechanism=None)
    assert given.algorithm.step == pytest.approx(1 / 2.5)
    chosen = problem.plan(dp.GradientADMM(step=0.2), mechanism=None)
    assert (chosen.algorithm.step, chosen.algorithm.smoothness) == (0.2, None)


def test_a_given_constant_takes_the_place_of_the_derived_one():
    given = model(3)
    assert noisy(given, parameters={"smoothness": 100.0}).algorithm.step == pytest.approx(1 / 300)
    both = noisy(given, parameters={"smoothness": 100.0, "step": 0.01}).algorithm
    assert (both.smoothness, both.step) == (100.0, 0.01)


def test_linear_objectives_have_a_step_size_of_one():
    x, y = cp.Variable(2, name="x"), cp.Variable(2, name="y")
    d = dp.Private([1.0, 2.0], name="d", adjacency=dp.Within(0.1))
    agents = [
        dp.Agent(cp.Minimize(d @ x), name="user"),
        dp.Agent(cp.Minimize(cp.sum_squares(y)), name="g"),
    ]
    problem = dp.Problem(agents, coupling=[x == y])
    plan = problem.plan(dp.GradientADMM(), mechanism=None)
    assert (plan.algorithm.smoothness, plan.algorithm.step) == (None, 1.0)
    # Its length has the unit of the objective: no budget is spent on it.
    with pytest.raises(dp.ModelError, match=r"'user' has no smoothness constant .* pass step="):
        problem.plan(dp.GradientADMM(), epsilon=1.0, delta=1e-6)


@pytest.mark.parametrize("name", ["penalty", "step", "smoothness"])
@pytest.mark.parametrize("value", [0.0, -1.0, np.inf, np.nan, "1", True])
def test_constants_are_positive_finite_numbers(name, value):
    with pytest.raises(dp.ModelError, match=re.escape(f"dp.GradientADMM({name}={value!r}) must")):
        dp.GradientADMM(**{name: value})


def test_constants_may_be_left_to_the_plan():
    assert dp.GradientADMM(penalty=None, step=None, smoothness=None) == dp.GradientADMM()


def test_under_noise_the_average_is_reported_unless_the_last_is_asked_for():
    given = model(2)
    steps = {"penalty": 2.0, "step": 0.05}
    assert noisy(given, parameters=steps).run(seed=1).reported == "average"
    assert noisy(given, parameters={"returned": "last"}).run(seed=1).reported == "last"


def test_texts_name_the_method_and_its_constants():
    assert str(dp.GradientADMM()) == (
        "gradient ADMM, one user per round, step = chosen by the plan"
    )
    assert "penalty = 2, step = 0.05" in str(dp.GradientADMM(penalty=2.0, step=0.05))
    assert "gradient ADMM, one user per round" in str(noisy(model(2)))


# -- problems that are not of this form ------------------------------------------------------------


def agent_of(cost, *constraints, name):
    return dp.Agent(cp.Minimize(cost), constraints, name=name)


def private(name, n=2):
    return dp.Private(np.zeros(n), name=name, adjacency=dp.Within(0.1))


def pieces():
    x, y, z = (cp.Variable(2, name=name) for name in "xyz")
    return x, y, z


def pulled(x, *more, name="user", rest=0):
    """A user whose data pull x."""
    return agent_of(cp.sum_squares(x - private(f"d of {name}")) + rest, *more, name=name)


def of_y(y, rest=0):
    return agent_of(cp.norm1(y) + rest, name="g")


OTHER_VECTORS = "'one' and 'two' do not use the same variables in the same order"
# Agents and coupling by their variables, and what the refusal says.
REFUSED = {
    "no coupling": (
        lambda x, y, z: ([pulled(x), of_y(x)], []),
        "dp.GradientADMM needs the equalities", "coupling=[A @ x + B @ y == c]",
    ),
    "several public agents": (
        lambda x, y, z: ([pulled(x), of_y(y), agent_of(cp.norm1(z), name="h")], [x == y + z]),
        "2 agents without private data and 1 with", "[*users, dp.Agent(g)]",
    ),
    "no public agent": (
        lambda x, y, z: ([pulled(x, name="one"), pulled(y, name="two")], [x == y]),
        "0 agents without private data and 2 with",
    ),
    "another order": (
        lambda x, y, z: (
            [
                pulled(x, name="one", rest=cp.sum_squares(z)),
                pulled(z, name="two", rest=cp.sum_squares(x)), of_y(y),
            ],
            [x + z == y],
        ),
        OTHER_VECTORS,
    ),
    "other entries": (
        lambda x, y, z: (
            [
                pulled(x, name="one", rest=cp.sum_squares(z)),
                pulled(x, name="two", rest=cp.square(z[0])), of_y(y),
            ],
            [x + z == y],
        ),
        OTHER_VECTORS,
    ),
    "fewer variables": (
        lambda x, y, z: (
            [pulled(x, name="one", rest=cp.sum_squares(z)), pulled(x, name="two"), of_y(y)],
            [x + z == y],
        ),
        OTHER_VECTORS,
    ),
    "a constraint": (
        lambda x, y, z: (
            [pulled(x, cp.norm(x) <= 1, name="one"), pulled(x, name="two"), of_y(y)], [x == y]
        ),
        "Agent 'one' has constraints", "on y, with coupling=[x == y]",
    ),
    "a constraint of the second user": (
        lambda x, y, z: (
            [pulled(x, name="one"), pulled(x, x <= 1, name="two"), of_y(y)], [x == y]
        ),
        "Agent 'two' has constraints", "on y, with coupling=[x == y]",
    ),
    "a variable shared with the public agent": (
        lambda x, y, z: ([pulled(x), of_y(y, cp.norm1(x))], [x == y]),
        "The public agent 'g' uses 'x'", "coupling=[x == y]",
    ),
    "a coupling of y alone": (
        lambda x, y, z: ([pulled(x, name="one"), pulled(x, name="two"), of_y(y)], [y == 1]),
        "does not contain the users' variables", "coupling=[x == y]",
    ),
    "a contradiction": (
        lambda x, y, z: ([pulled(x), of_y(y)], [x == y, x == y + 1]), "coupling=",
    ),
    "a concave user": (
        lambda x, y, z: (
            [agent_of(-cp.sum_squares(x - private("d")), name="user"), of_y(y)], [x == y]
        ),
        "'user' does not follow cvxpy's convexity rules",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_problems_of_another_form_are_refused(case):
    build, *said = REFUSED[case]
    agents, coupling = build(*pieces())
    problem = dp.Problem(agents, coupling=coupling)
    for mechanism, delta in ((dp.Gaussian(noise_multiplier=5.0), 1e-6), (None, None)):
        with pytest.raises(dp.ModelError) as caught:
            problem.plan(dp.GradientADMM(step=0.1), mechanism=mechanism, delta=delta, rounds=2)
        assert all(part in str(caught.value) for part in said), str(caught.value)


def test_signs_of_users_variables_are_constraints():
    x, y = cp.Variable(2, name="x", nonneg=True), cp.Variable(2, name="y")
    problem = dp.Problem([pulled(x), of_y(y)], coupling=[x == y])
    with pytest.raises(dp.ModelError, match="'user' has constraints"):
        problem.plan(dp.GradientADMM(step=0.1), mechanism=None, rounds=2)


def test_no_user_is_refused():
    x, y, _ = pieces()
    agents = [agent_of(cp.sum_squares(x), name="f"), agent_of(cp.norm1(y), name="g")]
    problem = dp.Problem(agents, coupling=[x == y])
    with pytest.raises(dp.ModelError, match="2 agents without private data and 0 with"):
        problem.plan(dp.GradientADMM(), rounds=2)


def test_the_advice_for_users_with_other_vectors_works():
    x, y, z = pieces()
    agents = [
        agent_of(cp.sum_squares(x - private("d")) + cp.sum_squares(z), name="one"),
        agent_of(cp.sum_squares(x - private("e")) + np.zeros(2) @ z, name="two"),
        agent_of(cp.norm1(y), name="g"),
    ]
    plan = dp.Problem(agents, coupling=[x + z == y]).plan(
        dp.GradientADMM(), epsilon=1.0, delta=1e-6, rounds=2
    )
    assert plan.run(seed=0).rounds == 2


# -- budget, user by user --------------------------------------------------------------------------


def counts(result):
    return [len(account.entries) for account in result.ledger.values()]


@pytest.mark.parametrize(
    ("rounds", "expected"),
    [(1, [1, 0, 0]), (2, [1, 1, 0]), (3, [1, 1, 1]), (4, [2, 1, 1]), (7, [3, 2, 2])],
)
def test_users_release_in_turns(rounds, expected):
    plan = noisy(model(3), rounds)
    result = plan.run(seed=1, record=True)
    assert counts(result) == [*expected, 0]
    assert plan.releases(rounds) == expected[0]
    for k in range(3):
        entries = result.ledger[f"user{k}"].entries
        assert [(e.round, e.step) for e in entries] == [
            (t, 1) for t in range(1, rounds + 1) if (t - 1) % 3 == k
        ]
        assert {e.released for e in entries} <= {"gradient"}
        # The coupling x = y makes A square: the map leaves 1 / (1 + eta beta) of the gradient's.
        left = plan.agents[k].sensitivity.l2 / (1 + plan.algorithm.step * plan.algorithm.penalty)
        charged = plan.agents[0].noise.grid(left, 3).sensitivity
        assert all(e.sensitivity == pytest.approx(charged, rel=1e-9) for e in entries)
    assert [
        (r.round, r.agent) for r in sorted(result.transcript.releases, key=lambda r: r.round)
    ] == [(t, (t - 1) % 3) for t in range(1, rounds + 1)]


@pytest.mark.parametrize("rounds", [3, 7])
@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_the_user_with_the_most_turns_spends_the_whole_budget(rounds, mechanism):
    plan = noisy(model(3), rounds, mechanism=mechanism, epsilon=0.8)
    result = plan.run(seed=1)
    spent = [result.ledger[f"user{k}"].spent().epsilon for k in range(3)]
    assert spent[0] == pytest.approx(0.8, rel=1e-6)
    assert plan.guarantee.epsilon == pytest.approx(0.8, rel=1e-6)
    assert max(spent) <= 0.8 * (1 + 1e-9)
    assert (min(spent) < 0.79) == (rounds == 7)
    assert result.ledger["g"].spent().epsilon == 0


def test_noise_is_calibrated_for_the_turns_of_one_user():
    plan = noisy(model(3), 7, epsilon=0.8)
    assert plan.agents[0].noise.multiplier == pytest.approx(gaussian_multiplier(3, 0.8, 1e-6))
    more = noisy(model(7), 7, epsilon=0.8)
    assert more.agents[0].noise.multiplier == pytest.approx(gaussian_multiplier(1, 0.8, 1e-6))


def test_users_who_may_be_the_same_people_share_a_budget():
    given = model(3)
    problem = replace(given.problem, groups=[["user0", "user1"]])
    plan = problem.plan(dp.GradientADMM(), epsilon=0.8, delta=1e-6, rounds=7)
    assert plan.agents[0].noise.multiplier == pytest.approx(gaussian_multiplier(6, 0.8, 1e-6))
    assert plan.run(seed=0).ledger.spent() == pytest.approx(0.8, rel=1e-6)


def test_a_ledger_with_room_gives_every_user_the_turns_that_are_left():
    given = model(3)
    first = noisy(given, 4, multiplier=20.0).run()
    assert counts(first) == [2, 1, 1, 0]
    result = noisy(given, 10, multiplier=20.0).run(ledger=first.ledger)
    # The budget is for four releases of a user, and the first user has two left.
    assert (result.status, result.rounds) == (dp.Status.BUDGET, 6)
    assert counts(result) == [4, 3, 3, 0]
    assert counts(first) == [2, 1, 1, 0]


def test_a_ledger_without_room_is_refused():
    plan = noisy(model(3), 7)
    first = plan.run()
    with pytest.raises(dp.BudgetError) as caught:
        plan.run(ledger=first.ledger)
    assert caught.value.agent == "user0"
    assert counts(first) == [3, 2, 2, 0]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger.jsonl"


def test_a_ledger_file_keeps_every_users_account(path):
    plan = noisy(model(3), 4, multiplier=20.0)
    result = plan.run(ledger=path, seed=3)
    same(result, plan.run(seed=3))
    kept = dp.Ledger.load(path)
    assert {name: len(kept[name].entries) for name in kept} == {
        "user0": 2, "user1": 1, "user2": 1, "g": 0
    }  # fmt: skip
    longer = noisy(model(3), 10, multiplier=20.0)
    again = longer.run(ledger=path)
    assert (again.rounds, counts(again)) == (6, [4, 3, 3, 0])


def test_a_killed_run_spends_nothing_twice(path):
    plan = noisy(model(2), 5)
    for lines in (1, 2, 3):
        killed(plan, path, lines)
    result = plan.run(ledger=path)
    assert result.rounds == plan.rounds
    assert counts(result) == [3, 2, 0]
    assert result.ledger.spent() == pytest.approx(1.0, rel=1e-6)
    with pytest.raises(dp.BudgetError):
        plan.run(ledger=path)


def test_another_coupling_is_another_plan():
    """Releases of one plan mean nothing in the other."""
    x, y, z = pieces()
    agents = [
        agent_of(cp.sum_squares(x - private("d")) + cp.sum_squares(z), name="user"),
        agent_of(cp.norm1(y), name="g"),
    ]
    couplings = [
        [x + 2 * z + 3 * y == 1],
        [z + 2 * x + 3 * y == 1],
        [x + 2 * z + 3 * y == 2],
        [x + 2 * z + 4 * y == 1],
        [x + 2 * y + 3 * z == 1],
        [y + 2 * z + 3 * x == 1],
    ]
    found = [
        dp.Problem(agents, coupling=coupling)
        .plan(dp.GradientADMM(), epsilon=1.0, delta=1e-6)
        .fingerprint
        for coupling in couplings
    ]
    assert len(set(found)) == len(found)


# -- where users live ------------------------------------------------------------------------------


# -- noise -----------------------------------------------------------------------------------------


def log_likelihood_ratio(z):
    """Of covariance I against any other; chi-square with n (n + 1) / 2 degrees of freedom."""
    S = z.T @ z / len(z)
    return len(z) * (np.trace(S) - np.linalg.slogdet(S)[1] - S.shape[0])


def test_x_has_isotropic_noise_of_the_stated_size_given_everything_before():
    """At an error rate of 1e-6, were seeds drawn anew."""
    given, rounds, users = model(2, 4, 3, wide), 800, 2
    beta, eta, multiplier = 10.0, 0.1, 50.0
    plan = noisy(given, rounds, multiplier, {"penalty": beta, "step": eta})
    result = plan.run(seed=4, iterates=True)
    blocks = plan.algorithm.start_server(plan.program).blocks
    rows = blocks.rows
    inverse = np.linalg.inv(np.eye(4) + eta * beta * rows.A.T @ rows.A)
    assert np.linalg.cond(inverse) > 1.5
    x, lam, noise = np.zeros(4), np.zeros(2), []
    y, _ = blocks.y(x, lam, np.zeros(3))
    for t, iterate in enumerate(result.iterates):
        lam = lam - beta * (rows.A @ x + rows.B @ y - rows.c)
        pull = rows.A.T @ (beta * (rows.B @ y - rows.c) - lam)
        exact = inverse @ (x - eta * (users * given.gradient(t % 2, x) + pull))
        x, y = iterate.last[given.x], iterate.last[given.y]
        entry = result.ledger[f"user{t % 2}"].entries[t // 2]
        assert entry.round == t + 1
        noise.append((x - exact) / (eta * users * multiplier * entry.sensitivity))
    z = np.array(noise)
    limit = stats.chi2.isf(1e-6, 10)
    assert log_likelihood_ratio(z) < limit
    assert np.abs(z.mean(axis=0)).max() < stats.norm.isf(1e-6 / 8) / np.sqrt(rounds)
    # Noise before the map, or noise of one user's step, would be found.
    assert log_likelihood_ratio(z @ inverse) > 4 * limit
    assert log_likelihood_ratio(z / users) > 4 * limit


@pytest.mark.parametrize("users", [1, 2])
def test_neighbors_differ_by_what_the_map_leaves_of_the_sensitivity(users):
    given = model(users)
    beta, eta = 1.5, 0.2
    found = dp.check_sensitivity(noisy(given, 6, 5.0, {"penalty": beta, "step": eta}))
    assert found.passed, str(found)
    assert [a.releases for a in found.agents] == [6 // users] * users
    for agent in found.agents:
        assert 0.99 <= agent.ratio <= 1


@pytest.mark.parametrize("public", PUBLIC)
@pytest.mark.parametrize("parameters", [{"penalty": 0.5}, {"penalty": 200.0, "step": 0.5}], ids=str)
@pytest.mark.parametrize(
    "mechanism", [dp.Gaussian(noise_multiplier=5.0), dp.Laplace(noise_multiplier=5.0)], ids=str
)
def test_record_and_replay_on_neighbors_passes(public, parameters, mechanism):
    given = model(3, 4, 3, wide, PUBLIC[public])
    plan = given.problem.plan(
        dp.GradientADMM(**parameters), mechanism=mechanism, rounds=7, delta=1e-6
    )
    found = dp.check_sensitivity(plan)
    assert found.passed, str(found)
    assert all(0.01 < agent.ratio <= 1 for agent in found.agents)


def l1_lengthening(n):
    """One row of ones: the map lengthens some l1 norms, but no l2 norm."""

    def all_ones(x, y):
        return [cp.sum(x) == y[0]]

    given = model(1, n, 1, all_ones, seed=2)
    # The change of the data reaches every direction of the gradient.
    x, d = given.x, dp.Private(np.zeros(n), name="d", adjacency=dp.Within(0.1))
    agents = [dp.Agent(cp.Minimize(cp.sum_squares(x - d)), name="user"), given.problem.agents[1]]
    return dp.Problem(agents, coupling=given.problem.coupling)


@pytest.mark.parametrize(
    "mechanism", [dp.Gaussian(noise_multiplier=5.0), dp.Laplace(noise_multiplier=5.0)], ids=str
)
def test_the_map_lengthens_the_norm_of_no_mechanism(mechanism):
    plan = l1_lengthening(8).plan(
        dp.GradientADMM(penalty=10.0, step=1.0), mechanism=mechanism, rounds=3, delta=1e-6
    )
    found = dp.check_sensitivity(plan)
    assert found.passed, str(found)


class Lengthening(dp.GradientADMM):
    """Maps gradients by something that is longer than it says."""

    def send(self, server, t, k):
        server, messages = super().send(server, t, k)
        return server, [None if turn is None else longer(turn) for turn in messages]


def longer(turn):
    return replace(turn, inverse=replace(turn.inverse, apply=lambda v: 1.001 * turn.inverse(v)))


def test_a_map_that_lengthens_is_reported():
    plan = model(2).problem.plan(
        Lengthening(penalty=0.5), mechanism=dp.Gaussian(noise_multiplier=5.0), rounds=3, delta=1e-6
    )
    found = dp.check_sensitivity(plan)
    assert not found.passed
    assert "the ledger was charged a sensitivity of" in found.faults[0]


def test_the_server_receives_x_and_hands_out_public_things_only(monkeypatch):
    """Replies are the noisy x; the map, the center and the step do not know the data."""
    given = model(2)
    seen = []
    honest = dp.GradientADMM.receive

    def receive(self, server, t, k, replies):
        seen.append(replies)
        return honest(self, server, t, k, replies)

    monkeypatch.setattr(dp.GradientADMM, "receive", receive)
    plan = noisy(given, 4, multiplier=5.0)
    result = plan.run(seed=2, iterates=True)
    assert [[r is None for r in replies] for replies in seen] == [
        [False, True, True], [True, False, True]] * 2  # fmt: skip
    for replies, iterate in zip(seen, result.iterates, strict=True):
        (reply,) = (r for r in replies if r is not None)
        assert reply.tobytes() == iterate.last[given.x].tobytes()


# -- Lemma 5.3 -------------------------------------------------------------------------------------


class Exact:
    """An oracle without noise."""

    def __init__(self, gradient):
        self._gradient = gradient

    def release(self, query):
        return query.finish(query.through(self._gradient(query.x)), None)


def iteration(algorithm, server, gradient):
    """One round of the package's own parts; x and lam after it."""
    server, messages = algorithm.send(server, 1, 0)
    (turn,) = (m for m in messages if m is not None)
    _, x = algorithm.act(None, Outcome.SOLVED, 1, 0, turn, Exact(gradient))
    after = algorithm.receive(server, 1, 0, [x, None])
    return after.x, after.lam


def grown(rng, public, beta, excess=1.0, usual=False):
    """Squared distance of two inputs after a round over that before, in the norm of the lemma.

    The smoothness of f is `excess` / eta.
    """
    n, length = 3, 4
    A, B, c = rng.normal(size=(2, n)), rng.normal(size=(2, length)), rng.normal(size=2)
    given = model(1, n, length, lambda x, y: [A @ x + B @ y == c], public)
    root = rng.normal(size=(n, n))
    H = root.T @ root
    algorithm = dp.GradientADMM(penalty=beta, step=excess / np.linalg.norm(H, 2))
    program = compile_problem(given.problem)
    server = algorithm.start_server(program)
    first, other = ((2 * rng.normal(size=n), 2 * beta * rng.normal(size=2)) for _ in range(2))
    before = [first, other]
    after = [
        iteration(algorithm, replace(server, x=x, lam=lam), lambda v: H @ v) for x, lam in before
    ]

    def distance(pair):
        dx, dlam = (a - b for a, b in zip(*pair, strict=True))
        if usual:
            return dx @ dx + dlam @ dlam
        return dx @ dx + algorithm.step / beta * np.sum(
            (dlam - beta * server.blocks.rows.A @ dx) ** 2
        )

    return distance(after) / distance(before)


@settings(max_examples=30)
@given(
    st.integers(0, 2**32),
    st.sampled_from(sorted(PUBLIC)),
    st.sampled_from([0.05, 0.5, 1.0, 5.0, 50.0]),
)
def test_a_round_brings_no_two_inputs_apart_in_the_norm_of_lemma_5_3(seed, public, beta):
    assert grown(np.random.default_rng(seed), PUBLIC[public], beta) <= 1 + 1e-6


def test_inputs_come_apart_beyond_the_largest_step_and_in_the_usual_norm():
    rng = np.random.default_rng(0)
    assert max(grown(rng, boxed, 0.05, excess=4.0) for _ in range(30)) > 1.1
    assert max(grown(rng, boxed, 5.0, usual=True) for _ in range(30)) > 1.1


@pytest.mark.parametrize("public", PUBLIC)
def test_a_fixed_point_of_a_round_is_the_optimum(public):
    given = model(1, 4, 3, wide, PUBLIC[public])
    x, _ = given.optimum()
    plan = noiseless(given, penalty=0.8)
    server = plan.algorithm.start_server(plan.program)
    rows = server.blocks.rows
    # At the optimum, the gradient of f is A' lam.
    lam = np.linalg.lstsq(rows.A.T, given.gradient(0, x))[0]
    assert rows.A.T @ lam == pytest.approx(given.gradient(0, x), abs=1e-5)
    after = iteration(plan.algorithm, replace(server, x=x, lam=lam), lambda v: given.gradient(0, v))
    assert after[0] == pytest.approx(x, abs=1e-5)
    assert after[1] == pytest.approx(lam, abs=1e-5)
