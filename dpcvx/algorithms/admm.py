r"""Consensus ADMM with the exact local objective (Boyd et al. 2011, section 7; Ryu and Kim 3b).

.. math::
    x_p \leftarrow \operatorname{argmin}_{x \in W_p} f_p(x) - \langle \lambda_p, S_p x \rangle
        + \tfrac{\rho_t}{2} \| w - S_p x \|^2, \qquad
    \lambda_p \leftarrow \lambda_p + \rho_t (w - S_p x_p)

Private where the data enter the gradient through a constant term only,
:math:`f_p(x; d) = f_p(x; 0) + \langle J d, x \rangle` up to a number: each round the oracle
releases a noisy gradient, from which the public part is subtracted, and the exact solve of the
public function plus the noisy linear term is post-processing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ..guard import frameless
from ..sensitivity.queries import Gradient
from .base import Iterates, Local, Oracle, Requirements
from .consensus import Broadcast, ConsensusMethod, LocalCopy
from .penalties import PenaltyRule, as_penalty

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class AgentState(Iterates):
    """An agent's points and its multipliers."""

    lam: Array


@frameless
@dataclass(frozen=True)
class ADMM(ConsensusMethod[AgentState]):
    """Consensus ADMM with exact local minimisation.

    Parameters
    ----------
    penalty : float or penalty rule
        The paper's rho, the weight of disagreement: a number, `dp.penalties.Growing` or
        `dp.penalties.ResidualBalancing`.
    output : {"average", "last", None}
        Which iterate the result reports first; see `Algorithm`.

    Raises
    ------
    ModelError
        If the penalty is not positive, or `output` is unknown.
    """

    penalty: float | PenaltyRule = 10.0
    output: Literal["average", "last"] | None = None

    def __post_init__(self) -> None:
        self.check()

    @property
    def requirements(self) -> Requirements:
        """Convex objectives, compiled; one release per agent and round."""
        return Requirements(convex=True, exact=True, releases=1, queries=(Gradient,))

    def start_agent(self, local: Local) -> AgentState:
        """x at the public start, zero multipliers."""
        x = local.program.start
        return AgentState(x, np.zeros_like(x), np.zeros(local.program.shared.size))

    def act(
        self, local: Local, state: AgentState, t: int, k: int, message: Broadcast, oracle: Oracle
    ) -> tuple[AgentState, LocalCopy]:
        """The exact local step at a noisy linear term, then the multipliers."""
        assert local.exact is not None
        w, rho, S = message.w, message.rho, local.program.shared
        linear = oracle.release(Gradient(state.x)) - local.public_gradient(state.x)
        D = np.zeros(state.x.size)
        D[S] = rho
        linear[S] -= state.lam + rho * w
        found = local.exact.solve(D, linear, state.x)
        state = state.after(found.x, found.outcome)
        z = state.x[S]
        lam = state.lam + rho * (w - z)
        return replace(state, lam=lam), LocalCopy(z, lam)

    def __str__(self) -> str:
        return f"ADMM with exact local steps, {as_penalty(self.penalty)}"
