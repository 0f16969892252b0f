"""Folders of owners and a coordinator as on machines of their own: keys, policies, data files."""

import json
import os
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

import dpcvx as dp
from dpcvx.owners import keys
from dpcvx.owners.link import SocketHub
from dpcvx.owners.policy import model_plan

ROOT = Path(dp.__file__).parents[1]
MODEL = """
import cvxpy as cp, dpcvx as dp
tie = cp.Variable(2, name="tie")
agents = []
for k, name in enumerate(("north", "south", "west")):
    gen = cp.Variable(3, name=f"gen {name}", nonneg=True)
    load = dp.Private(shape=3, name=f"load of {name}", adjacency=dp.Within(0.01))
    cost = cp.sum_squares(gen + cp.hstack([tie, cp.sum(tie)]) * (k - 1) - load)
    cost += 0.1 * cp.sum_squares(gen) + 0.1 * cp.sum_squares(tie)
    agents.append(dp.Agent(cp.Minimize(cost), [gen <= 1.5, cp.abs(tie) <= 0.4], name=name))
problem = dp.Problem(agents)
plan = problem.plan(METHOD, epsilon=1.0, delta=1e-6, ROUNDSrelease="each_step")
"""
NAMES = ("north", "south", "west")
LOADS = {name: 0.31415926 + np.arange(3) / 7 + k / 3 for k, name in enumerate(NAMES)}


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def write(place, method="dp.LinearizedADMM(penalty=2.0)", rounds=6, accept=""):
    """All folders of a federation below one: ``authority``, ``coordinator`` and one per owner."""
    authority = place / "authority"
    keys.make_authority(authority)
    for name in ("coordinator", *NAMES):
        folder = place / name / "keys"
        request = keys.make_request(folder, name)
        keys.sign_request(authority, request)
        (folder / "ca.crt").write_bytes((authority / "ca.crt").read_bytes())
    said = f"rounds={rounds}, " if rounds else ""
    model = MODEL.replace("METHOD", method).replace("ROUNDS", said)
    (place / "coordinator" / "model.py").write_text(model)
    pinned = keys.fingerprint_of((place / "coordinator/keys/coordinator.crt").read_bytes())
    for name in NAMES:
        np.savetxt(place / name / "load.csv", LOADS[name], fmt="%.17g")
        (place / name / "owner.toml").write_text(
            f"agent = {json.dumps(name)}\n"
            'ledger = "spent.jsonl"\nkeys = "keys"\n'
            f'coordinator = "{pinned}"\n'
            "[budget]\nepsilon = 1.0\ndelta = 1e-6\n"
            f"[accept]\nask = false\n{accept}\n"
            f'[data."load of {name}"]\nfile = "load.csv"\nshape = [3]\nwithin = 0.01\n'
        )
    return place


def command(*arguments, before=(), program=("-m", "dpcvx"), **settings):
    """A process of the command ``dpcvx``, or of another program, behind another command."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"}
    return subprocess.Popen(
        [*before, sys.executable, *program, *map(str, arguments)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **settings,
    )


def gathered(*arguments):
    """A hub whose owners are there; closed if they do not come."""
    hub = SocketHub(*arguments)
    try:
        hub.gather()
    except BaseException:
        hub.close()
        raise
    return hub


def together(place, plan, names=NAMES, timeout=20.0, log=None):
    """Run coordinator and owners in threads of this process; results of both sides."""
    port = free_port()
    executor = dp.RemoteOwners(
        f"127.0.0.1:{port}",
        keys=place / "coordinator" / "keys",
        timeout=timeout,
        verbose=False,
        log=log,
    )
    with ThreadPoolExecutor(len(names) + 1) as pool:
        joined = {
            name: pool.submit(
                dp.Owner(place / name / "owner.toml").join,
                f"wss://127.0.0.1:{port}", seed=1, timeout=timeout, verbose=False,
            )
            for name in names
        }  # fmt: skip
        result = pool.submit(plan.run, executor=executor)
        return result.result(), {name: owner.result() for name, owner in joined.items()}


def plan_of(place):
    """The coordinator's plan, without data."""
    return model_plan(place / "coordinator" / "model.py")


def expected(plan, seed=1):
    """The same in one process, with all data."""
    data = {f"load of {name}": LOADS[name] for name in NAMES}
    return plan.run(data=data, seed=seed, executor=dp.Serial())
