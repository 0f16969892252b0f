"""Noise shaped to constraints: good shapes, and that all data can be told from each."""

import numpy as np
import pytest

from dpcvx.defaults.data_shape import Stake, costs, data_shape

NOTHING = np.zeros((6, 6))


def spread(K, units, p, variance=1.0):
    """Noise in the data, for a statistic with noise scaled to its sensitivity."""
    return np.sqrt(variance) * np.linalg.norm(K * units, p, axis=0).max() * np.linalg.pinv(K)


@pytest.mark.parametrize("p", [1, 2])
def test_the_sum_of_many_is_told_best_by_itself(p):
    units = np.full(6, 0.1)
    total = Stake(np.ones((1, 6)), 1.0)
    K = data_shape(units, [total], NOTHING, 1.0, p)
    assert np.linalg.matrix_rank(K) == 6
    least, plain = 0.1, 0.1 * np.sqrt(6)  # by itself alone, and in what leaves entry by entry
    assert least < total.length(spread(K, units, p)) < (least + plain) / 2


@pytest.mark.parametrize("p", [1, 2])
def test_units_of_data_and_of_the_objective_do_not_matter(p):
    rng = np.random.default_rng(0)
    rows, units = 1 + 0.05 * rng.normal(size=(3, 1, 12)), rng.uniform(0.9, 1.1, 12)
    found, one, nothing = [], np.ones(12), np.zeros((12, 12))
    for scale, price in ((one, 1.0), (np.geomspace(1e-3, 1e3, 12), 1.0), (one, 1e5)):
        stakes = [Stake(row / scale, price * w) for row, w in zip(rows, (1, 2, 0), strict=True)]
        N = spread(data_shape(units * scale, stakes, nothing, 1.0, p), units * scale, p)
        found.append([stake.length(N) for stake in stakes])
    np.testing.assert_allclose(found[1:], [found[0]] * 2, rtol=0.02)


def test_gaussian_shapes_are_as_good_as_others_by_chance():
    rng = np.random.default_rng(1)
    units, stakes = np.ones(6), [Stake(rng.normal(size=(1, 6)), price) for price in (1.0, 2.0, 0.5)]
    every = sum(s.price * s.length(np.eye(6)) for s in stakes)

    def cost(K):
        N = spread(K, units, 2)
        hedge = 0.1 * every / 3 * sum(s.length(N) / s.length(np.eye(6)) for s in stakes)
        return sum(s.price * s.length(N) for s in stakes) + hedge

    best = data_shape(units, stakes, NOTHING, 1.0, 2)
    assert cost(best) < 0.95 * cost(np.eye(6))
    # With a little hedge for directions in which no constraint is felt.
    near = (best + 0.1 * rng.normal(size=(6, 6)) @ best for _ in range(300))
    far = (rng.normal(size=(6, 6)) for _ in range(300))
    assert cost(best) < 1.05 * min(map(cost, [*near, *far]))


@pytest.mark.parametrize("p", [1, 2])
def test_nothing_is_shaped_where_it_brings_nothing(p):
    each = [Stake(row[None], 1.0) for row in np.eye(6)]
    assert data_shape(np.ones(6), each, NOTHING, 1.0, p) is None
    assert data_shape(np.ones(6), [Stake(np.ones((1, 6)), 0.0)], NOTHING, 1.0, p) is None
    small = Stake(np.ones((1, 6)), 1e-9)
    assert data_shape(np.ones(6), [small], np.eye(6), 1.0, p) is None  # the objective's matters


def test_costs_add_up_to_one_and_hedge_what_has_room():
    stakes = [Stake(np.ones((1, 2)), 3.0), Stake(np.ones((1, 2)), 0.0)]
    found = costs(stakes, np.array([2.0, 5.0]))
    assert found == pytest.approx([1.05 / 1.1, 0.05 / 1.1])
    assert not costs(stakes[1:], np.array([5.0])).any()
