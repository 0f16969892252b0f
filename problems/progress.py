"""Progress bars on a terminal, and jobs in this process or in several."""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import TypeVar

from rich.progress import track

Job = TypeVar("Job")
Out = TypeVar("Out")


def with_bar(each: Iterable[Out], name: str, total: int | None = None) -> Iterator[Out]:
    """Yield the items in order, with a progress bar if output goes to a terminal."""
    silent = not sys.stdout.isatty()
    yield from track(each, name, total, transient=True, disable=silent)


def done(do: Callable[[Job], Out], jobs: Sequence[Job], workers: int, name: str) -> list[Out]:
    """Return the jobs' results in order, with a progress bar.

    Parameters
    ----------
    do : callable
        Function of a job; with several workers, it must be at a module's top level, since processes
        import it.
    jobs : sequence
        Arguments of the function.
    workers : int
        Number of processes; with 1, all jobs run in this process.
    name : str
        Label of the bar.
    """
    if workers == 1:
        return list(with_bar(map(do, jobs), name, len(jobs)))
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=spawn) as pool:
        return list(with_bar(pool.map(do, jobs), name, len(jobs)))
