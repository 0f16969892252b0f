"""Gradients of many objectives of one form: all at once, or one by one where data are sparse."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp

from .behind_the_door import BehindTheDoor
from .matrices import Array, Data, zeros
from .normal_form import Clip, NormalForm
from .stacked import StackedObjective


def objective_of_all(
    form: NormalForm, data: Sequence[Sequence[Data]], clips: Sequence[Clip]
) -> StackedObjective | OneByOne:
    """The objectives of agents that differ in data only.

    Parameters
    ----------
    form : NormalForm
    data : sequence of sequence of (ndarray or csr_array)
        Per agent, one per private parameter.
    clips : sequence of Clip
    """
    if any(sp.issparse(part) for own in data for part in own):
        return OneByOne(form, data, clips)
    return StackedObjective(form, [np.stack(parts) for parts in zip(*data, strict=True)], clips)


def at_zero_of_all(
    form: NormalForm, like: StackedObjective | OneByOne
) -> StackedObjective | OneByOne:
    """The public function f(.; 0), to be evaluated at a point of each agent's.

    Parameters
    ----------
    form : NormalForm
    like : StackedObjective or OneByOne
        The agents' objectives, in whose way it is evaluated.
    """
    blank = [zeros(spec.size) for spec in form.private]
    if isinstance(like, OneByOne):
        return OneByOne(form, [blank] * len(like), ())
    return StackedObjective(form, [part[np.newaxis] for part in blank], ())


class OneByOne(BehindTheDoor):
    """What `StackedObjective` computes, for data that are not stacked.

    Holds private data: lives behind the door only, and neither prints nor pickles.

    Parameters
    ----------
    form : NormalForm
    data : sequence of sequence of (ndarray or csr_array)
    clips : sequence of Clip
    """

    def __init__(
        self, form: NormalForm, data: Sequence[Sequence[Data]], clips: Sequence[Clip]
    ) -> None:
        self._all = [form.bind(own, clips, limited=True) for own in data]

    def gradients(self, x: Array) -> Array:
        """One (sub)gradient of every objective, shape (agents, n).

        Parameters
        ----------
        x : ndarray, shape (n,) or (agents, n)
            One point for all, or one of each.
        """
        points = np.broadcast_to(x, (len(self._all), x.shape[-1]))
        pairs = zip(self._all, points, strict=True)
        return np.array([objective.gradient(point) for objective, point in pairs])

    def __len__(self) -> int:
        return len(self._all)

    def __repr__(self) -> str:
        return f"OneByOne(agents={len(self._all)})"
