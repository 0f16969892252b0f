"""Quantiles of sums and lengths of noise, against sampling and closed forms."""

import math

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import binom, chi2, norm

from dpcvx.privacy.truncation import (
    _zero,
    eigenvalue_quantile,
    image_quantile,
    length_quantile,
    sum_quantile,
)

DRAWS = 200_000
WEIGHTS = {
    "two": np.ones(2),
    "eleven": np.ones(11),
    "uneven": np.array([1.0, -0.3, 0.01]),
    "nearly one": np.array([1.0, 1e-6]),
    "many": np.random.default_rng(3).uniform(size=100),
}


def draws(kind, size, seed):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(DRAWS, size)) if kind == 2 else rng.laplace(size=(DRAWS, size))


def near(share, alpha):
    """Within five standard deviations of the share: one test in a million is wrong."""
    return abs(share - alpha) <= 5 * math.sqrt(alpha / DRAWS)


@pytest.mark.parametrize("kind", [1, 2])
@pytest.mark.parametrize("name", WEIGHTS)
def test_sums_exceed_their_quantile_as_often_as_allowed(kind, name):
    weights = WEIGHTS[name]
    sums = draws(kind, weights.size, 5) @ weights
    for alpha in (0.3, 0.1, 0.01, 0.001):
        found = sum_quantile(kind, 4.0 * weights, alpha)
        assert near((4.0 * sums > found).mean(), alpha)
        assert sum_quantile(kind, -weights, alpha) == pytest.approx(found / 4)


@pytest.mark.parametrize("kind", [1, 2])
@pytest.mark.parametrize("size", [1, 2, 5, 30])
def test_lengths_exceed_their_quantile_as_often_as_allowed(kind, size):
    lengths = np.linalg.norm(draws(kind, size, 6), axis=1)
    for alpha in (0.3, 0.1, 0.01, 0.001):
        share = (lengths > length_quantile(kind, size, alpha)).mean()
        assert share <= alpha + 5 * math.sqrt(alpha / DRAWS)
        assert share >= 0.8 * alpha - 5 * math.sqrt(alpha / DRAWS)  # not much is given away


@pytest.mark.parametrize("kind", [1, 2])
def test_images_stay_within_their_quantile(kind):
    matrix = np.random.default_rng(7).standard_normal((4, 6)) * [1, 1, 1, 1, 0, 5]
    lengths = np.linalg.norm(draws(kind, 6, 8) @ matrix.T, axis=1)
    for alpha in (0.3, 0.01):
        found = image_quantile(kind, matrix, alpha)
        assert (lengths > found).mean() <= alpha
        assert found <= np.linalg.norm(matrix, 2) * length_quantile(kind, 5, alpha) * (1 + 1e-9)


@pytest.mark.parametrize("kind", [1, 2])
@pytest.mark.parametrize("alpha", [0.3, 0.01])
def test_one_row_is_exceeded_in_either_direction(kind, alpha):
    matrix = np.zeros((3, 30))
    matrix[1] = np.random.default_rng(9).uniform(-1, 1, 30)
    found = image_quantile(kind, matrix, alpha)
    share = (np.abs(draws(kind, 30, 10) @ matrix[1]) > found).mean()
    assert share <= alpha + 5 * math.sqrt(alpha / DRAWS) and near(share, alpha)
    # Of all noise of a ball that holds it there is far more.
    assert found < 0.6 * np.linalg.norm(matrix[1]) * length_quantile(kind, 30, alpha)


def test_closed_forms():
    assert sum_quantile(1, np.array([3.0]), 0.01) == pytest.approx(3 * math.log(50))
    assert sum_quantile(2, np.array([3.0, 4.0]), 0.01) == pytest.approx(5 * norm.ppf(0.99))
    assert length_quantile(2, 7, 0.02) == pytest.approx(math.sqrt(chi2.ppf(0.98, 7)))
    assert length_quantile(1, 1, 0.02) == pytest.approx(math.log(50))


@pytest.mark.parametrize("alpha", [1e-2, 1e-4, 1e-6, 1e-9])
@pytest.mark.parametrize("weight", [1.0, 0.5])
def test_sums_of_two_laplace_variables_exceed_their_quantile_as_the_closed_form_says(weight, alpha):
    t = sum_quantile(1, np.array([1.0, weight]), alpha)
    if weight == 1:
        share = (2 + t) * math.exp(-t) / 4
    else:
        share = (math.exp(-t) - weight**2 * math.exp(-t / weight)) / (2 * (1 - weight**2))
    assert share == pytest.approx(alpha, rel=3e-3) and share <= alpha


@pytest.mark.parametrize("alpha", [0.1, 1e-4, 1e-8])
def test_lengths_of_two_laplace_variables_exceed_their_quantile_as_an_integral_says(alpha):
    r = length_quantile(1, 2, alpha)
    first, weights = np.polynomial.legendre.leggauss(200)
    angle = (first + 1) * math.pi / 4
    below = np.exp(-r * (np.cos(angle) + np.sin(angle))) * r * np.cos(angle)
    share = math.exp(-r) + weights @ below * math.pi / 4
    assert share == pytest.approx(alpha, rel=2e-3) and share <= alpha


@pytest.mark.parametrize("kind", [1, 2])
def test_many_even_rows_are_bounded_by_the_length_of_the_noise(kind):
    found = image_quantile(kind, 3 * np.eye(30), 0.01)
    assert found <= 3 * length_quantile(kind, 30, 0.01) * (1 + 1e-9)
    by_row = 3 * math.sqrt(30) * sum_quantile(kind, np.ones(1), 0.01 / 60)
    assert found < 0.9 * by_row


@pytest.mark.parametrize("alpha", [1e-9, 1e-11, 1e-30])
def test_rare_events_are_bounded_as_well(alpha):
    t, r = sum_quantile(1, np.ones(2), alpha), length_quantile(1, 2, alpha)
    assert (2 + t) * math.exp(-t) / 4 <= alpha
    # P(|Y| > r) is at least P(|Y_1| > r) and at most twice P(|Y_1| > r / sqrt(2)).
    assert -math.log(alpha) <= r <= math.sqrt(2) * math.log(2 / alpha) * 1.01


def test_nothing_moves_what_has_no_weight():
    assert sum_quantile(1, np.zeros(3), 0.01) == 0 == length_quantile(2, 0, 0.01)
    assert image_quantile(2, np.zeros((2, 3)), 0.01) == 0
    assert sum_quantile(2, np.ones(3), 0.7) == 0


def test_a_bound_that_the_doubt_does_not_allow_to_lower_stays():
    assert _zero(lambda t: 1e-3, 2.0) == 2.0
    assert 1.0 < _zero(lambda t: 1.0 - t, 2.0) < 1 + 1e-7


def symmetric(kind):
    rng = np.random.default_rng(1)
    factors = rng.normal(size=(6, 4, 4))
    if kind == "diagonal":
        return np.eye(4) * factors
    if kind == "semidefinite":
        return factors @ factors.transpose(0, 2, 1)
    full = factors + factors.transpose(0, 2, 1)
    return full[:1] if kind == "single" else full


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("kind", ["full", "semidefinite", "diagonal", "single"])
def test_eigenvalues_exceed_their_quantile_no_more_often_than_allowed(kind, p):
    matrices, rng, runs = symmetric(kind), np.random.default_rng(2), 5_000
    noise = (rng.laplace if p == 1 else rng.normal)(size=(runs, len(matrices)))
    largest = np.linalg.eigvalsh(np.tensordot(noise, matrices, 1))[:, -1]
    for alpha in (0.3, 0.01):
        quantile = eigenvalue_quantile(p, matrices, alpha)
        assert np.count_nonzero(largest > quantile) <= binom.isf(1e-5, runs, alpha)
    assert quantile <= 2.2 * np.quantile(largest, 0.99)


@pytest.mark.parametrize("p", [1, 2])
def test_one_by_one_matrices_have_the_quantile_of_a_sum(p):
    weights = np.array([1.0, 2, -0.5])
    quantile = eigenvalue_quantile(p, weights[:, None, None], 0.05)
    assert quantile == pytest.approx(sum_quantile(p, weights, 0.05))


@pytest.mark.parametrize("kind", [1, 2])
def test_images_take_the_least_of_their_bounds(kind):
    """Each bound is the least for one of these, next to a formula of its own."""
    alpha = 0.01
    uneven = np.diag([1.0, 1e-6])
    rows = math.hypot(*(sum_quantile(kind, row, alpha / 4) for row in uneven))
    assert image_quantile(kind, uneven, alpha) == pytest.approx(rows, rel=1e-8)
    even = np.ones((20, 3))
    by_length = math.sqrt(60) * length_quantile(kind, 3, alpha)
    assert image_quantile(kind, even, alpha) <= by_length * (1 + 1e-8)
    if kind == 2:
        steep = np.diag([1.0] + [0.1] * 99)
        mean = math.sqrt(1.99) + math.sqrt(-2 * math.log(alpha))
        assert image_quantile(kind, steep, alpha) <= mean * (1 + 1e-8)


@pytest.mark.parametrize("kind", [1, 2])
def test_eigenvalues_of_one_matrix_have_the_quantile_of_the_larger_end(kind):
    definite, both = np.array([[2.0, 1.0], [1.0, 2.0]]), np.array([[1.0, 2.0], [2.0, 1.0]])
    for matrix, share in ((definite, 0.01), (-definite, 0.01), (both, 0.005), (-both, 0.005)):
        found = eigenvalue_quantile(kind, matrix[None], 0.01)
        assert found == pytest.approx(sum_quantile(kind, np.array([3.0]), share))


@pytest.mark.parametrize("kind", [1, 2])
def test_eigenvalues_scale_with_their_matrices(kind):
    matrices = np.random.default_rng(9).normal(size=(4, 3, 3))
    matrices = matrices + np.swapaxes(matrices, 1, 2)
    found = eigenvalue_quantile(kind, matrices, 0.01)
    for factor in (1e-9, 1e9):
        scaled = eigenvalue_quantile(kind, factor * matrices, 0.01)
        assert scaled == pytest.approx(factor * found)


def test_eigenvalues_have_the_bound_by_transforms():
    """Scaled permutations of many pairs: their squares are diagonal, and no other bound is less."""
    n, alpha = 12, 0.01
    pairs = list(zip(*np.triu_indices(n, 1), strict=True))
    weights = np.array([0.9 if i < 3 else 1.0 for i, _ in pairs])
    matrices = np.zeros((len(pairs), n, n))
    for matrix, (i, j), weight in zip(matrices, pairs, weights, strict=True):
        matrix[i, j] = matrix[j, i] = weight
    met = np.array([[k in pair for pair in pairs] for k in range(n)])
    shares = np.linspace(0.02, 0.98, 49)
    for kind, thetas in ((1, shares), (2, 6 * shares)):
        bounds = []
        for theta in thetas:
            squares = (theta * weights) ** 2
            exponents = met @ (-np.log1p(-squares) if kind == 1 else squares / 2)
            bounds.append((logsumexp(exponents) - math.log(alpha)) / theta)
        quantile = eigenvalue_quantile(kind, matrices, alpha)
        assert quantile == pytest.approx(min(bounds), rel=1e-8)
        assert quantile < image_quantile(kind, np.diag(weights * math.sqrt(2)), alpha)
