"""What one change of the data is: what is refused, in words, and which data are neighbors."""

import math
from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp

import dpcvx as dp
from dpcvx.model.adjacency import ComplexWithin, MirroredWithin


@pytest.mark.parametrize("radius", [0, -1.0, math.nan, math.inf, "0.1", None, [1.0]], ids=str)
def test_radius_is_a_positive_number(radius):
    with pytest.raises(dp.ModelError, match=r"radius.*positive finite.*dp\.Within\(0\.01\)"):
        dp.Within(radius)


@pytest.mark.parametrize(
    "norm", [0, 3, "l1", None, -math.inf, math.nan, "-inf", "Inf", "2"], ids=str
)
def test_norm_is_one_of_four(norm):
    with pytest.raises(dp.ModelError, match=r"norm=.*is unknown.*'entry' \(one entry\), 1, 2 or"):
        dp.Within(1.0, norm)


@pytest.mark.parametrize(
    ("norm", "text"),
    [
        ("entry", "one entry changes by at most 0.5"),
        (1, "the difference has l1 norm at most 0.5"),
        (2.0, "the difference has l2 norm at most 0.5"),
        (np.inf, "the difference has linf norm at most 0.5"),
    ],
)
def test_adjacency_in_words(norm, text):
    assert str(dp.Within(np.float32(0.5), norm)) == text


@pytest.mark.parametrize("made", [dp.Within, dp.Rows])
def test_the_largest_entry_may_be_written_as_in_cvxpy(made):
    as_text, as_number = made(0.5, norm="inf"), made(0.5, norm=np.inf)
    assert as_text == as_number and repr(as_text) == repr(as_number)
    assert as_text.norm == math.inf


def test_an_enormous_radius_is_refused():
    with pytest.raises(dp.ModelError):
        dp.Within(10**400)


BAD_ROWS = {
    "zero": ({"max_norm": 0}, r"max_norm=0\).*positive finite number"),
    "negative": ({"max_norm": -1.0}, "max_norm=-1"),
    "NaN": ({"max_norm": math.nan}, "max_norm=nan"),
    "infinite": ({"max_norm": math.inf}, "max_norm=inf"),
    "enormous": ({"max_norm": 10**400}, "positive finite"),
    "text": ({"max_norm": "1"}, "max_norm='1'"),
    "flag": ({"max_norm": True}, "max_norm=True"),
    "entry": ({"norm": "entry"}, r"dp.Rows\(norm='entry'\) is unknown; write 1, 2 or 'inf'"),
    "third norm": ({"norm": 3}, "norm=3"),
    "no norm": ({"norm": None}, "norm=None"),
    "norm flag": ({"norm": True}, "norm=True"),
    "norm NaN": ({"norm": math.nan}, "norm=nan"),
    "norm list": ({"norm": [2]}, "norm="),
    "norm array": ({"norm": np.array([1, 2])}, "norm="),
    "change": ({"relation": "add"}, "relation='add'.*'replace_one' or 'add_or_remove_one'"),
    "no change": ({"relation": None}, "relation=None"),
    "clip": ({"clip_rows": 1}, "clip_rows=.* must be True or False"),
    "clip text": ({"clip_rows": "no"}, "clip_rows=.* must be True or False"),
    "records": ({"records": 3}, "records=3.* must be text"),
}


@pytest.mark.parametrize("case", BAD_ROWS)
def test_rows_that_bound_nothing_are_refused(case):
    arguments, message = BAD_ROWS[case]
    with pytest.raises(dp.ModelError, match=message):
        dp.Rows(**{"max_norm": 1.0, **arguments})


@pytest.mark.parametrize(
    ("adjacency", "text"),
    [
        (dp.Rows(0.5), "one record (a row of l2 norm at most 0.5) is replaced"),
        (dp.Rows(1, 2.0), "one record (a row of l2 norm at most 1) is replaced"),
        (
            dp.Rows(2.0, 1, "add_or_remove_one", records="patient"),
            "one patient (a row of l1 norm at most 2) is added or removed",
        ),
        (
            dp.Rows(1.0, np.inf, clip_rows=True),
            "one record (a row of linf norm at most 1) is replaced",
        ),
    ],
)
def test_rows_in_words(adjacency, text):
    assert str(adjacency) == text


def test_neighboring_rows_differ_in_one_row_that_is_absent_in_one_of_them_if_added():
    replaced, added = dp.Rows(1.0), dp.Rows(1.0, relation="add_or_remove_one")
    assert (replaced.radius, added.radius) == (2.0, 1.0)
    none, one, other, two = (np.zeros((3, 2)) for _ in range(4))
    one[1], other[1] = [0.6, -0.8], [-0.6, 0.8]
    two[:2] = 0.1
    assert replaced.allows(one, other) and not added.allows(one, other)
    assert added.allows(one, none) and added.allows(none, one)
    assert replaced.allows(one, one) and added.allows(one, one)
    assert not replaced.allows(none, two) and not added.allows(none, two)
    assert replaced.allows(np.zeros(2), np.array([0.0, 1.0]))
    assert not replaced.allows(np.zeros(2), np.ones(2))


@pytest.mark.parametrize("norm", [1, 2, math.inf], ids=str)
@pytest.mark.parametrize("p", [1, 2])
def test_stretch_is_the_largest_norm_of_a_unit_row(norm, p):
    corners = {1: np.eye(4)[:1], 2: np.ones((1, 4)) / 2, math.inf: np.ones((1, 4))}
    largest = max(np.linalg.norm(row, p) for row in [*np.eye(4), *corners[norm]])
    assert float(dp.Rows(1.0, norm).stretch(p, 4)) == pytest.approx(largest)


# -- which data are neighbors, and how far one change moves them


@pytest.mark.parametrize(
    ("norm", "change"), [("entry", [0, 1]), (1, [0.4, -0.6]), (2, [0.6, -0.8]), ("inf", [1, -1])]
)
def test_neighbors_differ_by_the_radius_in_the_norm_and_by_no_more(norm, change):
    origin, change = np.zeros(2), np.array(change)
    for radius in (1.0, 1e-6):
        within = dp.Within(radius, norm)
        assert within.allows(origin, radius * change)
        assert within.allows(change, (1 - radius) * change)  # far from the origin, too
        # Rounding is forgiven: 1e-9 of the radius, and 1e-12.
        assert within.allows(origin, (radius * (1 + 0.9e-9) + 0.9e-12) * change)
        assert not within.allows(origin, (radius * (1 + 1.9e-9) + 1.5e-12) * change)
        assert not within.allows(origin, (radius + 1.9e-12 + 1.1e-9 * radius) * change)
    assert not dp.Within(1.0, "entry").allows(origin, np.full(2, 0.1))


@pytest.mark.parametrize("made", [MirroredWithin, partial(ComplexWithin, hermitian=True)])
def test_an_entry_and_its_mirror_image_are_one(made):
    change = np.zeros((3, 3))
    change[0, 1] = change[1, 0] = 1.0
    for norm, size in (("entry", 1.0), (1, 2.0), (2, math.sqrt(2)), ("inf", 1.0)):
        within = made(size, norm)
        assert within.allows(change, 0 * change) and not within.allows(1.01 * change, 0 * change)
        assert within.mirror == pytest.approx(size)
    change[1, 2] = change[2, 1] = 0.1
    assert not made(1.0).allows(change, 0 * change)


@pytest.mark.parametrize("norm", ["entry", 1, 2, "inf"])
@pytest.mark.parametrize(("real", "pairs"), [(1, 0), (3, 0), (0, 1), (2, 3), (0, 4)])
@pytest.mark.parametrize("p", [1, 2])
def test_reach_is_the_largest_norm_of_the_parts_of_a_complex_change(norm, real, pairs, p):
    """It is attained with equal parts, in one entry or in all; no random change exceeds it."""
    rng, radius = np.random.default_rng(0), 0.5
    within = ComplexWithin(radius, norm)
    equal = np.array([1.0] * real + [1 + 1j] * pairs)
    equal_moduli = equal / np.abs(equal)
    changes = [equal, equal_moduli, *(equal * row for row in np.eye(equal.size))]
    changes += list(
        rng.normal(size=(50, equal.size)) + 1j * rng.normal(size=equal.size) * equal.imag
    )
    sizes = []
    for change in changes:
        if norm == "entry" and np.count_nonzero(change) > 1:
            continue
        change = (
            change * radius / np.linalg.norm(change, np.inf if norm == "entry" else within.norm)
        )
        assert within.allows(change, 0 * change)
        sizes.append(np.linalg.norm([*change.real, *change.imag], p))
    assert within.reach(real, pairs, p) == pytest.approx(max(sizes))


@pytest.mark.parametrize(
    ("adjacency", "text"),
    [
        (MirroredWithin(0.5), "one entry and its mirror image change by at most 0.5"),
        (MirroredWithin(0.5, 1), "l1 norm at most 0.5, with both triangles counted"),
        (ComplexWithin(0.5), "one complex entry changes by at most 0.5 in modulus"),
        (ComplexWithin(0.5, hermitian=True), "one complex entry and its conjugate change by"),
        (ComplexWithin(0.5, 2), "l2 norm at most 0.5, of complex numbers"),
        (ComplexWithin(0.5, 2, True), "of complex numbers, with both triangles counted"),
    ],
)
def test_adjacency_of_matrices_and_complex_numbers_in_words(adjacency, text):
    assert text in str(adjacency)
    assert adjacency.in_full == str(adjacency)


def test_a_person_moves_no_more_rows_than_there_are():
    adjacency = dp.Rows(1.0, max_rows_per_person=3)
    assert [adjacency.moved_rows(rows) for rows in (0, 2, 3, 7)] == [0, 2, 3, 3]
    assert dp.Rows(1.0).moved_rows(7) == 1


@pytest.mark.parametrize("norm", [1, 2, "inf"])
@pytest.mark.parametrize("scale", [1e-200, 0.3, 1.0, 1e200])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_rows_beyond_the_bound_are_too_long_and_no_others(norm, scale, form):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(40, 3)) * rng.integers(0, 2, size=(40, 3))
    rows[0], rows[1], rows[2] = [1.0, -1.0, 1.0], [-1.0, 0.0, 0.0], 0.0
    bound = dp.Rows(scale, norm, clip_rows=True)
    sizes = np.linalg.norm(rows, bound.order, axis=1)
    rows[sizes > 0] /= sizes[sizes > 0, None]
    # At the bound, beyond it by little more than rounding, and far from it.
    factors = np.tile([1.0, 1 + 1.5e-12, 0.5, 3.0], 10)
    long = (factors > 1) & (sizes > 0)
    data = form(scale * (factors[:, None] * rows))
    assert (bound.too_long(data) == long).all()
    clipped = bound.enforced(data)
    clipped = clipped if isinstance(clipped, np.ndarray) else clipped.toarray()
    limit = np.where(long, 1.0, factors)[:, None]
    assert clipped / scale == pytest.approx(limit * rows, rel=1e-12, abs=1e-12)
    refused = dp.Rows(scale, norm).enforced(data)
    assert refused is None
    assert dp.Rows(1.0).too_long(np.zeros((2, 0))).tolist() == [False, False]
