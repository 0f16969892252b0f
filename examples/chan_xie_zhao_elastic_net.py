"""Noisy gradient ADMM on an elastic net, as in Chan, Xie and Zhao, section 10.

Figure 1 (gap against iteration for four pairs of mu and beta, and for five noise levels), Tables 1
and 2, Theorem 9.1 over what it bounds, and what the paper's own code lacks: epsilon, by position of
the user and against the number of iterations, for an observer of every iterate and for one who
learns the last iterate only. Plans guarantee the one or the other; the tables are by formula, and a
plan of each order is printed too. Both need gradients clipped, as squares have no bounded
sensitivity; Figure 1 and the tests are without, as published.

The short mode runs `dp.GradientADMM` on 40 users in turn; `--full` repeats the paper's sizes with
the same iteration in numpy (users drawn with replacement), and runs the package once on 1000 users.
Gaps are computed on the users' data in the open: not private.

    python -m examples.chan_xie_zhao_elastic_net                     # 40 seconds
    python -m examples.chan_xie_zhao_elastic_net --full --plot out   # as long

Where the paper differs from what is computed here:

* Table 1's first eta, 1.95, is eta / beta. The formula gives 1.753.
* Its L is a contraction factor of strongly convex losses. ``(a'x - b)^2`` has rank one, so Theorem
  7.2 applies to none of the runs, and Corollary 6.2 to all with eta = 1 / nu at most.
* The gap in its code is that of x_t; the text has y_t in the regularizer. Both are printed.
* The optimum that its code subtracts in Figure 1(a) is the least objective of 100 sampled steps of
  size 0.1, 2.81 for mu = 0.25 where such users' optimum is 1.43: the curves end where they meet
  it.
* Its code runs the last row of Table 1 without noise (the others with sigma = 0.01), and sigma =
  0.7 with eta = 5, for which 2 / nu = 4 and no theorem of the paper holds.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

import dpcvx as dp
from dpcvx.privacy.last_iterate import ORDERS
from dpcvx.privacy.two_block import refusal
from problems import pictures
from problems.commands import add_plot, count, in_words
from problems.elastic_net import figures
from problems.elastic_net.certified import AFTER, certified
from problems.elastic_net.certified import losses as losses_of_turns
from problems.elastic_net.privacy import Growth, Positions, by_iterations, by_position
from problems.elastic_net.setting import PAIRS, PRINTED, SIGMAS, Setting
from problems.elastic_net.significance import convergence_iterations, p_values
from problems.elastic_net.simulation import Gaps, by_package, drawn, gaps_of, iterate
from problems.elastic_net.study import (
    DELTA,
    ElasticNet,
    elastic_net,
    losses,
    optimum,
    regularizer,
)
from problems.elastic_net.users import Users, made_users
from problems.elastic_net.utility import Utility, utility
from problems.papers import entry
from problems.progress import with_bar

Floats = NDArray[np.float64]
# Of Figure 1(a), by the authors' code, which section 10 names; the text does not say.
# github.com/KawaiiMengshi/Privacy-Amplification-by-Iteration-for-ADMM
FAINT = entry("chan_xie_zhao", "noise_of_figure_1a").number("sigma")
BASE = Setting(*PAIRS[0])
# The sigma of the privacy figure.
SHOWN = 0.5


@dataclass(frozen=True)
class Scope:
    """How much is run; `lengths` are the T of Theorem 9.1, whose runs are always in numpy."""

    package: bool
    users: int
    iterations: int
    repetitions: int
    lengths: tuple[int, ...]


SHORT = Scope(True, 40, 60, 5, (10, 30, 100, 300, 1000))
FULL = Scope(
    False,
    entry("chan_xie_zhao", "sizes").whole("N"),
    entry("chan_xie_zhao", "iterations").whole("T"),
    entry("chan_xie_zhao", "repetitions").whole("repetitions"),
    (10, 30, 100, 300, 1000, 3000),
)
# Of the privacy table and figure, in both modes.
USERS = 1000


@dataclass(frozen=True, eq=False)
class Run:
    """One setting, measured. Not private but for the guarantee.

    Attributes
    ----------
    name : str
    clipped : bool
    gaps : Gaps
    guarantee : dp.Guarantee or None
        Of a run of the package, against an observer of every iterate.
    """

    name: str
    clipped: bool
    gaps: Gaps
    guarantee: dp.Guarantee | None


@dataclass(frozen=True, eq=False)
class Found:
    """All results."""

    scope: Scope
    pairs: list[Run]
    noises: list[Run]
    coded: Run | None
    positions: dict[float, Positions]
    growth: Growth
    utility: dict[str, Utility]
    large: str
    plans: list[str]


def settings(package: bool) -> list[tuple[str, Setting, bool]]:
    """Name, setting and whether gradients are clipped, of everything that is run."""
    pairs = [(f"mu = {m:g}, beta = {b:g}", Setting(m, b, FAINT), False) for m, b in PAIRS]
    noises = [
        (f"sigma = {sigma:g}", replace(BASE, sigma=sigma), clipped)
        for sigma in SIGMAS
        for clipped in (False, True)
    ]
    coded = [("sigma = 0.7, eta = 5", replace(BASE, sigma=0.7, step=5.0), False)]
    return pairs + noises + ([] if package else coded)


def measured(name: str, setting: Setting, clipped: bool, scope: Scope, seed: int) -> Run:
    """Run one setting with all repetitions."""
    users = made_users(scope.users, mu=setting.mu)
    _, minimum = optimum(users)
    guarantee = None
    if scope.package:
        study = elastic_net(users, clipped=clipped)
        plan = study.plan(setting, scope.iterations)
        found = by_package(study, setting, plan, range(seed, seed + scope.repetitions))
        guarantee = plan.guarantee
    else:
        order, noise = drawn(users, setting.sigma, scope.iterations, scope.repetitions, seed)
        found = iterate(users, setting, order, noise, radius=setting.radius if clipped else None)
    return Run(name, clipped, gaps_of(users, setting, found, minimum), guarantee)


def large_run(users: Users, setting: Setting, iterations: int) -> str:
    """The package on all users, once: seconds, gap, guarantee."""
    start = time.perf_counter()
    study: ElasticNet = elastic_net(users)
    plan = study.plan(setting, iterations)
    planned = time.perf_counter()
    x = plan.run(seed=0, verbose=False).last[study.x]
    done = time.perf_counter()
    gap = float(losses(users, x) + regularizer(x)) - optimum(users)[1]
    return (
        f"dp.GradientADMM on {users.count} users, sigma = {setting.sigma:g}, clipped: planned in "
        f"{planned - start:.0f} s, {iterations} iterations in {done - planned:.1f} s, gap "
        f"{gap:.3g}, guarantee ({plan.guarantee.epsilon:.4g}, {DELTA:g}), every iterate visible"
    )


def plans(users: Users, setting: Setting) -> Iterator[str]:
    """What plans of one pass guarantee against an observer of the last iterate."""
    study = elastic_net(users)
    yield f"Plans for {users.count} users, sigma = {setting.sigma:g}, observer='last_iterate'"
    for order in ORDERS:
        plan = study.plan(setting, users.count, observer="last_iterate", order=order)
        found = plan.guarantee.amplification
        assert found is not None
        least, most = min(found.by_agent.values()), max(found.by_agent.values())
        yield (
            f"   {order:<12} epsilon {least:.4g}"
            + (f" to {most:.4g}" if most > least else "")
            + f", {found.rule} bound, constants derived from the model"
        )


def utilities(scope: Scope) -> Iterator[tuple[str, Utility]]:
    """Theorem 9.1 for three levels of noise in the gradient."""
    users, radius = made_users(scope.users), BASE.radius
    repetitions = min(20, scope.repetitions)
    for rho, note in ((0.0, ""), (1.0, ""), (2 * radius, " = Delta")):
        label = f"rho = {rho:g}{note}"
        yield label, utility(users, BASE.beta, rho, scope.lengths, repetitions, 0, radius=radius)


def experiment(scope: Scope) -> Found:
    """Everything, with a progress bar."""
    planned = settings(scope.package)
    runs = [
        measured(*each, scope, seed=100 * k) for k, each in enumerate(with_bar(planned, "runs"))
    ]
    levels = [replace(BASE, sigma=sigma) for sigma in (FAINT, *SIGMAS)]
    proved = certified(BASE.block, USERS)
    positions = {
        level.sigma: by_position(
            level,
            level.radius,
            USERS,
            DELTA,
            count=60 if level.sigma == SHOWN else 2,
            proved=proved,
        )
        for level in with_bar(levels, "epsilons")
    }
    shown = replace(BASE, sigma=SHOWN)
    # Also before and after every turn of the users that are shown.
    turns = [k * USERS + at for k in range(3) for at in (0, USERS // 2, USERS - 1)]
    counts = np.unique([*range(1, 3 * USERS, 25), *turns, *(1 + at for at in turns)])
    counts = counts[counts > 0]
    large = ""
    if not scope.package:
        large = large_run(made_users(scope.users), replace(BASE, sigma=0.1), scope.iterations)
    pairs, noises = runs[: len(PAIRS)], runs[len(PAIRS) : len(PAIRS) + 2 * len(SIGMAS)]
    return Found(
        scope,
        pairs,
        noises,
        None if scope.package else runs[-1],
        positions,
        by_iterations(shown, shown.radius, USERS, counts.tolist(), DELTA),
        dict(with_bar(utilities(scope), "Theorem 9.1", 3)),
        large,
        list(plans(made_users(scope.users), shown)),
    )


def table(found: Found) -> str:
    """All tables."""
    scope = found.scope
    how = "dp.GradientADMM, users in turn" if scope.package else "numpy, users sampled"
    lines = [
        f"Elastic net, 64 features, {scope.users} users ({how}), {scope.iterations} iterations, "
        f"{scope.repetitions} repetitions.",
        "Gaps and tests are computed on the users' data in the open: not private.",
        *_table_1(found),
        *_certified(),
        *_table_2(found),
        *_noise(found),
        *_privacy(found),
        *_theorem_9_1(found),
    ]
    return "\n".join([*lines, found.large] if found.large else lines)


def _table_1(found: Found) -> Iterator[str]:
    yield (
        f"Table 1, with the printed values in brackets; sigma = {FAINT:g}. Convergence: first "
        "iteration at which the mean gap does not differ from that 5 later"
    )
    yield (
        f"   {'mu':>7}{'beta':>6}{'eta':>8}{'':>8}{'L':>9}{'':>7}{'convergence':>13}{'':>5}"
        f"{'gap at x':>11}{'g at y':>10}"
    )
    for run, (eta, contraction, steps) in zip(found.pairs, PRINTED, strict=True):
        own = run.gaps.setting
        at = convergence_iterations(run.gaps.at_x)
        yield (
            f"   {own.mu:>7g}{own.beta:>6g}{own.eta:>8.3f}{f'({eta:.2f})':>8}"
            f"{own.claimed.contraction:>9.4f}{f'({contraction:.2f})':>7}"
            f"{'none' if at is None else at:>13}{f'({steps})':>5}"
            f"{run.gaps.at_x[-1].mean():>11.3g}{run.gaps.split[-1].mean():>10.3g}"
        )
    yield (
        f"   the printed 1.95 is eta / beta = {BASE.eta / BASE.beta:.3f}; L is of strongly convex "
        "losses, which these are not:"
    )
    yield f"   {refusal(BASE.block)}"


def _certified() -> Iterator[str]:
    yield (
        "Table 1 with certificates: loss of a turn in units of (eta Delta)^2 / (2 sigma^2), by "
        "iterations after it, by Theorem 7.2 as proved / with a certificate"
    )
    yield f"   {'mu':>7}{'beta':>6}" + "".join(f"{k:>20}" for k in AFTER)
    for mu, beta in PAIRS:
        own = losses_of_turns(Setting(mu, beta).claimed)
        cells = [f"{a:.2g} / {b:.2g}" for a, b in zip(own.paper, own.certified, strict=True)]
        yield f"   {mu:>7g}{beta:>6g}" + "".join(f"{cell:>20}" for cell in cells)
    yield "   both for losses that are 2 mu-strongly convex, as the paper claims of its own"


def _table_2(found: Found) -> Iterator[str]:
    plain = [run for run in found.noises if not run.clipped]
    shown = plain if found.coded is None else [*plain, found.coded]
    yield (
        f"Table 2: p values of equal mean gaps at iteration {found.scope.iterations}, by sigma"
        + ("" if found.coded is None else " (last: 0.7 with eta = 5, as the authors' code runs it)")
    )
    values = p_values([run.gaps.at_x[-1] for run in shown])
    names = [f"{r.gaps.setting.sigma:g}{'*' if r is found.coded else ''}" for r in shown]
    yield f"   {'':>6}" + "".join(f"{name:>11}" for name in names)
    for name, row in zip(names, values, strict=True):
        yield f"   {name:>6}" + "".join(f"{p:>11.3g}" for p in row)


def _noise(found: Found) -> Iterator[str]:
    yield (
        f"Noise: mean gap at iteration {found.scope.iterations}; with gradients clipped to "
        f"{BASE.radius:g}, so that Delta = {2 * BASE.radius:g} holds"
    )
    last = "guarantee of the clipped runs, every iterate visible" if found.scope.package else ""
    yield f"   {'sigma':>6}{'gap':>10}{'clipped':>10}   {last}"
    for plain, clipped in zip(found.noises[::2], found.noises[1::2], strict=True):
        total = ""
        if clipped.guarantee is not None and clipped.guarantee.epsilon is not None:
            total = f"({clipped.guarantee.epsilon:.4g}, {DELTA:g}), {clipped.guarantee.kind}"
        means = "".join(f"{run.gaps.at_x[-1].mean():>10.3g}" for run in (plain, clipped))
        yield f"   {plain.gaps.setting.sigma:>6g}{means}   {total}"
    if found.scope.package:
        yield (f"   {-(-found.scope.iterations // found.scope.users)} turns of a user")
    if found.coded is not None:
        yield f"   {'0.7*':>6}{found.coded.gaps.at_x[-1].mean():>10.3g}   (eta = 5)"


def _privacy(found: Found) -> Iterator[str]:
    yield (
        f"Epsilon at delta = {DELTA:g} of one pass over {USERS} users with Delta = "
        f"{2 * BASE.radius:g}, by formula"
    )
    yield "   visible: every iterate; all others: what an observer of the last iterate only learns"
    yield (
        f"   {'sigma':>6}{'visible':>10}{'user 1':>10}{f'user {USERS // 2 + 1}':>10}"
        f"{f'user {USERS}':>10}{'permuted':>10}{'stopped':>10}{'sampled':>10}{'certified':>19}"
    )
    for sigma, own in found.positions.items():
        values = (own.visible, *(own.at(k) for k in (0, USERS // 2, USERS - 1)),
                  own.permuted, own.stopped, own.sampled)  # fmt: skip
        cells = [f"{value:>10.4g}" if value < np.inf else f"{'none':>10}" for value in values]
        middle = own.certified[own.positions == USERS // 2][0]
        both = f"{own.certified[0]:.4g}, {middle:.4g}"
        yield f"   {sigma:>6g}" + "".join(cells) + f"{both:>19}"
    yield f"   certified: users 1 and {USERS // 2 + 1} in order, with a certificate"
    yield "   covered by: visible, exact Gaussian composition; users in order, Theorem 6.1 (convex)"
    yield "   with sharper constants; permuted and stopped, section 8 without the condition of"
    yield "   Corollary 8.3; sampled (the paper's runs), nothing in the paper, which has one turn"
    yield "   per user (none: no finite bound). No iteration follows the last user: at the worst"
    yield "   position, nothing is won."
    yield from found.plans


def _theorem_9_1(found: Found) -> Iterator[str]:
    yield (
        f"Theorem 9.1, eta = 1/sqrt(T), gradients clipped to G = {BASE.radius:g} (squares have no "
        "finite G): bound and measured mean"
    )
    lengths = next(iter(found.utility.values())).iterations
    yield f"   {'T':>14}" + "".join(f"{T:>18}" for T in lengths)
    for label, own in found.utility.items():
        cells = [f"{b:.3g} / {m.mean():.3g}" for b, m in zip(own.bound, own.measured, strict=True)]
        yield f"   {label:>14}" + "".join(f"{cell:>18}" for cell in cells)


def draw(found: Found) -> dict[str, Figure]:
    """The three figures by name."""
    scope = found.scope
    users = f"{scope.users} users, {scope.repetitions} repetitions (mean, middle 80 %)"
    plain = {run.name: run.gaps for run in found.noises if not run.clipped}
    if found.coded is not None:
        plain[found.coded.name] = found.coded.gaps
    return {
        "figure_1": figures.convergence(
            {
                f"{run.name}, L = {run.gaps.setting.claimed.contraction:.3f}": run.gaps
                for run in found.pairs
            },
            plain,
            f"Steps set how soon runs converge, noise how near: elastic net, {users}",
        ),
        "privacy": figures.privacy(
            found.positions[SHOWN],
            found.growth,
            f"mu = {BASE.mu:g}, beta = {BASE.beta:g}, sigma = {SHOWN:g}, gradients clipped to "
            f"{BASE.radius:g}",
        ),
        "theorem_9_1": figures.bound(
            found.utility,
            f"The bound of Theorem 9.1 holds and falls as runs do, {scope.users} users",
        ),
    }


def main(arguments: Sequence[str] | None = None) -> Found:
    """Run, print, draw."""
    parser = argparse.ArgumentParser(prog="python -m examples.chan_xie_zhao_elastic_net")
    parser.add_argument("--full", action="store_true", help="the paper's sizes")
    parser.add_argument("--users", type=count(), help="N")
    parser.add_argument("--iterations", type=count(6), help="of Figure 1 and the tables")
    parser.add_argument("--repetitions", type=count(2))
    add_plot(parser)
    options = parser.parse_args(arguments)
    scope = FULL if options.full else SHORT
    scope = replace(
        scope,
        users=options.users or scope.users,
        iterations=options.iterations or scope.iterations,
        repetitions=options.repetitions or scope.repetitions,
    )
    with in_words(parser):
        found = experiment(scope)
        print(table(found))
        if options.plot:
            drawn = {f"chan_xie_zhao_{name}": figure for name, figure in draw(found).items()}
            pictures.announce(drawn, options.plot, options.format)
    return found


if __name__ == "__main__":
    main()
