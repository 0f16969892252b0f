"""Requests for plans: the arguments of `Problem.plan`, incomplete or complete.

This module also determines the requested noise and budget of every agent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar, cast

from .._arguments import pairs, show
from ..algorithms.base import Algorithm
from ..algorithms.learned_scale import LearnScale
from ..algorithms.program import AsWritten
from ..algorithms.weighted_sums import SlopeNoise
from ..errors import ModelError, PrivacyError
from ..model.agent import Agent
from ..model.declaration import Declaration
from ..model.prior import Expectations, Prior
from ..model.private import Private
from ..privacy.accounting import check_epsilon
from ..privacy.contraction import Certificate
from ..privacy.mechanism import Gaussian, Laplace, Mechanism, Staircase
from ..sensitivity.estimates import Estimate
from ..sensitivity.release_once import Once

Asked = Mechanism | str | None
# One mechanism for all agents, or one for each agent (key: agent or name).
Mechanisms = Asked | Mapping[Agent | str, Asked]
Release = Literal["each_step", "once"]
Observer = Literal["everyone", "last_iterate", "iterates"]
Constraints = Literal["true", "released"]
# Scale of records: learned before the first step, or from declared bounds.
Scaling = LearnScale | Literal["declared"]
AUTO = "auto"
KINDS = ("gaussian", "laplace")
Estimates = tuple[tuple[slice, Estimate], ...]


@dataclass(frozen=True)
class Declared:
    """Requested mechanism and budget of one agent; field names enter fingerprints."""

    mechanism: Mechanism
    # Total epsilon. If the mechanism has a noise level of its own: the epsilon that the ledger may
    # reach, or None for the plan's price.
    epsilon: float | None


# By agent; None for every agent without noise.
Noises = Mapping[str, Declared | None]


@dataclass(frozen=True)
class Choice:
    """An argument that the plan chose, with the reason."""

    what: str  # name of the argument
    why: str  # the chosen value and the reason, in one sentence


@dataclass(frozen=True, kw_only=True)
class Request:
    """Arguments of `Problem.plan`; None (or "auto" for the mechanism) means the default."""

    algorithm: Algorithm[Any, Any] | None = None
    mechanism: Mechanisms = AUTO  # None: no noise
    rounds: int | None = None
    epsilon: float | Mapping[Any, float] | None = None  # for all agents, or by agent or name
    delta: float | None = None
    release: Release | None = None
    observer: Observer = "everyone"
    violation_probability: float | None = (
        None  # probability that constraints with private data are broken
    )
    slack_penalty: float | None = None  # penalty per unit of violation
    constraints: Constraints = "true"  # data for which constraints hold
    # Whether noise in data of constraints is truncated: the choice of margins sets it, and
    # violation_probability=0 requires it.
    limited: bool = False
    scale: Scaling | None = None  # scale of records
    prior: Mapping[Private | str, Prior] | None = None  # as the user passed it
    expectations: Expectations = field(default_factory=dict)  # by agent: priors of private objects

    @property
    def as_written(self) -> AsWritten | None:
        """Settings of a server that solves the model as written; None for other methods."""
        if self.algorithm is None or not self.algorithm.requirements.as_written:
            return None
        rules = self.algorithm.requirements.rules
        return AsWritten(self.violation_probability is not None, self.slack_penalty, rules)

    @property
    def truncates(self) -> bool:
        """Return whether noise in data of constraints is truncated."""
        return self.limited or self.violation_probability == 0

    @property
    def chooses_noise(self) -> bool:
        """Return whether the plan chooses the kind of noise."""
        return isinstance(self.mechanism, str) and self.mechanism == AUTO

    @property
    def mechanisms(self) -> tuple[Mechanisms, ...]:
        """Candidate mechanisms: the requested one, or both kinds (only Laplace if delta = 0)."""
        if not self.chooses_noise:
            return (self.mechanism,)
        return KINDS if self.delta else ("laplace",)


@dataclass(frozen=True, eq=False)
class AgentRequest:
    """Part of a complete request for one agent; a remote owner receives the same record."""

    multiplier: float | None  # noise multiplier of the first round; None without noise
    once: Once | None = None  # statistic that is released once
    estimates: Estimates = ()  # from components of this statistic; post-processing


@dataclass(frozen=True, kw_only=True, eq=False)
class CompleteRequest(Request):
    """A request with all choices made, by the user or by the defaults.

    A plan derives every sensitivity, computes the privacy loss, and refuses a request that exceeds
    the budget. It does so for all numbers, whoever chose them. Sequences are in the order of the
    agents. The algorithm has a number for every default.
    """

    # Required fields here; otherwise the base class's defaults would apply.
    algorithm: Algorithm[Any, Any] = field()  # pyright: ignore[reportGeneralTypeIssues]
    rounds: int = field()  # pyright: ignore[reportGeneralTypeIssues]
    release: Release = field()  # pyright: ignore[reportGeneralTypeIssues]
    given: Algorithm[Any, Any]  # method as the user passed it, for the fingerprint
    clips: Sequence[float | None]  # clip norms of records' contributions
    agents: Sequence[AgentRequest]
    shares: Sequence[Sequence[float]] | None = (
        None  # of violation_probability=, by part of each constraint
    )
    slope_noise: SlopeNoise | None = None  # for solutions shrunk towards the initial point
    certificate: Certificate | None = None  # of amplification by iteration; the plan verifies it


T = TypeVar("T")
# Largest number of agents that an error lists.
_NAMES = 12


def asked_of(
    problem: Declaration, mechanism: Mechanisms, epsilon: float | Mapping[Any, float] | None
) -> dict[str, Declared | None]:
    """Return the requested mechanism and budget, by agent.

    Parameters
    ----------
    problem : Declaration
        Problem with its agents.
    mechanism, epsilon
        Arguments of the plan: one value for all agents, or a mapping by agent or name.

    Returns
    -------
    dict of str to (Declared or None)
        None for every agent if the plan has no noise.

    Raises
    ------
    ModelError
        If a mapping names unknown agents or omits some.
    PrivacyError
        If a mechanism is unknown, if noise is switched off for some agents only, or if a budget is
        missing or given twice.
    """
    private = {n: bool(a.private) for n, a in problem.named.items()}
    declared = _declared(
        private, by_name(problem, "mechanism", mechanism), by_name(problem, "epsilon", epsilon)
    )
    return dict(zip(problem.names, declared, strict=True))


def by_name(
    problem: Declaration, argument: str, given: T | Mapping[Agent | str, T]
) -> T | Mapping[str, T]:
    """Return a mapping with names of agents as keys; other values are returned unchanged.

    Parameters
    ----------
    problem : Declaration
        Problem with its agents.
    argument : str
        Name of the argument, for messages.
    given : mapping of agent or its name, or a value for all
        One value for all agents, or a mapping by agent or name.

    Raises
    ------
    ModelError
        If a key is neither an agent nor a name, or an agent has two values.
    """
    if not isinstance(given, Mapping):
        return given
    names = {id(agent): name for name, agent in problem.named.items()}
    values = pairs(given)
    if values is None:
        raise ModelError(
            f"{argument}= is {show(given)}, which cannot be read. Write a dict, such as "
            f"{argument}={{'north': ...}}."
        )
    named: dict[str, T] = {}
    for key, value in values:
        name = names.get(id(key), key)
        if not isinstance(name, str):
            raise ModelError(
                f"{argument}= takes one value for all agents, or a mapping by agents of the "
                f"problem or their names, and has a key of type {type(key).__name__} that is none "
                "of these."
            )
        if name in named:
            raise ModelError(
                f"{argument}= has two values for agent {show(name)}: under the dp.Agent object and "
                "under its name. Keep one."
            )
        named[name] = value
    return named


def _declared(
    agents: Mapping[str, bool],
    mechanism: Asked | Mapping[str, Asked],
    epsilon: float | Mapping[str, float | None] | None,
) -> tuple[Declared | None, ...]:
    """Return each agent's requested mechanism and budget; `agents` marks private data."""
    private = [name for name, has in agents.items() if has]
    if isinstance(mechanism, Mapping):
        _check_names("mechanism", mechanism, private, private)
        kinds = {name: _mechanism(mechanism[name]) for name in private}
    else:
        kinds = dict.fromkeys(private, _mechanism(mechanism))
    silent = [name for name, kind in kinds.items() if kind is None]
    if len(silent) == len(kinds):
        return (None,) * len(agents)
    if silent:
        raise PrivacyError(
            f"mechanism= gives agent '{silent[0]}' no noise, but gives noise to others. Name a "
            "mechanism for this agent, or write its data as public constants. mechanism=None "
            "switches off all noise."
        )
    needy = [n for n in private if (kind := kinds[n]) is not None and kind.per_step() is None]
    if isinstance(epsilon, Mapping):
        _check_names("epsilon", epsilon, private, needy)
    elif epsilon is not None and 0 < len(needy) < len(private):
        raise PrivacyError(
            "Some mechanisms have a level of their own, and one epsilon= for all agents would fix "
            "the noise of some and only bound the ledger of others. Write it for those without a "
            f"level: epsilon={_example(needy)}."
        )
    budgets = epsilon if isinstance(epsilon, Mapping) else dict.fromkeys(kinds, epsilon)
    asked = {name: (kind, budgets.get(name)) for name, kind in kinds.items() if kind is not None}
    # Thousands of agents mostly share their objects; grouping by identity is fast.
    made: dict[tuple[int, int], Declared] = {}
    by_name: dict[str, Declared] = {}
    for name, (kind, budget) in asked.items():
        key = id(kind), id(budget)
        if key not in made:
            made[key] = _one(name, kind, budget)
        by_name[name] = made[key]
    # Noise of agents without private data hides nothing; they share it only if all noise is equal.
    distinct = set(made.values())
    if len(distinct) == 1:
        return tuple(distinct) * len(agents)
    return tuple(by_name.get(name) for name in agents)


def _one(agent: str, mechanism: Mechanism, epsilon: float | None) -> Declared:
    fixed = mechanism.per_step() is not None
    if epsilon is None and not fixed:
        raise PrivacyError(
            f"The plan has no privacy budget for agent '{agent}'. Write problem.plan(..., "
            "epsilon=1.0, delta=1e-6) for a total budget, give the mechanism a level per release "
            "such as mechanism=dp.Laplace(release_epsilon=0.1), or pass mechanism=None for a run "
            "without noise and without guarantee."
        )
    if epsilon is None:
        return Declared(mechanism, None)
    check_epsilon(epsilon)
    return Declared(mechanism, float(epsilon))


def _check_names(
    argument: str, given: Mapping[str, object], private: Sequence[str], needed: Sequence[str]
) -> None:
    unknown = [name for name in given if name not in private]
    missing = [name for name in needed if name not in given]
    if unknown:
        wrong = f"names {show(unknown[0])}, which is no agent with private data"
    elif missing:
        wrong = f"lacks agent '{missing[0]}'"
    else:
        return
    raise ModelError(
        f"{argument}={{...}} {wrong}. Give one value for all agents, or one for each of those with "
        f"private data: {argument}={_example(needed or private)}."
    )


def _example(names: Sequence[str]) -> str:
    shown = ", ".join(f"'{name}': ..." for name in names[:_NAMES])
    return "{" + shown + (", ..." if len(names) > _NAMES else "") + "}"


def _mechanism(mechanism: Asked) -> Mechanism | None:
    # Not isinstance: a subclass might draw noise that differs from the computed guarantee.
    if mechanism is None or type(mechanism) in (Gaussian, Laplace, Staircase):
        return cast("Mechanism | None", mechanism)
    named = {"gaussian": Gaussian(), "laplace": Laplace(), "staircase": Staircase()}
    if isinstance(mechanism, str) and mechanism in named:
        return named[mechanism]
    raise PrivacyError(
        f"mechanism={show(mechanism)} is unknown. Write 'gaussian', 'laplace', 'staircase', "
        "dp.Gaussian(), dp.Laplace() or dp.Staircase(); leave it out, or write 'auto', to have the "
        "kind chosen; None is for a run without noise and without guarantee."
    )
