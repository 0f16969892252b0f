"""Logistic regression over a network, as in Xiao, Ye and Devadas, Appendix E.

Their Figures 2, B and C (accuracy and privacy against rounds), 1 (what random weights are said to
win) and D (random weights without noise), on made-up records like the UCI Adult data, or on the
file itself. Networks and shares are drawn anew in every run. The paper gives every method the same
noise and compares privacy losses: the curves of Figures 2, B and C are run that way, with the total
of every curve and the loss that its outputs realized (`problems.census.printed`). Only the accuracy
panels are drawn here: `python -m problems.papers` draws the privacy panels as well. Everywhere else
all methods of a table have the same total guarantee, stated before the data are read, and the same
mechanism, and gaps are compared. Noise is the same multiple of the sensitivity in every round, or
falls like 1.02^-k as the paper's does. Comparators are described in `problems.census.methods`.
Ex-post losses have a table and a figure of their own: they are no guarantee, and nothing is gained
by adding or comparing them to one. What is measured on the records in the open is not private.

    python -m examples.xiao_ye_devadas_logistic                     # 40 seconds
    python -m examples.xiao_ye_devadas_logistic --full --plot out   # the paper's sizes, 45 minutes
    python -m examples.xiao_ye_devadas_logistic --adult adult.data  # the UCI file

What is found for N = 10 and 100 rounds, (10, 1e-6)-DP in total (``--full --runs 5``, 30 minutes;
the gap is that of the objective at the mean of all agents, 1 at the start):

* The mechanism matters most. Gaussian noise is a fifth of Laplace noise, which has to cover an l1
  norm: gaps are 17 to 34 times smaller. With random coordinates, where one entry is all that there
  is to cover, they are half as large (0.36 against 0.74).
* Neither random weights nor exact steps change the last round by more than runs differ: Algorithm
  1, with either step, dual and output perturbation are at 0.65 to 0.8 (Gaussian: 0.023 to 0.04).
* Growing penalties leave a quarter of that, 0.15 (0.006). It is their shorter steps in late rounds:
  the mean over all rounds is no better.
* Noise that falls leaves 0.23 to 0.41 of the gap after the last round where steps do not fall
  themselves (ADMM with constant D, Appendix J, random coordinates). Where they do, as in penalty
  perturbation, Algorithms 2 and 2* and Huang, Mitra and Vaidya, gaps are 1.1 to 4 times as large as
  with constant noise. At the mean over all rounds they are larger with every method, up to 9 times.
* The smallest gaps, all with constant Gaussian noise: the mean over all rounds of Appendix J
  (0.006), and the last round of penalty perturbation (0.006) and of Algorithm 2 (0.007).
* Exact dual perturbation, a minimizer of an objective with noise in it, has a guarantee for this
  loss (`problems.census.exact_steps`), and is as good as output perturbation: 0.035 and 0.027 with
  Gaussian noise, where first-order steps leave 0.009. What these are charged follows the point, and
  is half of the most a record can do near 0. Growing penalties help exact steps as much: 0.008.
* At this regularization the share of people on the right side says nothing: the optimum is no
  better than calling everyone poor.

What the paper prints that is not so:

* With labels 0 and 1, as printed, ``log(1 + exp(-l x'z))`` is the constant log 2 for label 0: those
  people do not count, and the optimum predicts a high income for everybody. Labels are -1 and 1
  here. Columns are scaled by public ranges: by what is found in private records would not be free.
* 1/b is what one record contributes. Replacing it moves a coordinate of the gradient by up to
  B = 2/b. But the coordinates cannot all move by B, as rows have norm 1: the l1 norm of the change
  is at most 2 sqrt(d) / b, and Laplace noise has to cover no more. The sum of alpha beta B over the
  coordinates (Theorem 2.2) is sqrt(d) = 3.7 times that; the reductions are reductions of this sum.
* The bound (11) of gamma is none: see `problems.census.ex_post` and Figure 1, in whose range it is
  short by little. And gamma is an expectation of what depends on the output: the worst case is that
  of fixed weights.
* Noise of rate beta_k = 1.02^k, added to x, leaves the iterates of round 100 farther from the
  optimum than 0 is, whatever the method: the figures' curves fall because their noise does.
* Algorithm 2 needs everybody's points, and Figure D shows it on 20 of 45 edges. It is run on the
  complete network here, as are random coordinates; Appendix J needs sums only.
* Theorems 3.1 and 3.2 weigh multipliers by zeta where Appendix F itself has 1 / zeta, a misprint;
  with that they hold, and promise far less than what happens (`problems.census.rates`, and a
  figure). So does Theorem 3.3, whose residual of the noise is a million times what runs show.
* The multipliers' step of Algorithm 1 has the wrong sign; the definition of sensitivity has f for
  its gradient, Definition 1 epsilon for its exponential.

`problems.refutations.xiao` has the refutations with the hypotheses that they keep. What the paper
reports of realized losses comes out: Algorithm 1 loses about 0.73 of its worst case ("on average 30
% privacy loss reduction"), and Algorithm 2* 0.3 to 0.4 of what Huang, Mitra and Vaidya lose ("only
30 % of [45]"). The guarantee is the worst case, and there Algorithm 2* loses 1.64 times as much.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from matplotlib.figure import Figure

import dpcvx as dp
from dpcvx.privacy.accounting import Composition
from problems import pictures
from problems.census import figures, printed, rates
from problems.census.adult import read_adult
from problems.census.amplifications import SHIFT, Surface, surface
from problems.census.comparators import Row, compared
from problems.census.experiment import Trace, Traces, run
from problems.census.measures import Measures, right
from problems.census.methods import (
    DELTA,
    METHODS,
    NOISELESS,
    RATE,
    Budget,
    D,
    Method,
    Noise,
    named,
)
from problems.census.records import Records, made_records, shared_out
from problems.census.study import Census, census, optimum
from problems.commands import add_plot, count, in_words
from problems.papers import entry
from problems.progress import with_bar

# b, and K of the paper.
_PAPER = "xiao_ye_devadas"
EACH, ROUNDS = entry(_PAPER, "records").whole("b"), entry(_PAPER, "rounds").whole("K")
FALLING = 1 / RATE


@dataclass(frozen=True)
class Case:
    """A network, a total budget (None for no noise), the kind of noise, and who is compared."""

    agents: int
    edges: int
    epsilon: float | None
    runs: int
    noise: Noise = "Laplace"
    decay: float = 1.0
    rounds: int = ROUNDS
    methods: tuple[Method, ...] = METHODS

    @property
    def name(self) -> str:
        """For tables and figures."""
        if self.epsilon is None:
            return f"{self.network}, no noise"
        return f"{self.network}, epsilon = {self.epsilon:g}, {self.kind}"

    @property
    def network(self) -> str:
        """Its size."""
        return f"N = {self.agents}, {self.edges} edges"

    @property
    def kind(self) -> str:
        """Of the noise."""
        return self.noise + ("" if self.decay == 1 else f" falling by {1 / self.decay:g}")

    @property
    def strength(self) -> str:
        """Where the total would be out of place."""
        return f"{self.network}, {self.kind}, noise for {self.epsilon:g}"

    @property
    def constant(self) -> Case:
        """The same with noise that does not fall."""
        return replace(self, decay=1.0)


# Of a large network: comparators of Example (b), and the gradient methods that are as fast.
LARGE = named(
    "Algorithm 1", "Dual perturbation (fixed weights)", "Penalty perturbation (growing D)",
    "Output perturbation (exact steps)", "Algorithm 2*", "Appendix J", "Huang, Mitra and Vaidya",
)  # fmt: skip
FEW = tuple(method for method in LARGE if not method.exact)
SHORT = (
    Case(10, 20, 10, 1, rounds=15),
    Case(10, 20, 10, 1, decay=FALLING, rounds=15, methods=FEW),
    Case(10, 20, 10, 1, "Gaussian", rounds=15),
    Case(10, 20, None, 1, rounds=15, methods=NOISELESS),
)
FULL = (
    Case(10, 20, 10, 10),
    Case(10, 20, 10, 10, decay=FALLING),
    Case(10, 20, 10, 10, "Gaussian"),
    Case(10, 20, 10, 10, "Gaussian", FALLING),
    Case(10, 20, 1, 10, "Gaussian"),
    Case(100, 200, 10, 10, methods=LARGE),
    Case(10, 20, None, 10, methods=NOISELESS),
    Case(100, 200, None, 1, methods=NOISELESS),
)


@dataclass(frozen=True, eq=False)
class Found:
    """All results.

    Attributes
    ----------
    size : int
    cases : list of (Case, Budget or None, list of Traces)
    surface : Surface
    printed_labels : float
        Accuracy of the optimum for labels 0 and 1.
    best, poor : float
        Accuracy of the optimum, and of calling everyone poor.
    length : float
        ``|x*|``.
    printed : dict of str to dict of str to list of printed.Trace
        Curves of Figures 2, B and C with the printed noise, by figure and curve.
    perturbed : (Case, list of Row) or None
        Perturbations of `problems.census.comparators`.
    """

    size: int
    cases: list[tuple[Case, Budget | None, list[Traces]]]
    surface: Surface
    printed_labels: float
    best: float
    poor: float
    length: float
    printed: dict[str, dict[str, list[printed.Trace]]]
    perturbed: tuple[Case, list[Row]] | None


# The paper's figures with noise: agents, edges, and whose curves.
PRINTED = tuple(
    (f"Figure {own}", *(entry(_PAPER, f"figure_{own}").whole(key) for key in ("N", "edges")), which)
    for own, which in (("2", "Figures 2 and B"), ("B", "Figures 2 and B"), ("C", "Figure C"))
)


def printed_noise(records: Records, runs: int) -> dict[str, dict[str, list[printed.Trace]]]:
    """Those of `PRINTED` for which there are records enough."""
    found: dict[str, dict[str, list[printed.Trace]]] = {}
    for name, agents, edges, curves in PRINTED:
        if records.count <= EACH * agents:
            continue
        own = found.setdefault(f"{name}: N = {agents}, {edges} edges", {})
        for seed in range(runs):
            measures = Measures.of(shared_out(records, agents, EACH, seed=seed))
            names = [f"agent {k}" for k in range(agents)]
            setting = printed.Setting(measures, dp.networks.random(names, edges, seed))
            for curve in printed.CURVES[curves]:
                made = printed.run(setting, curve, ROUNDS, seed)
                own.setdefault(curve.name, []).append(made)
    return found


def experiment(cases: Sequence[Case], records: Records) -> Found:
    """Everything, with a progress bar."""
    studies: dict[int, Census] = {}
    budgets = {
        case: None
        if case.epsilon is None
        else Budget.of(case.epsilon, case.rounds, case.noise, case.decay)
        for case in cases
    }
    jobs = [(c, method, seed) for c in cases for method in c.methods for seed in range(c.runs)]
    kept: dict[tuple[Case, Method], list[Trace]] = {}
    for case, method, seed in with_bar(jobs, "runs"):
        if case.agents not in studies:
            studies[case.agents] = census(case.agents, EACH, records.size)
        measures = Measures.of(shared_out(records, case.agents, EACH, seed=seed))
        made = run(
            studies[case.agents], method, measures, case.edges, case.rounds, budgets[case], seed
        )
        kept.setdefault((case, method), []).append(made)
    shares = shared_out(records, cases[0].agents, EACH)
    best = optimum(shares.parts)
    coded = optimum(shares.parts, [(part.labels + 1) / 2 for part in shares.parts])
    return Found(
        records.size,
        [
            (case, budgets[case], [Traces(m, tuple(kept[case, m])) for m in case.methods])
            for case in cases
        ],
        surface(),
        float(right(shares.test, coded)),
        float(right(shares.test, best)),
        float(right(shares.test, 0 * best)),
        float(np.linalg.norm(best)),
        printed_noise(records, max(case.runs for case in cases)),
        perturbed(cases, kept, records),
    )


def perturbed(
    cases: Sequence[Case], kept: Mapping[tuple[Case, Method], list[Trace]], records: Records
) -> tuple[Case, list[Row]] | None:
    """Perturbations at the total of the first case with constant Gaussian noise, if there is one.

    Parameters
    ----------
    cases : sequence of Case
    kept : mapping of (Case, Method) to list of Trace
        What has run.
    records : Records
    """
    for case in cases:
        if case.epsilon is not None and (case.noise, case.decay) == ("Gaussian", 1):
            shares = [shared_out(records, case.agents, EACH, seed=k) for k in range(case.runs)]
            return case, compared(
                census(case.agents, EACH, records.size),
                [(Measures.of(share), case.edges) for share in shares],
                case.rounds,
                case.epsilon,
                [Traces(method, tuple(kept[case, method])) for method in case.methods],
            )
    return None


def table(found: Found) -> str:
    """All tables."""
    lines = [
        f"Logistic regression, d = {found.size}, {EACH} records per agent. Distances, gaps and "
        "accuracies are computed on the",
        f"records in the open: not private. Accuracy is {found.best:.3f} at the optimum, and "
        f"{found.poor:.3f} if everyone is called poor.",
    ]
    for case, _, traces in found.cases:
        if case.decay == 1:
            lines += _case(case, traces)
    for kinds in families(found):
        lines += _kinds(kinds)
    if found.perturbed is not None:
        lines += _perturbed(*found.perturbed)
    lines += _ex_post(found)
    lines += _figure_1(found.surface)
    lines += _printed(found)
    return "\n".join(lines)


Kind = tuple[Case, Budget, list[Traces]]


def families(found: Found) -> list[list[Kind]]:
    """Cases that differ in their noise only, if there are several kinds: methods that all have."""
    groups: dict[Case, list[Kind]] = {}
    for case, budget, traces in found.cases:
        if budget is not None:
            key = replace(case.constant, noise="Laplace", methods=())
            groups.setdefault(key, []).append((case, budget, traces))
    several = [kinds for kinds in groups.values() if len(kinds) > 1]
    return [
        [
            (case, budget, [t for t in own if all(t.method in c.methods for c, _, _ in kinds)])
            for case, budget, own in kinds
        ]
        for kinds in several
    ]


def _runs(case: Case) -> str:
    return f"{case.rounds} rounds, {case.runs} run{'' if case.runs == 1 else 's'}"


def _case(case: Case, traces: Sequence[Traces]) -> Iterator[str]:
    if case.epsilon is None:
        yield f"{case.name}, no guarantee (Figure D); {_runs(case)}"
    else:
        yield f"{case.name}; {_runs(case)}; means (least to largest) after the last round"
    yield (
        f"   {'':<34}{'log |x_i - x*|/d':<26}{'gap, 1 at start':>16}{'of average':>12}"
        "   total, worst case"
    )
    start = np.log(traces[0].distances[:, 0].mean())
    yield f"   {'public start':<34}{f'{start:.2f}':<26}{1:>16}{1:>12}"
    for own in traces:
        end = np.log(own.distances[:, -1])
        total = "none"
        if own.guarantee.kind == "worst-case":
            total = f"({own.guarantee.epsilon:.4g}, {own.guarantee.delta:g})"
        span = f"{end.mean():.2f} ({end.min():.2f} to {end.max():.2f})"
        yield (
            f"   {own.method.name:<34}{span:<26}{own.gaps[:, -1].mean():>16.3g}"
            f"{own.averages.mean():>12.3g}   {total}"
        )


def _kinds(kinds: Sequence[Kind]) -> Iterator[str]:
    case = kinds[0][0]
    yield (
        f"{case.network}, ({case.epsilon:g}, {DELTA:g})-DP in total, {_runs(case)}: gap by the "
        "noise, and falling over constant"
    )
    yield "   root mean square of the noise of an entry of a gradient, first to last round:"
    for own, budget, traces in kinds:
        spread = np.sqrt(2) if budget.noise == "Laplace" else 1.0
        scale = spread * traces[0].guarantee.agents[0].sensitivity
        first, last = budget.multiplier * scale * np.array([1, own.decay ** (own.rounds - 1)])
        yield f"      {own.kind:<31}{first:.3g} to {last:.3g}"
    for where, of in (("last round", _last), ("mean over rounds", _averaged)):
        heads = "".join(
            f"{own.noise:>10}" if own.decay == 1 else f"{'falling':>10}{'ratio':>8}"
            for own, _, _ in kinds
        )
        yield f"   {where:<34}{heads}"
        for k, same in enumerate(kinds[0][2]):
            known = {own: of(traces[k]) for own, _, traces in kinds}
            cells = "".join(
                f"{value:>10.3g}" + ("" if own.decay == 1 else f"{_over(known, own):>8.2f}")
                for own, value in known.items()
            )
            yield f"   {same.method.name:<34}{cells}"


def _last(traces: Traces) -> float:
    return float(traces.gaps[:, -1].mean())


def _averaged(traces: Traces) -> float:
    return float(traces.averages.mean())


def _over(known: dict[Case, float], falling: Case) -> float:
    """Falling over constant noise of the same kind; no number without that."""
    alike = [value for own, value in known.items() if (own.noise, own.decay) == (falling.noise, 1)]
    return known[falling] / alike[0] if alike else np.nan


def _perturbed(case: Case, rows: Sequence[Row]) -> Iterator[str]:
    yield f"{case.name}; {_runs(case)}: exact steps beside first-order ones; gap, 1 at the start"
    yield f"   {'':<50}{'last round':>12}{'mean of all':>12}   total, worst case"
    for row in rows:
        ends = f"{row.gaps[:, -1].mean():>12.3g}{row.gaps[:, 1:].mean():>12.3g}"
        yield f"   {row.name:<50}{ends}   ({row.epsilon:.4g}, {DELTA:g})"


def _ex_post(found: Found) -> Iterator[str]:
    yield "Ex-post (depends on outputs and data: NO GUARANTEE): loss over alpha beta B, mean over"
    yield "rounds, agents, coordinates and runs. Fixed weights lose all of it."
    yield f"   {'':<60}{'':<14}{'at the outputs':>15}{'expected':>10}"
    for case, _, traces in found.cases:
        for own in traces:
            if own.exposures:
                pairs = [
                    (e.observed[e.rounds - 1].mean(), e.expected.mean()) for e in own.exposures
                ]
                seen, mean = np.mean(pairs, axis=0)
                yield f"   {case.strength:<60}{own.method.name:<14}{seen:>15.3f}{mean:>10.3f}"


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
    change = next(
        traces[0].guarantee.agents[0].sensitivity
        for case, budget, traces in found.cases
        if budget is not None and case.noise == "Laplace"
    )
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
    yield "   Curves with the printed noise: log |x_i - x*|/d after 100 rounds; total by the paper;"
    yield "   what outputs realized of it (ex post, NO GUARANTEE; all if weights are fixed); true"
    for name, curves in found.printed.items():
        for label, runs in curves.items():
            end = np.log(np.mean([run.distance[-1].mean() for run in runs]))
            realized = np.mean([run.realized for run in runs])
            totals = f"{runs[0].claimed:>8.3g}{realized:>8.3g}{runs[0].spent:>8.3g}"
            yield f"      {name:<34}{label:<20}{end:>7.2f}{totals}"
        if name.startswith("Figure C"):
            ours, theirs = curves["Algorithm 2*"], curves["Huang et al."]
            share = np.mean([a.realized / b.claimed for a, b in zip(ours, theirs, strict=True)])
            yield (
                f"   Algorithm 2* over Huang, Mitra and Vaidya: realized {share:.2f} (the paper: "
                f"0.3), in the worst case {ratios[0] / ratios[1]:.2f}"
            )
        else:
            share = np.mean([run.realized / run.claimed for run in curves["Algorithm 1"]])
            yield f"   Algorithm 1 over its worst case: realized {share:.2f} (the paper: 0.7)"


def draw(found: Found) -> dict[str, Figure]:
    """The figures by name."""
    noisy = [(case, budget, traces) for case, budget, traces in found.cases if budget is not None]
    silent = {case.name: traces for case, budget, traces in found.cases if budget is None}
    exact = {
        (case.network, own.method.name): own
        for case, budget, traces in found.cases
        if budget is None
        for own in traces
    }
    counts = sorted({case.runs for case, _, _ in noisy})
    runs = f"{' and '.join(map(str, counts))} run{'' if counts == [1] else 's'}"
    title = f"Logistic regression, {EACH} records per agent, {runs}"
    drawn = {}
    for name, baseline, which, kind in (
        ("admm", "Algorithm 1", "ADMM", lambda own: own.method.rule == "admm"),
        (
            "gradients",
            "Algorithm 2",
            "Gradient methods (Algorithm 2, random coordinates: all edges)",
            lambda own: own.method.rule != "admm",
        ),
    ):
        columns, without = {}, {}
        for case, _, traces in noisy:
            own, label = [t for t in traces if kind(t)], case.name.replace(", eps", "\neps")
            if own and case.decay == 1:
                columns[label] = own
                if (case.network, baseline) in exact:
                    without[label] = exact[case.network, baseline]
        if columns:
            drawn[name] = figures.comparison(
                columns, f"{which}: {title[0].lower()}{title[1:]}", without
            )
    for kinds in families(found):
        case = kinds[0][0]
        drawn[f"noise_{case.agents}"] = figures.noises(
            [(budget, traces) for _, budget, traces in kinds],
            f"{case.network}, {_runs(case)}",
            exact.get((case.network, "Algorithm 1")),
        )
    drawn |= {
        "ex_post": figures.exposures(
            {
                case.strength.replace("edges, ", "edges,\n"): traces
                for case, _, traces in noisy
                if any(own.exposures for own in traces)
            },
            f"{title}: mean over agents and coordinates",
        ),
        "figure_1": figures.surfaces(found.surface),
        "figure_d": figures.noiseless(
            silent, "Figure D: without noise, random weights do as well as fixed ones"
        ),
    }
    if found.perturbed is not None:
        case, rows = found.perturbed
        drawn["perturbations"] = figures.perturbations(rows, f"{case.network}, {_runs(case)}")
    drawn["rates"] = figures.rates(rates.example(), rates.Medians())
    if found.printed:
        drawn["printed_noise"] = figures.printed_noise(found.printed)
    return drawn


def main(arguments: Sequence[str] | None = None) -> Found:
    """Run, print, draw."""
    parser = argparse.ArgumentParser(prog="python -m examples.xiao_ye_devadas_logistic")
    parser.add_argument("--full", action="store_true", help="the paper's sizes")
    parser.add_argument("--rounds", type=count(), help="of every case")
    parser.add_argument("--runs", type=count(), help="of every method and network")
    parser.add_argument("--adult", metavar="FILE", help="adult.data of the UCI repository")
    add_plot(parser)
    options = parser.parse_args(arguments)
    cases = [
        replace(case, runs=options.runs or case.runs, rounds=options.rounds or case.rounds)
        for case in (FULL if options.full else SHORT)
    ]
    most = EACH * max(case.agents for case in cases)
    made = EACH * max(agents for _, agents, _, _ in PRINTED) + 2000
    with in_words(parser):
        records = read_adult(options.adult) if options.adult else made_records(made)
        if records.count <= most:
            parser.error(f"{records.count} records are too few: this mode needs more than {most}")
        found = experiment(cases, records)
        print(table(found))
        if options.plot:
            drawn = {f"xiao_ye_devadas_{name}": figure for name, figure in draw(found).items()}
            pictures.announce(drawn, options.plot, options.format)
    return found


if __name__ == "__main__":
    main()
