"""What a plan fixes for one agent."""

from __future__ import annotations

import functools
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

import numpy as np

from ..algorithms.base import Requirements
from ..algorithms.program import LocalProgram, Program, once_per_kind
from ..model.declaration import Declaration
from ..model.expected import Expectation, Expectations
from ..privacy.accounting import Composition, Price
from ..privacy.accounts import Account, Budget
from ..privacy.mechanism import Calibrated, Mechanism
from ..sensitivity.certificate import Sensitivity
from ..sensitivity.known import Facts
from ..sensitivity.release_once import Publication, Statistic


@dataclass(frozen=True)
class Declared:
    """What was asked for one agent.

    Attributes
    ----------
    mechanism : Gaussian or Laplace
    epsilon : float or None
        In total. If the mechanism has a level of its own, what the ledger may hold in the end; None
        for no more than the plan's price.
    """

    mechanism: Mechanism
    epsilon: float | None


@dataclass(frozen=True, eq=False)
class AgentTerms:
    """What a plan fixes for one agent.

    Attributes
    ----------
    name : str
    program : LocalProgram
        The agent's part of the problem as plain arrays.
    share : int
        Among how many agents with private data one person's data may be spread: 1 without a group.
    asked : Declared or None
        The mechanism and the budget that the user asked for; None without noise.
    facts : Facts
        What charges follow from: sensitivity, smoothness, and the questions that are asked.
    noise : Calibrated or None
        The mechanism with its multiplier; None without noise.
    publication : Statistic or None
        What the agent releases, with ``release="once"``.
    expected : tuple of (Expectation or None)
        Publicly, of each of its private objects; empty if nothing is.
    loss : Composition
        What the planned releases add to the agent's ledger.
    price : Price or None
        What they cost together; None without noise.
    alone : Price or None
        What they cost against all other agents together, where noise is split; None elsewhere.
    budget : float or None
        Epsilon that the agent's ledger may hold in the end: the price, or ``epsilon=`` next to a
        mechanism with a noise level of its own; None without noise.
    """

    name: str
    program: LocalProgram = field(repr=False)
    share: int
    asked: Declared | None = field(repr=False)
    facts: Facts = field(repr=False)
    noise: Calibrated | None = None
    publication: Statistic | None = field(default=None, repr=False)
    expected: tuple[Expectation | None, ...] = field(default=(), repr=False)
    loss: Composition = field(default=Composition(), repr=False)
    price: Price | None = None
    alone: Price | None = None
    budget: float | None = None

    @property
    def kind(self) -> Hashable:
        """Equal for agents that differ in names, slots and data only; for as long as they exist."""
        known, facts = self.sensitivity, self.facts
        parts = (None if known is None else known.bounds, facts.smoothness, self.publication)
        asked = (self.share, self.asked, self.noise, facts.claimed, facts.queries)
        return (self.program.kind, *map(id, (*parts, *self.expected)), *asked)

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

    @property
    def sensitivity(self) -> Sensitivity | None:
        """Of the gradient; None where nothing had to be derived."""
        return self.facts.sensitivity

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


Agents = tuple[AgentTerms, ...]


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


def declared(
    problem: Declaration,
    program: Program,
    found: Mapping[str, Sensitivity | None],
    asked: Mapping[str, Declared | None],
    needs: Requirements,
    expected: Expectations | None = None,
) -> Agents:
    """The agents with what is derived and what is asked for; nothing is calibrated yet."""
    return tuple(
        AgentTerms(
            name=local.name,
            program=local,
            share=share,
            asked=asked[local.name],
            expected=(expected or {}).get(local.name, ()),
            facts=Facts(
                name=local.name,
                form=local.form,
                constraints=local.constraints,
                sensitivity=found[local.name],
                claimed=needs.sensitivity,
                queries=needs.queries,
            ),
        )
        for local, share in zip(program.agents, problem.shares(), strict=True)
    )


def composed(agents: Agents, count: int, needs: Requirements) -> dict[str, Composition]:
    """The first `count` releases of every agent, as often as one person is exposed to them."""

    @functools.cache
    def exposed(noise: Calibrated | None, share: int) -> Composition:
        if noise is None:
            return Composition()
        return noise.composed(count, needs.releases).repeated(share)

    return {agent.name: exposed(agent.noise, agent.share) for agent in agents}
