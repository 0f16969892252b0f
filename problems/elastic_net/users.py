"""Synthetic users of the experiment, with one feature vector and one target each."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

import dpcvx as dp
from dpcvx._arguments import finite, is_int, positive_finite

from ..papers import entry

Floats = NDArray[np.float64]
_SIZES, _DRAWN = entry("chan_xie_zhao", "sizes"), entry("chan_xie_zhao", "users")

# Standard deviations of the noise in targets that the public bound of a target includes.
_ROOM = 6.0


@dataclass(frozen=True, eq=False)
class Users:
    """Users i with the loss ``(a_i'x - b_i)^2``.

    Attributes
    ----------
    features : ndarray, shape (N, n)
        Rows a_i of l2 norm ``sqrt(mu)``.
    targets : ndarray, shape (N,)
        Targets b_i.
    truth : ndarray, shape (n,)
        Vector x' with ``b_i = a_i'x'`` plus noise.
    mu : float
        Squared norm of the a_i.
    target_bound : float
        Public bound of targets; larger targets are scaled down if privacy rests on the bound.
    """

    features: Floats
    targets: Floats
    truth: Floats
    mu: float
    target_bound: float

    @property
    def count(self) -> int:
        """Number of users, N."""
        return len(self.targets)

    @property
    def size(self) -> int:
        """Number of features, n."""
        return self.features.shape[1]


def made_users(
    users: int = _SIZES.whole("N"),
    size: int = _SIZES.whole("n"),
    *,
    mu: float = 0.25,
    noise: float = _SIZES.number("sigma_b"),
    seed: int = 0,
) -> Users:
    """Draw users as in section 10; draws do not depend on `mu`.

    The first fifth of the features is 50 times as large as the others before scaling, and 3 in x'.
    (The code of the paper also centers every a_i, which its text does not.)

    Parameters
    ----------
    users, size : int
        Number of users N, and number of features n, at least 5.
    mu : float
        Squared norm of the a_i, so that the losses are ``2 mu``-smooth.
    noise : float
        Standard deviation of the noise in targets.
    seed : int
        Seed of the draws.

    Raises
    ------
    dp.ModelError
        If an argument is out of range.
    """
    if not is_int(users, 1) or not is_int(size, 5):
        raise dp.ModelError(
            f"users={users!r} and size={size!r} must be whole numbers, of users at least 1 and of "
            "features at least 5, the first fifth of which decides the targets."
        )
    if not positive_finite(mu) or not finite(noise) or noise < 0:
        raise dp.ModelError(
            f"mu={mu!r} must be positive, and noise={noise!r} at least 0, both finite: they are "
            "the squared norm of every user's features and the deviation of the targets."
        )
    rng = np.random.default_rng(seed)
    first = size // _DRAWN.whole("fraction")
    drawn = rng.normal(size=(users, size))
    drawn[:, :first] *= _DRAWN.number("large")
    features = math.sqrt(mu) * drawn / np.linalg.norm(drawn, axis=1, keepdims=True)
    truth = np.where(np.arange(size) < first, _DRAWN.number("truth"), 0.0)
    targets = features @ truth + noise * rng.normal(size=users)
    bound = _DRAWN.number("truth") * math.sqrt(mu * first) + _ROOM * noise
    return Users(features, targets, truth, float(mu), bound)
