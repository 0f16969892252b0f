"""A method outside the package, over a network: all promises, and its printed equations."""

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp
from examples.pg_extra import PGExtra, gap, main, model

# Those of "sensors" are tried by the demonstration.
SUITE = dp.testing.check_method(PGExtra("ring", 0.05), rounds=3000, instances=["laboratories"])


@pytest.mark.parametrize("check", SUITE, ids=str)
def test_it_keeps_the_promises_of_methods(check):
    check()


def test_a_step_beyond_the_theorems_bound_is_found():
    suite = dp.testing.check_method(PGExtra("ring", 0.6), rounds=300, instances=["sensors"])
    (converges,) = [c for c in suite if c.name == "without noise it converges to the optimum"]
    with pytest.raises(AssertionError):
        converges()


@pytest.mark.parametrize("noisy", [False, True])
def test_a_run_is_the_printed_iteration(noisy):
    """Over a star, whose weights differ; bounds that are met, and noise."""
    rng = np.random.default_rng(7)
    N, T, alpha, limit = 4, 8, 0.05, 0.3
    w = cp.Variable(3, name="w")
    As, bs, agents = [], [], []
    for i in range(N):
        A, b = rng.normal(size=(5, 3)), rng.normal(size=5)
        d = dp.Private(b, name=f"d{i}", adjacency=dp.Within(0.1))
        cost = cp.Minimize(cp.sum_squares(A @ w - d))
        agents.append(dp.Agent(cost, [cp.abs(w) <= limit], name=f"a{i}"))
        As.append(A)
        bs.append(b)
    budget = dict(epsilon=1.0, delta=1e-6) if noisy else dict(mechanism=None)
    plan = dp.Problem(agents).plan(PGExtra("star", alpha), rounds=T, **budget)
    result = plan.run(seed=4, record=True, iterates=True)
    # Metropolis weights of a star around agent 0: 1 / (1 + max of the degrees).
    W = np.eye(N)
    for i in range(1, N):
        W[0, i] = W[i, 0] = 1 / N
        W[i, i] = 1 - 1 / N
    W[0, 0] = 1 / N
    tilde = (np.eye(N) + W) / 2
    released = [[r.value for r in result.transcript.releases if r.agent == i] for i in range(N)]

    def gradients(X, t):
        data = released if noisy else [[-2 * A.T @ b] * T for A, b in zip(As, bs, strict=True)]
        return np.array([2 * As[i].T @ As[i] @ X[i] + data[i][t] for i in range(N)])

    X = np.zeros((N, 3))
    G = gradients(X, 0)
    half, before = W @ X - alpha * G, X
    for t in range(T):
        if t > 0:
            new = gradients(X, t)
            half = W @ X + half - tilde @ before - alpha * (new - G)
            G = new
        before, X = X, np.clip(half, -limit, limit)
        found = [result.iterates[t].last.of(f"a{i}", w) for i in range(N)]
        assert np.array(found) == pytest.approx(X, rel=1e-9, abs=1e-9)
    assert (np.abs(X) == limit).any() and (np.abs(X) < limit).any()


def test_it_goes_all_the_way_where_gradient_descent_stops():
    problem = model()
    left, right = (
        gap(problem, problem.plan(method, mechanism=None, rounds=200).run())
        for method in (PGExtra("ring", 0.03), dp.DecentralizedGradient("ring", 0.03))
    )
    assert left < 1e-6 < 1e-2 < right


@pytest.mark.parametrize("arguments", [{"step": 0}, {"step": "short"}, {"returned": "first"}])
def test_parameters_that_are_none_are_refused(arguments):
    with pytest.raises(dp.ModelError, match=next(iter(arguments))):
        PGExtra(**arguments)


def test_the_demonstration_prints_what_came_of_it(capsys):
    main()
    assert "PGExtra keeps all 13 promises" in capsys.readouterr().out
