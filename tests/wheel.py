"""What users install: the README's example from a wheel, in an environment with nothing else.

``python -m tests.wheel`` builds a source distribution and a wheel from it, installs the wheel into
a new environment, and compares what the README's first example prints there.
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from .pages import ROOT
from .versions import uv_program


def example():
    """The README's first example, and what it prints."""
    text = (ROOT / "README.md").read_text()
    code, printed = re.search(r"```python\n(.*?)```.*?```\n(.*?)```", text, re.S).groups()
    assert "plan.guarantee" in code
    return code, printed


def installed(folder):
    """The Python of a new environment that has the wheel and what it needs."""
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", folder / "dist", ROOT]
    subprocess.run(build, check=True, stdout=subprocess.DEVNULL)
    (wheel,) = (folder / "dist").glob("*.whl")
    python, uv = folder / "env" / "bin" / "python", uv_program()
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, folder / "env"], check=True)
    subprocess.run([uv, "pip", "install", "--quiet", "--python", python, wheel], check=True)
    return python


def main():
    """Build, install, run, compare; the exit code is 1 where the output is another one."""
    code, printed = example()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        python = installed(folder)
        (folder / "example.py").write_text(code)
        alone = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        run = [python, "-W", "error", "example.py"]
        done = subprocess.run(run, cwd=folder, env=alone, capture_output=True, text=True)
    if done.returncode or done.stdout != printed:
        sys.exit(f"The wheel's output differs from the README's:\n{done.stdout}{done.stderr}")
    print("The README's example prints the same from a wheel.")


if __name__ == "__main__":
    main()
