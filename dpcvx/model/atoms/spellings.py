r"""Rewriting of cvxpy expressions so that equal functions have equal trees.

A spelling of a function is a way to write it in cvxpy. Users write a sum of squares as
``cp.sum_squares(r)``, ``cp.norm(r)**2`` or ``r @ r``. Bounds, defaults and cvxpy's own convexity
rules look at atoms, so they would differ between spellings. Each rule here is an identity of
functions that holds for all values of variables and data,

.. math:: \|r\|_2^2 = r'r = \sum_i r_i^2, \quad |u|^2 = u^2, \quad \max(u, -u) = |u|,

and depends on the tree and on public constants alone. `dpcvx.model.like_terms` gives one form to
objectives whose trees differ otherwise, such as a Python loop over records.

Other functions return linear atoms as matrices, or expressions as sums of terms. All of them
recognize atoms by the names of cvxpy's classes.

`copyable` prepares copies of ``cp.perspective`` together with its function, for copies of models.
cvxpy copies an atom with its arguments only, and the function of a perspective is no argument.
cvxpy compiles an atom by its class, so the copy has the same class, with methods of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar, cast

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from ...errors import ModelError
from ..matrices import Matrix, as_array, compact
from ..private import Private
from ..structure import Opaque, digest_of, nodes_of
from . import class_rule

Rewriting = Callable[[Any], cp.Expression | None]


def plain(expression: cp.Expression) -> cp.Expression:
    """Rewrite an expression so that equal functions have equal trees; its value stays equal.

    Parameters
    ----------
    expression : cvxpy expression
        Expression of real numbers. Parts without variables stay as they are.

    Returns
    -------
    cvxpy expression
        The expression itself if no part of it is rewritten.
    """
    # Nodes are kept, so that no new object reuses an id.
    seen: dict[int, tuple[Any, Any]] = {}

    def visit(node: Any) -> Any:
        if not node.args:
            return node
        if id(node) not in seen:
            args = [visit(arg) for arg in node.args]
            same = all(a is b for a, b in zip(args, node.args, strict=True))
            seen[id(node)] = node, _rewritten(node if same else node.copy(args))
        return seen[id(node)][1]

    return visit(expression)


def _rewritten(node: Any) -> Any:
    rule = _RULES.get(type(node).__name__.removesuffix("Approx"))
    plain_form = None if rule is None else rule(node)
    return node if plain_form is None or not node.variables() else plain_form


def _is(node: Any, name: str) -> bool:
    return type(node).__name__.removesuffix("Approx") == name


def _is_power(node: Any, p: float) -> bool:
    return _is(node, "Power") and node.p.value is not None and float(node.p.value) == p


def _square(node: Any) -> Any:
    """Rewrite ``cp.norm(u)**2`` as ``cp.sum_squares(u)``, ``cp.abs(u)**2`` as ``cp.square(u)``.

    Also rewrite ``cp.norm(u, 3)**3`` as ``cp.sum(cp.abs(u)**3)``.
    """
    (inner,) = node.args
    if not _is_power(node, 2):
        powers = _is(inner, "Pnorm") and inner.axis is None and not inner.keepdims
        same = powers and inner.p > 1 and _is_power(node, float(inner.p))
        return cp.sum(cp.power(cp.abs(_entries(inner.args[0])), inner.p)) if same else None
    if _is(inner, "abs"):
        return cp.square(inner.args[0])
    # All norms of one number are its magnitude.
    single = inner.ndim == 0 and [u.size for u in inner.args] == [1]
    if single and any(_is(inner, kind) for kind in ("Pnorm", "norm1", "norm_inf")):
        return _squares(inner.args[0])
    if _is(inner, "Pnorm") and inner.p == 2:
        return _squares(inner.args[0], inner.axis, inner.keepdims)
    return None


def _squares(u: Any, axis: Any = None, keepdims: bool = False) -> cp.Expression:
    if axis is None and not keepdims:
        return cp.sum_squares(_entries(u))
    return cp.sum_squares(u, axis=axis, keepdims=keepdims)


def _product(node: Any) -> cp.Expression | None:
    """Rewrite ``r @ r`` as ``cp.sum_squares(r)``, for a vector, or for a row and a column.

    Also rewrite ``y @ (X @ w)`` of private y and X as a sum of entrywise products, with one row per
    record.
    """
    left, right = node.args
    if node.size != 1 or left.size != right.size or left.size == 1:
        return None
    first, second = _entries(left), _entries(right)
    total: Any
    if _equal(first, second):
        total = _squares(first)
    elif all(map(_holds_private, (first, second))) and not (left.variables() and right.variables()):
        total = cp.sum(cp.multiply(_vector(first), _vector(second)))
    else:
        return None
    return total if node.ndim == 0 else cp.reshape(total, node.shape, order="F")


def _holds_private(node: Any) -> bool:
    return any(isinstance(leaf, Private) for leaf in node.parameters())


def _vector(node: Any) -> Any:
    return node if node.ndim == 1 else cp.vec(node, order="F")


def _entries(node: Any) -> Any:
    """Return an expression with the same entries in the same order, whatever its shape."""
    inner = reshaped(node)
    return node if inner is None else _entries(inner)


def _multiplied(node: Any) -> cp.Expression | None:
    """Rewrite ``cp.multiply(u, u)`` as ``cp.square(u)``."""
    left, right = node.args
    return cp.square(left) if left.shape == right.shape and _equal(left, right) else None


def _sum(node: Any) -> cp.Expression | None:
    """Rewrite ``cp.sum(cp.square(u))`` as ``cp.sum_squares(u)``.

    Also rewrite ``cp.sum(cp.abs(u))`` as ``cp.norm1(u)``.
    """
    (inner,) = node.args
    if inner.size == 1 or (node.axis is not None and inner.ndim > 1) or node.ndim > 0:
        return None
    if _is_power(inner, 2):
        return _squares(inner.args[0])
    return cp.norm1(_entries(inner.args[0])) if _is(inner, "abs") else None


def _quad_form(node: Any) -> cp.Expression | None:
    """Rewrite a quadratic form with a nonnegative diagonal matrix as a sum of weighted squares."""
    x, P = node.args
    if not P.is_constant() or P.parameters() or not x.is_affine():
        return None
    values = P.value
    if sp.issparse(values):
        weights = np.asarray(values.diagonal(), dtype=float)
        beside = values.count_nonzero() > np.count_nonzero(weights)
    else:
        weights = np.diagonal(np.asarray(values)).astype(float)
        beside = np.count_nonzero(values) > np.count_nonzero(weights)
    if beside or not np.isfinite(weights).all() or weights.min() < 0:
        return None
    if (weights == weights[0]).all():
        total = _squares(x)
        return total if weights[0] == 1 else float(weights[0]) * total
    return weights @ cp.square(x if x.ndim == 1 else cp.vec(x, order="F"))


def _divided(node: Any) -> cp.Expression | None:
    """Rewrite ``cp.quad_over_lin(u, c)`` with a constant c > 0 as ``cp.sum_squares(u) / c``."""
    u, c = node.args
    if not c.is_constant() or c.parameters() or c.size != 1:
        return None
    divisor = float(np.asarray(c.value, dtype=float).item())
    if divisor == 1:
        same = node.axis is not None or node.keepdims or _entries(u) is u
        return None if same else _squares(u)
    return _squares(u, node.axis, node.keepdims) / divisor if 0 < divisor < np.inf else None


def _magnitudes(node: Any) -> cp.Expression | None:
    """Rewrite ``cp.norm1`` of a reshaped expression as ``cp.norm1`` of the expression."""
    (u,) = node.args
    same = node.axis is not None or node.keepdims or _entries(u) is u
    return None if same else cp.norm1(_entries(u))


def _maximum(node: Any) -> cp.Expression | None:
    """Rewrite ``cp.maximum(u, -u)`` as ``cp.abs(u)``."""
    if len(node.args) != 2:
        return None
    for u, other in (node.args, node.args[::-1]):
        inner = negated(other)
        if inner is not None and u.shape == inner.shape and _equal(u, inner):
            return cp.abs(u)
    return None


def _equal(first: Any, second: Any) -> bool:
    """Return whether two expressions have equal nodes, so they compute equal values."""
    if first is second:
        return True
    if first.shape != second.shape or type(first) is not type(second):
        return False
    leaves = [*first.variables(), *first.parameters(), *second.variables(), *second.parameters()]
    if any(not isinstance(leaf, (cp.Variable, Private)) for leaf in leaves):
        return False  # the value of a public parameter may be set later
    places = {leaf.id: f"{leaf.id}" for leaf in leaves}
    try:
        return digest_of(first, places) == digest_of(second, places)
    except Opaque:
        return False


_RULES: dict[str, Rewriting] = {
    "Power": _square,
    "MulExpression": _product,
    "multiply": _multiplied,
    "Sum": _sum,
    "QuadForm": _quad_form,
    "quad_over_lin": _divided,
    "norm1": _magnitudes,
    "maximum": _maximum,
}

# Atoms that only move entries. Applied to the numbers of the entries, such an atom shows where each
# output entry comes from.
_MOVES = {
    "index", "special_index", "reshape", "transpose", "Hstack", "Vstack", "Concatenate",
    "Promote", "broadcast_to", "diag_vec", "diag_mat", "upper_tri", "real", "conj",
}  # fmt: skip
# Such atoms of one argument that may keep all of its entries in their order.
_TURNS = {"index", "special_index", "reshape", "transpose"}
# Classes that work entry by entry, so that cvxpy broadcasts their terms.
_BY_ENTRY = {"AddExpression", "DivExpression", "multiply", "Elementwise", "Inequality", "Equality"}


def _is_kind(node: Any, *names: str) -> bool:
    """Return whether an object's class, or a base class of it, has one of these names."""
    return any(kind.__name__ in names for kind in type(node).__mro__)


def adds(expr: Any) -> bool:
    """Return whether an expression is the sum of its arguments."""
    return type(expr).__name__ == "AddExpression"


def scales(expr: Any) -> bool:
    """Return whether an expression is linear in one argument if all others are constant."""
    rule = class_rule(expr)
    return rule is not None and bool(rule.linear_in)


def negated(expr: Any) -> cp.Expression | None:
    """Return u if the expression is ``-u``, else None."""
    return expr.args[0] if type(expr).__name__ == "NegExpression" else None


def minus(size: int) -> Matrix:
    """Return the negative identity matrix with `size` rows."""
    return -sp.eye_array(size, format="csr")


def maps(expr: Any) -> list[Matrix] | None:
    """Return one matrix per argument of a linear atom; their images add up to its value.

    The result is None for other atoms, and for products: their rules have a `linear_map`.

    Products have no such matrices here; see `linear_map` of their rules.
    """
    kind = type(expr).__name__
    if kind == "NegExpression":
        return [minus(expr.size)]
    if kind in _MOVES:
        return _moves(expr)
    if kind == "Sum":
        return [_summation(expr)]
    if kind == "cumsum":  # cvxpy would canonicalize it with an auxiliary variable
        return [_running_sum(expr)]
    return None


def reshaped(expr: Any) -> cp.Expression | None:
    """Return u if the expression only reshapes u, with the entries in order; else None."""
    if type(expr).__name__ not in _TURNS or expr.size != expr.args[0].size:
        return None
    order = np.arange(expr.size)
    numbers = order.reshape(expr.args[0].shape, order="F")
    turned = np.ravel(as_array(expr.numeric([numbers])), order="F")
    return expr.args[0] if np.array_equal(turned, order) else None


def _moves(expr: Any) -> list[Matrix]:
    """Return, for an atom that moves entries, a matrix per argument that selects its entries.

    Source number 0 marks an entry that is zero.
    """
    starts = np.cumsum([1, *(a.size for a in expr.args[:-1])])
    pairs = list(zip(starts, expr.args, strict=True))
    numbers = [np.arange(start, start + a.size).reshape(a.shape, order="F") for start, a in pairs]
    source = np.ravel(as_array(expr.numeric(numbers)), order="F").astype(int)
    selections: list[Matrix] = []
    for start, a in pairs:
        rows = np.flatnonzero((source >= start) & (source < start + a.size))
        entry = (np.ones(rows.size), (rows, source[rows] - start))
        selections.append(sp.csr_array(entry, shape=(expr.size, a.size)))
    return selections


def _summation(expr: Any) -> sp.csr_array:
    shape = expr.args[0].shape
    target = np.arange(expr.size).reshape(expr.shape, order="F")
    if expr.axis is not None and not expr.keepdims:
        target = np.expand_dims(target, expr.axis)
    rows = np.ravel(np.broadcast_to(target, shape), order="F")
    # Column by column, which takes no sorting.
    columns = np.ones(rows.size), rows, np.arange(rows.size + 1)
    return sp.csr_array(sp.csc_array(columns, (expr.size, rows.size)))


def _running_sum(expr: Any) -> Matrix:
    units = np.eye(expr.size).reshape((*expr.shape, expr.size), order="F")
    summed = np.cumsum(units, axis=expr.axis)
    return compact(sp.csr_array(summed.reshape((expr.size, expr.size), order="F")))


def terms(expr: Any, fixed: Callable[[cp.Expression], bool]) -> list[cp.Expression]:
    """Return terms that add up to a scalar expression, after multiplying out its products.

    Parameters
    ----------
    expr : cvxpy expression
    fixed : callable
        Function that returns True for a factor that must not be split into terms.
    """
    args, inner = expr.args, negated(expr)
    if adds(expr) and all(a.shape == expr.shape for a in args):
        return [term for a in args for term in terms(a, fixed)]
    if inner is not None:
        return [-term for term in terms(inner, fixed)]
    rule = class_rule(expr)
    if rule is not None and rule.linear_in and all(a.is_scalar() for a in args):
        moving = [k for k, a in enumerate(args) if not fixed(a)]
        if len(moving) == 1 and moving[0] in rule.linear_in:
            parts = terms(args[moving[0]], fixed)
            return [expr.copy([p if a is args[moving[0]] else a for a in args]) for p in parts]
    return [expr]


def broadcasts(node: Any) -> bool:
    """Return whether cvxpy broadcasts the terms of an expression or constraint to one shape."""
    return _is_kind(node, *_BY_ENTRY)


def before_broadcast(term: Any) -> Any:
    """Return a term as it was before cvxpy broadcast it to another term's shape."""
    while _is_kind(term, "broadcast_to"):
        term = term.args[0]
    return term


def before_ones(term: Any) -> Any:
    """Return a matrix as it was before cvxpy multiplied it with ones to broadcast it."""
    if _is_kind(term, "MulExpression") and term.ndim == 2:
        for other, ones in (term.args, reversed(term.args)):
            # cvxpy's matrices of ones are dense; comparisons of sparse ones have no truth value.
            dense = isinstance(ones, cp.Constant) and not sp.issparse(ones.value)
            if dense and 1 in ones.shape and np.all(ones.value == 1):
                return other
    return term


def is_perspective(node: Any) -> bool:
    """Return whether an atom is ``cp.perspective``, whose function cvxpy does not copy with it."""
    return _is_kind(node, "perspective")


Tree = TypeVar("Tree")


def copyable(tree: Tree) -> Tree:
    """Return a tree whose copies of ``cp.perspective`` atoms include their functions.

    Parameters
    ----------
    tree : cvxpy objective or constraint
        Tree that is returned unchanged if it has no ``cp.perspective``.
    """
    places = {
        id(node): _held(node.f, node.args[0], node.f_recession)
        for node in nodes_of(tree)
        if is_perspective(node) and "tree_copy" not in vars(node)
    }
    if not places:
        return tree
    copy = cast(Any, tree).tree_copy(places)
    if isinstance(tree, cp.Constraint):
        copy.constr_id = tree.id  # shadow prices are read by this id
    return copy


def _held(f: cp.Expression, s: cp.Variable, recession: Any) -> Any:
    """Return a perspective of f and s that lists the parameters of f, and is copied with f."""
    atom: Any = cp.perspective(f, s, recession)
    methods = {"parameters": _parameters, "get_data": _data, "copy": _copy, "tree_copy": _tree_copy}
    vars(atom).update({name: partial(method, atom) for name, method in methods.items()})
    return atom


def _parameters(atom: Any) -> list[cp.Parameter]:
    both = (*(p for arg in atom.args for p in arg.parameters()), *atom.f.parameters())
    return list({p.id: p for p in both}.values())


def _data(atom: Any) -> list[Any]:
    return [atom.f, atom.f_recession]


def _copy(atom: Any, args: Any = None, id_objects: Any = None) -> Any:
    """Return a copy of a perspective with other arguments: first s, then the variables of f."""
    places = dict(id_objects or {})
    if args is not None:
        places |= {id(old): new for old, new in zip(atom.args, args, strict=True)}
    return _tree_copy(atom, places)


def _tree_copy(atom: Any, id_objects: Any = None) -> Any:
    places: Mapping[int, Any] = id_objects or {}
    if id(atom) in places:
        return places[id(atom)]
    s = atom.args[0].tree_copy(places)
    rest = None if atom.f_recession is None else atom.f_recession.tree_copy(places)
    if isinstance(s, cp.Variable):
        return _held(atom.f.tree_copy(places), s, rest)
    if not s.is_constant():
        raise ModelError(
            "cp.perspective(f, s) has an expression as s, and dpcvx needs a variable there. "
            "Write a scalar variable s. Neither an entry of another variable nor an equality "
            "with private data may define it."
        )
    value = float(cast(Any, s.value))
    if value <= 0:
        if rest is None:
            raise ModelError(
                "cp.perspective(f, s) has no value at s = 0 without a recession function. Write "
                "cp.perspective(f, s, f_recession=...), or s >= 0.001."
            )
        return rest
    inside = {id(v): v.tree_copy(places) / value for v in atom.f.variables()}
    return value * atom.f.tree_copy({**places, **inside})
