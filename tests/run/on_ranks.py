"""``mpiexec -n 2 python -m dpcvx.mpi tests/run/on_ranks.py LEDGERS``: all instances and methods."""

import sys
from pathlib import Path

import dpcvx as dp
from tests.instances import INSTANCES
from tests.run.test_executors import METHODS
from tests.run.test_resume import book, same


def main(folder):
    """Compare every run with that of one process, and say how many were the same."""
    count = 0
    for name, build in INSTANCES.items():
        for algorithm, release in METHODS.values():
            problem = build().problem
            plan = problem.plan(algorithm, rounds=4, epsilon=1.0, delta=1e-6, release=release)
            settings = {"seed": 3, "record": True, "verbose": False}
            one, two = (folder / f"{name} {count} {kind}" for kind in "ab")
            expected = plan.run(ledger=one, executor=dp.Serial(), **settings)
            result = plan.run(ledger=two, executor=dp.MPI(), **settings)
            same(expected, result)
            assert book(one.read_bytes()) == book(two.read_bytes())
            same(expected, plan.replay(result.transcript))
            count += 1
    print("the same:", count)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
