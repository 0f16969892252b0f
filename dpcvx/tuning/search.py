"""Search for settings on public proxy data, by successive halving and steps to better neighbors."""

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

# Numbers of runs of each setting, after which the worse half of the settings is dropped.
_RUNGS = (1, 2, 4, 8)
# Largest share of the time for one run; with fewer runs, noise hides which setting is better.
_SHARE = 0.03
# Share of a search's time for simulations in batches.
_SIMULATED = 0.6
# A neighbor's neighbors are tried if it lowers the gap by more than this share.
_GAIN = 0.1
# Least time limit in seconds, to divide by.
_LEAST = 1e-9
# Last sentence of reasons that more time would remove.
MORE_TIME = "Pass a larger time_limit=."
# Reason for skipping a configuration without a finished run.
LATE = f"The time was over before a run of it ended. {MORE_TIME}"
# Reason for skipping a configuration that was tried.
BEHIND = "Its runs were not clearly better than those that were simulated of"
# Largest probability of calling a configuration better if both are equal; it is small, because the
# best of many configurations are compared.
_ERROR = 0.01
# First seed of the final comparison, whose runs no earlier choice used.
FRESH = 1_000_000


class Timed(Automatic):
    """Executor that raises `OutOfTime` between two calls of workers once its time is over."""

    def __init__(self, until: float, clock: Callable[[], float]) -> None:
        super().__init__(clock=clock)
        self._until = until

    def map(self, method: str, *common: Any, each: Sequence[Any] | None = None) -> list[Any]:
        """Call a method of all workers, and return the results; see `Executor.map`."""
        if self._clock() > self._until:
            raise OutOfTime
        return super().map(method, *common, each=each)


def run_on(plan: Terms, proxy: Mapping[Private | str, Sealed], seed: int, timed: Timed) -> Result:
    """Return the result of a plan's run on public values in place of the private data.

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
    """Return the gap of a plan's run on a copy of the proxy data.

    Raises
    ------
    OutOfTime
    """
    return _gap(plan, copy, run_on(plan, copy.proxy, seed, timed), plan.reported)


def _gap(plan: Terms, copy: Copy, result: Result, which: str) -> float:
    """Return the gap of the iterate `which` of a result; infinite without a solution."""
    if not result.status.solved:
        return math.inf
    paid = plan.slack_penalty * sum(float(by.sum()) for by in result.constraint_slack.values())
    return copy.gap(getattr(result, which), paid)


class Search(Generic[P]):
    """Search for settings of a problem under one budget.

    Parameters
    ----------
    problem : Declaration
    planned : callable
        Function that returns a plan for a problem; see `Planner`.
    request : SearchRequest
        Arguments of the search. Runs have its seed and the seeds that follow.
    copies : Copies
        Copies of the proxy data; run k of every setting is on copy k.
    tick : callable
        Function that gets the share of the time that has passed, after every run.

    Attributes
    ----------
    refused : dict of str to str
        Reasons for skipped configurations, by name.
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
        """Share of the time limit that has passed."""
        return (self._clock() - self._started) / self._seconds

    def default(self) -> PlanTrial[P]:
        """Return the trial of the default plan, with dpcvx's own choices.

        Raises
        ------
        DpcvxError
            If there is no such plan.
        """
        compiled = self._known(self._problem)
        self._default = self._planned(self._problem, self._asked, compiled)
        return PlanTrial("default", self._default)

    def best_of(self, ways: Sequence[Way], limit: int, until: float) -> list[PlanTrial[P]]:
        """Return the best trials near the best of the configurations `ways`, best first.

        Parameters
        ----------
        ways : iterable of Way
        limit : int
            Largest number of trials.
        until : float
            Share of the time limit at which the search ends.
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
        """Return the trial with the lowest gap in simulated runs of the configurations `ways`.

        All their runs can be simulated in batches. The search ends at `until`, a share of the time
        limit.
        """
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
        """Return the trials in `others` that are clearly better than the simulated one, `sums`."""
        rivals: list[PlanTrial[P]] = []
        for rival in others:
            if surely_lower(rival.values[rival.best], sums.values[sums.best], _ERROR):
                rivals.append(rival)
            else:
                self.refused.setdefault(rival.name, f"{BEHIND} {sums.name}.")
        return rivals

    def _ends(self, start: float, length: float, part: float) -> Callable[[], None]:
        """Return a function that raises `OutOfTime` after a share of a time span.

        Times are shares of the time limit.
        """

        def pause() -> None:
            now = self.passed
            self._tick(now)
            if now > start + part * length:
                raise OutOfTime

        return pause

    def _near_default(self, ways: Sequence[Way]) -> list[Setting]:
        """Return the setting of the default plan, if its configuration is in `ways`; else none."""
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
        """Return the best trial of each configuration in `ways`, best first.

        The search ends at `until`, a share of the time limit.
        """
        now = self.passed
        pool = self._begun((way.first for way in ways), ways, now + (until - now) / 3)
        return sorted(self._varied_further(pool, until), key=lambda entry: entry.score)

    def _begun(
        self, settings: Iterable[Setting], ways: Sequence[Way], until: float
    ) -> list[PlanTrial[P]]:
        """Return the trials of `settings` that end a first run before `until`.

        The configurations in `ways` without such a trial are noted in `refused`.
        """
        entries = self._tried(settings, until)
        for way in ways:
            if way.name not in {entry.name for entry in entries}:
                self.refused.setdefault(way.name, LATE)
        return entries

    def _varied_further(self, pool: list[PlanTrial[P]], until: float) -> list[PlanTrial[P]]:
        """Return the best trial near each trial in `pool`.

        The time to `until` is divided equally among them.
        """
        entries = []
        for k, entry in enumerate(pool):
            left = until - self.passed
            entries.append(self._climbed(entry, self.passed + left / (len(pool) - k)))
        return entries

    def final(self, entry: PlanTrial[P]) -> PlanTrial[P] | None:
        """Return a new trial of the plan with the best setting and the best returned iterate.

        None if that plan is refused.
        """
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
        """Return the median gap of the plan without noise; nan if no run ends in time."""
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
        """Return the factor on the assumed error that makes plan and proxy tie; see `Crossing`.

        It is None if the time ends before it is known.
        """

        def gap_of(copy: Copy, k: int) -> float:
            timed = Timed(self._started + self._seconds, self._clock)
            return gap_on(entry.plan, copy, self._seed + FRESH + k, timed)

        try:
            return crossing(self.copies, gap_of, entry.judged)
        except (DpcvxError, OutOfTime):
            return None

    def run(self, entry: PlanTrial[P], count: int, until: float, *, fresh: bool = False) -> None:
        """Run a trial until it has `count` runs.

        Parameters
        ----------
        entry : PlanTrial
        count : int
        until : float
            Share of the time limit at which runs end.
        fresh : bool
            Whether to use seeds that no earlier choice used, and to score only the iterate that
            the plan returns.

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
        """Return trials of those settings that have a valid plan and a first run that ends in time.

        No run starts or continues after `until`, a share of the time limit.
        """
        entries = []
        for setting in settings:
            if self.passed > until:
                break
            entry = self._entry(setting)
            if entry is not None and self._ran(entry, 1, until):
                entries.append(entry)
        return entries

    def _ran(self, entry: PlanTrial[P], count: int, until: float) -> bool:
        """Run a trial until it has `count` runs; return False if a run is refused or too slow.

        The time ends at `until`, a share of the time limit, or after a fixed share for one run.
        """
        while entry.runs < count:
            limit = self.passed + _SHARE
            try:
                self.run(entry, entry.runs + 1, min(until, limit))
            except OutOfTime:
                if limit < until:
                    self._refuse(
                        entry.setting,
                        f"One run takes more than {_SHARE * self._seconds:.3g} s, so too few runs "
                        f"fit into the time limit to compare settings. {MORE_TIME}",
                    )
                return False
            except DpcvxError as refusal:
                self._refuse(entry.setting, str(refusal))
                return False
        return True

    def _refuse(self, setting: Setting | None, reason: str) -> None:
        """Exclude a setting from the search; if it is its configuration's first, store `reason`."""
        if setting is not None:
            self._entries[setting] = None
            if setting == setting.way.first:
                self.refused[setting.way.name] = reason

    def _best_clipped(self, pool: list[PlanTrial[P]], until: float) -> list[PlanTrial[P]]:
        """Return the pool after trying small clips for its best trial that can be clipped.

        A better clip replaces that trial. Without clips, noise hides which configuration is best.
        """
        for entry in sorted(pool, key=lambda entry: entry.score):
            if self._clips_records(entry):
                better = self._coarsely_clipped(entry, until)
                return [better if other is entry else other for other in pool]
        return pool

    def _coarsely_clipped(self, entry: PlanTrial[P], until: float) -> PlanTrial[P]:
        """Return the best of an unclipped trial and its variants with small clips, by gap."""
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
        """Return the best trials, best first, after dropping the worse half at 1, 2, 4, 8 runs."""
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
        """Return the best trial after repeated steps to the best neighboring setting."""
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
        """Return the trial of a setting, with its plan and runs; None if its plan is refused."""
        if setting not in self._entries:
            try:
                self._entries[setting] = PlanTrial(setting.way.name, self._varied(setting), setting)
            except DpcvxError as refusal:
                self._refuse(setting, str(refusal))
        return self._entries[setting]

    def _varied(self, setting: Setting) -> P:
        """Return the plan with a setting's rounds, clip, step and penalty.

        Settings that differ only in step and penalty have the same seeded noise, so that a
        difference of their results is due to the settings.
        """
        plain = setting.plain
        if plain != setting:
            base = self._measured_by(plain)
            return replace(base.plan, algorithm=scaled(base.plan.algorithm, setting))
        return self._plan(setting, setting.way.algorithm)

    def _measured_by(self, setting: Setting) -> PlanTrial[P]:
        """Return the trial of the setting that another setting was derived from.

        Raises
        ------
        ModelError
            If it cannot be planned, or a run of it takes too long.
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
        """Return the problem with records' contributions clipped to a share of their bound."""
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
        """Return the compiled problem with facts for defaults; None if a sensitivity is unknown."""
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
    """Return the decay factor of noise per round: the root of a step's contraction factor.

    None if steps are not known to contract.
    """
    rule = getattr(plan.algorithm, "step", None)
    step = None if isinstance(rule, Sqrt) else level(rule)
    curved = min(strong_convexity(agent.program.form) for agent in plan.agents)
    factor = 1.0 - (step or 0.0) * curved
    return math.sqrt(factor) if 0 < factor < 1 else None
