"""The guarantee of a plan with noise: its numbers for each agent, and its assumptions."""

from __future__ import annotations

import math
from collections.abc import Sequence

from .._words import at_least, between, together
from ..model.adjacency import Rows
from ..model.spec import PrivateSpec
from ..privacy.accounting import ryu_kim_claim
from ..privacy.mechanism import Calibrated, Gaussian
from ..privacy.split_noise import coalition
from ..sensitivity.queries.query import CLAIMED, Facts
from ..sensitivity.release_once import Publication
from .agent_plan import AgentPlan
from .guarantee import ALONE, OBSERVER, AgentGuarantee, Change, Claim, Guarantee

_NO_NOISE = "none needed"
TRUSTED = (
    "Every agent adds its part of the noise, except colluders, and no more agents collude than are "
    "counted here: an agent that adds no noise is a colluder.",
    "Shares travel encrypted from agent to agent, as they do between owners (dp.RemoteOwners) "
    "and not in one process. Transcripts and ledger files of a run hold the summands of its "
    "sums: keep them with the agents.",
)
ASSUMPTIONS = (
    "Every agent follows the protocol and keeps its noise secret.",
    "What the model declares public does not depend on private data.",
    ALONE,
    "Rounding errors of private computations are not counted. The noise is exact, on a grid whose "
    "width the sensitivity includes.",
)
EXPECTED = (
    "The solution uses public priors for {}. The guarantee does not depend on whether they are "
    "right."
)
UNGROUPED = (
    "Each person's data are held by one agent: in one of its private objects, or in one row of "
    "those that share a records= label."
)
GROUPED = (
    "Each person's data are held by the agents of one group: by each of them in one private "
    "object, or in one row of those that share a records= label."
)
BY_PERSON = (
    "If max_rows_per_person= is declared, all rows of one person have one identifier, and take the "
    "place of the one row above. Neighboring data have the same people in the same rows."
)
CERTIFIED = (
    "Minimizers are released with noise that covers their certified distance from the exact ones. "
    "Others may see if a search ends; searches end for all admissible data."
)
CUT = {
    1: "pure epsilon of noise of all lengths, delta for the tails that are cut off",
    2: "noise of all lengths at half of delta, the other half for the tails that are cut off",
}
# Added if agents with private data have recourse variables (`Result.recourse`).
OWN = (
    "Recourse solutions (result.recourse) stay with their agents: the guarantee covers only what "
    "others see."
)
OWN_GROUPED = (
    "Recourse solutions (result.recourse) stay with the agents of their group: the guarantee "
    "covers only what others see."
)


def make_guarantee(
    agents: Sequence[AgentPlan], *, releases: int, once: bool, groups: Sequence[tuple[str, ...]]
) -> Guarantee:
    """Return the guarantee of a plan with noise.

    Parameters
    ----------
    agents : sequence of AgentPlan
        Agents with noise and privacy losses.
    releases : int
        Planned number of releases per agent.
    once : bool
        Whether the data are released once.
    groups : sequence of tuple of str
        Groups of agents that may hold one person's data.
    """
    worst = max((a.price for a in agents if a.price), key=lambda price: price.epsilon)
    noises = list(dict.fromkeys(a.noise for a in agents if a.noise is not None))
    first, split = noises[0], noises[0].split
    # Releases before the first round that depend on no private data are not charged.
    count = releases - max(noise.free for noise in noises)
    stated = [
        _of_agent(a, count, once, len(noises) > 1)
        for a in agents
        if a.sensitivity is not None and a.noise is not None
    ]
    mechanism = _mechanism(noises, count, once)
    if all(agent.noise == _NO_NOISE for agent in stated):
        mechanism = f"{_NO_NOISE}, no released value depends on private data"
    claims = [claim for a in agents if a.sensitivity is not None for claim in _claims(a)]
    if any(a.sensitivity is not None and a.sensitivity.asserted is not None for a in agents):
        claims.append(CLAIMED)
    claim = None
    if len(noises) == 1 and isinstance(first.mechanism, Gaussian) and first.steady:
        claim = _claim(first.mechanism, releases)
    named = {agent.agent for agent in stated}
    accountants = [
        CUT[a.noise.norm]
        if a.noise is not None and a.noise.truncation is not None
        else a.price.accountant
        for a in agents
        if a.price and a.name in named
    ]
    return Guarantee(
        kind="asserted" if claims else "worst-case",
        epsilon=worst.epsilon,
        delta=worst.delta,
        rho=max(a.loss.rho for a in agents),
        mechanism=mechanism,
        accountant=" or ".join(dict.fromkeys(accountants)),
        observer=OBSERVER if split is None else _pooled(split.max_colluders),
        certificate="asserted" if claims else "derived",
        agents=tuple(stated),
        groups=tuple(groups),
        assumptions=(
            *dict.fromkeys(claims),
            *_assumptions(agents, trusting=split is not None, grouped=bool(groups)),
        ),
        claimed_by_paper=claim,
        max_colluders=None if split is None else split.max_colluders,
        against_all_others=max(
            (a.alone.epsilon for a in agents if a.alone is not None), default=None
        ),
    )


def _mechanism(noises: Sequence[Calibrated], count: int, once: bool) -> str:
    """Return a text on the noise and the number of releases of all agents."""
    released = "1 release per agent, before round 1"
    if not once:
        released = f"{count} release{'' if count == 1 else 's'} per agent"
    first, *others = noises
    if others:
        kinds = dict.fromkeys(str(noise.mechanism) for noise in noises)
        said = f"{' or '.join(kinds)} noise of each agent's own; {released}"
    else:
        scales = " and ".join(at_least(first.multiplier * w) for w in first.weights)
        if first.linear is not None:
            return f"a random linear term in each objective (objective perturbation); {released}"
        norm = first.mechanism.norm
        size = f"scale {scales} times the l{norm} sensitivity{_fading(first, once)}"
        if first.mechanism.single:
            deviation = at_least(math.sqrt(first.variance(1.0)))
            size = f"standard deviation {deviation} times the largest change of one number"
        said = f"{first.mechanism} noise, {size}; {released}"
    split = first.split
    if split is not None:
        said += (
            f"; split: each of {split.parties} agents adds a part with standard deviation "
            f"{at_least(split.scale)}, and the sum of those of any "
            f"{split.parties - split.max_colluders} has this scale"
        )
    limits = dict.fromkeys(f"{n.truncation.reach:.4g}" for n in noises if n.truncation is not None)
    if limits:
        said += f"; drawn again while an entry exceeds {together(list(limits), 'or')} scales"
    return said


def _assumptions(agents: Sequence[AgentPlan], *, trusting: bool, grouped: bool) -> list[str]:
    """Return the assumptions of the guarantee; `trusting` tells whether noise is distributed."""
    first, *others = ASSUMPTIONS
    said = [first, *(TRUSTED if trusting else ()), *others, GROUPED if grouped else UNGROUPED]
    if any(_by_person(agent) for agent in agents):
        said.append(BY_PERSON)
    if any(agent.noise is not None and agent.noise.linear is not None for agent in agents):
        said.append(CERTIFIED)
    if any(agent.sensitivity is not None and agent.program.decides for agent in agents):
        said.append(OWN_GROUPED if grouped else OWN)
    expected = [f"'{name}'" for agent in agents for name in agent.expects]
    return [*said, EXPECTED.format(together(expected))] if expected else said


def _by_person(agent: AgentPlan) -> bool:
    """Return whether an agent's privacy unit is all rows of one person."""
    kinds = [spec.adjacency for spec in agent.program.form.private]
    return any(isinstance(k, Rows) and k.max_rows_per_person is not None for k in kinds)


def _pooled(colluders: int) -> str:
    return (
        f"{coalition(colluders)}, even if they collude and see every sum and every share sent to "
        "them. The weaker of the two figures holds against all other agents together"
    )


def _of_agent(agent: AgentPlan, count: int, once: bool, differs: bool) -> AgentGuarantee:
    """Return the guarantee for one agent's data; `differs` tells whether agents' noise differs."""
    chosen, sensitivity, price = agent.noise, agent.sensitivity, agent.price
    assert chosen is not None and sensitivity is not None and price is not None
    bound = sensitivity.bound(chosen.norm)
    scale, noise = _noise(chosen, agent, bound.value)
    moved, tight = bound.value, bound.tight
    if agent.program.as_written and agent.publication is not None:
        moved, tight = agent.publication.sensitivity, False  # of the released statistic
    leaves = bound.value > 0 or agent.program.hands_over
    if differs and leaves:
        noise = f"{chosen.mechanism}, {noise}{_fading(chosen, once)}"
    return AgentGuarantee(
        agent=agent.name,
        adjacency={s.name: str(s.adjacency) for s in sensitivity.private},
        changes=changes(sensitivity.private),
        epsilon=price.epsilon,
        norm=chosen.norm,
        sensitivity=moved,
        tight=tight,
        certificate="asserted" if _claims(agent) else sensitivity.certificate,
        scale=scale,
        noise=noise,
        releases=count if leaves else 0,
        independent=() if agent.program.hands_over else sensitivity.independent,
    )


def _noise(calibrated: Calibrated, agent: AgentPlan, bound: float) -> tuple[float, str]:
    """Return an agent's noise scale, infinite if it differs between releases, and its text."""
    times, n = f"scale {at_least(calibrated.multiplier)} times", agent.program.n
    published = agent.publication
    if published is not None:
        grid = calibrated.grid(published.sensitivity, published.size)
        if calibrated.mechanism.single and isinstance(published, Publication):
            deviation = math.sqrt(calibrated.variance(grid.sensitivity))
            return deviation, published.noise(deviation, "standard deviation")
        return grid.scale, published.noise(grid.scale)
    if bound == 0:
        return 0.0, _NO_NOISE
    term = calibrated.linear
    if term is not None:
        return term.scale, (
            f"random linear term b with density proportional to exp(-|b|_{term.norm} / "
            f"{at_least(term.scale)}), beside a quadratic of weight {term.regularization:.3g}"
        )
    norm = calibrated.mechanism.norm
    scales_and_words = dict.fromkeys(
        query.noise(agent, norm, times, lambda level: calibrated.grid(level, n).scale)
        for query in agent.queries
    )
    scales = {scale for scale, _ in scales_and_words}
    return scales.pop() if len(scales) == 1 else math.inf, "; ".join(
        words for _, words in scales_and_words
    )


def _claims(facts: Facts) -> list[str]:
    """Return texts on bounds that users supply without a proof, for the assumptions."""
    return [claim for query in facts.queries for claim in query.claims(facts)]


def _fading(calibrated: Calibrated, once: bool) -> str:
    decay, first = calibrated.mechanism.decay, calibrated.first
    if first:
        times = between(min(first), max(first))
        return f", and {times} times that in the first {len(first)} rounds, which learn the scale"
    if decay == 1 or once:
        return ""
    return f" in the first round and {decay:.6g} times that of the round before in all others"


def _claim(declared: Gaussian, releases: int) -> Claim | None:
    if not declared.release_epsilon or not declared.release_delta:
        return None
    epsilon = ryu_kim_claim(releases, declared.release_epsilon, declared.release_delta)
    return Claim(epsilon, declared.release_delta, "Ryu and Kim, Theorem 4.9")


def changes(specs: Sequence[PrivateSpec]) -> tuple[Change, ...]:
    """Return the kinds of changes of one agent's data; neighboring data differ by one of them."""
    parts: dict[tuple[bool, str], list[PrivateSpec]] = {}
    for spec in specs:
        kind = spec.adjacency
        key = (True, kind.label) if isinstance(kind, Rows) else (False, spec.name)
        parts.setdefault(key, []).append(spec)
    return tuple(_together(members) for members in parts.values())


def _together(members: Sequence[PrivateSpec]) -> Change:
    first, *others = members
    what, where = str(first.adjacency), f"'{first.name}'"
    if others:
        with_ = [
            f"'{s.name}'"
            if str(s.adjacency) == what or not isinstance(s.adjacency, Rows)
            else f"'{s.name}', {s.adjacency.row}"
            for s in others
        ]
        where += f" (with {together(with_)})"
    record = first.adjacency.label if isinstance(first.adjacency, Rows) else None
    return Change(what, tuple(s.name for s in members), where, record)
