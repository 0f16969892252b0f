"""Where a run starts: fresh, on top of earlier runs, or in the middle of an interrupted one."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..errors import BudgetError, LedgerError, ModelError
from ..plan.derived import derived, with_derived
from ..plan.last_iterate import run_entries
from ..plan.terms import Terms
from ..privacy.accounts import Account, Accounts
from ..privacy.entries import Entry
from ..privacy.ledger_file import Journal
from ..privacy.ledger_lines import Recorded
from .gate import Release


@dataclass(frozen=True, eq=False)
class Start:
    """Where a run starts from.

    Attributes
    ----------
    accounts : list of Account
    rounds : int
        That every budget covers.
    earlier : list of int
        Per agent, the number of entries before this run.
    past : list of Release
        What this run released before it was interrupted.
    paid : list of set of (round, step)
        Per agent, releases that were charged for and not made.
    notes : tuple of str
        What a user should know about it.
    """

    accounts: list[Account]
    rounds: int
    earlier: list[int]
    past: list[Release]
    paid: list[set[tuple[int, int]]]
    notes: tuple[str, ...] = ()


def as_begun(plan: Terms, journal: Journal) -> Terms:
    """The plan with the numbers that an interrupted run of it began with, perhaps elsewhere.

    Parameters
    ----------
    plan : Terms
    journal : Journal

    Returns
    -------
    Terms
        The same where there is no such run, or its numbers are not the plan's even but for
        rounding: to go on would be to run another plan.
    """
    run = journal.interrupted
    if run is None or run.fingerprint != plan.fingerprint:
        return plan
    return with_derived(plan, run.derived) or plan


def _is_of(run: Recorded | None, plan: Terms) -> bool:
    return (
        run is not None
        and run.fingerprint == plan.fingerprint
        and np.array_equal(run.derived, derived(plan), equal_nan=True)
    )


def begin(plan: Terms, ledger: Accounts | Journal | None, seeded: bool) -> Start:
    """Continue a ledger; with a journal, go on where an interrupted run of the plan stood.

    Raises
    ------
    BudgetError
        If the ledger leaves no room for one round.
    PrivacyError
        If the ledger counts other changes of the data than the plan, or holds noise that the plan
        would have to come before.
    LedgerError
        If the interrupted run had a seed and this one has none, or the reverse.
    """
    if not isinstance(ledger, Journal):
        start = _fresh(plan, _accounts(plan, ledger))
        _prepaid(plan, start.accounts)
        return start
    run = ledger.interrupted
    same = _is_of(run, plan)
    if run is not None and same and plan.noisy and not plan.prepaid:
        _accounts(plan, ledger.ledger)  # refuses a ledger of other changes or other groups
        return _again(plan, _accounts(plan, ledger.before), run, seeded)
    accounts = _accounts(plan, ledger.ledger)
    try:
        start = _fresh(plan, accounts)
        prepaid = _prepaid(plan, start.accounts)
    except BudgetError as error:
        if same and plan.prepaid:
            error.add_note(
                "The ledger holds an interrupted run of this plan, which kept no iterates to go on "
                "from: it counts in full."
            )
        if ledger.has_finished(plan.fingerprint) and not plan.prepaid:
            error.add_note(
                "The ledger holds a finished run of this plan: "
                f"plan.replay({ledger.path.name!r}) gives its result again, at no cost."
            )
        raise
    if run is not None and not same:
        start = replace(start, notes=(_LEFT, *start.notes))
    numbers = derived(plan)
    ledger.begin(plan.fingerprint, seeded=seeded, accounts=start.accounts, derived=numbers)
    for agent, entry in prepaid.items():
        ledger.charge(agent, entry)
    return start


def _prepaid(plan: Terms, accounts: Sequence[Account]) -> Mapping[str, Entry]:
    """Charge what a run costs as a whole, and list the charges; none where releases are charged.

    Raises
    ------
    BudgetError
        If an account cannot afford it.
    """
    if plan.last is None:
        return {}
    asserted = plan.guarantee.kind == "asserted"
    charges = run_entries(plan.agents, plan.last, plan.rounds, asserted)
    for account, agent in zip(accounts, plan.agents, strict=True):
        if agent.name in charges:
            account.charge_run(charges[agent.name], agent.loss)
    return charges


_LEFT = (
    "the ledger held an interrupted run of another plan: what it released counts, and it can no "
    "longer be gone on with"
)


def _fresh(plan: Terms, accounts: list[Account]) -> Start:
    earlier = [len(account.entries) for account in accounts]
    rounds = _affordable_rounds(plan, accounts)
    notes = (*_claims(accounts), *_coverage(plan, rounds))
    unpaid: list[set[tuple[int, int]]] = [set() for _ in earlier]
    return Start(accounts, rounds, earlier, [], unpaid, notes)


def _claims(accounts: Sequence[Account]) -> tuple[str, ...]:
    """What the ledger's total rests on, where this run's guarantee does not say so."""
    if any(entry.certificate == "asserted" for account in accounts for entry in account.entries):
        return (
            "earlier releases in the ledger have asserted sensitivities: what was spent in all is "
            "as good as these claims, whatever this run's own guarantee says",
        )
    return ()


def _coverage(plan: Terms, rounds: int) -> tuple[str, ...]:
    if rounds == plan.rounds:
        return ()
    return (f"the ledger leaves budget for {rounds} of the {plan.rounds} planned rounds",)


def _again(plan: Terms, accounts: list[Account], run: Recorded, seeded: bool) -> Start:
    if run.seeded != seeded:
        raise LedgerError(
            "The ledger's last run of this plan was interrupted and had "
            f"{'a' if run.seeded else 'no'} seed; this call has {'one' if seeded else 'none'}. To "
            "go on, call plan.run(...) as before; to start again on top of what is spent, use "
            "another plan."
        )
    names = [account.agent for account in accounts]
    earlier = [len(account.entries) for account in accounts]
    values = [run.values.get(name, {}) for name in names]
    made: list[list[Entry]] = []
    unmade: list[list[Entry]] = []
    for name, known in zip(names, values, strict=True):
        charged = run.charged.get(name, [])
        made.append([e for e in charged if (e.round, e.step) in known])
        unmade.append([e for e in charged if (e.round, e.step) not in known])
    for account, entries in zip(accounts, unmade, strict=True):
        # Where a part of a value was on disk, fresh noise would make another value: it is paid
        # twice. With a seed it is the same value again.
        lost = run.lost.get(account.agent, [])
        if seeded:
            entries[:0] = lost
        else:
            for entry in lost:
                account.recall(entry)
    rounds = _affordable_rounds(plan, accounts)
    for account, entries, others in zip(accounts, made, unmade, strict=True):
        for entry in (*entries, *others):
            account.recall(entry)
    past = [
        Release(k, *place, value)
        for k, known in enumerate(values)
        for place, value in known.items()
    ]
    paid = [{(e.round, e.step) for e in entries} for entries in unmade]
    return Start(accounts, rounds, earlier, past, paid, (_gone_on(run), *_coverage(plan, rounds)))


def _gone_on(run: Recorded) -> str:
    if run.reached:
        return (
            f"resumed in round {run.reached}: what the interrupted run released is taken from the "
            "ledger and not spent again"
        )
    return "resumed: what the interrupted run released is taken from the ledger and not spent again"


def _accounts(plan: Terms, ledger: Accounts | None) -> list[Account]:
    fresh = plan.accounts()
    if ledger is None:
        return fresh
    missing = [account.agent for account in fresh if account.agent not in ledger]
    if missing:
        raise ModelError(
            f"ledger= has no account of agent '{missing[0]}'; pass the ledger of an earlier run of "
            "the same agents."
        )
    return [ledger[account.agent].continued(account) for account in fresh]


def _affordable_rounds(plan: Terms, accounts: Sequence[Account]) -> int:
    """Rounds that every budget covers; asks for the first refusal if it is none."""
    if not plan.noisy or plan.prepaid:  # charged as a whole, and not offered to groups
        return plan.rounds
    for account in accounts:
        account.require_group()
    least = plan.releases(1)
    rounds = plan.rounds
    for account, agent in zip(accounts, plan.agents, strict=True):
        noise, sensitivity = agent.noise, agent.sensitivity
        if noise is None or sensitivity is None:
            continue
        account.require_order(agent.loss)
        begun = bool(account.entries) or account.committed is not None
        if sensitivity.l2 > 0 and begun:
            releases = account.affordable(noise, plan.releases(rounds), least)
            if releases < least:
                raise account.refusal(noise, least, least)
            if not plan.published:
                rounds = bisect_right(range(1, rounds + 1), releases, key=plan.releases)
    return rounds
