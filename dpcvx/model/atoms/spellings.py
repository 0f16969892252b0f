r"""One cvxpy expression for the spellings of one function.

Users write a sum of squares as ``cp.sum_squares(r)``, ``cp.norm(r)**2`` or ``r @ r``. Bounds,
defaults and cvxpy's own convexity rules look at atoms, so that they would differ between these.
Each rule here is an identity of functions that holds for all values of variables and data,

.. math:: \|r\|_2^2 = r'r = \sum_i r_i^2, \quad |u|^2 = u^2, \quad \max(u, -u) = |u|,

and depends on the tree and on public constants alone. `dpcvx.model.like_terms` does the same for
what a tree does not show, such as a Python loop over records.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from ..private import Private
from ..structure import Opaque, digest_of
from . import linear

Rewriting = Callable[[Any], cp.Expression | None]


def plain(expression: cp.Expression) -> cp.Expression:
    """Return an expression of the same value in which every function has one spelling.

    Parameters
    ----------
    expression : cvxpy expression
        Of real numbers. Parts without variables stay as they are.

    Returns
    -------
    cvxpy expression
        The same object if nothing is spelled otherwise.
    """
    # With the node itself, so that no other takes its place in memory.
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
    """``cp.norm(u)**2`` as ``cp.sum_squares(u)``, ``cp.abs(u)**2`` as ``cp.square(u)``.

    And ``cp.norm(u, 3)**3`` as ``cp.sum(cp.abs(u)**3)``.
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
    """``r @ r`` as ``cp.sum_squares(r)``, of a vector, or of a row and a column.

    And ``y @ (X @ w)`` of private y and X, entry by entry: every record then stands in its row.
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
    inner = linear.reshaped(node)
    return node if inner is None else _entries(inner)


def _multiplied(node: Any) -> cp.Expression | None:
    """``cp.multiply(u, u)`` as ``cp.square(u)``."""
    left, right = node.args
    return cp.square(left) if left.shape == right.shape and _equal(left, right) else None


def _sum(node: Any) -> cp.Expression | None:
    """``cp.sum(cp.square(u))`` as ``cp.sum_squares(u)``; of magnitudes as ``cp.norm1(u)``."""
    (inner,) = node.args
    if inner.size == 1 or (node.axis is not None and inner.ndim > 1) or node.ndim > 0:
        return None
    if _is_power(inner, 2):
        return _squares(inner.args[0])
    return cp.norm1(_entries(inner.args[0])) if _is(inner, "abs") else None


def _quad_form(node: Any) -> cp.Expression | None:
    """Of a diagonal matrix without negative entries, a weighted sum of squares."""
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
    """``cp.quad_over_lin(u, c)`` of a positive constant as ``cp.sum_squares(u) / c``."""
    u, c = node.args
    if not c.is_constant() or c.parameters() or c.size != 1:
        return None
    divisor = float(np.asarray(c.value, dtype=float).item())
    if divisor == 1:
        same = node.axis is not None or node.keepdims or _entries(u) is u
        return None if same else _squares(u)
    return _squares(u, node.axis, node.keepdims) / divisor if 0 < divisor < np.inf else None


def _magnitudes(node: Any) -> cp.Expression | None:
    """``cp.norm1`` of the same entries in another shape."""
    (u,) = node.args
    same = node.axis is not None or node.keepdims or _entries(u) is u
    return None if same else cp.norm1(_entries(u))


def _maximum(node: Any) -> cp.Expression | None:
    """``cp.maximum(u, -u)`` as ``cp.abs(u)``."""
    if len(node.args) != 2:
        return None
    for u, other in (node.args, node.args[::-1]):
        inner = linear.negated(other)
        if inner is not None and u.shape == inner.shape and _equal(u, inner):
            return cp.abs(u)
    return None


def _equal(one: Any, other: Any) -> bool:
    """Whether two expressions compute the same, node by node."""
    if one is other:
        return True
    if one.shape != other.shape or type(one) is not type(other):
        return False
    leaves = [*one.variables(), *one.parameters(), *other.variables(), *other.parameters()]
    if any(not isinstance(leaf, (cp.Variable, Private)) for leaf in leaves):
        return False  # the value of a public parameter may be set later
    places = {leaf.id: f"{leaf.id}" for leaf in leaves}
    try:
        return digest_of(one, places) == digest_of(other, places)
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
