"""One owner's side of a conversation, whatever carries the frames.

A call is known by its run, round and exchange. Asked again, the owner gives the same bytes again.
"""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..algorithms.base import Answer
from ..errors import BudgetError, DataError, DpcvxError, LedgerError, RefusedError
from ..privacy.ledger_file import Journal, past_of
from ..privacy.secret_sharing import SecretSum
from ..run.gate import Release
from ..run.resume import begin
from ..run.worker import Worker
from . import wire
from .agreement import Agreement, against_ledger, agree
from .keys import Identity
from .masks import KeyFile, Masker, masked, statement, unsent
from .messages import (
    Account,
    Agreed,
    Ask,
    Call,
    End,
    Hello,
    Key,
    Offer,
    Partners,
    Refusal,
    Reply,
    Told,
)
from .methods import sums_in_secret
from .places import require_sense
from .policy import Policy
from .refusal import REASONS, refused

Array = NDArray[np.float64]
# A place after all exchanges of a round.
_LATE = 1 << 20
# Characters of a reason that an owner reads as it is; of a longer one the log has all.
_SHORT = 500


@dataclass(frozen=True, eq=False)
class OwnResult:
    """What an owner has in the end, its local variables among it; its repr shows no values.

    Attributes
    ----------
    last, average : dict of str to ndarray
        By the names of variables; entries that the agent does not hold are nan.
    status : str
    rounds : int
    releases : tuple of Release
        What left, where it was recorded.
    """

    last: dict[str, Array] = field(repr=False)
    average: dict[str, Array] = field(repr=False)
    status: str
    rounds: int
    releases: tuple[Release, ...] = field(default=(), repr=False)


class _Seen:
    """How many lines the ledger had when something last left: an older copy of it has fewer.

    Written after the ledger and before any reply, in place and in one piece, so that a process
    that is killed leaves what was written last.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def lines(self) -> int:
        try:
            return int(self.path.read_bytes() or 0)
        except FileNotFoundError:
            return 0

    @lines.setter
    def lines(self, count: int) -> None:
        number = os.open(self.path, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            os.pwrite(number, f"{count:019d}\n".encode(), 0)
        finally:
            os.close(number)


class Session:
    """Takes part in one run after the other, as an owner's policy allows.

    Parameters
    ----------
    policy : Policy
    consent : callable
        Asked with every `Agreement` before anything is charged; False declines.
    seed : int, optional
        Of the noise, for studies and tests: who knows it can subtract the noise.
    record : bool
        Keep what left in `result`.
    identity : Identity, optional
        The owner's keys, by which the others know its masks, and it knows theirs. Without, keys of
        masks are not signed: between owners of one process only.

    Attributes
    ----------
    identity : Identity or None
    result : OwnResult or None
        Once a run is over.
    refusal : RefusedError or None
        Why this owner takes no part, or did not go on.
    """

    def __init__(
        self,
        policy: Policy,
        consent: Callable[[Agreement], bool] | None = None,
        *,
        seed: int | None = None,
        record: bool = False,
        identity: Identity | None = None,
    ) -> None:
        self.policy = policy
        self.result: OwnResult | None = None
        self.refusal: RefusedError | None = None
        self.identity, self._masker = identity, None
        self._keys: bytes | None = None
        self._consent, self._seed, self._record = consent, seed, record
        self._open = ExitStack()
        self._agreed: Agreement | None = None
        self._journal: Journal | None = None
        self._seen: _Seen | None = None
        self._worker: Worker | None = None
        self._earlier = 0
        self._reply, self._place, self._rounds = b"", (0, -1), 0
        self._final: tuple[str, bytes] = ("", b"")
        self._over = b""  # its word on a run that has ended here

    @property
    def over(self) -> bool:
        """Whether no more frames are due."""
        return self.refusal is not None or bool(self._final[0])

    def hello(self) -> bytes:
        """The first frame of a connection."""
        run = "" if self._agreed is None else self._agreed.offer.run
        return wire.encode(Hello(self.policy.agent, run, self._place))

    def handle(self, frame: bytes) -> bytes:
        """The answer to a frame. Errors leave as a code; the owner's own log says more.

        A session that has refused, or was told the end, says that again whatever is asked.
        """
        if self.refusal is not None:
            return wire.encode(Refusal(self.refusal.code))
        try:
            return self._handled(frame)
        except RefusedError as error:
            code, said = error.code, str(error)
        except BudgetError as error:
            code, said = "spent", str(error)
        except DataError as error:
            code, said = "data", str(error)
        except LedgerError as error:
            code, said = "ledger", str(error)
        except DpcvxError as error:
            code, said = "failed", str(error)
        except Exception:
            code, said = "failed", traceback.format_exc()
        self._note(f"{code}: {said}")
        if code not in ("nonsense", "order", "unreadable", "altered"):
            detail = said.removeprefix(REASONS[code]).strip(" ().")
            where = f"see {self._log.name}"
            self.refusal = refused(code, detail if len(said) < _SHORT else where)
            self.close()
        return wire.encode(Refusal(code))

    def reply(self, frame: bytes) -> bytes:
        """The answer to a frame, at the time that the policy says."""
        called = time.monotonic()
        answer = self.handle(frame)
        step = self.policy.reply_after
        if step > 0:
            time.sleep(step - (time.monotonic() - called) % step)
        return answer

    def close(self) -> None:
        """Let the ledger go, and forget the data."""
        self._open.close()
        self._agreed = self._worker = self._journal = self._masker = self._keys = None
        self._place, self._reply = (0, -1), b""

    @property
    def _log(self) -> Path:
        return self.policy.ledger.with_name(self.policy.ledger.name + ".log")

    def _note(self, text: str) -> None:
        number = os.open(self._log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        with os.fdopen(number, "a") as log:
            log.write(text.rstrip() + "\n")

    def _handled(self, frame: bytes) -> bytes:
        said = wire.decode(frame)
        if isinstance(said, Offer):
            return self._offered(said, frame)
        if isinstance(said, Refusal) and not self.over:
            why = said.code if said.code in REASONS else "version"
            raise refused("ended", f"its reason: {why}")
        if not isinstance(said, (Partners, Call, Ask, End)):
            raise refused("order", type(said).__name__)
        if isinstance(said, (Partners, End)) and said.run == self._final[0]:
            return self._final[1] if isinstance(said, End) else self._over
        agreed = self._agreed
        if agreed is None or said.run != agreed.offer.run:
            raise refused("order", "no such run")
        if isinstance(said, Partners):
            return self._partnered(said, frame, agreed)
        if isinstance(said, Call):
            return self._called(said, agreed)
        assert self._worker is not None
        if isinstance(said, Ask):
            return wire.encode(Told(said.run, _shared(self._answer(), agreed)))
        return self._ended(said, agreed)

    def _offered(self, offer: Offer, document: bytes) -> bytes:
        before = self._agreed
        same = before is not None and wire.digest(before.offer) == wire.digest(offer)
        if before is None or not same:
            self.close()
            self._keep("offer", document)
            agreed = agree(offer, self.policy)
            final = self._finished(agreed)
            if final:
                return final
            agreed = against_ledger(agreed, self._seed is not None)
            if self._consent is not None and not self._consent(agreed):
                raise refused("declined", "")
            self._begin(agreed)
        return self._word()

    def _word(self) -> bytes:
        agreed = self._agreed
        assert agreed is not None
        return self._said(agreed, self._masker, self._rounds, self._place)

    def _said(
        self, agreed: Agreement, masker: Masker | None, rounds: int, place: tuple[int, int]
    ) -> bytes:
        key = None
        if masker is not None:
            public, name = masker.public.hex(), self.policy.agent
            said = statement(agreed.offer.run, name, public)
            identity = self.identity
            signed = ("", "") if identity is None else (identity.certificate, identity.signed(said))
            key = Key(name, public, *signed)
        return wire.encode(
            Agreed(
                run=agreed.offer.run,
                rounds=rounds,
                place=place,
                epsilon=agreed.epsilon,
                delta=self.policy.delta,
                sensitivity=agreed.agent.bound,
                key=key,
            )
        )

    def _partnered(self, said: Partners, frame: bytes, agreed: Agreement) -> bytes:
        """Take the keys of all others, once."""
        names = [name for name, _ in agreed.offer.parts]
        if self._masker is None or [key.agent for key in said.keys] != names:
            raise refused("partners", "keys for masks")
        if self._keys is not None and self._keys != frame:
            raise refused("changed", "other keys for masks than before")
        publics: dict[str, bytes] = {}
        for key in said.keys:
            if self.identity is not None:
                told = statement(said.run, key.agent, key.public)
                self.identity.verify(key.agent, key.certificate, told, key.signature)
            try:
                publics[key.agent] = bytes.fromhex(key.public)
            except ValueError:
                raise refused("stranger", f"the key of '{key.agent}'") from None
        if publics[self.policy.agent] != self._masker.public:
            raise refused("stranger", "another key in this owner's name")
        if len(set(publics.values())) != len(publics):
            raise refused("stranger", "one key for two owners")
        self._masker.agree(publics)
        self._keys = frame
        return self._word()

    def _beside(self, what: str) -> Path:
        return self.policy.ledger.with_name(f"{self.policy.ledger.name}.{what}")

    def _keep(self, what: str, content: bytes) -> None:
        """Write a file beside the ledger, whole or not at all."""
        place = self._beside(f"{what}.dpx")
        draft = place.with_name(f"{place.name}.new")
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, place)

    def _finished(self, agreed: Agreement) -> bytes:
        """The answer to an offer of a run that has ended here, where the others do not know yet."""
        place, fingerprint = self._beside("final.dpx"), agreed.part.fingerprint
        if not place.exists() or fingerprint not in past_of(self.policy.ledger).finished:
            return b""
        kept = wire.decode(place.read_bytes())
        if not isinstance(kept, tuple) or kept[:2] != (agreed.offer.run, fingerprint):
            return b""
        self._final = (agreed.offer.run, wire.encode(kept[2]))
        rounds = agreed.offer.rounds
        # With its key: others may have to compute their masks again.
        self._over = self._said(agreed, self._masks(agreed), rounds, (rounds, _LATE))
        return self._over

    def _masks(self, agreed: Agreement) -> Masker | None:
        """The masks of a run, by the key beside the ledger; None where nothing is masked."""
        if not sums_in_secret(agreed.offer.algorithm):
            return None
        run = agreed.offer.run
        # A digest of the run, since its name is the coordinator's choice.
        name = wire.digest((run, agreed.part.fingerprint))[:24]
        return Masker(run, self.policy.agent, KeyFile(self._beside(f"{name}.key")))

    def _begin(self, agreed: Agreement) -> None:
        journal = self._open.enter_context(Journal(self.policy.ledger))
        seen = _Seen(self._beside("seen"))
        if journal.lines < seen.lines:
            raise LedgerError(
                f"The ledger '{self.policy.ledger.name}' has {journal.lines} lines, and had "
                f"{seen.lines}: an older copy was put back. What left since is counted nowhere, "
                "and would be drawn again. Put the newest one back; or, for other data, delete "
                f"'{seen.path.name}' as well."
            )
        if self._consent is not None:
            now = against_ledger(agreed, self._seed is not None)
            if now.spent != agreed.spent:
                raise refused("ledger", "it changed while a person was asked")
        sources = [self.policy.data[s.name].source for s in agreed.agent.program.form.private]
        start = begin([agreed.part], journal, self._seed is not None)
        begun = start.agents[0]
        # Noise of a seed follows from the whole plan, as where all agents are in one place.
        part = replace(agreed.part, fingerprint=agreed.offer.plan)
        make = part.worker(sources, begun, journal=journal, seed=self._seed, record=self._record)
        with journal.exchange():
            worker = make()
        seen.lines = journal.lines
        self._masker = self._masks(agreed)
        self._agreed, self._journal, self._worker = agreed, journal, worker
        self._seen = seen
        self._rounds, self._earlier = start.rounds, begun.earlier
        self._place, self._reply = (0, -1), b""

    def _called(self, said: Call, agreed: Agreement) -> bytes:
        place, algorithm = (said.t, said.k), agreed.offer.algorithm
        if place == self._place:
            return self._reply
        inside = 1 <= said.t <= self._rounds and 0 <= said.k < algorithm.exchanges
        if place < self._place or not inside:
            raise refused("order", f"round {said.t}, exchange {said.k}")
        local = agreed.agent.program
        require_sense(said.message, algorithm, local, said.k, len(agreed.offer.parts))
        assert self._worker is not None and self._journal is not None and self._seen is not None
        message = said.message
        if self._masker is not None:
            require_sum(message, agreed, said.t)
            message = masked(message, self._masker)
        with self._journal.exchange():  # on disk before the reply is anybody's
            found = self._worker.act(said.t, said.k, message)
        self._seen.lines = self._journal.lines
        assert found is not None
        content = found.message if self._masker is None else unsent(found.message)
        reply = Reply(said.run, said.t, said.k, content, found.outcome, found.diverged)
        self._place, self._reply = place, wire.encode(reply)
        return self._reply

    def _answer(self) -> Answer:
        assert self._worker is not None
        answer = self._worker.answer()
        if answer is None:
            raise refused("failed", "no answer")
        return answer

    def _ended(self, said: End, agreed: Agreement) -> bytes:
        assert self._worker is not None and self._journal is not None and self._seen is not None
        if said.rounds != self._place[0]:
            raise refused("order", f"an end after round {said.rounds}")
        report = self._worker.report()
        entries = tuple(list(report.account.entries)[self._earlier :])
        account = Account(said.run, _shared(report.answer, agreed), report.violation, entries)
        # On disk before the ledger says that the run is over: asked again, the same is said again.
        self._keep("final", wire.encode((said.run, agreed.part.fingerprint, account)))
        self._journal.end(said.status, said.rounds)
        self._seen.lines = self._journal.lines
        self.result = OwnResult(
            _named(report.answer.last, agreed),
            _named(report.answer.average, agreed),
            said.status,
            said.rounds,
            tuple(report.releases),
        )
        self.close()
        self._final = (said.run, wire.encode(account))
        return self._final[1]


def require_sum(message: object, agreed: Agreement, t: int) -> None:
    """Refuse a secret sum that is not the one of this round.

    Parameters
    ----------
    message : object
    agreed : Agreement
    t : int

    Raises
    ------
    RefusedError
    """
    parts = message if isinstance(message, tuple) else (getattr(message, "sums", None),)
    names = tuple(name for name, _ in agreed.offer.parts)
    sharing = getattr(agreed.offer.algorithm, "sharing", None)
    for sums in parts:
        if isinstance(sums, SecretSum):
            same = (sums.agents, sums.round) == (names, t)
            if not same or sharing is None or sums.encoding != sharing.encoding(len(names)):
                raise refused("nonsense", "another secret sum")


def _shared(answer: Answer, agreed: Agreement) -> Answer:
    """What others may know of it without being told anything about local variables."""
    shared = agreed.agent.program.shared
    return Answer(answer.last[shared], answer.average[shared], answer.weight)


def _named(x: Array, agreed: Agreement) -> dict[str, Array]:
    found: dict[str, Array] = {}
    for piece in agreed.agent.program.layout.pieces:
        flat = np.full(piece.size, np.nan)
        flat[piece.entries] = x[piece.offset : piece.stop]
        found[piece.name] = flat.reshape(piece.shape, order="F")
    return found
