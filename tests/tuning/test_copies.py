"""Copies of public proxy data: admissible, of the assumed error, and where rankings change."""

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

import dpcvx as dp
from dpcvx.model.matrices import as_array
from dpcvx.model.sealed import Sealed
from dpcvx.tuning.copies import Copies, Crossing, crossing


def copies_of(like, adjacency, **declared):
    like = like if sp.issparse(like) else np.asarray(like, dtype=float)
    d = dp.Private(shape=like.shape, name="d", adjacency=adjacency, proxy=like, **declared)
    x = cp.Variable(like.shape[-1], name="x")
    product = d @ x if len(like.shape) == 2 else d
    cost = cp.sum_squares(product - 1) if len(like.shape) == 2 else cp.sum_squares(x - product)
    problem = dp.Problem([dp.Agent(cp.Minimize(cost), [cp.abs(x) <= 9], name="a")])
    return d, Copies(problem, {d: Sealed(d.proxy, d.spec)}, "a test")


def test_entries_differ_by_a_fifth_and_signs_and_zeros_stay():
    like = np.tile([0.0, 5.0], 500)
    d, copies = copies_of(like, dp.Within(0.1), nonneg=True)
    values = as_array(copies(3).proxy[d]())
    assert (values >= 0).all() and (values[::2] == 0).all()
    # Of 500 entries with deviation 1: 0.03 is the standard error of theirs.
    assert np.std(values[1::2]) == pytest.approx(1.0, abs=0.2)
    assert np.array_equal(values, as_array(copies(3).proxy[d]()))
    assert not np.array_equal(values, as_array(copies(4).proxy[d]()))


def test_an_error_of_twice_the_size_is_twice_the_same_draw():
    d, copies = copies_of(np.full(4, 10.0), dp.Within(0.1))
    one, two = (as_array(copies(0, times).proxy[d]()) - 10 for times in (1.0, 2.0))
    np.testing.assert_allclose(two, 2 * one)


def test_a_proxy_of_zeros_differs_by_about_one_change():
    d, copies = copies_of(np.zeros(1000), dp.Within(0.1))
    assert np.std(as_array(copies(0).proxy[d]())) == pytest.approx(0.1, abs=0.02)


@pytest.mark.parametrize("sparse", [False, True])
def test_records_are_drawn_again_as_they_are(sparse):
    like = np.random.default_rng(0).uniform(-0.5, 0.5, (40, 3))
    d, copies = copies_of(sp.csr_array(like) if sparse else like, dp.Rows(1.0))
    assert copies.error == "records drawn again with replacement"
    rows = {tuple(row) for row in like}
    for times, most in ((1.0, 35), (4.0, 3)):
        drawn = [tuple(row) for row in as_array(copies(0, times).proxy[d]())]
        assert len(drawn) == 40 and set(drawn) <= rows and len(set(drawn)) <= most


def test_few_records_keep_their_bound():
    like = np.array([[1.0, 0.0], [0.0, -1.0]])
    d, copies = copies_of(like, dp.Rows(1.0))
    for k in range(5):
        assert (np.linalg.norm(as_array(copies(k).proxy[d]()), axis=1) <= 1).all()


@pytest.mark.parametrize(("gap", "times"), [(4.0, 2.0), (1 / 4, 1 / 2), (1e9, None)])
def test_crossing_is_the_error_at_which_the_gaps_are_equal(gap, times):
    """Squares: the optimum for the proxy loses as the square of the error, the plan does not."""
    _, copies = copies_of(np.full(100, 1.0), dp.Within(0.1))
    unit = np.median([copies(k).guess for k in range(12)])
    found = crossing(copies, lambda copy, k: gap * unit, [gap * unit] * 12)
    assert found.better == ("proxy" if gap > 1 else "plan")
    assert found.times == (None if times is None else pytest.approx(times, rel=0.5))
    assert "this error" in str(found) and isinstance(found, Crossing)
