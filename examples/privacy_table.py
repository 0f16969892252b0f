"""Where should the noise go? One total budget, every mechanism, the true objective gap.

Compared are the noisy gradients of Ryu and Kim (last iterate and average, Gaussian and Laplace),
noise on the output with the sensitivity that they assert and with the derived one, with and without
projection back onto the constraints, a single noisy release of the data, the same once every
agent has decided for itself what it alone decides, from its exact data, and that where loads are
publicly expected, right to a tenth (made up around them, for this study). The models are the
power-flow study (loads times 1.5, their rho = 100, eta = 1/sqrt(t)) and a logistic regression on
made-up records. Where constraints contain the loads, as those of a dispatch at least cost do, one
release with margins keeps them in 90 or 99 % of all runs. Everything printed here is computed on
the data in the open: not private.

    python -m examples.privacy_table                                 # the regression, seconds
    python -m examples.privacy_table --cases 14 118 --seeds 20 --plot out   # about two hours
    python -m examples.privacy_table --cases 118 --seeds 20 --skip derived  # a tenth of that
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

import dpcvx as dp
from problems import pictures
from problems.baselines import at_start
from problems.commands import add_plot, count, in_words
from problems.dispatch.covered import covered_dispatch
from problems.pictures import BLUE, GREY, RED, TWO_COLUMNS, styled
from problems.power_flow.case import read_case
from problems.power_flow.study import power_flow
from problems.progress import with_bar

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EPSILON, DELTA, ROUNDS, BETA = 1.0, 1e-6, 100, 0.01
KEPT = ((0.1, False), (0.01, False), (0.1, True), (0.01, True))
"""Of dispatches: how many runs may break a constraint, and whether loads are known to a tenth."""
BASELINES = {"no data": "--", "no noise": ":"}
"""What gaps are to be read beside, and the lines that show it: neither has a guarantee to keep."""


@dataclass(frozen=True)
class Method:
    """A way to spend the budget, and the iterate that is judged."""

    name: str
    algorithm: dp.Algorithm[Any, Any]
    reported: Literal["last", "average", "own"] = "last"
    mechanism: str = "gaussian"
    release: Literal["each_step", "once"] = "each_step"
    informed: bool = False


@dataclass(frozen=True, eq=False)
class Model:
    """A problem, its penalty, and the sensitivity that the paper would assert for its outputs.

    With the true values of private data of which something can be publicly expected, by name.
    """

    name: str
    problem: dp.Problem
    rho: float
    beta: float
    foreseen: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)

    def expected(self, seed: int) -> dict[dp.Private | str, dp.Prior]:
        """Expectations that are right to a tenth; made up, as they are computed from the data."""
        rng = np.random.default_rng(seed)
        means = {n: v * rng.normal(1.0, 0.1, v.shape) for n, v in self.foreseen.items()}
        return {name: dp.Prior(mean, 0.1 * np.abs(mean)) for name, mean in means.items()}


@dataclass(frozen=True, eq=False)
class Row:
    """True objective minus optimum of one method, per seed (not private); empty if refused.

    Where constraints contain private data, `broken` is in how many runs the data break one.
    """

    model: str
    method: str
    gaps: NDArray[np.float64]
    optimum: float
    kind: str
    broken: int | None = None

    @property
    def median(self) -> float:
        """Median over the seeds."""
        return float(np.median(self.gaps))


def methods(rho: float, beta: float) -> list[Method]:
    """The mechanisms of the table; the paper's first."""
    step = dp.steps.Sqrt()
    gradients = dp.LinearizedADMM(penalty=rho, step=step)
    asserted, derived = (
        dp.LinearizedADMM(penalty=rho, step=step, perturb="output", output_sensitivity=s)
        for s in (beta, None)
    )
    back_asserted, back_derived = (
        dp.LinearizedADMM(penalty=rho, step=step, perturb="projected_output", output_sensitivity=s)
        for s in (beta, None)
    )
    return [
        Method("ObjG, last iterate", gradients),
        Method("ObjG, average", gradients, "average"),
        Method("ObjL, last iterate", gradients, mechanism="laplace"),
        Method("ObjL, average", gradients, "average", "laplace"),
        Method("OutG, paper's sensitivity, average", asserted, "average"),
        Method("OutG, paper's, projected, average", back_asserted, "average"),
        Method("OutG, derived sensitivity, average", derived, "average"),
        Method("OutG, derived, projected, average", back_derived, "average"),
        Method("release once, exact steps", dp.ADMM(penalty=10.0), release="once"),
        Method("the same, then result.recourse", dp.ADMM(penalty=10.0), "own", release="once"),
        Method(
            "data expected to 10 %, result.recourse",
            dp.ADMM(penalty=10.0),
            "own",
            release="once",
            informed=True,
        ),
    ]


def judged(model: Model, skip: Sequence[str]) -> list[Method]:
    """The methods for a model, but those with one of the words in their names."""
    every = methods(model.rho, model.beta)
    return [method for method in every if not any(word in method.name for word in skip)]


def logistic(seed: int = 0) -> dp.Problem:
    """Three sites, 400 made-up records each with labels of -1 and 1, one shared classifier."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=6)
    w = cp.Variable(6, name="w")
    agents = []
    for k in range(3):
        X = rng.normal(size=(400, 6))
        X /= np.linalg.norm(X, axis=1, keepdims=True)
        y = np.where(rng.uniform(size=400) < 1 / (1 + np.exp(-4 * X @ truth)), 1.0, -1.0)
        features = dp.Private(X, adjacency=dp.Rows(1.0), name=f"features {k}")
        labels = dp.Private(y, adjacency=dp.Rows(1.0), name=f"labels {k}")
        loss = cp.sum(cp.logistic(-cp.multiply(labels, features @ w))) / 400
        objective = cp.Minimize(loss + 0.005 * cp.sum_squares(w))
        agents.append(dp.Agent(objective, [cp.abs(w) <= 5], name=f"site {k}"))
    return dp.Problem(agents)


def rows(model: Model, seeds: int, rounds: int, skip: Sequence[str] = ()) -> Iterator[Row]:
    """Run every method on a model, but those with one of the words in their names."""
    name, problem = model.name, model.problem
    central = dp.not_private.joint_problem(problem)
    central.solve(solver=cp.CLARABEL)
    optimum = float(np.asarray(central.value))
    # Some methods differ in the iterate alone, and share their runs.
    for (algorithm, mechanism, release, informed), same in groupby(
        judged(model, skip),
        key=lambda m: (m.algorithm, m.mechanism, m.release, m.informed),
    ):
        try:
            plans = [
                problem.plan(
                    algorithm,
                    mechanism=mechanism,
                    rounds=rounds,
                    epsilon=EPSILON,
                    delta=DELTA,
                    release=release,
                    prior=model.expected(seed) if informed else None,
                )
                for seed in range(seeds if informed else 1)
            ]
        except dp.PrivacyError:
            yield from (Row(name, m.name, np.zeros(0), optimum, "refused") for m in same)
            continue
        results = [plans[k % len(plans)].run(seed=k, verbose=False) for k in range(seeds)]
        kind = plans[0].guarantee.kind
        for method in same:
            gaps = [_objective(problem, result, method.reported) for result in results]
            yield Row(name, method.name, np.array(gaps) - optimum, optimum, kind)


def dispatches(case: str, seeds: int) -> Iterator[Row]:
    """A dispatch that covers private loads within limits of lines, at least cost."""
    network = read_case(case)
    loads = network.bus.pd[network.bus.pd != 0]
    near = loads * np.random.default_rng(0).normal(1.0, 0.1, loads.shape)
    for violation, known in KEPT:
        problem = covered_dispatch(network, like=near if known else None)
        central = dp.not_private.joint_problem(problem)
        central.solve(solver=cp.CLARABEL)
        optimum = float(np.asarray(central.value))
        plan = problem.plan(violation_probability=violation, epsilon=EPSILON, delta=DELTA)
        results = [plan.run(seed=k, verbose=False) for k in range(seeds)]
        gaps = [dp.not_private.objective(problem, r.solution) - optimum for r in results]
        broken = [dp.not_private.breaks(problem, r.solution, r.constraint_slack) for r in results]
        what = f"kept in {100 * (1 - violation):g} %" + (", loads known to 10 %" if known else "")
        name, kind = f"dispatch of case {case}", plan.guarantee.kind
        yield Row(name, what, np.array(gaps), optimum, kind, sum(broken))


def baselines(model: Model, rounds: int, optimum: float) -> list[Row]:
    """What to read gaps beside: the public start, and the paper's method without noise."""
    algorithm = methods(model.rho, model.beta)[0].algorithm
    plan = model.problem.plan(algorithm, mechanism=None, rounds=rounds)
    values = (at_start(model.problem), _objective(model.problem, plan.run(), "last"))
    return [
        Row(model.name, kind, np.array([value]) - optimum, optimum, kind)
        for kind, value in zip(BASELINES, values, strict=True)
    ]


def _objective(problem: dp.Problem, result: dp.Result, reported: str) -> float:
    """The true objective of an iterate, or once every agent has decided for itself."""
    if reported == "own":
        return dp.not_private.recourse(problem, result.solution)
    iterate = result.last if reported == "last" else result.average
    return dp.not_private.objective(problem, iterate)


def models(cases: Sequence[str]) -> Iterator[Model]:
    """The models of the table, with the paper's rho for the power-flow study."""
    for case in cases:
        study = power_flow(case, load_scale=1.5, radius=BETA)
        loads = study.case.scaled_load(study.load_scale)
        foreseen = {
            f"load of zone {label}": loads[buses]
            for label, buses in zip(study.zones.names, study.zones.buses, strict=True)
        }
        yield Model(f"case {case}", study.problem, 100.0, BETA, foreseen)
    # The paper asserts half of the gradient's change, which here is at most 2 / 400.
    yield Model("logistic", logistic(), 1.0, 1 / 400)


def table(found: Sequence[Row], seeds: int) -> str:
    """Median and quartiles of the gaps, and how many times smaller than the paper's."""
    lines = [
        f"True objective gap at total ({EPSILON:g}, {DELTA:g}), {seeds} seeds. Not private: "
        "computed on the data. Ratio: the first line's median over this one's."
    ]
    first: dict[str, float] = {}
    for row in found:
        if row.model not in first:
            first[row.model] = row.median
            lines.append(f"{row.model} (optimum {row.optimum:.5g})")
            lines.append(f"  {'':<36}{'25 %':>10}{'median':>10}{'75 %':>10}{'ratio':>10}")
        if row.gaps.size == 0:
            lines.append(f"  {row.method:<36}{'refused: no guarantee for this model':>38}")
            continue
        low, high = np.quantile(row.gaps, (0.25, 0.75))
        mark = "  asserted, not proved" if row.kind == "asserted" else ""
        mark += "" if row.broken is None else f"  {row.broken} of {row.gaps.size} break one"
        lines.append(
            f"  {row.method:<36}{low:>10.4g}{row.median:>10.4g}{high:>10.4g}"
            f"{first[row.model] / row.median:>10.3g}{mark}"
        )
    return "\n".join(lines)


@styled
def draw(found: Sequence[Row]) -> Figure:
    """Gaps of all seeds on a logarithmic scale, one panel per model that takes these methods."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, NullFormatter

    found = [row for row in found if row.broken is None]
    names = list(dict.fromkeys(row.model for row in found))
    noisy = [row for row in found if row.kind not in BASELINES]
    labels = list(dict.fromkeys(row.method for row in noisy))
    figure = Figure(figsize=(TWO_COLUMNS, 1.4 + 0.2 * len(labels)))
    panels = figure.subplots(1, len(names), sharey=True, squeeze=False)[0]
    for panel, name in zip(panels, names, strict=True):
        own = [row for row in noisy if row.model == name]
        for height, row in enumerate(own):
            if row.gaps.size == 0:
                panel.annotate(
                    "refused: no guarantee", (0.5, height), va="center", ha="center", fontsize=7,
                    color=GREY, xycoords=panel.get_yaxis_transform(),
                )  # fmt: skip
                continue
            at = np.full(row.gaps.size, height)
            panel.plot(row.gaps, at, "o", ms=3, alpha=0.5, color=BLUE)
            panel.plot(row.median, height, "|", ms=11, mew=2.2, color=RED)
        for row in found:
            if row.model == name and row.kind in BASELINES:
                panel.axvline(row.median, color=GREY, ls=BASELINES[row.kind], lw=1, label=row.kind)
        panel.set_xscale("log")
        panel.xaxis.set_major_locator(LogLocator(subs=(1, 3)))
        panel.xaxis.set_major_formatter("{x:g}")
        panel.xaxis.set_minor_formatter(NullFormatter())
        panel.set_title(f"{name}, optimum {own[0].optimum:.3g}")
        panel.set_xlabel("true objective - optimum\n(not private)")
        panel.grid(visible=False, axis="y")
    panels[0].set_yticks(range(len(labels)), labels)
    panels[0].set_ylim(len(labels) - 0.4, -0.6)
    handles, marks = panels[0].get_legend_handles_labels()
    figure.legend(handles, marks, loc="outside lower center", ncols=2)
    figure.suptitle(f"Total budget ({EPSILON:g}, {DELTA:g}); dots: seeds, bars: medians")
    return figure


def main(arguments: Sequence[str] | None = None) -> list[Row]:
    """Run the table for some cases and seeds."""
    parser = argparse.ArgumentParser(prog="python -m examples.privacy_table")
    parser.add_argument("--cases", nargs="*", default=[], help="bundled power-flow cases as well")
    parser.add_argument("--seeds", type=count(), default=3)
    parser.add_argument("--rounds", type=count(), default=ROUNDS)
    parser.add_argument(
        "--skip", nargs="*", default=[], metavar="WORD",
        help="leave out methods with such a word in their names; 'derived' takes longest",
    )  # fmt: skip
    add_plot(parser, "the figure")
    options = parser.parse_args(arguments)
    found: list[Row] = []
    with in_words(parser):
        # All models first: a case that cannot be read costs no run.
        for model in list(models(options.cases)):
            total = len(judged(model, options.skip))
            runs = rows(model, options.seeds, options.rounds, options.skip)
            found += with_bar(runs, model.name, total)
            found += baselines(model, options.rounds, found[-1].optimum)
        for case in options.cases:
            runs = dispatches(case, options.seeds)
            found += with_bar(runs, f"dispatch of case {case}", len(KEPT))
        print(table(found, options.seeds))
        if options.plot:
            pictures.announce({"privacy_table": draw(found)}, options.plot, options.format)
    return found


if __name__ == "__main__":
    main()
