"""How runs end on random models, sensible or not: nothing infinite under a status that is none.

Objectives may be flat, unbounded below, steep or bent downwards; sets open, tight or disjoint; step
sizes and penalties lie between a thousandth and a thousand times the usual.
"""

import warnings

import cvxpy as cp
import numpy as np

import dpcvx as dp
from tests.campaigns.tally import Tally

FULL = 2000
AGGREGATES = ("mixing", "mean", "pair", "range")


def campaign(size: int, seed: int) -> Tally:
    """Random runs; faults: errors raised raw, and what no status tells: no number, disagreement."""
    tally = Tally()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for trial in range(size):
            rng = np.random.default_rng([seed, trial])
            name, method, coupled = _method(rng, trial)
            try:
                plan, apart = _plan(rng, method, coupled)
                tolerance = None if rng.uniform() < 0.5 else 1e-3
                result = plan.run(seed=trial, tolerance=tolerance, record=True)
            except dp.DpcvxError as refusal:
                tally.add(f"refused ({type(refusal).__name__})")
                continue
            except Exception as error:
                fault = f"trial {trial} ({name}): raised {type(error).__name__}: {error}"
                tally.add(f"raised {type(error).__name__}", fault)
                continue
            tally.add(result.status.name.lower(), _fault(trial, name, plan, result, apart))
    return tally


def _method(rng, trial):
    """A method with random numbers, and whether it takes a coupling."""

    def around(value):
        return float(value * 10 ** rng.uniform(-3, 3))

    perturb = ("objective", "output", "projected_output")
    make = {
        **{
            f"linearized, {p}": lambda p=p: dp.LinearizedADMM(
                around(1), around(0.1), int(rng.integers(1, 4)), p
            )
            for p in perturb
        },
        "ADMM": lambda: dp.ADMM(around(1)),
        "ADMM, balanced": lambda: dp.ADMM(dp.penalties.ResidualBalancing(around(1))),
        "decentralized ADMM": lambda: dp.DecentralizedADMM(
            "ring", step=1 / around(10), penalty=around(1)
        ),
        "decentralized ADMM, exact": lambda: dp.DecentralizedADMM(
            "ring", step=1 / around(10), penalty=around(1), exact=True
        ),
        **{
            f"decentralized gradient, {a}": lambda a=a: dp.DecentralizedGradient(
                "complete", around(0.1), a
            )
            for a in AGGREGATES
        },
        "DPP2": lambda: dp.DPP2("ring", alpha := around(0.1), alpha * rng.uniform(0, 0.9)),
        "gradient tracking": lambda: dp.GradientTracking("ring", around(0.1)),
        "primal-dual": lambda: dp.PrimalDual("ring", around(0.1), around(1), around(1)),
        "mean gradient": lambda: dp.FederatedAveraging(around(0.1)),
        "mean gradient, secret": lambda: dp.FederatedAveraging(around(0.1), dp.SecretSharing(1e4)),
        "resource ADMM": lambda: dp.ResourceADMM(around(1), around(1), 1 / around(10)),
        "resource ADMM, exact": lambda: dp.ResourceADMM(around(1), step=1 / around(10), exact=True),
        "gradient ADMM": lambda: dp.GradientADMM(around(1), around(0.1)),
    }
    name = sorted(make)[trial % len(make)]
    return name, make[name](), name.startswith(("resource", "gradient ADMM"))


def _plan(rng, method, coupled):
    """A plan of a random model, and whether its agents' sets are apart."""
    n, count = int(rng.integers(1, 4)), 3
    x = cp.Variable(n, name="x")
    blocks = isinstance(method, dp.GradientADMM)
    apart = not coupled and rng.uniform() < 0.25
    scale = 10 ** rng.uniform(-3, 3)
    agents, own = [], []
    for k in range(count):
        v = cp.Variable(n, name=f"x{k}") if coupled and not (blocks and k < count - 1) else x
        own.append(v)
        d = dp.Private(rng.normal(size=n), name=f"d{k}", adjacency=dp.Within(0.1))
        data = rng.normal(size=n) if blocks and k == count - 1 else d
        kind = rng.choice(["square", "square", "linear", "part", "bent"])
        if kind == "square":
            cost = cp.sum_squares(scale * v - data)
        elif kind == "linear":
            cost = scale * (data @ v)
        elif kind == "part":
            cost = cp.square(scale * v[0] - 1) + data @ v
        else:
            cost = cp.quad_form(v, -scale * np.eye(n), assume_PSD=True) + data @ v
        sets = [[], [cp.abs(v) <= 10], [cp.sum(v) == 1, v >= -5]][rng.integers(3)]
        agents.append(dp.Agent(cp.Minimize(cost), [v == k] if apart else sets, name=f"a{k}"))
    coupling = []
    if blocks:
        coupling = [x == own[-1]]
    elif coupled:
        coupling = [sum(own) == rng.normal(size=n)]
    problem = dp.Problem(agents, coupling=coupling)
    noise = rng.choice(["none", "each_step", "once"])
    rounds = int(rng.choice([3, 40, 150]))
    if noise == "none":
        return problem.plan(method, mechanism=None, rounds=rounds), apart
    budget = {"epsilon": float(10 ** rng.uniform(-1, 3)), "delta": 1e-6}
    return problem.plan(method, rounds=rounds, release=str(noise), **budget), apart


def _fault(trial, name, plan, result, apart):
    """What is wrong with an ending; None if it is true."""
    history = result.history
    dual = [d for t, d in zip(history.rounds, history.dual, strict=True) if t > 1]
    numbers = [*result.last.vectors, *result.average.vectors, history.primal, dual]
    numbers += [[result.consensus_residual, result.coupling_residual], history.mismatch]
    numbers += [result.solution[v] for v in plan.problem.variables()]
    where = f"trial {trial} ({name}): {result.status.name}"
    if result.status in (dp.Status.COMPLETED, dp.Status.CONVERGED, dp.Status.BUDGET):
        if not all(np.isfinite(values).all() for values in numbers):
            return f"{where}, values that are no numbers"
        if max(np.abs(values).max(initial=0.0) for values in result.last.vectors) > 1e100:
            return f"{where}, values beyond all bounds"
    if result.status is dp.Status.CONVERGED and (apart or result.last.mismatch > 0.1):
        return f"{where}, and agents are {result.last.mismatch:.3g} apart"
    again = plan.replay(result.transcript)
    if again.status is not result.status or again.rounds != result.rounds:
        return f"{where} after {result.rounds}, replayed {again.status.name} after {again.rounds}"
    return None
