"""What a method of one's own returns is refused by its name, with what the contract asks for."""

from dataclasses import dataclass, replace
from pathlib import Path

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp
from dpcvx.extend import (
    Algorithm,
    Array,
    Gradient,
    Iterates,
    LocalCopy,
    Output,
    Query,
    Requirements,
    Residuals,
)


def problem():
    x = cp.Variable(2, name="x")
    agents = []
    for name in ("north", "south"):
        d = dp.Private([0.2, 0.4], name=f"d {name}", adjacency=dp.Within(0.1), bounds=(0, 1))
        agents.append(dp.Agent(cp.Minimize(cp.sum_squares(x - d)), name=name))
    return dp.Problem(agents)


def run(method, rounds=2):
    plan = problem().plan(method, epsilon=1e3, delta=1e-6, rounds=rounds)
    return plan.run(seed=1, verbose=False)


@dataclass(frozen=True)
class Altered(dp.ADMM):
    """ADMM, of which one function returns something else."""

    function: str = ""
    change: object = None

    def _changed(self, function, value):
        return self.change(value) if self.function == function else value

    @property
    def requirements(self):
        return self._changed("requirements", super().requirements)

    def propose(self, facts):
        return self._changed("propose", super().propose(facts))

    def start_agent(self, local):
        return self._changed("start_agent", super().start_agent(local))

    def send(self, server, t, k):
        return self._changed("send", super().send(server, t, k))

    def act(self, local, state, t, k, message, oracle):
        return self._changed("act", super().act(local, state, t, k, message, oracle))

    def receive(self, server, t, k, replies):
        return self._changed("receive", super().receive(server, t, k, replies))

    def residuals(self, server):
        return self._changed("residuals", super().residuals(server))


FAULTS = [
    ("requirements", lambda r: {}, "returned <dict of length 0>. Return Requirements"),
    ("requirements", lambda r: replace(r, queries=Gradient), "Write queries=(Gradient,)"),
    ("requirements", lambda r: replace(r, releases="one"), "returned 'one'. Write releases=1"),
    ("propose", lambda m: None, "returned None. Return the method with"),
    ("start_agent", lambda s: replace(s, x=np.zeros(5)), "shape (5,), and agent 'north' has 2"),
    ("send", lambda s: (s[0], s[1][:1]), "returned 1 message for 2 agents"),
    ("send", lambda s: (s[0], [*s[1], *s[1]]), "returned 4 messages for 2 agents"),
    ("send", lambda s: s[1], "returned <list of length 2>. Return the server's state and a list"),
    ("send", lambda s: (s[0], None), "returned None. Return a list with a message"),
    ("act", lambda s: s[0], "Return the agent's state and its reply"),
    ("act", lambda s: None, "returned None. Return the agent's state"),
    ("act", lambda s: (replace(s[0], x=s[0].x[:1]), s[1]), "shape (1,), and agent 'north' has 2"),
    ("act", lambda s: (s[0], s[1].z), "returned a ndarray, but agent 'north' shares 2"),
    ("act", lambda s: (s[0], LocalCopy(s[1].z[:1], s[1].lam)), "LocalCopy with 1 and 2 numbers"),
    ("receive", lambda s: None, "returned None. Return the server's state"),
    ("residuals", lambda r: 3.0, "returned 3.0. Return Residuals(primal"),
]


@pytest.mark.parametrize(("function", "change", "said"), FAULTS)
def test_a_wrong_return_value_is_refused_by_the_name_of_the_method(function, change, said):
    with pytest.raises(dp.ModelError) as refusal:
        run(Altered(function=function, change=change))
    assert f"Altered.{function}" in str(refusal.value) and said in str(refusal.value)


@dataclass(frozen=True)
class Averaging(Algorithm):
    """A server of its own that averages what `reply` makes of the agents' points."""

    reply: object = None
    returned: Output | None = None

    @property
    def requirements(self):
        return Requirements(convex=True, exact=False, releases=1, queries=(Gradient,))

    def start_server(self, program):
        return program, np.zeros(program.size)

    def start_agent(self, local):
        x = local.program.start
        return Iterates(x, np.zeros_like(x))

    def send(self, server, t, k):
        return server, [server[1][agent.slots] for agent in server[0].agents]

    def act(self, local, state, t, k, message, oracle):
        state = state.after(state.x - 0.1 * oracle.release(Gradient(message)))
        return state, self.reply(state.x)

    def receive(self, server, t, k, replies):
        return server[0], np.mean([server[1] + reply for reply in replies], axis=0)

    def residuals(self, server):
        return Residuals(0.0, np.nan, 0.0, 0.0)


REPLIES = [
    (lambda x: None, "'north' (TypeError in test_contract.py, line {}). The reply is None. Return"),
    (lambda x: np.ones(3), "ValueError in test_contract.py, line {}). The reply has an array of "
    "shape (3,), and the agent has 2 shared entries. Reply with arrays of shape (2,), as"),
    (lambda x: (x, np.ones((2, 3))), "has an array of shape (2, 3), and the agent"),
    (lambda x: LocalCopy(x, x[:1]), "has an array of shape (1,), and the agent"),
]  # fmt: skip


@pytest.mark.parametrize(("reply", "said"), REPLIES)
def test_a_reply_that_receive_cannot_use_names_method_and_agent(reply, said):
    lines = Path(__file__).read_text().splitlines()
    line = next(k for k, text in enumerate(lines, 1) if "np.mean([server[1]" in text)
    with pytest.raises(dp.ModelError) as refusal:
        run(Averaging(reply=reply))
    assert "Averaging.receive failed on the reply of agent 'north'" in str(refusal.value)
    assert said.format(line) in str(refusal.value)


def test_an_error_of_receive_itself_is_left_as_it_is():
    @dataclass(frozen=True)
    class Broken(Averaging):
        def receive(self, server, t, k, replies):
            raise KeyError("an author's own")

    with pytest.raises(KeyError, match="an author's own"):
        run(Broken(reply=lambda x: x))


@dataclass(frozen=True)
class Twice(dp.ADMM):
    """ADMM that asks for its gradient twice, and says that it asks once."""

    def act(self, local, state, t, k, message, oracle):
        oracle.release(Gradient(state.x))
        return super().act(local, state, t, k, message, oracle)


@pytest.mark.parametrize("rounds", [1, 2])  # the budget ends in the round, or in the next one
def test_a_budget_that_more_releases_than_said_have_ended_names_them(rounds):
    due = (
        r"Twice.act requested 2 releases from agent 'north' in a round, .* says releases=1. "
        r"Write Requirements\(releases=2\)"
    )
    with pytest.raises(dp.ModelError, match=due):
        run(Twice(), rounds)


@dataclass(frozen=True, eq=False)
class Length(Query):
    """Length of the gradient at x."""

    released = "length"
    x: Array

    def size(self, n):
        return 1

    def bound(self, public_state):
        return public_state.gradient_bound(self.x, p=2)

    def evaluate(self, objective):
        return np.array([np.linalg.norm(objective.gradient(self.x))])


def queried(**faults):
    """Return a method that asks for the length, with functions in place of the query's own."""
    kind = type("Altered", (Length,), {"released": "length", **faults})

    @dataclass(frozen=True)
    class Method(dp.ADMM):
        @property
        def requirements(self):
            return replace(super().requirements, queries=(kind,))

        def act(self, local, state, t, k, message, oracle):
            oracle.release(kind(state.x))
            return state, LocalCopy(state.x[local.program.shared], state.lam)

    return Method()


QUERIES = [
    ("bound", lambda q, known: None, "returned None. Return one number of at least 0"),
    ("bound", lambda q, known: -1.0, "returned -1.0. Return one number"),
    ("bound", lambda q, known: float("nan"), "returned nan. Return one number"),
    ("bound", lambda q, known: np.ones(2), "returned <ndarray of shape (2,)>"),
    ("bound", lambda q, known: known.gradient_bound(q.x[:1]), "has 2 numbers, and a query names"),
    ("size", lambda q, n: "one", "returned 'one'. Return a whole number"),
    ("evaluate", lambda q, objective: None, "returned no array"),
    ("evaluate", lambda q, objective: objective.gradient(q.x), "(size(n),) = (1,)"),
    ("evaluate", lambda q, objective: objective.value(q.x), "evaluate failed with AttributeError"),
]


@pytest.mark.parametrize(("function", "fault", "said"), QUERIES)
def test_a_wrong_query_is_refused_by_its_name(function, fault, said):
    with pytest.raises(dp.PrivacyError) as refusal:
        run(queried(**{function: fault}))
    assert said in str(refusal.value)
    assert "Altered" in str(refusal.value) or "agent" in str(refusal.value).lower()


def test_reports_name_the_line_of_the_user():
    method = Altered(function="act", change=lambda s: s.nowhere)
    line = next(
        k
        for k, text in enumerate(Path(__file__).read_text().splitlines(), 1)
        if "s.nowhere" in text
    )
    where = f" in {Path(__file__).name}, line {line}"
    plan = problem().plan(method, epsilon=1e3, delta=1e-6, rounds=2)
    with pytest.raises(dp.PrivacyError, match=f"failed with AttributeError{where}; the message"):
        dp.check_sensitivity(plan)
    check = dp.testing.check_method(method)
    report = type(check)(check.method, check.checks[:1], check.refused).run()
    assert f"AttributeError: 'tuple' object has no attribute 'nowhere' (raised{where})" in str(
        report
    )
