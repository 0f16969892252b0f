r"""Private recourse: decisions that an agent makes for itself after the run, and keeps.

Let w be the agreed values of the shared variables. Agent p solves, on its exact data, without
noise,

.. math:: \operatorname{minimize} f_p(x; d_p) \quad \text{subject to} \quad x \in W_p \cap O_p(d_p),
    \quad x = w \text{ where shared}, \quad A_p x = A_p x_p^{\text{agreed}},

with :math:`O_p` the constraints in ``recourse=``. Let V be all released values, with
:math:`(\varepsilon, \delta)`-DP for the data of agent p. The recourse of the other agents is a
function of V and of data that are equal for both neighbors. So V together with it is
post-processing of V (the billboard lemma; Hsu, Huang, Roth, Roughgarden and Wu, 2014). The
guarantee for p therefore holds against all other agents with their recourse. It does not hold
against anyone who sees the recourse of p.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from .._arguments import one_of, show
from ..algorithms.program import LocalProgram
from ..errors import ModelError, PrivacyError, SolverError
from ..guard import frameless, guarded, understood
from ..model.agent import Agent
from ..model.canonical import ConeData, cone_data, public_copy, with_equalities
from ..model.declaration import Declaration
from ..model.matrices import Data
from ..model.private import Private
from ..model.sealed import Sealed, seal
from ..model.spec import PrivateSpec
from ..solvers.conic import ConicAnswer, Outcome
from ..solvers.pinned import solve_pinned
from .data import own_sources
from .gate import read
from .solution import Solution

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class _Held:
    """Private content of a recourse solution, stored sealed."""

    solution: Solution  # with the agent's own vector; the others have the agreed vectors
    variables: tuple[cp.Variable, ...]  # variables of the agent
    value: float  # objective value
    defined: Mapping[cp.Variable, Array]  # variables that constraints define, at exact data


class RecourseSolution:
    """Recourse of one agent, computed from its exact data; no guarantee covers any of it.

    ``print(mine)`` shows the values of all variables; the Python prompt, debuggers and tracebacks
    show none. It cannot be pickled or copied, because saving or sending it would publish it.

    Attributes
    ----------
    agent : str
        Name of the agent, whose owner alone may see the solution.
    """

    __slots__ = ("_held", "agent")

    agent: str

    def __init__(self, agent: str, held: _Held) -> None:
        self.agent = agent
        self._held = seal(held)

    @frameless
    def __getitem__(self, variable: cp.Variable | str) -> Array:
        """Return a variable's value: agreed values in shared entries, recourse in local entries.

        Parameters
        ----------
        variable : cvxpy.Variable or str
            The variable, or its name.

        Returns
        -------
        ndarray of the variable's shape

        Raises
        ------
        ModelError
            If the agent does not hold the variable, or the name stands for several variables.
        """
        written = f"result.recourse('{self.agent}')[x]"
        held: _Held = self._held()
        for other, values in held.defined.items():
            if variable is other or one_of(variable, other.name()):
                return values.copy()
        return held.solution.copy_of(self.agent, variable, written)

    @property
    def value(self) -> float:
        """Exact objective of the agent (minimized) at its recourse; as private as the data."""
        return self._held().value

    def __str__(self) -> str:
        held: _Held = self._held()
        rows = [
            (x.name(), np.array2string(held.solution.of(self.agent, x), precision=6))
            for x in held.variables
        ]
        rows += [(x.name(), np.array2string(v, precision=6)) for x, v in held.defined.items()]
        rows.append(("objective", f"{held.value:.6g}"))
        width = max(len(name) for name, _ in rows) + 2
        pad = "\n" + " " * (width + 2)
        shown = [f"  {name:<{width}}{text.replace(chr(10), pad)}" for name, text in rows]
        head = f"own solution, known to '{self.agent}' only; not covered if published"
        return "\n".join([head, *shown])

    def __repr__(self) -> str:
        return f"<RecourseSolution: known to '{self.agent}' only; not covered if published>"

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise self._kept()

    def __getstate__(self) -> NoReturn:
        raise self._kept()

    def _kept(self) -> PrivacyError:
        return PrivacyError(
            f"The recourse solution of agent '{self.agent}' is neither pickled nor copied. Call "
            f"result.recourse('{self.agent}') where it is needed. It follows from private data "
            "without noise, so no guarantee covers it outside."
        )


def own_solution(
    problem: Declaration,
    solution: Solution,
    name: object,
    data: Mapping[Private | str, Sealed],
) -> RecourseSolution:
    """Return an agent's recourse at an agreed solution; see `Result.recourse`.

    Parameters
    ----------
    problem : Declaration
        Problem of the run.
    solution : Solution
        Solution on which all agents agree.
    name : Agent or str
        The agent, or its name.
    data : mapping
        Sealed data sources; see `seal_all`.
    """
    pairs = enumerate(zip(problem.agents, problem.names, strict=True))
    k = next(
        (
            k
            for k, (private, name_) in pairs
            if name is private or one_of(name, name_) or _written(private, name)
        ),
        None,
    )
    if k is None:
        names = ", ".join(f"'{name_}'" for name_ in problem.names)
        raise ModelError(
            f"result.recourse({show(name)}) names no agent of the problem. The agents are {names}."
        )
    agent, local = problem.agents[k], solution.program.agents[k]
    if not (local.decides or agent.defined):
        raise ModelError(
            f"Agent '{local.name}' has no local variables, so result.recourse(...) has nothing to "
            "decide. Read its variables from result.value. The agents agree on all of them."
        )
    require_convex_agent(agent, local.name)
    sources = own_sources(problem, k, data)
    return guarded(lambda: _decided(agent, solution, k, sources), _refusal(local.name))


def _written(agent: Agent, given: object) -> bool:
    """Return whether `given` is the agent as the user wrote it, before elimination of variables."""
    return bool(agent.defined) and isinstance(given, Agent) and given.name == agent.name


def require_convex_agent(agent: Agent, name: str) -> None:
    """Refuse an agent whose own problem does not follow cvxpy's convexity rules."""
    if not understood(agent.is_dcp, name):
        raise ModelError(
            f"result.recourse('{name}') minimizes exactly, and the agent's objective or a "
            "constraint does not follow cvxpy's convexity rules (DCP), so no solver can find the "
            "minimum reliably. Rewrite it with cvxpy's atoms if it is convex; a private factor "
            "of known sign needs dp.Private(..., nonneg=True)."
        )


def _refusal(name: str) -> Callable[[str], SolverError]:
    return lambda kind: SolverError(
        f"For the owner of agent '{name}' alone: its own problem failed with {kind}. The message "
        "is withheld because it may quote the data. Try it with made-up data."
    )


def _decided(
    agent: Agent, solution: Solution, k: int, sources: Sequence[Sealed]
) -> RecourseSolution:
    """Solve for the agent's recourse on exact data; the result is as private as the data."""
    local, x = solution.program.agents[k], solution.vectors[k]
    values = read(list(agent.specs(local.name).values()), sources)
    answer = guarded(
        lambda: decision(exact_program(agent, local, values), local, x),
        _refusal(local.name),
        foreign=True,
    )
    if answer.x is None:
        raise SolverError(
            f"For the owner of agent '{local.name}' alone, because this text may reveal private "
            f"data: {_WHY[answer.outcome]} Nothing that others see has changed."
        )
    vectors = (*solution.vectors[:k], answer.x, *solution.vectors[k + 1 :])
    decided = replace(solution, vectors=vectors)
    value = guarded(
        lambda: _value(agent, local.name, decided, values), _refusal(local.name), foreign=True
    )
    defined = guarded(
        lambda: _defined(agent, local.name, decided, values), _refusal(local.name), foreign=True
    )
    return RecourseSolution(local.name, _Held(decided, tuple(agent.variables), value, defined))


_STUCK = (
    "the solver found no solution of its problem. Scale its variables and data so that numbers "
    "are near 1."
)
_WHY = {
    Outcome.FAILED: _STUCK,
    Outcome.INFEASIBLE: (
        "with the agreed values, no values of its own variables satisfy all its constraints and "
        "those in recourse=. Loosen recourse=, or add a slack variable with a price."
    ),
    Outcome.UNBOUNDED: (
        "with the agreed values, its objective is unbounded below. Bound its variables, for "
        "example x <= 10."
    ),
}


def exact_program(agent: Agent, local: LocalProgram, values: Sequence[Array]) -> ConeData:
    """Return an agent's constraints, with ``recourse=``, and exact objective as arrays; private.

    Parameters
    ----------
    agent : Agent
        The agent.
    local : LocalProgram
        Its compiled program.
    values : sequence of ndarray
        Values of its private objects; objects only in ``recourse=`` come last.
    """
    bound = _with_values(agent, local.name, values)
    constraints = [bound(constraint) for constraint in (*agent.constraints, *agent.recourse)]
    return cone_data(bound(agent.cost), constraints, agent.variables, local.layout)


def decision(exact: ConeData, local: LocalProgram, x: Array) -> ConicAnswer:
    """Return an agent's exact minimizer; shared entries and coupling terms keep their values in x.

    Parameters
    ----------
    exact : ConeData
        Cone program from `exact_program`.
    local : LocalProgram
        Compiled program of the agent.
    x : ndarray, shape (n,)
        Agreed point, which lies in the agent's set.
    """
    if local.coupling is not None:
        exact = with_equalities(exact, local.coupling, local.coupling @ x)
    return solve_pinned(exact, local.shared, x)


def decisions(exact: Sequence[ConeData | None], solution: Solution) -> Solution | None:
    """Return the solution with every agent's recourse; None if one agent's is infeasible.

    It is as private as the data in the programs; studies call it with synthetic data.

    Parameters
    ----------
    exact : sequence of ConeData or None
        Cone programs from `exact_program`; None for agents without variables to decide.
    solution : Solution
        Solution on which all agents agree.
    """
    vectors: list[Array] = []
    for program, local, x in zip(exact, solution.program.agents, solution.vectors, strict=True):
        decided = x if program is None else decision(program, local, x).x
        if decided is None:
            return None
        vectors.append(decided)
    return replace(solution, vectors=tuple(vectors))


def _value(agent: Agent, name: str, solution: Solution, values: Sequence[Array]) -> float:
    """Return the value of an agent's objective at its vector, on exact data."""
    point = {id(v): cp.Constant(solution.of(name, v)) for v in agent.variables}
    cost = _with_values(agent, name, values)(agent.cost).tree_copy(point)
    return float(np.asarray(cost.value, dtype=float).item())


def _defined(
    agent: Agent, name: str, solution: Solution, values: Sequence[Array]
) -> dict[cp.Variable, Array]:
    """Return the values of variables that constraints with private data define."""
    point = {id(v): cp.Constant(solution.of(name, v)) for v in agent.variables}
    bound = _with_values(agent, name, values)
    expressions = ((v, bound(e).tree_copy(point)) for v, e in agent.defined)
    return {v: np.asarray(e.value, dtype=float) for v, e in expressions}


def _with_values(agent: Agent, name: str, values: Sequence[Array]) -> Callable[[Any], Any]:
    """Return a function that copies expressions with all parameters as constants."""
    constants = constants_of(agent.specs(name), values)

    def bound(tree: Any) -> Any:
        copy = tree.tree_copy(constants) if constants else tree
        return public_copy(copy, copy.parameters())

    return bound


def constants_of(
    specs: Mapping[Private, PrivateSpec], values: Sequence[Data]
) -> dict[int, cp.Expression]:
    """Return private data as cvxpy constants, by the Python id of the private object.

    Parameters
    ----------
    specs : mapping of Private to PrivateSpec
        Declarations by private object.
    values : sequence of ndarray or csr_array
        Values as read (flat or sparse), in the order of `specs`; may end earlier.
    """
    constants: dict[int, cp.Expression] = {}
    for (private, spec), flat in zip(specs.items(), values, strict=False):
        constant = cp.Constant(flat if sp.issparse(flat) else spec.shaped(flat))
        # psd_wrap fails for complex matrices: cvxpy does not rewrite it and computes eigenvalues.
        constants[id(private)] = (
            cp.psd_wrap(constant) if spec.psd and not spec.is_complex else constant
        )
    return constants
