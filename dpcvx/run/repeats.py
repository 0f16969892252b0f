"""Runs on the same data that no ledger counts together: said before they add up unseen.

A run with a seed is a study, not for release, and does not count. Neither do data that were handed
to a run by ``data=``: they may be other data each time.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Collection, Iterator
from functools import reduce

from .._words import at_most, number
from ..errors import RepeatWarning
from ..model.private import Private
from ..plan.agent_terms import AgentTerms
from ..plan.terms import Terms
from ..privacy.accounting import Composition
from ..privacy.ledger import Ledger
from .resume import Start

# Frames from the call of `plan.run` to the warning: that call's guard, `Plan.run`, `run_plan`.
_CALLER = 5


def warn_of_repeats(plan: Terms, start: Start, given: Collection[Private]) -> None:
    """Warn if earlier runs used data of this one, and its ledger does not hold what they released.

    Parameters
    ----------
    plan : Terms
    start : Start
        What the ledger holds, if there is one.
    given : collection of Private
        Those that take their data from ``data=``.
    """
    found: list[tuple[float, float, str]] = []
    for k, agent, private in _charged(plan, given):
        if private.uses.releases > start.earlier[k] and agent.price is not None:
            total = reduce(Composition.joined, private.uses.losses, agent.loss)
            delta = agent.price.delta
            if math.isinf(total.price(delta).epsilon):
                # Of runs known by pairs alone, the deltas add up, and their sum is rounded.
                delta *= (1 + len(private.uses.losses)) * (1 + 1e-9)
            found.append((total.price(delta).epsilon, delta, agent.name))
    if not found or plan.price is None:
        return
    epsilon, delta, name = max(found)
    if any(private.uses.open for _, _, private in _charged(plan, given)):
        warnings.warn(
            f"Earlier runs used the same data of agent '{name}', one of them without noise: "
            "together they have no guarantee. Release none of what they returned but that of the "
            "runs with noise. In studies, give each run a seed=.",
            RepeatWarning,
            stacklevel=_CALLER,
        )
        return
    warnings.warn(
        f"Earlier runs used the same data of agent '{name}', and no ledger counts them with this "
        f"one: if all were planned in advance, together they are ({at_most(epsilon)}, "
        f"{number(delta)})-DP, not ({at_most(plan.price.epsilon)}, {number(plan.price.delta)}). "
        "Pass one ledger to all of them, such as plan.run(ledger='spent.jsonl') or "
        "plan.run(ledger=result.ledger), to have them added up and refused beyond the budget. In "
        "studies, give each run a seed=.",
        RepeatWarning,
        stacklevel=_CALLER,
    )


def remember(plan: Terms, start: Start, ledger: Ledger, given: Collection[Private]) -> None:
    """Keep with the private objects what a run released from their data."""
    for agent in plan.problem.agents:
        for private in agent.private if not plan.noisy else ():
            private.uses.open |= not any(private is other for other in given)
    for k, agent, private in _charged(plan, given):
        made = len(ledger[agent.name].entries) - start.earlier[k]
        # The planned loss: outputs may have chosen when to stop.
        private.uses.add(agent.loss, made)


def _charged(plan: Terms, given: Collection[Private]) -> Iterator[tuple[int, AgentTerms, Private]]:
    """Agents with noise, by place, and their private objects with data of their own."""
    for k, agent in enumerate(plan.agents):
        for private in plan.problem.agents[k].private:
            if agent.noise is not None and not any(private is other for other in given):
                yield k, agent, private
