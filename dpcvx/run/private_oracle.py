"""Answers from private data: what a question costs is charged, then its answer leaves with noise.

An algorithm hands in a question and gets back a noisy answer. Everything that it does with the
answer is post-processing.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import PrivacyError
from ..model.behind_the_door import BehindTheDoor
from ..model.quadratic import data_curvature
from ..model.row_blocks import bound_objective
from ..sensitivity.known import Facts, Known, Objective, finite_gradient
from ..sensitivity.queries.data import MomentsTerm
from ..sensitivity.queries.query import Query
from ..sensitivity.stored_vectors import (
    LinearCombination,
    StoredEffects,
    StoredVectors,
    shift_of,
)
from .gate import ReleaseGate, charge_for, read, read_for_gradients, withheld
from .oracle import AgentOracle

Array = NDArray[np.float64]


class PrivateOracle(BehindTheDoor, AgentOracle):
    """Answers from private data, each with noise of its own.

    Parameters
    ----------
    facts : Facts
        Without a sensitivity only if there is no noise.
    sources : sequence of callables
        One per private parameter; called here, once.
    gate : ReleaseGate
    """

    def __init__(
        self,
        facts: Facts,
        sources: Sequence[Callable[[], Any]],
        gate: ReleaseGate,
    ) -> None:
        super().__init__(gate.account, gate.releases)
        form, sensitivity = facts.form, facts.sensitivity
        self._facts, self._gate = facts, gate
        noisy = gate.calibrated is not None
        self._certified = sensitivity if noisy else None
        # h(x) + J d: the private part is computed by itself.
        self._splits = self._certified is not None and self._certified.splits
        by_entry = self._splits or any(query.by_entry for query in facts.queries)
        # Never in a variable of a frame: those show in tracebacks.
        self._data = read(form.private, sources) if by_entry else read_for_gradients(form, sources)
        clips = () if sensitivity is None else sensitivity.clips
        self._objective = withheld(
            gate.agent, lambda: bound_objective(form, self._data, clips, limited=noisy)
        )
        self._zero = form.at_zero()
        self._change = 0.0 if self._certified is None else self._certified.bound(2).value
        # For terms of sums that are made of the data themselves.
        bare = self._data if not noisy or MomentsTerm in facts.queries else []
        if not self._splits:
            self._data = []
        self._secret = bool(form.private) and (
            sensitivity is None or sensitivity.bound(2).value > 0
        )
        self._added: Array | None = None
        # What is stored is nobody's to see: the bound has to hold at all points.
        stored = StoredVectors(self._view(public=noisy and self._change == 0)[0])
        projector = functools.cache(facts.projector)
        self._public, self._private = (
            Objective(
                *self._view(public=only),
                projector,
                stored,
                functools.partial(data_curvature, form, self._zero if only else self._objective),
                lambda: np.concatenate([np.zeros(0), *bare]),
            )
            for only in (True, False)
        )
        self._stored, self._effects = stored, None
        if self._certified is not None and self._change > 0 and facts.smoothness is not None:
            shift = shift_of(self._certified, facts.smoothness)
            self._effects = StoredEffects(self._public_gradient, shift)
        self._known: Known | None = None
        if gate.calibrated is not None and self._certified is not None:
            mechanism = gate.calibrated.mechanism
            self._known = Known(
                facts, mechanism.norm, np.nan, self._public_gradient, projector, self._effects
            )

    def release(self, query: Query) -> Array:
        """The answer plus noise scaled to what one change of the data does to it.

        Raises
        ------
        PrivacyError
            If nothing bounds that, or noise cannot be scaled to it.
        BudgetError
            If the account cannot afford it.
        """
        if type(query) not in self._facts.queries:
            raise PrivacyError(
                f"Agent '{self._facts.name}' is asked for a {type(query).__name__}, which the "
                "plan did not check. Name every type of question in the method's "
                "Requirements(queries=...)."
            )
        place, noise = self._next(), None
        if self._gate.calibrated is not None:
            noise = self._gate.calibrated.at(*place)
        if noise is not None and noise.prepaid:
            query = query.hidden()
        known, bound = None, 0.0
        if noise is not None and self._known is not None:
            known = self._known = _with_multiplier(self._known, noise.multiplier)
            # Where points are hidden, nothing may follow them, and no bound either.
            bound = known.change if noise.prepaid else query.bound(known)
        grid, entry = charge_for(self._facts, place, query, noise, known, bound)
        objective = self._private
        if noise is not None:
            # Where the answer is certified not to depend on the data, its rounding may not either.
            if bound > 0 and self._private.known is not known:
                self._private = replace(self._private, known=known)
            objective = self._private if bound > 0 else self._public
        answer = self._answer(query, objective)
        left = self._gate(place, entry, answer, grid, query.scale(known))
        apart = self._splits and bound > 0
        return query.finish(left, self._public_gradient if apart else None)

    def _answer(self, query: Query, objective: Objective) -> Callable[[], Array]:
        def answer() -> Array:
            # Authors of methods write questions of their own.
            foreign = not type(query).__module__.startswith("dpcvx.")
            compute = functools.partial(query.evaluate, objective)
            # The gate withholds what fails in the package's own.
            value = withheld(self._gate.agent, compute, foreign=True) if foreign else compute()
            if value.shape != (query.size(self._facts.form.n),):
                raise PrivacyError(
                    f"{type(query).__name__}.evaluate returned an array of another shape than "
                    "(size(n),), to which noise was scaled. Make the two agree."
                )
            return value

        return answer

    def store(self, name: str, combination: LinearCombination) -> None:
        """Make a vector that stays with the agent, from stored ones and exact gradients."""
        if self._change > 0 and self._effects is None:
            raise PrivacyError(
                f"Agent '{self._facts.name}' is told to store a vector, and how far one change "
                "of its data moves that is not known: the plan did not ask for its smoothness. "
                "Name Stored or StoredGradient in the method's Requirements(queries=...)."
            )

        def stored() -> None:
            if self._effects is not None:
                self._effects.store(name, combination)
            self._stored.store(name, combination)

        withheld(self._gate.agent, stored)

    def uniform(self, size: int) -> Array:
        """From the agent's own source, before the noise of the round.

        An agent with nothing to hide needs no secrets, and its points are then known from messages.
        """
        return self._gate.uniform(self._round, size) if self._secret else super().uniform(size)

    def _public_gradient(self, x: Array) -> Array:
        return finite_gradient(self._zero, x)

    def _view(self, *, public: bool) -> tuple[Callable[[Array], Array], Callable[[Array], Array]]:
        """The gradient, and the part of it that leaves."""
        if public:
            return self._public_gradient, self._public_gradient
        if self._splits:
            return self._sum, self._private_part
        return self._exact_gradient, self._exact_gradient

    def _exact_gradient(self, x: Array) -> Array:
        return finite_gradient(self._objective, x)

    def _sum(self, x: Array) -> Array:
        return self._public_gradient(x) + self._private_part(x)

    def _private_part(self, x: Array) -> Array:
        # Kept from the first release on, which was charged before.
        if self._added is None and self._certified is not None:
            self._added = self._certified.slope(self._data)
            self._added.setflags(write=False)  # a question may compute in place
        assert self._added is not None
        return self._added

    def __repr__(self) -> str:
        gate = getattr(self, "_gate", None)  # None while it is being made
        return f"PrivateOracle(agent={'?' if gate is None else gate.agent})"


def _with_multiplier(known: Known, multiplier: float) -> Known:
    """The same for noise of another multiplier; itself where that is what it was."""
    return known if known.multiplier == multiplier else replace(known, multiplier=multiplier)
