"""What single outputs revealed: ex-post losses, summed up. Not a guarantee, not private."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

import dpcvx as dp
from dpcvx.verify.ex_post import Kind
from problems.census.records import Records
from problems.census.study import data_of

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
# Of the expectations that are shown.
_POINTS = 12


@dataclass(frozen=True, eq=False)
class Exposure:
    """Ex-post losses over alpha beta B, by round. Depends on outputs and data: no guarantee.

    Means over agents and coordinates.

    Attributes
    ----------
    observed : ndarray, shape (K,)
        At the outputs.
    rounds : ndarray of int, shape (P,)
        Some of the rounds, the first and the last among them.
    expected : ndarray, shape (P,)
        In these, before the outputs are drawn (gamma).
    """

    observed: Floats
    rounds: Ints
    expected: Floats


def exposure(plan: dp.Plan, parts: Sequence[Records], transcript: dp.Transcript) -> Exposure:
    """Of a run with Laplace noise, random weights and linearised steps.

    Parameters
    ----------
    plan : dp.Plan
    parts : sequence of Records
        What the agents hold.
    transcript : dp.Transcript
        Of the run.
    """
    K = transcript.rounds

    def shares(kind: Kind) -> Floats:
        found = dp.not_private.ex_post(plan, transcript, data_of(parts), kind=kind).values()
        return np.mean(
            [(own.values / own.worst).reshape(K, -1).mean(axis=1) for own in found], axis=0
        )

    rounds = np.unique(np.rint(np.linspace(1, K, min(_POINTS, K))).astype(np.int64))
    return Exposure(shares("observed"), rounds, shares("expected")[rounds - 1])
