"""Logistic regression at delta = 0: plans' default against objective perturbation as published.

The published method is Algorithm 2 of Chaudhuri, Monteleoni and Sarwate (2011), written here in
numpy and scipy, on the same data, with the same penalty. Gaps are those of the objective that users
state, over records, and are means over runs.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import cvxpy as cp
import numpy as np
from scipy.optimize import minimize

import dpcvx as dp

# Of the squared norm, over all records.
WEIGHT = 1.0
# Largest second derivative of a logistic loss.
BEND = 0.25


@dataclass(frozen=True)
class Data:
    """Labels that follow from rows of norm 1 at most."""

    rows: int
    features: int
    effect: float  # of a feature, on the logit
    uneven: bool = False  # lengths of features differ, and one label is rarer

    def drawn(self, seed):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(self.rows, self.features))
        if self.uneven:
            X *= np.linspace(0.2, 1.5, self.features)
            X[:, 0] = 2.0
        X /= np.maximum(1, np.linalg.norm(X, axis=1, keepdims=True))
        logits = X @ (self.effect * rng.normal(size=self.features)) + 2 * self.uneven
        return X, np.where(rng.random(self.rows) < 1 / (1 + np.exp(-logits)), 1.0, -1.0)


DATA = {
    "400 records, 5 features": Data(400, 5, 2.0),
    "1,000 records, 8 features": Data(1000, 8, 3.0),
    "3,000 records, 15 uneven features": Data(3000, 15, 6.0, uneven=True),
}


def value(w, X, y):
    return np.logaddexp(0, -y * (X @ w)).sum() + WEIGHT / 2 * w @ w


def minimizer(X, y, b, added=0.0):
    """With a linear term, and with more weight on the squared norm."""

    def both(w):
        slope = -X.T @ (y / (1 + np.exp(y * (X @ w)))) + (WEIGHT + added) * w + b
        return value(w, X, y) + added / 2 * w @ w + b @ w, slope

    options = {"maxiter": 5000, "ftol": 1e-15, "gtol": 1e-9}
    return minimize(both, np.zeros(X.shape[1]), jac=True, method="L-BFGS-B", options=options).x


def published(X, y, epsilon, rng):
    """Algorithm 2, with sums in place of means."""
    left, added = epsilon - np.log(1 + 2 * BEND / WEIGHT + (BEND / WEIGHT) ** 2), 0.0
    if left <= 0:
        added, left = BEND / (np.exp(epsilon / 4) - 1) - WEIGHT, epsilon / 2
    direction = rng.normal(size=X.shape[1])
    length = rng.gamma(X.shape[1], 2 / left)
    return minimizer(X, y, length * direction / np.linalg.norm(direction), added)


def planned(X, y, epsilon):
    w, rows = cp.Variable(X.shape[1], name="w"), dp.Rows(1.0, records="person")
    X = dp.Private(X, name="X", adjacency=rows)
    y = dp.Private(y, name="y", adjacency=rows)
    loss = cp.sum(cp.logistic(-cp.multiply(y, X @ w))) + WEIGHT / 2 * cp.sum_squares(w)
    return dp.Problem([dp.Agent(cp.Minimize(loss), name="clinic")]).plan(epsilon=epsilon, delta=0)


def gaps(data, epsilon, seeds, runs):
    """Mean gaps of the plan's default, of the published method, and of the start."""
    found = {"default": [], "published": [], "start": []}
    for seed in range(seeds):
        X, y = data.drawn(seed)
        rng, zero = np.random.default_rng(1000 + seed), np.zeros(X.shape[1])
        best = value(minimizer(X, y, zero), X, y)
        plan = planned(X, y, epsilon)
        for run in range(runs):
            found["default"].append(value(plan.run(seed=run, verbose=False)["w"], X, y) - best)
            found["published"].append(value(published(X, y, epsilon, rng), X, y) - best)
        found["start"].append(value(zero, X, y) - best)
    return {name: float(np.mean(gap)) for name, gap in found.items()}


def main(arguments=None):
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.objective_perturbation")
    parser.add_argument("--epsilon", type=float, nargs="*", default=[0.3, 1.0, 3.0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--runs", type=int, default=10)
    asked = parser.parse_args(arguments)
    for epsilon in asked.epsilon:
        for name, data in DATA.items():
            found = gaps(data, epsilon, asked.seeds, asked.runs)
            print(
                f"epsilon {epsilon:<4g} {name:34s} default {found['default']:8.3g}  published "
                f"{found['published']:8.3g}  start {found['start']:8.3g}  ratio "
                f"{found['default'] / found['published']:6.3f}", flush=True,
            )  # fmt: skip


if __name__ == "__main__":
    main()
