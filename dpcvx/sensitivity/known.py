"""Inputs of queries: an agent's public facts, and its private exact objective.

The plan fixes `Facts`. `Known` adds the noise of one release and the stored state of the run. Both
are public, and they alone determine the privacy loss of a release. `Objective` is private: a query
sees it within the trust boundary, to compute its exact answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ..errors import PrivacyError
from ..model.normal_form import Evaluator, NormalForm
from ..model.record_curvature import RecordCurvature
from ..privacy.linear_term import LinearTerm
from ..solvers.projector import Projector
from .certificate import Sensitivity
from .stored_vectors import Smoothness, StoredEffects, StoredVectors

Array = NDArray[np.float64]

# Factor for bounds that tells 0 from a number too small for a float.
_FAR_UP = 2.0**200
# Relative width of the noise's grid: far above the rounding errors of a vector.
ROUNDING = 2.0**-44


class Facts(Protocol):
    """Protocol of the public facts about one agent that queries use; `AgentPlan` implements it."""

    @property
    def name(self) -> str:
        """Name of the agent."""
        ...

    @property
    def form(self) -> NormalForm:
        """Normal form of the agent's objective, without data."""
        ...

    @property
    def sensitivity(self) -> Sensitivity | None:
        """Sensitivity of the gradient; None if no query needs it, such as without private data."""
        ...

    @property
    def smoothness(self) -> Smoothness | None:
        """Lipschitz constant of the gradient; None if no query needs it, or none is known."""
        ...

    @property
    def claimed(self) -> float | None:
        """Sensitivity of a query's answers that the user supplied instead of a derived one."""
        ...

    @property
    def start(self) -> Array:
        """Public initial point of the agent's variables, shape (n,)."""
        ...

    @property
    def queries(self) -> tuple[type, ...]:
        """Types of queries that the agent answers; it refuses all others."""
        ...

    def projector(self) -> Projector:
        """Return a new projector onto the feasible set, since solvers keep state between calls."""
        ...

    def proximal(self) -> Projector:
        """Return a new projector onto the feasible set that also minimizes the proximal terms."""
        ...


@dataclass(frozen=True, eq=False, repr=False)
class Known:
    """Public state of one agent before a release; it determines the charged privacy loss.

    A plan does not contain it: stored vectors and projectors belong to a run.
    """

    facts: Facts
    norm: int  # norm of the mechanism's sensitivity: 1 or 2
    multiplier: float  # scale of the noise over the sensitivity, in this release
    public_gradient: Callable[[Array], Array]  # gradient at zero data; 0 if it is not finite
    projector: Callable[[], Projector]  # onto the agent's set, compiled at the first call
    stored: StoredEffects | None = None  # None if no query is about stored vectors
    linear: LinearTerm | None = None  # random term of objective perturbation

    @property
    def sensitivity(self) -> Sensitivity:
        """Sensitivity of the gradient of the agent's objective."""
        assert self.facts.sensitivity is not None
        return self.facts.sensitivity

    @property
    def change(self) -> float:
        """Return the l2 sensitivity of the gradient over all points of the agent's set."""
        return self.sensitivity.bound(2).value

    def spread(self, size: int) -> float:
        """Return the factor from an l2 bound of `size` numbers to the mechanism's norm."""
        return math.sqrt(size) if self.norm == 1 else 1.0

    def gradient_bound(
        self, x: Array, *, p: int | None = None, scale: Array | None = None
    ) -> float:
        """Return the sensitivity of the agent's gradient at the point x.

        Parameters
        ----------
        x : ndarray, shape (n,)
        p : {1, 2}, optional
            The mechanism's norm if omitted.
        scale : ndarray, shape (n,), optional
            Weights of the components; ones if omitted.

        Raises
        ------
        PrivacyError
            If the gradient at x has no bounded sensitivity.
        """
        sensitivity = self.sensitivity
        if np.shape(x)[-1:] != sensitivity.extent.lower.shape:
            raise PrivacyError(
                f"Agent '{self.facts.name}' has {sensitivity.extent.lower.size} numbers, and a "
                f"query names a point of shape {np.shape(x)}. Pass the agent's whole point, such "
                "as state.x."
            )
        value = sensitivity.near(self.norm if p is None else p, x, scale)
        if value == math.inf:
            raise PrivacyError(
                f"Agent '{self.facts.name}' reached a point at which the effect of one change "
                f"of its data on the gradient has no bound: {self.sensitivity.obstacle}, and "
                "for some admissible data a term leaves its domain or has an infinite slope "
                "there. Keep its variables away from such points by constraints, or write "
                "dp.Agent(..., clip_norm=1.0)."
            )
        norm = self.norm if p is None else p
        if 0 < value and self.sensitivity.bound(norm).value == math.inf:
            # A bound below the rounding of a large public part would be lost in it.
            public = np.linalg.norm(self.public_gradient(x), norm)
            value = max(value, ROUNDING * float(public) * (1.0 if scale is None else scale.max()))
        return value

    def matters(self, x: Array) -> bool:
        """Return whether the gradient at x depends on data, even by less than a float can hold."""
        scale = np.full(x.size, _FAR_UP)
        return self.change > 0 and self.gradient_bound(x, p=2, scale=scale) > 0


@dataclass(frozen=True, eq=False, repr=False)
class Objective:
    """Exact private objective of one agent; only queries see it, within the trust boundary."""

    gradient: Callable[[Array], Array]  # exact gradient at a point; 0 if it is not finite
    # The part of the gradient that is released. For a gradient h(x) + J d it is J d alone, without
    # the rounding of large public numbers, which could differ between neighbors. For all others it
    # is the whole gradient.
    apart: Callable[[Array], Array]
    projector: Callable[[], Projector]  # onto the agent's set, with solvers that no public code has
    stored: StoredVectors
    # Second derivatives that the data add, shape (n, n), if they are equal at all points.
    curvature: Callable[[], sp.csr_array]
    data: Callable[[], Array]  # the data, one object after the other
    # The gradient of a multiple of the objective with unchanged clips, 0 if it is not finite, and
    # the number of clipped records.
    clipped: Callable[[Array, float], tuple[Array, int]]
    bends: Callable[[Array], RecordCurvature]  # second derivatives of single records at a point
    known: Known | None = None  # None if the answer is released without noise

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("An objective with private data is never pickled.")


def finite_gradient(objective: Evaluator, x: Array) -> Array:
    """Return the gradient of an objective at x, with 0 in place of entries that are not finite."""
    return finite(objective.gradient(x))


def finite_clipped(objective: Evaluator, x: Array, times: float) -> tuple[Array, int]:
    """Return the clipped gradient of `times` f at x, with 0 for entries that are not finite.

    The second result is the number of clipped records.
    """
    gradient, exceeded = objective.clipped(x, times)
    return finite(gradient), exceeded


def finite(gradients: Array) -> Array:
    """Return gradients, an array of any shape, with 0 in place of entries that are not finite."""
    is_finite = np.isfinite(gradients)
    return gradients if is_finite.all() else np.where(is_finite, gradients, 0.0)
