"""What leaves a local step moves by no more than was charged, down to the last digits."""

from fractions import Fraction

import cvxpy as cp
import numpy as np
import pytest

from dpcvx.sensitivity.queries.solutions import Minimizer
from dpcvx.solvers import steps
from dpcvx.solvers.closed_forms import Ball, Simplex
from dpcvx.solvers.steps import CertifiedSearch, Minimization, ProximalStep
from tests import sets
from tests.steps import Setting, solution


def spread_row(x):
    """One equation with coefficients that are spread over seven digits."""
    return [np.array([-1e4, -1e-3]) @ x == -2, cp.abs(x[1]) <= 1000]


def near(seed, radius):
    rng = np.random.default_rng(seed)
    d = rng.normal(size=2) * 10.0 ** rng.integers(-1, 4)
    other = d.copy()
    other[seed % 2] += radius * rng.choice([-1.0, 1.0])
    return d, other


@pytest.mark.parametrize("radius", [1e-6, 1e-8, 1e-10])
def test_outputs_on_an_equation_with_spread_coefficients_move_as_charged(radius):
    setting = Setting(2, spread_row, radius)
    start = setting.projector(np.zeros(2), np.ones(2)).x
    step = ProximalStep(setting.projector, start, np.ones(2), start)
    ratios = [setting.ratio(solution(start, step), *near(s, radius)) for s in range(60)]
    assert 0.01 < max(ratios) <= 1


@pytest.mark.parametrize("radius", [1e-4, 1e-6, 1e-8])
def test_minimizers_on_an_equation_with_spread_coefficients_move_as_charged(radius):
    setting = Setting(2, spread_row, radius)
    search, center = Minimization.close(1.0, 2.0, 0.0), np.zeros(2)
    query = Minimizer(center, search)
    ratios = [setting.ratio(query, *near(seed, radius)) for seed in range(30)]
    assert 0.01 < max(ratios) <= 1


def test_an_equation_with_spread_coefficients_is_met():
    P = sets.of(*spread_row(cp.Variable(2)))
    for seed in range(50):
        v = near(seed, 1.0)[0]
        missed = np.array([-1e4, -1e-3]) @ P(v, np.ones(2)).x + 2
        assert abs(missed) <= 1e-15 * (2 + 1e4 * np.abs(v).max())


@pytest.mark.parametrize("far", [1e16, 1e30, 1e100])
def test_a_far_bound_changes_nothing(far):
    a, v = np.array([1.0, 2.0]), np.array([3.0, 4.0])
    open_ended = Simplex(a, 1.0, np.full(2, -np.inf), np.full(2, np.inf), True)
    bounded = Simplex(a, 1.0, np.full(2, -far), np.full(2, far), True)
    assert bounded(v, np.ones(2)) == pytest.approx(v - 2 * a, rel=1e-15)
    assert np.array_equal(open_ended(v, np.ones(2)), bounded(v, np.ones(2)))


def rationally(S, v, D):
    """The projection in rational numbers."""
    exactly = lambda values: [Fraction(float(t)) for t in values]  # noqa: E731
    a, v, D, b = exactly(S.a), exactly(v), exactly(D), Fraction(float(S.b))
    lower = [Fraction(float(t)) if np.isfinite(t) else None for t in S.lower]
    upper = [Fraction(float(t)) if np.isfinite(t) else None for t in S.upper]
    slope = [p / q for p, q in zip(a, D, strict=True)]

    def at(tau):
        x = [p - tau * s for p, s in zip(v, slope, strict=True)]
        x = [p if q is None else max(p, q) for p, q in zip(x, lower, strict=True)]
        return [p if q is None else min(p, q) for p, q in zip(x, upper, strict=True)]

    def excess(tau):
        return sum(p * q for p, q in zip(a, at(tau), strict=True)) - b

    if not S.equality and excess(Fraction(0)) <= 0:
        return at(Fraction(0))
    every = zip(v * 2, lower + upper, slope * 2, strict=True)
    breaks = sorted((p - q) / s for p, q, s in every if q is not None)
    breaks = [breaks[0] - 1, *breaks, breaks[-1] + 1] if breaks else [Fraction(0), Fraction(1)]
    left = max((t for t in breaks if excess(t) >= 0), default=breaks[0])
    right = min((t for t in breaks if t > left), default=left + 1)
    high, low = excess(left), excess(right)
    return at(left if high == low else left + high * (right - left) / (high - low))


def random_simplex(rng):
    """A row with spread coefficients over a box with near, far and no bounds, through a point."""
    n = int(rng.integers(1, 6))
    spread, weights = rng.choice([0.0, 2, 4, 6, 8]), rng.choice([0.0, 3, 5])
    a = 10.0 ** rng.uniform(-spread / 2, spread / 2, n) * rng.choice([-1.0, 1.0], n)
    D = 10.0 ** rng.uniform(-weights / 2, weights / 2, n)
    inside = rng.normal(size=n) * 10.0 ** rng.integers(0, 3)
    width = 10.0 ** rng.uniform(-3, 3, n)
    lower, upper = inside - width * rng.uniform(size=n), inside + width * rng.uniform(size=n)
    lower[rng.uniform(size=n) < 0.2] = -np.inf
    upper[rng.uniform(size=n) < 0.2] = np.inf
    lower[rng.uniform(size=n) < 0.2] = -1e30
    v = inside + rng.normal(size=n) * 10.0 ** rng.integers(-3, 2)
    return Simplex(a, float(a @ inside), lower, upper, bool(rng.integers(2))), v, D


def off(form, v, D, exactly, others=()):
    """Distance from the exact projection, relative to the largest number that enters it."""
    x, root = form(v, D), np.sqrt(D)
    error = np.array([float(Fraction(float(p)) - q) for p, q in zip(x, exactly, strict=True)])
    size = max(np.abs(root * p).max() for p in (v, x, *others))
    return np.linalg.norm(root * error) / size


def test_rows_over_boxes_are_exact_but_for_the_last_digits():
    rng = np.random.default_rng(4)
    tried = [random_simplex(rng) for _ in range(400)]
    tried = [(S, v, D) for S, v, D in tried if S.reachable]
    assert len(tried) > 300
    assert max(off(S, v, D, rationally(S, v, D)) for S, v, D in tried) <= 2e-15


def test_balls_are_exact_but_for_the_last_digits():
    rng = np.random.default_rng(5)
    for _ in range(60):
        n = int(rng.integers(1, 6))
        a = 10.0 ** rng.uniform(-2, 2, n) * rng.choice([-1.0, 1.0], n)
        D = 10.0 ** rng.uniform(-3, 3, n)
        c, r = rng.normal(size=n) * 10.0 ** rng.integers(-2, 2), float(10.0 ** rng.uniform(-2, 2))
        v = (10.0 ** rng.integers(-1, 3) * rng.normal(size=n) - c) / a
        w = [Fraction(float(d)) / Fraction(float(p)) ** 2 for d, p in zip(D, a, strict=True)]
        terms = zip(a, v, c, strict=True)
        u = [Fraction(float(p)) * Fraction(float(q)) + Fraction(float(s)) for p, q, s in terms]
        if sum(t * t for t in u) <= Fraction(r) ** 2:
            continue
        low, high = Fraction(0), max(w) * 10**8
        for _ in range(120):  # y(tau) has norm r
            tau = (low + high) / 2
            size = sum((s * t / (s + tau)) ** 2 for s, t in zip(w, u, strict=True))
            low, high = (tau, high) if size > Fraction(r) ** 2 else (low, tau)
        y = [s * t / (s + low) for s, t in zip(w, u, strict=True)]
        terms = zip(y, c, a, strict=True)
        exactly = [(p - Fraction(float(q))) / Fraction(float(s)) for p, q, s in terms]
        assert off(Ball(a, c, r), v, D, exactly, [c / a]) <= 1e-14


@pytest.mark.parametrize(("far", "radius"), [(1e6, 1e-7), (1e9, 1e-4)])
@pytest.mark.parametrize("kind", ["box", "row", "ball"])
def test_outputs_next_to_large_public_numbers_move_as_charged(kind, far, radius):
    constraints = {
        "box": lambda x: [cp.abs(x - far) <= 9],
        "row": lambda x: [cp.sum(x) == 3 * far, x >= far - 9],
        "ball": lambda x: [cp.norm(x - far) <= 1],
    }[kind]
    weight = 3e4
    setting = Setting(3, constraints, radius, lambda x, d: d @ x + weight / 2 * cp.sum_squares(x))
    start = np.full(3, far)
    step = ProximalStep(setting.projector, start + weight * start, np.ones(3), start)
    rng = np.random.default_rng(2)
    ratios = []
    for _ in range(40):
        d = rng.normal(size=3)
        other = d.copy()
        other[0] += radius
        ratios.append(setting.ratio(solution(start, step), d, other))
    assert max(ratios) <= 1


def searched(H, g, residual):
    """The minimizer of a quadratic function without a set, and how many gradients it took."""
    n, asked = g.size, []

    def gradient(x):
        asked.append(x)
        return H @ x

    w = cp.Variable(n, name="w")
    ends = np.linalg.eigvalsh(H)
    search = CertifiedSearch(sets.of(w >= -1e9), float(ends[-1]), float(ends[0]), 0.0, np.zeros(n))
    return search(gradient, g, residual), len(asked)


def test_searches_of_features_in_different_units_are_short():
    """Second derivatives from 1e-9 to 1: without a look at these, steps are 100,000 and more."""
    rng = np.random.default_rng(0)
    units = np.logspace(-4.5, 0, 12)
    A = rng.normal(size=(40, 12)) / 7 * units
    x, asked = searched(A.T @ A + 1e-12 * np.eye(12), rng.normal(size=12) * units, 1e-14)
    assert x is not None and asked < 5000


def test_searches_end_however_long_they_take():
    """Where no unit of a variable helps, in a direction between two of them."""
    n = 40
    D = np.diff(np.eye(n), axis=0)
    H, g = D.T @ D + 1e-7 * np.eye(n), np.random.default_rng(1).normal(size=n)
    fast = steps._FAST
    try:
        steps._FAST = 20  # as if it had been too few
        x, asked = searched(H, g, 1e-9)
    finally:
        steps._FAST = fast
    # Products of numbers near 1e5 are rounded.
    assert x is not None and np.linalg.norm(H @ x + g) <= 1.1e-9
    # As many as the root of the condition number, times the digits.
    assert asked <= 2 * 40 * np.sqrt(4 / 1e-7)
