"""Remarks on the noise relative to the data, from public facts; they predict no suboptimality."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .._words import at_most, number, together
from ..algorithms.facts import Conditions
from ..algorithms.program import Program, once_per_kind
from ..model.adjacency import ComplexWithin, Rows
from ..model.declaration import Declaration
from ..model.spec import PrivateSpec
from ..plan.agent_plan import AgentPlan, Agents
from ..sensitivity.release_once import Publication
from ..sensitivity.second_moments import Moments

Array = NDArray[np.float64]
StandIns = Mapping[str, Sequence[Array | None]]
# For second moments, the share of the initial suboptimality that noise leaves is about this factor
# times the squared ratio of noise to signal.
SQUARED = 2.0
# Ratio of noise to signal from which a text warns that the noise is large.
_LOUD = 0.5
# Least number of agents, and least ratio of noise to signal, for a text on secure aggregation.
_MANY, _AUDIBLE = 9, 0.02
# Words of the warning on large noise.
DOUBT = "may say little or nothing about the data"
# Text for noisy steps whose result bounds alone cannot predict.
UNTOLD = (
    "No gap is predicted, because it depends on the data. With public proxy data, "
    "dp.Private(..., proxy=values), the plan simulates it"
)
# Text for data that are released once, and for one gradient.
ASKS = "For a prediction, declare public proxy data: dp.Private(..., proxy=values)"


@dataclass(frozen=True)
class Remark:
    """Sentences on the expected solution that need no simulation; false if both are empty."""

    said: str = ""  # text on the noise relative to the data, which results repeat
    advice: str = ""  # text on data to declare for a prediction

    def __bool__(self) -> bool:
        return bool(self.said or self.advice)


def bent(problem: Declaration, program: Program) -> str:
    """Return a warning if steps are taken on objectives that are not convex; else "".

    Parameters
    ----------
    problem : Declaration
    program : Program
        Compiled program of the problem.
    """
    if program.model is not None:  # cvxpy solves the model as written
        return ""
    agents = problem.named
    # Agents of one kind follow cvxpy's rules all or not at all.
    convex = once_per_kind(program.agents, lambda local: agents[local.name].is_dcp())
    pairs = zip(agents.items(), convex, strict=True)
    bent = [(f"'{name}'", agent) for (name, agent), fine in pairs if not fine]
    if not bent:
        return ""
    names = [name for name, _ in bent]
    what = (
        f"objective of {names[0]} is" if len(names) == 1 else f"objectives of {together(names)} are"
    )
    unsigned = any(p.is_nonneg() is p.is_nonpos() for _, agent in bent for p in agent.private)
    declared = ", or declare that of private factors by dp.Private(..., nonneg=True)"
    return (
        f"by cvxpy's rules the {what} not convex: steps lead to a "
        "stationary point, which need not be the optimum; look for a wrong sign"
        f"{declared if unsigned else ''}"
    )


def of_releases(agents: Agents, stand_ins: StandIns) -> Remark:
    """Return a remark on the noise of one-time releases, relative to data or to one change.

    Parameters
    ----------
    agents : tuple of AgentPlan
        Agents with the statistics that they release once.
    stand_ins : mapping of str to sequence of (ndarray or None)
        Public proxy data of each private object, by the agent's name; None without proxy data.
    """
    texts: dict[str, list[str]] = {}
    loud = False
    for agent in agents:
        released = agent.publication
        if released is None or agent.noise is None:
            continue
        if isinstance(released, Moments):
            ratios = noise_over_signal((agent,), stand_ins)
            if ratios is not None:
                loud = loud or SQUARED * ratios[0] ** 2 >= _LOUD
                what = f"a norm {_times(ratios[0])} that of equal records at half their bounds"
                if _given(stand_ins.get(agent.name, ())):
                    what = f"a norm {_times(ratios[0])} that of the proxy data"
                held = together([f"'{spec.name}'" for spec in released.private])
                texts.setdefault(f"{what}, on {{}}", []).append(f"the second moments of {held}")
            continue
        for name, text in _on_entries(agent, released):
            texts.setdefault(text, []).append(name)
    said = "; ".join(text.format(together(names)) for text, names in texts.items())
    if not said:
        return Remark()
    said = f"noise has {said}"
    if loud:
        said += f". The solution {DOUBT}"
    given = all(_given(stand_ins.get(agent.name, ())) for agent in agents)
    return Remark(said, "" if given else ASKS)


def hidden_by_unit(agents: Agents, stand_ins: StandIns) -> str:
    r"""Return a warning on released data whose range is no more than one change; else "".

    Laplace noise for the l1 sensitivity D has standard deviation :math:`\sqrt{2} D / \epsilon`, so
    it is a tenth of a range r at :math:`\epsilon = 10 \sqrt{2} D / r`.

    Parameters
    ----------
    agents : tuple of AgentPlan
        Agents of a complete plan.
    stand_ins : mapping of str to sequence of (ndarray or None)
        Public proxy values, as for `of_releases`.
    """
    texts: dict[str, list[str]] = {}
    for agent in agents:
        released = agent.publication
        if not isinstance(released, Publication) or not released.whole or agent.noise is None:
            continue
        values = stand_ins.get(agent.name, ()) or [None] * len(released.private)
        for spec, proxy in zip(released.private, values, strict=True):
            kind = spec.adjacency
            if isinstance(kind, Rows | ComplexWithin):
                continue
            span = _range_of_entries(spec, proxy)
            if span is None or not span <= kind.radius:
                continue
            moved = {2: math.sqrt(spec.size), math.inf: float(spec.size)}.get(kind.norm, 1.0)  # type: ignore[call-overload]
            enough = 10 * math.sqrt(2) * kind.radius * moved / span
            quiet = agent.price is not None and agent.price.epsilon >= enough
            if not quiet:
                what = (
                    f"the entries of {{}} differ by {number(span)}, and one change is as large as "
                    f"{number(kind.radius)}: noise that hides a change hides them as well. From "
                    f"epsilon {at_most(enough)} on, the standard deviation of Laplace noise is at "
                    "most a tenth of their range"
                )
                texts.setdefault(what, []).append(f"'{spec.name}'")
    return "; ".join(text.format(together(names)) for text, names in texts.items())


def _range_of_entries(spec: PrivateSpec, proxy: Array | None) -> float | None:
    """Return the range of a private object's entries, by proxy or bounds; None if unknown."""
    if proxy is not None:
        values = spec.shaped(np.asarray(proxy, dtype=float).ravel())
        span = float(np.ptp(values)) if values.size > 1 else float(np.abs(values).max())
    else:
        low, high = spec.interval
        span = high - low
    return span if 0 < span < math.inf else None


def of_one_value(agents: Agents, stand_ins: StandIns) -> Remark:
    r"""Return a remark on one noisy gradient, or one noisy minimizer, of each agent.

    Objective perturbation adds <b, x> to an objective G with strong convexity mu, its quadratic
    included. Let x minimize the sum and x* minimize G, on the agent's set. Then
    :math:`G(x) - G(x^*) \le \langle b, x^* - x\rangle - \mu \|x - x^*\|^2/2 \le
    \|b\|^2 / (2 \mu)`, by the conditions of optimality at x. The norm of b that the mechanism
    uses is at least its l2 norm, and has the law Gamma(n, s).

    Parameters
    ----------
    agents : tuple of AgentPlan
        Agents of a complete plan.
    stand_ins : mapping of str to sequence of (ndarray or None)
        Public proxy values, as for `of_releases`.
    """
    noisy = [agent for agent in agents if agent.noise is not None and agent.sensitivity is not None]
    if not noisy:
        return Remark()
    advice = "" if all(_given(stand_ins.get(spec.name, ())) for spec in noisy) else ASKS
    texts: dict[str, list[str]] = {}
    for agent in noisy:
        assert agent.noise is not None
        term = agent.noise.linear
        if term is not None and term.convexity > 0:
            gap = term.size * (term.size + 1) * term.scale**2 / (2 * term.convexity)
            texts.setdefault(f"by at most {at_most(gap)}", []).append(f"'{agent.name}'")
    if not texts:
        return Remark(advice=advice)
    several = sum(map(len, texts.values())) > 1
    ends = "; ".join(
        f"{text} for {together(names)}" if several else text for text, names in texts.items()
    )
    said = (
        "averaged over its draws, the random linear term raises an agent's objective, with its "
        f"quadratic, {ends}"
    )
    if several:
        said += ". If the agents' data differ, their mean may be far from the joint optimum"
    return Remark(said, advice)


def _given(values: Sequence[Array | None]) -> bool:
    return all(value is not None for value in values)


def _on_entries(agent: AgentPlan, released: Publication) -> Iterator[tuple[str, str]]:
    """Yield names of private objects, or of a statistic, and a phrase on the noise in each.

    The phrase has a placeholder for the name.
    """
    spread = _spread(agent)
    if released.kind == "sums":
        names = together([f"'{spec.name}'" for spec in released.private])
        yield (
            f"the {released.size} weighted sums that the model reads of {names}",
            f"standard deviation {_range(spread * released.sum_units)} on each of {{}}",
        )
        return
    if not released.whole:
        covariance = released.slope_covariance(spread**2)
        assert covariance is not None
        deviations = np.sqrt(covariance.diagonal())
        names = together([f"'{spec.name}'" for spec in released.private])
        yield (
            f"the objective's linear coefficient in {names}",
            f"standard deviation {_range(deviations[deviations > 0])} on each component of {{}}",
        )
        return
    ends = np.cumsum([spec.size for spec in released.private])[:-1]
    if released.kind == "shaped data":
        lengths = np.linalg.norm(released.decode.toarray(), axis=1)
        parts = [_range(spread * length) for length in np.split(lengths, ends)]
    else:
        parts = [f"{spread * unit:.3g}" for unit in released.units]
    for spec, text in zip(released.private, parts, strict=True):
        kind = spec.adjacency
        size = (
            f"a record has norm at most {number(kind.max_norm)}"
            if isinstance(kind, Rows)
            else f"one change: {number(kind.radius)}"
        )
        yield f"'{spec.name}'", f"standard deviation {text} on each entry of {{}} ({size})"


def noise_over_signal(agents: Agents, stand_ins: StandIns) -> tuple[float, AgentPlan] | None:
    """Return the largest ratio of noise to signal in a one-time release, and its agent.

    It is None if no signal is known.

    Parameters
    ----------
    agents : tuple of AgentPlan
        Agents with the statistics that they release once.
    stand_ins : mapping of str to sequence of (ndarray or None)
        Public proxy values, as for `of_releases`.
    """
    ratios: list[tuple[float, AgentPlan]] = []
    for agent in agents:
        signal = _signal(agent, stand_ins.get(agent.name, ()))
        if agent.publication is not None and signal is not None:
            noise = _spread(agent) * math.sqrt(agent.publication.size)
            ratios.append((noise / signal if signal > 0 else math.inf, agent))
    return max(ratios, key=lambda each: each[0], default=None)


def of_steps(
    agents: Agents,
    conditions: Conditions,
    steps: int,
    left: float | None = None,
    jumps: bool = False,
    few: bool = False,
) -> Remark:
    """Return a remark on noisy steps: their noise relative to the data's effect on gradients.

    Parameters
    ----------
    agents : tuple of AgentPlan
    conditions : Conditions
    steps : int
        Number of releases of an agent.
    left : float, optional
        Suboptimality that noise may leave; infinite if unbounded, None if unknown.
    jumps : bool
        Whether losses are nonsmooth, so that `left` is a bound that assumes no curvature.
    few : bool
        Whether the steps are too few to reach a suboptimality of `left`.
    """
    noise, most = _averaged(agents, conditions, steps)
    if 0 < most < math.inf and noise >= _LOUD * most:
        return Remark(
            f"averaged over all steps and agents, the noise is {_times(noise / most)} the largest "
            f"change that the data can make to the gradient. The solution {DOUBT}"
        )
    if left is not None:
        return Remark(_may_leave(left, jumps, few), UNTOLD)
    reads = any(agent.sensitivity is not None and agent.sensitivity.records for agent in agents)
    return Remark(advice=UNTOLD) if reads else Remark()


def _averaged(agents: Agents, conditions: Conditions, steps: int) -> tuple[float, float]:
    """Return the noise in the sum of gradients, averaged over steps, and the data's effect on it.

    The effect is the largest change that all data can make to the sum of gradients.
    """
    sizes = [agent.program.n for agent in agents]
    noise = math.sqrt(sum(n * c**2 for n, c in zip(sizes, conditions.noise, strict=True)) / steps)
    return noise, 2 * sum(conditions.slope)


def in_secret(agents: Agents, conditions: Conditions, steps: int) -> str:
    """Return advice on secure aggregation if many agents' noise is large in their sum; else "".

    Without secure aggregation, each agent adds enough noise to hide its data. With it, only the sum
    is known, and all agents except colluders together add the noise that one agent adds here.

    Parameters
    ----------
    agents : tuple of AgentPlan
    conditions : Conditions
    steps : int
        Number of releases of an agent.
    """
    hidden = [
        agent for agent in agents if agent.sensitivity is not None and agent.noise is not None
    ]
    together = len(hidden) - 1
    noise, most = _averaged(agents, conditions, steps)
    if together < _MANY or any(agent.share > 1 for agent in hidden):
        return ""
    if not noise > _AUDIBLE * most or not 0 < most < math.inf:
        return ""
    return (
        f"each of {len(hidden)} agents adds enough noise to hide its own data. Between owners "
        f"(dp.RemoteOwners), a secure sum needs {math.sqrt(together):.2g} times less, and noise "
        f"leaves about a {together}th of the gap: "
        "dp.FederatedGradient(sharing=dp.SecretSharing(limit=...))"
    )


def _spread(agent: AgentPlan) -> float:
    """Return the standard deviation of the noise on one component of a one-time release."""
    noise, released = agent.noise, agent.publication
    if noise is None or released is None:
        return 0.0
    return math.sqrt(noise.variance(released.sensitivity))


def _signal(agent: AgentPlan, stand_ins: Sequence[Array | None]) -> float | None:
    """Return the approximate l2 norm of an agent's one-time release; None if unknown."""
    released = agent.publication
    if released is None:
        return None
    given = [values for values in stand_ins if values is not None]
    if given and len(given) == len(stand_ins):
        return float(np.linalg.norm(released.statistic(given)))
    if isinstance(released, Moments):
        # Norm for rows at half of their bound, spread over all directions.
        return released.private[0].shape[0] / 4 / math.sqrt(released.order)
    return None


def _may_leave(gap: float, jumps: bool, few: bool) -> str:
    if gap == math.inf:
        return (
            "the variables have no bounds, and the loss grows without limit: noise can move the "
            "steps to points with many times the initial loss. Bound the variables, for example "
            "cp.norm(w, 2) <= 10, in units of the data"
        )
    less = ", and far less where many records lie near the solution" if jumps else ""
    steps = (
        "So few steps are expected to leave more than that"
        if few
        else "Steps that end before they reach the optimum leave more"
    )
    return (
        f"noise alone may leave a gap of up to about {at_most(gap)}, in units of the "
        f"objective{less}. {steps}. If the initial point has a smaller gap, it may be the better "
        "solution"
    )


def _times(ratio: float) -> str:
    return f"{ratio:.2g} times" if ratio < 100 else f"{ratio:.0f} times"


def _range(values: Array) -> str:
    if not values.size:  # no released component has noise
        return "0"
    low, high = f"{values.min():.3g}", f"{values.max():.3g}"
    return low if low == high else f"{low} to {high}"
