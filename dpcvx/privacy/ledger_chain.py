"""Bytes of a ledger file, one JSON object per line, chained by hashes; and its totals beside it.

Each line holds a hash of itself and of everything before it. Lines are written in groups: the
charges and values of one message round, or one line of another kind. The head has a fixed width,
the number of lines and the hash of the last one. It is rewritten in place after a group is on disk.
A group is forced to disk before it takes effect, and the head with the next group. A process that
dies, or a disk that loses power, can leave the following three states, which are accepted:

* the head lags: by one group if it was not rewritten, by two groups if it did not reach the disk
  before the next group did;
* after the intact lines comes a part of the group that was being written, truncated or with sectors
  of zeros; the head then lags by at most one more group;
* the head consists of the first part of a new head and the last part of the head before it.

In these states, all lines that ever took effect are intact. All other states are refused.

*Totals* start a run without reading all lines of a long file. ``spent.jsonl.totals`` contains
everything that a further run needs: the accounts, the plans whose runs ended, and the last hash of
the chain. A run writes it at its end, while it holds the lock. The totals are valid for one state
of one file. At the end of a run, the file's modification time is set to the current nanosecond; the
totals contain the file's device, inode, size and times. A later change, a replacement or a copy of
the file differs in one of these. The next run then reads and checks all lines, and so it does if
the totals are missing or damaged. `Ledger.load`, ``replay`` and ``dpcvx inspect`` always read all
lines. The totals contain no further information, so losing them does no harm.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ..errors import LedgerError
from .accounting import Composition
from .accounts import Account, Budget
from .book import Accounts
from .entries import Entries, Entry, Span

_FORMAT = "dpcvx ledger 2"
_EARLIER = "dpcvx ledger 1"
# Bytes of the head. It lies within one sector, which a disk without power writes wholly or not at
# all.
WIDTH = 160
_SECTOR = 512
_START = hashlib.sha256(_FORMAT.encode()).hexdigest()
# Beginning of a value's line. A partial line that does not begin with it contains no value.
_VALUE = b'{"data"'
# Key of the number of lines of a group, in the group's first line.
GROUP = "lines"


@dataclass(frozen=True)
class Chain:
    """Content of an intact ledger file, which may end in an incomplete line of a killed process."""

    lines: list[dict[str, Any]]  # content of the intact lines
    link: str  # hash of the last intact line
    end: int  # offset in bytes of their end
    tail: bytes  # incomplete line at the end of the file
    head: bytes  # bytes of the head in the file
    torn: bool  # whether the head records a partly written value that no line records yet

    @property
    def holds_value(self) -> bool:
        """Return whether the incomplete line may contain a part of a value."""
        told = self.tail.strip(b"\0")
        return _VALUE in told or b"\0" in told or (told != b"" and not self.tail.startswith(told))


def head(count: int = 0, link: str = _START, torn: bool = False) -> bytes:
    """Return a ledger file's head for `count` lines; `link` is the hash of the last line.

    The head is the first line of the file. `torn` marks that a crash left a part of a value, which
    no later line has accounted for yet.
    """
    marked = {"torn": True} if torn else {}
    text = json.dumps({"format": _FORMAT, "lines": count, "link": link, **marked})
    return text.ljust(WIDTH - 1).encode() + b"\n"


def linked(link: str, line: Mapping[str, Any]) -> tuple[str, bytes]:
    """Return the hash and text of a line that follows a line with the hash `link`."""
    body = _text(line)
    following = hashlib.sha256(f"{link} {body}".encode()).hexdigest()
    return following, _text({**line, "link": following}).encode() + b"\n"


def read(raw: bytes, name: str) -> Chain:
    """Parse a ledger file and verify its hashes.

    Parameters
    ----------
    raw : bytes
        The whole file.
    name : str
        Name of the file, for errors.

    Raises
    ------
    LedgerError
        If the file is in none of the states that the module accepts.
    """
    if not raw:
        raise LedgerError(
            f"'{name}' is empty. A ledger file is never empty, so this file was emptied, or is "
            "another file. The spent privacy loss is unknown. If these data were never used, "
            "delete the file or name one that does not exist; a new ledger is created there."
        )
    lines: list[dict[str, Any]] = []
    links, end = [_START], WIDTH
    for text in raw[WIDTH:].split(b"\n")[:-1]:
        line = _followed(links[-1], text)
        if line is None:
            break
        links.append(line.pop("link"))
        lines.append(line)
        end += len(text) + 1
    first, tail = raw[:WIDTH], raw[end:]
    ends, begun = _group_ends(lines)
    counted = _counted(first, links, ends)
    stated = None if counted else _stated(first, name)
    # A complete line without its newline was changed: no disk replaces a newline by another
    # character.
    whole = not tail.endswith(b"\0") and _followed(links[-1], tail[:-1]) is not None
    # The incomplete line may belong to a group whose first lines are intact.
    least = ends[-3:][0] if begun else ends[-2:][0]
    if tail and (whole or not _cut_off(tail, end) or (counted and counted[0] < least)):
        raise LedgerError(
            f"Line {len(lines) + 2} of the ledger '{name}' does not continue the lines before it: "
            "the file was changed. What was spent is not known; restore the file, or count the "
            "data as spent."
        )
    if counted is None:
        raise LedgerError(
            f"The ledger '{name}' has {len(lines)} lines, but its first line states {stated}: "
            "lines were removed or added, so the spent privacy loss is unknown. Restore the "
            "file, or count the data as spent."
        )
    count, torn = counted
    return Chain(lines, links[-1], end, tail, first, torn and count == len(lines))


def _text(line: Mapping[str, Any]) -> str:
    return json.dumps(line, sort_keys=True, default=float)  # converts numpy's numbers


def _followed(link: str, text: bytes) -> dict[str, Any] | None:
    """Return the line parsed from `text` if it follows a line of hash `link`, else None."""
    try:
        line = json.loads(text)
        following, again = linked(link, {k: v for k, v in line.items() if k != "link"})
    except (ValueError, TypeError, AttributeError, RecursionError):
        return None
    return line if again == text + b"\n" and line["link"] == following else None


def _group_ends(lines: Sequence[Mapping[str, Any]]) -> tuple[list[int], bool]:
    """Return the numbers of lines at group ends, and whether the last group is incomplete.

    If a process died while it wrote a group, the next process's group may follow a part of it.
    """
    ends, whole = [0], 0
    for index, line in enumerate(lines):
        if index == whole or GROUP in line:
            ends.append(index)
            size = line.get(GROUP, 1)
            whole = index + (size if type(size) is int and size > 0 else 1)
    return [*dict.fromkeys((*ends, len(lines)))], whole > len(lines)


def _counted(first: bytes, links: list[str], ends: list[int]) -> tuple[int, bool] | None:
    """Return the line count and torn mark in the head `first` if it fits the lines, else None.

    `links` are the hashes of all lines, and `ends` the numbers of lines at ends of groups.
    """
    if len(first) < WIDTH:
        return None
    heads = {(n, torn): head(n, links[n], torn) for n in ends[-3:] for torn in (False, True)}
    for result, whole in heads.items():
        if first == whole:
            return result
    for (n, torn), new in heads.items():
        same = next((i for i in range(WIDTH) if first[i] != new[i]), WIDTH)
        for (m, before), old in heads.items():
            # A head replaces a head of fewer lines, or adds the torn mark for as many lines.
            if (m < n or (m == n and torn and not before)) and first[same:] == old[same:]:
                return n, False
    return None


def _stated(first: bytes, name: str) -> int:
    """Return the line count in a head `first` that does not fit the lines; refuse other files."""
    earlier = False
    try:
        stated = json.loads(first)
        count, written = stated["lines"], stated["format"]
        if len(first) == WIDTH and written == _FORMAT and type(count) is int:
            return count
        earlier = written == _EARLIER
    except (ValueError, KeyError, TypeError, RecursionError):
        pass
    if earlier:
        raise LedgerError(
            f"'{name}' was written by an earlier version of dpcvx, which counted several runs on "
            "one ledger by a rule that does not hold for plans chosen after seeing results. Read "
            "it with that version, take what it says as spent, and start a new file."
        )
    raise LedgerError(
        f"'{name}' is not a dpcvx ledger, or its first line was changed. Name another file; a new "
        "one is created where there is none."
    )


def _cut_off(tail: bytes, start: int) -> bool:
    """Return whether a crash can have truncated a group of lines to these bytes at `start`.

    A disk that loses power leaves zeros in unwritten sectors; other sectors may hold ends of lines.
    """
    if b"\n" not in tail:
        return True
    gaps = [gap.span() for gap in re.finditer(b"\0+", tail)]
    return bool(gaps) and all(
        (begin == 0 or (start + begin) % _SECTOR == 0)
        and (end == len(tail) or (start + end) % _SECTOR == 0)
        for begin, end in gaps
    )


_TOTALS_FORMAT = "dpcvx totals 1"


@dataclass(frozen=True)
class Totals:
    """Totals of all lines of a ledger file whose last run has ended."""

    lines: int  # number of lines
    link: str  # hash of the last line
    end: int  # size of the file
    ledger: Accounts  # accounts of all agents
    ended: tuple[str, ...]  # fingerprints of the plans whose runs ended


def write_totals(file_path: str, number: int, totals: Totals) -> None:
    """Write the totals of an open and locked ledger file; failure to write them does no harm.

    Parameters
    ----------
    file_path : str
        Path of the ledger file.
    number : int
        Descriptor of the ledger file.
    totals : Totals
        Totals of all its lines.
    """
    write_beside(file_path, number, totals.end, {"format": _TOTALS_FORMAT, **_document(totals)})


def write_beside(file_path: str, number: int, size: int, document: dict[str, Any]) -> None:
    """Write a JSON document beside an open, locked file, valid for the file's present state.

    Parameters
    ----------
    file_path : str
        Path of the file. The document's file has this name with ``.totals`` appended.
    number : int
        Descriptor of the file.
    size : int
        Expected size of the file in bytes; otherwise nothing is written.
    document : dict
        Content of the document, convertible to JSON.
    """
    with suppress(OSError):
        # Other programs set modification times from the kernel's clock, whose steps are much
        # coarser.
        now = time.time_ns()
        os.utime(number, ns=(now, now))
        status = os.fstat(number)
        if status.st_mtime_ns != now or status.st_size != size:
            return
        body = json.dumps({"file": _identity(status), **document}, default=float).encode()
        folder, name = os.path.split(os.path.realpath(file_path))
        draft, path = tempfile.mkstemp(prefix=".totals-", dir=folder)
        try:
            with os.fdopen(draft, "wb") as file:
                file.write(hashlib.sha256(body).hexdigest().encode() + b"\n" + body)
            os.replace(path, os.path.join(folder, f"{name}.totals"))
        except BaseException:
            os.unlink(path)
            raise


def read_totals(file_path: str, number: int) -> Totals | None:
    """Return the totals of an open ledger file if they fit its present state, else None.

    Parameters
    ----------
    file_path : str
        Path of the ledger file.
    number : int
        Descriptor of the ledger file.
    """
    try:
        document = read_beside(file_path, number, _TOTALS_FORMAT)
        return None if document is None else _totals(document)
    except (ValueError, KeyError, TypeError):
        return None


def read_beside(file_path: str, number: int, kind: str) -> dict[str, Any] | None:
    """Return the document beside an open file if it fits the file's present state, else None.

    Parameters
    ----------
    file_path : str
        Path of the file.
    number : int
        Descriptor of the file.
    kind : str
        Expected value of "format" in the document.
    """
    try:
        with open(f"{os.path.realpath(file_path)}.totals", "rb") as file:
            digest, body = file.read().split(b"\n", 1)
        if digest.decode() != hashlib.sha256(body).hexdigest():
            return None
        document = json.loads(body)
        same = document["format"] == kind and document["file"] == _identity(os.fstat(number))
        return document if same else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _identity(status: os.stat_result) -> list[int]:
    """Return numbers of a file's status; any change of the file changes at least one."""
    return [
        status.st_dev,
        status.st_ino,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
    ]


def _document(totals: Totals) -> dict[str, Any]:
    spans: dict[Span, int] = {}
    accounts = [_written(account, spans) for account in totals.ledger.accounts]
    return {
        "lines": totals.lines,
        "link": totals.link,
        "end": totals.end,
        "ended": totals.ended,
        "spans": [[vars(span.first), span.count, span.steps] for span in spans],
        "accounts": accounts,
    }


def _written(account: Account, spans: dict[Span, int]) -> dict[str, Any]:
    """Return an account as JSON, with entries as indices of `spans`; new spans are added there."""
    runs = []
    for run, times in account.entries.runs:
        places = [spans.setdefault(span, len(spans)) for span in run if isinstance(span, Span)]
        runs.append([places, times])
    budget = account.budget
    return {
        "agent": account.agent,
        "adjacency": dict(account.adjacency),
        "budget": None if budget is None else [budget.epsilon, budget.delta, vars(budget.planned)],
        "share": account.share,
        "committed": account.committed,
        "total": vars(account.total),
        "runs": runs,
    }


def _totals(document: dict[str, Any]) -> Totals:
    spans = [Span(_entry(facts), count, steps) for facts, count, steps in document["spans"]]
    accounts = []
    for told in document["accounts"]:
        budget = told["budget"]
        runs = [(tuple(spans[k] for k in places), times) for places, times in told["runs"]]
        accounts.append(
            Account(
                told["agent"],
                told["adjacency"],
                None if budget is None else Budget(budget[0], budget[1], _composition(budget[2])),
                Entries.of_runs(runs),
                told["share"],
                told["committed"],
                _composition(told["total"]),
            )
        )
    return Totals(
        document["lines"],
        document["link"],
        document["end"],
        Accounts(tuple(accounts)),
        tuple(document["ended"]),
    )


def _entry(facts: dict[str, Any]) -> Entry:
    stated = facts["stated"]
    return Entry(**{**facts, "stated": None if stated is None else tuple(stated)})


def _composition(facts: dict[str, Any]) -> Composition:
    """Return a composition from JSON; unknown fields raise, so that all lines are read instead."""
    parts: dict[str, Any] = {
        name: tuple(map(tuple, part)) if isinstance(part, list) else part
        for name, part in facts.items()
    }
    return Composition(**parts)
