"""What an owner refuses, each by its code, before anything is charged."""

import random
import re
from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp
from dpcvx.owners import wire
from dpcvx.owners.agreement import agree
from dpcvx.owners.loopback import policies_of
from dpcvx.owners.messages import Hello, Refusal
from dpcvx.owners.offers import offers_of
from dpcvx.owners.refusal import REASONS
from dpcvx.owners.session import Session
from dpcvx.privacy.ledger_file import Journal
from dpcvx.verify.instances import laboratories, sensors
from tests.instances import household_tariff, power_line, whole
from tests.owners.settings import BUDGET, METHODS, answer, charges, offered, planned, resealed
from tests.owners.tampered import flipped


@pytest.fixture
def setting(tmp_path):
    return offered(planned(), tmp_path)


def with_spec(offer, **changes):
    spec = replace(offer.program.form.private[0], **changes)
    return resealed(offer, form=replace(offer.program.form, private=(spec,)))


def with_noise(offer, **changes):
    return replace(offer, noise=replace(offer.noise, **changes))


CLAIMED = dp.LinearizedADMM(penalty=2.0, perturb="output", output_sensitivity=1.0)
OFFERS = {
    "half the noise": ("budget", lambda o: with_noise(o, multiplier=o.noise.multiplier / 2)),
    "no noise": ("budget", lambda o: replace(o, noise=None)),
    "more rounds": ("budget", lambda o: replace(o, rounds=2 * o.rounds)),
    "a narrower adjacency": ("adjacency", lambda o: with_spec(o, adjacency=dp.Within(0.005))),
    "another adjacency": ("adjacency", lambda o: with_spec(o, adjacency=dp.Rows(0.01))),
    "a sign": ("data", lambda o: with_spec(o, sign="nonneg")),
    "another shape": ("data", lambda o: with_spec(o, shape=(5,))),
    "data of another name": ("data", lambda o: with_spec(o, name="salaries")),
    "an asserted sensitivity": (
        "asserted", lambda o: resealed(o, asserted=dp.Asserted(1e-9)),
    ),
    "a claimed sensitivity": ("asserted", lambda o: replace(o, algorithm=CLAIMED)),
    "another version of a method": ("version", lambda o: replace(o, revision=2)),
    "a hidden result": ("method", lambda o: replace(o, observer="last iterate")),
    "another agent": ("name", lambda o: replace(o, agent="end1")),
    "another agent's program": ("name", lambda o: resealed(o, name="end1")),
    "a digest of another program": (
        "altered", lambda o: replace(o, parts=(("end0", "0" * 64), *o.parts[1:])),
    ),
    "an agent twice": ("malformed", lambda o: replace(o, parts=o.parts[:1] * 2)),
    "noise without end": ("malformed", lambda o: with_noise(o, multiplier=np.inf)),
    "noise that counts less": ("malformed", lambda o: with_noise(o, weights=(1.0, 100.0))),
    "free releases": ("malformed", lambda o: with_noise(o, free=3)),
    "noise charged as a whole": ("method", lambda o: with_noise(o, level=1.0)),
    "no rounds": ("malformed", lambda o: replace(o, rounds=0)),
    "a program that is none": ("malformed", lambda o: resealed(o, start=o.program.start[:-1])),
    "a statistic that does not leave": (
        "malformed", lambda o: replace(o, once=offers_of(planned(release="once"), "r")[0].once),
    ),
}  # fmt: skip
POLICIES = {
    "a smaller budget": ("budget", {"epsilon": 0.5}),
    "a smaller delta": ("budget", {"delta": 1e-12}),
    "a larger group": ("budget", {"share": 2}),
    "other methods": ("method", {"methods": ("ADMM",)}),
    "partners": ("partners", {"partners": 2}),
    "another name": ("name", {"agent": "elsewhere"}),
    "its own model": ("model", {"program": "0" * 64}),
}


@pytest.mark.parametrize("name", OFFERS)
def test_offers_that_an_owner_refuses(setting, name):
    offer, policy = setting
    code, change = OFFERS[name]
    agree(offer, policy)
    with pytest.raises(dp.RefusedError) as refusal:
        agree(change(offer), policy)
    assert refusal.value.code == code
    assert answer(Session(policy), change(offer)).code == code
    assert charges(policy) == (0, 0)


@pytest.mark.parametrize("name", POLICIES)
def test_terms_on_which_an_owner_refuses(setting, name):
    offer, policy = setting
    code, change = POLICIES[name]
    with pytest.raises(dp.RefusedError) as refusal:
        agree(offer, replace(policy, **change))
    assert refusal.value.code == code


def test_flipped_bits_are_refused_and_charge_nothing(setting):
    offer, policy = setting
    frame, coins = wire.encode(offer), random.Random(3)
    session = Session(policy)
    for _ in range(300):
        said = wire.decode(session.handle(flipped(frame, coins)))
        assert isinstance(said, Refusal) and said.code in ("altered", "unreadable", "version")
        if said.code == "version":  # whoever speaks another one has ended the conversation
            session = Session(policy)
    assert charges(policy) == (0, 0)
    assert not isinstance(answer(session, offer), Refusal)
    session.close()


def test_a_ledger_that_is_spent_takes_part_no_more(tmp_path):
    plan = planned()
    result = plan.run(executor=dp.loopback(plan, folder=tmp_path), verbose=False)
    assert result.rounds == 4
    offer, policy = offered(plan, tmp_path, "another run")
    assert answer(Session(policy), offer).code == "spent"
    with pytest.raises(
        dp.RefusedError, match=r"^Agents 'end0' and 'end1' each take no part \(spent\): the owner's"
    ):
        plan.run(executor=dp.loopback(plan, folder=tmp_path), verbose=False)


def test_all_that_take_no_part_are_named_with_their_reasons(tmp_path):
    plan = planned()
    plan.run(executor=dp.loopback(plan, folder=tmp_path), verbose=False)
    offered(plan, tmp_path)[1].ledger.write_text("no ledger")  # of the first
    with pytest.raises(dp.RefusedError) as caught:
        plan.run(executor=dp.loopback(plan, folder=tmp_path), verbose=False)
    assert caught.value.code == "ledger"
    assert str(caught.value).startswith(
        "Agent 'end0' takes no part (ledger): the owner's ledger cannot be used. Agent 'end1' "
        "takes no part (spent): the owner's ledger leaves no room for the run. Nothing was repeated"
    )


def test_a_ledger_in_use_is_said_to_be_that(setting):
    offer, policy = setting
    with Journal(policy.ledger):
        assert answer(Session(policy), offer).code == "ledger"


def test_a_person_can_say_no(setting):
    offer, policy = setting
    shown = []

    def no(agreement):
        shown.append(str(agreement))
        return False

    assert answer(Session(policy, no), offer).code == "declined"
    assert charges(policy) == (0, 0)
    assert "costs      epsilon 1 of 1 at delta 1e-6\n" in shown[0]
    assert "load0, 4: one entry changes by at most 0.01" in shown[0]
    assert all(len(line) <= 88 for line in shown[0].splitlines())


def test_offers_say_against_whom_their_noise_protects(setting):
    offer, policy = setting
    assert str(agree(offer, policy)).endswith("the coordinator and all others together")
    shared, own = offered(planned(whole(sensors), METHODS["in shares"]), policy.ledger.parent)
    said = str(agree(shared, replace(own, colluders=1)))
    count = shared.noise.split.colluders
    assert said.endswith(f"the coordinator and any {count} other{'s' * (count > 1)} together")


def prices():
    """Private weights of squares in a set without end: nothing bounds all gradients together."""
    x, y = cp.Variable(3, name="x"), cp.Variable(name="y")
    d = dp.Private(np.ones(3), name="prices", adjacency=dp.Within(0.1), nonneg=True)
    e = dp.Private(np.ones(3), name="wishes", adjacency=dp.Within(0.1, norm=2))
    a = dp.Agent(cp.Minimize(d @ cp.square(x)), name="a")
    b = dp.Agent(cp.Minimize(cp.sum_squares(x - e) + cp.square(y)), [y >= 1], name="b")
    return dp.Problem([a, b], start={x: np.full(3, 0.5)})


def records():
    """Squares of records that nothing clips, in a set without end."""
    x = cp.Variable(3, name="x")
    X = dp.Private(np.full((4, 3), 0.1), name="X", adjacency=dp.Rows(1.0))
    a = dp.Agent(cp.Minimize(cp.sum_squares(X @ x - 1)), name="a", clip=np.inf)
    return dp.Problem([a, dp.Agent(cp.Minimize(cp.sum_squares(x - 1)), name="b")])


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
@pytest.mark.parametrize(
    "build, release", [(prices, "each step"), (prices, "once"), (records, "each step")]
)
def test_owners_are_shown_the_bound_that_is_charged(build, release, mechanism, tmp_path):
    arguments = {"rounds": 2, "release": release, "mechanism": mechanism, **BUDGET}
    plan = build().plan(dp.LinearizedADMM(), **arguments)
    pairs = zip(offers_of(plan, "r"), policies_of(plan, tmp_path), strict=True)
    agreed = [agree(*pair) for pair in pairs]
    result = plan.run(executor=dp.loopback(plan, folder=tmp_path), verbose=False)
    for one in agreed:
        said = str(one)
        assert "inf" not in said
        if not one.agent.program.form.private:
            assert "nothing that leaves depends on private data" in said
            continue
        charged = next(iter(result.ledger[one.agent.name].entries)).sensitivity
        shown = float(re.search(r"by at most (\S+) in l", said)[1])
        assert shown == pytest.approx(charged, rel=1e-4)  # rounding is charged, and not shown
    assert "inf " not in str(plan)


def test_data_that_do_not_fit_are_said_to_be_that(tmp_path):
    offer, policy = offered(planned(), tmp_path)
    held = policy.data["load0"]
    for bad in (np.ones(5), np.full(4, np.nan), None):
        source = replace(held, source=type(held.source)(bad))
        session = Session(replace(policy, data={"load0": source}))
        assert answer(session, offer).code == "data"
        assert charges(policy) == (0, 0)


def test_what_is_no_offer_is_out_of_order(setting):
    _, policy = setting
    assert answer(Session(policy), Hello("end0")).code == "order"


def test_noise_that_is_split_needs_the_owners_word(tmp_path):
    sharing = dp.SecretSharing(limit=50.0)
    method = dp.SummedGradient(step=0.1, sharing=sharing)
    offer, policy = offered(planned(whole(sensors), method), tmp_path)
    agree(offer, policy)
    for colluders in (None, 2):
        with pytest.raises(dp.RefusedError) as refusal:
            agree(offer, replace(policy, colluders=colluders))
        assert refusal.value.code == "colluders"
    # The noise would be fewer parties' than it is said to be.
    split = replace(offer.noise.split, parties=10)
    with pytest.raises(dp.RefusedError) as refusal:
        agree(replace(offer, noise=replace(offer.noise, split=split)), policy)
    assert refusal.value.code == "malformed"


def test_the_sensitivity_is_the_owners_own(setting):
    offer, policy = setting
    agreed = agree(offer, policy)
    assert agreed.agent.bound == planned().agents[0].bound
    assert agreed.epsilon == pytest.approx(1.0, rel=1e-9)


@pytest.mark.parametrize(
    ("method", "build", "why"),
    [
        (dp.GradientADMM(), household_tariff, "choose the map"),
        (dp.GradientTracking("complete"), whole(laboratories), "points that nobody sees"),
        (dp.DecentralizedADMM("complete"), power_line, "secret numbers"),
        (CLAIMED, power_line, "no owner can check"),
    ],
)
def test_methods_that_cannot_be_run_between_owners_say_why(method, build, why):
    with pytest.raises(dp.ModelError, match=why):
        offers_of(planned(build, method), "run")


def test_plans_that_owners_would_refuse_are_refused_by_the_coordinator():
    hidden = planned(household_tariff, dp.GradientADMM(), observer="last iterate")
    with pytest.raises(dp.ModelError, match="sees every message"):
        offers_of(hidden, "run")
    with pytest.raises(dp.ModelError, match="no noise for agent 'end0'"):
        offers_of(planned(mechanism=None, epsilon=None, delta=None), "run")


def test_every_code_has_its_reason():
    for code, said in REASONS.items():
        assert code.islower() and said[0].isupper() and not said.endswith(".")


def test_a_refusal_shows_both_changes_and_says_so_once(setting):
    offer, policy = setting
    session = Session(policy)
    answer(session, with_spec(offer, adjacency=dp.Within(0.005)))
    said = str(session.refusal)
    assert said.count("protects other changes") == 1
    assert "the offer says 'one entry changes by at most 0.005', the policy 'one entry" in said
