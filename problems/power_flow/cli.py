"""Command line of the power-flow study: plan, run, and show what came out."""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import dpcvx as dp
from dpcvx.algorithms.steps import StepRule

from .. import pictures
from ..commands import MOST, sentence
from ..files import check_folder
from .options import DELTA, EPSILON, PERTURB, STEP_DELTA, parser
from .report import (
    Outcome,
    after_recourse,
    assess,
    objective_unit,
    table,
    violations,
)
from .solution import State, central, network_state
from .study import PowerFlow, power_flow
from .tables import result_tables, write_tables

# Below this an optimum or a gap is 0 up to the accuracy of the solver.
_ZERO = 1e-6
# Methods by their names on the command line, with the settings that they take.
_METHODS: dict[str, tuple[Callable[..., dp.Algorithm], tuple[str, ...]]] = {
    "linearized": (dp.LinearizedADMM, ("penalty", "step", "local_updates", "perturb")),
    "admm": (dp.ADMM, ("penalty",)),
    "central": (dp.Central, ()),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit status."""
    command = parser()
    options = command.parse_args(arguments)
    try:
        _check(options)
        if options.central:
            return _central(options)
        return _distributed(options)
    except (dp.DpcvxError, OSError) as error:
        print(f"{command.prog}: {sentence(error)}", file=sys.stderr)
        return 2


@dataclass(frozen=True, eq=False)
class _Run:
    """A run, what it left in the variables, and how that fares with the true loads."""

    result: dp.Result
    state: State
    outcome: Outcome
    recourse: float | None


def _check(options: argparse.Namespace) -> None:
    """Refuse what cannot be written, or makes no sense, before a run spends privacy."""
    for name in ("rounds", "local_updates", "seeds"):
        if (getattr(options, name) or 0) > MOST:
            raise dp.ModelError(
                f"--{name.replace('_', '-')} is larger than {MOST}, which would never end; write "
                "a smaller number."
            )
    if (options.seed or 0) >= 2**63:
        raise dp.ModelError("--seed is larger than 2**63; write a smaller number.")
    if options.json:
        target = Path(options.json)
        if os.path.isdir(target) or not os.path.isdir(target.parent):
            raise dp.ModelError(
                f"--json {options.json} is no file in an existing folder; the result could not be "
                "kept."
            )
        check_folder(target.parent, "--json: the folder")
        try:
            # A name that the system does not take fails here, not after the run.
            os.stat(target)
        except FileNotFoundError:
            pass
        except (OSError, ValueError):
            raise dp.ModelError(
                f"--json {options.json!r:.200} is no name for a file: it is too long, or has a "
                "zero byte. Write another one."
            ) from None
    if options.tables is not None:
        check_folder(Path(options.tables), "--tables")
    if not options.central:
        _check_privacy(options)
    if options.seeds is None:
        return
    if options.seeds < 1:
        raise dp.ModelError(
            f"--seeds {options.seeds} leaves no run to make; write a number of at least 1."
        )
    if options.ledger or options.central:
        raise dp.ModelError(
            "--seeds repeats one plan for study, with known noise: drop "
            f"{'--ledger, which is for runs that count' if options.ledger else '--central'}, "
            "or drop --seeds."
        )


def _check_privacy(options: argparse.Namespace) -> None:
    """Refuse budgets where nothing is private, and --violation with what cannot keep it."""
    if options.violation is None:
        budget = (options.epsilon, options.delta, options.step_epsilon, options.step_delta)
        if options.objective == "cost" and budget != (None, None, None, None):
            raise dp.PrivacyError(
                "With --objective cost nothing is private unless --violation says how surely loads "
                "are covered, so a budget would protect nothing. Add --violation 0.1, or drop the "
                "privacy options."
            )
        return
    if options.objective != "cost":
        raise dp.PrivacyError(
            "--violation is the probability with which private loads may be left uncovered at "
            "least cost. Add --objective cost, or drop --violation."
        )
    if options.perturb not in (None, "once"):
        raise dp.PrivacyError(
            "--violation is about loads that leave once with noise, which --perturb "
            f"{options.perturb} is not. Write --perturb once, or drop one of the two."
        )


def _central(options: argparse.Namespace) -> int:
    study = power_flow(
        options.case,
        objective=options.objective,
        load_scale=options.load_scale,
        equivalents=options.equivalents,
    )
    started = time.perf_counter()
    solved = central(study.case, options.objective, options.load_scale)
    if not options.quiet:
        print(f"{study.case.name}: central solve with all loads in one place, no privacy")
        print(f"status {solved.status}, objective {solved.value:.8g} {objective_unit(study)[0]}")
        _note_equivalents(study)
    if options.json:
        _write_json(
            options.json,
            {
                "case": study.case.name,
                "status": solved.status,
                "objective": solved.value,
                "consensus_residual": 0.0,
                "max_violation": max(violations(study.case, solved.state).values()),
                "rounds": 0,
                "seconds": time.perf_counter() - started,
                "guarantee": {"epsilon": None, "delta": None, "kind": "none"},
            },
        )
    _write_tables(study, solved.state, options, private=False)
    return 0


def _distributed(options: argparse.Namespace) -> int:
    study = power_flow(
        options.case,
        zones=int(options.zones)
        if re.fullmatch("[0-9]{1,9}", options.zones or "")
        else options.zones,
        objective=options.objective,
        load_scale=options.load_scale,
        radius=options.radius,
        hidden=options.hide,
        shared=options.shared,
        equivalents=options.equivalents,
        private=True if options.violation is not None else None,
    )
    plan = _plan(study, options)
    if options.seeds is None:
        runs = [_run(study, plan, options, options.seed, verbose=not options.quiet)]
    else:
        first = 0 if options.seed is None else options.seed
        seeds = range(first, first + options.seeds)
        runs = [_run(study, plan, options, seed, verbose=False) for seed in seeds]
    optimum = None
    if options.json or options.plot or not options.quiet:
        optimum = _optimum(study)
    if not options.quiet:
        if options.seeds is not None:
            print(f"guarantee of every run: {runs[0].result.guarantee}\n\nthe first run,")
        print(table(study, runs[0].outcome))
        print(_comparison(study, runs, optimum))
        _note_equivalents(study)
    if options.json:
        _write_json(options.json, _as_json(study, runs, optimum))
    if options.plot:
        _plot(study, plan, runs, optimum, options)
    guarded = runs[0].result.guarantee.kind != "none"
    _write_tables(study, runs[0].state, options, private=guarded)
    return 0


def _run(
    study: PowerFlow, plan: dp.Plan, options: argparse.Namespace, seed: int | None, verbose: bool
) -> _Run:
    result = plan.run(
        seed=seed, ledger=options.ledger, verbose=verbose, iterates=options.plot is not None
    )
    state = network_state(study.case, study.zones, study.variables)
    looked_at = options.json or not options.quiet
    recourse = after_recourse(study, result) if looked_at else None
    return _Run(result, state, assess(study, result), recourse)


def _optimum(study: PowerFlow) -> float | None:
    """Optimal value with all loads in one place, if there is one."""
    try:
        return central(study.case, study.objective, study.load_scale).value
    except dp.SolverError:
        return None


def _comparison(study: PowerFlow, runs: Sequence[_Run], optimum: float | None) -> str:
    """Text on the optimum and the gaps to it, labelled as what it is."""
    if optimum is None:
        return "  central optimum: not found, the loads may not be servable (not private)"
    lines = [
        f"  central optimum {_shown(optimum)} {objective_unit(study)[0]} (not private: solved with "
        "all loads)"
    ]
    lines += _gap_lines("gap to it", [run.outcome.objective for run in runs], optimum)
    own = [run.recourse for run in runs if run.recourse is not None]
    if own:
        lines += _gap_lines("gap with result.own in every zone", own, optimum)
    return "\n".join(lines)


def _gap_lines(what: str, values: Sequence[float], optimum: float) -> list[str]:
    """What objectives are above the optimum: of one run, or quartiles of several."""
    low, middle, high = _gaps(values, optimum)
    shown = f"{_shown(middle)}{_relative(middle, optimum)}"
    if len(values) == 1:
        return [f"  {what} {shown} (not private)"]
    return [
        f"  {what} over {len(values)} seeds: median {shown}, quartiles {_shown(low)} and "
        f"{_shown(high)} (not private, not for release)"
    ]


def _gaps(values: Sequence[float], optimum: float) -> list[float]:
    """Quartiles of objective minus optimum; zones that disagree can make it negative."""
    return [float(gap) for gap in np.quantile(np.array(values) - optimum, (0.25, 0.5, 0.75))]


def _shown(value: float) -> str:
    return f"{value:.6g}" if abs(value) > _ZERO else "0"


def _relative(gap: float, optimum: float) -> str:
    # At nominal loads the optimum of "shed" is 0 up to the solver's accuracy.
    return f" ({100 * gap / optimum:.3g} %)" if min(abs(optimum), abs(gap)) > _ZERO else ""


def _note_equivalents(study: PowerFlow) -> None:
    rows = study.case.equivalents
    if rows:
        more = f" and {len(rows) - 5} more" if len(rows) > 5 else ""
        print(
            f"note: branch rows {', '.join(map(str, rows[:5]))}{more} have negative resistances, "
            "from which the relaxation may draw power: generation and cost may be too low"
        )


def _plot(
    study: PowerFlow,
    plan: dp.Plan,
    runs: Sequence[_Run],
    optimum: float | None,
    options: argparse.Namespace,
) -> None:
    from .bands import convergence_bands
    from .figures import write_figures

    folder, formats = options.plot, options.format
    written = write_figures(
        study, runs[0].result, runs[0].outcome, folder, formats=formats, optimum=optimum
    )
    if options.seeds is not None and plan.rounds > 1:
        noise = "none" if options.perturb == "none" else plan.release
        name = f"{study.case.name}, {type(plan.algorithm).__name__}, noise: {noise}"
        bands = convergence_bands({name: [run.result for run in runs]})
        written += pictures.write({"bands": bands}, folder, formats)
    _announce(written, options)


def _write_tables(
    study: PowerFlow, state: State, options: argparse.Namespace, private: bool
) -> None:
    if options.tables:
        load = study.load_scale * study.case.load
        tables = result_tables(study.case, state, load, private=private)
        _announce(write_tables(tables, Path(options.tables)), options)


def _announce(paths: Sequence[Path], options: argparse.Namespace) -> None:
    for path in () if options.quiet else paths:
        print(f"wrote {path}")


def _plan(study: PowerFlow, options: argparse.Namespace) -> dp.Plan:
    mechanism, epsilon, delta = _privacy(options)
    return study.problem.plan(
        _algorithm(options),
        mechanism=mechanism,
        rounds=options.rounds,
        epsilon=epsilon,
        delta=delta,
        release={None: None, "none": None, "once": "once"}.get(options.perturb, "each step"),
        violation=options.violation,
    )


def _algorithm(options: argparse.Namespace) -> dp.Algorithm | None:
    """The method that is named, or the one that other options are for; None to have it chosen."""
    given: dict[str, Any] = _given(
        penalty=options.penalty,
        step=None if options.step is None else _step(options.step),
        local_updates=options.local_updates,
        perturb=PERTURB.get(options.perturb),
    )
    if options.algorithm is None and options.step_epsilon is None and not given:
        return None
    name = options.algorithm or "linearized"
    method, takes = _METHODS[name]
    for extra in (setting for setting in given if setting not in takes):
        flag = f"--{extra.replace('_', '-')} {getattr(options, extra)}"
        raise dp.ModelError(
            f"{flag} is no setting of --algorithm {name}, so it would change nothing; drop one of "
            "the two."
        )
    return method(**given)


def _given(**values: object) -> dict[str, object]:
    """Those that were given; the method fills in the others."""
    return {name: value for name, value in values.items() if value is not None}


def _privacy(
    options: argparse.Namespace,
) -> tuple[dp.Gaussian | dp.Laplace | str | None, float | None, float | None]:
    """Mechanism and total budget from the options."""
    if options.perturb == "none":
        if (options.epsilon, options.delta, options.step_epsilon) != (None, None, None):
            raise dp.PrivacyError(
                "--perturb none switches the noise off, so there is no epsilon to state. Drop the "
                "privacy options, or --perturb none."
            )
        return None, None, None
    if options.step_epsilon is None:
        if options.step_delta is not None:
            raise dp.PrivacyError("--step-delta needs --step-epsilon: give both or neither.")
        epsilon = EPSILON if options.epsilon is None else options.epsilon
        return options.mechanism, epsilon, DELTA if options.delta is None else options.delta
    if options.epsilon is not None:
        raise dp.PrivacyError(
            "--epsilon states the total and --step-epsilon the level of one local update: they "
            "would fix the noise twice. Drop one; the total is printed either way."
        )
    step_delta = STEP_DELTA if options.step_delta is None else options.step_delta
    if options.mechanism == "laplace":
        level: dp.Gaussian | dp.Laplace = dp.Laplace(step_epsilon=options.step_epsilon)
    else:
        level = dp.Gaussian(
            step_epsilon=options.step_epsilon, step_delta=step_delta, calibration="classical"
        )
    return level, None, step_delta if options.delta is None else options.delta


def _step(text: str) -> StepRule | float:
    if text == "sqrt":
        return dp.steps.Sqrt()
    if text == "smooth":
        return dp.steps.Smooth()
    if text == "1/L":
        return dp.steps.Constant()
    try:
        return float(text)
    except ValueError:
        raise dp.ModelError(
            f"--step {text} is unknown; write sqrt, smooth, 1/L or a number."
        ) from None


def _as_json(study: PowerFlow, runs: Sequence[_Run], optimum: float | None) -> dict[str, object]:
    result, outcome = runs[0].result, runs[0].outcome
    guarantee = result.guarantee
    objectives = [run.outcome.objective for run in runs]
    own = [run.recourse for run in runs if run.recourse is not None]
    finite = math.isfinite(guarantee.epsilon)
    return {
        "case": study.case.name,
        "zones": list(study.zones.names),
        "status": result.status.name.lower(),
        "objective": outcome.objective,
        "consensus_residual": result.consensus_residual,
        "max_violation": result.max_violation,
        "rounds": result.rounds,
        "seconds": result.seconds,
        "guarantee": {
            "epsilon": guarantee.epsilon if finite else None,
            "delta": guarantee.delta,
            "kind": guarantee.kind,
            "mechanism": guarantee.mechanism,
            "accountant": guarantee.accountant,
            "observer": guarantee.observer,
            "assumptions": list(guarantee.assumptions),
        },
        "reported": result.reported,
        "zone_imbalance": {
            zone.name: {"mw": zone.active, "mvar": zone.reactive} for zone in outcome.zones
        },
        "optimum": optimum,
        "runs": len(runs),
        "gap_quartiles": None if optimum is None else _gaps(objectives, optimum),
        "gap_quartiles_after_recourse": None if optimum is None or not own else _gaps(own, optimum),
        "not_private": [
            "objective",
            "zone_imbalance",
            "optimum",
            "gap_quartiles",
            "gap_quartiles_after_recourse",
        ],
    }


def _write_json(path: str, content: dict[str, object]) -> None:
    Path(path).write_text(json.dumps(content, indent=1, allow_nan=False) + "\n")
