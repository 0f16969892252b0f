"""Runs of the compared methods, with measurements. Only the guarantees are private."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

import dpcvx as dp

from ..labeled import data_of
from .exposure import Exposure, exposure
from .intervals import moving
from .measures import Measures
from .methods import Budget, Method
from .study import Census

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Trace:
    """The measurements of one run. Not private, except for the guarantee.

    Attributes
    ----------
    guarantee : dp.Guarantee
        Worst-case guarantee of all rounds together.
    distance : ndarray, shape (K + 1, N)
        ``|x_i - x*| / d`` of the points that every agent sent; row 0 is the public start.
    gap : ndarray, shape (K + 1,)
        Objective minus its minimum at the mean of all agents' points, over this gap at the start.
    averaged : float
        The gap at the mean of points over agents and rounds.
    exposure : Exposure or None
        Ex-post losses; None without Laplace noise, random weights, or linearized steps.
    """

    guarantee: dp.Guarantee
    distance: Floats
    gap: Floats
    averaged: float
    exposure: Exposure | None


@dataclass(frozen=True, eq=False)
class Traces:
    """The R runs of one method.

    Attributes
    ----------
    method : Method
        The method, with its parameters.
    runs : tuple of Trace
        The measurements of every run.
    """

    method: Method
    runs: tuple[Trace, ...]

    @property
    def guarantee(self) -> dp.Guarantee:
        """Return the guarantee of each single run; runs draw new data, so none is spent twice."""
        return self.runs[0].guarantee

    @property
    def distances(self) -> Floats:
        """Return the mean distance over the agents, shape (R, K + 1)."""
        return np.array([run.distance.mean(axis=1) for run in self.runs])

    @property
    def gaps(self) -> Floats:
        """Return the gaps of all runs, shape (R, K + 1)."""
        return np.array([run.gap for run in self.runs])

    @property
    def averages(self) -> Floats:
        """Return the gaps at the mean of points over agents and rounds, shape (R,)."""
        return np.array([run.averaged for run in self.runs])

    @property
    def exposures(self) -> list[Exposure]:
        """Return the exposures of the runs that have one."""
        return [run.exposure for run in self.runs if run.exposure is not None]


def run(
    study: Census,
    method: Method,
    measures: Measures,
    edges: int,
    rounds: int,
    budget: Budget | None,
    seed: int,
) -> Trace:
    """Run a method once, on the shares of `measures` and a random network, and measure it."""
    parts = measures.shares.parts
    plan = method.plan(study, edges, seed, rounds, budget)
    result = plan.run(
        data=data_of(parts), seed=seed, record=True, executor=dp.Serial(), verbose=False
    )
    X = iterates(plan, result)
    center = X.mean(axis=1)
    start = measures.gap(X[0, 0])
    shown = None
    if budget is not None and budget.noise == "Laplace" and method.measured:
        shown = exposure(plan, parts, X, result.ledger)
    return Trace(
        guarantee=plan.guarantee,
        distance=measures.distance(X),
        gap=measures.gap(center) / start,
        averaged=float(measures.gap(center[1:].mean(axis=0)) / start),
        exposure=shown,
    )


def iterates(plan: dp.Plan, result: dp.Result) -> Floats:
    """Return all agents' points after every round, from a start at 0: shape (K + 1, N, d)."""
    assert result.transcript is not None  # recorded
    X = np.zeros((result.rounds + 1, len(plan.program.agents), plan.program.size))
    for release in sorted(result.transcript.releases, key=lambda own: own.round):
        t, i = release.round, release.agent
        X[t, i] = X[t - 1, i]
        X[t, i, moving(plan, t)] = release.value
    return X


def spread(values: Floats | Sequence[Floats]) -> tuple[Floats, Floats, Floats]:
    """Return mean, least and largest values over the runs, the first axis."""
    found = np.asarray(values)
    return found.mean(axis=0), found.min(axis=0), found.max(axis=0)
