"""Vectors that stay with an agent: what they are, and how far one change of the data moves them."""

import numpy as np
import pytest

from dpcvx.sensitivity.kept_vectors import LinearCombination, SecretState
from dpcvx.sensitivity.reach import fixed_shift

n = 3


def states(H, shift, smoothness):
    """Two states whose gradients differ by a vector, of which no more is known than its norm."""
    change = float(np.linalg.norm(shift))
    moves = fixed_shift(n, n, lambda K, p: np.linalg.norm(K, 2) * change, smoothness, None)
    made = [SecretState(lambda x, c=c: H @ x + c, lambda x: H @ x, moves) for c in (0, shift)]
    for state in made:
        for name in "ab":
            state.keep(name, LinearCombination(np.ones(n)))
    return made


@pytest.mark.parametrize("steps", [1, 4])
def test_the_reach_is_attained_where_curvature_is_negative(steps):
    """x moves against gradients -M x + c: every step makes the difference larger."""
    pair = states(-2.0 * np.eye(n), np.array([0.5, 0.0, 0.0]), 2.0)
    for _ in range(steps):
        for state in pair:
            state.keep("a", LinearCombination(np.zeros(n), slopes={"a": -0.25}))
    apart = np.linalg.norm(pair[1].vector("a") - pair[0].vector("a"))
    assert apart == pytest.approx(pair[0].reach("a", 2), rel=1e-9)
    assert apart == pytest.approx(0.25 * 0.5 * sum(0.5**i for i in range(steps)), rel=1e-12)


def test_a_recipe_may_name_what_it_replaces():
    (state, _) = states(np.eye(n), np.eye(n)[0], 1.0)
    state.keep("a", LinearCombination(np.full(n, 10.0), {"a": 2.0, "b": 1.0}, {"a": -1.0}))
    assert state.vector("a").tolist() == [12.0] * n
    assert state.size("a") == 14.0 and state.secret("a")
    assert state.reach("a", 2) == pytest.approx(1.0, rel=1e-5)


def test_what_is_public_has_no_reach():
    (state, _) = states(np.eye(n), np.eye(n)[0], 1.0)
    assert state.reach("a", 2) == 0.0 and state.slope_reach("a", 2) == pytest.approx(1.0, rel=1e-5)
    assert not state.secret("a")


def test_what_is_made_of_secrets_is_secret_until_it_is_made_anew():
    """Whatever their reach: it may be too small for a number."""
    (state, _) = states(np.eye(n), np.zeros(n), 0.0)
    state.keep("a", LinearCombination(np.ones(n), slopes={"b": 1.0}))
    state.keep("b", LinearCombination(np.ones(n), {"a": 1.0}))
    assert state.reach("b", 2) == 0.0 and state.secret("b")
    state.keep("b", LinearCombination(np.ones(n)))
    assert not state.secret("b")


def test_sizes_are_those_of_gradients_where_a_vector_would_be_without_data():
    """Also under another name: the old point of gradient tracking is a copy."""
    state = SecretState(lambda x: 5.0 * x + 1.0, lambda x: 5.0 * x, None)
    state.keep("x", LinearCombination(np.full(n, 8.0)))
    state.keep("y", LinearCombination(np.full(n, 8.0), slopes={"x": -0.2}))
    state.keep("old", LinearCombination(np.zeros(n), {"x": 1.0}))
    assert state.slope_size("old") == state.slope_size("x") == 40.0
    # Parts that cancel leave their rounding behind.
    assert state.size("y") == 16.0 and state.slope_size("y") == 0.0
    assert state.size("old") == 8.0


def test_gradients_at_kept_vectors_are_computed_once_until_these_are_made_anew():
    asked, public = [], []
    state = SecretState(
        lambda x: asked.append(x) or 2.0 * x, lambda x: public.append(x) or 2.0 * x, None
    )
    state.keep("x", LinearCombination(np.ones(n)))
    state.slope("x")[:] = np.nan  # a copy
    assert state.slope_size("x") == 2.0
    state.keep("x", LinearCombination(np.zeros(n), {"x": 1.0}, {"x": -0.25}))
    assert (len(asked), len(public)) == (1, 1)
    assert state.slope("x").tolist() == [1.0] * n and state.slope_size("x") == 1.0
    assert (len(asked), len(public)) == (2, 2)
