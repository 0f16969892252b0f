"""What takes local steps, named behind the digest of a plan's fingerprint where it matters.

Answers of two kernels differ in their last digits. A run that is gone on with, or replayed, takes
the steps that it began with, or is refused where these are not installed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TypeVar

from ..solvers.newton import require_kernel
from .fingerprint import named
from .terms import Terms

P = TypeVar("P", bound=Terms)


def computed_by(plan: P, fingerprints: Iterable[str]) -> P:
    """The plan with the local solver of a run of it; as it is if its own is among them, or none is.

    Parameters
    ----------
    plan : Terms
    fingerprints : iterable of str
        Of recorded runs; the last one counts.

    Raises
    ------
    SolverError
        If what took the steps of the run is not installed.
    """
    digest = plan.fingerprint.partition("-")[0]
    known = [one for one in fingerprints if one.partition("-")[0] == digest]
    if not known or plan.fingerprint in known:
        return plan
    kernel = known[-1].partition("-")[2]
    require_kernel(kernel)

    def taking(local):
        return replace(local, kernel=kernel) if local.kernel else local

    program = replace(plan.program, agents=tuple(taking(one) for one in plan.program.agents))
    agents = tuple(
        replace(one, program=local) for one, local in zip(plan.agents, program.agents, strict=True)
    )
    return replace(plan, program=program, agents=agents, fingerprint=named(digest, kernel))
