"""Configurations that a search tries, their variations, and trials of plans.

A configuration is a method with a kind of noise and of release. A search request has a budget,
public proxy data and a time limit. A trial is a plan with its runs on public proxy data so far.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Generic, Literal, TypeVar, cast

import numpy as np
from scipy.stats import mannwhitneyu

from .._arguments import FLAG, POSITIVE, check_argument, integer, optional
from ..algorithms import penalties, steps
from ..algorithms.admm import ADMM
from ..algorithms.base import Algorithm
from ..algorithms.decentralized_admm import DecentralizedADMM
from ..algorithms.decentralized_gradient import DecentralizedGradient
from ..algorithms.dpp2 import DPP2
from ..algorithms.federated_averaging import FederatedAveraging
from ..algorithms.federated_gradient import FederatedGradient
from ..algorithms.gradient_admm import GradientADMM
from ..algorithms.gradient_tracking import GradientTracking
from ..algorithms.learned_scale import LearnScale
from ..algorithms.linearized_admm import LinearizedADMM
from ..algorithms.objective_perturbation import ObjectivePerturbation
from ..algorithms.one_shot import OneShot
from ..algorithms.primal_dual import PrimalDual
from ..algorithms.resource_admm import ResourceADMM
from ..algorithms.summed import SecretSharing
from ..model.declaration import Declaration
from ..model.private import Private
from ..model.sealed import Sealed
from ..plan.agent_plan import Compiled
from ..plan.limits import check_given
from ..plan.request import Request
from ..plan.terms import Terms
from ..privacy.accounting import check_delta, check_epsilon

A = TypeVar("A", bound=Algorithm[Any, Any])

# Numbers of rounds to try: each of fewer releases has less noise.
ROUNDS = (1, 3, 10, 30, 100, 300)
_FIRST = {"each_step": 30, "once": 100}
# First numbers of rounds for simulations: Laplace noise is smaller only for few releases.
_ROUGH = {"laplace": (1, 3), "gaussian": (10, 30, 3)}
# Moves of step and penalty, in powers of three; a longer step may need a lower penalty.
_MOVES = ((1, 0), (-1, 0), (0, 1), (0, -1), (1, -1), (-1, 1))
# Clips, relative to the derived bound on a record's contribution; 1 is no clip.
CLIPS = (1.0, 0.6, 0.3, 0.2, 0.1, 0.06, 0.03, 0.02, 0.01, 0.006, 0.003, 0.002)
# Clips to try first: good clips may be hundreds of times below the bound.
COARSE = CLIPS[2::2]


# Rules whose number scales the whole penalty.
_PENALTIES = (penalties.Fixed, penalties.ResidualBalancing, penalties.Spectral)


@dataclass(frozen=True)
class Way:
    """A configuration: a method with a kind of noise and of release; other settings are open.

    Attributes
    ----------
    name : str
    algorithm : Algorithm
        Method with defaults for all parameters that are varied.
    release : {"each_step", "once"}
    mechanism : {"gaussian", "laplace"}
    """

    name: str
    algorithm: Algorithm[Any, Any]
    release: Literal["each_step", "once"]
    mechanism: Literal["gaussian", "laplace"]

    @property
    def first(self) -> Setting:
        """First setting to try, with default step and penalty."""
        rounds = _FIRST[self.release] if self.scale is None else self.scale.rounds
        return Setting(self, self.algorithm.fixed_rounds or rounds)

    @property
    def scale(self) -> LearnScale | None:
        """Learned scale of records, which determines clip and steps; None without any."""
        return getattr(self.algorithm, "scale", None)


@dataclass(frozen=True)
class Setting:
    """A configuration with values for its open settings.

    Attributes
    ----------
    way : Way
    rounds : int
    clip : float
        Clip relative to the derived bound, one of `CLIPS`.
    decaying : bool
        Whether the noise decreases from round to round like the distance to the optimum.
    step, penalty : float
        Exponents k: the plan's default step and penalty are multiplied by ``3**k``.
    falling : bool or None
        Whether step sizes decrease like the inverse root of the round, with an equal mean; None
        for the plan's default.
    """

    way: Way
    rounds: int
    clip: float = CLIPS[0]
    decaying: bool = False
    step: float = 0
    penalty: float = 0
    falling: bool | None = None

    @property
    def plain(self) -> Setting:
        """Equal setting, but with the plan's default steps and penalty."""
        return replace(self, step=0, penalty=0, falling=None)

    def neighbors(self, *, clips: bool, decays: bool, varied: tuple[str, ...]) -> list[Setting]:
        """Return settings that differ in one parameter, or in a step and its penalty together.

        Parameters
        ----------
        clips : bool
            Whether records can be clipped.
        decays : bool
            Whether noise can decrease from round to round.
        varied : tuple of str
            Varied parameters of the method: step, penalty or both.
        """
        neighbors: list[Setting] = []
        if self.way.algorithm.fixed_rounds is None:
            neighbors += [
                replace(self, rounds=rounds) for rounds in _beside(ROUNDS, self.rounds, 1)
            ]
        for i, j in _MOVES:
            if (i == 0 or "step" in varied) and (j == 0 or "penalty" in varied):
                neighbors.append(replace(self, step=self.step + i, penalty=self.penalty + j))
        if clips:
            neighbors += [replace(self, clip=clip) for clip in _beside(CLIPS, self.clip, 2)]
        if decays:
            neighbors.append(replace(self, decaying=not self.decaying))
        return neighbors


def rough(way: Way, clips: bool) -> Iterator[Setting]:
    """Yield widely spaced settings of a configuration, with default steps.

    Parameters
    ----------
    way : Way
    clips : bool
        Whether records can be clipped.
    """
    shares = (CLIPS[0], *COARSE) if clips else CLIPS[:1]
    for rounds in _ROUGH[way.mechanism]:
        yield from (Setting(way, rounds, share) for share in shares)


def _beside(values: tuple[Any, ...], value: Any, reach: int) -> Iterator[Any]:
    if value not in values:
        return
    position = values.index(value)
    for k, other in enumerate(values):
        if 0 < abs(k - position) <= reach:
            yield other


def ways(sharing: SecretSharing | None = None, colluders: int = 1) -> list[Way]:
    """Return all configurations, fast and often good ones first; a model allows some of them.

    Parameters
    ----------
    sharing : SecretSharing, optional
        Include plans with distributed noise under secure aggregation.
    colluders : int
        Collusion threshold of these methods: agents that may collude with the server.
    """
    tried: dict[str, tuple[Algorithm[Any, Any], Literal["each_step", "once"]]] = {
        "release once, central": (OneShot(), "once"),
        "one noisy gradient, central": (OneShot(), "each_step"),
        "noisy sums of gradients": (FederatedGradient(), "each_step"),
        "noisy gradients": (LinearizedADMM(), "each_step"),
        "noisy coupled gradients": (GradientADMM(), "each_step"),
        "noisy coupled steps": (ResourceADMM(), "each_step"),
        "release once, exact steps": (ADMM(), "once"),
        "release once, gradient steps": (LinearizedADMM(), "once"),
        "release once, coupled steps": (ResourceADMM(), "once"),
        "noisy exact steps": (ADMM(), "each_step"),
        # Default for nonconvex objectives in runs without noise.
        "noisy mean gradient": (FederatedAveraging(), "each_step"),
        "noisy output": (LinearizedADMM(perturb="output"), "each_step"),
        "projected noisy output": (LinearizedADMM(perturb="projected_output"), "each_step"),
        "noisy gradients over a network": (DecentralizedGradient(), "each_step"),
        "noisy ADMM over a network": (DecentralizedADMM(), "each_step"),
        "gradient tracking": (GradientTracking(), "each_step"),
        "primal-dual": (PrimalDual(), "each_step"),
        "secret points": (DPP2(), "each_step"),
    }
    kinds: tuple[Literal["gaussian", "laplace"], ...] = ("laplace", "gaussian")
    listed = [
        Way(f"{name}, {kind.capitalize()}", method, release, kind)
        for name, (method, release) in tried.items()
        for kind in kinds
    ]
    perturbed = ObjectivePerturbation()
    listed.append(Way("perturbed objective, Laplace", perturbed, "each_step", "laplace"))
    if sharing is None:
        return listed
    trusting: dict[str, Algorithm[Any, Any]] = {
        "noise split, one sum": OneShot(sharing, colluders),
        "noise split, one sum of moments": OneShot(sharing, colluders, sums="moments"),
        "noise split, summed gradients": FederatedGradient(None, sharing, colluders),
        "noise split, learned scale": FederatedGradient(
            None, sharing, colluders, scale=LearnScale()
        ),
    }
    return [
        Way(name, method, "each_step", "gaussian") for name, method in trusting.items()
    ] + listed


def scalable(algorithm: Algorithm[Any, Any]) -> tuple[str, ...]:
    """Return those names of "step" and "penalty" whose values can be multiplied by a factor."""
    return tuple(
        field.name
        for field in fields(cast(Any, algorithm))
        if field.name in ("step", "penalty")
        and _scaled(getattr(algorithm, field.name), 1.0) is not None
    )


def scaled(algorithm: A, setting: Setting) -> A:
    """Return a method whose step and penalty are multiplied by a setting's factors."""
    powers = {"step": setting.step, "penalty": setting.penalty}
    changed = {
        name: _scaled(getattr(algorithm, name), 3.0 ** powers[name])
        for name in scalable(algorithm)
        if powers[name]
    }
    if setting.falling is not None:
        typical = _typical(changed.get("step", getattr(algorithm, "step", None)), setting.rounds)
        if typical is not None:
            changed["step"] = _as_long(typical, setting)
    return replace(cast(Any, algorithm), **changed) if changed else algorithm


def _as_long(typical: float, setting: Setting) -> steps.Constant | steps.Sqrt:
    """Return a rule of constant steps of size `typical`, or of decreasing ones with this mean."""
    if not setting.falling:
        return steps.Constant(typical)
    return steps.Sqrt(typical * math.sqrt(setting.rounds) / 2)


def lengthened(
    setting: Setting, chosen: Algorithm[Any, Any], whole: Algorithm[Any, Any]
) -> Setting:
    """Return the setting with longer steps and lower penalties, in proportion to its clip.

    The clip lowers the noise and most records' contributions. With the longer steps, noise moves
    solutions as far as without the clip.

    Parameters
    ----------
    setting : Setting
    chosen : Algorithm
        Method with the parameters that a plan chose for this setting.
    whole : Algorithm
        Method with the parameters that a plan chose without a clip.
    """
    targets = {"step": 1 / setting.clip, "penalty": setting.clip}
    powers: dict[str, int] = {}
    for name in scalable(chosen):
        now, before = (_typical(getattr(rule, name), setting.rounds) for rule in (chosen, whole))
        if now and before:
            powers[name] = round(math.log(targets[name] * before / now, 3))
    return replace(setting, **powers)


def _scaled(value: object, factor: float) -> object | None:
    """Return a step size, penalty or rule multiplied by a factor; None for other values."""
    if isinstance(value, float):
        return value * factor
    if isinstance(value, steps.Constant) and value.step is not None:
        return steps.Constant(value.step * factor)
    if isinstance(value, steps.Sqrt):
        return steps.Sqrt(value.first * factor)
    if isinstance(value, _PENALTIES):
        return replace(value, penalty=value.penalty * factor)
    return None


def _typical(value: object, rounds: int) -> float | None:
    """Return a step size or penalty as a number; for decreasing steps, the mean over rounds."""
    if isinstance(value, steps.Sqrt):
        return 2 * value.first / math.sqrt(rounds)
    return level(value)


def level(value: object) -> float | None:
    """Return a step size or penalty as a number, for tables; None for rules without one."""
    if isinstance(value, steps.Constant):
        return value.step
    if isinstance(value, steps.Sqrt):
        return value.first
    if isinstance(value, _PENALTIES):
        return value.penalty
    return value if isinstance(value, float) else None


P = TypeVar("P", bound=Terms)
# Function that returns a plan for a problem and a request; the problem may be compiled already.
Planner = Callable[[Declaration, Request, Compiled | None], P]


@dataclass(frozen=True)
class SearchRequest:
    """Checked arguments of a search.

    Attributes
    ----------
    verb : str
        Name of the calling method, for messages, such as ``problem.tune``.
    plans : Request
        Settings that all plans have in common: budget, violation probability and priors.
    proxy : mapping
        Public values of private objects that declare no ``proxy=``.
    time_limit : float
        Time limit in processor seconds.
    seed : int
    verbose : bool or None
    recourse : bool
        Whether solutions are scored after recourse of every agent.
    clock : callable
        Clock of the time limit, in seconds.
    """

    verb: str
    plans: Request
    proxy: Mapping[Private | str, Sealed] = field(repr=False)
    time_limit: float
    seed: int
    verbose: bool | None
    recourse: bool = False
    clock: Callable[[], float] = time.process_time  # independent of the machine's load

    def __post_init__(self) -> None:
        check_argument("", "time_limit", self.time_limit, POSITIVE.because("how long to search"))
        check_argument("", "seed", self.seed, integer(0))
        check_argument("", "verbose", self.verbose, optional(FLAG))
        check_argument("", "recourse", self.recourse, FLAG)
        plans = self.plans
        check_given(plans.violation_probability, plans.slack_penalty)
        if not isinstance(plans.epsilon, Mapping):
            check_epsilon(plans.epsilon)
        check_delta(plans.delta)


class OutOfTime(Exception):
    """Error that ends a run whose time is over; searches and forecasts catch it."""


@dataclass(eq=False)
class PlanTrial(Generic[P]):
    """A plan with its runs on copies of the proxy data so far.

    Attributes
    ----------
    name : str
    plan : P
    setting : Setting or None
        Setting of the plan; None for plans that are not varied.
    values : dict of str to list of float
        Gap of each run, by returned iterate ("last", ...); see `Copy.gap`.
    broken : list of bool
        Whether the solution of each run violates a private constraint for the proxy data.
    """

    name: str
    plan: P
    setting: Setting | None = None
    values: dict[str, list[float]] = field(default_factory=dict)
    broken: list[bool] = field(default_factory=list)

    @property
    def runs(self) -> int:
        """Return the number of runs made with this trial's plan."""
        return len(self.judged)

    @property
    def judged(self) -> list[float]:
        """Gap of each run for the iterate that stands first in `values`.

        In final comparisons, this is the iterate that the plan returns.
        """
        return next(iter(self.values.values()), [])

    @property
    def best(self) -> str:
        """Name of the returned iterate ("last", ...) with the lowest median gap."""
        return min(self.values, key=lambda which: quantile(self.values[which], 0.5))

    @property
    def score(self) -> float:
        """Median gap of the best iterate; infinite before the first run."""
        return quantile(self.values[self.best], 0.5) if self.values else math.inf


def quantile(values: Sequence[float], q: float) -> float:
    """Return the q-quantile of values, linearly interpolated; values may be infinite."""
    ordered = sorted(values)
    position = q * (len(ordered) - 1)
    low, high = ordered[math.floor(position)], ordered[math.ceil(position)]
    return low if low == high else low + (position - math.floor(position)) * (high - low)


def surely_lower(values: Sequence[float], others: Sequence[float], error: float) -> bool:
    """Return whether values are lower than others, by a rank test (Mann and Whitney, 1947).

    Parameters
    ----------
    values, others : sequence of float
    error : float
        Largest probability of returning True if both have one distribution.
    """
    if not values or not others:
        return False
    with np.errstate(all="ignore"):  # if all values are equal, the p-value is nan
        test = mannwhitneyu(
            values, others, use_continuity=False, alternative="less", method="asymptotic"
        )
    return bool(test.pvalue < error)
