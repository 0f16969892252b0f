"""Words: streams that a seed repeats and no other, fresh words, fair coins, uniform numbers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dpcvx.privacy.randomness import PublicCoins, Secure, Seeded, source_for, together, uniform
from tests.helpers import Words
from tests.privacy.test_noise import DRAWS, LEVEL, ONES, SMALL, correlation


def numbers(seed, key, round, step):
    return Seeded(seed, key).at(round, step).words(DRAWS) * 2.0**-64


def test_the_same_seed_key_and_place_give_the_same_words():
    one, two = Seeded(7, (3,)), Seeded(7, (3,))
    one.at(9, 9).words(5)  # whatever was drawn before
    assert np.array_equal(one.at(2, 1).words(50), two.at(2, 1).words(50))


def test_drawing_in_parts_continues_one_stream():
    parts, whole = Seeded(5, (0,)).at(1, 1), Seeded(5, (0,)).at(1, 1)
    assert np.array_equal(np.concatenate([parts.words(3), parts.words(4)]), whole.words(7))


@pytest.mark.parametrize(
    "other",
    [(8, (3,), 2, 1), (7, (4,), 2, 1), (7, (3, 0), 2, 1), (7, (3,), 3, 1), (7, (3,), 2, 2),
     (3, (7,), 2, 1), (7, (3,), 1, 2), (7, (2,), 3, 1), (7, (), 2, 1)],
)  # fmt: skip
def test_another_seed_key_round_or_step_gives_uncorrelated_words(other):
    assert correlation(numbers(7, (3,), 2, 1), numbers(*other)) < SMALL


@pytest.mark.parametrize("source", [Secure(), Seeded(1, (0,))], ids=["secure", "seeded"])
def test_every_bit_of_a_word_is_fair_and_on_its_own(source):
    bits = np.unpackbits(source.at(1, 1).words(DRAWS).view(np.uint8)).reshape(DRAWS, 64)
    # Standard error of a mean is 0.0016; 6 of them, for each of 64: level 1.3e-7.
    assert np.abs(bits.mean(axis=0) - 0.5).max() < 0.0095
    # 2016 pairs, 6 standard errors of 0.0032 each: level 4e-6.
    correlations = np.corrcoef(bits.T) - np.eye(64)
    assert np.abs(correlations).max() < 0.019


def test_without_a_seed_every_word_is_fresh():
    source = source_for(None, (0,))
    first = source.at(1, 1).words(4)
    assert first.dtype == np.uint64 and first.shape == (4,)
    assert not np.isin(source.at(1, 1).words(4), first).any()
    assert not np.isin(source_for(None, (0,)).at(1, 1).words(4), first).any()


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**160),
    key=st.lists(st.integers(0, 2**64), max_size=4),
    places=st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=4),
    at=st.tuples(st.integers(0, 2**33), st.integers(0, 2**33)),
    sizes=st.lists(st.integers(0, 9), min_size=1, max_size=3),
)
def test_streams_together_are_those_of_each_by_itself(seed, key, places, at, sizes):
    sources = [Seeded(seed, (*key, place)) for place in places]
    apart, streams = [source.at(*at) for source in sources], together(sources).at(*at)
    assert len(streams) == len(places)
    for size in sizes:
        expected = np.stack([stream.words(size) for stream in apart])
        assert np.array_equal(streams.words(size), expected)
    # What one draws by itself goes on, and over.
    last = streams.one(len(places) - 1)
    assert np.array_equal(last.words(5), apart[-1].words(5))
    assert np.array_equal(streams.one(len(places) - 1).words(3), apart[-1].words(3))


def test_streams_together_without_a_seed_are_fresh():
    streams = together([source_for(None, (k,)) for k in range(3)]).at(1, 1)
    drawn = [streams.words(4), streams.words(4), streams.one(0).words(8)]
    assert drawn[0].shape == (3, 4)
    assert np.unique(np.concatenate([words.ravel() for words in drawn])).size == 32


def test_with_a_seed_the_key_is_kept():
    assert np.array_equal(
        source_for(7, (3, 1)).at(2, 1).words(9), Seeded(7, (3, 1)).at(2, 1).words(9)
    )
    assert not np.array_equal(
        source_for(7, (3,)).at(2, 1).words(9), Seeded(7, (3, 1)).at(2, 1).words(9)
    )


def coins(seed, *given):
    return PublicCoins(Words(*given) if given else source_for(seed, (0,)).at(0, 0))


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 10, 64])
def test_coins_are_uniform(limit):
    """Levels over the choice of the seed: 1e-4 per limit."""
    drawn = [coins(limit).below(limit) for _ in range(2)]
    assert drawn[0] == drawn[1]
    flipped = coins(limit)
    counts = np.bincount([flipped.below(limit) for _ in range(3000)], minlength=limit)
    assert len(counts) == limit
    if limit > 1:
        assert stats.chisquare(counts).pvalue > 1e-4


def test_permutations_are_uniform():
    shuffler, counts = coins(5), {}
    for _ in range(3000):
        order = tuple(shuffler.shuffled(4))
        counts[order] = counts.get(order, 0) + 1
    assert len(counts) == 24 and all(sorted(order) == [0, 1, 2, 3] for order in counts)
    # Over the choice of the seed, level 1e-4.
    assert stats.chisquare(list(counts.values())).pvalue > 1e-4


def test_a_coin_that_is_not_fair_would_be_noticed():
    """Shuffling with any partner instead of the ones not yet placed, and a biased coin."""
    flipped, counts = coins(6), np.zeros(6)
    for _ in range(3000):
        order = [0, 1, 2]
        for i in range(3):
            j = flipped.below(3)
            order[i], order[j] = order[j], order[i]
        counts[order[0] * 2 + (order[1] > order[2])] += 1
    assert stats.chisquare(counts).pvalue < 1e-4
    biased = np.bincount([flipped.below(13) % 10 for _ in range(3000)])
    assert stats.chisquare(biased).pvalue < 1e-4


def test_words_beyond_the_last_whole_multiple_are_drawn_again():
    # 2^64 - 1 is a multiple of 3, 2^64 - 2 one of 7.
    assert coins(None, ONES, 5).below(3) == 2
    assert coins(None, ONES, ONES - 1, 8).below(7) == 1
    assert coins(None, ONES - 1).below(3) == (ONES - 1) % 3
    assert coins(None, ONES).below(2**32) == 2**32 - 1
    source = Words(7)
    assert PublicCoins(source).below(1) == 0 and source.drawn == 1


def test_the_next_coins_go_on_in_the_stream():
    words = [int(w) for w in Seeded(9, (1,)).at(0, 0).words(3)]
    flipped = PublicCoins(Seeded(9, (1,)).at(0, 0))
    assert [flipped.below(2**16) for _ in range(3)] == [w % 2**16 for w in words]
    assert coins(None).below(10) in range(10)
    assert coins(3).shuffled(0) == [] and coins(3).shuffled(1) == [0]
    assert coins(3).shuffled(9) == coins(3).shuffled(9) != coins(4).shuffled(9)


def test_secret_weights_have_53_bits_and_lie_below_one():
    values = uniform(3, Words(0, 2**63, ONES))
    assert values.tolist() == [0.0, 0.5, 1 - 2.0**-53]
    values = uniform(DRAWS, Seeded(1, (0,)).at(1, 0))
    assert np.array_equal(values * 2.0**53, np.rint(values * 2.0**53))
    # As for the other draws: level 1e-6; a factor of 0.99 moves the distribution function by 0.01.
    assert stats.kstest(values, stats.uniform().cdf).pvalue > LEVEL
    assert stats.kstest(0.99 * values, stats.uniform().cdf).pvalue < LEVEL
    one, other = values.reshape(2, -1)
    assert abs(np.corrcoef(one, other)[0, 1]) < 5 / np.sqrt(DRAWS / 2)


def test_secret_weights_are_fresh_without_a_seed():
    drawn = np.concatenate([uniform(50, source_for(None, (0,)).at(1, 0)) for _ in range(2)])
    assert len(set(drawn)) == 100
