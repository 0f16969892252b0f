"""Public equalities between agents: their matrices, Gaussian elimination, and what is refused."""

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import dpcvx as dp
from dpcvx.algorithms.program import compile_problem
from dpcvx.model.constraints import coupling_of, eliminate
from dpcvx.model.layout import gather, layout_of
from tests.forms import assign

# -- matrices --------------------------------------------------------------------------------------


def parameter(values, **attributes):
    return cp.Parameter(np.shape(values), value=np.asarray(values, dtype=float), **attributes)


G = np.random.default_rng(7).normal(size=(6, 6))
# x and y have length 4, X and Y shape (2, 3).
MODELS = {
    "equal": lambda x, y, X, Y: [x == y],
    "matrices": lambda x, y, X, Y: [G[:3, :4] @ x + G[3:, :4] @ y == G[0, :3]],
    "zero on the right": lambda x, y, X, Y: [G[:3, :4] @ x - y[:3] - 2 == 0],
    "slices": lambda x, y, X, Y: [x[1:3] == y[[3, 0]]],
    "reversed": lambda x, y, X, Y: [x[::-1] == y],
    "one entry": lambda x, y, X, Y: [x[2] - 3 * y[-1] == 0.5],
    "sums": lambda x, y, X, Y: [cp.sum(x) == cp.sum(y[1:])],
    "scalar against vector": lambda x, y, X, Y: [x == y[0]],
    "matrix variables": lambda x, y, X, Y: [X == 2 * Y],
    "transposed": lambda x, y, X, Y: [X.T @ G[:2, :2] == Y.T],
    "rows and columns": lambda x, y, X, Y: [X[:, 1] == Y[0, :2], X[1, ::2] - Y[1, 1:] == 1],
    "products on both sides": lambda x, y, X, Y: [G[:4, :2] @ X @ G[:3] == G[:4, :3] @ Y.T @ G[4:]],
    "vector and matrix": lambda x, y, X, Y: [cp.vec(X, order="C")[1:5] + y == 1],
    "public parameters": lambda x, y, X, Y: [
        parameter(G[:2, :4]) @ x + parameter(2.5, nonneg=True) * y[:2] == parameter([1.0, -2.0])
    ],
    "several": lambda x, y, X, Y: [
        x == y, X[0] == Y[1], cp.trace(X[:, :2]) == 3, cp.diff(x)[0] == cp.norm1(parameter([1, 2]))
    ],
}  # fmt: skip


def variables():
    return (
        cp.Variable(4, name="x"),
        cp.Variable(4, name="y"),
        cp.Variable((2, 3), name="X"),
        cp.Variable((2, 3), name="Y"),
    )


def raveled(expression):
    return np.ravel(expression.value, order="F")


@pytest.mark.parametrize("model", MODELS)
def test_matrices_are_cvxpys_values_at_any_point(model):
    x, y, X, Y = variables()
    constraints = MODELS[model](x, y, X, Y)
    layouts = [layout_of([sum(cp.sum(v) for v in own)]) for own in ((x, X), (Y, y))]
    coupling = coupling_of(constraints)
    parts = [coupling.of(layout) for layout in layouts]
    rng = np.random.default_rng(1)
    for _ in range(5):
        for v in (x, y, X, Y):
            v.value = rng.normal(size=v.shape)
        values = {v.id: v.value for v in (x, y, X, Y)}
        vectors = [gather(layout, values) for layout in layouts]
        ours = sum(M @ v for M, v in zip(parts, vectors, strict=True)) - coupling.right
        theirs = np.concatenate([raveled(c.args[0] - c.args[1]) for c in constraints])
        assert ours == pytest.approx(theirs, abs=1e-12)


def test_matrices_follow_an_agent_that_holds_some_entries():
    x, y = cp.Variable(5, name="x"), cp.Variable(3, name="y")
    layout = layout_of([cp.sum(y), x[[4, 1]] >= 0])
    coupling = coupling_of([x[[1, 4]] == y[:2], y[2] == 7])
    expected = [[-1, 0, 0, 1, 0], [0, -1, 0, 0, 1], [0, 0, 1, 0, 0]]
    assert coupling.of(layout).toarray() == pytest.approx(np.array(expected))
    assert coupling.right == pytest.approx([0, 0, 7])


@pytest.mark.parametrize(
    "attributes",
    [{"nonneg": True}, {"bounds": [-1, np.array([1, np.inf])]}, {"nonpos": True}],
    ids=str,
)
def test_signs_and_bounds_of_variables_add_no_rows(attributes):
    x, y = cp.Variable(2, name="x"), cp.Variable(2, name="y", **attributes)
    coupling = coupling_of([x == 2 * y, cp.sum(y) == -3])
    assert coupling.of(layout_of([cp.sum(y)])).toarray() == pytest.approx(
        np.array([[-2, 0], [0, -2], [1, 1]])
    )
    assert coupling.right == pytest.approx([0, 0, -3])


@pytest.mark.parametrize("attribute", ["symmetric", "PSD"])
def test_symmetric_variables_have_a_column_per_entry(attribute):
    x, Y = cp.Variable(2, name="x"), cp.Variable((2, 2), name="Y", **{attribute: True})
    coupling = coupling_of([x == Y[0] + cp.diag(Y)])
    found = coupling.of(layout_of([cp.trace(Y) + cp.sum(Y)])).toarray()
    values = np.array([[1.0, 0.5], [0.5, 2.0]])
    assert found @ values.ravel() == pytest.approx([-2.0, -2.5])


def test_an_agent_that_is_not_in_a_coupling_has_no_entries():
    x, y = cp.Variable(2), cp.Variable(3)
    found = coupling_of([x == 1]).of(layout_of([cp.sum(y)]))
    assert found.shape == (2, 3) and found.nnz == 0


def test_no_constraint_is_no_coupling():
    assert coupling_of([]) is None


def test_a_public_parameter_without_a_value_is_refused():
    x, y, p = cp.Variable(2), cp.Variable(2), cp.Parameter(2, name="offset")
    problem = tied([x + y == p], x, y)
    with pytest.raises(dp.ModelError, match="'offset' has no value"):
        compile_problem(problem)


def test_programs_carry_the_coupling():
    x, y = cp.Variable(2, name="x"), cp.Variable(2, name="y")
    program = compile_problem(tied([x == 2 * y + 1], x, y))
    user, public = (program.coupling.of(a.layout).toarray() for a in program.agents)
    assert np.array_equal(user, np.eye(2)) and np.array_equal(public, -2 * np.eye(2))
    assert np.array_equal(program.coupling.right, [1, 1])
    assert program.size == 0


# -- elimination -----------------------------------------------------------------------------------


def with_form(found, n, k):
    """The eliminated system, whose A must be [I, D] up to the order of its columns."""
    r = found.c.size
    assert found.A.shape == (r, n) and found.B.shape == (r, k)
    assert found.B_alone.shape == (found.c_alone.size, k)
    units = {tuple(column) for column in found.A.T}
    assert {tuple(row) for row in np.eye(r)} <= units
    return found


def gaps(found, x, y):
    """Largest violation of the eliminated rows."""
    tied, alone = found.A @ x + found.B @ y - found.c, found.B_alone @ y - found.c_alone
    return max(np.abs(tied).max(initial=0.0), np.abs(alone).max(initial=0.0))


def same_solutions(A, B, c, found, rng):
    """Both systems have the same solutions: each is met by points and directions of the other."""
    n, rows = A.shape[1], np.hstack([A, B])
    reduced = np.vstack(
        [
            np.hstack([found.A, found.B]),
            np.hstack([np.zeros((found.c_alone.size, n)), found.B_alone]),
        ]
    )
    right = np.concatenate([found.c, found.c_alone])
    for one, b, other, d in ((rows, c, reduced, right), (reduced, right, rows, c)):
        point = np.linalg.lstsq(one, b)[0]
        assert one @ point == pytest.approx(b, abs=1e-8), "no solution to start from"
        for _ in range(3):
            free = rng.normal(size=point.size)
            solution = point + free - np.linalg.lstsq(one, one @ free)[0]
            assert other @ solution == pytest.approx(d, abs=1e-7)


def system(rng, m, n, k, rank):
    """A of a given rank, B, and c for which there are solutions."""
    A = rng.normal(size=(m, rank)) @ rng.normal(size=(rank, n))
    B = rng.normal(size=(m, k))
    return A, B, A @ rng.normal(size=n) + B @ rng.normal(size=k)


sizes = st.integers(1, 5)


@given(sizes, sizes, sizes, sizes, st.integers(0, 2**32))
def test_elimination_keeps_the_solutions_and_has_the_form_of_the_remark(m, n, k, rank, seed):
    rng = np.random.default_rng(seed)
    rank = min(m, n, rank)
    A, B, c = system(rng, m, n, k, rank)
    found = with_form(eliminate(A, B, c), n, k)
    assert (found.c.size, found.c_alone.size) == (rank, min(m - rank, k))
    same_solutions(A, B, c, found, rng)


@given(sizes, sizes, sizes, st.integers(0, 2**32))
def test_rows_that_follow_from_others_are_left_out(m, n, k, seed):
    rng = np.random.default_rng(seed)
    A, B, c = system(rng, m, n, k, min(m, n))
    mixed = rng.normal(size=(3, m))
    twice = [np.concatenate([part, mixed @ part, part[::-1]]) for part in (A, B, c)]
    found = with_form(eliminate(*twice), n, k)
    assert found.c.size == min(m, n)
    assert found.c_alone.size == max(0, min(m - n, k))
    same_solutions(*twice, found, rng)


@given(sizes, sizes, sizes, st.integers(0, 2**32))
def test_the_order_of_the_rows_does_not_matter(m, n, k, seed):
    rng = np.random.default_rng(seed)
    A, B, c = system(rng, m, n, k, min(m, n, 2))
    order = rng.permutation(m)
    one, other = eliminate(A, B, c), eliminate(A[order], B[order], c[order])
    assert other.A == pytest.approx(one.A, abs=1e-8)
    assert other.B == pytest.approx(one.B, abs=1e-8)
    assert other.c == pytest.approx(one.c, abs=1e-8)


def test_rows_of_zeros_and_small_systems_by_hand():
    A = np.array([[2.0, 4.0], [0.0, 0.0], [1.0, 2.0]])
    B = np.array([[2.0, 0.0], [0.0, 3.0], [1.0, 1.0]])
    found = with_form(eliminate(A, B, np.array([6.0, 9.0, 6.0])), 2, 2)
    # x_0 + 2 x_1 + y_0 = 3 and y_1 = 3, which the third row says as well; 2 is the larger pivot.
    assert found.A == pytest.approx(np.array([[0.5, 1.0]]))
    assert found.c_alone.size == 1
    y = np.array([-1.4, 3.0])
    assert found.B_alone @ y == pytest.approx(found.c_alone)
    assert found.B @ y + found.A @ [0.4, 2.0] == pytest.approx(found.c)


def test_pivoting_keeps_the_other_columns_small():
    rng = np.random.default_rng(3)
    A = rng.normal(size=(4, 9)) * np.logspace(-3, 3, 9)
    found = with_form(eliminate(A, np.eye(4), np.zeros(4)), 9, 4)
    assert np.abs(found.A).max() < 5


@pytest.mark.parametrize("n", [3, 5])
def test_an_identity_is_left_as_it_is(n):
    rng = np.random.default_rng(4)
    A, B, c = np.eye(3, n), rng.normal(size=(3, 2)), rng.normal(size=3)
    found = eliminate(A, B, c)
    assert np.array_equal(found.A, A) and np.array_equal(found.B, B) and np.array_equal(found.c, c)
    assert found.B_alone.shape == (0, 2) and found.c_alone.shape == (0,)


def test_rows_in_the_form_of_the_remark_are_left_as_they_are():
    """Also where pivoting would take other columns, and with rows between that hold y alone."""
    rng = np.random.default_rng(5)
    A = np.array([[90.0, 1.0, 0.0, -70.0], [0.0, 0.0, 0.0, 0.0], [50.0, 0.0, 1.0, 0.3]])
    B, c = rng.normal(size=(3, 2)), rng.normal(size=3)
    found = with_form(eliminate(A, B, c), 4, 2)
    assert np.array_equal(found.A, A[[0, 2]]) and np.array_equal(found.B, B[[0, 2]])
    assert np.array_equal(found.c, c[[0, 2]]) and found.c_alone.size == 1
    same_solutions(A, B, c, found, rng)
    scaled = with_form(eliminate(2 * A, B, c), 4, 2)  # no column is a unit vector
    assert np.abs(scaled.A).max() < 2


def test_an_identity_above_rows_of_zeros_leaves_these_to_y():
    A, B, c = np.eye(5, 3), np.arange(10.0).reshape(5, 2), np.arange(5.0)
    found = with_form(eliminate(A, B, c), 3, 2)
    assert np.array_equal(found.A, np.eye(3))
    assert (found.c.size, found.c_alone.size) == (3, 2)
    same_solutions(A, B, c, found, np.random.default_rng(0))


@pytest.mark.parametrize("A", [np.zeros((2, 3)), np.zeros((1, 1))], ids=["2 x 3", "1 x 1"])
def test_without_x_every_row_is_ys(A):
    rng = np.random.default_rng(6)
    B = rng.normal(size=(A.shape[0], 3))
    found = with_form(eliminate(A, B, B @ [1.0, 2.0, 3.0]), A.shape[1], 3)
    assert found.c.size == 0
    assert found.B_alone @ [1.0, 2.0, 3.0] == pytest.approx(found.c_alone)


@pytest.mark.parametrize("excess", [1.0, 1e-6])
def test_rows_that_contradict_each_other_are_refused(excess):
    A, B, c = np.eye(2, 3), -np.eye(2), np.array([0.3, -0.2])
    twice = np.tile(A, (2, 1)), np.tile(B, (2, 1)), np.concatenate([c, c])
    assert eliminate(*twice).c_alone.size == 0
    twice[2][3] += excess
    with pytest.raises(dp.ModelError, match="coupling= contradict each other"):
        eliminate(*twice)


@pytest.mark.parametrize("scale", [1e-6, 1e6], ids=str)
@pytest.mark.parametrize("which", ["B", "c", "all"])
def test_redundant_rows_are_found_at_any_scale(which, scale):
    rng = np.random.default_rng(8)
    A, B = rng.normal(size=(4, 6)), rng.normal(size=(4, 3))
    A, B = (scale if which == "all" else 1) * A, (1 if which == "c" else scale) * B
    c = A @ rng.normal(size=6) * (scale if which == "c" else 1)
    mixed = rng.normal(size=(2, 4))
    found = eliminate(*(np.concatenate([part, mixed @ part]) for part in (A, B, c)))
    assert (found.c.size, found.c_alone.size) == (4, 0)


def test_sparse_couplings_of_models_become_the_form_of_the_remark():
    x, y = cp.Variable((2, 2), name="x"), cp.Variable(3, name="y")
    constraints = [x[0] == y[:2], x[0] + x[1] == y[1:], cp.sum(x[0]) == 1]
    layouts = layout_of([cp.sum(x)]), layout_of([cp.sum(y)])
    coupling = coupling_of(constraints)
    A, B = (coupling.of(layout) for layout in layouts)
    assert sp.issparse(A)
    found = with_form(eliminate(A.toarray(), B.toarray(), coupling.right), 4, 3)
    assert (found.c.size, found.c_alone.size) == (4, 1)
    y.value = np.array([0.3, 0.7, -0.2])  # the last row: y_0 + y_1 = 1
    x.value = np.array([y.value[:2], y.value[1:] - y.value[:2]])
    assert all(c.violation().max() < 1e-12 for c in constraints)
    assert gaps(found, x.value.ravel(order="F"), y.value) < 1e-12
    assert gaps(found, x.value.ravel(order="F") + 0.1, y.value) > 0.05
    assert gaps(found, x.value.ravel(order="F"), y.value + 0.1) > 0.05


# -- what dp.Problem accepts -----------------------------------------------------------------------


def tied(coupling, x, y, private=None):
    """A user with x, a public agent with y."""
    d = (
        dp.Private(shape=x.shape, name="d", adjacency=dp.Within(0.1))
        if private is None
        else private
    )
    return dp.Problem(
        [
            dp.Agent(cp.Minimize(cp.sum_squares(x - d)), name="user"),
            dp.Agent(cp.Minimize(cp.norm1(y)), name="public"),
        ],
        coupling=coupling,
    )


def refused(expected, message, coupling, x=None, y=None, **arguments):
    x, y = (cp.Variable(2, name="x") if x is None else x), (y or cp.Variable(2, name="y"))
    with pytest.raises(expected) as caught:
        tied(coupling(x, y) if callable(coupling) else coupling, x, y, **arguments)
    text = str(caught.value)
    assert all(part in text for part in message), text


def test_agents_that_only_a_coupling_ties_are_accepted():
    x, y = cp.Variable(2, name="x"), cp.Variable(2, name="y")
    problem = tied([x == y], x, y)
    assert len(problem.coupling) == 1
    with pytest.raises(dp.ModelError, match="shares nothing|shares no"):
        dp.Problem(problem.agents)


def test_an_agent_outside_the_coupling_is_still_refused():
    x, y, z = (cp.Variable(2, name=name) for name in "xyz")
    agents = [dp.Agent(cp.Minimize(cp.sum_squares(v)), name=v.name()) for v in (x, y, z)]
    with pytest.raises(dp.ModelError, match="'z'"):
        dp.Problem(agents, coupling=[x == y])


@pytest.mark.parametrize("kind", [list, tuple, iter])
def test_any_sequence_of_equalities_will_do(kind):
    x, y = cp.Variable(2, name="x"), cp.Variable(2, name="y")
    assert len(tied(kind([x[0] == y[0], x[1] == y[1]]), x, y).coupling) == 2


@pytest.mark.parametrize(
    ("coupling", "kind"),
    [(lambda x, y: x == y, "Equality"), ("x == y", "str"), (3, "int"), (None, "NoneType")],
)
def test_one_constraint_alone_or_another_thing_is_refused(coupling, kind):
    expected = [f"coupling= is a {kind}", "a list of cvxpy equalities", "coupling=[A @ x + B @ y"]
    refused(dp.ModelError, expected, coupling)


NOT_CONVEX = {
    "square": lambda x, y: cp.square(x) == y,
    "norm": lambda x, y: cp.norm(x) == y[0],
    "product": lambda x, y: cp.multiply(x, y) == 1,
    "concave inequality": lambda x, y: cp.square(x) >= y,
    "bool": lambda x, y: True,
    "expression": lambda x, y: x - y,
    "text": lambda x, y: "x == y",
}
CONIC = {
    "convex inequality": lambda x, y: cp.square(x) <= y,
    "cone": lambda x, y: cp.SOC(x[0], y),
}


@pytest.mark.parametrize("case", NOT_CONVEX)
def test_what_is_no_convex_constraint_is_refused(case):
    def coupling(x, y):
        return [x == y, NOT_CONVEX[case](x, y)]

    expected = ["Element 1 of coupling= must be a convex constraint", "A @ x + B @ y == c"]
    refused(dp.ModelError, expected, coupling)


@pytest.mark.parametrize("case", CONIC)
def test_methods_that_keep_affine_couplings_refuse_others(case):
    x, y = cp.Variable(2, name="x"), cp.Variable(2, name="y")
    agents = [dp.Agent(cp.Minimize(cp.sum_squares(v)), name=v.name()) for v in (x, y)]
    problem = dp.Problem(agents, coupling=[x == y, CONIC[case](x, y)])
    with pytest.raises(dp.ModelError, match=r"Element 1 of coupling= is not affine.*as_written"):
        problem.plan(dp.ResourceADMM(), mechanism=None)


def test_a_private_parameter_in_a_coupling_is_refused():
    d = dp.Private(np.full(2, 31415.9), name="salaries", adjacency=dp.Within(0.1))
    remedy = "Write it as an inequality"
    expected = ["Element 1 of coupling=", "private parameter 'salaries'", remedy]
    refused(dp.PrivacyError, expected, lambda x, y: [x == y, x == y + d], private=d)
    refused(dp.PrivacyError, expected, lambda x, y: [x == y, cp.multiply(d, x) == y], private=d)


def test_a_variable_that_no_agent_has_is_refused():
    z = cp.Variable(2, name="z")
    expected = ["Element 0 of coupling= uses variable 'z'", "no agent", "0 * cp.sum(x)"]
    refused(dp.ModelError, expected, lambda x, y: [x + z == y])


def test_a_twin_of_a_variable_is_refused():
    twin = cp.Variable(2, name="x")
    expected = ["Element 0 of coupling= uses variable 'x'", "the same Python object"]
    refused(
        dp.ModelError,
        [part.replace("the same", "same") for part in expected],
        lambda x, y: [twin == y],
    )


def test_entries_that_no_agent_holds_are_refused():
    x, y = cp.Variable(3, name="x"), cp.Variable(3, name="y")
    agents = [
        dp.Agent(cp.Minimize(cp.sum_squares(x[:2])), name="a"),
        dp.Agent(cp.Minimize(cp.sum_squares(y)), name="b"),
    ]
    with pytest.raises(dp.ModelError, match="variable 'x', or entries of it, that no agent has"):
        dp.Problem(agents, coupling=[x == y])
    assert dp.Problem(agents, coupling=[x[:2] == y[:2]])


def test_what_the_refusals_advise_works():
    x, y, z = cp.Variable(2, name="x"), cp.Variable(2, name="y"), cp.Variable(2, name="z")
    agents = [
        dp.Agent(cp.Minimize(cp.sum_squares(x) + 0 * cp.sum(z)), name="a"),
        dp.Agent(cp.Minimize(cp.sum_squares(y)), [x >= 0], name="b"),
    ]
    assert dp.Problem(agents, coupling=[x + z == y])


@pytest.mark.parametrize("method", [dp.LinearizedADMM(), dp.ADMM()], ids=["linearized", "ADMM"])
def test_methods_that_agree_on_shared_variables_take_no_coupling(method):
    x, y = cp.Variable(2, name="x"), cp.Variable(2, name="y")
    with pytest.raises(
        dp.ModelError, match=f"dp.{type(method).__name__} lets agents agree.*dp.ResourceADMM"
    ):
        tied([x == y], x, y).plan(method, epsilon=1.0, delta=1e-6)


def test_the_central_problem_keeps_the_coupling():
    x, y = cp.Variable(2, name="x"), cp.Variable(2, name="y")
    d = dp.Private([1.0, -0.2], name="d", adjacency=dp.Within(0.1))
    central = dp.not_private.joint_problem(tied([x == y], x, y, d))
    central.solve(cp.CLARABEL)
    assert x.value == pytest.approx([0.5, 0.0], abs=1e-5)
    assert y.value == pytest.approx(x.value, abs=1e-7)


def test_matrices_of_random_affine_expressions():
    rng = np.random.default_rng(9)
    x, Y = cp.Variable(3, name="x"), cp.Variable((3, 2), name="Y")
    layout = layout_of([cp.sum(Y) + cp.sum(x)])
    for _ in range(10):
        L, R, b = rng.normal(size=(2, 3)), rng.normal(size=(2, 2)), rng.normal(size=(2, 2))
        column = rng.normal(size=(1, 2))
        expression = L @ Y @ R + cp.reshape(L @ x, (2, 1), order="F") @ column
        coupling = coupling_of([expression == b])
        v = rng.normal(size=9)
        assign(expression, layout, v)
        assert coupling.of(layout) @ v == pytest.approx(raveled(expression))
        assert coupling.right == pytest.approx(b.ravel(order="F"))


def test_private_data_in_couplings_are_told_where_to_go():
    x, y = cp.Variable(2, name="x"), cp.Variable(2, name="y")
    need = dp.Private([1.0, 2.0], name="need", adjacency=dp.Within(0.1))

    def agents(*limits):
        one = dp.Agent(cp.Minimize(cp.sum_squares(x)), [x <= 9, *limits], name="one")
        return [one, dp.Agent(cp.Minimize(cp.sum_squares(y - 1)), [y <= 9], name="other")]

    with pytest.raises(dp.PrivacyError) as refused:
        dp.Problem(agents(), coupling=[x + y >= need])
    text = str(refused.value)
    assert "[x + y >= need]" in text and "violation_probability=0.01" in text
    # What it says works.
    plan = dp.Problem(agents(x + y >= need)).plan(
        epsilon=1.0, delta=1e-6, violation_probability=1e-6
    )
    result = plan.run(seed=1, verbose=False)
    assert dp.not_private.violation(plan.problem, result.solution) < 1e-6
