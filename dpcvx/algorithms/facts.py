"""Public facts about a run before it starts, the basis of proposed parameters."""

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
    """Length of a run, and noise of its releases.

    Attributes
    ----------
    rounds : int
    noise : tuple of float
        Standard deviation of the noise in one entry of a gradient that is released in the first
        round, by agent; 0 where steps are not noisy, or where their noise follows from the steps.
    slope : tuple of float
        Approximate l2 distance that all data of an agent move a gradient, from public facts, by
        agent: half of what records can move it, or thirty changes of every entry; 0 where no change
        is derived.
    release_epsilon : float
        Budget per release that the papers' rules refer to; infinite without noise.
    split : SplitNoise or None
        Distributed noise, if all agents add a part of it to all entries of a sum.
    whole : tuple of float
        The slopes that records would have if they were not clipped; empty where none are.
    """

    rounds: int
    noise: tuple[float, ...]
    slope: tuple[float, ...]
    release_epsilon: float = math.inf
    split: SplitNoise | None = None
    whole: tuple[float, ...] = ()


class StepRule(Protocol):
    """eta_t and the weights of the averaged iterate."""

    @property
    def averages_new(self) -> bool:
        """Average the iterates after the local updates (else before them)."""
        ...

    def resolved(self, program: Program, release_epsilon: float) -> Self:
        """Return the rule with its constants filled in."""
        ...

    def eta(self, t: int) -> float:
        """Step size of round t (from 1)."""
        ...

    def weight(self, t: int) -> float:
        """Return the weight of round t in the average, up to a common factor."""
        ...


class PublicFacts(Protocol):
    """Public facts that `Algorithm.propose` chooses numbers by; `dpcvx.defaults` computes them."""

    @property
    def program(self) -> Program:
        """The problem as plain arrays."""
        ...

    @property
    def conditions(self) -> Conditions:
        """Rounds and noise of the run."""
        ...

    @property
    def limit(self) -> float:
        """Step size above which quadratic terms diverge, if the others have no smoothness."""
        ...

    @property
    def scale(self) -> float:
        """A typical curvature, or the largest slope over the distance; 0 if nothing is known."""
        ...

    @property
    def noisy(self) -> bool:
        """Return whether gradients are noisy."""
        ...

    @property
    def penalty(self) -> float:
        """Return the penalty of exact steps on the consensus residual."""
        ...

    def step(
        self, *, pull: float = 1.0, updates: int = 1, exact: bool = True, falls: bool = False
    ) -> tuple[StepRule, Output | None]:
        """Return the step sizes of a gradient method, and the iterate to return.

        Parameters
        ----------
        pull : float
            Share of a step that reaches variables which agents share.
        updates : int
            Steps per round.
        exact : bool
            Whether a constant step leads to the optimum without noise.
        falls : bool
            Whether noisy steps may fall: no penalty goes with their length.

        Raises
        ------
        ModelError
            If steps are noisy and nothing tells their scale.
        """
        ...

    def constant_step(self, largest: float, output: Output | None) -> tuple[float, Output | None]:
        """Return a constant step size up to `largest`, and the iterate to return."""
        ...

    def longest(self) -> float | None:
        """Return the largest step size to try; None where nothing is known of it."""
        ...

    def require_scale(self) -> None:
        """Refuse noisy steps if nothing public tells their length.

        Raises
        ------
        ModelError
        """
        ...

    def regularization(self) -> float:
        """Return the weight of the quadratic that objective perturbation adds."""
        ...

    def in_turn(self, agents: Sequence[int]) -> PublicFacts:
        """Return the facts about the sum of these agents' objectives; one agent steps at a time."""
        ...
