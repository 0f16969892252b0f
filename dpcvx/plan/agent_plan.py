"""Plans of single agents: their arrays, sensitivities, noise and one-time releases."""

from __future__ import annotations

import functools
import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

from ..algorithms.base import Requirements
from ..algorithms.program import AsWritten, LocalProgram, Program, compile_problem, once_per_kind
from ..algorithms.written_model import WrittenModel
from ..errors import PrivacyError
from ..model.declaration import Declaration, Values
from ..model.normal_form import NormalForm
from ..model.prior import Expectation, Expectations
from ..model.quadratic import curved, is_quadratic_given_data
from ..privacy.accounting import Composition, Price
from ..privacy.accounts import Account, Budget
from ..privacy.mechanism import Calibrated
from ..sensitivity.certificate import Sensitivity
from ..sensitivity.estimates import fits
from ..sensitivity.queries.query import Query
from ..sensitivity.release_once import Once, Publication, Statistic, releasable, restated
from ..sensitivity.stored_vectors import Smoothness
from ..solvers.projector import Projector
from .request import AgentRequest


@dataclass(frozen=True, eq=False, repr=False)
class AgentPlan:
    """Everything that a plan fixes for one agent; public. Implements the protocol `Facts`."""

    program: LocalProgram  # the agent's objective, set and initial point as plain arrays
    needs: Requirements  # method's requirements: permitted queries and user's claims
    share: int  # number of agents that may hold one person's data; 1 without a group
    sensitivity: Sensitivity | None = None  # sensitivity of the gradient; None if not needed
    smoothness: Smoothness | None = None  # None if not needed or not derivable
    expected: tuple[Expectation | None, ...] = ()  # priors of the private objects; () without any
    noise: Calibrated | None = None  # mechanism with its multiplier; None without noise
    publication: Statistic | None = None  # released statistic if ``release="once"``
    loss: Composition = field(default=Composition())  # loss of all planned releases, for the ledger
    price: Price | None = None  # epsilon of this loss; None without noise
    alone: Price | None = None  # against all other agents, if distributed; else None
    # Epsilon that the agent's ledger may reach: the price, or ``epsilon=`` if the mechanism has a
    # noise level of its own; None without noise.
    budget: float | None = None

    @property
    def name(self) -> str:
        """Name of the agent."""
        return self.program.name

    @property
    def form(self) -> NormalForm:
        """Objective of the agent in normal form, without private data."""
        return self.program.form

    @property
    def start(self) -> NDArray[np.float64]:
        """Public initial point of the agent's variables, shape (n,)."""
        return self.program.start

    @property
    def queries(self) -> tuple[type[Query], ...]:
        """Types of queries that the agent answers; it refuses queries of other types."""
        return self.needs.queries

    @property
    def claimed(self) -> float | None:
        """User-supplied sensitivity of the agent's answers, used without proof; None if derived."""
        return self.needs.sensitivity

    def projector(self) -> Projector:
        """Return a new projector onto the agent's feasible set; it starts from its last result."""
        # It shares no memory with the program's projectors, which serve public computations.
        return Projector(self.program.constraints, self.name)

    def proximal(self) -> Projector:
        """Return a new projector that also minimizes the objective's terms for proximal steps."""
        return Projector(self.program.constraints, self.name, self.program.rest)

    @property
    def kind(self) -> Hashable:
        """Key that is equal for agents that differ only in names, data and shared positions."""
        sensitivity = self.sensitivity
        parts = (
            None if sensitivity is None else sensitivity.bounds,
            self.smoothness,
            self.publication,
        )
        numbers = (self.share, self.noise, self.budget, self.claimed, self.queries)
        return (self.program.kind, *map(id, (*parts, *self.expected)), *numbers)

    def __repr__(self) -> str:
        return (
            f"AgentPlan(name={self.name!r}, share={self.share}, noise={self.noise}, "
            f"price={self.price}, alone={self.alone}, budget={self.budget})"
        )

    @property
    def expects(self) -> tuple[str, ...]:
        """Names of the private objects that have a prior."""
        pairs = zip(self.program.form.private, self.expected, strict=False)
        return tuple(spec.name for spec, expectation in pairs if expectation is not None)

    @property
    def moved(self) -> tuple[str, ...]:
        """Names of private objects whose released values are shrunk towards public proxy data."""
        released = self.publication
        if self.expects or not isinstance(released, Publication) or not released.estimates:
            return ()
        if released.kind != "data":
            return tuple(spec.name for spec in released.private)
        ends = np.cumsum([spec.size for spec in released.private]).tolist()
        last = {entries.stop for entries, _ in released.estimates}
        return tuple(s.name for s, end in zip(released.private, ends, strict=True) if end in last)

    @property
    def request(self) -> AgentRequest:
        """Numbers in the plan's request for this agent; its other numbers follow from them."""
        noise, statistic = self.noise, self.publication
        return AgentRequest(
            multiplier=None if noise is None else noise.requested,
            once=None if statistic is None else Once.of(statistic),
            estimates=statistic.estimates if isinstance(statistic, Publication) else (),
        )

    def account(self) -> Account:
        """Return a new privacy account with the agent's budget and without releases."""
        budget = None
        if self.price is not None and self.budget is not None:
            budget = Budget(self.budget, self.price.delta, self.loss)
        adjacency = {s.name: s.adjacency.in_full for s in self.program.form.private}
        return Account(self.name, adjacency, budget, share=self.share)

    @property
    def bound(self) -> float:
        """The l2 sensitivity of the gradient; 0 if no sensitivity is needed."""
        return 0.0 if self.sensitivity is None else self.sensitivity.bound(2).value

    @property
    def clips_keep_convexity(self) -> bool:
        """Return whether clipped gradients still are gradients of a convex function."""
        sensitivity = self.sensitivity
        return sensitivity is None or sensitivity.clips_keep_convexity(self.program.form)


Agents = tuple[AgentPlan, ...]


def sensitivities(program: Program, *, every: bool = True) -> dict[str, Sensitivity | None]:
    """Return the sensitivity of every agent's gradient, by name; None for public agents.

    Parameters
    ----------
    program : Program
        Compiled program.
    every : bool
        Whether to derive all sensitivities; if False, only the ones of clipped records.

    Raises
    ------
    PrivacyError
        If the sensitivity of an agent cannot be derived.
    """

    def derive(local: LocalProgram) -> Sensitivity | None:
        wanted = (every or local.clip is not None) and local.form.private
        return local.sensitivity() if wanted else None

    return _by_name(program, once_per_kind(program.agents, derive))


def _by_name(
    program: Program, derived: Iterable[Sensitivity | None]
) -> dict[str, Sensitivity | None]:
    """Return the derived sensitivities by agents' names, with the names of private objects."""
    pairs = zip(program.agents, derived, strict=True)
    return {local.name: given and given.renamed(local.form) for local, given in pairs}


def agents_of(
    problem: Declaration,
    program: Program,
    sensitivities: Mapping[str, Sensitivity | None],
    needs: Requirements,
    expected: Expectations | None = None,
) -> Agents:
    """Return the agents' plans with derived quantities, before calibration of the noise."""
    return tuple(
        AgentPlan(
            program=local,
            needs=needs,
            share=share,
            sensitivity=sensitivities[local.name],
            expected=(expected or {}).get(local.name, ()),
        )
        for local, share in zip(program.agents, problem.shares(), strict=True)
    )


def composed(agents: Agents, count: int) -> dict[str, Composition]:
    """Return the privacy loss of one person's data over the first `count` releases, by agent."""

    @functools.cache
    def lost(noise: Calibrated | None, share: int, each: int) -> Composition:
        return Composition() if noise is None else noise.composed(count, each).repeated(share)

    return {a.name: lost(a.noise, a.share, a.needs.releases) for a in agents}


def released(agents: Agents, requests: Sequence[AgentRequest]) -> Agents:
    """Return the agents' plans with the statistics of private data that they release once.

    Parameters
    ----------
    agents : tuple of AgentPlan
        Plans with noise.
    requests : sequence of AgentRequest
        Requests of the agents. The statistic of an agent is None if its gradient depends on no
        private data.

    Raises
    ------
    PrivacyError
        If a required statistic does not exist, or does not fit the agent's constraints or
        estimates.
    """
    return tuple(_released(*each) for each in zip(agents, requests, strict=True))


def _released(agent: AgentPlan, request: AgentRequest) -> AgentPlan:
    sensitivity, noise, once = agent.sensitivity, agent.noise, request.once
    if sensitivity is None or noise is None:
        return agent
    if once is None:
        idle = sensitivity.constant and all(J.nnz == 0 for J in sensitivity.jacobians)
        if agent.program.hands_over or not idle:
            raise PrivacyError(
                f"Agent '{agent.name}' has no statistic to release once, but its data affect the "
                "result. Make the plan by problem.plan(...), which proposes a statistic."
            )
        return agent
    mechanism = noise.mechanism
    statistic = restated(sensitivity, mechanism.norm, agent.name, once, single=mechanism.single)
    if agent.program.as_written and isinstance(statistic, Publication):
        statistic = replace(statistic, jacobian=None)  # noise in gradients does not matter
    if agent.program.limits and (not isinstance(statistic, Publication) or not statistic.whole):
        raise PrivacyError(
            f"Agent '{agent.name}' has private data in constraints, but its request releases "
            f"{once.kind}. Make the plan by problem.plan(...). Margins are proved only if the "
            "data themselves are released."
        )
    if agent.program.limits and mechanism.single:
        raise PrivacyError(
            f"Constraints of agent '{agent.name}' contain private data, and margins are proved for "
            f"Laplace and Gaussian noise, not for {mechanism} noise. Leave mechanism= out, or "
            "write constraints='released' to keep them for the released data."
        )
    if request.estimates:
        size = 0 if not isinstance(statistic, Publication) else statistic.size
        if agent.program.limits or not all(
            fits(estimate, entries, size) for entries, estimate in request.estimates
        ):
            raise PrivacyError(
                f"The estimates in the request do not fit the values that agent '{agent.name}' "
                "releases once. Make the plan by problem.plan(...), which proposes estimates "
                "that fit. Margins are proved without estimates only, second moments have none, "
                "and other statistics need one mean per component."
            )
        assert isinstance(statistic, Publication)
        statistic = replace(statistic, estimates=request.estimates)
    return replace(agent, publication=statistic)


def with_releases(model: WrittenModel, agents: Agents) -> WrittenModel:
    """Return the model with the statistics that agents release, and the law of their noise.

    Parameters
    ----------
    model : WrittenModel
        Model that the server solves as written.
    agents : tuple of AgentPlan
        Agents with their statistics.
    """
    return replace(
        model,
        published=tuple(agent.publication for agent in agents),
        deviations=tuple(
            0.0
            if agent.noise is None or agent.publication is None
            else math.sqrt(agent.noise.variance(agent.publication.sensitivity))
            for agent in agents
        ),
        laws=tuple(agent.noise and agent.noise.simulated for agent in agents),
    )


@dataclass(frozen=True, eq=False)
class Compiled:
    """A problem that was compiled to plain arrays, with the sensitivities of its gradients."""

    problem: Declaration
    program: Program
    # By agent; None for public agents, or if no sensitivity is needed.
    sensitivities: dict[str, Sensitivity | None]
    # Public parameters with the values that they were compiled with.
    parameters: tuple[tuple[cp.Parameter, Values], ...] = ()

    @property
    def constant(self) -> bool:
        """Return whether all gradients are affine in the data, with a constant Jacobian."""
        return all(s is None or s.constant for s in self.sensitivities.values())

    @property
    def uniform(self) -> bool:
        """Return whether the private part of each gradient is equal at all points."""
        pairs = ((local.form, self.sensitivities[local.name]) for local in self.program.agents)
        return all(s is None or (s.asserted is None and not curved(form)) for form, s in pairs)

    @property
    def linear(self) -> bool:
        """Return whether all gradients are affine in the data, with any Jacobian."""
        return all(s is None or s.linear for s in self.sensitivities.values())

    @property
    def solvable(self) -> bool:
        """Return whether the parts of objectives with private data are quadratic for any data."""
        pairs = ((local.form, self.sensitivities[local.name]) for local in self.program.agents)
        return all(
            s is None or s.constant or (not s.clips and is_quadratic_given_data(form))
            for form, s in pairs
        )

    @property
    def releasable(self) -> bool:
        """Return whether every agent's data, or a statistic of them, can be released once."""
        return all(s is None or releasable(s) for s in self.sensitivities.values())

    def clipped(self, clips: Sequence[float | None]) -> Self:
        """Return the problem with contributions of records to gradients clipped to these norms.

        Parameters
        ----------
        clips : sequence of (float or None)
            Clip norms in the order of the agents; None without clipping.

        Raises
        ------
        PrivacyError
            If a sensitivity of clipped records cannot be derived.
        """
        agents = [
            local if local.clip == clip else replace(local, clip=clip)
            for local, clip in zip(self.program.agents, clips, strict=True)
        ]
        changed = {a.name for a, b in zip(agents, self.program.agents, strict=True) if a is not b}
        if not changed:
            return self
        program = replace(self.program, agents=tuple(agents))
        anew = [local for local in agents if local.name in changed and local.form.private]
        derived = once_per_kind(anew, lambda local: local.sensitivity())
        pairs = zip(anew, derived, strict=True)
        renamed = {local.name: sensitivity.renamed(local.form) for local, sensitivity in pairs}
        return replace(self, program=program, sensitivities={**self.sensitivities, **renamed})


def compiled(problem: Declaration, as_written: AsWritten | None = None) -> Compiled:
    """Compile a problem and derive its sensitivities.

    Parameters
    ----------
    problem : Declaration
        Problem to compile.
    as_written : AsWritten, optional
        Settings of a server that solves the model as written, if any.

    Raises
    ------
    ModelError
        If the problem cannot be compiled.
    PrivacyError
        If no sensitivity can be derived.
    """
    parameters = problem.parameter_values()
    derived: dict[Hashable, Sensitivity | None] = {}

    def derive(local: LocalProgram) -> Sensitivity | None:
        kind = local.kind
        if kind not in derived:
            derived[kind] = local.sensitivity() if local.form.private else None
        return derived[kind]

    # Each agent's is derived before the next agent is compiled, which a refusal then saves.
    program = compile_problem(problem, as_written=as_written, check=derive)
    return Compiled(problem, program, _by_name(program, map(derive, program.agents)), parameters)
