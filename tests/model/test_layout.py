"""Entries that an agent holds, read off its expressions."""

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpcvx.model.layout import gather, layout_of


def held(variable, *trees):
    mask = np.zeros(variable.size, dtype=bool)
    mask[layout_of(trees)[variable.id].entries] = True
    return mask.reshape(variable.shape, order="F")


INDICES = {
    "one entry": (4, np.s_[2]),
    "negative entry": (4, np.s_[-1]),
    "slice": (5, np.s_[1:4]),
    "strided": (6, np.s_[::2]),
    "reversed": (4, np.s_[2::-1]),
    "list": (5, [0, 3]),
    "repeated": (5, [3, 3, 1]),
    "mask": (4, np.array([True, False, False, True])),
    "row": ((3, 4), np.s_[1]),
    "column": ((3, 4), np.s_[:, 2]),
    "block": ((3, 4), np.s_[1:, ::2]),
    "rows by list": ((3, 4), ([0, 2],)),
    "pairs": ((3, 4), ([0, 2], [1, 3])),
    "matrix mask": ((3, 4), np.arange(12).reshape(3, 4) % 5 == 0),
    "3-d entry": ((2, 3, 4), np.s_[1, 0, 2]),
    "3-d slab": ((2, 3, 4), np.s_[:, 1, :]),
    "3-d box": ((2, 3, 4), np.s_[0, 1:, ::2]),
}


@pytest.mark.parametrize("case", INDICES)
def test_indexing_reaches_what_numpy_reaches(case):
    shape, key = INDICES[case]
    key = tuple(key) if isinstance(key, tuple) else key
    x = cp.Variable(shape)
    expected = np.zeros(x.shape, dtype=bool)
    expected[key] = True
    assert (held(x, cp.sum(x[key])) == expected).all()


@given(st.lists(st.integers(0, 6), min_size=1), st.slices(7))
def test_reaches_add_up_over_trees(entries, part):
    x = cp.Variable(7)
    expected = np.zeros(7, dtype=bool)
    expected[entries] = True
    expected[part] = True
    assert (held(x, cp.sum(x[entries]), cp.sum(x[part]) >= 0) == expected).all()


def test_nested_indexing_reaches_its_entries_only():
    x = cp.Variable(6)
    assert np.flatnonzero(held(x, x[1:5][1:3][0])).tolist() == [2]


def test_whole_variable_wins_over_its_entries():
    x = cp.Variable(4)
    assert held(x, x[0], cp.sum(x)).all()
    assert held(x, cp.sum(x), x[0]).all()


def test_index_of_an_expression_holds_the_expressions_entries():
    x = cp.Variable(4)
    assert held(x, (2 * x)[1]).all()


@pytest.mark.parametrize("attribute", ["symmetric", "PSD", "NSD"])
def test_matrices_with_tied_entries_are_held_whole(attribute):
    X = cp.Variable((3, 3), **{attribute: True})
    assert held(X, X[0, 1]).all()


@pytest.mark.parametrize("attribute", ["nonneg", "nonpos", "pos", "neg"])
def test_signed_variables_are_held_in_part(attribute):
    x = cp.Variable(3, **{attribute: True})
    assert held(x, x[1]).tolist() == [False, True, False]


def test_constraints_reach_their_entries():
    x, X = cp.Variable(4), cp.Variable((3, 3))
    layout = layout_of([cp.SOC(x[0], x[2:]), X[:2, :2] >> 0])
    assert layout[x.id].entries.tolist() == [0, 2, 3]
    assert layout[X.id].entries.tolist() == [0, 1, 3, 4]


def test_pieces_follow_the_order_of_appearance():
    x, y, s = cp.Variable(3), cp.Variable((2, 2)), cp.Variable()
    layout = layout_of([cp.Minimize(cp.sum(y[0]) + s), x[1:] >= 0])
    assert [p.variable for p in layout.pieces] == [y.id, s.id, x.id]
    assert [(p.offset, p.stop) for p in layout.pieces] == [(0, 2), (2, 3), (3, 5)]
    assert [p.full for p in layout.pieces] == [False, True, False]
    assert [p.size for p in layout.pieces] == [4, 1, 3]
    assert layout.size == 5


def test_no_variables_give_an_empty_layout():
    layout = layout_of([cp.Minimize(cp.Constant(1.0))])
    assert layout.pieces == () and layout.size == 0 and layout.labels() == []
    assert gather(layout, {}).shape == (0,)


def test_unknown_variable_is_a_key_error():
    with pytest.raises(KeyError):
        layout_of([cp.Variable()])[-1]


def test_labels_name_every_component():
    s, x = cp.Variable(name="s"), cp.Variable(4, name="x")
    X, T = cp.Variable((2, 3), name="X"), cp.Variable((2, 2, 2), name="T")
    layout = layout_of([s + x[1] + x[3], cp.sum(X[:, 1:]), cp.sum(T[1, :, 0])])
    assert layout.labels() == [
        *["s", "x[1]", "x[3]"],
        *["X[0,1]", "X[1,1]", "X[0,2]", "X[1,2]"],
        *["T[1,0,0]", "T[1,1,0]"],
    ]


def test_gather_collects_column_major():
    s, X = cp.Variable(), cp.Variable((2, 3))
    layout = layout_of([cp.sum(X[:, 1:]) + s])
    values = {X.id: np.arange(6.0).reshape(2, 3), s.id: np.array(9.0)}
    assert gather(layout, values).tolist() == [1.0, 4.0, 2.0, 5.0, 9.0]
