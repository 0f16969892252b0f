"""What the script and its workers exchange; needs numpy only, because every peer imports it."""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Instance:
    r"""Agents' least squares with one shared vector in a box, and perhaps a cone per agent.

    .. math:: \min_x \sum_p \|A_p x - b_p\|^2 \quad
        |x| \le \text{bound}, \; \|B_p x - c_p\| \le r_p

    Attributes
    ----------
    A, b : ndarray, shapes (P, m, n) and (P, m)
        The targets b are private.
    B, c, r : ndarray, shapes (P, k, n), (P, k) and (P,)
        Cones; k = 0 without.
    bound : float
    """

    A: Array
    b: Array
    B: Array
    c: Array
    r: Array
    bound: float

    @property
    def conic(self) -> bool:
        """Whether the agents have cones."""
        return self.B.shape[1] > 0

    def objective(self, x: Array) -> float:
        """Sum of all agents' objectives at one point."""
        return float(np.sum((self.A @ x - self.b) ** 2))

    def violation(self, x: Array) -> float:
        """Largest violation of box and cones at one point."""
        found = np.abs(x) - self.bound
        if self.conic:
            found = np.append(found, np.linalg.norm(self.B @ x - self.c, axis=1) - self.r)
        return max(0.0, float(found.max()))

    def save(self, path: Path) -> None:
        """Write the arrays to a file."""
        np.savez(path, A=self.A, b=self.b, B=self.B, c=self.c, r=self.r, bound=self.bound)


@dataclass
class Trace:
    """Points after each round, as a worker collects them.

    Attributes
    ----------
    points : list of ndarray, shape (n,)
        Mean of the agents' copies.
    spread : list of float
        Largest distance of a copy from that mean.
    seconds : list of float
        Since the model's first line; imports are not counted.
    """

    points: list[Array] = field(default_factory=list)
    spread: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    started: float = field(default_factory=time.perf_counter)

    @property
    def now(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self.started

    def add(self, copies: Array, seconds: float | None = None) -> None:
        """Take the agents' copies, shape (P, n)."""
        mean = copies.mean(axis=0)
        self.points.append(mean)
        self.spread.append(float(np.abs(copies - mean).max()))
        self.seconds.append(self.now if seconds is None else seconds)

    def save(self, path: Path, *packages: str, note: str = "") -> None:
        """Write the trace, versions of some packages, and a remark."""
        facts = {"versions": {name: version(name) for name in packages}, "note": note}
        np.savez(
            path,
            points=np.array(self.points),
            spread=np.array(self.spread),
            seconds=np.array(self.seconds),
            facts=json.dumps(facts),
        )


def load(path: Path) -> Instance:
    """Read a saved instance."""
    with np.load(path) as found:
        fields = {name: found[name] for name in ("A", "b", "B", "c", "r")}
        return Instance(**fields, bound=float(found["bound"]))


def arguments() -> argparse.Namespace:
    """Command line of every worker."""
    parser = argparse.ArgumentParser()
    parser.add_argument("instance", type=Path)
    parser.add_argument("result", type=Path)
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--rho", type=float, default=1.0)
    parser.add_argument("--method", default="")
    return parser.parse_args()
