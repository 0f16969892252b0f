"""What campaigns of failing runs share: agents, executors, and a record of all that leaves."""

import base64
import os
import time
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import cvxpy as cp
import numpy as np

import dpcvx as dp
from dpcvx.privacy.ledger_file import Journal
from dpcvx.run.gate import PrivacyGate
from tests.privacy.test_ledger_file import alone

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


@contextmanager
def watching(log: int, seconds: float = 0.0):
    """Have what leaves written down: when the run takes up an exchange, or gives a value out again.

    What the run did not live to take up was never seen.
    """
    gate, exchange = PrivacyGate.release, Journal.exchange
    release, take = Journal.release, Journal.take
    held: list[str] = []

    def told(agent, place, value):
        return f"{agent} {place[0]} {place[1]} {value.tobytes().hex()}\n"

    def leaves(self, place, *arguments):
        time.sleep(seconds)
        values = gate(self, place, *arguments)
        if self.made(place):
            pairs = zip(self.accounts(), values, strict=True)
            told_all = [told(account.agent, place, value) for account, value in pairs]
            os.write(log, "".join(told_all).encode())
        return values

    def notes(self, agents, place, values):
        release(self, agents, place, values)
        held.extend(told(agent, place, v) for agent, v in zip(agents, values, strict=True))

    def takes(self, noted):
        take(self, noted)
        for line in noted.lines({}):
            for one in alone(line):
                if "value" in one:
                    value = np.frombuffer(base64.b64decode(one["data"]))
                    held.append(told(one["value"], (one["round"], one["step"]), value))

    @contextmanager
    def taken(self):
        held.clear()
        with exchange(self):
            yield
        os.write(log, "".join(held).encode())

    with (
        mock.patch.object(PrivacyGate, "release", leaves),
        mock.patch.object(Journal, "release", notes),
        mock.patch.object(Journal, "take", takes),
        mock.patch.object(Journal, "exchange", taken),
    ):
        yield


def left(log: Path) -> tuple[dict[tuple[str, int, int], str], str | None]:
    """What left by agent, round and step; and where two values left, if they did."""
    known: dict[tuple[str, int, int], str] = {}
    for line in log.read_text().splitlines() if log.exists() else []:
        agent, t, step, value = line.split(" ")
        if known.setdefault((agent, int(t), int(step)), value) != value:
            return known, f"{agent} released two values in round {t}"
    return known, None
