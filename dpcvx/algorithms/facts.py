"""Public facts about a planned run; methods propose their parameters from them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, Self

from ..privacy.split_noise import SplitNoise
from .program import Program

Output = Literal["average", "last", "tail", "weighted"]


@dataclass(frozen=True)
class Conditions:
    """Number of rounds of a run, and size of the noise in its releases.

    Attributes
    ----------
    rounds : int
    noise : tuple of float
        Standard deviation of the noise in one entry of a gradient released in round 1, by agent; 0
        if steps are not noisy, or if their noise depends on the step sizes.
    slope : tuple of float
        Approximate l2 norm of the effect of all data of an agent on a gradient, by agent, from
        public facts. It is half of the largest effect of all records, or the effect of thirty
        changes of every entry; 0 if no effect of a change is derived.
    release_epsilon : float
        Epsilon per release, on which the papers' step rules depend; infinite without noise.
    split : SplitNoise or None
        Distributed noise, if every agent adds a part of the noise to all entries of a sum.
    whole : tuple of float
        Values that `slope` would have without clipping; empty if no agent clips.
    """

    rounds: int
    noise: tuple[float, ...]
    slope: tuple[float, ...]
    release_epsilon: float = math.inf
    split: SplitNoise | None = None
    whole: tuple[float, ...] = ()


class StepRule(Protocol):
    """Protocol of a step-size rule: step size eta_t of round t, and weights of the average."""

    @property
    def averages_new(self) -> bool:
        """True if the average is over iterates after local updates, False if before them."""
        ...

    def resolved(self, program: Program, release_epsilon: float) -> Self:
        """Return the step-size rule with a number for every omitted constant."""
        ...

    def eta(self, t: int) -> float:
        """Return the step size eta_t of round t (from 1)."""
        ...

    def weight(self, t: int) -> float:
        """Return the weight of round t in the average, up to a common factor."""
        ...


class PublicFacts(Protocol):
    """Protocol of public facts about a run; `Algorithm.propose` computes settings from them."""

    @property
    def program(self) -> Program:
        """The problem's objectives and constraints as plain arrays."""
        ...

    @property
    def conditions(self) -> Conditions:
        """Number of rounds, noise of the releases, and effect of the data on gradients."""
        ...

    @property
    def limit(self) -> float:
        """Largest step size for the smooth terms of nonsmooth objectives; infinite without any.

        For smooth objectives, `longest` and `step` return step sizes.
        """
        ...

    @property
    def scale(self) -> float:
        """Typical curvature; if unknown, largest gradient over distance to the optimum, or 0."""
        ...

    @property
    def noisy(self) -> bool:
        """Return whether released gradients have noise."""
        ...

    @property
    def penalty(self) -> float:
        """Return the penalty rho on the consensus residual, for exact local steps."""
        ...

    def step(
        self, *, pull: float = 1.0, updates: int = 1, exact: bool = True, falls: bool = False
    ) -> tuple[StepRule, Output | None]:
        """Return the step sizes of a gradient method, and the iterate to return.

        Parameters
        ----------
        pull : float
            Share of a step that changes the shared variables.
        updates : int
            Number of steps per round.
        exact : bool
            Whether constant steps without noise converge to the optimum.
        falls : bool
            Whether noisy step sizes may decrease, because no penalty depends on them.

        Raises
        ------
        ModelError
            If steps are noisy and no public fact determines their length.
        """
        ...

    def constant_step(self, largest: float, output: Output | None) -> tuple[float, Output | None]:
        """Return a constant step size, at most `largest`, and the iterate that a run returns."""
        ...

    def longest(self) -> float | None:
        """Return the largest step size to try; None if no public fact limits it."""
        ...

    def require_scale(self) -> None:
        """Refuse noisy steps if no public fact determines their length.

        Raises
        ------
        ModelError
        """
        ...

    def regularization(self) -> float:
        """Return the weight of the quadratic that objective perturbation adds."""
        ...

    def in_turn(self, agents: Sequence[int]) -> PublicFacts:
        """Return the facts for a method that updates only these agents, one at a time."""
        ...
