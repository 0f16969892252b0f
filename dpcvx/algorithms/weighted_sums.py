"""The weighted sums through which a model reads its data: they may be released in their place.

Entries with proportional columns in all that a model reads enter it through one weighted sum. The
sum moves no more than its largest entry does, and noise is added once, not once per entry.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ..model.canonical import parameter_columns
from ..model.matrices import as_array
from .written_model import WrittenAgent, free, integral

Array = NDArray[np.float64]

# Columns that differ by less, relative to their largest entry, are proportional.
_DIGITS = 10
# Entries of what a model reads, and of data that are put in one by one, beyond which the data
# themselves are released.
_MOST, _ONE_BY_ONE = 2_000_000, 2000


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
    if size < 2 or any(spec.symmetric or spec.kind != "real" for spec in agent.specs):
        return None  # whose domains tie entries together
    read = None
    trees = (agent.cost, *agent.constraints)
    if not any(integral(v) for tree in trees for v in tree.variables()):
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
    return bool(expression.tree_copy(places).is_affine())


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
        value = expression.tree_copy({**zeros, **places}).value
        return np.asarray(as_array(value), dtype=float).ravel(order="F")

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
