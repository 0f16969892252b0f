"""Values of a network's variables, and the joint solve with all loads in one place."""

from __future__ import annotations

from dataclasses import dataclass

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

from dpcvx.errors import ModelError, SolverError

from .case import Case
from .elastic import limits_in_the_way
from .model import Objective, Variables, cost_scale, variables, zone_model
from .solver import solve
from .zones import Zones, read_zones

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class State:
    """Network state in per unit, with one flow per end of each branch.

    Attributes
    ----------
    w : ndarray, shape (buses,)
        Squared voltage magnitudes.
    wr, wi : ndarray, shape (pairs,)
        Real and imaginary parts of voltage products.
    pg, qg : ndarray, shape (generators,)
        Active and reactive generation.
    pf, qf, pt, qt : ndarray, shape (branches,)
        Active and reactive power into branches, at the from end and at the to end.
    """

    w: Floats
    wr: Floats
    wi: Floats
    pg: Floats
    qg: Floats
    pf: Floats
    qf: Floats
    pt: Floats
    qt: Floats


@dataclass(frozen=True, eq=False)
class Central:
    """Result of the solve without zones.

    Attributes
    ----------
    value : float
        Optimal value, in squared per unit for "shed" and in $/h for the others.
    status : str
        Status of the solver, "optimal" or "optimal_inaccurate".
    state : State
        Network state of a minimizer.
    """

    value: float
    status: str
    state: State


def network_state(case: Case, zones: Zones, variables: Variables) -> State:
    """Return the network state from the values of cvxpy variables.

    If both zones of a tie line have their own flows, the flow at each end is taken from the zone
    that has the bus there.

    Parameters
    ----------
    case, zones, variables
        Network, partition and variables with values.

    Returns
    -------
    State

    Raises
    ------
    ModelError
        If a variable has no value.
    """
    owner_f = zones.of_bus[case.branch.from_bus]
    owner_t = zones.of_bus[case.branch.to_bus]
    entry_f, entry_t = np.zeros_like(owner_f), np.zeros_like(owner_t)
    for zone, branches in enumerate(zones.branches):
        for owner, entry in ((owner_f, entry_f), (owner_t, entry_t)):
            mine = owner[branches] == zone
            entry[branches[mine]] = variables.flows[zone][mine]
    return State(
        w=_value(variables.w)[: len(case.bus.id)],
        wr=_value(variables.wr)[: len(case.pairs.first)],
        wi=_value(variables.wi)[: len(case.pairs.first)],
        pg=_value(variables.pg),
        qg=_value(variables.qg),
        pf=_value(variables.pf)[entry_f],
        qf=_value(variables.qf)[entry_f],
        pt=_value(variables.pt)[entry_t],
        qt=_value(variables.qt)[entry_t],
    )


def central(
    case: Case,
    objective: Objective,
    load_scale: float = 1.0,
    *,
    cuts: bool = False,
    explain: bool = True,
) -> Central:
    """Solve the network as one zone that knows all loads. The result is not private.

    Parameters
    ----------
    case : Case
    objective : {"shed", "cost", "both"}
        See `model.zone_model`.
    load_scale : float
        Factor on all loads.
    cuts : bool
        Whether to add lifted nonlinear cuts, which give a bound at least as tight; see
        `model.lifted_cuts`.
    explain : bool
        Whether to solve once more if the loads cannot be served, to name the limits in the way.

    Returns
    -------
    Central

    Raises
    ------
    ModelError
        If the objective is unknown.
    dpcvx.errors.SolverError
        If Clarabel finds no solution, for example because the loads cannot be served ("cost").
    """
    zones = read_zones(1, case)
    declared = variables(case, zones)
    load = cp.Constant(case.scaled_load(load_scale))
    expression, constraints = zone_model(case, zones, declared, 0, load, objective, cuts=cuts)
    problem = cp.Problem(cp.Minimize(expression), constraints)
    status = solve(problem)
    if status not in (cp.OPTIMAL, cp.OPTIMAL_INACCURATE):
        why = "The solver gave up"
        if status in (cp.INFEASIBLE, cp.INFEASIBLE_INACCURATE):
            why = "The loads do not fit limits of voltages, generators (Q too) or branches"
            families = limits_in_the_way(case, case.scaled_load(load_scale)) if explain else ()
            if families:
                why = f"In the way are {'; '.join(str(family) for family in families)}"
        raise SolverError(
            f"{case.name}: the central problem '{objective}' at load scale {load_scale:g} ended "
            f"as {status}, so there is no optimum to compare with. {why}. Correct limits, lower "
            "`load_scale`, or use the objective 'shed', which has a power imbalance instead."
        )
    scale = 1.0 if objective == "shed" else cost_scale(case)
    return Central(
        value=np.asarray(problem.value, dtype=np.float64).item() / scale,
        status=status,
        state=network_state(case, zones, declared),
    )


def _value(variable: cp.Variable) -> Floats:
    if variable.size == 0:
        # cvxpy gives no value to a variable without entries, as in a network without branches.
        return np.zeros(0)
    if variable.value is None:
        raise ModelError(
            f"The variable {variable.name()} has no value, so there is no state to collect. Solve "
            "a problem with it, or assign its value, first."
        )
    return np.asarray(variable.value, dtype=np.float64)
