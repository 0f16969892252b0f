"""What a search on stand-in data is asked: its budget, its stand-ins, its time."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from .._arguments import FLAG, POSITIVE, check_argument, integer, optional
from ..model.declaration import Declaration
from ..model.private import Private
from ..model.sealed import Sealed
from ..plan.compiled import Compiled
from ..plan.limits import check_given
from ..plan.request import Request
from ..plan.terms import Terms
from ..privacy.accounting import check_delta, check_epsilon

P = TypeVar("P", bound=Terms)
# Makes a plan of a problem, which may have been compiled before.
Planner = Callable[[Declaration, Request, Compiled | None], P]


@dataclass(frozen=True)
class SearchRequest:
    """What a search is given, checked.

    Attributes
    ----------
    verb : str
        What asks, for messages, such as ``problem.tune``.
    plans : Request
        What all plans have in common: the budget, and what is promised and expected.
    proxy : mapping
        Public values, where they are not declared.
    time_limit : float
        Seconds
    seed : int
    verbose : bool or None
    recourse : bool
        Whether answers are judged once every agent has decided for itself.
    clock : callable
        Seconds since some moment.
    """

    verb: str
    plans: Request
    proxy: Mapping[Private | str, Sealed] = field(repr=False)
    time_limit: float
    seed: int
    verbose: bool | None
    recourse: bool = False
    clock: Callable[[], float] = time.perf_counter

    def __post_init__(self) -> None:
        check_argument("", "time_limit", self.time_limit, POSITIVE.because("how long to search"))
        check_argument("", "seed", self.seed, integer(0))
        check_argument("", "verbose", self.verbose, optional(FLAG))
        check_argument("", "recourse", self.recourse, FLAG)
        plans = self.plans
        check_given(plans.violation_probability, plans.slack_penalty)
        if not isinstance(plans.epsilon, Mapping):
            check_epsilon(plans.epsilon)
        check_delta(plans.delta)
