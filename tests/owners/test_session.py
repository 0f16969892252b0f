"""One owner's turns: nonsense costs nothing, and the same call again has the same bytes."""

import re
from dataclasses import replace
from types import SimpleNamespace

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp
from dpcvx.algorithms.consensus import Broadcast
from dpcvx.algorithms.on_networks import Inbox
from dpcvx.algorithms.summed import Heard
from dpcvx.owners import wire
from dpcvx.owners.agreement import against_ledger, agree
from dpcvx.owners.messages import (
    AgentReply,
    Agreed,
    Ask,
    Call,
    End,
    FinalAccount,
    IterateAnswer,
    Refusal,
)
from dpcvx.owners.session import Session
from tests.owners.settings import answer, asking, charges, offered, planned

W = np.zeros(2)
NONSENSE = {
    "nan": Broadcast(np.array([np.nan, 0.0]), 2.0),
    "infinite": Broadcast(np.array([np.inf, 0.0]), 2.0),
    "huge": Broadcast(np.array([1e300, 0.0]), 2.0),
    "too long": Broadcast(np.zeros(3), 2.0),
    "no penalty": Broadcast(W, 0.0),
    "a negative penalty": Broadcast(W, -1.0),
    "a penalty that is none": Broadcast(W, np.nan),
    "nothing": None,
    "a number": 3.0,
    "another method's": Inbox(0, (1,), np.zeros((1, 2)), np.ones(2)),
    "a sum": (None, Heard(W, 2)),
}


@pytest.fixture
def begun(tmp_path):
    offer, policy = offered(planned(), tmp_path)
    session = Session(policy, seed=1)
    assert isinstance(answer(session, offer), Agreed)
    yield session, policy, offer
    session.close()


def call(t, k=0, message=None, run="a run"):
    return Call(run, t, k, Broadcast(W, 2.0) if message is None else message)


@pytest.mark.parametrize("name", NONSENSE)
def test_nonsense_charges_nothing_and_the_run_goes_on(begun, name):
    session, policy, _ = begun
    said = answer(session, Call("a run", 1, 0, NONSENSE[name]))
    assert isinstance(said, Refusal) and said.code == "nonsense"
    assert charges(policy) == (0, 0)
    assert isinstance(answer(session, call(1)), AgentReply)
    assert charges(policy) == (1, 1)


def test_calls_out_of_order_are_refused(begun):
    session, policy, _ = begun
    answer(session, call(2))
    before = charges(policy)
    for bad in (call(1), call(0), call(5), call(3, 1), call(3, -1), call(3, run="other")):
        assert answer(session, bad).code == "order"
    assert charges(policy) == before


def test_the_same_call_has_the_same_bytes(begun):
    session, policy, offer = begun
    first = session.handle(wire.encode(call(1)))
    # Whatever is asked with it: the place is what counts.
    again = session.handle(wire.encode(call(1, message=Broadcast(np.ones(2), 5.0))))
    assert first == again and charges(policy) == (1, 1)
    agreed = answer(session, offer)
    assert (agreed.place, charges(policy)) == ((1, 0), (1, 1))


def test_an_owner_that_was_ended_gives_the_same_bytes_and_pays_once(begun, tmp_path):
    session, policy, offer = begun
    first = [session.handle(wire.encode(call(t))) for t in (1, 2)]
    session.close()
    back = Session(policy, seed=1)
    assert answer(back, offer).place == (0, -1)
    assert [back.handle(wire.encode(call(t))) for t in (1, 2)] == first
    assert charges(policy) == (2, 2)
    back.close()


def test_without_a_seed_what_left_is_given_out_again(tmp_path):
    offer, policy = offered(planned(), tmp_path)
    replies = []
    for _ in range(2):
        session = Session(policy)
        answer(session, offer)
        replies.append([session.handle(wire.encode(call(t))) for t in (1, 2)])
        session.close()
    assert replies[0] == replies[1] and charges(policy) == (2, 2)


def test_an_older_copy_of_the_ledger_is_refused_before_anything_leaves(tmp_path):
    """Its rounds would leave a second time, with other noise, and be charged once."""
    offer, policy = offered(planned(), tmp_path)
    session, copies = Session(policy), [b""]
    answer(session, offer)
    for t in (1, 2, 3):
        copies.append(policy.ledger.read_bytes())
        assert isinstance(answer(session, call(t)), AgentReply)
    newest = policy.ledger.read_bytes()
    session.close()
    for copy in copies[1:]:
        policy.ledger.write_bytes(copy)
        session = Session(policy)
        said = answer(session, offer)
        assert isinstance(said, Refusal) and said.code == "ledger"
        log = policy.ledger.with_name(f"{policy.ledger.name}.log")
        assert "an older copy was put back" in log.read_text()
        assert policy.ledger.read_bytes() == copy
    policy.ledger.unlink()
    assert answer(Session(policy), offer).code == "ledger"
    policy.ledger.write_bytes(newest)
    session = Session(policy)
    assert isinstance(answer(session, offer), Agreed)
    assert isinstance(answer(session, call(1)), AgentReply)
    session.close()


def test_an_older_copy_after_the_end_is_refused(begun):
    session, policy, offer = begun
    for t in range(1, 5):
        before = policy.ledger.read_bytes()
        answer(session, call(t))
    assert isinstance(answer(session, End("a run", "completed", 4)), FinalAccount)
    policy.ledger.write_bytes(before)
    assert answer(Session(policy, seed=1), offer).code == "ledger"


def test_an_offer_that_differs_in_one_number_is_another_run(begun):
    # Charges of the one may not pay for values of the other.
    session, policy, offer = begun
    answer(session, call(1))
    session.close()
    other = asking(offer, multiplier=2 * offer.request.multiplier)
    back = Session(policy, seed=1)
    answer(back, other)
    answer(back, call(1))
    assert charges(policy) == (2, 2)
    back.close()


def test_local_variables_stay(begun):
    session, _, offer = begun
    for t in (1, 2, 3, 4):
        answer(session, call(t))
    shared = offer.program.shared.size
    told = answer(session, Ask("a run"))
    assert isinstance(told, IterateAnswer) and told.answer.last.shape == (shared,)
    account = answer(session, End("a run", "completed", 4))
    assert isinstance(account, FinalAccount) and account.answer.last.shape == (shared,)
    assert len(account.entries) == 4
    own = session.result
    assert own.last["gen0"].shape == (3,) and np.isfinite(own.last["gen0"]).all()
    assert repr(own) == "OwnResult(status='completed', rounds=4)"
    # Asked again, the end is the same.
    assert isinstance(answer(session, End("a run", "completed", 4)), FinalAccount)


def test_failures_leave_as_a_code_and_are_written_down_here(begun, monkeypatch):
    session, policy, offer = begun
    secret = "quoted 31415.92653"

    def fails(*_):
        raise RuntimeError(secret)

    monkeypatch.setattr(session._worker, "act", fails)
    frame = session.handle(wire.encode(call(1)))
    assert wire.decode(frame).code == "failed" and secret.encode() not in frame
    log = policy.ledger.with_name(policy.ledger.name + ".log")
    assert secret in log.read_text() and log.stat().st_mode & 0o077 == 0
    assert answer(session, offer).code == "failed"  # this conversation is over
    back = Session(policy, seed=1)
    assert isinstance(answer(back, offer), Agreed)
    back.close()


def test_after_the_end_only_that_is_said(begun):
    session, policy, offer = begun
    answer(session, call(1))
    assert answer(session, Refusal("budget")).code == "ended"
    for more in (offer, call(2), Ask("a run"), End("a run", "stopped", 1), Refusal("away")):
        said = answer(session, more)
        assert isinstance(said, Refusal) and said.code == "ended"
    assert charges(policy) == (1, 1) and "(its reason: budget)" in str(session.refusal)


def test_who_said_no_is_not_asked_again(tmp_path):
    offer, policy = offered(planned(), tmp_path)
    asked = []
    session = Session(policy, lambda agreed: bool(asked.append(agreed)))
    assert [answer(session, offer).code for _ in range(2)] == ["declined"] * 2
    assert len(asked) == 1 and asked[0].spent == 0 and "spent already" not in str(asked[0])


def test_the_ledger_is_read_before_anybody_is_asked(tmp_path):
    plan, asked = planned(), []
    plan.run(executor=dp.LoopbackOwners(plan, folder=tmp_path), verbose=False)
    offer, policy = offered(plan, tmp_path, "another run")
    before = policy.ledger.read_bytes()

    def ask(agreed):
        asked.append(agreed)
        return False

    refusing = Session(policy, ask)
    assert answer(refusing, offer).code == "spent" and not asked
    # In an owner's words: the plan is not its own.
    said = str(refusing.refusal)
    assert re.search(r"\(of epsilon 1 at delta 1e-6, \S+ is spent, .* in owner\.toml\)\.$", said)
    assert "plan(" not in said and len(said) < 250
    assert answer(Session(replace(policy, epsilon=3.0), ask), offer).code == "declined"
    (agreed,) = asked
    assert agreed.spent == pytest.approx(agreed.epsilon, rel=1e-3)
    assert f"of 3, of which {agreed.spent:.6g} is spent already, at delta" in str(agreed)
    assert policy.ledger.read_bytes() == before


def test_what_is_spent_while_a_person_decides_is_not_passed_over(tmp_path):
    offer, policy = offered(planned(), tmp_path)
    other, _ = offered(planned(rounds=1, epsilon=0.1), tmp_path, "another run")
    shown = []

    def slowly(agreement):
        shown.append(agreement.spent)
        if len(shown) == 1:
            meanwhile = Session(policy)
            answer(meanwhile, other)
            assert isinstance(answer(meanwhile, call(1, run="another run")), AgentReply)
            meanwhile.close()
        return True

    policy = replace(policy, epsilon=2.0)
    assert answer(Session(policy, slowly), offer).code == "ledger"
    session = Session(policy, slowly)
    assert isinstance(answer(session, offer), Agreed)
    assert shown == [0.0, pytest.approx(0.1, rel=1e-6)]
    session.close()


def test_who_agreed_to_a_run_that_goes_on_is_not_asked_again(tmp_path):
    offer, policy = offered(planned(), tmp_path)
    asked = []

    def joined():
        return Session(policy, lambda agreed: asked.append(agreed) or True, seed=1)

    session = joined()  # killed once it was asked, before anything began
    session._ask(against_ledger(agree(offer, policy), True), wire.encode(offer))
    session = joined()
    assert isinstance(answer(session, offer), Agreed) and len(asked) == 2
    answer(session, call(1))
    session.close()
    back = joined()
    assert isinstance(answer(back, offer), Agreed) and len(asked) == 2
    back.close()
    other = replace(offer, run="another run")
    again = joined()
    assert isinstance(answer(again, other), Agreed) and len(asked) == 3 and asked[2].open
    assert "this run is open in the ledger: it goes on" in " ".join(str(asked[2]).split())
    again.close()


def test_a_run_that_goes_on_is_not_counted_twice(begun):
    session, policy, offer = begun
    answer(session, call(1))
    session.close()
    asked = []
    back = Session(policy, lambda agreed: asked.append(agreed) or True, seed=1)
    assert isinstance(answer(back, offer), Agreed) and asked[0].spent == 0
    back.close()


@pytest.mark.parametrize("word", ["nonneg", "nonpos", "PSD"])
def test_what_is_declared_otherwise_is_named_with_the_line_to_write(tmp_path, word):
    square = word == "PSD"
    shape, said = ((2, 2) if square else (2,)), {word: True}
    x = cp.Variable(shape)

    def plan(**attributes):
        M = dp.Private(np.zeros(shape), name="M", adjacency=dp.Within(0.1, norm=2), **attributes)
        cost = cp.sum_squares(x - M)
        agents = [dp.Agent(cp.Minimize(cost), [cp.abs(x) <= 1], name="one")]
        agents.append(dp.Agent(cp.Minimize(cp.sum_squares(x)), name="two"))
        return planned(lambda: SimpleNamespace(problem=dp.Problem(agents)))

    # A symmetric matrix has one triangle, which its adjacency says: it is so on both sides.
    plain = plan(symmetric=True) if square else plan()
    (without, lacks), (offer, has) = offered(plain, tmp_path), offered(plan(**said), tmp_path)
    for document, policy, words in (
        (offer, lacks, f"write {word} = true under"),
        (without, has, f"leave {word} = true out of"),
    ):
        session = Session(policy)
        assert answer(session, document).code == "data"
        assert f'{words} [data."M"] in owner.toml' in str(session.refusal)


def test_a_shape_is_said_with_all_its_brackets(tmp_path):
    offer, policy = offered(planned(), tmp_path)
    (held,) = policy.data.values()
    spec = replace(held.spec, shape=(6, 2))
    session = Session(replace(policy, data={spec.name: replace(held, spec=spec)}))
    assert answer(session, offer).code == "data"
    assert str(session.refusal).endswith(
        f"('{spec.name}' has the shape (6, 2) in the policy, and another in the offer)."
    )
