r"""Public numbers behind DPP2 (Ou, Wang, Liu and Lu, Algorithm 1): step sizes and privacy loss.

With :math:`L = P \otimes I`, :math:`G = \alpha I - \beta L` and noise :math:`w^k, e^k` of scales
:math:`u_w r^k, u_e r^k`, the iteration is

.. math::
    x^{k+1} &= x^k + w^k - G (\nabla f(x^k) + q^k + \rho L (x^k + w^k)) + \beta L e^k && (20) \\
    q^{k+1} &= q^k + \rho L (x^k + w^k) && (21)

for k = 0, ..., K. Everyone sees :math:`x^k + w^k` and the gradient plus :math:`e^k`, up to numbers
that follow from earlier messages; :math:`\eta^k` is public and does not change the loss.

**Privacy.** Let agent i have f or f', with :math:`\|\nabla f - \nabla f'\| \le \delta` everywhere
and let both be M-smooth. For equal messages, noise must offset the difference :math:`\Delta x^k`
of the points and :math:`\Delta g^k` of their gradients; from equal starts these obey

.. math::
    \|\Delta x^{k+1}\| = \alpha \|\Delta g^k\|, \qquad
    \|\Delta g^k\| \le \delta + M \|\Delta x^k\|,

so that :math:`\|\Delta g^k\| \le \delta S_{k+1}` and :math:`\|\Delta x^k\| \le \alpha \delta S_k`
with :math:`S_k = \sum_{t < k} (\alpha M)^t`, finite also for :math:`\alpha M \ge 1`. l1 norms are
at most :math:`\sqrt d` times l2 norms, so that the privacy loss of K + 1 rounds is at most

.. math::
    \epsilon = \sqrt d \, \delta \sum_{k=0}^{K} r^{-k} \Bigl(
        \frac{S_{k+1}}{u_e} + \frac{\alpha S_k}{u_w} \Bigr),

which f' of constant curvature -M attains. It covers all messages. The points themselves stay with
their agents: :math:`x^{K+1}` and the messages together uncover the last gradient without noise.

Errata of the paper:

* Theorem 3 sums over k = 1, ..., K, and Algorithm 1 runs k = 0, ..., K: the gradient of round 0
  costs :math:`\sqrt d \, \delta / u_e`. For K rounds, numbered 0 to K - 1 or 1 to K, the theorem
  holds, and (63) and (64) are exact if rounds are numbered from 1. It drops their second terms;
  what it drops from rounds 1 to K makes up for round 0 only if :math:`\alpha M` is not small.
* Corollary 1 is wrong: a positive term is dropped from the left side of an inequality, the exponent
  K + 1 is printed as K, and delta and M change places. It lets r be as small as
  :math:`(\tilde c / \epsilon)^{1/(K-1)}`, although each of the K terms of Theorem 3 is at least
  :math:`\tilde c`, so that no r below one will do unless :math:`\epsilon > K \tilde c`.
* Lemma 1 and Theorems 1 and 2 are wrong. (21) uses :math:`x^k` where the multiplier's step needs
  :math:`x^{k+1}`. On a mode of disagreement with eigenvalues lambda of L and g of G, where all
  agents have curvature h, one round is a matrix of determinant :math:`1 - g h`. Without curvature
  disagreement swings for ever: :math:`f_i = c_i' x` with :math:`\sum c_i = 0` is a counterexample
  to Theorem 1. Disagreement grows if local curvature is negative: three agents with curvatures -1,
  -1 and 3 are a counterexample to Theorem 2. The proof of Lemma 1 bounds :math:`\tfrac12 |a + b|^2`
  by :math:`|a|^2 / \gamma + \gamma |b|^2`, which fails for :math:`\gamma < 1/2`. With a term
  :math:`\sigma L (x^k + w^k)` added to the gradient in (20), which every agent can compute from
  what it hears, the determinant is :math:`1 - g (h + \sigma \lambda)`; see `disagreement_rate`.
  That proves convergence of disagreement where all agents have one constant curvature; where
  curvatures differ or change, it is open, and runs are all there is to go by.
* (23) has :math:`\rho^2 \bar\lambda_L` in :math:`\xi_2` where the proof needs
  :math:`\rho^2 \bar\lambda_L^2`, and :math:`\bar\lambda_L` in :math:`\xi_1` where it needs the
  smaller of :math:`\bar\lambda_L (1 / \kappa_G - \bar c_\theta)` and
  :math:`\underline\lambda_L (1 - \bar c_\theta)`. Here they are as printed.
* The start of Theorem 1, V^0, leaves out how much the agents' gradients differ: from equal points
  it is 0, and the bound with it, while linear objectives that cancel move these points apart.
* Lemma 2 counts N coordinates of noise, not N d.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from dpcvx._arguments import (
    POSITIVE,
    check_fields,
    finite,
    integer,
    number,
    optional,
    show,
    store_python_numbers,
)
from dpcvx.errors import ModelError

Array = NDArray[np.float64]

# Candidates for c_theta and gamma, as fractions of their ranges.
_SHARES = np.linspace(0.02, 0.98, 49)
_SMALL_SHARES = np.geomspace(1e-3, 0.98, 40)


# Step sizes ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Parameters:
    """Parameters of conditions (24) to (27).

    Parameters
    ----------
    alpha, beta, rho : float
        Step size, weight of the neighbors' gradients, penalty.
    c_theta, gamma : float, optional
        Constants of the proof; if omitted, `conditions` searches those easiest to satisfy.

    Raises
    ------
    ModelError
        If a parameter is not a positive finite number.
    """

    alpha: float
    beta: float
    rho: float
    c_theta: float | None = None
    gamma: float | None = None

    def __post_init__(self) -> None:
        check_fields(
            self,
            "Parameters",
            alpha=POSITIVE,
            beta=POSITIVE,
            rho=POSITIVE,
            c_theta=optional(POSITIVE),
            gamma=optional(POSITIVE),
        )


def spectrum(P: Array) -> tuple[float, float]:
    """Return the least and largest positive eigenvalue of P, I - W or a network's Laplacian."""
    values = np.linalg.eigvalsh(P)
    return float(values[1]), float(values[-1])


@dataclass(frozen=True)
class Condition:
    """One of the conditions (15) and (24) to (27), with given parameters.

    Attributes
    ----------
    name : str
        Name of the bounded number.
    value : float
        Value of the bounded number.
    limit_name : str
        Name of the limit.
    limit : float
        Value of the limit.
    below : bool
        Whether the number must be less than the limit; else it must exceed it.
    equation : str
        Number of the paper's equation, with the text in front of it.
    addition : str
        Text on other quantities that the numbers depend on.
    """

    name: str
    value: float
    limit_name: str
    limit: float
    below: bool
    equation: str
    addition: str = ""

    @property
    def holds(self) -> bool:
        """Return whether the number is on its side of the limit."""
        return bool(self.value < self.limit if self.below else self.value > self.limit)

    def __str__(self) -> str:
        relation = "<" if self.below else ">"
        return (
            f"{self.equation}: {self.name} = {self.value:.4g} {relation} {self.limit_name} = "
            f"{self.limit:.4g}"
        )

    @property
    def violated(self) -> str:
        """The condition as a sentence that states the requirement."""
        verb = "must be less than" if self.below else "must exceed"
        return (
            f"{self.name}={self.value:.6g} {verb} {self.limit_name} = {self.limit:.6g}"
            f"{self.addition}"
        )


def conditions(P: Array, smoothness: float, parameters: Parameters) -> list[Condition]:
    """Return conditions (15) and (24) to (27) of the paper for given parameters.

    They do not prove convergence, see the module. The method makes sense without most of them, but
    not without a positive definite G. (27) on beta is no condition: it defines the second
    eigenvalue of G, and the last part of (26) is (27) on alpha.

    Parameters
    ----------
    P : ndarray, shape (N, N)
        Matrix as for `spectrum`.
    smoothness : float
        Largest smoothness constant of an agent, M.
    parameters : Parameters
        If c_theta or gamma is omitted, (25) and (26) are checked with the best of a fine grid.

    Returns
    -------
    list of Condition
        The conditions, without those that are undefined because another is violated.
    """
    _check_smoothness(smoothness)
    low, high = spectrum(P)
    alpha, beta, M = parameters.alpha, parameters.beta, smoothness
    listed = [
        Condition(
            "alpha", alpha, "xi_6 / xi_7", _largest_step(M), True, "(27)",
            f" (27), at M = {M:.6g}",
        ),
        Condition(
            "beta", beta, "alpha / lambda_max(P)", alpha / high, True, "(15), (24)",
            f", with lambda_max(P) = {high:.6g}: G = alpha I - beta L is not positive definite "
            "(15)",
        ),
    ]  # fmt: skip
    if not listed[-1].holds:
        return listed
    top = alpha - beta * low  # the largest eigenvalue of G on disagreements
    inverse = (alpha - beta * high) / top  # 1 / kappa_G
    if parameters.c_theta is None or parameters.gamma is None:
        parameters = _with_room(low, high, top, inverse, parameters, M)
    c_theta, gamma = parameters.c_theta, parameters.gamma
    assert c_theta is not None and gamma is not None
    listed += [
        Condition("c_theta", c_theta, "1 / kappa_G", inverse, True, "(24)", " (24)"),
        Condition("gamma", gamma, "c_theta / 5", c_theta / 5, True, "(24)", " (24)"),
    ]
    if not (listed[-2].holds and listed[-1].holds):
        return listed  # (25) and (26) divide by the room that these leave
    limits = _limits(low, high, inverse, alpha / top, parameters.rho, c_theta, gamma, M)
    with_them = f"with c_theta = {c_theta:.3g}, gamma = {gamma:.3g}"
    for name, bound in (("xi_8", limits.xi_8), ("xi_9", limits.xi_9)):
        listed.append(
            Condition("rho", parameters.rho, name, float(bound), False, "(25)",
                      f" (25), {with_them}")
        )  # fmt: skip
    for name, bound in (("xi_1 / xi_2", limits.first), ("the root of xi_3 to xi_5", limits.root)):
        listed.append(
            Condition("lambda_2(G)", top, name, float(bound), True, "(26)", f" (26), {with_them}")
        )
    return listed


def violations(P: Array, smoothness: float, parameters: Parameters) -> list[str]:
    """Return sentences on the paper's conditions that do not hold; empty if all hold.

    Parameters
    ----------
    P : ndarray, shape (N, N)
        Matrix as for `spectrum`.
    smoothness : float
        Largest smoothness constant of an agent, M.
    parameters : Parameters
        Parameters as for `conditions`.
    """
    return [own.violated for own in conditions(P, smoothness, parameters) if not own.holds]


def theorem_1(
    P: Array, smoothness: float, parameters: Parameters, start: float, rounds: int
) -> float:
    """Return Theorem 1's bound of the mean gap (31) over rounds 0 to K, without noise.

    Parameters
    ----------
    P : ndarray, shape (N, N)
    smoothness : float
        M.
    parameters : Parameters
        With c_theta and gamma.
    start : float
        The paper's V^0 with a hat, of the initial points.
    rounds : int
        K + 1.

    Returns
    -------
    float
        Value that the theorem states. The theorem does not hold, see the module.
    """
    constants = _rate_constants(P, smoothness, parameters)
    step = parameters.alpha * (0.25 - (smoothness + 10.5 * smoothness**2) * parameters.alpha)
    return constants.upper * start / (min(constants.first, step) * rounds)


def theorem_2(
    P: Array, smoothness: float, parameters: Parameters, start: float, curvature: float, k: int
) -> float:
    """Return Theorem 2's bound of squared disagreement plus f - f*, after k rounds without noise.

    Parameters
    ----------
    P : ndarray, shape (N, N)
    smoothness : float
        M.
    parameters : Parameters
        With c_theta and gamma.
    start : float
        The paper's V^0 with a hat, of the initial points.
    curvature : float
        nu of the Polyak-Lojasiewicz condition (32).
    k : int

    Returns
    -------
    float
        Value that the theorem states. The theorem does not hold, see the module.
    """
    constants = _rate_constants(P, smoothness, parameters)
    slowest = min(constants.first, constants.second, parameters.alpha * curvature * len(P) / 4)
    fall = math.exp(k * math.log1p(-min(slowest, constants.upper) / constants.upper))
    return fall * constants.upper * start / constants.lower


@dataclass(frozen=True)
class _RateConstants:
    """zeta_3, zeta_4 and the first two entries of zeta_6, as printed."""

    lower: float  # zeta_3
    upper: float  # zeta_4
    first: float  # lambda (xi_1 - xi_2 lambda)
    second: float  # lambda^2 (xi_3 - xi_4 lambda - xi_5 lambda^2)


def _rate_constants(P: Array, M: float, parameters: Parameters) -> _RateConstants:
    low, high = spectrum(P)
    top = parameters.alpha - parameters.beta * low
    bottom = parameters.alpha - parameters.beta * high
    c_theta, gamma, rho = parameters.c_theta, parameters.gamma, parameters.rho
    assert c_theta is not None and gamma is not None
    theta = c_theta * top
    zetas = []
    for weight in (
        bottom * (theta + 1 / (rho * high)),  # c_1
        top * (theta + 1 / (rho * low)),  # c_2
    ):
        zetas.append(1 - weight + math.hypot(weight - 1, theta))
    limits = _limits(low, high, bottom / top, parameters.alpha / top, rho, c_theta, gamma, M)
    xi_3 = c_theta / 2 - 5 * gamma / 2 - 1 / (rho * low) ** 2
    xi_4, xi_5 = c_theta**2 / 4, 7 * c_theta**2 / 4
    return _RateConstants(
        0.5 - zetas[0] / 4,
        max(0.5 + zetas[1] / 4, 1.0),
        float(top * (limits.xi_1 - limits.xi_2 * top)),
        top**2 * (xi_3 - xi_4 * top - xi_5 * top**2),
    )


@dataclass(frozen=True)
class LocalConvergence:
    """The convergence rate of DPP2 without noise near a stationary point, with its hypotheses.

    Attributes
    ----------
    rate : float
        Spectral radius of one round's derivative, on multipliers of mean 0, as in every run. If it
        is below 1, starts near enough converge at any linear rate above it.
    gradient : float
        Norm of the mean gradient at the point, 0 at a stationary point.
    least_curvature, least_step : float
        Least eigenvalues of the sum's Hessian at the point, and of G. The first is positive at a
        strict minimum, the second under (15).
    """

    rate: float
    gradient: float
    least_curvature: float
    least_step: float

    @property
    def holds(self) -> bool:
        """Return whether all hypotheses hold and the rate is below 1."""
        small = self.gradient <= 1e-10
        return small and self.least_curvature > 0 and self.least_step > 0 and self.rate < 1


def local_convergence(
    P: Array, parameters: Parameters, gradient: Array, hessians: Array
) -> LocalConvergence:
    r"""Return the convergence rate of (20) and (21) without noise near a stationary point.

    At :math:`x_i = x^*` and :math:`q_i = -\nabla f_i(x^*)` one round maps the point to itself if
    :math:`\sum_i \nabla f_i(x^*) = 0`. Its derivative has the blocks
    :math:`I - G (H + \rho L)`, -G, :math:`\rho L` and I. The sum of q is 0 in every round, so that
    the derivative acts on such q alone. If its spectral radius is below 1, the point attracts a
    neighborhood (Ostrowski's theorem, for twice continuously differentiable objectives).

    Parameters
    ----------
    P : ndarray, shape (N, N)
    parameters : Parameters
    gradient : ndarray, shape (d,)
        Mean of the agents' gradients at the point.
    hessians : ndarray, shape (N, d, d)
        Hessians of all agents there.
    """
    N, d = hessians.shape[:2]
    L, H = np.kron(P, np.eye(d)), np.zeros((N * d, N * d))
    for i, own in enumerate(hessians):
        H[i * d : (i + 1) * d, i * d : (i + 1) * d] = own
    G = parameters.alpha * np.eye(N * d) - parameters.beta * L
    # An orthonormal basis of all q whose sum over the agents is 0.
    basis = np.kron(np.linalg.svd(np.ones((1, N)))[2][1:].T, np.eye(d))
    own = np.eye(N * d) - G @ (H + parameters.rho * L)
    T = np.block([[own, -G @ basis], [parameters.rho * basis.T @ L, np.eye(basis.shape[1])]])
    return LocalConvergence(
        float(np.abs(np.linalg.eigvals(T)).max()),
        float(np.linalg.norm(gradient)),
        float(np.linalg.eigvalsh(hessians.sum(axis=0))[0]),
        float(np.linalg.eigvalsh(G)[0]),
    )


def disagreement_rate(
    P: Array, parameters: Parameters, curvature: float, damping: float = 0.0
) -> float:
    r"""Return the factor of disagreement per round, if all agents have the same curvature.

    It is the largest modulus of an eigenvalue of (20) and (21) without noise, over the eigenvalues
    :math:`\lambda > 0` of P and :math:`g = \alpha - \beta \lambda` of G:

    .. math::
        \begin{pmatrix} 1 - g (h + (\rho + \sigma) \lambda) & -g \\ \rho \lambda & 1 \end{pmatrix},
        \qquad \det = 1 - g (h + \sigma \lambda).

    As printed, :math:`\sigma = 0`, it is at least one for :math:`h \le 0`. It is below one for all
    curvatures from -M to M if and only if :math:`\sigma \lambda > M` and
    :math:`g ((\rho + 2 \sigma) \lambda + 2 M) < 4` for all of these.

    Parameters
    ----------
    P : ndarray, shape (N, N)
    parameters : Parameters
    curvature : float
        h: agents have :math:`f_i(x) = \tfrac h2 |x|^2 + c_i' x`.
    damping : float
        sigma: weight of a term :math:`\sigma L (x^k + w^k)` beside the gradient in (20); 0 in the
        paper.

    Raises
    ------
    ModelError
        If a number is not finite.
    """
    if not (finite(curvature) and finite(damping)):
        raise ModelError(
            f"curvature={show(curvature)} and damping={show(damping)} must be finite numbers: they "
            "are entries of a matrix."
        )
    lam = np.linalg.eigvalsh(P)[1:]
    g = parameters.alpha - parameters.beta * lam
    rho = parameters.rho
    trace = 2 - g * (curvature + (rho + damping) * lam)
    determinant = 1 - g * (curvature + damping * lam)
    # Moduli of the roots: the root of the determinant if they are complex.
    spread = trace**2 / 4 - determinant
    real = np.abs(trace) / 2 + np.sqrt(np.maximum(spread, 0.0))
    return float(np.where(spread < 0, np.sqrt(np.maximum(determinant, 0.0)), real).max())


@dataclass(frozen=True, eq=False)
class _Limits:
    """The right sides of (25) and (26)."""

    xi_8: Array
    xi_9: Array
    first: Array
    root: Array
    xi_1: Array
    xi_2: Array


def _limits(
    low: float,
    high: float,
    inverse: Array | float,
    c_alpha: Array | float,
    rho: Array | float,
    c_theta: Array | float,
    gamma: Array | float,
    M: float,
) -> _Limits:
    """Return the constants (23), as printed, for eigenvalues of P between `low` and `high`."""
    room = inverse - np.asarray(c_theta)
    rest = np.asarray(c_theta) / 2 - 5 * np.asarray(gamma) / 2
    xi_1 = rho * high / 2 * room - (1 + 3 * M**2 / 4 + M**2 * c_alpha / 2)
    pull = c_theta * rho * high
    xi_2 = (
        (1 + 1 / gamma) * rho**2 * high / 2
        + c_theta / 4
        + pull / 2
        + 11 / 4
        + M**2 * (2 / gamma + pull / 4 + c_theta**2 / 2)
    )
    xi_3 = rest - 1 / (np.asarray(rho) * low) ** 2
    xi_4, xi_5 = c_theta**2 / 4, 7 * c_theta**2 / 4
    xi_8 = (4 + 3 * M**2 + 2 * M**2 * c_alpha) / (2 * high * room)
    xi_9 = 1 / (low * np.sqrt(rest))
    root = (-xi_4 + np.sqrt(np.maximum(xi_4**2 + 4 * xi_3 * xi_5, 0.0))) / (2 * xi_5)
    return _Limits(xi_8, xi_9, xi_1 / xi_2, root, np.asarray(xi_1), np.asarray(xi_2))


def _largest_step(M: float) -> float:
    """Return xi_6 / xi_7, the limit of alpha in (27)."""
    return 0.25 / (M + 10.5 * M**2) if M > 0 else math.inf


def _with_room(
    low: float, high: float, top: float, inverse: float, given: Parameters, M: float
) -> Parameters:
    """Fill in omitted c_theta and gamma so that (25) and (26) have the largest margin."""
    thetas = _SHARES * inverse if given.c_theta is None else np.array([given.c_theta])
    theta = thetas[:, None]
    gamma = _SMALL_SHARES * theta / 5 if given.gamma is None else np.full_like(theta, given.gamma)
    with np.errstate(all="ignore"):  # what was given need not keep (24)
        limits = _limits(low, high, inverse, given.alpha / top, given.rho, theta, gamma, M)
        both = np.minimum(given.rho / limits.xi_8, given.rho / limits.xi_9)
        room = np.minimum(both, np.minimum(limits.first, limits.root) / top)
    room = np.where(np.isnan(room), -np.inf, room)
    i, j = np.unravel_index(int(np.argmax(room)), room.shape)
    return replace(given, c_theta=float(thetas[i]), gamma=float(gamma[i, j]))


def _check_smoothness(M: object) -> None:
    if not finite(M) or M < 0:  # pyright: ignore[reportOperatorIssue]
        raise ModelError(
            f"smoothness={show(M)} must be a finite number of at least 0, the largest smoothness "
            "constant of an agent's objective for all admissible data."
        )


# Privacy ------------------------------------------------------------------------------------------


_DECAY = number(lambda v: 0 < v <= 1, "above 0 and at most 1").because(
    "otherwise the noise grows, and the iterates with it"
)


@dataclass(frozen=True)
class Schedule:
    """The messages of one agent over a run, and their noise.

    Attributes
    ----------
    rounds : int
        Number of rounds, K + 1.
    size : int
        Number of entries of x, d.
    alpha : float
        Step size.
    smoothness : float
        The agent's smoothness constant M for all admissible data. alpha M may exceed one.
    sensitivity : float
        Bound delta of the l2 distance of neighboring objectives' gradients at every point.
    decay : float
        Factor r of the noise from round to round, at most 1.
    u_w, u_e : float
        Scales of the Laplace noise on the point and on the gradient in round 0.

    Raises
    ------
    ModelError
        If a number is outside its range.
    """

    rounds: int
    size: int
    alpha: float
    smoothness: float
    sensitivity: float
    decay: float
    u_w: float = 1.0
    u_e: float = 1.0

    def __post_init__(self) -> None:
        check_fields(
            self,
            "Schedule",
            rounds=integer(1),
            size=integer(1),
            alpha=POSITIVE,
            sensitivity=POSITIVE,
            decay=_DECAY,
            u_w=POSITIVE,
            u_e=POSITIVE,
        )
        _check_smoothness(self.smoothness)
        store_python_numbers(self, "smoothness")


def log_changes(schedule: Schedule) -> tuple[Array, Array]:
    r"""Return logarithms of the bounds of :math:`\|\Delta x^k\|` and :math:`\|\Delta g^k\|` in l2.

    Returns
    -------
    tuple of ndarray, shape (rounds,)
        Logarithms for points and for gradients. The first point's is minus infinity: starts are
        public.
    """
    k = np.arange(schedule.rounds)
    scale = math.log(schedule.sensitivity)
    sums = _log_powers(np.append(k, schedule.rounds), schedule.alpha, schedule.smoothness)
    return math.log(schedule.alpha) + scale + sums[:-1], scale + sums[1:]


def _log_powers(k: NDArray[np.int64], alpha: float, M: float) -> Array:
    """Return the logarithm of the sum of (alpha M)^t over t < k."""
    found = np.full(k.shape, -np.inf)
    some = k > 0
    rate = math.log(alpha) + math.log(M) if M > 0 else -math.inf
    if rate == 0:
        found[some] = np.log(k[some])
    else:
        # Backwards from the largest term if the terms grow.
        ratio = np.expm1(-abs(rate) * k[some]) / np.expm1(-abs(rate))
        found[some] = np.log(ratio) + ((k[some] - 1) * rate if rate > 0 else 0.0)
    return found


def log_losses(schedule: Schedule) -> Array:
    """Return the logarithms of single releases' epsilons, shape (rounds, 2): point, gradient.

    See the module for the formula.
    """
    point, gradient = log_changes(schedule)
    spread = 0.5 * math.log(schedule.size)
    fall = np.arange(schedule.rounds) * math.log(schedule.decay)
    return np.stack(
        [
            spread + point - math.log(schedule.u_w) - fall,
            spread + gradient - math.log(schedule.u_e) - fall,
        ],
        axis=1,
    )


def log_epsilon(schedule: Schedule) -> float:
    """Return the logarithm of `epsilon`, finite even if `epsilon` overflows."""
    return float(logsumexp(log_losses(schedule)))


def epsilon(schedule: Schedule) -> float:
    """Return the epsilon of a run against everyone who sees all messages (Theorem 3, corrected).

    Returns
    -------
    float
        The total epsilon; infinite only if it overflows, see `log_epsilon`.
    """
    return _exp(log_epsilon(schedule))


def claimed_epsilon(schedule: Schedule) -> float:
    """Return the epsilon of Theorem 3 as printed, over rounds 1 to K: not a bound, see the module.

    Raises
    ------
    ModelError
        Unless alpha M < 1, as the theorem assumes.
    """
    ratio = schedule.alpha * schedule.smoothness
    if ratio >= 1:
        raise ModelError(
            f"Theorem 3 is stated for alpha M < 1, and here it is {ratio:.6g}. `epsilon` has no "
            "such condition."
        )
    each = (1 / schedule.u_e + schedule.alpha / schedule.u_w) * schedule.sensitivity / (1 - ratio)
    if schedule.rounds == 1:
        return 0.0
    powers = -np.arange(1, schedule.rounds) * math.log(schedule.decay)
    return _exp(0.5 * math.log(schedule.size) + math.log(each) + float(logsumexp(powers)))


def _exp(power: float) -> float:
    try:
        return math.exp(power)
    except OverflowError:
        return math.inf
