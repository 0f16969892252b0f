"""The package's own methods keep every promise of methods; the suite finds those that break one."""

import math
import os
from dataclasses import dataclass, replace
from functools import cache
from typing import ClassVar

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp
from dpcvx.algorithms.base import Algorithm, Answer
from dpcvx.sensitivity.stored_vectors import LinearCombination
from dpcvx.solvers.projector import Projector
from dpcvx.testing import instances as shipped
from dpcvx.testing.instances import Instance
from tests.instances import whole
from tests.privacy.test_ledger_file import cut, ends, put
from tests.run.test_resume import full, same


@dataclass(frozen=True)
class Method:
    """A method as it is tried here.

    Attributes
    ----------
    private : Algorithm
        For private runs.
    exact : Algorithm
        For runs without noise, which converge within `rounds`.
    rounds : int or None
        None if they need not converge.
    instances : sequence of str
    release : str
    """

    private: Algorithm
    exact: Algorithm
    rounds: int | None
    instances: list[str]
    release: str = "each_step"


AFFINE = ["power line", "overlapping slices", "covariance"]
BALANCED = dp.ADMM(penalty=dp.penalties.ResidualBalancing(50.0))


def linearized(perturb="objective", local_updates=1):
    """With a constant step, for runs without noise."""
    step = dp.steps.Constant(0.05)
    return dp.LinearizedADMM(penalty=1.0, step=step, perturb=perturb, local_updates=local_updates)


METHODS = {
    "ADMM": Method(dp.ADMM(penalty=2.0), dp.ADMM(penalty=2.0), 300, AFFINE),
    "ADMM, balanced": Method(BALANCED, BALANCED, 300, ["power line"]),
    "ADMM, once": Method(
        dp.ADMM(penalty=2.0), dp.ADMM(penalty=2.0), 300, ["overlapping slices"], "once"
    ),
    "linearized": Method(dp.LinearizedADMM(penalty=1.0), linearized(), 3000, [*AFFINE, "clinics"]),
    "linearized, E = 3": Method(
        dp.LinearizedADMM(penalty=5.0, step=dp.steps.Sqrt(), local_updates=3),
        linearized(local_updates=3), 3000, ["overlapping slices"],
    ),
    "linearized, once": Method(
        dp.LinearizedADMM(penalty=5.0, local_updates=2), linearized(), 3000, ["covariance"], "once"
    ),
    "linearized, output": Method(
        dp.LinearizedADMM(
            penalty=dp.penalties.Growing(2, 5, 5), step=dp.steps.Sqrt(0.1), perturb="output"
        ),
        linearized("output"), 3000, ["power line", "clinics"],
    ),
    "linearized, projected output": Method(
        dp.LinearizedADMM(
            penalty=5.0, step=dp.steps.StronglyConvex(0.1), perturb="projected_output"
        ),
        linearized("projected_output"), 3000, ["overlapping slices", "clinics"],
    ),
}  # fmt: skip
COUPLED = dp.GradientADMM(penalty=2.0, step=0.02)
ROUGH = dp.GradientADMM(smoothness=20.0, returned="last")
# One user per round: with several, the rounds do not come to rest.
METHODS |= {
    "gradient ADMM, one user": Method(COUPLED, COUPLED, 3000, ["one household"]),
    "gradient ADMM": Method(COUPLED, COUPLED, None, ["household tariff", "survey"]),
    "gradient ADMM, last, one user": Method(
        ROUGH, dp.GradientADMM(returned="last"), 3000, ["one household"]
    ),
    "gradient ADMM, last": Method(ROUGH, ROUGH, None, ["household tariff", "survey"]),
    "gradient ADMM, once, one user": Method(
        dp.GradientADMM(), dp.GradientADMM(), 3000, ["one household"], "once"
    ),
    # Records with logistic losses cannot be released once.
    "gradient ADMM, once": Method(
        dp.GradientADMM(), dp.GradientADMM(), None, ["household tariff"], "once"
    ),
}
# Without noise, ADMM alone converges to the optimum with a constant step.
OVER_PATH = dp.DecentralizedADMM("path", step=1 / 60, penalty=10.0)
EXACT = replace(OVER_PATH, exact=True, growth=1.001)
SECRET = dp.FederatedAveraging(0.03, dp.SecretSharing(limit=1e4, resolution=2.0**-30))
ENTRIES = dp.DecentralizedGradient("ring", 0.03, coordinates=2)
MIXING = dp.DecentralizedGradient("ring", dp.steps.Geometric(0.9, 0.05))
MEAN = dp.DecentralizedGradient("complete", 0.03, "mean")
PAIR = dp.DecentralizedGradient("complete", 0.03, "pair")
RANGE = dp.DecentralizedGradient("star", dp.steps.Sqrt(), "range")
DAMPED = dp.DPP2("ring", 0.3, 0.1, damping=1.0)
NETWORKS = {
    "decentralized ADMM": Method(OVER_PATH, OVER_PATH, 3000, ["sensors", "power line"]),
    "decentralized ADMM, once": Method(OVER_PATH, OVER_PATH, 3000, ["sensors"], "once"),
    "decentralized ADMM, exact": Method(EXACT, EXACT, 3000, ["sensors", "clinics"]),
    "mean gradient, secret sums": Method(SECRET, SECRET, None, ["sensors"]),
    "decentralized gradient, two entries": Method(ENTRIES, ENTRIES, None, ["sensors"]),
    "decentralized gradient, mixing": Method(MIXING, MIXING, None, ["sensors"]),
    "decentralized gradient, mean": Method(MEAN, MEAN, None, ["sensors"]),
    "decentralized gradient, pair": Method(PAIR, PAIR, None, ["sensors"]),
    "decentralized gradient, range": Method(RANGE, RANGE, None, ["sensors", "clinics"]),
    "gradient tracking": Method(
        dp.GradientTracking("ring"), dp.GradientTracking("ring", 0.2), 1500, ["laboratories"]
    ),
    "primal-dual": Method(
        dp.PrimalDual("ring"), dp.PrimalDual("ring", 0.3, 2.0), 1500, ["laboratories"]
    ),
    "DPP2": Method(DAMPED, DAMPED, 1500, ["laboratories"]),
}
METHODS |= NETWORKS
SHARED = dp.ResourceADMM(penalty=0.5)
EXACTLY = dp.ResourceADMM(penalty=0.5, exact=True)
METHODS |= {
    "resource ADMM": Method(SHARED, SHARED, 3000, ["dispatch"]),
    "resource ADMM, exact": Method(EXACTLY, EXACTLY, 3000, ["dispatch"]),
    "resource ADMM, once": Method(SHARED, SHARED, 3000, ["dispatch"], "once"),
}
WRITTEN = dp.OneShot(as_written=True)
METHODS |= {
    "central": Method(dp.OneShot(), dp.OneShot(), 1, [*AFFINE, "household tariff", "dispatch"]),
    "central, as written": Method(WRITTEN, WRITTEN, 1, ["power line", "dispatch"], "once"),
    "central, once": Method(dp.OneShot(), dp.OneShot(), 1, ["covariance", "sensors"], "once"),
}
SUMMED = dp.FederatedGradient(0.02)
SPLIT = dp.FederatedGradient(0.02, dp.SecretSharing(limit=1e4, resolution=2.0**-30))
LEARNED = dp.FederatedGradient(scale=dp.LearnScale())
PERTURBED = dp.ObjectivePerturbation(regularization=0.5)
POOLED = dp.OneShot(dp.SecretSharing(limit=1e4, resolution=2.0**-30))
METHODS |= {
    "summed gradient": Method(SUMMED, SUMMED, 3000, ["power line", "clinics"]),
    "summed gradient, learned": Method(LEARNED, SUMMED, 3000, ["clinics"]),
    "summed gradient, noise split": Method(SPLIT, SPLIT, 3000, ["sensors"]),
    "objective perturbation": Method(
        PERTURBED, dp.ObjectivePerturbation(0.0), None, ["power line", "clinics"]
    ),
    "central, noise split": Method(POOLED, POOLED, 1, ["sensors", "household tariff"]),
}
SUITES = {
    name: dp.testing.check_method(
        tried.private,
        exact=tried.exact,
        rounds=tried.rounds,
        release=tried.release,
        instances=tried.instances,
        feasible=name != "linearized, output",
    )
    for name, tried in METHODS.items()
}
ROUNDS = 12
PAIRS = [(m, i) for m, tried in METHODS.items() for i in tried.instances]


@cache
def made(instance):
    return whole(shipped.INSTANCES[instance])()


@cache
def private_plan(method, instance, **arguments):
    tried = METHODS[method]
    rounds = tried.private.fixed_rounds or ROUNDS + len(tried.private.requirements.first)
    settings = {"rounds": rounds, "delta": 1e-6, "release": tried.release} | arguments
    if "mechanism" not in settings:
        settings["epsilon"] = 2.0
    return made(instance).problem.plan(tried.private, **settings)


def vectors(result):
    return [*result.last.vectors, *result.average.vectors]


@pytest.mark.parametrize(
    "check",
    [
        pytest.param(check, id=f"{name}: {check}")
        for name, suite in SUITES.items()
        for check in suite
    ],
)
def test_every_method_keeps_its_promises(check):
    check()


@pytest.mark.parametrize("method", METHODS)
def test_every_release_is_charged_with_the_noise_that_was_planned(method):
    plan = private_plan(method, METHODS[method].instances[-1])
    result = plan.run(seed=1)
    once = METHODS[method].release == "once"
    # Users of coupled methods take turns.
    users = sum(bool(local.form.private) for local in plan.program.agents)
    turns = ROUNDS // users if method.startswith("gradient ADMM") else plan.rounds
    needs = plan.algorithm.requirements
    steps = 1 if once else turns * needs.releases - needs.free
    for local in plan.program.agents:
        account = result.ledger[local.name]
        assert len(account.entries) == (steps if local.form.private else 0)
        first = [*needs.factors(plan.rounds), 1.0]
        base = plan.agents[0].noise.multiplier
        multipliers = {base * w * times for w in needs.weights for times in first}
        assert {e.multiplier for e in account.entries} <= multipliers
        rounds = {0} if once else set(range(1, plan.rounds + 1))
        assert {e.round for e in account.entries} <= rounds
    assert plan.guarantee.epsilon <= 2.0


# A perturbed output can sit in a corner of its set for both neighbors.
@pytest.mark.parametrize(
    ("method", "instance"), [p for p in PAIRS if "output" not in p[0]], ids=str
)
def test_what_is_charged_is_not_far_above_what_neighbors_differ_by(method, instance):
    plan = private_plan(method, instance)
    found = dp.check_sensitivity(plan)
    assert found.passed
    assert {agent.releases for agent in found.agents} == {plan.releases(plan.rounds)}
    assert min(agent.ratio for agent in found.agents) > 0.05


@pytest.mark.parametrize(("method", "instance"), [p for p in PAIRS if p[0] in NETWORKS], ids=str)
def test_noise_that_falls_costs_what_was_planned(method, instance):
    mechanism = dp.Gaussian(noise_multiplier=20.0, decay=0.9)
    plan = private_plan(method, instance, mechanism=mechanism, rounds=5)
    result = plan.run(seed=2, record=True)
    assert result.ledger.spent() == pytest.approx(plan.guarantee.epsilon, rel=1e-9)
    weights = plan.algorithm.requirements.weights
    for e in (e for account in result.ledger.values() for e in account.entries):
        expected = 20.0 * 0.9 ** max(0, e.round - 1) * weights[(e.step - 1) % len(weights)]
        assert e.multiplier == pytest.approx(expected, rel=1e-12)
    again = plan.replay(result.transcript)
    assert all(np.array_equal(a, b) for a, b in zip(vectors(result), vectors(again), strict=True))


@pytest.mark.filterwarnings("ignore::dpcvx.RepeatWarning")
@pytest.mark.parametrize("method", METHODS)
def test_a_killed_run_goes_on_to_the_same_result(method, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda file: None)  # spares the time of the disk
    tried, path = METHODS[method], tmp_path / "ledger.jsonl"
    rounds = tried.private.fixed_rounds or 4 + len(tried.private.requirements.first)
    plan = private_plan(method, tried.instances[0], rounds=rounds)
    result, raw = full(plan, path, seed=3)
    put(path, cut(raw, ends(raw)[-3]))
    same(result, plan.run(ledger=path, seed=3, record=True))
    same(result, plan.replay(path))


@pytest.mark.parametrize(
    ("method", "instance"),
    [
        ("decentralized ADMM", "sensors"),
        ("decentralized ADMM, exact", "sensors"),
        ("decentralized gradient, range", "sensors"),
        ("DPP2", "laboratories"),
    ],
)
def test_attacks_on_methods_over_networks_find_nothing(method, instance):
    assert dp.audit(private_plan(method, instance, rounds=2), runs=20).passed


@pytest.mark.parametrize("instance", METHODS["linearized, output"].instances)
def test_perturbed_outputs_leave_their_sets(instance):
    plan = private_plan("linearized, output", instance)
    result = plan.run(seed=8, record=True)
    sets = [Projector(local.constraints, local.name) for local in plan.program.agents]
    outside = [sets[r.agent].violation(r.value) for r in result.transcript.releases]
    assert max(outside) > 1e-2


# Methods that break one promise each.


@dataclass(frozen=True)
class OneSided(dp.ADMM):
    """The server has multipliers of its own, which begin to move a round before the agents'."""

    def act(self, local, state, t, k, message, oracle):
        after, copy = super().act(local, state, t, k, message, oracle)
        return (after if t > 1 else replace(after, lam=state.lam)), copy

    def receive(self, server, t, k, replies):
        agents = server.program.agents
        moved = [
            lam + server.rho * (server.w[a.slots] - copy.z)
            for a, lam, copy in zip(agents, server.lam, replies, strict=True)
        ]
        return replace(super().receive(server, t, k, replies), lam=tuple(moved))


@dataclass(frozen=True)
class Unstable(dp.ADMM):
    """What an agent sends depends on how often any agent has sent."""

    sent: ClassVar = []

    def act(self, local, state, t, k, message, oracle):
        after, copy = super().act(local, state, t, k, message, oracle)
        self.sent.append(t)
        return after, replace(copy, z=copy.z + 1e-9 * len(self.sent))


@dataclass(frozen=True)
class Noiseless(dp.ADMM):
    """Noise is taken off again."""

    def act(self, local, state, t, k, message, oracle):
        class Still:
            def release(self, query):
                oracle.release(query)
                return local.public_gradient(query.x)

        return super().act(local, state, t, k, message, Still())


@dataclass(frozen=True)
class Silent(dp.ADMM):
    """Private data are never asked for."""

    def act(self, local, state, t, k, message, oracle):
        class Public:
            def release(self, query):
                x = query.x
                return local.public_gradient(x) + np.sin(1.0 + np.arange(x.size))

        return super().act(local, state, t, k, message, Public())


@dataclass(frozen=True)
class Overcharged(dp.ADMM):
    """The plan counts two releases a round."""

    def releases(self, rounds, program):
        return 2 * rounds


@dataclass(frozen=True)
class Outside(dp.ADMM):
    """Reports points that are pushed out of their sets."""

    def answer(self, state):
        found = super().answer(state)
        return Answer(found.last + 1.0, found.average)


@dataclass(frozen=True)
class Shared(dp.ADMM):
    """Server and agents hold the same array, and agents write into it."""

    def act(self, local, state, t, k, message, oracle):
        after, copy = super().act(local, state, t, k, message, oracle)
        message.w[:] = copy.z
        return after, copy

    def send(self, server, t, k):
        server, messages = super().send(server, t, k)
        return replace(server, w=server.w + 0), [replace(m, w=server.w) for m in messages]


@dataclass(frozen=True)
class Chatty(dp.ADMM):
    """Describes itself in two lines."""

    def __str__(self):
        return "ADMM\nof mine"


@dataclass(frozen=True)
class Careless(dp.ADMM):
    """Takes anything for a parameter."""

    weight: float = 1.0


@dataclass(frozen=True)
class Harsh(dp.ADMM):
    """Refuses in Python's words."""

    weight: float = 1.0

    def __post_init__(self):
        super().__post_init__()
        if not isinstance(self.weight, float) or math.isnan(self.weight):
            raise TypeError("no")


@dataclass(frozen=True)
class Mixed(dp.LinearizedADMM):
    """Agents in a batch look at each other's points."""

    batched = True

    def act(self, local, state, t, k, message, oracle):
        after, copy = super().act(local, state, t, k, message, oracle)
        return replace(after, x=after.x - 1e-9 * (after.x.ndim - 1) * after.x.mean()), copy


@dataclass(frozen=True)
class Secretive(dp.FederatedAveraging):
    """Agents that keep vectors of their own cannot be in a batch."""

    batched = True

    def act(self, local, state, t, k, message, oracle):
        oracle.store("point", LinearCombination(state.x))
        return super().act(local, state, t, k, message, oracle)


@dataclass(frozen=True)
class Idle(dp.LinearizedADMM):
    """What it asks is not answered for many at once."""

    batched = True


BREAKS = [
    (OneSided(penalty=2.0), "without noise it converges to the optimum"),
    (Unstable(), "releases alone reproduce the run"),
    (Unstable(), "a seed repeats the run, and another changes it"),
    (Noiseless(), "a seed repeats the run, and another changes it"),
    (Noiseless(), "noise is fresh without a seed"),
    (Silent(), "neighboring data differ somewhere"),
    (Silent(), "the ledger holds what was planned"),
    (Overcharged(), "the ledger holds what was planned"),
    (Outside(), "points lie in their agents' sets"),
    (Shared(), "executors change nothing"),
    (Chatty(), "method and plan describe themselves"),
    (Careless(), "wrong parameters are refused in words"),
    (Harsh(), "wrong parameters are refused in words"),
]
LINE = ["power line"]


def broken(report):
    """Names of the promises that a method breaks."""
    return {name.rpartition(" (")[0] for name in report.broken}


@cache
def right():
    """Checks of a method that keeps all promises."""
    return {c.name: c for c in dp.testing.check_method(dp.ADMM(penalty=2.0), instances=LINE)}


@pytest.mark.parametrize(("method", "promise"), BREAKS, ids=str)
def test_a_method_that_breaks_a_promise_is_found(method, promise):
    (check,) = [c for c in dp.testing.check_method(method, instances=LINE) if c.name == promise]
    with pytest.raises(AssertionError):
        check()
    right()[promise]()


BATCH = "a batch of agents computes what each computes by itself"


def in_a_batch(method, **options):
    found = dp.testing.check_method(method, instances=LINE, **options)
    return [check for check in found if check.name == BATCH]


@pytest.mark.parametrize(
    ("method", "error", "text"),
    [
        (Mixed(), AssertionError, "a run with all agents in a batch computes something else"),
        (Secretive(), dp.PrivacyError, "store no vectors"),
        (Idle(perturb="output"), AssertionError, "and it cannot"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_batch_that_computes_something_else_than_each_agent_is_found(method, error, text):
    (check,) = in_a_batch(method)
    with pytest.raises(error, match=text):
        check()


@pytest.mark.parametrize(
    "method",
    [
        dp.LinearizedADMM(), dp.LinearizedADMM(local_updates=3), dp.FederatedAveraging(),
        dp.FederatedGradient(), dp.LinearizedADMM(2.0, dp.steps.StronglyConvex(0.5)),
    ],
    ids=str,
)  # fmt: skip
def test_batch_computes_what_each_agent_computes(method):
    (check,) = in_a_batch(method)
    check()


def test_methods_that_are_not_batched_are_not_compared():
    assert not in_a_batch(dp.ADMM(penalty=2.0))
    assert not in_a_batch(dp.LinearizedADMM(perturb="output"))
    assert not in_a_batch(dp.LinearizedADMM(), release="once")


def test_a_sensitivity_that_is_too_small_is_found():
    values = np.array([0.71828, 0.57721])
    load = dp.Private(values, name="load", adjacency=dp.Within(1.0))
    x = cp.Variable(2)
    wrong = dp.Asserted(l2=1e-3)
    agents = [
        dp.Agent(cp.Minimize(cp.sum_squares(x - load)), name="a", sensitivity=wrong),
        dp.Agent(cp.Minimize(cp.sum_squares(x)), name="b"),
    ]
    mine = {"mine": Instance(dp.Problem(agents), {"load": values})}
    report = dp.testing.check_method(dp.LinearizedADMM(), rounds=None, instances=mine).run()
    assert broken(report) == {"neighbors differ by no more than was charged"}
    assert not report.conforms
    assert "breaks 1 of 13 promises" in str(report) and "sensitivity" in str(report)


def test_private_values_that_show_and_copies_that_compute_something_else_are_found():
    """Both promises are the engine's: here the instance is wrong about its data."""
    line = made("power line")
    mine = {
        "shown": replace(line, data={**line.data, "epsilon": np.array([2.0])}),
        "moved": replace(line, data={name: 1 + value for name, value in line.data.items()}),
    }
    report = dp.testing.check_method(
        dp.ADMM(), rounds=None, instances={"shown": mine["shown"]}
    ).run()
    assert "nothing that comes back contains private values" in broken(report)
    report = dp.testing.check_method(
        dp.ADMM(), rounds=None, instances={"moved": mine["moved"]}
    ).run()
    assert broken(report) == {"a deep copy runs as the plan does"}


def test_a_report_says_what_was_tried_and_what_was_not():
    suite = dp.testing.check_method(dp.PrimalDual("ring"), rounds=None)
    assert suite.refused and set(suite.refused) < set(shipped.INSTANCES)
    assert str(suite) == f"{len(suite)} checks of PrimalDual; .run() performs them"
    report = dp.testing.check_method(dp.ADMM(penalty=2.0), instances=LINE).run()
    assert report.conforms and len(report.passed) == 13
    assert str(report) == "ADMM keeps all 13 promises"
    assert "not tried on household tariff: dp.PrimalDual" in str(
        replace(report, refused=suite.refused)
    )


def test_a_network_of_other_agents_is_not_tried_on_equal_clinics():
    names = [agent.name for agent in made("laboratories").problem.agents]
    graph = dp.networks.build("ring", names)
    suite = dp.testing.check_method(dp.PrimalDual(graph), rounds=None, instances=["laboratories"])
    assert [*suite.refused] == ["equal clinics"] and not any(
        "a batch of agents" in str(c) for c in suite
    )
    shaped = dp.testing.check_method(dp.PrimalDual("ring"), rounds=None, instances=["laboratories"])
    assert not shaped.refused and "a batch of agents" in str([*shaped][-1])


def test_a_method_that_takes_no_instance_is_not_passed():
    with pytest.raises(dp.ModelError, match="supports none of the instances.*power line"):
        dp.testing.check_method(dp.DPP2(graph="grid", weights="no"))


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"method": dp.ADMM}, "takes a method"),
        ({"exact": 3}, "takes a method"),
        ({"rounds": 0}, "rounds=0 must be an int"),
        (
            {"instances": ["no such"]},
            "no instance called 'no such'; the package's are 'power line'",
        ),
    ],
)
def test_suites_refuse_what_they_cannot_try(arguments, text):
    with pytest.raises(dp.ModelError, match=text):
        dp.testing.check_method(**{"method": dp.ADMM(), **arguments})


def test_an_instance_of_another_type_is_refused_when_it_is_tried():
    (first, *_) = dp.testing.check_method(dp.ADMM(), instances={"mine": made("power line").problem})
    with pytest.raises(dp.ModelError, match="maps names to"):
        first()
