"""Objectives of many agents at once against each of them by itself."""

import copy
import pickle

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpcvx as dp
from dpcvx.model.stacked import StackedObjective, stackable
from dpcvx.sensitivity.derivation import derive
from dpcvx.solvers.projector import Extent
from tests.forms import form_of

W, B = cp.Variable(3, name="w"), cp.Variable(name="b")
X = dp.Private(shape=(4, 3), name="X", adjacency=dp.Rows(2.0))
Y = dp.Private(shape=4, name="y", adjacency=dp.Rows(1.0))
V = cp.Variable((3, 2), name="V")
C = np.arange(12.0).reshape(4, 3) / 7
AGENTS = 5

LOSSES = {
    "logistic": lambda: cp.sum(cp.logistic(-(X @ W))) / 4,
    "with intercept": lambda: cp.sum(cp.logistic(X @ W + B)),
    "squares": lambda: cp.sum_squares(X @ W - Y) / 3,
    "huber": lambda: cp.sum(cp.huber(X @ W + B - Y, 0.3)),
    "hinge": lambda: cp.sum(cp.pos(1 - X @ W)) + 0.1 * cp.sum_squares(W),
    "absolute": lambda: cp.norm1(X @ W - Y) + cp.sum(cp.square(C @ W)),
    "pinball": lambda: cp.sum(cp.maximum(0.2 * (X @ W - Y), -0.8 * (X @ W - Y))),
    "several scores": lambda: cp.sum(cp.logistic(X @ V)) + cp.sum_squares(V),
    "weights": lambda: cp.sum(cp.multiply(np.arange(4.0), cp.exp(0.1 * (X @ W)))),
    "an outer function": lambda: cp.exp(0.1 * cp.sum_squares(X @ W - Y)),
    "a public product": lambda: cp.sum(cp.logistic(cp.multiply(Y, C @ W))),
}
REFUSED = {
    "softmax": lambda: cp.sum(cp.log_sum_exp(X @ V, axis=1)),
    "norm": lambda: cp.norm(X @ W - Y),
    "records on the right": lambda: cp.sum(cp.logistic(W @ X.T)),
}


def drawn(form, seed, scale=1.0):
    """Data of all agents, by private object."""
    rng = np.random.default_rng(seed)
    return [scale * rng.normal(size=(AGENTS, spec.size)) for spec in form.private]


def compared(form, clips, data, x):
    """Gradients at once and one by one, where noise is to hide them."""
    together = StackedObjective(form, data, clips).gradients(x)
    points = np.broadcast_to(x, (AGENTS, form.n))
    apart = [
        form.bind([part[k] for part in data], clips, limited=True).gradient(points[k])
        for k in range(AGENTS)
    ]
    return together, np.array(apart)


@pytest.mark.parametrize("name", LOSSES)
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**31), scale=st.sampled_from([0.0, 1e-3, 1.0, 50.0]), own=st.booleans())
def test_gradients_are_those_of_each_agent(name, seed, scale, own):
    _, form = form_of(LOSSES[name]())
    assert stackable(form, ())
    shape = (AGENTS, form.n) if own else (form.n,)
    x = scale * np.random.default_rng(seed).normal(size=shape)
    together, apart = compared(form, (), drawn(form, seed), x)
    assert np.allclose(together, apart, rtol=1e-12, atol=1e-12 * (1 + np.abs(apart).max()))


@pytest.mark.parametrize("name", ["logistic", "with intercept", "squares", "huber"])
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**31), clip=st.sampled_from([1e-3, 0.3, 5.0]), own=st.booleans())
def test_clipped_contributions_are_those_of_each_agent(name, seed, clip, own):
    _, form = form_of(LOSSES[name]())
    free = np.full(form.n, np.inf)
    clips = derive(form, "north", lambda: Extent(-free, free), clip=clip).clips
    assert clips and stackable(form, clips)
    x = np.random.default_rng(seed).normal(size=(AGENTS, form.n) if own else form.n)
    together, apart = compared(form, clips, drawn(form, seed, 3.0), x)
    assert np.allclose(together, apart, rtol=1e-12, atol=1e-12)
    whole, _ = compared(form, (), drawn(form, seed, 3.0), x)
    assert clip > 1 or not np.allclose(together, whole)


@pytest.mark.parametrize("name", LOSSES)
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**31), clip=st.sampled_from([None, 0.3]), points=st.integers(1, 4))
def test_one_agent_is_evaluated_at_many_points(name, seed, clip, points):
    _, form = form_of(LOSSES[name]())
    free = np.full(form.n, np.inf)
    try:
        clips = derive(form, "north", lambda: Extent(-free, free), clip=clip).clips
    except dp.PrivacyError:  # nothing to clip
        clips = ()
    data = [part[:1] for part in drawn(form, seed)]
    x = np.random.default_rng(seed).normal(size=(points, form.n))
    alone = form.bind([part[0] for part in data], clips, limited=True)
    together = StackedObjective(form, data, clips)
    assert np.allclose(together.gradients(x), [*map(alone.gradient, x)], rtol=1e-12, atol=1e-12)
    assert np.allclose(together.values(x), [*map(alone.value, x)], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", LOSSES)
def test_values_are_those_of_each_agent(name):
    _, form = form_of(LOSSES[name]())
    data, x = drawn(form, 3), np.linspace(-1, 1, form.n)
    apart = [form.bind([d[k] for d in data], (), limited=True).value(x) for k in range(AGENTS)]
    assert np.allclose(StackedObjective(form, data, ()).values(x), apart, rtol=1e-12)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("bad", [1e308, -1e200, 1e155])
def test_data_beyond_numbers_stay_with_their_agent(name, bad):
    _, form = form_of(LOSSES[name]())
    data = drawn(form, 1)
    data[0][2, 0] = bad
    x = np.ones(form.n)
    together, apart = compared(form, (), data, x)
    fine = [0, 1, 3, 4]
    assert np.allclose(together[fine], apart[fine], rtol=1e-12, atol=1e-12)
    assert np.allclose(np.nan_to_num(together[2]), np.nan_to_num(apart[2]), rtol=1e-9)


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_stacked_is_known_before(name):
    _, form = form_of(REFUSED[name]())
    assert not stackable(form, ())
    with pytest.raises(dp.DataError, match="fault of the package"):
        StackedObjective(form, drawn(form, 0), ())


def test_stacked_objectives_neither_print_nor_pickle_data():
    _, form = form_of(LOSSES["squares"]())
    found = StackedObjective(form, drawn(form, 0), ())
    assert repr(found) == "StackedObjective(agents=5, n=3)"
    for held in (found, found._root, found._args[0][0]):
        with pytest.raises(TypeError, match="never pickled"):
            pickle.dumps(held)
        with pytest.raises(TypeError, match="never pickled"):
            copy.deepcopy(held)
