"""What a prompt shows of an object: a line or two, however long the run and many the agents."""

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp


def objects(agents, rounds):
    x = cp.Variable(3, name="x")
    made = []
    for k in range(agents):
        d = dp.Private(np.ones(3), name=f"d{k}", adjacency=dp.Within(0.1))
        made.append(dp.Agent(cp.Minimize(cp.sum_squares(x - d)), [cp.abs(x) <= 2], name=f"a{k}"))
    problem = dp.Problem(made)
    plan = problem.plan(dp.LinearizedADMM(), epsilon=1.0, delta=1e-6, rounds=rounds)
    result = plan.run(seed=0, record=True, iterates=True)
    return {
        "problem": problem,
        "plan": plan,
        "guarantee": plan.guarantee,
        "result": result,
        "history": result.history,
        "transcript": result.transcript,
        "ledger": result.ledger,
        "account": result.ledger["a0"],
        "entries": result.ledger["a0"].entries,
        "solution": result.solution,
        "iterate": result.iterates[-1],
    }


@pytest.fixture(scope="module")
def large():
    return objects(30, 40)


@pytest.mark.parametrize("name", sorted(objects(1, 1)))
def test_a_representation_has_five_lines_at_most(large, name):
    shown = repr(large[name])
    assert len(shown.splitlines()) <= 5
    assert len(shown) <= 480
    assert len(shown) <= len(repr(objects(2, 2)[name])) + 20


def test_representations_say_what_matters(large):
    assert repr(large["result"]).startswith(
        "<Result: completed after 40 rounds, consensus residual "
    )
    assert "(1, 1e-6)-DP" in repr(large["result"])
    assert "(1, 1e-6)-DP" in repr(large["plan"]) and "LinearizedADMM" in repr(large["plan"])
    assert repr(large["problem"]) == "<Problem: 30 agents, 1 variable, 30 private objects>"
    assert repr(large["ledger"]) == "<Ledger: 30 agents, 1200 releases>"
    assert repr(large["account"]) == "<Account of 'a0': 40 releases>"
    assert repr(large["transcript"]) == "<Transcript: 1200 releases in 40 rounds, completed>"
    assert repr(dp.Ledger(())) == "<Ledger: 0 agents, 0 releases>"


def test_text_is_a_report_on_one_screen(large):
    for name in ("plan", "result"):
        lines = str(large[name]).splitlines()
        assert lines[0].startswith(f"dpcvx {name}: ") and lines[1].startswith("Privacy      (1, ")
        assert len(lines) <= 26 and max(map(len, lines)) <= 80
    assert "Sensitivity  " in large["plan"].derivation


def test_a_comparison_names_its_recommendation():
    made = objects(2, 2)["problem"]
    proxy = {"d0": np.ones(3), "d1": 2 * np.ones(3)}
    found = made.compare(epsilon=1e3, delta=1e-6, proxy=proxy, time_limit=1e-3, verbose=False)
    assert repr(found) == "<Comparison: 1 candidate at (1000, 1e-6); recommended: none>"
