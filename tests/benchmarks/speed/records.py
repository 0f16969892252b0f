"""Many records, dense and sparse: their gradient, and planning in units of it."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

import dpcvx as dp
from dpcvx.model.row_blocks import bound_objective

from .instances import BUDGET
from .measure import Effort, Row, per_input, shown, timed

_FEATURES = 100
# Non-zeros of a sparse record.
_FILLED = 10
_FEW = dp.FederatedGradient(0.1)
Records = np.ndarray | sp.csr_array
# As it is written, and its slope in the scores.
_LOSSES = {
    "squares": (lambda s, y: cp.sum_squares(s - y), lambda s, y: 2 * (s - y)),
    "logistic": (
        lambda s, y: cp.sum(cp.logistic(cp.multiply(-y, s))),
        lambda s, y: -y / (1 + np.exp(y * s)),
    ),
}


def records(effort: Effort) -> list[Row]:
    """Logistic regression on dense private records against numpy, on sparse ones against scipy."""
    count, rng = 10**5 if effort.quick else 10**6, np.random.default_rng(0)
    X = rng.normal(size=(count, _FEATURES))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    found = _rows(effort, X, "private records", "numpy", 0.9, 5.0, f"{count} x {_FEATURES}")
    return found + _sparse_rows(effort, count, rng)


def public_features(effort: Effort) -> list[Row]:
    """Losses of private labels next to public sparse features, against scipy."""
    count = 10**5 if effort.quick else 10**6
    X = _sparse(count, np.random.default_rng(0))
    return [row for loss in _LOSSES for row in _public_rows(effort, X, loss)]


def _public_rows(effort: Effort, X: sp.csr_array, loss: str) -> list[Row]:
    """A gradient and a plan."""
    (count, features), x = X.shape, np.random.default_rng(1).normal(size=X.shape[1])
    labels, (written, slopes) = np.sin(np.arange(count)), _LOSSES[loss]

    def problem() -> dp.Problem:
        w = cp.Variable(features, name="w")
        y = dp.Private(shape=(count,), name="y", adjacency=dp.Rows(1.0))
        agent = dp.Agent(cp.Minimize(written(X @ w, y) / count), [cp.abs(w) <= 5], name="all")
        return dp.Problem([agent])

    def by_hand(k: int) -> object:
        return X.T @ (slopes(X @ x, labels) / count)

    bound = problem().plan(_FEW, rounds=5, **BUDGET).agents[0].program.form.bind([labels])
    np.testing.assert_allclose(bound.gradient(x), by_hand(0), rtol=1e-9, atol=1e-18)
    ours, theirs = per_input([lambda k: bound.gradient(x), by_hand], 1, effort.repeats)
    models = [problem() for _ in range(max(2, effort.repeats // 2 + 1))]
    planned = min(timed(lambda p=p: p.plan(_FEW, rounds=5, **BUDGET)) for p in models)
    size, what = f"{count} x {features}, {_FILLED} a record", f"public sparse features, {loss}"
    return [
        Row(f"gradient, {what}", "scipy", size, ours / theirs, 1.2,
            note=f"{shown(ours)} against {shown(theirs)}"),
        Row(f"planning, {what}", "one gradient by scipy", size, planned / theirs, 30.0,
            note=f"{shown(planned)} against {shown(theirs)}"),
    ]  # fmt: skip


def _sparse_rows(effort: Effort, count: int, rng: np.random.Generator) -> list[Row]:
    """Private records with few features each."""
    X = _sparse(count, rng)
    long = np.sqrt(np.asarray(X.power(2).sum(axis=1)).ravel())
    X.data /= np.repeat(long, np.diff(X.indptr))
    size = f"{count} x {count // 10}, {_FILLED} a record"
    found = _rows(effort, X, "sparse private records", "scipy", 1.2, 30.0, size)
    return found + _rows(effort, X, "clipped sparse records", "scipy", 1.2, 30.0, size, clip=0.3)


def _sparse(count: int, rng: np.random.Generator) -> sp.csr_array:
    """Few entries in every row, of a tenth as many columns as rows."""
    columns = rng.integers(0, count // 10, size=(count, _FILLED))
    starts = np.arange(0, columns.size + 1, _FILLED)
    X = sp.csr_array((rng.normal(size=columns.size), columns.ravel(), starts), (count, count // 10))
    X.sum_duplicates()
    return X


def _rows(
    effort: Effort,
    X: Records,
    what: str,
    against: str,
    gradient: float,
    planning: float,
    size: str,
    clip: float | None = None,
) -> list[Row]:
    """A gradient and a plan. The other side clips by lengths that it knows."""
    (count, features), x = X.shape, np.random.default_rng(1).normal(size=X.shape[1])
    limits = {} if clip is None else {"clip_norm": clip / count}
    long = np.sqrt(np.asarray((X * X).sum(axis=1)).ravel())

    def problem() -> dp.Problem:
        w = cp.Variable(features, name="w")
        data = dp.Private(shape=X.shape, name="X", adjacency=dp.Rows(1.0))
        cost = cp.Minimize(cp.sum(cp.logistic(-(data @ w))) / count)
        return dp.Problem([dp.Agent(cost, [cp.abs(w) <= 5], name="all", **limits)])

    def by_hand(k: int) -> object:
        slopes = -1 / (1 + np.exp(X @ x)) / count
        if clip is not None:
            slopes *= np.minimum(1, clip / count / (np.abs(slopes) * long))
        return X.T @ slopes

    agent = problem().plan(_FEW, rounds=5, **BUDGET).agents[0]
    assert agent.sensitivity is not None
    flat = X if sp.issparse(X) else X.ravel(order="F")
    bound = bound_objective(agent.program.form, [flat], agent.sensitivity.clips, limited=True)
    np.testing.assert_allclose(bound.gradient(x), by_hand(0), rtol=1e-9, atol=1e-18)
    ours, theirs = per_input([lambda k: bound.gradient(x), by_hand], 1, effort.repeats)
    note = f"{shown(ours)} against {shown(theirs)}"
    models = [problem() for _ in range(2)]
    planned = min(timed(lambda p=p: p.plan(_FEW, rounds=5, **BUDGET)) for p in models)
    return [
        Row(f"gradient, {what}", against, size, ours / theirs, gradient, note=note),
        Row(f"planning, {what}", f"one gradient by {against}", size, planned / theirs, planning,
            note=f"{shown(planned)} against {shown(theirs)}"),
    ]  # fmt: skip
