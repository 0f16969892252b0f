r"""Accuracy at a guarantee: dpcvx, and the formulas of APPFL and Flower in numpy.

APPFL's IIADMM (wheel of 1.12.0) protects a release as follows, with one local step:

* `algorithm/trainer/iiadmm_trainer.py`, line 365: the gradient is taken at the client's own primal;
* lines 393 to 400: it is scaled down to norm ``clip_value``, in l1 as the templates have it;
* line 437: :math:`z = w + (\lambda - g) / \rho`;
* line 249: :math:`\lambda \leftarrow \lambda + \rho (w - z)`, before any noise;
* lines 257 to 260 and `privacy/dp.py`, lines 19 and 25: Laplace noise of scale
  :math:`2C / (\rho \epsilon)`, epsilon being that of one round;
* `algorithm/aggregator/iiadmm_aggregator.py`, lines 154 to 162: the server does the same with what
  it received.

The client's dual is therefore its last gradient, :math:`z_t = w_t + (g_{t-1} - g_t) / \rho`, and
one change of its data can move a release by :math:`4C / \rho` from the second round on.

Flower's `LocalDpMod` (wheel of 1.42.0, `clientapp/mod/localdp_mod.py`, lines 132 to 145) clips the
client's update to a norm in l2 and adds Gaussian noise of deviation
:math:`s \sqrt{2 \ln(1.25 / \delta)} / \epsilon` with a sensitivity s that the user states.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

import dpcvx as dp
from dpcvx.privacy.accounting import (
    Composition,
    classical_gaussian_multiplier,
    gaussian_multiplier,
    laplace_multiplier,
)

from .exchange import Array, Instance
from .instances import declared, optimum

EPSILON, DELTA = 1.0, 1e-6
ROUNDS = (10, 30, 100)
# Rounds of the runs in which the peers' epsilon is taken as they state it.
LONG = ROUNDS[-1]
RHOS = (1.0, 3.0, 10.0, 30.0, 100.0)
CLIPS = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
STEPS = (0.01, 0.03, 0.1, 0.3, 1.0)
# Seeds on which settings are chosen; those on which they are reported begin after them.
CHOOSING = 5


@dataclass(frozen=True, eq=False)
class Settings:
    """What a method's user chooses.

    Attributes
    ----------
    rounds : int
    rho, step : float or None
        Penalty and step size, of methods that have them; without a step, dpcvx takes its default.
    clip : float
        Bound of gradients or updates; infinite without.
    """

    rounds: int
    rho: float | None = None
    step: float | None = None
    clip: float = math.inf

    def __str__(self) -> str:
        parts = {"rho": self.rho, "step": self.step, "C": self.clip}
        shown = [f"{k} {v:g}" for k, v in parts.items() if v is not None and math.isfinite(v)]
        return ", ".join([f"T {self.rounds}", *shown])


# From settings, a budget and a seed to the points reported: last and average.
Method = Callable[[Settings, float, int], tuple[Array, Array]]


@dataclass(frozen=True, eq=False)
class Scheme:
    """A method, its grid of settings, and what its noise costs.

    Attributes
    ----------
    name : str
    run : callable
        The budget it is given is per round for the peers, in total for dpcvx.
    grid : tuple of Settings
    total : callable
        From rounds and that budget to the epsilon that all releases together have.
    per_round : callable
        From rounds to the budget at which that is `EPSILON`.
    covers : str
        The change of the data that the sensitivity is about.
    """

    name: str
    run: Method
    grid: tuple[Settings, ...]
    total: Callable[[int, float], float]
    per_round: Callable[[int], float]
    covers: str


@dataclass(frozen=True)
class Line:
    """A scheme's result: relative gaps are medians over seeds, computed on the data, not private.

    Attributes
    ----------
    stated, total : float
        Epsilon as set, and what all rounds have together, at `DELTA`.
    stated_gap : float
        With the epsilon as set.
    low, gap, high : float
        Quartiles at a total of `EPSILON`.
    settings : str
        Chosen for the total of `EPSILON`.
    """

    name: str
    stated: str
    total: float
    stated_gap: float
    low: float
    gap: float
    high: float
    settings: str
    covers: str


def iiadmm(
    inst: Instance,
    settings: Settings,
    scale: float,
    rng: np.random.Generator,
    *,
    released_dual: bool,
) -> tuple[Array, Array]:
    """APPFL's formulas with Laplace noise of a scale; last and average server point, in the box.

    `released_dual` lets the client go on from what it released, as the server does.
    """
    P, _, n = inst.A.shape
    w, total = np.zeros(n), np.zeros(n)
    z, own, server = np.zeros((P, n)), np.zeros((P, n)), np.zeros((P, n))
    rho = settings.rho
    assert rho is not None
    for _ in range(settings.rounds):
        g = clipped(gradients(inst, z), settings.clip, 1)
        z = w + (own - g) / rho
        released = z + rng.laplace(scale=scale, size=z.shape)
        if released_dual:
            z = released
        own = own + rho * (w - z)
        server = server + rho * (w - released)
        w = (released - server / rho).mean(axis=0)
        total += w
    return tuple(np.clip(x, -inst.bound, inst.bound) for x in (w, total / settings.rounds))


def local_dp(
    inst: Instance, settings: Settings, deviation: float, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Federated averaging of one clipped, noised gradient step per client and round."""
    P, _, n = inst.A.shape
    w, total = np.zeros(n), np.zeros(n)
    assert settings.step is not None
    for _ in range(settings.rounds):
        update = clipped(-settings.step * gradients(inst, np.tile(w, (P, 1))), settings.clip, 2)
        w = w + (update + deviation * rng.normal(size=update.shape)).mean(axis=0)
        total += w
    return tuple(np.clip(x, -inst.bound, inst.bound) for x in (w, total / settings.rounds))


def gradients(inst: Instance, x: Array) -> Array:
    """Every agent's gradient at its own point, shape (P, n)."""
    residual = np.einsum("pmn,pn->pm", inst.A, x) - inst.b
    return 2 * np.einsum("pmn,pm->pn", inst.A, residual)


def clipped(rows: Array, bound: float, order: int) -> Array:
    """Rows scaled down to a norm."""
    norms = np.linalg.norm(rows, ord=order, axis=1, keepdims=True)
    return rows * np.minimum(1.0, bound / np.maximum(norms, 1e-300))


def iiadmm_total(rounds: int, epsilon: float) -> float:
    """What Laplace noise for a sensitivity of 2C costs where from round 2 on it is 4C."""
    spent = Composition().with_laplace(1 / epsilon)
    if rounds > 1:
        spent = spent.with_laplace(1 / (2 * epsilon), rounds - 1)
    return spent.price(DELTA).epsilon


def laplace_total(rounds: int, epsilon: float) -> float:
    """The same where the sensitivity is as stated."""
    return Composition().with_laplace(1 / epsilon, rounds).price(DELTA).epsilon


def classical_total(rounds: int, epsilon: float) -> float:
    """What rounds of the classical Gaussian mechanism cost."""
    multiplier = classical_gaussian_multiplier(epsilon, DELTA)
    return Composition().with_gaussian(multiplier, rounds).price(DELTA).epsilon


def largest(total: Callable[[int, float], float], rounds: int) -> float:
    """The budget per round at which the total is `EPSILON`, by bisection from below."""
    low, high = 0.0, 1.0
    while high - low > 1e-4 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if total(rounds, middle) <= EPSILON else (low, middle)
    return low


def schemes(inst: Instance) -> Iterator[Scheme]:
    """All methods, with the sensitivities that they charge."""
    problem, x = declared(inst)

    def noisy_gradients(s: Settings, epsilon: float, seed: int) -> tuple[Array, Array]:
        method = dp.LinearizedADMM(penalty=s.rho or 1.0, step=s.step)
        plan = problem.plan(method, rounds=s.rounds, epsilon=epsilon, delta=DELTA)
        result = plan.run(seed=seed, verbose=False)
        return result.last[x], result.average[x]

    def once(s: Settings, epsilon: float, seed: int) -> tuple[Array, Array]:
        plan = problem.plan(
            dp.ADMM(penalty=s.rho or 1.0),
            rounds=s.rounds,
            epsilon=epsilon,
            delta=DELTA,
            release="once",
        )
        result = plan.run(seed=seed, verbose=False)
        return result.last[x], result.last[x]

    def admm(sensitivity: float | None, released_dual: bool) -> Method:
        def run(s: Settings, epsilon: float, seed: int) -> tuple[Array, Array]:
            change = 2 * s.clip if sensitivity is None else sensitivity
            scale, rng = change / ((s.rho or 1.0) * epsilon), np.random.default_rng(seed)
            return iiadmm(inst, s, scale, rng, released_dual=released_dual)

        return run

    def averaging(sensitivity: float | None) -> Method:
        def run(s: Settings, epsilon: float, seed: int) -> tuple[Array, Array]:
            change = 2 * s.clip if sensitivity is None else (s.step or 0.0) * sensitivity
            deviation = change * classical_gaussian_multiplier(epsilon, DELTA)
            return local_dp(inst, s, deviation, np.random.default_rng(seed))

        return run

    plan = problem.plan(dp.LinearizedADMM(), rounds=1, epsilon=EPSILON, delta=DELTA)
    derived = [a.sensitivity for a in plan.agents if a.sensitivity is not None]
    one, two = max(s.l1 for s in derived), max(s.l2 for s in derived)
    stepped = tuple(
        Settings(T, rho, step)
        for T, rho, step in product(ROUNDS, (1.0, 3.0, 10.0, 30.0), (None, *STEPS[1:]))
    )
    some = tuple(Settings(T, rho) for T, rho in product(ROUNDS, RHOS))
    bounded = tuple(Settings(T, rho, clip=C) for T, rho, C in product(ROUNDS, RHOS, CLIPS))
    steps = tuple(Settings(T, step=eta) for T, eta in product(ROUNDS, STEPS))
    # An update is a step times a gradient, so its clip is smaller.
    bounded_steps = tuple(
        Settings(T, step=eta, clip=C)
        for T, eta, C in product(ROUNDS, STEPS, (0.01, 0.03, 0.1, 0.3, 1.0))
    )
    ours, clip = "declared change", "any change, by clipping"
    laplace = laplace_total, lambda rounds: 1 / laplace_multiplier(rounds, EPSILON, DELTA)
    # The multiplier at epsilon is that at 1 over epsilon.
    unit = classical_gaussian_multiplier(1.0, DELTA)
    gauss = classical_total, lambda rounds: unit / gaussian_multiplier(rounds, EPSILON, DELTA)
    whole = (lambda rounds, epsilon: epsilon), (lambda rounds: EPSILON)
    coded = iiadmm_total, lambda rounds: largest(iiadmm_total, rounds)
    yield Scheme("dpcvx, noisy gradients", noisy_gradients, stepped, *whole, ours)
    yield Scheme("dpcvx, data released once", once, (Settings(60, 3.0),), *whole, ours)
    yield Scheme("APPFL IIADMM as coded", admm(None, False), bounded, *coded, clip)
    yield Scheme("APPFL IIADMM, dual from releases", admm(None, True), bounded, *laplace, clip)
    yield Scheme("the same, dpcvx's sensitivity", admm(one, True), some, *laplace, ours)
    yield Scheme("Flower LocalDpMod", averaging(None), bounded_steps, *gauss, clip)
    yield Scheme("the same, dpcvx's sensitivity", averaging(two), steps, *gauss, ours)


def lines(
    inst: Instance, seeds: int, found: Sequence[Scheme], progress: Callable[[str], None]
) -> Iterator[Line]:
    """Choose every scheme's settings on some seeds, for both budgets, and report on others."""
    best, _ = optimum(inst)

    def gaps(scheme: Scheme, s: Settings, epsilon: float, numbers: range) -> tuple[Array, Array]:
        pairs = [scheme.run(s, epsilon, seed) for seed in numbers]
        both = np.array([[inst.objective(x) for x in pair] for pair in pairs])
        return tuple((both.T - best) / best)

    def chosen(scheme: Scheme, epsilon: dict[int, float]) -> tuple[str, Array]:
        tried = []
        for s in scheme.grid:
            found = gaps(scheme, s, epsilon[s.rounds], range(CHOOSING))
            tried += [(np.median(kind), s, which) for which, kind in enumerate(found)]
        _, s, which = min(tried, key=lambda entry: entry[0])
        fair = gaps(scheme, s, epsilon[s.rounds], range(CHOOSING, CHOOSING + seeds))[which]
        return f"{s}, {('last', 'average')[which]}", fair

    for scheme in found:
        progress(scheme.name)
        rounds = {s.rounds for s in scheme.grid}
        settings, fair = chosen(scheme, {T: scheme.per_round(T) for T in rounds})
        low, gap, high = np.quantile(fair, (0.25, 0.5, 0.75))
        mine = scheme.name.startswith("dpcvx")
        long = replace(scheme, grid=tuple(s for s in scheme.grid if s.rounds == LONG))
        own = fair if mine else chosen(long, {LONG: EPSILON})[1]
        yield Line(
            scheme.name,
            "1 in total" if mine else "1 per round",
            scheme.total(LONG, EPSILON),
            float(np.median(own)),
            float(low),
            float(gap),
            float(high),
            settings,
            scheme.covers,
        )
