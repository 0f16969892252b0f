"""Matrices read off cvxpy: affine maps, cone data, public copies."""

import clarabel
import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

import dpcvx as dp
from dpcvx.model.canonical import Cones, affine_map, cone_data, public_copy
from dpcvx.model.layout import layout_of

WITHIN = dp.Within(1.0)
RNG = np.random.default_rng(3)
A = RNG.normal(size=(3, 4))


def cones_of(objective, constraints):
    trees = [*([] if objective is None else [objective]), *constraints]
    layout = layout_of(trees)
    known = {v.id: v for tree in trees for v in tree.variables()}
    variables = [known[p.variable] for p in layout.pieces]
    return layout, cone_data(objective, constraints, variables, layout)


def minimizer(data, target=None):
    """Solve the cone problem; with a target, project it onto the set instead."""
    P, q = data.P.copy(), data.q.copy()
    if target is not None:
        P = sp.csc_array(sp.diags_array(np.r_[np.ones(data.n), np.zeros(q.size - data.n)]))
        q = np.r_[-target, np.zeros(q.size - data.n)]
    kinds = {
        "zero": clarabel.ZeroConeT,
        "nonneg": clarabel.NonnegativeConeT,
        "soc": clarabel.SecondOrderConeT,
    }
    cones = [kinds[k](n) for k, n in data.cones.blocks() if k in kinds]
    cones += [clarabel.PSDTriangleConeT(n) for n in data.cones.psd]
    cones += [clarabel.ExponentialConeT()] * data.cones.exp
    cones += [clarabel.PowerConeT(a) for a in data.cones.power]
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-11
    upper = sp.csc_matrix(sp.triu(P))
    solver = clarabel.DefaultSolver(upper, q, sp.csc_matrix(data.A), data.b, cones, settings)
    return np.array(solver.solve().x)[: data.n]


def vector(*values):
    return np.concatenate([np.ravel(v, order="F") for v in values])


AFFINE = {
    "vector": (lambda x, X: A @ x + 1, (4,), (2, 3)),
    "matrix": (lambda x, X: X @ A + cp.reshape(x, (2, 4), order="C"), (8,), (2, 3)),
    "moved": (lambda x, X: cp.hstack([x[::-1], cp.vec(X.T, order="F")]) - 2, (4,), (2, 3)),
    "kron": (lambda x, X: cp.kron(np.eye(2), X) * 3 + cp.sum(x), (4,), (2, 3)),
    "scalar": (lambda x, X: cp.trace(np.array([[1.0, 2], [3, 4]]) @ X) + x[0], (4,), (2, 2)),
    "diag": (lambda x, X: cp.diag(x) + cp.upper_tri(cp.diag(x))[0], (3,), (2, 3)),
    "unused argument": (lambda x, X: 2 * x, (4,), (2, 3)),
    "constant": (lambda x, X: cp.Constant([1.0, 2.0]) + 0 * x[:2], (4,), (2, 3)),
}


@pytest.mark.parametrize("case", AFFINE)
def test_affine_map_evaluates_the_expression(case):
    build, *shapes = AFFINE[case]
    x, X = (cp.Variable(shape) for shape in shapes)
    expression = build(x, X)
    M, offset = affine_map(expression, [x, X])
    assert M.shape == (expression.size, x.size + X.size)
    for _ in range(3):
        x.value, X.value = RNG.normal(size=x.shape), RNG.normal(size=X.shape)
        expected = np.ravel(expression.value, order="F")
        assert M @ vector(x.value, X.value) + offset == pytest.approx(expected, abs=1e-12)


def test_affine_map_keeps_the_order_of_its_arguments():
    x, y = cp.Variable(2), cp.Variable(3)
    M, _ = affine_map(cp.sum(x) + 5 * cp.sum(y), [y, x])
    assert M.toarray().tolist() == [[5, 5, 5, 1, 1]]


def test_affine_map_refuses_auxiliary_variables():
    x = cp.Variable(3)
    with pytest.raises(dp.ModelError, match=r"auxiliary variables.*cumsum.*matrix products"):
        affine_map(cp.cumsum(x), [x])


def test_affine_map_of_three_dimensions_is_silent():
    T = cp.Variable((2, 3, 4))
    M, _ = affine_map(cp.sum(T, axis=0), [T])
    assert M.shape == (12, 24)


def test_quadratic_objective_is_read_off_exactly():
    x, y = cp.Variable(4), cp.Variable(2)
    f = cp.sum_squares(A @ x - 1) + 3 * cp.sum(y) + cp.quad_form(y, np.diag([1.0, 2.0]))
    _, data = cones_of(f, [])
    constants = []
    for _ in range(4):
        x.value, y.value = RNG.normal(size=4), RNG.normal(size=2)
        held = np.r_[x.value, y.value]
        # The remaining columns are residuals, tied to the held ones by equalities.
        rest, *_ = np.linalg.lstsq(data.A[:, 6:].toarray(), data.b - data.A[:, :6] @ held)
        z = np.r_[held, rest]
        constants.append(f.value - (z @ data.P @ z / 2 + data.q @ z))
    assert np.ptp(constants) < 1e-9


def test_quadratic_part_is_symmetric():
    x = cp.Variable(3)
    _, data = cones_of(cp.quad_form(x, np.array([[2.0, 1, 0], [1, 2, 0], [0, 0, 1]])), [])
    assert data.P.toarray().tolist() == [[4, 2, 0], [2, 4, 0], [0, 0, 2]]


def test_no_objective_gives_zeros():
    x = cp.Variable(3)
    _, data = cones_of(None, [x <= 1])
    assert data.P.nnz == 0 and not data.q.any()


def test_linear_coefficients_survive():
    x = cp.Variable(3)
    _, data = cones_of(np.array([0.1, -2.0, 0.0]) @ x, [x <= 1])
    assert data.q == pytest.approx([0.1, -2.0, 0.0], abs=1e-15)


def test_columns_come_in_the_agents_order():
    x, y = cp.Variable(3), cp.Variable((2, 2))
    layout, data = cones_of(cp.sum(y) + x[2], [x[2] <= 7, x[0] >= -5, y[0, 1] <= 9])
    assert layout.labels() == [f"{y.name()}[{i},{j}]" for j in (0, 1) for i in (0, 1)] + [
        f"{x.name()}[0]",
        f"{x.name()}[2]",
    ]
    limits = {}
    for row, b in zip(data.A.toarray(), data.b, strict=True):
        (column,) = np.flatnonzero(row)
        limits[int(column)] = (row[column], b)
    assert limits == {5: (1.0, 7.0), 4: (-1.0, 5.0), 2: (1.0, 9.0)}


@pytest.mark.parametrize(
    ("attributes", "low", "high"),
    [
        ({"nonneg": True}, 0, np.inf),
        ({"nonpos": True}, -np.inf, 0),
        ({"bounds": [-1.0, 2.0]}, -1, 2),
        ({"bounds": [None, np.array([3.0, 4.0, 5.0])]}, -np.inf, np.array([3.0, 4.0, 5.0])),
        ({"bounds": [np.array([-np.inf, 0.0, 1.0]), None]}, np.array([-np.inf, 0, 1]), np.inf),
    ],
    ids=str,
)
@pytest.mark.parametrize("entries", [[0, 1, 2], [1, 2], [2]], ids=str)
def test_bounds_of_held_entries_become_rows(attributes, low, high, entries):
    x = cp.Variable(3, **attributes)
    _, data = cones_of(None, [cp.sum(x[entries]) <= 1e3])
    assert data.n == len(entries) and data.A.shape[0] == data.b.size == data.cones.nonneg
    target = RNG.normal(size=len(entries)) * 10
    lows, highs = (np.broadcast_to(side, 3)[entries] for side in (low, high))
    assert minimizer(data, target) == pytest.approx(np.clip(target, lows, highs), abs=1e-5)


def test_rows_of_absent_entries_are_dropped_and_no_others():
    x = cp.Variable(5, nonneg=True)
    y = cp.Variable(3, bounds=[-1, 1])
    _, data = cones_of(None, [x[1] + x[3] == 1, cp.norm(x[[1, 3]]) <= 2, y[0] >= x[1]])
    assert data.n == 3
    assert str(data.cones) == "1 zero, 6 nonneg, 1 soc"
    assert sum(n for _, n in data.cones.blocks()) == data.A.shape[0] == data.b.size


@pytest.mark.parametrize("attribute", ["PSD", "NSD", "symmetric"])
def test_matrix_attributes_restrict_the_users_columns(attribute):
    X = cp.Variable((3, 3), **{attribute: True})
    _, data = cones_of(None, [X[0, 1] <= 50])
    assert data.n == 9
    target = RNG.normal(size=(3, 3))
    values, vectors = np.linalg.eigh((target + target.T) / 2)
    if attribute != "symmetric":
        values = np.maximum(values, 0) if attribute == "PSD" else np.minimum(values, 0)
    expected = vectors @ np.diag(values) @ vectors.T
    found = minimizer(data, np.ravel(target, order="F")).reshape(3, 3, order="F")
    assert found == pytest.approx(expected, abs=1e-5)


def test_public_matrix_inequality():
    X = cp.Variable((2, 2), symmetric=True)
    _, data = cones_of(None, [X >> np.eye(2), cp.trace(X) == 3])
    found = minimizer(data, np.array([5.0, 0, 0, 0])).reshape(2, 2, order="F")
    assert np.trace(found) == pytest.approx(3, abs=1e-6)
    assert np.linalg.eigvalsh(found)[0] == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize(
    ("objective", "text"),
    [
        (lambda x: cp.norm(x), "1 soc"),
        (lambda x: cp.sum(cp.exp(x)), "3 exp"),
        (lambda x: -cp.geo_mean(x[:2], [0.3, 0.7], approx=False), "1 power"),
        (lambda x: cp.lambda_max(cp.diag(x)), "1 psd"),
        (lambda x: cp.sum(x), "none"),
    ],
)
def test_kinds_of_cones(objective, text):
    _, data = cones_of(objective(cp.Variable(3)), [])
    assert str(data.cones) == text
    assert sum(n for _, n in data.cones.blocks()) == data.A.shape[0]


def test_cones_list_their_rows_in_order():
    cones = Cones(1, 2, (3,), (2,), 1, (0.5,), ((0.2, 0.8),))
    assert cones.blocks() == [
        *[("zero", 1), ("nonneg", 1), ("nonneg", 1), ("soc", 3)],
        *[("psd", 3), ("exp", 3), ("power", 3), ("power_nd", 3)],
    ]
    assert str(cones) == "1 zero, 2 nonneg, 1 soc, 1 psd, 1 exp, 2 power"


def test_an_epigraph_objective_has_the_right_minimizer():
    x = cp.Variable(2)
    _, data = cones_of(cp.norm1(x - np.array([1.0, -2.0])), [x[0] >= 3, x[1] <= 5])
    assert minimizer(data) == pytest.approx([3, -2], abs=1e-5)


def test_cone_data_of_three_dimensions_are_silent():
    T = cp.Variable((2, 3, 4))
    _, data = cones_of(None, [cp.sum(T, axis=0) <= 1])
    assert data.A.shape == (12, 24)


def test_public_copy_fills_in_public_values_and_private_zeros():
    x, public = cp.Variable(2), cp.Parameter(2, value=[3.0, 4.0])
    private = dp.Private([5.0, 6.0], adjacency=WITHIN, name="load")
    f = public @ x + cp.sum_squares(x - private)
    copy = public_copy(cp.Minimize(f), f.parameters())
    assert copy.parameters() == []
    x.value = [1.0, 2.0]
    assert copy.value == pytest.approx(3 + 8 + 1 + 4)
    assert {v.id for v in copy.variables()} == {x.id}
    assert set(map(id, f.parameters())) == {id(public), id(private)}


def test_public_copy_takes_the_value_of_the_moment():
    x, public = cp.Variable(), cp.Parameter(value=2.0)
    before = public_copy(x <= public, [public])
    public.value = 3.0
    x.value = 2.5
    assert not before.value() and public_copy(x <= public, [public]).value()


def test_public_copy_without_parameters_is_the_tree():
    tree = cp.Variable() >= 0
    assert public_copy(tree, []) is tree


def test_public_copy_names_a_parameter_without_value():
    price = cp.Parameter(name="price")
    with pytest.raises(dp.ModelError, match=r"'price' has no value.*price\.value = "):
        public_copy(cp.Variable() * price, [price])
