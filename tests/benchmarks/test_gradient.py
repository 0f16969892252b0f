"""What the package adds to logistic regression on images: time of a gradient, peak of memory.

The reduced size runs everywhere; ``DPCVX_BENCHMARK=full`` takes MNIST's 60 000 x 784 x 10, which
needs 2 GB and a minute.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp

ROOT = Path(__file__).parents[2]
FULL = os.environ.get("DPCVX_BENCHMARK") == "full"
RECORDS = 60_000 if FULL else 6_000
FEATURES, CLASSES, REPEATS = 784, 10, 15

# Run in a process of its own. What is resident before the user's data exist is the interpreter's
# and the libraries', all of which a small problem has loaded; the rest, up to the highest mark
# that the kernel ever saw, is the price of the data.
MEMORY = """
import json, os, sys
import numpy as np
import dpcvx as dp
from tests.benchmarks.test_gradient import declared, made_up

def solved(n):
    X, Y = made_up(n)
    method = dp.LinearizedADMM(penalty=1.0, step=0.1)
    plan = declared(X, Y).plan(method, rounds=3, epsilon=1.0, delta=1e-6)
    plan.run(seed=0, verbose=False)
    return X.nbytes + Y.nbytes

solved(50)
with open("/proc/self/statm") as file:
    before = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
data = solved(int(sys.argv[1]))
# Not ru_maxrss, which a new process inherits from the one that started it.
with open("/proc/self/status") as file:
    peak = next(1024 * int(line.split()[1]) for line in file if line.startswith("VmHWM"))
print(json.dumps({"data": data, "before": before, "peak": peak}))
"""


def made_up(count):
    """Records of norm one and one-hot labels, made without a second array of their size."""
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(count, FEATURES))
    X /= np.sqrt(np.einsum("ij,ij->i", X, X))[:, None]
    Y = np.zeros((count, CLASSES))
    Y[np.arange(count), rng.integers(CLASSES, size=count)] = 1.0
    return X, Y


def declared(X, Y):
    """All records with one agent."""
    W = cp.Variable((FEATURES, CLASSES), name="W")
    person = dict(relation="add_or_remove_one", records="person")
    features = dp.Private(X, name="features", adjacency=dp.Rows(1.0, **person))
    labels = dp.Private(Y, name="labels", adjacency=dp.Rows(1.0, **person), nonneg=True)
    scores = features @ W
    loss = cp.sum(cp.log_sum_exp(scores, axis=1)) - cp.sum(cp.multiply(labels, scores))
    return dp.Problem([dp.Agent(cp.Minimize(loss / X.shape[0]), [cp.abs(W) <= 1], name="all")])


@pytest.mark.timed
def test_a_gradient_takes_at_most_one_and_a_half_times_numpys_time():
    X, Y = made_up(RECORDS)
    plan = declared(X, Y).plan(dp.LinearizedADMM(), mechanism=None, rounds=1)
    bound = plan.program.agents[0].form.bind([X.ravel(order="F"), Y.ravel(order="F")])

    def by_hand(x):
        scores = X @ x.reshape(FEATURES, CLASSES, order="F")
        odds = np.exp(scores - scores.max(axis=1, keepdims=True))
        residual = odds / odds.sum(axis=1, keepdims=True) - Y
        return (X.T @ residual / RECORDS).ravel(order="F")

    x = 0.1 * np.random.default_rng(1).normal(size=FEATURES * CLASSES)
    np.testing.assert_allclose(bound.gradient(x), by_hand(x), atol=1e-14)
    times = {bound.gradient: [], by_hand: []}
    for _ in range(REPEATS):  # in turns, so that another job's load falls on both
        for call, seconds in times.items():
            started = time.perf_counter()
            call(x)
            seconds.append(time.perf_counter() - started)
    ours, reference = (statistics.median(seconds) for seconds in times.values())
    print(f"{RECORDS} records: {1e3 * ours:.1f} ms, {ours / reference:.2f} times numpy")
    assert ours <= 1.5 * reference


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_the_package_takes_at_most_twice_the_memory_of_the_data():
    command = [sys.executable, "-c", MEMORY, str(RECORDS)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    # The user's own arrays are in the peak as well.
    ratio = (found["peak"] - found["before"]) / found["data"] - 1
    size = found["data"] / 2**20
    print(f"{RECORDS} records: {size:.0f} MB of data, the package takes {ratio:.2f} times that")
    assert ratio <= 2.0
