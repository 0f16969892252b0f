"""As little noise as every agent's budget allows, as multipliers that a plan computes prices of."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace

from ..algorithms.base import Requirements
from ..plan.agent_plan import Agents
from ..plan.checks import check_long
from ..plan.noise import require_delta, truncated, with_noise
from ..plan.request import Declared, Noises
from ..privacy.last_iterate import LastIterate

Multipliers = tuple[float | None, ...]


def calibrated(
    agents: Agents,
    requested: Noises,
    needs: Requirements,
    rounds: int,
    steps: int,
    delta: float | None,
    once: bool,
) -> Agents:
    """Return the agents with their noise: as little of it as every budget allows.

    Parameters
    ----------
    agents : tuple of AgentPlan
    requested : mapping of str to (Declared or None)
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
    first = () if once else needs.factors(rounds)
    uneven = (len(needs.weights) > 1 or bool(first)) and not once

    @functools.cache
    def multiplier(asked: Declared, share: int) -> float:
        # One person is exposed to the releases of all agents that may hold data of theirs.
        decay, ratios, exposed = asked.mechanism.decay, [1.0], steps * share
        if uneven or (decay < 1 and not once):
            check_long(rounds, len(needs.weights))
            times = [decay**t * w for t, w in enumerate([*first, *[1.0] * (rounds - len(first))])]
            ratios = [time * w for time in times for w in needs.weights][needs.free :]
            exposed = needs.releases // len(needs.weights) * share
        mechanism = asked.mechanism
        return multiplied(asked, delta, lambda e, d: mechanism.for_total(exposed, e, d, ratios))

    pairs = [(requested[agent.name], agent.share) for agent in agents]
    multipliers = [asked and multiplier(asked, share) for asked, share in pairs]
    return with_noise(agents, requested, multipliers, needs, rounds, delta, once)


def calibrated_with_limit(agents: Agents, requested: Noises, delta: float) -> Agents:
    """Return the agents, those with private data in constraints with truncated noise.

    Parameters
    ----------
    agents : tuple of AgentPlan
        With their noise, for one release of the data.
    requested : mapping of str to (Declared or None)
    delta : float
        Positive.

    Raises
    ------
    PrivacyError
        As `truncated` does.
    """

    def multiplier(asked: Declared) -> float:
        mechanism = asked.mechanism
        return multiplied(asked, delta / 2, lambda e, d: mechanism.for_total(1, e, d))

    found = tuple(
        replace(agent, noise=replace(agent.noise, multiplier=multiplier(asked)))
        if agent.program.limits
        and (asked := requested[agent.name]) is not None
        and agent.noise is not None
        else agent
        for agent in agents
    )
    return truncated(found, delta)


def multipliers_of_turns(requested: Noises, last: LastIterate, delta: float | None) -> Multipliers:
    """Return as little noise in every turn as keeps each user within the budget.

    Parameters
    ----------
    requested : mapping of str to (Declared or None)
    last : LastIterate
        What the loss depends on besides.
    delta : float or None
    """

    @functools.cache
    def multiplier(asked: Declared) -> float:
        return multiplied(asked, delta, last.multiplier)

    return tuple(asked and multiplier(asked) for asked in requested.values())


def multiplied(
    asked: Declared, delta: float | None, for_total: Callable[[float, float], float]
) -> float:
    """Return a mechanism's own multiplier, or that for a total budget of (epsilon, delta).

    Raises
    ------
    PrivacyError
        If the mechanism needs a delta.
    """
    require_delta(asked.mechanism, delta)
    fixed = asked.mechanism.per_step()
    if fixed is not None:
        return fixed
    assert asked.epsilon is not None  # or it would not have been declared
    return for_total(asked.epsilon, delta or 0.0)
