r"""Public estimates for a problem: curvature, size of gradients, and distance to the optimum.

Step sizes follow from them. All estimates scale with the units of objectives and variables.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..algorithms.facts import Conditions
from ..algorithms.program import LocalProgram, Program, once_per_kind
from ..model.curvature import (
    mean_curvature,
    quadratic_curvature,
    smoothness,
    strong_convexity,
)
from ..model.quadratic import is_quadratic_given_data
from ..solvers.projector import Extent, Projector

Array = NDArray[np.float64]

# Typical distance to the optimum, in units of the initial value divided by the largest slope.
_DESCENTS = 6.0
# Largest sum, over sets, of squared numbers of components for computing extents, which takes a few
# seconds: each component needs two solves.
_SEARCHED = 360_000


@dataclass(frozen=True)
class VariableGroup:
    """Estimated size and distance to the optimum, for all shared or all local variables."""

    size: int  # number of entries
    holders: float  # mean number of agents per entry
    noise: float  # standard deviation of an entry of the mean of the holders' gradients
    distance: float  # approximate distance to the optimum; infinite if unknown


@dataclass(frozen=True)
class Landscape:
    """Public estimates of the objectives' curvatures, slopes and distance to the optimum.

    Attributes
    ----------
    blocks : tuple of VariableGroup
        Estimates for the shared variables and for the local variables, without empty groups.
    smoothness : float or None
        Largest smoothness constant of an agent; None if an agent's constant is unknown.
    curvature : float
        Typical second derivative of an agent's objective.
    convexity : float
        Modulus of strong convexity of the mean of the objectives.
    slope : float
        Approximate largest size of an agent's gradient; 0 if unknown.
    bend : float
        Largest curvature of an agent's quadratic terms, if other terms have no smoothness constant;
        0 otherwise. It then limits the step size.
    source : {"set", "labels", "losses"}
        Source of the distance: bounds of the set, losses for labels at their declared bounds, or
        slopes together with values and curvatures of the losses.
    """

    blocks: tuple[VariableGroup, ...]
    smoothness: float | None
    curvature: float
    convexity: float
    slope: float
    bend: float = 0.0
    source: Literal["set", "labels", "losses"] = "losses"

    @property
    def limit(self) -> float:
        """Largest step size for convergence on the smooth terms of nonsmooth objectives."""
        most = max(self.bend, self.convexity)
        return 1 / most if most > 0 else math.inf

    @property
    def noisy(self) -> bool:
        """Return whether released gradients have noise."""
        return any(block.noise > 0 for block in self.blocks)

    @property
    def distance(self) -> float:
        """Estimated distance from the initial point to the optimum, over all entries."""
        return math.hypot(*(block.distance for block in self.blocks)) if self.blocks else 0.0

    @property
    def scale(self) -> float:
        """Typical curvature; if it is 0, largest slope over distance to the optimum, if known."""
        if self.curvature > 0 or not 0 < self.distance < math.inf:
            return self.curvature
        return self.slope / self.distance

    def scaled(self, noise: float, distance: float = 1.0) -> Landscape:
        """Return the estimates with noise and distances multiplied by factors.

        Parameters
        ----------
        noise, distance : float
        """
        blocks = tuple(
            replace(b, noise=b.noise * noise, distance=b.distance * distance) for b in self.blocks
        )
        return replace(self, blocks=blocks)


def summed(scene: Landscape, agents: int) -> Landscape:
    """Return the estimates for the sum of agents' objectives, for steps with one agent's gradient.

    The gradient of one agent, multiplied by the number of agents, replaces the sum.
    """
    blocks = tuple(
        replace(b, holders=1.0, noise=b.noise * math.sqrt(b.holders) * agents) for b in scene.blocks
    )
    return Landscape(
        blocks,
        None if scene.smoothness is None else agents * scene.smoothness,
        agents * scene.curvature,
        agents * scene.convexity,
        agents * scene.slope,
        agents * scene.bend,
        scene.source,
    )


def landscape(program: Program, conditions: Conditions) -> Landscape:
    """Return the public estimates of curvature, slope and distance for a problem.

    Parameters
    ----------
    program : Program
    conditions : Conditions
    """
    agents = program.agents
    constants = [smoothness(local.form) for local in agents]
    finite = [L for L in constants if L is not None]
    # Without any curvature, as for linear objectives, smoothness limits no step: None.
    largest = (max(finite) or None) if len(finite) == len(agents) else None
    convexity = float(np.mean([strong_convexity(local.form) for local in agents]))
    sets = _sets(agents)
    slopes = [
        max(slope, of_set.slope) for slope, of_set in zip(conditions.slope, sets, strict=True)
    ]
    slope = _rms(slopes)
    # Clips lower slopes and not the distance to the optimum.
    whole = max(slope, _rms(conditions.whole))
    value = _rms(once_per_kind(agents, _value))
    # For nonsmooth losses such as hinges, the curvature is the slope over the distance; see below.
    means = [mean_curvature(local.form) for local in agents]
    smooth = None if None in means else float(np.mean([mean or 0.0 for mean in means]))
    bounds = [of_set.within for of_set in sets]
    tails = _tails(agents, slopes, constants)
    if tails > 0:
        largest, value = None, 0.0  # neither bounds the distance for losses with straight tails
    natural = _natural(whole, largest, convexity, value, bounds)
    if tails > 0:
        natural = min(natural, tails)
    source: Literal["set", "labels", "losses"] = "losses"
    untold = tails == 0 and largest is None and not _tells(value, whole, natural)
    if whole > 0 and (math.isinf(natural) or untold):
        # The initial loss for labels at their declared bounds estimates the decrease of the
        # objective. A small quadratic penalty also bounds the distance, but far away.
        filled = _DESCENTS * _rms([max(0.0, v) for v in once_per_kind(agents, _filled_value)])
        if 0 < filled < whole * natural:
            natural, source = filled / whole, "labels"
    if math.inf > sum(_squares(program, bounds)) <= natural**2:
        source = "set"
    spreads = [np.minimum(within, natural**2 / within.size) for within in bounds]
    shared_square, own_square = _squares(program, spreads)
    noises = conditions.noise
    local_entries = sum(local.n - local.shared.size for local in agents)
    blocks = []
    if program.size:
        holders = float(np.mean(program.holders))
        # With distributed noise, agents also add noise to entries that they do not hold.
        noise = _rms(noises) * math.sqrt(len(agents) if conditions.split else holders) / holders
        blocks.append(VariableGroup(program.size, holders, noise, math.sqrt(shared_square)))
    if local_entries:
        adding = len(agents) if conditions.split else 1
        pairs = zip(noises, agents, strict=True)
        share = [adding * s**2 * (a.n - a.shared.size) for s, a in pairs]
        blocks.append(
            VariableGroup(
                local_entries, 1.0, math.sqrt(sum(share) / local_entries), math.sqrt(own_square)
            )
        )
    if tails > 0 or _cut_off(agents, conditions):
        # Clipped squares, like absolute values, are as steep far from the optimum as near it.
        largest = smooth = None
    bend = 0.0
    if largest is None:
        bend = max(once_per_kind(agents, lambda local: quadratic_curvature(local.form)))
    scene = Landscape(tuple(blocks), largest, 0.0, convexity, slope, bend, source)
    distance = scene.distance
    if not smooth:
        smooth = convexity + (slope / distance if 0 < distance < math.inf else 0.0)
    return replace(scene, curvature=smooth)


def _cut_off(agents: Sequence[LocalProgram], conditions: Conditions) -> bool:
    """Return whether agents clip gradients of squared losses, which would grow without bound."""
    pairs = zip(agents, conditions.slope, conditions.whole, strict=False)
    return any(cut < whole and is_quadratic_given_data(a.form) for a, cut, whole in pairs)


def _tails(
    agents: Sequence[LocalProgram], slopes: Sequence[float], constants: Sequence[float | None]
) -> float:
    """Return the distance to the optimum for losses with linear tails, such as Huber's.

    It is 0 for other losses. Losses have linear tails if their initial value for labels at their
    bounds exceeds G^2 / L, with the largest gradient G and the smoothness constant L. For squares,
    the value is at most half of this.
    """
    largest = 0.0
    values = once_per_kind(agents, _filled_value)
    for value, slope, L in zip(values, slopes, constants, strict=True):
        # A slope is half of the largest gradient of records.
        if L is not None and slope > 0 and value * L > (2 * slope) ** 2:
            largest = max(largest, value / slope)
    return largest


def _filled_value(local: LocalProgram) -> float:
    """Return the initial objective for labels at their bounds, minus the one for zero records.

    Return 0 for squares, because their gradients grow without bound.
    """
    form, largest = local.form, 0.0
    if is_quadratic_given_data(form):
        return 0.0
    with np.errstate(all="ignore"):  # at the edge of its domain it may have no value
        none = form.at_zero().value(local.start)
    for sign in (1.0, -1.0):
        filled = form.at_labels(sign)
        if filled is None:
            return 0.0
        with np.errstate(all="ignore"):
            value = filled.value(local.start) - none
        largest = max(largest, value) if math.isfinite(value) else largest
    return largest


def _natural(
    slope: float, smoothness: float | None, convexity: float, value: float, bounds: Sequence[Array]
) -> float:
    """Return the approximate distance from the initial point to the optimum of the losses.

    It follows from the largest gradient `slope`, the smoothness, the convexity modulus, and the
    initial `value` above zero data. It is infinite if none of them bounds it. `bounds` on the
    distance only tell whether `value` determines it.
    """
    if slope <= 0:
        return math.inf
    lengths = [slope / h for h in (smoothness, convexity) if h]
    across = math.sqrt(sum(float(within[np.isfinite(within)].sum()) for within in bounds))
    shortest = min((length for length in (*lengths, across) if length > 0), default=0.0)
    if smoothness is None and _tells(value, slope, shortest):
        lengths.append(_DESCENTS * value / slope)
    return min(lengths, default=math.inf)


def _tells(value: float, slope: float, shortest: float) -> bool:
    """Return whether the objective's initial value tells the distance to the optimum.

    It does not if the initial point is nearly optimal for zero data.
    """
    return _DESCENTS * value > 1e-3 * slope * shortest


def _value(local: LocalProgram) -> float:
    """Return the objective's value at the initial point for zero data, minus its constant."""
    with np.errstate(all="ignore"):  # at the edge of its domain it may have no value
        value = local.form.at_zero().value(local.start) - float(local.form.root.h.sum())
    return value if math.isfinite(value) and value > 0 else 0.0


class _Set(NamedTuple):
    """Estimates from an agent's feasible set, whose extent may need two solves per component.

    Attributes
    ----------
    slope : float
        Largest norm of the gradient at zero data, over the initial point and two corners of the
        set's bounding box.
    within : ndarray, shape (n,)
        Expected squared distance to the optimum per entry, from bounds alone; infinite without
        bounds.
    """

    slope: float
    within: Array


def _sets(agents: Sequence[LocalProgram]) -> list[_Set]:
    """Return the estimates from all agents' sets, without solves if these would take too long."""
    onto = once_per_kind(agents, lambda local: (local, local.projector()))
    kinds = {id(kind): (kind, projector) for kind, projector in onto}
    conic = [projector.kinds["conic"] for _, projector in kinds.values()]
    searched = sum(n * n for n in conic) <= _SEARCHED

    def told(local: LocalProgram, projector: Projector) -> _Set:
        extent = projector.extent() if searched else projector.known_extent()
        return _Set(_public_slope(local, extent), _bounded(local, extent))

    by_kind = {key: told(*pair) for key, pair in kinds.items()}
    return [by_kind[id(kind)] for kind, _ in onto]


def _bounded(local: LocalProgram, extent: Extent) -> Array:
    """Return the expected squared distance from start to optimum per entry, shape (n,).

    It is a quarter of the mean squared distance of uniform points within the bounds.
    """
    with np.errstate(invalid="ignore"):
        width = extent.upper - extent.lower
        middle = (extent.upper + extent.lower) / 2 - local.start
        within = (width**2 / 12 + middle**2) / 4
    for columns, radius in extent.balls:
        within[columns] = np.fmin(within[columns], radius**2 / columns.size)
    return np.where(np.isfinite(within), within, np.inf)


def _squares(program: Program, spreads: Sequence[Array]) -> tuple[float, float]:
    """Return the estimated squared distances to the optimum in shared and local variables."""
    nearest = np.full(program.size, np.inf)
    local_sum = 0.0
    for local, spread in zip(program.agents, spreads, strict=True):
        nearest[local.slots] = np.minimum(nearest[local.slots], spread[local.shared])
        local_sum += float(np.delete(spread, local.shared).sum())
    return float(nearest.sum()), local_sum


def _public_slope(local: LocalProgram, extent: Extent) -> float:
    clips = () if local.clip is None else local.sensitivity().clips
    gradient = local.form.at_zero(clips).gradient
    points = [local.start]
    if np.isfinite(extent.lower).all() and np.isfinite(extent.upper).all():
        points += [extent.lower, extent.upper]
    sizes = [float(np.linalg.norm(gradient(x))) for x in points]
    return max((size for size in sizes if math.isfinite(size)), default=0.0)


def _rms(values: Sequence[float]) -> float:
    return math.sqrt(sum(value**2 for value in values) / len(values)) if values else 0.0
