"""What users write: agents with a cvxpy objective and constraints, and the problem they form."""

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import cvxpy as cp
import numpy as np
from cvxpy.constraints.nonpos import Inequality
from cvxpy.constraints.zero import Equality, Zero
from numpy.typing import ArrayLike, NDArray

from .._arguments import POSITIVE, TEXT, Kind, check_fields, listed, optional, pairs, show
from .._card import card
from .._words import plural
from ..errors import ModelError, PrivacyError
from ..guard import frameless, understood
from .adjacency import Rows
from .asserted import Asserted
from .layout import Layout, layout_of
from .private import Private, specs_of, without_data
from .private_constraints import equality
from .sealed import real_array
from .spec import PrivateSpec

Array = NDArray[np.float64]
T = TypeVar("T")

# Agents that an error lists.
_NAMES = 12
_LENGTH = Kind(
    lambda value: POSITIVE.fits(value) or (isinstance(value, float) and value == math.inf),
    "a positive number, or math.inf",
)
# Name of what holds the slacks of inequalities where no agent is known to be public.
SLACK = "slack of coupling"
_REFUSED = {
    "boolean": "the local steps are convex; relax it to bounds=[0, 1]",
    "integer": "the local steps are convex; relax it to a real variable",
    "complex": "model real and imaginary part as two real variables",
    "imag": "model the imaginary part as a real variable",
    "hermitian": "model real and imaginary part as two real variables",
    "diag": "use cp.diag of a vector variable",
    "sparsity": "use a vector variable for the non-zeros",
}


@frameless
@dataclass(frozen=True, eq=False)
class Agent:
    """One party: its objective, its constraint set, its private data.

    Parameters
    ----------
    objective : cvxpy.Minimize or cvxpy.Maximize
        May use variables of several agents, private and public parameters.
    constraints : sequence of cvxpy constraints
        Inequalities may use private parameters, alone or times variables: ``plan(...,
        violation=0.01)`` keeps them for the true data up to that probability.
    name : str, optional
        Used in banners and errors; ``agent 1``, ... by position if omitted.
    clip : float, optional
        Scale the contribution of each record to the gradient down to this l2 norm. For losses of
        records (`Rows`) whose contributions the model does not bound, or bounds too generously;
        a biased gradient is the price. If omitted, a plan without ``algorithm=`` chooses it where
        noise would hide more than the bias does, and says so; ``math.inf`` for none.
    sensitivity : Asserted, optional
        A gradient sensitivity to be taken without proof; the guarantee is then marked as asserted.
    own : sequence of cvxpy constraints, optional
        On variables that no other agent uses, convex; private parameters may be in them. A run
        knows nothing of them, so they cost no privacy: ``result.own(name)`` keeps them, exactly,
        with shared variables and the agent's share of every ``coupling=`` as agreed.

    Attributes
    ----------
    private : tuple of Private
        Those in the objective and the constraints.
    kept : tuple of Private
        Those in ``own=`` alone: nothing that follows from them ever leaves.

    Raises
    ------
    ModelError
        If objective, constraints or variables are of a kind that cannot be used.
    PrivacyError
        If an equality outside ``own=``, or a bound of a variable, uses a private parameter.
    """

    objective: cp.Minimize | cp.Maximize
    constraints: Sequence[cp.Constraint] = ()
    name: str | None = None
    clip: float | None = None
    sensitivity: Asserted | None = None
    own: Sequence[cp.Constraint] = ()
    layout: Layout = field(init=False, repr=False)
    private: tuple[Private, ...] = field(init=False, repr=False)
    kept: tuple[Private, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        check_fields(
            self,
            "dp.Agent",
            name=optional(TEXT.because("such as name='north'")),
            clip=optional(_LENGTH.because("the l2 norm that no record's contribution may exceed")),
        )
        label = self.name or "unnamed"
        if self.sensitivity is not None and not isinstance(self.sensitivity, Asserted):
            raise ModelError(
                f"The sensitivity of agent '{label}' is a {type(self.sensitivity).__name__}; write "
                "dp.Asserted(l2=...), or leave it out to have it derived from the model."
            )
        if not isinstance(self.objective, (cp.Minimize, cp.Maximize)):
            raise ModelError(
                f"The objective of agent '{label}' is a {type(self.objective).__name__}; write "
                "cp.Minimize(...) or cp.Maximize(...)."
            )
        constraints = _constraints(self.constraints, "", label)
        for position, constraint in enumerate(constraints):
            used = understood(lambda c=constraint: _private(c), label)
            if used and isinstance(constraint, (Equality, Zero)):
                raise equality(f"Constraint {position} of agent '{label}'", used[0].name())
            if used and not constraint.variables():
                raise PrivacyError(
                    f"Constraint {position} of agent '{label}' holds private '{used[0].name()}' "
                    "and no variable, so nothing that is decided can keep it. Leave it out."
                )
        own = _constraints(self.own, "in own= ", label)
        for position, constraint in enumerate(own):
            if not understood(constraint.is_dcp, label):
                raise ModelError(
                    f"Constraint {position} in own= of agent '{label}' does not follow cvxpy's "
                    "convexity rules (DCP), and result.own(...) solves with it exactly. Rewrite it "
                    "as convex <= concave, or as an affine equality; a private factor of known "
                    "sign needs dp.Private(..., nonneg=True)."
                )
        for tree in (self.objective, *constraints, *own):
            leaves = understood(lambda t=tree: _leaves(t), label)
            if any(leaf.is_complex() for leaf in leaves):
                raise ModelError(
                    f"Agent '{label}' uses complex numbers, and gradients are those of functions "
                    "of real vectors: an imaginary part would be lost. Write real and imaginary "
                    "part as two real terms, such as cp.sum_squares(A.real @ x - d.real) + "
                    "cp.sum_squares(A.imag @ x - d.imag)."
                )
        layout = understood(lambda: layout_of([self.objective, *constraints]), label)
        if not layout.pieces:
            raise ModelError(f"Agent '{label}' has no variables, so it has nothing to decide.")
        object.__setattr__(self, "constraints", constraints)
        object.__setattr__(self, "own", own)
        object.__setattr__(self, "layout", layout)
        for variable in self.variables:
            for attribute, remedy in _REFUSED.items():
                if _is_set(variable.attributes.get(attribute)):
                    raise ModelError(
                        f"Variable '{variable.name()}' of agent '{label}' has the attribute "
                        f"{attribute}, which the package does not support: {remedy}."
                    )
            bounds = variable.attributes.get("bounds") or ()
            for bound in (b for b in bounds if isinstance(b, cp.Expression)):
                of = f"of variable '{variable.name()}' of agent '{label}'"
                _require_public(
                    bound.parameters(),
                    f"A bound {of}",
                    "Write it as an inequality among the constraints of the agent whose data they "
                    "are, or declare the data public with cp.Parameter.",
                )
        private = {p.id: p for tree in (self.objective, *constraints) for p in _private(tree)}
        kept = {p.id: p for constraint in own for p in _private(constraint)}
        object.__setattr__(self, "private", tuple(private.values()))
        object.__setattr__(self, "kept", tuple(p for k, p in kept.items() if k not in private))

    def __deepcopy__(self, memo: dict[int, Any]) -> Agent:
        # The variables stay the same objects: cvxpy would give their copies ids of their own, under
        # which neither the layout nor a plan knows them.
        twin = copy.copy(self)
        places = {id(private): without_data(private) for private in (*self.private, *self.kept)}
        if not places:
            return twin
        label = self.name or "unnamed"

        def emptied(tree: Any) -> Any:
            return understood(lambda: tree.tree_copy(places), label)

        object.__setattr__(twin, "objective", emptied(self.objective))
        object.__setattr__(twin, "own", tuple(emptied(constraint) for constraint in self.own))
        constraints = (emptied(c) if _private(c) else c for c in self.constraints)
        object.__setattr__(twin, "constraints", tuple(constraints))
        for name in ("private", "kept"):
            twins = tuple(places[id(private)] for private in getattr(self, name))
            object.__setattr__(twin, name, twins)
        return twin

    @property
    def variables(self) -> list[cp.Variable]:
        """Variables in the order of the layout."""
        found = {v.id: v for v in self.objective.variables()}
        for constraint in self.constraints:
            found.update({v.id: v for v in constraint.variables()})
        return [found[piece.variable] for piece in self.layout.pieces]

    @property
    def limits(self) -> list[tuple[int, cp.Constraint]]:
        """The constraints with private data, with their positions."""
        return [(k, c) for k, c in enumerate(self.constraints) if _private(c)]

    @property
    def public_constraints(self) -> list[cp.Constraint]:
        """The others."""
        return [c for c in self.constraints if not _private(c)]

    @property
    def cost(self) -> cp.Expression:
        """The objective as an expression to be minimised."""
        expression = self.objective.args[0]
        return expression if isinstance(self.objective, cp.Minimize) else -expression

    def specs(self, name: str) -> dict[Private, PrivateSpec]:
        """What is public of every private object, those of ``own=`` last.

        Parameters
        ----------
        name : str
            Of the agent in its problem, for objects without a name of their own.
        """
        named = [*specs_of(self.private, name), *specs_of(self.kept, f"own= of {name}")]
        return dict(zip((*self.private, *self.kept), named, strict=True))

    def is_dcp(self) -> bool:
        """Whether objective and constraints follow cvxpy's convexity rules."""
        return self.objective.is_dcp() and all(c.is_dcp() for c in self.constraints)


@frameless
@dataclass(frozen=True, eq=False)
class Declaration:
    """What a `Problem` states, without the verbs on it; its docstring has arguments and errors.

    Attributes
    ----------
    agents : tuple of Agent
        As given. Slack variables of inequalities in ``coupling=`` are held by the only agent
        without private data; if there is not one such agent, by another agent at the end.
    equalities : tuple of cvxpy constraints
        ``coupling=``, with a slack variable in every inequality.
    slacks : tuple of cvxpy.Variable
    names : tuple of str
        Of the agents.
    group_names : tuple of tuple of str
        Of the agents of every group.
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
                "dp.Problem takes a list of dp.Agent objects with at least one agent, as in "
                "dp.Problem([north, south])."
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
        names, agents = self.names, self.agents
        owner: dict[int, str] = {}
        seen: set[str] = set()
        for name, agent in zip(names, agents, strict=True):
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
                    raise ModelError(
                        f"Two private objects are called '{spec.name}', so the guarantee and "
                        "data={...} could not tell them apart. Give each dp.Private its own name=."
                    )
                owner[private.id] = name
                seen.add(spec.name)
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

    def holders(self) -> dict[int, NDArray[np.intp]]:
        """Number of agents that hold each entry, by cvxpy id of the variable."""
        count: dict[int, NDArray[np.intp]] = {}
        for agent in self.agents:
            for piece in agent.layout.pieces:
                known = count.setdefault(piece.variable, np.zeros(piece.size, dtype=np.intp))
                known[piece.entries] += 1
        return count

    def variables(self) -> list[cp.Variable]:
        """All variables, in order of appearance."""
        found: dict[int, cp.Variable] = {}
        for agent in self.agents:
            if any(piece.variable not in found for piece in agent.layout.pieces):
                found.update({v.id: v for v in agent.variables})
        return list(found.values())

    @property
    def constraints(self) -> list[cp.Constraint]:
        """All constraints that a run keeps, as in cvxpy: the agents', and the coupling."""
        theirs = [constraint for agent in self.agents for constraint in agent.constraints]
        return [*theirs, *self.coupling]

    def is_dcp(self) -> bool:
        """Whether every agent's part follows cvxpy's convexity rules."""
        return all(agent.is_dcp() for agent in self.agents)

    def shares(self) -> list[int]:
        """Per agent, how many agents with private data its group has."""
        sizes = dict.fromkeys(self.names, 1)
        private = {n for n, agent in zip(self.names, self.agents, strict=True) if agent.private}
        for group in self.group_names:
            sizes |= dict.fromkeys(group, max(1, len(private.intersection(group))))
        return [sizes[name] for name in self.names]

    def _named_groups(self) -> tuple[tuple[str, ...], ...]:
        by_agent = {id(a): n for n, a in zip(self.names, self.agents, strict=True)}
        found: list[tuple[str, ...]] = []
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
            found.append(tuple(str(n) for n in names))
        members = [name for group in found for name in group]
        for name in members:
            if members.count(name) > 1:
                raise ModelError(
                    f"Agent '{name}' is in two groups, or twice in one. If the same person may be "
                    "in all of them, write one group of all these agents."
                )
        return tuple(found)

    def _check_labels(self) -> None:
        """Refuse a label that was given in agents which no group counts together."""
        holders: dict[str, list[str]] = {}
        for name, agent in zip(self.names, self.agents, strict=True):
            adjacencies = [p.adjacency for p in agent.private]
            given = {
                a.records for a in adjacencies if isinstance(a, Rows) and a.records is not None
            }
            for label in sorted(given):
                holders.setdefault(label, []).append(name)
        for label, names in holders.items():
            if len(names) < 2 or any(set(names) <= set(group) for group in self.group_names):
                continue
            listed = _listed(names)
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
            tied = isinstance(constraint, (Equality, Zero, Inequality))
            tied = tied and constraint.expr.is_affine()
            if not tied or any(leaf.is_complex() for leaf in _leaves(constraint)):
                raise ModelError(
                    f"Element {position} of coupling= must be an affine equality or inequality of "
                    "real numbers, such as A @ x + B @ y == c or A @ x + B @ y <= c. Give other "
                    "constraints to one agent: dp.Agent(objective, [constraint])."
                )
            _require_public(
                constraint.parameters(),
                f"Element {position} of coupling=",
                "Write it as an inequality among the constraints of the agent whose data they are, "
                "such as dp.Agent(cost, [x + y >= need]), which problem.plan(..., violation=0.01) "
                "keeps, with a reserve in place of an equality; variables of others in it are "
                "then shared. Or declare the data public with cp.Parameter.",
            )
            for piece in layout_of([constraint]).pieces:
                if piece.variable not in held or not held[piece.variable][piece.entries].all():
                    raise ModelError(
                        f"Element {position} of coupling= uses variable '{piece.name}', or entries "
                        "of it, that no agent has in its objective or constraints. Use the same "
                        "Python object there; a term such as 0 * cp.sum(x) will do."
                    )
        return coupling

    def _add_slacks(self) -> None:
        """Turn inequalities into equalities with slack variables, and give these to somebody."""
        equalities: list[cp.Constraint] = []
        slacks: list[cp.Variable] = []
        for position, constraint in enumerate(self.coupling):
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
                f"An agent is called '{SLACK}', as is what dpcvx adds for the inequalities in "
                "coupling=. Give it another name=."
            )
        object.__setattr__(self, "agents", tuple(agents))
        object.__setattr__(self, "names", names)

    def _check_sharing(self) -> None:
        if len(self.agents) == 1:
            return
        holders = self.holders()
        coupled = {v.id for constraint in self.equalities for v in constraint.variables()}
        named: dict[str, set[int]] = {}
        for variable in self.variables():
            named.setdefault(variable.name(), set()).add(variable.id)
        twins = sorted(name for name, ids in named.items() if len(ids) > 1)
        for name, agent in zip(self.names, self.agents, strict=True):
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
        """Refuse constraints in own= that would bind what others decide as well."""
        holders = self.holders()
        for name, agent in zip(self.names, self.agents, strict=True):
            held = {piece.variable: piece.entries for piece in agent.layout.pieces}
            for position, constraint in enumerate(agent.own):
                what = f"Constraint {position} in own= of agent '{name}'"
                for piece in layout_of([constraint]).pieces:
                    used = f"{what} uses variable '{piece.name}', or entries of it, that"
                    its = np.isin(piece.entries, held.get(piece.variable, ()))
                    everyone = holders.get(piece.variable, np.zeros(piece.size))
                    if (everyone[piece.entries] > its).any():
                        raise ModelError(
                            f"{used} other agents use as well. These are agreed on in the open "
                            "before own= is looked at, so it may only constrain variables of this "
                            "agent alone. Write the constraint with those, or as a public one in "
                            "dp.Agent(objective, [...])."
                        )
                    if not its.all():
                        raise ModelError(
                            f"{used} the agent has neither in its objective nor in its "
                            "constraints. Use the same Python object there; a term such as "
                            "0 * cp.sum(x) will do."
                        )


def _constraints(given: object, where: str, label: str) -> tuple[cp.Constraint, ...]:
    """The cvxpy constraints of an agent's list; `where` it stands and its `label`, for messages."""
    single = isinstance(given, (cp.Constraint, str))
    if single or not isinstance(given, Iterable):
        raise ModelError(
            f"The constraints {where}of agent '{label}' are a {type(given).__name__}; write a "
            f"list, as in dp.Agent(cp.Minimize(...), {'[], own=' if where else ''}[x >= 0])."
        )
    found = understood(lambda: tuple(given), label)
    for position, constraint in enumerate(found):
        if not isinstance(constraint, cp.Constraint):
            raise ModelError(
                f"Constraint {position} {where}of agent '{label}' is a "
                f"{type(constraint).__name__}, not a cvxpy constraint. A comparison without "
                "variables gives a bool; leave it out or write it with a variable."
            )
    return found


def _private(tree: cp.Minimize | cp.Maximize | cp.Constraint) -> tuple[Private, ...]:
    return tuple(p for p in tree.parameters() if isinstance(p, Private))


def _require_public(parameters: Iterable[cp.Parameter], what: str, remedy: str) -> None:
    """Refuse private data where the model is public."""
    for parameter in parameters:
        if isinstance(parameter, Private):
            name = parameter.name()
            raise PrivacyError(
                f"{what} contains the private parameter '{name}'. What is public to all agents may "
                f"not depend on private data. {remedy}"
            )


def _leaves(tree: cp.Minimize | cp.Maximize | cp.Constraint) -> list[Any]:
    """Constants and parameters of an objective or a constraint."""
    return [*tree.constants(), *tree.parameters()]


def _start(given: object, variables: Sequence[cp.Variable]) -> dict[cp.Variable, Array]:
    values = pairs(given)
    if values is None:
        raise ModelError(
            "start=, which follows the agents, is a mapping of cvxpy variables to values, such as "
            "{x: 1.0}. Constraints belong to agents, as in dp.Agent(objective, [x >= 0]), and "
            "equalities between agents to coupling=."
        )
    used = {v.id for v in variables}
    start: dict[cp.Variable, Array] = {}
    for variable, value in values:
        known = isinstance(variable, cp.Variable)
        if not known or variable.id not in used:
            name = f"'{variable.name()}'" if known else show(variable)
            raise ModelError(f"start= has a value for {name}, which no agent uses as a variable.")
        array = real_array(value)
        fits = array is not None and array.shape in ((), variable.shape)
        if array is None or not fits or not np.isfinite(array).all():
            raise ModelError(
                f"start= for variable '{variable.name()}' must be finite numbers, one or of shape "
                f"{variable.shape}."
            )
        start[variable] = np.broadcast_to(array, variable.shape).copy()
    return start


def _listed(names: Sequence[str]) -> str:
    shown = [f"'{name}'" for name in names[:_NAMES]]
    return ", ".join([*shown, "..."] if len(names) > _NAMES else shown)


def _is_set(attribute: object) -> bool:
    return attribute is not None and attribute is not False


def matching(
    problem: Declaration, data: Mapping[Private | str, T], argument: str = "data"
) -> list[tuple[Private, T]]:
    """The private objects that a mapping by object or name is about.

    Parameters
    ----------
    problem : Declaration
    data : mapping
        Values by private object or its name; none are looked at.
    argument : str
        What users call it, for messages.

    Raises
    ------
    ModelError
        If a key names none or several.
    """
    if not data:
        return []
    known = {
        private: spec.name
        for name, agent in zip(problem.names, problem.agents, strict=True)
        for private, spec in agent.specs(name).items()
    }
    found: list[tuple[Private, T]] = []
    for key, value in data.items():
        named = isinstance(key, str)
        matches = [p for p in known if (known[p] == key if named else p is key)]
        if len(matches) != 1:
            label = show(key if isinstance(key, str) else key.spec.name)
            which = f"{len(matches)} private objects have" if matches else "no private object has"
            raise ModelError(
                f"{argument}= has a value for {label}, a name that {which} in this problem. They "
                f"are: {', '.join(known.values()) or 'none'}; use the dp.Private object itself as "
                "key where it has no name."
            )
        found.append((matches[0], value))
    return found
