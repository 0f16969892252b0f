"""A compiled problem with what proposals follow from: responses to noise, and public optima."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ..algorithms.program import AsWritten
from ..model.declaration import Declaration
from ..plan.agent_plan import Compiled, compiled
from .response import Response
from .responses import responses
from .stakes import AtStandIns, at_stand_ins


@dataclass(frozen=True, eq=False)
class Study(Compiled):
    """A compiled problem, and how it responds to noise."""

    @staticmethod
    def of(known: Compiled) -> Study:
        """Return a study of a problem that was compiled before."""
        if isinstance(known, Study):
            return known
        return Study(known.problem, known.program, known.sensitivities, known.parameters)

    @cached_property
    def responses(self) -> tuple[Response, ...]:
        """How the problem gives way to noise from each agent."""
        return responses(self.program, self.at_stand_ins)

    @cached_property
    def at_stand_ins(self) -> AtStandIns:
        """What constraints cost at the optimum for public stand-ins."""
        return at_stand_ins(self.problem, self.program, self.sensitivities)


def study(problem: Declaration, as_written: AsWritten | None = None) -> Study:
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
    return Study.of(compiled(problem, as_written))
