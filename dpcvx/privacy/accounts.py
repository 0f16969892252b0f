"""One agent's privacy account: it records each release before the value leaves the agent."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any

from .._arguments import show
from .._words import plural
from ..errors import BudgetError, PrivacyError
from ..guard import frameless
from . import adaptive
from .accounting import Composition, Price, check_delta
from .adaptive import noise_of
from .entries import Entries, Entry
from .mechanism import MECHANISMS, Calibrated

# Relative tolerance of budget comparisons, so that ten releases of 0.1 fit into 1.0.
_SLACK = 1e-9


@dataclass(frozen=True)
class Budget:
    """Privacy budget of one agent.

    Attributes
    ----------
    epsilon, delta : float
        Total privacy loss that all releases of the agent together may reach.
    planned : Composition
        Releases whose privacy loss the plan has already computed to be within the budget.
        Sub-multisets of them need no further check.
    """

    epsilon: float
    delta: float
    planned: Composition


@dataclass
class Account:
    """Append-only record of one agent's releases; it refuses a release beyond the budget.

    Attributes
    ----------
    agent : str
        Name of the agent.
    adjacency : dict of str to str
        Neighboring relation of each private object. Losses under different relations do not
        compose, so every run of an account must have equal ones.
    budget : Budget or None
        None for a run without noise.
    entries : sequence of Entry
        Record of the releases.
    share : int
        Number of agents that may hold one person's data: every release counts this many times, as
        if all of them made it.
    committed : float or None
        Gaussian mu^2 of the first run with noise, as planned; None before a further run. From
        then on, the rule of `adaptive` applies, which holds for runs planned one after the other;
        until then, `Composition.price` applies.
    """

    agent: str
    adjacency: Mapping[str, str]
    budget: Budget | None
    entries: Entries = field(default_factory=Entries)
    share: int = 1
    committed: float | None = None
    _total: Composition = field(default_factory=Composition, repr=False)

    def __repr__(self) -> str:
        return f"<Account of {show(self.agent)}: {plural(len(self.entries), 'release')}>"

    def charge(self, entry: Entry, calibrated: Calibrated) -> None:
        """Record a release that is about to happen, and its noise.

        Raises
        ------
        BudgetError
            If the release would exceed the budget. Nothing is recorded then.
        """
        after = self._covered_total(calibrated)
        self.entries.append(entry)
        self._total = after

    def require(self, calibrated: Calibrated) -> None:
        """Raise an error if the budget does not cover one more release with this noise.

        Raises
        ------
        BudgetError
        """
        self._covered_total(calibrated)

    def _covered_total(self, calibrated: Calibrated) -> Composition:
        """Return all releases and one more as a composition; raise if it exceeds the budget."""
        assert self.budget is not None
        after = self._after(calibrated, 1)
        if not self._covers(after):
            raise self.refusal(calibrated, 1)
        return after

    def charge_run(self, entry: Entry, loss: Composition) -> None:
        """Record a whole run that is about to begin, with the privacy loss of all its releases.

        Raises
        ------
        BudgetError
            If the run would exceed the budget. Nothing is recorded then.
        PrivacyError
            If the loss is known as an (epsilon, delta) pair only, and noise was charged before.
        """
        assert self.budget is not None
        self.require_order(loss)
        after = self._total.joined(loss)
        if not self._covers(after):
            raise self._refused(after, 0)
        self.entries.append(entry)
        self._total = after

    def require_order(self, loss: Composition) -> None:
        """Refuse a run whose loss is known at a positive delta only, after runs with noise.

        Parameters
        ----------
        loss : Composition
            Privacy loss of the run.

        Raises
        ------
        PrivacyError
        """
        total = self._total
        # A loss with delta = 0 adds to the total whatever earlier outputs were.
        shares = any(delta > 0 for _, delta in loss.stated)
        if shares and not total.exposed and noise_of(total) != Composition():
            raise PrivacyError(
                f"The ledger of agent '{self.agent}' holds runs with noise, but this run's "
                "privacy loss is known only at one pair of epsilon and delta. Put such a run "
                "first in its ledger. Or write order='fixed' if users come in random order, or a "
                "larger violation_probability= if the noise is truncated. No proved rule lets "
                "such a run share a delta with earlier runs whose outputs were seen."
            )

    def _after(self, calibrated: Calibrated, count: int, each: int = 1) -> Composition:
        if calibrated.steady and calibrated.stated is None:
            times = count * self.share
            return calibrated.mechanism.compose(self._total, calibrated.multiplier, times)
        return self._total.joined(calibrated.composed(count, each).repeated(self.share))

    def recall(self, entry: Entry) -> None:
        """Add an entry of an earlier run, with its privacy loss, to this account."""
        if entry.stated is not None:
            self._total = self._total.joined(Composition(stated=(entry.stated,)))
            self.entries.append(entry)
            return
        if entry.mechanism not in MECHANISMS:
            self.expose(entry)
            return
        mechanism = MECHANISMS[entry.mechanism]
        self._total = mechanism.compose(self._total, entry.multiplier, self.share)
        self.entries.append(entry)

    def expose(self, entry: Entry) -> None:
        """Record a release without noise, after which the account's epsilon is infinite."""
        self.entries.append(entry)
        self._total = self._total.with_exposure()

    @frameless
    def spent(self, delta: float | None = None) -> Price:
        """Return the epsilon of all releases so far, at `delta` (default: the budget's delta)."""
        if delta is not None:
            check_delta(delta)
        return self._price(self._total, self.delta if delta is None else float(delta))

    @property
    def colluders(self) -> int | None:
        """Largest number of colluding agents for which `spent` holds; None for any number."""
        thresholds = (entry.colluders for entry, _ in self.entries.kinds)
        return min((count for count in thresholds if count is not None), default=None)

    @frameless
    def spent_against_all(self, delta: float | None = None) -> Price:
        """Return the privacy loss against the server and all other agents, colluding.

        It exceeds `spent` if noise was distributed over agents, because colluding agents know their
        parts of the noise.
        """
        if self.colluders is None:
            return self.spent(delta)
        if delta is not None:
            check_delta(delta)
        counts: Counter[tuple[Any, ...]] = Counter()
        for entry, count in self.entries.kinds:
            counts[entry.mechanism, entry.multiplier, entry.alone, entry.stated] += count
        total, most = Composition(exposed=self._total.exposed), 1.0
        for (mechanism, multiplier, alone, stated), count in counts.items():
            if stated is not None:
                total = total.joined(Composition(stated=(stated,) * count))
            elif mechanism in MECHANISMS:
                remaining = multiplier if alone is None else alone
                total = MECHANISMS[mechanism].compose(total, remaining, count * self.share)
                most = max(most, multiplier / remaining)
        # mu^2 of the first run grows by at most this factor, the largest of any release.
        committed = None if self.committed is None else self.committed * most**2
        return self._price(total, self.delta if delta is None else float(delta), committed)

    def _price(self, total: Composition, delta: float, committed: float | None = None) -> Price:
        if self.committed is None:
            return total.price(delta)
        committed = self.committed if committed is None else committed
        return adaptive.price(total, committed, delta, pooled=self.share > 1)

    def _covers(self, total: Composition) -> bool:
        """Return whether the budget covers a composition of releases."""
        budget = self.budget
        assert budget is not None
        allowed = budget.epsilon * (1 + _SLACK)
        if self.committed is not None:
            pooled = self.share > 1
            return adaptive.covers(total, self.committed, allowed, budget.delta, pooled=pooled)
        if _within(total, budget.planned):
            return True
        # First a cheap sufficient test: the pure epsilon bounds the epsilon at every delta.
        return total.pure <= allowed or total.price(budget.delta).epsilon <= allowed

    @property
    def delta(self) -> float:
        """Delta of computed totals: the budget's delta, or 0 without a budget."""
        return 0.0 if self.budget is None else self.budget.delta

    @property
    def total(self) -> Composition:
        """Composition of all releases so far."""
        return self._total

    @property
    def rho(self) -> float:
        """Parameter of zero-concentrated differential privacy (zCDP) of all releases so far."""
        return self._total.rho

    def affordable(self, calibrated: Calibrated, at_most: int, each: int = 1) -> int:
        """Return how many further releases the budget covers, `each` per round, up to `at_most`."""
        if self.budget is None:
            return 0

        def covered(count: int) -> bool:
            return self._covers(self._after(calibrated, count, each))

        if covered(at_most):
            return at_most
        low, high = 0, at_most
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if covered(middle) else (low, middle)
        return low

    def continued(self, fresh: Account) -> Account:
        """Return a copy of this account for a further run under a new budget.

        Parameters
        ----------
        fresh : Account
            The new plan's account of the same agent.

        Raises
        ------
        PrivacyError
            If the adjacency or the share differs.
        """
        if dict(self.adjacency) != dict(fresh.adjacency):
            was, now = (
                ", ".join(f"{change} in '{name}'" for name, change in account.adjacency.items())
                for account in (self, fresh)
            )
            raise PrivacyError(
                f"The ledger of agent '{self.agent}' counts releases under the adjacency [{was}], "
                f"but this plan has [{now}]. Keep the adjacency of the first run, or use another "
                "ledger for other data. Privacy losses under different adjacencies do not add up."
            )
        if self.share != fresh.share:
            raise PrivacyError(
                f"The ledger of agent '{self.agent}' counts each release "
                f"{plural(self.share, 'time')}: once for every agent that may hold the same "
                f"person's data. This plan counts {fresh.share}. Keep the groups= of the first run."
            )
        committed = self.committed
        # An empty account starts afresh, unless it belongs to a group whose other accounts may hold
        # noise.
        if committed is None and (self.share > 1 or noise_of(self._total) != Composition()):
            planned = Composition() if self.budget is None else self.budget.planned
            committed = noise_of(planned).mu2_bound
        entries = self.entries.continued()
        return replace(self, budget=fresh.budget, entries=entries, committed=committed)

    def require_group(self) -> None:
        """Refuse a further run if this account of a group exceeds the new budget already.

        One person's losses in all accounts of a group stay within a budget if each account does, by
        one composition rule for all. Accounts of agents that release nothing in the run count as
        well.

        Raises
        ------
        BudgetError
            If the account belongs to a group, and the new budget does not cover its losses.
        """
        if self.share == 1 or self.committed is None or self.budget is None:
            return
        if not self._covers(self._total):
            raise self._refused(self._total, 0, idle=True)

    def copy(self) -> Account:
        """Return a copy; charging it does not change this account."""
        return replace(self, entries=self.entries.copy())

    def equals(self, other: Account) -> bool:
        """Return whether this and another account are equal apart from agent and adjacency."""
        return _held(self) == _held(other)

    def catch_up(self, later: Account) -> None:
        """Copy the charges of `later`: this account, continued by a run that gave no result."""
        self.entries = later.entries.copy()
        self._total, self.budget, self.committed = later._total, later.budget, later.committed

    def taken_over(self, spent: Account) -> Account:
        """Return a copy of `spent`, the account of an agent with equal charges, for this agent."""
        return replace(spent.copy(), agent=self.agent, adjacency=self.adjacency)

    def refusal(
        self,
        calibrated: Calibrated,
        count: int,
        each: int = 1,
        *,
        starting: bool = False,
        rounds: tuple[int, int] | None = None,
    ) -> BudgetError:
        """Return the error for `count` further releases that exceed the budget.

        Parameters
        ----------
        calibrated : Calibrated
        count, each : int
            Number of further releases, and number per round.
        starting : bool
            Whether the plan has released nothing yet. The error then states the epsilon that the
            whole plan needs.
        rounds : tuple of int, optional
            Number of covered rounds and of planned rounds, if too few are covered to start.
        """
        affordable = self.affordable(calibrated, count, each)
        after = self._after(calibrated, count, each)
        return self._refused(
            after,
            affordable,
            instead=self._instead(calibrated, after),
            whole=self._whole if starting else None,
            rounds=rounds,
            left="" if rounds is None else self._left(calibrated, rounds[0]),
        )

    @property
    def _whole(self) -> float | None:
        """Epsilon of all earlier releases and the whole planned run; None if infinite."""
        assert self.budget is not None
        whole = self._price(self._total.joined(self.budget.planned), self.budget.delta).epsilon
        return whole if math.isfinite(whole) else None

    def _left(self, calibrated: Calibrated, rounds: int) -> str:
        """Return code: arguments of `plan` that give this noise and `rounds` rounds."""
        assert self.budget is not None
        noise = calibrated.as_written
        if not noise:
            return ""
        epsilon, delta = self.budget.epsilon, self.budget.delta
        return f"mechanism={noise}, rounds={rounds}, epsilon={epsilon!r}, delta={delta:g}"

    def _instead(self, calibrated: Calibrated, after: Composition) -> str:
        """Return code: arguments of `plan` that give this noise and the total budget it needs."""
        assert self.budget is not None
        noise, delta = calibrated.as_written, self.budget.delta
        whole = self._total.joined(self.budget.planned)
        total = max(self._price(composition, delta).epsilon for composition in (whole, after))
        if not noise or not 0 < total < math.inf:
            return ""
        # Rounded up, by slightly more than the error of writing the noise with six digits.
        digits = 2 - math.floor(math.log10(total))
        total = math.ceil(total * (1 + 1e-5) * 10**digits) / 10**digits
        return f"mechanism={noise}, epsilon={total:g}, delta={delta:g}"

    def _refused(
        self,
        after: Composition,
        affordable: int,
        *,
        instead: str = "",
        whole: float | None = None,
        rounds: tuple[int, int] | None = None,
        left: str = "",
        idle: bool = False,
    ) -> BudgetError:
        assert self.budget is not None
        delta = self.budget.delta
        spent = self._price(self._total, delta)
        return BudgetError(
            self.agent,
            spent=spent.epsilon,
            requested=self._price(after, delta).epsilon,
            allowed=self.budget.epsilon,
            delta=delta,
            affordable=affordable,
            accountant=spent.accountant,
            instead=instead,
            whole=whole,
            rounds=rounds,
            left=left,
            idle=idle,
        )


# Compares accounts by all fields except agent and adjacency.
_held = attrgetter(
    *(one.name for one in dataclasses.fields(Account) if one.name not in ("agent", "adjacency"))
)


def _within(composition: Composition, planned: Composition) -> bool:
    """Return whether the releases `planned` contain every release of `composition`."""
    pairs = ((composition.laplace, planned.laplace), (composition.bounded, planned.bounded))
    fits = all(
        count <= dict(allowed).get(m, 0) for charged, allowed in pairs for m, count in charged
    )
    fits = fits and not composition.exposed
    fits = fits and composition.stated == planned.stated[: len(composition.stated)]
    return fits and composition.mu2 <= planned.mu2 * (1 + _SLACK)
