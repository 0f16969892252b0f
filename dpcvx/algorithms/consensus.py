"""Server side that all consensus ADMM methods have in common (Ryu and Kim, line 5).

Agents send their copies of the shared variables and their multipliers. Only a method's `act`
updates an agent's multipliers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from ..errors import ModelError, package_fault
from .base import Algorithm, Batch, Residuals
from .facts import PublicFacts
from .penalties import PenaltyRule, Spectral, as_penalty
from .program import Program

Array = NDArray[np.float64]
A = TypeVar("A")


@dataclass(frozen=True, eq=False)
class Broadcast:
    """Message of the server to one agent.

    Attributes
    ----------
    w : ndarray
        The agent's components of the shared vector.
    rho : float
        Penalty of the round.
    """

    w: Array
    rho: float


@dataclass(frozen=True, eq=False)
class LocalCopy:
    """Reply of an agent to the server; both entries follow from released values.

    Attributes
    ----------
    z : ndarray, shape (s,)
        The agent's copy of its s shared components.
    lam : ndarray, shape (s,)
        Multipliers of these components.
    """

    z: Array
    lam: Array


@dataclass(frozen=True, eq=False)
class ConsensusServer:
    """State of the server: the shared vector, the agents' copies and multipliers, residuals.

    Attributes
    ----------
    program : Program
    w : ndarray, shape (m,)
        Shared vector.
    z : sequence of ndarray
        Each agent's copy of its shared components; one array with a row per agent if agents are
        batched.
    lam : sequence of ndarray
        Each agent's multipliers, of the shape of its copy.
    rho : float or None
        Penalty of the last round; None before round 1.
    primal, dual, mismatch : float
        Residuals of the last round.
    changes : tuple of float
        Norms of the changes of all copies and of all multipliers in the last round; computed only
        for `dp.penalties.Spectral`.
    """

    program: Program
    w: Array
    z: Sequence[Array] | Array
    lam: Sequence[Array] | Array
    rho: float | None = None
    primal: float = math.nan
    dual: float = math.nan
    mismatch: float = math.nan
    changes: tuple[float, float] = (math.nan, math.nan)


class ConsensusMethod(Algorithm[ConsensusServer, A]):
    """Abstract base class of methods whose server averages copies of the shared variables.

    `act` gets a `Broadcast` and replies with a `LocalCopy`. Subclasses are frozen dataclasses with
    the fields `penalty` and `returned`.
    """

    penalty: float | PenaltyRule | None

    def check(self) -> None:
        """Refuse values of `penalty` and `returned` of a wrong type or range."""
        if self.penalty is not None:
            as_penalty(self.penalty)
        self.check_fields()

    def propose(self, facts: PublicFacts) -> Self:
        """Return the method with a number for every omitted constant of its penalty rule."""
        penalty = self.penalty
        if penalty is None:
            first = facts.penalty
            # A rule that adapts to residuals would follow their noise.
            penalty = first if facts.noisy else Spectral(first)
        rule = as_penalty(penalty).resolved(facts.conditions.release_epsilon)
        return replace(cast(Any, self), penalty=rule)

    def start_server(self, program: Program) -> ConsensusServer:
        """Return the server's state: agents' copies at the initial points, zero multipliers."""
        z = tuple(local.start[local.shared] for local in program.agents)
        lam = tuple(np.zeros(local.slots.size) for local in program.agents)
        return ConsensusServer(program, _mean(program, joined(z)), z, lam)

    def send(
        self, server: ConsensusServer, t: int, k: int
    ) -> tuple[ConsensusServer, list[Broadcast]]:
        """Send w, the mean of z - lam / rho (copies, multipliers, penalty) over the holders."""
        program = server.program
        assert self.penalty is not None
        rule, before = as_penalty(self.penalty), server.rho
        spectral = isinstance(rule, Spectral)
        told = server.changes if spectral else (server.primal, server.dual)
        rho = rule.next(t, before, *told)
        w, dual = self._moved(server, rho)
        state = replace(
            server,
            w=w,
            rho=rho,
            dual=dual if before else math.nan,
            primal=math.nan,
            mismatch=math.nan,
        )
        # Agents with equal slots get one message object, so that it is serialized once.
        keys = [local.slots.tobytes() for local in program.agents]
        slots = {key: local.slots for key, local in zip(keys, program.agents, strict=True)}
        sent = {key: Broadcast(w[slot], rho) for key, slot in slots.items()}
        return state, [sent[key] for key in keys]

    def receive(
        self, server: ConsensusServer, t: int, k: int, replies: Sequence[LocalCopy]
    ) -> ConsensusServer:
        """Store the agents' copies and multipliers, and compute the consensus residuals."""
        assert server.rho is not None
        if isinstance(replies, Batch):
            z, lam = replies.whole.z, replies.whole.lam
        else:
            kinds = {*map(type, replies)}
            if kinds != {LocalCopy} and not all(issubclass(kind, LocalCopy) for kind in kinds):
                raise self._no_copy(server, replies)
            z, lam = (tuple(getattr(copy, name) for copy in replies) for name in ("z", "lam"))
            sizes = [*map(np.size, server.z)]
            if [*map(np.size, z)] != sizes or [*map(np.size, lam)] != sizes:
                raise self._no_copy(server, replies)
        copies, changes = joined(z), server.changes
        if isinstance(self.penalty, Spectral):
            moved, priced = copies - joined(server.z), joined(lam) - joined(server.lam)
            changes = float(np.linalg.norm(moved)), float(np.linalg.norm(priced))
        together = server.w[slots_of(server.program)] - copies
        return replace(
            server,
            z=z,
            lam=lam,
            primal=float(np.linalg.norm(together)),
            mismatch=float(np.max(np.abs(together), initial=0.0)),
            changes=changes,
        )

    def _no_copy(self, server: ConsensusServer, replies: Sequence[Any]) -> ModelError:
        """Return the error for the first reply that is no `LocalCopy` of the agent's size."""
        for local, copy in zip(server.program.agents, replies, strict=True):
            n = local.slots.size
            said = type(copy).__name__
            if isinstance(copy, LocalCopy):
                if np.size(copy.z) == np.size(copy.lam) == n:
                    continue
                said = f"LocalCopy with {np.size(copy.z)} and {np.size(copy.lam)} numbers"
            return ModelError(
                f"{type(self).__name__}.act returned a {said}, but agent '{local.name}' shares "
                f"{n} numbers. Return LocalCopy(z, lam): the copy state.x[local.program.shared], "
                "and the multipliers of the copy."
            )
        raise package_fault("A reply was refused, and all are copies.")

    @staticmethod
    def _moved(server: ConsensusServer, rho: float) -> tuple[Array, float]:
        """Return the new shared vector w, and the dual residual: rho times the norm of w's change.

        The norm counts each component once per holder.
        """
        program = server.program
        w = _mean(program, joined(server.z) - joined(server.lam) / rho)
        change = np.sqrt(program.holders) * (w - server.w)
        return w, rho * float(np.linalg.norm(change))

    @staticmethod
    def floor(
        program: Program, noise: Sequence[float], t: int, curvature: float, rho: float
    ) -> float:
        """Return the root mean square of the consensus residual that noise sustains.

        The noise is in the linear term of every local step. In round t, e is the distance of an
        agent's copy z from the mean w of all copies, and l is its multiplier. They follow ``D e' =
        (D - rho) e + l - noise`` and ``l' = l - rho e'``, where a prime marks the next round. With
        r = rho / D and noise of variance D^2, e has the variance ``2 / (r (4 - 3 r))`` in the long
        run (an ARMA(2, 1) process), and at most t after t rounds. Curvature and constraints only
        decrease the variance. The mean w moves by noise / D in a round. This enters w - z twice and
        adds 2 to the variance.

        Parameters
        ----------
        program : Program
        noise : sequence of float
            Standard deviation of the noise in one entry, by agent.
        t : int
            Number of rounds so far.
        curvature : float
            Lower bound D on the curvature of a local step.
        rho : float
            Penalty, at most D.
        """
        r = rho / curvature
        gain = min(2 / (r * (4 - 3 * r)), t) + 2
        pairs = zip(program.agents, noise, strict=True)
        return math.sqrt(gain * sum(a.shared.size * s**2 for a, s in pairs)) / curvature

    def residuals(self, server: ConsensusServer) -> Residuals:
        """Return the primal and dual residuals of the last round."""
        assert server.rho is not None
        return Residuals(server.primal, server.dual, server.mismatch, server.rho)


def joined(parts: Sequence[Array] | Array) -> Array:
    """Return the vectors of all agents as one, in the order of the agents."""
    return parts.ravel() if isinstance(parts, np.ndarray) else np.concatenate(parts)


def slots_of(program: Program) -> NDArray[np.intp]:
    """Return the positions in the shared vector w of all agents' shared components, by agent."""
    return np.concatenate([local.slots for local in program.agents])


def _mean(program: Program, values: Array) -> Array:
    """Return each shared component's mean over the agents that hold it, shape (m,).

    `values` has all agents' shared components, in the order of the agents.
    """
    total = np.zeros(program.size)
    np.add.at(total, slots_of(program), values)  # in the agents' order
    return total / program.holders
