"""The public facts that methods propose numbers by: noise, and how far data move gradients.

The public facts of one run, for `Algorithm.propose`; `dpcvx.defaults` alone calls that.
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
from .perturbation import regularization
from .predicted import chosen_penalty, chosen_step, constant_step, longest, require_scale

Array = NDArray[np.float64]
# How many times as large as one change in it an entry of private data is taken to be.
_CHANGES = 30.0
# How many times as steep as at the start losses of records are on the way to the answer.
_STEEPER = 2.0


def conditions(
    program: Program,
    agents: Agents,
    rounds: int,
    *,
    noisy_steps: bool,
    distance: float | None = None,
) -> Conditions:
    """Return the conditions that methods choose numbers by; without noise if steps have none.

    Parameters
    ----------
    program : Program
    agents : tuple of AgentPlan
    rounds : int
    noisy_steps : bool
    distance : float, optional
        Approximate distance from the start to the optimum, if known.
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
    # Noise follows the point, and what counts is that near the answer.
    if distance is None:
        derived = [agent.sensitivity for agent in agents if agent.sensitivity is not None]
        flattens = any(sensitivity.flattens for sensitivity in derived)
        distance = landscape(program, quiet).distance if flattens else math.inf
    return replace(quiet, noise=tuple(once_per_kind(agents, lambda a: _spread(a, distance))))


def _change(sensitivity: Sensitivity | None, p: int, start: Array, distance: float) -> float:
    """Return the sensitivity of a gradient so near the start; 0 if it is not known."""
    if sensitivity is None:
        return 0.0
    if sensitivity.flattens:
        change = sensitivity.within(p, float(np.linalg.norm(start)) + distance)
    else:
        change = sensitivity.near(p, start)
    return change if math.isfinite(change) else 0.0


def _whole(agents: Agents) -> tuple[float, ...]:
    """Return the slopes of agents, as if none were clipped whose losses are squares."""
    if not any(_square(agent) for agent in agents):
        return ()

    def whole(agent: AgentPlan) -> float:
        sensitivity = _square(agent)
        return _slope(agent, replace(sensitivity, clips=()) if sensitivity else agent.sensitivity)

    return tuple(once_per_kind(agents, whole))


def _square(agent: AgentPlan) -> Sensitivity | None:
    """Return the sensitivity of an agent with clipped squares as losses; None for others."""
    sensitivity = agent.sensitivity
    clipped = sensitivity is not None and bool(sensitivity.clips)
    return sensitivity if clipped and is_quadratic_given_data(agent.program.form) else None


def _slope(agent: AgentPlan, sensitivity: Sensitivity | None) -> float:
    """Return about how far all data of an agent move a gradient; see `Conditions`."""
    start = agent.program.start
    if (
        sensitivity is None
        and agent.program.form.private
        and smoothness(agent.program.form) is None
    ):
        # Without noise nothing had to be derived, but where slopes jump, steps follow from them.
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
        # On the way it is steeper; squares fall towards their answers.
        change = min(_STEEPER * change, sensitivity.bound(2).value)
    return change * math.sqrt(sum(squares.values()))


def _spread(agent: AgentPlan, distance: float) -> float:
    """Return the standard deviation of noise in a gradient's entry near the start, in round 1."""
    if agent.noise is None:
        return 0.0
    norm, start = agent.noise.mechanism.norm, agent.program.start
    return math.sqrt(agent.noise.variance(_change(agent.sensitivity, norm, start, distance)))


@dataclass(frozen=True, eq=False)
class RunFacts:
    """A `dpcvx.algorithms.facts.PublicFacts`."""

    program: Program
    conditions: Conditions
    turns: tuple[int, ...] = ()  # positions of agents of whom one steps at once; empty for all
    agents: Agents = ()

    @cached_property
    def scene(self) -> Landscape:
        """The landscape of all agents, or of the sum of those that take turns."""
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
        """See `Landscape.limit`."""
        return self.scene.limit

    @property
    def scale(self) -> float:
        """See `Landscape.scale`."""
        return self.scene.scale

    @property
    def noisy(self) -> bool:
        """See `Landscape.noisy`."""
        return self.scene.noisy

    @property
    def penalty(self) -> float:
        """See `chosen_penalty`."""
        return chosen_penalty(self.scene)

    def step(
        self, *, pull: float = 1.0, updates: int = 1, exact: bool = True, falls: bool = False
    ) -> tuple[StepRule, Output | None]:
        """Return the rule of `chosen_step`, and the iterate to return."""
        chosen = chosen_step(
            self.program, self.conditions, pull=pull, updates=updates, exact=exact, falls=falls
        )
        return chosen.rule, chosen.output

    def constant_step(self, largest: float, output: Output | None) -> tuple[float, Output | None]:
        """See `dpcvx.defaults.predicted.constant_step`."""
        return constant_step(self.scene, self.conditions.rounds, largest, output)

    def longest(self) -> float | None:
        """See `dpcvx.defaults.predicted.longest`."""
        return longest(self.scene, self.conditions.rounds)

    def require_scale(self) -> None:
        """See `dpcvx.defaults.predicted.require_scale`."""
        require_scale(self.program, self.scene)

    def regularization(self) -> float:
        """See `dpcvx.defaults.perturbation.regularization`."""
        epsilon = self.conditions.release_epsilon
        if math.isinf(epsilon):  # without noise, nothing has to hide what a record bends
            return 0.0
        return regularization(self.agents, epsilon, self.scene.distance)

    def in_turn(self, agents: Sequence[int]) -> RunFacts:
        """Return the facts about the sum of these agents' objectives."""
        return replace(self, turns=tuple(agents))
