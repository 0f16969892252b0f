"""Messages and refusals between coordinator and owners; see `dpcvx.owners.records`.

=============  ===========  ====================================================================
message        from         answered by
=============  ===========  ====================================================================
`Hello`        owner        `Offer`
`Offer`        coordinator  `Agreed`, or `Refusal`
`Partners`     coordinator  `Agreed` again, where sums are masked
`Call`         coordinator  `AgentReply`; the same call again by the same bytes
`Ask`          coordinator  `IterateAnswer`
`End`          coordinator  `FinalAccount`
`RunOver`      coordinator  `RunOver` again, once it is heard; the owner leaves
`Refusal`      both         nothing: it ends the conversation
=============  ===========  ====================================================================

Why an owner does not take part, or a coordinator does not go on: a code, never data.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..algorithms.base import Algorithm, Answer
from ..algorithms.program import LocalProgram
from ..errors import RefusedError
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
    """Request to an owner to take part in a run. Public.

    With secret sums, the fields that are not one agent's own are the common document of the run;
    see `dpcvx.owners.offers.document_of`.

    Attributes
    ----------
    run : str
        Name of the run, a new one in every attempt.
    agent : str
    place : int
        The agent's position among all.
    plan : str
        Fingerprint of the plan.
    algorithm : Algorithm
    revision : int
        Revision of the meaning of the method's turns; see `dpcvx.owners.records`.
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
        Release in place of the first round.
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
    """An owner's public key for masks in a run, in hexadecimal digits."""

    agent: str
    document: str  # digest of the common document that the owner accepted
    public: str
    certificate: str  # of the agent; empty between owners of one process
    signature: str  # by the certificate's key; see `dpcvx.owners.masks.statement`


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
        Largest privacy loss of the run.
    sensitivity : float
        Sensitivity of its gradient in l2, derived by the owner.
    key : Key or None
        Key for the masks of secret sums; None if nothing is summed in secret.
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
    """Why somebody does not go on: a code of `REASONS`.

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
class AgentReply:
    """Reply of the agent after a local update; see `dpcvx.run.worker.Reply`."""

    run: str
    t: int
    k: int
    message: object
    outcome: Outcome
    diverged: bool


@dataclass(frozen=True, eq=False)
class Ask:
    """Request for the iterates so far."""

    run: str


@dataclass(frozen=True, eq=False)
class IterateAnswer:
    """Shared components of the iterates so far."""

    run: str
    answer: Answer


@dataclass(frozen=True, eq=False)
class End:
    """Message that a run ends after so many rounds: all that the plan has, or fewer."""

    run: str
    status: Literal["completed", "stopped"]
    rounds: int


@dataclass(frozen=True, eq=False)
class FinalAccount:
    """Final account of the agent for the coordinator."""

    run: str
    answer: Answer  # shared components
    violation: float  # how far its last iterate leaves its set
    entries: tuple[Entry, ...]  # what the run was charged, as its ledger has it


@dataclass(frozen=True, eq=False)
class RunOver:
    """Message that a run is over: the coordinator's log has all accounts, and no owner is needed.

    An owner whose ledger has the run as its last one, and closed, stops waiting; others refuse.
    """

    run: str


@dataclass(frozen=True, eq=False)
class RunBegun:
    """Entry in a coordinator's log: the run, and digests of all offers, in the owners' order."""

    run: str
    plan: str
    offers: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Exchange:
    """Entry in a coordinator's log: the agents that replied, with their replies."""

    t: int
    k: int
    replies: tuple[tuple[str, AgentReply], ...]


@dataclass(frozen=True, eq=False)
class Answers:
    """Entry in a coordinator's log: the owners' iterates, in their order."""

    told: tuple[IterateAnswer, ...]


@dataclass(frozen=True, eq=False)
class Ended:
    """Entry in a coordinator's log: the rounds that ledgers covered, and the final accounts."""

    rounds: int
    accounts: tuple[FinalAccount, ...]


@dataclass(frozen=True, eq=False)
class Parted:
    """Entry in a coordinator's log: agents whose owners know that the run is over."""

    agents: tuple[str, ...]


# What each code says. The codes are all that crosses between owners.
REASONS = {
    "unreadable": "The bytes are no message of this package",
    "version": "The message is of another version of the format, or of a method",
    "large": "The message, or something in it, is larger than this package reads",
    "altered": "The message is not what was sent",
    "malformed": "The document is not one that a plan could have made",
    "name": "The offer is addressed to another agent",
    "method": "The owner takes no part in runs of this method",
    "asserted": "A sensitivity is asserted, and owners derive their own",
    "data": "The data that are asked about are not those that the owner holds",
    "unfit": "The owner's data, or a value of them, do not fit the declaration or a limit",
    "adjacency": "The offer protects other changes of the data than the owner does",
    "model": "The program is not that of the owner's own model",
    "partners": "Too few others take part",
    "documents": "The participants were sent documents that do not agree",
    "colluders": "The noise protects against fewer colluders than the owner asks for",
    "sensitivity": "Nothing bounds what one change of the data does to what is asked",
    "budget": "The run costs more than the owner allows",
    "spent": "The owner's ledger leaves no room for the run",
    "ledger": "The owner's ledger cannot be used",
    "storage": "A file that the run needs cannot be read or written",
    "order": "The message does not belong to this place of the run",
    "nonsense": "The message is not what the method sends",
    "away": "The other side cannot be reached",
    "declined": "The person who was asked said no",
    "ended": "The coordinator ended the run, and asks nothing more",
    "changed": "An answer or a document differs from an earlier one of the run",
    "taken": "Another process of this name takes part already",
    "certificate": "A certificate has expired, is not valid yet, was revoked, or is not accepted",
    "stranger": "A certificate is not the one that it should be",
    "failed": "The owner's computation failed; its own log says how",
}


def refused(code: str, detail: str) -> RefusedError:
    """Return a refusal by its code; see `REASONS`.

    Parameters
    ----------
    code : str
    detail : str
        Detail of public facts alone; it is not sent.
    """
    return RefusedError(code, f"{REASONS[code]}{f' ({detail})' if detail else ''}.")


def going_on(error: RefusedError) -> RefusedError:
    """Return the same refusal for a run that has begun.

    Parameters
    ----------
    error : RefusedError
    """
    return RefusedError(error.code, f"{error} Run the same call or command again to resume.")
