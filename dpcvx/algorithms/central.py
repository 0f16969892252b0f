r"""One round: agents say what their data add to their objectives, the server solves the problem.

Where private data enter an objective by a linear term, or by squares of records that left once,

.. math:: f_p(x; d) = f_p(x; 0) + \langle c_p, x \rangle + \tfrac12 x' H_p x

up to a number. Everything but c and H is public, so one release of these tells the server all there
is to know of the problem

.. math::
    \operatorname{minimise} \sum_p f_p(S_p z; 0) + \langle c_p, S_p z \rangle
        + \tfrac12 (S_p z)' H_p S_p z
    \quad \text{subject to} \quad S_p z \in W_p, \quad \sum_p A_p S_p z = b,

and what it finds is the optimum of what was released. No step size, no penalty, no iterations: more
rounds could only approach the same point.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from .._words import plural
from ..guard import frameless
from ..sensitivity.queries import DataCurvature, Gradient, ReleasedData
from ..solvers.conic import ConicProgram, Outcome
from .base import Algorithm, Iterates, Local, Oracle, Requirements, Residuals
from .data_terms import DataTerms, data_terms
from .joint import Joint, joint, with_kept
from .program import Program

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Server:
    """State of the server.

    Attributes
    ----------
    program : Program
    joint : Joint
    x : ndarray or None
        The optimum of the joint problem; None before it is solved, and where that fails.
    outcome : Outcome
    """

    program: Program
    joint: Joint
    x: Array | None = None
    outcome: Outcome = Outcome.SOLVED


@dataclass(frozen=True, eq=False)
class Question:
    """What an agent is asked first.

    Attributes
    ----------
    at : ndarray, shape (n,)
        Where its gradient is released.
    """

    at: Array


@dataclass(frozen=True, eq=False)
class Left:
    """What an agent answers.

    Attributes
    ----------
    terms : DataTerms
    data : ndarray or None
        Its private data as they left; None where no constraint contains them.
    """

    terms: DataTerms
    data: Array | None


@dataclass(frozen=True, eq=False)
class Found:
    """What an agent is told at the end.

    Attributes
    ----------
    x : ndarray, shape (n,), or None
        Its components of the optimum; None if there is none.
    outcome : Outcome
    """

    x: Array | None
    outcome: Outcome


@frameless
@dataclass(frozen=True)
class Central(Algorithm[Server, Iterates]):
    """The whole problem solved at once by the server, from one release per agent.

    For objectives whose gradients are affine in the private data, and with ``release="once"`` for
    squares of records. Takes ``coupling=`` as well as shared variables, every cone, and constraints
    with private data, which are kept up to a probability. A run has one round.
    """

    exchanges: ClassVar[int] = 2
    fixed_rounds: ClassVar[int | None] = 1
    # There is one iterate.
    output: ClassVar[None] = None

    @property
    def requirements(self) -> Requirements:
        """Convex objectives, compiled for the server; one release per agent."""
        return Requirements(
            convex=True,
            exact="joint",
            releases=1,
            queries=(Gradient, DataCurvature, ReleasedData),
            coupled=None,
            limits=True,
        )

    def coupling(self, program: Program) -> str | None:
        """How many equalities."""
        if program.coupling is None:
            return None
        return (
            f"{plural(program.coupling.right.size, 'row')} of equalities over all agents, all kept"
        )

    def start_server(self, program: Program) -> Server:
        """The joint problem at zero data."""
        return Server(program, joint(program))

    def start_agent(self, local: Local) -> Iterates:
        """x at the public start."""
        x = local.program.start
        return Iterates(x, np.zeros_like(x))

    def send(self, server: Server, t: int, k: int) -> tuple[Server, list[Question | Found]]:
        """A question at the common start, then what the answers led to."""
        places = server.joint.places
        if k == 0:
            return server, [Question(server.joint.start[place]) for place in places]
        x = server.x
        return server, [Found(None if x is None else x[p], server.outcome) for p in places]

    def act(
        self,
        local: Local,
        state: Iterates,
        t: int,
        k: int,
        message: Question | Found,
        oracle: Oracle,
    ) -> tuple[Iterates, Left | None]:
        """What the data add, and themselves where constraints contain them; then the point."""
        if isinstance(message, Found):
            return state.after(message.x, message.outcome), None
        terms = data_terms(local, message.at, oracle)
        if not local.program.limits:
            return state, Left(terms, None)
        return state, Left(terms, oracle.release(ReleasedData(local.program.form.data_size)))

    def receive(self, server: Server, t: int, k: int, replies: Sequence[Left]) -> Server:
        """Solve."""
        if k > 0:
            return server
        whole = server.joint.with_terms(
            [reply.terms.slope for reply in replies], [reply.terms.curvature for reply in replies]
        )
        whole = with_kept(whole, server.program, [reply.data for reply in replies])
        found = ConicProgram(whole).solve(np.zeros(whole.n), None, server.joint.start)
        return replace(server, x=found.x, outcome=found.outcome)

    def residuals(self, server: Server) -> Residuals:
        """None: all hear of one point. Without an optimum, agents stay at their own starts."""
        if server.x is not None:
            return Residuals(0.0, 0.0, 0.0, 0.0)
        places, common = server.joint.places, server.joint.start
        pairs = zip(server.program.agents, places, strict=True)
        apart = np.concatenate([common[place] - local.start for local, place in pairs])
        return Residuals(float(np.linalg.norm(apart)), math.nan, float(np.abs(apart).max()), 0.0)

    def __str__(self) -> str:
        return "the server solves the whole problem once"
