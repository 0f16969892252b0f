"""Recovery of an AC power flow within all limits from the relaxation, and the AC optimum.

The method is sequential convex programming. The model has the constraints of `model.zone_limits`,
without the cones of the relaxation. Products of voltages are functions of magnitudes and angles,
linearized at the last point,

    w_i = v_i^2,  wr + j wi = v_i v_k exp(j (a_i - a_k)),

in a trust region. Balances and ratings have penalized slack, so that every step has a solution. A
step is taken if it improves the exact penalty function (Fletcher, "Practical Methods of
Optimization", 2nd ed., section 14.4, with second-order correction). Second derivatives are replaced
by their positive part, pair by pair. The result is a local optimum.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import ModuleType

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

import dpcvx as dp

from .ac import AcCheck, Loads, checked, loads_of, served_loads
from .case import Case
from .model import delivered, generation_cost, variables, zone_limits
from .physics import ENDS, flow_maps, incidence
from .relaxed import bus_angles
from .report import generator_costs
from .solution import State, central, network_state
from .solver import solve
from .study import PowerFlow
from .zones import read_zones

Floats = NDArray[np.float64]

# Radius of the first trust region in per unit, and smallest radius, below which steps end.
_FIRST, _LAST = 0.1, 1e-7
_STEPS = 60
# Penalties on violated balances and ratings, for an objective with derivatives of about 1.
_PRICES = (10.0, 1000.0)
# Improvement below which steps end, as a share of the penalty function; accepted violation, in per
# unit.
_ENOUGH, _HELD = 1e-8, 1e-5
_LEAST_VOLTAGE = 0.1


@dataclass(frozen=True, eq=False)
class Recovery:
    """An AC power flow near a point of the relaxation, or at the least cost.

    Attributes
    ----------
    state : State
        Network state.
    check : AcCheck
        Limits in an AC power flow from the set points of `state`.
    cost : float
        Cost of generation, in $/h; NaN if it would follow from private bids.
    moved : float
        Largest change of a generator's active power from the point, in MW.
    voltage : float
        Largest change of a voltage from the point, in per unit.
    steps : int
        Number of steps.
    """

    state: State
    check: AcCheck
    cost: float
    moved: float
    voltage: float
    steps: int

    @property
    def feasible(self) -> bool:
        """Return whether all limits hold."""
        return self.check.within

    def __str__(self) -> str:
        head = "AC power flow within all limits"
        if not self.feasible:
            head = "NO AC POWER FLOW WITHIN ALL LIMITS FOUND; the nearest"
        cost = "bids are private" if np.isnan(self.cost) else f"{self.cost:.2f} $/h"
        return (
            f"{head}: {cost}\n"
            f"  set points moved by up to {self.moved:.2f} MW and {self.voltage:.4f} p.u.\n"
            f"  {self.check.short}"
        )


def ac_recover(study: PowerFlow, result: dp.Result, loads: ModuleType | None = None) -> Recovery:
    """Return the AC power flow within all limits that is nearest to a run's set points.

    It minimizes the sum of squared changes of generators' active power and of voltages, in per
    unit. Loads are chosen as in `ac_check`, so the outcome is post-processing of released values.
    Private capacities are no limits, and with private bids its cost is NaN.

    Parameters
    ----------
    study : PowerFlow
        Its variables must hold the values of the run.
    result : dp.Result
    loads : module, optional
        Pass ``dp.not_private`` to recover at the true loads instead. The outcome is then not
        private, and its check says so.

    Returns
    -------
    Recovery
        Local optimum; check its `feasible`, since it may violate limits.

    Raises
    ------
    dp.ModelError
        If `loads` is invalid, or the run has no solution.
    """
    state, load, whose = loads_of(study, result, loads)
    if loads is not None:
        return recovered(study.case, state, load, whose)
    outcome = recovered(study.public_case, state, load, whose)
    return replace(outcome, cost=np.nan) if study.private == "bids" else outcome


def ac_optimum(case: Case, load_scale: float = 1.0) -> Recovery:
    """Return the AC power flow of least cost, starting at the optimum of the relaxation.

    The relaxation bounds the AC optimum from below, and this result bounds it from above. Not
    private: the loads are read.

    Parameters
    ----------
    case : Case
    load_scale : float
        Factor on all loads.

    Returns
    -------
    Recovery
        Local optimum; check its `feasible`, since it may violate limits.

    Raises
    ------
    dpcvx.errors.SolverError
        If the relaxation has no optimum.
    """
    state = central(case, "cost", load_scale).state
    return _solved(case, state, case.scaled_load(load_scale), "true", nearest=False)


def recovered(case: Case, state: State, load: Floats, loads: Loads) -> Recovery:
    """Return the AC power flow within all limits that is nearest to a network state.

    Parameters
    ----------
    case : Case
    state : State
        Network state with the set points.
    load : ndarray, shape (buses, 2)
        Load in per unit.
    loads : {"public", "served", "true"}
        Kind of these loads.
    """
    return _solved(case, state, load, loads, nearest=True)


def _solved(case: Case, state: State, load: Floats, loads: Loads, nearest: bool) -> Recovery:
    start = _Point(
        size=np.sqrt(np.maximum(state.w, _LEAST_VOLTAGE**2)),
        angle=np.radians(bus_angles(case, state)),
        pg=state.pg,
        qg=state.qg,
    )
    model = _Model(case, load, start if nearest else None)
    at, steps = start, 0
    for price in _PRICES:
        at, more = _descend(model, at, price)
        steps += more
        if model.excess(at) < _HELD:
            break
    end = model.put(at)
    return Recovery(
        state=end,
        check=checked(case, end, load, loads),
        cost=float(generator_costs(case, end).sum()),
        moved=case.base_mva * float(np.max(np.abs(end.pg - state.pg), initial=0.0)),
        voltage=float(np.max(np.abs(at.size - start.size), initial=0.0)),
        steps=steps,
    )


def _descend(model: _Model, at: _Point, price: float) -> tuple[_Point, int]:
    """Take steps until none improves the penalty function; return the point and their number."""
    radius, value = _FIRST, model.penalized(at, price)
    for step in range(1, _STEPS + 1):
        trial = model.step(at, radius, price)
        if trial is None:
            return at, step
        predicted = value - trial.value
        if predicted <= _ENOUGH * max(1.0, abs(value)) or radius < _LAST:
            return at, step
        point, after = trial.point, model.penalized(trial.point, price)
        if value - after < predicted / 2:
            # The full step may fail only because of the curvature of products: correct for it.
            second = model.step(at, radius, price, trial.point)
            if second is not None and model.penalized(second.point, price) < after:
                point, after = second.point, model.penalized(second.point, price)
        ratio = (value - after) / predicted
        if ratio > 0:
            at, value = point, after
            model.bend(at)
        radius *= 2 if ratio > 0.75 else 1 if ratio > 0.25 else 1 / 3
    return at, _STEPS


@dataclass(frozen=True, eq=False)
class _Point:
    """Magnitudes and angles of voltages, and power of generators."""

    size: Floats
    angle: Floats
    pg: Floats
    qg: Floats

    @property
    def voltage(self) -> Floats:
        """Magnitudes and angles of voltages as one vector."""
        return np.concatenate((self.size, self.angle))


@dataclass(frozen=True, eq=False)
class _Trial:
    """A trial point, and the convex model's value of the penalty function there."""

    point: _Point
    value: float


class _Model:
    """Penalty function of a network, with its convex model around a point."""

    def __init__(self, case: Case, load: Floats, target: _Point | None) -> None:
        self._case, self._load, self._zones = case, load, read_zones(1, case)
        self._maps = flow_maps(case)
        count, pairs = len(case.bus.id), case.pairs
        self._first, self._second = (
            incidence(ends, count).T.tocsr() for ends in (pairs.first, pairs.second)
        )
        self._x = x = variables(case, self._zones)
        self._voltage = cp.Variable(2 * count)
        missing = cp.Variable((count, 2))
        self._limited = limited = np.flatnonzero(np.isfinite(case.branch.rate))
        unlimited = np.full(len(case.branch.rate), np.inf)
        unrated = replace(case, branch=replace(case.branch, rate=unlimited))
        self._balance = delivered(case, self._zones, x, 0) + missing == load
        self._constraints = [*zone_limits(unrated, self._zones, x, 0), self._balance]
        self._excess: cp.Expression = cp.norm1(missing)
        if len(limited):
            over = cp.Variable(len(limited), nonneg=True)
            self._constraints += [
                cp.SOC(
                    case.branch.rate[limited] + over,
                    cp.vstack([active[limited], other[limited]]),
                    axis=0,
                )
                for active, other in ((x.pf, x.qf), (x.pt, x.qt))
            ]
            self._excess += cp.sum(over)
        self._objective = (
            generation_cost(case, self._zones, x, 0)
            if target is None
            else cp.sum_squares(x.pg - target.pg)
            + cp.sum_squares(self._voltage[:count] - target.size)
        )
        self._bent: sp.csr_array | None = None

    def step(
        self, at: _Point, radius: float, price: float, beyond: _Point | None = None
    ) -> _Trial | None:
        """Return the best point of the convex model in a trust region.

        Parameters
        ----------
        at : _Point
            Point of linearization of the products of voltages.
        radius : float
            Largest step of magnitudes in per unit; angles may step by twice this in radians.
        price : float
            Penalty on violations.
        beyond : _Point, optional
            Point of the second-order correction: a constant makes the products exact there.

        Returns
        -------
        _Trial or None
            None if the solver fails.
        """
        x, count = self._x, len(at.size)
        moved = self._voltage - at.voltage
        slope, constant = self._slope(at), self._products(at)
        if beyond is not None:
            constant = self._products(beyond) - slope @ (beyond.voltage - at.voltage)
        products = cp.hstack([x.w, x.wr, x.wi]) if len(constant) > count else x.w
        cost = self._objective + price * self._excess
        if self._bent is not None:
            cost += cp.sum_squares(self._bent @ moved)
        constraints = [
            *self._constraints,
            products == constant + slope @ moved,
            cp.abs(moved[:count]) <= radius,
            cp.abs(moved[count:]) <= 2 * radius,
        ]
        problem = cp.Problem(cp.Minimize(cost), constraints)
        if solve(problem) not in (cp.OPTIMAL, cp.OPTIMAL_INACCURATE):
            return None
        size, angle = np.split(np.asarray(self._voltage.value), 2)
        # cvxpy gives variables without entries no values.
        pg, qg = (np.asarray(v.value) if v.size else np.zeros(0) for v in (x.pg, x.qg))
        return _Trial(_Point(size, angle, pg, qg), np.asarray(problem.value).item())

    def penalized(self, at: _Point, price: float) -> float:
        """Return the exact penalty function at a point."""
        excess = self.excess(at)  # this sets the values of the variables
        return np.asarray(self._objective.value).item() + price * excess

    def excess(self, at: _Point) -> float:
        """Return the sum of absolute imbalances and of flows beyond ratings, at a point."""
        state = self.put(at)
        missing = np.abs(self._load - served_loads(self._case, state)).sum()
        rate = self._case.branch.rate[self._limited]
        flows = np.maximum(np.hypot(state.pf, state.qf), np.hypot(state.pt, state.qt))
        return float(missing + np.maximum(flows[self._limited] - rate, 0).sum())

    def put(self, at: _Point) -> State:
        """Set the variables to the values of a point, and return its network state."""
        x, count, pairs = self._x, len(at.size), len(self._case.pairs.first)
        products = np.split(self._products(at), [count, count + pairs])
        values = dict(zip(("w", "wr", "wi"), products, strict=True)) | {"pg": at.pg, "qg": at.qg}
        for end in ENDS:
            maps = self._maps[end]
            values[end] = (
                maps.w_map @ values["w"] + maps.wr_map @ values["wr"] + maps.wi_map @ values["wi"]
            )
        for name, value in values.items():
            if value.size:
                getattr(x, name).value = value
        self._voltage.value = at.voltage
        return network_state(self._case, self._zones, x)

    def _products(self, at: _Point) -> Floats:
        """Return the products w, wr and wi of voltages at a point."""
        first, second = self._first @ at.size, self._second @ at.size
        turn = (self._first - self._second) @ at.angle
        return np.concatenate(
            (at.size**2, first * second * np.cos(turn), first * second * np.sin(turn))
        )

    def _slope(self, at: _Point) -> sp.csr_array:
        """Return the derivatives of the products by magnitudes and angles."""
        first, second = self._first @ at.size, self._second @ at.size
        across = self._first - self._second
        turn = across @ at.angle
        product = sp.diags_array(second) @ self._first + sp.diags_array(first) @ self._second
        parts = [[2 * sp.diags_array(at.size), None]]
        for by_size, by_turn in ((np.cos(turn), -np.sin(turn)), (np.sin(turn), np.cos(turn))):
            parts.append([
                sp.diags_array(by_size) @ product,
                sp.diags_array(first * second * by_turn) @ across,
            ])  # fmt: skip
        parts[0][1] = sp.csr_array((len(at.size), len(at.size)))
        return sp.csr_array(sp.block_array(parts))

    def bend(self, at: _Point) -> None:
        """Add second derivatives at a point to the model, weighted by the last step's multipliers.

        Flows on a pair contribute ``a v_i^2 + b v_k^2 + (c cos(turn) + s sin(turn)) v_i v_k``. The
        matrix of second derivatives by both magnitudes and the turn is replaced by its positive
        part.
        """
        case, pairs = self._case, self._case.pairs
        price, branch = -np.asarray(self._balance.dual_value), case.branch
        weights = {
            "pf": price[branch.from_bus, 0],
            "qf": price[branch.from_bus, 1],
            "pt": price[branch.to_bus, 0],
            "qt": price[branch.to_bus, 1],
        }
        a, b, c, s = np.zeros((4, len(pairs.first)))
        for end, weight in weights.items():
            maps = self._maps[end]
            c += maps.wr_map.T @ weight
            s += maps.wi_map.T @ weight
            # The bus whose squared voltage is in this flow, and its coefficient.
            bus = branch.from_bus if end in ("pf", "qf") else branch.to_bus
            flow = weight * (maps.w_map @ np.ones(len(at.size)))
            at_first = bus == pairs.first[pairs.of_branch]
            np.add.at(a, pairs.of_branch, np.where(at_first, flow, 0.0))
            np.add.at(b, pairs.of_branch, np.where(at_first, 0.0, flow))
        first, second = self._first @ at.size, self._second @ at.size
        across = self._first - self._second
        cos, sin = np.cos(across @ at.angle), np.sin(across @ at.angle)
        along, aside = c * cos + s * sin, s * cos - c * sin
        blocks = np.array([
            [2 * a, along, second * aside],
            [along, 2 * b, first * aside],
            [second * aside, first * aside, -first * second * along],
        ]).transpose(2, 0, 1)  # fmt: skip
        sizes, vectors = np.linalg.eigh(blocks)
        roots = np.sqrt(np.maximum(sizes, 0) / 2)[:, None, :] * vectors
        rows = [
            [
                sp.diags_array(roots[:, 0, k]) @ self._first
                + sp.diags_array(roots[:, 1, k]) @ self._second,
                sp.diags_array(roots[:, 2, k]) @ across,
            ]
            for k in range(3)
        ]
        shunts = case.bus.gs * price[:, 0] - case.bus.bs * price[:, 1]
        count = len(shunts)
        rows.append([sp.diags_array(np.sqrt(np.maximum(shunts, 0))), sp.csr_array((count, count))])
        self._bent = sp.csr_array(sp.block_array(rows))
