"""``mpiexec -n 2 python -m dpcvx.mpi tests/benchmarks/speed/on_ranks.py WHAT NUMBER ...``."""

import json
import sys

from tests.benchmarks.speed.clusters import on_rank_zero

if __name__ == "__main__":
    print(json.dumps(on_rank_zero(sys.argv[1], *map(int, sys.argv[2:]))))
