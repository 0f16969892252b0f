"""Expressions over the entries that an agent holds: the same values, at the price of these."""

import tracemalloc

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpcvx.model.canonical import cone_data, narrowed
from dpcvx.model.layout import layout_of

X = cp.Variable((4, 5), name="X")
y = cp.Variable(6, name="y")
PICKS = [
    lambda: X[1, 2],
    lambda: X[1:3, 2],
    lambda: X[2, ::-2],
    lambda: X[[0, 3, 0], [1, 4, 1]],
    lambda: X.T[[4, 1]][:, [3, 0]],
    lambda: X[X.value > 0],
    lambda: cp.reshape(X, (2, 10), order="C")[1, 3:7],
    lambda: cp.reshape(X[:2, 1:3], (4,), order="F")[[3, 1]],
    lambda: y[2:5],
    lambda: y[[5, 0, 5]],
    lambda: y[-1],
]


@settings(max_examples=100)
@given(seed=st.integers(0, 10**6), chosen=st.lists(st.sampled_from(PICKS), min_size=1, max_size=5))
def test_values_are_those_of_the_expression_as_it_was_written(seed, chosen):
    rng = np.random.default_rng(seed)
    X.value, y.value = rng.normal(size=X.shape), rng.normal(size=y.shape)
    terms = [pick() for pick in chosen]
    tree = sum(cp.sum_squares(3 * term - 1) for term in terms) + cp.max(cp.abs(terms[0]))
    layout = layout_of([tree])
    whole = {v.id: v for v in tree.variables()}
    variables = [whole[piece.variable] for piece in layout.pieces]
    (small,), held, its_layout = narrowed([tree], variables, layout)
    for piece, part in zip(layout.pieces, held, strict=True):
        part.value = np.ravel(whole[piece.variable].value, order="F")[piece.entries]
    assert small.value == tree.value
    assert small.shape == tree.shape
    assert [v.id for v in held] == [piece.variable for piece in its_layout.pieces]
    assert its_layout.size == layout.size
    assert set(small.variables()) == set(held)


def test_constants_stay_and_a_tree_of_whole_variables_stays_as_it_is():
    term, constant = y[:2] + 1, cp.Constant(np.ones(2))
    tree = cp.sum(cp.square(term)) + cp.sum(cp.multiply(constant, term))
    (small,), held, _ = narrowed([tree], [y], layout_of([tree]))
    first, second = (arg.args[0] for arg in small.args)
    assert first.args[0].args[0] is second.args[1].args[0] is held[0]
    assert second.args[0] is constant
    full = cp.sum(y)
    assert narrowed([full], [y], layout_of([full]))[0] == [full]


@pytest.mark.parametrize("attribute", [{"nonneg": True}, {"bounds": [np.zeros(6), np.ones(6)]}])
def test_attributes_of_the_entries_that_are_held_count(attribute):
    v = cp.Variable(6, **attribute)
    constraint = v[2] + v[4] <= 5
    data = cone_data(None, [constraint], [v], layout_of([constraint]))
    rows = data.A.toarray(), data.b
    assert all(np.any((rows[0] == row).all(axis=1) & (rows[1] == 0)) for row in -np.eye(2))


def test_compiling_a_few_entries_of_a_large_variable_takes_no_matrix_of_its_size():
    size = 500_000
    v = cp.Variable(size, name="network")
    at = np.array([3, 77, 400_000])
    constraints = [v[at] <= 1, cp.SOC(v[3], v[at[1:]]), v[5:8] == 2]
    layout = layout_of(constraints)
    tracemalloc.start()
    try:
        data = cone_data(None, constraints, [v], layout)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert data.A.shape == (9, 6)
    assert peak < 4 * 8 * size  # 11 numbers an entry where the whole variable is compiled
