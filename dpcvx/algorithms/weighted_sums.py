r"""One-time releases: statistics in place of data, and shrinkage of the solution toward the start.

*Statistics through which alone a model depends on its data.* If a model depends on data only
through ``M d``, entries of d with proportional columns in M enter it only through their weighted
sum. One change of the data moves the sum by no more than the entry with the largest weight would,
and noise is added once, not once per entry. Records that enter a model only through their second
moments, such as ``X.T @ X`` and ``X.T @ y``, are released as second moments.

*Shrinkage.* If noise explains most of a release, the solution stays near the initial point. At the
public initial point, projected onto all agents' sets, the objective for the released values has the
gradient :math:`\tilde g = g + \xi`, with noise :math:`\xi` of covariance S. A solution that follows
:math:`\tilde g` fully has the expected suboptimality :math:`\tfrac12 \operatorname{tr}(W S)`, where
W is the response of the problem (`dpcvx.defaults.response`). The initial point has the
suboptimality :math:`\tfrac12 g' W g`. The release estimates the sum of both:
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

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ..model.adjacency import Rows
from ..model.canonical import parameter_columns
from ..model.matrices import real_entries
from ..model.spec import PrivateSpec
from ..solvers.libraries import attempt
from .written_model import WrittenAgent, free, integral, put

Array = NDArray[np.float64]

# Decimal digits to which columns, divided by their largest entry, must be equal.
_DIGITS = 10
# Largest number of entries of M, and of data whose columns are computed one by one; beyond these,
# the data themselves are released.
_MOST, _ONE_BY_ONE = 2_000_000, 2000
# Largest number of entries of records to rotate, and the relative tolerance for equal values.
_ROTATED, _SAME = 20_000_000, 1e-7


def weighted_sums(agent: WrittenAgent) -> sp.csr_array | None:
    """Return the matrix of weighted sums through which alone a model depends on its data.

    It is None if there are not fewer sums than data. Entries are in units of their largest change,
    and the largest weight of each sum is 1.

    Parameters
    ----------
    agent : WrittenAgent

    Returns
    -------
    csr_array, shape (s, total size of the data), or None
        Each column has at most one entry: none if the model does not depend on that datum.
    """
    size = sum(spec.size for spec in agent.specs)
    tied = (spec.symmetric or spec.is_complex or spec.kind != "real" for spec in agent.specs)
    if size < 2 or any(tied):
        return None  # in such domains, entries depend on each other
    read = None
    trees = (agent.cost, *agent.constraints)
    finite = any(isinstance(constraint, cp.FiniteSet) for constraint in agent.constraints)
    if not (finite or any(integral(v) for tree in trees for v in tree.variables())):
        read = parameter_columns(agent.cost, agent.constraints, agent.data)
    if read is None and size <= _ONE_BY_ONE:
        read = _of_tree(agent)
    if read is None or read.shape[0] * size > _MOST:
        return None
    units = np.concatenate([np.full(spec.size, spec.adjacency.radius) for spec in agent.specs])
    columns = read.toarray() * units
    classes: dict[bytes, list[tuple[int, float]]] = {}
    for j, column in enumerate(columns.T):
        used = np.flatnonzero(column)
        if used.size:
            lead = float(column[np.abs(column).argmax()])
            direction = np.round(column / lead, _DIGITS) + 0.0  # no negative zeros
            classes.setdefault(direction.tobytes(), []).append((j, lead))
    if not classes or len(classes) == size:
        return None
    rows = sp.lil_array((len(classes), size))
    for k, entries in enumerate(classes.values()):
        most = max((lead for _, lead in entries), key=abs)
        for j, lead in entries:
            rows[k, j] = lead / most / units[j]
    return sp.csr_array(rows)


def reads_moments(
    trees: Sequence[Any], data: Sequence[cp.Parameter], specs: Sequence[PrivateSpec]
) -> bool:
    """Return whether records enter only through their second moments, as in ``X.T @ y``.

    A function of records depends only on their second moments if no orthogonal transformation of
    the rows, applied to all private objects at once, changes it. The test applies reflections to
    made-up records of several lengths, at made-up values of the variables. The guarantee does not
    rest on this test: only second moments are released, whatever the model depends on.

    Parameters
    ----------
    trees : sequence of cvxpy expressions and constraints
        Objective and constraints of the model.
    data : sequence of cvxpy parameters
        Parameters in the place of the private objects.
    specs : sequence of PrivateSpec
        Specifications of the private objects.
    """
    kinds = [spec.adjacency for spec in specs]
    records = {
        (spec.shape[0], kind.label)
        for spec, kind in zip(specs, kinds, strict=True)
        if isinstance(kind, Rows) and len(spec.shape) in (1, 2)
    }
    if len(records) != 1 or not all(isinstance(kind, Rows) for kind in kinds):
        return False
    leaves = {p.id for p in data}
    reading = [tree for tree in trees if any(p.id in leaves for p in tree.parameters())]
    if sum(spec.size for spec in specs) > _ROTATED:
        return False
    lengths = [spec.adjacency.radius for spec in specs]
    for k, (size, spread) in enumerate(itertools.product((1e-2, 1.0, 1e2), (1.0, 1e3))):
        made_up = [
            size * length * _waves(spec.shape, k + j)
            for j, (spec, length) in enumerate(zip(specs, lengths, strict=True))
        ]
        u = _waves((made_up[0].shape[0],), 100 + k)
        turned = [V - np.multiply.outer(2 * u / (u @ u), u @ V) for V in made_up]
        for tree in reading:
            before, after = (_values(tree, data, each, spread) for each in (made_up, turned))
            most = float(np.abs(before[np.isfinite(before)]).max(initial=0.0))
            if not np.allclose(before, after, rtol=_SAME, atol=_SAME * most):
                return False
    return bool(reading)


def _waves(shape: tuple[int, ...], k: int) -> Array:
    """Return fixed numbers between -1 and 1 without a pattern; k selects one of many arrays."""
    return np.sin((1.0 + k) * np.arange(1.0, 1.0 + np.prod(shape)) ** 1.5).reshape(shape)


def _values(
    tree: Any, data: Sequence[cp.Parameter], arrays: Sequence[Array], spread: float
) -> Array:
    """Return the value of an expression, or of both sides of a constraint, flat.

    The private objects `data` have the values `arrays`, and variables have made-up values of size
    `spread`. The result is nan if the expression has no value there.
    """
    places: dict[int, Any] = {id(p): cp.Constant(a) for p, a in zip(data, arrays, strict=True)}
    for k, v in enumerate(tree.variables()):
        places[id(v)] = cp.Constant(v.project(spread * _waves(v.shape, 50 + k)))
    with np.errstate(all="ignore"):
        copy = tree.tree_copy(places)
        sides = [copy] if isinstance(copy, cp.Expression) else copy.args
        # Atoms may refuse made-up numbers, such as matrices that are not symmetric.
        values = attempt(lambda: [side.value for side in sides])
    if values is None or any(value is None for value in values):
        return np.array([np.nan])
    return np.concatenate([real_entries(value) for value in values])


def _of_tree(agent: WrittenAgent) -> sp.csr_array | None:
    """Return the matrix M of a model that `parameter_columns` cannot treat; None without data.

    Its rows are the largest subexpressions that are affine in the data and contain no variables.
    """
    trees = [agent.cost, *(arg for c in agent.constraints for arg in c.args)]
    expressions = [e for tree in trees for e in _without_variables(tree)]
    if not expressions:
        return None
    return sp.csr_array(sp.vstack([_matrix(agent, e) for e in expressions]))


def _without_variables(tree: Any) -> Iterator[cp.Expression]:
    """Yield the largest subexpressions that are affine in data alone, and all other data."""
    if not tree.parameters():
        return
    if not tree.args or (not tree.variables() and _affine(tree)):
        yield tree
        return
    for arg in tree.args:
        yield from _without_variables(arg)


def _affine(expression: cp.Expression) -> bool:
    places = {id(p): free(p) for p in expression.parameters()}
    copy = put(expression, places)
    return copy is not None and bool(copy.is_affine())


def _matrix(agent: WrittenAgent, expression: cp.Expression) -> sp.csr_array:
    """Return the matrix of an affine expression of the data, shape (its size, size of the data)."""
    used = {p.id for p in expression.parameters()}
    if isinstance(expression, cp.Parameter):
        sizes = [(expression.size, spec.size) for spec in agent.specs]
        pairs = zip(agent.data, sizes, strict=True)
        blocks = [sp.eye_array(*n) if p.id in used else sp.csr_array(n) for p, n in pairs]
        return sp.csr_array(sp.hstack(blocks))
    zeros: dict[int, Any] = {id(p): cp.Constant(np.zeros(p.shape)) for p in agent.data}

    def valued(places: dict[int, Any]) -> Array:
        return real_entries(expression.tree_copy({**zeros, **places}).value)

    base, columns = valued({}), []
    for parameter, spec in zip(agent.data, agent.specs, strict=True):
        if parameter.id not in used:
            columns.append(sp.csc_array((base.size, spec.size)))
            continue
        moved = []
        for j in range(spec.size):
            unit = np.zeros(spec.size)
            unit[j] = 1.0
            moved.append(valued({id(parameter): cp.Constant(spec.shaped(unit))}) - base)
        columns.append(sp.csc_array(np.column_stack(moved)))
    return sp.csr_array(sp.hstack(columns))


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
