"""Exact dual and penalty perturbation: what a step costs is what densities say, at most."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.special import expit

import dpcvx as dp
from problems.census.errors import CensusError
from problems.census.exact_steps import Exact, calibrated, run
from problems.census.measures import Measures
from problems.census.methods import DELTA, RATE, D, Method
from problems.census.records import made_records, shared_out
from problems.census.study import census
from problems.labeled import data_of

N, EDGES, EACH = 4, 5, 20
MEASURES = Measures.of(shared_out(made_records(400, seed=2), N, EACH, seed=1))
NETWORK = dp.networks.random([f"agent {k}" for k in range(N)], EDGES, 0)


class Line:
    """One entry x, few records: the exact density of what a noisy step returns."""

    def __init__(self, own, rows, pull):
        self.own, self.rows, self.pull = own, np.array(rows), pull

    def noise(self, x):
        """The noise that puts the minimizer at x, and the slope of that map."""
        p = expit(-self.rows * x)
        slope = self.own.stiffness * x - self.pull - (p * self.rows).mean()
        return slope, self.own.stiffness + (p * (1 - p) * self.rows**2).mean()

    def log_density(self, x):
        xi, jacobian = self.noise(x)
        s = self.own.scale
        if self.own.noise == "Gaussian":
            return math.log(jacobian) - xi**2 / (2 * s**2) - math.log(s * math.sqrt(2 * math.pi))
        return math.log(jacobian) - abs(xi) / s - math.log(2 * s)

    def at(self, xi):
        """The minimizer under some noise."""
        far = (abs(xi) + abs(self.pull) + 1) / self.own.stiffness
        return brentq(lambda x: self.noise(x)[0] - xi, -far, far, xtol=1e-13)


@st.composite
def neighbors(draw, noise):
    """Two lines that differ in one record, few of them, so that its curvature counts."""
    unit = st.floats(-1, 1)
    each = draw(st.integers(1, 3))
    own = Exact(each, draw(st.floats(0.2, 3)), 1.0, noise, draw(st.floats(0.5, 8)))
    rest, pull = [draw(unit) for _ in range(each - 1)], draw(st.floats(-2, 2))
    return tuple(Line(own, [*rest, draw(unit)], pull) for _ in range(2))


@given(neighbors("Zhang and Zhu"))
def test_ratios_of_densities_stay_within_the_epsilon_of_a_step(pair):
    one, other = pair
    own = one.own
    at = [one.at(xi) for xi in np.linspace(-6, 6, 41) * own.scale]
    ratios = [one.log_density(x) - other.log_density(x) for x in at]
    assert max(np.abs(ratios)) <= own.change / own.scale + math.log1p(own.bend) + 1e-9
    assert own.pure() > own.change / own.scale + math.log1p(own.bend)


def test_the_curvature_of_a_record_has_to_be_paid_for():
    """One record of norm 1 or 0, and much noise: the ratio exceeds what gradients alone cost."""
    own = Exact(1, 0.05, 1.0, "Zhang and Zhu", 40.0)
    there, away = Line(own, [1.0], 0.0), Line(own, [0.0], 0.0)
    ratios = [there.log_density(x) - away.log_density(x) for x in np.linspace(-3, 3, 101)]
    assert 1.01 * own.change / own.scale < max(ratios) <= own.pure()
    # And is not far from it: three quarters of the cost.
    assert max(ratios) > 0.75 * own.pure()


def divergence(one, other, order):
    """Renyi divergence by integration over the noise that gives one's point."""
    own = one.own

    def inside(t):
        x = one.at(t * own.scale)
        loss = one.log_density(x) - other.log_density(x)
        return math.exp((order - 1) * loss - t**2 / 2) / math.sqrt(2 * math.pi)

    return math.log(quad(inside, -9, 9, limit=200)[0]) / (order - 1)


@pytest.mark.parametrize("seed", range(12))
def test_renyi_divergences_stay_below_the_bound(seed):
    rng = np.random.default_rng(seed)
    own = Exact(int(rng.integers(1, 4)), rng.uniform(0.5, 3), 1.0, "Gaussian", rng.uniform(1, 6))
    rest, pull = rng.uniform(-1, 1, own.each - 1), rng.uniform(-2, 2)
    one, other = (Line(own, [*rest, end], pull) for end in rng.uniform(-1, 1, 2))
    order = rng.uniform(1.2, 3)
    found = divergence(one, other, order)
    assert 0 <= found <= own.renyi(order)


def test_the_gaussian_bound_is_not_that_of_the_gradient_alone():
    """Much noise: the curvature is what tells, which Gaussian noise on a gradient does not pay."""
    own = Exact(1, 0.05, 1.0, "Gaussian", 200.0)
    there, away = Line(own, [1.0], 0.0), Line(own, [0.0], 0.0)
    # Near 0, where the curvature is, only if noise rarely leads elsewhere.
    near = [there.log_density(x) - away.log_density(x) for x in np.linspace(-0.5, 0.5, 21)]
    assert min(near) > 20 * (own.change / own.scale) ** 2
    assert max(near) <= math.log1p(own.bend)
    assert own.renyi(1.5) > math.log1p(own.bend)


@pytest.mark.parametrize("seed", range(20))
def test_the_loss_is_below_its_bound_for_every_noise(seed):
    """In three entries: the inequality that the bound of moments rests on."""
    rng = np.random.default_rng(seed)
    own = Exact(3, rng.uniform(0.2, 3), 1.0, "Gaussian", rng.uniform(0.5, 4))
    rows = rng.normal(size=(4, 3))
    rows /= np.maximum(1, np.linalg.norm(rows, axis=1))[:, None]
    one, other = rows[:3], rows[[0, 1, 3]]
    span = np.linalg.qr(rows[2:].T)[0]

    def parts(Z, x):
        p = expit(-Z @ x)
        H = own.stiffness * np.eye(3) + (Z.T * (p * (1 - p) / 3)) @ Z
        return own.stiffness * x - p @ Z / 3, H

    def moved(xi):
        """Where the noise leads, and by what the other data's gradient differs there."""
        x = np.zeros(3)
        for _ in range(60):
            slope, H = parts(one, x)
            x = x - np.linalg.solve(H, slope - xi)
        return x, parts(other, x)[0] - parts(one, x)[0]

    for xi in own.scale * rng.normal(size=(20, 3)):
        x, g = moved(xi)
        ends = [np.linalg.slogdet(parts(Z, x)[1])[1] for Z in (one, other)]
        loss = ends[0] - ends[1] + (2 * xi @ g + g @ g) / (2 * own.scale**2)
        inside = span @ (span.T @ xi)
        _, fixed = moved(xi - inside)
        bound = 2 * (xi @ fixed + own.bend * inside @ inside) + own.change**2
        assert loss <= math.log1p(own.bend) + bound / (2 * own.scale**2) + 1e-12


@pytest.mark.parametrize("noise", ["Gaussian", "Zhang and Zhu"])
def test_calibrated_noise_spends_the_budget_and_no_more(noise):
    own = calibrated(Exact(100, D, noise=noise), 2.0, 10)
    assert 1.99 < own.epsilon(10) <= 2.0
    assert own.epsilon(20) > 2.0 > own.epsilon(5)
    # Both halves count: more than a Gaussian mechanism on the gradients, by a little.
    if noise == "Gaussian":
        ratio = (own.change / own.scale) ** 2 / 2
        assert 1 < own.renyi(4.0) / (4.0 * ratio) < 1.1


def test_budgets_that_no_noise_meets_are_refused():
    with pytest.raises(CensusError, match="fewer rounds, more records or a larger D"):
        calibrated(Exact(1, 0.1), 0.5, 100)


@pytest.mark.parametrize("growth", [1.0, RATE])
def test_without_noise_the_steps_are_the_packages(growth):
    study = census(N, EACH, 14)
    method = Method("exact", "admm", randomness=0.0, exact=True, growth=growth)
    plan = method.plan(study, EDGES, 0, 12, None)
    result = plan.run(data=data_of(MEASURES.shares.parts), iterates=True, verbose=False)
    found = run(Exact(EACH, D, growth), MEASURES.shares.parts, NETWORK, 12, 0)
    for t, iterate in enumerate(result.iterates, 1):
        np.testing.assert_allclose(np.array(iterate.last.vectors), found[t], atol=1e-9)


@pytest.mark.parametrize("noise", ["Gaussian", "Zhang and Zhu"])
def test_noise_has_the_size_that_is_charged(noise):
    """A first step undone: its noise, in 800 draws of 14 entries; fixed seeds, 3 % of the mean."""
    own = Exact(EACH, D, noise=noise, scale=0.3)
    found = []
    for seed in range(200):
        x = run(own, MEASURES.shares.parts, NETWORK, 1, seed)[1]
        for part, point in zip(MEASURES.shares.parts, x, strict=True):
            p = expit(-part.signed @ point)
            xi = own.stiffness * point - p @ part.signed / EACH
            found.append(
                np.linalg.norm(xi) if noise == "Zhang and Zhu" else math.sqrt(xi @ xi / 14)
            )
    expected = 14 * 0.3 if noise == "Zhang and Zhu" else 0.3
    assert np.mean(found) == pytest.approx(expected, rel=0.03)


def test_a_part_of_another_size_is_refused():
    with pytest.raises(CensusError, match="Every agent needs 7 records"):
        run(Exact(7, D), MEASURES.shares.parts, NETWORK, 1, 0)


def test_no_noise_has_no_guarantee():
    own = Exact(EACH, D)
    assert own.epsilon(1) == math.inf == own.pure()
    assert DELTA == 1e-6


def test_rounds_of_less_curvature_than_the_first_are_refused():
    with pytest.raises(CensusError, match=r"growth=0\.5 lets D fall"):
        Exact(EACH, 1.0, growth=0.5)
