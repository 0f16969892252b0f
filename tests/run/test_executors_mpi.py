"""Agents on the ranks of an MPI job: ranks that fail, and how a job is started.

That results are those of one process is tried by `tests.campaigns.everywhere`.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import dpcvx as dp
from tests.privacy.test_ledger_file import ROOT

pytest.importorskip("mpi4py")
_BESIDE = Path(sys.executable).with_name("mpiexec")
LAUNCHER = str(_BESIDE) if _BESIDE.exists() else shutil.which("mpiexec")
job = pytest.mark.skipif(LAUNCHER is None, reason="needs mpiexec, as of pip install mpich")


def launched(script, *arguments, ranks=2):
    """A job with a script in this folder, or with the text of one."""
    assert LAUNCHER is not None
    command = [LAUNCHER, "-n", str(ranks), sys.executable, "-m", "dpcvx.mpi", str(script)]
    return subprocess.Popen(
        [*command, *map(str, arguments)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


STUDY = """
import sys
import dpcvx as dp
from rounds_of_study import ROUNDS  # beside the script
from tests.instances import power_line

plan = power_line().problem.plan(
    dp.LinearizedADMM(penalty=2.0), rounds=ROUNDS, epsilon=1.0, delta=1e-6
)

class Watched(dp.MPI):
    def map(self, method, *common, each=None):
        if method == "act" and common[0] == int(sys.argv[2]):
            self._comm.send(("call", 99, "act", common, []), 1)
        return super().map(method, *common, each=each)

ledger = sys.argv[1]
result = plan.run(ledger=ledger, executor=Watched(), verbose=False)
print("rounds", result.rounds, "spent", result.ledger.spent())
print("notes", result.notes)
for account in result.ledger.values():
    places = [(e.round, e.step) for e in account.entries]
    print("doubled", len(places) - len(set(places)))
"""


@job
def test_a_job_whose_rank_fails_ends_and_is_gone_on_with(tmp_path):
    """Rank 1 is asked in round 7 for a call that does not follow its last one, and refuses."""
    script, ledger = tmp_path / "study.py", tmp_path / "spent.jsonl"
    script.write_text(STUDY)
    (tmp_path / "rounds_of_study.py").write_text("ROUNDS = 20\n")
    first = launched(script, ledger, 7)
    told, _ = first.communicate(timeout=300)
    assert first.returncode != 0 and "rounds" not in told
    second = launched(script, ledger, 0)
    told, _ = second.communicate(timeout=300)
    assert second.returncode == 0, told
    assert "rounds 20" in told and "resumed in round 6" in told
    assert set(re.findall(r"doubled (\d+)", told)) == {"0"}


def test_outside_a_job_it_says_how_to_start_one():
    with pytest.raises(dp.ModelError, match=r"mpiexec -n 4 python -m dpcvx\.mpi study\.py"):
        dp.MPI()


def test_without_a_script_it_says_how_to_name_one():
    done = subprocess.run(
        [sys.executable, "-m", "dpcvx.mpi"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 1 and "usage: mpiexec" in done.stderr
