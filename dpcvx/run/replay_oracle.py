"""Answers from a transcript: no data, no noise, nothing spent."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from ..errors import PrivacyError
from ..model.normal_form import Evaluator
from ..privacy.accounts import Account
from ..sensitivity.known import Facts, finite_gradient
from ..sensitivity.queries.query import Query
from ..sensitivity.stored_vectors import LinearCombination
from .gate import Release
from .oracle import AgentOracle
from .public_oracle import PublicOracle

Array = NDArray[np.float64]
# Of a release: round, step, question, answer, and whether an observer knows the question's points.
Watcher = Callable[[int, int, Query, Array, bool], None]


class ReplayOracle(AgentOracle):
    """Answers from a transcript, for one agent or for a batch.

    Parameters
    ----------
    agents : sequence of int
        Positions in the plan.
    facts : Facts
        Of the first agent; the others differ in names.
    releases : iterable of Release
    accounts : sequence of Account
    public : Evaluator, optional
        Answers where nothing was recorded, because no answer depended on private data.
    added : Evaluator, optional
        Its gradient is added to recorded gradients: only the private part was released.
    watch : callable, optional
        Called with every release of a single agent.
    """

    def __init__(
        self,
        agents: Sequence[int],
        facts: Facts,
        releases: Iterable[Release],
        accounts: Sequence[Account],
        public: Evaluator | None = None,
        added: Evaluator | None = None,
        watch: Watcher | None = None,
    ) -> None:
        super().__init__(lambda: [*accounts], [], len(agents))
        self._watch, self._drew = watch, False
        self._size = facts.form.n
        self._added = None if added is None else partial(finite_gradient, added)
        rows = {agent: row for row, agent in enumerate(agents)}
        self._values: dict[tuple[int, int], dict[int, Array]] = {}
        for r in releases:
            if r.agent in rows:
                self._values.setdefault((r.round, r.step), {})[rows[r.agent]] = r.value
        self._public = None if public is None else PublicOracle(facts, public, accounts[0], [])

    def release(self, query: Query) -> Array:
        """Return the recorded answer; of a batch, a row per agent."""
        place = self._next()
        values = self._values.get(place, {})
        if self.count > 1:
            parts = [self._answer(place, values.get(k), query.among(k)) for k in range(self.count)]
            return np.array(parts)
        answer = self._answer(place, values.get(0), query)
        if self._watch is not None and (values or self._public is None):
            self._watch(*place, query, answer, not self._drew)
        return answer

    def _answer(self, place: tuple[int, int], value: Array | None, query: Query) -> Array:
        if value is None and self._public is not None:
            return self._public.release(query)
        size = query.size(self._size)
        if value is None or value.shape != (size,):
            raise PrivacyError(
                f"The transcript has no release of {size} numbers for round {place[0]}, step "
                f"{place[1]}. It was recorded under another plan, or the run stopped earlier. "
                "Replay it with the plan it came from."
            )
        return query.finish(value.copy(), self._added)

    def uniform(self, size: int) -> Array:
        """Not what the agent drew, which nobody else knows."""
        self._drew = True
        return super().uniform(size)

    def store(self, name: str, combination: LinearCombination) -> None:
        """What was stored is not known; what is public is made again."""
        if self._public is not None:
            self._public.store(name, combination)
