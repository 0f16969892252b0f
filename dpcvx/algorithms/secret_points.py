"""Methods over networks whose agents keep their points, and let them leave with noise only."""

from __future__ import annotations

from typing import ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..errors import ModelError
from ..sensitivity.queries.query import Query
from ..sensitivity.queries.stored import Stored, StoredGradient
from .base import Iterates, Requirements
from .on_networks import NetworkMethod
from .program import Program

Array = NDArray[np.float64]


A = TypeVar("A", bound=Iterates)


class SecretPointMethod(NetworkMethod[A], Generic[A]):
    """Abstract: a point leaves, then a vector made of gradients at secret points.

    A frozen dataclass with the fields below. The first point is the public start.

    Attributes
    ----------
    step : float or None
        How far a point moves per unit of the vector; None until a plan chooses it.
    ratio : float
        Scale of the points' noise over that of the vectors'.
    smoothness : float or None
        The user's claim, for agents for which none is derived.
    """

    step: float | None
    ratio: float
    smoothness: float | None

    exchanges = 2
    queries: ClassVar[tuple[type[Query], ...]] = (Stored, StoredGradient)

    @property
    def requirements(self) -> Requirements:
        """Smooth objectives; two releases per agent and round."""
        return Requirements(
            convex=False,
            exact=False,
            releases=2,
            queries=self.queries,
            smoothness=self.smoothness,
            # One change moves a new point by the step size times as far as the vector before.
            weights=(self.ratio / (self.step or 1.0), 1.0),
            free=1,
        )


def require_open(program: Program, owner: str) -> None:
    """Refuse variables that one agent holds alone, and constraints.

    Raises
    ------
    ModelError
        Naming the agent.
    """
    for local in program.agents:
        if local.n > local.shared.size:
            raise ModelError(
                f"Agent '{local.name}' has variables of its own, and {owner} takes vectors that "
                "all agents share. Use dp.DecentralizedGradient, or share them."
            )
        if local.projector().kinds.keys() - {"free"}:
            raise ModelError(
                f"Agent '{local.name}' has constraints, and {owner} takes none: its points go "
                "where gradients lead. Use dp.DecentralizedGradient, or put a smooth penalty in "
                "their place."
            )
