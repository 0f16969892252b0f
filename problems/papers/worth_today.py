"""``python -m problems.papers.worth_today``: compare each paper's method with dpcvx, on its task.

There are three rows per paper, for one budget. "As published": the paper's iteration and noise,
scaled so that the paper's own statement gives the budget. "Accounted": this iteration with noise
that dpcvx calibrates. "Default": the proposal of `Problem.plan`. Every row has the total epsilon
that dpcvx derives; for "as published", it differs from the paper's statement.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

import dpcvx as dp
from dpcvx.privacy.accounting import Composition, classical_gaussian_multiplier, ryu_kim_claim
from dpcvx.privacy.last_iterate import Mixture
from dpcvx.privacy.two_block import local_zcdp

from ..baselines import at_start
from ..census import printed as census
from ..census.measures import Measures
from ..census.methods import ZETA, D
from ..census.printed import ALGORITHM_1
from ..census.records import made_records, shared_out
from ..census.study import census as census_problem
from ..commands import count, in_words
from ..elastic_net.printed import corollary_6_2, corollary_8_3, largest_order
from ..elastic_net.setting import Setting
from ..elastic_net.study import elastic_net, losses, optimum, regularizer
from ..elastic_net.users import made_users
from ..labeled import data_of
from ..nonconvex_classification import experiment as nonconvex
from ..nonconvex_classification import printed as dpp2
from ..nonconvex_classification.experiment import Contest, Curve, Size
from ..nonconvex_classification.methods import METHODS
from ..nonconvex_classification.theory import claimed_epsilon, epsilon
from ..nonconvex_classification.tuned import CHOICES
from ..nonconvex_classification.tuning import Arrays
from ..power_flow.study import power_flow
from . import entry

__all__ = ["PAPERS", "Row", "table"]

Floats = NDArray[np.float64]
Kind = Literal["as published", "accounted", "default"]
EPSILON, DELTA = 1.0, 1e-6


@dataclass(frozen=True)
class Row:
    """A method on a paper's task.

    Attributes
    ----------
    paper, task : str
        Name of the paper; task with the measured quantity.
    kind : {"as published", "accounted", "default"}
        Kind of the row, see the module.
    method : str
        Name of the method.
    stated : float or None
        Total epsilon by the paper's own statement.
    epsilon, delta : float
        Total that the package derives for this run.
    start : float
        Measured quantity at the public initial point, without any data.
    values : tuple of float
        Measured quantity, by run. Not private.
    """

    paper: str
    task: str
    kind: Kind
    method: str
    stated: float | None
    epsilon: float
    delta: float
    start: float
    values: tuple[float, ...]


def _name(plan: dp.Plan) -> str:
    """Return the code that a user writes for the method."""
    return f"dp.{type(plan.algorithm).__name__}"


# Ryu and Kim --------------------------------------------------------------------------------------


def ryu_kim(runs: int, short: bool) -> Iterator[Row]:
    """Yield rows of ObjG on the power flow of case 14: squared imbalance, 0 at the optimum."""
    task = "power flow, case 14: squared imbalance (per unit)"
    rounds = 5 if short else entry("ryu_kim", "power_flow_rounds").whole("T")
    study = power_flow(3 if short else 14, shared="voltage" if short else "flow")
    # The first local points of a run are at the initial point for all data.
    method = dp.LinearizedADMM(
        penalty=entry("ryu_kim", "power_flow").number("rho"),
        step=dp.steps.Sqrt(),
        returned="last",
    )
    # Theorem 4.9's total epsilon is proportional to the epsilon of an update.
    each = EPSILON / ryu_kim_claim(rounds, 1.0, DELTA)
    beta = entry("ryu_kim", "power_flow_adjacency").number("beta")
    claim = dp.Asserted(l2=2 * beta, l1=2 * beta)
    asserted = dp.Problem(
        [replace(agent, sensitivity=claim) for agent in study.problem.agents],
        start=study.problem.start,
    )
    noise = dp.Gaussian(release_epsilon=each, release_delta=DELTA, calibration="classical")
    published = asserted.plan(method, mechanism=noise, rounds=rounds, delta=DELTA)
    accounted = study.problem.plan(method, rounds=rounds, epsilon=EPSILON, delta=DELTA)
    default = study.problem.plan(epsilon=EPSILON, delta=DELTA)
    # Use the largest derived sensitivity of all zones.
    derived = max(own.sensitivity for own in accounted.guarantee.agents)
    sigma = classical_gaussian_multiplier(each, DELTA) * 2 * beta
    truth = Composition().with_gaussian(sigma / derived, rounds).price(DELTA).epsilon

    def measured(plan: dp.Plan) -> tuple[float, ...]:
        results = (plan.run(seed=seed, verbose=False) for seed in range(runs))
        return tuple(
            float(dp.not_private.objective(study.problem, result.last)) for result in results
        )

    start = at_start(study.problem)
    of: tuple[tuple[Kind, dp.Plan], ...] = (
        ("as published", published),
        ("accounted", accounted),
        ("default", default),
    )
    for kind, plan in of:
        known = kind == "as published"
        yield Row(
            "Ryu and Kim", task, kind, _name(plan), EPSILON if known else None,
            truth if known else plan.guarantee.epsilon, DELTA, start, measured(plan),
        )  # fmt: skip


# Xiao, Ye and Devadas -----------------------------------------------------------------------------


def xiao(runs: int, short: bool) -> Iterator[Row]:
    """Yield rows of Algorithm 1 on the census: relative objective gap of the agents' mean."""
    task = "logistic regression over 20 edges: objective / minimum - 1"
    sizes, each = (
        entry("xiao_ye_devadas", "figure_2"),
        entry("xiao_ye_devadas", "records").whole("b"),
    )
    N, edges = sizes.whole("N"), sizes.whole("edges")
    rounds = 5 if short else entry("xiao_ye_devadas", "rounds").whole("K")
    records, names = made_records(3000), [f"agent {k}" for k in range(N)]
    study = census_problem(N, each, records.size)
    drawn = [Measures.of(shared_out(records, N, each, seed=seed)) for seed in range(runs)]
    start = float(np.median([own.gap(np.zeros(records.size)) for own in drawn]))

    values, spent, claimed = [], 0.0, 0.0
    for seed, measures in enumerate(drawn):
        setting = census.Setting(measures, dp.networks.random(names, edges, seed))
        printed = census.run(setting, ALGORITHM_1, rounds, seed).claimed
        trace = census.run(setting, ALGORITHM_1, rounds, seed, noise=printed / EPSILON)
        claimed, spent = trace.claimed * EPSILON / printed, trace.spent * EPSILON / printed
        values.append(float(measures.gap(trace.points[-1].mean(axis=0))))
    yield Row(
        "Xiao, Ye and Devadas", task, "as published", "Algorithm 1, Laplace noise 1.02^-k",
        claimed, spent, 0.0, start, tuple(values),
    )  # fmt: skip

    def measured(plans: Sequence[dp.Plan]) -> tuple[float, ...]:
        found = []
        for seed, (measures, plan) in enumerate(zip(drawn, plans, strict=True)):
            data = data_of(measures.shares.parts)
            result = plan.run(data=data, seed=seed, verbose=False, executor=dp.Serial())
            X = np.array(result.last.vectors).reshape(-1, records.size)
            found.append(float(measures.gap(X.mean(axis=0))))
        return tuple(found)

    admm = [
        study.problem.plan(
            dp.DecentralizedADMM(
                dp.networks.random(names, edges, seed), step=1 / D, penalty=ZETA, returned="last"
            ),
            mechanism=dp.Gaussian(),
            rounds=rounds,
            epsilon=EPSILON,
            delta=DELTA,
        )
        for seed in range(runs)
    ]
    default = [study.problem.plan(epsilon=EPSILON, delta=DELTA)] * runs
    both: tuple[tuple[Kind, list[dp.Plan]], ...] = (("accounted", admm), ("default", default))
    for kind, plans in both:
        yield Row(
            "Xiao, Ye and Devadas", task, kind, _name(plans[0]), None,
            plans[0].guarantee.epsilon, DELTA, start, measured(plans),
        )  # fmt: skip


# Ou, Wang, Liu and Lu -----------------------------------------------------------------------------


def ou(runs: int, short: bool) -> Iterator[Row]:
    """Yield rows of DPP2 on nonconvex classification: quantity (31) of the returned points."""
    task = "nonconvex classification: gap (31)"
    size = Size(6, 20, 3, None, 0.9) if short else Size()
    rounds = 11 if short else entry("ou_wang_liu_lu", "figure_3").whole("K") + 1
    settings = [nonconvex.setting(size, seed) for seed in range(runs)]
    zero = np.zeros((size.agents, size.size))
    start = float(np.median([own.measures.gap(zero) for own in settings]))
    decay = max(entry("ou_wang_liu_lu", "figure_1").numbers("r"))
    own = settings[0].study
    one = Curve(decay, 1.0, rounds).schedule(own, own.smoothness)
    scale = claimed_epsilon(one) / EPSILON
    curve = Curve(decay, scale, rounds)
    values = []
    for seed, setting in enumerate(settings):
        arrays = Arrays.of(setting.study, setting.measures.parts, setting.network)
        values.append(arrays.gap(dpp2.points(arrays, curve, seed)[rounds - 1]))
    yield Row(
        "Ou, Wang, Liu and Lu", task, "as published", f"DPP2, Laplace noise u {decay:g}^k",
        EPSILON, epsilon(curve.schedule(own, own.smoothness)), 0.0, start, tuple(values),
    )  # fmt: skip
    (method,) = (method for method in METHODS if method.name == "DPP2, Gaussian")
    choice = CHOICES[method.name, EPSILON]
    traces = [Contest(method, choice, EPSILON).run(size, seed) for seed in range(runs)]
    yield Row(
        "Ou, Wang, Liu and Lu", task, "accounted", "DPP2, tuned on public records",
        None, traces[0].epsilon, traces[0].delta, start, tuple(trace.end for trace in traces),
    )  # fmt: skip
    found = []
    plan = own.problem.plan(dp.FederatedGradient(), epsilon=EPSILON, delta=DELTA)
    for seed, setting in enumerate(settings):
        at = setting.study.problem.plan(dp.FederatedGradient(), epsilon=EPSILON, delta=DELTA)
        result = at.run(data=data_of(setting.measures.parts), seed=seed, verbose=False)
        x = np.asarray(result[setting.study.x])
        found.append(float(setting.measures.gap(np.tile(x, (size.agents, 1)))))
    yield Row(
        "Ou, Wang, Liu and Lu", task, "default", _name(plan), None,
        plan.guarantee.epsilon, DELTA, start, tuple(found),
    )  # fmt: skip


# Chan, Xie and Zhao -------------------------------------------------------------------------------


def chan(runs: int, short: bool) -> Iterator[Row]:
    """Yield rows of gradient ADMM on the elastic net: gap after one pass in a random order."""
    task = "elastic net, one pass: objective - minimum"
    users = made_users(12, 6) if short else made_users()
    _, minimum = optimum(users)
    weights = entry("chan_xie_zhao", "weights")
    base = Setting(weights.number("mu"), weights.number("beta"))
    study = elastic_net(users)

    def gap(x: Floats) -> float:
        return float(losses(users, x) + regularizer(x)) - minimum

    def measured(plan: dp.Plan) -> tuple[float, ...]:
        return tuple(gap(plan.run(seed=seed, verbose=False).last[study.x]) for seed in range(runs))

    start = gap(np.full(users.size, entry("chan_xie_zhao", "start").number("x")))
    setting = replace(base, sigma=_sigma_by_corollary_8_3(base, users.count))
    published = study.plan(setting, users.count, observer="last_iterate", order="permutation")
    method = dp.GradientADMM(penalty=base.beta, step=base.eta, order="permutation", returned="last")
    accounted = study.problem.plan(
        method, mechanism=dp.Gaussian(), rounds=users.count, epsilon=EPSILON, delta=DELTA,
        observer="last_iterate",
    )  # fmt: skip
    default = study.problem.plan(epsilon=EPSILON, delta=DELTA)
    of: tuple[tuple[Kind, dp.Plan], ...] = (
        ("as published", published),
        ("accounted", accounted),
        ("default", default),
    )
    for kind, plan in of:
        yield Row(
            "Chan, Xie and Zhao", task, kind, _name(plan),
            EPSILON if kind == "as published" else None, plan.guarantee.epsilon, DELTA, start,
            measured(plan),
        )  # fmt: skip


def _sigma_by_corollary_8_3(base: Setting, users: int) -> float:
    """Return the noise in x for the budget by Corollary 8.3, with Corollary 6.2's losses."""
    change = 2 * base.radius
    local = local_zcdp(base.block, change, 1.0)
    rho = np.array([min(local, corollary_6_2(base.block, change, 1.0, k)) for k in range(users)])

    def stated(sigma: float) -> float:
        own = Mixture(rho / sigma**2, np.full(users, 1 / users), "random permutation")
        orders = np.linspace(1, largest_order(own), 200)[1:-1]
        divergences = np.array(list(corollary_8_3(own, orders.tolist()).values()))
        return float((divergences + math.log(1 / DELTA) / (orders - 1)).min())

    low, high = 1e-3, 1e6
    while high > (1 + 1e-9) * low:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if stated(middle) > EPSILON else (low, middle)
    return high


# The table ----------------------------------------------------------------------------------------

PAPERS = {"ryu_kim": ryu_kim, "xiao": xiao, "ou": ou, "chan": chan}


def table(rows: Sequence[Row]) -> str:
    """Return the rows as a Markdown table."""
    lines = [
        "| paper, task, at the initial point | | method | total | measured |",
        "|---|---|---|---|---|",
    ]
    for k, own in enumerate(rows):
        first = k == 0 or rows[k - 1].paper != own.paper
        head = f"{own.paper}: {own.task}; {own.start:.2g}" if first else ""
        cells = (head, own.kind, own.method, _budget(own), _spread(own.values))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _budget(own: Row) -> str:
    return f"({own.epsilon:.3g}, {own.delta:g})"


def _spread(values: tuple[float, ...]) -> str:
    median = f"{np.median(values):.2g}"
    return median if len(values) == 1 else f"{median} ({min(values):.2g} to {max(values):.2g})"


def main(arguments: Sequence[str] | None = None) -> list[Row]:
    """Run all methods, print the table, and return its rows."""
    parser = argparse.ArgumentParser(prog="python -m problems.papers.worth_today")
    parser.add_argument("--runs", type=count(), default=10, help="seeds of each row")
    parser.add_argument("--short", action="store_true", help="small tasks, for tests")
    parser.add_argument("--papers", nargs="+", choices=tuple(PAPERS), default=tuple(PAPERS))
    options = parser.parse_args(arguments)
    rows = []
    with in_words(parser):
        for name in options.papers:
            rows += PAPERS[name](options.runs, options.short)
    print(
        f"At ({EPSILON:g}, {DELTA:g}); median of {options.runs} runs (least to largest), computed "
        f"in the open: not private.\n\n{table(rows)}"
    )
    return rows


if __name__ == "__main__":
    main()
