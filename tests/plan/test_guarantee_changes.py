"""What one change means: the printed adjacency, read literally, costs what the plan states."""

import itertools
import math
import re

import cvxpy as cp
import mpmath as mp
import numpy as np
import pytest

import dpcvx as dp
from dpcvx.plan import banner
from dpcvx.plan.stated import GROUPED, UNGROUPED

ROUNDS = 3
RECORDS = np.eye(2)


def problem(count, groups=(), apart=False, numbers=(), **rows):
    """Clinics with features and labels of their own; some with a number beside them."""
    w = cp.Variable(2, name="w")
    agents = []
    for k in range(1, count + 1):
        X = dp.Private(RECORDS, name=f"X{k}", adjacency=dp.Rows(1.0, **rows))
        y = dp.Private(np.ones(2), name=f"y{k}", adjacency=dp.Rows(1.0 + apart, **rows))
        cost = cp.sum(cp.logistic(-cp.multiply(y, X @ w)))
        if k in numbers:
            d = dp.Private(np.ones(2), name=f"d{k}", adjacency=dp.Within(0.1))
            cost += cp.sum_squares(w - d)
        agents.append(dp.Agent(cp.Minimize(cost), [cp.abs(w) <= 1], name=f"c{k}"))
    return dp.Problem(agents, groups=groups)


def planned(model, **arguments):
    settings = {"rounds": ROUNDS, "epsilon": 1.0, "delta": 1e-6} | arguments
    return model.plan(dp.LinearizedADMM(), **settings)


# -- reading


def adjacency(guarantee):
    """The row of the text, in one line."""
    rows = re.split(r"\n(?=\S)", str(guarantee))
    (row,) = [row for row in rows if row.startswith("unit")]
    return re.sub(r"\s+", " ", row.removeprefix("unit")).strip().removeprefix("one change: ")


def split(text, word):
    """Parts between words that stand outside of brackets."""
    parts, depth, start = [], 0, 0
    for i, letter in enumerate(text):
        depth += (letter in "[(") - (letter in "])")
        if depth == 0 and text.startswith(word, i):
            parts.append(text[start:i])
            start = i + len(word)
    return [*parts, text[start:]]


def named(text):
    """Names in quotes, those of ranges such as 'X1' to 'X3' included."""
    for first, last in re.findall(r"'([^']+)'(?: to '([^']+)')?", text):
        stem, start, end = first.rstrip("0123456789"), first, last or first
        if not last:
            yield first
            continue
        start, end = (int(name.removeprefix(stem)) for name in (first, last))
        yield from (f"{stem}{k}" for k in range(start, end + 1))


def read(text):
    """What may change at once, as the text says: sets of names of private objects."""
    found = []
    for part in split(text, "; or "):
        if part.startswith("at once "):
            members = split(part.removeprefix("at once "), ", and ")
            inner = [re.fullmatch(r"\[?(.*?)\]? of '(\w+)'", member)[1] for member in members]
            found += [set().union(*one) for one in itertools.product(*map(read, inner))]
            continue
        _, places = part.split(" in ", 1)
        places = places.removeprefix("one of ")
        found += [
            set(named(place)) for some in split(places, " and ") for place in split(some, ", ")
        ]
    return found


def costs(plan):
    """For every change of the text, the exact delta at the stated epsilon."""
    model, stated = plan.problem, plan.guarantee
    owner = {p.name(): k for k, agent in enumerate(model.agents) for p in agent.private}
    deltas = []
    for names in read(adjacency(stated)):
        with mp.workdps(50):
            moved = {owner[name] for name in names}
            mu = mp.sqrt(sum(ROUNDS / mp.mpf(plan.agents[k].noise.multiplier) ** 2 for k in moved))
            e = mp.mpf(stated.epsilon)
            delta = mp.ncdf(mu / 2 - e / mu) - mp.exp(e) * mp.ncdf(-mu / 2 - e / mu)
            deltas.append(float(delta / mp.mpf(stated.delta)))
    return deltas


CASES = {
    "two agents": {"count": 2},
    "ten agents": {"count": 10},
    "unequal parts": {"count": 3, "apart": True},
    "numbers beside records": {"count": 3, "numbers": (1, 3)},
    "labels of their own kind": {"count": 1, "records": "visit"},
    "a group": {"count": 2, "groups": [["c1", "c2"]], "records": "patient"},
    "a group of ten": {"count": 10, "groups": [[f"c{k}" for k in range(1, 11)]]},
    "a group and others": {"count": 4, "groups": [["c2", "c4"]], "numbers": (1, 2)},
    "two groups": {
        "count": 4, "groups": [["c1", "c2"], ["c3", "c4"]], "apart": True, "numbers": (4,),
    },
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_the_printed_change_costs_what_is_stated(case):
    found = costs(planned(problem(**CASES[case])))
    assert max(found) <= 1
    assert max(found) == pytest.approx(1, rel=1e-6)


@pytest.mark.parametrize("case", CASES)
def test_every_object_is_in_the_text_and_records_change_as_a_whole(case):
    model = problem(**CASES[case])
    found = read(adjacency(planned(model).guarantee))
    names = {p.name() for agent in model.agents for p in agent.private}
    assert set().union(*found) == names
    for change in found:
        assert all((f"X{n[1:]}" in change) == (f"y{n[1:]}" in change) for n in change)
    groups = [set(group) for group in model.group_names]
    for change in found:
        agents = {f"c{name[1:]}" for name in change}
        assert agents in groups or len(agents) == 1


def test_the_text_names_the_change_by_agent():
    assert adjacency(planned(problem(2)).guarantee) == (
        "one record (a row of l2 norm at most 1) is replaced in one of 'y1' (with 'X1') and 'y2' "
        "(with 'X2')"
    )


def _clients(count, label="person of {}", **unlike):
    """The guarantee for clients with records of their own, and for one whose rows are longer."""
    rng, w, agents = np.random.default_rng(0), cp.Variable(2, name="w"), []
    for k in range(1, count + 1):
        rows = dp.Rows(unlike.get(f"c{k}", 1.0), records=label and label.format(k))
        X = dp.Private(rng.normal(size=(4, 2)) / 9, name=f"X{k}", adjacency=rows)
        y = dp.Private(np.sign(rng.normal(size=4)) / 9, name=f"y{k}", adjacency=rows)
        loss = cp.sum(cp.logistic(-cp.multiply(y, X @ w)))
        agents.append(dp.Agent(cp.Minimize(loss), [cp.abs(w) <= 1], name=f"c{k}"))
    return dp.Problem(agents).plan(dp.FederatedGradient(), rounds=2, epsilon=1.0, delta=1e-6)


def test_many_changes_that_are_alike_are_one_text():
    each = "a row of l2 norm at most 1) is replaced in one of 'y1' to 'y20' (with its own of 'X1'"
    plan = _clients(20)
    text = adjacency(plan.guarantee)
    assert text == f"one of person of 1 to person of 20 ({each} to 'X20')"
    assert [change.record for a in plan.guarantee.agents for change in a.changes] == [
        f"person of {k}" for k in range(1, 21)
    ]
    assert adjacency(_clients(20, None).guarantee) == f"one record ({each} to 'X20')"


def test_a_change_that_is_unlike_many_others_stands_by_itself():
    text = adjacency(_clients(20, c20=2.0).guarantee)
    assert "one of person of 1 to person of 19 (a row of l2 norm at most 1) is replaced" in text
    own = "one person of 20 (a row of l2 norm at most 2) is replaced in 'y20' (with 'X20')"
    assert text.split("; or ")[1:] == [own]


def test_what_is_alike_is_looked_at_once(monkeypatch):
    looked = []
    for module, name in ((banner, "figures"), (banner, "_bounded_by")):
        plain = getattr(module, name)
        monkeypatch.setattr(
            module, name, lambda *given, f=plain, n=name: looked.append(n) or f(*given)
        )
    once, both = _clients(20), _clients(20, c7=2.0)
    assert "c1 to c20, each:" in once.derivation
    assert sorted(looked) == ["_bounded_by", "figures"]
    looked.clear()
    said = both.derivation
    assert sorted(looked) == ["_bounded_by"] * 2 + ["figures"] * 2
    assert "c7: 'y7' and 'X7'" in " ".join(said.split())


def test_assumptions_say_of_whose_data():
    assert "held by one agent" in UNGROUPED and "by each of them" in GROUPED
    alone, grouped = (planned(problem(2, g)).guarantee.assumptions for g in ((), [["c1", "c2"]]))
    assert UNGROUPED in alone and GROUPED not in alone
    assert GROUPED in grouped and UNGROUPED not in grouped


@pytest.mark.parametrize(("count", "epsilon"), [(2, 1.455), (10, 3.525)])
def test_what_a_person_with_data_in_all_agents_loses(count, epsilon):
    """The figures of docs/privacy/composition.md: without a group they are not what is stated."""
    plan = planned(problem(count))
    total = plan.agent("c1").loss.repeated(count)
    assert total.price(1e-6).epsilon == pytest.approx(epsilon, rel=1e-3)


# -- labels in several agents


def mixed(first, second, groups=()):
    """Features with one agent, labels with another."""
    w, z = cp.Variable(2, name="w"), cp.Variable(2, name="z")
    X = dp.Private(RECORDS, name="X", adjacency=first)
    y = dp.Private(np.ones(2), name="y", adjacency=second)
    hospital = dp.Agent(cp.Minimize(cp.sum_squares(X @ w - z)), [cp.abs(w) <= 1], name="hospital")
    registry = dp.Agent(cp.Minimize(cp.sum_squares(z - y)), [cp.abs(z) <= 1], name="registry")
    return dp.Problem([hospital, registry], groups=groups)


def test_a_label_given_in_several_agents_is_refused_with_both_ways_out():
    with pytest.raises(dp.PrivacyError) as caught:
        problem(3, records="patient")
    said = str(caught.value)
    assert "records='patient' is given in 3 agents ('c1', 'c2', 'c3')" in said
    assert "dp.Problem(..., groups=[['c1', 'c2', 'c3']])" in said
    assert "leave records= out" in said and "records='patient of c1'" in said


@pytest.mark.parametrize(
    "groups", [[["c1", "c2"]], [["c1", "c2"], ["c3"]], [["c2", "c3"]]], ids=str
)
def test_a_group_of_some_of_them_is_not_enough(groups):
    with pytest.raises(dp.PrivacyError, match="groups=\\[\\['c1', 'c2', 'c3'\\]\\]"):
        problem(3, groups, records="patient")


def test_a_vertical_partition_is_refused_under_one_label_and_taken_as_a_group():
    patient = dp.Rows(1.0, records="patient")
    with pytest.raises(dp.PrivacyError, match="in 2 agents \\('hospital', 'registry'\\)"):
        mixed(patient, patient)
    model = mixed(patient, patient, [["hospital", "registry"]])
    text = adjacency(planned(model, rounds=2, epsilon=1.0).guarantee)
    assert read(text) == [{"X", "y"}]


def test_the_word_of_the_default_given_by_the_user_counts_as_given():
    with pytest.raises(dp.PrivacyError, match="records='record'"):
        problem(2, records="record")


def test_different_labels_and_no_label_need_no_group():
    for pair in (
        (dp.Rows(1.0), dp.Rows(1.0)),
        (dp.Rows(1.0, records="patient"), dp.Rows(1.0)),
        (dp.Rows(1.0, records="record"), dp.Rows(1.0)),
        (dp.Rows(1.0, records="patient"), dp.Rows(1.0, records="citizen")),
    ):
        found = read(adjacency(planned(mixed(*pair)).guarantee))
        assert sorted(found, key=sorted) == [{"X"}, {"y"}]


def test_the_default_label_ties_objects_of_one_agent_as_the_word_does():
    default, word = (planned(problem(1, **rows)) for rows in ({}, {"records": "record"}))
    assert str(default.guarantee) == str(word.guarantee)
    # Seeded runs of the two share their noise.
    assert default.fingerprint == word.fingerprint


# -- the ledger tells changes apart exactly


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (dp.Within(0.1), dp.Within(0.1 * (1 + 4e-16))),
        (dp.Within(1.0, norm=2), dp.Within(1.0000004, norm=2)),
        (dp.Rows(1.0), dp.Rows(1.0000004)),
        (dp.Rows(1.0), dp.Rows(1.0, relation="add_or_remove_one")),
        (dp.Rows(1.0), dp.Rows(1.0, records="visit")),
    ],
    ids=["one bit", "radius", "bound", "change", "label"],
)
def test_a_ledger_goes_on_under_exactly_the_same_change(first, second):
    def accounts(change):
        x = cp.Variable(2, name="x")
        d = dp.Private(RECORDS[0], name="d", adjacency=change)
        agent = dp.Agent(cp.Minimize(cp.sum_squares(x - d)), name="a")
        return planned(dp.Problem([agent])).accounts()[0]

    one, other = accounts(first), accounts(second)
    assert one.continued(accounts(first)).adjacency == one.adjacency
    with pytest.raises(dp.PrivacyError, match="counts releases under the adjacency") as caught:
        one.continued(other)
    for account in (one, other):  # with every digit, or they would look alike
        assert account.adjacency["d"] in str(caught.value)
    assert one.adjacency != other.adjacency


def test_displays_of_changes_stay_short():
    third = dp.Within(1 / 3)
    assert str(third) == "one entry changes by at most 0.333333"
    assert third.in_full == f"one entry changes by at most {1 / 3!r}"
    assert math.isclose(float(third.in_full.split()[-1]), 1 / 3, rel_tol=0)


def test_every_object_of_a_record_has_its_own_bound():
    w = cp.Variable(2, name="w")
    y = dp.Private(shape=4, name="y", adjacency=dp.Rows(1.0, records="patient"))
    X = dp.Private(shape=(4, 2), name="X", adjacency=dp.Rows(2.0, records="patient"))
    fit = dp.Agent(cp.Minimize(cp.sum_squares(X @ w - y)), [cp.norm(w) <= 1], name="fit")
    plan = dp.Problem([fit]).plan(dp.FederatedGradient(), rounds=2, epsilon=1.0, delta=1e-6)
    said = " ".join(str(plan.guarantee).split())
    for name, bound in (("X", 2), ("y", 1)):
        assert re.search(rf"'{name}', a row of l2 norm at most {bound}\b", said) or re.search(
            rf"at most {bound}\) is replaced in '{name}'", said
        )
