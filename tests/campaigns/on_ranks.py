"""``mpiexec -n 2 python -m dpcvx.mpi tests/campaigns/on_ranks.py LEDGER SEED``."""

import sys
from pathlib import Path

import dpcvx as dp
from tests.campaigns.cluster_kills import run

if __name__ == "__main__":
    seed = None if sys.argv[2] == "None" else int(sys.argv[2])
    sys.exit(run(Path(sys.argv[1]), seed, dp.MPI()))
