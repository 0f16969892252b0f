"""Quadratics plus sums over entries: exact steps of lasso, boxes and balls."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp

from dpcvx.model.canonical import ConeData, Cones
from dpcvx.solvers.conic import ConicProgram, Outcome
from dpcvx.solvers.exact_steps import quadratic_sum

N = 40


def squares(rng, m, n, terms, scale=1.0):
    """``|A x - b|^2`` with terms, as cvxpy compiles it: residuals, then l1 norms, are columns."""
    A, b = scale * rng.normal(size=(m, n)), rng.normal(size=m)
    eye, none = sp.eye_array(n, format="csr"), sp.csr_array((n, m))
    rows, right, soc = [sp.hstack([A, -sp.eye_array(m)])], [b], ()
    extra = n if "l1" in terms else 0
    if extra:
        rows = [sp.hstack([rows[0], sp.csr_array((m, n))])]
        rows += [sp.hstack([eye, none, -eye]), sp.hstack([-eye, none, -eye])]
        right += [np.zeros(2 * n)]
    wide = sp.csr_array((n, m + extra))
    if "box" in terms:
        rows += [sp.hstack([eye, wide]), sp.hstack([-eye, wide])]
        right += [np.full(2 * n, 0.3)]
    if "positive" in terms:
        rows, right = [*rows, sp.hstack([-eye, wide])], [*right, np.zeros(n)]
    if "ball" in terms:
        head = sp.csr_array((1, n + m + extra))
        rows, right, soc = (
            [*rows, head, sp.hstack([-eye, wide])],
            [*right, [0.5], np.zeros(n)],
            (n + 1,),
        )
    G, h = sp.csc_array(sp.vstack(rows)), np.concatenate(right)
    P = sp.diags_array(np.concatenate([np.zeros(n), np.full(m, 2.0), np.zeros(extra)]))
    q = np.concatenate([np.zeros(n + m), np.full(extra, 3.0)])
    cones = Cones(zero=m, nonneg=h.size - m - sum(soc), soc=soc)
    return ConeData(sp.csc_array(P), q, G, h, cones, n), A, b


def _optimal(terms, x, slope, size):
    """How far a point is from the conditions of optimality, relative to the terms of slopes."""
    if "ball" in terms:
        assert np.linalg.norm(x) <= 0.5 * (1 + 1e-12)
        inside = np.linalg.norm(x) < 0.5 * (1 - 1e-12)
        away = slope if inside else slope - x * (x @ slope) / (x @ x)
        assert inside or x @ slope <= 0
        return np.abs(away).max() / size
    low, high = (0.0 if "positive" in terms else -np.inf), np.inf
    if "box" in terms:
        low, high = max(low, -0.3), 0.3
    bend = 3.0 if "l1" in terms else 0.0
    # The subdifferential at zero, and the cones of bounds.
    least = slope + np.where(x > 0, bend, -bend)
    most = slope + np.where(x < 0, -bend, bend)
    least = np.where(x <= low, -np.inf, least)
    most = np.where(x >= high, np.inf, most)
    assert (x >= low).all() and (x <= high).all()
    return max(least.max(), (-most).max(), 0.0) / size


CASES = ["", "box", "positive", "l1", "l1 box", "l1 positive", "ball"]


@pytest.mark.parametrize("terms", CASES)
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_answers_satisfy_the_conditions_of_optimality(terms, scale):
    rng, answered = np.random.default_rng(0), 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for m in (20, 80):  # fewer records than entries, and more
            data, A, b = squares(rng, m, N, terms, scale)
            method = quadratic_sum(data)
            assert method is not None
            for weight in (1e-3, 1.0, 1e3):
                D, c = np.full(N, weight), scale * 10 * rng.normal(size=N)
                x = method(D, c, np.zeros(N))
                answered += x is not None
                if x is None:
                    continue
                slope = 2 * A.T @ (A @ x - b) + D * x + c
                H = 2 * np.abs(A.T) @ np.abs(A) + np.diag(D)
                size = 1 + (H @ np.abs(x)).max() + np.abs(2 * A.T @ b).max() + np.abs(c).max()
                assert _optimal(terms, x, slope, size) <= 1e-10
    assert answered >= 3  # others hardly bend, or their sets return


@pytest.mark.parametrize("terms", CASES)
def test_programs_end_where_the_interior_point_ends(terms):
    rng = np.random.default_rng(1)
    data, _, _ = squares(rng, 30, N, terms)
    ours, theirs = ConicProgram(data), ConicProgram(data)
    vars(theirs)["_sum"] = None
    for weight in (0.1, 10.0):
        c, D = 5 * rng.normal(size=N), np.full(N, weight)
        answer, exact = ours.solve(D, c, np.zeros(N)), theirs.solve(D, c, np.zeros(N))
        assert answer.outcome is Outcome.SOLVED
        assert answer.x == pytest.approx(exact.x, abs=2e-5 if terms == "ball" else 1e-6)


def test_answers_depend_on_nothing_but_the_arguments():
    rng = np.random.default_rng(2)
    data, _, _ = squares(rng, 60, N, "l1 box")
    there, back = quadratic_sum(data), quadratic_sum(data)
    assert there is not None and back is not None
    asked = [(np.full(N, w), rng.normal(size=N), rng.normal(size=N)) for w in (1.0, 1.0, 2.0, 1.0)]
    first = [there(*arguments) for arguments in asked]
    again = [back(*arguments) for arguments in asked[::-1]][::-1]
    assert all(np.array_equal(x, y) for x, y in zip(first, again, strict=True))


def test_programs_of_another_kind_are_left_to_the_interior_point():
    rng = np.random.default_rng(3)
    data, _, _ = squares(rng, 20, N, "box")
    several = sp.csc_array(
        sp.vstack([data.A, np.eye(1, data.A.shape[1]) + np.eye(1, data.A.shape[1], 1)])
    )
    rows = data.cones.zero, data.cones.nonneg + 1
    row_of_two = ConeData(data.P, data.q, several, np.append(data.b, 0.1), Cones(*rows), N)
    assert quadratic_sum(row_of_two) is None
    assert quadratic_sum(squares(rng, 20, N, "l1 ball")[0]) is None
    assert quadratic_sum(squares(rng, 2, 301, "box")[0]) is None
    flat = ConeData(0 * data.P, data.q, data.A, data.b, data.cones, N)
    assert quadratic_sum(flat) is None or not flat.P.nnz


def test_without_curvature_there_is_no_answer():
    """Of fewer records than entries, with no weight, no factor is trusted."""
    data, _, _ = squares(np.random.default_rng(4), 20, N, "")
    method = quadratic_sum(data)
    assert method is not None
    assert method(np.zeros(N), np.ones(N), np.zeros(N)) is None
