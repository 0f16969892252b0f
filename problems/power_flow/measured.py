"""Measurement of the study's runs with the true loads. Only the guarantees in it are private."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

import dpcvx as dp

from .elastic import Family, hours_in_the_way, without_limits
from .models import DistFlowModel, SocModel
from .prices import Prices, prices
from .report import BOUND, Outcome, after_recourse, assess, objective_unit
from .schedule import Schedule, schedule_of
from .solution import State, central
from .solver import solve
from .study import PowerFlow

Floats = NDArray[np.float64]

# Accuracy of the solver, in per unit.
_ACCURACY = 1e-6


@dataclass(frozen=True, eq=False)
class Run:
    """A run with its network states, and its measurement with the true loads.

    Attributes
    ----------
    result : dp.Result
    states : tuple of State
        Network state of every hour.
    loads : tuple of ndarray, shape (buses, 2)
        `PowerFlow.net_load` of every hour.
    prices : Prices or None
        Prices of the run, if its method has prices.
    schedule : Schedule
        Power of storage and of flexible loads.
    outcome : Outcome
        Outcome with the true loads.
    recourse : float or None
        Objective after every zone's recourse; None if it was not computed, or if the zones agree on
        no point.
    broken : bool or None
        Whether the true loads violate a constraint that contains them; None without such
        constraints.
    """

    result: dp.Result
    states: tuple[State, ...]
    loads: tuple[Floats, ...]
    prices: Prices | None
    schedule: Schedule
    outcome: Outcome
    recourse: float | None
    broken: bool | None = None


def measure(study: PowerFlow, result: dp.Result, *, own: bool = True, draws: int = 0) -> Run:
    """Measure a run with the true loads; the variables must hold its values. Not private.

    Parameters
    ----------
    study : PowerFlow
    result : dp.Result
    own : bool
        Whether to compute every zone's recourse as well.
    draws : int
        See `prices.prices`.

    Raises
    ------
    dp.SolverError
        If the run ended without a solution.
    """
    if not result.status.solved:
        raise dp.SolverError(
            f"{study.case.name}: the run ended as {result.status.name.lower()}, so there is no "
            "point to measure. The loads cannot be served with margins for the noise: raise "
            "--epsilon, or lower --radius or --load-scale."
        )
    states = tuple(study.state(hour) for hour in range(study.hours))
    recourse = after_recourse(study, result) if own else None
    broken = None
    if study.setting.balance == "covered":
        excess = dp.not_private.violation(study.problem, result.solution)
        broken = result.feasible and excess > _ACCURACY
    loads = tuple(study.net_load(hour) for hour in range(study.hours))
    priced = None
    if study.balance:
        with contextlib.suppress(dp.PrivacyError):  # raised for a method without prices
            priced = prices(study, result, draws=draws)
    schedule, outcome = schedule_of(study), assess(study, result)
    return Run(result, states, loads, priced, schedule, outcome, recourse, broken)


def breaks(runs: Sequence[Run]) -> int | None:
    """Count the runs with private constraints that the true loads violate; None without any."""
    known = [run.broken for run in runs if run.broken is not None]
    return sum(known) if known else None


def optimum(study: PowerFlow) -> float | None:
    """Return the optimal value of the joint problem; None if it has none. Not private.

    The unit is squared per unit for "shed", else $/h, or $ for several hours.
    """
    setting = study.setting
    if setting.is_plain_soc:
        try:
            return central(
                study.case, study.objective, study.load_scale, cuts=setting.cuts, explain=False
            ).value
        except dp.SolverError:
            return None
    try:
        return together(study, explain=False)[0]
    except dp.SolverError:
        return None


def together(study: PowerFlow, *, explain: bool = True) -> tuple[float, PowerFlow]:
    """Solve the joint problem of a study, with all data in one place. Not private.

    Parameters
    ----------
    study : PowerFlow
    explain : bool
        Whether to solve an infeasible approximation once more, to name limits in the way.

    Returns
    -------
    value : float
        Optimal value; see `optimum`.
    public : PowerFlow
        `PowerFlow.public` of the study; its variables hold a minimizer.

    Raises
    ------
    dpcvx.errors.SolverError
        If the solver finds no optimum, for example because the loads cannot be served.
    """
    public = study.public()
    problem = dp.not_private.joint_problem(public.problem)
    status = solve(problem)
    if status not in (cp.OPTIMAL, cp.OPTIMAL_INACCURATE):
        families = _in_the_way(study) if status in (cp.INFEASIBLE, cp.INFEASIBLE_INACCURATE) else ()
        why = (
            f"In the way are {'; '.join(str(family) for family in families)}. " if families else ""
        )
        raise dp.SolverError(
            f"{study.case.name}: the problem with all data in one place ended as {status}. {why}"
            "Correct limits, change load_scale= or profiles=, or use the objective 'shed', which "
            "has a power imbalance instead."
        )
    return np.asarray(problem.value).item() / objective_unit(public)[1], public


def _in_the_way(study: PowerFlow) -> tuple[Family, ...]:
    """Return limits that have to be violated to serve the loads of all hours."""
    free = study.public(without_limits(study.case))
    model, (agent,) = free.model, free.problem.agents
    if isinstance(model, SocModel):
        return ()
    hours, everything = range(study.hours), np.arange(len(study.case.branch.x))
    dist = isinstance(model, DistFlowModel)
    return hours_in_the_way(
        study.case,
        agent.constraints,
        model.power,
        model.x.reactive if dist else None,
        model.x.w if dist else None,
        [[model.flows(0, everything, hour)[: model.quantities]] for hour in hours],
        float(np.abs(study.load[:, 0]).sum() / study.hours),
    )


def gaps(values: Sequence[float], best: float) -> list[float]:
    """Return the quartiles of gaps; they may be negative if zones disagree.

    Parameters
    ----------
    values : sequence of float
        Objectives of runs.
    best : float
        Optimal value.
    """
    return [float(gap) for gap in np.quantile(np.array(values) - best, (0.25, 0.5, 0.75))]


def as_json(study: PowerFlow, runs: Sequence[Run], best: float | None) -> dict[str, object]:
    """Return the stored facts of runs of one plan: guarantees, and measurements, not private.

    Parameters
    ----------
    study : PowerFlow
    runs : sequence of Run
        Runs; single values in the result are taken from the first one.
    best : float or None
        Optimal value.
    """
    result, outcome = runs[0].result, runs[0].outcome
    guarantee = result.guarantee
    objectives = [run.outcome.objective for run in runs]
    own = [run.recourse for run in runs if run.recourse is not None]
    finite = math.isfinite(guarantee.epsilon)
    return {
        "case": study.case.name,
        "zones": list(study.zones.names),
        "status": result.status.name.lower(),
        "objective": outcome.objective,
        "consensus_residual": result.consensus_residual,
        "max_violation": result.max_iterate_violation,
        "rounds": result.rounds,
        "seconds": result.seconds,
        "guarantee": {
            "epsilon": guarantee.epsilon if finite else None,
            "delta": guarantee.delta,
            "kind": guarantee.kind,
            "mechanism": guarantee.mechanism,
            "accountant": guarantee.accountant,
            "observer": guarantee.observer,
            "assumptions": list(guarantee.assumptions),
        },
        "reported": result.reported,
        "zone_imbalance": {
            zone.name: {"mw": zone.active, "mvar": zone.reactive} for zone in outcome.zones
        },
        "relaxation": None if outcome.relaxation is None else asdict(outcome.relaxation),
        "ac_check": outcome.ac[0].as_dict()
        if study.hours == 1
        else [check.as_dict() for check in outcome.ac],
        "prices": None if runs[0].prices is None else runs[0].prices.as_dict(),
        "optimum": best,
        "optimum_is": BOUND if best is not None and study.setting.kind == "soc" else None,
        "runs": len(runs),
        "gap_quartiles": None if best is None else gaps(objectives, best),
        "gap_quartiles_after_recourse": None if best is None or not own else gaps(own, best),
        "private_constraints_broken": breaks(runs),
        "not_private": [
            "private_constraints_broken",
            "objective",
            "zone_imbalance",
            "optimum",
            "gap_quartiles",
            "gap_quartiles_after_recourse",
        ],
    }
