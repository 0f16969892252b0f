"""Settings tried on public proxy data: runs, successive halving, steps to better neighbors."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from typing import Any, Generic, TypeVar, cast

from ..algorithms.base import OUTPUTS, Algorithm
from ..algorithms.program import LocalProgram
from ..algorithms.steps import Sqrt
from ..defaults.study import Study, study
from ..errors import DpcvxError, ModelError, PrivacyError
from ..model.curvature import strong_convexity
from ..model.declaration import Declaration
from ..model.private import Private
from ..model.sealed import Sealed
from ..plan.request import Request
from ..plan.terms import Terms
from ..privacy.mechanism import Gaussian, Laplace
from ..run.executors.in_process import Automatic
from ..run.live import run_plan
from ..run.result import Result
from ..sensitivity.certificate import Sensitivity
from .copies import COUNT, Copies, Copy, Crossing, crossing
from .settings import (
    COARSE,
    OutOfTime,
    Planner,
    PlanTrial,
    SearchRequest,
    Setting,
    Way,
    lengthened,
    level,
    scalable,
    scaled,
    surely_lower,
)
from .simulation import Simulation, best_simulated, simulates

P = TypeVar("P", bound=Terms)

# Runs of a setting before the worse half of its pool is dropped, again and again.
_RUNGS = (1, 2, 4, 8)
# Of the whole time one run may take so much: beyond, too few tell noise from merit.
_SHARE = 0.03
# Of a search's time, where many runs can be made at once.
_SIMULATED = 0.6
# By such a part of the gap a neighbor must be better for its own neighbors to be tried.
_GAIN = 0.1
# Seconds: shares of less are no numbers any more.
_LEAST = 1e-9
# How reasons end that more time would mend.
MORE_TIME = "Pass a larger time_limit=."
# Why ways are left out of which no run was tried to its end.
LATE = f"The time was over before a run of it ended. {MORE_TIME}"
# Why ways are left out that were tried.
BEHIND = "Its runs were not clearly better than those that were simulated of"
# Of calling a way better where both are alike; the luckiest of many are asked.
_ERROR = 0.01
# Seeds of the runs that settings are compared by in the end: no choice rests on them.
FRESH = 1_000_000


class Timed(Automatic):
    """Agents that stop between two exchanges once their time is over."""

    def __init__(self, until: float, clock: Callable[[], float]) -> None:
        super().__init__(clock=clock)
        self._until = until

    def map(self, method: str, *common: Any, each: Sequence[Any] | None = None) -> list[Any]:
        """See `Executor`; raises `OutOfTime` once the time is over."""
        if self._clock() > self._until:
            raise OutOfTime
        return super().map(method, *common, each=each)


def run_on(plan: Terms, proxy: Mapping[Private | str, Sealed], seed: int, timed: Timed) -> Result:
    """Return the result of a plan on public values in place of the private data.

    Raises
    ------
    OutOfTime
    """
    return run_plan(
        plan,
        data=proxy,
        seed=seed,
        tolerance=None,
        record=False,
        iterates=False,
        ledger=None,
        executor=timed,
        verbose=False,
    )


def gap_on(plan: Terms, copy: Copy, seed: int, timed: Timed) -> float:
    """Return the gap of the iterate that a run on a copy returns.

    Raises
    ------
    OutOfTime
    """
    return _gap(plan, copy, run_on(plan, copy.proxy, seed, timed), plan.reported)


def _gap(plan: Terms, copy: Copy, result: Result, which: str) -> float:
    """Return the gap of a result; infinite without a solution."""
    if not result.status.solved:
        return math.inf
    paid = plan.slack_penalty * sum(float(by.sum()) for by in result.constraint_slack.values())
    return copy.gap(getattr(result, which), paid)


class Search(Generic[P]):
    """Tries settings of a problem under one budget.

    Parameters
    ----------
    problem : Declaration
    planned : callable
        Makes a plan of a problem; see `Problem.plan`.
    request : SearchRequest
        Runs have its seed and those that follow.
    copies : Copies
        Copies of the proxy data: run k of every setting is on copy k.
    tick : callable
        Is told after every run what part of the time has passed.

    Attributes
    ----------
    refused : dict of str to str
        Ways that cannot be taken, and why.
    """

    def __init__(
        self,
        problem: Declaration,
        planned: Planner[P],
        request: SearchRequest,
        copies: Copies,
        tick: Callable[[float], None],
    ) -> None:
        self.refused: dict[str, str] = {}
        self._problem, self._planned = problem, planned
        self._asked = request.plans
        self.copies = copies
        self._seconds = max(request.time_limit, _LEAST)
        self._seed, self._tick, self._recourse = request.seed, tick, request.recourse
        self._clock, self._started = request.clock, request.clock()
        self._entries: dict[Setting, PlanTrial[P] | None] = {}
        self._default: P | None = None
        self._compiled: dict[Declaration, Study | None] = {}
        self._clips: dict[tuple[float, ...], Declaration] = {}

    @property
    def convex(self) -> bool:
        """Return whether the optimum for the proxy data is known."""
        return self.copies.judge.optimum is not None

    @property
    def passed(self) -> float:
        """The part of the time that has passed."""
        return (self._clock() - self._started) / self._seconds

    def default(self) -> PlanTrial[P]:
        """Return the plan's own choice.

        Raises
        ------
        DpcvxError
            If it refuses.
        """
        compiled = self._known(self._problem)
        self._default = self._planned(self._problem, self._asked, compiled)
        return PlanTrial("default", self._default)

    def best_of(self, ways: Sequence[Way], limit: int, until: float) -> list[PlanTrial[P]]:
        """Return the best trials, varied from the best of these configurations; best first.

        Parameters
        ----------
        ways : iterable of Way
        limit : int
            So many at most.
        until : float
            The part of the time at which this ends with what it has.
        """
        summed = [way for way in ways if simulates(way) and not self._recourse]
        sums = self._simulated(summed, self.passed + (until - self.passed) * _SIMULATED)
        if sums is not None:
            ways, limit = [way for way in ways if way not in summed], max(1, limit - 1)
        now = self.passed
        settings = [*self._near_default(ways), *(way.first for way in ways)]
        pool = self._begun(dict.fromkeys(settings), ways, now + (until - now) / 3)
        pool = self._best_clipped(pool, now + (until - now) / 2)
        pool = self._halved(pool, limit, now + (until - now) * 2 / 3)
        best: dict[str, PlanTrial[P]] = {}
        others = self._varied_further(pool, until)
        entries = others if sums is None else [sums, *self._rivals(others, sums)]
        for entry in sorted(entries, key=lambda entry: entry.score):
            best.setdefault(entry.name, entry)
        return list(best.values())

    def _simulated(self, ways: Sequence[Way], until: float) -> PlanTrial[P] | None:
        """Return the best setting among configurations whose runs can be simulated in batches."""
        copy, entries = self.copies(0), list[PlanTrial[P]]()
        simulation = Simulation(self._problem, copy.proxy, copy.judge.base)
        for k, way in enumerate(ways):
            entry = best_simulated(
                way,
                self._entry,
                self._clips_records,
                lambda value: value - self.copies.reference([value]),
                simulation,
                self._seed,
                partial(self._ends, self.passed, (until - self.passed) / (len(ways) - k)),
            )
            entries += [] if entry is None else [entry]
        return min(entries, key=lambda entry: entry.score, default=None)

    def _rivals(self, others: Sequence[PlanTrial[P]], sums: PlanTrial[P]) -> list[PlanTrial[P]]:
        """Return trials that are better than simulated runs by more than a few runs' noise."""
        rivals: list[PlanTrial[P]] = []
        for rival in others:
            if surely_lower(rival.values[rival.best], sums.values[sums.best], _ERROR):
                rivals.append(rival)
            else:
                self.refused.setdefault(rival.name, f"{BEHIND} {sums.name}.")
        return rivals

    def _ends(self, start: float, length: float, part: float) -> Callable[[], None]:
        """Return a function that ends simulations after a part of a length of time."""

        def pause() -> None:
            now = self.passed
            self._tick(now)
            if now > start + part * length:
                raise OutOfTime

        return pause

    def _near_default(self, ways: Sequence[Way]) -> list[Setting]:
        """Return the default plan's own setting, if it is one of these configurations."""
        plan = self._default
        if plan is None:
            return []
        kinds = {str(a.noise.mechanism).lower() for a in plan.agents if a.noise is not None}
        for way in ways:
            same_kind = type(way.algorithm) is type(plan.algorithm) and kinds == {way.mechanism}
            if same_kind and way.release == plan.release:
                return [Setting(way, plan.rounds)]
        return []

    def best_of_each(self, ways: Sequence[Way], until: float) -> list[PlanTrial[P]]:
        """Return the settings that do best, varied from every one of these ways; best first."""
        now = self.passed
        pool = self._begun((way.first for way in ways), ways, now + (until - now) / 3)
        return sorted(self._varied_further(pool, until), key=lambda entry: entry.score)

    def _begun(
        self, settings: Iterable[Setting], ways: Sequence[Way], until: float
    ) -> list[PlanTrial[P]]:
        """Return trials that end their first run; skip configurations without any."""
        entries = self._tried(settings, until)
        for way in ways:
            if way.name not in {entry.name for entry in entries}:
                self.refused.setdefault(way.name, LATE)
        return entries

    def _varied_further(self, pool: list[PlanTrial[P]], until: float) -> list[PlanTrial[P]]:
        """Return the best settings near these, with as much time for each."""
        entries = []
        for k, entry in enumerate(pool):
            left = until - self.passed
            entries.append(self._climbed(entry, self.passed + left / (len(pool) - k)))
        return entries

    def final(self, entry: PlanTrial[P]) -> PlanTrial[P] | None:
        """Return the plan for users, with the best numbers and iterate; not run yet."""
        assert entry.setting is not None
        algorithm = entry.plan.algorithm
        if _chooses_iterate(algorithm):
            algorithm = replace(cast(Any, algorithm), returned=entry.best)
        try:
            plan = self._plan(entry.setting, algorithm)
        except DpcvxError as refusal:
            self.refused[entry.name] = str(refusal)
            return None
        return PlanTrial(entry.name, plan)

    def noiseless(self, plan: P) -> float:
        """Return the median gap of the rounds without noise; nan if no run ends in time."""
        entry = None
        try:
            quiet = Request(
                algorithm=plan.algorithm, mechanism=None, rounds=plan.rounds, release=plan.release
            )
            entry = PlanTrial("no noise", self._planned(plan.problem, quiet, None))
            self.run(entry, COUNT, 1.0, fresh=True)
        except (DpcvxError, OutOfTime):
            return entry.score if entry is not None and entry.runs else math.nan
        return entry.score

    def crossing(self, entry: PlanTrial[P]) -> Crossing | None:
        """Return the crossing in the proxy's error of its optimum and a plan.

        It is None if the time ends before that is known.
        """

        def gap_of(copy: Copy, k: int) -> float:
            timed = Timed(self._started + self._seconds, self._clock)
            return gap_on(entry.plan, copy, self._seed + FRESH + k, timed)

        try:
            return crossing(self.copies, gap_of, entry.judged)
        except (DpcvxError, OutOfTime):
            return None

    def run(self, entry: PlanTrial[P], count: int, until: float, *, fresh: bool = False) -> None:
        """Run a trial until it has so many runs.

        Parameters
        ----------
        entry : PlanTrial
        count : int
        until : float
            The part of the time at which this ends.
        fresh : bool
            Take seeds that no choice rests on, and only the iterate that the plan returns.

        Raises
        ------
        OutOfTime
        """
        plan = entry.plan
        iterates = tuple(OUTPUTS)
        if fresh or not _chooses_iterate(plan.algorithm):
            iterates = (plan.reported,)
        first = self._seed + (FRESH if fresh else 0)
        while entry.runs < count:
            copy = self.copies(entry.runs)
            timed = Timed(self._started + until * self._seconds, self._clock)
            result = run_on(plan, copy.proxy, first + entry.runs, timed)
            lost = not result.status.solved
            gaps = {which: _gap(plan, copy, result, which) for which in iterates}
            feasible = lost or not copy.judge.breaks(
                getattr(result, plan.reported), result.constraint_slack
            )
            entry.broken.append(not feasible)
            for which, value in gaps.items():
                entry.values.setdefault(which, []).append(value)
            self._tick(self.passed)

    def _tried(self, settings: Iterable[Setting], until: float) -> list[PlanTrial[P]]:
        """Return trials of settings that can be planned and end their first run."""
        entries = []
        for setting in settings:
            if self.passed > until:
                break
            entry = self._entry(setting)
            if entry is not None and self._ran(entry, 1, until):
                entries.append(entry)
        return entries

    def _ran(self, entry: PlanTrial[P], count: int, until: float) -> bool:
        """Return whether there are so many runs, and each ended in time."""
        while entry.runs < count:
            limit = self.passed + _SHARE
            try:
                self.run(entry, entry.runs + 1, min(until, limit))
            except OutOfTime:
                if limit < until:
                    self._refuse(
                        entry.setting,
                        f"One run takes more than {_SHARE * self._seconds:.3g} s, so that too few "
                        f"fit into the time to tell noise from merit. {MORE_TIME}",
                    )
                return False
            except DpcvxError as refusal:
                self._refuse(entry.setting, str(refusal))
                return False
        return True

    def _refuse(self, setting: Setting | None, reason: str) -> None:
        """Try it no more; if it is a way's first setting, keep the reason."""
        if setting is not None:
            self._entries[setting] = None
            if setting == setting.way.first:
                self.refused[setting.way.name] = reason

    def _best_clipped(self, pool: list[PlanTrial[P]], until: float) -> list[PlanTrial[P]]:
        """Return the pool with its best clippable trial replaced by a small clip that is better.

        Unclipped, noise hides which way is best.
        """
        for entry in sorted(pool, key=lambda entry: entry.score):
            if self._clips_records(entry):
                better = self._coarsely_clipped(entry, until)
                return [better if other is entry else other for other in pool]
        return pool

    def _coarsely_clipped(self, entry: PlanTrial[P], until: float) -> PlanTrial[P]:
        """Return the best of an unclipped setting and others with much smaller clips."""
        whole = entry.setting
        if whole is None or whole.clip != 1 or not self._clips_records(entry):
            return entry
        near = self._coarse(whole, entry.plan.algorithm)
        return next(iter(self._halved([entry, *self._tried(near, until)], 1, until)), entry)

    def _coarse(self, whole: Setting, algorithm: Algorithm[Any, Any]) -> Iterator[Setting]:
        for clip in COARSE:
            clipped = replace(whole.plain, clip=clip)
            plain = self._entry(clipped)
            if plain is not None:
                yield lengthened(clipped, plain.plan.algorithm, algorithm)

    def _clips_records(self, entry: PlanTrial[P]) -> bool:
        plan = entry.plan
        if plan.release == "once" or getattr(plan.algorithm, "scale", None) is not None:
            return False
        return any(_record_bound(agent.program, agent.sensitivity) for agent in plan.agents)

    def _halved(self, pool: list[PlanTrial[P]], limit: int, until: float) -> list[PlanTrial[P]]:
        """Return the best, best first, after dropping the worse half at 1, 2, 4 and 8 runs each."""
        for count in _RUNGS:
            ended = [entry for entry in pool if self._ran(entry, count, until)]
            if self.passed < until:
                pool = ended
            pool = sorted(pool, key=lambda entry: entry.score)
            if self.passed >= until or (len(pool) <= limit and count > 1):
                break
            pool = pool[: max(limit, len(pool) // 2)]
        return pool[:limit]

    def _climbed(self, entry: PlanTrial[P], until: float) -> PlanTrial[P]:
        """Return the best setting after repeated steps to the best neighbor."""
        entry, seen = self._coarsely_clipped(entry, until), set[Setting]()
        while entry.setting is not None and self.passed < until:
            near = self._neighbors(entry)
            pool = self._tried([setting for setting in near if setting not in seen], until)
            seen.update(near, [entry.setting])
            best = next(iter(self._halved([entry, *pool], 1, until)), entry)
            gained = entry.score - best.score
            entry = best
            if not gained > _GAIN * (entry.score - self.copies.reference([entry.score])):
                break
        return entry

    def _neighbors(self, entry: PlanTrial[P]) -> list[Setting]:
        assert entry.setting is not None
        plan, once = entry.plan, entry.plan.release == "once"
        return entry.setting.neighbors(
            clips=self._clips_records(entry),
            decays=not once and _decay(plan) is not None,
            varied=scalable(plan.algorithm),
        )

    def _entry(self, setting: Setting) -> PlanTrial[P] | None:
        """Return the trial of a setting; None if it cannot be planned."""
        if setting not in self._entries:
            try:
                self._entries[setting] = PlanTrial(setting.way.name, self._varied(setting), setting)
            except DpcvxError as refusal:
                self._refuse(setting, str(refusal))
        return self._entries[setting]

    def _varied(self, setting: Setting) -> P:
        """Return a plan with other numbers than it would choose.

        It keeps the noise of the one with these: so do settings that differ in step and penalty,
        and what is different in their results is their own.
        """
        plain = setting.plain
        if plain != setting:
            base = self._measured_by(plain)
            return replace(base.plan, algorithm=scaled(base.plan.algorithm, setting))
        return self._plan(setting, setting.way.algorithm)

    def _measured_by(self, setting: Setting) -> PlanTrial[P]:
        """Return the entry of a setting that another one is varied from.

        Raises
        ------
        ModelError
            If there is none, or a run of it takes too long.
        """
        entry = self._entry(setting)
        if entry is None:
            raise ModelError("The baseline that this setting is compared with cannot be planned.")
        return entry

    def _plan(self, setting: Setting, algorithm: Algorithm[Any, Any]) -> P:
        kinds = {"gaussian": Gaussian, "laplace": Laplace}
        mechanism = kinds[setting.way.mechanism]()
        if setting.decaying:
            steady = self._measured_by(replace(setting.plain, decaying=False))
            mechanism = kinds[setting.way.mechanism](decay=_decay(steady.plan) or 1.0)
        problem = self._clipped(setting)
        asked = replace(
            self._asked,
            algorithm=algorithm,
            mechanism=mechanism,
            rounds=setting.rounds,
            release=setting.way.release,
            prior=self._asked.prior if setting.way.release == "once" else None,
        )
        return self._planned(problem, asked, self._known(problem))

    def _clipped(self, setting: Setting) -> Declaration:
        """Return the problem with records' contributions clipped to a part of their bound."""
        if setting.clip == 1:
            return self._problem
        compiled = self._known(self._problem)
        assert compiled is not None
        sensitivities = compiled.sensitivities
        bounds = [_record_bound(a, sensitivities[a.name]) for a in compiled.program.agents]
        clips = tuple(math.inf if bound is None else setting.clip * bound for bound in bounds)
        if clips not in self._clips:
            agents = [
                agent if clip == math.inf else replace(agent, clip_norm=clip)
                for agent, clip in zip(self._problem.agents, clips, strict=True)
            ]
            groups = self._problem.group_names
            self._clips[clips] = replace(self._problem, agents=agents, groups=groups)
        return self._clips[clips]

    def _known(self, problem: Declaration) -> Study | None:
        """Return the problem, compiled once for all plans; None if sensitivities are missing."""
        if problem not in self._compiled:
            try:
                self._compiled[problem] = study(problem)
            except PrivacyError:
                self._compiled[problem] = None
        return self._compiled[problem]


def _chooses_iterate(algorithm: Algorithm[Any, Any]) -> bool:
    return any(field_.name == "returned" for field_ in fields(cast(Any, algorithm)))


def _record_bound(local: LocalProgram, sensitivity: Sensitivity | None) -> float | None:
    """Return a record's largest contribution to a gradient; None if nothing can be clipped."""
    if sensitivity is None or not sensitivity.records or sensitivity.asserted is not None:
        return None
    if local.clip is not None:
        return local.clip
    bound = max(task.largest(2, sensitivity.extent) for task in sensitivity.records)
    return bound if 0 < bound < math.inf else None


def _decay(plan: Terms) -> float | None:
    """Return the root of a step's contraction factor towards the optimum; None without any."""
    rule = getattr(plan.algorithm, "step", None)
    step = None if isinstance(rule, Sqrt) else level(rule)
    curved = min(strong_convexity(agent.program.form) for agent in plan.agents)
    factor = 1.0 - (step or 0.0) * curved
    return math.sqrt(factor) if 0 < factor < 1 else None
