"""Noise that is split over agents whose sums are formed in secret: who adds how much."""

from __future__ import annotations

from dataclasses import replace

from ..algorithms.base import SecretSums
from ..errors import ModelError, PrivacyError
from ..privacy.mechanism import Calibrated, Laplace
from ..privacy.split_noise import require_three, split_noise
from .agent_plan import Agents


def check_secret(agents: Agents, secret: SecretSums) -> None:
    """Refuse what is not proved where noise is split.

    Raises
    ------
    ModelError
        If there are fewer than three agents, or so many may collude that fewer than two are left.
    PrivacyError
        If the noise is not Gaussian, or one person's data may be with several agents.
    """
    require_three(len(agents))
    noises = [agent.noise for agent in agents if agent.noise is not None]
    most = len(agents) - 2
    if secret.colluders > most:
        raise ModelError(
            f"max_colluders={secret.colluders} leaves fewer than two of the {len(agents)} agents "
            f"to hide in a sum, so there is no noise to save. Write max_colluders={most} or fewer, "
            "or drop sharing=."
        )
    if any(isinstance(noise.mechanism, Laplace) for noise in noises):
        raise PrivacyError(
            "Noise that is split over agents has to add up to noise of the same kind, and Laplace "
            "noise does not. Write mechanism=dp.Gaussian() and delta=, or drop sharing=."
        )
    if len({noise.mechanism.decay for noise in noises}) > 1:
        raise PrivacyError(
            "With sharing=, the noise of all agents adds up, and it would fall from round to round "
            "by a decay= of each agent's own. Give all agents the same decay=."
        )
    if any(agent.share > 1 for agent in agents):
        raise PrivacyError(
            "With sharing=, what the agents of one group send moves together in the sum, which is "
            "not accounted for. Drop groups= or sharing=."
        )


def split(
    agents: Agents, secret: SecretSums, moves: dict[str, float], size: int, least: float
) -> Agents:
    """The agents with their parts of the noise; as they are if nothing depends on private data.

    Parameters
    ----------
    agents : tuple of AgentPlan
        With their multipliers.
    secret : SecretSums
    moves : dict of str to float
        By agent with private data, what one change does in l2 to what it sends.
    size : int
        How many numbers each agent sends at once.
    least : float
        By how much the noise falls until the last release.

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
    needed = [(one.multiplier, move) for one, move in charged.values()]
    part = split_noise(needed, len(agents), secret.colluders, size, secret.resolution, least)

    # What hides others in the sum is added by agents without private data as well.
    def adding(own: Calibrated | None) -> Calibrated:
        return replace(noise if own is None else own, split=part)

    return tuple(replace(agent, noise=adding(agent.noise)) for agent in agents)
