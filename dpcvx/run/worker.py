"""Workers, which perform the local updates of an agent or batch; divergence; sums over agents.

Divergence of a run is judged by released values only, so that stopping reveals nothing new.

Sums over agents are formed in an order that does not depend on the processes of the agents. Agents
are the leaves of a binary tree, from left to right. A node has the sum of its left half plus the
sum of its right half; empty halves are omitted. A worker with some of the agents adds up the nodes
with both halves among its sums. So few numbers are sent, and the total has equal bits however the
agents are distributed over workers.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._arguments import of_package
from ..algorithms.base import Algorithm, Answer, Batch, Local, Residuals
from ..algorithms.contract import breach, no_point, uncounted
from ..algorithms.program import LocalProgram
from ..errors import BudgetError, ModelError
from ..privacy.accounts import Account
from ..solvers.conic import ConicProgram, Outcome
from ..solvers.newton import PLAIN
from ..solvers.projector import Projector
from .gate import Release
from .oracle import AgentOracle, Surrogate

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Reply:
    """Reply of an agent to a message of the method's server side, with its last outcome."""

    message: Any  # message; a `Batch` contains the messages of all agents
    outcome: Outcome  # status of its last public solve
    diverged: bool = False  # whether its iterates have diverged so far
    term: bool = False  # whether `receive` gets only the sum of the agents' messages


@dataclass(frozen=True, eq=False)
class Report:
    """Iterates, privacy account and recorded releases of an agent at the end of a run."""

    answer: Answer
    violation: float  # largest distance of the last iterate from the agent's set; nan if unknown
    account: Account
    releases: list[Release]  # empty unless recorded
    surrogate: Surrogate | None = None  # public data of the agent, if it released them once


class Worker:
    """Worker that has the data, and makes the local updates, of an agent or a batch of agents.

    Only replies and reports are sent. Every method takes and returns a list with one element per
    agent.

    Parameters
    ----------
    algorithm : Algorithm
        Method of the plan.
    program : LocalProgram
        Program of the first agent; programs of the others differ in names only.
    oracle : AgentOracle
        Oracle of these agents.
    agents : sequence of int
        Indices of the agents in the plan.
    """

    def __init__(
        self,
        algorithm: Algorithm[Any, Any],
        program: LocalProgram,
        oracle: AgentOracle,
        agents: Sequence[int],
    ) -> None:
        self.agents = tuple(agents)
        self._count = len(self.agents)
        self._algorithm = algorithm
        self._oracle = oracle
        self._local = Local(
            program=program,
            projector=Projector(
                program.constraints,
                program.name,
                program.rest,
                program.kernel or PLAIN,
                program.blocks,
            ),
            exact=None if program.exact is None else ConicProgram(program.exact),
            public_gradient=program.form.at_zero().gradient,
        )
        self._state = algorithm.start_agent(self._local)
        first = algorithm.answer(self._state)
        self._shape = program.start.shape
        if first is not None and np.shape(first.last)[-1:] != self._shape:
            raise no_point(algorithm, "start_agent", first.last, program)
        self._growth = Growth()

    def act(self, t: int, k: int, messages: Sequence[Any]) -> list[Reply | None]:
        """Perform local updates of exchange k in round t; agents without a message stay idle."""
        count = self._count
        message = messages[0] if count == 1 else self._common(messages)
        if message is None:
            return [None] * count
        if k == 0:
            self._oracle.begin(t)
        try:
            acted = self._algorithm.act(self._local, self._state, t, k, message, self._oracle)
        except BudgetError:
            asked, method = self._oracle.most_asked, self._algorithm
            if of_package(type(method)) or asked <= method.requirements.releases:
                raise
            # The plan has no privacy loss for so many releases per round.
            raise uncounted(method, self._local.program.name, asked) from None
        if type(acted) is not tuple or len(acted) != 2:
            due = "Return the agent's state and its reply: state, reply."
            raise breach(self._algorithm, "act", acted, due)
        self._state, reply = acted
        answer = self._algorithm.answer(self._state)
        if answer is not None:
            if np.shape(answer.last)[-1:] != self._shape:
                raise no_point(self._algorithm, "act", answer.last, self._local.program)
            self._growth = self._growth.after(t, answer.last)
        outcome, term = self._algorithm.outcome(self._state), self._algorithm.adds(k)
        if count == 1:
            return [Reply(reply, outcome, self._growth.diverged, term)]
        made = partial(Reply, outcome=outcome, diverged=self._growth.diverged, term=term)
        if not term:  # one reply for all agents, from which `receive` selects
            return [made(Batch(reply, count, partial(row_of, reply)))] * count
        replies: list[Reply | None] = [made(None)] * count
        for row, part in partial_rows(reply).items():
            replies[row] = made(part)
        return replies

    def answer(self) -> list[Answer | None]:
        """Return the agents' current iterates; None if the server side computes them."""
        answer, count = self._algorithm.answer(self._state), self._count
        if count == 1 or row_of(answer, 0) is answer:  # one object if all agents have it in common
            return [answer] * count
        return [row_of(answer, i) for i in range(count)]

    def report(self, concluded: Sequence[Answer | None]) -> list[Report]:
        """Return the agents' iterates, accounts and releases so far.

        Parameters
        ----------
        concluded : sequence of (Answer or None)
            Final iterates, if the server side computes them, else None.
        """
        releases: dict[int, list[Release]] = {agent: [] for agent in self.agents}
        for release in self._oracle.releases:
            releases[release.agent].append(release)
        reports: list[Report] = []
        violations: dict[int, float] = {}
        accounts, answers = self._oracle.accounts(), self.answer()
        for agent, account, given, reached in zip(
            self.agents, accounts, concluded, answers, strict=True
        ):
            answer = reached if given is None else given
            assert answer is not None
            key = id(answer.last)
            if key not in violations:
                violations[key] = self._local.projector.violation(answer.last)
            surrogate = self._oracle.surrogate
            reports.append(Report(answer, violations[key], account, releases[agent], surrogate))
        return reports

    def _common(self, messages: Sequence[Any]) -> Any:
        """Return the one message to all agents of a batch."""
        if isinstance(messages, Batch):
            return messages.whole
        first = messages[0]
        if not all(message is first for message in messages):
            raise ModelError(
                f"Agents of {type(self._algorithm).__name__} compute in a batch and get "
                "different messages. Leave the method's batched at False."
            )
        return first


def row_of(value: Any, i: int) -> Any:
    """Return one agent's part of a value for the whole batch.

    Parameters
    ----------
    value : Any
        Value with arrays of shape (agents, ...), also in dataclasses. Arrays of at most one
        dimension, and all other values, belong to every agent.
    i : int
        Row of the agent.
    """
    if isinstance(value, np.ndarray):
        return value[i] if value.ndim > 1 else value
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return value
    fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    rows = {name: row_of(part, i) for name, part in fields.items()}
    changed = {name: part for name, part in rows.items() if part is not fields[name]}
    return dataclasses.replace(value, **changed) if changed else value


def make_worker(
    algorithm: Algorithm[Any, Any],
    program: LocalProgram,
    oracle: Callable[[], AgentOracle],
    agents: Sequence[int],
) -> Worker:
    """Construct a worker, and its oracle with the data, in the process where it runs."""
    return Worker(algorithm, program, oracle(), agents)


# Factor of growth that counts as divergence. After t rounds, a converging run has moved at most
# about t^2 times its first step, so it would need a million rounds for this factor.
_GROWTH = 1e12
# Larger values count as divergence, because their squares, and solvers' results, soon overflow.
_LARGEST = 1e100
# Number of first rounds that set the ordinary size. Some methods do not move in round 1.
_FIRST = 2


@dataclass(frozen=True)
class Growth:
    """Size of the values in the first rounds, and whether later values have diverged from it.

    Attributes
    ----------
    ordinary : float or ndarray
        Largest magnitude in the first rounds, at least 1; per row if values have rows.
    diverged : bool
        Whether values became infinite, undefined or far larger than in the first rounds.
    """

    ordinary: float | Array = 1.0
    diverged: bool = False

    def after(self, t: int, values: Array) -> Growth:
        """Return the growth after the values of round t (from 1), of shape (n,) or (rows, n)."""
        size = np.abs(values).max(axis=-1, initial=0.0)
        first = t <= _FIRST
        limit = _LARGEST if first else np.minimum(_LARGEST, _GROWTH * self.ordinary)
        # this form of the condition counts nan as diverged
        diverged = self.diverged or not bool(np.all(size <= limit))
        return Growth(np.fmax(self.ordinary, size) if first else self.ordinary, diverged)


def of_residuals(growth: Growth, t: int, residuals: Residuals) -> Growth:
    """Return the growth after a round's residuals; the dual one is not defined in round 1."""
    after = growth.after(t, np.array([residuals.primal, residuals.mismatch]))
    values = (residuals.penalty, residuals.dual)[: 1 if t == 1 else 2]
    return after if all(map(math.isfinite, values)) else Growth(after.ordinary, True)


@dataclass(frozen=True, eq=False)
class PartialSum:
    """Sum over a tree node's ``2 ** level`` agents; the reply of the first of them contains it."""

    level: int
    value: Any


def partial_sums(terms: Mapping[int, Any]) -> dict[int, PartialSum]:
    """Return sums of some agents' terms at the highest tree nodes, by the node's first agent.

    Parameters
    ----------
    terms : mapping of int to array
        Summands by agent.
    """
    sums: dict[int, PartialSum] = {}
    level, here = 0, dict(terms)
    while here:
        above: dict[int, Any] = {}
        for index, value in here.items():
            other = here.get(index ^ 1)
            if other is None:
                sums[index << level] = PartialSum(level, value)
            elif index & 1 == 0:
                above[index >> 1] = value + other
        level, here = level + 1, above
    return sums


def partial_rows(rows: Array) -> dict[int, PartialSum]:
    """Return `partial_sums` of an array's rows (row k from agent k), with identical bits.

    Parameters
    ----------
    rows : ndarray, shape (agents, n)
        Terms of the agents.
    """
    sums: dict[int, PartialSum] = {}
    level = 0
    while len(rows):
        last = len(rows) - 1
        if last % 2 == 0:
            sums[last << level] = PartialSum(level, rows[last])
            rows = rows[:last]
        rows = rows[0::2] + rows[1::2]
        level += 1
    return sums


def total_of(replies: Iterable[Any]) -> Any:
    """Return the sum over all agents from their replies.

    Parameters
    ----------
    replies : iterable
        Reply of each agent: its term, a `PartialSum` whose node begins with the agent, or None if
        another part contains its term or it has none.
    """
    levels: dict[int, dict[int, Any]] = {}
    for agent, reply in enumerate(replies):
        if reply is not None:
            part = reply if isinstance(reply, PartialSum) else PartialSum(0, reply)
            levels.setdefault(part.level, {})[agent >> part.level] = part.value
    level, here = 0, levels.pop(0, {})
    while levels or len(here) > 1:
        above: dict[int, Any] = {}
        for index in sorted(here):
            left, right = here.get(index & ~1), here.get(index | 1)
            above[index >> 1] = right if left is None else left if right is None else left + right
        level += 1
        here = {**above, **levels.pop(level, {})}
    return next(iter(here.values()))
