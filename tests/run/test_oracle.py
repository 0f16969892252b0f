"""The door: order of charge, data and noise; scale of the noise; what may leave on failure."""

import copy
import pickle
import traceback
import warnings
from dataclasses import dataclass, replace
from functools import cache

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp
from dpcvx.model.normal_form import Evaluator
from dpcvx.privacy.accounting import Composition
from dpcvx.privacy.accounts import Account, Budget
from dpcvx.privacy.mechanism import Calibrated
from dpcvx.privacy.randomness import Seeded
from dpcvx.run.gate import Release
from dpcvx.run.private_oracle import PrivateOracle
from dpcvx.run.public_oracle import PublicOracle
from dpcvx.run.replay import ReplayOracle
from dpcvx.sensitivity.certificate import Sensitivity
from dpcvx.sensitivity.queries.gradients import Gradient, GradientStep, Step, Stored
from dpcvx.sensitivity.queries.solutions import LocalSolution, Minimizer
from dpcvx.sensitivity.stored_vectors import LinearCombination
from dpcvx.solvers.conic import Outcome
from dpcvx.solvers.projector import Projection
from dpcvx.solvers.steps import Minimization, ProximalStep
from tests import sets
from tests.helpers import Words, contains
from tests.spies import gate_of_one
from tests.steps import answering, solution

DATA = np.array([0.731234567, -0.298765432, 1.412345678])
A = np.array([[1.0, 2.0, 0.0], [0.0, 1.0, -1.0], [0.5, 0.0, 3.0]])
GAUSS, LAPLACE = dp.Gaussian(noise_multiplier=2.0), dp.Laplace(noise_multiplier=2.0)
X = np.array([0.1, -0.2, 0.3])
WEIGHTS = np.array([4.0, 1.0, 0.25])
NOISE = Seeded(0, (0,))
FREE, BOX = (lambda x: [x <= np.array([1e9] * 3)]), (lambda x: [cp.abs(x) <= 0.4])
SIMPLEX, L1 = (lambda x: [x >= 0, cp.sum(x) == 1]), (lambda x: [cp.norm1(x) <= 0.6])


QUERIES = (Gradient, GradientStep, LocalSolution, Minimizer, Step)
PLANNED = Composition().with_gaussian(2.0, 10**6).with_laplace(2.0, 10**6)
AMPLE = Budget(1e9, 1e-6, PLANNED)


@cache
def planned(constraints, cost):
    """Projector and facts of an agent with private d: nothing that a test does changes them."""
    x = cp.Variable(3, name="x")
    d = dp.Private(shape=(3,), name="d", adjacency=dp.Within(0.01))
    agent = dp.Agent(cp.Minimize(cost(x, d)), constraints(x), name="bob")
    plan = dp.Problem([agent]).plan(
        dp.LinearizedADMM(penalty=1.0, step=1.0), mechanism=GAUSS, rounds=1, delta=1e-6
    )
    return sets.projector(agent), answering(plan.agents[0], *QUERIES)


def squares(x, d):
    """The cost of an agent, unless a test has one of its own."""
    return cp.sum_squares(A @ x - d)


class Agent:
    """``||A x - d||^2`` over a set, with private d, and everything an oracle needs."""

    def __init__(self, constraints=FREE, cost=squares):
        self.projector, self.facts = planned(constraints, cost)
        self.form, self.sensitivity = self.facts.form, self.facts.sensitivity

    def gate(self, mechanism=GAUSS, *, source=None, budget=AMPLE, record=False, past=()):
        return gate_of_one(
            None if mechanism is None else Calibrated(mechanism, mechanism.noise_multiplier),
            Account("bob", {}, budget),
            Words() if source is None else source,
            record=record,
            past=past,
        )

    def oracle(self, mechanism=GAUSS, *, data=DATA, gate=None, **arguments):
        """An oracle whose noise is 0, unless a source is given."""
        gate = self.gate(mechanism, **arguments) if gate is None else gate
        facts = self.facts if mechanism is not None else replace(self.facts, sensitivity=None)
        oracle = PrivateOracle([facts], [[data if callable(data) else lambda: data]], gate)
        oracle.begin(1)
        return oracle

    def step(self, D=WEIGHTS):
        return ProximalStep(self.projector, X, D, self.projector(X, D).x)


def asked(ask, oracle, agent):
    return oracle.release(Gradient(X) if ask == "gradient" else solution(X, agent.step()))


def exact(x, data=DATA):
    return 2 * A.T @ (A @ x - data)


# Neighbors differ in one entry by 0.01, so gradients differ by 0.02 times a row of A.
L2 = 0.02 * np.linalg.norm(A, axis=1).max()
L1_NORM = 0.02 * np.abs(A).sum(axis=1).max()


def unrounded(entry, mechanism, size=3):
    """The charged sensitivity but for its part for the grid, which is small."""
    rounding = entry.grid * (size if mechanism.norm == 1 else np.sqrt(size))
    assert 0 < rounding <= 2.0**-16 * entry.sensitivity
    return entry.sensitivity - rounding


def test_without_noise_the_gradient_is_exact():
    oracle = Agent().oracle(None)
    assert oracle.release(Gradient(X)) == pytest.approx(exact(X))


def test_a_release_without_noise_leaves_no_guarantee():
    oracle = Agent().oracle(None)
    oracle.release(Gradient(X))
    assert [(e.mechanism, e.grid) for e in oracle.accounts()[0].entries] == [("none", 0.0)]
    assert oracle.accounts()[0].spent(1e-6).epsilon == np.inf
    assert oracle.accounts()[0].affordable(Calibrated(GAUSS, 1e6), 1) == 0


@pytest.mark.parametrize(("mechanism", "bound"), [(GAUSS, L2), (LAPLACE, L1_NORM)])
def test_the_entry_says_what_is_released(mechanism, bound):
    oracle = Agent().oracle(mechanism)
    oracle.release(Gradient(X))
    oracle.release(Gradient(X))
    oracle.begin(7)
    oracle.release(Gradient(X))
    entries = oracle.accounts()[0].entries
    assert [(e.round, e.step) for e in entries] == [(1, 1), (1, 2), (7, 1)]
    assert {e.mechanism for e in entries} == {str(mechanism)}
    assert {e.multiplier for e in entries} == {2.0}
    assert unrounded(entries[0], mechanism) == pytest.approx(bound, rel=1e-8)
    assert unrounded(entries[0], mechanism) >= bound
    assert "gradient" in entries[0].released


def scale(sample, mechanism):
    """Estimated scale of noise, per component."""
    if mechanism.norm == 1:
        return np.abs(sample).mean(axis=0)
    return np.sqrt((sample**2).mean(axis=0))


def fits(sample, mechanism):
    """Whether noise has unit scale, at level 6e-7 (5 standard errors) for the components together.

    6000 numbers have standard errors of 0.9 % (normal) and 1.3 % (Laplace) of the scale, so a
    scale that is off by a tenth is rejected with probability above 0.99.
    """
    error = 1 / np.sqrt(mechanism.norm * sample.size)
    return abs(scale(np.ravel(sample), mechanism) - 1) <= 5 * error


def noise_of(draw):
    return np.array([draw() for _ in range(2000)])


@pytest.mark.parametrize(("mechanism", "bound"), [(GAUSS, L2), (LAPLACE, L1_NORM)])
def test_gradient_noise_has_scale_multiplier_times_sensitivity(mechanism, bound):
    oracle = Agent().oracle(mechanism, source=NOISE)
    sample = noise_of(lambda: oracle.release(Gradient(X)) - exact(X)) / (2.0 * bound)
    assert fits(sample, mechanism)
    assert not fits(0.9 * sample, mechanism) and not fits(1.1 * sample, mechanism)


@pytest.mark.parametrize("mechanism", [GAUSS, LAPLACE], ids=str)
def test_solution_noise_has_the_shape_of_the_weights(mechanism):
    agent = Agent(BOX)
    oracle = agent.oracle(mechanism, source=NOISE)
    step = agent.step()
    target = step(exact(X)).x
    bound = np.linalg.norm(0.02 * A.T / np.sqrt(WEIGHTS)[:, None], mechanism.norm, axis=0).max()
    plain = noise_of(lambda: oracle.release(solution(X, step)) - target) / (2 * bound)
    sample = np.sqrt(WEIGHTS) * plain
    assert fits(sample, mechanism)
    assert not fits(0.9 * sample, mechanism) and not fits(1.1 * sample, mechanism)
    assert scale(sample, mechanism) == pytest.approx(np.ones(3), rel=0.15)
    assert scale(plain, mechanism) == pytest.approx(1 / np.sqrt(WEIGHTS), rel=0.15)


def charged(agent, mechanism, D=WEIGHTS):
    oracle = agent.oracle(mechanism)
    oracle.release(solution(X, agent.step(D)))
    return oracle.accounts()[0].entries[0]


def charged_bound(agent, mechanism, D=WEIGHTS):
    return unrounded(charged(agent, mechanism, D), mechanism)


def test_solution_sensitivity_is_the_gradients_in_the_dual_of_the_step_norm():
    scaled = 0.02 * A.T / np.sqrt(WEIGHTS)[:, None]
    two = np.linalg.norm(scaled, axis=0).max()
    one = np.abs(scaled).sum(axis=0).max()
    assert charged_bound(Agent(BOX), GAUSS) == pytest.approx(two, rel=1e-8)
    assert charged_bound(Agent(BOX), LAPLACE) == pytest.approx(one, rel=1e-8)
    assert charged_bound(Agent(SIMPLEX), GAUSS) == pytest.approx(two, rel=1e-8)
    # Not separable: l1 is bounded through l2.
    assert charged_bound(Agent(SIMPLEX), LAPLACE) == pytest.approx(np.sqrt(3) * two, rel=1e-8)
    assert "solution" in charged(Agent(BOX), GAUSS).released


@pytest.mark.parametrize(("mechanism", "factor"), [(GAUSS, 1.0), (LAPLACE, np.sqrt(3))])
def test_steps_without_a_closed_form_are_charged_their_stretch_and_rounding(mechanism, factor):
    two = np.linalg.norm(0.02 * A.T / np.sqrt(WEIGHTS)[:, None], axis=0).max()
    agent = Agent(L1)
    step = agent.step()
    noise = mechanism.noise_multiplier * factor * two * np.sqrt(3)
    slack = 2 * step.rounding(step.reach + 4 * noise)
    assert 0 < slack < 1e-8 * two and 1 < agent.projector.stretch < 1.04
    expected = factor * (agent.projector.stretch * two + slack)
    assert charged_bound(agent, mechanism) == pytest.approx(expected, rel=1e-8)


def neighbors(seed, size):
    data = size * np.random.default_rng(seed).normal(size=3)
    other = data.copy()
    other[seed % 3] += 0.01
    return data, other


@pytest.mark.parametrize("constraints", [FREE, BOX, SIMPLEX], ids=["free", "box", "simplex"])
@pytest.mark.parametrize("mechanism", [GAUSS, LAPLACE], ids=str)
def test_neighboring_solutions_differ_by_no_more_than_the_entry_says(constraints, mechanism):
    agent = Agent(constraints)
    largest = 0.0
    for seed in range(60):
        a, b = (agent.oracle(mechanism, data=d) for d in neighbors(seed, 1.0))
        moved = np.sqrt(WEIGHTS) * (
            a.release(solution(X, agent.step())) - b.release(solution(X, agent.step()))
        )
        size = np.linalg.norm(moved, mechanism.norm)
        bound = a.accounts()[0].entries[0].sensitivity
        assert size <= bound
        largest = max(largest, size / bound)
    assert largest > 0.05


def test_laplace_outputs_on_a_box_stay_within_their_l1_bound_far_away():
    n, box = 60, cp.Variable(60)
    d = dp.Private(shape=n, name="far", adjacency=dp.Within(0.1))
    cost = cp.sum_squares(box - d)
    problem = dp.Problem([dp.Agent(cp.Minimize(cost), [cp.abs(box) <= 100])])
    plan = problem.plan(
        dp.LinearizedADMM(penalty=1.0, perturb="output"),
        mechanism="laplace",
        rounds=1,
        epsilon=1.0,
        delta=0,
    )
    values = np.ones(n)
    values[0] = np.sqrt(59 / 3)
    values *= 26.2 / np.linalg.norm(values)
    moved = values.copy()
    moved[0] += 0.1
    runs = [plan.run(data={d: v}, seed=1, record=True) for v in (values, moved)]
    one, two = (run.transcript.releases[0].value for run in runs)
    root = np.sqrt(1 / plan.algorithm.step.eta(1))
    (entry,) = runs[0].ledger.accounts[0].entries
    assert 0 < np.abs(root * (one - two)).sum() <= entry.sensitivity


def test_neighboring_solutions_stay_close_where_solves_are_hard():
    agent = Agent(L1, lambda x, d: cp.sum_squares(x - d))
    step = ProximalStep(agent.projector, np.zeros(3), np.ones(3), np.zeros(3))
    for seed in range(100):
        a, b = (agent.oracle(data=d) for d in neighbors(seed, 5.0))
        moved = np.linalg.norm(a.release(solution(0 * X, step)) - b.release(solution(0 * X, step)))
        assert moved <= a.accounts()[0].entries[0].sensitivity


@pytest.mark.parametrize(
    ("found", "released"),
    [
        (Projection(None, Outcome.FAILED, np.inf), None),
        (Projection(np.full(3, 9.0), Outcome.FALLBACK, np.inf), np.full(3, 9.0)),
        (Projection(np.full(3, 9.0), Outcome.INACCURATE, 1.0), np.full(3, 9.0)),
    ],
    ids=["failed", "fallback", "inaccurate"],
)
def test_under_an_asserted_sensitivity_a_failed_solve_does_not_show(found, released, monkeypatch):
    agent = Agent(L1)
    needs = replace(agent.facts.needs, sensitivity=0.1)
    agent.facts = replace(agent.facts, needs=needs)
    oracle, usual = agent.oracle(record=True), agent.oracle(record=True)
    step = agent.step()
    usual.release(solution(X, step))
    monkeypatch.setattr(ProximalStep, "within", lambda *_: found)
    expected = step.anchor if released is None else released
    moved = oracle.release(solution(X, step)) - expected
    (entry,) = oracle.accounts()[0].entries
    assert np.abs(moved).max() <= (0.5 + 1e-6) * entry.grid
    assert oracle.accounts()[0].entries == usual.accounts()[0].entries
    assert [(r.round, r.step) for r in oracle.releases] == [(1, 1)]


class Log(Account):
    """An account that writes to a list when it is charged."""

    def charge(self, entry, calibrated):
        super().charge(entry, calibrated)
        events.append("charge")


events: list[str] = []


@pytest.mark.parametrize("ask", ["gradient", "solution"])
def test_the_charge_comes_before_the_data_and_the_noise(ask, monkeypatch):
    agent = Agent()
    inside = Sensitivity.slope

    def slope(self, data):
        events.append("data")
        return inside(self, data)

    class Noise(Words):
        def at(self, round, step):
            events.append("noise")
            return super().at(round, step)

    monkeypatch.setattr(Sensitivity, "slope", slope)
    gate = gate_of_one(Calibrated(GAUSS, GAUSS.noise_multiplier), Log("bob", {}, AMPLE), Noise())
    oracle = agent.oracle(gate=gate)
    events.clear()
    asked(ask, oracle, agent)
    assert events == ["charge", "data", "noise"]


@pytest.mark.parametrize("ask", ["gradient", "solution"])
def test_a_refused_release_touches_neither_data_nor_noise(ask, monkeypatch):
    agent = Agent()
    source = Words()
    oracle = agent.oracle(source=source, budget=Budget(0.1, 1e-6, Composition()), record=True)
    monkeypatch.setattr(Sensitivity, "slope", lambda *_: pytest.fail("data were read"))
    with pytest.raises(dp.BudgetError):
        asked(ask, oracle, agent)
    assert source.drawn == 0
    assert not oracle.accounts()[0].entries and not oracle.releases


def test_data_are_fetched_once_and_checked():
    reads = []

    def source():
        reads.append(1)
        return DATA

    oracle = Agent().oracle(data=source)
    oracle.release(Gradient(X))
    oracle.release(Gradient(X))
    assert len(reads) == 1
    with pytest.raises(dp.DataError):
        Agent().oracle(data=np.full(3, np.nan))


def test_releases_are_recorded_only_on_request_and_are_copies():
    agent = Agent()
    oracle = agent.oracle(record=True, source=NOISE)
    value = oracle.release(Gradient(X))
    kept = value.copy()
    value[:] = 0
    (release,) = oracle.releases
    assert (release.agent, release.round, release.step) == (0, 1, 1)
    # What left is the private part; the public part is added where it is known.
    assert np.array_equal(agent.form.at_zero().gradient(X) + release.value, kept)
    silent = agent.oracle()
    silent.release(Gradient(X))
    assert not silent.releases


def test_an_objective_whose_gradient_is_public_is_neither_charged_nor_noised():
    agent = Agent(cost=lambda x, d: cp.sum_squares(x) + cp.sum_squares(d))
    source = Words()
    oracle = agent.oracle(source=source)
    assert oracle.release(Gradient(X)) == pytest.approx(2 * X)
    assert not oracle.accounts()[0].entries
    assert source.drawn == 0


@pytest.mark.parametrize("mechanism", [GAUSS, LAPLACE], ids=str)
@pytest.mark.parametrize("ask", ["gradient", "solution"])
@pytest.mark.parametrize("source", [Words(), NOISE], ids=["silent", "noisy"])
def test_a_release_is_a_multiple_of_its_grid(mechanism, ask, source):
    # Low bits of a release outside the grid could be those of the data (Mironov 2012).
    agent = Agent(BOX)
    oracle = agent.oracle(mechanism, source=source, record=True)
    for _ in range(20):
        if ask == "gradient":
            oracle.release(Gradient(X))
            units = oracle.releases[-1].value / oracle.accounts()[0].entries[-1].grid
            assert np.array_equal(units, np.rint(units))
        else:
            step = agent.step()
            units = (
                np.sqrt(step.D)
                * oracle.release(solution(X, step))
                / oracle.accounts()[0].entries[-1].grid
            )
            # Divided by the root and multiplied again: two roundings of the product each.
            assert units == pytest.approx(np.rint(units), rel=1e-15, abs=0)
            assert not np.array_equal(units, np.zeros(3))


@pytest.mark.parametrize("ask", ["gradient", "solution"])
def test_without_noise_drawn_the_release_is_the_nearest_point_of_the_grid(ask):
    agent = Agent(BOX)
    oracle = agent.oracle()
    step = agent.step()
    if ask == "gradient":
        moved = oracle.release(Gradient(X)) - exact(X)
    else:
        moved = np.sqrt(step.D) * (oracle.release(solution(X, step)) - step(exact(X)).x)
    (entry,) = oracle.accounts()[0].entries
    assert 0 < np.abs(moved).max() <= (0.5 + 1e-6) * entry.grid


PAST = Release(0, 1, 1, np.array([0.1, 1 / 3, -2e-300]))


def answered(ask, agent):
    """The answer that `PAST` stands for."""
    public = agent.form.at_zero().gradient(X) if ask == "gradient" else 0.0
    return public + PAST.value


@pytest.mark.parametrize("mechanism", [GAUSS, None], ids=str)
@pytest.mark.parametrize("ask", ["gradient", "solution"])
def test_what_has_left_is_given_out_again_at_no_charge(ask, mechanism, monkeypatch):
    agent, source = Agent(BOX), Words()
    oracle = agent.oracle(mechanism, source=source, past=[PAST], record=True)
    with monkeypatch.context() as patch:
        patch.setattr(Sensitivity, "slope", lambda *_: pytest.fail("data were read"))
        if mechanism is None:
            patch.setattr(Evaluator, "gradient", lambda *_: pytest.fail("data were read"))
        value = asked(ask, oracle, agent)
    assert np.array_equal(value, answered(ask, agent) if mechanism else PAST.value)
    assert not oracle.accounts()[0].entries and source.drawn == 0
    assert [(r.round, r.step, r.value.tobytes()) for r in oracle.releases] == [
        (1, 1, PAST.value.tobytes())
    ]
    asked(ask, oracle, agent)
    oracle.begin(2)
    asked(ask, oracle, agent)
    assert [(e.round, e.step) for e in oracle.accounts()[0].entries] == [(1, 2), (2, 1)]
    assert (source.drawn > 0) == (mechanism is not None)


@pytest.mark.parametrize("ask", ["gradient", "solution"])
def test_what_has_left_is_given_out_even_if_no_budget_is_left(ask):
    agent = Agent(BOX)
    oracle = agent.oracle(past=[PAST], budget=Budget(1e-9, 1e-6, Composition()))
    assert np.array_equal(asked(ask, oracle, agent), answered(ask, agent))
    with pytest.raises(dp.BudgetError):
        asked(ask, oracle, agent)


@pytest.mark.parametrize(
    "other",
    [Release(1, 1, 1, PAST.value), Release(0, 2, 1, PAST.value), Release(0, 1, 2, PAST.value)],
    ids=["agent", "round", "step"],
)
def test_what_left_elsewhere_is_not_given_out(other):
    agent = Agent(BOX)
    plain, oracle = agent.oracle(), agent.oracle(past=[other])
    assert np.array_equal(oracle.release(Gradient(X)), plain.release(Gradient(X)))
    assert oracle.accounts()[0].entries == plain.accounts()[0].entries


def test_a_run_goes_on_from_what_has_left_as_if_never_interrupted():
    agent = Agent(BOX)
    whole = agent.oracle(source=NOISE, record=True)
    values = [whole.release(Gradient(X)) for _ in range(5)]
    resumed = agent.oracle(source=NOISE, past=whole.releases[:3], record=True)
    again = [resumed.release(Gradient(X)) for _ in range(5)]
    assert np.array_equal(values, again)
    assert [(e.round, e.step) for e in resumed.accounts()[0].entries] == [(1, 4), (1, 5)]
    assert len(resumed.releases) == 5


SECRET = "0.731234567"


@pytest.mark.parametrize("ask", ["gradient", "solution"])
@pytest.mark.parametrize("where", ["private part", "gradient"])
def test_a_failing_computation_is_reported_without_its_text(where, ask, monkeypatch):
    def fail(self, x):
        raise ValueError(f"bad entry {SECRET}")

    agent = Agent()
    # With noise, the private part of this gradient is computed by itself.
    oracle = agent.oracle(GAUSS if where == "private part" else None)
    if where == "private part":
        monkeypatch.setattr(Sensitivity, "slope", fail)
    else:
        monkeypatch.setattr(Evaluator, "gradient", fail)
    with pytest.raises(dp.PrivacyError, match="ValueError") as caught:
        asked(ask, oracle, agent)
    assert SECRET not in "".join(traceback.format_exception(caught.value))
    assert caught.value.__cause__ is None and caught.value.__context__ is None


def test_a_failing_source_is_reported_without_its_text():
    def source():
        raise OSError(f"cannot parse {SECRET}")

    with pytest.raises(dp.DataError) as caught:
        Agent().oracle(data=source)
    assert SECRET not in "".join(traceback.format_exception(caught.value))
    assert caught.value.__cause__ is None and caught.value.__context__ is None


@pytest.mark.parametrize("ask", ["gradient", "solution"])
@pytest.mark.parametrize("size", [1e290, 1e300, 1e304, 1e306, 1e308])
def test_overflow_in_private_data_does_not_show(size, ask):
    agent = Agent(BOX)
    oracle = agent.oracle(data=np.full(3, size))
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        g = asked(ask, oracle, agent)
    assert not shown
    assert np.isfinite(g).all()
    assert len(oracle.accounts()[0].entries) == 1


def test_overflow_while_data_are_bound_does_not_show():
    dense = np.full((3, 3), 10.0)
    agent = Agent(cost=lambda x, d: cp.sum_squares(x - dense @ d))
    agent.oracle(data=np.full(3, 1.7e308))


@pytest.mark.parametrize("constraints", [BOX, SIMPLEX, L1], ids=["box", "simplex", "l1"])
def test_overflow_in_the_local_step_does_not_show(constraints):
    agent = Agent(constraints, lambda x, d: cp.sum_squares(x - d))
    agent.oracle(data=np.full(3, 5e306)).release(solution(X, agent.step(np.full(3, 1e-2))))


def test_a_failing_local_step_is_reported_without_its_text(monkeypatch):
    def fail(self, v, D):
        raise ValueError(f"bad point {SECRET}")

    agent = Agent(BOX)
    step = agent.step()
    monkeypatch.setattr("dpcvx.solvers.closed_forms.Box.__call__", fail)
    with pytest.raises(dp.PrivacyError) as caught:
        agent.oracle().release(solution(X, step))
    assert str(SECRET) not in str(caught.value)


@pytest.mark.parametrize("bound", ["oracle", "objective"])
def test_nothing_that_holds_data_prints_or_pickles_them(bound):
    oracle = Agent().oracle()
    thing = oracle if bound == "oracle" else oracle._objective
    for text in (repr(thing), str(thing)):
        assert not any(str(v)[:6] in text for v in DATA)
    for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="never pickled"):
            attempt(thing)


def test_the_account_of_a_release_holds_no_data():
    oracle = Agent().oracle()
    oracle.release(Gradient(X))
    assert not contains(oracle.accounts()[0], DATA)


def replay(*releases, agent=0):
    oracle = ReplayOracle([agent], Agent().facts, releases, [Account("bob", {}, None)])
    oracle.begin(1)
    return oracle


def test_replay_returns_recorded_values_in_order():
    agent = Agent(BOX)
    live = agent.oracle(record=True, source=NOISE)
    values = [live.release(Gradient(X)), live.release(solution(X, agent.step()))]
    live.begin(2)
    values.append(live.release(Gradient(X)))
    added = agent.form.at_zero()
    account = Account("bob", {}, None)
    again = ReplayOracle([0], agent.facts, live.releases, [account], added=added)
    again.begin(1)
    repeated = [again.release(Gradient(X)), again.release(solution(0 * X, agent.step()))]
    again.begin(2)
    repeated.append(again.release(Gradient(X)))
    assert all(np.array_equal(a, b) for a, b in zip(values, repeated, strict=True))
    assert not again.accounts()[0].entries and not again.releases


def test_replay_hands_out_copies():
    release = Release(0, 1, 1, np.ones(3))
    replay(release).release(Gradient(X))[:] = 0
    assert np.array_equal(release.value, np.ones(3))


@pytest.mark.parametrize(
    "release",
    [Release(1, 1, 1, X), Release(0, 2, 1, X), Release(0, 1, 2, X)],
    ids=["agent", "round", "step"],
)
def test_replay_refuses_a_foreign_transcript(release):
    with pytest.raises(dp.PrivacyError, match="round 1, step 1"):
        replay(release).release(Gradient(X))


def test_replay_refuses_a_release_of_another_length():
    with pytest.raises(dp.PrivacyError):
        replay(Release(0, 1, 1, np.ones(5))).release(Gradient(X))


@pytest.mark.parametrize("offset", [1e9, 1e17])
def test_large_public_numbers_do_not_round_what_neighbors_differ_by(offset):
    # In one sum with 1e17, a change by 0.09 becomes one of 16, or none.
    agent = Agent(cost=lambda x, d: cp.sum_squares(x - d - offset) + 2 * offset * cp.sum(x))
    values = []
    for change in (0.0, 0.009):
        oracle = agent.oracle(data=DATA + np.array([change, 0.0, 0.0]), record=True)
        oracle.release(Gradient(X))
        values.append(oracle.releases[-1].value)
    entry = oracle.accounts()[0].entries[-1]
    assert np.abs(values[1] - values[0]).max() == pytest.approx(0.018, rel=1e-3)
    assert np.linalg.norm(values[1] - values[0]) <= entry.sensitivity


# Whole points: the center may be secret, so the point leaves and not the gradient.

CENTER = np.array([0.4, 0.2, -0.7])


def whole(oracle, size=0.25):
    return oracle.release(Step(X, CENTER, size))


@pytest.mark.parametrize(("mechanism", "bound"), [(GAUSS, L2), (LAPLACE, L1_NORM)])
def test_a_whole_point_is_charged_the_step_size_times_the_gradients_sensitivity(mechanism, bound):
    oracle = Agent().oracle(mechanism)
    value = whole(oracle)
    (entry,) = oracle.accounts()[0].entries
    assert unrounded(entry, mechanism) == pytest.approx(0.25 * bound, rel=1e-8)
    assert unrounded(entry, mechanism) >= 0.25 * bound
    assert (entry.round, entry.step, entry.released) == (1, 1, "iterate")
    expected = CENTER - 0.25 * exact(X)
    assert np.abs(value - expected).max() <= (0.5 + 1e-6) * entry.grid
    assert np.array_equal(value, entry.grid * np.rint(value / entry.grid))


@pytest.mark.parametrize(("mechanism", "bound"), [(GAUSS, L2), (LAPLACE, L1_NORM)])
def test_noise_of_a_whole_point_has_scale_multiplier_times_that(mechanism, bound):
    oracle = Agent().oracle(mechanism, source=NOISE)
    expected = CENTER - 0.25 * exact(X)
    sample = noise_of(lambda: whole(oracle) - expected) / (2.0 * 0.25 * bound)
    assert fits(sample, mechanism)
    assert not fits(0.9 * sample, mechanism) and not fits(1.1 * sample, mechanism)


def test_a_step_that_is_not_whole_leaves_its_gradient():
    agent = Agent()
    oracle, other = (agent.oracle(source=NOISE, record=True) for _ in range(2))
    value = oracle.release(GradientStep(X, CENTER, 0.25))
    assert np.array_equal(value, CENTER - 0.25 * other.release(Gradient(X)))
    assert oracle.accounts()[0].entries == other.accounts()[0].entries
    assert oracle.accounts()[0].entries[0].released == "gradient"
    assert np.array_equal(oracle.releases[0].value, other.releases[0].value)


def test_whole_points_are_charged_before_data_and_noise_are_touched(monkeypatch):
    agent, source = Agent(), Words()
    oracle = agent.oracle(source=source, budget=Budget(0.1, 1e-6, Composition()), record=True)
    monkeypatch.setattr(Sensitivity, "slope", lambda *_: pytest.fail("data were read"))
    with pytest.raises(dp.BudgetError):
        whole(oracle)
    assert source.drawn == 0 and not oracle.accounts()[0].entries and not oracle.releases


@pytest.mark.parametrize("mechanism", [GAUSS, None], ids=str)
def test_whole_points_that_left_are_given_out_again_at_no_charge(mechanism, monkeypatch):
    agent = Agent()
    oracle = agent.oracle(mechanism, past=[PAST], record=True)
    with monkeypatch.context() as patch:
        patch.setattr(Sensitivity, "slope", lambda *_: pytest.fail("data were read"))
        value = whole(oracle)
    assert np.array_equal(value, PAST.value)
    assert not oracle.accounts()[0].entries and len(oracle.releases) == 1


def test_a_whole_point_without_private_data_has_no_noise():
    agent = Agent(cost=lambda x, d: cp.sum_squares(A @ x) + 0 * cp.sum(d))
    oracle = agent.oracle(source=NOISE)
    assert np.array_equal(whole(oracle), CENTER - 0.25 * agent.form.at_zero().gradient(X))
    assert not oracle.accounts()[0].entries


def test_overflow_in_a_whole_point_does_not_show():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        value = whole(Agent().oracle(data=np.full(3, 1e308)), 1e10)
    assert np.isfinite(value).all()


def test_replay_returns_whole_points_whatever_the_center():
    live = Agent().oracle(record=True, source=NOISE)
    value = whole(live)
    again = replay(*live.releases)
    assert np.array_equal(again.release(Step(0 * X, 0 * X, 7.0)), value)
    with pytest.raises(dp.PrivacyError, match="round 1, step 2"):
        whole(again)


class Streams(Words):
    """Which streams were asked for."""

    def __init__(self):
        super().__init__()
        self.places = []

    def at(self, round, step):
        self.places.append((round, step))
        return self


def test_secret_weights_have_a_stream_of_their_own_and_leave_no_trace():
    source = Streams()
    oracle = Agent().oracle(source=source, record=True)
    for t in (1, 2):
        oracle.begin(t)
        assert np.array_equal(oracle.uniform(3), np.full(3, 1 - 2.0**-53))
        assert not [e for e in oracle.accounts()[0].entries if e.round == t]
        whole(oracle)
    assert source.places == [(1, 0), (1, 1), (2, 0), (2, 1)]
    assert [(r.round, r.step) for r in oracle.releases] == [(1, 1), (2, 1)]


def test_secret_weights_are_those_of_agent_and_round():
    agent = Agent()
    drawn = {}
    for key in (0, 1):
        for t in (1, 2):
            oracle = agent.oracle(source=Seeded(5, (key,)))
            oracle.begin(t)
            whole(oracle)  # whatever was drawn before
            drawn[key, t] = oracle.uniform(4)
            again = agent.oracle(source=Seeded(5, (key,)))
            again.begin(t)
            assert np.array_equal(again.uniform(4), drawn[key, t])
    assert len(np.unique(list(drawn.values()))) == 16


def test_without_private_answers_weights_are_the_middle():
    agent = Agent()
    public = PublicOracle(agent.facts, agent.form.at_zero(), Account("bob", {}, None), [])
    public.begin(1)
    for oracle in (public, replay()):
        assert np.array_equal(oracle.uniform(2), [0.5, 0.5])
    expected = CENTER - 0.25 * agent.form.at_zero().gradient(X)
    assert np.array_equal(whole(public), expected)


# Parts of a whole point, and minimizers -----------------------------------------------------

SOME = np.array([0, 2])


def part(oracle, only=SOME):
    return oracle.release(Step(X, CENTER, 0.25, only))


@pytest.mark.parametrize("mechanism", [GAUSS, LAPLACE])
def test_a_part_of_a_point_is_charged_for_itself_alone(mechanism):
    oracle = Agent().oracle(mechanism, record=True)
    value = part(oracle)
    (entry,) = oracle.accounts()[0].entries
    # One entry of d moves the gradient by 0.02 times a row of A, of which two columns count.
    bound = 0.25 * 0.02 * np.linalg.norm(A[:, SOME], mechanism.norm, axis=1).max()
    assert unrounded(entry, mechanism, 2) == pytest.approx(bound, rel=1e-8)
    expected = (CENTER - 0.25 * exact(X))[SOME]
    assert np.abs(value[SOME] - expected).max() <= (0.5 + 1e-6) * entry.grid
    assert value[1] == CENTER[1]
    (release,) = oracle.releases
    assert np.array_equal(release.value, value[SOME])


def test_noise_of_a_part_is_drawn_for_that_part():
    oracle = Agent().oracle(GAUSS, source=NOISE)
    bound = 0.25 * 0.02 * np.linalg.norm(A[:, [1]], axis=1).max()
    expected = (CENTER - 0.25 * exact(X))[1]
    sample = noise_of(lambda: part(oracle, np.array([1]))[[1]] - expected) / (2.0 * bound)
    assert fits(sample, GAUSS)
    assert not fits(0.9 * sample, GAUSS) and not fits(1.1 * sample, GAUSS)


SEARCH = Minimization.close(D=2.0, L=2 * np.linalg.norm(A, 2) ** 2, m=0.1)


def minimized(oracle, search=SEARCH):
    return oracle.release(Minimizer(CENTER, search))


def minimum(data=DATA):
    return np.linalg.solve(2 * A.T @ A + 2 * np.eye(3), 2 * A.T @ data + 2 * CENTER)


@pytest.mark.parametrize(("mechanism", "spread"), [(GAUSS, 1.0), (LAPLACE, np.sqrt(3))])
def test_a_minimizer_is_charged_what_the_gradient_can_move_it(mechanism, spread):
    agent = Agent(lambda x: [])
    oracle = agent.oracle(mechanism)
    value = minimized(oracle)
    (entry,) = oracle.accounts()[0].entries
    assert unrounded(entry, mechanism) == pytest.approx(spread * SEARCH.stretch * L2, rel=1e-8)
    assert entry.released == "local minimizer" and entry.certificate == "derived"
    assert np.abs(value - minimum()).max() <= 0.51 * entry.grid + 1e-10
    # Neighbors are closer than that.
    moved = [minimum(DATA + 0.01 * np.eye(3)[j]) - minimum() for j in range(3)]
    assert max(np.linalg.norm(m, mechanism.norm) for m in moved) < spread * SEARCH.stretch * L2


def test_noise_of_a_minimizer_has_scale_multiplier_times_that():
    agent = Agent(lambda x: [])
    oracle = agent.oracle(GAUSS, source=NOISE)
    # Where the search ends does not matter here, so that few steps do.
    search = replace(SEARCH, steps=40)
    end = minimized(agent.oracle(None), search)
    sample = noise_of(lambda: minimized(oracle, search) - end) / (2.0 * search.stretch * L2)
    assert fits(sample, GAUSS)
    assert not fits(0.9 * sample, GAUSS) and not fits(1.1 * sample, GAUSS)


def test_minimizers_are_charged_before_data_and_noise_are_touched(monkeypatch):
    agent, source = Agent(lambda x: []), Words()
    oracle = agent.oracle(source=source, budget=Budget(0.1, 1e-6, Composition()), record=True)
    monkeypatch.setattr(Sensitivity, "slope", lambda *_: pytest.fail("data were read"))
    with pytest.raises(dp.BudgetError):
        minimized(oracle)
    assert source.drawn == 0 and not oracle.accounts()[0].entries and not oracle.releases


def test_replay_and_public_objectives_give_minimizers_as_well():
    agent = Agent(lambda x: [])
    live = agent.oracle(record=True, source=NOISE)
    value = minimized(live)
    again = replay(*live.releases)
    assert np.array_equal(again.release(Minimizer(0 * X, SEARCH)), value)
    public = PublicOracle(agent.facts, agent.form.at_zero(), Account("bob", {}, AMPLE), [])
    assert minimized(public) == pytest.approx(minimum(np.zeros(3)), abs=1e-10)
    moved = part(public)
    expected = CENTER - 0.25 * exact(X, np.zeros(3))
    assert moved == pytest.approx(np.where(np.arange(3) == 1, CENTER, expected))


# Points at which the gradient does not depend on the data


def weighted(perturb, constraints=lambda x: [cp.abs(x) <= 1], start=0.0, radius=0.1):
    x = cp.Variable(2, name="x")
    w = dp.Private(np.array([1.0, 2.0]), name="w", adjacency=dp.Within(radius), nonneg=True)
    agent = dp.Agent(cp.Minimize(w @ cp.square(x) + cp.sum(x)), constraints(x), name="a")
    other = dp.Agent(cp.Minimize(cp.sum_squares(x)), name="b")
    problem = dp.Problem([agent, other], start={x: np.full(2, start)})
    method = dp.LinearizedADMM(penalty=1.0, step=0.1, perturb=perturb)
    return problem.plan(method, rounds=4, epsilon=1.0, delta=1e-6)


@pytest.mark.parametrize("perturb", ["objective", "output", "projected_output"])
@pytest.mark.parametrize(
    "constraints",
    [lambda x: [cp.abs(x) <= 1], lambda x: [cp.sum(x) <= 1, x[0] - x[1] <= 1, x >= -1]],
    ids=["box", "polyhedron"],
)
def test_where_the_gradient_is_public_nothing_is_charged(perturb, constraints, tmp_path):
    """Weights of squares do not matter at 0, where such runs begin."""
    plan = weighted(perturb, constraints=constraints)
    result = plan.run(seed=1, ledger=tmp_path / "ledger")
    assert result.status.solved
    charged = [entry.round for entry in result.ledger.accounts[0].entries]
    assert charged == [2, 3, 4]
    again = plan.replay(tmp_path / "ledger")
    for one, other in zip(result.last.vectors, again.last.vectors, strict=True):
        assert np.array_equal(one, other)


@pytest.mark.parametrize("perturb", ["output", "projected_output"])
def test_the_answer_where_the_gradient_is_public_does_not_depend_on_the_data(perturb):
    one, other = (
        weighted(perturb).run(seed=1, data={"w": np.array(w)}, record=True).transcript.releases
        for w in ([1.0, 2.0], [0.3, 7.0])
    )
    assert one[0].round == other[0].round == 1
    assert np.array_equal(one[0].value, other[0].value)
    assert not np.array_equal(one[-1].value, other[-1].value)


@pytest.mark.parametrize("perturb", ["output", "projected_output"])
def test_an_effect_that_underflows_is_not_taken_for_none(perturb):
    """At 1e-150 a change of the weights by 1e-200 moves the gradient by 2e-350."""
    plan = weighted(perturb, start=1e-150, radius=1e-200)
    with pytest.raises(dp.PrivacyError, match="too small for a floating-point number"):
        plan.run(seed=1)


# Questions that the plan did not check


def test_a_question_that_the_plan_did_not_check_is_refused_before_data_are_touched(monkeypatch):
    agent = Agent()
    agent.facts = answering(agent.facts, Gradient)
    for mechanism in (GAUSS, None):
        oracle = agent.oracle(mechanism)
        monkeypatch.setattr(Sensitivity, "slope", lambda *_: pytest.fail("data were read"))
        with pytest.raises(
            dp.PrivacyError, match=r"received a Step, a query .* Requirements\(queries"
        ):
            oracle.release(Step(X, CENTER, 0.25))
        assert not oracle.accounts()[0].entries


def test_vectors_are_not_stored_where_nothing_says_how_far_they_move():
    agent = Agent()
    agent.facts = replace(answering(agent.facts, Stored), smoothness=None)
    with pytest.raises(dp.PrivacyError, match="received a request to store a vector"):
        agent.oracle().store("x", LinearCombination(X))


@dataclass(frozen=True, eq=False)
class TooLong(Gradient):
    """Computes more numbers than its size, which noise is scaled to."""

    def evaluate(self, objective):
        g = super().evaluate(objective)
        return np.concatenate([g, g])


@pytest.mark.parametrize("mechanism", [GAUSS, None], ids=str)
def test_an_answer_of_another_size_does_not_leave(mechanism):
    agent = Agent()
    agent.facts = answering(agent.facts, TooLong)
    oracle = agent.oracle(mechanism, record=True)
    with pytest.raises(
        dp.PrivacyError, match=r"TooLong.evaluate returned no array, or an array of another shape"
    ):
        oracle.release(TooLong(X))
    assert not oracle.releases


def test_questions_print_what_they_ask():
    for query in (Gradient(X), Step(X, CENTER, 0.25), Minimizer(CENTER, SEARCH), Stored("x")):
        assert repr(query).startswith(f"{type(query).__name__}(")
        with pytest.raises(AttributeError):
            query.released = "nothing"
