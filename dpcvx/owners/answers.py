"""What owners send, checked before it is kept: a log holds nothing that a run cannot go on from."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..algorithms.base import Algorithm, Answer
from ..algorithms.consensus import Broadcast, LocalCopy
from ..algorithms.data_terms import DataTerms
from ..algorithms.federated_gradient import Moved
from ..algorithms.learned_scale import ScaleQuestion
from ..algorithms.on_networks import Inbox
from ..algorithms.one_shot import Found, Left, LeftInShares, MomentsQuestion, OneShot
from ..algorithms.program import LocalProgram
from ..algorithms.secret_terms import Delivery, Question, Shared
from ..algorithms.summed import Heard
from ..privacy.entries import Entry
from ..privacy.mechanism import MECHANISMS
from ..privacy.secret_sharing import Partial, SecretSum
from .messages import Account, Agreed, Reply
from .numbers import HUGE, are_numbers
from .refusal import refused


def require_agreed(said: Agreed, name: str, rounds: int, keyed: bool) -> None:
    """Refuse an owner's word that no owner gives.

    Parameters
    ----------
    said : Agreed
    name : str
        Of the agent.
    rounds : int
        Those of the plan.
    keyed : bool
        Whether owners form sums in secret.

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
    said: Reply, asked: object, algorithm: Algorithm[Any, Any], local: LocalProgram
) -> None:
    """Refuse what an agent's turn never gives.

    Parameters
    ----------
    said : Reply
    asked : object
        The message that it answers.
    algorithm : Algorithm
    local : LocalProgram
        Of the agent.

    Raises
    ------
    RefusedError
        With code "nonsense". Numbers that are none leave an agent that says it diverged, and no
        other.
    """
    where = f"agent '{local.name}', round {said.t}"
    if not said.diverged and not are_numbers(said.message):
        raise refused("nonsense", f"{where}: numbers that are none, or too large")
    if not _replies(said.message, asked, algorithm, local, said.t):
        raise refused("nonsense", where)


def require_answer(answer: Answer, local: LocalProgram, diverged: bool) -> None:
    """Refuse iterates that are none.

    Parameters
    ----------
    answer : Answer
        Shared components.
    local : LocalProgram
    diverged : bool
        Whether the agent has said so.

    Raises
    ------
    RefusedError
        With code "nonsense".
    """
    fits = all(_is_vector(x, local.shared.size) for x in (answer.last, answer.average))
    weight = 1.0 if answer.weight is None else answer.weight
    if not fits or not 0 < weight < math.inf or not (diverged or are_numbers(answer)):
        raise refused("nonsense", f"the result of agent '{local.name}'")


def require_account(said: Account, local: LocalProgram, t: int, diverged: bool) -> None:
    """Refuse a report that is none.

    Parameters
    ----------
    said : Account
    local : LocalProgram
    t : int
        The last round.
    diverged : bool
        Whether the agent has said so.

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
    known = entry.mechanism in MECHANISMS and entry.stated is None
    inside = 0 <= entry.round <= t and entry.step >= 1
    return known and inside and all(0 <= x < HUGE for x in sizes) and entry.multiplier > 1 / HUGE


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
            read = 0 if local.sums is None else local.sums.shape[0]
            return _is_vector(data, local.form.data_size) or _is_vector(data, read)
        case Question(sums=None), Left(terms=DataTerms() as terms, data=None) if central:
            return _is_vector(terms.slope, n) and terms.curvature.shape == (n, n)
        case Question(sums=SecretSum(), size=size), LeftInShares() if central:
            return _is_term(said.slope, size) and said.curvature.shape == (n, n)
        case ScaleQuestion(), _:
            return _is_vector(said, asked.answers)
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
    """What is public of a term whose shares others compute by themselves."""
    return value.others == () and _is_vector(value.public, size)
