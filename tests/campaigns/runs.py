"""What campaigns of failing runs share: agents, executors, and a record of all that leaves."""

import os
import time
from pathlib import Path

import cvxpy as cp
import numpy as np

import dpcvx as dp
from dpcvx.run.gate import ReleaseGate

EXECUTORS = {
    "default": lambda: None,
    "Serial": dp.Serial,
    "Threads": lambda: dp.Threads(2),
    "Processes": lambda: dp.Processes(2),
}


def problem() -> dp.Problem:
    """Three agents with private data that share a vector."""
    x = cp.Variable(2, name="x")
    agents = []
    for k in range(3):
        d = dp.Private(np.array([0.3, -0.1]) * k, name=f"d{k}", adjacency=dp.Within(0.1))
        agents.append(dp.Agent(cp.Minimize(cp.sum_squares(x - d)), [cp.abs(x) <= 1], name=f"a{k}"))
    return dp.Problem(agents)


def opened(log: Path) -> int:
    """A file to which all processes of a run append, outside the ledger."""
    return os.open(log, os.O_CREAT | os.O_WRONLY | os.O_APPEND)


def watched(log: int, seconds: float = 0.0):
    """`ReleaseGate.__call__` that writes down, in whatever process, what it lets out."""
    honest = ReleaseGate.__call__

    def leaves(self, place, what, *arguments):
        time.sleep(seconds)
        value = honest(self, place, what, *arguments)
        if what is not None:
            line = f"{self.account.agent} {place[0]} {place[1]} {value.tobytes().hex()}\n"
            os.write(log, line.encode())
        return value

    return leaves


def left(log: Path) -> tuple[dict[tuple[str, int, int], str], str | None]:
    """What left by agent, round and step; and where two values left, if they did."""
    known: dict[tuple[str, int, int], str] = {}
    for line in log.read_text().splitlines() if log.exists() else []:
        agent, t, step, value = line.split(" ")
        if known.setdefault((agent, int(t), int(step)), value) != value:
            return known, f"{agent} released two values in round {t}"
    return known, None
