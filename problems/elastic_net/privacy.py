"""Privacy loss of users if every iterate is visible, and if only the last one is.

The formulas are in `dpcvx.privacy.last_iterate`. A plan states the privacy loss of its runs by
these formulas, for its observer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpcvx.privacy.accounting import Composition
from dpcvx.privacy.last_iterate import permuted, profile, sampled, stopped
from dpcvx.privacy.two_block import TwoBlock

from .certified import certified
from .printed import corollary_6_2, corollary_7_3
from .setting import Setting

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def epsilon_of(rho: float, delta: float) -> float:
    """Return epsilon at `delta` of the rho-zCDP Gaussian mechanism."""
    return Composition(mu2=2 * rho).price(delta).epsilon if rho < math.inf else math.inf


@dataclass(frozen=True, eq=False)
class Positions:
    """Epsilons by position in one pass with users in order.

    Attributes
    ----------
    positions : ndarray of int, shape (K,)
        Positions from 0: the first, the last, and some between, most of them near the end.
    visible : float
        Epsilon if every iterate is visible, equal for all positions.
    last_only : ndarray, shape (K,)
        Epsilon if only the last iterate is visible.
    printed : ndarray, shape (K,)
        Epsilon by Corollary 6.2 with the paper's constants.
    claimed : ndarray, shape (K,)
        Epsilon by Corollary 7.3 as printed for strongly convex losses; no loss here is covered.
    certified : ndarray, shape (K,)
        Epsilon if only the last iterate is visible, with a certificate for the constants.
    permuted, stopped, sampled : float
        Epsilon of every user for a random permutation, random stopping, and sampling with
        replacement, if only the last iterate is visible. Infinite if no order of the Renyi
        divergence gives a bound.
    """

    positions: Ints
    visible: float
    last_only: Floats
    printed: Floats
    claimed: Floats
    certified: Floats
    permuted: float
    stopped: float
    sampled: float

    def at(self, position: int) -> float:
        """Return the `last_only` epsilon at one of the computed positions."""
        return float(self.last_only[np.flatnonzero(self.positions == position)[0]])


def by_position(
    setting: Setting,
    radius: float,
    users: int,
    delta: float,
    *,
    count: int = 60,
    proved: TwoBlock | None = None,
) -> Positions:
    """Return epsilons by position in one pass; neighbors' gradients differ by up to ``2 radius``.

    Parameters
    ----------
    setting : Setting
        Setting with noise.
    radius : float
        Norm that gradients are clipped to.
    users : int
        Number of users.
    delta : float
        Delta of the epsilons.
    count : int
        Approximate number of positions, in addition to the middle; 2 for the first and the last.
    proved : TwoBlock, optional
        Constants of the setting with a certificate, which does not depend on the noise; searched
        if omitted.
    """
    block, claimed, sigma, change = setting.block, setting.claimed, setting.sigma, 2 * radius
    after = np.unique(
        [*np.geomspace(1, users, count).round().astype(int) - 1, users - 1 - users // 2]
    )[::-1]
    found = profile(block, change, sigma, users=users)
    proved = certified(block, users) if proved is None else proved
    smaller = profile(proved, change, sigma, users=users)
    printed = [corollary_6_2(block, change, sigma, int(k)) for k in after]
    strong = [corollary_7_3(claimed, change, sigma, int(k)) for k in after]
    everyone = permuted(block, change, sigma, users=users).price(delta)
    early = stopped(block, change, sigma, users=users).price(delta)
    drawn = sampled(block, change, sigma, users=users, iterations=users).price(delta)
    positions = users - 1 - after
    return Positions(
        positions=positions,
        visible=epsilon_of(float(found.local[0]), delta),
        last_only=np.array([found.price(delta, int(k)).epsilon for k in positions]),
        printed=np.array([epsilon_of(rho, delta) for rho in printed]),
        claimed=np.array([epsilon_of(rho, delta) for rho in strong]),
        certified=np.array([smaller.price(delta, int(k)).epsilon for k in positions]),
        permuted=everyone.epsilon,
        stopped=early.epsilon,
        sampled=drawn.epsilon,
    )


@dataclass(frozen=True, eq=False)
class Growth:
    """Epsilons against the number of iterations, with users in turn.

    Attributes
    ----------
    iterations : ndarray of int, shape (K,)
        Numbers of iterations.
    visible : ndarray, shape (K,)
        Epsilon of the user with most turns, if every iterate is visible.
    last_only : dict of int to ndarray
        Epsilons by position from 0, if only the last iterate is visible.
    permuted : ndarray, shape (K,)
        Epsilon for one random permutation, if only the last iterate is visible.
    """

    iterations: Ints
    visible: Floats
    last_only: dict[int, Floats]
    permuted: Floats


def by_iterations(
    setting: Setting, radius: float, users: int, iterations: Sequence[int], delta: float
) -> Growth:
    """Return epsilons by number of iterations: of the first, middle and last user, and of all."""
    block, sigma, change = setting.block, setting.sigma, 2 * radius
    positions = sorted({0, users // 2, users - 1})
    found = [profile(block, change, sigma, users=users, iterations=int(t)) for t in iterations]
    return Growth(
        iterations=np.asarray(iterations, np.int64),
        visible=np.array([epsilon_of(float(p.local.max()), delta) for p in found]),
        last_only={k: np.array([p.price(delta, k).epsilon for p in found]) for k in positions},
        permuted=np.array(
            [
                permuted(block, change, sigma, users=users, iterations=int(t)).price(delta).epsilon
                for t in iterations
            ]
        ),
    )
