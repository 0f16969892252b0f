"""Worker: dpcvx without noise, as the peers run."""

import numpy as np

import dpcvx as dp

from .exchange import Trace, arguments, load
from .instances import declared


def main() -> None:
    options = arguments()
    inst = load(options.instance)
    trace = Trace()
    problem, x = declared(inst)
    kind = dp.ADMM if options.method == "exact steps" else dp.LinearizedADMM
    plan = problem.plan(kind(penalty=options.rho), mechanism=None, rounds=options.rounds)
    planned = trace.now
    result = plan.run(iterates=True, verbose=False)
    ended = trace.now
    for t, iterate in enumerate(result.iterates, 1):
        copies = np.array([iterate.last.of(agent, x) for agent in problem.names])
        trace.add(copies, planned + (ended - planned) * t / options.rounds)
    trace.save(options.result, "dpcvx", "cvxpy", "clarabel")


if __name__ == "__main__":
    main()
