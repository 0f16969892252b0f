"""A coordinator's log: what owners replied, so that a run can be gone on with.

The file is one frame after the other: a `Begun`, an `Exchange` for every exchange and `Answers`
for every question about iterates, each on disk before the server side takes it, `Ended`, and
`Parted` for owners that have heard so. A part of a frame at the end, which a process that died
left, is removed.
"""

from __future__ import annotations

import math
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from ..errors import LedgerError, RefusedError
from . import wire
from .messages import Answers, Begun, Ended, Exchange, Parted


@dataclass(eq=False)
class Log:
    """A log file that is open; kept in memory alone without a path.

    Parameters
    ----------
    path : Path or None

    Raises
    ------
    LedgerError
        If the file is no log.
    """

    path: Path | None

    def __post_init__(self) -> None:
        self.begun: Begun | None = None
        self.exchanges: list[Exchange] = []
        self.answers: list[Answers] = []
        self.ended: Ended | None = None
        self.parted: set[str] = set()
        self._file = None if self.path is None else _opened(self.path)
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
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def begin(self, begun: Begun) -> None:
        """A run begins."""
        self.begun = begun
        self._write(begun)

    def add(self, found: Exchange | Answers | Ended | Parted) -> None:
        """What owners said; on disk when this returns."""
        self._take(found)
        self._write(found)

    def _take(self, found: Exchange | Answers | Ended | Parted) -> None:
        if isinstance(found, Exchange):
            self.exchanges.append(found)
        elif isinstance(found, Answers):
            self.answers.append(found)
        elif isinstance(found, Ended):
            self.ended = found
        else:
            self.parted.update(found.agents)

    def _write(self, found: object) -> None:
        if self._file is None:
            return
        self._file.write(wire.encode(found, math.inf))
        self._file.flush()
        os.fsync(self._file.fileno())

    def _read(self) -> None:
        if self._file is None:
            return
        raw = self._file.read()
        at = 0
        for frame in wire.frames_in(raw):
            found = _record(frame)
            if found is None:
                break
            if isinstance(found, Begun) and self.begun is None:
                self.begun = found
            elif isinstance(found, (Exchange, Answers, Ended, Parted)) and self.begun is not None:
                self._take(found)
            else:
                raise _no_log(self.path)
            at += len(frame)
        if raw and self.begun is None and at == 0 and not raw.startswith(wire.MAGIC):
            raise _no_log(self.path)
        self._file.truncate(at)
        self._file.seek(at)


def _record(frame: memoryview) -> object:
    try:
        # It has the replies of all owners, each of which may be as large as a frame.
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
        if not stat.S_ISREG(os.fstat(number).st_mode):  # a device keeps nothing
            os.close(number)
            raise _no_log(path)
        return os.fdopen(number, "r+b")
    except OSError as error:
        raise LedgerError(
            f"The log '{path.name}' cannot be opened: {error.strerror}. Nothing was asked of any "
            "owner."
        ) from None
