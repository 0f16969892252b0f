"""Worker: all data in one place, one cvxpy solve."""

import cvxpy as cp
import numpy as np

from .exchange import Trace, arguments, load
from .instances import central


def main() -> None:
    options = arguments()
    inst = load(options.instance)
    trace = Trace()
    problem, x = central(inst)
    problem.solve(solver=cp.CLARABEL)
    trace.add(np.asarray(x.value)[None])
    trace.save(options.result, "cvxpy", "clarabel")


if __name__ == "__main__":
    main()
