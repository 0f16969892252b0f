"""Command line of the power-flow study: plan, run, and print the results."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import dpcvx as dp
from dpcvx._words import plural

from .. import pictures
from ..commands import MOST, sentence
from ..files import check_folder
from ..provenance import commit, versions
from .ac import checked
from .errors import CaseWarning
from .measured import Run, as_json, breaks, gaps, measure, optimum, together
from .options import in_options, parser
from .planning import objective_of, plan_of, private_of, study_of
from .provenance import provenance
from .ptdf import Form
from .relaxed import relaxation
from .report import BOUND, ac_line, nature, objective_unit, violations
from .schedule import hourly_tables, hourly_totals
from .solution import State, central
from .study import PowerFlow
from .sweep import Setting, summary, sweep
from .tables import Table, study_tables, write_tables
from .writer import write_set_points

# Optima and gaps below this count as 0, because of the solver's accuracy.
_ZERO = 1e-6


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command, and return its exit status."""
    command = parser()
    words = sys.argv[1:] if arguments is None else list(arguments)
    options = command.parse_args(words)
    try:
        with _noted(options.quiet):
            _check(options)
            if options.over:
                return _sweep(options, command, words)
            if options.central:
                return _central(options)
            return _distributed(options)
    except (dp.DpcvxError, OSError) as error:
        text = in_options(sentence(error), vars(options))
        print(f"{command.prog}: {text}", file=sys.stderr)
        return 2


@contextmanager
def _noted(quiet: bool) -> Iterator[None]:
    """Print warnings on network files as notes, each once."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore" if quiet else "always", CaseWarning)
        usual, told = warnings.showwarning, set[str]()

        def show(message: Warning | str, category: type[Warning], *where: Any) -> None:
            if not issubclass(category, CaseWarning):
                usual(message, category, *where)
            elif str(message) not in told:
                told.add(str(message))
                print(f"note: {message}")

        warnings.showwarning = show
        yield


def _check(options: argparse.Namespace) -> None:
    """Refuse invalid options and files that cannot be written, before a run costs privacy."""
    for name in ("rounds", "local_updates", "seeds"):
        if (getattr(options, name) or 0) > MOST:
            raise dp.ModelError(
                f"--{name.replace('_', '-')} is larger than {MOST}, which would never end; write "
                "a smaller number."
            )
    if (options.seed or 0) >= 2**63:
        raise dp.ModelError("--seed is larger than 2**63; write a smaller number.")
    for flag, given in (("--json", options.json), ("--set-points", options.set_points)):
        if given:
            _check_file(flag, given)
    if options.tables is not None:
        check_folder(Path(options.tables), "--tables")
    _check_privacy(options)
    if options.set_points and (options.horizon > 1 or options.model != "soc"):
        raise dp.ModelError(
            "--set-points writes an AC power flow of one hour: drop it, or write --model soc "
            "and no --horizon."
        )
    if options.set_points and not options.central and options.private in ("bids", "capacities"):
        raise dp.PrivacyError(
            f"--set-points keeps the costs and limits of the file, but --private {options.private} "
            "keeps some of them private. Drop one of the two."
        )
    if options.over and (options.central or options.ledger):
        raise dp.ModelError(
            "--over repeats runs for study, with known noise: drop "
            f"{'--central' if options.central else '--ledger, which is for runs that count'}, or "
            "drop --over."
        )
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


def _check_file(flag: str, given: str) -> None:
    """Refuse a file that could not be written after the run."""
    target = Path(given)
    if os.path.isdir(target) or not os.path.isdir(target.parent):
        raise dp.ModelError(
            f"{flag} {given} is no file in an existing folder; the result could not be kept."
        )
    check_folder(target.parent, f"{flag}: the folder")
    try:
        # An invalid file name fails here, and not after the run.
        os.stat(target)
    except FileNotFoundError:
        pass
    except (OSError, ValueError):
        raise dp.ModelError(
            f"{flag} {given!r:.200} is no name for a file: it is too long, or has a zero byte. "
            "Write another one."
        ) from None


def _check_privacy(options: argparse.Namespace) -> None:
    """Refuse budgets without private data, and chance constraints that no option supports."""
    if options.prior is not None and (
        options.central or options.perturb == "none" or private_of(options) != "loads"
    ):
        raise dp.PrivacyError(
            "--prior applies to loads that are released with noise, but this plan releases none. "
            "Drop it."
        )
    if options.central:
        for name in (
            "epsilon",
            "delta",
            "release_epsilon",
            "release_delta",
            "violation_probability",
        ):
            if getattr(options, name) is not None:
                raise dp.PrivacyError(
                    "--central solves with all loads in one place and protects nothing, so "
                    f"--{name.replace('_', '-')} would change nothing. Drop it; or drop "
                    "--central. With --algorithm central, the server solves once for the data "
                    "that were released with noise."
                )
        return
    if options.violation_probability is None:
        if private_of(options) is not None:
            return
        budget = (options.epsilon, options.delta, options.release_epsilon, options.release_delta)
        if budget != (None, None, None, None):
            raise dp.PrivacyError(
                "With --objective cost nothing is private without --violation-probability or "
                "--private, so a budget would protect nothing. Add --violation-probability 0.1, "
                "or drop the privacy options."
            )
        return
    if objective_of(options) != "cost" or private_of(options) in (None, "bids"):
        raise dp.PrivacyError(
            "--violation-probability is the probability with which private loads may be left "
            "uncovered at least cost. Add --objective cost, or drop --violation-probability."
        )
    for name in ("penalty", "step", "local_updates", "release_epsilon", "rounds"):
        if getattr(options, name) is not None:
            raise dp.PrivacyError(
                f"--{name.replace('_', '-')} is for methods of several rounds, but "
                "--violation-probability needs one solve by the server. Drop one of the two."
            )
    if options.algorithm not in (None, "central"):
        raise dp.PrivacyError(
            f"--algorithm {options.algorithm} lets agents satisfy their own constraints, but "
            "--violation-probability needs one solve by the server. Write --algorithm central, "
            "or drop one of the two."
        )
    if options.perturb not in (None, "once"):
        raise dp.PrivacyError(
            "--violation-probability applies to loads that are released once with noise, but "
            f"--perturb {options.perturb} adds noise in other ways. Write --perturb once, or drop "
            "one of the two."
        )


def _central(options: argparse.Namespace) -> int:
    study = study_of(options)
    started = time.perf_counter()
    setting = study.setting
    if setting.is_plain_soc:
        solved = central(study.case, study.objective, options.load_scale, cuts=setting.cuts)
        value, status, states = solved.value, solved.status, (solved.state,)
        relaxed = relaxation(study.case, solved.state)
    else:
        value, public = together(study)
        status, relaxed = "optimal", None
        states = tuple(public.state(hour) for hour in range(public.hours))
        study = public
    checks = [
        checked(study.case, state, study.net_load(hour), "true")
        for hour, state in enumerate(states)
    ]
    bounds = setting.kind == "soc" and status == "optimal"
    if not options.quiet:
        print(f"{study.case.name}: central solve with all data in one place, no privacy")
        unit = objective_unit(study)[0]
        print(f"status {status}, objective {value:.8g} {unit}{f', {BOUND}' if bounds else ''}")
        print(relaxed or nature(study)[1])
        print(ac_line(checks))
        _note_equivalents(study)
    if options.json:
        _write_json(
            options.json,
            {
                "case": study.case.name,
                "status": status,
                "objective": value,
                "objective_is": BOUND if bounds else None,
                "relaxation": None if relaxed is None else asdict(relaxed),
                "ac_check": checks[0].as_dict()
                if len(checks) == 1
                else [check.as_dict() for check in checks],
                "consensus_residual": 0.0,
                "max_violation": None
                if relaxed is None
                else max(violations(study.case, states[0]).values()),
                "rounds": 0,
                "seconds": time.perf_counter() - started,
                "guarantee": {"epsilon": None, "delta": None, "kind": "none"},
            }
            | provenance(options, study.case, None, study.zones),
        )
    if options.tables:
        loads = [study.net_load(hour) for hour in range(study.hours)]
        words = str(relaxed or nature(study)[1])
        tables = study_tables(study, states, loads, note=words, private=False)
        if study.hours > 1:
            tables += hourly_tables(study, states, checks=checks, note=words, private=False)
        _write(tables, options, provenance(options, study.case, None, study.zones))
    _write_set_points(study, states[0], options)
    return 0


def _sweep(
    options: argparse.Namespace, command: argparse.ArgumentParser, words: Sequence[str]
) -> int:
    first = options.seed or 0

    def told(setting: Setting, stored: bool) -> None:
        if not options.quiet:
            named = ", ".join(f"{name} {value}" for name, value in setting)
            print(f"{named}: {'stored before' if stored else 'run'}")

    cells = sweep(
        command,
        words,
        options.over,
        range(first, first + (options.seeds or 1)),
        None if options.json is None else Path(options.json),
        told,
    )
    found = summary(cells)
    if not options.quiet:
        print(found)
    about = {"command": list(words), "versions": versions(), "commit": commit()}
    if options.tables:
        _write([found], options, about)
    if options.plot:
        from .figures import sweep_figure

        drawn = {"sweep": sweep_figure(cells)}
        written = pictures.write(drawn, options.plot, options.format, json.dumps(about))
        _announce(written, options)
    return 0


def _distributed(options: argparse.Namespace) -> int:
    study = study_of(options)
    plan = plan_of(study, options)
    if options.seeds is None:
        runs = [_run(study, plan, options, options.seed, verbose=not options.quiet)]
    else:
        first = 0 if options.seed is None else options.seed
        seeds = range(first, first + options.seeds)
        runs = [_run(study, plan, options, seed, verbose=False) for seed in seeds]
    best, about = None, provenance(options, study.public_case, plan, study.zones)
    if options.json or options.plot or not options.quiet:
        best = optimum(study)
    if not options.quiet:
        if options.seeds is not None:
            print(f"guarantee of every run: {runs[0].result.guarantee}\n\nthe first run,")
        print(runs[0].outcome)
        _note_shared(study)
        if runs[0].prices is not None:
            print(runs[0].prices)
        print(_comparison(study, runs, best))
        _note_equivalents(study)
    if options.json:
        _write_json(
            options.json,
            as_json(study, runs, best) | about,
        )
    if options.plot:
        _plot(study, plan, runs, best, options, json.dumps(about))
    guarded = runs[0].result.guarantee.kind != "none"
    _write_tables(study, runs[0], options, about, guarded)
    _write_set_points(study, runs[0].states[0], options)
    return 0


def _run(
    study: PowerFlow, plan: dp.Plan, options: argparse.Namespace, seed: int | None, verbose: bool
) -> Run:
    result = plan.run(
        seed=seed, ledger=options.ledger, verbose=verbose, iterates=options.plot is not None
    )
    own = bool(options.json or not options.quiet)
    return measure(study, result, own=own, draws=options.price_draws)


def _comparison(study: PowerFlow, runs: Sequence[Run], best: float | None) -> str:
    """Return a text on the optimum and the gaps to it, labeled as not private."""
    if best is None:
        return "  central optimum: not found, the loads may not be servable (not private)"
    lines = [
        f"  central optimum {_shown(best)} {objective_unit(study)[0]} (not private: solved with "
        "all loads):",
    ]
    if study.setting.kind == "soc":
        lines.append(f"  {BOUND}; a run with noise, or short of consensus, gives none")
    lines += _gap_lines("gap to it", [run.outcome.objective for run in runs], best)
    broken = breaks(runs)
    if broken is not None:
        lines.append(f"  private constraints broken in {broken} of {len(runs)} runs (not private)")
    own = [run.recourse for run in runs if run.recourse is not None]
    if own:
        lines += _gap_lines("gap with result.recourse in every zone", own, best)
    return "\n".join(lines)


def _gap_lines(what: str, values: Sequence[float], best: float) -> list[str]:
    """Return lines on the gaps of objectives: the gap of one run, or quartiles of several."""
    low, middle, high = gaps(values, best)
    shown = f"{_shown(middle)}{_relative(middle, best)}"
    if len(values) == 1:
        return [f"  {what} {shown} (not private)"]
    return [
        f"  {what} over {len(values)} seeds: median {shown}, quartiles {_shown(low)} and "
        f"{_shown(high)} (not private, not for release)"
    ]


def _shown(value: float) -> str:
    if abs(value) <= _ZERO:
        return "0"
    return f"{value:.0f}" if abs(value) >= 1e6 else f"{value:.6g}"


def _relative(gap: float, best: float) -> str:
    # At nominal loads the optimum of "shed" is 0 up to the solver's accuracy.
    return f" ({100 * gap / best:.3g} %)" if min(abs(best), abs(gap)) > _ZERO else ""


def _note_shared(study: PowerFlow) -> None:
    if study.setting.kind == "dc" and len(study.zones.names) > 1:
        numbers, form = study.shared_numbers, study.setting.form
        other: Form = "ptdf" if form == "angles" else "angles"
        print(
            f"zones share {plural(numbers[form], 'number')}; with --form {other}: {numbers[other]}"
        )


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
    runs: Sequence[Run],
    best: float | None,
    options: argparse.Namespace,
    about: str,
) -> None:
    from .bands import convergence_bands
    from .figures import write_figures

    folder, formats = options.plot, options.format
    written = write_figures(
        study,
        runs[0].result,
        runs[0].outcome,
        folder,
        states=runs[0].states,
        totals=hourly_totals(study.case, runs[0].states, runs[0].schedule, runs[0].prices),
        formats=formats,
        optimum=best,
        about=about,
    )
    if options.seeds is not None and plan.rounds > 1:
        noise = "none" if options.perturb == "none" else plan.release
        name = f"{study.case.name}, {type(plan.algorithm).__name__}, noise: {noise}"
        bands = convergence_bands({name: [run.result for run in runs]})
        written += pictures.write({"bands": bands}, folder, formats, about)
    _announce(written, options)


def _write_tables(
    study: PowerFlow,
    run: Run,
    options: argparse.Namespace,
    about: Mapping[str, object],
    private: bool,
) -> None:
    if not options.tables:
        return
    price = None if run.prices is None else run.prices.price
    note = run.outcome.nature
    tables = study_tables(study, run.states, run.loads, note=note, price=price, private=private)
    if study.hours > 1:
        checks = run.outcome.ac
        tables += hourly_tables(
            study, run.states, run.schedule, checks=checks, prices=run.prices, note=note,
            private=private,
        )  # fmt: skip
    _write(tables, options, about)


def _write(
    tables: Sequence[Table], options: argparse.Namespace, about: Mapping[str, object]
) -> None:
    folder = Path(options.tables)
    _announce(write_tables(tables, folder, options.table_format, about), options)


def _write_set_points(study: PowerFlow, state: State, options: argparse.Namespace) -> None:
    if options.set_points:
        path = write_set_points(options.set_points, options.case, study.case, state)
        _announce([path], options)


def _announce(paths: Sequence[Path], options: argparse.Namespace) -> None:
    for path in () if options.quiet else paths:
        print(f"wrote {path}")


def _write_json(path: str, content: dict[str, object]) -> None:
    Path(path).write_text(json.dumps(content, indent=1, allow_nan=False) + "\n")
