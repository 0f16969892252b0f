"""Reference computations on raw data: for tests, studies and teaching, never for release.

Everything here reads private data in the open and returns values without any guarantee. The
functions live outside the package's first level so that a program that uses them says so.
"""

from __future__ import annotations

from collections.abc import Mapping

import cvxpy as cp
import numpy as np

from ..algorithms.program import compile_problem
from ..errors import DataError, ModelError
from ..guard import discreet
from ..model.curvature import smoothness
from ..model.declaration import Declaration
from ..model.private import Private, Rows, raw_array, source_of, specs_of
from ..plan.terms import Terms
from ..run.loop import DataSource, sources_of
from ..run.oracle import read
from ..run.result import Transcript
from ..run.solution import Solution
from ..solvers.projector import Projector
from .ex_post import Kind, Losses
from .exposure import check, exposed


@discreet
def central(
    problem: Declaration, data: Mapping[Private | str, DataSource] | None = None
) -> cp.Problem:
    """The problem of all agents together as an ordinary cvxpy problem, private data included.

    Not private. Shared variables are shared by identity, so solving it gives the optimum that the
    distributed methods approach without noise. Solving it also overwrites ``variable.value``.
    """
    costs: list[cp.Expression] = []
    constraints: list[cp.Constraint] = []
    for agent, values in zip(problem.agents, _values(problem, data), strict=True):
        constants = {
            id(p): cp.Constant(v.reshape(p.shape, order="F"))
            for p, v in zip(agent.private, values, strict=True)
        }
        costs.append(agent.cost.tree_copy(constants) if constants else agent.cost)
        constraints += agent.constraints
    return cp.Problem(cp.Minimize(sum(costs)), [*constraints, *problem.coupling])


@discreet
def objective(
    problem: Declaration, solution: Solution, data: Mapping[Private | str, DataSource] | None = None
) -> float:
    """Sum of the agents' true objectives (to be minimised) at their own vectors. Not private.

    Raises
    ------
    ModelError
        If the solution is one of other agents.
    """
    agents = solution.program.agents
    held = [[spec.shape for spec in local.form.private] for local in agents]
    if held != [[private.shape for private in agent.private] for agent in problem.agents]:
        raise ModelError(
            "The solution is of other agents than the problem's, so the problem's data do not fit "
            "it. Pass the problem whose plan was run."
        )
    parts = zip(agents, _values(problem, data), solution.vectors, strict=True)
    return sum(local.form.bind(values).value(x) for local, values, x in parts)


@discreet
def gradient_norms(
    problem: Declaration, data: Mapping[Private | str, DataSource] | None = None
) -> dict[str, float]:
    """Per agent, a bound of its gradient's norm over its set: at the start, plus L times distance.

    Not private. For `Plan.convergence_bound` in studies.

    Raises
    ------
    ModelError
        If an agent's set is not bounded, or no smoothness constant can be derived for it.
    """
    found = {}
    for local, values in zip(
        compile_problem(problem, exact=False).agents, _values(problem, data), strict=True
    ):
        L = smoothness(local.form)
        reach = Projector(local.constraints, local.name).extent().diameter(np.arange(local.n))
        if L is None or np.isinf(reach):
            raise ModelError(
                f"No bound of the gradient of agent '{local.name}' is known: its set is not "
                "bounded, or no smoothness constant can be derived. State one yourself."
            )
        start = float(np.linalg.norm(local.form.bind(values).gradient(local.start)))
        found[local.name] = start + L * reach
    return found


@discreet
def ex_post(
    plan: Terms,
    transcript: Transcript,
    data: Mapping[Private | str, DataSource] | None = None,
    *,
    kind: Kind = "observed",
) -> Mapping[str, Losses]:
    """Ex-post losses of a recorded run: what its outputs revealed through random aggregators.

    Not private, and no guarantee: they depend on the outputs, and on where the private gradients
    put the intervals (see `dpcvx.verify.ex_post`). Neither publish them as if they were free nor
    put them in the place of ``plan.guarantee``. Nothing is spent.

    Parameters
    ----------
    plan : Terms
        Of `DecentralizedADMM` with ``randomness`` above 0 or `DecentralizedGradient` with
        ``aggregate="pair"`` or ``"range"``, linearised steps and Laplace noise in each.
    transcript : Transcript
        Of ``plan.run(record=True)``.
    data : mapping of Private or its name to array_like or callable, optional
        The data of that run: that they are cannot be checked.
    kind : {"observed", "expected"}
        At the outputs, or in expectation over those of a round, given the rounds before.

    Returns
    -------
    mapping of str to Losses
        By agent, of those whose releases had noise: one value per entry that left, round after
        round. Noise counts as continuous, without its grid. B is the l2 sensitivity of the
        gradient, for every entry by itself: sums over the entries, the worst case among them, can
        exceed what ``plan.guarantee`` states by the l1 sensitivity. With ``Problem(groups=...)``,
        people in several agents' data have the sum over these agents. `Losses.adaptive` does not
        hold where sensitivities are derived at the points of the run.

    Raises
    ------
    ModelError
        If the plan has no such losses, or none that are known; if the transcript is not of it.
    DataError
        If data are missing or do not fit their declaration.
    """
    check(plan, transcript, kind)
    values = _values(plan.problem, data)
    objectives = {
        k: local.form.bind(values[k], sensitivity.clips, limited=True)
        for k, (local, sensitivity) in enumerate(
            zip(plan.program.agents, plan.sensitivities, strict=True)
        )
        if sensitivity is not None and sensitivity.bound(2).value > 0
    }
    return exposed(plan, transcript, objectives, kind)


@discreet
def too_long(private: Private, data: DataSource | None = None) -> int:
    """Number of rows whose norm exceeds the bound of `dp.Rows`: those that are clipped or refused.

    Not private: the number depends on the data.
    """
    adjacency = private.adjacency
    if not isinstance(adjacency, Rows):
        return 0
    rows = raw_array(source_of(private, data), private.spec.name)
    if rows is None or rows.shape != private.shape:
        raise DataError(
            f"The data of private '{private.name()}' are no array of real numbers of its shape "
            f"{private.shape}."
        )
    return int(adjacency.too_long(rows.reshape(rows.shape[0], -1)).sum())


def _values(
    problem: Declaration, data: Mapping[Private | str, DataSource] | None
) -> list[list[np.ndarray]]:
    sources = sources_of(problem, data)
    return [
        read(specs_of(agent.private, name), own)
        for name, agent, own in zip(problem.names, problem.agents, sources, strict=True)
    ]
