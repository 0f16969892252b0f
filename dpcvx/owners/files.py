"""Files on disk: a coordinator's log, and the files beside an owner's ledger.

A coordinator's log holds the owners' replies, so that a run can resume.

The log is a sequence of frames: a `RunBegun`, an `Exchange` for every message round, `Answers` for
every request for iterates, `Ended`, and `Parted` for owners that confirmed the end. Each frame is
on disk before the server side uses it. A partial frame at the end, which a process left when it
died, is removed.

Files beside an owner's ledger hold its last offer, the end of its last run, and its own log.

They are named ``spent.jsonl.offer.dpx`` and so on, for a ledger ``spent.jsonl``. Only the owner can
read them; the coordinator knows the contents of ``offer`` and most of ``final`` as well.
"""

from __future__ import annotations

import json
import math
import os
import stat
import tempfile
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Self, TypeVar, cast, overload

import numpy as np
from numpy.typing import NDArray

from ..errors import LedgerError, RefusedError
from ..privacy.ledger_file import lock, past_of, spent_of
from ..run.gate import Release
from . import wire
from .audit_log import AuditLog
from .faults import file_words
from .messages import Answers, End, Ended, Exchange, FinalAccount, Parted, RunBegun, refused

Array = NDArray[np.float64]
T = TypeVar("T")
# Bytes of free space that a run requires beside the ledger.
_ROOM = 1 << 18
# Files beside the ledger that a run opens, if they exist, with the mode and what is done to them.
_BESIDE = dict.fromkeys(("audit", "lock", "log", "seen"), (os.O_RDWR, "written"))
_BESIDE |= dict.fromkeys(("final.dpx", "own.dpx", "yes.dpx"), (os.O_RDONLY, "read"))


class StoredFrames(Sequence[T]):
    """Sequence of messages that are decoded from a file of frames; only offsets are in memory.

    Parameters
    ----------
    file : binary file
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._places = array("q")

    def add(self, offset: int, size: int) -> None:
        """Append a frame that is already in the file, by its offset and size in bytes."""
        self._places.extend((offset, size))

    def __len__(self) -> int:
        return len(self._places) // 2

    @overload
    def __getitem__(self, position: int) -> T: ...

    @overload
    def __getitem__(self, position: slice) -> Sequence[T]: ...

    def __getitem__(self, position: int | slice) -> T | Sequence[T]:
        if isinstance(position, slice):
            return [self[k] for k in range(*position.indices(len(self)))]
        k = range(len(self))[position]
        at, size = self._places[2 * k : 2 * k + 2]
        return wire.decode(os.pread(self._file.fileno(), size, at), math.inf)


class StoredCalls:
    """Requests for local updates in a temporary file, to be repeated if an owner reconnects.

    Raises
    ------
    RefusedError
        With code "storage", if no temporary file can be written.
    """

    def __init__(self) -> None:
        with _temporary():
            self._file: IO[bytes] = tempfile.TemporaryFile()
        self._places = array("q")

    def add(self, calls: Mapping[str, bytes]) -> None:
        """Append a round's requests for local updates, by agent; equal ones are stored once."""
        frames = [*dict.fromkeys(calls.values())]
        which = {frame: k for k, frame in enumerate(frames)}
        told = {name: which[frame] for name, frame in calls.items()}
        front = json.dumps([told, [len(frame) for frame in frames]]).encode()
        with _temporary():
            start = self._file.seek(0, os.SEEK_END)
            for part in (len(front).to_bytes(8, "big"), front, *frames):
                self._file.write(part)
            self._file.flush()
        self._places.append(start)

    def __iter__(self) -> Iterator[dict[str, bytes]]:
        for start in self._places:
            self._file.seek(start)
            told, sizes = json.loads(self._file.read(int.from_bytes(self._file.read(8), "big")))
            frames = [self._file.read(size) for size in sizes]
            yield {name: frames[k] for name, k in told.items()}

    def close(self) -> None:
        """Close the temporary file, which removes it."""
        with suppress(OSError):  # a failed write has raised an error earlier
            self._file.close()


@contextmanager
def _temporary() -> Iterator[None]:
    """Refuse with the code "storage" if a temporary file cannot be written."""
    try:
        yield
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise refused(
            "storage",
            f"a temporary file cannot be written: {why[0].lower()}{why[1:]}. Free space in the "
            "folder of temporary files, or name another one by TMPDIR, and start again",
        ) from None


@dataclass(eq=False)
class CoordinatorLog:
    """An open log of a coordinator, with the owners' replies in one run.

    Parameters
    ----------
    path : Path or None
        File of the log; if None, the log is kept in memory.

    Raises
    ------
    LedgerError
        If the file is no log of a coordinator, or another coordinator has it open.
    """

    path: Path | None

    def __post_init__(self) -> None:
        self.begun: RunBegun | None = None
        self.exchanges: list[Exchange] | StoredFrames[Exchange] = []
        self.answers: list[Answers] | StoredFrames[Answers] = []
        self.ended: Ended | None = None
        self.parted: set[str] = set()
        self._file = None if self.path is None else _opened(self.path)
        if self._file is not None:
            self.exchanges, self.answers = StoredFrames(self._file), StoredFrames(self._file)
        try:
            self._read()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the log's file."""
        if self._file is not None:
            with suppress(OSError):  # a failed write has raised an error earlier
                self._file.close()
            self._file = None

    def begin(self, begun: RunBegun) -> None:
        """Write the log's entry on a run that begins."""
        self.begun = begun
        self._write(begun)

    def add(self, message: Exchange | Answers | Ended | Parted) -> None:
        """Add messages of owners to the log; they are on disk when this returns."""
        offset, size = self._write(message)
        self._take(message, offset, size)

    def _take(self, message: Exchange | Answers | Ended | Parted, offset: int, size: int) -> None:
        if isinstance(message, (Exchange, Answers)):
            stored = self.exchanges if isinstance(message, Exchange) else self.answers
            if isinstance(stored, StoredFrames):
                stored.add(offset, size)
            else:
                cast(list[object], stored).append(message)
        elif isinstance(message, Ended):
            self.ended = message
        else:
            self.parted.update(message.agents)

    def _write(self, message: object) -> tuple[int, int]:
        """Write a message as a frame, and return its offset and size in bytes."""
        if self._file is None:
            return 0, 0
        frame, offset = wire.encode(message, math.inf), self._file.tell()
        try:
            self._file.write(frame)
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:  # the next opening of the log removes a partial frame
            said = file_words(error, self.path, "written").removesuffix(".")
            raise refused("storage", said) from None
        return offset, len(frame)

    def _read(self) -> None:
        if self._file is None:
            return
        first, end = self._file.read(len(wire.MAGIC)), 0
        for offset, frame in wire.frames_in(self._file):
            record = _record(frame)
            if record is None:
                break
            if isinstance(record, RunBegun) and self.begun is None:
                self.begun = record
            elif isinstance(record, (Exchange, Answers, Ended, Parted)) and self.begun is not None:
                self._take(record, offset, len(frame))
            else:
                raise _no_log(self.path)
            end = offset + len(frame)
        if first and self.begun is None and end == 0 and first != wire.MAGIC:
            raise _no_log(self.path)
        self._file.truncate(end)
        self._file.seek(end)


def _record(frame: bytes) -> object:
    try:
        # It holds the replies of all owners, and each reply may be as large as a whole frame.
        return wire.decode(frame, math.inf)
    except RefusedError:
        return None


def _no_log(path: Path | None) -> LedgerError:
    name = "" if path is None else path.name
    return LedgerError(
        f"The file '{name}' is no log of a coordinator. Name another file; a new one is created."
    )


def _opened(path: Path) -> IO[bytes]:
    try:
        number = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise LedgerError(
            f"The log {file_words(error, path, 'opened')} No owner has received a request."
        ) from None
    try:
        if not stat.S_ISREG(os.fstat(number).st_mode):  # a device keeps nothing
            raise _no_log(path)
        if not _locked(number, path):
            raise LedgerError(
                f"The log '{path.name}' is in use by another coordinator. End that one, or wait "
                "until it is done. Two coordinators would damage the log; a new run needs a log "
                "of its own."
            )
        return os.fdopen(number, "r+b")
    except BaseException:
        os.close(number)
        raise


def _locked(number: int, path: Path) -> bool:
    """Lock an open file; see `dpcvx.privacy.ledger_file.lock`.

    Raises
    ------
    LedgerError
        If the file system takes no locks.
    """
    try:
        return lock(number)
    except OSError as error:
        raise LedgerError(file_words(error, path, "locked")) from None


@dataclass(frozen=True, eq=False)
class OwnResult:
    """Result of a run at an owner, with its local variables; its repr shows no values.

    Attributes
    ----------
    last, average : dict of str to ndarray
        Values by names of variables; entries that the agent does not hold are nan.
    status : str
        Status of the run, such as "completed".
    rounds : int
        Number of rounds of the run.
    releases : tuple of Release
        Released values, if the run was recorded.
    heard : bool
        Whether a coordinator took part. False if none was reached: the result is then the end of
        the last run in the ledger.
    """

    last: dict[str, Array] = field(repr=False)
    average: dict[str, Array] = field(repr=False)
    status: str
    rounds: int
    releases: tuple[Release, ...] = field(default=(), repr=False)
    heard: bool = field(default=True, repr=False)


@dataclass(frozen=True, eq=False)
class Ending:
    """End of a run as its owner stores it: last messages and the owner's result."""

    fingerprint: str  # fingerprint of the owner's part of the plan, as in the ledger
    end: End  # message of the coordinator
    account: FinalAccount  # reply of the owner
    own: OwnResult  # result for the owner alone
    covered: int  # rounds that the ledger covered when the run began


@contextmanager
def named(path: Path) -> Iterator[None]:
    """Name a file in errors of the operating system: those of a write name none."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None


def write_whole(path: Path, content: bytes) -> None:
    """Write a file atomically, readable for its user alone.

    Parameters
    ----------
    path : Path
        File to write or to replace; its draft has the same name with ``.new`` behind it.
    content : bytes

    Raises
    ------
    OSError
        If the file cannot be written; an earlier file stays, and the error names the file.
    """
    draft = path.with_name(f"{path.name}.new")
    with named(path):
        draft.unlink(missing_ok=True)
        number = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(number, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(draft, path)
        except OSError:
            with suppress(OSError):
                draft.unlink()
            raise


class OwnerFiles:
    """The files beside an owner's ledger: its last offer, its last result and its log.

    Parameters
    ----------
    ledger : Path
    """

    def __init__(self, ledger: Path) -> None:
        self._ledger = ledger

    def path(self, what: str) -> Path:
        """Return the path beside the ledger: its name, a dot, and `what`."""
        return self._ledger.with_name(f"{self._ledger.name}.{what}")

    def note(self, text: str) -> bool:
        """Append a text to the owner's own log, which may quote data; return whether it worked."""
        try:
            number = os.open(self.path("log"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            with os.fdopen(number, "a", encoding="utf-8", errors="backslashreplace") as log:
                log.write(text.rstrip() + "\n")
        except OSError:  # the text may report a full disk
            return False
        return True

    def require_room(self) -> None:
        """Check that the ledger's folder is writable, with a trial file of 256 KiB.

        Raises
        ------
        LedgerError
            If the folder is missing, read-only or full, if its file system takes no locks, or if
            the ledger, its audit log or another file beside it cannot be read or written.
        """
        trial, folder, done = self.path("trial"), self._ledger.parent, "written"
        try:
            if not folder.is_dir():
                raise LedgerError(
                    f"The folder of the ledger '{self._ledger.name}' does not exist. Create it, or "
                    "correct ledger = in the policy."
                )
            with suppress(FileNotFoundError):  # the first run creates it
                self._ledger.stat()
                os.close(os.open(self._ledger, os.O_RDWR))
                past_of(self._ledger)
            _ = self.lines
            for what, (mode, action) in _BESIDE.items():
                done = action
                with suppress(FileNotFoundError):  # a run creates it
                    os.close(os.open(self.path(what), mode))
            done = "written"
            AuditLog(self.path("audit")).require_intact()
            trial.unlink(missing_ok=True)
            try:
                number = os.open(trial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
                with os.fdopen(number, "wb") as file:
                    _locked(number, trial)
                    file.write(bytes(_ROOM))
                    file.flush()
                    os.fsync(file.fileno())
            finally:
                trial.unlink(missing_ok=True)
        except OSError as error:
            said = file_words(error, error.filename or trial, done)
            raise LedgerError(
                f"The folder of the ledger cannot be used. {said} Every release is on disk before "
                "it is sent."
            ) from None

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other processes of this machine from taking part with the same ledger.

        Raises
        ------
        LedgerError
            If the file system of the ledger's folder takes no locks.
        RefusedError
            If another process uses the ledger; the code is "taken".
        """
        try:
            file = os.open(self.path("lock"), os.O_WRONLY | os.O_CREAT, 0o600)
        except OSError as error:
            raise LedgerError(file_words(error, self.path("lock"), "written")) from None
        try:
            if not _locked(file, self.path("lock")):
                raise refused(
                    "taken",
                    f"another process here uses the ledger '{self._ledger.name}'; wait until it is "
                    "done, or end it",
                )
            yield
        finally:
            os.close(file)

    def keep(self, what: str, content: bytes) -> None:
        """Write a file beside the ledger atomically.

        Parameters
        ----------
        what : str
            Last part of the file's name, which is the ledger's name, a dot, `what` and ``.dpx``.
        content : bytes
            Encoded message to write.
        """
        write_whole(self.path(f"{what}.dpx"), content)

    def known(self, what: str) -> bytes:
        """Return the message that `keep` wrote under the name `what`; empty without such a file."""
        path = self.path(f"{what}.dpx")
        return path.read_bytes() if path.exists() else b""

    @property
    def lines(self) -> int:
        """Number of the ledger's lines at the last release; an outdated copy has fewer lines."""
        path = self.path("seen")
        try:
            return int(path.read_bytes() or 0)
        except FileNotFoundError:
            return 0
        except ValueError:
            raise LedgerError(
                f"'{path.name}' holds no number of lines, so an older copy of the ledger could not "
                "be told from the newest. Restore the ledger and all files beside it together."
            ) from None

    @lines.setter
    def lines(self, count: int) -> None:
        # Written after the ledger and before any reply. A single write in place leaves a valid
        # number if the process is killed.
        path = self.path("seen")
        with named(path):
            number = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
            try:
                os.pwrite(number, f"{count:019d}\n".encode(), 0)
            finally:
                os.close(number)

    def finish(self, ending: Ending) -> None:
        """Store the end of a run, before the ledger records it."""
        result, run = ending.own, ending.end.run
        self.keep("own", wire.encode((run, _pairs(result.last), _pairs(result.average))))
        self.keep(
            "final", wire.encode((ending.fingerprint, ending.end, ending.account, ending.covered))
        )

    def ending(self) -> Ending | None:
        """Return the stored end of the last run; None without one, or if a run is interrupted.

        Raises
        ------
        LedgerError
            If the ledger cannot be read.
        RefusedError
            If a stored file is damaged.
        """
        final = self.known("final")
        if not final or not self._ledger.exists():
            return None
        past = spent_of(self._ledger)
        try:
            stored = wire.decode(final)
        except RefusedError as error:
            if error.code != "version":
                raise
            return None  # runs do not continue across versions of the format
        if past.interrupted is not None or not isinstance(stored, tuple) or len(stored) != 4:
            return None
        fingerprint, end, account, covered = stored
        if fingerprint not in past.ended or not isinstance(end, End):
            return None
        return Ending(fingerprint, end, account, self._own(end), covered)

    def _own(self, end: End) -> OwnResult:
        """Return the owner's result of an ended run; without variables if their file is missing."""
        stored = self.known("own")
        run, *both = wire.decode(stored) if stored else ("",)
        last, average = both if run == end.run else ((), ())
        return OwnResult(dict(last), dict(average), end.status, end.rounds)


def _pairs(named: dict[str, Array]) -> tuple[tuple[str, Array], ...]:
    return tuple(named.items())
