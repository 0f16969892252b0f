r"""Gradient descent along the sum of all agents' gradients, which is all that anybody sees.

.. math::
    x_{t+1} = P_W \Bigl(x_t - \eta_t \sum_i g_i\Bigr), \qquad g_i = \nabla f_i(x_t) + \xi_i

x holds the variables of all agents, W is the intersection of their public sets, and the server
projects onto it once. Public terms r without a Lipschitz gradient, such as penalties, are part of
this step: it minimizes :math:`\eta_t r(x) + \tfrac12 \|x - v\|^2` over W for the point v where the
gradients lead. With secret sums the server learns :math:`\sum_i g_i` and no term of it, so
that the sum needs the noise, and each agent adds a part of it (`dpcvx.privacy.split_noise`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from .._arguments import integer
from ..guard import frameless
from ..privacy.secret_sharing import Share
from ..sensitivity.queries.gradients import Gradient, Summand
from ..solvers.conic import Outcome
from ..solvers.newton import PLAIN
from ..solvers.projector import Projector
from .base import Algorithm, Iterates, Local, Oracle, Output, Requirements, Residuals
from .facts import PublicFacts, StepRule
from .joint import joint_rest, joint_set
from .program import Program
from .secret_terms import (
    Delivery,
    Pool,
    Question,
    added,
    check_sharing,
    proposed_sharing,
    require_all,
    secrecy,
    shared,
)
from .steps import as_step, step_said
from .summed import SHARING, SecretSharing

Array = NDArray[np.float64]
Index = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Server:
    """State of the server side.

    Attributes
    ----------
    names : tuple of str
    projector : Projector
        Onto W, with the public terms that steps minimize.
    places : tuple of ndarray of int
        Per agent, where its components are in x; one array for those with the same.
    x : ndarray, shape (n,)
    pool : Pool or None
        Of this round's sum; None if the server side adds up.
    moved : float
        How far x has moved in the last round.
    outcome : Outcome
        Of the last projection.
    """

    names: tuple[str, ...]
    projector: Projector
    places: tuple[Index, ...]
    x: Array
    pool: Pool | None = None
    moved: float = math.nan
    outcome: Outcome = Outcome.SOLVED

    def each(self, message: Callable[[Index], Any]) -> list[Any]:
        """A message per agent: one object for all whose places are one, so that it is sent once."""
        apart = {id(place): place for place in self.places}
        made = {key: message(place) for key, place in apart.items()}
        return [made[id(place)] for place in self.places]


@dataclass(frozen=True, eq=False)
class Moved:
    """Where an agent's components of x are now; None if the projection failed."""

    x: Array | None
    outcome: Outcome


@dataclass(frozen=True, eq=False)
class Member(Iterates):
    """State of an agent: its point, and the share it keeps until the next exchange."""

    kept: Share | None = None


@frameless
@dataclass(frozen=True)
class FederatedGradient(Algorithm[Server, Member]):
    """Gradient descent along sums of gradients, which may be formed in secret.

    With ``sharing=`` nobody sees the gradient of an agent, and noise is split: each agent adds a
    part of what the sum needs. The guarantee is then a pair, against a coalition of `max_colluders`
    agents with the server, and against all others together. It needs sums that the server cannot
    take apart: owners have them (`dp.RemoteOwners`, `dp.LoopbackOwners`), and agents in one process
    do not. An agent that leaves ends the run.

    Parameters
    ----------
    step : float or step rule
        What the sum is multiplied by; chosen from what is public if omitted, see
        `dpcvx.defaults.predicted`.
    sharing : SecretSharing, optional
        Form the sums without showing their terms to anybody, and split the noise.
    max_colluders : int
        With ``sharing=``, so many agents may pool what they see with the server, at least 1: each
        knows its own noise. An agent that adds no noise counts among them.
    returned : {"average", "last", "tail", "weighted", None}
        Which iterate the result reports first; see `Algorithm`.

    Raises
    ------
    ModelError
        If a parameter is outside its range.
    """

    step: float | StepRule | None = None
    sharing: SecretSharing | None = None
    max_colluders: int = 1
    returned: Output | None = None

    # Of what the mean of the gradients would be multiplied by, all arrives.
    pull: ClassVar[float] = 1.0

    def __post_init__(self) -> None:
        self.check_fields(sharing=SHARING, max_colluders=integer(1))
        as_step(self.step)
        check_sharing(self.sharing, self.max_colluders)

    @property
    def exchanges(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Shares take an exchange of their own."""
        return 2 if self.sharing is None else 3

    @property
    def batched(self) -> bool:
        """Where the server side adds up, agents keep nothing but the point that all hear of.

        Methods that derive from this one may keep more, and ask other questions.
        """
        return self.sharing is None and type(self) is FederatedGradient

    @property
    def requirements(self) -> Requirements:
        """One release per agent and round."""
        return Requirements(
            convex=False,
            exact=False,
            releases=1,
            proximal="server",
            queries=(Gradient if self.sharing is None else Summand,),
            secret=secrecy(self.sharing, self.max_colluders),
        )

    def propose(self, facts: PublicFacts) -> FederatedGradient:
        """Fill in the step sizes, and the range and the grid of the sums."""
        program, sharing = facts.program, proposed_sharing(self.sharing, facts)
        step, output = as_step(self.step), self.returned
        if step is None:
            pull = float(program.holders.max(initial=1.0))
            step, proposed = facts.step(pull=pull, falls=True)
            output = output or proposed
        step = step.resolved(program, facts.conditions.release_epsilon)
        return replace(self, step=step, returned=output, sharing=sharing)

    def adds(self, k: int) -> bool:
        """The gradients, unless they are shared in secret."""
        return k == 0 and self.sharing is None

    def start_server(self, program: Program) -> Server:
        """x at the agents' public starts, in W."""
        whole, terms = joint_set(program), joint_rest(program)
        rest, kernel = None if terms is None else terms.data, program.kernel or PLAIN
        projector = Projector(whole.data, "all agents", rest, kernel)
        x = projector(whole.start, np.ones(whole.start.size)).x
        names = tuple(local.name for local in program.agents)
        start = whole.start if x is None else x
        return Server(names, projector, whole.places, start, Pool.of(self.sharing, program))

    def start_agent(self, local: Local) -> Member:
        """x at the public start."""
        x = local.program.start
        return Member(x, np.zeros_like(x))

    def send(self, server: Server, t: int, k: int) -> tuple[Server, list[Any]]:
        """A question at x; the shares for each agent; then where x has moved."""
        if k == 0:
            pool = None if server.pool is None else server.pool.begun(t)
            sums = None if pool is None else pool.sums
            asked = server.each(lambda p: Question(server.x[p], p, server.x.size, sums))
            return replace(server, pool=pool), asked
        if k == self.exchanges - 1:
            return server, server.each(lambda p: Moved(server.x[p], server.outcome))
        assert server.pool is not None
        return server, [*server.pool.deliveries]

    def act(
        self,
        local: Local,
        state: Member,
        t: int,
        k: int,
        message: Question | Delivery | Moved,
        oracle: Oracle,
    ) -> tuple[Member, Any]:
        """The term, whole or in shares; the sum of the shares; then the point."""
        name = local.program.name
        if isinstance(message, Moved):
            return state.after(message.x, message.outcome), None
        if isinstance(message, Delivery):
            return replace(state, kept=None), added(message, state.kept, name)
        if message.sums is None:
            own = oracle.release(Gradient(message.at))
            whole = np.zeros((*own.shape[:-1], message.size))
            whole[..., message.place] = own
            return state, whole
        kept, sent = shared(oracle, message, name)
        return replace(state, kept=kept), sent

    def receive(self, server: Server, t: int, k: int, replies: Sequence[Any]) -> Server:
        """Add up, or pass the shares on; then step."""
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
        rule = as_step(self.step)
        assert rule is not None
        eta = rule.eta(t)
        found = server.projector(server.x - eta * total, np.ones(server.x.size), eta)
        x = server.x if found.x is None else found.x
        moved = float(np.linalg.norm(x - server.x))
        return replace(server, x=x, moved=moved, outcome=found.outcome)

    def residuals(self, server: Server) -> Residuals:
        """All hear of one point: there is nothing but how far it has moved."""
        return Residuals(0.0, server.moved, 0.0, 0.0)

    def __str__(self) -> str:
        how = "" if self.sharing is None else ", sums by secret sharing"
        return f"gradient descent along sums of gradients, {step_said(self.step)}{how}"
