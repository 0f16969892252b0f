"""Results of runs: released values and functions of them, nothing computed on raw data."""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

from .._figure import card
from .._words import at_most, plural
from ..algorithms.base import OUTPUTS
from ..errors import ModelError
from ..guard import VERSION, frameless, of_this_version, without_attribute
from ..model.agent import Agent
from ..model.declaration import Declaration
from ..model.private import Private, seal_all
from ..plan.banner import LABEL, LISTED, WIDTH, own_rows, row
from ..plan.guarantee import Guarantee
from ..privacy.ledger import Ledger
from .data import DataSource
from .gate import Release
from .history import History, convergence, returned
from .recourse import RecourseSolution, own_solution
from .solution import Iterate, Solution

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Array = NDArray[np.float64]

# Smaller slack is a solver's rounding error.
_PAID = 1e-7
# When printing: largest number of variables, length of a name, and entries of an unshortened value.
_VARIABLES, _NAME, _LONG = 8, 20, 12
# Entries smaller than this share of the largest one are printed as zero.
_ROUNDING = 1e-9
# Smaller violations are rounding errors, and are printed as at most this value.
_EXACT = 1e-9


# Attribute names of cvxpy, scipy and other packages, and the equivalent code here.
_HINTS = {
    "objective": "result.value",
    "fun": "result.value",
    "values": "result.to_dict()",
    "variables": "result.to_dict()",
    "items": "result.to_dict().items()",
    "x": "result['x'] with the name of a variable, or result.to_dict()",
    "dual": "result.solution.dual(constraint)",
    "duals": "result.solution.dual(constraint)",
    "dual_value": "result.solution.dual(constraint)",
    "epsilon": "result.guarantee.epsilon",
    "delta": "result.guarantee.delta",
    "residuals": "result.history",
    "seed": "plan.run(seed=...): a result keeps no seed",
}


class Status(enum.Enum):
    """Final status of a run; ``status.value`` is its text."""

    COMPLETED = "completed: every planned round was run"
    UNSETTLED = (
        "unsettled: every planned round was run, but agents still moved or disagreed by more than "
        "noise explains. Plan more rounds, or another step= or penalty=, and check that no "
        "objective falls without end"
    )
    CONVERGED = "converged: the released residuals fell below the tolerance"
    BUDGET = "stopped early by the ledger's budget"
    CLOSED = "closed early: the coordinator ended the run, and keeps what was released so far"
    STALLED = (
        "stalled: a local solve failed in the last round, so its agent's values are of an earlier "
        "round"
    )
    DIVERGED = (
        "diverged: values became infinite or undefined, or grew out of all proportion, so there is "
        "no solution. Take shorter steps (a smaller step=), and check "
        "that the problem has a solution: that no objective falls without end, and that the "
        "agents' sets meet"
    )
    INFEASIBLE = (
        "infeasible: no values of the variables satisfy all agents' constraints and every "
        "coupling= equality, so there is no solution. Loosen a constraint"
    )
    UNBOUNDED = (
        "unbounded: with what was released, the objectives fall without end, so there is no "
        "solution. Bound the variables, for example x <= 10, or add a term that grows, such as "
        "0.01 * cp.sum_squares(x)"
    )

    UNSOLVED = (
        "unsolved: the solver found no values that keep the constraints with private data, so "
        "there is no solution. Rescale the model, or plan with a larger epsilon"
    )

    @property
    def solved(self) -> bool:
        """Return whether a run with this status has a solution."""
        none = Status.DIVERGED, Status.INFEASIBLE, Status.UNBOUNDED, Status.UNSOLVED
        return self not in none


@dataclass(frozen=True, eq=False)
class Transcript:
    """All releases of a run; `Plan.replay` recomputes the run from them.

    Attributes
    ----------
    fingerprint : str
        Fingerprint of the plan.
    rounds : int
        Number of completed rounds.
    releases : tuple of Release
        All released values, by agent.
    status : Status
        Final status of the run.
    guarantee : Guarantee
        Guarantee of the run.
    ledger : Ledger
        Ledger after the run.
    """

    fingerprint: str
    rounds: int
    releases: tuple[Release, ...] = field(repr=False)
    status: Status
    guarantee: Guarantee = field(repr=False)
    ledger: Ledger = field(repr=False)

    def __repr__(self) -> str:
        return (
            f"<Transcript: {plural(len(self.releases), 'release')} in "
            f"{plural(self.rounds, 'round')}, "
            f"{self.status.name.lower()}>"
        )


@dataclass(frozen=True, eq=False)
class Result:
    """Outcome of a run.

    Attributes
    ----------
    status : Status
        Final status of the run.
    rounds : int
        Number of completed rounds.
    seconds : float or None
        Duration of the run; None with noise, because computing times may depend on the data.
    guarantee : Guarantee
        Guarantee of the plan, which also holds if the run stopped early. If released values decided
        when to stop, do not quote the ledger's smaller epsilon in its place.
    ledger : Ledger
        Privacy ledger, with the privacy loss of every release.
    history : History
        Residuals, and other figures on the progress, of every round.
    average, last, tail, weighted : Solution
        Average of all iterates, last iterate, average of the last half of the rounds, and an
        average that weights later rounds more.
    reported : {"average", "last", "tail", "weighted"}
        Name of the iterate from which `solution` is computed.
    solution : Solution
        Returned solution, which also sets ``variable.value``: the point closest to that iterate at
        which all agents agree and all constraints and ``coupling=`` hold. Shared variables are
        moved first, as little as possible, and local variables after them. If no such point was
        found, the iterate itself. With remote owners, local variables are nan.
    feasible : bool
        Whether a point was found at which all agents agree and every public constraint holds, up to
        1e-5 (relative). With remote owners, nobody has all variables: then, whether local variables
        exist that satisfy all constraints for the shared values.
    max_violation : float
        Largest violation of a constraint of an agent or of ``coupling=`` by the returned values;
        nan if unknown.
    owners : bool
        Whether owners on their own machines ran the agents and keep the local variables.
    violation : dict
        Largest distance of a component of an agent's last iterate from the agent's feasible set, by
        agent.
    transcript : Transcript or None
        Transcript of all releases, if the run was recorded.
    iterates : tuple of Iterate
        Iterates of all rounds, if you passed ``iterates=True``. They are computed from released
        values.
    constraint_slack : dict of str to ndarray
        Violation that ``slack_penalty=`` has permitted, by constraint, such as "Constraint 0 of
        agent 'grid'": one number per row or cone with private data. Chance constraints hold after
        they are relaxed by this amount.
    released : dict of str to ndarray
        Released data by name of the private object, if the plan released the data once; else
        empty, as with owners unless the model was solved as written. They are public: solve other
        models with them, draw them, or change public parameters, at no privacy cost.
    notes : tuple of str
        Notes on a resumed run, and on the solution.
    problem : Problem or None
        Problem of the run. Copies and pickles of results have none.
    """

    status: Status
    rounds: int
    seconds: float | None
    guarantee: Guarantee
    ledger: Ledger
    history: History = field(repr=False)
    average: Solution = field(repr=False)
    last: Solution = field(repr=False)
    tail: Solution = field(repr=False)
    weighted: Solution = field(repr=False)
    reported: str
    solution: Solution = field(repr=False)
    violation: Mapping[str, float]
    transcript: Transcript | None = field(repr=False)
    feasible: bool = False
    max_violation: float = math.nan
    owners: bool = False
    iterates: tuple[Iterate, ...] = field(default=(), repr=False)
    constraint_slack: Mapping[str, Array] = field(default_factory=dict, repr=False)
    released: Mapping[str, Array] = field(default_factory=dict, repr=False)
    notes: tuple[str, ...] = ()
    problem: Declaration | None = field(default=None, repr=False)

    @frameless
    def __getitem__(self, variable: cp.Variable | str) -> Array:
        """Return ``solution[variable]``, the returned value of a variable, or of its name.

        Raises
        ------
        ModelError
            If no agent holds the variable, or the name stands for several variables.
        """
        return self.solution[variable]

    def __iter__(self) -> Iterator[str]:
        return iter(self.solution)

    def __len__(self) -> int:
        return len(self.solution)

    def __contains__(self, variable: object) -> bool:
        return variable in self.solution

    def keys(self) -> list[str]:
        """Return the names of all variables, so that ``dict(result)`` works."""
        return self.solution.keys()

    def to_dict(self) -> dict[str, Array]:
        """Return the value of every variable by its name, as ``result[name]`` gives it.

        Raises
        ------
        ModelError
            If several variables have one name.
        """
        return self.solution.to_dict()

    @property
    @frameless
    def value(self) -> float:
        """The sum of the agents' objectives (to be minimized) at `solution`, if all are public.

        Public parameters (``cp.Parameter``) have their present values in this sum.

        Raises
        ------
        PrivacyError
            If an objective has private data.
        ModelError
            If the result was copied or unpickled, which drops the agents' models.
        """
        if self.problem is None:
            raise ModelError(
                "This result was copied or unpickled, which drops the agents' models. Read "
                "result.value of what plan.run(...) or plan.replay(...) returned."
            )
        self.problem.require_public_objectives("result.value")
        values = {id(x): cp.Constant(self.solution[x]) for x in self.problem.variables()}
        costs = (agent.cost.tree_copy(values).value for agent in self.problem.agents)
        return sum(float(np.asarray(cost)) for cost in costs)

    @frameless
    def recourse(
        self, agent: Agent | str, *, data: Mapping[Private | str, DataSource] | None = None
    ) -> RecourseSolution:
        """Return an agent's recourse, for its owner alone.

        The recourse minimizes the agent's exact objective, on its exact data and without noise,
        over the variables that no other agent uses. Shared variables keep their agreed values, and
        so does the agent's share of every ``coupling=`` constraint, even of inequalities
        (docs/guides/recourse.md shows how to share out limits instead). The constraints in
        ``dp.Agent(recourse=[...])`` hold. Recourse costs no privacy, and changes neither result nor
        ledger nor ``variable.value``. The run's guarantee covers what others see. It assumes that
        the recourse, and every action that depends on it, stay hidden from all but the agent (and
        the agents of its group, if there are ``groups=``).

        Parameters
        ----------
        agent : Agent or str
            The agent, or its name. Call this in the owner's process: only the owner may see the
            returned value or an error.
        data : mapping of Private or its name to array_like or callable, optional
            Data, as for `Plan.run`; only the agent's own data are read.

        Returns
        -------
        RecourseSolution
            ``mine["gen"]`` or ``mine[gen]`` is an array; ``print(mine)`` shows all.

        Raises
        ------
        ModelError
            If all variables of the agent are shared, its objective is not convex, the run has no
            values on which all agents agree, or the agents belong to remote owners.
        DataError
            If data are missing or do not fit their declaration.
        SolverError
            If the agent's recourse problem has no solution; only the owner may see this error.

        Notes
        -----
        Never use the returned values in another model, as ``start=``, or in a figure that others
        see: that would publish them.
        """
        given = seal_all(data)  # first, so that no local variable contains the data
        del data
        if self.problem is None:
            raise ModelError(
                "This result was copied or unpickled, which drops the agents' models. Call "
                "result.recourse(...) on what plan.run(...) or plan.replay(...) returned."
            )
        if self.owners:
            raise ModelError(
                "The agents of this run are owners that keep their own variables and data, so "
                "result.recourse(...) has neither here. Each owner gets its own variables from "
                "dp.Owner(...).join(...), or in the file that dpcvx owner join --out names."
            )
        if not self.feasible:
            raise ModelError(
                "The run found no values to which all agents agree and that keep every "
                f"constraint, so no recourse can be computed: {_ended(self)}."
            )
        return own_solution(self.problem, self.solution, agent, given)

    def __getstate__(self) -> dict[str, object]:
        # Copies drop the problem: its variables and data may have other values later.
        return {**self.__dict__, "problem": None, VERSION: version("dpcvx")}

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(of_this_version(state, "result"))

    if not TYPE_CHECKING:  # else type checkers would accept every attribute

        def __getattr__(self, name: str) -> Any:
            solution = vars(self).get("solution")
            names = solution.keys() if solution is not None and name[:1] != "_" else []
            hints = {variable: f"result[{variable!r}]" for variable in names}
            raise without_attribute(self, name, _HINTS | hints)

    @property
    def raw(self) -> Solution:
        """The returned iterates, one per agent, before they are moved to a common point."""
        return getattr(self, self.reported)

    @property
    def projection_distance(self) -> float:
        """Largest distance of an entry of `solution` from the mean of the returned iterates."""
        pairs = zip(self.solution.vectors, self.raw.common, strict=True)
        # local variables of remote owners are nan here
        far = [np.nan_to_num(np.abs(x - y)).max(initial=0.0) for x, y in pairs]
        return float(np.max(far, initial=0.0))

    @property
    def max_iterate_violation(self) -> float:
        """Largest violation over the agents' last iterates; nan if one is unknown."""
        return float(np.max(list(self.violation.values())))

    @property
    def consensus_residual(self) -> float:
        """Disagreement of the agents' returned iterates; see `Solution.mismatch`."""
        return self.raw.mismatch

    @property
    def coupling_residual(self) -> float:
        """Largest violation of a ``coupling=`` equality by the returned iterates."""
        return self.raw.coupling_residual

    def plot(self, ax: Axes | None = None) -> Figure:
        """Draw the residuals against the rounds; for a run of one round, draw its solution.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Axes to draw on; by default a new figure, which becomes pyplot's current one if your
            code has imported pyplot.

        Raises
        ------
        ModelError
            If only the last iterate may be seen, or `ax` is not an Axes of matplotlib.
        """
        if not len(self.history):
            raise ModelError(
                "There is nothing to plot: of this run only the last iterate may be seen, and its "
                "history is empty. Plan with observer='everyone' to see residuals."
            )
        if self.rounds == 1 and self.status.solved:
            return returned(self.solution, self.guarantee.headline, ax)
        return convergence(self.history, self.guarantee.headline, ax)

    def __str__(self) -> str:
        return "\n".join(
            [
                headline(self),
                row("Privacy", self.guarantee.headline),
                *spent_rows(self),
                *outcome_rows(self),
                *(row("Note", note) for note in self.notes),
                *_pointer(self.guarantee),
            ]
        )

    def __repr__(self) -> str:
        ended = f"{self.status.name.lower()} after {plural(self.rounds, 'round')}"
        residual = self.consensus_residual
        apart = "" if residual == 0 else f", consensus residual {at_most(residual, 2)}"
        return f"<Result: {ended}{apart}; {self.guarantee.headline}>"

    def _repr_html_(self) -> str:
        ended = ("ended", _ended(self))
        spent = self.ledger.short if self.guarantee.kind != "none" else ()
        return card(self, [ended, *self.guarantee.short[:2], *spent])


def _pointer(guarantee: Guarantee) -> list[str]:
    """Return a printed row that names the code to print the full guarantee."""
    return [] if guarantee.kind == "none" else [row("Valid if", "print(result.guarantee)")]


def headline(result: Result) -> str:
    """Return the first printed line of a result: status, rounds and duration of the run."""
    took = "" if result.seconds is None else f", {result.seconds:.2f} s"
    ended = result.status.name.lower()
    return f"dpcvx result: {ended}, {plural(result.rounds, 'round')}{took}"


def outcome_rows(result: Result) -> list[str]:
    """Return printed rows on the returned values, and their violation of constraints."""
    failed, inaccurate = result.history.failed, result.history.inaccurate
    lines = [] if result.status is Status.COMPLETED else [row("Status", _ended(result))]
    if not result.status.solved:
        lines.append(row("Solution", "none; every variable's value is None"))
    else:
        lines += [*_value_rows(result.solution), *_returned_rows(result)]
        lines += [*_agreement_rows(result), *_feasibility_rows(result)]
    solver = []
    solve = "solve" if result.rounds == 1 else "local solve"
    if inaccurate:
        solver.append(f"{plural(inaccurate, solve)} reached reduced accuracy only")
    if failed:
        solver.append(f"{plural(failed, solve)} failed, and the agent kept its previous point")
    if solver:
        lines.append(row("  solver", "; ".join(solver)))
    return lines


def _value_rows(solution: Solution) -> list[str]:
    """Return printed rows with the returned values by variable; long values are shortened."""
    values = solution.means
    shown = values[:_VARIABLES]
    width = min(max((len(name) for name, _ in shown), default=0), _NAME)
    lines = [f"{name:<{width}}  {_value(value, width)}" for name, value in shown]
    if len(values) > len(shown):
        lines.append(
            f"... and {plural(len(values) - len(shown), 'more variable')}: result.to_dict()"
        )
    texts = [line for text in lines for line in text.splitlines()]
    return [f"{'' if k else 'Solution':<{LABEL}}{text}" for k, text in enumerate(texts)]


def _value(value: Array, width: int) -> str:
    """Return a value as text with four digits, with indented continuation lines."""
    if np.isnan(value).all():
        return "stays with its owner"
    least = _ROUNDING * float(np.nanmax(np.abs(value), initial=0.0))
    text = np.array2string(
        value,
        threshold=_LONG,
        edgeitems=3,
        max_line_width=WIDTH - LABEL - width - 2,
        formatter={"float_kind": lambda v: f"{0.0 if abs(v) <= least else float(v):.4g}"},
    )
    return text.replace("\n", "\n" + " " * (width + 2))


def _ended(result: Result) -> str:
    """Return a run's status in words; a sentence on margins if these may have caused it."""
    program = result.raw.program
    firm = any(limit.firm for limit in program.kept)
    firm = firm or (program.model is not None and program.model.firm and bool(program.reaches))
    if result.status is not Status.INFEASIBLE or not firm:
        return result.status.value
    return (
        "infeasible: the margins for noise in constraints with private data leave no room: no "
        "values keep these and all other constraints, so there is no solution. Plan with "
        "slack_penalty=, so that a decision may miss them at a price, a larger "
        "violation_probability=, or a larger epsilon"
    )


def _returned_rows(result: Result) -> list[str]:
    """Return printed rows on the iterates that returned values come from, if there is a choice."""
    # a single round has a single iterate
    which = OUTPUTS[result.reported] if result.rounds > 1 else "values of the only round"
    if not result.feasible:
        why = f"no point was found at which all agents agree and {_every(result)} holds"
        return [row("  returned", f"mean of the agents' copies in the {which}: {why}")]
    if result.projection_distance == 0:
        return [row("  returned", f"the {which}")] if result.rounds > 1 else []
    closest = f"at which all agents agree and {_every(result)} holds"
    if result.owners:
        closest = f"for which every owner has own variables that keep {_every(result)}"
    moved = f"moved by at most {at_most(result.projection_distance, 2)} to the closest point"
    return [row("  returned", f"the {which}, {moved} {closest}")]


def _every(result: Result) -> str:
    """Return a phrase for the constraints that returned values satisfy: the public ones."""
    which = "every public constraint" if result.raw.program.limited else "every constraint"
    return f"{which} outside recourse=" if _own_rows(result) else which


def _own_rows(result: Result) -> list[str]:
    return [] if result.problem is None else own_rows(result.problem)


def _agreement_rows(result: Result) -> list[str]:
    """Return printed rows on the disagreement of the agents' iterates, if there is any."""
    program = result.raw.program
    if program.coupling is not None:
        residual = result.coupling_residual
        if result.owners and math.isnan(residual):
            unknown = "it is not known how well the iterates keep the equalities"
            return [row("  coupling", f"{unknown}: owners keep their own values")]
        text = f"the iterates violate an equality by at most {at_most(residual, 2)}"
        return [row("  coupling", text)] if residual > 0 or math.isnan(residual) else []
    residual = result.consensus_residual
    if program.size == 0 or residual == 0:
        return []
    text = "the agents' copies of the iterates differ from their mean by at most "
    return [row("  consensus", text + at_most(residual, 2))]


def _feasibility_rows(result: Result) -> list[str]:
    """Return printed rows on constraint violations of returned values and last iterates."""
    coupled = result.raw.program.coupling is not None
    every = f"{_every(result)} and equality" if coupled else _every(result)
    limited = result.raw.program.limited
    which = f"every agent's {'public constraints' if limited else 'constraints'}"
    iterates = "the last iterates"
    return [
        row("  feasible", _values_kept(result, every)),
        *(
            []
            if result.feasible
            else [row("", _kept(result.max_iterate_violation, iterates, which))]
        ),
        *([row("  promise", result.guarantee.kept)] if result.guarantee.kept else []),
        *_missed_rows(result),
        *_own_rows(result),
    ]


def _values_kept(result: Result, every: str) -> str:
    """Return a sentence on the feasibility of returned values (of shared ones, for owners)."""
    if not result.owners:
        return _kept(result.max_violation, "the values returned", every)
    if result.feasible:
        return f"own variables that keep {every} exist for the shared values returned"
    return f"no own variables were found that keep {every} for the shared values returned"


def _missed_rows(result: Result) -> list[str]:
    """Return printed rows on the constraint slack of the solution, from released values."""
    if not result.constraint_slack:
        return []
    largest = {what: float(by.max()) for what, by in result.constraint_slack.items()}
    texts = [
        f"{what} may be violated by up to {by:.3g}: the decision pays the slack penalty"
        for what, by in largest.items()
        if by > _PAID
    ]
    if not texts:
        return [row("  slack", "none: the decision pays for no constraint to be missed")]
    if len(texts) > LISTED:
        texts[LISTED:] = [f"... and {len(texts) - LISTED} more constraints"]
    return [row("  slack" if k == 0 else "", text) for k, text in enumerate(texts)]


def _kept(violation: float, what: str, which: str) -> str:
    if violation == 0:
        return f"{what} keep {which}"
    if math.isnan(violation):
        return f"it is not known how well {what} keep {which}"
    return f"{what} keep {which} to within {at_most(max(violation, _EXACT), 2)}"


def spent_rows(result: Result) -> list[str]:
    """Return printed rows on the spent privacy loss of every agent."""
    accounts = result.ledger.values()
    if any(account.entries and account.entries[0].mechanism == "none" for account in accounts):
        left = "holds releases without noise: no later run that is given it has a guarantee"
        return [row("  ledger", left)]
    if result.guarantee.kind == "none":
        return []
    lines = str(result.ledger).splitlines()
    if len(lines) > LISTED:
        # the largest loss represents the omitted lines
        most = at_most(result.ledger.spent())
        lines[LISTED:] = [f"... and {len(lines) - LISTED} more lines, none above epsilon {most}"]
    if result.status is Status.CONVERGED:
        # Outputs chose the stopping time, so the smaller spent loss is no guarantee.
        lines.append("the guarantee is that of all planned rounds: released values chose the end")
    return [row("  ledger" if k == 0 else "", line) for k, line in enumerate(lines)]
