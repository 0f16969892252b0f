"""Choice of the statistic for a one-time release of an agent's data, by the expected error."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ..errors import PrivacyError
from ..model.adjacency import Rows
from ..model.matrices import scaled_columns
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

# Least weight, so that no weight underflows to 0.
_LEAST = 1e-100
# Relative difference of errors that counts as none; the data are then released, as they are easier
# to interpret.
_TIE = 1e-6
_INTERCEPT = (
    ", and an intercept is added to X @ w. Put a column of ones into X instead, with "
    "cp.hstack([w, b]) in place of w, and declare dp.Rows with the larger bound of such rows"
)
# Largest share of the error that shaped noise may leave, to be chosen.
_WORTH = 0.95


def _james_stein(
    center: Array, back: Array, influence: Array | None, deviation: float, fitted: bool
) -> JamesStein | None:
    """Return James and Stein's shrinkage towards `center`; None if it has no advantage."""
    has_direction = fitted and bool(center.any())  # a level of zero has no direction
    dimension = dimension_of(across(back, center) if has_direction else back, influence)
    if has_direction and influence is None:
        dimension -= 1
    return JamesStein(center, deviation, dimension, has_direction) if dimension > 2 else None


@dataclass(frozen=True, eq=False)
class Proposed:
    """Statistic proposed for a one-time release, and a search that may find a better one.

    Attributes
    ----------
    statistic : Statistic or None
        Best statistic without a search; None if the gradient does not depend on the data.
    search : (ShapeTask, callable), optional
        Search for a shape, and a function that returns the statistic of a shape, or None if its
        error is not clearly smaller than the error of `statistic`.
    """

    statistic: Statistic | None
    search: tuple[ShapeTask, Callable[[Array], Statistic | None]] | None = None


def searched(proposals: Sequence[Proposed]) -> list[Statistic | None]:
    """Return the best one-time release of each proposal, after all searches for better ones."""
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
    """Return the statistic proposed for a one-time release, with noise scaled to its sensitivity.

    If gradients are affine in the data, candidates are the data, the linear coefficient, and a
    statistic that shapes the noise to the problem. The one with the least expected error is chosen.
    For least squares on records, the statistic is their second moments.

    Parameters
    ----------
    sensitivity : Sensitivity
    p : {1, 2}
        Norm of the sensitivity.
    owner : str
        Name of the agent, for messages.
    response : Response
        Response of the problem to noise in the agent's data.
    variance : callable
        Function of a sensitivity that returns the variance of the noise in one component; see
        `Calibrated.variance`.
    expected : sequence of (Expectation or None)
        Public prior of each private object; empty without priors.
    whole : bool
        Whether all data must be recoverable from the release, because constraints contain them.
    single : bool
        Whether the noise hides changes of a single component only.
    stakes : sequence of Stake
        Costs of the margins of constraints with private data, if known.

    Returns
    -------
    Proposed
        The proposal; its statistic is None if the gradient does not depend on the data.

    Raises
    ------
    PrivacyError
        If the objective depends on its data in another way, or priors cannot be used.
    """
    informs = any(value is not None for value in expected)
    if informs and not sensitivity.constant:
        name = next(
            spec.name
            for spec, value in zip(sensitivity.private, expected, strict=True)
            if value is not None
        )
        raise PrivacyError(
            f"prior= has a value for '{name}', and dpcvx uses prior means only for gradients that "
            f"are affine in the data, with a constant Jacobian. The gradient of agent '{owner}' "
            f"is not affine: {sensitivity.obstacle}. Leave '{name}' out of prior=."
        )
    if whole and informs:
        raise _in_margins(owner)
    if whole and not sensitivity.linear:
        raise PrivacyError(
            f"Constraints of agent '{owner}' contain private data, so the data themselves are "
            "released. That needs an objective with a gradient that is affine in the data: "
            f"{sensitivity.obstacle}. Write such an objective, or give the terms to different "
            "agents."
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
                "each other. Leave release= out: dp.OneShot() then releases the linear term that "
                "they add to the objective, once, as a noisy gradient."
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
    if single:  # keep statistics that such noise hides; if there are none, the plan refuses later
        statistics = [each for each in statistics if moves_one(each)] or statistics[:1]
    diagonal = response.by_component
    plain = _covariance(statistics[0], variance, diagonal)
    gap, influence = response.both(plain)

    def estimated(publication: Publication) -> Publication | None:
        noise = variance(publication.sensitivity)
        return informed(publication, expected, influence, noise, p) if informs else publication

    candidates = statistics
    statistics = [estimate for each in candidates if (estimate := estimated(each)) is not None]
    if single and len(statistics) == 1:
        return Proposed(statistics[0])
    covariances = [
        plain if each is candidates[0] else _covariance(each, variance, diagonal)
        for each in statistics
    ]
    gaps = [gap if covariance is plain else response.gap(covariance) for covariance in covariances]
    if len(statistics) == 2 and math.isinf(gaps[0]) and math.isinf(gaps[1]):
        # Both errors are infinite: compare the noise component by component.
        gaps = _relative(*covariances)
        return Proposed(statistics[0] if gaps[0] <= gaps[1] * (1 + _TIE) else statistics[1])
    best = 0 if gaps[0] <= gaps[-1] * (1 + _TIE) else 1
    if single or influence is None or not math.isfinite(gaps[best]):
        return Proposed(statistics[best])
    worth = _WORTH * gaps[best]
    # With priors, the error of a shape is known only after estimation, so there is no limit.
    below = math.inf if informs else 2 * worth / variance(1.0)
    J, units = sensitivity.jacobian, _units(sensitivity.private, p)
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
    """Return the statistic to release for a model solved as written: data, sums or moments.

    If the model depends on entries only through a weighted sum, this sum is released. Its noise is
    no larger than the noise of one entry, while the noise of separate entries would add up.

    Parameters
    ----------
    agent : AgentPlan
        Agent, with the priors of its data.
    sensitivity : Sensitivity
    noise : Calibrated
    by_moments : bool
        Whether the model depends on records only through their second moments.

    Raises
    ------
    PrivacyError
        If there is a prior for data in constraints, or for records.
    """
    local, p = agent.program, noise.mechanism.norm
    if local.limits and agent.expects:
        raise _in_margins(local.name)
    records = moments_of(sensitivity.private, p) if by_moments and not local.limits else None
    if records is not None and agent.expects:
        raise PrivacyError(
            f"prior= has values for records of agent '{local.name}', which are released as their "
            "second moments. Leave these records out of prior=. Prior means of records give no "
            "estimate of their second moments."
        )
    if records is not None:
        return records
    if local.sums is None or local.limits:
        statistic = replace(whole_data(sensitivity, p, local.name), jacobian=None)
    else:
        J = sp.csr_array((0, 0))  # a model as written has no gradient
        statistic = by_matrix(sensitivity, p, J, local.sums.toarray(), "sums")
        statistic = replace(statistic, jacobian=None)
    if not agent.expects:
        return statistic
    variance = noise.variance(statistic.sensitivity)
    return informed(statistic, agent.expected, None, variance, p) or statistic


def _in_margins(owner: str) -> PrivacyError:
    return PrivacyError(
        f"prior= has values for data of agent '{owner}', whose constraints contain private data. "
        "Their margins are proved for the data as released, not for estimates of them. Leave the "
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
    """Return the largest change of each entry, if one change changes a single entry; else None.

    For changes in an l2 ball, shaping the noise does not help: noise in the data is best.
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
    """Return a statistic of the data with less noise where constraints need expensive margins.

    The result is None if it has no clear advantage over `plain`.

    Parameters
    ----------
    sensitivity : Sensitivity
    p : {1, 2}
        Norm of the sensitivity.
    plain : Publication
        Statistic of the data themselves, each object in units of its own sensitivity.
    response : Response
        Response of the problem to noise in the agent's data.
    variance : callable
        Function of a sensitivity that returns the variance of the noise in one component.
    stakes : sequence of Stake
        Costs of the margins of constraints with private data.
    """
    if not (stakes and sensitivity.constant and all(map(_one_by_one, sensitivity.private))):
        return None
    J, units = sensitivity.jacobian, 1 / plain.encode.diagonal()
    felt = np.zeros((units.size, units.size))
    if J.nnz:
        influence = response.influence(_covariance(plain, variance, response.by_component))
        if influence is None:
            return None
        felt = J.T @ (influence @ J.toarray())
    shape = data_shape(units, stakes, felt, variance(1.0), p)
    return None if shape is None else by_matrix(sensitivity, p, J, shape, "shaped data")


def _one_by_one(spec: PrivateSpec) -> bool:
    """Return whether the largest changes of a private object change a single entry."""
    if isinstance(spec.adjacency, Rows):
        return spec.size == spec.shape[0]
    return spec.adjacency.norm in ("entry", 1)


def _statistics(
    sensitivity: Sensitivity, p: int, owner: str, curvature: Array
) -> list[Publication]:
    """Return what one release of the data publishes, with a constant linear coefficient if any.

    The result is empty if the gradient does not depend on the data.
    """
    J = sensitivity.jacobian
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
    r"""Return the weights of the components of a linear coefficient before noise is added.

    With weights :math:`u_j` and noise of one scale, the noise in component j has a variance
    proportional to :math:`1/u_j^2`. It costs :math:`\sum_j 1/(h_j u_j^2)` with curvatures
    :math:`h_j`, times a squared scale of about :math:`\sum_j u_j^2 r_j^2`, where :math:`r_j` is the
    norm of row j of `moved`. The product is least for :math:`u_j^2 = 1 / (r_j \sqrt{h_j})`. If a
    component has no curvature, :math:`u_j = 1/r_j`, which is also independent of units. All weights
    are 1 if they are nearly equal.

    Parameters
    ----------
    moved : csr_array, shape (s, total size of the data)
        Effect of one change of each entry on the components.
    curvature : ndarray, shape (s,)
        Second derivatives of the objective along the components.
    """
    rows = np.sqrt(np.asarray(moved.power(2).sum(axis=1)).ravel())
    squares = rows * np.sqrt(curvature) if (curvature > 0).all() else rows * rows
    weights = np.maximum(np.sqrt(squares.min() / squares), _LEAST)
    return np.ones(rows.size) if weights.min() > 1 - _TIE else weights


def _relative(data: sp.csr_array, slope: sp.csr_array) -> tuple[float, float]:
    """Return the sums over components of ``sqrt(a / b)`` and of ``sqrt(b / a)``.

    Here a and b are the noise variances of two one-time releases: of the data, and of the linear
    coefficient.
    """
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
    """Return the statistic with estimates from priors; None if the priors cannot be used.

    Parameters
    ----------
    statistic : Publication
    expected : sequence of (Expectation or None)
        Prior of each private object.
    influence : ndarray, shape (n, n), or None
        Influence W of the linear coefficient; see `Response.influence`. None: all components have
        equal weight.
    variance : float
        Variance of the noise in one component of the statistic.
    p : {1, 2}
        Norm of the mechanism.
    """
    back = statistic.back
    if back is None:  # all components have equal weight
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
    """Yield the estimate of each private object, if data are released object by object.

    For the parameters see `informed`.
    """
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
