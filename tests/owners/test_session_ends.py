"""The end of a run: whoever is killed then, all hear that it is over, and nothing is lost."""

import queue
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
from websockets.sync.client import connect

import dpcvx as dp
from dpcvx.owners import keys, wire
from dpcvx.owners.cli import main
from dpcvx.owners.coordinator import Gone, Remote
from dpcvx.owners.files import CoordinatorLog
from dpcvx.owners.link import SocketHub
from dpcvx.owners.loopback import policies_of
from dpcvx.owners.messages import (
    AgentReply,
    Agreed,
    Call,
    End,
    Ended,
    FinalAccount,
    Hello,
    Offer,
    Parted,
    Refusal,
    RunOver,
    refused,
)
from dpcvx.owners.policy import read_policy
from dpcvx.owners.session import Session
from dpcvx.privacy.ledger_file import Journal, past_of
from tests.owners.federation import free_port, gathered, plan_of, write
from tests.owners.settings import Mortal, answer, charges, offered, planned
from tests.owners.test_loopback import same
from tests.owners.test_session import call

OVER = RunOver("a run")


class Stop(BaseException):
    """A process ends."""


class Late(Mortal):
    """A hub whose owners end at a frame of the end, and come back on their ledgers.

    Parameters
    ----------
    dies : callable
        Takes a message and an owner's name, and says whether the owner ends with its answer.
    lost : tuple of str
        Owners that do not come back to hear that the run is over.
    """

    def __init__(self, policies, dies=lambda said, name: False, lost=()):
        super().__init__(policies)
        self._dies, self._lost, self.asked = dies, lost, []

    def exchange(self, frames, late=None):
        found = {}
        for name, frame in frames.items():
            session, said = self.sessions[name], wire.decode(frame)
            self.asked.append(type(said))
            if session is None:
                found[name] = Gone(name)
                continue
            try:
                found[name] = session.handle(frame)
                died = self._dies(said, name)
            except Stop:
                died = True
            if died:
                session.close()
                self.sessions[name], found[name] = None, Gone(name)
                self._dies = lambda said, name: False
        return found

    def part(self, frames, seconds):
        for name, session in self.sessions.items():
            if session is None and name not in self._lost:
                self.again(name)
        return self.exchange({n: f for n, f in frames.items() if n not in self._lost}) | {
            n: Gone(n) for n in frames if n in self._lost
        }


def run(plan, hub, path, made=None):
    """A coordinator's run on a log."""

    def make(names):
        if made is not None:
            made.append(names)
        return hub

    return plan.run(
        executor=Remote(make, lambda: CoordinatorLog(path), lambda: "a run"), verbose=False
    )


def parted(path):
    """Who has heard, as the log has it."""
    with CoordinatorLog(path) as log:
        return log.parted


def at_end(said, name):
    return isinstance(said, End) and name == "end0"


def at_over(said, name):
    return isinstance(said, RunOver) and name == "end0"


@pytest.mark.parametrize("when", [at_end, at_over])
def test_an_owner_that_ends_with_its_last_words_comes_back_and_hears(tmp_path, when):
    plan = planned()
    expected = plan.run(seed=1, executor=dp.Serial())
    policies, path = policies_of(plan, tmp_path), tmp_path / "run.dpx"
    hub = Late(policies, when)
    same(plan, expected, run(plan, hub, path))
    told = {"end0", "end1"} if when is at_end else {"end1"}
    assert parted(path) == told and hub.rejoined == (when is at_end)
    assert [charges(policy) for policy in policies] == [(4, 4)] * 2
    last = expected.last.of("end0", "gen0")
    if when is at_over:  # nobody waits for it any more, and it knows by itself
        session = Session(policies[0], seed=1)
        assert session.settled() and not session.over
    else:
        session = hub.sessions["end0"]
        assert session.over
    assert session.result.last["gen0"].tobytes() == last.tobytes()
    assert (session.result.status, session.result.rounds) == ("completed", 4)


def test_an_owner_that_ends_before_its_ledger_says_so_goes_on(tmp_path, monkeypatch):
    plan = planned()
    expected = plan.run(seed=1, executor=dp.Serial())
    policies, path, end = policies_of(plan, tmp_path), tmp_path / "run.dpx", Journal.end
    ended = []

    def dies(self, *arguments):
        ended.append(self.path)
        if len(ended) == 1:
            raise Stop
        return end(self, *arguments)

    monkeypatch.setattr(Journal, "end", dies)
    hub = Late(policies)
    same(plan, expected, run(plan, hub, path))
    assert hub.rejoined == 1 and ended.count(policies[0].ledger) == 2
    assert parted(path) == {"end0", "end1"}
    for policy in policies:
        assert charges(policy) == (4, 4) and past_of(policy.ledger).interrupted is None


def test_an_owner_that_is_gone_between_its_account_and_the_end_comes_back(tmp_path):
    plan = planned()
    policies, path = policies_of(plan, tmp_path), tmp_path / "run.dpx"
    hub, part = Late(policies), Late.part

    def gone(frames, seconds):
        hub.sessions["end0"].close()
        hub.sessions["end0"] = None
        return part(hub, frames, seconds)

    hub.part = gone
    run(plan, hub, path)
    assert hub.rejoined == 1 and parted(path) == {"end0", "end1"}
    # It is not led through the run again: what it kept is enough.
    assert hub.asked[-2:] == [RunOver, RunOver]
    assert hub.sessions["end0"].over and hub.sessions["end0"].result.rounds == 4


@pytest.mark.parametrize(("written", "spent"), [(False, None), (True, None), (False, 0.7)], ids=str)
def test_a_coordinator_that_ends_at_the_end_tells_all_when_it_is_back(
    tmp_path, monkeypatch, written, spent
):
    plan = planned()
    policies, path, add = policies_of(plan, tmp_path), tmp_path / "run.dpx", CoordinatorLog.add
    if spent is not None:  # budgets leave fewer rounds than planned
        run(planned(rounds=2, epsilon=spent), Late(policies), tmp_path / "before.dpx")

    def dies(self, found):
        if written or not isinstance(found, Ended):
            add(self, found)
        if isinstance(found, Ended):
            raise Stop

    hub = Late(policies)
    hub.close = lambda farewell=b"": None  # owners wait for it
    with monkeypatch.context() as patch, pytest.raises(Stop):
        patch.setattr(CoordinatorLog, "add", dies)
        run(plan, hub, path)
    assert not any(session.over for session in hub.sessions.values())
    hub.asked, made = [], []
    result = run(plan, hub, path, made)
    assert all(session.over for session in hub.sessions.values()) and len(made) == 1
    assert parted(path) == {"end0", "end1"}
    assert (result.rounds < 4) == (spent is not None)
    # What the log has is asked of nobody again.
    assert hub.asked == ([] if written else [Offer] * 2 + [End] * 2) + [RunOver] * 2
    same(plan, result, run(plan, hub, path, made))
    assert len(made) == 1  # nobody is waited for once all have heard


def test_a_coordinator_that_ends_while_it_says_so_goes_on_with_the_others(tmp_path):
    plan = planned()
    policies, path = policies_of(plan, tmp_path), tmp_path / "run.dpx"
    hub = Late(policies, lost=("end1",))
    first = run(plan, hub, path)
    assert parted(path) == {"end0"} and not hub.sessions["end1"].over
    hub._lost, hub.asked = (), []
    same(plan, first, run(plan, hub, path))
    assert hub.asked == [RunOver] and hub.sessions["end1"].over
    assert parted(path) == {"end0", "end1"}


def test_an_answer_that_is_no_acknowledgment_is_none(tmp_path):
    plan = planned()
    policies, path = policies_of(plan, tmp_path), tmp_path / "run.dpx"
    hub = Late(policies)
    hub.part = lambda frames, seconds: dict.fromkeys(frames, wire.encode(Refusal("order")))
    result = run(plan, hub, path)
    assert result.status.solved and parted(path) == set()


@pytest.fixture
def begun(tmp_path):
    offer, policy = offered(planned(), tmp_path)
    session = Session(policy, seed=1)
    assert answer(session, OVER).code == "order"  # nothing has ended here
    assert isinstance(answer(session, offer), Agreed)
    yield session, policy, offer
    session.close()


def test_nobody_is_told_that_an_open_run_is_over(begun):
    session, policy, _ = begun
    for t in range(1, 5):
        assert answer(session, OVER).code == "order" and not session.over
        assert isinstance(answer(session, call(t)), AgentReply)
    assert isinstance(answer(session, End("a run", "completed", 4)), FinalAccount)
    assert answer(session, RunOver("another run")).code == "order" and not session.over
    frame = wire.encode(OVER)
    assert [session.handle(frame) for _ in range(2)] == [frame] * 2  # asked again, the same
    assert session.over and session.refusal is None and charges(policy) == (4, 4)


def test_what_ended_before_says_nothing_of_a_run_that_is_open(begun):
    """The same plan again is another run by the same fingerprint."""
    session, policy, offer = begun
    for t in range(1, 5):
        answer(session, call(t))
    answer(session, End("a run", "completed", 4))
    session.close()
    policy = replace(policy, epsilon=3.0)
    again = replace(offer, run="another run")
    session = Session(policy, seed=1)
    assert isinstance(answer(session, again), Agreed)
    answer(session, call(1, run="another run"))
    session.close()
    session = Session(policy, seed=1)
    assert answer(session, OVER).code == "order" and not session.settled()
    # Killed between the file of the end and the line in the ledger: the run is open as well.
    final = policy.ledger.with_name(f"{policy.ledger.name}.final.dpx")
    fingerprint, end, account, covered = wire.decode(final.read_bytes())
    said = replace(end, run="another run"), replace(account, run="another run")
    final.write_bytes(wire.encode((fingerprint, *said, covered)))
    assert answer(Session(policy, seed=1), RunOver("another run")).code == "order"
    session = Session(policy, seed=1)
    assert answer(session, again).place == (0, -1)
    session.close()


def test_a_refusal_after_the_account_ends_the_conversation_by_its_code(begun):
    session, policy, _ = begun
    for t in range(1, 5):
        answer(session, call(t))
    answer(session, End("a run", "completed", 4))
    assert answer(session, Refusal("nonsense")).code == "ended" and session.over
    assert past_of(policy.ledger).interrupted is None


def test_that_the_run_is_over_is_answered_at_once(begun):
    session, policy, _ = begun
    for t in range(1, 5):
        answer(session, call(t))
    answer(session, End("a run", "completed", 4))
    slow = Session(replace(policy, reply_after=30.0), seed=1)
    began = time.monotonic()
    assert slow.reply(wire.encode(OVER)) == wire.encode(OVER)
    assert time.monotonic() - began < 15.0


def test_a_refusal_of_the_coordinator_is_answered_at_once(begun):
    _, policy, _ = begun
    slow = Session(replace(policy, reply_after=30.0), seed=1)
    began = time.monotonic()
    assert wire.decode(slow.reply(wire.encode(Refusal("away")))).code == "ended" and slow.over
    assert time.monotonic() - began < 15.0


def test_logs_hold_who_has_heard(tmp_path):
    path = tmp_path / "run.dpx"
    plan = planned()
    run(plan, Late(policies_of(plan, tmp_path)), path)
    with path.open("rb") as file:
        kinds = [type(wire.decode(frame)) for _, frame in wire.frames_in(file)]
    assert kinds[-2:] == [Ended, Parted]


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """Folders of a federation whose only run is over."""
    place = write(tmp_path_factory.mktemp("federation"), rounds=3)
    plan = plan_of(place)
    policies = [read_policy(place / agent.name / "owner.toml") for agent in plan.agents]
    hub = Late(policies)
    run(plan, hub, place / "run.dpx")
    return place, hub


def test_an_owner_whose_last_run_is_over_waits_for_nobody_in_vain(ended, tmp_path, capsys):
    place, hub = ended
    address = f"wss://127.0.0.1:{free_port()}"
    arguments = ["--connect", address, "--timeout", "0.5"]
    own = tmp_path / "own.npz"
    policy = str(place / "north" / "owner.toml")
    assert main(["owner", "join", policy, *arguments, "--out", str(own)]) == 0
    said = capsys.readouterr()
    assert said.out == "the run is over: completed after 3 rounds\n"
    assert said.err.splitlines() == [
        f"no coordinator at {address}: nobody listens there; looking for it for up to 0.5 s",
        "nobody answered for 0.5 s; the last run in the ledger is over, and nothing is open",
    ]
    last = hub.sessions["north"].result.last["gen north"]
    with np.load(own) as found:
        assert found["gen north"].tobytes() == last.tobytes()
    found = dp.Owner(policy).join(address, timeout=0.5, verbose=False)
    assert not found.heard and found.rounds == 3
    # Without what it kept of its own, it says no less, and replaces nothing by nothing.
    (place / "north" / "spent.jsonl.own.dpx").unlink()
    assert main(["owner", "join", policy, *arguments, "--out", str(own)]) == 0
    with np.load(own) as found:
        assert found["gen north"].tobytes() == last.tobytes()


def test_an_owner_whose_run_is_open_waits_and_ends_with_an_error(ended, capsys):
    place, _ = ended
    policy = replace(read_policy(place / "south" / "owner.toml"), epsilon=3.0)
    # A second run of the same plan, which does not end.
    offers = [wire.decode((place / "south/spent.jsonl.offer.dpx").read_bytes())]
    session = Session(policy, seed=1)
    offer = replace(offers[0], run="another run")
    assert isinstance(answer(session, offer), Agreed)
    message = answer(session, Call("another run", 9, 0, None))
    assert isinstance(message, Refusal)
    session.close()
    arguments = ["--connect", f"wss://127.0.0.1:{free_port()}", "--timeout", "0.5"]
    assert main(["owner", "join", str(place / "south" / "owner.toml"), *arguments]) == 1
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith("away: ") and said.endswith(
        " Run the same call or command again to resume."
    )


def test_owners_that_come_back_in_time_hear_it_and_others_are_named(ended):
    place, _ = ended
    port, lines, frame = free_port(), queue.Queue(), wire.encode(OVER)
    own = keys.PartyIdentity.of(place / "coordinator" / "keys", "coordinator")
    north = keys.PartyIdentity.of(place / "north" / "keys", "north").context(server=False)
    hello = wire.encode(Hello("north"))
    with (
        ThreadPoolExecutor(1) as pool,
        closing(SocketHub(["north", "south"], "127.0.0.1", port, own, 2.0, lines.put)) as hub,
    ):
        parting = pool.submit(hub.part, dict.fromkeys(("north", "south"), frame), 600.0)
        waiting = "waiting up to 2 s for north and south to hear that the run is over"
        assert lines.get(timeout=20) == waiting
        for answers in (False, True):  # lost with its answer, and back
            with connect(f"wss://127.0.0.1:{port}", ssl=north) as socket:
                socket.send(hello)
                assert socket.recv(timeout=20) == frame
                if answers:
                    socket.send(frame)
        found = parting.result()
        assert found["north"] == frame and isinstance(found["south"], Gone)


def test_whoever_is_there_hears_it_without_delay(ended):
    place, _ = ended
    port, lines, frame = free_port(), queue.Queue(), wire.encode(OVER)
    own = keys.PartyIdentity.of(place / "coordinator" / "keys", "coordinator")
    north = keys.PartyIdentity.of(place / "north" / "keys", "north").context(server=False)
    with ThreadPoolExecutor(2) as pool:
        making = pool.submit(gathered, ["north"], "127.0.0.1", port, own, 20.0, lines.put)
        assert "listening" in lines.get(timeout=20)
        with connect(f"wss://127.0.0.1:{port}", ssl=north) as socket:
            socket.send(wire.encode(Hello("north")))
            with closing(making.result()) as hub:
                parting = pool.submit(hub.part, {"north": frame}, 10.0)
                assert socket.recv(timeout=20) == frame
                socket.send(frame)
                assert parting.result() == {"north": frame}
    assert "here" in lines.get(timeout=20)


class Lost(Mortal):
    """Nobody comes back."""

    def again(self, name):
        raise refused("away", f"agent '{name}' did not come back")


@pytest.mark.parametrize(
    ("dies", "logged", "goes_on"),
    [((3, 0), True, True), ((3, 0), False, False), ((1, 0), True, False)],
)
def test_a_coordinator_says_that_a_run_goes_on_where_one_has_begun_and_is_kept(
    tmp_path, dies, logged, goes_on
):
    plan = planned()
    hub = Lost(policies_of(plan, tmp_path), {"end1": (dies, "before")})
    path = tmp_path / "run.dpx" if logged else None
    with pytest.raises(dp.RefusedError) as refusal:
        run(plan, hub, path)
    assert refusal.value.code == "away" and "did not come back" in str(refusal.value)
    assert ("again to resume" in str(refusal.value)) == goes_on
