"""Losses of records whose domain ends, such as cp.log(X @ w): bounds follow from declared ones."""

import functools
import math

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp
from dpcvx.algorithms.program import compile_problem
from dpcvx.solvers.closed_forms import LinearBound, bounds_of_products

COUNT, N = 3, 3
# Sums of weights and other constraints that keep X @ w above 0.
SETS = {
    "simplex": lambda w: [cp.sum(w) == 1, w >= 0],
    "limited": lambda w: [cp.sum(w) == 1, w >= 0, w <= 0.6],
    "at least": lambda w: [cp.sum(w) >= 1, w >= 0, w <= 2],
    "box": lambda w: [w >= 0.2, w <= 1],
    "budget": lambda w: [np.array([0.5, 1.0, 2.0]) @ w == 1, w >= 0],
    "groups": lambda w: [cp.sum(w) == 1, w >= 0, w[0] + w[1] <= 0.5],
    "ball": lambda w: [cp.norm(w - 1) <= 0.5],
    "cone": lambda w: [cp.sum(w) >= 1, cp.norm(w) <= 1.5, w >= 0],
}
LOSSES = {
    "log": lambda s, y: -cp.sum(cp.log(s)),
    "log1p": lambda s, y: -cp.sum(cp.log1p(s - 1)),
    "sqrt": lambda s, y: -cp.sum(cp.sqrt(s)),
    "inv_pos": lambda s, y: cp.sum(cp.inv_pos(s)),
    "entr": lambda s, y: -cp.sum(cp.entr(s)),
    "kl_div": lambda s, y: cp.sum(cp.kl_div(y, s)),
    "rel_entr": lambda s, y: cp.sum(cp.rel_entr(y, s)),
    "poisson": lambda s, y: cp.sum(s) - y @ cp.log(s),
}


def private(relation="replace_one", **declared):
    declared = declared or {"bounds": (0.5, 1.5)}
    X = dp.Private(
        shape=(COUNT, N), name="X", adjacency=dp.Rows(3.0, relation=relation), **declared
    )
    y = dp.Private(
        shape=COUNT, name="y", adjacency=dp.Rows(2.0, relation=relation), bounds=(0.5, 2)
    )
    return X, y


def compiled(loss, constraints, **declared):
    w, (X, y) = cp.Variable(N, name="w"), private(**declared)
    agent = dp.Agent(cp.Minimize(LOSSES[loss](X @ w, y)), SETS[constraints](w), name="fund")
    return compile_problem(dp.Problem([agent])).agents[0]


# All losses on one set, and one loss on every set.
PAIRS = [("log", name) for name in SETS] + [(name, "limited") for name in LOSSES if name != "log"]


@functools.cache
def points(constraints, count=8):
    """Vertices and mixtures of the set."""
    rng = np.random.default_rng(0)
    w, c = cp.Variable(N), cp.Parameter(N)
    problem, ends = cp.Problem(cp.Minimize(c @ w), SETS[constraints](w)), []
    for _ in range(count):
        c.value = rng.normal(size=N)
        problem.solve(solver=cp.CLARABEL)
        ends.append(w.value)
    return [*ends, *(rng.dirichlet(np.full(count, 0.3), size=count) @ ends)]


@pytest.mark.parametrize(("loss", "constraints"), PAIRS)
def test_neighbors_move_the_gradient_by_no_more_than_the_bound(loss, constraints):
    local = compiled(loss, constraints)
    known, names = local.sensitivity(), [spec.name for spec in local.form.private]
    rng = np.random.default_rng(0)
    bounds = [known.bound(p).value for p in (1, 2)]
    assert np.isfinite(bounds).all()
    places, largest = points(constraints), np.zeros(2)
    for _ in range(12):
        X, y = rng.choice([0.5, 1.5], (COUNT, N)), rng.choice([0.5, 2.0], COUNT)
        other, label = X.copy(), y.copy()
        other[0], label[0] = rng.choice([0.5, 1.5], N), rng.choice([0.5, 2.0])
        both = [
            local.form.bind([rows.ravel(order="F") if name == "X" else labels for name in names])
            for rows, labels in ((X, y), (other, label))
        ]
        for x in places:
            moved = both[0].gradient(x) - both[1].gradient(x)
            sizes = np.array([np.abs(moved).sum(), np.linalg.norm(moved)])
            largest = np.maximum(largest, sizes)
            assert sizes[1] <= known.near(2, x) * (1 + 1e-7)
    assert (largest <= np.array(bounds) * (1 + 1e-7)).all()
    assert (largest > 0.05 * np.array(bounds)).all()


@pytest.mark.parametrize(
    ("constraints", "declared"),
    [
        ("simplex", {"nonneg": True}),
        ("simplex", {"bounds": (0, 1.5)}),
        ("ball", {"bounds": (-0.5, 1.5)}),
        ("simplex", {"relation": "add_or_remove_one", "bounds": (0.5, 1.5)}),
    ],
)
def test_no_bound_without_a_lower_bound_of_the_argument(constraints, declared):
    assert compiled("log", constraints, **declared).sensitivity().bound(2).value == math.inf


def test_rows_that_are_scaled_down_keep_no_lower_bound():
    w = cp.Variable(N, name="w")
    X = dp.Private(
        shape=(COUNT, N), name="X", adjacency=dp.Rows(1.0, clip_rows=True), bounds=(0.5, 1.5)
    )
    agent = dp.Agent(cp.Maximize(cp.sum(cp.log(X @ w))), SETS["simplex"](w), name="fund")
    known = compile_problem(dp.Problem([agent])).agents[0].sensitivity()
    assert known.bound(2).value == math.inf


def test_rows_on_a_simplex_are_bounded_by_the_least_weight():
    w = cp.Variable(N, name="w")
    X = dp.Private(shape=(COUNT, N), name="X", adjacency=dp.Rows(1.0, 1), simplex=True)
    agent = dp.Agent(cp.Maximize(cp.sum(cp.log(X @ w))), [cp.sum(w) == 1, w >= 0.1], name="mixture")
    known = compile_problem(dp.Problem([agent])).agents[0].sensitivity()
    # A slope of 10 at a row of length 1; rows and slopes have a sign.
    assert known.bound(2).value == pytest.approx(10 * math.sqrt(2), rel=1e-6)


def test_the_bound_on_a_simplex_is_that_of_the_least_entry():
    known = compiled("log", "simplex").sensitivity()
    # Rows of a norm of at most 3 with a slope of at most 1 / 0.5, and a sign.
    assert known.bound(2).value == pytest.approx(math.sqrt(2) * 3 / 0.5, rel=1e-6)


@pytest.mark.parametrize(
    ("declared", "words"),
    [
        ({"nonneg": True}, r"cp\.log is evaluated .* bounds=\(0\.5, 2\).* cp\.sum\(w\) == 1"),
        (
            {"bounds": (0.5, 1.5), "relation": "add_or_remove_one"},
            "absent .* zeros.*replace_one",
        ),
    ],
)
def test_refusals_say_which_bound_to_declare(declared, words):
    w = cp.Variable(N, name="w")
    relation = declared.pop("relation", "replace_one")
    X = dp.Private(
        np.ones((20, N)), name="X", adjacency=dp.Rows(3.0, relation=relation), **declared
    )
    agent = dp.Agent(cp.Maximize(cp.sum(cp.log(X @ w)) / 20), SETS["simplex"](w), name="fund")
    with pytest.raises(dp.PrivacyError, match=words):
        dp.Problem([agent]).plan(epsilon=1.0, delta=1e-6)


def test_a_log_optimal_portfolio_is_close_to_the_optimum():
    rng = np.random.default_rng(0)
    factors = 1 + rng.normal([0.03, 0.01, 0.0], [0.2, 0.1, 0.01], size=(2000, N)).clip(-0.4, 0.4)
    w = cp.Variable(N, name="w")
    X = dp.Private(factors, name="X", adjacency=dp.Rows(2.5), bounds=(0.6, 1.4))
    growth = cp.sum(cp.log(X @ w)) / 2000
    fund = dp.Agent(cp.Maximize(growth), SETS["simplex"](w), name="fund")
    result = dp.Problem([fund]).plan(epsilon=3.0, delta=1e-6).run(seed=0)

    def loss(v):
        return -np.log(factors @ v).mean()

    v = cp.Variable(N)
    cp.Problem(cp.Maximize(cp.sum(cp.log(factors @ v)) / 2000), SETS["simplex"](v)).solve()
    best, even = loss(v.value), loss(np.full(N, 1 / N))
    assert loss(result[w]) - best < 0.3 * (even - best)


def test_bounds_of_products_hold_and_are_attained_on_a_simplex():
    rng = np.random.default_rng(1)
    for _ in range(5):
        n = int(rng.integers(2, 6))
        slope = rng.uniform(0.5, 2, n)
        lower, upper = np.zeros(n), np.full(n, 1.5)
        low = rng.normal(size=(4, n))
        high = low + rng.uniform(0, 1, (4, n)) * (rng.uniform(size=(4, 1)) > 0.5)
        row = LinearBound.around(np.arange(n), slope, 1.0, 1.0, 0.0)
        least, most = bounds_of_products([row], low, high, lower, upper)
        for r in range(4):
            # For nonnegative x the least product has the least coefficients.
            x = cp.Variable(n)
            ends = [lower <= x, x <= upper, slope @ x == 1]
            for c, bound, sign in ((low[r], least[r], 1), (high[r], most[r], -1)):
                value = cp.Problem(cp.Minimize(sign * c @ x), ends).solve(solver=cp.CLARABEL)
                assert sign * bound <= value + 1e-6
                assert sign * bound == pytest.approx(value, abs=1e-5)
