"""Runs whose solvers fail in one of ten solves: nothing raw, nothing undefined, same spending.

A trial is a run. Solves of Clarabel, DAQP and SCS fail, stop early, call the program infeasible,
return what is no number or too short, state honestly that they are inaccurate, raise, or panic.
"""

import random
import threading
from collections.abc import Callable
from contextlib import ExitStack
from types import SimpleNamespace
from unittest import mock

import clarabel
import cvxpy as cp
import daqp
import numpy as np
import scs

import dpcvx as dp
from dpcvx.solvers import conic, libraries
from tests.campaigns.tally import Tally

FULL = 400
RATE = 0.1
KINDS = (
    "failed", "limit", "infeasible", "nan", "one nan", "infinite", "inaccurate", "raises",
    "raises in update", "panics", "short",
)  # fmt: skip


class Panic(BaseException):
    """As compiled code raises it."""


class Faults:
    """One kind of fault, in one of ten solves; safe to share between threads."""

    def __init__(self, kind: str, seed: int, rate: float = RATE) -> None:
        self.kind, self.made = kind, 0
        self._rate, self._random, self._lock = rate, random.Random(seed), threading.Lock()

    def due(self) -> bool:
        with self._lock:
            due = self._random.random() < self._rate
            self.made += due
            return due

    def raised(self, place: str) -> None:
        """Raise here, if that is the kind."""
        if self.kind in ("raises", "raises in update", "panics"):
            if (self.kind == "raises in update") == (place == "update") and self.due():
                raise Panic("panicked") if self.kind == "panics" else RuntimeError("failed")

    def bends(self) -> bool:
        """Whether an answer that was found is to have a fault."""
        return not self.kind.startswith(("raises", "panics")) and self.due()

    def bent(self, x: np.ndarray) -> np.ndarray:
        """An answer with this fault."""
        x = np.array(x)
        if self.kind == "short":
            return x[:-1]
        if self.kind in ("nan", "failed"):
            return np.full(x.size, np.nan)
        x[:1] = {"one nan": np.nan, "infinite": np.inf}.get(self.kind, x[0] if x.size else 0.0)
        return x


class Clarabel:
    """Clarabel's solver with faults."""

    def __init__(self, faults: Faults, *arguments) -> None:
        self._faults, self._solver = faults, clarabel.DefaultSolver(*arguments)

    def update(self, **changed) -> None:
        self._faults.raised("update")
        self._solver.update(**changed)

    def solve(self):
        self._faults.raised("solve")
        found = self._solver.solve()
        if not self._faults.bends():
            return found
        kind = self._faults.kind
        status = {"infeasible": "PrimalInfeasible", "limit": "MaxIterations"}.get(kind, "Solved")
        off = {"limit": 1e-2, "infeasible": 1.0, "failed": 1.0, "inaccurate": 1e-8}.get(kind, 0.0)
        return SimpleNamespace(
            x=self._faults.bent(found.x).tolist(),
            obj_val=found.obj_val,
            obj_val_dual=found.obj_val_dual - off,
            r_prim=found.r_prim + off,
            r_dual=found.r_dual,
            status=status,
        )


class Daqp:
    """DAQP's solver with faults."""

    def __init__(self, faults: Faults) -> None:
        object.__setattr__(self, "_faults", faults)
        object.__setattr__(self, "_model", daqp.Model())

    def __setattr__(self, name, value) -> None:
        setattr(self._model, name, value)

    def setup(self, *arguments):
        return self._model.setup(*arguments)

    def update(self, **changed):
        self._faults.raised("update")
        return self._model.update(**changed)

    def solve(self):
        self._faults.raised("solve")
        z, value, flag, info = self._model.solve()
        if not self._faults.bends():
            return z, value, flag, info
        kind = self._faults.kind
        flag = {"failed": -2, "limit": -4, "infeasible": -1}.get(kind, flag)
        z = z + 1e-4 if kind == "inaccurate" else self._faults.bent(z)
        return z, value, flag, info


SOLVER = scs.SCS  # also while `faulty` replaces it


class Scs:
    """SCS with faults."""

    def __init__(self, faults: Faults, *arguments, **options) -> None:
        self._faults, self._solver = faults, SOLVER(*arguments, **options)

    def solve(self):
        self._faults.raised("solve")
        found = self._solver.solve()
        if not self._faults.bends():
            return found
        kind = self._faults.kind
        failed = kind in ("failed", "limit", "infeasible", "inaccurate")
        status = "failure" if failed else found["info"]["status"]
        return found | {"x": self._faults.bent(found["x"]), "info": {"status": status}}


def faulty(faults: Faults) -> ExitStack:
    """While it is open, solvers have these faults."""
    stack = ExitStack()
    own = {name: getattr(clarabel, name) for name in dir(clarabel) if name[0] != "_"}
    own["DefaultSolver"] = lambda *arguments: Clarabel(faults, *arguments)
    replaced = [
        (libraries, "clarabel", SimpleNamespace(**own)),
        (scs, "SCS", lambda *a, **k: Scs(faults, *a, **k)),
        (libraries, "daqp", SimpleNamespace(Model=lambda: Daqp(faults))),
        (conic, "newton_for", lambda *_: None),  # its answers would need no other solver
    ]
    for module, name, value in replaced:
        stack.enter_context(mock.patch.object(module, name, value))
    return stack


def _problem(kind: str) -> dp.Problem:
    """Two agents that share x; the sets need the conic solver, or the active set."""
    x = cp.Variable(3, name="x")
    agents = []
    for k, name in enumerate(("ann", "bob")):
        d = dp.Private(np.arange(3.0) - k, name=f"d{k}", adjacency=dp.Within(0.1))
        y = cp.Variable(2, name=f"y{k}")
        A = np.array([[1.0, 2, -1, 1, 0], [0, 1, 1, -2, 1], [1, 0, 1, 1, 1]])
        rows = A @ cp.hstack([x, y])
        cone = {
            "cone": [cp.norm(rows[:2]) <= 1 + 0.2 * rows[2], cp.norm(cp.hstack([x, y])) <= 4],
            "polyhedron": [rows <= 2, rows >= -3, cp.abs(cp.hstack([x, y])) <= 4],
        }[kind]
        agents.append(
            dp.Agent(cp.Minimize(cp.sum_squares(x - d) + cp.sum_squares(y)), cone, name=name)
        )
    return dp.Problem(agents)


def plans() -> dict[str, dp.Plan]:
    """Methods that solve in every way, made by solvers without faults."""
    total = {"rounds": 5, "epsilon": 1.0, "delta": 1e-6}
    methods = {
        "objective": (dp.LinearizedADMM(penalty=1.0), {}),
        "output": (dp.LinearizedADMM(penalty=1.0, perturb="output"), {}),
        "projected": (dp.LinearizedADMM(penalty=1.0, perturb="projected_output"), {}),
        "asserted": (dp.LinearizedADMM(penalty=1.0, perturb="output", output_sensitivity=0.1), {}),
        "once": (dp.ADMM(penalty=1.0), {"release": "once"}),
    }
    return {
        f"{name}, {kind}": _problem(kind).plan(method, **total, **more)
        for kind in ("cone", "polyhedron")
        for name, (method, more) in methods.items()
    }


EXECUTORS: tuple[Callable, ...] = (dp.Serial, dp.Threads)


def campaign(size: int, seed: int) -> Tally:
    """`size` runs: every kind of fault in every plan, one after the other."""
    tally, made = Tally(), plans()
    usual: dict[str, dp.Result] = {}
    names = list(made)
    for number in range(size):
        kind, name = KINDS[number % len(KINDS)], names[(number // len(KINDS) + number) % len(names)]
        executor = EXECUTORS[(number // 7) % len(EXECUTORS)]
        faults = Faults(kind, 1000 * seed + number)
        if name not in usual:
            usual[name] = made[name].run(seed=0, verbose=False)
        where = f"run {number} of seed {seed}: {kind}, {name}, {executor.__name__}"
        try:
            with faulty(faults):
                result = made[name].run(seed=0, verbose=False, executor=executor())
        except (Exception, Panic) as error:
            tally.add("raw", f"{where}: {type(error).__name__}")
            continue
        values = np.concatenate([v for s in (result.last, result.average) for v in s.vectors])
        expected = usual[name]
        broken = [
            "a value is not finite" if not np.isfinite(values).all() else "",
            "another guarantee" if result.guarantee != expected.guarantee else "",
            "other spending" if str(result.ledger) != str(expected.ledger) else "",
            "moved without a fault" if not _alike(result, expected, faults) else "",
        ]
        fault = ", ".join(text for text in broken if text)
        status = f"{result.status.name.lower()}, {'faults' if faults.made else 'none due'}"
        tally.add(status, f"{where}: {fault}" if fault else None)
    return tally


def _alike(result: dp.Result, expected: dp.Result, faults: Faults) -> bool:
    """Whether runs agree, where no fault was made."""
    pairs = zip(result.last.vectors, expected.last.vectors, strict=True)
    return faults.made > 0 or all(np.array_equal(a, b) for a, b in pairs)
