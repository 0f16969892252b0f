"""One agent at work, or a batch: the oracle, the compiled set, the state of the algorithm.

When a run has left all bounds is judged by released values, so that stopping tells nothing new.

Sums over agents, in an order that does not depend on where these live.

Agents are the leaves of a binary tree, from left to right. A node has the sum over the agents below
it: the left half's and then the right half's, if both have something. A worker with some of the
agents adds up the nodes that it has both halves of. So few numbers travel, and the total has the
same bits however the agents are dealt.
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
from .oracle import AgentOracle

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Reply:
    """An agent's reply to a message."""

    message: Any  # `Batch` in one that stands for the replies of all agents
    outcome: Outcome  # how its last public solve ended
    diverged: bool = False  # whether its result so far has left all bounds
    term: bool = False  # whether the server side takes only the sum of such messages over agents


@dataclass(frozen=True, eq=False)
class Report:
    """Results and ledger of an agent at the end of a run."""

    answer: Answer
    violation: float  # by which the last iterate leaves the agent's set at most; nan if unknown
    account: Account
    releases: list[Release]  # empty unless recorded


class Worker:
    """Takes the turns of one agent, or of a batch of identical agents, where their data are.

    Only replies and reports leave. All methods take and return a list with an element per agent.

    Parameters
    ----------
    algorithm : Algorithm
    program : LocalProgram
        Program of the first agent; the others differ in names.
    oracle : AgentOracle
    agents : sequence of int
        Positions of the agents in the plan.
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
        """Take one exchange; agents without a message stay idle."""
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
            # The plan has not priced all of them.
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
        if not term:  # one reply of all, from which `receive` takes what it needs
            return [made(Batch(reply, count, partial(row_of, reply)))] * count
        replies: list[Reply | None] = [made(None)] * count
        for row, part in partial_rows(reply).items():
            replies[row] = made(part)
        return replies

    def answer(self) -> list[Answer | None]:
        """Return the iterates so far; None if the server side knows them."""
        answer, count = self._algorithm.answer(self._state), self._count
        if count == 1 or row_of(answer, 0) is answer:  # one object where they are the same of all
            return [answer] * count
        return [row_of(answer, i) for i in range(count)]

    def report(self, concluded: Sequence[Answer | None]) -> list[Report]:
        """Return results, ledgers and releases so far.

        Parameters
        ----------
        concluded : sequence of (Answer or None)
            The results, where the server side knows them.
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
            reports.append(Report(answer, violations[key], account, releases[agent]))
        return reports

    def _common(self, messages: Sequence[Any]) -> Any:
        """Return the message to a batch."""
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
        Arrays of two dimensions have a row per agent, also in dataclasses; all else is of each.
    i : int
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
    """Build a worker where it runs; the oracle, and with it the data, is made here."""
    return Worker(algorithm, program, oracle(), agents)


# A run that converges goes no farther in t rounds than about t^2 times its first step, which would
# take a million rounds to come this far.
_GROWTH = 1e12
# Squares of larger numbers, and what solvers make of these, overflow soon.
_LARGEST = 1e100
# Rounds whose values say what is ordinary. Some methods stay at the start in the first one.
_FIRST = 2


@dataclass(frozen=True)
class Growth:
    """Size of the first values, and the verdict whether later ones are out of all proportion.

    Attributes
    ----------
    ordinary : float or ndarray
        Largest magnitude of the first rounds, and at least 1; of each row where values have rows.
    diverged : bool
        Whether values became infinite or undefined, or left all bounds.
    """

    ordinary: float | Array = 1.0
    diverged: bool = False

    def after(self, t: int, values: Array) -> Growth:
        """Return this record with the values of round t (from 1), shape (n,) or (rows, n)."""
        size = np.abs(values).max(axis=-1, initial=0.0)
        first = t <= _FIRST
        limit = _LARGEST if first else np.minimum(_LARGEST, _GROWTH * self.ordinary)
        # Written so that nan, which is below nothing, has diverged.
        diverged = self.diverged or not bool(np.all(size <= limit))
        return Growth(np.fmax(self.ordinary, size) if first else self.ordinary, diverged)


def of_residuals(growth: Growth, t: int, residuals: Residuals) -> Growth:
    """Return the growth after these residuals; the dual one is unknown in round 1 only."""
    after = growth.after(t, np.array([residuals.primal, residuals.mismatch]))
    values = (residuals.penalty, residuals.dual)[: 1 if t == 1 else 2]
    return after if all(map(math.isfinite, values)) else Growth(after.ordinary, True)


@dataclass(frozen=True, eq=False)
class PartialSum:
    """A sum over the ``2 ** level`` agents of a node, on its way in the reply of the first one."""

    level: int
    value: Any


def partial_sums(terms: Mapping[int, Any]) -> dict[int, PartialSum]:
    """Return partial sums of some agents' terms, by the first agent of a node.

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
    """Return `partial_sums` of the rows of an array, row k from agent k: the same bits, at once.

    Parameters
    ----------
    rows : ndarray, shape (agents, n)
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
    """Return the sum over all agents.

    Parameters
    ----------
    replies : iterable
        Replies by agent: its summand, a `PartialSum` that begins with it, or None if it has none or
        another part contains it.
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
