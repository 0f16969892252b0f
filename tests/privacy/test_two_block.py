"""What one use loses: the formulas, the lemmas, and exact losses on quadratic problems.

With quadratic f and g the final iterate is Gaussian with the same covariance for neighboring
inputs, so its loss is computed without any theorem: from plain matrices of one iteration, written
from the paper's update equations.
"""

import math
from dataclasses import replace

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dpcvx as dp
from dpcvx.privacy.two_block import (
    TwoBlock,
    _pair,
    _start,
    bounds,
    local_zcdp,
    refusal,
    step_interval,
)
from tests.privacy.two_blocks import (
    Instance,
    convex,
    flat,
    least,
    loguniform,
    random_instances,
    seeds,
    strongly_convex,
    table_1,
)

# Exact losses -------------------------------------------------------------------------------


@random_instances
@given(seeds, st.integers(0, 40))
def test_the_convex_bound_is_above_the_exact_loss(seed, after):
    instance = Instance(seed, strong=False, iterations=after + 1)
    exact = instance.loss({0}) / (1 + 1e-7)
    assert exact <= convex(instance.block, 1.0, 1.0, after)
    assert exact <= local_zcdp(instance.block, 1.0, 1.0)


@random_instances
@given(seeds, st.integers(0, 40))
def test_the_strongly_convex_bound_is_above_the_exact_loss(seed, after):
    instance = Instance(seed, strong=True, iterations=after + 1)
    exact = instance.loss({0}) / (1 + 1e-7)
    assert exact <= strongly_convex(instance.block, 1.0, 1.0, after)
    assert exact <= convex(instance.block, 1.0, 1.0, after)
    assert exact <= least(instance.block, 1.0, 1.0, after)[0]


# How far from tight: within two and four on these instances


@pytest.mark.parametrize("after", [1, 3, 11, 60, 201])
def test_a_quarter_of_the_convex_constant_is_violated(after):
    instance = flat(after + 1)
    exact = instance.loss({0})
    assert exact == pytest.approx(1 / (2 * (after + 1)), rel=1e-6)
    bound = convex(instance.block, 1.0, 1.0, after)
    assert 0.45 * bound < exact < 0.51 * bound
    assert bound / 4 < exact


def strong_scalar(iterations):
    instance = flat(iterations)
    instance.n, instance.A, instance.beta = 1, np.eye(1), 200.0
    instance.G, low, high = np.eye(1), *step_interval(1.0, 1.0, 1.0, 200.0, 1.0)
    instance.eta = low + 0.9 * (high - low)
    instance.H = [np.eye(1)] * iterations
    arguments = {"nu": 1.0, "mu": 1.0, "mu_g": 1.0, "beta": 200.0, "eta": instance.eta}
    instance.block = TwoBlock.of(np.eye(1), -np.eye(1), **arguments)
    return instance


@pytest.mark.parametrize("after", [1, 11, 61])
def test_a_quarter_of_the_strongly_convex_constant_is_violated(after):
    instance = strong_scalar(after + 1)
    exact, bound = instance.loss({0}), strongly_convex(instance.block, 1.0, 1.0, after)
    assert bound / 4 < exact < bound


def test_losing_a_factor_in_the_bound_is_noticed_by_random_instances():
    ratios = []
    for seed in range(300):
        instance = Instance(seed, strong=False, iterations=4)
        ratios.append(instance.loss({0}) / convex(instance.block, 1.0, 1.0, 3))
    assert 0.25 < max(ratios) < 1


# Lemmas -------------------------------------------------------------------------------------


def nonlinear(instance, strong):
    """A gradient and a y-step of which no quadratic is behind."""
    block, rng = instance.block, instance.rng
    a = rng.standard_normal(instance.n)
    a /= np.linalg.norm(a)
    slope = block.nu - block.mu
    instance.B = -np.eye(instance.m)
    norm = np.linalg.norm(instance.A.T @ instance.B, 2)
    mu_g = block.mu_g if strong else 0.0
    threshold = loguniform(rng, -2, 1)

    def gradient(x):  # mu/2 |x|^2 + (nu - mu) huber(<a, x>)
        return block.mu * x + slope * np.clip(a @ x, -1, 1) * a

    def y_of(v):  # g = threshold |y|_1 + mu_g/2 |y|^2, B = -I
        return -np.sign(v) * np.maximum(np.abs(v) - threshold, 0) / (mu_g + instance.beta)

    instance.block = replace(block, AB_norm=norm)
    if strong:
        low, high = step_interval(block.nu, block.mu, mu_g, instance.beta, norm)
        instance.eta = low + (high - low) * rng.uniform(0.01, 0.99)
        instance.block = replace(instance.block, eta=instance.eta)
    return gradient, y_of


def two_runs(seed, strong, linear):
    instance = Instance(seed, strong)
    gradient, y_of = (lambda x: instance.H[0] @ x), None
    if not linear:
        gradient, y_of = nonlinear(instance, strong)
    rng = instance.rng
    scale = loguniform(rng, -1, 1)
    pairs = [
        (scale * rng.standard_normal(instance.n), scale * instance.beta * rng.standard_normal(m))
        for m in (instance.m, instance.m)
    ]
    before = [u - v for u, v in zip(*pairs, strict=True)]
    after = [
        u - v for u, v in zip(*(instance.step(*p, gradient, y_of) for p in pairs), strict=True)
    ]
    return instance, before, after


@random_instances
@given(seeds, st.booleans())
def test_iterations_do_not_expand_up_to_two_over_nu(seed, linear):
    instance, before, after = two_runs(seed, strong=False, linear=linear)
    assert instance.eta <= 2 / instance.block.nu
    assert instance.norm2(*after) <= instance.norm2(*before) * (1 + 1e-9)


@random_instances
@given(seeds, st.booleans())
def test_iterations_contract_in_the_strongly_convex_case(seed, linear):
    instance, before, after = two_runs(seed, strong=True, linear=linear)
    R, L = instance.block.R, instance.block.contraction
    assert instance.norm2(*after, R) <= L * instance.norm2(*before, R) * (1 + 1e-9)


def test_iterations_can_expand_beyond_two_over_nu():
    instance = flat(1)
    instance.eta, instance.H = 2.1, [np.eye(2)]
    after = instance.step(np.array([0.0, 1.0]), np.zeros(1), lambda x: x)
    assert instance.norm2(*after) > 1.2
    found = bounds(replace(instance.block, eta=2.1), 1.0, 1.0, np.array([10]))[:, 0]
    assert 0 < found[0] < math.inf and set(found[1:]) == {math.inf}


# Constants ----------------------------------------------------------------------------------


# By hand for Table 1's third row with A = B = I: eta = 20, h = 6, d = 20/9, R = 19/90, P = 8/9,
# S = 200/3, Q = 700/9, L = 6/7, 1 - eta mu = 1/10. Local 200 / (1 + 6)^2 if A is known to be
# square; the trace of c(q, R) is 9/190 + 101/600 and its determinant 3/380; c(1, 1) has trace 4/3
# and determinant 1/6. In both cases the maximum of (R + s) / (1 + s)^2 is at its lower end s = 6 in
# the square case, and at s = 1 - 2R, where it is 1 / (4 (1 - R)), otherwise.
def test_golden_values():
    block = table_1(0.0225, 0.3)
    assert (block.d, block.R, block.P) == pytest.approx((20 / 9, 19 / 90, 8 / 9))
    assert (block.S, block.Q) == pytest.approx((200 / 3, 700 / 9))
    with mp.workdps(40):

        def larger(trace, determinant):
            return (trace + mp.sqrt(trace**2 - 4 * determinant)) / 2

        weak = larger(mp.mpf(4) / 3, mp.mpf(1) / 6)
        strong = larger(mp.mpf(9) / 190 + mp.mpf(101) / 600, mp.mpf(3) / 380)
        start = {False: 90 / mp.mpf(284), True: (mp.mpf(19) / 90 + 6) / 49}
        L = mp.mpf(6) / 7
        sums = {after: sum(L ** (-2 * j) for j in range((after + 1) // 2)) for after in (7, 8)}
        for square in (False, True):
            some = replace(block, square=square)
            local = 200 / mp.mpf(49 if square else 1)
            assert local_zcdp(some, 0.5, 0.5) == pytest.approx(float(local), rel=1e-10)
            for after in (7, 8):
                expected = 200 * weak / 4 / (7 if square else 1)
                assert convex(some, 0.5, 0.5, after) == pytest.approx(float(expected), rel=1e-10)
                first = L if after == 8 else 1
                expected = 200 * start[square] * strong * first / sums[after]
                found = strongly_convex(some, 0.5, 0.5, after)
                assert found == pytest.approx(float(expected), rel=1e-10)
                assert found >= float(expected)
    assert local_zcdp(block, 0.1, 0.7) == pytest.approx(20**2 * 0.01 / (2 * 0.49))


@random_instances
@given(seeds)
def test_the_constants_are_the_least_with_which_the_inequalities_hold(seed):
    rng = np.random.default_rng(seed)
    h, q, R = loguniform(rng, -3, 3), rng.uniform(0, 1), rng.uniform(0.1, 2)
    angle = np.linspace(0, np.pi / 2, 20001)
    x, b = np.cos(angle), np.sin(angle)
    ratio = ((b**2 + q**2 * (x + b) ** 2) / (R * x**2 + h * b**2)).max()
    block = TwoBlock(nu=1.0, beta=h, eta=1.0, A_norm=3.0)
    assert ratio <= _pair(block, q, R) * (1 + 1e-12) <= ratio * (1 + 1e-4)
    if q == R == 1:
        assert _pair(block, 1, 1) <= max(2, 3 / h)
    for some in (block, replace(block, square=True)):
        s = np.append(0.0 if not some.square else h, np.geomspace(min(1e-3, h), 9 * h, 20001))
        s = s[s >= (h if some.square else 0)]
        largest = ((R + s) / (1 + s) ** 2).max()
        assert largest <= _start(some, R) * (1 + 1e-12) <= largest * (1 + 1e-3)


@random_instances
@given(seeds, st.booleans(), st.integers(0, 60))
def test_bounds_fall_with_the_iterations_after_a_user(seed, strong, after):
    block = Instance(seed, strong).block
    (local, now), (_, later) = ((rho[0], rho.min()) for rho in
                                bounds(block, 1.0, 1.0, after + np.arange(2)).T)  # fmt: skip
    assert local == local_zcdp(block, 1.0, 1.0)
    assert 0 < later <= now * (1 + 1e-12) <= local * (1 + 1e-12)


def test_each_rule_wins_somewhere():
    block = table_1(0.25, 0.9)
    assert [least(block, 1.0, 1.0, k)[1] for k in (0, 60)] == ["local", "strongly convex"]
    assert convex(block, 1.0, 1.0, 0) == math.inf
    assert least(replace(block, mu=0.0), 1.0, 1.0, 1000)[1] == "convex"
    assert least(block, 0.0, 1.0, 5)[0] == 0
    far = strongly_convex(block, 1.0, 1.0, 10**6)
    assert 0 < far < 1e-250


def test_small_penalties_are_noisy_gradient_descent_and_gain_nothing_here():
    # x alone has the loss 1 / (k + 1) of noisy gradient descent with f = 0; the bound, which is
    # about x and the multipliers, grows like 1 / beta, and the local one takes its place.
    instance = flat(11)
    instance.beta, instance.B = 1e-9, np.zeros((1, 1))
    for M in instance.matrices():
        assert M[:2, :2] == pytest.approx(np.eye(2), abs=1e-8)
        assert M[:2, 2:] == pytest.approx(0, abs=1e-8)
    mean, noise = np.eye(2), np.hstack([np.eye(2)] * 11)
    assert np.linalg.norm(np.linalg.pinv(noise) @ mean, 2) ** 2 == pytest.approx(1 / 11)
    # In the row of A the multipliers reveal the sum of all iterates: shifts (1, 10) under noises
    # (1, k), k = 0..10, cost 0.3182 instead of 1 / 11.
    pairs = np.vstack([np.ones(11), np.arange(11)])
    seen = np.linalg.norm(np.linalg.pinv(pairs) @ np.array([1.0, 10.0])) ** 2
    assert seen == pytest.approx(7 / 22)
    assert 2 * instance.loss({0}) == pytest.approx(7 / 22, rel=1e-5)
    for beta in (1e-3, 1e-9):
        block = replace(instance.block, beta=beta)
        assert convex(block, 1.0, 1.0, 10) == pytest.approx(0.2 / beta, rel=1e-2)
        assert least(block, 1.0, 1.0, 10)[1] == "local"


# The interval -------------------------------------------------------------------------------


def test_the_interval_of_equation_23():
    low, high = step_interval(1.0, 1.0, 0.2, 0.1, 1.0)
    assert (low, high) == pytest.approx((4 / (2 + math.sqrt(12)), 1))
    assert step_interval(1.0, 1.0, 0.1, 1.0, 1.0) == pytest.approx((0.8, 1))
    assert step_interval(1.0, 1.0, 0.1, 1.0, 0.0) == pytest.approx((4 / (2 + math.sqrt(12)), 1))
    for mu, mu_g in ((0.0, 1.0), (0.5, 0.0)):
        low, high = step_interval(1.0, mu, mu_g, 1.0, 1.0)
        assert low == high
    # Section 7 uses a lemma for eta <= 1 / nu; below mu = nu / 2 no eta of the interval is.
    assert step_interval(1.0, 0.5, 1e9, 1.0, 1.0)[0] == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"mu": 0.0}, "every f_i strongly convex"),
        ({"mu_g": 0.0}, "needs g strongly convex"),
        ({"AB_norm": None}, "write AB_norm="),
        ({"eta": 1.1}, "not below 2 / .*Q > S"),
        ({"eta": 0.7}, "P > R.*Choose eta between 0.8 and 1 "),
        ({"eta": 0.78}, "g is not convex enough.*smaller beta"),
    ],
)
def test_refusals_name_the_condition(change, match):
    block = TwoBlock(nu=1.0, mu=1.0, mu_g=0.1, beta=1.0, eta=0.9, AB_norm=1.0)
    assert refusal(block) is None and 0 < block.contraction < 1
    block = replace(block, **change)
    assert strongly_convex(block, 1.0, 1.0, 10) == math.inf
    with pytest.raises(dp.PrivacyError, match=match):
        _ = block.contraction


@random_instances
@given(seeds)
def test_iterations_contract_exactly_inside_the_interval(seed):
    rng = np.random.default_rng(seed)
    nu, beta, norm, mu_g = (loguniform(rng, -1, 1) for _ in range(4))
    block = TwoBlock(nu=nu, mu=nu * rng.uniform(0, 1), mu_g=mu_g, beta=beta, eta=1.0, AB_norm=norm)
    low, high = step_interval(nu, block.mu, mu_g, beta, norm)
    for eta in (low * (1 + 1e-6), (low + high) / 2, high * (1 - 1e-6)):
        some = replace(block, eta=eta)
        assert some.P > some.R and some.Q > some.S
        assert 2 * mu_g >= (beta * norm) ** 2 * some.d
    for eta in (low * (1 - 1e-6), high * (1 + 1e-6)):
        some = replace(block, eta=eta)
        inside = some.P > some.R and some.Q > some.S and 2 * mu_g >= (beta * norm) ** 2 * some.d
        assert not inside and refusal(some) is not None


# What is refused ------------------------------------------------------------------------------

VALID = {"nu": 1.0, "beta": 1.0, "eta": 1.0}


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"nu": 0.0}, "nu must be a positive.*got 0.0.*smoothness"),
        ({"nu": math.inf}, "nu must be.*got inf"),
        ({"beta": -1.0}, "beta must be.*got -1.0.*penalty"),
        ({"eta": math.nan}, "eta must be.*got nan.*step size"),
        ({"A_norm": 0.0}, "A_norm must be.*got 0.0"),
        ({"mu": 2.0}, "mu must be a number from 0 to nu=1, got 2.0"),
        ({"mu": -0.1}, "mu must be.*got -0.1"),
        ({"mu_g": -1.0}, "mu_g must be.*got -1.0"),
        ({"A_least": 0.0}, "eliminate rows"),
        ({"A_least": 2.0}, "at most A_norm=1"),
        ({"AB_norm": -1.0}, "AB_norm must be.*got -1.0"),
    ],
)
def test_constants_are_checked(change, match):
    with pytest.raises(dp.ModelError, match=match):
        TwoBlock(**{**VALID, **change})


@pytest.mark.parametrize("A", [np.ones((2, 2)), np.ones((3, 2)), np.zeros((1, 2))])
def test_matrices_without_full_row_rank_are_refused(A):
    with pytest.raises(dp.ModelError, match="full row rank.*Eliminate rows"):
        TwoBlock.of(A, np.ones((len(A), 1)), **VALID)


def test_constants_of_matrices():
    D = np.array([[2.0], [1.0]])
    block = TwoBlock.of(np.hstack([np.eye(2), D]), -np.eye(2), **VALID)
    assert block.A_norm == pytest.approx(math.sqrt(6)) == block.AB_norm
    assert block.A_least == pytest.approx(1.0) and block.A_least <= 1 and not block.square
    assert TwoBlock.of(2 * np.eye(3), np.eye(3), **VALID).square
