"""Signal against noise, in words, before any data are read: what an answer will be worth."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from .._words import together
from ..algorithms.conditions import Conditions
from ..algorithms.program import Program, once_per_kind
from ..model.adjacency import Rows
from ..model.declaration import Declaration
from ..privacy.mechanism import Gaussian
from ..sensitivity.release_once import Publication
from ..sensitivity.second_moments import Moments
from .agent_terms import Agents, AgentTerms
from .responses import Share

Array = NDArray[np.float64]
StandIns = Mapping[str, Sequence[Array | None]]
# What noise may be of a signal that is to be seen clearly.
_CLEAR = 0.1
# How many times less noise is looked at.
_QUIETEST = 1e4
# Budgets beyond that protect nobody; none is advised.
_LARGEST = 50.0
# What stays of a gap is about the square of noise over signal times this: of n + 1 columns, n and n
# squared of whose moments matter.
SQUARED = 2.0
# What a forecast of too much noise says.
DOUBT = "says little or nothing about the data"
# Of noisy steps where bounds leave room for good answers and bad ones.
UNTOLD = (
    "how near the optimum such steps end is not predicted: it depends on how far and how evenly "
    "the data move the gradient, which no bound tells; problem.tune measures it on a stand-in"
)


def bent(problem: Declaration, program: Program) -> str:
    """What not to expect where objectives are not convex; empty where all are.

    Parameters
    ----------
    problem : Declaration
    program : Program
        The same, compiled.
    """
    agents = problem.named
    # Agents that were compiled once are alike to cvxpy's rules as well.
    convex = once_per_kind(program.agents, lambda local: agents[local.name].is_dcp())
    pairs = zip(agents.items(), convex, strict=True)
    bent = [(f"'{name}'", agent) for (name, agent), fine in pairs if not fine]
    if not bent:
        return ""
    found = [name for name, _ in bent]
    what = (
        f"objective of {found[0]} is" if len(found) == 1 else f"objectives of {together(found)} are"
    )
    unsigned = any(p.is_nonneg() is p.is_nonpos() for _, agent in bent for p in agent.private)
    declared = ", or declare that of private factors by dp.Private(..., nonneg=True)"
    return (
        f"by cvxpy's rules the {what} not convex: steps lead to where they "
        "stop by themselves, which need not be the optimum; look for a wrong sign"
        f"{declared if unsigned else ''}"
    )


def of_releases(agents: Agents, stand_ins: StandIns, share: Share, delta: float) -> str:
    """How large the noise is next to what leaves once; empty if that is not known.

    Parameters
    ----------
    agents : tuple of AgentTerms
        With their publications.
    stand_ins : mapping of str to sequence of (ndarray or None)
        By agent, public values of the same kind as each private object, if there are any.
    share : Share
        What is predicted to stay of the gap between start and optimum.
    delta : float
    """
    if math.isfinite(share.left):
        loudest = max((a for a in agents if a.noise is not None), key=_spread)
        poor = f": {_says_nothing(math.sqrt(share.left / _CLEAR), loudest, 1, delta)}"
        # By bounds, the gap of the start is a guess; what noise adds to the optimum is not.
        said = _stays(share.left) if share.by_data else _adds(share.gap)
        return said + (poor if share.left >= 0.5 else "")
    found = noise_over_signal(agents, stand_ins)
    if found is None:
        return _unjudged(agents)
    ratio, agent = found
    given = stand_ins.get(agent.name, ())
    by = (
        "judged by the stand-in"
        if given and all(values is not None for values in given)
        else "for records that fill half their bounds alike in all directions"
    )
    if SQUARED * ratio**2 < 0.5:
        return f"{by}, noise is {ratio:.2g} times what leaves"
    return (
        f"{by}, noise is {_times(ratio)} what leaves: "
        f"{_says_nothing(ratio / _CLEAR, agent, 1, delta)}"
    )


def noise_over_signal(agents: Agents, stand_ins: StandIns) -> tuple[float, AgentTerms] | None:
    """The largest ratio of noise to what leaves once, and whose it is; None if none is known.

    Parameters
    ----------
    agents : tuple of AgentTerms
        With their publications.
    stand_ins : mapping of str to sequence of (ndarray or None)
        As of `of_releases`.
    """
    ratios: list[tuple[float, AgentTerms]] = []
    for agent in agents:
        signal = _signal(agent, stand_ins.get(agent.name, ()))
        if agent.publication is not None and signal is not None:
            noise = _spread(agent) * math.sqrt(agent.publication.size)
            ratios.append((noise / signal if signal > 0 else math.inf, agent))
    return max(ratios, key=lambda each: each[0], default=None)


def _unjudged(agents: Agents) -> str:
    """In the data's units, for who knows how large the data are."""
    spreads: dict[str, list[str]] = {}
    for agent in agents:
        released = agent.publication
        if not isinstance(released, Publication) or released.kind != "data":
            continue
        for spec, unit in zip(released.private, released.units, strict=True):
            spreads.setdefault(f"{_spread(agent) * unit:.3g}", []).append(f"'{spec.name}'")
    if not spreads:
        return ""
    each = ", ".join(f"{spread} on {together(names)}" for spread, names in spreads.items())
    return (
        f"noise has a standard deviation of {each}, per entry. Data that are not much larger do "
        "not come through; with dp.Private(..., like=values) the plan can tell"
    )


def of_steps(
    agents: Agents,
    steps: int,
    share: Callable[[float], float],
    noise: float,
    left: float,
    delta: float,
    jumps: bool = False,
) -> str:
    """What is predicted of noisy steps.

    Parameters
    ----------
    agents : tuple of AgentTerms
    steps : int
        Releases of an agent.
    share : callable
        Of the gap between start and optimum, what is predicted to stay with the noise times a
        factor.
    noise : float
        Of one step, over the largest change that the data can make to its gradient.
    left : float
        The gap that noise may leave; infinite where nothing bounds it.
    delta : float
    jumps : bool
        Whether slopes jump, so that the gap is a bound for data that bend nothing.
    """
    stays = share(1.0)
    if not stays < math.inf:
        return ""
    if stays < 0.5:
        return f"{UNTOLD}. {_may_leave(left, jumps)}"
    # What rounds leave without noise, no budget takes away.
    enough = share(1 / _QUIETEST) + _CLEAR
    factors = np.geomspace(1, _QUIETEST, 81)
    factor = next((f for f in factors if share(1 / f) <= enough), math.inf)
    loudest = max(
        (agent for agent in agents if agent.noise is not None),
        key=lambda agent: agent.noise.multiplier if agent.noise else 0.0,
    )
    said = (
        "for data that fill their bounds alike in all directions, most of the gap between start "
        "and optimum is predicted to stay"
    )
    loud = f"the noise in one step is {_times(noise)} the largest change that the data can make"
    if enough >= 0.5 + _CLEAR:
        return (
            f"{said}, without noise as well: for so many directions steps are too few or too "
            "short. Without rounds= the plan chooses their number, and problem.tune looks for "
            "better ones on a stand-in"
        )
    if noise >= _CLEAR:
        return f"{said}, and {loud}: {_says_nothing(float(factor), loudest, steps, delta)}"
    return (
        f"{said}. What data have in common comes through better: {loud}. How much that is, "
        "problem.tune measures on a stand-in. Needed for all directions: "
        f"{_ways(float(factor), loudest, steps, delta)}"
    )


def of_other_steps(agents: Agents, known: Conditions, steps: int, delta: float) -> str:
    """Of methods of which no gap is predicted: noise next to data, over all steps and agents.

    Parameters
    ----------
    agents : tuple of AgentTerms
    known : Conditions
    steps : int
        Releases of an agent.
    delta : float
    """
    sizes = [agent.program.n for agent in agents]
    noise = math.sqrt(sum(n * c**2 for n, c in zip(sizes, known.noise, strict=True)) / steps)
    most = 2 * sum(known.slope)
    if not 0 < most < math.inf or noise < most / 2:
        reads = any(agent.sensitivity is not None and agent.sensitivity.records for agent in agents)
        return UNTOLD if reads else ""
    loudest = max((a for a in agents if a.noise is not None), key=lambda a: a.bound)
    remedy = _says_nothing(noise / most / _CLEAR, loudest, steps, delta)
    return (
        f"averaged over all steps and agents, the noise is {_times(noise / most)} the largest "
        f"change that the data can make: {remedy}"
    )


def _says_nothing(factor: float, agent: AgentTerms, steps: int, delta: float) -> str:
    """Of noise that ought to be smaller by a factor."""
    return f"expect an answer that {DOUBT}. Needed: {_ways(factor, agent, steps, delta)}"


def _ways(factor: float, agent: AgentTerms, steps: int, delta: float) -> str:
    """To noise that is smaller by a factor."""
    ways = []
    epsilon = _enough(agent, factor, steps, delta) if math.isfinite(factor) else None
    if epsilon is not None:
        ways.append(f"epsilon of about {epsilon:.2g}")
    private = agent.program.form.private
    if math.isfinite(factor) and all(isinstance(spec.adjacency, Rows) for spec in private):
        ways.append(f"{_rounded_up(factor)} times the records")
    return " or ".join(ways) or "another model of the question"


def _enough(agent: AgentTerms, factor: float, steps: int, delta: float) -> float | None:
    """The epsilon at which the noise is smaller by a factor; None if there is no sensible one."""
    noise, asked = agent.noise, agent.asked
    if noise is None or asked is None or asked.epsilon is None:
        return None
    mechanism, budget = asked.mechanism, asked.epsilon
    if mechanism.per_step() is not None or mechanism.decay < 1 or not noise.steady:
        return None

    exposed = steps * agent.share
    if mechanism.norm == 1 and (exposed == 1 or not delta):
        epsilon = budget * factor
        return epsilon if epsilon <= _LARGEST else None
    # Of both kinds of noise, by that whose scale is found at once.
    now = Gaussian().for_total(exposed, budget, delta)

    def enough(epsilon: float) -> bool:
        return Gaussian().for_total(exposed, epsilon, delta) * factor <= now

    if not budget < _LARGEST or not enough(_LARGEST):
        return None
    low, high = math.log(budget), math.log(_LARGEST)
    for _ in range(6):  # to a tenth
        middle = (low + high) / 2
        low, high = (low, middle) if enough(math.exp(middle)) else (middle, high)
    return math.exp(high)


def _spread(agent: AgentTerms) -> float:
    """Standard deviation of the noise on one component of what leaves once."""
    noise, released = agent.noise, agent.publication
    if noise is None or released is None:
        return 0.0
    return math.sqrt(noise.variance(released.sensitivity))


def _signal(agent: AgentTerms, stand_ins: Sequence[Array | None]) -> float | None:
    """About the l2 norm of what leaves once; None where nothing is known of it."""
    released = agent.publication
    if released is None:
        return None
    given = [values for values in stand_ins if values is not None]
    if given and len(given) == len(stand_ins):
        return float(np.linalg.norm(released.statistic(given)))
    if isinstance(released, Moments):
        # Rows at half their bound, in all directions.
        return released.private[0].shape[0] / 4 / math.sqrt(released.order)
    return None


def _stays(share: float) -> str:
    percent = "1%" if share < 0.01 else f"{min(share, 1):.0%}"
    return (
        f"for data like the stand-in, about {percent} of the gap between start and optimum is "
        "predicted to stay"
    )


def _adds(gap: float) -> str:
    return (
        f"on average noise is expected to leave a gap of about {gap:.2g} or less, in units of the "
        "objective; single runs may end at several times that"
    )


def _may_leave(gap: float, jumps: bool) -> str:
    if gap == math.inf:
        return (
            "No set holds the steps, and the loss grows without end: noise can carry them to where "
            "it is many times what it is at the start. Bound the variables, for example "
            "cp.norm(w, 2) <= 10"
        )
    less = ", and far less where many records lie near the answer" if jumps else ""
    return (
        f"Noise may leave a gap of up to about {gap:.2g}, in units of the objective{less}; steps "
        "that end before they reach the optimum may leave more, with or without noise. If the "
        "public start is nearer to the optimum than noise may leave, it may be the better answer"
    )


def _times(ratio: float) -> str:
    return f"{ratio:.2g} times" if ratio < 100 else f"{ratio:.0f} times"


def _rounded_up(factor: float) -> int:
    """To two digits."""
    digits = 10 ** max(0, math.floor(math.log10(factor)) - 1)
    return math.ceil(factor / digits) * digits
