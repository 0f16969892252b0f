"""Staircase noise: exact draws, exact probabilities, and the loss between neighbors."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dpcvx as dp
from dpcvx.errors import PrivacyError
from dpcvx.privacy.mechanism import Calibrated
from dpcvx.privacy.noise import on_grid, staircase_rows
from dpcvx.privacy.randomness import Alone, Seeded
from tests.helpers import Words

ONES = 2**64 - 1
# Epsilon, steps, and those of half of the first stair.
CASES = [(1.0, 2**17, 54000), (10.0, 2**17, 3705), (1 / 3, 97, 41), (30.0, 2**17, 1)]
CASES += [(3.0, 1, 1), (1e-3, 2**20, 2**19), (800.0, 2**17, 1), (2.5, 7, 7), (1e-7, 2**16, 2**15)]
cases = pytest.mark.parametrize(("epsilon", "steps", "narrow"), CASES)


def drawn(epsilon, steps, narrow, us, vs):
    """One draw, from digits of U and V."""
    source = Words(*(word for pair in zip(us, vs, strict=True) for word in pair))
    return int(staircase_rows(epsilon, steps, narrow, 1, Alone(source))[0, 0])


def number(words):
    digits = 0
    for word in words:
        digits = (digits << 64) + int(word)
    return mpmath.ldexp(2 * digits + 1, -64 * len(words) - 1)


def reference(epsilon, steps, narrow, us, vs):
    """The same from the definition, in as many digits as there are."""
    with mpmath.workprec(64 * len(us) + 400):
        u, v, fall = number(us), number(vs), mpmath.exp(-mpmath.mpf(epsilon))
        k = int(mpmath.floor(-mpmath.log(u) / mpmath.mpf(epsilon)))
        t = (2 * v - (v >= 0.5)) * (narrow + (steps - narrow) * fall)
        j = t if t < narrow else narrow + (t - narrow) / fall
        magnitude = k * steps + min(int(mpmath.floor(j)), steps - 1)
        return magnitude if v >= 0.5 else -1 - magnitude


def level(z, steps, narrow):
    return ((z if z >= 0 else -1 - z) + steps - narrow) // steps


@cases
def test_draws_are_those_of_the_definition(epsilon, steps, narrow):
    words = np.random.default_rng(1).integers(2**64, size=(2, 100, 4), dtype=np.uint64)
    for us, vs in zip(*words.tolist(), strict=True):
        assert drawn(epsilon, steps, narrow, us, vs) == reference(epsilon, steps, narrow, us, vs)


@cases
@pytest.mark.parametrize("tail", [0, ONES])
def test_words_at_the_edges_are_drawn_exactly(epsilon, steps, narrow, tail):
    for u in (1, 2**11, 2**53 + 1, 2**62, 2**63, ONES - 1, ONES):
        for v in (0, 1, 2**62, 2**63 - 1, 2**63, 2**63 + 1, 3 * 2**62, ONES - 1):
            us, vs = [u, tail, tail, tail], [v, tail, tail, tail]
            if (epsilon, tail) == (800.0, ONES) and v in (2**63 - 1, ONES - 1):
                continue  # W within e^-800 of its end takes more words than these
            exact = reference(epsilon, steps, narrow, us, vs)
            assert drawn(epsilon, steps, narrow, us, vs) == exact


def split(value, words):
    """The digits of a number between 0 and 1."""
    digits = int(mpmath.floor(mpmath.ldexp(value, 64 * words)))
    return [(digits >> (64 * k)) & ONES for k in reversed(range(words))]


@pytest.mark.parametrize(("epsilon", "steps", "narrow"), CASES[:6])
def test_each_integer_is_drawn_from_words_of_exactly_its_probability(epsilon, steps, narrow):
    # The set of (U, W) that give k D + j is a rectangle. It is tried at 2**-190 on both sides of
    # its edges: its area is then (1 - b) b^k times the weight of j over the sum of weights.
    with mpmath.workprec(1000):
        tiny, b = mpmath.ldexp(1, -190), mpmath.exp(-mpmath.mpf(epsilon))
        total = narrow + (steps - narrow) * b
        for k in (1, 2, 5):
            for j in {1, narrow - 1, narrow, narrow + 1, steps // 2, steps - 1} & set(range(steps)):
                edge = b**k
                start = (j if j < narrow else narrow + (j - narrow) * b) / total
                if j == 0 or edge < 2.0**-60:
                    continue
                for u_side, w_side in ((1, 1), (1, -1), (-1, 1), (-1, -1)):
                    us = split(edge + u_side * tiny, 3)
                    vs = split((1 + start + w_side * tiny) / 2, 3)
                    away = (k - (u_side > 0)) * steps + j - (w_side < 0)
                    assert drawn(epsilon, steps, narrow, us, vs) == away


@pytest.mark.parametrize(("steps", "narrow"), [(1, 1), (5, 2), (7, 7), (8, 1)])
def test_probabilities_of_the_rectangles_are_those_of_levels(steps, narrow):
    b = Fraction(1, 3)  # e^-epsilon; the identities are polynomial in it
    inner = narrow + (steps - narrow) * b
    outer = 2 * (narrow + steps * b / (1 - b))
    summed = Fraction(0)
    for k in range(6):
        for j in range(steps):
            area = (1 - b) * b**k * (1 if j < narrow else b) / inner / 2
            assert area == b ** level(k * steps + j, steps, narrow) / outer
            summed += 2 * area
    assert 1 - summed == b**6


@pytest.mark.parametrize(("steps", "narrow"), [(1, 1), (5, 2), (7, 7), (8, 1), (33, 12)])
def test_no_shift_within_the_steps_moves_the_level_by_more_than_one(steps, narrow):
    z = range(-6 * steps, 6 * steps)
    levels = {i: level(i, steps, narrow) for i in range(-9 * steps, 9 * steps)}
    moves = {
        shift: max(abs(levels[i + shift] - levels[i]) for i in z) for shift in range(2 * steps + 2)
    }
    assert moves[0] == 0
    assert all(moves[shift] == 1 for shift in range(1, steps + 1))
    assert moves[steps + 1] == 2  # the loss is epsilon for the sensitivity, and more beyond


@given(
    sensitivity=st.floats(1e-6, 1e6),
    multiplier=st.floats(1e-3, 1e6),
    size=st.integers(1, 50),
    start=st.floats(-1e6, 1e6),
    part=st.floats(-1, 1),
)
def test_rounded_neighbors_are_within_the_steps(sensitivity, multiplier, size, start, part):
    mechanism = dp.Staircase()
    grid = Calibrated(mechanism, multiplier).grid(sensitivity, size)
    exact = Fraction(start) + Fraction(part) * Fraction(sensitivity)
    other = float(exact)
    if abs(Fraction(other) - Fraction(start)) > Fraction(sensitivity):
        other = math.nextafter(other, start)
    one, two = on_grid(np.array([start, other]), grid).tolist()
    assert abs(one - two) <= mechanism.steps(grid)
    # Neighbors at the middle of two steps are rounded farthest apart.
    edge = grid.width / 2
    moved = on_grid(np.array([-edge * (1 + 1e-12), sensitivity - edge * (1 + 1e-12)]), grid)
    assert abs(int(moved[1] - moved[0])) <= mechanism.steps(grid)


@pytest.mark.parametrize("error", ["squared", "absolute"])
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 3.0, 10.0])
def test_the_loss_between_all_neighbors_on_the_grid_is_epsilon(error, epsilon):
    # All of the road from values to probabilities: the grid, rounding, steps, levels.
    mechanism = dp.Staircase(error=error)
    calibrated = Calibrated(mechanism, 1 / epsilon)
    grid = calibrated.grid(0.37, 1)
    steps = mechanism.steps(grid)
    narrow = min(max(1, round(mechanism.first(1 / epsilon) * steps)), steps)
    rng = np.random.default_rng(2)
    values = rng.uniform(-1, 1, 300)
    others = values + 0.37 * rng.choice([-1, 1, -0.999999, 0.5], 300)
    a, b = on_grid(values, grid), on_grid(others, grid)
    # Losses change at edges of stairs only, seen from either value.
    edges = np.array([-steps - narrow, -narrow, 0, narrow, narrow + steps])[:, None]
    seen = np.concatenate([side + edges + near for side in (a, b) for near in (-1, 0)])

    def levels(z):
        return (np.where(z >= 0, z, -1 - z) + steps - narrow) // steps

    losses = np.abs(levels(seen - b) - levels(seen - a)).max(axis=0)
    assert losses.max() == 1 and losses[np.abs(a - b) > 0].min() == 1


@pytest.mark.parametrize("error", ["squared", "absolute"])
@pytest.mark.parametrize("epsilon", [1e-3, 0.3, 1.0, 3.0, 10.0, 20.0])
def test_the_first_stair_minimizes_the_expected_error(error, epsilon):
    def expected(first):
        b = mpmath.exp(-mpmath.mpf(epsilon))
        power = 2 if error == "squared" else 1
        total, moment = first + b * (1 - first), mpmath.mpf(0)
        sums = [1 / (1 - b), b / (1 - b) ** 2, b * (1 + b) / (1 - b) ** 3]
        for i in range(power + 1):  # of k^i times what is left of (k + x)^power
            rest = power + 1 - i
            inner = (first**rest + b * (1 - first**rest)) / rest
            moment += mpmath.binomial(power, i) * sums[i] * inner
        return moment / total / sums[0]

    with mpmath.workprec(200):
        mechanism = dp.Staircase(error=error)
        first = mechanism.first(1 / epsilon)
        best = expected(mpmath.mpf(first))
        assert best <= min(expected(first * (1 + s)) for s in (-1e-3, 1e-3))
        if error == "squared":
            assert mechanism.variance(1 / epsilon) == pytest.approx(float(best), rel=1e-9)
        else:  # Geng and Viswanath's closed form
            half = mpmath.exp(mpmath.mpf(epsilon) / 2)
            assert float(best) == pytest.approx(float(half / (half**2 - 1)), rel=1e-12)


@pytest.mark.parametrize("epsilon", [1.0, 3.0, 10.0])
def test_released_noise_has_the_stated_variance_and_law(epsilon):
    # 40,000 draws: a magnitude of Laplace's law has the standard error 0.005. Five of these: 6e-7.
    mechanism = dp.Staircase()
    calibrated = Calibrated(mechanism, 1 / epsilon)
    grid = calibrated.grid(0.5, 40_000)
    noise = calibrated.release(np.full(40_000, 7.25), grid, Seeded(3, (0,)).at(1, 1)) - 7.25
    magnitudes = mechanism.magnitudes(noise / grid.sensitivity, 1 / epsilon)
    assert abs(magnitudes.mean() - 1) < 0.025 and abs((magnitudes**2).mean() - 2) < 0.12
    uniform = (np.arange(400_000) + 0.5) / 400_000
    simulated = mechanism.simulated(
        uniform, 1 / epsilon, math.sqrt(mechanism.variance(1 / epsilon))
    )
    assert (simulated**2).mean() == pytest.approx(mechanism.variance(1 / epsilon), rel=1e-3)
    again = mechanism.magnitudes(simulated, 1 / epsilon)
    assert np.allclose(again, -np.log1p(-2 * np.abs(uniform - 0.5)), rtol=1e-6, atol=1e-8)


def test_the_error_is_that_of_laplace_noise_at_epsilon_one_and_much_smaller_at_ten():
    ratios = [
        dp.Laplace().variance(1 / epsilon) / dp.Staircase().variance(1 / epsilon)
        for epsilon in (0.1, 1, 3, 10)
    ]
    assert [round(ratio, 2) for ratio in ratios] == [1.0, 1.04, 1.46, 23.61]


def test_an_agent_in_a_batch_has_the_noise_that_it_has_alone():
    class Streams(list):
        def words(self, size):
            return np.stack([source.words(size) for source in self])

        def one(self, i):
            return self[i]

    rows = staircase_rows(1.0, 2**17, 50_000, 5, Streams(Seeded(1, (i,)).at(1, 1) for i in (0, 1)))
    for i in (0, 1):
        alone = staircase_rows(1.0, 2**17, 50_000, 5, Alone(Seeded(1, (i,)).at(1, 1)))
        assert rows[i].tolist() == alone[0].tolist()


def test_levels_that_are_none_are_refused():
    assert dp.Staircase(release_epsilon=0.25).per_step() == 4.0
    assert dp.Staircase(noise_multiplier=3).per_step() == 3.0
    assert dp.Staircase().per_step() is None
    for wrong in ({"release_epsilon": 0}, {"noise_multiplier": -1.0}, {"error": "cubed"}):
        with pytest.raises(PrivacyError):
            dp.Staircase(**wrong)
    with pytest.raises(PrivacyError, match="not both"):
        dp.Staircase(release_epsilon=1.0, noise_multiplier=1.0)
