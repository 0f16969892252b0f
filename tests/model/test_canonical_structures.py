"""Objectives that differ in public numbers: one canonicalization gives the bits of many."""

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

from dpcvx.model import canonical
from dpcvx.model.canonical import Structures, cone_data
from dpcvx.model.layout import layout_of

# An objective of x for a generator of public numbers, and whether one template serves it.
OBJECTIVES = {
    "squares": (lambda rng, x: cp.sum_squares(rng.normal(size=(5, 4)) @ x - 1), True),
    "two matrices": (
        lambda rng, x: (
            cp.sum_squares(rng.normal(size=(3, 4)) @ x) + cp.norm1(rng.normal(size=(2, 4)) @ x)
        ),
        True,
    ),
    "slopes": (
        lambda rng, x: (
            cp.sum_squares(x) + rng.normal(size=4) @ x + cp.sum(rng.uniform(1, 2, size=4))
        ),
        True,
    ),
    "weights": (lambda rng, x: rng.uniform(1, 2, size=4) @ cp.abs(x), True),
    "negative weights": (lambda rng, x: -(rng.uniform(-2, -1, size=4) @ cp.square(x)), True),
    "losses": (lambda rng, x: cp.sum(cp.logistic(rng.normal(size=(6, 4)) @ x)), True),
    "quotient": (lambda rng, x: cp.sum_squares(x / rng.uniform(1, 2, size=4)), False),
    "form": (lambda rng, x: cp.quad_form(x, (1 + rng.uniform()) * np.eye(4)), False),
    "product of two": (
        lambda rng, x: cp.sum_squares(
            cp.Constant(rng.normal(size=(2, 3))) @ cp.Constant(rng.normal(size=(3, 4))) @ x
        ),
        False,
    ),
    "zeros": (lambda rng, x: cp.sum_squares(np.diag(rng.normal(size=4)) @ x), False),
    "sparse": (lambda rng, x: cp.sum_squares(sp.csr_array(np.diag(rng.normal(size=4))) @ x), False),
    "no array": (lambda rng, x: cp.sum_squares(rng.normal() * x), False),
}
SETS = {
    "everything": lambda x: [],
    "ball and box": lambda x: [cp.norm(x) <= 2, x >= -1],
}


def same(first, second):
    assert (first.cones, first.n) == (second.cones, second.n)
    for name in ("A", "P"):
        one, other = getattr(first, name), getattr(second, name)
        for part in ("data", "indices", "indptr", "shape"):
            assert np.array_equal(getattr(one, part), getattr(other, part)), (name, part)
    assert np.array_equal(first.b, second.b) and np.array_equal(first.q, second.q)


@pytest.mark.parametrize("limits", SETS)
@pytest.mark.parametrize("name", OBJECTIVES)
def test_cone_forms_by_structure_are_those_of_each(name, limits, monkeypatch):
    made, served = OBJECTIVES[name]
    read = []
    monkeypatch.setattr(canonical._Template, "at", spied(canonical._Template.at, read))
    rng, structures = np.random.default_rng(3), Structures()
    for k in range(3):
        x = cp.Variable(4, name=f"x{k}")
        objective, constraints = made(rng, x), SETS[limits](x)
        given = objective, constraints, [x], layout_of([cp.Minimize(objective), *constraints])
        same(structures.cone_data(*given), cone_data(*given))
    assert [found is not None for found in read] == [served] * len(read)
    assert len(read) == 2 or not served


def spied(function, results):
    def at(self, arrays):
        results.append(function(self, arrays))
        return results[-1]

    return at


def test_signs_shared_arrays_and_sets_tell_structures_apart():
    x, structures, rng = cp.Variable(2, name="x"), Structures(), np.random.default_rng(0)
    first, second = rng.uniform(1, 2, size=(2, 2, 2))
    shared = cp.Constant(first)
    objectives = [
        cp.sum_squares(shared @ x) + cp.sum_squares(shared @ x + 1),
        cp.sum_squares(cp.Constant(first) @ x) + cp.sum_squares(cp.Constant(second) @ x + 1),
        cp.sum_squares(cp.Constant(-first) @ x) + cp.sum_squares(cp.Constant(second) @ x + 1),
        cp.sum_squares(cp.Constant(second) @ x) + cp.sum_squares(cp.Constant(first) @ x + 1),
    ]
    for objective in [*objectives, *objectives]:
        for limits in ([], [x >= 1], [x >= 2]):
            given = objective, limits, [x], layout_of([cp.Minimize(objective), *limits])
            same(structures.cone_data(*given), cone_data(*given))


def test_arrays_with_many_entries_are_no_parameters(monkeypatch):
    monkeypatch.setattr(canonical, "_PARAMETERS", 7)
    x, structures = cp.Variable(2, name="x"), Structures()
    for size in (3, 4):
        objective = cp.sum_squares(np.ones((size, 2)) @ x)
        given = objective, [], [x], layout_of([cp.Minimize(objective)])
        same(structures.cone_data(*given), cone_data(*given))
    assert len(structures._templates) == 1
