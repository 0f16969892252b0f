"""The short form of the campaign of killed workers, ranks and drivers."""

import subprocess
import sys

import pytest

from tests.privacy.test_ledger_file import ROOT

pytest.importorskip("distributed")
pytest.importorskip("mpi4py")


@pytest.mark.skipif(sys.platform != "linux", reason="finds ranks in /proc")
def test_runs_go_on_after_kills_and_nothing_is_spent_twice():
    """In a process of its own, which has no threads when it forks."""
    command = [sys.executable, "-m", "tests.campaigns", "cluster_kills", "--size", "1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    for sort in ("Dask worker", "Dask driver", "MPI rank", "MPI rank 0"):
        assert f"{sort} killed" in done.stdout
