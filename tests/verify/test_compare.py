"""Comparing mechanisms on stand-in data: what is read, how candidates are ranked, what is shown."""

import math
from dataclasses import replace
from functools import cache

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp
from dpcvx.verify import compare
from dpcvx.verify.compare import Candidate, options

LOADS = (np.array([0.2, 0.4]), np.array([0.6, 0.1]))
PROXY = {"load 0": LOADS[0], "load 1": LOADS[1]}


def forbidden():
    raise AssertionError("private data were read")


def network(source=forbidden, constraints=lambda x, k: [cp.abs(x) <= 2]):
    """Two agents that pull x towards their loads."""
    x = cp.Variable(2, name="x")
    agents = []
    for k in range(2):
        load = dp.Private(source, shape=2, name=f"load {k}", adjacency=dp.Within(0.01))
        cost = cp.sum_squares(x - load)
        agents.append(dp.Agent(cp.Minimize(cost), constraints(x, k), name=f"a{k}"))
    return dp.Problem(agents)


def classifier():
    """Nothing here can be released once, and no exact step is private."""
    w = cp.Variable(2, name="w")
    X = dp.Private(forbidden, shape=(4, 2), name="X", adjacency=dp.Rows(1.0))
    cost = cp.sum(cp.logistic(-(X @ w))) + cp.sum_squares(w)
    return dp.Problem([dp.Agent(cp.Minimize(cost), [cp.abs(w) <= 2], name="site")])


def compared(problem=None, **arguments):
    given = {"epsilon": 1.0, "delta": 1e-6, "proxy": PROXY, "rounds": 4, "runs": 2, "penalty": 2.0}
    return (network() if problem is None else problem).compare(**given | arguments)


@cache
def usual():
    return compared()


@cache
def partly():
    return compared(classifier(), proxy={"X": np.eye(4)[:, :2]}, rounds=2, runs=1)


def figures(comparison):
    return [(c.name, c.gap, c.quartiles, c.mismatch, c.violation) for c in comparison.candidates]


@pytest.fixture
def few(monkeypatch):
    """Two candidates without a costly calibration, for tests that are not about their choice."""
    names = ("noisy gradients, last iterate", "release once, gradient steps")
    monkeypatch.setattr(
        compare, "options", lambda rho: [o for o in options(rho) if o.name in names]
    )


# What is read


def test_no_private_data_are_read():
    assert len(usual().candidates) == len(options(2.0))
    assert all(c.plan is not None for c in usual().candidates)
    with pytest.raises(dp.DataError, match="'load 0' raised AssertionError"):
        usual().recommended.plan.run(seed=0)


def test_data_in_the_problem_are_left_alone(few):
    far = compared(network(np.full(2, 1.9)), rounds=2, runs=1)
    assert figures(far) == figures(compared(rounds=2, runs=1))


def test_stand_ins_are_given_by_object_by_name_or_as_functions(few):
    expected = figures(compared(rounds=2, runs=1))
    problem = network()
    first, second = (agent.private[0] for agent in problem.agents)
    proxy = {first: LOADS[0], second: lambda: LOADS[1]}
    assert figures(compared(problem, proxy=proxy, rounds=2, runs=1)) == expected


@pytest.mark.parametrize("given", [{}, {"load 1": LOADS[1]}])
def test_a_missing_stand_in_is_named(given):
    with pytest.raises(dp.ModelError, match="'load 0' has no stand-in"):
        compared(proxy=given)


def test_stand_ins_that_do_not_fit_are_refused(few):
    with pytest.raises(dp.ModelError, match="'nobody', which names 0 private objects"):
        compared(proxy={**PROXY, "nobody": 1.0})
    with pytest.raises(dp.DataError, match="'load 0' have shape"):
        compared(proxy={**PROXY, "load 0": np.zeros(3)})


@pytest.mark.parametrize("runs", [0, 1.5, None])
def test_the_number_of_runs_is_checked(runs):
    with pytest.raises(dp.ModelError, match="runs="):
        compared(runs=runs)


@pytest.mark.parametrize("before", [None, np.array([0.1, 0.2])])
def test_values_of_variables_are_restored(few, before):
    problem = network()
    (x,) = problem.variables()
    x.value = before
    compared(problem, rounds=1, runs=1)
    assert x.value is None if before is None else np.array_equal(x.value, before)


def test_values_of_variables_are_restored_after_an_error(few):
    problem = network()
    (x,) = problem.variables()
    x.value = np.array([0.1, 0.2])
    with pytest.raises(dp.ModelError, match="seed"):
        compared(problem, rounds=1, runs=1, seed=-1)
    assert np.array_equal(x.value, [0.1, 0.2])


# What is computed


def test_every_candidate_spends_the_same_budget():
    for candidate in usual().candidates:
        stated = candidate.plan.guarantee
        assert (stated.kind, stated.delta) == ("worst-case", 1e-6)
        assert stated.epsilon == pytest.approx(1.0, rel=1e-4)
        assert stated.epsilon <= 1.0
        assert candidate.plan.rounds == 4
    assert (usual().epsilon, usual().delta, usual().runs) == (1.0, 1e-6, 2)


def test_the_optimum_and_the_gap_are_those_of_the_stand_in():
    optimum = np.sum((LOADS[0] - LOADS[1]) ** 2) / 2
    assert usual().optimum == pytest.approx(optimum, abs=1e-6)
    problem = network()
    by_name = {c.name: c for c in usual().candidates}
    plan = problem.plan(dp.ADMM(penalty=2.0), rounds=4, epsilon=1.0, delta=1e-6, release="once")
    gaps, mismatches = [], []
    for seed in (0, 1):
        last = plan.run(data=PROXY, seed=seed).last
        gaps.append(dp.not_private.objective(problem, last, PROXY) - usual().optimum)
        mismatches.append(last.mismatch)
    found = by_name["release once, exact steps"]
    assert found.gap == pytest.approx(np.median(gaps), rel=1e-9)
    assert found.quartiles == pytest.approx(tuple(np.quantile(gaps, (0.25, 0.75))), rel=1e-9)
    assert found.mismatch == pytest.approx(np.median(mismatches), rel=1e-9)


@pytest.mark.parametrize("name", [option.name for option in options(2.0)])
def test_the_plan_of_a_candidate_reports_the_iterate_that_was_judged(name):
    (candidate,) = (c for c in usual().candidates if c.name == name)
    gaps, mismatches = [], []
    for seed in (0, 1):
        result = candidate.plan.run(data=PROXY, seed=seed)
        if "average" in name or "last" in name:
            assert result.reported == ("average" if "average" in name else "last")
        value = dp.not_private.objective(candidate.plan.problem, result.solution, PROXY)
        gaps.append(value - usual().optimum)
        mismatches.append(result.consensus_residual)
        (x,) = candidate.plan.problem.variables()
        assert np.array_equal(x.value, result.solution[x])
    assert candidate.gap == np.median(gaps)
    assert candidate.mismatch == np.median(mismatches)


def test_a_seed_repeats_a_comparison_and_another_changes_it(few):
    assert figures(compared()) == figures(compared())
    assert figures(compared(seed=7)) != figures(compared())


def test_candidates_are_ranked_by_gap_and_those_refused_come_last():
    gaps = [c.gap for c in usual().candidates]
    assert gaps == sorted(gaps)
    allowed = [c.plan is not None for c in partly().candidates]
    assert allowed == sorted(allowed, reverse=True)
    refused = {c.name for c in partly().candidates if c.plan is None}
    assert refused == {
        "noisy exact steps, average",
        "release once, exact steps",
        "release once, gradient steps",
    }
    assert all(c.reason and np.isnan(c.gap) for c in partly().candidates if c.plan is None)


def test_the_smallest_gap_within_the_constraints_is_recommended():
    plan = usual().candidates[0].plan
    outside, best, next_best = (
        Candidate(name, plan, gap, (gap, gap), 1e-9, violation)
        for name, gap, violation in (
            ("outside", 0.1, 1e-2),
            ("best", 0.2, 1e-9),
            ("next", 0.3, 0.0),
        )
    )
    comparison = replace(usual(), candidates=(outside, best, next_best, Candidate("no", None)))
    assert comparison.recommended is best
    text = str(comparison)
    assert [line[2:7] for line in text.splitlines() if line.startswith("* ")] == ["best ", "recom"]
    assert "* recommended: plan = comparison.recommended.plan (best)" in text


def test_agents_that_ignore_each_other_are_not_recommended(few):
    # A tiny penalty: each agent minimises on its own, far below the common optimum.
    found = compared(penalty=1e-3, rounds=3, runs=1).recommended
    assert found.gap > -0.01


def test_a_violation_that_is_not_known_is_not_a_small_one(few, monkeypatch):
    """Python's `max` passes over a nan that comes second."""
    known = iter([0.0, math.nan] * 20)
    own = property(lambda self: next(known))
    monkeypatch.setattr(dp.Result, "max_violation", own)
    assert all(math.isnan(c.violation) for c in compared().candidates)


# Which arguments fit no candidate


def test_objectives_that_are_not_convex_are_refused_in_words():
    x = cp.Variable(2, name="x")
    load = dp.Private(forbidden, shape=2, name="load", adjacency=dp.Within(0.01))
    cost = load @ x - cp.sum_squares(x)
    problem = dp.Problem([dp.Agent(cp.Minimize(cost), [cp.abs(x) <= 1], name="a")])
    with pytest.raises(dp.ModelError, match="objectives are convex"):
        compared(problem, proxy={"load": LOADS[0]})


@pytest.mark.parametrize(
    "arguments", [{"epsilon": -1.0}, {"epsilon": 0.0}, {"delta": 2.0}, {"rounds": 0}]
)
def test_arguments_without_meaning_are_refused(few, arguments):
    with pytest.raises(dp.DpcvxError):
        compared(**arguments)


@pytest.mark.filterwarnings("ignore:invalid value")
def test_stand_ins_without_an_optimum_are_refused(few):
    problem = network(constraints=lambda x, k: [cp.abs(x) <= 2, x >= 1 if k == 0 else x <= 0])
    with pytest.raises(dp.DpcvxError):
        compared(problem, rounds=1, runs=1)


def test_pure_epsilon_leaves_the_candidates_with_laplace_noise():
    found = compared(delta=0.0, rounds=2, runs=1)
    assert {c.name for c in found.candidates if c.plan is not None} == {
        "Laplace noise, last iterate",
        "Laplace noise, average",
    }


# What is shown


def test_the_table_names_budget_runs_gaps_and_the_recommendation():
    lines = str(usual()).splitlines()
    assert max(map(len, lines)) <= 80
    start = next(k for k, line in enumerate(lines) if line.split()[:1] == ["gap"])
    assert lines[start].split() == ["gap", "25", "%", "75", "%", "mismatch", "violation"]
    head = " ".join(lines[:start])
    assert head.startswith("Every mechanism spends (1, 1e-6) in total.")
    assert f"objective minus the optimum {usual().optimum:.6g}, the median over 2 runs" in head
    assert "no private data were read" in head
    rows, after = lines[start + 1 : start + 1 + len(usual().candidates)], lines[start + 10 :]
    for row, candidate in zip(rows, usual().candidates, strict=True):
        assert row[2:].startswith(candidate.name)
        shown = row[2 + len(candidate.name) :].split()
        assert float(shown[0]) == pytest.approx(candidate.gap, rel=1e-2)
        assert (row[0] == "*") == (candidate is usual().recommended)
    best = usual().recommended.name
    assert after == [f"* recommended: plan = comparison.recommended.plan ({best})"]


def test_what_is_not_applicable_is_listed_with_its_reason():
    text = " ".join(str(partly()).split())
    reasons = {c.name: c.reason for c in partly().candidates if c.plan is None}
    assert len(reasons) == 3
    for name, reason in reasons.items():  # whole, and with what to write instead
        assert name in text.split("not applicable", 1)[1] and reason in text
    assert "not applicable: noisy exact steps, average. The exact steps of dp.ADMM need a" in text
    assert "not applicable: release once, gradient steps. release='once' needs a gradient" in text
    assert "that of agent 'site' is not: private 'X' and variables meet in cp.logistic. Use" in text
    assert text.count("* recommended") == 1


def test_mechanisms_with_one_reason_share_it():
    text = " ".join(str(compared(delta=0.0, rounds=2, runs=1)).split())
    assert text.count("Gaussian noise has no guarantee at delta=0.0") == 1
    assert "; noisy gradients, average; " in text


def test_a_comparison_is_quiet_unless_asked_or_on_a_terminal(few, capsys):
    compared(rounds=1, runs=1)
    compared(rounds=1, runs=1, verbose=False)
    quiet = capsys.readouterr()
    assert quiet.out == quiet.err == ""
    compared(rounds=1, runs=1, verbose=True)
    assert "comparing" in capsys.readouterr().out


# Runs that diverge


def steep(monkeypatch, *names):
    """Unbounded agents, and candidates of which those named take steps that lead to infinity."""
    long, short = (
        dp.LinearizedADMM(penalty=1.0, step=10.0),
        dp.LinearizedADMM(penalty=1.0, step=0.1),
    )
    given = [compare.Option(n, long if n in names else short) for n in ("first", "second")]
    monkeypatch.setattr(compare, "options", lambda rho: given)
    return compared(network(constraints=lambda x, k: []), rounds=100, runs=1, epsilon=20.0)


def test_a_candidate_that_diverges_has_an_infinite_gap_and_is_not_recommended(monkeypatch):
    found = steep(monkeypatch, "first")
    assert [c.name for c in found.candidates] == ["second", "first"]
    good, bad = found.candidates
    assert bad.gap == math.inf and bad.quartiles == (math.inf, math.inf)
    assert found.recommended is good and math.isfinite(good.gap)
    # Not even if the other one leaves its sets.
    outside = replace(good, violation=0.1)
    kept = replace(bad, violation=0.0)
    assert replace(found, candidates=(outside, kept)).recommended is outside


def test_nothing_is_recommended_where_everything_diverges(monkeypatch):
    found = steep(monkeypatch, "first", "second")
    assert all(c.gap == math.inf for c in found.candidates)
    with pytest.raises(dp.ModelError, match="No mechanism can be recommended"):
        _ = found.recommended
    assert "recommended" not in str(found)
    assert repr(found).endswith("recommended: none>")
