"""Network data in per unit, read from the tables of a case and checked."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, fields

import numpy as np
from numpy.typing import NDArray

from dpcvx._arguments import positive_finite

from .checks import MOST_POWER, finite, integers, limits, ordered, within
from .errors import CaseError, CaseWarning
from .matpower import Tables
from .sources import Source, tables

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_ISOLATED = 4
_DEFAULT_ANGLE = 60.0
_POLYNOMIAL = 2
_DEGREE = 2
# Sizes far beyond those of real networks; see `checks.within`.
_BASE = (1e-4, 1e6)
_MOST_VOLTAGE = 10.0
_IMPEDANCE = (1e-7, 1e6)
_RATIO = (0.1, 10.0)
_MOST_COST = 1e9
# Equivalents of reduced networks and of three-winding transformers have negative resistances, in
# pglib-opf up to 0.24 times the reactance with three thousand buses or less. Larger ones are mostly
# wrong signs.
_NEGATIVE_RESISTANCE = 0.25


@dataclass(frozen=True, eq=False)
class _Frozen:
    """Makes the arrays of a declared part of the network read-only."""

    def __post_init__(self) -> None:
        for item in fields(self):
            getattr(self, item.name).flags.writeable = False


@dataclass(frozen=True, eq=False)
class Buses(_Frozen):
    """Buses in service.

    Attributes
    ----------
    id : ndarray of int, shape (buses,)
        Numbers of the file.
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
    """Generators in service at buses in service.

    Attributes
    ----------
    bus : ndarray of int, shape (generators,)
        Position of the bus in `Buses`.
    pmin, pmax, qmin, qmax : ndarray, shape (generators,)
        Bounds in per unit, possibly infinite.
    c2, c1, c0 : ndarray, shape (generators,)
        Cost ``c2 p^2 + c1 p + c0`` in $/h for active power p in per unit.
    row : ndarray of int, shape (generators,)
        Row of the file's generator matrix, counted from 1.
    """

    bus: Ints
    pmin: Floats
    pmax: Floats
    qmin: Floats
    qmax: Floats
    c2: Floats
    c1: Floats
    c0: Floats
    row: Ints


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
        Bound on the apparent power at either end in per unit, infinite where the file has 0.
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
        1 where the branch runs from first to second, -1 where it is reversed: the imaginary
        voltage product of the branch is ``sign * wi[of_branch]``.
    """

    first: Ints
    second: Ints
    angmin: Floats
    angmax: Floats
    of_branch: Ints
    sign: Floats


@dataclass(frozen=True, eq=False)
class Case:
    """A network in per unit on `base_mva`, reduced to what is in service.

    Attributes
    ----------
    name : str
        File name without ``.m``, or another name of the source.
    base_mva : float
        Power base in MVA.
    bus, gen, branch, pairs
        The parts, see their classes.
    isolated : tuple of int
        Ids of the buses that the file marks as isolated and that were left out.
    notes : tuple of str
        What was taken otherwise than the source says, or not read: fields of unknown meaning,
        elements without a cost. `read_case` warns of each.
    """

    name: str
    base_mva: float
    bus: Buses
    gen: Generators
    branch: Branches
    pairs: Pairs
    isolated: tuple[int, ...]
    notes: tuple[str, ...] = ()

    @property
    def load(self) -> Floats:
        """Loads in per unit, shape (buses, 2), columns P and Q."""
        return np.column_stack((self.bus.pd, self.bus.qd))

    def scaled_load(self, load_scale: float) -> Floats:
        """`load` times a factor.

        Raises
        ------
        CaseError
            The factor is not a positive number, or makes a load larger than any network's.
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
                f"{MOST_POWER:g} MW, thrice what the whole world uses. Write a smaller factor."
            )
        return load_scale * self.load

    @property
    def equivalents(self) -> tuple[int, ...]:
        """Rows, from 1, of branches in service whose resistance is negative."""
        return tuple(int(row) for row in self.branch.row[self.branch.r < 0])


def read_case(source: Source, *, equivalents: bool = False) -> Case:
    """Read a network.

    Parameters
    ----------
    source : int, str, Path, mapping or object with data frames
        Number or name of a bundled case, name of a case of pglib-opf, path of a MATPOWER version 2
        ``.m`` file, ppc dict, `matpowercaseframes.CaseFrames` or pandapower net; see
        `sources.tables` for what each becomes.
    equivalents : bool
        Take resistances of any negative value: the branches stand for reduced networks. The
        relaxation may draw power from them.

    Returns
    -------
    Case
        Elements out of service and isolated buses (type 4) with what hangs on them are left out.
        Angle bounds at or beyond 90 degrees, absent, or both 0 become 60 degrees. Limits on power
        beyond 1e7 MW are none.

    Raises
    ------
    CaseError
        The source is missing, truncated or inconsistent, has numbers that no network has (zero
        or tiny impedances, resistances below minus a quarter of the reactance, voltages in kV), or
        uses what the model cannot represent (piecewise linear or non-convex cost, degree above 2,
        direct-current lines in service, capability curves, storage, closed switches, limits on
        currents).

    Warns
    -----
    CaseWarning
        For every entry of `Case.notes`.
    """
    case = _build(tables(source), equivalents)
    for note in case.notes:
        warnings.warn(note, CaseWarning, stacklevel=2)
    return case


def _build(tables: Tables, equivalents: bool) -> Case:
    base = tables.base_mva
    if not _BASE[0] <= base <= _BASE[1]:
        raise CaseError(
            f"{tables.name}: baseMVA is outside {_BASE[0]:g} to {_BASE[1]:g} MVA; in per unit all "
            "numbers would be huge or tiny. Write megavolt-amperes, usually 100."
        )
    if len(tables.dcline) and len(_in_service(tables.name, "dcline", tables.dcline, 2)):
        raise CaseError(
            f"{tables.name}: dcline has lines in service, which the model does not represent; "
            "their transfer would be lost. Switch them off or model them as generators."
        )
    bus, isolated, position = _buses(tables, base)
    branch = _branches(tables, position, base, equivalents)
    return Case(
        name=tables.name.removesuffix(".m"),
        base_mva=base,
        bus=bus,
        gen=_generators(tables, position, base),
        branch=branch,
        pairs=_pairs(branch),
        isolated=isolated,
        notes=tables.notes,
    )


def _buses(tables: Tables, base: float) -> tuple[Buses, tuple[int, ...], dict[int, int]]:
    """Buses in service, ids of isolated ones, and position by id (-1 for an isolated bus)."""
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
    for row in rows[~np.isin(table[:, 1], (1, 2, 3, _ISOLATED))]:
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
        # A negative lower bound on a magnitude says nothing; its square would.
        vmin=np.maximum(table[:, 12], 0.0),
        vmax=table[:, 11].copy(),
        area=integers(file, "bus", rows, "area", table[:, 6]),
        zone=integers(file, "bus", rows, "zone", table[:, 10]),
        base_kv=table[:, 9].copy(),
    )
    return buses, tuple(int(bus) for bus in ids[~kept]), position


def _generators(tables: Tables, position: dict[int, int], base: float) -> Generators:
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
    cost = _costs(tables, rows)
    return Generators(
        bus=bus,
        pmin=table[:, 9] / base,
        pmax=table[:, 8] / base,
        qmin=table[:, 4] / base,
        qmax=table[:, 3] / base,
        c2=cost[:, 0] * base**2,
        c1=cost[:, 1] * base,
        c0=cost[:, 2].copy(),
        row=rows + 1,
    )


def _has_capability_curve(table: Floats) -> NDArray[np.bool_]:
    """Generators whose reactive limits fall with active power, as MATPOWER's hasPQcap finds."""
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


def _costs(tables: Tables, rows: Ints) -> Floats:
    """Coefficients c2, c1, c0 on megawatts of the generators in the given rows."""
    file, table, count = tables.name, tables.gencost, len(tables.gen)
    if len(table) not in (count, 2 * count):
        raise CaseError(
            f"{file}: gencost has {len(table)} rows for {count} generators, so costs cannot be "
            "assigned. Give one row per row of gen."
        )
    if len(table) > count and np.any(table[count:][rows, 4:] != 0):
        raise CaseError(
            f"{file}: gencost prices reactive power (rows {count + 1} to {2 * count}), which the "
            "model does not represent; the optimum would be another. Remove these rows."
        )
    costs = np.zeros((len(rows), _DEGREE + 1))
    for at, row in enumerate(rows):
        costs[at] = _polynomial(table[row], f"{file}: gencost row {row + 1}")
    return costs


def _polynomial(row: Floats, where: str) -> Floats:
    if row[0] != _POLYNOMIAL:
        found = "piecewise linear (model 1)" if row[0] == 1 else "of an unknown model"
        raise CaseError(
            f"{where} is {found}; only polynomial cost is supported. Write model 2 with the "
            "coefficients c2, c1, c0."
        )
    count = row[3]
    if not (count >= 1 and count == np.floor(count) and 4 + count <= len(row)):
        raise CaseError(
            f"{where} has an impossible number of coefficients in column 4 for {len(row)} columns; "
            "the polynomial would be cut. Write as many coefficients as column 4 says, at least "
            "one (0 for power that costs nothing)."
        )
    coefficients, rest = row[4 : 4 + int(count)], row[4 + int(count) :]
    if np.any(rest != 0):
        raise CaseError(
            f"{where} has more coefficients than column 4 says; some would be left out. Write "
            "their number in column 4, and 0 after the last one."
        )
    if not np.all(np.abs(coefficients) <= _MOST_COST):
        raise CaseError(
            f"{where} has a coefficient that is not a finite number up to {_MOST_COST:g} in size, "
            "so the cost is undefined or all others vanish beside it. Write $/h for power in MW."
        )
    if np.any(coefficients[: -_DEGREE - 1] != 0):
        raise CaseError(
            f"{where} is a polynomial of degree {int(count) - 1}; only degree {_DEGREE} or less "
            "is a conic quadratic. Fit c2, c1, c0 over the generator's range."
        )
    kept = coefficients[-_DEGREE - 1 :]
    result = np.concatenate((np.zeros(_DEGREE + 1 - len(kept)), kept))
    if result[0] < 0:
        raise CaseError(
            f"{where} has a negative quadratic coefficient; the problem would not be convex. "
            "Write a coefficient of at least 0."
        )
    return result


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
            f"{file}: branch row {row + 1} has an impedance below {_IMPEDANCE[0]:g} per unit, a "
            "short circuit beside which all others vanish. Merge its two buses or give it a small "
            "reactance such as 1e-4."
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
        angmin=angmin,
        angmax=angmax,
        row=rows + 1,
    )


def _angles(file: str, table: Floats, rows: Ints) -> tuple[Floats, Floats]:
    """Angle bounds in radians with the default of pglib where the file sets none."""
    if table.shape[1] < 13:
        bound = np.full(len(rows), np.radians(_DEFAULT_ANGLE))
        return -bound, bound
    low, high = table[:, 11], table[:, 12]
    ordered(file, "branch", rows, "angmin", low, "angmax", high)
    free = (low == 0) & (high == 0)
    low = np.where(free | (low <= -90), -_DEFAULT_ANGLE, low)
    high = np.where(free | (high >= 90), _DEFAULT_ANGLE, high)
    for row in rows[low > high]:
        raise CaseError(
            f"{file}: branch row {row + 1} bounds the angle beyond {_DEFAULT_ANGLE:g} degrees on "
            "one side only; with the default on the other side no angle is left. Write both bounds."
        )
    return np.radians(low), np.radians(high)


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
    rows = np.arange(len(table))
    finite(file, matrix, rows, "status", table[:, column])
    # MATPOWER takes a generator for in service where this is positive, a branch where it is not 0.
    for row in rows[~np.isin(table[:, column], (0, 1))]:
        raise CaseError(
            f"{file}: {matrix} row {row + 1} has a status that is neither 1 (in service) nor 0 "
            f"(out of service). Write one of them in column {column + 1}."
        )
    return np.flatnonzero(table[:, column])


def _beyond(values: Floats, most: float) -> NDArray[np.bool_]:
    """Where values are finite and above `most`."""
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
