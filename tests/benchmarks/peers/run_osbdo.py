"""Worker: OSBDO, whose agents are subgradient oracles and whose constraints are the coupling's."""

import contextlib
import io
import time

import cvxpy as cp
import numpy as np

# OSBDO 0.0.6 calls it after 20 rounds; numpy 2 has dropped it.
np.product = np.prod  # noqa: NPY003, NPY201

import osbdo as ob  # noqa: E402
from exchange import Trace, arguments, load  # noqa: E402


class LeastSquares(ob.Agent):
    """One agent; every query is kept."""

    def _construct_params(self):
        self.A, self.b = self.params["A"], self.params["b"]
        self.queries, self.moments = [], []

    def query(self, *, v, solver):
        residual = self.A @ v - self.b
        self.queries.append(np.array(v))
        self.moments.append(time.perf_counter())
        return ob.Point(x=v, q=2 * self.A.T @ residual, f=float(residual @ residual))

    def get_init_minorant(self):
        return cp.Constant(0)


def main() -> None:
    options = arguments()
    inst = load(options.instance)
    trace = Trace()
    n = inst.A.shape[2]
    edge = inst.bound * np.ones(n)
    agents = [
        LeastSquares({"A": A, "b": b, "dimension": n, "lower_bound": -edge, "upper_bound": edge})
        for A, b in zip(inst.A, inst.b, strict=True)
    ]
    domain = [agents[0].x == other.x for other in agents[1:]]
    if inst.conic:
        domain += [
            cp.norm(B @ agent.x - c) <= r
            for agent, B, c, r in zip(agents, inst.B, inst.c, inst.r, strict=True)
        ]
    problem = ob.Problem(
        agents=agents, g=ob.Coupling(agents=agents, function=cp.Constant(0), domain=domain)
    )
    with contextlib.redirect_stdout(io.StringIO()):
        problem.solve(solver="CLARABEL", rel_gap=1e-4, abs_gap=1e-6, max_iter=options.rounds)
    best, lowest = None, np.inf
    for t, moment in enumerate(agents[-1].moments):
        copies = np.array([agent.queries[t] for agent in agents])
        value = sum(np.sum((a.A @ x - a.b) ** 2) for a, x in zip(agents, copies, strict=True))
        if value < lowest:
            best, lowest = copies, value
        if t:  # the first query is the start
            trace.add(best, moment - trace.started)
    lower = problem.lower_bnd[-1]
    trace.save(
        options.result, "osbdo", "cvxpy", "numpy", note=f"own bounds {lower:.4f}, {lowest:.4f}"
    )


if __name__ == "__main__":
    main()
