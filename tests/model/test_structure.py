"""Digests of trees: equal for what computes the same from the same, other for all else."""

import copy
import functools
import itertools

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

import dpcvx as dp
from dpcvx.model.structure import Opaque, digest_of

X, Y = cp.Variable(3, name="x"), cp.Variable((3, 3), name="y")
D = dp.Private(shape=3, name="d", adjacency=dp.Within(0.1))
PLACES = {X.id: "x0", Y.id: "x1", D.id: "d0"}
digest = functools.partial(digest_of, places=PLACES)
A = np.arange(9.0).reshape(3, 3)


def parameter(value):
    made = cp.Parameter(np.shape(value))
    made.value = value
    return made


# Each a change of one thing in another of them: constants, attributes, indices, places, atoms.
TREES = {
    "norm": lambda: cp.norm(A @ X - D),
    "norm, one": lambda: cp.norm(A @ X - D, 1),
    "norm, three": lambda: cp.pnorm(A @ X - D, 3),
    "constant": lambda: cp.norm((A + np.eye(3)) @ X - D),
    "constant, hardly": lambda: cp.norm(np.nextafter(A, 9) @ X - D),
    "transposed": lambda: cp.norm(A.T @ X - D),
    "parameter": lambda: cp.norm(A @ X - parameter(np.ones(3))),
    "other parameter": lambda: cp.norm(A @ X - parameter(np.zeros(3))),
    "index": lambda: cp.norm(A @ X[[0, 1, 2]] - D),
    "other index": lambda: cp.norm(A @ X[[0, 2, 1]] - D),
    "slice": lambda: cp.norm(X[0:2]),
    "other slice": lambda: cp.norm(X[1:3]),
    "step": lambda: cp.norm(X[::2]),
    "axis": lambda: cp.sum(cp.norm(Y, 2, axis=0)),
    "other axis": lambda: cp.sum(cp.norm(Y, 2, axis=1)),
    "huber": lambda: cp.sum(cp.huber(X, 1)),
    "other huber": lambda: cp.sum(cp.huber(X, 2)),
    "power": lambda: cp.sum(cp.power(X, 2)),
    "other power": lambda: cp.sum(cp.power(X, 4)),
    "place": lambda: cp.norm(A @ Y[0] - D),
    "order": lambda: cp.norm(cp.reshape(Y, (9,), order="F")[:3]),
    "other order": lambda: cp.norm(cp.reshape(Y, (9,), order="C")[:3]),
    "below": lambda: X <= 1,
    "above": lambda: X >= 1,
    "equal": lambda: X == 1,
    "cone": lambda: cp.SOC(X, Y, axis=0),
    "other cone": lambda: cp.SOC(X, Y, axis=1),
    "power cone": lambda: cp.PowCone3D(X[:1], X[1:2], X[2:], 0.3),
    "other power cone": lambda: cp.PowCone3D(X[:1], X[1:2], X[2:], 0.4),
    "all of it by a mask": lambda: X[np.ones(X.shape[0], dtype=bool)],
    "one entry again and again": lambda: X[np.ones(X.shape[0], dtype=int)],
    "smallest": lambda: cp.Minimize(X[0]),
    "largest": lambda: cp.Maximize(X[0]),
}


def test_trees_that_differ_in_one_thing_have_other_digests():
    found = {name: digest(tree()) for name, tree in TREES.items()}
    for one, two in itertools.combinations(found, 2):
        assert found[one] != found[two], (one, two)


@pytest.mark.parametrize("name", TREES)
def test_a_tree_that_is_written_again_or_copied_has_the_same(name):
    one, two = TREES[name](), TREES[name]()
    assert digest(one) == digest(two) == digest(one.tree_copy())


@pytest.mark.parametrize(
    "attributes",
    [{"nonneg": True}, {"bounds": [0, 1]}, {"bounds": [0, 2]}, {"bounds": [0, np.ones(3)]}],
)
def test_attributes_of_variables_are_part_of_them(attributes):
    plain, other = cp.Variable(3), cp.Variable(3, **attributes)
    assert digest_of(plain, {plain.id: "x0"}) != digest_of(other, {other.id: "x0"})
    again = cp.Variable(3, **attributes)
    assert digest_of(again, {again.id: "x0"}) == digest_of(other, {other.id: "x0"})


@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("kind", [sp.csr_array, sp.csc_array, sp.coo_array, sp.csc_matrix])
def test_the_types_of_indices_and_numbers_do_not_count(kind, index):
    known = digest_of(sp.csr_array(A))
    made = kind(A)
    for name in ("indices", "indptr", "row", "col"):
        if hasattr(made, name) and not isinstance(made, sp.coo_array):
            setattr(made, name, getattr(made, name).astype(index))
    assert digest_of(made) == known != digest_of(sp.csr_array(A.T))
    assert digest_of(A.astype(np.float32)) == digest_of(A) == digest_of(A.astype(int))
    assert digest_of(np.asfortranarray(A)) == digest_of(A) != digest_of(A.T)
    assert digest_of(1.0) == digest_of(np.int8(1)) != digest_of(True)


def test_sharing_of_subtrees_does_not_count():
    part = A @ X
    shared, apart = cp.norm(part) + cp.sum(part), cp.norm(A @ X) + cp.sum(A @ X)
    assert digest(shared) == digest(apart)


def test_what_is_not_known_is_said_to_be():
    class Odd:
        pass

    for value in (Odd(), [Odd()], {"a": Odd()}, np.array([Odd()]), lambda: 1):
        with pytest.raises(Opaque):
            digest_of(value)


def test_declarations_are_told_apart_by_every_field():
    plain = dp.LinearizedADMM(penalty=1.0, step=0.1)
    assert digest_of(plain) == digest_of(copy.deepcopy(plain))
    others = [
        dp.LinearizedADMM(penalty=2.0, step=0.1),
        dp.LinearizedADMM(penalty=1.0, step=0.2),
        dp.LinearizedADMM(penalty=1.0, step=0.1, local_updates=2),
        dp.LinearizedADMM(penalty=1.0),
    ]
    assert len({digest_of(method) for method in (plain, *others)}) == 5


def test_classes_may_move_within_the_package():
    """Ledgers that a run began go on after the package was put in other order."""
    here = digest(dp.Within(0.1))
    home, dp.Within.__module__ = dp.Within.__module__, "dpcvx.elsewhere"
    try:
        assert digest(dp.Within(0.1)) == here
        dp.Within.__module__ = "others.elsewhere"
        assert digest(dp.Within(0.1)) != here
    finally:
        dp.Within.__module__ = home


def test_a_variable_that_its_atom_lists_nowhere_has_no_digest():
    with pytest.raises(Opaque):
        digest(cp.sum(cp.Variable(3, name="hidden")))
