"""Shadow prices of constraints at the optimum for public proxy data.

With proxy data for all private objects, the problem and its optimum are public. The constraints
active there, and their prices, show where noise and margins are costly. If the true data differ,
noise and margins cost more than necessary, and guarantees still hold. A violation probability is
divided over constraints by the cost of their margins.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as sla
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

from ..algorithms.joint import Joint, joint, places_of, size_of, with_kept
from ..algorithms.program import Program, with_objectives
from ..model.canonical import ConeData
from ..model.declaration import Declaration
from ..model.matrices import as_array
from ..plan.agent_plan import Agents
from ..plan.limits import spreads_of
from ..sensitivity.certificate import Sensitivity
from ..solvers.conic import ConicAnswer, ConicProgram
from .data_shape import Stake, costs
from .response import LARGEST

Array = NDArray[np.float64]

# Forces up to this, relative to the largest force, are a solver's error.
_FELT = 1e-6

Stakes = tuple[tuple[Stake, ...], ...]
"""Stakes of each part of each constraint with private data."""


@dataclass(frozen=True, eq=False)
class AtStandIns:
    """Optimum for public proxy data, with prices and forces of its constraints.

    Attributes
    ----------
    stakes : tuple of tuple of Stake
        Linearized rows and margin prices of each constraint with private data.
    forces : csr_array, shape (k, n), or None
        Force of each active inequality; see `Response.forces`. None if unknown.
    point : ndarray, shape (n,), or None
        Optimum of the joint problem; None if unknown.
    """

    stakes: Stakes = ()
    forces: sp.csr_array | None = None
    point: Array | None = None


NOTHING = AtStandIns()
"""Result without proxy data, or if no optimum was found."""


def at_stand_ins(
    problem: Declaration, program: Program, sensitivities: Mapping[str, Sensitivity | None]
) -> AtStandIns:
    """Return the optimum for proxy data and the prices there; `NOTHING` if unknown.

    Parameters
    ----------
    problem : Declaration
    program : Program
        Compiled program of the problem.
    sensitivities : mapping of str to (Sensitivity or None)
        Sensitivities by agent.
    """
    # Forces are used only if the response is not computed by component.
    wanted = program.kept or size_of(program) <= LARGEST
    wanted = wanted and program.model is None  # a model as written has no compiled objectives
    values = _values(problem, sensitivities) if wanted and problem.is_dcp() else None
    if values is None:
        return NOTHING
    whole = joint(with_objectives(problem, program))
    slope, flat = np.zeros(whole.data.n), []
    for local, columns, parts in zip(program.agents, whole.places, values, strict=True):
        sensitivity = sensitivities[local.name]
        if sensitivity is not None:
            slope[columns] += sensitivity.slope(parts)
        flat.append(np.concatenate([np.zeros(0), *parts]))
    empty = [sp.csr_array((local.n, local.n)) for local in program.agents]
    public = replace(whole, data=whole.with_terms(slope, empty))
    return _at_optimum(program, public, flat)


def stand_ins_of(problem: Declaration) -> dict[str, list[Array | None]]:
    """Return the public proxy data of each private object, by the agent's name."""
    return {
        name: [
            None if private.proxy is None else private.spec.kept(as_array(private.proxy))
            for private in agent.private
        ]
        for name, agent in problem.named.items()
    }


def by_price(stakes: Stakes) -> bool:
    """Return whether a margin of a constraint with private data has a positive price."""
    return any(stake.price > 0 for part in stakes for stake in part)


def by_agent(program: Program, stakes: Stakes) -> dict[int, list[Stake]]:
    """Return the costs of margins of each agent's private constraints, by agent position."""
    grouped: dict[int, list[Stake]] = {}
    for limit, part in zip(program.kept, stakes, strict=bool(stakes)):
        grouped.setdefault(limit.agent, []).extend(part)
    return grouped


def _values(
    problem: Declaration, sensitivities: Mapping[str, Sensitivity | None]
) -> list[list[Array]] | None:
    """Return the proxy data of all agents; None if incomplete or gradients are not affine."""
    if any(
        sensitivity is not None and not sensitivity.constant
        for sensitivity in sensitivities.values()
    ):
        return None
    values_of = []
    for given in stand_ins_of(problem).values():
        values = [value.ravel() for value in given if value is not None]
        if len(values) < len(given):
            return None
        values_of.append(values)
    return values_of


def _at_optimum(program: Program, whole: Joint, data: Sequence[Array]) -> AtStandIns:
    center = whole.start
    limited = with_kept(whole.data, program, data)
    solver = ConicProgram(limited)
    answer, prices = solver.solve(np.zeros(limited.n), None, center), solver.prices(center)
    if answer.x is None or prices is None:
        return NOTHING
    stakes = _stakes(program, whole, data, limited, answer, prices)
    # Solvers and processors differ in the last digits.
    point = np.array([float(f"{value:.6g}") for value in answer.x])
    return AtStandIns(stakes, _forces(limited, prices), point)


def _stakes(
    program: Program,
    whole: Joint,
    data: Sequence[Array],
    limited: ConeData,
    answer: ConicAnswer,
    prices: Array,
) -> Stakes:
    assert answer.x is not None
    by_part = _by_part(program, whole, data, limited.b, prices)
    places, next_free = places_of(program), whole.data.q.size - limited.n
    all_stakes = []
    for limit, prices_of in zip(program.kept, by_part, strict=True):
        constraint = limit.constraint
        extra = answer.extra[next_free : next_free + limit.auxiliary]
        next_free += limit.auxiliary
        y = np.concatenate([answer.x[places[limit.agent][limit.columns]], extra])
        stakes = []
        for part, price in zip(constraint.parts, prices_of, strict=True):
            slope, offset = constraint.moved(part.rows)
            moved = offset - slope @ y if part.bends else offset
            stakes.append(Stake(moved.reshape(part.size, -1), price, part.bends))
        all_stakes.append(tuple(stakes))
    return tuple(all_stakes)


def _forces(data: ConeData, prices: Array) -> sp.csr_array:
    """Return the forces of active inequalities and cones, one row each.

    Rows of the program that are linked by auxiliary columns count as one constraint.
    """
    A, n = sp.csr_array(data.A), data.n
    blocks = data.cones.blocks()
    block = np.repeat(np.arange(len(blocks)), [size for _, size in blocks])
    shape = (len(blocks), block.size)
    members = sp.csr_array((np.ones(block.size), (block, np.arange(block.size))), shape=shape)
    linked = members @ abs(A[:, n:])
    count, label = connected_components(sp.block_array([[None, linked], [linked.T, None]]), False)
    plain = np.diff(linked.indptr) == 0
    equal = np.array([kind == "zero" for kind, _ in blocks], dtype=bool)
    label, used = label[: len(blocks)][block], ~(plain & equal)[block]
    rows = np.flatnonzero(used)
    pushed = sp.csr_array((prices[rows], (label[rows], rows)), shape=(count, block.size)) @ A
    forces, rest = pushed[:, :n], pushed[:, n:]
    sizes, left = sla.norm(forces, axis=1), sla.norm(rest, axis=1)
    # If auxiliary columns have a cost, the rows are part of the objective, not a constraint.
    binding = np.flatnonzero((sizes > _FELT * sizes.max(initial=0.0)) & (left <= _FELT * sizes))
    largest: dict[bytes, tuple[Array, float]] = {}
    for k in binding:
        # Solvers differ in the last digits.
        normal = np.round(forces[[k]].toarray().ravel() / sizes[k], 6)
        _, before = largest.get(normal.tobytes(), (normal, 0.0))
        largest[normal.tobytes()] = normal, before + sizes[k]
    held = [float(f"{size:.2g}") * normal for normal, size in largest.values()]
    return sp.csr_array(np.reshape(held, (len(held), n)))


def _by_part(
    program: Program, whole: Joint, data: Sequence[Array], plain: Array, prices: Array
) -> list[list[float]]:
    """Return the cost of a unit of margin in each part of each constraint, in two digits."""
    sizes = [len(limit.constraint.parts) for limit in program.kept]
    firsts = np.cumsum([1, *sizes])[:-1]

    def lost(marks: Callable[[int], float]) -> Array:
        marked = [
            replace(limit, margins={k: marks(first + k) for k in range(size)})
            for limit, first, size in zip(program.kept, firsts.tolist(), sizes, strict=True)
        ]
        return plain - with_kept(whole.data, replace(program, kept=tuple(marked)), data).b

    numbered, by_unit = lost(float), lost(lambda number: 1.0)
    rows = np.flatnonzero(np.abs(by_unit) > 1e-6)  # a margin raises an exponent
    numbers = np.rint(numbered[rows] / by_unit[rows]).astype(int)
    costs_of = np.bincount(numbers, by_unit[rows] * prices[rows], minlength=sum(sizes) + 1)
    return [
        [float(f"{abs(cost):.2g}") for cost in costs_of[first : first + size]]
        for first, size in zip(firsts.tolist(), sizes, strict=True)
    ]


def margin_shares(program: Program, agents: Agents, stakes: Stakes) -> list[list[float]] | None:
    """Return each constraint part's share of the violation probability; None if equal.

    Shares proportional to the cost of the margins are best for noise with exponential tails.

    Parameters
    ----------
    program : Program
    agents : tuple of AgentPlan
        Agents with the statistics that they release once.
    stakes : tuple of tuple of Stake
        Costs of the margins of a constraint's parts, by constraint; empty if unknown.
    """
    every = [stake for part in stakes for stake in part]
    spreads = spreads_of(program, agents)
    pairs = zip(stakes, (spreads[limit.agent] for limit in program.kept), strict=bool(stakes))
    lengths = [stake.length(spread.matrix) for part, spread in pairs for stake in part]
    shares = costs(every, np.array(lengths))
    if not shares.any():
        return None
    left = iter(shares.tolist())
    return [[next(left) for _ in part] for part in stakes]


def margin_ratio(first: Program, second: Program, stakes: Stakes = ()) -> float:
    """Return the cost of the margins of one program divided by the cost for another program.

    If prices are unknown, return the geometric mean of the ratios of the margins.

    Parameters
    ----------
    first, second : Program
    stakes : tuple of tuple of Stake
        Costs of margins, as for `margin_shares`.
    """
    costs = [_cost(program, stakes) for program in (first, second)]
    if min(costs) > 0:
        return costs[0] / costs[1]
    pairs = zip(_sizes(first), _sizes(second), strict=True)
    return math.exp(statistics.fmean(math.log(a / b) for a, b in pairs))


def _cost(program: Program, stakes: Stakes) -> float:
    """Return the cost of the margins of all private constraints; 0 if prices are unknown."""
    total = 0.0
    for limit, part in zip(program.kept, stakes, strict=bool(stakes)):
        for k, stake in enumerate(part):
            ball = limit.balls.get(k)
            margin = limit.margins.get(k, 0.0)
            if ball is not None:
                margin = ball.length * stake.length(ball.noise.toarray())
            total += stake.price * margin
    return total


def _sizes(program: Program) -> list[float]:
    sizes: list[float] = []
    for limit in program.kept:
        sizes += limit.margins.values()
        for ball in limit.balls.values():
            sizes.append(ball.length * float(np.linalg.norm(ball.noise.data)))
    return sizes
