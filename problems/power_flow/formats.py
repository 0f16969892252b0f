"""Files in other formats than MATPOWER's, recognized by their first characters or their name."""

from __future__ import annotations

import re
from pathlib import Path

from .errors import CaseError

# Format, and how it becomes a network that `read_case` reads; {0} stands for the file name.
_RAW = (
    "a PSS/E raw file",
    "In MATPOWER, write psse2mpc('{0}', 'case.m'), and read case.m.",
)
_JSON = (
    "JSON without a network of PowerModels ('per_unit', 'baseMVA', 'bus', ...)",
    "Write a network by JSON.print of what PowerModels' parse_file returns, or give a MATPOWER "
    "file.",
)
_NET = ("a pandapower net", "Write read_case(pandapower.from_json('{0}')).")
_CDF = ("in the IEEE common data format", "In MATPOWER, write cdf2mpc('{0}', 'case.m').")
_XML = (
    "XML",
    "If it is a CIM model, pass the net that pandapower.converter.cim.cim2pp.from_cim returns.",
)
_HTML = ("a web page", "Download the file itself, on GitHub in its raw form.")
_SHEET = ("a spreadsheet", "If pandapower wrote it, write read_case(pandapower.from_excel('{0}')).")
_TABLE = (
    "a table",
    "Pass the whole folder if PyPSA's export_to_csv_folder wrote it, or a dict with baseMVA and "
    "the arrays bus, gen, branch and gencost.",
)
_MAT = ("a binary file", "In MATPOWER, write savecase('case.m', loadcase('{0}')), and read case.m.")
_PICKLE = ("pickled", "If pandapower wrote it, write read_case(pandapower.from_pickle('{0}')).")
_GE = ("a PSLF file", "Save it as a PSS/E raw file, and convert that by MATPOWER's psse2mpc.")
_POWERWORLD = ("a PowerWorld file", "In PowerWorld, save the case as a MATPOWER m-file.")
_SUFFIXES = {
    ".raw": _RAW,
    ".json": _JSON,
    ".cdf": _CDF,
    ".xml": _XML,
    ".xiidm": _XML,
    ".xlsx": _SHEET,
    ".csv": _TABLE,
    ".mat": _MAT,
    ".p": _PICKLE,
    ".epc": _GE,
    ".aux": _POWERWORLD,
    ".pwb": _POWERWORLD,
}
# Beginnings of the text, in lower case and without blanks at its start.
_BEGINNINGS = (
    (re.compile(r"\{.{0,200}pandapowernet", re.DOTALL), _NET),
    (re.compile(r"[{\[]\s*[\"{\[\]}]"), _JSON),
    (re.compile(r"<!doctype html|<html"), _HTML),
    (re.compile(r"<\?xml|<rdf"), _XML),
    (re.compile(r"matlab 5\.0 mat-file"), _MAT),
    (re.compile(r"\d\s*,[\d., \t]*/"), _RAW),
    (re.compile(r"[^\n]*\n\s*bus data follows"), _CDF),
)
_START = 2000


def check_format(raw: bytes, path: Path) -> None:
    """Refuse a file in another known format, with the way to convert it.

    Parameters
    ----------
    raw : bytes
        Content of the file.
    path : Path

    Raises
    ------
    CaseError
        If the beginning of the content, or else the name, is that of another format.
    """
    start = raw[:_START].decode("latin-1").lstrip().lower()
    begins = (kind for beginning, kind in _BEGINNINGS if beginning.match(start))
    kind = next(begins, _SUFFIXES.get(path.suffix.lower()))
    if kind is not None:
        name, remedy = kind
        raise CaseError(f"{path.name} is {name}, not a MATPOWER case. {remedy.format(path.name)}")
