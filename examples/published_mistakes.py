"""Six mistakes in published private optimizers, what each costs, and how it is done right.

1. Ryu and Kim, theorem 4.9: the total epsilon of many Gaussian steps is understated.
2. APPFL's IIADMM: agents update their multipliers from values that were never released, so that
   agent and server drift apart, and the noise covers half of what one record can do.
3. Penalties adapted to residuals before noise was added: one bit a round leaves in the clear.
4. Sensitivity measured on the private data: the scale of the noise gives the data away. So it is in
   Ryu and Kim's code for FEMNIST; not in their text, nor in their code for MNIST. The code is
   github.com/minseok-ryu/DP-IADMM-Multiclass-Logistic at 4001031, `src/Models.py`.
5. Noise along one random direction (Ji and Li, "Less is more", 2306.02256): what left points back
   at the data.
6. The dearest generator's price as the sensitivity of the cost of a dispatch (PrivateOpt, program
   perturbation): with a congested line, load can cost more.

Each is a few lines of numpy, and the figure shows the damage.

    python -m examples.published_mistakes --plot out
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.special import gammaln
from scipy.stats import norm

from dpcvx.privacy.accounting import (
    Composition,
    classical_gaussian_multiplier,
    gaussian_multiplier,
    ryu_kim_claim,
)
from problems import pictures
from problems.commands import add_plot, count, in_words
from problems.pictures import BLUE, GREY, RED, TWO_COLUMNS, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Floats = NDArray[np.float64]
AGENTS, SIZE, CLIP, RHO = 5, 10, 1.0, 10.0
# Distances below are not drawn: a run without noise falls to rounding errors.
_LEAST = 1e-3


# -- 1. composition --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Composed:
    """A number of Gaussian steps, each at one (epsilon, delta) by the classical formula."""

    steps: int
    claimed: float
    true: float
    delta_at_claim: float
    covered: bool  # whether (24e), which the proof asks for, holds


def composed(steps: int, epsilon: float, delta: float) -> Composed:
    """What theorem 4.9 claims for the sequence, and what holds exactly."""
    multiplier = classical_gaussian_multiplier(epsilon, delta)
    total = Composition().with_gaussian(multiplier, steps)
    claim, mu = ryu_kim_claim(steps, epsilon, delta), math.sqrt(total.mu2)
    at_claim = norm.cdf(mu / 2 - claim / mu) - math.exp(claim) * norm.cdf(-mu / 2 - claim / mu)
    covered = claim > steps * epsilon**2 / (2 * math.log(1.25 / delta))
    return Composed(steps, claim, total.price(delta).epsilon, float(at_claim), covered)


# -- 2. multipliers from values that were never released -------------------------------------------


def inexact_admm(rounds: int, seed: int, *, noise: float, released: bool) -> Floats:
    """Distance to the optimum per round of IIADMM with clipped gradients.

    Agent p minimizes ``||x - c_p||^2 / 2`` and answers ``z = w + (lam - g) / rho`` plus Laplace
    noise of scale `noise`.
    With ``released=False`` its multiplier follows the z before noise, as in APPFL 1.12
    (iiadmm_trainer.py), while the server's follows what it received.
    """
    rng = np.random.default_rng(seed)
    centers = 0.3 * rng.normal(size=(AGENTS, SIZE)) / math.sqrt(SIZE)
    w = np.zeros(SIZE)
    z, server, agent = np.zeros((3, AGENTS, SIZE))
    gaps = []
    for _ in range(rounds):
        w = np.mean(z - server / RHO, axis=0)
        g = w - centers
        g *= np.minimum(1, CLIP / np.maximum(np.linalg.norm(g, 1, axis=1, keepdims=True), 1e-12))
        exact = w + (agent - g) / RHO
        z = exact + noise * rng.laplace(size=exact.shape)
        server = server + RHO * (w - z)
        agent = agent + RHO * (w - (z if released else exact))
        gaps.append(float(np.linalg.norm(w - centers.mean(axis=0))))
    return np.array(gaps)


def moved(released: bool) -> float:
    """How far one neighbor's answer can lie from the other's: multiples of clip / rho.

    The observed history is the same. With unreleased multipliers, ``z = w + (g_old - g) / rho``:
    both gradients are the data's, and a record may pull either way at two points.
    """
    answers = [((0.0 if released else pull) + pull) / RHO for pull in (CLIP, -CLIP)]
    return abs(answers[0] - answers[1]) / (CLIP / RHO)


# -- 3. penalties from residuals before noise ------------------------------------------------------

CHANGE, ROUNDS = 0.1, 20
TARGETS = (1.0, 1.0 + CHANGE)  # of two neighbors


def penalties(target: float, seed: int, *, threshold: float, private: bool) -> Floats:
    """log2 of rho_t in a run of two agents that balances residuals before or after noise.

    The first agent minimizes ``(x - target)^2 / 2`` with Gaussian noise for a total of (1, 1e-6),
    the second ``x^2 / 2``. Only what leaves them is noisy; rho is sent in the clear.
    """
    rng = np.random.default_rng(seed)
    scale = CHANGE * gaussian_multiplier(ROUNDS, 1.0, 1e-6) * np.array([1.0, 0.0])
    data = np.array([target, 0.0])
    x, lam = np.zeros(2), np.zeros(2)
    rho, w_old, seen = 1.0, 1.0, []
    for _ in range(ROUNDS):
        w = float(np.mean(x - lam / rho))
        exact = (data + rho * w + lam) / (1 + rho)
        x = exact - scale * rng.normal(size=2) / (1 + rho)
        lam = lam + rho * (w - x)
        primal = float(np.linalg.norm(w - (exact if private else x)))
        rho *= 2.0 if primal > threshold * rho * abs(w - w_old) else 0.5
        w_old = w
        seen.append(math.log2(rho))
    return np.array(seen)


def guessed(private: bool, runs: int) -> float:
    """How often the path of rho tells which neighbor ran, on runs the rule was not made with."""
    # The data happen to lie where the first comparison turns.
    threshold = float(np.mean([np.hypot(t, 0.0) / 2 for t in TARGETS]))
    paths = np.array(
        [
            [penalties(t, seed, threshold=threshold, private=private) for seed in range(2 * runs)]
            for t in TARGETS
        ]
    )
    known, fresh = paths[:, :runs], paths[:, runs:]
    middle = known.mean(axis=(0, 1))
    side = np.sign(known[1].mean(axis=0) - known[0].mean(axis=0))
    right = np.mean([(known[1] - middle) * side > 0, (known[0] - middle) * side < 0], axis=(0, 1))
    t = int(np.argmax(right))
    hits = [(fresh[1, :, t] - middle[t]) * side[t] > 0, (fresh[0, :, t] - middle[t]) * side[t] < 0]
    return float(np.mean(hits))


# -- 4. sensitivity measured on the data -----------------------------------------------------------


def noise_levels(largest: float, *, measured: bool, runs: int, seed: int) -> Floats:
    """What an observer finds as the noise's scale, in runs on records of norm at most 1.

    `largest` is the largest norm that occurs in the data. The authors' code for FEMNIST scales the
    noise to what its own records do; the bound that every data set keeps to is 1.
    """
    rng = np.random.default_rng(seed)
    scale = largest if measured else 1.0
    released = 0.01 * largest + scale * rng.normal(size=(runs, 50, 100))  # 50 rounds, 100 numbers
    return released.std(axis=(1, 2))


# -- 5. noise along one random direction -----------------------------------------------------------


def true_delta(size: int, epsilon: float, delta: float, draws: int, seed: int) -> float:
    """Delta at this epsilon of rank-one noise that is claimed to have `delta`, by sampling.

    ``y = q + z v`` with v uniform on the sphere and z normal of variance ``2 / (epsilon psi)``,
    ``psi = (delta gamma((M-1)/2) / (sqrt(pi) gamma(M/2)))^(2/(M-2))``, for sensitivity 1. At
    distance r from q the density is proportional to ``exp(-r^2 / (2 s^2)) / r^(M-1)``, which gives
    the exact privacy loss of a draw.
    """
    log_ratio = gammaln((size - 1) / 2) - gammaln(size / 2) - math.log(math.pi) / 2
    variance = 2 / epsilon / math.exp(2 / (size - 2) * (math.log(delta) + log_ratio))
    rng = np.random.default_rng(seed)
    z = math.sqrt(variance) * np.abs(rng.normal(size=draws))
    v = rng.normal(size=draws)
    cosine = v / np.sqrt(v**2 + rng.chisquare(size - 1, draws))  # with the change
    other = z**2 - 2 * z * cosine + 1
    loss = (other - z**2) / (2 * variance) + (size - 1) / 2 * np.log(other / z**2)
    return float(np.mean(np.maximum(0.0, -np.expm1(np.minimum(epsilon - loss, 0.0)))))


# -- 6. what one more unit of load costs -----------------------------------------------------------

PRICES, LIMIT = (10.0, 30.0), 50.0


def dispatch_cost(load: float) -> float:
    """Least cost of a load at bus 3 of a triangle of equal lines, with generators at buses 1 and 2.

    Two thirds of what bus 1 sends and one third of what bus 2 sends take the line from 1 to 3,
    which carries 50.
    """
    flow = [[2 / 3, 1 / 3]]
    found = linprog(PRICES, A_ub=flow, b_ub=[LIMIT], A_eq=[[1.0, 1.0]], b_eq=[load])
    return float(found.fun)


# -- output ----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Found:
    """The figures of all six."""

    claims: list[Composed]
    drift: dict[str, Floats]
    guesses: dict[str, float]
    ceiling: float
    ceiling_of_noise: float
    levels: dict[str, tuple[Floats, Floats]]
    deltas: dict[int, float]
    costs: tuple[float, float]


def experiment(runs: int) -> Found:
    """Run all six."""
    steps = [1, 10, 100, 500, 1000, 10000]
    mu = math.sqrt(ROUNDS) / gaussian_multiplier(ROUNDS, 1.0, 1e-6)
    return Found(
        claims=[composed(n, 1.0, 1e-6) for n in steps],
        drift={
            "as published": inexact_admm(400, 0, noise=2 * CLIP / RHO, released=False),
            "from released values": inexact_admm(400, 0, noise=2 * CLIP / RHO, released=True),
            "no noise": inexact_admm(400, 0, noise=0.0, released=True),
        },
        guesses={
            "residuals before noise": guessed(True, runs),
            "residuals of released values": guessed(False, runs),
        },
        ceiling=(math.e + 1e-6) / (math.e + 1),
        ceiling_of_noise=float(norm.cdf(mu / 2)),
        levels={
            label: (
                noise_levels(0.9, measured=measured, runs=runs, seed=1),
                noise_levels(1.0, measured=measured, runs=runs, seed=2),
            )
            for label, measured in (("measured on the data", True), ("worst case", False))
        },
        deltas={size: true_delta(size, 1.0, 1e-5, 100_000, 0) for size in (4, 10, 30, 100, 1000)},
        costs=(dispatch_cost(100.0), dispatch_cost(101.0)),
    )


def table(found: Found) -> str:
    """The damage in numbers."""
    lines = ["1. total of Gaussian steps at (1, 1e-6) each, by theorem 4.9 and exactly"]
    lines.append(
        f"   {'steps':>7}{'claimed':>10}{'true':>10}{'delta at the claim':>21}"
        f"{'(24e) of the proof':>21}"
    )
    lines += [
        f"   {c.steps:>7}{c.claimed:>10.4g}{c.true:>10.4g}{c.delta_at_claim:>21.3g}"
        f"{'holds' if c.covered else 'fails':>21}"
        for c in found.claims
    ]
    lines.append(
        "2. IIADMM, Laplace noise of epsilon 1 a round by its own formula: distance to the optimum"
    )
    lines += [
        f"   {label:<24}{np.mean(gaps[-100:]):>8.3g} (mean of the last 100 of {gaps.size} rounds)"
        for label, gaps in found.drift.items()
    ]
    lines.append(
        f"   one record moves an answer by {moved(False):g} clip / rho, by {moved(True):g} if "
        "multipliers follow released values; the noise is scaled to 2"
    )
    lines.append("3. which neighbor ran? Guessed from the penalties of a run at (1, 1e-6):")
    lines += [f"   {label:<30}{100 * hit:>6.1f} % right" for label, hit in found.guesses.items()]
    lines.append(
        f"   at most {100 * found.ceiling:.1f} % from anything that is (1, 1e-6)-DP, and "
        f"{100 * found.ceiling_of_noise:.1f} % from this noise alone"
    )
    lines.append("4. scale of the noise that an observer finds for two neighbors")
    lines += [
        f"   {label:<30}{a.mean():.3f} and {b.mean():.3f}, each +-{a.std():.3f}"
        for label, (a, b) in found.levels.items()
    ]
    lines.append(
        "5. rank-one noise along a random direction, claimed to have delta 1e-5 at epsilon 1"
    )
    lines += [
        f"   dimension {size:>4}: true delta {delta:.2g}" for size, delta in found.deltas.items()
    ]
    before, after = found.costs
    lines.append(
        f"6. one more unit of load costs {after - before:.0f}; the dearest generator's price, "
        f"taken for a bound of that, is {max(PRICES):.0f}"
    )
    return "\n".join(lines)


@styled
def draw(found: Found) -> Figure:
    """One panel for each."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(TWO_COLUMNS, 8.2))
    (one, two), (three, four), (five, six) = figure.subplots(3, 2)
    steps = [c.steps for c in found.claims]
    one.loglog(steps, [c.true for c in found.claims], "o-", color=BLUE, label="exact")
    one.loglog(steps, [c.claimed for c in found.claims], "s--", color=RED, label="theorem 4.9")
    one.set(xlabel="steps at (1, 1e-6) each", ylabel="total epsilon at delta 1e-6",
            title="1. a composition theorem that claims too little")  # fmt: skip
    styles = ((RED, "--"), (BLUE, "-"), (GREY, ":"))
    for (label, gaps), (color, line) in zip(found.drift.items(), styles, strict=True):
        # Down to rounding errors there is nothing to see.
        shown = np.where(gaps >= _LEAST, gaps, np.nan)
        two.semilogy(np.arange(1, gaps.size + 1), shown, line, color=color, lw=1, label=label)
    two.set(xlabel="round", ylabel="distance to the optimum", ylim=(_LEAST, None),
            title="2. multipliers from values before noise (IIADMM)")  # fmt: skip
    bars = three.bar(list(found.guesses), [100 * g for g in found.guesses.values()],
                     color=[RED, BLUE], width=0.5)  # fmt: skip
    three.bar_label(bars, fmt="%.0f %%", label_type="center", color="white", weight="bold")
    for ceiling, line, what in (
        (found.ceiling, "--", "anything (1, 1e-6)-DP"),
        (found.ceiling_of_noise, ":", "this noise"),
    ):
        three.axhline(
            100 * ceiling, color="k", ls=line, lw=1,
            label=f"most that {what} allows: {100 * ceiling:.1f} %",
        )  # fmt: skip
    three.grid(visible=False, axis="x")
    three.set(ylim=(0, 150), yticks=range(0, 101, 25), ylabel="neighbors told apart, %",
              title="3. penalties that see residuals before noise")  # fmt: skip
    names = []
    for (label, pair), color in zip(found.levels.items(), (RED, BLUE), strict=True):
        for values, which in zip(pair, ("one neighbor", "the other"), strict=True):
            four.plot(values, np.full(values.size, len(names)), "|", ms=12, alpha=0.4, color=color)
            names.append(f"{label},\n{which}")
    four.set_yticks(range(len(names)), names)
    four.set(xlabel="scale of the noise, as observed in each run", ylim=(-0.6, len(names) - 0.4),
             title="4. sensitivity measured on private data")  # fmt: skip
    five.loglog(list(found.deltas), list(found.deltas.values()), "o-", color=BLUE, label="exact")
    five.axhline(1e-5, color=RED, ls="--", label="claimed")
    five.set(xlabel="dimension", ylabel="delta at epsilon 1",
             title="5. noise along one random direction")  # fmt: skip
    loads = np.linspace(40, 120, 81)
    costs = np.diff([dispatch_cost(load) for load in loads])
    six.plot(loads[1:], costs, color=BLUE, label="exact")
    six.axhline(max(PRICES), color=RED, ls="--", label="dearest price")
    six.set(xlabel="load", ylabel="cost of one more unit of load",
            title="6. a sensitivity that congestion exceeds")  # fmt: skip
    for axes in (one, two, three, five):
        axes.legend()
    six.legend(loc="lower right")
    return figure


def main(arguments: Sequence[str] | None = None) -> Found:
    """Run, print, draw."""
    parser = argparse.ArgumentParser(prog="python -m examples.published_mistakes")
    parser.add_argument(
        "--runs", type=count(2), default=200, help="runs per neighbor (default 200)"
    )
    add_plot(parser, "the figure")
    options = parser.parse_args(arguments)
    with in_words(parser):
        found = experiment(options.runs)
        print(table(found))
        if options.plot:
            pictures.announce({"published_mistakes": draw(found)}, options.plot, options.format)
    return found


if __name__ == "__main__":
    main()
