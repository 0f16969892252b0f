"""Output during a run: progress table, summary, and progress lines on terminals and in notebooks.

It shows only released values and public information.
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

# Seconds before a progress line appears, and between two updates of it.
PATIENCE, _PAUSE = 1.0, 0.25


def in_notebook() -> bool:
    """Return whether IPython shows HTML here, as in Jupyter, Colab, Spyder and Databricks.

    On a terminal, IPython's display publisher is its own class, which prints text. Notebook front
    ends replace it.
    """
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    publisher = getattr(shell, "display_pub", None)
    if publisher is None:
        return False
    from IPython.core.displaypub import DisplayPublisher

    return getattr(type(publisher), "publish", None) is not DisplayPublisher.publish


def displayed(html: str) -> Any:
    """Show HTML in the notebook, and return a handle that can update it."""
    from IPython.display import HTML, display

    return display(HTML(html), display_id=True)


class NotebookLine:
    """A progress bar with a text in a notebook, for work that takes longer than a second.

    Errors in showing the line are ignored, and nothing more is shown after the first one.

    Parameters
    ----------
    text : str
        Name of the counted things, such as "round".
    total : int
        Number of things to count.
    unit : str
        Text after the total, such as " %".
    show : callable
        Function that shows HTML and returns an object with ``update(HTML)``.
    clock : callable
        Function that returns the time in seconds.
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
        """Show the number done, unless the last update was too recent."""
        if self._clock() < self._next:
            return
        self._next = self._clock() + _PAUSE
        bar = f'<progress value="{done}" max="{self._total}"></progress>'
        self._put(f"{self._text} {done}/{self._total}{self._unit} {bar}")

    def stop(self) -> None:
        """Remove the line from the notebook."""
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
    """String of HTML that updates a notebook display."""

    def _repr_html_(self) -> str:
        return str(self)


# Approximate number of lines of a progress table, for any number of rounds.
_ROWS = 7


def _residual(value: float) -> str:
    """Return a residual as text for a table; a dash if it is nan."""
    if math.isnan(value):
        return "-"
    return "0" if value == 0 else f"{value:.2e}"


def wanted(verbose: bool | None) -> bool:
    """Return `verbose` if it is not None, else whether the output is a terminal.

    A line in a notebook does not count as printing; see `NotebookLine`.
    """
    if verbose is not None:
        return verbose
    try:
        return sys.stdout.isatty()
    except (AttributeError, ValueError):  # no output, as under pythonw, or a closed one
        return False


class _Stream:
    """Wrapper of a text stream that ignores its errors, and writes nothing after the first one."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._broken = False

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the wrapped stream, such as its encoding."""
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write text; characters that the stream cannot encode become question marks."""
        self._attempt(self._write, text)
        return len(text)

    def flush(self) -> None:
        """Flush the wrapped stream."""
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
    """Return a rich console on standard output (ignoring write errors), or a silent one."""
    from rich.console import Console

    shown = shown and sys.stdout is not None
    stream = cast("IO[str]", _Stream(sys.stdout)) if shown else None
    return Console(
        file=stream,
        quiet=not shown,
        highlight=False,
        soft_wrap=True,
        force_jupyter=False,
        # rich itself takes notebooks, and logs with FORCE_COLOR, for terminals
        force_terminal=wanted(None),
    )


@contextmanager
def share_line(name: str, verbose: bool | None) -> Iterator[Callable[[float], None]]:
    """Show a progress line on a terminal or in a notebook; yield a function of the share done.

    Parameters
    ----------
    name : str
        Name of the work, such as a search.
    verbose : bool or None
        Verbosity as for runs; see `wanted`.
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
    """Show a moving line with the elapsed time on a terminal, for work of unknown duration.

    The line disappears at the end of the work.

    Parameters
    ----------
    text : str
        Description of the work.
    verbose : bool or None
        False shows nothing; other values show the line if there is a terminal.
    patience : float
        Seconds before the line appears.
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
        later.join()  # else the line could appear after the end
        if line.live.is_started:
            line.stop()


class Reporter:
    """Output of one run: plan, progress table and summary, or a progress line, or nothing.

    A progress line is shown on a terminal or in a notebook during the run, and then removed.

    A write error must not end the run, which spends budget and cannot be repeated. After the first
    error (a full disk, a closed pipe, characters that a terminal does not have), output stops.
    Keyboard interrupts are not suppressed.
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
        """Print the plan and the head of the table if verbose, and show the progress line.

        Parameters
        ----------
        residuals : bool
            Whether residuals may be shown to the plan's observer.
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
        """Advance the progress line, and print the round if it belongs in the table."""
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
        """Advance the run's progress line to round t."""
        self._progress.update(self._task, completed=t)
        if self._line is not None:
            self._line.update(t)

    def stop(self) -> None:
        """Remove the run's progress line."""
        self._progress.stop()
        if self._line is not None:
            self._line.stop()

    def finish(self, result: Result) -> None:
        """Print the outcome of the run if verbose; `start` has printed the guarantee."""
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
