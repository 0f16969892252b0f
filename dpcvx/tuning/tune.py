"""Which setting for this model and budget? Searched on public data, before any are read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from ..model.declaration import Declaration
from ..plan.terms import Terms
from .ranking import Ranking, ranked
from .request import Planner, SearchRequest
from .settings import Way

P = TypeVar("P", bound=Terms)

# The part of the time after which settings are compared instead of varied.
_SEARCH = 0.6
# How many are, besides the default.
_FINALISTS = 3
# Runs that each is judged by.
_RUNS = 10
# Who tunes has nothing to lose by another plan that is as good.
_LEAN = 0.25


@dataclass(frozen=True, repr=False)
class Tuned(Ranking[P]):
    """What a search on stand-in data found; see `Ranking` for the attributes."""

    def plan(self) -> P:
        """The chosen plan, with all its settings; the default one, where none does better.

        With ``clip_norm=`` among the settings it is a plan of another problem, ``plan.problem``:
        the same agents, variables and data, and contributions of records clipped.
        """
        return self.chosen.plan


def tune(
    problem: Declaration, planned: Planner[P], request: SearchRequest, ways: Sequence[Way]
) -> Tuned[P]:
    """See `Problem.tune`; `planned` makes its plans."""
    found = ranked(
        problem,
        planned,
        request,
        lambda search: search.best_of(ways, _FINALISTS, _SEARCH),
        _RUNS,
        _LEAN,
    )
    return Tuned(**vars(found))
