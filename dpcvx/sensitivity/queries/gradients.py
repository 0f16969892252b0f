"""Queries for gradients: of an agent, summed over agents, as steps, or at stored vectors."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from ..._words import at_least, at_most
from ...errors import ModelError, PrivacyError
from ...solvers.steps import Contraction
from ..stored_vectors import StoredEffects
from .query import (
    ROUNDING,
    Facts,
    Known,
    Objective,
    Query,
    gradient_level,
    require_uniform,
    rounding_floors,
)

Array = NDArray[np.float64]
Index = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Gradient(Query):
    """Query for the gradient at x, or for its image under a public linear map.

    Attributes
    ----------
    x : ndarray, shape (n,)
        Public point.
    through : Contraction or None
        Public linear map; None for the gradient itself.
    """

    x: Array
    through: Contraction | None = None

    released = "gradient"
    batched = True

    @classmethod
    def noise(
        cls, facts: Facts, norm: int, times: str, scale: Callable[[float], float]
    ) -> tuple[float, str]:
        """Return scale and text of the noise; the scale is infinite if it differs by point."""
        level = gradient_level(facts, norm)
        if level == math.inf:
            return super().noise(facts, norm, times, scale)
        if _follows(facts, norm):
            return math.inf, (
                f"{times} what one change can do to the gradient near the public point of each "
                f"step, at most {at_most(scale(level))} per component"
            )
        return scale(level), f"scale {at_least(scale(level))} per component of the gradient"

    def bound(self, public_state: Known) -> float:
        """Return the sensitivity of the gradient at x, times the norm of the query's linear map."""
        return _mapped_bound(public_state.gradient_bound(self.x), self.through, public_state)

    def matters(self, public_state: Known) -> bool:
        """Return whether the gradient at x depends on data, even if `bound` underflowed to 0."""
        return public_state.gradient_bound(self.x) > 0

    def evaluate(self, objective: Objective) -> Array:
        """Return the data's part of the gradient at x, under the query's linear map."""
        return _mapped(objective.apart(self.x), self.through)

    def finish(self, left: Array, public: Callable[[Array], Array] | None) -> Array:
        """Return the gradient at x under the linear map: released values plus the public part."""
        return left if public is None else _mapped(public(self.x), self.through) + left

    def among(self, rows: Index | int) -> Query:
        """Return the query for some agents of a batch, at their own points."""
        if self.through is not None or not self.batched:
            return super().among(rows)
        return replace(self, x=_rows(self.x, rows))

    def labels(self, public_state: Known) -> Index | None:
        """Return a label per agent of a batch; agents with equal labels have equal bounds."""
        return _labels(self.x, public_state)


@dataclass(frozen=True, eq=False)
class Summand(Gradient):
    """Query for the gradient at x as one agent's summand in a sum of all agents' gradients.

    The whole vector has the components of all agents. The answer has two rows: the released
    summand, with noise in all entries of the whole vector, and the public part of the gradient, if
    the summand does not contain it.

    Attributes
    ----------
    place : ndarray of int, shape (n,)
        Positions of the agent's components in the whole vector.
    whole : int
        Length of the whole vector.
    """

    place: Index = field(kw_only=True)
    whole: int = field(kw_only=True)

    once = (
        "release='once' cannot be combined with sharing=. Drop one of them. With release='once' "
        "every agent releases its data separately, and sharing= hides gradients in sums."
    )

    @classmethod
    def check(cls, facts: Facts) -> None:
        """Refuse an agent without one sensitivity at all points, as all rounds have equal noise."""
        derived = facts.sensitivity
        if derived is not None and derived.l2 == math.inf:
            raise PrivacyError(
                "With sharing= all agents add the same noise, which is fixed before the first "
                f"round. So the effect of one change of the data of agent '{facts.name}' on its "
                f"gradient needs one bound for all points, and has none: {derived.obstacle}. "
                "Bound its variables, write dp.Agent(..., clip_norm=1.0), or leave sharing= out."
            )

    @classmethod
    def noise(
        cls, facts: Facts, norm: int, times: str, scale: Callable[[float], float]
    ) -> tuple[float, str]:
        """Return the scale and the text of the noise that each agent adds to its gradient."""
        part = scale(gradient_level(facts, norm))
        return part, f"scale {at_least(part)} per component of the gradient"

    def size(self, n: int) -> int:
        """Return the length of the whole vector, which all agents sum up."""
        return self.whole

    def evaluate(self, objective: Objective) -> Array:
        """Return the data's part of the gradient at x, padded with zeros to the whole vector."""
        return self._among_zeros(super().evaluate(objective))

    def finish(self, left: Array, public: Callable[[Array], Array] | None) -> Array:
        """Return two rows: the released values, and the public part of the gradient."""
        apart = np.zeros(self.x.size) if public is None else public(self.x)
        return np.stack([left, self._among_zeros(apart)])

    def _among_zeros(self, values: Array) -> Array:
        out = np.zeros(self.whole)
        out[self.place] = values
        return out


@dataclass(frozen=True, eq=False)
class Step(Query):
    """Query for the point after a gradient step, which is released itself.

    Attributes
    ----------
    x, center : ndarray, shape (n,)
        Point of the gradient, and start of the step, which may be an unreleased vector.
    step : float
        Step size.
    only : ndarray of int, optional
        Components that move and are released; all of them if omitted.
    through : Contraction, optional
        Public linear map that is applied to the gradient, and never increases distances; the
        identity if omitted.
    """

    x: Array
    center: Array
    step: float
    only: Index | None = None
    through: Contraction | None = None

    released = "iterate"
    batched = True
    charged = "the sensitivity of the new point, which is the step size times the gradient's"

    def __post_init__(self) -> None:
        if self.only is None:
            return
        inside = ((self.only >= 0) & (self.only < self.center.size)).all()
        if not inside or np.unique(self.only).size < self.only.size:
            raise ModelError(
                "Step(only=...) must name components of the point, each once and counted from "
                "0. A component that is released twice would be charged once."
            )

    @property
    def moving(self) -> Array | None:
        """Vector with 1 for components that the gradient step moves, else 0; None if all move."""
        if self.only is None:
            return None
        out = np.zeros(self.center.size)
        out[self.only] = 1.0
        return out

    def end(self, g: Array) -> Array:
        """Return the point after a step along the gradient g in all components, shape (n,)."""
        return self.center - self.step * _mapped(g, self.through)

    def size(self, n: int) -> int:
        """Return the number of components that the gradient step moves and releases."""
        return n if self.only is None else self.only.size

    def bound(self, public_state: Known) -> float:
        """Return the step size times the gradient's sensitivity in the components that move."""
        if self.through is not None:
            return self.step * _mapped_bound(
                public_state.gradient_bound(self.x), self.through, public_state
            )
        return self.step * public_state.gradient_bound(self.x, scale=self.moving)

    def matters(self, public_state: Known) -> bool:
        """Return whether the released point depends on data, even if `bound` underflowed to 0."""
        return public_state.gradient_bound(self.x, scale=self.moving) > 0

    def floor(self, public_state: Known) -> float:
        """Return the noise's least grid width, for the rounding of center and public step."""
        return float(self.floors(public_state))

    def floors(self, public_state: Known) -> Array:
        """Return the noise's least grid width for each row of centers or gradient points."""
        moves = self.step * public_state.public_gradient(self.x)
        return rounding_floors(self.center) + rounding_floors(moves)

    def among(self, rows: Index | int) -> Query:
        """Return the query for some agents of a batch, at their own points."""
        if self.through is not None or self.only is not None or not self.batched:
            return super().among(rows)
        return replace(self, x=_rows(self.x, rows), center=_rows(self.center, rows))

    def labels(self, public_state: Known) -> Index | None:
        """Return a label per agent of a batch; agents with equal labels have equal bounds."""
        return _labels(self.x, public_state)

    def evaluate(self, objective: Objective) -> Array:
        """Return the components that move, after the exact gradient step."""
        x = self.end(objective.gradient(self.x))
        return x if self.only is None else x[self.only]

    def finish(self, left: Array, public: Callable[[Array], Array] | None) -> Array:
        """Return the new point: released values in components that move, the center in others."""
        if self.only is None:
            return left
        x = self.center.copy()
        x[self.only] = left
        return x

    def hidden(self) -> Query:
        """Return this query itself, which already releases a point instead of a gradient."""
        return self


@dataclass(frozen=True, eq=False)
class GradientStep(Query):
    """Query for the point after a gradient step, computed from the released gradient.

    The point is ``center - step * through(gradient(x))``. If a run releases only the last iterate,
    the noise is added to the point instead.

    Attributes
    ----------
    x, center : ndarray, shape (n,)
        Public points: the point of the gradient, and the start of the step.
    step : float
        Step size.
    through : Contraction, optional
        Public linear map; the mapped gradient is released.
    """

    x: Array
    center: Array
    step: float
    through: Contraction | None = None

    released = "gradient"
    charged = "the gradient's sensitivity after the public linear map of the x step"

    @property
    def _gradient(self) -> Gradient:
        return Gradient(self.x, self.through)

    def bound(self, public_state: Known) -> float:
        """Return the sensitivity of the gradient at x under the query's linear map."""
        return self._gradient.bound(public_state)

    def matters(self, public_state: Known) -> bool:
        """Return whether the gradient at x depends on the data."""
        return self._gradient.matters(public_state)

    def evaluate(self, objective: Objective) -> Array:
        """Return the exact gradient at x under the query's linear map."""
        return self._gradient.evaluate(objective)

    def finish(self, left: Array, public: Callable[[Array], Array] | None) -> Array:
        """Return ``center - step * gradient``, computed from the released gradient."""
        return self.center - self.step * self._gradient.finish(left, public)

    def hidden(self) -> Query:
        """Return the query that releases the new point instead of the gradient."""
        return Step(self.x, self.center, self.step, through=self.through)


def _mapped(g: Array, through: Contraction | None) -> Array:
    return g if through is None else through(g)


def _mapped_bound(bound: float, through: Contraction | None, public_state: Known) -> float:
    if through is None:
        return bound
    return bound * (through.norm1 if public_state.norm == 1 else through.norm2)


def _follows(facts: Facts, norm: int) -> bool:
    """Return whether the gradient's sensitivity, and so its noise, is lower near 0.

    `norm` is the mechanism's norm, 1 or 2.
    """
    sensitivity = facts.sensitivity
    return sensitivity is not None and sensitivity.within(norm, 0.0) < sensitivity.bound(norm).value


def _rows(points: Array, rows: Index | int) -> Array:
    """Return the points of some agents in a batch, which are rows of `points`.

    If `points` is a vector, all agents have this point, and it is returned.
    """
    return points if points.ndim == 1 else points[rows]


def _labels(points: Array, public_state: Known) -> Index | None:
    """Return a label per point of a batch, equal for points with equal sensitivity bounds.

    If `points` is a vector, all agents have this point, and the result is None.
    """
    return None if points.ndim == 1 else public_state.sensitivity.alike(public_state.norm, points)


# An assumption of guarantees that rest on a user's claim.
BENT = "The smoothness that the user asserted is true: nothing in the package proves it."


class _OfStored(Query):
    """Abstract query about an unreleased vector that the agent stored."""

    smooth = True

    @classmethod
    def check(cls, facts: Facts) -> None:
        """Refuse agents without a sensitivity bound at all points, or without smoothness."""
        require_uniform(facts, "Its local steps take", "use dp.DecentralizedGradient")
        if facts.smoothness is None:
            raise ModelError(
                "No smoothness constant can be derived for the objective of agent "
                f"'{facts.name}'. Pass smoothness=... to the method, with a bound for all "
                "admissible data; the guarantee will call it asserted. The constant bounds how "
                "far one change of the data moves the agent's stored vectors."
            )

    @classmethod
    def noise(
        cls, facts: Facts, norm: int, times: str, scale: Callable[[float], float]
    ) -> tuple[float, str]:
        """Return an infinite scale, because it differs by release, and a text on the noise."""
        M = facts.smoothness
        assert M is not None  # checked
        return math.inf, (
            "each round's scale follows from how far one change can have moved the secret point, "
            f"and the gradient there (smoothness {M.value:.6g}, "
            f"{'asserted' if M.asserted else 'derived'})"
        )

    @classmethod
    def claims(cls, facts: Facts) -> tuple[str, ...]:
        """Return the assumption that an asserted smoothness is true; none for a derived one."""
        return (BENT,) if facts.smoothness is not None and facts.smoothness.asserted else ()


@dataclass(frozen=True, eq=False)
class Stored(_OfStored):
    """Query for an unreleased vector that the agent stored.

    Attributes
    ----------
    name : str
        Name of the vector.
    """

    name: str

    released = "point"

    def bound(self, public_state: Known) -> float:
        """Return the sensitivity of the stored vector, for equal values of all earlier releases."""
        return (
            _effects(public_state).reach(self.name, public_state.norm)
            if public_state.change > 0
            else 0.0
        )

    def matters(self, public_state: Known) -> bool:
        """Return whether exact gradients, and so data, went into the stored vector."""
        return public_state.change > 0 and _effects(public_state).secret(self.name)

    def floor(self, public_state: Known) -> float:
        """Return the noise's least grid width, for the rounding of the stored vector."""
        return ROUNDING * _effects(public_state).size(self.name)

    def evaluate(self, objective: Objective) -> Array:
        """Return the unreleased vector that the agent stored under the query's name."""
        return objective.stored.vector(self.name)


@dataclass(frozen=True, eq=False)
class StoredGradient(_OfStored):
    """Query for the gradient at an unreleased vector that the agent stored.

    Attributes
    ----------
    name : str
        Name of the vector.
    """

    name: str

    released = "gradient at that point"

    def bound(self, public_state: Known) -> float:
        """Return the sensitivity of the gradient at the stored vector; both depend on data."""
        return (
            _effects(public_state).gradient_reach(self.name, public_state.norm)
            if public_state.change > 0
            else 0.0
        )

    def floor(self, public_state: Known) -> float:
        """Return the noise's least grid width, for the rounding of the public gradient."""
        return ROUNDING * _effects(public_state).gradient_size(self.name)

    def evaluate(self, objective: Objective) -> Array:
        """Return the exact gradient at the vector that the agent stored."""
        return objective.stored.gradient(self.name)


def _effects(public_state: Known) -> StoredEffects:
    assert public_state.stored is not None  # runs with such queries have it
    return public_state.stored
