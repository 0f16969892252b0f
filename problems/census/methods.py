"""The compared methods, all at one total guarantee.

====================  ==============================================================================
name                  what it is
====================  ==============================================================================
Dual perturbation     Zhang and Zhu (2017) put noise into the multipliers before they are used. At
                      first order that is noise in x: Algorithm 1 with fixed weights.
Penalty perturbation  Zhang, Khalili and Liu (2018) let the penalties grow as well, by 1.02 a round,
                      so that later steps are shorter, and their noise smaller. At first order.
Output perturbation   Ding et al. (2019) add noise to exact minimizers: exact steps, fixed weights.
Random coordinates    (72): one entry, drawn anew and the same for all agents, moves in a round.
====================  ==============================================================================

The first two with exact steps are comparators of their own, `problems.census.comparators`.
All others are the paper's, except the one of Huang, Mitra and Vaidya (2015). In Appendix J, agents
learn sums only. D and zeta are the paper's values for Algorithm 1, in every ADMM. The paper gives
penalty perturbation half the number of neighbors in place of half of D: this depends on the network
and does as well as a D of 4.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import dpcvx as dp
from dpcvx.privacy.accounting import Composition, gaussian_multiplier, laplace_multiplier
from dpcvx.privacy.mechanism import Calibrated

from ..papers import entry
from .study import Census

Noise = Literal["Laplace", "Gaussian"]

DELTA = 1e-6
_PAPER = "xiao_ye_devadas"
# The paper's D and zeta, for every agent.
D, ZETA = (entry(_PAPER, "admm").number(symbol) for symbol in ("D", "zeta"))
# Factor by which the penalty grows, and the paper's noise falls, from round to round.
RATE = entry(_PAPER, "noise").number("rate")
# Ratios of geometric step sizes: Algorithm 2 in Figure D, Algorithm 2*, and the paper's [45].
PAIR_RATIO = entry(_PAPER, "steps_of_figure_D").number("ratio")
RANGE_RATIO = entry(_PAPER, "steps").number("starred")
HUANG_RATIO = entry(_PAPER, "steps").number("huang")
# Smoothness constant M of Appendix J: a quarter from the losses, since rows have norm at most 1,
# plus 1 from the regularizer.
# It bounds the curvature along single coordinates as well.
SMOOTHNESS = 1.25


@dataclass(frozen=True)
class Budget:
    """The noise that makes K rounds cost (epsilon, `DELTA`), whatever the method.

    Attributes
    ----------
    epsilon : float
        Total epsilon of all rounds.
    noise : {"Laplace", "Gaussian"}
        Kind of noise.
    multiplier : float
        Noise multiplier of the first round: noise over sensitivity.
    decay : float
        Factor of the multiplier from round to round: 1 for constant noise; the paper's is
        1 / `RATE`.
    """

    epsilon: float
    noise: Noise
    multiplier: float
    decay: float = 1.0

    @classmethod
    def of(
        cls, epsilon: float, rounds: int, noise: Noise = "Laplace", decay: float = 1.0
    ) -> Budget:
        """Calibrate the noise multiplier so that `rounds` rounds cost (epsilon, `DELTA`)."""
        multiplier = laplace_multiplier if noise == "Laplace" else gaussian_multiplier
        if decay == 1:
            return cls(epsilon, noise, multiplier(rounds, epsilon, DELTA))
        ratios = [decay**t for t in range(rounds)]
        return cls(epsilon, noise, multiplier(1, epsilon, DELTA, ratios), decay)

    @property
    def mechanism(self) -> dp.Laplace | dp.Gaussian:
        """Return the mechanism for a plan."""
        kind = dp.Laplace if self.noise == "Laplace" else dp.Gaussian
        return kind(noise_multiplier=self.multiplier, decay=self.decay)

    def spent(self, rounds: int) -> Composition:
        """Return an agent's privacy loss in the first rounds."""
        return Calibrated(self.mechanism, self.multiplier).composed(rounds)


@dataclass(frozen=True)
class Method:
    """A method with its parameters.

    Attributes
    ----------
    name : str
        Name of the method in figures.
    rule : {"admm", "mixing", "mean", "pair", "range"}
        `dp.DecentralizedADMM`, or the aggregate of `dp.DecentralizedGradient`; ``mean`` is
        `dp.FederatedAveraging` if all entries move.
    randomness : float
        Randomness of ADMM's weights; 0 for fixed ones.
    exact : bool
        Whether its steps are minimizers instead of linearized ones.
    growth : float
        Factor by which ADMM's D grows in each round.
    ratio : float, optional
        Ratio of the geometric step sizes ``ratio^k``, with k from 0.
        If omitted, steps are constant, ``1 / M``.
    coordinates : int, optional
        Number of entries that move in a round; all if omitted.
    """

    name: str
    rule: Literal["admm", "mixing", "mean", "pair", "range"]
    randomness: float = 1.0
    exact: bool = False
    growth: float = 1.0
    ratio: float | None = None
    coordinates: int | None = None

    @property
    def everyone(self) -> bool:
        """Return whether every agent needs the points of all others, in any network."""
        return self.rule == "pair" or self.coordinates is not None

    @property
    def random(self) -> bool:
        """Return whether agents draw their weights: only then do ex-post losses vary."""
        return self.rule in ("pair", "range") or (self.rule == "admm" and self.randomness > 0)

    @property
    def measured(self) -> bool:
        """Return whether ex-post losses are known: weights are random and steps linearized."""
        return self.random and not self.exact

    def plan(
        self, study: Census, edges: int, seed: int, rounds: int, budget: Budget | None
    ) -> dp.Plan:
        """Plan the method over a random network; no data are read.

        Parameters
        ----------
        study : Census
            The problem.
        edges, seed : int
            Number of edges and seed of the network.
        rounds : int
            Number of rounds, K.
        budget : Budget or None
            The noise; None for no noise.
        """
        algorithm = self._algorithm(study, edges, seed)
        if budget is None:
            return study.problem.plan(algorithm, mechanism=None, rounds=rounds)
        return study.problem.plan(algorithm, mechanism=budget.mechanism, rounds=rounds, delta=DELTA)

    def _algorithm(
        self, study: Census, edges: int, seed: int
    ) -> dp.DecentralizedADMM | dp.DecentralizedGradient | dp.FederatedAveraging:
        step = dp.steps.Constant(1 / SMOOTHNESS)
        if self.ratio is not None:
            step = dp.steps.Geometric(self.ratio, 1.0)
        if self.rule == "mean" and self.coordinates is None:
            return dp.FederatedAveraging(step)
        names = study.problem.names
        graph = "complete" if self.everyone else dp.networks.random(names, edges, seed)
        if self.rule == "admm":
            return dp.DecentralizedADMM(
                graph, step=1 / D, penalty=ZETA, randomness=self.randomness, growth=self.growth,
                exact=self.exact,
            )  # fmt: skip
        return dp.DecentralizedGradient(
            graph, step=step, aggregate=self.rule, coordinates=self.coordinates
        )


# Algorithm 2* and Huang, Mitra and Vaidya have the step sizes of Example (c), Algorithm 2 those in
# Figure D; Appendices J and K have constant step sizes.
METHODS = (
    Method("Algorithm 1", "admm"),
    Method("Algorithm 1, exact steps", "admm", exact=True),
    Method("Dual perturbation (fixed weights)", "admm", randomness=0.0),
    Method("Penalty perturbation (growing D)", "admm", randomness=0.0, growth=RATE),
    Method("Output perturbation (exact steps)", "admm", randomness=0.0, exact=True),
    Method("Algorithm 2", "pair", ratio=PAIR_RATIO),
    Method("Algorithm 2*", "range", ratio=RANGE_RATIO),
    Method("Appendix J", "mean"),
    Method("Random coordinates", "mean", coordinates=1),
    Method("Huang, Mitra and Vaidya", "mixing", ratio=HUANG_RATIO),
)
# Methods of Figure D: random weights beside fixed ones, exact steps ("without first-order
# approximation") beside linearized ones.
NOISELESS = (
    Method("Algorithm 1", "admm"),
    Method("Algorithm 1, fixed weights", "admm", randomness=0.0),
    Method("Algorithm 1, exact steps", "admm", exact=True),
    Method("Conventional ADMM (exact, fixed)", "admm", randomness=0.0, exact=True),
    Method("Algorithm 2", "pair", ratio=PAIR_RATIO),
    Method("Algorithm 2, fixed weights", "mean", ratio=PAIR_RATIO),
)


def named(*names: str) -> tuple[Method, ...]:
    """Return the methods of these names, in the order of `METHODS`."""
    return tuple(method for method in METHODS if method.name in names)
