"""Public facts about one run: its noise, and the effect of the data on gradients.

`Algorithm.propose` chooses parameters from these facts; only `dpcvx.defaults` calls `propose`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ..algorithms.facts import Conditions, Output, StepRule
from ..algorithms.program import Program, once_per_kind
from ..errors import PrivacyError
from ..model.adjacency import Rows
from ..model.curvature import smoothness
from ..model.quadratic import is_quadratic_given_data
from ..plan.agent_plan import AgentPlan, Agents
from ..sensitivity.certificate import Sensitivity
from .landscape import Landscape, landscape, summed
from .predicted import (
    chosen_penalty,
    chosen_step,
    constant_step,
    longest,
    regularization,
    require_scale,
)

Array = NDArray[np.float64]
# Typical size of an entry of private data, in units of its largest change.
_CHANGES = 30.0
# Typical slope of records' losses on the way to the optimum, relative to the initial slope.
_STEEPER = 2.0


def conditions(
    program: Program,
    agents: Agents,
    rounds: int,
    *,
    noisy_steps: bool,
    distance: float | None = None,
    releases: int = 0,
) -> Conditions:
    """Return the number of rounds and the noise of a run; see `Conditions`.

    Parameters
    ----------
    program : Program
    agents : tuple of AgentPlan
    rounds : int
    noisy_steps : bool
        Whether steps have noise; else the conditions have none.
    distance : float, optional
        Approximate distance from the initial point to the optimum, if known.
    releases : int
        Number of releases of an agent, if known; a single one is at the initial point.
    """
    noises = [agent.noise for agent in agents if agent.noise is not None and noisy_steps]
    quiet = Conditions(
        rounds,
        (0.0,) * len(agents),
        tuple(once_per_kind(agents, lambda agent: _slope(agent, agent.sensitivity))),
        min((noise.release_epsilon for noise in noises), default=math.inf),
        next((noise.split for noise in noises), None),
        _whole(agents),
    )
    if not noises:
        return quiet
    # The noise may depend on the point; its size near the optimum matters, except in one release.
    if releases == 1:
        at_start = tuple(once_per_kind(agents, lambda a: _spread(a, 0.0)))
        if any(at_start):
            return replace(quiet, noise=at_start)
    if distance is None:
        derived = [agent.sensitivity for agent in agents if agent.sensitivity is not None]
        flattens = any(sensitivity.flattens for sensitivity in derived)
        distance = landscape(program, quiet).distance if flattens else math.inf
    return replace(quiet, noise=tuple(once_per_kind(agents, lambda a: _spread(a, distance))))


def _change(sensitivity: Sensitivity | None, p: int, start: Array, distance: float) -> float:
    """Return the l_p sensitivity of gradients within a distance of the initial point.

    It is 0 if no finite sensitivity is known.
    """
    if sensitivity is None:
        return 0.0
    if sensitivity.flattens:
        change = sensitivity.within(p, float(np.linalg.norm(start)) + distance)
    else:
        change = sensitivity.near(p, start)
    return change if math.isfinite(change) else 0.0


def _whole(agents: Agents) -> tuple[float, ...]:
    """Return `Conditions.whole`: the data's effects on gradients without clipped squares."""
    if not any(_square(agent) for agent in agents):
        return ()

    def whole(agent: AgentPlan) -> float:
        sensitivity = _square(agent)
        return _slope(agent, replace(sensitivity, clips=()) if sensitivity else agent.sensitivity)

    return tuple(once_per_kind(agents, whole))


def _square(agent: AgentPlan) -> Sensitivity | None:
    """Return the sensitivity of an agent with clipped squared losses; None for other agents."""
    sensitivity = agent.sensitivity
    clipped = sensitivity is not None and bool(sensitivity.clips)
    return sensitivity if clipped and is_quadratic_given_data(agent.program.form) else None


def _slope(agent: AgentPlan, sensitivity: Sensitivity | None) -> float:
    """Return the approximate norm of the effect that all data of an agent have on a gradient."""
    start = agent.program.start
    if (
        sensitivity is None
        and agent.program.form.private
        and smoothness(agent.program.form) is None
    ):
        # Without noise, no sensitivity was derived, but step sizes for nonsmooth losses need it.
        try:
            sensitivity = agent.program.sensitivity()
        except PrivacyError:
            return 0.0
    squares: dict[str, float] = {}
    for spec in agent.program.form.private:
        if isinstance(spec.adjacency, Rows):
            squares[spec.adjacency.label] = (spec.shape[0] / 2) ** 2
        else:
            entries = spec.size if spec.adjacency.norm in ("entry", "inf") else 1
            squares[spec.name] = _CHANGES**2 * entries
    change = _change(sensitivity, 2, start, 0.0)
    if (
        sensitivity is not None
        and sensitivity.flattens
        and not is_quadratic_given_data(agent.program.form)
    ):
        # Slopes may grow on the way to the optimum, except for squares.
        change = min(_STEEPER * change, sensitivity.bound(2).value)
    return change * math.sqrt(sum(squares.values()))


def _spread(agent: AgentPlan, distance: float) -> float:
    """Return the standard deviation of an agent's noise in a gradient entry, in round 1.

    The gradient is at a point within `distance` of the initial point.
    """
    if agent.noise is None:
        return 0.0
    norm, start = agent.noise.mechanism.norm, agent.program.start
    return math.sqrt(agent.noise.variance(_change(agent.sensitivity, norm, start, distance)))


@dataclass(frozen=True, eq=False)
class RunFacts:
    """Public facts about a run, for methods that choose settings; implements `PublicFacts`."""

    program: Program
    conditions: Conditions
    turns: tuple[int, ...] = ()  # positions of agents that make steps in turn; () if all at once
    agents: Agents = ()

    @cached_property
    def scene(self) -> Landscape:
        """Curvatures, slopes and distances of all agents, or of agents that make steps in turn."""
        if not self.turns:
            return landscape(self.program, self.conditions)
        held = replace(self.program, agents=tuple(self.program.agents[k] for k in self.turns))
        told = replace(
            self.conditions,
            noise=tuple(self.conditions.noise[k] for k in self.turns),
            slope=tuple(self.conditions.slope[k] for k in self.turns),
        )
        return summed(landscape(held, told), len(self.turns))

    @property
    def limit(self) -> float:
        """Largest step size for convergence on the smooth terms; see `Landscape.limit`."""
        return self.scene.limit

    @property
    def scale(self) -> float:
        """Typical curvature of the objectives; see `Landscape.scale`."""
        return self.scene.scale

    @property
    def noisy(self) -> bool:
        """Return whether gradients have noise; see `Landscape.noisy`."""
        return self.scene.noisy

    @property
    def penalty(self) -> float:
        """Return the penalty rho of exact local steps; see `chosen_penalty`."""
        return chosen_penalty(self.scene)

    def step(
        self, *, pull: float = 1.0, updates: int = 1, exact: bool = True, falls: bool = False
    ) -> tuple[StepRule, Output | None]:
        """Return the step-size rule of `chosen_step`, and the iterate to return."""
        chosen = chosen_step(
            self.program, self.conditions, pull=pull, updates=updates, exact=exact, falls=falls
        )
        return chosen.rule, chosen.output

    def constant_step(self, largest: float, output: Output | None) -> tuple[float, Output | None]:
        """Return a constant step size up to `largest`, and the iterate to return."""
        return constant_step(self.scene, self.conditions.rounds, largest, output)

    def longest(self) -> float | None:
        """Return the largest step size to try; see `dpcvx.defaults.predicted.longest`."""
        return longest(self.scene, self.conditions.rounds)

    def require_scale(self) -> None:
        """Refuse noisy steps if no public fact determines their length."""
        require_scale(self.program, self.scene)

    def regularization(self) -> float:
        """Return the weight of the quadratic that objective perturbation adds."""
        epsilon = self.conditions.release_epsilon
        if math.isinf(epsilon):  # without noise, no quadratic is needed
            return 0.0
        return regularization(self.agents, epsilon, self.scene.distance)

    def in_turn(self, agents: Sequence[int]) -> RunFacts:
        """Return the facts for steps that these agents make in turn, for their summed objective."""
        return replace(self, turns=tuple(agents))
