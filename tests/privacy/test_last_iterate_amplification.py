"""Amplification by iteration: profiles, prices and random orders next to exact losses."""

import itertools
import math

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpcvx as dp
from dpcvx.privacy.accounting import Composition
from dpcvx.privacy.last_iterate import permuted, profile, sampled, stopped
from dpcvx.privacy.two_block import TwoBlock, bounds, local_zcdp
from tests.privacy.two_blocks import Instance, flat, least, random_instances, renyi, seeds, table_1

# Exact losses -------------------------------------------------------------------------------


@random_instances
@given(seeds, st.booleans(), st.integers(1, 5), st.integers(1, 20))
def test_profiles_are_above_the_exact_loss_at_every_position(seed, strong, users, iterations):
    instance = Instance(seed, strong, iterations)
    found = profile(instance.block, 1.0, 1.0, users=users, iterations=iterations)
    for i in range(users):
        exact = instance.loss(set(range(i, iterations, users)))
        assert exact / (1 + 1e-7) <= found.rho[i] <= found.local[i]


def gaussian_delta(epsilon, rho):
    mu = math.sqrt(2 * rho)
    above, below = mp.ncdf(mu / 2 - epsilon / mu), mp.ncdf(-mu / 2 - epsilon / mu)
    return float(above - mp.exp(epsilon) * below)


@settings(random_instances, max_examples=40)
@given(seeds, st.booleans(), st.integers(1, 5), st.integers(1, 3), st.floats(0.01, 3))
def test_permutations_lose_at_most_the_mean_profile(seed, strong, users, passes, epsilon):
    instance = Instance(seed, strong, users * passes)
    found = permuted(instance.block, 1.0, 0.7, users=users, iterations=users * passes)
    exact = [instance.loss(set(range(i, users * passes, users))) / 0.7**2 for i in range(users)]
    mean = math.fsum(gaussian_delta(epsilon, rho) for rho in exact if rho > 0) / users
    assert mean <= found.delta(epsilon) * (1 + 1e-6)


def test_uses_amplified_to_the_end_do_not_add_up():
    users, passes = 3, 20
    instance = flat(users * passes)
    exact = instance.loss(set(range(0, users * passes, users)))
    assert exact == pytest.approx(passes / (2 * users), rel=1e-6)
    # With the exact loss of each use in place of a bound:
    each = [flat(users * passes - t).loss({0}) for t in range(0, users * passes, users)]
    assert sum(each) == pytest.approx(0.6, abs=0.01) and sum(each) < 0.2 * exact
    bound = profile(instance.block, 1.0, 1.0, users=users, iterations=users * passes)
    assert exact <= bound.rho[0]


# Profiles, prices, random orders --------------------------------------------------------------


def test_a_profile_composes_up_to_the_next_use():
    block = TwoBlock(nu=1.0, beta=100.0, eta=1.0)
    found = profile(block, 0.3, 1.5, users=10, iterations=34)

    def one(after):
        return least(block, 0.3, 1.5, after)[0]

    for i in range(10):
        uses, last = (4, 3 - i) if i < 4 else (3, 13 - i)
        assert found.rho[i] == pytest.approx((uses - 1) * one(9) + one(last), rel=1e-9)
        assert found.local[i] == pytest.approx(uses * local_zcdp(block, 0.3, 1.5))
    assert found.rho[found.worst] == found.rho.max() == found.rho[3]
    assert not found.rho.flags.writeable


def test_strong_convexity_forgets_the_first_passes():
    # The chain over neighbors: roots of bounds that fall geometrically add up to little more than
    # the last one.
    block = table_1(0.25, 0.9)
    one, many = (profile(block, 1.0, 1.0, users=100, iterations=100 * passes) for passes in (1, 50))
    assert many.rho[0] < 1.2 * one.rho[0]
    assert many.rho[0] < 0.1 * 50 * one.rho[0]
    assert many.rho[99] == pytest.approx(one.rho[99] + 49 * least(block, 1, 1, 99)[0], rel=0.2)


def test_users_without_a_turn_lose_nothing():
    found = profile(TwoBlock(nu=1.0, beta=1.0, eta=1.0), 1.0, 1.0, users=5, iterations=2)
    assert list(found.rho[2:]) == [0, 0, 0] and found.rho[found.worst] > 0
    assert found.price(1e-6, user=4).epsilon == 0
    assert found.epsilons(1e-6)[2:] == pytest.approx(0)


def precise(rho, delta):
    with mp.workdps(30):
        m = mp.sqrt(2 * mp.mpf(rho))

        def excess(e):
            return mp.ncdf(-e / m + m / 2) - mp.exp(e) * mp.ncdf(-e / m - m / 2) - delta

        if excess(mp.mpf(0)) <= 0:
            return 0.0
        return float(mp.findroot(excess, (0, 50), solver="bisect", tol=1e-25))


@pytest.mark.parametrize("delta", [1e-3, 1e-6])
def test_prices_are_those_of_a_gaussian_mechanism(delta):
    found = profile(table_1(0.25, 0.9), 0.5, 1.0, users=20)
    for i in (0, 10, 19):
        price = found.price(delta, user=i)
        assert price.epsilon == pytest.approx(precise(found.rho[i], delta), rel=1e-6, abs=1e-9)
    assert found.price(delta) == Composition(mu2=2 * found.rho[19]).price(delta)
    assert found.price(delta, user=0).accountant == "Gaussian bound, amplified by iteration"
    assert found.epsilons(delta)[[0, 19]] == pytest.approx(
        [found.price(delta, user=i).epsilon for i in (0, 19)]
    )


def test_random_orders_have_the_papers_harmonic_mean():
    block = TwoBlock(nu=1.0, beta=1e4, eta=1.0)
    N, sigma = 1000, 10.0
    found = permuted(block, 1.0, sigma, users=N)
    mean = bounds(block, 1.0, sigma, np.arange(N)).min(axis=0).mean()
    # With C / L for L iterations from the user's own on, as the paper: C = 2 here, H_N / N.
    harmonic = math.fsum(1 / j for j in range(1, N + 1)) / N
    assert mean <= 2 * harmonic * local_zcdp(block, 1.0, sigma)
    # Stopping wastes half of the users, and the worst position has half of the iterations.
    half = stopped(block, 1.0, sigma, users=N)
    assert len(half.rho) == 500 and half.rho == pytest.approx(np.sort(found.rho)[500:][::-1])
    assert half.price(1e-6).epsilon > found.price(1e-6).epsilon


def test_random_stopping_is_bounded_by_the_user_in_the_middle():
    block = TwoBlock(nu=1.0, beta=1e4, eta=1.0)
    for N in (1, 2, 7, 10):
        bound = stopped(block, 1.0, 2.0, users=N)
        ends = range(N // 2 + 1, N + 1)
        for user in range(1, N + 1):
            some = [least(block, 1.0, 2.0, T - user)[0] if T >= user else 0.0 for T in ends]
            assert len(some) == len(bound.rho)
            assert (np.sort(some) <= np.sort(bound.rho) * (1 + 1e-12)).all()


@pytest.mark.parametrize("delta", [1e-3, 1e-6])
def test_the_price_of_a_permutation_is_below_what_its_divergences_give(delta):
    from dp_accounting.rdp import compute_epsilon

    block = TwoBlock(nu=1.0, beta=100.0, eta=1.0)
    found = permuted(block, 1.0, 6.0, users=200)
    orders = list(np.geomspace(1.05, 30, 300))
    price = found.price(delta)
    assert found.delta(price.epsilon) <= delta < found.delta(price.epsilon * (1 - 1e-6))
    mean = np.mean([gaussian_delta(price.epsilon, rho) for rho in found.rho])
    assert mean == pytest.approx(delta, rel=1e-6)
    known = compute_epsilon(orders, [renyi(found, a) for a in orders], delta)[0]
    worst = profile(block, 1.0, 6.0, users=200).price(delta).epsilon
    assert price.epsilon < known
    assert price.epsilon < worst
    assert found.price(0.0).epsilon == math.inf
    assert permuted(block, 0.0, 6.0, users=3).price(delta).epsilon == 0


def test_sampling_with_replacement_sums_over_all_draws():
    block = TwoBlock(nu=1.0, beta=20.0, eta=1.0)
    users, N, alphas = 3, 6, [1.5, 4.0]
    found = sampled(block, 1.0, 3.0, users=users, iterations=N)
    for alpha, bound in zip(alphas, found.renyi(alphas), strict=True):
        total = 0.0
        for draws in itertools.product([True, False], repeat=N):
            at = [t for t in range(N) if draws[t]]
            gaps = [b - a - 1 for a, b in itertools.pairwise([*at, N])]
            loss = math.fsum(least(block, 1.0, 3.0, gap)[0] for gap in gaps)
            weight = (1 / users) ** len(at) * (1 - 1 / users) ** (N - len(at))
            total += weight * math.exp(alpha * (alpha - 1) * loss)
        assert bound == pytest.approx(math.log(total) / (alpha - 1), rel=1e-7)
    price = found.price(1e-6)
    assert 0 < price.epsilon < math.inf and "sampling" in price.accountant
    assert sampled(block, 0.0, 3.0, users=2, iterations=3).price(1e-6).epsilon == 0
    hopeless = sampled(block, 1e4, 1.0, users=2, iterations=3)
    assert hopeless.price(1e-6).epsilon == math.inf


@settings(random_instances, max_examples=40)
@given(seeds, st.floats(1.1, 8))
def test_sampling_is_above_the_exact_loss_of_revealed_draws(seed, alpha):
    instance = Instance(seed, strong=bool(seed % 2), iterations=5)
    users, sigma = 2, 2 * instance.eta
    bound = sampled(instance.block, 1.0, sigma, users=users, iterations=5).renyi([alpha])[0]
    total = 0.0
    for draws in itertools.product([True, False], repeat=5):
        exact = instance.loss({t for t in range(5) if draws[t]}) / sigma**2
        total += math.exp(alpha * (alpha - 1) * exact) / 32
    assert math.log(total) / (alpha - 1) <= bound * (1 + 1e-6)


# What is refused ------------------------------------------------------------------------------

VALID = {"nu": 1.0, "beta": 1.0, "eta": 1.0}


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda b: local_zcdp(b, -1.0, 1.0), "sensitivity must be.*got -1.0.*Clip"),
        (lambda b: local_zcdp(b, math.inf, 1.0), "sensitivity must be.*got inf"),
        (lambda b: local_zcdp(b, 1.0, 0.0), "sigma must be.*got 0.0.*no privacy"),
        (lambda b: profile(b, 1.0, 1.0, users=0), "users must be.*got 0"),
        (lambda b: profile(b, 1.0, 1.0, users=2, iterations=0), "iterations must be.*got 0"),
        (lambda b: profile(b, 1.0, 1.0, users=2).price(1.5), "got 1.5"),
        (lambda b: permuted(b, 1.0, 1.0, users=2).price(-1.0), "got -1.0"),
        (lambda b: sampled(b, 1.0, 1.0, users=2, iterations=2).renyi([0.5]), "above 1, got 0.5"),
    ],
)
def test_arguments_are_checked(call, match):
    with pytest.raises(dp.DpcvxError, match=match):
        call(TwoBlock(**VALID))
