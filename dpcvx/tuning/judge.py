"""Value of a solution on public proxy data, at one point for all agents within all their sets."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace

import cvxpy as cp
import numpy as np
from cvxpy.error import SolverError

from ..algorithms.common_point import common_point
from ..algorithms.program import AsWritten, Program, compile_problem
from ..algorithms.written_model import Rules, follows, solve
from ..errors import ModelError, PrivacyError
from ..model.declaration import Declaration
from ..model.matrices import real_entries
from ..model.private import Private
from ..model.sealed import Sealed
from ..run.loop import whole_start
from ..run.recourse import decisions
from ..run.solution import Solution
from ..testing import not_private

# Gap, relative to the objective, up to which the initial point counts as optimal.
_NEGLIGIBLE = 1e-6


@contextmanager
def values_kept(problem: Declaration) -> Iterator[None]:
    """Context manager that restores the values of variables and dual variables at its end."""
    duals = [dual for constraint in problem.constraints for dual in constraint.dual_variables]
    before = [(leaf, leaf.value) for leaf in (*problem.variables(), *duals)]
    try:
        yield
    finally:
        for leaf, value in before:
            leaf.save_value(value)


class Judge:
    """Function of a solution that returns the sum of objectives on public proxy data.

    It evaluates the closest point where all agents agree and all public constraints hold: copies
    that disagree can have values below the optimum. It overwrites ``variable.value``; see
    `values_kept`.

    Parameters
    ----------
    problem : Declaration
    proxy : mapping
        Public values of every private object.
    verb : str
        Name of the calling method, for messages, such as ``problem.tune``.
    recourse : bool
        Whether solutions are evaluated after every agent's recourse; see ``result.recourse``.
    other : Judge, optional
        Judge of the problem on other data, whose compiled program is reused.
    rules : {"dcp", "dgp", "dqcp"}
        cvxpy's rules that the problem follows.

    Attributes
    ----------
    optimum : float or None
        Optimum for the proxy data; None if the problem does not follow the rules, so that the
        optimum is unknown.
    best : Solution or None
        Solution at the optimum; None if the optimum is unknown.
    program : Program
        Compiled problem.
    start : float
        Value of the public initial point; infinite if it violates a constraint with private data.

    Raises
    ------
    ModelError
        If the problem with the proxy data has no solution.
    """

    def __init__(
        self,
        problem: Declaration,
        proxy: Mapping[Private | str, Sealed],
        verb: str,
        recourse: bool = False,
        other: Judge | None = None,
        rules: Rules = "dcp",
    ) -> None:
        self._problem, self._proxy = problem, proxy
        self._rules: Rules = rules
        self._central = not_private.joint_problem(problem, proxy, recourse=recourse)
        self._variables = problem.variables()
        # Values have the sign of a minimized objective.
        self._sign = -1.0 if isinstance(self._central.objective, cp.Maximize) else 1.0
        self.optimum = self._solved(verb) if follows(self._central, rules) else None
        self.program = program = _compiled(problem, rules) if other is None else other.program
        self.best = None if self.optimum is None else self._held()
        self._own = not_private.own_programs(problem, program, proxy) if recourse else None
        starts = tuple(local.start for local in program.agents)
        start = Solution(program, starts, whole_start(problem))
        self._initial = _common(start) if other is None else other._initial
        feasible = recourse or not self.breaks(start, {})  # recourse satisfies all constraints
        self.start = self.value(self._initial) if feasible else math.inf

    def __call__(self, solution: Solution) -> float:
        """Return a solution's objective on the proxy data; infinite without a feasible point."""
        return self.value(_common(solution))

    def value(self, common: Solution | None) -> float:
        """Return the objective at a point where agents agree and public constraints hold."""
        if common is not None and self._own is not None:
            common = decisions(self._own, common)
        if common is None:
            return math.inf
        for variable in self._variables:
            variable.save_value(common[variable])
        with np.errstate(all="ignore"):
            value = self._sign * float(np.asarray(self._central.objective.value, dtype=float))
        return math.inf if math.isnan(value) else value

    def breaks(self, solution: Solution, missed: Mapping[str, np.ndarray]) -> bool:
        """Return whether a solution violates a private constraint on the proxy data.

        Slack that the slack penalty paid for is no violation.

        Parameters
        ----------
        solution : Solution
            Solution before recourse.
        missed : mapping
            Slack of each constraint with private data; see `Result.constraint_slack`.
        """
        common = _common(solution) if solution.program.kept else None
        if common is None:
            return False
        return not_private.breaks(self._problem, common, missed, self._proxy)

    @property
    def base(self) -> float:
        """Return the objective value that gaps on the proxy data are measured from.

        It is the optimum, or the value of the initial point if the optimum is unknown.
        """
        reference = self.start if self.optimum is None else self.optimum
        return reference if math.isfinite(reference) else 0.0

    def _held(self) -> Solution:
        """Return the current values of the problem's cvxpy variables as a solution."""
        values = {variable.id: variable.value for variable in self._variables}
        start = whole_start(self._problem)
        vectors = []
        for local in self.program.agents:
            x = local.start.copy()
            for piece in local.layout.pieces:
                held = values.get(piece.variable)
                if held is not None:  # None if the problem does not depend on the variable
                    flat = real_entries(held)
                    x[piece.offset : piece.stop] = flat[piece.entries]
            vectors.append(x)
        return Solution(self.program, tuple(vectors), start)

    def reference(self, values: Iterable[float]) -> float:
        """Return the optimum, or the lowest of these values if the optimum is unknown."""
        return min([self.start, *values]) if self.optimum is None else self.optimum

    @property
    def idle(self) -> bool:
        """Return whether the initial point is already optimal, so that plans cannot be compared."""
        if self.optimum is None or math.isinf(self.start):
            return False
        return self.start - self.optimum <= _NEGLIGIBLE * max(abs(self.start), abs(self.optimum))

    def _solved(self, verb: str) -> float:
        status = _solve(self._central, self._rules)
        limited = any(agent.limits or agent.recourse for agent in self._problem.agents)
        data = "on the proxy data" if limited else "whatever the data"
        if status in (cp.OPTIMAL, cp.OPTIMAL_INACCURATE):
            return self._sign * float(np.asarray(self._central.value))
        if status in (cp.UNBOUNDED, cp.UNBOUNDED_INACCURATE):
            raise ModelError(
                f"On the proxy data the objectives are unbounded below, so {verb} cannot compute "
                "gaps to an optimum. Bound the variables, or check the signs of the objectives "
                "and of the proxy."
            )
        if status in (cp.INFEASIBLE, cp.INFEASIBLE_INACCURATE):
            raise ModelError(
                f"No point lies in the sets of all agents, so {verb} has nothing to compare: the "
                f"constraints contradict each other, {data}. Loosen one of them."
            )
        raise ModelError(
            f"The solver finds no optimum on the proxy data, so {verb} cannot compute gaps. Scale "
            "the problem so that its numbers are near 1."
        )


def _compiled(problem: Declaration, rules: Rules) -> Program:
    """Return the compiled problem, with private constraints kept apart if possible."""
    if rules != "dcp":
        return compile_problem(problem, as_written=AsWritten(False, None, rules))
    for as_written in (None, AsWritten(margins=True, penalty=None)):
        with suppress(ModelError, PrivacyError):
            return compile_problem(problem, as_written=as_written)
    return compile_problem(problem, as_written=AsWritten(margins=False, penalty=None))


def _common(solution: Solution) -> Solution | None:
    """Return the closest point where agents agree and public constraints hold; None if none."""
    if not solution.finite:
        return None
    point = common_point(solution.program, solution.vectors)
    return replace(solution, vectors=point.vectors) if point.found else None


def _solve(problem: cp.Problem, rules: Rules) -> str | None:
    """Solve a cvxpy problem, and return its status; None if the solver fails."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the status tells inaccurate solutions
        try:
            finite = any(isinstance(c, cp.FiniteSet) for c in problem.constraints)
            solve(problem, rules, None if finite or problem.is_mixed_integer() else cp.CLARABEL)
        except SolverError:
            return None
    return problem.status
