"""Queries of private data: the answer, its sensitivity, and its exact computation.

An agent's local update calls ``oracle.release(query)``. The privacy gate charges the privacy loss
for `Query.bound`, computes `Query.evaluate` on the exact objective, adds noise, and returns
`Query.finish` of the released value. A new kind of query is one more class like the classes in this
folder.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Callable
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ..._arguments import of_package, show
from ...errors import PrivacyError
from ..known import ROUNDING, Facts, Known, Objective

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
            "Agents in a batch release gradients as they are, and steps of whole points, and a "
            f"method asks them for another {type(self).__name__}. Leave batched of the method at "
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
