"""Public prior knowledge of private data: mean and standard deviation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._arguments import pairs, show
from ..errors import ModelError
from ..guard import frameless
from .declaration import Declaration, matching
from .private import Private
from .sealed import real_array
from .spec import PrivateSpec

Array = NDArray[np.float64]


@frameless
@dataclass(frozen=True, eq=False, repr=False)
class Prior:
    """Public expectations of private data, for plans that release the data once.

    The server moves the released values towards the prior mean, which improves the solution if the
    prior is about right. The guarantee holds even if it is wrong. The prior must not be computed
    from the private data.

    Parameters
    ----------
    mean : array_like, or float for all entries
        Prior mean, in the shape of the data.
    std : array_like or float, optional
        Standard deviation of the data around `mean`, from public knowledge; 0 for an entry that is
        publicly known. No released value moves by more than twice the standard deviation of its
        noise, so a wrong mean costs little accuracy. If omitted, it is estimated from the released
        values.

    Raises
    ------
    ModelError
        If these are no finite numbers, or a standard deviation is negative.
    """

    mean: ArrayLike
    std: ArrayLike | None = None

    def __post_init__(self) -> None:
        mean = _numbers("mean", self.mean)
        object.__setattr__(self, "mean", mean)
        if self.std is None:
            return
        spread = _numbers("std", self.std)
        if (spread < 0).any():
            raise ModelError(
                "dp.Prior(std=...) is a standard deviation and has entries below zero. Write "
                "the typical distance of the data from their mean, or 0 for known entries."
            )
        object.__setattr__(self, "std", spread)

    def __repr__(self) -> str:
        return f"Prior(mean={show(self.mean)}, std={show(self.std)})"


@dataclass(frozen=True, eq=False)
class Expectation:
    """Prior means and standard deviations of the stored entries of a private object.

    Attributes
    ----------
    mean : ndarray, shape (size,)
        Prior mean of each entry.
    spread : ndarray, shape (size,), or None
        Standard deviation of each entry; None if the user passed none.
    fitted : bool
        Whether the mean is multiplied by a factor that is fitted to the released values.
    """

    mean: Array
    spread: Array | None
    fitted: bool = False


Expectations = Mapping[str, tuple[Expectation | None, ...]]


def expectations(
    problem: Declaration, expected: Mapping[Private | str, Prior] | None
) -> Expectations:
    """Return the priors of every agent's private objects, by agent; empty if there are none.

    Raises
    ------
    ModelError
        If `expected` is no mapping of private objects or their names to `Prior`.
    DataError
        If a mean does not fit the declaration of its object.
    """
    if expected is None:
        return {}
    given = pairs(expected)
    if given is None or not all(
        isinstance(key, (Private, str)) and isinstance(value, Prior) for key, value in given
    ):
        raise ModelError(
            "prior= is a mapping of private objects or their names to dp.Prior, such as "
            "prior={'load': dp.Prior(forecast, std=0.1)}."
        )
    given_priors = dict(matching(problem, dict(given), "prior"))
    if not given_priors:
        return {}
    by_agent: dict[str, tuple[Expectation | None, ...]] = {}
    for name, agent in problem.named.items():
        specs = agent.specs(name)
        for private in agent.kept:
            if private in given_priors:
                raise ModelError(
                    f"prior= has a value for '{specs[private].name}', which is never released: "
                    f"only recourse= of agent '{name}' uses it. Leave it out of prior=."
                )
        by_agent[name] = tuple(
            _kept(given_priors[private], specs[private]) if private in given_priors else None
            for private in agent.private
        )
    return by_agent


def _kept(expected: Prior, spec: PrivateSpec) -> Expectation:
    mean = _spread_out(expected.mean, spec, "mean")
    mean_of = spec.checked(mean, "The values in dp.Prior(mean)")
    if expected.std is None:
        return Expectation(mean_of, None)
    return Expectation(mean_of, spec.kept(_spread_out(expected.std, spec, "std")))


def _spread_out(values: ArrayLike, spec: PrivateSpec, name: str) -> Array:
    """Return a prior's values in the shape of the private data `name`; one number is repeated."""
    array = np.asarray(values)
    if array.ndim and array.shape != spec.shape:
        raise ModelError(
            f"dp.Prior({name}=...) of private '{spec.name}' has shape {array.shape}, but the "
            f"data were declared with shape {spec.shape}. Pass an array of that shape, or one "
            "number for all entries."
        )
    return np.array(np.broadcast_to(array, spec.shape), dtype=np.float64, order="F")


def _numbers(name: str, values: ArrayLike) -> Array:
    array = real_array(values)
    if array is None or not np.isfinite(array).all():
        raise ModelError(
            f"dp.Prior({name}={show(values)}) must be finite real numbers: an array in the "
            "shape of the data, or one number for all entries."
        )
    array.flags.writeable = False
    return array
