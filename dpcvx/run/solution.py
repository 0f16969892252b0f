"""Solutions: the agents' vectors as values of cvxpy variables, and their disagreement."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

from .._arguments import POSITIVE, check_argument, integer, show
from .._words import plural
from ..algorithms.common_point import shared_mean
from ..algorithms.program import AsWritten, Program, compile_problem
from ..algorithms.written_model import Decision
from ..errors import ModelError, PrivacyError
from ..guard import frameless
from ..model.declaration import SLACK
from ..model.matrices import from_real_entries, real_entries
from ..plan.agent_plan import with_releases
from ..plan.terms import Terms
from .oracle import Surrogate

Array = NDArray[np.float64]
# Tolerance relative to the largest dual value: solvers return such values in place of zero.
_UNPAID = 1e-6


@dataclass(frozen=True, eq=False)
class Surrogates:
    """Plan whose agents released their data once, and public data in place of the agents' data.

    With these data, the problem has the objective that the run minimized.
    """

    plan: Terms
    data: tuple[Array, ...]  # by agent, one private object after the other

    @cached_property
    def program(self) -> Program:
        """The user's model, for the server to solve as written."""
        self.plan.require_current_parameters()
        options = AsWritten(margins=False, penalty=None)
        program = compile_problem(self.plan.problem, as_written=options)
        assert program.model is not None
        return replace(program, model=with_releases(program.model, self.plan.agents))

    @cached_property
    def decision(self) -> Decision:
        """Solution of the user's model for the public data, with dual values."""
        assert self.program.model is not None
        return self.program.model.decide(self.data)


@dataclass(frozen=True, eq=False)
class Solution:
    """Values of all variables, by agent; index it by a cvxpy variable or its name.

    Attributes
    ----------
    program : Program
        Compiled problem, which maps cvxpy variables to entries of the agents' vectors.
    vectors : tuple of ndarray
        Vector of each agent, shape (n,).
    start : mapping
        Initial values of all variables, by cvxpy id; entries that no agent uses keep these values.
    decision : Decision or None
        Solution of the joint problem for the released data, with dual values; None if the server
        has not solved the model as written.
    surrogates : Surrogates or None
        Plan and public data that give dual values of other runs; None if agents released more than
        once, and in copies.
    eliminated : mapping of int to (str, str)
        Agent and name of each variable that the plan replaced by a function of the data, by cvxpy
        id.
    """

    program: Program = field(repr=False)
    vectors: tuple[Array, ...] = field(repr=False)
    start: Mapping[int, Array] = field(repr=False)
    decision: Decision | None = field(default=None, repr=False)
    surrogates: Surrogates | None = field(default=None, repr=False)
    eliminated: Mapping[int, tuple[str, str]] = field(default_factory=dict, repr=False)

    def __getstate__(self) -> dict[str, object]:
        # Copies drop the problem: its parameters may have other values later.
        return {**self.__dict__, "surrogates": None}

    def __repr__(self) -> str:
        entries = sum(x.size for x in self.vectors)
        return f"<Solution: {plural(len(self.vectors), 'agent')}, {entries} values>"

    @frameless
    def of(self, agent: str, variable: cp.Variable | str) -> Array:
        """Return one agent's copy of a variable.

        Parameters
        ----------
        agent : str
            Name of the agent.
        variable : cvxpy.Variable or str
            The variable, or its name.

        Returns
        -------
        ndarray of the variable's shape
            The agent's copy. Entries that the agent does not use have their public initial value.

        Raises
        ------
        ModelError
            If there is no such agent, it does not hold the variable, or the name stands for several
            variables.
        """
        if not isinstance(agent, str):
            raise ModelError(
                f"solution.of({show(agent)}, ...) takes the name of an agent first, then one of "
                "its cvxpy variables."
            )
        return self.copy_of(agent, variable, "solution.of(agent, x)")

    def copy_of(self, agent: str, variable: cp.Variable | str, written: str) -> Array:
        """Return one agent's copy of a variable; errors name the user's call `written`.

        Parameters
        ----------
        agent : str
            Name of the agent.
        variable : cvxpy.Variable or str
            The variable, or its name.
        written : str
            Code that users call, for messages.

        Raises
        ------
        ModelError
            See `of`.
        """
        number, name = self._found(variable, written)
        for local, x in zip(self.program.agents, self.vectors, strict=True):
            if local.name == agent and any(p.variable == number for p in local.layout.pieces):
                piece = local.layout[number]
                start = self.start[number]
                flat = real_entries(start).copy()
                flat[piece.entries] = x[piece.offset : piece.stop]
                return from_real_entries(flat, np.shape(start), np.iscomplexobj(start))
        names = ", ".join(local.name for local in self.program.agents)
        raise ModelError(
            f"No agent {show(agent)} holds a variable '{name}'; the agents are {names}."
        )

    @frameless
    def __getitem__(self, variable: cp.Variable | str) -> Array:
        """Return a variable's value: for each entry, the mean over all agents that use it.

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
            If no agent holds the variable, or the name stands for several variables.
        """
        return self._mean(self._found(variable, "solution[x]")[0])

    def keys(self) -> list[str]:
        """Return the names of all variables, so that ``dict(solution)`` works.

        Raises
        ------
        ModelError
            If several variables have one name.
        """
        names = self._own_names
        repeated = [name for name, count in Counter(names.values()).items() if count > 1]
        if repeated:
            raise ModelError(
                f"Several variables are called {show(repeated[0])}, so names do not tell them "
                "apart. Give each a name of its own, as in cp.Variable(name='power'), or write "
                "solution[x] with the cvxpy variable x."
            )
        return list(names.values())

    @frameless
    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def __len__(self) -> int:
        return len(self._own_names)

    def __contains__(self, variable: object) -> bool:
        names = self._own_names
        return (
            variable.id in names
            if isinstance(variable, cp.Variable)
            else variable in names.values()
        )

    @frameless
    def to_dict(self) -> dict[str, Array]:
        """Return the value of every variable by its name, as ``solution[name]`` gives it.

        Raises
        ------
        ModelError
            If several variables have one name.
        """
        return {name: self[name] for name in self.keys()}

    @frameless
    def dual(self, constraint: cp.Constraint) -> Any:
        """Return the dual value of a constraint in the problem that was solved for released data.

        It is computed from released values, so it costs no privacy (post-processing). If the run
        did not solve the model as written, the first call does, for the released data. Dual values
        of linear programs jump when the data change slightly: see `dual_stability`. With
        ``scenarios=``, the dual value belongs to the problem that averages over the scenarios. In
        geometric programs it is relative, as in cvxpy: percent of the objective per percent.

        Parameters
        ----------
        constraint : cvxpy constraint
            Constraint of an agent, or of ``coupling=``.

        Returns
        -------
        ndarray or list of ndarray
            Dual value, in the form of ``constraint.dual_value`` in cvxpy.

        Raises
        ------
        PrivacyError
            If the agents did not release data or linear coefficients once, if they are owners on
            other machines, or if the result is a copy.
        ModelError
            If the solved problem does not contain this constraint, or is mixed-integer.
        """
        return self._priced(constraint)[0].duals[constraint.id]

    @frameless
    def dual_stability(
        self, constraint: cp.Constraint, *, draws: int = 20, tolerance: float = 0.01
    ) -> Array:
        """Return the share of simulated releases that leave a dual value unchanged.

        Each simulated release adds noise of the mechanism's distribution to the released data, and
        solves the problem for the sum. No private data are read, so this costs no privacy. Every
        call draws the same public noise.

        Parameters
        ----------
        constraint : cvxpy constraint
            Constraint of an agent, or of ``coupling=``.
        draws : int
            Number of simulated releases.
        tolerance : float
            Largest change that counts as unchanged, relative to the dual value. A millionth of the
            largest dual value is added to it.

        Returns
        -------
        ndarray, of the shape of the dual value
            Shares between 0 and 1.

        Raises
        ------
        PrivacyError, ModelError
            As for `dual`.
        """
        check_argument("solution.dual_stability", "draws", draws, integer(1))
        check_argument("solution.dual_stability", "tolerance", tolerance, POSITIVE)
        decision, program = self._priced(constraint)
        model = program.model
        value = np.asarray(decision.duals[constraint.id])
        sizes = [np.abs(part).max(initial=0.0) for part in map(_entries, decision.duals.values())]
        near = tolerance * np.abs(value) + _UNPAID * max(sizes)
        assert model is not None
        if not model.published:  # nothing is noisy
            return np.ones(value.shape)
        stays = np.zeros(value.shape)
        for released in model.redrawn(decision.data, draws):
            again = program.decide(released, decision.scenarios, decision.solver)
            other = again.duals.get(constraint.id)
            if other is not None:
                stays += np.abs(np.asarray(other) - value) <= near
        return stays / draws

    def _priced(self, constraint: cp.Constraint) -> tuple[Decision, Program]:
        """Return the joint problem's solution if it has a dual value of this constraint.

        Also return the program that it solves.
        """
        decision, program = self.decision, self.program
        if decision is None and self.surrogates is not None:
            decision, program = self.surrogates.decision, self.surrogates.program
        if decision is None or decision.vectors is None:
            raise PrivacyError(
                "This run has no dual values, so constraint.dual_value is None. Write "
                "problem.plan(release='once', ...) or problem.plan(dp.OneShot(as_written=True), "
                "...), and read solution.dual of the run's own result, not of a copy. Prices then "
                "follow from released data; exact prices would reveal the data."
            )
        number = constraint.id if isinstance(constraint, cp.Constraint) else None
        if number not in decision.duals:
            model = program.model
            if model is not None and model.mixed:
                raise ModelError(
                    "A problem with boolean or integer variables has no dual values, as in cvxpy. "
                    "Fix these variables, or relax them, and solve again for result.released."
                )
            if model is not None and not model.priced:
                raise ModelError(
                    "A quasiconvex program has no dual values, as in cvxpy. Fix the objective's "
                    "level, which makes a convex problem, and solve it for result.released."
                )
            raise ModelError(
                "solution.dual(constraint) takes a constraint of an agent or of coupling=. Pass "
                "the Python object that you gave to dp.Agent or dp.Problem. Constraints that "
                "margins keep for the true data have no dual value."
            )
        return decision, program

    def _found(self, variable: cp.Variable | str, written: str) -> tuple[int, str]:
        """Return the cvxpy id and the name of a variable that at least one agent holds.

        Errors name the user's call `written`.
        """
        names_of = self._names
        for number, (agent, name) in self.eliminated.items():
            if number == variable.id if isinstance(variable, cp.Variable) else name == variable:
                raise ModelError(
                    f"Variable '{name}' follows from the decision and private data by a "
                    "constraint, so no released value holds it. Its owner computes it: "
                    f"result.recourse('{agent}')['{name}']."
                )
        if isinstance(variable, cp.Variable):
            if variable.id not in names_of:
                raise ModelError(f"No agent holds a variable '{variable.name()}'.")
            return variable.id, variable.name()
        if not isinstance(variable, str):
            raise ModelError(
                f"{written} takes a cvxpy variable x or its name, and got {show(variable)}."
            )
        numbers = [number for number, name in names_of.items() if name == variable]
        if not numbers:
            names = ", ".join(repr(name) for name in sorted(set(names_of.values())))
            raise ModelError(f"No agent holds a variable {show(variable)}; there are {names}.")
        if len(numbers) > 1:
            raise ModelError(
                f"{len(numbers)} variables are called {show(variable)}, so the name does not tell "
                f"which is meant. Write {written} with the cvxpy variable x itself."
            )
        return numbers[0], variable

    @property
    def means(self) -> list[tuple[str, Array]]:
        """Pairs (name, value) of all variables, with the means of the agents' copies."""
        names = self._own_names
        return [*zip(names.values(), self._means(names).values(), strict=True)]

    @property
    def _own_names(self) -> dict[int, str]:
        """Variable names by cvxpy id, without the slack variables that the package adds."""
        return {k: name for k, name in self._names.items() if not name.startswith(f"{SLACK} ")}

    @property
    def _names(self) -> dict[int, str]:
        """Variable names by cvxpy id."""
        return {p.variable: p.name for local in self.program.agents for p in local.layout.pieces}

    def _mean(self, variable: int) -> Array:
        """Return a variable's mean, each entry over the agents that hold it."""
        return self._means([variable])[variable]

    def _means(self, variables: Iterable[int]) -> dict[int, Array]:
        """Return the means of several variables by cvxpy id, in one pass over all agents."""
        starts = {variable: np.asarray(self.start[variable]) for variable in variables}
        flats = {variable: real_entries(start).copy() for variable, start in starts.items()}
        sums = {k: (np.zeros(flat.size), np.zeros(flat.size)) for k, flat in flats.items()}
        for local, x in zip(self.program.agents, self.vectors, strict=True):
            for piece in local.layout.pieces:
                if piece.variable in sums:
                    total, count = sums[piece.variable]
                    total[piece.entries] += x[piece.offset : piece.stop]
                    count[piece.entries] += 1
        for variable, (total, count) in sums.items():
            flats[variable][count > 0] = total[count > 0] / count[count > 0]
        return {
            variable: from_real_entries(flats[variable], start.shape, np.iscomplexobj(start))
            for variable, start in starts.items()
        }

    @property
    def common(self) -> tuple[Array, ...]:
        """The agents' vectors, with each shared entry replaced by the mean of all copies."""
        mean = shared_mean(self.program, self.vectors)
        vectors = tuple(x.copy() for x in self.vectors)
        for local, x in zip(self.program.agents, vectors, strict=True):
            x[local.shared] = mean[local.slots]
        return vectors

    @property
    def finite(self) -> bool:
        """Return whether all agents' values and their disagreement are finite."""
        return all(np.isfinite(x).all() for x in self.vectors) and math.isfinite(self.mismatch)

    @property
    def coupling_residual(self) -> float:
        """Largest violation of the constraints in ``coupling=``; 0 without a coupling."""
        coupling = self.program.coupling
        if coupling is None:
            return 0.0
        means = self._means(coupling.starts)
        values = [np.ravel(means[variable], order="F") for variable in coupling.starts]
        return coupling.violation(np.concatenate(values))

    @property
    def mismatch(self) -> float:
        """Disagreement of the agents: the larger of two violations.

        One is the largest deviation of an agent's shared entry from the mean of all copies. The
        other is `coupling_residual`.
        """
        with np.errstate(invalid="ignore", over="ignore"):  # overflow in diverged runs
            mean = shared_mean(self.program, self.vectors)
            gaps = [
                np.abs(x[local.shared] - mean[local.slots]).max(initial=0.0)
                for local, x in zip(self.program.agents, self.vectors, strict=True)
            ]
        # numpy's maximum propagates nan; Python's may not
        return float(np.max([*gaps, self.coupling_residual]))


@dataclass(frozen=True, eq=False)
class Iterate:
    """Average and last iterates after one round.

    Attributes
    ----------
    average, last : Solution
        Average of the iterates up to the round, and its last iterates.
    """

    average: Solution
    last: Solution


def _entries(dual: Any) -> Array:
    """Return all entries of a dual value as a vector; the value may be a list of parts."""
    parts = dual if isinstance(dual, (list, tuple)) else [dual]
    return np.concatenate([real_entries(part) for part in parts])


def assign(
    solution: Solution | None,
    variables: Sequence[cp.Variable],
    constraints: Sequence[cp.Constraint],
) -> None:
    """Set ``variable.value`` of the problem's variables, to None if there is no solution.

    Dual values of constraints are set to those of the joint problem for released data, or to None,
    since earlier dual values from cvxpy belong to other variable values.
    """
    means = {} if solution is None else solution._means([variable.id for variable in variables])
    for variable in variables:
        # save_value skips the checks of attributes, which rounding errors can violate.
        variable.save_value(means.get(variable.id))
    decision = None if solution is None else solution.decision
    for constraint in constraints:
        duals = constraint.dual_variables
        for dual in duals:
            dual.save_value(None)
        value = None if decision is None else decision.duals.get(constraint.id)
        if value is None:
            continue
        if len(duals) == 1:
            constraint.save_dual_value(value)
        else:  # cones have several dual variables of different shapes
            for dual, part in zip(duals, value, strict=True):
                dual.save_value(part)


def surrogates_of(plan: Terms, reported: Sequence[Surrogate | None]) -> Surrogates | None:
    """Return the public data that give dual values; None if a run's releases do not give them.

    Parameters
    ----------
    plan : Terms
    reported : sequence of (Surrogate or None)
        Public data in place of each agent's data, if the agent released its data once.
    """
    agents, data = plan.program.agents, list[Array]()
    for local, surrogate in zip(agents, reported, strict=True):
        if local.limits or (local.form.private and surrogate is None):
            return None  # margins are no constraint of the user's, so they have no dual value
        data.append(np.concatenate([np.zeros(0), *(surrogate.data if surrogate else ())]))
    return Surrogates(plan, tuple(data)) if plan.published and plan.problem.is_dcp() else None


def released_of(
    program: Program, decision: Decision | None, reported: Sequence[Surrogate | None]
) -> dict[str, Array]:
    """Return the released data by name of the private object; empty without noise.

    Parameters
    ----------
    program : Program
    decision : Decision or None
        Solution for released data, if the server solved the model as written.
    reported : sequence of (Surrogate or None)
        Released surrogates; see `surrogates_of`.
    """
    model = program.model
    if decision is None or model is None:
        pairs = zip(program.agents, reported, strict=True)
        return {
            spec.name: spec.shaped(part)
            for local, surrogate in pairs
            if surrogate is not None and surrogate.whole
            for spec, part in zip(local.form.private, surrogate.data, strict=True)
        }
    if not any(model.published):
        return {}
    return {
        spec.name: spec.shaped(part)
        for agent, flat in zip(model.agents, decision.data, strict=True)
        for spec, part in zip(agent.specs, agent.split(flat), strict=True)
    }
