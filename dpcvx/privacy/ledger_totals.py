"""Totals of a long ledger file, in a file beside it, to start a run without reading all lines.

``spent.jsonl.totals`` contains everything that a further run needs: the accounts, the plans whose
runs ended, and the last hash of the chain. A run writes it at its end, while it holds the lock.

The totals are valid for one state of one file. At the end of a run, the file's modification time is
set to the current nanosecond; the totals contain the file's device, inode, size and times. A later
change, a replacement or a copy of the file differs in one of these. The next run then reads and
checks all lines, and so it does if the totals are missing or damaged. `Ledger.load`, ``replay`` and
``dpcvx inspect`` always read all lines. The totals contain no further information, so losing them
does no harm.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from .accounting import Composition
from .accounts import Account, Budget
from .book import Accounts
from .entries import Entries, Entry, Span

_FORMAT = "dpcvx totals 1"


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
    write_beside(file_path, number, totals.end, {"format": _FORMAT, **_document(totals)})


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
        document = read_beside(file_path, number, _FORMAT)
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
