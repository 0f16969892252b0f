"""What coordinator and owners say to each other; each is a record of `dpcvx.owners.records`.

=============  ===========  ====================================================================
message        from         answered by
=============  ===========  ====================================================================
`Hello`        owner        `Offer`
`Offer`        coordinator  `Agreed`, or `Refusal`
`Partners`     coordinator  `Agreed` again, where sums are masked
`Call`         coordinator  `Reply`; the same call again by the same bytes
`Ask`          coordinator  `Told`
`End`          coordinator  `Account`
`Over`         coordinator  `Over` again, once it is heard; the owner leaves
`Refusal`      both         nothing: it ends the conversation
=============  ===========  ====================================================================
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..algorithms.base import Algorithm, Answer
from ..algorithms.program import LocalProgram
from ..privacy.entries import Entry
from ..privacy.mechanism import Calibrated
from ..sensitivity.release_once import Once
from ..solvers.conic import Outcome

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Hello:
    """An owner is here."""

    agent: str


@dataclass(frozen=True, eq=False)
class Line:
    """The request to one participant of secret sums, as the document shows it to all. Public."""

    agent: str
    program: str  # its digest
    noise: Calibrated | None  # of what the participant adds to a sum
    share: int
    once: str  # digest of the statistic that is released once; empty without one


@dataclass(frozen=True, eq=False)
class Offer:
    """What an owner is asked to take part in. Public.

    With secret sums, the fields that are not one agent's own are the common document of the run;
    see `dpcvx.owners.offers.document_of`.

    Attributes
    ----------
    run : str
        Of its own name in every attempt.
    agent : str
    place : int
        The agent's position among all.
    plan : str
        Fingerprint of the plan.
    algorithm : Algorithm
    revision : int
        Of what the method's turns mean; see `dpcvx.owners.methods`.
    noise : Calibrated or None
        None for an agent without private data.
    rounds : int
    release : {"each_step", "once"}
    observer : {"everyone", "last_iterate"}
    delta : float
    share : int
        Among how many agents one person's data may be spread.
    parts : tuple of (str, str)
        All agents and the digests of their programs.
    lines : tuple of Line
        One per participant of secret sums, in the order of the agents; empty without such sums.
    program : LocalProgram
        The agent's.
    once : Once or None
        What leaves in the first round's place.
    """

    run: str
    agent: str
    place: int
    plan: str
    algorithm: Algorithm[Any, Any]
    revision: int
    noise: Calibrated | None
    rounds: int
    release: Literal["each_step", "once"]
    observer: Literal["everyone", "last_iterate"]
    delta: float
    share: int
    parts: tuple[tuple[str, str], ...]
    lines: tuple[Line, ...]
    program: LocalProgram
    once: Once | None


@dataclass(frozen=True, eq=False)
class Key:
    """An owner's public key for masks in a run, in hexadecimal digits.

    Attributes
    ----------
    agent : str
    document : str
        Digest of the common document that the owner accepted.
    public : str
    certificate : str
        Of the agent; empty between owners of one process.
    signature : str
        By the certificate's key; see `dpcvx.owners.masks.statement`.
    """

    agent: str
    document: str
    public: str
    certificate: str
    signature: str


@dataclass(frozen=True, eq=False)
class Agreed:
    """An owner takes part.

    Attributes
    ----------
    run : str
    rounds : int
        That its ledger covers.
    place : (int, int)
        Its last round and exchange in this run; zeros before the first.
    epsilon, delta : float
        What the run costs it at most.
    sensitivity : float
        Of its gradient in l2, as it derived it.
    key : Key or None
        For the masks of secret sums; None where nothing is summed in secret.
    """

    run: str
    rounds: int
    place: tuple[int, int]
    epsilon: float
    delta: float
    sensitivity: float
    key: Key | None


@dataclass(frozen=True, eq=False)
class Partners:
    """The keys of all owners, in the order of the agents."""

    run: str
    keys: tuple[Key, ...]


@dataclass(frozen=True, eq=False)
class Refusal:
    """Why somebody does not go on: a code of `dpcvx.owners.refusal`.

    A coordinator that ends a run sends the code that ended it to all owners that are there.
    """

    code: str


@dataclass(frozen=True, eq=False)
class Call:
    """A turn of a method: round (from 1), exchange (from 0), and what the server side sends."""

    run: str
    t: int
    k: int
    message: object


@dataclass(frozen=True, eq=False)
class Reply:
    """What the agent's turn gave; see `dpcvx.run.worker.Reply`."""

    run: str
    t: int
    k: int
    message: object
    outcome: Outcome
    diverged: bool


@dataclass(frozen=True, eq=False)
class Ask:
    """For the iterates so far."""

    run: str


@dataclass(frozen=True, eq=False)
class Told:
    """Shared components of the iterates so far."""

    run: str
    answer: Answer


@dataclass(frozen=True, eq=False)
class End:
    """The run is over after so many rounds: all that the plan has, or fewer."""

    run: str
    status: Literal["completed", "stopped"]
    rounds: int


@dataclass(frozen=True, eq=False)
class Account:
    """What the agent hands over at the end.

    Attributes
    ----------
    run : str
    answer : Answer
        Shared components.
    violation : float
        How far its last iterate leaves its set.
    entries : tuple of Entry
        What the run was charged, as its ledger has it.
    """

    run: str
    answer: Answer
    violation: float
    entries: tuple[Entry, ...]


@dataclass(frozen=True, eq=False)
class Over:
    """All accounts of a run are in the coordinator's log, and no owner is needed any more.

    An owner whose ledger has the run as its last one, and closed, stops waiting; others refuse.
    """

    run: str


@dataclass(frozen=True, eq=False)
class Begun:
    """In a coordinator's log: the run, and digests of what owners were asked, in their order."""

    run: str
    plan: str
    offers: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Exchange:
    """In a coordinator's log: the agents that replied, with their replies."""

    t: int
    k: int
    replies: tuple[tuple[str, Reply], ...]


@dataclass(frozen=True, eq=False)
class Answers:
    """In a coordinator's log: what owners told of their iterates, in their order."""

    told: tuple[Told, ...]


@dataclass(frozen=True, eq=False)
class Ended:
    """In a coordinator's log: the rounds that ledgers covered, and what owners handed over."""

    rounds: int
    accounts: tuple[Account, ...]


@dataclass(frozen=True, eq=False)
class Parted:
    """In a coordinator's log: agents whose owners have heard that the run is over."""

    agents: tuple[str, ...]
