"""Copies of ``cp.perspective`` together with its function, for copies of models.

cvxpy copies an atom with its arguments only, and the function of a perspective is no argument.
cvxpy compiles an atom by its class, so the copy has the same class, with methods of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, TypeVar, cast

import cvxpy as cp

from ..errors import ModelError
from .atoms import spellings
from .structure import nodes_of

Tree = TypeVar("Tree")


def copyable(tree: Tree) -> Tree:
    """Return a tree whose copies of ``cp.perspective`` atoms include their functions.

    Parameters
    ----------
    tree : cvxpy objective or constraint
        Tree that is returned unchanged if it has no ``cp.perspective``.
    """
    places = {
        id(node): _held(node.f, node.args[0], node.f_recession)
        for node in nodes_of(tree)
        if spellings.is_perspective(node) and "tree_copy" not in vars(node)
    }
    if not places:
        return tree
    copy = cast(Any, tree).tree_copy(places)
    if isinstance(tree, cp.Constraint):
        copy.constr_id = tree.id  # shadow prices are read by this id
    return copy


def _held(f: cp.Expression, s: cp.Variable, recession: Any) -> Any:
    """Return a perspective of f and s that lists the parameters of f, and is copied with f."""
    atom: Any = cp.perspective(f, s, recession)
    methods = {"parameters": _parameters, "get_data": _data, "copy": _copy, "tree_copy": _tree_copy}
    vars(atom).update({name: partial(method, atom) for name, method in methods.items()})
    return atom


def _parameters(atom: Any) -> list[cp.Parameter]:
    both = (*(p for arg in atom.args for p in arg.parameters()), *atom.f.parameters())
    return list({p.id: p for p in both}.values())


def _data(atom: Any) -> list[Any]:
    return [atom.f, atom.f_recession]


def _copy(atom: Any, args: Any = None, id_objects: Any = None) -> Any:
    """Return a copy of a perspective with other arguments: first s, then the variables of f."""
    places = dict(id_objects or {})
    if args is not None:
        places |= {id(old): new for old, new in zip(atom.args, args, strict=True)}
    return _tree_copy(atom, places)


def _tree_copy(atom: Any, id_objects: Any = None) -> Any:
    places: Mapping[int, Any] = id_objects or {}
    if id(atom) in places:
        return places[id(atom)]
    s = atom.args[0].tree_copy(places)
    rest = None if atom.f_recession is None else atom.f_recession.tree_copy(places)
    if isinstance(s, cp.Variable):
        return _held(atom.f.tree_copy(places), s, rest)
    if not s.is_constant():
        raise ModelError(
            "cp.perspective(f, s) has an expression as s, and dpcvx needs a variable there. "
            "Write a scalar variable s. Neither an entry of another variable nor an equality "
            "with private data may define it."
        )
    value = float(cast(Any, s.value))
    if value <= 0:
        if rest is None:
            raise ModelError(
                "cp.perspective(f, s) has no value at s = 0 without a recession function. Write "
                "cp.perspective(f, s, f_recession=...), or s >= 0.001."
            )
        return rest
    inside = {id(v): v.tree_copy(places) / value for v in atom.f.variables()}
    return value * atom.f.tree_copy({**places, **inside})
