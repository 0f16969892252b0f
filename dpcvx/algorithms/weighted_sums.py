"""The part of its data that a model reads, which may be released in place of the data.

Entries with proportional columns in all that a model reads enter it through one weighted sum. The
sum moves no more than its largest entry does, and noise is added once, not once per entry. Records
that enter only by their second moments, such as ``X.T @ X`` and ``X.T @ y``, leave as these.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ..model.adjacency import Rows
from ..model.canonical import parameter_columns
from ..model.matrices import real_entries
from ..model.spec import PrivateSpec
from .written_model import WrittenAgent, free, integral, put

Array = NDArray[np.float64]

# Columns that differ by less, relative to their largest entry, are proportional.
_DIGITS = 10
# Entries of what a model reads, and of data that are put in one by one, beyond which the data
# themselves are released.
_MOST, _ONE_BY_ONE = 2_000_000, 2000
# Entries of records that are rotated at most, and how close two values are that count as equal.
_ROTATED, _SAME = 20_000_000, 1e-7


def weighted_sums(agent: WrittenAgent) -> sp.csr_array | None:
    """Return the weighted sums, in units of one change of an entry; None if they are no fewer.

    Parameters
    ----------
    agent : WrittenAgent

    Returns
    -------
    csr_array, shape (s, total size of the data), or None
        Every entry is in one row at most: in none, if the model does not read it.
    """
    size = sum(spec.size for spec in agent.specs)
    tied = (spec.symmetric or spec.is_complex or spec.kind != "real" for spec in agent.specs)
    if size < 2 or any(tied):
        return None  # whose domains tie entries together
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
    """Return whether records enter only by second moments, as in ``X.T @ y``.

    A function of records is one of their second moments if no rotation of the rows of all parts
    together changes it. This is tried for reflections of made-up records, short ones and some as
    long as declared, at made-up values of the variables. The guarantee does not rest on it: second
    moments are released, whoever reads them.

    Parameters
    ----------
    trees : sequence of cvxpy expressions and constraints
        All that read the data.
    data : sequence of cvxpy parameters
        That stand for private objects in them.
    specs : sequence of PrivateSpec
        Specifications of these objects.
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
    """Return made-up numbers around 0 without any pattern of rows or columns."""
    return np.sin((1.0 + k) * np.arange(1.0, 1.0 + np.prod(shape)) ** 1.5).reshape(shape)


def _values(
    tree: Any, data: Sequence[cp.Parameter], arrays: Sequence[Array], spread: float
) -> Array:
    """Return an expression's value, or those of both sides of a constraint; nan without any."""
    places: dict[int, Any] = {id(p): cp.Constant(a) for p, a in zip(data, arrays, strict=True)}
    for k, v in enumerate(tree.variables()):
        places[id(v)] = cp.Constant(v.project(spread * _waves(v.shape, 50 + k)))
    with np.errstate(all="ignore"):
        copy = tree.tree_copy(places)
        sides = [copy] if isinstance(copy, cp.Expression) else copy.args
        values = [side.value for side in sides]
    if any(value is None for value in values):
        return np.array([np.nan])
    return np.concatenate([real_entries(value) for value in values])


def _of_tree(agent: WrittenAgent) -> sp.csr_array | None:
    """Return the matrix of all other agents: the largest affine expressions of data alone."""
    trees = [agent.cost, *(arg for c in agent.constraints for arg in c.args)]
    expressions = [e for tree in trees for e in _without_variables(tree)]
    if not expressions:
        return None
    return sp.csr_array(sp.vstack([_matrix(agent, e) for e in expressions]))


def _without_variables(tree: Any) -> Iterator[cp.Expression]:
    """Yield the largest affine expressions of data alone, and all data outside of them."""
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
    """Return an affine expression of the data, column by column."""
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
