"""Lines of a ledger file: their content, and the runs and accounts that they add up to.

`Notes` collects the charges and values of agents in a message round, for writing. Identical charges
share one line.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import itemgetter
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..errors import LedgerError
from .accounting import Composition
from .accounts import Account, Budget
from .adaptive import noise_of
from .book import Accounts
from .entries import Entry
from .ledger_chain import GROUP

Array = NDArray[np.float64]

# Marks a value of which a part was on disk when a process died. It begins as a value's line does.
TORN: dict[str, Any] = {"data": None, "torn": True}


def run_line(
    fingerprint: str, seeded: bool, accounts: Iterable[Account], derived: Iterable[float] = ()
) -> dict[str, Any]:
    """Return the line for a run's start: fingerprint, derived numbers, and accounts' budgets."""
    agents = {
        a.agent: {
            "adjacency": dict(a.adjacency),
            "share": a.share,
            "budget": None if a.budget is None else [a.budget.epsilon, a.budget.delta],
            "planned": 0.0 if a.budget is None else noise_of(a.budget.planned).mu2_bound,
        }
        for a in accounts
    }
    numbers = _coded(np.asarray(derived, dtype="<f8").tobytes())
    return {"run": fingerprint, "derived": numbers, "seeded": seeded, "agents": agents}


def charges_line(agents: Sequence[str], entry: Entry) -> dict[str, Any]:
    """Return the line that charges these agents for identical releases, described by `entry`."""
    # JSON has no infinity, which is the sensitivity of a release without noise.
    bound = entry.sensitivity if math.isfinite(entry.sensitivity) else None
    return {"charges": list(agents), **vars(entry), "sensitivity": bound}


def values_line(
    agents: Sequence[str], round_step: tuple[int, int], values: bytes
) -> dict[str, Any]:
    """Return the line with one released value of each of these agents.

    Parameters
    ----------
    agents : sequence of str
        Names of the agents.
    round_step : (int, int)
        Round, and release within it.
    values : bytes
        The agents' values, one after the other, as little-endian 8-byte floats.
    """
    return {
        "values": list(agents),
        "round": round_step[0],
        "step": round_step[1],
        "data": _coded(values),
    }


def _coded(numbers: bytes) -> str:
    return base64.b64encode(numbers).decode()


def _decoded(text: str) -> Array:
    return np.frombuffer(base64.b64decode(text), dtype="<f8").astype(float)


def end_line(status: str, rounds: int) -> dict[str, Any]:
    """Return the line for the end of a run, with its status and number of rounds."""
    return {"end": status, "rounds": rounds}


@dataclass
class Recorded:
    """A run as recorded in a ledger file; it may have been interrupted.

    Attributes
    ----------
    fingerprint : str
        Fingerprint of the plan.
    seeded : bool
        Whether the noise came from a seed.
    derived : ndarray
        Numbers of the plan in this run that the fingerprint does not cover.
    charged : dict of str to list of Entry
        Charges of each agent, by name.
    values : dict of str to dict of (round, step) to ndarray
        Released values of each agent, by name and (round, step).
    lost : dict of str to list of Entry
        Charges of each agent for values that were partly on disk when the process died.
    """

    fingerprint: str
    seeded: bool
    derived: Array = field(default_factory=lambda: np.zeros(0))
    charged: dict[str, list[Entry]] = field(default_factory=dict)
    values: dict[str, dict[tuple[int, int], Array]] = field(default_factory=dict)
    lost: dict[str, list[Entry]] = field(default_factory=dict)

    @property
    def reached(self) -> int:
        """The last round with a released value; 0 if there is none."""
        return max((t for values in self.values.values() for t, _ in values), default=0)


@dataclass(frozen=True, eq=False)
class Finished:
    """A run that ended, with the ledger after it."""

    run: Recorded
    status: str
    rounds: int  # number of completed rounds
    ledger: Accounts  # after the run


class Past:
    """Accounts and runs, read from the lines of a ledger file.

    Parameters
    ----------
    name : str
        Name of the file, for errors.
    lines : iterable of dict
        Lines of the file; if `ledger` and `ended` are given, only the lines after those they cover.
    ledger : Accounts, optional
        Accounts after earlier lines.
    ended : iterable of str
        Fingerprints of the plans of runs that ended in earlier lines.

    Attributes
    ----------
    ledger : Accounts or None
        Privacy losses so far, including the interrupted run; None in a new file.
    before : Accounts or None
        Privacy losses before the last run.
    interrupted : Recorded or None
        The last run, if it did not end; else None.
    finished : dict of str to Finished
        The last ended run of each plan among the lines, by the plan's fingerprint.
    ended : dict of str to None
        Fingerprints of the plans of all ended runs, in their order (a dict used as ordered set).
    begun : int
        Number of runs that begin in the lines.

    Raises
    ------
    LedgerError
        If a line has an unknown form.
    """

    def __init__(
        self,
        name: str,
        lines: Iterable[Mapping[str, Any]],
        ledger: Accounts | None = None,
        ended: Iterable[str] = (),
    ) -> None:
        self.ledger: Accounts | None = ledger
        self.before: Accounts | None = None
        self.interrupted: Recorded | None = None
        self.finished: dict[str, Finished] = {}
        self.ended: dict[str, None] = dict.fromkeys(ended)
        self.begun = 0
        self._running = ""
        try:
            for line in lines:
                self.take(line)
        except (KeyError, TypeError, ValueError, AttributeError):
            raise LedgerError(
                f"The ledger '{name}' holds lines that this version does not understand; "
                "use the version that wrote it."
            ) from None

    def take(self, line: Mapping[str, Any]) -> None:
        """Update accounts and runs by one line."""
        if "run" in line:
            self.before = None if self.ledger is None else _copied(self.ledger)
            self.begin(line)
            # files of earlier versions have no derived numbers
            numbers = _decoded(line.get("derived", ""))
            self.interrupted = Recorded(line["run"], line["seeded"], numbers)
        elif "end" in line:
            if self.interrupted is not None and self.ledger is not None:
                left = Finished(self.interrupted, line["end"], line["rounds"], _copied(self.ledger))
                self.finished[self.interrupted.fingerprint] = left
                self.ended[self.interrupted.fingerprint] = None
            self.interrupted = None
        elif self.interrupted is None or self.ledger is None:
            raise KeyError("run")
        elif "charge" in line or "charges" in line:
            entry, agents = self.charge(line)
            for agent in agents:
                self.interrupted.charged.setdefault(agent, []).append(entry)
        elif "torn" in line:
            self._lose(self.interrupted)
        elif "value" in line:
            key = line["round"], line["step"]
            values = self.interrupted.values.setdefault(line["value"], {})
            values[key] = _decoded(line["data"])
        elif "values" in line:
            key, agents = (line["round"], line["step"]), line["values"]
            rows = _decoded(line["data"]).reshape(len(agents), -1)
            for agent, row in zip(agents, rows, strict=True):
                self.interrupted.values.setdefault(agent, {})[key] = row
        else:
            raise KeyError("kind")

    def count(self, lines: Iterable[Mapping[str, Any]]) -> None:
        """Update the accounts by lines of the current run, whose values the run stores itself."""
        for line in lines:
            if "run" in line:
                self.begin(line)
            elif "charges" in line:
                self.charge(line)
            elif "end" in line:
                self.ended[self._running] = None

    def begin(self, line: Mapping[str, Any]) -> None:
        """Update the accounts by the line for the start of a run."""
        accounts = {} if self.ledger is None else dict(self.ledger)
        for name, facts in line["agents"].items():
            budget = facts["budget"]
            # Planned releases are represented by their bound mu^2, which suffices for later runs.
            planned = Composition(mu2=facts["planned"])
            limit = None if budget is None else Budget(budget[0], budget[1], planned)
            fresh = Account(name, facts["adjacency"], limit, share=facts["share"])
            accounts[name] = accounts[name].continued(fresh) if name in accounts else fresh
        self.ledger, self._running = Accounts(tuple(accounts.values())), line["run"]
        self.begun += 1

    def charge(self, line: Mapping[str, Any]) -> tuple[Entry, list[str]]:
        """Add a line's charge to the accounts; return its entry and agents."""
        assert self.ledger is not None
        bound = math.inf if line["sensitivity"] is None else line["sensitivity"]
        facts = {k: v for k, v in line.items() if k not in ("charge", "charges", GROUP)}
        stated = facts.get("stated")
        pair = None if stated is None else (float(stated[0]), float(stated[1]))
        entry = Entry(**{**facts, "sensitivity": bound, "stated": pair})
        # files of earlier versions charge one agent per line
        agents = line["charges"] if "charges" in line else [line["charge"]]
        for agent in agents:
            self.ledger[agent].recall(entry)
        return entry, agents

    def _lose(self, run: Recorded) -> None:
        for agent, entries in run.charged.items():
            values = run.values.get(agent, {})
            gone = [e for e in entries if (e.round, e.step) not in values]
            run.lost.setdefault(agent, []).extend(gone)
            run.charged[agent] = [e for e in entries if (e.round, e.step) in values]


def _copied(ledger: Accounts) -> Accounts:
    return Accounts(tuple(account.copy() for account in ledger.values()))


class Writer(Protocol):
    """Interface of the ledger for agents: records are on disk before a value is released."""

    def charge(self, agents: list[str], entry: Entry) -> None:
        """Record a charge of several agents for identical releases, before these are computed."""
        ...

    def release(self, agents: list[str], round_step: tuple[int, int], values: Array) -> None:
        """Record one value of each of these agents before its release.

        Parameters
        ----------
        agents : list of str
            Names of the agents, in the order of the rows of `values`.
        round_step : (int, int)
            Round, and release within it.
        values : ndarray, shape (agents, n)
        """
        ...


class Notes:
    """Charges and values of agents, collected before they are written; picklable."""

    def __init__(self) -> None:
        # Agents that were charged together stay together, in the order of the run.
        self._charges: dict[Entry, list[list[str]]] = {}
        # By (round, step, size). Numbers are copied to bytes, because agents reuse their arrays.
        self._values: dict[tuple[int, int, int], list[tuple[list[str], bytes]]] = {}

    def charge(self, agents: list[str], entry: Entry) -> None:
        """Note a charge of several agents for identical releases; see `Writer.charge`."""
        self._charges.setdefault(entry, []).append(agents)

    def release(self, agents: list[str], round_step: tuple[int, int], values: Array) -> None:
        """Note one released value of each of these agents; see `Writer.release`."""
        numbers = np.asarray(values, dtype="<f8").tobytes()
        self._values.setdefault((*round_step, values.shape[1]), []).append((agents, numbers))

    def add(self, later: Notes) -> None:
        """Append the later notes of another object to these."""
        for entry, told in later._charges.items():
            self._charges.setdefault(entry, []).extend(told)
        for key, told in later._values.items():
            self._values.setdefault(key, []).extend(told)

    def taken(self) -> Notes:
        """Return the notes made since the last call, and remove them."""
        taken = Notes()
        taken._charges, taken._values = self._charges, self._values
        self._charges, self._values = {}, {}
        return taken

    def lines(self, order: Mapping[str, int]) -> list[dict[str, Any]]:
        """Return the lines for the file, in a fixed order: all charges, then all values.

        Parameters
        ----------
        order : mapping of str to int
            Index of each agent in the run. Agents that it does not contain come first.
        """

        def rank(name: str) -> int:
            return order.get(name, -1)

        charges: list[tuple[tuple[int, ...], dict[str, Any]]] = []
        for entry, told in self._charges.items():
            names = told[0] if len(told) == 1 else sorted(chain(*told), key=rank)
            key = entry.round, entry.step, rank(names[0])
            charges.append((key, charges_line(names, entry)))
        values: list[tuple[tuple[int, ...], dict[str, Any]]] = []
        for (t, step, size), told in self._values.items():
            names, numbers = told[0] if len(told) == 1 else _sorted(told, size, rank)
            values.append(((t, step, rank(names[0])), values_line(names, (t, step), numbers)))
        return [line for kind in (charges, values) for _, line in sorted(kind, key=itemgetter(0))]


def _sorted(
    told: list[tuple[list[str], bytes]], size: int, rank: Callable[[str], int]
) -> tuple[list[str], bytes]:
    """Return agents' names sorted by rank, and their values' bytes in this order.

    `told` holds names with the bytes of `size` values for each.
    """
    width = 8 * size
    each = [
        (name, numbers[k * width : (k + 1) * width])
        for names, numbers in told
        for k, name in enumerate(names)
    ]
    each.sort(key=lambda pair: rank(pair[0]))
    return [name for name, _ in each], b"".join(data for _, data in each)
