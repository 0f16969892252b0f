"""The only loop: rounds, exchanges, residuals, the end of a run."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from threadpoolctl import ThreadpoolController

from .._arguments import check_flag, is_int, positive_finite, show
from ..algorithms.base import Answer, Residuals
from ..errors import ModelError, PrivacyError
from ..model.declaration import Declaration
from ..model.private import Private, Sealed, seal_all, source_of, specs_of
from ..plan.guarantee import Guarantee
from ..plan.terms import Terms
from ..privacy.accounts import Account
from ..privacy.ledger import Ledger
from ..privacy.ledger_file import Journal, finished
from ..privacy.noise import Coins, source_for
from ..solvers.conic import Outcome
from . import report as display
from .divergence import Growth, of_residuals
from .executors.automatic import Automatic
from .executors.base import Executor
from .executors.serial import Serial
from .history import History, Round
from .oracle import PrivateOracle, Release, ReleaseGate, ReplayOracle, publish, published
from .result import Result, Status, Transcript
from .resume import begin
from .solution import Iterate, Solution, assign
from .worker import AgentOracle, Report, make_worker

Array = NDArray[np.float64]
DataSource = ArrayLike | Callable[[], ArrayLike]
# The libraries that numpy and scipy have loaded by now; finding them takes several milliseconds.
_BLAS = ThreadpoolController().select(user_api="blas")


# What an executor does.
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
) -> Result:
    """See `Plan.run`."""
    if seed is not None and not is_int(seed, 0):
        raise ModelError(f"seed={show(seed)} must be a non-negative int, or None for fresh noise.")
    check_flag("record", record)
    check_flag("iterates", iterates)
    check_flag("verbose", verbose, optional=True)
    if executor is None:
        executor = Automatic()
    elif not all(callable(getattr(type(executor), name, None)) for name in _DUTIES):
        raise ModelError(
            f"executor={show(executor)} runs no agents: write executor=dp.Serial(), dp.Threads() "
            "or dp.Processes(), or leave it out."
        )
    _check_tolerance(plan, tolerance)
    _check_hidden(plan, tolerance=tolerance, record=record, iterates=iterates)
    sources = sources_of(plan.problem, data)
    # Before anything is charged: what fails in the model fails here.
    initial = _whole_start(plan.problem)
    with Journal(ledger) if isinstance(ledger, (str, Path)) else nullcontext() as journal:
        start = begin(plan, _given(ledger) if journal is None else journal, seed is not None)
        guarantee = plan.guarantee_for(seeded=seed is not None)
        shown = display.Reporter(plan, display.wanted(verbose), guarantee, start.notes)
        stream = int(plan.fingerprint[:16], 16)
        written = None if journal is None else executor.writer(journal)
        oracles = []
        for k, account in enumerate(start.accounts):
            exit = ReleaseGate(
                k,
                plan.calibrated[k],
                account,
                source_for(seed, (stream, k, start.earlier[k])),
                record=record,
                past=start.past,
                paid=start.paid[k],
                journal=written,
                prepaid=plan.last is not None,
            )
            oracles.append(oracle_for(plan, k, sources[k], exit))
        result = drive(
            plan,
            initial,
            oracles,
            start.rounds,
            tolerance,
            executor,
            shown,
            guarantee,
            Coins(source_for(seed, (stream, len(oracles), 0)).at(0, 0)),
            record=record,
            iterates=iterates,
        )
        unended = "" if journal is None else journal.end(result.status.name.lower(), result.rounds)
        result = replace(result, notes=(*start.notes, unended) if unended else start.notes)
    assign(None if result.status is Status.DIVERGED else result.solution, plan.problem.variables())
    shown.finish(result)
    return result


def _given(ledger: Ledger | str | Path | None) -> Ledger | None:
    if ledger is None or isinstance(ledger, Ledger):
        return ledger
    raise ModelError(
        f"ledger= is a {type(ledger).__name__}; pass the ledger of an earlier result, or the path "
        "of a ledger file."
    )


def replay_plan(plan: Terms, transcript: Transcript | str | Path) -> Result:
    """See `Plan.replay`."""
    if plan.hidden:
        raise PrivacyError(
            "A run of which only the last iterate leaves keeps nothing to replay. Keep its result."
        )
    kept = isinstance(transcript, (str, Path))
    if not isinstance(transcript, (str, Path, Transcript)):
        raise ModelError(
            f"plan.replay({show(transcript)}) has no transcript: pass that of a recorded run, as "
            "in plan.replay(plan.run(record=True).transcript), or the path of a ledger file."
        )
    if isinstance(transcript, (str, Path)):
        transcript = _transcript(plan, transcript)
    if transcript.fingerprint != plan.fingerprint:
        raise PrivacyError(
            "The transcript was recorded under another plan: problem, algorithm, mechanism and "
            "rounds must be the same. Replay it with the plan it came from."
        )
    oracles = [
        _replay(plan, k, transcript.releases, transcript.ledger[local.name], kept)
        for k, local in enumerate(plan.program.agents)
    ]
    again = drive_silently(plan, oracles, transcript.rounds)
    return replace(again, status=transcript.status, guarantee=transcript.guarantee)


def oracle_for(
    plan: Terms, k: int, sources: Sequence[Callable[[], Any]], exit: ReleaseGate
) -> Callable[[], AgentOracle]:
    """Makes the oracle of agent k, where it lives."""
    form = plan.program.agents[k].form
    if plan.published:
        return partial(publish, form, sources, plan.publications[k], exit)
    level = None if plan.last is None else plan.last.level
    return partial(
        PrivateOracle, form, sources, plan.sensitivities[k], exit, level, plan.smoothness[k]
    )


def _replay(
    plan: Terms, k: int, releases: Sequence[Release], account: Account, kept: bool
) -> Callable[[], AgentOracle]:
    form = plan.program.agents[k].form
    if plan.published:
        return partial(published, k, form, plan.publications[k], releases, account)
    # A ledger file keeps what was charged; answers without private data are computed again.
    public, sensitivity = form.at_zero(), plan.sensitivities[k]
    apart = plan.noisy and sensitivity is not None and sensitivity.splits
    return partial(
        ReplayOracle, k, releases, account, public if kept else None, public if apart else None
    )


def _transcript(plan: Terms, path: str | Path) -> Transcript:
    """The last run of a plan that a ledger file holds."""
    if not plan.noisy:
        raise PrivacyError(
            "Ledger files keep the values of runs with noise only, and this plan has none. Use "
            "plan.run(record=True) and its transcript."
        )
    found = finished(path, plan.fingerprint)
    places = {local.name: k for k, local in enumerate(plan.program.agents)}
    releases = tuple(
        Release(places[name], *place, value)
        for name, known in found.run.values.items()
        for place, value in known.items()
    )
    return Transcript(
        plan.fingerprint,
        found.rounds,
        releases,
        Status[found.status.upper()],
        plan.guarantee_for(seeded=found.run.seeded),
        Ledger(tuple(found.ledger[name] for name in places)),
    )


def _whole_start(problem: Declaration) -> dict[int, Array]:
    """The public start of whole variables, by cvxpy id."""
    return {
        v.id: np.asarray(problem.start.get(v, v.project(np.zeros(v.shape))))
        for v in problem.variables()
    }


def drive(
    plan: Terms,
    start: Mapping[int, Array],
    oracles: Sequence[Callable[[], AgentOracle]],
    rounds: int,
    tolerance: float | None,
    executor: Executor,
    reporter: display.Reporter,
    guarantee: Guarantee,
    coins: Coins,
    *,
    record: bool = False,
    iterates: bool = False,
) -> Result:
    """Run `rounds` rounds of a plan's algorithm against the given oracles.

    `start` has the values of entries that nobody holds, by cvxpy id of their variable.
    """
    algorithm, program = plan.algorithm, plan.program
    started = time.perf_counter()
    history = History(None) if iterates else History()
    last: Round | None = None
    t = 0
    growth, diverged = Growth(), False
    path: list[list[Answer]] = []
    status = Status.COMPLETED if rounds == plan.rounds else Status.BUDGET
    factories = [
        partial(make_worker, algorithm, local, oracle)
        for local, oracle in zip(program.agents, oracles, strict=True)
    ]
    # One thread of BLAS: its number of threads changes the rounding of its results, and agents that
    # work at the same time would share the cores with each other's.
    with _BLAS.limit(limits=1), closing(executor):
        executor.start(factories)
        server, rounds = algorithm.drawn(algorithm.start_server(program), rounds, coins)
        try:
            reporter.start()
            for t in range(1, rounds + 1):
                outcomes: list[Outcome] = []
                for k in range(algorithm.exchanges):
                    server, messages = algorithm.send(server, t, k)
                    replies = executor.map("act", t, k, each=messages)
                    outcomes += [r.outcome for r in replies if r is not None]
                    diverged |= any(r.diverged for r in replies if r is not None)
                    values = [None if r is None else r.message for r in replies]
                    server = algorithm.receive(server, t, k, values)
                if plan.hidden:
                    reporter.passed(t)
                    continue
                residuals = algorithm.residuals(server)
                last = history.append(residuals, outcomes)
                reporter.round(last)
                if iterates:
                    path.append(algorithm.conclude(server) or executor.map("answer"))
                growth = of_residuals(growth, t, residuals)
                diverged |= growth.diverged
                if diverged:
                    break
                if tolerance is not None and _below(residuals, tolerance):
                    status = Status.CONVERGED
                    break
            concluded = algorithm.conclude(server, plan.hidden) or [None] * len(program.agents)
            reports: list[Report] = executor.map("report", each=concluded)
        finally:
            reporter.stop()
    if last is not None and last.failed > 0:
        status = Status.STALLED

    def solution(answers: Sequence[Answer], which: Literal["average", "last"]) -> Solution:
        return Solution(program, tuple(getattr(answer, which) for answer in answers), start)

    answers = [report.answer for report in reports]
    average, final = solution(answers, "average"), solution(answers, "last")
    if diverged or not (average.finite and final.finite):
        status = Status.DIVERGED
    ledger = Ledger(tuple(report.account for report in reports))
    releases = tuple(r for report in reports for r in report.releases)
    transcript = None
    if record:
        transcript = Transcript(plan.fingerprint, t, releases, status, guarantee, ledger)
    return Result(
        status=status,
        rounds=t,
        seconds=None if plan.noisy else time.perf_counter() - started,
        guarantee=guarantee,
        ledger=ledger,
        history=history,
        average=average,
        last=final,
        iterates=tuple(Iterate(solution(p, "average"), solution(p, "last")) for p in path),
        reported=plan.reported,
        violation={a.name: r.violation for a, r in zip(program.agents, reports, strict=True)},
        transcript=transcript,
    )


def drive_silently(
    plan: Terms,
    oracles: Sequence[Callable[[], AgentOracle]],
    rounds: int,
    seed: int = 0,
    key: tuple[int, ...] = (),
) -> Result:
    """`drive` in this process, without output and transcript; seed and key for its coins."""
    quiet = display.Reporter(plan, False, plan.guarantee)
    coins = Coins(source_for(seed, (*key, len(oracles))).at(0, 0))
    start = _whole_start(plan.problem)
    return drive(plan, start, oracles, rounds, None, Serial(), quiet, plan.guarantee, coins)


def _check_hidden(plan: Terms, *, tolerance: float | None, record: bool, iterates: bool) -> None:
    """Refuse what would show more than the last iterate."""
    asked = {"tolerance=": tolerance is not None, "record=True": record, "iterates=True": iterates}
    for argument, given in asked.items():
        if plan.hidden and given:
            raise PrivacyError(
                f"run({argument}) would show more than the last iterate, which is all that this "
                "plan's guarantee covers. Leave it out, or plan with observer='everyone'."
            )


def _check_tolerance(plan: Terms, tolerance: float | None) -> None:
    if tolerance is None:
        return
    if not positive_finite(tolerance):
        raise ModelError(f"tolerance={show(tolerance)} must be a positive finite number.")
    if plan.program.size == 0 and plan.program.coupling is None:
        raise ModelError(
            "tolerance= measures how far agents agree, and this problem's only agent shares "
            "nothing. Leave it out and choose the number of rounds."
        )
    if not plan.algorithm.tells_agreement:
        raise ModelError(
            "tolerance= measures how far agents agree, and with sums by secret sharing nobody "
            "knows that: all that is heard is the mean. Leave it out and choose the number of "
            "rounds, or leave out sharing=."
        )


def _below(residuals: Residuals, tolerance: float) -> bool:
    # Not max(): the dual residual of round 1 is nan, which compares as False.
    return residuals.primal < tolerance and residuals.dual < tolerance


def sources_of(
    problem: Declaration, data: Mapping[Private | str, DataSource | Sealed] | None
) -> list[list[Sealed]]:
    """Per agent and private object, a function that fetches its values; nothing is read yet."""
    data = seal_all(data)
    given = {private.id: value for private, value in matching(problem, data)}
    return [[source_of(p, given.get(p.id)) for p in agent.private] for agent in problem.agents]


def matching(
    problem: Declaration, data: Mapping[Private | str, Sealed], argument: str = "data"
) -> list[tuple[Private, Sealed]]:
    """The private objects that a mapping by object or name is about; see `seal_all`.

    Raises
    ------
    ModelError
        If a key names none or several.
    """
    known = {
        private: spec.name
        for name, agent in zip(problem.names, problem.agents, strict=True)
        for private, spec in zip(agent.private, specs_of(agent.private, name), strict=True)
    }
    found: list[tuple[Private, Sealed]] = []
    for key, value in data.items():
        named = isinstance(key, str)
        matches = [p for p in known if (known[p] == key if named else p is key)]
        if len(matches) != 1:
            label = show(key if isinstance(key, str) else key.spec.name)
            raise ModelError(
                f"{argument}= has a value for {label}, which names {len(matches)} private "
                f"objects of the problem. They are: {', '.join(known.values()) or 'none'};"
                " use the dp.Private object itself as key where it has no name."
            )
        found.append((matches[0], value))
    return found
