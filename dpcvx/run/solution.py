"""The agents' vectors as values of cvxpy variables, and how far they are from agreeing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

from .._arguments import show
from ..algorithms.program import Program
from ..errors import ModelError
from ..guard import frameless

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Solution:
    """The agents' vectors, as arrays of the cvxpy variables' shapes.

    Attributes
    ----------
    program : Program
    vectors : tuple of ndarray
        One per agent.
    start : mapping
        Whole variables (by cvxpy id) at the public start, for entries that nobody holds.
    """

    program: Program = field(repr=False)
    vectors: tuple[Array, ...] = field(repr=False)
    start: Mapping[int, Array] = field(repr=False)

    def __repr__(self) -> str:
        entries = sum(x.size for x in self.vectors)
        return f"<Solution: {len(self.vectors)} agents, {entries} entries>"

    @frameless
    def of(self, agent: str, variable: cp.Variable) -> Array:
        """One agent's copy of a variable.

        Raises
        ------
        ModelError
            If there is no such agent or it does not hold the variable.
        """
        if not isinstance(variable, cp.Variable) or not isinstance(agent, str):
            raise ModelError(
                f"solution.of({show(agent)}, {show(variable)}) takes the name of an agent and one "
                "of its cvxpy variables."
            )
        for local, x in zip(self.program.agents, self.vectors, strict=True):
            if local.name == agent and any(
                piece.variable == variable.id for piece in local.layout.pieces
            ):
                piece = local.layout[variable.id]
                flat = np.ravel(self.start[variable.id], order="F").copy()
                flat[piece.entries] = x[piece.offset : piece.stop]
                return flat.reshape(piece.shape, order="F")
        names = ", ".join(local.name for local in self.program.agents)
        raise ModelError(
            f"No agent {show(agent)} holds a variable '{variable.name()}'; the agents are {names}."
        )

    @frameless
    def __getitem__(self, variable: cp.Variable) -> Array:
        """The mean over the agents that hold each entry."""
        if not isinstance(variable, cp.Variable):
            raise ModelError(
                f"solution[{show(variable)}] is no value: write solution[x] with a cvxpy variable."
            )
        held = (p.variable for local in self.program.agents for p in local.layout.pieces)
        if variable.id not in held:
            raise ModelError(f"No agent holds a variable '{variable.name()}'.")
        return self._mean(variable.id)

    def _mean(self, variable: int) -> Array:
        """The mean over the agents that hold each entry of a variable, by its cvxpy id."""
        start = np.asarray(self.start[variable])
        total, count = np.zeros(start.size), np.zeros(start.size)
        for local, x in zip(self.program.agents, self.vectors, strict=True):
            for piece in local.layout.pieces:
                if piece.variable == variable:
                    total[piece.entries] += x[piece.offset : piece.stop]
                    count[piece.entries] += 1
        flat = np.ravel(start, order="F").copy()
        flat[count > 0] = total[count > 0] / count[count > 0]
        return flat.reshape(start.shape, order="F")

    @property
    def finite(self) -> bool:
        """Whether all values are numbers, and what they amount to together."""
        return all(np.isfinite(x).all() for x in self.vectors) and math.isfinite(self.mismatch)

    @property
    def coupling_residual(self) -> float:
        """Largest violation of a ``coupling=`` equality; 0 without such equalities."""
        coupling = self.program.coupling
        if coupling is None:
            return 0.0
        values = [np.ravel(self._mean(variable), order="F") for variable in coupling.starts]
        with np.errstate(invalid="ignore", over="ignore"):  # of a run that diverged
            gap = coupling.matrix @ np.concatenate(values) - coupling.right
        return float(np.abs(gap).max(initial=0.0))

    @property
    def mismatch(self) -> float:
        """How far agents are from agreeing: the larger one of two violations.

        The largest deviation of a shared component from its mean over the holders, and
        `coupling_residual`.
        """
        program = self.program
        mean = np.zeros(program.size)
        with np.errstate(invalid="ignore", over="ignore"):  # of a run that diverged
            for local, x in zip(program.agents, self.vectors, strict=True):
                mean[local.slots] += x[local.shared] / program.holders[local.slots]
            gaps = [
                np.abs(x[local.shared] - mean[local.slots]).max(initial=0.0)
                for local, x in zip(program.agents, self.vectors, strict=True)
            ]
        # numpy's maximum: that of Python may pass over nan.
        return float(np.max([*gaps, self.coupling_residual]))


@dataclass(frozen=True, eq=False)
class Iterate:
    """The iterates after one round.

    Attributes
    ----------
    average, last : Solution
    """

    average: Solution
    last: Solution


def assign(solution: Solution | None, variables: Sequence[cp.Variable]) -> None:
    """Set ``variable.value`` of the problem's variables; None, as in cvxpy, without a solution."""
    for variable in variables:
        # save_value stores without the attribute checks, which rounding can fail.
        variable.save_value(None if solution is None else solution[variable])
