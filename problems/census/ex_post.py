r"""Ex-post privacy loss of one output of random aggregators. Not a guarantee.

Xiao, Ye and Devadas, "Local differential privacy in decentralized optimization", Section 2. A
coordinate of a round is released as :math:`U - \alpha g + \Delta`, with g a coordinate of the
private gradient, known up to B, U uniform on an interval of length omega and Laplace noise of
density :math:`\tfrac\beta2 e^{-\beta |y|}`. On the output X, measured from the lower end of the
interval :math:`[0, \omega]` that U has after the shift by g, the loss is

.. math::
    \epsilon(X) = \max_{|t| \le \alpha B} |\log h(X, 0) - \log h(X, t)|, \qquad
    h(X, t) = \int_t^{t + \omega} e^{-\beta |X - y|} \, dy. \qquad (10)

In the worst case the loss is :math:`\alpha \beta B`, which every X outside :math:`(0, \omega)`
attains: the guarantee is the Laplace mechanism's alone, the random U being post-processing. Inside
the interval the loss is smaller. As it depends on the output, and on where the private gradient put
the interval, it must neither be published as if it were free nor be added to a worst-case epsilon.
omega is known to everyone who sees the earlier outputs, and counts as fixed here.

In units of :math:`1 / \beta`, with w and s for omega and alpha B, let
:math:`G(x) = \int_0^w e^{-|x - y|} dy`, so that :math:`h(X, t) = G(\beta (X - t)) / \beta`. log G
is concave, being the logarithm of a convolution of log-concave functions, and symmetric about
w / 2. For x on the lower half, the largest |log G(x) - log G(x - t)| is attained at t = s, farthest
from the middle:

* the least value of a concave symmetric function on [x - s, x + s] is that at x - s;
* its largest is at :math:`x^* = \min(x + s, w / 2)`, and since increments of a concave function
  fall, :math:`\log G(x^*) - \log G(x) \le \log G(x) - \log G(2 x - x^*)`, which is at most
  :math:`\log G(x) - \log G(x - s)`.

The upper half mirrors this, with t = -s. So the loss falls from s at x = 0 to its least value in
the middle. x has density :math:`G / 2 w`, which gives the expectation gamma of the loss over
alpha beta B; as s tends to 0, gamma falls to :math:`2 (1 - e^{-w / 2}) / w`.

Errata of the paper, beside the gradient missing in its definition of sensitivity:

* (11) does not bound gamma. Its proof takes :math:`t = -\alpha B` as maximizer on
  :math:`[0, (\omega - \alpha B) / 2]` and :math:`\alpha B` on the mirror image, where the maximum
  is at the other end. At :math:`\beta \omega = 1` and :math:`\beta \alpha B = 0.3`, (11) says
  0.8354 and gamma is 0.8810; (11), `claimed_amplification`, is too small at most of Figure 1.
* (27), the source of (11), prints :math:`e^{\omega \alpha B}` where :math:`e^{\alpha \beta B}` is
  meant.
* On the ends of the interval the loss is not smaller than :math:`\alpha \beta B`, as Theorem 2.2
  says, but equal.
* The footnote of Theorem 2.2 sums over K + 1 of K rounds, and rests on a theorem about losses that
  are fixed beforehand. Here the losses depend on the outputs. The formula still holds for one
  round: given the absolute values of :math:`L_t = \log G(x) - \log G(x - t)` in all coordinates,
  their signs are independent with odds :math:`e^{|L_t|}`, because :math:`x \mapsto w + t - x`
  swaps G(x) and G(x - t), and Hoeffding's bound gives the rest. Over several rounds omega and the
  differences t of the gradients depend on earlier outputs, and hence later absolute values on
  earlier signs: a term is missing, see `Losses.adaptive`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpcvx.errors import ModelError, PrivacyError
from dpcvx.privacy.accounting import check_delta

Array = NDArray[np.float64]
Kind = Literal["observed", "expected"]

LABEL = "ex-post (depends on the output; not a guarantee)"
# Edges of the quadrature's panels, in units of 1 / beta from the places where the integrand bends.
# Panels grow like the distance from its complex singularities, all at least ln 2 away; past the
# last finite edge it is linear up to e^-64. Twenty nodes a panel leave rounding errors only.
_EDGES = np.array([0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, math.inf])
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(20)


@dataclass(frozen=True)
class ExPost:
    """A privacy loss that depends on the output. It cannot replace an epsilon.

    Attributes
    ----------
    loss : float
        Bound of the logarithm of the likelihood ratio of two neighboring functions.
    delta : float
        Bound of the probability of outputs whose loss exceeds `loss`.
    worst_case : float
        The sum of alpha beta B over the same releases: their guaranteed epsilon at delta = 0.
    kind : {"observed", "expected"}
        Whether the loss is at the drawn outputs, or in expectation over outputs.
    rule : str
        Rule that composed the losses of single coordinates.
    """

    loss: float
    delta: float
    worst_case: float
    kind: Kind
    rule: str

    def __str__(self) -> str:
        delta = f" at delta = {self.delta:g}" if self.delta > 0 else ""
        return (
            f"{self.kind} loss {self.loss:.6g}{delta}, {LABEL}; {self.rule}; "
            f"worst case {self.worst_case:.6g}"
        )


@dataclass(frozen=True, eq=False)
class Losses:
    """Ex-post losses of single coordinates; ``+`` joins the losses of several rounds.

    Attributes
    ----------
    values : ndarray, shape (n,)
        The losses. Not to be published: they tell where the private gradient put the interval.
    worst : ndarray, shape (n,)
        Worst-case losses of the same coordinates, alpha beta B.
    kind : {"observed", "expected"}
        Whether losses are at the drawn outputs, or in expectation over outputs.
    """

    values: Array = field(repr=False)
    worst: Array = field(repr=False)
    kind: Kind

    def __add__(self, other: Losses) -> Losses:
        if not isinstance(other, Losses):
            return NotImplemented
        if other.kind != self.kind:
            raise PrivacyError(
                f"{self.kind} losses cannot be added to {other.kind} losses: the sum would have "
                "no meaning. Compute both from outputs, or both from interval lengths."
            )
        return _losses(
            np.concatenate([self.values, other.values]),
            np.concatenate([self.worst, other.worst]),
            self.kind,
        )

    @property
    def worst_case(self) -> float:
        """The guaranteed epsilon of the same releases at delta = 0: the sum of `worst`."""
        return math.fsum(self.worst)

    def total(self) -> ExPost:
        """Return the sum of losses over coordinates and rounds (Theorem 2.2)."""
        return ExPost(math.fsum(self.values), 0.0, self.worst_case, self.kind, "sum")

    def strong(self, delta: float) -> ExPost:
        r"""Compose losses by the footnote of Theorem 2.2, or by their sum if that is smaller.

        .. math:: \sum \epsilon \tanh(\epsilon / 2) + \sqrt{2 \log(1 / \delta) \sum \epsilon^2}

        Proved for the coordinates of one round, and for several rounds if neither omega nor the
        differences of gradients depend on earlier outputs. Otherwise unproved: use `adaptive`.

        Raises
        ------
        PrivacyError
            If delta is outside (0, 1), or the losses are expectations.
        """
        drift, square = self._moments(delta)
        bound = drift + math.sqrt(2 * math.log(1 / delta) * square)
        return self._smaller(bound, delta, "strong composition of one round")

    def adaptive(self, delta: float) -> ExPost:
        r"""Compose losses of adaptive rounds, or sum them if the sum is smaller.

        .. math::
            \sum \epsilon \tanh(\epsilon / 2)
                + \sqrt{(V + V_0) (2 \log(1 / \delta) + \log(1 + V / V_0))}

        with :math:`V = \sum \epsilon^2`, and :math:`V_0` the sum of squared worst-case losses.
        Given the past and its own absolute value, each :math:`L_t` has a sign of odds
        :math:`e^{|L_t|}`, and epsilon is at least :math:`|L_t|`. By Hoeffding's lemma
        :math:`\exp(\lambda \sum (L - \epsilon \tanh(\epsilon / 2)) - \lambda^2 V / 2)` is a
        supermartingale for every :math:`\lambda \ge 0`; so is its mean over lambda, the absolute
        value of a normal variable of variance :math:`1 / V_0`, and Ville's inequality gives the
        bound. alpha, beta and B have to be fixed beforehand; omega may depend on earlier outputs.

        Raises
        ------
        PrivacyError
            If delta is outside (0, 1), or the losses are expectations.
        """
        drift, square = self._moments(delta)
        ceiling = math.fsum(self.worst**2)
        bound = drift
        if ceiling > 0:
            scale = 2 * math.log(1 / delta) + math.log1p(square / ceiling)
            bound += math.sqrt((square + ceiling) * scale)
        return self._smaller(bound, delta, "strong composition for adaptive rounds")

    def _moments(self, delta: float) -> tuple[float, float]:
        check_delta(delta)
        if delta == 0:
            raise PrivacyError("Strong composition needs delta > 0; at delta = 0 use total().")
        if self.kind != "observed":
            raise PrivacyError(
                "Strong composition holds for losses at an output, not for their expectations. "
                "Compute them from outputs with `observed`, or use total()."
            )
        drift = math.fsum(self.values * np.tanh(self.values / 2))
        return drift, math.fsum(self.values**2)

    def _smaller(self, bound: float, delta: float, rule: str) -> ExPost:
        total = self.total()
        return (
            total if total.loss <= bound else ExPost(bound, delta, self.worst_case, self.kind, rule)
        )

    def __str__(self) -> str:
        return f"{self.values.size} coordinates: {self.total()}"


def observed(x: ArrayLike, *, omega: ArrayLike, beta: ArrayLike, shift: ArrayLike) -> Losses:
    """Return the losses (10) at outputs that were drawn.

    Parameters
    ----------
    x : array
        Outputs minus the lower ends of their intervals: x_i minus its noiseless value at the
        smallest U. Only the agent itself can compute them, and only it may see the result.
    omega : array
        Lengths of the intervals; 0 if there was nothing to average, which costs the full loss.
    beta : array
        Rates of the Laplace noise: one over its scale.
    shift : array
        alpha B: 1 / D_i or eta_k, times the l-infinity sensitivity of the gradient.

    Returns
    -------
    Losses
        One loss per entry of the arrays, broadcast against each other.
    """
    w, s = _scaled(omega, beta, shift)
    with np.errstate(over="ignore"):  # far outside, as it should be
        z, w, s = np.broadcast_arrays(_positions(x) * _array(beta), w, s)
    return _losses(_loss(z, w, s), s, "observed")


def expected(*, omega: ArrayLike, beta: ArrayLike, shift: ArrayLike) -> Losses:
    """Return the expected losses over the output, gamma alpha beta B; see `observed`.

    Expectations are given earlier outputs, which omega depends on.
    """
    w, s = _scaled(omega, beta, shift)
    return _losses(s * _gamma(w, s), s, "expected")


def amplification(*, omega: ArrayLike, beta: ArrayLike, shift: ArrayLike) -> Array:
    """Return gamma, the expected loss of an output over alpha beta B; see `observed`.

    Returns
    -------
    ndarray
        gamma in (0, 1], to about 1e-13. The guaranteed epsilon may not be multiplied by it.
    """
    return _gamma(*_scaled(omega, beta, shift))


def claimed_amplification(*, omega: ArrayLike, beta: ArrayLike, shift: ArrayLike) -> Array:
    r"""Return the paper's claimed bound (11) of gamma, which is wrong: see the module's errata.

    .. math::
        1 + \tfrac1s \log\Bigl(1 - \frac{1 - e^{-s}}{w}
            \bigl[w - s - (1 - e^{-(w - s) / 2}) (1 + e^{-s})\bigr]\Bigr).

    Raises
    ------
    ModelError
        Unless omega > alpha B > 0, as the theorem assumes.
    """
    w, s = _scaled(omega, beta, shift)
    if not ((w > s) & (s > 0)).all():
        raise ModelError(
            "Theorem 2.3 is stated for intervals longer than the shift, omega > alpha B > 0, and "
            "some are not. `amplification` has no such condition."
        )
    bracket = w - s + np.expm1((s - w) / 2) * (1 + np.exp(-s))
    return 1 + np.log1p(np.expm1(-s) * bracket / w) / s


def _losses(values: Array, worst: Array, kind: Kind) -> Losses:
    kept = [np.array(a, dtype=np.float64).ravel() for a in (values, worst)]
    for array in kept:
        array.flags.writeable = False
    return Losses(kept[0], kept[1], kind)


def _loss(z: Array, w: Array, s: Array) -> Array:
    """Return the losses of outputs z, lengths w and shifts s, all in units of 1 / beta.

    With n the distance from the interval's nearer end, positive inside, the loss is s for n <= 0
    and otherwise log G(n) - log G(n - s), written without differences of nearly equal numbers.
    """
    n = np.minimum(z, w - z)
    inner = np.maximum(n, 0.0)
    far = np.maximum(w - inner, inner)
    with np.errstate(all="ignore"):  # of the branches that are not taken
        # n <= s: G(n - s) = e^(n - s) (1 - e^-w).
        ratio = -np.expm1(-inner) * np.expm1(-far) / np.expm1(-w)
        outside = (s - inner) + np.log1p(ratio)
        # n > s: G(n) - G(n - s) = (1 - e^-s) (e^-(n - s) - e^-(w - n)).
        left = np.maximum(inner - s, 0.0)
        rise = np.expm1(-s) * np.exp(-left) * np.expm1(-(np.abs(w - 2 * z) + s))
        inside = np.log1p(rise / (-np.expm1(-left) - np.expm1(-(far + s))))
    return np.where(n <= 0, s, np.where(n <= s, np.minimum(outside, s), inside))


def _gamma(w: Array, s: Array) -> Array:
    """Return gamma: (1 - e^-w) / w from outputs outside, plus twice the lower half's integral."""
    w, s = np.broadcast_arrays(w, s)
    wide = np.where(w > 0, w, 1.0)[..., np.newaxis]
    reach = np.where(s > 0, s, 1.0)[..., np.newaxis]
    bend = np.minimum(reach, wide / 2)
    total = np.zeros(wide.shape[:-1])
    for low, high in ((0.0, bend), (bend, wide / 2)):
        # Panels are cut off at the end of the integrated piece; panels beyond it have no width.
        edges = low + np.minimum(_EDGES, high - low)
        half = np.diff(edges)[..., np.newaxis] / 2
        x = edges[..., :-1, np.newaxis] + half * (1 + _NODES)
        w_, s_ = wide[..., np.newaxis], reach[..., np.newaxis]
        density = (-np.expm1(-x) - np.expm1(x - w_)) / w_
        total += (_loss(x, w_, s_) / s_ * density * half * _WEIGHTS).sum(axis=(-1, -2))
    wide = wide[..., 0]
    found = np.where(s > 0, total - np.expm1(-wide) / wide, -2 * np.expm1(-wide / 2) / wide)
    return np.where(w > 0, np.minimum(found, 1.0), 1.0)


def _scaled(omega: ArrayLike, beta: ArrayLike, shift: ArrayLike) -> tuple[Array, Array]:
    rate = _checked(beta, "beta", "rate of Laplace noise", positive=True)
    length = _checked(omega, "omega", "length of an interval", positive=False)
    reach = _checked(shift, "shift", "change of a mean, alpha B", positive=False)
    with np.errstate(over="ignore"):
        w, s = np.broadcast_arrays(length * rate, reach * rate)
    if not (np.isfinite(w).all() and np.isfinite(s).all()):
        raise ModelError("beta times omega or shift leaves floating point: rescale the variables.")
    return w, s


def _checked(value: ArrayLike, name: str, meaning: str, positive: bool) -> Array:
    array = _array(value)
    if not (np.isfinite(array) & ((array > 0) if positive else (array >= 0))).all():
        sort = "positive" if positive else "nonnegative"
        raise ModelError(
            f"{name} must be a {sort} finite {meaning} for each coordinate, and one is not: the "
            "loss would have no meaning. Write numbers, or arrays that broadcast against each "
            "other."
        )
    return array


def _positions(x: ArrayLike) -> Array:
    array = _array(x)
    if not np.isfinite(array).all():
        raise ModelError(
            "Outputs must be finite numbers to have a loss, and one is not (values are not shown, "
            "they depend on private data). An iteration that diverged has the worst-case loss."
        )
    return array


def _array(value: ArrayLike) -> Array:
    return np.asarray(value, dtype=np.float64)
