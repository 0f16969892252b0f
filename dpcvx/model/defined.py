"""Variables that equalities with private data define, as expressions of all other variables.

In ``s[1:] == s[:-1] + u - d`` the owner of the data d computes s from the decision u. So s is no
decision, and a decision from noisy data need not satisfy the equality. The model is equivalent with
an expression of u and d in place of s. Bounds of s are then inequalities with private data.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import combinations, islice
from typing import Any

import cvxpy as cp
import numpy as np
from cvxpy.constraints.zero import Equality, Zero
from numpy.typing import NDArray

from ..errors import ModelError, PrivacyError
from ..guard import understood
from .agent import Agent, private_in
from .canonical import affine_map, public_copy
from .declaration import Declaration
from .private import Private

Array = NDArray[np.float64]

# Largest number of sets of variables that are tried, and of variables in a set.
_TRIED, _MOST = 200, 4
# Largest condition number of equalities that define variables.
_STEEP = 1e8
# Attributes that become constraints; variables with others are left as they are.
_BOUNDS = {"nonneg", "nonpos", "pos", "neg", "bounds"}


def with_defined(problem: Declaration) -> tuple[Declaration, tuple[str, ...]]:
    """Eliminate variables that equalities with private data define.

    Also return the names of the eliminated variables.

    Parameters
    ----------
    problem : Declaration

    Returns
    -------
    problem : Declaration
        The given object if no equality defines a variable.
    names : tuple of str
        Names of the variables that expressions replace.
    """
    count: dict[int, int] = {}
    for agent in problem.agents:
        for variable in agent.variables:
            count[variable.id] = count.get(variable.id, 0) + 1
    tied = {v.id for constraint in problem.coupling for v in constraint.variables()}
    shared = {number for number, holders in count.items() if holders > 1} | tied
    agents, names = [], []
    for name, agent in problem.named.items():
        defined = understood(lambda agent=agent: _without(agent, shared), name)
        agents.append(agent if defined is None else defined)
        names += [] if defined is None else [v.name() for v, _ in defined.defined]
    if not names:
        return problem, ()
    held = {v.id for agent in agents for v in agent.variables}
    twin = copy.copy(problem)
    object.__setattr__(twin, "agents", tuple(agents))
    start = {v: value for v, value in problem.start.items() if v.id in held}
    object.__setattr__(twin, "start", start)
    return twin, tuple(names)


def _without(agent: Agent, shared: set[int]) -> Agent | None:
    """Return the agent with expressions in place of eliminated variables; None if it has none.

    `shared` are the cvxpy ids of variables that other agents hold, too.
    """
    equalities = [c for c in agent.constraints if isinstance(c, (Equality, Zero))]
    private = [c for c in equalities if private_in(c)]
    if not private:
        return None
    met = {v.id: v for c in private for v in c.variables()}
    free = [v for v in met.values() if v.id not in shared and _plain(v)]
    sets = (s for k in range(1, _MOST + 1) for s in combinations(free, k))
    fits = []
    for chosen in islice(sets, _TRIED):
        ids = {v.id for v in chosen}
        rows = [c for c in equalities if private_in(c) or _over(c, ids)]
        # Sets of few variables, which few other constraints contain, are tried first.
        if sum(c.size for c in rows) == sum(v.size for v in chosen):
            others = sum(_over(c, ids) for c in agent.constraints) - len(rows)
            bounds = sum(any(v.attributes[a] for a in _BOUNDS) for v in chosen)
            counted = _over(agent.objective, ids)
            fits.append((len(chosen), others + bounds, counted, chosen, rows))
    for *_, chosen, rows in sorted(fits, key=lambda fit: fit[:3]):
        expressions = _solved(chosen, rows)
        if expressions is not None and all(e.variables() for e in expressions):
            with suppress(ModelError, PrivacyError):  # if only data remain somewhere
                return _substituted(agent, chosen, rows, expressions)
    return None


def _plain(variable: cp.Variable) -> bool:
    """Return whether a variable has no attributes other than bounds and signs of its entries."""
    kinds = {k for k, a in variable.attributes.items() if a is not None and a is not False}
    return kinds <= _BOUNDS


def _over(tree: Any, ids: set[int]) -> bool:
    return any(v.id in ids for v in tree.variables())


def _solved(
    chosen: Sequence[cp.Variable], rows: Sequence[cp.Constraint]
) -> list[cp.Expression] | None:
    """Solve equalities for the chosen variables; None if these are not determined for all data."""
    residuals: list[Any] = [c.args[0] - c.args[1] if len(c.args) == 2 else c.args[0] for c in rows]
    residual = cp.hstack([cp.vec(each, order="F") for each in residuals])
    if not residual.is_affine():
        return None
    public = [p for p in residual.parameters() if not isinstance(p, Private)]
    residual = public_copy(residual, public)
    # With parameters for the variables, a private coefficient is a product that breaks DPP.
    if not residual.tree_copy({id(v): cp.Parameter(v.shape) for v in chosen}).is_dpp():
        return None
    plain, ids = [cp.Variable(v.shape) for v in chosen], {v.id for v in chosen}
    others: dict[int, Any] = {id(v): copy for v, copy in zip(chosen, plain, strict=True)}
    for leaf in (*residual.variables(), *residual.parameters()):
        if leaf.id not in ids:
            others[id(leaf)] = cp.Constant(np.zeros(leaf.shape))
    matrix = affine_map(residual.tree_copy(others), plain)[0].toarray()
    if np.linalg.cond(matrix) > _STEEP:
        return None
    rest = residual.tree_copy({id(v): cp.Constant(np.zeros(v.shape)) for v in chosen})
    inverse = np.linalg.inv(matrix)
    inverse[np.abs(inverse) < 1e-14 * np.abs(inverse).max()] = 0.0
    ends = np.cumsum([v.size for v in chosen])[:-1]
    return [
        cp.reshape(-part @ rest, v.shape, order="F")
        for part, v in zip(np.split(inverse, ends), chosen, strict=True)
    ]


def _substituted(
    agent: Agent,
    chosen: Sequence[cp.Variable],
    rows: Sequence[cp.Constraint],
    expressions: Sequence[cp.Expression],
) -> Agent:
    """Return the agent with expressions in place of the chosen variables.

    Constraints keep their positions.
    """
    places = {id(v): expression for v, expression in zip(chosen, expressions, strict=True)}
    numbers = {id(c) for c in rows}
    bounds = [b for v, e in zip(chosen, expressions, strict=True) for b in _bounds(v, e)]
    kept = [
        cp.Constant(0.0) <= 0.0 if id(c) in numbers else c.tree_copy(dict(places))
        for c in agent.constraints
    ]
    objective: Any = agent.objective
    twin = replace(
        agent,
        objective=objective.tree_copy(dict(places)),
        constraints=[*kept, *bounds],
        recourse=[c.tree_copy(dict(places)) for c in agent.recourse],
    )
    object.__setattr__(twin, "defined", tuple(zip(chosen, expressions, strict=True)))
    return twin


def _bounds(variable: cp.Variable, expression: cp.Expression) -> list[cp.Constraint]:
    """Return the declared sign and bounds of a variable as constraints on its expression."""
    limits: list[Any] = []
    if variable.is_nonneg():
        limits.append(expression >= 0)
    if variable.is_nonpos():
        limits.append(expression <= 0)
    for side, bound in zip((1, -1), variable.attributes["bounds"] or (), strict=False):
        value = bound.value if isinstance(bound, cp.Expression) else bound
        full = np.broadcast_to(np.asarray(value, dtype=float), variable.shape)
        if np.isfinite(full).all():
            limits.append(side * expression >= side * full)
        elif np.isfinite(full).any():
            flat, ends = cp.vec(expression, order="F"), full.ravel(order="F")
            chosen = np.flatnonzero(np.isfinite(ends))
            limits.append(side * flat[chosen] >= side * ends[chosen])
    return limits
