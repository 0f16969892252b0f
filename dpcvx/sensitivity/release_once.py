r"""One-time release: the statistic that an agent releases, and data restored from it.

If the gradient is :math:`\nabla f(x; d) = h(x) + J d` with J constant, one noisy release of d (or
of J d) serves every round. With the released :math:`\tilde d` in place of d the objective is
public, and every further computation is post-processing. The privacy loss does not grow with the
number of rounds, and the noise in the gradient is the image of the noise in d under J.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as sla
from numpy.typing import NDArray

from .._words import at_least, at_most, between, together
from ..errors import PrivacyError
from ..model.adjacency import ComplexWithin, Rows, Within
from ..model.matrices import (
    diagonal,
    exact_sums,
    product,
    reversed_rows,
    scaled_columns,
    weighted_rows,
    without_zeros,
)
from ..model.normal_form import LARGEST
from ..model.spec import PrivateSpec
from .certificate import Sensitivity
from .estimates import Estimate
from .norms import ball_norm
from .second_moments import Moments, moments, moments_of

Array = NDArray[np.float64]

# Largest number of entries of a Jacobian that is made dense to recover data from J d.
DENSE = 20_000_000
# Largest number of components of J d for which the range of J is computed; else it is everything.
_SQUARE = 600
_RANK = 1e-12
# Rounding errors of the statistic, relative to its sensitivity, that its margin of 1e-9 covers.
_ROUNDING = 2.0**-32
# Largest error of data that are recovered from an exact statistic, relative to their units.
_INVERSE = 1e-6


@dataclass(frozen=True, eq=False)
class Publication:
    """A linear statistic of an agent's data d that is released once with noise.

    Surrogate data are recovered from its noisy value. J is the Jacobian of the gradient in the
    data. If it is constant, the data add the linear coefficient J d to the gradient.

    Attributes
    ----------
    private : tuple of PrivateSpec
    kind : {"data", "shaped data", "slope", "shaped slope", "sums"}
        Kind of the statistic:

        * "data": the data themselves, each object in units of its own sensitivity.
        * "shaped data": another statistic that determines the data, shaped for less error.
        * "slope": the linear coefficient J d, with weighted components.
        * "shaped slope": another statistic that determines J d, shaped for less error.
        * "sums": weighted sums of entries, if the model depends on the data only through them;
          see `dpcvx.algorithms.weighted_sums`.
    encode : csr_array, shape (s, total size of the data)
        Matrix from the data, one object after the other, to the statistic.
    sensitivity : float
        Sensitivity of the statistic, in the mechanism's norm.
    jacobian : csr_array or None, shape (n, total size of the data)
        The Jacobian J; None if it depends on the point.
    weights : ndarray, shape (s,)
        Weights of the components of J d that depend on the data, for a "slope"; else ones.
    estimates : tuple of (slice, Estimate)
        Estimates of components of the statistic from released values and public priors.
    """

    private: tuple[PrivateSpec, ...]
    kind: Literal["data", "shaped data", "slope", "shaped slope", "sums"]
    encode: sp.csr_array
    sensitivity: float
    jacobian: sp.csr_array | None
    weights: Array
    estimates: tuple[tuple[slice, Estimate], ...] = ()

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @property
    def whole(self) -> bool:
        """Return whether the statistic determines the agent's data."""
        return self.kind in ("data", "shaped data")

    @property
    def size(self) -> int:
        """Number of released components of the statistic."""
        return int(self.encode.shape[0])

    def slope_covariance(self, variance: float, *, diagonal: bool = False) -> sp.csr_array | None:
        """Return the covariance of the error in the recovered linear coefficient J d, (n, n).

        With a prior, it is the covariance for data that follow the prior. It is None if the
        Jacobian J depends on the point.

        Parameters
        ----------
        variance : float
            Variance of the noise in one released component.
        diagonal : bool
            Whether to return the diagonal only, since full covariances may be large.
        """
        if not diagonal:
            unit = self._unit_covariance
            return None if unit is None else variance * unit
        variances = self._unit_variances
        return None if variances is None else sp.csr_array(sp.diags_array(variance * variances))

    @cached_property
    def _unit_covariance(self) -> sp.csr_array | None:
        """Covariance of the recovered linear coefficient's error for noise of variance 1."""
        back, left = self.back, self._left
        if back is None:
            return None
        if left.ndim == 2:  # a covariance matrix of all components
            return product(back @ left, back.T)
        return product(scaled_columns(back, left), back.T)

    @cached_property
    def _unit_variances(self) -> Array | None:
        """Diagonal of `_unit_covariance`, summed in the order of matrix products."""
        back, left = self.back, self._left
        if back is None:
            return None
        if left.ndim == 2:
            unit = self._unit_covariance
            return None if unit is None else unit.diagonal()
        rows, reverse = reversed_rows(back)
        entries = back.data[reverse]
        weights = entries * left[back.indices[reverse]] * entries
        return np.bincount(rows, weights, minlength=back.shape[0]).astype(float)

    @property
    def _left(self) -> Array:
        """Share of the noise's variance that remains after estimates: (s,), or (s, s) in full."""
        left = np.ones(self.size)
        for entries, estimate in self.estimates:
            if estimate.left.ndim == 2:
                return estimate.left
            left[entries] = estimate.left
        return left

    @cached_property
    def back(self) -> sp.csr_array | None:
        """Matrix from the released statistic to the linear coefficient J d, shape (n, s)."""
        J = self.jacobian
        if J is None:
            return None
        if self.kind == "data":
            return scaled_columns(J, 1 / self.encode.diagonal())
        if self.whole:
            return sp.csr_array(J @ self.decode)
        if self.kind == "shaped slope":
            return sp.csr_array(J @ np.linalg.pinv(self.encode.toarray()))
        used = np.flatnonzero(np.diff(J.indptr) > 0)
        entries = 1 / self.weights, (used, np.arange(used.size))
        back = sp.csr_array(entries, shape=(J.shape[0], used.size))
        return sp.csr_array(back @ _range_projection(self.encode))

    def statistic(self, data: Sequence[Array]) -> Array:
        """Return the statistic of the agent's data, before noise is added."""
        return self.exact(data)[0]

    def exact(self, data: Sequence[Array]) -> tuple[Array, Array]:
        """Return the statistic of the agent's data, rounded, and its rounding errors.

        A release adds both. Rounding alone could move neighboring statistics farther apart than the
        sensitivity: a float of 1e10 sensitivities has no digits below 1e-6 sensitivities.
        """
        x = np.concatenate(list(data))
        # The l1 norm of all errors of two neighbors is at most 2 * _ROUNDING sensitivities.
        return exact_sums(self.encode, x, _ROUNDING * self.sensitivity / self.size)

    def restore(self, released: Array) -> list[Array]:
        """Return surrogate data from the released statistic: one flat array per private object.

        Surrogates of data are projected onto the declared kind, such as signs or positive
        semidefinite matrices. Surrogates of J d have the released image under J, but may violate
        declared signs. Surrogates of sums lie within declared bounds.
        """
        ends = np.cumsum([spec.size for spec in self.private])[:-1]
        if self.estimates:
            released = released.copy()
        for entries, estimate in self.estimates:
            released[entries] = estimate(released[entries])
        if self.kind == "sums":
            return np.split(self._data_of_sums(released), ends)
        if not self.whole:
            return np.split(_least_norm(self.encode, released), ends)
        parts = np.split(self.unlimited(released), ends)
        return [spec.admissible(part) for part, spec in zip(parts, self.private, strict=True)]

    def around(self, released: Array, noise: Array) -> list[Array]:
        """Return surrogate data for the released values with additional noise.

        Estimates reduce this noise as they reduce the noise of the release.

        Parameters
        ----------
        released : ndarray, shape (s,)
        noise : ndarray, shape (s,)
            Noise of the size of the noise in the release.
        """
        estimated, left = released.copy(), noise.copy()
        for entries, estimate in self.estimates:
            left[entries] = estimate.remaining(released[entries]) * noise[entries]
            estimated[entries] = estimate(released[entries])
        return replace(self, estimates=()).restore(estimated + left)

    def _data_of_sums(self, sums: Array) -> Array:
        """Return data within declared bounds whose weighted sums are closest to given sums.

        Each entry is in one sum at most. All entries of a sum move from 0 in proportion to their
        weights, as far as their bounds allow.
        """
        pairs = [spec.interval for spec in self.private for _ in range(spec.size)]
        lower, upper = np.array(pairs).T
        flat = np.clip(np.zeros(lower.size), lower, upper)
        for k, value in enumerate(sums):
            row = self.encode[[k]]
            entries, weights = row.indices, row.data
            flat[entries] = _with_sum(weights, value, lower[entries], upper[entries])
        return flat

    @cached_property
    def decode(self) -> sp.csr_array:
        """Matrix from the statistic to the data, for a statistic that determines the data."""
        if self.kind == "shaped data":
            return sp.csr_array(left_inverse(self.encode.toarray()))
        return diagonal(1 / self.encode.diagonal())

    def unlimited(self, released: Array) -> Array:
        """Return the released data without a projection, one object after the other.

        The noise in these data has the mechanism's distribution, which the projection in `restore`
        would change.
        """
        return np.asarray(self.decode @ released)

    @property
    def units(self) -> list[float]:
        """Unit of each private object's entries in the statistic, if data are released.

        The unit is the object's own sensitivity.
        """
        starts = np.cumsum([0, *(spec.size for spec in self.private[:-1])])
        return [float(unit) for unit in 1 / self.encode.diagonal()[starts]]

    @property
    def sum_units(self) -> Array:
        """Unit of each released weighted sum: in this unit, the sum's largest weight is 1."""
        return 1 / np.asarray(abs(self.encode).max(axis=1).todense()).ravel()

    def moved(self, p: int) -> str:
        """Return text on the released statistic's lp change by one change of the data."""
        most, unit = self.sensitivity, ""
        if self.kind == "data":
            what = "the released data"
            if len(self.private) == 1:
                most *= self.units[0]
            else:
                unit = ", in units of the largest change of each object"
        elif self.kind == "shaped data":
            what = "the released statistic of the data"
        elif self.kind == "sums":
            what = "the released weighted sums"
        elif self.kind == "shaped slope":
            what = "the released statistic of J d"
        else:
            what = "the released coefficient J d"
            unit = "" if (self.weights == 1).all() else ", its components weighted"
        return f"one change moves {what} by at most {at_most(most)} in l{p}{unit}"

    def noise(self, scale: float, measure: str = "scale") -> str:
        """Return text on the noise of the released statistic.

        `measure` names the quantity that `scale` measures, such as a standard deviation.
        """
        if self.kind == "slope":
            sizes = _range(scale / self.weights)
            return f"{measure} {sizes} per component of the linear coefficient J d"
        if self.kind == "sums":
            names = together([f"'{spec.name}'" for spec in self.private])
            sizes = _range(scale * self.sum_units)
            return f"{measure} {sizes} per weighted sum of {names}; the model reads {self.size}"
        if self.kind == "shaped slope":
            covariance = self.slope_covariance(scale * scale)
            assert covariance is not None
            spread = np.sqrt(covariance.diagonal())
            return (
                f"{measure} {_range(spread[spread > 0])} per component of the linear coefficient "
                "J d, correlated so that the optimum moves little"
            )
        if self.kind == "shaped data":
            spread = scale * np.linalg.norm(self.decode.toarray(), axis=1)
            ends = np.cumsum([spec.size for spec in self.private])[:-1]
            pairs = zip(self.private, np.split(spread, ends), strict=True)
            sizes = ", ".join(
                f"{_range(sizes_of)} per entry of '{spec.name}'" for spec, sizes_of in pairs
            )
            return f"{measure} {sizes}, correlated so that margins cost little"
        return ", ".join(
            f"{measure} {at_least(scale * unit)} per entry of '{spec.name}'"
            for spec, unit in zip(self.private, self.units, strict=True)
        )


# A statistic that an agent releases once in place of its data.
Statistic = Publication | Moments


@dataclass(frozen=True, eq=False)
class Once:
    """Description of a statistic that an agent releases once, in the form of a request.

    Attributes
    ----------
    kind : {"data", "slope", "shaped slope", "sums", "second moments"}
        Kind of the statistic; see `Publication` and `Moments`.
    weights : ndarray or None
        Weights of the components of a linear coefficient.
    encode : csr_array or None
        Matrix from the data to a statistic that is neither data nor linear coefficient; with
        "data", to a statistic that determines the data.
    """

    kind: Literal["data", "slope", "shaped slope", "sums", "second moments"]
    weights: Array | None
    encode: sp.csr_array | None

    @staticmethod
    def of(statistic: Statistic) -> Once:
        """Return the description of a statistic for a request, without its estimates."""
        if not isinstance(statistic, Publication):
            return Once("second moments", None, None)
        kind = statistic.kind
        weights = statistic.weights if kind == "slope" else None
        encode = statistic.encode if kind in ("shaped data", "shaped slope", "sums") else None
        return Once("data" if kind == "shaped data" else kind, weights, encode)


def releasable(sensitivity: Sensitivity) -> bool:
    """Return whether an agent's data can be released once: as data, J d, or second moments."""
    return sensitivity.linear or moments(sensitivity, 2) is not None


def by_matrix(
    sensitivity: Sensitivity,
    p: int,
    J: sp.csr_array,
    encode: Array,
    kind: Literal["shaped data", "shaped slope", "sums"] = "shaped slope",
) -> Publication:
    """Return the one-time release of the linear statistic `encode @ d` of the data d."""
    ends = np.cumsum([spec.size for spec in sensitivity.private])[:-1]
    parts = [sp.csr_array(part) for part in np.split(encode, ends, axis=1)]
    level, ones = sensitivity.moved(parts, p), np.ones(encode.shape[0])
    matrix = sp.csr_array(encode)
    return Publication(sensitivity.private, kind, matrix, level, J, ones)


def weighted(sensitivity: Sensitivity, p: int, J: sp.csr_array, weights: Array) -> Publication:
    """Return the one-time release of the linear coefficient J d with weighted components."""
    used = np.flatnonzero(np.diff(J.indptr) > 0)
    scale = np.zeros(J.shape[0])
    scale[used] = weights
    level = sensitivity.bound(p, None if (weights == 1).all() else scale).value
    encode = weighted_rows(J[used], weights)
    return Publication(sensitivity.private, "slope", encode, level, J, weights)


def moves_one(statistic: Statistic) -> bool:
    """Return whether one change of the data moves at most one component of a statistic.

    This holds for a statistic of one component. Otherwise one change has to be a change of one
    entry of one object, and no entry may be in two components. All other components are then
    computed from equal numbers in equal order, so they are bitwise equal.
    """
    if not isinstance(statistic, Publication):
        return False
    if statistic.size == 1:
        return True
    if any(spec.is_complex for spec in statistic.private):
        return False  # the real and the imaginary part of an entry change together
    changes = [(spec.size, spec.adjacency) for spec in statistic.private]
    by_entry = all(
        isinstance(change, Within) and (size == 1 or change.norm == "entry")
        for size, change in changes
    )
    columns = np.diff(sp.csc_array(without_zeros(statistic.encode)).indptr)
    return by_entry and bool(columns.max(initial=0) <= 1)


def restated(
    sensitivity: Sensitivity, p: int, owner: str, once: Once, *, single: bool = False
) -> Statistic:
    """Return the statistic that a request describes, with the sensitivity derived again.

    Parameters
    ----------
    sensitivity : Sensitivity
    p : {1, 2}
        Norm of the mechanism.
    owner : str
        Name of the agent, for messages.
    once : Once
        Description of the statistic; its estimates are not used.
    single : bool
        Whether the noise protects only against changes of a single component (staircase noise).

    Raises
    ------
    PrivacyError
        If the agent's data have no such statistic, or one change moves several components of it.
    """
    statistic, kind = _requested(sensitivity, p, owner, once), once.kind
    if statistic is None or not 0 < statistic.sensitivity <= LARGEST:
        raise PrivacyError(
            f"Agent '{owner}' would release {kind} once, and dpcvx derives no bound on the "
            "effect of one change of its data."
        )
    if single and not moves_one(statistic):
        raise PrivacyError(
            f"Staircase noise protects one number, but one change of the data of agent '{owner}' "
            f"moves several released numbers ({kind}). Declare adjacency=dp.Within(radius), by "
            "which entries change one at a time, or write mechanism='laplace'."
        )
    return statistic


def _requested(sensitivity: Sensitivity, p: int, owner: str, once: Once) -> Statistic | None:
    """Return the statistic that a request describes; None if the data have none like it."""
    J, kind = sensitivity.jacobian, once.kind
    how = once.weights if once.encode is None else once.encode.toarray()
    if kind == "second moments":
        statistic = moments(sensitivity, p)
        if statistic is None and not sensitivity.records and not J.nnz:
            # A model that is solved as written needs no gradient.
            return moments_of(sensitivity.private, p)
        return statistic
    if kind == "data" and once.encode is None and sensitivity.linear:
        return whole_data(sensitivity, p, owner)
    if any(spec.is_complex for spec in sensitivity.private):
        return None  # real and imaginary parts change together, which other bounds omit
    if not sensitivity.constant or how is None or not np.isfinite(how).all():
        return None
    if kind == "slope":
        used = int(np.count_nonzero(np.diff(J.indptr)))
        fits = how.shape == (used,) and (how > 0).all()
        return weighted(sensitivity, p, J, how) if fits else None
    if how.shape[1:] != J.shape[1:]:
        return None
    if kind == "shaped slope":
        return by_matrix(sensitivity, p, J, how)
    if kind == "sums" and _disjoint_sums(how):
        return by_matrix(sensitivity, p, J, how, "sums")
    if kind == "data" and _tells_all(how):
        return by_matrix(sensitivity, p, J, how, "shaped data")
    return None


def _disjoint_sums(matrix: Array) -> bool:
    """Return whether every row sums entries, and no entry is in two sums."""
    used = matrix != 0
    return bool(used.any(axis=1).all() and (used.sum(axis=0) <= 1).all())


def _with_sum(weights: Array, value: float, lower: Array, upper: Array) -> Array:
    """Return the vector ``clip(t w, lower, upper)`` with the weighted sum closest to a value.

    Here w are the weights, and t is a number.
    """

    def entries(t: float) -> Array:
        return np.clip(t * weights, lower, upper)

    if np.isinf(lower).all() and np.isinf(upper).all():
        return entries(value / float(weights @ weights))
    low, high = -1.0, 1.0
    while weights @ entries(low) > value and low > -LARGEST:
        low *= 2
    while weights @ entries(high) < value and high < LARGEST:
        high *= 2
    for _ in range(200):  # the sum does not fall with t
        middle = (low + high) / 2
        low, high = (middle, high) if weights @ entries(middle) < value else (low, middle)
    return entries(high)


def left_inverse(matrix: Array) -> Array:
    """Return the pseudoinverse of a matrix of full column rank, accurate for any column scales.

    Without scaling, a pseudoinverse drops columns that are small next to others.

    Parameters
    ----------
    matrix : ndarray, shape (s, n)
    """
    lengths = np.linalg.norm(matrix, axis=0)
    lengths = np.where(lengths > 0, lengths, 1.0)
    return np.linalg.pinv(matrix / lengths) / lengths[:, None]


def _tells_all(matrix: Array) -> bool:
    """Return whether a matrix has full column rank, so its statistic determines the data."""
    lengths = np.linalg.norm(matrix, axis=0)
    if not (lengths > 0).all():
        return False
    recovered = lengths[:, None] * (left_inverse(matrix) @ matrix) / lengths
    return bool(np.abs(recovered - np.eye(lengths.size)).max() <= _INVERSE)


def whole_data(sensitivity: Sensitivity, p: int, owner: str) -> Publication:
    """Return the one-time release of an agent's data, each object in units of its sensitivity."""
    specs, J = sensitivity.private, sensitivity.jacobian
    reaches = [reach_of(spec, p) for spec in specs]
    units = np.concatenate([np.full(s.size, unit) for s, unit in zip(specs, reaches, strict=True)])
    plain = sensitivity.bound(p).value if sensitivity.constant else 0.0
    felt = float(np.abs(J.data * units[J.indices]).max(initial=0.0))
    largest = max(plain, felt, float(units.max()))
    if not largest <= LARGEST:
        raise PrivacyError(
            f"One change of the data of agent '{owner}', or what it does to the gradient, is as "
            f"large as {largest:.3g}. Squares of numbers beyond {LARGEST:g} overflow, so no noise "
            "can be scaled to it. Declare a smaller change, or rescale the data and the "
            "objective."
        )
    # In these units, one change of one object has norm 1 at most. Parts of one record change
    # together, and so do records of one person, each by at most one unit and no two in one
    # component. Other objects do not change together.
    moved: dict[str, int] = {}
    for spec in specs:
        if isinstance(spec.adjacency, Rows):
            rows = spec.adjacency.moved_rows(spec.shape[0])
            moved[spec.adjacency.label] = moved.get(spec.adjacency.label, 0) + rows
    together = max([1, *moved.values()]) ** (1 / p)
    # Rounded up by more than the rounding of a division by a unit.
    encode, level = diagonal(1 / units), together * (1 + 1e-9)
    constant = J if sensitivity.constant else None
    return Publication(specs, "data", encode, level, constant, np.ones(units.size))


def _range(values: Array) -> str:
    return between(float(values.min()), float(values.max()))


def _range_projection(J: sp.csr_array) -> Array | sp.csr_array:
    """Return the projection onto the range of J.

    Restored data keep only this part of the noise.
    """
    everything = sp.eye_array(J.shape[0], format="csr")
    if J.shape[0] > _SQUARE:
        return everything
    squares = product(J, J.T).toarray()
    # Rows are scaled to length 1, so that small rows count.
    lengths = np.sqrt(squares.diagonal())
    if np.linalg.eigvalsh(squares / np.outer(lengths, lengths))[0] > _RANK:
        return everything
    values, vectors = np.linalg.eigh(squares)
    spanning = vectors[:, values > _RANK * values[-1]]
    return spanning @ spanning.T


def _least_norm(J: sp.csr_array, c: Array) -> Array:
    """Return the vector d of least norm such that ``J d`` is closest to c."""
    if J.shape[0] * J.shape[1] <= DENSE:
        return np.linalg.lstsq(J.toarray(), c)[0]
    return np.asarray(sla.lsqr(J, c, atol=1e-14, btol=1e-14, iter_lim=20 * min(J.shape))[0])


def reach_of(spec: PrivateSpec, p: int) -> float:
    """Return the largest lp norm of one change of the data."""
    adjacency = spec.adjacency
    if isinstance(adjacency, Rows):
        return spec.row_reach(p)
    if isinstance(adjacency, ComplexWithin):
        real = spec.shape[0] if adjacency.hermitian else 0
        return adjacency.reach(real, (spec.size - real) // 2, p)
    if adjacency.norm in ("entry", 1):
        return adjacency.radius
    identity = sp.eye_array(spec.size, format="csr")
    return ball_norm(identity, adjacency.norm, p).value * adjacency.radius
