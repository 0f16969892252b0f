"""What campaigns of failing runs share: agents, executors, and a record of all that leaves."""

import os
import time
from contextlib import contextmanager
from pathlib import Path

import cvxpy as cp
import numpy as np

import dpcvx as dp
from dpcvx.privacy.ledger_file import Journal
from dpcvx.run.executors.host import Notes
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


def watch(log: int, seconds: float = 0.0) -> None:
    """Have what agents draw, in whatever process, and what the run takes up, written down."""
    drawn, whole = ReleaseGate.__call__, Journal.exchange

    def draws(self, place, what, *arguments):
        time.sleep(seconds)
        value = drawn(self, place, what, *arguments)
        if what is not None:
            text = f"{self.account.agent} {place[0]} {place[1]} {value.tobytes().hex()}"
            os.write(log, f"{os.getsid(0)} {text}\n".encode())
            if not isinstance(self._journal, Notes):  # agent and run are one process
                os.write(log, f"{os.getsid(0)} taken\n".encode())
        return value

    @contextmanager
    def taken(self):
        with whole(self):
            yield
        os.write(log, f"{os.getsid(0)} taken\n".encode())

    ReleaseGate.__call__, Journal.exchange = draws, taken


def left(log: Path) -> tuple[dict[tuple[str, int, int], str], str | None]:
    """What runs took up by agent, round and step; and where they took up two values, if they did.

    What a run drew and did not live to take up was never seen.
    """
    known: dict[tuple[str, int, int], str] = {}
    drawn: dict[str, list[list[str]]] = {}
    for line in log.read_text().splitlines() if log.exists() else []:
        run, *told = line.split(" ")
        if told != ["taken"]:
            drawn.setdefault(run, []).append(told)
            continue
        for agent, t, step, value in drawn.pop(run, []):
            if known.setdefault((agent, int(t), int(step)), value) != value:
                return known, f"{agent} released two values in round {t}"
    return known, None
