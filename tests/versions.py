"""The tests on the lowest and the newest versions of what is needed, and on every Python.

``python -m tests.versions`` runs the whole suite in each environment of `ENVIRONMENTS`, one after
the other; names choose some of them, and ``--quick`` runs two cases of each test that depends on
versions most.
The environments are made anew with uv below ``.venv/versions``, from wheels.
"""

import argparse
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
PLACE = ROOT / ".venv" / "versions"


@dataclass(frozen=True)
class Environment:
    """A Python, and which of the versions that ``pyproject.toml`` allows go with it."""

    python: str
    resolution: str = "highest"


# The lowest versions have no wheels for newer Pythons.
ENVIRONMENTS = {
    "lowest": Environment("3.11", "lowest-direct"),
    "3.11": Environment("3.11"),
    "3.12": Environment("3.12"),
    "3.13": Environment("3.13"),
}
# What guarantees rest on, and what touches numpy, scipy, cvxpy and solvers most. Cases of a family
# call the same functions of these, so two of each show whether a version has them.
QUICK = [
    *(f"tests/{room}" for room in ("model", "solvers", "sensitivity", "privacy")),
    "tests/algorithms/test_networks.py",
    "tests/run/test_resume_elsewhere.py",
]


def main(arguments=None):
    """Run what is asked for; the exit code is the number of environments that did not pass."""
    parser = argparse.ArgumentParser(prog="python -m tests.versions", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*ENVIRONMENTS, []], help="all if omitted")
    parser.add_argument("--quick", action="store_true")
    asked = parser.parse_args(arguments)
    outcomes = {}
    for name in asked.names or ENVIRONMENTS:
        print(f"== {name}", flush=True)
        outcomes[name] = tried(name, ["--cases=2", *QUICK] if asked.quick else ["tests"])
        print(f"== {name}: {outcomes[name]}", flush=True)
    print("\n".join(f"{name}: {outcome}" for name, outcome in outcomes.items()), flush=True)
    return sum(outcome != "passed" for outcome in outcomes.values())


def tried(name, tests):
    """Make an environment, run tests in it, and say how that ended."""
    wanted, uv = ENVIRONMENTS[name], uv_program()
    interpreter = found(uv, wanted.python)
    if interpreter is None:
        return f"NOT RUN, there is no Python {wanted.python} here"
    python = PLACE / name / "bin" / "python"
    install = [uv, "pip", "install", "--quiet", "--python", python, "--only-binary", ":all:"]
    steps = [
        ("NOT RUN, no environment", [uv, "venv", "--quiet", "--clear", "--python",
                                     interpreter, PLACE / name]),
        ("NOT RUN, versions cannot be installed",
         [*install, "--resolution", wanted.resolution, "--editable", f"{ROOT}[test]"]),
        ("versions", [uv, "pip", "list", "--python", python]),
    ]  # fmt: skip
    # Of the checkout, whatever else is on the path. What numba has compiled is of no use to others.
    environment = {
        **os.environ, "PYTHONPATH": str(ROOT), "NUMBA_CACHE_DIR": str(PLACE / name / "numba")
    }  # fmt: skip
    for failure, step in steps:
        if subprocess.run(step, cwd=ROOT, env=environment, check=False).returncode != 0:
            return failure
    workers = ["--numprocesses", "auto", "--maxprocesses", "4", "--dist", "worksteal"]
    run = [python, "-m", "pytest", "-q", *workers, *tests]
    with subprocess.Popen([python, "-m", "tests.kernels"], cwd=ROOT, env=environment):
        done = subprocess.run(run, cwd=ROOT, env=environment, check=False)
    return "passed" if done.returncode == 0 else "FAILED"


def found(uv, version):
    """Path of an installed interpreter, or None; none is downloaded."""
    # Of those that pyenv installed, the chosen one alone is on the path.
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    places = [str(bin) for bin in sorted(pyenv.glob(f"versions/{version}*/bin"))]
    path = os.pathsep.join([*places, os.environ.get("PATH", "")])
    answer = subprocess.run(
        [uv, "python", "find", "--no-project", "--system", "--no-python-downloads", version],
        env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return answer.stdout.strip() if answer.returncode == 0 else None


def uv_program():
    """The uv of this environment, or else on the path."""
    beside = Path(sys.executable).with_name("uv")
    program = str(beside) if beside.exists() else shutil.which("uv")
    if program is None:
        sys.exit("uv is needed: pip install uv")
    return program


if __name__ == "__main__":
    sys.exit(main())
