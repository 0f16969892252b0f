"""An owner's audit log: hash-chained lines on requests, their times, and software versions.

It lies beside the ledger, which lists the releases. A head of fixed width holds the number of lines
and the hash of the last one, so a changed line and a missing end are both noticed. (Anyone who
can write the file can write another one with valid hashes: hand a copy to the auditor in time.)

The times in it are arrivals of requests and scheduled times of replies, which are multiples of
``reply_after`` after an arrival. No line holds the time when a computation ended.

``spent.jsonl.audit.totals`` holds the end of an intact log and the versions that its runs began
with, so a process does not have to read a long log when it starts. This file is valid for one state
of the log; for any other state, all lines are read. `report` always reads all of them.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from .._words import number, plural
from ..errors import LedgerError
from ..privacy.ledger_chain import linked, read_beside, write_beside
from ..privacy.ledger_file import past_of
from .faults import file_words

_FORMAT = "dpcvx audit 1"
_TOTALS = "dpcvx audit totals 1"
_WIDTH = 160
_START = hashlib.sha256(_FORMAT.encode()).hexdigest()
# Packages whose versions may change the last bits of the values that an owner computes.
_COMPUTING = ("dpcvx", "numpy", "scipy", "clarabel", "numba", "qdldl", "daqp")


@cache
def versions() -> Mapping[str, str]:
    """Return the versions of all computing packages; dpcvx's also has a digest of its files."""
    by_name = {}
    for name in _COMPUTING:
        try:
            by_name[name] = version(name)
        except PackageNotFoundError:
            continue
    digest = hashlib.sha256()
    root = Path(__file__).parents[1]
    for path in sorted(root.rglob("*.py")):
        digest.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes())
    by_name["dpcvx"] += f" (files {digest.hexdigest()[:12]})"
    return by_name


@dataclass
class _Tail:
    """End of an intact audit log, and the package versions that its runs began with."""

    count: int  # lines
    link: str  # hash of the last line
    end: int  # position in the file, in bytes
    begun: dict[str, Mapping[str, str]]  # versions, by run

    def add(self, line: Mapping[str, Any], link: str, size: int) -> None:
        """Move the log's end behind a new line of `size` bytes; store a begun run's versions."""
        self.count, self.link, self.end = self.count + 1, link, self.end + size
        if line["what"] == "begun":
            self.begun.setdefault(line["run"], line["versions"])


class AuditLog:
    """The audit log beside a ledger, to append lines to.

    Parameters
    ----------
    path : Path
        File of the log; the first line creates it, readable for its user alone.
    clock : callable
        Function that returns the time, in seconds since 1970.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self.path, self._clock = path, clock
        self._known: _Tail | None = None
        self._grown = False  # whether lines were added since the totals file was written

    def now(self) -> float:
        """Return the time, in seconds since 1970."""
        return self._clock()

    def add(self, what: str, seconds: float | None = None, **facts: Any) -> None:
        """Append a line to the log.

        Parameters
        ----------
        what : str
            Kind of the line.
        seconds : float, optional
            Time of an arrival or of a scheduled reply, in seconds since 1970.
        facts : str, int, float, list or dict
            Public facts, by the names of their fields.

        Raises
        ------
        LedgerError
            If the file is no intact log.
        OSError
            If the file cannot be written.
        """
        tail = self._tail()
        line = {"what": what, **({} if seconds is None else {"at": said_time(seconds)}), **facts}
        link, text = linked(tail.link, line)
        file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            if tail.end == 0:
                try:
                    _write(file, _head(0, _START), 0)
                except OSError:  # a file with a partial head would be no intact log
                    self.path.unlink()
                    raise
                tail.end = _WIDTH
            _write(file, text, tail.end)
            os.ftruncate(file, tail.end + len(text))
            _write(file, _head(tail.count + 1, link), 0)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self.path)) from None
        finally:
            os.close(file)
        tail.add(line, link, len(text))
        self._grown = True

    def require_intact(self) -> None:
        """Do nothing if the file is an intact log, or does not exist.

        Raises
        ------
        LedgerError
            If the file is no intact log, or cannot be read.
        """
        self._tail()

    def begun_with(self, run: str) -> Mapping[str, str] | None:
        """Return the package versions that a run began with; None if the log lacks the run."""
        return self._tail().begun.get(run)

    def close(self) -> None:
        """Write the totals file with the log's end. No other process may write the log then."""
        if self._known is None or not self._grown:
            return
        self._grown, tail = False, self._known
        distinct = [dict(pairs) for pairs in {tuple(v.items()) for v in tail.begun.values()}]
        begun = {run: distinct.index(dict(v)) for run, v in tail.begun.items()}
        facts = {"lines": tail.count, "link": tail.link, "versions": distinct, "begun": begun}
        with suppress(OSError):
            file = os.open(self.path, os.O_RDWR)
            try:
                write_beside(str(self.path), file, tail.end, {"format": _TOTALS, **facts})
            finally:
                os.close(file)

    def _tail(self) -> _Tail:
        if self._known is None:
            self._known = self._read_tail()
        return self._known

    def _read_tail(self) -> _Tail:
        try:
            file = os.open(self.path, os.O_RDONLY)
        except OSError:  # `read_log` raises the reason, if there is a file
            facts, end = None, 0
        else:
            try:
                facts, end = read_beside(str(self.path), file, _TOTALS), os.fstat(file).st_size
            finally:
                os.close(file)
        with suppress(KeyError, TypeError, IndexError, AttributeError):
            if facts is not None:
                begun = {run: facts["versions"][k] for run, k in facts["begun"].items()}
                return _Tail(facts["lines"], facts["link"], end, begun)
        tail = _Tail(0, _START, 0, {})
        if self.path.exists():
            log = read_log(self.path)
            for line in log.lines:
                tail.add(line, log.link, 0)
            tail.link, tail.end = log.link, log.end
        return tail


@dataclass(frozen=True)
class AuditLines:
    """The lines of an intact audit log."""

    lines: list[dict[str, Any]]
    link: str
    end: int  # position of their end in the file, in bytes


def read_log(path: Path) -> AuditLines:
    """Return the lines of an audit log.

    Raises
    ------
    LedgerError
        If there is no log in the file, or a line was changed, removed or added.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise LedgerError(f"The audit log {file_words(error, path, 'read')}") from None
    if not raw.startswith(b'{"format": "dpcvx '):
        raise LedgerError(
            f"'{path.name}' is no audit log, or its first line was changed. Name the file beside "
            "the ledger, such as spent.jsonl.audit."
        )
    if raw.startswith(b'{"format": "dpcvx ledger'):
        raise LedgerError(
            f"'{path.name}' is a ledger. Name the audit log beside it, '{path.name}.audit'."
        )
    links, lines, end = [_START], [], _WIDTH
    for text in raw[_WIDTH:].split(b"\n")[:-1]:
        try:
            line = json.loads(text)
            link = line.pop("link")
            following, again = linked(links[-1], line)
        except (ValueError, TypeError, AttributeError, KeyError, RecursionError):
            break
        if link != following or again != text + b"\n" or not isinstance(line.get("what"), str):
            break
        links.append(following)
        lines.append(line)
        end += len(text) + 1
    # If a process died between two writes, the head lags by one line, or part of a line follows.
    heads = {_head(n, links[n]): n for n in (len(lines), max(len(lines) - 1, 0))}
    if raw[:_WIDTH] not in heads or b"\n" in raw[end:]:
        raise LedgerError(
            f"The audit log '{path.name}' is not intact after {plural(len(lines), 'line')}: lines "
            "were changed, removed or added, or it is another file. Restore it from a copy, and "
            "keep this file: it is evidence."
        )
    return AuditLines(lines, links[-1], end)


@dataclass
class _AuditedRun:
    """Summary of an audit log's lines on one run."""

    offered: dict[str, Any]
    coordinator: dict[str, Any]
    versions: list[Mapping[str, str]] = field(default_factory=list)
    consent: str = ""
    requests: int = 0
    last: int = 0
    refusals: list[str] = field(default_factory=list)
    end: str = ""


def report(path: Path) -> str:
    """Return a one-page summary of an audit log, after a comparison with the ledger beside it.

    Parameters
    ----------
    path : Path
        File of the log, such as ``spent.jsonl.audit``.

    Raises
    ------
    LedgerError
        If log or ledger are not intact, or the ledger has a run or a round that the log lacks.
    """
    log = read_log(path)
    lines = log.lines
    times = [line["at"] for line in lines if "at" in line]
    runs, alone = _runs(lines)
    span = f", from {times[0]} to {times[-1]}" if times else ""
    shown = [f"audit log {path.name}: {plural(len(lines), 'line')}, chain intact{span}"]
    for owner in dict.fromkeys((o["agent"], o["certificate"]) for o in _of(lines, "opened")):
        shown.append(f"  owner {owner[0]}, certificate {owner[1] or 'none'}")
    for name, run in runs.items():
        shown += _said_of(name, run)
    for line in alone:
        shown.append(f"  refused at {line.get('arrived', '?')}: {line['code']}, before any offer")
    shown += _compared(path, runs, _of(lines, "opened"))
    return "\n".join(shown)


def _runs(
    lines: Sequence[Mapping[str, Any]],
) -> tuple[dict[str, _AuditedRun], list[Mapping[str, Any]]]:
    """Return the log's runs by name, and its lines on refusals that belong to no run."""
    runs: dict[str, _AuditedRun] = {}
    alone, coordinator, run = [], {}, None
    for line in lines:
        what = line["what"]
        if what == "connected":
            coordinator = dict(line)
        elif what == "offer":
            run = runs.setdefault(line["run"], _AuditedRun(dict(line), coordinator))
        elif what == "refused" and (run is None or line.get("run", "") not in ("", *runs)):
            alone.append(line)
        elif run is None:
            continue
        elif what == "consent":
            run.consent = line["answer"]
        elif what == "begun":
            run.offered["part"] = line["part"]
            run.versions.append(line["versions"])
        elif what == "request":
            run.requests += 1
            run.last = max(run.last, line.get("round", 0))
            if "status" in line:
                run.end = f"{line['status']} after round {line['rounds']}"
        elif what == "refused":
            run.refusals.append(f"{line['code']} at {line.get('arrived', '?')}")
    return runs, alone


def _said_of(name: str, run: _AuditedRun) -> Iterator[str]:
    offer, met = run.offered, run.coordinator
    yield (
        f"  run {name[:12]}: offered {offer['at']}, plan {offer['plan'][:12]}, {offer['method']}, "
        f"{plural(offer['rounds'], 'round')}, document {offer['digest'][:12]}"
    )
    if met:
        yield (
            f"    coordinator {met['coordinator']} at {met['address']}, which uses {met['uses']}"
        )
    if run.consent:
        yield f"    a person answered {run.consent}"
    for k, versions_of in enumerate(run.versions):
        if k == 0 or versions_of != run.versions[k - 1]:
            again = "" if k == 0 else "CHANGED in the run: "
            yield f"    {again}{', '.join(f'{n} {v}' for n, v in versions_of.items())}"
    yield (
        f"    {plural(run.requests, 'request')}, up to round {run.last}; "
        f"{run.end or 'the end was not said'}"
    )
    for refusal in run.refusals:
        yield f"    refused: {refusal}"


def _of(lines: Sequence[Mapping[str, Any]], what: str) -> list[Mapping[str, Any]]:
    return [line for line in lines if line["what"] == what]


def _compared(
    path: Path, runs: Mapping[str, _AuditedRun], opened: Sequence[Mapping[str, Any]]
) -> Iterator[str]:
    """Yield lines on the ledger's totals, after checking that the log has all of its runs.

    `opened` are the log's lines on its owner, which list runs before the log began.
    """
    ledger = path.with_suffix("")
    if not ledger.exists():
        charged = [name for name, run in runs.items() if run.last > 0]
        if charged:
            raise LedgerError(
                f"The audit log '{path.name}' has runs with releases, and there is no ledger "
                f"'{ledger.name}' beside it. Put it there: it records what was released."
            )
        yield f"  no ledger {ledger.name} yet: nothing was released"
        return
    past = past_of(ledger)
    by_plan = {run.offered.get("part"): run for run in runs.values()}
    before = set(opened[0].get("earlier", [])) if opened else set()
    held = {print_: finished_run.run.reached for print_, finished_run in past.finished.items()}
    if past.interrupted is not None:
        held[past.interrupted.fingerprint] = past.interrupted.reached
    for print_, reached in held.items():
        if print_ in before:
            continue
        run = by_plan.get(print_)
        if run is None or run.last < reached:
            raise LedgerError(
                f"The ledger '{ledger.name}' has a run{'' if run is None else ' and rounds'} that "
                f"the audit log '{path.name}' lacks: lines were removed from the log, or another "
                "program wrote the ledger."
            )
    for account in (past.ledger or {}).values():
        spent = account.spent()
        yield (
            f"ledger {ledger.name}: {plural(past.begun, 'run')}, "
            f"{plural(len(account.entries), 'charge')}; epsilon {number(spent.epsilon)} at delta "
            f"{number(spent.delta)} is spent; the log has every run"
            f"{f' but {len(before)} from before it' if before else ''}"
        )


def _write(file: int, text: bytes, start: int) -> None:
    """Write a whole text, or raise: a write to a nearly full disk may store only a part of it."""
    done = 0
    while done < len(text):
        done += os.pwrite(file, text[done:], start + done)


def _head(count: int, link: str) -> bytes:
    text = json.dumps({"format": _FORMAT, "lines": count, "link": link})
    return text.ljust(_WIDTH - 1).encode() + b"\n"


def said_time(seconds: float) -> str:
    """Return a time in UTC as text, rounded to a hundredth of a second."""
    when = dt.datetime.fromtimestamp(round(seconds, 2), dt.UTC)
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")
