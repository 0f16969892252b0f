"""The plans that are recorded: methods on instances, with several releases."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

import dpcvx as dp
from dpcvx.testing.instances import INSTANCES, equal_clinics

SHARING = dp.SecretSharing(limit=50.0)
METHODS: dict[str, Callable[[], Any]] = {
    "chosen": lambda: None,
    "ADMM": lambda: dp.ADMM(penalty=2.0),
    "OneShot": lambda: dp.OneShot(),
    "OneShot, secure aggregation": lambda: dp.OneShot(sharing=SHARING),
    "LinearizedADMM": lambda: dp.LinearizedADMM(),
    "LinearizedADMM, 3 local updates": lambda: dp.LinearizedADMM(
        penalty=5.0, step=dp.steps.Sqrt(), local_updates=3
    ),
    "LinearizedADMM, output": lambda: dp.LinearizedADMM(penalty=5.0, perturb="output"),
    "FederatedGradient": lambda: dp.FederatedGradient(),
    "FederatedGradient, secure aggregation": lambda: dp.FederatedGradient(
        step=0.1, sharing=SHARING
    ),
    "FederatedAveraging": lambda: dp.FederatedAveraging(),
    "ResourceADMM": lambda: dp.ResourceADMM(),
    "GradientADMM": lambda: dp.GradientADMM(penalty=2.0, step=0.02),
    "DecentralizedADMM": lambda: dp.DecentralizedADMM("ring"),
    "DecentralizedGradient": lambda: dp.DecentralizedGradient("ring"),
    "PrimalDual": lambda: dp.PrimalDual("ring"),
    "DPP2": lambda: dp.DPP2("ring"),
    "GradientTracking": lambda: dp.GradientTracking("ring"),
}


def clients(
    count: int,
    loss: Callable[[Any], Any] = cp.logistic,
    *,
    clip: bool = False,
    free: bool = False,
    sparse: bool = False,
) -> list[dp.Agent]:
    """Agents that differ in names and data only, over records of their own."""
    made = np.random.default_rng(0)
    w = cp.Variable(3, name="w")
    agents = []
    for k in range(count):
        values = made.normal(size=(20, 3)) / 3
        if sparse:
            values = sp.csr_array(np.where(made.random(values.shape) < 0.4, values, 0.0))
        X = dp.Private(
            values, adjacency=dp.Rows(4.0 if sparse else 2.0, clip_rows=clip), name=f"X{k}"
        )
        cost = cp.sum(loss(-(X @ w))) / 20 + 0.05 * cp.sum_squares(w)
        held = [] if free else [cp.norm(w) <= 2]
        agents.append(dp.Agent(cp.Minimize(cost), held, name=f"client{k}"))
    return agents


def _shipped(build: Callable[[], Any]) -> Callable[[], dp.Problem]:
    def built() -> dp.Problem:
        problem = build().problem
        return dp.Problem(problem.agents, coupling=problem.coupling)

    return built


PROBLEMS: dict[str, Callable[[], dp.Problem]] = {
    **{name: _shipped(build) for name, build in INSTANCES.items()},
    "equal clinics": _shipped(equal_clinics),
    "one client": lambda: dp.Problem(clients(1)),
    "clients, clipped": lambda: dp.Problem(clients(4, clip=True, free=True)),
    "clients, hinge": lambda: dp.Problem(clients(3, lambda u: cp.pos(1 + u))),
    "clients, sparse": lambda: dp.Problem(clients(3, clip=True, sparse=True)),
}


class Release(NamedTuple):
    """How values are released: the noise, its budget, and when."""

    mechanism: str | None
    delta: float | None
    when: str


RELEASES = {
    "gaussian": Release("gaussian", 1e-5, "each_step"),
    "laplace": Release("laplace", 0.0, "each_step"),
    "once": Release("laplace", 0.0, "once"),
    "no noise": Release(None, None, "each_step"),
}


class Case(NamedTuple):
    """One plan: a method on a problem, with a release."""

    method: str
    problem: str
    release: str

    def __str__(self) -> str:
        return " | ".join(self)

    def plan(self) -> dp.Plan:
        """The plan, of six rounds; raises where the package refuses it."""
        method, release = METHODS[self.method](), RELEASES[self.release]
        arguments: dict[str, Any] = {"release": release.when}
        if method is not None and not method.fixed_rounds:
            arguments["rounds"] = 6
        if release.mechanism is None:
            return PROBLEMS[self.problem]().plan(method, mechanism=None, **arguments)
        return PROBLEMS[self.problem]().plan(
            method, mechanism=release.mechanism, epsilon=1.0, delta=release.delta, **arguments
        )


def cases() -> Iterator[Case]:
    """All combinations, in a fixed order."""
    for method in METHODS:
        for problem in PROBLEMS:
            for release in RELEASES:
                yield Case(method, problem, release)


def selected() -> list[Case]:
    """The cases that the test suite plans: a method for each problem and release, spread evenly."""
    methods = list(METHODS)
    return [
        Case(methods[(3 * p + 5 * r) % len(methods)], problem, release)
        for p, problem in enumerate(PROBLEMS)
        for r, release in enumerate(RELEASES)
    ]
