"""Answers from the data of many agents at once, where these differ in names and data only.

The same door as that of one agent: what a question costs is charged, in one line of the ledger for
all who are charged alike, and their answers leave with noise of each agent's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import PrivacyError
from ..model.behind_the_door import BehindTheDoor
from ..model.row_blocks import bound_objective
from ..model.trailing import SparseMatrices, of_all
from ..plan.agent_plan import AgentPlan
from ..privacy.accounts import Account
from ..privacy.mechanism import Calibrated
from ..sensitivity.known import Known, finite_gradient
from ..sensitivity.queries.gradients import Gradient, Step, among
from ..sensitivity.queries.query import Query
from ..sensitivity.stored_vectors import LinearCombination
from .gate import Charge, FleetGate, charge_for, read_for_gradients
from .oracle import FleetAnswers

Array = NDArray[np.float64]
Index = NDArray[np.intp]

# What is answered: gradients as they are, and steps, from one point or from the agents' own.
ANSWERED = (Gradient, Step)


class FleetOracle(BehindTheDoor, FleetAnswers):
    """Gradients and steps of many agents, a row per agent, each with noise of its own.

    Parameters
    ----------
    agents : sequence of AgentPlan
        Of one kind, with noise in each step.
    sources : sequence of sequence of callables
        Per agent, one per private parameter; called here, once.
    gate : FleetGate
        With accounts that are equal but for names.
    """

    def __init__(
        self,
        agents: Sequence[AgentPlan],
        sources: Sequence[Sequence[Callable[[], Any]]],
        gate: FleetGate,
    ) -> None:
        super().__init__(gate.account.first, [])
        first = agents[0]
        assert first.sensitivity is not None
        self._facts, self._gate, self._count = first, gate, len(agents)
        self._zero = first.program.form.at_zero()
        clips = first.sensitivity.clips
        # Never in a variable of a frame: those show in tracebacks.
        self._objective = gate.withheld(
            lambda: bound_objective(
                first.program.form, _read_for_all(agents, sources), clips, limited=True
            ),
        )
        norm = gate.calibrated.mechanism.norm
        self._known = Known(first, norm, np.nan, self._public_gradient, first.projector)

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
        noise = self._gate.calibrated.at(*place)
        public = np.empty((self._count, self._facts.form.n))
        charges: list[Charge] = []
        for rows, one in self._groups(asked, noise):
            bound = one.bound(self._known)
            grid, entry = charge_for(self._facts, place, one, noise, self._known, bound)
            if grid is None or entry is None:  # certified not to depend on the data
                points = asked.x[np.newaxis] if asked.x.ndim == 1 else asked.x[rows]
                public[rows] = _answer(among(asked, rows), self._public_gradient(points))
            else:
                charges.append(Charge(rows, entry, grid))
        return self._gate(place, charges, public, lambda: self._exact(asked))

    def _exact(self, query: Gradient | Step) -> Array:
        return _answer(query, finite_gradient(self._objective, query.x))

    def accounts(self) -> list[Account]:
        """What every agent has spent."""
        return self._gate.account.accounts()

    def _groups(
        self, query: Gradient | Step, noise: Calibrated
    ) -> Iterator[tuple[Index, Gradient | Step]]:
        """Agents for which one bound holds, and one grid, and the question to one of them."""
        everyone = np.arange(self._count)
        labels = np.zeros_like(everyone)
        if query.x.ndim > 1:
            labels = self._known.sensitivity.alike(self._known.norm, query.x)
        alike = [np.flatnonzero(labels == k) for k in range(int(labels.max()) + 1)]
        if isinstance(query, Gradient) or max(query.x.ndim, query.center.ndim) == 1:
            yield from ((rows, among(query, rows[0])) for rows in alike)
            return
        floors = np.broadcast_to(query.floors(self._public_gradient(query.x)), everyone.shape)
        for rows in alike:
            # Points may be so large that their rounding asks for a grid of their own.
            needed, fine = floors[rows], self._width(among(query, rows[0]), noise)
            with np.errstate(divide="ignore"):  # of points at 0
                widths = np.where(needed > fine, np.ceil(np.log2(needed)), -np.inf)
            for width in np.unique(widths):
                own = rows[widths == width]
                yield own, among(query, own[0])

    def _width(self, query: Gradient | Step, noise: Calibrated) -> float:
        """Of the grid, as far as what one change does to the answer tells."""
        bound = query.bound(self._known)
        return noise.grid(bound, query.size(self._facts.form.n)).width if bound > 0 else np.inf

    def uniform(self, size: int) -> Array:
        """Of each agent's own, shape (agents, size)."""
        return self._gate.uniform(self._round, size)

    def store(self, name: str, combination: LinearCombination) -> None:
        """Refused: agents that take their turns together keep nothing of their own."""
        raise PrivacyError("Agents that are evaluated together store no vectors.")

    def _public_gradient(self, x: Array) -> Array:
        return finite_gradient(self._zero, x)

    def __repr__(self) -> str:
        return f"FleetOracle(agents={self._count})"


def _read_for_all(
    agents: Sequence[AgentPlan], sources: Sequence[Sequence[Callable[[], Any]]]
) -> list[Array | SparseMatrices]:
    """Private data of all agents, by private parameter."""
    read = [
        read_for_gradients(agent.program.form, own)
        for agent, own in zip(agents, sources, strict=True)
    ]
    shapes = [spec.shape for spec in agents[0].program.form.private]
    return [of_all(parts, shape) for *parts, shape in zip(*read, shapes, strict=True)]


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


def _answer(query: Gradient | Step, gradients: Array) -> Array:
    return query.end(gradients) if isinstance(query, Step) else gradients
