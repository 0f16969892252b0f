"""Tampered frames of a conversation: no process ends, and no owner pays more than its policy says.

A conversation between owners and a coordinator is written down once, for plain and for secret sums.
In a trial one side plays a part of it, is perhaps started again, and hears frames of it that were
changed and sealed again, in any order. A trial ends as

* ``owner: answer``: what an owner said to the last changed frame;
* ``sum: answer``: what an owner of a secret sum said to a coordinator that colludes with all others
  but one: keys that are forged, missing or exchanged, calls in any order, changed sums, and the
  owner started again, also without its ledger;
* ``coordinator: end``: how a run ended in which one owner's answers were changed;
* ``log: end``: how a run went on from a log that was changed.

At an owner every answer has to be a message, every value in its ledger to be charged, the ledger's
total to be within the policy, and the run to be called over only if the ledger has closed it. What
an owner masks for a round is one value, whatever happens: without the masks that the colluders
know, its words are the same; and none leave before keys that their owners signed have come. At the
coordinator a run ends with a result or a refusal in words, and so does the next one on its log.
"""

import functools
import random
import tempfile
import warnings
from dataclasses import replace
from pathlib import Path

import dpcvx as dp
from dpcvx.owners import wire
from dpcvx.owners.coordinator import Remote
from dpcvx.owners.files import CoordinatorLog
from dpcvx.owners.loopback import policies_of
from dpcvx.owners.messages import (
    REASONS,
    AgentReply,
    Agreed,
    FinalAccount,
    IterateAnswer,
    Refusal,
    RunOver,
)
from dpcvx.owners.session import Session
from dpcvx.privacy.ledger_file import past_of
from dpcvx.testing.instances import sensors
from tests.campaigns.colluders import Colluders
from tests.campaigns.tally import Tally
from tests.instances import power_line, whole
from tests.owners.settings import METHODS, Mortal, charges, planned
from tests.owners.tampered import WAYS

FULL = 20_000
_ROUNDS = 3
_ANSWERS = (Agreed, AgentReply, IterateAnswer, FinalAccount, RunOver, Refusal)


@functools.cache
def plan_of(kind):
    """A plan, its coordinator's frames to the first owner, and the log, of a run that went well."""
    build, method = {
        "plain": (power_line, "gradients"),
        "in secret": (whole(sensors), "mean in shares"),
    }[kind]
    plan = planned(build, METHODS[method], _ROUNDS)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        hub = Mortal(policies(plan, place))
        ran(plan, hub, place / "run.dpx")
        first = plan.agents[0].name
        frames = [frame for name, frame in hub.traffic[::2] if name == first]
        return plan, frames, (place / "run.dpx").read_bytes()


def policies(plan, place):
    """The owners' policies, which accept noise that is split."""
    return [replace(one, max_colluders=1) for one in policies_of(plan, place)]


def ran(plan, hub, path):
    """A run of a coordinator on a log."""
    return plan.run(
        executor=Remote(lambda names: hub, lambda: CoordinatorLog(path), lambda: "a run"),
        verbose=False,
    )


def at_an_owner(place, coins):
    """What an owner says to changed frames, and what is wrong."""
    plan, frames, _ = plan_of(coins.choice(("plain", "in secret")))
    policy = policies(plan, place)[0]
    session, said = Session(policy, seed=1), None
    for frame in frames[: coins.randrange(len(frames) + 1)]:
        session.handle(frame)
    if coins.random() < 0.3:
        session.close()
        session = Session(policy, seed=1)
    for _ in range(coins.choice((1, 2, 4))):
        # The next ones are looked for more often than the document, which is the largest.
        frame = coins.choice(frames if coins.random() < 0.3 else frames[1:])
        said = wire.decode(session.handle(coins.choice(WAYS)(frame, coins)))
        wrong = fault(session, policy, said)
        if wrong:
            return "owner: FAULT", wrong
    for frame in frames:
        wrong = fault(session, policy, wire.decode(session.handle(frame)))
        if wrong:
            return "owner: FAULT", f"afterwards: {wrong}"
    session.close()
    what = said.code if isinstance(said, Refusal) else type(said).__name__
    return f"owner: {what}", None


def fault(session, policy, said):
    """What is wrong at an owner after an answer."""
    if not isinstance(said, _ANSWERS) or (isinstance(said, Refusal) and said.code not in REASONS):
        return f"no answer: {type(said).__name__}"
    if not policy.ledger.exists():
        return "over before it began" if isinstance(said, RunOver) else None
    past, (charged, values) = past_of(policy.ledger), charges(policy)
    if isinstance(said, RunOver) and past.interrupted is not None:
        return "an open run was called over"
    if values > charged:
        return f"{values} values and {charged} charges"
    if past.ledger is not None and policy.agent in past.ledger:
        spent = past.ledger[policy.agent].spent(policy.delta).epsilon
        if spent > policy.epsilon * (1 + 1e-9):
            return f"{spent} is spent of {policy.epsilon}"
    return None


def at_a_secret_sum(place, coins):
    """What an owner of a secret sum says to all others but one, and what is wrong."""
    plan, frames, _ = plan_of("in secret")
    others = Colluders(policies(plan, place)[0], frames, fault, place, coins)
    wrong = others.start() or (others.partners() if coins.random() < 0.8 else None)
    for _ in range(coins.randrange(4, 16)):
        wrong = wrong or others.step()
    said = others.said
    what = said.code if isinstance(said, Refusal) else type(said).__name__
    wrong = wrong or others.end()
    return ("sum: FAULT", wrong) if wrong else (f"sum: {what}", None)


class Lies(Mortal):
    """A hub whose first owner's answers are changed, some of them."""

    def __init__(self, policies, coins):
        super().__init__(policies)
        self._coins, self._first = coins, policies[0].agent

    def exchange(self, frames, late=None):
        found = super().exchange(frames)
        if self._first in found and self._coins.random() < 0.2:
            way = self._coins.choice(WAYS)
            found[self._first] = way(found[self._first], self._coins)
        return found


def ended(plan, hub, path):
    """How a run ends: a result, or the package's own words."""
    try:
        return ran(plan, hub, path).status.name.lower()
    except dp.DpcvxError as error:
        return getattr(error, "code", type(error).__name__)


def at_the_coordinator(place, coins):
    """How a run ends in which an owner lies, and one on its log in which none does."""
    plan, _, _ = plan_of(coins.choice(("plain", "in secret")))
    path = place / "run.dpx"
    found = ended(plan, Lies(policies(plan, place), coins), path)
    ended(plan, Mortal(policies(plan, place)), path)
    return f"coordinator: {found}", None


def on_a_log(place, coins):
    """How a run goes on from a log that was changed."""
    plan, _, raw = plan_of(coins.choice(("plain", "in secret")))
    path = place / "run.dpx"
    path.write_bytes(raw)
    with path.open("rb") as file:
        frames = [frame for _, frame in wire.frames_in(file)]
    k = coins.randrange(len(frames))
    frames[k] = coins.choice(WAYS)(frames[k], coins)
    path.write_bytes(b"".join(frames))
    return f"log: {ended(plan, Mortal(policies(plan, place)), path)}", None


WHERE = (*[at_an_owner] * 3, *[at_a_secret_sum] * 3, at_the_coordinator, on_a_log)


def tried(coins):
    """One trial."""
    with tempfile.TemporaryDirectory() as folder:
        where = coins.choice(WHERE)
        try:
            return where(Path(folder), coins)
        except Exception as error:
            return "RAW", f"{where.__name__}: {type(error).__name__}: {str(error)[:200]}"


def campaign(size, seed):
    """So many conversations."""
    tally = Tally()
    with warnings.catch_warnings(action="ignore"):
        for k in range(size):
            outcome, wrong = tried(random.Random(f"{seed} {k}"))
            tally.add(outcome, wrong and f"seed {seed}, trial {k}: {wrong}")
    return tally
