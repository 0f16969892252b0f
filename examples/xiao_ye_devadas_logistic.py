"""Logistic regression over a network, as in Xiao, Ye and Devadas, Appendix E.

Their Figures 2, B and C (accuracy and privacy against rounds), 1 (what random weights are said to
win) and D (random weights without noise), on made-up records like the UCI Adult data, or on the
file itself. Networks and shares are drawn anew in every run. The paper gives every method the same
noise and compares privacy losses; here every method has the same total guarantee, stated before
the data are read, and accuracies are compared. Noise is the same multiple of the sensitivity in
every round, the paper's falls like 1.02^-k. Ex-post losses have a table and a figure of their own:
they are no guarantee, and nothing is gained by adding or comparing them to one. What is measured on
the records in the open is not private.

    python -m examples.xiao_ye_devadas_logistic                     # half a minute
    python -m examples.xiao_ye_devadas_logistic --full --plot out   # the paper's sizes, 25 minutes
    python -m examples.xiao_ye_devadas_logistic --adult adult.data  # the UCI file

What the paper prints that is not so:

* With labels 0 and 1, as printed, ``log(1 + exp(-l x'z))`` is the constant log 2 for label 0: those
  people do not count, and the optimum predicts a high income for everybody. Labels are -1 and 1
  here. Columns are scaled by public ranges: by what is found in private records would not be free.
* 1/b is what one record contributes. Replacing it moves a coordinate of the gradient by up to
  B = 2/b. But the coordinates cannot all move by B, as rows have norm 1: the l1 norm of the change
  is at most 2 sqrt(d) / b, and Laplace noise has to cover no more. The sum of alpha beta B over the
  coordinates (Theorem 2.2) is sqrt(d) = 3.7 times that; the reductions are reductions of this sum.
* The bound (11) of gamma is none: see `dpcvx.ex_post` and Figure 1. And gamma is an expectation of
  what depends on the output: the worst case is that of fixed weights.
* "The privacy loss of Algorithm 2* is only 30 % of [45]": with the printed step sizes its worst
  case is the larger one (printed below).
* Noise of rate beta_k = 1.02^k, added to x, leaves the iterates of round 100 farther from the
  optimum than 0 is, whatever the method (printed below).
* Algorithm 2 needs everybody's points, and Figure D shows it on 20 of 45 edges. It is run on the
  complete network here, as is Appendix J.
* The multipliers' step of Algorithm 1 has the wrong sign; the definition of sensitivity has f for
  its gradient, Definition 1 epsilon for its exponential.

Not here: exact local steps (the "without first-order approximation" of Figure D), and the ADMM
variants of Zhang and Zhu, Zhang, Khalili and Liu, and Ding et al.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from rich.progress import track

from dpcvx.accounting import Composition
from problems.census import figures
from problems.census.adult import read_adult
from problems.census.amplifications import SHIFT, Surface, surface
from problems.census.experiment import Trace, Traces, run
from problems.census.measures import Measures, right
from problems.census.methods import DELTA, METHODS, NOISELESS, Budget, D, Method
from problems.census.records import Records, made_records, shared_out
from problems.census.study import Census, census, optimum

# b, and K of the paper.
EACH, ROUNDS = 100, 100
# Of the noise in the paper: beta_k = RATE^k.
RATE = 1.02


@dataclass(frozen=True)
class Case:
    """A network and a total budget, None for no noise."""

    agents: int
    edges: int
    epsilon: float | None
    runs: int

    @property
    def name(self) -> str:
        """For tables and figures."""
        noise = "no noise" if self.epsilon is None else f"epsilon = {self.epsilon:g}"
        return f"{self.network}, {noise}"

    @property
    def network(self) -> str:
        """Its size."""
        return f"N = {self.agents}, {self.edges} edges"

    @property
    def noise(self) -> str:
        """Where the total would be out of place."""
        return f"{self.network}, noise for {self.epsilon:g}"


@dataclass(frozen=True)
class Scope:
    """How much is run."""

    rounds: int
    cases: tuple[Case, ...]


SHORT = Scope(
    25,
    (Case(10, 20, 1, 1), Case(10, 20, 10, 2), Case(15, 30, 10, 1), Case(10, 20, None, 1)),
)
FULL = Scope(
    ROUNDS,
    (
        Case(10, 20, 1, 10),
        Case(10, 20, 10, 10),
        Case(100, 200, 10, 10),
        Case(10, 20, None, 10),
        Case(100, 200, None, 1),
    ),
)


@dataclass(frozen=True, eq=False)
class Found:
    """All results.

    Attributes
    ----------
    cases : list of (Case, Budget or None, list of Traces)
    printed_labels : float
        Accuracy of the optimum for labels 0 and 1.
    best : float
        Accuracy of the optimum.
    length : float
        ``|x*|``.
    """

    scope: Scope
    size: int
    cases: list[tuple[Case, Budget | None, list[Traces]]]
    surface: Surface
    printed_labels: float
    best: float
    length: float


def experiment(scope: Scope, records: Records) -> Found:
    """Everything, with a progress bar."""
    studies: dict[int, Census] = {}
    jobs = [
        (case, method, seed)
        for case in scope.cases
        for method in (METHODS if case.epsilon is not None else NOISELESS)
        for seed in range(case.runs)
    ]
    budgets = {
        epsilon: None if epsilon is None else Budget.of(epsilon, scope.rounds)
        for epsilon in {case.epsilon for case in scope.cases}
    }
    kept: dict[tuple[Case, Method], list[Trace]] = {}
    for case, method, seed in track(jobs, "runs", transient=True, disable=not sys.stdout.isatty()):
        if case.agents not in studies:
            studies[case.agents] = census(case.agents, EACH, records.size)
        measures = Measures.of(shared_out(records, case.agents, EACH, seed=seed))
        made = run(
            studies[case.agents], method, measures, case.edges, scope.rounds,
            budgets[case.epsilon], seed,
        )  # fmt: skip
        kept.setdefault((case, method), []).append(made)
    shares = shared_out(records, scope.cases[0].agents, EACH)
    best = optimum(shares.parts)
    coded = optimum(shares.parts, [(part.labels + 1) / 2 for part in shares.parts])
    return Found(
        scope,
        records.size,
        [
            (
                case,
                budgets[case.epsilon],
                [Traces(m, tuple(made)) for (own, m), made in kept.items() if own == case],
            )
            for case in scope.cases
        ],
        surface(),
        float(right(shares.test, coded)),
        float(right(shares.test, best)),
        float(np.linalg.norm(best)),
    )


def table(found: Found) -> str:
    """All tables."""
    lines = [
        f"Logistic regression, d = {found.size}, {EACH} records per agent, {found.scope.rounds} "
        "rounds. Distances, gaps and accuracies",
        "are computed on the records in the open: not private.",
    ]
    for case, _, traces in found.cases:
        lines += _case(case, traces)
    lines += _ex_post(found)
    lines += _figure_1(found.surface)
    lines += _printed(found)
    return "\n".join(lines)


def _case(case: Case, traces: Sequence[Traces]) -> Iterator[str]:
    runs = f"{case.runs} run{'' if case.runs == 1 else 's'}"
    if case.epsilon is None:
        yield f"{case.name}, no guarantee (Figure D), {runs}"
    else:
        yield f"{case.name} in total, {runs}; means (least to largest) after the last round"
    yield (
        f"   {'':<27}{'log |x_i - x*|/d':<26}{'gap, 1 at start':>16}{'of average':>12}"
        f"{'accuracy':>10}   total, worst case"
    )
    start = np.log(traces[0].distances[:, 0].mean())
    yield f"   {'public start':<27}{f'{start:.2f}':<26}{1:>16}{1:>12}"
    for own in traces:
        end = np.log(own.distances[:, -1])
        total = "none"
        if own.guarantee.kind == "worst-case":
            total = f"({own.guarantee.epsilon:.4g}, {own.guarantee.delta:g})"
        span = f"{end.mean():.2f} ({end.min():.2f} to {end.max():.2f})"
        average = np.mean([trace.averaged for trace in own.runs])
        yield (
            f"   {own.method.name:<27}{span:<26}{own.gaps[:, -1].mean():>16.3g}{average:>12.3g}"
            f"{own.accuracies[:, -1].mean():>10.3f}   {total}"
        )


def _ex_post(found: Found) -> Iterator[str]:
    yield "Ex-post (depends on outputs and data: NO GUARANTEE): loss over alpha beta B, mean over"
    yield "rounds, agents, coordinates and runs. Fixed weights lose all of it."
    yield f"   {'':<35}{'':<14}{'at the outputs':>15}{'expected':>10}"
    for case, _, traces in found.cases:
        for own in traces:
            if own.exposures:
                pairs = [
                    (e.observed[e.rounds - 1].mean(), e.expected.mean()) for e in own.exposures
                ]
                seen, mean = np.mean(pairs, axis=0)
                yield f"   {case.noise:<35}{own.method.name:<14}{seen:>15.3f}{mean:>10.3f}"


def _figure_1(own: Surface) -> Iterator[str]:
    yield f"Figure 1, alpha B = {SHIFT:g}: gamma, and in brackets what (11) says (* too small)"
    columns = np.linspace(0, own.omega.size - 1, 4).astype(int)
    yield f"   {'beta':>6}" + "".join(f"{f'omega = {own.omega[j]:.2f}':>20}" for j in columns)
    for i in np.linspace(0, own.beta.size - 1, 5).astype(int):
        cells = [
            f"{own.exact[i, j]:.4f} ({own.claimed[i, j]:.4f}){'*' if own.short[i, j] else ' '}"
            for j in columns
        ]
        yield f"   {own.beta[i]:>6.2f}" + "".join(f"{cell:>20}" for cell in cells)
    yield f"   too small at {own.short.mean():.0%} of the points"


def _printed(found: Found) -> Iterator[str]:
    d = found.size
    laplace = next(t for _, b, traces in found.cases if b is not None for t in traces)
    change = laplace.guarantee.agents[0].sensitivity
    rates = RATE ** np.arange(1, ROUNDS + 1)
    spent = Composition()
    for rate in rates:
        spent = spent.with_laplace(D / (rate * change))
    claimed = d * rates.sum() / (D * EACH)
    yield "What the paper prints"
    yield (
        f"   labels 0 and 1: accuracy of the optimum {found.printed_labels:.3f}; with -1 and 1 "
        f"{found.best:.3f}"
    )
    yield (
        f"   beta_k = 1.02^k in {ROUNDS} rounds of Algorithm 1: d alpha beta B, B = 1/b, sums to "
        f"{claimed:.3g};"
    )
    yield (
        f"   by the l1 norm of the change, at most {change:.4f}, not d/b = {d / EACH:g}: epsilon "
        f"{spent.pure:.3g}, or ({spent.price(DELTA).epsilon:.3g}, {DELTA:g});"
    )
    noise = np.sqrt(2 * d) / rates[-1]
    yield (
        f"   the noise of the last round has root mean square {noise:.2f}, |x*| is "
        f"{found.length:.2f}: the start is nearer"
    )
    ratios = [np.sum((RATE * ratio) ** np.arange(1, ROUNDS + 1)) for ratio in (0.93, 0.9)]
    yield (
        f"   worst case of Algorithm 2* over that of Huang, Mitra and Vaidya: "
        f"{ratios[0] / ratios[1]:.2f} (the paper: 0.3 on average)"
    )


def draw(found: Found, folder: Path) -> list[Path]:
    """Write the four figures as PNG files."""
    noisy = [(case, budget, traces) for case, budget, traces in found.cases if budget is not None]
    silent = {case.name: traces for case, budget, traces in found.cases if budget is None}
    runs = " and ".join(str(r) for r in sorted({case.runs for case, _, _ in noisy}))
    title = f"Logistic regression, {EACH} records per agent, {runs} runs"
    drawn = {
        "comparison.png": figures.comparison(
            {case.name: (budget, traces) for case, budget, traces in noisy},
            title,
        ),
        "ex_post.png": figures.exposures(
            {case.noise.replace(", noise", ",\nnoise"): traces for case, _, traces in noisy},
            f"{title}: mean over agents and coordinates",
        ),
        "figure_1.png": figures.surfaces(found.surface),
        "figure_d.png": figures.noiseless(silent, "Figure D: random weights beside fixed ones"),
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, figure in drawn.items():
        figure.savefig(folder / name, dpi=130)
    return [folder / name for name in drawn]


def main(arguments: Sequence[str] | None = None) -> Found:
    """Run, print, draw."""
    parser = argparse.ArgumentParser(prog="python -m examples.xiao_ye_devadas_logistic")
    parser.add_argument("--full", action="store_true", help="the paper's sizes")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--runs", type=int, help="of every method and network")
    parser.add_argument("--adult", metavar="FILE", help="adult.data of the UCI repository")
    parser.add_argument("--plot", metavar="DIR", help="write figures")
    options = parser.parse_args(arguments)
    if (options.rounds or 1) < 1 or (options.runs or 1) < 1:
        parser.error("rounds and runs must be positive")
    scope = FULL if options.full else SHORT
    cases = tuple(replace(case, runs=options.runs or case.runs) for case in scope.cases)
    scope = Scope(options.rounds or scope.rounds, cases)
    most = EACH * max(case.agents for case in cases)
    records = read_adult(options.adult) if options.adult else made_records(most + 2000)
    if records.count <= most:
        parser.error(f"{records.count} records are too few: this mode needs more than {most}")
    found = experiment(scope, records)
    print(table(found))
    if options.plot:
        for path in draw(found, Path(options.plot)):
            print(f"wrote {path}")
    return found


if __name__ == "__main__":
    main()
