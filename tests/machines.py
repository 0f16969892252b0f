"""Tests on other machines: settings in which users and other builds run them, each a make target.

``make machine-sdist`` runs a few cases of files that read surroundings; ``make machine-sdist
CASES=`` all tests. A setting that cannot be had here is NOT RUN, and fails. ``python -m
tests.machines --all`` goes through all of them, and fails for those that FAILED alone. Other
versions of everything are `tests.versions`; environments with nothing else are `tests.wheel`.
"""

import argparse
import os
import platform
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from .versions import found, uv_program

ROOT = Path(__file__).parent.parent
NOBODY = 65534
# What no checkout has, and no copy of one needs.
OUTSIDE = shutil.ignore_patterns(
    ".git", ".venv", "out", "dist", "__pycache__", ".pytest_cache", ".ruff_cache", ".hypothesis"
)
# Files that read locale, home, folder, order, kernel or versions, or start processes.
READING = [
    *(f"tests/model/test_{name}.py" for name in ("atoms", "private")),
    *(f"tests/privacy/test_{name}.py" for name in ("ledger_chain_totals", "noise")),
    *(f"tests/owners/test_{name}.py" for name in ("data_files", "policy", "wire")),
    *(f"tests/test_{name}.py" for name in ("figure", "secrecy", "text")),
    "tests/run/test_worker.py",
]
# Of the files above, those that need no extra of the package.
CORE = [name for name in READING if "/owners/" not in name and "secrecy" not in name]
NEWEST = ["numpy>=2.0a0", "scipy>=1.13a0", "cvxpy>=1.9a0", "clarabel>=0.11a0"]


@dataclass(frozen=True)
class Setting:
    """Surroundings that the tests of this checkout have elsewhere."""

    says: str
    environment: Mapping[str, str | None] = field(default_factory=dict)  # None: without it
    flags: tuple[str, ...] = ()  # of Python
    options: tuple[str, ...] = ()  # of pytest
    place: str = "here"  # or a copy: "blanks", "read-only", "sdist"
    locale: str = ""  # which is compiled for the setting
    packages: tuple[str, ...] = ()  # of an environment of its own; none for this one
    python: str = ""  # of that environment; this one's if empty
    user: bool = False  # whether nobody runs the tests
    network: bool = True
    tests: tuple[str, ...] = tuple(READING)
    seeded: bool = False  # whether a fresh seed is drawn, and printed


def other_kernel():
    """A kernel of OpenBLAS that every processor of this architecture has, and few choose."""
    return "ARMV8" if platform.machine() in ("aarch64", "arm64") else "Nehalem"


SETTINGS = {
    "bare": Setting(
        "the package without its extras, with pytest and hypothesis alone",
        packages=(".", "pytest", "hypothesis"),
        tests=tuple(CORE),
    ),
    "newest": Setting(
        "pre-releases of numpy, scipy, cvxpy and clarabel", packages=(".[test]", *NEWEST)
    ),
    "next": Setting("the Python after the newest promised one", packages=(".[test]",),
                    python="3.14"),
    "kernel": Setting("another kernel of BLAS", {"OPENBLAS_CORETYPE": other_kernel()}),
    "ascii": Setting(
        "the C locale, without UTF-8",
        {"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    ),
    "turkish": Setting("a locale with a decimal comma and a dotless i", locale="tr_TR"),
    "homeless": Setting(
        "no home folder",
        {"HOME": "/nonexistent", "XDG_CACHE_HOME": None, "XDG_CONFIG_HOME": None},
    ),
    "blanks": Setting("a checkout in a folder with blanks and an umlaut", place="blanks"),
    "readonly": Setting(
        "a checkout that cannot be written", place="read-only", user=True,
        options=("-p", "no:cacheprovider"), packages=(".[test]",), python="/usr/bin/python3",
    ),
    "user": Setting(
        "another user, who owns nothing", user=True, place="copy",
        options=("-p", "no:cacheprovider"), packages=(".[test]",), python="/usr/bin/python3",
    ),
    "sdist": Setting("the unpacked source distribution", place="sdist"),
    "shuffled": Setting("another order of the tests", seeded=True, options=("--shuffle={seed}",)),
    "hashes": Setting("another order of sets", {"PYTHONHASHSEED": "{seed}"}, seeded=True),
    "optimized": Setting(
        "python -O, which drops assertions of the package",
        flags=("-O",),
        options=("-W", "ignore::pytest.PytestConfigWarning"),
    ),
    "zone": Setting("a time zone with quarters of an hour", {"TZ": "Pacific/Chatham"}),
    "offline": Setting("no network but the loopback", network=False),
    "fresh": Setting(
        "new examples of hypothesis",
        seeded=True,
        options=("--hypothesis-profile=fresh", "--hypothesis-seed={seed}"),
    ),
}  # fmt: skip


def main(arguments=None):
    """Run what is asked for; the exit code is the number of settings that did not pass."""
    parser = argparse.ArgumentParser(prog="python -m tests.machines", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*SETTINGS, []])
    parser.add_argument("--all", action="store_true", help="go through all of them")
    parser.add_argument("--cases", default="1", help="of a test function; all tests if empty")
    parser.add_argument("--seed", type=int, help="drawn and printed if omitted")
    asked = parser.parse_args(arguments)
    outcomes = {}
    for name in [*SETTINGS] if asked.all else asked.names:
        print(f"== {name}: {SETTINGS[name].says}", flush=True)
        with tempfile.TemporaryDirectory(prefix="machine-") as folder:
            seed = random.SystemRandom().randrange(2**31) if asked.seed is None else asked.seed
            outcomes[name] = tried(SETTINGS[name], Path(folder), asked.cases, seed)
    width = max(map(len, outcomes), default=0)
    print("\n".join(f"{name:<{width}}  {outcome}" for name, outcome in outcomes.items()))
    return sum(
        not outcome.startswith("passed") and not (asked.all and outcome.startswith("NOT RUN"))
        for outcome in outcomes.values()
    )


def tried(setting, folder, cases, seed):
    """Run the tests in a setting, and say how that ended."""
    if setting.seeded:
        print(f"seed {seed}", flush=True)
    os.chmod(folder, 0o755)  # for whoever runs the tests
    environment = {**os.environ, **{k: v or "" for k, v in setting.environment.items()}}
    environment = {k: v.format(seed=seed % 2**32) for k, v in environment.items()
                   if setting.environment.get(k, "") is not None}  # fmt: skip
    if setting.locale and not compiled(setting.locale, folder, environment):
        return f"NOT RUN, the locale {setting.locale} cannot be compiled here"
    if (setting.user or not setting.network) and (os.name != "posix" or os.geteuid() != 0):
        return "NOT RUN, only root can be another user, or close the network"
    python = sys.executable
    if setting.packages:
        python = installed(setting, folder / "environment")
        if python is None:
            return f"NOT RUN, no environment of Python {setting.python or 'of this one'}"
    place = placed(setting.place, folder)
    environment["PYTHONPATH"] = str(place)
    if setting.packages:  # what numba has compiled is of no use to others
        environment["NUMBA_CACHE_DIR"] = str(folder / "numba")
    tests = ["tests"] if not cases else [f"--cases={cases}", *setting.tests]
    options = [option.format(seed=seed) for option in setting.options]
    command = [python, *setting.flags, "-m", "pytest", "-q", *options, *tests]
    if setting.user:
        (folder / "home").mkdir(mode=0o777)
        os.chown(folder / "home", NOBODY, NOBODY)
        environment |= {"HOME": str(folder / "home"), "TMPDIR": str(folder / "home")}
        environment["NUMBA_CACHE_DIR"] = str(folder / "home" / "numba")
        as_nobody = [f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
        command = ["setpriv", *as_nobody, *command]
    if not setting.network:
        command = ["unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh", *command]
    done = subprocess.run(
        command, cwd=place, env=environment, stdin=subprocess.DEVNULL, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors="replace", check=False,
    )  # fmt: skip
    lines = done.stdout.rstrip().splitlines() or ["nothing was printed"]
    if done.returncode:
        print(done.stdout, flush=True)
    counts = lines[-1].strip("= ")
    passed = done.returncode == 0 and re.match(r"\d+ passed", counts)
    return f"passed: {counts}" if passed else f"FAILED: {counts}"


def compiled(name, folder, environment):
    """Compile a locale for a setting; whether there was something to compile it from."""
    if shutil.which("localedef") is None:
        return False
    (folder / "locales").mkdir()
    target = folder / "locales" / f"{name}.UTF-8"
    done = subprocess.run(
        ["localedef", "-i", name, "-f", "UTF-8", target], capture_output=True, check=False
    )
    environment |= {"LOCPATH": str(target.parent), "LC_ALL": f"{name}.UTF-8"}
    return done.returncode == 0


def installed(setting, folder):
    """The Python of a new environment with the packages of a setting; None if there is none."""
    uv = uv_program()
    asked = setting.python or "3.11"
    interpreter = asked if asked.startswith("/") else found(uv, asked)
    if interpreter is None or not Path(interpreter).exists():
        return None
    python = folder / "bin" / "python"
    for step in (
        ["venv", "--quiet", "--python", interpreter, folder],
        ["pip", "install", "--quiet", "--python", python, *setting.packages],
    ):
        if subprocess.run([uv, *map(str, step)], cwd=ROOT, check=False).returncode != 0:
            return None
    return str(python)


def placed(place, folder):
    """The folder that the tests run in: this checkout, or a copy of it."""
    if place == "here":
        return ROOT
    if place == "sdist":
        build = [sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", folder]
        subprocess.run([*map(str, build), str(ROOT)], check=True, stdout=subprocess.DEVNULL)
        (archive,) = folder.glob("*.tar.gz")
        shutil.unpack_archive(archive, folder, filter="data")
        return folder / archive.name.removesuffix(".tar.gz")
    copy = folder / ("a folder with blanks ü" if place == "blanks" else "checkout")
    shutil.copytree(ROOT, copy, ignore=OUTSIDE)
    if place == "read-only":
        for path in [copy, *copy.rglob("*")]:
            path.chmod(path.stat().st_mode & ~0o222 | 0o444)
    return copy


if __name__ == "__main__":
    sys.exit(main())
