"""The demonstrations of published mistakes: that the damage is there, and gone when done right."""

import numpy as np
import pytest

from examples import published_mistakes as mistakes


def test_the_composition_theorem_is_no_bound():
    hundred = mistakes.composed(100, 1.0, 1e-2)
    assert (hundred.claimed, hundred.true) == pytest.approx((9.766, 11.918), abs=1e-3)
    assert hundred.delta_at_claim > 4e-2
    many = mistakes.composed(5000, 1.0, 1e-6)
    assert (many.claimed, many.true) == pytest.approx((70.1, 151.6), abs=0.1)
    assert many.delta_at_claim == pytest.approx(0.91, abs=5e-3)


@pytest.mark.parametrize("seed", range(3))
def test_multipliers_from_values_before_noise_drift_apart(seed):
    drifted, right = (
        mistakes.inexact_admm(300, seed, noise=0.2, released=released)[-50:].mean()
        for released in (False, True)
    )
    assert drifted > 20 * right
    for released in (False, True):  # without noise the two are the same, and right
        assert mistakes.inexact_admm(300, seed, noise=0.0, released=released)[-1] < 1e-10


def test_their_sensitivity_is_twice_the_one_in_use():
    assert mistakes.moved(released=True) == pytest.approx(2)
    assert mistakes.moved(released=False) == pytest.approx(4)


def test_penalties_from_residuals_before_noise_tell_neighbours_apart():
    assert mistakes.guessed(private=True, runs=50) == 1.0
    # 100 fair guesses are right more than 70 times with probability 2e-5.
    assert mistakes.guessed(private=False, runs=50) < 0.7


def test_a_measured_sensitivity_tells_neighbours_apart():
    levels = {
        measured: [
            mistakes.noise_levels(largest, measured=measured, runs=40, seed=seed)
            for seed, largest in enumerate((0.9, 1.0))
        ]
        for measured in (True, False)
    }
    one, other = levels[True]
    assert one.max() < other.min()
    one, other = levels[False]
    assert abs(one.mean() - other.mean()) < 0.01 and one.max() > other.min()


def test_the_table_and_the_figure_hold_all_four(capsys, tmp_path):
    found = mistakes.main(["--runs", "20", "--plot", str(tmp_path / "new")])
    out = capsys.readouterr().out
    assert [line[:2] for line in out.splitlines() if line[0].isdigit()] == ["1.", "2.", "3.", "4."]
    assert "100.0 % right" in out and f"at most {100 * found.ceiling:.1f} %" in out
    assert 0.5 < found.ceiling < 0.6
    assert (tmp_path / "new" / "published_mistakes.png").stat().st_size > 10_000
    assert np.all([c.claimed < c.true for c in found.claims if c.steps >= 100])
