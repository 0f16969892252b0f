"""The convergence theorems hold, with 1 / zeta for zeta, and their curves have the right trend."""

from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp
from problems.census import figures
from problems.census.rates import METHODS, Coupled, Medians, Method, example

K = np.array([30, 300, 3000])


def drawn(seed, exact=None):
    """A random instance with parameters that (43) or (48) admits."""
    rng = np.random.default_rng(seed)
    N, d, either = rng.integers(2, 5), rng.integers(1, 3), bool(rng.integers(2))
    exact = either if exact is None else exact
    turned = np.linalg.qr(rng.normal(size=(2, N, d, d)))[0]
    H = turned[0] @ (rng.uniform(0.5, 2, (N, d, 1)) * turned[0].transpose(0, 2, 1))
    A = turned[1] * rng.uniform(0.5, 1, (N, 1, 1))
    own = Coupled(H, A, rng.normal(size=(N, d)), rng.normal(size=d))
    curvature = np.linalg.eigvalsh(H)
    share, high = 2 if exact else 1, np.linalg.norm(A, 2, axis=(1, 2)).max() ** 2
    rho = rng.uniform(0.1, 0.9) * 2 * share * curvature.min() / (N**2 * high)
    alpha = share * curvature.min() / (N * rho**2 * high)
    D = max(rho * high, N * high / alpha + (0 if exact else curvature.max()))
    zeta = rng.uniform(0.05, 0.9) * (2 * rho - N / alpha)
    return own, Method(rho, zeta, D * rng.uniform(1.05, 4), exact)


def falls(V):
    """By what V is divided in every round, as long as it is no rounding."""
    V = V[V > 1e-20 * V[0]]
    return V[:-1] / V[1:]


@pytest.mark.parametrize("seed", range(30))
def test_every_round_keeps_the_promise_with_the_weight_of_the_proof(seed):
    own, method = drawn(seed)
    p = own.rate(method)
    assert 0 < p < 0.5
    assert falls(own.distances(method, 60)).min() >= 1 + p
    # The promise is of the parameters: it ends where (43) ends.
    assert own.rate(replace(method, D=method.D / 20)) <= 0


def noisy(own, rounds, scale, seed):
    """Laplace noise, and its squared norms by round and agent."""
    drawn = np.random.default_rng(seed).laplace(scale=scale, size=(rounds, *own.t.shape))
    return drawn, (drawn**2).sum(axis=2)


@pytest.mark.parametrize("seed", range(30))
def test_theorem_3_3_holds_for_every_noise_and_its_residual_is_that_of_the_noise(seed):
    own, method = drawn(seed, exact=False)
    noise, squares = noisy(own, 60, 0.3, seed)
    V, proved = own.distances(method, 60, noise=noise), own.promised(method, squares)
    assert (V <= proved).all()
    # In every round by itself, from wherever the noise has led.
    p = own.rate(method, terms=6)
    residual = (1 + p / 2) * proved[1:] - proved[:-1]
    assert ((1 + p / 2) * V[1:] <= V[:-1] + residual + 1e-12).all()
    # Without noise the rate is left, and four times the noise has 16 times the residual.
    silent = own.promised(method, np.zeros((60, len(own.t))))
    np.testing.assert_allclose(silent, V[0] * (1 + p / 2) ** -np.arange(61.0))
    loud = own.promised(method, 16 * squares)
    np.testing.assert_allclose(loud - silent, 16 * (proved - silent), rtol=1e-6, atol=1e-9)


def test_runs_and_the_residual_of_theorem_3_3_grow_alike_with_the_noise():
    """After 300 rounds, means of 20 runs with fixed seeds: both by the square of the scale."""
    own, method = example(), METHODS["linearized steps"]
    ends, proved = [], []
    for scale in (0.1, 1.0):
        runs = [noisy(own, 300, scale, seed)[0] for seed in range(20)]
        ends.append(np.mean([own.distances(method, 300, noise=drawn)[-1] for drawn in runs]))
        expected = np.full((3000, 3), 4 * scale**2)
        proved.append(own.promised(method, expected)[-1])
        assert ends[-1] < proved[-1]
    assert ends[1] == pytest.approx(100 * ends[0], rel=0.2)
    assert proved[1] == pytest.approx(100 * proved[0], rel=0.3)


def test_with_the_printed_weight_the_promise_is_broken():
    """From multipliers alone that are off the printed distance grows, in every instance."""
    for seed in range(30):
        own, method = drawn(seed)
        assert falls(own.distances(method, 3, power=1, off=1.0)).min() < 1
        assert falls(own.distances(method, 60, off=1.0)).min() >= 1 + own.rate(method)


@pytest.mark.parametrize("name", METHODS)
def test_runs_are_those_of_the_package(name):
    own, method = example(), METHODS[name]
    xs = [cp.Variable(2, name=f"x{i}") for i in range(3)]
    costs = [cp.quad_form(x - t, H) / 2 for x, t, H in zip(xs, own.t, own.H, strict=True)]
    agents = [dp.Agent(cp.Minimize(cost), name=f"a{i}") for i, cost in enumerate(costs)]
    coupling = [sum(A @ x for A, x in zip(own.A, xs, strict=True)) == own.c]
    algorithm = dp.ResourceADMM(
        penalty=method.penalty, dual_step=method.zeta, step=1 / method.D, randomness=0.0,
        exact=method.exact, returned="last",
    )  # fmt: skip
    plan = dp.Problem(agents, coupling=coupling).plan(algorithm, mechanism=None, rounds=25)
    assert plan.algorithm.violated(plan.program) == []
    found = np.array([it.last.vectors for it in plan.run(iterates=True).iterates])
    best, _ = own.optimum
    measured = method.D * ((found - best) ** 2).sum(axis=(1, 2))
    # V with the multipliers left out.
    weighed = own.distances(method, 25) - own.distances(method, 25, power=1)
    multipliers = weighed / (1 / method.zeta - method.zeta) / method.zeta
    np.testing.assert_allclose(measured, (own.distances(method, 25) - multipliers)[1:], atol=1e-9)


def test_theorem_3_4_holds_and_both_curves_fall_at_least_like_its_rate():
    """Means of 10 runs with fixed seeds; both fall by more than half of a decade per decade."""
    own = Medians()
    gaps = np.mean([own.run(3000, seed) for seed in range(10)], axis=0)[K - 1]
    proved = np.mean([own.bound(K, seed) for seed in range(10)], axis=0)
    assert (0 < gaps).all() and (gaps < proved).all()
    for curve in (gaps, proved):
        slopes = np.diff(np.log10(curve))
        assert (slopes < -0.3).all() and (slopes > -1.2).all()


def test_more_noise_costs_more_in_both():
    quiet, loud = (Medians(noise=scale) for scale in (0.0, 3.0))
    assert loud.bound(K, 0)[1] > 3 * quiet.bound(K, 0)[1]
    ends = [np.mean([own.run(300, seed)[-1] for seed in range(5)]) for own in (quiet, loud)]
    assert ends[1] > 3 * ends[0]


def test_the_figure_shows_promises_above_runs(tmp_path):
    figure = figures.rates(example(), Medians(), runs=3)
    figure.savefig(tmp_path / "figure.png")
    for axes in figure.axes:
        for run, proved in zip(axes.lines[::2], axes.lines[1::2], strict=True):
            assert not (run.get_ydata()[5:] > proved.get_ydata()[5:]).any()
