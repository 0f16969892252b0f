"""Gradient descent along sums: the printed iteration, split noise, and its pair of guarantees."""

import json
import math

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp
from dpcvx._words import at_most
from dpcvx.algorithms.federated_gradient import FederatedGradient
from dpcvx.run.executors.in_process import Serial
from tests.helpers import contains

SHARING = dp.SecretSharing(limit=1000.0)
BOUND = 0.6
# The same data serve run after run.
pytestmark = pytest.mark.filterwarnings("ignore::dpcvx.RepeatWarning")


def study(agents=4, n=3, public=(), radius=0.05, own=False, groups=()):
    """Least squares with rows of length one, and the numbers they were built from."""
    r = np.random.default_rng(agents)
    x = cp.Variable(n, name="x")
    A = [np.linalg.qr(r.normal(size=(n + 2, n)))[0] for _ in range(agents)]
    b = [r.normal(size=n + 2) for _ in range(agents)]
    made = []
    for k in range(agents):
        d = b[k] if k in public else dp.Private(b[k], name=f"d{k}", adjacency=dp.Within(radius))
        cost, limits = cp.sum_squares(A[k] @ x - d), [cp.abs(x) <= BOUND]
        if own and k == 0:
            y = cp.Variable(name="y")
            cost, limits = cost + cp.square(y - cp.sum(d)), [*limits, y >= 0.1]
        made.append(dp.Agent(cp.Minimize(cost), limits, name=f"a{k}"))
    return dp.Problem(made, groups=groups), A, b


def planned(problem, sharing=SHARING, rounds=5, step=0.05, **arguments):
    settings = {"epsilon": 1.0, "delta": 1e-6} | arguments
    return problem.plan(FederatedGradient(step, sharing), rounds=rounds, **settings)


@pytest.mark.parametrize("sharing", [None, SHARING], ids=["open", "secret"])
@pytest.mark.parametrize("private", [False, True])
def test_a_run_is_the_printed_iteration(sharing, private):
    problem, A, b = study()
    settings = {} if private else {"mechanism": None, "epsilon": None, "delta": None}
    result = planned(problem, sharing, **settings).run(seed=1, record=True, iterates=True)
    noise = np.zeros((6, 3))
    if private:
        # What left are the private parts of gradients, -2 A'b, with noise.
        for release in result.transcript.releases:
            noise[release.round] += release.value + 2 * A[release.agent].T @ b[release.agent]
    x, path = np.zeros(3), []
    for t in range(1, 6):
        total = sum(2 * M.T @ (M @ x - d) for M, d in zip(A, b, strict=True)) + noise[t]
        x = np.clip(x - 0.05 * total, -BOUND, BOUND)
        path.append(x)
    # Sums of exact values are rounded to 2**-20; with noise nothing is.
    close = 1e-12 if private or sharing is None else 1e-5
    for t, expected in enumerate(path):
        for found in result.iterates[t].last.vectors:
            assert found == pytest.approx(expected, abs=close)
    moves = np.linalg.norm(np.diff([np.zeros(3), *path], axis=0), axis=1)
    assert result.history.dual == pytest.approx(moves, abs=1e-5)
    assert result.average.vectors[1] == pytest.approx(np.mean(path, axis=0), abs=1e-5)


def test_agents_and_server_see_sums_and_shares_and_no_term(monkeypatch):
    problem, *_ = study()
    messages, send, receive = [], FederatedGradient.send, FederatedGradient.receive

    def sending(self, server, t, k):
        server, boxes = send(self, server, t, k)
        messages.append((server, boxes))
        return server, boxes

    def receiving(self, server, t, k, replies):
        messages.append(replies)
        return receive(self, server, t, k, replies)

    monkeypatch.setattr(FederatedGradient, "send", sending)
    monkeypatch.setattr(FederatedGradient, "receive", receiving)
    result = planned(problem, rounds=2).run(seed=1, record=True)
    assert len(messages) == 12
    for release in result.transcript.releases:
        assert not contains(messages, release.value)


@pytest.mark.parametrize(("agents", "alone"), [(3, 1.45), (5, 2.12), (10, 3.32)])
def test_the_guarantee_is_a_pair_and_is_printed_and_kept(agents, alone):
    plan = planned(study(agents)[0])
    guarantee = plan.guarantee
    assert (guarantee.epsilon, guarantee.delta) == (pytest.approx(1.0, rel=1e-9), 1e-6)
    assert guarantee.max_colluders == 1
    assert guarantee.against_all_others == pytest.approx(alone, abs=0.006)
    one = "(1, 1e-6)-DP against any 1 other agent together with the server"
    everyone = f"({at_most(guarantee.against_all_others)}, 1e-6)"
    for text in (str(guarantee), str(plan), repr(guarantee)):
        text = " ".join(text.split())
        assert one in text
        assert everyone in text and "against all other agents together" in text
    assert "Shares travel encrypted" in " ".join(str(guarantee).split())
    result = plan.run(seed=1)
    account = result.ledger["a1"]
    assert account.spent().epsilon == pytest.approx(1.0, rel=1e-9)
    assert account.spent_against_all().epsilon == pytest.approx(
        guarantee.against_all_others, rel=1e-9
    )
    entry = json.loads(result.ledger.to_json())["a1"][0]
    assert entry["colluders"] == 1
    assert entry["alone"] == pytest.approx(entry["multiplier"] / math.sqrt(agents - 1))
    assert "against any 1 other agent together with the server, and epsilon" in str(result.ledger)


def test_every_agent_adds_the_part_that_the_most_sensitive_data_need():
    problem, A, b = study(5, public=(2,))
    plan = planned(problem, rounds=3)
    multiplier = plan.agents[0].noise.multiplier
    assert all(agent.noise.split == plan.agents[0].noise.split for agent in plan.agents)
    split = plan.agents[0].noise.split
    most = max(agent.bound for agent in plan.agents)
    # Rounding adds about 2**-16 of it.
    assert split.together == pytest.approx(multiplier * most, rel=2**-15)
    assert split.scale == pytest.approx(split.together / 2)
    assert split.together >= multiplier * most
    result = plan.run(seed=2, record=True)
    assert not result.ledger["a2"].entries
    own = [r.value for r in result.transcript.releases if r.agent == 2]
    x = [np.zeros(3), *(None for _ in own)]
    assert len(own) == 3
    assert np.linalg.norm(own[0] - 2 * A[2].T @ (A[2] @ x[0] - b[2])) > split.scale / 10
    assert plan.guarantee.agents[0].scale == split.scale


def test_variables_of_one_agent_get_the_noise_of_all():
    problem, *_ = study(own=True)
    plan = planned(problem)
    result = plan.run(seed=2, record=True)
    assert {r.value.size for r in result.transcript.releases} == {4}
    assert dp.check_sensitivity(plan).passed
    again = plan.replay(result.transcript)
    assert all(map(np.array_equal, again.last.vectors, result.last.vectors))
    result = planned(problem, mechanism=None, epsilon=None, delta=None, rounds=400).run()
    found = dp.not_private.objective(problem, result.raw)
    whole = dp.not_private.joint_problem(problem)
    assert found == pytest.approx(whole.solve(cp.CLARABEL), abs=1e-5)


def test_noise_that_falls_is_split_as_planned():
    plan = planned(study()[0], epsilon=None, mechanism=dp.Gaussian(noise_multiplier=9.0, decay=0.8))
    result = plan.run(seed=1, record=True)
    account = result.ledger["a0"]
    assert account.spent().epsilon == pytest.approx(plan.guarantee.epsilon, rel=1e-9)
    assert account.spent_against_all().epsilon == pytest.approx(
        plan.guarantee.against_all_others, rel=1e-9
    )
    assert [e.multiplier for e in account.entries] == pytest.approx(9 * 0.8 ** np.arange(5))
    assert dp.check_sensitivity(plan).passed


def test_a_ledger_goes_on_with_both_figures(tmp_path):
    problem, path = study()[0], tmp_path / "ledger.jsonl"
    plan = planned(problem)
    first = plan.run(seed=1, ledger=path)
    assert str(dp.Ledger.load(path)) == str(first.ledger)
    again = plan.replay(path)
    assert all(map(np.array_equal, again.last.vectors, first.last.vectors))
    open_ = planned(problem, None, epsilon=2.0)
    second = open_.run(seed=2, ledger=first.ledger)
    account = second.ledger["a0"]
    # The Gaussian rule: sums of 1/m^2, those of the first run larger by a factor of 3 for all.
    mu2 = [sum(1 / e.multiplier**2 for e in part.entries) for part in (first.ledger["a0"], account)]
    assert account.spent().epsilon <= 2.0 * (1 + 1e-9)
    alone = dp.privacy.accounting.Composition(mu2=mu2[1] + 2 * mu2[0]).price(1e-6).epsilon
    assert account.spent_against_all().epsilon == pytest.approx(alone, rel=1e-9)


class Deserted(Serial):
    """An agent's reply is lost in round 2."""

    def map(self, method, *common, each=None):
        found = super().map(method, *common, each=each)
        if method == "act" and common[0] == 2:
            found[1] = [None]
        return found


def test_an_agent_that_leaves_ends_the_run_in_words():
    with pytest.raises(dp.ModelError, match="Agent 'a1' sent nothing in round 2, so the run ended"):
        planned(study()[0]).run(executor=Deserted())


def test_values_beyond_the_limit_end_the_run_by_their_sum_alone():
    problem, *_ = study()
    plan = planned(problem, dp.SecretSharing(limit=1e-3), epsilon=50.0, rounds=2)
    with pytest.raises(dp.ModelError, match="declare a larger limit") as caught:
        plan.run(seed=1)
    assert "a0" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"mechanism": "laplace"}, dp.PrivacyError, "sharing= needs Gaussian noise"),
        ({"release": "once"}, dp.ModelError, "release='once' cannot be combined with sharing="),
        ({"mechanism": {
            f"a{k}": dp.Gaussian(noise_multiplier=9.0, decay=0.9 - 0.1 * (k == 0)) for k in range(4)
        }, "epsilon": None}, dp.PrivacyError, "Give all agents the same decay="),
    ],
)  # fmt: skip
def test_plans_that_nothing_is_proved_for_are_refused(change, error, words):
    with pytest.raises(error, match=words):
        planned(study()[0], **change)


def test_what_cannot_work_is_refused_in_words():
    problem = study()[0]
    with pytest.raises(dp.PrivacyError, match="Drop groups= or sharing="):
        planned(study(groups=[("a0", "a1")])[0])
    for off in ({}, {"mechanism": None, "epsilon": None, "delta": None}):
        with pytest.raises(dp.ModelError, match="At least three agents are needed, or drop sha"):
            planned(study(2)[0], **off)
    with pytest.raises(dp.ModelError, match="Write max_colluders=2 or fewer"):
        problem.plan(FederatedGradient(0.1, SHARING, max_colluders=3), epsilon=1.0, delta=1e-6)
    with pytest.raises(dp.ModelError, match="max_colluders=0"):
        FederatedGradient(max_colluders=0)
    for method in (FederatedGradient, dp.OneShot):
        with pytest.raises(dp.ModelError, match="max_colluders=2 .* leave out max_colluders="):
            method(max_colluders=2)
    with pytest.raises(dp.ModelError, match="max_colluders=2 .* leave out max_colluders="):
        problem.tune(epsilon=1.0, delta=1e-6, max_colluders=2)
    with pytest.raises(dp.ModelError, match="limit=-1"):
        FederatedGradient(sharing=dp.SecretSharing(-1.0))
    with pytest.raises(dp.ModelError, match="a power of two"):
        FederatedGradient(sharing=dp.SecretSharing(1.0, 1e-6))
    with pytest.raises(dp.PrivacyError, match=r"resolution=2\.0\*\*-\d+\) or finer"):
        planned(problem, dp.SecretSharing(1000.0, 1.0), epsilon=50.0)
    with pytest.raises(dp.ModelError, match="wrap around"):
        planned(problem, dp.SecretSharing(1e18))


def test_a_resolution_by_hand_is_the_grid_and_is_charged():
    coarse = planned(study()[0], dp.SecretSharing(1000.0, 2.0**-8))
    split = coarse.agents[0].noise.split
    assert split.width == 2.0**-8
    most = max(agent.bound for agent in coarse.agents)
    rounded = most + 2.0**-8 * math.sqrt(3)
    assert split.together == pytest.approx(coarse.agents[0].noise.multiplier * rounded)
    assert dp.check_sensitivity(coarse).passed


@pytest.mark.parametrize("agents", [3, 10])
def test_noise_does_less_by_the_number_of_honest_agents(agents):
    # The squared noise of 1200 entries is known to six per cent: once in 1e5 seeds their ratio is
    # below 0.7 of what is promised for data of the same sensitivity.
    problem, A, b = study(agents, n=200)
    squares = []
    for sharing in (None, SHARING):
        plan = planned(problem, sharing, rounds=1)
        runs = [plan.run(seed=s, record=True).transcript.releases for s in range(6)]
        exact = sum(-2 * M.T @ d for M, d in zip(A, b, strict=True))
        squares.append(np.mean([(sum(r.value for r in run) - exact) ** 2 for run in runs]))
    assert squares[0] / squares[1] > 0.7 * (agents - 1)


def test_default_steps_know_the_noise_of_the_sum():
    """They are those next to noise of each agent's own that is as small as its part.

    What longer steps are worth stands in `tests.benchmarks.test_beyond`.
    """
    x, data = cp.Variable(3, name="x"), np.random.default_rng(1).normal(size=(10, 3))
    private = [dp.Private(d, name=f"d{k}", adjacency=dp.Within(0.05)) for k, d in enumerate(data)]
    costs = [cp.sum_squares(x - d) for d in private]
    problem = dp.Problem([dp.Agent(cp.Minimize(f), [cp.abs(x) <= BOUND]) for f in costs])
    plans = [
        problem.plan(FederatedGradient(sharing=sharing), epsilon=1.0, delta=1e-6, rounds=30)
        for sharing in (SHARING, None)
    ]
    part = dp.Gaussian(
        noise_multiplier=plans[0].agents[0].noise.multiplier / 3
    )  # of nine honest ones
    plans.append(problem.plan(FederatedGradient(), mechanism=part, delta=1e-6, rounds=30))
    split, loud, quiet = (plan.algorithm.step.step for plan in plans)
    assert split == pytest.approx(quiet, rel=1e-4) and split > 1.5 * loud
