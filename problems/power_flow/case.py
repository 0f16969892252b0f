"""Network data in per unit, read from the tables of a case and checked."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace

import numpy as np
from numpy.typing import NDArray

from dpcvx._arguments import positive_finite

from .checks import MOST_POWER, finite, integers, limits, ordered, within
from .costs import Costs, free, read_costs
from .errors import CaseError, CaseWarning
from .extensions import LEAST_IMPEDANCE, Injections, dc_lines, joined, storage
from .matpower import Tables
from .sources import Source, tables

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_ISOLATED = 4
WIDEST = 60.0
"""Limit of the angle across a branch in degrees, if the file sets no limit."""
# Ranges that hold all real networks with a wide margin; see `checks.within`.
_BASE = (1e-4, 1e6)
_MOST_VOLTAGE = 10.0
_IMPEDANCE = (LEAST_IMPEDANCE, 1e6)
_RATIO = (0.1, 10.0)
# Largest accepted negative resistance, relative to the reactance. Equivalents of reduced networks
# and of three-winding transformers have negative resistances: in pglib-opf up to 0.24 times the
# reactance for cases of at most three thousand buses. Larger ones are mostly wrong signs.
_NEGATIVE_RESISTANCE = 0.25
# Matrices whose rows are in service if their status is positive; for all others, if it is not 0.
_POSITIVE = ("gen", "dcline")
_NO_ROWS = np.zeros(0, dtype=np.int64)
_SHOWN = 5


@dataclass(frozen=True, eq=False)
class _Frozen:
    """Base class that makes the arrays of its subclasses read-only."""

    def __post_init__(self) -> None:
        for item in fields(self):
            getattr(self, item.name).flags.writeable = False


@dataclass(frozen=True, eq=False)
class Buses(_Frozen):
    """Buses in service.

    Attributes
    ----------
    id : ndarray of int, shape (buses,)
        Bus numbers in the file.
    pd, qd : ndarray, shape (buses,)
        Load in per unit; private in the case studies, hence never printed.
    gs, bs : ndarray, shape (buses,)
        Shunt conductance (consumes ``gs w``) and susceptance (injects ``bs w``) in per unit.
    vmin, vmax : ndarray, shape (buses,)
        Bounds on the voltage magnitude in per unit; `vmax` may be infinite.
    area, zone : ndarray of int, shape (buses,)
        Columns of the file with these names.
    base_kv : ndarray, shape (buses,)
        Base voltage in kV.
    """

    id: Ints
    pd: Floats = field(repr=False)
    qd: Floats = field(repr=False)
    gs: Floats
    bs: Floats
    vmin: Floats
    vmax: Floats
    area: Ints
    zone: Ints
    base_kv: Floats


@dataclass(frozen=True, eq=False)
class Generators(_Frozen):
    """Generators in service at buses in service, then ends of DC lines, then storage.

    Attributes
    ----------
    bus : ndarray of int, shape (generators,)
        Position of the bus in `Buses`.
    pmin, pmax, qmin, qmax : ndarray, shape (generators,)
        Bounds in per unit, possibly infinite.
    c2, c1, c0, q2, q1, q0 : ndarray, shape (generators,)
        Cost ``c2 p^2 + c1 p + c0 + q2 q^2 + q1 q + q0`` in $/h for active power p and reactive
        power q in per unit, in addition to the costs of `Pieces`.
    rating : ndarray, shape (generators,)
        Bound on the apparent power in per unit; infinite except for storage.
    loss : ndarray, shape (generators,)
        Resistance of storage in per unit, which takes ``loss (p^2 + q^2) / w`` from `pmax`; else 0.
    kind : ndarray of str, shape (generators,)
        Matrix of the file that declares the generator: "gen", "dcline" or "storage".
    row : ndarray of int, shape (generators,)
        Row in this matrix, counted from 1.
    """

    bus: Ints
    pmin: Floats
    pmax: Floats
    qmin: Floats
    qmax: Floats
    c2: Floats
    c1: Floats
    c0: Floats
    q2: Floats
    q1: Floats
    q0: Floats
    rating: Floats
    loss: Floats
    kind: NDArray[np.str_]
    row: Ints


@dataclass(frozen=True, eq=False)
class Pieces(_Frozen):
    """Pieces of piecewise linear costs: the cost of a generator is the largest of its pieces.

    Attributes
    ----------
    gen : ndarray of int, shape (pieces,)
        Position in `Generators`, ascending.
    reactive : ndarray of bool, shape (pieces,)
        Whether the piece is a cost of reactive power, which adds to the cost of active power.
    slope, intercept : ndarray, shape (pieces,)
        ``slope x + intercept`` in $/h for power x in per unit.
    """

    gen: Ints
    reactive: NDArray[np.bool_]
    slope: Floats
    intercept: Floats


@dataclass(frozen=True, eq=False)
class Links(_Frozen):
    """DC lines: the power that leaves one end arrives at the other, less the loss.

    Attributes
    ----------
    start, end : ndarray of int, shape (lines,)
        Positions of the two ends in `Generators`.
    loss0, loss1 : ndarray, shape (lines,)
        ``p_end = -(1 - loss1) p_start - loss0`` in per unit.
    """

    start: Ints
    end: Ints
    loss0: Floats
    loss1: Floats


@dataclass(frozen=True, eq=False)
class Branches(_Frozen):
    """Lines and transformers in service between buses in service.

    Attributes
    ----------
    from_bus, to_bus : ndarray of int, shape (branches,)
        Positions of the ends in `Buses`.
    r, x, b : ndarray, shape (branches,)
        Series resistance and reactance and total charging susceptance in per unit.
    tap : ndarray, shape (branches,)
        Off-nominal turns ratio at the from end; 1 for a line.
    shift, angmin, angmax : ndarray, shape (branches,)
        Phase shift and bounds on the angle from minus angle to, in radians.
    rate : ndarray, shape (branches,)
        Bound on the apparent power at either end in per unit; infinite if the file has 0.
    current : ndarray, shape (branches,)
        Bound on the current at either end in per unit; infinite if the file has none.
    row : ndarray of int, shape (branches,)
        Row of the file's branch matrix, counted from 1.
    """

    from_bus: Ints
    to_bus: Ints
    r: Floats
    x: Floats
    b: Floats
    tap: Floats
    shift: Floats
    rate: Floats
    current: Floats
    angmin: Floats
    angmax: Floats
    row: Ints


@dataclass(frozen=True, eq=False)
class Pairs(_Frozen):
    """Unordered pairs of buses joined by at least one branch.

    Attributes
    ----------
    first, second : ndarray of int, shape (pairs,)
        Positions of the two buses, ``first < second``.
    angmin, angmax : ndarray, shape (pairs,)
        Tightest bounds of the pair's branches on the angle first minus angle second, in radians.
    of_branch : ndarray of int, shape (branches,)
        Pair of each branch; parallel and reversed branches share one.
    sign : ndarray, shape (branches,)
        1 for a branch from `first` to `second`, -1 for a reversed branch: the imaginary voltage
        product of the branch is ``sign * wi[of_branch]``.
    """

    first: Ints
    second: Ints
    angmin: Floats
    angmax: Floats
    of_branch: Ints
    sign: Floats


@dataclass(frozen=True, eq=False)
class Case:
    """A network in per unit on `base_mva`, reduced to its elements in service.

    Attributes
    ----------
    name : str
        File name without ``.m``, or another name of the source.
    base_mva : float
        Power base in MVA.
    bus, gen, branch, pairs, pieces, links
        Parts of the network; see their classes.
    isolated : tuple of int
        Ids of the buses that the file marks as isolated; the network omits them.
    notes : tuple of str
        Notes on fields that are changed or ignored, such as unknown fields, and on elements without
        a cost. `read_case` warns of each.
    """

    name: str
    base_mva: float
    bus: Buses
    gen: Generators
    branch: Branches
    pairs: Pairs
    pieces: Pieces
    links: Links
    isolated: tuple[int, ...]
    notes: tuple[str, ...] = ()

    @property
    def load(self) -> Floats:
        """Loads in per unit, shape (buses, 2), columns P and Q."""
        return np.column_stack((self.bus.pd, self.bus.qd))

    def scaled_load(self, load_scale: float) -> Floats:
        """Return `load` times a factor.

        Raises
        ------
        CaseError
            If the factor is not a positive number, or makes a load larger than `MOST_POWER`.
        """
        if not positive_finite(load_scale):
            raise CaseError(
                f"load_scale={load_scale!r} must be a positive finite number; 1.0 keeps the loads "
                "of the file."
            )
        # Divided first, since the product may overflow.
        if np.any(np.abs(self.load) > MOST_POWER / self.base_mva / load_scale):
            raise CaseError(
                f"load_scale={load_scale:g} makes a load of {self.name} larger than "
                f"{MOST_POWER:g} MW, three times the consumption of the whole world. Write a "
                "smaller factor."
            )
        return load_scale * self.load

    def check_plain(self) -> None:
        """Refuse a network with DC lines, storage or piecewise linear costs.

        Models with quadratic costs of active power alone would omit these.
        """
        if np.any(self.gen.kind != "gen") or len(self.pieces.gen):
            raise CaseError(
                f"{self.name} has DC lines, storage, or piecewise linear costs, which this model "
                "would leave out. Use power_flow, or switch them off."
            )

    @property
    def equivalents(self) -> tuple[int, ...]:
        """Rows, counted from 1, of branches in service with a negative resistance."""
        return tuple(int(row) for row in self.branch.row[self.branch.r < 0])


def read_case(source: Source | Case, *, equivalents: bool = False) -> Case:
    """Read a network.

    Parameters
    ----------
    source : int, str, Path, mapping or object with data frames
        Number or name of a bundled case, name of a case of pglib-opf, path of a MATPOWER version 2
        ``.m`` file, ppc dict, `matpowercaseframes.CaseFrames`, pandapower net or PyPSA network; see
        `sources.tables` for what each becomes. A `Case` is returned as it is.
    equivalents : bool
        Whether to accept negative resistances of any size, for branches that stand for reduced
        networks. The relaxation may draw power from such branches.

    Returns
    -------
    Case
        Network without elements out of service, and without isolated buses (type 4) and their
        elements. A generator or a DC line is in service if its status is positive, a branch or
        storage if it is not 0. Angle bounds that are absent, both 0, or at or beyond 90 degrees
        become 60 degrees. Limits on power beyond 1e7 MW are ignored. DC lines become two linked
        generators, as in MATPOWER. Storage becomes a generator with limits that its energy allows
        in one period (``mpc.time_elapsed``, one hour by default). Closed switches join buses.

    Raises
    ------
    CaseError
        If the source is missing, truncated or inconsistent; if it has numbers that no network has
        (zero or tiny impedances, resistances below minus a quarter of the reactance, voltages in
        kV); or if the model cannot represent it (non-convex cost, degree above 2, capability
        curves, direct-current grids, storage with a reactance).

    Warns
    -----
    CaseWarning
        For every entry of `Case.notes`.
    """
    if isinstance(source, Case):
        return source
    case = case_of(tables(source), equivalents)
    for note in case.notes:
        warnings.warn(note, CaseWarning, stacklevel=2)
    return case


def case_of(tables: Tables, equivalents: bool = False) -> Case:
    """Return the network from the tables of a case; see `read_case`."""
    base = tables.base_mva
    if not _BASE[0] <= base <= _BASE[1]:
        raise CaseError(
            f"{tables.name}: baseMVA is outside {_BASE[0]:g} to {_BASE[1]:g} MVA; in per unit all "
            "numbers would be huge or tiny. Write megavolt-amperes, usually 100."
        )
    tables = joined(tables)
    bus, isolated, position = _buses(tables, base)
    branch = _branches(tables, position, base, equivalents)
    gen, pieces, links = _generators(tables, position, base, bus.vmin)
    notes = [*tables.notes, *_status_notes(tables)]
    if not len(tables.gencost) and len(tables.gen):
        notes.append(f"{tables.name}: there is no gencost, so all power costs nothing.")
    return Case(
        name=tables.name.removesuffix(".m"),
        base_mva=base,
        bus=bus,
        gen=gen,
        branch=branch,
        pairs=_pairs(branch),
        pieces=pieces,
        links=links,
        isolated=isolated,
        notes=tuple(notes),
    )


def _buses(tables: Tables, base: float) -> tuple[Buses, tuple[int, ...], dict[int, int]]:
    """Return buses in service, ids of isolated buses, and positions by id (-1 if isolated)."""
    table = tables.bus
    file = tables.name
    rows = np.arange(len(table))
    finite(file, "bus", rows, "bus_i", table[:, 0])
    for row in rows[(np.floor(table[:, 0]) != table[:, 0]) | (table[:, 0] < 1)]:
        raise CaseError(
            f"{file}: bus row {row + 1} has an id that is not a positive integer; branches and "
            "generators refer to buses by id. Number the buses 1, 2, ..."
        )
    ids = integers(file, "bus", rows, "bus_i", table[:, 0])
    unique, counts = np.unique(ids, return_counts=True)
    for repeated in unique[counts > 1]:
        raise CaseError(
            f"{file}: bus {repeated} occurs in more than one row of bus; references to it are "
            "ambiguous. Give every bus its own id."
        )
    for row in rows[~np.isin(table[:, 1], (0, 1, 2, 3, _ISOLATED))]:
        raise CaseError(
            f"{file}: bus row {row + 1} has a type that is none of 1 (load), 2 (generator), 3 "
            "(reference) and 4 (isolated, left out), so it is unclear whether the bus is in "
            "service. Write one of them."
        )
    kept = table[:, 1] != _ISOLATED
    if not kept.any():
        raise CaseError(
            f"{file}: the bus matrix has no bus in service, so there is nothing to model. Give at "
            "least one bus of type 1, 2 or 3."
        )
    rows = np.flatnonzero(kept)
    table = table[rows]
    for name, column, unit in (
        ("Pd", 2, "MW"),
        ("Qd", 3, "MVAr"),
        ("Gs", 4, "MW"),
        ("Bs", 5, "MVAr"),
    ):
        within(file, "bus", rows, name, table[:, column], MOST_POWER, unit)
    within(file, "bus", rows, "baseKV", table[:, 9], 1e5, "kV", least=0)
    ordered(file, "bus", rows, "Vmin", table[:, 12], "Vmax", table[:, 11])
    for row in rows[_beyond(table[:, 11], _MOST_VOLTAGE) | (table[:, 12] > _MOST_VOLTAGE)]:
        raise CaseError(
            f"{file}: bus row {row + 1} has a voltage limit above {_MOST_VOLTAGE:g} per unit, "
            "which looks like kilovolts. Divide it by the base voltage (1.1 is usual), or write "
            "Inf for no upper limit."
        )
    for row in rows[table[:, 11] <= 0]:
        raise CaseError(
            f"{file}: bus row {row + 1} has Vmax <= 0; no voltage satisfies it. Write Vmax in per "
            "unit, for example 1.1."
        )
    position = {int(bus): -1 for bus in ids}
    position.update({int(bus): at for at, bus in enumerate(ids[rows])})
    buses = Buses(
        id=ids[rows],
        pd=table[:, 2] / base,
        qd=table[:, 3] / base,
        gs=table[:, 4] / base,
        bs=table[:, 5] / base,
        # A negative lower bound on a magnitude is redundant; its square would not be.
        vmin=np.maximum(table[:, 12], 0.0),
        vmax=table[:, 11].copy(),
        area=integers(file, "bus", rows, "area", table[:, 6]),
        zone=integers(file, "bus", rows, "zone", table[:, 10]),
        base_kv=table[:, 9].copy(),
    )
    return buses, tuple(int(bus) for bus in ids[~kept]), position


def _generators(
    tables: Tables, position: dict[int, int], base: float, vmin: Floats
) -> tuple[Generators, Pieces, Links]:
    """Return generators followed by ends of DC lines and storage, pieces of costs, and DC lines."""
    file = tables.name
    rows = _in_service(file, "gen", tables.gen, 7)
    bus = _positions(file, "gen", tables.gen, rows, 0, position)
    rows, bus = rows[bus >= 0], bus[bus >= 0]
    table = limits(tables.gen[rows])
    ordered(file, "gen", rows, "Pmin", table[:, 9], "Pmax", table[:, 8])
    ordered(file, "gen", rows, "Qmin", table[:, 4], "Qmax", table[:, 3])
    for row in rows[_has_capability_curve(table)]:
        raise CaseError(
            f"{file}: gen row {row + 1} has a capability curve (columns 11 to 16, Pc1 to Qc2max) "
            "that is tighter than Qmin and Qmax. The model has no such curves, and the optimum "
            "would be another. Write 0 in these columns if you mean the generator without."
        )
    active, reactive = _costs(tables, rows)
    lines = _in_service(file, "dcline", tables.dcline, 2) if len(tables.dcline) else _NO_ROWS
    ends = np.column_stack(
        [_positions(file, "dcline", tables.dcline, lines, end, position) for end in (0, 1)]
    )
    lines, ends = lines[(ends >= 0).all(axis=1)], ends[(ends >= 0).all(axis=1)]
    stores = _in_service(file, "storage", tables.storage, 16) if len(tables.storage) else _NO_ROWS
    at = _positions(file, "storage", tables.storage, stores, 0, position)
    stores, at = stores[at >= 0], at[at >= 0]
    dc = dc_lines(tables, lines)
    kept = storage(tables, stores, vmin[at])
    injections = ((dc, ends, lines, "dcline"), (kept, at[:, None], stores, "storage"))

    def column(own: Floats, pick: Callable[[Injections], Floats]) -> Floats:
        return np.concatenate((own, *(pick(more).reshape(-1) for more, *_ in injections)))

    def priced(power: int) -> Floats:
        own = active.coefficients[:, power] * base ** (2 - power)
        return column(own, lambda more: _at_first_end(more, base)[:, :, power])

    count = len(rows)
    none = np.zeros(2 * len(lines) + len(stores))
    generators = Generators(
        bus=np.concatenate((bus, ends.reshape(-1), at)),
        pmin=column(table[:, 9], lambda more: more.low[:, :, 0]) / base,
        pmax=column(table[:, 8], lambda more: more.high[:, :, 0]) / base,
        qmin=column(table[:, 4], lambda more: more.low[:, :, 1]) / base,
        qmax=column(table[:, 3], lambda more: more.high[:, :, 1]) / base,
        c2=priced(0),
        c1=priced(1),
        c0=priced(2),
        q2=np.append(reactive.coefficients[:, 0] * base**2, none),
        q1=np.append(reactive.coefficients[:, 1] * base, none),
        q0=np.append(reactive.coefficients[:, 2], none),
        rating=np.concatenate((np.full(count + 2 * len(lines), np.inf), kept.rating / base)),
        loss=np.concatenate((np.zeros(count + 2 * len(lines)), kept.loss)),
        kind=np.repeat(["gen", "dcline", "storage"], [count, 2 * len(lines), len(stores)]),
        row=np.concatenate((rows, np.repeat(lines, 2), stores)) + 1,
    )
    start = count + 2 * np.arange(len(lines))
    links = Links(start, start + 1, dc.drop[:, 0] / base, dc.drop[:, 1].copy())
    return generators, _pieces(active, reactive, dc.cost, count, base), links


def _at_first_end(more: Injections, base: float) -> Floats:
    """Return cost coefficients in per unit, shape (rows, ends, 3); second ends cost nothing."""
    prices = np.zeros((*more.low.shape[:2], 3))
    prices[:, 0] = more.cost.coefficients * [base**2, base, 1]
    return prices


def _pieces(active: Costs, reactive: Costs, dc: Costs, count: int, base: float) -> Pieces:
    """Return pieces of costs in per unit; pairs of DC-line ends follow `count` generators."""
    gen = np.concatenate((active.element, reactive.element, count + 2 * dc.element))
    sizes = len(active.element), len(reactive.element), len(dc.element)
    of_reactive = np.repeat([False, True, False], sizes)
    order = np.lexsort((of_reactive, gen))
    return Pieces(
        gen=gen[order],
        reactive=of_reactive[order],
        slope=base * np.concatenate((active.slope, reactive.slope, dc.slope))[order],
        intercept=np.concatenate((active.intercept, reactive.intercept, dc.intercept))[order],
    )


def _has_capability_curve(table: Floats) -> NDArray[np.bool_]:
    """Return which generators have a capability curve, by the rule of MATPOWER's hasPQcap."""
    if table.shape[1] < 16:
        return np.zeros(len(table), dtype=np.bool_)
    first, second, least1, most1, least2, most2 = table[:, 10:16].T
    curved = (first != second) & ((first != 0) | (second != 0))
    width = np.where(curved, second - first, 1.0)
    tighter = np.zeros(len(table), dtype=np.bool_)
    for end in (table[:, 9], table[:, 8]):
        share = np.where(np.isfinite(end), end - first, 0.0) / width
        tighter |= least1 + share * (least2 - least1) > table[:, 4]
        tighter |= most1 + share * (most2 - most1) < table[:, 3]
    return curved & tighter


def _costs(tables: Tables, rows: Ints) -> tuple[Costs, Costs]:
    """Return costs of active and of reactive power, for the generators in the given rows."""
    file, table, count = tables.name, tables.gencost, len(tables.gen)
    if not len(table):
        return free(len(rows)), free(len(rows))
    if len(table) not in (count, 2 * count):
        raise CaseError(
            f"{file}: gencost has {len(table)} rows for {count} generators, so costs cannot be "
            "assigned. Give one row per row of gen, or two with reactive power."
        )
    reactive = free(len(rows))
    if len(table) > count:
        reactive = read_costs(file, "gencost", table, rows + count)
    return read_costs(file, "gencost", table, rows), reactive


def _branches(tables: Tables, position: dict[int, int], base: float, equivalents: bool) -> Branches:
    file = tables.name
    rows = _in_service(file, "branch", tables.branch, 10)
    start = _positions(file, "branch", tables.branch, rows, 0, position)
    end = _positions(file, "branch", tables.branch, rows, 1, position)
    kept = (start >= 0) & (end >= 0)
    rows, start, end = rows[kept], start[kept], end[kept]
    table = tables.branch[rows]
    for name, column, most, unit in (
        ("r", 2, _IMPEDANCE[1], "per unit"),
        ("x", 3, _IMPEDANCE[1], "per unit"),
        ("b", 4, _IMPEDANCE[1], "per unit"),
        ("angle", 9, 360.0, "degrees"),
    ):
        within(file, "branch", rows, name, table[:, column], most, unit)
    finite(file, "branch", rows, "ratio", table[:, 8])
    for row in rows[start == end]:
        raise CaseError(
            f"{file}: branch row {row + 1} joins a bus to itself; it has no voltage difference. "
            "Correct one end or write a shunt at the bus."
        )
    for row in rows[(table[:, 2] == 0) & (table[:, 3] == 0)]:
        raise CaseError(
            f"{file}: branch row {row + 1} has zero impedance (r = x = 0), so its admittance is "
            "infinite. Merge its two buses or give it a small reactance such as 1e-4."
        )
    for row in rows[np.hypot(table[:, 2], table[:, 3]) < _IMPEDANCE[0]]:
        raise CaseError(
            f"{file}: branch row {row + 1} has an impedance below {_IMPEDANCE[0]:g} per unit, "
            "which is a short circuit compared with all other branches. Merge its two buses or "
            "give it a small reactance such as 1e-4."
        )
    produces = table[:, 2] < -_NEGATIVE_RESISTANCE * np.abs(table[:, 3])
    for row in rows[produces & (not equivalents)]:
        raise CaseError(
            f"{file}: branch row {row + 1} has a negative resistance r beyond a quarter of its "
            "reactance x: it would produce power from nothing. Write r >= 0, or, if the branch "
            "stands for a reduced network, read_case(..., equivalents=True) or --equivalents."
        )
    for row in rows[~(table[:, 5] >= 0)]:
        raise CaseError(
            f"{file}: branch row {row + 1} has a RATE_A that is negative or not a number; it "
            "bounds an apparent power. Write MVA, or 0 for no limit."
        )
    for row in rows[table[:, 8] < 0]:
        raise CaseError(
            f"{file}: branch row {row + 1} has a negative turns ratio, which no transformer has. "
            "Write a positive ratio, or 0 for a line."
        )
    taps = np.where(table[:, 8] == 0, 1.0, table[:, 8])
    within(file, "branch", rows, "ratio", taps, _RATIO[1], "(off nominal)", least=_RATIO[0])
    rate = limits(table[:, 5])
    current = _currents(tables, rows)
    angmin, angmax = _angles(file, table, rows)
    return Branches(
        from_bus=start,
        to_bus=end,
        r=table[:, 2].copy(),
        x=table[:, 3].copy(),
        b=table[:, 4].copy(),
        tap=taps,
        shift=np.radians(table[:, 9]),
        rate=np.where(rate == 0, np.inf, rate / base),
        current=current / base,
        angmin=angmin,
        angmax=angmax,
        row=rows + 1,
    )


def _currents(tables: Tables, rows: Ints) -> Floats:
    """Return limits on currents, in MVA at a voltage of 1 per unit; infinite without a limit."""
    table = tables.branch_currents
    if not len(table):
        return np.full(len(rows), np.inf)
    if len(table) != len(tables.branch):
        raise CaseError(
            f"{tables.name}: branch_currents has {len(table)} rows for {len(tables.branch)} "
            "branches, so limits cannot be assigned. Give one row per row of branch."
        )
    current = limits(table[rows, 0])
    for row in rows[~(current >= 0)]:
        raise CaseError(
            f"{tables.name}: branch_currents row {row + 1} is negative or not a number; it bounds "
            "a current. Write MVA at a voltage of 1 per unit, or 0 for no limit."
        )
    return np.where(current == 0, np.inf, current)


def _angles(file: str, table: Floats, rows: Ints) -> tuple[Floats, Floats]:
    """Return angle bounds in radians, with pglib's default if the file sets none."""
    if table.shape[1] < 13:
        bound = np.full(len(rows), np.radians(WIDEST))
        return -bound, bound
    low, high = table[:, 11], table[:, 12]
    ordered(file, "branch", rows, "angmin", low, "angmax", high)
    free = (low == 0) & (high == 0)
    low = np.where(free | (low <= -90), -WIDEST, low)
    high = np.where(free | (high >= 90), WIDEST, high)
    for row in rows[low > high]:
        raise CaseError(
            f"{file}: branch row {row + 1} bounds the angle beyond {WIDEST:g} degrees on "
            "one side only; with the default on the other side no angle is left. Write both bounds."
        )
    return np.radians(low), np.radians(high)


def without_branch(case: Case, branch: int) -> Case:
    """Return the network after the outage of a branch.

    Parameters
    ----------
    case : Case
    branch : int
        Position of the branch.
    """
    rest = {
        field.name: np.delete(getattr(case.branch, field.name), branch)
        for field in fields(case.branch)
    }
    branches = Branches(**rest)
    return replace(case, branch=branches, pairs=_pairs(branches))


def _pairs(branch: Branches) -> Pairs:
    ends = np.column_stack((branch.from_bus, branch.to_bus))
    pairs, of_branch = np.unique(np.sort(ends, axis=1), axis=0, return_inverse=True)
    of_branch = of_branch.reshape(-1)
    forward = branch.from_bus < branch.to_bus
    angmin = np.full(len(pairs), -np.inf)
    angmax = np.full(len(pairs), np.inf)
    np.maximum.at(angmin, of_branch, np.where(forward, branch.angmin, -branch.angmax))
    np.minimum.at(angmax, of_branch, np.where(forward, branch.angmax, -branch.angmin))
    return Pairs(
        first=pairs[:, 0].copy(),
        second=pairs[:, 1].copy(),
        angmin=angmin,
        angmax=angmax,
        of_branch=of_branch,
        sign=np.where(forward, 1.0, -1.0),
    )


def _in_service(file: str, matrix: str, table: Floats, column: int) -> Ints:
    """Return the rows in service, by the rules of MATPOWER and, for storage, of PowerModels."""
    rows = np.arange(len(table))
    finite(file, matrix, rows, "status", table[:, column])
    status = table[:, column]
    return np.flatnonzero(status > 0 if matrix in _POSITIVE else status != 0)


def _status_notes(tables: Tables) -> list[str]:
    """Return notes on rows whose status or type is unusual."""
    notes = []
    for matrix, column in (("gen", 7), ("branch", 10), ("dcline", 2), ("storage", 16)):
        table = getattr(tables, matrix)
        odd = np.flatnonzero(~np.isin(table[:, column], (0, 1))) + 1 if len(table) else _NO_ROWS
        if len(odd):
            rule = "above 0" if matrix in _POSITIVE else "other than 0"
            notes.append(
                f"{tables.name}: {matrix} row{_first(odd)} with a status other than 0 and 1: what "
                f"is {rule} is in service, as in MATPOWER."
            )
    untyped = np.flatnonzero(tables.bus[:, 1] == 0) + 1
    if len(untyped):
        notes.append(
            f"{tables.name}: bus row{_first(untyped)} with type 0: taken for in service, like any "
            "type but 4."
        )
    return notes


def _first(rows: Ints) -> str:
    shown = ", ".join(str(row) for row in rows[:_SHOWN])
    more = f" and {len(rows) - _SHOWN} more" if len(rows) > _SHOWN else ""
    return f"{'s' if len(rows) > 1 else ''} {shown}{more}"


def _beyond(values: Floats, most: float) -> NDArray[np.bool_]:
    """Return which values are finite and above `most`."""
    return np.isfinite(values) & (values > most)


def _positions(
    file: str, matrix: str, table: Floats, rows: Ints, column: int, position: dict[int, int]
) -> Ints:
    found = np.zeros(len(rows), dtype=np.int64)
    for at, row in enumerate(rows):
        bus = table[row, column]
        if bus not in position:
            raise CaseError(
                f"{file}: {matrix} row {row + 1} refers to bus {bus:g}, which is not in the bus "
                f"matrix; it cannot be connected. Add the bus or correct column {column + 1}."
            )
        found[at] = position[int(bus)]
    return found
