"""Messages and refusals between coordinator and owners; see `dpcvx.owners.records`.

=============  ===========  ====================================================================
message        sender       answer
=============  ===========  ====================================================================
`Hello`        owner        `Offer`
`Offer`        coordinator  `Agreed`, or `Refusal`
`Partners`     coordinator  a second `Agreed`; only in secure aggregation
`Call`         coordinator  `AgentReply`; a repeated call gets identical bytes
`Ask`          coordinator  `IterateAnswer`
`End`          coordinator  `FinalAccount`
`RunOver`      coordinator  `RunOver`; then the owner disconnects
`Refusal`      both         none: it ends the conversation
=============  ===========  ====================================================================

A refusal, of an owner or of the coordinator, holds a code and never data.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..algorithms.base import Algorithm, Answer
from ..algorithms.program import LocalProgram
from ..errors import RefusedError
from ..plan.request import AgentRequest
from ..privacy.entries import Entry
from ..privacy.mechanism import Mechanism
from ..privacy.split_noise import SplitNoise
from ..solvers.conic import Outcome

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Hello:
    """First message of an owner on a connection, with its agent's name."""

    agent: str


@dataclass(frozen=True, eq=False)
class Line:
    """Public terms of one participant of secure aggregation, which every owner's offer shows."""

    agent: str
    program: str  # digest of the program
    share: int
    mechanism: Mechanism | None
    multiplier: float | None
    once: str  # digest of the statistic that is released once; empty without one
    split: SplitNoise | None  # noise that the participant adds to a sum


@dataclass(frozen=True, eq=False)
class Offer:
    """Request to an owner to take part in a run. Public.

    It is the projection of a plan's `CompleteRequest` to one agent: fields of the same names have
    the same values for all agents, and `request` is the agent's. The owner derives sensitivity,
    noise and price from it by the functions that made the plan.

    In secure aggregation, the fields that do not differ between agents form the common document of
    the run; see `dpcvx.owners.offers.document_of`.

    Attributes
    ----------
    run : str
        Name of the run; a resumed run keeps its name.
    agent : str
        Name of the agent.
    place : int
        Position of the agent among all agents.
    plan : str
        Fingerprint of the plan.
    algorithm : Algorithm
    revision : int
        Revision of the method's local updates; see `dpcvx.owners.records`.
    mechanism : Mechanism or None
        Mechanism of the agent's noise; None for an agent without private data.
    rounds : int
        Number of planned rounds.
    release : {"each_step", "once"}
    observer : {"everyone", "last_iterate"}
    delta : float
        Largest delta of all agents' guarantees.
    share : int
        Largest number of agents that one person may have data with.
    parts : tuple of (str, str)
        Names of all agents and digests of their programs.
    lines : tuple of Line
        Lines of all participants, in the order of the agents; empty without secure aggregation.
    program : LocalProgram
        Program of the agent, compiled with its clip.
    request : AgentRequest
        Multiplier of the agent's noise, and the statistic that it releases once.
    split : SplitNoise or None
        Noise that the agent adds to a sum in secure aggregation. It follows from all agents, so
        the owner cannot derive it, and checks its privacy loss against `lines`.
    """

    run: str
    agent: str
    place: int
    plan: str
    algorithm: Algorithm[Any, Any]
    revision: int
    mechanism: Mechanism | None
    rounds: int
    release: Literal["each_step", "once"]
    observer: Literal["everyone", "last_iterate"]
    delta: float
    share: int
    parts: tuple[tuple[str, str], ...]
    lines: tuple[Line, ...]
    program: LocalProgram
    request: AgentRequest
    split: SplitNoise | None


@dataclass(frozen=True, eq=False)
class Key:
    """An owner's public mask key for a run, in hexadecimal digits, with its signature."""

    agent: str
    document: str  # digest of the common document that the owner accepted
    public: str
    certificate: str  # certificate of the agent; empty between owners of one process
    signature: str  # by the certificate's key; see `dpcvx.owners.masks.statement`


@dataclass(frozen=True, eq=False)
class Agreed:
    """Agreement of an owner to take part in a run.

    Attributes
    ----------
    run : str
        Name of the run.
    rounds : int
        Number of rounds that the budget in the owner's ledger covers.
    place : (int, int)
        Last round, and exchange within it, that this owner answered; (0, -1) before the first.
    epsilon, delta : float
        Privacy loss of the whole run.
    sensitivity : float
        Sensitivity of the agent's gradient in l2, as the owner derived it; 0 without private data.
    key : Key or None
        Public mask key; None without secure aggregation.
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
    """Message with the public mask keys of all owners, in the order of the agents."""

    run: str
    keys: tuple[Key, ...]


@dataclass(frozen=True, eq=False)
class Refusal:
    """Refusal of an owner or the coordinator to continue, with a code of `REASONS`.

    A coordinator that ends a run sends the code of its reason to all connected owners.
    """

    code: str


@dataclass(frozen=True, eq=False)
class Call:
    """Request for a local update: round (from 1), exchange within it (from 0), and message."""

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
    """Request for an agent's current iterates."""

    run: str


@dataclass(frozen=True, eq=False)
class IterateAnswer:
    """Answer with the shared components of an agent's current iterates."""

    run: str
    answer: Answer


@dataclass(frozen=True, eq=False)
class End:
    """Message that a run ends after `rounds` rounds, which are at most the planned ones."""

    run: str
    status: Literal["completed", "stopped"]
    rounds: int


@dataclass(frozen=True, eq=False)
class FinalAccount:
    """Message with an owner's last iterates, violation and releases, at the end of a run."""

    run: str
    answer: Answer  # shared components of the iterates
    violation: float  # largest violation of the agent's constraints by its last iterate
    entries: tuple[Entry, ...]  # entries of the owner's ledger for this run


@dataclass(frozen=True, eq=False)
class RunOver:
    """Message that a run is over: the coordinator's log holds all final accounts.

    An owner accepts it if the last run in its ledger is this one, and has ended; else it refuses.
    """

    run: str


@dataclass(frozen=True, eq=False)
class RunBegun:
    """Entry in a coordinator's log: a run, its plan, and digests of the offers by agent."""

    run: str
    plan: str
    offers: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Exchange:
    """Entry in a coordinator's log: one request for updates, with agents' names and replies."""

    t: int
    k: int
    replies: tuple[tuple[str, AgentReply], ...]


@dataclass(frozen=True, eq=False)
class Answers:
    """Entry in a coordinator's log: the owners' current iterates, in the order of the agents."""

    told: tuple[IterateAnswer, ...]


@dataclass(frozen=True, eq=False)
class Ended:
    """Entry in a coordinator's log: the rounds that ledgers covered, and the final accounts."""

    rounds: int
    accounts: tuple[FinalAccount, ...]


@dataclass(frozen=True, eq=False)
class Parted:
    """Entry in a coordinator's log: agents whose owners confirmed that the run is over."""

    agents: tuple[str, ...]


# Meaning of each code. Of an error, only its code is sent to another party.
REASONS = {
    "unreadable": "The bytes are no message of this package",
    "version": "The versions of both sides differ, or an owner's has changed since the run began",
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
    """Return the error of a refusal with this code; see `REASONS`.

    Parameters
    ----------
    code : str
        Key of `REASONS`.
    detail : str
        Detail for this side's message, of public facts alone; it is not sent.
    """
    return RefusedError(code, f"{REASONS[code]}{f' ({detail})' if detail else ''}.")


def going_on(error: RefusedError) -> RefusedError:
    """Return a refusal with the advice to resume, for a run that has begun.

    Parameters
    ----------
    error : RefusedError
        Refusal without this advice.
    """
    return RefusedError(error.code, f"{error} Run the same call or command again to resume.")
