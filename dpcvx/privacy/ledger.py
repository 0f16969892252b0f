"""The privacy ledger: what every agent has released, and what that cost."""

from __future__ import annotations

from pathlib import Path

from .._arguments import show
from ..errors import ModelError
from ..guard import frameless
from .book import Accounts
from .ledger_file import load


class Ledger(Accounts):
    """The accounts of all agents, by name.

    Parameters
    ----------
    accounts : tuple of Account
        Accounts that runs make; `load` reads those of a file.

    Raises
    ------
    ModelError
        If they are none.
    """

    @staticmethod
    @frameless
    def load(path: str | Path) -> Ledger:
        """Return the ledger that runs with ``ledger=path`` keep in a file.

        Raises
        ------
        LedgerError
            If the file is not an intact ledger.
        """
        if not isinstance(path, (str, Path)):
            raise ModelError(f"dp.Ledger.load({show(path)}) has no path: write the file's name.")
        return Ledger(load(path).accounts)
