"""What every algorithm promises, on every instance.

A new algorithm is added to `METHODS`, `COUPLED_METHODS` or `NETWORK_METHODS`, a new instance to the
dictionaries of `instances`.
"""

import pickle
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest

import dpcvx as dp
from dpcvx.algorithms.base import Algorithm
from dpcvx.solvers.projector import Projector
from tests.helpers import contains
from tests.instances import COUPLED, HIDDEN, INSTANCES, NETWORKS, OPEN, RECORDS


@dataclass(frozen=True)
class Method:
    """An algorithm as it is tried here.

    Attributes
    ----------
    private : Algorithm
        For private runs.
    exact : Algorithm
        For runs without noise, which converge within `rounds`.
    """

    private: Algorithm
    exact: Algorithm
    rounds: int
    release: str = "each step"


BALANCED = dp.ADMM(rho=dp.ResidualBalancing(50.0))
METHODS = {
    "ADMM": Method(dp.ADMM(rho=2.0), dp.ADMM(rho=2.0), 300),
    "ADMM, balanced": Method(BALANCED, BALANCED, 300),
    "ADMM, once": Method(dp.ADMM(rho=2.0), dp.ADMM(rho=2.0), 300, "once"),
    "linearised": Method(
        dp.LinearizedADMM(rho=1.0),
        dp.LinearizedADMM(rho=1.0, step=dp.ConstantStep(0.05)),
        3000,
    ),
    "linearised, E = 3": Method(
        dp.LinearizedADMM(rho=5.0, step=dp.SqrtStep(), local_updates=3),
        dp.LinearizedADMM(rho=1.0, step=dp.ConstantStep(0.05), local_updates=3),
        3000,
    ),
    "linearised, once": Method(
        dp.LinearizedADMM(rho=5.0, local_updates=2),
        dp.LinearizedADMM(rho=1.0, step=dp.ConstantStep(0.05)),
        3000,
        "once",
    ),
    "linearised, output": Method(
        dp.LinearizedADMM(rho=dp.GrowingPenalty(2, 5, 5), perturb="output"),
        dp.LinearizedADMM(rho=1.0, step=dp.ConstantStep(0.05), perturb="output"),
        3000,
    ),
    "linearised, projected output": Method(
        dp.LinearizedADMM(rho=5.0, step=dp.StronglyConvexStep(0.1), perturb="projected output"),
        dp.LinearizedADMM(rho=1.0, step=dp.ConstantStep(0.05), perturb="projected output"),
        3000,
    ),
}
COUPLED_METHODS = {
    "gradient ADMM": Method(
        dp.GradientADMM(beta=2.0, eta=0.02), dp.GradientADMM(beta=2.0, eta=0.02), 3000
    ),
    "gradient ADMM, last": Method(
        dp.GradientADMM(smoothness=20.0, output="last"), dp.GradientADMM(output="last"), 3000
    ),
    "gradient ADMM, once": Method(dp.GradientADMM(), dp.GradientADMM(), 3000, "once"),
}
# Without noise, ADMM alone converges to the optimum with a constant step.
OVER_PATH = dp.DecentralizedADMM("path", D=60.0, zeta=10.0)
EXACT = replace(OVER_PATH, exact=True, growth=1.001)
SECRET = dp.MeanGradient(0.03, dp.SecretSharing(limit=1e4, resolution=2.0**-30))
ENTRIES = dp.DecentralizedGradient("ring", 0.03, coordinates=2)
NETWORK_METHODS = {
    "decentralised ADMM": Method(OVER_PATH, OVER_PATH, 3000),
    "decentralised ADMM, once": Method(OVER_PATH, OVER_PATH, 3000, "once"),
    "decentralised ADMM, exact": Method(EXACT, EXACT, 3000),
    "mean gradient, secret sums": Method(SECRET, SECRET, 0),
    "decentralised gradient, two entries": Method(ENTRIES, ENTRIES, 0),
} | {
    f"decentralised gradient, {aggregate}": Method(method, method, 0)
    for aggregate, method in {
        "mixing": dp.DecentralizedGradient("ring", dp.GeometricStep(0.9, 0.05)),
        "mean": dp.DecentralizedGradient("complete", 0.03, "mean"),
        "pair": dp.DecentralizedGradient("complete", 0.03, "pair"),
        "range": dp.DecentralizedGradient("star", dp.SqrtStep(), "range"),
    }.items()
}
DAMPED = dp.DPP2("ring", 0.3, 0.1, damping=1.0)
OPEN_METHODS = {
    "gradient tracking": Method(
        dp.GradientTracking("ring"), dp.GradientTracking("ring", 0.2), 1500
    ),
    "primal-dual": Method(dp.PrimalDual("ring"), dp.PrimalDual("ring", 0.3, 2.0), 1500),
    "DPP2": Method(DAMPED, DAMPED, 1500),
}
EVERY_METHOD = METHODS | COUPLED_METHODS | NETWORK_METHODS | OPEN_METHODS
# For observers of the last iterate alone.
HIDDEN_METHODS = {
    order: dp.GradientADMM(beta=2.0, order=order)
    for order in ("fixed", "permutation", "stopping", "sampling")
}
ROUNDS = 12
EVERY = INSTANCES | RECORDS | COUPLED | NETWORKS | OPEN
GRADIENTS = [m for m in METHODS if m.startswith("linearised") and METHODS[m].release != "once"]
CONSENSUS = [(m, i) for m in METHODS for i in INSTANCES]
CONSENSUS += [(m, i) for m in GRADIENTS for i in RECORDS]
# Records with logistic losses cannot be released once.
TIED = [(m, i) for m in COUPLED_METHODS for i in COUPLED if "once" not in m or i != "survey"]
NETWORKED = [(m, i) for m in NETWORK_METHODS for i in NETWORKS]
NETWORKED += [("decentralised ADMM", "power line"), ("decentralised gradient, range", "clinics")]
NETWORKED += [("decentralised ADMM, exact", "clinics")]
NETWORKED += [(m, i) for m in OPEN_METHODS for i in OPEN]
ALL = CONSENSUS + TIED + NETWORKED
pairs = pytest.mark.parametrize(("method", "instance"), ALL, ids=str)
# One user per round: with several, the rounds do not come to rest.
CONVERGING = CONSENSUS + [p for p in TIED if p[1] == "one household"]
CONVERGING += [p for p in NETWORKED if EVERY_METHOD[p[0]].rounds > 0]
converging = pytest.mark.parametrize(("method", "instance"), CONVERGING, ids=str)


@cache
def made(instance):
    return EVERY[instance]()


@cache
def optimum(instance):
    return made(instance).optimum


@cache
def private_plan(method, instance, **arguments):
    tried = EVERY_METHOD[method]
    settings = {"rounds": ROUNDS, "delta": 1e-6, "release": tried.release} | arguments
    if "mechanism" not in settings:
        settings["epsilon"] = 2.0
    return made(instance).problem.plan(tried.private, **settings)


def vectors(result):
    return [*result.last.vectors, *result.average.vectors]


@pairs
@pytest.mark.parametrize(
    "mechanism", [dp.Gaussian(multiplier=20.0), dp.Laplace(step_epsilon=0.05)], ids=str
)
def test_releases_alone_reproduce_the_run_bit_for_bit(method, instance, mechanism):
    plan = private_plan(method, instance, mechanism=mechanism)
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


@converging
def test_without_noise_it_converges_to_the_central_optimum(method, instance):
    given = made(instance)
    tried = EVERY_METHOD[method]
    plan = given.problem.plan(
        tried.exact, mechanism=None, rounds=tried.rounds, release=tried.release
    )
    result = plan.run(tolerance=1e-7)
    value = dp.not_private.objective(given.problem, result.solution)
    assert result.guarantee.kind == "none"
    assert result.status is dp.Status.CONVERGED
    assert result.consensus_residual < 1e-5
    assert all(c.violation().max() < 1e-5 for c in given.problem.coupling)
    assert value == pytest.approx(optimum(instance), rel=1e-4, abs=1e-5)


@pairs
def test_the_ledger_agrees_with_the_plan(method, instance):
    plan = private_plan(method, instance)
    result = plan.run(seed=1)
    once = EVERY_METHOD[method].release == "once"
    # Users of coupled methods take turns.
    users = sum(bool(local.form.private) for local in plan.program.agents)
    turns = ROUNDS // users if method in COUPLED_METHODS else ROUNDS
    needs = plan.algorithm.requirements
    steps = 1 if once else turns * needs.releases - needs.free
    for local in plan.program.agents:
        account = result.ledger[local.name]
        assert len(account.entries) == (steps if local.form.private else 0)
        multipliers = {plan.agents[0].noise.multiplier * w for w in needs.weights}
        assert {e.multiplier for e in account.entries} <= multipliers
        places = [(e.round, e.step) for e in account.entries]
        assert places == sorted(set(places))
        assert {t for t, _ in places} <= ({0} if once else set(range(1, ROUNDS + 1)))
    assert result.ledger.spent() == pytest.approx(plan.guarantee.epsilon, rel=1e-9)
    assert plan.guarantee.epsilon <= 2.0


@pairs
def test_neighbours_differ_by_no_more_than_was_charged_and_outside_not_at_all(method, instance):
    found = dp.check(private_plan(method, instance))
    assert not found.faults, str(found)
    steps = private_plan(method, instance).releases(ROUNDS)
    assert {agent.releases for agent in found.agents} == {steps}
    # A perturbed output can sit in a corner of its set for both neighbours.
    if "output" not in method:
        assert found.passed
        assert min(agent.ratio for agent in found.agents) > 0.05


@pytest.mark.parametrize(("method", "instance"), NETWORKED, ids=str)
def test_noise_that_falls_costs_what_was_planned(method, instance):
    mechanism = dp.Gaussian(multiplier=20.0, decay=0.9)
    plan = private_plan(method, instance, mechanism=mechanism, rounds=5)
    result = plan.run(seed=2, record=True)
    assert result.ledger.spent() == pytest.approx(plan.guarantee.epsilon, rel=1e-9)
    weights = plan.algorithm.requirements.weights
    for e in (e for account in result.ledger.values() for e in account.entries):
        expected = 20.0 * 0.9 ** max(0, e.round - 1) * weights[(e.step - 1) % len(weights)]
        assert e.multiplier == pytest.approx(expected, rel=1e-12)
    again = plan.replay(result.transcript)
    assert all(np.array_equal(a, b) for a, b in zip(vectors(result), vectors(again), strict=True))


@pytest.mark.parametrize(
    ("method", "instance"),
    [
        ("decentralised ADMM", "sensors"),
        ("decentralised ADMM, exact", "sensors"),
        ("decentralised gradient, range", "sensors"),
        ("DPP2", "laboratories"),
    ],
)
def test_attacks_on_methods_over_networks_find_nothing(method, instance):
    assert dp.audit(private_plan(method, instance, rounds=2), runs=20).passed


@pairs
def test_nothing_that_comes_back_contains_private_values(method, instance):
    given = made(instance)
    plan = private_plan(method, instance, mechanism=dp.Gaussian(multiplier=20.0))
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


# Runs of which the last iterate alone leaves: nothing is kept that could be replayed.

hidden = pytest.mark.parametrize("instance", HIDDEN)
ordered = pytest.mark.parametrize("order", HIDDEN_METHODS)


@cache
def made_hidden(instance):
    return HIDDEN[instance]()


@cache
def hidden_plan(order, instance):
    problem = made_hidden(instance).problem
    users = sum(bool(agent.private) for agent in problem.agents)
    rounds = users if order == "stopping" else 2 * users + 1
    return problem.plan(
        HIDDEN_METHODS[order], observer="last iterate", rounds=rounds, epsilon=2.0, delta=1e-6
    )


@hidden
@ordered
def test_hidden_runs_spend_what_was_planned_and_repeat_themselves(order, instance):
    plan = hidden_plan(order, instance)
    one, same, other = (plan.run(seed=s) for s in (5, 5, 6))
    assert all(np.array_equal(a, b) for a, b in zip(vectors(one), vectors(same), strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(vectors(one), vectors(other), strict=True))
    for local in plan.program.agents:
        assert len(one.ledger[local.name].entries) == (1 if local.form.private else 0)
    assert one.ledger.spent() == pytest.approx(plan.guarantee.epsilon, rel=1e-9)
    assert plan.guarantee.epsilon <= 2.0
    assert one.ledger.to_json() == other.ledger.to_json()
    assert len(one.history) == 0 and one.transcript is None


@hidden
@ordered
def test_hidden_iterates_of_neighbours_differ_by_no_more_than_was_charged(order, instance):
    plan = hidden_plan(order, instance)
    found = dp.check(plan)
    assert found.passed, str(found)
    assert max(agent.ratio for agent in found.agents) > 0.05


@hidden
@ordered
def test_nothing_that_comes_back_from_hidden_runs_contains_private_values(order, instance):
    given, plan = made_hidden(instance), hidden_plan(order, instance)
    result = plan.run(seed=4)
    for thing in (given.problem, plan, result, result.ledger, result.history):
        for secret in given.secrets:
            assert not contains(thing, secret)
    users = [local.name for local in plan.program.agents if local.form.private]
    points = [x for x, local in zip(result.last.vectors, plan.program.agents, strict=True)
              if local.name in users]  # fmt: skip
    assert all(np.array_equal(x, points[0]) for x in points)
    # What is left apart are the two sides of the coupling.
    assert result.consensus_residual == result.coupling_residual


@hidden
def test_hidden_runs_are_consistent_with_their_ledger(instance):
    assert dp.audit(hidden_plan("permutation", instance), runs=20).passed
