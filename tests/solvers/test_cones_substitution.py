"""Equalities taken out: what is left are all of their points, and nothing else."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from dpcvx.model.canonical import ConeData, Cones
from dpcvx.solvers.cones import substituted


def data_of(E, f, G=None, h=None):
    E = np.atleast_2d(np.asarray(E, dtype=float))
    m, n = E.shape
    G = np.zeros((0, n)) if G is None else np.atleast_2d(G)
    h = np.zeros(0) if h is None else np.asarray(h, dtype=float)
    b = np.concatenate([np.asarray(f, dtype=float), h])
    cones = Cones(zero=m, nonneg=h.size)
    return ConeData(sp.csc_array((n, n)), np.zeros(n), sp.csc_array(np.vstack([E, G])), b, cones, n)


@given(st.integers(0, 10**6))
def test_every_point_that_is_left_keeps_the_equalities_and_none_is_lost(seed):
    rng = np.random.default_rng(seed)
    n, q = int(rng.integers(1, 12)), int(rng.integers(0, 6))
    E = np.round(rng.normal(size=(q, n)) * 4) * (rng.random((q, n)) < 0.5)
    E = np.vstack([E, E[:1] - 2 * E[-1:]]) if rng.integers(2) and q else E
    inside, G = rng.normal(size=n), rng.normal(size=(3, n))
    h = G @ inside + 1
    found = substituted(data_of(E.reshape(-1, n), E.reshape(-1, n) @ inside, G, h))
    assert found is not None
    free = n - (np.linalg.matrix_rank(E) if E.size else 0)
    assert found.Z.shape == (n, free) and found.free.size == free
    u = inside[found.free]
    # A free column is a component of x, so that the point that was hidden is found again.
    assert found.x0 + found.Z @ u == pytest.approx(inside, abs=1e-8)
    assert found.d - found.C @ u == pytest.approx(h - G @ inside, abs=1e-8)
    x = found.x0 + found.Z @ rng.normal(size=free)
    assert E.reshape(-1, n) @ x == pytest.approx(E.reshape(-1, n) @ inside, abs=1e-7)


@pytest.mark.parametrize(
    ("E", "f"),
    [
        ([[1.0, 1.0], [1.0, 1.0]], [1.0, 2.0]),
        ([[1.0, 0.0], [2.0, 0.0]], [1.0, 2.1]),
        ([[0.0, 0.0]], [1.0]),
    ],
)
def test_equalities_that_contradict_each_other_are_left_to_others(E, f):
    assert substituted(data_of(E, f)) is None


def test_equalities_that_say_the_same_are_taken_once():
    found = substituted(data_of([[1.0, 1.0, 0.0], [2.0, 2.0, 0.0]], [1.0, 2.0]))
    assert found is not None and found.Z.shape == (3, 2)


def test_a_row_that_equalities_imply_becomes_constant():
    E, G = [[0.1, 0.3, 0.7]], [[0.1, 0.3, 0.7], [0.02, 0.06, 0.14], [-0.3, -0.9, -2.1]]
    result = substituted(data_of(E, [0.55], G, [0.55, 0.11, np.inf]))
    assert result is not None and not result.C.nnz
    assert result.d.tolist() == [0.0, 0.0, np.inf]
    # A row with room stays satisfied, and a contradiction stays one.
    result = substituted(data_of(E, [0.55], G[:2], [0.65, 0.1]))
    assert result is not None and not result.C.nnz
    assert result.d == pytest.approx([0.1, -0.01])


@pytest.mark.parametrize(("difference", "hidden"), [(1e-6, False), (1e-10, True), (1e-12, True)])
def test_a_row_that_rounding_nearly_hides_is_refused(difference, hidden):
    E, G = [[0.1, 0.3, 0.7]], [[0.1 + difference, 0.3, 0.7]]
    result = substituted(data_of(E, [0.55], G, [0.55]))
    assert (result is None) == hidden
