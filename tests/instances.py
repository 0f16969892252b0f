"""Small problems with private data that every method is tried on."""

from collections.abc import Callable
from dataclasses import dataclass

import cvxpy as cp
import numpy as np

import dpcvx as dp


@dataclass(frozen=True)
class Instance:
    """A problem, and the private values that were put into it."""

    problem: dp.Problem
    secrets: tuple[np.ndarray, ...]

    @property
    def optimum(self) -> float:
        """Optimal value of the problem with all data in one place."""
        central = dp.not_private.central(self.problem)
        return central.solve(
            cp.CLARABEL, tol_gap_abs=1e-12, tol_gap_rel=1e-12, tol_feas=1e-12, warm_start=False
        )


def power_line() -> Instance:
    """Two agents, a shared vector in a box, local variables with bounds from attributes."""
    rng = np.random.default_rng(11)
    A, B = rng.normal(size=(4, 3)), rng.normal(size=(4, 2))
    data = [rng.uniform(size=4), rng.uniform(size=4)]
    tie = cp.Variable(2, name="tie")
    agents = []
    for k, values in enumerate(data):
        gen = cp.Variable(3, name=f"gen{k}", nonneg=True)
        load = dp.Private(values, name=f"load{k}", adjacency=dp.Within(0.01))
        cost = cp.sum_squares(A @ gen + (-1) ** k * B @ tie - load) + 0.1 * cp.sum_squares(gen)
        agents.append(dp.Agent(cp.Minimize(cost), [gen <= 1.5, cp.abs(tie) <= 0.4], name=f"end{k}"))
    return Instance(dp.Problem(agents), tuple(data))


def overlapping_slices() -> Instance:
    """Three agents that index one variable differently; a simplex, a ball, and no data in one."""
    rng = np.random.default_rng(12)
    x = cp.Variable(7, name="x")
    secrets = rng.normal(size=4), rng.normal(size=3)
    left = dp.Private(secrets[0], name="left", adjacency=dp.Within(0.05, norm=2))
    right = dp.Private(secrets[1], name="right", adjacency=dp.Within(0.05, norm=np.inf))
    agents = [
        dp.Agent(
            cp.Minimize(cp.sum_squares(x[:4] - left)), [cp.sum(x[:4]) == 1, x[:4] >= 0], name="a"
        ),
        dp.Agent(
            cp.Maximize(right @ x[[2, 4, 6]] - cp.sum_squares(x[[2, 4, 6]])),
            [cp.norm(x[[2, 4, 6]]) <= 1],
            name="b",
        ),
        dp.Agent(cp.Minimize(cp.sum_squares(x[3:6] - 0.2)), [], name="c"),
    ]
    return Instance(dp.Problem(agents), secrets)


def covariance() -> Instance:
    """A shared semidefinite matrix, a private matrix per agent."""
    rng = np.random.default_rng(13)
    X = cp.Variable((3, 3), PSD=True, name="X")
    agents, secrets = [], []
    for k in range(2):
        root = rng.normal(size=(3, 3))
        secrets.append(root @ root.T)
        S = dp.Private(secrets[-1], name=f"S{k}", adjacency=dp.Within(0.1, norm=2))
        cost = cp.sum_squares(X - S) + 0.05 * cp.norm1(X)
        agents.append(dp.Agent(cp.Minimize(cost), [cp.trace(X) <= 2], name=f"site{k}"))
    return Instance(dp.Problem(agents), tuple(secrets))


def clinics() -> Instance:
    """Two agents with records, features and labels of one person, and a shared classifier."""
    rng = np.random.default_rng(14)
    w = cp.Variable(3, name="w")
    agents, secrets = [], []
    for k in range(2):
        X = rng.normal(size=(12, 3))
        X /= np.linalg.norm(X, axis=1, keepdims=True)
        y = rng.choice([-1.0, 1.0], size=12) * rng.uniform(0.9, 1.0, size=12)
        secrets += [X, y]
        features = dp.Private(X, name=f"X{k}", adjacency=dp.Rows(1.0))
        labels = dp.Private(y, name=f"y{k}", adjacency=dp.Rows(1.0))
        loss = cp.sum(cp.logistic(-cp.multiply(labels, features @ w)))
        cost = loss + cp.sum_squares(w)
        agents.append(dp.Agent(cp.Minimize(cost), [cp.abs(w) <= 0.3], name=f"clinic{k}"))
    return Instance(dp.Problem(agents), tuple(secrets))


def household_tariff() -> Instance:
    """Three users with private loads, a public sparse vector in a box, tied by a wide matrix."""
    rng = np.random.default_rng(15)
    x, y = cp.Variable(4, name="x"), cp.Variable(2, name="y", nonneg=True)
    agents, secrets = [], []
    for k in range(3):
        secrets.append(rng.normal(size=5))
        load = dp.Private(secrets[-1], name=f"load{k}", adjacency=dp.Within(0.05, norm=2))
        cost = cp.sum_squares(rng.normal(size=(5, 4)) @ x - load)
        agents.append(dp.Agent(cp.Minimize(cost), name=f"home{k}"))
    tariff = 0.3 * cp.norm1(y) + 0.5 * cp.sum_squares(y)
    agents.append(dp.Agent(cp.Minimize(tariff), [y <= 0.8], name="grid"))
    A = np.array([[1.0, 0.5, 0.0, -0.5], [0.0, 1.0, 2.0, 0.5]])
    return Instance(dp.Problem(agents, coupling=[A @ x == y]), tuple(secrets))


def survey() -> Instance:
    """Two users with records, a public group norm, tied entry by entry."""
    rng = np.random.default_rng(16)
    w, y = cp.Variable(3, name="w"), cp.Variable(3, name="y")
    agents, secrets = [], []
    for k in range(2):
        X = rng.normal(size=(10, 3))
        X /= np.linalg.norm(X, axis=1, keepdims=True)
        answers = rng.choice([-1.0, 1.0], size=10) * rng.uniform(0.9, 1.0, size=10)
        secrets += [X, answers]
        rows = dp.Rows(1.0)
        features = dp.Private(X, name=f"X{k}", adjacency=rows)
        labels = dp.Private(answers, name=f"answers{k}", adjacency=rows)
        loss = cp.sum(cp.logistic(-cp.multiply(labels, features @ w)))
        agents.append(dp.Agent(cp.Minimize(loss), name=f"panel{k}"))
    agents.append(dp.Agent(cp.Minimize(cp.norm(y)), [cp.sum(y) == 0.1], name="institute"))
    return Instance(dp.Problem(agents, coupling=[w == y]), tuple(secrets))


def one_household() -> Instance:
    """A single user and a public agent."""
    rng = np.random.default_rng(17)
    x, y = cp.Variable(3, name="x"), cp.Variable(3, name="y")
    values = rng.normal(size=5)
    load = dp.Private(values, name="load", adjacency=dp.Within(0.05, norm=2))
    cost = cp.sum_squares(rng.normal(size=(5, 3)) @ x - load)
    agents = [
        dp.Agent(cp.Minimize(cp.norm1(y) + cp.sum_squares(y)), [cp.abs(y) <= 0.4], name="grid"),
        dp.Agent(cp.Minimize(cost), name="home"),
    ]
    return Instance(dp.Problem(agents, coupling=[x == y + np.array([0.1, 0, -0.1])]), (values,))


def poll() -> Instance:
    """Two users with records that enter one score each, and a public penalty of single entries."""
    rng = np.random.default_rng(18)
    w, y = cp.Variable(2, name="w"), cp.Variable(2, name="y")
    agents, secrets = [], []
    for k in range(2):
        X = rng.normal(size=(6, 2))
        X /= np.linalg.norm(X, axis=1, keepdims=True)
        secrets.append(X)
        features = dp.Private(X, name=f"X{k}", adjacency=dp.Rows(1.0))
        cost = cp.sum(cp.logistic(-(features @ w))) + 0.1 * cp.sum_squares(w)
        agents.append(dp.Agent(cp.Minimize(cost), name=f"panel{k}"))
    penalty = 0.2 * cp.norm1(y) + 0.5 * cp.sum_squares(y)
    agents.append(dp.Agent(cp.Minimize(penalty), name="institute"))
    return Instance(dp.Problem(agents, coupling=[w == y]), tuple(secrets))


def sensors() -> Instance:
    """Four agents that all hold all shared entries, in other orders, one of them without data."""
    rng = np.random.default_rng(19)
    u, v = cp.Variable(2, name="u"), cp.Variable(name="v")
    own = cp.Variable(2, name="own")
    secrets = rng.normal(size=(3, 3))
    data = [
        dp.Private(secrets[k], name=f"reading{k}", adjacency=dp.Within(0.05, norm=p))
        for k, p in enumerate((1, 2, np.inf))
    ]
    agents = [
        dp.Agent(cp.Minimize(cp.sum_squares(cp.hstack([u, v]) - data[0])), name="north"),
        dp.Agent(
            cp.Minimize(cp.sum_squares(cp.hstack([v, u]) - data[1])),
            [cp.abs(u) <= 0.3],
            name="east",
        ),
        dp.Agent(
            cp.Minimize(
                cp.sum_squares(cp.hstack([u + own, v]) - data[2]) + 0.5 * cp.sum_squares(own)
            ),
            [cp.sum(u) + v <= 0.2, own >= -0.1],
            name="south",
        ),
        dp.Agent(cp.Minimize(cp.sum_squares(u - 0.2) + cp.square(v)), [v >= -0.5], name="west"),
    ]
    return Instance(dp.Problem(agents), tuple(secrets))


def laboratories() -> Instance:
    """Four agents without constraints, with records or private linear terms, one without data."""
    rng = np.random.default_rng(20)
    w = cp.Variable(3, name="w")
    agents, secrets = [], []
    for k in range(2):
        X = rng.normal(size=(6, 3))
        X /= np.linalg.norm(X, axis=1, keepdims=True)
        secrets.append(X)
        rows = dp.Private(X, name=f"X{k}", adjacency=dp.Rows(1.0))
        cost = cp.sum(cp.logistic(-rows @ w)) / 6 + cp.sum_squares(w) / 2
        agents.append(dp.Agent(cp.Minimize(cost), name=f"laboratory{k}"))
    secrets.append(rng.normal(size=3))
    d = dp.Private(secrets[-1], name="d", adjacency=dp.Within(0.1, norm=2))
    agents.append(dp.Agent(cp.Minimize(cp.sum_squares(w - d) / 2), name="reference"))
    agents.append(dp.Agent(cp.Minimize(cp.sum_squares(w - 0.3) / 2), name="archive"))
    return Instance(dp.Problem(agents), tuple(secrets))


INSTANCES: dict[str, Callable[[], Instance]] = {
    "power line": power_line,
    "overlapping slices": overlapping_slices,
    "covariance": covariance,
}
# Their gradients are not affine in the data: for methods that use gradients in every step.
RECORDS: dict[str, Callable[[], Instance]] = {"clinics": clinics}
# More than two agents that hold all shared entries: for methods on networks.
NETWORKS: dict[str, Callable[[], Instance]] = {"sensors": sensors}
# The same without constraints.
OPEN: dict[str, Callable[[], Instance]] = {"laboratories": laboratories}
# Users and a public agent, tied by equalities: for methods that take these.
COUPLED: dict[str, Callable[[], Instance]] = {
    "household tariff": household_tariff,
    "survey": survey,
    "one household": one_household,
}
# The same, with a public agent whose step has a closed form and slopes that are bounded everywhere.
HIDDEN: dict[str, Callable[[], Instance]] = {"household tariff": household_tariff, "poll": poll}
