"""Balance, limits and costs at a network state, in megawatts and dollars.

`imbalance` uses the loads, so its result is private. Functions without loads are post-processing if
they are applied to released values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

import dpcvx as dp

from .ac import AcCheck, ac_check, excesses, outage_line, served_loads
from .case import Case
from .model import cost_scale
from .physics import ENDS, flow_maps
from .relaxed import Relaxation, relaxation
from .solution import State
from .study import PowerFlow

Floats = NDArray[np.float64]

# Smallest squared voltage that currents are divided by.
_TINY = 1e-9
BOUND = "lower bound of the AC optimum within the same limits"
"""Text on the optimum of the relaxation for the true loads."""


def imbalance(case: Case, state: State, load: Floats) -> dict[int, tuple[float, float]]:
    """Return the power that arrives at each bus beyond its load. It is private, like the loads.

    Parameters
    ----------
    case : Case
    state : State
    load : ndarray, shape (buses, 2)
        Loads in per unit, columns P and Q, for example ``1.5 * case.load``.

    Returns
    -------
    dict
        Imbalance (MW, MVAr) by bus id: generation minus load, shunts and outgoing flows. It is
        negative if load is not served.
    """
    surplus = case.base_mva * (served_loads(case, state) - load)
    return {
        int(bus): (float(p), float(q)) for bus, (p, q) in zip(case.bus.id, surplus, strict=True)
    }


def thermal_loading(case: Case, state: State) -> Floats:
    """Return the loading of each branch at its more loaded end, in percent of its limit.

    Parameters
    ----------
    case : Case
    state : State

    Returns
    -------
    ndarray, shape (branches,)
        NaN for a branch without limits. With limits on apparent power and on current, the larger
        loading.
    """
    rate, most = case.branch.rate, case.branch.current
    power = np.where(np.isfinite(rate), 100 * _apparent(state) / rate, np.nan)
    current = np.where(np.isfinite(most), 100 * _currents(case, state) / most, np.nan)
    return np.fmax(power, current)


def generator_costs(case: Case, state: State) -> Floats:
    """Return the cost of each generator in $/h.

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
    """Return the largest violation of every family of constraints except the balance, in per unit.

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
    """Return the current of each branch in per unit, the larger one of both ends."""
    voltage = np.sqrt(np.maximum(state.w, _TINY))
    return np.maximum(
        np.hypot(state.pf, state.qf) / voltage[case.branch.from_bus],
        np.hypot(state.pt, state.qt) / voltage[case.branch.to_bus],
    )


def _worst(*excess: Floats) -> float:
    return float(max(np.max(part, initial=0.0) for part in excess))


@dataclass(frozen=True)
class ZoneImbalance:
    """Power imbalance of one zone. Not private: computed from its loads.

    For several hours, all numbers are means over the hours.

    Attributes
    ----------
    name : str
        Name of the zone.
    buses : int
        Number of buses.
    active, reactive : float
        Sum over the zone's buses of the absolute imbalance, in MW and MVAr.
    worst_bus : int
        Id of the bus with the largest apparent imbalance.
    worst : float
        Apparent imbalance of this bus in MVA.
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
        Sum of the zones' true objectives at their own copies: squared per unit, $/h, or $ over
        several hours.
    imbalance : dict
        Imbalance (MW, MVAr) by bus id; for several hours, means of absolute values.
    zones : tuple of ZoneImbalance
        Imbalance by zone.
    load : float
        Apparent power of all loads together in MVA, the base of shares; the base power for a
        network without load. For several hours, the mean.
    relaxation : Relaxation or None
        Distance from an AC power flow, computed without loads; for several hours, at the hour with
        the largest cone slack. None if the model is an approximation.
    nature : str
        Text on the distance from an AC power flow.
    short : str
        Short text on the distance from an AC power flow.
    ac : tuple of AcCheck
        AC check of every hour, at loads that are public or follow from released values.
    text : str
        Table of all these facts, which `print` shows.
    """

    objective: float
    imbalance: dict[int, tuple[float, float]] = field(repr=False)
    zones: tuple[ZoneImbalance, ...]
    load: float
    relaxation: Relaxation | None
    nature: str
    short: str
    ac: tuple[AcCheck, ...] = field(repr=False)
    text: str = field(repr=False)

    def __str__(self) -> str:
        return self.text


_APPROXIMATIONS = {
    "dc": "direct-current approximation: not an AC power flow; voltages of 1 p.u., no losses",
    "distflow": "linearized DistFlow: not an AC power flow; no losses",
}


def assess(study: PowerFlow, result: dp.Result) -> Outcome:
    """Measure the reported solution of a run; the variables must hold its values. Not private."""
    case, base = study.case, study.case.base_mva
    value = dp.not_private.objective(study.problem, result.solution)
    served = np.stack([study.served_load(hour) for hour in range(study.hours)], axis=2)
    surplus = np.zeros((len(served), 2, study.hours))
    surplus[:, : served.shape[1]] = base * (served - study.load)
    mean = surplus[:, :, 0] if study.hours == 1 else np.abs(surplus).mean(axis=2)
    size = np.hypot(surplus[:, 0], surplus[:, 1]).mean(axis=1)
    zones = []
    for name, buses in zip(study.zones.names, study.zones.buses, strict=True):
        active, reactive = np.abs(mean[buses]).sum(axis=0)
        worst = buses[int(np.argmax(size[buses]))]
        zones.append(
            ZoneImbalance(
                name=f"zone {name}",
                buses=len(buses),
                active=float(active),
                reactive=float(reactive),
                worst_bus=int(case.bus.id[worst]),
                worst=float(size[worst]),
            )
        )
    whole = float(np.linalg.norm(study.load.sum(axis=0), axis=0).mean()) or 1.0
    _, factor = objective_unit(study)
    relaxed, words, short = nature(study)
    ac = tuple(ac_check(study, result, hour=hour) for hour in range(study.hours))
    return Outcome(
        value / factor,
        {int(bus): (float(p), float(q)) for bus, (p, q) in zip(case.bus.id, mean, strict=True)},
        tuple(zones),
        base * whole,
        relaxed,
        words,
        short,
        ac,
        "\n".join([_table(study, value / factor, zones), words, ac_line(ac)]),
    )


def nature(study: PowerFlow) -> tuple[Relaxation | None, str, str]:
    """Return a point's distance from an AC power flow as numbers, a sentence and a short text."""
    if study.setting.kind != "soc":
        words = _APPROXIMATIONS[study.setting.kind]
        return None, words, words.partition(";")[0]
    each = [relaxation(study.case, study.state(hour)) for hour in range(study.hours)]
    worst = max(each, key=lambda hour: hour.cone_slack)
    return worst, str(worst), worst.short


def objective_unit(study: PowerFlow) -> tuple[str, float]:
    """Return the unit of the objective, and the value of the model's objective for one unit."""
    if study.objective == "shed":
        return "per unit squared", 1.0
    return "$/h" if study.hours == 1 else "$", cost_scale(study.public_case)


def after_recourse(study: PowerFlow, result: dp.Result) -> float | None:
    """Return the objective after every zone's recourse on its true loads. Not private.

    Return None if the zones did not agree on a point, or recourse has no solution.
    """
    if not result.feasible:
        return None
    _, factor = objective_unit(study)
    value = dp.not_private.recourse(study.problem, result.solution) / factor
    return value if np.isfinite(value) else None


def ac_line(checks: Sequence[AcCheck]) -> str:
    """Return AC checks of one or several hours as a line.

    Parameters
    ----------
    checks : sequence of AcCheck
    """
    if len(checks) == 1:
        return checks[0].short
    kept = sum(check.keeps_limits for check in checks)
    parts = [f"all limits kept in {kept} of {len(checks)} hours", *excesses(checks)]
    losses = sum(check.losses for check in checks if check.converged)
    outages = [outage for check in checks for outage in check.outages]
    after = f"; {outage_line(outages)}" if outages else ""
    return f"{checks[0].head}: {', '.join(parts)}, losses {losses:.1f} MWh{after}"


def _table(study: PowerFlow, objective: float, zones: Sequence[ZoneImbalance]) -> str:
    """Return a table of objective and imbalance, labeled as not private."""
    unit, _ = objective_unit(study)
    both = study.model.quantities > 1
    heads = f"{'sum |dP| MW':>14}" + (f"{'sum |dQ| MVAr':>15}" if both else "")
    lines = [
        "measured against the true loads (not private, for study only):",
        f"  objective {_shown(objective, 6)} {unit}",
        f"  {'zone':<12}{'buses':>6}{heads}{'worst bus':>22}",
    ]
    for zone in zones:
        size = _shown(zone.worst, 3)
        worst = "none" if size == "0" else f"{zone.worst_bus} ({size} {'MVA' if both else 'MW'})"
        power = f"{_shown(zone.active):>14}"
        power += f"{_shown(zone.reactive):>15}" if both else ""
        lines.append(f"  {zone.name:<12}{zone.buses:>6}{power}{worst:>22}")
    load = study.case.base_mva * study.load.sum(axis=0).mean(axis=1)
    missing = f"{_shown(sum(zone.active for zone in zones))} of {load[0]:.4g} MW"
    if len(load) > 1:
        reactive = sum(zone.reactive for zone in zones)
        missing += f", {_shown(reactive)} of {load[1]:.4g} MVAr"
    mean = f" on average over {study.hours} hours" if study.hours > 1 else ""
    lines.append(f"  power imbalance{mean}: {missing}")
    return "\n".join(lines)


def _shown(value: float, digits: int = 4) -> str:
    """Return a number as text; numbers below a millionth, the solver's accuracy, become 0."""
    if abs(value) < 1e-6:
        return "0"
    return f"{value:.0f}" if abs(value) >= 10**digits else f"{value:.{digits}g}"
