"""Release once: the statistic, its sensitivity, surrogate data, and runs that go on from them."""

import itertools
import re
import warnings
from dataclasses import replace
from fractions import Fraction
from functools import cache

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

import dpcvx as dp
from dpcvx._words import at_least
from dpcvx.privacy.accounting import Composition
from dpcvx.privacy.accounts import Account, Budget
from dpcvx.privacy.mechanism import Calibrated
from dpcvx.privacy.noise import on_grid
from dpcvx.privacy.randomness import Seeded
from dpcvx.run.gate import Release
from dpcvx.run.public_oracle import publish
from dpcvx.sensitivity.estimates import EntrywiseMean
from dpcvx.sensitivity.queries.gradients import Gradient
from dpcvx.sensitivity.release_once import Once, Publication, restated
from tests.helpers import Words
from tests.instances import INSTANCES, power_line
from tests.spies import gate_of_one

GAUSS, LAPLACE = dp.Gaussian(noise_multiplier=2.0), dp.Laplace(noise_multiplier=2.0)
SLOPE_NOISE = r"scale ([\d.e+-]+) to ([\d.e+-]+) per component of the linear coefficient J d"
both = pytest.mark.parametrize("mechanism", [GAUSS, LAPLACE], ids=str)


def private(name, shape, radius, norm="entry", **sign):
    return dp.Private(shape=shape, name=name, adjacency=dp.Within(radius, norm), **sign)


def squares(M, *data):
    """``||x - M d||^2`` for all data in one vector, and J = -2 M."""
    x = cp.Variable(M.shape[0], name="x")
    cost = cp.sum_squares(x - M @ cp.hstack([cp.vec(d, order="F") for d in data]))
    return dp.Problem([dp.Agent(cp.Minimize(cost), [cp.abs(x) <= 5], name="solo")])


def diagonal(norm):
    return lambda: squares(np.diag([1.0, -2.0, 0.5, 3.0]), private("d", 4, 0.1, norm))


def squares_of(n, size, norm="entry"):
    M = 1.0 + np.random.default_rng(n).uniform(size=(n, size))
    return lambda: squares(M, private("d", size, 0.1, norm))


def unequal(ratio):
    """The energy is 2 + ratio^2 for the data; for the slope it grows faster."""
    M = np.array([[1.0, 0.0, ratio], [0.0, 1.0, 0.0]])
    return lambda: squares(M, private("d", 3, 0.1))


def with_idle_components():
    x, d = cp.Variable(5, name="x"), private("d", 4, 0.1)
    cost = cp.sum_squares(x) + np.array([1.0, 2.0, -1.0, 0.5]) @ d * x[3]
    return dp.Problem([dp.Agent(cp.Minimize(cost), name="solo")])


def matrix():
    X, D = cp.Variable((2, 3), name="X"), private("D", (2, 3), 0.2, 2)
    weights = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    return dp.Problem(
        [dp.Agent(cp.Minimize(cp.sum_squares(X - cp.multiply(weights, D))), name="solo")]
    )


def several(*shape):
    return lambda: squares(
        3 * np.random.default_rng(6).normal(size=shape),
        private("up", 2, 0.3, nonneg=True),
        private("down", 2, 0.5, 2, nonpos=True),
        private("free", shape[1] - 4, 0.1, np.inf),
    )


# Of each, what is released with either kind of noise.
CASES = {
    "entries": (diagonal("entry"), "data"),
    "l1": (diagonal(1), "data"),
    "l2": (diagonal(2), None),
    "linf": (lambda: squares(np.diag([1.0, -1.0, 1.0]), private("d", 3, 0.1, np.inf)), "data"),
    "more data than components": (squares_of(2, 8), "slope"),
    "more data, l1": (squares_of(2, 8, 1), "slope"),
    "more data, l2": (squares_of(2, 6, 2), None),
    "more data, linf": (squares_of(2, 6, np.inf), None),
    "fewer data than components": (squares_of(6, 2), "data"),
    "slope is just better": (unequal(2.10), "slope"),
    "data are just better": (unequal(2.30), "data"),
    "idle components": (with_idle_components, "slope"),
    "matrix": (matrix, None),
    "several, more components": (several(6, 6), None),
    "several, more data": (several(2, 8), None),
    "several, one component": (several(1, 7), "slope"),
}  # fmt: skip
cases = pytest.mark.parametrize("name", CASES)


@cache
def plan_for(name, mechanism):
    return CASES[name][0]().plan(
        dp.LinearizedADMM(), mechanism=mechanism, rounds=1, delta=1e-6, release="once"
    )


def planned(name, mechanism):
    """Publication, specification of the data, the Jacobian as a dense matrix, the sensitivity."""
    plan = plan_for(name, mechanism)
    publication, sensitivity = plan.agents[0].publication, plan.agents[0].sensitivity
    J = np.hstack([part.toarray() for part in sensitivity.jacobians])
    return publication, plan.program.agents[0].form.private, J, sensitivity


def of_sign(values, spec):
    return values if spec.sign is None else np.abs(values) * (1 if spec.sign == "nonneg" else -1)


def data_for(specs, seed):
    r = np.random.default_rng(seed)
    return [of_sign(r.normal(size=spec.size), spec) for spec in specs]


def extreme_changes(spec, columns):
    """Changes of norm at most the radius, the worst for these columns of a matrix among them."""
    radius, norm = spec.adjacency.radius, spec.adjacency.norm
    if norm in ("entry", 1):
        yield from radius * np.vstack([np.eye(spec.size), -np.eye(spec.size)])
    elif norm == 2:
        yield radius * np.linalg.svd(columns)[2][0]  # worst in l2
        for signs in itertools.product((1.0, -1.0), repeat=columns.shape[0]):  # worst in l1
            pull = np.array(signs) @ columns
            yield radius * pull / np.linalg.norm(pull)
    else:
        for signs in itertools.product((1.0, -1.0), repeat=spec.size):
            yield radius * np.array(signs)


def random_change(spec, r):
    change = r.normal(size=spec.size) * (r.uniform(size=spec.size) < 0.6)
    if spec.adjacency.norm == "entry":
        change *= np.arange(spec.size) == r.integers(spec.size)
        size = np.abs(change).max()
    else:
        size = np.linalg.norm(change, spec.adjacency.norm)
    return change * spec.adjacency.radius / (size or 1.0)


def moved(publication, data, k, change):
    other = [d + change if j == k else d for j, d in enumerate(data)]
    return publication.statistic(other) - publication.statistic(data)


@cases
@both
def test_neighbors_statistics_differ_by_at_most_the_sensitivity_and_some_by_all_of_it(
    name, mechanism
):
    publication, specs, _, sensitivity = planned(name, mechanism)
    total = sum(spec.size for spec in specs)
    zero = np.split(np.zeros(total), np.cumsum([s.size for s in specs])[:-1])
    largest = 0.0
    r = np.random.default_rng(1)
    for k, spec in enumerate(specs):
        units = [np.eye(spec.size)[i] for i in range(spec.size)]
        columns = np.stack([moved(publication, zero, k, unit) for unit in units], axis=1)
        assert columns.shape == (publication.size, spec.size)
        changes = [*extreme_changes(spec, columns), *(random_change(spec, r) for _ in range(50))]
        for seed, change in enumerate(changes):
            found = moved(publication, data_for(specs, seed), k, change)
            size = np.linalg.norm(found, mechanism.norm)
            assert size <= publication.sensitivity
            largest = max(largest, size)
    assert publication.kind == "data" or sensitivity.bound(mechanism.norm).tight
    assert largest >= 0.99 * publication.sensitivity


@cases
@both
@pytest.mark.parametrize("seed", range(5))
def test_what_is_restored_has_the_same_gradient(name, mechanism, seed):
    publication, specs, J, _ = planned(name, mechanism)
    data = data_for(specs, seed)
    restored = publication.restore(publication.statistic(data))
    assert [d.shape for d in restored] == [(spec.size,) for spec in specs]
    exact = J @ np.concatenate(data)
    assert J @ np.concatenate(restored) == pytest.approx(
        exact, abs=1e-9 * np.linalg.norm(exact), rel=0
    )
    if publication.kind == "data":
        assert np.concatenate(restored) == pytest.approx(np.concatenate(data), rel=1e-14, abs=0)


@pytest.mark.parametrize(("n", "size", "smallest"), [(5, 40, 1e-2), (5, 40, 1e-6), (60, 600, 1e-5)])
def test_slopes_of_very_different_sizes_are_restored(n, size, smallest):
    r = np.random.default_rng(8)
    U, _ = np.linalg.qr(r.normal(size=(n, n)))
    V, _ = np.linalg.qr(r.normal(size=(size, n)))
    M = U @ np.diag(np.geomspace(1.0, smallest, n)) @ V.T
    problem = squares(M, private("d", size, 0.1))
    plan = problem.plan(dp.LinearizedADMM(), mechanism=GAUSS, rounds=1, delta=1e-6, release="once")
    publication = plan.agents[0].publication
    assert publication.kind in ("slope", "shaped slope")
    exact = publication.statistic([r.normal(size=size)])
    for released in (exact, exact + r.normal(size=n)):
        (restored,) = publication.restore(released)
        error = np.linalg.norm(publication.statistic([restored]) - released)
        assert error <= 1e-9 * np.linalg.norm(released)


def unit(spec, p):
    """The largest lp norm of a change."""
    r, n, norm = spec.adjacency.radius, spec.size, spec.adjacency.norm
    if norm in ("entry", 1):
        return r
    if norm == 2:
        return r if p == 2 else r * np.sqrt(n)
    return r * np.sqrt(n) if p == 2 else r * n


@cases
@both
def test_what_is_released_is_the_one_with_less_noise_in_the_gradient(name, mechanism):
    # All components have the same curvature, and sets are wide.
    publication, specs, J, sensitivity = planned(name, mechanism)
    units = np.concatenate([np.full(s.size, unit(s, mechanism.norm)) for s in specs])
    rows = np.linalg.norm(J * units, axis=1)
    used = np.count_nonzero(rows)
    weights = np.where(rows > 0, np.sqrt(rows[rows > 0].min() / np.where(rows > 0, rows, 1.0)), 0.0)
    weighted = weights[:, None] * J
    left = np.linalg.pinv(np.diag(weights)) @ weighted @ np.linalg.pinv(weighted)
    energy = {
        "data": np.sum((J * units) ** 2),
        "slope": (sensitivity.bound(mechanism.norm, weights).value * np.linalg.norm(left)) ** 2,
    }
    if publication.kind == "shaped slope":
        back = J @ np.linalg.pinv(publication.encode.toarray())
        found = (publication.sensitivity * np.linalg.norm(back)) ** 2
        assert found < 0.95 * min(energy.values())
        assert publication.size == np.linalg.matrix_rank(J)
    else:
        assert publication.kind == min(energy, key=energy.get)
        assert publication.size == (units.size if publication.kind == "data" else used)
    expected = CASES[name][1]
    assert expected is None or publication.kind in (expected, "shaped slope")


@pytest.mark.parametrize("name", [name for name in CASES if name.endswith("l2")])
def test_no_shape_is_better_than_the_data_where_all_of_them_change_within_a_ball(name):
    assert planned(name, GAUSS)[0].kind == "data"


def test_either_can_be_the_better_one_for_the_same_model():
    kinds = {planned(n, m)[0].kind for n in CASES if CASES[n][1] is None for m in (GAUSS, LAPLACE)}
    assert kinds >= {"data", "slope"}


def test_only_components_that_the_data_move_are_released():
    publication, _, J, _ = planned("idle components", GAUSS)
    assert J.shape[0] == 5
    assert publication.size == 1


@both
def test_surrogates_of_data_have_the_declared_sign_and_no_other_change(mechanism):
    publication, specs, _, _ = planned("several, more components", mechanism)
    assert publication.kind == "data"
    noise = 50 * np.random.default_rng(0).normal(size=(200, publication.size))
    up, down, free = zip(*map(publication.restore, noise), strict=True)
    assert np.min(up) == 0 < np.max(up)
    assert np.min(down) < 0 == np.max(down)
    assert np.min(free) < 0 < np.max(free)
    # What has the right sign already is left alone.
    data = data_for(specs, 1)
    again = publication.restore(publication.statistic(data))
    assert np.concatenate(again) == pytest.approx(np.concatenate(data), rel=1e-14, abs=0)


@both
@pytest.mark.parametrize("name", ["entries", "l1", "linf", "several, more components"])
def test_the_stated_noise_of_data_is_that_of_their_surrogates(name, mechanism):
    plan = plan_for(name, mechanism)
    publication, (agent,) = plan.agents[0].publication, plan.guarantee.agents
    assert publication.kind == "data"
    stated = re.findall(r"scale ([\d.e+-]+) per entry of '(\w+)'", agent.noise)
    specs = plan.program.agents[0].form.private
    assert [found for _, found in stated] == [spec.name for spec in specs]
    # Far from 0, so that no sign is in the way.
    data = [of_sign(np.full(spec.size, 1e4), spec) for spec in specs]
    grid = plan.agents[0].noise.grid(publication.sensitivity, publication.size)
    source = Seeded(2, (0,))
    drawn = [
        publication.restore(
            plan.agents[0].noise.release(publication.statistic(data), grid, source.at(t, 1))
        )
        for t in range(-(-4000 // min(spec.size for spec in specs)))
    ]
    for k, (scale, _) in enumerate(stated):
        noise = np.array([surrogate[k] - data[k] for surrogate in drawn]) / float(scale)
        size = np.abs(noise).mean() if mechanism.norm == 1 else np.sqrt((noise**2).mean())
        # At least 4000 numbers: standard error at most 1.6 %; 5 of them, level 6e-7, and a scale
        # that is off by a tenth is rejected with probability above 0.89.
        error = 5 / np.sqrt(mechanism.norm * noise.size)
        assert abs(size - 1) < error < 0.08


def rounded(values):
    """With the digits that texts have."""
    return [float(at_least(value)) for value in values]


@both
def test_the_stated_noise_of_a_slope_is_per_component(mechanism):
    name = "several, more data"
    plan = plan_for(name, mechanism)
    publication, (agent,) = plan.agents[0].publication, plan.guarantee.agents
    assert publication.kind == "slope"
    stated = re.findall(SLOPE_NOISE, agent.noise)
    found = 2.0 * publication.sensitivity / publication.weights
    assert [float(s) for s in stated[0]] == rounded([found.min(), found.max()])
    noise = plan.agents[0].noise.variance(publication.sensitivity)
    spread = np.sqrt(publication.slope_covariance(noise).diagonal())
    assert spread == pytest.approx(found * (1 if mechanism.norm == 2 else np.sqrt(2)), rel=1e-9)
    assert agent.noise in " ".join(str(plan).split())


@both
def test_the_stated_noise_of_a_shaped_slope_is_per_component(mechanism):
    plan = plan_for("more data than components", mechanism)
    publication, (agent,) = plan.agents[0].publication, plan.guarantee.agents
    assert publication.kind == "shaped slope"
    stated = re.findall(SLOPE_NOISE, agent.noise)
    scale = 2.0 * publication.sensitivity
    spread = np.sqrt(publication.slope_covariance(scale**2).diagonal())
    assert [float(s) for s in stated[0]] == rounded([spread.min(), spread.max()])
    assert agent.noise in " ".join(str(plan).split())


def test_a_gradient_that_is_public_needs_no_release():
    x = cp.Variable(2, name="x")
    d = dp.Private(lambda: pytest.fail("read"), shape=2, name="d", adjacency=dp.Within(0.1))
    problem = dp.Problem([dp.Agent(cp.Minimize(cp.sum_squares(x - 1) + cp.sum(d)), name="a")])
    plan = problem.plan(dp.LinearizedADMM(), rounds=200, epsilon=1.0, delta=1e-6, release="once")
    assert [agent.publication for agent in plan.agents] == [None]
    result = plan.run(seed=1, record=True)
    assert not result.ledger["a"].entries and not result.transcript.releases
    assert result.last[x] == pytest.approx(np.ones(2), abs=1e-3)
    assert np.array_equal(plan.replay(result.transcript).last[x], result.last[x])


# The door: what `publish` does with data, noise and account.

DATA = np.array([0.731234567, -0.298765432, 1.412345678, 0.5])
PLANNED = Composition().with_gaussian(2.0, 10**6).with_laplace(2.0, 10**6)


class Door:
    """`publish` for one agent with the data above; its noise is 0 unless a source is given."""

    def __init__(self, mechanism=GAUSS, name="entries", **arguments):
        plan = plan_for(name, mechanism)
        self.facts, self.publication = plan.agents[0], plan.agents[0].publication
        self.form = self.facts.form
        settings = {"record": True, "budget": Budget(1e9, 1e-6, PLANNED)} | arguments
        self.source = settings.pop("source", Words())
        self.account = settings.pop("account", None) or Account("solo", {}, settings["budget"])
        del settings["budget"]
        noise = plan.agents[0].noise
        self.gate = gate_of_one(noise, self.account, self.source, **settings)

    def open(self, *data):
        sources = [lambda d=d: d for d in data or (DATA,)]
        return publish(self.facts, sources, self.publication, self.gate)


@both
def test_one_entry_is_charged_and_the_release_is_on_its_grid(mechanism):
    door = Door(mechanism, source=Seeded(4, (0,)))
    oracle = door.open()
    (entry,), (release,) = door.account.entries, oracle.releases
    assert (entry.round, entry.step, release.round, release.step) == (0, 1, 0, 1)
    assert (entry.mechanism, entry.multiplier) == (str(mechanism), 2.0)
    assert "data" in entry.released
    spread = 4 if mechanism.norm == 1 else 2
    assert entry.sensitivity == pytest.approx(
        door.publication.sensitivity + spread * entry.grid, rel=1e-15
    )
    units = release.value / entry.grid
    assert np.array_equal(units, np.rint(units))
    assert not np.array_equal(release.value, door.publication.statistic([DATA]))


def test_without_noise_drawn_the_surrogate_is_the_data_but_for_rounding():
    door = Door()
    oracle = door.open()
    (entry,) = door.account.entries
    x = np.array([0.1, -0.2, 0.3, 0.4])
    wanted = door.form.bind([DATA]).gradient(x)
    # Rounded by half a width, in units of the radius 0.1, times entries of J of at most 6.
    assert np.abs(oracle.release(Gradient(x)) - wanted).max() <= 0.5 * 0.1 * 6 * entry.grid
    for t in range(1, 20):
        oracle.begin(t)
        assert np.array_equal(oracle.release(Gradient(x)), oracle.release(Gradient(x)))
    assert len(door.account.entries) == len(oracle.releases) == 1


def test_the_charge_comes_before_the_statistic_and_the_noise(monkeypatch):
    events = []
    inside = Publication.exact

    class Log(Account):
        def charge(self, entry, calibrated):
            super().charge(entry, calibrated)
            events.append("charge")

    class Noise(Words):
        def at(self, round, step):
            events.append("noise")
            return super().at(round, step)

    def exact(self, data):
        events.append("data")
        return inside(self, data)

    monkeypatch.setattr(Publication, "exact", exact)
    Door(source=Noise(), account=Log("solo", {}, Budget(1e9, 1e-6, PLANNED))).open()
    assert events == ["charge", "data", "noise"]


def test_a_refused_release_touches_neither_statistic_nor_noise(monkeypatch):
    monkeypatch.setattr(Publication, "exact", lambda *_: pytest.fail("computed"))
    door = Door(budget=Budget(0.1, 1e-6, Composition()))
    with pytest.raises(dp.BudgetError):
        door.open()
    assert door.source.drawn == 0
    assert not door.account.entries and not door.gate.releases


def test_what_has_left_is_given_out_again_at_no_charge(monkeypatch):
    monkeypatch.setattr(Publication, "exact", lambda *_: pytest.fail("computed"))
    past = Release(0, 0, 1, np.array([0.1, 1 / 3, -2e-300, 7.0]))
    door = Door(past=[past], budget=Budget(1e-9, 1e-6, Composition()))
    oracle = door.open()
    x = np.zeros(4)
    expected = door.form.bind(door.publication.restore(past.value)).gradient(x)
    assert np.array_equal(oracle.release(Gradient(x)), expected)
    assert not door.account.entries and door.source.drawn == 0
    (release,) = oracle.releases
    assert release.value.tobytes() == past.value.tobytes()


def test_a_failing_statistic_is_reported_without_its_text(monkeypatch):
    def fail(self, data):
        raise ValueError(f"bad entry {data[0][0]}")

    monkeypatch.setattr(Publication, "exact", fail)
    with pytest.raises(dp.PrivacyError, match="ValueError") as caught:
        Door().open()
    assert "0.7312" not in str(caught.value)
    assert caught.value.__cause__ is None and caught.value.__context__ is None


@pytest.mark.parametrize("name", ["l2", "more data than components", "several, one component"])
@pytest.mark.parametrize("size", [1e290, 1e300, 1e304, 1e306, 1.7e308])
def test_overflow_in_private_data_does_not_show(name, size):
    door = Door(name=name)
    # Of either sign, so that sums of infinities are not numbers.
    alternating = [size * (-1.0) ** np.arange(spec.size) for spec in door.form.private]
    data = [of_sign(d, spec) for d, spec in zip(alternating, door.form.private, strict=True)]
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        oracle = door.open(*data)
    assert not shown
    assert len(door.account.entries) == 1
    (release,) = oracle.releases
    assert np.isfinite(release.value).all()


# Runs.


def plan_of(given, algorithm=None, **arguments):
    settings = {
        "rounds": 10,
        "epsilon": 1.0,
        "delta": 1e-6,
        "release": "once",
        "mechanism": "gaussian",
    } | arguments
    return given.problem.plan(dp.ADMM(penalty=2.0) if algorithm is None else algorithm, **settings)


def surrogates(plan, transcript):
    """The data that a published run went on with, in the shape of the private objects."""
    found = {}
    for k, agent in enumerate(plan.problem.agents):
        if plan.agents[k].publication is not None:
            (value,) = [r.value for r in transcript.releases if r.agent == k]
            parts = plan.agents[k].publication.restore(value)
            for d, part in zip(agent.private, parts, strict=True):
                found[d] = part.reshape(d.shape, order="F")
    return found


@pytest.mark.parametrize("name", INSTANCES)
@pytest.mark.parametrize(("mechanism", "delta"), [("gaussian", 1e-6), ("laplace", 0)])
@pytest.mark.parametrize("algorithm", [dp.ADMM(), dp.LinearizedADMM(local_updates=3)], ids=str)
def test_one_release_per_private_agent_spends_the_budget_whatever_the_rounds(
    name, mechanism, delta, algorithm
):
    multipliers = set()
    for rounds in (1, 7):
        plan = plan_of(
            INSTANCES[name](), algorithm, mechanism=mechanism, rounds=rounds, delta=delta
        )
        result = plan.run(seed=1, record=True)
        assert result.rounds == rounds
        for k, local in enumerate(plan.program.agents):
            places = [(e.round, e.step) for e in result.ledger[local.name].entries]
            assert places == ([(0, 1)] if local.form.private else [])
            assert sum(r.agent == k for r in result.transcript.releases) == len(places)
        assert [a.releases for a in plan.guarantee.agents] == [1] * len(plan.guarantee.agents)
        assert 1.0 - 1e-5 <= plan.guarantee.epsilon <= 1.0
        assert result.ledger.spent() == pytest.approx(plan.guarantee.epsilon, rel=1e-9)
        multipliers.add(plan.agents[0].noise.multiplier)
    assert len(multipliers) == 1


def test_a_plan_says_that_the_data_leave_once():
    text = " ".join(str(plan_of(power_line(), rounds=500)).split())
    assert "1 release per agent, before round 1" in text
    assert "per entry of 'load0'" in text


CONVERGING = {
    "exact": (dp.ADMM(penalty=2.0), 300),
    "linearized": (dp.LinearizedADMM(penalty=1.0, step=dp.steps.Constant(0.05)), 3000),
}


def central_optimum(problem, data=None):
    central = dp.not_private.joint_problem(problem, data=data)
    value = central.solve(cp.CLARABEL, tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)
    return value, {v: v.value for v in problem.variables()}


def distance(one, two):
    return max(np.abs(one[v] - two[v]).max() for v in two)


@pytest.mark.parametrize("name", INSTANCES)
@pytest.mark.parametrize("method", CONVERGING)
def test_runs_converge_to_the_optimum_of_the_surrogate_data(name, method):
    given = INSTANCES[name]()
    algorithm, rounds = CONVERGING[method]
    plan = plan_of(given, algorithm, rounds=rounds, epsilon=0.3)
    result = plan.run(seed=1, tolerance=1e-7, record=True)
    data = surrogates(plan, result.transcript)
    optimum, best = central_optimum(given.problem, data)
    assert result.reported == "last"
    assert result.consensus_residual < 1e-5
    value = dp.not_private.objective(given.problem, result.solution, data=data)
    assert value == pytest.approx(optimum, rel=1e-5)
    assert distance(result.solution, best) < 1e-4
    # The data are far enough from their surrogates to tell the two optima apart.
    assert distance(central_optimum(given.problem)[1], best) > 1e-2


def vectors(result):
    return [*result.last.vectors, *result.average.vectors]


def equal(one, two):
    return all(np.array_equal(a, b) for a, b in zip(vectors(one), vectors(two), strict=True))


def test_the_release_alone_reproduces_the_run():
    plan = plan_of(power_line())
    result = plan.run(seed=3, record=True)
    assert equal(plan.replay(result.transcript), result)
    changed = tuple(replace(r, value=r.value + 1.0) for r in result.transcript.releases)
    assert not equal(plan.replay(replace(result.transcript, releases=changed)), result)
    with pytest.raises(dp.PrivacyError, match="no release"):
        plan.replay(replace(result.transcript, releases=changed[:1]))


def test_a_transcript_belongs_to_its_kind_of_release():
    given = power_line()
    once, each = plan_of(given), plan_of(given, release="each_step")
    with pytest.raises(dp.PrivacyError, match="another plan"):
        each.replay(once.run(seed=3, record=True).transcript)


@pytest.mark.filterwarnings("ignore::dpcvx.RepeatWarning")
def test_a_seed_repeats_a_run_and_without_one_the_noise_is_fresh():
    plan = plan_of(power_line())
    assert equal(plan.run(seed=5), plan.run(seed=5))
    assert not equal(plan.run(seed=5), plan.run(seed=6))
    assert not equal(plan.run(), plan_of(power_line()).run())


def test_agents_with_one_seed_do_not_share_their_noise():
    x = cp.Variable(3, name="x")
    agents = [
        dp.Agent(cp.Minimize(cp.sum_squares(x - private(f"d{k}", 3, 0.1))), name=f"a{k}")
        for k in range(2)
    ]
    plan = dp.Problem(agents).plan(
        dp.LinearizedADMM(), rounds=1, epsilon=1.0, delta=1e-6, release="once"
    )
    result = plan.run(data={"d0": np.zeros(3), "d1": np.zeros(3)}, seed=1, record=True)
    one, two = (r.value for r in result.transcript.releases)
    assert not np.isin(one, two).any()


def test_an_earlier_release_counts_against_the_budget():
    given = power_line()
    plan = plan_of(given)
    first = plan.run(seed=1, record=True)
    with pytest.raises(dp.BudgetError):
        plan.run(seed=1, ledger=first.ledger)
    wider = given.problem.plan(
        dp.ADMM(), mechanism=dp.Gaussian(noise_multiplier=plan.agents[0].noise.multiplier),
        rounds=50, delta=1e-6, release="once",
    )  # fmt: skip
    with pytest.raises(dp.BudgetError):
        wider.run(ledger=first.ledger)


def with_budget(plan, epsilon):
    """Of every agent, more than the plan needs."""
    return replace(plan, agents=tuple(replace(a, budget=epsilon) for a in plan.agents))


def test_a_second_release_draws_other_noise_and_both_are_counted():
    plan = plan_of(power_line(), rounds=50)
    # One release of this plan fits into its budget; leave room for more.
    ample = with_budget(plan, 11.0)
    first = ample.run(seed=1, record=True)
    second = ample.run(seed=1, ledger=first.ledger, record=True)
    assert second.rounds == 50
    assert [len(account.entries) for account in first.ledger.accounts] == [1, 1]
    assert [len(account.entries) for account in second.ledger.accounts] == [2, 2]
    spent = Composition().with_gaussian(plan.agents[0].noise.multiplier, 2).price(1e-6).epsilon
    assert second.ledger.spent() == pytest.approx(spent)
    pairs = zip(first.transcript.releases, second.transcript.releases, strict=True)
    assert not any(np.isin(a.value, b.value).any() for a, b in pairs)


def test_a_ledger_of_releases_in_each_step_leaves_room_for_one_or_none():
    given = power_line()
    steps = given.problem.plan(
        dp.ADMM(), mechanism=dp.Gaussian(noise_multiplier=20.0), rounds=10, delta=1e-6
    ).run(seed=1)
    spent = steps.ledger.spent()
    enough = plan_of(given, epsilon=2.0, rounds=50)
    room = with_budget(enough, 2.0 + spent)
    result = room.run(seed=1, ledger=steps.ledger)
    assert result.rounds == 50
    assert [len(account.entries) for account in result.ledger.accounts] == [11, 11]
    assert 2.0 < result.ledger.spent() < 2.0 + spent
    with pytest.raises(dp.BudgetError):
        enough.run(seed=1, ledger=steps.ledger)


def test_rounds_without_noise_stop_by_tolerance_and_spend_no_less():
    plan = plan_of(power_line(), rounds=300)
    result = plan.run(seed=1, tolerance=1e-6)
    assert result.rounds < 300
    assert [len(account.entries) for account in result.ledger.accounts] == [1, 1]


def test_without_a_mechanism_nothing_is_published():
    given = power_line()
    plan = given.problem.plan(dp.ADMM(), mechanism=None, rounds=5, release="once")
    same = given.problem.plan(dp.ADMM(), mechanism=None, rounds=5)
    assert plan.guarantee.kind == "none"
    assert equal(plan.run(), same.run())


@pytest.mark.parametrize("perturb", ["output", "projected_output"])
def test_there_is_no_output_to_perturb(perturb):
    with pytest.raises(dp.ModelError, match="no output to perturb.*perturb="):
        plan_of(power_line(), dp.LinearizedADMM(perturb=perturb))


@pytest.mark.parametrize("release", ["twice", "Once", "", 1, True])
def test_an_unknown_kind_of_release_is_refused(release):
    with pytest.raises(dp.ModelError, match="release=.*must be.*'each_step'.*'once'"):
        plan_of(power_line(), release=release)


@pytest.mark.parametrize(
    "cost",
    [
        lambda x, d: cp.sum(cp.logistic(x - d)),
        lambda x, d: cp.norm1(x - d),
    ],
    ids=["logistic", "norm1"],
)
@pytest.mark.parametrize("method", CONVERGING)
def test_a_gradient_that_is_not_affine_in_the_data_is_refused(cost, method):
    x, d = cp.Variable(2, name="x"), private("d", 2, 0.1, nonneg=True)
    problem = dp.Problem([dp.Agent(cp.Minimize(cost(x, d)), [cp.abs(x) <= 1], name="solo")])
    with pytest.raises(dp.PrivacyError, match="gradient"):
        problem.plan(CONVERGING[method][0], epsilon=1.0, delta=1e-6, release="once")


def test_the_exact_method_takes_a_model_that_is_flat_where_no_data_enter():
    r = np.random.default_rng(2)
    A, b = r.normal(size=(3, 6)), r.normal(size=3)
    x = cp.Variable(6, name="x")
    d = dp.Private(b, name="d", adjacency=dp.Within(0.01))
    problem = dp.Problem([dp.Agent(cp.Minimize(cp.sum_squares(A @ x - d)), name="solo")])
    budget = {"epsilon": 5.0, "delta": 1e-6, "rounds": 5}
    with pytest.raises(dp.ModelError, match="no minimizer for some values of the noise"):
        problem.plan(dp.ADMM(), **budget)
    plan = problem.plan(dp.ADMM(), **budget, release="once")
    result = plan.run(seed=1, record=True)
    (surrogate,) = surrogates(plan, result.transcript).values()
    assert result.history.failed == 0
    assert A @ result.last[x] == pytest.approx(surrogate, abs=1e-6)
    assert np.abs(surrogate - b).max() > 1e-4


def test_the_exact_method_refuses_a_model_that_is_flat_where_data_enter():
    x, d = cp.Variable(2, name="x"), private("d", 2, 0.01)
    cost = cp.square(x[0] - d[0]) + d[1] * x[1]
    problem = dp.Problem([dp.Agent(cp.Minimize(cost), [x[1] >= 0], name="solo")])
    with pytest.raises(dp.ModelError, match="no minimizer for some values of the noise"):
        problem.plan(dp.ADMM(), epsilon=1.0, delta=1e-6, release="once")


@both
@pytest.mark.parametrize("radius", [1e155, 1e200, 1e300])
def test_changes_whose_squares_are_no_numbers_are_refused(mechanism, radius):
    x = cp.Variable(2, name="x")
    cost = cp.sum_squares(x - private("d", 2, radius))
    problem = dp.Problem([dp.Agent(cp.Minimize(cost), [cp.abs(x) <= 1], name="a")])
    with pytest.raises(dp.PrivacyError, match="Squares of numbers beyond 1e\\+150 overflow"):
        problem.plan(dp.ADMM(), rounds=2, release="once", mechanism=mechanism, delta=1e-6)


def complex_moves(spec, seed):
    """Changes of the data on the sphere of the adjacency, as differences of stored entries."""
    rng, kind = np.random.default_rng(seed), spec.adjacency
    shape = spec.shape
    for k in range(200):
        angle = np.exp(2j * np.pi * (rng.random(shape) if k % 2 else np.full(shape, 0.125)))
        change = angle * rng.exponential(size=shape) ** rng.choice([0, 1, 4])
        if kind.norm == "entry" or rng.random() < 0.2:
            picked = np.zeros(shape)
            picked.flat[rng.integers(change.size)] = 1.0
            change = change * picked
        if spec.hermitian:
            real = np.where(np.eye(shape[0], dtype=bool), np.abs(change), 0)
            upper = np.triu(change, 1)
            change = upper + upper.conj().T + real
        p = np.inf if kind.norm == "entry" else float(kind.norm)
        size = np.linalg.norm(np.ravel(change), p)
        if size > 0:
            yield spec.kept(change * (kind.radius / size)), change * (kind.radius / size)


@pytest.mark.parametrize("hermitian", [False, True])
@pytest.mark.parametrize("norm", ["entry", 1, 2, "inf"])
def test_no_change_of_complex_data_moves_what_is_released_by_more(norm, hermitian):
    """By brute force over neighbors; the bound is reached, so that noise is no larger than due."""
    shape = (3, 3) if hermitian else (4,)
    kinds = {"hermitian": True} if hermitian else {"complex": True}
    d = dp.Private(shape=shape, adjacency=dp.Within(0.3, norm), name="d", **kinds)
    X = cp.Variable(shape, complex=True, name="X")
    agent = dp.Agent(cp.Minimize(cp.norm(cp.vec(X - d, order="F"))), name="a")
    for mechanism, p in (("laplace", 1), ("gaussian", 2)):
        plan = dp.Problem([agent]).plan(mechanism=mechanism, epsilon=1.0, delta=1e-6)
        released = plan.agents[0].publication
        zero, most = np.zeros(d.spec.size), 0.0
        for stored, change in complex_moves(d.spec, 0):
            assert d.spec.adjacency.allows(change, np.zeros(shape))
            assert d.spec.shaped(stored) == pytest.approx(change)
            moved = released.statistic([stored]) - released.statistic([zero])
            most = max(most, float(np.linalg.norm(moved, p)))
        assert most <= released.sensitivity
        assert most >= 0.8 * released.sensitivity


def test_statistics_of_complex_data_other_than_the_data_are_refused():
    """Sums and shaped data are bounded for entries that change one by one."""
    d = dp.Private(shape=2, adjacency=dp.Within(0.1), name="d", complex=True)
    X = cp.Variable(2, complex=True, name="X")
    problem = dp.Problem([dp.Agent(cp.Minimize(cp.norm(X - d)), name="a")])
    known = problem.plan(epsilon=1.0, delta=1e-6).agents[0].sensitivity
    for kind in ("sums", "data", "shaped slope"):
        named = Once(kind, None, sp.csr_array(np.eye(4)))
        with pytest.raises(dp.PrivacyError, match="derives no bound"):
            restated(known, 1, "a", named)
    with pytest.raises(dp.PrivacyError, match="moves several released numbers"):
        problem.plan(mechanism="staircase", epsilon=1.0, delta=1e-6)


def test_entries_that_cancel_do_not_move_a_sum_farther_than_its_sensitivity():
    x, d = cp.Variable(name="x"), private("d", 3, 0.1)
    solo = dp.Agent(cp.Minimize(cp.square(x - cp.sum(d))), [cp.abs(x) <= 5], name="solo")
    plan = dp.Problem([solo]).plan(epsilon=1.0, delta=1e-6, release="once")
    (agent,) = plan.agents
    once = agent.publication
    first, second = (once.statistic([np.array([1e16, v, -1e16])]) for v in (0.95, 1.05))
    assert 0 < np.abs(first - second).max() <= once.sensitivity


def within_ball(change, spec):
    """Whether a change, without rounding, is one of the declared changes."""
    radius, norm = Fraction(spec.adjacency.radius), spec.adjacency.norm
    sizes = [abs(c) for c in change]
    if norm == "entry":
        return sum(size > 0 for size in sizes) <= 1 and max(sizes) <= radius
    if norm == 2:
        return sum(size * size for size in sizes) <= radius**2
    return (max(sizes) if norm == np.inf else sum(sizes)) <= radius


@cases
@both
@pytest.mark.parametrize("size", [1e9, 1e12, 1e15])
def test_large_data_do_not_move_what_is_released_farther_than_is_charged(name, mechanism, size):
    publication, specs, _, _ = planned(name, mechanism)
    grid = Calibrated(mechanism, 2.0).grid(publication.sensitivity, publication.size)
    r, tried = np.random.default_rng(3), 0
    for k in range(60):
        index = k % len(specs)
        spec = specs[index]
        data = [of_sign(size * r.normal(size=s.size), s) for s in specs]
        # Neighbors as floats: the last digit of large data is larger than many changes.
        other = data[index] + random_change(spec, r)
        pairs = zip(data[index].tolist(), other.tolist(), strict=True)
        if not within_ball([Fraction(b) - Fraction(a) for a, b in pairs], spec):
            continue
        tried += 1
        pair = [publication.exact(d) for d in (data, [*data[:index], other, *data[index + 1 :]])]
        first, second = (on_grid(values, grid, errors) for values, errors in pair)
        steps = np.linalg.norm((first - second).astype(float), mechanism.norm)
        assert grid.width * steps <= grid.sensitivity
    assert tried


@pytest.mark.parametrize("name", ["several, more data", "more data than components"])
@pytest.mark.parametrize("estimated", [False, True])
def test_variances_alone_are_the_diagonal_of_the_covariance_bit_by_bit(name, estimated):
    publication = plan_for(name, dp.Gaussian(noise_multiplier=2.0)).agents[0].publication
    if estimated:
        size = publication.size
        spread = np.geomspace(0.1, 10, size)
        estimate = EntrywiseMean(np.zeros(size), spread, 1.0, laplace=False)
        publication = replace(publication, estimates=((slice(0, size), estimate),))
    whole = publication.slope_covariance(3.0)
    alone = publication.slope_covariance(3.0, diagonal=True)
    assert np.array_equal(whole.diagonal(), alone.diagonal())
    assert alone.nnz <= alone.shape[0]
