"""The campaign of crashes.py, in short."""

import os
import subprocess
import sys

import pytest

from tests.privacy.test_ledger_file import ROOT


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and signals")
def test_no_crash_loses_or_doubles_a_release():
    """In a process of its own, which has no threads when it forks."""
    command = [sys.executable, "-m", "tests.campaigns", "crashes", "--size", "12"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "SIGKILL to" in done.stdout
