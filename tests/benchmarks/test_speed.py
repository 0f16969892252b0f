"""The cheapest rows of the speed benchmarks, with room for slow and busy machines."""

import numpy as np
import pytest

from tests.benchmarks.speed import imports, instances, memory, owners, runs, steps
from tests.benchmarks.speed.measure import Effort, Row, per_input
from tests.benchmarks.speed.report import Known, lost, table

EFFORT = Effort(repeats=2, quick=True)
# A regression that matters more than the machine's mood.
ROOM = 2.5


def within(rows, room=ROOM):
    for row in rows:
        print(f"{row.name}: {row.measured:.3g} {row.unit}, required {row.required}")
        assert row.required is None or row.measured <= room * row.required, row.name


@pytest.mark.timed
def test_a_conic_step_costs_little_more_than_its_solve():
    found = instances.recorded_steps(14, None, 4, 6)
    for agent in found:
        solver = agent.bare()

        def bare(k, agent=agent, solver=solver):
            solver.update(**agent.updates[k])
            return solver.solve()

        calls = [lambda k, agent=agent: agent.projector(agent.points[k], agent.weights[k]), bare]
        ours, theirs = per_input(calls, len(agent.points), 4)
        print(f"{ours / theirs:.2f} times the bare solver")
        assert ours <= ROOM * theirs


@pytest.mark.skipif(not memory.PAGES.exists(), reason="the system has no count of pages")
def test_a_fresh_process_grows_by_what_it_keeps():
    grown = memory.resident(np.ones, 4_000_000)
    assert grown is not None and 31e6 < grown < 40e6


@pytest.mark.timed
def test_a_gradient_costs_little_more_than_numpys():
    within(steps.gradient(EFFORT))


@pytest.mark.timed
def test_a_private_run_is_mostly_solver_and_gradient():
    plan = instances.network(14, None).plan(
        instances.METHOD, mechanism=instances.dp.Gaussian(), rounds=5, **instances.BUDGET
    )
    clock = runs.Clock()
    with clock.counting():
        whole = runs.timed(lambda: plan.run(seed=1, verbose=False))
    assert clock.solves >= clock.gradients == 3 * 5 * instances.METHOD.local_updates
    assert whole <= 2 * ROOM * (clock.solver + clock.gradient)


@pytest.mark.timed
def test_whole_problems_are_measured_against_cvxpy():
    rows = runs.whole_problems(Effort(repeats=1, quick=True))
    assert [row.required for row in rows] == [1.5, 10.0]
    assert all(row.measured is not None and 0 < row.measured < 100 for row in rows)


def test_the_import_is_mostly_cvxpys():
    within(imports.importing(Effort(repeats=1)), room=1.5)


@pytest.mark.timed
def test_an_owner_is_soon_at_its_coordinator():
    within(owners.owner_start(Effort(repeats=2)), room=1.5)


@pytest.mark.parametrize("measure", [owners.owner_round, owners.coordinator_message])
def test_rows_of_owners_are_measured(measure):
    """They use what is between owners by its parts; how long these take is not judged here.

    Not even the sign: a round of an owner is a difference of two clocks, which others disturb.
    """
    (row,) = measure(Effort(repeats=1, quick=True))
    assert row.measured is not None and np.isfinite(row.measured)


@pytest.mark.parametrize("measured, flagged", [(1.19, False), (1.21, True), (None, False)])
def test_a_loss_of_more_than_a_fifth_is_flagged(measured, flagged):
    row = Row("step", "solver", "n = 1", measured, 2.0)
    known = {"step": Known("n = 1", 1.0)}
    assert lost(row, known) is flagged
    assert ("LOSS" in table([row], known)) is flagged


def test_ratios_of_another_size_are_not_compared():
    assert not lost(Row("step", "solver", "n = 2", 9.0), {"step": Known("n = 1", 1.0)})
