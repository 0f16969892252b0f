"""Every atom, and all that its class knows of it: a table, a row per atom."""

import ast
import copy
import math
import pickle
import re
from dataclasses import dataclass
from pathlib import Path

import cvxpy as cp
import numpy as np
import pytest

from dpcvx.model import atoms
from dpcvx.model.atoms import RULES, rule_named, rule_of
from dpcvx.model.atoms.entrywise import Entrywise
from dpcvx.model.matrices import csr

x, y, u, v = (cp.Variable(4, name=name) for name in "xyuv")
s = cp.Variable(name="s")
X, Y = cp.Variable((3, 4), name="X"), cp.Variable((3, 4), name="Y")
P = np.array([[2.0, 1, 0, 0], [1, 3, 0, 1], [0, 0, 1, 0], [0, 1, 0, 4]])


def exact(p):
    return cp.power(X, p, approx=False)


# What users write, the name that messages give it, and more of the same atom.
TABLE = {
    "power": (cp.square(X), "cp.square", [cp.power(X, 3), exact(0.5), exact(-1), exact(1.5)]),
    "huber": (cp.huber(X, 0.4), "cp.huber", []),
    "logistic": (cp.logistic(X), "cp.logistic", []),
    "exp": (cp.exp(X), "cp.exp", []),
    "log": (cp.log(X), "cp.log", []),
    "log1p": (cp.log1p(X), "cp.log1p", []),
    "entr": (cp.entr(X), "cp.entr", []),
    "xexp": (cp.xexp(X), "cp.xexp", []),
    "abs": (cp.abs(X), "cp.abs", []),
    "tanh": (cp.nlp.tanh(X), "cp.nlp.tanh", []),
    "multiply": (cp.multiply(X, Y), "cp.multiply", []),
    "division": (X / Y, "/", []),
    "maximum": (cp.maximum(X, Y), "cp.maximum", [cp.maximum(x, y, u)]),
    "minimum": (cp.minimum(X, Y), "cp.minimum", [cp.minimum(x, y, u)]),
    "kl_div": (cp.kl_div(X, Y), "cp.kl_div", []),
    "rel_entr": (cp.rel_entr(X, Y), "cp.rel_entr", []),
    "quad_over_lin": (cp.quad_over_lin(X, s, axis=1), "cp.quad_over_lin", [cp.quad_over_lin(x, s)]),
    "log_sum_exp": (cp.log_sum_exp(X, axis=1), "cp.log_sum_exp", [cp.log_sum_exp(X)]),
    "max": (cp.max(X, axis=1), "cp.max", [cp.max(X, axis=0, keepdims=True)]),
    "min": (cp.min(X, axis=1), "cp.min", [cp.min(X)]),
    "norm1": (cp.norm1(X, axis=1), "cp.norm1", [cp.norm1(X)]),
    "norm_inf": (cp.norm_inf(X, axis=1), "cp.norm_inf", []),
    "pnorm": (cp.norm(X, 2, axis=1), "cp.norm", [cp.pnorm(X, 3)]),
    "sum_largest": (cp.sum_largest(x, 2), "cp.sum_largest", []),
    "matmul": (X @ Y.T, "@", [X @ x, x @ y]),
    "quad_form": (cp.quad_form(x, cp.psd_wrap(P)), "cp.quad_form", []),
}
CASES = [(name, k) for name, (_, _, more) in TABLE.items() for k in range(1 + len(more))]
ENTRYWISE = [name for name in TABLE if isinstance(RULES[name], Entrywise) and RULES[name].bounded]
# Neither convex nor concave.
MIXED = {"tanh"}


@dataclass
class Sample:
    """An atom of cvxpy with its rule, and numbers in its domain."""

    name: str
    k: int = 0

    def __post_init__(self):
        whole, _, more = TABLE[self.name]
        self.atom = [whole, *more][self.k]
        self.rule, self.data = rule_of(self.atom)
        self.shapes = [argument.shape for argument in self.atom.args]
        self.shape = self.atom.shape
        self.fitted = self.rule.fitted(self.data, self.shapes, self.shape)

    def draw(self, seed=0, lead=()):
        """Flat arguments: positive, as some domains are."""
        rng = np.random.default_rng(seed)
        sizes = [math.prod(shape) for shape in self.shapes]
        drawn = [rng.uniform(0.2, 0.9, (*lead, size)) for size in sizes]
        if self.name == "quad_form":
            drawn[1] = np.broadcast_to(P.ravel(order="F"), (*lead, P.size))
        return drawn

    def inputs(self, values):
        pairs = zip(self.fitted.layouts, values, strict=True)
        return [layout(value) for layout, value in pairs]

    def value(self, values):
        return self.fitted.forward(self.inputs(values), self.fitted.data)

    def cotangent(self, values, g, k):
        inputs = self.inputs(values)
        out = self.fitted.forward(inputs, self.fitted.data)
        return self.fitted.vjp(inputs, out, g, self.fitted.data, k)


every = pytest.mark.parametrize(("name", "k"), CASES)


def test_the_table_has_a_row_per_atom():
    assert set(TABLE) == set(RULES)
    assert {Sample(*case).name for case in CASES} == {Sample(*c).rule.name for c in CASES}


@every
def test_the_value_is_cvxpys(name, k):
    sample = Sample(name, k)
    values = sample.draw()
    for argument, value in zip(sample.atom.args, values, strict=True):
        if isinstance(argument, cp.Variable):
            argument.value = value.reshape(argument.shape, order="F")
        elif argument.variables():  # Y.T
            argument.args[0].value = value.reshape(argument.shape, order="F").T
    expected = np.ravel(sample.atom.value, order="F")
    np.testing.assert_allclose(sample.value(values), expected, rtol=1e-12)


@every
def test_the_cotangent_is_a_difference_quotient(name, k):
    sample = Sample(name, k)
    values = sample.draw()
    g = np.cos(np.arange(math.prod(sample.shape))) + 1.5
    for which, value in enumerate(values):
        found = sample.cotangent(values, g, which)
        assert found.shape == value.shape
        for i in range(value.size):
            ends = []
            for step in (1e-6, -1e-6):
                moved = [part.copy() for part in values]
                moved[which][i] += step
                ends.append(sample.value(moved) @ g)
            assert found[i] == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-6, abs=1e-6)


@every
def test_rows_of_a_batch_have_the_bits_of_each(name, k):
    sample = Sample(name, k)
    values = sample.draw(lead=(3,))
    g = np.random.default_rng(1).normal(size=(3, math.prod(sample.shape)))
    together = sample.value(values)
    for i in range(3):
        alone = [value[i] for value in values]
        assert np.array_equal(together[i], sample.value(alone))
        for which in range(len(values)):
            part = sample.cotangent(values, g, which)[i]
            assert np.array_equal(part, sample.cotangent(alone, g[i], which))


@pytest.mark.parametrize("name", TABLE)
def test_an_atom_that_does_not_read_its_value_is_given_none(name):
    sample = Sample(name)
    values = sample.draw()
    inputs, g = sample.inputs(values), np.ones(math.prod(sample.shape))
    nothing = np.full(1, np.nan)
    constant = [False, *[True] * (len(values) - 1)]
    if not sample.rule.reads_value(constant):
        part = sample.fitted.vjp(inputs, nothing, g, sample.fitted.data, 0)
        assert np.array_equal(part, sample.cotangent(values, g, 0))


@pytest.mark.parametrize("name", TABLE)
def test_messages_write_it_like_users(name):
    sample = Sample(name)
    assert sample.rule.written(sample.data, None) == TABLE[name][1]


@pytest.mark.parametrize(
    ("expression", "written"),
    [
        (cp.sum_squares(x), "cp.sum_squares"),
        (cp.pos(x), "cp.pos"),
        (cp.neg(x).args[0], "cp.neg"),
        (cp.sqrt(x), "cp.sqrt"),
        (cp.inv_pos(x), "cp.inv_pos"),
        (cp.power(x, 3), "cp.power"),
        (cp.pnorm(x, 3), "cp.pnorm"),
    ],
)
def test_what_cvxpy_turns_into_other_atoms_is_written_as_it_was(expression, written):
    rule, data = rule_of(expression)
    last = expression.args[-1].value if len(expression.args) == 2 else None
    assert rule.written(data, None if last is None else np.ravel(last)) == written


@every
def test_it_crosses_the_wire_by_name_and_fits_its_shapes(name, k):
    sample = Sample(name, k)
    rule = sample.rule
    assert rule_named(name) is rule is pickle.loads(pickle.dumps(rule)) is copy.deepcopy(rule)
    assert rule.arguments in (None, len(sample.shapes))
    assert rule.misfit(sample.data, sample.shapes) is None
    assert rule.misfit((*sample.data, 1.0, 2.0, 3.0), sample.shapes) is not None
    assert rule.shape(sample.shapes, sample.data) == sample.shape
    if rule.has_number:
        for number in (math.nan, math.inf, "2", None, True):
            assert rule.misfit((number, *sample.data[1:]), sample.shapes) == "a number"
    if rule.has_axis:
        for axis in (5, (0, 0), (), "0", True):
            assert rule.misfit((*sample.data[:-2], axis, False), sample.shapes) == "an axis"


@pytest.mark.parametrize("name", [name for name in TABLE if RULES[name].rows])
def test_row_r_of_the_value_reads_row_r_alone(name):
    sample = Sample(name)
    values = sample.draw()
    before = sample.value(values).reshape(sample.shape, order="F")
    moved = values[0].reshape(sample.shapes[0], order="F").copy()
    moved[1] += 0.05
    after = sample.value([np.ravel(moved, order="F"), *values[1:]])
    after = after.reshape(sample.shape, order="F")
    changed = {r for r in range(3) if not np.array_equal(before[r], after[r])}
    assert changed <= {1}
    assert (RULES[name].rows == "entry") == (sample.shape == sample.shapes[0])


@every
def test_a_sum_over_rows_is_the_sum_of_its_rows(name, k):
    sample = Sample(name, k)
    whole = {"quad_over_lin": lambda: cp.quad_over_lin(X, s), "norm1": lambda: cp.norm1(X)}
    assert sample.rule.sums_rows(sample.data) == ((name in whole) and k == 1)
    if name in whole and k == 0:
        values = sample.draw()
        rule, data = rule_of(whole[name]())
        fitted = rule.fitted(data, sample.shapes, ())
        assert rule.sums_rows(data)
        total = fitted.forward(values, fitted.data).item()
        assert total == pytest.approx(sample.value(values).sum())


def intervals(rule, data, count=400):
    """Some that lie in the domain, and points in them."""
    rng = np.random.default_rng(2)
    positive = not float(data[0]).is_integer() or data[0] < 0 if rule.name == "power" else False
    begin = max(rule.domain, 0.0 if positive else -3.0)
    ends = np.sort(rng.uniform(begin + 1e-3, 3.0, (2, count)), axis=0)
    return ends[0], ends[1], ends[0] + rng.uniform(0, 1, (50, count)) * (ends[1] - ends[0])


entrywise = pytest.mark.parametrize(("name", "k"), [case for case in CASES if case[0] in ENTRYWISE])


@entrywise
def test_values_and_derivatives_lie_in_their_intervals(name, k):
    sample = Sample(name, k)
    rule, data = sample.rule, sample.data
    lo, hi, points = intervals(rule, data)
    low, high, lost = rule.values([lo], [hi], data)
    values = rule.value(points, data)
    assert not lost.any()
    assert (values >= low - 1e-12).all() and (values <= high + 1e-12).all()
    ((least, most),) = rule.slopes([lo], [hi], data)
    slopes = rule.derivative(points, data)
    assert (slopes >= least - 1e-12).all() and (slopes <= most + 1e-12).all()
    # Intervals of points are points: bounds are not wider than need be.
    for bounds in (rule.values([lo], [lo], data)[:2], *rule.slopes([lo], [lo], data)):
        assert np.array_equal(*bounds)


@entrywise
def test_nothing_is_known_outside_the_domain(name, k):
    sample = Sample(name, k)
    rule, data = sample.rule, sample.data
    if rule.domain == -math.inf:
        total = rule.values([np.full(1, -np.inf)], [np.full(1, np.inf)], data)
        assert not rule.total or not total[2].any()
        return
    lo, hi = np.full(1, rule.domain - 0.5), np.full(1, rule.domain + 1.0)
    assert np.isinf(rule.slopes([lo], [hi], data)).all()
    with np.errstate(all="ignore"):
        outside, inside = (rule.value(end, data) for end in (lo, hi))
    assert not np.isfinite(outside).all() and np.isfinite(inside).all()


@pytest.mark.parametrize("power", [0.5, 1.5, -1, -0.5])
def test_powers_are_not_followed_out_of_their_domain(power):
    rule, data = rule_of(exact(power))
    ((low, high),) = rule.slopes([np.array([-0.1, 1.0])], [np.full(2, 2.0)], data)
    assert np.isinf([low[0], high[0]]).all() and np.isfinite([low[1], high[1]]).all()
    pole = rule_of(exact(-1))[1]
    assert rule.values([np.array([-1.0])], [np.array([1.0])], pole)[2].all()


@pytest.mark.parametrize("atom", [cp.kl_div, cp.rel_entr])
def test_divergences_lie_in_their_intervals(atom):
    rng = np.random.default_rng(0)
    lo, hi = np.sort(rng.uniform(0.0, 3.0, (2, 2, 40)), axis=0)
    lo[0, :5] = 0.0
    lo[1] += 0.01
    hi = np.maximum(lo, hi)
    rule, data = rule_of(atom(cp.Variable(40), cp.Variable(40)))
    low, high, lost = rule.values(lo, hi, data)
    slopes = rule.slopes(lo, hi, data)
    assert not lost.any()
    for _ in range(100):
        v = lo + rng.choice([0.0, 1.0, rng.uniform()], size=lo.shape) * (hi - lo)
        value = rule.forward(v, data)
        assert (low - 1e-12 <= value).all() and (value <= high + 1e-12).all()
        for k, (least, most) in enumerate(slopes):
            with np.errstate(divide="ignore"):
                slope = rule.vjp(v, value, np.ones(40), data, k)
            assert (least - 1e-12 <= slope).all() and (slope <= most + 1e-12).all()
    ((least, most), _) = rule.slopes([lo[0] - 4, lo[1]], [hi[0], hi[1]], data)
    assert np.isinf([least, most]).all()


@entrywise
def test_derivatives_rise_fall_or_turn_as_stated(name, k):
    rule, data = Sample(name, k).rule, Sample(name, k).data
    if name == "power":
        return
    grid = np.linspace(max(rule.domain + 1e-2, -4.0), 4.0, 801)
    steps = np.diff(rule.derivative(grid, data))
    if rule.convex is None:
        assert rule.bends_both_ways and steps.min() < 0 < steps.max()
        turns = grid[1:-1][np.diff(np.sign(steps)) != 0]
        assert np.allclose(turns, rule.bends, atol=0.02)
    else:
        assert (steps >= -1e-12).all() if rule.convex else (steps <= 1e-12).all()


@every
def test_second_derivatives_are_below_their_bound(name, k):
    sample = Sample(name, k)
    last = 0.7 if name == "quad_over_lin" else None
    bound = sample.rule.curvature(1.0, sample.data, last)
    if bound is None:
        return
    largest = 0.0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        point = 3 * rng.normal(size=math.prod(sample.shapes[0]))
        rest = [np.full(math.prod(shape), 0.7) for shape in sample.shapes[1:]]
        way = rng.normal(size=point.size)
        g = np.eye(math.prod(sample.shape))[0]
        ends = [sample.cotangent([point + h * way, *rest], g, 0) for h in (1e-5, -1e-5)]
        read = sample.cotangent([np.ones(point.size), *rest], g, 0) != 0
        bent = (ends[0] - ends[1])[read] @ way[read] / 2e-5 / (way[read] @ way[read])
        largest = max(largest, abs(bent))
    assert 0.05 * bound < largest <= bound * (1 + 1e-6)


@every
def test_bilinear_atoms_are_their_matrix_between_the_arguments(name, k):
    sample = Sample(name, k)
    values = sample.draw()
    weight = np.cos(np.arange(math.prod(sample.shape))) + 1.5
    last = values[-1] if len(values) == 2 else None
    parts = (weight, sample.data, sample.shapes, last, sample.shape)
    if not sample.rule.is_bilinear(sample.data):
        assert sample.rule.bilinear(*parts) is None
        return
    made = sample.rule.bilinear(*parts)
    if made is None:
        assert sample.shapes[0] != sample.shapes[1]
        return
    B, which = made
    assert values[0] @ (B @ values[which]) == pytest.approx(sample.value(values) @ weight)
    if sample.rule.of_squares(sample.data):
        assert which == 0 and (csr(B) != sp_diagonal(B)).nnz == 0


def sp_diagonal(B):
    return csr(np.diag(B.diagonal()))


def boxes(sample, seed):
    """Intervals of the arguments of an atom, and a point of each."""
    rng = np.random.default_rng(seed)
    ends = [np.sort(rng.normal(size=(2, math.prod(shape))), axis=0) for shape in sample.shapes]
    if sample.name == "quad_over_lin":
        ends[1] = np.full((2, 1), 0.7)
    if sample.name in ("kl_div", "rel_entr"):
        ends = [0.1 + np.abs(pair - pair.min()) for pair in ends]
    lo, hi = ([pair[k] for pair in ends] for k in (0, 1))
    return lo, hi, [low + rng.uniform(size=low.size) * (high - low) for low, high in ends]


@pytest.mark.parametrize("name", TABLE)
def test_intervals_hold_values_and_derivatives_of_atoms_of_several_entries(name):
    sample = Sample(name)
    rule, data = sample.rule, sample.data
    if isinstance(rule, Entrywise):
        return
    told = {"values": {"multiply", "maximum", "minimum", "kl_div", "rel_entr"}}
    told["slopes"] = {"maximum", "minimum", "quad_over_lin", "norm1", "kl_div", "rel_entr"}
    told["weights"] = {"max", "min", "log_sum_exp", "pnorm"}
    for seed in range(20):
        lo, hi, point = boxes(sample, seed)
        g = np.ones(math.prod(sample.shape))
        values, slopes = rule.values(lo, hi, data), rule.slopes(lo, hi, data)
        weights = rule.weights(np.full(g.size, lo[0].size // g.size), data)
        facets = {"values": values, "slopes": slopes, "weights": weights}
        assert {f for f, found in facets.items() if found} == {f for f in told if name in told[f]}
        if values:
            found = sample.value(point)
            assert (values[0] <= found).all() and (found <= values[1]).all()
            assert not values[2].any()
        for k, (least, most) in enumerate(slopes or ()):
            slope = sample.cotangent(point, g, k)
            assert (least <= slope).all() and (slope <= most).all()
        if weights:
            slope = sample.cotangent(point, g, 0)
            assert (weights[0] <= slope).all() and (slope <= 1 + 1e-12).all()
            assert np.abs(slope).sum() <= weights[1].sum() * (1 + 1e-12)


def test_only_euclidean_norms_are_followed_among_pnorms():
    cube = Sample("pnorm", 1)
    assert cube.rule.weights(np.ones(1, dtype=int), cube.data) is None


@every
def test_products_and_quadratic_forms_are_what_they_say(name, k):
    sample = Sample(name, k)
    rule = sample.rule
    first, *rest = values = sample.draw()
    if rule.product is None and not rule.quadratic_form:
        assert name not in ("multiply", "matmul", "quad_form")
        assert not (rule.is_bilinear(sample.data) and len(rest) == 1 and name != "quad_over_lin")
        return
    u, w = (v.reshape(shape, order="F") for v, shape in zip(values, sample.shapes, strict=True))
    made = u @ w @ u if rule.quadratic_form else u * w if rule.product == "entry" else u @ w
    np.testing.assert_allclose(sample.value([first, *rest]), np.ravel(made, order="F"))


@every
def test_linear_maps_are_the_atom_where_the_other_argument_is_constant(name, k):
    sample = Sample(name, k)
    values = sample.draw()
    assert (len(sample.rule.linear_in) == 2) == (sample.rule.product is not None)
    for which in sample.rule.linear_in:
        shape = sample.shapes[1 - which]
        other = values[1 - which].reshape(shape, order="F")
        M = sample.rule.linear_map(which, other, sample.shapes)
        np.testing.assert_allclose(M @ values[which], sample.value(values), rtol=1e-12)
        if len(shape) == 2:
            sparse = sample.rule.linear_map(which, csr(other), sample.shapes)
            np.testing.assert_array_equal(csr(sparse).toarray(), csr(M).toarray())
        if (name, k) == ("matmul", 0):
            assert sample.rule.linear_map(which, other, sample.shapes, most=10) is None


@every
def test_rows_are_cut_where_the_value_reads_its_own_row_alone(name, k):
    sample = Sample(name, k)
    rule, count = sample.rule, len(sample.shapes)
    numbers = [name == "quad_over_lin" and place == 1 for place in range(count)]
    cut = rule.cut(numbers)
    assert len(cut) == count and cut[0]
    shapes = [shape for shape, own in zip(sample.shapes, cut, strict=True) if own]
    if not rule.by_row(sample.data, shapes, sample.shape):
        return
    values = sample.draw()
    before = sample.value(values).reshape(sample.shape, order="F")
    moved = [value.copy() for value in values]
    for value, shape, own in zip(moved, sample.shapes, cut, strict=True):
        if own:
            value.reshape(shape, order="F")[1] += 0.05
    after = sample.value(moved).reshape(sample.shape, order="F")
    assert {r for r in range(len(before)) if not np.array_equal(before[r], after[r])} <= {1}


def test_rows_are_cut_of_all_atoms_but_those_that_mix_them():
    def by_row(name, k=0):
        sample = Sample(name, k)
        numbers = [place > 0 and shape == () for place, shape in enumerate(sample.shapes)]
        cut = sample.rule.cut(numbers)
        shapes = [shape for shape, own in zip(sample.shapes, cut, strict=True) if own]
        return sample.rule.by_row(sample.data, shapes, sample.shape)

    mixing = {"norm_inf", "sum_largest", "quad_form"}
    assert {name for name in TABLE if not by_row(name)} == mixing
    assert not by_row("max", 1) and not by_row("norm1", 1) and not by_row("matmul", 2)
    assert by_row("matmul", 1)


@pytest.mark.parametrize("name", TABLE)
def test_what_dcp_does_not_know_is_stated(name):
    sample = Sample(name)
    count = len(sample.shapes)
    # cvxpy takes u exp(u) for convex where u is known to be positive.
    atom = cp.xexp(cp.Variable(2, nonneg=True)) if name == "xexp" else sample.atom
    known = atom.is_atom_convex() or atom.is_atom_concave()
    stated = sample.rule.beyond_dcp([True] * count)
    if name in {"multiply", "matmul", "division", *MIXED}:
        assert stated
    else:
        assert known and not stated
    assert sample.rule.beyond_dcp([True, *[False] * (count - 1)]) == (name in MIXED)


def test_convexity_by_numbers():
    squares, form = RULES["quad_over_lin"], RULES["quad_form"]
    assert squares.convex_with(np.array([2.0])) and form.convex_with(P.ravel(order="F"))
    assert not squares.convex_with(np.array([-1.0])) and not form.convex_with(-P.ravel(order="F"))
    assert not squares.convex_with(None) and not form.convex_with(None)
    assert {name for name in RULES if RULES[name].convex_by_numbers} == {squares.name, form.name}


@pytest.mark.parametrize("case", ["exp", "log", "log1p", ("power", 2), ("power", 3)], ids=str)
def test_penalties_that_level_off_bend_most_at_zero(case):
    sample = Sample(*([case] if isinstance(case, str) else case))
    rule, data, c = sample.rule, sample.data, np.array([0.6])
    sign, grid = (-1 if rule.convex else 1), np.linspace(-3, 3, 1201)
    values = rule.value(c + sign * grid**2, data)
    bent = np.diff(values, 2) / (grid[1] - grid[0]) ** 2
    assert np.abs(bent).max() <= 2 * rule.slope_above(c, data).item() * (1 + 1e-3)
    if not rule.convex:
        assert rule.slope_above(np.array([-2.0]), data) is None


# What other files may use of the atoms: no constant of one, and no class but that of all.
OFFERED = {*atoms.__all__, "linear", "spellings"} - {"RULES"}
CVXPY = {"AddExpression", "NegExpression", "MulExpression", "DivExpression"}
PACKAGE = Path(atoms.__file__).parents[2]


def branches(source):
    """Lines on which a file tells kinds of atoms apart."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and not (node.module or "").startswith("cvxpy"):
            path, names = (node.module or "").split("."), {alias.name for alias in node.names}
            inside = "atoms" in path and not (path[-1] == "atoms" and names <= OFFERED)
            if inside or "atoms" in names:
                yield node.lineno
        elif isinstance(node, ast.Compare):
            sides = [ast.unparse(side) for side in (node.left, *node.comparators)]
            rule = any(re.fullmatch(r"(.*\.)?rule(\.name)?", side) for side in sides)
            kind = any(re.search(r"\)\.__name__|rule\.name", side) for side in sides)
            same = isinstance(node.ops[0], (ast.Is, ast.IsNot)) and "None" not in sides
            among = isinstance(node.ops[0], (ast.In, ast.NotIn)) and ".rule" in sides[0]
            if kind or (rule and (same or among)):
                yield node.lineno
        elif isinstance(node, ast.Constant) and node.value in CVXPY:
            yield node.lineno


FILES = [
    path.relative_to(PACKAGE).as_posix()
    for path in sorted(PACKAGE.rglob("*.py"))
    if path.parent != PACKAGE / "model" / "atoms"
]


@pytest.mark.parametrize("room", sorted({file.split("/")[0] for file in FILES}))
def test_no_other_file_tells_kinds_of_atoms_apart(room):
    shell = {"run/report.py"}  # asks where it runs
    files = [file for file in FILES if file.split("/")[0] == room and file not in shell]
    found = {f: list(branches((PACKAGE / f).read_text(encoding="utf-8"))) for f in files}
    assert {file: lines for file, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    "source",
    [
        "from .atoms import MATMUL",
        "from ..model.atoms import Entrywise",
        "from ..model.atoms import RULES",
        "from ..model.atoms.products import Matmul",
        "from .atoms import products",
        "from ..model import atoms",
        "atom.rule is other",
        "atom.rule not in others",
        "atom.rule.name == 'matmul'",
        "type(expression).__name__ == 'multiply'",
        "type(expression).__name__ in names",
        "kind == 'MulExpression'",
    ],
)
def test_files_that_tell_kinds_of_atoms_apart_are_found(source):
    assert list(branches(source))


def test_files_that_ask_atoms_are_not_found():
    source = "from .atoms import Rule, linear, rule_of\natom.rule.product == 'matrix'\n"
    assert not list(branches(source))
