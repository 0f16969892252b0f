"""Runs in processes of their own that are killed at random moments, until one ends.

SIGKILL, SIGTERM or SIGINT goes to the process of the run, to one of its workers, or to all of them.
Every process writes down, outside the ledger, what an agent drew and what the run took up. At the
end, each value that was taken up is in the ledger bit for bit, none was released twice, and the
charges are those of the plan and of values that were torn on the disk; a seeded run ends as if
nothing had happened.
"""

import base64
import itertools
import json
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path

import dpcvx as dp
from tests.campaigns.runs import EXECUTORS, left, opened, problem, watching
from tests.campaigns.tally import Tally
from tests.privacy.test_ledger_file import alone

FULL = 400
_SIGNALS = [signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT]
# Seconds for a process to end by itself.
_PATIENCE = 120
_OVER = "over before the signal"

METHODS = {
    "gradients": lambda: (dp.LinearizedADMM(penalty=1.0, local_updates=2), {}),
    "exact steps": lambda: (dp.ADMM(penalty=2.0), {}),
    "Laplace": lambda: (dp.LinearizedADMM(penalty=1.0), {"mechanism": dp.Laplace(), "delta": 0.0}),
    "output": lambda: (dp.LinearizedADMM(penalty=1.0, perturb="output"), {}),
    "once": lambda: (dp.ADMM(penalty=1.0), {"release": "once"}),
}


def campaign(size: int, seed: int) -> Tally:
    """Runs until so many of their processes were killed at work."""
    tally, draw = Tally(), random.Random(seed)
    combinations = [(m, e, s) for m in METHODS for e in EXECUTORS for s in (None, 3)]
    draw.shuffle(combinations)
    plans = {method: _plan_of(method) for method in METHODS}
    expected: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        for trial in itertools.count():
            left = size - tally.counts.total() + tally.counts[_OVER]
            if left <= 0:
                break
            method, executor, own = combinations[trial % len(combinations)]
            path, plan = Path(folder) / f"ledger {trial}", plans[method]
            if own is not None and method not in expected:
                whole = Path(folder) / f"whole {method}"
                _ended(_started(whole, plan, "Serial", own))
                expected[method] = _outcome(plan, whole)
            kills = min(draw.randint(1, 4), left)
            fault = _trial(path, plan, executor, own, kills, draw, tally)
            if fault is None and own is not None and _outcome(plan, path) != expected[method]:
                fault = "another result with the same seed"
            if fault:
                tally.faults.append(f"{method}, {executor}, seed {own}, trial {trial}: {fault}")
    return tally


def _plan_of(method: str) -> dp.Plan:
    """A method over eight rounds."""
    algorithm, arguments = METHODS[method]()
    settings = {"rounds": 8, "epsilon": 1.0, "delta": 1e-6} | arguments
    return problem().plan(algorithm, **settings)


def _victim(path: Path, plan: dp.Plan, executor: str, seed: int | None, at_work: int) -> None:
    """One process of a run; writes down what leaves."""
    # A pause, so that most signals arrive at work.
    with watching(opened(path.with_suffix(".left")), 0.002):
        os.write(at_work, b".")
        plan.run(ledger=path, seed=seed, executor=EXECUTORS[executor]())


def _outcome(plan: dp.Plan, path: Path) -> list[object]:
    """The result of the run that a ledger holds."""
    result = plan.replay(path)
    vectors = [x.tobytes() for s in (result.last, result.average) for x in s.vectors]
    return [result.status, result.rounds, *vectors]


def _started(path: Path, plan: dp.Plan, executor: str, seed: int | None) -> int:
    """A new process with the run, which waits at the start until it is at work."""
    ready, at_work = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.setsid()
            signal.signal(signal.SIGINT, signal.default_int_handler)
            with open(path.with_suffix(".errors"), "w") as errors:
                os.dup2(errors.fileno(), 2)
                _victim(path, plan, executor, seed, at_work)
                status = 0
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(status)
    os.close(at_work)
    os.read(ready, 1)
    os.close(ready)
    return pid


def _ended(pid: int) -> int:
    """Exit status of a process; minus the signal that ended it."""
    limit = time.monotonic() + _PATIENCE
    while time.monotonic() < limit:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    raise TimeoutError


def _trial(
    path: Path,
    plan: dp.Plan,
    executor: str,
    seed: int | None,
    kills: int,
    draw: random.Random,
    tally: Tally,
) -> str | None:
    while True:
        pid = _started(path, plan, executor, seed)
        hit = None
        if kills > 0:
            time.sleep(draw.uniform(0, 0.1))
            hit = _signal(pid, draw.choice(_SIGNALS), draw.choice(["run", "group", "worker"]))
        try:
            status = _ended(pid)
        except TimeoutError:
            return "hangs"
        fault = _faults(path)
        over = path.exists() and b'{"end"' in path.read_bytes()
        if fault or status == 0 or over:
            if hit is not None and not fault:
                tally.add(_OVER)
            return fault
        errors = path.with_suffix(".errors").read_text()
        if hit is None:
            if "BudgetError" in errors and b'"torn"' in path.read_bytes():
                tally.add("the budget of a torn value was not there")
                return None
            return f"does not go on: {errors[-300:]}"
        kills -= 1
        tally.add(hit)


def _signal(pid: int, sent: signal.Signals, whom: str) -> str:
    """Send a signal, and say which and to whom."""
    try:
        if whom == "group":
            os.killpg(pid, sent)
            return f"{sent.name} to all"
        if whom == "worker":
            children = Path(f"/proc/{pid}/task/{pid}/children")
            workers = children.read_text().split() if children.exists() else []
            if workers:
                os.kill(int(workers[0]), signal.SIGKILL)
                return "SIGKILL to a worker"
        os.kill(pid, sent)
    except (ProcessLookupError, FileNotFoundError):
        pass  # it ended meanwhile
    return f"{sent.name} to the run"


def _faults(path: Path) -> str | None:
    """What is not as it must be between two processes of a run, and after the last one."""
    known, fault = left(path.with_suffix(".left"))
    if fault:
        return fault
    if not path.exists():
        return "values left, and there is no file" if known else None
    kept: dict[tuple, str] = {}
    charged, torn = [], 0
    for line in path.read_bytes().splitlines()[1:]:
        try:
            told = alone(json.loads(line))
        except ValueError:
            break  # the line at which the process died
        for found in told:
            if "charge" in found:
                charged.append((found["charge"], found["round"], found["step"]))
            torn += "torn" in found
            if "value" in found:
                place = found["value"], found["round"], found["step"]
                if place in kept:
                    return f"two values of {place} are in the file"
                kept[place] = base64.b64decode(found["data"]).hex()
    for place, value in known.items():
        if kept.get(place) != value:
            return f"{place} left and is not in the file"
    if not set(kept) <= set(charged):
        return "a value is not paid for"
    if len(charged) - len(set(charged)) > 3 * torn:
        return "a release is paid for twice"
    try:
        spent = dp.Ledger.load(path).spent()
    except dp.LedgerError as error:
        return f"refused: {error}"
    return None if spent <= 1 + 1e-9 else f"{spent} of 1 was spent"
