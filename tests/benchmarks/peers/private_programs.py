"""Published mechanisms for private programs, next to plans, at equal (epsilon, delta).

``python -m tests.benchmarks.peers.private_programs`` prints the tables of the page on peers. The
mechanisms are written here from the papers: their code needs a commercial solver, or is not public.

* Benvenuti, Bialy, Dennis and Hale (2025): linear programs with private A, b and c. Truncated
  Laplace noise, and constraints tightened by its support, so that none is violated.
* Dvorkin, Fioretto, Van Hentenryck, Pinson and Kazempour (2022): the optimum plus Laplace noise,
  around a center that keeps constraints with a probability. The noise is scaled to the largest move
  of the optimum between some sampled neighbors, which is no bound.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import cvxpy as cp
import numpy as np

import dpcvx as dp

DELTA = 1e-6
# Of runs that may violate a constraint.
VIOLATION = 0.05


# -- linear programs with private A, b and c


@dataclass(frozen=True)
class Linear:
    """``max c @ x, A @ x <= b, x >= 0``; one entry of A, of b or of c changes by `change`."""

    A: np.ndarray
    b: np.ndarray
    c: np.ndarray
    change: float

    @staticmethod
    def drawn(seed, rows=5, columns=4, change=0.01):
        rng = np.random.default_rng(seed)
        A = rng.uniform(0.5, 1.5, (rows, columns))
        return Linear(A, rng.uniform(4, 6, rows), rng.uniform(0.5, 1.5, columns), change)

    def solved(self, A, b, c):
        """The minimizer for other numbers; None if there is none."""
        x = cp.Variable(self.c.size, nonneg=True)
        problem = cp.Problem(cp.Maximize(c @ x), [A @ x <= b])
        problem.solve(solver=cp.CLARABEL)
        return x.value if problem.status == "optimal" else None

    def gap(self, x):
        """Relative loss of a point, or infinity if it is not feasible."""
        best = self.c @ self.solved(self.A, self.b, self.c)
        broken = x is None or (self.A @ x > self.b + 1e-6).any()
        return np.inf if broken else 1 - self.c @ np.maximum(x, 0) / best

    def published(self, epsilon, seed):
        """The mechanism of the paper, with all of (epsilon, delta) for each of A, b and c."""
        rng, scale = np.random.default_rng(seed), self.change / epsilon

        def limited(value):
            reach = scale * np.log1p(value.size * np.expm1(epsilon) / DELTA)
            noise = rng.laplace(0, scale, value.shape)
            while (far := np.abs(noise) > reach).any():
                noise[far] = rng.laplace(0, scale, far.sum())
            return value + noise, reach

        (A, up), (b, down) = limited(self.A), limited(self.b)
        return self.solved(A + up, b - down, self.c + rng.laplace(0, scale, self.c.shape))

    def plan(self, epsilon, violation=0.0):
        adjacency = dp.Within(self.change)
        A = dp.Private(self.A, name="A", adjacency=adjacency)
        b = dp.Private(self.b, name="b", adjacency=adjacency)
        c = dp.Private(self.c, name="c", adjacency=adjacency)
        x = cp.Variable(self.c.size, nonneg=True, name="x")
        agent = dp.Agent(cp.Maximize(c @ x), [A @ x <= b, x <= 20], name="firm")
        return dp.Problem([agent]).plan(
            epsilon=epsilon, delta=DELTA, violation_probability=violation
        )


def linear_gaps(epsilon, runs=20, change=0.01):
    """Median relative loss and share of violations, by mechanism."""
    found = {}
    cases = [Linear.drawn(seed, change=change) for seed in range(2)]
    for name in ("published", "plan, never", f"plan, at most {VIOLATION:.0%}"):
        gaps = []
        for case in cases:
            plan = None
            if name != "published":
                plan = case.plan(epsilon, 0.0 if "never" in name else VIOLATION)
            for seed in range(runs):
                x = case.published(epsilon, seed) if plan is None else _point(plan, seed)
                gaps.append(case.gap(x))
        finite = [gap for gap in gaps if np.isfinite(gap)]
        found[name] = float(np.median(finite or [np.inf])), 1 - len(finite) / len(gaps)
    return found


def _point(plan, seed):
    result = plan.run(seed=seed)
    return result["x"] if result.status.solved else None


# -- the four studies of program perturbation


@dataclass(frozen=True)
class Study:
    """A program with private data, of which one entry changes by at most `change`."""

    data: np.ndarray
    change: float
    # The optimum for data, with rows tightened by so much, as one vector.
    optimum: Callable[[np.ndarray, np.ndarray], np.ndarray | None]
    rows: Callable[[np.ndarray, np.ndarray], np.ndarray]  # of a point and data, positive if broken
    cost: Callable[[np.ndarray, np.ndarray], float]
    agent: Callable[[dp.Private], dp.Agent]  # with variables "x", and "y" behind it

    def moves(self, count, seed=0, everything=False):
        """Moves of the optimum in l1, between sampled neighbors or along every entry."""
        rng, none = np.random.default_rng(seed), np.zeros(self.rows_at_zero)
        base = self.optimum(self.data, none)
        size = self.data.size
        for k in np.arange(size) if everything else rng.integers(size, size=count):
            for step in (-1, 1) if everything else (rng.uniform(-1, 1),):
                other = self.data.copy()
                other.flat[k] += step * self.change
                yield float(np.abs(self.optimum(other, none) - base).sum())

    @property
    def rows_at_zero(self):
        return self.rows(np.zeros(self.optimum(self.data, 0.0).size), self.data).size

    def published(self, epsilon, sensitivity, seeds):
        """Noisy optima around a center with rows tightened by sampled quantiles of the noise."""
        rng = np.random.default_rng(1)
        size = self.optimum(self.data, 0.0).size
        center = self.optimum(self.data, 0.0)
        noise = rng.laplace(0, sensitivity / epsilon, (400, size))
        moved = [self.rows(center + one, self.data) - self.rows(center, self.data) for one in noise]
        share = 1 - VIOLATION / max(self.rows_at_zero, 1)
        margin = np.maximum(np.quantile(moved, share, axis=0), 0) if self.rows_at_zero else 0.0
        tight = self.optimum(self.data, margin)
        if tight is None:
            return [None] * len(seeds)
        draws = np.random.default_rng(2).laplace(0, sensitivity / epsilon, (len(seeds), size))
        return [tight + one for one in draws]

    def plan(self, epsilon):
        private = dp.Private(
            self.data, name="d", adjacency=dp.Within(self.change), proxy=self.data * 0.9 + 0.05
        )
        agent = self.agent(private)
        given = {"violation_probability": VIOLATION} if agent.limits else {}
        return dp.Problem([agent]).plan(epsilon=epsilon, delta=DELTA, **given)

    def judged(self, x):
        """Relative loss of a point, and whether it breaks a row."""
        best = self.cost(self.optimum(self.data, 0.0), self.data)
        if x is None:
            return np.inf, True
        broken = bool((self.rows(x, self.data) > 1e-5).any()) if self.rows_at_zero else False
        return abs(self.cost(x, self.data) - best) / max(abs(best), 1e-9), broken


def _solve(objective, constraints, *variables):
    problem = cp.Problem(objective, constraints)
    problem.solve(solver=cp.CLARABEL)
    if problem.status not in ("optimal", "optimal_inaccurate"):
        return None
    return np.concatenate([np.ravel(v.value, order="F") for v in variables])


def allocation():
    """Resources that cover private demands, at least cost."""
    rng = np.random.default_rng(0)
    G, price, demand = rng.uniform(0, 1, (3, 5)), rng.uniform(1, 2, 5), np.array([1.0, 1.5, 2.0])

    def optimum(d, margin):
        x = cp.Variable(5)
        limits = np.broadcast_to(margin, 13)
        rows = [d - G @ x + limits[:3] <= 0, -x + limits[3:8] <= 0, x - 4 + limits[8:] <= 0]
        return _solve(cp.Minimize(price @ x), rows, x)

    def agent(d):
        x = cp.Variable(5, name="x")
        return dp.Agent(cp.Minimize(price @ x), [G @ x >= d, x >= 0, x <= 4], name="a")

    rows = lambda x, d: np.concatenate([d - G @ x, -x, x - 4])  # noqa: E731
    return Study(demand, 0.02, optimum, rows, lambda x, d: price @ x, agent)


def regression():
    """A curve that rises, fitted to private measurements."""
    rng, grid = np.random.default_rng(1), np.linspace(0, 1, 40)
    basis = np.sqrt(1 + (3 * (grid[:, None] - np.linspace(0, 1, 4))) ** 2)
    slopes = np.diff(basis, axis=0)[::4]
    y = np.clip(3 * grid**2 - 2 * grid**3 + rng.normal(0, 0.1, 40), 0, 1)

    def optimum(d, margin):
        w = cp.Variable(4)
        rows = [-slopes @ w + margin <= 0]
        return _solve(cp.Minimize(cp.sum_squares(basis @ w - d)), rows, w)

    def agent(d):
        w = cp.Variable(4, name="x")
        return dp.Agent(cp.Minimize(cp.sum_squares(basis @ w - d)), [slopes @ w >= 0], name="a")

    cost = lambda w, d: float(np.sum((basis @ w - d) ** 2))  # noqa: E731
    return Study(y, 0.025, optimum, lambda w, d: -slopes @ w, cost, agent)


def classifier():
    """A support vector machine for points with private coordinates."""
    rng = np.random.default_rng(2)
    label = np.sign(rng.normal(size=30))
    points = rng.normal(size=(30, 2)) + 1.2 * label[:, None] * np.array([1.0, 0.5])

    def loss(w, v, d):
        return cp.sum(cp.pos(1 - cp.multiply(label, d @ w - v))) + cp.sum_squares(w)

    def optimum(d, margin):
        w, v = cp.Variable(2), cp.Variable()
        return _solve(cp.Minimize(loss(w, v, d)), [], w, v)

    def agent(d):
        w, v = cp.Variable(2, name="x"), cp.Variable(name="y")
        return dp.Agent(cp.Minimize(loss(w, v, d)), [cp.abs(w) <= 10, cp.abs(v) <= 10], name="a")

    def cost(x, d):
        return float(np.maximum(1 - label * (d @ x[:2] - x[2]), 0).sum() + x[:2] @ x[:2])

    return Study(points, 0.1, optimum, lambda x, d: np.zeros(0), cost, agent)


def ellipsoid():
    """The largest ellipse with given axes' directions in a polygon with private limits."""
    angles = np.linspace(0, 2 * np.pi, 7)[:-1]
    normals = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    limits = np.array([1.0, 1.2, 0.9, 1.1, 1.0, 1.3])

    def inside(s, m, d, margin):
        pairs = enumerate(zip(normals, np.broadcast_to(margin, 6), strict=True))
        return [cp.norm(cp.multiply(a, s)) + a @ m + t <= d[k] for k, (a, t) in pairs]

    def optimum(d, margin):
        s, m = cp.Variable(2, nonneg=True), cp.Variable(2)
        return _solve(cp.Maximize(cp.sum(cp.log(s))), inside(s, m, d, margin), s, m)

    def agent(d):
        s, m = cp.Variable(2, name="x"), cp.Variable(2, name="y")
        bounds = [s >= 0.01, s <= 5, cp.abs(m) <= 5]
        goal = cp.Maximize(cp.sum(cp.log(s)))
        return dp.Agent(goal, [*inside(s, m, d, 0.0), *bounds], name="a")

    def rows(x, d):
        return np.linalg.norm(normals * x[:2], axis=1) + normals @ x[2:] - d

    def cost(x, d):
        return float(np.prod(np.maximum(x[:2], 0)))

    return Study(limits, 0.02, optimum, rows, cost, agent)


STUDIES = {study.__name__: study for study in (allocation, regression, classifier, ellipsoid)}


def compared(name, epsilon, runs=20):
    """Median loss and violations of both, and how far the sampled sensitivity is from a bound."""
    study = STUDIES[name]()
    sampled = max(study.moves(30))
    ratio = max(study.moves(0, everything=True)) / sampled
    found = {}
    seeds = range(runs)
    points = study.published(epsilon, sampled, seeds)
    found["published"] = _summary([study.judged(x) for x in points])
    plan = study.plan(epsilon)
    names = [v.name() for v in plan.problem.variables()]
    points = []
    for seed in seeds:
        result = plan.run(seed=seed)
        parts = [np.ravel(result[v], order="F") for v in sorted(names)]
        points.append(np.concatenate(parts) if result.status.solved else None)
    found["plan"] = _summary([study.judged(x) for x in points])
    return found, ratio


def _summary(judged):
    gaps, broken = zip(*judged, strict=True)
    return float(np.median(gaps)), float(np.mean(broken))


def main():
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    runs = parser.parse_args().runs
    warnings.simplefilter("ignore")
    print("private linear programs: median relative loss (share of runs that violate)")
    for epsilon in (1.0, 3.0, 10.0):
        rows = linear_gaps(epsilon, runs)
        print(epsilon, {name: f"{gap:.3g} ({broken:.0%})" for name, (gap, broken) in rows.items()})
    print("studies of program perturbation: median relative loss (share of runs that violate)")
    for name in STUDIES:
        for epsilon in (1.0, 10.0):
            found, ratio = compared(name, epsilon, runs)
            shown = {key: f"{gap:.3g} ({broken:.0%})" for key, (gap, broken) in found.items()}
            print(name, epsilon, shown, f"move of an entry over the sampled one: {ratio:.2f}")


if __name__ == "__main__":
    main()
