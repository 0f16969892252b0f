"""Messages of methods, checked before a turn begins: nonsense costs nothing."""

from __future__ import annotations

from typing import Any

from ..algorithms.admm import ADMM
from ..algorithms.base import Algorithm
from ..algorithms.consensus import Broadcast
from ..algorithms.decentralized_gradient import DecentralizedGradient
from ..algorithms.federated_averaging import FederatedAveraging
from ..algorithms.federated_gradient import FederatedGradient, Moved
from ..algorithms.joint import AtPoint
from ..algorithms.learned_scale import QUESTIONS, ScaleQuestion
from ..algorithms.linearized_admm import LinearizedADMM
from ..algorithms.on_networks import Inbox
from ..algorithms.one_shot import Found, MomentsQuestion, OneShot
from ..algorithms.primal_dual import PrimalDual
from ..algorithms.program import LocalProgram
from ..algorithms.secret_terms import Delivery, Question
from ..algorithms.summed import Heard
from ..privacy.secret_sharing import SecretSum
from .numbers import HUGE, are_numbers
from .refusal import refused
from .wellformed import all_differ

# Components of a sum that an owner has a part of: one call makes it hold so many numbers.
MOST_SUMMED = 10_000_000


def require_sense(
    message: object, algorithm: Algorithm[Any, Any], local: LocalProgram, k: int, parties: int
) -> None:
    """Refuse what the method's server side never sends.

    Parameters
    ----------
    message : object
    algorithm : Algorithm
    local : LocalProgram
        Of the agent that it is sent to.
    k : int
        The exchange.
    parties : int
        Number of agents.

    Raises
    ------
    RefusedError
        With code "nonsense".
    """
    if not are_numbers(message):
        raise refused("nonsense", "numbers that are none, or too large")
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
    if isinstance(message, ScaleQuestion):
        positive = 1 / HUGE < message.limit < HUGE and 1 / HUGE < message.unit < HUGE
        learns = isinstance(algorithm, FederatedGradient) and algorithm.scale is not None
        known = message.what in QUESTIONS and positive and learns
        return k == 0 and known and _in_whole(message, local.n)
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
    """A sum of the round before, or shares of one of this round."""
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
    """Whether a question names as many places in the vector of all agents as there are numbers."""
    place = message.place
    if message.at.shape != (n,) or place.shape != (n,) or not 0 < message.size <= MOST_SUMMED:
        return False
    return bool((place >= 0).all() and (place < message.size).all()) and all_differ(place)


def _sum(sums: SecretSum, parties: int) -> bool:
    return len(set(sums.agents)) == len(sums.agents) == parties == sums.encoding.parties
