r"""Shrinkage: if a release is little more than its noise, solutions stay near the initial point.

At the public start, moved to the nearest point that suits all agents, the objective for the
released values has the gradient :math:`\tilde g = g + \xi`, with noise :math:`\xi` of covariance S.
Followed as it is, it costs :math:`\tfrac12 \operatorname{tr}(W S)` on average, where W is the
response of the problem (`dpcvx.defaults.response`). Not followed at all, it costs
:math:`\tfrac12 g' W g`. The release shows the sum of both:
:math:`E\, \tilde g' W \tilde g = g' W g + \operatorname{tr}(W S)`. Followed is the part

.. math::
    s = \min\bigl(1, 4 (1 - e)^2\bigr), \qquad
    e = \min\Bigl(1, \frac{\operatorname{tr}(W S)}{\tilde g' W \tilde g}\Bigr) ,

all of it where noise explains half or less, and nothing where it explains everything. With the
expectation in place of :math:`\tilde g' W \tilde g`, the cost of a quadratic,
:math:`\tfrac12 (1 - s)^2 g' W g + \tfrac12 s^2 \operatorname{tr}(W S)`, is at most that of the
start, :math:`\tfrac12 g' W g`, where less than all is followed. The estimator of James and Stein
(1961) has :math:`s = 1 - e`, and changes good answers as well. All is computed from released values
and costs no privacy; units of objectives and of variables cancel.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class SlopeNoise:
    """Noise in the slope of a one-time release."""

    start: Array  # shape (n,); where it is looked at: the public start, in the sets of all
    influence: Array  # shape (n, n); W
    felt: float  # ``tr(W S)``

    def explains(self, slope: Array) -> float:
        """Return the part of a noisy slope's cost that noise alone has on average; at most 1.

        Parameters
        ----------
        slope : ndarray, shape (n,)
            Linear coefficient of the objective for released data, at the initial point.
        """
        released = float(slope @ self.influence @ slope)
        return min(1.0, self.felt / released) if released > 0 else 0.0


def followed(explained: float) -> float:
    """Return s, by the part that noise explains."""
    return min(1.0, 4 * (1 - explained) ** 2)
