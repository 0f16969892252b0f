"""Sweeps: runs for every combination of some options, each stored as a line when it ends."""

from __future__ import annotations

import argparse
import itertools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import dpcvx as dp

from ..baselines import at_start
from ..files import text
from .measured import measure, optimum
from .planning import plan_of, released, study_of
from .provenance import provenance
from .report import objective_unit
from .study import PowerFlow
from .tables import Column, Table

Setting = tuple[tuple[str, str], ...]
"""Options with their values, as they are written on the command line."""


@dataclass(frozen=True)
class Cell:
    """Measurements of all runs of one setting, with the true loads. Not private.

    Attributes
    ----------
    setting : tuple of (option, value)
        Swept options and their values.
    epsilon, delta : float
        Total budget of every run; infinite without noise.
    rounds : int
        Number of rounds of every run.
    objectives, own, missing : tuple of float
        By seed: the true objective; the objective after every zone's recourse (nan if the zones
        agree on no point); and the power imbalance in MW.
    optimum : float
        Optimal value of the joint problem; nan if there is none.
    start : float
        Objective at the public initial point, which uses no data.
    noiseless : float
        Objective of the plan's method without noise.
    unit : str
        Unit of the objectives.
    """

    setting: Setting
    epsilon: float
    delta: float
    rounds: int
    objectives: tuple[float, ...]
    own: tuple[float, ...]
    missing: tuple[float, ...]
    optimum: float
    start: float
    noiseless: float
    unit: str


def settings(over: Sequence[tuple[str, Sequence[str]]]) -> list[Setting]:
    """Return every combination of values; the last option changes fastest.

    Parameters
    ----------
    over : sequence of (option, values)
    """
    names = [name for name, _ in over]
    return [
        tuple(zip(names, values, strict=True))
        for values in itertools.product(*(values for _, values in over))
    ]


def sweep(
    command: argparse.ArgumentParser,
    arguments: Sequence[str],
    over: Sequence[tuple[str, Sequence[str]]],
    seeds: Sequence[int],
    results: Path | None = None,
    done: Callable[[Setting, bool], None] | None = None,
) -> list[Cell]:
    """Run every setting with every seed, except runs whose results are stored already.

    Parameters
    ----------
    command : argparse.ArgumentParser
        Command, as `options.parser` returns it.
    arguments : sequence of str
        Arguments that all settings share.
    over : sequence of (option, values)
    seeds : sequence of int
    results : Path, optional
        File of JSON lines, one per run, that is read first and appended to. A stored run is used if
        its plan's fingerprint, network, seed and version of dpcvx match.
    done : callable, optional
        Called for each setting when its runs are complete, with whether all were stored before.

    Returns
    -------
    list of Cell

    Raises
    ------
    dp.DpcvxError
        If a setting cannot be planned or run, or the file is no such file.
    """
    stored = {} if results is None else _stored(results)
    cells = []
    # All plans are made first, so that an invalid setting is refused before any run.
    planned = [_planned(command, arguments, setting) for setting in settings(over)]
    for each in planned:
        setting, options, study, plan = each.setting, each.options, each.study, each.plan
        about = provenance(options, study.public_case, plan, study.zones)
        fresh = [seed for seed in seeds if _key(about, seed) not in stored]
        if fresh:
            beside = {
                "optimum": optimum(study),
                # If loads have to be covered, a point that ignores them is no solution.
                "start": None
                if options.violation_probability is not None or released(study, options)
                else at_start(study.problem) / objective_unit(study)[1],
                "noiseless": _noiseless(study, plan, options),
            }
            for seed in fresh:
                run = measure(study, plan.run(seed=seed))
                line = {
                    **about,
                    "seed": seed,
                    "epsilon": plan.guarantee.epsilon if plan.noisy else None,
                    "delta": plan.guarantee.delta,
                    "objective": run.outcome.objective,
                    "own": run.recourse,
                    "missing_mw": sum(zone.active for zone in run.outcome.zones),
                    **beside,
                    "not_private": ["objective", "own", "missing_mw", *beside],
                }
                stored[_key(about, seed)] = line
                if results is not None:
                    _append(results, line)
        lines = [stored[_key(about, seed)] for seed in seeds]
        cells.append(_cell(setting, plan.rounds, lines, objective_unit(study)[0]))
        if done is not None:
            done(setting, not fresh)
    return cells


def summary(cells: Sequence[Cell]) -> Table:
    """Return a table with one row per setting: medians and quartiles over the seeds.

    "gap" is the true objective minus the optimum, and "own gap" is the gap after every zone's
    recourse. "no data" and "no noise" are the gaps of the public initial point and of the method
    without noise. "imbalance" is the median power imbalance.

    Parameters
    ----------
    cells : sequence of Cell
    """
    names = [name for name, _ in cells[0].setting]
    columns = [
        Column(name, "", np.array([dict(cell.setting)[name] for cell in cells]))
        for name in names
        if name not in ("epsilon", "delta", "rounds")
    ]
    columns += [
        Column("rounds", "", np.array([cell.rounds for cell in cells])),
        Column("epsilon", "", np.array([_upward(cell.epsilon) for cell in cells])),
        Column("delta", "", np.array([cell.delta for cell in cells])),
    ]
    unit = {"per unit squared": "p.u.^2"}.get(cells[0].unit, cells[0].unit)
    for name, values in (
        ("gap", [np.array(cell.objectives) - cell.optimum for cell in cells]),
        ("own gap", [np.array(cell.own) - cell.optimum for cell in cells]),
    ):
        for label, q in (("25 %", 0.25), ("median", 0.5), ("75 %", 0.75)):
            found = np.array([np.quantile(each, q) for each in values])
            columns.append(Column(f"{name} {label}", unit, found, private=False))
    for name, found in (
        ("no data", [cell.start - cell.optimum for cell in cells]),
        ("no noise", [cell.noiseless - cell.optimum for cell in cells]),
    ):
        columns.append(Column(name, unit, np.array(found), private=False))
    missing = np.array([np.median(cell.missing) for cell in cells])
    columns.append(Column("imbalance", "MW", missing, private=False))
    caption = f"Gaps to the optimum over {len(cells[0].objectives)} seeds."
    return Table("sweep", tuple(columns), caption=caption)


def _upward(epsilon: float) -> float:
    """Return an epsilon rounded up to five significant digits."""
    if not math.isfinite(epsilon) or epsilon <= 0:
        return epsilon
    unit = 10.0 ** (math.floor(math.log10(epsilon)) - 4)
    return float(f"{math.ceil(epsilon / unit - 1e-9) * unit:.5g}")


@dataclass(frozen=True, eq=False)
class _Planned:
    setting: Setting
    options: argparse.Namespace
    study: PowerFlow
    plan: dp.Plan


def _planned(
    command: argparse.ArgumentParser, arguments: Sequence[str], setting: Setting
) -> _Planned:
    given = [f"--{name}={value}" for name, value in setting]
    options = command.parse_args([*arguments, *given])
    study = study_of(options)
    return _Planned(setting, options, study, plan_of(study, options))


def _noiseless(study: PowerFlow, plan: dp.Plan, options: argparse.Namespace) -> float | None:
    """Return the true objective of the plan's method without noise; None if it needs noise."""
    try:
        silent = study.problem.plan(
            plan.algorithm,
            mechanism=None,
            rounds=plan.rounds,
            constraints="released" if released(study, options) else "true",
        )
        return measure(study, silent.run(), own=False).outcome.objective
    except dp.DpcvxError:
        return None


def _cell(setting: Setting, rounds: int, lines: Sequence[Mapping[str, Any]], unit: str) -> Cell:
    first = lines[0]
    return Cell(
        setting,
        epsilon=math.inf if first["epsilon"] is None else first["epsilon"],
        delta=first["delta"],
        rounds=rounds,
        objectives=tuple(line["objective"] for line in lines),
        own=tuple(_or_nan(line["own"]) for line in lines),
        missing=tuple(line["missing_mw"] for line in lines),
        optimum=_or_nan(first["optimum"]),
        start=_or_nan(first["start"]),
        noiseless=_or_nan(first["noiseless"]),
        unit=unit,
    )


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value


def _key(about: Mapping[str, Any], seed: int) -> tuple[str, str, int, str]:
    """Return the key of a run; with equal solver versions, runs of one key are bitwise equal."""
    plan, versions = about["plan"], about["versions"]
    return plan["fingerprint"], about["network"], seed, versions["dpcvx"]


def _stored(path: Path) -> dict[tuple[str, str, int, str], Mapping[str, Any]]:
    """Return the lines of a file by their keys; a partial last line is ignored."""
    if not path.exists():
        return {}
    remedy = "Name another file for the results of this sweep."
    content = text(path, path.name, dp.ModelError, remedy)
    whole = content[: content.rfind("\n") + 1]
    found = {}
    for number, line in enumerate(whole.splitlines(), 1):
        try:
            record = json.loads(line)
            found[_key(record, record["seed"])] = record
        except (ValueError, KeyError, TypeError):
            raise dp.ModelError(
                f"{path.name}: line {number} is no result of a sweep, so it is not known what the "
                f"file holds. {remedy}"
            ) from None
    if whole != content:
        path.write_text(whole, encoding="utf-8")
    return found


def _append(path: Path, record: Mapping[str, Any]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(record, allow_nan=False) + "\n")
