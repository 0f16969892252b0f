r"""One point for all agents: where they agree, and all public constraints hold.

Agents' own copies of what they share differ, and their mean may lie in nobody's set. The closest
point of

.. math:: \{(w, x_1, x_2, \dots) : x_p \in W_p, \; x_p = w \text{ where shared}, \;
    \textstyle\sum_p A_p x_p = c\}

is one conic program over public sets, computed from released values: it costs no privacy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ..errors import ModelError
from ..model.canonical import ConeData, Cones
from ..solvers.conic import Outcome
from ..solvers.projector import Projector
from .joint import Joint, joint_set, with_slacks
from .program import LocalProgram, Program

Array = NDArray[np.float64]

# Violations up to this, next to how far values have come, are a solver's rounding.
_ROUNDING = 1e-9
# Up to so many agents it is searched for those whose sets do not meet: one solve for each.
_SEARCHED = 50


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
        """Whether the vectors satisfy all constraints."""
        return self.outcome in (Outcome.SOLVED, Outcome.INACCURATE, Outcome.FALLBACK)


def common_point(program: Program, vectors: Sequence[Array]) -> CommonPoint:
    """Project the agents' vectors onto the point closest to all of them that suits everyone.

    Distances are counted per variable in units of how far it has come from the public start, so
    that they do not depend on the units that a variable is written in.

    Parameters
    ----------
    program : Program
    vectors : sequence of ndarray
        One per agent, finite.
    """
    whole = joint_set(program)
    mean = np.zeros(whole.start.size)
    for place, x in zip(whole.places, vectors, strict=True):
        mean[place] = x
    mean[: program.size] = shared_mean(program, vectors)
    mean = with_slacks(program, mean)
    weights = np.concatenate([program.holders, np.ones(mean.size - program.size)])
    x, outcome = _projected(whole.data, mean, _units(program, whole, vectors), weights)
    # One array for agents with the same components, as `places` has it.
    parts = {id(place): x[place] for place in whole.places}
    found = tuple(parts[id(place)] for place in whole.places)
    return CommonPoint(found, outcome, _excess(program, found))


def shared_mean(program: Program, vectors: Sequence[Array]) -> Array:
    """The mean of every shared component over its holders, shape (m,)."""
    mean = np.zeros(program.size)
    for local, x in zip(program.agents, vectors, strict=True):
        mean[local.slots] += x[local.shared] / program.holders[local.slots]
    return mean


def _excess(program: Program, vectors: Sequence[Array]) -> float:
    """The largest violation by vectors that agree."""
    apart = {  # many agents may have one set and one vector
        (id(local.constraints), id(x)): (local, x)
        for local, x in zip(program.agents, vectors, strict=True)
        if local.constraints.b.size
    }
    worst = [local.projector().violation(x) for local, x in apart.values()]
    return float(np.max(worst, initial=0.0))


def agents_apart(program: Program) -> tuple[str, ...] | None:
    """Agents whose sets, with the coupling, do not meet although those of any fewer of them do.

    None if all sets meet, as far as is not proved otherwise.
    """
    if _meet(program):
        return None
    if len(program.agents) > _SEARCHED:
        return tuple(local.name for local in program.agents if local.constraints.b.size)
    agents = list(program.agents)
    kept = []
    for k, local in enumerate(agents):
        if not local.constraints.b.size:
            continue
        agents[k] = replace(local, constraints=_everything(local))
        if _meet(replace(program, agents=tuple(agents))):
            agents[k] = local
            kept.append(local.name)
    return tuple(kept)


def _meet(program: Program) -> bool:
    """Whether the sets of a program meet, as far as is not proved otherwise."""
    starts = [local.start for local in program.agents]
    if program.coupling is None and not any(a.constraints.b.size for a in program.agents):
        return True
    return common_point(program, starts).outcome is not Outcome.INFEASIBLE


def _projected(data: ConeData, x: Array, unit: Array, weights: Array) -> tuple[Array, Outcome]:
    """The closest point of a set in these units, or x itself where it lies there or none is."""
    # Cones are invariant under a common scale, which auxiliary columns take part in.
    largest = float(unit.max(initial=0.0)) or 1.0
    relative = np.append(unit / largest, np.ones(data.q.size - unit.size))
    scaled = replace(data, A=sp.csc_array(data.A @ sp.diags_array(relative)), b=data.b / largest)
    try:
        projector = Projector(scaled, "of all")
    except ModelError:  # bounds alone contradict each other
        return x, Outcome.INFEASIBLE
    if projector.violation(x / unit) <= _ROUNDING:
        return x, Outcome.SOLVED
    found = projector(x / unit, weights)
    if found.x is not None and projector.violation(found.x) > _ROUNDING:
        # A solve is accurate relative to the distance; the point itself is to keep the constraints.
        again = projector(found.x, weights)
        found = found if again.x is None else again
    return x if found.x is None else unit * found.x, found.outcome


def _everything(local: LocalProgram) -> ConeData:
    n = local.n
    empty = sp.csc_array((n, n)), np.zeros(n), sp.csc_array((0, n)), np.zeros(0)
    return ConeData(*empty, Cones(), n)


def _units(program: Program, whole: Joint, vectors: Sequence[Array]) -> Array:
    """Per component, the largest distance of its variable from the start."""
    come: dict[int, float] = {}
    for local, x in zip(program.agents, vectors, strict=True):
        way = np.abs(x - local.start)
        for piece in local.layout.pieces:
            far = float(way[piece.offset : piece.stop].max(initial=0.0))
            come[piece.variable] = max(come.get(piece.variable, 0.0), far)
    largest = max(come.values(), default=0.0) or 1.0
    unit = np.ones(whole.start.size)
    for local, place in zip(program.agents, whole.places, strict=True):
        for piece in local.layout.pieces:
            unit[place[piece.offset : piece.stop]] = come[piece.variable] or largest
    return unit
