"""One agent at work: its oracle, its compiled set, its state of the algorithm."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..algorithms.base import Algorithm, Answer, Local
from ..algorithms.program import LocalProgram
from ..privacy.accounts import Account
from ..solvers.conic import ConicProgram, Outcome
from ..solvers.newton import PLAIN
from ..solvers.projector import Projector
from .divergence import Growth
from .gate import Release
from .oracle import AgentOracle

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Reply:
    """What an agent answers.

    Attributes
    ----------
    message : Any
        `InStep` in one that stands for the replies of all agents.
    outcome : Outcome
        How its last public solve ended.
    diverged : bool
        Whether its result so far has left all bounds.
    term : bool
        Whether the message is an array of which the server side takes the sum over agents alone.
    """

    message: Any
    outcome: Outcome
    diverged: bool = False
    term: bool = False


@dataclass(frozen=True, eq=False)
class Report:
    """What an agent hands over at the end.

    Attributes
    ----------
    answer : Answer
    violation : float
        Largest component by which the last iterate leaves the agent's set; nan if unknown.
    account : Account
    releases : list of Release
        Empty unless recorded.
    """

    answer: Answer
    violation: float
    account: Account
    releases: list[Release]


class Worker:
    """Lives where the agent's data are; only messages and reports leave.

    Parameters
    ----------
    algorithm : Algorithm
    program : LocalProgram
    oracle : AgentOracle
    """

    def __init__(
        self,
        algorithm: Algorithm[Any, Any],
        program: LocalProgram,
        oracle: AgentOracle,
    ) -> None:
        self._algorithm = algorithm
        self._oracle = oracle
        self._local = Local(
            program=program,
            projector=Projector(
                program.constraints, program.name, program.rest, program.kernel or PLAIN
            ),
            exact=None if program.exact is None else ConicProgram(program.exact),
            public_gradient=program.form.at_zero().gradient,
        )
        self._state = algorithm.start_agent(self._local)
        self._growth = Growth()

    def act(self, t: int, k: int, message: Any) -> Reply | None:
        """One exchange; an agent without a message stays idle."""
        if message is None:
            return None
        if k == 0:
            self._oracle.begin(t)
        self._state, reply = self._algorithm.act(
            self._local, self._state, t, k, message, self._oracle
        )
        answer = self.answer()
        if answer is not None:
            self._growth = self._growth.after(t, answer.last)
        outcome, term = self._algorithm.outcome(self._state), self._algorithm.adds(k)
        return Reply(reply, outcome, self._growth.diverged, term)

    def answer(self) -> Answer | None:
        """The agent's iterates so far; None if the server side knows them."""
        return self._algorithm.answer(self._state)

    def report(self, concluded: Answer | None = None) -> Report:
        """The agent's result, ledger and releases so far.

        Parameters
        ----------
        concluded : Answer, optional
            The result, where the server side knows it.
        """
        answer = self.answer() if concluded is None else concluded
        assert answer is not None
        violation = self._local.projector.violation(answer.last)
        return Report(answer, violation, self._oracle.account, list(self._oracle.releases))


def make_worker(
    algorithm: Algorithm[Any, Any],
    program: LocalProgram,
    oracle: Callable[[], AgentOracle],
) -> Worker:
    """Build a worker where it runs; the oracle, and with it the data, is made here."""
    return Worker(algorithm, program, oracle())
