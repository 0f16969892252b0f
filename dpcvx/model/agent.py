"""Agents as users declare them, and keys that are equal if agents compile to equal forms."""

from __future__ import annotations

import copy
import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import cvxpy as cp
import numpy as np
from cvxpy.transforms.indicator import indicator
from numpy.typing import NDArray

from .._arguments import POSITIVE, TEXT, Kind, check_fields, optional
from .._words import together
from ..errors import ModelError, PrivacyError
from ..guard import frameless, require_one_import, understood
from .atoms import spellings
from .layout import Layout, layout_of
from .private import Private, specs_of, without_data
from .spec import Asserted, PrivateSpec, unnamed
from .structure import Opaque, digest_of, nodes_of

Array = NDArray[np.float64]
Index = NDArray[np.intp]


Tree = cp.Minimize | cp.Maximize | cp.Constraint
_LENGTH = Kind(
    lambda value: POSITIVE.fits(value) or (isinstance(value, float) and value == math.inf),
    "a positive number, or math.inf",
)
_NAME = optional(TEXT.because("such as name='north'"))
_CLIP = optional(_LENGTH.because("the l2 norm that no record's contribution may exceed"))


@frameless
@dataclass(frozen=True, eq=False)
class Agent:
    """A party with its objective, its constraints and its private data.

    Parameters
    ----------
    objective : cvxpy.Minimize or cvxpy.Maximize
        Objective of the agent. It may use variables of other agents, and private and public
        parameters.
    constraints : sequence of cvxpy constraints
        Constraints of the agent. Inequalities may use private parameters, alone or times variables:
        ``plan(..., violation_probability=0.01)`` makes them chance constraints for the true data.
    name : str, optional
        Name in messages and errors; ``agent 1``, ... by position if omitted.
    clip_norm : float, optional
        Largest l2 norm of a record's contribution to the gradient; longer ones are scaled down. Use
        it for losses of records (`Rows`) whose contributions are unbounded or rarely near their
        bound. Clipping biases the gradient. If omitted, a plan without ``algorithm=`` may choose a
        clip, and prints it; ``math.inf`` switches clipping off.
    sensitivity : Asserted, optional
        User-supplied bound on how far one change of the data moves the gradient, used without
        proof. The guarantee is then marked as asserted.
    recourse : sequence of cvxpy constraints, optional
        Convex constraints on local variables, with or without private data. A run does not read
        them, so they cost no privacy. ``result.recourse(name)`` satisfies them exactly, for the
        agreed shared variables and the agent's share of every ``coupling=``.

    Attributes
    ----------
    private : tuple of Private
        Private objects in the objective and the constraints.
    kept : tuple of Private
        Private objects in ``recourse=`` alone. No released value depends on them.

    Raises
    ------
    ModelError
        If the objective, a constraint or a variable has a type that dpcvx does not support.
    PrivacyError
        If a bound of a variable, or a constraint without variables, uses a private parameter.
    """

    objective: cp.Minimize | cp.Maximize
    constraints: Sequence[cp.Constraint] = ()
    name: str | None = None
    clip_norm: float | None = None
    sensitivity: Asserted | None = None
    recourse: Sequence[cp.Constraint] = ()
    layout: Layout = field(init=False, repr=False)
    private: tuple[Private, ...] = field(init=False, repr=False)
    kept: tuple[Private, ...] = field(init=False, repr=False)
    # The objective with one spelling of every function.
    posed: cp.Minimize | cp.Maximize = field(init=False, repr=False)
    # Variables that expressions replace, with these expressions; see `dpcvx.model.defined`.
    defined: tuple[tuple[cp.Variable, cp.Expression], ...] = field(
        init=False, repr=False, default=()
    )

    def __post_init__(self) -> None:
        check_fields(self, "dp.Agent", name=_NAME, clip_norm=_CLIP)
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
        constraints = tuple(map(spellings.copyable, _constraints(self.constraints, "", label)))
        _check_private(constraints, label)
        recourse = tuple(
            map(spellings.copyable, _constraints(self.recourse, "in recourse= ", label))
        )
        _check_own(recourse, label)
        for tree in recourse:
            require_real(tree, f"recourse= of agent '{label}'")
        for tree in (self.objective, *constraints, *recourse):
            require_one_import(tree.parameters())
            require_listed(tree, f"agent '{label}'")
            understood(lambda tree=tree: _check_pairs(tree, label), label)
        _check_indicator(self.objective, label)
        object.__setattr__(self, "objective", spellings.copyable(self.objective))
        layout = understood(lambda: layout_of([self.objective, *constraints]), label)
        if not layout.pieces:
            raise ModelError(
                f"Agent '{label}' has no variables. Use a cvxpy variable in its objective or "
                "constraints: there is nothing to optimize without one."
            )
        object.__setattr__(self, "constraints", constraints)
        object.__setattr__(self, "recourse", recourse)
        object.__setattr__(self, "layout", layout)
        object.__setattr__(self, "posed", understood(lambda: _posed(self.objective), label))
        for variable in self.variables:
            _check_variable(variable, label)
        private = {p.id: p for tree in (self.objective, *constraints) for p in private_in(tree)}
        later = {p.id: p for constraint in recourse for p in private_in(constraint)}
        object.__setattr__(self, "private", tuple(private.values()))
        object.__setattr__(self, "kept", tuple(p for k, p in later.items() if k not in private))

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
        same = self.posed is self.objective
        object.__setattr__(twin, "posed", twin.objective if same else emptied(self.posed))
        object.__setattr__(
            twin, "recourse", tuple(emptied(constraint) for constraint in self.recourse)
        )
        defined = tuple((variable, emptied(e)) for variable, e in self.defined)
        object.__setattr__(twin, "defined", defined)
        constraints = (emptied(c) if private_in(c) else c for c in self.constraints)
        object.__setattr__(twin, "constraints", tuple(constraints))
        for name in ("private", "kept"):
            twins = tuple(places[id(private)] for private in getattr(self, name))
            object.__setattr__(twin, name, twins)
        return twin

    @property
    def variables(self) -> list[cp.Variable]:
        """Variables of the agent, in the order of its vector x."""
        by_id = {v.id: v for v in self.objective.variables()}
        for constraint in self.constraints:
            by_id.update({v.id: v for v in constraint.variables()})
        return [by_id[piece.variable] for piece in self.layout.pieces]

    @property
    def limits(self) -> list[tuple[int, cp.Constraint]]:
        """Constraints of the agent with private data, with their positions in ``constraints=``."""
        return [(k, c) for k, c in enumerate(self.constraints) if private_in(c)]

    @property
    def public_constraints(self) -> list[cp.Constraint]:
        """Constraints of the agent without private data."""
        return [c for c in self.constraints if not private_in(c)]

    @property
    def cost(self) -> cp.Expression:
        """Objective as an expression to minimize; equivalent expressions get one common form."""
        posed: Any = self.posed
        return posed.args[0] if isinstance(posed, cp.Minimize) else -posed.args[0]

    def specs(self, name: str) -> dict[Private, PrivateSpec]:
        """Return the public description of each private object; objects in ``recourse=`` come last.

        Parameters
        ----------
        name : str
            Name of the agent in its problem, for objects without a name of their own.
        """
        named = [*specs_of(self.private, name), *specs_of(self.kept, f"recourse= of {name}")]
        return dict(zip((*self.private, *self.kept), named, strict=True))

    def is_dcp(self) -> bool:
        """Return whether the agent's objective and constraints follow cvxpy's convexity rules."""
        return self.posed.is_dcp() and all(c.is_dcp() for c in self.constraints)


def _posed(objective: Any) -> cp.Minimize | cp.Maximize:
    """Return an objective rewritten so that equal functions have equal trees.

    See `spellings.plain`. The result is the original if only the original is DCP.
    """
    if is_complex(objective):  # u^2 is not |u|^2 for a complex number u
        return objective
    expression = spellings.plain(objective.args[0])
    if expression is objective.args[0]:
        return objective
    posed = type(objective)(expression)
    return posed if posed.is_dcp() or not objective.is_dcp() else objective


def _constraints(given: object, where: str, label: str) -> tuple[cp.Constraint, ...]:
    """Return the constraints of a list that a user passed, after checks of their types.

    `where` and `label` describe the list and the agent in messages.
    """
    single = isinstance(given, (cp.Constraint, str))
    if single or not isinstance(given, Iterable):
        raise ModelError(
            f"The constraints {where}of agent '{label}' are a {type(given).__name__}; write a "
            f"list, as in dp.Agent(cp.Minimize(...), {'[], recourse=' if where else ''}[x >= 0])."
        )
    listed = understood(lambda: tuple(given), label)
    for position, constraint in enumerate(listed):
        if hasattr(constraint, "to_numpy"):
            kind = type(constraint).__name__
            raise ModelError(
                f"Constraint {position} {where}of agent '{label}' is a {kind}, not a cvxpy "
                "constraint. Write the variable first, x <= series, or write series.to_numpy() "
                ">= x. If a table is on the left, its library evaluates the comparison, and "
                "cvxpy never gets it."
            )
        if not isinstance(constraint, cp.Constraint):
            kind = type(constraint).__name__
            write = "Write a comparison such as x >= 0, or leave it out."
            if isinstance(constraint, (list, tuple)):
                write = "Write one list of all: [*first, *second]."
            elif isinstance(constraint, (bool, np.bool_)):
                write = (
                    "A comparison without variables gives a bool; leave it out or write it with "
                    "a variable."
                )
            raise ModelError(
                f"Constraint {position} {where}of agent '{label}' is a {kind}, not a cvxpy "
                f"constraint. {write}"
            )
        if where and isinstance(constraint, cp.FiniteSet):
            raise ModelError(
                f"Constraint {position} {where}of agent '{label}' is a cp.FiniteSet, which is not "
                "convex. Write its convex hull, such as [x >= 0, x <= 2], and round the "
                "solution. Local steps are convex: they would only satisfy the hull, although "
                "the result would report the set as satisfied."
            )
    return listed


def _check_private(constraints: Sequence[cp.Constraint], label: str) -> None:
    """Refuse constraints with private data but without variables: no decision can satisfy them."""
    for position, constraint in enumerate(constraints):
        used = understood(lambda c=constraint: private_in(c), label)
        if used and not constraint.variables():
            raise PrivacyError(
                f"Constraint {position} of agent '{label}' holds private '{used[0].name()}' and "
                "no variable. Leave it out: no choice of the variables changes whether it holds."
            )


def _check_own(constraints: Sequence[cp.Constraint], label: str) -> None:
    for position, constraint in enumerate(constraints):
        if not understood(constraint.is_dcp, label):
            raise ModelError(
                f"Constraint {position} in recourse= of agent '{label}' does not follow cvxpy's "
                "convexity rules (DCP), and result.recourse(...) solves with it exactly. Rewrite "
                "it as convex <= concave, or as an affine equality; a private factor of known "
                "sign needs dp.Private(..., nonneg=True)."
            )


def is_complex(tree: Tree) -> bool:
    """Return whether a cvxpy tree has complex constants, variables or data."""
    return any(leaf.is_complex() for leaf in (*leaves_of(tree), *tree.variables()))


def require_real(tree: Tree, what: str) -> None:
    """Raise an error if a cvxpy tree uses complex numbers but its gradient is needed.

    Parameters
    ----------
    tree : cvxpy objective or constraint
    what : str
        Name of the tree, for messages.
    """
    if is_complex(tree):
        raise ModelError(
            f"{what[:1].upper()}{what[1:]} uses complex numbers, but gradients are computed for "
            "real vectors only, so an imaginary part would be lost. Use dp.OneShot(), which "
            "solves the model as written for dp.Within data. Or write two real terms, such as "
            "cp.sum_squares(A.real @ x - d.real) + cp.sum_squares(A.imag @ x - d.imag)."
        )


def _check_pairs(tree: Tree, label: str) -> None:
    """Refuse entrywise operations that broadcast private data to all n x n pairs of entries.

    Shapes (n, 1) and (n,), or (n, 1) and (1, n), broadcast to (n, n). Mostly this is a mistake: a
    column of a table next to a vector. Different lengths, or a term of shape (n, n), are accepted.
    """
    for node in nodes_of(tree):
        if len(node.args) < 2 or not spellings.broadcasts(node) or _square(node) < 2:
            continue
        n = _square(node)
        terms = [spellings.before_broadcast(term) for term in node.args]
        factors = [spellings.before_ones(term) for term in terms]
        if {(n, 1), (1, n)} <= {factor.shape for factor in factors}:
            terms = factors
        if any(term.shape[-2:] == (n, n) for term in terms):
            continue
        column = [term for term in terms if term.shape[-2:] == (n, 1)]
        line = [term for term in terms if term.shape in ((n,), (1, n))]
        used = [p for term in (*column, *line) for p in private_in(term)]
        if column and line and used:
            raise _pairs(column[0], line[0], used, n, label)


def _check_indicator(objective: cp.Minimize | cp.Maximize, label: str) -> None:
    """Refuse ``cp.transforms.indicator`` in an objective: cvxpy does not copy its constraints."""
    for node in nodes_of(objective):
        if isinstance(node, indicator):
            raise ModelError(
                f"The objective of agent '{label}' uses cp.transforms.indicator, which cvxpy does "
                "not copy. Write its constraints among those of the agent: "
                "dp.Agent(objective, [x >= 0])."
            )


def _square(node: Any) -> int:
    """Return n if the last two axes of a cvxpy node are (n, n), else 0."""
    sides = node.shape[-2:]
    return int(sides[0]) if len(sides) == 2 and sides[0] == sides[1] else 0


def _pairs(column: Any, line: Any, used: Sequence[Private], n: int, label: str) -> ModelError:
    named = [p for p in used if p.shape in ((n, 1), (1, n))]
    private = named[0] if named else used[0]
    name, direct = private.name(), bool(named)
    fix = (
        f"Write {name}.flatten(order='F') in place of {name}, or declare its values as "
        "dp.Private(np.ravel(...), ...)"
        if direct
        else f"Write the term of shape {column.shape} as term.flatten(order='F') or term[:, 0]"
    )
    return ModelError(
        f"Agent '{label}' combines terms of shapes {column.shape} and {line.shape} entry by "
        f"entry, with private '{name}' in them. The terms broadcast to shape ({n}, {n}). {fix}. "
        f"Every entry of one term would meet all {n} entries of the other. If all pairs are meant, "
        f"write cp.outer(a.flatten(order='F'), np.ones({n})) in place of a column a."
    )


def _check_variable(variable: cp.Variable, label: str) -> None:
    """Refuse private data in the bounds of a variable of the agent with this label."""
    for bound in variable.attributes.get("bounds") or ():
        if isinstance(bound, cp.Expression):
            require_public(
                bound.parameters(),
                f"A bound of variable '{variable.name()}' of agent '{label}'",
                "Write it as an inequality among the constraints of the agent whose data they "
                "are, or declare the data public with cp.Parameter.",
            )


def private_in(tree: Tree) -> tuple[Private, ...]:
    """Return the private objects in an objective or a constraint."""
    return tuple(p for p in tree.parameters() if isinstance(p, Private))


def require_listed(tree: Tree, where: str) -> None:
    """Refuse whole cvxpy problems, and atoms with parameters that cvxpy does not list.

    dpcvx would miss private data there.

    Parameters
    ----------
    tree : cvxpy objective or constraint
    where : str
        Name of the part of the model, such as "agent 'north'".

    Raises
    ------
    ModelError
    """
    listed_ids = {id(parameter) for parameter in tree.parameters()}
    for node in nodes_of(tree):
        if isinstance(node, cp.Problem):
            raise ModelError(
                f"The model, in {where}, contains a whole problem, by cp.partial_optimize. Add its "
                "objective and its constraints to those of the agent: dp.Agent(cp.Minimize(outer + "
                "inner), [*constraints, *inner_constraints]). Minimizing over all variables at "
                "once gives the same solution, and dpcvx can derive a sensitivity."
            )
        if isinstance(node, cp.Parameter) and id(node) not in listed_ids:
            raise ModelError(
                f"The model, in {where}, has '{node.name()}' within an atom that does not list it "
                "among its parameters, such as cp.suppfunc. Write the function by other atoms, "
                "for example cp.norm1(x - usage). dpcvx could not bound the privacy loss of data "
                "that the model hides from it."
            )


def require_public(parameters: Iterable[cp.Parameter], what: str, remedy: str) -> None:
    """Raise an error if a public part of the model uses private data.

    Parameters
    ----------
    parameters : iterable of cvxpy.Parameter
        Parameters of the public part.
    what, remedy : str
        Name of the public part, and the code to write instead, for the message.

    Raises
    ------
    PrivacyError
    """
    for parameter in parameters:
        if isinstance(parameter, Private):
            name = parameter.name()
            raise PrivacyError(
                f"{what} contains the private parameter '{name}'. What is public to all agents may "
                f"not depend on private data. {remedy}"
            )


def not_dcp(agent: Agent) -> str:
    """Return why an agent's objective is not DCP, from public signs and shapes alone."""
    objective = agent.posed
    expression: Any = objective.args[0]
    if expression.is_dcp():
        curved, other = ("convex", "concave")
        if isinstance(objective, cp.Minimize):
            curved, other = other, curved
        verb = type(objective).__name__
        return f"cp.{verb} takes a {other} expression, and this one is {curved}"
    while True:
        inner = next((part for part in expression.args if not part.is_dcp()), None)
        if inner is None:
            break
        expression = inner
    names = [f"'{leaf.name()}'" for leaf in (*expression.variables(), *expression.parameters())]
    kind = type(expression).__name__.removesuffix("Approx")
    open_sign = [p.name() for p in private_in(expression) if not (p.is_nonneg() or p.is_nonpos())]
    reason = f", and the sign of private '{open_sign[0]}' is not declared" if open_sign else ""
    return f"its term {kind} of {together(names)} is neither convex nor concave{reason}"


def leaves_of(tree: Tree) -> list[Any]:
    """Return the constants and parameters in an objective or a constraint."""
    return [*tree.constants(), *tree.parameters()]


@dataclass(frozen=True, eq=False)
class Model:
    """Agent as its user declared it, with the positions of its shared entries.

    Attributes
    ----------
    name : str
    agent : Agent
    slot : mapping of int to ndarray of int
        Positions of a variable's entries in the vector w of all entries that agents share, by cvxpy
        id of the variable; -1 for entries that are not shared.
    start : mapping of int to ndarray
        Initial values of variables, by cvxpy id, if given.
    """

    name: str
    agent: Agent
    slot: Mapping[int, Index]
    start: Mapping[int, Array]

    @cached_property
    def where(self) -> Index:
        """Positions of the agent's components in the shared vector w; -1 if not shared."""
        pieces = self.agent.layout.pieces
        return np.concatenate([self.slot[p.variable][p.entries] for p in pieces])

    @cached_property
    def written(self) -> bytes | None:
        """Digest of the agent's objective and constraints, without names; None if there is none."""
        pieces = self.agent.layout.pieces
        places = {piece.variable: f"x{k}" for k, piece in enumerate(pieces)}
        places |= {p.id: f"d{k}" for k, p in enumerate(self.agent.private)}
        try:
            return digest_of((self.agent.posed, self.agent.constraints), places)
        except Opaque:
            return None

    @property
    def set_key(self) -> Hashable | None:
        """Key that is equal only for agents with equal public constraint sets; None if unknown."""
        pieces = self.agent.layout.pieces
        places = {piece.variable: f"x{k}" for k, piece in enumerate(pieces)}
        trees = list(self.agent.public_constraints), list(self.agent.variables)
        try:
            written = digest_of(trees, places)
        except Opaque:
            return None
        return (written, *((piece.shape, piece.entries.tobytes()) for piece in pieces))

    @property
    def specs(self) -> tuple[PrivateSpec, ...]:
        """Return the public descriptions of the agent's private objects."""
        return specs_of(self.agent.private, self.name)

    @property
    def key(self) -> Hashable | None:
        """Key that is equal only for agents with equal normal forms up to names; None if unknown.

        The key contains all that compilation reads: the model node by node with all constants, the
        declarations of the data, the clip and the asserted sensitivity, which entries are shared,
        and the initial point. Labels of records are names: the key contains which objects have
        equal labels, and not the labels.
        """
        agent, pieces = self.agent, self.agent.layout.pieces
        if self.written is None or agent.limits:
            return None
        starts = (self.start.get(piece.variable) for piece in pieces)
        trees = (agent.objective, *agent.constraints)
        parameters = [p for t in trees for p in t.parameters() if not isinstance(p, Private)]
        try:
            attributes = digest_of([p.attributes for p in parameters])
        except Opaque:
            return None
        return (
            self.written,
            attributes,
            *unnamed(self.specs),
            *((piece.shape, piece.entries.tobytes()) for piece in pieces),
            *(None if start is None else start.tobytes() for start in starts),
            (self.where >= 0).tobytes(),
            (agent.clip_norm, agent.sensitivity),
        )
