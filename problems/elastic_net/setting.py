"""Constants of a run by the paper's formulas, and the paper's printed values."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpcvx.privacy.two_block import TwoBlock, step_interval

from ..papers import entry

_PAPER = "chan_xie_zhao"
_TABLE_1 = entry(_PAPER, "table_1")
# Weights of the l1 norm and of the squared l2 norm.
C1, C2 = (entry(_PAPER, "weights").number(symbol) for symbol in ("c_1", "c_2"))
# The experiment's pairs (mu, beta), and Table 1's values for them: eta, L, convergence iterations.
PAIRS = tuple(zip(_TABLE_1.numbers("mu"), _TABLE_1.numbers("beta"), strict=True))
PRINTED = tuple(zip(*(_TABLE_1.numbers(key) for key in ("eta", "L", "convergence")), strict=True))
SIGMAS = entry(_PAPER, "sigmas").numbers("sigma")
_RADIUS = entry(_PAPER, "clipping").number("radius_over_mu")


@dataclass(frozen=True)
class Setting:
    """Setting of one curve of the experiment.

    Attributes
    ----------
    mu, beta : float
        Squared norm of features, and ADMM penalty.
    sigma : float
        Standard deviation of the noise in each component of x.
    step : float, optional
        Step size eta; the middle of interval (23) if omitted, as in the paper.
    """

    mu: float = 0.25
    beta: float = 0.9
    sigma: float = 0.0
    step: float | None = None

    @property
    def nu(self) -> float:
        """Smoothness of a user's loss."""
        return 2 * self.mu

    @property
    def eta(self) -> float:
        """Step size."""
        if self.step is not None:
            return self.step
        return sum(step_interval(self.nu, self.nu, 2 * C2, self.beta, 1.0)) / 2

    @property
    def radius(self) -> float:
        """Default clipping norm of a user's gradient: ``12 mu``.

        It is the gradient's norm at a residual of ``6 sqrt(mu)``, two standard deviations of the
        targets. That the targets are about normal with standard deviation ``3 sqrt(mu)`` is a
        public fact about the synthetic users.
        """
        return _RADIUS * self.mu

    @property
    def block(self) -> TwoBlock:
        """Constants that hold: losses of rank one are convex, but not strongly convex."""
        return self._block(0.0)

    @property
    def claimed(self) -> TwoBlock:
        """Constants that section 10 claims: losses that are ``2 mu``-strongly convex."""
        return self._block(self.nu)

    def _block(self, mu: float) -> TwoBlock:
        # Constants do not depend on the size of A = I and B = -I.
        one = np.eye(1)
        return TwoBlock.of(one, -one, nu=self.nu, mu=mu, mu_g=2 * C2, beta=self.beta, eta=self.eta)
