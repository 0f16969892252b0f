"""One cone program for all agents: shared components occur once, coupling equalities are rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ..model.canonical import ConeData, Cones
from ..model.private_constraints import Tightened
from .program import Program

Array = NDArray[np.float64]
Index = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Joint:
    """Joint program: the sum of the agents' objectives at zero data, under all constraints.

    Attributes
    ----------
    data : ConeData
        Cone program of the vector ``(w, local components of agent 1, of agent 2, ...)``, of length
        n.
    places : tuple of ndarray of int
        Positions of each agent's components in that vector, by agent.
    start : ndarray, shape (n,)
        Public initial points of the agents; in shared components, the mean over their holders.
    """

    data: ConeData
    places: tuple[Index, ...]
    start: Array

    def rows(self, agent: int, local: sp.sparray) -> sp.csr_array:
        """Return a matrix over an agent's vector as a matrix over the joint vector.

        Parameters
        ----------
        agent : int
            Position of the agent.
        local : sparse array, shape (any number, n of the agent)
        """
        columns = self.places[agent]
        return sp.csr_array(sp.csr_array(local) @ picked(columns, self.data.n))

    def with_terms(self, slope: Array, curvatures: Sequence[sp.csr_array]) -> ConeData:
        """Return the program with linear and quadratic terms added to the agents' objectives.

        Parameters
        ----------
        slope : ndarray, shape (n,)
            Sum of all agents' linear coefficients.
        curvatures : sequence of csr_array, each of shape (n of its agent, n of its agent)
            Second derivatives to add, by agent.
        """
        q = self.data.q.copy()
        q[: slope.size] += slope
        more = square_sum(zip(curvatures, self.places, strict=True), q.size)
        return replace(self.data, P=sp.csc_array(self.data.P + more), q=q)


@dataclass(frozen=True, eq=False)
class AtPoint:
    """Query to an agent at a public point, which has the variables of all agents."""

    at: Array  # shape (n,); the agent's components of the point
    place: Index  # positions of these components in the joint vector
    size: int  # length of the joint vector


def joint(program: Program) -> Joint:
    """Return one cone program for all agents, whose objectives are compiled."""
    parts, places = [], places_of(program)
    for local, columns in zip(program.agents, places, strict=True):
        assert local.exact is not None
        parts.append((local.exact, columns))
    return _side_by_side(program, places, parts)


def joint_set(program: Program) -> Joint:
    """Return one cone program of all agents' sets, without objectives; equal sets occur once."""
    places = places_of(program)
    sets = {
        (id(local.constraints), id(columns)): (local.constraints, columns)
        for local, columns in zip(program.agents, places, strict=True)
    }
    return _side_by_side(program, places, [*sets.values()])


def joint_rest(program: Program) -> Joint | None:
    """Return one cone program of all terms that proximal steps minimize; None without such terms.

    It contains the agents' sets. Equal terms of k agents occur once, multiplied by k.
    """
    if all(local.rest is None for local in program.agents):
        return None
    places = places_of(program)
    distinct: dict[tuple[int, int], tuple[ConeData, Index]] = {}
    times: Counter[tuple[int, int]] = Counter()
    for local, columns in zip(program.agents, places, strict=True):
        data = local.constraints if local.rest is None else local.rest
        key = id(data), id(columns)
        distinct[key] = data, columns
        times[key] += 1
    parts = [
        (replace(data, P=times[key] * data.P, q=times[key] * data.q), columns)
        for key, (data, columns) in distinct.items()
    ]
    return _side_by_side(program, places, parts)


def _side_by_side(
    program: Program, places: Sequence[Index], programs: Sequence[tuple[ConeData, Index]]
) -> Joint:
    n = next_free = size_of(program)
    start = np.zeros(n)
    weights = np.concatenate([1 / program.holders, np.ones(n - program.size)])
    for local, variables in zip(program.agents, places, strict=True):
        start[variables] += weights[variables] * local.start
    parts, columns = [part for part, _ in programs], []
    for part, variables in programs:
        extra = part.q.size - variables.size
        columns.append(np.concatenate([variables, next_free + np.arange(extra)]))
        next_free += extra
    if program.coupling is not None:
        A, c = coupling_rows(program), program.coupling.right
        empty = sp.csc_array((n, n)), np.zeros(n)
        parts.append(ConeData(*empty, sp.csc_array(A), c, Cones(zero=c.size), n))
        columns.append(np.arange(n))
    return Joint(_stacked(parts, columns, n, next_free), tuple(places), start)


def with_kept(data: ConeData, program: Program, values: Sequence[Array | None]) -> ConeData:
    """Return the joint program with the constraints that contain private data added to it.

    In these constraints, released data take the place of private data.

    Parameters
    ----------
    data : ConeData
        Joint program of all agents, without these constraints.
    program : Program
        Compiled problem with these constraints.
    values : sequence of (ndarray or None)
        Released data of each agent, one object after the other; None if no constraint contains
        them.
    """
    parts: list[tuple[Tightened, ConeData]] = []
    for limit in program.kept:
        d = values[limit.agent]
        assert d is not None
        parts.append((limit, limit.at(d)))
    return _beside(data, program, parts)


def missed(program: Program, auxiliary: Array) -> dict[str, Array]:
    """Return a solution's slack in private constraints, if there is a slack penalty.

    Parameters
    ----------
    program : Program
    auxiliary : ndarray
        Entries of the columns that `with_kept` added to the joint program.

    Returns
    -------
    dict of str to ndarray
        Slack of each row or cone, by the name of the constraint.
    """
    slacks: dict[str, Array] = {}
    first = 0
    for part in program.kept:
        extra = auxiliary[first : first + part.auxiliary]
        if part.price is not None:
            slacks[part.constraint.what] = np.maximum(extra[part.missable], 0.0)
        first += part.auxiliary
    return slacks


def with_directions(data: ConeData, program: Program, fixed: bool = False) -> ConeData:
    """Return the joint program with private constraints added, to compute recession directions.

    The directions hold for all data. Constraints are left out if private data multiply variables in
    them, unless these variables do not change along any direction (`fixed`).
    """
    pairs = [(limit, limit.directions(fixed)) for limit in program.kept]
    return _beside(data, program, [(limit, part) for limit, part in pairs if part is not None])


def _beside(
    data: ConeData, program: Program, limits: Sequence[tuple[Tightened, ConeData]]
) -> ConeData:
    """Return the joint program `data` plus constraints `limits`, each on one agent's variables."""
    places, free = places_of(program), data.q.size
    parts, columns = [data], [np.arange(free)]
    for limit, part in limits:
        extra = part.q.size - part.n
        parts.append(part)
        columns.append(
            np.concatenate([places[limit.agent][limit.columns], free + np.arange(extra)])
        )
        free += extra
    return _stacked(parts, columns, data.n, free)


def multiplied(program: Program) -> Index | None:
    """Return the positions in the joint vector of variables that data in constraints multiply.

    The result is None if data multiply an auxiliary variable of a constraint.
    """
    places, columns = places_of(program), [np.zeros(0, dtype=np.intp)]
    for limit in program.kept:
        positions = places[limit.agent][limit.columns]
        chosen = limit.constraint.multiplied()
        if np.any(chosen >= positions.size):
            return None
        columns.append(positions[chosen])
    return np.unique(np.concatenate(columns))


def size_of(program: Program) -> int:
    """Return the length of the joint vector of all agents' variables."""
    return program.size + sum(local.n - local.shared.size for local in program.agents)


def places_of(program: Program) -> list[Index]:
    """Return the positions of each agent's variables in the joint vector of all agents.

    Agents with equal positions have one array object in common.
    """
    places, next_free = [], program.size
    shared: dict[bytes, Index] = {}
    for local in program.agents:
        positions = np.empty(local.n, dtype=np.intp)
        positions[local.shared] = local.slots
        if local.shared.size < local.n:
            local_entries = np.setdiff1d(np.arange(local.n), local.shared)
            positions[local_entries] = next_free + np.arange(local_entries.size)
            next_free += local_entries.size
        places.append(shared.setdefault(positions.tobytes(), positions))
    return places


def with_slacks(program: Program, x: Array) -> Array:
    """Return a vector of all agents' variables, with slack variables computed from the others.

    The slack variables turn coupling inequalities into equalities.
    """
    coupling = program.coupling
    if coupling is None or not coupling.slack.nnz:
        return x
    parts = [
        columns[coupling.slacks_of(local.layout)]
        for local, columns in zip(program.agents, places_of(program), strict=True)
    ]
    slacks, out = np.concatenate(parts), x.copy()
    out[slacks] = 0.0
    A = coupling_rows(program)
    room = np.maximum(coupling.right - A @ out, 0.0)
    out[slacks] = A[:, slacks].T @ room
    return out


def coupling_rows(program: Program) -> sp.csr_array:
    """Return the matrix of the coupling equalities, over the vector of all agents' variables."""
    assert program.coupling is not None
    n = size_of(program)
    A, met = sp.csr_array((program.coupling.right.size, n)), np.zeros(n, dtype=bool)
    for local, columns in zip(program.agents, places_of(program), strict=True):
        assert local.coupling is not None
        first = np.flatnonzero(~met[columns])  # every holder has the column of a shared component
        met[columns] = True
        A = A + local.coupling[:, first] @ picked(columns[first], n)
    return sp.csr_array(A)


def square_sum(parts: Iterable[tuple[sp.sparray, Index]], size: int) -> sp.csr_array:
    """Return the sum of square matrices, each embedded at its positions, shape (size, size)."""
    rows, columns, values = (
        [np.zeros(0, dtype=np.intp)],
        [np.zeros(0, dtype=np.intp)],
        [np.zeros(0)],
    )
    for matrix, positions in parts:
        entries = sp.coo_array(matrix)
        rows.append(positions[entries.row])
        columns.append(positions[entries.col])
        values.append(entries.data)
    where = np.concatenate(rows), np.concatenate(columns)
    return sp.csr_array((np.concatenate(values), where), shape=(size, size))


def picked(positions: Index, size: int) -> sp.csr_array:
    """Return the matrix that selects the components at these positions of a vector."""
    return sp.csr_array(
        (np.ones(positions.size), (np.arange(positions.size), positions)), (positions.size, size)
    )


def _stacked(parts: Sequence[ConeData], columns: Sequence[Index], n: int, size: int) -> ConeData:
    """Return one cone program with the rows of all parts, sorted by cone as `Cones` requires.

    `columns` has the positions of each part's variables in the vector of length `size`.
    """
    q = np.zeros(size)
    widths = np.array([_widths(part.cones) for part in parts])
    # Within each kind of cone, the rows are in the order of the parts.
    before = (np.cumsum(widths.T.ravel()) - widths.T.ravel()).reshape(widths.T.shape).T
    entries, right = [], np.zeros(int(widths.sum()))
    for part, positions, counts, firsts in zip(parts, columns, widths, before, strict=True):
        np.add.at(q, positions, part.q)
        A = part.A.tocoo()
        rows = np.repeat(firsts - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())
        right[rows] = part.b
        stored = A.data != 0
        entries.append((A.data[stored], rows[A.row[stored]], positions[A.col[stored]]))
    values, row, column = (np.concatenate(arrays) for arrays in zip(*entries, strict=True))
    cones = [part.cones for part in parts]
    return ConeData(
        P=sp.csc_array(
            square_sum(
                [(part.P, positions) for part, positions in zip(parts, columns, strict=True)], size
            )
        ),
        q=q,
        A=sp.csc_array((values, (row, column)), shape=(right.size, size)),
        b=right,
        cones=Cones(
            zero=sum(c.zero for c in cones),
            nonneg=sum(c.nonneg for c in cones),
            soc=tuple(size for c in cones for size in c.soc),
            psd=tuple(order for c in cones for order in c.psd),
            exp=sum(c.exp for c in cones),
            power=tuple(a for c in cones for a in c.power),
            power_nd=tuple(a for c in cones for a in c.power_nd),
        ),
        n=n,
    )


def _widths(cones: Cones) -> list[int]:
    """Return the total number of rows of each type of cone, in the order of `Cones`."""
    return [
        cones.zero,
        cones.nonneg,
        sum(cones.soc),
        sum(n * (n + 1) // 2 for n in cones.psd),
        3 * cones.exp,
        3 * len(cones.power),
        sum(len(a) + 1 for a in cones.power_nd),
    ]
