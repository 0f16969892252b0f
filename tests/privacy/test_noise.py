"""Noise: exact rounding, its distribution, the grid."""

from fractions import Fraction

import cvxpy as cp
import mpmath
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

import dpcvx as dp
from dpcvx.privacy.mechanism import Calibrated
from dpcvx.privacy.noise import (
    Grid,
    finest_grid,
    grid_for,
    laplace_rows,
    normal_rows,
    on_grid,
)
from dpcvx.privacy.randomness import Alone, Seeded
from tests.helpers import Words

ONES = 2**64 - 1
# Scales at and around 1, of a usual grid, and the widest.
SCALES = [1e-3, 0.2, 1.0, 3.7, 1000.0, 2.0**16 * 3.1, 1e9 / 7, 2.0**40]
ROWS = {"normal": normal_rows, "laplace": laplace_rows}
SAMPLERS = {
    name: lambda scale, size, source, rows=rows: rows(scale, size, Alone(source))[0]
    for name, rows in ROWS.items()
}
UNIT = {"normal": stats.norm(), "laplace": stats.laplace()}
both = pytest.mark.parametrize("name", SAMPLERS)


def uniform(words):
    """The number in (0, 1) with these 64-bit digits, and half a unit of the last."""
    digits = 0
    for word in words:
        digits = (digits << 64) + int(word)
    return mpmath.ldexp(2 * digits + 1, -64 * len(words) - 1)


def reference(name, scale, us, vs):
    """What the words behind U and V round to: the pair of Box and Muller, or one signed log."""
    with mpmath.workprec(64 * len(us) + 400):
        u, v = uniform(us), uniform(vs)
        if name == "laplace":
            values = [mpmath.sign(v - 0.5) * -mpmath.log(u)]
        else:
            radius = mpmath.sqrt(-2 * mpmath.log(u))
            values = [radius * f(2 * mpmath.pi * v) for f in (mpmath.cos, mpmath.sin)]
        return [int(mpmath.nint(mpmath.mpf(scale) * value)) for value in values]


def drawn(name, scale, us, vs):
    """The same from the sampler, and the number of words it took."""
    source = Words(*(word for pair in zip(us, vs, strict=True) for word in pair))
    size = 1 if name == "laplace" else 2
    return SAMPLERS[name](scale, size, source).tolist(), source.drawn


@both
@pytest.mark.parametrize("scale", SCALES)
def test_draws_are_the_rounded_variable(name, scale):
    # Later words are all ones, in the source and in the reference.
    u, v = np.random.default_rng(1).integers(2**64, size=(2, 300), dtype=np.uint64)
    found = SAMPLERS[name](scale, 600 if name == "normal" else 300, Words(*u, *v))
    exact = [
        reference(name, scale, [a] + [ONES] * 3, [b] + [ONES] * 3)
        for a, b in zip(u, v, strict=True)
    ]
    assert found.dtype == np.int64
    assert found.tolist() == [one for part in zip(*exact, strict=True) for one in part]


@both
def test_an_odd_number_is_drawn_as_the_first_of_an_even_one(name):
    words = [int(w) for w in np.random.default_rng(2).integers(2**64, size=12, dtype=np.uint64)]
    if name == "normal":
        five, six = (SAMPLERS[name](1e6, n, Words(*words[:6])) for n in (5, 6))
        assert np.array_equal(five, six[:5])
    assert SAMPLERS[name](1e6, 5, Words(*words)).shape == (5,)


EDGE = np.array([0, 1, 2, 2**11, 2**53 + 1, 2**61, 2**62 - 1, 2**62, 2**62 + 1, 2**63 - 1])


def at_random(size):
    """Words of all magnitudes, and some at the edges, as halves of angles and as logarithms."""
    rng = np.random.default_rng(3)
    words = rng.integers(2**63, size=size) >> rng.integers(0, 63, size=size)
    return np.concatenate([words, EDGE, (2**62 - words // 2), (2**63 - 1 - words)])


# Halves of angles; a logarithm of 0 does not occur, and that of 1 is a matter of the other error.
FUNCTIONS = {
    np.tan: (mpmath.tan, np.unique(at_random(2000) * (np.pi * 2.0**-64))[1:]),
    np.log: (mpmath.log, np.unique((at_random(2000) + 0.5) * 2.0**-63)[:-1]),
    np.sqrt: (mpmath.sqrt, -2.0 * np.log(np.unique((at_random(2000) + 0.5) * 2.0**-63)[:-1])),
}


@pytest.mark.parametrize("function", FUNCTIONS)
def test_functions_are_as_exact_as_the_bound_of_errors_takes_them_to_be(function):
    exact, arguments = FUNCTIONS[function]
    found = function(arguments)
    with mpmath.workprec(120):
        pairs = zip(found.tolist(), map(exact, map(mpmath.mpf, arguments.tolist())), strict=True)
        worst = max(abs(one / other - 1) for one, other in pairs)
    assert worst < 16 * 2.0**-53


EDGES = [1, 2, 2**11, 2**53 + 1, 2**61, 2**62, 2**63 - 1, 2**63, 3 * 2**62, ONES - 1, ONES]


@both
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("tail", [0, ONES])
def test_words_at_the_edges_are_rounded_exactly(name, scale, tail):
    for u in EDGES:
        for v in [0, *EDGES]:
            us, vs = [u, tail, tail, tail], [v, tail, tail, tail]
            assert drawn(name, scale, us, vs)[0] == reference(name, scale, us, vs)


@both
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("zeros", [1, 2, 3, 4])
def test_the_size_is_open_until_a_bit_of_u_is_set(name, scale, zeros):
    # An interval that ends in 0 bounds no logarithm.
    us, vs = [0] * zeros + [2**40, 0, 0, 0], [2**63 + 2**61] + [0] * (zeros + 3)
    assert drawn(name, scale, us, vs)[0] == reference(name, scale, us, vs)


@pytest.mark.parametrize("sign", [-1, 1])
def test_a_draw_beyond_the_largest_integer_is_clipped(sign):
    """Of 60 words without a bit set; the probability is 2**-3840."""
    us, vs = [0] * 60 + [1, 0, 0], [2**62 if sign < 0 else 3 * 2**62] + [0] * 62
    assert drawn("laplace", 2.0**40, us, vs)[0] == [sign * 2**51]


@both
def test_all_ones_draw_nothing_at_any_scale(name):
    for scale in SCALES:
        assert not SAMPLERS[name](scale, 5, Words()).any()


def straddling(name, scale, at, words, direction):
    """Digits of U for which ``scale * Y`` meets ``at + 1/2`` in all but the last of some words."""
    with mpmath.workprec(64 * words + 400):
        target = mpmath.mpf(2 * at + 1) / 2 / mpmath.mpf(scale)
        u = mpmath.exp(-target if name == "laplace" else -(target**2) / 2)
        digits = int(mpmath.floor(mpmath.ldexp(u, 64 * (words - 1))))
    top = [(digits >> (64 * k)) & ONES for k in reversed(range(words - 1))]
    return [*top, 0 if direction < 0 else ONES]


@both
@pytest.mark.parametrize("words", [2, 3, 4])
@pytest.mark.parametrize(("scale", "at"), [(1.0, 1), (37.25, 40), (2.0**20, 3 * 2**19)])
def test_more_bits_are_drawn_until_one_integer_is_left(name, words, scale, at):
    found = set()
    for direction in (-1, 1):
        us = straddling(name, scale, at, words, direction)
        # The cosine is one; the sign is positive.
        vs = [0] * words if name == "normal" else [2**63] + [0] * (words - 1)
        value, taken = drawn(name, scale, us, vs)
        assert value == reference(name, scale, us, vs)
        assert taken == 2 * words
        found.add(value[0])
    assert found == {at, at + 1}


@pytest.mark.parametrize("direction", [-1, 1])
@pytest.mark.parametrize("words", [2, 3])
def test_the_two_values_of_a_pair_share_the_bits_drawn_for_both(words, direction):
    # At an angle of 45 degrees both values meet the same half-integer.
    scale, at = 1000.0, 1234
    with mpmath.workprec(400):
        us = straddling("normal", mpmath.mpf(scale) / mpmath.sqrt(2), at, words, direction)
    vs = [2**61] + [0] * (words - 1)
    shared = [word for pair in zip(us, vs, strict=True) for word in pair]
    # Were more drawn for the second value, these would turn it the other way.
    fresh = [*shared[2:-2], ONES - us[-1], 0]
    source = Words(*shared, *fresh)
    assert SAMPLERS["normal"](scale, 2, source).tolist() == reference("normal", scale, us, vs)
    assert source.drawn == 2 * words


# Kolmogorov-Smirnov at level 1e-6 on 100 000 draws: a wrong scale of 10 % moves the distribution
# function by 0.018 (Laplace) or 0.024 (normal), twice the critical distance 0.0085.
LEVEL = 1e-6
DRAWS = 100_000
WIDE = 2.0**30


def fits(sample, distribution):
    return stats.kstest(sample, distribution.cdf).pvalue > LEVEL


def sample(name, scale, seed, size=DRAWS):
    return SAMPLERS[name](scale, size, Seeded(seed, (0,)).at(1, 1))


@both
@pytest.mark.parametrize("seed", range(3))
def test_wide_draws_have_the_unit_distribution_and_no_other(name, seed):
    drawn = sample(name, WIDE, seed) / WIDE
    assert fits(drawn, UNIT[name])
    assert not fits(0.9 * drawn, UNIT[name]) and not fits(1.1 * drawn, UNIT[name])


def fits_integers(sample, name, scale):
    """Chi-square on the integers, those that are expected less than ten times put together."""
    edge = next(k for k in range(100) if DRAWS * UNIT[name].sf((k + 0.5) / scale) < 10)
    cuts = UNIT[name].cdf((np.arange(-edge, edge) + 0.5) / scale)
    expected = DRAWS * np.diff(cuts, prepend=0.0, append=1.0)
    seen = np.bincount(np.clip(sample, -edge, edge) + edge, minlength=2 * edge + 1)
    return stats.chisquare(seen, expected).pvalue > LEVEL


@both
@pytest.mark.parametrize("scale", [0.4, 1.0, 2.3])
@pytest.mark.parametrize("seed", range(2))
def test_narrow_draws_have_the_exact_probabilities_and_no_other(name, scale, seed):
    # A scale that is off by a tenth moves the probability of 0 by 0.015 or more, which is 13
    # standard errors.
    drawn = sample(name, scale, seed)
    assert fits_integers(drawn, name, scale)
    assert not fits_integers(drawn, name, 0.9 * scale)
    assert not fits_integers(drawn, name, 1.1 * scale)


# Standard error of a correlation of DRAWS pairs is 0.0032; 5 of them: level 6e-7.
SMALL = 0.016


def correlation(a, b):
    return abs(np.corrcoef(a, b)[0, 1])


@both
def test_components_are_independent(name):
    # The pairs of Box and Muller are half a vector apart; sizes as well as signs.
    drawn = sample(name, WIDE, 1, 2 * DRAWS) / WIDE
    halves, neighbors = (drawn[:DRAWS], drawn[DRAWS:]), (drawn[::2], drawn[1::2])
    for a, b in (halves, neighbors):
        assert correlation(a, b) < SMALL
        assert correlation(np.abs(a), np.abs(b)) < SMALL


sizes = st.integers(1, 2000)
norms = st.sampled_from([1, 2])
positive = st.floats(1e-150, 1e60)
# Around what budgets give; a test below goes to the edge.
multipliers = st.floats(1e-3, 1e3)


def spread(size, norm):
    return size if norm == 1 else np.sqrt(size)


@given(positive, sizes, norms, multipliers)
def test_the_grid_is_a_power_of_two_and_rounding_is_part_of_the_sensitivity(
    sensitivity, size, norm, multiplier
):
    grid = grid_for(sensitivity, size, norm, multiplier)
    assert np.frexp(grid.width)[0] == 0.5
    rounding = grid.width * spread(size, norm)
    assert grid.sensitivity == pytest.approx(sensitivity + rounding, rel=1e-15)
    assert grid.scale == pytest.approx(multiplier * grid.sensitivity, rel=1e-15)
    assert 0 < rounding <= 2.0**-16 * sensitivity
    # Nor is it finer than that by more than the step between powers of two.
    assert rounding > 2.0**-17 * sensitivity * (1 - 1e-12)


@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("factor", [0.7, 1.0, 1.5, 5.0, 1e6])
def test_a_grid_is_no_finer_than_its_floor_where_another_half_width_counts(norm, factor):
    finest = grid_for(0.3, 9, norm, 2.0)
    grid = grid_for(0.3, 9, norm, 2.0, factor * finest.width)
    if factor <= 1:
        assert grid == finest
        return
    assert np.frexp(grid.width)[0] == 0.5
    assert factor * finest.width <= grid.width < 2 * factor * finest.width
    assert grid.sensitivity == pytest.approx(0.3 + 2 * grid.width * spread(9, norm))
    assert grid.scale == pytest.approx(2 * grid.sensitivity)


@given(positive, sizes, multipliers)
def test_the_finest_grid_is_a_power_of_two_far_below_the_noise(sensitivity, size, multiplier):
    grid = finest_grid(sensitivity, size, multiplier)
    assert np.frexp(grid.width)[0] == 0.5
    assert grid.width <= 2.0**-24 * multiplier * sensitivity
    assert grid.width <= grid_for(sensitivity, size, 2, multiplier).width
    assert grid.sensitivity == pytest.approx(
        sensitivity + grid.width * np.sqrt(size), rel=1e-15, abs=0
    )
    assert grid.scale == pytest.approx(multiplier * grid.sensitivity, rel=1e-15)
    assert grid.scale / grid.width <= 2.0**40


@pytest.mark.parametrize("sensitivity", [0.0, -1.0, np.nan, np.inf, 1e-310, 1e300])
def test_a_sensitivity_without_a_finest_grid_is_refused(sensitivity):
    with pytest.raises(dp.PrivacyError):
        finest_grid(sensitivity, 3, 1.0)


@pytest.mark.parametrize("multiplier", [2.0**38, 2.0**45])
def test_noise_too_wide_for_the_finest_grid_is_refused(multiplier):
    with pytest.raises(dp.PrivacyError, match="components cannot be drawn exactly"):
        finest_grid(1.0, 100, multiplier)


def test_rounding_to_the_finest_grid_is_far_below_the_noise():
    rng, calibrated = np.random.default_rng(0), Calibrated(dp.Gaussian(), 2.0, level=0.3)
    grid = calibrated.hidden_grid(3)
    assert grid == finest_grid(0.3, 3, 2.0)
    values = rng.normal(size=3)
    assert np.abs(grid.width * on_grid(values, grid) - values).max() <= 2.0**-25 * grid.scale
    out = calibrated.release(values, grid, Seeded(1, (0,)).at(1, 1))
    assert np.array_equal(out, grid.width * np.rint(out / grid.width))
    draws = [
        (calibrated.release(values, grid, Seeded(k, (0,)).at(1, 1)) - values) / grid.scale
        for k in range(400)
    ]
    # Level 1e-4 over the choice of the seeds.
    assert stats.kstest(np.ravel(draws), "norm").pvalue > 1e-4


@given(st.floats(2.0**-40, 2.0**42), sizes, norms)
def test_no_noise_is_wider_than_the_sampler_allows(multiplier, size, norm):
    try:
        grid = grid_for(1.0, size, norm, multiplier)
    except dp.PrivacyError:
        assert multiplier * spread(size, norm) > 2.0**37
        return
    assert grid.scale / grid.width <= 2.0**40
    assert grid.sensitivity <= 2.0


@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("sensitivity", [0.0, -1.0, np.nan, np.inf, 1e-310, 1e300])
def test_a_sensitivity_without_a_grid_is_refused(sensitivity, norm):
    with pytest.raises(dp.PrivacyError, match="grid of floating-point numbers.*larger budget"):
        grid_for(sensitivity, 3, norm, 1.0)


@pytest.mark.parametrize(
    ("multiplier", "size", "norm"),
    [(2.0**40, 1, 1), (1e300, 3, 2), (1e7, 10**6, 1), (np.inf, 1, 2)],
)
def test_noise_too_wide_for_a_grid_is_refused(multiplier, size, norm):
    with pytest.raises(dp.PrivacyError, match="cannot be drawn exactly"):
        grid_for(1.0, size, norm, multiplier)


@pytest.mark.parametrize(
    "mechanism", [dp.Laplace(release_epsilon=1e-13), dp.Gaussian(noise_multiplier=1e13)]
)
@pytest.mark.parametrize("release", ["each_step", "once"])
def test_a_plan_whose_noise_has_no_grid_is_refused(mechanism, release):
    x = cp.Variable(2, name="x")
    d = dp.Private(shape=2, name="d", adjacency=dp.Within(1.0))
    problem = dp.Problem([dp.Agent(cp.Minimize(cp.sum_squares(x - d)))])
    with pytest.raises(dp.PrivacyError, match="cannot be drawn exactly"):
        problem.plan(
            dp.LinearizedADMM(), mechanism=mechanism, rounds=1, delta=1e-6, release=release
        )


def exact_norm2(values, norm):
    """Square of the norm of exact numbers."""
    return sum(map(abs, values)) ** 2 if norm == 1 else sum(v * v for v in values)


@given(st.data(), norms, st.floats(1e-3, 1e3), st.floats(1e-2, 1e12), st.booleans())
def test_rounded_neighbors_stay_within_the_grids_sensitivity(data, norm, sensitivity, size, edge):
    n = data.draw(st.integers(1, 6))
    entries = st.lists(st.floats(-1, 1), min_size=n, max_size=n)
    grid = grid_for(sensitivity, n, norm, 1.0)
    one = size * np.array(data.draw(entries))
    if edge:  # near the middle between grid points, where rounding turns over
        one = grid.width * (np.floor(one / grid.width) + 0.5)
    change = np.array(data.draw(entries))
    length = np.linalg.norm(change, norm) or 1.0
    two = one + change / length * sensitivity
    moved = [Fraction(b) - Fraction(a) for a, b in zip(one, two, strict=True)]
    # Rounding can have carried the sum too far.
    assume(exact_norm2(moved, norm) <= Fraction(sensitivity) ** 2)
    rounded = (on_grid(two, grid) - on_grid(one, grid)).tolist()
    after = [Fraction(grid.width) * k for k in rounded]
    # The grid's sensitivity is itself a sum of floats, each rounded: four units of the last place.
    assert exact_norm2(after, norm) <= (Fraction(grid.sensitivity) * (1 + Fraction(2) ** -50)) ** 2


@given(st.floats(-1e18, 1e18), st.floats(-0.5, 0.5), st.integers(-40, 40))
def test_a_value_and_its_error_are_rounded_as_one_number(value, share, exponent):
    grid = Grid(2.0**exponent, 1.0, 1.0)
    error = share * np.spacing(abs(value))
    exact = (Fraction(value) + Fraction(error)) / Fraction(grid.width)
    (steps,) = on_grid(np.array([value]), grid, np.array([error])).tolist()
    inside = min(max(exact, Fraction(-(2**62))), Fraction(2**62))
    assert abs(steps - inside) <= Fraction(1, 2) + Fraction(2) ** -50


@pytest.mark.parametrize("norm", [1, 2])
def test_rounding_can_add_all_that_the_grid_allows_for(norm):
    n, little = 4, 2.0**-20
    width = grid_for(1.0, n, norm, 1.0).width
    sensitivity = 1.0 + 2 * little * width * spread(n, norm)
    grid = grid_for(sensitivity, n, norm, 1.0)
    one = np.full(n, width * (0.5 - little))  # down; the other one goes up
    two = one + sensitivity / spread(n, norm)
    assert np.linalg.norm(two - one, norm) == pytest.approx(sensitivity, rel=1e-15)
    after = np.linalg.norm(grid.width * (on_grid(two, grid) - on_grid(one, grid)), norm)
    assert grid.sensitivity - 3 * little * width * spread(n, norm) <= after <= grid.sensitivity


HUGE = [1e300, 1.7e308, np.inf]


@pytest.mark.parametrize("sensitivity", [1e-100, 1.0, 1e60])
@pytest.mark.parametrize("size", HUGE)
def test_huge_values_are_clipped_without_a_warning(size, sensitivity):
    grid = grid_for(sensitivity, 4, 2, 1.0)
    found = on_grid(np.array([size, -size, 0.0, grid.width]), grid)
    limit = min(Fraction(2) ** 62, Fraction(min(size, 1.7e308)) / Fraction(grid.width))
    assert found.dtype == np.int64
    assert found.tolist() == [int(limit), -int(limit), 0, 1]


MECHANISMS = {"normal": dp.Gaussian(), "laplace": dp.Laplace()}


@both
@pytest.mark.parametrize("sensitivity", [1e-100, 3e-7, 1.0, 1e60])
@pytest.mark.parametrize("multiplier", [1e-6, 1.0, 1e6])
def test_a_release_is_a_multiple_of_the_width_whatever_the_value(name, sensitivity, multiplier):
    calibrated = Calibrated(MECHANISMS[name], multiplier)
    grid = calibrated.grid(sensitivity, 9)
    value = sensitivity * np.array([0, 1, -1, 0.3, np.pi, 1e3, -1e9, 1e17, 1e-9])
    released = calibrated.release(value, grid, Seeded(1, (0,)).at(1, 1))
    units = released / grid.width  # exact: the width is a power of two
    assert np.array_equal(units, np.rint(units))
    assert not np.array_equal(value / grid.width, np.rint(value / grid.width))


@both
def test_a_release_of_a_huge_value_shows_no_warning_and_hides_it(name):
    calibrated = Calibrated(MECHANISMS[name], 1.0)
    grid = calibrated.grid(1.0, 2)
    released = calibrated.release(np.array([np.inf, -1e307]), grid, Words())
    assert released.tolist() == [2.0**62 * grid.width, -(2.0**62) * grid.width]


@pytest.mark.parametrize("far", [[], [np.inf], [-1e300], [np.nan], [np.nan, np.inf, -np.inf]])
def test_numbers_far_away_and_those_that_are_none_leave_others_as_they_are(far):
    found = on_grid(np.array([2.6, -0.4, *far]), Grid(0.5, 1.0, 1.0)).tolist()
    ends = [0 if np.isnan(v) else int(np.sign(v)) * 2**62 for v in far]
    assert found == [5, -1, *ends]


@both
@given(values=st.lists(st.floats(-1e6, 1e6), min_size=8, max_size=8), seed=st.integers(0, 99))
def test_the_noise_does_not_depend_on_the_value(name, values, seed):
    calibrated = Calibrated(MECHANISMS[name], 2.0)
    grid = calibrated.grid(0.37, 4)
    one, two = np.array(values[:4]), np.array(values[4:])
    released = [calibrated.release(v, grid, Seeded(seed, (0,)).at(1, 1)) for v in (one, two)]
    moved = (released[0] - released[1]) / grid.width
    assert moved.tolist() == (on_grid(one, grid) - on_grid(two, grid)).tolist()
    assert (released[0] != grid.width * on_grid(one, grid)).any()


@both
def test_a_release_adds_noise_of_the_grids_scale(name):
    calibrated = Calibrated(MECHANISMS[name], 3.0)
    grid = calibrated.grid(0.5, DRAWS)
    released = calibrated.release(np.full(DRAWS, 7.25), grid, Seeded(3, (0,)).at(1, 1))
    noise = (released - 7.25) / (3.0 * 0.5)
    assert fits(noise, UNIT[name])
    assert not fits(0.9 * noise, UNIT[name]) and not fits(1.1 * noise, UNIT[name])


class Streams(list):
    """Several sources, each of words of its own."""

    def words(self, size):
        return np.stack([source.words(size) for source in self])

    def one(self, i):
        return self[i]


@both
@pytest.mark.parametrize("scale", [1.0, 2.0**40])
@pytest.mark.parametrize("size", [1, 6, 7])
def test_rows_are_what_each_source_gives_by_itself(name, scale, size):
    # The widest noise needs more words for some values: each row has them from its own source.
    words = np.random.default_rng(3).integers(2**64, size=(60, 16), dtype=np.uint64)
    together, apart = ([Words(*row) for row in words] for _ in range(2))
    rows = ROWS[name](scale, size, Streams(together))
    assert rows.tolist() == [SAMPLERS[name](scale, size, one).tolist() for one in apart]
    assert [one.drawn for one in together] == [one.drawn for one in apart]
    assert scale == 1.0 or size == 1 or len({one.drawn for one in together}) > 1
