"""A plan is the same plan on processors that round otherwise, and its runs go on there."""

import json
import os
import subprocess
import sys

import pytest

from tests.run.elsewhere import AGENTS, ROUNDS

CORES = ("Haswell", "Nehalem", "SkylakeX")


def elsewhere(core, path, *stop):
    """What a process says whose OpenBLAS takes itself to be on that processor."""
    found = subprocess.run(
        [sys.executable, "-m", "tests.run.elsewhere", str(path), *map(str, stop)],
        env=os.environ | {"OPENBLAS_CORETYPE": core, "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert found.returncode == 0, found.stderr
    return json.loads(found.stdout)


@pytest.fixture(scope="module")
def gone_on(tmp_path_factory):
    """One run, a piece of it on every processor."""
    path = tmp_path_factory.mktemp("ledger") / "spent.jsonl"
    stops = range(2, 2 + 2 * len(CORES), 2)
    return [elsewhere(core, path, stop) for core, stop in zip(CORES, stops, strict=True)]


def test_fingerprints_are_those_of_other_processors(gone_on):
    assert len({told["plan"] for told in gone_on}) == 1
    # On a machine whose linear algebra is not OpenBLAS' for x86 all are alike.
    if "numbers" in gone_on[0] and sys.platform == "linux" and os.uname().machine == "x86_64":
        assert len({told["numbers"] for told in gone_on}) > 1


def test_a_run_goes_on_elsewhere_and_no_budget_is_lost(gone_on):
    *others, last = gone_on
    assert all("rounds" not in told for told in others)
    assert last["rounds"] == ROUNDS
    assert any("resumed in round 4" in note for note in last["notes"])
    assert last["entries"] == {f"a{k}": ROUNDS for k in range(AGENTS)}
    assert last["moved"] == 0
