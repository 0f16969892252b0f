"""Noise with a limit: its support, its law, and its price against exact distributions."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

import dpcvx as dp
from dpcvx.privacy.accounting import Composition
from dpcvx.privacy.mechanism import Calibrated
from dpcvx.privacy.noise import Grid
from dpcvx.privacy.randomness import source_for
from dpcvx.privacy.truncation import Truncation, truncation

UNIT = {1: stats.laplace(), 2: stats.norm()}
MECHANISM = {1: dp.Laplace(), 2: dp.Gaussian()}
norms = pytest.mark.parametrize("norm", [1, 2])


def planned(norm, epsilon, delta, size):
    """Multiplier and limit of a release that costs this much."""
    mechanism, spent = MECHANISM[norm], 0.0 if norm == 1 else delta / 2
    multiplier = mechanism.for_total(1, epsilon, spent)
    price = mechanism.compose(Composition(), multiplier, 1).price(spent)
    return multiplier, truncation(norm, size, price.epsilon, spent, delta)


def law(norm, scale, limit):
    """Exact probabilities of the whole numbers from -limit to limit."""
    ends = (np.arange(-limit, limit + 2) - 0.5) / scale
    # From the nearer tail, so that small probabilities keep their digits.
    below, above = np.diff(UNIT[norm].cdf(ends)), -np.diff(UNIT[norm].sf(ends))
    found = np.where(ends[:-1] < 0, below, above)
    return found / found.sum()


def delta_between(one, other, epsilon):
    return float(np.maximum(one - math.exp(epsilon) * other, 0.0).sum())


def shifted(mass, steps):
    """The same law around another whole number, on a common support."""
    return np.pad(mass, (max(steps, 0), max(-steps, 0)))


def worst(norm, epsilon, grid, limit, size):
    """The largest delta of neighbors at a distance of whole numbers, by enumeration."""
    move, found = int(grid.sensitivity), 0.0
    mass = law(norm, grid.scale, limit)
    for far in itertools.product(range(move + 1), repeat=size):
        if np.linalg.norm(far, norm) > move:
            continue
        one, other = np.ones(()), np.ones(())
        for steps in far:
            one = np.multiply.outer(one, shifted(mass, -steps))
            other = np.multiply.outer(other, shifted(mass, steps))
        found = max(found, delta_between(one, other, epsilon), delta_between(other, one, epsilon))
    return found


@norms
@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-6), (0.3, 1e-2), (3.0, 0.2)])
def test_no_neighbors_are_told_apart_better_than_the_price_says(norm, size, epsilon, delta):
    multiplier, cut = planned(norm, epsilon, delta, size)
    assert cut.epsilon <= epsilon and cut.delta == delta
    grid = Grid(1.0, 4.0, 4.0 * multiplier)
    found = worst(norm, cut.epsilon, grid, cut.steps(grid), size)
    assert 0 < found <= delta
    # Enumeration finds what it should: a limit so low that the ends tell too much.
    assert worst(norm, cut.epsilon, grid, cut.steps(grid) // 2, size) > delta


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-6), (0.3, 1e-2), (3.0, 0.2), (800.0, 0.1)])
def test_the_limit_of_laplace_noise_depends_on_no_number_of_entries_and_is_nearly_attained(
    epsilon, delta
):
    limits = [truncation(1, size, epsilon, 0.0, delta).reach for size in (1, 1000)]
    assert limits[0] == limits[1] >= epsilon
    tail = np.logaddexp(0.0, epsilon + np.log1p(-np.exp(-epsilon)) - math.log(2 * delta))
    assert limits[0] == pytest.approx(tail, rel=1e-8) and limits[0] > tail
    if epsilon < 10:  # one entry that moves by all of the sensitivity, on a fine grid
        multiplier, cut = planned(1, epsilon, delta, 1)
        grid = Grid(1.0, 400.0, 400.0 * multiplier)
        mass = law(1, grid.scale, cut.steps(grid))
        one, other = np.pad(mass, (400, 0)), np.pad(mass, (0, 400))
        attained = delta_between(one, other, cut.epsilon)
        assert 0.98 * delta <= attained <= delta


@norms
def test_no_entry_exceeds_the_limit(norm):
    cut = Truncation(1.5, 5, 1.0, 0.5)
    noise = Calibrated(MECHANISM[norm], 1.0, truncation=cut)
    grid, source = noise.grid(1.0, 5), source_for(3, (0,))
    value = np.arange(5.0)
    left = np.array([noise.release(value, grid, source.at(t, 1)) for t in range(2000)])
    far = np.abs(left - value).max()
    assert far <= cut.steps(grid) * grid.width
    # A run has 10 000 entries: the outermost hundredth stays empty with less than 1e-20.
    assert far >= 1.485 * grid.scale


@norms
def test_within_the_limit_it_is_the_same_noise(norm):
    cut = Truncation(0.8, 1, 1.0, 0.5)
    noise = Calibrated(MECHANISM[norm], 1.0, truncation=cut)
    grid, source = noise.grid(1.0, 1), source_for(4, (0,))
    drawn = [float(noise.release(np.zeros(1), grid, source.at(t, 1))[0]) for t in range(3000)]
    unit, low = UNIT[norm], UNIT[norm].cdf(-0.8)
    inside = lambda x: (unit.cdf(x) - low) / (1 - 2 * low)  # noqa: E731
    assert stats.kstest(np.array(drawn) / grid.scale, inside).pvalue > 1e-6


def test_a_release_of_more_than_was_planned_is_refused():
    noise = Calibrated(dp.Laplace(), 1.0, truncation=Truncation(20.0, 3, 1.0, 1e-6))
    with pytest.raises(dp.PrivacyError, match="planned for 3 components, and a release has 4"):
        noise.grid(1.0, 4)


def test_rounds_keep_the_limit():
    noise = Calibrated(dp.Laplace(decay=0.5), 1.0, truncation=Truncation(20.0, 3, 1.0, 1e-6))
    assert noise.at(0, 1).truncation == noise.truncation
    assert noise.composed(2) == Composition(stated=((1.0, 1e-6),) * 2)


def test_what_no_limit_can_cost_is_refused():
    with pytest.raises(dp.PrivacyError, match=r"truncated .* smaller epsilon or a larger delta"):
        truncation(1, 10, 800.0, 5e-7, 1e-6)
