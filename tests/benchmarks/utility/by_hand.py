"""What hands found with the truth in view; `search` finds it again."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

import dpcvx as dp
from dpcvx.model.private import seal_all
from dpcvx.privacy.accounting import gaussian_multiplier, laplace_multiplier
from dpcvx.run.data import stand_ins
from dpcvx.tuning.simulation import Simulation, simulable

from .judge import Judge, held, solve_well
from .models import Model

# Runs that are simulated where they can be: medians of thirty are off by a third at times.
SIMULATED = 400

Method = Literal["data", "central", "linearized", "mean", "summed", "resource", "gradient"]


@dataclass(frozen=True)
class Setting:
    """One way to spend a budget.

    Attributes
    ----------
    kind : {"gaussian", "laplace"}
        Of noise.
    method : str
        "central" releases once. "data" is what hands do without the package: noise on every entry
        of the data, and cvxpy.
    step, penalty : float, optional
        As the method takes them.
    rounds : int
    clip : float, optional
        Of records' contributions.
    returned : {"average", "last", "tail", "weighted"}
    release : {"each_step", "once"}
    falling : bool
        Whether steps are over the root of the round.
    """

    kind: str
    method: Method
    step: float | None = None
    penalty: float | None = None
    rounds: int = 1
    clip: float | None = None
    output: Literal["average", "last", "tail", "weighted"] = "last"
    release: Literal["each_step", "once"] = "each_step"
    falling: bool = False

    def plan(self, model: Model, epsilon: float, delta: float) -> dp.Plan:
        """As the package has it.

        Raises
        ------
        dp.DpcvxError
            If the model does not allow it.
        """
        problem = model.problem if self.clip is None else clipped(model.problem, self.clip)
        return problem.plan(
            self.algorithm, mechanism=self.kind, rounds=self.rounds, epsilon=epsilon, delta=delta,
            release=self.release,
        )  # fmt: skip

    def gaps(
        self, model: Model, judge: Judge, epsilon: float, delta: float, seeds: Iterable[int]
    ) -> list[float] | None:
        """Of one run per seed; None if the model does not allow the setting."""
        if self.method == "data":
            return [_on_data(self.kind, model, judge, epsilon, delta, seed) for seed in seeds]
        try:
            plan = self.plan(model, epsilon, delta)
        except dp.DpcvxError:
            return None
        return gaps_of(plan, model, judge, seeds)

    @property
    def algorithm(self) -> dp.Algorithm:
        """With its numbers."""
        penalty, output = self.penalty, self.output
        step = dp.steps.Sqrt(self.step) if self.falling and self.step else self.step
        if self.method == "central":
            return dp.OneShot()
        if self.method == "mean":
            return dp.FederatedAveraging(step, returned=output)
        if self.method == "summed":
            return dp.FederatedGradient(step, returned=output)
        if self.method == "resource":
            return dp.ResourceADMM(penalty, step=step, randomness=0.0, returned=output)
        made = dp.GradientADMM if self.method == "gradient" else dp.LinearizedADMM
        return made(penalty=penalty, step=step, returned=output)

    def __str__(self) -> str:
        numbers = [
            f"{name} = {value:g}"
            for name in ("step", "penalty", "clip")
            if (value := getattr(self, name)) is not None
        ]
        words = [self.release, self.kind, self.method, f"T = {self.rounds}", *numbers]
        words += ["falling"] * self.falling + [self.output]
        return ", ".join(words)


def _on_data(
    kind: str, model: Model, judge: Judge, epsilon: float, delta: float, seed: int
) -> float:
    """Gap of the optimum for noisy data, one entry of which changes between neighbors."""
    rng = np.random.default_rng(seed)
    draw, multiplier = rng.normal, gaussian_multiplier
    if kind == "laplace":
        draw, multiplier = rng.laplace, laplace_multiplier
    scale = multiplier(1, epsilon, delta)
    noisy = {}
    for values in held(model):
        for private, value in values.items():
            adjacency = private.adjacency
            assert isinstance(adjacency, dp.Within)
            if adjacency.norm != "entry" and kind == "laplace":
                return math.inf  # its l1 norm is another
            noisy[private] = value + draw(scale=adjacency.radius * scale, size=value.shape)
    for variable in model.problem.variables():
        variable.save_value(np.zeros(variable.shape))
    solve_well(dp.not_private.joint_problem(model.problem, noisy))
    return judge.at({v: v.value for v in model.problem.variables()})


def gaps_of(plan: dp.Plan, model: Model, judge: Judge, seeds: Iterable[int]) -> list[float]:
    """Of runs with these seeds; of many simulated ones where that is possible.

    `tests.tuning.test_simulation` compares simulated runs with others.
    """
    if not simulable(plan):
        return [judged(plan, model, judge, seed) for seed in seeds]
    values = {private: value for own in held(model) for private, value in own.items()}
    truth = stand_ins(plan.problem, seal_all(values), "the benchmark")
    simulated = Simulation(plan.problem, truth)
    first = next(iter(seeds))
    (found,) = simulated(plan, [plan.algorithm], SIMULATED, first, lambda: None)
    return [float(value) - judge.optimum for value in found[plan.reported]]


def judged(plan: dp.Plan, model: Model, judge: Judge, seed: int) -> float:
    """Gap of one run."""
    result = plan.run(data=model.data, seed=seed, verbose=False)
    return math.inf if not result.status.solved else judge.gap(result.solution)


def clipped(problem: dp.Problem, clip: float) -> dp.Problem:
    """The same with records' contributions scaled down."""
    agents = [
        dp.Agent(a.objective, a.constraints, name=name, clip_norm=clip if a.private else None)
        for name, a in problem.named.items()
    ]
    return dp.Problem(agents, start=problem.start, coupling=problem.coupling)


def quartiles(gaps: Sequence[float]) -> tuple[float, float, float]:
    """25, 50 and 75 %; infinite where half of the runs have no answer."""
    with np.errstate(invalid="ignore"):  # between infinite gaps
        found = np.quantile(gaps, (0.25, 0.5, 0.75))
    low, middle, high = (float(q) for q in np.where(np.isnan(found), math.inf, found))
    return low, middle, high
