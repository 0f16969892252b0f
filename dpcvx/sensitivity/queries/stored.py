"""Queries for unreleased vectors that agents store, and for gradients at such vectors."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...errors import ModelError
from ..known import ROUNDING, Facts, Known, Objective
from ..stored_vectors import StoredEffects
from .query import Query, require_uniform

Array = NDArray[np.float64]

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
