r"""Variables that constraints with private data define, as expressions of all other variables.

In ``s[1:] == s[:-1] + u - d`` the owner of the data d computes s from the decision u. So s is no
decision, and a decision from noisy data need not satisfy the equality. The model is equivalent with
an expression of u and d in place of s. Bounds of s are then inequalities with private data.

In ``shed >= d - u`` with a price of ``shed``, or ``t >= norm(A u - d)`` with t in the objective,
the variable only bounds a function of the data. Let the cost f(u, t) be nondecreasing in t, and let
t occur in no other constraints than :math:`t_j \ge g_i(u; d)`. For every u, the least cost is then
attained at :math:`t_j = \max_i g_i(u; d)`. So the model is equivalent with this expression in
place of t, and the constraints are gone. A concave bound from above is the same for -t.

In ``p + shed - spill == d`` two nonnegative variables are the two signs of their difference s. Let
all constraints contain them as ``shed - spill`` only, and let the cost be nondecreasing in each of
them. Every solution has shed >= max(s, 0) and spill >= max(-s, 0), and these values are a solution
for every s. So they have the least cost, and s is a variable that the equality may define.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import combinations, islice
from typing import Any

import cvxpy as cp
import numpy as np
from cvxpy.constraints.nonpos import Inequality
from cvxpy.constraints.zero import Equality, Zero
from numpy.typing import NDArray

from ..errors import ModelError, PrivacyError
from ..guard import understood
from .agent import Agent, private_in
from .canonical import affine_map, public_copy
from .declaration import Declaration
from .layout import summands
from .private import Private

Array = NDArray[np.float64]
Index = NDArray[np.intp]

# Largest number of sets of variables that are tried, and of variables in a set.
_TRIED, _MOST = 200, 4
# Largest condition number of equalities that define variables.
_STEEP = 1e8
# Largest number of entries of a variable that are bounded one by one.
_ENTRIES = 200
# Attributes that become constraints; variables with others are left as they are.
_BOUNDS = {"nonneg", "nonpos", "pos", "neg", "bounds"}


def decided(problem: Declaration, violation: float | None) -> tuple[Declaration, tuple[str, ...]]:
    """Return the problem that a plan compiles, and the names of the eliminated variables.

    With a violation probability, variables that private equalities define are eliminated. Without
    one, all variables that constraints with private data define, if no such constraint remains.

    Parameters
    ----------
    problem : Declaration
    violation : float or None
        Violation probability of the plan.
    """
    if violation is not None:
        return with_defined(problem)
    if any(agent.limits for agent in problem.agents):
        smaller, names = with_defined(problem, bounds=True)
        if not any(agent.limits for agent in smaller.agents):
            return smaller, names
    return problem, ()


def with_defined(problem: Declaration, bounds: bool = False) -> tuple[Declaration, tuple[str, ...]]:
    """Eliminate variables that constraints with private data define.

    Also return the names of the eliminated variables.

    Parameters
    ----------
    problem : Declaration
    bounds : bool
        Whether variables that inequalities define are eliminated, besides those of equalities.

    Returns
    -------
    problem : Declaration
        The given object if no constraint defines a variable.
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
        smaller = understood(lambda agent=agent: _smaller(agent, shared, bounds), name)
        agents.append(smaller)
        names += [v.name() for v, _ in smaller.defined[len(agent.defined) :]]
    if not names:
        return problem, ()
    held = {v.id for agent in agents for v in agent.variables}
    twin = copy.copy(problem)
    object.__setattr__(twin, "agents", tuple(agents))
    start = {v: value for v, value in problem.start.items() if v.id in held}
    object.__setattr__(twin, "start", start)
    return twin, tuple(names)


def _smaller(agent: Agent, shared: set[int], bounds: bool) -> Agent:
    """Return the agent without variables that its constraints with private data define.

    With `bounds`, of several choices of variables, the first that leaves no constraint with private
    data is preferred. `shared` are the cvxpy ids of variables that other agents hold, too.
    """
    if not bounds:
        return next(_without(agent, shared), agent)
    first = None
    for choice in (*_without_pairs(agent, shared), *_without(agent, shared), agent):
        while choice.limits:
            smaller = _without_bound(choice, shared)
            if smaller is None:
                break
            choice = smaller
        if not choice.limits:
            return choice
        first = first or choice
    return first or agent


def _without(agent: Agent, shared: set[int]) -> Iterator[Agent]:
    """Yield the agent with expressions in place of variables that private equalities define.

    The choices of these variables that leave the simplest constraints come first. `shared` are the
    cvxpy ids of variables that other agents hold, too.
    """
    equalities = [c for c in agent.constraints if isinstance(c, (Equality, Zero))]
    private = [c for c in equalities if private_in(c)]
    if not private:
        return
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
                pairs = zip(chosen, expressions, strict=True)
                limits = [limit for v, e in pairs for limit in _bounds(v, e)]
                yield _substituted(agent, chosen, rows, expressions, limits)


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
    limits: Sequence[cp.Constraint],
) -> Agent:
    """Return the agent with expressions in place of the chosen variables.

    The constraints `rows` are gone, and `limits` are added. Others keep their positions.
    """
    places = {id(v): expression for v, expression in zip(chosen, expressions, strict=True)}
    numbers = {id(c) for c in rows}
    kept = [
        cp.Constant(0.0) <= 0.0 if id(c) in numbers else c.tree_copy(dict(places))
        for c in agent.constraints
    ]
    objective: Any = agent.objective
    twin = replace(
        agent,
        objective=objective.tree_copy(dict(places)),
        constraints=[*kept, *limits],
        recourse=[c.tree_copy(dict(places)) for c in agent.recourse],
    )
    earlier: list[tuple[cp.Variable, Any]] = [*agent.defined]
    earlier = [(variable, e.tree_copy(dict(places))) for variable, e in earlier]
    defined = (*earlier, *zip(chosen, expressions, strict=True))
    object.__setattr__(twin, "defined", defined)
    return twin


def _without_pairs(agent: Agent, shared: set[int]) -> Iterator[Agent]:
    """Yield the agent without pairs of variables that are both signs of a defined difference.

    `shared` are the cvxpy ids of variables that other agents hold, too.
    """
    equalities = [c for _, c in agent.limits if isinstance(c, (Equality, Zero))]
    met = {v.id: v for c in equalities for v in c.variables() if v.id not in shared}
    signed = [v for v in met.values() if v.attributes["nonneg"] and _pays(agent, v, 1.0)]
    differences: dict[int, tuple[cp.Variable, cp.Variable, cp.Variable]] = {}
    used: set[int] = set()
    for first, second in islice(combinations(signed, 2), _TRIED):
        ids = {first.id, second.id}
        rows = [c for c in (*agent.constraints, *agent.recourse) if _over(c, ids)]
        if ids & used or first.shape != second.shape:
            continue
        if all(_of_difference(row, first, second) for row in rows):
            s = cp.Variable(first.shape, name=f"{first.name()} - {second.name()}")
            differences[s.id] = first, second, s
            used |= ids
    if not differences:
        return
    apart, together = {}, {}
    for first, second, s in differences.values():
        apart |= {id(first): cp.pos(s), id(second): cp.neg(s)}
        together |= {id(first): s, id(second): cp.Constant(np.zeros(s.shape))}
    objective: Any = agent.objective
    constraints = [c.tree_copy(dict(together)) for c in agent.constraints]
    recourse = [c.tree_copy(dict(together)) for c in agent.recourse]
    twin = replace(
        agent,
        objective=objective.tree_copy(dict(apart)),
        constraints=constraints,
        recourse=recourse,
    )
    signs = [
        (v, apart[id(v)]) for first, second, _ in differences.values() for v in (first, second)
    ]
    object.__setattr__(twin, "defined", (*agent.defined, *signs))
    for solved in _without(twin, shared) if twin.objective.is_dcp() else ():
        if not any(v.id in differences for v in solved.variables):
            defined = tuple((v, e) for v, e in solved.defined if v.id not in differences)
            object.__setattr__(solved, "defined", defined)
            yield solved


def _of_difference(row: cp.Constraint, first: cp.Variable, second: cp.Variable) -> bool:
    """Return whether a constraint contains two variables only as ``first - second``."""
    if not isinstance(row, (Equality, Zero, Inequality)):
        return False
    ids = {first.id, second.id}
    terms = [e for k, side in enumerate(row.args) for e in summands(side, negated=k > 0)]
    total: Any = sum(e for e in terms if _over(e, ids))
    if {v.id for v in total.variables()} != ids or private_in(total) or not total.is_affine():
        return False
    copies = [cp.Variable(first.shape), cp.Variable(second.shape)]
    places: dict[int, Any] = {id(first): copies[0], id(second): copies[1]}
    matrix, _ = affine_map(public_copy(total, total.parameters()).tree_copy(places), copies)
    return not np.any((matrix[:, : first.size] + matrix[:, first.size :]).toarray())


def _without_bound(agent: Agent, shared: set[int]) -> Agent | None:
    """Return the agent without one variable that only bounds functions of data; None without one.

    `shared` are the cvxpy ids of variables that other agents hold, too.
    """
    met = {v.id: v for _, c in agent.limits for v in c.variables()}
    # Then variables that may hide the use of these.
    met |= {v.id: v for c in agent.constraints if _over(c, set(met)) for v in c.variables()}
    for variable in met.values():
        rows = [c for c in agent.constraints if _over(c, {variable.id})]
        alone = variable.id not in shared and all(isinstance(c, Inequality) for c in rows)
        if not alone or any(_over(c, {variable.id}) for c in agent.recourse):
            continue
        for side in (1.0, -1.0):
            bound = _bound(variable, rows, side) if _pays(agent, variable, side) else None
            if bound is None or not bound.variables():
                continue
            with suppress(ModelError, PrivacyError):  # if only data remain somewhere
                twin = _substituted(agent, [variable], rows, [bound], ())
                if twin.objective.is_dcp():
                    return twin
    return None


def _pays(agent: Agent, variable: cp.Variable, side: float) -> bool:
    """Return whether an agent's cost is nondecreasing in ``side * variable``, by cvxpy's rules.

    With a convex expression that is not affine in place of an argument, an objective follows the
    rules of convex composition only if it is nondecreasing in this argument.
    """
    kinds = {k for k, a in variable.attributes.items() if a is not None and a is not False}
    if not kinds <= {"nonneg", "nonpos"} or not agent.objective.is_dcp():
        return False
    free: Any = cp.Variable(variable.shape)
    argument = cp.exp(free) - 1.0
    if kinds:  # the sign of side * variable
        positive = (side > 0) == bool(variable.attributes["nonneg"])
        argument = cp.exp(free) if positive else -cp.sqrt(free)
    objective: Any = agent.objective
    return bool(objective.tree_copy({id(variable): side * argument}).is_dcp())


def _bound(
    variable: cp.Variable, rows: Sequence[cp.Constraint], side: float
) -> cp.Expression | None:
    """Return the smallest ``side * variable`` that inequalities and signs allow, times `side`.

    The result is None if some entry has no bound, if a row of an inequality has another form, or if
    the expression may have another sign than the variable.
    """
    bounds = [_bounds_of(variable, row, side) for row in rows]
    if any(bound is None for bound in bounds):
        return None
    pairs: list[tuple[Index, Any]] = [bound for bound in bounds if bound is not None]
    every = np.arange(variable.size)
    if all(np.array_equal(entries, every) for entries, _ in pairs):
        least = pairs[0][1] if len(pairs) == 1 else cp.maximum(*(bound for _, bound in pairs))
    else:
        least = _by_entry(pairs, variable.size)
        if least is None:
            return None
    if least.shape != variable.shape:
        least = cp.reshape(least, variable.shape, order="F")
    signs = variable.is_nonneg(), variable.is_nonpos()
    if signs[0] if side > 0 else signs[1]:
        least = cp.pos(least)
    bound = least if side > 0 else -least
    keeps_signs = bound.is_nonneg() or not signs[0], bound.is_nonpos() or not signs[1]
    return bound if all(keeps_signs) else None


def _by_entry(pairs: Sequence[tuple[Index, Any]], size: int) -> cp.Expression | None:
    """Return the largest bound of each of `size` entries; None if an entry has no bound."""
    entries = np.concatenate([e for e, _ in pairs])
    bounds = cp.hstack([cp.vec(b, order="F") for _, b in pairs])
    if set(entries.tolist()) != set(range(size)) or size > _ENTRIES:
        return None
    largest = [cp.max(bounds[np.flatnonzero(entries == j)]) for j in range(size)]
    return largest[0] if size == 1 else cp.hstack(largest)


def _bounds_of(
    variable: cp.Variable, row: cp.Constraint, side: float
) -> tuple[Index, cp.Expression] | None:
    """Return bounds of entries of ``side * variable`` by an inequality, and these entries.

    The result is None if the inequality has another form.

    Parameters
    ----------
    variable : cvxpy.Variable
    row : Inequality
        Each row has to be a sum of a multiple of one entry of the variable and of other terms.
    side : {1.0, -1.0}
    """
    left, right = row.args
    terms = [*summands(left), *summands(right, negated=True)]
    with_it: Any = [e for e in terms if _over(e, {variable.id})]
    others: Any = [e for e in terms if not _over(e, {variable.id})]
    total: Any = sum(with_it)
    if len(total.variables()) != 1 or private_in(total) or not total.is_affine() or not others:
        return None
    plain = cp.Variable(variable.shape)
    total = public_copy(total, total.parameters()).tree_copy({id(variable): plain})
    if total.shape != row.shape and total.size > 1:
        return None
    matrix, offset = affine_map(total, [plain])
    if total.size < row.size:  # one entry bounds all rows
        matrix, offset = matrix[[0] * row.size], np.repeat(offset, row.size)
    count = np.diff(matrix.indptr)
    if not (count == 1).all() or not (side * matrix.data < 0).all():
        return None
    entries, factors = matrix.indices, np.abs(matrix.data)
    rest = cp.vec(sum(others) + np.zeros(row.shape), order="F") + offset
    if not (factors == 1.0).all():
        rest = cp.multiply(1.0 / factors, rest)
    return entries, rest


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
