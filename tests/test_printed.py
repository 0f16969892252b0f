"""What users see printed, as whole texts: no room below has all of these."""

import re
from functools import cache

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp

WIDTH = 80
# Three significant digits: values of variables have four, which are rows of "Solution".
NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?:e-?\d+)?(?![\w.]*\w)")


def network():
    """The model of the README: two agents, one private object."""
    flow = cp.Variable(name="flow")
    gen = cp.Variable(2, name="gen", nonneg=True)
    usage = dp.Private([3.0, 5.0], name="usage", adjacency=dp.Within(0.1))
    cost = cp.sum_squares(gen + flow - usage)
    north = dp.Agent(cp.Minimize(cost), [gen <= 4], name="north")
    south = dp.Agent(cp.Minimize(cp.square(flow)), [cp.abs(flow) <= 2], name="south")
    return dp.Problem([north, south])


def clinics(count=2):
    """Logistic regression on the rows of two clinics."""
    rng, w, agents = np.random.default_rng(0), cp.Variable(3, name="w"), []
    for k in range(count):
        X = rng.normal(size=(100, 3))
        X /= np.maximum(1, np.linalg.norm(X, axis=1, keepdims=True))
        rows = dp.Private(X, name=f"rows{k}", adjacency=dp.Rows(max_norm=1.0))
        cost = cp.sum(cp.logistic(rows @ w)) / 100 + 0.05 * cp.sum_squares(w)
        agents.append(dp.Agent(cp.Minimize(cost), [cp.norm(w) <= 5], name=f"clinic{k}"))
    return dp.Problem(agents)


def moments():
    """A matrix whose objective is linear in it: principal components."""
    X = np.eye(3)[np.arange(30) % 3]
    rows = dp.Private(X, name="rows", adjacency=dp.Rows(max_norm=1.0))
    P = cp.Variable((3, 3), PSD=True, name="P")
    cost = -cp.sum(cp.multiply(rows @ P, rows)) / 30
    agent = dp.Agent(cp.Minimize(cost), [cp.trace(P) == 1], name="hospital")
    return dp.Problem([agent])


SEEN = (
    "a run of one release",
    "a run of rounds",
    "objective perturbation",
    "one gradient",
)


@cache
def printed(name):
    """All that is printed of a model, by what it is."""
    problem, more = {
        "a run of one release": lambda: (network(), {}),
        "a run of rounds": lambda: (clinics(), {}),
        "objective perturbation": lambda: (clinics(), {"delta": 0}),
        "one gradient": lambda: (moments(), {}),
    }[name]()
    plan = problem.plan(**{"epsilon": 1.0, "delta": 1e-6, **more})
    texts = {"plan": plan, "guarantee": plan.guarantee, "derivation": plan.derivation}
    texts["result"] = plan.run(seed=1, verbose=False)
    texts["audit"] = dp.audit(plan, runs=20, seed=1)
    if name == "a run of one release":
        texts["check"] = dp.check_sensitivity(plan)
    return {what: str(thing) for what, thing in texts.items()}


@pytest.mark.parametrize("name", SEEN)
def test_all_that_is_printed_fits_on_80_columns(name):
    for what, text in printed(name).items():
        assert max(map(len, text.splitlines())) <= WIDTH, what


@pytest.mark.parametrize("name", SEEN)
def test_numbers_have_three_digits_and_no_rounding_errors(name):
    for what, text in printed(name).items():
        said = re.sub(r"^Solution .*\n(?: {13}.*\n)*", "", text, flags=re.M)
        said = re.sub(r"\(dpcvx .*\)", "", said)  # versions
        for number in NUMBER.findall(said):
            digits = number.partition("e")[0].replace(".", "").strip("0")
            assert len(digits) <= 3 or number.isdigit(), (what, number)
        assert not re.search(r"\de-(?:09|1\d)|0\.99999|e\+00", said), what


@pytest.mark.parametrize("name", SEEN)
def test_a_plan_and_a_result_state_privacy_first(name):
    texts = printed(name)
    assert texts["plan"].splitlines()[1].startswith("Privacy  ")
    assert texts["result"].splitlines()[1].startswith("Privacy  ")


def test_a_plan_states_each_fact_once():
    assert printed("a run of one release")["plan"] == PLAN


def test_a_result_adds_what_was_spent_and_found():
    assert printed("a run of one release")["result"] == RESULT


def test_a_check_and_an_audit_give_the_verdict_first():
    texts = printed("a run of one release")
    assert texts["check"].splitlines()[:2] == [
        "dpcvx check_sensitivity: passed",
        "Not private: computed on both neighbors' data.",
    ]
    assert texts["audit"].splitlines()[:3] == [
        "dpcvx audit: consistent with the ledger",
        "Not private: computed on both neighbors' data.",
        "  ledger      epsilon 1 at delta 1e-6",
    ]


@pytest.mark.parametrize("name", ["objective perturbation", "one gradient"])
def test_a_single_round_speaks_of_no_iterates_and_no_local_solves(name):
    result = printed(name)["result"]
    assert "iterate" not in result and "local solve" not in result and "average of" not in result


def test_results_give_no_advice_on_plans():
    for name in SEEN:
        assert "proxy" not in printed(name)["result"]


PLAN = """\
dpcvx plan: OneShot, 2 agents, 1 round
Privacy      (1, 1e-6)-DP for one change in one agent's data, worst case
  unit       one change: one entry changes by at most 0.1 in 'usage'
  against    the server and all other agents, even if they collude and see every
             value that the agent releases
  noise      Laplace noise, scale 0.999 times the l1 sensitivity; 1 release per
             agent, before round 1
  accounting privacy loss distribution; 0.501-zCDP
Accuracy     noise has standard deviation 0.141 on each entry of 'usage' (one
             change: 0.1). For a prediction, declare public proxy data:
             dp.Private(..., proxy=values)
Method       the server solves the whole problem once
Why          release="once": gradients depend linearly on the private data; all
             that follows is post-processing
             1 round: on released data, the server alone can solve the joint
             problem
             Laplace noise: at the same guarantee, Gaussian noise has 8.4 times
             the predicted suboptimality
Problem      1 shared entry, 2 local
             north: 3 variables (1 shared); noise: scale 0.1 per entry of
             'usage'; one change moves the released data by at most 0.1 in l1
             south: 1 variable (1 shared); no private data
Valid if     6 assumptions hold: print(plan.guarantee)
Derivation   derived from the model: print(plan.derivation)
The plan was made without private data."""

RESULT = """\
dpcvx result: completed, 1 round
Privacy      (1, 1e-6)-DP for one change in one agent's data, worst case, if the
             seed stays secret: not for release
  ledger     north: spent epsilon 1 of 1 at delta 1e-6 in 1 release (privacy
             loss distribution)
             south: nothing private was released
Solution     gen   [2.594 4]
             flow  0.4599
  feasible   the values returned keep every constraint
Note         noise has standard deviation 0.141 on each entry of 'usage' (one
             change: 0.1)
Valid if     print(result.guarantee)"""
