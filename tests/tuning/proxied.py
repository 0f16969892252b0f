"""Models of newcomers with public proxy data, small: what plans forecast of them can be measured.

The data are the proxy with the error that forecasts assume, 20 % of each entry, drawn with a seed.
"""

import cvxpy as cp
import numpy as np

import dpcvx as dp


def _private(rng, name, like, radius, **declared):
    """Data that differ from their proxy by 20 % of each entry."""
    like = np.asarray(like, dtype=float)
    data = like * (1 + 0.2 * rng.normal(size=like.shape))
    return dp.Private(data, name=name, adjacency=dp.Within(radius), proxy=like, **declared)


def assignment(seed=0):
    """A linear program: vertices, no curvature, private gains."""
    rng, x = np.random.default_rng(seed), cp.Variable((6, 6), name="x", nonneg=True)
    gain = _private(rng, "gain", rng.uniform(0.2, 1.0, (6, 6)), 0.2)
    cost = cp.Minimize(-cp.sum(cp.multiply(gain, x)))
    return dp.Problem([dp.Agent(cost, [cp.sum(x, axis=0) == 1, cp.sum(x, axis=1) == 1], name="a")])


def doptimal(seed=0):
    """Twelve sensors for three quantities, with private costs."""
    rng, w = np.random.default_rng(seed), cp.Variable(12, name="w", bounds=[0, 5])
    A = rng.normal(size=(12, 3))
    price = _private(rng, "price", rng.uniform(0.3, 1.0, 12), 0.05, nonneg=True)
    fisher = sum(w[k] * np.outer(A[k], A[k]) for k in range(12)) + 0.1 * np.eye(3)
    return dp.Problem([dp.Agent(cp.Minimize(price @ w - cp.log_det(fisher)), name="a")])


def desks(seed=0):
    """Three desks with private returns share a bound of their risk."""
    rng, agents, all_w = np.random.default_rng(seed), [], []
    for k in range(3):
        w = cp.Variable(4, name=f"w{k}", nonneg=True)
        mu = _private(rng, f"mu{k}", rng.uniform(0.02, 0.08, 4), 0.005)
        agents.append(dp.Agent(cp.Maximize(mu @ w), [cp.sum(w) <= 1], name=f"desk {k}"))
        all_w.append(w)
    total = cp.Variable(12, name="total")
    agents.append(dp.Agent(cp.Minimize(0), [cp.norm(total) <= 0.8], name="risk"))
    return dp.Problem(agents, coupling=[total == cp.hstack(all_w)])


def inventory(seed=0):
    """Orders of three depots follow private demands, out of one supply."""
    rng, agents, orders = np.random.default_rng(seed), [], []
    for k in range(3):
        order = cp.Variable(6, name=f"order {k}", nonneg=True)
        demand = _private(rng, f"demand {k}", rng.uniform(20, 60, 6), 2.0)
        cost = cp.sum_squares(cp.cumsum(order) - cp.cumsum(demand)) + cp.sum(order)
        agents.append(dp.Agent(cp.Minimize(cost), [order <= 100], name=f"depot {k}"))
        orders.append(order)
    return dp.Problem(agents, coupling=[sum(orders) <= 140])


def kalman(seed=0):
    """A path by three sensors with private readings, and steps with a robust penalty."""
    rng = np.random.default_rng(seed)
    x = cp.Variable(15, name="x", bounds=[-20, 20])
    path, agents = np.cumsum(rng.normal(0.3, 0.5, 15)) + 4, []
    for k in range(3):
        z = _private(rng, f"z{k}", path + 0.3 * rng.normal(size=15), 0.1)
        agents.append(dp.Agent(cp.Minimize(cp.sum_squares(x - z)), name=f"sensor {k}"))
    agents.append(dp.Agent(cp.Minimize(2 * cp.sum(cp.huber(cp.diff(x)))), name="steps"))
    return dp.Problem(agents)


def completion(seed=0):
    """A matrix of low rank by half of its entries, which are private and loud."""
    rng, X = np.random.default_rng(seed), cp.Variable((8, 6), name="X", bounds=[0, 8])
    mask = (rng.random((8, 6)) < 0.6).astype(float)
    low = np.outer(rng.uniform(1, 2, 8), rng.uniform(1, 2, 6))
    ratings = _private(rng, "ratings", mask * low, 2.0, nonneg=True)
    cost = cp.sum_squares(cp.multiply(mask, X) - ratings) + cp.normNuc(X)
    return dp.Problem([dp.Agent(cp.Minimize(cost), name="a")])


def replenishment(seed=0):
    """Order quantities of ten items: convex in what is ordered, linear in private demand."""
    rng, n = np.random.default_rng(seed), 10
    often, q = cp.Variable(n, name="often", bounds=[0.05, 4]), cp.Variable(n, name="q")
    demand = _private(rng, "demand", rng.uniform(4, 12, n), 0.5, nonneg=True)
    cost = demand @ q + 3 * cp.sum(often)
    return dp.Problem([dp.Agent(cp.Minimize(cost), [q >= cp.inv_pos(often), q <= 20], name="a")])


MODELS = {
    "assignment": assignment,
    "doptimal": doptimal,
    "desks": desks,
    "inventory": inventory,
    "Kalman": kalman,
    "completion": completion,
    "replenishment": replenishment,
}
