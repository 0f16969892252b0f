"""Tables of a network state by bus, branch and generator, in megawatts, kilovolts and dollars."""

from __future__ import annotations

import csv
import json
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from dpcvx.errors import ModelError

from .case import Case
from .relaxed import CLOSED, TIGHT, angle_mismatch, cone_slack, relaxation
from .report import generator_costs, imbalance, nature, thermal_loading
from .solution import State
from .study import PowerFlow

Floats = NDArray[np.float64]

NOT_PRIVATE = "not private"
KINDS = ("csv", "tex")
# Numbers of decimals by unit. Other numbers have four significant digits, or are 0 below the
# accuracy of solvers.
_DECIMALS = {"MW": 2, "MVAr": 2, "p.u.": 4, "kV": 2, "deg": 2, "%": 1}
_DECIMALS |= dict.fromkeys(("$", "$/h", "$/MWh", "MWh"), 2)
_ACCURACY = 1e-8
# Columns that the direct-current approximation lacks, and columns that only the relaxation has.
_REACTIVE = frozenset({"Vm", "V", "Q imbalance", "Q from", "Q to", "Q", "Qmin", "Qmax"})
_RELAXED = frozenset({"cone slack", "angle mismatch"})
# Number of columns beyond which a table has smaller letters.
_WIDE = 11
# Largest number of characters of a line in a note.
_NOTE_WIDTH = 80
_SOURCE_WIDTH = 96

_ESCAPED = str.maketrans(
    {sign: f"\\{sign}" for sign in "%$&#_{}"}
    | {"\\": r"\textbackslash{}", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}"}
)


@dataclass(frozen=True, eq=False)
class Column:
    """One quantity of a table.

    Attributes
    ----------
    name : str
        Name of the quantity.
    unit : str
        Unit; empty for ids and rows.
    values : ndarray of int, float or str, shape (rows,)
        Values; NaN if the quantity does not exist, such as the loading of an unlimited branch.
    private : bool
        Whether the values follow from released values alone. If not, the header says so.
    total : bool
        Whether text and LaTeX show the sum of all rows below them.
    """

    name: str
    unit: str
    values: NDArray[Any]
    private: bool = True
    total: bool = False

    def shown(self, values: NDArray[Any]) -> list[str]:
        """Return values as texts with the decimals of their unit, so that decimal points align.

        Values below the solver's accuracy become 0.

        Parameters
        ----------
        values : ndarray
        """
        return [_short(value, _DECIMALS.get(self.unit)) for value in values]

    @property
    def header(self) -> str:
        """Name and unit of the column, marked as not private if it is not."""
        unit = f" ({self.unit})" if self.unit else ""
        return f"{self.name}{unit}{'' if self.private else f' [{NOT_PRIVATE}]'}"


@dataclass(frozen=True, eq=False)
class Table:
    """Table of one kind of element, with one row per element in the order of the case.

    Attributes
    ----------
    name : str
        Name of the file, such as "buses", "branches" or "generators".
    columns : tuple of Column
    note : str
        Note on the whole table, in text and in LaTeX.
    caption : str
        Caption in LaTeX.
    """

    name: str
    columns: tuple[Column, ...]
    note: str = ""
    caption: str = ""

    def __getitem__(self, name: str) -> NDArray[Any]:
        """Return the values of a column, by its name."""
        for column in self.columns:
            if column.name == name:
                return column.values
        names = ", ".join(repr(column.name) for column in self.columns)
        raise ModelError(f"The table of {self.name} has no column {name!r}; it has {names}.")

    def __len__(self) -> int:
        return len(self.columns[0].values)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(column.name for column in self.columns)

    def write(self, folder: Path, kind: str = "csv", source: str = "") -> Path:
        """Write ``<name>.csv`` with full precision, or ``<name>.tex`` with rounded numbers.

        Cells without a value are empty.

        Parameters
        ----------
        folder : Path
        kind : {"csv", "tex"}
        source : str
            See `latex`.
        """
        path = folder / f"{self.name}.{kind}"
        if kind == "tex":
            path.write_text(self.latex(source), encoding="utf-8")
            return path
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow([column.header for column in self.columns])
            cells = [[_exact(value) for value in column.values] for column in self.columns]
            writer.writerows(zip(*cells, strict=True))
        return path

    def latex(self, source: str = "") -> str:
        """Return the table for a paper: LaTeX with the packages booktabs and longtable.

        Its label is ``tab:<name>``.

        Parameters
        ----------
        source : str
            Origin of the numbers, for a comment in the first lines.
        """
        width = len(self.columns)
        heads = [" & ".join(_tex(column.name) for column in self.columns)]
        if any(column.unit for column in self.columns):
            heads.append(" & ".join(_tex(column.unit) for column in self.columns))
        cells = [[_tex(text) for text in column.shown(column.values)] for column in self.columns]
        open_to_all = [column.name for column in self.columns if not column.private]
        notes = [f"{NOT_PRIVATE}: {', '.join(open_to_all)}"] if open_to_all else []
        notes += textwrap.wrap(self.note, _NOTE_WIDTH)
        foot = [rf"\multicolumn{{{width}}}{{l}}{{\footnotesize {_tex(note)}}} \\" for note in notes]
        totals = [r"\midrule", rf"{' & '.join(map(_tex, self._totals()))} \\"]
        caption = [rf"\caption{{{_tex(self.caption)}}}\label{{tab:{self.name}}} \\"]
        smaller = r"\footnotesize" if width > _WIDE else ""
        lines = [
            *(f"% {line}" for line in source.splitlines()),
            r"% needs \usepackage{booktabs,longtable}",
            # A dozen columns then fit on a page of A4; the group leaves other tables unchanged.
            rf"\begingroup{smaller}\setlength{{\tabcolsep}}{{3.5pt}}",
            rf"\begin{{longtable}}{{{'r' * width}}}",
            *(caption if self.caption else []),
            r"\toprule",
            *(rf"{head} \\" for head in heads),
            r"\midrule",
            r"\endhead",
            *(rf"{' & '.join(row)} \\" for row in zip(*cells, strict=True)),
            *(totals if self._totals() else []),
            *([r"\midrule", *foot] if foot else []),
            r"\bottomrule",
            r"\end{longtable}",
            r"\endgroup",
        ]
        return "\n".join(lines) + "\n"

    def _totals(self) -> list[str]:
        """Return the cells of the row of sums; an empty list if no column has a sum."""
        if not any(column.total for column in self.columns):
            return []
        cells = [
            column.shown(np.array([np.nansum(column.values)]))[0] if column.total else ""
            for column in self.columns
        ]
        return ["total", *cells[1:]]

    def __str__(self) -> str:
        totals = self._totals()
        cells = [
            [column.name, column.unit, *column.shown(column.values), *totals[at : at + 1]]
            for at, column in enumerate(self.columns)
        ]
        widths = [max(len(cell) for cell in column) for column in cells]
        lines = [
            "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in zip(*cells, strict=True)
        ]
        open_to_all = [column.name for column in self.columns if not column.private]
        note = f" ({NOT_PRIVATE}: {', '.join(open_to_all)})" if open_to_all else ""
        return "\n".join([f"{self.name}{note}", *lines, *textwrap.wrap(self.note, _NOTE_WIDTH)])


def result_tables(
    case: Case, state: State, load: Floats, *, private: bool = True
) -> tuple[Table, Table, Table]:
    """Return tables of the buses, the branches and the generators.

    Parameters
    ----------
    case : Case
    state : State
    load : ndarray, shape (buses, 2)
        True loads in per unit. In addition to `state`, only the imbalance depends on them.
    private : bool
        Whether `state` was computed from released values. If not, as in a central solve, every
        column that depends on it is marked as not private.

    Returns
    -------
    buses, branches, generators : Table
        Tables. Voltage angles are included only if the state has them, see `voltage_angles`. In
        text and in LaTeX every table states the distance from an AC power flow, see
        `relaxed.relaxation`; the table of branches has this distance by branch.
    """
    note = str(relaxation(case, state))
    return (
        replace(_buses(case, state, load, private), note=note),
        replace(_branches(case, state, private), note=note),
        replace(_generators(case, state, private), note=note),
    )


def study_tables(
    study: PowerFlow,
    states: Sequence[State] | None = None,
    loads: Sequence[Floats] | None = None,
    *,
    note: str | None = None,
    price: Floats | None = None,
    private: bool = True,
) -> tuple[Table, Table, Table]:
    """Return tables of the buses, the branches and the generators of all hours of a study.

    Parameters
    ----------
    study : PowerFlow
    states : sequence of State, optional
        Network state of every hour; if omitted, from the values of the variables. For several
        hours, the first column is the hour, from 0.
    loads : sequence of ndarray, shape (buses, 2), optional
        True loads; if omitted, `PowerFlow.net_load` of every hour. Columns that depend on them are
        marked as not private.
    note : str, optional
        Text on the distance from an AC power flow, such as `report.nature` returns.
    price : ndarray, shape (buses, hours), optional
        Prices in $/MWh, as `prices.prices` returns them.
    private : bool
        See `result_tables`.

    Returns
    -------
    buses, branches, generators : Table
        Tables; with ``model="dc"``, they have no reactive power. Costs that follow from private
        bids, and private capacities, are marked as not private.
    """
    active = study.model.quantities == 1
    states = [study.state(t) for t in range(study.hours)] if states is None else states
    loads = [study.net_load(t) for t in range(study.hours)] if loads is None else loads
    note = nature(study)[1] if note is None else note
    secret = {"bids": "cost", "capacities": "Pmax"}.get(study.private or "")
    hours = []
    for hour, (state, load) in enumerate(zip(states, loads, strict=True)):
        buses, branches, generators = (
            replace(table, note=note)
            for table in result_tables(study.case, state, load, private=private)
        )
        if active:
            buses, branches, generators = (
                replace(each, columns=tuple(c for c in each.columns if c.name not in _REACTIVE))
                for each in (buses, branches, generators)
            )
        if study.setting.kind != "soc":
            branches = replace(
                branches, columns=tuple(c for c in branches.columns if c.name not in _RELAXED)
            )
        generators = replace(
            generators,
            columns=tuple(
                replace(c, private=False) if c.name == secret else c for c in generators.columns
            ),
        )
        if price is not None:
            more = Column("price", "$/MWh", price[:, hour], private)
            buses = replace(buses, columns=(*buses.columns, more))
        hours.append((buses, branches, generators))
    if len(hours) == 1:
        return hours[0]
    buses, branches, generators = (_stacked(tables) for tables in zip(*hours, strict=True))
    return buses, branches, generators


def _stacked(tables: Sequence[Table]) -> Table:
    """Return the rows of several hours' tables stacked, with the columns that all hours have."""
    common = [
        column.name for column in tables[0].columns if all(column.name in t.names for t in tables)
    ]
    hour = np.repeat(np.arange(len(tables)), [len(table) for table in tables])
    columns = [
        replace(
            column,
            values=np.concatenate([table[column.name] for table in tables]),
            total=False,  # a sum of powers over hours is no power
        )
        for column in tables[0].columns
        if column.name in common
    ]
    return replace(tables[0], columns=(Column("hour", "", hour), *columns))


def voltage_angles(case: Case, state: State) -> Floats:
    """Return angles of the bus voltages in degrees, where the relaxation determines them.

    The relaxation has only products of neighboring voltages. Angles follow along a spanning tree of
    the pairs with a tight cone. They are valid only if they agree with all other tight pairs too.

    Parameters
    ----------
    case : Case
    state : State

    Returns
    -------
    ndarray, shape (buses,)
        Angles relative to the first bus; NaN for buses without a path of tight pairs to it, and
        everywhere if the angles around some loop do not close within 0.1 degrees.
    """
    pairs = case.pairs
    product = state.w[pairs.first] * state.w[pairs.second]
    tight = product - state.wr**2 - state.wi**2 <= TIGHT * product
    across = np.degrees(np.arctan2(state.wi, state.wr))
    angles = np.full(len(case.bus.id), np.nan)
    angles[0] = 0.0
    graph = nx.Graph()
    graph.add_node(0)
    for at in np.flatnonzero(tight & (product > 0)):
        graph.add_edge(int(pairs.first[at]), int(pairs.second[at]), pair=int(at))
    for near, far in nx.bfs_edges(graph, 0):
        at = graph.edges[near, far]["pair"]
        angles[far] = angles[near] + (-across[at] if pairs.first[at] == near else across[at])
    open_by = np.abs(angles[pairs.first] - angles[pairs.second] - across)[tight]
    if np.any(open_by > CLOSED):  # NaN, for pairs without a path, compares as false
        angles[:] = np.nan
    return angles


def _buses(case: Case, state: State, load: Floats, private: bool) -> Table:
    magnitude = np.sqrt(np.maximum(state.w, 0.0))
    surplus = np.array(list(imbalance(case, state, load).values())).reshape(-1, 2)
    columns = [
        Column("bus", "", case.bus.id),
        Column("Vm", "p.u.", magnitude, private),
        Column("V", "kV", magnitude * case.bus.base_kv, private),
    ]
    angles = voltage_angles(case, state)
    if np.isfinite(angles[1:]).any():
        columns.append(Column("Va", "deg", angles, private))
    columns += [
        Column("P imbalance", "MW", surplus[:, 0], False, total=True),
        Column("Q imbalance", "MVAr", surplus[:, 1], False, total=True),
    ]
    return Table("buses", tuple(columns), caption=f"Buses of {case.name}.")


def _branches(case: Case, state: State, private: bool) -> Table:
    branch, ids = case.branch, case.bus.id
    slack = np.array(list(cone_slack(case, state).values()))
    mismatch = case.pairs.sign * angle_mismatch(case, state)[case.pairs.of_branch]
    flows = (
        Column(f"{power} {end}", unit, case.base_mva * value, private)
        for end, active, reactive in (
            ("from", state.pf, state.qf),
            ("to", state.pt, state.qt),
        )
        for power, unit, value in (("P", "MW", active), ("Q", "MVAr", reactive))
    )
    return Table(
        "branches",
        (
            Column("from", "", ids[branch.from_bus]),
            Column("to", "", ids[branch.to_bus]),
            Column("row", "", branch.row),
            *flows,
            Column("losses", "MW", case.base_mva * (state.pf + state.pt), private, total=True),
            Column("loading", "%", thermal_loading(case, state), private),
            Column("cone slack", "p.u.", slack[case.pairs.of_branch], private),
            Column("angle mismatch", "deg", mismatch, private),
        ),
        caption=f"Branches of {case.name}: flows, losses and loading.",
    )


def _generators(case: Case, state: State, private: bool) -> Table:
    gen, base = case.gen, case.base_mva
    cost = generator_costs(case, state)
    return Table(
        "generators",
        (
            Column("bus", "", case.bus.id[gen.bus]),
            *([Column("of", "", gen.kind)] if np.any(gen.kind != "gen") else ()),
            Column("row", "", gen.row),
            Column("P", "MW", base * state.pg, private, total=True),
            Column("Pmin", "MW", base * gen.pmin),
            Column("Pmax", "MW", base * gen.pmax),
            Column("Q", "MVAr", base * state.qg, private, total=True),
            Column("Qmin", "MVAr", base * gen.qmin),
            Column("Qmax", "MVAr", base * gen.qmax),
            Column("cost", "$/h", cost, private, total=True),
        ),
        caption=f"Generators of {case.name}: power within limits, and cost.",
    )


def write_tables(
    tables: Sequence[Table],
    folder: Path,
    kinds: Sequence[str] = ("csv",),
    about: Mapping[str, object] | None = None,
) -> list[Path]:
    """Write every table as ``<name>.csv`` or ``.tex`` into a folder, which is created if missing.

    Parameters
    ----------
    tables : sequence of Table
    folder : Path
    kinds : sequence of {"csv", "tex"}
    about : mapping, optional
        Origin of the numbers, such as `provenance.provenance` returns. It is written to the first
        lines of LaTeX files, and to ``provenance.json`` beside CSV files, which have no comments.

    Returns
    -------
    list of Path
    """
    folder.mkdir(parents=True, exist_ok=True)
    source = "" if about is None else json.dumps(about, default=str)
    lines = "\n".join(textwrap.wrap(source, _SOURCE_WIDTH, break_on_hyphens=False))
    written = [table.write(folder, kind, lines) for table in tables for kind in kinds]
    if about is not None and "csv" in kinds:
        written.append(folder / "provenance.json")
        written[-1].write_text(json.dumps(about, indent=1, default=str) + "\n", encoding="utf-8")
    return written


def _exact(value: Any) -> str:
    number = value.item()
    return number if isinstance(number, str) else "" if number != number else repr(number)


def _tex(text: str) -> str:
    """Return a text with LaTeX's special characters escaped."""
    return text.translate(_ESCAPED)


def _short(value: Any, decimals: int | None) -> str:
    number = value.item()
    if isinstance(number, int | str):
        return str(number)
    if number != number:
        return ""
    if not np.isfinite(number):
        return f"{number:g}"
    if decimals is None:
        return f"{number:.4g}" if abs(number) >= _ACCURACY else "0"
    rounded = f"{number:.{decimals}f}"
    return rounded.removeprefix("-") if float(rounded) == 0 else rounded
