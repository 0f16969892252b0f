"""Diagnosis of infeasible networks: a solve with slack in every limit that names the violated ones.

Every limit gets its own slack, and the sum of all slacks is minimized. Unlike the largest slack,
the sum leads to few positive slacks: most limits hold, and the violated ones are named.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

from .case import Case
from .model import delivered, variables, zone_constraints
from .solver import solve
from .zones import read_zones

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# Smallest slack of a violated limit: in per unit of voltage, as a share of a rating, or as a share
# of the unit of power, which is a tenth of all loads.
_GIVES = 1e-4
_SHOWN = 3
# Cost of unserved load relative to slack in limits: it is used last, since it names no limit.
_UNSERVED = 100.0


@dataclass(frozen=True)
class Family:
    """Violated limits of one kind."""

    kind: str  # name of the kind, in the plural
    labels: tuple[str, ...]  # labels of the elements, the largest slack first
    most: str  # text on the largest slack

    def __str__(self) -> str:
        more = len(self.labels) - _SHOWN
        rest = f" and {more} more" if more > 0 else ""
        shown = ", ".join(self.labels[:_SHOWN])
        kind = self.kind.replace("s", "", 1) if len(self.labels) == 1 else self.kind
        return f"{len(self.labels)} {kind} ({shown}{rest}; {self.most})"


@dataclass(frozen=True, eq=False)
class _Slack:
    """Slacks of the limits of one kind."""

    kind: str
    slack: cp.Variable  # shape (limits, hours)
    constraints: tuple[cp.Constraint, ...]
    labels: tuple[str, ...]
    most: str  # format of the text on the largest slack times `factor`, plus `shift`
    factor: float
    shift: float = 0.0

    def family(self) -> Family | None:
        """Return the violated limits after a solve; None if all limits hold."""
        size = np.asarray(self.slack.value).max(axis=1)  # largest slack over hours
        order = [at for at in np.argsort(-size, kind="stable") if size[at] > _GIVES]
        if not order:
            return None
        largest = self.shift + self.factor * float(size.max())
        labels = tuple(self.labels[at] for at in order)
        return Family(self.kind, labels, self.most.format(largest))


def limits_in_the_way(case: Case, load: Floats) -> tuple[Family, ...]:
    """Return limits that have to be violated to serve the loads. Not private: it reads the loads.

    Bounds on voltages, on active and reactive power of generators, on apparent power of branches,
    and balances have slack. Kirchhoff's laws, angles, currents, storage and DC lines have none.

    Parameters
    ----------
    case : Case
    load : ndarray, shape (buses, 2)
        Load in per unit, columns P and Q.

    Returns
    -------
    tuple of Family
        Empty if all limits can hold, or the solver fails.
    """
    zones = read_zones(1, case)
    x = variables(case, zones)
    unit = max(float(np.abs(load).sum()) / 10, 1e-3)
    ends = ((x.pf, x.qf), (x.pt, x.qt))
    pg, qg, w = (cp.reshape(each, (each.size, 1), order="F") for each in (x.pg, x.qg, x.w))
    slacks = _slacks(case, pg, qg, w, [ends], unit)
    missing = cp.Variable(load.shape)
    constraints = [
        *zone_constraints(without_limits(case), zones, x, 0),
        delivered(case, zones, x, 0) + missing == load,
        *(constraint for slack in slacks for constraint in slack.constraints),
    ]
    price = sum((cp.sum(slack.slack) for slack in slacks), cp.Constant(0.0))
    cost = price + _UNSERVED / unit * cp.sum(cp.abs(missing))
    if solve(cp.Problem(cp.Minimize(cost), constraints)) not in (cp.OPTIMAL, cp.OPTIMAL_INACCURATE):
        return ()
    families = [slack.family() for slack in slacks]
    unserved = np.abs(np.asarray(missing.value)).max(axis=1) / unit
    if unserved.max() > _GIVES:
        order = [at for at in np.argsort(-unserved, kind="stable") if unserved[at] > _GIVES]
        labels = tuple(f"bus {case.bus.id[at]}" for at in order)
        families.append(Family("balances of buses", labels, "no limits of these kinds suffice"))
    return tuple(family for family in families if family is not None)


def without_limits(case: Case) -> Case:
    """Return the network without limits of generators, voltages and ratings.

    Parameters
    ----------
    case : Case
    """
    own = case.gen.kind == "gen"
    free = {
        name: np.where(own, np.copysign(np.inf, sign), getattr(case.gen, name))
        for name, sign in (("pmin", -1), ("pmax", 1), ("qmin", -1), ("qmax", 1))
    }
    return replace(
        case,
        bus=replace(
            case.bus,
            vmin=np.zeros(len(case.bus.id)),
            vmax=np.full(len(case.bus.id), np.inf),
        ),
        gen=replace(case.gen, **free),
        branch=replace(case.branch, rate=np.full(len(case.branch.rate), np.inf)),
    )


def _slacks(
    case: Case,
    power: cp.Expression,
    reactive: cp.Expression | None,
    w: cp.Expression | None,
    flows: Sequence[Sequence[tuple[cp.Expression, ...]]],
    unit: float,
) -> list[_Slack]:
    """Return slacks of all limits, by kind; see `hours_in_the_way`."""
    bus, gen, base, hours = case.bus, case.gen, case.base_mva, len(flows)
    slacks: list[_Slack] = []

    def bounds(
        kind: str, value: cp.Expression, bound: Floats, sign: int, chosen: Ints, labels: list[str],
        size: float, most: str, factor: float,
    ) -> None:  # fmt: skip
        chosen = chosen[np.isfinite(bound[chosen])]
        if len(chosen):
            slack = cp.Variable((len(chosen), hours), nonneg=True)
            given = np.tile(sign * bound[chosen][:, None], hours)
            limit = sign * value[chosen] <= given + size * slack
            named = tuple(labels[at] for at in chosen)
            slacks.append(_Slack(kind, slack, (limit,), named, most, factor))

    buses = [f"bus {number}" for number in bus.id]
    # A slack in w is about twice the slack in |V|.
    for word, sign, bound in (("lower", -1, bus.vmin), ("upper", 1, bus.vmax)):
        at = np.arange(len(bus.id))
        kind = f"{word} limits of voltage"
        if w is not None:
            bounds(kind, w, bound**2, sign, at, buses, 2.0, "by up to {:.3f} p.u.", 1.0)
    own = np.flatnonzero(gen.kind == "gen")
    names = [f"gen row {row}" for row in gen.row]
    for word, value, low, high, megas in (
        ("active", power, gen.pmin, gen.pmax, "MW"),
        ("reactive", reactive, gen.qmin, gen.qmax, "MVAr"),
    ):
        for side, sign, bound in (("lower", -1, low), ("upper", 1, high)):
            kind, most = f"{side} limits of {word} power", f"by up to {{:.3g}} {megas}"
            if value is not None:
                bounds(kind, value, bound, sign, own, names, unit, most, base * unit)
    limited = np.flatnonzero(np.isfinite(case.branch.rate))
    if len(limited):
        slack = cp.Variable((len(limited), hours), nonneg=True)
        rate = case.branch.rate[limited]
        cones = tuple(
            cp.SOC(
                cp.multiply(rate, 1 + slack[:, hour]),
                cp.vstack([part[limited] for part in parts]),
                axis=0,
            )
            for hour, ends in enumerate(flows)
            for parts in ends
        )
        labels = tuple(f"branch row {row}" for row in case.branch.row[limited])
        slacks.append(_Slack("ratings", slack, cones, labels, "largest {:.4g} %", 100.0, 100.0))
    return slacks


def hours_in_the_way(
    case: Case,
    constraints: Sequence[cp.Constraint],
    power: cp.Expression,
    reactive: cp.Expression | None,
    w: cp.Expression | None,
    flows: Sequence[Sequence[tuple[cp.Expression, ...]]],
    load: float,
) -> tuple[Family, ...]:
    """Return limits that have to be violated in an approximation over hours. Not private.

    Parameters
    ----------
    case : Case
        Network with its limits.
    constraints : sequence of cp.Constraint
        Constraints of the network of `without_limits`, with its balance.
    power, reactive : cp.Expression, shape (generators, hours)
        Active power, and reactive power if the model has it.
    w : cp.Expression, shape (buses, hours)
        Squared voltages, if the model has them.
    flows : sequence
        By hour and limited end of branches, the active flow, or the active and the reactive flow,
        of shape (branches,).
    load : float
        Size of the loads of an hour in per unit.

    Returns
    -------
    tuple of Family
        Empty if all limits can hold, or the solver fails.
    """
    slacks = _slacks(case, power, reactive, w, flows, max(load / 10, 1e-3))
    limits = [*constraints, *(limit for slack in slacks for limit in slack.constraints)]
    total = sum((cp.sum(slack.slack) for slack in slacks), cp.Constant(0.0))
    if solve(cp.Problem(cp.Minimize(total), limits)) not in (cp.OPTIMAL, cp.OPTIMAL_INACCURATE):
        return ()
    return tuple(family for slack in slacks if (family := slack.family()) is not None)
