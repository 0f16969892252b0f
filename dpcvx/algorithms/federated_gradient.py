r"""Gradient descent along the noisy sum of all agents' gradients.

.. math::
    x_{t+1} = P_W \Bigl(x_t - \eta_t \sum_i g_i\Bigr), \qquad g_i = \nabla f_i(x_t) + \xi_i

x holds the variables of all agents, W is the intersection of their public sets, and the server
projects onto it once. Public terms r without a Lipschitz gradient, such as penalties, are part of
this step: it minimizes :math:`\eta_t r(x) + \tfrac12 \|x - v\|^2` over W, where v is the point
after the gradient step. With secure aggregation, the server learns :math:`\sum_i g_i` and no single
summand. Then only the sum needs noise, and each agent adds a part of it
(`dpcvx.privacy.split_noise`). This also holds for the queries that learn a scale of the records.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from .._arguments import Kind, integer, optional
from ..errors import ModelError
from ..guard import frameless
from ..privacy.secret_sharing import Share
from ..sensitivity.queries.data import (
    CurvatureSums,
    LearnedGradient,
    LearnedSummand,
    RecordsAbove,
)
from ..sensitivity.queries.gradients import Gradient, Summand
from ..sensitivity.queries.query import Query
from ..solvers.conic import Outcome
from ..solvers.newton import PLAIN
from ..solvers.projector import Projector
from .base import Algorithm, Answer, Iterates, Local, Oracle, Output, Requirements, Residuals
from .facts import PublicFacts, StepRule
from .joint import joint_rest, joint_set
from .learned_scale import ROUNDS, LearnScale, Scale, ScaleQuestion
from .program import Program
from .steps import as_step, step_said
from .summed import (
    SHARING,
    Delivery,
    Pool,
    Question,
    SecretSharing,
    Shared,
    added,
    check_sharing,
    divided,
    proposed_sharing,
    require_all,
    secrecy,
    shared,
)

Array = NDArray[np.float64]
Index = NDArray[np.intp]

_SCALE = optional(
    Kind(lambda value: isinstance(value, LearnScale), "dp.LearnScale(), or None for declared steps")
)


@dataclass(frozen=True, eq=False)
class GradientServer:
    """State of the server side of `FederatedGradient`.

    Attributes
    ----------
    names : tuple of str
        Names of the agents.
    projector : Projector
        Projector onto W, which also minimizes the public terms r.
    places : tuple of ndarray of int
        Positions of each agent's components in x; one array object for agents with equal positions.
    x : ndarray, shape (n,)
        Current point of all agents' variables.
    pool : Pool or None
        Server side of this round's secure aggregation; None if the server side adds up.
    scale : Scale or None
        Learned scale of the records; None if a step-size rule determines steps.
    moved : float
        Distance that x moved in the last round.
    outcome : Outcome
        Outcome of the last projection.
    """

    names: tuple[str, ...]
    projector: Projector
    places: tuple[Index, ...]
    x: Array
    pool: Pool | None = None
    scale: Scale | None = None
    moved: float = math.nan
    outcome: Outcome = Outcome.SOLVED

    def each(self, message: Callable[[Index], Any]) -> list[Any]:
        """Return one message per agent: ``message`` of the positions of its components in x.

        Agents with equal positions get one object, so that it is serialized once.
        """
        apart = {id(columns): columns for columns in self.places}
        made = {key: message(columns) for key, columns in apart.items()}
        return [made[id(columns)] for columns in self.places]


@dataclass(frozen=True, eq=False)
class Moved:
    """Message with an agent's components of the new x, and the outcome of the projection.

    `x` is None if there is no new point.
    """

    x: Array | None
    outcome: Outcome


@dataclass(frozen=True, eq=False)
class GradientMember(Iterates):
    """State of an agent: its point, and the secret share of its summand that it keeps itself."""

    kept: Share | None = None


@frameless
@dataclass(frozen=True)
class FederatedGradient(Algorithm[GradientServer, GradientMember]):
    """Gradient descent along the sum of all agents' gradients; may use secure aggregation.

    With ``sharing=`` nobody sees the gradient of an agent, and noise is distributed: each agent
    adds a part of the noise of the sum. The guarantee then has two parts: against `max_colluders`
    agents that collude with the server, and against all other agents together. The server must not
    be able to take sums apart. Owners ensure this (`dp.RemoteOwners`, `dp.LoopbackOwners`), and
    agents in one process do not. If an agent leaves, the run ends.

    Parameters
    ----------
    step : float or step rule
        Step size, the factor of the sum; chosen from public facts if omitted, see
        `dpcvx.defaults.predicted`.
    sharing : SecretSharing, optional
        Form the sums by secure aggregation, with distributed noise.
    max_colluders : int
        Collusion threshold with ``sharing=``, at least 1: agents that may collude with the server.
        A colluder knows its own part of the noise. An agent that adds no noise counts as a
        colluder.
    returned : {"average", "last", "tail", "weighted", None}
        Returned iterate; see `Algorithm`.
    scale : LearnScale, optional
        Spend a part of the budget to learn the sizes of records' gradients and the curvature of
        their losses; clip and steps follow from these. It replaces ``step=``. With ``sharing=``,
        summands are in units of the learned clip, and their range is as wide as the rounding grid
        allows.

    Raises
    ------
    ModelError
        If a parameter is outside its range.
    """

    step: float | StepRule | None = None
    sharing: SecretSharing | None = None
    max_colluders: int = 1
    returned: Output | None = None
    scale: LearnScale | None = field(default=None, metadata={"later": True})

    # Shared variables move by the whole step.
    pull: ClassVar[float] = 1.0

    def __post_init__(self) -> None:
        self.check_fields(sharing=SHARING, max_colluders=integer(1), scale=_SCALE)
        as_step(self.step)
        check_sharing(self.sharing, self.max_colluders)
        if self.scale is not None and self.step is not None:
            raise ModelError(
                "dp.FederatedGradient takes scale= or step=, not both; drop one. With scale= the "
                "steps follow from what is learned."
            )

    @property
    def exchanges(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Number of message exchanges per round: 3 with secret shares, else 2."""
        return 2 if self.sharing is None else 3

    @property
    def batched(self) -> bool:
        """Return whether identical agents are updated as a batch; False in subclasses.

        False with `sharing` or `scale`. Between exchanges, agents of a batch keep only the point.
        """
        alone = self.sharing is None and self.scale is None
        return alone and type(self) is FederatedGradient

    @property
    def requirements(self) -> Requirements:
        """Return the method's requirements: one release per agent and round."""
        asked: tuple[type[Query], ...] = (Gradient if self.sharing is None else Summand,)
        if self.scale is not None:
            gradient = LearnedGradient if self.sharing is None else LearnedSummand
            asked = (RecordsAbove, CurvatureSums, gradient)
        return Requirements(
            convex=False,
            exact=False,
            releases=1,
            proximal="server",
            queries=asked,
            first=() if self.scale is None else self.scale.parts,
            secret=secrecy(self.sharing, self.max_colluders),
        )

    def propose(self, facts: PublicFacts) -> FederatedGradient:
        """Return the method with a number for every omitted setting."""
        if self.scale is not None:
            scale = self.scale.resolved(facts.conditions, facts.program)
            sharing = proposed_sharing(self.sharing, facts, learned=True)
            output = self.returned or "weighted"
            return replace(self, scale=scale, sharing=sharing, returned=output)
        program, sharing = facts.program, proposed_sharing(self.sharing, facts)
        step, output = as_step(self.step), self.returned
        if step is None:
            pull = float(program.holders.max(initial=1.0))
            step, proposed = facts.step(pull=pull, falls=True)
            output = output or proposed
        step = step.resolved(program, facts.conditions.release_epsilon)
        return replace(self, step=step, returned=output, sharing=sharing)

    def adds(self, k: int) -> bool:
        """Return whether the server adds up the replies: the gradients, without `sharing`."""
        return k == 0 and self.sharing is None

    def start_server(self, program: Program) -> GradientServer:
        """Return the server's state: x at the initial points, projected onto the feasible set."""
        whole, terms = joint_set(program), joint_rest(program)
        rest, kernel = None if terms is None else terms.data, program.kernel or PLAIN
        projector = Projector(whole.data, "all agents", rest, kernel)
        x = projector(whole.start, np.ones(whole.start.size)).x
        names = tuple(local.name for local in program.agents)
        start = whole.start if x is None else x
        secret = self.sharing is not None
        scale = None if self.scale is None else Scale.of(self.scale, program, secret)
        pool = Pool.of(self.sharing, program)
        return GradientServer(names, projector, whole.places, start, pool, scale)

    def start_agent(self, local: Local) -> GradientMember:
        """Return the agent's state with x at its public initial point."""
        x = local.program.start
        return GradientMember(x, np.zeros_like(x))

    def send(self, server: GradientServer, t: int, k: int) -> tuple[GradientServer, list[Any]]:
        """Request gradients at x, then send secret shares (with `sharing`), and last the new x."""
        scale, x, size = server.scale, server.x, server.x.size
        if scale is not None and k == self.exchanges - 1 and t <= ROUNDS:  # x has not moved
            return server, [None] * len(server.names)
        if scale is not None and k == 0:
            places = enumerate(server.places)
            asked = [scale.question(t, i, x[p], p, size) for i, p in places]
            if server.pool is None:
                return server, asked
            pool = server.pool.begun(t, asked[0].answers)
            return replace(server, pool=pool), [replace(q, sums=pool.sums) for q in asked]
        if k == 0:
            pool = None if server.pool is None else server.pool.begun(t)
            sums = None if pool is None else pool.sums
            asked = server.each(lambda p: Question(x[p], p, size, sums))
            return replace(server, pool=pool), asked
        if k == self.exchanges - 1:
            return server, server.each(lambda p: Moved(server.x[p], server.outcome))
        assert server.pool is not None
        return server, [*server.pool.deliveries]

    def act(
        self,
        local: Local,
        state: GradientMember,
        t: int,
        k: int,
        message: Question | ScaleQuestion | Delivery | Moved,
        oracle: Oracle,
    ) -> tuple[GradientMember, Any]:
        """Reply with the noisy gradient or its secret shares; in the last exchange, store x."""
        name = local.program.name
        if isinstance(message, Moved):
            return state.after(message.x, message.outcome), None
        if isinstance(message, ScaleQuestion):
            values = _answered(message, oracle)
            if message.sums is None:
                return state, values
            share, others = divided(message.sums, name, values)
            return replace(state, kept=share), Shared(others, np.zeros_like(values))
        if isinstance(message, Delivery):
            return replace(state, kept=None), added(message, state.kept, name)
        if message.sums is None:
            gradient = oracle.release(Gradient(message.at))
            whole = np.zeros((*gradient.shape[:-1], message.size))
            whole[..., message.place] = gradient
            return state, whole
        share, sent = shared(oracle, message, name)
        return replace(state, kept=share), sent

    def receive(
        self, server: GradientServer, t: int, k: int, replies: Sequence[Any]
    ) -> GradientServer:
        """Add up the gradients, or secret shares of them, and make a gradient step."""
        if k == self.exchanges - 1:
            return server
        pool = server.pool
        if pool is None:
            (total,) = replies
        else:
            require_all(server.names, replies, t)
            if k == 0:
                return replace(server, pool=pool.taken(replies))
            total = pool.total(replies)
        if server.scale is not None:
            if t <= ROUNDS:
                return replace(server, scale=server.scale.learned(t, total), moved=0.0)
            total, scale = server.scale.stepped(total)
            server, eta = replace(server, scale=scale), scale.step(t)
        else:
            rule = as_step(self.step)
            assert rule is not None
            eta = rule.eta(t)
        projection = server.projector(server.x - eta * total, np.ones(server.x.size), eta)
        x = server.x if projection.x is None else projection.x
        moved = float(np.linalg.norm(x - server.x))
        return replace(server, x=x, moved=moved, outcome=projection.outcome)

    def residuals(self, server: GradientServer) -> Residuals:
        """Return the last move of x as dual residual; the primal one is 0, with one common x."""
        return Residuals(0.0, server.moved, 0.0, 0.0)

    def answer(self, state: GradientMember) -> Answer | None:
        """Return the agent's last point, and its average over the rounds that make steps."""
        weight = None if self.scale is None else float(state.turns)
        return Answer(state.x, state.average, weight)

    def notes(self, server: GradientServer) -> tuple[str, ...]:
        """Return a note on the learned scale of the records, if it is learned."""
        return () if server.scale is None else (server.scale.said(),)

    def __str__(self) -> str:
        how = "" if self.sharing is None else ", sums by secret sharing"
        if self.scale is not None:
            return (
                f"gradient descent along sums of gradients, in a scale that is learned first{how}"
            )
        return f"gradient descent along sums of gradients, {step_said(self.step)}{how}"


def _answered(message: ScaleQuestion, oracle: Oracle) -> Array:
    """Return an agent's answer to a query that learns, or uses, the scale of the records."""
    point, limit, unit = message.at, message.limit, message.unit
    if message.what != "gradient":
        if message.what == "curvature":
            return oracle.release(CurvatureSums(point, limit, unit))
        return oracle.release(RecordsAbove(point, limit, message.what == "bends", unit))
    if message.sums is not None:
        return oracle.release(
            LearnedSummand(point, limit, unit, place=message.place, whole=message.size)
        )
    gradient = oracle.release(LearnedGradient(point, limit, unit))
    whole = np.zeros(message.size + 1)
    whole[message.place], whole[-1] = gradient[:-1], gradient[-1]
    return whole
