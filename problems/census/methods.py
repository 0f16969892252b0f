"""The methods that are compared, at one total guarantee."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import dpcvx as dp
from dpcvx.accounting import gaussian_multiplier, laplace_multiplier
from dpcvx.network import random_network
from problems.census.study import Census

DELTA = 1e-6
# Of the paper, for every agent.
D, ZETA = 10.0, 0.5
# M of Appendix J: a quarter by the losses, since rows have norm 1 at most, 1 by the regulariser.
SMOOTHNESS = 1.25


@dataclass(frozen=True)
class Budget:
    """Multipliers of the noise with which K rounds cost (epsilon, `DELTA`), whatever the method.

    Noise is the same multiple of the sensitivity in every round. (This is the place of a noise that
    falls from round to round, as the paper's does, once the mechanisms of the package have one.)

    Attributes
    ----------
    epsilon : float
    laplace, gaussian : float
    """

    epsilon: float
    laplace: float
    gaussian: float

    @classmethod
    def of(cls, epsilon: float, rounds: int) -> Budget:
        """Calibrate both."""
        return cls(
            epsilon,
            laplace_multiplier(rounds, epsilon, DELTA),
            gaussian_multiplier(rounds, epsilon, DELTA),
        )


@dataclass(frozen=True)
class Method:
    """A method with its parameters.

    Attributes
    ----------
    name : str
    rule : {"admm", "mixing", "mean", "pair", "range"}
        `dp.DecentralizedADMM`, or the aggregate of `dp.DecentralizedGradient`.
    randomness : float
        Of ADMM's weights.
    ratio : float, optional
        By which step sizes fall, from 1 - what the paper writes ``ratio^k``, with k from 0.
        If omitted, steps are constant, ``1 / M``.
    noise : {"Laplace", "Gaussian"}
    """

    name: str
    rule: Literal["admm", "mixing", "mean", "pair", "range"]
    randomness: float = 1.0
    ratio: float | None = None
    noise: Literal["Laplace", "Gaussian"] = "Laplace"

    @property
    def everyone(self) -> bool:
        """Whether it needs everyone to hear everyone, whatever the network."""
        return self.rule in ("mean", "pair")

    @property
    def random(self) -> bool:
        """Whether agents draw their weights: only then do ex-post losses differ from the worst."""
        return self.rule in ("pair", "range") or (self.rule == "admm" and self.randomness > 0)

    def plan(
        self, study: Census, edges: int, seed: int, rounds: int, budget: Budget | None
    ) -> dp.Plan:
        """The plan over a random network; no data are read.

        Parameters
        ----------
        study : Census
        edges, seed : int
            Of the network.
        rounds : int
            K.
        budget : Budget or None
            None for no noise.
        """
        names = study.problem.names
        graph = "complete" if self.everyone else random_network(names, edges, seed)
        if self.rule == "admm":
            algorithm = dp.DecentralizedADMM(graph, D=D, zeta=ZETA, randomness=self.randomness)
        else:
            step = dp.ConstantStep(1 / SMOOTHNESS)
            if self.ratio is not None:
                step = dp.GeometricStep(self.ratio, 1.0)
            algorithm = dp.DecentralizedGradient(graph, step=step, aggregate=self.rule)
        if budget is None:
            return study.problem.plan(algorithm, mechanism=None, rounds=rounds)
        mechanism = (
            dp.Gaussian(multiplier=budget.gaussian)
            if self.noise == "Gaussian"
            else dp.Laplace(multiplier=budget.laplace)
        )
        return study.problem.plan(algorithm, mechanism=mechanism, rounds=rounds, delta=DELTA)


# Steps of Algorithm 2*, and of Huang, Mitra and Vaidya, as in Example (c); of Algorithm 2 as in
# Figure D; Appendix J has a constant one.
METHODS = (
    Method("Algorithm 1", "admm"),
    Method("Algorithm 1, fixed weights", "admm", randomness=0.0),
    Method("Algorithm 2", "pair", ratio=0.95),
    Method("Algorithm 2*", "range", ratio=0.93),
    Method("Appendix J", "mean", noise="Gaussian"),
    Method("Huang, Mitra and Vaidya", "mixing", ratio=0.9),
)
# Figure D: random weights beside fixed ones.
NOISELESS = (
    Method("Algorithm 1", "admm"),
    Method("Algorithm 1, fixed weights", "admm", randomness=0.0),
    Method("Algorithm 2", "pair", ratio=0.95),
    Method("Algorithm 2, fixed weights", "mean", ratio=0.95),
)
