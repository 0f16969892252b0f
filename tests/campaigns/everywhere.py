"""All methods on all instances, on Processes, Dask and MPI, next to one process.

Every method that a plan takes for an instance, with releases in each step and once. Two workers and
two ranks give results, ledgers, files and transcripts that are those of one process bit for bit.
A trial is one instance, one method, one kind of release, and one engine.
"""

import contextlib
import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import dpcvx as dp
from dpcvx.testing.instances import INSTANCES
from tests.campaigns.tally import Tally
from tests.instances import whole
from tests.run.test_resume import book, same

# Plans of a method: more than there are.
FULL = 100
_ROOT = Path(__file__).parents[2]
_SHARING = dp.SecretSharing(limit=50.0)
METHODS = {
    "gradients": dp.LinearizedADMM(penalty=2.0, local_updates=2),
    "outputs": dp.LinearizedADMM(penalty=2.0, perturb="output"),
    "projected outputs": dp.LinearizedADMM(penalty=2.0, perturb="projected_output"),
    "exact": dp.ADMM(penalty=2.0),
    "mean": dp.FederatedAveraging(step=0.1),
    "mean in shares": dp.FederatedAveraging(step=0.1, sharing=_SHARING),
    "summed": dp.FederatedGradient(step=0.1),
    "in shares": dp.FederatedGradient(step=0.1, sharing=_SHARING),
    "central": dp.OneShot(),
    "central in shares": dp.OneShot(sharing=_SHARING),
    "neighbors": dp.DecentralizedGradient("ring"),
    "neighbors exactly": dp.DecentralizedADMM("path", step=0.01, penalty=10.0),
    "tracking": dp.GradientTracking("ring", 0.1),
    "primal-dual": dp.PrimalDual(),
    "resources": dp.ResourceADMM(penalty=0.5),
    "resources in shares": dp.ResourceADMM(penalty=0.5, sharing=_SHARING),
    "coupled": dp.GradientADMM(penalty=2.0, step=0.02),
    "local minima": dp.DPP2("ring", 0.3, 0.1),
}


def plans(kind: str, seed: int) -> Iterator[tuple[str, dp.Plan]]:
    """All plans of a method, with what they are."""
    method, names = METHODS[kind], [*INSTANCES]
    random.Random(f"{kind} {seed}").shuffle(names)
    for name, release in itertools.product(names, ("each_step", "once")):
        rounds = {} if method.fixed_rounds else {"rounds": 3}
        budget = {"epsilon": 1.0, "delta": 1e-6, "release": release}
        with contextlib.suppress(dp.ModelError, dp.PrivacyError):
            plan = whole(INSTANCES[name])().problem.plan(method, **budget, **rounds)
            yield f"{name}, {kind}, {release}", plan


def compared(
    make: Callable[[], object], size: int, seed: int, methods: Sequence[str]
) -> list[tuple[str, str | None]]:
    """What was run, with what was not as in one process: so many plans of these methods."""
    found = []
    cases = [case for kind in methods for case in itertools.islice(plans(kind, seed), size)]
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(action="ignore"):
        for k, (what, plan) in enumerate(cases):
            one, two = (Path(folder) / f"{k}{side}" for side in "ab")
            settings = {"seed": 3, "record": True, "verbose": False}
            fault = None
            try:
                expected = plan.run(ledger=one, executor=dp.Serial(), **settings)
                result = plan.run(ledger=two, executor=make(), **settings)
                same(expected, result)
                assert book(one.read_bytes()) == book(two.read_bytes()), "another file"
                same(expected, plan.run(executor=make(), **settings))
                same(expected, plan.replay(result.transcript))
            except Exception as error:
                fault = f"{type(error).__name__}: {str(error)[:200]}"
            found.append((what, fault))
    return found


@contextlib.contextmanager
def _dask() -> Iterator[Callable[[], object]]:
    from distributed import Client, LocalCluster

    with (
        warnings.catch_warnings(action="ignore"),
        LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50
        ) as cluster,
        Client(cluster) as client,
    ):
        yield lambda: dp.Dask(client)


def _on_ranks(size: int, seed: int, methods: Sequence[str]) -> list[tuple[str, str | None]]:
    launcher = Path(sys.executable).with_name("mpiexec")
    script = Path(__file__).with_name("on_ranks.py")
    command = [launcher, "-n", 2, sys.executable, "-m", "dpcvx.mpi", script, "everywhere"]
    done = subprocess.run(
        [*map(str, [*command, size, seed, json.dumps(methods)])],
        cwd=_ROOT,
        env=os.environ | {"PYTHONPATH": str(_ROOT)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def _on_processes(size: int, seed: int, methods: Sequence[str]) -> list[tuple[str, str | None]]:
    return compared(partial(dp.Processes, 2), size, seed, methods)


def _on_dask(size: int, seed: int, methods: Sequence[str]) -> list[tuple[str, str | None]]:
    with _dask() as make:
        return compared(make, size, seed, methods)


ENGINES = {"Processes": _on_processes, "Dask": _on_dask, "MPI": _on_ranks}


def campaign(size: int, seed: int, share: int = 1, engines: Sequence[str] = (*ENGINES,)) -> Tally:
    """So many plans of every method, or of one in `share` of them, on each of these engines."""
    tally = Tally()
    for engine in engines:
        methods = [*METHODS][[*ENGINES].index(engine) % share :: share]
        for what, fault in ENGINES[engine](size, seed, methods):
            tally.add(f"as one process, {engine}", fault and f"{engine}, {what}: {fault}")
    return tally
