"""Evaluators of several agents, or at several points, against one agent at one point."""

import copy
import pickle
import sys
from pathlib import Path

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

import dpcvx as dp
from dpcvx.model import row_blocks
from dpcvx.model.atoms import RULES
from dpcvx.model.row_blocks import bound_objective
from dpcvx.model.trailing import of_all
from tests.forms import difference_quotients, form_of
from tests.model.random_forms import LARGE, SMALL, clips_of, random_form

AGENTS, PACKAGE = 3, str(Path(dp.__file__).parent)
SEEDS = range(0, 300, 10)
w, b = cp.Variable(3, name="w"), cp.Variable(name="b")
V = cp.Variable((3, 2), name="V")
X = dp.Private(shape=(4, 3), name="X", adjacency=dp.Rows(2.0))
Y = dp.Private(shape=4, name="y", adjacency=dp.Rows(1.0))

LOSSES = {
    "logistic": lambda: cp.sum(cp.logistic(-(X @ w))) / 4,
    "with intercept": lambda: cp.sum(cp.logistic(X @ w + b)),
    "squares": lambda: cp.sum_squares(X @ w - Y) / 3,
    "hinge": lambda: cp.sum(cp.pos(1 - X @ w)) + 0.1 * cp.sum_squares(w),
    "several scores": lambda: cp.sum(cp.logistic(X @ V)) + cp.sum_squares(V),
    "softmax": lambda: cp.sum(cp.log_sum_exp(X @ V, axis=1)),
    "norm": lambda: cp.norm(X @ w - Y),
    "records on the right": lambda: cp.sum(cp.logistic(w @ X.T)),
}


def drawn(form, seed, agents=AGENTS):
    """Data of all agents, by private object."""
    rng = np.random.default_rng(seed)
    return [rng.normal(size=(agents, spec.size)) for spec in form.private]


def assert_rows_are_single_agents(form, seed, clips, limited):
    data = drawn(form, seed)
    single = [form.bind([d[k] for d in data], clips, limited=limited) for k in range(AGENTS)]
    batch = form.bind(data, clips, limited=limited)
    for scale in (0.0, 0.3, 1.0):
        x = scale * np.random.default_rng(seed).normal(size=(AGENTS, form.n))
        assert_same_bits(batch.gradient(x), [one.gradient(x[k]) for k, one in enumerate(single)])
        assert_same_bits(batch.value(x), [one.value(x[k]) for k, one in enumerate(single)])
        assert_same_bits(batch.gradient(x[0]), [one.gradient(x[0]) for one in single])
        assert_same_bits(batch.value(x[0]), [one.value(x[0]) for one in single])
        assert_same_bits(single[0].gradient(x), [*map(single[0].gradient, x)])
        assert_same_bits(single[0].value(x), [*map(single[0].value, x)])


def assert_same_bits(rows, single):
    assert rows.shape == np.shape(single)
    assert np.array_equal(rows, single, equal_nan=True)


@pytest.mark.parametrize("first", SEEDS)
def test_rows_of_a_batch_have_the_bits_of_each_agent(first):
    tried = 0
    for seed in range(first, first + 10):
        form = random_form(seed, LARGE if seed % 50 > 47 else SMALL)
        if form is None:
            continue
        tried += 1
        assert_rows_are_single_agents(form, seed, (), limited=False)
        for clips in {(), clips_of(form)}:
            assert_rows_are_single_agents(form, seed, clips, limited=True)
    assert tried > 5


def test_random_forms_cover_every_rule_and_kind_of_clip():
    forms = [form for seed in range(120) if (form := random_form(seed)) is not None]
    assert {atom.rule.name for form in forms for atom in form.atoms} == {*RULES}
    clips = [clip for form in forms[1::2] for clip in clips_of(form)]
    assert {clip.turned for clip in clips} == {clip.beside is None for clip in clips} == {0, 1}


@pytest.mark.parametrize("seed", range(40))
def test_gradients_of_random_forms_are_difference_quotients(seed):
    form = random_form(seed)
    if form is None:  # cvxpy or dpcvx refuse it
        return
    single = form.bind([d[0] for d in drawn(form, seed)])
    x = np.random.default_rng(seed).uniform(0.1, 0.5, form.n)
    expected = difference_quotients(single.value, x, h=1e-6)
    size = 1 + np.abs(expected).max() + abs(single.value(x))
    assert np.allclose(single.gradient(x), expected, rtol=1e-4, atol=1e-6 * size)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("bad", [1e308, -1e200, 1e155])
def test_data_beyond_numbers_stay_with_their_agent(name, bad):
    form = form_of(LOSSES[name]())[1]
    data = drawn(form, 1)
    data[0][1, 0] = bad
    rows = form.bind(data, limited=True).gradient(np.ones(form.n))
    for k in range(AGENTS):
        single = form.bind([part[k] for part in data], limited=True)
        assert np.array_equal(rows[k], single.gradient(np.ones(form.n)), equal_nan=True)


P = dp.Private(shape=(3, 4), name="P", adjacency=dp.Within(1.0))
MAY_BE_SPARSE = {
    **{name: LOSSES[name] for name in ("logistic", "with intercept", "squares", "softmax")},
    "a private matrix on the right": lambda: cp.sum(cp.logistic(w @ P)) + cp.sum_squares(V.T @ P),
}


@pytest.mark.parametrize("some", [range(AGENTS), [1]], ids=["all", "one"])
@pytest.mark.parametrize("name", MAY_BE_SPARSE)
def test_sparse_data_of_all_or_some_agents_have_the_bits_of_each(name, some):
    form = form_of(MAY_BE_SPARSE[name]())[1]
    (sparse,) = form.factors
    shape, data = form.private[sparse].shape, drawn(form, 2)
    data[sparse] *= np.random.default_rng(2).random(data[sparse].shape) < 0.4
    parts = [[*part] for part in data]
    for k in some:
        parts[sparse][k] = sp.csr_array(parts[sparse][k].reshape(shape, order="F"))
    joined = [of_all(part, spec.shape) for part, spec in zip(parts, form.private, strict=True)]
    for clips in {(), clips_of(form)}:
        batch = form.bind(joined, clips, limited=True)
        single = [form.bind([p[k] for p in parts], clips, limited=True) for k in range(AGENTS)]
        x = np.random.default_rng(3).normal(size=(AGENTS, form.n))
        for evaluate in (type(batch).gradient, type(batch).value):
            assert_same_bits(evaluate(batch, x), [*map(evaluate, single, x)])
            assert_same_bits(evaluate(batch, x[0]), [evaluate(one, x[0]) for one in single])
            assert_same_bits(evaluate(single[1], x), [evaluate(single[1], point) for point in x])


BY_BLOCKS = {
    "product": lambda X, y: cp.sum(cp.logistic(X @ cp.Variable(6))) / 2,
    "labels beside": lambda X, y: cp.sum(cp.huber(X @ cp.Variable(6) - y + b, 0.5)),
    "classes": lambda X, y: cp.sum(cp.log_sum_exp(X @ cp.Variable((6, 2)), axis=1)),
}


@pytest.mark.parametrize("name", BY_BLOCKS)
@pytest.mark.parametrize("clipped", [False, True])
def test_rows_of_batches_in_blocks_have_the_bits_of_each_agent(name, clipped, monkeypatch):
    for constant, value in {"_BLOCK": 96, "_MANY": 384, "_FEWEST_ROWS": 4, "_LONGEST": 24}.items():
        monkeypatch.setattr(row_blocks, constant, value)
    records = dp.Private(shape=(70, 6), name="X", adjacency=dp.Rows(2.0, records="r"))
    labels = dp.Private(shape=70, name="y", adjacency=dp.Rows(1.0, records="r"))
    form = form_of(BY_BLOCKS[name](records, labels))[1]
    clips = clips_of(form) if clipped else ()
    data, x = drawn(form, 4), np.random.default_rng(4).normal(size=(AGENTS, form.n))
    batch = bound_objective(form, data, clips, limited=True)
    assert len(batch._order.blocks) == 5
    for points in (x, x[0]):
        single = [
            bound_objective(form, [d[k] for d in data], clips, limited=True).gradient(point)
            for k, point in enumerate(np.broadcast_to(points, x.shape))
        ]
        assert_same_bits(batch.gradient(points), single)
        whole = form.bind(data, clips, limited=True).gradient(points)
        assert np.allclose(batch.gradient(points), whole, rtol=1e-12, atol=1e-12)


def test_evaluators_of_batches_neither_print_nor_pickle_data():
    form = form_of(LOSSES["squares"]())[1]
    sparse = [sp.csr_array(part.reshape((4, 3), order="F")) for part in drawn(form, 0)[0]]
    joined = of_all(sparse, (4, 3))
    batch = form.bind([joined, drawn(form, 0)[1]])
    assert repr(batch) == "Evaluator(n=3)" and repr(joined) == "SparseMatrices(agents=3)"
    for held in (batch, joined, batch._root, batch._steps[0], batch._order):
        with pytest.raises(TypeError, match="never pickled"):
            pickle.dumps(held)
        with pytest.raises(TypeError, match="never pickled"):
            copy.deepcopy(held)
        assert "[" not in repr(held)


def calls_of(function):
    """How many functions the package's files call, of the package or of C."""
    calls = 0

    def count(frame, event, _):
        nonlocal calls
        calls += event in ("call", "c_call") and frame.f_code.co_filename.startswith(PACKAGE)

    sys.setprofile(count)
    try:
        function()
    finally:
        sys.setprofile(None)
    return calls


C = np.arange(12.0).reshape(4, 3) / 7
# Calls of a gradient of one agent, with an evaluator that only knew one agent.
CALLS = {
    "squares": (lambda: cp.sum_squares(X @ w - Y) / 3, 81),
    "logistic": (lambda: cp.sum(cp.logistic(-(X @ w))) / 4 + 0.1 * cp.sum_squares(w), 107),
    "huber": (lambda: cp.sum(cp.huber(X @ w - Y, 0.3)), 79),
    "absolute": (lambda: cp.norm1(X @ w - Y) + cp.norm1(w), 106),
    "hinge": (lambda: cp.sum(cp.pos(1 - X @ w)), 100),
    "public matrix": (lambda: cp.sum_squares(C @ w - Y), 32),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_gradient_takes_few_calls_and_a_batch_no_more_for_more_agents(name):
    """Calls are most of a small gradient's time, and clocks tell little on busy machines."""
    loss, limit = CALLS[name]
    form = form_of(loss())[1]

    def calls(agents):
        data = [part if agents > 1 else part[0] for part in drawn(form, 0, agents)]
        evaluator = form.bind(data, limited=True)
        x = np.ones((agents, form.n) if agents > 1 else form.n)
        evaluator.gradient(x)
        return calls_of(lambda: evaluator.gradient(x))

    assert calls(1) <= limit
    assert calls(2) == calls(300) <= 1.3 * limit
