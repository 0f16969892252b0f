r"""Noise without tails: drawn again until no entry exceeds a limit, and what that costs.

Let M be a release with noise of all lengths, (epsilon, delta_0)-DP, and M' the same with its noise
conditioned on being within the limit, which it is but for a probability tau. Conditioning moves the
probability of any event by at most tau: :math:`P(A \mid B) - P(A) = P(B^c) (P(A \mid B) - P(A \mid
B^c))`. So, for neighbors d and d',

.. math:: P(M'(d) \in S) \le P(M(d) \in S) + \tau
    \le e^\epsilon P(M(d') \in S) + \delta_0 + \tau
    \le e^\epsilon P(M'(d') \in S) + \delta_0 + (1 + e^\epsilon) \tau.

What noise with tails composes to says nothing of this: such a release enters a ledger as the pair
of epsilon and :math:`\delta_0 + (1 + e^\epsilon) \tau`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..errors import PrivacyError
from .noise import Grid
from .tails import length_quantile

# Tails that are less likely are not computed.
_LEAST = 1e-280


@dataclass(frozen=True)
class Truncation:
    """A limit of noise, and the price of a release with it.

    Attributes
    ----------
    reach : float
        Largest entry of the noise in units of its scale, but for rounding to the grid.
    size : int
        Of a release, at most.
    epsilon, delta : float
        What one release costs.
    """

    reach: float
    size: int
    epsilon: float
    delta: float

    def steps(self, grid: Grid) -> int:
        """Largest entry of the noise in units of the grid."""
        return math.ceil(self.reach * (grid.scale / grid.width))


def truncation(norm: int, size: int, epsilon: float, spent: float, delta: float) -> Truncation:
    """The lowest limit that takes a release from one delta to another.

    Parameters
    ----------
    norm : {1, 2}
        2 for normal, 1 for Laplace noise.
    size : int
        Number of components of the release.
    epsilon, spent : float
        What noise of all lengths costs.
    delta : float
        What the release may cost at the same epsilon; above `spent`.

    Raises
    ------
    PrivacyError
        If epsilon is so large, or delta so small, that no limit can be computed.
    """
    # tau <= size * P(|Y| > reach). Half a step more is rounded down to the last step that is kept.
    less = math.exp(-epsilon)
    alpha = (delta - spent) * (1 - 1e-9) * less / (1 + less) / size
    if not alpha >= _LEAST:
        raise PrivacyError(
            f"At epsilon={epsilon:.6g} and delta={delta:.6g}, no limit of the noise can be "
            "computed that costs so little. Choose a smaller epsilon or a larger delta, or a "
            "violation_probability= above 0, which leaves the noise as it is."
        )
    return Truncation(length_quantile(norm, 1, alpha), size, epsilon, delta)
