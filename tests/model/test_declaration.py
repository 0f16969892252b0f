"""Problems: what is found in them, and what is refused with which words."""

import collections.abc
import copy
import pickle
import struct

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp
from tests.frames import leaks
from tests.model.agents import SECRETS, WITHIN, agent, load, x, y


def test_agents_without_a_name_are_numbered():
    problem = dp.Problem([agent(None), agent("south"), agent(None)])
    assert problem.names == ("agent 1", "south", "agent 3")
    with pytest.raises(dp.ModelError, match="'unnamed'"):
        dp.Agent(None)


@pytest.mark.parametrize("agents", [[], [x], [cp.Minimize(cp.sum(x))], [agent("a"), None]], ids=str)
def test_a_problem_is_a_list_of_agents(agents):
    with pytest.raises(
        dp.ModelError, match=r"list of one or more dp\.Agent.*dp\.Problem\(\[north, south\]\)"
    ):
        dp.Problem(agents)


@pytest.mark.parametrize("names", [("north", "north"), ("agent 2", None)])
def test_names_are_told_apart(names):
    with pytest.raises(dp.ModelError, match=rf"'{names[0]}'.*its own name="):
        dp.Problem([agent(n) for n in names])


def test_a_private_object_has_one_owner():
    d = load()
    pair = [agent(n, cp.sum_squares(x - d)) for n in ("north", "south")]
    with pytest.raises(dp.PrivacyError, match="'load'.*'north' and 'south'.*its own data"):
        dp.Problem(pair)


def test_shared_entries_are_counted():
    pair = [
        agent("north", cp.sum(x) + cp.sum(y[:2])),
        agent("south", x[0] + cp.sum_squares(y[1:])),
        agent("east", y[1]),
    ]
    problem = dp.Problem(pair)
    counts = {key: count.tolist() for key, count in problem.holders().items()}
    assert counts == {x.id: [2, 1], y.id: [1, 3, 1]}
    assert [v.id for v in problem.variables()] == [x.id, y.id]


def test_an_agent_that_shares_nothing_is_named():
    with pytest.raises(dp.ModelError) as caught:
        dp.Problem([agent("north"), agent("south"), agent("island", cp.sum(y))])
    text = str(caught.value)
    assert "'island'" in text and "by identity" in text and "solve the agent's problem" in text
    assert "Several different variables" not in text


def test_disjoint_entries_are_not_shared():
    with pytest.raises(dp.ModelError, match="Agent 'north' shares no variable entry"):
        dp.Problem([agent("north", y[0]), agent("south", y[1])])


def test_variables_that_only_share_a_name_are_pointed_out():
    twin = cp.Variable(2, name="x")
    with pytest.raises(dp.ModelError, match="different variables are called 'x'.*create it once"):
        dp.Problem([agent("north"), agent("south", cp.sum(twin))])


def test_one_agent_may_stand_alone():
    assert dp.Problem([agent("north")]).names == ("north",)


def test_start_is_broadcast_and_copied():
    values = np.array([1.0, 2.0])
    problem = dp.Problem([agent("n"), agent("s", cp.sum(x) + cp.sum(y))], {x: values, y: 3})
    values[:] = 9.0
    assert {v.id: s.tolist() for v, s in problem.start.items()} == {x.id: [1, 2], y.id: [3, 3, 3]}


@pytest.mark.parametrize(
    "value", [np.ones(3), np.ones((2, 1)), [1.0], np.nan, [1.0, np.inf]], ids=str
)
def test_start_fits_its_variable(value):
    with pytest.raises(dp.ModelError, match=r"start= for variable 'x'.*finite.*shape \(2,\)"):
        dp.Problem([agent("north")], {x: value})


def test_start_is_for_used_variables():
    with pytest.raises(dp.ModelError, match=r"start=.*'y', which no agent uses"):
        dp.Problem([agent("north")], {y: 0.0})


class Foreign(collections.abc.Mapping):
    """A mapping that quotes what it holds when it is read."""

    def __len__(self):
        return 1

    def __iter__(self):
        return iter([x])

    def __getitem__(self, key):
        raise RuntimeError(f"cannot read {SECRETS}")


@pytest.mark.parametrize(
    "start",
    [{str(SECRETS) * 3: 0.0}, {tuple(SECRETS): 0.0}, {x: 10**400}, {x: [10**400, 0]}, Foreign()],
    ids=["long text", "tuple", "a number beyond the floats", "two numbers", "a foreign mapping"],
)
def test_what_start_holds_is_not_quoted(start):
    with pytest.raises(dp.ModelError, match="start=") as caught:
        dp.Problem([agent("north")], start)
    assert not leaks(caught.value, marks=[str(s) for s in SECRETS])


@pytest.mark.parametrize("argument", ["epsilon", "mechanism"])
def test_mappings_by_agent_are_not_quoted(argument):
    problem = dp.Problem([agent("north", cp.sum_squares(x - load()))])
    given = {"epsilon": 1.0, "delta": 1e-6} | {argument: Foreign()}
    with pytest.raises(dp.ModelError, match="cannot be read") as caught:
        problem.plan(dp.LinearizedADMM(), rounds=2, **given)
    assert not leaks(caught.value, marks=[str(s) for s in SECRETS])


@pytest.mark.parametrize("name", ["\udc80", b"north", 3], ids=ascii)
def test_names_can_be_written_down(name):
    for make in (lambda: agent(name), lambda: load(name), lambda: dp.Rows(1.0, records=name)):
        with pytest.raises(dp.ModelError, match="text"):
            make()
    assert agent("Zürich").name == "Zürich"


def shows(thing):
    raw = f"{thing!r}{thing}".encode() + pickle.dumps(thing)
    marks = [m for s in SECRETS for m in (b"%.1f" % s, struct.pack("<d", s), struct.pack(">d", s))]
    return any(mark in raw for mark in marks)


def test_models_show_no_values():
    d = load(data=SECRETS)
    problem = dp.Problem([agent("north", cp.sum_squares(x - d))])
    for thing in (
        problem,
        problem.agents[0],
        problem.plan(dp.LinearizedADMM(), rounds=2, epsilon=1.0, delta=1e-6),
    ):
        assert not shows(thing) and not shows(copy.deepcopy(thing))


def test_errors_of_a_model_show_no_values():
    d = load(data=SECRETS)
    f = cp.sum(cp.logistic(x - d)) + cp.geo_mean(x)
    with pytest.raises(dp.DpcvxError) as caught:
        dp.Problem([agent("north", f)]).plan(dp.LinearizedADMM(), rounds=2, epsilon=1.0, delta=1e-6)
    assert not shows(caught.value) and "'north'" in str(caught.value)


@pytest.mark.parametrize(
    "build",
    [
        lambda: agent("north", constraints=x >= 0),
        lambda: agent("north", constraints=None),
        lambda: dp.Problem(agent("north")),
        lambda: dp.Problem(None),
        lambda: dp.Problem([agent("north")], {"x": 1.0}),
        lambda: dp.Problem([agent("north")], [1.0]),
        lambda: dp.Problem([agent("north")], {x: "zero"}),
    ],
    ids=[
        *["a bare constraint", "no constraints", "a bare agent", "no agents"],
        *["start by name", "start list", "start text"],
    ],
)
def test_arguments_of_the_wrong_kind_are_model_errors(build):
    with pytest.raises(dp.ModelError):
        build()


def pair():
    """Two agents, each with entries of its own, groups, a start, and data."""
    north = dp.Agent(
        cp.Minimize(cp.sum_squares(x - load("load", SECRETS)) + cp.sum(cp.abs(y[:2]))),
        [x <= 9e4],
        name="north",
    )
    south = agent("south", cp.sum_squares(x - load("lead", SECRETS[::-1])), [x >= -9])
    return dp.Problem([north, south], {x: 1.0, y: [4.0, 5.0, 6.0]}, groups=[[north, south]])


METHODS = {
    "each_step": {},
    "once": {"release": "once"},
    "no noise": {"epsilon": None, "delta": None, "mechanism": None},
}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("what", ["plan", "problem", "agents", "copy of a copy"])
def test_deep_copies_run_as_what_they_were_copied_from(what, method, tmp_path):
    problem = pair()
    arguments = {"rounds": 3, "epsilon": 1.0, "delta": 1e-6} | METHODS[method]
    plan = problem.plan(**arguments)
    if what == "plan":
        twin = copy.deepcopy(plan)
    elif what == "agents":
        agents = copy.deepcopy(problem.agents)
        twin = dp.Problem(agents, problem.start, groups=[agents]).plan(**arguments)
    else:
        other = copy.deepcopy(problem)
        twin = (other if what == "problem" else copy.deepcopy(other)).plan(**arguments)
    assert twin.fingerprint == plan.fingerprint
    with pytest.raises(dp.DataError, match="'load' has no data"):
        twin.run(verbose=False)
    data = {"load": SECRETS, "lead": SECRETS[::-1]}
    first, again = plan.run(seed=1), twin.run(data=data, seed=1)
    for variable in (x, y):
        assert (again.average[variable] == first.average[variable]).all()
        assert (again.last[variable] == first.last[variable]).all()
        assert (variable.value == again.solution[variable]).all()
    assert again.ledger.prices() == first.ledger.prices()
    if method != "no noise":
        kept = twin.run(data=data, ledger=tmp_path / "spent.jsonl")
        assert (plan.replay(tmp_path / "spent.jsonl").last[x] == kept.last[x]).all()


def test_deep_copies_carry_no_data_and_stay_apart():
    problem = pair()
    twin = copy.deepcopy(problem)
    assert all(p.bound for a in problem.agents for p in a.private)
    for a in twin.agents:
        found = [p for p in a.objective.parameters() if isinstance(p, dp.Private)]
        assert found == list(a.private) and not any(p.bound for p in found)
    twin.start[x][0] = 7.0
    assert problem.start[x].tolist() == [1.0, 1.0]


def test_a_model_that_fails_does_so_before_anything_is_read_or_charged(monkeypatch, tmp_path):
    read = []

    def fetch():
        read.append(True)
        return SECRETS

    private = dp.Private(fetch, shape=2, adjacency=WITHIN, name="load")
    problem = dp.Problem([agent("north", cp.sum_squares(x - private))])
    plan = problem.plan(dp.LinearizedADMM(), rounds=2, epsilon=1.0, delta=1e-6)

    def unknown(self):
        raise KeyError(0)

    monkeypatch.setattr(dp.Problem, "variables", unknown)
    with pytest.raises(KeyError):
        plan.run(ledger=tmp_path / "spent.jsonl")
    assert not read and not (tmp_path / "spent.jsonl").exists()
