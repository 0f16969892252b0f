"""The account book of agents that release at the same times, with the same noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from .accounts import Account
from .entries import Entry
from .mechanism import Calibrated

Index = NDArray[np.intp]


class JointAccount:
    """Accounts of one agent, or of several that are equal at first but for their names.

    Sums are computed once for all agents that were charged as often, since noise is charged by its
    level. Entries are stored once for all agents that have them.

    Parameters
    ----------
    accounts : sequence of Account
        The account of a single agent is charged itself. Those of several agents stay as they are,
        and `accounts` returns what became of them.
    """

    def __init__(self, accounts: Sequence[Account]) -> None:
        self._accounts = accounts
        # What was spent by agents that were charged as often, under the name of the first of them,
        # and by agent its position in this list.
        self._spent = [accounts[0].copy() if len(accounts) > 1 else accounts[0]]
        self._group = np.zeros(len(accounts), dtype=np.intp)
        # From the first exchange on whose entry is not the same for all: the entries before it, all
        # other entries, and by exchange where among these each agent's is; -1 for none.
        self._common = self._spent[0].entries
        self._entries: list[Entry] = []
        self._positions: list[Index] = []

    def charge(self, charges: Sequence[tuple[Index, Entry]], noise: Calibrated | None) -> None:
        """Record what some or all agents are about to release in one exchange.

        Parameters
        ----------
        charges : sequence of (ndarray of int, Entry)
            Positions of agents, each in one of them at most, and what they release.
        noise : Calibrated or None
            Noise of all of it; None for exact values.

        Raises
        ------
        BudgetError
            If an account does not cover it. Nothing is recorded then.
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
        """Record charges of which not all agents have the same."""
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
        """Return the accounts of all agents, as they are now."""
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
    """Record one release in one account."""
    if noise is None:
        account.expose(entry)
    elif noise.truncation is not None:
        account.charge_run(entry, noise.composed(1))
    else:
        account.charge(entry, noise)
