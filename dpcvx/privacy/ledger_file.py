"""A ledger on disk: what is charged and released is written before anything of it leaves.

Agents note a charge before they compute and a value before they answer. The lines of an exchange
are written together: first all charges, then all values, in one piece that is forced to disk once,
before the run takes up any answer. A value is released when the run takes it up: what a process
drew that died before is drawn again, for nobody saw it.

`ledger_chain` reads the bytes of the file, `ledger_lines` their meaning. Lines can be neither
changed, removed nor added without notice. A process that is killed loses at most the exchange that
it was in; the next one goes on from there. (Whoever can write the file can write another with valid
hashes, or put back an old copy: the chain guards against accidents, not against the owner of the
data.)

A run on a long ledger neither reads nor prices the runs before it. Their totals are beside the
file, and count for the file as it was closed (`ledger_totals`).

A run locks the file itself, so that no other run has it under whatever name. After an error the
journal takes no further line, so that nothing is written behind a part of one.

Releases are public by the threat model, so their values stand in the file, for the run to go on
after a crash without releasing anything twice. Seeds and data never do.
"""

from __future__ import annotations

import errno
import os
import stat
import tempfile
import threading
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
from .ledger_chain import GROUP, WIDTH, Chain, head, linked, read
from .ledger_lines import (
    TORN,
    Finished,
    Notes,
    Past,
    Recorded,
    end_line,
    run_line,
)
from .ledger_totals import Totals, read_totals, write_totals

try:
    import fcntl
except ImportError:  # pragma: no cover - Windows
    fcntl = None

Array = NDArray[np.float64]

# How often a file may be replaced while it is being opened, or change while it is being read.
_PATIENCE = 100
# Bytes up to which a ledger is read as a whole for every run.
_SHORT = 1 << 15


class Journal:
    """The ledger file of a run, locked while it is open.

    Parameters
    ----------
    path : str or Path
        Created if it does not exist, for its owner alone to read and write.

    Raises
    ------
    LedgerError
        If its folder does not exist, another run has it open, it is not an intact ledger, or the
        operating system does not let it be read, written or locked.
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
            f"A line of the ledger '{_short(self.path)}' was not written to its end, so it takes "
            "no further one and nothing more leaves. Call run again as before: the run goes on "
            "where it stopped, and spends nothing twice."
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
                    f"The folder of the ledger '{_short(self.path)}' does not exist. A new ledger "
                    "counts from nothing, so none is created where a path may be mistyped: create "
                    "the folder."
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
        finally:  # after an interrupt in there, too
            if self._file is not None:
                self._file.close()

    def _lock(self) -> None:
        """Open the file and lock it, so that nobody else does while it is open."""
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
                fcntl.flock(self._file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise LedgerError(
                    f"The ledger '{_short(self.path)}' is in use by another run. Two runs that "
                    "spend from one ledger at once could overspend it: wait for the other. Runs on "
                    "the same data must share one ledger; another file is for other data only."
                ) from None
            if self._in_place():
                return
            self._file.close()  # it was removed or replaced before it was locked
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))

    def _in_place(self) -> bool:
        """Return whether the path still leads to the file that is open."""
        try:
            return os.path.samestat(os.stat(self._place), self._identity)
        except FileNotFoundError:
            return False

    def _open(self) -> None:
        """Read the file, and remove what a process that died has left."""
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
            # Part of a value is on disk. That is noted before it is removed, so that another crash
            # does not forget it.
            os.fsync(self._file.fileno())
            self._write(head(self._count, self._link, torn=True), 0)
            torn = True
        if chain.tail:
            os.fsync(self._file.fileno())
            self._file.truncate(self._end)
        # What is read here takes effect: it may have been written and not have reached the disk.
        os.fsync(self._file.fileno())
        if not chain.lines:
            _sync_folder(self._place)
        self._past = past
        # Short ledgers are read anew, so that a first run pays for no totals.
        self._ready(totals=self._end > _SHORT)
        if torn:
            self._append(TORN)
            past.take(TORN)

    def _ready(self, *, totals: bool) -> None:
        """Take lines from here on, and count the totals of what they spend."""
        self._refusal, self._counts = "", totals
        self._order = {name: k for k, name in enumerate(self._past.ledger or ())}

    def _close(self, refusal: str = "", *, unlock: bool = True) -> None:
        """Close the file; it takes no further line.

        Processes that are being forked have the file open as well, until they close it: the run
        gives the lock back for all of them, and they leave it alone.
        """
        with self._turn:
            self._refusal = refusal or f"The ledger '{_short(self.path)}' is not open."
            _OPEN.discard(self)
            if self._file is None or self._file.closed:
                return
            try:
                if unlock and fcntl is not None:
                    with suppress(OSError):  # closing it will do
                        fcntl.flock(self._file.fileno(), fcntl.LOCK_UN)
            finally:
                self._file.close()

    def _leave(self) -> None:
        """Close the file in a forked process: it belongs to the run of the first one."""
        self._turn = threading.RLock()  # a thread of the first process may have held it
        self._close(
            f"This process was forked from one whose run has the ledger '{_short(self.path)}'. "
            "Only that one writes it, so nothing leaves here. Start a run of its own here instead.",
            unlock=False,
        )

    @property
    def ledger(self) -> Accounts | None:
        """Return the accounts so far, the interrupted run included; None in a new file."""
        return self._past.ledger

    @property
    def before(self) -> Accounts | None:
        """Return the accounts before the interrupted run."""
        return self._past.before

    @property
    def interrupted(self) -> Recorded | None:
        """The last run, if it did not end."""
        return self._past.interrupted

    @property
    def lines(self) -> int:
        """Return the number of lines on disk."""
        return self._count

    def has_finished(self, fingerprint: str) -> bool:
        """Return whether a run of the plan with this fingerprint ended."""
        return fingerprint in self._past.ended

    def begin(
        self,
        fingerprint: str,
        *,
        seeded: bool,
        accounts: Iterable[Account],
        derived: Iterable[float] = (),
    ) -> None:
        """Record the start of a run of the plan with this fingerprint and derived numbers."""
        listed = list(accounts)
        self._order = {account.agent: k for k, account in enumerate(listed)}
        self._append(run_line(fingerprint, seeded, listed, derived))

    def charge(self, agents: list[str], entry: Entry) -> None:
        """Record the charge of agents with identical releases, before these are computed."""
        with self._turn:
            self._admitting().charge(agents, entry)
            self._settle()

    def release(self, agents: list[str], round_step: tuple[int, int], values: Array) -> None:
        """Record a value of each of these agents before its release; see `Writer`.

        Parameters
        ----------
        agents : list of str
        round_step : (int, int)
        values : ndarray, shape (agents, n)
        """
        with self._turn:
            self._admitting().release(agents, round_step, values)
            self._settle()

    def take(self, noted: Notes) -> None:
        """Add notes that agents made elsewhere."""
        with self._turn:
            self._admitting().add(noted)
            self._settle()

    @contextmanager
    def exchange(self) -> Iterator[None]:
        """Hold charges and values, and have all of them on disk at the end; also after an error."""
        self._held = True
        try:
            yield
        except BaseException:
            with suppress(LedgerError):  # the first error says more
                self._commit()
            raise
        self._commit()

    def _admitting(self) -> Notes:
        if self._refusal:
            raise LedgerError(self._refusal)
        return self._notes

    def _settle(self) -> None:
        """Have what was noted on disk, unless an exchange holds it."""
        if not self._held:
            self._commit()

    def _commit(self) -> None:
        with self._turn:
            self._held, lines = False, self._notes.lines(self._order)
            self._notes.taken()
            if lines:
                self._append(*lines)

    def end(self, status: str, rounds: int) -> str:
        """Write that the run is over.

        Returns
        -------
        str
            What the result should say if this cannot be written: everything that left is in the
            file already, so that nothing is wrong with the result. Empty if it was.
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
        """Write the totals of a ledger whose last run has ended."""
        ledger = self._past.ledger
        if self._counts and ledger is not None and self._file is not None:
            totals = Totals(self._count, self._link, self._end, ledger, tuple(self._past.ended))
            write_totals(self._place, self._file.fileno(), totals)

    def _append(self, *lines: Mapping[str, Any]) -> None:
        """Add lines in one piece, and return once they are on disk."""
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
            # Whatever ends this early, a signal as well, leaves a file that ends in part of a line.
            self._refusal = self._unfinished
            try:
                if not self._in_place():
                    raise LedgerError(
                        f"The ledger '{_short(self.path)}' was removed or replaced while a run "
                        "has it, so the run could not record what it spends. The run ends here, "
                        "and releases nothing more. Put the file back, or count the data as "
                        "spent."
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
                    f"The ledger '{_short(self.path)}' cannot be written: {_reason(error)}. "
                    "Nothing more leaves. When that is mended, call run again as before: the run "
                    "goes on where it stopped, and spends nothing twice."
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
    """A line that the file did not take."""


# The open journals of this process, for a fork to close them in the new one: a lock lasts as long
# as any process has the file open, and the new process may outlive the run.
_OPEN: weakref.WeakSet[Journal] = weakref.WeakSet()


def _after_fork() -> None:
    for journal in list(_OPEN):
        journal._leave()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _opened(path: str, mode: int) -> FileIO:
    """Return the file, which is created for writing."""
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
                f"'{_short(Path(path))}' is a device or a pipe, which keeps no ledger. Name a file."
            )
    except BaseException:
        file.close()
        raise
    return file


def _create(path: str) -> None:
    """A new ledger, unless another run is faster: it appears as a whole or not at all."""
    target = os.path.realpath(path)  # of a link that leads nowhere yet
    number, draft = tempfile.mkstemp(prefix=".ledger-", dir=os.path.dirname(target))
    try:
        _begin(number)
        with suppress(FileExistsError):
            os.link(draft, target)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS):
            raise
        # A file system without hard links, on which a crash may leave an empty file.
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
    while rest:  # a full disk takes a part first, and raises on the next attempt
        count = file.write(rest)
        if not count:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        rest = rest[count:]


def _sync_folder(path: str) -> None:
    """Write a new file's name to disk as well."""
    number = os.open(os.path.dirname(os.path.realpath(path)), os.O_RDONLY)
    try:
        os.fsync(number)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some systems do it by themselves
            raise
    finally:
        os.close(number)


@contextmanager
def _in_words(path: Path, done: str) -> Iterator[None]:
    """Raise errors of the operating system as text, without the folders of the user."""
    try:
        yield
    except OSError as error:
        raise LedgerError(
            f"The ledger '{_short(path)}' cannot be {done}: {_reason(error)}. Nothing was released."
        ) from None


def _reason(error: OSError) -> str:
    return error.strerror or type(error).__name__


def _short(path: Path) -> str:
    name = path.name or str(path)  # of a root, or of the working directory
    return name if len(name) <= 80 else f"{name[:77]}..."


def load(path: str | Path) -> Accounts:
    """Return the accounts in a ledger file, none in a new one; see `Ledger.load`."""
    ledger = past_of(path).ledger
    return Accounts(()) if ledger is None else ledger


def finished(path: str | Path, fingerprint: str) -> Finished:
    """Return the last run of a plan that ended.

    Raises
    ------
    LedgerError
        If there is none, or the file is not an intact ledger.
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
        f"The ledger '{name}' holds no run of this plan: problem, algorithm, mechanism and rounds "
        "must be those of the run."
    )


def past_of(path: str | Path) -> Past:
    """Return the content of a ledger file.

    Raises
    ------
    LedgerError
        If there is none, it cannot be read, or it is not an intact ledger.
    """
    path = Path(path)
    with _in_words(path, "read"):
        try:
            chain = _settled(path)
        except FileNotFoundError:
            raise LedgerError(f"There is no ledger '{_short(path)}'.") from None
    return Past(_short(path), chain.lines)


def spent_of(path: str | Path) -> Past:
    """Return what a further run needs to know of a ledger file: a `Past` without finished runs.

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
    """Return the totals of a file that is open, if they are those of all that it holds."""
    if os.fstat(file.fileno()).st_size <= _SHORT:
        return None
    totals = read_totals(path, file.fileno())
    if totals is None or file.read(WIDTH) != head(totals.lines, totals.link):
        return None
    return totals


def _settled(path: Path) -> Chain:
    """Return the content of a file that a run may be writing; read again if it changed."""
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
