"""How often true data break a constraint: with margins, and with planted faults."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from scipy.stats import binom, chi2

import dpcvx as dp
from dpcvx.algorithms.joint import joint, with_kept
from dpcvx.plan.limits import Spread, spread_of, tightened
from dpcvx.privacy.noise import on_grid
from dpcvx.privacy.randomness import source_for
from dpcvx.privacy.truncation import sum_quantile
from dpcvx.solvers.conic import ConicProgram

RUNS = 120
# A count that is called too large is so with less than this probability if the promise holds.
SURE = 1e-4


@dataclass(frozen=True)
class Model:
    """An agent, its data, and by how much a decision breaks a constraint for data d."""

    agent: dp.Agent
    data: np.ndarray
    excess: Callable[[np.ndarray, np.ndarray], float]


def balance():
    """Three generators and one balance: it binds, so it breaks just as often as is allowed."""
    p, d = cp.Variable(3, name="p", nonneg=True), np.arange(1.0, 6.0)
    load = dp.Private(d, name="load", adjacency=dp.Within(0.1))
    cost = np.array([1.0, 2.0, 3.0]) @ p
    agent = dp.Agent(cp.Minimize(cost), [p <= 9, cp.sum(p) >= cp.sum(load)], name="grid")
    return Model(agent, d, lambda x, d: d.sum() - x.sum())


def lines():
    """A balance and two-sided limits of flows: several rows share the probability."""
    rng = np.random.default_rng(1)
    p, d = cp.Variable(4, name="p", nonneg=True), rng.uniform(1, 2, 4)
    load = dp.Private(d, name="load", adjacency=dp.Within(0.01))
    H = rng.normal(size=(5, 4))
    limits = [cp.sum(p) >= cp.sum(load), cp.abs(H @ (p - load)) <= 0.5]
    agent = dp.Agent(cp.Minimize(rng.uniform(1, 2, 4) @ p), limits, name="grid")

    def excess(x, d):
        return max(d.sum() - x.sum(), np.abs(H @ (x - d)).max() - 0.5)

    return Model(agent, d, excess)


def knapsack():
    """Private weights: the decision prefers those that the noise made small."""
    rng = np.random.default_rng(0)
    x, d = cp.Variable(30, name="x", nonneg=True), rng.uniform(0.9, 1.1, 30)
    weight = dp.Private(d, name="weight", adjacency=dp.Within(0.02))
    value = rng.uniform(0.8, 1.2, 30) @ x
    agent = dp.Agent(cp.Maximize(value), [weight @ x <= 12, x <= 1], name="shop")
    return Model(agent, d, lambda x, d: d @ x - 12)


def region():
    """As far out as a ball around private data allows."""
    x, d = cp.Variable(3, name="x"), np.array([0.5, -1.0, 2.0])
    home = dp.Private(d, name="home", adjacency=dp.Within(0.05))
    agent = dp.Agent(cp.Maximize(cp.sum(x)), [cp.norm(x - home) <= 2], name="rover")
    return Model(agent, d, lambda x, d: np.linalg.norm(x - d) - 2)


def exponents():
    """A sum of exponentials of private exponents, which the noise moves one by one."""
    x, d = cp.Variable(3, name="x", nonneg=True), np.array([0.5, -0.3, 0.1])
    rate = dp.Private(d, name="rate", adjacency=dp.Within(0.05))
    agent = dp.Agent(cp.Minimize(cp.sum(x)), [cp.sum(cp.exp(rate - x)) <= 1], name="plant")
    return Model(agent, d, lambda x, d: np.exp(d - x).sum() - 1)


def logarithm():
    """Private data in a logarithm, which has to be large enough."""
    x, d = cp.Variable(2, name="x", nonneg=True), np.array([1.0, 0.5])
    load = dp.Private(d, name="load", adjacency=dp.Within(0.05))
    left = cp.log(cp.sum(x) - cp.sum(load))
    agent = dp.Agent(cp.Minimize(np.array([1.0, 2.0]) @ x), [left >= 0.2], name="plant")
    return Model(agent, d, lambda x, d: 0.2 - np.log(max(x.sum() - d.sum(), 1e-9)))


def powers():
    """A geometric mean over private widths."""
    x, d = cp.Variable(2, name="x", nonneg=True), np.array([0.5, 0.4])
    width = dp.Private(d, name="width", adjacency=dp.Within(0.02))
    cone = cp.PowCone3D(x[0] - width[0], x[1] + width[1], cp.Constant(1.0), 0.3)
    agent = dp.Agent(cp.Minimize(cp.sum(x)), [cone, x <= 9], name="plant")

    def excess(x, d):
        return 1 - max(x[0] - d[0], 0) ** 0.3 * max(x[1] + d[1], 0) ** 0.7

    return Model(agent, d, excess)


def stock():
    """A stock that is a running sum of orders less private demands."""
    u, d = cp.Variable(4, name="u", nonneg=True), np.array([2.0, 3.0, 1.0, 2.5])
    demand = dp.Private(d, name="demand", adjacency=dp.Within(0.05))
    agent = dp.Agent(cp.Minimize(cp.sum(u)), [cp.cumsum(u - demand) >= 0, u <= 9], name="shop")
    return Model(agent, d, lambda x, d: -np.cumsum(x - d).min())


def matrix():
    """The largest sum of eigenvalues below a matrix of private numbers."""
    X, d = cp.Variable((3, 3), name="X", symmetric=True), np.array([2.0, 1, 1, 0.5, 0.3])
    limit = dp.Private(d, name="limit", adjacency=dp.Within(0.05))
    first, second = (np.roll(np.eye(3), k, axis=0)[:, [0, 2, 1]] for k in (0, 1))
    turned = limit[3] * first + limit[4] * (second + second.T)
    agent = dp.Agent(cp.Maximize(cp.trace(X)), [X << cp.diag(limit[:3]) + turned], name="plant")

    def excess(x, d):
        below = np.diag(d[:3]) + d[3] * first + d[4] * (second + second.T)
        return np.linalg.eigvalsh(x.reshape(3, 3) - below)[-1]

    return Model(agent, d, excess)


BUILDS = (balance, lines, knapsack, region, exponents, logarithm, powers, stock)
NAMES = [build.__name__ for build in BUILDS]
MODELS = {build.__name__: build() for build in (*BUILDS, matrix)}


@cache
def planned(name, violation=0.1, kind="laplace", price=None):
    problem = dp.Problem([MODELS[name].agent])
    budget = dict(epsilon=1.0, delta=1e-6, mechanism=kind)
    return problem.plan(violation_probability=violation, slack_penalty=price, **budget)


def broken(name, plan, program=None, seed=0, runs=RUNS):
    """In how many runs true data break a constraint, from releases as runs make them."""
    model, program = MODELS[name], plan.program if program is None else program
    left, noise, whole = plan.agents[0].publication, plan.agents[0].noise, joint(program)
    grid, source = noise.grid(left.sensitivity, left.size), source_for(seed, (0,))
    count = 0
    for t in range(runs):
        released = noise.release(left.statistic([model.data]), grid, source.at(t, 1))
        data = with_kept(whole.data, program, [left.unlimited(released)])
        found = ConicProgram(data).solve(np.zeros(data.n), None, whole.start)
        count += found.x is not None and model.excess(found.x, model.data) > 1e-6
    return count


def changed(plan, change):
    """The plan's program with other margins."""
    return replace(plan.program, kept=tuple(map(change, plan.program.kept)))


def halved(tightened):
    balls = {k: replace(b, radius=b.radius / 2) for k, b in tightened.balls.items()}
    return replace(tightened, margins={k: m / 2 for k, m in tightened.margins.items()}, balls=balls)


def allowed(probability, runs=RUNS):
    """The largest count that is not called too large."""
    return binom.isf(SURE, runs, probability)


@pytest.mark.parametrize("name", NAMES)
def test_true_data_break_constraints_no_more_often_than_promised(name):
    assert broken(name, planned(name)) <= allowed(0.1)


def test_true_matrices_break_no_more_often_and_without_margins_they_do():
    plan, runs = planned("matrix", 0.3), 25

    def without(tightened):
        return replace(tightened, margins=dict.fromkeys(tightened.margins, 0.0))

    assert broken("matrix", plan, runs=runs) <= allowed(0.3, runs)
    assert broken("matrix", plan, changed(plan, without), runs=runs) > allowed(0.3, runs)


@pytest.mark.parametrize("name", ["knapsack", "region"])
def test_so_with_gaussian_noise(name):
    assert broken(name, planned(name, 0.1, "gaussian")) <= allowed(0.1)


@pytest.mark.parametrize("name", ["exponents", "logarithm", "powers"])
def test_margins_of_the_other_sign_are_caught_in_every_cone(name):
    plan = planned(name, 0.1)

    def turned(tightened):
        return replace(tightened, margins={k: -m for k, m in tightened.margins.items()})

    assert broken(name, plan, changed(plan, turned)) > allowed(0.1)


@pytest.mark.parametrize("name", ["exponents", "logarithm", "powers"])
def test_noise_with_a_limit_breaks_no_cone(name):
    assert broken(name, planned(name, 0)) == 0


@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
def test_one_row_that_binds_breaks_as_often_as_is_allowed(kind):
    count = broken("balance", planned("balance", 0.3, kind))
    assert binom.ppf(SURE, RUNS, 0.3) <= count <= allowed(0.3)


def test_half_the_margin_is_caught():
    plan = planned("balance", 0.01)
    assert broken("balance", plan, changed(plan, halved)) > allowed(0.01)


@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
def test_the_quantile_of_a_fixed_decision_is_caught_on_coefficients(kind):
    plan = planned("knapsack", 0.1, kind)

    def fixed(tightened):
        ones = np.ones(30) / np.sqrt(30)
        (k, ball), *_ = tightened.balls.items()
        norm = plan.agents[0].noise.mechanism.norm
        return replace(tightened, balls={k: replace(ball, radius=sum_quantile(norm, ones, 0.1))})

    assert broken("knapsack", plan, changed(plan, fixed)) > allowed(0.1)


def limits_of(name):
    return planned(name).program.kept


def identity(size, norm=2):
    return Spread(norm, sp.csr_array(sp.eye_array(size)), 0.0)


def test_the_probability_is_divided_over_all_rows():
    (one,) = tightened(limits_of("balance"), {0: identity(5)}, 0.1)
    assert one.margins == {0: pytest.approx(sum_quantile(2, np.ones(5), 0.1))}
    first, second = tightened(limits_of("lines"), {0: identity(4, 1)}, 0.22)
    assert first.margins[0] == pytest.approx(sum_quantile(1, np.ones(4), 0.02))
    assert len(second.margins) == 10


def test_many_rows_that_meet_little_noise_share_one_set():
    x = cp.Variable(2, name="x")
    d = dp.Private(np.zeros(2), name="d", adjacency=dp.Within(0.1))
    angles = 0.1 + np.linspace(0, 2 * np.pi, 200, endpoint=False)
    H = np.column_stack([np.cos(angles), np.sin(angles)])
    agent = dp.Agent(cp.Minimize(cp.sum(x)), [H @ (x - d) <= 1], name="a")
    plan = dp.Problem([agent]).plan(
        epsilon=1.0, delta=1e-6, violation_probability=0.1, mechanism=dp.Gaussian()
    )
    (kept,) = plan.program.kept
    margins = np.array(list(kept.margins.values()))
    scale = plan.guarantee.agents[0].scale * 0.1
    assert margins == pytest.approx(scale * np.sqrt(-2 * np.log(0.1)), rel=1e-3)


def test_rows_share_a_set_only_where_those_that_count_gain():
    x, d = cp.Variable(2, name="x"), dp.Private(np.zeros(2), name="d", adjacency=dp.Within(0.1))
    H = np.random.default_rng(0).normal(size=(20, 2))
    agent = dp.Agent(cp.Minimize(cp.sum(x)), [H @ (x - d) <= 1], name="a")
    plan = dp.Problem([agent]).plan(epsilon=1.0, delta=1e-6, violation_probability=0.1)
    shares = [[0.81, *[0.01] * 19]]
    (one,) = tightened(plan.program.kept, {0: identity(2)}, 0.1, None, shares)
    alone = sum_quantile(2, H[0], 0.081)
    together = np.sqrt(chi2.isf(0.1, 2)) * np.linalg.norm(H[0])
    assert one.margins[0] == pytest.approx(alone) and alone < 0.8 * together


def test_margins_cover_the_rounding_to_the_grid():
    plan = planned("balance")
    spread = spread_of(plan.agents[0].publication, plan.agents[0].noise)
    assert spread.rounding > 0
    (without,) = tightened(limits_of("balance"), {0: replace(spread, rounding=0.0)}, 0.1)
    (kept,) = plan.program.kept
    more = kept.margins[0] - without.margins[0]
    assert more == pytest.approx(5 * spread.rounding * spread.matrix.max(), rel=1e-6)


def test_released_data_lie_within_spread_and_rounding():
    plan, model = planned("balance"), MODELS["balance"]
    left, noise = plan.agents[0].publication, plan.agents[0].noise
    grid = noise.grid(left.sensitivity, left.size)
    statistic = left.statistic([model.data])
    quiet = replace(grid, scale=grid.width * 2.0**-30)
    gone = noise.release(statistic, quiet, source_for(0, (0,)).at(0, 1))
    spread = spread_of(left, noise)
    moved = np.abs(left.unlimited(gone) - model.data)
    assert moved.max() <= spread.rounding * spread.matrix.max()


@pytest.mark.parametrize("name", NAMES)
def test_at_a_price_there_always_is_a_decision(name):
    plan = planned(name, 1e-9, "gaussian", 1e3)
    result = plan.run(seed=3)
    assert result.status is dp.Status.COMPLETED


@cache
def certain(name, kind="laplace"):
    """With so large a delta that draws come near the limit, and decisions exist."""
    problem = dp.Problem([MODELS[name].agent])
    return problem.plan(epsilon=2.0, delta=0.5, mechanism=kind, violation_probability=0)


def at_corners(name, plan, program=None):
    """The largest excess over runs in which every entry of the noise is at its limit."""
    model, program = MODELS[name], plan.program if program is None else program
    left, noise, whole = plan.agents[0].publication, plan.agents[0].noise, joint(program)
    grid = noise.grid(left.sensitivity, left.size)
    far = noise.truncation.steps(grid) * grid.width
    rng, size = np.random.default_rng(0), left.size
    signs = [np.ones(size), -np.ones(size), *rng.choice([-1.0, 1.0], (40, size))]
    found = []
    for sign in signs:
        released = grid.width * on_grid(left.statistic([model.data]), grid) + far * sign
        data = with_kept(whole.data, program, [left.unlimited(released)])
        x = ConicProgram(data).solve(np.zeros(data.n), None, whole.start).x
        if x is not None:
            found.append(model.excess(x, model.data))
    assert found
    return max(found)


# One kind of noise per cone: with a limit, margins follow from the limit alone.
@pytest.mark.parametrize(
    ("name", "kind"), [(name, ("gaussian", "laplace")[k % 2]) for k, name in enumerate(NAMES)]
)
def test_with_a_limit_true_data_never_break_a_constraint(name, kind):
    plan = certain(name, kind)
    assert at_corners(name, plan) <= 1e-6
    assert broken(name, plan) == 0


@pytest.mark.parametrize("name", ["balance", "region"])
def test_with_a_limit_margins_are_no_larger_than_needed(name):
    plan = certain(name)
    assert at_corners(name, plan) >= -1e-3
    assert at_corners(name, plan, changed(plan, halved)) > 1e-3


@cache
def shaped(name, violation=0.1, kind="laplace", wrong=False):
    """By stand-ins that are right to a tenth, or that have nothing to do with the data."""
    model = MODELS[name]
    rng = np.random.default_rng(7)
    (private,) = model.agent.private
    like = model.data * rng.uniform(0.9, 1.1, model.data.shape)
    if wrong:
        like = np.abs(model.data).mean() * rng.permutation(np.linspace(0.1, 1.4, model.data.size))
    spec = private.spec
    other = dp.Private(model.data, name=spec.name, adjacency=spec.adjacency, proxy=like)
    tree = {id(private): other}
    agent = dp.Agent(
        model.agent.objective.tree_copy(tree),
        [constraint.tree_copy(tree) for constraint in model.agent.constraints],
        name=model.agent.name,
    )
    return dp.Problem([agent]).plan(
        violation_probability=violation, epsilon=1.0, delta=1e-6, mechanism=kind, slack_penalty=None
    )


# Wrong ones only change the shape of the noise, which every cone meets with near ones, so three
# cones meet wrong ones: rows, a ball, and products with variables.
@pytest.mark.parametrize(
    ("name", "wrong"),
    [(name, False) for name in NAMES] + [(name, True) for name in ("lines", "knapsack", "region")],
)
def test_they_break_no_more_often_where_margins_follow_from_stand_ins(name, wrong):
    plan = shaped(name, wrong=wrong)
    assert wrong or "by the costs of margins" in " ".join(str(plan).split())
    assert broken(name, plan) <= allowed(0.1)


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_half_of_such_margins_is_caught(kind):
    plan = shaped("balance", 0.01, kind)
    assert plan.agents[0].publication.kind == "shaped data"
    assert broken("balance", plan, changed(plan, halved)) > allowed(0.01)


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
@pytest.mark.parametrize(("name", "least"), [("balance", 0.8), ("lines", 0.3)])
def test_noise_of_another_source_exceeds_some_margin_as_often_as_allowed(name, least, kind):
    # 100,000 draws know a probability of 0.1 to 0.001: beyond four of that with probability 4e-5.
    plan, draws = shaped(name, 0.1, kind), 100_000
    agent, rng = plan.agents[0], np.random.default_rng(0)
    grid = agent.noise.grid(agent.publication.sensitivity, agent.publication.size)
    N = grid.scale * agent.publication.decode.toarray()
    drawn = rng.laplace if kind == "laplace" else rng.normal
    noise = drawn(size=(draws, N.shape[1])) @ N.T

    def share(part):
        exceeded = np.zeros(draws, dtype=bool)
        for kept in plan.program.kept:
            constraint = kept.constraint
            for number, margin in kept.margins.items():
                row = constraint.offsets.toarray()[constraint.parts[number].first]
                exceeded |= noise @ row > part * margin
        return exceeded.mean()

    assert least * 0.1 < share(1.0) < 0.1 + 4e-3
    assert share(0.5) > 0.15
