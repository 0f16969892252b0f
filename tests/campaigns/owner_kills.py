"""Owners and coordinator killed at random moments: every run is gone on with until it is done.

Three owners and a coordinator are processes of the command ``dpcvx``, with certificates, over
sockets. At random moments one of them is killed by SIGKILL and started again, a third of them at
the end of a run: from its last rounds until the processes are gone. Each run has to end by itself,
with the values of a run in one process, for the coordinator and for owners; every ledger has each
value and each charge once. A trial is one kill, or the end of a run. Of the kills of owners that
nothing else followed too soon, it is also counted how many the coordinator reported within a
second, and how many owners were back within three seconds of their start; both depend on how busy
the machine is.
"""

import collections
import json
import random
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

from tests.campaigns.tally import Tally
from tests.owners.federation import NAMES, command, expected, free_port, plan_of, write

# Kills: half of them of owners, half of the coordinator.
FULL = 100
_ROUNDS = 40
# Seconds in which a run has to end after its last kill, and for which parties look for each other:
# on a busy machine a start of 1.2 seconds of the processor takes minutes.
_LIMIT = 300
# Seconds for which owners are waited for once the coordinator has ended, and for which they look
# for it then.
_SOON = 10


class Party:
    """A process, and what it writes to standard error, with the times."""

    def __init__(self, process):
        self.process, self.began = process, time.monotonic()
        self.lines = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self.process.stderr:
            self.lines.append((time.monotonic(), line.rstrip("\n")))

    def end(self):
        """Kill it, and wait until it is gone; when it was killed."""
        at = time.monotonic()
        self.process.kill()
        self.ended(None)
        return at

    def ended(self, timeout):
        """Its exit code, and all that it wrote."""
        self.process.wait(timeout)
        self._reader.join()
        self.process.stdout.close()
        self.process.stderr.close()
        return self.process.returncode, "\n".join(line for _, line in self.lines)

    def after(self, when, line):
        """Seconds until it wrote a line; None if it did not."""
        return next((at - when for at, said in self.lines if at >= when and said == line), None)

    def hears(self, name):
        """Whether an owner is here, as far as the coordinator has said."""
        said = [line for _, line in self.lines if line in (f"{name} is here", f"{name} left")]
        return said[-1:] == [f"{name} is here"]


class Parties:
    """The processes of one run.

    Attributes
    ----------
    kills : list of (str, Party, float, float)
        Of owners that were here: the name, the coordinator then, and when the owner was killed and
        started again.
    """

    def __init__(self, place):
        self._place, self._port = place, free_port()
        self.out, self.kills = place / "shared.npz", []
        self._live = {name: self._start(name) for name in ("coordinator", *NAMES)}

    def _start(self, name, wait=_LIMIT):
        folder = self._place / name
        if name == "coordinator":
            return Party(
                command(
                    "coordinate", folder / "model.py", "--listen", f"127.0.0.1:{self._port}",
                    "--keys", folder / "keys", "--log", folder / "run.dpx", "--timeout", wait,
                    "--out", self.out,
                )
            )  # fmt: skip
        return Party(
            command(
                "owner", "join", folder / "owner.toml", "--connect",
                f"wss://127.0.0.1:{self._port}", "--seed", 1, "--timeout", wait,
                "--out", folder / "own.npz",
            )
        )  # fmt: skip

    def kill(self, name):
        """Kill a process and start it again; False if it had ended."""
        one, coordinator = self._live[name], self._live["coordinator"]
        if one.process.poll() is not None:
            return False
        here = coordinator.hears(name)
        at = one.end()
        self._live[name] = fresh = self._start(name)
        if name != "coordinator" and here:
            self.kills.append((name, coordinator, at, fresh.began))
        return True

    @property
    def done(self):
        """Whether the coordinator has ended."""
        return self._live["coordinator"].process.poll() is not None

    def gather(self):
        """Wait until all owners are here, or the run has ended."""
        deadline = time.monotonic() + _LIMIT
        while not self.done and time.monotonic() < deadline:
            if all(map(self._live["coordinator"].hears, NAMES)):
                return
            time.sleep(0.02)

    def approach(self):
        """Wait until the last rounds, or until the run has ended."""
        ledger, deadline = self._place / NAMES[0] / "spent.jsonl", time.monotonic() + _LIMIT
        while not self.done and time.monotonic() < deadline:
            if ledger.exists() and ledger.read_text().count('"values"') >= _ROUNDS - 2:
                return
            time.sleep(0.01)

    def times(self):
        """How long losses took to be reported, and owners to be back; once all have ended.

        An owner that was killed again, or whose coordinator was, has no time.
        """
        lost = [one.after(at, f"{name} left") for name, one, at, _ in self.kills]
        back = [one.after(again, f"{name} is here") for name, one, _, again in self.kills]
        return [[t for t in found if t is not None] for found in (lost, back)]

    def ended(self):
        """Exit codes and what went to standard error, once all have ended.

        An owner that was killed in its last moments finds nobody when it is back. It is killed and
        started once more, to look for a short time only: it has to know that all is over.
        """
        found = {"coordinator": self._ended("coordinator", _LIMIT)}
        for name in NAMES:
            try:
                self._live[name].process.wait(_SOON)
            except subprocess.TimeoutExpired:
                self._live[name].end()
                self._live[name] = self._start(name, _SOON)
            found[name] = self._ended(name, _LIMIT)
        return found

    def _ended(self, name, timeout):
        """Exit code and words of a party that is to end in time."""
        try:
            return self._live[name].ended(timeout)
        except subprocess.TimeoutExpired:
            self._live[name].end()
            return 1, "HUNG"


def faults(place, parties, want):
    """What is wrong after a run, in words."""
    found = []
    for name, (code, said) in parties.ended().items():
        if code:
            found.append(f"{name} ended with {code}: {said[-300:]}")
    if found:
        return found
    return differences(place, parties.out, want, _ROUNDS)


def differences(place, out, want, rounds):
    """What values and ledgers have otherwise than a run in one process, in words."""
    found = []
    shared = np.load(out)
    if shared["tie"].tobytes() != want.solution["tie"].tobytes():
        found.append("other values than in one process")
    for name in NAMES:
        own = np.load(place / name / "own.npz")[f"gen {name}"]
        if own.tobytes() != want.last.of(name, f"gen {name}").tobytes():
            found.append(f"{name} has other values of its own than in one process")
        kinds = collections.Counter()
        for line in (place / name / "spent.jsonl").read_text().split("\n")[1:]:
            text = line[line.find("{") :]
            said = json.loads(text) if text.startswith("{") else {}
            for kind in ("charges", "values"):
                if kind in said:
                    kinds[kind, said["round"], said["step"]] += 1
        if len(kinds) != 2 * rounds or set(kinds.values()) != {1}:
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
            while kills < size and not parties.done and kills < began + 10:
                # A third in the middle of rounds, whatever a start takes on this machine.
                where = coins.choice(("", " in a round", " at the end"))
                if where == " in a round":
                    parties.gather()
                elif where:
                    parties.approach()
                time.sleep(coins.uniform(0.0, 1.5 if where else 3.0))
                name = "coordinator" if kills % 2 else coins.choice(NAMES)
                if parties.kill(name):
                    kills += 1
                    tally.add(f"{'owner' if name in NAMES else name} killed{where}")
            wrong = faults(place, parties, want)
            tally.add("run ended", "; ".join(wrong) or None)
            lost, back = parties.times()
            for what, limit, found in (("loss reported", 1.0, lost), ("owner back", 3.0, back)):
                for seconds in found:
                    late = "within" if seconds <= limit else "after more than"
                    tally.note(f"{what} {late} {limit:g} s")
            if wrong and kills == began:
                break
    return tally
