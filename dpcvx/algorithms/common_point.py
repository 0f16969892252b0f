r"""Projection of the agents' results to one point that satisfies all public constraints.

Agents' copies of shared components differ, and their mean may violate constraints. Shared
components move first, to the closest point w that every agent can complete by local components
:math:`y_p`:

.. math:: \operatorname{argmin}_w \; \sum_p \| w - x_p \|^2 \quad \text{such that} \quad
    (w, y_p) \in W_p, \; \textstyle\sum_p A_p (w, y_p) = c \quad \text{for some } y_1, y_2, \dots

Then the local components move to the closest ones that are feasible with w. So w depends only on
released values of shared components, and a coordinator that does not know local components computes
the same w. Both projections are post-processing: sets are public, and points are released values.

With ``public=True``, for problems without private data, all components move together. Local
components may have to move far for a small change of shared ones, such as flows of a stiff part of
a network for voltages at its border.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ..errors import ModelError
from ..model.canonical import ConeData, Cones
from ..solvers.blocks import connected
from ..solvers.conic import Outcome
from ..solvers.pinned import solve_pinned
from ..solvers.projector import Projector
from .joint import Joint, joint_set, with_slacks
from .program import LocalProgram, Program

Array = NDArray[np.float64]

# Violations up to this, relative to the distance from the initial point, are rounding errors.
_ROUNDING = 1e-9
# Largest violation that solvers leave.
_SOLVED = 1e-8
# Largest number of agents with a search for those whose sets do not intersect: a solve per agent.
_SEARCHED = 50
_FOUND = (Outcome.SOLVED, Outcome.INACCURATE, Outcome.FALLBACK)


@dataclass(frozen=True, eq=False)
class CommonPoint:
    """The closest point that is feasible for all agents, or the outcome if there is none.

    Attributes
    ----------
    vectors : tuple of ndarray
        One vector per agent. If no feasible point was found, shared components are the mean of the
        agents' copies.
    outcome : Outcome
        Outcome of the projection; INFEASIBLE if there is provably no feasible point.
    excess : float
        Largest violation of a constraint by the vectors; nan if unknown.
    """

    vectors: tuple[Array, ...]
    outcome: Outcome
    excess: float

    @property
    def found(self) -> bool:
        """Return whether the vectors satisfy all constraints."""
        return self.outcome in _FOUND


def common_point(
    program: Program, vectors: Sequence[Array], *, alone: bool = False, public: bool = False
) -> CommonPoint:
    """Return the closest feasible point: shared components move first, then local ones.

    Distances of a variable are divided by its distance from the public initial point, so that they
    do not depend on the unit of the variable.

    Parameters
    ----------
    program : Program
    vectors : sequence of ndarray
        Finite vector of each agent.
    alone : bool
        Whether only shared components are known. Local components then stay unchanged and have no
        effect, and `excess` is nan.
    public : bool
        Whether all components move together, which no other party has to repeat.
    """
    whole, m = joint_set(program), program.size
    x = np.zeros(whole.start.size)
    for columns, vector in zip(whole.places, vectors, strict=True):
        x[columns] = vector
    x[:m] = shared_mean(program, vectors)
    unit, outcome = _units(program, whole, vectors), Outcome.SOLVED
    scaled = None if alone else _Scaled.of(whole.data, unit)
    if scaled is not None and scaled.holds(x) and with_slacks(program, x) is x:
        return _completed(program, whole, x, outcome)
    suits = not m or _suits(program, whole, x[:m], unit[:m])
    if scaled is not None and not suits and scaled.violation(x) <= _SOLVED:
        # Near tips of cones, sets are thin, and no solver completes even a feasible point.
        return _completed(program, whole, x, outcome)
    if scaled is not None and public and not suits:
        weights = np.r_[program.holders, np.ones(x.size - m)]
        y, together = scaled.projected(with_slacks(program, x), weights)
        if together in _FOUND:
            return _completed(program, whole, y, together)
    if not suits:
        shared = _Scaled.of(connected(whole.data, m), unit[:m])
        x[:m], outcome = shared.projected(x[:m], program.holders)
    if scaled is not None and m < x.size and outcome in _FOUND:
        x = with_slacks(program, x)
        y, outcome = scaled.completed(x, m) if m else (x, Outcome.FAILED)
        if outcome not in _FOUND:
            # Shared components have a solver's accuracy, so that no local ones may fit exactly.
            y, outcome = scaled.projected(x, np.ones(x.size))
        x[m:] = y[m:]
    if alone:
        return CommonPoint(_apart(whole, x), outcome, np.nan)
    return _completed(program, whole, x, outcome)


def _completed(program: Program, whole: Joint, x: Array, outcome: Outcome) -> CommonPoint:
    """Return the common point with all components known."""
    vectors = _apart(whole, x)
    return CommonPoint(vectors, outcome, _excess(program, vectors))


@dataclass(frozen=True, eq=False)
class _Scaled:
    """A set with each component divided by its unit, and the projector onto it."""

    data: ConeData  # the set in units of the components
    unit: Array  # shape (n,)
    projector: Projector | None  # None if bounds of the set contradict each other

    @staticmethod
    def of(data: ConeData, unit: Array) -> _Scaled:
        """Return the feasible set of a cone program in these units.

        All rows are divided by the largest unit, which leaves cones unchanged.
        """
        largest = float(unit.max(initial=0.0)) or 1.0
        # Auxiliary columns are scaled by the largest unit.
        relative = np.append(unit / largest, np.ones(data.q.size - unit.size))
        A = data.A
        values = A.data * np.repeat(relative, np.diff(A.indptr))
        A = sp.csc_array((values, A.indices, A.indptr), shape=A.shape)
        scaled = replace(data, A=A, b=data.b / largest)
        try:
            return _Scaled(scaled, unit, Projector(scaled, "of all"))
        except ModelError:
            return _Scaled(scaled, unit, None)

    def holds(self, x: Array) -> bool:
        """Return whether x satisfies all constraints; False if only a projection could tell."""
        far = math.inf if self.projector is None else self.projector.tested(x / self.unit)
        return far is not None and far <= _ROUNDING

    def violation(self, x: Array) -> float:
        """Return the largest violation of a constraint by x, in units; infinite if none can hold.

        The result is nan if it is unknown.
        """
        return math.inf if self.projector is None else self.projector.violation(x / self.unit)

    def projected(self, x: Array, weights: Array) -> tuple[Array, Outcome]:
        """Return the feasible point closest to x, and the outcome; x itself upon failure.

        Distances along a component are in multiples of its unit, and weighted.
        """
        projector, unit, point = self.projector, self.unit, x / self.unit
        if projector is None:
            return x, Outcome.INFEASIBLE
        far = projector.tested(point)
        if far is not None and far <= _ROUNDING:
            return x, Outcome.SOLVED
        projection = projector(point, weights)
        if projection.x is None:
            return x, projection.outcome
        untested = far is None
        if untested and np.abs(projection.x - point).max(initial=0.0) <= _ROUNDING:
            return x, Outcome.SOLVED
        if untested or projector.violation(projection.x) > _ROUNDING:
            # A projection is accurate relative to its distance: a second, short one reduces
            # violations.
            again = projector(projection.x, weights)
            if again.x is not None:
                return unit * again.x, again.outcome
        return unit * projection.x, projection.outcome

    def completed(self, x: Array, m: int) -> tuple[Array, Outcome]:
        """Return the closest feasible point with the first m components of x, and the outcome."""
        projector, unit = self.projector, self.unit
        if projector is None:
            return x, Outcome.INFEASIBLE
        point, outcome = x / unit, Outcome.SOLVED
        for _ in range(2):  # as in `projected`
            if m == x.size or projector.violation(point) <= _ROUNDING:
                break
            auxiliary = np.zeros(self.data.q.size - x.size)
            free = np.r_[np.zeros(m), np.ones(x.size - m), auxiliary]
            distance = replace(
                self.data,
                P=sp.csc_array(sp.diags_array(free)),
                q=-free * np.r_[point, auxiliary],
            )
            answer = solve_pinned(distance, np.arange(m), point)
            outcome = answer.outcome
            if answer.x is None:
                break
            point = answer.x
        return np.where(point == x / unit, x, unit * point), outcome


def _apart(whole: Joint, x: Array) -> tuple[Array, ...]:
    """Return each agent's components of a joint vector; equal positions get one array."""
    parts = {id(columns): x[columns] for columns in whole.places}
    return tuple(parts[id(columns)] for columns in whole.places)


def shared_mean(program: Program, vectors: Sequence[Array]) -> Array:
    """Return the mean of every shared component over its holders, shape (m,)."""
    mean = np.zeros(program.size)
    for local, x in zip(program.agents, vectors, strict=True):
        mean[local.slots] += x[local.shared] / program.holders[local.slots]
    return mean


def _excess(program: Program, vectors: Sequence[Array]) -> float:
    """Return the largest violation of any agent's constraints by its vector.

    The vectors agree in shared components.
    """
    apart = {  # many agents may have one set and one vector
        (id(local.constraints), id(x)): (local, x)
        for local, x in zip(program.agents, vectors, strict=True)
        if local.constraints.b.size
    }
    worst = [local.projector().violation(x) for local, x in apart.values()]
    return float(np.max(worst, initial=0.0))


def agents_apart(program: Program) -> tuple[str, ...] | None:
    """Return the names of a minimal group of agents whose feasible sets have no common point.

    The coupling counts as a set. With more than 50 agents, the group has all agents with
    constraints. None if the sets are not proved to have no common point.
    """
    if _meet(program):
        return None
    if len(program.agents) > _SEARCHED:
        return tuple(local.name for local in program.agents if local.constraints.b.size)
    agents = list(program.agents)
    names = []
    for k, local in enumerate(agents):
        if not local.constraints.b.size:
            continue
        agents[k] = replace(local, constraints=_everything(local))
        if _meet(replace(program, agents=tuple(agents))):
            agents[k] = local
            names.append(local.name)
    return tuple(names)


def _meet(program: Program) -> bool:
    """Return False if the agents' feasible sets provably have no common point, else True."""
    starts = [local.start for local in program.agents]
    if program.coupling is None and not any(a.constraints.b.size for a in program.agents):
        return True
    return common_point(program, starts).outcome is not Outcome.INFEASIBLE


def _suits(program: Program, whole: Joint, shared: Array, unit: Array) -> bool:
    """Return whether shared components are feasible with local ones near the initial point.

    If so, shared components stay unchanged, because a projection would reduce their accuracy to a
    solver's accuracy.
    """
    m, n = shared.size, whole.start.size
    x = with_slacks(program, np.concatenate([shared, whole.start[m:]]))
    units = np.concatenate([unit, np.full(n - m, unit.max())])
    scaled = _Scaled.of(whole.data, units)
    x, outcome = scaled.completed(x, m)
    return outcome in _FOUND and scaled.violation(x) <= _ROUNDING


def _everything(local: LocalProgram) -> ConeData:
    n = local.n
    empty = sp.csc_array((n, n)), np.zeros(n), sp.csc_array((0, n)), np.zeros(0)
    return ConeData(*empty, Cones(), n)


def _units(program: Program, whole: Joint, vectors: Sequence[Array]) -> Array:
    """Return each component's unit: its variable's largest distance from the initial point.

    Units of shared components depend on shared components alone.
    """
    come: dict[tuple[int, bool], float] = {}
    unit = np.ones(whole.start.size)
    parts = []
    for local, columns, x in zip(program.agents, whole.places, vectors, strict=True):
        shared = columns < program.size
        way = np.abs(x - local.start)
        for piece in local.layout.pieces:
            entries = slice(piece.offset, piece.stop)
            for which in (True, False):
                mine = np.flatnonzero(shared[entries] == which) + piece.offset
                if mine.size:
                    key = piece.variable, which
                    come[key] = max(come.get(key, 0.0), float(way[mine].max()))
                    parts.append((key, columns[mine]))
    for which in (True, False):
        largest = max((far for key, far in come.items() if key[1] == which), default=0.0) or 1.0
        for key, places in parts:
            if key[1] == which:
                unit[places] = come[key] or largest
    return unit
