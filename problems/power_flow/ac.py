"""AC power flow from set points: Newton's method in polar coordinates, and its results.

`newton` takes set points and loads and solves the equations of the network. `ac_check` does so with
the set points of a run, and measures violations of the network's limits. Every generator bus keeps
its voltage and active power, except one slack bus in every connected part, which also supplies the
difference in losses. With contingencies, it does so once more after each outage.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from types import ModuleType
from typing import Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.linalg import splu

import dpcvx as dp

from .case import Case, without_branch
from .physics import incidence, slack_buses, susceptances
from .relaxed import Relaxation, relaxation
from .solution import State
from .study import PowerFlow

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Complexes = NDArray[np.complex128]
Loads = Literal["public", "served", "true"]

# Largest mismatch of a converged power flow, in per unit.
_EXACT = 1e-10
# Rounding errors of the equations, relative to the largest admittance.
_ROUNDED = 32 * float(np.finfo(np.float64).eps)
# Largest number of steps of Newton's method, and of halvings of a step.
_STEPS, _HALVINGS = 40, 12
# Violations of limits up to this, in per unit or relative, are attributed to the solver's accuracy.
_HELD = 1e-4
_LEAST_VOLTAGE = 0.1
# Rows of branches that a line names.
_SHOWN = 5
_WHOSE: dict[Loads, str] = {
    "public": "public loads",
    "served": "the loads that the released point serves",
    "true": "the true loads (not private)",
}


@dataclass(frozen=True, eq=False)
class Flow:
    """Solution of an AC power flow, or the last iterate if Newton's method did not converge.

    Attributes
    ----------
    voltage : ndarray of complex, shape (buses,)
        Voltages in per unit; the angle of a slack bus is 0.
    injected : ndarray of complex, shape (buses,)
        Power that the network takes at each bus, shunts included, in per unit.
    start, end : ndarray of complex, shape (branches,)
        Power that enters the branches at their from and to end, in per unit.
    slack : ndarray of int
        Positions of the slack buses.
    mismatch : float
        Largest difference from a set point, in per unit.
    steps : int
        Number of Newton steps.
    exact : float
        Mismatch in per unit up to which the equations hold: 1e-10, or rounding errors if
        admittances are large.
    """

    voltage: Complexes
    injected: Complexes
    start: Complexes
    end: Complexes
    slack: Ints
    mismatch: float
    steps: int
    exact: float = _EXACT

    @property
    def converged(self) -> bool:
        """Return whether the equations of the power flow hold, up to `exact`."""
        return self.mismatch <= self.exact


@dataclass(frozen=True)
class _Admittances:
    """Admittance matrices: linear maps from voltages to currents into buses and branch ends."""

    bus: sp.csr_array
    start: sp.csr_array
    end: sp.csr_array


def _admittances(case: Case) -> _Admittances:
    branch, count = case.branch, len(case.bus.id)
    series = 1 / (branch.r + 1j * branch.x)
    charged = series + 0.5j * branch.b
    turns = branch.tap * np.exp(1j * branch.shift)
    starts, ends = incidence(branch.from_bus, count), incidence(branch.to_bus, count)

    def rows(near: Complexes, far: Complexes) -> sp.csr_array:
        return sp.csr_array(sp.diags_array(near) @ starts.T + sp.diags_array(far) @ ends.T)

    start = rows(charged / np.abs(turns) ** 2, -series / np.conj(turns))
    end = rows(-series / turns, charged)
    shunts = sp.diags_array(case.bus.gs + 1j * case.bus.bs)
    return _Admittances(sp.csr_array(starts @ start + ends @ end + shunts), start, end)


def newton(
    case: Case,
    injected: Complexes,
    magnitude: Floats,
    held: NDArray[np.bool_] | None = None,
    slack: Ints | None = None,
) -> Flow:
    """Solve the equations of AC power flow.

    Parameters
    ----------
    case : Case
    injected : ndarray of complex, shape (buses,)
        Generation minus load in per unit. Slack buses ignore it, and buses that hold their voltage
        use only its active part.
    magnitude : ndarray, shape (buses,)
        Voltage magnitude in per unit: fixed for buses that hold their voltage, else initial value.
    held : ndarray of bool, shape (buses,), optional
        Buses that hold their voltage; if omitted, all buses with generators.
    slack : ndarray of int, optional
        One bus of every connected part; see `slack_buses`.

    Returns
    -------
    Flow
        Solution; check its `converged`.
    """
    count = len(case.bus.id)
    slack = slack_buses(case) if slack is None else slack
    if held is None:
        held = np.zeros(count, dtype=np.bool_)
        held[case.gen.bus] = True
    free_angle = np.setdiff1d(np.arange(count), slack)
    free_size = np.setdiff1d(np.flatnonzero(~held), slack)
    maps = _admittances(case)
    angle, size = np.zeros(count), np.maximum(magnitude, _LEAST_VOLTAGE)
    angle[free_angle] = _first_angles(case, injected.real, free_angle)

    def missing(voltage: Complexes) -> Floats:
        away = voltage * np.conj(maps.bus @ voltage) - injected
        return np.concatenate((away.real[free_angle], away.imag[free_size]))

    voltage = size * np.exp(1j * angle)
    error, steps = missing(voltage), 0
    exact = max(_EXACT, _ROUNDED * float(np.abs(maps.bus.data).max(initial=0.0)))
    while _worst(error) > exact and steps < _STEPS:
        steps += 1
        try:
            step = splu(_jacobian(maps.bus, voltage, free_angle, free_size)).solve(-error)
        except RuntimeError:  # the Jacobian is singular
            break
        for halving in range(_HALVINGS):
            share = 0.5**halving
            turned, sized = angle.copy(), size.copy()
            turned[free_angle] += share * step[: len(free_angle)]
            sized[free_size] += share * step[len(free_angle) :]
            trial = sized * np.exp(1j * turned)
            after = missing(trial)
            if np.isfinite(after).all() and np.linalg.norm(after) < np.linalg.norm(error):
                break
        else:
            break
        angle, size, voltage, error = turned, sized, trial, after
    return Flow(
        voltage=voltage,
        injected=voltage * np.conj(maps.bus @ voltage),
        start=voltage[case.branch.from_bus] * np.conj(maps.start @ voltage),
        end=voltage[case.branch.to_bus] * np.conj(maps.end @ voltage),
        slack=slack,
        mismatch=_worst(error),
        steps=steps,
        exact=exact,
    )


def _first_angles(case: Case, injected: Floats, free: Ints) -> Floats:
    """Return voltage angles of the direct-current approximation; 0 if it has none below 180°."""
    branch, count = case.branch, len(case.bus.id)
    ends = incidence(branch.from_bus, count) - incidence(branch.to_bus, count)
    across = sp.diags_array(susceptances(case))
    moved = injected + ends @ (across @ branch.shift)
    try:
        angles = splu(sp.csc_array((ends @ across @ ends.T)[free][:, free])).solve(moved[free])
    except RuntimeError:  # the matrix is singular
        return np.zeros(len(free))
    return np.where(np.abs(angles) < np.pi, angles, 0.0)


def _jacobian(
    admittance: sp.csr_array, voltage: Complexes, free_angle: Ints, free_size: Ints
) -> sp.csc_array:
    """Return the derivatives of active and reactive power by voltage angles and magnitudes."""
    current = admittance @ voltage
    across = sp.diags_array(voltage)
    unit = sp.diags_array(voltage / np.abs(voltage))
    by_angle = sp.csr_array(
        1j * across @ (sp.diags_array(np.conj(current)) - np.conj(admittance @ across))
    )
    by_size = sp.csr_array(
        across @ np.conj(admittance @ unit) + sp.diags_array(np.conj(current)) @ unit
    )
    rows = (free_angle, free_size)
    parts = [
        [sp.csr_array(part(by)[at][:, columns]) for by, columns in columns_of]
        for at, part, columns_of in (
            (rows[0], np.real, ((by_angle, free_angle), (by_size, free_size))),
            (rows[1], np.imag, ((by_angle, free_angle), (by_size, free_size))),
        )
    ]
    return sp.csc_array(sp.block_array(parts))


def _worst(values: Floats) -> float:
    return float(np.max(np.abs(values), initial=0.0))


@dataclass(frozen=True, kw_only=True)
class LimitCheck:
    """Limits of the network in one AC power flow from a point's set points.

    Attributes
    ----------
    converged : bool
        True if an AC power flow was found. If not, the other numbers mean nothing.
    slack_error : float
        Active power that the slack buses generate beyond their set points, in MW.
    slack_outside : float
        Active power of the slack buses outside of their limits, in MW.
    overloads : int
        Number of branches above 100 % of their limit.
    loading : float
        Largest loading of a branch in percent of its limit; 0 if there is no limit.
    voltages : int
        Number of buses whose voltage is outside of its limits.
    voltage : float
        Largest violation of a voltage limit, in per unit.
    reactive : int
        Number of buses whose generators together cannot supply the reactive power.
    reactive_power : float
        Largest violation of a bus's reactive limits, in MVAr.
    """

    converged: bool
    slack_error: float
    slack_outside: float
    overloads: int
    loading: float
    voltages: int
    voltage: float
    reactive: int
    reactive_power: float

    @property
    def keeps_limits(self) -> bool:
        """Return whether there is an AC power flow, and it satisfies all limits."""
        broken = self.overloads or self.voltages or self.reactive or self.slack_outside
        return self.converged and not broken


@dataclass(frozen=True, kw_only=True)
class OutageCheck(LimitCheck):
    """Check of the same set points after an outage, at emergency ratings.

    Attributes
    ----------
    branch : int
        Row of the branch that is out, in the file, counted from 1.
    """

    branch: int


@dataclass(frozen=True, eq=False, kw_only=True)
class AcCheck(LimitCheck):
    """Limits of the network in an AC power flow from a point's set points.

    Attributes
    ----------
    loads : {"public", "served", "true"}
        Loads of the power flow: public loads; the loads that the released point serves, which
        follow from released values; or the true loads, and then this check protects no data.
    flow : Flow
    losses, expected : float
        Losses of branches in MW: in the AC power flow, and in the released point.
    relaxation : Relaxation
        Cone slack and loop closure of the point itself.
    outages : tuple of OutageCheck
        The same set points after the outage of each branch in `contingencies`.
    """

    loads: Loads
    flow: Flow = field(repr=False)
    losses: float
    expected: float
    relaxation: Relaxation
    outages: tuple[OutageCheck, ...] = ()

    @property
    def within(self) -> bool:
        """Return whether all AC power flows converged and satisfy all limits, after outages too."""
        return self.keeps_limits and all(outage.keeps_limits for outage in self.outages)

    @property
    def head(self) -> str:
        """Heading with the loads of the check, such as "AC check at public loads"."""
        return f"AC check at {_WHOSE[self.loads]}"

    @property
    def short(self) -> str:
        """Summary of the check in one line."""
        head = f"{self.head}: "
        after = f"; {outage_line(self.outages)}" if self.outages else ""
        if not self.converged:
            return f"{head}no AC power flow found from these set points{after}"
        slack = f"slack buses {round(self.slack_error, 2) + 0.0:+.2f} MW"
        if self.keeps_limits:
            return f"{head}all limits kept, {slack}{after}"
        parts = [
            (self.overloads, "overload", f"up to {self.loading:.1f} %"),
            (self.voltages, "voltage outside its limits", f"by up to {self.voltage:.4f} p.u."),
            (self.reactive, "bus beyond reactive limits", f"up to {self.reactive_power:.2f} MVAr"),
        ]
        told = [f"{_counted(count, what)} ({most})" for count, what, most in parts if count]
        if self.slack_outside:
            slack += f", {self.slack_outside:.2f} MW beyond limits"
        return head + ", ".join([*told, slack]) + after

    def __str__(self) -> str:
        head = f"AC power flow from the set points, at {_WHOSE[self.loads]}"
        if not self.converged:
            return (
                f"{head}\n  NEWTON'S METHOD DID NOT CONVERGE: {self.flow.steps} steps leave "
                f"{self.flow.mismatch:.1e} per unit"
            )
        rows = [
            ("slack buses", f"{round(self.slack_error, 2) + 0.0:+.2f} MW beyond their set points"),
            ("", f"{self.slack_outside:.2f} MW beyond their limits" if self.slack_outside else ""),
            ("overloads", f"{_counted(self.overloads, 'branch')}; at most {self.loading:.1f} %"),
            ("voltages", _most(self.voltages, f"{self.voltage:.4f} p.u.")),
            ("reactive power", _most(self.reactive, f"{self.reactive_power:.2f} MVAr")),
            ("losses", f"{self.losses:.2f} MW; in the relaxation {self.expected:.2f} MW"),
            ("cone slack", self.relaxation.slack),
            ("loop closure", self.relaxation.closure),
            ("outages", outage_line(self.outages) if self.outages else ""),
        ]
        return "\n".join([head, *(f"  {name:<16}{text}" for name, text in rows if text)])

    def as_dict(self) -> dict[str, object]:
        """Return the numbers of the check as a dictionary, for a file."""
        return {
            "loads": _WHOSE[self.loads],
            "converged": self.converged,
            "slack_error_mw": self.slack_error,
            "slack_outside_mw": self.slack_outside,
            "overloads": self.overloads,
            "largest_loading_percent": self.loading,
            "voltages_outside": self.voltages,
            "voltage_outside_pu": self.voltage,
            "reactive_outside": self.reactive,
            "reactive_outside_mvar": self.reactive_power,
            "losses_mw": self.losses,
            "relaxation_losses_mw": self.expected,
            "outages": [asdict(outage) for outage in self.outages],
        }


def outage_line(outages: Sequence[OutageCheck]) -> str:
    """Return the checks after outages as a line.

    Parameters
    ----------
    outages : sequence of OutageCheck
    """
    head = "after the outage" if len(outages) == 1 else f"after each of {len(outages)} outages"
    broken = [outage for outage in outages if not outage.keeps_limits]
    if not broken:
        return f"{head}, all limits kept"
    rows = sorted({outage.branch for outage in broken})
    named = ", ".join(str(row) for row in rows[:_SHOWN])
    more = f" and {len(rows) - _SHOWN} more" if len(rows) > _SHOWN else ""
    return ", ".join(
        [f"{head}, limits broken in {len(broken)} (branch {named}{more})", *excesses(outages)]
    )


def excesses(checks: Sequence[LimitCheck]) -> list[str]:
    """Return texts on the limits that several checks exceed, each with the largest excess.

    Parameters
    ----------
    checks : sequence of LimitCheck
    """
    solved = [check for check in checks if check.converged]
    parts = []
    if len(solved) < len(checks):
        parts.append(f"no AC power flow found in {len(checks) - len(solved)}")
    for values, what, most in (
        ([c.loading for c in solved if c.overloads], "overloads", "up to {:.1f} %"),
        ([c.voltage for c in solved if c.voltages], "voltages outside", "by up to {:.4f} p.u."),
        ([c.reactive_power for c in solved if c.reactive], "reactive limits", "up to {:.2f} MVAr"),
        ([c.slack_outside for c in solved if c.slack_outside], "slack beyond", "up to {:.2f} MW"),
    ):
        if values:
            parts.append(f"{what} in {len(values)} ({most.format(max(values))})")
    return parts


def _counted(count: int, what: str) -> str:
    """Return a count with its noun, in the plural if needed; words may follow the noun."""
    if count != 1:
        noun, _, rest = what.partition(" ")
        what = f"{noun}{'es' if noun.endswith(('s', 'h')) else 's'} {rest}"
    return f"{count} {what.replace(' its ', ' their ') if count != 1 else what}".strip()


def _most(count: int, most: str) -> str:
    """Return the number of buses outside their limits, and the largest excess."""
    return f"{_counted(count, 'bus')} outside limits" + (f", by up to {most}" if count else "")


def ac_check(
    study: PowerFlow,
    result: dp.Result,
    loads: ModuleType | None = None,
    *,
    hour: int = 0,
    power_factor: float = 0.95,
) -> AcCheck:
    """Solve the AC power flow from the set points of a run, and compare it with the limits.

    Set points are the active power of generators and the voltages of their buses (with
    ``model="dc"``, 1 per unit or the nearest limit). If loads are private, the check uses the loads
    that the returned point serves: generation less shunts and flows. They follow from released
    values, so the check is post-processing. Private capacities are no limits in it. If the study
    has contingencies, the check is made once more after each outage, with the same set points and
    the emergency ratings.

    Parameters
    ----------
    study : PowerFlow
        Its variables must hold the values of the run.
    result : dp.Result
    loads : module, optional
        Pass ``dp.not_private`` to check at the true loads instead. The outcome is then not private,
        and its text says so.
    hour : int
        Position of the hour.
    power_factor : float
        Power factor of private loads with ``model="dc"``, which has no reactive loads: above 0 and
        at most 1, inductive. Loads with private profiles have the power factor of the file.

    Raises
    ------
    dp.ModelError
        If `loads`, `hour` or `power_factor` is invalid, or the run has no solution.
    """
    state, load, whose = loads_of(study, result, loads, hour, power_factor)
    case = study.public_case if loads is None else study.case
    intact = checked(case, state, load, whose)
    emergency = study.setting.emergency
    after = [
        _after_outage(case, outage, emergency, state, load)
        for outage in study.setting.outages.tolist()
    ]
    return replace(intact, outages=tuple(after))


def _after_outage(
    case: Case, outage: int, emergency: float, state: State, load: Floats
) -> OutageCheck:
    """Check the set points after the outage of a branch, at a share of the ratings."""
    less = without_branch(case, outage)
    rate, current = emergency * less.branch.rate, emergency * less.branch.current
    less = replace(less, branch=replace(less.branch, rate=rate, current=current))
    _, limits = _solved(less, state, load)
    return OutageCheck(branch=int(case.branch.row[outage]), **vars(limits))


def loads_of(
    study: PowerFlow,
    result: dp.Result,
    loads: ModuleType | None,
    hour: int = 0,
    power_factor: float = 0.95,
) -> tuple[State, Floats, Loads]:
    """Return the point of a run, and the loads of its check; see `ac_check`."""
    if loads is not None and loads is not dp.not_private:
        raise dp.ModelError(
            "loads= takes dp.not_private alone, for the true loads. Leave it out to check at loads "
            "that are public or follow from released values."
        )
    if not result.status.solved:
        raise dp.ModelError(
            f"The run ended as {result.status.name.lower()}, so there are no set points to check."
        )
    if not 0 <= hour < study.hours:
        raise dp.ModelError(f"hour={hour} is not one of the {study.hours} hours, which begin at 0.")
    if not 0 < power_factor <= 1:
        raise dp.ModelError("power_factor= is not above 0 and up to 1. Write for example 0.95.")
    state = study.state(hour)
    if loads is not None:
        return state, study.net_load(hour), "true"
    if study.private not in ("loads", "profiles"):
        return state, study.net_load(hour), "public"
    served = study.served_load(hour)
    if study.model.quantities == 1:
        ratio = np.full(len(served), np.sqrt(1 / power_factor**2 - 1))
        if study.private == "profiles":
            # A load that is 0 in the file has no power factor.
            pd, qd = study.case.bus.pd, study.case.bus.qd
            ratio = np.divide(qd, pd, out=np.zeros(len(pd)), where=pd != 0)
        served = np.column_stack((served[:, 0], ratio * served[:, 0]))
    return state, served - study.added_power(hour)[:, None] * [1.0, 0.0], "served"


def served_loads(case: Case, state: State) -> Floats:
    """Return the loads that a point serves: generation less shunts and flows into branches.

    Parameters
    ----------
    case : Case
    state : State

    Returns
    -------
    ndarray, shape (buses, 2)
        Columns P and Q in per unit.
    """
    count = len(case.bus.id)
    generators = incidence(case.gen.bus, count)
    start, end = incidence(case.branch.from_bus, count), incidence(case.branch.to_bus, count)
    active = generators @ state.pg - case.bus.gs * state.w - start @ state.pf - end @ state.pt
    reactive = generators @ state.qg + case.bus.bs * state.w - start @ state.qf - end @ state.qt
    return np.column_stack((active, reactive))


def checked(case: Case, state: State, load: Floats, loads: Loads) -> AcCheck:
    """Check the set points of a network state at given loads.

    Parameters
    ----------
    case : Case
    state : State
        Network state with the set points.
    load : ndarray, shape (buses, 2)
        Load in per unit, columns P and Q.
    loads : {"public", "served", "true"}
        Kind of these loads.
    """
    flow, limits = _solved(case, state, load)
    base = case.base_mva
    return AcCheck(
        **vars(limits),
        loads=loads,
        flow=flow,
        losses=base * float(np.sum(flow.start.real + flow.end.real)),
        expected=base * float(np.sum(state.pf + state.pt)),
        relaxation=relaxation(case, state),
    )


def _solved(case: Case, state: State, load: Floats) -> tuple[Flow, LimitCheck]:
    """Return the AC power flow from a point's set points at given loads, and its limits."""
    bus, gen, branch, base = case.bus, case.gen, case.branch, case.base_mva
    generators = incidence(gen.bus, len(bus.id))
    demand = load[:, 0] + 1j * load[:, 1]
    planned = generators @ state.pg
    size = np.sqrt(np.maximum(state.w, _LEAST_VOLTAGE**2))
    flow = newton(case, generators @ (state.pg + 1j * state.qg) - demand, size)
    made = flow.injected + demand
    magnitude = np.abs(flow.voltage)
    outside = np.maximum(bus.vmin - magnitude, magnitude - bus.vmax)
    where = np.unique(gen.bus)
    reactive = _outside(made.imag[where], *_together(generators, gen.qmin, gen.qmax, where))
    active = _outside(made.real[flow.slack], *_together(generators, gen.pmin, gen.pmax, flow.slack))
    apparent = np.maximum(np.abs(flow.start), np.abs(flow.end)) / branch.rate
    ends = magnitude[branch.from_bus], magnitude[branch.to_bus]
    current = np.maximum(np.abs(flow.start) / ends[0], np.abs(flow.end) / ends[1]) / branch.current
    loading = np.maximum(apparent, current)
    limits = LimitCheck(
        converged=flow.converged,
        slack_error=base * float(np.sum((made.real - planned)[flow.slack])),
        slack_outside=base * float(np.sum(active[active > _HELD])),
        overloads=int(np.sum(loading > 1 + _HELD)),
        loading=100 * float(loading.max(initial=0.0)),
        voltages=int(np.sum(outside > _HELD)),
        voltage=float(np.max(outside, initial=0.0)),
        reactive=int(np.sum(reactive > _HELD)),
        reactive_power=base * float(np.max(reactive, initial=0.0)),
    )
    return flow, limits


def _together(
    generators: sp.csr_array, low: Floats, high: Floats, buses: Ints
) -> tuple[Floats, Floats]:
    """Return lower and upper limits of each of these buses: sums over its generators."""
    bounds = []
    for bound in (low, high):
        finite = np.isfinite(bound)
        total = generators @ np.where(finite, bound, 0.0)
        unlimited = generators @ (~finite).astype(np.float64) > 0
        bounds.append(np.where(unlimited, np.copysign(np.inf, (-1, 1)[len(bounds)]), total)[buses])
    return bounds[0], bounds[1]


def _outside(values: Floats, low: Floats, high: Floats) -> Floats:
    return np.maximum(np.maximum(low - values, values - high), 0.0)
