"""Objective perturbation: what leaves, how it is charged, and the mean of several minimizers."""

import math

import cvxpy as cp
import numpy as np
import pytest
from scipy import stats
from scipy.optimize import minimize

import dpcvx as dp

D = 3


def records(rows=60, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, D))
    X /= np.maximum(1, np.linalg.norm(X, axis=1, keepdims=True))
    y = np.where(X @ [2.0, -1.0, 0.5] + 0.3 * rng.normal(size=rows) > 0, 1.0, -1.0)
    return X, y


def loss(w, X, y, weight=0.5):
    return cp.sum(cp.logistic(-cp.multiply(y, X @ w))) + weight / 2 * cp.sum_squares(w)


def clinic(data=None, k=0, w=None, penalty=0.0, constraints=(), weight=0.5):
    X, y = records() if data is None else data
    w = cp.Variable(D, name="w") if w is None else w
    rows = dp.Rows(1.0, records=f"patient {k}")
    X = dp.Private(X, name=f"X{k}", adjacency=rows)
    y = dp.Private(y, name=f"y{k}", adjacency=rows)
    cost = loss(w, X, y, weight) + penalty * cp.norm1(w)
    return dp.Agent(cp.Minimize(cost), [c(w) for c in constraints], name=f"clinic {k}")


def planned(agent, epsilon=1.0, weight=1.0, **more):
    method = dp.ObjectivePerturbation(weight)
    return dp.Problem([agent]).plan(method, epsilon=epsilon, delta=0, **more)


def solved(X, y, weight, penalty=0.0, low=-np.inf, high=np.inf):
    """By another solver: signs of entries are split apart beside a penalty."""

    def value(u):
        w = u[:D] - u[D:]
        cost = np.logaddexp(0, -y * (X @ w)).sum() + weight / 2 * w @ w
        g = -X.T @ (y / (1 + np.exp(y * (X @ w)))) + weight * w
        return cost + penalty * u.sum(), np.concatenate([g + penalty, penalty - g])

    ends = [(0, high)] * D + [(0, -low)] * D
    options = {"maxiter": 10000, "ftol": 1e-16, "gtol": 1e-12}
    u = minimize(value, np.zeros(2 * D), jac=True, bounds=ends, options=options).x
    return u[:D] - u[D:]


@pytest.mark.parametrize("penalty", [0.0, 1.5])
@pytest.mark.parametrize("ends", [(-np.inf, np.inf), (-0.3, 0.6)], ids=["free", "box"])
def test_without_noise_it_is_the_minimizer(penalty, ends):
    X, y = records()
    low, high = ends
    bounds = [] if math.isinf(high) else [lambda w: w <= high, lambda w: w >= low]
    agent = clinic((X, y), penalty=penalty, constraints=bounds)
    result = dp.Problem([agent]).plan(dp.ObjectivePerturbation(0.0), mechanism=None).run()
    expected = solved(X, y, 0.5, penalty, low=low, high=high)
    assert np.allclose(result["w"], expected, atol=1e-6)


def test_the_law_of_what_leaves_is_that_of_the_theorem():
    """In one dimension, with a box: by the law of b. Wrong once in a million."""
    w = cp.Variable(1, name="w")
    X = dp.Private(np.array([[1.0], [0.8], [-0.5]]), name="X", adjacency=dp.Rows(1.0))
    agent = dp.Agent(cp.Minimize(cp.sum(cp.logistic(X @ w))), [w <= 1.5], name="a")
    plan = planned(agent, weight=2.0)
    scale = plan.agents[0].noise.linear.scale
    drawn = np.array([plan.run(seed=k, verbose=False)["w"][0] for k in range(300)])
    x = np.array([1.0, 0.8, -0.5])

    def below(t):  # w is at most t where -b is at most the slope there
        slope = (x[:, None] / (1 + np.exp(-np.outer(x, np.atleast_1d(t))))).sum(axis=0)
        return stats.laplace(scale=scale).cdf(slope + 2 * np.atleast_1d(t))

    at_end = int((drawn > 1.499).sum())
    assert stats.binomtest(at_end, 300, float(1 - below(1.5)[0])).pvalue > 1e-6
    inner = drawn[drawn <= 1.499]
    assert stats.kstest(inner, lambda t: below(t) / below(1.5)).pvalue > 1e-6


def test_what_is_charged_is_pure_whatever_delta_is():
    for delta in (0, 1e-6):
        plan = dp.Problem([clinic()]).plan(dp.ObjectivePerturbation(1.0), epsilon=0.7, delta=delta)
        assert plan.guarantee.epsilon == pytest.approx(0.7)
        result = plan.run(seed=1)
        (entry,) = result.ledger["clinic 0"].entries
        assert entry.stated == (pytest.approx(0.7), 0.0)
        assert result.ledger.spent() == pytest.approx(0.7)
        assert entry.released == "minimizer of the perturbed objective"


def test_ledgers_hold_it_beside_runs_with_other_noise(tmp_path):
    """What has no delta may follow any noise: epsilons add up."""
    path, problem = tmp_path / "ledger.jsonl", dp.Problem([clinic()])
    steps = problem.plan(dp.FederatedGradient(0.01), rounds=2, epsilon=0.5, delta=1e-6)
    steps.run(ledger=path, verbose=False)
    both = problem.plan(
        dp.ObjectivePerturbation(1.0), mechanism=dp.Laplace(release_epsilon=0.7), epsilon=2.0,
        delta=1e-6,
    ).run(ledger=path, verbose=False)  # fmt: skip
    assert both.ledger.spent() == pytest.approx(1.2, rel=0.01)


def test_several_minimizers_are_averaged_by_their_records():
    w = cp.Variable(D, name="w")
    parts = [records(20, seed=1), records(60, seed=2)]
    agents = [clinic(data, k, w) for k, data in enumerate(parts)]
    # Sets alone are public, and hold the mean.
    agents.append(dp.Agent(cp.Minimize(0), [w <= 0.4], name="rule"))
    result = dp.Problem(agents).plan(dp.ObjectivePerturbation(0.0), mechanism=None).run()
    own = [solved(*data, 0.5) for data in parts]
    mean = (20 * own[0] + 60 * own[1]) / 80
    assert np.allclose(result["w"], np.minimum(mean, 0.4), atol=1e-5)
    assert mean.max() > 0.41


@pytest.mark.parametrize("weight", [-1.0, math.inf, "much"])
def test_weights_are_numbers_of_at_least_zero(weight):
    with pytest.raises(dp.ModelError, match="regularization"):
        dp.ObjectivePerturbation(weight)


def test_a_budget_that_the_determinant_uses_up_is_refused():
    with pytest.raises(dp.PrivacyError, match="Write a larger regularization="):
        planned(clinic(weight=0.0), epsilon=0.1, weight=0.01)


def test_gaussian_noise_is_refused():
    with pytest.raises(dp.PrivacyError, match="has a guarantee at delta=0"):
        dp.Problem([clinic()]).plan(
            dp.ObjectivePerturbation(1.0), mechanism="gaussian", epsilon=1.0, delta=1e-6
        )


def test_public_objectives_are_refused():
    w = cp.Variable(D, name="w")
    public = dp.Agent(cp.Minimize(cp.sum_squares(w)), name="prior")
    with pytest.raises(dp.ModelError, match="Add its objective to the objective of an agent"):
        dp.Problem([clinic(w=w), public]).plan(dp.ObjectivePerturbation(1.0), epsilon=1.0, delta=0)


def test_a_smaller_quadratic_than_planned_is_not_asked_for():
    """An agent that searched with another weight would release what was not priced."""
    plan = planned(clinic())

    class Looser(dp.ObjectivePerturbation):
        def act(self, local, state, t, k, message, oracle):
            return dp.ObjectivePerturbation(0.1).act(local, state, t, k, message, oracle)

    loose = dp.Problem([clinic()]).plan(Looser(1.0), epsilon=1.0, delta=0)
    with pytest.raises(Exception, match="another quadratic"):
        loose.run(seed=1)
    assert plan.run(seed=1).status.name == "COMPLETED"
