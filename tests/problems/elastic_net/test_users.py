"""The users: drawn as the paper's text says."""

import numpy as np
import pytest

import dpcvx as dp
from problems.elastic_net.users import made_users


def test_features_and_targets_are_those_of_section_10():
    users = made_users(400, 64, mu=0.09, noise=0.01, seed=3)
    assert users.features.shape == (400, 64) and (users.count, users.size) == (400, 64)
    np.testing.assert_allclose(np.linalg.norm(users.features, axis=1), 0.3, rtol=1e-12)
    np.testing.assert_array_equal(users.truth, [3.0] * 12 + [0.0] * 52)
    left = users.targets - users.features @ users.truth
    assert 0.008 < left.std() < 0.012
    # Before scaling the first fifth is 50 times as large. The squared norm is all but exactly chi
    # squared with 12 degrees of freedom, whose inverse has mean 1 / 10 instead of 1 / 12.
    squares = (users.features**2).mean(axis=0)
    ratio = np.sqrt(squares[:12].mean() / squares[12:].mean())
    assert ratio == pytest.approx(50 * np.sqrt(10 / 12), rel=0.03)


def test_mu_scales_the_same_draws_and_seeds_differ():
    one, other = made_users(5, 8, mu=1.0, seed=1), made_users(5, 8, mu=0.25, seed=1)
    np.testing.assert_allclose(one.features, 2 * other.features)
    assert not np.allclose(one.features, made_users(5, 8, mu=1.0, seed=2).features)


@pytest.mark.parametrize("mu", [0.25, 0.01])
def test_the_public_bound_holds_for_the_targets(mu):
    for seed in range(5):
        users = made_users(500, 10, mu=mu, seed=seed)
        assert np.abs(users.targets).max() <= users.target_bound


@pytest.mark.parametrize(
    "arguments", [dict(users=0), dict(size=4), dict(mu=0.0), dict(mu=np.inf), dict(noise=-1.0)]
)
def test_broken_arguments_are_refused(arguments):
    with pytest.raises(dp.ModelError, match="must be"):
        made_users(**arguments)
