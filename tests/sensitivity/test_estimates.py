"""Estimates by public expectations: against brute force, and what wrong expectations cost."""

import numpy as np
import pytest
from scipy.integrate import quad

from dpcvx.sensitivity.estimates import (
    LIMIT,
    EntrywiseMean,
    JamesStein,
    Linear,
    dimension_of,
    pull_of,
    weights_of,
)

NOISES = {"normal": False, "Laplace": True}
noises = pytest.mark.parametrize("noise", NOISES)


def density(noise, x, deviation):
    if NOISES[noise]:
        return np.exp(-np.sqrt(2) * np.abs(x) / deviation)
    return np.exp(-((x / deviation) ** 2) / 2)


def drawn(noise, rng, size, deviation=1.0):
    if NOISES[noise]:
        return deviation / np.sqrt(2) * rng.laplace(size=size)
    return deviation * rng.normal(size=size)


def brute(noise, y, mean, spread, deviation):
    """The posterior mean by quadrature."""

    def weight(d):
        return density(noise, y - d, deviation) * np.exp(-(((d - mean) / spread) ** 2) / 2)

    # Between the two, and some widths of what is narrower, the weight has all its peaks.
    low, high = sorted((mean, y))
    width = 12 * min(spread, deviation)
    where = {"points": [mean, y], "limit": 400}
    mass = quad(weight, low - width, high + width, **where)[0]
    return quad(lambda d: d * weight(d), low - width, high + width, **where)[0] / mass


@noises
@pytest.mark.parametrize("spread", [0.05, 0.5, 1.0, 3.0, 20.0])
@pytest.mark.parametrize("away", [-9.0, -2.0, 0.0, 0.3, 1.0, 4.0])
def test_one_entry_is_estimated_by_its_posterior_mean_within_the_limit(noise, spread, away):
    mean, deviation = 0.7, 1.3
    y = mean + away
    exact = brute(noise, y, mean, spread, deviation)
    wanted = y - np.clip(y - exact, -LIMIT * deviation, LIMIT * deviation)
    one = EntrywiseMean(np.array([mean]), np.array([spread]), deviation, NOISES[noise])
    assert one(np.array([y]))[0] == pytest.approx(wanted, abs=1e-6)


@noises
def test_extreme_spreads_are_limits(noise):
    y = np.array([3.0, 3.0, 3.0, 1e8, -1e8])
    spread = np.array([0.0, np.inf, 1e12, 0.5, 0.5])
    found = EntrywiseMean(np.full(5, 1.5), spread, 1.0, NOISES[noise])(y)
    assert found == pytest.approx([1.5, 3.0, 3.0, 1e8 - LIMIT, -1e8 + LIMIT], rel=1e-12, abs=1e-5)


@noises
def test_estimates_grow_with_what_left(noise):
    y = np.linspace(-30, 30, 4001)
    for spread in (0.0, 0.01, 0.3, 1.0, 10.0, 1e3):
        one = EntrywiseMean(np.zeros(y.size), np.full(y.size, spread), 1.0, NOISES[noise])
        found = one(y)
        assert (np.diff(found) >= -1e-9).all() and (np.diff(y - found) >= -1e-9).all()


def test_the_linear_estimate_is_the_posterior_mean_in_two_dimensions():
    K, spread, deviation = np.array([[1.0, 0.4], [-0.3, 0.8]]), np.array([0.6, 1.5]), 0.9
    mean, y = np.array([0.5, -1.0]), np.array([1.4, 0.2])
    axes = [m + s * np.linspace(-9, 9, 801) for m, s in zip(mean, spread, strict=True)]
    d = np.stack(np.meshgrid(*axes, indexing="ij"))
    theta = np.einsum("ij,jab->iab", K, d)
    log = -np.sum(((d - mean[:, None, None]) / spread[:, None, None]) ** 2, axis=0) / 2
    log -= np.sum((y[:, None, None] - theta) ** 2, axis=0) / 2 / deviation**2
    weight = np.exp(log - log.max())
    exact = np.sum(theta * weight, axis=(1, 2)) / weight.sum()
    pull = pull_of(K, spread, deviation**2)
    estimate = Linear(K @ mean, pull, deviation, np.eye(2) / 2)
    assert estimate(y) == pytest.approx(exact, abs=1e-9)
    spread_of_theta = theta - exact[:, None, None]
    covariance = np.einsum("iab,jab,ab->ij", spread_of_theta, spread_of_theta, weight)
    assert deviation**2 * estimate.left == pytest.approx(covariance / weight.sum(), abs=1e-9)


@pytest.mark.parametrize("open_", [0, 1, 2, 5])
def test_where_nothing_is_expected_nothing_is_pulled(open_):
    rng = np.random.default_rng(open_)
    K, spread = rng.normal(size=(3, 5)), rng.uniform(0.5, 2.0, 5)
    spread[:open_] = 1e5
    wide = pull_of(K, spread, 0.7)
    spread[:open_] = np.inf
    found = pull_of(K, spread, 0.7)
    assert found == pytest.approx(wide, abs=1e-6)
    assert found @ K[:, :open_] == pytest.approx(np.zeros((3, open_)), abs=1e-9)
    assert (found == 0).all() if open_ == 5 else np.linalg.eigvalsh(found)[-1] > 0.01


def risks(estimate, noise, directions, distances, weights, draws=20000):
    """Mean weighted square errors over that of what left, at expectations that are this far off."""
    rng = np.random.default_rng(7)
    r = weights.shape[0]
    xi = drawn(noise, rng, (draws, r))
    plain = np.mean(np.einsum("ti,ij,tj->t", xi, weights, xi))
    found = []
    for direction in directions:
        for distance in distances:
            theta = distance * direction / np.linalg.norm(direction)
            error = np.array([estimate(theta + x) for x in xi]) - theta
            found.append(np.mean(np.einsum("ti,ij,tj->t", error, weights, error)) / plain)
    return np.array(found)


@noises
def test_a_wrong_expectation_of_an_entry_costs_at_most_five_times(noise):
    rng = np.random.default_rng(3)
    xi = drawn(noise, rng, 200_000)
    for spread in (0.0, 0.2, 1.0, 5.0):
        for away in (0.0, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 100.0):
            one = EntrywiseMean(np.zeros(xi.size), np.full(xi.size, spread), 1.0, NOISES[noise])
            ratio = np.mean((one(away + xi) - away) ** 2) / np.mean(xi**2)
            # The mean has a standard error of 1 % at most.
            assert ratio < (1 + LIMIT**2) * 1.05
            if spread == 0 and away == 100:
                assert ratio == pytest.approx(1 + LIMIT**2, rel=0.05)
            if away == 0:
                assert ratio < 1
    # What is right is worth the more, the narrower it is.
    right = [
        np.mean(EntrywiseMean(np.zeros(1), np.array([t]), 1.0, NOISES[noise]).left) for t in (0, 1)
    ]
    assert right == pytest.approx([0, 0.5], abs=1e-9)


@noises
def test_a_wrong_expectation_of_a_slope_costs_at_most_five_times(noise):
    rng = np.random.default_rng(4)
    K, R = rng.normal(size=(3, 6)), rng.normal(size=(3, 3))
    weights = R @ R.T / np.trace(R @ R.T)
    for spread in (0.01, 0.5):
        pull = pull_of(K, np.full(6, spread), 1.0)
        estimate = Linear(np.zeros(3), pull, 1.0, weights)
        found = risks(estimate, noise, np.eye(3), (0.0, 1.0, 3.0, 30.0), weights, 3000)
        assert found.max() < (1 + LIMIT**2) * 1.1
        # Of data that are as expected at most, less than of what left.
        assert found[[0, 4, 8]].max() < 1


@pytest.mark.parametrize("ratio", [1.0, 0.3])
def test_james_and_stein_are_never_worse_than_what_left(ratio):
    weights = np.diag(ratio ** np.arange(6.0))
    dimension = dimension_of(np.eye(6), weights)
    assert dimension == pytest.approx(weights.trace()) if ratio < 1 else dimension == 6
    if dimension <= 2:
        weights = np.diag([1.0, 1.0, 1.0, 0.3, 0.1, 0.0])
        dimension = dimension_of(np.eye(6), weights)
    estimate = JamesStein(np.zeros(6), 1.0, dimension)
    distances = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 100.0)
    found = risks(estimate, "normal", np.eye(6)[[0, 5]], distances, weights, 8000)
    # Both errors come from the same noise: standard errors of their ratio are below 1 %.
    assert found.max() < 1.02
    assert found[0] < (0.45 if ratio == 1 else 0.8)


def test_james_and_stein_of_laplace_noise_are_measured_to_be_no_worse_either():
    estimate = JamesStein(np.zeros(5), 1.0, 5.0)
    directions = [np.eye(5)[0], np.ones(5)]
    found = risks(estimate, "Laplace", directions, (0.0, 1.0, 2.0, 4.0, 8.0), np.eye(5), 8000)
    assert found.max() < 1.05 < 4 and found[0] < 0.6


def test_the_dimension_counts_directions_by_their_influence():
    rng = np.random.default_rng(0)
    back, R = rng.normal(size=(4, 9)), rng.normal(size=(4, 4))
    W = R @ R.T
    values = np.linalg.eigvalsh(back.T @ W @ back)
    assert dimension_of(back, W) == pytest.approx(values.sum() / values[-1])
    assert dimension_of(back.T, np.eye(9)) == pytest.approx(
        np.sum(back**2) / np.linalg.norm(back, 2) ** 2
    )
    assert dimension_of(back, None) == 9
    assert dimension_of(np.zeros((4, 3)), W) == 0
    assert weights_of(back, W).trace() == pytest.approx(1)
    assert weights_of(back, None) == pytest.approx(np.eye(9) / 9)
