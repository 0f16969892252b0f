"""Plans whose observer learns the last iterate and nothing else: refusals, costs, charges.

`dpcvx.privacy.last_iterate` has what is proved. The rest of the plan asks here where such a plan
differs from one whose observer sees every release.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from .._arguments import check_argument, choice
from .._words import at_least
from ..algorithms.base import Algorithm, HiddenIterates
from ..algorithms.program import Program
from ..errors import PrivacyError
from ..model.declaration import Declaration
from ..privacy.accounting import Composition
from ..privacy.entries import Entry
from ..privacy.last_iterate import Amplification, LastIterate
from ..privacy.mechanism import Laplace
from .agent_plan import AgentPlan, Agents
from .guarantee import Guarantee
from .request import Noises, Request

LAST_OBSERVER = (
    "whoever learns the last x and nothing else of the run: server and users keep messages and all "
    "other iterates to themselves"
)
HIDDEN = "Rounding errors in hidden iterates and steps are not counted."
TURNS = "Whose turn it was, and how many turns there were, may become known."
CONSTANTS = (
    "The smoothness and strong convexity that the user asserted are true: nothing in the package "
    "proves them."
)
_OBSERVER = choice("everyone", "last_iterate").because(
    "who sees every released value, or who sees the result and nothing else of the run"
)


def check_observer(problem: Declaration, request: Request, asked: Noises) -> None:
    """Refuse an observer that no proof covers.

    Parameters
    ----------
    problem : Declaration
    request : Request
        With nothing open.
    asked : mapping of str to (Declared or None)

    Raises
    ------
    ModelError
        If there is no such observer.
    PrivacyError
    """
    observer, algorithm = request.observer, request.algorithm
    assert algorithm is not None
    check_argument("", "observer", observer, _OBSERVER)
    if observer == "everyone":
        if isinstance(algorithm, HiddenIterates) and algorithm.needs_last_iterate:
            raise PrivacyError(
                f"{algorithm} protects against an observer of the last iterate only: whoever sees "
                "every iterate knows whose turn it was. "
                "Write problem.plan(..., observer='last_iterate')."
            )
        return
    noises = {noise for noise in asked.values() if noise is not None}
    if any(isinstance(noise.mechanism, Laplace) for noise in noises):
        raise PrivacyError(
            "observer='last_iterate' is proved for Gaussian noise only. Drop mechanism=, or write "
            "observer='everyone'."
        )
    if request.release == "once":
        raise PrivacyError(
            "With release='once' everything after the release is public, so hiding iterates "
            "protects nothing. Drop observer=."
        )
    if problem.group_names:
        raise PrivacyError(
            "observer='last_iterate' is proved for a change of one user's data, and groups= say "
            "that one person's data may be with several users. Drop groups=, or write "
            "observer='everyone'."
        )
    if algorithm.returned not in (None, "last"):
        raise PrivacyError(
            f"returned='{algorithm.returned}' shows a mean over many iterates, and observer="
            "'last_iterate' lets only the last one be seen. Drop returned=, or write "
            "observer='everyone'."
        )
    if len(noises) > 1:
        raise PrivacyError(
            "observer='last_iterate' is proved for the same noise in every turn. Give one "
            "mechanism= and one epsilon= for all agents, or write observer='everyone'."
        )


def constants(
    algorithm: Algorithm[Any, Any], program: Program, agents: Sequence[AgentPlan], rounds: int
) -> LastIterate:
    """Return the constants, besides the noise, that the loss of the users depends on.

    Raises
    ------
    PrivacyError
        If no theorem covers the method and the problem.
    """
    if not isinstance(algorithm, HiddenIterates):
        raise PrivacyError(
            "observer='last_iterate' promises less loss for methods whose steps bring neighboring "
            f"runs no further apart. That is proved for dp.GradientADMM and not for "
            f"dp.{type(algorithm).__name__}. Write observer='everyone'."
        )
    clipped = any(not agent.clips_keep_convexity for agent in agents)
    return algorithm.amplification(program, [agent.bound for agent in agents], clipped, rounds)


def priced(
    agents: Sequence[AgentPlan], last: LastIterate, delta: float
) -> tuple[tuple[AgentPlan, ...], Amplification]:
    """Return the agents with what a run costs them, and how that came about."""
    multiplier = next(agent.noise.multiplier for agent in agents if agent.noise is not None)
    stated = last.stated(multiplier, delta)
    losses = stated.losses
    return (
        tuple(
            replace(a, loss=losses.get(a.name, Composition()), price=stated.price) for a in agents
        ),
        stated.amplification,
    )


def guaranteed(
    whole: Guarantee, agents: Agents, last: LastIterate, amplification: Amplification
) -> Guarantee:
    """Return the guarantee against an observer of the last iterate, with less privacy loss.

    Parameters
    ----------
    whole : Guarantee
        Of the same agents.
    agents : tuple of AgentPlan
    last : LastIterate
    amplification : Amplification
    """
    terms = {agent.name: agent for agent in agents}
    first = next(agent.noise for agent in agents if agent.noise is not None)
    stated = tuple(
        replace(
            agent,
            epsilon=amplification.by_agent[agent.agent],
            certificate="asserted" if last.asserted else agent.certificate,
            scale=(scale := first.hidden_grid(terms[agent.agent].program.n).scale),
            noise=f"scale {at_least(scale)} per component of x, the same for all users",
            releases=1,
        )
        for agent in whole.agents
    )
    return replace(
        whole,
        kind="asserted" if last.asserted else whole.kind,
        mechanism=(
            f"{first.mechanism} noise, scale {at_least(first.multiplier)} times the largest l2 "
            "sensitivity of x, in every round; only the last x is released"
        ),
        observer=LAST_OBSERVER,
        certificate="asserted" if last.asserted else whole.certificate,
        agents=stated,
        assumptions=(
            *([CONSTANTS] if last.asserted else []),
            *whole.assumptions,
            HIDDEN,
            *([TURNS] if last.order != "fixed" else []),
        ),
        amplification=amplification,
    )


def run_entries(
    agents: Sequence[AgentPlan], last: LastIterate, rounds: int, asserted: bool
) -> dict[str, Entry]:
    """Return the one ledger entry of a run, by agent that loses something."""
    size = max(agent.program.n for agent in agents if agent.program.form.private)
    found = {}
    for agent in agents:
        loss = agent.loss
        if agent.noise is None or loss == Composition():
            continue
        grid = agent.noise.hidden_grid(size)
        found[agent.name] = Entry(
            round=0,
            step=1,
            mechanism=str(agent.noise.mechanism),
            multiplier=1 / math.sqrt(loss.mu2) if loss.mu2 > 0 else 0.0,
            sensitivity=grid.sensitivity,
            grid=grid.width,
            certificate="asserted" if asserted else "derived",
            released=f"last iterate of {rounds} rounds",
            stated=loss.stated[0] if loss.stated else None,
        )
    return found
