"""Versions of the code that computed a stored result."""

from __future__ import annotations

import platform
import subprocess
from importlib.metadata import version
from pathlib import Path

_LIBRARIES = ("clarabel", "cvxpy", "dpcvx", "numpy", "scipy")
_HERE = Path(__file__).parents[1]


def versions() -> dict[str, str]:
    """Return the versions of Python and of the libraries that results depend on."""
    return {"python": platform.python_version(), **{name: version(name) for name in _LIBRARIES}}


def commit(root: Path = _HERE) -> str | None:
    """Return a checkout's commit, with a "+" appended if files differ; None without a checkout.

    Parameters
    ----------
    root : Path
        Folder of the checkout.
    """
    if not (root / ".git").exists():
        return None
    ask = ["git", "-C", root, "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty=+"]
    try:
        said = subprocess.run(ask, capture_output=True, check=True, timeout=60, text=True)
    except (OSError, subprocess.SubprocessError):  # git is missing, or another user owns the folder
        return None
    return said.stdout.strip()
