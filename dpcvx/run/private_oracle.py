"""Answers to queries, computed from private data: each is charged, then released with noise.

An algorithm sends a query and receives a noisy answer. Every later computation with the answer is
post-processing. An oracle answers for one agent, with vectors, or for a batch of identical agents,
with arrays that have a row per agent.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._arguments import of_package
from ..errors import PrivacyError, package_fault
from ..model.normal_form import Evaluator
from ..model.quadratic import data_curvature
from ..model.record_rows import RecordCurvature
from ..model.row_blocks import bound_objective
from ..model.trailing import BehindTheDoor, of_all
from ..privacy.mechanism import Calibrated
from ..sensitivity.queries.data import CurvatureSums, MomentsTerm
from ..sensitivity.queries.query import (
    Facts,
    Known,
    Objective,
    Query,
    finite_clipped,
    finite_gradient,
    require_priced,
)
from ..sensitivity.queries.solutions import PerturbedMinimizer
from ..sensitivity.stored_vectors import (
    LinearCombination,
    StoredEffects,
    StoredVectors,
    shift_of,
)
from .gate import Charge, Perturbed, PrivacyGate, charge_for, read, read_for_gradients
from .oracle import AgentOracle

Array = NDArray[np.float64]
Index = NDArray[np.intp]


class PrivateOracle(BehindTheDoor, AgentOracle):
    """Oracle of agents with private data; every answer gets newly drawn noise.

    Parameters
    ----------
    facts : sequence of Facts
        Public properties of the gate's agents, which differ in names only. Their sensitivity is
        None only if there is no noise.
    sources : sequence of sequence of callables
        Functions that return the data, one per private object of each agent; called once, here.
    gate : PrivacyGate
        Gate for the answers.
    """

    def __init__(
        self,
        facts: Sequence[Facts],
        sources: Sequence[Sequence[Callable[[], Any]]],
        gate: PrivacyGate,
    ) -> None:
        super().__init__(gate.accounts, gate.releases, len(facts))
        self._facts, self._gate = facts[0], gate
        form, sensitivity = self._facts.form, self._facts.sensitivity
        self._n, self._queries = form.n, self._facts.queries
        # queries written outside the package
        self._foreign = {kind for kind in self._queries if not of_package(kind)}
        noisy = gate.noise is not None
        self._certified = sensitivity if noisy else None
        # Gradients h(x) + J d are computed as a public part and a private part.
        self._splits = self._certified is not None and self._certified.splits
        by_entry = self._splits or any(query.by_entry for query in self._queries)
        # No local variable may hold the data, since tracebacks show local variables. Each agent's
        # data are read with its own form, whose names occur in errors.
        self._data = [
            read(agent.form.private, data) if by_entry else read_for_gradients(agent.form, data)
            for agent, data in zip(facts, sources, strict=True)
        ]
        clips = () if sensitivity is None else sensitivity.clips
        self._objective = gate.withheld(
            lambda: bound_objective(form, self._joined(), clips, limited=noisy)
        )
        self._zero = form.at_zero()
        self._change = 0.0 if self._certified is None else self._certified.bound(2).value
        # Raw data, for queries of sums of moments or without noise.
        bare = self._data[0] if not noisy or MomentsTerm in self._queries else []
        self._bent: tuple[Array, RecordCurvature] | None = None
        looks = CurvatureSums in self._queries
        self._clip = next(iter(clips), None) if looks else None
        self._records = [] if self._clip is None else self._data[0]
        if not self._splits:
            self._data = []
        self._secret = bool(form.private) and (
            sensitivity is None or sensitivity.bound(2).value > 0
        )
        self._added: Array | None = None
        # Stored vectors are never released, but their bounds must hold at all points.
        stored = StoredVectors(self._view(public=noisy and self._change == 0)[0])
        projector = functools.cache(self._facts.projector)
        self._public, self._private = (
            Objective(
                *self._view(public=only),
                projector,
                stored,
                functools.partial(data_curvature, form, self._zero if only else self._objective),
                lambda: np.concatenate([np.zeros(0), *bare]),
                functools.partial(self._clipped, self._zero if only else self._objective),
                self._no_bends if only else self._bends,
            )
            for only in (True, False)
        )
        self._stored, self._effects = stored, None
        smoothness = self._facts.smoothness
        if self._certified is not None and self._change > 0 and smoothness is not None:
            shift = shift_of(self._certified, smoothness)
            self._effects = StoredEffects(self._public_gradient, shift)
        self._known: Known | None = None
        if gate.noise is not None and self._certified is not None:
            norm, gradient = gate.noise.mechanism.norm, self._public_gradient
            linear = gate.noise.linear
            self._known = Known(
                self._facts, norm, np.nan, gradient, projector, self._effects, linear
            )

    def release(self, query: Query) -> Array:
        """Return the answer to a query, with noise scaled to the answer's sensitivity.

        Raises
        ------
        PrivacyError
            If the answer has no sensitivity bound, noise cannot be scaled to it, or the query does
            not support batches.
        BudgetError
            If an account's budget does not cover the release.
        """
        if type(query) not in self._queries:
            raise PrivacyError(
                f"Agent '{self._facts.name}' received a {type(query).__name__}, a query that "
                "the plan did not check. List every type of query in the method's "
                "Requirements(queries=...)."
            )
        when, noise = self._next(), self._gate.noise
        if noise is not None:
            noise = noise.at(*when)
            query = query.hidden() if noise.prepaid else query
        facts = None
        if noise is not None and self._known is not None:
            facts = self._known = _with_multiplier(self._known, noise.multiplier)
        charges: list[Charge] = []
        public: list[Index] = []
        for rows, asked in self._groups(query, noise, facts):
            bound = 0.0
            if facts is not None and noise is not None:
                # If iterates are unreleased, a bound must not depend on the current point.
                bound = facts.change if noise.prepaid else asked.bound(facts)
            size = asked.size(self._n)
            if not (type(bound) is float and bound >= 0 and type(size) is int):
                require_priced(asked, bound, size)
            grid, entry = charge_for(self._facts, when, asked, size, noise, facts, bound)
            charges.append(Charge(rows, entry, grid))
            if noise is not None and bound == 0:
                public.append(rows)
        apart = self._splits and len(public) < len(charges)
        only = len(public) == len(charges)
        if type(query) is PerturbedMinimizer:
            answer = self._perturbed(query, facts, only)
        else:
            answer = self._answer(query, facts, public, only)
        values = self._gate.release(when, charges, answer, query.scale(facts))
        left = values[0] if self.count == 1 else values
        return query.finish(left, self._public_gradient if apart else None)

    def _groups(
        self, query: Query, noise: Calibrated | None, public_state: Known | None
    ) -> Iterator[tuple[Index, Query]]:
        """Yield groups of agents with equal sensitivity bound and grid, and the query to each."""
        everyone = self._gate.everyone
        if self.count == 1:
            yield everyone, query
            return
        first = query.among(0)  # raises for queries that do not support batches
        labels = None if public_state is None else query.labels(public_state)
        groups = [everyone]
        if labels is not None:
            groups = [np.flatnonzero(labels == k) for k in range(int(labels.max()) + 1)]
        floors = np.zeros(()) if public_state is None else query.floors(public_state)
        for rows in groups:
            asked = first if rows is everyone else query.among(int(rows[0]))
            if floors.ndim == 0 or noise is None or public_state is None:
                yield rows, asked
                continue
            # Points of a very large magnitude need a coarser grid because of their rounding errors.
            bound = asked.bound(public_state)
            size = asked.size(self._n)
            fine = noise.grid(bound, size).width if bound > 0 else np.inf
            with np.errstate(divide="ignore"):  # for points at 0
                widths = np.where(floors[rows] > fine, np.ceil(np.log2(floors[rows])), -np.inf)
            for width in np.unique(widths):
                part = rows[widths == width]
                yield part, query.among(int(part[0]))

    def _answer(
        self, query: Query, public_state: Known | None, public: Sequence[Index], only: bool
    ) -> Callable[[], Array]:
        """Return a function that computes the exact answers, a row per agent.

        If an answer provably does not depend on the data, its rounding errors must not either. So
        the rows in `public` use the objective without data, and so do all rows if `only` is true.
        """
        if public_state is not None and not only and self._private.known is not public_state:
            self._private = replace(self._private, known=public_state)
        objective = self._public if only else self._private

        def answer() -> Array:
            values = self._evaluated(query, objective)
            if public and not only:
                values = values.copy()
                for rows in public:
                    values[rows] = query.among(rows).evaluate(self._public)
            return values

        return answer

    def _perturbed(
        self, query: PerturbedMinimizer, public_state: Known | None, only: bool
    ) -> Perturbed:
        """Return a query's minimization; if `only` is true, of the objective without data."""
        gradient = (self._public if only else self._private).gradient
        linear = None if public_state is None or only else public_state.linear
        if linear is not None and linear.limit < np.inf:
            if not self._splits:
                raise package_fault("Data of any size are cut off where they leave by themselves.")
            gradient = functools.partial(self._cut, limit=linear.limit)

        def minimizer(b: Array) -> Array:
            return query.minimizer(gradient, b[0], linear)[np.newaxis]

        return Perturbed(self._n, minimizer, lambda left: gradient(left[0])[np.newaxis])

    def _evaluated(self, query: Query, objective: Objective) -> Array:
        foreign = type(query) in self._foreign
        compute = functools.partial(query.evaluate, objective)
        # The gate hides errors of the package's own code.
        if foreign:
            values = self._gate.withheld(compute, foreign=f"{type(query).__name__}.evaluate")
        else:
            values = compute()
        if self.count > 1:
            return np.broadcast_to(values, (self.count, query.size(self._n)))
        size = query.size(self._n)
        if not isinstance(values, np.ndarray) or values.shape != (size,):
            raise PrivacyError(
                f"{type(query).__name__}.evaluate returned no array, or an array of another shape "
                f"than (size(n),) = ({size},), to which noise was scaled. Make the two agree: "
                "return np.array([...]) of that shape."
            )
        return values[np.newaxis]

    def store(self, name: str, combination: LinearCombination) -> None:
        """Store a combination of stored vectors and exact gradients, which is never released."""
        if self.count > 1:
            raise PrivacyError(
                "Agents in a batch store no vectors. Leave batched of the method at False."
            )
        if self._change > 0 and self._effects is None:
            raise PrivacyError(
                f"Agent '{self._facts.name}' received a request to store a vector, and the plan "
                "has no bound on its change with the data. List Stored or StoredGradient in the "
                "method's Requirements(queries=...): the plan then derives the smoothness for "
                "that bound."
            )

        def stored() -> None:
            if self._effects is not None:
                self._effects.store(name, combination)
            self._stored.store(name, combination)

        self._gate.withheld(stored)

    def uniform(self, size: int) -> Array:
        """Return uniform numbers from the agents' random sources, drawn before the round's noise.

        An agent whose answers depend on no private data needs no secret numbers, and gets the
        public 0.5.
        """
        if not self._secret:
            return super().uniform(size)
        drawn = self._gate.uniform(self._round, size)
        return drawn[0] if self.count == 1 else drawn

    def _public_gradient(self, x: Array) -> Array:
        return finite_gradient(self._zero, x)

    def _view(self, *, public: bool) -> tuple[Callable[[Array], Array], Callable[[Array], Array]]:
        """Return functions for the whole gradient, and for the part of it that queries release.

        If `public`, both use the objective without data.
        """
        if public:
            return self._public_gradient, self._public_gradient
        if self._splits:
            return self._sum, self._private_part
        return self._exact_gradient, self._exact_gradient

    def _exact_gradient(self, x: Array) -> Array:
        return finite_gradient(self._objective, x)

    def _sum(self, x: Array) -> Array:
        return self._public_gradient(x) + self._private_part(x)

    def _cut(self, x: Array, limit: float) -> Array:
        return self._public_gradient(x) + np.clip(self._private_part(x), -limit, limit)

    def _private_part(self, x: Array) -> Array:
        # Computed at the first release, which was charged before, and stored.
        if self._added is None and self._certified is not None:
            added = [self._certified.slope(data) for data in self._data]
            self._added = added[0] if self.count == 1 else np.array(added)
            self._added.setflags(write=False)  # a query may compute in place
        assert self._added is not None
        return self._added

    def _clipped(self, objective: Evaluator, x: Array, times: float) -> tuple[Array, int]:
        # Second derivatives need as much memory as the data, and are not used again.
        self._bent = None
        return finite_clipped(objective, x, times)

    def _bends(self, x: Array) -> RecordCurvature:
        """Return the second derivatives of records' losses at x, stored for further queries."""
        if self._clip is None:
            return self._no_bends(x)
        if self._bent is None or not np.array_equal(self._bent[0], x):
            curvature = RecordCurvature.at(self._facts.form, self._records, self._clip, x)
            self._bent = x.copy(), curvature
        return self._bent[1]

    def _no_bends(self, x: Array) -> RecordCurvature:
        return RecordCurvature.none(x.size)

    def _joined(self) -> Sequence[Any]:
        """Return one item per private object; in a batch, it holds the data of all its agents."""
        if self.count == 1:
            return self._data[0]
        shapes = [spec.shape for spec in self._facts.form.private]
        return [of_all(parts, shape) for *parts, shape in zip(*self._data, shapes, strict=True)]

    def __repr__(self) -> str:
        gate = getattr(self, "_gate", None)  # None during construction
        if gate is None:
            return "PrivateOracle(agents=?)"
        shown = ", ".join(map(str, gate.agents[:3]))
        return f"PrivateOracle(agents={shown}{', ...' if gate.count > 3 else ''})"


def _with_multiplier(public_state: Known, multiplier: float) -> Known:
    """Return the public quantities that determine a release's loss, with another multiplier."""
    return (
        public_state
        if public_state.multiplier == multiplier
        else replace(public_state, multiplier=multiplier)
    )
