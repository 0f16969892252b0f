"""Vectors that stay with an agent: what they are, and how far one change of the data moves them."""

import copy
import pickle

import numpy as np
import pytest

from dpcvx.sensitivity.stored_vectors import (
    LinearCombination,
    StoredEffects,
    StoredVectors,
    fixed_shift,
)

n = 3


class Agent:
    """Two neighbors' vectors, whose gradients differ by a vector of which the norm is known."""

    def __init__(self, H, shift, smoothness):
        change = float(np.linalg.norm(shift))
        moves = fixed_shift(n, n, lambda K, p: np.linalg.norm(K, 2) * change, smoothness, None)
        self.vectors = [StoredVectors(lambda x, c=c: H @ x + c) for c in (0, shift)]
        self.effects = StoredEffects(lambda x: H @ x, moves)
        for name in "ab":
            self.store(name, LinearCombination(np.ones(n)))

    def store(self, name, combination):
        for one in (self.effects, *self.vectors):
            one.store(name, combination)


@pytest.mark.parametrize("steps", [1, 4])
def test_the_reach_is_attained_where_curvature_is_negative(steps):
    """x moves against gradients -M x + c: every step makes the difference larger."""
    agent = Agent(-2.0 * np.eye(n), np.array([0.5, 0.0, 0.0]), 2.0)
    for _ in range(steps):
        agent.store("a", LinearCombination(np.zeros(n), gradients={"a": -0.25}))
    one, two = agent.vectors
    apart = np.linalg.norm(two.vector("a") - one.vector("a"))
    assert apart == pytest.approx(agent.effects.reach("a", 2), rel=1e-9)
    assert apart == pytest.approx(0.25 * 0.5 * sum(0.5**i for i in range(steps)), rel=1e-12)


def test_a_combination_may_name_what_it_replaces():
    agent = Agent(np.eye(n), np.eye(n)[0], 1.0)
    agent.store("a", LinearCombination(np.full(n, 10.0), {"a": 2.0, "b": 1.0}, {"a": -1.0}))
    assert agent.vectors[0].vector("a").tolist() == [12.0] * n
    assert agent.effects.size("a") == 14.0 and agent.effects.secret("a")
    assert agent.effects.reach("a", 2) == pytest.approx(1.0, rel=1e-5)


def test_what_is_public_has_no_reach():
    effects = Agent(np.eye(n), np.eye(n)[0], 1.0).effects
    assert effects.reach("a", 2) == 0.0 and not effects.secret("a")
    assert effects.gradient_reach("a", 2) == pytest.approx(1.0, rel=1e-5)


def test_what_is_made_of_secrets_is_secret_until_it_is_made_anew():
    """Whatever their reach: it may be too small for a number."""
    agent = Agent(np.eye(n), np.zeros(n), 0.0)
    agent.store("a", LinearCombination(np.ones(n), gradients={"b": 1.0}))
    agent.store("b", LinearCombination(np.ones(n), {"a": 1.0}))
    assert agent.effects.reach("b", 2) == 0.0 and agent.effects.secret("b")
    agent.store("b", LinearCombination(np.ones(n)))
    assert not agent.effects.secret("b")


def test_sizes_are_those_of_gradients_where_a_vector_would_be_without_data():
    """Also under another name: the old point of gradient tracking is a copy."""
    agent = Agent(5.0 * np.eye(n), np.ones(n), 5.0)
    agent.store("x", LinearCombination(np.full(n, 8.0)))
    agent.store("y", LinearCombination(np.full(n, 8.0), gradients={"x": -0.2}))
    agent.store("old", LinearCombination(np.zeros(n), {"x": 1.0}))
    effects = agent.effects
    assert effects.gradient_size("old") == effects.gradient_size("x") == 40.0
    # Parts that cancel leave their rounding behind.
    assert effects.size("y") == 16.0 and effects.gradient_size("y") == 0.0
    assert effects.size("old") == 8.0


def test_gradients_at_stored_vectors_are_computed_once_until_these_are_made_anew():
    asked, public = [], []
    agent = Agent(np.eye(n), np.ones(n), 1.0)
    vectors = StoredVectors(lambda x: asked.append(x) or 2.0 * x)
    effects = StoredEffects(lambda x: public.append(x) or 2.0 * x, agent.effects._shift)
    agent.vectors, agent.effects = [vectors], effects
    agent.store("x", LinearCombination(np.ones(n)))
    vectors.gradient("x")[:] = np.nan  # a copy
    vectors.vector("x")[:] = np.nan
    assert effects.gradient_size("x") == 2.0
    agent.store("x", LinearCombination(np.zeros(n), {"x": 1.0}, {"x": -0.25}))
    assert (len(asked), len(public)) == (1, 1)
    assert vectors.gradient("x").tolist() == [1.0] * n and effects.gradient_size("x") == 1.0
    assert (len(asked), len(public)) == (2, 2)


def test_stored_vectors_neither_print_nor_pickle():
    vectors = Agent(np.eye(n), np.ones(n), 1.0).vectors[1]
    assert "1." not in repr(vectors)
    for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="never pickled"):
            attempt(vectors)
