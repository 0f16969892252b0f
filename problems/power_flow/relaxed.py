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

# Tolerances of a tight relaxation: cone slack of a pair relative to its product of squared
# voltages, and angle mismatch in degrees.
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
        ``w_first w_second - wr^2 - wi^2`` in per unit, by the bus ids of the pair. It is 0 if the
        relaxation is tight, and negative if the cone is violated.
    """
    first, second = case.pairs.first, case.pairs.second
    slack = state.w[first] * state.w[second] - state.wr**2 - state.wi**2
    ids = case.bus.id
    keys = zip(ids[first].tolist(), ids[second].tolist(), strict=True)
    return dict(zip(keys, slack.tolist(), strict=True))


def angle_mismatch(case: Case, state: State) -> Floats:
    """Return the deviations of angles across pairs from the best-fitting bus angles.

    Every pair implies an angle ``atan2(wi, wr)`` between its buses. In an AC power flow, these
    angles add up to 0 around every loop, so that bus angles exist. At other points they do not.

    Parameters
    ----------
    case : Case
    state : State

    Returns
    -------
    ndarray, shape (pairs,)
        Deviations in degrees; all are 0 if and only if the angles add up to 0 around every loop.
    """
    angles = bus_angles(case, state)
    across = np.degrees(np.arctan2(state.wi, state.wr))
    return across - (angles[case.pairs.first] - angles[case.pairs.second])


def bus_angles(case: Case, state: State) -> Floats:
    """Return the bus angles that fit the angles across pairs best, by least squares.

    Parameters
    ----------
    case : Case
    state : State

    Returns
    -------
    ndarray, shape (buses,)
        Angles in degrees; 0 for one bus of every connected part.
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
        Largest difference between ``wr^2 + wi^2`` and ``w_first w_second``, relative to the latter.
    loose : int
        Number of pairs with such a difference above 1e-4.
    pairs : int
        Number of pairs.
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
        """Text with the verdict only."""
        return f"relaxation: {'tight' if self.tight else 'not an AC power flow'}"

    @property
    def slack(self) -> str:
        """Text on the slack of the cones."""
        return (
            f"up to {_percent(self.cone_slack)} of w_i w_j "
            f"({self.loose} of {self.pairs} pairs above {_percent(TIGHT)})"
        )

    @property
    def closure(self) -> str:
        """Text on the angle mismatch."""
        return (
            "branch angles miss the best bus angles by up to "
            f"{_degrees(self.angle_mismatch)} degrees"
        )

    def __str__(self) -> str:
        return f"{self.short}; cone slack {self.slack}, loop closure: {self.closure}"


def relaxation(case: Case, state: State) -> Relaxation:
    """Measure the distance of a network state from an AC power flow.

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
    # Nonpositive products do not belong to voltages; on this scale, their slack is large.
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
