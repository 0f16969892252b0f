"""Load: many plans, rounds, runs, agents and owners, and large models; memory stays where it was.

A trial is one of `TRIALS` at a size. It ends as ``done``, or as a fault: GROWN (objects, bytes or
open files that stay with every plan, round or run) or WRONG (a run that did not end, or charged
otherwise than it planned). Counts of objects and bytes depend on no clock and on no other process.
Seconds of the processor and the largest memory so far are noted.
"""

import gc
import json
import resource
import tempfile
import threading
import time
import tracemalloc
from pathlib import Path

import cvxpy as cp
import numpy as np

import dpcvx as dp
from dpcvx.owners.keys import fingerprint_of_file, make_study
from tests.owners.federation import together

from .tally import Tally

FULL = 1000
# Bytes that a round may leave: a row of figures in the result, and what lists reserve.
_ROUND = 1500


def problem_of(count, size=2, unequal=False):
    """A problem of agents that share a point, with data by shape or values."""
    x, agents, data = cp.Variable(size, name="x"), [], {}
    for k in range(count):
        d = dp.Private(shape=size, name=f"d{k}", adjacency=dp.Within(0.1))
        own = cp.Variable(1 + k % 5 if unequal else 1, name=f"own {k}")
        cost = (1 + k % 97 / 97 if unequal else 1.0) * cp.sum_squares(x - d)
        limits = [cp.abs(x) <= 2, cp.abs(own) <= 1]
        agents.append(
            dp.Agent(cp.Minimize(cost + cp.sum_squares(own - x[0])), limits, name=f"a{k}")
        )
        data[f"d{k}"] = np.cos(np.arange(size) + k)
    return dp.Problem(agents), data


def planned(problem, rounds):
    """A plan with a budget for so many rounds."""
    noise = dp.Gaussian(noise_multiplier=50.0)
    return problem.plan(
        dp.FederatedAveraging(), rounds=rounds, mechanism=noise, epsilon=1e3, delta=1e-6
    )


def charged(result, rounds):
    """Whether every account has one entry per round."""
    return result.rounds == rounds and all(
        len(account.entries) == rounds for account in result.ledger.values()
    )


def grown(act, size):
    """What stays after the second half of so many acts, in words; nothing if that is nothing."""
    counts = []
    act()  # what is imported and remembered once is no growth
    for _ in range(2):
        for _ in range(size // 2):
            act()
        gc.collect()
        files = len([*Path("/proc/self/fd").glob("*")])
        counts.append((len(gc.get_objects()), files, threading.active_count()))
    objects, files, threads = (b - a for a, b in zip(*counts, strict=True))
    # A memo of some hundred entries may still fill up; one object per act would show.
    few = objects < max(size // 4, 50) and files <= 0 and threads <= 0
    return "" if few else f"GROWN {counts} objects, files, threads"


def plans(size):
    """So many plans and runs of one problem leave no objects."""
    problem, data = problem_of(2)
    return grown(lambda: planned(problem, 2).run(data=data, seed=1), size)


def rounds(size):
    """A run of fifty times so many rounds needs no memory that a short one does not."""
    problem, data = problem_of(2)
    peaks = []
    for count in (size // 2, 50 * size):
        plan = planned(problem, count)
        tracemalloc.start()
        result = plan.run(data=data, seed=1, executor=dp.Serial())  # threads come by the clock
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        if not charged(result, count):
            return "WRONG"
    each = (peaks[1] - peaks[0]) / (50 * size - size // 2)
    return "" if each < _ROUND else f"GROWN {each:.0f} bytes a round"


def agents(size):
    """Ten times so many agents, each another one, end a run."""
    problem, data = problem_of(10 * size, unequal=True)
    return "" if charged(planned(problem, 2).run(data=data, seed=1), 2) else "WRONG"


def folders_of(place, data, settings):
    """Keys, policies and data files of the owners of a problem."""
    names = [f"a{k}" for k in range(len(data))]
    first, *_ = make_study(place, names)
    pinned = fingerprint_of_file(first / "coordinator.crt")
    for name, (private, values) in zip(names, data.items(), strict=True):
        np.save(place / name / "data.npy", values)
        (place / name / "owner.toml").write_text(
            f'agent = "{name}"\nledger = "spent.jsonl"\nkeys = "keys"\n'
            f'coordinator = "{pinned}"\n'
            "[budget]\nepsilon = 1e3\ndelta = 1e-6\n"
            f"[accept]\nask = false\n{settings}\n"
            f'[data."{private}"]\nfile = "data.npy"\nshape = {json.dumps(values.shape)}\n'
            "within = 0.1\n"
        )
    return names


def owners(size):
    """A tenth of so many owners end a run over sockets, in threads of one process."""
    problem, data = problem_of(max(size // 10, 2))
    plan = planned(problem, 3)
    with tempfile.TemporaryDirectory() as folder:
        names = folders_of(Path(folder), data, "")
        result, by_owner = together(Path(folder), plan, names, timeout=600.0)
    over = all(result.status == "completed" for result in by_owner.values())
    return "" if charged(result, 3) and over and len(by_owner) == len(names) else "WRONG"


def soak(size):
    """A tenth of so many runs of three owners over sockets, with the same ledgers, leave nothing.

    Objects, open files and threads of both sides are counted. Replies leave at fixed times.
    """
    problem, data = problem_of(3)
    plan = planned(problem, 5)
    with tempfile.TemporaryDirectory() as folder:
        names = folders_of(Path(folder), data, "reply_after = 0.05")

        def run():
            result, _ = together(Path(folder), plan, names, timeout=600.0)
            if not charged(result, 5):
                raise AssertionError(f"the ledger has {result.ledger}")

        return grown(run, max(size // 10, 2))


def large(size):
    """A public matrix of some megabytes crosses to two owners, with the bits of one process."""
    n = max(int(np.sqrt(size * 630)), 8)  # 5 MB at the full size
    x, A, data = cp.Variable(n, name="x"), np.cos(np.arange(n * n)).reshape(n, n) / n, {}
    made = []
    for k in range(2):
        d = dp.Private(shape=n, name=f"d{k}", adjacency=dp.Within(0.1))
        made.append(
            dp.Agent(cp.Minimize(cp.sum_squares(A @ x - d)), [cp.abs(x) <= 2], name=f"a{k}")
        )
        data[f"d{k}"] = np.cos(np.arange(n) + k)
    plan = planned(dp.Problem(made), 2)
    near = plan.run(data=data, seed=1)
    far = plan.run(executor=dp.LoopbackOwners(plan, data=data, seed=1))
    same = np.array_equal(near.solution["x"], far.solution["x"])
    return "" if charged(far, 2) and same else "WRONG"


TRIALS = (plans, rounds, agents, owners, soak, large)


def campaign(size, seed):
    """Run every trial at a size."""
    tally = Tally()
    for trial in TRIALS:
        before = time.process_time()
        fault = trial(size)
        seconds = time.process_time() - before
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
        tally.note(f"{trial.__name__}: {seconds:.0f} s of the processor, {peak} MiB so far")
        tally.add(f"{trial.__name__} {'done' if not fault else fault.split()[0]}",
                  f"{trial.__name__} at size {size}: {fault}" if fault else None)  # fmt: skip
    return tally
