"""An owner's check of an offer: derive its sensitivity and privacy loss, or refuse it by a code."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from .._arguments import COUNTED, show
from .._words import at_most, between, number, paragraph, plural
from ..algorithms.program import LocalProgram, Program
from ..algorithms.summed import SplitSharing
from ..errors import BudgetError, DpcvxError, PrivacyError
from ..model.spec import PrivateSpec
from ..plan import checks
from ..plan.agent_plan import AgentPlan, Agents, released
from ..plan.banner import WIDTH, moved
from ..plan.draft import answering
from ..plan.noise import exceeds, perturbed, priced, with_noise
from ..plan.request import AgentRequest, Declared
from ..privacy.ledger_file import spent_of
from ..privacy.mechanism import Calibrated, Gaussian, Mechanism
from ..privacy.split_noise import SplitNoise
from ..run.part import AgentPart
from ..run.resume import begin
from ..sensitivity.queries.data import MomentsTerm
from . import wire
from .keys import COORDINATOR
from .messages import Line, Offer, refused
from .offers import document_of, line_of
from .policy import Policy
from .records import REVISIONS, obstacle, sums_in_secret
from .wellformed import require_small, require_well_formed

# Relative tolerance of the comparison of an epsilon with the budget.
_SLACK = 1e-9
# Largest number of rounds that an owner accepts.
_MOST_ROUNDS = 1_000_000


@dataclass(frozen=True, eq=False)
class Agreement:
    """An offer that an owner accepts, with the part of the plan that the owner derived."""

    offer: Offer
    policy: Policy
    part: AgentPart  # this agent's part of the plan, under the owner's own description of its data
    spent: float = 0.0  # epsilon of earlier runs at the policy's delta; see `against_ledger`
    covered: int | None = None  # rounds that the remaining budget covers; None without a ledger
    open: bool = False  # whether the ledger holds this run as interrupted: it resumes, charged once

    @property
    def agent(self) -> AgentPlan:
        """Plan of this agent, as the owner derived it."""
        return self.part.agent

    @property
    def epsilon(self) -> float:
        """Epsilon of all planned releases at the policy's delta; 0 without noise."""
        return 0.0 if self.agent.price is None else self.agent.price.epsilon

    def __str__(self) -> str:
        offer, agent, policy = self.offer, self.agent, self.policy
        form = agent.program.form
        atoms = ", ".join(dict.fromkeys(atom.rule.name for atom in form.atoms)) or "affine"
        private = "; ".join(
            f"{spec.name}, {' x '.join(map(str, spec.shape)) or 'a number'}: {spec.adjacency}"
            for spec in form.private
        )
        releases = plural(self.part.schedule[-1], "release")
        if self.covered is not None and self.covered < offer.rounds:
            releases += f"; the budget that is left pays for {plural(self.covered, 'round')}"
        others = plural(len(offer.parts) - 1, "other")
        spent = f", of which {number(self.spent)} is spent already," if self.spent > 0 else ""
        first = f"run {offer.run[:8]}: agent {agent.name} with {others}, plan {offer.plan[:8]}"
        if offer.lines:
            first += f", document {document_of(offer)[:8]}"
        again = "; this run is open in the ledger: it goes on, and is paid for once"
        rows = {
            "method": f"{offer.algorithm}; {plural(offer.rounds, 'round')}, {releases}",
            "objective": f"{atoms} of {plural(form.n, 'variable')}, "
            f"{agent.program.shared.size} of them shared",
            "private": private or "nothing",
            "derived": _moved(agent),
            "costs": f"epsilon {number(self.epsilon)} of {number(policy.epsilon)}{spent} at delta "
            f"{number(policy.delta)}{again if self.open else ''}",
            **_shown_noise(offer, agent.noise),
            "protects": f"against the coordinator and {_partners(agent.noise)} together",
        }
        return "\n".join(
            [
                paragraph("", first, WIDTH),
                *(paragraph(f"  {label:<11}", text, WIDTH) for label, text in rows.items()),
            ]
        )


def _partners(noise: Calibrated | None) -> str:
    """Return a text that names the colluding agents that the noise protects against."""
    split = None if noise is None else noise.split
    return "all others" if split is None else f"any {plural(split.max_colluders, 'other')}"


def _shown_noise(offer: Offer, noise: Calibrated | None) -> dict[str, str]:
    """Return the printed row on distributed noise; no row without such noise."""
    split = None if noise is None else noise.split
    if noise is None or split is None:
        return {}
    count, left = split.parties, split.parties - split.max_colluders
    held, last = _held(offer, split), noise.at(offer.rounds).split
    assert last is not None
    falls = last.scale / split.scale
    of_each, of_left = number(split.scale), number(held)
    where = "every sum"
    if falls < 1:
        of_left += f" in round 1 and {number(falls * held)} in round {offer.rounds}"
        where = f"the sum of round 1, and of {number(last.scale)} to that of round {offer.rounds}"
    if noise.first:
        where = (
            f"every sum, and {between(min(noise.first), max(noise.first))} times that in the first "
            f"{len(noise.first)} rounds, which learn the scale"
        )
    text = (
        f"each of {count} participants adds a standard deviation of {of_each} to {where}; any "
        f"{left} of them together add {of_left}"
    )
    return {"noise": text}


def _held(offer: Offer, split: SplitNoise) -> float:
    """Return the least standard deviation of the noise that honest participants add to a sum.

    This owner is honest, and the colluders are the other participants with the most noise.
    """
    others = [line for k, line in enumerate(offer.lines) if k != offer.place]
    scales = [0.0 if line.split is None else line.split.scale for line in others]
    honest = sorted(scales)[: len(offer.lines) - split.max_colluders - 1]
    return math.hypot(split.scale, *honest)


def _moved(agent: AgentPlan) -> str:
    """Return a text on the sensitivity of the releases that the privacy loss is charged for."""
    sensitivity, noise, once = agent.sensitivity, agent.noise, agent.publication
    if sensitivity is None or noise is None:
        return "no released value depends on private data"
    p = noise.mechanism.norm
    if once is not None:
        most = at_most(once.sensitivity)
        return f"one change moves the one-time release by at most {most} in l{p}"
    return moved(sensitivity, p, agent.program.start)


def read_offer(document: bytes) -> Offer:
    """Decode an offer from its bytes.

    Raises
    ------
    RefusedError
        If the bytes encode no offer.
    """
    offer = wire.decode(document)
    if not isinstance(offer, Offer):
        raise refused("unreadable", "the message is no offer")
    return offer


def agree(offer: Offer, policy: Policy) -> Agreement:
    """Check an offer against an owner's policy, without reading private data.

    Parameters
    ----------
    offer : Offer
    policy : Policy

    Raises
    ------
    RefusedError
        If a check fails; the code names the first failed check.
    """
    _check_parts(offer, policy)
    _check_method(offer, policy)
    _check_document(offer)
    local = _with_own_data(offer.program, policy)
    require_well_formed(local)
    _check_noise(offer, policy)
    _check_statistic(offer)
    try:
        return Agreement(offer, policy, _part(offer, local, policy))
    except DpcvxError as error:
        if hasattr(error, "code"):
            raise
        # No private data was read, so the type of the error is public.
        raise refused("sensitivity", type(error).__name__) from None
    except (ArithmeticError, np.linalg.LinAlgError, ValueError, MemoryError) as error:
        raise refused("sensitivity", type(error).__name__) from None


def against_ledger(agreed: Agreement, seeded: bool) -> Agreement:
    """Return the agreement with the budget that the owner's ledger leaves; write nothing.

    Parameters
    ----------
    agreed : Agreement
    seeded : bool
        Whether the noise is drawn from a seed.

    Raises
    ------
    BudgetError
        If the remaining budget does not cover one round.
    PrivacyError
        If the ledger counts other changes of the data than the agreement.
    LedgerError
        If the policy's ledger file is no intact ledger.
    """
    policy, part = agreed.policy, agreed.part
    if not policy.ledger.exists():
        return agreed
    past = spent_of(policy.ledger)
    run = past.interrupted
    # The agreement's cost includes the run that it resumes, so that run does not count as spent.
    same = run is not None and run.fingerprint == part.fingerprint
    start = begin([part], past.before if same else past.ledger, seeded)
    account = start.agents[0].account
    spent = account.spent(policy.delta).epsilon if account.entries else 0.0
    return replace(agreed, spent=spent, covered=start.rounds, open=same)


def said_of_budget(error: BudgetError) -> str:
    """Return a text on a spent budget with the fix in owner.toml: an owner cannot change the plan.

    Parameters
    ----------
    error : BudgetError
    """
    covered = ""
    if error.rounds is not None:
        covered = f", which leaves {error.rounds[0]} of {plural(error.rounds[1], 'round')}"
    needed = error.requested if error.whole is None else max(error.whole, error.requested)
    total = at_most(needed * (1 + 1e-5), 6)
    return (
        f"of epsilon {number(error.allowed)} at delta {number(error.delta)}, "
        f"{number(error.spent)} is spent{covered}, and the whole run needs {total} in all; only "
        f"you can allow it, by epsilon = {total} under [budget] in owner.toml"
    )


def _check_parts(offer: Offer, policy: Policy) -> None:
    names = [name for name, _ in offer.parts]
    if offer.agent != policy.agent or offer.program.name != policy.agent:
        raise refused("name", f"this owner is '{policy.agent}'")
    if len(set(names)) != len(names) or not 0 <= offer.place < len(names):
        raise refused("malformed", "agents")
    if COORDINATOR in names:  # whose certificate has that name would take part in its own runs
        raise refused("malformed", f"an agent named '{COORDINATOR}'")
    if offer.parts[offer.place] != (offer.agent, wire.digest(offer.program)):
        raise refused("altered", "the program is not the one that the list of participants names")
    if policy.program and offer.parts[offer.place][1] != policy.program:
        raise refused("model", "the offer holds another program than the owner's own model")
    if len(names) - 1 < policy.partners:
        raise refused(
            "partners",
            f"{len(names) - 1} others take part, and the policy asks for {policy.partners}",
        )


def _check_method(offer: Offer, policy: Policy) -> None:
    name = type(offer.algorithm).__name__
    if offer.program.asserted is not None:
        raise refused("asserted", "")
    needs = offer.algorithm.requirements
    if needs.sensitivity is not None or needs.smoothness is not None:
        raise refused("asserted", "")
    if name not in policy.methods or obstacle(offer.algorithm, offer.observer):
        raise refused("method", name)
    if offer.revision != REVISIONS[type(offer.algorithm)]:
        raise refused("version", f"of {name}")
    if offer.program.limits:
        raise refused("method", "private data in constraints")
    if offer.program.as_written is not needs.as_written:
        raise refused("malformed", "the program was compiled for another method")
    if needs.exact is True and offer.program.exact is None:
        raise refused("malformed", "the objective is not compiled")
    if not 1 <= offer.rounds <= _MOST_ROUNDS or not 1 <= offer.share <= COUNTED:
        raise refused("malformed", "the number of rounds")


def _with_own_data(local: LocalProgram, policy: Policy) -> LocalProgram:
    """Return the program with the policy's declarations of private data, not with the offer's."""
    specs = tuple(_own(spec, policy) for spec in local.form.private)
    return replace(local, form=replace(local.form, private=specs))


def _own(spec: PrivateSpec, policy: Policy) -> PrivateSpec:
    held = policy.data.get(spec.name)
    if held is None:
        raise refused("data", "the owner holds no data of that name")
    mine = held.spec
    if spec.shape != mine.shape:
        which = f"'{mine.name}' has the shape {mine.shape} in the policy, and another in the offer"
        raise refused("data", which)
    if spec.columns and spec.columns != mine.columns:
        which = (
            f"the model names other columns of '{mine.name}', or another order, than columns = "
            f'under [data."{mine.name}"] in owner.toml: compare the two lists'
        )
        raise refused("data", which)
    if (spec.sign, spec.psd) != (mine.sign, mine.psd):
        raise refused("data", _otherwise(spec, mine))
    if (spec.bounds, spec.kind) != (mine.bounds, mine.kind):
        which = f"'{mine.name}' has other bounds=, boolean= or simplex= in the policy than here"
        raise refused("data", which)
    if spec.adjacency.in_full != mine.adjacency.in_full or type(spec.adjacency) is not type(
        mine.adjacency
    ):
        asked = show(spec.adjacency.in_full)  # the coordinator chose this text: it is escaped
        raise refused(
            "adjacency",
            f"of '{mine.name}': the offer says {asked}, the policy {show(mine.adjacency.in_full)}",
        )
    return mine


def _otherwise(spec: PrivateSpec, declared: PrivateSpec) -> str:
    """Return a text on the signs that only the offer or only the policy declares, with the fix."""
    asked, has = _signs(spec), _signs(declared)
    table = f'[data."{declared.name}"] in owner.toml'
    differences = [
        f"the offer says {word} and the policy does not: write {word} = true under {table}, if "
        "that is true of your data"
        for word in sorted(asked - has)
    ]
    differences += [
        f"the policy says {word} and the offer does not: leave {word} = true out of {table}, or "
        f"have the model say dp.Private(..., {word}=True)"
        for word in sorted(has - asked)
    ]
    return f"of '{declared.name}' {'; '.join(differences)}"


def _signs(spec: PrivateSpec) -> set[str]:
    signs = {"nonneg": spec.sign == "nonneg", "nonpos": spec.sign == "nonpos", "PSD": spec.psd}
    return {word for word, holds in signs.items() if holds}


def _check_noise(offer: Offer, policy: Policy) -> None:
    """Refuse noise that no plan between owners has; its privacy loss is derived later."""
    mechanism, multiplier = offer.mechanism, offer.request.multiplier
    needs, split = offer.algorithm.requirements, offer.split
    if mechanism is None or multiplier is None:
        if offer.program.form.private:
            raise refused("budget", "the offer adds no noise")
        if (mechanism, multiplier, split) != (None, None, None):
            raise refused("malformed", "noise")
        return
    if not 0 < multiplier < math.inf or mechanism.per_step() not in (None, multiplier):
        raise refused("malformed", "noise")
    if needs.perturbed is not None and not needs.perturbed >= 0:
        raise refused("malformed", "noise")
    if (split is None) != (needs.secret is None):
        raise refused("malformed", "noise")
    if split is None or needs.secret is None:
        return
    if not _is_proved(mechanism, split, offer):
        raise refused("malformed", "no proof covers the distributed noise")
    if max(offer.share, policy.share) > 1:
        raise refused("method", "one person may have data with several agents of a secure sum")
    if policy.max_colluders is None or split.max_colluders < policy.max_colluders:
        raise refused(
            "colluders",
            f"max_colluders in the policy is missing, or above the offer's {split.max_colluders}",
        )


def _is_proved(mechanism: Mechanism, split: SplitNoise, offer: Offer) -> bool:
    """Return whether the proof in `dpcvx.privacy.split_noise` covers this noise and grid."""
    secret, sharing = offer.algorithm.requirements.secret, getattr(offer.algorithm, "sharing", None)
    parties = len(offer.parts)
    return (
        secret is not None
        and type(mechanism) is Gaussian
        and split.scale < math.inf
        and (split.parties, split.max_colluders) == (parties, secret.colluders)
        and 1 <= split.max_colluders <= parties - 2
        and type(sharing) is SplitSharing
        and sharing.resolution == split.width
    )


def _check_document(offer: Offer) -> None:
    """Refuse a common document under which the guarantee of this owner would not hold.

    The document has a line with the program and the noise of each participant. Distributed noise
    protects this owner only if the honest others add their parts of it. So every line must state
    the noise of the offer: equal scales, mechanism, decay and weights.
    """
    if not sums_in_secret(offer.algorithm):
        if offer.lines:
            raise refused(
                "malformed",
                "the offer lists participants of secure aggregation, and its method has none",
            )
        return
    if tuple((line.agent, line.program) for line in offer.lines) != offer.parts:
        raise refused("documents", "the participants are not those of the plan")
    if wire.digest(offer.lines[offer.place]) != wire.digest(line_of(offer)):
        raise refused("documents", "the line of this owner is not what its offer says")
    if offer.algorithm.requirements.secret is None:
        return
    expected = _to_a_sum(offer.lines[offer.place])
    for line in offer.lines:
        if _to_a_sum(line) != expected or line.share != 1:
            raise refused(
                "documents", f"{show(line.agent)} adds other noise to the sums than this owner"
            )


def _to_a_sum(line: Line) -> tuple[object, ...] | None:
    """Return the properties of a participant's noise that all must share; None without noise."""
    mechanism = line.mechanism
    if mechanism is None or line.split is None:
        return None
    return line.split, type(mechanism), mechanism.decay


def _part(offer: Offer, local: LocalProgram, policy: Policy) -> AgentPart:
    """Return the agent's part of the plan, derived by the functions that make plans."""
    algorithm, request, once = offer.algorithm, offer.request, offer.release == "once"
    needs, noisy = algorithm.requirements, offer.mechanism is not None
    agents = (
        AgentPlan(
            program=local,
            needs=needs,
            share=max(offer.share, policy.share),
            sensitivity=local.sensitivity() if local.form.private else None,
        ),
    )
    asked = {local.name: offer.mechanism and Declared(offer.mechanism, policy.epsilon)}
    checks.check_once(offer.release, needs)
    if needs.exact:
        checks.check_affine(agents, algorithm, noisy, once)
    checks.check_terms(_alone(local), algorithm)
    if noisy:
        checks.check_decay(asked, algorithm)
        if not once:
            agents = answering(agents, needs)
        delta, multipliers = offer.delta, (request.multiplier,)
        agents = with_noise(agents, asked, multipliers, needs, offer.rounds, delta, once)
        if needs.perturbed is not None:
            agents = perturbed(agents, needs.perturbed)
        agents = _affordable(_split(agents, offer), offer, policy)
    if noisy and once:
        agents = _released(agents, request)
    checks.check_start(agents[0], once)
    return AgentPart(
        agent=agents[0],
        place=offer.place,
        algorithm=algorithm,
        rounds=offer.rounds,
        schedule=_schedule(offer, local),
        published=once and noisy,
        # It covers all that charges depend on: a charge for one document never pays for another.
        fingerprint=wire.digest((replace(offer, run=_run(offer), program=local), policy.delta)),
    )


def _split(agents: Agents, offer: Offer) -> Agents:
    """Return the agents with distributed noise as the offer states it; refuse too little noise."""
    split = offer.split
    if split is None:
        return agents
    agents = tuple(replace(a, noise=a.noise and replace(a.noise, split=split)) for a in agents)
    for agent in agents:
        _require_enough_noise_in_sums(agent, split, offer)
    return agents


def _released(agents: Agents, request: AgentRequest) -> Agents:
    """Return the agents with the statistics that they release once."""
    try:
        return released(agents, (request,) * len(agents))
    except PrivacyError:
        raise refused("malformed", "the agent's data have no such statistic") from None


def _run(offer: Offer) -> str:
    """Return the run's name if its releases may not be repeated in other runs, else an empty text.

    In secure aggregation, the noise of all participants hides each value. If equal values entered
    the sums of two runs, and one participant sent another value in the second, the difference of
    the sums would depend on that participant alone.
    """
    return offer.run if sums_in_secret(offer.algorithm) else ""


def _require_enough_noise_in_sums(agent: AgentPlan, split: SplitNoise, offer: Offer) -> None:
    """Refuse an offer whose stated privacy loss needs more noise than the participants add.

    The offer's common document has a line with the noise of each participant. The privacy loss
    follows from the offer's noise multiplier. The standard deviation of the honest participants'
    noise must be at least the multiplier times the sum's sensitivity, rounding included. Every
    release repeats this comparison with the sensitivity of its query.
    """
    noise = agent.noise
    if noise is None or MomentsTerm in agent.queries:
        return
    rounding = split.width * math.sqrt(agent.program.n)
    if noise.multiplier * (agent.bound + rounding) > _held(offer, split) * (1 + _SLACK):
        raise refused(
            "documents",
            "the other participants add too little noise for the loss that would be charged",
        )


def _schedule(offer: Offer, local: LocalProgram) -> tuple[int, ...]:
    """Return the total numbers of releases after 0, 1, ... rounds."""
    if offer.release == "once":
        return (1,) * (offer.rounds + 1)
    alone = _alone(local)
    return tuple(offer.algorithm.releases(rounds, alone) for rounds in range(offer.rounds + 1))


def _alone(local: LocalProgram) -> Program:
    return Program((local,), int(local.slots.max(initial=-1)) + 1, np.zeros(0), None)


def _check_statistic(offer: Offer) -> None:
    """Refuse statistics that no plan between owners releases; others are derived later."""
    request, sums = offer.request, offer.program.sums
    once = request.once
    if once is None:
        if request.estimates:
            raise refused("malformed", "the offer estimates a statistic that it does not name")
        return
    idle = offer.release != "once" or offer.mechanism is None or not offer.program.form.private
    if idle:
        raise refused("malformed", "the offer holds a statistic that it does not release")
    if once.encode is not None:
        require_small(math.prod(once.encode.shape), "entries of a statistic")
    if once.kind == "data" and once.encode is not None:
        raise refused("malformed", "a statistic would enter constraints with private data")
    if once.kind == "sums" and (
        sums is None
        or once.encode is None
        or sums.shape != once.encode.shape
        or (sums != once.encode).nnz > 0
    ):
        raise refused("malformed", "the offer releases sums that the model does not use")


def _affordable(agents: Agents, offer: Offer, policy: Policy) -> Agents:
    """Return the agents with their prices, and with the policy's budget."""
    (agent,) = priced(agents, _schedule(offer, agents[0].program)[-1], policy.delta)
    price = agent.price
    assert price is not None
    if exceeds(price, policy.epsilon):
        raise refused(
            "budget",
            f"the run costs epsilon {price.epsilon:.6g} at delta {policy.delta:g}, and the "
            f"policy allows {policy.epsilon:.6g}",
        )
    return (replace(agent, budget=policy.epsilon),)
