"""Plans with an observer of the last iterate only, or of all iterates without their users.

`dpcvx.privacy.last_iterate` has the theorems. This module contains the parts that
differ from a plan with an observer of every release: checks, privacy loss, texts, ledger entries.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from .._arguments import check_argument, choice
from .._words import at_least, at_most
from ..algorithms.base import Algorithm, HiddenIterates
from ..algorithms.program import Program
from ..errors import PrivacyError
from ..model.adjacency import Rows
from ..model.declaration import Declaration
from ..model.spec import unnamed
from ..privacy.accounting import Composition
from ..privacy.entries import Entry
from ..privacy.last_iterate import Amplification, LastIterate
from ..privacy.mechanism import Laplace
from .agent_plan import AgentPlan, Agents
from .guarantee import Guarantee
from .request import Noises, Observer, Request
from .stated import changes

LAST_OBSERVER = (
    "anyone who learns the last x and nothing else of the run: server and users keep messages and "
    "all other iterates to themselves"
)
ITERATES_OBSERVER = (
    "anyone who learns all iterates of the run and never whose turn it was: server and users keep "
    "turns to themselves"
)
HIDDEN = "Rounding errors in hidden iterates and steps are not counted."
TURNS = "Whose turn it was, and how many turns there were, may become known."
SECRET = (
    "Turns stay secret forever from anyone who learns the result: server and users tell nobody, "
    "and no log, timing or bill shows them. If turns become known, epsilon is {}."
)
CONSTANTS = (
    "The smoothness and strong convexity that the user asserted are true: nothing in the package "
    "proves them."
)
_OBSERVER = choice("everyone", "last_iterate", "iterates").because(
    "who sees every released value, who sees the result and nothing else of the run, or who sees "
    "all iterates and not whose turns they were"
)


def check_observer(problem: Declaration, request: Request, asked: Noises) -> None:
    """Refuse an observer if no privacy proof covers the method and the arguments.

    Parameters
    ----------
    problem : Declaration
        Problem with its groups.
    request : Request
        Complete request, without omitted arguments.
    asked : mapping of str to (Declared or None)
        Requested mechanisms by agent.

    Raises
    ------
    ModelError
        If the observer's name is unknown.
    PrivacyError
        If no theorem covers the combination.
    """
    observer, algorithm = request.observer, request.algorithm
    assert algorithm is not None
    check_argument("", "observer", observer, _OBSERVER)
    if observer == "everyone":
        if isinstance(algorithm, HiddenIterates) and algorithm.needs_last_iterate:
            raise PrivacyError(
                f"{algorithm} protects only against an observer of the last iterate. Write "
                "problem.plan(..., observer='last_iterate'). An observer of every message knows "
                "which user computed in each round."
            )
        return
    if observer == "iterates":
        if not isinstance(algorithm, HiddenIterates) or not algorithm.secret_draws:
            raise PrivacyError(
                "observer='iterates' needs users that are drawn in secret. Write "
                "dp.GradientADMM(order='sampling', draws='secret'), or observer='everyone'. Such "
                "an observer sees all iterates, but not which user computed each of them."
            )
    noises = {noise for noise in asked.values() if noise is not None}
    if any(isinstance(noise.mechanism, Laplace) for noise in noises):
        raise PrivacyError(
            f"observer='{observer}' needs Gaussian noise. Leave out mechanism=, or write "
            "observer='everyone'. The guarantee is proved for Gaussian noise only."
        )
    if request.release == "once":
        raise PrivacyError(
            "observer= has no effect with release='once'. Leave out observer=. All steps after "
            "the release are post-processing, so there are no iterates to hide."
        )
    if problem.group_names:
        raise PrivacyError(
            f"observer='{observer}' cannot be used with groups=. Drop groups=, or write "
            "observer='everyone'. The guarantee is proved for a change of one user's data, and a "
            "group's person may have data with several users."
        )
    if observer == "last_iterate" and algorithm.returned not in (None, "last"):
        raise PrivacyError(
            f"returned='{algorithm.returned}' shows a mean over many iterates. Leave out "
            "returned=, or write observer='everyone'. observer='last_iterate' allows only the "
            "last iterate to be seen."
        )
    if len(noises) > 1:
        raise PrivacyError(
            f"observer='{observer}' needs the same noise in every round. Give one mechanism= and "
            "one epsilon= for all agents, or write observer='everyone'. The guarantee is proved "
            "for equal noise only."
        )


def constants(
    algorithm: Algorithm[Any, Any],
    program: Program,
    agents: Sequence[AgentPlan],
    rounds: int,
    observer: Observer,
) -> LastIterate:
    """Return the constants that, with the noise multiplier, determine the users' loss.

    Parameters
    ----------
    algorithm : Algorithm
        Method of the plan.
    program : Program
        Compiled program.
    agents : sequence of AgentPlan
        Agents with sensitivities.
    rounds : int
        Number of rounds.
    observer : {"last_iterate", "iterates"}

    Raises
    ------
    PrivacyError
        If no theorem covers the method and the problem.
    """
    if not isinstance(algorithm, HiddenIterates):
        raise PrivacyError(
            f"observer='last_iterate' cannot be used with {algorithm.called}. Write "
            "observer='everyone', or use dp.GradientADMM. Only for dp.GradientADMM is it proved "
            "that steps never move neighboring runs farther apart."
        )
    clipped = any(not agent.clips_keep_convexity for agent in agents)
    bounds = [agent.bound for agent in agents]
    visible = observer == "iterates"
    last = algorithm.amplification(program, bounds, clipped, rounds, visible=visible)
    if not algorithm.secret_draws:
        return last
    users = [agent for agent in agents if agent.name in last.users]
    return replace(last, apart=_changes_apart(users))


def _changes_apart(users: Sequence[AgentPlan]) -> float:
    """Return the number of single changes that turn one user's data into another's, or inf.

    It is finite if users differ only in names and data, and all data are rows. Then changing one
    row after the other turns the data of any user into the data of any other. Each step is a change
    between neighboring data sets.
    """
    local = [user.program for user in users]
    differ = len({(a.form.digest(), unnamed(a.form.private), a.clip) for a in local}) > 1
    if differ or any(a.asserted is not None for a in local):
        return math.inf
    total = 0
    for change in changes(local[0].form.private):
        specs = [s for s in local[0].form.private if s.name in change.objects]
        kinds = [s.adjacency for s in specs if isinstance(s.adjacency, Rows)]
        if len(kinds) < len(specs):
            return math.inf
        # All rows of a person may change at once if max_rows_per_person="all"; else count single
        # rows.
        at_once = any(kind.max_rows_per_person == "all" for kind in kinds)
        count = 1 if at_once else max(s.shape[0] if s.shape else 1 for s in specs)
        removed = any(kind.relation == "add_or_remove_one" for kind in kinds)
        total += count * (2 if removed else 1)
    return float(max(total, 1))


def priced(
    agents: Sequence[AgentPlan], last: LastIterate, delta: float
) -> tuple[tuple[AgentPlan, ...], Amplification]:
    """Return the agents with the privacy loss of a run, and the explanation of the loss."""
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
    """Return the guarantee against an observer of the last iterate, with its smaller epsilon.

    Parameters
    ----------
    whole : Guarantee
        Guarantee against an observer of every release.
    agents : tuple of AgentPlan
        Agents with noise.
    last : LastIterate
        Constants of the privacy loss.
    amplification : Amplification
        Explanation and epsilon of the loss.
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
    turns = [] if last.order == "fixed" else [TURNS]
    if amplification.known is not None:
        turns = [SECRET.format(at_most(amplification.known))]
    shown = "only the last x is released"
    if last.block is None:
        shown = "every x is released, and never whose it was"
    return replace(
        whole,
        kind="asserted" if last.asserted else whole.kind,
        mechanism=(
            f"{first.mechanism} noise, scale {at_least(first.multiplier)} times the largest l2 "
            f"sensitivity of x, in every round; {shown}"
        ),
        observer=LAST_OBSERVER if last.block is not None else ITERATES_OBSERVER,
        certificate="asserted" if last.asserted else whole.certificate,
        agents=stated,
        assumptions=(
            *([CONSTANTS] if last.asserted else []),
            *whole.assumptions,
            *([] if last.block is None else [HIDDEN]),
            *turns,
        ),
        amplification=amplification,
    )


def run_entries(
    agents: Sequence[AgentPlan], last: LastIterate, rounds: int, asserted: bool
) -> dict[str, Entry]:
    """Return the single ledger entry of a run, for each agent with a privacy loss."""
    size = max(agent.program.n for agent in agents if agent.program.form.private)
    shown = "last iterate" if last.block is not None else "all iterates"
    by_name = {}
    for agent in agents:
        loss = agent.loss
        if agent.noise is None or loss == Composition():
            continue
        grid = agent.noise.hidden_grid(size)
        by_name[agent.name] = Entry(
            round=0,
            step=1,
            mechanism=str(agent.noise.mechanism),
            multiplier=1 / math.sqrt(loss.mu2) if loss.mu2 > 0 else 0.0,
            sensitivity=grid.sensitivity,
            grid=grid.width,
            certificate="asserted" if asserted else "derived",
            released=f"{shown} of {rounds} rounds",
            stated=loss.stated[0] if loss.stated else None,
        )
    return by_name
