"""Penalty rules against hand values."""

import math

import pytest

import dpcvx as dp
from dpcvx.algorithms.penalties import as_penalty

NAN = float("nan")


def test_constant_penalty_ignores_rounds_and_residuals():
    rule = dp.penalties.Fixed(3.0)
    assert [rule.next(t, 7.0, 1e9, 0.0) for t in (1, 100)] == [3.0, 3.0]
    assert rule.resolved(0.1) is rule


@pytest.mark.parametrize(
    ("t", "expected"),
    [
        (1, 2 + 5 / 0.5),
        (9_999, 2 + 5 / 0.5),
        (10_000, 2 * 1.2 + 5 / 0.5),
        (25_000, 2 * 1.44 + 5 / 0.5),
        (10_000_000, 1e9),
    ],
)
def test_growing_penalty_is_equation_73(t, expected):
    rule = dp.penalties.Growing(2, 5, 10_000, c=0.5)
    assert rule.next(t, None, NAN, NAN) == pytest.approx(expected, rel=1e-14)


def test_growing_penalty_takes_the_budget_per_release_from_the_plan():
    assert dp.penalties.Growing(2, 5, 10).resolved(0.25).next(1, None, NAN, NAN) == 22.0


def test_growing_penalty_keeps_its_own_epsilon():
    assert dp.penalties.Growing(2, 5, 10, c=0.5).resolved(0.25).c == 0.5


def test_growing_penalty_without_noise_has_no_second_term():
    assert dp.penalties.Growing(2, 5, 10).resolved(math.inf).next(1, None, NAN, NAN) == 2.0


def test_balancing_starts_at_rho():
    assert dp.penalties.ResidualBalancing(4.0).next(1, None, NAN, NAN) == 4.0


@pytest.mark.parametrize(
    ("primal", "dual", "expected"),
    [
        (10.1, 1.0, 8.0),
        (10.0, 1.0, 4.0),
        (1.0, 1.0, 4.0),
        (1.0, 10.0, 4.0),
        (1.0, 10.1, 2.0),
        (0.0, 0.0, 4.0),
        (1.0, 0.0, 8.0),
        (0.0, 1.0, 2.0),
    ],
)
def test_balancing_moves_rho_towards_the_larger_residual(primal, dual, expected):
    assert dp.penalties.ResidualBalancing(4.0).next(2, 4.0, primal, dual) == expected


@pytest.mark.parametrize("primal", [0.0, 1.0, 1e9])
def test_the_missing_dual_residual_of_round_one_changes_nothing(primal):
    assert dp.penalties.ResidualBalancing(4.0).next(2, 4.0, primal, NAN) == 4.0


def test_balancing_uses_its_threshold_and_factor():
    rule = dp.penalties.ResidualBalancing(1.0, threshold=2.0, factor=3.0)
    assert rule.next(5, 6.0, 2.1, 1.0) == 18.0
    assert rule.next(5, 6.0, 1.0, 2.1) == 2.0


def test_balancing_stays_in_range():
    rule = dp.penalties.ResidualBalancing(1.0)
    assert rule.next(2, 9e8, 1.0, 0.0) == 1e9
    assert rule.next(2, 1.5e-9, 0.0, 1.0) == 1e-9


@pytest.mark.parametrize(
    ("primal", "dual", "expected"),
    [(2.0, 18.0, 9.0), (9.0, 4.5, 0.5), (2.0, 7.0, 2.0), (NAN, 1.0, 2.0), (0.0, 1.0, 200.0),
     (1.0, 0.0, 0.02), (0.0, 0.0, 2.0), (math.inf, 1.0, 2.0), (1.0, 1e20, 200.0)],
)  # fmt: skip
def test_spectral_rule_takes_the_ratio_of_changes(primal, dual, expected):
    assert dp.penalties.Spectral(3.0).next(2, 2.0, primal, dual) == pytest.approx(expected)


def test_spectral_rule_stays_within_a_range_around_its_start():
    rule = dp.penalties.Spectral(3.0)
    assert rule.next(2, 2e12, 0.0, 1.0) == 3e12
    assert rule.next(2, 2e-12, 1.0, 0.0) == 3e-12


def test_spectral_rule_changes_become_rare():
    rule = dp.penalties.Spectral(1.0)
    moved = [t - 1 for t in range(2, 40) if rule.next(t, 1.0, 1.0, 9.0) != 1.0]
    assert moved == [1, 2, 4, 7, 11, 16, 22, 29, 37]


def test_numbers_become_constant_rules_and_rules_stay():
    rule = dp.penalties.ResidualBalancing(1.0)
    assert as_penalty(2) == dp.penalties.Fixed(2)
    assert as_penalty(rule) is rule


@pytest.mark.parametrize("value", [0.0, -1.0, NAN, math.inf])
@pytest.mark.parametrize(
    "build",
    [
        dp.penalties.Fixed,
        as_penalty,
        dp.penalties.ResidualBalancing,
        lambda v: dp.penalties.Growing(v, 1, 1),
        lambda v: dp.penalties.Growing(1, 1, v),
        lambda v: dp.penalties.ResidualBalancing(1, threshold=v),
        lambda v: dp.penalties.ResidualBalancing(1, factor=v),
        dp.penalties.Spectral,
        lambda v: dp.penalties.Spectral(1, threshold=v),
        lambda v: dp.LinearizedADMM(penalty=v),
        lambda v: dp.ADMM(penalty=v),
    ],
)
def test_parameters_outside_their_range_are_refused(build, value):
    with pytest.raises(dp.ModelError):
        build(value)


@pytest.mark.parametrize("value", [-1.0, NAN, math.inf])
def test_a_negative_second_constant_is_refused(value):
    with pytest.raises(dp.ModelError, match="c2"):
        dp.penalties.Growing(1, value, 1)


@pytest.mark.parametrize("name", ["threshold", "factor"])
def test_balancing_needs_ratios_above_one(name):
    with pytest.raises(dp.ModelError, match=name):
        dp.penalties.ResidualBalancing(1.0, **{name: 1.0})


@pytest.mark.parametrize("value", [0.0, -1.0, NAN])
def test_growing_penalty_refuses_an_epsilon_that_is_none(value):
    with pytest.raises(dp.ModelError, match="epsilon"):
        dp.penalties.Growing(1, 1, 1, c=value)
