"""The scale of records, learned from sums with distributed noise: one noise, whatever is asked."""

import math
from dataclasses import replace

import numpy as np
import pytest

import dpcvx as dp
from dpcvx.algorithms.learned_scale import ROUNDS, ScaleQuestion, Units
from dpcvx.owners.offers import require_sense
from dpcvx.privacy.secret_sharing import SecretSum
from dpcvx.sensitivity.queries.data import CurvatureSums, LearnedSummand, RecordsAbove
from tests.algorithms.test_learned_scale import clinic
from tests.privacy.test_ledger_file import cut

SECRET = dp.FederatedGradient(sharing=dp.SecretSharing(limit=100.0))
BUDGET = {"epsilon": 1.0, "delta": 1e-6}


@pytest.fixture(scope="module")
def plan():
    """Three clinics, with a learned scale by default."""
    return clinic(3, records=40).plan(SECRET, **BUDGET, scale=dp.LearnScale(), rounds=17)


def test_secret_sums_learn_the_scale_by_default_where_nothing_else_is_fixed():
    problem = clinic(3, records=200)
    assert problem.plan(SECRET, **BUDGET).algorithm.scale is not None
    changes = (
        problem.plan(SECRET, **BUDGET, scale="declared"),
        problem.plan(SECRET, **BUDGET, rounds=20),
        problem.plan(replace(SECRET, step=0.1), **BUDGET, rounds=20),
    )
    assert [changed.algorithm.scale for changed in changes] == [None] * 3


def test_all_kinds_of_queries_move_as_far_by_one_change(plan):
    """Every part of the noise is that of the largest move, so that no kind gets too much."""
    (agent, *_), program = plan.agents, plan.program
    units, known = Units.of(program, secret=True), agent.sensitivity
    moves = [
        units.counted * known.moved_records,
        math.sqrt(2) * units.curved * known.moved_records,
        math.hypot(known.change_by_clips, units.beside * known.moved_records),
    ]
    assert moves == pytest.approx([moves[0]] * 3, rel=1e-12)
    assert [units.moves(local) for local in program.agents] == pytest.approx([moves[0]] * 3)
    assert Units.of(program, secret=False) == Units(units.beside)


@pytest.mark.parametrize("relation", ["replace_one", "add_or_remove_one"])
@pytest.mark.parametrize("count", [3, 5])
def test_the_honest_parts_add_up_to_the_noise_of_each_round(relation, count):
    plan = clinic(count, records=50, relation=relation).plan(
        SECRET, **BUDGET, scale=dp.LearnScale(), rounds=20
    )
    for agent, local in zip(plan.agents, plan.program.agents, strict=True):
        move = Units.of(plan.program, secret=True).moves(local)
        for t in range(1, 21):
            noise = agent.noise.at(t)
            for size in (1, 2, 4):
                grid = noise.grid(move, size)
                together = grid.scale * math.sqrt(count - 1) * (1 + 1e-12)
                assert together >= noise.multiplier * grid.sensitivity
                assert grid.width == plan.algorithm.sharing.resolution
            with pytest.raises(dp.PrivacyError, match="does not fit the distributed noise"):
                noise.grid(1.01 * move, 1)


def test_the_budget_is_spent_once_against_a_coalition(plan):
    noise = plan.agents[0].noise
    spent = [1 / noise.at(t).multiplier ** 2 for t in range(1, 18)]
    assert sum(spent[:ROUNDS]) == pytest.approx(0.05 * sum(spent), rel=1e-12)
    assert plan.guarantee.epsilon <= 1.0 < plan.guarantee.against_all_others


def test_what_is_charged_is_reached_and_not_passed(plan):
    found = dp.check_sensitivity(plan, seed=1)
    assert found.passed


def test_sums_learn_what_a_server_learns_from_all_records(plan):
    """Little noise: the scale is that of sums that the server forms."""
    loud = {"epsilon": 1000.0, "delta": 1e-6, "scale": dp.LearnScale(noise=1e-3), "rounds": 20}
    problem = clinic(3, records=100)
    secret, open_ = (
        problem.plan(method, **loud).run(seed=1, verbose=False)
        for method in (SECRET, dp.FederatedGradient())
    )
    x, y = (result.solution.vectors[0] for result in (secret, open_))
    assert np.abs(x - y).max() < 0.05


@pytest.mark.filterwarnings("ignore::dpcvx.RepeatWarning")
@pytest.mark.parametrize("share", [0.2, 0.7], ids=["while learning", "while stepping"])
def test_an_interrupted_run_learns_nothing_again(plan, share, tmp_path):
    path = tmp_path / "ledger.jsonl"
    whole = plan.run(seed=3, verbose=False, ledger=path)
    lines = path.read_bytes()
    path.write_bytes(cut(lines, int(share * len(lines))))
    resumed = plan.run(seed=3, verbose=False, ledger=path)
    assert "resumed in round" in resumed.notes[0] and resumed.notes[1:] == whole.notes
    x, y = (result.solution.vectors[0] for result in (whole, resumed))
    assert x.tobytes() == y.tobytes()


@pytest.mark.parametrize("executor", ["owners", "threads"])
def test_everywhere_the_same_bits_leave(executor, plan):
    places = {
        "owners": lambda: dp.LoopbackOwners(plan, seed=1),
        "threads": lambda: dp.Threads(),
    }
    seed = {} if executor == "owners" else {"seed": 1}
    there = plan.run(executor=places[executor](), verbose=False, **seed)
    here = plan.run(seed=1, verbose=False)
    assert here.notes == there.notes
    x, y = (result.solution.vectors[0] for result in (here, there))
    assert x.tobytes() == y.tobytes()


def test_every_entry_of_a_sum_gets_noise_whoever_holds_it():
    """A coordinator that spreads agents over a longer vector finds noise in all of it."""
    query = LearnedSummand(np.zeros(2), 0.5, 1.0, place=np.array([3, 0]), whole=5)
    assert query.size(2) == 6
    kinds = {type(query), RecordsAbove, CurvatureSums}
    assert kinds == set(replace(SECRET, scale=dp.LearnScale()).requirements.queries)


def test_owners_refuse_sums_of_others_than_the_agents_of_the_plan(plan):
    local, names = plan.program.agents[0], tuple(a.name for a in plan.program.agents)
    sums = SecretSum(names, plan.algorithm.sharing.encoding(3), (1,), 1)
    asked = ScaleQuestion(np.zeros(3), np.arange(3), 3, "reaches", 0.5, 1.0, sums)
    require_sense(asked, plan.algorithm, local, 0, 3)
    four = (*names, "nobody")
    more = SecretSum(four, plan.algorithm.sharing.encoding(4), (1,), 1)
    with pytest.raises(dp.RefusedError):
        require_sense(replace(asked, sums=more), plan.algorithm, local, 0, 3)


def test_without_noise_nothing_is_learned_in_secret():
    with pytest.raises(dp.PrivacyError, match="Drop sharing="):
        clinic(3).plan(SECRET, scale=dp.LearnScale(), mechanism=None)
    assert clinic(3).plan(SECRET, mechanism=None).algorithm.scale is None
