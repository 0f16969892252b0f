"""The problem as its users wrote it, solved by cvxpy with released data in place of private data.

Data that were released once are public, so any optimization on them is post-processing. No
gradient is needed, so the model may use every atom and cone, and mixed-integer variables. For all
declared data, it must follow cvxpy's rules for parameters of declared sign: the rules for convex
programs (DCP), or for geometric (DGP) or quasiconvex programs (DQCP) if the user chooses them. A
plan checks this before any data are read.
"""

from __future__ import annotations

import functools
import operator
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal, Protocol

import cvxpy as cp
import numpy as np
from cvxpy.constraints.nonpos import Inequality
from cvxpy.constraints.zero import Equality
from numpy.typing import NDArray

from ..errors import ModelError
from ..guard import understood
from ..model.adjacency import Within
from ..model.agent import Agent, private_in
from ..model.canonical import ConeData, public_copy, require_solver
from ..model.constraints import at_corner
from ..model.declaration import Declaration, affine
from ..model.layout import Layout, picked, projected
from ..model.matrices import as_array, real_entries
from ..model.private_constraints import matrices
from ..model.spec import PrivateSpec
from ..privacy.randomness import Randomness, source_for, uniform
from ..solvers.conic import Outcome
from ..solvers.libraries import attempt

Array = NDArray[np.float64]
Index = NDArray[np.intp]

_OUTCOMES = {
    cp.OPTIMAL: Outcome.SOLVED,
    cp.OPTIMAL_INACCURATE: Outcome.INACCURATE,
    cp.INFEASIBLE: Outcome.INFEASIBLE,
    cp.INFEASIBLE_INACCURATE: Outcome.INFEASIBLE,
    cp.UNBOUNDED: Outcome.UNBOUNDED,
    cp.UNBOUNDED_INACCURATE: Outcome.UNBOUNDED,
}
_SOLVED = (Outcome.SOLVED, Outcome.INACCURATE)
# Largest number of variables and data of all scenarios together; fewer scenarios are drawn beyond.
_MOST = 100_000
# Seed of the public draws of scenarios.
_SEED = 0
# cvxpy's rules for models that it can solve: DCP, DGP or DQCP.
Rules = Literal["dcp", "dgp", "dqcp"]
# Names of the arguments of ``cp.Problem.solve`` for these rules.
ARGUMENTS: Mapping[Rules, str] = {"dgp": "gp", "dqcp": "qcp"}
_PROGRAMS: Mapping[Rules, str] = {"dgp": "geometric", "dqcp": "quasiconvex"}
# Tolerances of bisection for the optimal value of a quasiconvex program.
_DISTANCES = (1e-6, 1e-5, 1e-4)

# Boxes around the data of agents, by position: lower and upper corners in the objects' shapes.
Boxes = Mapping[int, tuple[list[Array], list[Array]]]
# Options of a solver by their names, as cvxpy takes them.
Options = Sequence[tuple[str, Any]]
# Number of rows of constraints from which on HiGHS solves linear programs.
_LARGE = 10_000
# Absolute tolerances of HiGHS, whose default of 1e-7 is larger than Clarabel's.
_TOLERANCES = {"primal_feasibility_tolerance": 1e-9, "dual_feasibility_tolerance": 1e-9}


@dataclass(frozen=True)
class SolverChoice:
    """Name of the solver that cvxpy calls, and options for it."""

    name: str | None = None  # None: Clarabel, or SciPy and cvxpy's choice with integer variables
    options: tuple[tuple[str, bool | int | float | str], ...] = ()


class Statistic(Protocol):
    """Statistic that an agent releases once, such as a `Publication` of `dpcvx.sensitivity`."""

    @property
    def kind(self) -> str:
        """Return the kind of the statistic; see `Publication`."""
        ...

    @property
    def whole(self) -> bool:
        """Return whether the statistic determines the data: if not, it is sums or moments."""
        ...

    @property
    def private(self) -> tuple[PrivateSpec, ...]:
        """Specifications of the agent's private objects."""
        ...

    @property
    def size(self) -> int:
        """Number of components of the statistic."""
        ...

    def statistic(self, data: Sequence[Array]) -> Array:
        """Return the statistic of flat data, without noise."""
        ...

    def unlimited(self, released: Array) -> Array:
        """Return the released data, without projection onto declared bounds.

        If the statistic does not determine the data, return the released statistic.
        """
        ...

    def around(self, released: Array, noise: Array) -> list[Array]:
        """Return surrogate data for the release plus simulated noise of equal size."""
        ...


@dataclass(frozen=True, eq=False)
class WrittenAgent:
    """An agent's model over copies of its variables, with a parameter for each private object."""

    name: str
    layout: Layout
    cost: cp.Expression
    constraints: tuple[cp.Constraint, ...]  # all but the constraints that have margins
    ids: tuple[int, ...]  # cvxpy ids of the user's originals of these constraints
    called: tuple[str, ...]  # their names in messages; "" for constraints without private data
    data: tuple[cp.Parameter, ...]  # one parameter per private object
    specs: tuple[PrivateSpec, ...]
    proxies: tuple[Array | None, ...]  # public values of the private objects, flat
    bends: bool  # whether the cost is not known to be affine in the data, for fixed variables
    by_moments: bool = False  # whether the model depends on records only by their second moments

    def split(self, flat: Array) -> list[Array]:
        """Return the agent's flat data as one flat array per private object."""
        ends = np.cumsum([spec.size for spec in self.specs])
        return np.split(flat, ends)[: len(self.specs)]

    def box(self, released: Array, reach: Array | None) -> tuple[list[Array], list[Array]]:
        """Return the lower and upper corner of the box that contains the data, in their shapes.

        Parameters
        ----------
        released : ndarray
            Released data, one object after the other, without a projection.
        reach : ndarray or None
            Largest noise in each entry; None for data without noise.
        """
        corners = []
        for side in (-1.0, 1.0):
            moved = released if reach is None else released + side * reach
            parts = zip(self.specs, self.split(moved), strict=True)
            clipped = [(spec, np.clip(part, *spec.interval)) for spec, part in parts]
            corners.append([spec.shaped(part) for spec, part in clipped])
        return corners[0], corners[1]

    def places(self, flat: Array) -> dict[int, Any]:
        """Return the constant that replaces each parameter, by the parameter's Python id.

        Parameters
        ----------
        flat : ndarray
            Values of the agent's private objects, one object after the other.
        """
        values: dict[int, Any] = {}
        for p, spec, part in zip(self.data, self.specs, self.split(flat), strict=True):
            value: Any = cp.Constant(spec.shaped(part))
            # cvxpy cannot rewrite psd_wrap of a complex matrix; it checks eigenvalues instead.
            values[id(p)] = cp.psd_wrap(value) if spec.psd and not spec.is_complex else value
        return values

    def held(self, values: Mapping[int, Array]) -> Array:
        """Return the agent's vector x.

        Parameters
        ----------
        values : mapping of int to ndarray
            Flat values of all variables, by the ids of the users' variables.
        """
        parts = [values[piece.variable][piece.entries] for piece in self.layout.pieces]
        return np.concatenate([np.zeros(0), *parts])


@dataclass(frozen=True, eq=False)
class Tight:
    """A constraint tightened by margins, as a cone program over entries of an agent's vector."""

    agent: int
    columns: Index  # positions of these entries
    data: ConeData


@dataclass(frozen=True, eq=False)
class Decision:
    """Solution of the user's model for released data, or the outcome if there is no solution."""

    outcome: Outcome
    vectors: tuple[Array, ...] | None = None  # by agent; None if there is no solution
    duals: Mapping[int, Any] = field(default_factory=dict)  # by the id of the user's constraint
    extra: Array = field(default_factory=lambda: np.zeros(0))  # auxiliary variables of margins
    slack: Mapping[str, Array] = field(default_factory=dict)  # by the constraint's name
    data: tuple[Array, ...] = ()  # data used, by agent; () if the data had no noise
    repair: str = ""  # name of the data used instead, if released data were infeasible
    scenarios: int = 0  # requested number of scenarios
    solver: SolverChoice = SolverChoice()


@dataclass(frozen=True, eq=False)
class WrittenModel:
    """Copies of all agents' objectives, constraints and the coupling; see the module."""

    agents: tuple[WrittenAgent, ...]
    coupling: tuple[cp.Constraint, ...]
    coupling_ids: tuple[int, ...]  # cvxpy ids of the user's originals
    variables: Mapping[int, cp.Variable]  # copies, by the id of the user's variable
    # Lower and upper bounds outside of which a cost has no value, by the id of the variable's copy.
    domain: Mapping[int, tuple[Array, Array]] = field(default_factory=dict)
    penalty: float | None = None  # cost per unit of slack in a constraint with private data
    published: tuple[Statistic | None, ...] = ()  # each agent's released statistic; () for no noise
    deviations: tuple[float, ...] = ()  # by agent: standard deviation of the noise per component
    # By agent: function of uniform numbers and a standard deviation that returns noise.
    laws: tuple[Callable[[Array, float], Array] | None, ...] = ()
    rules: Rules = "dcp"
    maximized: bool = False  # whether the total cost is maximized; never for DCP
    # Whether constraints with private data hold for the true data, at corners of boxes.
    guarded: bool = False

    @property
    def limited(self) -> bool:
        """Return whether constraints with private data hold for the released data, without margins.

        The true data may then violate them.
        """
        return not self.guarded and any(what for agent in self.agents for what in agent.called)

    @property
    def firm(self) -> bool:
        """Return whether constraints hold for the true data and allow no slack."""
        return self.guarded and self.penalty is None

    @property
    def bends(self) -> bool:
        """Return whether averaging the cost over scenarios changes it and keeps cvxpy's rules."""
        sums = self.rules == "dcp" or (self.rules == "dgp" and not self.maximized)
        return sums and any(agent.bends for agent in self.agents)

    @property
    def summed(self) -> list[str]:
        """Return the names of private objects that are released only as sums or moments."""
        sums = [statistic for statistic in self.published if statistic and not statistic.whole]
        return [spec.name for statistic in sums for spec in statistic.private]

    @property
    def mixed(self) -> bool:
        """Return whether a variable is boolean or integer, or a constraint is a finite set."""
        return any(map(integral, self.variables.values())) or any(
            isinstance(c, cp.FiniteSet)
            for c in (*self.coupling, *(c for agent in self.agents for c in agent.constraints))
        )

    def restored(self, released: Sequence[Array]) -> tuple[Array, ...]:
        """Return surrogate data of the declared kind for the released values, by agent."""
        return self._put_together(released, None)

    def scenarios(self, released: Sequence[Array], count: int) -> list[tuple[Array, ...]]:
        """Return simulated data sets: surrogate data for the release plus or minus drawn noise.

        All plans use the same draws, so the decision is a function of the released values.
        """
        size = sum(a.layout.size + sum(spec.size for spec in a.specs) for a in self.agents)
        pairs = min(count, _MOST // max(size, 1)) // 2
        if not self.published or not self.bends:
            return []
        draws = source_for(_SEED, (0,)).at(0, 0)
        drawn: list[tuple[Array, ...]] = []
        sizes = [0 if statistic is None else statistic.size for statistic in self.published]
        for _ in range(pairs):
            noise = [self._noise(k, size, draws) for k, size in enumerate(sizes)]
            drawn.append(self._put_together(released, noise))
            drawn.append(self._put_together(released, [-each for each in noise]))
        return drawn

    def redrawn(self, data: Sequence[Array], count: int) -> Iterator[list[Array]]:
        """Yield simulated releases, by agent, for data that stand for the true data.

        The simulated noise has a fixed seed.

        Parameters
        ----------
        data : sequence of ndarray
            Surrogate data as `restored` returns them, by agent.
        count : int
            Number of simulated releases.
        """
        draws = source_for(_SEED, (1,)).at(0, 0)
        for _ in range(count):
            released = []
            for k, (statistic, flat) in enumerate(zip(self.published, data, strict=True)):
                if statistic is None:
                    released.append(flat)
                    continue
                noisy = statistic.statistic(self.agents[k].split(flat))
                noisy = noisy + self._noise(k, statistic.size, draws)
                released.append(statistic.unlimited(noisy) if statistic.whole else noisy)
            yield released

    def _noise(self, k: int, size: int, draws: Randomness) -> Array:
        """Return simulated noise with the law of agent k's noise; it protects no data."""
        u, law = uniform(size, draws) + 2.0**-54, self.laws[k]
        return np.zeros(size) if law is None else law(u, self.deviations[k])

    def _put_together(
        self, released: Sequence[Array], noise: Sequence[Array] | None
    ) -> tuple[Array, ...]:
        if not self.published:
            return tuple(released)
        data = []
        for k, (statistic, flat) in enumerate(zip(self.published, released, strict=True)):
            if statistic is None:
                data.append(flat)
                continue
            values = statistic.statistic(self.agents[k].split(flat)) if statistic.whole else flat
            more = np.zeros(statistic.size) if noise is None else noise[k]
            data.append(np.concatenate(statistic.around(values, more)))
        return tuple(data)

    def decide(
        self,
        data: Sequence[Array],
        tight: Sequence[Tight] = (),
        scenarios: Sequence[Sequence[Array]] = (),
        solver: SolverChoice = SolverChoice(),
        boxes: Boxes = MappingProxyType({}),
    ) -> Decision:
        """Return the solution of the problem for public data.

        If the data are infeasible, try the closest feasible data, then the public proxy data.

        Parameters
        ----------
        data : sequence of ndarray
            Values for each agent's private objects, one object after the other.
        tight : sequence of Tight
            Constraints tightened by margins.
        scenarios : sequence of sequence of ndarray
            Further data sets to average the cost over.
        solver : SolverChoice
        boxes : mapping of int to (list of ndarray, list of ndarray)
            Boxes by position of the agent. Its constraints hold at corners of its box.
        """
        first = self._decided(data, tight, scenarios, solver, boxes)
        if first.vectors is None and scenarios:
            first = self._decided(data, tight, (), solver, boxes)
        if first.vectors is not None:
            return self._told(first, data)
        if first.outcome is Outcome.UNBOUNDED:
            return self._told(first, data)
        for repair in (self._proxies,) if boxes else (self._nearest, self._proxies):
            other = repair(data)
            again = None if other is None else self._decided(other[0], tight, (), solver, boxes)
            if other is not None and again is not None and again.vectors is not None:
                return self._told(replace(again, repair=other[1]), other[0])
        return self._told(first, data)

    def _told(self, decision: Decision, data: Sequence[Array]) -> Decision:
        """Return the decision with `data`, its input, stored in it if data were released."""
        return replace(decision, data=tuple(data)) if self.published else decision

    def _decided(
        self,
        data: Sequence[Array],
        tight: Sequence[Tight],
        scenarios: Sequence[Sequence[Array]],
        solver: SolverChoice,
        boxes: Boxes,
    ) -> Decision:
        cost = self._cost([data, *scenarios])
        constraints: list[cp.Constraint] = []
        slacks: dict[str, cp.Variable] = {}
        for k, (agent, values) in enumerate(zip(self.agents, data, strict=True)):
            places = agent.places(values)
            for constraint, what in zip(agent.constraints, agent.called, strict=True):
                if what and k in boxes:
                    copy = at_corner(constraint, agent.data, *boxes[k])
                else:
                    copy = constraint.tree_copy(dict(places))
                if what and self.penalty is not None and isinstance(copy, (Equality, Inequality)):
                    left, right = copy.args
                    slack = slacks[what] = cp.Variable(copy.shape)
                    equal = isinstance(copy, Equality)
                    copy = left - right == slack if equal else left - right <= slack
                    missed = cp.abs(slack) if equal else cp.pos(slack)
                    cost = cost + self.penalty * cp.sum(missed)
                constraints.append(copy)
        rows: list[cp.Constraint] = []
        extras: list[cp.Variable] = []
        for limit in tight:
            y: Any = self._vector(self.agents[limit.agent])[limit.columns]
            if limit.data.q.size > limit.data.n:
                extras.append(cp.Variable(limit.data.q.size - limit.data.n))
                y = cp.hstack([y, extras[-1]])
            rows += _rows_of(limit.data, y)
            if limit.data.q.any():
                cost = cost + limit.data.q @ y
        constraints += [constraint.copy() for constraint in self.coupling]
        problem = cp.Problem(self._objective(cost), [*constraints, *rows])
        outcome, values = self._ended(problem, solver)
        if outcome not in _SOLVED:
            return Decision(outcome)
        flat = {number: self._flat(v, values.get(v.id)) for number, v in self.variables.items()}
        vectors = tuple(agent.held(flat) for agent in self.agents)
        if not all(np.isfinite(x).all() for x in vectors):
            return Decision(Outcome.FAILED)
        ids = [*(number for agent in self.agents for number in agent.ids), *self.coupling_ids]
        duals: dict[int, Any] = {}
        if self.priced:
            pairs = zip(ids, constraints, strict=True)
            duals = {number: constraint.dual_value for number, constraint in pairs}
        extra = np.concatenate([np.zeros(0), *(values[added.id] for added in extras)])
        slack = {what: np.ravel(values[variable.id]) for what, variable in slacks.items()}
        return Decision(outcome, vectors, duals, extra, slack)

    def _flat(self, variable: cp.Variable, value: Any) -> Array:
        """Return a variable's entries; 0 if the problem does not contain the variable.

        Entries are projected onto the variable's attributes and the domain of the costs, which
        solvers violate by rounding errors.
        """
        if variable.is_complex():
            given = np.zeros(variable.shape) if value is None else value
            return real_entries(np.asarray(variable.project(given), dtype=complex))
        if value is None:
            return np.zeros(variable.size)
        inside = projected(variable, np.reshape(as_array(value), variable.shape, order="F"))
        flat = real_entries(inside)
        return np.clip(flat, *self.domain.get(variable.id, (-np.inf, np.inf)))

    def _cost(self, points: Sequence[Sequence[Array]]) -> Any:
        """Return the sum of all agents' costs, averaged over several data sets."""
        total = []
        for k, agent in enumerate(self.agents):
            several = points if agent.data and len(points) > 1 else points[:1]
            terms = [agent.cost.tree_copy(agent.places(point[k])) for point in several]
            mean = joined(terms)
            total.append(mean / len(terms) if len(terms) > 1 else mean)
        return joined(total)

    def _objective(self, cost: Any) -> cp.Minimize | cp.Maximize:
        return cp.Maximize(cost) if self.maximized else cp.Minimize(cost)

    @property
    def priced(self) -> bool:
        """Return whether the solved problem has dual values: not with integers or DQCP."""
        return not self.mixed and self.rules != "dqcp"

    @property
    def problem(self) -> cp.Problem:
        """The problem with a parameter for each private object, only to check cvxpy's rules."""
        costs = [agent.cost for agent in self.agents]
        constraints = [*(c for agent in self.agents for c in agent.constraints), *self.coupling]
        return cp.Problem(self._objective(joined(costs)), constraints)

    def rehearsed(self, solver: SolverChoice) -> str:
        """Return why cvxpy cannot solve the model for proxy or made-up data; "" if it can.

        With default solver and options and no integer variables, nothing is solved. For a
        mixed-integer problem without options, which may take long, only the presence of a solver is
        checked.

        Parameters
        ----------
        solver : SolverChoice
        """
        if solver == SolverChoice() and not self.mixed:
            return ""
        values = [
            [
                spec.admissible(np.ones(spec.size)) if proxy is None else proxy
                for spec, proxy in zip(agent.specs, agent.proxies, strict=True)
            ]
            for agent in self.agents
        ]
        data = [np.concatenate([np.zeros(0), *parts]) for parts in values]
        problem = cp.Problem(
            self._objective(self._cost([data])),
            [
                *(
                    c.tree_copy(agent.places(flat))
                    for agent, flat in zip(self.agents, data, strict=True)
                    for c in agent.constraints
                ),
                *(c.copy() for c in self.coupling),
            ],
        )
        told = ""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for name, options in self._solvers(problem, solver):
                try:
                    if self.mixed and self.rules != "dqcp" and not solver.options:
                        require_solver(problem, name, self.rules == "dgp")
                    else:
                        solve(problem, self.rules, name, options)
                    return ""
                except cp.SolverError as error:
                    if "failed" in str(error):  # because of the made-up numbers
                        return ""
                    told = str(error).partition(" Refer to")[0]
                except Exception as error:
                    told = f"{type(error).__name__}: {error}"
        return told

    def _solvers(
        self, problem: cp.Problem, solver: SolverChoice
    ) -> Sequence[tuple[str | None, Options]]:
        """Return solvers to try in order, with their options; None stands for cvxpy's choice.

        Clarabel takes every cone. SCIPY, which calls HiGHS and prints nothing, takes linear
        programs and mixed-integer linear ones. It is several times faster on large ones.
        """
        names: list[str | None] = [cp.CLARABEL]
        if solver.name is not None:
            names = [solver.name]
        elif self.mixed:
            names = [cp.SCIPY, None] if self.rules == "dcp" else [None]
        elif self.rules == "dqcp":
            names = [cp.CLARABEL, cp.SCS]
        tried: list[tuple[str | None, Options]] = [(name, solver.options) for name in names]
        free = solver == SolverChoice() and self.rules == "dcp" and not self.mixed
        if free and _is_large_linear(problem):  # cvxpy changes the options that it gets
            tried.insert(0, (cp.SCIPY, [("scipy_options", dict(_TOLERANCES))]))
        return tried

    def _ended(
        self, problem: cp.Problem, solver: SolverChoice = SolverChoice()
    ) -> tuple[Outcome, Mapping[int, Any]]:
        """Solve a problem, and return the outcome and the values by the ids of variables.

        The `value` of a variable is not used, because runs in other threads set it as well.
        """
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of inaccurate solutions, which the status tells
            for name, options in self._solvers(problem, solver):
                # An exception of a solver must not end the run: the release has been charged.
                given = problem, self.rules, name, options
                if attempt(lambda given=given: solve(*given) or True):
                    break
            else:
                return Outcome.FAILED, {}
        values = {} if problem.solution is None else problem.solution.primal_vars
        return _OUTCOMES.get(problem.status, Outcome.FAILED), values

    def _vector(self, agent: WrittenAgent) -> cp.Expression:
        """Return the agent's vector x as an expression in the copied variables."""
        parts = []
        for piece in agent.layout.pieces:
            variable = self.variables[piece.variable]
            flat = cp.vec(variable, order="F")
            if variable.is_complex():
                flat = cp.hstack([cp.real(flat), cp.imag(flat)])
            parts.append(flat[piece.entries])
        return cp.hstack(parts)

    def _nearest(self, data: Sequence[Array]) -> tuple[list[Array], str] | None:
        """Return the closest feasible data and a name for them in notes.

        None if that problem in variables and data breaks the rules, or has no solution.
        """
        if not all(isinstance(s.adjacency, Within) for a in self.agents for s in a.specs):
            return None  # released records are not near any admissible records
        far: list[Any] = []
        constraints = [*self.coupling]
        places: list[list[cp.Variable]] = []
        for agent, flat in zip(self.agents, data, strict=True):
            places.append([free(p) for p in agent.data])
            each = zip(places[-1], agent.specs, agent.split(flat), strict=True)
            for d, spec, part in each:
                far.append(self._distance(d, spec.shaped(part), spec.adjacency.radius))
            moved = {id(p): d for p, d in zip(agent.data, places[-1], strict=True)}
            constraints += [put(c, moved) for c in agent.constraints]
        if any(constraint is None for constraint in constraints):
            return None
        problem = cp.Problem(cp.Minimize(joined(far)), constraints)
        if not follows(problem, self.rules):
            return None
        outcome, values = self._ended(problem)
        if outcome not in _SOLVED:
            return None
        moved = []
        for agent, variables in zip(self.agents, places, strict=True):
            pairs = zip(agent.specs, variables, strict=True)
            parts = [spec.admissible(spec.kept(np.asarray(values[d.id]))) for spec, d in pairs]
            moved.append(np.concatenate([np.zeros(0), *parts]))
        return moved, "the closest data for which they do"

    def _distance(self, d: cp.Variable, value: Array, radius: float) -> Any:
        """Return the squared distance of d from data, in units of the adjacency radius.

        A geometric program takes the distance of logarithms, to second order and up to a constant:
        ``t + 1 / t - 2`` is about ``log(t) ** 2``.
        """
        if self.rules != "dgp":
            return cp.sum_squares((d - value) / radius)
        ratio = cp.multiply(d, 1 / value)
        return cp.sum(cp.multiply((value / radius) ** 2, ratio + 1 / ratio))

    def _proxies(self, data: Sequence[Array]) -> tuple[list[Array], str] | None:
        """Return the public proxy data and a name for them in notes; None if an agent has none."""
        if any(value is None for agent in self.agents for value in agent.proxies):
            return None
        parts = [[v for v in agent.proxies if v is not None] for agent in self.agents]
        flat = [np.concatenate([np.zeros(0), *values]) for values in parts]
        return flat, "the public proxy data"


def written_model(
    problem: Declaration,
    *,
    guarded: Collection[int] | None,
    penalty: float | None,
    rules: Rules = "dcp",
    positive: bool = False,
) -> WrittenModel:
    """Return a copy of the problem with public parameters at their values.

    No private data are read.

    Parameters
    ----------
    problem : Declaration
    guarded : collection of int or None
        The cvxpy ids of the constraints with private data that the copy contains, to hold at
        corners of boxes. None if it contains all of them, for released data.
    penalty : float or None
        Cost per unit of slack in a constraint with private data; None allows no slack.
    rules : {"dcp", "dgp", "dqcp"}
        cvxpy's rules that the model must follow.
    positive : bool
        Whether all private data are treated as positive.

    Raises
    ------
    ModelError
        If a public parameter has no value, or the model does not follow its rules.
    """
    variables = {v.id: _copied(v) for v in (*problem.variables(), *problem.slacks)}
    places = {id(v): variables[v.id] for v in (*problem.variables(), *problem.slacks)}
    agents = tuple(
        understood(
            lambda name=name, agent=agent: _written(
                name, agent, _cost_by(rules, agent), places, guarded, positive
            ),
            name,
        )
        for name, agent in problem.named.items()
    )
    conic = [constraint for _, constraint in problem.conic]
    coupling = tuple(_put(c, places) for c in (*problem.equalities, *conic))
    tied = [constraint for constraint in problem.coupling if affine(constraint)]
    ids = tuple(constraint.id for constraint in (*tied, *conic))
    domain = _domain([agent.cost for agent in agents])
    model = WrittenModel(
        agents, coupling, ids, variables, domain, penalty, guarded=guarded is not None
    )
    return model if rules == "dcp" else _by_rules(model, problem, places, rules)


def _by_rules(
    model: WrittenModel, problem: Declaration, places: Mapping[int, Any], rules: Rules
) -> WrittenModel:
    """Return a geometric or quasiconvex model with the user's constraints and objectives.

    Slack variables, and the sign change that turns maximization into minimization, are undone.
    """
    slacks = {slack.id for slack in problem.slacks}
    weighed = [agent for agent in problem.agents if not constant(agent.cost)]
    if len({isinstance(agent.objective, cp.Maximize) for agent in weighed}) > 1:
        raise ModelError(
            f"Some agents minimize and some maximize, and a {_PROGRAMS[rules]} program has one "
            "objective. Write all objectives with cp.Minimize, or all with cp.Maximize."
        )
    agents = []
    for written, agent in zip(model.agents, problem.agents, strict=True):
        each = zip(written.constraints, written.ids, written.called, strict=True)
        public = [(c, k, what) for c, k, what in each if not _over(agent, k, slacks)]
        constraints, ids, called = zip(*public, strict=True) if public else ((), (), ())
        agents.append(replace(written, constraints=constraints, ids=ids, called=called))
    coupling = tuple(_put(c, places) for c in problem.coupling)
    ids = tuple(c.id for c in problem.coupling)
    ruled = replace(
        model, agents=tuple(agents), coupling=coupling, coupling_ids=ids, domain={},
        rules=rules, maximized=all_maximized(problem),
    )  # fmt: skip
    if not follows(ruled.problem, rules):
        raise ModelError(_breaks(ruled, problem))
    return ruled


def _cost_by(rules: Rules, agent: Agent) -> Any:
    """Return an agent's cost (DCP), or the expression in its objective (other rules)."""
    if rules == "dcp":
        return agent.cost
    objective: Any = agent.objective
    return cp.Constant(0.0) if constant(objective.args[0]) else objective.args[0]


def _over(agent: Agent, number: int, variables: set[int]) -> bool:
    """Return whether the agent's constraint with this id contains one of these variables."""
    constraint = next(c for c in agent.constraints if c.id == number)
    return any(v.id in variables for v in constraint.variables())


def all_maximized(problem: Declaration) -> bool:
    """Return whether all objectives that are not constant are maximized.

    Parameters
    ----------
    problem : Declaration
    """
    weighed = [agent for agent in problem.agents if not constant(agent.cost)]
    return bool(weighed) and all(isinstance(agent.objective, cp.Maximize) for agent in weighed)


def constant(cost: cp.Expression) -> bool:
    """Return whether an objective is constant, such as ``0 * x``.

    Parameters
    ----------
    cost : cvxpy expression
    """
    return bool(cost.is_constant() or cost.is_zero())


def follows(problem: cp.Problem, rules: Rules) -> bool:
    """Return whether a problem follows cvxpy's rules `rules`.

    Parameters
    ----------
    problem : cvxpy.Problem
    rules : {"dcp", "dgp", "dqcp"}
    """
    if rules == "dgp":
        return bool(problem.is_dgp())
    return bool(problem.is_dcp() if rules == "dcp" else problem.is_dqcp())


def _is_large_linear(problem: cp.Problem) -> bool:
    """Return whether a problem is a linear program with many rows."""
    rows = sum(constraint.size for constraint in problem.constraints)
    return rows >= _LARGE and bool(problem.is_lp())


def solve(
    problem: cp.Problem,
    rules: Rules,
    solver: str | None,
    options: Options = (),
) -> None:
    """Solve a problem on public data with cvxpy.

    Bisection for a quasiconvex program may fail if its tolerance is below the accuracy of the
    solver. It is then repeated with a larger tolerance, unless the options set ``eps``.

    Parameters
    ----------
    problem : cvxpy.Problem
    rules : {"dcp", "dgp", "dqcp"}
    solver : str or None
    options : sequence of (str, value)
    """
    if rules == "dqcp" and problem.is_dcp():  # cvxpy does not bisect a convex problem
        rules = "dcp"
    given: dict[str, Any] = {ARGUMENTS[rules]: True} if rules in ARGUMENTS else {}
    *distances, last = _DISTANCES if rules == "dqcp" and "eps" not in dict(options) else [None]
    for distance in distances:
        value = attempt(
            lambda eps=distance: problem.solve(solver=solver, qcp=True, eps=eps, **dict(options))
        )
        if value is not None and problem.status == cp.OPTIMAL:
            return
    if last is not None:
        given["eps"] = last
    problem.solve(solver=solver, **given, **dict(options))


def _breaks(model: WrittenModel, problem: Declaration) -> str:
    """Return an error message on the part of a model that breaks cvxpy's rules, with the fix."""
    rules = model.rules
    called = {
        c.id: f"Constraint {k} of agent '{name}'"
        for name, agent in problem.named.items()
        for k, c in enumerate(agent.constraints)
    }
    called |= {c.id: f"Element {k} of coupling=" for k, c in enumerate(problem.coupling)}
    trees = [(c, k) for a in model.agents for c, k in zip(a.constraints, a.ids, strict=True)]
    trees += zip(model.coupling, model.coupling_ids, strict=True)
    broken = [k for c, k in trees if not follows(cp.Problem(cp.Minimize(1), [c]), rules)]
    what = called[broken[0]] if broken else "The objective"
    name = f"{_PROGRAMS[rules]} programs ({rules.upper()})"
    signs = [
        spec.name
        for agent in model.agents
        for spec in agent.specs
        if (spec.interval[0] <= 0 if rules == "dgp" else spec.sign is None)
    ]
    fix = "Rewrite it, or leave the argument out if the model is convex."
    if rules == "dgp":
        fix = (
            "Write variables with pos=True and constraints as posynomial <= monomial, or "
            "monomial == monomial."
        )
        if signs:
            fix += (
                f" Private data in it need bounds=(least, largest) above 0, such as bounds=(0.1, "
                f"math.inf) for '{signs[0]}'."
            )
    elif signs:
        fix = f"A factor of known sign needs it declared, such as nonneg=True for '{signs[0]}'."
    return f"{what} does not follow cvxpy's rules for {name}. {fix}"


def other_rules(problem: Declaration) -> str:
    """Return advice on other rules of cvxpy that a nonconvex model follows; "" if none.

    Parameters
    ----------
    problem : Declaration
    """
    tried: list[tuple[Rules, bool]] = [("dgp", False), ("dqcp", False), ("dgp", True)]
    for rules, positive in tried:
        try:
            written_model(problem, guarded=None, penalty=None, rules=rules, positive=positive)
        except ModelError:
            continue
        fix = f"Write problem.plan(dp.OneShot({ARGUMENTS[rules]}=True), epsilon=1.0, delta=1e-6)"
        data = ""
        if positive:
            data = " for positive data"
            fix = f"Declare bounds of private data, such as bounds=(0.1, math.inf), and w{fix[1:]}"
        return (
            "The model does not follow cvxpy's rules for convex programs (DCP), and it follows "
            f"those for {_PROGRAMS[rules]} programs ({rules.upper()}){data}. {fix}: the data are "
            "released once, and cvxpy solves the model as written."
        )
    return ""


def joined(terms: Sequence[Any]) -> Any:
    """Return the sum of terms, without zeros, which geometric programs do not allow.

    Parameters
    ----------
    terms : sequence of cvxpy expressions
    """
    given = [term for term in terms if not (isinstance(term, cp.Constant) and term.is_zero())]
    return functools.reduce(operator.add, given) if given else cp.Constant(0.0)


def _written(
    name: str,
    agent: Agent,
    objective: cp.Expression,
    variables: Mapping[int, cp.Variable],
    guarded: Collection[int] | None,
    positive: bool,
) -> WrittenAgent:
    data = tuple(_stand_in(private, positive) for private in agent.private)
    pairs = zip(agent.private, data, strict=True)
    places: dict[int, Any] = {**variables, **{id(private): p for private, p in pairs}}
    chosen = [
        (k, c, bool(private_in(c)))
        for k, c in enumerate(agent.constraints)
        if guarded is None or c.id in guarded or not private_in(c)
    ]
    specs = tuple(agent.specs(name)[private] for private in agent.private)
    cost = _put(objective, places)
    return WrittenAgent(
        name=name,
        layout=agent.layout,
        cost=cost,
        constraints=tuple(_put(c, places) for _, c, _ in chosen),
        ids=tuple(c.id for _, c, _ in chosen),
        called=tuple(f"Constraint {k} of agent '{name}'" if used else "" for k, _, used in chosen),
        data=data,
        specs=specs,
        proxies=tuple(
            None if p.proxy is None else spec.kept(as_array(p.proxy))
            for p, spec in zip(agent.private, specs, strict=True)
        ),
        bends=_bends(cost, data),
    )


def _bends(cost: cp.Expression, data: Sequence[cp.Parameter]) -> bool:
    """Return whether a cost is not known to be affine in the data, for fixed variables."""
    places: dict[int, Any] = {id(p): free(p) for p in data}
    places |= {id(v): cp.Constant(projected(v, np.ones(v.shape))) for v in cost.variables()}
    with np.errstate(all="ignore"):
        copy = put(cost, places)
    return bool(data) and (copy is None or not copy.is_affine())


def put(tree: Any, places: Mapping[int, Any]) -> Any:
    """Return a copy with replaced leaves; None if an atom does not accept a replacement.

    Parameters
    ----------
    tree : cvxpy expression or constraint
    places : mapping of int to cvxpy expression
        Replacement of each leaf, by the leaf's Python id.
    """
    try:
        return tree.tree_copy(dict(places))
    except ValueError:
        return None


def _domain(costs: Sequence[cp.Expression]) -> dict[int, tuple[Array, Array]]:
    """Return the bounds on entries inside which the costs have a value, by variable id."""
    domain: dict[int, tuple[Array, Array]] = {}
    for limit in (limit for cost in costs for limit in cost.domain):
        if not isinstance(limit, Inequality) or limit.parameters():
            continue
        least, most = limit.args
        low = least.is_constant()
        chosen = picked(most if low else least)
        if chosen is None or not (low or most.is_constant()):
            continue
        variable, entries = chosen
        endless = np.full(variable.size, -np.inf), np.full(variable.size, np.inf)
        lower, upper = domain.setdefault(variable.id, endless)
        end = np.asarray(as_array((least if low else most).value), dtype=float)
        end = np.broadcast_to(end, entries.shape).ravel(order="F")
        places = entries.ravel(order="F")
        if low:
            lower[places] = np.maximum(lower[places], end)
        else:
            upper[places] = np.minimum(upper[places], end)
    return domain


def _put(tree: Any, places: Mapping[int, Any]) -> Any:
    """Return a copy of an expression with replaced leaves and values of public parameters."""
    public = [p for p in tree.parameters() if id(p) not in places]
    copy = public_copy(tree, public).tree_copy(dict(places))
    options = [private.name() for private in private_in(copy)]
    if options:
        raise ModelError(
            f"Private '{options[0]}' is an option of an atom, such as the threshold M of "
            "cp.huber(x, M). Make the option public. Or write the threshold as a factor: with a "
            "new variable s, the least cp.square(s) + 2 * M * cp.abs(x - s) is cp.huber(x, M). "
            "cvxpy does not replace options of atoms by released data."
        )
    return copy


def _copied(variable: cp.Variable) -> cp.Variable:
    """Return a copy of a variable, so that solving does not set the user's variable."""
    return cp.Variable(variable.shape, name=variable.name(), **_kinds_of(variable))


def integral(variable: cp.Variable) -> bool:
    """Return whether a variable is boolean or integer."""
    return bool(variable.attributes["boolean"] or variable.attributes["integer"])


def relaxed(variable: cp.Variable) -> cp.Variable:
    """Return a continuous copy of a variable; a boolean one gets the bounds 0 and 1."""
    kinds = _kinds_of(variable)
    kinds.pop("integer", None)
    if kinds.pop("boolean", False):
        kinds["bounds"] = [0.0, 1.0]
    return cp.Variable(variable.shape, name=variable.name(), **kinds)


def _kinds_of(leaf: cp.Variable | cp.Parameter) -> dict[str, Any]:
    """Return a leaf's attributes that are set, with bounds as values instead of expressions."""
    kinds = {k: a for k, a in leaf.attributes.items() if a is not None and a is not False}
    if "bounds" in kinds:
        bounds = [b.value if isinstance(b, cp.Expression) else b for b in kinds["bounds"]]
        kinds["bounds"] = bounds
    return kinds


def _stand_in(private: cp.Parameter, positive: bool = False) -> cp.Parameter:
    """Return a cvxpy parameter with the shape, name and attributes of a private object."""
    kinds = {"pos": True} if positive else _kinds_of(private)
    return cp.Parameter(private.shape, name=private.name(), **kinds)


def free(parameter: cp.Parameter) -> cp.Variable:
    """Return a cvxpy variable with the shape and attributes of a parameter."""
    return cp.Variable(parameter.shape, **_kinds_of(parameter))


def _rows_of(data: ConeData, y: cp.Expression) -> list[cp.Constraint]:
    """Return the cvxpy constraints that ``b - A y`` lies in the cones of the cone program."""
    slack = data.b - data.A @ y
    limits: list[cp.Constraint] = []
    first = 0
    for kind, size in _grouped(data):
        part = slack[first : first + size]
        first += size
        if kind == "zero":
            limits.append(part == 0)
        elif kind == "nonneg":
            limits.append(part >= 0)
        elif kind == "soc":
            limits.append(cp.SOC(part[0], part[1:]))
        elif kind == "exp":
            limits.append(cp.ExpCone(part[0], part[1], part[2]))
        elif kind == "psd":
            limits.append(_symmetric(part) >> 0)
        else:  # no margins are known for other cones
            raise ModelError(
                f"A constraint with private data is compiled into a cone of kind {kind}. Write "
                "the constraint by linear inequalities and norms. No margin is known for that "
                "cone."
            )
    return limits


def _symmetric(rows: Any) -> cp.Expression:
    """Return the symmetric matrix that the rows of a semidefinite cone encode."""
    units = matrices(np.eye(rows.size))
    order = units.shape[-1]
    return cp.reshape(units.reshape(rows.size, -1).T @ rows, (order, order), order="F")


def _grouped(data: ConeData) -> Iterator[tuple[str, int]]:
    """Yield the kind and size of each cone, with all equalities, and all inequalities, as one."""
    if data.cones.zero:
        yield "zero", data.cones.zero
    if data.cones.nonneg:
        yield "nonneg", data.cones.nonneg
    yield from (block for block in data.cones.blocks() if block[0] not in ("zero", "nonneg"))
