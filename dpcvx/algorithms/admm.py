r"""Consensus ADMM with the exact local objective (Boyd et al. 2011, section 7; Ryu and Kim 3b).

.. math::
    x_p \leftarrow \operatorname{argmin}_{x \in W_p} f_p(x) - \langle \lambda_p, S_p x \rangle
        + \tfrac{\rho_t}{2} \| w - S_p x \|^2, \qquad
    \lambda_p \leftarrow \lambda_p + \rho_t (w - S_p x_p)

The server uses over-relaxation and Anderson acceleration. With copies :math:`z_p = S_p x_p`, one
vector per agent determines a round,

.. math::
    s_p = \alpha w + (1 - \alpha) z_p + \lambda_p / \rho_t ,

and the local step takes :math:`s_p - \lambda_p / \rho_t` in place of w; for :math:`\alpha = 1`,
this is w. The iteration is over-relaxed ADMM (Boyd et al., section 3.4.3), which is the
Douglas-Rachford fixed-point iteration in s. Anderson acceleration extrapolates s from the last
rounds. Both are post-processing, because s follows from the agents' messages.

The method is private if the data enter the gradient through a constant term only,
:math:`f_p(x; d) = f_p(x; 0) + \langle J d, x \rangle` up to a constant. Each round the oracle
releases a noisy gradient, and the method subtracts its public part. The exact solve of the public
function plus the noisy linear term is post-processing.

Squares of records, :math:`f_p(x; d) = f_p(x; 0) + \langle c, x \rangle + \tfrac12 x' H x`, are
allowed with ``release="once"``. Agents then query c and H, which are public, in round 1.

*Anderson acceleration.* A fixed-point iteration moves a point s to :math:`s + g(s)` in every round.
Let the columns of :math:`\Delta S` and :math:`\Delta G` be differences of consecutive points and
moves. The next point is

.. math::
    s + g - (\Delta S + \Delta G) \gamma, \qquad
    \gamma = \operatorname{argmin} \| g - \Delta G \gamma \|^2,

which is type II of Walker and Ni, "Anderson acceleration for fixed-point iterations" (SIAM Journal
on Numerical Analysis, 2011). If the move from an extrapolated point is much longer than the move
before, a safeguard rejects the point, and the iteration continues from the point without
extrapolation. The idea is that of Zhang, O'Donoghue and Boyd,
"Globally convergent type-I Anderson acceleration" (SIAM Journal on Optimization, 2020).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from .._arguments import integer, number, optional
from .._words import plural
from ..guard import frameless
from ..model.quadratic import curved
from ..sensitivity.queries.data import DataCurvature
from ..sensitivity.queries.gradients import Gradient
from ..solvers.conic import ConicProgram
from .base import Iterates, Local, Oracle, Output, Requirements
from .consensus import Broadcast, ConsensusMethod, ConsensusServer, LocalCopy, joined, slots_of
from .data_terms import data_terms, with_curvature
from .facts import PublicFacts
from .penalties import PenaltyRule, penalty_said
from .program import Program

Array = NDArray[np.float64]

# Extrapolation failed if a move is longer than the previous move by this factor.
_LONGER = 2.0
# Regularization of the normal equations, relative to their trace plus the squared move. Moves may
# be nearly parallel or nearly equal, as in linear programs between two vertices.
_REGULARIZATION = 1e-8


@dataclass(frozen=True, eq=False)
class RecentMoves:
    """Last points and moves of a fixed-point iteration, and number of rejected points."""

    points: tuple[Array, ...] = ()
    moves: tuple[Array, ...] = ()
    plain: Array | None = None  # next point without extrapolation; None if it was not extrapolated
    extrapolated: int = 0  # number of extrapolated points so far
    rejected: int = 0  # number of extrapolated points that the safeguard rejected


def cleared(memory: RecentMoves) -> RecentMoves:
    """Return the memory without its points and moves, for an iteration whose map has changed."""
    return RecentMoves(extrapolated=memory.extrapolated, rejected=memory.rejected)


def accelerated(
    memory: RecentMoves, point: Array, move: Array, length: int
) -> tuple[RecentMoves, Array]:
    """Return the memory after this round, and the next point of the accelerated iteration.

    Parameters
    ----------
    memory : RecentMoves
        Points and moves of the last rounds.
    point, move : ndarray
        Current point, and the method's move from it.
    length : int
        Largest number of differences to combine.
    """
    with np.errstate(all="ignore"):  # runs that diverge overflow
        if memory.plain is not None and not _size(move) <= _LONGER * _size(memory.moves[-1]):
            emptied = cleared(memory)
            return replace(emptied, rejected=memory.rejected + 1), memory.plain
        points = (*memory.points, point)[-length - 1 :]
        moves = (*memory.moves, move)[-length - 1 :]
        plain = point + move
        extrapolated = _extrapolated(points, moves)
        recent = replace(memory, points=points, moves=moves, plain=None)
        if extrapolated is None:
            return recent, plain
        return replace(recent, plain=plain, extrapolated=memory.extrapolated + 1), extrapolated


def _extrapolated(points: tuple[Array, ...], moves: tuple[Array, ...]) -> Array | None:
    """Return the point extrapolated from the last points and moves, if there are enough.

    The result is None if there are too few points, or the extrapolated point is not finite.
    """
    if len(points) < 2:
        return None
    dS, dG = np.diff(np.array(points), axis=0), np.diff(np.array(moves), axis=0)
    largest = float(np.abs(dG).max(initial=0.0))
    if not 0 < largest < np.inf:
        return None
    scaled = dG / largest  # else squares of small moves could underflow
    normal = scaled @ scaled.T
    move = moves[-1] / largest
    normal += _REGULARIZATION * (float(np.trace(normal)) + float(move @ move)) * np.eye(len(normal))
    if not np.isfinite(normal).all():
        return None
    gamma = np.linalg.solve(normal, scaled @ move)
    point = points[-1] + moves[-1] - gamma @ (dS + dG)
    return point if np.isfinite(point).all() else None


def _size(move: Array) -> float:
    return float(np.linalg.norm(move))


@dataclass(frozen=True, eq=False)
class ADMMState(Iterates):
    """State of an agent: its points and multipliers, and its objective for data released once."""

    lam: Array  # shape (s,)
    bent: bool  # whether the data change second derivatives of the objective
    kept: ReleasedObjective | None = None  # if so, the objective for released data, from round 1 on


@dataclass(frozen=True, eq=False)
class ReleasedObjective:
    """An agent's objective for data that were released once."""

    exact: ConicProgram  # solver, with the curvature that the released data add
    slope: Array  # shape (n,); the linear coefficient that the released data add


@dataclass(frozen=True, eq=False)
class ADMMServer(ConsensusServer):
    """State of the server, with the point s that over-relaxation and acceleration update."""

    point: Array | None = None  # s of all agents in this round, as one vector; None if w is sent
    memory: RecentMoves = field(default_factory=RecentMoves)


# Default alpha without noise, in the range 1.5 to 1.8 that Boyd et al. recommend.
_RELAXATION = 1.6
# Default number of differences that acceleration combines: five to ten are usual.
_MEMORY = 5


@frameless
@dataclass(frozen=True)
class ADMM(ConsensusMethod[ADMMState]):
    """Consensus ADMM with exact local minimization.

    Parameters
    ----------
    penalty : float, penalty rule or None
        Penalty rho of the consensus residual: a number or a rule of `dp.penalties`. None takes the
        geometric mean of a typical and the largest curvature of the objectives, as far as these are
        public. Unless steps are noisy, `dp.penalties.Spectral` then adapts it.
    relaxation : float or None
        Over-relaxation alpha, between 0 and 2; 1 is plain ADMM. None takes 1.6, or 1 if steps
        are noisy.
    acceleration : int or None
        Largest number of earlier rounds that Anderson acceleration combines; 0 switches it off.
        None takes 5, or 0 if steps are noisy: extrapolation amplifies noise.
    returned : {"average", "last", "tail", "weighted", None}
        Returned iterate; see `Algorithm`.

    Raises
    ------
    ModelError
        If a parameter is outside its range.
    """

    penalty: float | PenaltyRule | None = None
    returned: Output | None = None
    relaxation: float | None = field(default=None, metadata={"later": True})
    acceleration: int | None = field(default=None, metadata={"later": True})

    def __post_init__(self) -> None:
        self.check()
        self.check_fields(
            relaxation=optional(number(lambda alpha: 0 < alpha < 2, "between 0 and 2")),
            acceleration=optional(integer(0)),
        )

    @property
    def requirements(self) -> Requirements:
        """Return the method's requirements: convex objectives, one release per agent and round."""
        return Requirements(convex=True, exact=True, releases=1, queries=(Gradient, DataCurvature))

    def propose(self, facts: PublicFacts) -> ADMM:
        """Return the method with values for penalty, relaxation and acceleration, if omitted."""
        alpha, rounds = (1.0, 0) if facts.noisy else (_RELAXATION, _MEMORY)
        proposed = replace(
            super().propose(facts),
            relaxation=alpha if self.relaxation is None else float(self.relaxation),
            acceleration=rounds if self.acceleration is None else self.acceleration,
        )
        return proposed

    def noise_floor(
        self, program: Program, noise: Sequence[float], t: int, penalty: float
    ) -> float | None:
        """Return the consensus residual that noise sustains if objectives have no curvature."""
        return self.floor(program, noise, t, penalty, penalty)

    def start_server(self, program: Program) -> ADMMServer:
        """Return the server's state: agents' copies at the initial points, zero multipliers."""
        begun = super().start_server(program)
        return ADMMServer(program, begun.w, begun.z, begun.lam)

    def send(
        self, server: ConsensusServer, t: int, k: int
    ) -> tuple[ConsensusServer, list[Broadcast]]:
        """Send the mean w of the copies, or the extrapolated ``s - lam / rho`` (see the module)."""
        state, messages = super().send(server, t, k)
        alpha, length = self.relaxation, self.acceleration
        if (alpha in (None, 1) and not length) or not isinstance(state, ADMMServer):
            return state, messages
        assert alpha is not None and length is not None and state.rho is not None
        program, rho, last = state.program, state.rho, state.point
        w, z = state.w[slots_of(program)], joined(state.z)
        scaled = joined(state.lam) / rho
        # Before round 1, only the initial points are known, so s starts at w.
        point = (w if last is None else alpha * w + (1 - alpha) * z) + scaled
        memory = state.memory
        if rho != server.rho:
            memory = cleared(memory)  # the fixed-point map depends on rho
        elif length and last is not None:
            memory, point = accelerated(memory, last, point - last, length)
        places = np.cumsum([local.slots.size for local in program.agents])[:-1]
        sent = [Broadcast(target, rho) for target in np.split(point - scaled, places)]
        return replace(state, point=point, memory=memory), sent

    def notes(self, server: ConsensusServer) -> tuple[str, ...]:
        """Return a note on how often Anderson acceleration's safeguard rejected a point."""
        memory = server.memory if isinstance(server, ADMMServer) else RecentMoves()
        if not memory.rejected:
            return ()
        return (
            f"Anderson acceleration extrapolated {plural(memory.extrapolated, 'point')}; its "
            f"safeguard rejected {memory.rejected}.",
        )

    def start_agent(self, local: Local) -> ADMMState:
        """Return the agent's state with x at the public initial point and zero multipliers."""
        x = local.program.start
        lam = np.zeros(local.program.shared.size)
        return ADMMState(x, np.zeros_like(x), lam, bool(curved(local.program.form)))

    def act(
        self, local: Local, state: ADMMState, t: int, k: int, message: Broadcast, oracle: Oracle
    ) -> tuple[ADMMState, LocalCopy]:
        """Minimize the local objective with a noisy linear term, then update the multipliers."""
        assert local.exact is not None
        w, rho, S = message.w, message.rho, local.program.shared
        exact = local.exact
        if state.bent and state.kept is None:
            state = replace(state, kept=_known(local, state.x, oracle))
        if state.kept is not None:
            exact, linear = state.kept.exact, state.kept.slope.copy()
        else:
            linear = oracle.release(Gradient(state.x)) - local.public_gradient(state.x)
        D = np.zeros(state.x.size)
        D[S] = rho
        linear[S] -= state.lam + rho * w
        answer = exact.solve(D, linear, state.x)
        state = state.after(answer.x, answer.outcome)
        z = state.x[S]
        lam = state.lam + rho * (w - z)
        return replace(state, lam=lam), LocalCopy(z, lam)

    def __str__(self) -> str:
        parts = ["ADMM with exact local steps", penalty_said(self.penalty)]
        if self.relaxation not in (None, 1):
            parts.append(f"over-relaxation by {self.relaxation:g}")
        if self.acceleration:
            parts.append("Anderson acceleration")
        return ", ".join(parts)


def _known(local: Local, x: Array, oracle: Oracle) -> ReleasedObjective:
    assert local.program.exact is not None
    released = data_terms(local, x, oracle)
    return ReleasedObjective(
        ConicProgram(with_curvature(local.program.exact, released.curvature)), released.slope
    )
