"""Settings searched by simulations: thousands of runs where runs of plans would be tens."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import product
from typing import Any, TypeVar

from ..algorithms.federated_gradient import FederatedGradient
from ..plan.terms import Terms
from .entry import OutOfTime, PlanTrial
from .settings import Setting, Way, lengthened, rough, scaled
from .simulation import Values, simulable

P = TypeVar("P", bound=Terms)
Known = Callable[[Setting], PlanTrial[P] | None]

# Runs of every setting of the first look, of those that go on, and of the best of these.
_FEW, _MANY, _SURE = 8, 64, 256
# How many go on, from how many of them the search does, and how many are compared in the end.
_PROMISING, _BEST, _COMPARED = 16, 2, 6
# The part of the time that is for searching.
_SEARCH = 0.8
# Powers of three around the step that moves answers as far as the plan's own.
_STEPS = (-2, -1, 0, 1, 2, 3, 4)
_HALF = 0.5
# Neighbors that are better by less are not followed.
_GAIN = 0.02


def simulates(way: Way) -> bool:
    """Whether runs of a way may be simulated; `simulable` tells of a plan."""
    return isinstance(way.algorithm, FederatedGradient) and way.algorithm.sharing is None


def best_simulated(
    way: Way,
    known: Known[P],
    clips: Callable[[PlanTrial[P]], bool],
    gap: Callable[[float], float],
    simulation: Callable[..., list[Values]],
    seed: int,
    ends: Callable[[float], Callable[[], None]],
) -> PlanTrial[P] | None:
    """The best setting found of a way; None if its runs cannot be simulated, or none ended in time.

    Parameters
    ----------
    way : Way
    known : callable
        From a setting to its entry; None where it cannot be planned.
    clips : callable
        Whether records can be clipped in runs of an entry.
    gap : callable
        From a value of the objective to how far that is above the optimum.
    simulation : Simulation
    seed : int
        Of noise.
    ends : callable
        From a part of the time to what is called in every round: it raises `OutOfTime` once that
        part is over.
    """
    first = known(way.first)
    if first is None or not simulable(first.plan):
        return None
    search = _Search(known, gap, simulation, seed, ends(_SEARCH), clips(first))
    with suppress(OutOfTime):
        search.look(way)
        search.follow()
    with suppress(OutOfTime):
        search.compare(ends(1.0))
    found = search.best
    return found[0] if found and math.isfinite(found[0].score) else None


class _Search:
    """Settings of one way, with their runs so far."""

    def __init__(
        self,
        known: Known[Any],
        gap: Callable[[float], float],
        simulation: Callable[..., list[Values]],
        seed: int,
        pause: Callable[[], None],
        clips: bool,
    ) -> None:
        self._known, self._gap, self._simulation = known, gap, simulation
        self._seed, self._pause, self._clips = seed, pause, clips
        self._few: dict[Setting, PlanTrial[Any]] = {}
        self._many: dict[Setting, PlanTrial[Any]] = {}
        self._sure: dict[Setting, PlanTrial[Any]] = {}

    @property
    def best(self) -> list[PlanTrial[Any]]:
        """Best first; by few runs each where there was no time for many."""
        found = self._sure or self._many or self._few
        return sorted(found.values(), key=lambda entry: entry.score)

    def look(self, way: Way) -> None:
        """At settings far apart, and again at the best of them."""
        for plain in rough(way, self._clips):
            middle = self._middle(plain)
            if middle is not None:
                moves = product(_STEPS, (False, True) if plain.rounds > 1 else (False,))
                near = [replace(middle, step=middle.step + k, falling=falls) for k, falls in moves]
                self._run(near, _FEW, self._few)
        promising = [_setting(entry) for entry in self.best[:_PROMISING]]
        self._run(promising, _MANY, self._many)

    def follow(self) -> None:
        """From the best to better neighbors, and on."""
        for best in self.best[:_BEST]:
            gained = True
            while gained:
                near = [one for one in self._around(_setting(best)) if one not in self._many]
                self._run(near, _MANY, self._many)
                better = min(
                    (self._many[one] for one in near if one in self._many),
                    key=lambda entry: entry.score,
                    default=best,
                )
                gained = best.score - better.score > _GAIN * self._gap(best.score)
                best = better if gained else best

    def compare(self, pause: Callable[[], None]) -> None:
        """The best again, under noise that they were not chosen by."""
        self._seed, self._pause = self._seed + 1, pause
        self._run([_setting(entry) for entry in self.best[:_COMPARED]], _SURE, self._sure)

    def _middle(self, plain: Setting) -> Setting | None:
        """With steps that move answers as far as those that the plan would choose unclipped."""
        chosen, whole = self._known(plain), self._known(replace(plain, clip=1.0))
        if chosen is None or whole is None:
            return None
        return lengthened(plain, chosen.plan.algorithm, whole.plan.algorithm)

    def _around(self, setting: Setting) -> Iterator[Setting]:
        """Neighbors, and their steps' neighbors, which need no plan of their own."""
        plans = setting.neighbors(clips=self._clips, decays=False, varied=())
        for one in (setting, *plans):
            for k in (0.0, -_HALF, _HALF):
                near = replace(one, step=one.step + k)
                yield near
                if one is setting and one.rounds > 1:
                    yield replace(near, falling=not near.falling)

    def _run(
        self, settings: Sequence[Setting], runs: int, kept: dict[Setting, PlanTrial[Any]]
    ) -> None:
        """So many runs of each, together where plans differ in steps only."""
        for plain in dict.fromkeys(setting.plain for setting in settings):
            base = self._known(plain)
            if base is None or not simulable(base.plan):
                continue
            alike = [setting for setting in settings if setting.plain == plain]
            algorithms = [scaled(base.plan.algorithm, setting) for setting in alike]
            values = self._simulation(base.plan, algorithms, runs, self._seed, self._pause)
            for setting, algorithm, own in zip(alike, algorithms, values, strict=True):
                plan = replace(base.plan, algorithm=algorithm)
                ends = {which: [*map(float, each)] for which, each in own.items()}
                kept[setting] = PlanTrial(base.name, plan, setting, ends)


def _setting(entry: PlanTrial[Any]) -> Setting:
    assert entry.setting is not None
    return entry.setting
