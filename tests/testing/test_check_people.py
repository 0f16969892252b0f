"""Several rows of one person in plans: runs, checks and audits, and faults that a check finds."""

import json

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp
from dpcvx.model.adjacency import Rows
from dpcvx.sensitivity import certificate

M, N, K = 12, 2, 3
ANN, BOB, CEM = "Ann Qz", "Bob Qz", "Cem Qz"
PEOPLE = [ANN, BOB, ANN, ANN, CEM, ANN, BOB, ANN, *[f"{k} Qz" for k in range(4)]]
GAUSS = dp.Gaussian(noise_multiplier=2.0)


def records():
    """Rows of one direction, so that those of one person add up."""
    X = np.tile([1.0, 0.0], (M, 1))
    X[6:] *= 0.9
    return {"X": X, "y": np.ones(M)}


def clinic(data=None, clip=None, relation="replace_one", k=K, cost=None, proxy=False):
    rows = Rows(1.0, relation=relation, records="visit", max_rows_per_person=k)
    w = cp.Variable(N, name="w")
    held = {name: None if data is None else dp.ByPerson(data[name], PEOPLE) for name in "Xy"}
    public = {name: value if proxy else None for name, value in records().items()}
    X = dp.Private(held["X"], shape=(M, N), name="X", adjacency=rows, proxy=public["X"])
    y = dp.Private(held["y"], shape=(M,), name="y", adjacency=rows, proxy=public["y"])
    loss = cost or (lambda X, w, y: cp.sum(cp.logistic(-cp.multiply(y, X @ w))))
    agent = dp.Agent(
        cp.Minimize(loss(X, w, y) + 0.1 * cp.sum_squares(w)),
        [cp.abs(w) <= 1],
        name="clinic",
        clip_norm=clip,
    )
    return dp.Problem([agent])


def planned(problem, algorithm=None, **arguments):
    arguments = {"mechanism": GAUSS, "rounds": 2, "delta": 1e-6, **arguments}
    return problem.plan(algorithm or dp.FederatedGradient(step=0.1), **arguments)


def squares(X, w, y):
    return cp.sum_squares(X @ w - y)


CASES = {
    "gradient": dict(),
    "clipped": dict(clip=0.2),
    "removed": dict(relation="add_or_remove_one", clip=0.2),
    "one row": dict(k=1),
    "more than all": dict(k=99),
    "squares": dict(cost=squares),
}


@pytest.mark.parametrize("case", CASES)
def test_checks_of_people_pass(case):
    found = dp.check_sensitivity(planned(clinic(records(), **CASES[case])))
    assert found and found.agents[0].ratio > 0.3


@pytest.mark.parametrize("relation", ["replace_one", "add_or_remove_one"])
def test_what_is_released_once_passes(relation):
    problem = clinic(records(), relation=relation, cost=squares)
    plan = planned(problem, dp.LinearizedADMM(penalty=1.0), release="once")
    assert plan.agents[0].publication.kind == "second moments"
    assert dp.check_sensitivity(plan).agents[0].ratio > 0.3


def one_row(changes, adjacency, rows, meet=None):
    """Who charges for one row, whatever a person has."""
    return float(changes.max())


def test_one_row_in_place_of_all_of_a_person_is_a_fault(monkeypatch):
    monkeypatch.setattr(certificate, "of_person", one_row)
    monkeypatch.setattr("dpcvx.plan.checks.rehearse", lambda *arguments: None)
    found = dp.check_sensitivity(planned(clinic(records(), clip=0.2)))
    assert found.status == "failed" and "neighbors differ by" in str(found)
    assert found.agents[0].ratio == pytest.approx(K, rel=1e-3)


def test_a_rehearsal_finds_one_row_in_place_of_all_of_a_person(monkeypatch):
    monkeypatch.setattr(certificate, "of_person", one_row)
    with pytest.raises(dp.PrivacyError, match="Internal error"):
        planned(clinic(clip=0.2))


def test_an_identifier_that_is_not_heeded_is_a_fault(monkeypatch):
    monkeypatch.setattr(Rows, "limited", lambda self, rows, people: rows)
    plan = planned(clinic(records()))
    other = records()
    other["X"][np.equal(PEOPLE, ANN)] *= -1
    with pytest.raises(dp.DataError, match="further from the data"):
        dp.check_sensitivity(plan, {"X": dp.ByPerson(other["X"], PEOPLE)})


def test_all_rows_of_a_person_may_differ_between_neighbors():
    """The first three of five rows count."""
    other = records()
    other["X"][np.equal(PEOPLE, ANN)] *= -1
    neighbors = {"X": dp.ByPerson(other["X"], PEOPLE)}
    plan = planned(clinic(records(), clip=0.2))
    assert dp.check_sensitivity(plan, neighbors).agents[0].ratio == pytest.approx(1, rel=1e-3)
    assert dp.audit(plan, neighbors, runs=20).passed


@pytest.mark.parametrize("case", ["two people", "other people", "none"])
def test_changes_of_others_are_refused(case):
    other, people = records()["X"], [*PEOPLE]
    other[0] *= -1
    if case == "two people":
        other[1] *= -1
    if case == "other people":
        people[4] = ANN
    given = {"X": other}
    if case != "none":
        given = {"X": dp.ByPerson(other, people), "y": dp.ByPerson(records()["y"], people)}
    with pytest.raises(dp.DataError) as caught:
        dp.check_sensitivity(planned(clinic(records())), given)
    words = {"two people": "rows of one person", "other people": "other people", "none": "without"}
    assert words[case] in str(caught.value) and "Qz" not in str(caught.value)


@pytest.mark.parametrize("way", ["declared", "data", "function"])
def test_a_run_takes_the_first_rows_of_each_person(way):
    """The same as a run on data with zeros in place of the rest, bit for bit."""
    cut = {name: value.copy() for name, value in records().items()}
    for value in cut.values():
        value[[5, 7]] = 0.0
    held = {name: dp.ByPerson(value, PEOPLE) for name, value in records().items()}
    if way == "declared":
        found = planned(clinic(records())).run(seed=1)
    elif way == "data":
        found = planned(clinic()).run(seed=1, data=held)
    else:
        found = planned(clinic()).run(seed=1, data={k: lambda v=v: v for k, v in held.items()})
    expected = planned(clinic(cut)).run(seed=1)
    assert np.array_equal(found.solution.vectors[0], expected.solution.vectors[0])


def test_parts_of_the_same_rows_have_the_same_people():
    """However these are called."""
    plan, data = planned(clinic()), records()
    numbers = [10 * PEOPLE.index(name) for name in PEOPLE]
    held = {"X": dp.ByPerson(data["X"], PEOPLE), "y": dp.ByPerson(data["y"], numbers)}
    plan.run(seed=1, data=held)
    held["y"] = dp.ByPerson(data["y"], PEOPLE[::-1])
    with pytest.raises(dp.DataError, match=r"'y' and 'X'.*different people") as caught:
        plan.run(seed=1, data=held)
    assert "Qz" not in str(caught.value)


def test_identifiers_are_in_no_plan_and_no_ledger(tmp_path):
    plan = planned(clinic(records()))
    told = plan.run(seed=1, ledger=tmp_path / "spent.jsonl")
    other = planned(clinic({k: v.copy() for k, v in records().items()}))
    assert plan.fingerprint == other.fingerprint == planned(clinic()).fingerprint
    assert plan.fingerprint != planned(clinic(k=K + 1)).fingerprint
    written = (tmp_path / "spent.jsonl").read_bytes().decode("utf8", "replace")
    texts = [str(plan), str(plan.guarantee), str(plan.derivation), str(told), written]
    assert not any("Qz" in text for text in texts)
    change = "one person (at most 3 rows of l2 norm at most 1"
    assert all(change in " ".join(text.split()) for text in (str(plan), str(plan.guarantee)))
    assert "one person (at most 3 rows" in written
    assert "all rows of one person have one identifier" in " ".join(str(plan.guarantee).split())
    plain = str(planned(clinic(records())).guarantee.agents[0].adjacency["X"])
    assert json.dumps(plain).startswith('"one person')


def test_public_proxy_data_need_no_identifiers():
    problem = clinic(proxy=True)
    assert problem.plan(epsilon=1.0, delta=1e-6).forecast() is not None


def test_groups_move_the_rows_of_one_person_in_each_agent():
    rows = Rows(1.0, records="patient", max_rows_per_person=K)
    agents = []
    w = cp.Variable(N, name="w")
    for name in ("clinic", "lab"):
        X = dp.Private(shape=(M, N), name=f"X of {name}", adjacency=rows)
        cost = cp.sum(cp.logistic(X @ w)) + cp.sum_squares(w)
        agents.append(dp.Agent(cp.Minimize(cost), [cp.abs(w) <= 1], name=name))
    with pytest.raises(dp.PrivacyError, match="groups="):
        dp.Problem(agents)
    plan = planned(dp.Problem(agents, groups=[["clinic", "lab"]]))
    assert "at once one person (at most 3 rows" in " ".join(str(plan.guarantee).split())


def clients(scale=1.0):
    """Federated learning by people who hold many rows each: clients' mean losses, clipped."""
    rows = dp.Rows(1.0, max_rows_per_person="all")
    w, agents = cp.Variable(N, name="w"), []
    for k in range(3):
        made = records()
        X = dp.Private(made["X"], name=f"X{k}", adjacency=rows)
        y = dp.Private(made["y"], name=f"y{k}", adjacency=rows)
        loss = cp.sum(cp.logistic(-cp.multiply(y, X @ w))) / M
        agents.append(dp.Agent(cp.Minimize(loss), [cp.abs(w) <= 1], clip_norm=scale / M))
    return dp.Problem(agents)


def test_a_client_is_one_record_of_which_the_mean_of_clipped_slopes_is_released():
    plan = planned(clients(scale=0.2))
    assert plan.guarantee.agents[0].sensitivity == pytest.approx(2 * 0.2)
    assert "one person (all rows of l2 norm at most 1" in " ".join(str(plan.guarantee).split())
    found = dp.check_sensitivity(plan)
    assert found and min(agent.ratio for agent in found.agents) == pytest.approx(1, rel=1e-3)
    plan.run(seed=1)
