r"""Values and vector-Jacobian products of the outer atoms of an objective.

Every rule maps argument values to the atom's value, and a cotangent of the value to that of one of
the arguments. A rule works on the trailing axes of arrays, and leading axes are agents or points.
Where an atom has a kink the rule returns one stated subgradient:

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

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray
from scipy.special import entr, kl_div, rel_entr

from .matrices import Array, is_blank
from .trailing import View, flat, product, product_with_vectors, swapped

Shape = tuple[int, ...]
Forward = Callable[[Sequence[Array], Any], Array]
VJP = Callable[[Sequence[Array], Array, Array, Any, int], Array]
Layout = Callable[[Array], Array]


@dataclass(frozen=True)
class Fitted:
    """A rule for arguments of fixed shapes, on arrays with any number of leading axes.

    Attributes
    ----------
    forward : callable
        ``forward(values, data)``: flat value of the atom, at arguments in their layouts.
    vjp : callable
        ``vjp(values, out, g, data, k)``: flat cotangent of argument k, for the flat cotangent ``g``
        of the flat value ``out``.
    data : Any
        Static data as both take them.
    layouts : tuple of callable
        One per argument: of a flat array, what `forward` and `vjp` take.
    """

    forward: Forward
    vjp: VJP
    data: Any
    layouts: tuple[Layout, ...]


@dataclass(frozen=True)
class Rule(ABC):
    """How to evaluate and differentiate one kind of atom, over trailing axes.

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

    @abstractmethod
    def fitted(self, data: tuple[Any, ...], shapes: Sequence[Shape], shape: Shape) -> Fitted:
        """Return the rule for arguments of these shapes.

        Parameters
        ----------
        data : tuple
            Static data of the atom.
        shapes : sequence of tuple of int
            Shapes of the arguments.
        shape : tuple of int
            Shape of the value.
        """

    def __reduce__(self) -> tuple[Any, ...]:
        # By name: the functions are this module's, and lambdas do not pickle.
        return rule_named, (self.name,)


class Entrywise(Rule):
    """The rule of an atom of one argument that works entry by entry."""

    def fitted(self, data: tuple[Any, ...], shapes: Sequence[Shape], shape: Shape) -> Fitted:
        """Return the rule on flat arrays."""
        return Fitted(self.forward, self.vjp, data, (flat,))


class Broadcasting(Rule):
    """The rule of an atom that works entry by entry on arguments of shapes that broadcast.

    Its `vjp` has the shape of the value; what an argument was repeated for is summed up here.
    """

    def fitted(self, data: tuple[Any, ...], shapes: Sequence[Shape], shape: Shape) -> Fitted:
        """Return the rule on flat arrays if arguments are numbers or of the value's shape."""
        vjp = self.vjp
        if all(own == shape or math.prod(own) == 1 for own in shapes):
            numbers = tuple(math.prod(own) < math.prod(shape) for own in shapes)

            def summed(v: Sequence[Array], out: Array, g: Array, data: Any, k: int) -> Array:
                part = vjp(v, out, g, data, k)
                return part.sum(axis=-1, keepdims=True) if numbers[k] else part

            return Fitted(self.forward, summed, data, (flat,) * len(shapes))
        wide = [(1,) * (len(shape) - len(own)) + own for own in shapes]
        whole, views = View(shape), tuple(map(View, wide))
        repeated = [
            tuple(i - len(shape) for i, n in enumerate(own) if n == 1 and shape[i] > 1)
            for own in wide
        ]

        def unrepeated(v: Sequence[Array], out: Array, g: Array, data: Any, k: int) -> Array:
            part = vjp(v, whole(out), whole(g), data, k)
            return views[k].flat(part.sum(axis=repeated[k], keepdims=True) if repeated[k] else part)

        return Fitted(lambda v, d: whole.flat(self.forward(v, d)), unrepeated, data, views)


class Over(NamedTuple):
    """Over which axes an atom reduces, as its rule takes it.

    Attributes
    ----------
    axis : int or tuple of int
        Axes to reduce, counted from the end.
    every : int or tuple of int
        All axes of the argument, leading ones apart.
    number : float or None
        The atom's number, such as the p of a p-norm.
    single : bool
        Whether numpy makes numbers of the value for one agent, in place of arrays.
    """

    axis: int | tuple[int, ...]
    every: int | tuple[int, ...]
    number: Any
    single: bool


@dataclass(frozen=True)
class Reduction(Rule):
    """The rule of an atom that reduces its first argument over some or all axes.

    `forward` and `vjp` take an `Over` in place of the static data. Values keep reduced axes as 1.

    Attributes
    ----------
    has_number : bool
        Whether the atom's static data begin with a number.
    has_axis : bool
        Whether they end with an axis and whether reduced axes are kept.
    """

    has_number: bool = False
    has_axis: bool = True

    def fitted(self, data: tuple[Any, ...], shapes: Sequence[Shape], shape: Shape) -> Fitted:
        """Return the rule on flat arrays if it reduces all axes."""
        number = data[0] if self.has_number else None
        axis, keeps = data[-2:] if self.has_axis else (None, False)
        first = shapes[0]
        gone = range(len(first)) if axis is None else _axes(axis, len(first))
        if len(gone) == len(first):
            over = Over(-1, -1, number, not keeps)
            return Fitted(self.forward, self.vjp, over, (flat,) * len(shapes))
        view, scalar = View(first), View((1,) * len(first))
        kept = View(tuple(1 if i in gone else n for i, n in enumerate(first)))
        places = tuple(i - len(first) for i in gone)
        every = tuple(range(-len(first), 0))
        over = Over(places[0] if len(places) == 1 else places, every, number, False)
        views = (view, *(scalar for _ in shapes[1:]))
        size, vjp = math.prod(kept.shape), self.vjp

        def backward(v: Sequence[Array], out: Array, g: Array, over: Any, k: int) -> Array:
            # A rule that does not look at the value is given none.
            value = kept(out) if out.shape[-1] == size else out
            return views[k].flat(vjp(v, value, kept(g), over, k))

        return Fitted(lambda v, d: kept.flat(self.forward(v, d)), backward, over, views)


def _axes(axis: Any, dimensions: int) -> list[int]:
    return sorted(a % max(dimensions, 1) for a in np.atleast_1d(axis).tolist())


class Product(Rule):
    """The rule of the matrix product; its `forward` and `vjp` take a `View` of the value."""

    def fitted(self, data: tuple[Any, ...], shapes: Sequence[Shape], shape: Shape) -> Fitted:
        """Return the rule of matrices, or of a matrix and a vector."""
        left, right = shapes
        if len(left) == 2 and len(right) == 1:
            return Fitted(_matvec, _matvec_vjp, None, (View(left), flat))
        left = left if len(left) == 2 else (1, *left)
        right = right if len(right) == 2 else (*right, 1)
        return Fitted(self.forward, self.vjp, View((left[0], right[1])), (View(left), View(right)))


class QuadraticForm(Rule):
    """The rule of ``x.T @ P @ x``."""

    def fitted(self, data: tuple[Any, ...], shapes: Sequence[Shape], shape: Shape) -> Fitted:
        """Return the rule of a flat vector and a matrix."""
        return Fitted(self.forward, self.vjp, None, (flat, View(shapes[1])))


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


def _entrywise(name: str, f: Callable[[Array], Array], df: Callable[[Array], Array]) -> Rule:
    return Entrywise(name, lambda v, _: f(v[0]), lambda v, _out, g, _, _k: g * df(v[0]), False)


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


def _maximum(v: Sequence[Array], data: tuple[Any, ...]) -> Array:
    return np.max(np.stack(np.broadcast_arrays(*v)), axis=0)


def _minimum(v: Sequence[Array], data: tuple[Any, ...]) -> Array:
    return np.min(np.stack(np.broadcast_arrays(*v)), axis=0)


def _extremal_vjp(v: Sequence[Array], out: Array, g: Array, data: tuple[Any, ...], k: int) -> Array:
    hit = np.stack(np.broadcast_arrays(*v)) == out
    return (hit[k] & ~hit[:k].any(axis=0) if k else hit[0]) * g


def _multiply_vjp(v: Sequence[Array], out: Array, g: Array, data: tuple[Any, ...], k: int) -> Array:
    return g * v[1 - k]


def _divide_vjp(v: Sequence[Array], out: Array, g: Array, data: tuple[Any, ...], k: int) -> Array:
    return g / v[1] if k == 0 else -g * out / v[1]


def _kl_vjp(v: Sequence[Array], out: Array, g: Array, data: tuple[Any, ...], k: int) -> Array:
    x, y = v
    return g * np.log(x / y) if k == 0 else g * (1 - x / y)


def _rel_vjp(v: Sequence[Array], out: Array, g: Array, data: tuple[Any, ...], k: int) -> Array:
    x, y = v
    return g * (np.log(x / y) + 1) if k == 0 else -g * x / y


def _qol(v: Sequence[Array], over: Over) -> Array:
    return np.sum(v[0] ** 2, axis=over.axis, keepdims=True) / v[1]


def _qol_vjp(v: Sequence[Array], out: Array, g: Array, over: Over, k: int) -> Array:
    if k == 1:
        return np.sum(-out * g / v[1], axis=over.every, keepdims=True)
    return 2.0 * v[0] * (g / v[1])


def _lse(v: Sequence[Array], over: Over) -> Array:
    top = np.max(v[0], axis=over.axis, keepdims=True)
    top = np.where(np.isfinite(top), top, 0.0)
    return np.log(np.sum(np.exp(v[0] - top), axis=over.axis, keepdims=True)) + top


def _lse_vjp(v: Sequence[Array], out: Array, g: Array, over: Over, k: int) -> Array:
    return np.exp(v[0] - out) * g


def _first(hit: NDArray[np.bool_], axis: int | tuple[int, ...]) -> NDArray[np.bool_]:
    """Keep only the first True along the given axes, counted column-major."""
    if isinstance(axis, int):
        return hit & (np.cumsum(hit, axis=axis) == 1)
    ends = range(-1, -len(axis) - 1, -1)
    lines = np.moveaxis(hit, axis, ends)
    entries = lines.reshape(*lines.shape[: -len(axis)], -1)
    only = entries & (np.cumsum(entries, axis=-1) == 1)
    return np.moveaxis(only.reshape(lines.shape), ends, axis)


def _max(v: Sequence[Array], over: Over) -> Array:
    return np.max(v[0], axis=over.axis, keepdims=True)


def _min(v: Sequence[Array], over: Over) -> Array:
    return np.min(v[0], axis=over.axis, keepdims=True)


def _max_vjp(v: Sequence[Array], out: Array, g: Array, over: Over, k: int) -> Array:
    return _first(v[0] == out, over.axis) * g


def _norm1(v: Sequence[Array], over: Over) -> Array:
    return np.sum(np.abs(v[0]), axis=over.axis, keepdims=True)


def _norm1_vjp(v: Sequence[Array], out: Array, g: Array, over: Over, k: int) -> Array:
    return np.sign(v[0]) * g


def _norm_inf(v: Sequence[Array], over: Over) -> Array:
    return np.max(np.abs(v[0]), axis=over.axis, keepdims=True)


def _norm_inf_vjp(v: Sequence[Array], out: Array, g: Array, over: Over, k: int) -> Array:
    return _first(np.abs(v[0]) == out, over.axis) * np.sign(v[0]) * g


def _pnorm(v: Sequence[Array], over: Over) -> Array:
    total = np.sum(np.abs(v[0]) ** over.number, axis=over.axis, keepdims=True)
    if not over.single:
        return total ** (1 / over.number)
    # numpy takes powers of numbers from the C library, and powers of arrays elsewhere: they differ
    # by an ulp, and a seeded run has one of them only.
    return np.array([number ** (1 / over.number) for number in total.flat]).reshape(total.shape)


def _pnorm_vjp(v: Sequence[Array], out: Array, g: Array, over: Over, k: int) -> Array:
    ratio = np.divide(np.abs(v[0]), out, out=np.zeros_like(v[0]), where=out > 0)
    return np.sign(v[0]) * ratio ** (over.number - 1) * g


def _largest(x: Array, k: float) -> Array:
    """Weights of the entries: 1 for the floor(k) largest, the fraction of k for the next."""
    order = np.argsort(-x, kind="stable", axis=-1)
    weights = np.broadcast_to(np.clip(k - np.arange(x.shape[-1]), 0.0, 1.0), x.shape)
    out = np.empty(x.shape)
    np.put_along_axis(out, order, weights, axis=-1)
    return out


def _sum_largest(v: Sequence[Array], over: Over) -> Array:
    return np.sum(_largest(v[0], over.number) * v[0], axis=-1, keepdims=True)


def _sum_largest_vjp(v: Sequence[Array], out: Array, g: Array, over: Over, k: int) -> Array:
    return _largest(v[0], over.number) * g


def _matvec(v: Sequence[Any], _: Any) -> Array:
    left, right = v
    if is_blank(left) or is_blank(right):
        lead = np.broadcast_shapes(left.shape[:-2], right.shape[:-1])
        return np.zeros((*lead, left.shape[-2]))
    return product_with_vectors(left, right)


def _matvec_vjp(v: Sequence[Any], out: Array, g: Array, _: Any, k: int) -> Array:
    left, right = v
    if is_blank(left if k else right):
        rows, columns = left.shape[-2:]
        return np.zeros((*g.shape[:-1], columns if k else rows * columns))
    if k == 1:
        return product_with_vectors(swapped(left), g)
    return _columns(g[..., None] @ right[..., None, :])


def _matmul(v: Sequence[Any], whole: View) -> Array:
    left, right = v
    if is_blank(left) or is_blank(right):
        lead = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
        return np.zeros((*lead, math.prod(whole.shape)))
    return _columns(product(left, right))


def _matmul_vjp(v: Sequence[Any], out: Array, g: Array, whole: View, k: int) -> Array:
    left, right = v
    if is_blank(left if k else right):
        return np.zeros((*g.shape[:-1], math.prod(v[k].shape[-2:])))
    G = whole(g)
    return _columns(product(G, swapped(right)) if k == 0 else product(swapped(left), G))


def _columns(M: Array) -> Array:
    """Entries of matrices, column by column; those of a single row or column as they lie."""
    if M.shape[-1] == 1:
        return M[..., 0]
    return M[..., 0, :] if M.shape[-2] == 1 else swapped(M).reshape(*M.shape[:-2], -1)


def _quad_form(v: Sequence[Array], _: Any) -> Array:
    x, P = v
    return ((x[..., None, :] @ P) @ x[..., :, None])[..., 0]


def _quad_form_vjp(v: Sequence[Array], out: Array, g: Array, _: Any, k: int) -> Array:
    x, P = v
    if k == 1:
        return _columns(g[..., None] * (x[..., :, None] * x[..., None, :]))
    column = x[..., :, None]
    return g * ((P @ column)[..., 0] + (swapped(P) @ column)[..., 0])


def _sigmoid(u: Array) -> Array:
    # Half the time of scipy's expit; below 1e-308 the result is 0.
    out = np.negative(u, out=np.empty_like(u))  # one array for all: records have millions
    with np.errstate(over="ignore"):
        np.exp(out, out=out)
    out += 1
    return np.divide(1, out, out=out)


POWER = Entrywise("power", _power, _power_vjp, False)
QUAD_OVER_LIN = Reduction("quad_over_lin", _qol, _qol_vjp)
QUAD_FORM = QuadraticForm("quad_form", _quad_form, _quad_form_vjp)
MULTIPLY = Broadcasting("multiply", lambda v, _: v[0] * v[1], _multiply_vjp)
MATMUL = Product("matmul", _matmul, _matmul_vjp)
DIVIDE = Broadcasting("division", lambda v, _: v[0] / v[1], _divide_vjp)
LOGISTIC = _entrywise("logistic", lambda u: np.logaddexp(0.0, u), _sigmoid)
HUBER = Entrywise("huber", _huber, _huber_vjp, False)
LOG_SUM_EXP = Reduction("log_sum_exp", _lse, _lse_vjp)
EXP = _entrywise("exp", np.exp, np.exp)
LOG = _entrywise("log", np.log, np.reciprocal)
LOG1P = _entrywise("log1p", np.log1p, lambda u: 1 / (1 + u))
ENTR = _entrywise("entr", entr, lambda u: -np.log(u) - 1)
_XEXP = _entrywise("xexp", lambda u: u * np.exp(u), lambda u: (1 + u) * np.exp(u))
ABS = _entrywise("abs", np.abs, np.sign)
MAX = Reduction("max", _max, _max_vjp)
MIN = Reduction("min", _min, _max_vjp)
MAXIMUM = Broadcasting("maximum", _maximum, _extremal_vjp)
MINIMUM = Broadcasting("minimum", _minimum, _extremal_vjp)
NORM1 = Reduction("norm1", _norm1, _norm1_vjp, False)
_NORM_INF = Reduction("norm_inf", _norm_inf, _norm_inf_vjp)
PNORM = Reduction("pnorm", _pnorm, _pnorm_vjp, has_number=True)
_SUM_LARGEST = Reduction(
    "sum_largest", _sum_largest, _sum_largest_vjp, has_number=True, has_axis=False
)
_KL_DIV = Broadcasting("kl_div", lambda v, _: kl_div(v[0], v[1]), _kl_vjp)
_REL_ENTR = Broadcasting("rel_entr", lambda v, _: rel_entr(v[0], v[1]), _rel_vjp)

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
