"""Agents on their way to workers that do not share this process's memory.

Where data were given as arrays, these travel; what a callable fetches is read at the worker. All of
it stays with one owner: an executor is no boundary between parties.
"""

from __future__ import annotations

import importlib
import io
import pickle
from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from ...errors import ModelError
from ...model.sealed import Sealed, handed_over
from ...privacy.notes import Notes
from .host import Host

# Entries of an array from which on it is worth a look.
_SHORT = 64


def required(module: str, extra: str) -> Any:
    """A module that comes with an extra of the package.

    Parameters
    ----------
    module, extra : str

    Raises
    ------
    ModelError
        If it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError:
        raise ModelError(
            f"This executor needs the package '{module.split('.')[0]}', which is not installed: "
            f"pip install 'dpcvx[{extra}]'."
        ) from None


def packed(
    factories: Sequence[Callable[[], Any]], agents: Iterable[int], notes: Notes, extra: str
) -> bytes:
    """What a worker makes its agents from.

    Parameters
    ----------
    factories : sequence of callables
        One per agent of the run.
    agents : iterable of int
        Those of the worker.
    notes : Notes
    extra : str
        Of the engine, for errors.
    """
    cloudpickle = required("cloudpickle", extra)  # for functions that fetch data
    own = {Sealed: handed_over, np.ndarray: thinned}
    table = ChainMap(own, cloudpickle.Pickler.dispatch_table)
    kind = type("Pickler", (cloudpickle.Pickler,), {"dispatch_table": table})
    file = io.BytesIO()
    pickler = kind(file, protocol=pickle.HIGHEST_PROTOCOL)
    try:
        pickler.dump(({agent: factories[agent] for agent in agents}, notes))
    except Exception as error:
        why = type(error).__name__
    else:
        return file.getvalue()
    raise ModelError(
        f"The agents cannot be sent to workers: {why}. Its message is withheld, because it may "
        "quote the data. Declare data by functions that can be pickled, such as "
        "dp.Private(functools.partial(numpy.load, 'load.npy'), shape=...)."
    )


def thinned(array: NDArray[Any]) -> Any:
    """How an array is pickled: as one number, or as a first one and a step, where that is all.

    Programs on records hold zeros, weights and positions of that kind, as long as the data.
    """
    flat = array.reshape(-1) if array.flags.c_contiguous else None
    if array.size >= _SHORT and array.dtype.kind in "fiu":
        if not any(array.strides):
            return np.broadcast_to, (array[(0,) * array.ndim], array.shape)
        if flat is not None:
            words = flat.view(f"u{array.itemsize}")  # bits: zeros have signs
            if np.all(words == words[0]):
                return np.full, (array.shape, flat[0], array.dtype)
        if flat is not None and array.ndim == 1 and array.dtype.kind == "i":
            first, step = int(flat[0]), int(flat[1]) - int(flat[0])
            if np.all(np.diff(flat) == step):
                return np.arange, (first, first + step * array.size, step, array.dtype)
    return array.__reduce_ex__(pickle.HIGHEST_PROTOCOL)


class RemoteHost:
    """A `Host` in a process that serves others as well: it limits BLAS within its calls only.

    Parameters
    ----------
    blob : bytes
        See `packed`.
    """

    def __init__(self, blob: bytes) -> None:
        # One thread of BLAS: their number changes the rounding of results.
        self._blas = ThreadpoolController().select(user_api="blas")
        factories: Mapping[int, Callable[[], Any]]
        with self._blas.limit(limits=1):
            factories, notes = pickle.loads(blob)
            self._host = Host(factories, notes)

    def made(self) -> bytes:
        """What came of making the agents."""
        return self._host.made

    def call(self, number: int, method: str, common: Sequence[Any], own: Sequence[Any]) -> bytes:
        """See `Host.call`."""
        with self._blas.limit(limits=1):
            return self._host.call(number, method, common, own)

    def called(self, told: bytes) -> bytes:
        """`call`, with its arguments pickled."""
        return self.call(*pickle.loads(told))
