r"""The paper's corollaries on the last iterate, as claims, and their errata.

`dpcvx.privacy.two_block` has the bounds that hold, with their proofs.

* Theorem 7.2 states :math:`L^{2T-1} / T`, and its proof gives :math:`L / \sum_{j<T} L^{-2j}`: it
  uses :math:`L^2`, the contraction of the squared norm, as contraction of the norm. The printed
  bound is smaller by the factor :math:`T (1 - L^2) / (1 - L^{2T})`, 51 for Table 1's L = 0.9474 and
  T = 500. Theorem 5.2 fails with this substitution: for the scalar x <- x / 2 + N(0, 1) and T = 2
  the loss is 1 / 40, the substituted bound 1 / 64 times :math:`\|z - z'\|^2`.
* Section 7 uses Lemma 6.5 with :math:`\eta > 1 / \nu`, outside its assumption, whenever
  :math:`\mu \le \nu / 2`. It holds up to :math:`2 / \nu`.
* Equations (18) to (20) omit a factor beta: they have :math:`\lambda - A x` in place of
  :math:`\lambda - \beta A x`. Lemma 6.12 omits a square.
* Section 8: with random stopping user t is not used with probability (t - 1 - N/2) / (N/2), not
  (t - N/2) / (N/2), and L is uniform on 1 to N - t + 1.
* Table 1 prints 1.95 for eta in its first row, which is eta / beta. The formula gives, by rows, eta
  = 1.753, 4.811, 20.00, 43.30 and L = 0.9474, 0.9149, 0.8571, 0.7992.
* The experiment's functions are not strongly convex, having Hessians of rank one, and sample users
  with replacement, which Corollary 8.3 does not cover.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import dpcvx as dp
from dpcvx.privacy.last_iterate import Mixture
from dpcvx.privacy.two_block import TwoBlock


def corollary_6_2(block: TwoBlock, sensitivity: float, sigma: float, after: int) -> float:
    """Return the convex bound of Corollary 6.2 for A = [I, D]; the package's bound is smaller.

    Parameters
    ----------
    block : TwoBlock
        Constants of the problem.
    sensitivity : float
        Sensitivity Delta of a user's gradient.
    sigma : float
        Standard deviation of the noise in each component of x.
    after : int
        Number of iterations after the user's own.

    Returns
    -------
    float
        Parameter of zero-concentrated differential privacy.
    """
    T, h = after // 2, block.eta * block.beta
    constant = max(2, 3 / h) * (1 + h * block.A_norm**2)
    return _local(block, sensitivity, sigma) * constant / T if T else math.inf


def corollary_7_3(block: TwoBlock, sensitivity: float, sigma: float, after: int) -> float:
    """Return the strongly convex claim for A = [I, D], which is not proved; see `corollary_6_2`.

    The proof gives ``T (1 - L^2) / (1 - L^(2T))`` times this value.
    """
    T, h, L = after // 2, block.eta * block.beta, block.contraction
    constant = max(2 / block.R, 3 / h) * (block.R + h * block.A_norm**2)
    return _local(block, sensitivity, sigma) * constant * L ** (2 * T - 1) / T if T else math.inf


def largest_order(mixture: Mixture) -> float:
    """Return the largest order of Renyi divergences that Corollary 8.3 covers."""
    worst = float(mixture.rho.max())
    return (1 + math.sqrt(1 + 4 / worst)) / 2 if worst > 0 else math.inf


def corollary_8_3(mixture: Mixture, alphas: Sequence[float]) -> dict[float, float]:
    """Return ``2 alpha E[rho]`` by order, if ``alpha rho <= 1 / (alpha - 1)`` for all outcomes.

    Without any condition, ``ln E exp((alpha - 1) alpha rho) / (alpha - 1)`` is a bound by joint
    convexity. Under the condition, it is at most ``(e - 1) alpha E[rho]``.

    Raises
    ------
    dp.PrivacyError
        If the condition fails at one of the orders.
    """
    largest = largest_order(mixture)
    refused = [alpha for alpha in alphas if alpha > largest]
    if refused:
        raise dp.PrivacyError(
            f"Corollary 8.3 covers orders alpha <= {largest:.6g} here, at which the divergence is "
            "at most 1 / (alpha - 1) whatever the position of the user. It says nothing at alpha = "
            f"{', '.join(f'{alpha:g}' for alpha in refused)}. Use smaller orders, or more noise."
        )
    mean = float(mixture.weight @ mixture.rho)
    return {alpha: 2 * alpha * mean for alpha in alphas}


def _local(block: TwoBlock, sensitivity: float, sigma: float) -> float:
    return (block.eta * sensitivity / sigma) ** 2 / 2
