"""The profile of Gaussian noise against a hundred digits: exact, and never on the wrong side."""

import math

import cvxpy as cp
import mpmath as mp
import numpy as np
import pytest

import dpcvx as dp
from dpcvx.privacy.accounting import Composition, gaussian_multiplier, laplace_multiplier
from dpcvx.privacy.gaussian import (
    gaussian_delta,
    gaussian_epsilon,
    gaussian_mu,
    gaussian_sigma,
    laplace_mu,
    pure_mu,
)
from dpcvx.privacy.last_iterate import Mixture

DELTAS = [1e-300, 1e-50, 1e-12, 1e-6, 1e-3, 0.1, 0.9]


def true_delta(epsilon, mu, digits=120):
    """Balle and Wang's formula, with digits to spare for the cancellation of its terms."""
    with mp.workdps(digits):
        e, m = mp.mpf(epsilon), mp.mpf(mu)
        lower = mp.erfc((e / m + m / 2) / mp.sqrt(2)) / 2
        return mp.erfc((e / m - m / 2) / mp.sqrt(2)) / 2 - mp.exp(e) * lower


def excess(epsilon, mu, delta, digits=120):
    """By what part of delta the truth exceeds it."""
    with mp.workdps(digits):
        return float(true_delta(epsilon, mu, digits) / mp.mpf(delta) - 1)


@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize(
    ("multiplier", "close"),
    [
        # How close delta is met; beyond 1e6 rounding of epsilon alone moves it by more.
        *((m, 1e-9) for m in (3e13, 3e10, 1e6, 1e4, 2e3, 501.0, 499.0, 30.0, 1.0, 0.1)),
        (1e-3, 1e-6),
        (1e-6, 1e-4),
        (1e-12, 1.0),
        (1e-50, 1.0),
    ],
)
def test_the_stated_epsilon_is_never_too_small_and_close(multiplier, close, delta):
    epsilon = Composition().with_gaussian(multiplier).price(delta).epsilon
    if epsilon == 0:
        assert excess(0, 1 / multiplier, delta) <= 0
        return
    digits = 120 + 2 * round(abs(math.log10(multiplier)))
    assert -close <= excess(epsilon, 1 / multiplier, delta, digits) <= 0


@pytest.mark.parametrize("mu", [1e-9, 1e-3, 0.0019, 0.0021, 0.3, 2.0, 2.1, 9.0, 70.0])
@pytest.mark.parametrize("x", [0.0, 1e-6, 0.3, 1.0, 5.0, 30.0])
def test_the_profile_is_bounded_from_above_on_both_sides_of_its_peak(mu, x):
    """On both sides of the places where one formula takes over from another."""
    truth = true_delta(x * mu, mu)
    assert truth <= float(gaussian_delta(x * mu, mu)) <= truth * (1 + mp.mpf(1e-10))


@pytest.mark.parametrize(
    ("epsilon", "delta"),
    [(1e-12, 1e-50), (1e-12, 1e-5), (1e-6, 1e-300), (1e-3, 1e-6), (1.0, 1e-6), (1e4, 1e-9)],
)
@pytest.mark.parametrize("steps", [1, 300])
def test_calibrated_noise_keeps_its_budget(epsilon, delta, steps):
    m = gaussian_multiplier(steps, epsilon, delta)
    with mp.workdps(60):
        mu = mp.sqrt(steps) / mp.mpf(m)
    close = 1e-6 * (1 + abs(math.log(delta))) * max(1.0, math.sqrt(epsilon))
    assert -close <= excess(epsilon, mu, delta) <= 0


@pytest.mark.parametrize(("epsilon", "delta"), [(1e-12, 1e-50), (1.0, 1e-6), (30.0, 0.01)])
def test_the_largest_mu_of_a_budget_inverts_the_profile(epsilon, delta):
    mu = gaussian_mu(epsilon, delta)
    assert gaussian_epsilon(mu, delta) == pytest.approx(epsilon, rel=1e-9)
    assert -1e-9 <= excess(epsilon, mu, delta) <= 0


@pytest.mark.parametrize(
    ("rho", "epsilon"), [(5e-22, 1e-10), (5e-10, 1e-4), (0.02, 0.5), (2.0, 9.0)]
)
def test_means_of_profiles_are_bounded_from_above_and_close(rho, epsilon):
    found = Mixture(np.array([rho, 4 * rho, 0.0]), np.array([0.5, 0.25, 0.25]), "by a coin")
    with mp.workdps(100):
        mus = [mp.sqrt(2 * mp.mpf(factor * rho)) for factor in (1, 4)]
        truth = sum(w * true_delta(epsilon, mu) for w, mu in zip((0.5, 0.25), mus, strict=True))
        assert truth <= found.delta(epsilon) <= truth * (1 + mp.mpf(1e-9))


# -- Laplace noise as Gaussian noise


@pytest.mark.parametrize("epsilon", [1e-30, 1e-6, 0.1, 0.999, 1.001, 3.0, 40.0, 1e4])
def test_the_bound_of_laplace_noise_is_twice_a_quantile(epsilon):
    with mp.workdps(80):
        e = mp.mpf(epsilon)
        mu = mp.mpf(float(laplace_mu(epsilon)))

        def tail(value):
            return mp.erfc(value / 2 / mp.sqrt(2))

        assert tail(mu) <= mp.exp(-e / 2) <= tail(mu * (1 - mp.mpf(3e-12)))


@pytest.mark.parametrize("epsilon", [0.05, 0.7, 1.0, 6.0])
def test_laplace_noise_hides_as_much_as_the_gaussian_bound_at_every_epsilon(epsilon):
    """And no smaller mu would do: it is attained at one test."""
    mu = float(laplace_mu(epsilon))
    small = 0.999 * mu
    with mp.workdps(40):
        at = [mp.mpf(epsilon) * k / 40 for k in range(41)]
        laplace = [1 - mp.exp((e - mp.mpf(epsilon)) / 2) for e in at]
        assert all(d <= true_delta(e, mu) for d, e in zip(laplace, at, strict=True))
        # Trade-off curves touch where levels of both tests are exp(-epsilon / 2) / 2.
        level = mp.exp(-mp.mpf(epsilon) / 2) / 2
        assert mp.ncdf(mp.mpf(mu) / 2) >= 1 - level > mp.ncdf(mp.mpf(small) / 2)


@pytest.mark.parametrize("epsilon", [1e-12, 1e-5, 0.1, 1.0, 3.0, 30.0, 700.0])
def test_any_pure_epsilon_hides_as_much_as_its_gaussian_bound(epsilon):
    with mp.workdps(400):
        corner = 1 / (1 + mp.exp(mp.mpf(epsilon)))
        mu = mp.mpf(float(pure_mu(epsilon)))
        # The trade-off curves meet at both ends, and nearly where both errors are equal.
        assert mp.ncdf(-mu / 2) <= corner < mp.ncdf(-mu / 2 * (1 - mp.mpf(1e-6)))
    assert pure_mu(epsilon) > laplace_mu(epsilon)  # which is less than all of that epsilon


# -- what used to fail, hang or need too much memory


@pytest.mark.parametrize(
    ("steps", "epsilon", "delta"), [(1, 1e-3, 0.01), (1, 0.1, 0.99), (7, 1e-2, 0.3), (1, 3.0, 0.9)]
)
def test_laplace_budgets_whose_delta_covers_nearly_all_are_calibrated(steps, epsilon, delta):
    m = laplace_multiplier(steps, epsilon, delta)
    assert Composition().with_laplace(m, steps).price(delta).epsilon <= epsilon
    if steps == 1:
        # One release of pure epsilon a has delta 1 - exp((epsilon - a) / 2).
        exact = epsilon - 2 * math.log1p(-delta)
        assert m == pytest.approx(1 / exact, rel=0.05, abs=1e-3)
        assert m >= 1 / exact


def test_a_billion_laplace_releases_are_priced_by_a_bound():
    m = laplace_multiplier(10**9, 1.0, 1e-6)
    price = Composition().with_laplace(m, 10**9).price(1e-6)
    assert price.accountant == "Gaussian bound of Laplace noise"
    assert 0.99 < price.epsilon <= 1.0
    # Small losses are nearly Gaussian: 1.2533 times their root sum of squares.
    root = math.sqrt(1e9) / m * math.sqrt(math.pi / 2)
    assert price.epsilon == pytest.approx(gaussian_epsilon(root, 1e-6), rel=1e-4)


def test_the_bound_for_many_releases_exceeds_their_loss_distribution():
    few = Composition().with_laplace(800.0, 100_000)
    many = few.with_laplace(1e9)
    assert few.price(1e-6).accountant == "privacy loss distribution"
    assert few.price(1e-6).epsilon < many.price(1e-6).epsilon < 1.4 * few.price(1e-6).epsilon


def planned(**arguments):
    x = cp.Variable(2)
    d = dp.Private(np.ones(2), adjacency=dp.Within(0.1), name="d")
    problem = dp.Problem([dp.Agent(cp.Minimize(cp.sum_squares(x - d)))])
    settings = {"rounds": 10**9, "epsilon": 1.0, "delta": 1e-6} | arguments
    return problem.plan(dp.LinearizedADMM(), **settings)


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_plans_of_a_billion_rounds_are_made(mechanism):
    assert planned(mechanism=mechanism).price.epsilon == pytest.approx(1.0, rel=1e-5)


@pytest.mark.parametrize("kind", [dp.Gaussian, dp.Laplace])
def test_falling_noise_over_a_billion_rounds_is_refused(kind):
    with pytest.raises(dp.PrivacyError, match=r"rounds=1000000000 is too many.*constant noise"):
        planned(mechanism=kind(decay=0.9999999))


@pytest.mark.parametrize("epsilon", [1e-101, 1e101])
def test_budgets_outside_the_range_that_is_accounted_for_are_refused(epsilon):
    with pytest.raises(dp.PrivacyError, match="between 1e-100 and 1e\\+100"):
        planned(rounds=3, epsilon=epsilon)


def test_noise_outside_the_range_that_is_accounted_for_is_refused():
    for mechanism, epsilon in (("gaussian", 1e-99), ("laplace", 1e-99)):
        with pytest.raises(dp.PrivacyError, match="between 1e-100 and 1e\\+100"):
            planned(mechanism=mechanism, epsilon=epsilon, delta=1e-300)


def test_the_calibrated_deviation_has_the_bits_of_dp_accounting():
    from dp_accounting import get_sigma_gaussian

    rng = np.random.default_rng(0)
    for _ in range(300):
        epsilon, delta = 10 ** rng.uniform(-6, 9), 10 ** rng.uniform(-15, -0.01)
        with np.errstate(all="ignore"):
            assert gaussian_sigma(epsilon, delta) == get_sigma_gaussian(epsilon, delta)
