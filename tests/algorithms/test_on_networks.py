"""Mail along the edges of a network: who hears what, and nothing else."""

import gc
import pickle
from dataclasses import dataclass, replace
from functools import cache

import cvxpy as cp
import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpcvx as dp
from dpcvx.algorithms.base import Local
from dpcvx.algorithms.on_networks import Inbox, Inboxes, NeighborMethod, NetworkState, spread
from dpcvx.privacy.randomness import Seeded
from dpcvx.run.gate import PrivacyGate
from dpcvx.run.private_oracle import PrivateOracle
from dpcvx.sensitivity.queries.gradients import Step
from dpcvx.solvers.projector import Projector
from tests.helpers import contains
from tests.run.test_resume import cut, ends, full, put, same

METHODS = {
    "ADMM": lambda graph="ring": dp.DecentralizedADMM(graph=graph),
    "mixing": lambda graph="ring": dp.DecentralizedGradient(graph, step=0.05),
    "mean": lambda graph="complete": dp.DecentralizedGradient(graph, 0.05, "mean"),
    "pair": lambda graph="complete": dp.DecentralizedGradient(graph, 0.05, "pair"),
    "range": lambda graph="ring": dp.DecentralizedGradient(graph, 0.05, "range"),
}
SECRETIVE = ["ADMM", "pair", "range"]
every = pytest.mark.parametrize("name", METHODS)
secretive = pytest.mark.parametrize("name", SECRETIVE)


@dataclass(frozen=True)
class Study:
    """Least squares of several agents in one vector, and the numbers they were built from."""

    problem: dp.Problem
    x: cp.Variable
    A: tuple
    b: tuple

    def gradient(self, k, x):
        return self.A[k].T @ (self.A[k] @ x - self.b[k])

    def slope(self, x):
        """Gradient of the sum."""
        return sum(self.gradient(k, x) for k in range(len(self.A)))

    @property
    def smoothness(self):
        return max(np.linalg.norm(A.T @ A, 2) for A in self.A)

    @property
    def optimum(self):
        """Without constraints."""
        return np.linalg.lstsq(np.vstack(self.A), np.concatenate(self.b))[0]


def study(agents=5, n=3, seed=0, sets=None, order=None, public=()):
    """Agents a, b, c, ... in a given order; `sets` makes the constraints of the k-th of them."""
    rng = np.random.default_rng(seed)
    x = cp.Variable(n, name="x")
    A = [np.linalg.qr(rng.normal(size=(n + 1, n)))[0] for _ in range(agents)]
    A = [Q * rng.uniform(0.7, 1.3, size=n) for Q in A]
    b = [rng.normal(size=n + 1) for _ in range(agents)]
    made = []
    for k in order or range(agents):
        name = "abcdefghijkl"[k]
        d = b[k] if k in public else dp.Private(b[k], name=f"d{name}", adjacency=dp.Within(0.1))
        limits = [] if sets is None else sets(k, x)
        made.append(dp.Agent(cp.Minimize(cp.sum_squares(A[k] @ x - d) / 2), limits, name=name))
    return Study(dp.Problem(made), x, tuple(A), tuple(b))


def noiseless(given, algorithm, rounds=5):
    return given.problem.plan(algorithm, mechanism=None, rounds=rounds)


def noisy(given, algorithm, rounds=5, **arguments):
    settings = {"mechanism": dp.Gaussian(noise_multiplier=3.0), "delta": 1e-6} | arguments
    return given.problem.plan(algorithm, rounds=rounds, **settings)


@cache
def usual(name):
    """A noisy plan of five rounds and five agents."""
    return noisy(study(), METHODS[name]())


def points(result):
    """Every agent's x after every round, shape (rounds, agents, n)."""
    return np.array([iterate.last.vectors for iterate in result.iterates])


@pytest.fixture
def weights(monkeypatch):
    """What agents draw and keep to themselves, by agent and round."""
    drawn, honest = {}, PrivacyGate.uniform

    def uniform(self, t, size):
        rows = honest(self, t, size)
        drawn.update({(agent, t): row for agent, row in zip(self.agents, rows, strict=True)})
        return rows

    monkeypatch.setattr(PrivacyGate, "uniform", uniform)
    return drawn


# -- what arrives ----------------------------------------------------------------------------------


@pytest.fixture
def heard(monkeypatch):
    """Inboxes by agent and round, in runs where agent k sends `taint(k, t)` whatever it found."""
    seen = {}
    for method in (dp.DecentralizedADMM, dp.DecentralizedGradient):

        def act(self, local, state, t, k, message, oracle, honest=method.act):
            seen[message.own, t] = pickle.loads(pickle.dumps(message)), message
            state, reply = honest(self, local, state, t, k, message, oracle)
            return state, np.full(reply.shape, taint(message.own, t))

        monkeypatch.setattr(method, "act", act)
    return seen


def taint(agent, t):
    return 0.1234567 * (agent + 1) + 10.7654321 * t


GRAPHS = {
    "ring": nx.cycle_graph(5),
    "star": nx.star_graph(4),
    "path": nx.path_graph(5),
    "random": dp.networks.random(list("abcde"), 6, seed=3).graph(),
}


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("name", ["ADMM", "mixing", "range"])
def test_an_inbox_holds_the_messages_of_the_neighbors_and_of_nobody_else(heard, name, graph):
    given = study()
    noisy(given, METHODS[name](GRAPHS[graph]), rounds=3).run(seed=1)
    net = dp.networks.build(GRAPHS[graph], list("abcde"))
    assert len(heard) == 15
    for (agent, t), (copy, inbox) in heard.items():
        assert inbox.own == agent
        assert inbox.senders == net.neighbors[agent]
        last = [0.0 if t == 1 else taint(k, t - 1) for k in range(5)]
        assert np.array_equal(inbox.values, [[last[j]] * 3 for j in inbox.senders])
        row = [net.weights[agent, j] for j in (*inbox.senders, agent)]
        assert np.array_equal(inbox.weights, row)
        for j in range(5):
            for past in range(1, t):
                expected = j in inbox.senders and past == t - 1
                assert contains((copy, inbox), taint(j, past)) == expected


@every
def test_nothing_else_is_reachable_from_an_inbox(heard, name):
    """Not even through the memory of which an array is a part."""
    usual(name).run(seed=1)
    for _, inbox in heard.values():
        assert vars(inbox).keys() == {"own", "senders", "values", "weights"}
        known, left = {}, [vars(inbox)]
        while left:
            thing = left.pop()
            if id(thing) not in known:
                known[id(thing)] = thing
                left += gc.get_referents(thing) if not isinstance(thing, type) else []
        kinds = {type(thing) for thing in known.values()}
        assert kinds <= {dict, str, int, float, tuple, np.ndarray, np.dtype}
        assert inbox.values.base is None and inbox.weights.base is None


def descendants(kind):
    for other in kind.__subclasses__():
        yield other
        yield from descendants(other)


def test_no_method_makes_its_own_mail():
    found = set(descendants(NeighborMethod))
    assert {dp.DecentralizedADMM, dp.DecentralizedGradient} <= found
    for name in ("send", "receive"):
        assert getattr(NeighborMethod, name).__final__
        for kind in found:
            assert getattr(kind, name) is getattr(NeighborMethod, name)


def test_mail_is_made_from_the_last_values_alone():
    net = dp.networks.build("path", list("abc"))
    sent = np.array([[k, 10.0 * k] for k in range(3)])
    method = dp.DecentralizedADMM(graph=net)
    server, boxes = method.send(NetworkState(net, sent, sent, sent), 7, 0)
    assert [box.senders for box in boxes] == [(1,), (0, 2), (1,)]
    assert boxes[1].values.tolist() == [[0.0, 0.0], [2.0, 20.0]]
    replies = [np.array([3.0, 0.0]), np.array([0.0, 3.0]), np.array([0.0, 0.0])]
    after = method.receive(server, 7, 0, replies)
    assert method.send(after, 8, 0)[1][1].values.tolist() == [[3.0, 0.0], [0.0, 0.0]]
    found = method.residuals(after)
    gaps = np.array(replies) - [1.0, 1.0]
    assert found.primal == pytest.approx(np.sqrt(np.sum(gaps**2)))
    assert found.dual == pytest.approx(np.linalg.norm(np.array(replies) - sent))
    assert (found.mismatch, found.penalty) == (2.0, 0.0)


@settings(max_examples=60, deadline=None)
@given(
    count=st.integers(2, 9),
    extra=st.integers(0, 8),
    m=st.sampled_from([1, 2, 5]),
    seed=st.integers(0, 10**6),
)
def test_what_all_hear_is_what_each_of_them_hears_bit_by_bit(count, extra, m, seed):
    names = [f"a{k}" for k in range(count)]
    edges = min(count - 1 + extra, count * (count - 1) // 2)
    net = dp.networks.random(names, edges, seed)
    rng = np.random.default_rng(seed)
    X, own = rng.normal(size=(2, count, m)) * 10.0 ** rng.integers(-8, 8, size=(2, count, 1))
    heard = Inboxes(net, X)
    boxes = [heard.one(i) for i in range(count)]
    least, most = heard.extremes(own)
    for i, box in enumerate(boxes):
        assert (box.own, box.senders) == (i, net.neighbors[i])
        assert np.array_equal(box.values, X[list(net.neighbors[i])])
        assert np.array_equal(heard.weighted()[i], box.weighted())
        assert np.array_equal(heard.summed()[i], box.summed())
        assert np.array_equal(heard.summed(own)[i], box.summed(own[i]))
        assert np.array_equal(heard.summed(own[0])[i], box.summed(own[0]))
        assert np.array_equal((least[i], most[i]), box.extremes(own[i]))
        assert heard.own_weight[i] == box.own_weight == net.weights[i, i]
        assert heard.degree[i] == box.degree == net.degrees[i]
        if net.complete:
            everyone = np.array(X)
            everyone[i] = own[i]
            assert np.array_equal(box.mean_of_all(own[i]), Inboxes(net, X).mean_of_all(everyone))
    adjacency = np.diag(net.degrees) - net.laplacian
    size = np.abs(adjacency) @ np.abs(X)
    weighted = heard.weighted() + heard.own_weight * X
    assert np.all(np.abs(weighted - net.weights @ X) <= 1e-14 * (size + np.abs(X)))
    assert np.all(np.abs(heard.summed() - adjacency @ X) <= 1e-14 * size)


def test_who_hears_nobody_adds_up_nothing():
    box = Inbox(0, (), np.zeros((0, 3)), np.ones(1))
    assert not box.weighted().any() and box.weighted().shape == (3,)
    assert np.array_equal(box.mean_of_all(np.arange(3.0)), np.arange(3.0))
    assert all(np.array_equal(found, np.arange(3.0)) for found in box.extremes(np.arange(3.0)))


# -- slots -----------------------------------------------------------------------------------------


def scrambled():
    """Agents that use two shared variables in other orders, one with a variable of its own."""
    rng = np.random.default_rng(5)
    u, v, own = cp.Variable(2, name="u"), cp.Variable(2, name="v"), cp.Variable(2, name="own")
    b = rng.normal(size=(3, 4))
    d = [dp.Private(b[k], name=f"d{k}", adjacency=dp.Within(0.1)) for k in range(3)]
    costs = [
        cp.sum_squares(cp.hstack([u, v]) - d[0]),
        cp.sum_squares(cp.hstack([v, u]) - d[1]),
        cp.sum_squares(cp.hstack([v + own, u]) - d[2]) + cp.sum_squares(own),
    ]
    agents = [dp.Agent(cp.Minimize(cost), name=f"a{k}") for k, cost in enumerate(costs)]
    return dp.Problem(agents), u, v, own, b


def test_values_arrive_at_the_variables_they_belong_to():
    problem, u, v, own, b = scrambled()
    plan = problem.plan(dp.DecentralizedADMM(graph="path"), mechanism=None, rounds=400)
    result = plan.run(seed=0)
    # own takes half of what is left of v, so the third agent's part in v has half the weight.
    u_best = (b[0, :2] + b[1, 2:] + b[2, 2:]) / 3
    v_best = (b[0, 2:] + b[1, :2] + 0.5 * b[2, :2]) / 2.5
    for k in range(3):
        assert result.last.of(f"a{k}", u) == pytest.approx(u_best, abs=1e-9)
        assert result.last.of(f"a{k}", v) == pytest.approx(v_best, abs=1e-9)
    assert result.last[own] == pytest.approx((b[2, :2] - v_best) / 2, abs=1e-9)


def test_agents_share_what_they_have_at_the_start():
    problem, u, v, _, _ = scrambled()
    problem = replace(problem, start={u: [1.0, 2.0], v: [3.0, 4.0]})
    plan = problem.plan(dp.DecentralizedADMM(graph="path"), mechanism=None, rounds=1)
    sent = plan.algorithm.start_server(plan.program).sent
    assert len({s.tobytes() for s in sent}) == 1
    assert sorted(sent[0]) == [1.0, 2.0, 3.0, 4.0]


def test_shared_values_are_put_where_the_agent_has_them():
    problem, _, _, _, _ = scrambled()
    plan = problem.plan(dp.DecentralizedADMM(graph="path"), mechanism=None, rounds=1)
    for agent in plan.program.agents:
        tools = Local(agent, Projector(agent.constraints, agent.name), None, lambda x: x)
        x, shared = np.arange(10.0, 10.0 + agent.n), np.array([1.0, 2.0, 3.0, 4.0])
        out = spread(tools, x, shared)
        assert np.array_equal(out[agent.shared], shared[agent.slots])
        own = np.setdiff1d(np.arange(agent.n), agent.shared)
        assert np.array_equal(out[own], x[own])
        assert np.array_equal(x, np.arange(10.0, 10.0 + agent.n))


# -- order of the agents ---------------------------------------------------------------------------

UNLABELLED = {
    "ADMM": lambda graph: dp.DecentralizedADMM(graph=graph, randomness=0.0),
    "mixing": lambda graph: dp.DecentralizedGradient(graph, step=0.05),
}


@pytest.mark.parametrize("name", UNLABELLED)
@pytest.mark.parametrize("limits", [None, lambda k, x: [cp.abs(x) <= 0.3]], ids=["free", "box"])
def test_the_order_of_the_agents_makes_no_difference(name, limits):
    graph = nx.relabel_nodes(GRAPHS["random"], {})
    found = []
    for order in ([0, 1, 2, 3, 4], [3, 0, 4, 2, 1]):
        given = study(sets=limits, order=order)
        result = noiseless(given, UNLABELLED[name](graph), 30).run()
        found.append([result.last.of(a, given.x) for a in "abcde"])
    assert np.array(found[0]) == pytest.approx(np.array(found[1]), abs=1e-12)
    assert np.ptp(found[0], axis=0).max() > 1e-6  # they differ, and which is whose matters


# -- secret weights --------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::dpcvx.RepeatWarning")
@secretive
def test_weights_are_fresh_for_every_agent_and_round_and_follow_the_seed(weights, name):
    drawn = []
    for seed in (3, 3, 4, None, None):
        weights.clear()
        usual(name).run(seed=seed)
        assert len(weights) == 25 and {w.size for w in weights.values()} == {3}
        drawn.append(np.array([weights[place] for place in sorted(weights)]))
        assert len(set(drawn[-1].ravel())) == 75
        assert (drawn[-1] >= 0).all() and (drawn[-1] < 1).all()
    assert np.array_equal(drawn[0], drawn[1])
    for one, other in ((0, 2), (0, 3), (3, 4)):
        assert not set(drawn[one].ravel()) & set(drawn[other].ravel())


@secretive
def test_weights_are_in_nothing_that_comes_back(weights, name, tmp_path):
    given = study()
    plan = noisy(given, METHODS[name](), rounds=3)
    path = tmp_path / "ledger.jsonl"
    result = plan.run(seed=3, record=True, iterates=True, ledger=path)
    secrets = np.array(list(weights.values()))
    things = (plan, result, result.ledger, result.transcript, result.iterates, result.history)
    for thing in (*things, path.read_bytes(), plan.problem):
        assert not contains(thing, secrets)
    # The search finds them where they are.
    assert contains({"w": secrets[0]}, secrets)


@secretive
def test_weights_and_noise_come_from_streams_of_their_own(monkeypatch, name):
    asked, honest = [], Seeded.at

    def at(self, round, step):
        asked.append((self.key, round, step))
        return honest(self, round, step)

    monkeypatch.setattr(Seeded, "at", at)
    usual(name).run(seed=3)
    rounds = [place for place in asked if place[1] > 0]
    assert len(rounds) == len(set(rounds)) == 5 * 5 * 2
    assert {step for _, _, step in rounds} == {0, 1}


def test_fixed_weights_need_no_randomness():
    given = study()
    for randomness, equal in ((0.0, True), (0.5, False)):
        algorithm = dp.DecentralizedADMM(graph="ring", randomness=randomness)
        one, other = (noiseless(given, algorithm).run() for _ in range(2))
        pairs = zip(one.last.vectors, other.last.vectors, strict=True)
        assert all(np.array_equal(a, b) for a, b in pairs) == equal
        assert one.guarantee.kind == "none"


# -- what leaves -----------------------------------------------------------------------------------


@every
def test_the_new_point_leaves_with_its_noise_and_is_then_projected(name):
    given = study(sets=lambda k, x: [cp.abs(x) <= 0.2])
    result = noisy(given, METHODS[name](), rounds=6).run(seed=2, record=True, iterates=True)
    xs = points(result)
    outside = 0
    for release in result.transcript.releases:
        assert xs[release.round - 1, release.agent] == pytest.approx(
            np.clip(release.value, -0.2, 0.2), abs=1e-12
        )
        outside += np.abs(release.value).max() > 0.2
    assert outside > 0 and len(result.transcript.releases) == 30
    assert {e.released for a in result.ledger.values() for e in a.entries} == {"iterate"}
    average = np.array(result.average.vectors)
    assert average == pytest.approx(xs.mean(axis=0), abs=1e-12)


@every
def test_what_is_charged_is_the_step_size_times_the_gradients_sensitivity(name):
    given, plan = study(), usual(name)
    result = plan.run(seed=2)
    size = 0.05 if name != "ADMM" else plan.algorithm.step
    for k, account in enumerate(result.ledger.values()):
        change = 0.1 * np.linalg.norm(given.A[k].T, axis=0).max()
        assert [e.sensitivity for e in account.entries] == pytest.approx(
            [size * change] * 5, rel=1e-4
        )


@pytest.mark.filterwarnings("ignore::dpcvx.RepeatWarning")
@secretive
def test_what_left_before_a_run_was_killed_is_not_drawn_again(name, tmp_path):
    path = tmp_path / "ledger.jsonl"
    plan = noisy(study(3, n=2), METHODS[name](), rounds=3)
    _, raw = full(plan, path)
    places = ends(raw)
    for size in places[len(places) // 2 : -1 : 3]:
        put(path, cut(raw, size))
        again = plan.run(ledger=path, record=True)
        same(again, plan.replay(again.transcript))
        same(again, plan.replay(path))


@secretive
def test_a_file_gives_out_the_result_of_agents_without_data(name, tmp_path):
    path = tmp_path / "ledger.jsonl"
    plan = noisy(study(3, n=2, public=(1,)), METHODS[name](), rounds=4)
    result = plan.run(ledger=path, record=True)
    same(result, plan.replay(result.transcript))
    same(result, plan.replay(path))


@pytest.mark.filterwarnings("ignore::dpcvx.RepeatWarning")
@secretive
def test_agents_without_data_go_on_from_where_they_were(name, tmp_path):
    """Their points are what neighbors heard, and what the released ones were computed from."""
    path = tmp_path / "ledger.jsonl"
    plan = noisy(study(3, n=2, public=(1,)), METHODS[name](), rounds=4)
    result, raw = full(plan, path, iterates=True)
    put(path, cut(raw, ends(raw)[-2]))  # all has left but the last word
    again = plan.run(ledger=path, iterates=True)
    assert np.array_equal(points(result)[:3], points(again)[:3])


@pytest.mark.parametrize("name", ["ADMM", "mixing"])
def test_the_average_is_reported_under_noise_and_the_last_iterate_without(name):
    given, algorithm = study(), replace(METHODS[name](), step=0.05)
    assert noisy(given, algorithm).run(seed=1).reported == "average"
    assert noiseless(given, algorithm).run().reported == "last"
    for output in ("average", "last"):
        chosen = replace(algorithm, returned=output)
        assert noisy(given, chosen).run(seed=1).reported == output
        assert noiseless(given, chosen).run().reported == output


def test_a_tolerance_ends_a_run_that_agrees_and_rests():
    given = study()
    result = noiseless(given, dp.DecentralizedADMM(graph="ring"), 3000).run(tolerance=1e-8)
    assert result.status is dp.Status.CONVERGED
    assert 1 < result.rounds < 3000
    assert result.last[given.x] == pytest.approx(given.optimum, abs=1e-6)


def test_a_solver_that_fails_keeps_the_point(monkeypatch):
    given = study(3, sets=lambda k, x: [cp.norm(x) <= 0.4])  # asks nothing compiled
    plan = noiseless(given, dp.DecentralizedADMM(graph="path", randomness=0.0), 4)
    honest, calls = Projector.__call__, []

    def fails_once(self, v, D, weight=1.0):
        calls.append(1)
        found = honest(self, v, D)
        return found._replace(x=None) if len(calls) == 4 else found

    monkeypatch.setattr(Projector, "__call__", fails_once)
    xs = points(plan.run(iterates=True, executor=dp.Serial()))
    assert np.array_equal(xs[1, 0], xs[0, 0])
    assert not np.array_equal(xs[1, 1], xs[0, 1])


# -- problems and networks that do not fit ---------------------------------------------------------


def refused(plan, *message):
    with pytest.raises(dp.ModelError) as caught:
        plan()
    text = str(caught.value)
    assert all(part in text for part in message), text


@every
def test_agents_that_miss_a_shared_variable_are_refused(name):
    x, y = cp.Variable(2, name="x"), cp.Variable(name="y")
    d = dp.Private(np.zeros(2), name="d", adjacency=dp.Within(0.1))
    agents = [
        dp.Agent(cp.Minimize(cp.sum_squares(x - d) + cp.square(y)), name="one"),
        dp.Agent(cp.Minimize(cp.sum_squares(x) + cp.square(y)), name="two"),
        dp.Agent(cp.Minimize(cp.sum_squares(x)), name="three"),
    ]
    refused(
        lambda: dp.Problem(agents).plan(METHODS[name](), mechanism=None, rounds=1),
        "Agent 'three' holds 2 of the 3 shared entries", "0 @ x", "dp.LinearizedADMM",
    )  # fmt: skip
    agents[2] = dp.Agent(cp.Minimize(cp.sum_squares(x) + 0 * y), name="three")
    assert noiseless(Study(dp.Problem(agents), x, (), ()), METHODS[name]()).run().rounds == 5


def test_a_network_in_parts_is_refused():
    graph = nx.Graph([("a", "b"), ("c", "d"), ("d", "e")])
    for algorithm in (dp.DecentralizedADMM(graph), dp.DecentralizedGradient(graph)):
        refused(
            lambda a=algorithm: noiseless(study(), a), "falls into 2 parts", "'a', 'b'", "add edges"
        )


def test_a_network_of_other_agents_or_another_order_is_refused():
    for names in ("abcd", "edcba", "vwxyz"):
        algorithm = dp.DecentralizedADMM(graph=dp.networks.build("path", list(names)))
        refused(lambda a=algorithm: noiseless(study(), a), "a, b, c, d, e", "in this order")
    right = dp.networks.build("path", list("abcde"), "laplacian")
    plan = noiseless(study(), dp.DecentralizedGradient(right, 0.05))
    assert plan.algorithm.graph is right


def test_a_single_agent_has_no_neighbors():
    refused(lambda: noiseless(study(1), dp.DecentralizedADMM()), "two agents or more")


@pytest.mark.parametrize("graph", ["circle", 3, nx.DiGraph([("a", "b")])])
def test_what_is_no_network_is_refused(graph):
    with pytest.raises(dp.ModelError):
        noiseless(study(), dp.DecentralizedADMM(graph=graph))


def test_another_network_is_another_plan():
    given = study()
    plans = [
        noisy(given, dp.DecentralizedADMM(graph=g, step=1 / 8, penalty=0.5))
        for g in ("ring", "path")
    ]
    plans += [noisy(given, dp.DecentralizedGradient("ring", 0.1, weights=w))
              for w in ("metropolis", "laplacian")]  # fmt: skip
    assert len({plan.fingerprint for plan in plans}) == 4
    result = plans[0].run(seed=1, record=True)
    with pytest.raises(dp.PrivacyError, match="another plan"):
        plans[1].replay(result.transcript)


def test_an_oracle_is_asked_for_whole_points_only(monkeypatch):
    """A gradient on its own would leave the center, and with it the weights, to be guessed."""
    asked = []
    honest = PrivateOracle.release

    def release(self, query):
        asked.append(type(query))
        return honest(self, query)

    monkeypatch.setattr(PrivateOracle, "release", release)
    for name in METHODS:
        usual(name).run(seed=1)
    assert asked == [Step] * 5 * 5 * 5


def test_an_inbox_is_made_anew_for_every_agent():
    net = dp.networks.build("complete", list("abc"))
    zeros = np.zeros((3, 2))
    server = NetworkState(net, zeros, zeros, zeros)
    _, boxes = dp.DecentralizedADMM(graph=net).send(server, 1, 0)
    assert all(isinstance(box, Inbox) for box in boxes)
    boxes[0].values[:] = 1.0
    assert all(not box.values.any() for box in boxes[1:])
    assert all(not value.any() for value in server.sent)
