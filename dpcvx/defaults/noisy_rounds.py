"""Choice of the number of noisy rounds by predicted suboptimality, and calibration of the noise.

The noise is the smallest that every agent's budget allows, as multipliers that a plan then prices.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from ..algorithms.base import Requirements
from ..algorithms.facts import Conditions
from ..algorithms.federated_averaging import FederatedAveraging
from ..algorithms.federated_gradient import FederatedGradient
from ..algorithms.linearized_admm import LinearizedADMM
from ..algorithms.program import once_per_kind
from ..model.declaration import Declaration
from ..plan.agent_plan import AgentPlan, Agents, agents_of
from ..plan.checks import check_long
from ..plan.noise import require_delta, spent_on_noise, truncated, with_noise
from ..plan.request import Declared, Mechanisms, Noises, asked_of
from ..privacy.last_iterate import LastIterate
from ..privacy.mechanism import Laplace
from .clipping import grows
from .conditions import conditions
from .landscape import Landscape, landscape
from .predicted import Prediction, longest, predicted
from .remarks import Remark, of_steps
from .solvable import bounded_for_slopes
from .study import Selection, Study

# Numbers of rounds that are tried: Laplace noise is smaller only for few releases of few numbers.
_ROUNDS = {"laplace": (1, 2, 3, 5, 8), "gaussian": (1, 3, 10, 30, 100, 300)}
# Fewer rounds are chosen if their error is within this factor of the least. Predictions for smooth
# losses assume typical curvatures, and flatter problems need more rounds. Predictions for nonsmooth
# losses are bounds, which long runs do not reach.
_NEARLY, _NEARLY_BY_BOUNDS = 1.1, 1.5
# Share of the initial suboptimality that the bias of clips may leave if labels are noisy.
_BIAS = 0.02
# Distance to the optimum for `share`, relative to the typical distance: a nearer optimum makes the
# remaining share larger.
_NEARER = 0.5


@dataclass(frozen=True, eq=False)
class NoisyRounds:
    """Number of noisy rounds, with the noise and the predicted error of these rounds."""

    algorithm: LinearizedADMM | FederatedAveraging | FederatedGradient
    mechanism: Mechanisms
    rounds: int
    agents: Agents  # agents with their noise
    known: Conditions
    scene: Landscape
    others: tuple[NoisyRounds, ...] = ()  # all options that were compared

    def predicted(self, louder: float = 1.0, nearer: float = 1.0) -> Prediction:
        """Return the predicted error of these rounds, for noise and distance times factors."""
        largest = longest(self.scene, self.rounds)
        assert largest is not None
        scene = self.scene.scaled(louder, nearer)
        return predicted(scene, self.rounds, largest, pull=self.algorithm.pull)

    def share(self, louder: float = 1.0) -> float:
        """Return the predicted share of the initial suboptimality that remains.

        Noise is multiplied by `louder`.
        """
        # With other noise, another number of rounds may be best.
        predictions = [option.predicted(louder, _NEARER) for option in self.others or [self]]
        return min(
            prediction.gap / prediction.start if prediction.start > 0 else math.inf
            for prediction in predictions
        )

    @property
    def hides_clips(self) -> bool:
        """Return whether noise is predicted to leave more suboptimality than the bias of clips."""
        return _BIAS <= self.share() < math.inf

    def forecast(self) -> Remark:
        """Return a remark on the noise relative to the data, and on its effect on the objective."""
        if not any(slope > 0 for slope in self.known.slope):
            return Remark()
        steps = self.algorithm.requirements.releases * self.rounds
        reads = any(a.sensitivity is not None and a.sensitivity.records for a in self.agents)
        jumps = self.scene.smoothness is None and reads
        prediction = self.predicted()
        away = jumps and any(once_per_kind(self.agents, _runs_away))
        left = math.inf if away else prediction.noise
        few = prediction.gap > 2 * prediction.noise
        return of_steps(self.agents, self.known, steps, left, jumps, few)


def best_rounds(problem: Declaration, study: Study, request: Selection) -> NoisyRounds | None:
    """Return the rounds and the noise of the least predicted error; None without a prediction.

    Parameters
    ----------
    problem : Declaration
    study : Study
    request : Selection
        Request with a method of noisy gradient steps and an open step size.
    """
    algorithm, rounds, delta = request.algorithm, request.rounds, request.delta
    if not isinstance(algorithm, (LinearizedADMM, FederatedAveraging, FederatedGradient)):
        return None
    agents = agents_of(problem, study.program, study.sensitivities, algorithm.requirements)
    options: list[NoisyRounds] = []
    scene: Landscape | None = None
    for mechanism in request.mechanisms:
        asked = asked_of(problem, mechanism, request.epsilon)
        if any(
            noise is not None and noise.mechanism.per_step() is not None for noise in asked.values()
        ):
            return None  # with noise per step set by the user, more rounds cost more privacy
        several = _ROUNDS.get(str(mechanism), _ROUNDS["gaussian"])
        for T in several if rounds is None else (rounds,):
            # For few Laplace releases, composition at delta 0 is nearly exact, and quick.
            least = None if mechanism == "laplace" and rounds is None else delta
            releases = algorithm.releases(T, study.program)
            noisy = calibrated(agents, asked, algorithm.requirements, T, releases, least, False)
            distance = None if scene is None else scene.distance
            public = conditions(
                study.program, noisy, T, noisy_steps=True, distance=distance, releases=releases
            )
            public = _divided(public, algorithm.requirements)
            if scene is None:
                scene = landscape(study.program, public)
                first = public
                if longest(scene, T) is None or not scene.noisy:
                    return None
            here = scene.scaled(_rms(public.noise) / _rms(first.noise))
            options.append(NoisyRounds(algorithm, mechanism, T, noisy, public, here))
    return replace(_nearly_best(options), others=tuple(options))


def _divided(public: Conditions, needs: Requirements) -> Conditions:
    """Return the run's conditions, with distributed noise if the method aggregates securely."""
    if needs.secret is None:
        return public
    part = max(public.noise) / math.sqrt(len(public.noise) - needs.secret.colluders)
    return replace(public, noise=(part,) * len(public.noise))


def _runs_away(agent: AgentPlan) -> bool:
    """Return whether an agent's noisy steps may diverge, because losses and set are unbounded."""
    local, sensitivity = agent.program, agent.sensitivity
    if sensitivity is None or not sensitivity.records or not grows(local, sensitivity):
        return False
    anything = np.sin(1.0 + np.arange(local.n))
    return not bounded_for_slopes(local.constraints, np.zeros(0, dtype=np.intp), anything)


def _nearly_best(options: list[NoisyRounds]) -> NoisyRounds:
    """Return the option with the fewest rounds among options with nearly the least error."""
    several = sorted(options, key=lambda option: option.rounds)
    gaps = [option.predicted().gap for option in several]
    nearly = _NEARLY_BY_BOUNDS if several[0].scene.smoothness is None else _NEARLY
    return next(o for o, gap in zip(several, gaps, strict=True) if gap <= nearly * min(gaps))


def _rms(values: tuple[float, ...]) -> float:
    return math.sqrt(sum(value**2 for value in values) / len(values))


Multipliers = tuple[float | None, ...]


def calibrated(
    agents: Agents,
    requested: Noises,
    needs: Requirements,
    rounds: int,
    steps: int,
    delta: float | None,
    once: bool,
) -> Agents:
    """Return the agents with the smallest noise that their budgets allow.

    Parameters
    ----------
    agents : tuple of AgentPlan
    requested : mapping of str to (Declared or None)
    needs : Requirements
        Requirements of the algorithm.
    rounds : int
    steps : int
        Number of releases of an agent in these rounds.
    delta : float or None
    once : bool
        Whether the data are released once, instead of a value in every step.

    Raises
    ------
    PrivacyError
        If the mechanism needs a delta, or too many releases differ in their noise.
    """
    first = () if once else needs.factors(rounds)
    uneven = (len(needs.weights) > 1 or bool(first)) and not once

    @functools.cache
    def multiplier(asked: Declared, share: int) -> float:
        # `share` agents may hold data of one person, whose loss covers all their releases.
        decay, ratios, exposed = asked.mechanism.decay, [1.0], steps * share
        if uneven or (decay < 1 and not once):
            check_long(rounds, len(needs.weights))
            times = [decay**t * w for t, w in enumerate([*first, *[1.0] * (rounds - len(first))])]
            ratios = [time * w for time in times for w in needs.weights][needs.free :]
            exposed = needs.releases // len(needs.weights) * share
        mechanism = asked.mechanism
        # The theorem on objective perturbation divides a pure epsilon, at delta 0.
        pure = needs.perturbed is not None and isinstance(mechanism, Laplace)
        return multiplied(
            asked,
            delta,
            lambda e, d: mechanism.for_total(exposed, e, 0.0 if pure else d, ratios),
        )

    pairs = [(requested[agent.name], agent.share) for agent in agents]
    multipliers = [asked and multiplier(asked, share) for asked, share in pairs]
    return with_noise(agents, requested, multipliers, needs, rounds, delta, once)


def calibrated_with_limit(agents: Agents, requested: Noises, delta: float) -> Agents:
    """Return the agents, with truncated noise for those with private data in constraints.

    Parameters
    ----------
    agents : tuple of AgentPlan
        Agents with noise without truncation, for one release of the data.
    requested : mapping of str to (Declared or None)
    delta : float
        Budget delta, positive.

    Raises
    ------
    PrivacyError
        If `truncated` refuses the noise.
    """

    def multiplier(asked: Declared) -> float:
        mechanism = asked.mechanism
        spent = spent_on_noise(mechanism, delta)
        return multiplied(asked, spent, lambda e, d: mechanism.for_total(1, e, d))

    limited = tuple(
        replace(agent, noise=replace(agent.noise, multiplier=multiplier(asked)))
        if agent.program.limits
        and (asked := requested[agent.name]) is not None
        and agent.noise is not None
        else agent
        for agent in agents
    )
    return truncated(limited, delta)


def multipliers_of_turns(requested: Noises, last: LastIterate, delta: float | None) -> Multipliers:
    """Return the smallest noise multipliers of users' steps that keep each user within the budget.

    Parameters
    ----------
    requested : mapping of str to (Declared or None)
    last : LastIterate
        Constants that the privacy loss depends on, besides the noise.
    delta : float or None
    """

    @functools.cache
    def multiplier(asked: Declared) -> float:
        return multiplied(asked, delta, last.multiplier)

    return tuple(asked and multiplier(asked) for asked in requested.values())


def multiplied(
    asked: Declared, delta: float | None, for_total: Callable[[float, float], float]
) -> float:
    """Return a mechanism's noise multiplier: as the user set it, or for a total budget.

    `for_total` computes it from (epsilon, delta).

    Raises
    ------
    PrivacyError
        If the mechanism needs a delta.
    """
    require_delta(asked.mechanism, delta)
    fixed = asked.mechanism.per_step()
    if fixed is not None:
        return fixed
    assert asked.epsilon is not None  # a declared mechanism has a level or a budget
    return for_total(asked.epsilon, delta or 0.0)
