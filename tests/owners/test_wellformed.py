"""Programs that no compiler makes are refused, before anything is derived from them."""

from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

import dpcvx as dp
from dpcvx.algorithms.program import compile_problem
from dpcvx.model.matrices import Identity
from dpcvx.owners import wire
from dpcvx.owners.wellformed import require_well_formed
from tests.campaigns.documents import known_breaks
from tests.instances import clinics, covariance, power_line


def program(build=power_line):
    return wire.portable(compile_problem(build().problem).agents[0])


def with_form(local, **changes):
    return replace(local, form=replace(local.form, **changes))


def with_atom(local, k=0, **changes):
    atoms = list(local.form.atoms)
    atoms[k] = replace(atoms[k], **changes)
    return with_form(local, atoms=tuple(atoms))


def with_argument(local, **changes):
    atom = local.form.atoms[0]
    return with_atom(local, args=(replace(atom.args[0], **changes), *atom.args[1:]))


def with_set(local, **changes):
    return replace(local, constraints=replace(local.constraints, **changes))


def with_cones(local, **changes):
    return with_set(local, cones=replace(local.constraints.cones, **changes))


def first(local):
    return local.form.atoms[0].args[0]


def repeated(matrix):
    """The same entry stored twice."""
    twice = sp.csr_array(matrix).copy()
    row = twice.indices[twice.indptr[0]]
    data = np.concatenate([twice.data[:1], twice.data])
    indices = np.concatenate([[row], twice.indices]).astype(twice.indices.dtype)
    indptr = twice.indptr.copy()
    indptr[1:] += 1
    return sp.csr_array((data, indices, indptr), shape=twice.shape)


BREAKS = {
    "no variables": lambda p: with_form(p, n=0),
    "other variables": lambda p: with_form(p, n=p.n + 1),
    "no name": lambda p: replace(p, name=""),
    "a name with control characters": lambda p: replace(p, name="a\nb"),
    "clip": lambda p: replace(p, clip=-1.0),
    "not a number": lambda p: replace(p, clip=np.nan),
    "an atom of other arguments": lambda p: with_atom(p, args=p.form.atoms[0].args * 3),
    "an atom without arguments": lambda p: with_atom(p, args=()),
    "an atom of another shape": lambda p: with_atom(p, shape=(7,)),
    "static data": lambda p: with_atom(p, data=(5, False)),
    "another axis": lambda p: with_atom(p, data=((0, 0), False)),
    "a negative shape": lambda p: with_argument(p, shape=(-4,)),
    "a huge shape": lambda p: with_argument(p, shape=(2**29,)),
    "h": lambda p: with_argument(p, h=np.full(first(p).h.size, np.nan)),
    "a huge h": lambda p: with_argument(p, h=np.full(first(p).h.size, 1e200)),
    "F": lambda p: with_argument(p, F=sp.csr_array((1, 1))),
    "no identity": lambda p: with_argument(p, F=Identity(3)),
    "G named twice": lambda p: with_argument(p, G=first(p).G * 2),
    "G of nothing": lambda p: with_argument(p, G=((5, first(p).G[0][1]),)),
    "a later atom": lambda p: with_argument(p, terms=((0, np.ones((first(p).h.size, 1))),)),
    "the root": lambda p: with_form(p, root=replace(p.form.root, shape=(2,))),
    "an atom named twice": lambda p: with_form(
        p, root=replace(p.form.root, terms=p.form.root.terms[:1] * 2)
    ),
    "an entry stored twice": lambda p: with_set(
        p, A=sp.csc_array(repeated(p.constraints.A.T).T)
    ),
    "a name of data twice": lambda p: with_form(p, private=p.form.private * 2),
    "data without entries": lambda p: with_form(
        p, private=(replace(p.form.private[0], shape=(0,)),)
    ),
    "shared": lambda p: replace(p, shared=np.zeros_like(p.shared)),
    "shared outside": lambda p: replace(p, shared=p.shared + p.n),
    "slots": lambda p: replace(p, slots=p.slots[:-1]),
    "the start": lambda p: replace(p, start=p.start[:-1]),
    "an objective in the set": lambda p: with_set(p, q=p.constraints.q + 1.0),
    "rows of cones": lambda p: with_cones(p, nonneg=p.constraints.cones.nonneg + 1),
    "negative cones": lambda p: with_cones(p, zero=-1, nonneg=p.constraints.cones.nonneg + 1),
    "right sides": lambda p: with_set(p, b=np.full(p.constraints.b.size, np.inf)),
    "entries of a variable": lambda p: replace(
        p, layout=replace(
            p.layout, pieces=(
                replace(p.layout.pieces[0], entries=p.layout.pieces[0].entries[::-1].copy()),
                *p.layout.pieces[1:],
            )
        )
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BREAKS)
def test_what_no_compiler_makes_is_refused(name):
    good = program()
    require_well_formed(good)
    with pytest.raises(dp.RefusedError) as refusal:
        require_well_formed(BREAKS[name](good))
    assert refusal.value.code == "malformed"


def test_what_the_package_compiles_is_taken():
    for build in (power_line, clinics, covariance):
        require_well_formed(program(build))


def test_documents_that_once_had_too_small_a_bound_are_refused():
    for frame in known_breaks():
        with pytest.raises(dp.RefusedError) as refusal:
            require_well_formed(wire.decode(frame))
        assert refusal.value.code == "malformed"


def test_quadratic_parts_are_symmetric():
    x = cp.Variable(2, name="x")
    problem = dp.Problem(
        [
            dp.Agent(cp.Minimize(cp.sum_squares(x) - cp.log_det(cp.diag(x)))),
        ]
    )
    local = wire.portable(compile_problem(problem).agents[0])
    require_well_formed(local)
    P = sp.csc_array(local.rest.P + sp.csc_array(([1.0], ([0], [1])), shape=local.rest.P.shape))
    with pytest.raises(dp.RefusedError):
        require_well_formed(replace(local, rest=replace(local.rest, P=P)))
