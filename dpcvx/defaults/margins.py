"""How a violation probability is divided over constraints, by what the margins cost."""

from __future__ import annotations

import math
import statistics

import numpy as np

from ..algorithms.program import Program
from ..plan.agent_plan import Agents
from ..plan.limits import spreads_of
from .data_shape import costs
from .stakes import Stakes


def margin_shares(program: Program, agents: Agents, stakes: Stakes) -> list[list[float]] | None:
    """Return how to divide the probability: as margins cost; None for equal shares.

    That is best for tails that fall like exp.

    Parameters
    ----------
    program : Program
    agents : tuple of AgentPlan
        With their publications.
    stakes : tuple of tuple of Stake
        By constraint, what margins of its parts cost; empty if that is not known.
    """
    every = [stake for own in stakes for stake in own]
    spreads = spreads_of(program, agents)
    pairs = zip(stakes, (spreads[kept.agent] for kept in program.kept), strict=bool(stakes))
    lengths = [stake.length(spread.matrix) for own, spread in pairs for stake in own]
    found = costs(every, np.array(lengths))
    if not found.any():
        return None
    left = iter(found.tolist())
    return [[next(left) for _ in own] for own in stakes]


def margin_ratio(one: Program, other: Program, stakes: Stakes = ()) -> float:
    """Return how many times larger the margins of one program are than those of another.

    As they cost, or in the geometric mean.

    Parameters
    ----------
    one, other : Program
    stakes : tuple of tuple of Stake
        As of `margin_shares`.
    """
    costs = [_cost(program, stakes) for program in (one, other)]
    if min(costs) > 0:
        return costs[0] / costs[1]
    pairs = zip(_sizes(one), _sizes(other), strict=True)
    return math.exp(statistics.fmean(math.log(a / b) for a, b in pairs))


def _cost(program: Program, stakes: Stakes) -> float:
    """Of all margins; 0 where that is not known."""
    total = 0.0
    for kept, own in zip(program.kept, stakes, strict=bool(stakes)):
        for k, stake in enumerate(own):
            ball = kept.tightened.balls.get(k)
            margin = kept.tightened.margins.get(k, 0.0)
            if ball is not None:
                margin = ball.radius * stake.length(ball.noise.toarray())
            total += stake.price * margin
    return total


def _sizes(program: Program) -> list[float]:
    found: list[float] = []
    for kept in program.kept:
        found += kept.tightened.margins.values()
        for ball in kept.tightened.balls.values():
            found.append(ball.radius * float(np.linalg.norm(ball.noise.data)))
    return found
