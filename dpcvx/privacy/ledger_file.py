"""A ledger on disk: every charge and every value is written before the value is released.

Agents note a charge before they compute, and a value before they return it. The lines of one
message round are written together: first all charges, then all values. They are forced to disk
once, before the run uses any of the values. A value counts as released when the run uses it. Noise
that a process drew before it died, and that no run used, is redrawn, since nobody saw it.

`ledger_chain` parses the bytes of the file, `ledger_lines` their meaning. Changed, removed and
added lines are detected. A process that is killed loses at most the message round in progress, and
the next process resumes from there. (The hash chain protects against accidents, not against the
owner of the data: anybody who can write the file can write another valid one or restore a copy.)

A run on a long ledger neither reads earlier runs nor computes their privacy loss. Their totals are
in a file beside it, which is valid while the ledger stays as it was closed (`ledger_chain`).

A run locks the file itself, so that no other run can open it under another name. After an error,
the journal accepts no further line, so that no line follows an incomplete one.

Released values are public in the threat model, so the file contains them: after a crash, a run
resumes without a second release. The file never contains seeds or data.
"""

from __future__ import annotations

import errno
import os
import stat
import tempfile
import threading
import time
import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ..errors import LedgerError
from .accounts import Account
from .book import Accounts
from .entries import Entry
from .ledger_chain import GROUP, WIDTH, Chain, Totals, head, linked, read, read_totals, write_totals
from .ledger_lines import (
    TORN,
    Finished,
    Notes,
    Past,
    Recorded,
    end_line,
    run_line,
)

try:
    import fcntl
except ImportError:  # pragma: no cover - Windows
    fcntl = None

Array = NDArray[np.float64]

# Number of attempts if a file is replaced while it is opened, or changes while it is read.
_PATIENCE = 100
# Seconds within which the system frees the lock of a process that was killed: a process that it had
# just forked keeps the file open until it first runs.
_FREED = 2.0
# Seconds between two attempts to lock a file.
_AGAIN = 0.02
# Largest size in bytes of a ledger that every run reads as a whole.
_SHORT = 1 << 15


class Journal:
    """Ledger file of a run, locked while it is open; it records charges and released values.

    Parameters
    ----------
    path : str or Path
        File name. A new file is created with access for its owner only.

    Raises
    ------
    LedgerError
        If the folder does not exist, another run has the file open, the file is not an intact
        ledger, or the operating system refuses to read, write or lock it.
    """

    def __init__(self, path: str | Path) -> None:
        self.path: Path = Path(path)
        self._turn = threading.RLock()
        self._held = False
        self._notes = Notes()
        self._order: dict[str, int] = {}
        self._file: FileIO | None = None
        self._refusal = f"The ledger '{_short(self.path)}' is not open."
        self._unfinished = (
            f"The last line of the ledger '{_short(self.path)}' is incomplete, so the ledger "
            "takes no further line and nothing more is released. Call run again as before. The "
            "run resumes, and repeats no privacy loss."
        )
        with _in_words(self.path, "opened"):
            self._place = os.path.abspath(self.path)  # a run may change the working directory
            if self.path.is_dir():
                raise LedgerError(
                    f"ledger= needs a file, and '{_short(self.path)}' is a folder. Name a file in "
                    "that folder, for example spent.jsonl."
                )
            if not self.path.parent.is_dir():
                raise LedgerError(
                    f"The folder of the ledger '{_short(self.path)}' does not exist. Create it, "
                    "or correct the path. A new ledger starts at zero, so dpcvx creates none "
                    "where a path may be mistyped."
                )

    def __enter__(self) -> Self:
        try:
            with _in_words(self.path, "opened"):
                self._lock()
                self._open()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._close()
        finally:  # also after an interrupt during _close
            if self._file is not None:
                self._file.close()

    def _lock(self) -> None:
        """Open the file and lock it against other runs while it is open."""
        if fcntl is None:
            raise LedgerError(
                "Ledger files need flock, which this platform does not have: two runs could spend "
                "from one file at once. Pass the ledger of the last result instead, "
                "plan.run(ledger=result.ledger)."
            )
        _OPEN.add(self)
        for _ in range(_PATIENCE):
            self._file = _opened(self._place, os.O_RDWR)
            self._identity = os.fstat(self._file.fileno())
            try:
                free = lock(self._file.fileno())
            except OSError as error:
                raise LedgerError(
                    f"The ledger '{_short(self.path)}' cannot be locked: {_reason(error)}. Put it "
                    "on a file system that takes locks, such as a disk of this machine. Without "
                    "a lock, two runs could overspend it. Nothing was released."
                ) from None
            if not free:
                raise LedgerError(
                    f"The ledger '{_short(self.path)}' is in use by another run. Two runs that "
                    "spend from one ledger at once could overspend it: wait for the other. Runs on "
                    "the same data must share one ledger; another file is for other data only."
                )
            if self._in_place():
                return
            self._file.close()  # it was removed or replaced before it was locked
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))

    def _in_place(self) -> bool:
        """Return whether the path still refers to the open file."""
        try:
            return os.path.samestat(os.stat(self._place), self._identity)
        except FileNotFoundError:
            return False

    def _open(self) -> None:
        """Read the file, and remove incomplete lines that a killed process wrote."""
        assert self._file is not None
        totals = _totals(self._file, self._place)
        if totals is not None:
            self._link, self._count, self._end = totals.link, totals.lines, totals.end
            self._past = Past(_short(self.path), (), totals.ledger, totals.ended)
            self._ready(totals=True)
            return
        self._file.seek(0)
        chain = read(self._file.readall(), _short(self.path))
        past = Past(_short(self.path), chain.lines)
        self._link, self._count, self._end = chain.link, len(chain.lines), chain.end
        torn = chain.torn and past.interrupted is not None
        if not torn and chain.head != head(self._count, self._link):
            self._write(head(self._count, self._link), 0)
        if past.interrupted is not None and chain.holds_value:
            # A part of a value is on disk. The head records it before the part is removed, so that
            # a second crash does not lose this fact.
            os.fsync(self._file.fileno())
            self._write(head(self._count, self._link, torn=True), 0)
            torn = True
        if chain.tail:
            os.fsync(self._file.fileno())
            self._file.truncate(self._end)
        # The lines just read take effect now, but may not have reached the disk yet.
        os.fsync(self._file.fileno())
        if not chain.lines:
            _sync_folder(self._place)
        self._past = past
        # Short ledgers are reread for every run, so that a first run spends no time on totals.
        self._ready(totals=self._end > _SHORT)
        if torn:
            self._append(TORN)
            past.take(TORN)

    def _ready(self, *, totals: bool) -> None:
        """Accept lines from now on, and add up their losses if `totals` is true."""
        self._refusal, self._counts = "", totals
        self._order = {name: k for k, name in enumerate(self._past.ledger or ())}

    def _close(self, refusal: str = "", *, unlock: bool = True) -> None:
        """Close the file; the journal then accepts no further line.

        Forked processes may still have the file open. The owning run therefore unlocks it
        explicitly, and forked processes do not unlock it.
        """
        with self._turn:
            self._refusal = refusal or f"The ledger '{_short(self.path)}' is not open."
            _OPEN.discard(self)
            if self._file is None or self._file.closed:
                return
            try:
                if unlock and fcntl is not None:
                    with suppress(OSError):  # closing the file unlocks it too
                        fcntl.flock(self._file.fileno(), fcntl.LOCK_UN)
            finally:
                self._file.close()

    def _leave(self) -> None:
        """Close the file in a forked process, since only the original process may write it."""
        self._turn = threading.RLock()  # a thread of the original process may have held it
        self._close(
            "This process was forked from the process whose run uses the ledger "
            f"'{_short(self.path)}'. Start a run of its own here instead. Only the other process "
            "writes the ledger, so this one releases nothing.",
            unlock=False,
        )

    @property
    def ledger(self) -> Accounts | None:
        """Accounts of all runs, including an interrupted last run; None in a new file."""
        return self._past.ledger

    @property
    def before(self) -> Accounts | None:
        """Accounts of all runs before the last one."""
        return self._past.before

    @property
    def interrupted(self) -> Recorded | None:
        """The last run, if it did not end; else None."""
        return self._past.interrupted

    @property
    def lines(self) -> int:
        """Number of the ledger file's lines on disk."""
        return self._count

    def has_finished(self, fingerprint: str) -> bool:
        """Return whether a run of the plan with this fingerprint has ended."""
        return fingerprint in self._past.ended

    def begin(
        self,
        fingerprint: str,
        *,
        seeded: bool,
        accounts: Iterable[Account],
        derived: Iterable[float] = (),
    ) -> None:
        """Record the start of a run: the plan's fingerprint, accounts, and derived numbers."""
        listed = list(accounts)
        self._order = {account.agent: k for k, account in enumerate(listed)}
        self._append(run_line(fingerprint, seeded, listed, derived))

    def charge(self, agents: list[str], entry: Entry) -> None:
        """Record a charge of several agents for identical releases, before these are computed."""
        with self._turn:
            self._admitting().charge(agents, entry)
            self._settle()

    def release(self, agents: list[str], round_step: tuple[int, int], values: Array) -> None:
        """Record one value of each agent before its release; see `Writer`.

        Parameters
        ----------
        agents : list of str
            Names of the agents, in the order of the rows of `values`.
        round_step : (int, int)
            Round, and release within it.
        values : ndarray, shape (agents, n)
        """
        with self._turn:
            self._admitting().release(agents, round_step, values)
            self._settle()

    def take(self, noted: Notes) -> None:
        """Record charges and values that agents noted in other processes."""
        with self._turn:
            self._admitting().add(noted)
            self._settle()

    @contextmanager
    def exchange(self) -> Iterator[None]:
        """Buffer charges and values in this context, and write them to disk at its end."""
        self._held = True
        try:
            yield
        except BaseException:
            with suppress(LedgerError):  # the first error is more informative
                self._commit()
            raise
        self._commit()

    def _admitting(self) -> Notes:
        if self._refusal:
            raise LedgerError(self._refusal)
        return self._notes

    def _settle(self) -> None:
        """Write the noted charges and values to disk, unless `exchange` buffers them."""
        if not self._held:
            self._commit()

    def _commit(self) -> None:
        with self._turn:
            self._held, lines = False, self._notes.lines(self._order)
            self._notes.taken()
            if lines:
                self._append(*lines)

    def end(self, status: str, rounds: int) -> str:
        """Record the end of the run, with its status and number of rounds.

        Returns
        -------
        str
            Message for the result if this line cannot be written, else empty. The file contains all
            releases already, so the result is complete in either case.
        """
        try:
            self._append(end_line(status, rounds))
            self._keep_totals()
        except _Unwritten:
            return (
                f"all that this run released is in the ledger '{_short(self.path)}', but not that "
                "the run is over: the file could not be written any more. The result is complete; "
                "the next run may say that this one was interrupted"
            )
        return ""

    def _keep_totals(self) -> None:
        """Write the totals of the ledger after the end of its last run."""
        ledger = self._past.ledger
        if self._counts and ledger is not None and self._file is not None:
            totals = Totals(self._count, self._link, self._end, ledger, tuple(self._past.ended))
            write_totals(self._place, self._file.fileno(), totals)

    def _append(self, *lines: Mapping[str, Any]) -> None:
        """Append lines in one write, and return when they are on disk."""
        with self._turn:
            if self._refusal:
                raise LedgerError(self._refusal)
            assert self._file is not None
            link, texts = self._link, []
            for index, line in enumerate(lines):
                group = {} if index else {GROUP: len(lines)}
                link, written = linked(link, {**line, **group})
                texts.append(written)
            text = b"".join(texts)
            # If an error or signal ends this early, the file may end in an incomplete line.
            self._refusal = self._unfinished
            try:
                if not self._in_place():
                    raise LedgerError(
                        f"The ledger '{_short(self.path)}' was removed or replaced during a run. "
                        "Put the file back, or count the data as spent. The run could not record "
                        "its privacy loss, so it ended and releases nothing more."
                    )
                self._write(text, self._end)
                os.fsync(self._file.fileno())
                self._link, self._count = link, self._count + len(lines)
                self._end += len(text)
                self._write(head(self._count, self._link), 0)
            except LedgerError as error:
                self._refusal = str(error)
                raise
            except OSError as error:
                self._refusal = (
                    f"The ledger '{_short(self.path)}' cannot be written: {_reason(error)}. Mend "
                    "that, and call run again as before. Nothing more is released until then; the "
                    "run resumes, and repeats no privacy loss."
                )
                raise _Unwritten(self._refusal) from None
            if self._counts:
                self._past.count(lines)
            self._refusal = ""

    def _write(self, text: bytes, offset: int) -> None:
        assert self._file is not None
        self._file.seek(offset)
        _write_all(self._file, text)


class _Unwritten(LedgerError):
    """Error of a line that could not be written."""


# Open journals of this process. A forked process closes them, since a lock lasts as long as any
# process has the file open, and the forked process may outlive the run.
_OPEN: weakref.WeakSet[Journal] = weakref.WeakSet()


def _after_fork() -> None:
    for journal in list(_OPEN):
        journal._leave()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def lock(number: int) -> bool:
    """Lock an open file against other processes; return False if another process has it.

    The lock ends when this process closes the file, or dies. Platforms without flock lock nothing.

    Parameters
    ----------
    number : int
        File descriptor.

    Raises
    ------
    OSError
        If the file system takes no locks.
    """
    deadline = time.monotonic() + _FREED
    while fcntl is not None:
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(_AGAIN)
        else:
            return True
    return True


def _opened(path: str, mode: int) -> FileIO:
    """Open a regular file; create it first if `mode` allows writing."""
    while True:
        try:
            number = os.open(path, mode | getattr(os, "O_NONBLOCK", 0))
            break
        except FileNotFoundError:
            if mode == os.O_RDONLY:
                raise
        except ValueError:
            raise OSError(errno.EINVAL, "no file can have this name") from None
        _create(path)
    file = FileIO(number, "r+" if mode == os.O_RDWR else "r")
    try:
        if not stat.S_ISREG(os.fstat(number).st_mode):
            raise LedgerError(
                f"'{_short(Path(path))}' is a device or a pipe, which cannot store a ledger. Name "
                "a file."
            )
    except BaseException:
        file.close()
        raise
    return file


def _create(path: str) -> None:
    """Create a new ledger atomically, unless another run creates it first."""
    target = os.path.realpath(path)  # also for a dangling link
    number, draft = tempfile.mkstemp(prefix=".ledger-", dir=os.path.dirname(target))
    try:
        _begin(number)
        with suppress(FileExistsError):
            os.link(draft, target)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS):
            raise
        # On a file system without hard links, a crash may leave an empty file.
        with suppress(FileExistsError):
            number = os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
            try:
                _begin(number)
            except BaseException:
                os.unlink(target)
                raise
    finally:
        os.unlink(draft)


def _begin(number: int) -> None:
    with FileIO(number, "w") as file:
        _write_all(file, head())
        os.fsync(number)


def _write_all(file: FileIO, text: bytes) -> None:
    rest = memoryview(text)
    while rest:  # on a full disk, write() stores a part first and raises on the next call
        count = file.write(rest)
        if not count:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        rest = rest[count:]


def _sync_folder(path: str) -> None:
    """Write a new file's directory entry to disk."""
    number = os.open(os.path.dirname(os.path.realpath(path)), os.O_RDONLY)
    try:
        os.fsync(number)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some systems write it by themselves
            raise
    finally:
        os.close(number)


@contextmanager
def _in_words(path: Path, done: str) -> Iterator[None]:
    """Replace errors of the operating system by messages without the user's folder names.

    `done` is the failed action, such as "read".
    """
    try:
        yield
    except OSError as error:
        raise LedgerError(
            f"The ledger '{_short(path)}' cannot be {done}: {_reason(error)}. Nothing was released."
        ) from None


def _reason(error: OSError) -> str:
    return error.strerror or type(error).__name__


def _short(path: Path) -> str:
    name = path.name or str(path)  # the file system root or the working directory has no name
    return name if len(name) <= 80 else f"{name[:77]}..."


def load(path: str | Path) -> Accounts:
    """Return the accounts in a ledger file (none if it is new); see `Ledger.load`."""
    ledger = past_of(path).ledger
    return Accounts(()) if ledger is None else ledger


def finished(path: str | Path, fingerprint: str) -> Finished:
    """Return the last ended run of the plan with this fingerprint.

    Raises
    ------
    LedgerError
        If no such run ended, or the file is not an intact ledger.
    """
    past, name = past_of(path), Path(path).name
    if fingerprint in past.finished:
        return past.finished[fingerprint]
    run = past.interrupted
    if run is not None and run.fingerprint == fingerprint:
        raise LedgerError(
            f"The run of this plan in the ledger '{name}' was interrupted. Resume it with "
            f"plan.run(ledger={name!r})."
        )
    raise LedgerError(
        f"The ledger '{name}' holds no run of this plan. Pass the ledger of a run with the same "
        "problem, algorithm, mechanism and rounds."
    )


def past_of(path: str | Path) -> Past:
    """Return accounts and runs in a ledger file.

    Raises
    ------
    LedgerError
        If the file does not exist, cannot be read, or is not an intact ledger.
    """
    path = Path(path)
    with _in_words(path, "read"):
        try:
            chain = _settled(path)
        except FileNotFoundError:
            raise LedgerError(
                f"There is no ledger '{_short(path)}'. Name an existing ledger file."
            ) from None
    return Past(_short(path), chain.lines)


def spent_of(path: str | Path) -> Past:
    """Return the accounts and ended plans in a ledger file, without its finished runs.

    Raises
    ------
    LedgerError
        See `past_of`.
    """
    path = Path(path)
    with _in_words(path, "read"), suppress(FileNotFoundError):
        full_path = os.path.abspath(path)
        with _opened(full_path, os.O_RDONLY) as file:
            totals = _totals(file, full_path)
        if totals is not None:
            return Past(_short(path), (), totals.ledger, totals.ended)
    return past_of(path)


def _totals(file: FileIO, path: str) -> Totals | None:
    """Return the totals stored beside an open file if they cover all its lines, else None."""
    if os.fstat(file.fileno()).st_size <= _SHORT:
        return None
    totals = read_totals(path, file.fileno())
    if totals is None or file.read(WIDTH) != head(totals.lines, totals.link):
        return None
    return totals


def _settled(path: Path) -> Chain:
    """Parse a ledger file during a run: read it until two reads agree or it is intact."""
    before = None
    for _ in range(_PATIENCE):
        with _opened(os.path.abspath(path), os.O_RDONLY) as file:
            raw = file.readall()
        try:
            return read(raw, _short(path))
        except LedgerError:
            if raw == before:
                raise
        before = raw
    raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
