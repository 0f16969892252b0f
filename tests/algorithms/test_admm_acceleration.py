"""Anderson acceleration on maps whose fixed points are known."""

import numpy as np
import pytest

from dpcvx.algorithms.admm import RecentMoves, accelerated, cleared


def iterated(move, point, rounds, length=5):
    """Points of an accelerated iteration, and its memory in the end."""
    memory, points = RecentMoves(), [point]
    for _ in range(rounds):
        memory, point = accelerated(memory, point, move(point), length)
        points.append(point)
    return points, memory


def slow(n=4):
    """A linear map that contracts by up to 0.99, and its fixed point."""
    rates, best = np.linspace(0.5, 0.99, n), np.arange(1.0, n + 1)
    return (lambda s: (rates - 1) * (s - best)), best


def test_a_linear_map_is_solved_in_one_round_more_than_it_has_rates():
    move, best = slow()
    points, memory = iterated(move, np.zeros(4), 7)
    plain = np.zeros(4)
    for _ in range(7):
        plain = plain + move(plain)
    assert np.abs(points[-1] - best).max() < 1e-5
    assert np.abs(plain - best).max() > 1
    assert memory.rejected == 0 and memory.extrapolated == 6


@pytest.mark.parametrize("length", [1, 3])
def test_memory_keeps_as_many_differences_as_asked(length):
    move, _ = slow()
    _, memory = iterated(move, np.zeros(4), 6, length)
    assert len(memory.points) == len(memory.moves) == length + 1


def test_the_safeguard_returns_to_the_plain_iteration():
    move, _ = slow()
    points, memory = iterated(move, np.zeros(4), 2)
    plain = memory.plain
    assert plain is not None and not np.allclose(plain, points[-1])
    after, point = accelerated(memory, points[-1], 3 * memory.moves[-1], 5)
    assert np.array_equal(point, plain)
    assert (after.rejected, after.points, after.plain) == (1, (), None)
    # A move that is hardly longer is accepted.
    after, _ = accelerated(memory, points[-1], 1.9 * memory.moves[-1], 5)
    assert after.rejected == 0


def test_a_move_that_is_undefined_is_rejected():
    move, _ = slow()
    points, memory = iterated(move, np.zeros(4), 2)
    after, point = accelerated(memory, points[-1], np.full(4, np.nan), 5)
    assert after.rejected == 1 and np.isfinite(point).all()


@pytest.mark.parametrize("size", [0.0, np.inf, 1e300])
def test_moves_that_tell_nothing_are_taken_as_they_are(size):
    with np.errstate(all="raise"):
        memory, point = accelerated(RecentMoves(), np.zeros(2), np.full(2, size), 5)
        _, point = accelerated(memory, point, np.full(2, size), 5)
    assert np.array_equal(point, np.full(2, 2 * size))


def test_a_cleared_memory_keeps_its_counts():
    move, _ = slow()
    _, memory = iterated(move, np.zeros(4), 5)
    empty = cleared(memory)
    assert empty.points == empty.moves == () and empty.plain is None
    assert empty.extrapolated == memory.extrapolated == 4


@pytest.mark.parametrize("size", [1e-320, 1e-200, 1e-100, 1e100, 1e200])
def test_the_size_of_moves_does_not_matter(size):
    move, best = slow()
    points, _ = iterated(lambda s: size * move(s / size), np.zeros(4), 7)
    assert np.abs(points[-1] / size - best).max() < (1e-4 if size > 1e-300 else 1.0)


def test_moves_that_are_parallel_are_combined():
    memory, point = RecentMoves(), np.zeros(3)
    for k in range(6):
        memory, point = accelerated(memory, point, np.full(3, 2.0**-k), 5)
    assert np.isfinite(point).all()


def test_nearly_equal_moves_are_not_extrapolated_without_limit():
    # As between two vertices of a linear program: differences of moves are rounding.
    memory, point, step = RecentMoves(), np.zeros(3), np.array([1.0, 2.0, 3.0])
    for k in range(6):
        memory, point = accelerated(memory, point, step * (1 + 1e-15 * (-1) ** k), 5)
    assert np.abs(point).max() < 1e3
