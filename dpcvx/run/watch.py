"""Monitoring of a run: visible values of every round, early stopping, and the final status.

Released residuals decide whether the run has converged.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..algorithms.base import Answer, HiddenIterates, Residuals
from ..algorithms.contract import breach
from ..defaults.conditions import conditions
from ..errors import PrivacyError
from ..plan.terms import Terms
from ..solvers.conic import Outcome
from .history import History, Round
from .report import Reporter
from .result import Status
from .resume import Agents
from .worker import Growth, Reply, of_residuals

Array = NDArray[np.float64]


# A residual counts as converged at this share of the run's largest one, or at this multiple of the
# residual that noise sustains. Gaussian noise exceeds the latter with a probability below 1e-4,
# Laplace noise below 1/200 (for one entry, and less for more entries).
_SHARE = 0.01
_NOISE = 4.0
# Residuals of this size, relative to the values, are rounding errors.
_ROUNDING = 1e-6
# A run that moves more than this share of its total distance in the second half has not converged.
_LATE = 0.05
# The share if the effect of noise is unknown; the path must also be straight.
_LATE_IN_NOISE = 0.1


@dataclass(frozen=True)
class Largest:
    """Largest residuals of a run so far: primal residual, and movement of the common values.

    Attributes
    ----------
    primal, move : float
        The two largest values.
    """

    primal: float = 0.0
    move: float = 0.0

    def after(self, residuals: Residuals) -> Largest:
        """Return the largest residuals so far, after one more round with `residuals`."""
        return Largest(max(self.primal, residuals.primal), max(self.move, _move(residuals)))

    def settled(self, last: Residuals, floor: float, size: float) -> bool:
        """Return whether the last residuals are relatively small, or no larger than noise explains.

        Parameters
        ----------
        last : Residuals
            Residuals of the last round.
        floor : float
            Residual that noise alone sustains; see `Algorithm.noise_floor`.
        size : float
            Largest magnitude of the values.
        """
        explained = max(_NOISE * floor, _ROUNDING * size)
        pairs = (last.primal, self.primal), (_move(last), self.move)
        return all(now <= max(_SHARE * most, explained) for now, most in pairs)


def arrives(points: Sequence[Array], noise: float | None, size: float) -> bool:
    """Return whether a run's points converge, or move only as far as noise moves them.

    The points are equally spaced in rounds. Residuals of short steps are small long before a slow
    run converges, and residuals of agents without shared variables are 0. Noise moves in all
    directions: if its size is unknown, all parts of a run point the same way by chance with a
    probability of at most 1/16.

    Parameters
    ----------
    points : sequence of ndarray
        Points of released values: the initial point, and the points after each part of the run.
    noise : float or None
        Approximate distance that noise alone moves in half of the run; 0 without noise, None if
        unknown.
    size : float
        Largest magnitude of the values.
    """
    if len(points) < 3:
        return True
    way, late = points[-1] - points[0], points[-1] - points[len(points) // 2]
    far, after = float(np.linalg.norm(way)), float(np.linalg.norm(late))
    explained = _ROUNDING * size * math.sqrt(way.size)
    if noise is not None:
        return after <= max(_LATE * far, _NOISE * noise, explained)
    straight = all(float((b - a) @ way) > 0 for a, b in pairwise(points))
    return not straight or after <= max(_LATE_IN_NOISE * far, explained)


def _move(residuals: Residuals) -> float:
    """Return the distance that shared values moved in a round; 0 in round 1."""
    if math.isnan(residuals.dual):
        return 0.0
    return residuals.dual / (residuals.penalty or 1.0)


# Statuses that follow from the outcome of a solve in the last round.
_VERDICTS = {Outcome.INFEASIBLE: Status.INFEASIBLE, Outcome.UNBOUNDED: Status.UNBOUNDED}


class Watch:
    """Watcher of a run: collects and shows visible values of every round, and stops the run.

    If the observer sees the last iterate only, it collects and shows nothing, and stops no run.

    Parameters
    ----------
    plan : Terms
        Plan of the run.
    reporter : Reporter
        Output of the run.
    tolerance : float, optional
        Both residuals below this value count as convergence.
    iterates : bool
        Whether to store every round's iterates and residuals.
    closed_after : int, optional
        Last round of the run if the coordinator has closed it early.
    """

    def __init__(
        self,
        plan: Terms,
        reporter: Reporter,
        *,
        tolerance: float | None = None,
        iterates: bool = False,
        closed_after: int | None = None,
    ) -> None:
        self.history = History(None) if iterates else History()
        self.path: list[list[Answer]] = []
        # Whether agents may have released values: true from the first message round on.
        self.begun = False
        self._plan, self._reporter = plan, reporter
        self._counts_rounds = not plan.secret_draws
        self._tolerance, self._iterates = tolerance, iterates
        self._closed_after, self._closed = closed_after, False
        # Number of rounds that learn the scale: their small movement is no convergence.
        self._learning = len(plan.algorithm.requirements.first)
        self._last: Round | None = None
        self._growth = Growth()
        self._largest = Largest()
        self._diverged = self._converged = False
        self._outcomes: set[Outcome] = set()

    def start(self) -> None:
        """Start the run's display (table or progress line) before the first round."""
        self.begun = True
        self._reporter.start(residuals=not self._plan.hidden)

    def stop(self) -> None:
        """Stop the run's display after the last round, also on errors."""
        self._reporter.stop()

    def ends(self, t: int, replies: Sequence[Reply], server: Any, agents: Agents) -> bool:
        """Process a round's replies and the server's state; return whether the run ends."""
        self._diverged |= any(reply.diverged for reply in replies)
        self._outcomes = {reply.outcome for reply in replies}
        if self._plan.hidden:
            if self._counts_rounds:
                self._reporter.passed(t)
            return False
        algorithm = self._plan.algorithm
        residuals = algorithm.residuals(server)
        if type(residuals) is not Residuals:
            due = "Return Residuals(primal, dual, mismatch, penalty)."
            raise breach(algorithm, "residuals", residuals, due)
        self._last = self.history.append(residuals, [reply.outcome for reply in replies])
        if self._counts_rounds:  # else the durations of rounds could reveal the drawn users
            self._reporter.round(self._last)
        if self._iterates:
            self.path.append(algorithm.conclude(server) or agents.map("answer"))
        self._growth = of_residuals(self._growth, t, residuals)
        self._diverged |= self._growth.diverged
        self._largest = self._largest.after(residuals)
        if not self._diverged and self._tolerance is not None and t > self._learning:
            self._converged = _below(residuals, self._tolerance)
        self._closed = t == self._closed_after
        return self._diverged or self._converged or self._closed

    def conclude(self, server: Any) -> list[Answer] | None:
        """Return the agents' final iterates if the server computes them, else None."""
        algorithm = self._plan.algorithm
        if self._plan.hidden and isinstance(algorithm, HiddenIterates):
            return algorithm.conclude_hidden(server)
        return algorithm.conclude(server)

    def status(self, whole: bool, finite: bool, size: float, points: Sequence[Array]) -> Status:
        """Return the status of the run.

        Parameters
        ----------
        whole : bool
            Whether the ledger covered all planned rounds.
        finite : bool
            Whether all values of the result are finite.
        size : float
            Largest magnitude of these values.
        points : sequence of ndarray
            Points of the agents: the initial one, and the points after each part of the rounds.
        """
        if self._diverged or not finite:
            return Status.DIVERGED
        for outcome, status in _VERDICTS.items():
            if outcome in self._outcomes:
                return status
        if self._last is not None and self._last.failed > 0:
            program = self._plan.program
            # These constraints hold for solutions, and not for the initial point.
            promised = program.kept or program.corners
            return Status.UNSOLVED if promised else Status.STALLED
        if self._converged:
            return Status.CONVERGED
        if self._closed and self._last is not None and self._last.t < self._plan.rounds:
            return Status.CLOSED
        if not whole:
            return Status.BUDGET
        return Status.COMPLETED if self._settled(size, points) else Status.UNSETTLED

    def _settled(self, size: float, points: Sequence[Array]) -> bool:
        """Return whether the run converged, from its residuals and the public noise level."""
        plan, last = self._plan, self._last
        if last is None:
            return True
        floor: float | None = 0.0
        if plan.noisy and not plan.published:
            # The noise level depends on the point, whose distance from the initial point is bounded
            # by this.
            far = size * math.sqrt(max(agent.program.n for agent in plan.agents))
            levels = conditions(
                plan.program, plan.agents, plan.rounds, noisy_steps=True, distance=far
            )
            noise = levels.noise
            penalty = last.residuals.penalty
            floor = plan.algorithm.noise_floor(plan.program, noise, last.t, penalty)
        moved = None if floor is None else floor * math.sqrt(last.t / 2)
        quiet = floor is None or self._largest.settled(last.residuals, floor, size)
        return quiet and arrives(points, moved, size)


def _below(residuals: Residuals, tolerance: float) -> bool:
    # Not max(): the dual residual of round 1 is nan, which compares as False.
    return residuals.primal < tolerance and residuals.dual < tolerance


def check_shown(plan: Terms, *, tolerance: float | None, record: bool, iterates: bool) -> None:
    """Refuse arguments of a run that would reveal more than the plan's observer may see."""
    asked = {"tolerance=": tolerance is not None, "record=True": record, "iterates=True": iterates}
    for argument, given in asked.items():
        if plan.hidden and given:
            raise PrivacyError(
                f"plan.run({argument}) would show more than the last iterate. Leave it out, or "
                "plan with observer='everyone'. The guarantee of this plan covers the last "
                "iterate only."
            )
        if plan.secret_draws and given and argument != "iterates=True":
            raise PrivacyError(
                f"plan.run({argument}) is not covered by a guarantee that rests on secret "
                "draws. A transcript shows which user was drawn in each round, and the loss is "
                "stated for all rounds. Leave it out."
            )


def check_replayable(plan: Terms) -> None:
    """Refuse a replay of a plan whose runs record no releases."""
    if plan.secret_draws:
        raise PrivacyError(
            "A run with secret draws keeps no transcript to replay. Keep its result. A transcript "
            "would show which user was drawn in each round."
        )
    if plan.hidden:
        raise PrivacyError(
            "A run that releases only the last iterate keeps no transcript to replay. Keep its "
            "result."
        )
