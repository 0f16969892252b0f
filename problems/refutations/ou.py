r"""Ou, Wang, Liu and Lu (2025): refutations of statements, with their hypotheses.

The counterexamples to the convergence theorems are linear and quadratic objectives without noise.
In the counterexamples to the privacy statements, one agent has one of two quadratics of curvature
-M, and two more agents have curvature M, so that the sum is bounded below as Assumption 2 requires.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ..nonconvex_classification.experiment import FIGURE_3, Curve, Scales, Size
from ..nonconvex_classification.methods import ETA, GAMMA, OMEGA
from ..nonconvex_classification.printed import drawn, epsilons, primal_dual_total
from ..nonconvex_classification.theory import (
    Parameters,
    Schedule,
    claimed_epsilon,
    conditions,
    epsilon,
    theorem_1,
    theorem_2,
)
from . import Hypothesis, Refutation, less

Floats = NDArray[np.float64]

# Matrices P of two agents on a path and three on a triangle; disagreements have the eigenvalue 1.
PAIR = np.eye(2) - 1 / 2
TRIANGLE = np.eye(3) - 1 / 3
FOR_PAIR = Parameters(alpha=0.0035, beta=0.0017, rho=9.0, c_theta=0.28, gamma=0.045)
FOR_TRIANGLE = Parameters(2.188e-4, 1.094e-4, 94.974, 0.34, 0.0392)
ROUNDS = 20_000
# Derivatives of the agents' objectives x and -x.
SLOPES = (1.0, -1.0)


def _hypotheses(
    P: Floats, curvatures: Floats, slopes: Floats, M: float, parameters: Parameters | None
) -> list[Hypothesis]:
    """Return Assumptions 1 to 3 for ``h_i x^2 / 2 + c_i x``; with parameters (15), (24)-(27)."""
    h, c = float(np.sum(curvatures)), float(np.sum(slopes))
    rank = int(np.linalg.matrix_rank(P))
    listed = [
        Hypothesis(
            f"Assumption 1: curvatures {_listed(curvatures)} are at most M = {M:g} in size",
            bool(np.abs(curvatures).max() <= M),
        ),
        Hypothesis(
            f"Assumption 2: f has curvature {h:g} and slope {c:g}, so it is bounded below",
            h > 0 or (h == 0 and c == 0),
        ),
        Hypothesis(
            f"Assumption 3: P is symmetric, P 1 = 0, P has no negative eigenvalue and rank {rank} "
            f"of {len(P)} agents",
            bool(
                np.array_equal(P, P.T)
                and np.abs(P.sum(axis=1)).max() < 1e-12
                and np.linalg.eigvalsh(P)[0] > -1e-12
                and rank == len(P) - 1
            ),
        ),
    ]
    if parameters is not None:
        listed += [Hypothesis(str(own), own.holds) for own in conditions(P, M, parameters)]
    return listed


def _listed(values: Floats) -> str:
    return ", ".join(f"{value:g}" for value in values)


def pair(
    parameters: Parameters, start: tuple[float, float], rounds: int, slopes: tuple[float, float]
) -> Floats:
    """Run (20) and (21) for two agents with linear objectives on a path, without noise.

    Returns
    -------
    ndarray, shape (rounds, 2)
        The agents' points at the beginning of every round.
    """
    (x, y), q, path = start, 0.0, []
    alpha, beta, rho = parameters.alpha, parameters.beta, parameters.rho
    for _ in range(rounds):
        path.append((x, y))
        around = rho * (x - y) / 2  # rho P x of the first agent; the second has the negative
        first, second = slopes[0] + q + around, slopes[1] - q - around
        mixed = beta * (first - second) / 2
        x, y, q = x - alpha * first + mixed, y - alpha * second - mixed, q + around
    return np.array(path)


def theorem_1_fails(parameters: Parameters = FOR_PAIR, rounds: int = ROUNDS) -> Refutation:
    """Refute Theorem 1 by the objectives x and -x, whose sum is 0, without noise."""
    zero, slopes, start = np.zeros(2), np.array(SLOPES), (1.0, -1.0)
    path = pair(parameters, start, rounds, SLOPES)
    gaps = ((path - path.mean(axis=1, keepdims=True)) ** 2).sum(axis=1)
    # The other parts of (31) and V^0 are 0, since the sum of gradients and f are 0.
    return Refutation(
        "Theorem 1 (objectives x and -x, no noise)",
        (*_hypotheses(PAIR, zero, slopes, 0.0, parameters),),
        f"mean of (31) over rounds 0 to {rounds - 1} at most",
        theorem_1(PAIR, 0.0, parameters, float(gaps[0]), rounds),
        "mean of (31)",
        float(gaps.mean()),
        note="With curvature disagreement is damped, as in the paper's own experiment.",
    )


def initial_value_fails(parameters: Parameters = FOR_PAIR, rounds: int = ROUNDS) -> Refutation:
    """Refute V^0 of Theorem 1 by objectives x and -x and one initial point for both agents."""
    path = pair(parameters, (0.0, 0.0), rounds, SLOPES)
    gaps = ((path - path.mean(axis=1, keepdims=True)) ** 2).sum(axis=1)
    return Refutation(
        "V^0 of Theorem 1 (the same objectives, both agents start at 0)",
        (*_hypotheses(PAIR, np.zeros(2), np.array(SLOPES), 0.0, parameters),),
        "V^0 is 0, so (31) is at most",
        theorem_1(PAIR, 0.0, parameters, float(gaps[0]), rounds),
        f"largest |x_1 - x_2| of {rounds} rounds",
        float(np.abs(path[:, 0] - path[:, 1]).max()),
        note="The proof's V^0 has the gradients' differences at the mean; the printed one has not.",
    )


def theorem_2_fails(parameters: Parameters = FOR_TRIANGLE, k: int = 2 * 10**6) -> Refutation:
    """Refute Theorem 2 by quadratics of curvatures -1, -1 and 3, without noise."""
    h, M, start = np.array([-1.0, -1.0, 3.0]), 3.0, np.array([1.0, -1.0, 0.5])
    x = transition(TRIANGLE, parameters, h, start, k)

    def parts(points: Floats) -> tuple[float, float, float]:
        mean = float(points.mean())
        apart = float(((points - mean) ** 2).sum())
        return apart, float((h @ points) ** 2) / 3, float(h.sum()) * mean**2 / 2

    nu = float(h.sum())  # f = x^2 / 2 has |f'|^2 = 2 nu (f - f*) with nu = 1
    return Refutation(
        "Theorem 2 (curvatures -1, -1 and 3, no noise)",
        (
            *_hypotheses(TRIANGLE, h, np.zeros(3), M, parameters),
            Hypothesis(f"Assumption 4: f = {nu:g} x^2 / 2, with nu = {nu:g}", nu > 0),
        ),
        f"|x - mean|^2 + f - f* after {k} rounds at most",
        theorem_2(TRIANGLE, M, parameters, sum(parts(start)), nu, k),
        "|x - mean|^2 + f - f*",
        parts(x)[0] + parts(x)[2],
        note="Disagreement grows where agents' curvatures are negative and is damped otherwise.",
    )


def transition(P: Floats, parameters: Parameters, h: Floats, x: Floats, k: int) -> Floats:
    """Return the points after k rounds of (20) and (21) without noise, for quadratics.

    Parameters
    ----------
    P : ndarray, shape (N, N)
        Matrix of the network.
    parameters : Parameters
        Parameters of DPP2.
    h, x : ndarray, shape (N,)
        Curvatures, and initial points.
    k : int
        Number of rounds.
    """
    size = len(P)
    G = parameters.alpha * np.eye(size) - parameters.beta * P
    own = np.eye(size) - G @ (np.diag(h) + parameters.rho * P)
    T = np.block([[own, -G], [parameters.rho * P, np.eye(size)]])
    return (np.linalg.matrix_power(T, k) @ np.append(x, np.zeros(size)))[:size]


def lemma_1_fails(parameters: Parameters = FOR_PAIR) -> Refutation:
    """Refute Lemma 1: V increases in the first round from agreement, with objectives x and -x."""
    slopes = np.array(SLOPES)
    G = parameters.alpha - parameters.beta  # on disagreements
    assert parameters.c_theta is not None
    theta = parameters.c_theta * G

    def value(x: Floats, q: Floats) -> float:
        x, s = x - x.mean(), q + slopes
        return float(x @ x / 2 + (theta * G + G / parameters.rho) * s @ s / 2 + theta * x @ s / 2)

    before, after = pair(parameters, (0.0, 0.0), 2, SLOPES)
    q = parameters.rho * PAIR @ before
    return Refutation(
        "Lemma 1 (objectives x and -x, both agents at 0, no noise)",
        (*_hypotheses(PAIR, np.zeros(2), slopes, 0.0, parameters),),
        "V^1 - V^0 is less than",
        0.0,
        "V^1 - V^0",
        value(after, q) - value(before, np.zeros(2)),
    )


def lemma_2_fails(size: int = 10, decay: float = 0.9, scale: float = 1.0) -> Refutation:
    """Refute Lemma 2 by the sum over all rounds with D1 = D2 = 1, for one agent with d entries."""
    # A Laplace variable of scale s has the variance 2 s^2.
    exact = 2 * size * 2 * scale**2 / (1 - decay**2)
    return Refutation(
        f"Lemma 2 (d = {size}, N = 1, u = {scale:g}, r = {decay:g}, D1 = D2 = 1)",
        (
            Hypothesis("e and w have independent Laplace entries of scale u r^k", scale > 0),
            less("r", decay, "", 1.0),
        ),
        "expected sum over all rounds at most",
        2 * 2 * scale**2 / (1 - decay**2),
        "expected sum over all rounds",
        exact,
        note="The bound counts N entries of noise, and there are N d. The rates do not change.",
    )


# Privacy ------------------------------------------------------------------------------------------


def attained_loss(schedule: Schedule, seed: int = 0) -> float:
    """Return the privacy loss of a run of three agents; the first has one of two quadratics.

    The first agent has curvature -M, so that differences grow as fast as possible; the others have
    curvature M. The first agent's noise is chosen so that its likelihood ratio is largest.

    Parameters
    ----------
    schedule : Schedule
        Noise schedule of the paper.
    seed : int
        Seed of eta and of the noise.

    Returns
    -------
    float
        Logarithm of the likelihood ratio of the messages, computed from the noise that leads to
        them for either objective.
    """
    rng = np.random.default_rng(seed)
    P, rho = TRIANGLE, 1.0
    alpha, beta = schedule.alpha, schedule.alpha / 2
    slope = schedule.sensitivity / math.sqrt(schedule.size)  # difference of gradients, per entry
    eta = rng.uniform(size=schedule.rounds)
    h = schedule.smoothness * np.array([-1.0, 1.0, 1.0])
    first = np.array([[1.0], [0.0], [0.0]])

    def sent(W: Floats, E: Floats) -> list[tuple[Floats, Floats]]:
        d, q, x = np.zeros((3, 3, schedule.size))
        messages = []
        for k in range(schedule.rounds):
            y = x + (1 - eta[k]) * d + W[k]
            z = h[:, None] * x + slope * first + eta[k] * q + rho * P @ y + E[k]
            messages.append((y, z))
            x = x + W[k] - alpha * (z - E[k]) + beta * P @ z
            d, q = eta[k] * d + y, eta[k] * q + rho * P @ y
        return messages

    def behind(messages: list[tuple[Floats, Floats]], shift: float) -> tuple[Floats, Floats]:
        """Return the noise that makes agents with shifted gradients send these messages."""
        d, q, x = np.zeros((3, 3, schedule.size))
        W, E = [], []
        for k, (y, z) in enumerate(messages):
            w = y - x - (1 - eta[k]) * d
            e = z - h[:, None] * x - shift * first - eta[k] * q - rho * P @ y
            x = x + w - alpha * (z - e) + beta * P @ z
            d, q = eta[k] * d + y, eta[k] * q + rho * P @ y
            W.append(w)
            E.append(e)
        return np.array(W), np.array(E)

    shape = (schedule.rounds, 3, schedule.size)
    W, E = rng.uniform(0, 1, (2, *shape))
    scales = schedule.decay ** np.arange(schedule.rounds)[:, None, None]
    largest = -math.inf
    for ways in itertools.product((-1, 1), repeat=2):
        messages = sent(*(way * first * noise for way, noise in zip(ways, (W, E), strict=True)))
        mine, others = behind(messages, slope), behind(messages, 0.0)
        loss = sum(
            float(((np.abs(b) - np.abs(a)) / (u * scales)).sum())
            for a, b, u in zip(mine, others, (schedule.u_w, schedule.u_e), strict=True)
        )
        largest = max(largest, loss)
    return largest


def _private(schedule: Schedule) -> list[Hypothesis]:
    """Return the hypotheses of `attained_loss`: Assumptions 1 to 3, and alpha M < 1."""
    M = schedule.smoothness
    return [
        *_hypotheses(TRIANGLE, M * np.array([-1.0, 1.0, 1.0]), np.zeros(3), M, None),
        less("alpha M", schedule.alpha * M, "", 1.0),
        Hypothesis(
            f"delta-adjacent: gradients differ by delta = {schedule.sensitivity:g} at every x",
            schedule.sensitivity > 0,
        ),
    ]


FEW = Schedule(rounds=2, size=10, alpha=0.1, smoothness=5.03, sensitivity=1.0, decay=0.9)


def theorem_3_fails(schedule: Schedule = FEW) -> Refutation:
    """Refute Theorem 3: rounds k = 0, ..., K of Algorithm 1 cost more than the theorem states."""
    one = replace(schedule, rounds=1)
    late = replace(one, u_w=one.u_w * one.decay, u_e=one.u_e * one.decay)
    return Refutation(
        f"Theorem 3 (K = {schedule.rounds - 1}, r = {schedule.decay:g})",
        (*_private(schedule),),
        "epsilon of a run is at most",
        claimed_epsilon(schedule),
        f"privacy loss that rounds 0 to {schedule.rounds - 1} attain",
        attained_loss(schedule),
        note=(
            f"K rounds only, numbered 0 to K - 1 or 1 to K, cost {epsilon(one):.3g} or "
            f"{epsilon(late):.3g} here: read so, (63) and (64) are exact and the theorem holds. "
            "Algorithm 1 runs K + 1 rounds."
        ),
    )


TARGET = Schedule(101, 10, alpha=0.01, smoothness=1.0, sensitivity=1.0, decay=1.0, u_w=10, u_e=10)


def corollary_1_fails(schedule: Schedule = TARGET, target: float = 1.0) -> Refutation:
    """Refute Corollary 1 by a decay that it allows, the middle between its limit and 1.

    Parameters
    ----------
    schedule : Schedule
        Noise schedule; its decay is ignored.
    target : float
        Epsilon of the corollary.
    """
    root, M, K = math.sqrt(schedule.size), schedule.smoothness, schedule.rounds - 1
    constant = root * (1 / (schedule.alpha * schedule.u_e) + 1 / schedule.u_w)
    constant *= schedule.alpha * schedule.sensitivity / (1 - schedule.alpha * M)
    limit = (target - root * M / schedule.u_e) / (
        schedule.sensitivity * (root / schedule.u_w + target)
    )
    least = (constant / target) ** (1 / (K - 1))
    chosen = replace(schedule, decay=(least + 1) / 2)
    return Refutation(
        f"Corollary 1 (K = {K}, epsilon = {target:g}, r = {chosen.decay:.4f})",
        (
            *_private(chosen),
            less("sqrt(d) M / epsilon", root * M / target, "u_e", schedule.u_e),
            less("alpha", schedule.alpha, "min(1 / M, ...)", min(1 / M, limit)),
            less("(c / epsilon)^(1 / (K - 1))", least, "r", chosen.decay),
            less("r", chosen.decay, "", 1.0),
        ),
        "epsilon of a run is at most",
        target,
        f"privacy loss that rounds 0 to {K} attain",
        attained_loss(chosen),
        note=(
            f"Theorem 3's own sum over rounds 1 to {K} is {claimed_epsilon(chosen):.3g}: each of "
            f"its {K} terms is at least c = {constant:.3g}."
        ),
    )


def merging_fails(rounds: int = 6, eta: float = 0.5) -> Refutation:
    """Refute the first tier of protection: merged variables reveal x + w to whoever knows eta.

    Parameters
    ----------
    rounds : int
        Number of rounds.
    eta : float
        Step size of every round.
    """
    noisy = np.random.default_rng(0).normal(size=rounds)  # x + w
    d = seen = added = missed = 0.0
    hypotheses = (
        less("0", 0.0, "eta", eta),
        less("eta", eta, "", 1.0),
        Hypothesis(f"d^0 = {d:g}, as in Algorithm 1", d == 0),
    )
    for point in noisy:
        y = point + (1 - eta) * d  # the message
        d = eta * d + y
        read = y - (1 - eta) * seen  # x + w, by an observer who computes the sum d too
        seen = eta * seen + y
        added, missed = max(added, abs(y - point)), max(missed, abs(read - point))
    return Refutation(
        f"Section III-C, merged variables hide x + w (eta = {eta:g}, an input of Algorithm 1)",
        hypotheses,
        "merging adds to x + w up to",
        added,
        "of that, the observer is left with",
        missed,
        above=False,
        note=(
            "The observer knows eta, as every agent does and as the proof of Theorem 3 has it. The "
            "paper concedes that this tier cannot by itself keep objectives confidential. An "
            "outsider without eta has one unknown number a round; nothing is shown about that."
        ),
    )


# Figure 3 -----------------------------------------------------------------------------------------

SIZE = Size()


def figure_3_totals(decay: float, rounds: int = 501) -> dict[str, float]:
    """Return the total epsilons of the paper's settings for Figure 3, by method.

    Parameters
    ----------
    decay : float
        Decay r.
    rounds : int
        Number of rounds K + 1.
    """
    arrays = drawn(SIZE, 0)
    curve = Curve(decay, 1.0, rounds)
    return {
        "DPP2": epsilons(arrays, curve, FIGURE_3)[1],
        "PPDC": primal_dual_total(arrays, curve, kept=False),
    }


def figure_3_fails(decay: float = 0.9, rounds: int = 501) -> Refutation:
    """Refute Figure 3: at the paper's settings, DPP2 and PPDC have different privacy losses."""
    totals = figure_3_totals(decay, rounds)
    return Refutation(
        f"Figure 3, one decay is one privacy (r = {decay:g}, K = {rounds - 1})",
        (
            Hypothesis(
                f"r = {decay:g} is one of 0.1, 0.2, ..., 0.9",
                any(math.isclose(decay, k / 10) for k in range(1, 10)),
            ),
            Hypothesis(
                f"DPP2 has alpha = {FIGURE_3.alpha:g}, u_w = {FIGURE_3.u_w:g}, u_e = "
                f"{FIGURE_3.u_e:g} as in the paper",
                FIGURE_3 == Scales(0.0994, 0.994, 1.0),
            ),
            Hypothesis(
                f"PPDC has eta = {ETA:g}, gamma = {GAMMA / ETA:g}, omega = {OMEGA / ETA:g}, "
                "u_x = 1 as in the paper",
                np.allclose((ETA, GAMMA, OMEGA), (0.01, 65 * 0.01, 5 * 0.01)),
            ),
        ),
        "epsilon of PPDC is that of DPP2, which is",
        totals["DPP2"],
        "epsilon of PPDC",
        totals["PPDC"],
        note=(
            "Both totals are derived here and attained by curvature -M. The paper names no totals. "
            "Records are made up, with M = 5.03 as in the paper."
        ),
    )


def all_of_them() -> tuple[Refutation, ...]:
    """Return the refutations of this paper."""
    return (
        merging_fails(),
        theorem_1_fails(),
        initial_value_fails(),
        theorem_2_fails(),
        lemma_1_fails(),
        lemma_2_fails(),
        theorem_3_fails(),
        corollary_1_fails(),
        figure_3_fails(),
    )
