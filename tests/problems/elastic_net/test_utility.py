"""Theorem 9.1: the bound's terms, and that it is one."""

import math

import numpy as np
import pytest

from problems.elastic_net.users import made_users
from problems.elastic_net.utility import theorem_9_1, utility


def test_the_terms_of_26():
    parts = dict(beta=0.0, rho=0.0, G=0.0, x_distance=0.0, y_distance=0.0, n=5)
    assert theorem_9_1(4, **parts) == 0
    assert theorem_9_1(4, **(parts | {"x_distance": 2.0})) == pytest.approx(1.0)
    assert theorem_9_1(4, **(parts | {"G": 6.0})) == pytest.approx(9.0)
    assert theorem_9_1(4, **(parts | {"beta": 3.0, "y_distance": 2.0})) == pytest.approx(1.5)
    # n rho^2 (1 / (2 sqrt T) + beta^2 / (2 T^1.5) + beta / T)
    assert theorem_9_1(4, **(parts | {"rho": 2.0})) == pytest.approx(5.0)
    noisy = theorem_9_1(4, **(parts | {"rho": 2.0, "beta": 3.0}))
    assert noisy == pytest.approx(20 * (1 / 4 + 9 / 16 + 3 / 4))


@pytest.mark.parametrize("rho", [0.0, 0.5, 3.0])
def test_the_measured_mean_keeps_below_the_bound(rho):
    users = made_users(20, 8, seed=1)
    found = utility(users, 0.9, rho, (10, 50, 200), 10, 0, radius=1.5)
    assert found.measured.shape == (3, 10)
    mean, error = found.measured.mean(axis=1), found.measured.std(axis=1) / math.sqrt(10)
    assert (mean + 4 * error < found.bound).all()
    assert (np.diff(found.bound) < 0).all() and (np.diff(mean) < 0).all()
