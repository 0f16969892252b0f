"""Numbers that are none, and numbers that are too large, in either direction: nothing is lost."""

import math
import random
from dataclasses import replace

import numpy as np
import pytest

import dpcvx as dp
from dpcvx.algorithms.consensus import LocalCopy
from dpcvx.owners import wire
from dpcvx.owners.coordinator import Remote
from dpcvx.owners.files import CoordinatorLog
from dpcvx.owners.loopback import policies_of
from dpcvx.owners.messages import (
    AgentReply,
    Agreed,
    Call,
    End,
    FinalAccount,
    IterateAnswer,
    Key,
    Refusal,
)
from dpcvx.testing.instances import sensors
from tests.instances import whole
from tests.owners.settings import METHODS, Mortal, charges, planned
from tests.owners.tampered import poisoned

NONE = (math.nan, math.inf, -math.inf, 1e300, -1e200)
ODD = (1e149, -1e140, 5e-324, -1e-310, -0.0)
CODES = {"nonsense", "unreadable"}


class Bad(Mortal):
    """A hub that sends bad calls before every good one, or changes some replies.

    Attributes
    ----------
    tried : int
        How many bad frames there were.
    """

    def __init__(self, policies, calls=None, replies=None):
        super().__init__(policies)
        self._policy, self._calls, self._replies = policies[0], calls, replies
        self.tried = 0

    def exchange(self, frames, late=None):
        first = self._policy.agent
        if first in frames and self._calls is not None:
            self._calls(self, self.sessions[first], frames)
        found = super().exchange(frames)
        if first in found and self._replies is not None:
            found[first] = self._replies(self, found[first])
        return found


def ran(plan, hub, path=None):
    return plan.run(
        executor=Remote(lambda names: hub, lambda: CoordinatorLog(path), lambda: "a run")
    )


def made(method):
    return planned(whole(sensors), METHODS[method], 2)


def same(plan, result):
    """The result is that of one process."""
    expected = plan.run(seed=1, executor=dp.Serial())
    pairs = zip(expected.last.vectors, result.last.vectors, plan.program.agents, strict=True)
    for x, y, local in pairs:
        assert x[local.shared].tobytes() == y[local.shared].tobytes()


@pytest.mark.parametrize("method", METHODS)
def test_calls_with_numbers_that_are_none_are_refused_and_charge_nothing(method, tmp_path):
    coins = random.Random(1)

    def tried(hub, session, frames):
        good = frames[session.policy.agent]
        if not isinstance(wire.decode(good), Call):
            return
        before = charges(session.policy)
        for number in NONE:
            for bad in poisoned(good, number, coins):
                said = wire.decode(session.handle(bad))
                assert isinstance(said, Refusal) and said.code in CODES
                hub.tried += 1
        assert charges(session.policy) == before

    plan = made(method)
    policies = policies_of(plan, tmp_path)
    hub = Bad(policies, calls=tried)
    same(plan, ran(plan, hub))
    assert hub.tried >= 5
    count = plan.algorithm.releases(plan.rounds, plan.program)
    assert charges(policies[0]) == (count, count)


@pytest.mark.parametrize(
    ("method", "number"),
    [
        (method, number)
        for method in METHODS
        for number in ODD[:: 1 if method == "gradients" else 2]
    ],
)
def test_calls_with_odd_numbers_end_in_a_result_or_a_code(method, number, tmp_path):
    coins = random.Random(1)

    def changed(hub, session, frames):
        name = session.policy.agent
        if isinstance(wire.decode(frames[name]), Call):
            bad = [*poisoned(frames[name], number, coins)]
            frames[name] = coins.choice([*bad, frames[name]])
            hub.tried += len(bad) > 0

    plan = made(method)
    policies = policies_of(plan, tmp_path)
    hub = Bad(policies, calls=changed)
    try:
        ran(plan, hub)
    except (dp.RefusedError, dp.ModelError):
        pass
    assert hub.tried
    most = plan.algorithm.releases(plan.rounds, plan.program)
    assert max(charges(policies[0])) <= most


@pytest.mark.parametrize("method", METHODS)
def test_replies_with_numbers_that_are_none_are_not_kept_and_the_run_goes_on(method, tmp_path):
    plan, path = made(method), tmp_path / "run.dpx"
    policies, coins = policies_of(plan, tmp_path), random.Random(2)

    def changed(hub, frame):
        said = wire.decode(frame)
        if isinstance(said, (AgentReply, FinalAccount)):
            bad = [*poisoned(frame, coins.choice(NONE), coins)]
            if bad:
                hub.tried += 1
                return coins.choice(bad)
        return frame

    hub = Bad(policies, replies=changed)
    with pytest.raises(dp.RefusedError) as refusal:
        ran(plan, hub, path)
    assert refusal.value.code in CODES and hub.tried == 1
    same(plan, ran(plan, Bad(policies), path))
    (tmp_path / "undisturbed").mkdir()
    others = policies_of(plan, tmp_path / "undisturbed")
    ran(plan, Bad(others))
    assert [charges(policy) for policy in policies] == [charges(policy) for policy in others]


OTHERWISE = {
    "a reply of another kind": (AgentReply, lambda s: replace(s, message=np.zeros(2))),
    "no reply": (AgentReply, lambda s: replace(s, message=None)),
    "a longer reply": (AgentReply, lambda s: replace(s, message=LocalCopy(np.ones(9), np.ones(9)))),
    "whole numbers": (
        AgentReply,
        lambda s: replace(s, message=replace(s.message, z=s.message.z.astype(np.int64))),
    ),
    "another run": (AgentReply, lambda s: replace(s, run="other")),
    "fewer rounds than none": (Agreed, lambda s: replace(s, rounds=-1)),
    "more rounds than asked": (Agreed, lambda s: replace(s, rounds=10**6)),
    "a key that nobody asked for": (
        Agreed, lambda s: replace(s, key=Key("sensor0", "", "00" * 32, "", "")),
    ),
    "iterates without end": (
        IterateAnswer,
        lambda s: replace(s, answer=replace(s.answer, last=s.answer.last * np.inf)),
    ),
    "a weight of nothing": (
        IterateAnswer, lambda s: replace(s, answer=replace(s.answer, weight=0.0)),
    ),
    "fewer iterates": (
        IterateAnswer, lambda s: replace(s, answer=replace(s.answer, last=np.zeros(0))),
    ),
    "a violation below none": (FinalAccount, lambda s: replace(s, violation=-1.0)),
    "charges of later rounds": (
        FinalAccount, lambda s: replace(s, entries=(replace(s.entries[0], round=99),)),
    ),
    "charges without noise": (
        FinalAccount, lambda s: replace(s, entries=(replace(s.entries[0], multiplier=5e-324),)),
    ),
    "charges of no mechanism": (
        FinalAccount, lambda s: replace(s, entries=(replace(s.entries[0], mechanism="none"),)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERWISE)
def test_what_no_owner_says_ends_the_run_and_is_not_kept(name, tmp_path):
    kind, change = OTHERWISE[name]
    plan, path = made("gradients"), tmp_path / "run.dpx"
    policies = policies_of(plan, tmp_path)

    def changed(hub, frame):
        said = wire.decode(frame)
        if not isinstance(said, kind):
            return frame
        hub.tried += 1
        return wire.encode(change(said))

    hub = Bad(policies, replies=changed)
    with pytest.raises(dp.RefusedError) as refusal:
        ran(plan, hub, path)
    assert refusal.value.code in ({"order"} if name == "another run" else CODES)
    assert policies[0].agent in str(refusal.value) and hub.tried == 1
    same(plan, ran(plan, Bad(policies), path))
    assert charges(policies[0]) == (2 * 2, 2 * 2)


def test_a_code_that_nobody_knows_is_not_repeated(tmp_path):
    # It could move a terminal's cursor, or be as long as a book.
    plan = made("gradients")
    policies = policies_of(plan, tmp_path)

    def changed(hub, frame):
        return wire.encode(Refusal("\x1b[2J" * 10**4))

    with pytest.raises(dp.RefusedError, match=r"\(version\)") as refusal:
        ran(plan, Bad(policies, replies=changed))
    assert len(str(refusal.value)) < 400 and "\x1b" not in str(refusal.value)


@pytest.mark.parametrize("method", ["in shares", "mean in shares", "central in shares", "exact"])
def test_some_owners_have_ended_and_others_have_not(method, tmp_path):
    # The coordinator ends while owners hand over: one has done so, the others come back anew.
    plan, path = made(method), tmp_path / "run.dpx"
    policies = policies_of(plan, tmp_path)

    def ends(hub, session, frames):
        if isinstance(wire.decode(frames[session.policy.agent]), End):
            session.handle(frames[session.policy.agent])
            raise InterruptedError

    with pytest.raises(InterruptedError):
        ran(plan, Bad(policies, calls=ends), path)
    same(plan, ran(plan, Bad(policies), path))
