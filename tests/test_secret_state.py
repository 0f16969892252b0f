"""Vectors that stay with an agent: what they are, and how far one change of the data moves them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpcvx.secret_state import Recipe, SecretState

n = 3
numbers = st.floats(-2, 2)
names = st.sampled_from(["a", "b"])
recipes = st.lists(
    st.tuples(names, st.dictionaries(names, numbers, max_size=2), st.dictionaries(names, numbers)),
    max_size=8,
)


def states(H, shift, change, smoothness):
    """Two states whose gradients differ by a vector."""
    made = [
        SecretState(lambda x, c=c: H @ x + c, lambda x: H @ x, change, smoothness)
        for c in (np.zeros(n), shift)
    ]
    for state in made:
        for name in "ab":
            state.keep(name, Recipe(np.ones(n)))
    return made


@given(recipes=recipes, seed=st.integers(0, 10**6))
def test_no_vector_moves_farther_than_its_reach(recipes, seed):
    rng = np.random.default_rng(seed)
    H = rng.normal(size=(n, n))
    H, shift = H + H.T, rng.normal(size=n)
    change, M = float(np.linalg.norm(shift)), float(np.linalg.norm(H, 2))
    pair = states(H, shift, change, M)
    for name, vectors, slopes in recipes:
        center = rng.normal(size=n)
        for state in pair:
            state.keep(name, Recipe(center, vectors, slopes))
        for other in "ab":
            apart = np.linalg.norm(pair[1].vector(other) - pair[0].vector(other))
            assert apart <= pair[0].reach(other) * (1 + 1e-9) + 1e-9
            apart = np.linalg.norm(pair[1].slope(other) - pair[0].slope(other))
            assert apart <= pair[0].slope_reach(other) * (1 + 1e-9) + 1e-9


@pytest.mark.parametrize("steps", [1, 4])
def test_the_reach_is_attained_where_curvature_is_negative(steps):
    """x moves against gradients -M x + c: every step makes the difference larger."""
    shift = np.array([0.5, 0.0, 0.0])
    pair = states(-2.0 * np.eye(n), shift, 0.5, 2.0)
    for _ in range(steps):
        for state in pair:
            state.keep("a", Recipe(np.zeros(n), slopes={"a": -0.25}))
    apart = np.linalg.norm(pair[1].vector("a") - pair[0].vector("a"))
    assert apart == pytest.approx(pair[0].reach("a"), rel=1e-9)
    assert apart == pytest.approx(0.25 * 0.5 * sum(0.5**i for i in range(steps)), rel=1e-12)


def test_a_recipe_may_name_what_it_replaces():
    (state, _) = states(np.eye(n), np.ones(n), 1.0, 1.0)
    state.keep("a", Recipe(np.full(n, 10.0), {"a": 2.0, "b": 1.0}, {"a": -1.0}))
    assert state.vector("a").tolist() == [12.0] * n
    assert state.size("a") == 14.0 and state.secret("a")
    assert state.reach("a") == 1.0


def test_what_is_public_has_no_reach():
    (state, _) = states(np.eye(n), np.ones(n), 1.0, 1.0)
    assert state.reach("a") == 0.0 and state.slope_reach("a") == 1.0
    assert not state.secret("a")


def test_what_is_made_of_secrets_is_secret_until_it_is_made_anew():
    """Whatever their reach: it may be too small for a number."""
    (state, _) = states(np.eye(n), np.ones(n), 0.0, 0.0)
    state.keep("a", Recipe(np.ones(n), slopes={"b": 1.0}))
    state.keep("b", Recipe(np.ones(n), {"a": 1.0}))
    assert state.reach("b") == 0.0 and state.secret("b")
    state.keep("b", Recipe(np.ones(n)))
    assert not state.secret("b")


def test_sizes_are_those_of_gradients_where_a_vector_would_be_without_data():
    """Also under another name: the old point of gradient tracking is a copy."""
    state = SecretState(lambda x: 5.0 * x + 1.0, lambda x: 5.0 * x, 1.0, 5.0)
    state.keep("x", Recipe(np.full(n, 8.0)))
    state.keep("y", Recipe(np.full(n, 8.0), slopes={"x": -0.2}))
    state.keep("old", Recipe(np.zeros(n), {"x": 1.0}))
    assert state.slope_size("old") == state.slope_size("x") == 40.0
    # Parts that cancel leave their rounding behind.
    assert state.size("y") == 16.0 and state.slope_size("y") == 0.0
    assert state.size("old") == 8.0


def test_gradients_at_kept_vectors_are_computed_once_until_these_are_made_anew():
    asked, public = [], []
    state = SecretState(
        lambda x: asked.append(x) or 2.0 * x, lambda x: public.append(x) or 2.0 * x, 1.0, 2.0
    )
    state.keep("x", Recipe(np.ones(n)))
    state.slope("x")[:] = np.nan  # a copy
    assert state.slope_size("x") == 2.0
    state.keep("x", Recipe(np.zeros(n), {"x": 1.0}, {"x": -0.25}))
    assert (len(asked), len(public)) == (1, 1)
    assert state.slope("x").tolist() == [1.0] * n and state.slope_size("x") == 1.0
    assert (len(asked), len(public)) == (2, 2)
