"""The random linear term of objective perturbation: its law, its price, and how exact it is."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dpcvx.privacy.linear_term import LinearTerm, Magnitudes, linear_term
from dpcvx.privacy.noise import laplace_rows, normal_rows
from dpcvx.privacy.randomness import Alone, Seeded


def term(norm, size, scale=3.0):
    return LinearTerm(norm, scale, 2.0, 1.0, 0.5, size, 1.0, 1.0, 0.0)


SIZES = Magnitudes(smoothness=10.0, slope=5.0, start=1.0, across=math.inf)


def draws(own, count):
    source = Seeded(5, (own.norm, own.size))
    return np.array([own.drawn(Alone(source.at(k, 1)))[0] for k in range(count)])


@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("size", [1, 2, 7])
def test_lengths_have_a_gamma_law_and_directions_are_even(norm, size):
    """Each of the tests is wrong once in a million, for this seed or another."""
    own = term(norm, size)
    drawn = draws(own, 2000) / own.scale
    lengths = np.linalg.norm(drawn, norm, axis=1)
    assert stats.kstest(lengths, stats.gamma(size).cdf).pvalue > 1e-6
    # Of a vector with even directions in l2, the square of an entry is a beta variable; magnitudes
    # of independent Laplace variables divide their sum as spacings do.
    part = drawn[:, 0] ** 2 / lengths**2 if norm == 2 else np.abs(drawn[:, 0]) / lengths
    if size > 1:
        law = stats.beta(0.5, (size - 1) / 2) if norm == 2 else stats.beta(1, size - 1)
        assert stats.kstest(part, law.cdf).pvalue > 1e-6
    assert stats.binomtest(int((drawn[:, -1] > 0).sum()), 2000).pvalue > 1e-6
    squares = np.square(drawn * own.scale).sum(axis=1)
    assert squares.mean() == pytest.approx(
        own.variance, rel=6 * squares.std() / squares.mean() / 44
    )


@pytest.mark.parametrize("norm", [1, 2])
def test_what_is_drawn_is_as_near_the_ideal_as_stated(norm):
    """The same words in units that are 16 times as coarse move it by 16 errors at most."""
    own, size = term(norm, 5), 5
    for k in range(50):
        fine = own.drawn(Alone(Seeded(3, (k,)).at(1, 1)))[0]
        words = Alone(Seeded(3, (k,)).at(1, 1))
        if norm == 1:
            coarse = own.scale * laplace_rows(2.0**36, size, words)[0] * 2.0**-36
        else:
            parts = normal_rows(2.0**36, 2 * size + 1, words)[0] * 2.0**-36
            coarse = own.scale * np.linalg.norm(parts[size:]) * parts[:size]
        apart = np.linalg.norm(fine - coarse)
        assert 0 < apart <= 17 * own.error
        # The bound holds for the largest numbers that can be drawn; typical ones are far smaller.
        assert own.error <= 2.0**-20 * own.scale


@given(
    epsilon=st.floats(1e-3, 20),
    l2=st.floats(1e-6, 1e6),
    ratio=st.floats(1, 3),
    price=st.floats(0, 5),
    convexity=st.floats(1e-6, 1e6),
    size=st.integers(1, 50),
)
def test_prices_add_up_to_the_budget(epsilon, l2, ratio, price, convexity, size):
    ratio = min(ratio, math.sqrt(size))
    made = linear_term(size, epsilon, (ratio * l2, l2), price, convexity, 0.1, SIZES)
    if made is None:
        assert price >= 0.98 * epsilon
        return
    spent = made.sensitivity / made.scale + price + made.covering
    assert spent == pytest.approx(epsilon, rel=1e-12)
    assert made.sensitivity == (ratio * l2 if made.norm == 1 else l2)
    other = linear_term(size, epsilon, (1e9 * l2, l2), price, convexity, 0.1, SIZES)
    assert other is not None
    assert made.variance <= other.variance * (1 + 1e-12)  # the quieter of both norms
    assert made.distance == pytest.approx((made.residual + made.rounding + made.error) / convexity)


def test_searches_end_no_closer_than_gradients_round():
    """Of large public numbers, rounding is more than what b could tell apart."""
    small = linear_term(3, 1.0, (2.0, 1.0), 0.1, 1.0, 0.5, SIZES)
    steep = Magnitudes(smoothness=1e9, slope=5.0, start=1.0, across=math.inf)
    large = linear_term(3, 1.0, (2.0, 1.0), 0.1, 1.0, 0.5, steep)
    far = Magnitudes(smoothness=10.0, slope=5.0, start=1e12, across=1.0)
    away = linear_term(3, 1.0, (2.0, 1.0), 0.1, 1.0, 0.5, far)
    assert small is not None and large is not None and away is not None
    assert small.rounding < 1e-3 * small.residual
    for term, numbers in ((large, 1e9 * large.reach), (away, 10.0 * 1e12)):
        assert term.residual == term.rounding >= 16 * np.finfo(float).eps * numbers / 2
        assert term.distance > 2 * term.rounding
    # In a set, points are no farther apart than it is wide.
    assert away.reach == pytest.approx(1e12 + 1)


@pytest.mark.parametrize("across", [2.0, math.inf])
@pytest.mark.parametrize("limit", [0.75, math.inf])
def test_numbers_in_a_search_are_bounded_by_what_the_term_and_the_objective_move(across, limit):
    sizes = Magnitudes(smoothness=0.3, slope=5.0, start=1.0, across=across, limit=limit)
    made = linear_term(4, 1.0, (2.0, 1.0), 0.1, 0.5, 0.1, sizes)
    assert made is not None
    # The minimizer moves by the term, by the slope at the start, and by entries that are clipped.
    reach = 1.0 + min(across, math.sqrt(made.variance) / 0.5 + 5.0 / 0.4)
    shift = 0.0 if limit == math.inf else 2 * 0.75
    numbers = 0.4 * (reach + min(across, shift / 0.5)) + 5.0 + shift
    assert made.reach == pytest.approx(reach)
    steep = Magnitudes(smoothness=1e3, slope=0.0, start=1.0, across=0.0)
    other = linear_term(4, 1.0, (2.0, 1.0), 0.1, 0.5, 0.0, steep)
    assert other is not None
    assert made.rounding / other.rounding == pytest.approx(numbers / 1e3)


@pytest.mark.parametrize("norm", [1, 2])
def test_errors_of_entries_add_up_in_l2(norm):
    """Of independent entries; and of a length that multiplies a vector."""
    first, other = term(norm, 1).error, term(norm, 9).error
    assert other / first == pytest.approx(3.0 if norm == 1 else 5.0)
