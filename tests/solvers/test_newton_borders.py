"""Newton's method on sets with long rows: a fuller factor, or a border of it."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp

from dpcvx.model.canonical import ConeData, Cones
from dpcvx.solvers.cones import ConeTest
from dpcvx.solvers.conic import ConicProgram, Outcome
from dpcvx.solvers.newton import PLAIN, Newton, newton_for
from dpcvx.solvers.newton_layout import _layout_of, layout_of
from tests.benchmarks.speed.newton import hours
from tests.kernels import KERNELS


def interior(data):
    """The same program without Newton's method."""
    program = ConicProgram(data)
    program._newton = None
    return program


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("equal", [False, True])
@pytest.mark.parametrize("total", [False, True])
def test_steps_with_a_row_an_hour_end_where_the_interior_point_ends(kernel, equal, total):
    data, inside = hours(10, equal, total)
    ours, theirs, rng = ConicProgram(data, kernel), interior(data), np.random.default_rng(1)
    assert ours._newton is not None
    answered = 0
    for scale in (0.1, 0.3, 1.0):
        D, v = rng.uniform(1, 2, data.n), inside + scale * rng.normal(size=data.n)
        found, exact = ours.solve(D, None, v), theirs.solve(D, None, v)
        assert found.outcome is Outcome.SOLVED
        assert found.x == pytest.approx(exact.x, abs=1e-6)
        assert ConeTest(data.cones)(data.b - data.A @ found.x) <= 1e-8
        answered += ours._newton(D, v) is not None
    assert answered == 3 or (total and not equal)  # a total next to what hours ask leaves no room


@pytest.mark.parametrize("equal", [False, True])
def test_a_border_and_a_fuller_factor_give_the_same_answers(equal):
    data, inside = hours(10, equal, count=12)
    plain, bordered = (_layout_of(data, side) for side in (False, True))
    assert plain is not None and not plain.long.size
    assert bordered is not None and bordered.long.size == 12
    assert bordered.equal.sum() == 12 * equal
    one, other = Newton(plain, PLAIN, 45), Newton(bordered, PLAIN, 45)
    rng = np.random.default_rng(2)
    for scale in (0.1, 1.0, 3.0):  # from far away, augmented Lagrangians end it
        D, v = rng.uniform(1, 2, data.n), inside + scale * rng.normal(size=data.n)
        first, second = one(D, v), other(D, v)
        assert first is not None and second is not None
        assert first.x == pytest.approx(second.x, abs=1e-9 * max(1, scale))


def test_where_long_rows_go_depends_on_what_is_predicted():
    few, many = layout_of(hours(10, False)[0]), layout_of(hours(10, False, True)[0])
    assert few is not None and few.extra > 0 and not few.long.size
    assert many is not None and many.long.size == 25
    # A border is one of numpy's whatever is installed, so that plans name no kernel for it.
    assert not ConicProgram(hours(10, False, True)[0]).by_newton
    assert ConicProgram(hours(10, False)[0]).by_newton


def test_answers_depend_on_nothing_but_the_arguments():
    data, inside = hours(10, True, True)
    rng = np.random.default_rng(3)
    points = inside + rng.normal(size=(4, data.n))
    weights = rng.uniform(1, 2, size=(4, data.n))
    there, back = ConicProgram(data), ConicProgram(data)
    first = [there.solve(D, None, v).x for D, v in zip(weights, points, strict=True)]
    again = [back.solve(D, None, v).x for D, v in zip(weights[::-1], points[::-1], strict=True)]
    assert all(np.array_equal(x, y) for x, y in zip(first, again[::-1], strict=True))


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("equalities", [0, 5])
def test_long_and_dense_rows_of_any_size_end_where_the_interior_point_ends(scale, equalities):
    rng, n, m = np.random.default_rng(4), 250, 20
    # Rows of sizes that differ by 1e6, one of them twice.
    sizes = 10.0 ** rng.uniform(-3, 3, size=(m, 1))
    A = sizes * rng.normal(size=(m, n))
    A[-1] = A[-2]
    inside = scale * rng.uniform(0.3, 0.7, size=n)
    room = np.concatenate([np.zeros(equalities), scale * sizes[equalities:, 0]])
    box = sp.eye_array(n)
    whole = sp.csc_array(sp.vstack([sp.csr_array(A), box, -box]))
    b = np.concatenate([A @ inside + room, np.full(n, scale), np.zeros(n)])
    cones = Cones(zero=equalities, nonneg=b.size - equalities)
    data = ConeData(sp.csc_array((n, n)), np.zeros(n), whole, b, cones, n)
    ours, theirs, D = ConicProgram(data), interior(data), rng.uniform(1, 2, n)
    assert ours._newton is not None
    answered = 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for far in (0.01, 0.1, 1.0):
            v = inside + far * scale * rng.normal(size=n)
            found, exact = ours.solve(D, None, v), theirs.solve(D, None, v)
            assert found.x == pytest.approx(exact.x, abs=1e-6 * scale)
            answered += ours._newton(D, v) is not None
    assert answered >= 1  # others lie far away


def test_long_equalities_that_contradict_each_other_have_no_answer():
    n = 240
    rows = sp.csc_array(sp.vstack([np.ones((2, n)), sp.eye_array(n)]))
    cones = Cones(zero=2, nonneg=n)
    data = ConeData(
        sp.csc_array((n, n)), np.zeros(n), rows, np.array([1.0, 2.0, *[9.0] * n]), cones, n
    )
    layout = layout_of(data)
    method = None if layout is None else newton_for(layout, PLAIN)
    assert method is None or method(np.ones(n), np.zeros(n)) is None
    assert ConicProgram(data).solve(np.ones(n), None, np.zeros(n)).outcome is Outcome.INFEASIBLE
