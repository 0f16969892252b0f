"""Squares of many entries: bounds of their second derivatives, which are not formed."""

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.linalg import svds

import dpcvx as dp
from dpcvx.model import matrices
from dpcvx.model.curvature import (
    convex,
    curvature,
    mean_curvature,
    record_smoothness,
    smoothness,
    strong_convexity,
)
from dpcvx.model.quadratic import hessian, quadratic
from tests import spies
from tests.forms import form_of

ROWS, N = 30, 8
w = cp.Variable(N, name="w")
y = dp.Private(shape=ROWS, name="y", adjacency=dp.Rows(1.0))
MODELS = {
    "squares": lambda X: cp.sum_squares(X @ w - y) / 3,
    "weighted": lambda X: np.arange(ROWS) @ cp.square(X @ w - y),
    "with ridge": lambda X: cp.sum_squares(X @ w - y) + 0.7 * cp.sum_squares(w),
    "beside logistic": lambda X: cp.sum_squares(X @ w) + cp.sum(cp.logistic(cp.multiply(y, X @ w))),
}


def nothing_formed(patch):
    """Squares of more multiplications than two per entry of x are wide."""
    spies.change(patch, "largest dense eigenvalue problem", 2)
    for function in (matrices.is_wide, matrices.stretch):
        patch.setattr(function, "__defaults__", (2.0 * N,))


def features(seed, density=0.4):
    rng = np.random.default_rng(seed)
    return sp.random_array(
        (ROWS, N), density=density, random_state=rng, data_sampler=rng.standard_normal, format="csr"
    )


@pytest.mark.parametrize("model", MODELS)
@settings(max_examples=20)
@given(seed=st.integers(0, 2**32 - 1), density=st.sampled_from([0.15, 0.4, 1.0]))
def test_bounds_hold_and_are_near(model, seed, density):
    X = features(seed, density)
    exact = form_of(MODELS[model](X))[1]
    H, L = hessian(exact)[0].toarray(), smoothness(exact)
    low, high = curvature(exact).ends
    known = strong_convexity(exact), mean_curvature(exact), record_smoothness(exact)
    assert not quadratic(exact).wide
    with pytest.MonkeyPatch.context() as patch:
        nothing_formed(patch)
        form = form_of(MODELS[model](X))[1]
        assert quadratic(form).wide
        # At most a row sum of |X|'|X|, whose largest eigenvalue is the squared norm of |X|.
        assert L * (1 - 1e-9) <= smoothness(form) <= N**1.5 * L * (1 + 1e-6)
        assert 0 <= strong_convexity(form) <= known[0] + 1e-9
        assert mean_curvature(form) >= known[1] * (1 - 1e-9)
        if "logistic" not in model:
            assert mean_curvature(form) == pytest.approx(known[1], rel=1e-9)
        assert known[2] * (1 - 1e-9) <= record_smoothness(form) <= N**1.5 * known[2] * (1 + 1e-6)
        assert convex(form)
        ends = curvature(form).ends
        assert ends[0] <= low + 1e-9 and ends[1] >= high - 1e-9
        np.testing.assert_allclose(hessian(form)[0].toarray(), H, atol=1e-12)


@pytest.mark.parametrize("seed", range(2))
def test_bounds_are_near_for_sparse_rows(seed):
    """Three entries a row: within a factor of 3, as the docs say of rows with few entries."""
    rng = np.random.default_rng(seed)
    count, n = 2000, 1600
    places = np.sort(rng.integers(0, n, size=(count, 3))).ravel()
    X = sp.csr_array(
        (rng.normal(size=places.size), places, np.arange(0, 3 * count + 1, 3)), (count, n)
    )
    X.sum_duplicates()
    exact = float(svds(X, k=1, return_singular_vectors=False, v0=np.ones(n))[0])
    assert exact * (1 - 1e-9) <= matrices.stretch(X, work=1.0) <= np.sqrt(3) * exact


CONCAVE = {
    "a negative weight": lambda X: -cp.sum_squares(X @ w - y),
    "a negative denominator": lambda X: cp.quad_over_lin(X @ w - y, -1.0),
}


@pytest.mark.parametrize("model", CONCAVE)
def test_what_is_not_convex_bends_downwards_and_has_no_modulus(model):
    concave = CONCAVE[model](features(0))
    low, high = curvature(form_of(concave)[1]).ends
    with pytest.MonkeyPatch.context() as patch:
        nothing_formed(patch)
        form, raised = (form_of(f)[1] for f in (concave, concave + 3 * cp.sum_squares(w)))
        assert quadratic(form).wide and quadratic(raised).wide
        ends = curvature(form).ends
        assert ends[0] <= low + 1e-9 and high <= ends[1] + 1e-9 and ends[1] == 0
        assert strong_convexity(raised) == 0.0 and not convex(raised)
