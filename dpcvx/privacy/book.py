"""The accounts of all agents: what they spent, by agent and in words."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from .._arguments import show
from .._card import card
from .._words import at_most, number, plural, together
from ..errors import ModelError
from ..guard import frameless
from .accounting import Composition, Price, check_delta
from .accounts import Account
from .split_noise import coalition

# Lines of a ledger that a notebook shows at once.
_LISTED = 6


@frameless
@dataclass(frozen=True)
class Accounts(Mapping[str, Account]):
    """The accounts of all agents, by name."""

    accounts: tuple[Account, ...]

    def __post_init__(self) -> None:
        given = self.accounts
        if type(given) is not tuple or not all(isinstance(each, Account) for each in given):
            raise ModelError(
                f"dp.Ledger({show(given)}) holds no accounts of agents. Write result.ledger, or "
                "dp.Ledger.load('ledger.jsonl') for a file: runs make accounts."
            )

    def __repr__(self) -> str:
        releases = sum(len(account.entries) for account in self.accounts)
        agents = plural(len(self.accounts), "agent")
        return f"<{type(self).__name__}: {agents}, {plural(releases, 'release')}>"

    def _repr_html_(self) -> str:
        return card(self, self.short)

    @property
    def short(self) -> tuple[tuple[str, str], ...]:
        """Agents that spent alike, and what that is; of many the first, and the most."""
        said = [(together(agents), text) for text, agents in self._said.items()]
        if len(said) > _LISTED:
            most = (
                f"and {len(said) - _LISTED} more lines, none above epsilon {at_most(self.spent())}"
            )
            said[_LISTED:] = [("...", most)]
        return tuple(said)

    @frameless
    def __getitem__(self, agent: str) -> Account:
        found = self.get(agent)
        if found is None:
            raise KeyError(agent)
        return found

    @frameless
    def get(self, key: str, default: Any = None) -> Any:
        """The account of an agent, or `default` if the ledger has none.

        Raises
        ------
        ModelError
            If the key is not text.
        """
        if not isinstance(key, str):
            raise ModelError(f"ledger[...] takes the name of an agent as text, got {show(key)}.")
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
        """The largest epsilon any agent has spent: data of different agents compose in parallel."""
        return max((price.epsilon for price in self.prices(delta).values()), default=0.0)

    @frameless
    def prices(self, delta: float | None = None) -> dict[str, Price]:
        """By agent, what its releases cost together; see `Account.spent`."""
        if delta is not None:
            check_delta(delta)
            delta = float(delta)
        # Agents often release alike, and some prices take seconds.
        found: dict[tuple[Composition, float | None, bool, float], Price] = {}
        prices = {}
        for account in self.accounts:
            at = account.delta if delta is None else delta
            key = account.total, account.committed, account.share > 1, at
            if key not in found:
                found[key] = account.spent(delta)
            prices[account.agent] = found[key]
        return prices

    @property
    def rho(self) -> float:
        """The largest zCDP parameter of any agent."""
        return max((account.rho for account in self.accounts), default=0.0)

    def to_json(self) -> str:
        """All entries as JSON; contains no seed, noise or data."""
        book = {a.agent: [dataclasses.asdict(e) for e in a.entries] for a in self.accounts}
        return json.dumps(book, indent=1)

    @property
    def _said(self) -> dict[str, list[str]]:
        """What was spent, in words, to the agents of which that is true."""
        alike: dict[str, list[str]] = {}
        for account, price in zip(self.accounts, self.prices().values(), strict=True):
            alike.setdefault(_spent(account, price), []).append(account.agent)
        return alike

    def __str__(self) -> str:
        return "\n".join(
            f"{together(agents)}{', each' if len(agents) > 1 else ''}: {text}"
            for text, agents in self._said.items()
        )


def _spent(account: Account, price: Price) -> str:
    """What an account holds and what it may hold, in words."""
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
