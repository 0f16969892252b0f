"""Exact minimization of separable functions: right, or None."""

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from dpcvx.model.canonical import cone_data
from dpcvx.model.layout import layout_of
from dpcvx.solvers.blocks import separable

N = 4
FREE = (-np.inf, np.inf)


def read(cost, constraints=()):
    """The function in separable form, or None."""
    layout = layout_of([cost, *constraints])
    known = {v.id: v for tree in (cost, *constraints) for v in tree.variables()}
    ordered = [known[piece.variable] for piece in layout.pieces]
    return separable(cone_data(cost, list(constraints), ordered, layout))


def by_bisection(cost, y, box, curvature, slope):
    """The minimizer of a separable function on a box, from cvxpy's subgradients."""
    low, high = np.full(N, -128.0), np.full(N, 128.0)
    for _ in range(45):
        middle = (low + high) / 2
        y.save_value(middle)
        own = cost.grad[y]
        g = curvature * middle + slope + np.ravel(own.toarray() if sp.issparse(own) else own)
        low, high = np.where(g > 0, low, middle), np.where(g > 0, middle, high)
    return np.clip((low + high) / 2, *box)


def agree(cost, y, box, found, rng):
    """For random weights the minimizer is the one by bisection, and no point near it is better."""
    curvature, slope = rng.uniform(0.2, 3.0, N), 3 * rng.normal(size=N)
    ours = found.minimize(curvature, slope)
    assert ours == pytest.approx(by_bisection(cost, y, box, curvature, slope), abs=1e-8)

    def total(at):
        y.save_value(np.clip(at, *box))
        return float(cost.value) + curvature @ y.value**2 / 2 + slope @ y.value

    assert np.array_equal(np.clip(ours, *box), ours)
    best = total(ours)
    for size in (1e-5, 1e-1):
        for direction in (*np.eye(N), *rng.normal(size=(N, N))):
            for sign in (-1, 1):
                assert total(ours + sign * size * direction) >= best - 1e-12 * (1 + abs(best))
    return ours, curvature, slope


W = np.array([0.3, 1.7, 0.0, 2.5])
SHIFT = np.array([0.5, -1.0, 0.0, 0.2])


def plain(**attributes):
    return lambda: cp.Variable(N, name="y", **attributes)


READ = {
    "linear": (plain(), lambda y: (SHIFT @ y, [])),
    "l1": (plain(), lambda y: (0.4 * cp.norm1(y), [])),
    "sum of abs": (plain(), lambda y: (cp.sum(cp.abs(y)), [])),
    "weights per entry": (plain(), lambda y: (W @ cp.abs(y), [])),
    "scaled argument": (plain(), lambda y: (cp.norm1(cp.multiply([1, -2, 0.5, 3], y)), [])),
    "shifted abs": (plain(), lambda y: (cp.norm1(y - SHIFT), [])),
    "pos": (plain(), lambda y: (cp.sum(cp.pos(y)), [])),
    "neg, shifted": (plain(), lambda y: (W @ cp.neg(y - SHIFT), [])),
    "maximum": (plain(), lambda y: (cp.sum(cp.maximum(2 * y - 1, -0.3 * y)), [])),
    "maximum of slopes of one sign": (plain(), lambda y: (cp.sum(cp.maximum(2 * y - 1, y)), [])),
    "quadratic": (plain(), lambda y: (cp.sum_squares(y), [])),
    "weighted squares": (plain(), lambda y: (W @ cp.square(y) + SHIFT @ y, [])),
    "diagonal quad_form": (plain(), lambda y: (cp.quad_form(y, np.diag(W)), [])),
    "elastic net": (plain(), lambda y: (0.3 * cp.norm1(y) + 0.7 * cp.sum_squares(y), [])),
    "box": (plain(), lambda y: (0 * cp.sum(y), [y >= -0.5, y <= SHIFT + 0.8])),
    "box by attributes": (
        plain(bounds=[-0.2, np.array([0.1, np.inf, 0.5, 1.0])]),
        lambda y: (0.1 * cp.norm1(y), []),
    ),
    "half-bounded": (plain(nonneg=True), lambda y: (0.3 * cp.sum(y), [])),
    "bounds with factors": (
        plain(),
        lambda y: (0 * cp.sum(y), [-2 * y <= 1, cp.multiply([2, 1, 2, 2], y) <= 1]),
    ),
    "kink outside the box": (plain(), lambda y: (cp.norm1(y - 2), [y <= 1])),
    "kink on the bound": (plain(nonneg=True), lambda y: (cp.norm1(y), [])),
    "point": (plain(), lambda y: (cp.norm1(y), [y >= 0.3, y <= 0.3])),
    "everything": (
        plain(nonneg=True),
        lambda y: (W @ cp.abs(y - SHIFT) + cp.sum_squares(y) + SHIFT @ y, [y <= 0.6]),
    ),
    "bounded abs": (plain(), lambda y: (0.3 * cp.norm1(y), [cp.abs(y) <= W])),
    "bounded largest entry": (plain(), lambda y: (cp.norm1(y), [cp.norm_inf(y) <= 0.6])),
    "different atoms": (
        plain(),
        lambda y: (cp.norm1(y[:2]) + cp.pos(y[2] - 1) + 3 * cp.abs(y[3]) + cp.sum_squares(y), []),
    ),
}  # fmt: skip
BOXES = {
    "box": (-0.5, SHIFT + 0.8),
    "box by attributes": (-0.2, np.array([0.1, np.inf, 0.5, 1.0])),
    "half-bounded": (0.0, np.inf),
    "bounds with factors": (-0.5, np.array([0.5, 1.0, 0.5, 0.5])),
    "kink outside the box": (-np.inf, 1.0),
    "kink on the bound": (0.0, np.inf),
    "point": (0.3, 0.3),
    "everything": (0.0, 0.6),
    "bounded abs": (-W, W),
    "bounded largest entry": (-0.6, 0.6),
}


@pytest.mark.parametrize("case", READ)
def test_minimizers_are_exact_and_those_of_cvxpy(case):
    variable, model = READ[case]
    y = variable()
    cost, constraints = model(y)
    found, rng = read(cost, constraints), np.random.default_rng(0)
    assert found is not None
    for k in range(4):
        ours, curvature, slope = agree(cost, y, BOXES.get(case, FREE), found, rng)
        if k == 0:
            total = cost + cp.sum(cp.multiply(curvature / 2, cp.square(y))) + slope @ y
            cp.Problem(cp.Minimize(total), constraints).solve(cp.CLARABEL)
            assert y.value == pytest.approx(ours, abs=1e-4)


BALLS = {
    "l1": lambda y: (0.3 * cp.norm1(y), [cp.norm(y) <= 0.7]),
    "of squares": lambda y: (0.3 * cp.norm1(y), [cp.sum_squares(y) <= 0.5]),
    "elastic net": lambda y: (W @ cp.abs(y) + cp.sum_squares(y), [cp.norm(y) <= 0.2]),
    "of weights": lambda y: (cp.norm1(y), [cp.norm(cp.multiply([1, 2, -3, 0.5], y)) <= 1]),
    "of some": lambda y: (cp.norm1(y), [cp.norm(y[:3]) <= 0.4, y[3] <= 0.1]),
    "two": lambda y: (SHIFT @ y, [cp.norm(y[:2]) <= 0.4, cp.norm(y[2:]) <= 0.3]),
}


@pytest.mark.parametrize("case", BALLS)
def test_balls_around_0_keep_minimizers_exact(case):
    """As good as cvxpy's to what its solver leaves, never outside, and one row at a time."""
    y, rng = cp.Variable(N, name="y"), np.random.default_rng(3)
    cost, constraints = BALLS[case](y)
    found = read(cost, constraints)
    assert found is not None
    curvature, slopes = rng.uniform(0.2, 3.0, N), 3 * rng.normal(size=(5, N))
    rows = found.minimize(curvature, slopes)
    for ours, slope in zip(rows, slopes, strict=True):
        assert np.array_equal(found.minimize(curvature, slope), ours)
        total = cost + cp.sum(cp.multiply(curvature / 2, cp.square(y))) + slope @ y
        cp.Problem(cp.Minimize(total), constraints).solve(cp.CLARABEL)
        best = total.value
        assert y.value == pytest.approx(ours, abs=1e-4)
        y.save_value(ours)
        assert total.value <= best + 1e-6
        assert all(np.all(c.violation() <= 1e-12) for c in constraints)


NONE = {
    "norm_inf": lambda y: (cp.norm_inf(y), []),
    "max": lambda y: (cp.max(y), []),
    "norm": lambda y: (cp.norm(y), []),
    "huber": lambda y: (cp.sum(cp.huber(y)), []),
    "exp": lambda y: (cp.sum(cp.exp(y)), []),
    "abs of a sum": lambda y: (cp.abs(cp.sum(y)), []),
    "total variation": lambda y: (cp.norm1(cp.diff(y)), []),
    "coupled quadratic": lambda y: (cp.square(cp.sum(y)), []),
    "quad_form": lambda y: (cp.quad_form(y, np.eye(N) + 0.1), []),
    "two kinks in one": lambda y: (cp.sum(cp.maximum(y, -y, 2 * y - 1)), []),
    "two kinks in two": lambda y: (cp.norm1(y) + cp.norm1(y - 1), []),
    "square of pos": lambda y: (cp.sum(cp.square(cp.pos(y))), []),
    "pos of abs": lambda y: (cp.sum(cp.pos(cp.abs(y) - 1)), []),
    "maximum of two columns": lambda y: (cp.maximum(y[0], y[1]) + cp.norm1(y), []),
    "sum bound": lambda y: (cp.norm1(y), [cp.sum(y) <= 1]),
    "equality": lambda y: (cp.norm1(y), [cp.sum(y) == 1]),
    "fixed entry": lambda y: (cp.norm1(y), [y[0] == 1]),
    "bounded l1": lambda y: (cp.norm1(y), [cp.norm1(y) <= 1]),
    "bound of a cost": lambda y: (cp.norm(y), [cp.norm(y) <= 1]),
    "ball around another point": lambda y: (cp.norm1(y), [cp.norm(y - 1) <= 1]),
    "ball in a box": lambda y: (cp.norm1(y), [cp.norm(y) <= 1, y <= 0.5]),
    "ball with kinks elsewhere": lambda y: (cp.norm1(y - 1), [cp.norm(y) <= 1]),
    "ball of sums": lambda y: (cp.norm1(y), [cp.norm(cp.diff(y)) <= 1]),
    "exponential": lambda y: (cp.norm1(y), [cp.exp(y) <= 2]),
}


@pytest.mark.parametrize("case", NONE)
def test_other_functions_are_left_to_the_solver(case):
    assert read(*NONE[case](cp.Variable(N, name="y"))) is None


def test_entries_of_an_agents_own_vector_in_its_own_order():
    y = cp.Variable(6, name="y")
    cost, constraints = cp.norm1(y[[1, 4]] - [1.0, -2.0]), [y[2] <= -3]
    found = read(cost, constraints)
    at = found.minimize(np.ones(3), np.array([-9.0, -9.0, 0.0]))
    # Columns 1, 2 and 4: 9 - 1 to the right of the kink at 1, at most -3, the kink at -2 left by 1.
    assert at == pytest.approx([8.0, -3.0, -1.0])


# Sums of these, most of which are no sums over single columns.
ATOMS = {
    "l1": lambda y, w, s: cp.norm1(cp.multiply(w, y)),
    "abs": lambda y, w, s: w @ cp.abs(y - s),
    "pos": lambda y, w, s: w @ cp.pos(y + s),
    "neg": lambda y, w, s: cp.sum(cp.neg(cp.multiply(s, y))),
    "maximum": lambda y, w, s: w @ cp.maximum(cp.multiply(s, y), y - 1),
    "scaled": lambda y, w, s: cp.sum(cp.maximum(cp.multiply(w, y) + s, cp.multiply(w, y) - s)),
    "nested": lambda y, w, s: cp.sum(cp.pos(cp.maximum(y - s, -1))),
    "nested kinks": lambda y, w, s: cp.sum(cp.maximum(cp.abs(y), s)),
    "squares": lambda y, w, s: w @ cp.square(y),
    "shifted squares": lambda y, w, s: cp.sum_squares(y - s),
    "linear": lambda y, w, s: s @ y + 1,
    "first": lambda y, w, s: cp.abs(y[0] - s[0]),
    "half": lambda y, w, s: cp.norm1(y[:2]) + cp.square(y[3]),
    "pair": lambda y, w, s: cp.abs(y[0] - y[1]),
    "norm_inf": lambda y, w, s: cp.norm_inf(y[1:]),
    "max of one": lambda y, w, s: cp.max(cp.hstack([y[2] - s[2], -2 * y[2]])),
    "huber": lambda y, w, s: cp.huber(y[2]),
    "mixed": lambda y, w, s: 0.1 * cp.square(y[2] - y[3]),
    "tv": lambda y, w, s: cp.tv(y),
}
# With the box they are; None where they are none.
SETS = {
    "upper": (lambda y, w, s: y <= w, lambda w, s: (-np.inf, w)),
    "lower": (lambda y, w, s: y >= s - 5, lambda w, s: (s - 5, np.inf)),
    "factor": (
        lambda y, w, s: cp.multiply(-w - 0.1, y) <= 1,
        lambda w, s: (-1 / (w + 0.1), np.inf),
    ),
    "one": (
        lambda y, w, s: y[1] <= 0.5,
        lambda w, s: (-np.inf, np.where(np.arange(N) == 1, 0.5, np.inf)),
    ),
    "abs": (lambda y, w, s: cp.abs(y) <= w, lambda w, s: (-w, w)),
    "sum": (lambda y, w, s: cp.sum(y) <= 1, None),
    "equal": (lambda y, w, s: y[0] == s[0], None),
}


@settings(max_examples=80)
@given(
    st.lists(st.sampled_from(sorted(ATOMS)), min_size=1, max_size=3),
    st.lists(st.sampled_from(sorted(SETS)), max_size=2, unique=True),
    st.integers(0, 2**32),
)
def test_a_random_sum_is_minimized_exactly_or_not_at_all(atoms, limits, seed):
    rng = np.random.default_rng(seed)
    y = cp.Variable(N, name="y")

    def numbers():
        return np.where(rng.uniform(size=N) < 0.15, 0.0, rng.uniform(0, 2, N)), rng.normal(size=N)

    cost = 0 * cp.sum(y) + sum(ATOMS[name](y, *numbers()) for name in atoms)
    constraints, lower, upper = [], np.full(N, -np.inf), np.full(N, np.inf)
    for name in limits:
        constraint, box = SETS[name]
        given = numbers()
        constraints.append(constraint(y, *given))
        if box is not None:
            low, high = box(*given)
            lower, upper = np.maximum(lower, low), np.minimum(upper, high)
    found = read(cost, constraints)
    separate = all(SETS[name][1] is not None or name == "abs" for name in limits)
    assert found is None or separate
    if found is not None and "abs" not in limits and (lower <= upper).all():
        agree(cost, y, (lower, upper), found, rng)


# Pairs of these are sums over single columns with at most one kink each.
SIMPLE = ("l1", "pos", "maximum"), ("squares", "linear")


@pytest.mark.parametrize("kinked", SIMPLE[0])
@pytest.mark.parametrize("smooth", SIMPLE[1])
def test_random_sums_are_read_where_there_is_nothing_against_it(kinked, smooth):
    rng = np.random.default_rng(0)
    y = cp.Variable(N, name="y")
    w, s = rng.uniform(0.5, 2, N), rng.normal(size=N)
    assert read(ATOMS[kinked](y, w, s) + ATOMS[smooth](y, w, s), [y <= 1]) is not None


@pytest.mark.parametrize(
    "name", ["shifted squares", "nested kinks", "pair", "norm_inf", "huber", "mixed", "tv"]
)
def test_sums_with_other_functions_are_left_to_the_solver(name):
    rng = np.random.default_rng(0)
    y = cp.Variable(N, name="y")
    w, s = rng.uniform(0.5, 2, N), rng.normal(size=N)
    for first in ("l1", "squares", "linear"):
        assert read(ATOMS[first](y, w, s) + ATOMS[name](y, w, s)) is None
