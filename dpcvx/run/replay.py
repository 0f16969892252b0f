"""Replay of a run from its recorded releases, without data and without privacy loss.

Replay oracles answer queries from a transcript or ledger file, without noise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .._arguments import show
from ..errors import ModelError, PrivacyError
from ..model.normal_form import Evaluator
from ..plan.fingerprint import begun_with, computed_by
from ..plan.terms import Terms
from ..privacy.accounts import Account
from ..privacy.ledger import Ledger
from ..privacy.ledger_file import finished, past_of
from ..sensitivity.queries.query import Facts, Query, finite_gradient
from ..sensitivity.stored_vectors import LinearCombination
from .gate import Release
from .loop import drive_silently, returned
from .oracle import AgentOracle
from .part import parts_of
from .public_oracle import PublicOracle, published
from .result import Result, Status, Transcript
from .resume import batches, begin, one_by_one
from .solution import assign
from .watch import check_replayable

Array = NDArray[np.float64]


# Arguments: round, step, query, answer, and whether an observer can compute the query's points.
Watcher = Callable[[int, int, Query, Array, bool], None]


class ReplayOracle(AgentOracle):
    """Oracle that answers from recorded releases, for one agent or for a batch.

    Parameters
    ----------
    agents : sequence of int
        Indices of the agents in the plan.
    facts : Facts
        Public properties of the first agent; the other agents differ in names only.
    releases : iterable of Release
        Recorded releases of a run.
    accounts : sequence of Account
        Privacy accounts of the agents after the run.
    public : Evaluator, optional
        Public objective for answers without a record, which depend on no private data.
    added : Evaluator, optional
        Objective whose gradient is added to recorded answers, if only their private part was
        released.
    watch : callable, optional
        Function that is called with every release of a single agent.
    """

    def __init__(
        self,
        agents: Sequence[int],
        facts: Facts,
        releases: Iterable[Release],
        accounts: Sequence[Account],
        public: Evaluator | None = None,
        added: Evaluator | None = None,
        watch: Watcher | None = None,
    ) -> None:
        super().__init__(lambda: [*accounts], [], len(agents))
        self._watch, self._drew = watch, False
        self._size = facts.form.n
        self._added = None if added is None else partial(finite_gradient, added)
        rows = {agent: row for row, agent in enumerate(agents)}
        self._values: dict[tuple[int, int], dict[int, Array]] = {}
        for r in releases:
            if r.agent in rows:
                self._values.setdefault((r.round, r.step), {})[rows[r.agent]] = r.value
        self._public = None if public is None else PublicOracle(facts, public, accounts[0], [])

    def release(self, query: Query) -> Array:
        """Return the recorded answer to a query; for a batch, a row per agent."""
        when = self._next()
        values = self._values.get(when, {})
        if self.count > 1:
            parts = [self._answer(when, values.get(k), query.among(k)) for k in range(self.count)]
            return np.array(parts)
        answer = self._answer(when, values.get(0), query)
        if self._watch is not None and (values or self._public is None):
            self._watch(*when, query, answer, not self._drew)
        return answer

    def _answer(self, round_step: tuple[int, int], value: Array | None, query: Query) -> Array:
        if value is None and self._public is not None:
            return self._public.release(query)
        size = query.size(self._size)
        if value is None or value.shape != (size,):
            raise PrivacyError(
                f"The transcript has no release of {size} numbers for round {round_step[0]}, step "
                f"{round_step[1]}. It was recorded under another plan, or the run stopped earlier. "
                "Replay it with the plan it came from."
            )
        return query.finish(value.copy(), self._added)

    def uniform(self, size: int) -> Array:
        """Return 0.5 for every entry in place of the agent's random numbers, which are secret."""
        self._drew = True
        return super().uniform(size)

    def store(self, name: str, combination: LinearCombination) -> None:
        """Store the vector under its name if the agent has no private data, else ignore it."""
        if self._public is not None:
            self._public.store(name, combination)


def replay_plan(plan: Terms, transcript: Transcript | str | Path) -> Result:
    """Replay a run from its transcript or ledger file; see `Plan.replay`."""
    check_replayable(plan)
    from_file = isinstance(transcript, (str, Path))
    plan, recorded = transcript_of(plan, transcript)
    dealt = batches(plan, begin(parts_of(plan), None, seeded=True))
    oracles = [_oracle(plan, agents, recorded, from_file) for agents in dealt]
    again = drive_silently(plan, dealt, oracles, recorded.rounds)
    again = returned(replace(again, status=recorded.status, guarantee=recorded.guarantee))
    solution = again.solution if again.status.solved else None
    assign(solution, plan.problem.variables(), plan.problem.constraints)
    return again


@dataclass(frozen=True, eq=False)
class Seen:
    """A release with its query, as an observer with all public information reconstructs it.

    Attributes
    ----------
    agent, round, step : int
        Index of the agent, and number of the release.
    query : Query
        Query to the agent, with its points.
    answer : ndarray
        Released value.
    public : bool
        Whether an observer can compute the query's points, because the agent drew no secret numbers
        before the query.
    """

    agent: int
    round: int
    step: int
    query: Query
    answer: Array
    public: bool


def seen(plan: Terms, transcript: Transcript | str | Path) -> tuple[Seen, ...]:
    """Return the observer's reconstruction of all releases, for plans with noise in each step.

    Parameters
    ----------
    plan : Terms
        Plan of the run.
    transcript : Transcript, str or Path
        Transcript, or path of a ledger file.

    Raises
    ------
    ModelError, PrivacyError, LedgerError
        As for `transcript_of`.
    """
    from_file = isinstance(transcript, (str, Path))
    plan, recorded = transcript_of(plan, transcript)
    by_turn: dict[tuple[int, int], list[Seen]] = {}

    def watching(k: int) -> Watcher:
        # Agents may run in concurrent threads, so each has its own lists.
        return lambda t, *of: by_turn.setdefault((t, k), []).append(Seen(k, t, *of))

    dealt = one_by_one(plan.agents)
    oracles = [_oracle(plan, [k], recorded, from_file, watch=watching(k)) for (k,) in dealt]
    drive_silently(plan, dealt, oracles, recorded.rounds)
    return tuple(item for turn in sorted(by_turn) for item in by_turn[turn])


def transcript_of(plan: Terms, transcript: Transcript | str | Path) -> tuple[Terms, Transcript]:
    """Return the plan as it was run, and its transcript; a ledger file is converted.

    Parameters
    ----------
    plan : Terms
        Plan of the run.
    transcript : Transcript, str or Path
        Transcript, or path of a ledger file.

    Raises
    ------
    ModelError, PrivacyError, LedgerError
        If the argument is neither, belongs to another plan, or cannot be read.
    """
    if not isinstance(transcript, (str, Path, Transcript)):
        raise ModelError(
            f"{show(transcript)} is no transcript: pass that of a recorded run, as "
            "in plan.replay(plan.run(record=True).transcript), or the path of a ledger file."
        )
    if isinstance(transcript, (str, Path)):
        plan, transcript = _transcript(plan, transcript)
    plan = computed_by(plan, [transcript.fingerprint])
    if transcript.fingerprint != plan.fingerprint:
        raise PrivacyError(
            "The transcript was recorded under another plan: problem, algorithm, mechanism and "
            "rounds must be the same. Replay it with the plan it came from."
        )
    return plan, transcript


def _transcript(plan: Terms, path: str | Path) -> tuple[Terms, Transcript]:
    """Return a plan's last ended run in a ledger file, and the plan with that run's numbers."""
    if not plan.noisy:
        raise PrivacyError(
            "This plan has no noise, so no ledger file holds its values. Use "
            "plan.run(record=True) and its transcript. Ledger files keep the values of runs with "
            "noise only."
        )
    plan = computed_by(plan, past_of(path).finished)
    past = finished(path, plan.fingerprint)
    begun = begun_with(plan, past.run.derived)
    if begun is None:
        raise PrivacyError(
            "The run in the ledger had other step sizes, noise or starting points than this "
            "version derives for the same plan, so its iterates cannot be computed again. Replay "
            "it with the version of dpcvx that ran it."
        )
    places = {agent.name: k for k, agent in enumerate(plan.agents)}
    releases = tuple(
        Release(places[name], *when, value)
        for name, values in past.run.values.items()
        for when, value in values.items()
    )
    return begun, Transcript(
        plan.fingerprint,
        past.rounds,
        releases,
        Status[past.status.upper()],
        plan.guarantee_for(seeded=past.run.seeded, counted=True),
        Ledger(tuple(past.ledger[name] for name in places)),
    )


def _oracle(
    plan: Terms,
    agents: Sequence[int],
    transcript: Transcript,
    from_ledger: bool,
    watch: Watcher | None = None,
) -> Callable[[], AgentOracle]:
    """Return a function that constructs the oracle for replaying a transcript's releases."""
    first = plan.agents[agents[0]]
    facts, accounts = first, [transcript.ledger[plan.agents[k].name] for k in agents]
    if plan.published:
        (k,), (account,) = agents, accounts
        return partial(published, k, facts, first.publication, transcript.releases, account)
    # Ledger files contain charged values only; other answers are recomputed from public data.
    public, sensitivity = facts.form.at_zero(), facts.sensitivity
    apart = plan.noisy and sensitivity is not None and sensitivity.splits
    return partial(
        ReplayOracle,
        agents,
        facts,
        transcript.releases,
        accounts,
        public=public if from_ledger else None,
        added=public if apart else None,
        watch=watch,
    )
