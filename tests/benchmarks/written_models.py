"""Models as users write them, most of which no gradient step takes: for `test_written_models`.

Each is a function that returns a `Case`. Data are made with fixed seeds; proxies are flat public
guesses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import cvxpy as cp
import numpy as np

import dpcvx as dp

MODELS: dict[str, Callable[[], Case]] = {}


@dataclass(frozen=True)
class Case:
    """A problem, how it is planned, and how its answer is judged."""

    problem: dp.Problem
    given: dict[str, Any] = field(default_factory=dict)  # next to the budget
    price: float = 0.0  # of a unit by which the true data break a constraint, in the judgment
    follow: Sequence[cp.Variable] = ()  # variables that are decided again with the true data


def model(build: Callable[[], Case]) -> Callable[[], Case]:
    """List a model."""
    MODELS[build.__name__] = build
    return build


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def private(values: Any, radius: float, name: str, proxy: Any, norm: Any = "entry", **kind: Any):
    proxy = np.broadcast_to(np.asarray(proxy, dtype=float), np.shape(values))
    adjacency = dp.Within(radius, norm)
    return dp.Private(np.asarray(values), adjacency=adjacency, name=name, proxy=proxy, **kind)


def alone(objective: Any, constraints: Sequence[Any] = (), **case: Any) -> Case:
    return Case(dp.Problem([dp.Agent(objective, list(constraints), name="all")]), **case)


RELEASED = {"constraints": "released"}


# Operations: inventory, markets, assignment, transport.


@model
def newsvendor() -> Case:
    d = private(rng().uniform(20, 60, 30), 1, "demand", 40, nonneg=True)
    q = cp.Variable(nonneg=True, name="q")
    return alone(cp.Minimize(2 * q - 5 * cp.sum(cp.minimum(q, d)) / 30))


@model
def inventory() -> Case:
    d = private(rng().uniform(20, 60, 12), 2, "demand", 40)
    order = cp.Variable(12, name="order", nonneg=True)
    stock = 30 + cp.cumsum(order) - cp.cumsum(d)
    cost = cp.sum(order) + cp.sum(cp.pos(stock)) + 5 * cp.sum(cp.neg(stock))
    return alone(cp.Minimize(cost), [order <= 80])


@model
def inventory_with_states() -> Case:
    d = private(rng().uniform(20, 60, 12), 2, "demand", 40)
    order, stock = cp.Variable(12, nonneg=True, name="order"), cp.Variable(13, name="stock")
    cost = cp.sum(order) + cp.sum(cp.pos(stock)) + 5 * cp.sum(cp.neg(stock))
    balance = stock[1:] == stock[:-1] + order - d
    return alone(cp.Minimize(cost), [stock[0] == 30, balance], given=RELEASED, follow=[stock])


@model
def fisher_market() -> Case:
    agents, goods = [], []
    for k in range(4):
        x = cp.Variable(5, nonneg=True, name=f"x{k}")
        v = private(rng(k).uniform(0, 2, 5), 0.1, f"value {k}", 1, nonneg=True)
        agents.append(dp.Agent(cp.Maximize((1 + k) * cp.log(v @ x)), name=f"buyer {k}"))
        goods.append(x)
    return Case(dp.Problem(agents, coupling=[sum(goods) <= 1]))


@model
def fair_shares() -> Case:
    agents, shares = [], []
    least = cp.Variable(name="least")
    for k in range(3):
        x = cp.Variable(3, nonneg=True, name=f"x{k}")
        v = private(rng(k).uniform(0, 1, 3), 0.05, f"value {k}", 0.5, nonneg=True)
        agents.append(dp.Agent(cp.Maximize(least / 3), [least <= v @ x, x <= 1], name=f"a{k}"))
        shares.append(x)
    problem = dp.Problem(agents, coupling=[sum(shares) <= 1])
    return Case(problem, given=RELEASED, follow=[least])


@model
def assignment() -> Case:
    agents, xs = [], []
    for k in range(6):
        x = cp.Variable(6, boolean=True, name=f"x{k}")
        c = private(rng(k).uniform(0, 1, 6), 0.05, f"worth {k}", 0.5)
        agents.append(dp.Agent(cp.Maximize(c @ x), [cp.sum(x) == 1], name=f"a{k}"))
        xs.append(x)
    return Case(dp.Problem(agents, coupling=[sum(xs) <= 1]))


@model
def knapsack() -> Case:
    x = cp.Variable(5, boolean=True, name="x")
    c = private(rng().uniform(0, 1, 5), 0.1, "worth", 0.5)
    return alone(cp.Maximize(c @ x), [cp.sum(x) <= 2])


@model
def whole_lots() -> Case:
    d = private([7.3, 4.1, 9.8], 0.1, "need", 6, nonneg=True)
    n = cp.Variable(3, integer=True, name="lots")
    return alone(cp.Minimize(cp.sum(n) + 10 * cp.sum(cp.pos(d - 2 * n))), [n >= 0, n <= 10])


@model
def facilities() -> Case:
    c = private(rng().uniform(1, 5, (3, 6)), 0.1, "cost", 3, nonneg=True)
    built = cp.Variable(3, boolean=True, name="built")
    x = cp.Variable((3, 6), nonneg=True, name="x")
    allowed = cp.reshape(built, (3, 1), order="F") @ np.ones((1, 6))
    cost = cp.sum(cp.multiply(c, x)) + 4 * cp.sum(built)
    return alone(cp.Minimize(cost), [cp.sum(x, axis=0) == 1, x <= allowed])


@model
def matrix_scaling() -> Case:
    K, rows = rng().uniform(1, 2, (5, 6)), rng(1).uniform(20, 60, 5)
    columns = rng(2).uniform(0.5, 1.5, 6)
    columns *= rows.sum() / columns.sum()
    a, b = (
        private(rows, 1, "rows", 40, nonneg=True),
        private(columns, 1, "columns", 33, nonneg=True),
    )
    X = cp.Variable((5, 6), name="X", nonneg=True)
    near = cp.Minimize(cp.sum(cp.kl_div(X, K * rows.sum() / K.sum())))
    totals = [cp.sum(X, axis=1) == a, cp.sum(X, axis=0) == b]
    return alone(near, totals, given=RELEASED, price=10.0)


# Networks and power.


@model
def max_flow() -> Case:
    arcs = [(0, 1), (0, 2), (1, 2), (1, 3), (2, 4), (3, 4), (3, 5), (4, 5), (2, 3), (1, 4)]
    B = np.zeros((6, len(arcs)))
    for j, (a, b) in enumerate(arcs):
        B[a, j], B[b, j] = -1, 1
    ends = np.array([-1.0, 0, 0, 0, 0, 1])
    c = private(rng().uniform(2, 6, len(arcs)), 0.1, "capacity", 4, nonneg=True)
    f, v = cp.Variable(len(arcs), nonneg=True, name="f"), cp.Variable(name="v")
    return alone(cp.Maximize(v), [B @ f == ends * v, f <= c], given=RELEASED, price=2.0)


@model
def water_network() -> Case:
    d = private([2.0, 1, 3], 0.1, "demand", 2)
    q, A = cp.Variable(4, name="q"), np.array([[1, -1, 0, 0], [0, 1, -1, 0], [0, 0, 1, 1]])
    cost = cp.Minimize(cp.sum(cp.power(cp.abs(q), 3)))
    given = {"violation_probability": 0.1, "slack_penalty": 100.0}
    return alone(cost, [A @ q >= d, cp.abs(q) <= 10], given=given, price=100.0)


@model
def bus_balances() -> Case:
    """A direct-current power flow with one balance per bus, and its private load in it."""
    ends = [(0, 1), (1, 2), (2, 3), (3, 0), (1, 3)]
    A = np.zeros((4, 5))
    for j, (a, b) in enumerate(ends):
        A[a, j], A[b, j] = 1, -1
    load = private([0.9, 1.4, 0.8, 1.1], 0.01, "load", 1, nonneg=True)
    p, angle = cp.Variable(2, nonneg=True, name="p"), cp.Variable(4, name="angle")
    shed, spill = (cp.Variable(4, nonneg=True, name=name) for name in ("shed", "spill"))
    G = np.array([[1.0, 0], [0, 0], [0, 1], [0, 0]])
    flow = A.T @ angle
    cost = p[0] + 2 * p[1] + cp.sum_squares(p) / 10 + 20 * cp.sum(shed + spill)
    balance = G @ p + shed - spill - A @ flow == load
    limits = [balance, p <= 3, angle[0] == 0, cp.abs(flow) <= 1.2]
    return alone(cp.Minimize(cost), limits, given=RELEASED, follow=[shed, spill, angle])


@model
def rates_by_weight() -> Case:
    R = (rng().random((6, 8)) < 0.4).astype(float)
    R[0] = 1
    w = private(rng(1).uniform(1, 5, 8), 0.2, "weight", 3, nonneg=True)
    x = cp.Variable(8, nonneg=True, name="x")
    return alone(cp.Maximize(w @ cp.log(x)), [R @ x <= 10])


@model
def water_filling() -> Case:
    g = private(rng().uniform(0.2, 3, 8), 0.1, "gain", 1, nonneg=True)
    x = cp.Variable(8, nonneg=True, name="x")
    return alone(cp.Maximize(cp.sum(cp.log1p(cp.multiply(g, x)))), [cp.sum(x) <= 4])


# Finance.


@model
def desks_with_one_risk_limit() -> Case:
    agents, ws = [], []
    for k in range(3):
        w = cp.Variable(4, name=f"w{k}", nonneg=True)
        mu = private(rng(k).normal(0.05, 0.03, 4), 0.01, f"mu{k}", 0.05)
        agents.append(dp.Agent(cp.Maximize(mu @ w), [cp.sum(w) <= 1], name=f"desk {k}"))
        ws.append(w)
    return Case(dp.Problem(agents, coupling=[cp.norm(cp.hstack(ws)) <= 1]))


@model
def factor_portfolio() -> Case:
    F = private(rng().normal(size=(12, 3)) * 0.2, 0.02, "F", 0.05)
    mu, x = rng(1).uniform(0, 0.1, 12), cp.Variable(12, name="x", nonneg=True)
    risk = cp.sum_squares(F.T @ x) + 0.01 * cp.sum_squares(x)
    return alone(cp.Minimize(5 * risk - mu @ x), [cp.sum(x) == 1])


@model
def covariance_portfolio() -> Case:
    B = rng().normal(size=(6, 6)) * 0.2
    S = private(B @ B.T + 0.05 * np.eye(6), 0.01, "S", 0.3 * np.eye(6), PSD=True)
    mu, x = rng(1).uniform(0, 0.2, 6), cp.Variable(6, name="x", nonneg=True)
    return alone(cp.Minimize(cp.quad_form(x, S) - mu @ x), [cp.sum(x) == 1])


@model
def log_growth() -> Case:
    R = private(1 + rng().normal(0.03, 0.2, (20, 4)), 0.02, "R", 1.03, nonneg=True)
    x = cp.Variable(4, nonneg=True, name="x")
    return alone(cp.Maximize(cp.sum(cp.log(R @ x)) / 20), [cp.sum(x) == 1])


@model
def value_at_risk() -> Case:
    R = private(rng().normal(0.03, 0.2, (30, 4)), 0.01, "R", 0.03)
    x, a = cp.Variable(4, nonneg=True, name="x"), cp.Variable(name="a")
    cost = a + cp.sum(cp.pos(-R @ x - a)) / (30 * 0.2)
    return alone(cp.Minimize(cost), [cp.sum(x) == 1], follow=[a])


@model
def price_times_quantity() -> Case:
    a = private(rng().uniform(1, 3, 6), 0.1, "price", 2, nonneg=True)
    b = private(rng(1).uniform(1, 3, 6), 0.1, "units", 2, nonneg=True)
    x = cp.Variable(6, nonneg=True, name="x")
    return alone(cp.Minimize(cp.multiply(a, b) @ x + cp.sum_squares(x - 5)), [x <= 10])


# Statistics and learning.


@model
def denoising() -> Case:
    y = private(np.cumsum(rng().normal(size=30)) / 2, 0.3, "y", 0)
    x = cp.Variable(30, name="x")
    return alone(cp.Minimize(cp.sum(cp.huber(x - y)) + 2 * cp.tv(x)))


@model
def quantile_regression() -> Case:
    X, w = rng().normal(size=(60, 2)), cp.Variable(2, name="w")
    y = private(X @ [1, 2] + rng(1).normal(size=60) * 0.3, 0.3, "y", 0)
    return alone(cp.Minimize(cp.sum(0.5 * cp.abs(y - X @ w) + 0.4 * (y - X @ w)) / 60))


@model
def norms_of_residuals() -> Case:
    A, x = rng(2).normal(size=(15, 4)), cp.Variable(4, name="x")
    b = private(rng().normal(size=15), 0.1, "b", 0)
    return alone(cp.Minimize(cp.norm(A @ x - b, 1) + cp.norm(x, 2)))


@model
def design_of_experiments() -> Case:
    V, w = rng().normal(size=(10, 3)), cp.Variable(10, nonneg=True, name="w")
    s = private(rng(1).uniform(0.5, 4, 10), 0.1, "precision", 2, nonneg=True)
    told = sum(w[i] * s[i] * np.outer(V[i], V[i]) for i in range(10))
    return alone(cp.Maximize(cp.log_det(told)), [cp.sum(w) == 1])


@model
def sparse_precision() -> Case:
    B = rng().normal(size=(4, 30))
    S = private(B @ B.T / 30, 0.01, "S", np.eye(4), PSD=True)
    X = cp.Variable((4, 4), PSD=True, name="X")
    return alone(cp.Minimize(cp.trace(S @ X) - cp.log_det(X) + 0.1 * cp.sum(cp.abs(X))))


@model
def nearest_correlation() -> Case:
    C = private(np.corrcoef(rng().normal(size=(4, 6))), 0.02, "C", np.eye(4), symmetric=True)
    X = cp.Variable((4, 4), PSD=True, name="X")
    return alone(cp.Minimize(cp.norm(X - C, "fro")), [cp.diag(X) == 1])


@model
def most_entropy() -> Case:
    F, p0 = rng().normal(size=(2, 8)), rng(1).dirichlet(np.ones(8))
    m, x = private(F @ p0, 0.02, "moments", F @ np.full(8, 1 / 8)), cp.Variable(8, nonneg=True)
    given = {**RELEASED, "slack_penalty": 10.0}
    limits = [cp.sum(x) == 1, F @ x == m]
    return alone(cp.Maximize(cp.sum(cp.entr(x))), limits, given=given, price=10.0)


@model
def nearest_shares() -> Case:
    p = private(rng().dirichlet(np.ones(6)), 0.04, "p", 1 / 6, norm=1, simplex=True)
    q = cp.Variable(6, nonneg=True, name="q")
    near = cp.Minimize(cp.sum(cp.rel_entr(q, p + 0.01)))
    return alone(near, [cp.sum(q) == 1, q[0] + q[1] >= 0.5])


@model
def robust_mean_loss() -> Case:
    R = private(rng().normal(0.05, 0.2, (25, 3)), 0.02, "R", 0.05)
    x = cp.Variable(3, nonneg=True, name="x")
    return alone(cp.Minimize(cp.norm(R @ x, 2) / 5 - cp.sum(R @ x) / 25), [cp.sum(x) == 1])


# Geometry, control, and programs in exponential form.


@model
def meeting_place() -> Case:
    x, agents = cp.Variable(2, name="x"), []
    for k, place in enumerate(rng().normal(size=(15, 2)) * 3):
        d = private(place, 0.3, f"place {k}", 0, norm=2)
        agents.append(dp.Agent(cp.Minimize(cp.norm(x - d)), name=f"a{k}"))
    return Case(dp.Problem(agents))


@model
def smallest_ball() -> Case:
    x, r, agents = cp.Variable(2, name="x"), cp.Variable(name="r"), []
    for k, place in enumerate(rng().normal(size=(15, 2)) * 3):
        d = private(place, 0.3, f"place {k}", 0, norm=2)
        agents.append(dp.Agent(cp.Minimize(r / 15), [cp.norm(x - d) <= r], name=f"a{k}"))
    return Case(dp.Problem(agents), given=RELEASED, follow=[r])


@model
def inner_circle() -> Case:
    A = rng(1).normal(size=(8, 2))
    b, x = private(rng().uniform(1, 2, 8), 0.02, "b", 1.5), cp.Variable(2, name="x")
    r = cp.Variable(name="r", nonneg=True)
    limits = [A @ x + np.linalg.norm(A, axis=1) * r <= b]
    return alone(cp.Maximize(r), limits, given={"violation_probability": 0.1}, price=10.0)


@model
def largest_eigenvalue() -> Case:
    A = rng().normal(size=(5, 5))
    S = private(A + A.T, 0.05, "S", np.zeros((5, 5)), symmetric=True)
    t = cp.Variable(5, name="t")
    return alone(cp.Minimize(cp.lambda_max(S + cp.diag(t)) + 0.3 * cp.norm1(t)))


@model
def tracking() -> Case:
    r = private(np.sin(np.arange(15) / 3), 0.05, "target", 0)
    x, u = cp.Variable(16, name="x"), cp.Variable(15, name="u")
    cost = cp.norm(x[1:] - r, "inf") + 0.1 * cp.sum_squares(u)
    return alone(cp.Minimize(cost), [x[0] == 0, x[1:] == x[:-1] + u, cp.abs(u) <= 0.5])


@model
def exponents() -> Case:
    A, b = private(rng().normal(size=(8, 3)), 0.05, "A", 0), rng(1).normal(size=8)
    x = cp.Variable(3, name="x")
    cost = cp.log_sum_exp(A @ x + b) + 0.1 * cp.sum_squares(x)
    return alone(cp.Minimize(cost), [cp.abs(x) <= 3])


@model
def posynomial_limit() -> Case:
    A, x = rng(1).uniform(0, 1, (4, 3)), cp.Variable(3, name="x")
    b = private(rng().normal(size=4), 0.05, "b", 0)
    limits = [cp.log_sum_exp(A @ x + b) <= 2, cp.abs(x) <= 3]
    return alone(cp.Minimize(-cp.sum(x)), limits, given=RELEASED, price=10.0)


@model
def ratio_of_squares() -> Case:
    c = private(rng().uniform(1, 4, 5), 0.1, "capacity", 2, bounds=(0.5, 10))
    x, t = cp.Variable(5, name="x"), rng(1).uniform(1, 3, 5)
    ratios = sum(cp.quad_over_lin(x[i], c[i]) for i in range(5))
    return alone(cp.Minimize(ratios + cp.sum_squares(x - t)))


@model
def inverse_and_power() -> Case:
    a = private(rng().uniform(0.5, 2, 4), 0.05, "a", 1, nonneg=True)
    x = cp.Variable(4, nonneg=True, name="x")
    cost = cp.sum(cp.power(x, 1.5)) + cp.sum(cp.multiply(a, cp.inv_pos(x)))
    return alone(cp.Minimize(cost))


@model
def three_area_sums() -> Case:
    d = private(rng().uniform(0, 2, 60), 0.5, "loads", 1, nonneg=True)
    p, S = cp.Variable(3, nonneg=True, name="p"), np.kron(np.eye(3), np.ones((1, 20)))
    cost = cp.sum(cp.power(p, 3)) / 100 + 5 * cp.sum(cp.abs(S @ d - p))
    return alone(cp.Minimize(cost), [p <= 100])


# Complex numbers, geometric and quasiconvex programs, as in cvxpy's gallery.

GP, QCP = dp.OneShot(gp=True), dp.OneShot(qcp=True)


@model
def beam() -> Case:
    a = np.exp(1j * np.pi * np.arange(5) * np.sin(0.3))
    S = rng().normal(size=(5, 40)) + 1j * rng(1).normal(size=(5, 40))
    interference = 2 * np.exp(1j * np.pi * np.arange(5) * np.sin(-0.8))
    S += np.outer(interference, rng(2).normal(size=40))
    given = {"complex": True, "PSD": True}
    R = private(S @ S.conj().T / 40, 0.05, "R", 2 * np.eye(5), **given)
    w = cp.Variable(5, complex=True, name="w")
    return alone(cp.Minimize(cp.real(cp.quad_form(w, R))), [a.conj() @ w == 1])


@model
def hermitian_covariance() -> Case:
    A = rng().normal(size=(4, 4)) + 1j * rng(1).normal(size=(4, 4))
    C = private((A + A.conj().T) / 2, 0.05, "C", np.zeros((4, 4)), hermitian=True)
    X = cp.Variable((4, 4), hermitian=True, name="X")
    return alone(cp.Minimize(cp.norm(X - C, "fro")), [X >> 0])


@model
def phasors() -> Case:
    """A power flow of three buses as a semidefinite program in voltages times their conjugates."""
    y = np.array([[0, 1 - 5j, 1 - 4j], [1 - 5j, 0, 2 - 6j], [1 - 4j, 2 - 6j, 0]])
    Y = np.diag(y.sum(axis=1)) - y
    d = private([0.4, 0.7], 0.01, "load", 0.5, nonneg=True)
    W = cp.Variable((3, 3), hermitian=True, name="W")
    p, bought = cp.Variable(2, nonneg=True, name="p"), cp.Variable(nonneg=True, name="bought")
    flow = cp.real(cp.diag(W @ Y.conj().T))
    limits = [W >> 0, cp.real(cp.diag(W)) >= 0.9, cp.real(cp.diag(W)) <= 1.1]
    limits += [flow[0] == bought, flow[1:] == p - d, p <= 1]
    cost = bought + 2 * p[0] ** 2 + 0.8 * p[1] + p[1] ** 2
    return alone(cp.Minimize(cost), limits, given=RELEASED, follow=[W, bought])


@model
def phase_lift() -> Case:
    A, x = rng().normal(size=(12, 3)) + 1j * rng(1).normal(size=(12, 3)), np.array([1, 1j, 0.5])
    b = private(np.abs(A.conj() @ x) ** 2, 0.05, "b", 2, nonneg=True)
    X = cp.Variable((3, 3), hermitian=True, name="X")
    fit = cp.norm1(cp.real(cp.diag(A.conj() @ X @ A.T)) - b)
    return alone(cp.Minimize(fit + 0.1 * cp.real(cp.trace(X))), [X >> 0])


@model
def box_of_paper() -> Case:
    h, w, d = (cp.Variable(pos=True, name=name) for name in "hwd")
    wall = private(200.0, 1, "wall", 150, bounds=(1, np.inf))
    floor = private(50.0, 1, "floor", 60, bounds=(1, np.inf))
    limits = [2 * (h * w + h * d) <= wall, w * d <= floor, h / w <= 2, d / w <= 2, h / w >= 0.5]
    return alone(cp.Maximize(h * w * d), limits, given={**RELEASED, "algorithm": GP}, price=10.0)


@model
def floor_plan() -> Case:
    area = private([0.2, 0.5, 1.5, 0.5], 0.02, "area", 0.6, bounds=(0.05, 5))
    w, h = cp.Variable(4, pos=True, name="w"), cp.Variable(4, pos=True, name="h")
    W, H = cp.Variable(pos=True, name="W"), cp.Variable(pos=True, name="H")
    limits = [cp.multiply(w, h) >= area, w[0] + w[1] <= W, w[2] + w[3] <= W]
    limits += [h[0] + h[2] <= H, h[1] + h[3] <= H, h / w <= 2, w / h <= 2]
    given = {**RELEASED, "algorithm": GP}
    return alone(cp.Minimize(2 * (W + H)), limits, given=given, price=10.0)


@model
def powers_for_rates() -> Case:
    """Least total power at which every link has its ratio of signal to noise."""
    G = np.full((4, 4), 0.05) + np.diag([1.0, 0.8, 1.2, 0.9])
    gain = private(G, 0.005, "gain", 0.05 + np.eye(4), bounds=(0.01, 5))
    p = cp.Variable(4, pos=True, name="p")
    limits = [p >= 0.01, p <= 10]
    for i in range(4):
        heard = sum(gain[i, k] * p[k] for k in range(4) if k != i)
        limits.append((heard + 0.1) / (gain[i, i] * p[i]) <= 0.5)
    given = {**RELEASED, "algorithm": GP}
    return alone(cp.Minimize(cp.sum(p)), limits, given=given, price=10.0)


@model
def schedule_of_speeds() -> Case:
    work = private(rng().uniform(1, 6, 5), 0.1, "work", 3, bounds=(0.5, 10))
    s = cp.Variable(5, pos=True, name="s")
    cost = cp.Minimize(cp.sum(cp.multiply(work, s**-1)) + cp.sum(s**2))
    return alone(cost, [s <= 5], given={"algorithm": GP})


@model
def perron_completion() -> Case:
    a = private([1.0, 1.9, 0.8, 3.2, 5.9], 0.05, "entries", 2, bounds=(0.1, 10))
    m = cp.Variable(4, pos=True, name="missing")
    X = cp.bmat([[a[0], m[0], a[1]], [m[1], a[2], m[2]], [a[3], a[4], m[3]]])
    limits = [m[0] * m[1] * m[2] * m[3] == 1]
    return alone(cp.Minimize(cp.pf_eigenvalue(X)), limits, given={"algorithm": GP})


@model
def sharpe_ratio() -> Case:
    B = rng().normal(size=(5, 5)) * 0.1
    F = np.linalg.cholesky(B @ B.T + 0.02 * np.eye(5))
    mu = private(rng(1).uniform(0.02, 0.12, 5), 0.005, "mu", 0.07, nonneg=True)
    w = cp.Variable(5, nonneg=True, name="w")
    ratio = cp.Maximize((mu @ w) / cp.norm(F.T @ w))
    return alone(ratio, [cp.sum(w) == 1], given={"algorithm": QCP})


@model
def shortest_fit() -> Case:
    """As few leading coefficients as fit the data (minimum-length least squares)."""
    A = rng().normal(size=(20, 6))
    b = private(A[:, :3] @ [1, 2, 1] + rng(1).normal(size=20) * 0.1, 0.05, "b", 0)
    x = cp.Variable(6, name="x")
    given = {**RELEASED, "algorithm": QCP}
    limits = [cp.sum_squares(A @ x - b) <= 2, cp.abs(x) <= 5]
    return alone(cp.Minimize(cp.length(x)), limits, given=given, price=1.0)


@model
def yield_of_a_blend() -> Case:
    """A linear-fractional program: yield per cost, both private."""
    gain = private(rng().uniform(1, 4, 5), 0.1, "gain", 2, nonneg=True)
    cost = private(rng(1).uniform(1, 3, 5), 0.1, "cost", 2, bounds=(0.5, 5))
    x = cp.Variable(5, nonneg=True, name="x")
    ratio = (gain @ x + 1) / (cost @ x + 0.5)
    limits = [cp.sum(x) <= 3, x <= 1, cp.sum(x) >= 1]
    return alone(cp.Maximize(ratio), limits, given={"algorithm": QCP})


# More of the gallery.


@model
def completion() -> Case:
    L, R = rng().normal(size=(6, 2)), rng(1).normal(size=(2, 6))
    mask = (rng(2).random((6, 6)) < 0.7).astype(float)
    M = private(L @ R, 0.1, "M", 0)
    X = cp.Variable((6, 6), name="X")
    return alone(cp.Minimize(cp.sum_squares(cp.multiply(mask, X - M)) + 0.5 * cp.normNuc(X)))


@model
def kalman_with_outliers() -> Case:
    T = 15
    A, C = np.array([[1, 0.5], [0, 1]]), np.array([[1.0, 0]])
    y = private(np.cumsum(rng().normal(size=T)) / 3 + 0.1, 0.1, "y", 0)
    x, w, v = (cp.Variable(s, name=n) for s, n in (((2, T + 1), "x"), (T, "w"), (T, "v")))
    pushed = np.array([[0.1], [0.5]]) @ cp.reshape(w, (1, T), order="F")
    limits = [x[:, 1:] == A @ x[:, :-1] + pushed]
    limits += [y == cp.vec(C @ x[:, :-1], order="F") + v]
    cost = cp.sum_squares(w) + cp.sum(2 * cp.huber(v, 0.5))
    return alone(cp.Minimize(cost), limits, given=RELEASED, follow=[v])


@model
def advertising() -> Case:
    P = private(rng().uniform(0, 0.1, (4, 6)), 0.005, "rates", 0.05, bounds=(0, 1))
    R, B = rng(1).uniform(1, 3, 4), rng(2).uniform(20, 40, 4)
    D = cp.Variable((4, 6), nonneg=True, name="shown")
    T = np.full(6, 100.0)
    earned = [cp.minimum(R[i] * (P[i, :] @ D[i, :]), B[i]) for i in range(4)]
    limits = [cp.sum(D, axis=0) <= T, cp.sum(D, axis=1) >= 50]
    return alone(cp.Maximize(sum(earned)), limits)


@model
def inpainting() -> Case:
    U = private(np.kron(np.eye(2), np.ones((4, 4))), 0.1, "image", 0.5, bounds=(0, 1))
    X = cp.Variable((8, 8), name="X")
    known = (rng().random((8, 8)) < 0.8).astype(float)
    return alone(cp.Minimize(cp.tv(X) + 3 * cp.norm1(cp.multiply(known, X - U))))


@model
def trend_filter() -> Case:
    y = private(np.abs(np.arange(25) - 12) / 6 + rng().normal(size=25) / 10, 0.1, "y", 1)
    D = np.diff(np.eye(25), 2, axis=0)
    x = cp.Variable(25, name="x")
    return alone(cp.Minimize(0.5 * cp.sum_squares(y - x) + 0.3 * cp.norm(D @ x, 1)))


@model
def fault_detection() -> Case:
    A, faults = rng().normal(size=(14, 6)), np.array([0, 1, 0, 0, 1, 0.0])
    y = private(A @ faults + rng(1).normal(size=14) * 0.1, 0.05, "y", 0)
    x = cp.Variable(6, boolean=True, name="x")
    return alone(cp.Minimize(cp.norm1(A @ x - y) + 0.2 * cp.sum(x)))


@model
def channel_capacity() -> Case:
    """Entropies of the private rows are a linear coefficient of the input's distribution."""
    P = private(rng().dirichlet(np.ones(4), size=3), 0.02, "P", 0.25, norm=1, simplex=True)
    x = cp.Variable(3, nonneg=True, name="x")
    information = cp.sum(cp.entr(P.T @ x)) - cp.sum(cp.entr(P), axis=1) @ x
    return alone(cp.Maximize(information), [cp.sum(x) == 1])


@model
def powers_and_bandwidths() -> Case:
    a = private(rng().uniform(0.5, 2, 5), 0.05, "gain", 1, nonneg=True)
    P, W = cp.Variable(5, nonneg=True, name="P"), cp.Variable(5, nonneg=True, name="W")
    rates = -cp.sum(cp.rel_entr(W, W + cp.multiply(a, P)))
    return alone(cp.Maximize(rates), [cp.sum(P) == 2, cp.sum(W) == 1, W <= 0.4, P <= 0.6])


@model
def least_fuel() -> Case:
    A = np.array([[-1, 0.4, 0.8], [1, 0, 0], [0, 1, 0]])
    goal = private([7.0, 2, -6], 0.1, "goal", 0)
    x, u = cp.Variable((3, 21), name="x"), cp.Variable(20, name="u")
    pushed = np.array([[1.0], [0], [0.3]]) @ cp.reshape(u, (1, 20), order="F")
    limits = [x[:, 0] == 0, x[:, 1:] == A @ x[:, :-1] + pushed]
    cost = cp.sum(cp.maximum(cp.abs(u), 2 * cp.abs(u) - 1)) + 5 * cp.norm1(x[:, 20] - goal)
    return alone(cp.Minimize(cost), limits)


@model
def worst_case_risk() -> Case:
    mu = rng().uniform(0.02, 0.1, 4)
    B = rng(1).normal(size=(4, 4)) * 0.1
    S = private(B @ B.T + 0.02 * np.eye(4), 0.003, "S", 0.04 * np.eye(4), PSD=True)
    w = cp.Variable(4, nonneg=True, name="w")
    risk = cp.quad_form(w, S) + 0.01 * cp.square(cp.norm1(w))
    return alone(cp.Minimize(risk), [cp.sum(w) == 1, mu @ w >= 0.05])


@model
def largest_losses() -> Case:
    R = private(rng().normal(0.03, 0.2, (30, 4)), 0.01, "R", 0.03)
    x = cp.Variable(4, nonneg=True, name="x")
    return alone(cp.Minimize(cp.sum_largest(-R @ x, 5) / 5), [cp.sum(x) == 1])


@model
def log_utility() -> Case:
    """As written without a clip: the domain of the logarithm is that of the model."""
    r = private(rng().normal(0.05, 0.15, (15, 3)), 0.02, "returns", 0.05)
    x = cp.Variable(3, nonneg=True, name="x")
    return alone(cp.Maximize(cp.sum(cp.log(1 + r @ x)) / 15), [cp.sum(x) <= 1])


@model
def shortest_network() -> Case:
    places = private(rng().uniform(0, 5, (5, 2)), 0.1, "places", 2.5)
    hubs = cp.Variable((2, 2), name="hubs")
    wires = [cp.norm(places[k, :] - hubs[k % 2, :]) for k in range(5)]
    return alone(cp.Minimize(sum(wires) + cp.norm(hubs[0, :] - hubs[1, :])))


@model
def ridge_by_norms() -> Case:
    X, w = private(rng().normal(size=(25, 3)), 0.05, "X", 0), cp.Variable(3, name="w")
    y = private(rng(1).normal(size=25) + 1, 0.05, "y", 0)
    return alone(cp.Minimize(cp.norm(X @ w - y) + 0.5 * cp.norm(w)))


# Variables that only bound a function of the data, as textbooks write them.


@model
def unit_commitment() -> Case:
    load = private([80.0, 100, 140, 180, 150, 90], 1, "load", 120, nonneg=True)
    on, p = cp.Variable((3, 6), boolean=True, name="on"), cp.Variable((3, 6), nonneg=True, name="p")
    shed = cp.Variable(6, nonneg=True, name="shed")
    least, most = np.outer([20, 30, 10.0], np.ones(6)), np.outer([100, 90, 60.0], np.ones(6))
    limits = [p <= cp.multiply(most, on), p >= cp.multiply(least, on)]
    limits += [cp.abs(p[:, 1:] - p[:, :-1]) <= 60, cp.sum(p, axis=0) + shed >= load]
    cost = cp.sum(np.array([10.0, 14, 25]) @ p) + cp.sum(np.array([200.0, 150, 50]) @ on)
    return alone(cp.Minimize(cost + 100 * cp.sum(shed)), limits, follow=[shed])


@model
def machine_with_slacks() -> Case:
    y = np.sign(rng().normal(size=20))
    X = private(np.outer(y, [0.8, 0.4]) + rng(1).normal(size=(20, 2)), 0.05, "X", 0)
    w, b = cp.Variable(2, name="w"), cp.Variable(name="b")
    slack = cp.Variable(20, nonneg=True, name="slack")
    cost = cp.Minimize(0.5 * cp.sum_squares(w) + cp.sum(slack))
    return alone(cost, [cp.multiply(y, X @ w + b) >= 1 - slack], follow=[slack])


@model
def robust_level() -> Case:
    mu = private(rng(1).normal(0.08, 0.04, 6), 0.005, "mu", 0.08)
    F = np.linalg.cholesky(0.02 * np.eye(6) + 0.01)
    w, t = cp.Variable(6, nonneg=True, name="w"), cp.Variable(name="t")
    return alone(cp.Maximize(t), [cp.sum(w) == 1, mu @ w - cp.norm(F.T @ w) / 2 >= t], follow=[t])


@model
def backlogs() -> Case:
    d = private(rng().uniform(20, 60, 8), 1, "demand", 40)
    q = cp.Variable(8, nonneg=True, name="q")
    stock, late = (cp.Variable(8, nonneg=True, name=name) for name in ("stock", "late"))
    limits = [stock[0] - late[0] == 10 + q[0] - d[0]]
    limits += [stock[t] - late[t] == stock[t - 1] - late[t - 1] + q[t] - d[t] for t in range(1, 8)]
    cost = 2 * cp.sum(q) + cp.sum(stock) + 6 * cp.sum(late)
    return alone(cp.Minimize(cost), [*limits, q <= 70], follow=[stock, late])


@model
def congested_links() -> Case:
    c = private(rng(3).uniform(4, 8, 5), 0.1, "capacity", 6, bounds=(3.5, 10))
    x = cp.Variable(5, nonneg=True, name="x")
    return alone(cp.Minimize(cp.sum(cp.inv_pos(c - x))), [cp.sum(x) == 12, x <= 3.2])
