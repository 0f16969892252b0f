"""What a point of the network does to balance and limits, in the units of the field.

Everything here is computed from raw values. `imbalance` uses the loads, so what it returns is
private; the other functions need no loads: of released values they are post-processing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

import dpcvx as dp

from .ac import AcCheck, ac_check, served_loads
from .case import Case
from .model import cost_scale
from .physics import ENDS, flow_maps
from .relaxed import Relaxation, relaxation
from .solution import State, network_state
from .study import PowerFlow

Floats = NDArray[np.float64]

# A squared voltage in its place where a point has none.
_TINY = 1e-9
BOUND = "lower bound of the AC optimum within the same limits"
"""What the optimum of the relaxation is, with all loads in one place."""


def imbalance(case: Case, state: State, load: Floats) -> dict[int, tuple[float, float]]:
    """Power that arrives at each bus beyond its load. Private: it is computed from loads.

    Parameters
    ----------
    case : Case
    state : State
    load : ndarray, shape (buses, 2)
        Loads in per unit, columns P and Q, for example ``1.5 * case.load``.

    Returns
    -------
    dict
        Bus id to (MW, MVAr): generation minus load, shunts and outgoing flows. Negative where
        load is not served.
    """
    surplus = case.base_mva * (served_loads(case, state) - load)
    return {
        int(bus): (float(p), float(q)) for bus, (p, q) in zip(case.bus.id, surplus, strict=True)
    }


def thermal_loading(case: Case, state: State) -> Floats:
    """Apparent power of each branch, at its more loaded end, in percent of its limit.

    Parameters
    ----------
    case : Case
    state : State

    Returns
    -------
    ndarray, shape (branches,)
        NaN where a branch has no limit. Where it has one on the current too, the larger loading.
    """
    rate, most = case.branch.rate, case.branch.current
    power = np.where(np.isfinite(rate), 100 * _apparent(state) / rate, np.nan)
    current = np.where(np.isfinite(most), 100 * _currents(case, state) / most, np.nan)
    return np.fmax(power, current)


def generator_costs(case: Case, state: State) -> Floats:
    """Cost of each generator in $/h.

    Parameters
    ----------
    case : Case
    state : State

    Returns
    -------
    ndarray, shape (generators,)
    """
    gen, pieces = case.gen, case.pieces
    cost = gen.c2 * state.pg**2 + gen.c1 * state.pg + gen.c0
    cost += gen.q2 * state.qg**2 + gen.q1 * state.qg + gen.q0
    for power, reactive in ((state.pg, False), (state.qg, True)):
        chosen = pieces.reactive == reactive
        at = pieces.gen[chosen]
        most = np.full(len(cost), -np.inf)
        np.maximum.at(most, at, pieces.slope[chosen] * power[at] + pieces.intercept[chosen])
        cost += np.where(np.isfinite(most), most, 0.0)
    return cost


def violations(case: Case, state: State) -> dict[str, float]:
    """Largest violation of every family of constraints except the balance, in per unit.

    Parameters
    ----------
    case : Case
    state : State

    Returns
    -------
    dict
        Keys "voltage" (bounds on w), "generation" (bounds, storage, DC lines), "flow" (flows
        against voltages), "thermal" (apparent power and current), "angle" (``wi`` against
        ``tan(angle) wr``) and "cone" (``hypot(2 wr, 2 wi, w_first - w_second)`` against
        ``w_first + w_second``). 0 means that all constraints of the family hold.
    """
    bus, gen, pairs, links = case.bus, case.gen, case.pairs, case.links
    apparent = np.hypot(state.pg, state.qg)
    first, second = state.w[pairs.first], state.w[pairs.second]
    norm = np.sqrt((2 * state.wr) ** 2 + (2 * state.wi) ** 2 + (first - second) ** 2)
    maps = flow_maps(case)
    mismatch = [
        getattr(state, end)
        - maps[end].w_map @ state.w
        - maps[end].wr_map @ state.wr
        - maps[end].wi_map @ state.wi
        for end in ENDS
    ]
    return {
        "voltage": _worst(bus.vmin**2 - state.w, state.w - bus.vmax**2),
        "generation": _worst(
            gen.pmin - state.pg,
            state.pg + gen.loss * apparent**2 / state.w[gen.bus] - gen.pmax,
            gen.qmin - state.qg,
            state.qg - gen.qmax,
            apparent - gen.rating,
            np.abs(state.pg[links.end] + (1 - links.loss1) * state.pg[links.start] + links.loss0),
        ),
        "flow": _worst(*(np.abs(gap) for gap in mismatch)),
        "thermal": _worst(
            _apparent(state) - case.branch.rate, _currents(case, state) - case.branch.current
        ),
        "angle": _worst(
            np.tan(pairs.angmin) * state.wr - state.wi, state.wi - np.tan(pairs.angmax) * state.wr
        ),
        "cone": _worst(norm - first - second),
    }


def _apparent(state: State) -> Floats:
    return np.maximum(np.hypot(state.pf, state.qf), np.hypot(state.pt, state.qt))


def _currents(case: Case, state: State) -> Floats:
    """Size of the current of each branch in per unit, at the end where it is larger."""
    voltage = np.sqrt(np.maximum(state.w, _TINY))
    return np.maximum(
        np.hypot(state.pf, state.qf) / voltage[case.branch.from_bus],
        np.hypot(state.pt, state.qt) / voltage[case.branch.to_bus],
    )


def _worst(*excess: Floats) -> float:
    return float(max(np.max(part, initial=0.0) for part in excess))


@dataclass(frozen=True)
class ZoneImbalance:
    """Power that does not balance in one zone. Not private: computed from its loads.

    Attributes
    ----------
    name : str
    buses : int
    active, reactive : float
        Sum over the zone's buses of the absolute imbalance, in MW and MVAr.
    worst_bus : int
        Id of the bus with the largest apparent imbalance.
    worst : float
        That imbalance in MVA.
    """

    name: str
    buses: int
    active: float
    reactive: float
    worst_bus: int
    worst: float


@dataclass(frozen=True)
class Outcome:
    """A run of the study measured against the true loads. Not private.

    Attributes
    ----------
    objective : float
        Sum of the zones' true objectives at their own copies: squared per unit, or $/h.
    imbalance : dict
        Bus id to (MW, MVAr).
    zones : tuple of ZoneImbalance
    load : float
        Apparent power of all loads together in MVA, of which shares are taken; the base power of a
        network without load.
    relaxation : Relaxation
        How far the point is from an AC power flow; that needs no loads.
    ac : AcCheck
        What an AC power flow from the point's set points does, at loads that are public or follow
        from released values.
    """

    objective: float
    imbalance: dict[int, tuple[float, float]]
    zones: tuple[ZoneImbalance, ...]
    load: float
    relaxation: Relaxation
    ac: AcCheck


def assess(study: PowerFlow, result: dp.Result) -> Outcome:
    """Measure the reported solution of a run; the variables must hold its values. Not private."""
    case = study.case
    value = dp.not_private.objective(study.problem, result.solution)
    state = network_state(case, study.zones, study.variables)
    surplus = imbalance(case, state, study.load_scale * case.load)
    zones = []
    for name, buses in zip(study.zones.names, study.zones.buses, strict=True):
        ids = case.bus.id[buses].tolist()
        own = np.abs([surplus[bus] for bus in ids])
        size = np.hypot(own[:, 0], own[:, 1])
        worst = int(np.argmax(size))
        zones.append(
            ZoneImbalance(
                name=f"zone {name}",
                buses=len(ids),
                active=float(own[:, 0].sum()),
                reactive=float(own[:, 1].sum()),
                worst_bus=ids[worst],
                worst=float(size[worst]),
            )
        )
    whole = float(np.hypot(*study.load_scale * case.load.sum(axis=0))) or 1.0
    _, factor = objective_unit(study)
    return Outcome(
        value / factor,
        surplus,
        tuple(zones),
        case.base_mva * whole,
        relaxation(case, state),
        ac_check(study, result),
    )


def objective_unit(study: PowerFlow) -> tuple[str, float]:
    """The unit of the objective, and how much of the model's own objective makes one of it."""
    if study.objective == "shed":
        return "per unit squared", 1.0
    return "$/h", cost_scale(study.case)


def after_recourse(study: PowerFlow, result: dp.Result) -> float | None:
    """The objective once every zone has decided for itself with its true loads. Not private.

    None if the run left nothing to which all zones agree.
    """
    if not result.feasible:
        return None
    _, factor = objective_unit(study)
    value = dp.not_private.recourse(study.problem, result.solution) / factor
    return value if np.isfinite(value) else None


def table(study: PowerFlow, outcome: Outcome) -> str:
    """The outcome as text, labeled as what it is."""
    unit, _ = objective_unit(study)
    lines = [
        "measured against the true loads (not private, for study only):",
        f"  objective {_shown(outcome.objective, 6)} {unit}",
        f"  {'zone':<12}{'buses':>6}{'sum |dP| MW':>14}{'sum |dQ| MVAr':>15}{'worst bus':>22}",
    ]
    for zone in outcome.zones:
        worst = f"{zone.worst_bus} ({_shown(zone.worst, 3)} MVA)"
        power = f"{_shown(zone.active):>14}{_shown(zone.reactive):>15}"
        lines.append(f"  {zone.name:<12}{zone.buses:>6}{power}{worst:>22}")
    load = study.case.base_mva * study.load_scale * study.case.load.sum(axis=0)
    active = sum(zone.active for zone in outcome.zones)
    reactive = sum(zone.reactive for zone in outcome.zones)
    lines.append(
        f"  missing or too much: {_shown(active)} of {load[0]:.4g} MW, {_shown(reactive)} of "
        f"{load[1]:.4g} MVAr"
    )
    lines += [str(outcome.relaxation), outcome.ac.short]
    return "\n".join(lines)


def _shown(value: float, digits: int = 4) -> str:
    """A number in units of the field; what is below a millionth is the solver's accuracy."""
    return f"{value:.{digits}g}" if abs(value) >= 1e-6 else "0"
