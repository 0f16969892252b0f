"""Composition and calibration against closed forms and other accountants."""

import math
import subprocess
import sys

import mpmath as mp
import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, LaplaceDpEvent, pld, rdp
from hypothesis import given, settings
from hypothesis import strategies as st

import dpcvx as dp
from dpcvx.privacy.accounting import (
    Composition,
    check_delta,
    classical_gaussian_multiplier,
    gaussian_multiplier,
    laplace_multiplier,
    ryu_kim_claim,
)
from dpcvx.privacy.accounts import Account, Budget
from dpcvx.privacy.entries import Entry
from dpcvx.privacy.mechanism import Calibrated
from tests.instances import power_line
from tests.spies import watch_releases

multipliers = st.floats(0.5, 100)
deltas = st.sampled_from([1e-2, 1e-6, 1e-9])


def gaussian(multiplier, count=1):
    return Composition().with_gaussian(multiplier, count)


def laplace(multiplier, count=1):
    return Composition().with_laplace(multiplier, count)


def precise_delta(epsilon, mu):
    """delta of a Gaussian mechanism with 50 digits."""
    with mp.workdps(50):
        e, m = mp.mpf(epsilon), mp.mpf(mu)
        return mp.ncdf(-e / m + m / 2) - mp.exp(e) * mp.ncdf(-e / m - m / 2)


# Roots of precise_delta(epsilon, sqrt(steps) / multiplier) = delta by bisection, 50 digits.
@pytest.mark.parametrize(
    ("steps", "multiplier", "delta", "epsilon"),
    [
        (1, 1, 1e-5, 4.377178095681),
        (500, 20, 1e-6, 5.550859868236),
        (500, 50, 1e-6, 1.994526900696),
        (500, 100, 1e-6, 0.9405155265308),
        (300, 10, 1e-5, 8.385418924217),
        (10_000, 100, 1e-9, 6.173935046671),
        (7, 0.5, 1e-3, 29.56767799956),
    ],
)
def test_gaussian_releases_compose_exactly(steps, multiplier, delta, epsilon):
    price = gaussian(multiplier, steps).price(delta)
    assert price.epsilon == pytest.approx(epsilon, rel=1e-10)
    assert price.accountant == "exact Gaussian composition"
    assert price.delta == delta


# Steps of classical noise at (epsilon, delta) each: the exact total, and the claim of Theorem 4.9.
ERRATA = [
    (100, 1.0, 1e-2, 11.918178190327, 9.7661884686347),
    (500, 1.0, 1e-2, 41.765113650153, 21.837861296942),
    (5000, 1.0, 1e-6, 151.61811149734, 70.146456109945),
    (100, 0.05, 1e-2, 0.19242582129761, 0.48830942343173),
]


@pytest.mark.parametrize(("steps", "epsilon", "delta", "truth", "claim"), ERRATA)
def test_the_claimed_total_is_not_the_total(steps, epsilon, delta, truth, claim):
    m = classical_gaussian_multiplier(epsilon, delta)
    assert gaussian(m, steps).price(delta).epsilon == pytest.approx(truth, rel=1e-10)
    assert ryu_kim_claim(steps, epsilon, delta) == pytest.approx(claim, rel=1e-10)


def test_what_is_claimed_at_delta_1e_6_fails_with_probability_0_91():
    m = classical_gaussian_multiplier(1.0, 1e-6)
    claimed = ryu_kim_claim(5000, 1.0, 1e-6)
    assert float(precise_delta(claimed, math.sqrt(5000) / m)) == pytest.approx(0.9093926196)


@settings(deadline=None, max_examples=100)
@given(st.integers(1, 10**6), st.floats(1e-4, 100))
def test_laplace_calibration_at_delta_zero_is_the_pure_sum(steps, epsilon):
    m = laplace_multiplier(steps, epsilon, 0.0)
    assert m == pytest.approx(steps / epsilon, rel=1e-9)
    assert laplace(m, steps).price(0.0).epsilon <= epsilon


def test_gaussian_calibration_refuses_delta_zero():
    with pytest.raises(dp.PrivacyError, match="delta"):
        gaussian_multiplier(1, 1.0, 0.0)
    with pytest.raises(dp.PrivacyError, match="release_delta"):
        classical_gaussian_multiplier(1.0, 0.0)


def test_gaussian_noise_has_no_price_at_delta_zero():
    assert gaussian(5.0).price(0.0).epsilon == math.inf
    assert gaussian(5.0).with_laplace(5.0).price(0.0).epsilon == math.inf
    assert gaussian(5.0).pure == math.inf


def test_nothing_released_costs_nothing():
    for delta in (0.0, 1e-6):
        assert Composition().price(delta).epsilon == 0.0


@settings(deadline=None, max_examples=50)
@given(multipliers, st.integers(1, 40), st.sampled_from(["with_gaussian", "with_laplace"]))
def test_n_releases_at_once_equal_n_releases_in_a_loop(multiplier, count, kind):
    loop = Composition()
    for _ in range(count):
        loop = getattr(loop, kind)(multiplier)
    once = getattr(Composition(), kind)(multiplier, count)
    assert loop.mu2 == pytest.approx(once.mu2, rel=1e-12)
    assert loop.laplace == once.laplace
    for delta in (0.0, 1e-6) if kind == "with_gaussian" else (0.0,):
        assert loop.price(delta).epsilon == pytest.approx(once.price(delta).epsilon, rel=1e-10)


releases = st.lists(
    st.tuples(st.sampled_from(["with_gaussian", "with_laplace"]), st.sampled_from([1.0, 5.0, 7.5])),
    min_size=1,
    max_size=8,
)


def composed(parts):
    total = Composition()
    for kind, multiplier in parts:
        total = getattr(total, kind)(multiplier)
    return total


@settings(deadline=None, max_examples=50)
@given(releases, st.randoms(use_true_random=False))
def test_order_does_not_matter(parts, random):
    shuffled = random.sample(parts, len(parts))
    assert composed(shuffled).mu2 == pytest.approx(composed(parts).mu2, rel=1e-14)
    assert composed(shuffled).laplace == composed(parts).laplace


@settings(max_examples=50)
@given(releases, st.integers(0, 30))
def test_repeated_is_the_same_releases_again_and_again(parts, times):
    repeated = composed(parts).repeated(times)
    assert repeated.mu2 == pytest.approx(composed(parts * times).mu2, rel=1e-12)
    assert {m: c for m, c in repeated.laplace if c} == dict(composed(parts * times).laplace)
    assert repeated.pure == pytest.approx(composed(parts * times).pure, rel=1e-12)
    assert repeated.rho == pytest.approx(composed(parts * times).rho, rel=1e-12)


def test_a_release_without_noise_makes_everything_free_of_a_guarantee():
    exposed = laplace(5.0).with_exposure()
    for total in (exposed, exposed.with_gaussian(1e6), exposed.with_laplace(1e6, 3)):
        assert total.price(0.1).epsilon == total.pure == total.rho == math.inf
    assert exposed.repeated(2).exposed


# -- releases that are known by a pair of epsilon and delta only

pairs = st.lists(
    st.tuples(st.sampled_from([0.25, 0.5, 2.0]), st.sampled_from([1e-7, 2e-7])), max_size=3
)


def known(stated, parts=()):
    """With pairs that were stated."""
    return composed(parts).joined(Composition(stated=tuple(stated)))


@settings(deadline=None, max_examples=50)
@given(pairs, pairs, releases, releases)
def test_joined_compositions_hold_the_releases_of_both_in_any_order(one, two, first, second):
    both, turned = (known(a, p).joined(known(b, q)) for a, p, b, q in (
        (one, first, two, second), (two, second, one, first)
    ))  # fmt: skip
    assert both.stated == (*one, *two) and sorted(turned.stated) == sorted(both.stated)
    for found in (both, turned):
        assert found.mu2 == pytest.approx(composed([*first, *second]).mu2, rel=1e-12)
        assert found.laplace == composed([*first, *second]).laplace
        assert not found.exposed
    assert known(one, first) == known(one, first).joined(Composition())


def test_joining_keeps_an_exposure():
    assert Composition().joined(Composition(exposed=True)).exposed
    assert known([(1.0, 1e-7)]).with_exposure().price(0.5).epsilon == math.inf


@given(pairs.filter(bool), st.sampled_from([1.0, 2.0]))
def test_stated_pairs_add_up(stated, factor):
    total = math.fsum(d for _, d in stated)
    price = known(stated).price(factor * total)
    assert price.epsilon == pytest.approx(math.fsum(e for e, _ in stated), rel=1e-12)
    assert price.delta == factor * total and "stated at a delta" in price.accountant
    # In whatever order deltas are summed, they are what was planned with.
    assert known(stated[::-1]).price(sum(d for _, d in stated)).epsilon < math.inf


@settings(deadline=None, max_examples=30)
@given(pairs.filter(bool), multipliers, st.sampled_from([1e-6, 1e-4]))
def test_other_noise_has_the_delta_that_is_left(stated, multiplier, delta):
    epsilon, spent = (math.fsum(part) for part in zip(*stated, strict=True))
    mixed = known(stated).joined(gaussian(multiplier))
    alone = gaussian(multiplier).price(delta - spent)
    assert mixed.price(delta).epsilon == pytest.approx(epsilon + alone.epsilon, rel=1e-12)
    assert mixed.price(delta).accountant.endswith(f"plus {alone.accountant}")
    assert mixed.price(delta).epsilon >= epsilon + gaussian(multiplier).price(delta).epsilon


@pytest.mark.parametrize("rest", [Composition(), gaussian(50.0), laplace(50.0)])
@pytest.mark.parametrize("delta", [0.0, 1e-9, 0.99e-7])
def test_stated_deltas_above_the_asked_one_leave_no_guarantee(rest, delta):
    price = known([(0.1, 1e-7)]).joined(rest).price(delta)
    assert price.epsilon == math.inf and "exceed" in price.accountant


def test_where_all_of_delta_is_stated_only_pure_losses_may_be_added():
    stated = known([(0.5, 1e-7)])
    assert stated.joined(laplace(4.0)).price(1e-7).epsilon == pytest.approx(0.75)
    assert stated.joined(gaussian(4.0)).price(1e-7).epsilon == math.inf


@settings(deadline=None, max_examples=30)
@given(pairs.filter(bool), pairs, releases, st.sampled_from([1e-6, 1e-3]))
def test_more_stated_pairs_cost_more_and_a_larger_delta_less(stated, more, parts, delta):
    here = known(stated, parts[:1]).price(delta).epsilon
    assert here <= known([*stated, *more], parts[:1]).price(delta).epsilon * (1 + 1e-12)
    assert here >= composed(parts[:1]).price(delta).epsilon
    assert here >= known(stated, parts[:1]).price(2 * delta).epsilon * (1 - 1e-12)


@given(pairs.filter(bool), st.integers(1, 4))
def test_stated_pairs_are_repeated_in_full(stated, times):
    again = known(stated).repeated(times)
    assert sorted(again.stated) == sorted(tuple(stated) * times)
    total = times * math.fsum(d for _, d in stated)
    assert again.price(1.001 * total).epsilon == pytest.approx(
        times * math.fsum(e for e, _ in stated), rel=1e-12
    )


def test_a_stated_pair_has_no_other_parameter():
    stated = known([(0.5, 1e-7)])
    assert stated.rho == stated.pure == math.inf
    assert Composition().stated == () and Composition().repeated(3) == Composition()
    assert known([(0.5, 0.0)]).price(0.0).epsilon == 0.5


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_more_laplace_releases_cost_more_and_more_noise_less(delta):
    counts = [laplace(20.0, k).price(delta).epsilon for k in (1, 2, 30, 300)]
    scales = [laplace(m, 100).price(delta).epsilon for m in (10.0, 20.0, 40.0)]
    assert counts == sorted(counts) and len(set(counts)) == 4
    assert scales == sorted(scales, reverse=True) and len(set(scales)) == 3


def test_adding_a_release_leaves_the_old_composition_alone():
    one = laplace(2.0)
    one.with_laplace(2.0)
    one.with_gaussian(1.0)
    assert one == laplace(2.0)


@pytest.mark.parametrize(
    ("multiplier", "count", "accountant"),
    [(50.0, 500, "privacy loss distribution"), (1e5, 3, "sum of pure epsilons")],
)
def test_the_smaller_of_two_laplace_bounds_is_stated_by_name(multiplier, count, accountant):
    price = laplace(multiplier, count).price(1e-6)
    assert price.accountant == accountant
    assert price.epsilon <= laplace(multiplier, count).pure


def test_pure_epsilons_add_up():
    assert laplace(10.0, 10).pure == 1.0
    price = laplace(4.0, 2).with_laplace(0.5, 3).price(0.0)
    assert price.epsilon == 6.5
    assert price.accountant == "sum of pure epsilons"


@pytest.mark.parametrize("multiplier", [0.5, 1.0, 4.0])
@pytest.mark.parametrize("delta", [1e-6, 1e-3, 0.1])
def test_one_laplace_release_has_its_closed_form(multiplier, delta):
    exact = max(0.0, 1 / multiplier + 2 * math.log(1 - delta))
    stated = laplace(multiplier).price(delta).epsilon
    assert stated == pytest.approx(exact, rel=1e-12, abs=1e-12)
    # What dp_accounting rounds up is above it.
    accountant = pld.PLDAccountant(value_discretization_interval=1e-4)
    rounded = accountant.compose(LaplaceDpEvent(multiplier)).get_epsilon(delta)
    assert stated - 1e-9 <= rounded <= stated + 2e-4


@pytest.mark.parametrize("epsilon", [1e-9, 1e-3, 1.0, 30.0])
@pytest.mark.parametrize("delta", [1e-12, 1e-6, 0.1, 0.9])
def test_one_laplace_release_is_calibrated_exactly(epsilon, delta):
    multiplier = laplace_multiplier(1, epsilon, delta)
    assert laplace(multiplier).price(delta).epsilon <= epsilon
    # The hockey-stick divergence at epsilon: more than delta with less noise, not with this.
    for factor, fits in ((1.0, True), (1 - 1e-9, False)):
        assert (-math.expm1((epsilon - 1 / (factor * multiplier)) / 2) <= delta) is fits


def test_one_laplace_release_needs_no_loss_distribution():
    code = (
        "import sys; from dpcvx.privacy.accounting import laplace_multiplier;"
        "laplace_multiplier(1, 1.0, 1e-6); assert 'dp_accounting' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def loss_of_laplace(a, step):
    """Losses of one Laplace release of pure epsilon a, rounded up to multiples of `step`."""
    edges = np.arange(math.floor(-a / step), math.ceil(a / step) + 1) * step
    # P(loss <= l) = 1/2 exp(-(a - l)/2) below a, one at a.
    cdf = np.where(edges >= a - 1e-12, 1.0, np.where(edges < -a, 0.0, np.exp((edges - a) / 2) / 2))
    return edges[0], np.diff(cdf, prepend=0.0)


def profile(parts, step, epsilon):
    start, mass = 0.0, np.ones(1)
    for a in parts:
        first, own = loss_of_laplace(a, step)
        start, mass = start + first, np.convolve(mass, own)
    losses = start + step * np.arange(mass.size)
    return mass @ np.maximum(0.0, -np.expm1(epsilon - losses))


SPLITS = [
    (total, np.random.default_rng(seed).dirichlet(np.full(k, alpha)) * total)
    for seed, (total, k, alpha) in enumerate(
        (t, k, a) for t in (0.3, 2.0, 6.0) for k in (2, 3, 7) for a in (0.3, 1.0, 50.0)
    )
]


def test_the_rounded_profile_of_one_release_brackets_the_closed_form():
    for epsilon in np.linspace(0, 1.9, 20):
        exact = -math.expm1((epsilon - 2.0) / 2)
        rounded = profile([2.0], 1e-3, epsilon)
        assert exact <= rounded + 1e-12
        assert rounded <= -math.expm1((epsilon - 1e-3 - 2.0) / 2) + 1e-12


@pytest.mark.parametrize(("total", "parts"), SPLITS)
def test_a_laplace_vector_is_dominated_by_one_scalar_release(total, parts):
    step = total / 4000
    for epsilon in np.linspace(0, total, 40, endpoint=False):
        scalar = -math.expm1(min(0.0, (epsilon - step * parts.size - total) / 2))
        assert profile(parts, step, epsilon) <= scalar + 1e-12


def test_the_domination_test_would_notice_a_scalar_that_is_too_good():
    parts, epsilon = np.array([1.0, 1.0]), 1.85
    assert profile(parts, 5e-4, epsilon) > -math.expm1(min(0.0, (epsilon - 1.8) / 2))


@pytest.mark.parametrize(("laplaces", "gaussians"), [(500, 0), (250, 250)])
def test_renyi_accounting_is_an_upper_bound_for_laplace_and_mixed_noise(laplaces, gaussians):
    accountant = rdp.RdpAccountant().compose(LaplaceDpEvent(60.0), laplaces)
    total = laplace(60.0, laplaces)
    if gaussians:
        accountant.compose(GaussianDpEvent(40.0), gaussians)
        total = total.with_gaussian(40.0, gaussians)
    bound = accountant.get_epsilon(1e-6)
    assert 0.9 * bound < total.price(1e-6).epsilon <= bound


@settings(max_examples=8)
@given(st.floats(2, 30), st.integers(1, 20))
def test_exact_is_below_loss_distributions_and_these_below_renyi(multiplier, count):
    event, delta = GaussianDpEvent(multiplier), 1e-6
    loss = pld.PLDAccountant(value_discretization_interval=1e-3).compose(event, count)
    renyi = rdp.RdpAccountant().compose(event, count)
    exact = gaussian(multiplier, count).price(delta).epsilon
    assert exact <= loss.get_epsilon(delta) * (1 + 1e-9) <= renyi.get_epsilon(delta)


@pytest.mark.parametrize(
    ("gaussians", "laplaces"), [((5.0, 4), (8.0, 3)), ((1.5, 1), (0.7, 2)), ((40.0, 90), (60.0, 9))]
)
def test_mixed_noise_is_priced_like_its_events_one_by_one(gaussians, laplaces):
    accountant = pld.PLDAccountant(value_discretization_interval=1e-3)
    for make, (m, count) in ((GaussianDpEvent, gaussians), (LaplaceDpEvent, laplaces)):
        for _ in range(count):
            accountant.compose(make(m))
    stated = gaussian(*gaussians).with_laplace(*laplaces).price(1e-6).epsilon
    # The loop rounds up by at most half of 1e-3 each time; ours by less, because it merges first.
    assert stated == pytest.approx(accountant.get_epsilon(1e-6), rel=5e-3)
    parts = gaussian(*gaussians).price(1e-6).epsilon + laplace(*laplaces).pure
    assert stated <= parts


def test_losses_below_the_grid_of_the_distribution_are_priced_by_the_sum():
    price = gaussian(1e3).with_laplace(1e6).price(1e-6)
    assert price.accountant == "exact Gaussian composition plus pure epsilons"
    assert price.epsilon == pytest.approx(gaussian(1e3).price(1e-6).epsilon + 1e-6, rel=1e-9)


def test_zero_concentrated_parameters_golden_and_additive():
    # Bun and Steinke (2016): 1 / (2 sigma^2), and epsilon^2 / 2 of pure epsilon.
    assert gaussian(5.0).rho == pytest.approx(0.02, rel=1e-14)
    assert laplace(4.0).rho == pytest.approx(0.03125, rel=1e-14)
    assert gaussian(5.0, 7).with_laplace(4.0, 3).rho == pytest.approx(0.23375, rel=1e-14)


@settings(max_examples=25)
@given(releases, st.sampled_from([1e-9, 1e-6, 1e-2]))
def test_the_zero_concentrated_conversion_is_an_upper_bound(parts, delta):
    # Bun and Steinke (2016), Proposition 1.3.
    total = composed(parts)
    assert total.price(delta).epsilon <= total.rho + 2 * math.sqrt(total.rho * math.log(1 / delta))


def book_for(epsilon, delta):
    return Account("bob", {}, Budget(epsilon, delta, Composition()))


def charge(book, noise, multiplier):
    entry = Entry(1, 1, str(noise), multiplier, 1.0, 2.0**-20, "derived", "gradient")
    book.charge(entry, Calibrated(noise, multiplier))


def test_rounds_of_unequal_noise_in_one_account_compose_exactly():
    book = book_for(50.0, 1e-6)
    for multiplier in (3, 5, 7, 11, 13):
        charge(book, dp.Gaussian(), multiplier)
    # Root of precise_delta at mu^2 = 1/9 + 1/25 + 1/49 + 1/121 + 1/169 with 50 digits.
    assert book.spent().epsilon == pytest.approx(1.9152340754367, rel=1e-10)
    assert book.rho == pytest.approx(0.092850448474824, rel=1e-12)
    charge(book, dp.Laplace(), 2.0)
    mixed = composed([("with_gaussian", m) for m in (3, 5, 7, 11, 13)] + [("with_laplace", 2.0)])
    assert book.spent() == mixed.price(1e-6)
    assert 1.9152340754367 < book.spent().epsilon <= 2.4152340754367 * (1 + 1e-10)


spendings = st.lists(st.floats(0.5, 50), min_size=1, max_size=25)


@settings(max_examples=40)
@given(spendings, st.floats(0.2, 8), st.sampled_from(["gaussian", "laplace"]))
def test_an_account_never_exceeds_its_budget_and_never_forgets(multipliers, budget, kind):
    noise, delta = (dp.Gaussian(), 1e-6) if kind == "gaussian" else (dp.Laplace(), 0.0)
    book = book_for(budget, delta)
    before = 0.0
    for multiplier in multipliers:
        count = len(book.entries)
        try:
            charge(book, noise, multiplier)
        except dp.BudgetError as refusal:
            assert refusal.requested > budget
            assert len(book.entries) == count
            assert book.spent().epsilon == before
            continue
        assert len(book.entries) == count + 1
        assert before < book.spent().epsilon <= budget * (1 + 1e-8)
        before = book.spent().epsilon


def test_a_mixed_account_stops_at_its_budget():
    book = book_for(2.0, 1e-6)
    spent = [0.0]
    with pytest.raises(dp.BudgetError):
        for _ in range(20):
            charge(book, dp.Gaussian(), 6.0)
            spent.append(book.spent().epsilon)
            charge(book, dp.Laplace(), 5.0)
            spent.append(book.spent().epsilon)
    assert spent == sorted(set(spent))
    assert 1.5 < spent[-1] <= 2.0


@pytest.mark.parametrize("mechanism", [dp.Gaussian(), dp.Laplace()], ids=str)
def test_the_odometer_of_a_run_rises_to_the_price_of_its_plan(monkeypatch, mechanism):
    delta = 1e-6 if isinstance(mechanism, dp.Gaussian) else 0.0
    plan = power_line().problem.plan(
        dp.LinearizedADMM(penalty=1.0, local_updates=2),
        mechanism=mechanism,
        rounds=6,
        epsilon=1.5,
        delta=delta,
    )
    readings = {}

    def metered(gate, place, charges, values):
        for agent, account in zip(gate.agents, gate.accounts(), strict=True):
            readings.setdefault(agent, []).append(account.spent().epsilon)

    watch_releases(monkeypatch, metered)
    result = plan.run(seed=0)
    assert sorted(readings) == [0, 1]
    for spent in readings.values():
        assert len(spent) == 12
        assert spent == sorted(set(spent))
        assert spent[-1] == pytest.approx(plan.price.epsilon, rel=1e-9)
        assert spent[-1] <= 1.5 * (1 + 1e-9)
    assert result.ledger.spent() == pytest.approx(plan.price.epsilon, rel=1e-9)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 0.0, -1.0])
def test_multipliers_without_meaning_are_refused(value):
    for add in (Composition().with_gaussian, Composition().with_laplace):
        with pytest.raises(dp.PrivacyError, match="multiplier"):
            add(value)


@pytest.mark.parametrize("value", [math.nan, math.inf, -1e-9, 1.0, 2.0, "1e-6", None])
def test_deltas_outside_the_unit_interval_are_refused(value):
    for use in (
        check_delta,
        gaussian(1.0).price,
        laplace(1.0).price,
        lambda d: laplace_multiplier(1, 1.0, d),
        lambda d: gaussian_multiplier(1, 1.0, d),
    ):
        with pytest.raises(dp.PrivacyError, match="delta"):
            use(value)


@pytest.mark.parametrize("value", [math.nan, math.inf, 0.0, -1.0, "1", None])
def test_epsilons_that_are_no_budget_are_refused(value):
    for use in (gaussian_multiplier, laplace_multiplier):
        with pytest.raises(dp.PrivacyError, match="epsilon"):
            use(1, value, 1e-6)
    with pytest.raises(dp.PrivacyError, match="epsilon"):
        classical_gaussian_multiplier(value, 1e-6)


@pytest.mark.parametrize("add", ["with_gaussian", "with_laplace"])
def test_negative_counts_are_refused(add):
    with pytest.raises(dp.PrivacyError):
        getattr(Composition(), add)(1.0, -3)


@pytest.mark.parametrize("multiplier", [1e-170, 1e200])
def test_extreme_gaussian_multipliers_are_priced_or_refused(multiplier):
    try:
        assert gaussian(multiplier).price(1e-6).epsilon >= 0
    except dp.PrivacyError:
        pass


# -- budgets of studies that want next to no noise -------------------------------------------------


@pytest.mark.parametrize("delta", [0.0, 1e-6, 1e-300])
@pytest.mark.parametrize("epsilon", [999.0, 2999.0, 3000.0, 1e4, 1e6, 1e20, 1e99])
@pytest.mark.parametrize(("steps", "ratios"), [(1, (1.0,)), (30, (1.0,)), (2, (1.0, 0.5, 0.25))])
def test_laplace_noise_can_be_scaled_to_huge_budgets(epsilon, delta, steps, ratios):
    found = laplace_multiplier(steps, epsilon, delta, ratios)
    spent = Composition(laplace=tuple(sorted((found * r, steps) for r in ratios))).price(delta)
    assert 0.99 * epsilon < spent.epsilon <= epsilon
    assert found <= steps * sum(1 / r for r in ratios) / epsilon * (1 + 1e-10)


@pytest.mark.parametrize("epsilon", [3000.0, 1e5, 1e10, 1e50])
def test_prices_of_mixed_noise_are_finite_at_huge_losses(epsilon):
    mixed = Composition(mu2=epsilon).with_laplace(1 / epsilon, 3).with_gaussian(1.0)
    price = mixed.price(1e-6)
    assert 3 * epsilon * (1 - 1e-3) <= price.epsilon < math.inf


# -- staircase noise


def staircase(multiplier, count=1):
    return Composition().with_bounded(multiplier, count)


def test_one_release_with_staircase_noise_costs_its_pure_epsilon():
    assert staircase(0.5).price(0).epsilon == staircase(0.5).price(1e-6).epsilon == 2.0
    assert staircase(0.5).pure == 2.0 and staircase(0.5).rho == 2.0


@pytest.mark.parametrize("delta", [1e-3, 1e-6])
@pytest.mark.parametrize(("epsilon", "count"), [(0.1, 100), (0.5, 10), (1.0, 4), (2.0, 2)])
def test_releases_with_staircase_noise_cost_no_less_than_they_lose(epsilon, count, delta):
    """No pure epsilon loses more than randomized responses, which are counted exactly here."""
    losses = [count - 2 * k for k in range(count + 1)]
    right = 1 / (1 + mp.exp(-mp.mpf(epsilon)))
    stated = mp.mpf(staircase(1 / epsilon, count).price(delta).epsilon)
    lost = sum(
        mp.binomial(count, k)
        * right ** (count - k)
        * (1 - right) ** k
        * max(mp.mpf(0), 1 - mp.exp(stated - mp.mpf(epsilon) * loss))
        for k, loss in enumerate(losses)
    )
    assert lost <= delta * (1 + 1e-9)
    assert staircase(1 / epsilon, count).price(delta).epsilon <= epsilon * count


def test_many_releases_with_staircase_noise_cost_less_than_their_sum():
    assert staircase(10.0, 1000).price(1e-6).epsilon < 0.4 * 100


def test_staircase_noise_adds_its_epsilon_to_all_other_noise():
    delta = 1e-6
    for other in (gaussian(2.0, 3), laplace(2.0, 3), gaussian(3.0).with_laplace(2.0)):
        both = other.joined(staircase(2.0))
        assert both == staircase(2.0).joined(other)
        assert both.price(delta).epsilon <= other.price(delta).epsilon + 0.5
        assert both.price(delta).epsilon > other.price(delta).epsilon
        assert both.mu2_bound > other.mu2_bound and both.rho == pytest.approx(other.rho + 0.125)
    assert laplace(2.0).joined(staircase(2.0)).price(0).epsilon == 1.0
    assert staircase(2.0, 3).repeated(2) == staircase(2.0, 6)
    assert gaussian(1.0).joined(staircase(1.0)).price(0).epsilon == math.inf
    assert staircase(2.0).with_gaussian(3.0).bounded == ((2.0, 1),)


def test_a_ledger_counts_staircase_noise_by_share_and_across_runs():
    noise = Calibrated(dp.Staircase(), 2.0)
    account = Account("a", {}, Budget(2.0, 1e-6, Composition()), share=2)
    entry = Entry(0, 1, "Staircase", 2.0, 1.0, 0.5, "derived", "data")
    account.charge(entry, noise)
    assert account.spent().epsilon == 1.0
    again = Account("a", {}, None, share=2)
    again.recall(entry)
    assert again.spent(0.0).epsilon == 1.0
    account.charge(entry, noise)
    with pytest.raises(dp.BudgetError):
        account.charge(entry, noise)
