"""``python -m problems.papers``: print values of the papers, run and draw their figures."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from .. import pictures
from ..commands import add_plot, folder, in_words, some_of
from ..progress import with_bar
from . import ENTRIES, chan, ou, rows, ryu_kim, settings, xiao
from .studies import Study, draw

STUDIES: dict[str, Study] = {**chan.STUDIES, **ou.STUDIES, **ryu_kim.STUDIES, **xiao.STUDIES}
_COMMAND = "python -m problems.papers"


def main(arguments: Sequence[str] | None = None) -> None:
    """Print values, run figures, or draw figures from stored rows."""
    parser = argparse.ArgumentParser(
        prog=_COMMAND,
        description="Without --figure, prints the papers' values. With --figure and no --keep, "
        "reads the rows stored under --stored.",
    )
    names = some_of((name.lower() for name in STUDIES), "figure")
    parser.add_argument("--figure", type=names, help=f"of {', '.join(STUDIES)}")
    parser.add_argument("--keep", type=folder, metavar="DIR", help="run, and store the rows there")
    parser.add_argument("--short", action="store_true", help="fewer rounds and runs")
    parser.add_argument("--stored", type=Path, default=rows.STORED, help="where rows are read")
    add_plot(parser)
    options = parser.parse_args(arguments)
    if options.figure is None:
        for paper in ENTRIES:
            print(f"{paper}\n\n{settings(paper)}\n")
        return
    said = " ".join([_COMMAND, *(sys.argv[1:] if arguments is None else arguments)])
    figures = {}
    with in_words(parser):
        for name in with_bar(_named(options.figure), "figures"):
            study, path = STUDIES[name], (options.keep or options.stored) / f"{name}.jsonl"
            if options.keep is not None:
                scope = study.short if options.short else study.full
                rows.write(path, study.run(scope), said, asdict(scope))
            figures[name] = draw(study, rows.read(path)[1])
            print(f"{name}\n{settings(study.paper, *study.entries)}\n")
        if options.plot:
            pictures.announce(figures, options.plot, options.format)


def _named(lowered: Sequence[str]) -> list[str]:
    return [name for name in STUDIES if name.lower() in lowered]


if __name__ == "__main__":
    main()
