"""The loop of a run: rounds, messages in them, final reports; and the returned point.

The returned point is nearest to the iterates where all agents agree, if such a point is found.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any, Literal

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

from ..algorithms.base import Algorithm, Answer, Batch
from ..algorithms.common_point import agents_apart, common_point
from ..algorithms.contract import breach, sent_by, unreceived
from ..algorithms.program import Program
from ..errors import PrivacyError
from ..model.declaration import Declaration
from ..model.layout import projected, whole_matrices
from ..model.matrices import blas, from_real_entries, real_entries
from ..plan.guarantee import Guarantee
from ..plan.terms import Terms
from ..privacy.ledger import Ledger
from ..privacy.randomness import PublicCoins, source_for
from ..solvers.conic import Outcome
from .executors.in_process import Automatic, Executor
from .oracle import AgentOracle
from .report import Reporter
from .result import Result, Status, Transcript
from .resume import Agents
from .solution import Iterate, Solution, released_of, surrogates_of
from .watch import Watch
from .worker import Reply, Report, make_worker, total_of

Array = NDArray[np.float64]
_UNNAMED = (
    "A run with secret draws failed, and its privacy loss counts in full. Run the plan on made-up "
    "data without draws='secret' to see the error. The error stays hidden here, because it could "
    "tell which user was drawn."
)
# Number of parts of a run whose averages are recorded; more parts need more calls of the agents.
PARTS = 8


def whole_start(problem: Declaration) -> dict[int, Array]:
    """Return the public initial values of all variables, by cvxpy id."""
    return {v.id: np.asarray(problem.start.get(v, _no_start(v))) for v in problem.variables()}


def _no_start(variable: cp.Variable) -> NDArray[Any]:
    """Return a variable's default initial point: the closest to zero with its attributes."""
    if variable.is_complex():
        return np.zeros(variable.shape, dtype=complex)
    return projected(variable, np.zeros(variable.shape))


def drive(
    plan: Terms,
    start: Mapping[int, Array],
    batches: Sequence[Sequence[int]],
    workers: Sequence[Callable[[], Any]],
    rounds: int,
    executor: Executor,
    watch: Watch,
    guarantee: Guarantee,
    coins: PublicCoins,
    *,
    record: bool = False,
) -> Result:
    """Run a plan's algorithm with the given workers, and return the result.

    Parameters
    ----------
    plan : Terms
        Plan to run.
    start : mapping of int to ndarray
        Public values by cvxpy id of the variable, for entries that belong to no agent.
    batches : sequence of sequence of int
        Agents of each worker, by index in the plan.
    workers : sequence of callables
        Functions that construct the `Worker` of each batch, called where it runs.
    rounds : int
        Number of rounds to run.
    executor : Executor
        Executor of the workers.
    watch : Watch
        Stopping rules, history and output.
    guarantee : Guarantee
        Guarantee that the result reports.
    coins : PublicCoins
        Public randomness of the method, independent of the noise.
    record : bool
        Whether to keep the transcript.
    """
    algorithm, program = plan.algorithm, plan.program
    started = time.perf_counter()
    whole, t = rounds == plan.rounds, 0
    past: dict[int, list[Answer]] = {}
    # BLAS uses one thread: the number of threads changes rounding, and concurrent agents would
    # compete for cores.
    with blas().limit(limits=1), closing(executor):
        agents = Agents(executor, batches, workers)
        server, rounds = algorithm.drawn(algorithm.start_server(program), rounds, coins)
        # Averages begin after the rounds that learn the scale.
        learned = len(algorithm.requirements.first)
        marks = {t for k in range(1, PARTS) if (t := rounds * k // PARTS) > learned}
        failed = False
        try:
            watch.start()
            for t in range(1, rounds + 1):
                try:
                    server, replies = _round(algorithm, server, t, agents, program)
                except Exception:
                    if not plan.secret_draws:
                        raise
                    failed = True
                if failed:  # raised outside the handler: no original error
                    raise PrivacyError(_UNNAMED)
                if t in marks and not plan.hidden:
                    past[t] = algorithm.conclude(server) or agents.map("answer")
                if watch.ends(t, replies, server, agents):
                    break
            concluded = watch.conclude(server) or [None] * len(program.agents)
            reports: list[Report] = agents.map("report", each=concluded)
        finally:
            watch.stop()

    eliminated = {
        variable.id: (name, variable.name())
        for name, agent in plan.problem.named.items()
        for variable, _ in agent.defined
    }

    def solution(answers: Sequence[Answer], which: Literal["average", "last"]) -> Solution:
        vectors = tuple(getattr(answer, which) for answer in answers)
        return Solution(program, vectors, start, decision, surrogates, eliminated)

    answers, decision = [report.answer for report in reports], algorithm.decision(server)
    given = [report.surrogate for report in reports]
    surrogates = surrogates_of(plan, given)
    average, last = solution(answers, "average"), solution(answers, "last")
    tail = weighted = average
    past[t] = answers
    if rounds // 2 in past and t > rounds // 2:
        half = rounds // 2
        parts = _once(
            [past[half], answers], lambda reports: _since(reports[0], half, reports[1], t)
        )
        tail = replace(last, vectors=parts)
    if len(past) > 1:
        parts = _once([*past.values()], lambda reports: _rising([*past], reports))
        weighted = replace(last, vectors=parts)
    reported = {"average": average, "last": last, "tail": tail, "weighted": weighted}[plan.reported]
    points = _points(program, past)
    size = float(np.abs(points[-1]).max(initial=0.0))
    status = watch.status(whole, average.finite and last.finite, size, points)
    ledger = Ledger(tuple(report.account for report in reports))
    transcript = None
    if record:
        releases = tuple(r for report in reports for r in report.releases)
        transcript = Transcript(plan.fingerprint, t, releases, status, guarantee, ledger)
    return Result(
        status=status,
        rounds=t,
        seconds=None if plan.noisy else time.perf_counter() - started,
        guarantee=guarantee,
        ledger=ledger,
        history=watch.history,
        average=average,
        last=last,
        tail=tail,
        weighted=weighted,
        iterates=tuple(Iterate(solution(p, "average"), solution(p, "last")) for p in watch.path),
        reported=plan.reported,
        solution=reported,
        violation={a.name: r.violation for a, r in zip(program.agents, reports, strict=True)},
        transcript=transcript,
        constraint_slack=algorithm.constraint_slack(server),
        released=released_of(program, decision, given),
        notes=algorithm.notes(server),
        problem=plan.problem,
    )


def _points(program: Program, past: Mapping[int, Sequence[Answer]]) -> list[Array]:
    """Return all agents' initial points, and their last iterates after each part of the rounds.

    With several agents, only shared entries are returned, since a coordinator of remote owners has
    no others. The status of a run is then one function of released values in both settings.
    """
    agents = program.agents
    each = [slice(None)] if len(agents) == 1 else [local.shared for local in agents]
    parts = [[local.start for local in agents]]
    parts += [[answer.last for answer in past[t]] for t in sorted(past)]
    return [
        np.concatenate([x[columns] for x, columns in zip(part, each, strict=True)])
        for part in parts
    ]


def _since(before: Answer, half: int, after: Answer, t: int) -> Array:
    """Return the average over rounds half + 1 to t, from the averages over 1 to half and 1 to t."""
    first = half if before.weight is None else before.weight
    whole = t if after.weight is None else after.weight
    with np.errstate(all="ignore"):  # overflow in diverged runs
        return after.average + np.divide(first, whole - first) * (after.average - before.average)


def _once(
    answers: Sequence[Sequence[Answer]], derive: Callable[[Sequence[Answer]], Array]
) -> tuple[Array, ...]:
    """Return an array derived from each agent's iterates `answers`; identical ones share it."""
    agents = [*zip(*answers, strict=True)]
    keys = [tuple(map(id, group)) for group in agents]
    derived = {key: derive(group) for key, group in dict(zip(keys, agents, strict=True)).items()}
    return tuple(derived[key] for key in keys)


def _rising(rounds: Sequence[int], answers: Sequence[Answer]) -> Array:
    """Return an agent's weighted average over a run's parts; later parts have larger weights.

    The weight of a part is the sum of its round numbers. Only the recorded averages from round 1 to
    the end of each part are used.
    """
    first, whole = answers[0], rounds[-1]
    total = first.average * (rounds[0] * (rounds[0] + 1))
    with np.errstate(all="ignore"):  # overflow in diverged runs
        for (a, before), (b, after) in pairwise(zip(rounds, answers, strict=True)):
            total = total + _since(before, a, after, b) * (b * (b + 1) - a * (a + 1))
        return total / (whole * (whole + 1))


def _round(
    algorithm: Algorithm[Any, Any], server: Any, t: int, agents: Agents, program: Program
) -> tuple[Any, list[Reply]]:
    """Run all message exchanges of one round; return the server's state and agents' replies."""
    heard: list[Reply] = []
    for k in range(algorithm.exchanges):
        sent = algorithm.send(server, t, k)
        good = type(sent) is tuple and len(sent) == 2 and type(sent[1]) is list
        if not good or len(sent[1]) != agents.count:
            sent = sent_by(algorithm, sent, agents.count)
        before, messages = sent
        replies: list[Reply | None] = agents.map("act", t, k, each=messages)
        heard += [reply for reply in replies if reply is not None]
        try:
            said = _said(replies)
            terms = [total_of(said)] if algorithm.adds(k) else said
            server = algorithm.receive(before, t, k, terms)
        except Exception as error:
            pairs = zip(program.agents, replies, strict=True)
            answered = [(local, reply.message) for local, reply in pairs if reply is not None]
            fault = unreceived(algorithm, answered, error)
            if fault is None:
                raise
            raise fault from None
        if server is None and before is not None:
            raise breach(algorithm, "receive", server, "Return the server's state.")
    return server, heard


def _said(replies: Sequence[Reply | None]) -> Sequence[Any]:
    """Return the content of each agent's reply; None for idle agents."""
    first = replies[0]
    if first is not None and isinstance(first.message, Batch):  # one message for all agents
        return first.message
    return [None if reply is None else reply.message for reply in replies]


def drive_silently(
    plan: Terms,
    batches: Sequence[Sequence[int]],
    oracles: Sequence[Callable[[], AgentOracle]],
    rounds: int,
    seed: int = 0,
    key: tuple[int, ...] = (),
) -> Result:
    """Run `drive` in this process without output and transcript, from given oracles.

    Parameters
    ----------
    plan : Terms
        Plan to run.
    batches : sequence of sequence of int
        Agents of each oracle, by index in the plan.
    oracles : sequence of callables
        Functions that construct the oracle of each batch.
    rounds : int
        Number of rounds to run.
    seed, key : int, tuple of int
        Seed of the method's public randomness, and numbers that name one of its streams.
    """
    watch = Watch(plan, Reporter(plan, False, plan.guarantee))
    algorithm, programs = plan.algorithm, plan.program.agents
    coins = PublicCoins(source_for(seed, (*key, len(programs))).at(0, 0))
    workers = [
        partial(make_worker, algorithm, programs[agents[0]], oracle, agents)
        for agents, oracle in zip(batches, oracles, strict=True)
    ]
    start, stated = whole_start(plan.problem), plan.guarantee
    return drive(plan, start, batches, workers, rounds, Automatic(), watch, stated, coins)


# Relative tolerance of constraints: violation over the size of the compared values.
HOLDS = 1e-5


def returned(result: Result) -> Result:
    """Return the result with its solution moved to a common point; a function of released values.

    With remote owners, only shared variables move, by the same function. The solution is unchanged
    if the run has no values or no common point is found.
    """
    if not result.status.solved:
        return result
    raw = result.raw
    agents = raw.program.agents
    public = not any(local.form.private or local.hands_over for local in agents)
    point = common_point(raw.program, raw.vectors, alone=result.owners, public=public)
    if point.outcome is Outcome.INFEASIBLE:
        return _infeasible(result)
    common = replace(raw, vectors=point.vectors)
    if result.owners:
        solution = common if point.found else raw
        return replace(result, solution=solution, feasible=point.found, max_violation=point.excess)
    missed, holds = _written(result, common) if result.problem is not None else (0.0, True)
    feasible = point.found and holds
    excess = max(point.excess, common.coupling_residual, missed)
    return replace(
        result, solution=common if feasible else raw, feasible=feasible, max_violation=excess
    )


def _written(result: Result, solution: Solution) -> tuple[float, bool]:
    """Return the largest violation of a public constraint, and whether all hold within tolerance.

    Runs satisfy compiled constraints, but reports are about the user's own constraints. So cvxpy
    evaluates these at released values, except constraints with private data.
    """
    problem = result.problem
    assert problem is not None
    variables = problem.variables()
    with whole_matrices(variables):
        before = [variable.value for variable in variables]
        try:
            for variable, value in zip(variables, _values(solution, variables), strict=True):
                variable.save_value(value)
            violations = [_violation(c) for a in problem.agents for c in a.public_constraints]
        finally:
            for variable, value in zip(variables, before, strict=True):
                variable.save_value(value)
    worst = max((violation for violation, _ in violations), default=0.0)
    return worst, all(violation <= HOLDS * size for violation, size in violations)


def _values(solution: Solution, variables: Sequence[cp.Variable]) -> list[Array]:
    """Return the values of variables at a solution common to all agents, in one pass."""
    flat = {v.id: real_entries(solution.start[v.id]).copy() for v in variables}
    for local, x in zip(solution.program.agents, solution.vectors, strict=True):
        for piece in local.layout.pieces:
            if piece.variable in flat:  # slack variables of coupling= are not among the user's
                flat[piece.variable][piece.entries] = x[piece.offset : piece.stop]
    return [from_real_entries(flat[v.id], v.shape, v.is_complex()) for v in variables]


def _violation(constraint: cp.Constraint) -> tuple[float, float]:
    """Return the violation of a constraint at present values, and the size of its sides.

    The violation is 0 if a public parameter has no value, as after a plan was unpickled.
    """
    with np.errstate(all="ignore"):
        sides = [side.value for side in constraint.args]
        if any(side is None for side in sides):
            return 0.0, 1.0
        far = float(np.max(constraint.violation(), initial=0.0))
        size = max(float(np.abs(side).max(initial=0.0)) for side in map(np.asarray, sides))
    return far, max(1.0, size)


def _infeasible(result: Result) -> Result:
    """Return the result with status INFEASIBLE; name agents whose sets have no common point."""
    names = agents_apart(result.raw.program) or ()
    listed = " and ".join(f"'{name}'" for name in names)
    transcript = result.transcript
    return replace(
        result,
        status=Status.INFEASIBLE,
        transcript=None if transcript is None else replace(transcript, status=Status.INFEASIBLE),
        notes=(*result.notes, f"the constraints of agents {listed} do not meet"),
    )
