"""The methods in arrays are those of the package; the search takes the best of its grid."""

from dataclasses import replace

import numpy as np
import pytest

import dpcvx as dp
from problems.nonconvex_classification import data_of
from problems.nonconvex_classification.experiment import Size, setting
from problems.nonconvex_classification.methods import DELTA, EPSILONS, METHODS, Choice
from problems.nonconvex_classification.tuned import CHOICES
from problems.nonconvex_classification.tuning import Arrays, choices, paths, tuned

SIZE = Size(5, 20, 3, None, 0.9)
methods = pytest.mark.parametrize("method", METHODS, ids=lambda own: own.name)
# One of each rule, and each kind of noise.
some = pytest.mark.parametrize("method", (*METHODS[1:5], METHODS[7]), ids=lambda own: own.name)


@pytest.fixture(scope="module")
def own():
    return setting(SIZE, 3)


@pytest.fixture(scope="module")
def arrays(own):
    return Arrays.of(own.study, own.measures.parts, own.network)


def planned(own, method, choice, mechanism):
    delta = method.delta if mechanism is not None and method.gaussian else None
    return own.study.problem.plan(
        method.algorithm(own.network, choice),
        mechanism=mechanism,
        rounds=choice.rounds,
        delta=delta,
    )


def run(plan, own, seed=None):
    return plan.run(
        data=data_of(own.measures.parts), seed=seed, iterates=True, executor=dp.Serial()
    )


def last(result):
    return np.array([one.last.vectors for one in result.iterates])


@methods
def test_without_noise_the_points_are_the_packages(own, arrays, method):
    choice = Choice(0.07, 12, ratio=0.3)
    result = run(planned(own, method, choice, None), own)
    found = np.array(list(paths(arrays, method, choice, 0.0, 0)))
    np.testing.assert_allclose(found, last(result), atol=1e-12)
    expected = own.measures.gap(last(result))
    assert [arrays.gap(X) for X in found] == pytest.approx(expected, rel=1e-9)


@some
@pytest.mark.parametrize("epsilon", [0.1, 1e5])
def test_every_method_has_the_total_that_is_asked_for(own, method, epsilon):
    choice = Choice(0.05, 7, 1.0 if method.gaussian else 0.9, ratio=0.4 if method.double else 1.0)
    plan = planned(own, method, choice, method.mechanism(choice, epsilon))
    assert plan.guarantee.kind == "worst-case"
    assert plan.guarantee.epsilon == pytest.approx(epsilon, rel=1e-6)
    assert plan.guarantee.delta == (DELTA if method.gaussian else 0.0)


@some
def test_noise_has_the_scale_of_the_packages(own, arrays, method):
    """Root mean squares of what noise does to points of rounds 2 and 4, over runs and entries.

    Of 12 runs with 15 entries each the logarithm has a standard deviation of at most 0.13, as
    Laplace entries have kurtosis 6 and neighbors share some noise: with the 60 runs in arrays,
    differences of 5 of these come up by chance less than once in a million.
    """
    choice = Choice(0.07, 4, 1.0 if method.gaussian else 0.7, ratio=0.3 if method.double else 1.0)
    silent = np.array(list(paths(arrays, method, choice, 0.0, 0)))
    multiplier = method.multiplier(choice, 3.0)
    made = np.array([list(paths(arrays, method, choice, multiplier, s)) for s in range(60)])
    plan = planned(own, method, choice, method.mechanism(choice, 3.0))
    honest = np.array([last(run(plan, own, s)) for s in range(12)])
    for t in (1, 3):
        ours, theirs = (np.sqrt(((X[:, t] - silent[t]) ** 2).mean()) for X in (made, honest))
        # Plans charge tracking's directions by the distance of two points, the arrays do not.
        assert -0.65 < np.log(ours / theirs) < 0.65 + (np.log(3) if method.name == "DiaDSP" else 0)


def test_the_grid_is_the_same_but_for_what_a_method_does_not_have():
    sizes = {method.name: len(choices(method)) for method in METHODS}
    assert sizes["DPP2"] == sizes["DiaDSP"] == 2 * sizes["PPDC"] == 2 * sizes["Gradient descent"]
    assert 3 * sizes["DPP2, Gaussian"] == sizes["DPP2"]
    assert {choice.decay for choice in choices(METHODS[5])} == {1.0}
    assert {(c.step, c.rounds) for c in choices(METHODS[0])} == {
        (c.step, c.rounds) for c in choices(METHODS[-1])
    }


def test_the_best_of_the_grid_is_taken(arrays):
    method, epsilon = METHODS[3], 300.0
    best, gap = tuned(method, epsilon, [arrays])

    def gap_of(choice):
        with np.errstate(over="ignore", invalid="ignore"):
            X = np.array(list(paths(arrays, method, choice, method.multiplier(choice, epsilon), 0)))
            return arrays.gap(X[-1] if choice.report == "last" else X.mean(axis=0))

    assert gap_of(best) == pytest.approx(gap)
    for choice in choices(method)[::5]:
        for report in ("last", "average"):
            assert not gap_of(replace(choice, report=report)) < gap * (1 - 1e-9)


def test_every_method_has_a_choice_of_its_grid_at_every_total():
    assert set(CHOICES) == {(method.name, epsilon) for method in METHODS for epsilon in EPSILONS}
    for method in METHODS:
        for epsilon in EPSILONS:
            choice = replace(CHOICES[method.name, epsilon], report="last")
            assert choice in choices(method)
