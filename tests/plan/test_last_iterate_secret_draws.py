"""Plans with secret draws: what they promise, what they refuse, and that no draw gets out."""

import math
import pickle
import re

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp
from dpcvx.privacy.randomness import Seeded
from dpcvx.run.part import AgentPart
from tests.spies import change

# The same data serve test after test, each with a ledger of its own.
pytestmark = pytest.mark.filterwarnings("ignore::dpcvx.RepeatWarning")

SECRET = dp.GradientADMM(order="sampling", draws="secret")


def problem(users=8, rows=1, same=False, public=(), **adjacency):
    """Logistic losses of records; `public`: weights of the users, if they differ."""
    rng = np.random.default_rng(1)
    x, y = cp.Variable(2, name="x"), cp.Variable(2, name="y")
    data, agents = rng.normal(size=(users, rows, 2)) / 3, []
    for k in range(users):
        kind = dp.Rows(1.0, clip_rows=True, **adjacency)
        d = dp.Private(data[0 if same else k], name=f"d{k}", adjacency=kind)
        loss = cp.sum(cp.logistic(-d @ x)) * (public[k] if public else 1.0)
        agents.append(dp.Agent(cp.Minimize(loss + 0.2 * cp.sum_squares(x)), name=f"user{k}"))
    agents.append(dp.Agent(cp.Minimize(0.1 * cp.norm1(y)), name="g"))
    return dp.Problem(agents, coupling=[x == y])


def planned(given=None, method=SECRET, observer="last_iterate", **settings):
    given = problem() if given is None else given
    settings = {"epsilon": 1.0, "delta": 1e-6, "rounds": 40, **settings}
    return given.plan(method, observer=observer, **settings)


def noise(plan):
    return plan.agent("user0").noise.multiplier


@pytest.fixture(scope="module")
def plan():
    return planned()


@pytest.fixture(scope="module")
def visible():
    return planned(observer="iterates")


def test_secret_draws_need_less_noise_and_say_what_they_rest_on(plan, visible):
    in_order, known = (
        planned(method=dp.GradientADMM()),
        planned(method=dp.GradientADMM(order="sampling")),
    )
    assert noise(plan) < noise(visible) < noise(in_order) < noise(known)
    for one in (plan, visible):
        assert 0.999 < one.guarantee.epsilon <= 1
        text = " ".join(str(one.guarantee).split())
        without = one.guarantee.amplification.known
        assert without > 2
        assert "Turns stay secret forever" in text
        assert f"If turns become known, epsilon is {math.ceil(without * 100) / 100:.3g}." in text
        assert "if turns become known" in " ".join(str(one).split())
    assert "may become known." not in str(plan.guarantee)
    assert "never whose turn it was" in visible.guarantee.observer


def test_known_turns_cost_what_a_plan_with_known_draws_states(plan):
    mechanism = dp.Gaussian(noise_multiplier=noise(plan))
    method = dp.GradientADMM(order="sampling", step=plan.algorithm.step)
    known = planned(method=method, mechanism=mechanism, epsilon=None)
    assert plan.guarantee.amplification.known == pytest.approx(known.guarantee.epsilon, rel=1e-6)


def test_users_with_several_records_are_told_that_a_fixed_order_is_cheaper():
    several = planned(problem(rows=4))
    assert several.last.apart == 4
    text = str(several.guarantee.amplification)
    assert "Two users are up to 4 changes apart" in text
    assert "A fixed order is cheaper: write order='fixed'" in text
    assert noise(planned(problem(rows=4), method=dp.GradientADMM())) < noise(several)


@pytest.mark.parametrize(
    ("settings", "apart"),
    [
        ({}, 1),
        ({"rows": 3}, 3),
        ({"rows": 3, "relation": "add_or_remove_one"}, 6),
        ({"rows": 3, "max_rows_per_person": "all"}, 1),
        ({"rows": 3, "max_rows_per_person": "all", "relation": "add_or_remove_one"}, 2),
        ({"public": [1.0] * 7 + [2.0]}, math.inf),
    ],
)
def test_users_are_as_many_changes_apart_as_turn_one_into_another(settings, apart):
    found = planned(problem(**settings), mechanism=dp.Gaussian(noise_multiplier=9), epsilon=None)
    assert found.last.apart == apart


def test_no_two_users_are_farther_apart_than_stated():
    """Gradients of random admissible users, against the number of changes times a change's."""
    given = problem(rows=3)
    found = planned(given, mechanism=dp.Gaussian(noise_multiplier=9.0), epsilon=None)
    one = found.agent("user0")
    rng, farthest = np.random.default_rng(0), 0.0
    for _ in range(200):
        x = 5 * rng.normal(size=2)
        rows = rng.normal(size=(2, 3, 2))
        rows /= np.linalg.norm(rows, axis=2, keepdims=True)
        rows = rows if rng.random() < 0.5 else np.stack([rows[0], -rows[0]])
        gradients = [one.form.bind([r.ravel(order="F")]).gradient(x) for r in rows]
        farthest = max(farthest, np.linalg.norm(gradients[0] - gradients[1]))
    assert 0.5 < farthest / (found.last.apart * one.bound) <= 1


def test_without_a_distance_between_users_known_draws_are_priced():
    differ = problem(public=[1.0] * 7 + [2.0])
    secret, known = planned(differ), planned(differ, method=dp.GradientADMM(order="sampling"))
    assert noise(secret) == pytest.approx(noise(known), rel=2e-4)
    text = str(secret.guarantee.amplification)
    assert "none is derived for secret ones" in text and "the same public terms" in text


def test_visible_iterates_need_no_smoothness_and_no_closed_form():
    x, y = cp.Variable(2, name="x"), cp.Variable(2, name="y")
    agents = []
    for k in range(5):
        d = dp.Private(np.eye(2)[:1] / 2, name=f"d{k}", adjacency=dp.Rows(1.0))
        agents.append(dp.Agent(cp.Minimize(cp.sum(cp.logistic(-d @ x))), name=f"user{k}"))
    agents.append(dp.Agent(cp.Minimize(cp.norm(y)), name="g"))
    given = dp.Problem(agents, coupling=[x + 0.5 * y[::-1] == 0])
    with pytest.raises(dp.PrivacyError, match="no closed form"):
        planned(given)
    found = planned(given, observer="iterates", rounds=10)
    assert found.run(iterates=True).iterates


@pytest.mark.parametrize("observer", ["last_iterate", "iterates"])
@pytest.mark.parametrize("asked", [{"seed": 1}, {"record": True}, {"tolerance": 1e-3}])
def test_runs_refuse_what_could_tell_turns(plan, visible, observer, asked):
    with pytest.raises(dp.PrivacyError, match="Leave (it|seed=) out"):
        (plan if observer == "last_iterate" else visible).run(**asked)


def test_nothing_can_be_replayed(visible, tmp_path):
    visible.run(ledger=tmp_path / "ledger.jsonl")
    with pytest.raises(dp.PrivacyError, match="no transcript to replay.*which user was drawn"):
        visible.replay(tmp_path / "ledger.jsonl")


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: dp.GradientADMM(draws="secret"), "Write order='sampling', draws='secret'"),
        (lambda: dp.GradientADMM(order="sampling", draws="no"), "draws"),
        (lambda: planned(observer="everyone"), "Write problem.plan"),
        (lambda: planned(method=dp.GradientADMM(), observer="iterates"), "draws='secret'"),
        (lambda: planned(method=dp.FederatedGradient(), observer="iterates"), "draws='secret'"),
        (lambda: planned(mechanism=dp.Laplace(), observer="iterates"), "Gaussian noise only"),
    ],
)
def test_what_is_not_proved_is_refused(call, match):
    with pytest.raises(dp.DpcvxError, match=match):
        call()


@pytest.mark.parametrize("observer", ["last_iterate", "iterates"])
def test_owners_cannot_keep_draws_secret_from_a_coordinator(observer, tmp_path):
    found = planned(observer=observer)
    with pytest.raises(dp.ModelError, match="whose turn"):
        found.run(executor=dp.LoopbackOwners(found, folder=tmp_path))


@pytest.mark.parametrize("observer", ["last_iterate", "iterates"])
def test_runs_that_differ_in_draws_alone_show_the_same(observer, monkeypatch, tmp_path, capsys):
    """Equal data and the same noise in every round: only draws differ between two runs."""
    shown = []
    monkeypatch.setattr(AgentPart, "source", lambda part, begun, seed: Seeded(3, ()))
    for name, order in (("a", (0,) * 40), ("b", tuple(range(8)) * 5)):

        def drawn(self, server, rounds, coins, order=order):
            return server.__class__(**{**vars(server), "order": order}), rounds

        change(monkeypatch, "data that were seen", {})
        found = planned(problem(same=True), observer=observer)
        monkeypatch.setattr(type(found.algorithm), "drawn", drawn)
        path = tmp_path / f"{name}.jsonl"
        result = found.run(
            ledger=path, verbose=True, executor=dp.Serial(), iterates=observer == "iterates"
        )
        lines = path.read_text().replace(name + ".jsonl", "")
        printed = capsys.readouterr().out
        accounts = [pickle.dumps(account) for account in result.ledger.accounts]
        vectors = [v.tolist() for v in result.last.vectors]
        shown.append((printed, len(lines), accounts, vectors, str(result), result.history.failed))
        assert result.transcript is None
    assert shown[0] == shown[1]


def test_errors_do_not_name_the_user_of_the_round(plan, monkeypatch, tmp_path):
    def act(self, local, state, t, k, message, oracle):
        raise ValueError(f"{local.program.name} failed in round {t}")

    monkeypatch.setattr(type(plan.algorithm), "act", act)
    with pytest.raises(dp.PrivacyError, match="counts in full") as raised:
        plan.run(ledger=tmp_path / "ledger.jsonl")
    chain, error = [], raised.value
    while error is not None:
        chain.append(str(error))
        error = error.__cause__ or error.__context__
    assert not any(re.search(r"user ?'?\d", text) for text in chain)
