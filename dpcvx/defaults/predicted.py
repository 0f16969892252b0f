r"""Step sizes and weights of quadratics, chosen by predicted suboptimality on a quadratic.

*Step sizes.* Take noisy gradient descent with step size :math:`\eta` along a direction of curvature
h, with the initial distance :math:`e_0` from the optimum and independent noise :math:`\xi_k` in
round k. The distance after t rounds is

.. math::
    e_t = c^t e_0 - \eta \sum_{k \le t} c^{t-k} \xi_k, \qquad c = 1 - \eta h ,

so the mean of the last K of T iterates has the bias and the variance

.. math::
    \frac{c^{T-K+1}}{K} \frac{1 - c^K}{1 - c}\, e_0, \qquad
    \frac{\sigma^2}{K^2 h^2} \Bigl[ (1 - c^K)^2 c^2 \frac{1 - c^{2(T-K)}}{1 - c^2}
        + \sum_{j=1}^{K} (1 - c^j)^2 \Bigr] .

In the weighted average, the noise of round k has the weight :math:`\sum_{t \ge k} t c^{t-k}`
divided by :math:`T (T + 1) / 2`, which is a geometric sum as well.

The suboptimality is h / 2 times the sum of the squared bias and the variance, over all directions.
Single curvatures are not known; they are assumed to lie around the typical one, some far below it.
The distance is not known either. The chosen step minimizes the product of the suboptimalities for a
third of the estimated distance, for that distance, and for three times that distance.

*Objective perturbation.* Let the objective have curvature h near the solution, at distance R from
the initial point. A quadratic of weight :math:`\Delta` and a random linear term b move the
minimizer by :math:`\Delta R / (h + \Delta)` and :math:`b / (h + \Delta)`. With the mean of N
agents' minimizers, the objective rises by about

.. math::
    \frac{h}{2 (h + \Delta)^2} \Bigl(\Delta^2 R^2 + \frac{1}{N} \operatorname{E} \|b\|^2\Bigr) .

The noise grows with the part of epsilon that the determinant takes, and this part falls with
:math:`\Delta`. The weight with the smallest sum is proposed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..algorithms.facts import Conditions, Output, StepRule
from ..algorithms.program import LocalProgram, Program, once_per_kind
from ..algorithms.steps import Constant, Sqrt, smooth_constant
from ..errors import ModelError
from ..model.curvature import mean_curvature, smoothness
from ..plan.agent_plan import Agents
from ..sensitivity.queries.solutions import perturbation_bounds
from .landscape import Landscape, landscape

Array = NDArray[np.float64]

# Assumed curvatures relative to the typical one, with mean 1.
_SPECTRUM = (0.2, 0.6, 2.2)
# Assumed distances relative to the estimated one.
_DISTANCES = (1 / 3, 1.0, 3.0)
# Largest step for nonsmooth losses: sqrt(T) of these steps with the largest gradient cover the
# estimated distance to the optimum this many times.
_LONGEST = 4.0
# Typical size of labels, relative to their declared bounds.
_LABELS = 1 / 3
# Number of rounds up to which the last iterate is better than an average.
FEW = 8
# Step sizes to try, relative to the largest.
_FRACTIONS = np.geomspace(1e-8, 1.0, 240)


@dataclass(frozen=True)
class Prediction:
    """A step size of noisy gradient descent, and the predicted suboptimality with it.

    Attributes
    ----------
    step : float
        Step size, the factor on a gradient.
    output : {"average", "last", "tail", "weighted"}
        Iterate to return.
    gap : float
        Predicted suboptimality at the end, for the sum of all agents' objectives.
    start : float
        Estimated suboptimality of the initial point.
    noise : float
        Suboptimality that noise may cause for any distance: for a quadratic of the worst curvature
        for these steps, or by the bound for nonsmooth losses.
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
    """Return the prediction for noisy gradient descent with the best step size and iterate.

    Parameters
    ----------
    scene : Landscape
    rounds : int
        Number of steps.
    largest : float
        Upper limit on the step size.
    pull : float
        Share of a step that changes shared variables. It is below 1 in methods that pull copies
        together, and equals the number of holders for steps along sums of gradients.
    outputs : sequence of str
        Iterates that may be returned.
    """
    if scene.smoothness is None:
        return _where_slopes_jump(scene, rounds, pull)
    outputs = outputs if rounds > 1 else outputs[:1]  # all are equal after a single round
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
    """Step-size rule and returned iterate chosen for a method whose user passes no step size.

    Attributes
    ----------
    rule : step rule
    output : {"average", "last", "tail", "weighted", None}
        Iterate to return; None for the method's default.
    prediction : Prediction or None
        Prediction for noisy steps; None without noise.
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
    """Return the step-size rule of a gradient method, from public facts.

    Without noise, the step size is 1 / L with the smoothness constant L. For nonsmooth losses it
    decreases like ``1 / sqrt(t)``; the first step with the largest gradient covers the estimated
    distance to the optimum. With noise, the step size is `predicted`. For nonsmooth losses with
    `falls`, it also decreases like ``1 / sqrt(t)``, which tolerates a wrong estimate of the
    distance. If neither the distance nor the curvature is known, noisy steps are refused; without
    noise, the steps are the papers' ``1 / sqrt(t)``, which depends on units.

    For the other arguments and errors see `PublicFacts.step`, and for `pull` see `predicted`.
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
    "set": "the step size follows from the size of the set and the largest derivative, because "
    "losses are nonsmooth",
    "labels": "the step size follows from an estimated distance to the optimum, because losses are "
    "nonsmooth: six times the loss for labels at their declared bounds, over the largest "
    "derivative; if noise dominates, steps are up to three times shorter",
    "losses": "the step size follows from an estimated distance to the optimum, because losses are "
    "nonsmooth: values and curvatures of the losses at the initial point, and their largest "
    "derivative, give the distance",
}
_UNKNOWN = (
    "steps fall like 1/sqrt(t), in the unit of the objectives: no bound of the distance to the "
    "optimum is known. Add one to the constraints, such as cp.norm(x) <= 10"
)
_APART = (
    "every step exactly minimizes the public terms that have no smoothness constant, so that the "
    "step size follows from the other terms"
)


def step_reasons(program: Program, conditions: Conditions) -> list[str]:
    """Return sentences on the rule for an omitted step size; no sentence if it is 1 / L.

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
    """Refuse noisy steps if no public fact determines their length.

    Raises
    ------
    ModelError
        The error suggests a constraint that determines the length.
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
        f"{bounds} with a radius that fits the problem, or pass step= to the method. The step "
        "size follows from that distance, and a wrong guess could waste the budget."
    )


def _unbounded(local: LocalProgram) -> list[str]:
    """Return the names of variables that the agent's set does not bound on both sides."""
    extent = local.projector().extent()
    width = extent.upper - extent.lower
    places = [(p.name, width[p.offset : p.offset + p.entries.size]) for p in local.layout.pieces]
    return [name for name, entries in places if not np.isfinite(entries).all()]


def longest(scene: Landscape, rounds: int) -> float | None:
    """Return the largest step size to try; None if neither curvature nor distance is known.

    It is 1 / L with the smoothness constant L. For nonsmooth losses, it follows from the estimated
    distance to the optimum. A single noisy step cannot diverge, as several steps can, so its size
    may be the inverse of the largest typical curvature.
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
    """Return the step size, and the iterate a run returns, for methods with constant steps only."""
    # Without noise or a finite positive distance, there is no prediction.
    if not scene.noisy or not 0 < scene.distance < math.inf:
        return largest, asked
    prediction = predicted(scene, rounds, largest)
    return min(prediction.step, largest), asked or prediction.output


def chosen_penalty(scene: Landscape) -> float:
    """Return the penalty of exact steps: the geometric mean of typical and largest curvature.

    Without a curvature, it is the largest slope divided by the distance to the optimum.
    """
    L = scene.smoothness or scene.scale
    return math.sqrt(scene.curvature * L) or scene.scale or 1.0


def _where_slopes_jump(scene: Landscape, rounds: int, pull: float) -> Prediction:
    r"""Return the predicted suboptimality and step size for nonsmooth losses.

    The suboptimality is taken as :math:`D^2 / (2 \eta T) + \eta (G^2 / 4 + n \sigma^2) / 2`, which
    is about a bound, with the distance D and the slope G. At the best :math:`\eta` both terms are
    equal, so half is due to noise and subgradients. Subgradients stay as large near the optimum as
    far from it. For sums over many records they are about half as large (:math:`G^2 / 4`), because
    single records jump one by one.

    If D follows from labels at their declared bounds, D / 3 is more typical, and the step size
    follows from it. Without noise, steps that are too long cost little, so they stay as they are:
    subgradients also count a third for the step size. The suboptimality stays the one for D.
    """
    noise = sum(block.size * block.noise**2 for block in scene.blocks)
    jumps = scene.slope**2 / 4
    kick = math.sqrt((jumps + noise) / rounds)
    holders = max(block.holders for block in scene.blocks)
    shared = any(block.holders > 1 for block in scene.blocks)
    step = scene.distance / (kick * rounds * (pull if shared else 1.0))
    if scene.source == "labels":
        step *= _LABELS * math.sqrt((jumps + noise) / (_LABELS**2 * jumps + noise))
    step = min(step, scene.limit / max(1.0, pull))
    output: Output = "weighted" if rounds > FEW else "last"
    start = holders * scene.slope * scene.distance
    gap = holders * kick * scene.distance
    return Prediction(step, output, gap, start, gap / 2)


def _worst_noise(scene: Landscape, step: float, rounds: int, output: Output, pull: float) -> float:
    """Return the suboptimality that noise causes for a quadratic of the worst curvature."""
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
    """Return the suboptimality from bias and from noise, by variable group and direction."""
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
    """Return the bias relative to the distance, and the variance relative to one step's noise.

    Both are for q = eta h; the noise of one step has the variance ``(eta sigma)^2``.
    """
    if output == "weighted":
        return _weighted(q, T)
    K = {"last": 1, "tail": max(1, T - T // 2), "average": T}[output]
    # Smaller q lead to cancellation; larger q are steps that overshoot.
    q = np.clip(q, 1e-6 / T, 1 - 1e-12)
    log = np.log1p(-q)
    once, twice = -np.expm1(K * log), -np.expm1(2 * K * log)
    c, slow = 1 - q, q * (2 - q)
    bias = np.exp((T - K + 1) * log) * once / (K * q)
    early = (once * c) ** 2 * -np.expm1(2 * (T - K) * log) / slow
    late = K - 2 * c * once / q + c**2 * twice / slow
    return bias, (early + late) / (K * q) ** 2


def _weighted(q: Array, T: int) -> tuple[Array, Array]:
    """Return bias and variance, as `_response` does, for the average weighted by the rounds."""
    given, q = q, np.clip(q, 3e-3 / T, 1 - 1e-12)  # smaller q lead to cancellation
    log, c = np.log1p(-q), 1 - q
    total, alpha, beta = T * (T + 1) / 2, c / q, T + 1 / q
    once, twice = -np.expm1(T * log), -np.expm1(2 * T * log)
    first = c * once / q  # sum of c^i for i from 1 to T
    second = (first - T * np.exp((T + 1) * log)) / q  # sum of i c^i
    # The noise of round k has the weight (k + alpha - beta c^(T - k + 1)) / (q total).
    square = T * (T + 1) * (2 * T + 1) / 6 + alpha * T * (T + 1) + T * alpha**2
    mixed = (T + 1 + alpha) * first - second
    noise = square - 2 * beta * mixed + beta**2 * c**2 * twice / (q * (2 - q))
    bias = np.where(given < q, 1 - given * (2 * T + 1) / 3, second / total)
    return bias, noise / (q * total) ** 2


# Weights to try, in units of the largest curvature of one record.
_WEIGHTS = 2.0 ** np.arange(-10.0, 10.5, 0.5)
# Typical curvature of records, relative to that of records at their bounds.
_TYPICAL = 0.4
# Typical distance to the solution, relative to the distance estimated from declared bounds.
_FARTHER = 2.5


def regularization(agents: Agents, epsilon: float, distance: float) -> float:
    """Return the weight of the added quadratic with the least predicted error.

    Parameters
    ----------
    agents : tuple of AgentPlan
    epsilon : float
        Privacy loss of one release.
    distance : float
        Typical distance from the initial point to the solution.
    """
    private = [agent for agent in agents if agent.bound > 0]
    bounds = once_per_kind(private, perturbation_bounds)
    typical = [_TYPICAL * (mean_curvature(agent.form) or 0.0) for agent in private]
    bend = max((b.bend for b in bounds), default=0.0)
    weights = [0.0, *(bend * _WEIGHTS).tolist()] if bend > 0 else [0.0]

    def error(weight: float) -> float:
        total = 0.0
        for bound, h in zip(bounds, typical, strict=True):
            term = bound.term(epsilon, weight)
            if term is None or not bound.searchable(weight):
                return math.inf
            h += bound.convexity
            moved = (weight * _FARTHER * distance) ** 2 + term.variance / len(private)
            total += h / (h + weight) ** 2 * moved if moved else 0.0
        return total

    errors = [error(weight) for weight in weights]
    best = int(np.argmin(errors))
    # If no weight is possible, return the largest: the plan then reports the obstacle. Three
    # digits, because processors round the last ones differently.
    return float(f"{weights[best if math.isfinite(errors[best]) else -1]:.3g}")
