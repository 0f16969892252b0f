"""What noise split over agents is worth where sums of gradients are asked for round after round."""

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp

AGENTS, RECORDS, FEATURES, ROUNDS, RUNS = 10, 500, 6, 30, 20


def clinics():
    """Logistic regression of ten clinics with labelled records, each times its label."""
    rng = np.random.default_rng(0)
    truth, w, agents = 3 * rng.normal(size=FEATURES), cp.Variable(FEATURES, name="w"), []
    for k in range(AGENTS):
        X = rng.normal(size=(RECORDS, FEATURES))
        X /= np.maximum(1, np.linalg.norm(X, axis=1, keepdims=True))
        y = np.where(rng.uniform(size=RECORDS) < 1 / (1 + np.exp(-X @ truth)), 1.0, -1.0)
        patients = dp.Private(X * y[:, None], name=f"patients {k}", adjacency=dp.Rows(1.0))
        loss = cp.sum(cp.logistic(-patients @ w)) / RECORDS + 0.02 * cp.sum_squares(w)
        agents.append(dp.Agent(cp.Minimize(loss), [cp.abs(w) <= 3], name=f"clinic {k}"))
    return dp.Problem(agents)


@pytest.mark.filterwarnings("ignore::dpcvx.RepeatWarning")
def test_logistic_regression_over_ten_agents_ends_at_least_four_times_closer():
    # The same method, rounds and rule for steps. Nine honest agents leave a ninth of the squared
    # noise, and means of 20 runs have a ratio of about nine, known to a fifth. Fewer than one set
    # of seeds in 1e4 has one below four; the seeds are fixed.
    problem, gaps = clinics(), {}
    best = dp.not_private.central(problem)
    best.solve(cp.CLARABEL)
    for sharing in (None, dp.SecretSharing(limit=100.0)):
        method = dp.SummedGradient(sharing=sharing, colluders=1)
        plan = problem.plan(method, epsilon=1.0, delta=1e-6, rounds=ROUNDS)
        answers = [plan.run(seed=s, verbose=False).raw for s in range(RUNS)]
        gaps[sharing] = [dp.not_private.objective(problem, x) - best.value for x in answers]
    every, split = gaps.values()
    assert np.mean(every) > 4 * np.mean(split)
