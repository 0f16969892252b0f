r"""Release once: what leaves an agent in place of its data, and the data to go on with.

Where the gradient is :math:`\nabla f(x; d) = h(x) + J d` with J constant, one noisy release of d
(or of J d) serves every round: with :math:`\tilde d` in place of d the objective is public, and
all that follows is post-processing. The cost does not grow with the number of rounds, and the noise
has the shape of the data's own image under J.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as sla
from numpy.typing import NDArray

from ..errors import PrivacyError
from ..model.normal_form import LARGEST
from ..model.private import PrivateSpec, Rows
from .certificate import Sensitivity
from .norms import ball_norm
from .second_moments import Moments, moments

Array = NDArray[np.float64]

# Jacobians with more entries are not made dense to recover data from a slope.
_DENSE = 20_000_000


@dataclass(frozen=True, eq=False)
class Publication:
    """A linear statistic of an agent's data, and surrogate data recovered from its noisy value.

    Attributes
    ----------
    private : tuple of PrivateSpec
    kind : {"data", "slope"}
        The data themselves, each object in units of its own sensitivity; or the slope J d.
    encode : csr_array, shape (s, total size of the data)
        From the data, one object after the other, to the statistic.
    sensitivity : float
        Of the statistic, in the mechanism's norm.
    """

    private: tuple[PrivateSpec, ...]
    kind: Literal["data", "slope"]
    encode: sp.csr_array
    sensitivity: float

    @property
    def size(self) -> int:
        """Number of components that are released."""
        return int(self.encode.shape[0])

    @property
    def spread(self) -> float:
        """Root of the summed variances of what is restored, for noise of variance 1."""
        if self.kind == "slope":
            return math.sqrt(self.size)
        return float(np.linalg.norm(1 / self.encode.diagonal()))

    def statistic(self, data: Sequence[Array]) -> Array:
        """What is released, but for the noise."""
        return np.asarray(self.encode @ np.concatenate(list(data)))

    def restore(self, released: Array) -> list[Array]:
        """Surrogate data: one flat array per private object, brought to what was declared of it.

        Signs, and eigenvalues of positive semidefinite matrices. A surrogate of a slope has the
        right image under J, but signs of its own.
        """
        ends = np.cumsum([spec.size for spec in self.private])[:-1]
        if self.kind == "slope":
            return np.split(_least_norm(self.encode, released), ends)
        parts = np.split(released / self.encode.diagonal(), ends)
        return [spec.admissible(part) for part, spec in zip(parts, self.private, strict=True)]

    @property
    def units(self) -> list[float]:
        """Of data that leave by themselves: what a component of 1 means in each object."""
        starts = np.cumsum([0, *(spec.size for spec in self.private[:-1])])
        return [float(unit) for unit in 1 / self.encode.diagonal()[starts]]

    def noise(self, scale: float) -> str:
        """What noise of this scale on the statistic means, in words."""
        if self.kind == "slope":
            return f"scale {scale:.6g} per component of the slope J d"
        return ", ".join(
            f"scale {scale * unit:.6g} per entry of '{spec.name}'"
            for spec, unit in zip(self.private, self.units, strict=True)
        )


# What is released once in place of an agent's data.
Statistic = Publication | Moments


def releasable(sensitivity: Sensitivity) -> bool:
    """Whether an agent's data can leave once: by themselves, by a slope, or by second moments."""
    return sensitivity.linear or moments(sensitivity, 2) is not None


def publication(sensitivity: Sensitivity, p: int, owner: str) -> Statistic | None:
    """The statistic to release once, with noise scaled to its lp sensitivity.

    For gradients that are affine in the data, the data or the slope, whichever needs less noise;
    for least squares on records, their second moments. Compared is the energy of the noise in the
    gradient, which is the squared scale times ``||J||_F^2`` for the data and times the number of
    components for the slope.

    Parameters
    ----------
    sensitivity : Sensitivity
    p : {1, 2}
    owner : str
        Name of the agent, for messages.

    Returns
    -------
    Statistic or None
        None if the gradient does not depend on the data.

    Raises
    ------
    PrivacyError
        If the objective reads its data otherwise.
    """
    if not sensitivity.linear:
        found = moments(sensitivity, p)
        if found is None:
            raise PrivacyError(
                "release='once' needs a gradient J(x) d + h(x) that is affine in the private data "
                "d, or second moments of records: cp.sum_squares(X @ w - y), "
                "scaled or not, with whole private X and y and without clip=. The objective of "
                f"agent '{owner}' has neither: {sensitivity.obstacle}. Write it like that, or use "
                "release='each step'."
            )
        return found
    J = sp.csr_array(sp.hstack(sensitivity.jacobians))
    used = np.flatnonzero(np.diff(J.indptr) > 0)
    if used.size == 0 and sensitivity.weights is None:
        return None
    specs = sensitivity.private
    own = [_reach(spec, p) for spec in specs]
    units = np.concatenate([np.full(s.size, unit) for s, unit in zip(specs, own, strict=True)])
    slope = sensitivity.bound(p).value if sensitivity.constant else 0.0
    moved = J @ sp.diags_array(units)
    largest = max(slope, float(abs(moved).max()), float(units.max()))
    if not largest <= LARGEST:
        raise PrivacyError(
            f"One change of the data of agent '{owner}', or what it does to the gradient, is as "
            f"large as {largest:.3g}. Squares of numbers beyond {LARGEST:g} are no numbers any "
            "more, so no noise can be scaled to it. Declare a smaller change, or rescale the data "
            "and the objective."
        )
    spread = float(np.sum(moved.power(2)))
    # Parts of one record change together, each by at most one unit; other objects do not.
    labels = [s.adjacency.label for s in specs if isinstance(s.adjacency, Rows)]
    together = max([1, *(labels.count(label) for label in labels)]) ** (1 / p)
    if not sensitivity.constant or spread * together**2 <= slope * slope * used.size:
        # Rounded up by more than the division by a unit rounds.
        sensitivity_of_data = together * (1 + 1e-9)
        return Publication(
            specs, "data", sp.csr_array(sp.diags_array(1 / units)), sensitivity_of_data
        )
    return Publication(specs, "slope", sp.csr_array(J[used]), slope)


def _least_norm(J: sp.csr_array, c: Array) -> Array:
    """The shortest d with ``J d`` closest to c."""
    if J.shape[0] * J.shape[1] <= _DENSE:
        return np.linalg.lstsq(J.toarray(), c)[0]
    return np.asarray(sla.lsqr(J, c, atol=1e-14, btol=1e-14, iter_lim=20 * min(J.shape))[0])


def _reach(spec: PrivateSpec, p: int) -> float:
    """Largest lp norm of a change of the data."""
    adjacency = spec.adjacency
    if isinstance(adjacency, Rows):
        return spec.row_reach(p)
    identity = sp.eye_array(spec.size, format="csr")
    return ball_norm(identity, adjacency.norm, p).value * adjacency.radius
