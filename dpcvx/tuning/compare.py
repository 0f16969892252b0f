"""Which mechanism for this model and budget? Each with its own best settings, on stand-in data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from .._arguments import check_argument, count
from ..errors import ModelError
from ..model.declaration import Declaration
from ..plan.terms import Terms
from .ranking import Candidate, Ranking, ranked
from .request import Planner, SearchRequest
from .settings import Way

P = TypeVar("P", bound=Terms)

# The part of the time after which settings are compared instead of varied.
_SEARCH = 0.5


@dataclass(frozen=True, repr=False)
class Comparison(Ranking[P]):
    """The best settings of every mechanism that the model allows; see `Ranking`."""

    @property
    def recommended(self) -> Candidate[P]:
        """The lowest gap that is clearly lower than the default's, else the default.

        Raises
        ------
        ModelError
            If its answers are no better than the public start.
        """
        if not self.worthwhile:
            raise ModelError(
                f"No mechanism can be recommended. {self.verdict} print(comparison) shows all."
            )
        return self.chosen


def compare(
    problem: Declaration,
    planned: Planner[P],
    request: SearchRequest,
    ways: Sequence[Way],
    runs: int,
) -> Comparison[P]:
    """See `Problem.compare`; `planned` makes its plans."""
    check_argument("", "runs", runs, count())
    found = ranked(
        problem, planned, request, lambda search: search.best_of_each(ways, _SEARCH), runs
    )
    return Comparison(**vars(found))
