"""The privacy ledger: a record of all agents' releases and of their privacy loss."""

from __future__ import annotations

from pathlib import Path

from .._arguments import show
from ..errors import ModelError
from ..guard import frameless
from .book import Accounts
from .ledger_file import load


class Ledger(Accounts):
    """Privacy accounts of all agents, as a read-only mapping from agent names.

    Parameters
    ----------
    accounts : tuple of Account
        Accounts that runs return; `load` reads the accounts in a file.

    Raises
    ------
    ModelError
        If `accounts` is not a tuple of accounts.
    """

    @staticmethod
    @frameless
    def load(path: str | Path) -> Ledger:
        """Return the ledger in the file of runs with ``ledger=path``.

        Raises
        ------
        LedgerError
            If the file is not an intact ledger.
        """
        if not isinstance(path, (str, Path)):
            raise ModelError(
                f"dp.Ledger.load({show(path)}) has no path. Write the name of a ledger file, such "
                "as dp.Ledger.load('spent.jsonl')."
            )
        return Ledger(load(path).accounts)
