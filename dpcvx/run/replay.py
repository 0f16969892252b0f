"""A run from its releases: without data, without spending."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from .._arguments import show
from ..errors import ModelError, PrivacyError
from ..plan.terms import Terms
from ..privacy.accounts import Account
from ..privacy.ledger import Ledger
from ..privacy.ledger_file import finished
from .gate import Release
from .loop import drive_silently
from .oracle import AgentOracle
from .public_oracle import published
from .replay_oracle import ReplayOracle
from .result import Result, Status, Transcript
from .returned import returned
from .watch import check_replayable


def replay_plan(plan: Terms, transcript: Transcript | str | Path) -> Result:
    """See `Plan.replay`."""
    check_replayable(plan)
    kept = isinstance(transcript, (str, Path))
    if not isinstance(transcript, (str, Path, Transcript)):
        raise ModelError(
            f"plan.replay({show(transcript)}) has no transcript: pass that of a recorded run, as "
            "in plan.replay(plan.run(record=True).transcript), or the path of a ledger file."
        )
    if isinstance(transcript, (str, Path)):
        transcript = _transcript(plan, transcript)
    if transcript.fingerprint != plan.fingerprint:
        raise PrivacyError(
            "The transcript was recorded under another plan: problem, algorithm, mechanism and "
            "rounds must be the same. Replay it with the plan it came from."
        )
    oracles = [
        _oracle(plan, k, transcript.releases, transcript.ledger[agent.name], kept)
        for k, agent in enumerate(plan.agents)
    ]
    again = drive_silently(plan, oracles, transcript.rounds)
    again = replace(again, status=transcript.status, guarantee=transcript.guarantee)
    return returned(again)


def _transcript(plan: Terms, path: str | Path) -> Transcript:
    """The last run of a plan that a ledger file holds."""
    if not plan.noisy:
        raise PrivacyError(
            "Ledger files keep the values of runs with noise only, and this plan has none. Use "
            "plan.run(record=True) and its transcript."
        )
    found = finished(path, plan.fingerprint)
    places = {agent.name: k for k, agent in enumerate(plan.agents)}
    releases = tuple(
        Release(places[name], *place, value)
        for name, known in found.run.values.items()
        for place, value in known.items()
    )
    return Transcript(
        plan.fingerprint,
        found.rounds,
        releases,
        Status[found.status.upper()],
        plan.guarantee_for(seeded=found.run.seeded, counted=True),
        Ledger(tuple(found.ledger[name] for name in places)),
    )


def _oracle(
    plan: Terms, k: int, releases: Sequence[Release], account: Account, kept: bool
) -> Callable[[], AgentOracle]:
    """Makes the oracle that gives agent k's releases out again; `kept`: from a ledger file."""
    agent = plan.agents[k]
    facts = agent.facts
    if plan.published:
        return partial(published, k, facts, agent.publication, releases, account)
    # A ledger file keeps what was charged; answers without private data are computed again.
    public, known = facts.form.at_zero(), facts.sensitivity
    apart = plan.noisy and known is not None and known.splits
    return partial(
        ReplayOracle,
        k,
        facts,
        releases,
        account,
        public=public if kept else None,
        added=public if apart else None,
    )
