"""A ledger on disk: charges are written before values are computed, values before they leave.

The file has one JSON object per line. The first line has a fixed width and is rewritten in place:
it counts the others and holds the last link of their chain of hashes. Each other line holds the
hash of itself and of everything before it, so that lines can be neither changed, removed nor added
without notice. A process that is killed loses at most the line it was writing; the next one goes
on from there. (Whoever can write the file can write another with valid hashes, or put back an old
copy: the chain guards against accidents, not against the owner of the data.)

Releases are public by the threat model, so their values stand in the file, for the run to go on
after a crash without releasing anything twice. Seeds and data never do.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import os
import threading
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from filelock import FileLock, Timeout
from numpy.typing import NDArray

from .accounting import Composition
from .entries import Entry
from .errors import LedgerError
from .ledger import Account, Budget, Ledger

Array = NDArray[np.float64]

_FORMAT = "dpcvx ledger 1"
_HEAD = 160
_TORN: dict[str, Any] = {"data": None, "torn": True}
_START = hashlib.sha256(_FORMAT.encode()).hexdigest()


@dataclass
class Recorded:
    """A run as the file has it, perhaps interrupted.

    Attributes
    ----------
    fingerprint : str
        Of its plan.
    seeded : bool
    charged : dict of str to list of Entry
        Per agent, what it was charged.
    values : dict of str to dict of (round, step) to ndarray
        Per agent, what left it.
    lost : dict of str to list of Entry
        Per agent, charges for values of which a part was on disk when the process died.
    """

    fingerprint: str
    seeded: bool
    charged: dict[str, list[Entry]] = field(default_factory=dict)
    values: dict[str, dict[tuple[int, int], Array]] = field(default_factory=dict)
    lost: dict[str, list[Entry]] = field(default_factory=dict)

    @property
    def reached(self) -> int:
        """The last round in which a value left."""
        return max((t for known in self.values.values() for t, _ in known), default=0)


@dataclass(frozen=True, eq=False)
class Finished:
    """A run that ended.

    Attributes
    ----------
    run : Recorded
    status : str
    rounds : int
        Rounds that were run.
    ledger : Ledger
        As the run left it.
    """

    run: Recorded
    status: str
    rounds: int
    ledger: Ledger


class Journal:
    """The ledger file of a run, locked while it is open.

    Parameters
    ----------
    path : str or Path
        Created if it does not exist.

    Raises
    ------
    LedgerError
        If its folder does not exist, another process has it open, or it is not an intact ledger.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if self.path.is_dir():
            raise LedgerError(
                f"ledger='{self.path.name}' is a folder. Name a file in it, such as "
                f"'{self.path.name}/spent.jsonl'."
            )
        if not self.path.parent.is_dir():
            raise LedgerError(
                f"The folder of the ledger '{self.path.name}' does not exist. A new ledger counts "
                "from nothing, so none is created where a path may be mistyped: create the folder."
            )
        self._lock = FileLock(f"{self.path.resolve()}.lock")
        self._turn = threading.Lock()
        self._file: FileIO | None = None

    def __enter__(self) -> Self:
        try:
            self._lock.acquire(timeout=0)
        except Timeout:
            raise LedgerError(
                f"The ledger '{self.path.name}' is in use by another run. Two runs that spend from "
                "one ledger at once could overspend it: wait for the other. Runs on the same data "
                "must share one ledger; another file is for other data only."
            ) from None
        try:
            self._open()
        except BaseException:
            if self._file is not None:
                self._file.close()
            self._lock.release()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._file is not None:
            self._file.close()
        self._lock.release()

    def _open(self) -> None:
        fresh = not self.path.exists() or self.path.stat().st_size == 0
        if fresh:
            self.path.write_bytes(_head(0, _START))
        lines, torn, end = _read(self.path)
        past = _Past(self.path, lines)
        self._file = self.path.open("r+b", buffering=0)
        self._count = len(lines)
        self._link = lines[-1]["link"] if lines else _START
        if past.interrupted is not None and torn.startswith(b'{"data"'):
            # Part of a value is on disk. The line that says so is written over it and begins in the
            # same way, so that another crash loses neither.
            self._append(_TORN, end)
            past.take(_TORN)
        else:
            self._file.truncate(end)
            self._write_head()
        self._past = past

    @property
    def ledger(self) -> Ledger | None:
        """What was spent so far, the interrupted run included; None in a new file."""
        return self._past.ledger

    @property
    def before(self) -> Ledger | None:
        """What was spent before the interrupted run."""
        return self._past.before

    @property
    def interrupted(self) -> Recorded | None:
        """The last run, if it did not end."""
        return self._past.interrupted

    def has_finished(self, fingerprint: str) -> bool:
        """Whether a run of the plan with this fingerprint ended."""
        return fingerprint in self._past.finished

    def begin(self, fingerprint: str, *, seeded: bool, accounts: Iterable[Account]) -> None:
        """A run starts."""
        agents = {
            a.agent: {
                "adjacency": dict(a.adjacency),
                "share": a.share,
                "budget": None if a.budget is None else [a.budget.epsilon, a.budget.delta],
            }
            for a in accounts
        }
        self._append({"run": fingerprint, "seeded": seeded, "agents": agents})

    def charge(self, agent: str, entry: Entry) -> None:
        """A release is about to be computed."""
        # Without noise the sensitivity is infinite, which JSON cannot say.
        bound = entry.sensitivity if math.isfinite(entry.sensitivity) else None
        self._append({"charge": agent, **asdict(entry), "sensitivity": bound})

    def release(self, agent: str, place: tuple[int, int], value: Array) -> None:
        """A value is about to leave."""
        data = base64.b64encode(np.ascontiguousarray(value, dtype="<f8").tobytes())
        where = {"round": place[0], "step": place[1]}
        self._append({"value": agent, **where, "data": data.decode()})

    def end(self, status: str, rounds: int) -> None:
        """The run is over."""
        self._append({"end": status, "rounds": rounds})

    def _append(self, line: Mapping[str, Any], at: int | None = None) -> None:
        """Add a line at the end of the file, or where the intact part of it ends."""
        assert self._file is not None
        with self._turn:
            link, text = _linked(self._link, line)
            self._file.seek(0 if at is None else at, os.SEEK_END if at is None else os.SEEK_SET)
            rest = memoryview(text)
            while rest:  # a full disk takes a part first, and raises on the next attempt
                rest = rest[self._file.write(rest) :]
            self._file.truncate()
            os.fsync(self._file.fileno())
            self._link, self._count = link, self._count + 1
            self._write_head()

    def _write_head(self) -> None:
        assert self._file is not None
        self._file.seek(0)
        self._file.write(_head(self._count, self._link))


def load(path: str | Path) -> Ledger:
    """See `Ledger.load`."""
    found = _opened(path).ledger
    return Ledger(()) if found is None else found


def finished(path: str | Path, fingerprint: str) -> Finished:
    """The last run of a plan that ended.

    Raises
    ------
    LedgerError
        If there is none, or the file is not an intact ledger.
    """
    past, name = _opened(path), Path(path).name
    if fingerprint in past.finished:
        return past.finished[fingerprint]
    run = past.interrupted
    if run is not None and run.fingerprint == fingerprint:
        raise LedgerError(
            f"The run of this plan in the ledger '{name}' was interrupted. Go on with it by "
            f"plan.run(ledger={name!r})."
        )
    raise LedgerError(
        f"The ledger '{name}' holds no run of this plan: problem, algorithm, mechanism and rounds "
        "must be those of the run."
    )


def _opened(path: str | Path) -> _Past:
    path = Path(path)
    if not path.exists():
        raise LedgerError(f"There is no ledger '{path.name}'.")
    lines, _, _ = _read(path)
    return _Past(path, lines)


def _head(count: int, link: str) -> bytes:
    text = json.dumps({"format": _FORMAT, "lines": count, "link": link})
    return text.ljust(_HEAD - 1).encode() + b"\n"


def _linked(link: str, line: Mapping[str, Any]) -> tuple[str, bytes]:
    body = _text(line)
    following = hashlib.sha256(f"{link} {body}".encode()).hexdigest()
    return following, _text({**line, "link": following}).encode() + b"\n"


def _text(line: Mapping[str, Any]) -> str:
    return json.dumps(line, sort_keys=True, default=float)  # numpy's numbers as plain ones


def _read(path: Path) -> tuple[list[dict[str, Any]], bytes, int]:
    """The intact lines, what is left of a line that was cut off, and where the intact part ends."""
    raw = path.read_bytes()
    head, body = raw[:_HEAD], raw[_HEAD:]
    try:
        stated = json.loads(head)
        if len(head) < _HEAD or stated["format"] != _FORMAT:
            raise ValueError
        count, last = stated["lines"], str(stated["link"])
        if type(count) is not int or count < 0:
            raise ValueError
    except (ValueError, KeyError, TypeError):
        raise LedgerError(
            f"'{path.name}' is not a dpcvx ledger, or its first line was changed. Name another "
            "file; a new one is created where there is none."
        ) from None
    *whole, torn = body.split(b"\n")
    lines: list[dict[str, Any]] = []
    link, end = _START, _HEAD
    for number, text in enumerate(whole, 1):
        try:
            line = json.loads(text)
            claimed = line.pop("link")
            link, again = _linked(link, line)
        except (ValueError, KeyError, TypeError, AttributeError):
            raise _tampered(path, number) from None
        if claimed != link or again != text + b"\n":
            raise _tampered(path, number)
        lines.append({**line, "link": link})
        end += len(text) + 1
    reached = _START if count == 0 else lines[count - 1]["link"] if count <= len(lines) else None
    # The first line is rewritten after a line was added: it may lag by one.
    if reached != last or len(lines) > count + 1:
        raise LedgerError(
            f"The ledger '{path.name}' has {len(lines)} lines where its first line counts {count}: "
            "lines were removed or added, so what was spent is not known. Restore the file, or "
            "count the data as spent."
        )
    return lines, torn, end


def _tampered(path: Path, number: int) -> LedgerError:
    return LedgerError(
        f"Line {number + 1} of the ledger '{path.name}' does not continue the lines before it: the "
        "file was changed. What was spent is not known; restore the file, or count the data as "
        "spent."
    )


class _Past:
    """The lines of a ledger file as accounts."""

    def __init__(self, path: Path, lines: list[dict[str, Any]]) -> None:
        self.ledger: Ledger | None = None
        self.before: Ledger | None = None
        self.interrupted: Recorded | None = None
        self.finished: dict[str, Finished] = {}
        try:
            for line in lines:
                self.take({k: v for k, v in line.items() if k != "link"})
        except (KeyError, TypeError, ValueError):
            raise LedgerError(
                f"The ledger '{path.name}' holds lines that this version does not understand; "
                "use the version that wrote it."
            ) from None

    def take(self, line: Mapping[str, Any]) -> None:
        """Account for one line."""
        if "run" in line:
            self.before = None if self.ledger is None else _copy(self.ledger)
            known = {} if self.ledger is None else dict(self.ledger)
            for name, facts in line["agents"].items():
                budget = facts["budget"]
                limit = None if budget is None else Budget(budget[0], budget[1], Composition())
                fresh = Account(name, facts["adjacency"], limit, share=facts["share"])
                known[name] = known[name].continued(fresh) if name in known else fresh
            self.ledger = Ledger(tuple(known.values()))
            self.interrupted = Recorded(line["run"], line["seeded"])
        elif "end" in line:
            if self.interrupted is not None and self.ledger is not None:
                left = Finished(self.interrupted, line["end"], line["rounds"], _copy(self.ledger))
                self.finished[self.interrupted.fingerprint] = left
            self.interrupted = None
        elif self.interrupted is None or self.ledger is None:
            raise KeyError("run")
        elif "charge" in line:
            bound = math.inf if line["sensitivity"] is None else line["sensitivity"]
            facts = {k: v for k, v in line.items() if k != "charge"}
            stated = facts.get("stated")
            pair = None if stated is None else (float(stated[0]), float(stated[1]))
            entry = Entry(**{**facts, "sensitivity": bound, "stated": pair})
            self.ledger[line["charge"]].recall(entry)
            self.interrupted.charged.setdefault(line["charge"], []).append(entry)
        elif "torn" in line:
            self._lose(self.interrupted)
        elif "value" in line:
            data = np.frombuffer(base64.b64decode(line["data"]), dtype="<f8").astype(float)
            place = line["round"], line["step"]
            self.interrupted.values.setdefault(line["value"], {})[place] = data
        else:
            raise KeyError("kind")

    def _lose(self, run: Recorded) -> None:
        for agent, entries in run.charged.items():
            known = run.values.get(agent, {})
            gone = [e for e in entries if (e.round, e.step) not in known]
            run.lost.setdefault(agent, []).extend(gone)
            run.charged[agent] = [e for e in entries if (e.round, e.step) in known]


def _copy(ledger: Ledger) -> Ledger:
    return Ledger(tuple(a.continued(a) for a in ledger.values()))
