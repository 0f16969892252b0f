"""What one change of the data is: what is refused, in words, and which data are neighbors."""

import math

import numpy as np
import pytest

import dpcvx as dp


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
