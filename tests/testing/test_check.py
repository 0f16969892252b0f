"""Record and replay on neighboring data: sound plans pass, every planted leak is reported."""

import importlib
import math
from dataclasses import dataclass, field, replace

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp
from dpcvx.run.worker import Worker
from dpcvx.sensitivity.certificate import Sensitivity
from dpcvx.sensitivity.norms import Bound
from dpcvx.sensitivity.queries.gradients import Gradient
from tests.spies import change_charges

checking = importlib.import_module("dpcvx.testing.check")  # the package has a function of that name
ROUNDS = 3
GAUSS, LAPLACE = dp.Gaussian(noise_multiplier=3.0), dp.Laplace(noise_multiplier=3.0)
mechanisms = pytest.mark.parametrize("mechanism", [GAUSS, LAPLACE], ids=str)
METHODS = {
    "ADMM": (dp.ADMM(penalty=2.0), "each_step"),
    "gradient": (dp.LinearizedADMM(penalty=2.0, step=0.1, local_updates=2), "each_step"),
    "output": (dp.LinearizedADMM(penalty=2.0, step=0.1, perturb="output"), "each_step"),
    "projected_output": (
        dp.LinearizedADMM(penalty=2.0, step=0.1, perturb="projected_output"),
        "each_step",
    ),
    "once": (dp.LinearizedADMM(penalty=2.0, step=0.1), "once"),
}
methods = pytest.mark.parametrize("method", METHODS)
LINEARISED = pytest.mark.parametrize("method", [m for m in METHODS if m not in ("ADMM", "once")])
LOADS = np.array([0.4, -0.2, 0.7])


def within(norm="entry", costs=None):
    """Two agents that share a vector; their data change by at most 0.1."""
    tie = cp.Variable(2, name="tie")
    A = np.array([[1.0, 2.0], [0.0, 1.0], [-1.0, 0.5]])
    agents = []
    for name, sign in (("north", 1), ("south", -1)):
        load = dp.Private(LOADS * sign, adjacency=dp.Within(0.1, norm), name=f"load {name}")
        cost = cp.sum_squares(A @ tie - load) + 0.1 * cp.sum_squares(tie)
        agents.append(dp.Agent(cp.Minimize(cost), [cp.abs(tie) <= 1], name=name))
    return dp.Problem(agents)


def people(seed, count=6):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(count, 2))
    return X / np.linalg.norm(X, axis=1)[:, None], rng.choice([-1.0, 1.0], size=count)


def records(change="replace_one", clip=None, constraints=True):
    """Two agents that classify with one vector of weights; one record changes."""
    w = cp.Variable(2, name="w")
    agents = []
    for seed, name in enumerate(("north", "south")):
        rows = dp.Rows(1.0, relation=change, records=f"patient of {name}")
        X, y = (
            dp.Private(values, adjacency=rows, name=f"{part} {name}")
            for part, values in zip("Xy", people(seed), strict=True)
        )
        cost = cp.sum(cp.logistic(-cp.multiply(y, X @ w))) / 6 + 0.05 * cp.sum_squares(w)
        limits = [cp.norm(w) <= 2] if constraints else []
        agents.append(dp.Agent(cp.Minimize(cost), limits, name=name, clip_norm=clip))
    return dp.Problem(agents)


def moments():
    """Least squares on records, which may be released once."""
    w = cp.Variable(2, name="w")
    X, y = (
        dp.Private(values, adjacency=dp.Rows(1.0), name=part)
        for part, values in zip("Xy", people(3), strict=True)
    )
    return dp.Problem([dp.Agent(cp.Minimize(cp.sum_squares(X @ w - y)), [cp.norm(w) <= 1])])


def plan(problem, method="gradient", mechanism=GAUSS, rounds=ROUNDS, algorithm=None):
    chosen, release = METHODS[method]
    delta = None if mechanism is None else 1e-6
    return problem.plan(
        algorithm or chosen, mechanism=mechanism, rounds=rounds, delta=delta, release=release
    )


@methods
@mechanisms
def test_every_method_passes_with_changes_within_a_radius(method, mechanism):
    made = plan(within(), method, mechanism)
    found = dp.check_sensitivity(made)
    assert found.passed and found.faults == ()
    assert [a.agent for a in found.agents] == ["north", "south"]
    assert [a.releases for a in found.agents] == [made.releases(ROUNDS)] * 2
    assert all(0 < a.ratio <= 1 for a in found.agents)


@pytest.mark.parametrize("norm", ["entry", 1, 2, math.inf], ids=str)
@pytest.mark.parametrize(("method", "least"), [("gradient", 0.99), ("ADMM", 0.99), ("once", 0.3)])
def test_the_worst_neighbor_within_a_radius_nearly_attains_the_charge(norm, method, least):
    found = dp.check_sensitivity(plan(within(norm), method))
    assert found.passed and all(least <= a.ratio <= 1 for a in found.agents)


@LINEARISED
@mechanisms
@pytest.mark.parametrize("change", ["replace_one", "add_or_remove_one"])
def test_every_method_passes_with_records(method, mechanism, change):
    found = dp.check_sensitivity(plan(records(change), method, mechanism))
    assert found.passed and all(0.02 < a.ratio <= 1 for a in found.agents)


@pytest.mark.parametrize("problem", [records(clip=0.05), records(constraints=False), moments()])
def test_clipped_and_unconstrained_records_pass(problem):
    assert dp.check_sensitivity(plan(problem)).passed


@mechanisms
def test_moments_of_records_that_are_released_once_pass(mechanism):
    found = dp.check_sensitivity(plan(moments(), "once", mechanism))
    assert found.passed and found.agents[0].releases == 1 and found.agents[0].ratio > 0


def test_a_change_of_data_much_larger_than_their_radius_passes():
    """In floats, 879609302220.8335 / 0.1 - 879609302220.7335 / 0.1 is 1.001 and not 1."""
    x, d = cp.Variable(name="x"), dp.Private(879609302220.7335, adjacency=dp.Within(0.1), name="d")
    problem = dp.Problem([dp.Agent(cp.Minimize(cp.square(x - d)), name="solo")])
    plan = problem.plan(dp.LinearizedADMM(), mechanism=LAPLACE, rounds=1, release="once")
    report = dp.check_sensitivity(plan, neighbors={"d": 879609302220.8335})
    assert report.status == "passed"
    assert report.agents[0].ratio > 0.99


def test_agents_without_private_data_are_not_compared():
    x = cp.Variable(2)
    d = dp.Private([0.5, 0.5], adjacency=dp.Within(0.1), name="d")
    agents = [
        dp.Agent(cp.Minimize(cp.sum_squares(x - d)), name="north"),
        dp.Agent(cp.Minimize(cp.sum_squares(x)), name="public"),
    ]
    assert [a.agent for a in dp.check_sensitivity(plan(dp.Problem(agents))).agents] == ["north"]


@methods
def test_a_check_is_two_runs_and_repeats_itself(method, monkeypatch):
    driven = []

    def counted(made, dealt, oracles, rounds, seed):
        driven.append(rounds)
        return drive(made, dealt, oracles, rounds, seed)

    drive = checking.drive_silently
    monkeypatch.setattr(checking, "drive_silently", counted)
    made = plan(within(), method)
    one, two = dp.check_sensitivity(made), dp.check_sensitivity(made)
    batched = len(checking.dealt_as_run(made)) < len(made.agents)
    assert driven == [ROUNDS] * (8 if batched else 4)  # a batch is checked one by one as well
    assert str(one) == str(two) and one.agents == two.agents
    assert made.accounts()[0].entries == []


def test_the_text_says_that_it_is_not_private():
    text = str(dp.check_sensitivity(plan(within())))
    assert text.startswith("dpcvx check_sensitivity: passed\nNot private: computed on both")
    assert "north: 6 releases compared, largest distance" in text
    failed = str(checking.SensitivityCheck((), ("the ledgers differ",)))
    assert "FAILED\nNot private" in failed and "fault: the ledgers differ" in failed


def ratio(made, neighbors, **arguments):
    found = dp.check_sensitivity(made, neighbors, **arguments)
    assert found.passed
    return found.agents[0].ratio


def test_given_neighbors_are_used():
    made = plan(within(2))
    small, large = (LOADS + size * np.array([0.0, 0.6, 0.8]) for size in (0.01, 0.1))
    same = dp.check_sensitivity(made, {"load north": LOADS})
    assert same.vacuous == ("north",) and "VACUOUS" in str(same) and not same
    near, far = ratio(made, {"load north": small}), ratio(made, {"load north": large})
    assert far == pytest.approx(10 * near, rel=1e-2)
    (north, _) = made.problem.agents
    assert ratio(made, {north.private[0]: lambda: large}) == far


def test_given_data_take_the_place_of_declared_ones():
    made = plan(within())
    data = {"load north": [9.0, 9.0, 9.0]}
    assert ratio(made, {"load north": [9.0, 9.1, 9.0]}, data=data) > 0.3
    with pytest.raises(dp.DataError, match="further from the data"):
        dp.check_sensitivity(made, {"load north": LOADS}, data=data)


def test_both_parts_of_one_record_may_change():
    made = plan(records())
    X, y = people(0)
    X[2], y[2] = -X[2], -y[2]  # which its product with the label does not show
    assert dp.check_sensitivity(made, {"X north": X, "y north": y}).vacuous == ("north",)
    X[2], y[2] = X[2][::-1] / 2, y[2]
    assert 0 < ratio(made, {"X north": X, "y north": y}) <= 1
    X[2], y[2] = 0.0, 0.0
    assert ratio(plan(records("add_or_remove_one")), {"X north": X, "y north": y}) > 0.02


def changed(index, by):
    values = LOADS.copy()
    values[index] += by
    return values


X0, Y0 = people(0)
REFUSED = {
    "too far": (within(), {"load north": changed(0, 0.11)}, "further from the data"),
    "two entries": (within(), {"load north": changed([0, 1], 0.05)}, "further from the data"),
    "two records": (records(), {"X north": np.vstack([-X0[:2], X0[2:]])}, "further from the data"),
    "parts of two records": (
        records(),
        {"X north": np.vstack([-X0[:1], X0[1:]]), "y north": np.append(Y0[:-1], -Y0[-1])},
        "at once",
    ),
    "too long": (records(), {"X north": np.vstack([2 * X0[:1], X0[1:]])}, "declared bound"),
    "shape": (within(), {"load north": LOADS[:2]}, r"shape \(2,\)"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_data_that_are_no_neighbors_are_refused(case):
    problem, neighbors, message = REFUSED[case]
    with pytest.raises(dp.DataError, match=message):
        dp.check_sensitivity(plan(problem), neighbors)


def two_objects(first, second):
    x = cp.Variable(2)
    cost = cp.sum_squares(x - first) + cp.sum_squares(x + second)
    return dp.Problem([dp.Agent(cp.Minimize(cost), name="north")])


def test_two_private_objects_do_not_change_at_once():
    one, two = (dp.Private([0.5, 0.5], adjacency=dp.Within(0.1), name=n) for n in "ab")
    with pytest.raises(dp.DataError, match="'a', 'b' at once"):
        dp.check_sensitivity(plan(two_objects(one, two)), {"a": [0.5, 0.6], "b": [0.5, 0.6]})


def test_an_object_with_the_name_of_the_records_is_another_change():
    one = dp.Private([0.5, 0.5], adjacency=dp.Within(0.1), name="record")
    two = dp.Private([0.5, 0.5], adjacency=dp.Rows(1.0, records="record"), name="b")
    with pytest.raises(dp.DataError, match="at once"):
        dp.check_sensitivity(plan(two_objects(one, two)), {"record": [0.5, 0.6], "b": [0.5, 0.4]})


def test_of_added_or_removed_records_one_side_is_absent():
    x = cp.Variable()
    y = dp.Private([0.4, 0.5], adjacency=dp.Rows(1.0, relation="add_or_remove_one"), name="y")
    made = plan(dp.Problem([dp.Agent(cp.Minimize(cp.sum(cp.abs(x - y))), [cp.abs(x) <= 1])]))
    assert dp.check_sensitivity(made, {"y": [0.0, 0.5]}).passed
    with pytest.raises(dp.DataError):
        dp.check_sensitivity(made, {"y": [-0.4, 0.5]})


def test_unknown_objects_are_refused():
    for key in ("load west", dp.Private([1.0], adjacency=dp.Within(1.0), name="stray")):
        with pytest.raises(dp.ModelError, match="no private object has that name"):
            dp.check_sensitivity(plan(within()), {key: LOADS})


def test_a_plan_without_noise_needs_neighbors_and_fails():
    made = plan(within(), mechanism=None)
    with pytest.raises(dp.PrivacyError, match="Pass neighbors="):
        dp.check_sensitivity(made)
    pairs = {"load north": changed(0, 0.1), "load south": -LOADS}
    found = dp.check_sensitivity(made, pairs)
    assert len(found.faults) == ROUNDS * 2 * 2  # two local updates a round; a batch, and alone
    assert all("'north'" in f and "released without noise" in f for f in found.faults)


# Faults planted on purpose: each must be found.


def halved(self, p, scale=None, x=None, honest=Sensitivity.bound):
    found = honest(self, p, scale, x)
    return Bound(found.value / 2.1, found.tight)


@pytest.mark.parametrize("method", ["ADMM", "gradient"])
@mechanisms
def test_half_the_sensitivity_is_a_fault(method, mechanism, monkeypatch):
    monkeypatch.setattr(Sensitivity, "bound", halved)
    found = dp.check_sensitivity(plan(within(), method, mechanism))
    assert any("the ledger was charged a sensitivity of" in fault for fault in found.faults)
    assert all(2 < a.ratio < 2.2 for a in found.agents)


def test_half_the_sensitivity_of_a_local_step_is_a_fault(monkeypatch):
    monkeypatch.setattr(Sensitivity, "bound", halved)
    x = cp.Variable(2)
    d = dp.Private([0.5, 0.5], adjacency=dp.Within(0.1), name="d")
    problem = dp.Problem([dp.Agent(cp.Minimize(d @ x), [cp.abs(x) <= 9], name="north")])
    for method in ("output", "projected_output"):
        found = dp.check_sensitivity(plan(problem, method))
        assert not found.passed and found.agents[0].ratio > 2


def test_half_the_sensitivity_of_a_single_release_is_a_fault(monkeypatch):
    monkeypatch.setattr("dpcvx.sensitivity.release_once.reach_of", lambda spec, p: 0.1 / 2.1)
    found = dp.check_sensitivity(plan(within(), "once"), {"load north": changed(2, 0.1)})
    assert not found.passed and "round 0, step 1" in found.faults[0]


def test_half_the_sensitivity_of_records_is_a_fault(monkeypatch):
    monkeypatch.setattr(Sensitivity, "bound", halved)
    # Made-up data would tell before.
    monkeypatch.setattr("dpcvx.plan.checks.rehearse", lambda *arguments: None)
    x = cp.Variable(2)
    X = dp.Private(np.eye(2), adjacency=dp.Rows(1.0), name="X")
    made = plan(dp.Problem([dp.Agent(cp.Minimize(cp.sum(cp.pos(3 - X @ x))), [cp.norm(x) <= 1])]))
    found = dp.check_sensitivity(made)
    assert not found.passed and "neighbors differ by" in found.faults[0]
    assert found.agents[0].ratio > 2


@dataclass(frozen=True)
class Peeking(dp.LinearizedADMM):
    """Adds data that it reads around the oracle to its reply."""

    seen: list = field(default_factory=list)

    def act(self, local, state, t, k, message, oracle):
        state, sent = super().act(local, state, t, k, message, oracle)
        return state, replace(sent, z=sent.z + 1e-9 * self.seen[-1][0])


def test_an_algorithm_that_reads_data_through_a_closure_is_a_fault():
    problem, seen = within(), []

    def source(values):
        def fetch():
            seen.append(values)
            return values

        return fetch

    made = plan(problem, algorithm=Peeking(penalty=2.0, step=0.1, seen=seen))
    found = dp.check_sensitivity(
        made,
        {"load north": LOADS, "load south": source(-changed(0, 0.1))},
        data={"load south": source(-LOADS)},
    )
    assert not found.passed
    assert any("residuals or status differ" in fault for fault in found.faults)


@dataclass(frozen=True)
class Shortcut(dp.LinearizedADMM):
    """Takes the exact gradient from the oracle's objective."""

    def _update(self, x, step, oracle):
        oracle.release(Gradient(x))
        found = step(oracle._objective.gradient(x))
        return found.x, found.outcome


def test_an_algorithm_that_takes_the_exact_gradient_is_a_fault():
    found = dp.check_sensitivity(plan(within(), algorithm=Shortcut(penalty=2.0, step=0.1)))
    assert any("iterates differ" in fault for fault in found.faults)


def test_a_public_gradient_of_real_data_is_a_fault(monkeypatch):
    made = Worker.__init__

    def bound_to_data(self, algorithm, program, oracle, agents):
        made(self, algorithm, program, oracle, agents)
        self._local = replace(self._local, public_gradient=oracle._objective.gradient)

    monkeypatch.setattr(Worker, "__init__", bound_to_data)
    found = dp.check_sensitivity(plan(within(), "ADMM"))
    assert any("iterates differ" in fault for fault in found.faults)


@methods
@pytest.mark.parametrize("kept", [0, 1])
def test_a_release_that_is_left_out_of_the_ledger_is_a_fault(method, kept, monkeypatch):
    calls = []

    def sometimes(charge):
        calls.append(charge)
        return charge if len(calls) % 2 < kept else None

    change_charges(monkeypatch, sometimes)
    found = dp.check_sensitivity(plan(within(), method))
    assert any("releases that are not in its ledger" in fault for fault in found.faults)


def test_a_ledger_that_depends_on_the_data_is_a_fault(monkeypatch):
    problem, seen = within(), []

    def quoting(charge):
        told = replace(charge.entry, sensitivity=charge.entry.sensitivity + abs(seen[-1]))
        return replace(charge, entry=told)

    def source(values):
        return lambda: seen.append(values[0]) or values

    change_charges(monkeypatch, quoting)
    found = dp.check_sensitivity(
        plan(problem),
        {"load north": LOADS, "load south": source(-changed(0, 0.1))},
        data={"load south": source(-LOADS)},
    )
    assert any("the ledgers differ" in fault for fault in found.faults)


def test_noise_that_is_skipped_for_some_releases_is_a_fault(monkeypatch):
    class Careless(checking.ObservedGate):
        def release(self, place, charges, compute, scale=None):
            if place[0] == 2:
                charges = [replace(charge, entry=None, grid=None) for charge in charges]
            return super().release(place, charges, compute, scale)

    monkeypatch.setattr(checking, "ObservedGate", Careless)
    found = dp.check_sensitivity(plan(within()))
    assert not found.passed
    assert all("round 2" in f and "released without noise" in f for f in found.faults)


def apart():
    """An agent whose gradient does not depend on its data, beside one whose gradient does."""
    x, d, e = cp.Variable(2), private_number("c"), private_number("d")
    agents = [
        dp.Agent(cp.Minimize(cp.sum_squares(x) + cp.square(d)), name="apart"),
        dp.Agent(cp.Minimize(cp.sum_squares(x - e)), name="near"),
    ]
    return agents


def private_number(name):
    return dp.Private(1.0, adjacency=dp.Within(0.1), name=name)


def test_agents_whose_gradient_does_not_depend_on_their_data_are_named():
    found = dp.check_sensitivity(plan(dp.Problem(apart())))
    assert found and found.status == "passed"
    assert [a.independent for a in found.agents] == [True, False]
    assert "apart: its gradient does not depend on its data" in str(found)


def test_a_check_of_such_agents_alone_tests_nothing():
    found = dp.check_sensitivity(plan(dp.Problem(apart()[:1])))
    assert found.status == "vacuous" and found.vacuous == ("apart",) and not found
    assert not found.faults


def test_a_gradient_that_moves_against_the_plan_is_a_fault(monkeypatch):
    """As if the derivation had lost the data, and the gradient had not."""
    with monkeypatch.context() as patch:
        patch.setattr("dpcvx.sensitivity.derivation.terms", lambda form: [])
        made = plan(dp.Problem(apart()[1:]))
    assert made.agents[0].sensitivity.l2 == 0
    found = dp.check_sensitivity(made)
    assert found.status == "failed" and "does not depend on its data, but it moves" in str(found)


def test_a_release_that_differs_nowhere_is_vacuous():
    """A loss that never counts at the points that are visited, though it could elsewhere."""
    x = cp.Variable(name="x")
    X = dp.Private(np.array([0.5, -0.5]), adjacency=dp.Rows(1.0), name="X")
    far = cp.sum(cp.pos(cp.multiply(X, cp.promote(x, (2,))) - 50)) + cp.square(x)
    found = dp.check_sensitivity(plan(dp.Problem([dp.Agent(cp.Minimize(far), [cp.abs(x) <= 100])])))
    assert found.status == "vacuous" and not found.passed
    assert "VACUOUS: none differs between the neighbors" in str(found)


# A bound that was asserted too small


REACH = {"entry": 1.0, 1: 1.0, 2: 1.0, math.inf: math.sqrt(9)}


def asserted(norm, claimed, cost=None, perturb="objective"):
    x = cp.Variable(9, name="x")
    d = dp.Private(np.linspace(-1, 1, 9), adjacency=dp.Within(0.5, norm), name="d")
    loss = cp.sum_squares(x - d) if cost is None else cost(x, d)
    bound = dp.Asserted(l2=claimed)
    agent = dp.Agent(cp.Minimize(loss), [cp.abs(x) <= 2], name="north", sensitivity=bound)
    algorithm = dp.LinearizedADMM(penalty=1.0, step=0.1, perturb=perturb)
    return dp.Problem([agent]).plan(algorithm, mechanism=GAUSS, rounds=2, delta=1e-6)


@pytest.mark.parametrize("norm", REACH, ids=str)
@pytest.mark.parametrize("perturb", ["objective", "output"])
def test_an_asserted_bound_that_is_too_small_fails_a_check(norm, perturb):
    found = dp.check_sensitivity(asserted(norm, 0.9 * REACH[norm], perturb=perturb))
    assert not found.passed
    assert all("the ledger was charged a sensitivity" in fault for fault in found.faults)
    assert found.agents[0].ratio == pytest.approx(1 / 0.9, rel=1e-3)


@pytest.mark.parametrize("norm", REACH, ids=str)
@pytest.mark.parametrize("perturb", ["objective", "output"])
def test_one_that_is_large_enough_passes_and_is_marked(norm, perturb):
    plan = asserted(norm, REACH[norm], perturb=perturb)
    assert dp.check_sensitivity(plan).passed and plan.guarantee.kind == "asserted"


UNPROVED = {
    "norm1": (lambda x, d: cp.norm1(x - d), 2.0, 5, -0.25),
    "huber": (lambda x, d: cp.sum(cp.huber(x - d, 5)), 1.0, 5, -0.25),
    "steep huber": (lambda x, d: cp.sum(cp.huber(5 * (x - d), 1)), 20.0, 5, -0.25),
    "maximum": (lambda x, d: 3 * cp.max(cp.abs(x - d)), math.sqrt(18), 0, -0.5),
}


@pytest.mark.parametrize("case", UNPROVED)
def test_also_where_nothing_could_be_derived(case):
    loss, true, i, value = UNPROVED[case]
    other = np.linspace(-1, 1, 9)
    other[i] = value
    found = dp.check_sensitivity(asserted("entry", 0.9 * true, loss), {"d": other})
    assert not found.passed and found.agents[0].ratio == pytest.approx(1 / 0.9, rel=1e-3)
