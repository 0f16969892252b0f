"""Programs that no compiler makes are refused, before anything is derived from them."""

import functools
import itertools
import tracemalloc
from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from scipy import special

import dpcvx as dp
from dpcvx.algorithms.program import compile_problem
from dpcvx.model.atoms import RULES, entrywise
from dpcvx.model.atoms.pairs import MATMUL
from dpcvx.model.matrices import Identity, zeros
from dpcvx.model.normal_form import Atom, Combination
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
    assert refusal.value.code == ("large" if name == "a huge shape" else "malformed")


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


def nothing(*shape):
    """Zeros that few bytes say."""
    size = int(np.prod(shape))
    return Combination(shape, None, (), zeros(size) if size > 1 else np.zeros(size), ())


SHAPES = [(), (1,), (2,), (3,), (1, 1), (1, 3), (3, 1), (2, 3), (3, 2), (3, 3)]
REDUCING = {"quad_over_lin", "log_sum_exp", "max", "min", "norm1", "norm_inf", "pnorm"}
AXES = [None, 0, 1, -1, (0,), (1, 0)]


def cases(name):
    """Arguments of one rule, and its static data."""
    number = (2,) if name in ("power", "huber", "sum_largest", "pnorm") else ()
    data = [number]
    if name in REDUCING:
        data = [(*number, axis, kept) for axis in AXES for kept in (False, True)]
    two = {"multiply", "matmul", "division", "quad_over_lin", "quad_form", "kl_div", "rel_entr"}
    counts = (1, 2, 3) if name in ("maximum", "minimum") else (2,) if name in two else (1,)
    for count in counts:
        yield from itertools.product(itertools.product(SHAPES, repeat=count), data)


def require_declared(name, shapes, data):
    """What numpy lets pass, and models do not: axes of numbers, other denominators and forms."""
    if name == "quad_over_lin" and np.prod(shapes[1]) > 1:
        raise ValueError
    if name == "quad_form" and shapes[1] != (np.prod(shapes[0]),) * 2:
        raise ValueError
    if name in REDUCING and data[-2] is not None:
        np.lib.array_utils.normalize_axis_tuple(data[-2], len(shapes[0]))


# What rules compute, on arrays of their arguments' shapes.
IN_NUMPY = {
    "multiply": lambda v: v[0] * v[1],
    "division": lambda v: v[0] / v[1],
    "matmul": lambda v: v[0] @ v[1],
    "maximum": lambda v: functools.reduce(np.maximum, v),
    "minimum": lambda v: functools.reduce(np.minimum, v),
    "kl_div": lambda v: special.kl_div(*v),
    "rel_entr": lambda v: special.rel_entr(*v),
    "quad_form": lambda v: v[0].ravel() @ v[1] @ v[0].ravel(),
    "sum_largest": lambda v, k: np.sort(v[0], axis=None)[-k:].sum(),
    "quad_over_lin": lambda v, *axis: np.sum(v[0] ** 2, *over(*axis)) / v[1],
    "log_sum_exp": lambda v, *axis: np.log(np.sum(np.exp(v[0]), *over(*axis))),
    "max": lambda v, axis, kept: np.max(v[0], axis=axis, keepdims=kept),
    "min": lambda v, axis, kept: np.min(v[0], axis=axis, keepdims=kept),
    "norm1": lambda v, *axis: np.sum(np.abs(v[0]), *over(*axis)),
    "norm_inf": lambda v, axis, kept: np.max(np.abs(v[0]), axis=axis, keepdims=kept),
    "pnorm": lambda v, p, *axis: np.sum(np.abs(v[0]) ** p, *over(*axis)) ** (1 / p),
}


def over(axis, kept):
    """Arguments of `numpy.sum` behind the array."""
    return axis, None, None, kept


def in_numpy(name, values, data):
    rule = RULES[name]
    return IN_NUMPY[name](values, *data) if name in IN_NUMPY else rule.forward(values, data)


@pytest.mark.parametrize("name", RULES)
def test_shapes_are_those_of_the_rules(name):
    """Every rule with arguments of all shapes: what it computes, and whether it can."""
    rng = np.random.default_rng(0)
    rule, local = RULES[name], program(clinics)
    taken = 0
    for shapes, data in cases(name):
        args = tuple(nothing(*shape) for shape in shapes)
        try:
            require_declared(name, shapes, data)
            with np.errstate(all="ignore"):
                values = [rng.uniform(0.2, 0.9, shape) for shape in shapes]
                expected = np.asarray(in_numpy(name, values, data))
                right = expected.shape
        except (ValueError, IndexError):
            right = None
        else:
            fitted = rule.fitted(data, shapes, right)
            inputs = [
                layout(np.ravel(value, order="F"))
                for layout, value in zip(fitted.layouts, values, strict=True)
            ]
            value = fitted.forward(inputs, fitted.data)
            np.testing.assert_allclose(value, np.ravel(expected, order="F"), rtol=1e-12)
        for shape in SHAPES:
            changed = with_form(local, atoms=(*local.form.atoms, Atom(rule, data, args, shape)))
            try:
                require_well_formed(changed)
            except dp.RefusedError as refusal:
                assert refusal.code == "malformed"
                assert shape != right
            else:
                assert shape == right
                taken += 1
    assert taken


def test_few_bytes_cost_little_however_large_the_zeros_that_they_say():
    """Multiplied out, they would take hours, and compared with a bound, gigabytes."""
    local = program(clinics)
    side = 7000
    large = nothing(side, side)
    flat = replace(nothing(2), F=np.broadcast_to(0.0, (2, local.form.n)))
    added = [Atom(MATMUL, (), (large, large), (side, side))] * 20
    added += [
        Atom(entrywise.LOGISTIC, (), (large,), (side, side)),
        Atom(entrywise.ABS, (), (flat,), (2,)),
    ]
    frame = wire.encode(with_form(local, atoms=(*local.form.atoms, *added)))
    found = wire.decode(frame)
    tracemalloc.start()
    try:
        require_well_formed(found)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 1_000_000
    wrong = Atom(MATMUL, (), (large, nothing(side - 1, side)), (side, side))
    with pytest.raises(dp.RefusedError) as refusal:
        require_well_formed(with_form(local, atoms=(*local.form.atoms, wrong)))
    assert refusal.value.code == "malformed"
