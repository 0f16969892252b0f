"""Simulation of many repetitions of `dp.GradientADMM`'s iteration in numpy, without privacy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

import dpcvx as dp

from .setting import C1, C2, Setting
from .study import START, ElasticNet, losses, regularizer
from .users import Users

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Iterates:
    """All iterates of R repetitions. Not private.

    Attributes
    ----------
    x, y : ndarray, shape (T + 1, R, n)
        Iterates x_0, ..., x_T and y_0, ..., y_T, where y_t is the y step at x_t.
    """

    x: Floats
    y: Floats


def iterate(
    users: Users,
    setting: Setting,
    order: Ints,
    noise: Floats,
    *,
    radius: float | None = None,
    x_first: bool = False,
) -> Iterates:
    """Run Algorithm 1 repeatedly, with noise added to x.

    Parameters
    ----------
    users : Users
    setting : Setting
        Setting; its sigma is ignored.
    order : ndarray of int, shape (T, R)
        User of each round and repetition.
    noise : ndarray, shape (T, R, n)
        Noise in x.
    radius : float, optional
        Norm that every user's gradient is clipped to, if any.
    x_first : bool
        Whether to begin with the x step at ``y = 0``, as in Algorithm 4.
    """
    beta, eta = setting.beta, setting.eta
    x = np.full(noise.shape[1:], START)
    lam = np.zeros_like(x)
    xs, ys = [x], []
    for t in range(len(order) + 1):
        if t == 0 and x_first:
            y = np.zeros_like(x)
        else:
            pull = beta * x - lam
            y = np.sign(pull) * np.maximum(np.abs(pull) - C1, 0) / (2 * C2 + beta)
            lam = lam - beta * (x - y)
        ys.append(y)
        if t == len(order):
            break
        a, b = users.features[order[t]], users.targets[order[t]]
        gradient = 2 * ((a * x).sum(axis=1) - b)[:, None] * a
        if radius is not None:
            norms = np.linalg.norm(gradient, axis=1, keepdims=True)
            gradient *= np.minimum(1, radius / np.maximum(norms, 1e-300))
        x = (x - eta * (gradient - beta * y - lam)) / (1 + eta * beta) + noise[t]
        xs.append(x)
    return Iterates(np.array(xs), np.array(ys))


def drawn(
    users: Users,
    sigma: float,
    rounds: int,
    repetitions: int,
    seed: int,
    order: Literal["sampled", "in turn"] = "sampled",
) -> tuple[Ints, Floats]:
    """Draw the order of users and the noise; "sampled" draws a user per turn, as the paper does."""
    rng = np.random.default_rng(seed)
    if order == "sampled":
        turns = rng.integers(users.count, size=(rounds, repetitions))
    else:
        turns = np.repeat(np.arange(rounds)[:, None] % users.count, repetitions, axis=1)
    return turns, sigma * rng.normal(size=(rounds, repetitions, users.size))


@dataclass(frozen=True, eq=False)
class Gaps:
    """Objective minus optimum along repetitions of one setting. Not private.

    Attributes
    ----------
    setting : Setting
    at_x : ndarray, shape (T + 1, R)
        Gap of ``f(x_t) + g(x_t)``, which the paper's code computes; never negative.
    split : ndarray, shape (T + 1, R)
        Gap of ``f(x_t) + g(y_t)``, which the paper's text states; negative if x and y differ
        enough.
    """

    setting: Setting
    at_x: Floats
    split: Floats


def gaps_of(users: Users, setting: Setting, found: Iterates, minimum: float) -> Gaps:
    """Return the gaps of the true objective at iterates, whether gradients were clipped or not."""
    loss = losses(users, found.x) - minimum
    return Gaps(setting, loss + regularizer(found.x), loss + regularizer(found.y))


def by_package(study: ElasticNet, setting: Setting, plan: dp.Plan, seeds: range) -> Iterates:
    """Return the iterates of runs of `dp.GradientADMM`, with users in turn, one run per seed.

    Every run has its own random order of users.
    """
    xs, ys = [], []
    for seed in seeds:
        order = np.random.default_rng(seed).permutation(study.users.count)
        result = plan.run(data=study.seated(order), seed=seed, iterates=True, verbose=False)
        xs.append([found.last[study.x] for found in result.iterates])
        ys.append([found.last[study.y] for found in result.iterates])
    # The iterates before the first turn are public.
    nobody = np.zeros((0, len(seeds)), int), np.zeros((0, len(seeds), study.users.size))
    start = iterate(study.users, setting, *nobody)
    return Iterates(
        np.concatenate([start.x, np.array(xs).swapaxes(0, 1)]),
        np.concatenate([start.y, np.array(ys).swapaxes(0, 1)]),
    )
