"""Secret sharing: exact sums, what colluders see, messages that are missing or too many."""

import itertools
import pickle
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dpcvx as dp
from dpcvx.privacy.randomness import Secure, Seeded
from dpcvx.privacy.secret_sharing import Encoding, Partial, SecretSum, Share, combine, split
from tests.helpers import Words

NAMES = ("a", "b", "c", "d")
GRID = 2.0**-20


def stream(seed):
    return Seeded(seed, (0,)).at(0, 0)


def in_one_place(together, values, source=None):
    """A whole round: the sum, the shares sent and kept by senders, and everyone's broadcast."""
    sent = [share for name in values for share in together.shares(name, values[name], source)]
    partials = [
        together.partial(name, [share for share in sent if share.receiver == name])
        for name in together.agents
    ]
    return together.total(partials), sent, partials


def protocol(n=4, shape=(), limit=100.0, resolution=GRID):
    return SecretSum(tuple("abcdefgh"[:n]), Encoding(limit, resolution, n), shape)


arrays = st.integers(0, 5).flatmap(
    lambda size: st.lists(st.floats(-100, 100), min_size=size, max_size=size)
)


# Encoding -----------------------------------------------------------------------------------


@given(values=arrays, power=st.integers(-40, 6))
def test_encoding_rounds_to_the_nearest(values, power):
    encoding = Encoding(100.0, 2.0**power, 3)
    words = encoding.encode(values)
    assert words.dtype == np.uint64 and words.shape == (len(values),)
    for value, word in zip(values, words, strict=True):
        exact = round(Fraction(value) / Fraction(2) ** power)  # ties to even as well
        assert int(word) == exact % 2**64
    assert np.abs(encoding.decode(words) - values).max(initial=0) <= 2.0 ** (power - 1)


@pytest.mark.parametrize("shape", [(), (1,), (0,), (3,), (2, 3), (2, 1, 4)])
def test_shapes_are_kept(shape):
    encoding = Encoding(2.0, GRID, 3)
    values = np.arange(np.prod(shape, dtype=int)).reshape(shape) / 16 - 1
    words = encoding.encode(values)
    shares = split(words, 3, stream(0))
    assert words.shape == shape and shares.shape == (3, *shape)
    assert np.array_equal(encoding.decode(combine(shares)), values)
    assert encoding.decode(combine(shares)).dtype == np.float64
    assert np.array_equal(encoding.decode(combine(list(shares))), values)
    together = protocol(3, shape)
    total, _, _ = in_one_place(together, {"a": values, "b": values, "c": values}, stream(1))
    assert np.array_equal(total, 3 * values) and total.shape == shape


def test_the_largest_sums_do_not_wrap():
    top = 2.0**61 - 2.0**8
    encoding = Encoding(top, 1.0, 4)  # 4 * 2**61 is too much
    for sign in (1, -1):
        words = combine([encoding.encode([sign * top])] * 4)
        assert encoding.decode(words) == sign * 4 * top
    with pytest.raises(dp.ModelError, match=r"resolution=2.0\*\*1 or coarser"):
        Encoding(2.0**61, 1.0, 4)
    assert Encoding(2.0**61, 2.0, 4).steps == 2**60


@given(
    limit=st.floats(1e-6, 1e12), power=st.integers(-120, 20), parties=st.sampled_from([3, 7, 1000])
)
def test_the_advice_of_a_refusal_works_and_is_the_finest(limit, power, parties):
    try:
        encoding = Encoding(limit, 2.0**power, parties)
    except dp.ModelError as error:
        if "coarser than the limit" in str(error):
            assert 2.0**power > limit
            return
        advised = int(str(error).split("resolution=2.0**")[1].split(" ")[0])
        assert parties * Encoding(limit, 2.0**advised, parties).steps < 2**63
        with pytest.raises(dp.ModelError, match="wraps around"):
            Encoding(limit, 2.0 ** (advised - 1), parties)
    else:
        assert parties * encoding.steps < 2**63


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"limit": 0.0}, "limit=0.0.*positive"),
        ({"limit": np.inf}, "limit=inf"),
        ({"parties": 0}, "parties=0"),
        ({"parties": 2.5}, "parties=2.5"),
        ({"resolution": -1.0}, "resolution=-1.0"),
        ({"resolution": 1e-6}, r"must be a power of two.*Write 2.0\*\*-20,"),
        ({"resolution": 3.0}, r"Write 2.0\*\*1,"),
        ({"resolution": 128.0}, "coarser than the limit of 100"),
    ],
)
def test_encodings_are_checked(change, match):
    with pytest.raises(dp.ModelError, match=match):
        Encoding(**{"limit": 100.0, "resolution": GRID, "parties": 3, **change})


@pytest.mark.parametrize(
    "bad",
    [
        [0.0, 31415.92653],
        [-31415.92653],
        [np.nan, 31415.92653],
        [np.inf],
        ["31415.92653 Euro"],
        [[31415.92653], [1.0, 2.0]],
        1j * 31415.92653,
        10**400 + 31415,
    ],
    ids=["high", "low", "nan", "inf", "text", "ragged", "complex", "int"],
)
def test_values_out_of_range_are_refused_and_not_shown(bad):
    with pytest.raises(dp.DataError, match="not shown.*nothing was shared") as caught:
        Encoding(100.0, GRID, 3).encode(bad)
    assert "31415" not in str(caught.value)
    assert caught.value.__cause__ is None and caught.value.__context__ is None


def test_totals_that_cannot_be_are_refused():
    encoding = Encoding(1.0, GRID, 3)
    edge = np.array([3 * 2**20, -3 * 2**20]).view(np.uint64)
    assert encoding.decode(edge).tolist() == [3.0, -3.0]
    for wrong in (3 * 2**20 + 1, 2**64 - 3 * 2**20 - 1, 2**63):
        with pytest.raises(dp.ModelError, match="missing, altered or from another round"):
            encoding.decode(np.array([0, wrong], dtype=np.uint64))


# Sums ---------------------------------------------------------------------------------------


@given(word=st.integers(0, 2**64 - 1), parties=st.integers(2, 9), seed=st.integers(0, 2**32))
def test_shares_add_up(word, parties, seed):
    shares = split(np.array([word], dtype=np.uint64), parties, stream(seed))
    assert sum(int(share) for share in shares[:, 0]) % 2**64 == word
    assert combine(shares).tolist() == [word]


@given(
    values=st.lists(st.floats(-100, 100), min_size=3, max_size=8),
    power=st.integers(-35, 2),
    seed=st.integers(0, 2**32),
)
def test_the_result_is_the_sum_up_to_the_resolution(values, power, seed):
    n = len(values)
    together = protocol(n, resolution=2.0**power)
    total, sent, partials = in_one_place(
        together, dict(zip(together.agents, values, strict=True)), stream(seed)
    )
    rounded = sum(round(Fraction(v) / Fraction(2) ** power) for v in values)
    assert float(total) == float(rounded * Fraction(2) ** power)  # exact sum of rounded values
    assert abs(Fraction(float(total)) - sum(map(Fraction, values))) <= (
        Fraction(n, 2) * Fraction(2) ** power + Fraction(1, 2**40)
    )
    assert len(sent) == n * n and len(partials) == n
    assert {(s.sender, s.receiver) for s in sent} == set(
        itertools.product(together.agents, repeat=2)
    )


def test_the_default_source_is_the_operating_system(monkeypatch):
    asked = []
    words = Secure.words
    monkeypatch.setattr(Secure, "words", lambda self, n: asked.append(n) or words(self, n))
    together = protocol(3, (2,))
    values = dict.fromkeys("abc", (1.0, 2.0))
    first, sent, _ = in_one_place(together, values)
    again, resent, _ = in_one_place(together, values)
    assert asked == [4] * 6 and first.tolist() == again.tolist() == [3.0, 6.0]
    assert all((a.words != b.words).all() for a, b in zip(sent, resent, strict=True))


# What colluders see -------------------------------------------------------------------------


def views(n, modulus, secrets, colluders):
    """How often each view of the colluders occurs when all combinations of words occur once.

    Words and secrets are multiples of 2**64 / modulus. These form the integers modulo `modulus`
    inside those modulo 2**64: the protocol's own code runs on a modulus small enough to enumerate,
    on arrays with one entry per combination.
    """
    unit = np.uint64(2**64 // modulus)
    places = n * (n - 1)
    every = np.array(list(itertools.product(range(modulus), repeat=places)), dtype=np.uint64).T
    drawn = iter(every * unit)
    size = every.shape[1]
    together = protocol(n, (size,))
    sent = []
    for name, secret in zip(together.agents, secrets, strict=True):
        source = Words(*np.concatenate([next(drawn) for _ in range(n - 1)]))
        shares = split(np.full(size, secret, dtype=np.uint64) * unit, n, source)
        sent += [
            Share(name, other, 0, part) for other, part in zip(together.agents, shares, strict=True)
        ]
    partials = [
        together.partial(name, [s for s in sent if s.receiver == name]) for name in together.agents
    ]
    seen = [s.words for s in sent if s.sender in colluders or s.receiver in colluders]
    rows = np.stack([*seen, *(p.words for p in partials)], axis=1)
    found, counts = np.unique(rows, axis=0, return_counts=True)
    return found.tolist(), counts.tolist()


@pytest.mark.parametrize(("n", "modulus"), [(3, 2), (3, 4), (4, 2)])
def test_views_of_all_but_two_depend_on_the_sum_only(n, modulus):
    names = tuple("abcd"[:n])
    for honest in itertools.combinations(range(n), 2):
        colluders = [name for i, name in enumerate(names) if i not in honest]
        for both in range(modulus):
            found = []
            for a in range(modulus):
                secrets = [1] * n
                secrets[honest[0]], secrets[honest[1]] = a, (both - a) % modulus
                found.append(views(n, modulus, secrets, colluders))
            assert all(other == found[0] for other in found[1:])


def test_views_differ_where_the_sum_does():
    assert views(3, 4, (0, 1, 1), "c") != views(3, 4, (0, 2, 1), "c")
    # Nor are two colluders of three kept in the dark: one combination of what they see is a secret.
    assert views(3, 4, (0, 1, 1), "bc") != views(3, 4, (1, 0, 1), "bc")


def test_messages_do_not_show_their_words():
    together = protocol(3)
    sent = together.shares("a", 2.5, stream(3))
    for share in sent:
        assert str(int(share.words)) not in repr(share) and "a" in repr(share)
        assert pickle.loads(pickle.dumps(share)).words == share.words
    partial = Partial("a", 0, sent[0].words)
    assert str(int(partial.words)) not in repr(partial)


# Messages that are missing, too many or astray ------------------------------------------------


@pytest.fixture
def one_round():
    together = protocol(4)
    values = dict(zip(NAMES, [1.0, 2.0, 3.0, 4.0], strict=True))
    _, sent, partials = in_one_place(together, values, stream(7))
    return together, [s for s in sent if s.receiver == "b"], list(partials)


def test_the_order_of_messages_does_not_matter(one_round):
    together, shares, partials = one_round
    assert together.partial("b", shares[::-1]).words == partials[1].words
    assert together.total(partials[::-1]) == 10.0


def test_dropout_names_the_agents(one_round):
    together, shares, partials = one_round
    with pytest.raises(dp.ModelError, match="No share for 'b' has come from 'c'.*repeat the round"):
        together.partial("b", [s for s in shares if s.sender != "c"])
    with pytest.raises(dp.ModelError, match="No sum of shares has come from 'a', 'd'"):
        together.total(partials[1:3])
    with pytest.raises(dp.ModelError, match="'a', 'b', 'c', 'd'"):
        together.total([])


def test_repeated_and_strange_messages_are_refused(one_round):
    together, shares, partials = one_round
    with pytest.raises(dp.ModelError, match="Agent 'd' is there with more than one share for 'b'"):
        together.partial("b", [*shares, shares[3]])
    with pytest.raises(dp.ModelError, match="Agent 'a' is there with more than one sum of shares"):
        together.total([*partials, partials[0]])
    with pytest.raises(dp.ModelError, match="share of agent 'a' for agent 'b'.*receivers only"):
        together.partial("c", shares)
    with pytest.raises(dp.ModelError, match="'x', sender of a share, does not take part"):
        together.partial("b", [*shares, replace(shares[0], sender="x")])
    with pytest.raises(dp.ModelError, match="'x', receiver of shares"):
        together.partial("x", shares)
    with pytest.raises(dp.ModelError, match="agent 'a' is of round 3, not of 0"):
        together.partial("b", [replace(shares[0], round=3), *shares[1:]])
    with pytest.raises(
        dp.ModelError, match="share of agent 'a' has the shape \\(2,\\), not \\(\\)"
    ):
        together.partial("b", [replace(shares[0], words=np.zeros(2, np.uint64)), *shares[1:]])
    with pytest.raises(dp.ModelError, match="must be an array of uint64"):
        together.partial("b", [replace(shares[0], words=np.zeros(())), *shares[1:]])


def test_an_altered_message_is_noticed_if_the_total_cannot_be(one_round):
    together, _, partials = one_round
    altered = replace(partials[0], words=partials[0].words + np.array(2**62, dtype=np.uint64))
    with pytest.raises(dp.ModelError, match="altered"):
        together.total([altered, *partials[1:]])


def test_senders_and_their_values_are_checked(one_round):
    together, _, _ = one_round
    with pytest.raises(dp.ModelError, match="'x', sender of shares"):
        together.shares("x", 1.0)
    with pytest.raises(dp.DataError, match="agent 'a' have the shape \\(2,\\)"):
        together.shares("a", [1.0, 2.0])


def test_rounds_are_told_apart():
    second = replace(protocol(3), round=2)
    assert {s.round for s in second.shares("a", 1.0, stream(0))} == {2}


# Who takes part -----------------------------------------------------------------------------


@pytest.mark.parametrize("agents", [("a", "b"), ("a",), ("a", "b", "a")])
def test_two_agents_have_nothing_to_hide_from_each_other(agents):
    with pytest.raises(dp.ModelError, match="three different names or more"):
        SecretSum(agents, Encoding(1.0, GRID, 3))


def test_the_encoding_must_be_for_as_many_agents():
    with pytest.raises(dp.ModelError, match="Write parties=4"):
        SecretSum(NAMES, Encoding(1.0, GRID, 3))


def test_splitting_checks_its_arguments():
    with pytest.raises(dp.ModelError, match="A single share is the value"):
        split(np.zeros(2, np.uint64), 1)
    with pytest.raises(dp.ModelError, match="must be an array of uint64"):
        split(np.zeros(2), 3)
