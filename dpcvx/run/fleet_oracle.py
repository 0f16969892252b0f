"""Answers from the data of many agents at once, where these differ in names and data only.

The same door as that of one agent: what a question costs is charged, in one line of the ledger for
all who are charged alike, and their answers leave with noise of each agent's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import PrivacyError
from ..model.behind_the_door import BehindTheDoor
from ..model.one_by_one import at_zero_of_all, objective_of_all
from ..plan.agent_terms import AgentTerms
from ..privacy.accounts import Account
from ..privacy.joint_account import JointAccount
from ..privacy.mechanism import Calibrated
from ..privacy.notes import Writer
from ..privacy.randomness import Sources, uniform
from ..sensitivity.known import Known, finite, finite_gradient
from ..sensitivity.queries.gradients import Gradient, Step
from ..sensitivity.queries.query import Query
from ..sensitivity.stored_vectors import LinearCombination
from .gate import charge_for, read_for_gradients, withheld
from .oracle import AgentOracle

Array = NDArray[np.float64]
Index = NDArray[np.intp]

# What is answered: gradients as they are, and steps, from one point or from the agents' own.
ANSWERED = (Gradient, Step)


class FleetOracle(BehindTheDoor, AgentOracle):
    """Gradients and steps of many agents, a row per agent, each with noise of its own.

    Parameters
    ----------
    agents : sequence of AgentTerms
        Of one kind, with noise in each step.
    accounts : sequence of Account
        Equal but for names.
    sources : sequence of sequence of callables
        Per agent, one per private parameter; called here, once.
    noise : Sources
        Of the agents' noise.
    journal : Writer or None
        Where charges and values are written before they take effect.
    """

    def __init__(
        self,
        agents: Sequence[AgentTerms],
        accounts: Sequence[Account],
        sources: Sequence[Sequence[Callable[[], Any]]],
        noise: Sources,
        journal: Writer | None,
    ) -> None:
        self._accounts = JointAccount(accounts)
        super().__init__(self._accounts.first, [])
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
            lambda: objective_of_all(
                first.program.form,
                [
                    read_for_gradients(agent.program.form, own)
                    for agent, own in zip(agents, sources, strict=True)
                ],
                clips,
            ),
        )
        self._public = at_zero_of_all(first.program.form, self._objective)
        mechanism = first.noise.mechanism
        self._known = Known(
            first.facts, mechanism.norm, np.nan, self._public_gradient, first.facts.projector
        )

    def release(self, query: Query) -> Array:
        """The answers plus noise, shape (agents, n).

        Raises
        ------
        PrivacyError
            If nothing bounds what one change of the data does to them, or the question is none of
            `ANSWERED`.
        BudgetError
            If an account cannot afford them.
        """
        asked = _admitted(query)
        place = self._next()
        noise = self._noise.at(*place)
        out = np.empty((len(self._names), self._facts.form.n))
        found = [
            (rows, *charge_for(self._facts, place, one, noise, self._known, one.bound(self._known)))
            for rows, one in self._groups(asked, noise)
        ]
        charged = [(r, grid, entry) for r, grid, entry in found if grid is not None and entry]
        for rows, grid, entry in found:
            if grid is None or entry is None:  # certified not to depend on the data
                points = asked.x[np.newaxis] if asked.x.ndim == 1 else asked.x[rows]
                public = np.array([self._public_gradient(x) for x in points])
                out[rows] = _answer(_among(asked, rows), public)
        self._accounts.charge([(rows, entry) for rows, _, entry in charged], noise)
        if self._journal is not None:
            for rows, _, entry in charged:
                self._journal.charge([self._names[k] for k in rows.tolist()], entry)
        streams = self._source.at(*place)

        def noisy() -> Array:
            left, exact = out.copy(), _answer(asked, finite(self._objective.gradients(asked.x)))
            for rows, grid, _ in charged:
                left[rows] = noise.release_rows(exact[rows], grid, streams.among(rows))
            return left

        left = withheld(self._whose, noisy) if charged else out
        if self._journal is not None:
            for rows, *_ in charged:
                names = [self._names[k] for k in rows.tolist()]
                self._journal.release(names, place, left[rows])
        return left

    def accounts(self) -> list[Account]:
        """What every agent has spent."""
        return self._accounts.accounts()

    def _groups(
        self, query: Gradient | Step, noise: Calibrated
    ) -> Iterator[tuple[Index, Gradient | Step]]:
        """Agents for which one bound holds, and one grid, and the question to one of them."""
        everyone = np.arange(len(self._names))
        labels = np.zeros_like(everyone)
        if query.x.ndim > 1:
            labels = self._known.sensitivity.alike(self._known.norm, query.x)
        alike = [np.flatnonzero(labels == k) for k in range(int(labels.max()) + 1)]
        if isinstance(query, Gradient) or max(query.x.ndim, query.center.ndim) == 1:
            yield from ((rows, _among(query, rows[0])) for rows in alike)
            return
        at = self._public.gradients if query.x.ndim > 1 else self._public_gradient
        floors = np.broadcast_to(query.floors(finite(at(query.x))), everyone.shape)
        for rows in alike:
            # Points may be so large that their rounding asks for a grid of their own.
            needed, fine = floors[rows], self._width(_among(query, rows[0]), noise)
            with np.errstate(divide="ignore"):  # of points at 0
                widths = np.where(needed > fine, np.ceil(np.log2(needed)), -np.inf)
            for width in np.unique(widths):
                own = rows[widths == width]
                yield own, _among(query, own[0])

    def _width(self, query: Gradient | Step, noise: Calibrated) -> float:
        """Of the grid, as far as what one change does to the answer tells."""
        bound = query.bound(self._known)
        return noise.grid(bound, query.size(self._facts.form.n)).width if bound > 0 else np.inf

    def uniform(self, size: int) -> Array:
        """Of each agent's own, shape (agents, size)."""
        return uniform(size, self._source.at(self._round, 0))

    def store(self, name: str, combination: LinearCombination) -> None:
        """Refused: agents that take their turns together keep nothing of their own."""
        raise PrivacyError("Agents that are evaluated together store no vectors.")

    def _public_gradient(self, x: Array) -> Array:
        return finite_gradient(self._zero, x)

    def __repr__(self) -> str:
        return f"FleetOracle(agents={len(self._names)})"


def _admitted(query: Query) -> Gradient | Step:
    """The question, if it is a gradient as it is, or a step of the whole point."""
    if type(query) is Gradient and query.through is None:
        return query
    if type(query) is Step and query.through is None and query.only is None:
        return query
    raise PrivacyError(
        "Agents that are evaluated together release gradients as they are, and steps of whole "
        f"points, and a method asks them for another {type(query).__name__}. Leave in_step of the "
        "method at False."
    )


def _among(query: Gradient | Step, rows: Index | np.intp) -> Gradient | Step:
    """The question to one of the agents, or to some of them."""
    own = {
        name: part for name in ("x", "center") if (part := getattr(query, name, None)) is not None
    }
    return replace(query, **{name: part[rows] for name, part in own.items() if part.ndim > 1})


def _answer(query: Gradient | Step, gradients: Array) -> Array:
    return query.end(gradients) if isinstance(query, Step) else gradients
