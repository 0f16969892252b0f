"""A method outside the package: it keeps all promises, and a wrong variant of it does not."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

import dpcvx as dp
from examples.over_relaxed_admm import OverRelaxedADMM, main, model, rounds
from tests.algorithms.consensus import HELD, study

METHOD = OverRelaxedADMM(1.6, 2.0)
CONVERGES = "without noise it converges to the optimum"


# Those of "power line" are tried by the demonstration.
SUITE = dp.testing.check_method(METHOD, instances=["overlapping slices"])


@pytest.mark.parametrize("check", SUITE, ids=str)
def test_it_keeps_the_promises_of_methods(check):
    check()


@dataclass(frozen=True)
class OneSided(OverRelaxedADMM):
    """The server has multipliers of its own, which move without the relaxation."""

    def receive(self, server, t, k, replies):
        agents = server.program.agents
        moved = [
            lam + server.rho * (server.w[a.slots] - copy.z)
            for a, lam, copy in zip(agents, server.lam, replies, strict=True)
        ]
        return replace(super().receive(server, t, k, replies), lam=tuple(moved))


def test_multipliers_that_move_on_one_side_only_are_found():
    """The agents agree, on a wrong point: nothing but the optimum tells."""
    report = dp.testing.check_method(OneSided(1.6, 2.0), instances=["power line"]).run()
    found = [what for name, what in report.broken.items() if name.startswith(CONVERGES)]
    assert found and not report.conforms
    assert any(
        "often has multipliers that server and agents update by different" in w for w in found
    )
    assert all(name.startswith(CONVERGES) for name in report.broken)


@pytest.mark.parametrize("alpha", [0.7, 1.6])
@pytest.mark.parametrize("noisy", [False, True])
def test_a_run_is_the_printed_iteration(noisy, alpha):
    given, T, rho = study(), 6, 1.5
    budget = dict(epsilon=1.0, delta=1e-6) if noisy else dict(mechanism=None)
    plan = given.problem.plan(OverRelaxedADMM(alpha, rho), rounds=T, **budget)
    result = plan.run(seed=5, record=True, iterates=True)
    exact = [-2 * A.T @ b for A, b in zip(given.A, given.b, strict=True)]
    released = [given.released(result, p) for p in range(3)]
    z = [np.zeros(len(held)) for held in HELD]
    lam = [np.zeros(len(held)) for held in HELD]
    for t in range(T):
        w = given.mean([zp - lp / rho for zp, lp in zip(z, lam, strict=True)])
        found = given.points(result.iterates[t].last)
        for p, (held, A) in enumerate(zip(HELD, given.A, strict=True)):
            S = np.eye(2 + len(held))[2:]
            relaxed = alpha * w[held] + (1 - alpha) * z[p]
            data = released[p][t] if noisy else exact[p]
            # Where the gradient of f - <lam, S x> + rho/2 |relaxed - S x|^2 is zero.
            x = np.linalg.solve(2 * A.T @ A + rho * S.T @ S, S.T @ (lam[p] + rho * relaxed) - data)
            z[p] = S @ x
            lam[p] = lam[p] + rho * (relaxed - z[p])
            assert found[p] == pytest.approx(x, rel=1e-6, abs=1e-6)


def test_without_relaxation_it_is_admm():
    problem = study().problem
    one, other = (
        problem.plan(method, rounds=8, mechanism=None).run()
        for method in (OverRelaxedADMM(1.0, 3.0), dp.ADMM(3.0, relaxation=1, acceleration=0))
    )
    for x, y in zip(one.last.vectors, other.last.vectors, strict=True):
        assert np.array_equal(x, y)


def test_a_penalty_that_follows_the_budget_is_filled_in():
    grown = OverRelaxedADMM(1.6, dp.penalties.Growing(2.0, 5.0, 5))
    plan = study().problem.plan(grown, rounds=2, epsilon=1.0, delta=1e-6)
    plain = study().problem.plan(
        replace(dp.ADMM(), penalty=grown.penalty), rounds=2, epsilon=1.0, delta=1e-6
    )
    assert plan.run(seed=1).history.penalty == plain.run(seed=1).history.penalty


def test_relaxation_saves_rounds_on_the_model():
    problem = model()
    assert rounds(problem, 1.6) < 0.7 * rounds(problem, 1.0)


@pytest.mark.parametrize("relaxation", [0, 2, 2.5, "much", float("nan")])
def test_other_relaxations_are_refused(relaxation):
    with pytest.raises(dp.ModelError, match="relaxation"):
        OverRelaxedADMM(relaxation)


def test_the_demonstration_prints_what_came_of_it(capsys):
    main()
    text = capsys.readouterr().out
    assert "check_sensitivity: passed" in text
    assert "OverRelaxedADMM keeps all 13 promises" in text
