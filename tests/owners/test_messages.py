"""Every code that crosses between owners is said where it should be, and none is without a test."""

import ast
from dataclasses import replace
from pathlib import Path

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

import dpcvx as dp
from dpcvx import owners
from dpcvx.algorithms.consensus import Broadcast
from dpcvx.model.atoms.entrywise import ABS
from dpcvx.model.canonical import Cones
from dpcvx.model.normal_form import Atom, Combination
from dpcvx.model.sealed import Sealed
from dpcvx.owners import wire
from dpcvx.owners.files import OwnerFiles
from dpcvx.owners.keys import PartyIdentity, make_authority, make_request, sign_request
from dpcvx.owners.link import dial
from dpcvx.owners.messages import REASONS, Call, Partners, Refusal
from dpcvx.owners.session import Session
from dpcvx.privacy.ledger_file import Journal
from dpcvx.testing.instances import sensors
from tests.instances import whole
from tests.owners.federation import free_port
from tests.owners.settings import METHODS, answer, charges, offered, planned, resealed

SAY = ("refused", "Refusal", "RefusedError")


def unbounded():
    """Squares of records, whose gradients only a set bounds."""
    w = cp.Variable(2, name="w")
    X = dp.Private(np.ones((4, 2)) / 2, name="X", adjacency=dp.Rows(1.0))
    one = dp.Agent(cp.Minimize(cp.sum_squares(X @ w - 1)), [cp.abs(w) <= 1], name="one")
    others = [dp.Agent(cp.Minimize(cp.sum_squares(w)), name=name) for name in ("two", "three")]
    return dp.Problem([one, *others])


def said(policy, offer, **settings):
    """The code that an offer is refused by."""
    session = Session(policy, **settings)
    found = answer(session, offer).code
    session.close()
    return found


def with_own(offer, **changes):
    spec = replace(offer.program.form.private[0], **changes)
    return resealed(offer, form=replace(offer.program.form, private=(spec,)))


def unreadable(offer, policy):
    return wire.decode(Session(policy).handle(b"GET / HTTP/1.1")).code


def version(offer, policy):
    return wire.decode(Session(policy).handle(b"dpx0" + wire.encode(offer)[4:])).code


def altered(offer, policy):
    return wire.decode(Session(policy).handle(wire.encode(offer)[:-1])).code


def large(offer, policy):
    atom = Atom(ABS, (), (Combination((1,), None, (), np.zeros(1), ()),), (10**9,))
    form = replace(offer.program.form, atoms=(*offer.program.form.atoms, atom))
    return said(policy, resealed(offer, form=form))


def malformed(offer, policy):
    return said(policy, replace(offer, rounds=0))


def name(offer, policy):
    return said(policy, replace(offer, agent="end1"))


def method(offer, policy):
    return said(replace(policy, methods=("ADMM",)), offer)


def asserted(offer, policy):
    return said(policy, resealed(offer, asserted=dp.Asserted(1e-9)))


def data(offer, policy):
    return said(policy, with_own(offer, name="salaries"))


def adjacency(offer, policy):
    return said(policy, with_own(offer, adjacency=dp.Within(0.005)))


def model(offer, policy):
    return said(replace(policy, program="0" * 64), offer)


def partners(offer, policy):
    return said(replace(policy, partners=2), offer)


def colluders(offer, policy):
    shared, own = offered(planned(whole(sensors), METHODS["in shares"]), policy.ledger.parent)
    return said(replace(own, max_colluders=None), shared)


def documents(offer, policy):
    shared, own = offered(planned(whole(sensors), METHODS["in shares"]), policy.ledger.parent)
    *lines, last = shared.lines
    return said(
        replace(own, max_colluders=1), replace(shared, lines=(*lines, replace(last, split=None)))
    )


def sensitivity(offer, policy):
    # Squares of records without a set have a bound at each point only; noise in shares needs one
    # for all of them.
    plan = unbounded().plan(
        METHODS["in shares"], rounds=2, release="each_step", epsilon=1.0, delta=1e-6
    )
    wide, own = offered(plan, policy.ledger.parent)
    known = wide.program.constraints
    free = replace(known, A=sp.csc_array(known.A[:0]), b=known.b[:0], cones=Cones())
    return said(replace(own, max_colluders=1), resealed(wide, constraints=free))


def budget(offer, policy):
    return said(replace(policy, epsilon=0.5), offer)


def spent(offer, policy):
    plan = planned()
    plan.run(executor=dp.LoopbackOwners(plan, folder=policy.ledger.parent), verbose=False)
    return said(policy, offer)


def ledger(offer, policy):
    with Journal(policy.ledger):
        return said(policy, offer)


def order(offer, policy):
    return said(policy, Partners(offer.run, ()))


def nonsense(offer, policy):
    session = Session(policy, seed=1)
    answer(session, offer)
    found = answer(session, Call(offer.run, 1, 0, Broadcast(np.full(2, np.nan), 2.0))).code
    session.close()
    return found


def declined(offer, policy):
    return said(policy, offer, consent=lambda _: False)


def failed(offer, policy):
    def fails(_):
        raise RuntimeError

    return said(policy, offer, consent=fails)


def changed(offer, policy):
    shared, own = offered(planned(whole(sensors), METHODS["in shares"]), policy.ledger.parent)
    session = Session(replace(own, max_colluders=1), seed=1)
    key = answer(session, shared).key
    names = [name for name, _ in shared.parts]
    keys = [replace(key, agent=n, public=f"{k:02x}" * 32) for k, n in enumerate(names, 9)]
    keys[0] = key
    answer(session, Partners(shared.run, tuple(keys)))
    keys[1] = replace(keys[1], public="77" * 32)
    found = answer(session, Partners(shared.run, tuple(keys))).code
    session.close()
    return found


def stranger(offer, policy):
    shared, own = offered(planned(whole(sensors), METHODS["in shares"]), policy.ledger.parent)
    session = Session(replace(own, max_colluders=1), seed=1)
    key = answer(session, shared).key
    keys = tuple(replace(key, agent=n) for n, _ in shared.parts)
    found = answer(session, Partners(shared.run, keys)).code
    session.close()
    return found


def ended(offer, policy):
    session = Session(policy, seed=1)
    answer(session, offer)
    found = answer(session, Refusal("budget")).code
    assert session.over and "(its reason: budget)" in str(session.refusal)
    return found


def unfit(offer, policy):
    ((name, held),) = policy.data.items()
    broken = replace(held, source=Sealed(lambda: np.full(held.spec.shape, np.nan)))
    return said(replace(policy, data={name: broken}), offer)


def storage(offer, policy):
    OwnerFiles(policy.ledger).path("offer.dpx.new").mkdir()
    return said(policy, offer)


def taken(offer, policy):
    with OwnerFiles(policy.ledger).alone():
        with pytest.raises(dp.RefusedError, match="uses the ledger") as refusal:
            with OwnerFiles(policy.ledger).alone():
                pass
    return refusal.value.code


def certificate(offer, policy):
    place = policy.ledger.parent
    make_authority(place)
    sign_request(place, make_request(place, "end0"))
    one = PartyIdentity.of(place, "end0")
    make_request(place, "end1")
    sign_request(place, place / "end1.csr", days=0)
    over = PartyIdentity(place, "end1", (place / "end1.crt").read_text())
    with pytest.raises(dp.RefusedError) as refusal:
        one.verify("end1", over.certificate, b"said", over.signed(b"said"))
    return refusal.value.code


def away(offer, policy):
    place = policy.ledger.parent / "keys"
    make_authority(place)
    sign_request(place, make_request(place, "end0"))
    with pytest.raises(dp.RefusedError) as refusal:
        dial(
            f"wss://127.0.0.1:{free_port()}", PartyIdentity.of(place, "end0"), "", bytes, bytes,
            lambda: False, timeout=0.0, tell=lambda _: None,
        )  # fmt: skip
    return refusal.value.code


PROVOKED = (
    unreadable, version, large, altered, malformed, name, method, asserted, data, adjacency, model,
    partners, documents, colluders, sensitivity, budget, spent, ledger, order, nonsense, away,
    declined, changed, ended, stranger, failed, unfit, storage, taken, certificate,
)  # fmt: skip


@pytest.mark.parametrize("provoke", PROVOKED, ids=lambda one: one.__name__)
def test_a_code_is_said_where_it_should_be(provoke, tmp_path):
    offer, policy = offered(planned(), tmp_path)
    assert provoke(offer, policy) == provoke.__name__
    if provoke is not spent:
        assert charges(policy) == (0, 0)


def test_no_code_is_without_a_test():
    assert {provoke.__name__ for provoke in PROVOKED} == set(REASONS)


def test_no_other_code_is_written_anywhere():
    written = set()
    for path in Path(owners.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in SAY and node.args:
                parts = ast.walk(node.args[0])
                written |= {part.value for part in parts if isinstance(part, ast.Constant)}
    assert written <= set(REASONS)
    assert len(written) >= 15  # the search finds them
