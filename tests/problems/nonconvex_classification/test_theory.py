"""DPP2's conditions and losses, against independent formulas, simulations and counterexamples."""

import math

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpcvx as dp
from problems.nonconvex_classification.theory import (
    Parameters,
    Schedule,
    claimed_epsilon,
    disagreement_rate,
    epsilon,
    log_changes,
    log_epsilon,
    log_losses,
    spectrum,
    violations,
)
from problems.refutations.ou import attained_loss
from tests.algorithms.networks import connected_graphs

# Smoothness, step, weight and penalty of the paper's experiment.
M_PAPER = 5.03
PAPER = Parameters(alpha=0.1, beta=0.05, rho=10.0)
SMALL = Schedule(rounds=4, size=3, alpha=0.1, smoothness=0.5, sensitivity=0.7, decay=0.9)


def names(n):
    return [f"agent {i}" for i in range(n)]


@st.composite
def networks(draw):
    """Connected networks of 2 to 9 agents."""
    graph = draw(connected_graphs())
    return dp.networks.build(graph, names(len(graph)), draw(st.sampled_from(dp.networks.WEIGHTS)))


@st.composite
def matrices(draw):
    """P of a network: its Laplacian, or I - W."""
    net = draw(networks())
    return net.laplacian if draw(st.booleans()) else np.eye(len(net.agents)) - net.weights


def centered(n):
    """I - 11'/n: every disagreement has the eigenvalue 1."""
    return np.eye(n) - np.full((n, n), 1 / n)


# Parameters that keep (24) to (27), by P and M.
KEPT = {
    "two": (centered(2), 1.0, Parameters(1.315e-3, 6.577e-4, 15.593, 0.34, 0.0392)),
    "three": (centered(3), 3.0, Parameters(2.188e-4, 1.094e-4, 94.974, 0.34, 0.0392)),
    "four": (centered(4) / 2, 2.0, Parameters(2.29e-4, 2.29e-4, 90.72, 0.34, 0.0392)),
}


# Conditions (24) to (27) --------------------------------------------------------------------


def holds(P, M, p):
    """The conditions once more, as the paper prints them, line by line."""
    values = np.sort(np.linalg.eigvalsh(P))
    low, high = values[1], values[-1]
    G = np.sort(p.alpha - p.beta * values[1:])
    kappa_L, kappa_G = high / low, G[-1] / G[0]
    c_alpha, c, g = p.alpha / G[-1], p.c_theta, p.gamma
    xi1 = p.rho * high / 2 * (1 / kappa_G - c) - (1 + 3 * M**2 / 4 + M**2 * c_alpha / 2)
    xi2 = 0.5 * (1 + 1 / g) * p.rho**2 * high + c / 4 + 0.5 * c * p.rho * high + 11 / 4
    xi2 += M**2 * (2 / g + 0.25 * c * p.rho * high + 0.5 * c**2)
    xi3 = c / 2 - 5 * g / 2 - 1 / (p.rho**2 * low**2)
    xi4, xi5, xi6, xi7 = c**2 / 4, 7 * c**2 / 4, 0.25, M + 10.5 * M**2
    xi8 = (4 + 3 * M**2 + 2 * M**2 * c_alpha) / (2 * high * (1 / kappa_G - c))
    xi9 = 1 / math.sqrt(low**2 * (c / 2 - 5 * g / 2))
    top = G[-1]
    return (
        G[0] > 0
        and 1 < c_alpha
        and c_alpha * (kappa_L - 1) < kappa_L
        and c < 1 / kappa_G
        and g < c / 5
        and p.rho > max(xi8, xi9)
        and top < xi1 / xi2
        and top < (-xi4 + math.sqrt(xi4**2 + 4 * xi3 * xi5)) / (2 * xi5)
        and top * c_alpha * xi7 < xi6
        and p.alpha * xi7 < xi6
        and p.beta == pytest.approx((p.alpha - top) / low)
    )


@pytest.mark.parametrize("case", KEPT)
def test_conditions_can_be_kept(case):
    P, M, p = KEPT[case]
    assert holds(P, M, p)
    assert violations(P, M, p) == []
    # The constants of the proof are found again.
    assert violations(P, M, Parameters(p.alpha, p.beta, p.rho)) == []


def boundary(good, bad, fine):
    """The last good and the first bad number between the two, relatively 1e-9 apart."""
    while abs(good - bad) > 1e-9 * abs(good):
        middle = (good + bad) / 2
        good, bad = (middle, bad) if fine(middle) else (good, middle)
    return good, bad


@settings(max_examples=40)
@given(
    P=matrices(),
    M=st.sampled_from([0.0, 1e-3, 0.1, 1.0, 30.0]),
    share=st.floats(0.05, 0.95),
    theta=st.floats(0.05, 0.95),
    gamma=st.floats(1e-3, 0.9),
    times=st.floats(1.01, 100),
    scale=st.sampled_from([1.0, 1e3, 1e5]),
)
def test_the_check_changes_its_mind_where_the_printed_conditions_do(
    P, M, share, theta, gamma, times, scale
):
    """Along the step length and along rho, between parameters that are fine and ones that are not.

    Depending on the draw it is another condition that breaks first.
    """
    P = scale * P
    low, high = spectrum(P)
    beta = share / high
    top = 1 - beta * low
    c = theta * (1 - share) / top

    def at(length, rho):
        return Parameters(length, beta * length, rho, c, gamma * c / 5)

    def fine(length, rho):
        return violations(P, M, at(length, rho)) == []

    # At a tiny step only (25) is left.
    least = boundary(1e15, 1e-9, lambda rho: fine(1e-40, rho))
    longest = boundary(1e-40, 1e9 / top, lambda length: fine(length, times * least[0]))
    for good, bad in (
        (at(1e-40, least[0]), at(1e-40, least[1])),
        (at(longest[0], times * least[0]), at(longest[1], times * least[0])),
    ):
        shaken = [holds(P, M, p) for p in (good, bad)]
        assert shaken == [True, False]


def test_every_broken_condition_is_named():
    P, M, p = KEPT["four"]

    def said(**changes):
        return violations(P, M, Parameters(**{**vars(p), **changes}))

    assert said() == []
    (text,) = said(beta=2.5 * p.alpha)
    assert "beta" in text and "lambda_max(P) = 0.5" in text and f"{2 * p.alpha:.6g}" in text
    (text,) = said(c_theta=1.0)
    assert "c_theta=1 must be less than 1 / kappa_G" in text
    (text,) = said(gamma=p.c_theta / 4)
    assert "gamma" in text and "c_theta / 5" in text
    (text,) = (text for text in said(rho=p.rho / 5) if "xi_8" in text)
    # All positive eigenvalues of P are 1/2, so that kappa_G is 1.
    c_alpha = p.alpha / (p.alpha - p.beta / 2)
    xi_8 = (4 + 3 * M**2 + 2 * M**2 * c_alpha) / (2 * 0.5 * (1 - p.c_theta))
    assert f"xi_8 = {xi_8:.6g} (25)" in text
    assert any("xi_9" in text for text in said(rho=0.1))
    assert any("xi_1 / xi_2" in text for text in said(rho=100 * p.rho))
    assert any("the root" in text for text in said(alpha=1.0))
    assert any("alpha=1 must be less than xi_6 / xi_7 = 0.00568182 (27)" in text
               for text in said(alpha=1.0))  # fmt: skip


def test_the_papers_experiment_breaks_its_own_conditions():
    # The first connected geometric graph of networkx with the paper's numbers of nodes and edges.
    graph = nx.random_geometric_graph(50, 0.3, seed=69)
    net = dp.networks.build(graph, names(50))
    assert len(net.edges) == 255
    told = "; ".join(violations(net.laplacian, M_PAPER, PAPER))
    assert "G = alpha I - beta L is not positive definite" in told
    assert "alpha=0.1 must be less than xi_6 / xi_7 = 0.000923568" in told
    mixing = np.eye(50) - net.weights
    assert spectrum(mixing)[1] == pytest.approx(1.135, abs=1e-3)
    told = "; ".join(violations(mixing, M_PAPER, PAPER))
    assert "positive definite" not in told
    for word in ("xi_8", "xi_9", "xi_1 / xi_2", "xi_6 / xi_7"):
        assert word in told


# What the theorems claim --------------------------------------------------------------------


def algorithm_1(P, p, gradient, x, rounds, eta, noise):
    """Algorithm 1 for scalar x_i, as printed. Returns all x^k, y^k and z^k."""
    d, q = np.zeros_like(x), np.zeros_like(x)
    X, Y, Z = [x], [], []
    for k in range(rounds):
        w, e = noise(k)
        y = x + (1 - eta[k]) * d + w
        z = gradient(x) + eta[k] * q + p.rho * P @ y + e
        x = x + w - p.alpha * (z - e) + p.beta * P @ z
        d, q = eta[k] * d + y, eta[k] * q + p.rho * P @ y
        X.append(x)
        Y.append(y)
        Z.append(z)
    return np.array(X), np.array(Y), np.array(Z)


def silent(k):
    return 0.0, 0.0


def transition(P, p, curvatures, damping=0.0):
    """(20) and (21) without noise on (x, q), for quadratics."""
    n = len(P)
    G = p.alpha * np.eye(n) - p.beta * P
    own = np.eye(n) - G @ (np.diag(curvatures) + (p.rho + damping) * P)
    return np.block([[own, -G], [p.rho * P, np.eye(n)]])


@given(
    P=matrices(),
    h=st.floats(-5, 5),
    damping=st.floats(0, 20),
    alpha=st.floats(1e-3, 0.5),
    share=st.floats(0.05, 0.95),
    rho=st.floats(0.1, 30),
)
def test_the_rate_is_that_of_the_iteration(P, h, damping, alpha, share, rho):
    p = Parameters(alpha, share * alpha / spectrum(P)[1], rho)
    n = len(P)
    T = transition(P, p, np.full(n, h), damping)
    # On disagreements: agreement alone changes by 1 - alpha h and leaves q as it is.
    Q = np.linalg.svd(centered(n))[0][:, : n - 1]
    on = np.kron(np.eye(2), Q)
    expected = np.abs(np.linalg.eigvals(on.T @ T @ on)).max()
    # Double eigenvalues are known to half the digits.
    assert disagreement_rate(P, p, h, damping) == pytest.approx(expected, abs=1e-6)


@given(
    P=matrices(),
    M=st.floats(0.01, 10),
    alpha=st.floats(1e-3, 0.5),
    share=st.floats(0.05, 0.95),
    rho=st.floats(0.01, 30),
    times=st.floats(0.5, 3),
)
def test_with_damping_disagreement_decays_exactly_under_the_stated_conditions(
    P, M, alpha, share, rho, times
):
    low, high = spectrum(P)
    p = Parameters(alpha, share * alpha / high, rho)
    damping = times * M / low
    lam = np.linalg.eigvalsh(P)[1:]
    margins = [damping * lam - M, 4 - (alpha - p.beta * lam) * ((rho + 2 * damping) * lam + 2 * M)]
    worst = max(disagreement_rate(P, p, h, damping) for h in (-M, M))
    if np.min(margins) > 1e-6:
        between = [disagreement_rate(P, p, h, damping) for h in np.linspace(-M, M, 9)]
        assert max(worst, *between) < 1
    elif np.min(margins) < -1e-6:
        assert worst > 1


@given(P=matrices(), h=st.floats(-5, 0), M=st.floats(0.01, 10))
def test_as_printed_disagreement_does_not_decay_without_curvature(P, h, M):
    assert disagreement_rate(P, Parameters(0.1 / M, 0.01 / M, M), h) >= 1
    assert disagreement_rate(P, Parameters(0.01, 0.001, 1), h) >= 1


def test_theorem_1_does_not_hold():
    """Two linear functions with sum zero: the mean of the gap stays, whatever the horizon."""
    (P, _, p), c = KEPT["two"], np.array([1.0, -1.0])
    period = 2 * math.pi / math.sqrt(p.rho * (p.alpha - p.beta))
    means = []
    for periods in (2, 20):
        rounds = round(periods * period)
        eta = np.full(rounds, 0.5)
        X, _, _ = algorithm_1(P, p, lambda x: c, np.zeros(2), rounds, eta, silent)
        # The sum of the gradients is zero: all of the gap is disagreement.
        gap = ((X - X.mean(axis=1, keepdims=True)) ** 2).sum(axis=1)
        means.append(gap.mean())
    assert means[1] == pytest.approx(means[0], rel=0.01) and means[0] > 1e-5


def test_lemma_1_does_not_hold():
    """V rises in the first round from agreement, as it does by G (G - theta) / 2 per mode."""
    (P, _, p), c = KEPT["two"], np.array([1.0, -1.0])
    G = p.alpha - p.beta
    theta = p.c_theta * G

    def V(x, q):
        x, s = x - x.mean(), q + c
        return x @ x / 2 + (theta * G + G / p.rho) * s @ s / 2 + theta * x @ s / 2

    X, _, _ = algorithm_1(P, p, lambda x: c, np.zeros(2), 1, [0.5], silent)
    rise = V(X[1], p.rho * P @ X[0]) - V(X[0], np.zeros(2))
    assert rise == pytest.approx(G * (G - theta) / 2 * c @ c) and rise > 0


def test_theorem_2_does_not_hold():
    """Three quadratics with a strongly convex sum, of which two are concave: disagreement grows."""
    (P, _, p), h = KEPT["three"], np.array([-1.0, -1.0, 3.0])
    assert h.sum() > 0
    start = np.array([1.0, -1.0, 0.5, 0, 0, 0])
    norms = [
        np.linalg.norm((np.linalg.matrix_power(transition(P, p, h), rounds) @ start)[:3])
        for rounds in (0, 10**6, 2 * 10**6)
    ]
    assert norms[1] > 10 * norms[0] and norms[2] > 10 * norms[1]
    # With the term of the module's last formula it decays, for the paper's parameters too.
    for q in (p, PAPER):
        T = transition(P, q, h, damping=4.0)
        assert np.sort(np.abs(np.linalg.eigvals(T)))[-2] < 1 - 1e-7


def test_eta_changes_nothing_and_the_transition_is_the_algorithm():
    rng = np.random.default_rng(3)
    P, h = dp.networks.build("ring", names(5)).laplacian / 5, rng.uniform(0.5, 2, 5)
    x, W, E = rng.normal(size=5), rng.normal(size=(9, 5)), rng.normal(size=(9, 5))
    runs = [
        algorithm_1(P, PAPER, lambda x: h * x, x, 9, eta, lambda k: (W[k], E[k]))[0]
        for eta in (np.full(9, 0.5), rng.uniform(size=9))
    ]
    np.testing.assert_allclose(runs[0], runs[1], atol=1e-10)
    quiet = algorithm_1(P, PAPER, lambda x: h * x, x, 9, np.full(9, 0.3), silent)[0][-1]
    state = np.linalg.matrix_power(transition(P, PAPER, h), 9) @ np.append(x, np.zeros(5))
    np.testing.assert_allclose(state[:5], quiet, atol=1e-10)


# Privacy ------------------------------------------------------------------------------------


@st.composite
def schedules(draw, growth=3.0):
    """Any schedule; alpha M below, above and at one."""
    alpha = draw(st.floats(1e-3, 2))
    ratio = draw(st.one_of(st.sampled_from([0.0, 1.0, 1 - 1e-12]), st.floats(1e-4, growth)))
    return Schedule(
        rounds=draw(st.integers(1, 40)),
        size=draw(st.integers(1, 30)),
        alpha=alpha,
        smoothness=ratio / alpha,
        sensitivity=draw(st.floats(1e-3, 10)),
        decay=draw(st.floats(0.3, 1)),
        u_w=draw(st.floats(0.01, 100)),
        u_e=draw(st.floats(0.01, 100)),
    )


@given(s=schedules())
def test_changes_and_losses_are_those_of_the_recursion(s):
    """Gradients move by delta and M times the point; points by alpha times the gradient before."""
    point, total = 0.0, 0.0
    points, gradients = (np.exp(logs) for logs in log_changes(s))
    for k in range(s.rounds):
        gradient = s.sensitivity + s.smoothness * point
        assert points[k] == pytest.approx(point, rel=1e-10)
        assert gradients[k] == pytest.approx(gradient, rel=1e-10)
        scale = math.sqrt(s.size) / s.decay**k
        losses = [scale * point / s.u_w, scale * gradient / s.u_e]
        assert np.exp(log_losses(s)[k]) == pytest.approx(losses, rel=1e-10)
        total += sum(losses)
        point = s.alpha * gradient
    assert epsilon(s) == pytest.approx(total, rel=1e-10)
    assert log_epsilon(s) == pytest.approx(math.log(total), abs=1e-10)


@settings(max_examples=40)
@given(s=schedules(growth=1.5), seed=st.integers(0, 1000))
def test_the_loss_is_attained(s, seed):
    short = Schedule(**{**vars(s), "rounds": min(s.rounds, 8), "size": min(s.size, 4)})
    assert attained_loss(short, seed) == pytest.approx(epsilon(short), rel=1e-6)


def test_theorem_3_as_printed_is_smaller_than_the_loss_of_a_quadratic():
    s = Schedule(rounds=4, size=2, alpha=0.1, smoothness=0.5, sensitivity=1.0, decay=0.9)
    loss = attained_loss(s)
    assert loss == pytest.approx(epsilon(s), rel=1e-9)
    assert claimed_epsilon(s) < 0.85 * loss
    # One round sends a gradient, which Theorem 3 does not count at all.
    one = Schedule(**{**vars(s), "rounds": 1})
    assert claimed_epsilon(one) == 0 and attained_loss(one) == pytest.approx(math.sqrt(2))
    # At the paper's own parameters, alpha M is so large that what is dropped elsewhere covers it.
    own = Schedule(501, 10, 0.1, M_PAPER, 1.0, 0.99)
    assert 0 < claimed_epsilon(own) - epsilon(own) < 1
    assert epsilon(own) == pytest.approx(105_821, abs=1)


def test_corollary_1_allows_far_too_little_noise():
    """All its conditions hold, and the loss is many times the target: by Theorem 3 as well."""
    target, K = 1.0, 100
    s = Schedule(K + 1, 10, alpha=0.01, smoothness=1.0, sensitivity=1.0, decay=1.0, u_w=10, u_e=10)
    root = math.sqrt(s.size)
    assert s.u_e > root * s.smoothness / target
    limit = (target - root * s.smoothness / s.u_e) / (s.sensitivity * (root / s.u_w + target))
    assert s.alpha < min(1 / s.smoothness, limit)
    c = root * (1 / (s.alpha * s.u_e) + 1 / s.u_w) * s.alpha * s.sensitivity
    c /= 1 - s.alpha * s.smoothness
    r = ((c / target) ** (1 / (K - 1)) + 1) / 2
    assert 0 < r < 1
    chosen = Schedule(**{**vars(s), "decay": r})
    assert min(claimed_epsilon(chosen), epsilon(chosen)) > 40 * target


def test_huge_losses_are_numbers_as_long_as_there_are_any():
    paper = Schedule(501, 10, 0.1, 5.4, 1.0, 0.95)
    assert epsilon(paper) == pytest.approx(2.08e13, rel=0.01)
    big = Schedule(1000, 10, 0.1, 5.4, 1.0, 0.5)
    assert 1e290 < epsilon(big) < math.inf
    bigger = Schedule(5000, 10, 10.0, 5.4, 1.0, 0.5)
    assert epsilon(bigger) == claimed_epsilon(Schedule(5000, 10, 0.1, 5.4, 1.0, 0.5)) == math.inf
    # Differences grow by alpha M = 54 and noise falls by 1/2 per round.
    assert log_epsilon(bigger) == pytest.approx(4999 * math.log(108), rel=1e-2)


# Arguments ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Parameters(0.0, 1.0, 1.0), r"alpha=0.0"),
        (lambda: Parameters(1.0, 1.0, None), r"rho=None"),
        (lambda: Parameters(1.0, 1.0, 1.0, gamma=-1.0), r"gamma=-1"),
        (lambda: violations(centered(2), math.inf, PAPER), r"smoothness=inf"),
        (lambda: disagreement_rate(centered(2), PAPER, math.nan), r"curvature=nan"),
        (lambda: Schedule(**{**vars(SMALL), "rounds": 0}), r"rounds=0"),
        (lambda: Schedule(**{**vars(SMALL), "size": 1.5}), r"size=1.5"),
        (lambda: Schedule(**{**vars(SMALL), "u_w": None}), r"u_w=None"),
        (lambda: Schedule(**{**vars(SMALL), "decay": 1.1}), r"noise grow"),
        (lambda: Schedule(**{**vars(SMALL), "smoothness": "5"}), r"smoothness='5'"),
        (lambda: claimed_epsilon(Schedule(**{**vars(SMALL), "alpha": 2.0})), r"alpha M < 1"),
    ],
)
def test_what_cannot_be_meant_is_refused(make, message):
    with pytest.raises(dp.ModelError, match=message):
        make()
