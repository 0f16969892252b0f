"""Answers of private local steps on random sets: neighbors move as charged, or the set is refused.

A trial is a pair of neighbors. Their steps, before the noise, may differ by what the ledger says.
"""

from collections.abc import Callable

import cvxpy as cp
import numpy as np

import dpcvx as dp
from dpcvx.solvers.steps import ProximalStep
from tests.campaigns.tally import Tally
from tests.steps import Setting, solution

FULL = 20_000
# Pairs per set.
_PAIRS = 20


def _row(x, rng):
    spread = rng.choice([0.0, 4.0, 8.0])
    a = 10.0 ** rng.uniform(-spread / 2, spread / 2, x.size) * rng.choice([-1.0, 1.0], x.size)
    inside = rng.normal(size=x.size)
    low, high = inside - 10.0 ** rng.integers(-2, 4), inside + 10.0 ** rng.integers(-2, 4)
    row = a @ x == a @ inside if rng.integers(2) else a @ x <= a @ inside
    return [row, x >= low, x[: rng.integers(1, x.size + 1)] <= high[0] + np.abs(high).max()]


def _ball(x, rng):
    a = 10.0 ** rng.uniform(-1, 1, x.size)
    return [cp.norm(cp.multiply(a, x) - rng.normal(size=x.size)) <= 10.0 ** rng.uniform(-2, 1)]


def _quotient(x, rng):
    return [cp.quad_over_lin(x[:-1], x[-1] + 2) <= rng.uniform(0.5, 3), x[-1] <= 3]


def _second_order(x, rng):
    B = rng.normal(size=(x.size - 1, x.size))
    return [cp.norm(B @ x) <= rng.uniform(0.5, 2) + 0.3 * x[0], cp.abs(x) <= 5]


def _semidefinite(x, rng):
    mats = rng.normal(size=(x.size, 3, 3))
    mats = mats + mats.transpose(0, 2, 1)
    return [sum(x[k] * mats[k] for k in range(x.size)) + 2 * np.eye(3) >> 0, cp.abs(x) <= 5]


def _polyhedron(x, rng):
    m = int(rng.integers(2, 7))
    A = rng.normal(size=(m, x.size)) * 10.0 ** rng.uniform(-1, 1, (m, 1))
    return [A @ x <= np.abs(A).sum(axis=1) * rng.uniform(0.1, 1), cp.sum(x) == 0.1]


def _l1(x, rng):
    return [
        cp.norm1(cp.multiply(10.0 ** rng.uniform(-1, 1, x.size), x)) <= 10.0 ** rng.uniform(-1, 1)
    ]


def _product(x, rng):
    return [cp.norm1(x[:2]) <= rng.uniform(0.5, 2), x[2:] >= -rng.uniform(size=x.size - 2)]


def _power(x, rng):
    return [cp.PowCone3D(x[0] + 1, x[1] + 1, x[2], rng.uniform(0.1, 0.9)), cp.abs(x) <= 5]


def _exponential(x, rng):
    return [cp.exp(x[0]) <= x[1] + 3, cp.sum(cp.entr(x[2:] + 1)) >= -rng.uniform(0.5, 2)]


KINDS: dict[str, Callable] = {
    "row over a box": _row,
    "ball": _ball,
    "quad_over_lin": _quotient,
    "second-order": _second_order,
    "semidefinite": _semidefinite,
    "polyhedron": _polyhedron,
    "l1 ball": _l1,
    "product": _product,
    "power": _power,
    "exponential": _exponential,
}
UNPROVED = ("power", "exponential")


def campaign(size: int, seed: int, pairs: int = _PAIRS) -> Tally:
    """`size` pairs of neighbors, so many per set."""
    tally = Tally()
    for number in range(-(-size // pairs)):
        rng = np.random.default_rng([seed, number])
        kind = list(KINDS)[number % len(KINDS)]
        n = int(rng.integers(3, 6))
        radius = 10.0 ** rng.integers(-8, 0)
        try:
            setting = Setting(n, lambda x: KINDS[kind](x, rng), radius)  # noqa: B023
        except dp.DpcvxError as error:
            tally.add(f"{kind}: no plan", f"{kind}, set {number} of seed {seed}: {error}")
            continue
        if setting.projector.obstacle is not None:
            fault = None if kind in UNPROVED else f"{kind}, set {number}: no steps for it"
            tally.add(f"{kind}: refused", fault)
            continue
        D = 10.0 ** rng.uniform(-1, 1, n)
        start = setting.projector(rng.normal(size=n), D).x
        step = ProximalStep(setting.projector, start + 0.1 * rng.normal(size=n), D, start)
        for pair in range(min(pairs, size - number * pairs)):
            d = rng.normal(size=n) * 10.0 ** rng.integers(-1, 3)
            other = d.copy()
            other[rng.integers(n)] += radius * rng.choice([-1.0, 1.0])
            ratio = setting.ratio(solution(start, step), d, other, np.sqrt(D))
            where = f"{kind}, set {number} of seed {seed}, pair {pair}: ratio {ratio:.6g}"
            tally.add(kind, None if ratio <= 1 else where)
    return tally
