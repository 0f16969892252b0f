"""One agent's part of a plan: it lives where the agent's data are, as a plan of its own.

A plan is a tuple of parts, `parts_of`, next to the method's server side. A process with a part, a
ledger and the data can make the agent's local updates:

>>> (part,) = [part for part in parts_of(plan) if part.agent.name == "north"]
>>> with Journal("north.jsonl") as journal:
...     start = begin([part], journal, seeded=False)      # dpcvx.run.resume: fresh or gone on with
...     with journal.exchange():
...         gate = gate_of([part], start.agents, journal=journal)
...         worker = worker_of([part], [sources], gate)()
...     with journal.exchange():
...         (reply,) = worker.act(t, k, [message])        # charged, computed, noised
...     (report,) = worker.report([None])                 # the reply may leave: all is on disk

A part is public and frozen, and pickles; a worker holds data and does not.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..algorithms.base import Algorithm
from ..plan.agent_plan import AgentPlan
from ..plan.last_iterate import run_entries
from ..plan.terms import Terms
from ..privacy.accounts import Account
from ..privacy.entries import Entry
from ..privacy.ledger_lines import Writer
from ..privacy.randomness import Source, source_for, together
from .gate import PrivacyGate, Release
from .oracle import AgentOracle
from .private_oracle import PrivateOracle
from .public_oracle import publish
from .worker import Worker, make_worker

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Begun:
    """State of an agent's ledger when a run begins or resumes.

    Attributes
    ----------
    account : Account
    earlier : int
        Entries in it before this run.
    past : mapping of (round, step) to ndarray
        Values that this run released before it was interrupted.
    paid : collection of (round, step)
        Releases that were charged for and not made.
    """

    account: Account
    earlier: int = 0
    past: Mapping[tuple[int, int], Array] = field(default_factory=dict)
    paid: Collection[tuple[int, int]] = ()

    @property
    def held(self) -> int:
        """Releases that the ledger knows of when the run begins or resumes."""
        return self.earlier + len(self.past) + len(self.paid)


@dataclass(frozen=True, eq=False)
class AgentPart:
    """Part of a plan for one agent, with the facts on other agents that its updates need.

    Attributes
    ----------
    agent : AgentPlan
        Program, noise, sensitivity, publication, budget.
    place : int
        Its position among the agents of the plan.
    algorithm : Algorithm
        Method with all its numbers.
    rounds : int
    schedule : sequence of int, length rounds + 1
        Releases of an agent in the first 0, 1, ... rounds.
    published : bool
        Whether the data are released once, before the first round.
    fingerprint : str
        Fingerprint of the plan.
    charge : Entry or None
        Charge of a run as a whole, before it begins; None if releases are charged.
    """

    agent: AgentPlan
    place: int
    algorithm: Algorithm[Any, Any]
    rounds: int
    schedule: Sequence[int]
    published: bool
    fingerprint: str
    charge: Entry | None = None

    def source(self, begun: Begun, seed: int | None) -> Source:
        """Return the source of the agent's noise.

        Parameters
        ----------
        begun : Begun
        seed : int or None
            Fresh from the operating system if None.
        """
        return source_for(seed, (int(self.fingerprint[:16], 16), self.place, begun.earlier))


def oracle_of(
    parts: Sequence[AgentPart], sources: Sequence[Sequence[Callable[[], Any]]], gate: PrivacyGate
) -> Callable[[], AgentOracle]:
    """Return a function that makes the oracle of an agent or a batch, where the data are.

    Parameters
    ----------
    parts : sequence of AgentPart
        Parts of the agents of the gate.
    sources : sequence of sequence of callables
        Per agent, one per private object of the objective; called when the oracle is made.
    gate : PrivacyGate
    """
    first, facts = parts[0], [part.agent for part in parts]
    if first.published:
        return partial(publish, facts[0], sources[0], first.agent.publication, gate)
    return partial(PrivateOracle, facts, sources, gate)


def gate_of(
    parts: Sequence[AgentPart],
    begun: Sequence[Begun],
    *,
    journal: Writer | None = None,
    seed: int | None = None,
    record: bool = False,
) -> PrivacyGate:
    """Return the gate of one agent, or of a batch.

    Parameters
    ----------
    parts : sequence of AgentPart
    begun : sequence of Begun
        State that each of the agents starts from.
    journal : Writer, optional
        Journal of charges and releases, which are on disk when a turn ends. In a
        `Journal.exchange`, they are on disk when that ends, and nothing may be released before.
    seed : int, optional
        Noise seed; fresh from the operating system if omitted.
    record : bool
        Keep the releases.
    """
    pairs = [*zip(parts, begun, strict=True)]
    return PrivacyGate(
        [part.place for part in parts],
        parts[0].agent.noise,
        [start.account for start in begun],
        together([part.source(start, seed) for part, start in pairs]),
        record=record,
        past=[
            Release(part.place, *when, value)
            for part, start in pairs
            for when, value in start.past.items()
        ],
        paid=[start.paid for start in begun],
        journal=journal,
    )


def worker_of(
    parts: Sequence[AgentPart], sources: Sequence[Sequence[Callable[[], Any]]], gate: PrivacyGate
) -> Callable[[], Worker]:
    """Return a function that makes the worker of an agent or a batch, where the data are.

    Parameters
    ----------
    parts, sources, gate
        See `oracle_of`.
    """
    first, places = parts[0], [part.place for part in parts]
    oracle = oracle_of(parts, sources, gate)
    return partial(make_worker, first.algorithm, first.agent.program, oracle, places)


def parts_of(plan: Terms) -> tuple[AgentPart, ...]:
    """Return the parts of the plan, agent by agent."""
    schedule = tuple(plan.releases(rounds) for rounds in range(plan.rounds + 1))
    charges: Mapping[str, Entry] = {}
    if plan.last is not None:
        asserted = plan.guarantee.kind == "asserted"
        charges = run_entries(plan.agents, plan.last, plan.rounds, asserted)
    return tuple(
        AgentPart(
            agent=agent,
            place=position,
            algorithm=plan.algorithm,
            rounds=plan.rounds,
            schedule=schedule,
            published=plan.published,
            fingerprint=plan.fingerprint,
            charge=charges.get(agent.name),
        )
        for position, agent in enumerate(plan.agents)
    )
