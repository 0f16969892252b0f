"""What a plan fixes for one agent."""

from __future__ import annotations

import functools
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

import numpy as np

from ..algorithms.base import Requirements
from ..algorithms.program import LocalProgram, Program, once_per_kind
from ..model.declaration import Declaration
from ..model.normal_form import NormalForm
from ..model.prior import Expectation, Expectations
from ..privacy.accounting import Composition, Price
from ..privacy.accounts import Account, Budget
from ..privacy.mechanism import Calibrated
from ..sensitivity.certificate import Sensitivity
from ..sensitivity.queries.query import Query
from ..sensitivity.release_once import Publication, Statistic
from ..sensitivity.stored_vectors import Smoothness
from ..solvers.projector import Projector


@dataclass(frozen=True, eq=False, repr=False)
class AgentPlan:
    """Everything that a plan fixes for one agent, public; satisfies `sensitivity.known.Facts`."""

    program: LocalProgram  # its objective, set and initial point as plain arrays
    needs: Requirements  # of the method: the queries that it may send, and claims of the user
    share: int  # among how many agents one person's data may be spread: 1 without a group
    sensitivity: Sensitivity | None = None  # of the gradient; None if nothing had to be derived
    smoothness: Smoothness | None = None  # None if no query needs it, or none can be derived
    expected: tuple[Expectation | None, ...] = ()  # priors of its private objects; () without any
    noise: Calibrated | None = None  # the mechanism with its multiplier; None without noise
    publication: Statistic | None = None  # what it releases, with ``release="once"``
    loss: Composition = field(default=Composition())  # what planned releases add to its ledger
    price: Price | None = None  # the cost of these together; None without noise
    alone: Price | None = None  # the same against all other agents, if noise is split; else None
    # Epsilon that its ledger may hold in the end: the price, or ``epsilon=`` next to a mechanism
    # with a noise level; None without noise.
    budget: float | None = None

    @property
    def name(self) -> str:
        """Name of the agent."""
        return self.program.name

    @property
    def form(self) -> NormalForm:
        """Objective of the agent, without data."""
        return self.program.form

    @property
    def queries(self) -> tuple[type[Query], ...]:
        """Types of queries that the agent answers; it refuses all others."""
        return self.needs.queries

    @property
    def claimed(self) -> float | None:
        """Sensitivity of answers that the user claims, in place of a derived one."""
        return self.needs.sensitivity

    def projector(self) -> Projector:
        """Return a new projector onto the agent's set: solvers keep what they were asked last."""
        # It shares no blocks with the program, whose projectors serve public computations.
        return Projector(self.program.constraints, self.name)

    @property
    def kind(self) -> Hashable:
        """Equal for agents that differ in names, slots and data only; for as long as they exist."""
        known = self.sensitivity
        parts = (None if known is None else known.bounds, self.smoothness, self.publication)
        numbers = (self.share, self.noise, self.budget, self.claimed, self.queries)
        return (self.program.kind, *map(id, (*parts, *self.expected)), *numbers)

    def __repr__(self) -> str:
        return (
            f"AgentPlan(name={self.name!r}, share={self.share}, noise={self.noise}, "
            f"price={self.price}, alone={self.alone}, budget={self.budget})"
        )

    @property
    def expects(self) -> tuple[str, ...]:
        """Private objects of which something is publicly expected."""
        pairs = zip(self.program.form.private, self.expected, strict=False)
        return tuple(spec.name for spec, one in pairs if one is not None)

    @property
    def moved(self) -> tuple[str, ...]:
        """Private objects whose released values are moved towards public proxy data."""
        released = self.publication
        if self.expects or not isinstance(released, Publication) or not released.estimates:
            return ()
        if released.kind != "data":
            return tuple(spec.name for spec in released.private)
        ends = np.cumsum([spec.size for spec in released.private]).tolist()
        last = {place.stop for place, _ in released.estimates}
        return tuple(s.name for s, end in zip(released.private, ends, strict=True) if end in last)

    def account(self) -> Account:
        """A fresh one, with the agent's budget."""
        budget = None
        if self.price is not None and self.budget is not None:
            budget = Budget(self.budget, self.price.delta, self.loss)
        adjacency = {s.name: s.adjacency.in_full for s in self.program.form.private}
        return Account(self.name, adjacency, budget, share=self.share)

    @property
    def bound(self) -> float:
        """Sensitivity of the gradient in l2; 0 where nothing had to be derived."""
        return 0.0 if self.sensitivity is None else self.sensitivity.bound(2).value

    @property
    def clips_keep_convexity(self) -> bool:
        """Whether clipped gradients are still those of a convex function."""
        known = self.sensitivity
        return known is None or known.clips_keep_convexity(self.program.form)


Agents = tuple[AgentPlan, ...]


def sensitivities(program: Program, *, every: bool = True) -> dict[str, Sensitivity | None]:
    """How far one change of its data moves every agent's gradient; None where nothing is private.

    Parameters
    ----------
    program : Program
    every : bool
        If not, only where contributions of records are clipped.

    Raises
    ------
    PrivacyError
        If none can be derived.
    """

    def derive(local: LocalProgram) -> Sensitivity | None:
        wanted = (every or local.clip is not None) and local.form.private
        return local.sensitivity() if wanted else None

    pairs = zip(program.agents, once_per_kind(program.agents, derive), strict=True)
    return {local.name: known and known.renamed(local.form) for local, known in pairs}


def agents_of(
    problem: Declaration,
    program: Program,
    found: Mapping[str, Sensitivity | None],
    needs: Requirements,
    expected: Expectations | None = None,
) -> Agents:
    """Return the agents with what is derived from the model; nothing is calibrated yet."""
    return tuple(
        AgentPlan(
            program=local,
            needs=needs,
            share=share,
            sensitivity=found[local.name],
            expected=(expected or {}).get(local.name, ()),
        )
        for local, share in zip(program.agents, problem.shares(), strict=True)
    )


def composed(agents: Agents, count: int) -> dict[str, Composition]:
    """Return what one person loses by the first `count` releases, by agent that holds them."""

    @functools.cache
    def exposed(noise: Calibrated | None, share: int, each: int) -> Composition:
        return Composition() if noise is None else noise.composed(count, each).repeated(share)

    return {a.name: exposed(a.noise, a.share, a.needs.releases) for a in agents}
