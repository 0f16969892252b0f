r"""Values and vector-Jacobian products of the outer atoms of an objective.

Every rule maps argument values to the atom's value, and a cotangent of the value to that of one of
the arguments. Where an atom has a kink the rule returns one stated subgradient:

=============================  =====================================================
atom                           subgradient where it is not differentiable
=============================  =====================================================
``abs``, ``norm1``, ``huber``  0 at 0
``norm2``, ``pnorm``           0 at the origin
``norm_inf``, ``max``          the first entry that attains the maximum
``maximum``, ``pos``           the first argument that attains the maximum
``min``, ``minimum``           the first that attains the minimum
``sum_largest``                the first entries in a stable order
=============================  =====================================================
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray
from scipy.special import entr, kl_div, rel_entr

from .matrices import Array, is_blank

Forward = Callable[[Sequence[Array], tuple[Any, ...]], Array]
VJP = Callable[[Sequence[Array], Array, Array, tuple[Any, ...], int], Array]


@dataclass(frozen=True)
class Rule:
    """How to evaluate and differentiate one kind of atom.

    Attributes
    ----------
    name : str
        Name in messages.
    forward : callable
        ``forward(values, data)``: value of the atom at the values of its arguments.
    vjp : callable
        ``vjp(values, out, g, data, k)``: cotangent of argument k for the cotangent ``g`` of the
        value ``out``.
    by_value : bool
        Whether `vjp` looks at ``out``; if not, a gradient may do without the value.
    """

    name: str
    forward: Forward
    vjp: VJP
    by_value: bool = True

    def __reduce__(self) -> tuple[Any, ...]:
        # By name: the functions are this module's, and lambdas do not pickle.
        return rule_named, (self.name,)


def rule_of(atom: cp.Expression) -> tuple[Rule, tuple[Any, ...]] | None:
    """Rule of a cvxpy atom and its static data, or None if there is none."""
    reader = _READERS.get(type(atom).__name__)
    return None if reader is None else reader(atom)


def rule_named(name: str) -> Rule:
    """Rule by its name."""
    return _RULES[name]


def written(atom: cp.Expression) -> str:
    """How users write a cvxpy atom, whose class may have another name."""
    name = type(atom).__name__.removesuffix("Approx")
    if name == "MulExpression":
        return "@"
    return f"cp.{_FUNCTIONS.get(name, name)}"


def supported() -> list[str]:
    """Names of the atoms that have a rule."""
    return [*sorted(_NAMES), "@", "every affine atom"]


def _reduced(value: Array, like: Array, axis: Any, keepdims: bool) -> Array:
    """Expand the result of a reduction so that it broadcasts against the argument again."""
    if axis is None or keepdims:
        return value
    return np.expand_dims(value, axis)


def _fit(g: Array, like: Array) -> Array:
    """Sum the cotangent of a broadcast argument back to the argument's shape."""
    extra = g.ndim - like.ndim
    stretched = [i for i, n in enumerate(like.shape) if n == 1 and g.shape[i + extra] != 1]
    axes = (*range(extra), *(i + extra for i in stretched))
    return np.reshape(np.sum(g, axis=axes), like.shape) if axes else g


def _elementwise(name: str, f: Callable[[Array], Array], df: Callable[[Array], Array]) -> Rule:
    return Rule(name, lambda v, _: f(v[0]), lambda v, _out, g, _, _k: g * df(v[0]), False)


def _power(v: Sequence[Array], data: tuple[Any, ...]) -> Array:
    return v[0] ** data[0]


def _power_vjp(v: Sequence[Array], out: Array, g: Array, data: tuple[Any, ...], k: int) -> Array:
    p = data[0]
    return 2.0 * v[0] * g if p == 2 else p * v[0] ** (p - 1) * g


def _huber(v: Sequence[Array], data: tuple[Any, ...]) -> Array:
    u, M = np.abs(v[0]), data[0]
    return np.where(u <= M, u * u, 2 * M * u - M * M)


def _huber_vjp(v: Sequence[Array], out: Array, g: Array, data: tuple[Any, ...], k: int) -> Array:
    return 2.0 * np.clip(v[0], -data[0], data[0]) * g


def _qol(v: Sequence[Array], data: tuple[Any, ...]) -> Array:
    axis, keepdims = data
    return np.sum(v[0] ** 2, axis=axis, keepdims=keepdims) / v[1]


def _qol_vjp(v: Sequence[Array], out: Array, g: Array, data: tuple[Any, ...], k: int) -> Array:
    axis, keepdims = data
    y = v[1]
    if k == 1:
        return np.reshape(np.sum(-out * g / y), y.shape)
    return 2.0 * v[0] * _reduced(g / y, v[0], axis, keepdims)


def _quad_form(v: Sequence[Array], data: tuple[Any, ...]) -> Array:
    x = v[0].ravel()
    return np.asarray(x @ v[1] @ x)


def _quad_form_vjp(
    v: Sequence[Array], out: Array, g: Array, data: tuple[Any, ...], k: int
) -> Array:
    x, P = v[0].ravel(), v[1]
    return np.reshape(g * (P @ x + P.T @ x), v[0].shape) if k == 0 else g * np.outer(x, x)


def _lse(v: Sequence[Array], data: tuple[Any, ...]) -> Array:
    axis, keepdims = data
    top = np.max(v[0], axis=axis, keepdims=True)
    top = np.where(np.isfinite(top), top, 0.0)
    total = np.log(np.sum(np.exp(v[0] - top), axis=axis, keepdims=True)) + top
    return np.asarray(total if keepdims else np.squeeze(total, axis=axis))


def _lse_vjp(v: Sequence[Array], out: Array, g: Array, data: tuple[Any, ...], k: int) -> Array:
    axis, keepdims = data
    weights = np.exp(v[0] - _reduced(out, v[0], axis, keepdims))
    return weights * _reduced(g, v[0], axis, keepdims)


def _first(hit: NDArray[np.bool_], axis: Any) -> NDArray[np.bool_]:
    """Keep only the first True along the given axes, counted column-major."""
    axes = range(hit.ndim) if axis is None else np.atleast_1d(axis) % max(hit.ndim, 1)
    reduced = sorted(int(a) for a in axes)
    kept = [a for a in range(hit.ndim) if a not in reduced]
    lines = np.transpose(hit, [*kept, *reduced])
    flat = lines.reshape((*lines.shape[: len(kept)], -1), order="F")
    only = flat & (np.cumsum(flat, axis=-1) == 1)
    return np.transpose(only.reshape(lines.shape, order="F"), np.argsort([*kept, *reduced]))


def _max(v: Sequence[Array], data: tuple[Any, ...]) -> Array:
    return np.asarray(np.max(v[0], axis=data[0], keepdims=data[1]))


def _max_vjp(v: Sequence[Array], out: Array, g: Array, data: tuple[Any, ...], k: int) -> Array:
    axis, keepdims = data
    hit = _first(v[0] == _reduced(out, v[0], axis, keepdims), axis)
    return hit * _reduced(g, v[0], axis, keepdims)


def _min(v: Sequence[Array], data: tuple[Any, ...]) -> Array:
    return np.asarray(np.min(v[0], axis=data[0], keepdims=data[1]))


def _maximum(v: Sequence[Array], data: tuple[Any, ...]) -> Array:
    return np.max(np.stack(np.broadcast_arrays(*v)), axis=0)


def _minimum(v: Sequence[Array], data: tuple[Any, ...]) -> Array:
    return np.min(np.stack(np.broadcast_arrays(*v)), axis=0)


def _extremal_vjp(v: Sequence[Array], out: Array, g: Array, data: tuple[Any, ...], k: int) -> Array:
    hit = _first(np.stack(np.broadcast_arrays(*v)) == out, 0)
    return _fit(hit[k] * g, v[k])


def _norm1(v: Sequence[Array], data: tuple[Any, ...]) -> Array:
    return np.asarray(np.sum(np.abs(v[0]), axis=data[0], keepdims=data[1]))


def _norm1_vjp(v: Sequence[Array], out: Array, g: Array, data: tuple[Any, ...], k: int) -> Array:
    return np.sign(v[0]) * _reduced(g, v[0], *data)


def _norm_inf(v: Sequence[Array], data: tuple[Any, ...]) -> Array:
    return np.asarray(np.max(np.abs(v[0]), axis=data[0], keepdims=data[1]))


def _norm_inf_vjp(v: Sequence[Array], out: Array, g: Array, data: tuple[Any, ...], k: int) -> Array:
    hit = _first(np.abs(v[0]) == _reduced(out, v[0], *data), data[0])
    return hit * np.sign(v[0]) * _reduced(g, v[0], *data)


def _pnorm(v: Sequence[Array], data: tuple[Any, ...]) -> Array:
    p, axis, keepdims = data
    return np.asarray(np.sum(np.abs(v[0]) ** p, axis=axis, keepdims=keepdims) ** (1 / p))


def _pnorm_vjp(v: Sequence[Array], out: Array, g: Array, data: tuple[Any, ...], k: int) -> Array:
    p, axis, keepdims = data
    norm = _reduced(out, v[0], axis, keepdims)
    ratio = np.divide(np.abs(v[0]), norm, out=np.zeros_like(v[0]), where=norm > 0)
    return np.sign(v[0]) * ratio ** (p - 1) * _reduced(g, v[0], axis, keepdims)


def _sum_largest_mask(x: Array, k: float) -> Array:
    """Weights of the entries: 1 for the floor(k) largest, the fraction of k for the next."""
    order = np.argsort(-x.ravel(order="F"), kind="stable")
    flat = np.zeros(x.size)
    flat[order] = np.clip(k - np.arange(x.size), 0.0, 1.0)
    return flat.reshape(x.shape, order="F")


def _sum_largest(v: Sequence[Array], data: tuple[Any, ...]) -> Array:
    return np.asarray(np.sum(_sum_largest_mask(v[0], data[0]) * v[0]))


def _sum_largest_vjp(
    v: Sequence[Array], out: Array, g: Array, data: tuple[Any, ...], k: int
) -> Array:
    return _sum_largest_mask(v[0], data[0]) * g


def _divide_vjp(v: Sequence[Array], out: Array, g: Array, data: tuple[Any, ...], k: int) -> Array:
    return _fit(g / v[1], v[0]) if k == 0 else _fit(-g * out / v[1], v[1])


def _multiply_vjp(v: Sequence[Array], out: Array, g: Array, data: tuple[Any, ...], k: int) -> Array:
    return _fit(g * v[1 - k], v[k])


def _matmul(v: Sequence[Array], data: tuple[Any, ...]) -> Array:
    left, right = v
    if is_blank(left) or is_blank(right):
        return np.zeros((*left.shape[:-1], *right.shape[1:]))
    return np.asarray(left @ right)


def _matmul_vjp(v: Sequence[Array], out: Array, g: Array, data: tuple[Any, ...], k: int) -> Array:
    left, right = v
    L = left if left.ndim == 2 else left[None, :]
    R = right if right.ndim == 2 else right[:, None]
    G = g.reshape(L.shape[0], R.shape[1])
    if is_blank(R if k == 0 else L):
        return np.zeros(v[k].shape)
    return (G @ R.T).reshape(left.shape) if k == 0 else (L.T @ G).reshape(right.shape)


def _kl_vjp(v: Sequence[Array], out: Array, g: Array, data: tuple[Any, ...], k: int) -> Array:
    x, y = v
    return _fit(g * np.log(x / y), x) if k == 0 else _fit(g * (1 - x / y), y)


def _rel_vjp(v: Sequence[Array], out: Array, g: Array, data: tuple[Any, ...], k: int) -> Array:
    x, y = v
    return _fit(g * (np.log(x / y) + 1), x) if k == 0 else _fit(-g * x / y, y)


def _sigmoid(u: Array) -> Array:
    # Half the time of scipy's expit; below 1e-308 the result is 0.
    out = np.negative(u, out=np.empty_like(u))  # one array for all: records have millions
    with np.errstate(over="ignore"):
        np.exp(out, out=out)
    out += 1
    return np.divide(1, out, out=out)


POWER = Rule("power", _power, _power_vjp, False)
QUAD_OVER_LIN = Rule("quad_over_lin", _qol, _qol_vjp)
QUAD_FORM = Rule("quad_form", _quad_form, _quad_form_vjp)
MULTIPLY = Rule("multiply", lambda v, _: v[0] * v[1], _multiply_vjp)
MATMUL = Rule("matmul", _matmul, _matmul_vjp)
DIVIDE = Rule("division", lambda v, _: v[0] / v[1], _divide_vjp)
LOGISTIC = _elementwise("logistic", lambda u: np.logaddexp(0.0, u), _sigmoid)
HUBER = Rule("huber", _huber, _huber_vjp, False)
LOG_SUM_EXP = Rule("log_sum_exp", _lse, _lse_vjp)
EXP = _elementwise("exp", np.exp, np.exp)
LOG = _elementwise("log", np.log, np.reciprocal)
LOG1P = _elementwise("log1p", np.log1p, lambda u: 1 / (1 + u))
ENTR = _elementwise("entr", entr, lambda u: -np.log(u) - 1)
_XEXP = _elementwise("xexp", lambda u: u * np.exp(u), lambda u: (1 + u) * np.exp(u))
ABS = _elementwise("abs", np.abs, np.sign)
MAX = Rule("max", _max, _max_vjp)
MIN = Rule("min", _min, _max_vjp)
MAXIMUM = Rule("maximum", _maximum, _extremal_vjp)
MINIMUM = Rule("minimum", _minimum, _extremal_vjp)
NORM1 = Rule("norm1", _norm1, _norm1_vjp, False)
_NORM_INF = Rule("norm_inf", _norm_inf, _norm_inf_vjp)
PNORM = Rule("pnorm", _pnorm, _pnorm_vjp)
_SUM_LARGEST = Rule("sum_largest", _sum_largest, _sum_largest_vjp)
_KL_DIV = Rule("kl_div", lambda v, _: kl_div(v[0], v[1]), _kl_vjp)
_REL_ENTR = Rule("rel_entr", lambda v, _: rel_entr(v[0], v[1]), _rel_vjp)

_RULES = {rule.name: rule for rule in list(globals().values()) if isinstance(rule, Rule)}


def _axis(atom: Any) -> tuple[Any, bool]:
    return getattr(atom, "axis", None), bool(getattr(atom, "keepdims", False))


def _plain(rule: Rule) -> Callable[[Any], tuple[Rule, tuple[Any, ...]]]:
    return lambda atom: (rule, ())


def _reducing(rule: Rule) -> Callable[[Any], tuple[Rule, tuple[Any, ...]]]:
    return lambda atom: (rule, _axis(atom))


def _read_power(atom: Any) -> tuple[Rule, tuple[Any, ...]] | None:
    if atom.p.value is None:
        return None
    p = float(atom.p.value)
    return POWER, (int(p) if p.is_integer() else p,)


_READERS: dict[str, Callable[[Any], tuple[Rule, tuple[Any, ...]] | None]] = {
    "Power": _read_power,
    "PowerApprox": _read_power,
    "quad_over_lin": _reducing(QUAD_OVER_LIN),
    "QuadForm": _plain(QUAD_FORM),
    "multiply": _plain(MULTIPLY),
    "MulExpression": lambda a: (MATMUL, ()) if max(x.ndim for x in a.args) <= 2 else None,
    "DivExpression": _plain(DIVIDE),
    "logistic": _plain(LOGISTIC),
    "huber": lambda a: None if a.M.value is None else (HUBER, (float(a.M.value),)),
    "log_sum_exp": _reducing(LOG_SUM_EXP),
    "exp": _plain(EXP),
    "log": _plain(LOG),
    "log1p": _plain(LOG1P),
    "entr": _plain(ENTR),
    "xexp": _plain(_XEXP),
    "abs": _plain(ABS),
    "max": _reducing(MAX),
    "min": _reducing(MIN),
    "maximum": _plain(MAXIMUM),
    "minimum": _plain(MINIMUM),
    "norm1": _reducing(NORM1),
    "norm_inf": _reducing(_NORM_INF),
    "Pnorm": lambda a: (PNORM, (float(a.p), *_axis(a))),
    "PnormApprox": lambda a: (PNORM, (float(a.p), *_axis(a))),
    "sum_largest": lambda a: (_SUM_LARGEST, (float(a.k),)) if _axis(a)[0] is None else None,
    "kl_div": _plain(_KL_DIV),
    "rel_entr": _plain(_REL_ENTR),
}
# Functions that make atoms of other names.
_FUNCTIONS = {
    "GeoMean": "geo_mean",
    "MatrixFrac": "matrix_frac",
    "Pnorm": "pnorm",
    "Power": "power",
    "Prod": "prod",
    "SymbolicQuadForm": "quad_form",
    "Trace": "trace",
}
_NAMES = [
    "abs", "division", "entr", "exp", "huber", "kl_div", "log", "log1p", "log_sum_exp",
    "logistic", "max", "maximum", "min", "minimum", "multiply", "norm", "norm1", "norm_inf",
    "pos", "power", "quad_form", "quad_over_lin", "rel_entr", "square", "sum_largest",
    "sum_squares", "xexp",
]  # fmt: skip
