"""Checks of messages before their use: answers of owners, and messages of methods.

An owner checks a method's message before its local update, so an invalid one costs no privacy.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..algorithms.admm import ADMM
from ..algorithms.base import Algorithm, Answer
from ..algorithms.consensus import Broadcast, LocalCopy
from ..algorithms.data_terms import DataTerms
from ..algorithms.decentralized_gradient import DecentralizedGradient
from ..algorithms.federated_averaging import FederatedAveraging
from ..algorithms.federated_gradient import FederatedGradient, Moved
from ..algorithms.joint import AtPoint
from ..algorithms.learned_scale import QUESTIONS, ScaleQuestion
from ..algorithms.linearized_admm import LinearizedADMM
from ..algorithms.objective_perturbation import Minimize, ObjectivePerturbation
from ..algorithms.on_networks import Inbox
from ..algorithms.one_shot import Found, Left, LeftInShares, MomentsQuestion, OneShot
from ..algorithms.primal_dual import PrimalDual
from ..algorithms.program import LocalProgram
from ..algorithms.summed import Delivery, Heard, Question, Shared
from ..privacy.entries import Entry
from ..privacy.mechanism import MECHANISMS
from ..privacy.secret_sharing import Partial, SecretSum
from ..sensitivity.second_moments import moments_of
from .messages import AgentReply, Agreed, FinalAccount, refused
from .wellformed import HUGE, all_differ, are_numbers


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
