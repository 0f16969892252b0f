"""Queries of private data: the answer, its sensitivity, and its exact computation.

An agent's local update calls ``oracle.release(query)``. The privacy gate charges the privacy loss
for `Query.bound`, computes `Query.evaluate` on the exact objective, adds noise, and returns
`Query.finish` of the released value. A new kind of query is one more class like the classes in this
folder.

The plan fixes `Facts`. `Known` adds the noise of one release and the stored state of the run. Both
are public, and they alone determine the privacy loss of a release. `Objective` is private: a query
sees it within the trust boundary, to compute its exact answer.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ..._arguments import of_package, show
from ...errors import PrivacyError
from ...model.normal_form import Evaluator, NormalForm
from ...model.record_rows import RecordCurvature
from ...privacy.linear_term import LinearTerm
from ...solvers.projector import Projector
from ..certificate import Sensitivity
from ..stored_vectors import Smoothness, StoredEffects, StoredVectors

Array = NDArray[np.float64]
Index = NDArray[np.intp]

# An assumption of guarantees that rest on a user's claim.
CLAIMED = "The sensitivities that the user asserted are true: nothing in the package proves them."
UNPROVED = "The bound of the query {} holds for all data: nothing in the package proves it."


class Query(abc.ABC):
    """Abstract base class of the queries that an agent's private data answer, with noise.

    Subclasses are frozen dataclasses. The class methods `check`, `noise` and `claims` are called
    before any data are read. `bound`, `matters`, `floor`, `scale` and `finish` are computed from
    public numbers; only `evaluate` uses the exact objective.

    Attributes
    ----------
    released : str
        Kind of the released value, as one word for the ledger.
    charged : str
        Text for the guarantee that names the quantity by which the noise is scaled; if "", the
        sensitivity of the released value.
    smooth : bool
        Whether the bound follows from the smoothness of the objective.
    once : str
        Reason why the query cannot be used if data are released once, before round 1; "" if it can.
    by_entry : bool
        Whether answers are computed from entries of the data, not from gradients. Sparse data are
        then refused.
    batched : bool
        Whether one query can be answered for a batch of identical agents. Points then have a row
        per agent, or are equal for all. `evaluate` is called for all agents at once, and `bound`
        and `scale` for one agent (see `among`). A subclass does not inherit it, because its methods
        may differ.
    """

    released: ClassVar[str]
    charged: ClassVar[str] = ""
    smooth: ClassVar[bool] = False
    once: ClassVar[str] = ""
    by_entry: ClassVar[bool] = False
    batched: ClassVar[bool] = False
    _unproved: ClassVar[tuple[str, ...]] = ()  # assumption of a query from outside

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "evaluate" in vars(cls) and not getattr(cls, "released", ""):
            raise TypeError(
                f"Query {cls.__name__} needs released = '...': the word for its answer in ledger "
                "and guarantee."
            )
        cls.batched = bool(vars(cls).get("batched", False))
        # Every method of a query takes part in its bound, not `bound` alone.
        cls._unproved = () if of_package(cls) else (UNPROVED.format(cls.__name__),)

    @classmethod
    def check(cls, facts: Facts) -> None:
        """Refuse an agent if its answer has no known sensitivity; by default, accept all agents.

        Raises
        ------
        PrivacyError, ModelError
        """
        return None

    @classmethod
    def noise(
        cls, facts: Facts, norm: int, times: str, scale: Callable[[float], float]
    ) -> tuple[float, str]:
        """Return the scale of the query's noise, and a text on the noise for the guarantee.

        Parameters
        ----------
        facts : Facts
        norm : {1, 2}
        times : str
            First words of the text, such as "scale 2.5 times".
        scale : callable
            Function that returns the noise's scale for a sensitivity.

        Returns
        -------
        scale : float
            Scale per component; infinite if it differs from release to release.
        words : str
            Text for the guarantee.
        """
        if gradient_level(facts, norm) == math.inf:
            return math.inf, f"{times} the sensitivity at the point of each step"
        return math.inf, f"{times} {cls.charged or f'the sensitivity of the {cls.released}'}"

    @classmethod
    def claims(cls, facts: Facts) -> tuple[str, ...]:
        """Return texts on assumptions of the sensitivity that dpcvx does not prove.

        By default, this is the assumption that the bound of a user's query holds.
        """
        return cls._unproved

    def size(self, n: int) -> int:
        """Return the number of entries of an answer, for an agent with n variables."""
        return n

    @abc.abstractmethod
    def bound(self, public_state: Known) -> float:
        """Return the sensitivity of the query's answer, times `scale`, in the mechanism's norm.

        The bound has to hold for all neighboring data and equal public numbers. A bound of 0 means
        that the answer does not depend on the data, and is released without noise.
        """

    def matters(self, public_state: Known) -> bool:
        """Return whether the answer depends on the data if `bound` is 0: noise is then refused."""
        return public_state.change > 0

    def floor(self, public_state: Known) -> float:
        """Return the noise's least grid width, far above the rounding errors of public numbers."""
        return 0.0

    def floors(self, public_state: Known) -> Array:
        """Return the noise's least grid width for each agent of a batch.

        The shape is (agents,), or () if the width is equal for all.
        """
        return np.asarray(self.floor(public_state))

    def among(self, rows: Index | int) -> Query:
        """Return the query for one agent of a batch, or for some agents.

        Parameters
        ----------
        rows : ndarray of int, or int
            Positions of the agents.

        Raises
        ------
        PrivacyError
            If the query cannot be answered for several agents at once.
        """
        raise PrivacyError(
            "Agents in a batch answer queries for gradients and for steps of whole points, but "
            f"the method queries another {type(self).__name__}. Leave batched of the method at "
            "False."
        )

    def labels(self, public_state: Known) -> Index | None:
        """Return a label per agent of a batch; agents with equal labels have equal bounds.

        The result is None if all bounds are equal.
        """
        return None

    def scale(self, public_state: Known | None) -> Array | None:
        """Return public weights of the answer's components for the noise; None for ones."""
        return None

    @abc.abstractmethod
    def evaluate(self, objective: Objective) -> Array:
        """Return the exact answer. It stays within the trust boundary, and must not be stored."""

    def finish(self, left: Array, public: Callable[[Array], Array] | None) -> Array:
        """Return the query's result for the agent, computed from the released values.

        Parameters
        ----------
        left : ndarray
            Released values.
        public : callable or None
            Function that returns the public part of the gradient, if the released values lack it.
        """
        return left

    def hidden(self) -> Query:
        """Return the query to use in a run that releases only its last iterate.

        Raises
        ------
        PrivacyError
            If no guarantee is proved for this query in such runs.
        """
        raise PrivacyError(
            "observer='last_iterate' is proved for steps along gradients, and "
            f"{type(self).__name__} is not such a step. Plan with observer='everyone'."
        )


def require_priced(query: Query, bound: object, size: object) -> None:
    """Refuse a query's bound or size if noise cannot be scaled to it.

    Parameters
    ----------
    query : Query
    bound, size : object
        Values that the query's `bound` and `size` returned.

    Raises
    ------
    PrivacyError
    """
    if not isinstance(bound, (int, float, np.floating)) or not bound >= 0:
        raise PrivacyError(
            f"{type(query).__name__}.bound returned {show(bound)}. Return one number of at least "
            "0: the largest distance between the answers for neighboring data, such as "
            "public_state.gradient_bound(self.x). Noise is scaled to it."
        )
    if not isinstance(size, (int, np.integer)) or size < 0:
        raise PrivacyError(
            f"{type(query).__name__}.size returned {show(size)}. Return a whole number: how many "
            "numbers `evaluate` returns. Noise is drawn for so many."
        )


def rounding_floor(point: Array) -> float:
    """Return a grid width that is large against the rounding errors of a point."""
    return float(rounding_floors(point))


def rounding_floors(points: Array) -> Array:
    """Return a grid width for every row of points, large against the row's rounding errors."""
    return ROUNDING * np.abs(points).max(axis=-1, initial=0.0)


def gradient_level(facts: Facts, norm: int) -> float:
    """Return the gradient's sensitivity over the agent's set, in the mechanism's norm."""
    return 0.0 if facts.sensitivity is None else facts.sensitivity.bound(norm).value


def require_uniform(facts: Facts, what: str, remedy: str) -> None:
    """Refuse unreleased local steps if no bound limits how far one change moves them.

    `what` and `remedy` are the beginning of the error's message and the fix in it.
    """
    sensitivity = facts.sensitivity
    if sensitivity is None:
        return
    if sensitivity.l2 == math.inf:
        raise PrivacyError(
            f"{what} gradients inside agent '{facts.name}', at points that it never releases. "
            "The effect of one change of its data on them must be bounded at all points, and "
            f"dpcvx derives no such bound: {sensitivity.obstacle}. Bound its variables, choose "
            f"a loss with bounded slopes, or {remedy}."
        )
    if not sensitivity.clips_keep_convexity(facts.form):
        raise PrivacyError(
            f"{what} gradients that belong to one convex function. Clipped gradients of records "
            f"with several scores, as in agent '{facts.name}', need not belong to any. Bound the "
            f"data so that the sensitivity is finite without clip_norm=, or {remedy}."
        )


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
