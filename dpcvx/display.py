"""What a user sees: banner, progress table, summary. Released values and public facts only."""

from __future__ import annotations

import math
import sys
import textwrap
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import IO, TYPE_CHECKING, Any, cast

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from .guarantee import AgentGuarantee, Guarantee
    from .plan import Plan
    from .result import Result, Round

_WIDTH = 96
_LABEL = 13
# Agents listed one by one.
_LISTED = 12
# About this many lines of progress, whatever the number of rounds.
_ROWS = 12


def banner(plan: Plan, guarantee: Guarantee) -> str:
    """The plan in words: problem, algorithm, sensitivity and its derivation, noise, guarantee."""
    versions = f"cvxpy {version('cvxpy')}, clarabel {version('clarabel')}"
    lines = [
        "=" * _WIDTH,
        f"dpcvx {version('dpcvx')}  ({versions})".center(_WIDTH).rstrip(),
        "=" * _WIDTH,
        *_problem_rows(plan),
        *_coupling_rows(plan),
        _row("algorithm", str(plan.algorithm)),
        _row("rounds", str(plan.rounds)),
        *_sensitivity_rows(plan),
        "guarantee:",
        textwrap.indent(str(guarantee), "  "),
    ]
    if plan.noisy:
        lines.append("  fixed by the plan; no data have been read")
    return "\n".join([*lines, "=" * _WIDTH])


def _problem_rows(plan: Plan) -> list[str]:
    program = plan.program
    local = sum(a.n - a.shared.size for a in program.agents)
    agents, shared = _count(len(program.agents), "agent"), _count(program.size, "shared component")
    rows = [
        _row(
            "",
            f"{agent.name}: {agent.n} variables ({agent.shared.size} shared), "
            f"set: {agent.set_description}",
        )
        for agent in program.agents
    ]
    return [_row("problem", f"{agents}, {shared}, {local} local"), *_shortened(rows)]


def _coupling_rows(plan: Plan) -> list[str]:
    text = plan.algorithm.coupling(plan.program)
    return [] if text is None else [_row("coupling", text)]


def _sensitivity_rows(plan: Plan) -> list[str]:
    if not plan.noisy:
        return []
    arguments = dict.fromkeys(s.argument for s in plan.sensitivities if s is not None)
    entries = {entry.agent: entry for entry in plan.guarantee.agents}
    rows: list[str] = []
    for agent, sensitivity in zip(plan.program.agents, plan.sensitivities, strict=True):
        if sensitivity is None:
            rows.append(_row("", f"{agent.name}: nothing private"))
            continue
        entry = entries[agent.name]
        rows.append(
            _row(
                "",
                f"{agent.name}: gradient {_bounded(entry)}; noise: {entry.noise}"
                f"{f' ({sensitivity.figures})' if sensitivity.figures else ''}",
            )
        )
    return [*(_row("sensitivity", text) for text in arguments), *_shortened(rows)]


def _bounded(entry: AgentGuarantee) -> str:
    if math.isinf(entry.sensitivity):
        return f"l{entry.norm} bounded at each point, not over the whole set"
    return f"l{entry.norm} {'=' if entry.exact else '<='} {entry.sensitivity:.6g}"


def _shortened(rows: list[str]) -> list[str]:
    if len(rows) <= _LISTED:
        return rows
    return [*rows[:_LISTED], _row("", f"... and {len(rows) - _LISTED} more agents")]


def summary(result: Result) -> str:
    """The result in words."""
    lines = [*_outcome_rows(result), *(_row("note", note) for note in result.notes)]
    lines += ["guarantee:", textwrap.indent(str(result.guarantee), "  "), *_spent_rows(result)]
    return "\n".join(lines)


def _outcome_rows(result: Result) -> list[str]:
    failed, inaccurate = result.history.failed, result.history.inaccurate
    took = "" if result.seconds is None else f", {result.seconds:.2f} s"
    lines = [
        _row(
            "status",
            f"{result.status.name.lower()}: {result.status.value} ({result.rounds} rounds{took})",
        ),
        _row("reported", f"the {result.reported} iterate"),
        *_agreement_rows(result),
        _row(
            "feasibility",
            f"largest violation of an agent's own set {result.max_violation:.3e} (last iterate)",
        ),
    ]
    if failed or inaccurate:
        lines.append(
            _row(
                "solver",
                f"{inaccurate} local solve(s) of reduced accuracy, {failed} that failed and kept "
                "the previous point",
            )
        )
    return lines


def _agreement_rows(result: Result) -> list[str]:
    """How far agents agree, in what ties them."""
    program = result.solution.program
    if program.coupling is not None:
        return [
            _row("coupling", f"largest violation of an equality {result.coupling_residual:.3e}")
        ]
    residual = f"largest deviation of a shared component {result.consensus_residual:.3e}"
    return [_row("consensus", residual)]


def _spent_rows(result: Result) -> list[str]:
    if result.guarantee.kind == "none":
        return []
    lines = str(result.ledger).splitlines()
    if len(lines) > _LISTED:
        # The agent that spent most stands for the rest.
        most = result.ledger.spent()
        rest = f"... and {len(lines) - _LISTED} more agents, none above epsilon {most:.6g}"
        lines = [*lines[:_LISTED], rest]
    return ["spent:", textwrap.indent("\n".join(lines), "  ")]


def wanted(verbose: bool | None) -> bool:
    """Whether to print: as asked, else only on a terminal."""
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
        """Whether it is a terminal, its encoding and the like."""
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Letters that the stream does not have become question marks."""
        self._attempt(self._write, text)
        return len(text)

    def flush(self) -> None:
        """Pass it on."""
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
    """Standard output, or nothing; see `Reporter` for what cannot be written."""
    shown = shown and sys.stdout is not None
    stream = cast("IO[str]", _Stream(sys.stdout)) if shown else None
    return Console(file=stream, quiet=not shown, highlight=False, soft_wrap=True)


class Reporter:
    """Prints banner, progress table and summary of one run, or nothing.

    What cannot be written must not cost the run, which spends budget and cannot be repeated: after
    the first error (a full disk, a closed pipe, letters that a terminal does not have) it is
    silent. Interrupts pass.
    """

    def __init__(
        self, plan: Plan, shown: bool, guarantee: Guarantee, notes: Sequence[str] = ()
    ) -> None:
        self._plan = plan
        self._guarantee = guarantee
        self._notes = notes
        self._console = screen(shown)
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

    def start(self) -> None:
        """Print banner and table head."""
        if self._console.quiet:
            return
        self._print(banner(self._plan, self._guarantee))
        for note in self._notes:
            self._print(_row("note", note))
        if self._plan.hidden:
            self._print("only the last iterate may be seen: no residuals are shown")
            self._print("-" * _WIDTH)
            self._progress.start()
            return
        spent = "   eps spent" if self._plan.noisy else ""
        self._print(
            f"{'round':>7}{'primal res':>13}{'dual res':>13}{'max gap':>12}{'rho':>11}{spent}"
        )
        self._print("-" * _WIDTH)
        self._progress.start()

    def round(self, last: Round) -> None:
        """Advance; print the round if it is one of the shown ones."""
        t, residuals = last.t, last.residuals
        self._progress.update(self._task, completed=t)
        if self._console.quiet or not (t <= 1 or t % self._every == 0 or t == self._plan.rounds):
            return
        rho = "-" if residuals.rho == 0 else f"{residuals.rho:.3g}"
        row = (
            f"{t:>7}{residuals.primal:>13.3e}{residuals.dual:>13.3e}"
            f"{residuals.mismatch:>12.2e}{rho:>11}{self._spent(t)}"
        )
        note = f"  {last.failed} failed solve(s)" if last.failed else ""
        self._print(row + note)

    def passed(self, t: int) -> None:
        """Advance, and show nothing of the round."""
        self._progress.update(self._task, completed=t)

    def stop(self) -> None:
        """Remove the bar."""
        self._progress.stop()

    def finish(self, result: Result) -> None:
        """Print the outcome; the guarantee stands in the banner."""
        if self._console.quiet:
            return
        self._print("-" * _WIDTH)
        self._print("\n".join([*_outcome_rows(result), *_spent_rows(result)]))

    def _spent(self, t: int) -> str:
        plan = self._plan
        if plan.price is None:
            return ""
        losses = set(plan.composed(t).values())
        return f"{max(loss.price(plan.price.delta).epsilon for loss in losses):>12.4g}"

    def _print(self, text: str) -> None:
        self._console.print(text, markup=False)


def _row(label: str, text: str) -> str:
    first = f"{label + ':' if label else '':<{_LABEL}}"
    return textwrap.fill(text, _WIDTH, initial_indent=first, subsequent_indent=" " * _LABEL)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
