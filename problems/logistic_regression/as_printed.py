"""Figures 5 and 6 of Ryu and Kim with noise scaled to the records at hand: no guarantee.

The study with a guarantee is `examples.ryu_kim_federated_learning`. Here noise is scaled to the
largest effect of a record present, as in the authors' code for FEMNIST, and totals are what the
steps would cost if this effect were a sensitivity. docs/papers/ryu_kim.md says which setting comes
from the text and which from the code. With ``--keep`` a killed run resumes with the result of an
uninterrupted run, and ``as_printed.json`` has the results so far, the commit and the command.

    python -m problems.logistic_regression.as_printed --plot out              # digits, 300 rounds
    python -m problems.logistic_regression.as_printed --full --data FOLDER --keep out     # T = 5000
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import get_args

import numpy as np

from .. import pictures
from ..commands import add_plot, count, folder, in_words, positive
from ..papers import entry
from ..progress import with_bar
from ..provenance import commit, versions
from . import settings
from .dataset import Dataset
from .figures import as_printed
from .kept import digest, traced
from .printed import Curve, Noise, Setting, Trace
from .sources import read_dataset

_COMMAND = "python -m problems.logistic_regression.as_printed"


def setting(dataset: Dataset, agents: int = 10) -> Setting:
    """Return the setting with box, penalties and division as in the paper.

    Parameters
    ----------
    dataset : Dataset
        The records.
    agents : int
        Number of agents P, if writers are not the agents.
    """
    own = settings.setting(dataset, agents)
    return Setting(dataset, own.base.of(dataset), own.box, own.penalty)


def curves(epsilons: Sequence[float], updates: Sequence[int]) -> list[Curve]:
    """Return the curves of a figure, the one without noise last.

    Parameters
    ----------
    epsilons : sequence of float
        Budgets per local update.
    updates : sequence of int
        Numbers of local updates per round, E.
    """
    noisy = [
        Curve(noise, epsilon, e)
        for epsilon in epsilons
        for e in updates
        for noise in get_args(Noise)
    ]
    return [*noisy, Curve("ObjG", None, max(updates))]


def table(own: Setting, found: Mapping[Curve, Trace]) -> str:
    """Return a table of every curve's measurements in the last round, with total epsilons.

    Parameters
    ----------
    own : Setting
        Records and their division.
    found : mapping of Curve to Trace
        The measured curves.
    """
    lines = [
        f"{own.dataset.name}: {own.total} records, {len(own.parts)} agents, text and code: noise "
        "scaled to the records, NO GUARANTEE. Totals, at 1e-6, are what the steps would cost "
        "if it were not.",
        f"{'':<32}{'rounds':>7}{'noise (32)':>12}{'cost':>8}{'error':>8}{'claimed':>10}"
        f"{'composed':>10}",
    ]
    for curve, trace in found.items():
        T = int(trace.rounds[-1])
        totals = "".join(f"{epsilon:>10.3g}" for epsilon in curve.totals(T))
        lines.append(
            f"  {curve!s:<30}{T:>7}{trace.magnitude[-1]:>12.3g}{trace.cost[-1]:>8.3f}"
            f"{trace.error[-1]:>8.3f}{totals if curve.epsilon is not None else ''}"
        )
    return "\n".join(lines)


def as_json(own: Setting, found: Mapping[Curve, Trace], command: str) -> dict[str, object]:
    """Return the content of ``as_printed.json``.

    Parameters
    ----------
    own : Setting
        Records and their division.
    found : mapping of Curve to Trace
        The measured curves.
    command : str
        Command that started the study.
    """
    return {
        "command": command,
        "commit": commit(),
        "versions": versions(),
        "records": {"count": own.total, "agents": len(own.parts), "digest": digest(own)},
        "curves": [
            {
                "noise": curve.noise,
                "epsilon": curve.epsilon,
                "updates": curve.updates,
                "totals": None if curve.epsilon is None else curve.totals(int(trace.rounds[-1])),
                "rounds": trace.rounds.tolist(),
                "magnitude": np.round(trace.magnitude, 8).tolist(),
                "cost": np.round(trace.cost, 6).tolist(),
                "error": np.round(trace.error, 6).tolist(),
            }
            for curve, trace in found.items()
        ],
    }


def from_json(stored: Mapping[str, object]) -> dict[Curve, Trace]:
    """Return the traces in the content that `as_json` made."""
    curves = stored["curves"]
    assert isinstance(curves, list)
    return {
        Curve(own["noise"], own["epsilon"], own["updates"]): Trace.of(
            np.array([own["rounds"], own["magnitude"], own["cost"], own["error"]], dtype=float).T
        )
        for own in curves
    }


def main(arguments: Sequence[str] | None = None) -> dict[Curve, Trace]:
    """Run or resume the study, print its table and draw its figure."""
    parser = argparse.ArgumentParser(prog=_COMMAND)
    parser.add_argument("--data", default="digits", help="as of ryu_kim_federated_learning")
    parser.add_argument("--full", action="store_true", help="all budgets and E, T = 5000")
    parser.add_argument("--rounds", type=count(), help="T (300, with --full 5000)")
    parser.add_argument("--epsilon", type=positive, nargs="+", help="budgets per local update")
    parser.add_argument("--updates", type=count(), nargs="+", help="E")
    parser.add_argument("--keep", type=folder, metavar="DIR", help="go on with what is there")
    parser.add_argument("--redraw", type=Path, nargs="+", metavar="FILE",
                        help="draw the longest curves in these files, and run none")  # fmt: skip
    add_plot(parser, "the figure")
    options = parser.parse_args(arguments)
    rounds = options.rounds or (entry("ryu_kim", "rounds").whole("T") if options.full else 300)
    budgets = entry("ryu_kim", "budgets").numbers("epsilon")
    epsilons = options.epsilon or (budgets if options.full else (budgets[0], budgets[-1]))
    updates = options.updates or ([1, 5, 10] if options.full else [1, 5])
    with in_words(parser):
        traces: dict[Curve, Trace] = {}
        if options.redraw:
            for file in options.redraw:
                for curve, trace in from_json(json.loads(file.read_text())).items():
                    if curve not in traces or trace.rounds[-1] > traces[curve].rounds[-1]:
                        traces[curve] = trace
            _draw(traces, "stored curves", options)
            return traces
        study = setting(read_dataset(options.data))
        for curve in with_bar(curves(epsilons, updates), "curves"):
            traces[curve] = traced(study, curve, rounds, options.keep)
            if options.keep is not None:
                said = sys.argv[1:] if arguments is None else arguments
                stored = as_json(study, traces, " ".join([_COMMAND, *said]))
                Path(options.keep / "as_printed.json").write_text(json.dumps(stored, indent=1))
        print(table(study, traces))
        _draw(traces, f"{study.dataset.name}, {len(study.parts)} agents", options)
    return traces


def _draw(traces: Mapping[Curve, Trace], name: str, options: argparse.Namespace) -> None:
    """Write the figure to the folder of ``--plot``, if there is one."""
    if options.plot:
        drawn = {"ryu_kim_learning_as_printed": as_printed(traces, name)}
        pictures.announce(drawn, options.plot, options.format)


if __name__ == "__main__":
    main()
