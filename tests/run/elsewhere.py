"""A run that stops, or goes on, in a process whose linear algebra rounds as another processor's.

``OPENBLAS_CORETYPE=Haswell python -m tests.run.elsewhere LEDGER [ROUND]``
"""

import json
import sys

import cvxpy as cp
import numpy as np

import dpcvx as dp
from dpcvx.plan.fingerprint import derived

ROUNDS, AGENTS = 6, 3


class Stopping(dp.Serial):
    """Agents whose owner presses Control-C in a round."""

    def __init__(self, last):
        super().__init__()
        self._last = last

    def map(self, method, *common, each=None):
        if method == "act" and common[0] > self._last:
            raise KeyboardInterrupt
        return super().map(method, *common, each=each)


def model(n=40, m=60):
    """Smoothness constants, starts and the factors of a matrix come from LAPACK and solvers."""
    draw = np.random.default_rng(0)
    x = cp.Variable(n, name="x")
    # Products that users compute are inputs, with the last digits of their machine: none are here.
    B = draw.normal(size=(n, n))
    P = 4 * np.eye(n) + np.eye(n, k=1) + np.eye(n, k=-1)
    agents = []
    for k in range(AGENTS):
        A = draw.normal(size=(m, n))
        d = dp.Private(draw.normal(size=m), name=f"d{k}", adjacency=dp.Within(0.1))
        limits = [cp.norm(x) <= 3, cp.sum(x) == 1, x >= -1, cp.quad_form(x, P) <= 90]
        limits += [cp.norm(cp.Constant(B) @ B.T @ x) <= 1e3]
        agents.append(dp.Agent(cp.Minimize(cp.sum_squares(A @ x - d)), limits, name=f"a{k}"))
    return dp.Problem(agents)


def main(path, stop=ROUNDS):
    """Print what the plan is and how the run ended."""
    plan = model().plan(dp.LinearizedADMM(), rounds=ROUNDS, epsilon=1.0, delta=1e-6)
    told = {
        "plan": plan.fingerprint,
        "numbers": derived(plan.algorithm, plan.agents).tobytes().hex(),
    }
    try:
        result = plan.run(ledger=path, executor=Stopping(stop), verbose=False)
    except KeyboardInterrupt:
        print(json.dumps(told))
        return
    entries = {name: len(account.entries) for name, account in result.ledger.items()}
    again = plan.replay(path)
    pairs = zip(again.last.vectors, result.last.vectors, strict=True)
    moved = max(np.abs(a - b).max() for a, b in pairs)
    told |= {"rounds": result.rounds, "notes": result.notes, "entries": entries}
    print(json.dumps(told | {"moved": moved}))


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
