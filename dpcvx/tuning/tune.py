"""Searches on public proxy data: which setting, and which mechanism, for a model and a budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from .._arguments import check_argument, count
from ..errors import ModelError
from ..model.declaration import Declaration
from ..plan.terms import Terms
from .ranking import Candidate, Ranking, ranked
from .settings import Planner, SearchRequest, Way

P = TypeVar("P", bound=Terms)

# The part of the time after which settings are compared instead of varied, if settings are tuned,
# and if mechanisms are compared.
_SEARCH, _COMPARED = 0.6, 0.5
# How many are, besides the default.
_FINALISTS = 3
# Runs that each is judged by.
_RUNS = 10
# Who tunes has nothing to lose by another plan that is as good.
_LEAN = 0.25


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
        problem, planned, request, lambda search: search.best_of_each(ways, _COMPARED), runs
    )
    return Comparison(**vars(found))


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
