"""Small polyhedra by an active set: answers, and what is said about them, in exact arithmetic."""

from fractions import Fraction
from itertools import combinations

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dpcvx.model.canonical import ConeData, Cones
from dpcvx.solvers import libraries
from dpcvx.solvers.conic import ConicProgram, Outcome
from dpcvx.solvers.libraries import ActiveSet
from tests import sets, spies

ASKED = ActiveSet._asked


def data_of(A, b, equalities=0, P=None):
    """``A x = b`` in the first rows, ``A x <= b`` in the others; P and no slope."""
    A, b = np.atleast_2d(np.asarray(A, dtype=float)), np.asarray(b, dtype=float)
    (m, n), P = A.shape, np.zeros((A.shape[1],) * 2) if P is None else P
    cones = Cones(zero=equalities, nonneg=m - equalities)
    return ConeData(sp.csc_array(P), np.zeros(n), sp.csc_array(A), b, cones, n)


def solved(M, r):
    """``M x = r`` in rational numbers; None if M is singular."""
    rows = [[*row, value] for row, value in zip(M, r, strict=True)]
    for i in range(len(rows)):
        pivot = next((k for k in range(i, len(rows)) if rows[k][i] != 0), None)
        if pivot is None:
            return None
        rows[i], rows[pivot] = rows[pivot], rows[i]
        rows[i] = [a / rows[i][i] for a in rows[i]]
        for k in range(len(rows)):
            if k != i and rows[k][i] != 0:
                rows[k] = [a - rows[k][i] * c for a, c in zip(rows[k], rows[i], strict=True)]
    return [row[-1] for row in rows]


def fractions(values):
    return [Fraction(float(v)) for v in values]


def dot(u, v):
    return sum((a * c for a, c in zip(u, v, strict=True)), Fraction(0))


def exact(data, D, c):
    """The minimizer in rational numbers: the first face whose multipliers have the right signs.

    Faces whose equations depend on each other are left out, so that the equalities must not.
    """
    n, zero = data.n, data.cones.zero
    A, b = [fractions(row) for row in data.A.toarray()], fractions(data.b)
    H, q = [fractions(row) for row in data.P.toarray() + np.diag(D)], fractions(c)
    for j in range(n):  # the sum of floats may be rounded, that of fractions is not
        H[j][j] = sum(fractions([data.P[j, j], D[j]]))
    free = solved(H, [-g for g in q])
    back = [solved(H, row) for row in A]
    for size in range(n - zero + 1):
        for chosen in combinations(range(zero, len(A)), size):
            face = [*range(zero), *chosen]
            gram = [[dot(A[i], back[j]) for j in face] for i in face]
            multipliers = solved(gram, [dot(A[i], free) - b[i] for i in face])
            if multipliers is None or any(value < 0 for value in multipliers[zero:]):
                continue
            pulls = zip(*(back[i] for i in face), strict=True) if face else [()] * n
            x = [z - dot(pull, multipliers) for z, pull in zip(free, pulls, strict=True)]
            if all(dot(row, x) <= value for row, value in zip(A[zero:], b[zero:], strict=True)):
                return x
    return None


def objective(data, D, c, x):
    """In rational numbers."""
    curved = dot(x, [dot(fractions(row), x) for row in data.P.toarray()])
    return (curved + dot(fractions(D), [v * v for v in x])) / 2 + dot(fractions(c), x)


def distance(x, y, D):
    """In the D-norm, from floats to rational numbers."""
    gaps = [a - b for a, b in zip(fractions(x), y, strict=True)]
    return float(dot(fractions(D), [g * g for g in gaps])) ** 0.5


def eighths(rng, size):
    """Numbers whose products and sums are exact."""
    return np.round(8 * rng.normal(size=size)) / 8


def polyhedron(rng, n, zero, general, bounds, curved=False):
    """Around a random point, which lies on some of the boundaries."""
    m = zero + general + bounds
    inside, A, root = eighths(rng, n), eighths(rng, (m, n)), eighths(rng, (n, n))
    for row in A[zero + general :]:
        column = rng.integers(n)
        row[:] = 0
        row[column] = rng.choice([-1, 1]) * 2.0 ** rng.integers(-2, 3)
    room = np.abs(eighths(rng, m)) * (rng.random(m) < 0.7)
    room[:zero] = 0
    return inside, data_of(A, A @ inside + room, zero, root @ root.T if curved else None)


def draw(seed, spread, far, curved=False, n=4):
    """A polyhedron, weights, and a point whose projection is asked for."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, n + 1))
    zero = int(rng.integers(0, 3)) if n > 1 else 0
    general, bounds = rng.integers(0, 4), rng.integers(1, 7)
    inside, data = polyhedron(rng, n, zero, general, bounds, curved)
    D = 10.0 ** rng.uniform(-spread, spread, n)
    return data, D, inside + far * rng.normal(size=n)


seeds = st.integers(0, 10**6)
DISTANCES = [0.1, 3.0, 1e3, 1e6]


@settings(max_examples=150)
@given(seed=seeds, far=st.sampled_from(DISTANCES), spread=st.sampled_from([0.0, 1.0, 3.0]))
def test_projections_are_those_of_exact_arithmetic(seed, far, spread):
    data, D, v = draw(seed, spread, far)
    x = exact(data, D, -D * v)
    found = ActiveSet(data)(D, -D * v)
    assume(x is not None)  # dependent equalities
    assert found is not None
    scale = np.abs(v).max() + np.abs(data.b).max()
    assert distance(found.y, x, D) <= 1e-12 * scale * np.sqrt(D.max())
    # Weights from 1e-3 to 1e3 cost digits: of 3000 such points one leaves more than 1e-12.
    assert found.gap <= 1e-12 * scale**2 and found.residual <= (1e-12 if spread < 3 else 1e-10)


@settings(max_examples=100)
@given(seed=seeds, far=st.sampled_from([0.1, 3.0, 30.0]))
def test_exact_steps_are_those_of_exact_arithmetic(seed, far):
    data, D, v = draw(seed, 1.0, far, curved=True)
    c = -(data.P @ v + D * v)
    x = exact(data, D, c)
    found = ActiveSet(data)(D, c)
    assume(x is not None)
    assert found is not None
    assert found.y == pytest.approx(np.array(x, dtype=float), abs=1e-9)


@settings(max_examples=150)
@given(seed=seeds, far=st.sampled_from(DISTANCES), spread=st.sampled_from([0.0, 3.0, 6.0]))
def test_stated_errors_cover_the_true_ones_over_all_weights_and_distances(seed, far, spread):
    data, D, v = draw(seed, spread, far)
    x = exact(data, D, -D * v)
    assume(x is not None)
    program = ConicProgram(data)
    answer = program.solve(D, -D * v, v)
    assert answer.outcome in (Outcome.SOLVED, Outcome.INACCURATE)
    rounding = 1e-13 * (np.abs(v).max() + np.abs(data.b).max()) * np.sqrt(D.max())
    assert distance(answer.x, x, D) <= answer.error + rounding
    if answer.outcome is Outcome.SOLVED:
        assert answer.error <= sets.accuracy(D, distance(v, x, D)) * (1 + 1e-9)


@pytest.mark.parametrize("light", [1e-3, 1e-6, 1e-9, 1e-12])
def test_a_point_of_the_set_stays_where_it_is_under_weights_of_any_ratio(light):
    program, v = ConicProgram(data_of([[1.0, 1.0]], [4.0])), np.array([-9.0, 3.0])
    D = np.array([light, 1.0])
    answer = program.solve(D, -D * v, v)
    assert distance(answer.x, fractions(v), D) <= answer.error + 1e-15
    assert answer.error <= sets.accuracy(D, 0.0)


@pytest.mark.parametrize("light", [1e-3, 1e-6, 1e-9, 1e-12])
def test_light_components_move_to_their_own_weighted_answer(light):
    data, v = data_of([[1.0, 1.0, 1.0]], [-17.0]), np.array([0.0, 5.0, -9.0])
    D = np.array([1.0, light, light / 3])
    answer = ConicProgram(data).solve(D, -D * v, v)
    assert distance(answer.x, exact(data, D, -D * v), D) <= answer.error + 1e-15


@settings(max_examples=25)
@given(seed=seeds, n=st.integers(5, 40))
def test_larger_polyhedra_agree_with_the_interior_point(seed, n):
    rng = np.random.default_rng(seed)
    inside, data = polyhedron(rng, n, n // 5, n // 2, 2 * n)
    D, v = 10.0 ** rng.uniform(-1, 1, n), inside + 3 * rng.normal(size=n)
    one, other = ConicProgram(data), ConicProgram(data)
    other._active_set = None
    a, b = one.solve(D, -D * v, v), other.solve(D, -D * v, v)
    assert a.outcome is b.outcome is Outcome.SOLVED
    assert np.linalg.norm(np.sqrt(D) * (a.x - b.x)) <= a.error + b.error + 1e-12
    assert a.x == pytest.approx(b.x, abs=1e-4)
    assert one._violated(data.b - data.A @ a.x) <= 1e-11


def asked(monkeypatch):
    """The answers of the active-set method, in order."""
    found, call = [], ActiveSet.__call__

    def spy(self, *given):
        found.append(call(self, *given))
        return found[-1]

    monkeypatch.setattr(ActiveSet, "__call__", spy)
    return found


BOX = data_of([[2.0], [1.0], [-4.0], [-1.0]], [1.0, 1.0, 1.0, 1.0])


@pytest.mark.parametrize(
    ("v", "expected"), [(3.0, 0.5), (-3.0, -0.25), (0.1, 0.1), (0.5, 0.5), (-0.25, -0.25)]
)
def test_of_several_bounds_on_one_component_the_tightest_count(v, expected):
    found = ActiveSet(BOX)(np.ones(1), np.array([-v]))
    assert found.y.tolist() == [expected]
    assert found.gap == found.residual == 0


@pytest.mark.parametrize("v", [3.0, -3.0])
def test_an_equality_of_one_entry_holds_from_both_sides(v):
    data = data_of([[2.0, 0.0], [0.0, 1.0]], [1.0, 9.0], equalities=1)
    found = ActiveSet(data)(np.ones(2), np.array([-v, -v]))
    assert found.y == pytest.approx([0.5, v])


def test_the_solver_is_told_which_rows_are_equalities(monkeypatch):
    told = []

    class Model(libraries.daqp.Model):
        def setup(self, *given):
            told.append(given[5].tolist())
            return super().setup(*given)

        def update(self, *, f, sense):
            told.append(sense.tolist())
            return super().update(f=f, sense=sense)

    monkeypatch.setattr(libraries.daqp, "Model", Model)
    data = data_of([[1, 1], [2, 0], [1, -1], [1, 0]], [1, 2, 3, 4], equalities=2)
    ActiveSet(data)(np.ones(2), np.ones(2))
    # After the two components: both equalities, and the inequality that is no bound.
    assert told == 2 * [[0, 0, 5, 5, 0]]


# x0 is at its upper bound and x1 at its lower one; numbers are of size one, so that what is said
# relative to their size is absolute.
CORNER = data_of(
    [[1, 1, 1], [-1, 0, 1], [2, 0, 0], [1, 0, 0], [0, -1, 0], [0, -4, 0], [0, 0, 1], [-1, 0, 0]],
    [0.5, 0, 1, 1, 0.25, 4, 0.75, 0.25],
    equalities=1,
)
PULL = -np.array([1.0, -1.0, 0.2])


def perturbed(monkeypatch, x=(0, 0, 0), multipliers=(0, 0, 0, 0, 0), pull=PULL):
    """What is said of the corner, moved; multipliers are of x, the equality, the inequality."""

    def moved(*given):
        y, found = ASKED(*given)
        return y + np.array(x), found + np.array(multipliers)

    spies.change(monkeypatch, "the answer of DAQP", moved)
    return ActiveSet(CORNER)(np.ones(3), pull)


def test_the_corner_is_found():
    found = ActiveSet(CORNER)(np.ones(3), PULL)
    assert found.y == pytest.approx([0.5, -0.25, 0.25], abs=1e-15)
    assert max(found.gap, found.residual) <= 1e-15


# Each with multipliers that keep the point stationary.
VIOLATIONS = {
    "upper bound": ((1, 0, -1), (-1, 0, 1, 0, 0)),
    "lower bound": ((0, -1, 1), (1, 2, 0, -1, 0)),
    "equality from above": ((0, 0, 1), (1, 1, 0, -1, 0)),
    "equality from below": ((0, 0, -1), (-1, -1, 0, 1, 0)),
}


@pytest.mark.parametrize("name", VIOLATIONS)
@pytest.mark.parametrize("t", [1e-9, 1e-4, 0.1])
def test_a_violated_constraint_shows_in_the_residual(monkeypatch, name, t):
    x, multipliers = VIOLATIONS[name]
    found = perturbed(monkeypatch, t * np.array(x), t * np.array(multipliers))
    assert found.residual == pytest.approx(t, rel=1e-6)


def test_a_violated_inequality_shows_in_the_residual(monkeypatch):
    s = 0.2  # x2 - x0 rises from -0.25 to 0.15
    found = perturbed(monkeypatch, (-s, 0, s), (2 * s, s, 0, -s, 0))
    assert found.residual == pytest.approx(0.15)


@pytest.mark.parametrize("t", [-0.1, -1e-9, 1e-9, 0.1])
@pytest.mark.parametrize("k", range(5))
def test_a_slope_that_is_left_over_shows_in_the_residual(monkeypatch, k, t):
    found = perturbed(monkeypatch, multipliers=t * np.eye(5)[k])
    assert abs(t) / 3 <= found.residual <= 3 * abs(t)


@pytest.mark.parametrize("t", [1e-9, 1e-4, 0.1])
@pytest.mark.parametrize(
    ("k", "sign", "slack"),
    [(0, 1, 0.075), (0, -1, 0.675), (2, 1, 0.425), (4, 1, 0.1)],
    ids=["upper bound", "lower bound", "the only bound", "inequality"],
)
def test_a_multiplier_of_a_constraint_with_slack_shows_in_the_gap(monkeypatch, k, sign, slack, t):
    # At (0.425, -0.25, 0.325), where the lower bound of x1 and the equality hold.
    pull = -np.array([0.3, -1.0, 0.2])
    found = perturbed(monkeypatch, multipliers=sign * t * np.eye(5)[k], pull=pull)
    # The slope that is left over may add its square.
    assert slack * t * (1 - 1e-6) <= found.gap <= slack * t * (1 + 1e-6) + 3 * t**2


@pytest.mark.parametrize("k", [2, 4], ids=["bound", "inequality"])
def test_a_multiplier_of_the_wrong_sign_leaves_no_small_gap(monkeypatch, k):
    assert perturbed(monkeypatch, multipliers=-1e-6 * np.eye(5)[k]).gap > 1


@settings(max_examples=100)
@given(seed=seeds)
def test_the_gap_bounds_the_distance_from_the_optimum(seed):
    """For any multipliers and a point of the set that is stationary with them."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 4))
    general = 2 if n > 1 else 0
    A, x, side = eighths(rng, (general, n)), eighths(rng, n), rng.choice([-1.0, 1.0], size=n)
    A[A == 0] = 1.0  # rows of one entry are bounds
    pull = np.abs(eighths(rng, n + general)) * (rng.random(n + general) < 0.5)
    slack = np.abs(eighths(rng, n + general)) * (rng.random(n + general) < 0.7)
    slack[n : n + 1] = 0  # the equality
    b = np.concatenate([A @ x + slack[n:], side * x + slack[:n]])
    multipliers = np.concatenate([side * pull[:n], pull[n:]])
    data = data_of(np.vstack([A, np.diag(side)]), b, min(general, 1))
    D, c = np.ones(n), -x - multipliers[:n] - multipliers[n:] @ A
    with pytest.MonkeyPatch.context() as patch:
        spies.change(patch, "the answer of DAQP", lambda *given: (x.copy(), multipliers))
        found = ActiveSet(data)(D, c)
    assert found.gap == pytest.approx(pull @ slack, abs=1e-14) and found.residual <= 1e-14
    best = exact(data, D, c)
    assume(best is not None)
    excess = objective(data, D, c, fractions(x)) - objective(data, D, c, best)
    assert 0 <= excess <= found.gap + 1e-13


# Within the set, in one light component: the slope that is left over is small, the way is not.
@pytest.mark.parametrize("light", [1e-2, 1e-4, 1e-6, 1e-8, 1e-10])
@pytest.mark.parametrize("off", [1e-6, 1e-3, 0.5, 5.0])
def test_an_answer_that_is_off_is_refused_or_states_by_how_much(monkeypatch, light, off):
    program, v = ConicProgram(data_of([[1.0, 1.0]], [4.0])), np.array([2.0, -9.0])
    D = np.array([1.0, light])

    def moved(*given):
        y, multipliers = ASKED(*given)
        return y + off * np.array([0.0, 1.0]), multipliers

    spies.change(monkeypatch, "the answer of DAQP", moved)
    answer = program.solve(D, -D * v, v)
    # What the required residual lets pass where the weight is one.
    assert distance(answer.x, fractions(v), D) <= answer.error + 1e-8


SQUARE = [[1, 0], [-1, 0], [0, 1], [0, -1]]
EMPTY = {
    "crossed bounds": ([[1, 0], [-2, 0], [1, 1]], [1, -4, 9], 0),
    "a bound against an equality": ([[1, 0], [1, 0]], [3, 2], 1),
    "two equalities": ([[1, 1], [1, 1]], [1, 2], 2),
    "two inequalities": ([[1, 1], [-1, -1]], [1, -2], 0),
    "bounds against an equality": ([[1, 1], [-1, 0], [0, -1]], [-1, 0, 0], 1),
    "bounds against an inequality": ([[-1, -1], *SQUARE], [-3, 1, 1, 1, 1], 0),
    "a vanishing inequality": ([[0, 0], [1, 1]], [-1, 1], 0),
    "a vanishing equality": ([[0, 0], [1, 1]], [1, 1], 1),
}


@pytest.mark.parametrize("name", EMPTY)
@pytest.mark.parametrize("far", [0.0, 1.0, 1e6])
def test_an_empty_polyhedron_has_no_answer(name, far):
    D, v = np.array([1.0, 2.0]), far * np.array([1.0, -0.3])
    assert ActiveSet(data_of(*EMPTY[name]))(D, -D * v) is None


POINTS = {
    "bounds": ([[1, 0], [-1, 0], [0, 1]], [2, -2, 1], 0, [2, 1]),
    "inequalities": ([[1, 1], [-1, -1], [1, -1], [-1, 1]], [3, -3, 1, -1], 0, [2, 1]),
    "equalities": ([[1, 1], [1, -1], [3, 1]], [3, 1, 7], 3, [2, 1]),
    "bounds and an equality": ([[1, 1], [1, 0], [0, 1]], [3, 2, 1], 1, [2, 1]),
}


@pytest.mark.parametrize("name", POINTS)
def test_a_polyhedron_that_is_one_point_or_a_corner_is_not_empty(name):
    *rows, expected = POINTS[name]
    found = ActiveSet(data_of(*rows))(np.array([1.0, 2.0]), np.array([-5.0, -9.0]))
    assert found.y == pytest.approx(expected, abs=1e-13)
    assert max(found.gap, found.residual) <= 1e-11


def test_many_rows_through_one_corner_leave_it_there():
    angles = np.linspace(0, np.pi / 2, 9)
    rows = np.column_stack([np.cos(angles), np.sin(angles)])
    corner = np.array([0.5, -0.25])
    for v in ([3.0, 2.0], [3.0, -0.25], [0.5, 9.0], [1e5, 1e5]):
        D, v = np.array([1.0, 4.0]), np.array(v)
        found = ActiveSet(data_of(rows, rows @ corner))(D, -D * v)
        assert found.y == pytest.approx(corner, abs=1e-10)
        assert found.residual <= 1e-12


@settings(max_examples=80)
@given(seed=seeds)
def test_rows_that_say_nothing_new_change_nothing(seed):
    data, D, v = draw(seed, 1.0, 3.0)
    rng = np.random.default_rng(seed)
    A, b, zero = data.A.toarray(), data.b, data.cones.zero
    # Copies and multiples of rows, looser ones, and equalities once more as inequalities.
    again = rng.integers(0, len(b), size=5)
    factor = 2.0 ** rng.integers(-3, 4, size=5)
    more = factor[:, None] * A[again]
    loose = factor * b[again] + rng.integers(0, 2, size=5)
    order = np.concatenate([np.arange(zero), zero + rng.permutation(len(b) - zero + 5)])
    longer = data_of(np.vstack([A, more])[order], np.concatenate([b, loose])[order], zero)
    plain, found = (ActiveSet(each)(D, -D * v) for each in (data, longer))
    assert (plain is None) == (found is None)
    if plain is not None:
        assert found.y == pytest.approx(plain.y, abs=1e-11)
        assert max(found.gap, found.residual) <= 1e-11


def same(one, other):
    """Whether two answers are equal bit for bit."""
    if one is None or other is None:
        return one is other
    numbers = (one.value, one.gap, one.residual) == (other.value, other.gap, other.residual)
    return numbers and one.y.tobytes() == other.y.tobytes()


@settings(max_examples=80)
@given(
    seed=seeds,
    order=st.lists(st.integers(0, 7), min_size=8, max_size=16),
    n=st.sampled_from([4, 40]),
    curved=st.booleans(),
)
def test_answers_do_not_depend_on_earlier_calls(seed, order, n, curved):
    data, one, v = draw(seed, 1.0, 3.0, curved, n)
    rng = np.random.default_rng(seed)
    other = 10.0 ** rng.uniform(-2, 2, data.n)
    calls = []
    for k in range(8):  # the same weights several times in a row, which keeps the solver's factors
        D = other if k >= 5 else one
        calls.append((D, -D * (v + 10.0 ** (k - 1) * rng.normal(size=data.n))))
    used = ActiveSet(data)
    first = [used(*call) for call in calls]
    for k in order:
        assert same(used(*calls[k]), first[k])
        assert same(ActiveSet(data)(*calls[k]), first[k])


def test_an_empty_or_failed_solve_leaves_the_next_one_alone(monkeypatch):
    flags = []

    class Model(libraries.daqp.Model):
        def solve(self):
            x, value, flag, info = super().solve()
            return x, value, flags.pop() if flags else flag, info

    monkeypatch.setattr(libraries.daqp, "Model", Model)
    solver, D = ActiveSet(CORNER), np.ones(3)
    before = solver(D, PULL)
    flags.append(-4)
    assert solver(D, PULL) is None
    assert same(solver(D, PULL), before)


@settings(max_examples=40)
@given(seed=seeds, curved=st.booleans())
def test_the_arguments_are_left_alone(seed, curved):
    data, D, v = draw(seed, 1.0, 3.0, curved)
    data.A.data[::3] = 0.0  # entries that are stored all the same
    c = -D * v
    arrays = [D, c, data.b, data.q, *(M for S in (data.A, data.P) for M in (S.data, S.indices))]
    kept = [array.copy() for array in arrays]
    solver = ActiveSet(data)
    for _ in range(3):
        solver(D, c)
    assert all(a.tobytes() == b.tobytes() for a, b in zip(arrays, kept, strict=True))


def test_answers_are_not_overwritten_by_the_next():
    solver = ActiveSet(CORNER)
    first = solver(np.ones(3), PULL).y
    kept = first.copy()
    solver(np.ones(3), -PULL)
    assert np.array_equal(first, kept)


M = sets.MATRIX


def rows(x, unit=1.0):
    """An empty one would go to the active set too."""
    return [M @ x <= 0.1 * unit, cp.sum(x) == 0.2 * unit, x >= -2 * unit, x <= 3 * unit]


@pytest.mark.parametrize("unit", 10.0 ** np.arange(-6, 9))
def test_units_keep_their_digits(unit):
    x, D = cp.Variable(4), np.array([1.0, 2.0, 0.5, 3.0])
    P, plain = sets.of(*rows(x, unit)), sets.of(*rows(x))
    for seed in range(5):
        v = 2 * np.random.default_rng(seed).normal(size=4)
        found = P(unit * v, D)
        assert found.outcome is Outcome.SOLVED
        assert found.x / unit == pytest.approx(plain(v, D).x, abs=1e-12)
        assert found.error <= 1e-6 * unit


@pytest.mark.parametrize("unit", [1e-6, 1e-3, 1.0, 1e3, 1e6])
@pytest.mark.parametrize("far", [0.1, 3.0, 1e3, 1e6])
def test_no_usual_polyhedron_needs_the_interior_point(monkeypatch, unit, far):
    P = sets.of(*rows(cp.Variable(4), unit))
    spies.change(monkeypatch, "the answer of a conic solver", None)
    for seed in range(10):
        rng = np.random.default_rng(seed)
        v, D = unit * far * rng.normal(size=4), 10.0 ** rng.uniform(-2, 2, 4)
        found = P(v, D)
        assert found.outcome is Outcome.SOLVED
        assert P.violation(found.x) <= 1e-12 * np.abs(v).max() + 1e-13 * unit


def wide(n):
    return data_of(np.vstack([np.ones(n), *np.eye(n)]), np.ones(n + 1))


@pytest.mark.parametrize(
    ("data", "used"),
    [
        (wide(200), True),
        (wide(201), False),
        (data_of(np.zeros((0, 3)), []), False),
        (sets.compiled(sets.CONIC["polyhedron"].agent()), True),
        (sets.compiled(sets.CONIC["SOC"].agent()), False),
        (sets.compiled(sets.CONIC["l1 ball"].agent()), False),
    ],
    ids=["200", "201", "no rows", "polyhedron", "cone", "auxiliary columns"],
)
def test_the_active_set_is_for_small_polyhedra_without_auxiliary_columns(monkeypatch, data, used):
    found = asked(monkeypatch)
    n = data.n
    answer = ConicProgram(data).solve(np.ones(n), -np.ones(n), np.ones(n))
    assert answer.outcome is Outcome.SOLVED
    assert len(found) == used


def test_without_curvature_everywhere_the_interior_point_solves(monkeypatch):
    found = asked(monkeypatch)
    data = data_of([[1.0, 1.0], [-1.0, 0.0], [0.0, -1.0]], [1.0, 0.0, 0.0])
    answer = ConicProgram(data).solve(np.array([1.0, 0.0]), np.array([0.0, -1.0]), np.zeros(2))
    assert found == [None]
    assert answer.x == pytest.approx([0, 1], abs=1e-5)


def impossible(x):
    """No two rows contradict each other."""
    return [M @ x <= 0.1, cp.sum(x) == 0.2, x >= 1, x[0] - x[3] <= -2]


def test_a_projector_says_that_a_polyhedron_is_empty(monkeypatch):
    found = asked(monkeypatch)
    projection = sets.of(*impossible(cp.Variable(4)))(np.ones(4), np.ones(4))
    assert found == [None]
    assert projection.x is None
    assert projection.outcome is Outcome.INFEASIBLE


def failed(*given):
    return None


def nowhere(*given):
    y, multipliers = ASKED(*given)
    return np.full_like(y, np.nan), multipliers


def outside(*given):
    y, multipliers = ASKED(*given)
    return y + 1e-3, multipliers


def unsigned(*given):
    y, multipliers = ASKED(*given)
    return y, -multipliers


@pytest.mark.parametrize("flawed", [failed, nowhere, outside, unsigned])
def test_where_the_active_set_fails_the_interior_point_gives_the_same_answer(monkeypatch, flawed):
    P = sets.of(*rows(cp.Variable(4)))
    calls = []
    for seed in range(5):
        r = np.random.default_rng(seed)
        calls.append((r.normal(size=4) * 2, 10.0 ** r.uniform(-1, 1, 4)))
    exact = [P(*call) for call in calls]
    count = []
    spies.change(monkeypatch, "the answer of DAQP", lambda *a: (count.append(1), flawed(*a))[1])
    for call, expected in zip(calls, exact, strict=True):
        found = P(*call)
        assert found.outcome is Outcome.SOLVED
        assert found.x == pytest.approx(expected.x, abs=1e-7)
    assert len(count) == 5


def test_a_point_that_is_no_number_has_no_answer():
    P = sets.of(*rows(cp.Variable(4)))
    found = P(np.array([np.nan, 1.0, 1.0, 1.0]), np.ones(4))
    assert (found.x, found.outcome) == (None, Outcome.FAILED)
