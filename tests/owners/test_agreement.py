"""What an owner refuses, each by its code, before anything is charged."""

import random
import re
from dataclasses import fields, replace

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

import dpcvx as dp
from dpcvx._words import number
from dpcvx.owners import wire
from dpcvx.owners.agreement import agree
from dpcvx.owners.loopback import policies_of
from dpcvx.owners.messages import REASONS, Hello, Refusal
from dpcvx.owners.offers import document_of, offers_of
from dpcvx.owners.session import Session
from dpcvx.privacy.ledger_file import Journal
from dpcvx.privacy.split_noise import SplitNoise
from dpcvx.sensitivity.estimates import JamesStein
from dpcvx.testing.instances import laboratories, sensors
from tests.instances import household_tariff, power_line, whole
from tests.owners.settings import (
    BUDGET,
    METHODS,
    answer,
    asking,
    charges,
    offered,
    planned,
    resealed,
)
from tests.owners.tampered import flipped


@pytest.fixture
def setting(tmp_path):
    return offered(planned(), tmp_path)


def with_spec(offer, **changes):
    spec = replace(offer.program.form.private[0], **changes)
    return resealed(offer, form=replace(offer.program.form, private=(spec,)))


def without_noise(offer):
    return replace(asking(offer, multiplier=None), mechanism=None)


CLAIMED = dp.LinearizedADMM(penalty=2.0, perturb="output", output_sensitivity=1.0)
OFFERS = {
    "half the noise": ("budget", lambda o: asking(o, multiplier=o.request.multiplier / 2)),
    "no noise": ("budget", without_noise),
    "no multiplier": ("budget", lambda o: asking(o, multiplier=None)),
    "no mechanism": ("budget", lambda o: replace(o, mechanism=None)),
    "noise of another level": (
        "malformed", lambda o: replace(o, mechanism=dp.Gaussian(noise_multiplier=1e3)),
    ),
    "noise without a guarantee": ("sensitivity", lambda o: replace(o, delta=0.0)),
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
    "a hidden result": ("method", lambda o: replace(o, observer="last_iterate")),
    "another agent": ("name", lambda o: replace(o, agent="end1")),
    "another agent's program": ("name", lambda o: resealed(o, name="end1")),
    "a digest of another program": (
        "altered", lambda o: replace(o, parts=(("end0", "0" * 64), *o.parts[1:])),
    ),
    "an agent twice": ("malformed", lambda o: replace(o, parts=o.parts[:1] * 2)),
    "noise without end": ("malformed", lambda o: asking(o, multiplier=np.inf)),
    "less than no noise": ("malformed", lambda o: asking(o, multiplier=-1.0)),
    "noise for a sum that is none": (
        "malformed", lambda o: replace(o, split=SplitNoise(3, 1, 2.0**-20, 1.0)),
    ),
    "no rounds": ("malformed", lambda o: replace(o, rounds=0)),
    "a program that is none": ("malformed", lambda o: resealed(o, start=o.program.start[:-1])),
    "a statistic that does not leave": (
        "malformed",
        lambda o: replace(o, request=offers_of(planned(release="once"), "r")[0].request),
    ),
    "estimates of nothing": (
        "malformed",
        lambda o: asking(o, estimates=((slice(None), JamesStein(np.zeros(4), 1.0, 4.0)),)),
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
    result = plan.run(executor=dp.LoopbackOwners(plan, folder=tmp_path), verbose=False)
    assert result.rounds == 4
    offer, policy = offered(plan, tmp_path, "another run")
    assert answer(Session(policy), offer).code == "spent"
    with pytest.raises(
        dp.RefusedError, match=r"^Agents 'end0' and 'end1' each take no part \(spent\): the owner's"
    ):
        plan.run(executor=dp.LoopbackOwners(plan, folder=tmp_path), verbose=False)


def test_all_that_take_no_part_are_named_with_their_reasons(tmp_path):
    plan = planned()
    plan.run(executor=dp.LoopbackOwners(plan, folder=tmp_path), verbose=False)
    offered(plan, tmp_path)[1].ledger.write_text("no ledger")  # of the first
    with pytest.raises(dp.RefusedError) as caught:
        plan.run(executor=dp.LoopbackOwners(plan, folder=tmp_path), verbose=False)
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
    said = str(agree(shared, replace(own, max_colluders=1)))
    count = shared.split.max_colluders
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
    a = dp.Agent(cp.Minimize(cp.sum_squares(X @ x - 1)), name="a", clip_norm=np.inf)
    return dp.Problem([a, dp.Agent(cp.Minimize(cp.sum_squares(x - 1)), name="b")])


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
@pytest.mark.parametrize(
    "build, release", [(prices, "each_step"), (prices, "once"), (records, "each_step")]
)
def test_owners_are_shown_the_bound_that_is_charged(build, release, mechanism, tmp_path):
    arguments = {"rounds": 2, "release": release, "mechanism": mechanism, **BUDGET}
    plan = build().plan(dp.LinearizedADMM(), **arguments)
    pairs = zip(offers_of(plan, "r"), policies_of(plan, tmp_path), strict=True)
    agreed = [agree(*pair) for pair in pairs]
    result = plan.run(executor=dp.LoopbackOwners(plan, folder=tmp_path), verbose=False)
    for one in agreed:
        said = str(one)
        assert "inf" not in said
        if not one.agent.program.form.private:
            assert "no released value depends on private data" in said
            continue
        charged = next(iter(result.ledger[one.agent.name].entries)).sensitivity
        shown = float(re.search(r"by at most (\S+) in l", said)[1])
        # Rounding is charged, and not shown; what is shown has three digits, rounded up.
        assert charged * (1 - 1e-4) <= shown <= 1.01 * charged
    assert "inf " not in str(plan)


def test_data_that_do_not_fit_are_said_to_be_that(tmp_path):
    offer, policy = offered(planned(), tmp_path)
    held = policy.data["load0"]
    for bad in (np.ones(5), np.full(4, np.nan), None):
        source = replace(held, source=type(held.source)(bad))
        session = Session(replace(policy, data={"load0": source}))
        assert answer(session, offer).code == "unfit"
        assert charges(policy) == (0, 0)


def test_what_is_no_offer_is_out_of_order(setting):
    _, policy = setting
    assert answer(Session(policy), Hello("end0")).code == "order"


def test_noise_that_is_split_needs_the_owners_word(tmp_path):
    sharing = dp.SecretSharing(limit=50.0)
    method = dp.FederatedGradient(step=0.1, sharing=sharing)
    offer, policy = offered(planned(whole(sensors), method), tmp_path)
    agree(offer, policy)
    for colluders in (None, 2):
        with pytest.raises(dp.RefusedError) as refusal:
            agree(offer, replace(policy, max_colluders=colluders))
        assert refusal.value.code == "colluders"


SPLIT = {
    # The noise would be fewer parties' than it is said to be.
    "parties": lambda one: replace(one, split=replace(one.split, parties=10)),
    "nobody honest": lambda one: replace(one, split=replace(one.split, max_colluders=2)),
    # Sums of rounded terms on a coarser grid are no rounded sums.
    "another grid": lambda one: replace(one, split=replace(one.split, width=one.split.width / 2)),
    "no end": lambda one: replace(one, split=replace(one.split, scale=np.inf)),
    # Laplace noise does not add up to Laplace noise.
    "another kind": lambda one: replace(one, mechanism=dp.Laplace()),
    "none": lambda one: replace(one, split=None),
}


@pytest.fixture
def summed(tmp_path):
    """An offer of secret sums, and a policy that takes it."""
    offer, policy = offered(planned(whole(sensors), METHODS["in shares"]), tmp_path)
    agree(offer, policy)
    return offer, policy


@pytest.mark.parametrize("what", SPLIT)
def test_split_noise_without_a_proof_is_malformed(summed, what):
    offer, policy = summed
    lines = tuple(map(SPLIT[what], offer.lines))
    with pytest.raises(dp.RefusedError) as refusal:
        agree(replace(SPLIT[what](offer), lines=lines), replace(policy, max_colluders=1))
    assert refusal.value.code == "malformed"


def test_one_persons_data_with_two_agents_of_a_sum_are_refused(summed):
    # What the agents send moves together, so the noise would have to be twice as wide.
    offer, policy = summed
    with pytest.raises(dp.RefusedError) as refusal:
        agree(offer, replace(policy, share=2, epsilon=100.0))
    assert refusal.value.code == "method"


def test_prices_follow_from_the_noise_in_the_document(summed):
    # All lines agree, and have too little noise for the multiplier of the offer.
    offer, policy = summed
    split, bound = offer.split, agree(offer, policy).agent.bound
    needed = offer.request.multiplier * bound / split.together

    def times(factor):
        part = split.times(factor)
        lines = tuple(replace(line, split=part) for line in offer.lines)
        return replace(offer, split=part, lines=lines)

    agree(times(1.01 * needed), policy)
    with pytest.raises(dp.RefusedError, match="too little noise") as refusal:
        agree(times(0.99 * needed), policy)
    assert refusal.value.code == "documents"


def _line(offer, k, **changes):
    lines = list(offer.lines)
    lines[k] = replace(lines[k], **changes)
    return replace(offer, lines=tuple(lines))


DOCUMENTS = {
    "none": lambda o: replace(o, lines=()),
    "a participant less": lambda o: replace(o, lines=o.lines[:-1]),
    "a participant twice": lambda o: replace(o, lines=(*o.lines[:-1], o.lines[0])),
    "another order": lambda o: replace(o, lines=(o.lines[0], *o.lines[:0:-1])),
    "another program of its own": lambda o: _line(o, 0, program="0" * 64),
    "another program of the last": lambda o: _line(o, -1, program="0" * 64),
    "no noise of its own": lambda o: _line(o, 0, mechanism=None),
    "no split noise of its own": lambda o: _line(o, 0, split=None),
    "an offer without noise": without_noise,
    "another multiplier of its own": lambda o: _line(o, 0, multiplier=1e-3),
    "another statistic of its own": lambda o: _line(o, 0, once="0" * 64),
    "another group of its own": lambda o: _line(o, 0, share=2),
    "no noise of the last": lambda o: _line(o, -1, mechanism=None),
    "noise of the last that is not split": lambda o: _line(o, -1, split=None),
    "less noise of the last": lambda o: _line(o, -1, split=o.split.times(0.5)),
    "more noise of the last": lambda o: _line(o, -1, split=o.split.times(2.0)),
    "falling noise of the last": lambda o: _line(o, -1, mechanism=dp.Gaussian(decay=0.5)),
    "a group of the last": lambda o: _line(o, -1, share=2),
}


@pytest.mark.parametrize("what", DOCUMENTS)
def test_documents_that_do_not_bear_the_guarantee_are_refused(summed, what):
    offer, policy = summed
    with pytest.raises(dp.RefusedError) as refusal:
        agree(DOCUMENTS[what](offer), policy)
    assert refusal.value.code == "documents"
    assert answer(Session(policy), DOCUMENTS[what](offer)).code == "documents"
    assert charges(policy) == (0, 0)


def test_a_document_without_secret_sums_is_malformed(setting, summed):
    offer, policy = setting
    with pytest.raises(dp.RefusedError) as refusal:
        agree(replace(offer, lines=summed[0].lines), policy)
    assert refusal.value.code == "malformed"


def test_an_agent_with_the_name_of_the_coordinator_is_malformed(setting):
    # The coordinator's own certificate would stand for a participant.
    offer, policy = setting
    parts = (offer.parts[0], ("coordinator", offer.parts[1][1]))
    with pytest.raises(dp.RefusedError) as refusal:
        agree(replace(offer, parts=parts), policy)
    assert refusal.value.code == "malformed"


def test_a_document_is_the_same_for_all_and_binds_what_is():
    plan = planned(whole(sensors), METHODS["in shares"])
    offers = offers_of(plan, "a run")
    (document,) = {document_of(offer) for offer in offers}
    own = {"agent", "place", "mechanism", "share", "program", "request", "split"}
    for name in {field.name for field in fields(offers[0])} - own:
        assert document_of(replace(offers[0], **{name: "another"})) != document
    for name in own:
        assert document_of(replace(offers[0], **{name: None})) == document
    request = {"multiplier", "once"}  # the digest of the second has the estimates as well
    assert {*vars(offers[0].lines[0])} == own - {"place", "request"} | request


def test_an_owner_is_shown_the_noise_of_all_participants(summed):
    offer, policy = summed
    said = " ".join(str(agree(offer, policy)).split())
    split, count = offer.split, len(offer.lines)
    assert (
        f"each of {count} participants adds a standard deviation of {number(split.scale)}" in said
    )
    assert f"any {count - 1} of them together add {number(split.together)}" in said
    assert f"document {document_of(offer)[:8]}" in said


def test_an_owner_is_shown_the_noise_of_the_last_round_where_it_falls(summed):
    offer, policy = summed
    falling = replace(offer.mechanism, decay=0.8)
    lines = tuple(replace(line, mechanism=falling) for line in offer.lines)
    offer = replace(offer, mechanism=falling, rounds=2, lines=lines)
    agreed = agree(offer, replace(policy, epsilon=100.0))
    said = " ".join(str(agreed).split())
    first, last = offer.split, agreed.agent.noise.at(2).split
    assert f"of {number(first.scale)} to the sum of round 1, and of {number(last.scale)}" in said
    held = f"{number(first.together)} in round 1 and {number(last.together)} in round 2"
    assert held in said and "every sum" not in said


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
    hidden = planned(household_tariff, dp.GradientADMM(), observer="last_iterate")
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


def sums_of_loads():
    """Two owners whose loads a model reads through two sums each."""
    flow, agents = cp.Variable(2, name="flow"), []
    for k in range(2):
        loads = dp.Private(
            np.arange(6.0), name=f"loads {k}", adjacency=dp.Within(0.1), bounds=(0, 9)
        )
        areas = np.kron(np.eye(2), np.ones((1, 3))) @ loads
        agents.append(dp.Agent(cp.Minimize(cp.norm(areas - flow)), name=f"owner {k}"))
    return dp.Problem(agents).plan(**BUDGET)


def test_an_owner_releases_sums_that_its_program_names(tmp_path):
    offer, policy = offered(sums_of_loads(), tmp_path)
    once = offer.request.once
    assert once.kind == "sums" and once.encode.shape == (2, 6)
    assert agree(offer, policy) is not None

    one_entry = once.encode.copy()
    one_entry.data[1:] = 0.0
    written = replace(offer.algorithm, as_written=False)
    changes = {
        "malformed": [
            lambda o: asking(o, once=replace(once, encode=one_entry)),
            lambda o: resealed(o, sums=None),
            lambda o: resealed(o, as_written=False, sums=None),
            lambda o: replace(o, algorithm=written),
        ],
        "data": [
            lambda o: with_spec(o, bounds=None),
            lambda o: with_spec(o, bounds=(0.0, 5.0)),
        ],
    }
    for code, many in changes.items():
        for change in many:
            with pytest.raises(dp.RefusedError) as refusal:
                agree(change(offer), policy)
            assert refusal.value.code == code
    assert charges(policy) == (0, 0)


def test_owners_of_complex_data_count_real_and_imaginary_parts(tmp_path):
    """An offer with another adjacency, or sums of parts, would hide less than one change."""
    z = cp.Variable((2, 2), hermitian=True, name="z")
    data = dp.Private(np.eye(2), name="R", adjacency=dp.Within(0.1), hermitian=True)
    plan = dp.Problem([dp.Agent(cp.Minimize(cp.norm(z - data, "fro")), name="a")]).plan(**BUDGET)
    offer, policy = offered(plan, tmp_path)
    agreed = agree(offer, policy)
    assert agreed.agent.publication.sensitivity == pytest.approx(1.0)  # in units of sqrt(2) 0.1
    assert agreed.agent.publication.encode.diagonal() == pytest.approx(1 / (0.1 * np.sqrt(2)))
    kind = offer.program.form.private[0].adjacency
    sums = sp.csr_array(np.eye(4)[:2])
    changes = {
        "adjacency": [
            lambda o: with_spec(o, adjacency=dp.Within(0.1)),
            lambda o: with_spec(o, adjacency=replace(kind, radius=0.05)),
            lambda o: with_spec(o, adjacency=replace(kind, hermitian=False)),
        ],
        "malformed": [lambda o: asking(o, once=replace(o.request.once, kind="sums", encode=sums))],
    }
    for code, many in changes.items():
        for change in many:
            with pytest.raises(dp.RefusedError) as refusal:
                agree(change(offer), policy)
            assert refusal.value.code in (code, "malformed", "unreadable"), change
    assert charges(policy) == (0, 0)


def test_owners_derive_random_linear_terms_by_themselves(tmp_path):
    """An offer names a weight of the quadratic, and neither the noise nor what it rests on."""
    w = cp.Variable(2, name="w")
    X = dp.Private(np.zeros((9, 2)), name="X", adjacency=dp.Rows(1.0))
    agent = dp.Agent(cp.Minimize(cp.sum(cp.logistic(X @ w))), name="clinic")
    plan = dp.Problem([agent]).plan(dp.ObjectivePerturbation(2.0), epsilon=1.0, delta=0)
    offer, policy = offered(plan, tmp_path)
    term = plan.agents[0].noise.linear
    assert agree(offer, policy).part.agent.noise.linear == term
    lower = replace(offer, algorithm=dp.ObjectivePerturbation(0.5))
    found = agree(lower, policy).part.agent
    assert found.price == plan.agents[0].price
    assert found.noise.linear.scale > 1.2 * term.scale  # the determinant takes more of the price
    with pytest.raises(dp.RefusedError) as refusal:
        agree(replace(offer, algorithm=dp.ObjectivePerturbation()), policy)
    assert refusal.value.code == "malformed"


def moved_towards_proxies():
    """Two owners whose data are released once, and moved towards public proxy data."""
    x, agents = cp.Variable(6, name="x"), []
    for k in range(2):
        proxy = np.linspace(1, 2, 6)
        d = dp.Private(proxy + 0.1, name=f"d{k}", adjacency=dp.Within(1.0), proxy=proxy)
        agents.append(dp.Agent(cp.Minimize(cp.sum_squares(x - d)), [cp.abs(x) <= 9], name=f"a{k}"))
    return dp.Problem(agents).plan(release="once", epsilon=1.0, delta=1e-6)


PROJECTED = {
    **{name: lambda method=method: planned(power_line, method)
       for name, method in METHODS.items() if "shares" not in name},
    **{name: lambda method=method: planned(whole(sensors), method)
       for name, method in METHODS.items() if "shares" in name},
    "released once": lambda: planned(release="once"),
    "laplace": lambda: planned(mechanism="laplace"),
    "falling": lambda: planned(mechanism=dp.Gaussian(decay=0.9)),
    "weighted sums": sums_of_loads,
    "proxies": moved_towards_proxies,
}  # fmt: skip


@pytest.mark.parametrize("name", PROJECTED)
def test_an_owner_derives_what_the_plan_derived(name, tmp_path):
    """Of an offer, an owner makes the record that the coordinator's plan has for its agent."""
    plan = PROJECTED[name]()
    for agent, offer, policy in zip(
        plan.agents, offers_of(plan, "r"), policies_of(plan, tmp_path), strict=True
    ):
        mine = agree(wire.decode(wire.encode(offer)), policy).agent
        assert mine.noise == agent.noise and mine.price == agent.price
        assert (mine.needs, mine.share, mine.bound) == (agent.needs, agent.share, agent.bound)
        statistic, theirs = mine.publication, agent.publication
        assert (statistic is None) is (theirs is None)
        if statistic is not None:
            assert statistic.sensitivity == theirs.sensitivity
            assert wire.encode((mine.request,)) == wire.encode((agent.request,))
    if name == "proxies":
        assert statistic.estimates


def test_estimates_that_fit_no_statistic_are_malformed(tmp_path):
    offer, policy = offered(moved_towards_proxies(), tmp_path)
    ((entries, estimate),) = offer.request.estimates
    for wrong in (
        replace(estimate, mean=estimate.mean[1:]),
        replace(estimate, mean=np.full(6, np.nan)),
        replace(estimate, dimension=2.0),
        replace(estimate, dimension=np.inf),
        replace(estimate, deviation=0.0),
    ):
        with pytest.raises(dp.RefusedError) as refusal:
            agree(asking(offer, estimates=((entries, wrong),)), policy)
        assert refusal.value.code == "malformed"
    for where in (slice(1, 7), slice(0, 0), slice(0, 6, 0), slice(5, None, -1)):
        with pytest.raises(dp.RefusedError) as refusal:
            agree(asking(offer, estimates=((where, estimate),)), policy)
        assert refusal.value.code == "malformed"
    assert charges(policy) == (0, 0)
