"""What agents release once, as a request names it, with sensitivities that are derived here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from ..algorithms.written_model import WrittenModel
from ..errors import PrivacyError
from ..sensitivity.release_once import Once, Publication, restated
from .agent_plan import AgentPlan, Agents
from .request import Estimates


def released(agents: Agents, once: Sequence[Once | None], estimates: Sequence[Estimates]) -> Agents:
    """Return the agents with the statistics that they release in place of their data.

    Parameters
    ----------
    agents : tuple of AgentPlan
        With their noise.
    once : sequence of (Once or None)
        Of each; None where the gradient depends on no private data.
    estimates : sequence of tuple of (slice, Estimate)
        Of each, what is made of components of the released statistic: post-processing.

    Raises
    ------
    PrivacyError
        If an agent's data have no such statistic, or an agent with private data has none.
    """
    return tuple(_released(*each) for each in zip(agents, once, estimates, strict=True))


def _released(agent: AgentPlan, once: Once | None, estimates: Estimates) -> AgentPlan:
    known, noise = agent.sensitivity, agent.noise
    if known is None or noise is None:
        return agent
    if once is None:
        idle = known.constant and all(J.nnz == 0 for J in known.jacobians)
        if agent.program.hands_over or not idle:
            raise PrivacyError(f"Agent '{agent.name}' has no statistic to release once.")
        return agent
    found = restated(known, noise.mechanism.norm, agent.name, once)
    if agent.program.as_written and isinstance(found, Publication):
        found = replace(found, jacobian=None)  # what the noise does is no matter of slopes
    if agent.program.limits and (not isinstance(found, Publication) or not found.whole):
        raise PrivacyError(
            f"Agent '{agent.name}' has private data in constraints, and releases {once.kind}: "
            "margins are proved for data that are released themselves."
        )
    if estimates:
        if agent.program.limits or not isinstance(found, Publication):
            raise PrivacyError(
                f"Estimates of what agent '{agent.name}' releases once do not fit it: margins are "
                "proved for data as they were released, and second moments have no estimates."
            )
        found = replace(found, estimates=estimates)
    return replace(agent, publication=found)


def with_releases(model: WrittenModel, agents: Agents) -> WrittenModel:
    """Return the model with what agents release, and the noise in it.

    Parameters
    ----------
    model : WrittenModel
    agents : tuple of AgentPlan
        With their publications.
    """
    published = [agent.publication for agent in agents]
    return replace(
        model,
        published=tuple(p if isinstance(p, Publication) else None for p in published),
        deviations=tuple(
            0.0
            if agent.noise is None or agent.publication is None
            else math.sqrt(agent.noise.variance(agent.publication.sensitivity))
            for agent in agents
        ),
        laplace=tuple(a.noise is not None and a.noise.mechanism.norm == 1 for a in agents),
    )
