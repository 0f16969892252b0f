"""Figures 3 and 4 and Table 1 of Ryu and Kim: where the noise goes, and what it costs.

Four algorithms on the power-flow study with loads as published: noise in the objective (ObjG with
Gaussian, ObjL with Laplace noise) or on the output (OutG, OutL), at four budgets per local update,
with one and five local updates. Every panel states the total guarantee of its runs. Beside the
paper's sensitivities (2 beta and beta, asserted) stand those that hold (derived from the model),
and what one noisy release of the loads achieves at the same total. Zones agree on the flows of
their tie lines and on the voltages at both ends, as in the paper; `--shared voltage` leaves the
flows out.

Objectives are computed on the true loads: not private.

    python -m examples.ryu_kim_power_flow                       # case 14, short, half a minute
    python -m examples.ryu_kim_power_flow --full --plot out     # both cases: about an hour
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray
from rich.progress import Progress

import dpcvx as dp
from problems import pictures
from problems.baselines import at_start
from problems.commands import add_plot, count, in_words, positive
from problems.papers import entry
from problems.pictures import BLUE, GREEN, GREY, ORANGE, PINK, RED, TWO_COLUMNS, styled
from problems.power_flow.bands import quartiles
from problems.power_flow.study import PowerFlow, power_flow

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Sensitivity = Literal["paper", "derived"]
_PAPER = "ryu_kim"
BETA = entry(_PAPER, "power_flow_adjacency").number("beta")
DELTA = entry(_PAPER, "power_flow_delta").number("delta")
RHO = entry(_PAPER, "power_flow").number("rho")
ROUNDS = entry(_PAPER, "power_flow_rounds").whole("T")
EPSILONS = entry(_PAPER, "power_flow").numbers("epsilon")
ALGORITHMS = ("ObjG", "ObjL", "OutG", "OutL")
COLOURS = {"ObjG": BLUE, "ObjL": GREEN, "OutG": ORANGE, "OutL": RED}
LINES = {"ObjG": "-", "ObjL": "--", "OutG": "-.", "OutL": ":"}


@dataclass(frozen=True)
class Setting:
    """One cell of the study."""

    case: str
    algorithm: str
    epsilon: float
    local_updates: int
    sensitivity: Sensitivity


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a setting gave.

    Attributes
    ----------
    setting : Setting
    guarantee : dp.Guarantee
    noise : float
        Expected (29): sum of absolute noise over agents, components and local updates of a round.
    variance : float
        Largest variance of one component's noise (Table 1).
    objective, average : ndarray, shape (seeds, rounds)
        True objective at the last iterates and at their averages. Not private.
    residual : ndarray, shape (seeds, rounds)
        Norm of the disagreement (released).
    violation : float
        Largest violation of an agent's constraints by a last iterate.
    """

    setting: Setting
    guarantee: dp.Guarantee
    noise: float
    variance: float
    objective: NDArray[np.float64]
    average: NDArray[np.float64]
    residual: NDArray[np.float64]
    violation: float


def planned(study: PowerFlow, setting: Setting, rounds: int) -> dp.Plan:
    """The paper's plan of a setting: classical calibration of every local update."""
    gaussian, output = setting.algorithm[-1] == "G", setting.algorithm.startswith("Out")
    asserted = setting.sensitivity == "paper"
    mechanism = (
        dp.Gaussian(release_epsilon=setting.epsilon, release_delta=DELTA, calibration="classical")
        if gaussian
        else dp.Laplace(release_epsilon=setting.epsilon)
    )
    problem = study.problem
    if asserted and not output:
        claim = dp.Asserted(l2=2 * BETA, l1=2 * BETA)
        agents = [replace(agent, sensitivity=claim) for agent in problem.agents]
        problem = dp.Problem(agents, start=problem.start)
    method = dp.LinearizedADMM(
        penalty=RHO,
        step=dp.steps.Sqrt(),
        local_updates=setting.local_updates,
        perturb="output" if output else "objective",
        output_sensitivity=BETA if asserted and output else None,
    )
    return problem.plan(
        method, mechanism=mechanism, rounds=rounds, delta=DELTA if gaussian else 0.0
    )


def measured(study: PowerFlow, setting: Setting, rounds: int, seeds: int) -> Outcome:
    """Run a setting with several seeds. Not private: objectives see the loads."""
    plan = planned(study, setting, rounds)
    results = [plan.run(seed=seed, iterates=True) for seed in range(seeds)]

    def objectives(which: Literal["last", "average"]) -> NDArray[np.float64]:
        paths = [[getattr(iterate, which) for iterate in r.iterates] for r in results]
        values = [[dp.not_private.objective(study.problem, x) for x in path] for path in paths]
        return np.array(values)

    scales = noise_scales(plan, results[0])
    laplace = setting.algorithm[-1] == "L"
    return Outcome(
        setting,
        results[0].guarantee,
        noise=scales.sum() * (1.0 if laplace else math.sqrt(2 / math.pi)) / rounds,
        variance=float((scales**2).max()) * (2.0 if laplace else 1.0),
        objective=objectives("last"),
        average=objectives("average"),
        residual=np.array([r.history.primal for r in results]),
        violation=max(r.max_iterate_violation for r in results),
    )


def without_noise(study: PowerFlow, E: int, rounds: int) -> NDArray[np.float64]:
    """The objective after every round where nobody adds noise. Not private."""
    method = dp.LinearizedADMM(penalty=RHO, step=dp.steps.Sqrt(), local_updates=E)
    result = study.problem.plan(method, mechanism=None, rounds=rounds).run(iterates=True)
    return np.array([dp.not_private.objective(study.problem, i.last) for i in result.iterates])


def noise_scales(plan: dp.Plan, result: dp.Result) -> NDArray[np.float64]:
    """Noise scale of every component of every release, from the ledger."""
    method = plan.algorithm
    assert isinstance(method, dp.LinearizedADMM) and isinstance(method.step, dp.steps.Sqrt)
    scales = []
    for local in plan.program.agents:
        for release in result.ledger[local.name].entries:
            shape = np.ones(local.n)
            if method.perturb == "output" and release.certificate == "derived":
                # Released with the step's own weights D: noise of a component is 1 / sqrt(D).
                shape /= math.sqrt(1 / method.step.eta(release.round))
                shape[local.shared] = 1 / math.sqrt(1 / method.step.eta(release.round) + RHO)
            scales.append(release.multiplier * release.sensitivity * shape)
    return np.concatenate(scales)


def release_once(study: PowerFlow, total: dp.Guarantee, seeds: int) -> float:
    """Median objective of one noisy release of the loads at the same total. Not private."""
    plan = study.problem.plan(
        dp.ADMM(penalty=10.0), rounds=ROUNDS, epsilon=total.epsilon, delta=DELTA, release="once"
    )
    results = [plan.run(seed=seed) for seed in range(seeds)]
    return float(np.median([dp.not_private.objective(study.problem, r.last) for r in results]))


@dataclass(frozen=True, eq=False)
class Study:
    """All outcomes of one case, the objective of one release by (epsilon, E), and what to compare.

    `no_data` is the objective at the public start, `no_noise` by E that after every round of a run
    without noise. None of it is private.
    """

    case: str
    outcomes: list[Outcome]
    once: dict[tuple[float, int], float]
    no_data: float
    no_noise: dict[int, NDArray[np.float64]]

    def find(self, algorithm: str, epsilon: float, E: int, sensitivity: Sensitivity) -> Outcome:
        """The outcome of a setting."""
        wanted = Setting(self.case, algorithm, epsilon, E, sensitivity)
        return next(outcome for outcome in self.outcomes if outcome.setting == wanted)

    @property
    def epsilons(self) -> list[float]:
        """Budgets per local update that were run."""
        return sorted({outcome.setting.epsilon for outcome in self.outcomes})

    @property
    def updates(self) -> list[int]:
        """Numbers of local updates that were run."""
        return sorted({outcome.setting.local_updates for outcome in self.outcomes})


def settings(case: str, epsilons: Sequence[float], updates: Sequence[int]) -> list[Setting]:
    """The cells of a case."""
    return [
        Setting(case, algorithm, epsilon, E, sensitivity)
        for sensitivity in ("paper", "derived")
        for E in updates
        for epsilon in epsilons
        for algorithm in ALGORITHMS
    ]


def run(
    study: PowerFlow,
    case: str,
    epsilons: Sequence[float],
    updates: Sequence[int],
    rounds: int,
    seeds: int,
) -> Iterator[Outcome | Study]:
    """The outcomes of a case one by one, and at last all of them."""
    outcomes = []
    for setting in settings(case, epsilons, updates):
        outcomes.append(measured(study, setting, rounds, seeds))
        yield outcomes[-1]
    once = {
        (o.setting.epsilon, o.setting.local_updates): release_once(study, o.guarantee, seeds)
        for o in outcomes
        if (o.setting.algorithm, o.setting.sensitivity) == ("ObjG", "derived")
    }
    no_noise = {E: without_noise(study, E, rounds) for E in updates}
    yield Study(case, outcomes, once, at_start(study.problem), no_noise)


def table(study: Study) -> str:
    """Table 1 and the final objectives, the paper's sensitivities next to those that hold."""
    lines = [f"case {study.case}: variance of the noise of one component (Table 1)"]
    head = f"  {'':<8}{'eps':>6}"
    lines.append(f"{head}{'formula':>12}{'as run':>12}{'derived':>12}")
    for algorithm in ALGORITHMS:
        for epsilon in study.epsilons:
            paper, ours = (
                study.find(algorithm, epsilon, study.updates[0], kind).variance
                for kind in ("paper", "derived")
            )
            formula = printed_variance(algorithm, epsilon)
            lines.append(
                f"  {algorithm:<8}{epsilon:>6g}{formula:>12.4g}{paper:>12.4g}{ours:>12.4g}"
            )
    lines.append(
        f"case {study.case}: true objective after the last round, median (optimum 0; not private)"
    )
    lines.append(
        f"  {'E':<3}{'eps':>6}{'total of ObjG':>18}{'sensitivity':>13}"
        + "".join(f"{algorithm:>10}" for algorithm in ALGORITHMS)
        + f"{'ObjG avg':>10}{'once':>10}"
    )
    for E in study.updates:
        for epsilon in study.epsilons:
            for kind in ("paper", "derived"):
                found = {a: study.find(a, epsilon, E, kind) for a in ALGORITHMS}
                total = found["ObjG"].guarantee
                values = [np.median(o.objective[:, -1]) for o in found.values()]
                values += [np.median(found["ObjG"].average[:, -1]), study.once[epsilon, E]]
                claim = "" if total.kind == "worst-case" else " *"
                lines.append(
                    f"  {E:<3}{epsilon:>6g}{f'({total.epsilon:.4g}, {DELTA:g}){claim}':>18}"
                    f"{kind:>13}" + "".join(f"{value:>10.4g}" for value in values)
                )
    lines.append("  * on the word of the paper: its sensitivities are asserted, and too small.")
    lines.append("  once: a single noisy release of the loads at the derived total, exact steps.")
    worst = {
        algorithm: max(o.violation for o in study.outcomes if o.setting.algorithm == algorithm)
        for algorithm in ALGORITHMS
    }
    found = ", ".join(f"{algorithm} {value:.1e}" for algorithm, value in worst.items())
    lines.append(f"  largest violation of an agent's constraints by a last iterate: {found}")
    return "\n".join(lines)


def printed_variance(algorithm: str, epsilon: float) -> float:
    """Table 1 of the paper."""
    sensitivity = BETA if algorithm.startswith("Out") else 2 * BETA
    factor = 2 * math.log(1.25 / DELTA) if algorithm[-1] == "G" else 2.0
    return factor * (sensitivity / epsilon) ** 2


@styled
def draw(study: Study, sensitivity: Sensitivity) -> Figure:
    """Noise, objectives and disagreement against the round: Figure 3 or 4."""
    from matplotlib.figure import Figure

    rows = ["noise", *(f"E = {E}" for E in study.updates), "disagreement"]
    columns = study.epsilons
    figure = Figure(figsize=(max(TWO_COLUMNS, 2.3 * len(columns)), 2.0 * len(rows) + 0.8))
    panels = figure.subplots(len(rows), len(columns), sharey="row", squeeze=False)
    for column, epsilon in enumerate(columns):
        _draw_noise(panels[0, column], study, epsilon, sensitivity)
        for row, E in enumerate(study.updates, 1):
            _draw_objective(panels[row, column], study, epsilon, E, sensitivity, column == 0)
        _draw_residual(panels[-1, column], study, epsilon, sensitivity)
        panels[0, column].set_title(f"epsilon = {epsilon:g} per local update")
    for row, label in enumerate(("noise (29), expected", *rows[1:-1], "disagreement of ObjG")):
        panels[row, 0].set_ylabel(label if row in (0, len(rows) - 1) else f"objective, {label}")
    words = {
        "paper": "the paper's sensitivities, 2 beta and beta: asserted, too small",
        "derived": "sensitivities derived from the model",
    }
    figure.suptitle(
        f"case {study.case}, {words[sensitivity]}\n"
        "median and quartiles over seeds; objectives see the true loads: not private"
    )
    return figure


def _draw_noise(axes: Axes, study: Study, epsilon: float, kind: Sensitivity) -> None:
    values = [study.find(a, epsilon, study.updates[0], kind).noise for a in ALGORITHMS]
    axes.bar(ALGORITHMS, values, color=[COLOURS[a] for a in ALGORITHMS], width=0.6)
    axes.set_yscale("log")


def _draw_objective(
    axes: Axes, study: Study, epsilon: float, E: int, kind: Sensitivity, first: bool
) -> None:
    totals = []
    for algorithm in ALGORITHMS:
        outcome = study.find(algorithm, epsilon, E, kind)
        _band(axes, outcome.objective, COLOURS[algorithm], algorithm, LINES[algorithm])
        totals.append(outcome.guarantee)
    average = study.find("ObjG", epsilon, E, kind).average
    axes.semilogy(
        np.arange(1, average.shape[1] + 1), np.median(average, axis=0),
        color=COLOURS["ObjG"], ls=(0, (5, 1, 1, 1, 1, 1)), lw=1, label="ObjG, average",
    )  # fmt: skip
    silent = study.no_noise[E]
    axes.plot(np.arange(1, silent.size + 1), silent, "-", color=GREY, lw=0.8, label="no noise")
    axes.axhline(study.no_data, color=GREY, lw=0.8, ls="--", label="no data: the start")
    if kind == "derived":
        axes.axhline(study.once[epsilon, E], color="k", lw=1.2, ls=":", label="released once")
    gaussian, laplace = totals[0], totals[1]
    kind_of = "in total" if gaussian.kind == "worst-case" else "claimed in total, not proved"
    axes.set_title(
        f"{kind_of}: Gaussian ({gaussian.epsilon:.3g}, {gaussian.delta:g}),\n"
        f"Laplace ({laplace.epsilon:.3g}, {laplace.delta:g})"
    )
    pictures.whole_rounds(axes)
    if first:  # above the curves, where it hides none
        low, high = np.log10(axes.get_ylim())
        axes.set_ylim(top=10 ** (high + 0.6 * (high - low)))
        axes.legend(ncols=3, loc="upper center")


def _draw_residual(axes: Axes, study: Study, epsilon: float, kind: Sensitivity) -> None:
    for E, color, line in zip(study.updates, (BLUE, PINK), ("-", "--"), strict=False):
        _band(axes, study.find("ObjG", epsilon, E, kind).residual, color, f"E = {E}", line)
    pictures.whole_rounds(axes)
    axes.legend()


def _band(axes: Axes, curves: NDArray[np.float64], color: str, label: str, line: str) -> None:
    low, middle, high = quartiles(curves.tolist())
    rounds = np.arange(1, middle.size + 1)
    axes.semilogy(rounds, middle, line, color=color, lw=1.2, label=label)
    axes.fill_between(rounds, low, high, color=color, alpha=0.2, lw=0)


def main(arguments: Sequence[str] | None = None) -> list[Study]:
    """Run the study, print its tables, draw its figures."""
    parser = argparse.ArgumentParser(prog="python -m examples.ryu_kim_power_flow")
    parser.add_argument("--full", action="store_true", help="both cases, all budgets, E = 1 and 5")
    parser.add_argument("--cases", nargs="+", help="bundled cases (default 14; --full: 14 118)")
    parser.add_argument("--epsilons", nargs="+", type=positive, help="budgets per local update")
    parser.add_argument("--local-updates", nargs="+", type=count(), metavar="E")
    parser.add_argument("--seeds", type=count(), help="runs per setting (default 2; --full: 5)")
    parser.add_argument("--rounds", type=count(), default=ROUNDS, help="of every run (100)")
    parser.add_argument(
        "--shared", choices=("flow", "voltage"), default="flow", help="what zones agree on"
    )
    add_plot(parser)
    options = parser.parse_args(arguments)
    cases = options.cases or (["14", "118"] if options.full else ["14"])
    epsilons = options.epsilons or (EPSILONS if options.full else (EPSILONS[0], EPSILONS[-1]))
    updates = options.local_updates or ((1, 5) if options.full else (1,))
    seeds = options.seeds or (5 if options.full else 2)
    found = []
    silent = not sys.stdout.isatty()
    with in_words(parser):
        with Progress(disable=silent, transient=True) as progress:
            for case in cases:
                task = progress.add_task(
                    f"case {case}", total=len(settings(case, epsilons, updates))
                )
                study = power_flow(case, radius=BETA, shared=options.shared)
                for outcome in run(study, case, epsilons, updates, options.rounds, seeds):
                    progress.advance(task)
                    if isinstance(outcome, Study):
                        found.append(outcome)
        for study in found:
            print(table(study))
            if options.plot:
                kinds: tuple[Sensitivity, ...] = ("paper", "derived")
                drawn = {f"ryu_kim_case_{study.case}_{kind}": draw(study, kind) for kind in kinds}
                pictures.announce(drawn, options.plot, options.format)
    return found


if __name__ == "__main__":
    main()
