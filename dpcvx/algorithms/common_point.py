r"""One point for all agents: where they agree, and all public constraints hold.

Agents' copies of what they share differ, and their mean may lie in nobody's set. Shared components
move first, to the closest point that every agent can complete with components of its own:

.. math:: \operatorname{argmin}_w \; \sum_p \| w - x_p \|^2 \quad \text{such that} \quad
    (w, y_p) \in W_p, \; \textstyle\sum_p A_p (w, y_p) = c \quad \text{for some } y_1, y_2, \dots

The agents' own components follow, to the closest ones that suit w. So w depends on released values
of shared components alone: a coordinator of owners, who keep their own components, has the same w.
Both are programs over public sets, computed from released values: they cost no privacy.
"""

from __future__ import annotations

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

# Violations up to this, next to how far values have come, are a solver's rounding.
_ROUNDING = 1e-9
# Solvers leave violations up to this.
_SOLVED = 1e-8
# Up to so many agents it is searched for those whose sets do not meet: one solve for each.
_SEARCHED = 50
_FOUND = (Outcome.SOLVED, Outcome.INACCURATE, Outcome.FALLBACK)


@dataclass(frozen=True, eq=False)
class CommonPoint:
    """The closest point that suits everyone, or the reason that there is none.

    Attributes
    ----------
    vectors : tuple of ndarray
        One per agent. Where no point was found, the mean of the agents' copies.
    outcome : Outcome
        INFEASIBLE where it is proved that there is none.
    excess : float
        Largest violation of a constraint or of an equality by the vectors; nan if unknown.
    """

    vectors: tuple[Array, ...]
    outcome: Outcome
    excess: float

    @property
    def found(self) -> bool:
        """Return whether the vectors satisfy all constraints."""
        return self.outcome in _FOUND


def common_point(program: Program, vectors: Sequence[Array], *, alone: bool = False) -> CommonPoint:
    """Move shared components to a point that suits everyone, then the agents' own after them.

    Distances are counted per variable in units of how far it has come from the public start, so
    that they do not depend on the units that a variable is written in.

    Parameters
    ----------
    program : Program
    vectors : sequence of ndarray
        One per agent, finite.
    alone : bool
        Whether shared components are all that is known: the others stay as they are, nothing
        depends on them, and the excess is unknown.
    """
    whole, m = joint_set(program), program.size
    x = np.zeros(whole.start.size)
    for columns, vector in zip(whole.places, vectors, strict=True):
        x[columns] = vector
    x[:m] = shared_mean(program, vectors)
    unit, outcome = _units(program, whole, vectors), Outcome.SOLVED
    suits = not m or _suits(program, whole, x[:m], unit[:m])
    if not suits and not alone and _holds(whole, x, unit):
        # Where sets are thin, next to the tips of cones, no solver completes what is a solution.
        return CommonPoint(_apart(whole, x), outcome, _excess(program, _apart(whole, x)))
    if not suits:
        x[:m], outcome = _projected(connected(whole.data, m), x[:m], unit[:m], program.holders)
    if not alone and m < x.size and outcome in _FOUND:
        x = with_slacks(program, x)
        y, outcome = x, Outcome.FAILED
        if m:
            scaled = _scaled(whole.data, unit)
            y, outcome = _completed(scaled, _projector(scaled), x, unit, m)
        if outcome not in _FOUND:
            # The first m are a solver's: within its accuracy none may suit them.
            y, outcome = _projected(whole.data, x, unit, np.ones(x.size))
        x[m:] = y[m:]
    moved = _apart(whole, x)
    return CommonPoint(moved, outcome, np.nan if alone else _excess(program, moved))


def _holds(whole: Joint, x: Array, unit: Array) -> bool:
    """Return whether a point keeps all constraints as well as solvers do."""
    projector = _projector(_scaled(whole.data, unit))
    return projector is not None and projector.violation(x / unit) <= _SOLVED


def _apart(whole: Joint, x: Array) -> tuple[Array, ...]:
    """Return the agents' vectors: one array for agents with the same components in `places`."""
    parts = {id(columns): x[columns] for columns in whole.places}
    return tuple(parts[id(columns)] for columns in whole.places)


def shared_mean(program: Program, vectors: Sequence[Array]) -> Array:
    """Return the mean of every shared component over its holders, shape (m,)."""
    mean = np.zeros(program.size)
    for local, x in zip(program.agents, vectors, strict=True):
        mean[local.slots] += x[local.shared] / program.holders[local.slots]
    return mean


def _excess(program: Program, vectors: Sequence[Array]) -> float:
    """Return the largest violation by vectors that agree."""
    apart = {  # many agents may have one set and one vector
        (id(local.constraints), id(x)): (local, x)
        for local, x in zip(program.agents, vectors, strict=True)
        if local.constraints.b.size
    }
    worst = [local.projector().violation(x) for local, x in apart.values()]
    return float(np.max(worst, initial=0.0))


def agents_apart(program: Program) -> tuple[str, ...] | None:
    """Return a minimal group of agents whose sets, with the coupling, do not meet.

    None if all sets meet, as far as is not proved otherwise.
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
    """Return whether the sets of a program meet, as far as is not proved otherwise."""
    starts = [local.start for local in program.agents]
    if program.coupling is None and not any(a.constraints.b.size for a in program.agents):
        return True
    return common_point(program, starts).outcome is not Outcome.INFEASIBLE


def _projected(data: ConeData, x: Array, unit: Array, weights: Array) -> tuple[Array, Outcome]:
    """Return the closest point of a set in these units, else x itself, and the outcome."""
    projector = _projector(_scaled(data, unit))
    if projector is None:
        return x, Outcome.INFEASIBLE
    if projector.violation(x / unit) <= _ROUNDING:
        return x, Outcome.SOLVED
    projection = projector(x / unit, weights)
    if projection.x is not None and projector.violation(projection.x) > _ROUNDING:
        # A solve is accurate relative to the distance; the point itself is to keep the constraints.
        again = projector(projection.x, weights)
        projection = projection if again.x is None else again
    return x if projection.x is None else unit * projection.x, projection.outcome


def _suits(program: Program, whole: Joint, shared: Array, unit: Array) -> bool:
    """Return whether own components near the public start fit `shared` in all constraints.

    The shared components then stay as they are: a move would make them only as accurate as a
    solver.
    """
    m, n = shared.size, whole.start.size
    x = with_slacks(program, np.concatenate([shared, whole.start[m:]]))
    units = np.concatenate([unit, np.full(n - m, unit.max())])
    scaled = _scaled(whole.data, units)
    projector = _projector(scaled)
    if projector is None:
        return False
    x, outcome = _completed(scaled, projector, x, units, m)
    return outcome in _FOUND and projector.violation(x / units) <= _ROUNDING


def _completed(
    scaled: ConeData, projector: Projector | None, x: Array, unit: Array, m: int
) -> tuple[Array, Outcome]:
    """Return the closest point of a set with the first m components fixed, and the outcome.

    Parameters
    ----------
    scaled : ConeData
        The set in units of the components.
    projector : Projector or None
        Its projector; None if there is none.
    x, unit : ndarray, shape (n,)
    m : int
    """
    if projector is None:
        return x, Outcome.INFEASIBLE
    point, outcome = x / unit, Outcome.SOLVED
    for _ in range(2):  # as in `_projected`
        if m == x.size or projector.violation(point) <= _ROUNDING:
            break
        auxiliary = np.zeros(scaled.q.size - x.size)
        free = np.r_[np.zeros(m), np.ones(x.size - m), auxiliary]
        distance = replace(
            scaled,
            P=sp.csc_array(sp.diags_array(free)),
            q=-free * np.r_[point, auxiliary],
        )
        answer = solve_pinned(distance, np.arange(m), point)
        outcome = answer.outcome
        if answer.x is None:
            break
        point = answer.x
    return np.where(point == x / unit, x, unit * point), outcome


def _projector(scaled: ConeData) -> Projector | None:
    """Return the projector onto a set; None if its bounds alone contradict each other."""
    try:
        return Projector(scaled, "of all")
    except ModelError:
        return None


def _scaled(data: ConeData, unit: Array) -> ConeData:
    """Return a set in these units, with all rows divided by the largest unit, which keeps cones."""
    largest = float(unit.max(initial=0.0)) or 1.0
    # Auxiliary columns take part in the common scale.
    relative = np.append(unit / largest, np.ones(data.q.size - unit.size))
    A = data.A
    values = A.data * np.repeat(relative, np.diff(A.indptr))
    A = sp.csc_array((values, A.indices, A.indptr), shape=A.shape)
    return replace(data, A=A, b=data.b / largest)


def _everything(local: LocalProgram) -> ConeData:
    n = local.n
    empty = sp.csc_array((n, n)), np.zeros(n), sp.csc_array((0, n)), np.zeros(0)
    return ConeData(*empty, Cones(), n)


def _units(program: Program, whole: Joint, vectors: Sequence[Array]) -> Array:
    """Return per component the largest distance of its variable's entries from the start.

    Those of shared components depend on shared components alone.
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
