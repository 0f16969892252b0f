"""Owners in one process: the same results as agents of one owner, and nothing else crosses."""

from pathlib import Path
from types import SimpleNamespace

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp
from dpcvx.owners import wire
from dpcvx.owners.coordinator import Remote
from dpcvx.owners.files import CoordinatorLog
from dpcvx.owners.loopback import policies_of
from dpcvx.owners.messages import Call
from dpcvx.owners.session import Session
from dpcvx.testing import instances as made
from tests.helpers import contains
from tests.instances import INSTANCES, clinics, power_line, whole
from tests.owners.settings import METHODS, Mortal, charges, planned


def tables():
    """Arrays that tell rows from columns, and are neither square nor symmetric."""
    x, agents = cp.Variable((2, 3), name="x"), []
    A = np.array([[0.3, -0.5], [1.0, 0.2], [-0.4, 0.7], [0.1, 0.6]])
    for k in range(2):
        data = np.cos(np.arange(12.0) + k).reshape(4, 3)
        d = dp.Private(data, name=f"d{k}", adjacency=dp.Within(0.1))
        bounds = 1 + np.arange(6.0).reshape(2, 3) / (8 + k)
        agents.append(dp.Agent(cp.Minimize(cp.sum_squares(A @ x - d)), [cp.abs(x) <= bounds]))
    return SimpleNamespace(problem=dp.Problem(agents))


BUILDS = {
    **INSTANCES,
    "clinics": clinics,
    "tables": tables,
    **{n: whole(getattr(made, n)) for n in ("sensors", "laboratories", "dispatch")},
}
# It has no noise for steps, in which the others are tried elsewhere.
ALL = METHODS | {"as written": dp.OneShot(as_written=True)}
# Every method, with every release that fits it, and what is special of every instance.
PAIRS = [
    (name, method, release)
    for name, release, methods in (
        ("tables", "each_step", "gradients, mean"),
        ("tables", "once", "exact"),
        ("power line", "each_step", "outputs, exact"),
        ("power line", "once", "gradients"),
        ("overlapping slices", "each_step", "gradients, in shares, central in shares"),
        ("overlapping slices", "once", "summed"),
        ("covariance", "each_step", "gradients, central, neighbors"),
        ("covariance", "once", "primal-dual, as written"),
        ("clinics", "each_step", "primal-dual, outputs"),
        ("sensors", "each_step", "summed, mean in shares"),
        ("sensors", "once", "mean, neighbors, mean in shares"),
        ("laboratories", "each_step", "mean, in shares"),
        ("dispatch", "each_step", "central in shares"),
        ("dispatch", "once", "central, as written"),
    )
    for method in methods.split(", ")
]


def same(plan, one, other):
    """Shared entries, status and ledgers of two results are the same bits."""
    assert one.status == other.status and one.rounds == other.rounds
    assert one.feasible == other.feasible
    for which in ("last", "average", "tail", "weighted", "solution"):
        vectors = (getattr(result, which).vectors for result in (one, other))
        for x, y, local in zip(*vectors, plan.program.agents, strict=True):
            assert x[local.shared].tobytes() == y[local.shared].tobytes()
    for name, account in one.ledger.items():
        assert list(account.entries) == list(other.ledger[name].entries)
        assert account.spent() == other.ledger[name].spent()


def released(transcript, k):
    return [(r.round, r.step, r.value.tobytes()) for r in transcript if r.agent == k]


@pytest.mark.parametrize(("name", "method", "release"), PAIRS)
def test_results_ledgers_and_releases_are_those_of_one_process(name, method, release):
    plan = planned(BUILDS[name], ALL[method], 3, release=release)
    expected = plan.run(seed=1, record=True, executor=dp.Serial())
    executor = dp.LoopbackOwners(plan, seed=1, record=True)
    result = plan.run(executor=executor)
    same(plan, expected, result)
    for k, session in enumerate(executor.sessions.values()):
        own = [(r.round, r.step, r.value.tobytes()) for r in session.result.releases]
        assert own == released(expected.transcript.releases, k)
        last = expected.last.vectors[k]
        for piece in plan.program.agents[k].layout.pieces:
            flat = session.result.last[piece.name].ravel(order="F")[piece.entries]
            assert flat.tobytes() == last[piece.offset : piece.stop].tobytes()


def test_owners_release_with_staircase_noise_what_one_process_does():
    problem = tables().problem
    plan = problem.plan(mechanism="staircase", epsilon=3.0, delta=1e-6)
    expected = plan.run(seed=1, executor=dp.Serial())
    same(plan, expected, plan.run(executor=dp.LoopbackOwners(plan, seed=1)))
    (entry,) = expected.ledger["agent 1"].entries
    assert entry.mechanism == "Staircase"


def test_owners_take_part_in_a_geometric_program():
    """Which program the server solves is in the method; owners release data once, as ever."""
    speeds, agents = [], []
    for k in range(2):
        s = cp.Variable(pos=True, name=f"s{k}")
        work = dp.Private(4.0 - k, adjacency=dp.Within(0.1), bounds=(0.5, 9), name=f"work {k}")
        agents.append(dp.Agent(cp.Minimize(work / s), name=f"maker {k}"))
        speeds.append(s)
    slack = cp.Variable(pos=True, name="slack")
    agents.append(dp.Agent(cp.Minimize(1 / slack), name="grid"))
    problem = dp.Problem(agents, coupling=[speeds[0] ** 3 + speeds[1] ** 3 + slack <= 2])
    method = dp.OneShot(gp=True, solver=cp.CLARABEL, solver_options={"max_iter": 100})
    plan = problem.plan(method, epsilon=1.0, delta=1e-6)
    expected = plan.run(seed=1, executor=dp.Serial())
    assert expected.status.solved
    same(plan, expected, plan.run(executor=dp.LoopbackOwners(plan, seed=1)))


def test_what_agents_keep_is_nan_here():
    plan = planned()
    result = plan.run(executor=dp.LoopbackOwners(plan, seed=1))
    found = result.solution
    assert np.isnan(found["gen0"]).all() and np.isfinite(found["tie"]).all()
    assert result.status.solved and str(result)


def test_iterates_and_tolerance_are_as_in_one_process():
    plan = planned(rounds=6)
    expected = plan.run(seed=1, iterates=True, tolerance=1e-9, executor=dp.Serial())
    result = plan.run(executor=dp.LoopbackOwners(plan, seed=1), iterates=True, tolerance=1e-9)
    same(plan, expected, result)
    for one, other in zip(expected.iterates, result.iterates, strict=True):
        for x, y, a in zip(one.last.vectors, other.last.vectors, plan.program.agents, strict=True):
            assert x[a.shared].tobytes() == y[a.shared].tobytes()


@pytest.mark.parametrize(
    "argument",
    [{"data": {"load0": np.ones(4)}}, {"seed": 1}, {"ledger": "x.jsonl"}, {"record": True}],
)
def test_what_belongs_to_owners_is_not_given_here(argument):
    plan = planned()
    with pytest.raises(dp.ModelError, match="Owners keep data"):
        plan.run(executor=dp.LoopbackOwners(plan, seed=1), **argument)


def test_a_folder_that_is_none_is_refused(tmp_path):
    with pytest.raises(dp.ModelError, match="folder"):
        dp.LoopbackOwners(planned(), folder=tmp_path / "none")


def unread():
    raise OSError("no such table")


def stopped():
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("source", "error"),
    [(np.ones(4), None), (unread, dp.RefusedError), (stopped, KeyboardInterrupt)],
)
def test_without_a_folder_nothing_stays_on_disk(temporary, source, error):
    plan = planned()
    executor = dp.LoopbackOwners(plan, data={"load1": source})
    assert not list(temporary.iterdir())
    if error is None:
        plan.run(executor=executor)
    else:
        with pytest.raises(error):
            plan.run(executor=executor)
    assert list(executor.sessions) == ["end0", "end1"]
    assert not list(temporary.iterdir())


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_a_run_that_is_stopped_in_its_middle_leaves_nothing(temporary, monkeypatch, error):
    plan, handle, met = planned(), Session.handle, []

    def ends(self, frame):
        if isinstance(wire.decode(frame), Call) and len(met) < 3:
            met.append(len(list(temporary.glob("dpcvx-*/*"))))
        elif len(met) == 3:
            raise error
        return handle(self, frame)

    monkeypatch.setattr(Session, "handle", ends)
    with pytest.raises(error):
        plan.run(executor=dp.LoopbackOwners(plan))
    assert met[0] >= 2  # ledgers and offers were there
    assert not list(temporary.iterdir())


def test_a_folder_that_is_named_stays_with_its_ledgers(tmp_path):
    plan = planned()
    executor = dp.LoopbackOwners(plan, folder=tmp_path)
    plan.run(executor=executor)
    assert {"agent-0.jsonl", "agent-1.jsonl"} <= {path.name for path in tmp_path.iterdir()}
    with pytest.raises(dp.RefusedError, match="spent"):
        plan.run(executor=executor)


def test_own_values_are_with_owners():
    plan = planned()
    result = plan.run(executor=dp.LoopbackOwners(plan), verbose=False)
    with pytest.raises(dp.ModelError, match="owners that keep their own variables"):
        result.recourse("end0")


def test_owners_without_a_folder_begin_anew_in_every_run():
    plan = planned()
    executor = dp.LoopbackOwners(plan, seed=1)
    same(plan, plan.run(executor=executor), plan.run(executor=executor))


def remote(policies, log=None, deaths=()):
    hub = Mortal(policies, deaths)
    return hub, Remote(lambda names: hub, lambda: CoordinatorLog(log), lambda: "a run")


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("place", [(1, 0), (3, 0), (6, 0)])
def test_owners_that_end_come_back_and_pay_nothing_twice(tmp_path, place, when):
    plan = planned(rounds=6)
    expected = plan.run(seed=1, executor=dp.Serial())
    policies = policies_of(plan, tmp_path)
    hub, executor = remote(policies, deaths={"end0": (place, when), "end1": ((2, 0), "after")})
    same(plan, expected, plan.run(executor=executor))
    assert hub.rejoined == 2
    assert [charges(policy) for policy in policies] == [(6, 6)] * 2


class Stop(Exception):
    """The coordinator's process ends."""


@pytest.mark.parametrize("count", [0, 1, 3, 5])
def test_a_coordinator_that_ends_goes_on_from_its_log(tmp_path, count, monkeypatch):
    plan = planned(rounds=6)
    expected = plan.run(seed=1, executor=dp.Serial())
    policies, path = policies_of(plan, tmp_path), tmp_path / "run.dpx"
    executor = remote(policies, path)[1]
    add = CoordinatorLog.add

    def ends(self, exchange):
        if len(self.exchanges) == count:
            raise Stop
        add(self, exchange)

    with monkeypatch.context() as patch, pytest.raises(Stop):
        patch.setattr(CoordinatorLog, "add", ends)
        plan.run(executor=executor)
    # A part of a frame is on disk, as a process that is killed leaves it.
    with path.open("ab") as file:
        file.write(wire.MAGIC + b"\x10")
    executor = remote(policies, path)[1]
    result = plan.run(executor=executor)
    same(plan, expected, result)
    assert [charges(policy) for policy in policies] == [(6, 6)] * 2
    assert any("resumed in round" in note for note in result.notes) == (count > 0)


def test_logs_of_other_plans_and_files_that_are_none_are_refused(tmp_path):
    path = tmp_path / "run.dpx"
    plan, other = planned(rounds=3), planned(rounds=4)
    plan.run(executor=remote(policies_of(plan, tmp_path), path)[1])
    with pytest.raises(dp.ModelError, match="another plan"):
        other.run(executor=remote(policies_of(other, tmp_path), path)[1])
    foreign = tmp_path / "notes.txt"
    foreign.write_text("a text that must not be overwritten")
    with pytest.raises(dp.LedgerError, match="no log"):
        other.run(executor=remote(policies_of(other, tmp_path), foreign)[1])
    assert foreign.read_text() == "a text that must not be overwritten"


def test_an_owner_that_answers_otherwise_than_before_is_noticed(tmp_path):
    plan = planned(rounds=4)
    policies = policies_of(plan, tmp_path)
    hub, executor = remote(policies, deaths={"end0": ((3, 0), "before")})
    again = hub.again

    def forgetful(name):
        # It lost its ledger, with what is known of it, and draws other noise.
        ledger = policies[0].ledger
        ledger.unlink()
        ledger.with_name(f"{ledger.name}.seen").unlink()
        hub._seed = 2
        again(name)

    hub.again = forgetful
    with pytest.raises(dp.RefusedError) as refusal:
        plan.run(executor=executor)
    assert refusal.value.code == "changed"


def test_neither_data_nor_local_values_are_in_any_frame_or_log(tmp_path):
    canary, path = 0.731415926535, tmp_path / "run.dpx"
    built = power_line()
    loads = [np.full(4, canary) + k / 8 for k in range(2)]
    plan = built.problem.plan(
        dp.LinearizedADMM(penalty=2.0), rounds=4, epsilon=1.0, delta=1e-6, release="each_step"
    )
    for agent, load in zip(built.problem.agents, loads, strict=True):
        assert agent.private[0].shape == load.shape
    policies = [
        type(p)(**{**vars(p), "data": {n: _with(h, loads[k]) for n, h in p.data.items()}})
        for k, p in enumerate(policies_of(plan, tmp_path))
    ]
    hub, executor = remote(policies, path)
    sessions = hub.sessions
    plan.run(executor=executor)
    secrets = [canary, canary + 1 / 8]
    local = [s.result.last[f"gen{k}"] for k, s in enumerate(sessions.values())]
    inside = [v for v in np.concatenate(local) if 0 < v < 1.5]  # the bounds are public
    numbers = [*secrets, *inside]
    assert len(inside) >= 2
    public = b"".join(frame for _, frame in hub.traffic) + path.read_bytes()
    for number in numbers:
        assert np.float64(number).tobytes() not in public
        assert repr(float(number)).encode() not in public
        assert not any(contains(wire.decode(frame), float(number)) for _, frame in hub.traffic[:4])
    # What is searched for is found where it is: the search can fail.
    shared = sessions["end0"].result.last["tie"]
    assert shared.tobytes() in public


def _with(held, value):
    return type(held)(held.spec, type(held.source)(value))


def test_result_of_owners_says_what_the_shared_values_keep():
    plan = planned()
    result = plan.run(executor=dp.LoopbackOwners(plan), verbose=False)
    said = " ".join(str(result).split())
    assert result.owners and not plan.run(verbose=False).owners
    assert "own variables that keep every constraint exist for the shared values returned" in said
    assert "nan" not in said


@pytest.mark.parametrize("own", [0.0, 0.7, -3.0])
def test_shared_values_returned_depend_on_released_values_alone(own):
    """Rows tie what is shared to what an owner keeps, and the mean of the copies leaves them."""
    tie = cp.Variable(3, name="tie")
    agents = []
    for k in range(3):
        gen = cp.Variable(3, name=f"gen {k}")
        load = dp.Private(np.arange(3.0) + own * k, name=f"load {k}", adjacency=dp.Within(0.1))
        rows = [cp.norm(tie - gen) <= 0.3, gen <= 1.0 - 0.1 * k, tie + (k - 1) * gen >= -0.2]
        cost = cp.sum_squares(gen - load) + cp.sum_squares(tie - k)
        agents.append(dp.Agent(cp.Minimize(cost), rows, name=f"end {k}"))
    plan = dp.Problem(agents).plan(
        dp.LinearizedADMM(penalty=1.0), rounds=3, epsilon=1.0, delta=1e-6, release="each_step"
    )
    result = plan.run(seed=3, executor=dp.Serial())
    assert result.feasible and result.max_violation < 1e-6 and result.projection_distance > 1e-3
    same(plan, result, plan.run(executor=dp.LoopbackOwners(plan, seed=3)))


def proxied():
    """Two agents whose released values are moved towards their proxies."""
    x, agents = cp.Variable(6, name="x", bounds=[-9, 9]), []
    for k in range(2):
        like = np.linspace(1, 2 + k, 6)
        d = dp.Private(like + 0.3, name=f"d{k}", adjacency=dp.Within(1.0), proxy=like)
        agents.append(dp.Agent(cp.Minimize(cp.sum_squares(x - d)), name=f"a{k}"))
    return dp.Problem(agents).plan(epsilon=1.0, delta=1e-6)


def test_values_moved_towards_a_proxy_are_the_same_between_owners_and_in_replays():
    plan = proxied()
    assert all(agent.moved for agent in plan.agents)
    one = plan.run(seed=1, record=True, verbose=False)
    same(plan, one, plan.run(executor=dp.LoopbackOwners(plan, seed=1)))
    same(plan, one, plan.replay(one.transcript))


def of_people(k, data=None):
    """Rows of a clinic, up to k of each person."""
    w = cp.Variable(2, name="w")
    rows = dp.Rows(1.0, records="visit", max_rows_per_person=k)
    X = dp.Private(data, shape=(6, 2), name="X", adjacency=rows)
    cost = cp.sum(cp.logistic(X @ w)) + cp.sum_squares(w)
    agent = dp.Agent(cp.Minimize(cost), [cp.abs(w) <= 1], name="clinic")
    return dp.Problem([agent]).plan(
        dp.FederatedGradient(step=0.1), epsilon=1.0, delta=1e-6, rounds=3
    )


def test_identifiers_stay_with_their_owner(monkeypatch):
    """No frame has them, and what is computed is what one process computes."""
    people, frames = ["Ann Qz", "Bob Qz", "Ann Qz", "Ann Qz", "Bob Qz", "Cem Qz"], []
    data = dp.ByPerson(np.full((6, 2), 0.5), people)
    handle = Session.handle

    def heard(self, frame):
        frames.append(bytes(frame))
        frames.append(bytes(handle(self, frame)))
        return frames[-1]

    monkeypatch.setattr(Session, "handle", heard)
    plan = of_people(2, data)
    executor = dp.LoopbackOwners(plan, seed=1)
    same(plan, plan.run(seed=1, executor=dp.Serial()), plan.run(executor=executor))
    assert len(frames) > 6 and not any(b"Qz" in frame for frame in frames)
    assert any(b"rows" in frame for frame in frames)


def test_an_owner_refuses_another_number_of_rows_per_person():
    data = dp.ByPerson(np.full((6, 2), 0.5), range(6))
    policies = policies_of(of_people(2, data), Path())
    executor = dp.LoopbackOwners(of_people(1, data))
    executor._policies = policies
    with pytest.raises(dp.RefusedError, match="protects other changes"):
        of_people(1, data).run(executor=executor)
