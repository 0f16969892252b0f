"""What a plan is asked for, and what it chose where that was left to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from ..algorithms.base import Algorithm
from ..model.agent import Agent
from ..model.expected import Expectations, Expected
from ..model.private import Private
from ..privacy.mechanism import Mechanism
from .agent_terms import Agents

Asked = Mechanism | str | None
# For all agents alike, or by agent or its name.
Mechanisms = Asked | Mapping[Agent | str, Asked]
Release = Literal["each step", "once"]
Observer = Literal["everyone", "last iterate"]
AUTO = "auto"
KINDS = ("gaussian", "laplace")


@dataclass(frozen=True)
class Choice:
    """One argument that was left to the plan.

    Attributes
    ----------
    what : str
        The argument.
    why : str
        What was chosen, and the reason, in one sentence.
    """

    what: str
    why: str


@dataclass(frozen=True, kw_only=True)
class Request:
    """What `Problem.plan` is asked for; None, and "auto" for the mechanism, is left to the plan.

    Attributes
    ----------
    algorithm : Algorithm or None
    mechanism : Gaussian, Laplace, "auto", "gaussian", "laplace", None, or mapping of agent to one
        None for no noise.
    rounds : int or None
    epsilon : float or mapping of agent or its name to float, or None
    delta : float or None
    release : {"each step", "once", None}
    observer : {"everyone", "last iterate"}
    violation, slack_price : float or None
        With which probability constraints with private data may be broken, and what a unit costs.
    expected : mapping of Private or its name to Expected, or None
        As given.
    expectations : mapping of str to tuple of (Expectation or None)
        The same by agent, of its private objects.
    choices : tuple of Choice
        What was chosen so far.
    forecast : str
        What is predicted of noisy steps.
    quiet : tuple of AgentTerms
        With their noise and what they release once, if these were chosen together.
    """

    algorithm: Algorithm[Any, Any] | None = None
    mechanism: Mechanisms = AUTO
    rounds: int | None = None
    epsilon: float | Mapping[Any, float] | None = None
    delta: float | None = None
    release: Release | None = None
    observer: Observer = "everyone"
    violation: float | None = None
    slack_price: float | None = None
    expected: Mapping[Private | str, Expected] | None = None
    expectations: Expectations = field(default_factory=dict)
    choices: tuple[Choice, ...] = ()
    forecast: str = ""
    quiet: Agents = ()

    @property
    def chooses_noise(self) -> bool:
        """Whether the kind of noise is left to the plan."""
        return isinstance(self.mechanism, str) and self.mechanism == AUTO

    @property
    def mechanisms(self) -> tuple[Mechanisms, ...]:
        """Those to choose from; at delta 0 there is one."""
        if not self.chooses_noise:
            return (self.mechanism,)
        return KINDS if self.delta else ("laplace",)

    def chosen(self, what: str, why: str) -> Request:
        """With one more choice."""
        return replace(self, choices=(*self.choices, Choice(what, why)))
