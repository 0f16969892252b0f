"""Digests of cvxpy trees and declarations, computed from public inputs alone.

Digests use no result of a solver or of LAPACK, so they are equal on all machines. cvxpy copies a
node from its arguments and its ``get_data()``: nodes of one type with equal arguments and data
compute the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from fractions import Fraction
from numbers import Complex, Integral, Real
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from .matrices import BLOCK
from .private import Private

# Sparse matrices with more entries are digested by column, as cvxpy stores them, without a copy.
_MANY = 1 << 18
_PLAIN = frozenset([bool, str, bytes])


class Opaque(Exception):
    """Error for a value that contains an object of a type without a digest."""


def digest_of(value: Any, places: Mapping[int, str] | None = None) -> bytes:
    """Return a digest of a value, equal for values that are made of equal parts.

    Parameters
    ----------
    value : cvxpy tree, dataclass, array, number, text, or sequence or mapping of such
    places : mapping of int to str, optional
        Texts that replace variables and private objects, by cvxpy id, so that the digest depends
        neither on ids nor on names.

    Raises
    ------
    Opaque
        If the value contains an object of another type.
    """
    return _Walk(places or {}).digest(value)


def nodes_of(tree: Any) -> Iterator[Any]:
    """Yield every node of a cvxpy tree once, with the nodes of the set of a ``cp.suppfunc``."""
    nodes, seen = [tree], set[int]()
    while nodes:
        node = nodes.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        # cp.partial_optimize holds a problem, whose arguments are an objective and a list.
        nodes += [node.objective, *node.constraints] if isinstance(node, cp.Problem) else node.args
        nodes += getattr(getattr(node, "_parent", None), "constraints", ())  # of cp.suppfunc
        yield node


def constants_of(node: Any) -> list[cp.Expression]:
    """Return expressions that an atom takes as constants, such as an exponent."""
    return [part for part in node.get_data() or () if isinstance(part, cp.Expression)]


class _Walk:
    """Computation of digests that visits every node once, even if several trees share a node."""

    def __init__(self, places: Mapping[int, str]) -> None:
        self._places = places
        # Nodes are kept with their digests, so that no new object reuses an id.
        self._known: dict[int, tuple[Any, bytes]] = {}
        self._shapes: dict[tuple[int, ...], bytes] = {}

    def digest(self, value: Any) -> bytes:
        kind = type(value)
        # Most values are plain, and testing whether they are expressions is slower than a digest.
        if value is None:
            return _NONE
        if kind is list or kind is tuple:
            return _hashed("sequence", *map(self.digest, value)) if value else _EMPTY
        if kind is int:
            small = 0 <= value < len(_NUMBERS)
            return _NUMBERS[value] if small else _hashed("number", repr(value))
        if kind in _PLAIN:
            return _hashed(kind.__name__, repr(value))
        if kind is float:
            return _number(value)
        entry = self._known.get(id(value))
        if entry is not None:
            return entry[1]
        if kind is np.ndarray:
            return _array(value)
        if isinstance(value, (cp.Expression, cp.Constraint, cp.Minimize, cp.Maximize)):
            entry = self._known[id(value)] = value, self._node(value)
            return entry[1]
        if value is Ellipsis or isinstance(value, (bool, np.bool_, str, bytes)):
            return _hashed(type(value).__name__.removesuffix("_"), repr(value))
        if isinstance(value, Integral):
            return _hashed("number", repr(int(value)))
        if isinstance(value, Fraction):
            return _hashed("number", str(value))
        if isinstance(value, Real):
            return _number(float(value))
        if isinstance(value, Complex):
            return _hashed("complex", _number(float(value.real)), _number(float(value.imag)))
        if isinstance(value, np.ndarray) or sp.issparse(value):
            return _array(value)
        if isinstance(value, (list, tuple)):
            return _hashed("sequence", *map(self.digest, value))
        if isinstance(value, slice):
            return _hashed("slice", *map(self.digest, (value.start, value.stop, value.step)))
        if isinstance(value, Mapping):
            pairs = ((self.digest(k), self.digest(v)) for k, v in value.items())
            return _hashed("mapping", *(part for pair in sorted(pairs) for part in pair))
        if is_dataclass(value) and not isinstance(value, type):
            # A field added later counts only if it is not its default, so old digests stay valid.
            held = (
                (f, getattr(value, f.name))
                for f in fields(value)
                if "later" not in f.metadata or getattr(value, f.name) != f.default
            )
            parts = ((f.name, self.digest(part)) for f, part in held)
            digest = _hashed(_kind(value), *(part for pair in parts for part in pair))
            self._known[id(value)] = value, digest
            return digest
        raise Opaque(type(value).__name__)

    def _node(self, node: Any) -> bytes:
        if isinstance(node, (cp.Variable, Private)):
            # Attributes of private objects are part of their declaration.
            attributes = {} if isinstance(node, Private) else node.attributes
            given = {k: v for k, v in attributes.items() if v is not None and v is not False}
            if node.id not in self._places:  # it is in an atom that does not list it
                raise Opaque(type(node).__name__)
            return _hashed(
                "leaf", self._places[node.id], self._shape(node.shape), self.digest(given)
            )
        if isinstance(node, (cp.Constant, cp.Parameter)):
            return _hashed("value", self._shape(node.shape), self.digest(node.value))
        held = node.get_data() or []
        if isinstance(node, cp.Constraint):
            *held, _ = held  # the last item is the constraint's id
        shape = self._shape(getattr(node, "shape", ()))
        return _hashed(_kind(node), shape, *map(self.digest, (list(node.args), list(held))))

    def _shape(self, shape: tuple[int, ...]) -> bytes:
        """Return the digest of a shape, computed once per shape."""
        if shape not in self._shapes:
            self._shapes[shape] = self.digest(shape)
        return self._shapes[shape]


def _kind(value: Any) -> str:
    """Return the qualified name of a value's type, without module for classes of dpcvx."""
    module = type(value).__module__
    package = __name__.partition(".")[0]
    is_known = module == package or module.startswith(f"{package}.")
    return f"{package if is_known else module}.{type(value).__qualname__}"


def _array(value: Any) -> bytes:
    """Return the digest of an array: numbers as floats, indices as integers of one size.

    Boolean arrays have digests of their own, because an index of booleans is a mask.
    """
    if value.dtype.kind == "c" and not sp.issparse(value):
        return _hashed("complex", _array(value.real), _array(value.imag))
    if value.dtype.kind == "c":
        return _hashed(
            "complex", _array(sp.coo_array(value.real)), _array(sp.coo_array(value.imag))
        )
    if value.dtype.kind not in "biuf":
        raise Opaque(value.dtype.name)
    array, sparse = ("mask", "sparse mask") if value.dtype.kind == "b" else ("array", "sparse")
    shape = repr(tuple(int(n) for n in value.shape))
    if not sp.issparse(value):
        return _hashed(array, shape, np.asarray(value, dtype="<f8").tobytes())
    if value.ndim == 2 and value.nnz > _MANY:
        columns = sp.csc_array(value)
        if not columns.has_canonical_format:
            columns = columns.copy()
            columns.sum_duplicates()
        parts = columns.indptr, columns.indices
        values = np.ascontiguousarray(columns.data, dtype="<f8").data
        return _hashed(f"{sparse} columns", shape, values, *parts)
    sorted_ = sp.coo_array(value).tocsr() if value.ndim == 2 else sp.coo_array(value)
    sorted_.sum_duplicates()
    places = sorted_.tocoo().coords
    indices = (np.asarray(index, dtype="<i8").tobytes() for index in places)
    return _hashed(sparse, shape, np.asarray(sorted_.data, dtype="<f8").tobytes(), *indices)


def _number(value: float) -> bytes:
    return _hashed("number", repr(int(value) if value.is_integer() else value))


def _hashed(*parts: str | bytes | memoryview | NDArray[np.integer]) -> bytes:
    """Return the digest of a sequence of texts, bytes and arrays of indices."""
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, np.ndarray):  # block by block, without a copy of the whole array
            digest.update(_length(8 * part.size))
            for first in range(0, part.size, BLOCK):
                digest.update(np.ascontiguousarray(part[first : first + BLOCK], dtype="<i8").data)
            continue
        text = part.encode() if isinstance(part, str) else part
        size = text.nbytes if isinstance(text, memoryview) else len(text)
        digest.update(_LENGTHS[size] if size < len(_LENGTHS) else _length(size))
        digest.update(text)
    return digest.digest()


def _length(size: int) -> bytes:
    return size.to_bytes(8, "little")


# Encoded lengths of short parts, and digests of frequent values.
_LENGTHS = tuple(map(_length, range(64)))
_NONE, _EMPTY = _hashed("NoneType", "None"), _hashed("sequence")
_NUMBERS = tuple(_hashed("number", repr(value)) for value in range(64))
