"""The accounts of agents that are charged at the same times, with the same noise."""

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
    """Accounts that are equal at first, but for whose they are, and are charged together.

    Sums are kept once for all agents that were charged as often, since noise is charged by its
    level, and entries once for all that have them.

    Parameters
    ----------
    accounts : sequence of Account
        They stay as they are.
    """

    def __init__(self, accounts: Sequence[Account]) -> None:
        self._accounts = accounts
        # What was spent by agents that were charged as often, under the name of the first of them,
        # and whose it is.
        self._spent, self._of = [accounts[0].copy()], np.zeros(len(accounts), dtype=np.intp)
        # From the first exchange on whose entry is not the same for all: the entries before it, all
        # others, and by exchange where among these each agent's is; -1 for none.
        self._common = self._spent[0].entries
        self._entries: list[Entry] = []
        self._places: list[Index] = []

    @property
    def first(self) -> Account:
        """What the first agent has spent; entries of those that were charged like it."""
        return self._spent[0]

    def charge(self, charges: Sequence[tuple[Index, Entry]], noise: Calibrated) -> None:
        """Record what some or all agents are about to release in one exchange.

        Parameters
        ----------
        charges : sequence of (ndarray of int, Entry)
            Positions of agents, each in one of them at most, and what they release.
        noise : Calibrated
            Of all of it.

        Raises
        ------
        BudgetError
            If an account does not cover it. Nothing is recorded then.
        """
        if not charges:
            return
        places = np.full(len(self._accounts), -1, dtype=np.intp)
        for k, (rows, _) in enumerate(charges):
            places[rows] = k
        apart = len(charges) != 1 or bool((places < 0).any())
        if apart and not self._places:
            self._common = self._common.copy()
        charged = np.unique(self._of[places >= 0]).tolist()
        for which in charged if len(charged) > 1 else ():
            self._spent[which].require(noise)
        for which in range(len(self._spent)):
            own = np.flatnonzero(self._of == which)
            hit = own[places[own] >= 0]
            if not hit.size:
                continue
            account = self._spent[which]
            if hit.size < own.size:
                account = replace(account.copy(), agent=self._accounts[int(hit[0])].agent)
                self._of[hit] = len(self._spent)
                self._spent.append(account)
            account.charge(charges[int(places[hit[0]])][1], noise)
        if apart or self._places:
            self._places.append(np.where(places < 0, -1, places + len(self._entries)))
            self._entries += [entry for _, entry in charges]

    def accounts(self) -> list[Account]:
        """Those of all agents, as they are now."""
        spent = [self._spent[which] for which in self._of.tolist()]
        if not self._places:
            return [own.taken_over(one) for own, one in zip(self._accounts, spent, strict=True)]
        found, entries = [], tuple(self._entries)
        for own, one, places in zip(self._accounts, spent, np.array(self._places).T, strict=True):
            account = own.taken_over(one)
            account.entries = self._common.copy()
            account.entries.pick(entries, places[places >= 0])
            found.append(account)
        return found
