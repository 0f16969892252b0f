r"""Theorem 9.1's bound, and measurements of the quantity that it bounds.

For :math:`\eta = 1 / \sqrt T`, Algorithm 4, users sampled with replacement, and noise
:math:`\rho = \sigma / \eta` in the gradient,

.. math::
    E[f(\bar x_{[0, T-1]}) - f(x^*) + g(\bar y_{[1, T]}) - g(y^*)
    + \tfrac\beta2 \|\bar x_{[1, T]} - \bar y_{[1, T]}\|^2]
    \le \frac{\beta \|y_0 - y^*\|^2}{2 T} + \frac{\|x_0 - x^*\|^2 + G^2 + n \rho^2}{2 \sqrt T}
    + \frac{n \beta^2 \rho^2}{2 T^{1.5}} + \frac{n \beta \rho^2}{T}

with :math:`E \|\nabla f_i(x)\|^2 \le G^2` at every x. For squares there is no such G. With
gradients clipped to C, f is a mean of Huber losses, G = C, and every constant is known.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .setting import Setting
from .simulation import drawn, iterate
from .study import START, losses, optimum, regularizer
from .users import Users

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Utility:
    """The bound and the measurement. Not private.

    Attributes
    ----------
    iterations : tuple of int
        Numbers of iterations T.
    rho : float
        Noise in the gradient.
    bound : ndarray, shape (K,)
        Right side of the inequality.
    measured : ndarray, shape (K, R)
        Values by repetition; their expectation is the left side.
    """

    iterations: tuple[int, ...]
    rho: float
    bound: Floats
    measured: Floats


def theorem_9_1(
    T: int, *, beta: float, rho: float, G: float, x_distance: float, y_distance: float, n: int
) -> float:
    """Return the right side for A = I and B = -I, from distances of initial point and solution."""
    root = math.sqrt(T)
    return (
        beta * y_distance**2 / (2 * T)
        + (x_distance**2 + G**2 + n * rho**2) / (2 * root)
        + n * beta**2 * rho**2 / (2 * T * root)
        + n * beta * rho**2 / T
    )


def utility(
    users: Users,
    beta: float,
    rho: float,
    iterations: Sequence[int],
    repetitions: int,
    seed: int,
    *,
    radius: float,
) -> Utility:
    """Measure the left side with gradients clipped to `radius`, and compute the right side."""
    solution, minimum = optimum(users, radius)
    bounds, measured = [], []
    for T in iterations:
        setting = Setting(users.mu, beta, sigma=rho / math.sqrt(T), step=1 / math.sqrt(T))
        order, noise = drawn(users, setting.sigma, T, repetitions, seed)
        found = iterate(users, setting, order, noise, radius=radius, x_first=True)
        x, y = found.x[:-1].mean(axis=0), found.y[1:].mean(axis=0)
        apart = found.x[1:].mean(axis=0) - y
        left = losses(users, x, radius) + regularizer(y) - minimum
        measured.append(left + beta / 2 * (apart**2).sum(axis=1))
        bounds.append(
            theorem_9_1(
                T,
                beta=beta,
                rho=rho,
                G=radius,
                x_distance=float(np.linalg.norm(START - solution)),
                y_distance=float(np.linalg.norm(solution)),
                n=users.size,
            )
        )
    return Utility(tuple(iterations), rho, np.array(bounds), np.array(measured))
