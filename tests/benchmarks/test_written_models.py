"""Models as users write them, solved for data that left once: what an answer is worth.

Gaps are of the true objective, in units of the better one of two public answers: the smallest point
of the public constraints, and the optimum for the public proxy data. An answer is useful if its
median gap is below half of that.
"""

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp
from dpcvx.model.agent import private_in

from .written_models import MODELS, Case

DELTA = 1e-6
SEEDS = 7
# Of the optimum, what solvers leave.
EXACT = 1e-4


def solve(problem):
    problem.solve(solver=cp.SCIPY if problem.is_mixed_integer() else cp.CLARABEL)
    return problem.value if problem.status in (cp.OPTIMAL, cp.OPTIMAL_INACCURATE) else np.inf


def objects_of(case: Case):
    return [p for agent in case.problem.agents for p in agent.private]


class Judged:
    """The true objective of decisions, with a price of what the true data break."""

    def __init__(self, case: Case):
        self.case, self.whole = case, dp.not_private.joint_problem(case.problem)
        self.optimum = self.value() if np.isfinite(solve(self.whole)) else np.inf

    def value(self):
        return float((self.whole.objective.args[0] * self.sign).value)

    @property
    def sign(self):
        return 1.0 if isinstance(self.whole.objective, cp.Minimize) else -1.0

    def gap(self, decided):
        """Of values by variable; those that follow are decided again."""
        variables = self.case.problem.variables()
        following = {v.id for v in self.case.follow}
        if following:
            fixed = [v == decided[v.id] for v in variables if v.id not in following]
            pinned = cp.Problem(self.whole.objective, [*self.whole.constraints, *fixed])
            return solve(pinned) * self.sign - self.optimum
        for variable in variables:
            variable.save_value(decided[variable.id])
        with np.errstate(all="ignore"):
            value = self.value()
        broken = sum(float(np.sum(c.violation())) for c in self.whole.constraints)
        worth = value + self.case.price * broken - self.optimum
        return worth if np.isfinite(worth) else np.inf

    def public(self):
        """The smaller gap of two public answers."""
        variables = self.case.problem.variables()
        limits = [c for c in self.case.problem.constraints if not private_in(c)]
        solve(
            cp.Problem(cp.Minimize(sum(cp.norm1(cp.vec(v, order="F")) for v in variables)), limits)
        )
        start = self.gap({v.id: np.array(v.value) for v in variables})
        proxies = {p: p.proxy for p in objects_of(self.case)}
        guess = np.inf
        if np.isfinite(solve(dp.not_private.joint_problem(self.case.problem, proxies))):
            guess = self.gap({v.id: np.array(v.value) for v in variables})
        return min(abs(start), abs(guess))


def gaps(name, epsilon, seeds=SEEDS):
    case = MODELS[name]()
    judged = Judged(case)
    plan = case.problem.plan(epsilon=epsilon, delta=DELTA, **case.given)
    found = []
    for seed in range(seeds):
        result = plan.run(seed=seed)
        values = {v.id: result.solution[v] for v in case.problem.variables()}
        found.append(judged.gap(values) if result.status.solved else np.inf)
    return found, judged


def useful(name, epsilon):
    found, judged = gaps(name, epsilon)
    median = float(np.median(found))
    least = EXACT * max(abs(judged.optimum), 1e-3)
    return median < 0.5 * judged.public() or median < least


@pytest.mark.parametrize("name", MODELS)
def test_the_answer_is_the_optimum_where_there_is_next_to_no_noise(name):
    """At epsilon 1e6 noise is about a millionth of one change."""
    (gap,), judged = gaps(name, 1e6, seeds=1)
    assert abs(gap) <= 2e-3 * max(abs(judged.optimum), 0.1)


@pytest.mark.study
@pytest.mark.parametrize(("epsilon", "least"), [(1.0, 34), (10.0, 38)])
def test_most_answers_are_useful(epsilon, least):
    """Seeds are fixed, so that the count is the same at every run on one machine."""
    told = {name: useful(name, epsilon) for name in MODELS}
    assert sum(told.values()) >= least, [name for name, good in told.items() if not good]


@pytest.mark.parametrize("name", ["newsvendor", "fisher_market", "knapsack", "log_growth"])
def test_some_answers_are_useful_at_epsilon_1(name):
    assert useful(name, 1.0)
