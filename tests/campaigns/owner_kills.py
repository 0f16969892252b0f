"""Owners and coordinator killed at random moments: every run is gone on with until it is done.

Three owners and a coordinator are processes of the command ``dpcvx``, with certificates, over
sockets. At random moments one of them is killed by SIGKILL and started again. Each run has to end
by itself, with the values of a run in one process; every ledger has each value and each charge
once. A trial is one kill, or the end of a run.
"""

import collections
import json
import random
import tempfile
import time
from pathlib import Path

import numpy as np

from tests.campaigns.tally import Tally
from tests.owners.federation import NAMES, command, expected, free_port, plan_of, write

# Kills: half of them of owners, half of the coordinator.
FULL = 100
_ROUNDS = 40
# Seconds in which a run has to end after its last kill.
_LIMIT = 120


class Parties:
    """The processes of one run."""

    def __init__(self, place):
        self._place, self._port = place, free_port()
        self.out = place / "shared.npz"
        self._live = {name: self._start(name) for name in ("coordinator", *NAMES)}

    def _start(self, name):
        folder = self._place / name
        if name == "coordinator":
            return command(
                "coordinate", folder / "model.py", "--listen", f"127.0.0.1:{self._port}",
                "--keys", folder / "keys", "--log", folder / "run.dpx", "--wait", _LIMIT,
                "--out", self.out,
            )  # fmt: skip
        return command(
            "owner", "join", folder / "owner.toml", "--connect", f"wss://127.0.0.1:{self._port}",
            "--seed", 1, "--wait", _LIMIT,
        )  # fmt: skip

    def kill(self, name):
        """Kill a process and start it again; False if it had ended."""
        one = self._live[name]
        if one.poll() is not None:
            return False
        one.kill()
        one.communicate()
        self._live[name] = self._start(name)
        return True

    @property
    def done(self):
        """Whether the coordinator has ended."""
        return self._live["coordinator"].poll() is not None

    def ended(self):
        """Exit codes and what went to standard error, once all have ended."""
        deadline, found = time.monotonic() + _LIMIT, {}
        for name, one in self._live.items():
            try:
                _, said = one.communicate(timeout=max(1.0, deadline - time.monotonic()))
            except Exception:
                one.kill()
                _, said = one.communicate()
                said += " (HUNG)"
            found[name] = one.returncode, said
        return found


def faults(place, parties, want):
    """What is wrong after a run, in words."""
    found = []
    for name, (code, said) in parties.ended().items():
        if code:
            found.append(f"{name} ended with {code}: {said[-300:]}")
    if found:
        return found
    shared = np.load(parties.out)
    if shared["tie"].tobytes() != want.solution["tie"].tobytes():
        found.append("other values than in one process")
    for name in NAMES:
        kinds = collections.Counter()
        for line in (place / name / "spent.jsonl").read_text().split("\n")[1:]:
            text = line[line.find("{") :]
            said = json.loads(text) if text.startswith("{") else {}
            for kind in ("charge", "value"):
                if kind in said:
                    kinds[kind, said["round"], said["step"]] += 1
        if len(kinds) != 2 * _ROUNDS or set(kinds.values()) != {1}:
            found.append(
                f"{name} has {len(kinds)} lines of charges and values, {max(kinds.values())}"
            )
    return found


def campaign(size, seed):
    """So many kills, in as many runs as that takes."""
    coins, tally, kills = random.Random(seed), Tally(), 0
    while kills < size:
        with tempfile.TemporaryDirectory() as folder:
            place = write(Path(folder), rounds=_ROUNDS, accept="reply_after = 0.05")
            plan = plan_of(place)
            want = expected(plan)
            parties, began = Parties(place), kills
            time.sleep(2.0)
            while kills < size and not parties.done and kills < began + 10:
                time.sleep(coins.uniform(0.0, 3.0))
                name = "coordinator" if coins.random() < 0.5 else coins.choice(NAMES)
                if parties.kill(name):
                    kills += 1
                    tally.add(f"{'coordinator' if name == 'coordinator' else 'owner'} killed")
            wrong = faults(place, parties, want)
            tally.add("run ended", "; ".join(wrong) or None)
            if wrong and kills == began:
                break
    return tally
