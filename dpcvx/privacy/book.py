"""Privacy accounts of all agents by name, and joint accounts of agents with identical charges.

`Accounts` is the mapping that users see. `JointAccount` charges a batch of agents at once.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._arguments import show
from .._figure import card
from .._words import at_most, number, plural, together
from ..errors import ModelError
from ..guard import frameless
from .accounting import Composition, Price, check_delta
from .accounts import Account
from .entries import Entry
from .mechanism import Calibrated
from .split_noise import coalition

Index = NDArray[np.intp]


# Largest number of lines of a ledger that a notebook shows.
_LISTED = 6


@frameless
@dataclass(frozen=True)
class Accounts(Mapping[str, Account]):
    """Read-only mapping from agent names to the agents' privacy accounts."""

    accounts: tuple[Account, ...]

    def __post_init__(self) -> None:
        given = self.accounts
        if type(given) is not tuple or not all(isinstance(each, Account) for each in given):
            raise ModelError(
                f"dp.Ledger({show(given)}) holds no accounts of agents. Write result.ledger, or "
                "dp.Ledger.load('ledger.jsonl') for a file. Only runs make accounts."
            )

    def __repr__(self) -> str:
        releases = sum(len(account.entries) for account in self.accounts)
        agents = plural(len(self.accounts), "agent")
        return f"<{type(self).__name__}: {agents}, {plural(releases, 'release')}>"

    def _repr_html_(self) -> str:
        return card(self, self.short)

    @property
    def short(self) -> tuple[tuple[str, str], ...]:
        """Pairs of agents' names and a text on their privacy loss; long lists are cut."""
        said = [(together(agents), text) for text, agents in self._said.items()]
        if len(said) > _LISTED:
            most = (
                f"and {len(said) - _LISTED} more lines, none above epsilon {at_most(self.spent())}"
            )
            said[_LISTED:] = [("...", most)]
        return tuple(said)

    @frameless
    def __getitem__(self, agent: str) -> Account:
        account = self.get(agent)
        if account is None:
            raise KeyError(agent)
        return account

    @frameless
    def get(self, key: str, default: Any = None) -> Any:
        """Return the account of an agent, or `default` if the ledger has none.

        Raises
        ------
        ModelError
            If the key is not text.
        """
        if not isinstance(key, str):
            raise ModelError(
                f"ledger[...] takes the name of an agent as text, but got {show(key)}. Write "
                "ledger['north'], for example."
            )
        return self._by_name.get(key, default)

    @cached_property
    def _by_name(self) -> dict[str, Account]:
        return {account.agent: account for account in reversed(self.accounts)}

    @frameless
    def __contains__(self, agent: object) -> bool:
        return isinstance(agent, str) and self.get(agent) is not None

    def __iter__(self) -> Iterator[str]:
        return (account.agent for account in self.accounts)

    def __len__(self) -> int:
        return len(self.accounts)

    @frameless
    def spent(self, delta: float | None = None) -> float:
        """Return the largest epsilon of any agent; losses on different agents' data do not add."""
        return max((price.epsilon for price in self.prices(delta).values()), default=0.0)

    @frameless
    def prices(self, delta: float | None = None) -> dict[str, Price]:
        """Return each agent's privacy loss by name, over all its releases; see `Account.spent`."""
        if delta is not None:
            check_delta(delta)
            delta = float(delta)
        # Many agents often have equal losses, and some losses take seconds to compute.
        by_key: dict[tuple[Composition, float | None, bool, float], Price] = {}
        prices = {}
        for account in self.accounts:
            level = account.delta if delta is None else delta
            key = account.total, account.committed, account.share > 1, level
            if key not in by_key:
                by_key[key] = account.spent(delta)
            prices[account.agent] = by_key[key]
        return prices

    @property
    def rho(self) -> float:
        """Largest zCDP parameter rho of any agent."""
        return max((account.rho for account in self.accounts), default=0.0)

    def to_json(self) -> str:
        """Return all releases as JSON, without seed, noise or data."""
        book = {a.agent: [dataclasses.asdict(e) for e in a.entries] for a in self.accounts}
        return json.dumps(book, indent=1)

    @property
    def _said(self) -> dict[str, list[str]]:
        """Names of the agents, grouped by the text on the privacy loss that they spent."""
        grouped: dict[str, list[str]] = {}
        for account, price in zip(self.accounts, self.prices().values(), strict=True):
            grouped.setdefault(_spent(account, price), []).append(account.agent)
        return grouped

    def __str__(self) -> str:
        return "\n".join(
            f"{together(agents)}{', each' if len(agents) > 1 else ''}: {text}"
            for text, agents in self._said.items()
        )


def _spent(account: Account, price: Price) -> str:
    """Return a text on an account's privacy loss, budget, and unproved assumptions."""
    if not account.entries:
        return "nothing private was released"
    allowed = "" if account.budget is None else f" of {at_most(account.budget.epsilon)}"
    if math.isinf(price.epsilon):
        allowed += " (no guarantee is left)"
    asserted = sum(n for entry, n in account.entries.kinds if entry.certificate == "asserted")
    mark = f"; {asserted} with asserted sensitivity, NOT proved" if asserted else ""
    if account.colluders is not None:
        everyone = account.spent_against_all(price.delta)
        mark = (
            f" against {coalition(account.colluders)}, and epsilon {at_most(everyone.epsilon)} "
            f"against all other agents together{mark}"
        )
    return (
        f"spent epsilon {at_most(price.epsilon)}{allowed} at delta {number(price.delta)} in "
        f"{plural(len(account.entries), 'release')} ({price.accountant}){mark}"
    )


class JointAccount:
    """Accounts of one agent, or of several whose accounts are initially equal apart from names.

    Agents with equal charges share one total, computed once, since the loss of a release
    depends only on its noise. They also share each entry.

    Parameters
    ----------
    accounts : sequence of Account
        The account of a single agent is charged in place. Accounts of several agents stay
        unchanged, and `accounts` returns their charged copies.
    """

    def __init__(self, accounts: Sequence[Account]) -> None:
        self._accounts = accounts
        # One account per group of agents with equal charges, named after the group's first agent;
        # and for each agent, the index of its group in this list.
        self._spent = [accounts[0].copy() if len(accounts) > 1 else accounts[0]]
        self._group = np.zeros(len(accounts), dtype=np.intp)
        # From the first message round in which the agents' entries differ: the entries before that
        # round, all entries since, and per round each agent's index among the latter (-1: no
        # entry).
        self._common = self._spent[0].entries
        self._entries: list[Entry] = []
        self._positions: list[Index] = []

    def charge(self, charges: Sequence[tuple[Index, Entry]], noise: Calibrated | None) -> None:
        """Record the releases that some or all agents are about to make in one message round.

        Parameters
        ----------
        charges : sequence of (ndarray of int, Entry)
            Indices of agents (disjoint between the pairs), and the entry of their release.
        noise : Calibrated or None
            Noise of all these releases; None for exact values.

        Raises
        ------
        BudgetError
            If an account's budget does not cover its release. No release is recorded then.
        """
        everyone = len(self._accounts)
        if len(charges) == 1 and charges[0][0].size == everyone and len(self._spent) == 1:
            _charge(self._spent[0], charges[0][1], noise)
            if self._positions:
                self._positions.append(np.full(everyone, len(self._entries)))
                self._entries.append(charges[0][1])
        elif charges:
            self._charge_some(charges, noise)

    def _charge_some(
        self, charges: Sequence[tuple[Index, Entry]], noise: Calibrated | None
    ) -> None:
        """Record releases that differ between agents, or that only some agents make."""
        positions = np.full(len(self._accounts), -1, dtype=np.intp)
        for k, (rows, _) in enumerate(charges):
            positions[rows] = k
        if not self._positions:
            self._common = self._common.copy()
        charged = np.unique(self._group[positions >= 0]).tolist()
        for group in charged if len(charged) > 1 and noise is not None else ():
            self._spent[group].require(noise)
        for group in range(len(self._spent)):
            members = np.flatnonzero(self._group == group)
            due = members[positions[members] >= 0]
            if not due.size:
                continue
            account = self._spent[group]
            if due.size < members.size:
                account = replace(account.copy(), agent=self._accounts[int(due[0])].agent)
                self._group[due] = len(self._spent)
                self._spent.append(account)
            _charge(account, charges[int(positions[due[0]])][1], noise)
        self._positions.append(np.where(positions < 0, -1, positions + len(self._entries)))
        self._entries += [entry for _, entry in charges]

    def accounts(self) -> list[Account]:
        """Return all agents' accounts with the charges so far."""
        if len(self._accounts) == 1:
            return [*self._accounts]
        spent = [self._spent[group] for group in self._group.tolist()]
        pairs = zip(self._accounts, spent, strict=True)
        accounts = [account.taken_over(total) for account, total in pairs]
        if self._positions:
            entries = tuple(self._entries)
            by_agent = np.array(self._positions).T
            for account, positions in zip(accounts, by_agent, strict=True):
                account.entries = self._common.copy()
                account.entries.pick(entries, positions[positions >= 0])
        return accounts


def _charge(account: Account, entry: Entry, noise: Calibrated | None) -> None:
    """Record one release in one account, with noise or as an exact value."""
    if noise is None:
        account.expose(entry)
    elif noise.stated is not None:
        account.charge_run(entry, noise.composed(1))
    else:
        account.charge(entry, noise)
