"""Entries of cvxpy variables that an agent holds, and their positions in its vector.

The same variable may be indexed differently in different agents. An agent holds exactly the
entries that its expressions can reach; entries held by several agents are shared, found by the
identity of the cvxpy variable.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import cvxpy as cp
import numpy as np
from cvxpy.atoms.affine.add_expr import AddExpression
from cvxpy.atoms.affine.binary_operators import DivExpression
from cvxpy.atoms.affine.index import index, special_index
from cvxpy.atoms.affine.reshape import reshape
from cvxpy.atoms.affine.transpose import transpose
from cvxpy.atoms.affine.unary_operators import NegExpression
from numpy.typing import NDArray

from .matrices import as_array, real_entries

_PICKS = (index, special_index, transpose, reshape)
# Attributes that tie entries together: a holder of one entry needs them all.
_JOINT = ("symmetric", "PSD", "NSD")


@dataclass(frozen=True, eq=False)
class Piece:
    """Entries of one cvxpy variable that an agent holds, as a part of the agent's vector."""

    variable: int  # cvxpy id
    name: str  # name of the variable
    shape: tuple[int, ...]  # of the whole variable; (2 n,) if its n numbers are complex
    entries: NDArray[np.intp]  # shape (k,); column-major positions of the held entries, increasing
    offset: int  # position of the first of them in the agent's vector

    @property
    def stop(self) -> int:
        """Position in the agent's vector just after these entries."""
        return self.offset + self.entries.size

    @property
    def size(self) -> int:
        """Number of entries of the whole cvxpy variable."""
        return int(np.prod(self.shape, dtype=int))

    @property
    def full(self) -> bool:
        """Return whether the agent holds every entry of the variable."""
        return self.entries.size == self.size


@dataclass(frozen=True, eq=False)
class Layout:
    """Positions of variables' entries in an agent's vector x, one `Piece` per variable."""

    pieces: tuple[Piece, ...]

    @property
    def size(self) -> int:
        """Length of the agent's vector x."""
        return self.pieces[-1].stop if self.pieces else 0

    def __getitem__(self, variable: int) -> Piece:
        for piece in self.pieces:
            if piece.variable == variable:
                return piece
        raise KeyError(variable)

    def places(self, part: Layout) -> NDArray[np.intp]:
        """Return the positions in this layout of all components of another layout, `part`.

        This layout has all of them.
        """
        parts = [
            self[piece.variable].offset
            + np.searchsorted(self[piece.variable].entries, piece.entries)
            for piece in part.pieces
        ]
        return np.concatenate(parts)

    def labels(self) -> list[str]:
        """Return the readable name of every component of the agent's vector, such as ``tie[0]``."""
        names: list[str] = []
        for piece in self.pieces:
            if piece.shape == ():
                names.append(piece.name)
                continue
            for i in piece.entries:
                index = np.unravel_index(int(i), piece.shape, order="F")
                names.append(f"{piece.name}[{','.join(str(int(j)) for j in index)}]")
        return names


def layout_of(trees: Iterable[Any]) -> Layout:
    """Return the layout of the entries that objectives, expressions and constraints use."""
    held: dict[int, NDArray[np.bool_]] = {}
    variables: dict[int, cp.Variable] = {}
    for tree in trees:
        _mark(tree, held, variables)
    pieces: list[Piece] = []
    offset = 0
    for key, mask in held.items():
        entries = np.flatnonzero(mask)
        variable = variables[key]
        shape = (2 * variable.size,) if variable.is_complex() else variable.shape
        pieces.append(Piece(key, variable.name(), shape, entries, offset))
        offset += entries.size
    return Layout(tuple(pieces))


def _mark(node: Any, held: dict[int, NDArray[np.bool_]], variables: dict[int, cp.Variable]) -> None:
    if isinstance(node, cp.Variable):
        variables[node.id] = node
        parts = 2 if node.is_complex() else 1
        held.setdefault(node.id, np.zeros(parts * node.size, dtype=bool))[:] = True
        return
    # Constants and parameters are many, and a test of their classes takes a while.
    selection = picked(node) if node.args else None
    if selection is not None:
        variable, positions = selection
        variables[variable.id] = variable
        mask = held.setdefault(variable.id, np.zeros(variable.size, dtype=bool))
        mask[positions.ravel()] = True
        return
    for arg in node.args:
        _mark(arg, held, variables)


def is_sparse(variable: cp.Variable) -> bool:
    """Return whether a variable has sparsity=: a list of positions, or arrays of them."""
    places = variable.attributes["sparsity"]  # arrays have no truth value
    return places is not None and places is not False


@contextmanager
def whole_matrices(variables: Iterable[cp.Variable]) -> Iterator[None]:
    """Silence cvxpy's warning that variables with sparsity= are read as whole matrices.

    Without such a variable the filters stay unchanged: after any change of its filters, Python
    repeats warnings that it has shown once.
    """
    if not any(map(is_sparse, variables)):
        yield
        return
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".* sparse CVXPY expression", RuntimeWarning)
        yield


def projected(variable: cp.Variable, value: NDArray[Any]) -> NDArray[Any]:
    """Return the closest point that the attributes of a variable allow, as a dense array.

    Parameters
    ----------
    variable : cvxpy.Variable
    value : ndarray
        Values of the variable's shape.
    """
    with whole_matrices([variable]):
        return as_array(variable.project(value))


def picked(node: Any) -> tuple[cp.Variable, NDArray[np.intp]] | None:
    """Return the variable and the positions that nested indexing, transposes and reshapes pick.

    The result is None for other expressions.
    """
    if isinstance(node, cp.Variable):
        if any(node.attributes[a] for a in _JOINT) or node.is_complex():
            return None
        return node, np.arange(node.size).reshape(node.shape, order="F")
    if not isinstance(node, _PICKS):
        return None
    inner = picked(node.args[0])
    return None if inner is None else (inner[0], np.asarray(node.numeric([inner[1]]), dtype=int))


def gather(layout: Layout, values: Mapping[int, NDArray[np.float64]]) -> NDArray[np.float64]:
    """Collect an agent's vector from whole variables' values, given by cvxpy id."""
    parts = [real_entries(values[p.variable])[p.entries] for p in layout.pieces]
    return np.concatenate(parts) if parts else np.zeros(0)


def summands(tree: Any, negated: bool = False) -> list[Any]:
    """Return the summands of an expression, or of its negative.

    Parameters
    ----------
    tree : cvxpy expression
    negated : bool
        Whether to return those of the negative.
    """
    if isinstance(tree, AddExpression):
        return [term for argument in tree.args for term in summands(argument, negated)]
    if isinstance(tree, NegExpression):
        return summands(tree.args[0], not negated)
    return [-tree if negated else tree]


def indexed(tree: Any) -> Any:
    """Return the expression that an indexing such as ``d[1:]`` picks entries from; else `tree`.

    Parameters
    ----------
    tree : cvxpy expression
    """
    return tree.args[0] if isinstance(tree, (index, special_index)) else tree


def is_quotient(tree: Any) -> bool:
    """Return whether an expression is a quotient.

    Parameters
    ----------
    tree : cvxpy expression
    """
    return isinstance(tree, DivExpression)
