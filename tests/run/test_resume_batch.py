"""Batches of identical agents against the same agents one by one, bit for bit."""

import json
import math
from dataclasses import dataclass, replace
from functools import cache, partial

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import dpcvx as dp
from dpcvx.run import live
from dpcvx.run.part import gate_of, oracle_of, parts_of
from dpcvx.run.resume import begin, is_batch
from dpcvx.sensitivity.queries.gradients import Gradient, Step
from dpcvx.sensitivity.stored_vectors import LinearCombination
from dpcvx.solvers.steps import Contraction
from tests.spies import watch_releases

W = cp.Variable(3, name="w")
BUDGET = {"epsilon": 1.0, "delta": 1e-6}


class Apart(dp.Serial):
    """No executor of the package, so that agents take their turns one by one."""


def oracle(parts, begun, sources, seed):
    """Of the agents of a gate."""
    return oracle_of(parts, sources, gate_of(parts, begun, seed=seed))()


@dataclass(frozen=True)
class Client:
    """What an agent is made of; each field matters to what is charged or released."""

    factor: float = 1.0
    bound: float = 1.0
    change: str = "replace_one"
    signed: bool = False
    clip: float | None = None
    box: float = 5.0
    adjacency: str = "rows"
    own: bool = False
    loss: str = "logistic"
    set: str = "box"
    sparse: bool = False

    def agent(self, k, seed=0):
        rng = np.random.default_rng([seed, k])
        rows = np.abs(rng.normal(size=(6, 3)))
        rows *= self.bound / np.maximum(self.bound, np.linalg.norm(rows, axis=1))[:, None]
        adjacency = dp.Rows(self.bound, relation=self.change)
        if self.adjacency == "entry":
            adjacency, rows = dp.Within(self.bound), rows[:, 0]
        if self.sparse:
            rows = sp.csr_array(np.where(rows > 0.5, rows, 0.0))
        data = dp.Private(rows, name=f"X{k}", adjacency=adjacency, nonneg=self.signed)
        atom = {
            "logistic": cp.logistic,
            "hinge": lambda u: cp.pos(1 - u),
            "softmax": lambda u: cp.log_sum_exp(cp.vstack([u, -u]), axis=0),
            "turned": cp.logistic,
        }[self.loss]
        if self.adjacency == "rows":
            scores = W @ data.T if self.loss == "turned" else data @ W
            terms = [self.factor * cp.sum(atom(scores)) / 6]
        else:
            terms = [cp.sum_squares(np.ones((6, 3)) @ W - data)]
        if self.own:
            terms.append(cp.square(cp.Variable(name=f"z{k}") - W[0]))
        limits = {
            "box": [cp.abs(W) <= self.box],
            "none": [],
            "ball": [cp.norm(W) <= self.box / 4],
            "simplex": [cp.sum(W) == 1, W >= 0],
            "polyhedron": [cp.abs(W) <= 1, W[0] + W[1] <= 1, W[1] + W[2] <= 1],
        }[self.set]
        return dp.Agent(cp.Minimize(sum(terms)), limits, name=f"c{k}", clip_norm=self.clip)


def problem(*clients, seed=0):
    return dp.Problem([client.agent(k, seed) for k, client in enumerate(clients)])


def planned(*clients, seed=0, method=None, **options):
    options = {"rounds": 4, **BUDGET, **options}
    return problem(*clients, seed=seed).plan(method or dp.FederatedGradient(), **options)


METHODS = {
    "sums": dp.FederatedGradient(),
    "means": dp.FederatedAveraging(),
    "linearized": dp.LinearizedADMM(),
    "linearized, E = 2": dp.LinearizedADMM(local_updates=2, penalty=dp.penalties.Growing(1, 5, 2)),
}
# A total budget is met by a search that takes half a second.
LAPLACE = dp.Laplace(noise_multiplier=8.0)
every = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)


def batched(plan):
    return is_batch(plan, begin(parts_of(plan), None, False))


def assert_same(one, other):
    for which in ("last", "average", "tail"):
        a, b = getattr(one, which), getattr(other, which)
        assert all(np.array_equal(u, v) for u, v in zip(a.vectors, b.vectors, strict=True))
    assert one.status == other.status and one.violation == other.violation
    assert list(one.ledger) == list(other.ledger)
    for name in one.ledger:
        assert one.ledger[name] == other.ledger[name]
    assert one.guarantee == other.guarantee


@every
@settings(max_examples=12, deadline=None)
@given(
    count=st.integers(2, 6),
    seed=st.integers(0, 2**31),
    mechanism=st.sampled_from(["gaussian", LAPLACE, dp.Gaussian(noise_multiplier=2.0, decay=0.9)]),
    client=st.sampled_from(
        [
            Client(),
            Client(clip=0.1),
            Client(change="add_or_remove_one"),
            Client(signed=True, bound=2.0),
            Client(loss="hinge", clip=0.2),
            Client(loss="softmax"),
            Client(loss="turned", clip=0.1),
            Client(sparse=True, clip=0.1),
            Client(set="none"),
            Client(set="ball"),
            Client(set="simplex"),
        ]
    ),
)
def test_batch_equals_its_agents_one_by_one(count, seed, mechanism, client, method):
    options = {} if isinstance(mechanism, str) else {"epsilon": None}
    options["method"] = method
    plan = planned(*[client] * count, seed=seed, mechanism=mechanism, **options)
    assert batched(plan)
    assert_same(plan.run(seed=seed), plan.run(seed=seed, executor=Apart()))


@every
@pytest.mark.parametrize(
    "client",
    [Client(loss="softmax"), Client(loss="turned", clip=0.1), Client(sparse=True, clip=0.1)],
    ids=["softmax", "records on the right", "sparse records"],
)
def test_batch_of_any_atoms_and_data_equals_its_agents_one_by_one(client, method):
    plan = planned(*[client] * 3, seed=1, method=method)
    assert batched(plan)
    assert_same(plan.run(seed=1), plan.run(seed=1, executor=Apart()))


OVER_NETWORKS = {
    "mixing": dp.DecentralizedGradient,
    "range": partial(dp.DecentralizedGradient, aggregate="range"),
    "mean": lambda graph: dp.DecentralizedGradient("complete", aggregate="mean"),
    "admm": dp.DecentralizedADMM,
    "admm, fixed weights": partial(dp.DecentralizedADMM, randomness=0.0, growth=1.1),
    "primal-dual": dp.PrimalDual,
}


@settings(max_examples=25, deadline=None)
@given(
    kind=st.sampled_from([*OVER_NETWORKS]),
    graph=st.sampled_from(["complete", "ring", "star", "path", "grid"]),
    count=st.sampled_from([2, 4, 6]),
    seed=st.integers(0, 2**31),
    options=st.sampled_from([{}, {"mechanism": LAPLACE, "epsilon": None}, {"epsilon": 0.05}]),
    client=st.sampled_from(
        [Client(), Client(clip=0.1), Client(set="none"), Client(set="simplex"), Client(set="ball")]
    ),
)
def test_batch_over_a_network_equals_its_agents(kind, graph, count, seed, options, client):
    plan = planned(*[client] * count, seed=seed, method=OVER_NETWORKS[kind](graph), **options)
    assert batched(plan)
    assert_same(plan.run(seed=seed), plan.run(seed=seed, executor=Apart()))


@pytest.mark.parametrize(
    "method",
    [
        dp.DecentralizedGradient("complete", aggregate="pair"),
        dp.DecentralizedGradient("ring", coordinates=1),
        dp.DecentralizedADMM("ring", exact=True),
        dp.GradientTracking("ring", smoothness=1.0),
    ],
    ids=["pair", "coordinates", "exact", "stored vectors"],
)
def test_what_is_computed_from_more_than_gradients_is_computed_one_by_one(method):
    client = Client(set="none") if isinstance(method, dp.GradientTracking) else Client()
    assert not batched(planned(*[client] * 4, method=method))


@pytest.mark.parametrize("options", [{}, {"mechanism": "laplace", "rounds": 4}])
def test_default_for_records_is_a_batch(options):
    plan = problem(*[Client()] * 4).plan(**BUDGET, **options)
    assert batched(plan)
    assert_same(plan.run(seed=1), plan.run(seed=1, executor=Apart()))


CHANGED = {
    "a constant": {"factor": math.nextafter(1.0, 2.0)},
    "a bound": {"bound": 1.0000001},
    "what a change is": {"change": "add_or_remove_one"},
    "a sign": {"signed": True},
    "a clip": {"clip": 0.5},
    "the set": {"box": 4.0},
    "the adjacency": {"adjacency": "entry"},
    "a variable of its own": {"own": True},
    "the loss": {"loss": "hinge"},
}


@every
@pytest.mark.parametrize("client", [Client(), Client(set="none")], ids=["box", "no set"])
def test_agents_at_points_of_their_own_are_charged_by_their_own_bounds(tmp_path, client, method):
    """Points that noise drives apart have different bounds, and so noise of different scales."""
    plan = planned(*[client] * 12, method=method, epsilon=0.5, rounds=8)
    assert batched(plan)
    results = [
        plan.run(seed=5, ledger=tmp_path / name, executor=executor)
        for name, executor in (("batch.jsonl", None), ("apart.jsonl", Apart()))
    ]
    assert_same(*results)
    batch, apart = (dp.Ledger.load(tmp_path / f"{name}.jsonl") for name in ("batch", "apart"))
    assert all(batch[name] == apart[name] for name in apart)
    last = {account.entries[-1].sensitivity for account in batch.values()}
    assert len(last) == 1 or not isinstance(method, dp.FederatedAveraging | dp.FederatedGradient)
    assert len(last) > 1 or not isinstance(method, dp.LinearizedADMM)
    replayed = plan.replay(tmp_path / "batch.jsonl")
    assert np.array_equal(replayed.last.vectors[7], results[1].last.vectors[7])
    # A further run goes on from accounts that differ in what they were charged.
    more = planned(*[client] * 12, method=method, epsilon=1.5, rounds=2)
    again = [
        more.run(seed=6, ledger=tmp_path / name, executor=executor)
        for name, executor in (("batch.jsonl", None), ("apart.jsonl", Apart()))
    ]
    assert_same(*again)


@pytest.mark.parametrize("method", [dp.LinearizedADMM(), dp.FederatedAveraging()], ids=["L", "M"])
def test_steps_that_take_a_solver_are_taken_one_by_one(method):
    clients = [Client(set="polyhedron")] * 3
    assert batched(planned(*clients)) and not batched(planned(*clients, method=method))


def test_batch_that_diverges_ends_where_its_agents_do():
    method = dp.LinearizedADMM(penalty=1e-105, step=dp.steps.Sqrt(2e99))
    plan = planned(*[Client(set="none")] * 3, method=method, rounds=9)
    assert batched(plan)
    one, other = plan.run(seed=2), plan.run(seed=2, executor=Apart())
    assert one.status == other.status == dp.Status.DIVERGED
    assert one.rounds == other.rounds < 9


@cache
def identical(method):
    """A plan of four agents that do not differ."""
    return planned(*[Client()] * 4, method=method)


@pytest.mark.parametrize(
    ("place", "method"), [(0, dp.FederatedGradient()), (3, dp.LinearizedADMM())], ids=["0-S", "3-L"]
)
@pytest.mark.parametrize("changed", CHANGED.values(), ids=CHANGED)
def test_one_agent_that_differs_in_anything_has_all_take_turns_alone(changed, place, method):
    clients = [Client()] * 4
    clients[place] = replace(Client(), **changed)
    plan = planned(*clients, method=method)
    assert batched(identical(method)) and not batched(plan)
    run = plan.run(seed=1)
    for k, agent in enumerate(plan.agents):
        # Charged by its own bound: nobody else's stands for it.
        own = agent.sensitivity.near(2, agent.program.start)
        spent = run.ledger[f"c{k}"].entries[0].sensitivity
        assert own <= spent <= own * (1 + 2**-14)


@pytest.mark.parametrize("changed", [CHANGED[k] for k in CHANGED if k != "a variable of its own"])
def test_one_agent_of_a_network_that_differs_has_all_take_turns_alone(changed):
    """But for its neighbors: those may be as many as they like."""
    method = dp.DecentralizedGradient("star")
    assert batched(identical(method))
    for place in (0, 2):
        clients = [Client()] * 4
        clients[place] = replace(Client(), **changed)
        assert not batched(planned(*clients, method=method))


def test_steps_of_rows_are_released_as_steps_one_by_one():
    """Points so large that their rounding decides the grid have grids of their own."""
    plan = planned(*[Client(set="none")] * 6, method=dp.DecentralizedGradient("ring"))
    parts, start = parts_of(plan), begin(parts_of(plan), None, True)
    sources = [[private._seal for private in agent.private] for agent in plan.problem.agents]
    rng = np.random.default_rng(1)
    x = rng.normal(size=(6, 3)) * np.array([1e-3, 1.0, 1.0, 30.0, 1e3, 0.0])[:, np.newaxis]
    center = x * np.array([1.0, 1.0, 1e4, 1.0, 1.0, 1.0])[:, np.newaxis]
    batch = oracle(parts, start.agents, sources, 7)
    found = []
    for t, (at, middle) in enumerate([(x, center), (x[1], center), (x, center[2])], 1):
        batch.begin(t)
        left = batch.release(Step(at, middle, 1e-10))
        for k, part in enumerate(parts):
            lone = oracle([part], [replace(start.agents[k])], [sources[k]], 7)
            lone.begin(t)
            one, other = (v if v.ndim == 1 else v[k] for v in (at, middle))
            assert np.array_equal(left[k], lone.release(Step(one, other, 1e-10)))
            assert batch.accounts()[k].entries[t - 1] == lone.accounts()[0].entries[-1]
        found.append({account.entries[-1].grid for account in batch.accounts()})
    assert [len(grids) for grids in found] == [5, 5, 1]


def test_budgets_and_groups_of_their_own_have_all_take_turns_alone():
    agents = problem(*[Client()] * 3)
    epsilon = {"c0": 1.0, "c1": 1.0, "c2": 0.5}
    plan = agents.plan(dp.FederatedGradient(), rounds=3, epsilon=epsilon, delta=1e-6)
    assert not batched(plan)
    grouped = dp.Problem(agents.agents, groups=[["c0", "c1"]])
    assert not batched(grouped.plan(dp.FederatedGradient(), rounds=3, **BUDGET))


def test_noise_that_is_split_over_agents_is_added_one_by_one():
    method = dp.FederatedGradient(sharing=dp.SecretSharing(limit=1e3))
    assert not batched(problem(*[Client()] * 4).plan(method, rounds=3, **BUDGET))


@every
def test_batch_without_noise_equals_its_agents_one_by_one(method):
    none = {"mechanism": None, "epsilon": None, "delta": None}
    plan = planned(*[Client()] * 3, method=method, **none)
    assert batched(plan)
    assert_same(plan.run(seed=1), plan.run(seed=1, executor=Apart()))


@every
def test_batch_of_gradients_that_are_affine_in_the_data_equals_its_agents_one_by_one(method):
    """The private part is released by itself there, and the public part is added."""
    plan = planned(*[Client(adjacency="entry")] * 3, method=method)
    assert plan.agents[0].sensitivity.splits and batched(plan)
    assert_same(plan.run(seed=1), plan.run(seed=1, executor=Apart()))


@every
def test_batch_whose_gradient_does_not_depend_on_data_equals_its_agents_one_by_one(method):
    w = cp.Variable(2, name="w")

    def agent(k):
        d = dp.Private(np.ones(2), name=f"d{k}", adjacency=dp.Within(0.1))
        return dp.Agent(cp.Minimize(cp.sum_squares(w - 1) + cp.sum(d)), [w <= 3], name=f"c{k}")

    plan = dp.Problem([agent(k) for k in range(3)]).plan(method, rounds=3, **BUDGET)
    assert_same(plan.run(seed=1), plan.run(seed=1, executor=Apart()))


def test_agents_that_have_spent_differently_take_turns_alone():
    plan = planned(*[Client()] * 3)
    first = plan.run(seed=1)
    alone = dp.Ledger((first.ledger["c0"], *(a.account() for a in plan.agents[1:])))
    larger = planned(*[Client()] * 3, epsilon=5.0, rounds=2)
    for ledger, alike in ((first.ledger, True), (alone, False)):
        assert is_batch(larger, begin(parts_of(larger), ledger, True)) is alike
        again, apart = (
            larger.run(seed=2, ledger=ledger, executor=executor) for executor in (None, Apart())
        )
        assert_same(again, apart)


def test_a_ledger_that_leaves_no_room_refuses_as_agents_do():
    plan = planned(*[Client()] * 3)
    spent = plan.run(seed=1).ledger
    messages = []
    for executor in (None, Apart()):
        with pytest.raises(dp.BudgetError) as refused:
            plan.run(seed=2, ledger=spent, executor=executor)
        messages.append(str(refused.value))
    assert messages[0] == messages[1]


@pytest.mark.parametrize("bad", [math.nan, math.inf, 9.0])
def test_data_that_do_not_fit_name_the_agent_whose_they_are(bad):
    plan = planned(*[Client()] * 3)
    wrong = np.full((6, 3), 0.1)
    wrong[3, 1] = bad
    with pytest.raises(dp.DataError, match="'X2'") as refused:
        plan.run(seed=1, data={"X2": lambda: wrong})
    assert "X0" not in str(refused.value) and "9.0" not in str(refused.value)


def test_the_file_has_a_line_per_exchange_and_every_agent_in_it(tmp_path):
    plan = planned(*[Client()] * 3)
    results = [
        plan.run(seed=1, ledger=tmp_path / name, executor=executor)
        for name, executor in (("batch.jsonl", None), ("apart.jsonl", Apart()))
    ]
    assert_same(*results)
    lines = [json.loads(line) for line in (tmp_path / "batch.jsonl").read_text().splitlines()]
    assert len(lines) == 3 + 2 * 4  # head, run, end; a charge and a value a round
    batch, apart = (dp.Ledger.load(tmp_path / f"{n}.jsonl") for n in ("batch", "apart"))
    for name in ("c0", "c1", "c2"):
        assert batch[name] == apart[name]
    for name in ("batch", "apart"):
        replayed = plan.replay(tmp_path / f"{name}.jsonl")
        assert np.array_equal(replayed.last.vectors[1], results[0].last.vectors[1])


class Killed(BaseException):
    """As a process that dies."""


@pytest.mark.parametrize("at", [1, 2, 4])
@pytest.mark.parametrize("seed", [1, None])
@pytest.mark.parametrize("method", [dp.FederatedGradient(), dp.DecentralizedADMM("path")], ids="SN")
def test_interrupted_batch_resumes_and_spends_nothing_twice(
    tmp_path, monkeypatch, at, seed, method
):
    plan = planned(*[Client()] * 3, method=method)
    path, written = tmp_path / "spent.jsonl", []
    append = live.Journal._append

    def dying(journal, *lines):
        written.append(lines)
        if len(written) == at + 1:  # the run's own line is the first
            raise Killed
        append(journal, *lines)

    monkeypatch.setattr(live.Journal, "_append", dying)
    with pytest.raises(Killed):
        plan.run(seed=seed, ledger=path)
    monkeypatch.setattr(live.Journal, "_append", append)
    held = dp.Ledger.load(path)
    assert {len(account.entries) for account in held.values()} == {at - 1}
    result = plan.run(seed=seed, ledger=path)
    assert {len(account.entries) for account in result.ledger.values()} == {4}
    if seed is not None:
        whole = plan.run(seed=seed)
        assert np.array_equal(result.last.vectors[0], whole.last.vectors[0])
    assert dp.Ledger.load(path)["c1"] == result.ledger["c1"]


def test_recorded_runs_are_batched_and_those_of_other_executors_are_not(monkeypatch):
    sizes = []
    watch_releases(monkeypatch, lambda gate, *_: sizes.append(len(gate.agents)))
    plan = planned(*[Client()] * 3)
    expected = plan.run(seed=1)
    recorded = plan.run(seed=1, record=True)
    assert sizes == [3] * 8
    threads = plan.run(seed=1, executor=dp.Threads(), record=True)
    assert sizes[8:] == [1] * 12
    assert_same(expected, recorded)
    assert_same(expected, threads)
    pairs = zip(recorded.transcript.releases, threads.transcript.releases, strict=True)
    for one, other in pairs:
        assert (one.agent, one.round, one.step) == (other.agent, other.round, other.step)
        assert np.array_equal(one.value, other.value)
    again = plan.replay(threads.transcript)
    assert np.array_equal(again.last.vectors[2], expected.last.vectors[2])


@every
@pytest.mark.parametrize("missing", [0, 1, 2])
def test_batch_replays_what_some_agents_released_and_draws_the_rest(method, missing):
    """A file that another executor wrote may hold the values of some agents only."""
    plan = planned(*[Client()] * 3, method=method)
    parts, start = parts_of(plan), begin(parts_of(plan), None, True)
    sources = [[private._seal for private in agent.private] for agent in plan.problem.agents]
    query = Gradient(plan.program.agents[0].start)
    whole = oracle(parts, start.agents, sources, 7)
    if Gradient not in whole._facts.queries:
        query = Step(query.x, query.x, 0.1)
    whole.begin(1)
    values = whole.release(query)
    fresh = begin(parts, None, True).agents
    begun = [
        begun if k == missing else replace(begun, past={(1, 1): values[k]})
        for k, begun in enumerate(fresh)
    ]
    again = oracle(parts, begun, sources, 7)
    again.begin(1)
    assert np.array_equal(again.release(query), values)
    counts = [len(account.entries) for account in again.accounts()]
    assert counts == [int(k == missing) for k in range(3)]
    paid = [replace(b, paid={(1, 1)}, past={}) for b in begin(parts, None, True).agents]
    charged = oracle(parts, paid, sources, 7)
    charged.begin(1)
    assert np.array_equal(charged.release(query), values)
    assert not any(account.entries for account in charged.accounts())


def test_without_a_seed_every_agent_has_noise_of_its_own():
    """Five standard deviations: fails once in two million runs."""
    plan = planned(
        *[Client()] * 40, mechanism=dp.Gaussian(noise_multiplier=3.0), epsilon=None, rounds=1
    )
    parts = parts_of(plan)
    start = begin(parts, None, False)
    sources = [[private._seal for private in agent.private] for agent in plan.problem.agents]
    batch = oracle(parts, start.agents, sources, None)
    batch.begin(1)
    left = batch.release(Gradient(plan.program.agents[0].start))
    scale = 3.0 * batch.accounts()[0].entries[0].sensitivity
    noise = (left - left.mean(axis=0)) / scale
    assert len(np.unique(left)) == left.size
    # 117 degrees of freedom, and gradients that differ by less than a tenth of the noise.
    assert abs(float((noise**2).sum()) - 117) < 5 * math.sqrt(2 * 117) + 5


@dataclass(frozen=True)
class Drawing(dp.FederatedGradient):
    """One whose agents draw numbers of their own."""

    def act(self, local, state, t, k, message, oracle):
        state, reply = super().act(local, state, t, k, message, oracle)
        return state, None if reply is None else reply + oracle.uniform(reply.shape[-1])


@dataclass(frozen=True)
class Batched(Drawing):
    """The same, which says that one worker can take the turns of several agents."""

    batched = True


@dataclass(frozen=True)
class Storing(dp.FederatedGradient):
    """One that keeps a vector, and says the same."""

    batched = True

    def act(self, local, state, t, k, message, oracle):
        oracle.store("x", LinearCombination(state.x))
        return super().act(local, state, t, k, message, oracle)


@dataclass(frozen=True)
class Neighbors(dp.DecentralizedGradient):
    """One that derives from a method over networks."""


def test_method_that_derives_from_a_batched_one_is_not_batched_by_itself():
    three = problem(*[Client()] * 3)
    for method in (Drawing(step=0.1), Neighbors("ring", step=0.1)):
        assert not batched(three.plan(method, rounds=4, **BUDGET))
    for method in (dp.FederatedGradient(step=0.1), dp.DecentralizedGradient("ring", step=0.1)):
        assert batched(three.plan(method, rounds=4, **BUDGET))
    plan = three.plan(Storing(step=0.1), rounds=4, **BUDGET)
    with pytest.raises(dp.PrivacyError, match="store no vectors"):
        plan.run(seed=0)


def test_numbers_that_agents_draw_are_each_ones_own():
    plan = problem(*[Client()] * 3).plan(Batched(step=0.1), rounds=4, **BUDGET)
    assert batched(plan)
    assert_same(plan.run(seed=3), plan.run(seed=3, executor=Apart()))


def test_gate_of_a_batch_refuses_queries_for_one_agent_at_a_time(monkeypatch):
    through = Contraction(lambda v: 1e-3 * v, 1e-3, 1e-3)
    honest = dp.FederatedGradient.act

    class Door:
        def __init__(self, oracle):
            self._oracle = oracle

        def release(self, query):
            return self._oracle.release(Gradient(query.x, through=through))

    def mapped(self, local, state, t, k, message, oracle):
        return honest(self, local, state, t, k, message, Door(oracle))

    plan = planned(*[Client()] * 3)
    monkeypatch.setattr(dp.FederatedGradient, "act", mapped)
    with pytest.raises(dp.PrivacyError, match="queries for gradients and for steps"):
        plan.run(seed=0)
