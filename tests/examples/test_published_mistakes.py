"""The demonstrations of published mistakes: that the damage is there, and gone when done right."""

import math

import numpy as np
import pytest
from scipy.integrate import trapezoid

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


def test_penalties_from_residuals_before_noise_tell_neighbors_apart():
    assert mistakes.guessed(private=True, runs=50) == 1.0
    # 100 fair guesses are right more than 70 times with probability 2e-5.
    assert mistakes.guessed(private=False, runs=50) < 0.7


def test_a_measured_sensitivity_tells_neighbors_apart():
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


def test_noise_along_one_direction_hides_less_than_claimed():
    # Means of 100,000 numbers between 0 and 1.
    claimed = 1e-5
    found = {size: mistakes.true_delta(size, 1.0, claimed, 100_000, 1) for size in (10, 30, 100)}
    assert found == pytest.approx({10: 0.18, 30: 0.747, 100: 0.971}, abs=0.01)
    # By the density in a plane, integrated: at dimension 3, noise of variance 2 / psi.
    assert mistakes.true_delta(3, 1.0, 0.2, 400_000, 2) == pytest.approx(_by_quadrature(), rel=0.05)


def _by_quadrature():
    """Delta at dimension 3, epsilon 1 and a claimed delta of 0.2."""
    psi = (0.2 / (np.sqrt(np.pi) * math.gamma(1.5))) ** 2
    variance = 2 / psi
    # Density exp(-r^2 / (2 s^2)) / r^2, in bodies of revolution around the change.
    r = np.concatenate(
        [np.geomspace(1e-4, 3, 1500), np.linspace(3, 9 * np.sqrt(variance), 1500)[1:]]
    )
    cosine = np.linspace(-1, 1, 1201)
    R, C = np.meshgrid(r, cosine, indexing="ij")
    own = np.exp(-(R**2) / (2 * variance)) / R**2
    far = R**2 - 2 * R * C + 1
    other = np.exp(-far / (2 * variance)) / np.maximum(far, 1e-9)
    excess = np.maximum(own - math.e * other, 0.0) * R**2
    mass = trapezoid(trapezoid(own * R**2, cosine), r)
    return trapezoid(trapezoid(excess, cosine), r) / mass


def test_load_costs_more_than_the_dearest_price_behind_a_congested_line():
    one_more = mistakes.dispatch_cost(101.0) - mistakes.dispatch_cost(100.0)
    assert one_more == pytest.approx(50.0) and one_more > max(mistakes.PRICES)
    free = mistakes.dispatch_cost(61.0) - mistakes.dispatch_cost(60.0)
    assert free == pytest.approx(min(mistakes.PRICES))


def test_the_table_and_the_figure_hold_all_six(capsys, tmp_path):
    found = mistakes.main(["--runs", "20", "--plot", str(tmp_path / "new")])
    out = capsys.readouterr().out
    numbers = [line[:2] for line in out.splitlines() if line[0].isdigit()]
    assert numbers == ["1.", "2.", "3.", "4.", "5.", "6."]
    assert "100.0 % right" in out and f"at most {100 * found.ceiling:.1f} %" in out
    # Of all pairs of distributions that are (1, 1e-6)-DP, and of the Gaussian one that was run.
    assert found.ceiling == pytest.approx(math.e / (1 + math.e), abs=1e-6)
    assert "most that anything (1, 1e-6)-DP allows: 73.1 %" in [
        text.get_text() for text in mistakes.draw(found).axes[2].get_legend().get_texts()
    ]
    assert 0.5 < found.ceiling_of_noise < 0.6
    assert (tmp_path / "new" / "published_mistakes.png").stat().st_size > 10_000
    assert np.all([c.claimed < c.true for c in found.claims if c.steps >= 100])
