"""Beginning of a run: fresh, after earlier runs, or resumed; and the batches that compute in it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..errors import BudgetError, LedgerError, ModelError
from ..plan.fingerprint import begun_with, computed_by, derived
from ..plan.terms import Terms
from ..privacy.accounts import Account
from ..privacy.book import Accounts
from ..privacy.entries import Entry
from ..privacy.ledger_file import Journal
from ..privacy.ledger_lines import Recorded
from .executors.in_process import Executor
from .part import AgentPart, Begun


@dataclass(frozen=True, eq=False)
class Start:
    """State of a run at its beginning: its agents' ledgers, and the rounds that all budgets cover.

    Attributes
    ----------
    agents : tuple of Begun
        Ledger state of each agent.
    rounds : int
        Number of rounds that every budget covers.
    notes : tuple of str
        Notes for the user on the ledger.
    resumed : bool
        Whether the run resumes an interrupted one.
    """

    agents: tuple[Begun, ...]
    rounds: int
    notes: tuple[str, ...] = ()
    resumed: bool = False


def as_begun(plan: Terms, journal: Journal) -> Terms:
    """Return the plan with the derived numbers and the kernel of an interrupted run of it.

    Parameters
    ----------
    plan : Terms
        Plan to run.
    journal : Journal
        Open ledger file.

    Returns
    -------
    Terms
        The unchanged plan if there is no such run, or if its numbers differ by more than rounding
        errors, since resuming would then run another plan.

    Raises
    ------
    SolverError
        If the kernel of the interrupted run's local steps is not installed.
    """
    run = journal.interrupted
    plan = computed_by(plan, [] if run is None else [run.fingerprint])
    if run is None or run.fingerprint != plan.fingerprint:
        return plan
    return begun_with(plan, run.derived) or plan


def begin(parts: Sequence[AgentPart], ledger: Accounts | Journal | None, seeded: bool) -> Start:
    """Begin a run after the runs in a ledger; with a journal, resume an interrupted run.

    Parameters
    ----------
    parts : sequence of AgentPart
        All parts of a plan, or the parts of the agents in this process.
    ledger : Accounts or Journal or None
        Earlier accounts, an open ledger file, or None.
    seeded : bool
        Whether the noise has a seed.

    Raises
    ------
    BudgetError
        If a budget does not cover one round, or too few of the planned rounds.
    PrivacyError
        If the ledger has another neighboring relation than the plan, or noise that must not precede
        the plan's releases.
    LedgerError
        If only one of the interrupted run and this run has a seed.
    """
    if not isinstance(ledger, Journal):
        start = _fresh(parts, _accounts(parts, ledger))
        _prepaid(parts, start)
        return start
    run, fingerprint = ledger.interrupted, parts[0].fingerprint
    numbers = derived(parts[0].algorithm, [part.agent for part in parts])
    same = (
        run is not None
        and run.fingerprint == fingerprint
        and np.array_equal(run.derived, numbers, equal_nan=True)
    )
    noisy, prepaid = _noisy(parts), _is_prepaid(parts)
    if run is not None and same and noisy and not prepaid:
        _accounts(parts, ledger.ledger)  # refuses other adjacencies or groups
        return _again(parts, _accounts(parts, ledger.before), run, seeded)
    accounts = _accounts(parts, ledger.ledger)
    try:
        start = _fresh(parts, accounts)
        charges = _prepaid(parts, start)
    except BudgetError as error:
        if same and prepaid:
            error.add_note(
                "The ledger holds an interrupted run of this plan, which kept no iterates to go on "
                "from: it counts in full."
            )
        if ledger.has_finished(fingerprint) and not prepaid:
            error.add_note(
                "The ledger holds a finished run of this plan: "
                f"plan.replay({ledger.path.name!r}) gives its result again, at no cost."
            )
        raise
    if run is not None and not same:
        start = replace(start, notes=(_LEFT, *start.notes))
    ledger.begin(
        fingerprint,
        seeded=seeded,
        accounts=[begun.account for begun in start.agents],
        derived=numbers,
    )
    for agent, entry in charges.items():
        ledger.charge([agent], entry)
    return start


def _noisy(parts: Sequence[AgentPart]) -> bool:
    return any(part.agent.noise is not None for part in parts)


def _is_prepaid(parts: Sequence[AgentPart]) -> bool:
    return any(part.agent.noise is not None and part.agent.noise.prepaid for part in parts)


def _prepaid(parts: Sequence[AgentPart], start: Start) -> Mapping[str, Entry]:
    """Charge the whole run, for plans without charges by release; return its entries by agent.

    Raises
    ------
    BudgetError
        If an account's budget does not cover the run.
    """
    charges: dict[str, Entry] = {}
    for part, begun in zip(parts, start.agents, strict=True):
        if part.charge is not None:
            begun.account.charge_run(part.charge, part.agent.loss)
            charges[part.agent.name] = part.charge
    return charges


_LEFT = (
    "the ledger held an interrupted run of another plan: it counts with all of its releases, and "
    "cannot be resumed any more"
)


def _fresh(parts: Sequence[AgentPart], accounts: list[Account]) -> Start:
    rounds = _affordable_rounds(parts, accounts, _LEAST)
    notes = (*_claims(accounts), *_coverage(parts, rounds))
    agents = tuple(Begun(account, len(account.entries)) for account in accounts)
    return Start(agents, rounds, notes)


def _claims(accounts: Sequence[Account]) -> tuple[str, ...]:
    """Return a note on assumptions of the ledger's total that the run's guarantee omits."""
    kinds = (entry for account in accounts for entry, _ in account.entries.kinds)
    if any(entry.certificate == "asserted" for entry in kinds):
        return (
            "earlier releases in the ledger have asserted sensitivities: what was spent in all is "
            "as good as these claims, whatever this run's own guarantee says",
        )
    return ()


def _coverage(parts: Sequence[AgentPart], rounds: int) -> tuple[str, ...]:
    planned = parts[0].rounds
    if rounds == planned:
        return ()
    return (f"the ledger leaves budget for {rounds} of the {planned} planned rounds",)


def _again(
    parts: Sequence[AgentPart], accounts: list[Account], run: Recorded, seeded: bool
) -> Start:
    if run.seeded != seeded:
        raise LedgerError(
            "The ledger's last run of this plan was interrupted and had "
            f"{'a' if run.seeded else 'no'} seed; this call has {'one' if seeded else 'none'}. To "
            "go on, call plan.run(...) as before; to start a new run, whose loss is added to the "
            "spent loss, use another plan."
        )
    names = [account.agent for account in accounts]
    earlier = [len(account.entries) for account in accounts]
    values = [run.values.get(name, {}) for name in names]
    made: list[list[Entry]] = []
    unmade: list[list[Entry]] = []
    for name, released in zip(names, values, strict=True):
        charged = run.charged.get(name, [])
        made.append([e for e in charged if (e.round, e.step) in released])
        unmade.append([e for e in charged if (e.round, e.step) not in released])
    for account, entries in zip(accounts, unmade, strict=True):
        # Charges for values that were partly on disk. Fresh noise would make other values, so they
        # are charged again. With a seed, the values are equal and need no second charge.
        lost = run.lost.get(account.agent, [])
        if seeded:
            entries[:0] = lost
        else:
            for entry in lost:
                account.recall(entry)
    rounds = _affordable_rounds(parts, accounts)
    for account, entries, others in zip(accounts, made, unmade, strict=True):
        for entry in (*entries, *others):
            account.recall(entry)
    agents = tuple(
        Begun(account, before, released, {(e.round, e.step) for e in entries})
        for account, before, released, entries in zip(
            accounts, earlier, values, unmade, strict=True
        )
    )
    return Start(agents, rounds, (_gone_on(run), *_coverage(parts, rounds)), resumed=True)


def _gone_on(run: Recorded) -> str:
    if run.reached:
        return (
            f"resumed in round {run.reached}: what the interrupted run released is taken from the "
            "ledger and not spent again"
        )
    return "resumed: what the interrupted run released is taken from the ledger and not spent again"


def _accounts(parts: Sequence[AgentPart], ledger: Accounts | None) -> list[Account]:
    fresh = [part.agent.account() for part in parts]
    if ledger is None:
        return fresh
    missing = [account.agent for account in fresh if account.agent not in ledger]
    if missing:
        raise ModelError(
            f"ledger= has no account of agent '{missing[0]}'; pass the ledger of an earlier run of "
            "the same agents."
        )
    return [ledger[account.agent].continued(account) for account in fresh]


# A run starts only if budgets cover this share of its rounds. A run of fewer rounds would end far
# from a solution; a plan with fewer rounds uses the budget better.
_LEAST = 0.25


def _affordable_rounds(
    parts: Sequence[AgentPart], accounts: Sequence[Account], share: float = 0.0
) -> int:
    """Return the number of planned rounds that every budget covers.

    Raises
    ------
    BudgetError
        If an account covers no round, or less than `share` of the planned rounds.
    """
    rounds = parts[0].rounds
    if not _noisy(parts) or _is_prepaid(parts):  # charged as a whole; groups are excluded
        return rounds
    for account in accounts:
        account.require_group()
    schedule = parts[0].schedule
    least = schedule[1]
    for account, part in zip(accounts, parts, strict=True):
        noise, sensitivity = part.agent.noise, part.agent.sensitivity
        if noise is None or sensitivity is None:
            continue
        account.require_order(part.agent.loss)
        begun = bool(account.entries) or account.committed is not None
        if sensitivity.l2 > 0 and begun:
            releases = account.affordable(noise, schedule[rounds], least)
            if releases < least:
                raise account.refusal(noise, least, least, starting=True)
            if not part.published:
                rounds = bisect_right(schedule, releases, lo=1, hi=rounds + 1) - 1
                if rounds < share * part.rounds:
                    raise account.refusal(
                        noise,
                        schedule[rounds + 1],
                        least,
                        starting=True,
                        rounds=(rounds, part.rounds),
                    )
    return rounds


def batches(plan: Terms, start: Start) -> list[list[int]]:
    """Return the agents of each worker, by index: one worker for all, or one for each.

    In a batch, every agent computes and releases exactly what it would by itself, bit for bit.

    Parameters
    ----------
    plan : Terms
        Plan of the run.
    start : Start
        State of the run at its beginning.
    """
    if is_batch(plan, start):
        return [[*range(len(plan.agents))]]
    return one_by_one(plan.agents)


def is_batch(plan: Terms, start: Start) -> bool:
    """Return whether one worker can perform the local updates of all agents of a plan.

    The agents must be identical apart from names and data, share all variables, and have equal
    accounts. The method, its queries and its local steps must declare support for batches. Data
    that are released once, and distributed noise, are released by each agent separately.

    Parameters
    ----------
    plan : Terms
        Plan of the run.
    start : Start
        State of the run at its beginning.
    """
    first, *others = plan.agents
    local, needs = first.program, plan.algorithm.requirements
    return (
        bool(others)
        and plan.algorithm.batched
        and all(query.batched for query in needs.queries)
        and (needs.proximal in (False, "server") or local.proximal().batched)
        and not (plan.published or plan.hidden)
        and (first.noise is None or first.noise.split is None)
        and local.shared.size == local.n
        and all(np.array_equal(agent.program.slots, local.slots) for agent in others)
        and len({agent.kind for agent in plan.agents}) == 1
        and all(begun.account.equals(start.agents[0].account) for begun in start.agents[1:])
    )


def one_by_one(agents: Sequence[object]) -> list[list[int]]:
    """Return batches of one agent each, by agent index."""
    return [[k] for k in range(len(agents))]


class Agents:
    """Interface to the agents of a run, through the workers that perform their updates.

    Parameters
    ----------
    executor : Executor
        Executor of the workers.
    batches : sequence of sequence of int
        Agents of each worker, by index in the plan, ascending.
    workers : sequence of callables
        Functions that construct the worker of each batch, called where it runs.
    """

    def __init__(
        self,
        executor: Executor,
        batches: Sequence[Sequence[int]],
        workers: Sequence[Callable[[], Any]],
    ) -> None:
        self._executor, self._batches = executor, batches
        self._whole = len(batches) == 1
        self.count = sum(map(len, batches))
        executor.start(workers)

    def map(self, method: str, *common: Any, each: Sequence[Any] | None = None) -> list[Any]:
        """Call a method of all workers, and return the results by agent.

        Parameters
        ----------
        method : str
            Name of the method of `Worker`.
        *common
            Arguments for all agents.
        each : sequence, optional
            A further argument for each agent, by index.
        """
        if self._whole:
            (answers,) = self._executor.map(method, *common, each=None if each is None else [each])
            return answers
        dealt = None if each is None else [[each[k] for k in agents] for agents in self._batches]
        answers = self._executor.map(method, *common, each=dealt)
        return [answer for part in answers for answer in part]
