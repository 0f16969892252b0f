r"""Secure aggregation: only the sum of all agents' values is revealed, by additive secret sharing.

Algorithm 3 of Xiao, Ye and Devadas, "Local differential privacy in decentralized optimization".
Each of N agents writes its value as an integer modulo :math:`2^{64}`, splits it into N shares,

.. math:: v_i \equiv \sum_j s_{ij}, \qquad
    s_{ij} \text{ uniform and independent except for one } j,

sends :math:`s_{ij}` to agent j over a private channel and keeps :math:`s_{ii}`. Then every agent
broadcasts the sum :math:`\hat s_j \equiv \sum_i s_{ij}` of the shares it holds, and :math:`\sum_j
\hat s_j \equiv \sum_i v_i`. Unsigned 64-bit integers compute exactly modulo :math:`2^{64}`. Only
the values are rounded, once, to multiples of a declared resolution.

The messages are protected. If the shares come from a cryptographic source, the joint view of up to
N - 2 agents has one distribution for all values of the others that have one sum. Proof: let C be a
coalition, and i and k two agents outside it. Add any r to :math:`s_{ik}` and subtract it from
:math:`s_{kk}`. All column sums, everything that C sees, and the distribution of the shares stay
unchanged, and r moves from the value of k to the value of i.

The result is not protected. The sum is exact, and every agent learns it. So an agent learns the
difference of two rounds, and N - 1 agents learn the last agent's value by subtracting theirs.
Without noise there is no epsilon: differential privacy of the sum needs noise in the shared values.
If that noise is calibrated to the sum (`split_noise`), agents must reveal nothing but the sum. Too
large values are then neither clipped nor refused by the agent, but wrap around (`Residues`). Agents
follow the protocol; an altered message alters the sum, which only a range check can detect. The
paper allows any modulus p above the largest absolute value of the sum S. It must be twice as large,
since otherwise S and S - p can both be possible.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._arguments import POSITIVE, check_fields, integer, is_int, show
from ..errors import DataError, ModelError
from ..guard import frameless
from .randomness import Randomness, Secure
from .split_noise import BITS, residues

Array = NDArray[np.float64]
Words = NDArray[np.uint64]

# Sums over all agents stay below half of the modulus, since the highest bit is the sign.
_HALF = 2**63
# Residues occupy the upper BITS bits of a 64-bit word.
_SHIFT = 64 - BITS


@frameless
@dataclass(frozen=True)
class Encoding:
    """Fixed-point numbers whose sum over all agents cannot wrap around.

    Parameters
    ----------
    limit : float
        Largest absolute value of an entry of one agent's values.
    resolution : float
        Distance of neighboring fixed-point numbers, a power of two. Encoding then rounds each value
        once, to the nearest number, and sums are exact.
    parties : int
        Number of agents whose values are added up.

    Raises
    ------
    ModelError
        Unless ``parties * limit / resolution`` is below 2**63.
    """

    limit: float
    resolution: float
    parties: int

    def __post_init__(self) -> None:
        largest = "the largest absolute value that an entry of one agent can have"
        check_fields(
            self,
            "",
            limit=POSITIVE.because(largest),
            parties=integer(1),
            resolution=POSITIVE.because("a power of two, for example 2.0**-20"),
        )
        mantissa, exponent = math.frexp(self.resolution)
        if mantissa != 0.5:
            raise ModelError(
                f"resolution must be a power of two, but is {show(self.resolution)}. Write "
                f"2.0**{exponent - 1}, the next finer one. Other numbers would be rounded more "
                "than once."
            )
        if self.resolution > self.limit:
            raise ModelError(
                f"resolution={self.resolution:g} is coarser than the limit of {self.limit:g}. "
                "Write a finer resolution. Values would be rounded to zero."
            )
        if self.parties * self.steps >= _HALF:
            least = Fraction(self.limit) * self.parties / _HALF
            finest = math.frexp(float(least))[1]
            while Encoding._steps(self.limit, Fraction(2) ** finest) * self.parties >= _HALF:
                finest += 1
            raise ModelError(
                f"{self.parties} values of up to {self.limit:g} in steps of {self.resolution:g} "
                "can add up to 2**63 steps or more, where the sum wraps around and is wrong "
                f"without notice. Write resolution=2.0**{finest} or coarser, or a smaller limit."
            )

    @property
    def steps(self) -> int:
        """Largest absolute value of an entry, in units of the resolution."""
        return self._steps(self.limit, Fraction(self.resolution))

    @staticmethod
    def _steps(limit: float, resolution: Fraction) -> int:
        return round(Fraction(limit) / resolution)

    def encode(self, values: ArrayLike) -> Words:
        """Return the values as integers modulo 2**64, in units of the resolution.

        Returns
        -------
        ndarray of uint64, of the same shape
            Words of the values, rounded to the nearest multiple, ties to even.

        Raises
        ------
        DataError
            If a value is not a number or exceeds the limit. The message contains no value, but the
            error itself reveals this fact: clip values first if it is private.
        """
        array = _numbers(values)
        if array is None:  # raised here, without the exception that would show values
            raise DataError(
                "Values to be shared are not an array of real numbers (they are not shown). Pass "
                "an array of real numbers. Only sums of these can be formed, so nothing was "
                "shared."
            )
        if not (np.abs(array) <= self.limit).all():  # refuses NaN as well
            raise DataError(
                f"Values to be shared are not all of absolute value at most limit={self.limit:g} "
                f"(they are not shown). Declare a larger limit, or write numpy.clip(values, "
                f"{-self.limit:g}, {self.limit:g}). Their sum could wrap around, so nothing was "
                "shared."
            )
        with np.errstate(under="ignore"):  # values far below the resolution
            nearest = np.rint(array / self.resolution)
        return nearest.astype(np.int64).view(np.uint64)

    def decode(self, total: Words) -> Array:
        """Return the values encoded by integers modulo 2**64: sums of at most `parties` values.

        Returns
        -------
        ndarray of float, of the same shape
            The exact sum of the encoded values, rounded to a float.

        Raises
        ------
        ModelError
            If the integers cannot be such sums.
        """
        signed = _words(total, "The total").view(np.int64)
        reach = self.parties * self.steps
        if not ((signed <= reach) & (signed >= -reach)).all():
            raise ModelError(
                f"The total is beyond what {self.parties} values of up to {self.limit:g} can add "
                "up to: a share is missing, altered or from another round. Nothing was decoded; "
                "repeat the round."
            )
        return np.asarray(signed * self.resolution, dtype=np.float64)


@frameless
@dataclass(frozen=True)
class Residues:
    """Encoding of multiples of a width, whose sum over all agents is taken modulo a power of two.

        The power is 2**52 times the width, so that a residue is exact as a float. Residues occupy
        the upper bits of a word, so that sums of words wrap around exactly as sums of residues do.
        For any summands, a sum of words therefore reveals only the sum's residue.

    Parameters
    ----------
    limit : float
        Bound of the absolute value of an entry of one agent, including its noise.
    width : float
        Distance of neighboring values, a power of two.
    parties : int
        Number of agents whose values are added up.
    """

    limit: float
    width: float
    parties: int

    def encode(self, values: ArrayLike) -> Words:
        """Return values (rounded to multiples of the width) as words, modulo 2**52."""
        steps = np.asarray(values, dtype=np.float64) / self.width
        return residues(steps).astype(np.int64).view(np.uint64) << np.uint64(_SHIFT)

    def decode(self, total: Words) -> Array:
        """Decode sums of words (integers modulo 2**64) into sums of values.

        Raises
        ------
        ModelError
            If the decoded sum exceeds the limit times the number of parties. Only the sum is
            tested.
        """
        steps = _words(total, "The total").view(np.int64) >> np.int64(_SHIFT)
        values = np.asarray(steps * self.width, dtype=np.float64)
        if not np.abs(values).max(initial=0.0) <= self.parties * self.limit:
            raise ModelError(
                "A secure sum is beyond what dp.SecretSharing(limit=...) and the noise allow, so "
                "an agent's values are larger than the limit, or a share was altered. What was "
                "released is spent, and the run ends here: the sum may have wrapped around. If "
                "points grow from round to round, take shorter steps; otherwise declare a larger "
                "limit."
            )
        return values


def split(encoded: Words, parties: int, source: Randomness | None = None) -> Words:
    """Return shares that add up to an encoded value modulo 2**64.

    Any `parties` - 1 of the shares are independent and uniform, for every value.

    Parameters
    ----------
    encoded : ndarray of uint64
        Value to be split, from `Encoding.encode` or `Residues.encode`.
    parties : int
        Number of shares, at least 2.
    source : Randomness, optional
        Random source; by default, the operating system's cryptographic generator. With a seeded
        source, anyone who knows the seed can compute the value from one share.

    Returns
    -------
    ndarray of uint64, shape (parties, *encoded.shape)
    """
    if not is_int(parties, 2):
        raise ModelError(
            f"parties={show(parties)} must be a whole number of at least 2. A single share is the "
            "value itself."
        )
    value = _words(encoded, "The value to be split")
    drawn = (source or Secure()).words((parties - 1) * value.size)
    shares = np.empty((parties, *value.shape), dtype=np.uint64)
    shares[:-1] = drawn.reshape(parties - 1, *value.shape)
    shares[-1] = value - combine(shares[:-1])
    return shares


def combine(shares: Sequence[Words] | Words) -> Words:
    """Return the sum of shares modulo 2**64, as an array of the shares' shape."""
    stacked = np.stack([_words(share, "A share") for share in shares])
    return np.asarray(np.add.reduce(stacked, axis=0, dtype=np.uint64))


@dataclass(frozen=True, eq=False)
class Share:
    """Message with one share, which only its receiver may read: it must travel encrypted.

    Attributes
    ----------
    sender, receiver : str
        Names of two agents.
    round : int
        Round of the sum.
    words : ndarray of uint64
        The share.
    """

    sender: str
    receiver: str
    round: int
    words: Words = field(repr=False)


@dataclass(frozen=True, eq=False)
class Partial:
    """Public message with the sum of all shares that one agent holds."""

    sender: str
    round: int
    words: Words = field(repr=False)


@frameless
@dataclass(frozen=True)
class SecretSum:
    """One round of secret sharing between agents that can all send messages to each other.

    Every agent calls `shares`, keeps its own share and sends each other share to its receiver. Then
    it calls `partial` with its own and the received shares, and broadcasts the result. `total` of
    all broadcasts is the sum. This object is public and equal for all agents.

    On incomplete networks, shares could be sent to neighbors only. An agent's neighbors together
    know all of its shares except the one it kept, which its broadcast reveals. So its value would
    be protected only against fewer colluding agents than it has neighbors. An agent with a single
    neighbor has no protection.

    Parameters
    ----------
    agents : tuple of str
        Names of at least three agents.
    encoding : Encoding or Residues
        Encoding for at least as many parties.
    shape : tuple of int
        Shape of the arrays in the sum.
    round : int
        Number of the round, used once: messages with another number are refused.
    """

    agents: tuple[str, ...]
    encoding: Encoding | Residues
    shape: tuple[int, ...] = ()
    round: int = 0

    def __post_init__(self) -> None:
        n = len(self.agents)
        if len(set(self.agents)) < n or n < 3:
            raise ModelError(
                f"agents={show(self.agents)} must be three different names or more: of two agents, "
                "each learns the other's value from the sum, and there is nothing to protect."
            )
        if self.encoding.parties < n:
            raise ModelError(
                f"The encoding has {self.encoding.parties} parties, but there are {n} agents. "
                f"Write parties={n}. Only then does the encoding keep sums from wrapping around."
            )

    def shares(
        self, sender: str, values: ArrayLike, source: Randomness | None = None
    ) -> tuple[Share, ...]:
        """Return the shares of one agent's values, one per agent, including its own.

        Parameters
        ----------
        sender : str
            Name of the agent.
        values : array of shape `shape`
            Private values of the agent.
        source : Randomness, optional
            See `split`.

        Raises
        ------
        DataError
            If the values do not fit the shape or the encoding.
        """
        self._member(sender, "sender of shares")
        encoded = self.encoding.encode(values)
        if encoded.shape != self.shape:
            raise DataError(
                f"The values of agent '{sender}' have the shape {encoded.shape}, but shape "
                f"{self.shape} is expected. Pass arrays of one shape for all agents. Nothing was "
                "shared."
            )
        parts = split(encoded, len(self.agents), source)
        return tuple(
            Share(sender, receiver, self.round, np.asarray(part))
            for receiver, part in zip(self.agents, parts, strict=True)
        )

    def partial(self, receiver: str, shares: Sequence[Share]) -> Partial:
        """Return the sum of the shares that one agent holds, for it to broadcast.

        Raises
        ------
        ModelError
            If a share is missing, duplicated, for another agent, or of another round or shape. The
            message names the agents. The receiver must not broadcast a sum then.
        """
        self._member(receiver, "receiver of shares")
        astray = [share for share in shares if share.receiver != receiver]
        if astray:
            raise ModelError(
                f"Agent '{receiver}' got the share of agent '{astray[0].sender}' for agent "
                f"'{astray[0].receiver}'. Deliver shares to their receivers only. With both "
                "shares, the agent would know more than it may."
            )
        return Partial(
            receiver, self.round, combine(self._complete(shares, "share", f" for '{receiver}'"))
        )

    def total(self, partials: Sequence[Partial]) -> Array:
        """Return the sum of all agents' values from the sums that they broadcast.

        Returns
        -------
        ndarray, shape `shape`
            Exact sum of the encoded values, each of which was rounded by at most half a resolution.

        Raises
        ------
        ModelError
            If a message is missing, duplicated, or of another round or shape, or the sum is too
            large.
        """
        return self.encoding.decode(combine(self._complete(partials, "sum of shares", "")))

    def _complete(
        self, messages: Sequence[Share] | Sequence[Partial], kind: str, whose: str
    ) -> list[Words]:
        """Return the contents of the messages, exactly one per agent, in the agents' order.

        Missing, repeated or foreign messages raise an error. `kind` and `whose` describe the
        messages in it.
        """
        by_sender: dict[str, Words] = {}
        for message in messages:
            self._member(message.sender, f"sender of a {kind}")
            if message.round != self.round:
                raise ModelError(
                    f"The {kind} of agent '{message.sender}' is of round {message.round}, not of "
                    f"{self.round}: mixed rounds do not add up to anything. Discard it."
                )
            if message.sender in by_sender:
                raise ModelError(
                    f"Agent '{message.sender}' is there with more than one {kind}{whose}: one "
                    "counted twice changes the sum. Keep the first and discard repetitions."
                )
            words = _words(message.words, f"The {kind} of agent '{message.sender}'")
            if words.shape != self.shape:
                raise ModelError(
                    f"The {kind} of agent '{message.sender}' has the shape {words.shape}, not "
                    f"{self.shape}."
                )
            by_sender[message.sender] = words
        absent = [name for name in self.agents if name not in by_sender]
        if absent:
            names = ", ".join(f"'{name}'" for name in absent)
            raise ModelError(
                f"No {kind}{whose} has come from {names}. Without it the sum of the others is a "
                "random number: wait, or repeat the round with a new number and new shares, "
                "without the agents that dropped out."
            )
        return [by_sender[name] for name in self.agents]

    def _member(self, name: str, role: str) -> None:
        if name not in self.agents:
            raise ModelError(
                f"'{name}', {role}, does not take part in this round of {self.agents}."
            )


def _numbers(values: ArrayLike) -> Array | None:
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        return None


def _words(value: Words, what: str) -> Words:
    if getattr(value, "dtype", None) != np.uint64:
        raise ModelError(
            f"{what} must be an array of uint64, as `Encoding.encode` and `split` return, not "
            f"{type(value).__name__}: other types do not wrap around at 2**64."
        )
    return np.asarray(value)
