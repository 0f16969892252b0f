"""Runs on the same data that no ledger counts together: said before they add up unseen.

A run with a seed is a study, not for release, and does not count. Data that are handed to a run by
``data=`` may be others each time, which nobody else can tell: they count, and the text says "if".
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from functools import reduce

from .._words import at_most, number
from ..errors import RepeatWarning
from ..guard import warn_caller
from ..model.private import Private
from ..plan.agent_terms import AgentTerms
from ..plan.terms import Terms
from ..privacy.accounting import Composition, Price
from ..privacy.ledger import Ledger
from .resume import Start


def warn_of_repeats(plan: Terms, start: Start, given: Collection[Private]) -> None:
    """Warn if earlier runs used data of this one, and its ledger does not hold what they released.

    Nothing is said where no run had noise, for then nothing was promised.

    Parameters
    ----------
    plan : Terms
    start : Start
        What the ledger holds, if there is one.
    given : collection of Private
        Those that take their data from ``data=``.
    """
    found: list[tuple[float, float, str, bool]] = []
    for k, agent, private in _read(plan):
        uses = private.uses
        if uses.releases > start.agents[k].earlier and (uses.losses or agent.noise is not None):
            epsilon, delta = _together(agent, private)
            found.append((epsilon, delta, agent.name, uses.handed or _among(private, given)))
    if found:
        warn_caller(_said(plan.price, *max(found)), RepeatWarning)


def _together(agent: AgentTerms, private: Private) -> tuple[float, float]:
    """What this run and those before it cost; infinite if one of them has no noise."""
    uses = private.uses
    if uses.open or agent.price is None:
        return math.inf, 0.0
    total = reduce(Composition.joined, uses.losses, agent.loss)
    delta = agent.price.delta
    if math.isinf(total.price(delta).epsilon):
        # Of runs known by pairs alone, the deltas add up, and their sum is rounded.
        delta *= (1 + len(uses.losses)) * (1 + 1e-9)
    return total.price(delta).epsilon, delta


def _said(price: Price | None, epsilon: float, delta: float, name: str, handed: bool) -> str:
    """In words, with what to write instead."""
    same, if_same = ("", "they are the same and ") if handed else ("the same ", "")
    other = "; for data of other people, run copy.deepcopy(plan)" if handed else ""
    if price is None or math.isinf(epsilon):
        return (
            f"Earlier runs used {same}data of agent '{name}', and one of all these runs has no "
            f"noise: {'if they are the same, ' if handed else ''}together they have no guarantee. "
            f"Release only what runs with noise return. In studies, give each run a seed={other}."
        )
    return (
        f"Earlier runs used {same}data of agent '{name}', and no ledger counts them with this one: "
        f"if {if_same}all were planned in advance, together they are ({at_most(epsilon)}, "
        f"{number(delta)})-DP, not ({at_most(price.epsilon)}, {number(price.delta)}). Pass one "
        "ledger to all of them, such as plan.run(ledger='spent.jsonl') or "
        "plan.run(ledger=result.ledger), to have them added up and refused beyond the budget. In "
        f"studies, give each run a seed={other}."
    )


def remember(plan: Terms, start: Start, ledger: Ledger, given: Collection[Private]) -> None:
    """Keep with the private objects what a run released from their data."""
    for k, agent, private in _read(plan):
        uses = private.uses
        uses.releases += len(ledger[agent.name].entries) - start.agents[k].earlier
        uses.handed |= _among(private, given)
        if agent.noise is None:
            uses.open = True
        else:  # the planned loss: outputs may have chosen when to stop
            uses.losses.append(agent.loss)


def _among(private: Private, given: Collection[Private]) -> bool:
    return any(private is other for other in given)  # == of cvxpy makes a constraint


def _read(plan: Terms) -> Iterator[tuple[int, AgentTerms, Private]]:
    """Agents, by place, and the private objects of their objectives."""
    for k, agent in enumerate(plan.agents):
        for private in plan.problem.agents[k].private:
            yield k, agent, private
