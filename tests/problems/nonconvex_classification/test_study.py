"""The model: constants, gradients, stationary points, the gap; quadratics; rates of DPP2."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from dpcvx.model.curvature import convex, smoothness
from dpcvx.sensitivity.derivation import derive
from dpcvx.solvers.projector import Extent
from problems.nonconvex_classification import (
    ClassificationError,
    Measures,
    Penalty,
    Records,
    classification,
    data_of,
    gradients,
    made_shares,
    objective,
    stationary_point,
)
from problems.nonconvex_classification.quadratics import quadratics
from problems.nonconvex_classification.study import hessian
from tests.forms import difference_quotients, form_of

N, EACH, SIZE = 4, 12, 3
SHARES = made_shares(N, EACH, SIZE, heterogeneity=0.5, seed=7)
RNG = np.random.default_rng(8)


@pytest.fixture(scope="module")
def study():
    return classification(N, EACH, SIZE, bound=SHARES.bound, penalty=Penalty(0.2, 1.5), ridge=0.01)


@pytest.fixture(scope="module")
def papers():
    return classification(bound=made_shares().bound)


def forms(problem):
    return [form_of(agent.objective.expr)[1] for agent in problem.agents]


def everywhere(form):
    open_ends = np.full(form.n, np.inf)
    return lambda: Extent(-open_ends, open_ends)


# Constants ----------------------------------------------------------------------------------


def test_the_papers_constants_are_derived(papers):
    assert papers.agents == 50 and papers.smoothness == pytest.approx(5.03)
    form = forms(papers.problem)[0]
    assert form.n == 10 and smoothness(form) == pytest.approx(5.03)
    found = derive(form, "agent 0", everywhere(form))
    assert found.bound(2).value == pytest.approx(papers.sensitivity, rel=1e-6)
    assert papers.sensitivity == pytest.approx(2 * papers.bound / 200)
    # Nonconvex, and said to be so.
    assert papers.strong_convexity == 0 and not convex(form)
    assert not papers.problem.agents[0].objective.is_dcp()


def test_a_replaced_record_moves_the_gradient_as_far_as_derived(study):
    # A person about whom the model is quite wrong, and the opposite one.
    x = np.zeros(SIZE)
    x[0] = 100.0
    Z = np.zeros((EACH, SIZE))
    Z[0, 0] = study.bound
    pair = [Records(Z, np.r_[sign, np.ones(EACH - 1)]) for sign in (-1.0, 1.0)]
    other = [Records(-Z, np.ones(EACH)), Records(Z, np.ones(EACH))]
    for parts in (pair, other):
        moved = np.subtract(*gradients(study, parts, np.tile(x, (2, 1))))
        assert np.linalg.norm(moved) == pytest.approx(study.bound / EACH)
    # Twice as far if the replaced one is wrong on the other side.
    tilted = Z.copy()
    x[:2], tilted[0, :2] = (-50, 100), study.bound * np.array([0.8, 0.6])
    far = [Records(Z, np.ones(EACH)), Records(tilted, -np.ones(EACH))]
    moved = np.linalg.norm(np.subtract(*gradients(study, far, np.tile(x, (2, 1)))))
    assert 0.9 * study.sensitivity < moved <= study.sensitivity


@settings(max_examples=50)
@given(seed=st.integers(0, 10**6), spread=st.sampled_from([0.1, 1.0, 10.0]))
def test_gradients_move_at_most_by_the_smoothness_and_at_least_by_the_convexity(seed, spread):
    convex_one = classification(N, EACH, SIZE, bound=SHARES.bound, penalty=Penalty(0.2), ridge=0.3)
    assert convex_one.strong_convexity == pytest.approx(0.3 - 0.1)
    rng = np.random.default_rng(seed)
    X, step = spread * rng.normal(size=(2, N, SIZE))
    moved = gradients(convex_one, SHARES.parts, X + step) - gradients(convex_one, SHARES.parts, X)
    lengths = np.linalg.norm(step, axis=1)
    assert (np.linalg.norm(moved, axis=1) <= convex_one.smoothness * lengths * (1 + 1e-9)).all()
    rise = (moved * step).sum(axis=1)
    assert (rise >= convex_one.strong_convexity * lengths**2 * (1 - 1e-9)).all()


@given(omega=st.floats(0.01, 100), weight=st.floats(0.01, 100))
def test_the_penaltys_curvature_attains_its_ends(omega, weight):
    penalty = Penalty(weight, omega)
    x = np.concatenate([np.linspace(-5, 5, 1001), [1.0]]) / np.sqrt(omega)
    bent = penalty.curvature(x)
    assert bent.max() == pytest.approx(penalty.smoothness)
    assert bent.min() == pytest.approx(-penalty.concavity)


# Gradients ----------------------------------------------------------------------------------


def test_the_agents_objective_is_the_one_that_is_measured(study):
    X = RNG.normal(size=(5, N, SIZE))
    data = data_of(SHARES.parts)
    found = gradients(study, SHARES.parts, X)
    assert found.shape == X.shape
    for k, form in enumerate(forms(study.problem)):
        # In the order of the form's parameters.
        own = {2: data[f"features {k}"], 1: data[f"labels {k}"]}
        bound = form.bind([np.ravel(own[len(s.shape)], order="F") for s in form.private])
        for x, expected in zip(X[:, k], found[:, k], strict=True):
            np.testing.assert_allclose(bound.gradient(x), expected, atol=1e-12)
            assert bound.value(x) == pytest.approx(objective(study, [SHARES.parts[k]], x).item())


def test_gradients_and_hessians_are_derivatives(study):
    x = RNG.normal(size=SIZE)

    def slope(x):
        return gradients(study, SHARES.parts, np.tile(x, (N, 1))).sum(axis=0)

    expected = difference_quotients(lambda x: objective(study, SHARES.parts, x), x)
    np.testing.assert_allclose(slope(x), expected, atol=1e-8)
    expected = difference_quotients(slope, x)
    np.testing.assert_allclose(hessian(study, SHARES.parts, x), expected, atol=1e-8)


# Stationary points and the gap --------------------------------------------------------------


def test_the_stationary_point_is_one(papers):
    shares = made_shares(heterogeneity=0.3)
    best = stationary_point(papers, shares.parts)
    X = np.tile(best, (50, 1))
    assert np.linalg.norm(gradients(papers, shares.parts, X).sum(axis=0)) < 1e-10
    # Another search from elsewhere finds no lower value nearby.
    other = minimize(
        lambda x: objective(papers, shares.parts, x), best + 0.5 * RNG.normal(size=10), tol=1e-8
    )
    assert objective(papers, shares.parts, best) <= other.fun + 1e-9
    np.testing.assert_allclose(other.x, best, atol=1e-5)


def test_with_strongly_convex_objectives_the_start_does_not_matter():
    ridge = classification(N, EACH, SIZE, bound=SHARES.bound, penalty=Penalty(0.2), ridge=0.3)
    found = [stationary_point(ridge, SHARES.parts, 10 * RNG.normal(size=SIZE)) for _ in range(5)]
    for x in found:
        np.testing.assert_allclose(x, stationary_point(ridge, SHARES.parts), atol=1e-10)


def test_the_gap_is_the_papers(study):
    measures = Measures.of(study, SHARES.parts)
    at_best = np.tile(measures.best, (N, 1))
    assert measures.gap(at_best) < 1e-20 and abs(measures.excess(at_best)) < 1e-12
    # Gradients of agents do not vanish one by one.
    assert measures.stacked(at_best) > 1e-3
    X = RNG.normal(size=(6, N, SIZE))
    assert measures.gap(X).shape == measures.stacked(X).shape == (6,)
    for points, gap, stacked in zip(X, measures.gap(X), measures.stacked(X), strict=True):
        center = sum(points) / N
        apart = sum((x - center) @ (x - center) for x in points)
        slopes = [
            gradients(study, [p], x[None])[0] for p, x in zip(SHARES.parts, points, strict=True)
        ]
        assert gap == pytest.approx(apart + sum(slopes) @ sum(slopes) / N)
        assert stacked == pytest.approx(sum(g @ g for g in slopes) / N**2)
    assert (measures.excess(X) > 0).all()


# Quadratics ---------------------------------------------------------------------------------


def test_the_gap_of_quadratics_is_that_of_their_gradients():
    A = np.array([np.diag([1.0, -0.3]), np.diag([2.0, 1.0])])
    model, centers = quadratics(A), RNG.normal(size=(2, 2))
    for k, form in enumerate(forms(model.problem)):
        x = RNG.normal(size=2)
        expected = model.gradients(centers, np.tile(x, (2, 1)))[k]
        np.testing.assert_allclose(form.bind([centers[k]]).gradient(x), expected)
    best = np.linalg.solve(A.sum(axis=0), np.einsum("nij,nj->i", A, centers))
    at_best = np.tile(best, (2, 1))
    assert model.gap(centers, at_best) < 1e-24 < model.gap(centers, at_best + np.eye(2))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: classification(0, bound=1.0), "agents=0"),
        (lambda: classification(2, bound=0.0), "bound=0.0"),
        (lambda: classification(2, bound=1.0, ridge=-1.0), "ridge=-1.0"),
        (lambda: stationary_point(classification(1, 1, 1, bound=1.0), []), "no parts"),
    ],
)
def test_broken_models_are_refused(make, message):
    with pytest.raises(ClassificationError, match=message):
        make()


def test_a_search_that_ends_where_the_objective_is_not_convex_is_refused():
    # Without features, the penalty alone is left, which is flat and concave far out.
    blank = Records(np.zeros((2, 1)), np.array([1.0, -1.0]))
    model = classification(1, 2, 1, bound=1.0)
    assert stationary_point(model, [blank], np.ones(1)) == pytest.approx(0, abs=1e-9)
    with pytest.raises(ClassificationError, match="is not convex"):
        stationary_point(model, [blank], np.array([1e5]))
