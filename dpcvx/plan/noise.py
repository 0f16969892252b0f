"""Noise of a plan's agents, and the epsilon that their ledgers may reach.

It includes truncated noise, random linear terms, and distributed noise for secure aggregation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from .._arguments import show
from ..algorithms.base import Requirements, SecretSums
from ..errors import ModelError, PrivacyError
from ..privacy.accounting import Composition, Price
from ..privacy.mechanism import Calibrated, Gaussian, Laplace, Mechanism
from ..privacy.split_noise import require_three, split_noise
from ..privacy.truncation import truncation
from ..sensitivity.queries.solutions import perturbation_bounds
from .agent_plan import AgentPlan, Agents, composed
from .checks import check_long
from .request import Declared, Noises

# Relative tolerance, so that a plan's price is a sufficient budget for it.
_SLACK = 1e-9


def with_noise(
    agents: Agents,
    requested: Noises,
    multipliers: Sequence[float | None],
    needs: Requirements,
    rounds: int,
    delta: float | None,
    once: bool,
) -> Agents:
    """Return the agents with noise of the given multipliers.

    Parameters
    ----------
    agents : tuple of AgentPlan
        Agents before calibration.
    requested : mapping of str to (Declared or None)
        Requested mechanisms by agent.
    multipliers : sequence of (float or None)
        Noise multipliers in the order of the agents; None for agents without noise.
    needs : Requirements
        Requirements of the algorithm.
    rounds : int
        Number of rounds.
    delta : float or None
        Delta of the total budget.
    once : bool
        Whether the data are released once, instead of values in every step.

    Raises
    ------
    PrivacyError
        If the mechanism needs a delta, if too many releases differ in their noise, or if a
        multiplier contradicts the mechanism's own noise level.
    """
    uneven = (len(needs.weights) > 1 or bool(needs.first)) and not once

    def noise(agent: AgentPlan, multiplier: float | None) -> Calibrated | None:
        asked = requested[agent.name]
        if asked is None:
            return None
        require_delta(asked.mechanism, delta)
        fixed = asked.mechanism.per_step()
        if multiplier is None or not 0 < multiplier < math.inf or fixed not in (None, multiplier):
            raise PrivacyError(
                f"Agent '{agent.name}' has noise with multiplier {show(multiplier)}, which "
                f"{asked.mechanism} noise does not have. Make the plan by problem.plan(...), "
                "which chooses the multiplier."
            )
        if asked.mechanism.single and not once:
            raise PrivacyError(
                f"{asked.mechanism} noise is for numbers that are released once, and this method "
                "releases a value in every step. Write release='once', which takes a gradient "
                "that is affine in the data, or mechanism='laplace'."
            )
        calibrated = Calibrated(asked.mechanism, multiplier)
        if (uneven or asked.mechanism.decay < 1) and not once:
            check_long(rounds, len(needs.weights))
        if needs.first and not once and not isinstance(asked.mechanism, Gaussian):
            raise PrivacyError(
                f"{asked.mechanism} noise cannot be divided between learning the scale and steps: "
                "only the budget of Gaussian noise can be divided. Leave mechanism= out, give "
                "delta= above 0, or write dp.FederatedGradient() without scale=."
            )
        if uneven:
            first = needs.factors(rounds)
            return replace(calibrated, weights=needs.weights, free=needs.free, first=first)
        return calibrated

    pairs = zip(agents, multipliers, strict=True)
    return tuple(replace(agent, noise=noise(agent, multiplier)) for agent, multiplier in pairs)


def require_delta(mechanism: Mechanism, delta: float | None) -> None:
    """Refuse Gaussian noise without a positive delta.

    Raises
    ------
    PrivacyError
    """
    if isinstance(mechanism, Gaussian) and not delta:
        raise PrivacyError(
            f"Gaussian noise has no guarantee at delta={show(delta)}: its privacy loss is "
            "unbounded. Write problem.plan(..., delta=1e-6), or use mechanism=dp.Laplace() for "
            "pure epsilon. If you leave out the method and mechanism=, the plan chooses both."
        )


def truncated(agents: Agents, delta: float) -> Agents:
    """Return the agents, with truncated noise for those with private data in constraints.

    Gaussian noise uses half of delta for the truncated tails, and the other half for noise without
    truncation. Laplace noise needs no delta without truncation, so that all of delta is for the
    tails. In both cases, a release has the epsilon of noise without truncation.

    Parameters
    ----------
    agents : tuple of AgentPlan
        Agents with their noise, for one release of the data.
    delta : float
        Delta of the plan, positive.

    Raises
    ------
    PrivacyError
        If one person's data may be with several agents, or if no limit can be computed.
    """
    return tuple(
        replace(agent, noise=_truncated(agent, agent.noise, delta))
        if agent.program.limits and agent.noise is not None
        else agent
        for agent in agents
    )


def spent_on_noise(mechanism: Mechanism, delta: float) -> float:
    """Return the part of delta that noise without truncation may use."""
    return 0.0 if mechanism.norm == 1 else delta / 2


def _truncated(agent: AgentPlan, noise: Calibrated, delta: float) -> Calibrated:
    if agent.share > 1:
        raise PrivacyError(
            "violation_probability=0 cannot be combined with groups=. Drop groups=, or write a "
            "violation_probability= above 0. It needs truncated noise, and dpcvx has no "
            "accounting for a group's loss over several such releases."
        )
    mechanism = noise.mechanism
    spent = spent_on_noise(mechanism, delta)
    price = mechanism.compose(Composition(), noise.multiplier, 1).price(spent)
    size = sum(spec.size for spec in agent.program.form.private)
    cut = truncation(mechanism.norm, size, price.epsilon, spent, delta)
    return replace(noise, truncation=cut)


def perturbed(agents: Agents, regularization: float) -> Agents:
    """Return the agents with random linear terms in their objectives (objective perturbation).

    Parameters
    ----------
    agents : tuple of AgentPlan
        Agents with noise; the epsilon of a release is the inverse of its noise multiplier.
    regularization : float
        Weight of the quadratic that the method adds to each objective.

    Raises
    ------
    PrivacyError
        If the noise is not Laplace noise, or epsilon is too small for any linear term.
    """
    return tuple(
        replace(agent, noise=_perturbed(agent, agent.noise, regularization))
        if agent.noise is not None and agent.bound > 0
        else agent
        for agent in agents
    )


def _perturbed(agent: AgentPlan, noise: Calibrated, regularization: float) -> Calibrated:
    if not isinstance(noise.mechanism, Laplace):
        raise PrivacyError(
            f"dp.ObjectivePerturbation has a guarantee at delta=0, and {noise.mechanism} noise has "
            "none. Leave mechanism= out, or write mechanism='laplace'."
        )
    epsilon = 1 / noise.multiplier
    bounds = perturbation_bounds(agent)
    term = bounds.term(epsilon, regularization)
    if term is not None and not bounds.searchable(regularization):
        raise PrivacyError(
            f"The search for the minimizer of agent '{agent.name}' may not end: its objective may "
            "have over 1e10 times as much curvature in one direction as in another. Write "
            f"dp.ObjectivePerturbation(regularization=...) with more than {regularization:.6g}, or "
            "smaller coefficients."
        )
    if term is None:
        raise PrivacyError(
            f"dp.ObjectivePerturbation(regularization={regularization:.6g}) is too small for "
            f"agent '{agent.name}' at epsilon={epsilon:.6g}. Write a larger regularization=, or "
            "leave it out. With so small a quadratic, the curvature of one record uses up all "
            "of epsilon."
        )
    return replace(noise, multiplier=1 / term.covering, linear=term)


def priced(agents: Agents, count: int, delta: float) -> Agents:
    """Return the agents with the privacy loss of their planned releases.

    Parameters
    ----------
    agents : tuple of AgentPlan
        Agents with noise.
    count : int
        Number of releases of each agent.
    delta : float
        Delta at which epsilon is computed.
    """
    losses = composed(agents, count)
    # Some losses take seconds to compute, and many agents have equal ones.
    prices = {loss: loss.price(delta) for loss in dict.fromkeys(losses.values())}
    agents = tuple(replace(a, loss=losses[a.name], price=prices[losses[a.name]]) for a in agents)
    if all(agent.noise is None or agent.noise.split is None for agent in agents):
        return agents
    open_ = tuple(replace(a, noise=a.noise and a.noise.alone) for a in agents)
    alone = composed(open_, count)
    return tuple(replace(a, alone=alone[a.name].price(delta)) for a in agents)


def budgeted(agents: Agents, requested: Noises) -> Agents:
    """Return the agents with the epsilon that their ledgers may reach.

    Parameters
    ----------
    agents : tuple of AgentPlan
        Agents with their privacy losses.
    requested : mapping of str to (Declared or None)
        Requested mechanisms and budgets by agent.

    Raises
    ------
    PrivacyError
        If the planned releases exceed the requested total epsilon.
    """
    return tuple(
        agent
        if agent.price is None
        else replace(
            agent,
            budget=_budget(agent.name, requested[agent.name], agent.price)
            if agent.program.form.private
            else agent.price.epsilon,
        )
        for agent in agents
    )


def exceeds(price: Price, epsilon: float) -> bool:
    """Return whether a privacy loss is above a budget, by more than rounding.

    Parameters
    ----------
    price : Price
    epsilon : float
        Budget at the delta of the price.
    """
    return not price.epsilon <= epsilon * (1 + _SLACK)


def _budget(agent: str, asked: Declared | None, price: Price) -> float:
    """Return the epsilon that an agent's ledger may reach: the requested, or the planned one."""
    if asked is None or asked.epsilon is None:
        return price.epsilon
    fixed = asked.mechanism.per_step() is not None
    if exceeds(price, asked.epsilon):
        level = "has a fixed level: with it," if fixed else "has a multiplier: with it,"
        raise PrivacyError(
            f"{asked.mechanism} noise of agent '{agent}' {level} the plan "
            f"costs epsilon {price.epsilon:.6g}, more than epsilon={asked.epsilon:g}. Raise "
            "epsilon=, add noise, or drop the mechanism's level, which is then fixed by epsilon=."
        )
    return max(asked.epsilon, price.epsilon) if fixed else price.epsilon


def check_secret(agents: Agents, secret: SecretSums) -> None:
    """Refuse distributed noise if no privacy proof covers the agents and their mechanisms.

    Raises
    ------
    ModelError
        If there are fewer than three agents, or fewer than two could be honest.
    PrivacyError
        If the noise is not Gaussian, decays differently, or if agents form groups.
    """
    require_three(len(agents))
    noises = [agent.noise for agent in agents if agent.noise is not None]
    most = len(agents) - 2
    if secret.colluders > most:
        raise ModelError(
            f"max_colluders={secret.colluders} is too large for {len(agents)} agents. Write "
            f"max_colluders={most} or fewer, or drop sharing=. At least two agents have to hide "
            "in a sum, or no noise is saved."
        )
    if any(isinstance(noise.mechanism, Laplace) for noise in noises):
        raise PrivacyError(
            "sharing= needs Gaussian noise. Write mechanism=dp.Gaussian() and delta=, or drop "
            "sharing=. The sum of the agents' parts must be noise of the same kind, and sums of "
            "Laplace noise are not."
        )
    if len({noise.mechanism.decay for noise in noises}) > 1:
        raise PrivacyError(
            "sharing= needs the same decay= for all agents. Give all agents the same decay=, or "
            "drop sharing=. The noise of all agents adds up in each sum."
        )
    if any(agent.share > 1 for agent in agents):
        raise PrivacyError(
            "sharing= cannot be combined with groups=. Drop groups= or sharing=. One person's "
            "change moves the summands of all agents in a group, and dpcvx has no accounting for "
            "that."
        )


def split(
    agents: Agents, secret: SecretSums, moves: dict[str, float], size: int, least: float
) -> Agents:
    """Return the agents with their parts of distributed noise; unchanged if nothing is private.

    Parameters
    ----------
    agents : tuple of AgentPlan
        Agents with noise multipliers.
    secret : SecretSums
        Settings of the secure aggregation.
    moves : dict of str to float
        The l2 sensitivity of an agent's message, for agents with private data.
    size : int
        Number of entries in a message of an agent.
    least : float
        Noise scale of the last release over the noise scale of the first one.

    Raises
    ------
    PrivacyError
        If no grid fits the noise.
    """
    charged = {
        agent.name: (agent.noise, moves[agent.name])
        for agent in agents
        if agent.noise is not None and moves.get(agent.name, 0.0) > 0
    }
    if not charged:
        return agents
    noise = max(charged.values(), key=lambda pair: pair[0].multiplier * pair[1])[0]
    needed = [(charge.multiplier, move) for charge, move in charged.values()]
    part = split_noise(needed, len(agents), secret.colluders, size, secret.resolution, least)

    # Agents without private data also add noise, which protects the others in the sum.
    def adding(calibrated: Calibrated | None) -> Calibrated:
        return replace(noise if calibrated is None else calibrated, split=part)

    return tuple(replace(agent, noise=adding(agent.noise)) for agent in agents)
