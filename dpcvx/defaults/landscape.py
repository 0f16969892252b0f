r"""The lie of a problem, as far as it is public: curvature, slope, and how far the answer may be.

Steps are chosen by it. All of it scales with the problem: with the unit of the objectives and with
the unit of the variables.
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

# How much farther an answer lies than a steepest descent to 0 has to go.
_DESCENTS = 6.0
# Sets are searched for their extent up to this sum of squared numbers of components, which is a few
# seconds: each component takes two solves, and hundreds of zones would take minutes.
_SEARCHED = 360_000


@dataclass(frozen=True)
class VariableGroup:
    """Variables that as many agents hold, seen by the mean of these agents."""

    size: int  # entries
    holders: float  # agents per entry
    noise: float  # standard deviation of one entry of the mean of their gradients
    distance: float  # from the start to the answer, about; infinite if nothing is known


@dataclass(frozen=True)
class Landscape:
    """Public facts about the objectives of agents.

    Attributes
    ----------
    blocks : tuple of VariableGroup
        The shared variables, and those of one agent each; what is empty is left out.
    smoothness : float or None
        Largest smoothness constant of an agent; None where one is not known.
    curvature : float
        A typical second derivative of an agent.
    convexity : float
        A modulus of strong convexity of their mean.
    slope : float
        Approximate largest size of an agent's gradient; 0 if unknown.
    bend : float
        Largest curvature of an agent's quadratic terms, which has to limit steps if the other
        terms have no smoothness constant; 0 if they have one.
    source : {"set", "labels", "losses"}
        Source of the distance: bounds of the set, losses of labels that fill their declared bounds,
        or slopes next to values and curvatures of the losses.
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
        """Largest step size that keeps terms with curvature, besides jumps, from diverging."""
        most = max(self.bend, self.convexity)
        return 1 / most if most > 0 else math.inf

    @property
    def noisy(self) -> bool:
        """Return whether gradients have noise."""
        return any(block.noise > 0 for block in self.blocks)

    @property
    def distance(self) -> float:
        """Distance from the initial point to the optimum, over all entries."""
        return math.hypot(*(block.distance for block in self.blocks)) if self.blocks else 0.0

    @property
    def scale(self) -> float:
        """Curvature that is never 0 where anything is known: the slope falls over the distance."""
        if self.curvature > 0 or not 0 < self.distance < math.inf:
            return self.curvature
        return self.slope / self.distance

    def scaled(self, noise: float, distance: float = 1.0) -> Landscape:
        """Return the landscape with all noise, and all distances, times a factor.

        Parameters
        ----------
        noise, distance : float
        """
        blocks = tuple(
            replace(b, noise=b.noise * noise, distance=b.distance * distance) for b in self.blocks
        )
        return replace(self, blocks=blocks)


def summed(scene: Landscape, agents: int) -> Landscape:
    """Return the landscape of the sum of so many agents' objectives, for one agent in turn."""
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
    """Return the landscape of a problem under these conditions.

    Parameters
    ----------
    program : Program
    conditions : Conditions
    """
    agents = program.agents
    constants = [smoothness(local.form) for local in agents]
    finite = [L for L in constants if L is not None]
    # Without any curvature, as of linear objectives, it limits no step.
    largest = (max(finite) or None) if len(finite) == len(agents) else None
    convexity = float(np.mean([strong_convexity(local.form) for local in agents]))
    sets = _sets(agents)
    slopes = [
        max(slope, of_set.slope) for slope, of_set in zip(conditions.slope, sets, strict=True)
    ]
    slope = _rms(slopes)
    # Clips do not bring the answer nearer.
    whole = max(slope, _rms(conditions.whole))
    value = _rms(once_per_kind(agents, _value))
    # Where slopes jump, as those of hinges do, they fall by themselves over the whole distance.
    means = [mean_curvature(local.form) for local in agents]
    smooth = None if None in means else float(np.mean([mean or 0.0 for mean in means]))
    bounds = [of_set.within for of_set in sets]
    tails = _tails(agents, slopes, constants)
    if tails > 0:
        largest, value = None, 0.0  # neither tells how far losses with straight tails go down
    natural = _natural(whole, largest, convexity, value, bounds)
    if tails > 0:
        natural = min(natural, tails)
    source: Literal["set", "labels", "losses"] = "losses"
    untold = tails == 0 and largest is None and not _tells(value, whole, natural)
    if whole > 0 and (math.isinf(natural) or untold):
        # How far down there is to go, from declared bounds: it has the unit of the objectives. A
        # slight quadratic penalty beside jumps bounds the distance as well, but far away.
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
        # Where noise is split, agents add it to entries that they do not hold as well.
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
        # Then squares are as steep far from the answer as near it, as absolute values are.
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
    """Return whether clips cut off squares of records, whose slopes would grow without end."""
    pairs = zip(agents, conditions.slope, conditions.whole, strict=False)
    return any(cut < whole and is_quadratic_given_data(a.form) for a, cut, whole in pairs)


def _tails(
    agents: Sequence[LocalProgram], slopes: Sequence[float], constants: Sequence[float | None]
) -> float:
    """Return the distance that losses with straight tails, as Huber's, go down; 0 for others.

    Labels that fill their bounds then cost more at the start than the steepest way down through
    what bends could win: for squares, that is at most half of it.
    """
    largest = 0.0
    values = once_per_kind(agents, _filled_value)
    for value, slope, L in zip(values, slopes, constants, strict=True):
        # A slope is half of what records can have.
        if L is not None and slope > 0 and value * L > (2 * slope) ** 2:
            largest = max(largest, value / slope)
    return largest


def _filled_value(local: LocalProgram) -> float:
    """Return the initial value for labels that fill their bounds, beyond that for zero records.

    It is 0 for squares, since their gradients grow without bound.
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
    """Return the distance from the start that an answer may have, bounds apart."""
    if slope <= 0:
        return math.inf
    lengths = [slope / h for h in (smoothness, convexity) if h]
    across = math.sqrt(sum(float(within[np.isfinite(within)].sum()) for within in bounds))
    shortest = min((length for length in (*lengths, across) if length > 0), default=0.0)
    if smoothness is None and _tells(value, slope, shortest):
        lengths.append(_DESCENTS * value / slope)
    return min(lengths, default=math.inf)


def _tells(value: float, slope: float, shortest: float) -> bool:
    """Return whether a value tells a distance: not if the start is nearly minimal for zero data."""
    return _DESCENTS * value > 1e-3 * slope * shortest


def _value(local: LocalProgram) -> float:
    """Return the initial value at zero data, without the constant of the objective."""
    with np.errstate(all="ignore"):  # at the edge of its domain it may have no value
        value = local.form.at_zero().value(local.start) - float(local.form.root.h.sum())
    return value if math.isfinite(value) and value > 0 else 0.0


class _Set(NamedTuple):
    """Facts about an agent's set; its extent may take two solves for each component.

    Attributes
    ----------
    slope : float
        Largest gradient at zero data, at the start and at the corners of the set.
    within : ndarray, shape (n,)
        Per entry, the squared distance to expect from bounds alone; infinite without.
    """

    slope: float
    within: Array


def _sets(agents: Sequence[LocalProgram]) -> list[_Set]:
    """Return the facts about all sets, without solves if these would take too long."""
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
    """Return the squared distances to expect: a quarter of those of uniform points in bounds."""
    with np.errstate(invalid="ignore"):
        width = extent.upper - extent.lower
        middle = (extent.upper + extent.lower) / 2 - local.start
        within = (width**2 / 12 + middle**2) / 4
    for columns, radius in extent.balls:
        within[columns] = np.fmin(within[columns], radius**2 / columns.size)
    return np.where(np.isfinite(within), within, np.inf)


def _squares(program: Program, spreads: Sequence[Array]) -> tuple[float, float]:
    """Return squared distances in the shared and in the agents' own variables."""
    nearest = np.full(program.size, np.inf)
    local_sum = 0.0
    for local, spread in zip(program.agents, spreads, strict=True):
        nearest[local.slots] = np.minimum(nearest[local.slots], spread[local.shared])
        local_sum += float(np.delete(spread, local.shared).sum())
    return float(nearest.sum()), local_sum


def _public_slope(local: LocalProgram, extent: Extent) -> float:
    gradient = local.form.at_zero().gradient
    points = [local.start]
    if np.isfinite(extent.lower).all() and np.isfinite(extent.upper).all():
        points += [extent.lower, extent.upper]
    sizes = [float(np.linalg.norm(gradient(x))) for x in points]
    return max((size for size in sizes if math.isfinite(size)), default=0.0)


def _rms(values: Sequence[float]) -> float:
    return math.sqrt(sum(value**2 for value in values) / len(values)) if values else 0.0
