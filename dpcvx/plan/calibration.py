"""The noise that a plan asks for, agent by agent, and the multipliers that meet it."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from .._arguments import pairs, show
from ..algorithms.base import Requirements
from ..algorithms.conditions import Conditions
from ..algorithms.landscape import landscape
from ..algorithms.program import Program, once_per_kind
from ..errors import ModelError, PrivacyError
from ..model.adjacency import Rows
from ..model.agent import Agent
from ..model.curvature import smoothness
from ..model.declaration import Declaration
from ..model.quadratic import is_quadratic_given_data
from ..privacy.accounting import Composition, Price, check_epsilon
from ..privacy.mechanism import Calibrated, Gaussian, Laplace, Mechanism
from ..privacy.truncation import truncation
from ..sensitivity.certificate import Sensitivity
from .agent_terms import Agents, AgentTerms, Declared
from .checks import check_long
from .request import Asked, Mechanisms

Array = NDArray[np.float64]
T = TypeVar("T")
# Relative, so that the price of a plan is a budget for it.
_SLACK = 1e-9
# How many times as large as one change in it an entry of private data is taken to be.
_CHANGES = 30.0
# How many times as steep as at the start losses of records are on the way to the answer.
_STEEPER = 2.0
# Agents that an error lists.
_NAMES = 12


def asked_of(
    problem: Declaration,
    mechanism: Mechanisms,
    epsilon: float | Mapping[Any, float] | None,
) -> dict[str, Declared | None]:
    """What noise and what budget is asked for, by agent.

    Parameters
    ----------
    problem : Declaration
    mechanism, epsilon
        As given to the plan: for all agents alike, or by agent or its name.

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
    found = _declared(
        private,
        by_name(problem, "mechanism", mechanism),
        by_name(problem, "epsilon", epsilon),
    )
    return dict(zip(problem.names, found, strict=True))


def by_name(
    problem: Declaration, argument: str, given: T | Mapping[Agent | str, T]
) -> T | Mapping[str, T]:
    """A mapping with names of agents in place of agents.

    Parameters
    ----------
    problem : Declaration
    argument : str
        What is given, for messages.
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
    found: dict[str, T] = {}
    for key, value in values:
        name = names.get(id(key), key)
        if not isinstance(name, str):
            raise ModelError(
                f"{argument}= takes one value for all agents, or a mapping by agents of the "
                f"problem or their names, and has a key of type {type(key).__name__} that is none "
                "of these."
            )
        if name in found:
            raise ModelError(
                f"{argument}= has two values for agent {show(name)}, by itself and by its name. "
                "Keep one."
            )
        found[name] = value
    return found


def _declared(
    agents: Mapping[str, bool],
    mechanism: Asked | Mapping[str, Asked],
    epsilon: float | Mapping[str, float | None] | None,
) -> tuple[Declared | None, ...]:
    """The same, from names of agents and whether they have private data."""
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
    found: dict[str, Declared] = {}
    for name, (kind, budget) in asked.items():
        place = id(kind), id(budget)
        if place not in made:
            made[place] = _one(name, kind, budget)
        found[name] = made[place]
    # The noise of agents without private data hides nothing, unless it is that of all.
    alike = set(made.values())
    if len(alike) == 1:
        return tuple(alike) * len(agents)
    return tuple(found.get(name) for name in agents)


def _one(agent: str, mechanism: Mechanism, epsilon: float | None) -> Declared:
    fixed = mechanism.per_step() is not None
    if epsilon is None and not fixed:
        raise PrivacyError(
            f"The plan has no privacy budget for agent '{agent}'. Write problem.plan(..., "
            "epsilon=1.0, delta=1e-6) for a total budget, give the mechanism a level per release "
            "such as mechanism=dp.Laplace(step_epsilon=0.1), or pass mechanism=None for a run "
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
    if mechanism is None or type(mechanism) in (Gaussian, Laplace):
        return cast("Mechanism | None", mechanism)
    named = {"gaussian": Gaussian(), "laplace": Laplace()}
    if isinstance(mechanism, str) and mechanism in named:
        return named[mechanism]
    raise PrivacyError(
        f"mechanism={show(mechanism)} is unknown. Write 'gaussian', 'laplace', dp.Gaussian() or "
        "dp.Laplace(); leave it out, or write 'auto', to have the kind chosen; None is for a run "
        "without noise and without guarantee."
    )


def calibrated(
    agents: Agents,
    needs: Requirements,
    rounds: int,
    steps: int,
    delta: float | None,
    once: bool,
) -> Agents:
    """The agents with their noise: as little of it as every budget allows.

    Parameters
    ----------
    agents : tuple of AgentTerms
    needs : Requirements
        Of the algorithm.
    rounds : int
    steps : int
        Releases of an agent in these rounds.
    delta : float or None
    once : bool
        Whether the data are released once, instead of a value in every step.

    Raises
    ------
    PrivacyError
        If the mechanism needs a delta, or too many releases differ in their noise.
    """
    uneven = len(needs.weights) > 1 and not once

    @functools.cache
    def noise(asked: Declared, share: int) -> Calibrated:
        # One person is exposed to the releases of all agents that may hold data of theirs.
        decay, ratios, exposed = asked.mechanism.decay, [1.0], steps * share
        if uneven or (decay < 1 and not once):
            check_long(rounds, len(needs.weights))
            ratios = [decay**t * w for t in range(rounds) for w in needs.weights][needs.free :]
            exposed = needs.releases // len(needs.weights) * share
        mechanism = asked.mechanism
        found = multiplied(asked, delta, lambda e, d: mechanism.for_total(exposed, e, d, ratios))
        return replace(found, weights=needs.weights, free=needs.free) if uneven else found

    return tuple(
        agent if agent.asked is None else replace(agent, noise=noise(agent.asked, agent.share))
        for agent in agents
    )


def truncated(agents: Agents, delta: float) -> Agents:
    """The agents, those with private data in constraints with noise that has a limit.

    Half of delta is left to the tails that are cut off, so that each release costs no more in all
    than the budget that was asked for.

    Parameters
    ----------
    agents : tuple of AgentTerms
        With their noise, for one release of the data.
    delta : float
        Positive.

    Raises
    ------
    PrivacyError
        If one person's data may be with several agents, or no limit can be computed.
    """
    return tuple(
        replace(agent, noise=_truncated(agent, agent.asked, delta))
        if agent.program.limits and agent.asked is not None
        else agent
        for agent in agents
    )


def _truncated(agent: AgentTerms, asked: Declared, delta: float) -> Calibrated:
    if agent.share > 1:
        raise PrivacyError(
            "violation=0 needs noise with a limit, and what a group loses by several such releases "
            "is not accounted for. Drop groups=, or write a violation= above 0."
        )
    mechanism, spent = asked.mechanism, delta / 2
    noise = multiplied(asked, spent, lambda e, d: mechanism.for_total(1, e, d))
    price = mechanism.compose(Composition(), noise.multiplier, 1).price(spent)
    size = sum(spec.size for spec in agent.program.form.private)
    cut = truncation(mechanism.norm, size, price.epsilon, spent, delta)
    return replace(noise, truncation=cut)


def conditions(
    program: Program,
    agents: Agents,
    rounds: int,
    *,
    noisy_steps: bool,
    distance: float | None = None,
) -> Conditions:
    """What methods choose their numbers by; nothing is noisy, for them, if steps are not.

    Parameters
    ----------
    program : Program
    agents : tuple of AgentTerms
    rounds : int
    noisy_steps : bool
    distance : float, optional
        From the start to the answer, about, where that was found before.
    """
    noises = [agent.noise for agent in agents if agent.noise is not None and noisy_steps]
    quiet = Conditions(
        rounds,
        (0.0,) * len(agents),
        tuple(once_per_kind(agents, lambda agent: _slope(agent, agent.sensitivity))),
        min((noise.step_epsilon for noise in noises), default=math.inf),
        next((noise.split for noise in noises), None),
        _whole(agents),
    )
    if not noises:
        return quiet
    # Noise follows the point, and what counts is that near the answer.
    if distance is None:
        known = [agent.sensitivity for agent in agents if agent.sensitivity is not None]
        flattens = any(one.flattens for one in known)
        distance = landscape(program, quiet).distance if flattens else math.inf
    return replace(quiet, noise=tuple(once_per_kind(agents, lambda a: _spread(a, distance))))


def _change(known: Sensitivity | None, p: int, start: Array, distance: float) -> float:
    """What one change does to a gradient so near the start; 0 where that is not known."""
    if known is None:
        return 0.0
    if known.flattens:
        change = known.within(p, float(np.linalg.norm(start)) + distance)
    else:
        change = known.near(p, start)
    return change if math.isfinite(change) else 0.0


def _whole(agents: Agents) -> tuple[float, ...]:
    """The slopes of agents, as if none were clipped whose losses are squares."""
    if not any(_square(agent) for agent in agents):
        return ()

    def whole(agent: AgentTerms) -> float:
        known = _square(agent)
        return _slope(agent, replace(known, clips=()) if known else agent.sensitivity)

    return tuple(once_per_kind(agents, whole))


def _square(agent: AgentTerms) -> Sensitivity | None:
    """Of an agent whose losses are clipped squares; None for others."""
    known = agent.sensitivity
    clipped = known is not None and bool(known.clips)
    return known if clipped and is_quadratic_given_data(agent.program.form) else None


def _slope(agent: AgentTerms, known: Sensitivity | None) -> float:
    """About how far all data of an agent move a gradient; see `Conditions`."""
    start = agent.program.start
    if known is None and agent.program.form.private and smoothness(agent.program.form) is None:
        # Without noise nothing had to be derived, but where slopes jump, steps follow from them.
        try:
            known = agent.program.sensitivity()
        except PrivacyError:
            return 0.0
    squares: dict[str, float] = {}
    for spec in agent.program.form.private:
        if isinstance(spec.adjacency, Rows):
            squares[spec.adjacency.label] = (spec.shape[0] / 2) ** 2
        else:
            entries = spec.size if spec.adjacency.norm in ("entry", "inf") else 1
            squares[spec.name] = _CHANGES**2 * entries
    change = _change(known, 2, start, 0.0)
    if known is not None and known.flattens and not is_quadratic_given_data(agent.program.form):
        # On the way it is steeper; squares fall towards their answers.
        change = min(_STEEPER * change, known.bound(2).value)
    return change * math.sqrt(sum(squares.values()))


def _spread(agent: AgentTerms, distance: float) -> float:
    """Standard deviation of the noise in one entry of a gradient, so near the start, in round 1."""
    if agent.noise is None:
        return 0.0
    norm, start = agent.noise.mechanism.norm, agent.program.start
    return math.sqrt(agent.noise.variance(_change(agent.sensitivity, norm, start, distance)))


def multiplied(
    asked: Declared, delta: float | None, for_total: Callable[[float, float], float]
) -> Calibrated:
    """A mechanism with its own multiplier, or that for a total budget of (epsilon, delta).

    Raises
    ------
    PrivacyError
        If the mechanism needs a delta.
    """
    mechanism, epsilon = asked.mechanism, asked.epsilon
    if isinstance(mechanism, Gaussian) and not delta:
        raise PrivacyError(
            f"Gaussian noise has no guarantee at delta={show(delta)}: its privacy loss is "
            "unbounded. Write problem.plan(..., delta=1e-6), or use mechanism=dp.Laplace() for "
            "pure epsilon."
        )
    fixed = mechanism.per_step()
    if fixed is not None:
        return Calibrated(mechanism, fixed)
    assert epsilon is not None  # or it would not have been declared
    return Calibrated(mechanism, for_total(epsilon, delta or 0.0))


def budgeted(agents: Agents) -> Agents:
    """How much every ledger may hold in the end."""
    return tuple(
        agent
        if agent.price is None
        else replace(
            agent,
            budget=_budget(agent.name, agent.asked, agent.price)
            if agent.program.form.private
            else agent.price.epsilon,
        )
        for agent in agents
    )


def _budget(agent: str, asked: Declared | None, price: Price) -> float:
    """The epsilon that an agent's ledger may hold after the plan.

    Raises
    ------
    PrivacyError
        If noise of a level of its own costs more than the total that was asked for.
    """
    if asked is None or asked.epsilon is None or asked.mechanism.per_step() is None:
        return price.epsilon
    if asked.epsilon * (1 + _SLACK) < price.epsilon:
        raise PrivacyError(
            f"{asked.mechanism} noise of agent '{agent}' has a level of its own, at which the plan "
            f"costs epsilon {price.epsilon:.6g}, more than epsilon={asked.epsilon:g}. Raise "
            "epsilon=, add noise, or drop the mechanism's level, which is then fixed by epsilon=."
        )
    return max(asked.epsilon, price.epsilon)
