"""Decentralized gradient descent against the printed steps, for every aggregate."""

from functools import cache

import cvxpy as cp
import networkx as nx
import numpy as np
import pytest

import dpcvx as dp
from dpcvx.algorithms.base import Local
from dpcvx.algorithms.decentralized_gradient import AGGREGATES, drawn
from dpcvx.algorithms.on_networks import AgentState, Inbox
from dpcvx.solvers.projector import Projector
from tests.algorithms.networks import (
    GRAPH,
    GRAPHS,
    MODELS,
    NAMES,
    NEAR,
    ROUNDS,
    followed,
    graphs,
    mixing,
    overheard,
    planned,
)
from tests.algorithms.networks import study as uneven
from tests.algorithms.test_on_networks import noiseless, noisy, points, study


def farthest(X):
    """The two rows that are farthest apart in l1."""
    pairs = [(a, b) for a in range(len(X)) for b in range(a)]
    return max(pairs, key=lambda p: np.abs(X[p[0]] - X[p[1]]).sum())


def by_hand(given, aggregate, near, W, eta, weight, left):
    """The line of each algorithm; random weights of agent i in round t are ``weight(i, t)``."""
    x, S = given.start, given.shared
    for t in range(1, ROUNDS + 1):
        v, at, Z = x.copy(), x.copy(), x[:, S]
        for i, around in enumerate(near):
            if aggregate == "mixing":
                v[i, S] = W[i] @ Z
            elif aggregate == "range":  # Algorithm 2*, (28)
                w, closed = weight(i, t), Z[[*around, i]]
                v[i, S] = w * closed.min(axis=0) + (1 - w) * closed.max(axis=0)
            else:  # the gradient is taken at the mean: Appendix J, (7)
                v[i, S] = at[i, S] = Z.mean(axis=0)
            if aggregate == "pair":  # Algorithm 2, (7), where either may be the first of the two
                a, b = sorted(farthest(Z), key=[*around, i].index)
                w = weight(i, t)
                others = [j for j in range(len(x)) if j not in (a, b)]
                v[i, S] = (2 * w * Z[a] + 2 * (1 - w) * Z[b] + Z[others].sum(axis=0)) / len(x)
        x = given.projected(left(t, 1, v - eta(t) * given.gradients(at)))
        yield x


EVERYONE = [[j for j in range(4) if j != i] for i in range(4)]
RULES = {
    "geometric": (dp.steps.Geometric(0.9, 0.2), lambda t: 0.2 * 0.9 ** (t - 1)),
    "square root": (dp.steps.Sqrt(), lambda t: 1 / np.sqrt(t)),
}
# Two aggregates need everyone's point.
PLACES = [("mixing", rule) for rule in dp.networks.WEIGHTS]
PLACES += [("range", "metropolis"), ("range", None), ("mean", None), ("pair", None)]


@pytest.mark.parametrize(
    ("model", "rule"), [("boxes", "geometric"), ("nonconvex boxes", "square root")]
)
@pytest.mark.parametrize(("aggregate", "mixed"), PLACES)
@pytest.mark.parametrize("private", [False, True])
def test_a_run_is_the_printed_algorithm(private, aggregate, mixed, rule, model):
    given, (step, eta) = uneven(**MODELS[model]), RULES[rule]
    graph, near = (GRAPH, NEAR) if mixed else ("complete", EVERYONE)
    arguments = {"weights": mixed} if mixed else {}
    method, drawn, _ = overheard(dp.DecentralizedGradient(graph, step, aggregate, **arguments))
    W = mixing(mixed or "metropolis", near)
    followed(
        given,
        planned(given, method, private),
        lambda left: by_hand(
            given, aggregate, near, W, eta, lambda i, t: drawn[NAMES[i], t, 0], left
        ),
    )
    numbers = {u for numbers in drawn.values() for u in numbers}
    assert len(numbers) == (ROUNDS * 4 * 3 if aggregate in ("pair", "range") else 0)


def test_a_network_brings_its_own_weights():
    W = np.array(
        [[0.5, 0.5, 0.0, 0.0], [0.5, 0.1, 0.4, 0.0], [0.0, 0.4, 0.3, 0.3], [0.0, 0.0, 0.3, 0.7]]
    )
    given, method = uneven(), dp.DecentralizedGradient(dp.networks.build("path", NAMES, W), 0.1)
    near = [[1], [0, 2], [1, 3], [2]]
    followed(
        given,
        planned(given, method, False),
        lambda left: by_hand(given, "mixing", near, W, lambda t: 0.1, None, left),
    )


# -- one turn --------------------------------------------------------------------------------------


class Stub:
    """Given weights; the step goes to the center, and the questions are kept."""

    def __init__(self, w):
        self._w = w

    def uniform(self, size):
        return np.full(size, self._w)

    def release(self, query):
        self.asked = query
        return query.center


@cache
def empty(agents, n, aggregate, graph):
    """A plan of agents without data."""
    x = cp.Variable(n, name="x")
    made = [dp.Agent(cp.Minimize(cp.sum_squares(x)), name=f"a{k}") for k in range(agents)]
    method = dp.DecentralizedGradient(graph, 0.1, aggregate)
    return dp.Problem(made).plan(method, mechanism=None, rounds=1)


def asked(X, i, aggregate, w=0.5, graph="complete"):
    """Center and point of agent i, where all points are known."""
    n = X.shape[1]
    plan = empty(len(X), n, aggregate, graph)
    net, agent = plan.algorithm.graph, plan.program.agents[i]
    tools = Local(agent, Projector(agent.constraints, agent.name), None, lambda x: x)
    around = net.neighbors[i]
    row = net.weights[i, [*around, i]]
    oracle = Stub(w)
    state = AgentState(X[i], X[i], np.zeros(n))
    plan.algorithm.act(tools, state, 1, 0, Inbox(i, around, X[list(around)], row), oracle)
    return oracle.asked.center, oracle.asked.x


@pytest.mark.parametrize("seed", range(8))
def test_the_pair_is_the_farthest_in_l1_and_the_same_for_everyone(seed):
    X = np.random.default_rng(seed).normal(size=(5, 3))
    a, b = farthest(X)
    reach = np.abs(X[a] - X[b]) / 5
    for i in range(5):
        low, middle, high = (asked(X, i, "pair", w)[0] for w in (0.0, 0.5, 1.0))
        assert middle == pytest.approx(X.mean(axis=0))
        assert np.abs(low - middle) == pytest.approx(reach)
        assert np.abs(high - middle) == pytest.approx(reach)
        assert high - middle == pytest.approx(middle - low)
        # On the segment between the two extremes of (7), entry by entry.
        assert asked(X, i, "pair", 0.2)[0] == pytest.approx(0.8 * low + 0.2 * high)
        assert asked(X, i, "pair")[1] == pytest.approx(X.mean(axis=0))


def test_l1_is_not_l2():
    X = np.array([[0.0, 0.0, 0.0], [1.0, 1.0, 1.0], [2.0, 0.0, 0.0], [0.5, 0.1, 0.0]])
    lengths = [np.linalg.norm(X[a] - X[b], p) for a, b in ((0, 1), (0, 2)) for p in (1, 2)]
    assert lengths[0] > lengths[2] and lengths[1] < lengths[3]
    shift = asked(X, 3, "pair", 1.0)[0] - X.mean(axis=0)
    assert np.abs(shift) == pytest.approx((X[1] - X[0]) / 4)


def test_points_that_agree_stay_where_they_are():
    X = np.tile([0.3, -0.7], (4, 1))
    for aggregate in AGGREGATES:
        for w in (0.0, 0.3, 1.0):
            center, at = asked(X, 1, aggregate, w)
            assert center == pytest.approx(X[0]) and at == pytest.approx(X[0])


@graphs
def test_the_range_is_that_of_the_closed_neighborhood(graph):
    X = np.random.default_rng(3).normal(size=(6, 4))
    net = dp.networks.build(GRAPHS[graph], list("abcdef"))
    shape = nx.Graph(net.edges)
    for i in range(6):
        near = X[[i, *net.neighbors[i]]]
        low, high = (asked(X, i, "range", w, shape)[0] for w in (1.0, 0.0))
        assert np.array_equal(low, near.min(axis=0)) and np.array_equal(high, near.max(axis=0))
        for w in (0.1, 0.7):
            center, at = asked(X, i, "range", w, shape)
            assert (low <= center).all() and (center <= high).all()
            assert center == pytest.approx(w * low + (1 - w) * high)
            assert np.array_equal(at, X[i])


# -- without noise ---------------------------------------------------------------------------------


def test_with_constant_steps_the_mean_of_all_converges_linearly_to_the_optimum():
    """x of an agent is a step away from it, in the direction of its own gradient."""
    given = study(6)
    plan = noiseless(given, dp.DecentralizedGradient(step=0.5, aggregate="mean"), 120)
    xs = points(plan.run(iterates=True))
    errors = np.abs(xs.mean(axis=1) - given.optimum).max(axis=1)
    assert errors[-1] < 1e-9
    rates = errors[5:25] / errors[4:24]
    assert rates.max() < 0.9
    # The step of everyone together: plain gradient descent of the mean objective.
    x = np.zeros(3)
    for t in range(20):
        x = x - 0.5 / 6 * given.slope(x)
        assert xs[t].mean(axis=0) == pytest.approx(x, abs=1e-12)
    for k in range(6):
        expected = given.optimum - 0.5 * given.gradient(k, given.optimum)
        assert xs[-1, k] == pytest.approx(expected, abs=1e-9)


def test_with_constant_steps_mixing_ends_near_the_optimum_and_nearer_with_smaller_ones():
    given = study(6)
    gaps = []
    for eta in (0.2, 0.04):
        result = noiseless(given, dp.DecentralizedGradient("ring", eta), 250).run()
        gaps.append(np.abs(np.array(result.last.vectors) - given.optimum).max())
    assert 1e-4 < gaps[1] < 0.3 * gaps[0]


@pytest.mark.parametrize("aggregate", AGGREGATES)
def test_with_falling_steps_every_aggregate_comes_near_the_optimum(aggregate):
    given = study(6)
    graph = "complete" if aggregate in ("mean", "pair") else "ring"
    algorithm = dp.DecentralizedGradient(graph, dp.steps.Sqrt(), aggregate)
    plan = noiseless(given, algorithm, 250)
    # Of runs with random weights, a sixth end farther than 0.1 away; means of 6 were 0.051 to 0.094
    # away in 24 trials.
    seeds = range(6 if aggregate in ("pair", "range") else 1)
    runs = [points(plan.run(seed=seed, iterates=True)) for seed in seeds]
    middle = np.abs(np.mean([xs[-200:] for xs in runs], axis=(0, 1, 2)) - given.optimum).max()
    assert middle < 0.1
    assert np.abs(runs[0][10].mean(axis=0)).max() > 0.1  # the start is farther away


def test_neighbors_do_not_differ_by_more_when_steps_are_small():
    rule = dp.steps.Geometric(0.5, 0.1)
    rng = np.random.default_rng(0)
    x, agents = cp.Variable(2, name="x"), []
    for k in range(3):
        d = dp.Private(rng.normal(size=4) + 3, name=f"d{k}", adjacency=dp.Within(0.1))
        cost = cp.sum_squares(rng.normal(size=(4, 2)) @ x - d)
        agents.append(dp.Agent(cp.Minimize(cost), name=f"a{k}"))
    plan = dp.Problem(agents).plan(
        dp.DecentralizedGradient(step=rule), mechanism=dp.Gaussian(noise_multiplier=1.0),
        delta=1e-6, rounds=45,
    )  # fmt: skip
    assert dp.check_sensitivity(plan).passed


# -- declarations ----------------------------------------------------------------------------------


@pytest.mark.parametrize("aggregate", ["mean", "pair"])
@pytest.mark.parametrize("graph", ["ring", "star", "path"])
def test_aggregates_of_everyone_need_everyone(aggregate, graph):
    with pytest.raises(dp.ModelError) as caught:
        noiseless(study(), dp.DecentralizedGradient(graph, 0.1, aggregate))
    text = str(caught.value)
    assert (
        f"aggregate='{aggregate}'" in text
        and "some agents of this network are not neighbors" in text
    )
    assert "graph='complete'" in text and "aggregate='mixing' or 'range'" in text
    ring_of_three = noiseless(study(3), dp.DecentralizedGradient("ring", 0.1, aggregate))
    assert ring_of_three.algorithm.graph.complete


@pytest.mark.parametrize("step", ["fast", True, 0.0, -1.0, np.nan])
def test_what_is_no_step_size_is_refused(step):
    with pytest.raises(dp.ModelError):
        dp.DecentralizedGradient(step=step)


def test_unknown_weights_are_refused():
    with pytest.raises(dp.ModelError, match="weights called 'equal'"):
        noiseless(study(), dp.DecentralizedGradient("ring", 0.1, weights="equal"))


def test_steps_without_noise_fall_only_where_a_constant_one_stops_short():
    given = study()
    mixing = noiseless(given, dp.DecentralizedGradient()).algorithm.step
    assert isinstance(mixing, dp.steps.Sqrt)
    assert mixing.first == pytest.approx(1 / given.smoothness)
    mean = noiseless(given, dp.DecentralizedGradient(aggregate="mean")).algorithm.step
    assert isinstance(mean, dp.steps.Constant)
    assert mean.step == pytest.approx(1 / given.smoothness)
    assert noiseless(given, dp.DecentralizedGradient(step=0.2)).algorithm.step == dp.steps.Constant(
        0.2
    )
    rule = noiseless(given, dp.DecentralizedGradient(step=dp.steps.Geometric(0.9))).algorithm.step
    assert rule.ratio == 0.9 and rule.first == pytest.approx(1 / given.smoothness)


@pytest.mark.parametrize("rule", [dp.steps.Constant(), dp.steps.Geometric(0.9)])
def test_a_step_size_without_a_smoothness_constant_is_refused(rule):
    x = cp.Variable(2, name="x")
    X = dp.Private(np.eye(2), name="X", adjacency=dp.Rows(1.0))
    jumps = cp.sum(cp.abs(X @ x - 1))
    agents = [dp.Agent(cp.Minimize(jumps), name="a"), dp.Agent(cp.Minimize(x[0]), name="b")]
    name = type(rule).__name__
    with pytest.raises(dp.ModelError, match=f"agent 'a'.*dp.steps.{name}.*dp.steps.Sqrt"):
        dp.Problem(agents).plan(dp.DecentralizedGradient(step=rule), mechanism=None, rounds=2)
    plan = dp.Problem(agents).plan(dp.DecentralizedGradient(), mechanism=None, rounds=2)
    assert plan.run().rounds == 2


def test_texts_name_the_aggregate_the_network_and_the_steps():
    assert str(dp.DecentralizedGradient()) == (
        "decentralized gradient descent (mixing) over complete, a step that the plan chooses"
    )
    plan = noisy(study(), dp.DecentralizedGradient("ring", 0.1, "range"))
    text = str(plan.algorithm)
    assert text.startswith("decentralized gradient descent (range) over 5 agents, 5 edges")
    assert text.endswith("step = 0.1")


# -- random coordinates ----------------------------------------------------------------------------


def test_of_a_point_the_drawn_entries_move_and_no_others():
    given = study(6)
    algorithm = dp.DecentralizedGradient("ring", 0.1, coordinates=2)
    plan = given.problem.plan(algorithm, mechanism=None, rounds=12)
    path = points(plan.run(seed=1, iterates=True))
    net, before = plan.algorithm.graph, np.zeros((6, 3))
    for t, X in enumerate(path, start=1):
        only = drawn(t, 3, 2)
        for i in range(6):
            center = net.weights[i] @ before
            expected = before[i].copy()
            expected[only] = (center - 0.1 * given.gradient(i, before[i]))[only]
            assert X[i] == pytest.approx(expected, abs=1e-12)
        before = X


def test_one_agent_moves_the_drawn_entry_of_its_own_point():
    """(72) as it is printed, and noise that covers what one entry can tell."""
    A, b = np.random.default_rng(5).normal(size=(2, 4, 4))
    x = cp.Variable(4, name="x")
    d = dp.Private(b[0], name="d", adjacency=dp.Within(0.1))
    agent = dp.Agent(cp.Minimize(cp.sum_squares(A @ x - d)), [cp.abs(x) <= 0.3], name="a")
    method = dp.DecentralizedGradient(step=0.1, coordinates=1)
    problem = dp.Problem([agent])
    silent = problem.plan(method, mechanism=None, rounds=30).run(iterates=True)
    path = points(silent)[:, 0]
    before = np.zeros(4)
    for t, point in enumerate(path, start=1):
        only = drawn(t, 4, 1)
        before[only] = np.clip(before - 0.2 * A.T @ (A @ before - b[0]), -0.3, 0.3)[only]
        assert point == pytest.approx(before, abs=1e-12)
    assert (np.abs(path) == 0.3).any() and (np.abs(path[-1]) < 0.3).any()
    plan = problem.plan(method, mechanism=dp.Laplace(), rounds=30, epsilon=30.0, delta=0)
    spent = plan.run(seed=2).ledger["a"].entries
    charged = [0.1 * 0.1 * 2 * np.abs(A[:, drawn(t, 4, 1)]).max() for t in range(1, 31)]
    assert [e.sensitivity for e in spent] == pytest.approx(charged, rel=1e-3)
    assert dp.check_sensitivity(plan).passed and "by one agent" in str(plan)


def test_one_agent_has_no_ring():
    one = dp.Problem([dp.Agent(cp.Minimize(cp.square(cp.Variable(name="x"))), name="a")])
    with pytest.raises(dp.ModelError, match="two agents or more"):
        one.plan(dp.DecentralizedGradient("ring", 0.1), mechanism=None, rounds=2)


def test_entries_are_drawn_alike_and_everywhere():
    """4000 draws of one of five: a count misses 800 by five deviations with probability 6e-7."""
    counts = np.bincount([drawn(t, 5, 1).item() for t in range(4000)], minlength=5)
    assert np.abs(counts - 800).max() < 5 * np.sqrt(4000 * 0.2 * 0.8)
    assert all(len(set(drawn(t, 5, 3))) == 3 for t in range(50))
    assert drawn(7, 5, 2).tolist() == drawn(7, 5, 2).tolist()


def test_all_entries_are_the_method_without_drawing():
    given = study(4)
    results = [
        noisy(given, dp.DecentralizedGradient("ring", 0.1, coordinates=c)).run(seed=3)
        for c in (None, 3, 99)
    ]
    for other in results[1:]:
        # The plan is another one, and with it the noise; what is charged is the same.
        assert [e.sensitivity for e in other.ledger["a"].entries] == [
            e.sensitivity for e in results[0].ledger["a"].entries
        ]


def test_noise_covers_the_entries_that_move():
    """One entry of a gradient moves less than the gradient as a whole."""
    given = study(4)
    spent = {}
    for count in (1, 3):
        plan = noisy(given, dp.DecentralizedGradient("ring", 0.1, coordinates=count), rounds=9)
        found = dp.check_sensitivity(plan)
        assert found.passed and min(agent.ratio for agent in found.agents) > 0.9
        spent[count] = plan.run(seed=0)
    one, all_ = (np.mean([e.sensitivity for e in spent[c].ledger["a"].entries]) for c in (1, 3))
    assert one < 0.9 * all_
    # The same multiplier in as many releases: the same guarantee.
    assert spent[1].guarantee.epsilon == spent[3].guarantee.epsilon


def test_without_noise_random_entries_lead_to_the_optimum_as_well():
    given = study(5)
    algorithm = dp.DecentralizedGradient("complete", 0.5, "mean", coordinates=1)
    plan = given.problem.plan(algorithm, mechanism=None, rounds=600)
    X = np.array(plan.run().last.vectors)
    assert X.mean(axis=0) == pytest.approx(given.optimum, abs=1e-9)


@pytest.mark.parametrize("count", [0, -1, 1.5, True, "all"])
def test_a_number_of_entries_is_a_positive_int(count):
    with pytest.raises(dp.ModelError, match="coordinates=.*int of at least 1"):
        dp.DecentralizedGradient(coordinates=count)
