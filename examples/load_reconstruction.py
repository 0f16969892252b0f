"""An eavesdropper reconstructs private loads: exactly without noise, to some 6 MW at epsilon = 1.

Three zones of the 14-bus network agree on a power flow. First, nobody adds noise: from the voltages
that the zones exchange at their borders, an eavesdropper computes every load. Then the zones add
noise, to fifty gradients or once to the loads. From everything that leaves them, loads can be
estimated to about 6 MW at a total epsilon of 1, to 45 MW at 0.1, and to 0.7 MW at 10.

    python -m examples.load_reconstruction --plot out
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

import dpcvx as dp
from problems import pictures
from problems.commands import count, folder, in_words
from problems.power_flow.attack import (
    loads_from_messages,
    loads_from_once,
    loads_from_releases,
    shared_messages,
)
from problems.power_flow.study import PowerFlow, power_flow

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RADIUS, DELTA, SCALE = 0.01, 1e-6, 1.5
EPSILONS = (0.1, 1.0, 10.0, 100.0)
METHOD = dp.LinearizedADMM(penalty=100.0, step=dp.steps.Sqrt())


def error(study: PowerFlow, estimates: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Root mean square error of the loads of each zone, in MW and MVAr. Not private."""
    case = study.case
    true = [study.load_scale * case.load[buses] for buses in study.zones.buses]
    return case.base_mva * np.array(
        [np.sqrt(np.mean((e - d) ** 2)) for e, d in zip(estimates, true, strict=True)]
    )


def unprotected(study: PowerFlow, rounds: Sequence[int]) -> dict[int, NDArray[np.float64]]:
    """Error of the attack on a run without noise, by the number of rounds overheard."""
    plan = study.problem.plan(METHOD, mechanism=None, rounds=max(rounds))
    messages = shared_messages(plan, plan.run(iterates=True))
    return {t: error(study, loads_from_messages(plan, messages[:t])) for t in rounds}


def protected(study: PowerFlow, epsilon: float, rounds: int, seed: int) -> tuple[float, float]:
    """Errors at a total epsilon: noise in every gradient, and once on the loads."""
    plan = study.problem.plan(METHOD, rounds=rounds, epsilon=epsilon, delta=DELTA)
    result = plan.run(seed=seed, iterates=True, record=True)
    each = error(study, loads_from_releases(plan, result))
    plan = study.problem.plan(
        dp.ADMM(penalty=10.0), rounds=1, epsilon=epsilon, delta=DELTA, release="once"
    )
    once = error(study, loads_from_once(plan, plan.run(seed=seed, record=True)))
    return float(np.sqrt(np.mean(each**2))), float(np.sqrt(np.mean(once**2)))


def draw(
    study: PowerFlow,
    open_run: dict[int, NDArray[np.float64]],
    errors: dict[float, NDArray[np.float64]],
) -> Figure:
    """Error of the attacks against rounds overheard, and against the budget."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    for zone, name in enumerate(study.zones.names):
        left.semilogy(list(open_run), [e[zone] for e in open_run.values()], "o-", ms=4,
                      label=f"zone {name}")  # fmt: skip
    left.set(xlabel="rounds overheard", ylabel="error of the estimated loads, MW",
             title="no noise: border voltages only")  # fmt: skip
    for column, (label, style) in enumerate((("in every gradient", "o-"), ("once", "s--"))):
        values = np.array([e[:, column] for e in errors.values()])
        right.loglog(list(errors), np.median(values, axis=1), style, ms=4, label=f"noise {label}")
    for axes in (left, right):
        spread = study.case.base_mva * study.load_scale * float(np.std(study.case.load))
        axes.axhline(spread, color="0.5", ls=":", label="spread of the loads")
        axes.axhline(study.case.base_mva * RADIUS, color="0.5", ls="-.", label="one change")
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
    right.set(xlabel=f"total epsilon at delta {DELTA:g}", title="noise: everything that leaves")
    figure.suptitle(f"{study.case.name}: errors are computed on the true loads, not private")
    return figure


def main(arguments: Sequence[str] | None = None) -> None:
    """Run both attacks."""
    parser = argparse.ArgumentParser(prog="python -m examples.load_reconstruction")
    parser.add_argument(
        "--rounds", type=count(), default=8, help="overheard without noise (default 8)"
    )
    parser.add_argument("--seeds", type=count(), default=2, help="protected runs per budget")
    parser.add_argument("--plot", type=folder, metavar="DIR", help="write the figure")
    options = parser.parse_args(arguments)
    with in_words(parser):
        study = power_flow(14, load_scale=SCALE, radius=RADIUS)
        heard = sorted({1, 2, 4, options.rounds} - set(range(options.rounds + 1, 5)))
        open_run = unprotected(study, heard)
        print(f"{study.case.name}: root mean square error of the estimated loads in MW, by zone")
        print("errors are computed on the true loads: not private")
        print("without noise, from the voltages that the zones exchange:")
        for t, zones in open_run.items():
            rounds = "1 round" if t == 1 else f"{t} rounds"
            print(f"  {rounds:>9} overheard: " + ", ".join(f"{e:.2g}" for e in zones))
        print(f"with noise, from everything that leaves (one change is {100 * RADIUS:g} MW):")
        print(f"  {'total epsilon':>14}{'every gradient':>16}{'once':>10}")
        errors = {}
        for epsilon in EPSILONS:
            runs = [protected(study, epsilon, 50, seed) for seed in range(options.seeds)]
            errors[epsilon] = np.array(runs)
            each, once = np.median(errors[epsilon], axis=0)
            print(f"  {epsilon:>14g}{each:>16.3g}{once:>10.3g}")
        if options.plot:
            drawn = draw(study, open_run, errors)
            pictures.announce({"load_reconstruction.png": drawn}, options.plot)


if __name__ == "__main__":
    main()
