"""What a stored result needs to be computed again, without anything that is private."""

from __future__ import annotations

import argparse
import hashlib
import platform
import subprocess
from dataclasses import fields
from importlib.metadata import version
from pathlib import Path

import dpcvx as dp

from .case import Case

# Where results go, and what is shown of them, does not change them.
_OUTPUT = frozenset({"json", "plot", "format", "tables", "table_format", "quiet", "ledger", "over"})
_LIBRARIES = ("clarabel", "cvxpy", "dpcvx", "numpy", "scipy")
_PRIVATE = frozenset({"pd", "qd"})


def provenance(options: argparse.Namespace, case: Case, plan: dp.Plan | None) -> dict[str, object]:
    """Inputs, versions, the plan's fingerprint and a digest of the network.

    Parameters
    ----------
    options : argparse.Namespace
        Of `options.parser`.
    case : Case
    plan : dp.Plan or None
        None for a central solve.

    Returns
    -------
    dict
        ``inputs`` are options by their names, ``network`` the digest of `network_digest`. What is
        chosen where an option is left out stands in ``plan``, and in ``commit`` that of `commit`.
    """
    return {
        "inputs": {
            name: value
            for name, value in sorted(vars(options).items())
            if name not in _OUTPUT and value is not None
        },
        "plan": None
        if plan is None
        else {
            "algorithm": str(plan.algorithm),
            "rounds": plan.rounds,
            "release": plan.release,
            "fingerprint": plan.fingerprint,
        },
        "network": network_digest(case),
        "versions": {
            "python": platform.python_version(),
            **{name: version(name) for name in _LIBRARIES},
        },
        "commit": commit(Path(__file__).parents[2]),
    }


def commit(root: Path) -> str | None:
    """Which commit a checkout has, with a "+" behind it if files differ; None elsewhere.

    Parameters
    ----------
    root : Path
        Where the checkout is.
    """
    if not (root / ".git").exists():
        return None
    ask = ["git", "-C", root, "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty=+"]
    try:
        said = subprocess.run(ask, capture_output=True, check=True, timeout=60, text=True)
    except (OSError, subprocess.SubprocessError):  # no git, or a checkout of somebody else
        return None
    return said.stdout.strip()


def network_digest(case: Case) -> str:
    """SHA-256 of the network without its loads, which a digest would give away.

    Parameters
    ----------
    case : Case
    """
    digest = hashlib.sha256(repr((case.name, case.base_mva)).encode())
    for part in (case.bus, case.gen, case.branch, case.pairs):
        for field in fields(part):
            if field.name not in _PRIVATE:
                values = getattr(part, field.name)
                digest.update(f"{field.name} {values.dtype.str} {values.shape}".encode())
                digest.update(values.tobytes())
    return digest.hexdigest()
