"""The model: its objective, its optimum, its sensitivity, and what is measured of it."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import dpcvx as dp
from problems.census.errors import CensusError
from problems.census.measures import Measures, right
from problems.census.methods import METHODS, Budget, named
from problems.census.records import Records, made_records, shared_out
from problems.census.study import census, gradients, objective, optimum
from problems.labeled import data_of

SHARES = shared_out(made_records(120, seed=3), 4, 20, seed=1)


@pytest.fixture(scope="module")
def study():
    return census(4, 20, 14)


def test_the_optimum_is_scikit_learns():
    Z = np.concatenate([part.features for part in SHARES.parts])
    labels = np.concatenate([part.labels for part in SHARES.parts])
    # Its losses are summed; its regularizer is the same.
    reference = LogisticRegression(C=1 / 80, fit_intercept=False, tol=1e-10).fit(Z, labels)
    found = optimum(SHARES.parts)
    np.testing.assert_allclose(found, reference.coef_[0], atol=1e-6)
    value = np.logaddexp(0, -labels * (Z @ found)).mean() + found @ found / 2
    assert objective(SHARES.parts, found) == pytest.approx(4 * value)
    gradient = gradients(SHARES.parts, np.tile(found, (4, 1))).sum(axis=0)
    np.testing.assert_allclose(gradient, 0, atol=1e-12)


def test_the_agents_objective_is_the_one_that_is_measured(study):
    X = np.random.default_rng(2).normal(size=(4, 14))
    data = data_of(SHARES.parts)
    plan = study.problem.plan(dp.DecentralizedGradient(step=1.0), mechanism=None, rounds=1)
    result = plan.run(data=data, seed=0, record=True, verbose=False)
    # From 0 with step 1, agents send minus their gradients.
    sent = np.array([release.value for release in result.transcript.releases])
    np.testing.assert_allclose(sent, -gradients(SHARES.parts, 0 * X), atol=1e-12)
    for i, part in enumerate(SHARES.parts):
        points = X[i] + 1e-6 * np.concatenate([np.eye(14), -np.eye(14)])
        up, down = objective([part], points).reshape(2, 14)
        np.testing.assert_allclose(gradients(SHARES.parts, X)[i], (up - down) / 2e-6, atol=1e-8)


def test_a_replaced_record_moves_the_gradient_as_far_as_derived(study):
    plan = METHODS[0].plan(study, 4, 0, 3, Budget.of(1, 3))
    sensitivity = plan.agents[0].sensitivity
    assert sensitivity.bound(2).value == pytest.approx(2 / 20)
    assert sensitivity.bound(1).value == pytest.approx(2 * np.sqrt(14) / 20, rel=1e-3)
    # Twice 1/b is no exaggeration: two people about whom the model is quite wrong.
    x, one, other = np.zeros((3, 14))
    x[:2], one[0], other[:2] = (-50, 100), 1, (0.8, 0.6)
    pair = [Records(one[None], np.ones(1)), Records(other[None], -np.ones(1))]
    moved = np.subtract(*gradients(pair, np.tile(x, (2, 1))))
    assert np.abs(moved).max() == pytest.approx(1.8)


def test_two_runs_on_neighboring_data_agree(study):
    # One random rule, one with exact steps, one that moves single entries, with noise that falls;
    # conformance tests have them all.
    small = census(2, 5, 3)
    rng = np.random.default_rng(0)
    parts = [Records(rng.uniform(0, 0.5, (5, 3)), rng.choice([-1.0, 1.0], 5)) for _ in range(2)]
    for method in named("Algorithm 2", "Output perturbation (exact steps)", "Random coordinates"):
        plan = method.plan(small, 1, 0, 3, Budget.of(1, 3, "Gaussian", 0.9))
        assert dp.check_sensitivity(plan, data=data_of(parts)).passed, method.name


def test_labels_0_and_1_are_no_logistic_regression():
    coded = optimum(SHARES.parts, [(part.labels + 1) / 2 for part in SHARES.parts])
    # Only those with a high income count: everyone is predicted to have one.
    assert right(SHARES.test, coded) == (SHARES.test.labels > 0).mean()
    assert right(SHARES.test, optimum(SHARES.parts)) > 0.5


def test_measures_are_zero_at_the_optimum_and_have_the_shape_of_the_points():
    measures = Measures.of(SHARES)
    assert measures.distance(measures.best) == 0
    assert measures.gap(measures.best) == pytest.approx(0, abs=1e-14)
    X = np.random.default_rng(1).normal(size=(3, 4, 14))
    assert measures.distance(X).shape == measures.gap(X).shape == right(SHARES.test, X).shape
    assert (measures.gap(X) > 0).all()
    assert measures.distance(measures.best + np.eye(14)[0]) == pytest.approx(1 / 14)
    share = np.mean((SHARES.test.features @ X[0, 0] > 0) == (SHARES.test.labels > 0))
    assert right(SHARES.test, X)[0, 0] == share


def test_no_parts_are_refused():
    with pytest.raises(CensusError, match="no parts"):
        optimum([])
