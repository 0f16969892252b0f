"""Constants of a run, by the paper's formulas, and what the paper prints."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpcvx.privacy.two_block import TwoBlock, step_interval

# Weights of the l1 norm and of the squared l2 norm.
C1, C2 = 0.01, 0.1
# The experiment's (mu, beta), and what Table 1 prints for them: eta, L, convergence iterations.
PAIRS = ((0.25, 0.9), (0.09, 0.5), (0.0225, 0.3), (0.01, 0.15))
PRINTED = ((1.95, 0.95, 26), (4.81, 0.91, 13), (20.00, 0.85, 7), (43.30, 0.80, 6))
SIGMAS = (0.05, 0.1, 0.2, 0.5, 0.7)


@dataclass(frozen=True)
class Setting:
    """One line of the experiment.

    Attributes
    ----------
    mu, beta : float
    sigma : float
        Standard deviation of the noise in each component of x.
    step : float, optional
        eta; the middle of interval (23) if omitted, as in the paper.
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
        """Default norm to which a user's gradient is clipped: ``12 mu``.

        That is a residual of ``6 sqrt(mu)``, two standard deviations of the targets, which are
        normal with ``3 sqrt(mu)`` for many features: a public fact about how the users were made.
        """
        return 12 * self.mu

    @property
    def block(self) -> TwoBlock:
        """What holds: losses of rank one are convex, not strongly convex."""
        return self._block(0.0)

    @property
    def claimed(self) -> TwoBlock:
        """What section 10 claims: losses that are ``2 mu``-strongly convex."""
        return self._block(self.nu)

    def _block(self, mu: float) -> TwoBlock:
        # A = I and B = -I, of any size.
        one = np.eye(1)
        return TwoBlock.of(one, -one, nu=self.nu, mu=mu, mu_g=2 * C2, beta=self.beta, eta=self.eta)
