"""Economic dispatch and resource allocation, with one agent per unit, coupled by a balance."""

from __future__ import annotations

from dataclasses import dataclass

import cvxpy as cp
import numpy as np
from cvxpy.constraints.zero import Zero
from numpy.typing import NDArray

import dpcvx as dp

from ..power_flow.case import Case

Floats = NDArray[np.float64]

# Curvature that is added to a linear cost, relative to its derivative at full power.
_BENT = 0.1


@dataclass(frozen=True, eq=False)
class Shared:
    """Problem of agents with one variable each, coupled by a public equality.

    Attributes
    ----------
    problem : dp.Problem
    variables : tuple of cp.Variable
        Variables, one per agent.
    unit : str
        Unit of the variables.
    """

    problem: dp.Problem
    variables: tuple[cp.Variable, ...]
    unit: str

    def optimum(self) -> Floats:
        """Return the agents' values at the optimum of the joint problem. Not private."""
        dp.not_private.joint_problem(self.problem).solve(cp.CLARABEL)
        return np.array([v.value for v in self.variables])

    def values(self, result: dp.Result) -> Floats:
        """Return the agents' values in the solution of a run."""
        return np.array([result.solution[v] for v in self.variables])

    def cost(self, values: Floats) -> float:
        """Return the objective of values on the true data. Not private."""
        for variable, value in zip(self.variables, values, strict=True):
            variable.save_value(np.asarray(value))
        return float(np.asarray(dp.not_private.joint_problem(self.problem).objective.value))


def economic_dispatch(case: Case, *, radius: float = 0.05) -> Shared:
    """State a dispatch of generators with private prices that meets the total load of a network.

    Lines are ignored: there is one balance of all generators and loads. Powers are in per unit, and
    prices are relative to the largest price of the case. Linear costs get a small curvature, so
    that the optimum is unique.

    Parameters
    ----------
    case : Case
    radius : float
        Protected change of one price, relative to the largest price.
    """
    case.check_plain()
    gen = case.gen
    free = np.flatnonzero(gen.pmax > gen.pmin)
    scale = float(np.max(gen.c1 + 2 * gen.c2 * gen.pmax))
    powers, agents = [], []
    for i in free:
        p = cp.Variable(name=f"p{gen.row[i]}")
        price = dp.Private(
            np.atleast_1d(gen.c1[i] / scale),
            name=f"price{gen.row[i]}",
            adjacency=dp.Within(radius, norm=1),
        )
        bent = gen.c2[i] / scale + _BENT / (2 * gen.pmax[i])
        cost = price @ cp.reshape(p, (1,), order="F") + bent * cp.square(p)
        limits = [p >= gen.pmin[i], p <= gen.pmax[i]]
        agents.append(dp.Agent(cp.Minimize(cost), limits, name=f"generator {gen.row[i]}"))
        powers.append(p)
    demand = float(case.bus.pd.sum())
    problem = dp.Problem(agents, coupling=[Zero(cp.sum(cp.hstack(powers)) - demand)])
    return Shared(problem, tuple(powers), "per unit")


def resource_allocation(wishes: Floats, supply: Floats, *, radius: float = 0.1) -> Shared:
    """State a division of a supply over users with private wishes.

    Each user minimizes the squared distance of its share from its wish; shares are at least 0.

    Parameters
    ----------
    wishes : ndarray, shape (users, goods)
        Wished amounts.
    supply : ndarray, shape (goods,)
        Total amounts.
    radius : float
        Protected change of one user's wishes, in l1.
    """
    shares, agents = [], []
    for k, wish in enumerate(wishes):
        x = cp.Variable(len(supply), name=f"share{k}", nonneg=True)
        private = dp.Private(wish, name=f"wish{k}", adjacency=dp.Within(radius, norm=1))
        agents.append(dp.Agent(cp.Minimize(cp.sum_squares(x - private) / 2), name=f"user {k}"))
        shares.append(x)
    problem = dp.Problem(agents, coupling=[Zero(cp.sum(cp.vstack(shares), axis=0) - supply)])
    return Shared(problem, tuple(shares), "units")
