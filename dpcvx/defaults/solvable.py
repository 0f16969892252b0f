"""Refusals of problems without a solution; guarantees do not depend on these checks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ..algorithms.common_point import agents_apart
from ..algorithms.joint import Joint, coupling_rows, joint, multiplied, with_directions
from ..algorithms.program import LocalProgram, Program, once_per_kind, with_objectives
from ..errors import ModelError, UnsolvableError
from ..model.canonical import ConeData
from ..model.declaration import Declaration
from ..plan.agent_plan import AgentPlan
from ..plan.terms import Terms
from ..sensitivity.certificate import Sensitivity
from ..sensitivity.queries.data import MomentsTerm
from ..solvers.conic import ConicProgram, Outcome

Index = NDArray[np.intp]
Array = NDArray[np.float64]
# Largest number of rows of constraints, or of components, for a joint check by one conic solve.
_TOGETHER = 2000


def check_solvable(plan: Terms) -> None:
    """Refuse a plan whose exact steps, or whose problem, have no minimizer.

    Parameters
    ----------
    plan : Terms

    Raises
    ------
    ModelError
    """
    exact, noisy, once = plan.algorithm.requirements.exact, plan.noisy, plan.published
    if exact == "joint":
        check_joint_minimizer(plan.program, plan.agents, noisy, once)
    elif exact:
        once_per_kind(plan.agents, lambda agent: check_minimizer(agent, noisy, once))
    check_bounded(plan.problem, plan.program, plan.agents)


def check_sets(program: Program) -> None:
    """Refuse agents whose public sets provably have no common point."""
    if sum(local.constraints.b.size for local in program.agents) > _TOGETHER:
        return
    names = agents_apart(program)
    if names is None:
        return
    tied = " and the equalities in coupling=" if program.coupling is not None else ""
    if not names:
        raise UnsolvableError(
            "The equalities in coupling= contradict each other: no values of the variables satisfy "
            "all of them. Solve cp.Problem(cp.Minimize(0), coupling) to find the conflict."
        )
    listed = " and ".join(f"'{name}'" for name in names)
    raise UnsolvableError(
        f"The constraints of agents {listed}{tied} do not meet: no values of the variables satisfy "
        "all of them. Loosen one of them. To find the conflict, solve "
        "cp.Problem(cp.Minimize(0), constraints) with fewer and fewer of them."
    )


def check_bounded(problem: Declaration, program: Program, agents: Sequence[AgentPlan]) -> None:
    """Refuse a sum of objectives that has no lower bound for any data."""
    size = sum(local.n for local in program.agents)
    if any(limit.directions() is None for limit in program.kept):
        return  # private factors of variables may bound the objective
    if size > _TOGETHER or not all(_affine(agent) for agent in agents) or not problem.is_dcp():
        return
    if all(agent.cost.is_nonneg() for agent in problem.agents):
        return
    whole = joint(with_objectives(problem, program))
    moved = [sp.csr_array((0, whole.data.n))]
    for k, agent in enumerate(agents):
        sensitivity = agent.sensitivity
        moved += [
            whole.rows(k, J.T) for J in (() if sensitivity is None else sensitivity.jacobians)
        ]
    data = with_directions(whole.data, program)
    if falls_forever(data, sp.csr_array(sp.vstack(moved))):
        raise UnsolvableError(
            "The sum of the objectives has no lower bound: along some direction without "
            "constraints it decreases without limit, for all private data. Bound the variables, "
            "for example x <= 10, or add a term that grows, such as 0.01 * cp.sum_squares(x)."
        )


def _affine(agent: AgentPlan) -> bool:
    """Return whether private data only add a linear term to the agent's objective."""
    sensitivity = agent.sensitivity
    return not agent.program.form.private or (sensitivity is not None and sensitivity.constant)


def check_minimizer(agent: AgentPlan, noisy: bool, once: bool) -> None:
    """Refuse an exact local step that has no minimizer.

    The step is computed once at the initial point. With noise, the linear term can be any multiple
    of a generic one. So the linear term must vanish along each unbounded direction of the set
    without curvature.
    """
    local, sensitivity = agent.program, agent.sensitivity
    assert local.exact is not None
    D = np.zeros(local.n)
    D[local.shared] = 1.0
    bounded = _bounded(local)
    if (bounded | (D > 0)).all():  # convex, over a bounded set but for components with curvature
        return
    answer = ConicProgram(local.exact).solve(D, np.zeros(local.n), local.start)
    if answer.outcome is Outcome.UNBOUNDED:
        raise ModelError(_unbounded(agent.name, "has no minimizer"))
    if noisy and sensitivity is not None and not bounded.all():
        slope = _slope(sensitivity) if once else np.sin(1.0 + np.arange(local.n))
        if not bounded_for_slopes(local.exact, local.shared, slope):
            raise ModelError(
                _unbounded(agent.name, "has no minimizer for some values of the noise")
            )


def check_joint_minimizer(
    program: Program, agents: Sequence[AgentPlan], noisy: bool, once: bool
) -> None:
    """Refuse a joint problem that has no optimum, or has none for some values of the noise.

    Without noise, an optimum may depend on the private data, and then only a run can tell.
    """
    whole = joint(program)
    n = whole.data.n
    outcome = (
        Outcome.SOLVED
        if _starts_are_optimal(program, whole)
        else ConicProgram(whole.data).solve(np.zeros(n), None, whole.start).outcome
    )
    if outcome is Outcome.INFEASIBLE:
        raise UnsolvableError(
            "No point satisfies the constraints of all agents together. Loosen a constraint, or an "
            "equality in coupling=. To find the conflict, solve cp.Problem(cp.Minimize(0), "
            "constraints) with fewer and fewer of them."
        )
    slope, private = np.zeros(n), False
    for agent, columns in zip(agents, whole.places, strict=True):
        private |= bool(agent.program.form.private)
        if noisy and agent.sensitivity is not None:
            local = _slope(agent.sensitivity) if once else np.sin(1.0 + np.arange(columns.size))
            slope[columns] += local
    sums = any(agent.noise is not None and agent.noise.split for agent in agents)
    if noisy and sums and not any(MomentsTerm in agent.queries for agent in agents):
        # With secure aggregation, agents add noise to all entries of the sum.
        slope[:] = np.sin(1.0 + np.arange(n))
    cone, bounded = _directions_of_all(whole.data, program), np.zeros(n, dtype=bool)
    held = once_per_kind(program.agents, _bounded)
    for local, columns in zip(held, whole.places, strict=True):
        bounded[columns] |= local
    everywhere = (
        not noisy or bounded.all() or bounded_for_slopes(cone, np.zeros(0, dtype=np.intp), slope)
    )
    falls = outcome is Outcome.UNBOUNDED and (
        not program.kept or falls_forever(cone, sp.csr_array((0, n)))
    )
    if not everywhere or (falls and (noisy or not private)):
        # Surrogate data that are projected to signs or semidefinite matrices may have an optimum.
        free = all(spec.free for agent in agents for spec in agent.program.form.private)
        refusal = UnsolvableError if free or not noisy else ModelError
        raise refusal(
            f"The problem has no optimum{' for some values of the noise' if noisy else ''}: the "
            "joint feasible set is unbounded in a direction along which no objective grows "
            "quadratically. Add bounds to the variables, such as "
            f"cp.norm(x) <= 10{_or_steps(program)}."
        )


def _directions_of_all(data: ConeData, program: Program) -> ConeData:
    """Return the joint program with private constraints added, to compute recession directions.

    Data multiply variables of some constraints. If all other constraints keep these variables at 0
    along every direction, the products vanish there, and the directions do not depend on data.
    """
    cone, columns = with_directions(data, program), multiplied(program)
    if columns is None or not columns.size:
        return cone
    generic = np.zeros(data.n)
    generic[columns] = np.sin(1.0 + np.arange(columns.size))
    if not bounded_for_slopes(cone, np.zeros(0, dtype=np.intp), generic):
        return cone
    return with_directions(data, program, fixed=True)


def _starts_are_optimal(program: Program, whole: Joint) -> bool:
    """Return whether the agents' initial points solve a joint program without an objective.

    Each initial point lies in its agent's set. Together they are feasible if they agree on the
    shared variables and satisfy the coupling equalities.
    """
    if whole.data.P.nnz or whole.data.q.any():
        return False
    pairs = zip(program.agents, whole.places, strict=True)
    if any(not np.array_equal(whole.start[columns], local.start) for local, columns in pairs):
        return False
    if program.coupling is None:
        return True
    rows, right = coupling_rows(program), program.coupling.right
    return np.array_equal(rows @ whole.start, right)


def _bounded(local: LocalProgram) -> NDArray[np.bool_]:
    """Return whether the agent's set bounds each component on both sides, as known without solving.

    The result has the shape (n,).
    """
    extent = local.projector().known_extent()
    return np.isfinite(extent.lower) & np.isfinite(extent.upper)


def _or_steps(program: Program) -> str:
    """Return advice to use a method that needs no minimizer, if it takes the problem; else ""."""
    if program.coupling is not None:
        return ""
    return ", or use dp.LinearizedADMM(step=...), whose steps always have a minimizer"


def _slope(sensitivity: Sensitivity) -> Array:
    """Return a generic linear term that noise in the data can add, shape (n,)."""
    total = np.zeros(sensitivity.extent.lower.size)
    for J in sensitivity.jacobians:
        # Normalized columns, so that no column is negligible.
        lengths = np.sqrt(np.asarray(J.power(2).sum(axis=0)).ravel())
        weights = np.where(lengths > 0, 1 / np.where(lengths > 0, lengths, 1.0), 0.0)
        total += J @ (weights * np.sin(1.0 + np.arange(J.shape[1])))
    return total


def _unbounded(name: str, what: str) -> str:
    return (
        f"The exact local step of agent '{name}' {what}: its set is unbounded in a direction "
        "along which its objective does not grow quadratically. Add bounds to its variables, "
        "such as cp.norm(x) <= 10, or use dp.LinearizedADMM(step=...), whose steps have a "
        "minimizer; the problem of all agents together needs one as well."
    )


def bounded_for_slopes(data: ConeData, curved: Index, generic: Array) -> bool:
    """Return whether the program has a minimizer for every linear term in a linear space.

    Take the recession directions y = (x, auxiliary) of the set along which the objective has no
    curvature. The program has minimizers if all terms of the space vanish along them. To test this,
    a generic term and its negative are minimized over these directions with |x| <= 1: a minimum
    below 0 shows that the term does not vanish.

    Parameters
    ----------
    data : ConeData
    curved : ndarray of int
        Positions of components of x that have additional curvature, besides P.
    generic : ndarray, shape (n,)
        Generic linear term of the space.
    """
    n, N = data.n, data.A.shape[1]
    held = sp.csr_array((np.ones(curved.size), (np.arange(curved.size), curved)), (curved.size, N))
    scale = float(np.max(np.abs(generic), initial=0.0))
    if scale == 0.0:  # no direction changes a term of zero
        return True
    program = ConicProgram(_directions(data, held))
    for c in (generic / scale, -generic / scale):
        answer = program.solve(np.zeros(n), c, np.zeros(n))
        if answer.x is None or c @ answer.x < -1e-6:
            return False
    return True


def falls_forever(data: ConeData, unmoved: sp.csr_array) -> bool:
    """Return whether the objective has no lower bound, whatever linear term data add to it.

    Parameters
    ----------
    data : ConeData
        Objective and feasible constraints.
    unmoved : csr_array, shape (k, n)
        Rows that span the linear terms of the data; only directions orthogonal to them count.
    """
    n, N = data.n, data.A.shape[1]
    largest = float(np.max(np.abs(data.q), initial=0.0))
    if largest == 0:
        return False
    rows = sp.csr_array(sp.hstack([unmoved, sp.csr_array((unmoved.shape[0], N - n))]))
    q = data.q / largest
    directions = replace(_directions(data, rows), q=q, n=N)
    answer = ConicProgram(directions).solve(np.zeros(N), np.zeros(N), np.zeros(N))
    return answer.x is not None and float(q @ answer.x) < -1e-6


def _directions(data: ConeData, held: sp.csr_array) -> ConeData:
    """Return the recession directions (x, auxiliary) without curvature, with |x| <= 1, as a set.

    The rows `held`, shape (k, N), must be 0 along the directions.
    """
    n, N = data.n, data.A.shape[1]
    A, cones = sp.csr_array(data.A), data.cones
    unit = sp.eye_array(n, N, format="csr")
    first = cones.zero + cones.nonneg
    rows = [data.P.tocsr(), held, A[: cones.zero], A[cones.zero : first], unit, -unit, A[first:]]
    zero = N + held.shape[0] + cones.zero
    b = np.zeros(sum(block.shape[0] for block in rows))
    b[zero + cones.nonneg : zero + cones.nonneg + 2 * n] = 1.0
    return ConeData(
        P=sp.csc_array((N, N)),
        q=np.zeros(N),
        A=sp.csc_array(sp.vstack(rows)),
        b=b,
        cones=replace(cones, zero=zero, nonneg=cones.nonneg + 2 * n),
        n=n,
    )
