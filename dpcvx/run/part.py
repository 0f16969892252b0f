"""One agent's part of a plan: what lives where its data are, as a plan of its own.

A plan is a tuple of parts, `parts_of`, next to the method's server side. Whoever holds a part, a
ledger and the data can take the agent's turns, in any process:

>>> (part,) = [part for part in parts_of(plan) if part.agent.name == "north"]
>>> with Journal("north.jsonl") as journal:
...     start = begin([part], journal, seeded=False)      # dpcvx.run.resume: fresh or gone on with
...     with journal.exchange():
...         worker = part.worker(sources, start.agents[0], journal=journal)()
...     with journal.exchange():
...         reply = worker.act(t, k, message)             # charged, computed, noised
...     report = worker.report()                          # the reply may leave: all is on disk

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
from ..privacy.notes import Writer
from ..privacy.randomness import Source, source_for
from .gate import Release, ReleaseGate
from .oracle import AgentOracle
from .private_oracle import PrivateOracle
from .public_oracle import publish
from .worker import Worker, make_worker

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Begun:
    """Where an agent starts from.

    Attributes
    ----------
    account : Account
    earlier : int
        Entries in it before this run.
    past : mapping of (round, step) to ndarray
        What this run released before it was interrupted.
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
class Part:
    """What a plan fixes for one agent, and what its turns need of the rest.

    Attributes
    ----------
    agent : AgentPlan
        Program, noise, sensitivity, publication, budget.
    place : int
        Its position among the agents of the plan.
    algorithm : Algorithm
        With all its numbers.
    rounds : int
    schedule : sequence of int, length rounds + 1
        Releases of an agent in the first 0, 1, ... rounds.
    published : bool
        Whether the data leave once, before the first round.
    fingerprint : str
        Of the plan.
    charge : Entry or None
        What a run is charged as a whole, before it begins; None where releases are charged.
    """

    agent: AgentPlan
    place: int
    algorithm: Algorithm[Any, Any]
    rounds: int
    schedule: Sequence[int]
    published: bool
    fingerprint: str
    charge: Entry | None = None

    def oracle(
        self, sources: Sequence[Callable[[], Any]], gate: ReleaseGate
    ) -> Callable[[], AgentOracle]:
        """Makes what answers from the agent's data, where these are.

        Parameters
        ----------
        sources : sequence of callables
            One per private object of the objective; called when the oracle is made.
        gate : ReleaseGate
        """
        facts = self.agent
        if self.published:
            return partial(publish, facts, sources, self.agent.publication, gate)
        return partial(PrivateOracle, facts, sources, gate)

    def source(self, begun: Begun, seed: int | None) -> Source:
        """Of the agent's noise.

        Parameters
        ----------
        begun : Begun
        seed : int or None
            Fresh from the operating system if None.
        """
        return source_for(seed, (int(self.fingerprint[:16], 16), self.place, begun.earlier))

    def worker(
        self,
        sources: Sequence[Callable[[], Any]],
        begun: Begun,
        *,
        journal: Writer | None = None,
        seed: int | None = None,
        record: bool = False,
    ) -> Callable[[], Worker]:
        """Makes the agent where it lives.

        Parameters
        ----------
        sources : sequence of callables
            One per private object of the objective.
        begun : Begun
        journal : Writer, optional
            What is charged and released is on disk when a turn ends; in a `Journal.exchange`, when
            that ends, before which nothing may leave.
        seed : int, optional
            Of the noise; fresh from the operating system if omitted.
        record : bool
            Keep the releases.
        """
        gate = ReleaseGate(
            self.place,
            self.agent.noise,
            begun.account,
            self.source(begun, seed),
            record=record,
            past=[Release(self.place, *place, value) for place, value in begun.past.items()],
            paid=begun.paid,
            journal=journal,
        )
        oracle = self.oracle(sources, gate)
        return partial(make_worker, self.algorithm, self.agent.program, oracle)


def parts_of(plan: Terms) -> tuple[Part, ...]:
    """The plan, agent by agent."""
    schedule = tuple(plan.releases(rounds) for rounds in range(plan.rounds + 1))
    charges: Mapping[str, Entry] = {}
    if plan.last is not None:
        asserted = plan.guarantee.kind == "asserted"
        charges = run_entries(plan.agents, plan.last, plan.rounds, asserted)
    return tuple(
        Part(
            agent=agent,
            place=place,
            algorithm=plan.algorithm,
            rounds=plan.rounds,
            schedule=schedule,
            published=plan.published,
            fingerprint=plan.fingerprint,
            charge=charges.get(agent.name),
        )
        for place, agent in enumerate(plan.agents)
    )
