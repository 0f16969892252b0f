"""How many noisy rounds, and with which noise: by the gap that is predicted for them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from ..algorithms.facts import Conditions
from ..algorithms.federated_averaging import FederatedAveraging
from ..algorithms.federated_gradient import FederatedGradient
from ..algorithms.linearized_admm import LinearizedADMM
from ..algorithms.program import once_per_kind
from ..model.declaration import Declaration
from ..plan.agent_plan import AgentPlan, Agents, agents_of
from ..plan.request import Mechanisms, asked_of
from ..solvers.directions import bounded_for_slopes
from .calibration import calibrated
from .clipping import grows
from .conditions import conditions
from .forecast import of_steps
from .landscape import Landscape, landscape
from .predicted import Prediction, longest, predicted
from .responses import Selection, Study

# Laplace noise is the smaller one for few releases of few numbers only.
_ROUNDS = {"laplace": (1, 2, 3, 5, 8), "gaussian": (1, 3, 10, 30, 100, 300)}
# Fewer rounds that do nearly as well are better. Where slopes jump, predictions go by bounds that
# many rounds do not reach; else they go by typical curvatures, and flatter problems need more.
_NEARLY, _NEARLY_BY_BOUNDS = 1.1, 1.5
# What clips may keep of the gap between start and optimum where labels are noisy.
_BIAS = 0.02
# What is promised is promised for answers that are nearer to the start than is taken as typical.
_NEARER = 0.5


@dataclass(frozen=True, eq=False)
class NoisyRounds:
    """A number of noisy rounds, and what is known of them."""

    algorithm: LinearizedADMM | FederatedAveraging | FederatedGradient
    mechanism: Mechanisms
    rounds: int
    agents: Agents  # with their noise
    known: Conditions
    scene: Landscape
    others: tuple[NoisyRounds, ...] = ()  # that were possible

    def predicted(self, louder: float = 1.0, nearer: float = 1.0) -> Prediction:
        """What the rounds lead to, if noise and distance were larger by these factors."""
        largest = longest(self.scene, self.rounds)
        assert largest is not None
        scene = self.scene.scaled(louder, nearer)
        return predicted(scene, self.rounds, largest, pull=self.algorithm.pull)

    def share(self, louder: float = 1.0) -> float:
        """What is promised to stay of the gap between start and optimum, with other noise."""
        # Other rounds would be chosen then.
        found = [option.predicted(louder, _NEARER) for option in self.others or [self]]
        return min(one.gap / one.start if one.start > 0 else math.inf for one in found)

    @property
    def hides_clips(self) -> bool:
        """Whether noise leaves more of the gap than clips of contributions would."""
        return _BIAS <= self.share() < math.inf

    def forecast(self) -> str:
        """The noise beside the data, and the gap that it may leave, as text."""
        if not any(slope > 0 for slope in self.known.slope):
            return ""
        steps = self.algorithm.requirements.releases * self.rounds
        reads = any(a.sensitivity is not None and a.sensitivity.records for a in self.agents)
        jumps = self.scene.smoothness is None and reads
        left = (
            math.inf
            if jumps and any(once_per_kind(self.agents, _runs_away))
            else self.predicted().noise
        )
        return of_steps(self.agents, self.known, steps, left, jumps)


def best_rounds(problem: Declaration, known: Study, request: Selection) -> NoisyRounds | None:
    """The rounds and the noise that are predicted to end best; None where nothing is predicted.

    Parameters
    ----------
    problem : Declaration
    known : Study
    request : Selection
        With a method of noisy gradient steps, its step left open.
    """
    algorithm, rounds, delta = request.algorithm, request.rounds, request.delta
    if not isinstance(algorithm, (LinearizedADMM, FederatedAveraging, FederatedGradient)):
        return None
    agents = agents_of(problem, known.program, known.sensitivities, algorithm.requirements)
    options: list[NoisyRounds] = []
    scene: Landscape | None = None
    for mechanism in request.mechanisms:
        asked = asked_of(problem, mechanism, request.epsilon)
        if any(one is not None and one.mechanism.per_step() is not None for one in asked.values()):
            return None  # more rounds cost more
        several = _ROUNDS.get(str(mechanism), _ROUNDS["gaussian"])
        for T in several if rounds is None else (rounds,):
            # The pure price of a few Laplace releases is nearly theirs, and found at once.
            least = None if mechanism == "laplace" and rounds is None else delta
            releases = algorithm.releases(T, known.program)
            noisy = calibrated(agents, asked, algorithm.requirements, T, releases, least, False)
            distance = None if scene is None else scene.distance
            public = conditions(known.program, noisy, T, noisy_steps=True, distance=distance)
            if scene is None:
                scene = landscape(known.program, public)
                first = public
                if longest(scene, T) is None or not scene.noisy:
                    return None
            here = scene.scaled(_rms(public.noise) / _rms(first.noise))
            options.append(NoisyRounds(algorithm, mechanism, T, noisy, public, here))
    return replace(_nearly_best(options), others=tuple(options))


def _runs_away(agent: AgentPlan) -> bool:
    """Whether the loss of records grows without end, and no set keeps noisy steps from there."""
    local, known = agent.program, agent.sensitivity
    if known is None or not known.records or not grows(local, known):
        return False
    anything = np.sin(1.0 + np.arange(local.n))
    return not bounded_for_slopes(local.constraints, np.zeros(0, dtype=np.intp), anything)


def _nearly_best(options: list[NoisyRounds]) -> NoisyRounds:
    """The fewest rounds that are predicted to end nearly as well as any."""
    several = sorted(options, key=lambda option: option.rounds)
    gaps = [option.predicted().gap for option in several]
    nearly = _NEARLY_BY_BOUNDS if several[0].scene.smoothness is None else _NEARLY
    return next(o for o, gap in zip(several, gaps, strict=True) if gap <= nearly * min(gaps))


def _rms(values: tuple[float, ...]) -> float:
    return math.sqrt(sum(value**2 for value in values) / len(values))
