"""A plan is the same plan where numbers are rounded otherwise, and its runs go on there.

On other processors, and with other versions of numpy, scipy, cvxpy and solvers where there is an
environment of `tests.versions` with them: ``make lowest`` makes one, and runs this in it.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.run.elsewhere import AGENTS, ROUNDS
from tests.versions import ENVIRONMENTS, PLACE, ROOT

# Kernels of OpenBLAS, by what they need of a processor: a process that lacks it is killed.
KERNELS = {"SkylakeX": "avx512f", "Haswell": "avx2", "Sandybridge": "avx", "Nehalem": "sse4_2"}


def _kernels():
    """Three kernels that this processor has; those of old processors where nothing tells."""
    told = Path("/proc/cpuinfo")
    flags = set(told.read_text().split()) if told.exists() else set()
    usable = [name for name, flag in KERNELS.items() if flag in flags]
    return (*usable, "Nehalem", "Prescott", "Core2")[:3]


CORES = _kernels()


def elsewhere(path, *stop, core="", python=sys.executable):
    """What a process says whose OpenBLAS takes itself to be on that processor."""
    kernels = {"OPENBLAS_CORETYPE": core} if core else {}
    found = subprocess.run(
        [python, "-m", "tests.run.elsewhere", str(path), *map(str, stop)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"} | kernels,
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
    return [elsewhere(path, stop, core=core) for core, stop in zip(CORES, stops, strict=True)]


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


def another():
    """A Python with another numpy, of the environment for work on the package or below it."""
    places = [PLACE.parent, *(PLACE / name for name in ENVIRONMENTS)]
    for python in (place / "bin" / "python" for place in places):
        if python.exists():
            told = subprocess.run(
                [python, "-c", "import numpy; print(numpy.__version__)"],
                capture_output=True,
                text=True,
            )
            if told.returncode == 0 and told.stdout.strip() != np.__version__:
                return str(python)
    return None


def test_a_run_goes_on_under_another_numpy_and_back(tmp_path):
    other, path = another(), tmp_path / "spent.jsonl"
    if other is None:
        pytest.skip("no environment of tests.versions has another numpy")
    first = elsewhere(path, 2)
    second = elsewhere(path, 4, python=other)
    last = elsewhere(path, 6)
    assert first["plan"] == second["plan"] == last["plan"]
    assert any("resumed in round 4" in note for note in last["notes"])
    assert last["entries"] == {f"a{k}": ROUNDS for k in range(AGENTS)}
    assert last["moved"] == 0
