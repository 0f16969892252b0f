"""Requests to every owner as public documents, and checks of messages before their use.

An owner checks a method's message before its local update, so an invalid one costs no privacy. The
coordinator checks the answers of owners.
"""

from __future__ import annotations

import math
from dataclasses import fields, replace
from typing import Any

import numpy as np

from ..algorithms.admm import ADMM
from ..algorithms.base import Algorithm, Answer
from ..algorithms.consensus import Broadcast, LocalCopy
from ..algorithms.data_terms import DataTerms
from ..algorithms.decentralized_gradient import DecentralizedGradient
from ..algorithms.federated_averaging import FederatedAveraging
from ..algorithms.federated_gradient import FederatedGradient, Moved
from ..algorithms.joint import AtPoint, size_of
from ..algorithms.learned_scale import QUESTIONS, ScaleQuestion
from ..algorithms.linearized_admm import LinearizedADMM
from ..algorithms.objective_perturbation import Minimize, ObjectivePerturbation
from ..algorithms.on_networks import Inbox
from ..algorithms.one_shot import Found, Left, LeftInShares, MomentsQuestion, OneShot
from ..algorithms.primal_dual import PrimalDual
from ..algorithms.program import LocalProgram
from ..algorithms.summed import Delivery, Heard, Question, Shared
from ..errors import ModelError, RefusedError
from ..model.declaration import Declaration
from ..plan.agent_plan import AgentPlan
from ..plan.terms import Terms
from ..privacy.entries import Entry
from ..privacy.mechanism import MECHANISMS
from ..privacy.secret_sharing import Partial, SecretSum
from ..sensitivity.release_once import Publication
from ..sensitivity.second_moments import moments_of
from . import wire
from .messages import AgentReply, Agreed, FinalAccount, Line, Offer, refused
from .records import REVISIONS, obstacle, sums_in_secret
from .wellformed import HUGE, all_differ, are_numbers, require_small, require_well_formed


def require_agreed(said: Agreed, name: str, rounds: int, keyed: bool) -> None:
    """Refuse an owner's agreement if its key or its number of rounds is invalid.

    Parameters
    ----------
    said : Agreed
    name : str
        Name of the agent.
    rounds : int
        Number of rounds of the plan.
    keyed : bool
        Whether the method uses secure aggregation, so that an owner sends a mask key.

    Raises
    ------
    RefusedError
        With code "nonsense".
    """
    key = said.key
    fits = (key is not None) == keyed and (key is None or key.agent == name)
    if not fits or not 0 <= said.rounds <= rounds:
        raise refused("nonsense", f"agent '{name}'")


def require_reply(
    said: AgentReply, asked: object, algorithm: Algorithm[Any, Any], local: LocalProgram
) -> None:
    """Refuse a reply that no local update of the method produces.

    Parameters
    ----------
    said : AgentReply
    asked : object
        Message of the method that the reply answers.
    algorithm : Algorithm
    local : LocalProgram
        Program of the agent.

    Raises
    ------
    RefusedError
        With code "nonsense". Only an agent that reports divergence may send infinite or too large
        numbers.
    """
    where = f"agent '{local.name}', round {said.t}"
    if not said.diverged and not are_numbers(said.message):
        raise refused("nonsense", f"{where}: numbers that are not finite, or too large")
    if not _replies(said.message, asked, algorithm, local, said.t):
        raise refused("nonsense", where)


def require_answer(answer: Answer, local: LocalProgram, diverged: bool) -> None:
    """Refuse iterates of a wrong shape, or with infinite or too large numbers.

    Parameters
    ----------
    answer : Answer
        Shared components of the agent's iterates.
    local : LocalProgram
        Program of the agent.
    diverged : bool
        Whether the agent has reported divergence; any numbers then pass.

    Raises
    ------
    RefusedError
        With code "nonsense".
    """
    fits = all(_is_vector(x, local.shared.size) for x in (answer.last, answer.average))
    weight = 1.0 if answer.weight is None else answer.weight
    if not fits or not 0 < weight < math.inf or not (diverged or are_numbers(answer)):
        raise refused("nonsense", f"the result of agent '{local.name}'")


def require_account(said: FinalAccount, local: LocalProgram, t: int, diverged: bool) -> None:
    """Refuse a final account with invalid iterates, violation or ledger entries.

    Parameters
    ----------
    said : FinalAccount
    local : LocalProgram
        Program of the agent.
    t : int
        Last round that the account may have entries for.
    diverged : bool
        Whether the agent has reported divergence.

    Raises
    ------
    RefusedError
        With code "nonsense".
    """
    require_answer(said.answer, local, diverged)
    if said.violation < 0 or not all(_is_charge(entry, t) for entry in said.entries):
        raise refused("nonsense", f"the account of agent '{local.name}'")


def _is_charge(entry: Entry, t: int) -> bool:
    sizes = (entry.multiplier, entry.sensitivity, entry.grid)
    pure = entry.stated is None or (0 < entry.stated[0] < HUGE and entry.stated[1] == 0)
    supported = entry.mechanism in MECHANISMS and pure
    inside = 0 <= entry.round <= t and entry.step >= 1
    return (
        supported and inside and all(0 <= x < HUGE for x in sizes) and entry.multiplier > 1 / HUGE
    )


def _replies(
    said: object, asked: object, algorithm: Algorithm[Any, Any], local: LocalProgram, t: int
) -> bool:
    n, central = local.n, isinstance(algorithm, OneShot)
    match asked, said:
        case Broadcast(w=w), LocalCopy(z=z, lam=lam):
            return _is_vector(z, w.size) and _is_vector(lam, w.size)
        case Inbox(values=values), _:
            return _is_vector(said, values.shape[1])
        case Moved() | Found(), None:
            return True
        case MomentsQuestion(term=term), Shared():
            return _is_term(said, term.size)
        case ((Delivery(sums=sums) | (SecretSum() as sums, list())), Partial()):
            same = (said.sender, said.round) == (local.name, t)
            return same and said.words.shape == sums.shape
        case (None, Heard(residual=residual)), _:
            return _is_vector(said, residual.size)
        case (SecretSum(), Heard()), ():
            return True
        case Question(sums=None), Left(terms=None, data=data) if central and local.as_written:
            moments = moments_of(local.form.private, 2)
            read = {
                local.form.data_size,
                0 if local.sums is None else local.sums.shape[0],
                0 if moments is None else moments.size,
            }
            return any(_is_vector(data, size) for size in read)
        case Question(sums=None), Left(terms=DataTerms() as terms, data=None) if central:
            return _is_vector(terms.slope, n) and terms.curvature.shape == (n, n)
        case Question(sums=SecretSum(), size=size), LeftInShares() if central:
            return _is_term(said.slope, size) and said.curvature.shape == (n, n)
        case Minimize(), _:
            return _is_vector(said, n)
        case ScaleQuestion(sums=None), _:
            return _is_vector(said, asked.answers)
        case ScaleQuestion(), Shared():
            return _is_term(said, asked.answers)
        case Question(sums=None, size=size), _ if not central:
            return _is_vector(said, size)
        case Question(sums=SecretSum(), size=size), Shared() if not central:
            return _is_term(said, size)
        case _:
            return False


def _is_vector(value: object, size: int) -> bool:
    if not isinstance(value, np.ndarray):
        return False
    return value.dtype == np.float64 and value.shape == (size,)


def _is_term(value: Shared, size: int) -> bool:
    """Return whether a reply is a masked value of this size: a public part without shares."""
    return value.others == () and _is_vector(value.public, size)


# Largest number of components of a sum: a call makes an owner hold this many numbers.
MOST_SUMMED = 10_000_000


def require_sense(
    message: object, algorithm: Algorithm[Any, Any], local: LocalProgram, k: int, parties: int
) -> None:
    """Refuse a message that the method's server side never sends.

    Parameters
    ----------
    message : object
    algorithm : Algorithm
    local : LocalProgram
        Program of the agent that receives the message.
    k : int
        Number of the message exchange within the round, from 0.
    parties : int
        Number of agents.

    Raises
    ------
    RefusedError
        With code "nonsense".
    """
    if not are_numbers(message):
        raise refused("nonsense", "numbers that are not finite, or too large")
    if not _sensible(message, algorithm, local, k, parties):
        raise refused("nonsense", type(message).__name__)


def _sensible(
    message: object, algorithm: Algorithm[Any, Any], local: LocalProgram, k: int, parties: int
) -> bool:
    shared = local.shared.size
    if isinstance(algorithm, (LinearizedADMM, ADMM)):
        if not isinstance(message, Broadcast) or message.w.shape != (shared,):
            return False
        return 1 / HUGE < message.rho < HUGE
    if isinstance(algorithm, (DecentralizedGradient, PrimalDual)):
        return isinstance(message, Inbox) and _inbox(message, shared, parties)
    if isinstance(algorithm, FederatedAveraging):
        return isinstance(message, tuple) and len(message) == 2 and _heard(*message, k, parties)
    if isinstance(message, Minimize):
        return k == 0 and isinstance(algorithm, ObjectivePerturbation)
    if isinstance(message, ScaleQuestion):
        positive = 1 / HUGE < message.limit < HUGE and 1 / HUGE < message.unit < HUGE
        learns = isinstance(algorithm, FederatedGradient) and algorithm.scale is not None
        listed = message.what in QUESTIONS and positive and learns
        fits = message.sums is None or _sum(message.sums, parties)
        return k == 0 and listed and fits and _in_whole(message, local.n)
    if isinstance(message, Question):
        return k == 0 and _question(message, local.n, parties)
    if isinstance(message, Delivery):
        return k == 1 and len(message.shares) <= parties and _sum(message.sums, parties)
    if isinstance(algorithm, OneShot):
        if isinstance(message, MomentsQuestion):
            return k == 0 and _sum(message.sums, parties)
        kind: type[Moved] | type[Found] = Found
    else:
        kind = Moved
    return isinstance(message, kind) and (message.x is None or message.x.shape == (local.n,))


def _inbox(message: Inbox, shared: int, parties: int) -> bool:
    count = len(message.senders)
    distinct = len(set(message.senders)) == count <= parties
    inside = all(0 <= sender < parties for sender in (*message.senders, message.own))
    fits = message.values.shape == (count, shared)
    return distinct and inside and fits and message.weights.shape in ((count,), (count + 1,))


def _heard(sums: object, content: object, k: int, parties: int) -> bool:
    """Return whether a message holds the last round's sum (k = 0) or this one's shares (k = 1)."""
    if not isinstance(sums, (SecretSum, type(None))):
        return False
    if isinstance(content, Heard):
        fits = k == 0 and content.agents == parties and content.residual.ndim == 1
        return fits and (sums is None or _sum(sums, parties))
    shares = isinstance(content, list) and len(content) <= parties
    return k == 1 and shares and sums is not None and _sum(sums, parties)


def _question(message: Question, n: int, parties: int) -> bool:
    return _in_whole(message, n) and (message.sums is None or _sum(message.sums, parties))


def _in_whole(message: AtPoint, n: int) -> bool:
    """Return whether a query gives each variable its own position in the joint vector."""
    columns = message.place
    if message.at.shape != (n,) or columns.shape != (n,) or not 0 < message.size <= MOST_SUMMED:
        return False
    return bool((columns >= 0).all() and (columns < message.size).all()) and all_differ(columns)


def _sum(sums: SecretSum, parties: int) -> bool:
    return len(set(sums.agents)) == len(sums.agents) == parties == sums.encoding.parties


# Fields of an offer that differ between agents. Lines show them to all participants; every other
# field, also one that is added to `Offer` later, belongs to the common document.
_OWN = ("agent", "place", "mechanism", "share", "program", "request", "split")


def offers_of(plan: Terms, run: str) -> tuple[Offer, ...]:
    """Return a plan's offers to the owners, one per agent in the order of the agents.

    Parameters
    ----------
    plan : Terms
    run : str
        Name of this run.

    Raises
    ------
    ModelError
        If the plan cannot be run between owners.
    RefusedError
        With code "large", if an array of the plan has more entries than owners accept.
    """
    _require_possible(plan)
    programs = [wire.portable(local) for local in plan.program.agents]
    parts = tuple(
        (local.name, _digest(agent, local))
        for agent, local in zip(plan.agents, programs, strict=True)
    )
    deltas = [agent.price.delta for agent in plan.agents if agent.price is not None]
    offers = tuple(
        Offer(
            run=run,
            agent=agent.name,
            place=k,
            plan=plan.fingerprint,
            algorithm=plan.algorithm,
            revision=REVISIONS[type(plan.algorithm)],
            mechanism=agent.noise and agent.noise.mechanism,
            rounds=plan.rounds,
            release=plan.release,
            observer="everyone",  # plans for other observers are refused above
            delta=max(deltas, default=0.0),
            share=agent.share,
            parts=parts,
            lines=(),
            program=program,
            request=agent.request,
            split=agent.noise and agent.noise.split,
        )
        for k, (agent, program) in enumerate(zip(plan.agents, programs, strict=True))
    )
    if not sums_in_secret(plan.algorithm):
        return offers
    lines = tuple(map(line_of, offers))
    return tuple(replace(offer, lines=lines) for offer in offers)


def line_of(offer: Offer) -> Line:
    """Return the public terms of an offer's agent in secure aggregation."""
    request, program = offer.request, offer.parts[offer.place][1]
    return Line(
        agent=offer.agent,
        program=program,
        share=offer.share,
        mechanism=offer.mechanism,
        multiplier=request.multiplier,
        once="" if request.once is None else wire.digest((request.once, request.estimates)),
        split=offer.split,
    )


def document_of(offer: Offer) -> str:
    """Return the digest of the terms that an offer shares with all other offers of its run."""
    names = (entry.name for entry in fields(Offer) if entry.name not in _OWN)
    return wire.digest(tuple((name, getattr(offer, name)) for name in names))


def _require_possible(plan: Terms) -> None:
    name = plan.algorithm.called
    why = obstacle(plan.algorithm, plan.observer)
    if why:
        raise ModelError(
            f"{name} cannot be run between owners: {why}. Use dp.LinearizedADMM(), "
            "dp.FederatedGradient() or dp.OneShot(), with observer='everyone'."
        )
    count = size_of(plan.program)
    if isinstance(plan.algorithm, (OneShot, FederatedGradient)) and count > MOST_SUMMED:
        raise RefusedError(
            "large",
            f"{name} sums {count} components over all agents, but owners take part in sums of at "
            f"most {MOST_SUMMED}. Use dp.LinearizedADMM(), which exchanges shared variables "
            "alone. Or run with all agents in one place: plan.run().",
        )
    _require_owners(plan.problem)
    for agent in plan.agents:
        local = agent.program
        if local.asserted is not None:
            raise ModelError(
                f"Agent '{agent.name}' has an asserted sensitivity. Leave out dp.Agent(..., "
                "sensitivity=...), or clip its records by clip_norm=. The agent's owner could not "
                "check the assertion."
            )
        if local.limits:
            raise ModelError(
                f"Agent '{agent.name}' has private data in its constraints. Run the plan with "
                "agents in one place, plan.run(), or move such constraints to recourse=. Their "
                "margins follow from the whole problem, which no owner sees."
            )
        if local.form.private and agent.noise is None:
            raise ModelError(
                f"The plan has no noise for agent '{agent.name}'. Plan with epsilon= and delta=. "
                "No owner takes part in a run without noise."
            )
        if any(expectation is not None for expectation in agent.expected):
            raise ModelError(
                f"prior= has values for data of agent '{agent.name}'. Plan without prior=. Priors "
                "cannot be sent to owners yet."
            )
        statistic = agent.publication
        if isinstance(statistic, Publication) and statistic.kind == "shaped data":
            raise ModelError(  # only next to private data in constraints
                f"Agent '{agent.name}' releases its data with shaped noise, which a run between "
                "owners does not support. Run it with all agents in one place, plan.run(), or plan "
                "with release='each_step'."
            )


def _digest(agent: AgentPlan, program: LocalProgram) -> str:
    """Return a program's digest, after checking that an owner would accept the program."""
    try:
        require_well_formed(program)
        once = agent.request.once
        if once is not None and once.encode is not None:
            require_small(math.prod(once.encode.shape), "entries of a statistic")
        return wire.digest(program)
    except RefusedError as error:
        raise RefusedError(
            error.code,
            f"Agent '{program.name}' cannot take part between owners ({error.code}). {error} "
            "Split its data over several agents, or run with agents in one place: plan.run().",
        ) from None


def _require_owners(problem: Declaration) -> None:
    """Refuse a problem with an agent that dpcvx has added for slacks, since no owner can be it."""
    slacks = {slack.id: slack for slack in problem.slacks}
    for name, agent in problem.named.items():
        held = [piece.variable for piece in agent.layout.pieces if piece.variable in slacks]
        if held and len(held) == len(agent.layout.pieces):
            shape = slacks[held[0]].shape
            size = f"{shape[0] if len(shape) == 1 else shape}" if shape else ""
            raise ModelError(
                f"coupling= has an inequality, whose slack is held by '{name}', an agent that "
                "dpcvx adds. Let an agent of yours hold the slack: write slack = "
                f"cp.Variable({size}), slack >= 0 among the constraints of one dp.Agent, and a + "
                "slack == b in coupling= in place of a <= b. No owner can be the added agent."
            )
