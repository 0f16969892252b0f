"""Runs of Ryu and Kim's comparison (section 6.2): methods, with objective and test error.

Budgets are stated per local update, as in the paper, or in total; either way a run's trace has the
total guarantee of its plan.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

import dpcvx as dp
from dpcvx.algorithms.penalties import PenaltyRule, as_penalty
from dpcvx.algorithms.steps import StepRule, as_step
from dpcvx.run.executors.in_process import Serial

from ..papers import entry
from .metrics import Metrics
from .sensitivity import worst_case
from .study import LogisticRegression

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Noise = Literal["ObjG", "OutG", "OutG, paper", "DP-SGD"]

_PAPER = "ryu_kim"
DELTA = entry(_PAPER, "budgets").number("delta")
# Step size of both data sets: 1 / sqrt(t).
SQRT_STEP = dp.steps.Sqrt()
# Penalty schedule (73) of the paper.
MNIST_PENALTY, FEMNIST_PENALTY = (
    dp.penalties.Growing(rule.number("c_1"), rule.number("c_2"), rule.whole("T_c"))
    for rule in (entry(_PAPER, "schedule_MNIST"), entry(_PAPER, "schedule_FEMNIST"))
)


@dataclass(frozen=True)
class Method:
    """A variant of linearized ADMM with noise, or of noisy gradient descent.

    Parameters
    ----------
    noise : {"ObjG", "OutG", "OutG, paper", "DP-SGD"}
        ``ObjG``: noisy gradients. ``OutG``: ObjG with its noise moved to the result of the local
        step, with the sensitivity derived. ``OutG, paper``: after the authors' code, not the text;
        docs/papers/ryu_kim.md cites it and names the differences. It has twice the gradient's
        sensitivity over ``penalty + 1 / step`` and, as in Huang and Gong, the step size ``1 / n``
        for n entries of W. ``DP-SGD``: gradient descent along the sum of agents' noisy gradients,
        over all records in every round, since a plan counts no sampling; the plan chooses its
        steps. ``OutG`` with one update is DP-ADMM (Huang et al., 2020) with noise that does not
        fall.
    rounds, local_updates : int
        Number of rounds T, and of local updates per round E.
    release_epsilon : float, optional
        Budget per local update, at `DELTA`, by the classical calibration: the paper's noise.
    total_epsilon : float, optional
        Total budget at `DELTA` instead, calibrated exactly. Without either budget there is no
        noise.
    penalty : float or penalty rule
        ADMM's penalty; not used by ``DP-SGD``.
    step : float or step rule
        Step size of local updates; not used by ``OutG, paper`` and ``DP-SGD``.
    note : str
        Words added to the method's label.
    """

    noise: Noise = "ObjG"
    rounds: int = 100
    local_updates: int = 1
    release_epsilon: float | None = None
    total_epsilon: float | None = None
    penalty: float | PenaltyRule = FEMNIST_PENALTY
    step: float | StepRule = SQRT_STEP
    note: str = ""

    def plan(self, study: LogisticRegression) -> dp.Plan:
        """Plan the method for a study, with its total guarantee; no data are read.

        Raises
        ------
        dp.DpcvxError
            If parameters are out of range or both budgets are given.
        """
        mechanism, budget = self._budget()
        if self.noise == "DP-SGD":
            return study.problem.plan(
                dp.FederatedGradient(), mechanism=mechanism, rounds=self.rounds, **budget
            )
        step, asserted = self.step, None
        if self.noise == "OutG, paper":
            step = dp.steps.Constant(1 / study.W.size)
            # rho_t does not decrease and eta is constant, so round 1 has the largest sensitivity.
            epsilon = math.inf if self.release_epsilon is None else self.release_epsilon
            rho = as_penalty(self.penalty).resolved(epsilon).next(1, None, math.nan, math.nan)
            delta2 = worst_case(study.dataset, study.total, 2)
            asserted = 2 * delta2 / (rho + study.W.size)
        algorithm = dp.LinearizedADMM(
            penalty=self.penalty,
            step=step,
            local_updates=self.local_updates,
            perturb="objective" if self.noise == "ObjG" else "output",
            output_sensitivity=asserted,
        )
        return study.problem.plan(algorithm, mechanism=mechanism, rounds=self.rounds, **budget)

    def _budget(self) -> tuple[dp.Gaussian | None, dict[str, Any]]:
        if self.release_epsilon is not None:
            each = dp.Gaussian(
                release_epsilon=self.release_epsilon, release_delta=DELTA, calibration="classical"
            )
            return each, {"epsilon": self.total_epsilon, "delta": DELTA}
        if self.total_epsilon is None:
            return None, {}
        return dp.Gaussian(), {"epsilon": self.total_epsilon, "delta": DELTA}

    def __str__(self) -> str:
        budget = "no noise"
        if self.release_epsilon is not None:
            budget = f"{self.release_epsilon:g} per update"
        elif self.total_epsilon is not None:
            budget = f"{self.total_epsilon:g} in total"
        note = f", {self.note}" if self.note else ""
        updates = "" if self.noise == "DP-SGD" else f", E = {self.local_updates}"
        return f"{self.noise}, T = {self.rounds}{updates}, {budget}{note}"


@dataclass(frozen=True)
class Score:
    """The objective ("cost") and test error of one model. Not private."""

    cost: float
    error: float


@dataclass(frozen=True, eq=False)
class Trace:
    """The measurements of one run. Not private.

    Attributes
    ----------
    method : Method
        The method that ran.
    seed : int
        Seed of the run.
    guarantee : dp.Guarantee
        Guarantee of the run: all its releases together.
    rounds : ndarray of int
        Rounds with measurements.
    released, averaged : tuple of Score
        Scores in `rounds` of the mean of the points that agents sent, and of the average of this
        mean over the rounds so far.
    last, average : Score
        Scores of the last and of the averaged iterate that the run returned.
    reported : {"average", "last"}
        Iterate that the run reports.
    noise : ndarray
        Expected noise magnitude (32) in `rounds`.
    """

    method: Method
    seed: int
    guarantee: dp.Guarantee
    rounds: Ints
    released: tuple[Score, ...]
    averaged: tuple[Score, ...]
    last: Score
    average: Score
    reported: str
    noise: Floats

    @property
    def label(self) -> str:
        """The method and its total guarantee, as text."""
        return f"{self.method}: {total(self.guarantee)}"


def total(guarantee: dp.Guarantee) -> str:
    """Return the total guarantee as a short text."""
    if guarantee.kind == "none":
        return "no guarantee"
    mark = "" if guarantee.kind == "worst-case" else ", asserted"
    return f"({guarantee.epsilon:.3g}, {guarantee.delta:g}) in total{mark}"


class _Watched(Serial):
    """Agents in this process, with scores of the points that they send in some rounds.

    Parameters
    ----------
    metrics : Metrics
        Functions that score a point.
    shape : (int, int)
        Shape of W, all of which is shared.
    rounds : ndarray of int
        Rounds to score.
    """

    def __init__(self, metrics: Metrics, shape: tuple[int, ...], rounds: Ints) -> None:
        super().__init__()
        self._metrics, self._shape, self._rounds = metrics, shape, rounds
        self._mean = np.zeros(shape)
        self.released: list[Score] = []
        self.averaged: list[Score] = []

    def map(self, method: str, *common: Any, each: Sequence[Any] | None = None) -> list[Any]:
        """Call the agents as `Serial` does, and score the points that they send."""
        replies = super().map(method, *common, each=each)
        if method == "act":
            t = common[0]
            z = np.mean([reply.message.z for (reply,) in replies], axis=0)
            W = z.reshape(self._shape, order="F")
            self._mean += (W - self._mean) / t
            if t in self._rounds:
                self.released.append(_score(self._metrics, W))
                self.averaged.append(_score(self._metrics, self._mean))
        return replies


def run(
    study: LogisticRegression, method: Method, seeds: Sequence[int], *, points: int = 25
) -> list[Trace]:
    """Run a method with some seeds and measure it on the way. Not private, not for release.

    Parameters
    ----------
    study : LogisticRegression
        The study, of two agents or more.
    method : Method
        The method.
    seeds : sequence of int
        Seeds of the runs.
    points : int
        Number of rounds with measurements.

    Returns
    -------
    list of Trace
        Measurements of one run per seed.

    Raises
    ------
    dp.ModelError
        If there is one agent only.
    """
    if len(study.parts) < 2:
        raise dp.ModelError(
            "A single agent sends nothing, so there is no run to follow. Divide the records among "
            "two agents or more, or call study.problem.solve."
        )
    plan, metrics = method.plan(study), Metrics.of(study)
    count = min(points, method.rounds)
    rounds = np.unique(np.rint(np.linspace(1, method.rounds, count)).astype(np.int64))
    noise = noise_magnitude(plan, study, rounds)
    traces = []
    for seed in seeds:
        if isinstance(plan.algorithm, dp.LinearizedADMM):
            agents = _Watched(metrics, study.W.shape, rounds)
            result = plan.run(seed=seed, executor=agents, verbose=False)
            released, averaged = agents.released, agents.averaged
        else:  # agents send gradients: the server has the points
            result = plan.run(seed=seed, iterates=True, verbose=False)
            path = [result.iterates[t - 1] for t in rounds]
            released = [_score(metrics, point.last[study.W]) for point in path]
            averaged = [_score(metrics, point.average[study.W]) for point in path]
        traces.append(
            Trace(
                method,
                seed,
                plan.guarantee,
                rounds,
                tuple(released),
                tuple(averaged),
                _score(metrics, result.last[study.W]),
                _score(metrics, result.average[study.W]),
                result.reported,
                noise,
            )
        )
    return traces


def noise_magnitude(plan: dp.Plan, study: LogisticRegression, rounds: Ints) -> Floats:
    """Return the expectation of (32): mean absolute noise per entry, summed over agents, updates.

    Parameters
    ----------
    plan : dp.Plan
        Plan of a `Method`.
    study : LogisticRegression
        The study that was planned.
    rounds : ndarray of int
        Rounds of interest.

    Returns
    -------
    ndarray, shape of `rounds`
        The magnitudes; zeros without noise.
    """
    algorithm, noise = plan.algorithm, plan.agents[0].noise
    if noise is None or not isinstance(algorithm, dp.LinearizedADMM):
        return np.zeros(rounds.size)
    assert algorithm.penalty is not None  # the plan has resolved it, and the step
    penalty, step = as_penalty(algorithm.penalty), as_step(algorithm.step)
    assert step is not None
    delta2 = worst_case(study.dataset, study.total, 2)
    spread = np.full(rounds.size, delta2)
    if algorithm.output_sensitivity is not None:
        spread[:] = algorithm.output_sensitivity
    elif algorithm.perturb != "objective":
        rho = [penalty.next(int(t), None, math.nan, math.nan) for t in rounds]
        spread /= np.array(rho) + [1 / step.eta(int(t)) for t in rounds]
    updates = len(study.parts) * algorithm.local_updates
    return updates * math.sqrt(2 / math.pi) * noise.multiplier * spread


def _score(metrics: Metrics, W: Floats) -> Score:
    return Score(metrics.cost(W), metrics.error(W))
