"""Descent on many functions at once: where it ends, and that no row looks at another."""

import numpy as np
import pytest

from dpcvx.defaults.data_shape import ShapeTask, best_shape, best_shapes, descend


def bowls(count, size, seed=0):
    """Strictly convex functions without minimum at a corner of floating point, and these minima."""
    rng = np.random.default_rng(seed)
    factors, centers = rng.normal(size=(count, size, size)), rng.normal(size=(count, size))
    H = factors @ factors.mT + 0.1 * np.eye(size)

    def cost(x, rows):
        far = x - centers[rows]
        pull = np.einsum("bij,bj->bi", H[rows], far)
        return 1 + np.einsum("bi,bi->b", far, pull) / 2, pull

    return cost, centers


def test_descend_reaches_the_minimum_of_every_row():
    cost, centers = bowls(7, 5)
    ends = descend(cost, np.zeros((7, 5)), 0.0, 500)
    assert ends == pytest.approx(centers, abs=1e-3)


def test_descend_gives_a_row_the_bits_that_it_has_alone():
    cost, _ = bowls(7, 5)
    start = np.random.default_rng(1).normal(size=(7, 5))
    together = descend(cost, start, 1e-6, 40)
    for k in range(7):
        alone = descend(lambda x, rows, k=k: cost(x, rows + k), start[k : k + 1], 1e-6, 40)
        assert np.array_equal(together[k : k + 1], alone)


def test_descend_stays_where_values_are_finite():
    def cost(x, rows):
        with np.errstate(all="ignore"):
            return np.where(x[:, 0] > 0, x[:, 0] - np.log(x[:, 0]), np.nan), 1 - 1 / x

    ends = descend(cost, np.array([[1e-3], [50.0]]), 0.0, 200)
    assert ends == pytest.approx(np.ones((2, 1)), abs=1e-4)


def test_descend_leaves_a_row_without_slope():
    start = np.array([[1.0, 2.0]])
    flat = descend(lambda x, rows: (np.zeros(len(x)), np.zeros_like(x)), start, 0.0, 10)
    assert np.array_equal(flat, start)


def test_shapes_of_many_tasks_are_those_of_each():
    rng, tasks = np.random.default_rng(2), []
    for n, size, p in [(4, 4, 1), (4, 9, 1), (4, 4, 2), (4, 9, 1), (3, 3, 1), (4, 4, 1)]:
        R = rng.normal(size=(n, n))
        tasks.append(ShapeTask(rng.normal(size=(n, size)), R @ R.T, p))
    tasks.append(ShapeTask(np.zeros((2, 3)), np.eye(2), 1))
    for task, shape in zip(tasks, best_shapes(tasks), strict=True):
        alone = best_shape(task.changes, task.influence, task.p, task.below)
        if shape is None or alone is None:
            assert shape is alone
        else:
            assert np.array_equal(shape, alone)
