r"""Nonconvex classification over a network, as in Ou, Wang, Liu and Lu, section VI.

Figures 1 and 2 as printed (the gap against rounds, by the decay r and the scale u of the noise)
with what every curve guarantees in total. DPP2 beside PPDC after K = 500 rounds, by the decay: not
Figure 3, which `python -m problems.papers --figure ou_figure_3` runs. Figure 3 the other way
round: the gap against the total epsilon, the same for all methods, whose parameters come from one
public search. Besides, what the first tier of privacy hides, what damps disagreement, and which of
the paper's conditions its parameters violate. Records are made up; gaps are computed on them in the
open and are not private.

As printed, noise has the scales u r^k, points are the agents' own, and M = 5.03 is the constant of
the records that are drawn, as in the paper (`printed.py` of the study). The curves then do what the
paper shows: they converge, sooner for smaller r and u. They do so because noise that falls like r^k
protects nothing after the first rounds: at r = 0.95 and u = 1 the total epsilon is 2e12, at r = 0.9
it is 6e23. Theorems 1 and 2 do not prove that convergence (below); curvature of the records does
the damping.

In the comparison at one total, rows are so short that M is 5.03 for all data of that length.

    python -m examples.ou_nonconvex                                # a small network, half a minute
    python -m examples.ou_nonconvex --full --plot out --workers 2  # the paper's sizes, half an hour
    python -m examples.ou_nonconvex --full --tune --workers 2      # the search, 2 minutes

There noise is relative to what it has to cover. The first point is public and has none. Points are
measured as they leave, with their noise: the paper measures x itself, which agents cannot hand out
without uncovering their last gradient.

Differences from the paper, and what it prints that is not so. `problems.refutations.ou` has each
refutation with the hypotheses that it keeps; `theory.py` of the study has the derivations.

* P is I - W with Metropolis weights: with a Laplacian, G is not positive definite at alpha = 0.1
  and beta = 0.05. Conditions (25) to (27) fail in any case (printed below).
* Theorem 3 counts K rounds, and Algorithm 1 runs K + 1 of them, from k = 0 on (printed below,
  beside the sum over all). For K rounds it holds. At 501 rounds the difference does not show.
  Corollary 1 is wrong: noise is calibrated by the sum itself.
* r = 0 leaves noise in round 0 only, and no guarantee: here it has none at all. epsilon grows like
  r^-K: where a curve of Figure 1 or 2 is below the gap of the start, its noise is no protection.
* Figure 3 compares methods at the same decay and calls it the same privacy. Their sensitivities
  differ, and so do their epsilons. The paper's order of DPP2 and PPDC holds at its settings.
* Merged variables hide nothing from anyone who knows eta, as the adversary of Theorem 3 does and
  every agent: x + w follows from two messages in a row. An outsider without eta has one unknown
  number a round. The paper concedes that this tier alone cannot keep objectives confidential.
* Theorems 1 and 2 fail without curvature: disagreement is damped by nothing else.
* The measure of Figure 3, read as the agents' gradients one below the other, is not zero at a
  stationary point; their mean is. (31) is used throughout.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from matplotlib.figure import Figure

from problems import pictures
from problems.commands import add_plot, count, in_words
from problems.nonconvex_classification import figures, printed
from problems.nonconvex_classification.experiment import (
    ALPHA,
    BETA,
    DECAY,
    RHO,
    Contest,
    Curve,
    Damping,
    Eavesdropping,
    Size,
    Trace,
    chosen,
    damping_of,
    eavesdrop,
    run_one,
    setting,
    spread,
    violated,
)
from problems.nonconvex_classification.methods import DELTA, EPSILONS, METHODS, Choice, Method
from problems.nonconvex_classification.tuned import CHOICES
from problems.nonconvex_classification.tuning import SEEDS
from problems.papers import entry
from problems.progress import done, with_bar

# Of the paper.
DECAYS = entry("ou_wang_liu_lu", "figure_1").numbers("r")
SCALES = entry("ou_wang_liu_lu", "figure_2").numbers("u")


@dataclass(frozen=True)
class Mode:
    """How much is run.

    Attributes
    ----------
    size : Size
    printed : Size
        Of Figures 1 and 2 as printed, and of PPDC.
    rounds : int
        K + 1 of these.
    heard : int
        Rounds that the eavesdropper hears.
    decays, scales, epsilons : tuple of float
    methods : tuple of Method
    seeds : int
        Runs of every method and epsilon.
    most : int
        Rounds that a method has at most: later ones of its choice are left out.
    swings : int
        Rounds of the counterexample to Theorem 2.
    """

    size: Size
    printed: Size
    rounds: int
    heard: int
    decays: tuple[float, ...]
    scales: tuple[float, ...]
    epsilons: tuple[float, ...]
    methods: tuple[Method, ...]
    seeds: int
    most: int
    swings: int


SHORT = Mode(
    Size(8, 200, 10, None, 0.6), Size(), 501, 30, DECAYS, SCALES, (1.0, 1e3), METHODS, 1, 30, 250,
)  # fmt: skip
FULL = Mode(Size(), Size(), 501, 200, DECAYS, SCALES, EPSILONS, METHODS, 3, 100, 600)


@dataclass(frozen=True, eq=False)
class Found:
    """All results.

    Attributes
    ----------
    mode : Mode
    decays, scales : dict of Curve to Trace
        Figures 1 and 2, as printed.
    primal_dual : dict of str to dict of Curve to Trace
        PPDC at the decays of Figure 1: with its own noise, and with noise that stays in the points.
    noiseless : Trace
        Of DPP2 in the setting of the contests, as many rounds as methods have there at most.
    contests : dict of Method to dict of float to list of Trace
        By total epsilon.
    start : float
        Mean gap at the public start.
    eavesdropping : Eavesdropping
    damping : Damping
    violated : list of str
        Of the paper's conditions, by its parameters.
    """

    mode: Mode
    decays: dict[Curve, Trace]
    scales: dict[Curve, Trace]
    primal_dual: dict[str, dict[Curve, Trace]]
    noiseless: Trace
    contests: dict[Method, dict[float, list[Trace]]]
    start: float
    eavesdropping: Eavesdropping
    damping: Damping
    violated: list[str]


def experiment(mode: Mode, workers: int = 1) -> Found:
    """Everything, with a progress bar."""
    by_decay = [Curve(r, 1.0, mode.rounds) for r in mode.decays]
    by_scale = [Curve(DECAY, u, mode.rounds) for u in mode.scales]
    matches = [
        Contest(method, limited(CHOICES[method.name, epsilon], mode.most), epsilon)
        for method in mode.methods
        for epsilon in mode.epsilons
    ]
    jobs = [(what, mode.size, seed) for what in matches for seed in range(mode.seeds)]
    # One run without noise, and one where both figures meet.
    curves = list(dict.fromkeys(_same(curve) for curve in (*by_decay, *by_scale)))
    runs = [printed.run(curve, mode.printed, 0) for curve in with_bar(curves, "as printed")]
    shown = dict(zip(curves, runs, strict=True))
    silent = Curve(0.0, 0.0, mode.most)
    everything = [(silent, mode.size, 0), *jobs]
    made = dict(zip(everything, done(run_one, everything, workers, "runs"), strict=True))
    contests: dict[Method, dict[float, list[Trace]]] = {m: {} for m in mode.methods}
    for match, size, seed in jobs:
        contests[match.method].setdefault(match.epsilon, []).append(made[match, size, seed])
    zero = np.zeros((mode.size.agents, mode.size.size))
    starts = [setting(mode.size, seed).measures.gap(zero) for seed in range(mode.seeds)]
    return Found(
        mode,
        {curve: shown[_same(curve)] for curve in by_decay},
        {curve: shown[_same(curve)] for curve in by_scale},
        {
            name: {c: printed.primal_dual(c, mode.printed, 0, kept=kept) for c in by_decay}
            for name, kept in (("PPDC, its own noise", False), ("PPDC, noise that stays", True))
        },
        made[silent, mode.size, 0],
        contests,
        float(np.mean(starts)),
        eavesdrop(Curve(DECAY, 1.0, mode.heard), mode.size, 0),
        damping_of(mode.size, mode.swings),
        violated(setting(mode.size, 0)),
    )


def limited(choice: Choice, most: int) -> Choice:
    """With at most so many rounds."""
    return replace(choice, rounds=min(choice.rounds, most))


def _same(curve: Curve) -> Curve:
    return replace(curve, decay=0.0, scale=0.0) if curve.silent else curve


def table(found: Found) -> str:
    """All tables."""
    mode, own = found.mode, setting(found.mode.size, 0)
    lines = [
        f"Nonconvex classification, N = {mode.size.agents}, m = {mode.size.each}, "
        f"d = {mode.size.size}, {len(own.network.edges)} edges, M = {own.study.smoothness:g}, "
        f"delta = {own.study.sensitivity:.4g}: a replaced record moves",
        "a gradient so far, in l2. Gaps (31) are computed on the records in the open: not private.",
    ]
    lines += _curves(
        mode.printed,
        found.decays,
        "Figure 1: scale u = 1, by the decay r",
        lambda c: c.decay,
    )
    lines += _primal_dual(found)
    lines += _curves(
        mode.printed,
        found.scales,
        f"Figure 2: decay r = {DECAY:g}, by the scale u",
        lambda c: c.scale,
    )
    lines += _contests(found)
    lines += _eavesdropping(found.eavesdropping)
    lines += _damping(found.damping)
    lines += _violated(found)
    return "\n".join(lines)


def _curves(
    size: Size, curves: dict[Curve, Trace], title: str, of: Callable[[Curve], float]
) -> Iterator[str]:
    K = next(iter(curves)).rounds - 1
    yield (
        f"{title}; as printed: N = {size.agents}, alpha = {ALPHA:g}, beta = {BETA:g}, "
        f"rho = {RHO:g}, 1 run"
    )
    yield (
        f"   {'':<8}{'gap at 0':>10}{'largest':>10}{f'at {K}':>10}{'total epsilon':>16}"
        f"{'Theorem 3':>12}"
    )
    arrays = printed.drawn(size, 0)
    for curve, trace in curves.items():
        claimed, _ = printed.epsilons(arrays, curve)
        # Of x^K, not of the point after the last round.
        cells = f"{trace.gap[0]:>10.3g}{trace.gap.max():>10.3g}{trace.gap[K]:>10.3g}"
        cells += f"{_total(trace.epsilon):>16}"
        worth = "   no guarantee"
        if not curve.silent:
            cells += f"{claimed:>12.4g}"
            worth = "   no protection" if trace.epsilon >= figures.NO_PROTECTION else ""
        yield f"   {of(curve):<8g}{cells}{worth}"


def _primal_dual(found: Found) -> Iterator[str]:
    K = found.mode.rounds - 1
    yield (f"PPDC at the same scales and decays (not Figure 3): gap at {K}, and total epsilon")
    yield f"   {'':<8}" + "".join(f"{name:>28}" for name in found.primal_dual)
    for k, r in enumerate(found.mode.decays):
        own = [list(traces.values())[k] for traces in found.primal_dual.values()]
        cells = [f"{trace.gap[K]:.3g}, {_total(trace.epsilon)}" for trace in own]
        yield f"   {r:<8g}" + "".join(f"{cell:>28}" for cell in cells)


def _total(epsilon: float) -> str:
    return "none" if np.isinf(epsilon) else f"{epsilon:.4g}"


def _contests(found: Found) -> Iterator[str]:
    seeds = found.mode.seeds
    yield (
        f"All methods at the same total epsilon: gap after the last round, mean of {seeds} "
        f"run{'' if seeds == 1 else 's'} (least to largest); {found.start:.3g} at the public start"
    )
    yield f"   {'':<28}" + "".join(f"{f'epsilon = {e:g}':>28}" for e in found.mode.epsilons)
    for method, own in found.contests.items():
        cells = ""
        for traces in own.values():
            mean, low, high = spread(traces)
            span = "" if seeds == 1 else f" ({low:.2g} to {high:.2g})"
            cells += f"{f'{mean:.3g}{span}':>28}"
        yield f"   {method.name:<28}{cells}"
    yield f"   {'least':<28}" + "".join(f"{best(found, e):>28}" for e in found.mode.epsilons)
    yield (
        f"   Gaussian: (epsilon, {DELTA:g})-DP; all others (epsilon, 0)-DP. Above "
        f"{figures.NO_PROTECTION:g}, epsilon is no protection."
    )
    yield (
        f"   Parameters: of a grid, the best on records with seeds {SEEDS[0]} and {SEEDS[1]} and "
        "the paper's sizes (step, rounds, decay, scale of w over e)"
    )
    for method in found.mode.methods:
        cells = [_choice(CHOICES[method.name, e], method, found) for e in found.mode.epsilons]
        yield f"   {method.name:<28}" + "".join(f"{cell:>28}" for cell in cells)


def best(found: Found, epsilon: float) -> str:
    """Name of the method with the least mean gap, if that is below the start's."""
    means = {m.name: spread(own[epsilon])[0] for m, own in found.contests.items()}
    name = min(means, key=lambda own: means[own])
    return name if means[name] < found.start else "the public start"


def _choice(choice: Choice, method: Method, found: Found) -> str:
    own = limited(choice, found.mode.most)
    cells = f"{own.step:g}, {own.rounds}, {own.decay:g}"
    return f"{cells}, {own.ratio:g}" if method.double else cells


def _eavesdropping(own: Eavesdropping) -> Iterator[str]:
    yield f"What eta hides, at r = {DECAY:g} and u = 1: root mean squares"
    yield (
        f"   {'round':<8}{'x':>10}{'noise w':>10}{'y - (x + w)':>14}   left with "
        "two messages and the public eta"
    )
    for k in np.unique(np.linspace(1, own.noise.size - 1, 4).astype(int)):
        yield (
            f"   {k:<8}{own.length[k]:>10.3g}{own.noise[k]:>10.3g}{own.merged[k]:>14.3g}   "
            f"{own.recovered[k]:.1g}"
        )


def _damping(own: Damping) -> Iterator[str]:
    yield "Factor by which disagreement changes per round where all agents have the same curvature"
    heads = ["as printed" if sigma == 0 else f"damping = {sigma:g}" for sigma in own.dampings]
    yield f"   {'curvature':<12}" + "".join(f"{head:>16}" for head in heads)
    for h in dict.fromkeys(curvature for curvature, _ in own.rates):
        cells = "".join(f"{own.rates[h, sigma]:>16.6f}" for sigma in own.dampings)
        yield f"   {h:<12g}{cells}"
    ends = ", ".join(f"{g[-1]:.2g} {head}" for g, head in zip(own.gaps, heads, strict=True))
    yield (
        f"   Curvatures -1, -1 and 3, a strongly convex sum, against Theorem 2: gap "
        f"{own.gaps[0, 0]:.2g} at first, after {own.gaps.shape[1] - 1} rounds {ends}"
    )


def _violated(found: Found) -> Iterator[str]:
    yield "Conditions of the paper that its parameters violate on this network"
    for words in found.violated:
        yield f"   {words}"


def draw(found: Found) -> dict[str, Figure]:
    """The figures by name."""
    mode = found.mode
    title = f"N = {mode.size.agents}, m = {mode.size.each}, d = {mode.size.size}"
    panels = {
        "Figure 1: scale u = 1": {f"r = {c.decay:g}": t for c, t in found.decays.items()},
        f"Figure 2: decay r = {DECAY:g}": {f"u = {c.scale:g}": t for c, t in found.scales.items()},
    }
    runs = f"{mode.seeds} run{'' if mode.seeds == 1 else 's'}"
    return {
        "rounds": figures.rounds(
            panels,
            "As printed, the sooner DPP2 converges the less it protects: "
            f"N = {mode.printed.agents}, m = {mode.printed.each}, 1 run",
        ),
        "decays": figures.decays(
            {
                name: {curve.decay: trace for curve, trace in own.items()}
                for name, own in {"DPP2": found.decays, **found.primal_dual}.items()
            },
            mode.rounds - 1,
        ),
        "epsilon": figures.contests(
            found.contests, found.start,
            found.noiseless.end,
            f"All methods at the same total guarantee: {title}, at most {mode.most} rounds, {runs}",
        ),
        "messages": figures.messages(found.eavesdropping, f"r = {DECAY:g}, u = 1, {title}"),
        "damping": figures.damping(found.damping),
    }  # fmt: skip


def tune(mode: Mode, workers: int = 1) -> dict[tuple[str, float], Choice]:
    """Search anew, and print what `CHOICES` has to be."""
    jobs = [(method, epsilon, mode.size) for method in mode.methods for epsilon in mode.epsilons]
    found = {}
    for (method, epsilon, _), (choice, gap) in zip(
        jobs, done(_chosen, jobs, workers, "methods"), strict=True
    ):
        found[method.name, epsilon] = choice
        values = f"{choice.step:g}, {choice.rounds}, {choice.decay}, {choice.ratio}"
        print(
            f'    ("{method.name}", {epsilon:g}): Choice({values}, "{choice.report}"),  # {gap:.3g}'
        )
    return found


def _chosen(job: tuple[Method, float, Size]) -> tuple[Choice, float]:
    return chosen(*job)


def main(arguments: Sequence[str] | None = None) -> Found | None:
    """Run, print, draw."""
    parser = argparse.ArgumentParser(prog="python -m examples.ou_nonconvex")
    parser.add_argument("--full", action="store_true", help="the paper's sizes")
    parser.add_argument("--tune", action="store_true", help="search for the parameters, and stop")
    parser.add_argument("--seeds", type=count(), help="runs of every method and epsilon")
    parser.add_argument("--workers", type=count(), default=1, help="processes")
    add_plot(parser)
    options = parser.parse_args(arguments)
    mode = FULL if options.full else SHORT
    mode = replace(mode, seeds=options.seeds or mode.seeds)
    with in_words(parser):
        if options.tune:
            tune(mode, options.workers)
            return None
        found = experiment(mode, options.workers)
        print(table(found))
        if options.plot:
            drawn = {f"ou_{name}": figure for name, figure in draw(found).items()}
            pictures.announce(drawn, options.plot, options.format)
    return found


if __name__ == "__main__":
    main()
