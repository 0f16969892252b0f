"""Symmetric and positive semidefinite private matrices: what one change does, and what is refused.

An entry and its mirror image are one entry. Bounds are held against neighbors that move the
gradient as far as any does, found without the package.
"""

import itertools
import math
import pickle

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpcvx as dp
from dpcvx.model.adjacency import MirroredWithin
from dpcvx.sensitivity.derivation import derive
from dpcvx.solvers.projector import Extent
from tests.forms import form_of

NORMS = ["entry", 1, 2, "inf"]
norms = pytest.mark.parametrize("norm", NORMS)
RADIUS = 0.3


def matrix(n, norm="entry", **kind):
    kind = kind or {"PSD": True}
    return dp.Private(shape=(n, n), adjacency=dp.Within(RADIUS, norm), name="P", **kind)


def units(n):
    """Symmetric matrices with one entry and its mirror image."""
    found = []
    for i, j in itertools.combinations_with_replacement(range(n), 2):
        E = np.zeros((n, n))
        E[i, j] = E[j, i] = 1.0
        found.append(E)
    return found


def size(E, norm):
    order = math.inf if norm in ("entry", "inf") else norm
    return float(np.linalg.norm(E.ravel(), order))


def attacks(n, norm, effect):
    """Symmetric changes of size one that move a linear effect as far as any, or nearly so."""
    basis = units(n)
    if norm in ("entry", 1):  # the corners of the ball
        return [E / size(E, norm) for E in basis]
    if norm == "inf":  # corners again, one of each pair of opposite ones
        signs = itertools.product((1.0, -1.0), repeat=len(basis) - 1)
        return [sum(s * E for s, E in zip((1.0, *s), basis, strict=True)) for s in signs]
    basis = [E / size(E, 2) for E in basis]
    A = np.array([effect(E) for E in basis]).T
    # In l1 the best change is that for a pattern of signs of its effect.
    patterns = itertools.product((1.0, -1.0), repeat=A.shape[0])
    tried = [np.linalg.svd(A)[2][0], *(A.T @ np.array(s) for s in patterns)]
    found = [c / np.linalg.norm(c) for c in tried if np.linalg.norm(c) > 1e-200]
    return [sum(a * E for a, E in zip(c, basis, strict=True)) for c in found]


def objectives(n, P, draw):
    """A quadratic form, a linear one, and both, at affine arguments."""
    x = cp.Variable(n)
    B, h, C = draw.normal(size=(n, n)), draw.normal(size=n), draw.normal(size=(n, n))
    linear = cp.trace(C @ P) * cp.sum(x) + cp.sum(cp.multiply(P @ C, cp.diag(x)))
    return {
        "quadratic form": cp.quad_form(x, P),
        "of affine arguments": 0.7 * cp.quad_form(B @ x + h, P + 2 * np.eye(n)),
        "linear": linear,
        "both": 2 * cp.quad_form(x - h, P) + linear,
    }


@pytest.mark.parametrize("case", ["quadratic form", "of affine arguments", "linear", "both"])
@norms
@settings(max_examples=8)
@given(
    n=st.integers(1, 3),
    seed=st.integers(0, 10**6),
    p=st.sampled_from([1, 2]),
    share=st.sampled_from([0.0, 0.5, 1.0]),
)
def test_the_worst_neighbor_moves_the_gradient_by_the_bound(case, norm, n, seed, p, share):
    draw = np.random.default_rng(seed)
    P = matrix(n, norm)
    form = form_of(objectives(n, P, draw)[case])[1]
    free = np.full(form.n, np.inf)
    found = derive(form, "north", lambda: Extent(-free, free))
    x, base = draw.normal(size=form.n) * (draw.uniform(size=form.n) < share), 10 * np.eye(n)

    def gradient(M):
        return form.bind([P.spec.kept(M)]).gradient(x)

    def effect(E):
        return gradient(base + E) - gradient(base)

    bound = found.bound(p, None, x)
    moved = max(float(np.linalg.norm(effect(RADIUS * E), p)) for E in attacks(n, norm, effect))
    assert moved <= bound.value * (1 + 1e-9)
    # Where the bound calls itself tight, these neighbors attain it; both are semidefinite.
    assert bound.tight and moved == pytest.approx(bound.value, rel=1e-6)


@norms
def test_a_bound_may_be_weighted(norm):
    P, x, scale = matrix(3, norm), np.array([1.0, -2.0, 0.5]), np.array([3.0, 0.1, 1.0])
    y = cp.Variable(3)
    form = form_of(cp.quad_form(y, P))[1]
    free = np.full(3, np.inf)
    found = derive(form, "north", lambda: Extent(-free, free))
    effect = lambda E: scale * 2 * RADIUS * (E @ x)  # noqa: E731
    moved = max(float(np.linalg.norm(effect(E))) for E in attacks(3, norm, effect))
    assert moved == pytest.approx(found.bound(2, scale, x).value, rel=1e-6)


@norms
@given(seed=st.integers(0, 10**6))
@settings(max_examples=10)
def test_kept_entries_measure_the_whole_difference(norm, seed):
    spec, draw = matrix(3, norm).spec, np.random.default_rng(seed)
    E = draw.normal(size=(3, 3))
    E = E + E.T
    if norm == "entry":
        E = units(3)[seed % 6] * E[0, 0]
    kept = spec.kept(E)
    assert spec.size == kept.size == 6
    assert np.array_equal(spec.shaped(kept), spec.shaped(kept).T)
    assert spec.shaped(kept) == pytest.approx(E)
    order = math.inf if norm in ("entry", "inf") else norm
    assert np.linalg.norm(kept, order) == pytest.approx(size(E, norm))
    near = RADIUS / size(E, norm) * E
    assert spec.adjacency.allows(near, 0 * E) and not spec.adjacency.allows(1.01 * near, 0 * E)


def portfolio(S, norm="entry", **kind):
    x, kind = cp.Variable(3, name="x"), kind or {"PSD": True}
    P = dp.Private(S, adjacency=dp.Within(0.01, norm), name="covariance", **kind)
    desk = dp.Agent(cp.Minimize(cp.quad_form(x, P)), [cp.sum(x) == 1, x >= 0], name="desk")
    return dp.Problem([desk, dp.Agent(cp.Minimize(cp.sum_squares(x) / 50), name="risk")]), x


S = np.array([[1.0, 0.2, 0.1], [0.2, 0.6, 0.0], [0.1, 0.0, 0.8]])


@pytest.mark.parametrize("release", ["each_step", "once"])
@norms
def test_replayed_runs_move_by_what_was_charged(norm, release):
    problem, _ = portfolio(S, norm)
    method = dp.LinearizedADMM(step=0.3)
    plan = problem.plan(method, rounds=4, epsilon=1.0, delta=1e-6, release=release)
    report = dp.check_sensitivity(plan)
    assert report.passed and 0.4 <= report.agents[0].ratio <= 1 + 1e-9


def test_replays_find_neighbors_of_matrices_at_the_edge():
    flat = np.ones((3, 3))  # of rank 1: most changes leave the semidefinite matrices
    problem, _ = portfolio(flat)
    plan = problem.plan(dp.LinearizedADMM(step=0.3), rounds=4, epsilon=1.0, delta=1e-6)
    assert dp.check_sensitivity(plan).passed


def test_surrogates_are_symmetric_and_semidefinite():
    problem, x = portfolio(0.01 * np.ones((3, 3)))
    plan = problem.plan(dp.OneShot(), epsilon=0.1, delta=1e-6, release="once")
    found = plan.run(seed=5, record=True, verbose=False)
    (released,) = found.transcript.releases
    agent = plan.agent("desk")
    assert released.value.size == 6
    spec = agent.program.form.private[0]
    noisy = spec.shaped(released.value / agent.publication.encode.diagonal())
    left = spec.shaped(agent.publication.restore(released.value)[0])
    values, vectors = np.linalg.eigh(noisy)
    assert values[0] < 0 and np.array_equal(left, left.T)
    assert left == pytest.approx((vectors * np.maximum(values, 0)) @ vectors.T)
    # The run ends at the optimum of what left.
    y = cp.Variable(3, nonneg=True)
    cost = cp.quad_form(y, cp.psd_wrap(left)) + cp.sum_squares(y) / 50
    cp.Problem(cp.Minimize(cost), [cp.sum(y) == 1]).solve(solver=cp.CLARABEL)
    assert found.last[x] == pytest.approx(y.value, abs=1e-4)


def test_words_and_ledgers_say_that_mirror_images_change_alike():
    problem, _ = portfolio(S)
    plan = problem.plan(dp.LinearizedADMM(step=0.3), rounds=2, epsilon=1.0, delta=1e-6)
    assert "one entry and its mirror image change by at most 0.01" in str(plan.guarantee)
    full, one = MirroredWithin(0.01).in_full, dp.Within(0.01).in_full
    assert full != one and "both triangles" in str(MirroredWithin(0.01, 2))


def test_data_have_to_be_what_was_declared():
    skew, negative = S + np.triu(S, 1), S - np.eye(3)
    for kind in ({"PSD": True}, {"symmetric": True}):
        with pytest.raises(dp.DataError, match=r"'covariance' are not the symmetric matrix"):
            portfolio(skew, **kind)
    with pytest.raises(dp.DataError, match=r"'covariance' have negative eigenvalues.*symmetric="):
        portfolio(negative)
    matrix(3, symmetric=True).spec.checked(negative)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"shape": (2, 3), "PSD": True}, "only square matrices"),
        ({"shape": 3, "symmetric": True}, "only square matrices"),
        ({"shape": (2, 2), "PSD": True, "nonneg": True}, "a sign of its entries at once"),
        ({"shape": (2, 2), "symmetric": True, "adjacency": dp.Rows(1.0)}, "dp.Rows at once"),
        ({"shape": (2, 2), "PSD": "yes"}, "PSD="),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_declarations_that_contradict_themselves_are_refused(arguments, words):
    with pytest.raises(dp.ModelError, match=words):
        dp.Private(**{"adjacency": dp.Within(1.0), "name": "P", **arguments})


def test_stand_ins_are_symmetric_as_well():
    kind = {"PSD": True, "adjacency": dp.Within(0.01), "name": "P"}
    with pytest.raises(dp.DataError, match="'P' are not the symmetric|not the symmetric matrix"):
        dp.Private(S, **kind, proxy=np.triu(S))
    x, P = cp.Variable(3, name="x"), dp.Private(S, **kind, proxy=np.eye(3))
    desk = dp.Agent(cp.Minimize(cp.quad_form(x, P) - cp.sum(x)), [cp.abs(x) <= 2], name="desk")
    found = dp.Problem([desk]).solve(epsilon=1.0, delta=1e-6, seed=1, verbose=False)
    assert found.solution[x] == pytest.approx(np.linalg.solve(2 * S, np.ones(3)), abs=0.2)


def test_copies_stay_semidefinite_and_drop_the_data():
    twin = pickle.loads(pickle.dumps(dp.Private(S, PSD=True, adjacency=dp.Within(0.1))))
    assert twin.is_psd() and twin.spec.psd and not twin.bound
