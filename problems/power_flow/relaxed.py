"""Distance of a point of the relaxation from an AC power flow, computed without loads."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import splu

from .case import Case
from .physics import incidence
from .solution import State

Floats = NDArray[np.float64]

# Share of the product of squared voltages that a pair may lack, and degrees by which the angles
# around a loop may fail to close, for the voltages to have angles.
TIGHT = 1e-4
CLOSED = 0.1


def cone_slack(case: Case, state: State) -> dict[tuple[int, int], float]:
    """Return the distance of each pair from a true voltage product.

    Parameters
    ----------
    case : Case
    state : State

    Returns
    -------
    dict
        Bus ids of the pair to ``w_first w_second - wr^2 - wi^2`` in per unit. 0 where the
        relaxation is tight, negative where the cone is violated.
    """
    first, second = case.pairs.first, case.pairs.second
    slack = state.w[first] * state.w[second] - state.wr**2 - state.wi**2
    ids = case.bus.id
    keys = zip(ids[first].tolist(), ids[second].tolist(), strict=True)
    return dict(zip(keys, slack.tolist(), strict=True))


def angle_mismatch(case: Case, state: State) -> Floats:
    """Angles across the pairs beyond those of the bus angles that fit them best.

    Every pair implies an angle ``atan2(wi, wr)`` between its buses. Around the loops of an AC power
    flow these add up to 0, so that angles of the buses exist; elsewhere they do not.

    Parameters
    ----------
    case : Case
    state : State

    Returns
    -------
    ndarray, shape (pairs,)
        In degrees; 0 for every pair if and only if the angles close around every loop.
    """
    angles = bus_angles(case, state)
    across = np.degrees(np.arctan2(state.wi, state.wr))
    return across - (angles[case.pairs.first] - angles[case.pairs.second])


def bus_angles(case: Case, state: State) -> Floats:
    """Angles of the buses that fit those across the pairs best, by least squares.

    Parameters
    ----------
    case : Case
    state : State

    Returns
    -------
    ndarray, shape (buses,)
        In degrees; 0 for one bus of every connected part.
    """
    pairs, count = case.pairs, len(case.bus.id)
    across = np.degrees(np.arctan2(state.wi, state.wr))
    angles = np.zeros(count)
    if not len(across):
        return angles
    ends = (incidence(pairs.first, count) - incidence(pairs.second, count)).T
    links = sp.csc_array(ends.T @ ends)
    _, part = connected_components(links, directed=False)
    free = np.setdiff1d(np.arange(count), np.unique(part, return_index=True)[1])
    angles[free] = splu(sp.csc_array(links[free][:, free])).solve((ends.T @ across)[free])
    return angles


@dataclass(frozen=True)
class Relaxation:
    """Distance of a point of the relaxation from an AC power flow, computed without loads.

    Attributes
    ----------
    cone_slack : float
        Largest share of ``w_first w_second`` by which ``wr^2 + wi^2`` of a pair differs from it.
    loose : int
        Pairs in which that share is above 1e-4.
    pairs : int
    angle_mismatch : float
        Largest size in `angle_mismatch`, in degrees.
    """

    cone_slack: float
    loose: int
    pairs: int
    angle_mismatch: float

    @property
    def tight(self) -> bool:
        """Return whether pairs are products of bus voltages, within 1e-4 and 0.1 degrees."""
        return self.loose == 0 and self.angle_mismatch <= CLOSED

    @property
    def short(self) -> str:
        """The verdict alone."""
        return f"relaxation: {'tight' if self.tight else 'not an AC power flow'}"

    @property
    def slack(self) -> str:
        """The slack of the cones in words."""
        return (
            f"up to {_percent(self.cone_slack)} of w_i w_j "
            f"({self.loose} of {self.pairs} pairs above {_percent(TIGHT)})"
        )

    @property
    def closure(self) -> str:
        """Return a text on how loops close."""
        return (
            "branch angles miss the best bus angles by up to "
            f"{_degrees(self.angle_mismatch)} degrees"
        )

    def __str__(self) -> str:
        return f"{self.short}; cone slack {self.slack}, loop closure: {self.closure}"


def relaxation(case: Case, state: State) -> Relaxation:
    """Measure how far a point is from an AC power flow.

    Parameters
    ----------
    case : Case
    state : State
        State of the network. If released values determine it, the result is post-processing.

    Returns
    -------
    Relaxation
    """
    product = state.w[case.pairs.first] * state.w[case.pairs.second]
    # Products that are not positive belong to no voltages: their slack is large on this scale.
    share = np.abs(product - state.wr**2 - state.wi**2) / np.maximum(product, TIGHT)
    mismatch = np.abs(angle_mismatch(case, state))
    return Relaxation(
        cone_slack=float(share.max(initial=0.0)),
        loose=int(np.sum(share > TIGHT)),
        pairs=len(share),
        angle_mismatch=float(mismatch.max(initial=0.0)),
    )


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %" if share >= 1e-6 else "0 %"


def _degrees(angle: float) -> str:
    return f"{angle:.2g}" if angle >= 1e-3 else "0"
