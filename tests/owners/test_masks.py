"""Sums by masks: exact, with single values that tell nothing, and keys that are whose they say."""

import errno
import functools
import itertools
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import dpcvx as dp
from dpcvx.algorithms.summed import Heard, Question, Shared
from dpcvx.owners import keys, wire
from dpcvx.owners.coordinator import Remote
from dpcvx.owners.files import CoordinatorLog, OwnerFiles
from dpcvx.owners.loopback import policies_of
from dpcvx.owners.masks import (
    KeyFile,
    MaskedSum,
    Masker,
    fresh,
    masked,
    public_of,
    statement,
    unsent,
)
from dpcvx.owners.messages import AgentReply, Agreed, Call, Key, Partners, Refusal
from dpcvx.owners.offers import document_of, offers_of
from dpcvx.owners.session import Session
from dpcvx.privacy.secret_sharing import Encoding, SecretSum
from dpcvx.testing.instances import sensors
from tests.instances import whole
from tests.owners.settings import METHODS, Mortal, answer, charges, offered, planned

NAMES = ("a", "b", "c", "d")
ENCODING = Encoding(64.0, 2.0**-40, 4)
DOCUMENT, ANOTHER = "0d" * 32, "ad" * 32


@pytest.fixture
def maskers(tmp_path):
    """Makes maskers of all names, of secrets that may be given."""
    return functools.partial(made_maskers, tmp_path)


def made_maskers(place, document=DOCUMENT, secrets=None):
    made = {}
    for k, name in enumerate(NAMES):
        path = place / f"{document} {name}.key"
        if secrets is not None:
            path.write_bytes(secrets[k] + bytes.fromhex(document))
        made[name] = Masker(name, KeyFile(path, document))
    publics = {name: one.public for name, one in made.items()}
    for one in made.values():
        one.agree(publics)
    return made


def partials(made, values, t=1):
    """What each sends, in the two exchanges of a sum."""
    found = {}
    for name, value in values.items():
        sums = masked(SecretSum(NAMES, ENCODING, value.shape, t), made[name])
        assert isinstance(sums, MaskedSum)
        kept = next(s for s in sums.shares(name, value) if s.receiver == name)
        found[name] = sums.partial(name, [kept])
    return found


def test_sums_are_exact_and_the_server_needs_nothing_else(maskers):
    made, rng = maskers(), np.random.default_rng(1)
    for t in (1, 2, 3):
        values = {name: rng.uniform(-60, 60, size=5) for name in NAMES}
        total = SecretSum(NAMES, ENCODING, (5,), t).total(list(partials(made, values, t).values()))
        plain = np.sum([ENCODING.decode(ENCODING.encode(v)) for v in values.values()], axis=0)
        assert np.array_equal(total, plain)


def test_one_masked_value_is_uniform_whatever_it_hides(maskers):
    # Chi-square over the bytes of 64,000 words; a true null fails once in 10,000 times per value.
    made = maskers(secrets=[bytes([k]) * 32 for k in range(1, 5)])
    for fill in (0.0, 1.0, -63.9):
        words = partials(made, {"a": np.full(64_000, fill)}, t=int(fill) + 100)["a"].words
        raw = np.frombuffer(words.tobytes(), np.uint8)
        assert stats.chisquare(np.bincount(raw, minlength=256)).pvalue > 1e-4
        bits = np.unpackbits(raw)
        assert abs(bits.mean() - 0.5) < 5 * 0.5 / np.sqrt(bits.size)
    # The test has power: without one owner's masks the same value does not pass.
    plain = ENCODING.encode(np.full(64_000, 1.0))
    counts = np.bincount(np.frombuffer(plain.tobytes(), np.uint8), minlength=256)
    assert stats.chisquare(counts).pvalue < 1e-4


def test_all_but_two_learn_the_sum_of_the_two_and_no_more(maskers):
    # With the masks of c and d known, what a and b sent is a + m and b - m: of a uniform m.
    made = maskers()
    values = {name: np.array([float(k)]) for k, name in enumerate(NAMES)}
    sent = partials(made, values, 7)
    for pair in itertools.permutations(NAMES, 2):
        if {"a", "b"} & set(pair) and {"c", "d"} & set(pair):
            known = made[pair[0]].words(*pair, 7, 1)
            if pair[0] in "ab":
                sent[pair[0]].words[:] += known
            else:
                sent[pair[1]].words[:] -= known
    mask = made["a"].words("a", "b", 7, 1) - made["a"].words("b", "a", 7, 1)
    encoded = {name: ENCODING.encode(value) for name, value in values.items()}
    assert sent["a"].words == encoded["a"] - mask
    assert sent["b"].words == encoded["b"] + mask


def test_rounds_directions_documents_and_pairs_have_masks_of_their_own(maskers):
    secrets = [bytes([k]) * 32 for k in range(1, 5)]
    one, other = maskers(DOCUMENT, secrets), maskers(ANOTHER, secrets)
    drawn = [
        one["a"].words("a", "b", 1, 4), one["a"].words("a", "b", 2, 4),
        one["a"].words("b", "a", 1, 4), one["a"].words("a", "c", 1, 4),
        other["a"].words("a", "b", 1, 4),
    ]  # fmt: skip
    assert len({words.tobytes() for words in drawn}) == len(drawn)
    assert np.array_equal(one["a"].words("a", "b", 1, 4), one["b"].words("a", "b", 1, 4))
    with pytest.raises(dp.RefusedError, match="the mask key of .* is missing"):
        one["a"].words("b", "c", 1, 4)


def test_a_round_is_used_for_one_value(maskers):
    made = maskers()
    first = partials(made, {"a": np.ones(3)})["a"].words
    assert np.array_equal(partials(made, {"a": np.ones(3)})["a"].words, first)
    with pytest.raises(dp.RefusedError, match="round 1 were used") as refusal:
        partials(made, {"a": np.full(3, 2.0)})
    assert refusal.value.code == "order"


def test_shares_that_receivers_compute_are_not_sent(maskers):
    made = maskers()
    sums = masked((SecretSum(NAMES, ENCODING, (3,), 1), None), made["a"])[0]
    shares = sums.shares("a", np.ones(3))
    assert unsent(tuple(shares)) == ()
    assert unsent(Shared(tuple(shares), np.ones(3))).others == ()
    assert unsent(np.ones(3)) is not None


def test_the_key_of_a_run_and_its_uses_outlive_the_process(tmp_path):
    path = tmp_path / "run.key"
    kept = KeyFile(path, DOCUMENT)
    assert path.stat().st_mode & 0o077 == 0
    assert kept.use(1, b"one") and kept.use(2, b"two") and kept.use(1, b"one")
    assert not kept.use(1, b"two") and not kept.used
    kept.keep()
    again = KeyFile(path, DOCUMENT)
    assert again.key == kept.key and again.used
    assert again.use(1, b"one") and not again.use(1, b"two") and not again.use(2, b"one")
    assert KeyFile(tmp_path / "other.key", DOCUMENT).key != kept.key


def test_a_full_disk_leaves_no_part_of_a_key(tmp_path, monkeypatch):
    """A part of one would be refused from then on, though no value was masked with it."""

    def full(number):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = tmp_path / "spent.jsonl.key"
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError) as error:
            KeyFile(path, "ab" * 32)
    assert error.value.filename == str(path) and not [*tmp_path.iterdir()]
    assert not KeyFile(path, "ab" * 32).used


def test_the_key_of_a_run_belongs_to_one_document(tmp_path):
    path = tmp_path / "run.key"
    KeyFile(path, DOCUMENT)
    with pytest.raises(dp.RefusedError, match="began with another document") as refusal:
        KeyFile(path, ANOTHER)
    assert refusal.value.code == "changed"


@given(st.lists(st.integers(1, 2**40), unique=True, max_size=5), st.integers(0, 200))
def test_uses_that_were_cut_short_never_left(rounds, size):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.key"
        kept = KeyFile(path, DOCUMENT)
        for t in rounds:
            assert kept.use(t, b"%d" % t)
            kept.keep()
        raw = path.read_bytes()
        path.write_bytes(raw[:size])
        if size < 64:
            with pytest.raises(dp.LedgerError, match="no mask key"):
                KeyFile(path, DOCUMENT)
            return
        back, whole = KeyFile(path, DOCUMENT), (min(size, len(raw)) - 64) // 24
        for k, t in enumerate(rounds):
            assert back.use(t, b"another") == (k >= whole)
        back.keep()
        # Records after one that was cut short are where they belong.
        assert KeyFile(path, DOCUMENT).use(7, b"") == (7 not in rounds)


HELPER = """
import sys
from pathlib import Path
from dpcvx.owners.masks import KeyFile
kept = KeyFile(Path(sys.argv[1]), sys.argv[2])
for t in range(1, 10**6):
    kept.use(t, b"%d" % t)
    kept.keep()
    print(t, flush=True)
"""


def test_what_a_killed_process_used_stays_used(tmp_path):
    path = tmp_path / "run.key"
    with subprocess.Popen(
        [sys.executable, "-c", HELPER, str(path), DOCUMENT], stdout=subprocess.PIPE, text=True
    ) as one:
        for _ in range(20):
            last = int(one.stdout.readline())
        one.kill()
    kept = KeyFile(path, DOCUMENT)
    for t in range(1, last + 1):
        assert not kept.use(t, b"another") and kept.use(t, b"%d" % t)


@pytest.fixture
def parties(tmp_path):
    """An owner that takes part in secret sums, with certificates, and the others' keys."""
    keys.make_authority(tmp_path / "ca")
    method = dp.FederatedGradient(step=0.1, sharing=dp.SecretSharing(limit=50.0))
    plan = planned(whole(sensors), method)
    offer, policy = offered(plan, tmp_path)
    said, identities, document = [], {}, document_of(offer)
    for name, _ in offer.parts:
        folder = tmp_path / name
        keys.sign_request(tmp_path / "ca", keys.make_request(folder, name))
        (folder / "ca.crt").write_bytes((tmp_path / "ca" / "ca.crt").read_bytes())
        own = identities[name] = keys.PartyIdentity.of(folder, name)
        public = public_of(fresh()).hex()
        signature = own.signed(statement(document, name, public))
        said.append(Key(name, document, public, own.certificate, signature))
    session = Session(policy, seed=1, identity=identities[policy.agent])
    agreed = answer(session, offer)
    assert isinstance(agreed, Agreed)
    said[offer.place] = agreed.key
    yield session, offer, said, identities
    session.close()


def test_keys_that_their_owners_signed_are_taken(parties):
    session, offer, said, _ = parties
    assert isinstance(answer(session, Partners(offer.run, tuple(said))), Agreed)
    assert isinstance(answer(session, Partners(offer.run, tuple(said))), Agreed)


def forged(said, identities, offer, how):
    """Keys of which the last one is not its owner's."""
    last, document = said[-1], document_of(offer)
    mine = public_of(fresh()).hex()
    if how == "another key under the signature":
        return [*said[:-1], replace(last, public=mine)]
    if how == "another owner's signature":
        other = identities[said[1].agent]
        signature = other.signed(statement(document, last.agent, mine))
        return [*said[:-1], Key(last.agent, document, mine, other.certificate, signature)]
    if how == "a signature of another document":
        signature = identities[last.agent].signed(statement(ANOTHER, last.agent, mine))
        return [*said[:-1], Key(last.agent, document, mine, last.certificate, signature)]
    if how == "another document, signed":
        signature = identities[last.agent].signed(statement(ANOTHER, last.agent, mine))
        return [*said[:-1], Key(last.agent, ANOTHER, mine, last.certificate, signature)]
    if how == "no certificate":
        return [*said[:-1], Key(last.agent, document, mine, "", "")]
    if how == "no point of the curve":
        zero = "00" * 32
        signature = identities[last.agent].signed(statement(document, last.agent, zero))
        return [*said[:-1], Key(last.agent, document, zero, last.certificate, signature)]
    return said[:-1]


@pytest.mark.parametrize(
    ("how", "code"),
    [
        ("another key under the signature", "stranger"),
        ("another owner's signature", "stranger"),
        ("a signature of another document", "stranger"),
        ("another document, signed", "documents"),
        ("no certificate", "stranger"),
        ("no point of the curve", "stranger"),
        ("one is missing", "partners"),
    ],
)
def test_forged_keys_are_refused(parties, how, code):
    session, offer, said, identities = parties
    keys_said = forged(said, identities, offer, how)
    assert answer(session, Partners(offer.run, tuple(keys_said))).code == code


def test_other_keys_than_before_are_refused(parties):
    session, offer, said, identities = parties
    answer(session, Partners(offer.run, tuple(said)))
    last, public = said[-1], public_of(fresh()).hex()
    document = document_of(offer)
    signature = identities[last.agent].signed(statement(document, last.agent, public))
    other = [*said[:-1], Key(last.agent, document, public, last.certificate, signature)]
    assert answer(session, Partners(offer.run, tuple(other))).code == "changed"


def anew(place, seed, k, mean):
    """What the k-th owner of a sum answers, which begins anew on its files, in round 1."""
    plan = planned(whole(sensors), METHODS["mean in shares"])
    offer, policy = offers_of(plan, "a run")[k], policies_of(plan, place)[k]
    names, size = tuple(name for name, _ in offer.parts), offer.program.shared.size
    sums = SecretSum(names, offer.algorithm.sharing.encoding(len(names)), (size,), 1)
    session = Session(policy, seed=seed)
    said = answer(session, offer)
    if not isinstance(said, Agreed):
        session.close()
        return policy, said
    own, document = said.key, said.key.document
    publics = [
        Key(name, document, public_of(bytes([9 + j]) * 32).hex(), "", "")
        for j, name in enumerate(names)
    ]
    publics[k] = own
    answer(session, Partners(offer.run, tuple(publics)))
    heard = (sums, Heard(np.full(size, mean), len(names)))
    found = answer(session, Call(offer.run, 1, 0, heard))
    if isinstance(found, AgentReply):
        found = answer(session, Call(offer.run, 1, 1, (sums, [])))
    session.close()
    return policy, found


@pytest.mark.parametrize("method", ["mean in shares", "in shares", "central in shares"])
def test_no_term_leaves_without_a_sum(tmp_path, method):
    """A coordinator that says it adds up by itself is sent nothing, and nothing is charged."""
    plan = planned(whole(sensors), METHODS[method])
    policies = [replace(one, max_colluders=1) for one in policies_of(plan, tmp_path)]
    hub = Mortal(policies)
    plan.run(
        executor=Remote(lambda names: hub, lambda: CoordinatorLog(None), lambda: "a run"),
        verbose=False,
    )
    frames = [wire.decode(frame) for name, frame in hub.traffic[::2] if name == policies[0].agent]
    offer, partners, first, second = frames[:4]
    policy = replace(policies[0], ledger=tmp_path / "another.jsonl")
    for plain in (first, second):
        session = Session(policy)
        own = answer(session, offer).key
        known = [own if key.agent == own.agent else key for key in partners.keys]
        assert isinstance(answer(session, replace(partners, keys=tuple(known))), Agreed)
        before = charges(policy)
        if plain is second:
            answer(session, first)
            before = charges(policy)
        said = plain.message
        said = (None, said[1]) if isinstance(said, tuple) else replace(said, sums=None)
        refusal = answer(session, replace(plain, message=said))
        assert isinstance(refusal, Refusal) and refusal.code in ("nonsense", "unreadable")
        assert charges(policy) == before
        session.close()


def test_shares_are_added_up_after_they_were_made(tmp_path):
    plan = planned(whole(sensors), METHODS["mean in shares"])
    hub = Mortal(policies_of(plan, tmp_path))
    plan.run(
        executor=Remote(lambda names: hub, lambda: CoordinatorLog(None), lambda: "a run"),
        verbose=False,
    )
    name = plan.agents[0].name
    frames = [wire.decode(frame) for one, frame in hub.traffic[::2] if one == name]
    session = Session(replace(policies_of(plan, tmp_path)[0], ledger=tmp_path / "another.jsonl"))
    own = answer(session, frames[0]).key
    known = [own if key.agent == name else key for key in frames[1].keys]
    answer(session, replace(frames[1], keys=tuple(known)))
    calls = [frame for frame in frames if isinstance(frame, Call)]
    assert answer(session, calls[1]).code == "order"
    assert isinstance(answer(session, calls[0]), AgentReply)
    assert answer(session, calls[3]).code == "order"
    assert isinstance(answer(session, calls[1]), AgentReply)
    session.close()


def test_an_owner_that_is_started_again_says_what_it_said_whatever_it_hears(tmp_path):
    policy, first = anew(tmp_path, 1, 0, 0.1)
    assert isinstance(first, AgentReply) and charges(policy) == (1, 1)
    _, again = anew(tmp_path, 1, 0, 0.2)
    assert wire.digest(again) == wire.digest(first)
    assert charges(policy) == (1, 1)


def test_an_owner_that_is_started_again_masks_no_other_value(tmp_path):
    # Two values under one mask would show how they differ. An agent without private data answers
    # by what it hears; one whose ledger is lost, with what is known of it, would draw other noise.
    _, first = anew(tmp_path, 1, -1, 0.1)
    assert isinstance(first, AgentReply)
    assert anew(tmp_path, 1, -1, 0.2)[1].code == "order"
    assert wire.digest(anew(tmp_path, 1, -1, 0.1)[1]) == wire.digest(first)
    policy, first = anew(tmp_path, 1, 0, 0.1)
    assert isinstance(first, AgentReply)
    policy.ledger.unlink()
    policy.ledger.with_name(f"{policy.ledger.name}.seen").unlink()
    assert anew(tmp_path, 2, 0, 0.1)[1].code == "ledger" and charges(policy) == (0, 0)


def restarted(session):
    """The same owner on its files, in another process."""
    session.close()
    return Session(session.policy, seed=1, identity=session.identity)


def first_call(offer):
    """A question of round 1, in a sum of all participants."""
    names, size = tuple(name for name, _ in offer.parts), offer.program.shared.size
    sums = SecretSum(names, offer.algorithm.sharing.encoding(len(names)), (size,), 1)
    return Call(offer.run, 1, 0, Question(offer.program.start, np.arange(size), size, sums))


def signed_again(key, identities, **changes):
    """A key, or another one, that its owner signs anew: no two signatures are the same."""
    own = replace(key, **changes)
    text = statement(own.document, own.agent, own.public)
    return replace(own, signature=identities[own.agent].signed(text))


def test_keys_of_all_are_on_disk_before_a_masked_value_is_sent(parties):
    session, offer, said, _ = parties
    ledger = session.policy.ledger
    refusal = answer(session, first_call(offer))
    assert refusal.code == "partners" and charges(session.policy) == (0, 0)
    session = restarted(session)
    answer(session, offer)
    assert not list(ledger.parent.glob("*.partners.dpx"))
    answer(session, Partners(offer.run, tuple(said)))
    (path,) = ledger.parent.glob(f"{ledger.name}.*.partners.dpx")
    assert [key.public for key in wire.decode(path.read_bytes()).keys] == [k.public for k in said]
    assert isinstance(answer(session, first_call(offer)), AgentReply)
    session.close()


def test_a_restarted_owner_takes_the_same_keys_and_says_the_same(parties):
    session, offer, said, identities = parties
    answer(session, Partners(offer.run, tuple(said)))
    first = answer(session, first_call(offer))
    session = restarted(session)
    assert answer(session, offer).key.public == said[offer.place].public
    again = tuple(signed_again(key, identities) for key in said)
    assert isinstance(answer(session, Partners(offer.run, again)), Agreed)
    assert wire.digest(answer(session, first_call(offer))) == wire.digest(first)
    assert charges(session.policy) == (1, 1)
    session.close()


def test_a_restarted_owner_refuses_other_keys(parties):
    session, offer, said, identities = parties
    answer(session, Partners(offer.run, tuple(said)))
    answer(session, first_call(offer))
    session = restarted(session)
    answer(session, offer)
    other = signed_again(said[-1], identities, public=public_of(fresh()).hex())
    assert answer(session, Partners(offer.run, (*said[:-1], other))).code == "changed"
    session.close()


@pytest.mark.parametrize("began", [False, True])
def test_a_restarted_owner_refuses_another_document_for_the_run(parties, began):
    session, offer, said, _ = parties
    if began:
        answer(session, Partners(offer.run, tuple(said)))
        answer(session, first_call(offer))
    session = restarted(session)
    before = charges(session.policy)
    assert answer(session, replace(offer, rounds=offer.rounds - 1)).code == "changed"
    assert charges(session.policy) == before
    session.close()


def test_a_run_of_another_name_releases_no_earlier_value(parties):
    # Two sums with the same noise of all others would differ by what the first owner sends alone.
    session, offer, said, identities = parties
    policy = session.policy = replace(session.policy, epsilon=10.0)
    answer(session, Partners(offer.run, tuple(said)))
    assert isinstance(answer(session, first_call(offer)), AgentReply)
    session = restarted(session)
    other = replace(offer, run="another run")
    key, document = answer(session, other).key, document_of(other)
    keys_said = [signed_again(one, identities, document=document) for one in said]
    keys_said[offer.place] = key
    answer(session, Partners(other.run, tuple(keys_said)))
    assert isinstance(answer(session, first_call(other)), AgentReply)
    assert charges(policy) == (2, 2)
    values = [
        line for line in map(json.loads, policy.ledger.read_text().splitlines()) if "values" in line
    ]
    assert values[0]["data"] != values[1]["data"]
    session.close()


def test_an_owner_without_its_mask_key_goes_on_with_no_run(parties):
    session, offer, said, _ = parties
    answer(session, Partners(offer.run, tuple(said)))
    answer(session, first_call(offer))
    session = restarted(session)
    (path,) = session.policy.ledger.parent.glob("*.key")
    path.unlink()
    assert answer(session, offer).code == "ledger" and "is gone" in str(session.refusal)
    assert not path.exists()
    session.close()


def test_an_owner_that_ends_behind_its_ledger_goes_on(parties, monkeypatch):
    """Its value is on disk, and the use of the mask is not: without a seed it draws no other."""
    session, offer, said, _ = parties
    session.close()
    policy = replace(session.policy, ledger=session.policy.ledger.with_name("new.jsonl"))
    session = Session(policy, identity=session.identity)
    own = answer(session, offer).key
    keys_said = [own if key.agent == own.agent else key for key in said]
    answer(session, Partners(offer.run, tuple(keys_said)))

    def killed(self):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Masker, "keep", killed)
        answer(session, first_call(offer))
    session.close()
    session = Session(session.policy, identity=session.identity)
    answer(session, offer)
    answer(session, Partners(offer.run, tuple(keys_said)))
    assert isinstance(answer(session, first_call(offer)), AgentReply)
    assert charges(session.policy) == (1, 1)
    session.close()


@pytest.mark.parametrize("method", ["mean in shares", "in shares", "central in shares"])
def test_runs_with_owners_that_are_restarted_give_the_same_bits(tmp_path, method):
    plan = planned(whole(sensors), METHODS[method], 3)
    expected = plan.run(seed=1, executor=dp.Serial())
    policies = policies_of(plan, tmp_path)
    first, second = (policy.agent for policy in policies[:2])
    deaths = {first: ((1, 1), "after"), second: ((1, 1), "before")}
    hub = Mortal(policies, deaths)
    result = plan.run(
        executor=Remote(lambda names: hub, lambda: CoordinatorLog(None), lambda: "a run")
    )
    assert hub.rejoined == 2 and result.status == expected.status
    pairs = zip(expected.last.vectors, result.last.vectors, plan.program.agents, strict=True)
    assert all(x[a.shared].tobytes() == y[a.shared].tobytes() for x, y, a in pairs)
    for name, account in expected.ledger.items():
        assert list(account.entries) == list(result.ledger[name].entries)


def test_an_ending_of_another_version_is_nobodys_concern(tmp_path):
    plan = planned()
    plan.run(executor=dp.LoopbackOwners(plan, folder=tmp_path), verbose=False)
    kept = OwnerFiles(policies_of(plan, tmp_path)[0].ledger)
    assert kept.ending() is not None
    path = kept.path("final.dpx")
    path.write_bytes(b"dpx1" + path.read_bytes()[4:])
    assert kept.ending() is None
