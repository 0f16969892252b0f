"""Reports of a run to its user: progress table, summary. Released values and public facts only.

A line of progress in a notebook, which goes away when the work is done.
"""

from __future__ import annotations

import math
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any, cast

from .._words import at_most, plural
from ..plan.banner import banner, row
from ..plan.guarantee import Guarantee
from ..plan.terms import Terms
from .history import Round
from .result import Result, headline, outcome_rows, spent_rows

if TYPE_CHECKING:
    from rich.console import Console

# Seconds before a line appears at all, and between two of its states.
PATIENCE, _PAUSE = 1.0, 0.25


def in_notebook() -> bool:
    """Return whether IPython shows HTML here, as in Jupyter, Colab, Spyder and Databricks.

    The publisher of a terminal is IPython's own, which writes text; a front end brings another.
    """
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    publisher = getattr(shell, "display_pub", None)
    if publisher is None:
        return False
    from IPython.core.displaypub import DisplayPublisher

    return getattr(type(publisher), "publish", None) is not DisplayPublisher.publish


def displayed(html: str) -> Any:
    """Show HTML in the notebook, and return what updates it."""
    from IPython.display import HTML, display

    return display(HTML(html), display_id=True)


class NotebookLine:
    """A bar with a text, for work that takes longer than a second.

    A failure to show the line does no harm: after the first failure the line is silent.

    Parameters
    ----------
    text : str
        Name of the counted things, such as "round".
    total : int
    unit : str
        Text after the total, such as " %".
    show : callable
        Shows HTML, and returns an object with ``update(HTML)``.
    clock : callable
    """

    def __init__(
        self,
        text: str,
        total: int,
        *,
        unit: str = "",
        show: Callable[[str], Any] = displayed,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._text, self._total, self._unit = text, total, unit
        self._show, self._clock = show, clock
        self._next = clock() + PATIENCE
        self._shown: Any = None
        self._broken = False

    def update(self, done: int) -> None:
        """Show how much is done, if it is time to."""
        if self._clock() < self._next:
            return
        self._next = self._clock() + _PAUSE
        bar = f'<progress value="{done}" max="{self._total}"></progress>'
        self._put(f"{self._text} {done}/{self._total}{self._unit} {bar}")

    def stop(self) -> None:
        """Remove the line."""
        if self._shown is not None:
            self._put("")

    def _put(self, html: str) -> None:
        if self._broken:
            return
        try:
            if self._shown is None:
                self._shown = self._show(html)
            else:
                self._shown.update(_Html(html))
        except Exception:
            self._broken = True


class _Html(str):
    """HTML for a display that is updated."""

    def _repr_html_(self) -> str:
        return str(self)


# About this many lines of progress, whatever the number of rounds.
_ROWS = 7


def _residual(value: float) -> str:
    """Return a residual in a table; a dash if it is not known."""
    if math.isnan(value):
        return "-"
    return "0" if value == 0 else f"{value:.2e}"


def wanted(verbose: bool | None) -> bool:
    """Return whether to print anything: as asked, else a line of progress on a terminal.

    A line in a notebook is no print: see `NotebookLine`.
    """
    if verbose is not None:
        return verbose
    try:
        return sys.stdout.isatty()
    except (AttributeError, ValueError):  # there is no output, as under pythonw, or it is closed
        return False


class _Stream:
    """A stream that takes everything, and passes on what it can until the first failure."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._broken = False

    def __getattr__(self, name: str) -> Any:
        """Return whether it is a terminal, its encoding and the like."""
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write text; letters that the stream lacks become question marks."""
        self._attempt(self._write, text)
        return len(text)

    def flush(self) -> None:
        """Flush the stream underneath."""
        self._attempt(self._flush)

    def _flush(self) -> None:
        self._stream.flush()

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
        except UnicodeEncodeError as error:
            self._stream.write(text.encode(error.encoding, "replace").decode(error.encoding))

    def _attempt(self, call: Callable[..., object], *arguments: str) -> None:
        if self._broken:
            return
        try:
            call(*arguments)
        except Exception:
            self._broken = True


def screen(shown: bool) -> Console:
    """Return a console on standard output, or on nothing; see `Reporter` on failures to write."""
    from rich.console import Console

    shown = shown and sys.stdout is not None
    stream = cast("IO[str]", _Stream(sys.stdout)) if shown else None
    return Console(
        file=stream,
        quiet=not shown,
        highlight=False,
        soft_wrap=True,
        force_jupyter=False,
        # By itself, rich takes notebooks and logs with FORCE_COLOR for terminals.
        force_terminal=wanted(None),
    )


@contextmanager
def share_line(name: str, verbose: bool | None) -> Iterator[Callable[[float], None]]:
    """Show a line of progress, on a terminal or in a notebook; it takes the share done.

    Parameters
    ----------
    name : str
        Name of a search, or of an owner's part in a run.
    verbose : bool or None
        Verbosity, as for runs: see `wanted`.
    """
    from rich.progress import BarColumn, Progress, TextColumn

    notebook = verbose is not False and in_notebook()
    line = NotebookLine(name, 100, unit=" %") if notebook else None
    shown = wanted(verbose) and line is None
    with Progress(TextColumn(name), BarColumn(), console=screen(shown), disable=not shown) as bar:
        task = bar.add_task("", total=1.0)

        def tick(part: float) -> None:
            bar.update(task, completed=min(part, 1.0))
            if line is not None:
                line.update(math.floor(100 * min(part, 1.0)))

        try:
            yield tick
            tick(1.0)
        finally:
            if line is not None:
                line.stop()


@contextmanager
def busy_line(
    text: str, verbose: bool | None = None, *, patience: float = PATIENCE
) -> Iterator[None]:
    """Show a line on a terminal for work without a known share done, until the work ends.

    It says what is done and for how long, and moves.

    Parameters
    ----------
    text : str
    verbose : bool or None
        Verbosity, as for runs, but nothing is shown without a terminal.
    patience : float
        Seconds before the line appears: work that takes less shows nothing.
    """
    if verbose is False or not wanted(None):
        yield
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    line = Progress(*columns, console=screen(True), transient=True)
    line.add_task(text, total=None)
    later = threading.Timer(patience, line.start)
    later.daemon = True
    later.start()
    try:
        yield
    finally:
        later.cancel()
        later.join()  # or the line could appear after the end
        if line.live.is_started:
            line.stop()


class Reporter:
    """Prints banner, progress table and summary of one run, a line of progress, or nothing.

    The line stands on a terminal, or in a notebook, while the run goes on, and then goes away.

    A failure to write must not end the run, which spends budget and cannot be repeated. After the
    first error (a full disk, a closed pipe, letters that a terminal does not have) it is silent.
    Interrupts pass.
    """

    def __init__(
        self, plan: Terms, verbose: bool | None, guarantee: Guarantee, notes: Sequence[str] = ()
    ) -> None:
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        self._plan = plan
        self._guarantee = guarantee
        self._notes = notes
        self._console = screen(wanted(verbose))
        self._in_full = verbose is True and not self._console.quiet
        self._every = max(1, math.ceil(plan.rounds / _ROWS))
        self._progress = Progress(
            TextColumn("  round {task.completed}/{task.total}"),
            BarColumn(),
            *(() if plan.noisy else (TimeRemainingColumn(),)),  # see `Result.seconds`
            console=self._console,
            transient=True,
            disable=self._console.quiet or not self._console.is_terminal,
        )
        self._task = self._progress.add_task("rounds", total=plan.rounds)
        self._line = (
            NotebookLine("round", plan.rounds) if verbose is not False and in_notebook() else None
        )

    def start(self, *, residuals: bool = True) -> None:
        """Print banner and table head, if in full; show the bar.

        Parameters
        ----------
        residuals : bool
            Whether those of the rounds may be seen.
        """
        if self._in_full:
            self._print(banner(self._plan, self._guarantee))
            for note in self._notes:
                self._print(row("Note", note))
            if self._plan.secret_draws:
                self._print("No rounds are shown: their times could tell which users were drawn.")
            elif not residuals:
                self._print("No residuals are shown: only the last iterate may be seen.")
            elif self._plan.rounds > 1:
                spent = f"{'epsilon spent':>15}" if self._plan.noisy else ""
                self._print(
                    f"{'round':>7}{'primal':>12}{'dual':>12}{'consensus':>12}{'penalty':>10}{spent}"
                )
        self._progress.start()

    def round(self, last: Round) -> None:
        """Advance by a round, and print it if it is one of the shown ones."""
        t, residuals = last.t, last.residuals
        self.passed(t)
        if (
            not self._in_full
            or self._plan.rounds == 1
            or not (t <= 1 or t % self._every == 0 or t == self._plan.rounds)
        ):
            return
        penalty = "-" if residuals.penalty == 0 else f"{residuals.penalty:.3g}"
        figures = residuals.primal, residuals.dual, residuals.mismatch
        cells = "".join(f"{_residual(value):>12}" for value in figures)
        row = f"{t:>7}{cells}{penalty:>10}{self._spent(t)}"
        note = f"  {plural(last.failed, 'failed solve')}" if last.failed else ""
        self._print(row + note)

    def passed(self, t: int) -> None:
        """Advance by a round, without printing it."""
        self._progress.update(self._task, completed=t)
        if self._line is not None:
            self._line.update(t)

    def stop(self) -> None:
        """Remove the bar."""
        self._progress.stop()
        if self._line is not None:
            self._line.stop()

    def finish(self, result: Result) -> None:
        """Print the outcome; the guarantee stands in the banner."""
        if not self._in_full:
            return
        self._print("\n".join([headline(result), *spent_rows(result), *outcome_rows(result)]))

    def _spent(self, t: int) -> str:
        plan = self._plan
        if plan.price is None:
            return ""
        losses = set(plan.composed(t).values())
        most = max(loss.price(plan.price.delta).epsilon for loss in losses)
        return f"{at_most(most):>15}"

    def _print(self, text: str) -> None:
        self._console.print(text, markup=False)
