"""An owner's side of a conversation with the coordinator, over any transport of frames.

A coordinator's request for a local update (`Call`) states its run, its round, and its number within
the round. The owner answers a repeated request with the same bytes.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._events import event
from .._words import plural
from ..algorithms.base import Answer
from ..errors import BudgetError, DataError, DpcvxError, LedgerError, RefusedError
from ..privacy.ledger_file import Journal, past_of
from ..privacy.secret_sharing import SecretSum
from ..run.part import gate_of, worker_of
from ..run.resume import begin
from ..run.worker import Worker
from . import wire
from .agreement import Agreement, against_ledger, agree, said_of_budget
from .audit_log import AuditLog, said_time, versions
from .faults import file_words
from .files import Ending, OwnerFiles, OwnResult
from .keys import PartyIdentity, fingerprint_of
from .masks import KeyFile, Masker, masked, statement, unsent
from .messages import (
    REASONS,
    AgentReply,
    Agreed,
    Ask,
    Call,
    End,
    FinalAccount,
    Hello,
    IterateAnswer,
    Key,
    Offer,
    Partners,
    Refusal,
    RunOver,
    refused,
)
from .offers import document_of, require_sense
from .policy import Policy
from .records import sums_in_secret

Array = NDArray[np.float64]
# Position after all message rounds of a round.
_LATE = 1 << 20
# Codes of messages that this owner cannot use, and that change nothing here.
_UNUSABLE = ("nonsense", "order", "unreadable", "altered")
# Number of successive connections with unusable messages alone after which an owner gives up.
_IN_VAIN = 8
# Largest number of characters of a reason that an error quotes; longer ones are in the log alone.
_SHORT = 500


class Session:
    """An owner's participation in runs, one after the other, under its policy.

    Parameters
    ----------
    policy : Policy
    consent : callable
        Function of an `Agreement` that returns whether to take part, called before any charge.
    seed : int, optional
        Noise seed, for studies and tests: anyone who knows it can subtract the noise.
    record : bool
        Whether to keep the released values in `result`.
    identity : PartyIdentity, optional
        Keys that sign this owner's mask key and verify the others'. If omitted, mask keys are not
        signed, which suits owners in one process only.
    watch : callable, optional
        Called before each local update with the agreement, the round, and the number of rounds.
    audit : AuditLog, optional
        Log of the requests that `reply` receives, with their times.

    Attributes
    ----------
    identity : PartyIdentity or None
    result : OwnResult or None
        Result of the last run that ended in this session; None before.
    refusal : RefusedError or None
        Error for which this owner takes no part or does not continue; None otherwise.
    """

    def __init__(
        self,
        policy: Policy,
        consent: Callable[[Agreement], bool] | None = None,
        *,
        seed: int | None = None,
        record: bool = False,
        identity: PartyIdentity | None = None,
        watch: Callable[[Agreement, int, int], None] | None = None,
        audit: AuditLog | None = None,
    ) -> None:
        self.policy = policy
        self.result: OwnResult | None = None
        self.refusal: RefusedError | None = None
        self.identity, self._masker = identity, None
        self._consent, self._watch = consent, watch
        self._audit, self._arrived, self._opened = audit, 0.0, False
        self._seed, self._record = seed, record
        self._open = ExitStack()
        self._agreed: Agreement | None = None
        self._journal: Journal | None = None
        self._kept = OwnerFiles(policy.ledger)
        self._worker: Worker | None = None
        self._earlier = 0
        self._reply, self._place, self._rounds = b"", (0, -1), 0
        self._reached = 0  # round of an interrupted run that is resumed
        self._ending: Ending | None = None
        self._last_word = b""  # answer to the offer of a run that has ended here
        self._in_vain = 0  # connections since the last usable message
        self._told = False  # whether the coordinator has sent the end of the run for all

    @property
    def over(self) -> bool:
        """Return whether the session expects no more messages."""
        return self.refusal is not None or self._told

    def hello(self) -> bytes:
        """Return the first message of a connection, as bytes: the agent's name."""
        return wire.encode(Hello(self.policy.agent))

    def handle(self, frame: bytes) -> bytes:
        """Return the answer to a message, both as bytes; errors become codes.

        The owner's log has the details of an error.

        A session that has refused repeats its refusal for every further frame. It also refuses
        after eight connections in a row that brought no message that it can use.
        """
        if self.refusal is not None:
            return wire.encode(Refusal(self.refusal.code))
        try:
            answer, self._in_vain = self._handled(frame), 0
            return answer
        except RefusedError as error:
            code, said = error.code, str(error)
        except BudgetError as error:
            code, said = "spent", said_of_budget(error)
        except DataError as error:
            code, said = "unfit", str(error)
        except LedgerError as error:
            code, said = "ledger", str(error)
        except DpcvxError as error:
            code, said = "failed", str(error)
        except OSError as error:
            code, said = "storage", file_words(error, None, "used")
        except Exception:
            code, said = "failed", traceback.format_exc()
        noted = self._kept.note(f"{code}: {said}")
        event("declined", {"agent": self.policy.agent, "code": code})
        self._audit_refusal(code)
        if code in _UNUSABLE and self._in_vain >= _IN_VAIN:
            last = plural(self._in_vain, "connection")
            said = f"the last {last} brought no message that this owner can use"
        if code not in _UNUSABLE or self._in_vain >= _IN_VAIN:
            detail = said.removeprefix(REASONS[code]).strip().removesuffix(".")
            detail = detail[1:-1] if detail.startswith("(") else detail
            where = f"see {self._kept.path('log').name}"
            self.refusal = refused(code, detail if len(said) < _SHORT or not noted else where)
            self.close()
        return wire.encode(Refusal(code))

    def reply(self, frame: bytes) -> bytes:
        """Return the answer to an encoded message, at a time that the policy's `reply_after` sets.

        The answer to an end of the run, regular or by a refusal of the coordinator, does not
        depend on data, and is sent at once.
        """
        called = time.monotonic()
        self._arrived = 0.0 if self._audit is None else self._audit.now()
        answer = self.handle(frame)
        step = self.policy.reply_after
        ended = self._told or (self.refusal is not None and self.refusal.code == "ended")
        if step > 0 and not ended:
            steps = (time.monotonic() - called) // step + 1
            time.sleep(max(called + steps * step - time.monotonic(), 0.0))
            if self._audit is not None:
                with suppress(OSError, LedgerError):  # the next request raises the error
                    self._audit.add("reply", self._arrived + steps * step)
        self._arrived = 0.0
        return answer

    def met(self, address: str, coordinator: str, uses: str) -> None:
        """Log a new connection to a coordinator.

        Parameters
        ----------
        address : str
            Address of the coordinator.
        coordinator : str
            Fingerprint of the coordinator's certificate.
        uses : str
            Version that the coordinator names.
        """
        self._in_vain += 1
        facts = {"agent": self.policy.agent, "address": address, "version": uses}
        event("connected", facts)
        if self._audit is not None:
            with suppress(OSError, LedgerError):  # the next request raises the error
                facts = {"address": address, "coordinator": coordinator, "uses": uses}
                self._audit.add("connected", self._audit.now(), **facts)

    def _audit_request(self, said: object) -> None:
        """Write a coordinator's request to the audit log, before any computation for it."""
        if self._audit is None or not self._arrived:
            return
        if not self._opened:
            self._audit.add("opened", **self._self_description())
            self._opened = True
        arrived, kind = self._arrived, type(said).__name__
        if isinstance(said, Offer):
            facts = {"run": said.run, "plan": said.plan, "digest": wire.digest(said)}
            method = type(said.algorithm).__name__
            self._audit.add("offer", arrived, **facts, method=method, rounds=said.rounds)
            return
        facts = {"kind": kind, "run": getattr(said, "run", "")}
        if isinstance(said, Call):
            facts |= {"round": said.t, "exchange": said.k}
        elif isinstance(said, End):
            facts |= {"status": said.status, "rounds": said.rounds}
        elif isinstance(said, Refusal):
            facts |= {"code": said.code if said.code in REASONS else "version"}
        self._audit.add("request", arrived, **facts)

    def _self_description(self) -> dict[str, Any]:
        """Return the audit log's facts on this owner, and on runs in the ledger before the log."""
        assert self._audit is not None
        identity, ledger = self.identity, self.policy.ledger
        printed = "" if identity is None else fingerprint_of(identity.certificate.encode())
        facts: dict[str, Any] = {"agent": self.policy.agent, "certificate": printed}
        if not self._audit.path.exists() and ledger.exists():
            past = past_of(ledger)
            open_ = [] if past.interrupted is None else [past.interrupted.fingerprint]
            facts["earlier"] = [*past.finished, *open_]
        return facts

    def _audit_refusal(self, code: str) -> None:
        if self._audit is None or not self._arrived:
            return
        with suppress(OSError, LedgerError):  # a fault of the log may be the reason of the refusal
            run = "" if self._agreed is None else self._agreed.offer.run
            self._audit.add("refused", code=code, run=run, arrived=said_time(self._arrived))

    def _require_same_versions(self, offer: Offer) -> None:
        """Refuse to resume a run under other package versions: repeated values could differ."""
        if self._audit is None:
            return
        began, now = self._audit.begun_with(offer.run), versions()
        if began is not None and dict(began) != dict(now):
            names = [n for n in {**began, **now} if began.get(n) != now.get(n)]
            before = ", ".join(f"{n} {began.get(n, 'absent')}" for n in names)
            after = ", ".join(f"{n} {now.get(n, 'absent')}" for n in names)
            raise refused(
                "version",
                f"the run began with {before}, and this is {after}: repeated values could differ. "
                "Install what it began with, or have a new run begun",
            )

    def close(self) -> None:
        """Close the ledger and the audit log, and drop the data."""
        self._open.close()
        if self._audit is not None:
            self._audit.close()
        self._agreed = self._worker = self._journal = self._masker = None
        self._place, self._reply = (0, -1), b""

    def _handled(self, frame: bytes) -> bytes:
        said = wire.decode(frame)
        self._audit_request(said)
        if isinstance(said, Offer):
            return self._offered(said, frame)
        if isinstance(said, Refusal) and not self.over:
            why = said.code if said.code in REASONS else "version"
            raise refused("ended", f"its reason: {why}")
        if isinstance(said, RunOver):
            return self._parted(said, frame)
        if not isinstance(said, (Partners, Call, Ask, End)):
            raise refused("order", type(said).__name__)
        ending = self._ending
        if isinstance(said, (Partners, End)) and ending is not None and said.run == ending.end.run:
            return wire.encode(ending.account) if isinstance(said, End) else self._last_word
        agreed = self._agreed
        if isinstance(said, End):
            facts = {"agent": self.policy.agent, "run": said.run}
            event("finished", {**facts, "status": said.status, "round": said.rounds})
        if agreed is None or said.run != agreed.offer.run:
            raise refused("order", "no such run")
        if isinstance(said, Partners):
            return self._partnered(said, frame, agreed)
        if isinstance(said, Call):
            return self._called(said, agreed)
        assert self._worker is not None
        if isinstance(said, Ask):
            return wire.encode(IterateAnswer(said.run, _shared(self._answer(), agreed)))
        return self._ended(said, agreed)

    def _offered(self, offer: Offer, document: bytes) -> bytes:
        before = self._agreed
        same = before is not None and wire.digest(before.offer) == wire.digest(offer)
        if before is None or not same:
            self.close()
            self._kept.keep("offer", document)
            facts = {"agent": self.policy.agent, "run": offer.run}
            event("offered", {**facts, "rounds": offer.rounds})
            agreed = agree(offer, self.policy)
            final = self._finished(agreed)
            if final:
                return final
            agreed = against_ledger(agreed, self._seed is not None)
            if agreed.open:
                self._require_same_versions(offer)
            self._ask(agreed, document)
            self._begin(agreed)
            if agreed.open:
                event("rejoined", {**facts, "round": self._reached})
            else:
                event("joined", {**facts, "rounds": self._rounds})
            if self._audit is not None and self._arrived:
                part = agreed.part.fingerprint
                self._audit.add("begun", run=offer.run, part=part, versions=dict(versions()))
        return self._word()

    def _ask(self, agreed: Agreement, document: bytes) -> None:
        """Prompt the person who must consent; not again for a run that has begun and resumes."""
        if self._consent is None or (agreed.open and self._kept.known("yes") == document):
            return
        consents = self._consent(agreed)
        answer = "yes" if consents else "no"
        event("consented", {"agent": self.policy.agent, "run": agreed.offer.run, "answer": answer})
        if self._audit is not None and self._arrived:
            self._audit.add("consent", run=agreed.offer.run, answer=answer)
        if not consents:
            raise refused("declined", "")
        self._kept.keep("yes", document)

    def _word(self) -> bytes:
        agreed = self._agreed
        assert agreed is not None
        return self._said(agreed, self._masker, self._rounds, self._place)

    def _said(
        self, agreed: Agreement, masker: Masker | None, rounds: int, round_step: tuple[int, int]
    ) -> bytes:
        key = None
        if masker is not None:
            public, name = masker.public.hex(), self.policy.agent
            said = statement(masker.document, name, public)
            identity = self.identity
            signed = ("", "") if identity is None else (identity.certificate, identity.signed(said))
            key = Key(name, masker.document, public, *signed)
        return wire.encode(
            Agreed(
                run=agreed.offer.run,
                rounds=rounds,
                place=round_step,
                epsilon=agreed.epsilon,
                delta=self.policy.delta,
                sensitivity=agreed.agent.bound,
                key=key,
            )
        )

    def _partnered(self, said: Partners, frame: bytes, agreed: Agreement) -> bytes:
        """Verify and store all owners' mask keys, once per run; all must accept equal terms."""
        names = [name for name, _ in agreed.offer.parts]
        if self._masker is None or [key.agent for key in said.keys] != names:
            raise refused("partners", "keys for masks")
        publics: dict[str, bytes] = {}
        for key in said.keys:
            if self.identity is not None:
                told = statement(key.document, key.agent, key.public)
                self.identity.verify(key.agent, key.certificate, told, key.signature)
            if key.document != self._masker.document:
                raise refused("documents", f"'{key.agent}' accepted another one than this owner")
            try:
                publics[key.agent] = bytes.fromhex(key.public)
            except ValueError:
                raise refused("stranger", f"the key of '{key.agent}'") from None
        if publics[self.policy.agent] != self._masker.public:
            raise refused("stranger", "another key in this owner's name")
        if len(set(publics.values())) != len(publics):
            raise refused("stranger", "one key for two owners")
        file = f"{_file_of(said.run)}.partners"
        noted = self._kept.known(file)
        if noted and _publics(wire.decode(noted)) != _publics(said):
            raise refused("changed", "other keys for masks than before")
        if not noted:
            self._kept.keep(file, frame)  # on disk before the first masked value is sent
        self._masker.agree(publics)
        return self._word()

    def settled(self) -> bool:
        """Return whether the last run in the ledger has ended here, and its results are stored."""
        if self._ending is None:
            self._take(self._kept.ending())
        return self._ending is not None and self._agreed is None

    def _take(self, ending: Ending | None) -> None:
        self._ending = ending
        self.result = None if ending is None else ending.own

    def _parted(self, said: RunOver, frame: bytes) -> bytes:
        """Confirm that a run is over for all parties; refuse if it is open here or another run."""
        if not self.settled() or self._ending is None or said.run != self._ending.end.run:
            raise refused("order", "no such run")
        self._told = True
        return frame

    def _finished(self, agreed: Agreement) -> bytes:
        """Return the answer to a repeated offer of a run that has ended here; else b''."""
        ending = self._kept.ending()
        this = (agreed.offer.run, agreed.part.fingerprint)
        if ending is None or (ending.end.run, ending.fingerprint) != this:
            return b""
        self._take(ending)
        # The answer has this owner's mask key: others may need it to recompute their masks.
        position = (ending.end.rounds, _LATE)
        self._last_word = self._said(agreed, self._masks(agreed, True), ending.covered, position)
        return self._last_word

    def _masks(self, agreed: Agreement, begun: bool) -> Masker | None:
        """Return a run's masks from its key file; None for a method without secure aggregation.

        Parameters
        ----------
        agreed : Agreement
        begun : bool
            Whether the ledger holds the run, so that values may have been sent under its masks.
        """
        offer = agreed.offer
        if not sums_in_secret(offer.algorithm):
            return None
        path = self._kept.path(f"{_file_of(offer.run)}.key")
        if begun and not path.exists():
            raise LedgerError(
                f"The mask key '{path.name}' of this run is gone. Put the file back, or have the "
                "coordinator begin a new run. The values in the ledger may have been sent under "
                "that key, and new masks would let the coordinator compare the values."
            )
        key_file = KeyFile(path, document_of(offer))
        if key_file.used and not begun:
            raise LedgerError(
                f"Values were sent under the mask key '{path.name}' of this run, but the ledger "
                "has no such open run. Have the coordinator begin a new run. Other values under "
                "the same masks would show how they differ."
            )
        return Masker(self.policy.agent, key_file)

    def _begin(self, agreed: Agreement) -> None:
        journal = self._open.enter_context(Journal(self.policy.ledger))
        files = self._kept
        if journal.lines < files.lines:
            raise LedgerError(
                f"The ledger '{self.policy.ledger.name}' has {journal.lines} lines, and had "
                f"{files.lines}: an older copy was put back. It does not count the values "
                "released since, and would draw their noise again. Put the newest copy back; "
                f"or, for other data, delete '{files.path('seen').name}' as well."
            )
        if self._consent is not None:
            now = against_ledger(agreed, self._seed is not None)
            if now.spent != agreed.spent:
                raise refused("ledger", "it changed while a person was asked")
        run = journal.interrupted
        self._reached = 0 if run is None else run.reached
        masker = self._masks(agreed, run is not None and run.fingerprint == agreed.part.fingerprint)
        sources = [self.policy.data[s.name].source for s in agreed.agent.program.form.private]
        start = begin([agreed.part], journal, self._seed is not None)
        begun = start.agents[0]
        # Seeded noise depends on the whole plan's fingerprint, as in runs within one process.
        part = replace(agreed.part, fingerprint=agreed.offer.plan)
        gate = gate_of([part], [begun], journal=journal, seed=self._seed, record=self._record)
        make = worker_of([part], [sources], gate)
        with journal.exchange():
            worker = make()
        files.lines = journal.lines
        self._masker = masker
        self._agreed, self._journal, self._worker = agreed, journal, worker
        self._take(None)
        self._rounds, self._earlier = start.rounds, begun.earlier
        self._place, self._reply = (0, -1), b""

    def _called(self, said: Call, agreed: Agreement) -> bytes:
        position, algorithm = (said.t, said.k), agreed.offer.algorithm
        if position == self._place:
            return self._reply
        inside = 1 <= said.t <= self._rounds and 0 <= said.k < algorithm.exchanges
        if position < self._place or not inside:
            raise refused("order", f"round {said.t}, exchange {said.k}")
        local = agreed.agent.program
        require_sense(said.message, algorithm, local, said.k, len(agreed.offer.parts))
        assert self._worker is not None and self._journal is not None
        message = said.message
        if self._masker is not None:
            if not self._masker.agreed:
                raise refused("partners", "no keys for masks have come")
            if said.k > 0 and self._place != (said.t, said.k - 1):
                raise refused("order", f"exchange {said.k} of a sum that was not begun")
            require_sum(message, agreed, said.t)
            message = masked(message, self._masker)
        if self._watch is not None:
            self._watch(agreed, said.t, self._rounds)
        with self._journal.exchange():  # the charge is on disk before the reply is sent
            (acted,) = self._worker.act(said.t, said.k, [message])
        self._kept.lines = self._journal.lines
        if self._masker is not None:
            # After the ledger: a process that dies in between finds its charge, and draws no
            # second value.
            self._masker.keep()
        assert acted is not None
        content = acted.message if self._masker is None else unsent(acted.message)
        reply = AgentReply(said.run, said.t, said.k, content, acted.outcome, acted.diverged)
        self._place, self._reply = position, wire.encode(reply)
        return self._reply

    def _answer(self) -> Answer:
        assert self._worker is not None
        (answer,) = self._worker.answer()
        if answer is None:
            raise refused("failed", "no answer")
        return answer

    def _ended(self, said: End, agreed: Agreement) -> bytes:
        assert self._worker is not None and self._journal is not None
        if said.rounds != self._place[0]:
            raise refused("order", f"an end after round {said.rounds}")
        (report,) = self._worker.report([None])
        entries = tuple(list(report.account.entries)[self._earlier :])
        account = FinalAccount(said.run, _shared(report.answer, agreed), report.violation, entries)
        result = OwnResult(
            _named(report.answer.last, agreed),
            _named(report.answer.average, agreed),
            said.status,
            said.rounds,
            tuple(report.releases),
        )
        ending = Ending(agreed.part.fingerprint, said, account, result, self._rounds)
        # On disk before the ledger records the end, so that a repeated request gets equal bytes.
        self._kept.finish(ending)
        self._journal.end(said.status, said.rounds)
        self._kept.lines = self._journal.lines
        self._take(ending)
        self.close()
        return wire.encode(account)


def require_sum(message: object, agreed: Agreement, t: int) -> None:
    """Refuse a query for a summand without this round's secure aggregation, or with another one.

    Parameters
    ----------
    message : object
        Message of the method.
    agreed : Agreement
    t : int
        Round.

    Raises
    ------
    RefusedError
        With code "nonsense".
    """
    if not isinstance(message, tuple) and not hasattr(message, "sums"):
        return  # a message with the new point requests no summand
    sums = message[0] if isinstance(message, tuple) else getattr(message, "sums", None)
    names = tuple(name for name, _ in agreed.offer.parts)
    sharing = getattr(agreed.offer.algorithm, "sharing", None)
    if not isinstance(sums, SecretSum) or sharing is None:
        raise refused("nonsense", "the request holds no secure sum")
    if (sums.agents, sums.round, sums.encoding) != (names, t, sharing.encoding(len(names))):
        raise refused("nonsense", "the request holds another secure sum")


def _file_of(run: str) -> str:
    """Return the name of a run's mask files: a digest, since the coordinator names the run."""
    return wire.digest(run)[:24]


def _publics(said: Partners) -> list[tuple[str, str, str]]:
    """Return owners' mask keys without signatures, which differ each time that one signs."""
    return [(key.agent, key.document, key.public) for key in said.keys]


def _shared(answer: Answer, agreed: Agreement) -> Answer:
    """Return the shared components of an agent's iterates, without its local variables."""
    shared = agreed.agent.program.shared
    return Answer(answer.last[shared], answer.average[shared], answer.weight)


def _named(x: Array, agreed: Agreement) -> dict[str, Array]:
    by_name: dict[str, Array] = {}
    for piece in agreed.agent.program.layout.pieces:
        flat = np.full(piece.size, np.nan)
        flat[piece.entries] = x[piece.offset : piece.stop]
        by_name[piece.name] = flat.reshape(piece.shape, order="F")
    return by_name
