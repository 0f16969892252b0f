"""Load: many plans, rounds, agents and owners, and large models; memory stays where it was.

A trial is one of `TRIALS` at a size. It ends as ``done``, or as a fault: GROWN (objects or bytes
that stay with every plan or round) or WRONG (a run that did not end, or charged otherwise than it
planned). Counts of objects and bytes depend on no clock and on no other process.
"""

import gc
import tracemalloc

import cvxpy as cp
import numpy as np

import dpcvx as dp

from .tally import Tally

FULL = 1000
# Bytes that a round may leave: a row of figures in the result, and what lists reserve.
_ROUND = 1500


def problem_of(count, size=2, unequal=False):
    """A problem of agents that share a point, with data by shape or values."""
    x, agents, data = cp.Variable(size, name="x"), [], {}
    for k in range(count):
        d = dp.Private(shape=size, name=f"d{k}", adjacency=dp.Within(0.1))
        own = cp.Variable(1 + k % 5 if unequal else 1, name=f"own {k}")
        cost = (1 + k % 97 / 97 if unequal else 1.0) * cp.sum_squares(x - d)
        limits = [cp.abs(x) <= 2, cp.abs(own) <= 1]
        agents.append(
            dp.Agent(cp.Minimize(cost + cp.sum_squares(own - x[0])), limits, name=f"a{k}")
        )
        data[f"d{k}"] = np.cos(np.arange(size) + k)
    return dp.Problem(agents), data


def planned(problem, rounds):
    """A plan with a budget for so many rounds."""
    noise = dp.Gaussian(noise_multiplier=50.0)
    return problem.plan(
        dp.FederatedAveraging(), rounds=rounds, mechanism=noise, epsilon=1e3, delta=1e-6
    )


def charged(result, rounds):
    """Whether every account has one entry per round."""
    return result.rounds == rounds and all(
        len(account.entries) == rounds for account in result.ledger.values()
    )


def plans(size):
    """So many plans and runs of one problem leave no objects."""
    problem, data = problem_of(2)
    counts = []
    for _ in range(2):
        for _ in range(size // 2):
            planned(problem, 2).run(data=data, seed=1)
        gc.collect()
        counts.append(len(gc.get_objects()))
    # A memo of some hundred entries may still fill up; one object per plan would show.
    return "" if counts[1] - counts[0] < max(size // 4, 50) else f"GROWN {counts}"


def rounds(size):
    """A run of five times so many rounds needs no memory that a short one does not."""
    problem, data = problem_of(2)
    peaks = []
    for count in (size // 2, 5 * size):
        plan = planned(problem, count)
        tracemalloc.start()
        result = plan.run(data=data, seed=1)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        if not charged(result, count):
            return "WRONG"
    each = (peaks[1] - peaks[0]) / (5 * size - size // 2)
    return "" if each < _ROUND else f"GROWN {each:.0f} bytes a round"


def agents(size):
    """Ten times so many agents, each another one, end a run."""
    problem, data = problem_of(10 * size, unequal=True)
    return "" if charged(planned(problem, 2).run(data=data, seed=1), 2) else "WRONG"


def owners(size):
    """A tenth of so many owners end a run by messages."""
    problem, data = problem_of(max(size // 10, 2))
    plan = planned(problem, 3)
    result = plan.run(executor=dp.LoopbackOwners(plan, data=data, seed=1))
    return "" if charged(result, 3) else "WRONG"


def large(size):
    """A public matrix of some megabytes crosses to two owners, with the bits of one process."""
    n = max(int(np.sqrt(size * 630)), 8)  # 5 MB at the full size
    x, A, data = cp.Variable(n, name="x"), np.cos(np.arange(n * n)).reshape(n, n) / n, {}
    made = []
    for k in range(2):
        d = dp.Private(shape=n, name=f"d{k}", adjacency=dp.Within(0.1))
        made.append(
            dp.Agent(cp.Minimize(cp.sum_squares(A @ x - d)), [cp.abs(x) <= 2], name=f"a{k}")
        )
        data[f"d{k}"] = np.cos(np.arange(n) + k)
    plan = planned(dp.Problem(made), 2)
    near = plan.run(data=data, seed=1)
    far = plan.run(executor=dp.LoopbackOwners(plan, data=data, seed=1))
    same = np.array_equal(near.solution["x"], far.solution["x"])
    return "" if charged(far, 2) and same else "WRONG"


TRIALS = (plans, rounds, agents, owners, large)


def campaign(size, seed):
    """Run every trial at a size."""
    tally = Tally()
    for trial in TRIALS:
        fault = trial(size)
        tally.add(f"{trial.__name__} {'done' if not fault else fault.split()[0]}",
                  f"{trial.__name__} at size {size}: {fault}" if fault else None)  # fmt: skip
    return tally
