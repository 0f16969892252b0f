r"""Constraints at the unsafe corner of a box that contains the private data; any atom and cone.

Margins of cone programs need data that enter affinely. This module needs monotone atoms instead. So
it also keeps constraints of geometric programs, and functions of the data, for the true data.

Let the data d lie in the box :math:`l \le d \le h`, and write a constraint as :math:`g(x, d, \dots,
d) \le 0`, with a separate argument for every place where the data stand. By cvxpy's rules for
the monotonicity of atoms, g is nondecreasing in some of these arguments and nonincreasing in the
others, for all data of the declared signs. Put h into the former and l into the latter. Then
:math:`g(x, d, \dots, d) \le g(x, h, \dots, l)` for every x. So whoever satisfies the constraint at
the corner satisfies it for the true data, however the decision x depends on the release.

The data were released as :math:`\tilde d = d + \xi`. The box :math:`\tilde d \pm t` contains the
data, except with the probability that some noise :math:`\xi_k` exceeds its margin t_k on the side
that is used. Declared bounds contain the data with certainty, so the box ends there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import cvxpy as cp
import numpy as np
from cvxpy.constraints.nonpos import Inequality
from numpy.typing import NDArray

from .agent import private_in
from .canonical import public_copy
from .layout import indexed, is_quotient
from .private import Private
from .spec import PrivateSpec

Array = NDArray[np.float64]
Index = NDArray[np.intp]
# Returns what replaces a part of an expression, at its largest or smallest value; None if nothing.
Replace = Callable[[Any, bool], Any]


class _Unknown(Exception):
    """cvxpy knows no monotonicity of an atom in an argument with private data."""


@dataclass(frozen=True, eq=False)
class CornerConstraint:
    """A constraint with private data that holds at the unsafe corner of a box around the data."""

    what: str  # name in messages, such as "Constraint 0 of agent 'north'"
    position: int  # among the agent's constraints
    number: int  # cvxpy id of the user's constraint
    above: Index  # entries of the agent's data whose largest value the corner has
    below: Index  # entries whose smallest value it has


def corner_constraint(
    constraint: cp.Constraint, specs: Mapping[Private, PrivateSpec], position: int, owner: str
) -> CornerConstraint | None:
    """Return the entries of the data at a constraint's corner; None if cvxpy knows no corner.

    Parameters
    ----------
    constraint : cvxpy constraint
    specs : mapping of Private to PrivateSpec
        All private objects of the constraint's agent, in order.
    position : int
        Position of the constraint among the agent's constraints.
    owner : str
        Name of the agent.
    """
    used = private_in(constraint)
    if any(specs[p].psd or specs[p].is_complex for p in used):
        return None
    public = [p for p in constraint.parameters() if not isinstance(p, Private)]
    tree = public_copy(constraint, public)
    numbers: dict[int, Array] = {}
    first = 0
    for private, spec in specs.items():
        numbers[id(private)] = first + spec.shaped(np.arange(spec.size, dtype=float))
        first += spec.size
    met: dict[bool, list[Array]] = {True: [], False: []}

    def noted(tree: Any, largest: bool) -> Any:
        leaf = indexed(tree)
        if id(leaf) not in numbers:
            return None
        chosen: Any = cp.Constant(numbers[id(leaf)])
        chosen = chosen if leaf is tree else tree.copy([chosen])
        met[largest].append(np.ravel(chosen.value))
        return tree

    try:
        _constraint_at(tree, set(numbers), noted)
    except _Unknown:
        return None
    above, below = (
        np.unique(np.concatenate([np.zeros(0), *met[side]])).astype(np.intp)
        for side in (True, False)
    )
    what = f"Constraint {position} of agent '{owner}'"
    return CornerConstraint(what, position, constraint.id, above, below)


def at_corner(
    constraint: cp.Constraint,
    data: Sequence[cp.Parameter],
    lower: Sequence[Array],
    upper: Sequence[Array],
) -> Inequality:
    """Return a constraint at the unsafe corner of a box.

    Parameters
    ----------
    constraint : cvxpy constraint
        A constraint for which `corner_constraint` found a corner.
    data : sequence of cvxpy.Parameter
        Parameters that stand for the data.
    lower, upper : sequence of ndarray
        Corners of the box, in the parameters' shapes.
    """
    ends = {
        id(p): (cp.Constant(low), cp.Constant(high))
        for p, low, high in zip(data, lower, upper, strict=True)
    }

    def end(tree: Any, largest: bool) -> Any:
        return ends[id(tree)][largest] if id(tree) in ends else None

    return _constraint_at(constraint, set(ends), end)


def _constraint_at(constraint: cp.Constraint, data: set[int], replace: Replace) -> Inequality:
    if not isinstance(constraint, Inequality):
        raise _Unknown
    left, right = constraint.args
    return Inequality(_moved(left, True, data, replace), _moved(right, False, data, replace))


def _moved(tree: Any, largest: bool, data: set[int], replace: Replace) -> Any:
    """Return an expression with data replaced so that it has its largest or smallest value.

    `data` are the Python ids of the parameters that stand for the data.
    """
    if not any(id(p) in data for p in tree.parameters()):
        return tree
    moved = replace(tree, largest)
    if moved is not None:
        return moved
    arguments = []
    for k, argument in enumerate(tree.args):
        if not any(id(p) in data for p in argument.parameters()):
            arguments.append(argument)
            continue
        signed = argument.is_nonneg() or argument.is_nonpos()
        if is_quotient(tree) and k == 1 and not signed:
            raise _Unknown  # a quotient jumps where the sign of its denominator changes
        if tree.is_incr(k):
            arguments.append(_moved(argument, largest, data, replace))
        elif tree.is_decr(k):
            arguments.append(_moved(argument, not largest, data, replace))
        else:
            raise _Unknown
    return tree.copy(arguments)
