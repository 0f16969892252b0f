"""Dual, penalty and output perturbation, with exact and with first-order steps, and DP-ADMM.

All methods have Gaussian noise, one total guarantee, and the same networks and shares of records.
The results are not private, except for the total guarantees.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

import dpcvx as dp

from ..labeled import data_of
from .exact_steps import Exact, calibrated, run
from .experiment import Traces
from .measures import Measures
from .methods import DELTA, RATE, Budget, D
from .study import Census

Floats = NDArray[np.float64]

# Exact steps by name, for one record per agent; `compared` puts in the number of records.
_EXACT = {
    "Dual perturbation, exact": Exact(1, D),
    "Dual perturbation, exact, noise as in the paper": Exact(1, D, noise="Zhang and Zhu"),
    "Penalty perturbation, exact": Exact(1, D, growth=RATE),
}
# New names of the methods in `methods.METHODS` that are perturbations.
_PLANNED = {
    "Dual perturbation (fixed weights)": "Dual perturbation, first order",
    "Penalty perturbation (growing D)": "Penalty perturbation, first order",
    "Output perturbation (exact steps)": "Output perturbation, exact",
}
_SERVER = "DP-ADMM, with a server"


@dataclass(frozen=True, eq=False)
class Row:
    """The objective gaps of a method's R runs.

    Attributes
    ----------
    name : str
        Name of the method.
    epsilon : float
        Worst-case total epsilon of every agent at `DELTA`.
    gaps : ndarray, shape (R, K + 1)
        Objective minus its minimum at the mean of all agents' points, over this gap at the start.
    """

    name: str
    epsilon: float
    gaps: Floats


def compared(
    study: Census,
    networks: Sequence[tuple[Measures, int]],
    rounds: int,
    epsilon: float,
    known: Sequence[Traces] = (),
) -> list[Row]:
    """Return rows of perturbations run before, then run those with exact steps, and DP-ADMM.

    Parameters
    ----------
    study : Census
        The problem.
    networks : sequence of (Measures, int)
        Records and number of random edges of every run; a run's seed is its index.
    rounds : int
        Number of rounds, K.
    epsilon : float
        Total epsilon at `DELTA`.
    known : sequence of Traces
        Runs over the same networks, with Gaussian noise for the same total. Methods that are not
        perturbations are left out.
    """
    rows = [
        Row(_PLANNED[own.method.name], own.guarantee.epsilon, own.gaps)
        for own in known
        if own.method.name in _PLANNED
    ]
    for name, given in _EXACT.items():
        own = calibrated(replace(given, each=study.each), epsilon, rounds)
        gaps = list[Floats]()
        for seed, (measures, edges) in enumerate(networks):
            network = dp.networks.random(study.problem.names, edges, seed)
            X = run(own, measures.shares.parts, network, rounds, seed)
            gaps.append(_gaps(measures, X.mean(axis=1)))
        rows.append(Row(name, own.epsilon(rounds), np.array(gaps)))
    budget = Budget.of(epsilon, rounds, "Gaussian")
    return [*rows, _with_server(study, [measures for measures, _ in networks], rounds, budget)]


def _with_server(study: Census, drawn: Sequence[Measures], rounds: int, budget: Budget) -> Row:
    """Run DP-ADMM of Huang et al. (2020), with the steps and penalties that the plan chooses."""
    algorithm = dp.LinearizedADMM(perturb="output")
    plan = study.problem.plan(algorithm, mechanism=budget.mechanism, rounds=rounds, delta=DELTA)
    gaps = list[Floats]()
    for seed, measures in enumerate(drawn):
        data = data_of(measures.shares.parts)
        result = plan.run(data=data, seed=seed, iterates=True, verbose=False)
        points = [it.last[study.x] for it in result.iterates]
        gaps.append(_gaps(measures, np.array([np.zeros(study.x.shape), *points])))
    return Row(_SERVER, plan.guarantee.epsilon, np.array(gaps))


def _gaps(measures: Measures, points: Floats) -> Floats:
    return measures.gap(points) / measures.gap(points[0])
