"""Runs that a coordinator closes early, because an owner left for good."""

import resource

import numpy as np
import pytest

import dpcvx as dp
from dpcvx.owners import wire
from dpcvx.owners.coordinator import Gone, Remote
from dpcvx.owners.files import CoordinatorLog
from dpcvx.owners.loopback import policies_of
from dpcvx.owners.messages import Call, Parted, refused
from dpcvx.privacy.ledger_file import past_of
from tests.owners.settings import METHODS, Mortal, charges, planned


class Left(Mortal):
    """A hub whose owners end for good before some round.

    Parameters
    ----------
    rounds : dict of str to int
        By owner, the round that it is not there for; 0 for those who do not come.
    """

    def __init__(self, policies, rounds):
        super().__init__(policies)
        self.rounds = rounds

    def gather(self, some=False):
        here = [name for name in self.sessions if self.rounds.get(name, 1) > 0]
        if len(here) < len(self.sessions) and not some:
            raise refused("away", "an agent did not come")
        return here

    def exchange(self, frames, late=None):
        found = {}
        for name, frame in frames.items():
            said = wire.decode(frame)
            t = self.rounds.get(name, 99)
            if t == 0 or (isinstance(said, Call) and said.t >= t):
                self.rounds[name], found[name] = 0, Gone(name)
                self.sessions[name].close()
            else:
                found[name] = self.sessions[name].handle(frame)
        return found

    def again(self, name):
        raise refused("away", f"agent '{name}' did not come back")


def run(plan, hub, path, close=False):
    executor = Remote(lambda names: hub, lambda: CoordinatorLog(path), lambda: "a run", close=close)
    return plan.run(executor=executor, verbose=False)


def begun(tmp_path, method="gradients", rounds=6, last=4):
    """A run of which one owner left, its policies, and its log."""
    plan = planned(method=METHODS[method], rounds=rounds)
    policies, path = policies_of(plan, tmp_path), tmp_path / "run.dpx"
    with pytest.raises(dp.RefusedError, match="did not come back"):
        run(plan, Left(policies, {"end1": last}), path)
    return plan, policies, path


@pytest.mark.parametrize(
    "method", ["gradients", "outputs", "exact", "mean", "summed", "primal-dual"]
)
def test_what_was_paid_for_is_kept(tmp_path, method):
    plan, policies, path = begun(tmp_path, method)
    hub = Left(policies, {"end1": 0})
    result = run(plan, hub, path, close=True)
    assert result.status is dp.Status.CLOSED and result.rounds == 3 and result.status.solved
    note = next(line for line in result.notes if "closed after round 3 of 6" in line)
    assert "without end1" in note
    for local, x in zip(plan.program.agents, result.solution.vectors, strict=True):
        assert np.isfinite(x[local.shared]).all()
    # Of the owner who is there, its own account; of the other, what it may have released at most.
    there, gone = (result.ledger[policy.agent] for policy in policies)
    assert len(there.entries) == charges(policies[0])[0]
    assert there.spent().epsilon <= gone.spent().epsilon <= 1 + 1e-9
    assert max(entry.round for entry in gone.entries) <= 4
    # Its owner has closed the run, and the other's ledger keeps it open.
    past = past_of(policies[0].ledger)
    assert past.interrupted is None and len(past.finished) == 1
    assert hub.sessions["end0"].result.status == "stopped"
    assert past_of(policies[1].ledger).interrupted is not None


def test_a_closed_run_is_returned_again_and_asks_nobody(tmp_path):
    plan, policies, path = begun(tmp_path)
    first = run(plan, Left(policies, {"end1": 0}), path, close=True)
    before = [charges(policy) for policy in policies]
    again = run(plan, Left(policies, {"end0": 0, "end1": 0}), path)
    assert again.status is dp.Status.CLOSED and again.rounds == first.rounds
    for x, y in zip(first.last.vectors, again.last.vectors, strict=True):
        assert np.array_equal(x, y, equal_nan=True)
    assert [charges(policy) for policy in policies] == before


def test_all_owners_may_be_there(tmp_path):
    plan, policies, path = begun(tmp_path)
    result = run(plan, Left(policies, {}), path, close=True)
    assert result.status is dp.Status.CLOSED and result.rounds == 3
    assert not any("did not come" in line for line in result.notes)
    for policy in policies:
        assert past_of(policy.ledger).interrupted is None
        assert len(result.ledger[policy.agent].entries) == charges(policy)[0]


def test_the_values_are_those_of_a_run_of_so_many_rounds(tmp_path):
    """As far as the owners are there: their copies, after as many rounds of the same noise."""
    plan, policies, path = begun(tmp_path)
    closed = run(plan, Left(policies, {}), path, close=True)
    with CoordinatorLog(path) as log:
        told = {account.run for account in log.ended.accounts}
        assert told == {"a run"} and log.ended.rounds == 6
        for local, x, account in zip(
            plan.program.agents, closed.last.vectors, log.ended.accounts, strict=True
        ):
            assert x[local.shared].tobytes() == account.answer.last.tobytes()


def test_a_full_disk_at_the_coordinator_is_said_with_the_file(tmp_path):
    path, limits = tmp_path / "run.dpx", resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        with pytest.raises(dp.RefusedError, match="'run.dpx' cannot be written: file too") as full:
            with CoordinatorLog(path) as log:
                log.add(Parted(("north" * 100,)))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert full.value.code == "storage" and "owner" not in str(full.value)
    with CoordinatorLog(path) as log:  # a part of a frame is removed
        assert path.stat().st_size == 0 and log.begun is None


def test_a_log_without_a_round_is_not_closed(tmp_path):
    plan = planned()
    policies, path = policies_of(plan, tmp_path), tmp_path / "run.dpx"
    with pytest.raises(dp.ModelError, match="holds no complete round"):
        run(plan, Left(policies, {}), path, close=True)
    with pytest.raises(dp.RefusedError):
        run(plan, Left(policies, {"end1": 1}), path)
    with pytest.raises(dp.ModelError, match="holds no complete round"):
        run(plan, Left(policies, {}), path, close=True)


def test_a_run_that_nobody_ends_needs_iterates_in_the_log(tmp_path):
    plan, policies, path = begun(tmp_path)
    nobody = {"end0": 0, "end1": 0}
    with CoordinatorLog(path) as log:
        known = len(log.answers)
    if known:
        assert run(plan, Left(policies, nobody), path, close=True).status is dp.Status.CLOSED
    else:
        with pytest.raises(dp.RefusedError, match="no final iterates"):
            run(plan, Left(policies, nobody), path, close=True)


def test_an_owner_that_leaves_at_the_end_is_done_without(tmp_path):
    plan, policies, path = begun(tmp_path)

    class Leaves(Left):
        def exchange(self, frames, late=None):
            if all(wire.decode(frame).__class__.__name__ == "End" for frame in frames.values()):
                self.rounds["end1"] = 0
            return super().exchange(frames, late)

    result = run(plan, Leaves(policies, {}), path, close=True)
    assert result.status is dp.Status.CLOSED
    assert past_of(policies[0].ledger).interrupted is None
