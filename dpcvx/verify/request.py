"""What a search on stand-in data is asked: its budget, its stand-ins, its time."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .._arguments import FLAG, POSITIVE, check_argument, integer, optional
from ..model.expected import Expected
from ..model.private import Private
from ..model.sealed import Sealed
from ..plan.limits import check_given
from ..privacy.accounting import check_delta, check_epsilon


@dataclass(frozen=True)
class Request:
    """What a search is given, checked.

    Attributes
    ----------
    verb : str
        What asks, for messages, such as ``problem.tune``.
    epsilon : float or mapping of agent or its name to float
    delta : float
    proxy : mapping
        Public values, where they are not declared.
    seconds : float
    seed : int
    verbose : bool or None
    recourse : bool
        Whether answers are judged once every agent has decided for itself.
    expected : mapping of Private or its name to Expected, optional
        For plans that release the data once.
    violation, slack_price : float, optional
        Of all plans, where constraints contain private data; see `Problem.plan`.
    clock : callable
        Seconds since some moment.
    """

    verb: str
    epsilon: float | Mapping[Any, float]
    delta: float
    proxy: Mapping[Private | str, Sealed] = field(repr=False)
    seconds: float
    seed: int
    verbose: bool | None
    recourse: bool = False
    expected: Mapping[Private | str, Expected] | None = None
    violation: float | None = None
    slack_price: float | None = None
    clock: Callable[[], float] = time.perf_counter

    def __post_init__(self) -> None:
        check_argument("", "seconds", self.seconds, POSITIVE.because("how long to search"))
        check_argument("", "seed", self.seed, integer(0))
        check_argument("", "verbose", self.verbose, optional(FLAG))
        check_argument("", "recourse", self.recourse, FLAG)
        check_given(self.violation, self.slack_price)
        if not isinstance(self.epsilon, Mapping):
            check_epsilon(self.epsilon)
        check_delta(self.delta)

    @property
    def terms(self) -> dict[str, Any]:
        """What all plans have in common."""
        names = ("epsilon", "delta", "violation", "slack_price")
        return {name: getattr(self, name) for name in names}
