"""Affine maps and cone forms from cvxpy; no other module requests cvxpy's matrices.

Only the documented `Problem.get_problem_data` is used, always on copies. These have the values of
public parameters and zeros for private ones, so nothing that cvxpy caches depends on private data.
`dpcvx.run.recourse` alone passes copies with private values, and drops them.

`narrowed` rewrites an agent's expressions over the entries that it holds, instead of over whole
variables. In a large network, the variables of a zone are small parts of variables of the whole
network, and cvxpy takes time in proportion to the whole variable for every index.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ..errors import ModelError
from .layout import Layout, is_sparse, picked, whole_matrices
from .private import Private
from .structure import Opaque, digest_of

# Attributes whose canonical variable has fewer entries than the user's.
_REDUCING = ("symmetric", "PSD", "NSD", "diag")


@dataclass(frozen=True)
class Cones:
    """Sizes of the cones of ``A x + s = b, s in K``, in the order of the rows.

    Attributes
    ----------
    zero, nonneg : int
        Rows of equalities and of inequalities.
    soc : tuple of int
        Size of every second-order cone.
    psd : tuple of int
        Order of every semidefinite cone (scaled upper triangles).
    exp : int
        Number of exponential cones (three rows each).
    power : tuple of float
        Exponents of the three-dimensional power cones.
    power_nd : tuple of tuple of float
        Exponents of the generalized power cones.
    """

    zero: int = 0
    nonneg: int = 0
    soc: tuple[int, ...] = ()
    psd: tuple[int, ...] = ()
    exp: int = 0
    power: tuple[float, ...] = ()
    power_nd: tuple[tuple[float, ...], ...] = ()

    def blocks(self) -> list[tuple[str, int]]:
        """Return type and number of rows of every cone; each (in)equality row counts as a cone."""
        rows: list[tuple[str, int]] = [("zero", 1)] * self.zero + [("nonneg", 1)] * self.nonneg
        rows += [("soc", n) for n in self.soc]
        rows += [("psd", n * (n + 1) // 2) for n in self.psd]
        rows += [("exp", 3)] * self.exp
        rows += [("power", 3) for _ in self.power]
        rows += [("power_nd", len(a) + 1) for a in self.power_nd]
        return rows

    @property
    def polyhedral(self) -> bool:
        """Return whether all rows of the cone program are equalities and inequalities."""
        return not (self.soc or self.psd or self.exp or self.power or self.power_nd)

    def __str__(self) -> str:
        parts = [
            f"{self.zero} zero" if self.zero else "",
            f"{self.nonneg} nonneg" if self.nonneg else "",
            f"{len(self.soc)} soc" if self.soc else "",
            f"{len(self.psd)} psd" if self.psd else "",
            f"{self.exp} exp" if self.exp else "",
            f"{len(self.power) + len(self.power_nd)} power" if self.power + self.power_nd else "",
        ]
        return ", ".join(p for p in parts if p) or "none"


@dataclass(frozen=True, eq=False)
class ConeData:
    """Cone program: minimize ``1/2 y'P y + q'y`` subject to ``A y + s = b``, s in cones.

    The vector y consists of the agent's vector x and auxiliary variables.
    """

    P: sp.csc_array  # shape (N, N); symmetric, positive semidefinite
    q: NDArray[np.float64]  # shape (N,)
    A: sp.csc_array  # shape (m, N)
    b: NDArray[np.float64]  # shape (m,)
    cones: Cones
    n: int  # the first n columns are the agent's vector x in its own order


def public_copy(tree: Any, parameters: Sequence[cp.Parameter]) -> Any:
    """Copy a cvxpy objective, expression or constraint, with parameters replaced by constants.

    A public parameter is replaced by its value, and a private parameter by zero.

    Raises
    ------
    ModelError
        If a public parameter has no value.
    """
    constants: dict[int, cp.Constant] = {}
    for parameter in parameters:
        if isinstance(parameter, Private):
            constants[id(parameter)] = cp.Constant(np.zeros(parameter.shape))
        elif parameter.value is None:
            raise ModelError(
                f"Public parameter '{parameter.name()}' has no value, so the model has no numbers "
                f"to plan with. Set {parameter.name()}.value = ... before problem.plan(...)."
            )
        else:
            constants[id(parameter)] = cp.Constant(parameter.value)
    return tree.tree_copy(constants) if constants else tree


def affine_map(
    expression: cp.Expression, arguments: Sequence[cp.Variable]
) -> tuple[sp.csr_array, NDArray[np.float64]]:
    """Return the matrix and offset of a parameter-free affine expression of plain variables.

    Returns
    -------
    M : csr_array, shape (size of expression, total size of arguments)
        Matrix, column-major on both sides, with columns in the order of `arguments`.
    offset : ndarray, shape (size of expression,)

    Raises
    ------
    ModelError
        If cvxpy needs auxiliary variables for the expression.
    """
    # For `expression >= 0` the slack s = b - A y is the expression itself, whatever the atoms.
    data, columns = _problem_data(cp.Constant(0), [expression >= 0], arguments)
    if data["A"].shape != (expression.size, columns.size):
        raise ModelError(
            f"cvxpy introduces auxiliary variables for the affine atom "
            f"'{type(expression).__name__}', so its matrix cannot be read off. Write the term with "
            "matrix products and indexing instead."
        )
    M = -sp.csc_array(data["A"])[:, columns]
    return sp.csr_array(M), np.asarray(data["b"], dtype=float)


def cone_data(
    objective: cp.Expression | None,
    constraints: Sequence[cp.Constraint],
    variables: Sequence[cp.Variable],
    layout: Layout,
) -> ConeData:
    """Return the cone program of constraints, and of an objective if there is one.

    Objective and constraints have no parameters.

    Parameters
    ----------
    objective : cvxpy expression or None
        Convex objective; None for an objective of zero.
    constraints : sequence of cvxpy constraints
        Constraints, without the attributes of `variables`, which are added.
    variables : sequence of cvxpy variables
        Variables, one per piece of `layout`, in its order. Columns of entries that the agent does
        not hold are removed; only bounds from attributes can touch them.
    layout : Layout
    """
    if objective is None and not constraints and not any(restricted(v) for v in variables):
        n = layout.size  # a shortcut, since models may have a thousand agents without constraints
        empty = sp.csc_array((n, n)), np.zeros(n), sp.csc_array((0, n)), np.zeros(0)
        return ConeData(*empty, Cones(), n)
    f = cp.Constant(0) if objective is None else objective
    (f, *limits), held, its_layout = narrowed([f, *constraints], variables, layout)
    return _held(*_problem_data(f, limits, held), held, its_layout)


def cone_data_at(
    constraint: cp.Constraint,
    parameters: Sequence[cp.Parameter],
    points: Iterable[Sequence[NDArray[np.float64]]],
    variables: Sequence[cp.Variable],
    layout: Layout,
) -> Iterator[ConeData]:
    """Yield the cone program of a constraint for each set of parameter values.

    Parameters
    ----------
    constraint : cvxpy constraint
        Constraint that follows cvxpy's rules for parameters (DPP): only coefficients change.
    parameters : sequence of cvxpy.Parameter
        All parameters of the constraint.
    points : iterable of sequences of ndarray
        Values of all parameters, for one cone form each.
    variables, layout
        Arguments of `cone_data`.
    """
    posed: _Posed | None = None
    for values in points:
        for parameter, value in zip(parameters, values, strict=True):
            parameter.value = value
        if posed is None:
            posed = _posed(cp.Constant(0), [constraint], variables)
        yield _held(*_read_off(posed), variables, layout)


class Structures:
    """Cache of cone programs: objectives that differ only in numbers are canonicalized once.

    The second objective of a structure is canonicalized with parameters in place of its arrays, and
    later ones only set these parameters. The matrices equal the results of `cone_data`.
    """

    def __init__(self) -> None:
        self._templates: dict[bytes, _Template] = {}

    def cone_data(
        self,
        objective: cp.Expression,
        constraints: Sequence[cp.Constraint],
        variables: Sequence[cp.Variable],
        layout: Layout,
    ) -> ConeData:
        """Return the cone program of an objective; see the function `cone_data` for parameters."""
        given = objective, constraints, variables, layout
        arrays = [c for c in objective.constants() if _stands_for_numbers(c)]
        if not arrays or sum(c.size for c in arrays) > _PARAMETERS:
            return cone_data(*given)
        # Different values tell the parameters apart in digests.
        named = [cp.Parameter(c.shape, **_sign(c)) for c in arrays]
        for k, (parameter, c) in enumerate(zip(named, arrays, strict=True)):
            parameter.value = np.full(c.shape, (k + 1.0) * (-1.0 if c.is_nonpos() else 1.0))
        tree = objective.tree_copy(
            {id(c): parameter for c, parameter in zip(arrays, named, strict=True)}
        )
        signs = [(c.is_nonneg(), c.is_nonpos()) for c in arrays]
        pieces = [(piece.shape, piece.entries) for piece in layout.pieces]
        places = {v.id: f"x{k}" for k, v in enumerate(variables)}
        try:
            key = digest_of((tree, list(constraints), list(variables), signs, pieces), places)
        except Opaque:
            return cone_data(*given)
        if key not in self._templates:
            self._templates[key] = _Template(tree, named, given)
            return cone_data(*given)
        return self._templates[key].at(arrays) or cone_data(*given)


def parameter_columns(
    objective: cp.Expression,
    constraints: Sequence[cp.Constraint],
    parameters: Sequence[cp.Parameter],
) -> sp.csr_array | None:
    """Return M such that a cone program is affine in ``M d``, where d are the parameter values.

    Parameters
    ----------
    objective : cvxpy expression
    constraints : sequence of cvxpy constraints
    parameters : sequence of cvxpy.Parameter
        All parameters of the problem.

    Returns
    -------
    csr_array, shape (m, total size of the parameters), or None
        None if the problem is not affine in its parameters by cvxpy's rules (DPP), or if cvxpy
        splits a parameter up.
    """
    problem: Any = cp.Problem(cp.Minimize(objective), [*constraints])
    if not problem.is_dcp(dpp=True):
        return None
    for parameter in parameters:
        parameter.value = np.full(parameter.shape, -1.0 if parameter.is_nonpos() else 1.0)
    try:
        with whole_matrices(problem.variables()):
            data, _, _ = problem.get_problem_data(cp.CLARABEL)
        compiled = data["param_prob"]
    except (cp.SolverError, ArithmeticError, ValueError):
        return None
    finally:
        for parameter in parameters:
            parameter.value = None
    parts = [compiled.q, compiled.reduced_A.reduced_mat]
    if compiled.P is not None:
        parts.append(compiled.reduced_P.reduced_mat)
    rows, columns = sp.csc_array(sp.vstack([sp.csr_array(part) for part in parts])), []
    for parameter in parameters:
        first = compiled.param_id_to_col.get(parameter.id)
        if first is None:
            return None
        columns.append(rows[:, first : first + parameter.size])
    read = sp.csr_array(sp.hstack(columns))
    return sp.csr_array(read[np.flatnonzero(np.diff(read.indptr))])


def require_solver(problem: cp.Problem, solver: str | None, geometric: bool) -> None:
    """Raise cvxpy's error if no solver accepts a problem of public data, without solving it.

    Parameters
    ----------
    problem : cvxpy.Problem
    solver : str or None
        Name of the solver; cvxpy's choice if None.
    geometric : bool
        Whether the problem is a geometric program.
    """
    problem.get_problem_data(solver, gp=geometric)


def _held(
    data: dict[str, Any],
    columns: NDArray[np.intp],
    variables: Sequence[cp.Variable],
    layout: Layout,
) -> ConeData:
    """Return cvxpy's solver data as `ConeData`, with columns of the agent's entries only."""
    A, b, cones = sp.csc_array(data["A"]), np.asarray(data["b"], float), _cones(data["dims"])
    A = A if A.has_sorted_indices else A.sorted_indices()
    N = A.shape[1]
    P = sp.csc_array((N, N)) if data.get("P") is None else sp.csc_array(data["P"])
    q = np.asarray(data["c"], dtype=float).copy()
    q[columns] -= 1.0  # the term that _problem_data adds to keep every column

    starts = np.cumsum([0] + [_entries(v) for v in variables])[:-1]
    held = np.concatenate(
        [columns[s + p.entries] for s, p in zip(starts, layout.pieces, strict=True)]
    )
    # Only bounds from attributes touch columns that are not held. These may be most columns, so the
    # rows that touch them are found at once.
    absent, auxiliary = np.zeros(N, dtype=bool), np.ones(N, dtype=bool)
    absent[columns], auxiliary[columns] = True, False
    absent[held] = False
    A, b, cones = _without_rows(A, b, cones, A.indices[np.repeat(absent, np.diff(A.indptr))])
    # A row with an infinite bound is no constraint.
    loose = cones.zero + np.flatnonzero(b[cones.zero : cones.zero + cones.nonneg] == np.inf)
    A, b, cones = _without_rows(A, b, cones, loose)
    if not all(np.isfinite(part).all() for part in (A.data, b, P.data, q)):
        raise ModelError(
            f"The constraints or the objective on variables "
            f"{', '.join(p.name for p in layout.pieces)} contain NaN or infinite coefficients, so "
            "they define no set and no function. Clean the data they are built from."
        )
    order = np.concatenate([held, np.flatnonzero(auxiliary)])
    return ConeData(
        sp.csc_array(P[order][:, order]), q[order], sp.csc_array(A[:, order]), b, cones, layout.size
    )


def with_equalities(data: ConeData, rows: sp.csr_array, right: NDArray[np.float64]) -> ConeData:
    """Return the program with the equalities ``rows @ x == right`` for the agent's vector x.

    Parameters
    ----------
    data : ConeData
    rows : csr_array, shape (k, n)
    right : ndarray, shape (k,)
    """
    k, N = rows.shape[0], data.A.shape[1]
    wide = sp.csr_array((rows.data, rows.indices, rows.indptr), shape=(k, N))
    return replace(
        data,
        A=sp.csc_array(sp.vstack([wide, data.A])),
        b=np.concatenate([right, data.b]),
        cones=replace(data.cones, zero=data.cones.zero + k),
    )


@dataclass(frozen=True, eq=False)
class _Posed:
    """A cvxpy problem whose columns belong to known variables, one for each user's variable."""

    problem: cp.Problem
    plain: tuple[cp.Variable, ...]
    backend: str | None


# Largest number of entries of arrays that become parameters: each entry adds a column to a matrix
# with as many rows as the program has numbers.
_PARAMETERS = 3_000


class _Template:
    """Objective and constraints with parameters in place of arrays, compiled at first use."""

    def __init__(
        self,
        objective: cp.Expression,
        parameters: Sequence[cp.Parameter],
        given: tuple[Any, Sequence[cp.Constraint], Sequence[cp.Variable], Layout],
    ) -> None:
        self._objective, self._parameters, self._given = objective, parameters, given
        self._posed: _Posed | None = None
        self._held: tuple[tuple[cp.Variable, ...], Layout] | None = None
        self._affine: bool | None = None  # whether it is affine in the parameters (DPP)

    def at(self, arrays: Sequence[cp.Constant]) -> ConeData | None:
        """Return the cone program for these arrays; None if it is not affine in the arrays."""
        _, constraints, variables, layout = self._given
        if self._posed is None or self._held is None:
            trees = [self._objective, *constraints]
            (tree, *limits), held, its_layout = narrowed(trees, variables, layout)
            posed = _posed(tree, limits, held)
            self._held, self._posed = (held, its_layout), posed
            self._affine = posed.backend is None and cast(Any, posed.problem).is_dcp(dpp=True)
        if not self._affine:
            return None
        for parameter, c in zip(self._parameters, arrays, strict=True):
            parameter.value = c.value
        return _held(*_read_off(self._posed), *self._held)


def _stands_for_numbers(c: cp.Constant) -> bool:
    """Return whether a parameter may replace a constant array: finite, without zeros to omit."""
    value = c.value
    full = isinstance(value, np.ndarray) and value.dtype.kind == "f" and value.size > 1
    return full and bool(np.isfinite(value).all() and value.all())


def _sign(c: cp.Constant) -> dict[str, Any]:
    return {"nonneg": True} if c.is_nonneg() else {"nonpos": True} if c.is_nonpos() else {}


def _problem_data(
    objective: cp.Expression, constraints: Sequence[cp.Constraint], variables: Sequence[cp.Variable]
) -> tuple[dict[str, Any], NDArray[np.intp]]:
    """Return cvxpy's solver data, and the column of every entry of `variables`, in order.

    The sum of all variables' entries is added to the objective, so that cvxpy drops no column.
    """
    return _read_off(_posed(objective, constraints, variables))


def _entries(variable: cp.Variable) -> int:
    """Return the number of real entries of a variable."""
    return 2 * variable.size if variable.is_complex() else variable.size


def _posed(
    objective: cp.Expression, constraints: Sequence[cp.Constraint], variables: Sequence[cp.Variable]
) -> _Posed:
    extra: list[cp.Constraint] = []
    plain: list[cp.Variable] = []
    for variable in variables:
        if variable.is_complex():
            flat = cp.vec(variable, order="F")
            copy = cp.Variable(_entries(variable))
            extra.append(copy == cp.hstack([cp.real(flat), cp.imag(flat)]))
            plain.append(copy)
        elif _reduced(variable):
            copy = cp.Variable(variable.shape)
            extra.append(copy == variable)
            plain.append(copy)
        else:
            plain.append(variable)
    total = objective + sum(cp.sum(v) for v in plain)
    problem = cp.Problem(cp.Minimize(total), [*constraints, *extra])
    # If an expression has three dimensions, cvxpy warns and falls back to this backend.
    trees = [problem.objective, *problem.constraints]
    backend = cp.SCIPY_CANON_BACKEND if max(t._max_ndim() for t in trees) > 2 else None
    return _Posed(problem, tuple(plain), backend)


def _reduced(variable: cp.Variable) -> bool:
    """Return whether a variable's attributes force entries to be zero or equal to others."""
    return is_sparse(variable) or any(variable.attributes[a] for a in _REDUCING)


def _read_off(posed: _Posed) -> tuple[dict[str, Any], NDArray[np.intp]]:
    with whole_matrices(posed.problem.variables()):
        data, chain, _ = posed.problem.get_problem_data(
            cp.CLARABEL, solver_opts={}, canon_backend=posed.backend
        )
    first = cast(Any, data["param_prob"]).var_id_to_col
    columns: list[NDArray[np.intp]] = []
    for variable in posed.plain:
        key = variable.id
        for reduction in cast(Any, chain).reductions:
            renamed = getattr(reduction, "var_id_map", None) or {}
            key = renamed[key][0] if key in renamed else key
        columns.append(first[key] + np.arange(variable.size))
    return data, np.concatenate(columns) if columns else np.zeros(0, dtype=int)


def _cones(dims: Any) -> Cones:
    return Cones(
        zero=int(dims.zero),
        nonneg=int(dims.nonneg),
        soc=tuple(int(n) for n in dims.soc),
        psd=tuple(int(n) for n in dims.psd),
        exp=int(dims.exp),
        power=tuple(float(a) for a in dims.p3d),
        power_nd=tuple(tuple(float(a) for a in row) for row in dims.pnd),
    )


def _without_rows(
    A: sp.csc_array, b: NDArray[np.float64], cones: Cones, rows: NDArray[np.intp]
) -> tuple[sp.csc_array, NDArray[np.float64], Cones]:
    """Return a cone program's A, b and cones without some equality and inequality rows."""
    if not rows.size:
        return A, b, cones
    keep = np.ones(A.shape[0], dtype=bool)
    keep[rows] = False
    nonneg = int(keep[cones.zero : cones.zero + cones.nonneg].sum())
    reduced = replace(cones, zero=int(keep[: cones.zero].sum()), nonneg=nonneg)
    return sp.csc_array(A.tocsr()[np.flatnonzero(keep)]), b[keep], reduced


def narrowed(
    trees: Sequence[Any], variables: Sequence[cp.Variable], layout: Layout
) -> tuple[list[Any], tuple[cp.Variable, ...], Layout]:
    """Return trees over smaller variables that stand for the entries that an agent holds.

    Variables with attributes stay as they are, since attributes may constrain every entry.

    Parameters
    ----------
    trees : sequence of cvxpy objectives, expressions or constraints
    variables : sequence of cvxpy variables
        One per piece of `layout`, in its order.
    layout : Layout

    Returns
    -------
    trees : list
        Copies of the trees, or the trees themselves if no variable is replaced.
    variables : tuple of cvxpy variables
    layout : Layout
        Layout of the agent's entries of these variables.
    """
    small = {
        v.id: (cp.Variable(piece.entries.size, name=piece.name), piece.entries)
        for v, piece in zip(variables, layout.pieces, strict=True)
        if not (piece.full or restricted(v))
    }
    if not small:
        return [*trees], tuple(variables), layout
    places: dict[int, Any] = {}

    def look(node: Any) -> None:
        chosen = picked(node) if node.args else None
        if chosen is None or chosen[0].id not in small:
            for arg in node.args:
                look(arg)
        elif id(node) not in places:
            part, entries = small[chosen[0].id]
            places[id(node)] = _entries_of(part, np.searchsorted(entries, chosen[1]))

    for tree in trees:
        look(tree)
    held = tuple(small.get(v.id, (v,))[0] for v in variables)
    pieces = tuple(
        replace(piece, variable=v.id, shape=v.shape, entries=np.arange(v.size))
        if piece.variable in small
        else piece
        for v, piece in zip(held, layout.pieces, strict=True)
    )
    return [tree.tree_copy(places) for tree in trees], held, Layout(pieces)


def _entries_of(variable: cp.Variable, entries: NDArray[np.intp]) -> cp.Expression:
    """Return entries of a vector in the shape of their indices."""
    if entries.ndim == 1:
        whole = np.array_equal(entries, np.arange(variable.size))
        return variable if whole else variable[entries]
    return cp.reshape(variable[entries.ravel(order="F")], entries.shape, order="F")


def restricted(variable: cp.Variable) -> bool:
    """Return whether a variable has attributes, such as bounds."""
    return any(a is not None and a is not False for a in variable.attributes.values())
