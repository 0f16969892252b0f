"""Constraints with private data as cone programs, against cvxpy with the data as constants."""

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpcvx as dp
from dpcvx.model.canonical import cone_data, public_copy
from dpcvx.model.layout import layout_of
from dpcvx.model.private_constraints import private_constraint

WITHIN = dp.Within(0.1)
x, y = cp.Variable(3, name="x"), cp.Variable(3, name="y", nonneg=True)
d = dp.Private(shape=3, adjacency=WITHIN, name="d")
e = dp.Private(shape=3, adjacency=WITHIN, name="e", nonneg=True)
f = dp.Private(shape=(2, 2), adjacency=WITHIN, name="f", symmetric=True)
g = dp.Private(shape=3, adjacency=WITHIN, name="g", nonpos=True)
PRIVATE = [d, e, f, g]
A = np.arange(9.0).reshape(3, 3) - 3
gain = cp.Parameter(3, name="gain", value=np.array([1.0, -2.0, 0.5]))
CONSTRAINTS = {
    "right-hand side": A @ x <= d + 1,
    "sum": cp.sum(x) >= cp.sum(d) - gain @ e,
    "both sides of a line": cp.abs(A @ x - d) <= 2,
    "coefficients": d @ x <= 1 + cp.sum(e),
    "coefficients of known sign": cp.multiply(e, cp.abs(x)) - cp.multiply(g, cp.square(y)) <= 2,
    "cone": cp.norm(A @ x - d) <= 3 + e @ y,
    "SOC": cp.SOC(cp.sum(y) - cp.sum(g), A @ x - d),
    "square": cp.sum_squares(x - d) <= 1,
    "logarithm": cp.log(y) >= e,
    "exponents": cp.log_sum_exp(A @ x + d) <= 2 + cp.sum(y),
    "inside a logarithm": cp.log(cp.sum(y) - cp.sum(d)) >= 1,
    "matrix": cp.lambda_max(f + cp.diag(x[:2])) <= 1 + e[0],
    "matrix of products": cp.bmat([[x[0] * d[0], d[1]], [d[1], y[0]]]) >> f,
    "symmetric": f @ x[:2] <= f[0, 1] - gain[:2],
}


def compiled(constraint):
    return private_constraint(constraint, PRIVATE, "Constraint 0 of agent 'a'", "a")


def data_of(numbers):
    """Admissible data, as arrays and as one vector."""
    flat = np.split(np.array(numbers), [3, 6, 9])
    values = [flat[0], np.abs(flat[1]), flat[2], -np.abs(flat[3])]
    return [p.spec.shaped(v) for p, v in zip(PRIVATE, values, strict=True)], np.concatenate(values)


@pytest.mark.parametrize("name", CONSTRAINTS)
@settings(max_examples=5, deadline=None)
@given(numbers=st.lists(st.floats(-3, 3), min_size=12, max_size=12))
def test_at_any_data_it_is_the_constraint_with_these_as_constants(name, numbers):
    constraint = CONSTRAINTS[name]
    arrays, flat = data_of(numbers)
    public = public_copy(constraint, [p for p in constraint.parameters() if p is gain])
    constants = {id(p): cp.Constant(v) for p, v in zip(PRIVATE, arrays, strict=True)}
    layout = layout_of([constraint])
    found = {v.id: v for v in constraint.variables()}
    variables = [found[piece.variable] for piece in layout.pieces]
    expected = cone_data(None, [public.tree_copy(constants)], variables, layout)
    limit = compiled(constraint)
    M, b = limit.at(flat)
    assert limit.data.cones == expected.cones
    assert M.toarray() == pytest.approx(expected.A.toarray(), abs=1e-12)
    assert b == pytest.approx(expected.b, abs=1e-12)


@pytest.mark.parametrize(
    ("name", "sizes", "bends"),
    [
        ("right-hand side", [1, 1, 1], [False] * 3),
        ("sum", [1], [False]),
        ("both sides of a line", [1] * 6, [False] * 6),
        ("coefficients", [1], [True]),
        ("cone", [1, 4], [True, False]),
        ("SOC", [4], [False]),
        ("exponents", [1, 1, 1], [False] * 3),
        ("inside a logarithm", [1], [False]),
    ],
)
def test_the_rows_that_data_touch(name, sizes, bends):
    parts = compiled(CONSTRAINTS[name]).parts
    assert [part.size for part in parts] == sizes and [part.bends for part in parts] == bends


def test_the_entries_that_a_row_meets():
    limit = compiled(CONSTRAINTS["coefficients"])
    assert limit.entries(limit.parts[0].rows).tolist() == [0, 1, 2, 3, 4, 5]


def test_running_sums_are_rows_without_equalities():
    limit, sums = compiled(cp.cumsum(x - d) <= 2), np.tril(np.ones((3, 3)))
    assert (limit.data.cones.zero, len(limit.parts)) == (0, 3)
    assert limit.offsets.toarray()[:, :3].tolist() == sums.tolist()
    along = compiled(cp.cumsum(cp.reshape(x - d, (1, 3), order="F"), axis=1) <= 2)
    assert along.offsets.toarray()[:, :3].tolist() == sums.tolist()


@pytest.mark.parametrize(
    ("constraint", "words"),
    [
        (cp.multiply(d, e) @ x <= 1, r"not depend on private 'd' affinely .*DPP.*d @ x <= c"),
        (cp.multiply(d, cp.abs(x)) <= 1, "affinely"),
        (cp.quad_form(x[:2], f) <= 1, "affinely"),
        (x + 0 * d <= d - d + 1, "cancels out of it or is multiplied by 0"),
        (cp.ExpCone(x[0], y[0] + d[0], x[1]), r"cone of kind exp.*t >= d"),
        (cp.exp(e @ x) <= 1 + y[0], r"cone of kind exp.*t >= e"),
        (cp.PowCone3D(y[0], y[1], d[0], 0.3), r"cone of kind power.*t >= d"),
        (cp.sum(cp.huber(x - d)) <= 1, r"equality of its own, such as cp\.huber"),
        (cp.sum(x) == cp.sum(d), r"is an equality with private 'd'"),
    ],
    ids=[
        "product of data",
        "sign unknown",
        "quadratic form",
        "nothing",
        "base",
        "in exponents",
        "tip of a power cone",
        "function with an equality",
        "equality",
    ],
)
def test_what_no_margin_keeps_is_refused(constraint, words):
    with pytest.raises(dp.PrivacyError, match=words):
        compiled(constraint)


def test_public_parameters_need_values():
    with pytest.raises(dp.ModelError, match="cap"):
        compiled(x <= d + cp.Parameter(3, name="cap"))
