"""Sums by masks: exact, with single values that tell nothing, and keys that are whose they say."""

import itertools

import numpy as np
import pytest
from scipy import stats

import dpcvx as dp
from dpcvx.algorithms.secret_terms import Shared
from dpcvx.owners import keys
from dpcvx.owners.ciphers import fresh, public_of
from dpcvx.owners.masks import MaskedSum, Masker, kept_key, masked, statement, unsent
from dpcvx.owners.messages import Agreed, Key, Partners
from dpcvx.owners.session import Session
from dpcvx.privacy.secret_sharing import Encoding, SecretSum
from dpcvx.verify.instances import sensors
from tests.instances import whole
from tests.owners.settings import answer, offered, planned

NAMES = ("a", "b", "c", "d")
ENCODING = Encoding(64.0, 2.0**-40, 4)


def maskers(run="a run", secrets=None):
    secrets = [fresh() for _ in NAMES] if secrets is None else secrets
    made = {name: Masker(run, name, key) for name, key in zip(NAMES, secrets, strict=True)}
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


def test_sums_are_exact_and_the_server_needs_nothing_else():
    made, rng = maskers(), np.random.default_rng(1)
    for t in (1, 2, 3):
        values = {name: rng.uniform(-60, 60, size=5) for name in NAMES}
        total = SecretSum(NAMES, ENCODING, (5,), t).total(list(partials(made, values, t).values()))
        plain = np.sum([ENCODING.decode(ENCODING.encode(v)) for v in values.values()], axis=0)
        assert np.array_equal(total, plain)


def test_one_masked_value_is_uniform_whatever_it_hides():
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


def test_all_but_two_learn_the_sum_of_the_two_and_no_more():
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


def test_rounds_directions_runs_and_pairs_have_masks_of_their_own():
    secrets = [bytes([k]) * 32 for k in range(1, 5)]
    one, other = maskers("a run", secrets), maskers("another run", secrets)
    drawn = [
        one["a"].words("a", "b", 1, 4), one["a"].words("a", "b", 2, 4),
        one["a"].words("b", "a", 1, 4), one["a"].words("a", "c", 1, 4),
        other["a"].words("a", "b", 1, 4),
    ]  # fmt: skip
    assert len({words.tobytes() for words in drawn}) == len(drawn)
    assert np.array_equal(one["a"].words("a", "b", 1, 4), one["b"].words("a", "b", 1, 4))
    with pytest.raises(dp.RefusedError, match="no key"):
        one["a"].words("b", "c", 1, 4)


def test_a_round_is_used_for_one_value():
    made = maskers()
    first = partials(made, {"a": np.ones(3)})["a"].words
    assert np.array_equal(partials(made, {"a": np.ones(3)})["a"].words, first)
    with pytest.raises(dp.RefusedError, match="round 1 are used") as refusal:
        partials(made, {"a": np.full(3, 2.0)})
    assert refusal.value.code == "order"


def test_shares_that_receivers_compute_are_not_sent():
    made = maskers()
    sums = masked((SecretSum(NAMES, ENCODING, (3,), 1), None), made["a"])[0]
    shares = sums.shares("a", np.ones(3))
    assert unsent(tuple(shares)) == ()
    assert unsent(Shared(tuple(shares), np.ones(3))).others == ()
    assert unsent(np.ones(3)) is not None


def test_the_key_of_a_run_outlives_the_process(tmp_path):
    path = tmp_path / "run.key"
    key = kept_key(path)
    assert kept_key(path) == key and path.stat().st_mode & 0o077 == 0
    assert kept_key(tmp_path / "other.key") != key


@pytest.fixture
def parties(tmp_path):
    """An owner that takes part in secret sums, with certificates, and the others' keys."""
    keys.make_authority(tmp_path / "ca")
    method = dp.SummedGradient(step=0.1, sharing=dp.SecretSharing(limit=50.0))
    plan = planned(whole(sensors), method)
    offer, policy = offered(plan, tmp_path)
    said, identities = [], {}
    for name, _ in offer.parts:
        folder = tmp_path / name
        keys.sign_request(tmp_path / "ca", keys.make_request(folder, name))
        (folder / "ca.crt").write_bytes((tmp_path / "ca" / "ca.crt").read_bytes())
        own = identities[name] = keys.Identity.of(folder, name)
        public = public_of(fresh()).hex()
        signature = own.signed(statement(offer.run, name, public))
        said.append(Key(name, public, own.certificate, signature))
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
    last = said[-1]
    mine = public_of(fresh()).hex()
    if how == "another key under the signature":
        return [*said[:-1], Key(last.agent, mine, last.certificate, last.signature)]
    if how == "another owner's signature":
        other = identities[said[1].agent]
        signature = other.signed(statement(offer.run, last.agent, mine))
        return [*said[:-1], Key(last.agent, mine, other.certificate, signature)]
    if how == "a signature of another run":
        signature = identities[last.agent].signed(statement("before", last.agent, mine))
        return [*said[:-1], Key(last.agent, mine, last.certificate, signature)]
    if how == "no certificate":
        return [*said[:-1], Key(last.agent, mine, "", "")]
    if how == "no point of the curve":
        zero = "00" * 32
        signature = identities[last.agent].signed(statement(offer.run, last.agent, zero))
        return [*said[:-1], Key(last.agent, zero, last.certificate, signature)]
    return said[:-1]


@pytest.mark.parametrize(
    ("how", "code"),
    [
        ("another key under the signature", "stranger"),
        ("another owner's signature", "stranger"),
        ("a signature of another run", "stranger"),
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
    signature = identities[last.agent].signed(statement(offer.run, last.agent, public))
    other = [*said[:-1], Key(last.agent, public, last.certificate, signature)]
    assert answer(session, Partners(offer.run, tuple(other))).code == "changed"
