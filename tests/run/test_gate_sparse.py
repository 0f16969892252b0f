"""Runs on sparse private records: as on arrays, and nothing public tells the pattern."""

import pickle

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

import dpcvx as dp
from tests.helpers import contains

M, N = 40, 6
RNG = np.random.default_rng(3)
X = RNG.normal(size=(M, N)) * (RNG.random((M, N)) < 0.3)
X /= max(1.0, np.linalg.norm(X, axis=1).max())
y = np.sign(RNG.normal(size=M))
BUDGET = {"rounds": 4, "epsilon": 1.0, "delta": 1e-6}
FEW = dp.FederatedGradient(0.1)
LOSSES = {
    "squares": lambda r: cp.sum_squares(r - y),
    "logistic": lambda r: cp.sum(cp.logistic(-cp.multiply(y, r))),
    "hinge": lambda r: cp.sum(cp.pos(1 - cp.multiply(y, r))),
    "huber": lambda r: cp.sum(cp.huber(r - y, 0.2)),
}
ADJACENCIES = [
    dp.Rows(1.0),
    dp.Rows(1.0, relation="add_or_remove_one"),
    dp.Rows(2.0, norm=1),
    dp.Rows(0.3, norm="inf", clip_rows=True),
    dp.Rows(0.5, clip_rows=True),
]


def problem(data, loss=LOSSES["logistic"], adjacency=ADJACENCIES[0], agents=1, **kwargs):
    w, several = cp.Variable(N, name="w"), []
    for k in range(agents):
        private = dp.Private(data, shape=(M, N), adjacency=adjacency, name=f"X{k}")
        cost = cp.Minimize(loss(private @ w) / M)
        several.append(dp.Agent(cost, [cp.abs(w) <= 2], name=f"agent{k}", **kwargs))
    return dp.Problem(several)


@pytest.mark.parametrize("adjacency", ADJACENCIES, ids=str)
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("clip", [None, 0.05])
def test_plans_and_answers_are_those_of_arrays(loss, adjacency, clip):
    kwargs = {} if clip is None else {"clip_norm": clip}
    plans = [
        problem(data, LOSSES[loss], adjacency, **kwargs).plan(FEW, **BUDGET)
        for data in (X, sp.csc_array(X))
    ]
    assert plans[0].fingerprint == plans[1].fingerprint and str(plans[0]) == str(plans[1])
    bounds = [[plan.agents[0].sensitivity.bound(p) for p in (1, 2)] for plan in plans]
    assert bounds[0] == bounds[1]
    results = [plan.run(seed=1) for plan in plans]
    points = [result.solution["w"] for result in results]
    np.testing.assert_allclose(*points, rtol=1e-9, atol=1e-12)
    assert str(results[0].ledger) == str(results[1].ledger)


@pytest.mark.parametrize("method", [FEW, dp.LinearizedADMM()], ids=["summed", "linearized"])
@pytest.mark.parametrize("executor", [dp.Serial(), dp.Threads(2)], ids=["serial", "threads"])
def test_equal_agents_take_their_turns_with_sparse_data(method, executor):
    points = [
        problem(data, agents=3).plan(method, **BUDGET).run(seed=2, executor=executor).solution["w"]
        for data in (X, sp.csr_array(X))
    ]
    np.testing.assert_allclose(*points, rtol=1e-9, atol=1e-12)


def test_some_agents_may_have_arrays():
    plan = problem(None, agents=2).plan(FEW, **BUDGET)
    mixed = plan.run(data={"X0": X, "X1": sp.csr_array(X)}, seed=3)
    arrays = plan.run(data={"X0": X, "X1": X}, seed=3)
    np.testing.assert_allclose(mixed.solution["w"], arrays.solution["w"], rtol=1e-9, atol=1e-12)


def test_the_pattern_leaves_with_nothing(tmp_path):
    sparse = sp.csr_array(0.123456789 * (np.arange(M * N).reshape(M, N) % 4 == 1))
    assert sparse.nnz == 60
    plans = [problem(data).plan(FEW, **BUDGET) for data in (sparse, X)]
    assert plans[0].fingerprint == plans[1].fingerprint
    assert len(pickle.dumps(plans[0])) == len(pickle.dumps(plans[1]))
    result = plans[0].run(seed=4, ledger=tmp_path / "ledger")
    written = (tmp_path / "ledger").read_text()
    for thing in (plans[0], result):
        text = f"{thing!r}{thing}"
        assert "stored elements" not in text and "csr" not in text.lower()
    assert "indptr" not in written and "123456789" not in written
    pickled = pickle.dumps(plans[0]) + pickle.dumps(result)
    for part in (sparse.indices, sparse.indptr):
        for kind in (np.int32, np.int64):
            assert part.astype(kind).tobytes() not in pickled
    assert not contains(plans[0], sparse.data) and not contains(result, sparse.data)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda p: p.plan(FEW, **BUDGET), r"does more than multiply.*X @ w \+ b"),
        (lambda p: p.plan(release="once", **BUDGET), "takes every entry"),
    ],
    ids=["objective", "release once"],
)
def test_what_takes_entries_is_refused_before_anything_is_spent(ask, message):
    w = cp.Variable(N, name="w")
    private = dp.Private(sp.csr_array(X), adjacency=dp.Rows(1.0), name="X")
    product = private @ w if "entry" in message else (0.5 + private) @ w
    cost = cp.sum_squares(product) if "entry" in message else cp.sum(cp.logistic(product))
    plan = ask(dp.Problem([dp.Agent(cp.Minimize(cost), [cp.abs(w) <= 2], name="a")]))
    with pytest.raises(dp.DataError, match=message) as caught:
        plan.run(seed=5)
    assert "'X'" in str(caught.value) and "toarray()" in str(caught.value)
    assert "stored" not in str(caught.value)
    assert not private.uses.losses


def test_too_long_rows_are_counted():
    private = dp.Private(shape=(M, N), adjacency=dp.Rows(0.5), name="X")
    expected = int((np.linalg.norm(X, axis=1) > 0.5).sum())
    assert 0 < expected == dp.not_private.too_long(private, sp.csr_array(X))
