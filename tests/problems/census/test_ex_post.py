"""Ex-post losses: the integrals themselves in many digits, the maximizer, gamma, composition."""

import math

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dpcvx as dp
from dpcvx.privacy.accounting import Composition
from problems.census.amplifications import surface
from problems.census.ex_post import (
    LABEL,
    ExPost,
    Losses,
    amplification,
    claimed_amplification,
    expected,
    observed,
)

lengths = st.floats(-6, 3).map(lambda e: 10.0**e)
shifts = st.floats(-6, 3).map(lambda e: 10.0**e)
places = st.floats(-0.5, 1.5)


def h(x, t, omega, beta):
    """The integral of its definition, piece by piece, in the working precision of mpmath."""
    x, t, omega, beta = map(mp.mpf, (x, t, omega, beta))
    low, high = t - x, t + omega - x  # of y - x
    if low < 0 < high:
        return (2 - mp.exp(beta * low) - mp.exp(-beta * high)) / beta
    near, far = (low, high) if low >= 0 else (-high, -low)
    return (mp.exp(-beta * near) - mp.exp(-beta * far)) / beta


def exact_loss(x, omega, beta, shift):
    ends = (h(x, t, omega, beta) for t in (shift, -shift))
    here = mp.log(h(x, 0, omega, beta))
    return max(abs(here - mp.log(there)) for there in ends)


def exact_gamma(w, s):
    """By quadrature over all outputs of the definition, beta = 1."""
    w, s = mp.mpf(w), mp.mpf(s)
    far = 60 + w
    cuts = {-far, -s, mp.mpf(0), s, w / 2, w - s, w, w + s, w + far}
    cuts |= {a + b for a in (0, s) for b in (1, 4, 16) if a + b < w / 2}
    cuts |= {w - c for c in cuts if 0 < c < w / 2}

    def integrand(x):
        return exact_loss(x, w, 1, s) * h(x, 0, w, 1) / (2 * w)

    return mp.quad(integrand, sorted(cuts)) / s


# h ------------------------------------------------------------------------------------------


def test_the_references_are_the_integral():
    with mp.workdps(20):
        for x in (-1, 0.2, 0.9, 3):
            assert float(mp.log(h(x, 0.1, 1.7, 2.5))) == pytest.approx(
                log_h(x, 0.1, omega=1.7, beta=2.5)
            )
            direct = mp.quad(
                lambda y, x=x: mp.exp(-2.5 * abs(x - y)), sorted({0.1, min(max(x, 0.1), 1.8), 1.8})
            )
            assert mp.almosteq(h(x, 0.1, 1.7, 2.5), direct, 1e-15)


def log_h(x, t=0.0, *, omega, beta):
    """Its logarithm, of arrays."""
    z, w = np.broadcast_arrays((np.asarray(x) - t) * beta, np.asarray(omega) * beta)
    near = np.minimum(z, w - z)
    inner = np.maximum(near, 0.0)
    mass = np.where(near > 0, -np.expm1(-inner) - np.expm1(inner - w), -np.expm1(-w))
    return np.minimum(near, 0.0) + np.log(mass) - np.log(beta)


# The loss -----------------------------------------------------------------------------------


@pytest.mark.parametrize("scaled", [1e-12, 0.01, 1.0, 7.0, 50.0, 1e3, 1e6])
@pytest.mark.parametrize("ratio", [1e-14, 1e-8, 1e-3, 0.1, 0.5, 0.9, 1.5, 1e3])
def test_losses_to_fifteen_digits(scaled, ratio):
    beta = 0.5  # exact products
    omega, shift = scaled / beta, ratio * scaled / beta
    parts = [-0.3, 0.0, 1e-13, 1e-6, 0.01, 0.2, 0.4999, 0.5, 0.50001, 0.8, 0.999, 1.0, 1.2]
    x = omega * np.array(parts)
    found = observed(x, omega=omega, beta=beta, shift=shift)
    with mp.workdps(600 if scaled == 1e3 else 120):  # losses down to e^-500
        for value, place in zip(found.values, x, strict=True):
            # Distances from the ends are rounded, in the last digit of the length.
            unit = mp.mpf(omega) * mp.mpf(2e-16)
            moved = [exact_loss(place + a * unit, omega, beta, shift) for a in (-1, 0, 1)]
            slack = 3e-15 + min(1e-16 * scaled, 1e-13)
            low, high = float(min(moved)) * (1 - slack), float(max(moved)) * (1 + slack)
            assert low - 1e-300 <= value <= high + 1e-300
    assert found.worst == pytest.approx(np.full(len(parts), beta * shift), rel=1e-15)


@pytest.mark.parametrize(
    ("x", "omega", "beta", "shift", "loss"),
    [  # by mpmath's quadrature of the integrals with 40 digits
        (0.5, 1.0, 1.0, 0.3, 0.0724514002092464958),
        (0.1, 1.0, 1.0, 0.3, 0.285570138754425726),
        (4.0, 10.0, 2.0, 0.25, 0.000107626264975663743),
        (0.7, 0.8, 5.0, 0.05, 0.129500080531642398),
    ],
)
def test_golden_losses(x, omega, beta, shift, loss):
    found = observed(x, omega=omega, beta=beta, shift=shift).values[0]
    assert found == pytest.approx(loss, rel=3e-15)


@given(part=places, omega=lengths, beta=lengths, shift=shifts)
def test_no_shift_does_more_than_the_worst_one(part, omega, beta, shift):
    x = part * omega
    loss = observed(x, omega=omega, beta=beta, shift=shift).values[0]
    here = log_h(x, omega=omega, beta=beta)
    kinks = np.array([x, x - omega, x - omega / 2])  # of the integral as a function of t
    tried = np.concatenate([shift * np.linspace(-1, 1, 401), kinks[np.abs(kinks) <= shift]])
    changes = np.abs(here - log_h(x, tried, omega=omega, beta=beta))
    slack = 1e-14 * (1 + abs(here) + beta * (omega + shift))
    assert changes.max() <= loss + slack
    at = shift if 2 * x <= omega else -shift
    assert abs(here - log_h(x, at, omega=omega, beta=beta)) == pytest.approx(loss, abs=slack)


@given(part=places, omega=lengths, beta=lengths, shift=shifts)
def test_losses_stay_below_the_worst_case_and_reach_it_outside(part, omega, beta, shift):
    x = part * omega
    found = observed(x, omega=omega, beta=beta, shift=shift)
    worst = beta * shift
    assert found.worst_case == worst
    assert worst == pytest.approx(Composition().with_laplace(1 / worst).pure)
    assert 0 <= found.values[0] <= worst
    if part <= 0 or part >= 1:
        assert found.values[0] == worst
    if 0.01 < part < 0.99 and worst < 1 and beta * omega > 0.1:
        assert found.values[0] < worst
    # It falls towards the middle, and is symmetric.
    nearer = observed(x + 0.25 * (omega / 2 - x), omega=omega, beta=beta, shift=shift).values[0]
    assert nearer <= found.values[0] * (1 + 1e-11) + 1e-300
    mirrored = observed(omega - x, omega=omega, beta=beta, shift=shift).values[0]
    assert mirrored == pytest.approx(found.values[0], rel=1e-9, abs=1e-12 * worst)


@given(part=st.floats(0, 1), omega=lengths, beta=lengths, shift=shifts)
def test_losses_grow_with_the_shift(part, omega, beta, shift):
    x = part * omega
    less, more = observed(x, omega=omega, beta=beta, shift=[shift, 1.1 * shift]).values
    assert less <= more * (1 + 1e-12)


def test_an_interval_of_no_length_costs_the_worst_case():
    found = observed([-1.0, 0.0, 2.0], omega=0.0, beta=2.0, shift=0.25)
    assert found.values.tolist() == [0.5] * 3
    assert amplification(omega=0.0, beta=2.0, shift=0.25) == 1
    assert observed(0.5, omega=1.0, beta=2.0, shift=0.0).total().loss == 0


# gamma --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("w", "s", "gamma"),
    [  # by `exact_gamma` with 30 digits
        (1.0, 0.3, 0.881011254138997498),
        (3.0, 0.3, 0.580797358690043201),
        (0.1, 0.05, 0.991729022286028053),
        (10.0, 1.0, 0.27582310293924238),
        (2.0, 5.0, 0.971505588374937264),
        (1000.0, 0.01, 0.00200694167471290286),
    ],
)
def test_golden_amplification(w, s, gamma):
    for beta in (1.0, 0.125, 64.0):
        found = amplification(omega=w / beta, beta=beta, shift=s / beta)
        assert found == pytest.approx(gamma, rel=1e-13)


@pytest.mark.parametrize(
    ("w", "ratio"),
    [
        *((w, 0.5) for w in (0.01, 0.6, 2.0, 9.0, 150.0)),
        *((2.0, ratio) for ratio in (1e-4, 0.2, 0.7, 3.0)),
        (150.0, 0.7),
        (0.01, 3.0),
    ],
)
def test_amplification_to_twelve_digits(w, ratio):
    with mp.workdps(25):
        exact = float(exact_gamma(w, w * ratio))
    assert amplification(omega=w, beta=1.0, shift=w * ratio) == pytest.approx(exact, rel=1e-12)


@given(omega=lengths, beta=lengths, shift=shifts)
def test_amplification_is_between_its_limits(omega, beta, shift):
    w = beta * omega
    least = -2 * math.expm1(-w / 2) / w
    gamma = float(amplification(omega=omega, beta=beta, shift=shift))
    assert least * (1 - 1e-12) <= gamma <= 1
    assert amplification(omega=omega, beta=beta, shift=0.0) == pytest.approx(least, rel=1e-14)
    tiny = amplification(omega=omega, beta=beta, shift=1e-12 * omega)
    assert tiny == pytest.approx(least, rel=1e-6)
    # Longer intervals and smaller shifts cost less in expectation.
    assert amplification(omega=1.2 * omega, beta=beta, shift=shift) <= gamma * (1 + 1e-12)
    assert amplification(omega=omega, beta=beta, shift=shift / 1.2) <= gamma * (1 + 1e-12)
    total = expected(omega=omega, beta=beta, shift=shift).total()
    assert total.loss == pytest.approx(gamma * beta * shift) and total.kind == "expected"


@pytest.mark.parametrize(("omega", "beta", "shift"), [(1.0, 1.0, 0.3), (2.0, 4.0, 0.5)])
def test_expected_losses_agree_with_simulated_ones(omega, beta, shift):
    # 200000 outputs; the mean misses the expectation by more than 5 standard errors with
    # probability 6e-7. The seed is fixed.
    rng = np.random.default_rng(8)
    x = rng.uniform(0, omega, 200_000) + rng.laplace(0, 1 / beta, 200_000)
    found = observed(x, omega=omega, beta=beta, shift=shift).values
    error = found.std() / math.sqrt(found.size)
    assert abs(found.mean() - expected(omega=omega, beta=beta, shift=shift).values[0]) < 5 * error


def printed_bound(w, s, exponent):
    """The right side of (11) by quadrature; beta = 1."""

    def inner(low, high):
        return 2 * mp.quad(lambda x: h(x, low, high - low, 1) / (2 * w), [0, (w - s) / 2])

    return mp.log(mp.exp(exponent) * (1 - inner(0, w)) + inner(-s, w - s)) / s


def test_the_papers_bound_of_gamma_fails():
    for w, s in [(1.0, 0.3), (0.2, 0.002), (5.0, 0.1), (10.0, 0.1), (4.0, 3.9)]:
        claim = claimed_amplification(omega=w / 2, beta=2.0, shift=s / 2)
        assert claim == pytest.approx(float(printed_bound(mp.mpf(w), mp.mpf(s), s)), rel=1e-10)
    pair = {"omega": 1.0, "beta": 1.0, "shift": 0.3}
    assert claimed_amplification(**pair) == pytest.approx(0.8354, abs=5e-5)
    assert amplification(**pair) == pytest.approx(0.8810, abs=5e-5)
    # The parameters of the paper's Figure 1: too small on 8 of 9, by up to 0.0027.
    omega, beta = np.meshgrid(np.linspace(0.1, 1, 10), np.linspace(2, 10, 9))
    claim = claimed_amplification(omega=omega, beta=beta, shift=0.001)
    true = amplification(omega=omega, beta=beta, shift=0.001)
    assert (claim < true).mean() == pytest.approx(8 / 9)
    assert (true - claim).max() == pytest.approx(0.00274, abs=1e-5)
    # On intervals of 6.8 / beta or more it held wherever tried.
    w = np.linspace(6.8, 200, 50)
    assert (
        claimed_amplification(omega=w, beta=1, shift=0.1)
        > amplification(omega=w, beta=1, shift=0.1)
    ).all()
    # (27) as printed has exp(omega alpha B): here exp(0.9) in place of exp(0.3), beyond any use.
    assert printed_bound(mp.mpf(3), mp.mpf(0.3), 0.9) > 1.5


def test_the_papers_maximizer_is_at_the_wrong_end():
    # Appendix D: on [0, (omega - s) / 2] the maximum is at t = -s.
    x, omega, shift = 0.05, 1.0, 0.3
    here = log_h(x, omega=omega, beta=1.0)
    wrong, right = np.abs(here - log_h(x, np.array([-shift, shift]), omega=omega, beta=1.0))
    assert right == pytest.approx(observed(x, omega=omega, beta=1.0, shift=shift).values[0])
    assert right > 1.4 * wrong
    # Theorem 2.2: strictly smaller on the whole interval. Not at its ends.
    assert observed([0.0, 1.0], omega=1.0, beta=1.0, shift=0.3).values.tolist() == [0.3, 0.3]


@pytest.mark.parametrize(("omega", "shift"), [(0.3, 0.3), (0.2, 0.3), (1.0, 0.0)])
def test_the_papers_bound_needs_long_intervals(omega, shift):
    with pytest.raises(dp.ModelError, match="omega > alpha B > 0"):
        claimed_amplification(omega=omega, beta=1.0, shift=shift)


# Composition --------------------------------------------------------------------------------


def test_rounds_add_up():
    first = observed([[0.1, 0.5], [0.7, 3.0]], omega=1.0, beta=1.0, shift=0.2)
    second = observed(0.4, omega=1.0, beta=2.0, shift=0.2)
    both = first + second
    assert both.values.size == 5 and both.worst_case == pytest.approx(4 * 0.2 + 0.4)
    assert both.total().loss == pytest.approx(first.total().loss + second.total().loss)
    assert both.total().loss < both.total().worst_case == both.worst_case
    assert not both.values.flags.writeable
    with pytest.raises(dp.PrivacyError, match="observed losses cannot be added to expected"):
        first + expected(omega=1.0, beta=1.0, shift=0.2)
    with pytest.raises(TypeError):
        first + 1.0  # pyright: ignore


def test_the_footnote_by_hand():
    losses = observed(np.full(400, 0.5), omega=1.0, beta=1.0, shift=0.3)
    e, delta = 0.0724514002092464958, 1e-3
    by_hand = 400 * (math.exp(e) - 1) * e / (math.exp(e) + 1)
    by_hand += math.sqrt(-2 * 400 * e**2 * math.log(delta))
    strong = losses.strong(delta)
    assert strong.loss == pytest.approx(by_hand) and strong.delta == delta
    V, V0 = 400 * e**2, 400 * 0.09
    by_hand = 400 * e * math.tanh(e / 2)
    by_hand += math.sqrt((V + V0) * (2 * math.log(1 / delta) + math.log(1 + V / V0)))
    assert losses.adaptive(delta).loss == pytest.approx(by_hand)
    assert strong.loss < losses.adaptive(delta).loss < losses.total().loss
    # Few coordinates: the sum is smaller.
    few = observed(np.full(4, 0.5), omega=1.0, beta=1.0, shift=0.3)
    assert few.strong(delta) == few.adaptive(delta) == few.total()
    nothing = observed(np.full(4, 0.5), omega=1.0, beta=1.0, shift=0.0)
    assert nothing.adaptive(delta).loss == nothing.strong(delta).loss == 0


@given(part=places, omega=lengths, beta=lengths, shift=shifts)
def test_signs_have_the_odds_of_their_losses(part, omega, beta, shift):
    # The reflection that swaps the two densities.
    x = part * omega
    mirrored = omega + shift - x
    swapped = log_h(mirrored, np.array([0.0, shift]), omega=omega, beta=beta)
    slack = 1e-14 * (1 + abs(swapped[0]) + beta * (omega + shift))
    assert swapped[::-1] == pytest.approx(
        log_h(x, np.array([0.0, shift]), omega=omega, beta=beta), abs=slack
    )


def test_the_footnote_covers_one_round():
    # 20000 rounds of 60 coordinates. If failures have probability 0.05, their number is 6 standard
    # deviations above its mean with probability 1e-9. The seed is fixed.
    rng = np.random.default_rng(3)
    omega, beta, shift, delta = 3.0, 1.0, 0.4, 0.05
    x = rng.uniform(0, omega, (20_000, 60)) + rng.laplace(0, 1 / beta, (20_000, 60))
    lost = log_h(x, omega=omega, beta=beta) - log_h(x, shift, omega=omega, beta=beta)
    e = observed(x, omega=omega, beta=beta, shift=shift).values.reshape(x.shape)
    bound = (e * np.tanh(e / 2)).sum(1) + np.sqrt(2 * math.log(1 / delta) * (e**2).sum(1))
    one = observed(x[0], omega=omega, beta=beta, shift=shift).strong(delta)
    assert one.loss == pytest.approx(bound[0])
    failures = (lost.sum(1) > bound).mean()
    assert failures < delta + 6 * math.sqrt(delta * (1 - delta) / 20_000)
    assert failures > 0  # the bound is not vacuous


def test_the_adaptive_form_covers_iterations():
    # An adversary who stretches the intervals, so that little more is lost or won, once the sum of
    # losses is high. 20000 runs of 60 rounds, as above.
    rng = np.random.default_rng(4)
    beta, shift, delta, runs = 1.0, 0.4, 0.05, 20_000
    total, drift, square = np.zeros(runs), np.zeros(runs), np.zeros(runs)
    for _ in range(60):
        omega = np.where(total > 1.5 * np.sqrt(square + 0.1), 300.0, 1.0)
        x = rng.uniform(0, omega) + rng.laplace(0, 1 / beta, runs)
        total += log_h(x, omega=omega, beta=beta) - log_h(x, shift, omega=omega, beta=beta)
        e = observed(x, omega=omega, beta=beta, shift=shift).values
        drift += e * np.tanh(e / 2)
        square += e**2
    ceiling = 60 * shift**2
    width = (square + ceiling) * (2 * math.log(1 / delta) + np.log1p(square / ceiling))
    failures = (total > drift + np.sqrt(width)).mean()
    assert failures < delta + 6 * math.sqrt(delta * (1 - delta) / runs)


@pytest.mark.parametrize("rule", ["strong", "adaptive"])
def test_strong_composition_checks_its_arguments(rule):
    losses = observed(0.5, omega=1.0, beta=1.0, shift=0.3)
    with pytest.raises(dp.PrivacyError, match="got 1.5"):
        getattr(losses, rule)(1.5)
    with pytest.raises(dp.PrivacyError, match="needs delta > 0"):
        getattr(losses, rule)(0)
    with pytest.raises(dp.PrivacyError, match="not for their expectations"):
        getattr(expected(omega=1.0, beta=1.0, shift=0.3), rule)(1e-3)


# Labels and refusals ------------------------------------------------------------------------


def test_nobody_mistakes_it_for_an_epsilon():
    losses = observed(np.full(400, 0.5), omega=1.0, beta=1.0, shift=0.3)
    for thing in (losses, losses.total(), losses.strong(1e-3), expected(omega=1, beta=1, shift=1)):
        assert LABEL == "ex-post (depends on the output; not a guarantee)"
        assert LABEL in str(thing) and "worst case" in str(thing)
        assert not hasattr(thing, "epsilon")
        with pytest.raises(TypeError):
            float(thing)  # pyright: ignore
    assert str(losses.total()).startswith("observed loss 28.9806, ex-post")
    assert "at delta = 0.001, ex-post" in str(losses.strong(1e-3))
    assert "0.0724" not in repr(losses)
    assert ExPost(1.0, 0.0, 2.0, "observed", "sum") == ExPost(1.0, 0.0, 2.0, "observed", "sum")
    assert isinstance(losses, Losses)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"omega": -1.0}, "omega must be a nonnegative"),
        ({"omega": math.nan}, "omega must be"),
        ({"beta": 0.0}, "beta must be a positive"),
        ({"beta": [1.0, math.inf]}, "beta must be"),
        ({"shift": -0.1}, "shift must be a nonnegative"),
        ({"omega": 1e200, "beta": 1e200}, "leaves floating point"),
    ],
)
def test_arguments_are_checked(change, match):
    given = {"omega": 1.0, "beta": 1.0, "shift": 0.3, **change}
    for call in (expected, amplification, claimed_amplification):
        with pytest.raises(dp.ModelError, match=match):
            call(**given)
    with pytest.raises(dp.ModelError, match=match):
        observed(0.5, **given)


def test_outputs_are_checked_and_not_shown():
    with pytest.raises(dp.ModelError, match="finite numbers.*not shown") as caught:
        observed([31415.92653, math.nan], omega=1.0, beta=1.0, shift=0.3)
    assert "31415" not in str(caught.value)


def test_figure_1_falls_with_the_interval_and_with_the_rate_of_the_noise():
    """Over all of the paper's ranges, for gamma and for what (11) claims."""
    found = surface()
    for values in (found.exact, found.claimed):
        assert (np.diff(values, axis=0) < 0).all() and (np.diff(values, axis=1) < 0).all()
        assert 0.15 < values.min() < 0.25 and 0.9 < values.max() < 1
    # The claim is nearly right, and mostly too small.
    np.testing.assert_allclose(found.claimed, found.exact, rtol=0.07)
    np.testing.assert_array_equal(found.short, found.claimed < found.exact)
    assert found.short.mean() == pytest.approx(0.91, abs=0.01)
