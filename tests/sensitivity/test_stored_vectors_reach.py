"""How far one change moves what agents keep: attained by attacks, on releases that are forced."""

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp
from dpcvx.model.curvature import curvature, record_smoothness, smoothness
from tests.forms import form_of
from tests.replay import compared

GAUSSIAN, LAPLACE = dp.Gaussian(noise_multiplier=3.0), dp.Laplace(noise_multiplier=3.0)
METHODS = {
    "tracking": dp.GradientTracking("complete", 0.1),
    "short": dp.DPP2("complete", 0.1, 0.02),
    "long": dp.DPP2("complete", 0.45, 0.05, damping=0.5, ratio=0.3),
}
methods = pytest.mark.parametrize("method", METHODS)


def planned(objective, method, mechanism, rounds=6):
    """A problem of one agent with private data, and two with public ones."""
    (x,) = objective.variables()
    agents = [dp.Agent(cp.Minimize(objective), name="first")]
    agents += [dp.Agent(cp.Minimize(cp.sum_squares(x - k)), name=f"other{k}") for k in range(2)]
    delta = 1e-6 if mechanism.norm == 2 else 0.0
    return dp.Problem(agents).plan(method, mechanism=mechanism, rounds=rounds, delta=delta)


def shares(plan, data, others):
    """Of the charge, what is reached in every release by the worst of some neighbors."""
    return np.max([[found.share for found in run] for run in compared(plan, data, others)], axis=0)


def entrywise(data, radius):
    """Neighbors that differ in one entry."""
    for i in range(data.size):
        step = np.zeros(data.size)
        step[i] = radius
        yield {"d": data + step}


# -- gradients that are affine in the data ---------------------------------------------------------

CURVED = {
    "strongly convex": [0.4, 1.0, 1.9],
    "convex": [0.0, 1.0, 2.0],
    "nonconvex": [-2.0, -0.5, 1.0],
}


@methods
@pytest.mark.parametrize("curved", CURVED)
@pytest.mark.parametrize("mechanism", [GAUSSIAN, LAPLACE], ids=str)
def test_of_quadratics_nothing_is_charged_that_no_neighbor_reaches(method, curved, mechanism):
    """Also where what one change does cancels from round to round."""
    rng = np.random.default_rng(3)
    Q = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    H = cp.Constant(Q * CURVED[curved] @ Q.T)
    x = cp.Variable(3, name="x")
    d = dp.Private(shape=4, adjacency=dp.Within(0.1), name="d")
    objective = cp.sum(cp.multiply(x, H @ x)) / 2 - d @ (rng.normal(size=(4, 3)) @ x)
    plan = planned(objective, METHODS[method], mechanism)
    data = rng.normal(size=4)
    found = shares(plan, {"d": data}, entrywise(data, 0.1))
    assert found.size == 11 and (found <= 1).all() and (found > 0.97).all()


def test_what_cancels_in_tracking_is_not_charged_again():
    """Two gradients move by 0.2 together; with alpha M = 0.1 the sixth direction does by 3e-4."""
    x = cp.Variable(3, name="x")
    d = dp.Private(shape=3, adjacency=dp.Within(0.1), name="d")
    plan = planned(cp.sum_squares(x - d) / 2, METHODS["tracking"], GAUSSIAN)
    charged = {
        (e.round, e.step): e.sensitivity
        for e in plan.run(data={"d": np.ones(3)}, seed=0).ledger["first"].entries
    }
    assert charged[2, 2] == pytest.approx(0.1 * charged[1, 2], rel=1e-3)
    assert charged[6, 2] < 0.2 / 500


@methods
@pytest.mark.parametrize("norm", [1, 2, np.inf])
def test_changes_of_several_entries_are_followed_as_well(method, norm):
    rng = np.random.default_rng(4)
    x, A = cp.Variable(2, name="x"), rng.normal(size=(3, 2))
    d = dp.Private(shape=3, adjacency=dp.Within(0.1, norm), name="d")
    plan = planned(cp.sum_squares(A @ x - d) / 8, METHODS[method], GAUSSIAN)
    data = rng.normal(size=3)
    signs = np.array(np.meshgrid(*[[-1.0, 0.0, 1.0]] * 3)).reshape(3, -1).T
    # The gradient is affine in the data: opposite changes, the first half, move it as far.
    steps = [*signs[14:], *rng.normal(size=(4, 3))]
    others = [{"d": data + 0.1 * s / np.linalg.norm(s, norm)} for s in steps]
    found = shares(plan, {"d": data}, others)
    assert (found <= 1).all() and (found > 0.9).all()


@pytest.mark.parametrize("side", [1.0, -1.0])
def test_of_a_smooth_rest_no_more_than_its_range_is_charged(side):
    """Logistic terms of public arguments bend by 0 to 1: half of it is known, half is spread."""
    x = cp.Variable(2, name="x")
    d = dp.Private(shape=2, adjacency=dp.Within(0.1), name="d")
    rest = side * cp.sum(cp.logistic(2 * x))
    plan = planned(cp.sum_squares(x - d) / 2 + rest, METHODS["short"], GAUSSIAN)
    data = np.zeros(2)
    found = shares(plan, {"d": data}, entrywise(data, 0.1))
    assert (found <= 1).all() and (found > 0.85).all()
    norms = [0.1]  # by norms alone: M = 1 + 1
    for _ in range(5):
        norms.append(0.1 + 0.1 * 2 * norms[-1])
    entries = plan.run(data={"d": data}, seed=0).ledger["first"].entries
    assert entries[-1].sensitivity < 0.95 * norms[-1]


def test_large_models_are_followed_by_numbers_in_place_of_matrices():
    """The same soundness and most of the gain, without matrices of any size."""
    n, rng = 160, np.random.default_rng(0)
    x = cp.Variable(n, name="x")
    d = dp.Private(shape=n, adjacency=dp.Within(0.1), name="d")
    weights = rng.uniform(0.9, 1.1, n)
    objective = cp.sum(cp.multiply(weights, cp.square(x))) / 2 - d @ x
    plan = planned(objective, METHODS["long"], GAUSSIAN)
    data = rng.normal(size=n)
    others = [{"d": data + 0.1 * np.eye(n)[i]} for i in (np.argmin(weights), np.argmax(weights))]
    found = shares(plan, {"d": data}, others)
    assert (found <= 1).all() and (found > 0.7).all()


# -- records ---------------------------------------------------------------------------------------


def clinic(count):
    x = cp.Variable(2, name="x")
    person = {"records": "person"}
    X = dp.Private(shape=(count, 2), adjacency=dp.Rows(1.0, **person), name="X")
    y = dp.Private(shape=count, adjacency=dp.Rows(1.0, **person), name="y")
    return cp.sum(cp.logistic(-cp.multiply(y, X @ x))) * (4 / count)


def records(rng, count):
    X = rng.normal(size=(count, 2))
    return X / np.linalg.norm(X, axis=1, keepdims=True), rng.choice([-1.0, 1.0], size=count)


def test_directions_of_many_records_are_charged_by_the_steps_between_their_gradients():
    """By norms alone every direction costs two gradients and more: 0.016 and above."""
    rng = np.random.default_rng(5)
    X, y = records(rng, 1000)
    plan = planned(clinic(1000), METHODS["tracking"], GAUSSIAN)
    others = []
    for _ in range(20):
        one, two = X.copy(), y.copy()
        row, label = records(rng, 1)
        one[0], two[0] = row[0], label[0]
        others.append({"X": one, "y": two})
    runs = list(compared(plan, {"X": X, "y": y}, others))
    assert max(found.share for run in runs for found in run) <= 1
    directions = [found.entry.sensitivity for found in runs[0] if found.entry.step == 2]
    assert directions[0] == pytest.approx(8 / 1000, rel=1e-4)
    assert max(directions[1:]) < 0.5 * directions[0] and directions[-1] < 0.1 * directions[0]


def test_one_record_bends_an_objective_by_its_own_share():
    f = clinic(1000)
    form = form_of(f)[1]
    assert smoothness(form) == pytest.approx(1.0)
    assert record_smoothness(form) == pytest.approx(1 / 1000)
    rng, h = np.random.default_rng(0), 1e-5
    one, two = (clinic_gradient(form, rng) for _ in range(2))
    for _ in range(50):  # what differs by one record has differences with that constant
        x, step = 3 * rng.normal(size=2), rng.normal(size=2)
        step *= h / np.linalg.norm(step)
        moved = (one(x + step) - two(x + step)) - (one(x) - two(x))
        assert np.linalg.norm(moved) <= h * 1.01e-3


def clinic_gradient(form, rng):
    """At data of which the first record is drawn and the others are zeros."""
    X, y = np.zeros((1000, 2)), np.zeros(1000)
    X[:1], y[:1] = records(rng, 1)
    by_name = {"X": X, "y": y}
    return form.bind([by_name[s.name].ravel(order="F") for s in form.private]).gradient


# -- what is known of second derivatives -----------------------------------------------------------


def smooth(rng, x):
    return cp.sum_squares(rng.normal(size=(2, 3)) @ x) / 3 + cp.sum(cp.logistic(x)) * 2


def hollow(rng, x):
    return cp.sum(cp.multiply(rng.normal(size=3), cp.square(x))) - cp.sum(cp.huber(x, 0.5))


def level(rng, x):
    return cp.sum(1 - cp.inv_pos(1 + cp.square(x))) + cp.square(cp.sum(x)) / 9


@pytest.mark.parametrize("family", [smooth, hollow, level], ids=lambda f: f.__name__)
def test_second_derivatives_lie_where_they_are_said_to(family):
    """Differences of gradients at random places."""
    rng = np.random.default_rng(1)
    form = form_of(family(rng, cp.Variable(3)))[1]
    found, gradient = curvature(form), form.at_zero().gradient
    H, worst = found.center.toarray(), 0.0
    low, high = found.ends
    assert max(-low, high) <= smoothness(form) * (1 + 1e-9)
    for _ in range(400):
        x, h = rng.normal(size=3) * 2, 1e-5
        columns = [(gradient(x + h * e) - gradient(x - h * e)) / (2 * h) for e in np.eye(3)]
        G = (np.array(columns) + np.array(columns).T) / 2
        if family is hollow and (np.abs(np.abs(x) - 0.5) < 2 * h).any():
            continue
        worst = max(worst, np.linalg.norm(G - H, 2))
        ends = np.linalg.eigvalsh(G)
        assert low - 1e-4 <= ends[0] and ends[-1] <= high + 1e-4
    assert 0.7 * found.spread <= worst <= found.spread * (1 + 1e-4)


# -- exact local steps -----------------------------------------------------------------------------


def exact_steps(objective, limit, D, mechanism=LAPLACE):
    (x,) = objective.variables()
    agents = [dp.Agent(cp.Minimize(objective), limit(x), name="first")]
    agents += [
        dp.Agent(cp.Minimize(cp.sum_squares(x - k)), limit(x), name=f"other{k}") for k in range(2)
    ]
    method = dp.DecentralizedADMM("complete", step=1 / D, exact=True)
    return dp.Problem(agents).plan(method, mechanism=mechanism, rounds=3)


LIMITS = {
    "none": lambda x: [],
    "bounds": lambda x: [x >= -50, x <= 50],
    "narrow": lambda x: [cp.abs(x) <= 0.2],
}


@pytest.mark.parametrize("limit", LIMITS)
def test_minimizers_under_laplace_noise_cost_no_root_of_the_dimension(limit):
    """By sqrt(n) times l2 it is 5 times as much; bounds that are met only hold points together."""
    x = cp.Variable(25, name="x")
    d = dp.Private(shape=25, adjacency=dp.Within(0.1), name="d")
    plan = exact_steps(cp.sum_squares(x - d) / 2, LIMITS[limit], 3.0)
    data = np.zeros(25)
    runs = list(compared(plan, {"d": data}, entrywise(data, 0.1)))
    assert [found.entry.sensitivity for found in runs[0]] == pytest.approx([0.025] * 3, rel=1e-4)
    worst = max(found.share for run in runs for found in run)
    assert worst <= 1 and (worst > 0.99 or limit == "narrow")


@pytest.mark.parametrize("seed", range(6))
def test_no_minimizer_moves_farther_than_it_is_charged(seed):
    """Dense curvature, a smooth rest, sets of all kinds, steep and flat searches."""
    rng = np.random.default_rng(seed)
    x, A = cp.Variable(4, name="x"), rng.normal(size=(5, 4))
    d = dp.Private(shape=5, adjacency=dp.Within(0.5, [1, 2, np.inf][seed % 3]), name="d")
    objective = cp.sum_squares(A @ x - d) / 8 + cp.sum(cp.logistic(x))
    limit = [*LIMITS.values(), lambda x: [cp.sum(x) == 1, x >= -3]][seed % 4]
    plan = exact_steps(objective, limit, 10 ** rng.uniform(-0.5, 1.5))
    data = rng.normal(size=5)
    steps = [rng.normal(size=5) for _ in range(6)] + list(rng.choice([-1.0, 1.0], (6, 5)))
    norm = [1, 2, np.inf][seed % 3]
    others = [{"d": data + 0.5 * s / np.linalg.norm(s, norm)} for s in steps]
    worst = max(f.share for run in compared(plan, {"d": data}, others) for f in run)
    assert 0.05 < worst <= 1


def test_where_a_search_may_expand_in_l1_the_bound_in_l2_counts():
    x, A = cp.Variable(4, name="x"), np.ones((3, 4)) + np.eye(3, 4)
    d = dp.Private(shape=3, adjacency=dp.Within(0.1), name="d")
    plan = exact_steps(cp.sum_squares(A @ x - d), LIMITS["bounds"], 0.1)
    search = plan.algorithm.exact
    known = plan.agents[0].smoothness.curvature
    assert search.stretch_in_l1(known.center, known.spread) == np.inf
    charged = plan.run(data={"d": np.zeros(3)}, seed=0).ledger["first"].entries[0].sensitivity
    change = plan.agents[0].sensitivity.bound(2).value
    assert charged == pytest.approx(2 * change * search.stretch, rel=1e-4)
