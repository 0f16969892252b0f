"""The compared methods, and their parameters at a total guarantee.

=================  =================================================================================
name               what it is
=================  =================================================================================
DPP2               As printed: step = 2 beta = 1 / penalty in the paper.
DPP2, damped       With alpha damping = 1 / 2, see `problems.nonconvex_classification.theory`.
DiaDSP             Ding et al.: gradient tracking with noise on states and directions.
PPDC               Xie et al.: the primal-dual method that they compress, not compressed;
                   eta gamma = 0.65 and eta omega = 0.05 in the paper.
Gradient descent   Decentralized, a single step after the mean of the neighbors.
=================  =================================================================================

Laplace noise gives (epsilon, 0), Gaussian noise the weaker (epsilon, `DELTA`) by the exact
accountant. Products of steps and penalties are the papers'. Step sizes, numbers of rounds,
decays, ratios of scales and the choice of the last or the mean point come from one search, see
`problems.nonconvex_classification.tuning`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import dpcvx as dp
from dpcvx.privacy.accounting import gaussian_multiplier, laplace_multiplier

from ..papers import entry

Rule = Literal["dpp2", "tracking", "primal-dual", "gradient"]
Algorithm = dp.DPP2 | dp.GradientTracking | dp.PrimalDual | dp.DecentralizedGradient

# Delta of guarantees by Gaussian noise.
DELTA = 1e-6
_PPDC = entry("ou_wang_liu_lu", "figure_3_PPDC")
# The paper's parameters of PPDC: eta, eta gamma and eta omega.
ETA = _PPDC.number("eta")
GAMMA, OMEGA = ETA * _PPDC.number("gamma"), ETA * _PPDC.number("omega")


@dataclass(frozen=True)
class Choice:
    """The tuned parameters of a method.

    Attributes
    ----------
    step : float
        Step size, alpha or eta.
    rounds : int
        Number of rounds, K + 1.
    decay : float
        Factor r of the noise from round to round.
    ratio : float
        Scale of the points' noise over the gradients' noise; unused if agents send one vector.
    report : {"last", "average"}
        Reported point: every agent's last point, or the mean of its points over the rounds.
    """

    step: float
    rounds: int
    decay: float = 1.0
    ratio: float = 1.0
    report: Literal["last", "average"] = "last"


@dataclass(frozen=True)
class Method:
    """A method with its kind of noise.

    Attributes
    ----------
    name : str
        Name of the method in figures.
    rule : {"dpp2", "tracking", "primal-dual", "gradient"}
        Algorithm: `dp.DPP2`, `dp.GradientTracking`, `dp.PrimalDual` or `dp.DecentralizedGradient`.
    gaussian : bool
        Whether noise is Gaussian, without decay, instead of Laplace noise that may decay.
    damping : float
        Product of alpha and `dpcvx.DPP2.damping`.
    """

    name: str
    rule: Rule
    gaussian: bool = False
    damping: float = 0.0

    @property
    def delta(self) -> float:
        """Return the delta of the method's guarantee."""
        return DELTA if self.gaussian else 0.0

    @property
    def double(self) -> bool:
        """Return whether points and gradients are released, with noise of two scales."""
        return self.rule in ("dpp2", "tracking")

    def algorithm(self, network: dp.networks.Network, choice: Choice) -> Algorithm:
        """Return the algorithm for a plan."""
        s = choice.step
        if self.rule == "dpp2":
            return dp.DPP2(
                network, step=s, neighbor_step=s / 2, penalty=1 / s, damping=self.damping / s,
                ratio=choice.ratio, returned=choice.report,
            )  # fmt: skip
        if self.rule == "tracking":
            return dp.GradientTracking(network, step=s, ratio=choice.ratio, returned=choice.report)
        if self.rule == "primal-dual":
            return dp.PrimalDual(
                network, step=s, penalty=GAMMA / s, dual_step=OMEGA / s, returned=choice.report
            )
        return dp.DecentralizedGradient(network, step=s, returned=choice.report)

    def ratios(self, choice: Choice) -> list[float]:
        """Return the noise multipliers of all private releases, over the first gradient's."""
        rounds = [choice.decay**t for t in range(choice.rounds)]
        if self.double:  # the first point is public
            return [r * w for r in rounds for w in (choice.ratio / choice.step, 1.0)][1:]
        return rounds

    def multiplier(self, choice: Choice, epsilon: float) -> float:
        """Return the first gradient's noise multiplier for a total of (epsilon, `delta`)."""
        find = gaussian_multiplier if self.gaussian else laplace_multiplier
        return find(1, epsilon, self.delta, self.ratios(choice))

    def mechanism(self, choice: Choice, epsilon: float) -> dp.Gaussian | dp.Laplace:
        """Return the mechanism for a plan."""
        kind = dp.Gaussian if self.gaussian else dp.Laplace
        return kind(noise_multiplier=self.multiplier(choice, epsilon), decay=choice.decay)


METHODS = (
    Method("DPP2", "dpp2"),
    Method("DPP2, damped", "dpp2", damping=0.5),
    Method("DiaDSP", "tracking"),
    Method("PPDC", "primal-dual"),
    Method("Gradient descent", "gradient"),
    Method("DPP2, Gaussian", "dpp2", gaussian=True),
    Method("DPP2, damped, Gaussian", "dpp2", gaussian=True, damping=0.5),
    Method("Gradient descent, Gaussian", "gradient", gaussian=True),
)
EPSILONS = (0.1, 1.0, 10.0, 100.0, 1e3, 1e5)
