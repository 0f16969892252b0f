"""The elastic net as a `dp.Problem`: one agent per user, and a public agent for the regularizer."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

import dpcvx as dp
from dpcvx._arguments import positive_finite
from dpcvx.privacy.last_iterate import Order

from ..papers import entry
from .setting import C1, C2, Setting
from .users import Users

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

DELTA = 1e-6
START = entry("chan_xie_zhao", "start").number("x")


@dataclass(frozen=True, eq=False)
class ElasticNet:
    """Problem ``minimize mean of (a_i'x - b_i)^2 + c1 |y|_1 + c2 |y|^2`` with ``x = y``.

    Attributes
    ----------
    users : Users
    radius : float
        Bound C on the norm of a user's gradient, before the division by N; privacy rests on it.
    clipped : bool
        Whether gradients are clipped to this norm, or the bound is only asserted.
    x, y : cp.Variable, shape (n,)
        Variables of the users, and of the regularizer.
    problem : dp.Problem
        Agents ``user 0``, ..., with ``features k`` and ``target k`` private, and ``regularizer``.
    """

    users: Users
    radius: float
    clipped: bool
    x: cp.Variable
    y: cp.Variable
    problem: dp.Problem

    def plan(
        self,
        setting: Setting,
        rounds: int,
        *,
        observer: Literal["everyone", "last_iterate"] = "everyone",
        order: Order = "fixed",
        x_first: bool = False,
    ) -> dp.Plan:
        """Plan gradient ADMM with noise `Setting.sigma` in x (no noise if it is 0)."""
        method = dp.GradientADMM(
            penalty=setting.beta, step=setting.eta, order=order, x_first=x_first, returned="last"
        )
        if setting.sigma == 0:
            return self.problem.plan(method, mechanism=None, rounds=rounds)
        # The x step multiplies a change of the gradient by eta / (1 + eta beta).
        moved = setting.eta * 2 * self.radius / (1 + setting.eta * setting.beta)
        noise = dp.Gaussian(noise_multiplier=setting.sigma / moved)
        return self.problem.plan(
            method, mechanism=noise, rounds=rounds, delta=DELTA, observer=observer
        )

    def seated(self, order: Ints) -> dict[dp.Private | str, Floats]:
        """Return data for ``plan.run(data=...)`` that give agent k the data of ``order[k]``."""
        data: dict[dp.Private | str, Floats] = {}
        for k, i in enumerate(order.tolist()):
            data[f"features {k}"] = self.users.features[i : i + 1]
            data[f"target {k}"] = self.users.targets[i : i + 1]
        return data


def elastic_net(users: Users, *, radius: float | None = None, clipped: bool = True) -> ElasticNet:
    """State the model; neighboring data replace one user's vector and target.

    The paper assumes that gradients of neighbors differ by at most Delta at every x. No such
    Delta exists for squares: ``2 a (a'x - b)`` grows with x. With `clipped`, gradients are clipped
    to the norm C, so that Delta = 2 C holds; a clipped gradient is the gradient of a Huber loss,
    which is convex and as smooth as the square. Otherwise Delta is asserted, and the guarantee
    states this.

    Parameters
    ----------
    users : Users
    radius : float, optional
        Norm C; `Setting.radius` if omitted.
    clipped : bool
        Whether gradients are clipped.

    Raises
    ------
    dp.ModelError
        If `radius` is not a positive finite number.
    """
    if radius is None:
        radius = Setting(users.mu).radius
    if not positive_finite(radius):
        raise dp.ModelError(
            f"radius={radius!r} must be a positive finite norm of a user's gradient, such as "
            f"{Setting(users.mu).radius:g}."
        )
    N = users.count
    x, y = cp.Variable(users.size, name="x"), cp.Variable(users.size, name="y")
    # Norms are sqrt(mu) up to rounding.
    long = math.sqrt(users.mu) * (1 + 1e-9)
    vector = dp.Rows(long, relation="replace_one")
    number = dp.Rows(users.target_bound, relation="replace_one", clip_rows=True)
    clip = radius / N if clipped else None
    asserted = None if clipped else dp.Asserted(l2=2 * radius / N)
    agents = []
    for k in range(N):
        a = dp.Private(users.features[k : k + 1], name=f"features {k}", adjacency=vector)
        b = dp.Private(users.targets[k : k + 1], name=f"target {k}", adjacency=number)
        loss = cp.sum_squares(a @ x - b) / N
        agents.append(
            dp.Agent(cp.Minimize(loss), name=f"user {k}", clip_norm=clip, sensitivity=asserted)
        )
    cost = C1 * cp.norm1(y) + C2 * cp.sum_squares(y)
    agents.append(dp.Agent(cp.Minimize(cost), name="regularizer"))
    problem = dp.Problem(agents, coupling=[x - y == 0], start={x: START})
    return ElasticNet(users, radius, clipped, x, y, problem)


def losses(users: Users, X: Floats, radius: float | None = None) -> Floats:
    """Return the users' mean loss, Huber with `radius`, at points ``X[..., :]``. Not private."""
    residual = np.abs(X @ users.features.T - users.targets)
    if radius is None:
        return (residual**2).mean(axis=-1)
    edge = radius / (2 * math.sqrt(users.mu))
    near = np.minimum(residual, edge)
    return (near * (2 * residual - near)).mean(axis=-1)


def regularizer(Y: Floats) -> Floats:
    """Return ``c1 |y|_1 + c2 |y|^2`` at points ``Y[..., :]``."""
    return C1 * np.abs(Y).sum(axis=-1) + C2 * (Y**2).sum(axis=-1)


def optimum(users: Users, radius: float | None = None) -> tuple[Floats, float]:
    """Return minimizer and minimum of losses plus regularizer. Not private.

    With a radius, the losses are Huber losses, whose gradients are clipped to the radius.
    """
    x = cp.Variable(users.size)
    residual = users.features @ x - users.targets
    if radius is None:
        loss = cp.sum_squares(residual)
    else:
        edge = radius / (2 * math.sqrt(users.mu))
        loss = edge**2 * cp.sum(cp.huber(residual / edge))
    cost = loss / users.count + C1 * cp.norm1(x) + C2 * cp.sum_squares(x)
    cp.Problem(cp.Minimize(cost)).solve(solver=cp.CLARABEL, tol_gap_abs=1e-11, tol_gap_rel=1e-11)
    found = np.asarray(x.value, float)
    return found, float(losses(users, found, radius) + regularizer(found))
