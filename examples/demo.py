"""What noise hides and what it costs, on the 14-bus network, whose three zones keep loads private.

An eavesdropper hears what the zones exchange. Without noise, the voltages at their borders give
every load away; with noise, loads are known as well as epsilon says. What the same guarantee costs
depends on where the noise goes: into every step, or once on the loads, with no noise after that.

    python -m examples.demo --plot out
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import dpcvx as dp
from dpcvx.sensitivity.release_once import Publication
from problems import pictures
from problems.commands import add_plot, count, in_words
from problems.pictures import BLUE, GREY, ORANGE, RED, TWO_COLUMNS, styled
from problems.power_flow.attack import loads_from_messages, shared_messages
from problems.power_flow.report import assess
from problems.power_flow.study import PowerFlow, power_flow

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Floats = NDArray[np.float64]

EPSILONS, DELTA = (0.1, 0.3, 1.0, 3.0, 10.0), 1e-6
RADIUS = 0.01
"""The change of a load that stays hidden: 1 MW."""
HEARD = 5
"""Rounds that the eavesdropper hears of the run without noise."""
PAPER = dp.LinearizedADMM(penalty=100.0, step=dp.steps.Sqrt())
"""The method, the penalty and the step sizes of Ryu and Kim's study."""


@dataclass(frozen=True, eq=False)
class Spent:
    """Runs at one budget, measured against the true loads: not private.

    Attributes
    ----------
    plan : dp.Plan
    estimates : ndarray, shape (runs, buses)
        The eavesdropper's estimates of the active loads, in MW.
    wrong : ndarray, shape (runs,)
        Power imbalance, summed over the buses, in MW.
    """

    plan: dp.Plan
    estimates: Floats
    wrong: Floats


@dataclass(frozen=True, eq=False)
class Findings:
    """What was heard and what was spent, in MW. Not private.

    Attributes
    ----------
    loads : ndarray, shape (buses,)
        The true ones.
    known : ndarray, shape (buses,)
        What the messages of a run without noise say about them.
    well, badly : dict
        Epsilon to the runs with noise once, and with noise in every step.
    noiseless : float
        Power imbalance that the plan with noise once would have without any noise.
    """

    loads: Floats
    known: Floats
    well: Mapping[float, Spent]
    badly: Mapping[float, Spent]
    noiseless: float

    @property
    def total(self) -> float:
        """Sum of all loads: the power imbalance where nobody is served."""
        return float(self.loads.sum())

    def error(self, spent: Spent) -> float:
        """Root mean square error of the eavesdropper's estimates."""
        return float(np.sqrt(np.mean((spent.estimates - self.loads) ** 2)))

    def __str__(self) -> str:
        def row(label: str, values: Iterable[float]) -> str:
            return f"{label:<45}" + "".join(f"{_digits(value):>7}" for value in values)

        missed = f"  Power imbalance in MW, of {self.total:.0f}"
        worst = np.abs(self.known - self.loads).max()
        lines = [
            f"Three zones serve {self.total:.0f} MW. Whether a load is 1 MW higher stays hidden.",
            f"Without noise, an eavesdropper of {HEARD} rounds knows every load to {worst:.3f} MW.",
            row("With noise, at a total epsilon of", self.well),
        ]
        for name, runs in (
            ("Noise once, on the loads", self.well),
            ("Every step, as published", self.badly),
        ):
            lines.append(row(f"{name}: known to within, MW", map(self.error, runs.values())))
            lines.append(row(missed, (float(np.median(s.wrong)) for s in runs.values())))
        lines.append(row("No data at all, nobody served", [self.total] * len(self.well)))
        return "\n".join(lines)


def find(study: PowerFlow, epsilons: Sequence[float], seeds: Sequence[int]) -> Findings:
    """Attack a run without noise, then spend every budget in both ways, and attack these runs."""
    return Findings(
        loads=active(study, [study.case.load[buses] for buses in study.zones.buses]),
        known=overheard(study),
        well={e: spend(study, chosen(study, e), seeds) for e in epsilons},
        # Slow, and far from the others whatever the seed.
        badly={e: spend(study, each_step(study, e), seeds[::3]) for e in epsilons},
        noiseless=without_noise(study),
    )


def active(study: PowerFlow, by_zone: Sequence[Floats]) -> Floats:
    """Active powers of all buses in MW, from the loads of the zones in per unit."""
    whole = np.zeros(study.case.bus.id.size)
    for buses, loads in zip(study.zones.buses, by_zone, strict=True):
        whole[buses] = study.case.base_mva * loads[:, 0]
    return whole


def overheard(study: PowerFlow) -> Floats:
    """Loads that the messages of a run without noise give away, in MW."""
    plan = study.problem.plan(PAPER, mechanism=None, rounds=HEARD)
    return active(study, loads_from_messages(plan, shared_messages(plan, plan.run(iterates=True))))


def each_step(study: PowerFlow, epsilon: float) -> dp.Plan:
    """The budget divided among a hundred noisy gradients."""
    return study.problem.plan(PAPER, rounds=100, epsilon=epsilon, delta=DELTA)


def chosen(study: PowerFlow, epsilon: float) -> dp.Plan:
    """The budget spent as the plan chooses: on one release of the loads."""
    return study.problem.plan(epsilon=epsilon, delta=DELTA)


def spend(study: PowerFlow, plan: dp.Plan, seeds: Sequence[int]) -> Spent:
    """Run a plan once per seed, and attack every run."""
    estimates, wrong = [], []
    for seed in seeds:
        result = plan.run(seed=seed, record=True)
        assert result.transcript is not None
        found = dp.reconstruct(plan, result.transcript)
        estimates.append(active(study, [guess.value for guess in found.guesses]))
        wrong.append(sum(zone.active for zone in assess(study, result).zones))
    return Spent(plan, np.array(estimates), np.array(wrong))


def without_noise(study: PowerFlow) -> float:
    """Power imbalance, in MW, where the server is told the loads themselves."""
    result = study.problem.plan(dp.OneShot(), mechanism=None).run()
    return sum(zone.active for zone in assess(study, result).zones)


def why(study: PowerFlow, plan: dp.Plan) -> str:
    """Where the guarantee of one release comes from."""
    zone = plan.agents[0]
    assert zone.noise is not None and isinstance(zone.publication, Publication)
    change = study.case.base_mva * RADIUS
    scale = zone.noise.multiplier * zone.publication.sensitivity
    scale *= study.case.base_mva / zone.publication.encode.diagonal()[0]
    noise = type(zone.noise.mechanism).__name__
    return (
        f"Guarantee: {plan.guarantee.headline}.\n"
        f"Derived: {change:g} MW of load moves the release by {change:g} MW; "
        f"{noise} noise of scale {scale:.3g} MW."
    )


@styled
def draw(found: Findings) -> Figure:
    """What the eavesdropper sees of each load, and what the answers miss at each budget."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(TWO_COLUMNS, 3.3))
    left, right = figure.subplots(1, 2)
    _seen(left, found)
    _missed(right, found)
    for axes in (left, right):
        axes.title.set_fontweight("bold")
    figure.supxlabel(
        "each dot is one run, measured against the true loads: not private", fontsize=8, color=GREY
    )
    return figure


def _seen(axes: Axes, found: Findings) -> None:
    order = np.argsort(-found.loads, kind="stable")
    at = np.arange(order.size)
    axes.bar(at, found.loads[order], 0.85, color="#e1e4e8", label="true load")
    label = "without noise: exact"
    axes.plot(at, found.known[order], "_", ms=9, mew=1.4, color="black", label=label)
    budgets = (max(e for e in found.well if e <= 1), min(found.well))
    marks = ((-0.2, BLUE, "o"), (0.2, ORANGE, "^"))
    for (shift, color, mark), epsilon in zip(marks, budgets, strict=True):
        spent = found.well[epsilon]
        label = f"epsilon {epsilon:g}: to within {_digits(found.error(spent))} MW"
        places = np.tile(at + shift, len(spent.estimates))
        axes.plot(places, spent.estimates[:, order].ravel(), label=label, **_dots(color, mark))
    axes.axhline(0, color="0.4", lw=0.8)
    axes.set_xticks(at, [str(bus) for bus in order + 1])
    axes.set(xlabel="bus", ylabel="load, MW", title="What an eavesdropper sees")
    handles, labels = axes.get_legend_handles_labels()
    bars = labels.index("true load")
    order = [bars, *(i for i in range(len(labels)) if i != bars)]
    axes.legend([handles[i] for i in order], [labels[i] for i in order], loc="upper right")


def _missed(axes: Axes, found: Findings) -> None:
    budgets = list(found.well)
    for name, runs, color, line, mark in (
        ("the paper's noisy steps", found.badly, RED, "--", "^"),
        ("noise once, on the loads", found.well, BLUE, "-", "o"),
    ):
        middle = {epsilon: float(np.median(spent.wrong)) for epsilon, spent in runs.items()}
        axes.loglog(budgets, list(middle.values()), line, color=color, lw=1.6)
        for epsilon, spent in runs.items():
            axes.plot(np.full(spent.wrong.size, epsilon), spent.wrong, **_dots(color, mark))
        named = max(e for e in budgets if e <= 1)
        axes.annotate(
            f"{name}\n{_digits(middle[named])} MW at epsilon {named:g}",
            (named, middle[named]),
            (6, 18),
            textcoords="offset points",
            color=color,
            fontweight="bold",
            fontsize=7,
        )
    floor, top = axes.get_ylim()
    axes.set_ylim(floor, 2 * top)  # room for names
    for height, line, what in (
        (found.total, "-.", "no data at all"),
        (floor, ":", f"no noise: {found.noiseless:.1g} MW, below the scale"),
    ):
        axes.axhline(height, color=GREY, ls=line, lw=1.2)
        axes.annotate(
            what, (budgets[0], height), (0, 3), textcoords="offset points", color=GREY, fontsize=7
        )
    axes.set_xticks(budgets, [f"{epsilon:g}" for epsilon in budgets])
    axes.yaxis.set_major_formatter("{x:g}")
    axes.minorticks_off()
    axes.set(xlabel="total epsilon", ylabel=f"power imbalance in MW, of {found.total:.0f}")
    axes.set(title="What privacy costs")


def _dots(color: str, mark: str) -> dict[str, Any]:
    return dict(color=color, marker=mark, ls="", ms=4, mec="white", mew=0.4)


def _digits(value: float) -> str:
    """Two significant digits, and all that stand before the point."""
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Find, tell and draw."""
    parser = argparse.ArgumentParser(prog="python -m examples.demo")
    parser.add_argument("--seeds", type=count(), default=10, help="runs per budget (default 10)")
    add_plot(parser, "the picture")
    options = parser.parse_args(arguments)
    with in_words(parser):
        study = power_flow(14, radius=RADIUS)
        found = find(study, EPSILONS, range(options.seeds))
        print(found)
        print(why(study, found.well[1.0].plan))
        if options.plot:
            pictures.announce({"demo": draw(found)}, options.plot, options.format)


if __name__ == "__main__":
    main()
