r"""Distributed noise: every agent adds a part of the noise that the sum of all values needs.

N agents form sums by secret sharing, and at most c of them collude with the server. The coalition
learns only the sum of the N - c other messages, so only this sum needs the noise. Let one change
move the message of agent i by at most :math:`\Delta_i` in l2, on a grid of width :math:`\gamma`
(rounding to the grid included), and let it need the noise multiplier :math:`m_i`. If every agent
adds, to all entries, integers ``round(s Y)`` with Y standard normal and

.. math:: \gamma s = \max_i(m_i \Delta_i) / \sqrt{N - c},

then the sum of the N - c others is a rounded normal release of multiplier :math:`m_i` or more, up
to a factor of :math:`1 \pm \tau` in the probability of each of its values. This holds for every
agent i whose data change. Everyone follows the protocol; an agent that omits its noise counts among
the c.

*The factor.* ``round(a + s Y)``, a an integer, has at integers the density of a + s Y + U, with U
uniform on [-1/2, 1/2]. Adding up k + 1 of them convolves their densities over the integers, where
a + s Y + U of k + 1 terms would be convolved over the reals. By Poisson summation the difference is
:math:`\sum_{j \ne 0} \hat h(j)` for the product h of one density with the mirrored other, and h is
a mixture of normal densities of variance :math:`s^2 k / (k + 1)` times their integrals, so that
:math:`|\hat h(j)| \le \hat h(0) \exp(-2 \pi^2 j^2 s^2 k / (k + 1))`. By induction

.. math:: 1 + \tau = \prod_{k=1}^{N-c-1}
    \Bigl(1 + 2 \sum_{j \ge 1} e^{-2 \pi^2 j^2 s^2 k / (k + 1)}\Bigr).

It changes (epsilon, delta) of n values to :math:`(\epsilon + n \log\frac{1 + \tau}{1 - \tau},
(1 + \tau)^n \delta)`. For s of 8 or more, :math:`\tau < 3 N e^{-631}`: with fewer than 1e100 agents
and values, this change is less than 1e-70 of the smallest budget, and calibration leaves a margin
of 1e-11 of the budget.

*Queries that follow from earlier sums.* The grid and the noise part :math:`s_t` of a round are
fixed before the first round. The queries of round t may depend on all earlier sums. Given
everything that a coalition has seen before, these queries are fixed functions, and their noise is
independent of the past. Let every such query move by at most :math:`\Delta_i`. The sum of round t
is then again, up to its factor, a rounded normal release of multiplier :math:`m_i s_t / s_1`. So
the likelihood ratio of a whole transcript is a product of conditional ratios. Each of these is the
likelihood ratio of a normal release, times a number between :math:`((1 - \tau) / (1 + \tau))^{n_t}`
and its inverse for the :math:`n_t` numbers of round t. No answer changes the multiplier. Adaptive
composition gives the statement above with :math:`n = \sum_t n_t`.

*Different queries in one round.* Every agent adds the noise of round t to all entries that it
sends, for every query. A coordinator may send different queries to different agents. It then sees
sums with the same noise, and entries that an agent does not send keep their masks.

*All other agents together* can subtract their messages from the sum, and so learn one agent's
message: a normal release whose multiplier is smaller by a factor :math:`\sqrt{N - c}`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from .._words import plural
from ..errors import ModelError, PrivacyError
from .noise import grid_for

Array = NDArray[np.float64]

# Least standard deviation of an agent's noise in units of the grid.
LEAST = 8.0
# Sums are taken modulo 2**52, so that every residue is exact as a float.
BITS = 52
_MODULUS = 2.0**BITS
# Number of noise standard deviations that the range of sums leaves room for.
_ROOM = 12.0


@dataclass(frozen=True)
class SplitNoise:
    """Part of the distributed noise that every agent adds to the values that it sends.

    Parameters
    ----------
    parties : int
        Number of agents N, all of which add noise.
    max_colluders : int
        Largest number c of agents that collude with the server.
    width : float
        Width of the grid, a power of two.
    scale : float
        Standard deviation of one agent's noise.

    Raises
    ------
    PrivacyError
        If the noise is too small relative to the grid's width.
    """

    parties: int
    max_colluders: int
    width: float
    scale: float

    def __post_init__(self) -> None:
        if not self.scale >= LEAST * self.width:
            raise PrivacyError(
                f"Every agent's part of the noise has a standard deviation of {self.scale:.3g}, "
                f"and values are rounded to multiples of {self.width:g}. Sums of noise have no "
                f"proved guarantee if a part is less than {LEAST:g} times as wide as these steps. "
                f"Write dp.SecretSharing(resolution=2.0**{self._finest}) or finer, or leave "
                "resolution= out."
            )

    @property
    def _finest(self) -> int:
        return math.floor(math.log2(self.scale / LEAST)) if self.scale > 0 else -1000

    @property
    def together(self) -> float:
        """Standard deviation of the noise unknown to a coalition: the sum over all but c agents."""
        return self.scale * math.sqrt(self.parties - self.max_colluders)

    def alone(self, multiplier: float) -> float:
        """Return the multiplier against all other agents, from the multiplier against c of them."""
        return multiplier / math.sqrt(self.parties - self.max_colluders)

    def times(self, factor: float) -> SplitNoise:
        """Return distributed noise whose scale is multiplied by a factor, on an equal grid."""
        return replace(self, scale=self.scale * factor)

    @property
    def room(self) -> float:
        """Largest magnitude of summands whose sum stays within half of the residues' range."""
        return self.width * _MODULUS / (4 * self.parties)

    def reach(self, limit: float) -> float:
        """Return a limit plus 12 noise standard deviations: a practical bound of |value + noise|.

        Raises
        ------
        ModelError
            If the sum of all agents' values could exceed the range of residues.
        """
        reach = limit + _ROOM * self.scale
        if not self.parties * reach < self.width * _MODULUS / 2:
            raise ModelError(
                f"{self.parties} values of up to limit={limit:g}, each with noise of standard "
                f"deviation {self.scale:.3g}, can add up to 2**{BITS - 1} steps of {self.width:g} "
                "or more, where sums wrap around. Declare dp.SecretSharing(limit=...) with a "
                "smaller limit, or a coarser resolution=."
            )
        return reach


def require_three(agents: int) -> None:
    """Refuse secure aggregation with fewer than three agents.

    Raises
    ------
    ModelError
        If there are fewer than three agents.
    """
    if agents < 3:
        raise ModelError(
            "sharing= hides nothing between two agents: each learns the other's value from the "
            "sum. At least three agents are needed, or drop sharing=."
        )


def split_noise(
    needed: Sequence[tuple[float, float]],
    parties: int,
    colluders: int,
    size: int,
    width: float | None,
    least: float = 1.0,
) -> SplitNoise:
    """Return each agent's part of the noise, so that the sum protects every agent.

    Parameters
    ----------
    needed : sequence of (float, float)
        Noise multiplier that an agent needs, and l2 sensitivity of its messages, for each agent
        with private data.
    parties, colluders : int
        Number of agents, and the largest number of colluding ones; see `SplitNoise`.
    size : int
        Number of entries in a message of an agent.
    width : float or None
        Width of the grid; None to choose a width that the noise allows.
    least : float
        Noise scale of the last release over the noise scale of the first one, at most 1.

    Raises
    ------
    PrivacyError
        If no grid fits the noise.
    """
    honest = math.sqrt(parties - colluders)
    if width is None:
        multiplier, move = max(needed, key=lambda pair: pair[0] * pair[1])
        finest = least * multiplier * move / (LEAST * honest)
        width = grid_for(move, size, 2, multiplier).width
        width = min(width, 2.0 ** math.floor(math.log2(finest)))
    rounding = width * math.sqrt(size)
    scale = max(multiplier * (move + rounding) for multiplier, move in needed) / honest
    part = SplitNoise(parties, colluders, width, scale)
    part.times(least)  # raises here if the last release's noise is too small for the grid
    return part


def coalition(colluders: int) -> str:
    """Return a text that names the colluding parties, for guarantees with distributed noise."""
    return f"any {plural(colluders, 'other agent')} together with the server"


def residues(steps: Array) -> Array:
    """Return integers modulo 2**52, in the range centered at 0; 0 if `steps` is not finite."""
    with np.errstate(invalid="ignore"):  # a warning would reveal something about the values
        rest = np.fmod(steps, _MODULUS)
        rest = rest - _MODULUS * np.floor(rest / _MODULUS + 0.5)
    return np.where(np.isfinite(rest), rest, 0.0)
