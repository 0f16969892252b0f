"""The only loop: rounds, exchanges, residuals, the end of a run."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import display
from .algorithms.base import Residuals
from .arguments import positive_finite, whole
from .conic import Outcome
from .errors import ModelError, PrivacyError
from .executors.base import Executor
from .executors.serial import Serial
from .ledger import Account, Ledger
from .mechanism import noise_generator
from .model import Problem
from .oracle import PrivateOracle, ReplayOracle
from .plan import Plan
from .private import Private, source_of
from .result import History, Result, Solution, Status, Transcript, assign
from .worker import Report, make_worker

Array = NDArray[np.float64]
DataSource = ArrayLike | Callable[[], ArrayLike]


def run_plan(
    plan: Plan,
    *,
    data: Mapping[Private | str, DataSource],
    seed: int | None,
    tolerance: float | None,
    record: bool,
    ledger: Ledger | None,
    executor: Executor | None,
    verbose: bool | None,
) -> Result:
    """See `Plan.run`."""
    if seed is not None and not whole(seed, 0):
        raise ModelError(f"seed={seed!r} must be a non-negative int, or None for fresh noise.")
    _check_tolerance(plan, tolerance)
    sources = _sources(plan.problem, data)
    accounts = _accounts(plan, ledger)
    rounds = _affordable_rounds(plan, accounts)
    stream = int(plan.fingerprint[:16], 16)
    oracles = [
        partial(
            PrivateOracle,
            k,
            local.form,
            sources[k],
            sensitivity=plan.sensitivities[k],
            calibrated=plan.calibrated,
            account=accounts[k],
            rng=noise_generator(seed, (k, len(accounts[k].entries), stream)),
            record=record,
        )
        for k, local in enumerate(plan.program.agents)
    ]
    shown = display.Reporter(plan, display.wanted(verbose))
    result = drive(plan, oracles, rounds, tolerance, executor or Serial(), shown, seed, record)
    assign(result.solution, plan.problem.variables())
    shown.finish(result)
    return result


def replay_plan(plan: Plan, transcript: Transcript) -> Result:
    """See `Plan.replay`."""
    if transcript.fingerprint != plan.fingerprint:
        raise PrivacyError(
            "The transcript was recorded under another plan: problem, algorithm, mechanism and "
            "rounds must be the same. Replay it with the plan it came from."
        )
    oracles = [
        partial(ReplayOracle, k, transcript.releases, transcript.ledger[local.name])
        for k, local in enumerate(plan.program.agents)
    ]
    silent = display.Reporter(plan, False)
    again = drive(plan, oracles, transcript.rounds, None, Serial(), silent, None, False)
    return replace(again, status=transcript.status, guarantee=transcript.guarantee)


def drive(
    plan: Plan,
    oracles: Sequence[Callable[[], PrivateOracle | ReplayOracle]],
    rounds: int,
    tolerance: float | None,
    executor: Executor,
    reporter: display.Reporter,
    seed: int | None,
    record: bool,
) -> Result:
    """Run `rounds` rounds of a plan's algorithm against the given oracles."""
    algorithm, program = plan.algorithm, plan.program
    started = time.perf_counter()
    history = History()
    status = Status.COMPLETED if rounds == plan.rounds else Status.BUDGET
    factories = [
        partial(make_worker, algorithm, local, oracle)
        for local, oracle in zip(program.agents, oracles, strict=True)
    ]
    try:
        executor.start(factories)
        server = algorithm.start_server(program)
        reporter.start()
        for t in range(1, rounds + 1):
            outcomes: list[Outcome] = []
            for k in range(algorithm.exchanges):
                server, messages = algorithm.send(server, t, k)
                replies = executor.map("act", t, k, each=messages)
                outcomes += [r.outcome for r in replies if r is not None]
                values = [None if r is None else r.message for r in replies]
                server = algorithm.receive(server, t, k, values)
            residuals = algorithm.residuals(server)
            history.append(residuals, outcomes)
            reporter.round(t, history)
            if tolerance is not None and _below(residuals, tolerance):
                status = Status.CONVERGED
                break
        reports: list[Report] = executor.map("report")
    finally:
        reporter.stop()
        executor.close()
    if history.failed[-1] > 0:
        status = Status.STALLED
    start = {
        v.id: np.asarray(plan.problem.start.get(v, v.project(np.zeros(v.shape))))
        for v in plan.problem.variables()
    }
    ledger = Ledger(tuple(report.account for report in reports))
    guarantee = plan.guarantee_for(seed)
    releases = tuple(r for report in reports for r in report.releases)
    transcript = None
    if record:
        transcript = Transcript(plan.fingerprint, len(history), releases, status, guarantee, ledger)
    return Result(
        status=status,
        rounds=len(history),
        seconds=time.perf_counter() - started,
        guarantee=guarantee,
        ledger=ledger,
        history=history,
        average=Solution(program, tuple(r.answer.average for r in reports), start),
        last=Solution(program, tuple(r.answer.last for r in reports), start),
        reported=plan.reported,
        violation={a.name: r.violation for a, r in zip(program.agents, reports, strict=True)},
        transcript=transcript,
    )


def _check_tolerance(plan: Plan, tolerance: float | None) -> None:
    if tolerance is None:
        return
    if not positive_finite(tolerance):
        raise ModelError(f"tolerance={tolerance!r} must be a positive finite number.")
    if plan.program.size == 0:
        raise ModelError(
            "tolerance= measures how far agents agree, and this problem's only agent shares "
            "nothing. Leave it out and choose the number of rounds."
        )


def _below(residuals: Residuals, tolerance: float) -> bool:
    # Not max(): the dual residual of round 1 is nan, which compares as False.
    return residuals.primal < tolerance and residuals.dual < tolerance


def _sources(
    problem: Problem, data: Mapping[Private | str, DataSource]
) -> list[list[Callable[[], Any]]]:
    known = [private for agent in problem.agents for private in agent.private]
    if not isinstance(data, Mapping) or not all(isinstance(k, (Private, str)) for k in data):
        raise ModelError(
            "data= is a mapping of private objects or their names to values, such as "
            "{'load': array}."
        )
    given: dict[int, DataSource] = {}
    for key, value in data.items():
        matches = [p for p in known if p is key or p.name() == key]
        if len(matches) != 1:
            label = key if isinstance(key, str) else key.name()
            raise ModelError(
                f"data= has a value for '{label}', which names {len(matches)} private objects of "
                f"the problem. They are: {', '.join(p.name() for p in known) or 'none'}; use the "
                "dp.Private object itself as key where names repeat."
            )
        given[matches[0].id] = value
    return [[source_of(p, given.get(p.id)) for p in agent.private] for agent in problem.agents]


def _accounts(plan: Plan, ledger: Ledger | None) -> list[Account]:
    fresh = plan.accounts()
    if ledger is None:
        return fresh
    missing = [account.agent for account in fresh if account.agent not in ledger]
    if missing:
        raise ModelError(
            f"ledger= has no account of agent '{missing[0]}'; pass the ledger of an earlier run of "
            "the same agents."
        )
    return [ledger[account.agent].continued(account) for account in fresh]


def _affordable_rounds(plan: Plan, accounts: Sequence[Account]) -> int:
    """Rounds that every budget covers; asks for the first refusal if it is none."""
    if plan.calibrated is None:
        return plan.rounds
    per_round = plan.algorithm.requirements.releases
    rounds = plan.rounds
    for account, sensitivity in zip(accounts, plan.sensitivities, strict=True):
        if sensitivity is not None and sensitivity.l2 > 0 and account.entries:
            releases = account.affordable(plan.calibrated, rounds * per_round)
            rounds = releases // per_round
            if rounds == 0:
                raise account.refusal(plan.calibrated, per_round)
    return rounds
