"""Answers from the data of many agents at once, where these differ in names and data only.

The same door as that of one agent: what a question costs is charged, for all of them in one line of
the ledger, and their answers leave with noise of each agent's own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import PrivacyError
from ..model.behind_the_door import BehindTheDoor
from ..model.stacked import StackedObjective
from ..plan.agent_terms import AgentTerms
from ..privacy.accounts import Account
from ..privacy.ledger_file import Journal
from ..privacy.randomness import Sources
from ..sensitivity.known import Known, finite_gradient
from ..sensitivity.queries import Gradient, Query
from ..sensitivity.stored_vectors import LinearCombination
from .gate import charge_for, read, withheld
from .oracle import AgentOracle

Array = NDArray[np.float64]


class FleetOracle(BehindTheDoor, AgentOracle):
    """Gradients of many agents at one point, a row per agent, each with noise of its own.

    Parameters
    ----------
    agents : sequence of AgentTerms
        Of one kind, with noise in each step.
    accounts : sequence of Account
        Equal but for names: the first is charged, and stands for all.
    sources : sequence of sequence of callables
        Per agent, one per private parameter; called here, once.
    noise : Sources
        Of the agents' noise.
    journal : Journal or None
        Where charges and values are written before they take effect.
    """

    def __init__(
        self,
        agents: Sequence[AgentTerms],
        accounts: Sequence[Account],
        sources: Sequence[Sequence[Callable[[], Any]]],
        noise: Sources,
        journal: Journal | None,
    ) -> None:
        super().__init__(accounts[0].copy(), [])
        first = agents[0]
        assert first.noise is not None and first.sensitivity is not None
        self._names = [agent.name for agent in agents]
        self._whose = f"'{first.name}', or of {len(agents) - 1} others in one array with them,"
        self._facts, self._noise, self._source = first.facts, first.noise, noise
        self._journal = journal
        self._zero = first.program.form.at_zero()
        clips = first.sensitivity.clips
        # Never in a variable of a frame: those show in tracebacks.
        self._objective = withheld(
            self._whose,
            lambda: StackedObjective(
                first.program.form,
                [
                    np.stack(parts)
                    for parts in zip(
                        *(
                            read(agent.program.form.private, own)
                            for agent, own in zip(agents, sources, strict=True)
                        ),
                        strict=True,
                    )
                ],
                clips,
            ),
        )
        mechanism = first.noise.mechanism
        self._known = Known(
            first.facts, mechanism.norm, np.nan, self._public_gradient, first.facts.projector
        )

    def release(self, query: Query) -> Array:
        """The gradients plus noise, shape (agents, n).

        Raises
        ------
        PrivacyError
            If nothing bounds what one change of the data does to them.
        BudgetError
            If an account cannot afford them.
        """
        if type(query) is not Gradient or query.through is not None:
            raise PrivacyError(
                "Agents that are evaluated together release gradients as they are, and a method "
                f"asks them for {type(query).__name__}. Leave in_step of the method at False."
            )
        x, place = query.x, self._next()
        noise = self._noise.at(*place)
        bound = query.bound(self._known)
        grid, entry = charge_for(self._facts, place, query, noise, self._known, bound)
        if grid is None or entry is None:  # certified not to depend on the data
            return np.tile(self._public_gradient(x), (len(self._names), 1))
        # All accounts are equal: what one affords, all do.
        self.account.charge(entry, noise)
        if self._journal is not None:
            self._journal.charge_all(self._names, entry)
        streams = self._source.at(*place)
        left = withheld(
            self._whose,
            lambda: noise.release_rows(_finite(self._objective.gradients(x)), grid, streams),
        )
        if self._journal is not None:
            self._journal.release_all(self._names, place, left)
        return left

    def uniform(self, size: int) -> Array:
        """Refused: random numbers that stay secret are each agent's own."""
        raise PrivacyError(
            "Agents that are evaluated together draw no numbers of their own. Leave in_step of the "
            "method at False."
        )

    def store(self, name: str, combination: LinearCombination) -> None:
        """Refused: agents that take their turns together keep nothing of their own."""
        raise PrivacyError("Agents that are evaluated together store no vectors.")

    def _public_gradient(self, x: Array) -> Array:
        return finite_gradient(self._zero, x)

    def __repr__(self) -> str:
        return f"FleetOracle(agents={len(self._names)})"


def _finite(gradients: Array) -> Array:
    return np.where(np.isfinite(gradients), gradients, 0.0)
