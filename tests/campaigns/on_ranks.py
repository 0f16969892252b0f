"""``mpiexec -n 2 python -m dpcvx.mpi tests/campaigns/on_ranks.py run LEDGER SEED``.

Or ``everywhere SIZE SEED METHODS``, which compares methods, a list in JSON, with one process.
"""

import json
import sys
from pathlib import Path

import dpcvx as dp
from tests.campaigns.cluster_kills import run
from tests.campaigns.everywhere import compared

if __name__ == "__main__":
    what, given, number, *methods = sys.argv[1:]
    seed = None if number == "None" else int(number)
    if what == "run":
        sys.exit(run(Path(given), seed, dp.MPI()))
    print(json.dumps(compared(dp.MPI, int(given), seed or 0, json.loads(methods[0]))))
