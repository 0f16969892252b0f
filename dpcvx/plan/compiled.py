"""A problem as plain arrays with its sensitivities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import cvxpy as cp

from ..algorithms.program import AsWritten, Program, compile_problem, once_per_kind
from ..model.declaration import Declaration, Values
from ..model.quadratic import is_quadratic_given_data
from ..sensitivity.certificate import Sensitivity
from ..sensitivity.release_once import releasable
from .agent_plan import sensitivities


@dataclass(frozen=True, eq=False)
class Compiled:
    """A problem as plain arrays, without compiled objectives, and its sensitivities."""

    problem: Declaration
    program: Program
    # By agent; None where nothing is private, or nothing had to be derived.
    sensitivities: dict[str, Sensitivity | None]
    # Public parameters with the values that they were compiled with.
    parameters: tuple[tuple[cp.Parameter, Values], ...] = ()

    @property
    def constant(self) -> bool:
        """Whether all gradients are affine in the data."""
        return all(s is None or s.constant for s in self.sensitivities.values())

    @property
    def linear(self) -> bool:
        """Whether they are, with Jacobians that may depend on the point."""
        return all(s is None or s.linear for s in self.sensitivities.values())

    @property
    def solvable(self) -> bool:
        """Whether the objectives are quadratic in the private part, for any data."""
        pairs = ((local.form, self.sensitivities[local.name]) for local in self.program.agents)
        return all(
            s is None or s.constant or (not s.clips and is_quadratic_given_data(form))
            for form, s in pairs
        )

    @property
    def releasable(self) -> bool:
        """Whether all data can leave once."""
        return all(s is None or releasable(s) for s in self.sensitivities.values())

    def clipped(self, clips: Sequence[float | None]) -> Self:
        """Return the problem with contributions of records clipped to these norms.

        Parameters
        ----------
        clips : sequence of (float or None)
            In the order of the agents.

        Raises
        ------
        PrivacyError
            If no sensitivity can be derived then.
        """
        agents = [
            local if local.clip == clip else replace(local, clip=clip)
            for local, clip in zip(self.program.agents, clips, strict=True)
        ]
        changed = {a.name for a, b in zip(agents, self.program.agents, strict=True) if a is not b}
        if not changed:
            return self
        program = replace(self.program, agents=tuple(agents))
        anew = [local for local in agents if local.name in changed and local.form.private]
        derived = once_per_kind(anew, lambda local: local.sensitivity())
        pairs = zip(anew, derived, strict=True)
        found = {local.name: sensitivity.renamed(local.form) for local, sensitivity in pairs}
        return replace(self, program=program, sensitivities={**self.sensitivities, **found})


def compiled(problem: Declaration, as_written: AsWritten | None = None) -> Compiled:
    """Compile a problem and derive its sensitivities.

    Parameters
    ----------
    problem : Declaration
    as_written : AsWritten, optional
        For a server that solves the model as it is written.

    Raises
    ------
    ModelError
        If the problem cannot be compiled.
    PrivacyError
        If no sensitivity can be derived.
    """
    parameters = problem.parameter_values()
    program = compile_problem(problem, as_written=as_written)
    return Compiled(problem, program, sensitivities(program), parameters)
