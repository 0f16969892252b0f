"""Totals of a long ledger file, beside it, so that a run costs the same however many came before.

``spent.jsonl.totals`` holds what a further run needs to know: the accounts, the plans whose runs
ended, and where the chain of hashes ends. A run writes it at its end, while it holds the lock.

It counts for one state of one file only. When a run ends, the file's time of change is set to the
nanosecond, and device, number, size and times are noted. A later change, a replacement or a copy
in its place changes one of these. Then the run reads and checks all lines, as it does where the
totals are missing or damaged. `Ledger.load`, ``replay`` and ``dpcvx inspect`` always do so. The
totals are no second ledger: nothing is lost with them.
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
    """The sum of all lines of a ledger file whose last run has ended."""

    lines: int
    link: str  # hash of the last line
    end: int  # size of the file
    ledger: Accounts
    ended: tuple[str, ...]  # fingerprints of the plans of runs that ended


def write_totals(file_path: str, number: int, totals: Totals) -> None:
    """Write the totals of a ledger file that is open and locked; without them all is read.

    Parameters
    ----------
    file_path : str
        The ledger's path.
    number : int
        Its descriptor.
    totals : Totals
    """
    write_beside(file_path, number, totals.end, {"format": _FORMAT, **_document(totals)})


def write_beside(file_path: str, number: int, size: int, document: dict[str, Any]) -> None:
    """Write what is known of a file that is open and locked, for its present state alone.

    Parameters
    ----------
    file_path : str
        Path of the file. The document lies beside it, under its name and ``.totals``.
    number : int
        Descriptor of the file.
    size : int
        Bytes that it should have; otherwise nothing is written.
    document : dict
        Facts as JSON.
    """
    with suppress(OSError):
        # Other programs write times of the kernel's clock, whose steps are far coarser.
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
    """Return the totals of a ledger file that is open; None if there are none of its present state.

    Parameters
    ----------
    file_path : str
        The ledger's path.
    number : int
        Its descriptor.
    """
    try:
        document = read_beside(file_path, number, _FORMAT)
        return None if document is None else _totals(document)
    except (ValueError, KeyError, TypeError):
        return None


def read_beside(file_path: str, number: int, kind: str) -> dict[str, Any] | None:
    """Return what is known of a file that is open; None if that is of another state of it.

    Parameters
    ----------
    file_path : str
        Path of the file.
    number : int
        Descriptor of the file.
    kind : str
        Format that the document should name.
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
    """Return what every change of a file changes."""
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
    """Return an account as JSON; its entries are positions in `spans`, which grows by new ones."""
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
    """Return a composition; parts that are unknown here are an error, and all lines are read."""
    parts: dict[str, Any] = {
        name: tuple(map(tuple, part)) if isinstance(part, list) else part
        for name, part in facts.items()
    }
    return Composition(**parts)
