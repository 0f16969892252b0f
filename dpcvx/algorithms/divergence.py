"""Steps that are so long that a run must grow without bound, where that is proved."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from ..model.matrices import spectral_norm
from ..model.quadratic import quadratic
from .facts import StepRule
from .program import Program
from .steps import Constant

# The largest curvature is computed, and a step next to the limit may be either.
_SURE = 1 + 1e-6


def too_long(program: Program, step: float | StepRule | None) -> str:
    r"""Why gradient descent at the mean of all agents must diverge; empty if it is not known to.

    Without constraints, and with nothing but quadratics whose second derivatives H_i are public, a
    round takes the mean of the agents' points to :math:`(I - \eta \bar H) \bar x` plus what does
    not depend on it, with :math:`\bar H` the mean of the H_i. Along an eigenvector of a curvature
    above :math:`2 / \eta` the distance from the optimum grows in every round.

    Parameters
    ----------
    program : Program
    step : float, step rule or None
        Only constant steps are judged.
    """
    if not isinstance(step, Constant) or step.step is None:
        return ""
    total = sp.csr_array((program.size, program.size))
    for local in program.agents:
        found = quadratic(local.form)
        bound = local.projector().kinds.keys() - {"free"}
        terms = found.rest or found.wide or local.rest is not None
        if terms or bound or local.shared.size < local.n:
            return ""
        place = sp.csr_array(
            (np.ones(local.n), (local.slots, local.shared)), shape=(program.size, local.n)
        )
        total = total + place @ found.formed @ place.T / len(program.agents)
    largest = spectral_norm(sp.csr_array(total))
    if not step.step * largest > 2 * _SURE:
        return ""
    return (
        f"step = {step.step:.6g} is too long: without constraints, steps above {2 / largest:.6g}, "
        "2 over the largest curvature of the mean objective, lead farther from the optimum in "
        f"every round. Write step={1 / largest:.3g}, or leave step= out."
    )
