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
from ..sensitivity.queries.gradients import Gradient, Step, among
from ..sensitivity.queries.query import Query
from ..sensitivity.stored_vectors import LinearCombination
from .gate import Release
from .oracle import AgentOracle, FleetAnswers
from .public_oracle import PublicOracle

Array = NDArray[np.float64]
# Of a release: round, step, question, answer, and whether an observer knows the question's points.
Watcher = Callable[[int, int, Query, Array, bool], None]


class ReplayOracle(AgentOracle):
    """Answers from a transcript.

    Parameters
    ----------
    agent : int
    facts : Facts
    releases : iterable of Release
    account : Account
    public : Evaluator, optional
        Answers where nothing was recorded, because no answer depended on private data.
    added : Evaluator, optional
        Its gradient is added to recorded gradients: what left was the private part alone.
    watch : callable, optional
        Told of every release.
    """

    def __init__(
        self,
        agent: int,
        facts: Facts,
        releases: Iterable[Release],
        account: Account,
        public: Evaluator | None = None,
        added: Evaluator | None = None,
        watch: Watcher | None = None,
    ) -> None:
        super().__init__(account, [])
        self._watch, self._drew = watch, False
        self._size = facts.form.n
        self._added = None if added is None else partial(finite_gradient, added)
        self._values = {(r.round, r.step): r.value for r in releases if r.agent == agent}
        self._public = None if public is None else PublicOracle(facts, public, account, [])

    def release(self, query: Query) -> Array:
        """The recorded answer."""
        place = self._next()
        if place not in self._values and self._public is not None:
            return self._public.release(query)
        value, size = self._values.get(place), query.size(self._size)
        if value is None or value.shape != (size,):
            raise PrivacyError(
                f"The transcript has no release of {size} numbers for round {place[0]}, step "
                f"{place[1]}. It was recorded under another plan, or the run stopped earlier. "
                "Replay it with the plan it came from."
            )
        answer = query.finish(value.copy(), self._added)
        if self._watch is not None:
            self._watch(*place, query, answer, not self._drew)
        return answer

    def uniform(self, size: int) -> Array:
        """Not what the agent drew, which nobody else knows."""
        self._drew = True
        return super().uniform(size)

    def store(self, name: str, combination: LinearCombination) -> None:
        """What was stored is not known; what is public is made again."""
        if self._public is not None:
            self._public.store(name, combination)


class ReplayRows(FleetAnswers):
    """Answers of many agents at once, each from a transcript.

    Parameters
    ----------
    oracles : sequence of callables
        Make every agent's own.
    """

    def __init__(self, oracles: Sequence[Callable[[], AgentOracle]]) -> None:
        self._oracles = [oracle() for oracle in oracles]
        super().__init__(self._oracles[0].account, [])

    def begin(self, t: int) -> None:
        """Start round t."""
        for oracle in self._oracles:
            oracle.begin(t)

    def release(self, query: Query) -> Array:
        """The recorded answers, a row per agent."""
        assert isinstance(query, (Gradient, Step))  # see `is_fleet`
        rows = enumerate(self._oracles)
        return np.array([oracle.release(among(query, np.intp(k))) for k, oracle in rows])

    def store(self, name: str, combination: LinearCombination) -> None:
        """Refused, as in the run."""
        raise PrivacyError("Agents that are evaluated together store no vectors.")

    def accounts(self) -> list[Account]:
        """What every agent had spent."""
        return [oracle.account for oracle in self._oracles]
