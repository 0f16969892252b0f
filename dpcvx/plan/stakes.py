"""What margins cost, by public stand-ins: prices of constraints at the optimum for these.

With stand-ins for all data the problem is public, and so is its optimum. Which constraints bind
there, and what a unit of each costs, tells where noise hurts. True data may differ: then noise and
margins are worse than they could be, and hold as before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ..algorithms.joint import Joint, joint, places_of, with_kept
from ..algorithms.program import Program, with_objectives
from ..model.declaration import Declaration
from ..sensitivity.certificate import Sensitivity
from ..sensitivity.data_shape import Stake
from ..solvers.conic import ConicProgram
from .forecast import stand_ins_of

Array = NDArray[np.float64]

Stakes = tuple[tuple[Stake, ...], ...]
"""By constraint with private data, of each of its parts."""


def stakes_of(
    problem: Declaration, program: Program, sensitivities: Mapping[str, Sensitivity | None]
) -> Stakes:
    """What is at stake in each constraint with private data; nothing where that is not known.

    Parameters
    ----------
    problem : Declaration
    program : Program
        The same, compiled.
    sensitivities : mapping of str to (Sensitivity or None)
        By agent.
    """
    if not program.kept or not problem.is_dcp():
        return ()
    values = _values(problem, sensitivities)
    if values is None:
        return ()
    whole = joint(with_objectives(problem, program))
    slope, flat = np.zeros(whole.data.n), []
    for local, place, own in zip(program.agents, whole.places, values, strict=True):
        known = sensitivities[local.name]
        if known is not None:
            slope[place] += known.slope(own)
        flat.append(np.concatenate([np.zeros(0), *own]))
    empty = [sp.csr_array((local.n, local.n)) for local in program.agents]
    public = replace(whole, data=whole.with_terms(slope, empty))
    return _at_optimum(program, public, flat)


def by_price(stakes: Stakes) -> bool:
    """Whether some margin has a price."""
    return any(stake.price > 0 for own in stakes for stake in own)


def by_agent(program: Program, stakes: Stakes) -> dict[int, list[Stake]]:
    """What is at stake in the constraints of each agent, by its place."""
    found: dict[int, list[Stake]] = {}
    for kept, own in zip(program.kept, stakes, strict=bool(stakes)):
        found.setdefault(kept.agent, []).extend(own)
    return found


def _values(
    problem: Declaration, sensitivities: Mapping[str, Sensitivity | None]
) -> list[list[Array]] | None:
    """Stand-ins for all data, if gradients are affine in these."""
    found = []
    for own, name in zip(stand_ins_of(problem).values(), problem.names, strict=True):
        known = sensitivities[name]
        values = [value.ravel() for value in own if value is not None]
        if len(values) < len(own) or (known is not None and not known.constant):
            return None
        found.append(values)
    return found


def _at_optimum(program: Program, whole: Joint, data: Sequence[Array]) -> Stakes:
    center = whole.start
    kept = with_kept(whole.data, program, data)
    solver = ConicProgram(kept)
    answer, prices = solver.solve(np.zeros(kept.n), None, center), solver.prices(center)
    if answer.x is None or prices is None:
        return ()
    by_part = _by_part(program, whole, data, kept.b, prices)
    places, next_free = places_of(program), whole.data.q.size - kept.n
    found = []
    for one, own in zip(program.kept, by_part, strict=True):
        constraint = one.tightened.constraint
        extra = answer.extra[next_free : next_free + one.tightened.auxiliary]
        next_free += one.tightened.auxiliary
        y = np.concatenate([answer.x[places[one.agent][one.columns]], extra])
        stakes = []
        for part, price in zip(constraint.parts, own, strict=True):
            slope, offset = constraint.moved(part.rows)
            moved = offset - slope @ y if part.bends else offset
            stakes.append(Stake(moved.reshape(part.size, -1), price, part.bends))
        found.append(tuple(stakes))
    return tuple(found)


def _by_part(
    program: Program, whole: Joint, data: Sequence[Array], plain: Array, prices: Array
) -> list[list[float]]:
    """What a unit of margin costs in each part, to two digits: solvers differ in the last ones."""
    numbers, marked = count(1), []
    for one in program.kept:
        marks = {k: float(next(numbers)) for k in range(len(one.tightened.constraint.parts))}
        marked.append(replace(one, tightened=replace(one.tightened, margins=marks)))
    lost = plain - with_kept(whole.data, replace(program, kept=tuple(marked)), data).b
    by_number = {round(lost[row]): prices[row] for row in np.flatnonzero(lost > 0.5)}
    numbers = count(1)
    return [
        [float(f"{max(0.0, by_number.get(next(numbers), 0.0)):.2g}") for _ in parts]
        for parts in (one.tightened.constraint.parts for one in program.kept)
    ]
