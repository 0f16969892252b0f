"""Xiao, Ye and Devadas (2019): refutations of statements, with their hypotheses."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

import dpcvx as dp

from ..census.amplifications import SHIFT, surface
from ..census.ex_post import amplification, claimed_amplification
from ..census.rates import METHODS, example
from . import Hypothesis, Refutation, close, less

Floats = NDArray[np.float64]

# Values for Theorem 2.3 outside the range of Figure 1, where (11) falls further short of gamma.
OMEGA, BETA, LONG_SHIFT = 0.5, 2.0, 0.15


def sign_fails(
    rounds: int = 300, D: float = 10.0, zeta: float = 0.5, rho: float = 1.0
) -> Refutation:
    """Refute the sign of Algorithm 1's multiplier update on a ring of ten agents, without noise.

    Agent k has the objective ``(x - k)^2 / 2``.

    Parameters
    ----------
    rounds : int
        Number of rounds.
    D, zeta, rho : float
        Inverse step size, dual step and penalty; D and zeta as in the paper's experiments.
    """

    def farthest(sign: float) -> float:
        target, x, lam = np.arange(10.0), np.zeros(10), np.zeros(10)
        for _ in range(rounds):
            around = np.roll(x, 1) + np.roll(x, -1)
            x = ((D - 2 * rho) * x + rho * around - (x - target) + lam) / D
            lam = lam + sign * zeta * (np.roll(x, 1) + np.roll(x, -1) - 2 * x)
        return float(np.abs(x - target.mean()).max())

    return Refutation(
        "Algorithm 1, lam - zeta sum(x_j - x_i) (ten agents on a ring, no noise)",
        (
            close("D", D, 10.0),
            close("zeta", zeta, 0.5),
            less("|N_i| rho_i", 2 * rho, "D", D),  # Gamma_i is positive
            less("curvature of each agent", 1.0, "D", D),
        ),
        "distance to the optimum after "
        f"{rounds} rounds is at most that of the corrected sign, which is",
        farthest(+1),
        "distance with the printed sign",
        farthest(-1),
        note="One sign is misprinted; with the other the method converges.",
    )


def theorem_2_3_fails(
    omega: float = OMEGA, beta: float = BETA, shift: float = LONG_SHIFT
) -> Refutation:
    """Refute Theorem 2.3: (11) is no upper bound of the expected share gamma.

    Parameters
    ----------
    omega, beta, shift : float
        The theorem's omega and beta, and the product alpha B.
    """
    values = {"omega": omega, "beta": beta, "shift": shift}
    grid = surface(30)
    short = float((grid.exact - grid.claimed).max())
    return Refutation(
        f"Theorem 2.3, (11) (beta = {beta:g})",
        (less("0", 0.0, "alpha B", shift), less("alpha B", shift, "omega", omega)),
        "gamma is at most",
        float(claimed_amplification(**values)),
        "gamma",
        float(amplification(**values)),
        note=(
            f"In the range of the paper's Figure 1 (alpha B = {SHIFT:g}) (11) is short at "
            f"{grid.short.mean():.0%} of the points, by at most {short:.4f}."
        ),
    )


def sensitivity_fails(cosine: float = 0.9, reach: float = 20.0, b: int = 100) -> Refutation:
    """Refute the gradient sensitivity B = 1 / b for data sets that differ in one of b records.

    Parameters
    ----------
    cosine : float
        First entry of both records, up to its sign.
    reach : float
        Norm of the point x where the gradients are taken.
    b : int
        Number of an agent's records.
    """
    sine = float(np.sqrt(1 - cosine**2))
    rows = np.array([[cosine, sine], [-cosine, sine]])
    labels = np.array([1.0, 1.0])
    x = np.array([0.0, -reach])
    slopes = -labels / (1 + np.exp(labels * (rows @ x)))  # of log(1 + exp(-l x'z))
    gradients = slopes[:, None] * rows / b
    return Refutation(
        f"Appendix E, B = 1 / b where one of b = {b} records is replaced",
        (
            Hypothesis(
                "rows have norm at most 1", bool(np.linalg.norm(rows, axis=1).max() <= 1 + 1e-12)
            ),
            Hypothesis("labels are -1 or 1", bool(np.isin(labels, (-1, 1)).all())),
            Hypothesis("the data sets differ in one record", len(rows) == 2),
        ),
        "an entry of the gradient moves by at most",
        1 / b,
        "an entry moves by",
        float(np.abs(gradients[0] - gradients[1]).max()),
        note="1 / b bounds what one record contributes; two records can pull in opposite ways.",
    )


def weight_fails(name: str = "exact steps", rounds: int = 40) -> Refutation:
    """Refute Theorems 3.1 and 3.2 with zeta as weight of the multipliers in the norm's matrix G.

    Parameters
    ----------
    name : str
        Name of the method, a key of `METHODS`.
    rounds : int
        Number of rounds.
    """
    model, method = example(), METHODS[name]
    printed, proved = (
        float((away[:-1] / away[1:]).min())
        for away in (model.distances(method, rounds, power=power, off=1.0) for power in (1, -1))
    )
    theorem = "3.1" if method.exact else "3.2"
    return Refutation(
        f"Theorem {theorem} ({name}, G with zeta in its last block)",
        tuple(Hypothesis(text, holds) for text, holds in model.admissible(method)),
        "the distance falls in every round by a factor of at least",
        1.0,
        "least factor of a round",
        printed,
        above=False,
        note=(
            "Appendix F itself writes 1 / zeta: a misprint of the statement. With 1 / zeta the "
            f"least factor is {proved:.4f}, and {1 + model.rate(method):.4f} is promised by "
            f"{'(42)' if method.exact else '(47)'}."
        ),
    )


def first_order_weight_fails() -> Refutation:
    """Refute Theorem 3.2 with the printed weight of the multipliers, zeta."""
    return weight_fails("linearized steps")


def condition_48_fails(D: float = 0.0027, rounds: int = 4000) -> Refutation:
    """Refute (48) with M_i the square of the smoothness constant, as section 3 defines it.

    Parameters
    ----------
    D : float
        Inverse step size.
    rounds : int
        Number of rounds.
    """
    m = L = 0.05  # of 0.025 (x - 1)^2
    sigma, N, rho, zeta = 0.01, 2, 1.0, 0.5
    # Between N / (2 rho) and m / (N rho^2 sigma^2), with room for zeta.
    alpha = 2 * N / (2 * rho) * 2
    x, y = cp.Variable(name="x"), cp.Variable(name="y")
    agents = [dp.Agent(cp.Minimize(0.025 * cp.square(v - 1)), name=v.name()) for v in (x, y)]
    problem = dp.Problem(agents, coupling=[sigma * x + sigma * y == 0.1])
    method = dp.ResourceADMM(penalty=rho, dual_step=zeta, step=1 / D, randomness=0.0)
    result = problem.plan(method, mechanism=None, rounds=rounds).run(iterates=True, verbose=False)
    ends = np.concatenate(result.iterates[-1].last.vectors)
    return Refutation(
        "(48) of Theorem 3.2 (two agents with 0.025 (x - 1)^2, no noise)",
        (
            less("alpha", alpha, "m / (N rho^2 sigma^2)", m / (N * rho**2 * sigma**2)),
            less("N sigma^2 / alpha + M", N * sigma**2 / alpha + L**2, "D", D),
            less("rho sigma^2", rho * sigma**2, "D", D),
            less("N / (2 alpha)", N / (2 * alpha), "rho", rho),
            less("zeta", zeta, "2 rho - N / alpha", 2 * rho - N / alpha),
            close("M", L**2, 0.05**2),  # sqrt(M)-smooth
        ),
        "the run converges; |x - x*| at most the initial",
        5.0,
        f"|x - x*| after {result.rounds} rounds",
        float(np.abs(ends - 5.0).max()),
        note="Section 3 calls f_i sqrt(M_i)-smooth; (48) has M where the proof needs sqrt(M) = L.",
    )


def all_of_them() -> tuple[Refutation, ...]:
    """Return the refutations of this paper."""
    return (
        sign_fails(),
        theorem_2_3_fails(),
        sensitivity_fails(),
        weight_fails(),
        first_order_weight_fails(),
        condition_48_fails(),
    )
