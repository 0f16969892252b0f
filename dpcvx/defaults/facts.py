"""The public facts of one run, for `Algorithm.propose`; `dpcvx.defaults` alone calls that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from ..algorithms.facts import Conditions, Output, StepRule
from ..algorithms.program import Program
from .landscape import Landscape, landscape, summed
from .predicted import chosen_penalty, chosen_step, constant_step, longest, require_scale


@dataclass(frozen=True, eq=False)
class RunFacts:
    """A `dpcvx.algorithms.facts.PublicFacts`."""

    program: Program
    conditions: Conditions
    turns: tuple[int, ...] = ()  # positions of agents of whom one steps at once; empty for all

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
        found = chosen_step(
            self.program, self.conditions, pull=pull, updates=updates, exact=exact, falls=falls
        )
        return found.rule, found.output

    def constant_step(self, largest: float, output: Output | None) -> tuple[float, Output | None]:
        """See `dpcvx.defaults.predicted.constant_step`."""
        return constant_step(self.scene, self.conditions.rounds, largest, output)

    def longest(self) -> float | None:
        """See `dpcvx.defaults.predicted.longest`."""
        return longest(self.scene, self.conditions.rounds)

    def require_scale(self) -> None:
        """See `dpcvx.defaults.predicted.require_scale`."""
        require_scale(self.program, self.scene)

    def in_turn(self, agents: Sequence[int]) -> RunFacts:
        """Return the facts about the sum of these agents' objectives."""
        return replace(self, turns=tuple(agents))
