"""What an owner sees of a run while it goes on."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack, suppress
from types import TracebackType
from typing import Self

from .._words import number, plural
from ..run.report import share_line
from .agreement import Agreement


def telling(verbose: bool) -> Callable[[str], None]:
    """What writes a line to standard error, or nothing.

    What cannot be written costs no run.
    """

    def tell(line: str) -> None:
        if verbose:
            with suppress(OSError, ValueError, AttributeError):  # closed, or there is none
                sys.stderr.write(f"{line}\n")
                sys.stderr.flush()

    return tell


class Shown:
    """Says once that all have agreed, and shows how far the run is, where there is a terminal.

    Parameters
    ----------
    verbose : bool
    """

    def __init__(self, verbose: bool) -> None:
        self.tell, self._verbose = telling(verbose), None if verbose else False
        self._tick: Callable[[float], None] | None = None
        self._line = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._line.__exit__(kind, error, trace)

    def round(self, agreed: Agreement, t: int, rounds: int) -> None:
        """A round begins.

        Parameters
        ----------
        agreed : Agreement
        t : int
            From 1.
        rounds : int
            That there are.
        """
        many = plural(rounds, "round")
        if self._tick is None:
            costs = f"epsilon {number(agreed.epsilon)} at delta {number(agreed.policy.delta)}"
            self.tell(f"all have agreed: {many}, which cost at most {costs} in all")
            self._tick = self._line.enter_context(share_line(many, self._verbose))
        self._tick((t - 1) / rounds)
