r"""Noisy gradient ADMM that releases only its final iterate: privacy loss of a single user.

Chan, Xie and Zhao (arXiv 2312.08685). One iteration uses the gradient of one user,

.. math::
    y \in \arg\min_y g(y) + \tfrac\beta2 \|A x + B y - c - \lambda / \beta\|^2, \quad
    \lambda^+ = \lambda - \beta (A x + B y - c), \\
    x^+ = (I + \eta \beta A'A)^{-1} (x - \eta [\nabla f(x) + A'(\beta (B y - c) - \lambda^+)])
        + N(0, \sigma^2 I),

and neighboring functions have gradients that differ by at most :math:`\Delta` everywhere. Let k
more iterations follow a user's, and let their outputs :math:`(x, \lambda)` stay unreleased until
the last one. In units of :math:`\eta^2 \Delta^2 / (2 \sigma^2)`, the user's privacy loss is then
at most, with ``T = (k + 1) // 2``,

=================  ==================================================================
local              :math:`1 / (1 + l)^2`
convex             :math:`\kappa_1 c(1, 1) / T`, if :math:`\eta \le 2 / \nu`
strongly convex    :math:`\kappa_R c(1 - \eta \mu, R) L^e / \sum_{j < T} L^{-2j}`, e = 1 if
                   k is even and 0 if odd, if :math:`\eta` is in `step_interval`
=================  ==================================================================

where :math:`h = \eta \beta \underline s^2` for the smallest of the m singular values of A,
:math:`l = h` if A is square and 0 otherwise, :math:`\kappa_R` is the maximum of
:math:`(R + s)/(1 + s)^2` for s from l to :math:`\eta \beta \|A\|^2`, c(q, R) is the larger
eigenvalue of :math:`[[q^2 / R, q^2 / \sqrt{R h}], [q^2 / \sqrt{R h}, (1 + q^2) / h]]`, and with
:math:`d = 2 / (\nu + \mu) - \eta`

.. math::
    R = 1 - \frac{2 \eta \nu \mu}{\nu + \mu} + \frac d\eta, \quad P = 1 - \frac d\eta, \quad
    S = \frac\eta\beta, \quad Q = \frac\eta\beta + \frac{\eta d}4 \underline s^2, \quad
    L = \max\Bigl(\frac RP, \frac SQ\Bigr).

Proof, where it differs from the paper's. An iteration does not expand :math:`R \|dx\|^2 + \eta
\beta \|w\|^2` with :math:`w = d\lambda / \beta - A dx`, where R = 1 in the convex case. There,
Lemma 6.5 needs only :math:`\|dx - \eta d\nabla f\| \le \|dx\|` of f, which holds up to :math:`\eta
= 2 / \nu`. In Lemma 7.6, the iteration contracts this expression by L. The user's own step moves x
by :math:`\eta (I + \eta \beta A'A)^{-1} e`, of squared norm at most :math:`\kappa_R \eta^2
\Delta^2`: the paper's :math:`1 + \eta \beta \|A\|^2` is not needed. For the two noises of a pair of
iterations, write N = V u + V' z with V spanning the rows of A. Given z, the first noise hides
:math:`\lambda - \beta A x` as a Gaussian mechanism with shift :math:`b = \|A^+ w\| \le \|w\| /
\underline s`. Given its output, the second noise hides x with shift at most :math:`q (\|dx\| + b)`.
Both are as in the paper, for any A of full row rank. Together the squared shifts are at most
:math:`b^2 + q^2 (\|dx\| + b)^2 \le c (R \|dx\|^2 + \eta \beta \|w\|^2)`, where the paper bounds the
square of the sum by twice the sum of squares. A pair may also consist of the user's own noise and
the next iteration. The coupling argument for T pairs, minimized over the intermediate points, gives
the harmonic sum of the bound. The proof uses only the data processing inequality, adaptive
composition of Gaussian mechanisms and mixtures with known index. All of them hold for trade-off
functions: a bound rho is also a bound by a Gaussian mechanism of parameter :math:`\mu^2 = 2 \rho`,
and is accounted for as such.

Two more rules apply if a certificate proves them for the constants; `contraction` has their proofs.
They need neither a strongly convex g nor a step size in an interval:

=================  ==================================================================
contraction        :math:`\kappa \rho^e / \sum_{j < T} \rho^{-2j}`, both from the certificate
round by round     :math:`g_k`: a shift in every round, rather than one for each pair
=================  ==================================================================

All steps are assumed exact: an inexact y or x step is not known to be nonexpansive. Algorithm 4 of
the paper starts its iteration at another of these updates, with equal bounds.
`problems/elastic_net/printed.py` lists the errors of the published formulas.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._arguments import finite, positive_finite, show, store_python_numbers
from ..errors import ModelError, PrivacyError
from ..guard import frameless
from .contraction import MOST_VALUES, Certificate, Iteration, Proved, prove

Array = NDArray[np.float64]
Rule = Literal["local", "convex", "strongly convex", "contraction", "round-by-round"]

RULES: tuple[Rule, ...] = (
    "local",
    "convex",
    "strongly convex",
    "contraction",
    "round-by-round",
)
# Factor that covers the formulas' relative rounding errors, which are about 1e-15.
UP = 1 + 1e-11
# Singular values within this relative distance count as equal. A matrix with a larger condition
# number has singular values that are not accurate to `contraction.GAIN_ERROR`.
_ONE, _CONDITION = 1e-12, 300.0
# Lower limit of bounds, so that they do not underflow to zero.
_TINY = 1e-290


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
    spectrum : tuple of float, optional
        Distinct singular values of A, the largest first. Only certificates need them.
    B_norm : float or None
        Largest singular value of B. Only certificates need it.
    certificate : contraction.Certificate, optional
        Numbers that imply smaller bounds. They may come from any solver: they are verified here.
    proved : contraction.Proved or None
        Privacy losses that follow from the verified certificate.
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
    spectrum: tuple[float, ...] = ()
    B_norm: float | None = None
    certificate: Certificate | None = field(default=None, repr=False)
    proved: Proved | None = field(default=None, init=False, repr=False, compare=False)

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
            self, "nu", "beta", "eta", "A_norm", "mu", "mu_g", "A_least", "AB_norm", "B_norm"
        )
        if self.certificate is not None:
            iteration = self.iteration
            if iteration is None:
                raise PrivacyError(
                    "A certificate of amplification by iteration needs the singular values of A "
                    "and the norm of B. Write TwoBlock.of(A, B, ...). Matrices with more than "
                    f"{MOST_VALUES} distinct singular values, or a condition number above "
                    f"{_CONDITION:g}, are not covered: leave certificate= out."
                )
            object.__setattr__(self, "proved", prove(self.certificate, iteration))

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
        """Return the constants with the singular values of the matrices, rounded to the safe side.

        Parameters
        ----------
        A : array_like, shape (m, n)
            Matrix of full row rank.
        B : array_like, shape (m, k)
            Matrix of y in the constraint.
        nu, beta, eta, mu, mu_g : float
            Constants; see the attributes.

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
            spectrum=_distinct(values),
            B_norm=float(np.linalg.norm(right, 2)) * (1 + 1e-12),
        )

    @property
    def iteration(self) -> Iteration | None:
        """Constants that a certificate refers to, on the safe side; None if A or B is unknown."""
        if not self.spectrum or not self.B_norm:
            return None
        curved = self.mu_g / (self.beta * self.B_norm**2)
        return Iteration(
            smooth=self.eta * self.nu * (1 + 1e-12),
            convex=self.eta * self.mu * (1 - 1e-12),
            public=curved * (1 - 1e-12),
            gains=tuple(self.eta * self.beta * s * s for s in self.spectrum),
            null=not self.square,
        )

    @property
    def d(self) -> float:
        """``2 / (nu + mu)`` minus the step size eta; positive in the strongly convex case."""
        return 2 / (self.nu + self.mu) - self.eta

    @property
    def R(self) -> float:
        """Weight of x in Lemma 7.6's norm of two runs' difference before an iteration."""
        shrunk = 1 - 2 * self.eta * self.nu * self.mu / (self.nu + self.mu)
        return shrunk + self.d / self.eta

    @property
    def P(self) -> float:
        """Weight of x in Lemma 7.6's norm of two runs' difference after an iteration."""
        return 1 - self.d / self.eta

    @property
    def S(self) -> float:
        """Weight of ``lambda - beta A x`` in Lemma 7.6's norm before an iteration."""
        return self.eta / self.beta

    @property
    def Q(self) -> float:
        """Weight of ``lambda - beta A x`` in Lemma 7.6's norm after an iteration."""
        return self.eta / self.beta + self.eta * self.d * self.A_least**2 / 4

    @property
    def contraction(self) -> float:
        """Contraction factor L of the squared norm in one iteration (Lemma 7.6).

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
    """Return the open interval of contracting step sizes eta, by the paper's equation (23).

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
    """Return the reason why the bound for strong convexity is inapplicable; None if it applies."""
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
    """Return the zCDP loss of one use of a user's gradient if every iterate is released.

    It is ``eta^2 Delta^2 / (2 sigma^2)``. If A is square, it is divided by ``(1 + eta beta s^2)^2``
    with s the smallest singular value, because the noise is added after multiplying by the inverse.
    """
    return _unit(block, sensitivity, sigma) / (1 + block._low) ** 2 * UP


def bounds(
    block: TwoBlock,
    sensitivity: float,
    sigma: float,
    after: NDArray[np.int64],
    *,
    x_alone: bool = False,
) -> Array:
    """Return the privacy loss of a single use of a user's gradient, by every rule.

    The rules are Theorem 6.1 and a corrected Theorem 7.2, both with sharper constants, and the
    rules that the block's certificate proves.

    Parameters
    ----------
    block : TwoBlock
        Constants of the problem and the steps.
    sensitivity : float
        Bound of the change of a user's gradient between neighboring data.
    sigma : float
        Standard deviation of the noise in each component of x.
    after : ndarray of int, shape (K,)
        Number of iterations after the use, for K uses.
    x_alone : bool
        Whether the last iteration releases x only, without the multipliers.

    Returns
    -------
    ndarray, shape (5, K)
        Parameters rho of zero-concentrated differential privacy, which also bound Gaussian
        mechanisms (mu^2 = 2 rho), in the order of `RULES`; infinite if a rule does not apply.
    """
    unit = _unit(block, sensitivity, sigma)
    losses = np.full((len(RULES), len(after)), np.inf)
    losses[0] = local_zcdp(block, sensitivity, sigma)
    if unit > 0 and block.eta * block.nu <= 2 * (1 + 1e-15):
        losses[1] = unit * _convex(block, after)
    if unit > 0 and refusal(block) is None:
        losses[2] = unit * _strong(block, after)
    if unit > 0 and block.proved is not None:
        single = block.proved.of_last if x_alone else block.proved.of_state
        losses[3] = np.maximum(unit * block.proved.of_pairs(after), _TINY) * UP
        losses[4] = np.maximum(unit * single(after), _TINY) * UP
    return losses


def least(
    block: TwoBlock,
    sensitivity: float,
    sigma: float,
    after: NDArray[np.int64],
    *,
    x_alone: bool = False,
) -> Array:
    """Return the smallest privacy loss per use, shape (K,), over the rules of `bounds`."""
    return bounds(block, sensitivity, sigma, after, x_alone=x_alone).min(axis=0)


def _distinct(values: Array) -> tuple[float, ...]:
    """Return distinct singular values, the largest first; empty if they are too inaccurate.

    The error of each is below 1e-13 of the largest one.
    """
    if not values.min() * _CONDITION >= values.max():
        return ()
    distinct: list[float] = []
    for value in sorted(map(float, values), reverse=True):
        if not distinct or value < distinct[-1] * (1 - _ONE):
            distinct.append(value)
    return tuple(distinct) if len(distinct) <= MOST_VALUES else ()


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


def _start(block: TwoBlock, R: float) -> float:
    """Return kappa_R: a bound of the state's squared change by a user, over (eta Delta)^2."""
    highest = block.eta * block.beta * block.A_norm**2
    s = min(max(1 - 2 * R, block._low), highest)
    return (R + s) / (1 + s) ** 2


def _pair(block: TwoBlock, q: float, R: float) -> float:
    """Return c(q, R): a bound of squared shifts for two noises, over the squared norm."""
    h, qq = block._h, q * q
    trace = qq / R + (1 + qq) / h
    return trace * (1 + math.sqrt(max(1 - 4 * (qq / R / trace) * (1 / h / trace), 0.0))) / 2


def _convex(block: TwoBlock, after: NDArray[np.int64]) -> Array:
    pairs = (after + 1) // 2
    bound = np.full(after.shape, np.inf)
    some = pairs > 0
    bound[some] = _start(block, 1.0) * _pair(block, 1.0, 1.0) / pairs[some] * UP
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
    bound[some] = np.maximum(constant * first * harmonic, _TINY) * UP
    return bound
