r"""Release once: what leaves an agent in place of its data, and the data to go on with.

Where the gradient is :math:`\nabla f(x; d) = h(x) + J d` with J constant, one noisy release of d
(or of J d) serves every round: with :math:`\tilde d` in place of d the objective is public, and
all that follows is post-processing. The cost does not grow with the number of rounds, and the noise
has the shape of the data's own image under J.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as sla
from numpy.typing import NDArray

from ..errors import PrivacyError
from ..model.adjacency import Rows
from ..model.expected import Expectation
from ..model.matrices import product, without_zeros
from ..model.normal_form import LARGEST
from ..model.spec import PrivateSpec
from .certificate import Sensitivity
from .data_shape import Stake, data_shape
from .estimates import (
    Entrywise,
    Estimate,
    JamesStein,
    Linear,
    across,
    dimension_of,
    pull_of,
    weights_of,
)
from .norms import ball_norm
from .response import Response
from .second_moments import Moments, has_intercept, moments
from .shape import best_shape

Array = NDArray[np.float64]

# Jacobians with more entries are not made dense to recover data from a slope.
_DENSE = 20_000_000
# The range of slopes of more components is not looked for: it is taken to be everything.
_SQUARE = 600
_RANK = 1e-12
# Smaller weights would be none in some units.
_LEAST = 1e-100
# The data leave where it makes no difference: they can be read.
_TIE = 1e-6
_INTERCEPT = (
    ", and an intercept is added to X @ w. Put a column of ones into X instead, with "
    "cp.hstack([w, b]) in place of w, and declare dp.Rows with the larger bound of such rows"
)
# Noise is shaped where that is predicted to leave at most this part of the gap.
_WORTH = 0.95


@dataclass(frozen=True, eq=False)
class Publication:
    """A linear statistic of an agent's data, and surrogate data recovered from its noisy value.

    Attributes
    ----------
    private : tuple of PrivateSpec
    kind : {"data", "shaped data", "slope", "shaped slope"}
        The data themselves, each object in units of its own sensitivity; a statistic that tells
        them all, see `data_shape`; the slope J d, its components weighted; or another statistic
        that tells the slope, see `shape`.
    encode : csr_array, shape (s, total size of the data)
        From the data, one object after the other, to the statistic.
    sensitivity : float
        Of the statistic, in the mechanism's norm.
    jacobian : csr_array or None, shape (n, total size of the data)
        J; None where it depends on the point.
    weights : ndarray, shape (s,)
        Of the components that the data move, in the slope; else ones.
    estimates : tuple of (slice, Estimate)
        What public expectations make of components of the released statistic.
    """

    private: tuple[PrivateSpec, ...]
    kind: Literal["data", "shaped data", "slope", "shaped slope"]
    encode: sp.csr_array
    sensitivity: float
    jacobian: sp.csr_array | None
    weights: Array
    estimates: tuple[tuple[slice, Estimate], ...] = ()

    @property
    def whole(self) -> bool:
        """Whether it tells the data themselves."""
        return self.kind in ("data", "shaped data")

    @property
    def size(self) -> int:
        """Number of components that are released."""
        return int(self.encode.shape[0])

    def slope_covariance(self, variance: float) -> sp.csr_array | None:
        """Covariance of the error in the slope of the surrogate objective, shape (n, n).

        Where something is publicly expected, for data that are as expected. None where it depends
        on the point.

        Parameters
        ----------
        variance : float
            Of the noise in one component of the statistic.
        """
        back = self._back
        if back is None:
            return None
        left = np.ones(self.size)
        for place, estimate in self.estimates:
            if estimate.left.ndim == 2:  # of all components
                return variance * product(back @ estimate.left, back.T)
            left[place] = estimate.left
        return variance * product(back @ sp.diags_array(left), back.T)

    @property
    def _back(self) -> sp.csr_array | None:
        """From the statistic to the slope of what is restored, shape (n, s)."""
        J = self.jacobian
        if J is None:
            return None
        if self.whole:
            return sp.csr_array(J @ self.decode)
        if self.kind == "shaped slope":
            return sp.csr_array(J @ np.linalg.pinv(self.encode.toarray()))
        used = np.flatnonzero(np.diff(J.indptr) > 0)
        entries = 1 / self.weights, (used, np.arange(used.size))
        back = sp.csr_array(entries, shape=(J.shape[0], used.size))
        return sp.csr_array(back @ _range_projection(self.encode))

    def statistic(self, data: Sequence[Array]) -> Array:
        """What is released, but for the noise."""
        return np.asarray(self.encode @ np.concatenate(list(data)))

    def restore(self, released: Array) -> list[Array]:
        """Surrogate data: one flat array per private object, brought to what was declared of it.

        Signs, and eigenvalues of positive semidefinite matrices. A surrogate of a slope, shaped or
        not, has the right image under J, but signs of its own.
        """
        ends = np.cumsum([spec.size for spec in self.private])[:-1]
        if self.estimates:
            released = released.copy()
        for place, estimate in self.estimates:
            released[place] = estimate(released[place])
        if not self.whole:
            return np.split(_least_norm(self.encode, released), ends)
        parts = np.split(self.unlimited(released), ends)
        return [spec.admissible(part) for part, spec in zip(parts, self.private, strict=True)]

    @property
    def decode(self) -> sp.csr_array:
        """Of what tells the data: from the statistic back to them."""
        if self.kind == "shaped data":
            return sp.csr_array(np.linalg.pinv(self.encode.toarray()))
        return sp.csr_array(sp.diags_array(1 / self.encode.diagonal()))

    def unlimited(self, released: Array) -> Array:
        """The data as they left, one object after the other, whatever was declared of them.

        Its noise has the law that it was drawn from. That of `restore` has not.
        """
        return np.asarray(self.decode @ released)

    @property
    def units(self) -> list[float]:
        """Of data that leave by themselves: what a component of 1 means in each object."""
        starts = np.cumsum([0, *(spec.size for spec in self.private[:-1])])
        return [float(unit) for unit in 1 / self.encode.diagonal()[starts]]

    def informed(
        self,
        expected: Sequence[Expectation | None],
        influence: Array | None,
        variance: float,
        p: int,
    ) -> Publication | None:
        """With estimates by what is publicly expected; None where nothing is known to be good.

        Parameters
        ----------
        expected : sequence of (Expectation or None)
            Of each private object.
        influence : ndarray, shape (n, n), or None
            See `Response.influence`.
        variance : float
            Of the noise in one component of the statistic.
        p : {1, 2}
            Norm of the mechanism.
        """
        back = self._back
        if back is None:
            return None
        deviation = math.sqrt(variance)
        if self.kind == "data":
            return replace(
                self, estimates=tuple(self._by_object(expected, back, influence, deviation, p))
            )
        sizes = [spec.size for spec in self.private]
        pairs = list(zip(expected, sizes, strict=True))
        mean = np.concatenate([np.zeros(n) if one is None else one.mean for one, n in pairs])
        center = np.asarray(self.encode @ mean)
        back = back.toarray()
        if all(one is not None and one.spread is None for one in expected):
            fitted = all(one is not None and one.fitted for one in expected)
            found = _james_stein(center, back, influence, deviation, fitted)
            return self if found is None else replace(self, estimates=((slice(None), found),))
        spreads = [np.full(n, np.inf) if one is None else one.spread for one, n in pairs]
        if any(spread is None for spread in spreads):
            return None
        spread = np.concatenate([one for one in spreads if one is not None])
        pull = pull_of(self.encode.toarray(), spread, variance)
        found = Linear(center, pull, deviation, weights_of(back, influence))
        return replace(self, estimates=((slice(None), found),))

    def _by_object(
        self,
        expected: Sequence[Expectation | None],
        back: sp.csr_array,
        influence: Array | None,
        deviation: float,
        p: int,
    ) -> Iterator[tuple[slice, Estimate]]:
        """Of data that leave by themselves; parameters as of `informed`."""
        ends = np.cumsum([spec.size for spec in self.private])
        scale, columns = self.encode.diagonal(), sp.csc_array(back)
        for one, end, spec in zip(expected, ends, self.private, strict=True):
            if one is None:
                continue
            place = slice(int(end) - spec.size, int(end))
            mean, own = one.mean * scale[place], sp.csr_array(columns[:, place])
            if one.spread is not None:
                yield place, Entrywise(mean, one.spread * scale[place], deviation, p == 1)
                continue
            if math.prod(own.shape) > _DENSE:
                continue
            found = _james_stein(mean, own.toarray(), influence, deviation, one.fitted)
            if found is not None:
                yield place, found

    def told_moves(self) -> tuple[Array | None, Array | None]:
        """Targets and figures of estimates next to public proxy data, for who makes them anew.

        Targets of shape (s,), and per estimate its first component, the one behind its last, the
        effective dimension, and 1 if the level is fitted; None without estimates.
        """
        targets, figures = np.zeros(self.size), []
        for place, one in self.estimates:
            if isinstance(one, JamesStein):
                start, stop, _ = place.indices(self.size)
                targets[start:stop] = one.mean
                figures.append([start, stop, one.dimension, one.fitted])
        return (targets, np.array(figures, dtype=float)) if figures else (None, None)

    def with_moves(self, targets: Array, figures: Array, variance: float) -> Publication | None:
        """The same with estimates that somebody else chose: what they do is post-processing.

        Parameters
        ----------
        targets, figures : ndarray
            As `told_moves` tells them; None is returned if they do not fit.
        variance : float
            Of the noise in one component of the statistic.
        """
        finite = np.isfinite(targets).all() and np.isfinite(figures).all()
        if targets.shape != (self.size,) or figures.shape[1:] != (4,) or not finite:
            return None
        found: list[tuple[slice, Estimate]] = []
        for start, stop, dimension, fitted in figures.tolist():
            place = slice(int(start), int(stop))
            if not 0 <= place.start < place.stop <= self.size or dimension <= 2:
                return None
            mean = targets[place]
            found.append((place, JamesStein(mean, math.sqrt(variance), dimension, bool(fitted))))
        return replace(self, estimates=tuple(found))

    def noise(self, scale: float) -> str:
        """What noise of this scale on the statistic means, in words."""
        if self.kind == "slope":
            return f"scale {_range(scale / self.weights)} per component of the slope J d"
        if self.kind == "shaped slope":
            covariance = self.slope_covariance(scale * scale)
            assert covariance is not None
            spread = np.sqrt(covariance.diagonal())
            return (
                f"scale {_range(spread[spread > 0])} per component of the slope J d, correlated as "
                "the optimum gives way to it"
            )
        if self.kind == "shaped data":
            spread = scale * np.linalg.norm(self.decode.toarray(), axis=1)
            ends = np.cumsum([spec.size for spec in self.private])[:-1]
            pairs = zip(self.private, np.split(spread, ends), strict=True)
            sizes = ", ".join(f"{_range(own)} per entry of '{spec.name}'" for spec, own in pairs)
            return f"scale {sizes}, correlated so that margins cost little"
        return ", ".join(
            f"scale {scale * unit:.6g} per entry of '{spec.name}'"
            for spec, unit in zip(self.private, self.units, strict=True)
        )


# What is released once in place of an agent's data.
Statistic = Publication | Moments


def _james_stein(
    center: Array, back: Array, influence: Array | None, deviation: float, fitted: bool
) -> JamesStein | None:
    """None where too few components count for it."""
    known = fitted and bool(center.any())  # a level of zero has no direction
    dimension = dimension_of(across(back, center) if known else back, influence)
    if known and influence is None:
        dimension -= 1
    return JamesStein(center, deviation, dimension, known) if dimension > 2 else None


def releasable(sensitivity: Sensitivity) -> bool:
    """Whether an agent's data can leave once: by themselves, by a slope, or by second moments."""
    return sensitivity.linear or moments(sensitivity, 2) is not None


def publication(
    sensitivity: Sensitivity,
    p: int,
    owner: str,
    response: Response,
    variance: Callable[[float], float],
    expected: Sequence[Expectation | None] = (),
    *,
    whole: bool = False,
    stakes: Sequence[Stake] = (),
) -> Statistic | None:
    """The statistic to release once, with noise scaled to its lp sensitivity.

    For gradients that are affine in the data, the data, the slope, or a statistic that shapes the
    noise to the problem, whichever is expected to cost least; for least squares on records, their
    second moments.

    Parameters
    ----------
    sensitivity : Sensitivity
    p : {1, 2}
    owner : str
        Name of the agent, for messages.
    response : Response
        Around the agent.
    variance : callable
        Of the noise in one component, for a sensitivity; see `Calibrated.variance`.
    expected : sequence of (Expectation or None)
        Publicly, of each private object; empty if nothing is.
    whole : bool
        The data themselves have to leave: constraints contain them.
    stakes : sequence of Stake
        What margins of these cost, as far as that is known.

    Returns
    -------
    Statistic or None
        None if the gradient does not depend on the data.

    Raises
    ------
    PrivacyError
        If the objective reads its data otherwise, or nothing is known of what expectations are
        good for.
    """
    informs = any(one is not None for one in expected)
    if informs and not sensitivity.constant:
        name = next(
            spec.name
            for spec, one in zip(sensitivity.private, expected, strict=True)
            if one is not None
        )
        raise PrivacyError(
            f"expected= has a value for '{name}', but it is not known how to use expectations "
            f"where the gradient is not affine in the data with a constant Jacobian, as that of "
            f"agent '{owner}': {sensitivity.obstacle}. Leave it out of expected=."
        )
    if whole and informs:
        raise PrivacyError(
            f"expected= has values for data of agent '{owner}', whose constraints contain private "
            "data. Their margins are proved for the data as they left, not for estimates of them. "
            "Leave the agent's data out of expected=. As dp.Private(..., like=mean), public values "
            "shape the noise to the constraints."
        )
    if whole and not sensitivity.linear:
        raise PrivacyError(
            f"Constraints of agent '{owner}' contain private data, which have to leave by "
            "themselves for that, and its objective is not known to be the same function of such "
            f"data: {sensitivity.obstacle}. Write an objective with a gradient that is affine in "
            "the data, or give the terms to different agents."
        )
    if whole:
        plain = _data(sensitivity, p, owner)
        return _shaped_data(sensitivity, p, plain, response, variance, stakes) or plain
    if not sensitivity.linear:
        found = moments(sensitivity, p)
        if found is None:
            added = has_intercept(sensitivity) and not sensitivity.clips
            raise PrivacyError(
                "release='once' needs a gradient J(x) d + h(x) that is affine in the private data "
                "d, or second moments of records: cp.sum_squares(X @ w - y), "
                "scaled or not, with whole private X and y and without clip=. The objective of "
                f"agent '{owner}' has neither: {sensitivity.obstacle}"
                f"{_INTERCEPT if added else ''}. Write it like that, or use "
                "release='each step'."
            )
        return found
    found = _statistics(sensitivity, p, owner, response.curvature)
    if len(found) < 2:
        return found[0] if found else None
    plain = _covariance(found[0], variance)
    influence = response.influence(plain)

    def informed(one: Publication) -> Publication | None:
        noise = variance(one.sensitivity)
        return one.informed(expected, influence, noise, p) if informs else one

    found = [known for one in found if (known := informed(one)) is not None]
    covariances = [_covariance(one, variance) for one in found]
    gaps = [response.gap(covariance) for covariance in covariances]
    if len(found) == 2 and math.isinf(gaps[0]) and math.isinf(gaps[1]):
        # Both pull along a direction without end: compare the noise component by component.
        gaps = _relative(*covariances)
        return found[0] if gaps[0] <= gaps[1] * (1 + _TIE) else found[1]
    best = 0 if gaps[0] <= gaps[-1] * (1 + _TIE) else 1
    if influence is None or not math.isfinite(gaps[best]):
        return found[best]
    worth = _WORTH * gaps[best]
    # What is expected lowers the cost of every shape.
    below = math.inf if informs else 2 * worth / variance(1.0)
    shaped = _shaped(sensitivity, p, influence, below)
    shaped = None if shaped is None else informed(shaped)
    if shaped is not None and response.gap(_covariance(shaped, variance)) < worth:
        return shaped
    return found[best]


def _covariance(found: Publication, variance: Callable[[float], float]) -> sp.csr_array:
    covariance = found.slope_covariance(variance(found.sensitivity))
    assert covariance is not None
    return covariance


def _shaped(sensitivity: Sensitivity, p: int, influence: Array, below: float) -> Publication | None:
    """A statistic that shapes the noise, if single entries change.

    Of balls in l2 no shape is better than the data.

    Parameters
    ----------
    sensitivity : Sensitivity
    p : {1, 2}
    influence : ndarray, shape (n, n)
        Of the slope, for noise of about the size that is to be expected.
    below : float
        See `best_shape`.
    """
    J, specs = without_zeros(sp.hstack(sensitivity.jacobians)), sensitivity.private
    if math.prod(J.shape) > _DENSE or not all(map(_one_by_one, specs)):
        return None
    units = np.concatenate([np.full(spec.size, _reach(spec, p)) for spec in specs])
    found = best_shape((J @ sp.diags_array(units)).toarray(), influence, p, below)
    return None if found is None else _by_matrix(sensitivity, p, J, found / units)


def _shaped_data(
    sensitivity: Sensitivity,
    p: int,
    plain: Publication,
    response: Response,
    variance: Callable[[float], float],
    stakes: Sequence[Stake],
) -> Publication | None:
    """A statistic that tells the data with noise shaped to constraints; None if none is worth it.

    Parameters
    ----------
    sensitivity, p, response, variance, stakes
        As of `publication`.
    plain : Publication
        The data, each object in units of its own sensitivity.
    """
    if not (stakes and sensitivity.constant and all(map(_one_by_one, sensitivity.private))):
        return None
    J, units = without_zeros(sp.hstack(sensitivity.jacobians)), 1 / plain.encode.diagonal()
    felt = np.zeros((units.size, units.size))
    if J.nnz:
        influence = response.influence(_covariance(plain, variance))
        if influence is None:
            return None
        felt = J.T @ (influence @ J.toarray())
    found = data_shape(units, stakes, felt, variance(1.0), p)
    return None if found is None else _by_matrix(sensitivity, p, J, found, "shaped data")


def _by_matrix(
    sensitivity: Sensitivity,
    p: int,
    J: sp.csr_array,
    encode: Array,
    kind: Literal["shaped data", "shaped slope"] = "shaped slope",
) -> Publication:
    """Any linear statistic of the data, with what one change does to it."""
    ends = np.cumsum([spec.size for spec in sensitivity.private])[:-1]
    parts = [sp.csr_array(part) for part in np.split(encode, ends, axis=1)]
    level, ones = sensitivity.moved(parts, p), np.ones(encode.shape[0])
    matrix = sp.csr_array(encode)
    return Publication(sensitivity.private, kind, matrix, level, J, ones)


def _one_by_one(spec: PrivateSpec) -> bool:
    """Whether the largest changes are those of single entries."""
    if isinstance(spec.adjacency, Rows):
        return spec.size == spec.shape[0]
    return spec.adjacency.norm in ("entry", 1)


def _statistics(
    sensitivity: Sensitivity, p: int, owner: str, curvature: Array
) -> list[Publication]:
    """The data and the slope, if there is one; nothing if the gradient does not depend on them."""
    J = without_zeros(sp.hstack(sensitivity.jacobians))
    used = np.flatnonzero(np.diff(J.indptr) > 0)
    if used.size == 0 and sensitivity.weights is None:
        return []
    data = _data(sensitivity, p, owner)
    if not sensitivity.constant:
        return [data]
    units = 1 / data.encode.diagonal()
    weights = _weights(J[used] @ sp.diags_array(units), curvature[used])
    return [data, _weighted(sensitivity, p, J, weights)]


def _weighted(sensitivity: Sensitivity, p: int, J: sp.csr_array, weights: Array) -> Publication:
    """The slope with its components weighted."""
    used = np.flatnonzero(np.diff(J.indptr) > 0)
    scale = np.zeros(J.shape[0])
    scale[used] = weights
    level = sensitivity.bound(p, None if (weights == 1).all() else scale).value
    encode = sp.csr_array(sp.diags_array(weights) @ J[used])
    return Publication(sensitivity.private, "slope", encode, level, J, weights)


def restated(
    sensitivity: Sensitivity, p: int, owner: str, kind: str, how: Array | None
) -> Statistic:
    """A statistic that somebody else chose, with a sensitivity that is derived here.

    Parameters
    ----------
    sensitivity : Sensitivity
    p : {1, 2}
        Norm of the mechanism.
    owner : str
        Name of the agent, for messages.
    kind : {"data", "slope", "shaped slope", "second moments"}
    how : ndarray or None
        Of a slope, its weights; of a shaped one, the matrix from the data.

    Raises
    ------
    PrivacyError
        If the agent's data have no such statistic.
    """
    J = without_zeros(sp.hstack(sensitivity.jacobians))
    found = None
    if kind == "second moments":
        found = moments(sensitivity, p)
    elif kind == "data" and sensitivity.linear:
        found = _data(sensitivity, p, owner)
    elif sensitivity.constant and how is not None and np.isfinite(how).all():
        used = int(np.count_nonzero(np.diff(J.indptr)))
        if kind == "slope" and how.shape == (used,) and (how > 0).all():
            found = _weighted(sensitivity, p, J, how)
        elif kind == "shaped slope" and how.ndim == 2 and how.shape[1] == J.shape[1]:
            found = _by_matrix(sensitivity, p, J, how)
    if found is None or not 0 < found.sensitivity <= LARGEST:
        raise PrivacyError(
            f"Agent '{owner}' is asked to release {kind} once, and nothing bounds what one change "
            "of its data does to that."
        )
    return found


def _data(sensitivity: Sensitivity, p: int, owner: str) -> Publication:
    """The data, each object in units of its own sensitivity."""
    specs, J = sensitivity.private, without_zeros(sp.hstack(sensitivity.jacobians))
    own = [_reach(spec, p) for spec in specs]
    units = np.concatenate([np.full(s.size, unit) for s, unit in zip(specs, own, strict=True)])
    plain = sensitivity.bound(p).value if sensitivity.constant else 0.0
    felt = float(abs(J @ sp.diags_array(units)).max()) if J.nnz else 0.0
    largest = max(plain, felt, float(units.max()))
    if not largest <= LARGEST:
        raise PrivacyError(
            f"One change of the data of agent '{owner}', or what it does to the gradient, is as "
            f"large as {largest:.3g}. Squares of numbers beyond {LARGEST:g} are no numbers any "
            "more, so no noise can be scaled to it. Declare a smaller change, or rescale the data "
            "and the objective."
        )
    # Parts of one record change together, each by at most one unit; other objects do not.
    labels = [s.adjacency.label for s in specs if isinstance(s.adjacency, Rows)]
    together = max([1, *(labels.count(label) for label in labels)]) ** (1 / p)
    # Rounded up by more than the division by a unit rounds.
    encode, level = sp.csr_array(sp.diags_array(1 / units)), together * (1 + 1e-9)
    constant = J if sensitivity.constant else None
    return Publication(specs, "data", encode, level, constant, np.ones(units.size))


def _weights(moved: sp.csr_array, curvature: Array) -> Array:
    r"""What the components of a slope are multiplied by before noise of one scale is added.

    Noise of variance :math:`\propto 1/u_j^2` costs :math:`\sum_j 1/(h_j u_j^2)` where the objective
    has the curvature :math:`h_j`, and its scale is about :math:`\sum_j u_j^2 r_j^2` with the rows r
    of what one change moves: least for :math:`u_j^2 = 1 / (r_j \sqrt{h_j})`. Where some component
    has no curvature, :math:`u_j = 1/r_j` follows units as well. Ones if all are alike.

    Parameters
    ----------
    moved : csr_array, shape (s, total size of the data)
        What one change of each entry does to the components.
    curvature : ndarray, shape (s,)
    """
    rows = np.sqrt(np.asarray(moved.power(2).sum(axis=1)).ravel())
    squares = rows * np.sqrt(curvature) if (curvature > 0).all() else rows * rows
    weights = np.maximum(np.sqrt(squares.min() / squares), _LEAST)
    return np.ones(rows.size) if weights.min() > 1 - _TIE else weights


def _range(values: Array) -> str:
    low, high = values.min(), values.max()
    return f"{low:.6g}" if high - low <= _TIE * high else f"{low:.6g} to {high:.6g}"


def _relative(data: sp.csr_array, slope: sp.csr_array) -> tuple[float, float]:
    """Variances of both, component by component, in units of their geometric mean."""
    one, two = data.diagonal(), slope.diagonal()
    felt = (one > 0) & (two > 0)
    ratios = np.sqrt(one[felt] / two[felt])
    return float(ratios.sum()), float((1 / ratios).sum())


def _range_projection(J: sp.csr_array) -> Array | sp.csr_array:
    """What restoring the shortest data leaves of noise in J d: its part in the range of J."""
    everything = sp.eye_array(J.shape[0], format="csr")
    if J.shape[0] > _SQUARE:
        return everything
    squares = product(J, J.T).toarray()
    # Of rows of one length: small ones are not lost next to large ones.
    lengths = np.sqrt(squares.diagonal())
    if np.linalg.eigvalsh(squares / np.outer(lengths, lengths))[0] > _RANK:
        return everything
    values, vectors = np.linalg.eigh(squares)
    kept = vectors[:, values > _RANK * values[-1]]
    return kept @ kept.T


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
