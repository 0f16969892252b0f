"""Many records with a feature in every column: their gradient, and planning in units of it."""

from __future__ import annotations

import cvxpy as cp
import numpy as np

import dpcvx as dp

from .instances import BUDGET
from .measure import Effort, Row, per_input, shown, timed

_FEATURES = 100


def records(effort: Effort) -> list[Row]:
    """Logistic regression on a dense private matrix against numpy."""
    count, rng = 10**5 if effort.quick else 10**6, np.random.default_rng(0)
    X, x = rng.normal(size=(count, _FEATURES)), rng.normal(size=_FEATURES)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    size = f"{count} x {_FEATURES}"

    def problem() -> dp.Problem:
        w = cp.Variable(_FEATURES, name="w")
        data = dp.Private(X, name="X", adjacency=dp.Rows(1.0))
        cost = cp.Minimize(cp.sum(cp.logistic(-(data @ w))) / count)
        return dp.Problem([dp.Agent(cost, [cp.abs(w) <= 5], name="all")])

    def by_hand(k: int) -> object:
        return X.T @ (-1 / (1 + np.exp(X @ x))) / count

    few = dp.SummedGradient(0.1)
    bound = problem().plan(few, rounds=5, **BUDGET).program.agents[0].form
    bound = bound.bind([X.ravel(order="F")], limited=True)
    np.testing.assert_allclose(bound.gradient(x), by_hand(0), rtol=1e-9)
    ours, theirs = per_input([lambda k: bound.gradient(x), by_hand], 1, effort.repeats)
    note = f"{shown(ours)} against {shown(theirs)}"
    models = [problem() for _ in range(2)]
    planned = min(timed(lambda p=p: p.plan(few, rounds=5, **BUDGET)) for p in models)
    return [
        Row("gradient, private records", "numpy", size, ours / theirs, 0.9, note=note),
        Row("planning, private records", "one gradient by numpy", size, planned / theirs, 5.0,
            note=f"{shown(planned)} against {shown(theirs)}"),
    ]  # fmt: skip
