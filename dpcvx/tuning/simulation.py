"""Simulation of many runs of `FederatedGradient` as a batch, to search for settings.

Simulations use public proxy data and floating-point noise, which hides nothing; the settings found
are then compared by runs of plans. In the time of tens of such runs, thousands are simulated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import product
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from ..algorithms.federated_gradient import FederatedGradient
from ..algorithms.joint import joint_set
from ..algorithms.steps import as_step
from ..model.declaration import Declaration
from ..model.matrices import as_array
from ..model.normal_form import Evaluator
from ..model.private import Private
from ..model.sealed import Sealed
from ..plan.agent_plan import AgentPlan
from ..plan.terms import Terms
from ..privacy.randomness import Randomness, source_for, uniform
from ..run.data import sources_of
from ..run.gate import read_sparse_too
from ..run.loop import PARTS
from ..sensitivity.queries.query import finite_gradient
from ..solvers.newton import PLAIN
from ..solvers.projector import Projector
from .settings import OutOfTime, PlanTrial, Setting, Way, lengthened, rough, scaled

Array = NDArray[np.float64]
Index = NDArray[np.intp]
Values = dict[str, Array]

# Norms of points are rounded up to steps of 1 / _RUNGS octave, at least _LEAST, to share
# sensitivities.
_RUNGS = 8
_LEAST = 2.0**-500
# Largest number of entries of an agent's data, which are dense arrays here.
_ENTRIES = 1 << 24


def simulable(plan: Terms) -> bool:
    """Return whether runs of a plan can be simulated: noisy steps along sums of gradients."""
    return (
        type(plan.algorithm) is FederatedGradient
        and plan.algorithm.sharing is None
        and plan.algorithm.scale is None
        and plan.noisy
        and not (plan.published or plan.hidden or plan.prepaid or plan.program.kept)
        and all(map(_is_plain, plan.agents))
    )


def _is_plain(agent: AgentPlan) -> bool:
    sensitivity, noise = agent.sensitivity, agent.noise
    return (
        agent.program.rest is None
        and sensitivity is not None
        and sensitivity.bound(2).value < math.inf
        and (noise is None or (noise.split is None and noise.stated is None))
        and agent.program.form.data_size <= _ENTRIES
    )


class Simulation:
    """Simulated runs of a problem's plans, on proxy data.

    Parameters
    ----------
    problem : Declaration
    proxy : mapping
        Public values of every private object.
    base : float
        Value that is subtracted from values of the objective.
    """

    def __init__(
        self, problem: Declaration, proxy: Mapping[Private | str, Sealed], base: float = 0.0
    ) -> None:
        self._sources, self._base = sources_of(problem, proxy), base

    def __call__(
        self,
        plan: Terms,
        algorithms: Sequence[FederatedGradient],
        runs: int,
        seed: int,
        pause: Callable[[], None],
    ) -> list[Values]:
        """Return the objective's values at the end of each run, by returned iterate.

        Parameters
        ----------
        plan : Terms
            Plan that satisfies `simulable`.
        algorithms : sequence of FederatedGradient
            Methods with other step sizes, in place of the plan's.
        runs : int
            Number of runs of each method.
        seed : int
            Noise seed, common to all methods.
        pause : callable
            Function that is called in every round; it may raise an error to end the runs.

        Returns
        -------
        list of dict of str to ndarray of shape (runs,)
            Values for each method, minus the base; infinite if a run diverged.
        """
        steps = [rule for method in algorithms if (rule := as_step(method.step)) is not None]
        agents, joint = plan.agents, joint_set(plan.program)
        projector = Projector(joint.data, "all agents", kernel=plan.program.kernel or PLAIN)
        pairs = zip(agents, self._sources, strict=True)
        objectives = [_objective(agent, point) for agent, point in pairs]
        sources = [source_for(seed, (k,)) for k in range(len(agents))]
        x = np.tile(_within(projector, joint.start[None]), (len(steps) * runs, 1))
        ends = [plan.rounds * k // PARTS for k in range(1, PARTS)]
        places = np.searchsorted(ends, np.arange(1, plan.rounds + 1))
        sums = np.zeros((PARTS, *x.shape))
        with np.errstate(all="ignore"):  # runs that diverge overflow
            for t in range(1, plan.rounds + 1):
                pause()
                total = np.zeros_like(x)
                for agent, of, columns, source in zip(
                    agents, objectives, joint.places, sources, strict=True
                ):
                    point = x[:, columns]
                    total[:, columns] += finite_gradient(of, point)
                    spread = _spreads(agent, point, t)
                    if spread is not None:
                        drawn = _noise(agent, (runs, columns.size), source.at(t, 1))
                        total[:, columns] += spread * np.tile(drawn, (len(steps), 1))
                eta = np.repeat([rule.eta(t) for rule in steps], runs)[:, None]
                x = _within(projector, x - eta * total)
                sums[places[t - 1]] += x
            parts = [*zip(objectives, joint.places, strict=True)]
            iterates = {
                which: _values(parts, points).reshape(len(steps), runs) - self._base
                for which, points in _iterates(sums, x, plan.rounds).items()
            }
        return [{which: values[k] for which, values in iterates.items()} for k in range(len(steps))]


def _objective(agent: AgentPlan, sources: Sequence[Sealed]) -> Evaluator:
    """Return an object that evaluates an agent's objective, and gradient, on proxy data."""
    form, sensitivity = agent.program.form, agent.sensitivity
    assert sensitivity is not None
    read = read_sparse_too(form.private, sources)
    data = [np.ravel(as_array(values), order="F") for values in read]
    return form.bind(data, sensitivity.clips, limited=True)


def _values(parts: Sequence[tuple[Evaluator, Index]], points: Array) -> Array:
    """Return the sum of all agents' objectives at each point; infinite without a finite value."""
    total = sum((of.value(points[:, columns]) for of, columns in parts), np.zeros(len(points)))
    return np.where(np.isfinite(points).all(axis=1) & np.isfinite(total), total, np.inf)


def _iterates(sums: Array, last: Array, rounds: int) -> Values:
    """Return all iterates that a plan may return, from sums over parts of the rounds.

    The parts are those of `dpcvx.run.loop`.
    """
    ends = np.array([rounds * k // PARTS for k in range(PARTS + 1)])
    sizes = np.diff(ends)
    # Mean of the round numbers of each part.
    weights = (ends[:-1] + ends[1:] + 1) / 2
    late = np.arange(PARTS) >= PARTS // 2
    means = {
        "average": np.ones(PARTS),
        "tail": 1.0 * late if rounds > 1 else np.ones(PARTS),
        "weighted": weights,
    }
    values = {
        which: np.tensordot(weight, sums, 1) / (weight * sizes).sum()
        for which, weight in means.items()
    }
    return {**values, "last": last}


def _spreads(agent: AgentPlan, x: Array, t: int) -> Array | None:
    """Return the standard deviation of an agent's noise at each point; None without noise.

    Points are the rows of x; the result has the shape (points, 1).
    """
    sensitivity, noise = agent.sensitivity, agent.noise
    if sensitivity is None or noise is None or sensitivity.bound(2).value == 0:
        return None
    noise, p = noise.at(t), noise.mechanism.norm
    bounds = np.full(len(x), sensitivity.bound(p).value)
    if sensitivity.flattens:
        sizes = np.linalg.norm(x, axis=1)
        rungs = np.ceil(_RUNGS * np.log2(np.maximum(sizes, _LEAST)))
        for rung in np.unique(rungs[np.isfinite(rungs)]):
            same = rungs == rung
            bounds[same] = sensitivity.within(p, 2.0 ** (rung / _RUNGS))
    return np.sqrt(noise.variance(1.0)) * bounds[:, None]


def _noise(agent: AgentPlan, shape: tuple[int, int], stream: Randomness) -> Array:
    """Return simulated noise with an agent's law (normal or Laplace) and variance 1."""
    u = uniform(shape[0] * shape[1], stream).reshape(shape) + 2.0**-54
    if agent.noise is None or agent.noise.mechanism.norm == 2:
        return ndtri(u)
    away = np.minimum(u, 1 - u)
    return np.sign(u - 0.5) * -np.log(2 * away) * math.sqrt(0.5)


def _within(projector: Projector, points: Array) -> Array:
    """Return the projections of points onto the projector's set; infinite upon failure."""
    if not projector.kinds.keys() - {"free"}:
        return points
    ones, out = np.ones(projector.n), np.full(points.shape, np.inf)
    there = np.flatnonzero(np.isfinite(points).all(axis=1))
    if projector.closed_form:
        out[there] = projector(points[there], ones).x
        return out
    for k in there:
        point = projector(points[k], ones).x
        if point is not None:
            out[k] = point
    return out


P = TypeVar("P", bound=Terms)
Known = Callable[[Setting], PlanTrial[P] | None]

# Number of runs of each setting: in the first comparison, for promising settings, in the last one.
_FEW, _MANY, _SURE = 8, 64, 256
# Number of promising settings, of settings whose neighbors are tried, and of settings that are
# compared last.
_PROMISING, _BEST, _COMPARED = 16, 2, 6
# Share of the time before the last comparison.
_SEARCH = 0.8
# Factors on the step size of `_middle`, as powers of three; then the smaller moves of neighbors.
_STEPS = (-2, -1, 0, 1, 2, 3, 4)
_HALF = 0.5
# A neighbor is followed if it lowers the gap by more than this share.
_GAIN = 0.02


def simulates(way: Way) -> bool:
    """Return whether runs of a configuration may be simulated; see `simulable` for plans."""
    method = way.algorithm
    return isinstance(method, FederatedGradient) and method.sharing is None and way.scale is None


def best_simulated(
    way: Way,
    trial_of: Known[P],
    clips: Callable[[PlanTrial[P]], bool],
    gap: Callable[[float], float],
    simulation: Callable[..., list[Values]],
    seed: int,
    ends: Callable[[float], Callable[[], None]],
) -> PlanTrial[P] | None:
    """Return the best trial of a configuration; None if no simulation is possible or ends in time.

    Parameters
    ----------
    way : Way
    trial_of : callable
        Function of a setting that returns its trial, or None if it cannot be planned.
    clips : callable
        Function of a trial that returns whether its records can be clipped.
    gap : callable
        Function of a value of the objective that returns its gap.
    simulation : Simulation
    seed : int
        Noise seed.
    ends : callable
        Function of a share of the time. It returns a function that raises `OutOfTime` after that
        share, to be called in every round.
    """
    first = trial_of(way.first)
    if first is None or not simulable(first.plan):
        return None
    search = _Search(trial_of, gap, simulation, seed, ends(_SEARCH), clips(first))
    with suppress(OutOfTime):
        search.look(way)
        search.follow()
    with suppress(OutOfTime):
        search.compare(ends(1.0))
    ranked_trials = search.best
    return ranked_trials[0] if ranked_trials and math.isfinite(ranked_trials[0].score) else None


class _Search:
    """Search among the settings of one configuration, with their simulated runs so far."""

    def __init__(
        self,
        trial_of: Known[Any],
        gap: Callable[[float], float],
        simulation: Callable[..., list[Values]],
        seed: int,
        pause: Callable[[], None],
        clips: bool,
    ) -> None:
        self._known, self._gap, self._simulation = trial_of, gap, simulation
        self._seed, self._pause, self._clips = seed, pause, clips
        self._few: dict[Setting, PlanTrial[Any]] = {}
        self._many: dict[Setting, PlanTrial[Any]] = {}
        self._sure: dict[Setting, PlanTrial[Any]] = {}

    @property
    def best(self) -> list[PlanTrial[Any]]:
        """Trials with the most simulated runs so far, best first."""
        trials = self._sure or self._many or self._few
        return sorted(trials.values(), key=lambda entry: entry.score)

    def look(self, way: Way) -> None:
        """Simulate widely spaced settings, and then the best of them with more runs."""
        for plain in rough(way, self._clips):
            middle = self._middle(plain)
            if middle is not None:
                moves = product(_STEPS, (False, True) if plain.rounds > 1 else (False,))
                near = [replace(middle, step=middle.step + k, falling=falls) for k, falls in moves]
                self._run(near, _FEW, self._few)
        promising = [_setting(entry) for entry in self.best[:_PROMISING]]
        self._run(promising, _MANY, self._many)

    def follow(self) -> None:
        """Move from the best settings to better neighbors, until no neighbor is better."""
        for best in self.best[:_BEST]:
            gained = True
            while gained:
                near = [
                    setting for setting in self._around(_setting(best)) if setting not in self._many
                ]
                self._run(near, _MANY, self._many)
                better = min(
                    (self._many[setting] for setting in near if setting in self._many),
                    key=lambda entry: entry.score,
                    default=best,
                )
                gained = best.score - better.score > _GAIN * self._gap(best.score)
                best = better if gained else best

    def compare(self, pause: Callable[[], None]) -> None:
        """Simulate the best settings again, with noise that no earlier choice used."""
        self._seed, self._pause = self._seed + 1, pause
        self._run([_setting(entry) for entry in self.best[:_COMPARED]], _SURE, self._sure)

    def _middle(self, plain: Setting) -> Setting | None:
        """Return the setting whose steps move solutions as far as the plan's do without clips."""
        chosen, whole = self._known(plain), self._known(replace(plain, clip=1.0))
        if chosen is None or whole is None:
            return None
        return lengthened(plain, chosen.plan.algorithm, whole.plan.algorithm)

    def _around(self, setting: Setting) -> Iterator[Setting]:
        """Yield a setting's neighbors, each also with other step sizes, which need no new plan."""
        plans = setting.neighbors(clips=self._clips, decays=False, varied=())
        for variant in (setting, *plans):
            for k in (0.0, -_HALF, _HALF):
                near = replace(variant, step=variant.step + k)
                yield near
                if variant is setting and variant.rounds > 1:
                    yield replace(near, falling=not near.falling)

    def _run(
        self, settings: Sequence[Setting], runs: int, trials: dict[Setting, PlanTrial[Any]]
    ) -> None:
        """Simulate runs of each setting, as a batch if plans differ only in steps."""
        for plain in dict.fromkeys(setting.plain for setting in settings):
            base = self._known(plain)
            if base is None or not simulable(base.plan):
                continue
            matching = [setting for setting in settings if setting.plain == plain]
            algorithms = [scaled(base.plan.algorithm, setting) for setting in matching]
            values = self._simulation(base.plan, algorithms, runs, self._seed, self._pause)
            for setting, algorithm, of_setting in zip(matching, algorithms, values, strict=True):
                plan = replace(base.plan, algorithm=algorithm)
                ends = {which: [*map(float, each)] for which, each in of_setting.items()}
                trials[setting] = PlanTrial(base.name, plan, setting, ends)


def _setting(entry: PlanTrial[Any]) -> Setting:
    assert entry.setting is not None
    return entry.setting
