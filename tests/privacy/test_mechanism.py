"""Mechanisms: declarations, calibration, and the noise that is drawn."""

import numpy as np
import pytest
from scipy import stats

import dpcvx as dp
from dpcvx.privacy.accounting import Composition, classical_gaussian_multiplier, gaussian_multiplier
from dpcvx.privacy.mechanism import Calibrated
from dpcvx.privacy.noise import Grid, grid_for
from dpcvx.privacy.randomness import Alone, Seeded, source_for, together
from dpcvx.privacy.split_noise import SplitNoise
from dpcvx.privacy.truncation import Truncation

# Kolmogorov-Smirnov at level 1e-6 on 100 000 draws: a wrong scale of 10 % moves the distribution
# function by 0.018 (Laplace) or 0.024 (normal), twice the critical distance 0.0085.
LEVEL = 1e-6
DRAWS = 100_000
WIDE = 2.0**30  # so that rounding moves the distribution by 1e-9
GRID = Grid(1.0, WIDE, WIDE)
UNIT = {"gaussian": (dp.Gaussian(), stats.norm()), "laplace": (dp.Laplace(), stats.laplace())}
both = pytest.mark.parametrize("name", UNIT)


def fits(sample, distribution):
    return stats.kstest(sample, distribution.cdf).pvalue > LEVEL


def drawn(mechanism, seed, size=DRAWS, key=(0,)):
    source = Alone(Seeded(seed, key).at(1, 1))
    return mechanism.drawn(GRID, 1.0, size, source)[0] / WIDE


@both
@pytest.mark.parametrize("seed", range(5))
def test_draws_have_the_unit_distribution(name, seed):
    mechanism, unit = UNIT[name]
    assert fits(drawn(mechanism, seed), unit)


@both
@pytest.mark.parametrize("factor", [0.9, 1.1])
@pytest.mark.parametrize("seed", range(5))
def test_the_same_test_rejects_a_scale_that_is_off_by_a_tenth(name, factor, seed):
    mechanism, unit = UNIT[name]
    assert not fits(factor * drawn(mechanism, seed), unit)


@both
def test_components_are_independent(name):
    noise = drawn(UNIT[name][0], 1, 2 * DRAWS).reshape(DRAWS, 2)
    # Standard error 1 / sqrt(DRAWS) = 0.0032; 5 of them: level 6e-7.
    assert abs(np.corrcoef(noise.T)[0, 1]) < 0.016


@both
def test_the_same_seed_and_agent_give_the_same_noise(name):
    a, b = (drawn(UNIT[name][0], 7, 50, (3,)) for _ in range(2))
    assert np.array_equal(a, b)


@both
@pytest.mark.parametrize("other", [(7, (4,)), (8, (3,)), (3, (7,)), (7, (3, 1))])
def test_noise_of_other_agents_and_seeds_is_uncorrelated(name, other):
    seed, key = other
    a, b = drawn(UNIT[name][0], 7, key=(3,)), drawn(UNIT[name][0], seed, key=key)
    assert abs(np.corrcoef(a, b)[0, 1]) < 0.016


@both
def test_without_a_seed_all_noise_is_fresh(name):
    a, b = (
        UNIT[name][0].drawn(GRID, 1.0, 4, Alone(source_for(None, (0,)).at(1, 1)))[0].tolist()
        for _ in range(2)
    )
    assert not set(a) & set(b)


@both
@pytest.mark.parametrize("norm", [1, 2])
def test_the_grid_is_that_of_the_mechanisms_norm(name, norm):
    mechanism, _ = UNIT[name]
    grid, other = Calibrated(mechanism, 3.0).grid(0.5, 40), grid_for(0.5, 40, norm, 3.0)
    same = (grid.width, grid.sensitivity, grid.scale) == (
        other.width, other.sensitivity, other.scale
    )  # fmt: skip
    assert same == (norm == mechanism.norm)


def test_an_undeclared_level_is_left_to_the_plan():
    assert dp.Gaussian().per_step() is None
    assert dp.Laplace().per_step() is None


def test_a_multiplier_is_taken_as_it_is():
    assert dp.Gaussian(noise_multiplier=3.0).per_step() == 3.0
    assert dp.Laplace(noise_multiplier=3.0).per_step() == 3.0


def test_laplace_level_is_one_over_epsilon():
    assert dp.Laplace(release_epsilon=0.25).per_step() == 4.0


def test_classical_calibration_is_the_textbook_formula():
    declared = dp.Gaussian(release_epsilon=0.5, release_delta=1e-3, calibration="classical")
    assert declared.per_step() == pytest.approx(np.sqrt(2 * np.log(1.25e3)) / 0.5, rel=1e-14)
    assert declared.per_step() == classical_gaussian_multiplier(0.5, 1e-3)


def test_analytic_calibration_spends_what_was_declared():
    m = dp.Gaussian(release_epsilon=0.5, release_delta=1e-3).per_step()
    assert Composition().with_gaussian(m).price(1e-3).epsilon == pytest.approx(0.5, rel=1e-8)
    assert m < classical_gaussian_multiplier(0.5, 1e-3)


def test_for_total_covers_all_steps_together():
    assert dp.Gaussian().for_total(50, 1.0, 1e-6) == gaussian_multiplier(50, 1.0, 1e-6)
    assert dp.Laplace().for_total(50, 1.0, 0.0) == pytest.approx(50, rel=1e-9)


def test_each_mechanism_composes_as_itself():
    assert dp.Gaussian().compose(Composition(), 2.0, 4) == Composition(1.0)
    assert dp.Laplace().compose(Composition(), 2.0, 4) == Composition(0.0, ((2.0, 4),))


KINDS = {
    "gaussian": Calibrated(dp.Gaussian(), 2.0),
    "laplace": Calibrated(dp.Laplace(), 2.0),
    "truncated": Calibrated(dp.Laplace(), 1.0, truncation=Truncation(0.8, 5, 1.0, 0.5)),
    "split": Calibrated(dp.Gaussian(), 2.0, split=SplitNoise(5, 1, 2.0**-12, 1.0)),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seeded", [True, False], ids=["seeded", "secure"])
def test_release_of_rows_is_the_release_of_each_row_from_its_own_stream(kind, seeded):
    """Truncated noise of one row is drawn again, and no other row's stream moves."""
    noise, count = KINDS[kind], 40
    values = np.random.default_rng(0).normal(size=(count, 5))
    grid = noise.grid(0.5, 5)
    sources = [source_for(3 if seeded else None, (k,)) for k in range(count)]
    rows = noise.release_rows(values, grid, together(sources).at(2, 1))
    assert rows.shape == values.shape and len(np.unique(rows[:, 0])) > count // 2
    if seeded:
        alone = [noise.release(v, grid, s.at(2, 1)) for v, s in zip(values, sources, strict=True)]
        assert np.array_equal(rows, alone)
    if noise.truncation is not None:
        limit = grid.width * (noise.truncation.steps(grid) + 0.5)
        assert np.abs(rows - values).max() <= limit


def test_norms_match_the_noise():
    assert (dp.Gaussian().norm, dp.Laplace().norm) == (2, 1)


@pytest.mark.parametrize(
    "declare",
    [
        lambda: dp.Gaussian(release_epsilon=1.0),
        lambda: dp.Gaussian(release_delta=1e-6),
        lambda: dp.Gaussian(release_epsilon=1.0, release_delta=1e-6, noise_multiplier=2.0),
        lambda: dp.Laplace(release_epsilon=1.0, noise_multiplier=2.0),
        lambda: dp.Gaussian(calibration="exact"),
    ],
)
def test_incomplete_or_contradictory_declarations_are_refused(declare):
    with pytest.raises(dp.PrivacyError):
        declare()


@pytest.mark.parametrize("value", [0.0, -1.0, np.nan, np.inf])
@pytest.mark.parametrize(
    "declare",
    [
        lambda v: dp.Gaussian(noise_multiplier=v),
        lambda v: dp.Gaussian(release_epsilon=v, release_delta=1e-3),
        lambda v: dp.Laplace(noise_multiplier=v),
        lambda v: dp.Laplace(release_epsilon=v),
    ],
)
def test_levels_that_are_no_noise_are_refused(declare, value):
    with pytest.raises(dp.PrivacyError, match="positive finite"):
        declare(value)


@pytest.mark.parametrize("value", [0.0, -1e-3, 1.0, np.nan])
@pytest.mark.parametrize("calibration", ["analytic", "classical"])
def test_a_step_delta_outside_the_unit_interval_is_refused(value, calibration):
    with pytest.raises(dp.PrivacyError):
        dp.Gaussian(release_epsilon=1.0, release_delta=value, calibration=calibration).per_step()


def test_step_epsilon_is_the_declared_one_else_one_over_the_multiplier():
    declared = dp.Gaussian(release_epsilon=0.3, release_delta=1e-2)
    assert Calibrated(declared, declared.per_step()).release_epsilon == 0.3
    assert Calibrated(dp.Gaussian(), 4.0).release_epsilon == 0.25
    assert Calibrated(dp.Laplace(noise_multiplier=8.0), 8.0).release_epsilon == 0.125
