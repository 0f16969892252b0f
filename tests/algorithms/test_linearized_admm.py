"""Linearized ADMM, round by round against its printed equations."""

import numpy as np
import pytest

import dpcvx as dp
from tests.algorithms.consensus import HELD, study
from tests.algorithms.networks import laplace

ROUNDS = 6
STEPS = {
    "constant": (dp.steps.Constant(0.03), lambda t: 0.03),
    "sqrt": (dp.steps.Sqrt(), lambda t: 1 / np.sqrt(t)),
}
GROWING = dp.penalties.Growing(2.0, 0.0, 2)
PENALTIES = {"constant": (1.5, lambda t: 1.5), "growing": (GROWING, lambda t: 2 * 1.2 ** (t // 2))}


def by_hand(given, gradient, eta, rho, E, left=lambda p, t, e, x, D: x):
    """Algorithm 1 in plain numpy; yields all agents' last iterates after each round.

    With noise on the output (12), ``left`` is what a local step with weights D became.
    """
    x = [np.zeros(2 + len(held)) for held in HELD]
    z = [np.zeros(len(held)) for held in HELD]
    lam = [np.zeros(len(held)) for held in HELD]
    for t in range(1, ROUNDS + 1):
        # Line 5, equation (5).
        w = given.mean([zp - lp / rho(t) for zp, lp in zip(z, lam, strict=True)])
        for p, held in enumerate(HELD):
            S = np.eye(x[p].size)[2:]
            iterates = []
            for e in range(E):
                # The minimizer of (10) over a box: its objective separates.
                D = 1 / eta(t) + rho(t) * S.sum(axis=0)
                pull = x[p] / eta(t) + S.T @ (rho(t) * w[held] + lam[p]) - gradient(p, t, e, x[p])
                x[p] = left(p, t, e, np.clip(pull / D, -given.limit, given.limit), D)
                iterates.append(S @ x[p])
            z[p] = np.mean(iterates, axis=0)  # line 20
            lam[p] = lam[p] + rho(t) * (w[held] - z[p])  # line 22
        yield [point.copy() for point in x]


@pytest.mark.parametrize("E", [1, 3])
@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("limit", [0.3, np.inf], ids=["box", "free"])
def test_a_run_without_noise_is_algorithm_1(limit, step, penalty, E):
    given, (declared, eta), (rule, rho) = study(limit), STEPS[step], PENALTIES[penalty]
    method = dp.LinearizedADMM(rule, declared, local_updates=E)
    result = given.problem.plan(method, mechanism=None, rounds=ROUNDS).run(iterates=True)
    hand = by_hand(given, lambda p, t, e, x: given.gradient(p, x), eta, rho, E)
    for found, expected in zip(result.iterates, hand, strict=True):
        for one, other in zip(given.points(found.last), expected, strict=True):
            assert one == pytest.approx(other, abs=1e-10)


@pytest.mark.parametrize("E", [1, 2])
def test_a_private_run_is_algorithm_1_at_the_released_gradients(E):
    given, eta, rho = study(0.3), STEPS["sqrt"][1], PENALTIES["growing"][1]
    method = dp.LinearizedADMM(GROWING, dp.steps.Sqrt(), local_updates=E)
    plan = given.problem.plan(method, rounds=ROUNDS, epsilon=1.0, delta=1e-6)
    result = plan.run(seed=4, record=True, iterates=True)
    released = [given.released(result, p) for p in range(3)]

    def noisy(p, t, e, x):
        return given.public_gradient(p, x) + released[p][(t - 1) * E + e]

    for found, expected in zip(result.iterates, by_hand(given, noisy, eta, rho, E), strict=True):
        for one, other in zip(given.points(found.last), expected, strict=True):
            assert one == pytest.approx(other, abs=1e-10)


@pytest.mark.parametrize("E", [1, 2])
@pytest.mark.parametrize("perturb", ["output", "projected_output"])
def test_a_private_run_with_noise_on_the_output_is_equation_12(perturb, E):
    given, eta, rho = study(0.3), STEPS["sqrt"][1], PENALTIES["growing"][1]
    method = dp.LinearizedADMM(GROWING, dp.steps.Sqrt(), local_updates=E, perturb=perturb)
    mechanism = dp.Laplace(noise_multiplier=0.01)
    plan = given.problem.plan(method, rounds=ROUNDS, mechanism=mechanism)
    result = plan.run(seed=4, record=True, iterates=True)
    released = [given.released(result, p) for p in range(3)]
    entries, noise = [a.entries for a in result.ledger.values()], []

    def left(p, t, e, x, D):
        place = (t - 1) * E + e
        entry, out = entries[p][place], released[p][place]
        # Shaped like the step: of one scale in the coordinates sqrt(D) x.
        noise.extend(np.sqrt(D) * (out - x) / (entry.multiplier * entry.sensitivity))
        return out if perturb == "output" else np.clip(out, -given.limit, given.limit)

    hand = by_hand(given, lambda p, t, e, x: given.gradient(p, x), eta, rho, E, left)
    for found, expected in zip(result.iterates, hand, strict=True):
        for one, other in zip(given.points(found.last), expected, strict=True):
            assert one == pytest.approx(other, abs=1e-10)
    assert len(noise) == ROUNDS * E * 14 and laplace(noise)


def test_the_average_is_that_of_the_theorem():
    given = study(0.3)
    method = dp.LinearizedADMM(1.5, dp.steps.Constant(0.03), local_updates=2)
    result = given.problem.plan(method, mechanism=None, rounds=ROUNDS).run(iterates=True)
    rows = []

    def watched(p, t, e, x):
        rows.append((p, x.copy()))
        return given.gradient(p, x)

    last = list(by_hand(given, watched, lambda t: 0.03, lambda t: 1.5, 2))[-1]
    for p, found in enumerate(given.points(result.average)):
        # Of the iterates after the updates: those before, but for the start, and the last.
        iterates = [*[x for q, x in rows if q == p][1:], last[p]]
        assert found == pytest.approx(np.mean(iterates, axis=0), abs=1e-10)


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"local_updates": 0}, r"local_updates=0\) must be an int of at least 1"),
        ({"local_updates": 1.5}, r"local_updates=1\.5\) must be an int"),
        ({"perturb": "gradient"}, r"perturb='gradient'\) must be.*'projected_output'"),
        ({"output_sensitivity": 1.0}, r"output_sensitivity=1\).*perturb='output'"),
        ({"perturb": "output", "output_sensitivity": -1.0}, r"=-1\.0\) must be a positive finite"),
    ],
)
def test_parameters_are_checked(arguments, match):
    with pytest.raises(dp.ModelError, match=match):
        dp.LinearizedADMM(**arguments)
