"""Peers in environments of their own: their pins exclude each other."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from .exchange import Array, Instance

HERE = Path(__file__).parent
ROOT = HERE.parents[2]


@dataclass(frozen=True)
class Peer:
    """A package, how it is installed, and how its worker is started.

    Attributes
    ----------
    name : str
        Of the distribution, or of a method of this package.
    worker : str
        Module next to this one.
    requirements : tuple of str
        For pip; empty runs the worker in this interpreter.
    method : str
        Handed to the worker.
    ranks : bool
        Whether it needs one MPI process per agent.
    penalized : bool
        Whether it has a penalty to choose.
    """

    name: str
    worker: str
    requirements: tuple[str, ...] = ()
    method: str = ""
    ranks: bool = False
    penalized: bool = True

    @property
    def label(self) -> str:
        """Name and method."""
        return f"{self.name}, {self.method}" if self.method else self.name


@dataclass(frozen=True, eq=False)
class Run:
    """What a worker returned, or why it did not.

    Attributes
    ----------
    points : ndarray, shape (T, n)
    spread, seconds : ndarray, shape (T,)
    versions : dict
    note : str
    """

    points: Array
    spread: Array
    seconds: Array
    versions: dict[str, str]
    note: str


class PeerFailed(Exception):
    """A worker or an installation ended with an error; the message is the error's."""


PEERS = (
    Peer("cvxpy, all data in one place", "run_central", penalized=False),
    Peer("dpcvx", "run_dpcvx", method="exact steps"),
    Peer("dpcvx", "run_dpcvx", method="linearized steps"),
    Peer("osbdo", "run_osbdo", ("osbdo==0.0.6", "clarabel"), penalized=False),
    Peer("disropt", "run_disropt", ("disropt==0.1.9", "mpich"), ranks=True),
    # 0.1.6 pins cvxpy 1.4.0, which newer releases of scipy break.
    Peer("dede", "run_dede", ("dede==0.1.6", "scipy==1.11.4")),
)


def home(peer: Peer, envs: Path) -> Path:
    """The peer's environment."""
    return envs / peer.name


def commands(peer: Peer, envs: Path) -> list[list[str]]:
    """What creates the peer's environment."""
    place = home(peer, envs)
    python = str(place / "bin" / "python")
    return [
        [sys.executable, "-m", "venv", str(place)],
        [python, "-m", "pip", "install", "--quiet", *peer.requirements],
    ]


def installed(peer: Peer, envs: Path | None) -> bool:
    """Whether the worker can be started at all."""
    if not peer.requirements:
        return True
    if envs is None:
        return False
    return any(home(peer, envs).glob(f"lib/python*/site-packages/{peer.name}-*.dist-info"))


def install(peer: Peer, envs: Path) -> None:
    """Create the environment; downloads.

    Raises
    ------
    PeerFailed
        If pip does.
    """
    for command in commands(peer, envs):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise PeerFailed(error_in(done.stderr))


def run(
    peer: Peer, inst: Instance, envs: Path | None, *, rounds: int, rho: float, timeout: float
) -> Run:
    """Run a worker on an instance.

    Raises
    ------
    PeerFailed
        If the worker does, or takes longer than the timeout.
    """
    extra = {"OPENBLAS_NUM_THREADS": "1", "RAY_USAGE_STATS_ENABLED": "0"}
    start = [sys.executable, "-m", f"{__package__}.{peer.worker}"]
    if peer.requirements:
        assert envs is not None
        place = home(peer, envs).absolute()
        start = [str(place / "bin" / "python"), str(HERE / f"{peer.worker}.py")]
        extra["PATH"] = f"{place / 'bin'}{os.pathsep}{os.environ['PATH']}"
        extra["HOME"] = str(place)  # Ray writes a token into the home directory
        if peer.ranks:
            start = [str(place / "bin" / "mpirun"), "-np", str(inst.A.shape[0]), *start]
    with TemporaryDirectory() as folder:
        given, found = Path(folder, "instance.npz"), Path(folder, "result.npz")
        inst.save(given)
        command = [*start, str(given), str(found), "--rounds", str(rounds), "--rho", str(rho)]
        command += ["--method", peer.method]
        env = {**os.environ, **extra}
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, env=env, cwd=ROOT, timeout=timeout
            )
        except subprocess.TimeoutExpired:
            raise PeerFailed(f"no answer within {timeout:g} s") from None
        if done.returncode or not found.exists():
            raise PeerFailed(error_in(done.stderr))
        with np.load(found) as data:
            facts = json.loads(str(data["facts"]))
            return Run(data["points"], data["spread"], data["seconds"], **facts)


def error_in(text: str) -> str:
    """The error itself, from what a process wrote."""
    lines = text.strip().splitlines() or ["no message"]
    starts = [k for k, line in enumerate(lines) if re.match(r"[\w.]*(Error|Exception)\b", line)]
    message = " ".join(" ".join(lines[starts[-1] if starts else -1 :]).split())
    return message if len(message) <= 100 else f"{message[:60]} ... {message[-30:]}"
