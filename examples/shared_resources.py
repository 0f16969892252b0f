"""Two problems whose agents share a resource and nothing else, solved on private data.

Economic dispatch: the generators of a network, whose prices are private, meet its load. Resource
allocation: users whose wishes are private divide a supply. `dp.ResourceADMM` (Xiao, Ye and Devadas)
solves both: what agents need of each other is one sum, which secret sharing forms without its
terms. Noise protects what follows from the sums.

    python -m examples.shared_resources                 # half a minute
    python -m examples.shared_resources --case 118
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence

import numpy as np

import dpcvx as dp
from problems.dispatch.study import Shared, economic_dispatch, resource_allocation
from problems.power_flow.study import power_flow

SHARING = dp.SecretSharing(limit=100.0, resolution=2.0**-40)
EPSILONS = (1.0, 10.0, 100.0)
ROUNDS = 100


def rows(name: str, shared: Shared, rounds: int) -> Iterator[str]:
    """What a run costs, by total epsilon. Costs are computed on the data: not private."""
    best = shared.optimum()
    least = shared.cost(best)
    yield f"{name}: {len(shared.variables)} agents, optimal cost {least:.4g}"
    yield f"   {'guarantee':>22}{'cost, excess':>14}{'balance missed':>16}{'distance':>12}"
    penalty = 0.2 if best.ndim == 1 else 0.5
    method = dp.ResourceADMM(penalty=penalty, sharing=SHARING if len(best) > 2 else None)
    plans = [("none, no noise", shared.problem.plan(method, mechanism=None, rounds=20 * rounds))]
    plans += [
        (f"({e:g}, 1e-6)", shared.problem.plan(method, rounds=rounds, epsilon=e, delta=1e-6))
        for e in EPSILONS
    ]
    for label, plan in plans:
        result = plan.run(seed=0, verbose=False)
        values = shared.values(result)
        missed = max(float(np.abs(c.violation()).max()) for c in shared.problem.coupling)
        excess = shared.cost(values) - least
        yield (f"   {label:>22}{excess:>14.3g}{missed:>16.3g}{np.abs(values - best).max():>12.3g}")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--case", type=int, choices=(5, 118), default=5)
    options = parser.parse_args(arguments)
    case = power_flow(options.case).case
    rng = np.random.default_rng(0)
    wishes = rng.uniform(0.0, 2.0, size=(8, 3))
    for name, shared in (
        (f"economic dispatch, case {options.case}", economic_dispatch(case)),
        ("resource allocation", resource_allocation(wishes, np.array([4.0, 6.0, 8.0]))),
    ):
        for line in rows(name, shared, ROUNDS):
            print(line)
    print("everything but the guarantees is computed on the agents' data: not private")


if __name__ == "__main__":
    main()
