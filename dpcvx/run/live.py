"""Runs on private data: checks, ledger and accounts, workers, and the call of the loop.

Runs with remote owners, whose data, noise and ledgers are in other processes, follow below.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, nullcontext, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from .._arguments import FLAG, POSITIVE, check_argument, integer, optional, show
from ..errors import LedgerError, ModelError, PrivacyError
from ..model.declaration import matching
from ..model.private import Private
from ..model.sealed import Sealed
from ..plan.terms import Terms
from ..privacy.accounts import Account
from ..privacy.ledger import Ledger
from ..privacy.ledger_file import Journal, load
from ..privacy.randomness import PublicCoins, source_for
from .data import all_checked, sources_of
from .executors.in_process import Automatic, Durable, Executor, Serial, Threads
from .loop import drive, returned, whole_start
from .part import AgentPart, gate_of, parts_of, worker_of
from .repeats import planned_entries, remember, run_of, warn_of_changes, warn_of_repeats
from .report import Reporter
from .result import Result
from .resume import Start, as_begun, batches, begin, one_by_one
from .solution import Iterate, Solution, assign
from .watch import Watch, check_shown
from .worker import Worker

Array = NDArray[np.float64]


# Methods that an executor must have.
_DUTIES = ("writer", "start", "map", "close")


def run_plan(
    plan: Terms,
    *,
    data: Mapping[Private | str, Sealed],
    seed: int | None,
    tolerance: float | None,
    record: bool,
    iterates: bool,
    ledger: Ledger | str | Path | None,
    executor: Executor | None,
    verbose: bool | None,
    made_up: bool = False,
) -> Result:
    """Run a plan; see `Plan.run`. Runs on `made_up` (synthetic) data cause no repeat warnings."""
    _check_arguments(seed=seed, record=record, iterates=iterates, verbose=verbose)
    _check_tolerance(plan, tolerance)
    check_shown(plan, tolerance=tolerance, record=record, iterates=iterates)
    if plan.secret_draws and seed is not None and not made_up:
        raise PrivacyError(
            f"plan.run(seed={seed}) would make the secret draws of this plan public. Its "
            "guarantee holds only while nobody learns which user was drawn in each round. Leave "
            "seed= out."
        )
    plan.require_current_parameters()
    executor = _given_executor(executor)
    if isinstance(executor, RemoteExecutor):
        asked = {"data=": data, "seed=": seed, "ledger=": ledger, "record=": record or None}
        elsewhere = [name for name, value in asked.items() if value is not None and value != {}]
        return run_remote(
            plan, executor, given=elsewhere, tolerance=tolerance, iterates=iterates, verbose=verbose
        )
    sources = all_checked(plan.problem, sources_of(plan.problem, data))
    given = [private for private, _ in matching(plan.problem, data)]
    # Before any charge: errors in the model must occur here.
    initial = whole_start(plan.problem)
    with Journal(ledger) if isinstance(ledger, (str, Path)) else nullcontext() as journal:
        plan = plan if journal is None else as_begun(plan, journal)
        parts = parts_of(plan)
        ledger_of = _given_ledger(ledger) if journal is None else journal
        start = begin(parts, ledger_of, seed is not None)
        counts = seed is None and not made_up
        warn_of_changes(plan, given, sources)
        alone, total = ledger is None, ""
        if counts:
            total = warn_of_repeats(plan, start, given, sources, alone=alone)
        guarantee = plan.guarantee_for(seeded=seed is not None, counted=ledger is not None)
        shown = Reporter(plan, verbose, guarantee, start.notes)
        written = None if journal is None else executor.writer(journal)
        # Other executors distribute agents one by one.
        in_batches = type(executor) in (Automatic, Serial)
        dealt = batches(plan, start) if in_batches else one_by_one(parts)
        gates = [
            gate_of(
                [parts[k] for k in agents],
                [start.agents[k] for k in agents],
                journal=written,
                seed=seed,
                record=record,
            )
            for agents in dealt
        ]
        workers = [
            worker_of([parts[k] for k in agents], [sources[k] for k in agents], gate)
            for agents, gate in zip(dealt, gates, strict=True)
        ]
        in_this_process = isinstance(executor, (Automatic, Serial, Threads))
        executor = executor if journal is None else Durable(executor, journal)
        stream = int(plan.fingerprint[:16], 16)
        run = run_of(plan, start, sources, "" if journal is None else str(journal.path.absolute()))
        remembered = partial(remember, plan, start, given, sources, run, alone=alone)
        watch = Watch(plan, shown, tolerance=tolerance, iterates=iterates)
        try:
            result = drive(
                plan,
                initial,
                dealt,
                workers,
                start.rounds,
                executor,
                watch,
                guarantee,
                PublicCoins(source_for(seed, (stream, len(parts), 0)).at(0, 0)),
                record=record,
            )
            result = returned(result)
        except BaseException:
            if watch.begun:
                books = [gate.accounts for gate in gates] if in_this_process else ()
                spent = _unended(parts, start, books, journal)
                if isinstance(ledger, Ledger):  # no other ledger records the failed run
                    for account in spent:
                        ledger[account.agent].catch_up(account)
                if counts:
                    remembered(_released(spent, start), ended=False)
            raise
        if counts:
            remembered(_released(result.ledger.accounts, start), ended=True)
        unended = "" if journal is None else journal.end(result.status.name.lower(), result.rounds)
        notes = (plan.notes, *start.notes, *result.notes, unended, total)
        result = replace(result, notes=tuple(note for note in notes if note))
    solution = result.solution if result.status.solved else None
    assign(solution, plan.problem.variables(), plan.problem.constraints)
    shown.finish(result)
    return result


def _unended(
    parts: Sequence[AgentPart],
    start: Start,
    books: Sequence[Callable[[], list[Account]]],
    journal: Journal | None,
) -> list[Account]:
    """Return the agents' privacy accounts after a run that ended with an error.

    Parameters
    ----------
    parts : sequence of AgentPart
        Parts of the plan, agent by agent.
    start : Start
        State of the run at its beginning.
    books : sequence of callables
        Functions that return the accounts of each worker's agents, if the workers are in this
        process. If empty, the agents are charged for all planned releases.
    journal : Journal or None
        Journal of the run, whose file contains all releases.
    """
    if journal is not None:
        with suppress(LedgerError):
            held = load(journal.path)
            return [held[part.agent.name] for part in parts]
    if books:
        return [account for accounts in books for account in accounts()]
    spent = [begun.account.copy() for begun in start.agents]
    for account, part in zip(spent, parts, strict=True):
        for entry in planned_entries(part):
            account.recall(entry)
    return spent


def _released(spent: Sequence[Account], start: Start) -> dict[str, int]:
    """Return the number of releases of this run, by agent."""
    pairs = zip(spent, start.agents, strict=True)
    return {account.agent: len(account.entries) - begun.earlier for account, begun in pairs}


def _check_arguments(*, seed: object, record: object, iterates: object, verbose: object) -> None:
    check_argument("", "seed", seed, optional(integer(0).otherwise("or None for fresh noise")))
    check_argument("", "record", record, FLAG)
    check_argument("", "iterates", iterates, FLAG)
    check_argument("", "verbose", verbose, optional(FLAG))


def _given_executor(executor: Executor | None) -> Executor:
    if executor is None:
        return Automatic()
    if not all(callable(getattr(type(executor), name, None)) for name in _DUTIES):
        raise ModelError(
            f"executor={show(executor)} is no executor. Write executor=dp.Serial(), dp.Threads() "
            "or dp.Processes(), or leave it out."
        )
    return executor


def _given_ledger(ledger: Ledger | str | Path | None) -> Ledger | None:
    if ledger is None or isinstance(ledger, Ledger):
        return ledger
    raise ModelError(
        f"ledger= is of type {type(ledger).__name__}. Pass the ledger of an earlier result, or "
        "the path of a ledger file."
    )


def _check_tolerance(plan: Terms, tolerance: float | None) -> None:
    if tolerance is None:
        return
    check_argument("", "tolerance", tolerance, POSITIVE)
    if plan.program.size == 0 and plan.program.coupling is None:
        raise ModelError(
            "tolerance= has no effect, because this problem's only agent shares nothing. Leave "
            "out tolerance=, and choose the number of rounds. The tolerance applies to how far "
            "agents agree."
        )
    if not plan.algorithm.tells_agreement:
        raise ModelError(
            "tolerance= cannot be used with secure aggregation. Leave it out and choose the "
            "number of rounds, or leave out sharing=. It measures how far agents agree, and the "
            "parties learn the mean only."
        )


@runtime_checkable
class RemoteExecutor(Executor, Protocol):
    """An executor of remote agents, whose owners decide whether they take part in a run.

    Replies contain shared variables only; local variables have their public initial values.

    Attributes
    ----------
    closed_after : int or None
        The last round if the coordinator ends the run early, else None; known after `begin`.
    """

    closed_after: int | None

    def begin(self, plan: Terms) -> tuple[int, tuple[str, ...]]:
        """Request a run from all owners; return the rounds that their ledgers cover, and notes.

        Raises
        ------
        RefusedError
            If an owner declines.
        """
        ...


def run_remote(
    plan: Terms,
    executor: RemoteExecutor,
    *,
    given: Sequence[str],
    tolerance: float | None,
    iterates: bool,
    verbose: bool | None,
) -> Result:
    """Run a plan with remote owners.

    Parameters
    ----------
    plan : Terms
        Plan for the run.
    executor : RemoteExecutor
        Executor that reaches the owners.
    given : sequence of str
        Names of passed arguments that only owners may pass.
    tolerance, iterates, verbose
        See `Plan.run`.

    Raises
    ------
    ModelError
        If an argument was passed that only owners may pass.
    RefusedError
        If an owner declines the run, or leaves it.
    """
    if given:
        raise ModelError(
            f"plan.run({given[0]}, executor=...) passes {given[0]} to a run between owners. Leave "
            "it out; each owner's owner.toml names its own. Owners keep data, noise and ledgers "
            "on their own side."
        )
    start = whole_start(plan.problem)
    rounds, notes = executor.begin(plan)
    with closing(executor):
        guarantee = plan.guarantee_for(seeded=False, counted=True)
        shown = Reporter(plan, verbose, guarantee, notes)
        coins = PublicCoins(source_for(None, ()).at(0, 0))
        result = drive(
            plan,
            start,
            one_by_one(plan.agents),
            [_nobody for _ in plan.agents],
            rounds,
            executor,
            Watch(
                plan,
                shown,
                tolerance=tolerance,
                iterates=iterates,
                closed_after=executor.closed_after,
            ),
            guarantee,
            coins,
        )
    result = _shared_only(returned(replace(result, owners=True)))
    said = tuple(note for note in (plan.notes, *notes, *result.notes) if note)
    result = replace(result, notes=said)
    solution = result.solution if result.status.solved else None
    assign(solution, plan.problem.variables(), plan.problem.constraints)
    shown.finish(result)
    return result


def _nobody() -> Worker:
    """Raise an error: agents of owners are constructed on the owners' side."""
    raise NotImplementedError


def _shared_only(result: Result) -> Result:
    """Return the result with NaN for local variables, which remote owners keep."""

    def kept(solution: Solution) -> Solution:
        vectors = []
        for local, x in zip(solution.program.agents, solution.vectors, strict=True):
            entries = np.full_like(x, np.nan)
            entries[local.shared] = x[local.shared]
            vectors.append(entries)
        return replace(solution, vectors=tuple(vectors))

    names = ("average", "last", "tail", "weighted", "solution")
    changed = {name: kept(getattr(result, name)) for name in names}
    path = tuple(Iterate(kept(iterate.average), kept(iterate.last)) for iterate in result.iterates)
    return replace(result, iterates=path, **changed)
