"""As little noise as every agent's budget allows, and what their ledgers may hold."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace

from .._arguments import show
from ..algorithms.base import Requirements
from ..errors import PrivacyError
from ..privacy.accounting import Composition, Price
from ..privacy.mechanism import Calibrated, Gaussian
from ..privacy.truncation import truncation
from .agent_terms import Agents, AgentTerms, Declared
from .checks import check_long

# Relative, so that the price of a plan is a budget for it.
_SLACK = 1e-9


def calibrated(
    agents: Agents, needs: Requirements, rounds: int, steps: int, delta: float | None, once: bool
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
