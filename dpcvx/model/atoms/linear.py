"""Linear atoms of cvxpy, by the names of its classes: as matrices, and as sums of terms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from ..matrices import Matrix, as_array, compact
from . import class_rule

# Atoms that only move entries about; where each output entry comes from is read off by running
# the atom on entry numbers.
_MOVES = {
    "index", "special_index", "reshape", "transpose", "Hstack", "Vstack", "Concatenate",
    "Promote", "broadcast_to", "diag_vec", "diag_mat", "upper_tri", "real", "conj",
}  # fmt: skip
# Those of one argument that may keep all of its entries in their order.
_TURNS = {"index", "special_index", "reshape", "transpose"}
# Classes that work entry by entry, so that cvxpy broadcasts their terms.
_BY_ENTRY = {"AddExpression", "DivExpression", "multiply", "Elementwise", "Inequality", "Equality"}


def _is(node: Any, *names: str) -> bool:
    """Whether an object is of one of cvxpy's classes, or of one that is made of it."""
    return any(kind.__name__ in names for kind in type(node).__mro__)


def adds(expr: Any) -> bool:
    """Whether an expression is the sum of its arguments."""
    return type(expr).__name__ == "AddExpression"


def scales(expr: Any) -> bool:
    """Whether an expression is linear in an argument if the others are constant."""
    rule = class_rule(expr)
    return rule is not None and bool(rule.linear_in)


def negated(expr: Any) -> cp.Expression | None:
    """Return u of ``-u``; None for other expressions."""
    return expr.args[0] if type(expr).__name__ == "NegExpression" else None


def minus(size: int) -> Matrix:
    """Return the matrix that changes the sign of so many entries."""
    return -sp.eye_array(size, format="csr")


def maps(expr: Any) -> list[Matrix] | None:
    """Return one matrix per argument, which add up to the value; None if there are none.

    Products are left out: see `linear_map` of their rules.
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
    """Return u of an expression with the entries of u in their order, in another shape, or None."""
    if type(expr).__name__ not in _TURNS or expr.size != expr.args[0].size:
        return None
    own = np.arange(expr.size)
    numbers = own.reshape(expr.args[0].shape, order="F")
    turned = np.ravel(as_array(expr.numeric([numbers])), order="F")
    return expr.args[0] if np.array_equal(turned, own) else None


def _moves(expr: Any) -> list[Matrix]:
    """Selections (number 0 stands for a zero)."""
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
    """Return terms that add up to a scalar expression; factors are multiplied out.

    Parameters
    ----------
    expr : cvxpy expression
    fixed : callable
        Whether a factor stays as it is.
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
    """Whether cvxpy makes the terms of an expression or a constraint as large as each other."""
    return _is(node, *_BY_ENTRY)


def before_broadcast(term: Any) -> Any:
    """Return a term before cvxpy made it as large as those that it meets."""
    while _is(term, "broadcast_to"):
        term = term.args[0]
    return term


def before_ones(term: Any) -> Any:
    """Return the same of a matrix that meets another one: cvxpy multiplies both by ones."""
    if _is(term, "MulExpression") and term.ndim == 2:
        for other, ones in (term.args, reversed(term.args)):
            if isinstance(ones, cp.Constant) and 1 in ones.shape and np.all(ones.value == 1):
                return other
    return term


def is_perspective(node: Any) -> bool:
    """Whether an atom holds an expression which cvxpy does not copy with it."""
    return _is(node, "perspective")
