"""Requests for plans: a user's, which may leave choices open, and complete ones.

The requested noise and budget of every agent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar, cast

from .._arguments import pairs, show
from ..algorithms.base import Algorithm
from ..algorithms.learned_scale import LearnScale
from ..algorithms.program import AsWritten
from ..algorithms.toward_start import SlopeNoise
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
# For all agents alike, or by agent or its name.
Mechanisms = Asked | Mapping[Agent | str, Asked]
Release = Literal["each_step", "once"]
Observer = Literal["everyone", "last_iterate", "iterates"]
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
    # Whether noise in data that constraints contain has a limit: chosen by margins, and required
    # where violation_probability= is 0.
    limited: bool = False
    scale: Scaling | None = None  # of records
    prior: Mapping[Private | str, Prior] | None = None  # as given
    expectations: Expectations = field(default_factory=dict)  # by agent, of its private objects

    @property
    def as_written(self) -> AsWritten | None:
        """Return the settings for solving the model as it is written; None if it is not."""
        if self.algorithm is None or not self.algorithm.requirements.as_written:
            return None
        rules = self.algorithm.requirements.rules
        return AsWritten(self.violation_probability is not None, self.slack_penalty, rules)

    @property
    def truncates(self) -> bool:
        """Return whether noise in data that constraints contain has a limit."""
        return self.limited or self.violation_probability == 0

    @property
    def chooses_noise(self) -> bool:
        """Return whether the kind of noise is left to the defaults."""
        return isinstance(self.mechanism, str) and self.mechanism == AUTO

    @property
    def mechanisms(self) -> tuple[Mechanisms, ...]:
        """Mechanisms to choose from; at delta 0 there is one."""
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
    certificate: Certificate | None = None  # of amplification by iteration; the plan checks it


T = TypeVar("T")
# Agents that an error lists.
_NAMES = 12


def asked_of(
    problem: Declaration, mechanism: Mechanisms, epsilon: float | Mapping[Any, float] | None
) -> dict[str, Declared | None]:
    """Return the requested noise and budget, by agent.

    Parameters
    ----------
    problem : Declaration
    mechanism, epsilon
        Arguments of the plan: for all agents, or by agent or its name.

    Returns
    -------
    dict of str to (Declared or None)
        None for all without noise.

    Raises
    ------
    ModelError
        If names and agents do not match.
    PrivacyError
        If a mechanism is unknown, or switched off for some agents only, or if a budget is missing
        or given twice.
    """
    private = {n: bool(a.private) for n, a in problem.named.items()}
    declared = _declared(
        private, by_name(problem, "mechanism", mechanism), by_name(problem, "epsilon", epsilon)
    )
    return dict(zip(problem.names, declared, strict=True))


def by_name(
    problem: Declaration, argument: str, given: T | Mapping[Agent | str, T]
) -> T | Mapping[str, T]:
    """Return a mapping with names of agents in place of agents.

    Parameters
    ----------
    problem : Declaration
    argument : str
        Name of the argument, for messages.
    given : mapping of agent or its name, or a value for all
        Values are as they are.

    Raises
    ------
    ModelError
        If a key is no agent and no name, or an agent has two values.
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
    """Return the noise and budget of agents, from names and whether they have private data."""
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
            f"mechanism= switches the noise of agent '{silent[0]}' off and keeps it for others. "
            "Name a mechanism for it, or write its data as public constants; mechanism=None "
            "switches all noise off."
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
    # Thousands of agents mostly share what was asked: told apart by identity, in no time.
    made: dict[tuple[int, int], Declared] = {}
    by_name: dict[str, Declared] = {}
    for name, (kind, budget) in asked.items():
        key = id(kind), id(budget)
        if key not in made:
            made[key] = _one(name, kind, budget)
        by_name[name] = made[key]
    # The noise of agents without private data hides nothing, unless it is that of all.
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
    # Not isinstance: a subclass could draw other noise than the guarantee is computed for.
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
