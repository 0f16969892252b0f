"""What a plan is asked for: by a user, who may leave choices open, and with nothing open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ..algorithms.base import Algorithm
from ..algorithms.learned_scale import LearnScale
from ..algorithms.program import AsWritten
from ..algorithms.toward_start import SlopeNoise
from ..model.agent import Agent
from ..model.prior import Expectations, Prior
from ..model.private import Private
from ..privacy.mechanism import Mechanism
from ..sensitivity.estimates import Estimate
from ..sensitivity.release_once import Once

Asked = Mechanism | str | None
# For all agents alike, or by agent or its name.
Mechanisms = Asked | Mapping[Agent | str, Asked]
Release = Literal["each_step", "once"]
Observer = Literal["everyone", "last_iterate"]
Constraints = Literal["true", "released"]
# Learned before the first step, or by declared bounds.
Scaling = LearnScale | Literal["declared"]
AUTO = "auto"
KINDS = ("gaussian", "laplace")
Estimates = tuple[tuple[slice, Estimate], ...]


@dataclass(frozen=True)
class Declared:
    """Noise and budget that a request names for one agent; its names enter fingerprints."""

    mechanism: Mechanism
    # In total; if the mechanism has a level of its own, what the ledger may hold in the end, and
    # None for no more than the plan's price.
    epsilon: float | None


# By agent; None for all without noise.
Noises = Mapping[str, Declared | None]


@dataclass(frozen=True)
class Choice:
    """One argument that was left to the plan."""

    what: str  # the argument
    why: str  # what was chosen, and the reason, in one sentence


@dataclass(frozen=True, kw_only=True)
class Request:
    """Arguments of `Problem.plan`; None, and "auto" for the mechanism, is left to the defaults."""

    algorithm: Algorithm[Any, Any] | None = None
    mechanism: Mechanisms = AUTO  # None for no noise
    rounds: int | None = None
    epsilon: float | Mapping[Any, float] | None = None  # of all agents, or by agent or its name
    delta: float | None = None
    release: Release | None = None
    observer: Observer = "everyone"
    violation_probability: float | None = (
        None  # probability that constraints with private data are broken
    )
    slack_penalty: float | None = None  # what a unit of that costs
    constraints: Constraints = "true"  # for which data constraints with private data hold
    scale: Scaling | None = None  # of records
    prior: Mapping[Private | str, Prior] | None = None  # as given
    expectations: Expectations = field(default_factory=dict)  # by agent, of its private objects

    @property
    def as_written(self) -> AsWritten | None:
        """How the method solves the model as it is written; None if it does not."""
        if self.algorithm is None or not self.algorithm.requirements.as_written:
            return None
        return AsWritten(self.violation_probability is not None, self.slack_penalty)

    @property
    def chooses_noise(self) -> bool:
        """Whether the kind of noise is left to the defaults."""
        return isinstance(self.mechanism, str) and self.mechanism == AUTO

    @property
    def mechanisms(self) -> tuple[Mechanisms, ...]:
        """Those to choose from; at delta 0 there is one."""
        if not self.chooses_noise:
            return (self.mechanism,)
        return KINDS if self.delta else ("laplace",)


@dataclass(frozen=True, kw_only=True, eq=False)
class CompleteRequest(Request):
    """A request with nothing open: numbers and choices, whoever proposed them.

    A plan derives every sensitivity, computes what the noise costs, and refuses a request that
    exceeds its budget. It never asks why a number was proposed. Sequences are in the order of the
    agents. The algorithm has all its numbers.
    """

    # Required here; the base class would lend its defaults.
    algorithm: Algorithm[Any, Any] = field()  # pyright: ignore[reportGeneralTypeIssues]
    rounds: int = field()  # pyright: ignore[reportGeneralTypeIssues]
    release: Release = field()  # pyright: ignore[reportGeneralTypeIssues]
    given: Algorithm[Any, Any]  # as it was named: fingerprints name what others follow from
    clips: Sequence[float | None]  # norms that contributions of records are clipped to
    multipliers: Sequence[float | None]  # of the noise in the first round; None without noise
    once: Sequence[Once | None] = ()  # statistics that are released once
    estimates: Sequence[Estimates] = ()  # of their components: post-processing
    shares: Sequence[Sequence[float]] | None = (
        None  # of violation_probability=, by part of each constraint
    )
    slope_noise: SlopeNoise | None = None  # for solutions that stay near the start
