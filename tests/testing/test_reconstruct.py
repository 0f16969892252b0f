"""What the attack recovers, and what it cannot."""

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpcvx as dp

LOAD = np.array([3.0, 5.0, 1.0])


def problem(model=lambda x, load: cp.sum_squares(x - load), data=LOAD, **declared):
    x = cp.Variable(data.size, name="x")
    load = dp.Private(data, name="load", adjacency=dp.Within(0.1), **declared)
    owner = dp.Agent(cp.Minimize(model(x, load)), [cp.abs(x) <= 9], name="owner")
    other = dp.Agent(cp.Minimize(cp.sum_squares(x)), [cp.abs(x) <= 9], name="other")
    return dp.Problem([owner, other])


def attacked(model, *arguments, seed=0, **keywords):
    plan = model.plan(*arguments, **keywords)
    return dp.reconstruct(plan, plan.run(seed=seed, record=True).transcript)


METHODS = [
    dp.LinearizedADMM(),
    dp.LinearizedADMM(local_updates=3),
    dp.ADMM(),
    dp.FederatedGradient(),
    dp.FederatedAveraging(),
    dp.PrimalDual(),
    dp.DecentralizedGradient(),
    dp.DecentralizedADMM(randomness=0),
]


@pytest.mark.parametrize("method", METHODS, ids=lambda m: f"{m}"[:30])
def test_without_noise_the_data_come_back(method):
    found = attacked(problem(), method, mechanism=None, rounds=2)
    assert np.allclose(found["load"], LOAD, atol=1e-9)
    assert not found.noisy and (found.spread("load") == 0).all()


@settings(max_examples=15, deadline=None)
@given(st.lists(st.floats(-5, 5), min_size=9, max_size=9), st.integers(1, 3))
def test_what_comes_back_explains_every_gradient(entries, columns):
    """Of data that J does not tell apart, the shortest with the same image."""
    A = np.array(entries).reshape(3, 3).round(2)[:, :columns]
    if not A.any():
        return
    load = dp.Private(LOAD[:columns], name="load", adjacency=dp.Within(0.1))
    x = cp.Variable(3, name="x")
    agent = dp.Agent(cp.Minimize(cp.sum_squares(x - A @ load)), [cp.abs(x) <= 9], name="owner")
    found = attacked(dp.Problem([agent]), dp.LinearizedADMM(), mechanism=None, rounds=1)
    told = np.linalg.pinv(A) @ A
    assert np.allclose(found["load"], told @ LOAD[:columns], atol=1e-6)
    apart = np.isclose(np.diag(told), 1, atol=1e-9)
    assert (np.isfinite(found.spread("load")) == apart).all()


@pytest.mark.parametrize(
    "plan",
    [
        dict(algorithm=dp.LinearizedADMM(), rounds=7),
        dict(algorithm=dp.LinearizedADMM(), mechanism=dp.Gaussian(decay=0.8), rounds=7),
        dict(algorithm=dp.FederatedGradient(), mechanism="laplace", rounds=3),
        dict(algorithm=dp.FederatedAveraging(), rounds=5),
        dict(algorithm=dp.DecentralizedGradient(), rounds=4),
        dict(algorithm=dp.DecentralizedGradient(coordinates=8), rounds=6),
        dict(release="once"),
        dict(release="once", mechanism="gaussian"),
    ],
    ids=str,
)
def test_the_errors_are_as_large_as_is_said(plan):
    loads = np.linspace(-5, 5, 12)
    made = problem(data=loads).plan(epsilon=1.0, delta=1e-6, **plan)
    attacks = [dp.reconstruct(made, made.run(seed=k, record=True).transcript) for k in range(10)]
    scores = [(attack["load"] - loads) / attack.spread("load") for attack in attacks]
    # 120 numbers of variance one. The mean square of normal ones is within 0.6 to 1.5 but with
    # probability 2e-3; of Laplace ones, whose squares have variance 5, within 0.4 to 2 with 2e-3.
    normal = "laplace" not in str(made.guarantee.mechanism).lower()
    low, high = (0.6, 1.5) if normal else (0.35, 2.2)
    assert low < np.mean(np.square(scores)) < high


def test_more_of_the_budget_tells_more():
    spreads = [
        attacked(problem(), dp.LinearizedADMM(), rounds=5, epsilon=e, delta=1e-6).spread("load")[0]
        for e in (0.1, 1.0, 10.0)
    ]
    assert spreads[0] > 5 * spreads[1] > 20 * spreads[2]


def test_declared_signs_are_kept():
    found = attacked(problem(nonneg=True), dp.LinearizedADMM(), epsilon=0.01, delta=1e-6, rounds=2)
    assert (found["load"] >= 0).all()


def test_data_on_which_no_gradient_depends_are_not_told():
    model = problem(lambda x, load: cp.sum_squares(x) + cp.sum_squares(load))
    found = attacked(model, dp.LinearizedADMM(), mechanism=None, rounds=1)
    assert np.isinf(found.spread("load")).all() and "no entry is told" in str(found)


def test_a_ledger_file_tells_as_much(tmp_path):
    plan = problem().plan(dp.LinearizedADMM(), rounds=4, epsilon=1.0, delta=1e-6)
    result = plan.run(seed=0, record=True, ledger=tmp_path / "spent.jsonl")
    from_file = dp.reconstruct(plan, tmp_path / "spent.jsonl")
    assert np.array_equal(from_file["load"], dp.reconstruct(plan, result.transcript)["load"])


def test_what_is_said():
    found = attacked(problem(), dp.LinearizedADMM(), rounds=4, epsilon=1.0, delta=1e-6)
    assert "4 releases with noise" in str(found) and "3 entries, deviation 0.42" in str(found)
    assert repr(found) == "<Reconstruction: 1 private object from 4 releases>"
    with pytest.raises(dp.ModelError, match="no private object has that name"):
        found["lod"]


def test_what_is_no_affine_gradient_is_refused():
    weights = problem(lambda x, d: cp.sum(cp.multiply(d, cp.square(x))), nonneg=True)
    with pytest.raises(dp.ModelError, match="the gradient of agent 'owner' is not"):
        attacked(weights, dp.LinearizedADMM(), mechanism=None, rounds=1)
    for ends in (dp.LinearizedADMM(perturb="output"), dp.DecentralizedADMM(exact=True)):
        with pytest.raises(dp.ModelError, match="gradients, and agent 'owner' releases the"):
            attacked(problem(), ends, rounds=1, epsilon=1.0, delta=1e-6)


def test_steps_from_secret_points_tell_no_gradient():
    """The weights of the paper's method are the agent's own; fixed ones are everybody's."""
    for method in (dp.DecentralizedADMM(), dp.DecentralizedGradient(aggregate="range")):
        with pytest.raises(dp.ModelError, match="'owner' uses random numbers"):
            attacked(problem(), method, mechanism=None, rounds=2)


def test_components_that_never_left_are_not_told():
    one = dp.DecentralizedGradient(coordinates=1)
    spreads = attacked(problem(), one, epsilon=1.0, delta=1e-6, rounds=1).spread("load")
    assert np.isfinite(spreads).sum() == 1 and np.isinf(spreads).sum() == 2


def test_another_plans_transcript_is_refused():
    one = problem().plan(dp.LinearizedADMM(), rounds=1, epsilon=1.0, delta=1e-6)
    two = problem().plan(dp.LinearizedADMM(), rounds=2, epsilon=1.0, delta=1e-6)
    with pytest.raises(dp.PrivacyError, match="another plan"):
        dp.reconstruct(two, one.run(seed=0, record=True).transcript)
    with pytest.raises(dp.ModelError, match="is no transcript"):
        dp.reconstruct(one, None)
