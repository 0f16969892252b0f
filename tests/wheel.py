"""What users install: the README's example from a wheel, in environments with nothing else.

``python -m tests.wheel`` builds a source distribution and a wheel from it, installs the wheel into
a new environment of every Python that is here, and compares what the README's first example prints.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from . import pages
from .pages import ROOT
from .versions import found, uv_program

PYTHONS = ("3.11", "3.12", "3.13")


def example():
    """The README's first example, and what it prints."""
    block, *_ = pages.blocks(pages.README.read_text())
    assert "plan.guarantee" in block.code and block.printed
    return block.code, block.printed


def built(folder):
    """A wheel, from a source distribution."""
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT]
    subprocess.run(build, check=True, stdout=subprocess.DEVNULL)
    (wheel,) = folder.glob("*.whl")
    return wheel


def installed(wheel, interpreter, folder):
    """The Python of a new environment that has the wheel and what it needs."""
    python, uv = folder / "bin" / "python", uv_program()
    subprocess.run([uv, "venv", "--quiet", "--python", interpreter, folder], check=True)
    subprocess.run([uv, "pip", "install", "--quiet", "--python", python, wheel], check=True)
    return python


def main():
    """Build, install, run, compare; the exit code is 1 where the output is another one."""
    code, printed = example()
    here = {version: found(uv_program(), version) for version in PYTHONS}
    asked = {version: place for version, place in here.items() if place is not None}
    alone = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wheel = built(folder / "dist")
        (folder / "example.py").write_text(code)
        for version, interpreter in asked.items():
            python = installed(wheel, interpreter, folder / version)
            run = [python, "-W", "error", "example.py"]
            done = subprocess.run(run, cwd=folder, env=alone, capture_output=True, text=True)
            if done.returncode or done.stdout != printed:
                sys.exit(
                    f"The wheel's output on Python {version} differs from the README's:\n"
                    f"{done.stdout}{done.stderr}"
                )
    if not asked:
        sys.exit(f"None of Python {', '.join(PYTHONS)} is here.")
    print(f"The README's example prints the same from a wheel on Python {', '.join(asked)}.")
    missing = [version for version in PYTHONS if version not in asked]
    if missing:
        print(f"Not tried, for they are not here: {', '.join(missing)}.")


if __name__ == "__main__":
    main()
