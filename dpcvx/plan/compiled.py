"""A problem as plain arrays with its sensitivities, which choices follow from."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import cvxpy as cp

from ..algorithms.program import Program, compile_problem
from ..model.declaration import Declaration, Values
from ..model.quadratic import is_quadratic_given_data
from ..sensitivity.certificate import Sensitivity
from ..sensitivity.release_once import releasable
from ..sensitivity.response import Response
from .agent_terms import sensitivities
from .responses import responses
from .stakes import AtStandIns, at_stand_ins


@dataclass(frozen=True, eq=False)
class Compiled:
    """A problem as plain arrays, without compiled objectives, and its sensitivities.

    Attributes
    ----------
    problem : Declaration
    program : Program
    sensitivities : dict of str to (Sensitivity or None)
        By agent; None where nothing is private, or nothing had to be derived.
    """

    problem: Declaration
    program: Program
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

    @cached_property
    def responses(self) -> tuple[Response, ...]:
        """How the problem gives way to noise from each agent."""
        return responses(self.program, self.at_stand_ins)

    @cached_property
    def at_stand_ins(self) -> AtStandIns:
        """What constraints cost at the optimum for public stand-ins."""
        return at_stand_ins(self.problem, self.program, self.sensitivities)


def compiled(problem: Declaration) -> Compiled:
    """Compile a problem and derive its sensitivities.

    Raises
    ------
    ModelError
        If the problem cannot be compiled.
    PrivacyError
        If no sensitivity can be derived.
    """
    parameters, program = problem.parameter_values(), compile_problem(problem)
    return Compiled(problem, program, sensitivities(program), parameters)
