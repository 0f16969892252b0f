"""Choice of the statistic for one release of an agent's data, by the cost of the noise."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ..errors import PrivacyError
from ..model.adjacency import Rows
from ..model.matrices import scaled_columns, without_zeros
from ..model.prior import Expectation
from ..model.quadratic import curved
from ..model.spec import PrivateSpec
from ..plan.agent_plan import AgentPlan
from ..privacy.mechanism import Calibrated
from ..sensitivity.certificate import Sensitivity
from ..sensitivity.estimates import (
    EntrywiseMean,
    Estimate,
    JamesStein,
    Linear,
    across,
    dimension_of,
    pull_of,
    weights_of,
)
from ..sensitivity.release_once import (
    DENSE,
    Publication,
    Statistic,
    by_matrix,
    moves_one,
    reach_of,
    weighted,
    whole_data,
)
from ..sensitivity.second_moments import has_intercept, moments, moments_of
from .data_shape import ShapeTask, Stake, best_shapes, data_shape
from .response import Response

Array = NDArray[np.float64]

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


def _james_stein(
    center: Array, back: Array, influence: Array | None, deviation: float, fitted: bool
) -> JamesStein | None:
    """Return James and Stein's estimate; None if too few components count for it."""
    has_direction = fitted and bool(center.any())  # a level of zero has no direction
    dimension = dimension_of(across(back, center) if has_direction else back, influence)
    if has_direction and influence is None:
        dimension -= 1
    return JamesStein(center, deviation, dimension, has_direction) if dimension > 2 else None


@dataclass(frozen=True, eq=False)
class Proposed:
    """The statistic that is proposed for one release, and a search that may find a better one.

    Attributes
    ----------
    statistic : Statistic or None
        The best one that takes no search.
    search : (ShapeTask, callable), optional
        The shape to look for, and what returns the statistic of a shape, or None if `statistic`
        costs no more.
    """

    statistic: Statistic | None
    search: tuple[ShapeTask, Callable[[Array], Statistic | None]] | None = None


def searched(proposals: Sequence[Proposed]) -> list[Statistic | None]:
    """Return the statistic of each proposal, after all searches."""
    statistics = [proposal.statistic for proposal in proposals]
    searches = [(k, *each.search) for k, each in enumerate(proposals) if each.search is not None]
    shapes = best_shapes([task for _, task, _ in searches])
    for (k, _, shaped), shape in zip(searches, shapes, strict=True):
        better = None if shape is None else shaped(shape)
        statistics[k] = statistics[k] if better is None else better
    return statistics


def publication(
    sensitivity: Sensitivity,
    p: int,
    owner: str,
    response: Response,
    variance: Callable[[float], float],
    expected: Sequence[Expectation | None] = (),
    *,
    whole: bool = False,
    single: bool = False,
    stakes: Sequence[Stake] = (),
) -> Proposed:
    """Return what is proposed to release once, with noise scaled to its lp sensitivity.

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
        Variance of the noise in one component, for a sensitivity; see `Calibrated.variance`.
    expected : sequence of (Expectation or None)
        Publicly, of each private object; empty if nothing is.
    whole : bool
        The data themselves have to leave: constraints contain them.
    single : bool
        Whether the noise hides moves of one component only.
    stakes : sequence of Stake
        Costs of the margins of such constraints, if known.

    Returns
    -------
    Proposed
        With a statistic of None if the gradient does not depend on the data.

    Raises
    ------
    PrivacyError
        If the objective reads its data otherwise, or nothing is known of what expectations are
        good for.
    """
    informs = any(value is not None for value in expected)
    if informs and not sensitivity.constant:
        name = next(
            spec.name
            for spec, value in zip(sensitivity.private, expected, strict=True)
            if value is not None
        )
        raise PrivacyError(
            f"prior= has a value for '{name}', and dpcvx uses prior means only for gradients "
            "that are affine in the data, with a constant Jacobian. The gradient of agent "
            f"'{owner}' is not: {sensitivity.obstacle}. Leave it out of prior=."
        )
    if whole and informs:
        raise _in_margins(owner)
    if whole and not sensitivity.linear:
        raise PrivacyError(
            f"Constraints of agent '{owner}' contain private data, so the data are "
            "released by themselves, and its objective is not known to be the same function of "
            f"such data: {sensitivity.obstacle}. Write an objective with a gradient that is affine "
            "in the data, or give the terms to different agents."
        )
    if whole:
        plain = whole_data(sensitivity, p, owner)
        shaped_data = _shaped_data(sensitivity, p, plain, response, variance, stakes)
        return Proposed(shaped_data or plain)
    if not sensitivity.linear:
        statistics = moments(sensitivity, p)
        forms = [task.form for task in sensitivity.records]
        if statistics is None and forms and not any(map(curved, forms)):
            raise PrivacyError(
                f"release='once' has no statistic for agent '{owner}': its private data multiply "
                "each other. Leave release= out: they add a linear term to the objective, and "
                "dp.OneShot() releases that once, as one noisy gradient."
            )
        if statistics is None:
            added = has_intercept(sensitivity) and not sensitivity.clips
            raise PrivacyError(
                "release='once' needs a gradient J(x) d + h(x) that is affine in the private data "
                "d, or second moments of records: cp.sum_squares(X @ w - y), "
                "scaled or not, with whole private X and y and without clip_norm=. The objective "
                f"of agent '{owner}' has neither: {sensitivity.obstacle}"
                f"{_INTERCEPT if added else ''}. Write it like that, or use "
                "release='each_step'."
            )
        return Proposed(statistics)
    statistics = _statistics(sensitivity, p, owner, response.curvature)
    if len(statistics) < 2:
        return Proposed(statistics[0] if statistics else None)
    if single:  # those that such noise hides; if there are none, the plan refuses the data
        statistics = [each for each in statistics if moves_one(each)] or statistics[:1]
    diagonal = response.by_component
    plain = _covariance(statistics[0], variance, diagonal)
    influence = response.influence(plain)

    def estimated(publication: Publication) -> Publication | None:
        noise = variance(publication.sensitivity)
        return informed(publication, expected, influence, noise, p) if informs else publication

    statistics = [estimate for each in statistics if (estimate := estimated(each)) is not None]
    if single and len(statistics) == 1:
        return Proposed(statistics[0])
    covariances = [_covariance(each, variance, diagonal) for each in statistics]
    gaps = [response.gap(covariance) for covariance in covariances]
    if len(statistics) == 2 and math.isinf(gaps[0]) and math.isinf(gaps[1]):
        # Both pull along a direction without end: compare the noise component by component.
        gaps = _relative(*covariances)
        return Proposed(statistics[0] if gaps[0] <= gaps[1] * (1 + _TIE) else statistics[1])
    best = 0 if gaps[0] <= gaps[-1] * (1 + _TIE) else 1
    if single or influence is None or not math.isfinite(gaps[best]):
        return Proposed(statistics[best])
    worth = _WORTH * gaps[best]
    # What is expected lowers the cost of every shape.
    below = math.inf if informs else 2 * worth / variance(1.0)
    J, units = without_zeros(sp.hstack(sensitivity.jacobians)), _units(sensitivity.private, p)
    if units is None or math.prod(J.shape) > DENSE:
        return Proposed(statistics[best])

    def shaped(shape: Array) -> Statistic | None:
        statistic = estimated(by_matrix(sensitivity, p, J, shape / units))
        if statistic is None or not response.gap(_covariance(statistic, variance)) < worth:
            return None
        return statistic

    task = ShapeTask(J.toarray() * units, influence, p, below)
    return Proposed(statistics[best], (task, shaped))


def for_model(
    agent: AgentPlan, sensitivity: Sensitivity, noise: Calibrated, by_moments: bool
) -> Statistic:
    """Return the release for a model that is solved as it is written: its data, or sums of them.

    Entries that the model reads through one weighted sum alone leave as that sum: its noise is no
    larger than that of one entry, whereas noise of all entries would add up in it.

    Parameters
    ----------
    agent : AgentPlan
        Agent with the public expectations of its data.
    sensitivity : Sensitivity
    noise : Calibrated
    by_moments : bool
        Whether the model reads records through their second moments alone.

    Raises
    ------
    PrivacyError
        If something is expected of data that constraints contain, or of records.
    """
    local, p = agent.program, noise.mechanism.norm
    if local.limits and agent.expects:
        raise _in_margins(local.name)
    records = moments_of(sensitivity.private, p) if by_moments and not local.limits else None
    if records is not None and agent.expects:
        raise PrivacyError(
            f"prior= has values for records of agent '{local.name}', which are released as "
            "their second moments. Leave them out of prior=: no estimate of moments follows "
            "from them."
        )
    if records is not None:
        return records
    if local.sums is None or local.limits:
        statistic = replace(whole_data(sensitivity, p, local.name), jacobian=None)
    else:
        J = sp.csr_array((0, 0))  # of no matter where no gradient is asked for
        statistic = by_matrix(sensitivity, p, J, local.sums.toarray(), "sums")
        statistic = replace(statistic, jacobian=None)
    if not agent.expects:
        return statistic
    variance = noise.variance(statistic.sensitivity)
    return informed(statistic, agent.expected, None, variance, p) or statistic


def _in_margins(owner: str) -> PrivacyError:
    return PrivacyError(
        f"prior= has values for data of agent '{owner}', whose constraints contain private data. "
        "Their margins are proved for the data as they left, not for estimates of them. Leave the "
        "agent's data out of prior=. As dp.Private(..., proxy=mean), public values shape the noise "
        "to the constraints."
    )


def _covariance(
    publication: Publication, variance: Callable[[float], float], diagonal: bool = False
) -> sp.csr_array:
    noise = variance(publication.sensitivity)
    covariance = publication.slope_covariance(noise, diagonal=diagonal)
    assert covariance is not None
    return covariance


def _units(specs: Sequence[PrivateSpec], p: int) -> Array | None:
    """Return the largest change of each entry, if single entries change; else None.

    For balls in l2, no shape of noise is better than the data.
    """
    if not all(map(_one_by_one, specs)):
        return None
    return np.concatenate([np.full(spec.size, reach_of(spec, p)) for spec in specs])


def _shaped_data(
    sensitivity: Sensitivity,
    p: int,
    plain: Publication,
    response: Response,
    variance: Callable[[float], float],
    stakes: Sequence[Stake],
) -> Publication | None:
    """Return a statistic of the data with noise shaped to constraints; None if none is worth it.

    Parameters
    ----------
    sensitivity, p, response, variance, stakes
        Arguments of `publication`.
    plain : Publication
        The data, each object in units of its own sensitivity.
    """
    if not (stakes and sensitivity.constant and all(map(_one_by_one, sensitivity.private))):
        return None
    J, units = without_zeros(sp.hstack(sensitivity.jacobians)), 1 / plain.encode.diagonal()
    felt = np.zeros((units.size, units.size))
    if J.nnz:
        influence = response.influence(_covariance(plain, variance, response.by_component))
        if influence is None:
            return None
        felt = J.T @ (influence @ J.toarray())
    shape = data_shape(units, stakes, felt, variance(1.0), p)
    return None if shape is None else by_matrix(sensitivity, p, J, shape, "shaped data")


def _one_by_one(spec: PrivateSpec) -> bool:
    """Return whether the largest changes are those of single entries."""
    if isinstance(spec.adjacency, Rows):
        return spec.size == spec.shape[0]
    return spec.adjacency.norm in ("entry", 1)


def _statistics(
    sensitivity: Sensitivity, p: int, owner: str, curvature: Array
) -> list[Publication]:
    """Return the data and the slope, if there is one; empty if the gradient ignores them."""
    J = without_zeros(sp.hstack(sensitivity.jacobians))
    used = np.flatnonzero(np.diff(J.indptr) > 0)
    if used.size == 0 and sensitivity.weights is None:
        return []
    data = whole_data(sensitivity, p, owner)
    if not sensitivity.constant:
        return [data]
    units = 1 / data.encode.diagonal()
    weights = _weights(scaled_columns(J[used], units), curvature[used])
    return [data, weighted(sensitivity, p, J, weights)]


def _weights(moved: sp.csr_array, curvature: Array) -> Array:
    r"""Return factors of the components of a slope, applied before noise of one scale is added.

    Noise of variance :math:`\propto 1/u_j^2` costs :math:`\sum_j 1/(h_j u_j^2)` where the objective
    has the curvature :math:`h_j`, and its scale is about :math:`\sum_j u_j^2 r_j^2` with the rows r
    of what one change moves: least for :math:`u_j^2 = 1 / (r_j \sqrt{h_j})`. If some component has
    no curvature, :math:`u_j = 1/r_j` follows units as well. Ones if all are alike.

    Parameters
    ----------
    moved : csr_array, shape (s, total size of the data)
        Effect of one change of each entry on the components.
    curvature : ndarray, shape (s,)
    """
    rows = np.sqrt(np.asarray(moved.power(2).sum(axis=1)).ravel())
    squares = rows * np.sqrt(curvature) if (curvature > 0).all() else rows * rows
    weights = np.maximum(np.sqrt(squares.min() / squares), _LEAST)
    return np.ones(rows.size) if weights.min() > 1 - _TIE else weights


def _relative(data: sp.csr_array, slope: sp.csr_array) -> tuple[float, float]:
    """Return sums of both variances, by component in units of their geometric mean."""
    of_data, of_slope = data.diagonal(), slope.diagonal()
    felt = (of_data > 0) & (of_slope > 0)
    ratios = np.sqrt(of_data[felt] / of_slope[felt])
    return float(ratios.sum()), float((1 / ratios).sum())


def informed(
    statistic: Publication,
    expected: Sequence[Expectation | None],
    influence: Array | None,
    variance: float,
    p: int,
) -> Publication | None:
    """Return the release with estimates by its priors; None if none is known to be good.

    Parameters
    ----------
    statistic : Publication
    expected : sequence of (Expectation or None)
        Expectation of each private object.
    influence : ndarray, shape (n, n), or None
        See `Response.influence`.
    variance : float
        Variance of the noise in one component of the statistic.
    p : {1, 2}
        Norm of the mechanism.
    """
    back = statistic.back
    if back is None:  # all components count alike
        back = sp.eye_array(statistic.size, format="csr")
    deviation = math.sqrt(variance)
    if statistic.kind == "data":
        each = _by_object(statistic, expected, back, influence, deviation, p)
        return replace(statistic, estimates=tuple(each))
    sizes = [spec.size for spec in statistic.private]
    pairs = list(zip(expected, sizes, strict=True))
    mean = np.concatenate(
        [np.zeros(n) if expectation is None else expectation.mean for expectation, n in pairs]
    )
    center = np.asarray(statistic.encode @ mean)
    back = back.toarray()
    if all(expectation is not None and expectation.spread is None for expectation in expected):
        fitted = all(expectation is not None and expectation.fitted for expectation in expected)
        estimate = _james_stein(center, back, influence, deviation, fitted)
        return (
            statistic
            if estimate is None
            else replace(statistic, estimates=((slice(None), estimate),))
        )
    spreads = [
        np.full(n, np.inf) if expectation is None else expectation.spread
        for expectation, n in pairs
    ]
    if any(spread is None for spread in spreads):
        return None
    spread = np.concatenate([expectation for expectation in spreads if expectation is not None])
    pull = pull_of(statistic.encode.toarray(), spread, variance)
    estimate = Linear(center, pull, deviation, weights_of(back, influence))
    return replace(statistic, estimates=((slice(None), estimate),))


def _by_object(
    statistic: Publication,
    expected: Sequence[Expectation | None],
    back: sp.csr_array,
    influence: Array | None,
    deviation: float,
    p: int,
) -> Iterator[tuple[slice, Estimate]]:
    """Yield estimates for data that are released object by object; parameters as of `informed`."""
    ends = np.cumsum([spec.size for spec in statistic.private])
    scale, columns = statistic.encode.diagonal(), sp.csc_array(back)
    for expectation, end, spec in zip(expected, ends, statistic.private, strict=True):
        if expectation is None:
            continue
        entries = slice(int(end) - spec.size, int(end))
        mean, part = expectation.mean * scale[entries], sp.csr_array(columns[:, entries])
        if expectation.spread is not None:
            yield (
                entries,
                EntrywiseMean(mean, expectation.spread * scale[entries], deviation, p == 1),
            )
            continue
        if math.prod(part.shape) > DENSE:
            continue
        estimate = _james_stein(mean, part.toarray(), influence, deviation, expectation.fitted)
        if estimate is not None:
            yield entries, estimate
