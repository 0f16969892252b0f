"""Worker: DeDe, a row per agent; boxes are one family of constraints, agreement the other."""

import contextlib
import io
import warnings
from importlib.metadata import version

import cvxpy as cp
import dede as dd
import numpy as np
import ray
from exchange import Trace, arguments, load


def main() -> None:
    options = arguments()
    inst = load(options.instance)
    P, _, n = inst.A.shape
    warnings.simplefilter("ignore")
    trace = Trace()
    X = dd.Variable((P, n))
    own = [side for p in range(P) for side in (X[p, :] <= inst.bound, -X[p, :] <= inst.bound)]
    if inst.conic:
        own += [cp.norm(inst.B[p] @ X[p, :] - inst.c[p]) <= inst.r[p] for p in range(P)]
    agree = [X[1:, j] - X[0, j] == 0 for j in range(n)]
    cost = sum(cp.sum_squares(inst.A[p] @ X[p, :] - inst.b[p]) for p in range(P))
    problem = dd.Problem(dd.Minimize(cost), own, agree)
    started, where = 0.0, []
    for _ in range(options.rounds):
        # One iteration per call: the actors keep their state, and DeDe keeps no iterates.
        with contextlib.redirect_stdout(io.StringIO()):
            problem.solve(num_cpus=2, rho=options.rho, num_iter=1, solver=dd.ECOS)
        started = started or trace.now
        if not where:
            actors = problem._subprob_cache.probs
            each = ray.get([actor.get_solution_idx_r.remote() for actor in actors])
            where = [key for keys in each for key in keys]
        flat = np.zeros(P * n)
        for (_, position), value in zip(where, problem.sol_r, strict=True):
            flat[position] = value
        trace.add(flat.reshape((P, n), order="F"))
    note = f"{started:.1f} s until the first round ended (Ray {version('ray')} starts)"
    trace.save(options.result, "dede", "cvxpy", "scipy", note=note)


if __name__ == "__main__":
    main()
