r"""Shrinkage: if noise explains most of a release, the solution stays near the initial point.

At the public initial point, projected onto all agents' sets, the objective for the released values
has the gradient :math:`\tilde g = g + \xi`, with noise :math:`\xi` of covariance S. A solution that
follows :math:`\tilde g` fully has the expected suboptimality
:math:`\tfrac12 \operatorname{tr}(W S)`, where W is the response of the problem
(`dpcvx.defaults.response`). The initial point has the suboptimality :math:`\tfrac12 g' W g`. The
release estimates the sum of both:
:math:`E\, \tilde g' W \tilde g = g' W g + \operatorname{tr}(W S)`. The server follows the share

.. math::
    s = \min\bigl(1, 4 (1 - e)^2\bigr), \qquad
    e = \min\Bigl(1, \frac{\operatorname{tr}(W S)}{\tilde g' W \tilde g}\Bigr) ,

of the gradient: all of it if noise explains at most half (:math:`e \le 1/2`), and nothing if noise
explains everything (:math:`e = 1`). Take the expectation in place of
:math:`\tilde g' W \tilde g`. If s < 1, the expected suboptimality for a quadratic,
:math:`\tfrac12 (1 - s)^2 g' W g + \tfrac12 s^2 \operatorname{tr}(W S)`, is then at most
:math:`\tfrac12 g' W g`, the suboptimality of the initial point. The estimator of James and Stein
(1961) has :math:`s = 1 - e`, and also shrinks accurate solutions. The shrinkage is post-processing
of released values. It does not depend on the units of objectives and variables.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class SlopeNoise:
    """Noise in the gradient of the objective for data that are released once."""

    start: Array  # shape (n,); the public initial point, projected onto all agents' sets
    influence: Array  # shape (n, n); the response W
    felt: float  # ``tr(W S)`` with the covariance S of the noise

    def explains(self, slope: Array) -> float:
        """Return e, the share of a noisy gradient that noise explains: 1 if all, 0 if nothing.

        Parameters
        ----------
        slope : ndarray, shape (n,)
            Gradient of the objective for released data, at `start`.
        """
        released = float(slope @ self.influence @ slope)
        return min(1.0, self.felt / released) if released > 0 else 0.0


def followed(explained: float) -> float:
    """Return s, the share of a noisy gradient to follow, from e, the share that noise explains."""
    return min(1.0, 4 * (1 - explained) ** 2)
