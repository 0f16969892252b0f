"""Ex-post privacy losses of runs, averaged by round. Not a guarantee, and not private."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

import dpcvx as dp

from ..labeled import Records
from .ex_post import Losses, expected, observed
from .intervals import intervals, step_of

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
# Largest number of rounds with an expected loss.
_POINTS = 12


@dataclass(frozen=True, eq=False)
class Exposure:
    """Ex-post losses over alpha beta B, by round.

    They depend on outputs and data, so they are no guarantee. Values are means over agents and
    coordinates.

    Attributes
    ----------
    observed : ndarray, shape (K,)
        Losses at the drawn outputs of every round.
    rounds : ndarray of int, shape (P,)
        Some of the rounds, the first and the last among them.
    expected : ndarray, shape (P,)
        Expected losses in `rounds`, before their outputs are drawn (gamma).
    """

    observed: Floats
    rounds: Ints
    expected: Floats


def exposure(plan: dp.Plan, parts: Sequence[Records], X: Floats, ledger: dp.Ledger) -> Exposure:
    """Return the exposure of a run with Laplace noise, random weights and linearized steps.

    B is 2 over the number of an agent's records: the most that replacing one record moves an entry
    of its gradient. Noise counts as continuous, without its grid.

    Parameters
    ----------
    plan : dp.Plan
        Plan of the run.
    parts : sequence of Records
        Records of each agent, of equal size.
    X : ndarray, shape (K + 1, N, d)
        Points that all agents sent, from the public start on.
    ledger : dp.Ledger
        Ledger of this run alone.
    """
    low, omega = intervals(plan, parts, X)
    K = len(omega)
    scale = [[e.multiplier * e.sensitivity for e in own.entries] for own in ledger.values()]
    alpha = np.array([step_of(plan, t) for t in range(1, K + 1)])
    shift = (2 / parts[0].count * alpha)[:, None, None]
    beta = 1 / np.array(scale).T[:, :, None]

    def shares(losses: Losses) -> Floats:
        return (losses.values / losses.worst).reshape(K, -1).mean(axis=1)

    rounds = np.unique(np.rint(np.linspace(1, K, min(_POINTS, K))).astype(np.int64))
    return Exposure(
        shares(observed(X[1:] - low, omega=omega, beta=beta, shift=shift)),
        rounds,
        shares(expected(omega=omega, beta=beta, shift=shift))[rounds - 1],
    )
