"""Documents and messages as bytes: trees of named records and raw arrays. No pickle, no code.

A frame is a header of 48 bytes, a tree and arrays, one after the other:

======  =====  ==========================================================================
offset  bytes  content
======  =====  ==========================================================================
0       4      ``dpxD``: the format and its version
4       4      length of the tree, unsigned, little-endian
8       8      length of all arrays together, unsigned, little-endian
16      32     BLAKE2b digest of the sixteen bytes before it, the tree and the arrays
48             the tree, JSON in UTF-8
               the arrays, little-endian, in the order of their names in the tree
======  =====  ==========================================================================

In the tree, numbers, texts, true, false and null stand for themselves. Any other value is a list
that begins with its kind: ``["()", ...]`` is a tuple, ``["[]", ...]`` a list, ``["#", type, shape,
order]`` the next array, ``["0", shape]`` zeros that take no memory, ``["csr", shape, data, indices,
indptr]`` and ``"csc"`` sparse matrices, ``["float", "nan"]`` a number that JSON does not have,
``["slice", start, stop, step]`` a slice, ``["rule", name]`` an atom's rule, ``["outcome", name]``
the outcome of a solve. Any other kind is the name of a record in `RECORDS`, followed by its fields.

A record that is not in that table can be neither written nor read. Every field of a record must be
of the type that the record declares.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
import struct
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import IO, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ..algorithms.networks import Network
from ..algorithms.program import LocalProgram
from ..errors import DpcvxError, RefusedError
from ..model.atoms import Rule, rule_named
from ..model.layout import Layout
from ..model.matrices import is_blank
from ..model.private_constraints import PrivateConstraint
from ..solvers.conic import Outcome
from .messages import refused
from .records import KINDS, RECORDS, RULES

MAGIC = b"dpxD"
_HEADER = struct.Struct("<4sIQ32s")
# Smallest number of bytes of a frame.
HEADER = _HEADER.size
# Largest number of bytes of a frame, and of entries of an array of zeros.
LARGEST = 1 << 30
_DEEPEST = 60
_BEYOND = 1 << 63
_DTYPES = {kind: np.dtype(kind) for kind in ("<f8", "<i8", "<i4", "<u8")}


def encode(value: Any, largest: float = LARGEST) -> bytes:
    """Encode a record, or a value that a record's field may have, as a frame of bytes.

    Parameters
    ----------
    value : object
        Record or value.
    largest : float
        Largest number of bytes of the frame; infinite for a file that only its writer reads.

    Raises
    ------
    RefusedError
        With code "unreadable", if the value holds a type that no frame can hold; with code "large",
        if the frame would have too many bytes.
    """
    arrays: list[bytes] = []
    tree = json.dumps(_written(value, arrays, 0), separators=(",", ":"), ensure_ascii=False)
    text, raw = tree.encode(), b"".join(arrays)
    _require_small(_HEADER.size + len(text) + len(raw), "bytes of a frame", largest)
    front = _HEADER.pack(MAGIC, len(text), len(raw), b"")[:16]
    return b"".join([front, _digest(front, text, raw), text, raw])


def decode(frame: bytes | memoryview, largest: float = LARGEST) -> Any:
    """Decode the record or value in a frame of bytes; see `encode`.

    Parameters
    ----------
    frame : bytes or memoryview
    largest : float
        Largest number of bytes of the frame; see `encode`.

    Raises
    ------
    RefusedError
        With code "version" if the frame is of another version of the format, "altered" if its
        length or digest does not match, "large" if the frame or an array in it is too large,
        "unreadable" if its contents are invalid.
    """
    view = memoryview(frame)
    if len(view) < _HEADER.size or view[:3] != MAGIC[:3]:
        raise refused("unreadable", "the bytes do not begin as a frame")
    magic, length, more, digest = _HEADER.unpack_from(view)
    if magic != MAGIC:
        raise refused("version", "a frame of another version")
    _require_small(len(view), "bytes of a frame", largest)
    if len(view) != _HEADER.size + length + more:
        raise refused("altered", "the frame's length is not the one in its header")
    text = view[_HEADER.size : _HEADER.size + length]
    raw = view[_HEADER.size + length :]
    if digest != _digest(view[:16], text, raw):
        raise refused("altered", "the frame's digest is not the one in its header")
    try:
        reader = _Reader(raw)
        value = reader.read(json.loads(bytes(text)), 0)
    except RefusedError:
        raise
    except (DpcvxError, ArithmeticError, LookupError, TypeError, ValueError, RecursionError) as e:
        # Constructors raise errors of all these types for invalid fields.
        raise refused(
            "unreadable", f"the contents do not form a record: {type(e).__name__}"
        ) from None
    if reader.rest:
        raise refused("unreadable", "the frame has arrays that no field refers to")
    return value


def frames_in(file: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield the complete frames at the beginning of a file, each with its offset in bytes.

    Parameters
    ----------
    file : binary file
        Read from its beginning; one frame at a time is in memory.
    """
    number, offset = file.fileno(), 0
    whole = os.fstat(number).st_size
    while (size := size_in(os.pread(number, HEADER, offset))) and offset + size <= whole:
        yield offset, os.pread(number, size, offset)
        offset += size


def size_in(front: bytes) -> int:
    """Return a frame's number of bytes from its header; 0 if the header is not complete."""
    if len(front) < HEADER:
        return 0
    _, length, more, _ = _HEADER.unpack_from(front)
    return HEADER + length + more


def digest(value: Any) -> str:
    """Return the BLAKE2b digest of a value's frame, in hexadecimal digits."""
    return hashlib.blake2b(encode(value), digest_size=32).hexdigest()


def portable(local: LocalProgram) -> LocalProgram:
    """Return an agent's program with variables numbered by position: cvxpy's ids vary."""
    places = {p.variable: k for k, p in enumerate(local.layout.pieces)}

    def moved(layout: Layout) -> Layout:
        return Layout(tuple(replace(p, variable=places[p.variable]) for p in layout.pieces))

    # Plans with constraints at corners have agents in one place, so these never cross.
    crossing = (limit for limit in local.limits if isinstance(limit, PrivateConstraint))
    limits = tuple(replace(limit, layout=moved(limit.layout)) for limit in crossing)
    return replace(local, layout=moved(local.layout), limits=limits)


def _digest(*parts: bytes | memoryview) -> bytes:
    digest = hashlib.blake2b(digest_size=32)
    for part in parts:
        digest.update(part)
    return digest.digest()


def _written(value: Any, arrays: list[bytes], depth: int) -> Any:
    if depth > _DEEPEST:
        raise refused("unreadable", "records are nested too deeply")
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, Outcome):
        return ["outcome", value.name]
    if isinstance(value, (int, np.integer)):
        return _whole(int(value))
    if isinstance(value, (float, np.floating)):
        number = float(value)
        return number if math.isfinite(number) else ["float", repr(number)]
    if isinstance(value, np.ndarray):
        return _array(value, arrays)
    if isinstance(value, (sp.csr_array, sp.csc_array)):
        _require_small(max(value.shape), "rows or columns of a matrix")
        parts = (value.data, value.indices, value.indptr)
        return [value.format, list(value.shape), *(_array(np.asarray(p), arrays) for p in parts)]
    if isinstance(value, (tuple, list)):
        kind = "()" if isinstance(value, tuple) else "[]"
        return [kind, *(_written(item, arrays, depth + 1) for item in value)]
    if isinstance(value, Rule):
        return ["rule", value.name]
    if isinstance(value, slice):
        return ["slice", value.start, value.stop, value.step]
    name = KINDS.get(type(value))
    if name is None:
        raise refused("unreadable", f"a frame cannot hold a {type(value).__name__}")
    fields = (getattr(value, f) for f in _FORMS[name].names)
    return [name, *(_written(field, arrays, depth + 1) for field in fields)]


def _array(value: NDArray[Any], arrays: list[bytes]) -> list[Any]:
    _require_small(value.size, "entries of an array")
    if value.dtype == float and is_blank(value):
        return ["0", list(value.shape)]
    kind = value.dtype.newbyteorder("<").str
    if kind not in _DTYPES:
        raise refused("unreadable", f"a frame cannot hold an array of {value.dtype}")
    turned = value.ndim > 1 and value.flags.f_contiguous and not value.flags.c_contiguous
    order: Any = "F" if turned else "C"
    arrays.append(value.astype(_DTYPES[kind], copy=False).tobytes(order=order))
    return ["#", kind, list(value.shape), order]


def _whole(value: Any) -> int:
    if type(value) is not int or not -_BEYOND <= value < _BEYOND:
        raise refused("unreadable", "a whole number was expected, of at most 64 bits")
    return value


class _Reader:
    """Reader of a frame's tree of records; it copies arrays, so the frame may change later."""

    def __init__(self, raw: memoryview) -> None:
        self.rest = raw

    def read(self, tree: Any, depth: int) -> Any:
        if depth > _DEEPEST:
            raise refused("unreadable", "records are nested too deeply")
        if type(tree) is float:
            return _finite(tree)
        if type(tree) is int:
            return _whole(tree)
        if isinstance(tree, str):
            tree.encode()  # raises for a lone surrogate, which JSON can escape
            return tree
        if tree is None or tree is True or tree is False:
            return tree
        kind, *parts = _kind(tree)
        if kind in _SINGLE:
            return _SINGLE[kind](self, *parts)
        read = [self.read(part, depth + 1) for part in parts]
        if kind == "()":
            return tuple(read)
        if kind == "[]":
            return read
        return _FORMS[kind].made(read)

    def array(self, kind: Any, shape: Any, order: Any) -> NDArray[Any]:
        dtype, sizes = _DTYPES[_text(kind)], _shape(shape)
        size = math.prod(sizes) * dtype.itemsize
        if size > len(self.rest) or order not in ("C", "F"):
            raise refused(
                "unreadable",
                "an array is longer than the rest of the frame, or its order is unknown",
            )
        flat = np.frombuffer(self.rest[:size], dtype)
        self.rest = self.rest[size:]
        native = flat.astype(dtype.newbyteorder("="))
        return native.reshape(sizes, order=order)

    def zeros(self, shape: Any) -> NDArray[np.float64]:
        sizes = _shape(shape)
        if math.prod(sizes) < 2:
            raise refused("unreadable", "an array of zeros has fewer than 2 entries")
        return np.broadcast_to(0.0, sizes)

    def rows(self, *parts: Any) -> sp.csr_array:
        return sp.csr_array(self._compressed(0, *parts), copy=False)

    def columns(self, *parts: Any) -> sp.csc_array:
        return sp.csc_array(self._compressed(1, *parts), copy=False)

    def _compressed(
        self, minor: int, shape: Any, data: Any, indices: Any, indptr: Any
    ) -> sp.csr_array | sp.csc_array:
        sizes, read = _sides(shape), [self.read(part, 0) for part in (data, indices, indptr)]
        values, index, ends = read
        # Some invalid arrays pass scipy's checks and then crash the process: check them here.
        good = (
            len(sizes) == 2
            and all(isinstance(part, np.ndarray) and part.ndim == 1 for part in read)
            and values.dtype == np.float64
            and index.dtype == ends.dtype
            and index.dtype.kind == "i"
            and ends.size == sizes[minor] + 1
            and ends[0] == 0
            and ends[-1] == values.size == index.size
            and bool((ends[1:] >= ends[:-1]).all())
            and bool((index >= 0).all() and (index < sizes[1 - minor]).all())
        )
        if not good:
            raise refused("unreadable", "the parts of a sparse matrix do not fit together")
        make = sp.csr_array if minor == 0 else sp.csc_array
        return make((values, index, ends), shape=sizes, copy=False)


def _kind(tree: Any) -> list[Any]:
    if not isinstance(tree, list) or not tree or not isinstance(tree[0], str):
        raise refused("unreadable", "a list does not begin with the name of its kind")
    return tree


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise refused("unreadable", "a text was expected")
    return value


def _shape(shape: Any) -> tuple[int, ...]:
    """Return the shape of an array; refuse too many entries, even if the frame stores none.

    A frame stores no entries of an array of zeros.
    """
    sizes = _sides(shape)
    _require_small(math.prod(sizes), "entries of an array")
    return sizes


def _sides(shape: Any) -> tuple[int, ...]:
    """Return the shape of a matrix; refuse it if one dimension is too large.

    The number of entries is not limited, since a sparse matrix stores few of them.
    """
    if not isinstance(shape, list) or len(shape) > 4:
        raise refused(
            "unreadable", "a shape was expected: a list of at most 4 whole numbers from 0 on"
        )
    if not all(type(n) is int and n >= 0 for n in shape):
        raise refused(
            "unreadable", "a shape was expected: a list of at most 4 whole numbers from 0 on"
        )
    _require_small(max(shape, default=0), "rows or columns of a matrix")
    return tuple(shape)


def _require_small(count: int, what: str, largest: float = LARGEST) -> None:
    if count > largest:
        raise refused("large", f"{count} {what}, at most {largest:.0f}")


def _finite(value: float) -> float:
    if not math.isfinite(value):  # Python's JSON reads them; this format has the kind "float"
        raise refused(
            "unreadable", "a finite number was expected, or 'nan', 'inf' or '-inf' as text"
        )
    return value


def _number(said: Any) -> float:
    if said not in ("nan", "inf", "-inf"):
        raise refused(
            "unreadable", "a finite number was expected, or 'nan', 'inf' or '-inf' as text"
        )
    return float(said)


def _bounds(start: Any, stop: Any, step: Any) -> slice:
    return slice(*(None if part is None else _whole(part) for part in (start, stop, step)))


_SINGLE: dict[str, Callable[..., Any]] = {
    "#": _Reader.array,
    "0": _Reader.zeros,
    "csr": _Reader.rows,
    "csc": _Reader.columns,
    "float": lambda _, said: _number(said),
    "rule": lambda _, name: rule_named(_text(name)),
    "outcome": lambda _, name: Outcome[_text(name)],
    "slice": lambda _, *parts: _bounds(*parts),
}


class _NoGraphs:
    """Placeholder for networkx, which methods import only for type hints; no frame has a graph."""

    class Graph:
        """Placeholder for `networkx.Graph`; no value is an instance."""


Check = Callable[[Any], bool]


@dataclass(frozen=True, eq=False)
class _Form:
    """Kind of record: its class, the names and types of its fields, and checks of their values."""

    cls: type
    names: tuple[str, ...]
    hints: tuple[Any, ...]
    checks: tuple[Check, ...]

    def made(self, values: Sequence[Any]) -> Any:
        if len(values) != len(self.names):
            raise refused("unreadable", "a record has more or fewer fields than its kind")
        for value, fits in zip(values, self.checks, strict=True):
            if not fits(value):
                raise refused("unreadable", "a field has another type than its kind declares")
        made = self.cls(**dict(zip(self.names, values, strict=True)))
        # If a constructor changed a field, one record would have two different digests.
        for name, value in zip(self.names, values, strict=True):
            field_value = getattr(made, name)
            if field_value is not value and (
                type(field_value) is not type(value) or field_value != value
            ):
                raise refused("unreadable", "a field would not be written as it was read")
        return made


def _form(cls: type) -> _Form:
    hints = typing.get_type_hints(cls, localns={"nx": _NoGraphs, "Network": Network})
    names = tuple(f.name for f in dataclasses.fields(cls) if f.init)
    types_ = tuple(hints[name] for name in names)
    return _Form(cls, names, types_, tuple(map(check_of, types_)))


def check_of(hint: Any) -> Check:
    """Return a function that tells whether a value is of the type that a record's field declares.

    Parameters
    ----------
    hint : type
        Type hint, as `typing.get_type_hints` returns it.

    Returns
    -------
    callable
        Function of a value that returns a truth value.
    """
    origin, inside = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return _is_static
    if hint is object:  # messages of methods: records, or values of their fields
        return lambda value: True
    if origin in (typing.Union, types.UnionType):
        each = tuple(map(check_of, inside))
        return lambda value: any(fits(value) for fits in each)
    if origin is typing.Literal:
        return lambda value: any(
            type(value) is type(member) and value == member for member in inside
        )
    if origin is tuple and not (len(inside) == 2 and inside[1] is Ellipsis):
        each = tuple(map(check_of, inside))
        return lambda value: (
            type(value) is tuple
            and len(value) == len(each)
            and all(fits(item) for fits, item in zip(each, value, strict=True))
        )
    if origin in (tuple, list, Sequence) or hint is Sequence:
        kinds, item_fits = _LISTS.get(origin, (list, tuple)), check_of(inside[0])
        return lambda value: type(value) in kinds and all(map(item_fits, value))
    if origin is np.ndarray:
        wanted = np.dtype(typing.get_args(inside[1])[0])
        return lambda value: isinstance(value, np.ndarray) and value.dtype == wanted
    if hint is None or hint is type(None):
        return lambda value: value is None
    if hint is float:
        return lambda value: type(value) in (float, int)
    if hint is Rule:  # decoded by name, so it is always a rule of the package
        return lambda value: isinstance(value, Rule)
    rule = RULES.get(hint if origin is None else origin)
    if rule is not None:
        return lambda value: type(value) in rule
    if not isinstance(hint, type):
        return lambda value: False
    return lambda value: type(value) is hint or (type(value) in KINDS and isinstance(value, hint))


def _is_static(value: Any) -> bool:
    """Return whether a value is static data of an atom: None, a number, a bool, or their tuples."""
    if type(value) is tuple:
        return all(map(_is_static, value))
    return value is None or type(value) in (bool, int, float)


_LISTS: Mapping[Any, tuple[type, ...]] = {tuple: (tuple,), list: (list,)}
_FORMS: Mapping[str, _Form] = {name: _form(cls) for name, cls in RECORDS.items()}
