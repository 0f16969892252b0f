"""An agent's expressions over the entries that it holds, instead of over whole variables.

A zone of a large network indexes variables of the whole: compiled as it is written, every index
costs as much as the network is large.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import cvxpy as cp
import numpy as np

from .layout import Layout, picked


class Narrowed:
    """Variables of which an agent holds a part, as variables of that part.

    Variables with attributes stay as they are, since these may say something of each entry.

    Parameters
    ----------
    variables : sequence of cvxpy variables
        One per piece of `layout`, in its order.
    layout : Layout

    Attributes
    ----------
    variables : tuple of cvxpy variables
        Those that trees are over.
    layout : Layout
        What the agent holds of these.
    """

    def __init__(self, variables: Sequence[cp.Variable], layout: Layout) -> None:
        self._parts = {
            v.id: (cp.Variable(piece.entries.size, name=piece.name), piece.entries)
            for v, piece in zip(variables, layout.pieces, strict=True)
            if not (piece.full or restricted(v))
        }
        self.variables = tuple(self._parts.get(v.id, (v,))[0] for v in variables)
        self.layout = Layout(
            tuple(
                replace(piece, variable=v.id, shape=v.shape, entries=np.arange(v.size))
                if piece.variable in self._parts
                else piece
                for v, piece in zip(self.variables, layout.pieces, strict=True)
            )
        )
        self._known: dict[int, Any] = {}

    def tree(self, node: Any) -> Any:
        """An objective, expression or constraint over these variables; what is shared stays so.

        The tree has to live as long as this object.
        """
        if not self._parts:
            return node
        if id(node) not in self._known:
            self._known[id(node)] = self._tree(node)
        return self._known[id(node)]

    def _tree(self, node: Any) -> Any:
        if not node.args:
            return node
        found = picked(node)
        if found is not None and found[0].id in self._parts:
            part, entries = self._parts[found[0].id]
            places = np.searchsorted(entries, found[1])
            if places.ndim == 1:
                whole = np.array_equal(places, np.arange(part.size))
                return part if whole else part[places]
            return cp.reshape(part[places.ravel(order="F")], places.shape, order="F")
        args = [self.tree(arg) for arg in node.args]
        return (
            node if all(a is b for a, b in zip(args, node.args, strict=True)) else node.copy(args)
        )


def restricted(variable: cp.Variable) -> bool:
    """Whether a variable has attributes, such as bounds."""
    return any(a is not None and a is not False for a in variable.attributes.values())
