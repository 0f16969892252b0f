"""Noise that is split over agents: the lemma, the law of sums, and where they wrap around."""

import math

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import dpcvx as dp
from dpcvx.privacy.mechanism import Calibrated
from dpcvx.privacy.noise import grid_for
from dpcvx.privacy.randomness import source_for
from dpcvx.privacy.secret_sharing import Residues, SecretSum, combine
from dpcvx.privacy.split_noise import (
    BITS,
    LEAST,
    SplitNoise,
    residues,
    split_noise,
)


def noise(parties=5, colluders=1, multiplier=3.0, sensitivity=1.0, width=2.0**-12):
    scale = multiplier * sensitivity / math.sqrt(parties - colluders)
    return Calibrated(dp.Gaussian(), multiplier, split=SplitNoise(parties, colluders, width, scale))


def rounded(s, reach):
    """The law of round(s Y)."""
    edges = {k: mp.ncdf((k - mp.mpf(1) / 2) / s) for k in range(-reach, reach + 2)}
    return {k: edges[k + 1] - edges[k] for k in range(-reach, reach + 1)}


def density(n, S, uniforms):
    """Of S Y plus two or three uniforms, by differences of iterated integrals of the normal."""

    def integral(x):
        phi, Phi = S * mp.npdf(x / S), mp.ncdf(x / S)
        return x * Phi + phi if uniforms == 2 else ((x * x + S * S) * Phi + x * phi) / 2

    return mp.fsum(
        (-1) ** j * mp.binomial(uniforms, j) * integral(n + mp.mpf(uniforms) / 2 - j)
        for j in range(uniforms + 1)
    )


def departure(parties, scale):
    """The tau of the lemma: sums have rounded normal noise's probabilities up to 1 +- tau."""
    product = mp.mpf(1)
    for k in range(1, parties):
        rate = 2 * (mp.pi * scale) ** 2 * k / (k + 1)
        product *= mp.jtheta(3, 0, mp.exp(-rate))  # 1 + 2 sum_j q^(j^2)
    return product - 1


@pytest.mark.parametrize("parties", [2, 3])
@pytest.mark.parametrize("scale", ["0.4", "0.7", "1", "1.5"])
def test_sums_are_as_likely_as_roundings_of_one_normal_to_60_digits(parties, scale):
    with mp.workdps(60):
        s = mp.mpf(scale)
        reach = int(18 * s) + 2  # beyond it lies less than 1e-70
        one = law = rounded(s, reach)
        for _ in range(parties - 2):
            span = range(-2 * reach, 2 * reach + 1)
            law = {n: mp.fsum(p * one.get(n - k, 0) for k, p in law.items()) for n in span}
        tau, S = departure(parties, s), s * mp.sqrt(parties)
        found = [
            mp.fsum(p * one.get(n - k, 0) for k, p in law.items()) / density(n, S, parties) - 1
            for n in range(int(3 * S) + 3)
        ]
        assert max(abs(ratio) for ratio in found) <= tau
        # The bound is not idle: measured are 0.84 to 0.47 of it, for two agents.
        assert parties > 2 or max(abs(ratio) for ratio in found) > 0.4 * tau


def test_what_the_lemma_leaves_is_below_the_margin_of_calibration():
    # Over the smallest budget, as many agents and values as one could count.
    with mp.workdps(400):
        each = departure(50, mp.mpf(LEAST))
        assert 0 < each < 3 * 50 * mp.exp(-631)
        assert 1e100 * 2 * each < 1e-11 * 1e-100


@pytest.mark.parametrize(("louder", "plausible"), [(1.0, True), (1.1, False), (0.9, False)])
def test_the_sum_of_honest_parts_has_the_noise_that_was_promised(louder, plausible):
    # Of right noise one seed in a million is rejected; noise off by a tenth always is.
    calibrated = noise()
    one = calibrated.grid(0.9, 20000)
    wrong = Calibrated(dp.Gaussian(), 3.0, split=calibrated.split.times(louder))
    value = np.zeros(20000)
    parts = [
        wrong.release(value, wrong.grid(0.0, 20000), source_for(7, (i,)).at(1, 1)) for i in range(4)
    ]
    assert one.scale == pytest.approx(3.0 / 2)
    assert np.array_equal(np.rint(parts[0] / one.width), parts[0] / one.width)
    p = stats.kstest(np.sum(parts, axis=0) / 3.0, "norm").pvalue
    assert (p > 1e-6) == plausible


@given(st.lists(st.integers(-(2**62), 2**62), min_size=3, max_size=6))
def test_a_sum_shows_its_residue_and_nothing_else(terms):
    encoding = Residues(1e300, 1.0, len(terms))
    terms = [int(float(term)) for term in terms]
    words = [encoding.encode(np.array([float(term)])) for term in terms]
    exact = sum(terms)
    total = encoding.decode(combine(words))
    assert -(2 ** (BITS - 1)) <= total[0] < 2 ** (BITS - 1)
    assert (int(total[0]) - exact) % 2**BITS == 0
    # Terms that differ by a multiple of the modulus cannot be told apart.
    for term, word in zip(terms, words, strict=True):
        assert np.array_equal(word, encoding.encode(np.array([float(term % 2**BITS)])))


@given(st.integers(-(2**53), 2**53))
def test_residues_are_the_nearest_to_zero(n):
    (found,) = residues(np.array([float(n)]))
    assert (int(found) - n) % 2**BITS == 0
    assert -(2 ** (BITS - 1)) <= found < 2 ** (BITS - 1)


@pytest.mark.filterwarnings("error")
def test_large_values_wrap_around_and_are_not_clipped():
    calibrated = noise()
    grid = calibrated.grid(0.9, 4)
    modulus = 2.0**BITS * grid.width
    stream = source_for(3, (0,))
    small = np.array([0.0, 1.0, -2.0, 5.0])
    same = calibrated.release(small, grid, stream.at(1, 1))
    far = calibrated.release(small + modulus, grid, stream.at(1, 1))
    assert np.array_equal(same, far)
    edge = calibrated.release(np.full(1, modulus / 2), calibrated.grid(0.9, 1), stream.at(1, 2))
    assert abs(edge[0]) < modulus / 2 + grid.width
    odd = calibrated.release(np.array([np.nan, np.inf, -np.inf, 0.0]), grid, stream.at(1, 3))
    assert np.isfinite(odd).all()


def test_a_secret_sum_adds_up_what_agents_send_with_their_noise():
    calibrated, names = noise(3), ("a", "b", "c")
    grid, r = calibrated.grid(0.9, 6), np.random.default_rng(0)
    sent = [
        calibrated.release(r.uniform(-5, 5, 6), grid, source_for(1, (i,)).at(1, 1))
        for i in range(3)
    ]
    sums = SecretSum(names, Residues(100.0, grid.width, 3), (6,))
    shares = [sums.shares(name, own) for name, own in zip(names, sent, strict=True)]
    partials = [sums.partial(name, [row[j] for row in shares]) for j, name in enumerate(names)]
    assert np.array_equal(sums.total(partials), np.sum(sent, axis=0))
    tight = SecretSum(names, Residues(1.0, grid.width, 3), (6,))
    with pytest.raises(dp.ModelError, match="declare a larger limit"):
        tight.total([tight.partial(n, [row[j] for row in shares]) for j, n in enumerate(names)])


@given(st.integers(3, 60), st.data())
def test_a_part_is_what_the_sum_needs_over_the_root_of_the_honest(parties, data):
    colluders = data.draw(st.integers(1, parties - 2))
    calibrated = noise(parties, colluders)
    assert calibrated.split.together == pytest.approx(3.0)
    assert calibrated.alone.multiplier == pytest.approx(3.0 / math.sqrt(parties - colluders))
    assert calibrated.alone.split is None
    assert calibrated.variance(0.7) == pytest.approx(9.0 / (parties - colluders))


NEEDED = [(3.0, 1.0), (2.0, 4.0)]


@pytest.mark.parametrize("factor", [1.0, 1e-6])
@pytest.mark.parametrize("least", [1.0, 0.01])
@pytest.mark.parametrize("size", [1, 1000])
def test_a_part_is_as_large_as_the_agent_needs_that_needs_most_with_rounding(factor, least, size):
    """Of little noise the grid is as fine as the noise of the last release wants it."""
    needed = [(factor * multiplier, move) for multiplier, move in NEEDED]
    usual = grid_for(4.0, size, 2, 2.0 * factor).width
    for width in (None, usual / 2**14):
        part = split_noise(needed, 5, 1, size, width, least)
        assert math.log2(part.width).is_integer() and width in (None, part.width)
        assert part.scale * least >= LEAST * part.width
        sums = [multiplier * (move + part.width * math.sqrt(size)) for multiplier, move in needed]
        assert part.scale * 2 == part.together == pytest.approx(max(sums), rel=1e-12)
        if width is None:
            coarse = 4 * part.width
            assert part.width <= usual < coarse or coarse * LEAST > least * part.scale
    whole = split_noise(needed, 5, 1, size, None)
    assert whole == split_noise(needed, 5, 1, size, None, 1.0)


def test_a_width_that_the_last_release_does_not_allow_is_refused():
    split_noise(NEEDED, 5, 1, 4, 0.25, 0.6)
    with pytest.raises(dp.PrivacyError, match=r"resolution=2\.0\*\*-1000"):
        SplitNoise(5, 1, 1.0, 0.0)
    with pytest.raises(dp.PrivacyError, match="resolution"):
        split_noise(NEEDED, 5, 1, 4, 0.25, 0.4)


def test_sums_of_all_agents_stay_within_half_of_the_residues():
    part, half = SplitNoise(5, 1, 2.0**-12, 3.0), 2.0 ** (BITS - 1 - 12)
    assert part.room == half / (2 * 5)
    assert part.reach(10.0) == 10.0 + 12 * 3.0
    most = half / 5 - 12 * 3.0
    assert part.reach(most * (1 - 1e-9)) < half / 5
    with pytest.raises(dp.ModelError, match="wrap around"):
        part.reach(most * (1 + 1e-9))


def test_noise_too_small_for_its_grid_or_for_a_question_is_refused():
    SplitNoise(5, 1, 1.0, 8.0)
    with pytest.raises(dp.PrivacyError, match=r"resolution=2\.0\*\*-1\) or finer"):
        SplitNoise(5, 1, 1.0, 7.9)
    with pytest.raises(dp.PrivacyError, match=r"resolution=2\.0\*\*-4\) or finer"):
        SplitNoise(5, 1, 1.0, 0.5)
    with pytest.raises(dp.PrivacyError, match="does not fit the distributed noise"):
        noise().grid(1.1, 6)
    with pytest.raises(dp.PrivacyError, match="does not fit the distributed noise"):
        noise().grid(0.9, 6, floor=1.0)
    with pytest.raises(dp.ModelError, match="wrap around"):
        noise().split.reach(1e12)
    assert noise().split.reach(100.0) > 100.0


def test_queries_that_follow_from_earlier_sums_cost_no_more():
    """The exact law of two sums; what the second asks depends on the first.

    The exact delta of every epsilon is that of Gaussian noise with both multipliers, or less.
    """
    s, move, reach = 8.0, 5, 110
    steps = np.arange(-reach, reach + 1)
    one = np.diff(stats.norm.cdf((np.arange(-reach, reach + 2) - 0.5) / s))
    law = np.convolve(one, one)  # two honest parts
    k = np.arange(-2 * reach, 2 * reach + 1)
    assert len(k) == len(law) == 2 * len(steps) - 1

    def joint(change):
        def moved(by):
            return np.roll(law, by)

        first = moved(move * change)[:, np.newaxis]
        asked = np.where(k > 2, 1, -1)  # the second query, by the first sum
        second = np.stack([moved(move * change * sign) for sign in asked])
        return first * second

    p, q = joint(0), joint(1)
    mu = math.sqrt(2) * move / (s * math.sqrt(2))
    for epsilon in (0.1, 0.5, 1.0, 2.0, 4.0):
        for a, b in ((p, q), (q, p)):
            exact = np.maximum(a - math.exp(epsilon) * b, 0.0).sum()
            bound = stats.norm.cdf(mu / 2 - epsilon / mu)
            bound -= math.exp(epsilon) * stats.norm.cdf(-mu / 2 - epsilon / mu)
            assert 0.9 * bound < exact <= bound * (1 + 1e-9) + 1e-15


def test_noise_that_falls_is_split_in_every_round():
    mechanism = dp.Gaussian(noise_multiplier=3.0, decay=0.5)
    calibrated = Calibrated(mechanism, 3.0, split=SplitNoise(5, 1, 2.0**-12, 1.5))
    third = calibrated.at(3)
    assert third.multiplier == 0.75
    assert third.split.scale == 1.5 / 4
    assert third.grid(0.99, 6).scale == 1.5 / 4
