"""What every algorithm promises, on every instance.

A new algorithm is added to `METHODS`, a new instance to `instances.INSTANCES`.
"""

import pickle
from dataclasses import replace

import numpy as np
import pytest

import dpcvx as dp
from dpcvx.executors.serial import Serial
from dpcvx.ledger import Account
from dpcvx.oracle import ReplayOracle
from dpcvx.projection import Projector
from dpcvx.run import drive
from tests.helpers import contains, silent
from tests.instances import INSTANCES

# Parameters for private runs, and for runs without noise that converge in the given rounds.
METHODS = {
    "ADMM": (dp.ADMM(rho=2.0), dp.ADMM(rho=2.0), 300),
    "ADMM, balanced": (
        dp.ADMM(rho=dp.ResidualBalancing(50.0)),
        dp.ADMM(rho=dp.ResidualBalancing(50.0)),
        300,
    ),
    "linearised": (
        dp.LinearizedADMM(rho=1.0),
        dp.LinearizedADMM(rho=1.0, step=dp.ConstantStep(0.05)),
        3000,
    ),
    "linearised, E = 3": (
        dp.LinearizedADMM(rho=5.0, step=dp.SqrtStep(), local_updates=3),
        dp.LinearizedADMM(rho=1.0, step=dp.ConstantStep(0.05), local_updates=3),
        3000,
    ),
    "linearised, output": (
        dp.LinearizedADMM(rho=dp.GrowingPenalty(2, 5, 5), perturb="output"),
        dp.LinearizedADMM(rho=1.0, step=dp.ConstantStep(0.05), perturb="output"),
        3000,
    ),
    "linearised, projected output": (
        dp.LinearizedADMM(rho=5.0, step=dp.StronglyConvexStep(0.1), perturb="projected output"),
        dp.LinearizedADMM(rho=1.0, step=dp.ConstantStep(0.05), perturb="projected output"),
        3000,
    ),
}
ROUNDS = 12
pairs = pytest.mark.parametrize(
    ("method", "instance"), [(m, i) for m in METHODS for i in INSTANCES], ids=str
)


def private_plan(method, instance):
    problem = INSTANCES[instance]().problem
    return problem.plan(METHODS[method][0], rounds=ROUNDS, epsilon=2.0, delta=1e-6)


def vectors(result):
    return [*result.last.vectors, *result.average.vectors]


@pairs
@pytest.mark.parametrize(
    "mechanism", [dp.Gaussian(multiplier=20.0), dp.Laplace(step_epsilon=0.05)], ids=str
)
def test_releases_alone_reproduce_the_run_bit_for_bit(method, instance, mechanism):
    problem = INSTANCES[instance]().problem
    plan = problem.plan(METHODS[method][0], mechanism=mechanism, rounds=ROUNDS, delta=1e-6)
    result = plan.run(seed=3, record=True)
    blind = replace(plan, problem=pickle.loads(pickle.dumps(plan.problem)))
    again = blind.replay(result.transcript)
    assert all(np.array_equal(a, b) for a, b in zip(vectors(result), vectors(again), strict=True))
    assert again.history.primal == result.history.primal
    assert again.history.rho == result.history.rho


@pairs
def test_a_seed_repeats_a_run_and_another_changes_it(method, instance):
    plan = private_plan(method, instance)
    one, same, other = (vectors(plan.run(seed=s)) for s in (5, 5, 6))
    assert all(np.array_equal(a, b) for a, b in zip(one, same, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


@pairs
def test_without_a_seed_the_noise_is_fresh(method, instance):
    plan = private_plan(method, instance)
    one, other = vectors(plan.run()), vectors(plan.run())
    assert not all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


@pairs
def test_without_noise_it_converges_to_the_central_optimum(method, instance):
    given = INSTANCES[instance]()
    plan = given.problem.plan(METHODS[method][1], mechanism=None, rounds=METHODS[method][2])
    result = plan.run(tolerance=1e-7)
    value = dp.not_private.objective(given.problem, result.solution)
    assert result.guarantee.kind == "none"
    assert result.consensus_residual < 1e-5
    assert value == pytest.approx(given.optimum, rel=1e-4, abs=1e-5)


@pairs
def test_the_ledger_agrees_with_the_plan(method, instance):
    plan = private_plan(method, instance)
    result = plan.run(seed=1)
    steps = ROUNDS * plan.algorithm.requirements.releases
    for local in plan.program.agents:
        account = result.ledger[local.name]
        assert len(account.entries) == (steps if local.form.private else 0)
        assert {e.multiplier for e in account.entries} <= {plan.calibrated.multiplier}
        places = [(e.round, e.step) for e in account.entries]
        assert places == sorted(set(places))
    assert result.ledger.spent() == pytest.approx(plan.guarantee.epsilon, rel=1e-9)
    assert plan.guarantee.epsilon <= 2.0


class Shadow(ReplayOracle):
    """Answers from a transcript, and measures how far the exact answers move between neighbours."""

    def __init__(self, agent, releases, form, data, neighbour, seen):
        super().__init__(agent, releases, Account("", {}, None))
        self.one, self.two = form.bind(data), form.bind(neighbour)
        self.seen = seen

    def gradient(self, x):
        self.seen.append(self.one.gradient(x) - self.two.gradient(x))
        return super().gradient(x)

    def solution(self, x, step):
        roots = np.sqrt(step.D)
        moved = step(self.one.gradient(x)).x - step(self.two.gradient(x)).x
        self.seen.append(roots * moved)
        return super().solution(x, step)


def neighbours(form, rng):
    """Data and data that differ by one change of the first private parameter."""
    data = [rng.normal(size=spec.size) for spec in form.private]
    spec = form.private[0]
    change = np.zeros(spec.size)
    if spec.adjacency.norm == "entry":
        change[rng.integers(spec.size)] = spec.adjacency.radius
    else:
        change = rng.normal(size=spec.size)
        change *= spec.adjacency.radius / np.linalg.norm(change, spec.adjacency.norm)
    return data, [data[0] + change, *data[1:]]


@pairs
def test_on_a_frozen_transcript_neighbours_differ_by_at_most_the_charged_sensitivity(
    method, instance
):
    plan = private_plan(method, instance)
    result = plan.run(seed=2, record=True)
    rng = np.random.default_rng(0)
    seen = [[] for _ in plan.program.agents]

    def factory(k, local):
        if not local.form.private:
            return lambda: ReplayOracle(k, result.transcript.releases, Account("", {}, None))
        data, other = neighbours(local.form, rng)
        return lambda: Shadow(k, result.transcript.releases, local.form, data, other, seen[k])

    oracles = [factory(k, local) for k, local in enumerate(plan.program.agents)]
    again = drive(plan, oracles, ROUNDS, None, Serial(), silent(plan), None, False)
    assert all(np.array_equal(a, b) for a, b in zip(vectors(result), vectors(again), strict=True))
    for local, moves in zip(plan.program.agents, seen, strict=True):
        charged = [entry.sensitivity for entry in result.ledger[local.name].entries]
        assert len(moves) == len(charged)
        for move, bound in zip(moves, charged, strict=True):
            assert np.linalg.norm(move) <= bound
        # A perturbed output can sit in a corner of its set for both neighbours.
        if charged and "output" not in method:
            assert min(np.linalg.norm(move) for move in moves) > 0


@pairs
def test_nothing_that_comes_back_contains_private_values(method, instance):
    given = INSTANCES[instance]()
    plan = given.problem.plan(
        METHODS[method][0], mechanism=dp.Gaussian(multiplier=9.0), rounds=3, delta=1e-6
    )
    result = plan.run(seed=4, record=True)
    for thing in (given.problem, plan, result, result.ledger, result.history, result.transcript):
        for secret in given.secrets:
            assert not contains(thing, secret)


@pairs
def test_iterates_stay_in_their_sets_unless_the_output_is_perturbed(method, instance):
    plan = private_plan(method, instance)
    result = plan.run(seed=8, record=True)
    if method == "linearised, output":
        sets = [Projector(local.constraints, local.name) for local in plan.program.agents]
        outside = [sets[r.agent].violation(r.value) for r in result.transcript.releases]
        assert max(outside) > 1e-2
    else:
        assert result.max_violation < 1e-6
