"""A problem as users declare it: agents, shared entries, groups and coupling constraints."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from cvxpy.constraints.nonpos import Inequality
from cvxpy.constraints.zero import Equality, Zero
from numpy.typing import ArrayLike, NDArray

from .._arguments import listed, pairs, show
from .._figure import card
from .._words import plural
from ..errors import ModelError, PrivacyError
from ..guard import frameless
from .adjacency import Rows
from .agent import Agent, is_complex, require_listed, require_public
from .atoms import spellings
from .layout import layout_of
from .private import Private
from .sealed import complex_array, real_array

Array = NDArray[np.float64]
T = TypeVar("T")
# Value of a public parameter: an array, a sparse matrix, or None.
Values = Any

# Largest number of agents that an error lists.
_NAMES = 12
# Name of the agent that is added to hold slack variables unless exactly one agent is public.
SLACK = "slack of coupling"


@frameless
@dataclass(frozen=True, eq=False)
class Declaration:
    """Agents and couplings of a `Problem`, without its methods; see `Problem` for arguments.

    Attributes
    ----------
    agents : tuple of Agent
        Agents in their order. If exactly one agent has no private data, it gets the slack variables
        of inequalities in ``coupling=``; else, an agent for them is added at the end.
    equalities : tuple of cvxpy constraints
        Affine constraints of ``coupling=``, with a slack variable in every inequality.
    slacks : tuple of cvxpy.Variable
        Slack variables of these inequalities, in order.
    names : tuple of str
        Names of the agents.
    group_names : tuple of tuple of str
        Names of the agents of every group.
    """

    agents: Sequence[Agent]
    start: Mapping[cp.Variable, ArrayLike] = field(default_factory=dict, repr=False)
    groups: Sequence[Sequence[Agent | str]] = field(default=(), repr=False)
    coupling: Sequence[cp.Constraint] = field(default=(), repr=False)
    names: tuple[str, ...] = field(init=False)
    group_names: tuple[tuple[str, ...], ...] = field(init=False, repr=False)
    equalities: tuple[cp.Constraint, ...] = field(init=False, repr=False)
    slacks: tuple[cp.Variable, ...] = field(init=False, repr=False)

    def __repr__(self) -> str:
        variables = {piece.variable for agent in self.agents for piece in agent.layout.pieces}
        private = sum(len(agent.private) + len(agent.kept) for agent in self.agents)
        held = f"{plural(len(variables), 'variable')}, {plural(private, 'private object')}"
        return f"<{type(self).__name__}: {plural(len(self.agents), 'agent')}, {held}>"

    def _repr_html_(self) -> str:
        return card(self)

    def __post_init__(self) -> None:
        agents = tuple(self.agents) if isinstance(self.agents, (list, tuple)) else ()
        if not agents or not all(isinstance(agent, Agent) for agent in agents):
            raise ModelError(
                "dp.Problem needs a list of one or more dp.Agent objects. Write "
                "dp.Problem([north, south]), for example."
            )
        names = tuple(agent.name or f"agent {k}" for k, agent in enumerate(agents, 1))
        for name, count in Counter(names).items():
            if count > 1:
                raise ModelError(
                    f"Two agents are called '{name}', so budgets and messages cannot be told "
                    "apart. Give every dp.Agent its own name=."
                )
        object.__setattr__(self, "agents", agents)
        object.__setattr__(self, "names", names)
        object.__setattr__(self, "start", _start(self.start, self.variables()))
        object.__setattr__(self, "group_names", self._named_groups())
        object.__setattr__(self, "coupling", self._checked_coupling())
        self._add_slacks()
        owner: dict[int, str] = {}
        seen: dict[str, str] = {}  # agent by private name
        for name, agent in self.named.items():
            for private, spec in agent.specs(name).items():
                if private.id in owner:
                    raise PrivacyError(
                        f"Private '{spec.name}' is used by agents "
                        f"'{owner[private.id]}' and '{name}'. A guarantee per agent would not "
                        "cover one change that moves both: give each agent its own dp.Private, "
                        "with its own data (and write dp.Problem(..., groups=[[...]]) if they "
                        "describe the same people)."
                    )
                if spec.name in seen:
                    first = seen[spec.name]
                    both = f"agents '{first}' and '{name}'" if first != name else f"agent '{name}'"
                    raise ModelError(
                        f"Two private objects are called '{spec.name}', in {both}. Give each its "
                        f"own name, such as dp.Private(..., name='{spec.name} of {name}'): the "
                        "guarantee, data={...} and owners' policies tell them apart by name."
                    )
                owner[private.id] = name
                seen[spec.name] = name
        self._check_labels()
        self._check_sharing()
        self._check_own()

    def __deepcopy__(self, memo: dict[int, Any]) -> Declaration:
        twin = copy.copy(self)
        object.__setattr__(twin, "agents", copy.deepcopy(self.agents, memo))
        object.__setattr__(twin, "groups", self.group_names)
        start = {variable: np.array(value) for variable, value in self.start.items()}
        object.__setattr__(twin, "start", start)
        return twin

    @property
    def named(self) -> dict[str, Agent]:
        """Agents by name, in order."""
        return dict(zip(self.names, self.agents, strict=True))

    def holders(self) -> dict[int, NDArray[np.intp]]:
        """Return the number of agents that use each entry of a variable, by the variable's id."""
        count: dict[int, NDArray[np.intp]] = {}
        for agent in self.agents:
            for piece in agent.layout.pieces:
                counts = count.setdefault(piece.variable, np.zeros(piece.size, dtype=np.intp))
                counts[piece.entries] += 1
        return count

    def variables(self) -> list[cp.Variable]:
        """All variables, in order of appearance."""
        by_id: dict[int, cp.Variable] = {}
        for agent in self.agents:
            if any(piece.variable not in by_id for piece in agent.layout.pieces):
                by_id.update({v.id: v for v in agent.variables})
        return list(by_id.values())

    @property
    def conic(self) -> list[tuple[int, cp.Constraint]]:
        """Constraints in ``coupling=`` that are not affine, with their positions."""
        return [(k, c) for k, c in enumerate(self.coupling) if not affine(c)]

    @property
    def constraints(self) -> list[cp.Constraint]:
        """Constraints of all agents and of ``coupling=``."""
        theirs = [constraint for agent in self.agents for constraint in agent.constraints]
        return [*theirs, *self.coupling]

    def parameter_values(self) -> tuple[tuple[cp.Parameter, Values], ...]:
        """Return the public parameters of agents and coupling, with copies of their values.

        Parameters in ``recourse=`` only are not included, since runs do not read them.
        """
        trees = [
            *(a.objective for a in self.agents),
            *(c for a in self.agents for c in a.constraints),
            *self.coupling,
        ]
        by_id = {p.id: p for tree in trees for p in tree.parameters()}
        public = (p for p in by_id.values() if not isinstance(p, Private))
        return tuple((parameter, copy.deepcopy(_value(parameter))) for parameter in public)

    def require_public_objectives(self, written: str) -> None:
        """Refuse to show objectives with private data, since nothing adds noise to them.

        Parameters
        ----------
        written : str
            Code of the user that would show objectives, quoted in the error.

        Raises
        ------
        PrivacyError
            If an objective has private data.
        """
        for name, agent in self.named.items():
            if agent.private:
                raise PrivacyError(
                    f"{written} would show the objective without noise, and the objective of "
                    f"agent '{name}' depends on private data. In tests and studies write "
                    "dp.not_private.objective(problem, result.solution), which has no guarantee."
                )

    def is_dcp(self) -> bool:
        """Return whether every agent's model follows cvxpy's convexity rules (DCP)."""
        return all(agent.is_dcp() for agent in self.agents)

    def shares(self) -> list[int]:
        """Return, for each agent, the number of agents in its group that have private data."""
        sizes = dict.fromkeys(self.names, 1)
        private = {n for n, agent in self.named.items() if agent.private}
        for group in self.group_names:
            sizes |= dict.fromkeys(group, max(1, len(private.intersection(group))))
        return [sizes[name] for name in self.names]

    def _named_groups(self) -> tuple[tuple[str, ...], ...]:
        by_agent = {id(a): n for n, a in self.named.items()}
        named: list[tuple[str, ...]] = []
        groups = self.groups
        listed = isinstance(groups, (list, tuple))
        if not listed or not all(isinstance(g, (list, tuple)) for g in groups):
            raise ModelError(
                "groups= is a list of groups of agents, as in groups=[[north, south]] or "
                "groups=[['north', 'south']]."
            )
        for group in groups:
            names = [by_agent.get(id(a), a) for a in group]
            unknown = [n for n in names if not isinstance(n, str) or n not in self.names]
            if unknown:
                label = getattr(unknown[0], "name", None) or unknown[0]
                raise ModelError(
                    f"groups= names {show(label)}, which is no agent of the problem. The agents "
                    f"are: {', '.join(self.names)}."
                )
            named.append(tuple(str(n) for n in names))
        members = [name for group in named for name in group]
        for name in members:
            if members.count(name) > 1:
                raise ModelError(
                    f"Agent '{name}' is in two groups, or twice in one. If the same person may be "
                    "in all of them, write one group of all these agents."
                )
        return tuple(named)

    def _check_labels(self) -> None:
        """Refuse a `records` label of several agents that are not in one group."""
        holders: dict[str, list[str]] = {}
        for name, agent in self.named.items():
            adjacencies = [p.adjacency for p in agent.private]
            given = {
                a.records for a in adjacencies if isinstance(a, Rows) and a.records is not None
            }
            for label in sorted(given):
                holders.setdefault(label, []).append(name)
        for label, names in holders.items():
            if len(names) < 2 or any(set(names) <= set(group) for group in self.group_names):
                continue
            listed = ", ".join(
                [f"'{name}'" for name in names[:_NAMES]] + ["..."] * (len(names) > _NAMES)
            )
            raise PrivacyError(
                f"records='{label}' is given in {len(names)} agents ({listed}), so one {label} may "
                "have data with all of them, and a guarantee for one agent's data would not cover "
                "that. If they may be the same, write "
                f"dp.Problem(..., groups=[[{listed}]]): the guarantee is then for all of them "
                "together. If they are different ones, leave records= out, or give each agent a "
                f"label of its own, such as records='{label} of {names[0]}'."
            )

    def _checked_coupling(self) -> tuple[cp.Constraint, ...]:
        coupling = None if isinstance(self.coupling, cp.Constraint) else listed(self.coupling)
        if coupling is None:
            raise ModelError(
                f"coupling= is a {type(self.coupling).__name__}; it is a list of cvxpy equalities "
                "and inequalities, as in coupling=[A @ x + B @ y == c]."
            )
        held = self.holders()
        for position, constraint in enumerate(coupling):
            tied = isinstance(constraint, cp.Constraint) and _follows_rules(constraint)
            if not tied or is_complex(constraint):
                raise ModelError(
                    f"Element {position} of coupling= must be a convex constraint of real numbers, "
                    "by cvxpy's rules (DCP), such as A @ x + B @ y == c, x + y <= c or "
                    "cp.norm(cp.hstack([x, y])) <= 1. Give one with complex variables to an agent: "
                    "dp.Agent(objective, [constraint]). dp.OneShot(gp=True) and "
                    "dp.OneShot(qcp=True) take those of their programs as well."
                )
            require_listed(constraint, f"element {position} of coupling=")
            require_public(
                constraint.parameters(),
                f"Element {position} of coupling=",
                "Write it as an inequality among the constraints of the agent whose data they are, "
                "such as dp.Agent(cost, [x + y >= need]), which problem.plan(..., "
                "violation_probability=0.01) keeps, with a reserve in place of an equality; "
                "variables of others in it are then shared. Or declare the data public with "
                "cp.Parameter.",
            )
            for piece in layout_of([constraint]).pieces:
                if piece.variable not in held or not held[piece.variable][piece.entries].all():
                    raise ModelError(
                        f"Element {position} of coupling= uses variable '{piece.name}', or entries "
                        "of it, that no agent has in its objective or constraints. Use the same "
                        "Python object there; a term such as 0 * cp.sum(x) will do."
                    )
        return tuple(map(spellings.copyable, coupling))

    def _add_slacks(self) -> None:
        """Turn coupling inequalities into equalities with slack variables, held by one agent."""
        equalities: list[cp.Constraint] = []
        slacks: list[cp.Variable] = []
        for position, constraint in enumerate(self.coupling):
            if not affine(constraint):
                continue
            if isinstance(constraint, Inequality):
                s = cp.Variable(constraint.shape, name=f"{SLACK} {position}")
                slacks.append(s)
                constraint = constraint.expr + s == 0
            equalities.append(constraint)
        object.__setattr__(self, "equalities", tuple(equalities))
        object.__setattr__(self, "slacks", tuple(slacks))
        if not slacks:
            return
        agents, names, limits = list(self.agents), self.names, [s >= 0 for s in slacks]
        public = [k for k, agent in enumerate(agents) if not agent.private]
        if len(public) == 1:
            k = public[0]
            agents[k] = replace(agents[k], constraints=[*agents[k].constraints, *limits])
        else:
            nothing = cp.Minimize(0 * sum(cp.sum(s) for s in slacks))
            agents.append(Agent(nothing, limits, name=SLACK))
            names = (*names, SLACK)
        if names.count(SLACK) > 1:
            raise ModelError(
                f"An agent is called '{SLACK}', the name of the agent that dpcvx adds for "
                "inequalities in coupling=. Give it another name=."
            )
        object.__setattr__(self, "agents", tuple(agents))
        object.__setattr__(self, "names", names)

    def _check_sharing(self) -> None:
        if len(self.agents) == 1:
            return
        holders = self.holders()
        ties = (*self.equalities, *self.coupling)
        coupled = {v.id for constraint in ties for v in constraint.variables()}
        named: dict[str, set[int]] = {}
        for variable in self.variables():
            named.setdefault(variable.name(), set()).add(variable.id)
        twins = sorted(name for name, ids in named.items() if len(ids) > 1)
        for name, agent in self.named.items():
            pieces = agent.layout.pieces
            if coupled.intersection(p.variable for p in pieces):
                continue
            if all((holders[p.variable][p.entries] == 1).all() for p in pieces):
                hint = (
                    f" Several different variables are called '{twins[0]}': create it once and "
                    "use the same Python object in every agent."
                    if twins
                    else ""
                )
                raise ModelError(
                    f"Agent '{name}' shares no variable entry with another agent, so there is "
                    "nothing to agree on; variables are shared by identity of the cvxpy object."
                    f"{hint} Otherwise solve the agent's problem by itself."
                )

    def _check_own(self) -> None:
        """Refuse ``recourse=`` constraints on variables that others use or the agent lacks."""
        holders = self.holders()
        for name, agent in self.named.items():
            held = {piece.variable: piece.entries for piece in agent.layout.pieces}
            for position, constraint in enumerate(agent.recourse):
                what = f"Constraint {position} in recourse= of agent '{name}'"
                for piece in layout_of([constraint]).pieces:
                    used = f"{what} uses variable '{piece.name}', or entries of it, that"
                    its = np.isin(piece.entries, held.get(piece.variable, ()))
                    everyone = holders.get(piece.variable, np.zeros(piece.size))
                    if (everyone[piece.entries] > its).any():
                        raise ModelError(
                            f"{used} other agents use as well. Write the constraint with "
                            "variables of this agent alone, or as a public constraint in "
                            "dp.Agent(objective, [...]). Shared variables are fixed, and public, "
                            "before recourse= is used."
                        )
                    if not its.all():
                        raise ModelError(
                            f"{used} the agent has neither in its objective nor in its "
                            "constraints. Use the same Python object there; a term such as "
                            "0 * cp.sum(x) will do."
                        )


def _value(parameter: cp.Parameter) -> Values:
    """Return the value of a cvxpy parameter, a sparse matrix if it was declared with sparsity."""
    sparse = parameter.sparse_idx is not None
    return parameter.value_sparse if sparse else parameter.value


def changed_parameter(values: Iterable[tuple[cp.Parameter, Values]]) -> tuple[str, str, str] | None:
    """Return the first parameter whose value has changed: its name and both values, as text.

    Parameters
    ----------
    values : iterable
        Parameters with their earlier values, as from `Declaration.parameter_values`.
    """
    for parameter, value in values:
        new, name = _value(parameter), parameter.name()
        if value is None or new is None:
            if value is not new:
                before, now = ("None" if v is None else show_values(v) for v in (value, new))
                return name, before, now
            continue
        old, new = (v.toarray() if sp.issparse(v) else np.asarray(v) for v in (value, new))
        if old.shape != new.shape:
            return name, show_values(old), show_values(new)
        other = ~((old == new) | ((old != old) & (new != new)))  # nan is nan
        if other.any():
            if old.ndim == 0:
                return name, f"{old.item()!r}", f"{new.item()!r}"
            index = tuple(int(i) for i in np.argwhere(other)[0])
            entry = f"{name}[{', '.join(map(str, index))}]"
            return entry, f"{old[index].item()!r}", f"{new[index].item()!r}"
    return None


def show_values(value: Values) -> str:
    """Return a parameter's value as text for messages: a number, or the shape of an array."""
    array = np.asarray(value) if not sp.issparse(value) else value
    return f"{array.item()!r}" if array.shape == () else f"an array of shape {array.shape}"


def _start(given: object, variables: Sequence[cp.Variable]) -> dict[cp.Variable, Array]:
    values = pairs(given)
    if values is None:
        raise ModelError(
            "start= is not a mapping of cvxpy variables to values. Write start={x: 1.0}, for "
            "example. Constraints belong to agents, as in dp.Agent(objective, [x >= 0]), and "
            "equalities between agents to coupling=."
        )
    used = {v.id for v in variables}
    start: dict[cp.Variable, Array] = {}
    for variable, value in values:
        is_variable = isinstance(variable, cp.Variable)
        if not is_variable or variable.id not in used:
            name = f"'{variable.name()}'" if is_variable else show(variable)
            raise ModelError(
                f"start= has a value for {name}, which no agent uses as a variable. Leave it out "
                "of start=, or pass a variable of the model as the key."
            )
        array = complex_array(value) if variable.is_complex() else real_array(value)
        fits = array is not None and array.shape in ((), variable.shape)
        if array is None or not fits or not np.isfinite(array).all():
            raise ModelError(
                f"start= for variable '{variable.name()}' must be finite numbers, one or of shape "
                f"{variable.shape}."
            )
        start[variable] = np.broadcast_to(array, variable.shape).copy()
    return start


def matching(
    problem: Declaration, data: Mapping[Private | str, T], argument: str = "data"
) -> list[tuple[Private, T]]:
    """Return the entries of a user's mapping as pairs of private object and value.

    Parameters
    ----------
    problem : Declaration
    data : mapping
        Values by private object or its name; no value is read.
    argument : str
        Name of the argument, for messages.

    Raises
    ------
    ModelError
        If a key matches no private object of the problem, or several.
    """
    if not data:
        return []
    names = {
        private: spec.name
        for name, agent in problem.named.items()
        for private, spec in agent.specs(name).items()
    }
    by_name: dict[str, list[Private]] = {}
    for private, name in names.items():
        by_name.setdefault(name, []).append(private)
    numbers = {id(private): private for private in names}  # cvxpy's objects compare as expressions
    pairs: list[tuple[Private, T]] = []
    for key, value in data.items():
        if isinstance(key, str):
            matches = by_name.get(key, [])
        else:
            matches = [numbers[id(key)]] if id(key) in numbers else []
        if len(matches) != 1:
            label = show(key if isinstance(key, str) else key.spec.name)
            which = f"{len(matches)} private objects have" if matches else "no private object has"
            raise ModelError(
                f"{argument}= has a value for {label}, but {which} that name in this problem. "
                f"Write one of the names {', '.join(names.values()) or '(none)'}, or use the "
                "dp.Private object itself as key."
            )
        pairs.append((matches[0], value))
    return pairs


def _follows_rules(constraint: cp.Constraint) -> bool:
    """Return whether cvxpy can solve a constraint by one of its rules: DCP, DGP or DQCP."""
    alone = cp.Problem(cp.Minimize(1), [constraint])
    return constraint.is_dcp() or bool(alone.is_dgp() or alone.is_dqcp())


def affine(constraint: cp.Constraint) -> bool:
    """Return whether a constraint is an affine equality or inequality.

    Parameters
    ----------
    constraint : cvxpy constraint
    """
    tied = isinstance(constraint, (Equality, Zero, Inequality))
    return tied and bool(constraint.expr.is_affine())
