"""Agents that differ in names and data only, and take all turns together in this process.

Their states are one, whose arrays have a row per agent where agents differ, and their gradients are
rows of one array: a thousand small clients cost little more than their arithmetic. What they
release, spend and write is what they would one by one: the same noise from the same seed, and in
the ledger's file a line per exchange for all that are charged alike in place of one per agent.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ..algorithms.base import Algorithm, Answer, InStep, Local, Requirements
from ..algorithms.program import LocalProgram
from ..errors import ModelError
from ..plan.terms import Terms
from ..privacy.joint_account import JointAccount
from ..privacy.notes import Writer
from ..privacy.randomness import Sources, together
from ..solvers.newton import PLAIN
from ..solvers.projector import Projector
from .divergence import Growth
from .fleet_oracle import ANSWERED, FleetOracle
from .gate import FleetGate
from .oracle import FleetAnswers
from .part import Part
from .resume import Start
from .sums import partial_rows
from .worker import Reply, Report


def is_fleet(plan: Terms, start: Start) -> bool:
    """Whether all agents of a plan can take their turns together.

    They differ in names and data only, share all variables, hear the same in every round or what
    neighbours sent, add noise in each step, begin afresh, and have spent alike so far.

    Parameters
    ----------
    plan : Terms
    start : Start
        Where the run starts from.
    """
    first, *others = plan.agents
    local, known, noise = first.program, first.sensitivity, first.noise
    return (
        bool(others)
        and plan.algorithm.in_step
        and set(plan.algorithm.requirements.queries) <= set(ANSWERED)
        and (not _projects(plan.algorithm.requirements) or local.proximal().batched)
        and not (plan.published or plan.hidden or plan.prepaid)
        and (known is not None and known.bound(2).value > 0 and not known.splits)
        and (noise is not None and noise.split is None and noise.truncation is None)
        and local.shared.size == local.n
        and all(np.array_equal(one.program.slots, local.slots) for one in others)
        and len({agent.kind for agent in plan.agents}) == 1
        and not any(begun.past or begun.paid for begun in start.agents)
        and all(begun.account.equals(start.agents[0].account) for begun in start.agents[1:])
    )


def _projects(needs: Requirements) -> bool:
    """Whether agents' steps end in their sets: solvers may fail for one agent alone."""
    return needs.proximal not in (False, "server")


def gate_of_all(
    parts: Sequence[Part], start: Start, source: Sources, journal: Writer | None
) -> FleetGate:
    """The gate of all agents of a plan.

    Parameters
    ----------
    parts : sequence of Part
    start : Start
    source : Sources
        Of the noise; see `noise_of_all`.
    journal : Writer or None
    """
    names, noise = [part.agent.name for part in parts], parts[0].agent.noise
    assert noise is not None  # is_fleet
    account = JointAccount([begun.account for begun in start.agents])
    return FleetGate(names, noise, account, source, journal)


def noise_of_all(parts: Sequence[Part], start: Start, seed: int | None) -> Sources:
    """The noise of all agents of a plan: of each what it would have one by one."""
    pairs = zip(parts, start.agents, strict=True)
    return together([part.source(begun, seed) for part, begun in pairs])


def oracle_of_all(
    parts: Sequence[Part], sources: Sequence[Sequence[Callable[[], Any]]], gate: FleetGate
) -> Callable[[], FleetOracle]:
    """Makes what answers from the data of all agents of a plan.

    Parameters
    ----------
    parts : sequence of Part
    sources : sequence of sequence of callables
        Per agent, one per private object of the objective; called when the oracle is made.
    gate : FleetGate
    """
    return partial(FleetOracle, [part.agent for part in parts], sources, gate)


def row_of(thing: Any, i: int) -> Any:
    """What one of several agents has of what they have together.

    Parameters
    ----------
    thing : Any
        Arrays of two dimensions have a row per agent, also in dataclasses; all else is of each.
    i : int
    """
    if isinstance(thing, np.ndarray):
        return thing[i] if thing.ndim > 1 else thing
    if not dataclasses.is_dataclass(thing) or isinstance(thing, type):
        return thing
    parts = {one.name: getattr(thing, one.name) for one in dataclasses.fields(thing)}
    own = {name: row_of(part, i) for name, part in parts.items()}
    changed = {name: part for name, part in own.items() if part is not parts[name]}
    return dataclasses.replace(thing, **changed) if changed else thing


class Fleet:
    """All agents of a plan; see `is_fleet`, and `Worker` for what one does.

    Parameters
    ----------
    algorithm : Algorithm
    program : LocalProgram
        Of the first agent.
    count : int
        Number of agents.
    oracle : callable
        Makes what answers from the data of all.
    """

    def __init__(
        self,
        algorithm: Algorithm[Any, Any],
        program: LocalProgram,
        count: int,
        oracle: Callable[[], FleetAnswers],
    ) -> None:
        self._oracle = oracle()
        self._algorithm = algorithm
        self._local = Local(
            program=program,
            projector=Projector(
                program.constraints, program.name, program.rest, program.kernel or PLAIN
            ),
            exact=None,
            public_gradient=program.form.at_zero().gradient,
        )
        self._state = self._algorithm.start_agent(self._local)
        self._growth = Growth()
        self._count = count

    def act(self, t: int, k: int, messages: Sequence[Any]) -> list[Reply]:
        """One exchange, in which all hear the same, or are told together."""
        message = messages.whole if isinstance(messages, InStep) else messages[0]
        if not (isinstance(messages, InStep) or all(one is message for one in messages)):
            raise ModelError(
                f"Agents of {type(self._algorithm).__name__} take their turns together and hear "
                "different messages. Leave in_step of the method at False."
            )
        if k == 0:
            self._oracle.begin(t)
        self._state, reply = self._algorithm.act(
            self._local, self._state, t, k, message, self._oracle
        )
        answer = self._algorithm.answer(self._state)
        if answer is not None:
            self._growth = self._growth.after(t, answer.last)
        outcome, adds = self._algorithm.outcome(self._state), self._algorithm.adds(k)
        told = partial(Reply, outcome=outcome, diverged=self._growth.diverged, term=adds)
        count = len(messages)
        if adds:
            replies, sums = [told(None)] * count, partial_rows(reply)
            for place, part in sums.items():
                replies[place] = told(part)
            return replies
        # The same of all, from which `receive` takes what it needs.
        return [told(InStep(reply, count, partial(row_of, reply)))] * count

    def answer(self) -> list[Answer | None]:
        """The iterates so far; one object where they are the same of all."""
        answer = self._algorithm.answer(self._state)
        if row_of(answer, 0) is answer:
            return [answer] * self._count
        return [row_of(answer, i) for i in range(self._count)]

    def report(self, concluded: Sequence[Answer | None]) -> list[Report]:
        """Results and ledgers.

        Parameters
        ----------
        concluded : sequence of (Answer or None)
            The results, where the server side knows them.
        """
        reports: list[Report] = []
        violations: dict[int, float] = {}
        accounts = self._oracle.accounts()
        for account, known, own in zip(accounts, concluded, self.answer(), strict=True):
            answer = own if known is None else known
            assert answer is not None
            key = id(answer.last)
            if key not in violations:
                violations[key] = self._local.projector.violation(answer.last)
            reports.append(Report(answer, violations[key], account, []))
        return reports
