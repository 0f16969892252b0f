r"""Noisy gradient ADMM when only the final iterate is released: amplification by iteration.

Chan, Xie and Zhao (arXiv 2312.08685). One iteration uses the gradient of one user,

.. math::
    y \in \arg\min_y g(y) + \tfrac\beta2 \|A x + B y - c - \lambda / \beta\|^2, \quad
    \lambda^+ = \lambda - \beta (A x + B y - c), \\
    x^+ = (I + \eta \beta A'A)^{-1} (x - \eta [\nabla f(x) + A'(\beta (B y - c) - \lambda^+)])
        + N(0, \sigma^2 I),

and neighbouring functions have gradients that differ by at most :math:`\Delta` everywhere. In the
unit :math:`\eta^2 \Delta^2 / (2 \sigma^2)`, a user followed by k more iterations whose outputs
:math:`(x, \lambda)` stay hidden until the last one loses at most, with ``T = (k + 1) // 2``,

=================  ==================================================================
local              :math:`1 / (1 + l)^2`
convex             :math:`\kappa_1 c(1, 1) / T`, if :math:`\eta \le 2 / \nu`
strongly convex    :math:`\kappa_R c(1 - \eta \mu, R) L^e / \sum_{j < T} L^{-2j}`, e = 1 if
                   k is even and 0 if odd, if :math:`\eta` is in `step_interval`
=================  ==================================================================

where :math:`h = \eta \beta \underline s^2` for the least of the m singular values of A,
:math:`l = h` if A is square and 0 otherwise, :math:`\kappa_R` is the maximum of
:math:`(R + s)/(1 + s)^2` for s from l to :math:`\eta \beta \|A\|^2`, c(q, R) is the larger
eigenvalue of :math:`[[q^2 / R, q^2 / \sqrt{R h}], [q^2 / \sqrt{R h}, (1 + q^2) / h]]`, and with
:math:`d = 2 / (\nu + \mu) - \eta`

.. math::
    R = 1 - \frac{2 \eta \nu \mu}{\nu + \mu} + \frac d\eta, \quad P = 1 - \frac d\eta, \quad
    S = \frac\eta\beta, \quad Q = \frac\eta\beta + \frac{\eta d}4 \underline s^2, \quad
    L = \max\Bigl(\frac RP, \frac SQ\Bigr).

Proof, as far as it differs from the paper's. An iteration does not expand
:math:`R \|dx\|^2 + \eta \beta \|w\|^2` with :math:`w = d\lambda / \beta - A dx`, where R = 1 in the
convex case; there :math:`\|dx - \eta d\nabla f\| \le \|dx\|` is all that Lemma 6.5 needs of f, and
holds up to :math:`\eta = 2 / \nu`. It contracts it by L in Lemma 7.6. The user's own step moves x
by :math:`\eta (I + \eta \beta A'A)^{-1} e`, of squared norm at most
:math:`\kappa_R \eta^2 \Delta^2`: the paper's :math:`1 + \eta \beta \|A\|^2` is not needed. For the
two noises of a pair of iterations, write N = V u + V' z with V spanning the rows of A. Given z, the
first hides :math:`\lambda - \beta A x` as a Gaussian mechanism with shift
:math:`b = \|A^+ w\| \le \|w\| / \underline s`, and given its output the second hides x with shift
at most :math:`q (\|dx\| + b)`: as the paper, for any A of full row rank. Together at most
:math:`b^2 + q^2 (\|dx\| + b)^2 \le c (R \|dx\|^2 + \eta \beta \|w\|^2)`, where the paper bounds the
square of the sum by twice the sum of squares. A pair may also consist of the user's own noise and
the next iteration. The coupling argument over T pairs, minimised over the intermediate points,
gives the harmonic sum. Only the data processing inequality, adaptive composition of Gaussian
mechanisms and mixtures with known index are used, all of which hold for trade-off functions: a
bound rho is also one by a Gaussian mechanism of parameter :math:`\mu^2 = 2 \rho`, and is priced so.

All steps are assumed exact: an inexact y or x step is no longer known not to expand. Algorithm 4
of the paper cuts the same sequence of updates at another place, with the same bounds.

Several uses of one user do not add up when each is amplified up to the end: with A = [1 0],
f = 0 and p passes over n users, the loss in the second coordinate is that of p shifts under np
noises, p / n in the unit above, while the sum of 1 / (np - jn) grows like log(p) / n. Proved are

* composition, as if the iterate before the user's next use were released: every use is amplified
  by the iterations up to the next one;
* the chain over neighbours that differ in one use, all amplified up to the end, in which the roots
  of the bounds add up; and the former for the first uses with the latter for the rest.

The paper has one use per user only. `problems/elastic_net/printed.py` says what it prints that is
not so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._arguments import finite, is_int, positive_finite, show, store_python_numbers
from ..errors import ModelError, PrivacyError
from ..guard import frameless
from .accounting import Composition, Price, check_delta
from .gaussian import gaussian_delta

Array = NDArray[np.float64]
Rule = Literal["local", "convex", "strongly convex"]

RULES: tuple[Rule, ...] = ("local", "convex", "strongly convex")
# Relative rounding errors of the formulas are of the order of 1e-15.
_UP = 1 + 1e-11
# Bounds do not underflow to zero.
_TINY = 1e-290
# Orders of Renyi divergences in conversions.
_ORDERS = tuple(1 + np.geomspace(0.02, 1e5, 200))


@frameless
@dataclass(frozen=True)
class TwoBlock:
    """Constants of ``min sum_i f_i(x) + g(y)`` subject to ``A x + B y = c``, and of the steps.

    Attributes
    ----------
    nu : float
        Smoothness of every f_i, for all admissible data.
    beta, eta : float
        Penalty and step size.
    mu : float
        Strong convexity of every f_i; 0 if they are convex only.
    mu_g : float
        Strong convexity of g.
    A_norm : float
        Largest singular value of A.
    A_least : float
        Smallest of the m singular values of A, which needs full row rank. At least 1 if
        A = [I, D], the form of the paper's Remark 3.4.
    AB_norm : float or None
        Largest singular value of A'B. Only the strongly convex bound needs it.
    square : bool
        Whether A is square, so that A x = 0 for no other x than 0.
    """

    nu: float
    beta: float
    eta: float
    mu: float = 0.0
    mu_g: float = 0.0
    A_norm: float = 1.0
    A_least: float = 1.0
    AB_norm: float | None = None
    square: bool = False

    def __post_init__(self) -> None:
        for name, meaning in (
            ("nu", "smoothness of the f_i, the Lipschitz constant of their gradients"),
            ("beta", "penalty"),
            ("eta", "step size"),
            ("A_norm", "largest singular value of A"),
        ):
            value = getattr(self, name)
            if not positive_finite(value):
                raise ModelError(
                    f"{name} must be a positive finite number, got {show(value)}. It is the "
                    f"{meaning}."
                )
        if not (finite(self.mu) and 0 <= self.mu <= self.nu):
            raise ModelError(
                f"mu must be a number from 0 to nu={self.nu:g}, got {show(self.mu)}. No "
                "function is more strongly convex than it is smooth; write 0 if the f_i are convex "
                "only."
            )
        if not (finite(self.mu_g) and self.mu_g >= 0):
            raise ModelError(
                f"mu_g must be a finite number of at least 0, got {show(self.mu_g)}. It is the "
                "strong convexity of g; write 0 if g is convex only."
            )
        if not positive_finite(self.A_least) or self.A_least > self.A_norm:
            raise ModelError(
                f"A_least must be positive and at most A_norm={self.A_norm:g}, got "
                f"{show(self.A_least)}. It is the smallest singular value of A. If that is 0, rows "
                "of A depend on each other, and the noise in x does not reach all multipliers: "
                "eliminate rows until those left are independent. The others become constraints "
                "of y."
            )
        if self.AB_norm is not None and not (finite(self.AB_norm) and self.AB_norm >= 0):
            raise ModelError(
                f"AB_norm must be a finite number of at least 0, got {show(self.AB_norm)}. It is "
                "the largest singular value of A'B; leave it out if you do without the strongly "
                "convex bound."
            )
        store_python_numbers(
            self, "nu", "beta", "eta", "A_norm", "mu", "mu_g", "A_least", "AB_norm"
        )

    @classmethod
    def of(
        cls,
        A: ArrayLike,
        B: ArrayLike,
        *,
        nu: float,
        beta: float,
        eta: float,
        mu: float = 0.0,
        mu_g: float = 0.0,
    ) -> TwoBlock:
        """The constants with the singular values of the matrices, rounded to the safe side.

        Parameters
        ----------
        A : array_like, shape (m, n)
            Of full row rank.
        B : array_like, shape (m, k)
        nu, beta, eta, mu, mu_g : float
            As attributes.

        Raises
        ------
        ModelError
            If rows of A depend on each other, or a number is outside its range.
        """
        left, right = np.atleast_2d(np.asarray(A, float)), np.atleast_2d(np.asarray(B, float))
        m, n = left.shape
        values = np.linalg.svd(left, compute_uv=False)
        if m > n or not values.min() > 1e-10 * values.max():
            raise ModelError(
                f"A is {m} by {n} without full row rank (singular values from {values.min():.3g} "
                f"to {values.max():.3g}), so the noise in x does not reach all multipliers. "
                "Eliminate rows until those left are independent. The others become constraints "
                "of y."
            )
        return cls(
            nu=nu,
            beta=beta,
            eta=eta,
            mu=mu,
            mu_g=mu_g,
            A_norm=float(values.max()) * (1 + 1e-12),
            A_least=float(values.min() - 1e-12 * values.max()),
            AB_norm=float(np.linalg.norm(left.T @ right, 2)) * (1 + 1e-12),
            square=m == n,
        )

    @property
    def d(self) -> float:
        """``2 / (nu + mu) - eta``, positive in the strongly convex case."""
        return 2 / (self.nu + self.mu) - self.eta

    @property
    def R(self) -> float:
        """Weight of x in the norm of the strongly convex case, and before an iteration."""
        shrunk = 1 - 2 * self.eta * self.nu * self.mu / (self.nu + self.mu)
        return shrunk + self.d / self.eta

    @property
    def P(self) -> float:
        """Weight of x after an iteration."""
        return 1 - self.d / self.eta

    @property
    def S(self) -> float:
        """Weight of ``lambda - beta A x`` in the norm, and before an iteration."""
        return self.eta / self.beta

    @property
    def Q(self) -> float:
        """Weight of ``lambda - beta A x`` after an iteration."""
        return self.eta / self.beta + self.eta * self.d * self.A_least**2 / 4

    @property
    def contraction(self) -> float:
        """L, by which one iteration contracts the square of the norm (Lemma 7.6).

        Raises
        ------
        PrivacyError
            If Lemma 7.6 does not cover these constants.
        """
        if (why := refusal(self)) is not None:
            raise PrivacyError(why)
        return max(self.R / self.P, self.S / self.Q)

    @property
    def _h(self) -> float:
        return self.eta * self.beta * self.A_least**2

    @property
    def _low(self) -> float:
        return self._h if self.square else 0.0


def step_interval(
    nu: float, mu: float, mu_g: float, beta: float, AB_norm: float
) -> tuple[float, float]:
    """Equation (23): the open interval of step sizes eta with which iterations contract.

    It is empty, its ends being equal, if one of mu and mu_g is 0.

    Parameters
    ----------
    nu, mu : float
        Smoothness and strong convexity of the f_i.
    mu_g : float
        Strong convexity of g.
    beta : float
        Penalty.
    AB_norm : float
        Largest singular value of A'B.
    """
    high = 2 / (nu + mu)
    x = 4 / (nu + mu + math.sqrt((nu + mu) ** 2 + 8 * nu * mu))
    scale = (beta * AB_norm) ** 2
    y = high - 2 * mu_g / scale if scale > 0 else (-math.inf if mu_g > 0 else high)
    return max(x, y), high


def refusal(block: TwoBlock) -> str | None:
    """Why the strongly convex bound does not cover the constants; None if it does."""
    nu, mu, mu_g, beta, eta = block.nu, block.mu, block.mu_g, block.beta, block.eta
    if mu == 0:
        return (
            "The strongly convex bound needs every f_i strongly convex (mu > 0); a square of one "
            "linear function, for example, is not. Add a multiple of the squared norm of x to each "
            "f_i, or use the convex bound."
        )
    if mu_g == 0:
        return (
            "The strongly convex bound needs g strongly convex (mu_g > 0). Add a multiple of the "
            "squared norm of y to g, or use the convex bound."
        )
    if block.AB_norm is None:
        return "The strongly convex bound needs the norm of A'B: write AB_norm=."
    low, high = step_interval(nu, mu, mu_g, beta, block.AB_norm)
    choose = (
        f"Choose eta between {low:.6g} and {high:.6g} (both excluded), or use the convex bound."
    )
    if not eta < high:
        return (
            f"eta={eta:.6g} is not below 2 / (nu + mu) = {high:.6g}: an iteration need not "
            f"contract the multipliers (Q > S is violated). {choose}"
        )
    if not block.P > block.R:
        return (
            f"eta={eta:.6g} is not above 4 / (nu + mu + sqrt((nu + mu)^2 + 8 nu mu)): an iteration "
            f"need not contract x (P > R is violated). {choose}"
        )
    if not eta > low:
        return (
            f"eta={eta:.6g} is not above 2 / (nu + mu) - 2 mu_g / (beta ||A'B||)^2: g is not "
            f"convex enough to make up for the change of y. {choose} A smaller beta widens the "
            "interval."
        )
    if not max(block.R / block.P, block.S / block.Q) < 1:
        return f"The contraction factor is 1 within rounding errors. {choose}"
    return None


def local_zcdp(block: TwoBlock, sensitivity: float, sigma: float) -> float:
    """Loss of one use if every iterate is visible: an exact Gaussian mechanism.

    ``eta^2 Delta^2 / (2 sigma^2)``; if A is square, divided by ``(1 + eta beta s^2)^2`` with s its
    smallest singular value, because the noise enters after the multiplication by the inverse.
    """
    return _unit(block, sensitivity, sigma) / (1 + block._low) ** 2 * _UP


def bounds(block: TwoBlock, sensitivity: float, sigma: float, after: NDArray[np.int64]) -> Array:
    """Losses of single uses of a user, by every rule.

    Theorems 6.1 and 7.2, the latter corrected, both with sharper constants.

    Parameters
    ----------
    block : TwoBlock
    sensitivity : float
        Bound of the change of a user's gradient between neighbouring data.
    sigma : float
        Standard deviation of the noise in each component of x.
    after : ndarray of int, shape (K,)
        Number of iterations after the use.

    Returns
    -------
    ndarray, shape (3, K)
        Parameters of zero-concentrated differential privacy, and of Gaussian mechanisms, in the
        order of `RULES`; infinite where a rule does not apply.
    """
    unit = _unit(block, sensitivity, sigma)
    found = np.full((len(RULES), len(after)), np.inf)
    found[0] = local_zcdp(block, sensitivity, sigma)
    if unit > 0 and block.eta * block.nu <= 2 * (1 + 1e-15):
        found[1] = unit * _convex(block, after)
    if unit > 0 and refusal(block) is None:
        found[2] = unit * _strong(block, after)
    return found


def _least(block: TwoBlock, sensitivity: float, sigma: float, after: NDArray[np.int64]) -> Array:
    return bounds(block, sensitivity, sigma, after).min(axis=0)


@dataclass(frozen=True, eq=False)
class Profile:
    """The loss of every user when users take turns in a fixed order and the last iterate is out.

    Attributes
    ----------
    rho : ndarray, shape (users,)
        By position; users that had no turn lose nothing.
    local : ndarray, shape (users,)
        If every iterate is visible.
    """

    rho: Array = field(repr=False)
    local: Array = field(repr=False)

    @property
    def worst(self) -> int:
        """Position of the user who loses most."""
        return int(np.argmax(self.rho))

    def price(self, delta: float, user: int | None = None) -> Price:
        """Smallest provable epsilon for a user, by default the one who loses most."""
        i = self.worst if user is None else user
        return _gaussian_price(float(self.rho[i]), delta, amplified=self.rho[i] < self.local[i])

    def epsilons(self, delta: float) -> Array:
        """Epsilon by position."""
        values, where = np.unique(self.rho, return_inverse=True)
        return np.array([_gaussian_price(float(rho), delta).epsilon for rho in values])[where]


def profile(
    block: TwoBlock, sensitivity: float, sigma: float, *, users: int, iterations: int | None = None
) -> Profile:
    """Bounds by position for users who take turns, ``0, 1, ..., users - 1, 0, 1, ...``.

    Parameters
    ----------
    block : TwoBlock
    sensitivity : float
        Bound of the change of every user's gradient between neighbouring data.
    sigma : float
        Standard deviation of the noise in each component of x.
    users : int
    iterations : int, optional
        One pass by default; several passes are multiples of `users`.

    Raises
    ------
    PrivacyError
        If the sensitivity is not finite, or sigma not positive.
    """
    total = _turns(users, iterations)
    position = np.arange(users)
    uses = np.maximum(0, (total - 1 - position) // users + 1)
    last = np.maximum(0, total - 1 - position - (uses - 1) * users)
    between = _least(block, sensitivity, sigma, np.array([users - 1])).item()
    # The chain over the last m uses, all amplified up to the end, after composition of the rest.
    rho = np.where(uses > 0, np.inf, 0.0)
    roots = np.zeros(users)
    for m in range(1, int(uses.max()) + 1):
        roots += np.sqrt(_least(block, sensitivity, sigma, last + (m - 1) * users))
        here = uses >= m
        rho[here] = np.minimum(rho, (uses - m) * between + roots**2)[here]
    local = uses * local_zcdp(block, sensitivity, sigma)
    rho = np.minimum(rho * _UP, local)
    for values in (rho, local):
        values.setflags(write=False)
    return Profile(rho, local)


@dataclass(frozen=True, eq=False)
class Mixture:
    """The loss of every user alike, when how many iterations follow a user is random.

    The randomness must not depend on the data. It may become known: the bounds are those of
    releasing it along with the final iterate.

    Attributes
    ----------
    rho : ndarray
        Losses given the outcome.
    weight : ndarray
        Probabilities of the outcomes.
    how : str
    """

    rho: Array = field(repr=False)
    weight: Array = field(repr=False)
    how: str

    def delta(self, epsilon: float) -> float:
        """The delta that goes with an epsilon: the mean of the Gaussian profiles."""
        some = self.rho > 0
        deltas = gaussian_delta(epsilon, np.sqrt(2 * self.rho[some]))
        return min(1.0, float(self.weight[some] @ deltas) * _UP)

    def price(self, delta: float) -> Price:
        """Smallest provable epsilon at `delta`."""
        check_delta(delta)
        name = f"mean of Gaussian profiles ({self.how})"
        worst = _gaussian_price(float(self.rho.max()), delta)
        low, high = 0.0, worst.epsilon
        if not 0 < high < math.inf:
            return Price(high, delta, name)
        if self.delta(0.0) <= delta:
            return Price(0.0, delta, name)
        if self.delta(high) > delta:
            return worst
        while high - low > 1e-10 * high:
            middle = (low + high) / 2
            low, high = (low, middle) if self.delta(middle) <= delta else (middle, high)
        return Price(high * _UP, delta, name)


def permuted(
    block: TwoBlock, sensitivity: float, sigma: float, *, users: int, iterations: int | None = None
) -> Mixture:
    """Every user's loss if one uniform permutation, kept for all passes, fixes the order.

    Permutations drawn anew for each pass are not covered. Arguments as in `profile`.
    """
    found = profile(block, sensitivity, sigma, users=users, iterations=iterations)
    return Mixture(found.rho, np.full(users, 1 / users), "random permutation")


def stopped(block: TwoBlock, sensitivity: float, sigma: float, *, users: int) -> Mixture:
    """Every user's loss in one pass that stops at a uniform number of N // 2 + 1 to N iterations.

    The bound is that of user N // 2 + 1: those before have more iterations after them whatever the
    number, and those after are left out more often. Arguments as in `profile`.
    """
    _turns(users, None)
    outcomes = users - users // 2
    rho = _least(block, sensitivity, sigma, np.arange(outcomes))
    return Mixture(rho, np.full(outcomes, 1 / outcomes), "random stopping")


@dataclass(frozen=True, eq=False)
class Sampled:
    """The loss of every user alike, when each iteration draws its user uniformly at random.

    Not in the paper. The uses compose as if the iterate before each next use were released, and the
    Renyi divergence is that of the mixture over the draws, which may become known.

    Attributes
    ----------
    rho : ndarray, shape (iterations,)
        Loss of one use with 0, 1, ... iterations until the next use or the end.
    users : int
    """

    rho: Array = field(repr=False)
    users: int

    def renyi(self, alphas: Sequence[float]) -> Array:
        """Bounds of the Renyi divergence at some orders. Quadratic in the iterations."""
        for alpha in alphas:
            _check_order(alpha)
        order = np.asarray(alphas, float)
        N, q = len(self.rho), 1 / self.users
        unused = (1 - q) ** np.arange(N)
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            # All moments less 1: of a use by the iterations until the next one or the end, and
            # `moment[m]` of all that follows a use with m iterations left after it.
            use = np.expm1((order - 1) * order * self.rho[:, None])
            drawn = q * unused[:, None]
            moment = np.empty((N, len(order)))
            for m in range(N):
                later = use[:m] + (1 + use[:m]) * moment[:m][::-1]
                moment[m] = unused[m] * use[m] + (drawn[:m] * later).sum(axis=0)
            bound = np.log1p((drawn * moment[::-1]).sum(axis=0)) / (order - 1)
        return np.where(np.isnan(bound), np.inf, bound) * (1 + 1e-9)

    def price(self, delta: float) -> Price:
        """Smallest epsilon at `delta` over a grid of orders."""
        check_delta(delta)
        name = "Renyi divergence (random sampling)"
        if self.rho.max() == 0:
            return Price(0.0, delta, name)
        orders = [alpha for alpha in _ORDERS if alpha * (alpha - 1) * self.rho[0] < 600]
        if not orders:
            return Price(math.inf, delta, name)
        return Price(_converted(orders, self.renyi(orders), delta), delta, name)


def sampled(
    block: TwoBlock, sensitivity: float, sigma: float, *, users: int, iterations: int
) -> Sampled:
    """Every user's loss if each iteration draws its user uniformly, with replacement.

    Arguments as in `profile`.
    """
    total = _turns(users, iterations)
    return Sampled(_least(block, sensitivity, sigma, np.arange(total)), users)


def _converted(
    orders: Sequence[float], divergences: Sequence[float] | Array, delta: float
) -> float:
    from dp_accounting.rdp import compute_epsilon

    if delta == 0:
        return math.inf
    return float(compute_epsilon(list(orders), list(divergences), delta)[0]) * _UP


def _gaussian_price(rho: float, delta: float, amplified: bool = True) -> Price:
    price = Composition(mu2=2 * rho).price(delta)
    if amplified and rho > 0:
        return Price(price.epsilon, delta, "Gaussian bound, amplified by iteration")
    return price


def _unit(block: TwoBlock, sensitivity: float, sigma: float) -> float:
    if not (finite(sensitivity) and sensitivity >= 0):
        raise PrivacyError(
            f"sensitivity must be a finite number of at least 0, got {show(sensitivity)}. It "
            "bounds how far one change moves a user's gradient, at every x. Clip the gradients, or "
            "bound the data and x."
        )
    if not positive_finite(sigma):
        raise PrivacyError(
            f"sigma must be a positive finite number, got {show(sigma)}. It is the standard "
            "deviation of the noise, and without noise there is no privacy."
        )
    return (block.eta * sensitivity / sigma) ** 2 / 2


def _turns(users: int, iterations: int | None) -> int:
    if not is_int(users, 1):
        raise ModelError(f"users must be a whole number of at least 1, got {show(users)}.")
    if iterations is None:
        return users
    if not is_int(iterations, 1):
        raise ModelError(
            f"iterations must be a whole number of at least 1, got {show(iterations)}."
        )
    return int(iterations)


def _check_order(alpha: float) -> None:
    if not (finite(alpha) and alpha > 1):
        raise PrivacyError(
            f"The order alpha of a Renyi divergence must be above 1, got {show(alpha)}."
        )


def _start(block: TwoBlock, R: float) -> float:
    """kappa_R: squared norm of the first change, in units of (eta Delta)^2."""
    highest = block.eta * block.beta * block.A_norm**2
    s = min(max(1 - 2 * R, block._low), highest)
    return (R + s) / (1 + s) ** 2


def _pair(block: TwoBlock, q: float, R: float) -> float:
    """c(q, R): squared shift of the two noises of a pair, in units of the squared norm."""
    h, qq = block._h, q * q
    trace = qq / R + (1 + qq) / h
    return trace * (1 + math.sqrt(max(1 - 4 * (qq / R / trace) * (1 / h / trace), 0.0))) / 2


def _convex(block: TwoBlock, after: NDArray[np.int64]) -> Array:
    pairs = (after + 1) // 2
    bound = np.full(after.shape, np.inf)
    some = pairs > 0
    bound[some] = _start(block, 1.0) * _pair(block, 1.0, 1.0) / pairs[some] * _UP
    return bound


def _strong(block: TwoBlock, after: NDArray[np.int64]) -> Array:
    L = block.contraction
    pairs = (after + 1) // 2
    bound = np.full(after.shape, np.inf)
    some = pairs > 0
    T, log = pairs[some], math.log(L)
    # 1 / sum of L^(-2j) over j < T.
    with np.errstate(under="ignore"):
        harmonic = np.exp(2 * (T - 1) * log) * np.expm1(2 * log) / np.expm1(2 * T * log)
    first = np.where(after[some] % 2 == 0, L, 1.0)
    constant = _start(block, block.R) * _pair(block, 1 - block.eta * block.mu, block.R)
    bound[some] = np.maximum(constant * first * harmonic, _TINY) * _UP
    return bound
