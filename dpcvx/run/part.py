"""One agent's part of a plan, as a plan of its own, for a process that has the agent's data.

A plan consists of its parts, `parts_of`, and the method's server side. A process with a part, a
ledger and the data can perform the agent's local updates:

>>> (part,) = [part for part in parts_of(plan) if part.agent.name == "north"]
>>> with Journal("north.jsonl") as journal:
...     start = begin([part], journal, seeded=False)      # dpcvx.run.resume: fresh or resumed
...     with journal.exchange():
...         gate = gate_of([part], start.agents, journal=journal)
...         worker = worker_of([part], [sources], gate)()
...     with journal.exchange():
...         (reply,) = worker.act(t, k, [message])        # charged, computed, noised
...     (report,) = worker.report([None])                 # all is on disk: the reply may be sent

A part is public, immutable and picklable. A worker contains data and cannot be pickled.
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
        Privacy account of the agent.
    earlier : int
        Number of its entries from before this run.
    past : mapping of (round, step) to ndarray
        Values that this run released before it was interrupted, by round and step.
    paid : collection of (round, step)
        Releases that were charged but not made, by round and step.
    """

    account: Account
    earlier: int = 0
    past: Mapping[tuple[int, int], Array] = field(default_factory=dict)
    paid: Collection[tuple[int, int]] = ()

    @property
    def held(self) -> int:
        """Number of releases in the ledger when the run begins, including resumed ones."""
        return self.earlier + len(self.past) + len(self.paid)


@dataclass(frozen=True, eq=False)
class AgentPart:
    """Part of a plan for one agent, with the public facts that the agent's updates need.

    Attributes
    ----------
    agent : AgentPlan
        Plan of the agent: its program, noise, sensitivity, released statistic and budget.
    place : int
        Index of the agent in the plan.
    algorithm : Algorithm
        Method, with a number for every default.
    rounds : int
        Planned number of rounds.
    schedule : sequence of int, length rounds + 1
        Number of releases of an agent in the first 0, 1, ... rounds.
    published : bool
        Whether the data are released once, before the first round.
    fingerprint : str
        Fingerprint of the plan.
    charge : Entry or None
        Ledger entry of a run that is charged as a whole; None if each release is charged.
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
        """Return the random source of the agent's noise in a run.

        Parameters
        ----------
        begun : Begun
            State of the agent's ledger.
        seed : int or None
            Noise seed; None for the operating system's generator.
        """
        return source_for(seed, (int(self.fingerprint[:16], 16), self.place, begun.earlier))


def oracle_of(
    parts: Sequence[AgentPart], sources: Sequence[Sequence[Callable[[], Any]]], gate: PrivacyGate
) -> Callable[[], AgentOracle]:
    """Return a function that constructs the oracle of an agent or batch where the data are.

    Parameters
    ----------
    parts : sequence of AgentPart
        Parts of the gate's agents.
    sources : sequence of sequence of callables
        Functions that return the data, one per private object of each agent's objective.
    gate : PrivacyGate
        Gate of these agents.
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
    """Return the privacy gate of one agent, or of a batch of agents.

    Parameters
    ----------
    parts : sequence of AgentPart
        Parts of the agents.
    begun : sequence of Begun
        State of each agent's ledger.
    journal : Writer, optional
        Journal of charges and releases, which are on disk when a local update ends. Inside
        `Journal.exchange`, they are on disk at its end, and no reply may be sent before.
    seed : int, optional
        Noise seed; fresh from the operating system if omitted.
    record : bool
        Whether to keep all releases, for a transcript.
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
    """Return a function that constructs the worker of an agent or batch where the data are.

    Parameters
    ----------
    parts, sources, gate
        Parts, data and gate of the agents; see `oracle_of`.
    """
    first, places = parts[0], [part.place for part in parts]
    oracle = oracle_of(parts, sources, gate)
    return partial(make_worker, first.algorithm, first.agent.program, oracle, places)


def parts_of(plan: Terms) -> tuple[AgentPart, ...]:
    """Return the parts of a plan, one per agent."""
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
