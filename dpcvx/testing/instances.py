"""Small problems with synthetic private data, for tests of methods."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

from ..model.adjacency import Rows, Within
from ..model.agent import Agent
from ..model.declaration import Declaration
from ..model.private import Private
from ..privacy.randomness import Randomness, source_for, uniform

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Instance:
    """Test problem with synthetic data that need no protection.

    Attributes
    ----------
    problem : Problem
    data : mapping of str to ndarray
        Values of the private objects in the problem, by their names.
    """

    problem: Declaration
    data: Mapping[str, Array]


def power_line() -> Instance:
    """Return a problem of two agents with a shared vector and nonnegative local variables."""
    made = _stream(11)
    A, B = _numbers(made, 4, 3), _numbers(made, 4, 2)
    tie = cp.Variable(2, name="tie")
    agents, data = [], {}
    for k in range(2):
        gen = cp.Variable(3, name=f"gen{k}", nonneg=True)
        load = _private(data, f"load{k}", _numbers(made, 4), Within(0.01))
        cost = cp.sum_squares(A @ gen + (-1) ** k * B @ tie - load) + 0.1 * cp.sum_squares(gen)
        agents.append(Agent(cp.Minimize(cost), [gen <= 1.5, cp.abs(tie) <= 0.4], name=f"end{k}"))
    return Instance(Declaration(agents), data)


def overlapping_slices() -> Instance:
    """Return a problem of three agents that share slices of one variable; one has no data.

    Their sets are a simplex, a ball, and the whole space.
    """
    made, data = _stream(12), {}
    x = cp.Variable(7, name="x")
    simplex: list[Any] = [cp.sum(x[:4]) == 1, x[:4] >= 0]
    left = _private(data, "left", _numbers(made, 4), Within(0.05, norm=2))
    right = _private(data, "right", _numbers(made, 3), Within(0.05, norm=np.inf))
    agents = [
        Agent(cp.Minimize(cp.sum_squares(x[:4] - left)), simplex, "a"),
        Agent(
            cp.Maximize(right @ x[[2, 4, 6]] - cp.sum_squares(x[[2, 4, 6]])),
            [cp.norm(x[[2, 4, 6]]) <= 1],
            "b",
        ),
        Agent(cp.Minimize(cp.sum_squares(x[3:6] - 0.2)), [], "c"),
    ]
    return Instance(Declaration(agents), data)


def covariance() -> Instance:
    """Return a problem of two agents with a shared semidefinite and two private matrices."""
    made, data = _stream(13), {}
    X = cp.Variable((3, 3), PSD=True, name="X")
    trace: list[Any] = [cp.trace(X) <= 2]
    agents = []
    for k in range(2):
        root = _numbers(made, 3, 3)
        S = _private(data, f"S{k}", root @ root.T, Within(0.1, norm=2))
        cost = cp.sum_squares(X - S) + 0.05 * cp.norm1(X)
        agents.append(Agent(cp.Minimize(cost), trace, name=f"site{k}"))
    return Instance(Declaration(agents), data)


def clinics() -> Instance:
    """Return a problem of two agents that train a classifier; a record has features and a label."""
    made, data = _stream(14), {}
    w = cp.Variable(3, name="w")
    agents = []
    for k in range(2):
        features, labels = _labeled(data, made, 12, 3, str(k))
        loss = cp.sum(cp.logistic(-cp.multiply(labels, features @ w)))
        cost = loss + cp.sum_squares(w)
        agents.append(Agent(cp.Minimize(cost), [cp.abs(w) <= 0.3], name=f"clinic{k}"))
    return Instance(Declaration(agents), data)


def sensors() -> Instance:
    """Return a problem of four agents that share all entries, in different orders.

    One has no data, and one has a local variable.
    """
    made, data = _stream(19), {}
    u, v = cp.Variable(2, name="u"), cp.Variable(name="v")
    private_part = cp.Variable(2, name="own")
    a, b, c = (
        _private(data, f"reading{k}", _numbers(made, 3), Within(0.05, norm=p))
        for k, p in enumerate((1, 2, np.inf))
    )
    last = cp.sum_squares(cp.hstack([u + private_part, v]) - c) + 0.5 * cp.sum_squares(private_part)
    agents = [
        Agent(cp.Minimize(cp.sum_squares(cp.hstack([u, v]) - a)), name="north"),
        Agent(cp.Minimize(cp.sum_squares(cp.hstack([v, u]) - b)), [cp.abs(u) <= 0.3], name="east"),
        Agent(cp.Minimize(last), [cp.sum(u) + v <= 0.2, private_part >= -0.1], name="south"),
        Agent(cp.Minimize(cp.sum_squares(u - 0.2) + cp.square(v)), [v >= -0.5], name="west"),
    ]
    return Instance(Declaration(agents), data)


def laboratories() -> Instance:
    """Return a problem of four agents without constraints; one has no data.

    The others have records or a private linear term.
    """
    made, data = _stream(20), {}
    w = cp.Variable(3, name="w")
    agents = []
    for k in range(2):
        rows = _private(data, f"X{k}", _unit_rows(made, 6, 3), Rows(1.0))
        cost = cp.sum(cp.logistic(-rows @ w)) / 6 + cp.sum_squares(w) / 2
        agents.append(Agent(cp.Minimize(cost), name=f"laboratory{k}"))
    d = _private(data, "d", _numbers(made, 3), Within(0.1, norm=2))
    agents.append(Agent(cp.Minimize(cp.sum_squares(w - d) / 2), name="reference"))
    agents.append(Agent(cp.Minimize(cp.sum_squares(w - 0.3) / 2), name="archive"))
    return Instance(Declaration(agents), data)


def household_tariff() -> Instance:
    """Return a problem of three users with private loads, coupled by a matrix with a public vector.

    The public vector lies in a box, and its cost has an l1 norm.
    """
    made, data = _stream(15), {}
    x, y = cp.Variable(4, name="x"), cp.Variable(2, name="y", nonneg=True)
    agents = []
    for k in range(3):
        load = _private(data, f"load{k}", _numbers(made, 5), Within(0.05, norm=2))
        cost = cp.sum_squares(_numbers(made, 5, 4) @ x - load)
        agents.append(Agent(cp.Minimize(cost), name=f"home{k}"))
    tariff = 0.3 * cp.norm1(y) + 0.5 * cp.sum_squares(y)
    agents.append(Agent(cp.Minimize(tariff), [y <= 0.8], name="grid"))
    A = np.array([[1.0, 0.5, 0.0, -0.5], [0.0, 1.0, 2.0, 0.5]])
    tied: Any = A @ x == y
    return Instance(Declaration(agents, coupling=[tied]), data)


def survey() -> Instance:
    """Return a problem of two users with records, coupled entry by entry with a public vector.

    The public vector's cost is its l2 norm.
    """
    made, data = _stream(16), {}
    w, y = cp.Variable(3, name="w"), cp.Variable(3, name="y")
    agents = []
    for k in range(2):
        features, answers = _labeled(data, made, 10, 3, str(k))
        loss = cp.sum(cp.logistic(-cp.multiply(answers, features @ w)))
        agents.append(Agent(cp.Minimize(loss), name=f"panel{k}"))
    given: Any = cp.sum(y) == 0.1
    agents.append(Agent(cp.Minimize(cp.norm(y)), [given], name="institute"))
    tied: Any = w == y
    return Instance(Declaration(agents, coupling=[tied]), data)


def one_household() -> Instance:
    """Return a problem of a single user and a public agent, coupled by an equality."""
    made, data = _stream(17), {}
    x, y = cp.Variable(3, name="x"), cp.Variable(3, name="y")
    load = _private(data, "load", _numbers(made, 5), Within(0.05, norm=2))
    cost = cp.sum_squares(_numbers(made, 5, 3) @ x - load)
    agents = [
        Agent(cp.Minimize(cp.norm1(y) + cp.sum_squares(y)), [cp.abs(y) <= 0.4], name="grid"),
        Agent(cp.Minimize(cost), name="home"),
    ]
    tied: Any = x == y + np.array([0.1, 0, -0.1])
    return Instance(Declaration(agents, coupling=[tied]), data)


def dispatch() -> Instance:
    """Return a problem of three plants with local outputs and private plans, and two balances."""
    made, data = _stream(21), {}
    agents, outputs = [], []
    for k in range(3):
        p = cp.Variable(2, name=f"output{k}")
        plan = _private(data, f"plan{k}", _numbers(made, 2), Within(0.05, norm=2))
        cost = (1 + k) * cp.sum_squares(p - plan) / 2
        agents.append(Agent(cp.Minimize(cost), [cp.abs(p) <= 2], name=f"plant{k}"))
        outputs.append(p)
    balance: Any = sum(outputs) == np.array([1.0, -0.5])
    return Instance(Declaration(agents, coupling=[balance]), data)


def equal_clinics() -> Instance:
    """Return a problem of five agents that differ in names and data only, and so form a batch."""
    made, data = _stream(22), {}
    w = cp.Variable(3, name="w")
    agents = []
    for k in range(5):
        rows = _private(data, f"X{k}", _unit_rows(made, 6, 3), Rows(1.0))
        cost = cp.sum(cp.logistic(-(rows @ w))) / 6
        agents.append(Agent(cp.Minimize(cost), [cp.abs(w) <= 2], name=f"clinic{k}"))
    return Instance(Declaration(agents), data)


INSTANCES: dict[str, Callable[[], Instance]] = {
    "power line": power_line,
    "overlapping slices": overlapping_slices,
    "covariance": covariance,
    "clinics": clinics,
    "sensors": sensors,
    "laboratories": laboratories,
    "household tariff": household_tariff,
    "survey": survey,
    "one household": one_household,
    "dispatch": dispatch,
}


def _stream(seed: int) -> Randomness:
    return source_for(seed, ()).at(0, 0)


def _numbers(made: Randomness, *shape: int) -> Array:
    """Return uniform numbers with mean 0 and variance 1."""
    return (math.sqrt(12) * (uniform(math.prod(shape), made) - 0.5)).reshape(shape)


def _unit_rows(made: Randomness, m: int, n: int) -> Array:
    X = _numbers(made, m, n)
    return X / np.linalg.norm(X, axis=1, keepdims=True)


def _private(data: dict[str, Array], name: str, value: Array, adjacency: Within | Rows) -> Private:
    data[name] = value
    return Private(value, name=name, adjacency=adjacency)


def _labeled(
    data: dict[str, Array], made: Randomness, m: int, n: int, suffix: str
) -> tuple[Private, Private]:
    """Return private features of norm 1, and private labels of magnitudes between 0.9 and 1."""
    X = _private(data, f"X{suffix}", _unit_rows(made, m, n), Rows(1.0))
    u = 2 * uniform(m, made) - 1
    y = _private(data, f"y{suffix}", np.sign(u) * (0.9 + 0.1 * np.abs(u)), Rows(1.0))
    return X, y
