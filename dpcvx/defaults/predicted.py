r"""Steps by a predicted gap: what noise and a bounded number of rounds leave of a quadratic.

Gradient descent with the step size :math:`\eta` along a direction of curvature h makes of the
distance :math:`e_0` from the answer, and of independent noise :math:`\xi_k` in round k,

.. math::
    e_t = c^t e_0 - \eta \sum_{k \le t} c^{t-k} \xi_k, \qquad c = 1 - \eta h ,

so that the mean of the last K of T iterates has the bias and the variance

.. math::
    \frac{c^{T-K+1}}{K} \frac{1 - c^K}{1 - c}\, e_0, \qquad
    \frac{\sigma^2}{K^2 h^2} \Bigl[ (1 - c^K)^2 c^2 \frac{1 - c^{2(T-K)}}{1 - c^2}
        + \sum_{j=1}^{K} (1 - c^j)^2 \Bigr] .

In the average weighted by the rounds, noise of round k has :math:`\sum_{t \ge k} t c^{t-k}` over
:math:`T (T + 1) / 2`, which is a geometric sum as well.

The gap is h / 2 times their sum, over all directions. Curvatures are not known one by one: they are
taken to lie around the typical one, some far below it. Nor is the distance: chosen is the step with
the least product of the gaps at a third of it, at it and at three times of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..algorithms.facts import Conditions, Output, StepRule
from ..algorithms.program import LocalProgram, Program
from ..algorithms.steps import Constant, Sqrt, smooth_constant
from ..errors import ModelError
from ..model.curvature import smoothness
from .landscape import Landscape, landscape

Array = NDArray[np.float64]

# Curvatures relative to the typical one, of mean 1.
_SPECTRUM = (0.2, 0.6, 2.2)
# What the distance may be, relative to what it is taken to be.
_DISTANCES = (1 / 3, 1.0, 3.0)
# Where slopes jump: steps of which sqrt(T) cross the set so many times at the largest slope.
_LONGEST = 4.0
# Rounds: of so few none is left out, and the last one is nearest.
FEW = 8
# Step sizes that are tried, relative to the largest.
_FRACTIONS = np.geomspace(1e-8, 1.0, 240)


@dataclass(frozen=True)
class Prediction:
    """A step size and what it leads to.

    Attributes
    ----------
    step : float
        Factor of a gradient in a step.
    output : {"average", "last", "tail", "weighted"}
        The iterate to report.
    gap : float
        Predicted gap of the sum of all agents' objectives at the end.
    start : float
        Gap of the initial point.
    noise : float
        Gap that noise may leave for any distance and curvature: that of a quadratic whose curvature
        is the worst for these steps, or by the bound for slopes that jump.
    """

    step: float
    output: Output
    gap: float
    start: float
    noise: float


def predicted(
    scene: Landscape,
    rounds: int,
    largest: float,
    *,
    pull: float = 1.0,
    outputs: Sequence[Output] = ("last", "tail", "average", "weighted"),
) -> Prediction:
    """Return the step size of noisy gradient descent that is predicted to end best.

    Parameters
    ----------
    scene : Landscape
    rounds : int
        Number of steps.
    largest : float
        Step size that is not exceeded.
    pull : float
        Share of a step that reaches variables which agents share. Methods that pull copies together
        step less far there, and steps along sums of gradients as many times as far as there are
        holders.
    outputs : sequence of str
        Iterates that may be reported.
    """
    if scene.smoothness is None:
        return _where_slopes_jump(scene, rounds, pull)
    steps = largest * _FRACTIONS
    scores: dict[Output, tuple[Array, Array]] = {}
    start = sum(b.holders * scene.curvature / 2 * b.distance**2 for b in scene.blocks)
    for output in outputs:
        parts = _parts(scene, steps, rounds, output, pull)
        bias = np.sum([part for part, _ in parts], axis=0)
        noise = np.sum([part for _, part in parts], axis=0)
        with np.errstate(divide="ignore"):
            score = np.sum([np.log(d**2 * bias + noise) for d in _DISTANCES], axis=0)
        scores[output] = (score, bias + noise)
    best = min(outputs, key=lambda output: float(scores[output][0].min()))
    index = int(scores[best][0].argmin())
    step = float(steps[index])
    noise = _worst_noise(scene, step, rounds, best, pull)
    return Prediction(step, best, float(scores[best][1][index]), start, noise)


@dataclass(frozen=True)
class Chosen:
    """Choice of a method whose user gives no step size.

    Attributes
    ----------
    rule : step rule
    output : {"average", "last", "tail", "weighted", None}
        The iterate to report; None for what is usual.
    prediction : Prediction or None
        Prediction with noise.
    """

    rule: StepRule
    output: Output | None = None
    prediction: Prediction | None = None


def chosen_step(
    program: Program,
    conditions: Conditions,
    *,
    pull: float = 1.0,
    updates: int = 1,
    exact: bool = True,
    falls: bool = False,
) -> Chosen:
    """Return the step size of a gradient method, from what is public.

    Without noise it is 1 / L with the smoothness constant L, or falls like ``1 / sqrt(t)`` from
    what leads across the set at the largest slope. With noise it is `predicted`; where slopes jump,
    steps that fall like ``1 / sqrt(t)`` lead as far and forgive distances that are mistaken: long
    ones come first. If neither the distance to the answer nor the curvature is known, noise is
    refused; without noise, the step is the papers' ``1 / sqrt(t)``, which has a unit.

    Arguments and errors are those of `PublicFacts.chosen_step`; `pull` is that of `predicted`.
    """
    scene, rounds = landscape(program, conditions), conditions.rounds * updates
    require_scale(program, scene)
    largest, ahead = longest(scene, rounds), max(1.0, pull)
    if largest is None:
        return Chosen(Sqrt(min(1.0, scene.limit / ahead)))
    if scene.noisy:
        prediction = predicted(scene, rounds, largest / ahead, pull=pull)
        rule: StepRule = Constant(prediction.step)
        if falls and scene.smoothness is None and rounds > FEW:
            first = prediction.step * math.sqrt(rounds) / 2
            rule = Sqrt(min(first, scene.limit / ahead))
        return Chosen(rule, prediction.output, prediction)
    if scene.smoothness:
        return Chosen(Constant(largest / ahead) if exact else Sqrt(largest / ahead))
    return Chosen(Sqrt(min(scene.distance / scene.slope, scene.limit) / ahead))


_SOURCES = {
    "set": "the step size follows from the size of the set and the largest slope, as slopes jump",
    "labels": "the step size follows from a distance to the optimum, as slopes jump: six times the "
    "loss of labels that fill their declared bounds, over the largest slope",
    "losses": "the step size follows from a distance to the optimum, as slopes jump: that of the "
    "losses' values and curvatures at the start, next to the largest slope",
}
_UNKNOWN = (
    "steps fall like 1/sqrt(t), in the unit of the objectives: no bound of the distance to the "
    "optimum is known. Add one to the constraints, such as cp.norm(x) <= 10"
)
_APART = (
    "every step minimizes public terms without a smoothness constant exactly, so that the step "
    "size follows from the other terms"
)


def step_reasons(program: Program, conditions: Conditions) -> list[str]:
    """Return which rule a step size that is left out follows, in words; nothing for 1 / L alone.

    Parameters
    ----------
    program : Program
    conditions : Conditions
    """
    reasons = [_APART] if any(local.rest is not None for local in program.agents) else []
    if smooth_constant(program) is None:
        scene = landscape(program, conditions)
        bounded = longest(scene, conditions.rounds) is not None
        reasons.append(_SOURCES[scene.source] if bounded else _UNKNOWN)
    return reasons


def require_scale(program: Program, scene: Landscape) -> None:
    """Refuse noisy steps whose length nothing public tells, before they spend a budget.

    Raises
    ------
    ModelError
        With a constraint that tells it.
    """
    if not scene.noisy or scene.smoothness or scene.distance < math.inf:
        return
    unknown = [a for a in program.agents if smoothness(a.form) is None] or program.agents
    local = next((a for a in unknown if _unbounded(a)), unknown[0])
    names = _unbounded(local) or [local.layout.pieces[0].name]
    bounds = ", ".join(f"cp.norm({name}) <= 10" for name in names)
    raise ModelError(
        f"The objective of agent '{local.name}' has no smoothness constant above 0, and no bound "
        "of the distance to its optimum is known. Add one to the agent's constraints, such as "
        f"{bounds} with a radius that fits the problem, or pass step= to the method. "
        "The step size follows from that distance, and a guess may spend the budget for nothing."
    )


def _unbounded(local: LocalProgram) -> list[str]:
    """Return the names of the variables that the agent's set does not bound on both sides."""
    extent = local.projector().extent()
    width = extent.upper - extent.lower
    places = [(p.name, width[p.offset : p.offset + p.entries.size]) for p in local.layout.pieces]
    return [name for name, entries in places if not np.isfinite(entries).all()]


def longest(scene: Landscape, rounds: int) -> float | None:
    """Return the largest step size to try: 1 / L, or where slopes jump, by the way across the set.

    A single noisy step cannot swing ever farther, as several can: it may be as long as the largest
    of the curvatures that are taken as typical allows. None where nothing is known of either.
    """
    if scene.smoothness:
        alone = scene.noisy and rounds == 1 and scene.curvature > 0
        largest = max(_SPECTRUM) * scene.curvature if alone else scene.smoothness
        return 1 / min(largest, scene.smoothness)
    across = scene.distance / scene.slope if scene.slope > 0 else math.inf
    if not 0 < across < math.inf:
        return None
    return min(_LONGEST * across / math.sqrt(rounds), scene.limit)


def constant_step(
    scene: Landscape, rounds: int, largest: float, asked: Output | None
) -> tuple[float, Output | None]:
    """Return the step size and what to report, for methods with one number for a step."""
    # Where a set is one point, steps lead nowhere, however long they are.
    if not scene.noisy or not 0 < scene.distance < math.inf:
        return largest, asked
    prediction = predicted(scene, rounds, largest)
    return min(prediction.step, largest), asked or prediction.output


def chosen_penalty(scene: Landscape) -> float:
    """Return the penalty of exact steps: between a typical and the largest curvature.

    Without a curvature, the largest slope over the distance to the answer has its unit.
    """
    L = scene.smoothness or scene.scale
    return math.sqrt(scene.curvature * L) or scene.scale or 1.0


def _where_slopes_jump(scene: Landscape, rounds: int, pull: float) -> Prediction:
    r"""Predict by :math:`D^2 / (2 \eta T) + \eta (G^2 / 4 + n \sigma^2) / 2`, about a bound.

    With D the distance and G the slope. Both terms are equal then: half is of noise and kicks.
    Slopes that jump kick as hard near the answer as far from it; those of many records together
    half as hard, for they jump one by one.
    """
    noise = sum(block.size * block.noise**2 for block in scene.blocks)
    kick = math.sqrt((scene.slope**2 / 4 + noise) / rounds)
    holders = max(block.holders for block in scene.blocks)
    shared = any(block.holders > 1 for block in scene.blocks)
    step = scene.distance / (kick * rounds * (pull if shared else 1.0))
    step = min(step, scene.limit / max(1.0, pull))
    output: Output = "weighted" if rounds > FEW else "last"
    start = holders * scene.slope * scene.distance
    gap = holders * kick * scene.distance
    return Prediction(step, output, gap, start, gap / 2)


def _worst_noise(scene: Landscape, step: float, rounds: int, output: Output, pull: float) -> float:
    """Return the gap that noise leaves of a quadratic of the worst curvature that is possible."""
    total = 0.0
    for block in scene.blocks:
        eta = step * (pull if block.holders > 1 else 1.0)
        q = min(1.0, eta * (scene.smoothness or math.inf)) * np.geomspace(1e-3, 1.0, 60)
        worst = float((q * _response(q, rounds, output)[1]).max())
        total += block.holders * block.size * eta * block.noise**2 * worst / 2
    return total


def _parts(
    scene: Landscape, steps: Array, rounds: int, output: Output, pull: float
) -> list[tuple[Array, Array]]:
    """Return the gaps from bias and from noise, per block and direction."""
    parts = []
    for block in scene.blocks:
        eta = steps * (pull if block.holders > 1 else 1.0)
        spectrum = _SPECTRUM if block.size > 1 else (1.0,)
        for relative in spectrum:
            rest = max(0.0, scene.curvature - scene.convexity)
            h = scene.convexity + relative * rest
            bias, weight = _response(eta * h, rounds, output)
            share = block.holders * h / 2 / len(spectrum)
            spread = block.size * (eta * block.noise) ** 2
            parts.append((share * bias**2 * block.distance**2, share * weight * spread))
    return parts


def _response(q: Array, T: int, output: Output) -> tuple[Array, Array]:
    """Return the remaining share of a distance, and squared weights of noise, for ``q = eta h``."""
    if output == "weighted":
        return _weighted(q, T)
    K = {"last": 1, "tail": max(1, T - T // 2), "average": T}[output]
    # Below, differences of nearly equal numbers; above, steps that overshoot.
    q = np.clip(q, 1e-6 / T, 1 - 1e-12)
    log = np.log1p(-q)
    once, twice = -np.expm1(K * log), -np.expm1(2 * K * log)
    c, slow = 1 - q, q * (2 - q)
    bias = np.exp((T - K + 1) * log) * once / (K * q)
    early = (once * c) ** 2 * -np.expm1(2 * (T - K) * log) / slow
    late = K - 2 * c * once / q + c**2 * twice / slow
    return bias, (early + late) / (K * q) ** 2


def _weighted(q: Array, T: int) -> tuple[Array, Array]:
    """Return `_response` for the average that is weighted by the rounds."""
    given, q = q, np.clip(q, 3e-3 / T, 1 - 1e-12)  # below, differences of nearly equal numbers
    log, c = np.log1p(-q), 1 - q
    total, alpha, beta = T * (T + 1) / 2, c / q, T + 1 / q
    once, twice = -np.expm1(T * log), -np.expm1(2 * T * log)
    first = c * once / q  # the sum of c^i
    second = (first - T * np.exp((T + 1) * log)) / q  # of i c^i
    # Noise of round k has k + alpha - beta c^(T - k + 1), over q and the total.
    square = T * (T + 1) * (2 * T + 1) / 6 + alpha * T * (T + 1) + T * alpha**2
    mixed = (T + 1 + alpha) * first - second
    noise = square - 2 * beta * mixed + beta**2 * c**2 * twice / (q * (2 - q))
    bias = np.where(given < q, 1 - given * (2 * T + 1) / 3, second / total)
    return bias, noise / (q * total) ** 2
