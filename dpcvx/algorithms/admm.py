r"""Consensus ADMM with the exact local objective (Boyd et al. 2011, section 7; Ryu and Kim 3b).

.. math::
    x_p \leftarrow \operatorname{argmin}_{x \in W_p} f_p(x) - \langle \lambda_p, S_p x \rangle
        + \tfrac{\rho_t}{2} \| w - S_p x \|^2, \qquad
    \lambda_p \leftarrow \lambda_p + \rho_t (w - S_p x_p)

The method is private if the data enter the gradient through a constant term only,
:math:`f_p(x; d) = f_p(x; 0) + \langle J d, x \rangle` up to a number. Each round the oracle
releases a noisy gradient, and the method subtracts its public part. The exact solve of the public
function plus the noisy linear term is post-processing.

Squares of records, :math:`f_p(x; d) = f_p(x; 0) + \langle c, x \rangle + \tfrac12 x' H x`, are
taken with ``release="once"``: c and H, which are public then, are asked for in round 1 and kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ..guard import frameless
from ..model.quadratic import curved
from ..sensitivity.queries.data import DataCurvature
from ..sensitivity.queries.gradients import Gradient
from ..solvers.conic import ConicProgram
from .base import Iterates, Local, Oracle, Output, Requirements
from .consensus import Broadcast, ConsensusMethod, LocalCopy
from .data_terms import data_terms, with_curvature
from .penalties import PenaltyRule, penalty_said
from .program import Program

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ADMMState(Iterates):
    """An agent's points and its multipliers."""

    lam: Array  # shape (s,)
    bent: bool  # whether the data enter the objective's curvature
    kept: ReleasedObjective | None = None  # what they add, from round 1 on, if so


@dataclass(frozen=True, eq=False)
class ReleasedObjective:
    """An objective whose data have left."""

    exact: ConicProgram  # with the curvature that the data add
    slope: Array  # shape (n,); the linear term that they add


@frameless
@dataclass(frozen=True)
class ADMM(ConsensusMethod[ADMMState]):
    """Consensus ADMM with exact local minimization.

    Parameters
    ----------
    penalty : float, penalty rule or None
        The paper's rho, the weight of disagreement: a number, `dp.penalties.Growing` or
        `dp.penalties.ResidualBalancing`. None takes the geometric mean of a typical and the largest
        curvature of the objectives, as far as these are public, and from there, unless steps are
        noisy, residual balancing.
    returned : {"average", "last", "tail", "weighted", None}
        Which iterate the result reports first; see `Algorithm`.

    Raises
    ------
    ModelError
        If the penalty is not positive, or `returned` is unknown.
    """

    penalty: float | PenaltyRule | None = None
    returned: Output | None = None

    def __post_init__(self) -> None:
        self.check()

    @property
    def requirements(self) -> Requirements:
        """Convex objectives, compiled; one release per agent and round."""
        return Requirements(convex=True, exact=True, releases=1, queries=(Gradient, DataCurvature))

    def noise_floor(
        self, program: Program, noise: Sequence[float], t: int, penalty: float
    ) -> float | None:
        """Return the residual that noise in exact steps sustains, at zero objective curvature."""
        return self.floor(program, noise, t, penalty, penalty)

    def start_agent(self, local: Local) -> ADMMState:
        """Return the state with x at the public start and zero multipliers."""
        x = local.program.start
        lam = np.zeros(local.program.shared.size)
        return ADMMState(x, np.zeros_like(x), lam, bool(curved(local.program.form)))

    def act(
        self, local: Local, state: ADMMState, t: int, k: int, message: Broadcast, oracle: Oracle
    ) -> tuple[ADMMState, LocalCopy]:
        """Make the exact local step at a noisy linear term, then update the multipliers."""
        assert local.exact is not None
        w, rho, S = message.w, message.rho, local.program.shared
        exact = local.exact
        if state.bent and state.kept is None:
            state = replace(state, kept=_known(local, state.x, oracle))
        if state.kept is not None:
            exact, linear = state.kept.exact, state.kept.slope.copy()
        else:
            linear = oracle.release(Gradient(state.x)) - local.public_gradient(state.x)
        D = np.zeros(state.x.size)
        D[S] = rho
        linear[S] -= state.lam + rho * w
        answer = exact.solve(D, linear, state.x)
        state = state.after(answer.x, answer.outcome)
        z = state.x[S]
        lam = state.lam + rho * (w - z)
        return replace(state, lam=lam), LocalCopy(z, lam)

    def __str__(self) -> str:
        return f"ADMM with exact local steps, {penalty_said(self.penalty)}"


def _known(local: Local, x: Array, oracle: Oracle) -> ReleasedObjective:
    assert local.program.exact is not None
    found = data_terms(local, x, oracle)
    return ReleasedObjective(
        ConicProgram(with_curvature(local.program.exact, found.curvature)), found.slope
    )
