"""An agent as its user wrote it, and when two are written alike: they compile to the same then."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from .agent import Agent
from .private import Private, specs_of
from .spec import PrivateSpec, unnamed
from .structure import Opaque, digest_of

Array = NDArray[np.float64]
Index = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Model:
    """One agent's part as its user wrote it, in its place among the others.

    Attributes
    ----------
    name : str
    agent : Agent
    slot : mapping of int to ndarray of int
        Per variable, by cvxpy id, where its entries are in w; -1 for those that are not shared.
    start : mapping of int to ndarray
        Of variables, by cvxpy id, as far as they have one.
    """

    name: str
    agent: Agent
    slot: Mapping[int, Index]
    start: Mapping[int, Array]

    @cached_property
    def where(self) -> Index:
        """The slots of the agent's vector, -1 for what is not shared."""
        pieces = self.agent.layout.pieces
        return np.concatenate([self.slot[p.variable][p.entries] for p in pieces])

    @cached_property
    def written(self) -> bytes | None:
        """A digest of objective and constraints, whatever the names; None if that is not known."""
        pieces = self.agent.layout.pieces
        places = {piece.variable: f"x{k}" for k, piece in enumerate(pieces)}
        places |= {p.id: f"d{k}" for k, p in enumerate(self.agent.private)}
        try:
            return digest_of((self.agent.posed, self.agent.constraints), places)
        except Opaque:
            return None

    @property
    def specs(self) -> tuple[PrivateSpec, ...]:
        """What is public of its private objects."""
        return specs_of(self.agent.private, self.name)

    @property
    def key(self) -> Hashable | None:
        """Equal only where agents compile to the same, but for names and slots; None if unknown.

        Labels of records are names: that two objects have one label is in it, not which.

        Everything that compiling reads is in it: the model, node by node with all constants, what
        is declared of the data, clips and claims, which entries are shared, and the start.
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
