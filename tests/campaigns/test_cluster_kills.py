"""The short form of the campaign of killed workers, ranks and drivers: one driver.

A killed worker and a rank that fails are tried in `tests.run`, and a killed process without a
cluster by the campaign of crashes.
"""

import os
import subprocess
import sys

import pytest

from tests.privacy.test_ledger_file import ROOT

pytest.importorskip("distributed")


SHORT = """
from tests.campaigns.cluster_kills import campaign

found = campaign(1, 5, ("Dask driver",))  # a seeded run, whose entries are compared
print(found)
raise SystemExit(bool(found.faults))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and signals")
def test_runs_go_on_after_kills_and_nothing_is_spent_twice():
    """In a process of its own, which has no threads when it forks."""
    command = [sys.executable, "-c", SHORT]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Dask driver killed" in done.stdout
