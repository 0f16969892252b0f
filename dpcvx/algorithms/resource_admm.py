r"""First-order ADMM for coupled agents (Xiao, Ye and Devadas, equation 13).

For ``minimize sum_i f_i(x_i)`` subject to ``sum_i A_i x_i = c``, x_i in W_i:

.. math::
    r &= \textstyle\sum_j A_j x_j - c, \qquad \lambda \leftarrow \lambda - \zeta r \\
    x_i &\leftarrow P_i\bigl( x_i + \tfrac1D [A_i'(\lambda - \rho_i r) - \nabla f_i(x_i)]
        + \Delta_i \bigr)

which is (13) for :math:`\Gamma_i = D I - A_i' \rho_i A_i`. Every agent draws the diagonal matrix
:math:`\rho_i` anew in every round and keeps it secret. Exact steps (12) set x to the minimizer of
``f_i(x) + D/2 ||x - v||^2`` over W_i, where v is the argument of the projection above without
gradient and noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from .._arguments import DIVISOR, LEAST_DIVISOR, POSITIVE, check_argument, number, optional
from ..errors import ModelError
from ..guard import frameless
from ..model.curvature import strong_convexity
from ..sensitivity.queries.gradients import Step
from ..sensitivity.queries.solutions import Minimizer
from ..solvers.steps import Minimization
from .base import Local, Oracle, Output, Requirements
from .facts import PublicFacts
from .on_networks import EXACT, minimization, numbers, projected_step
from .program import LocalProgram, Program
from .steps import curvatures, required_smoothness
from .summed import SHARING, Heard, Member, SecretSharing, SummedMethod

Array = NDArray[np.float64]

_RANDOMNESS = number(
    lambda v: 0 <= v < 2,
    "from 0, where penalties stay fixed, to below 2",
)


@frameless
@dataclass(frozen=True)
class ResourceADMM(SummedMethod):
    """ADMM for agents with ``coupling=`` and without shared variables.

    Parameters
    ----------
    penalty : float, optional
        The paper's rho, the mean penalty on the violation of the coupling. If omitted, it makes up
        half of D, or all of D for exact steps without noise if `step` is omitted too.
    dual_step : float, optional
        The paper's zeta, the step of the multipliers; the penalty if omitted.
    step : float, optional
        1/D with the paper's D; if omitted, D is the smoothness constant plus
        ``penalty (1 + randomness / 2) N ||A||^2``, or twice the smoothness constant if the penalty
        is omitted as well, and larger under noise, see `dpcvx.defaults.predicted`. Exact steps
        without noise take the geometric mean of a typical curvature and the strong convexity.
    randomness : float
        Width of the interval around `penalty`, relative to `penalty`, from which agents draw
        penalties; 0 for fixed penalties.
    exact : bool
        Whether local steps minimize, to 1e-12, instead of linearizing the objective. Objectives
        then need a smoothness constant.
    sharing : SecretSharing, optional
        Form the sums by secure aggregation, which hides the summands.
    returned : {"average", "last", "tail", "weighted", None}
        Returned iterate; see `Algorithm`.

    Raises
    ------
    ModelError
        If a parameter is outside its range.
    """

    penalty: float | None = None
    dual_step: float | None = None
    step: float | None = None
    randomness: float = 0.2
    exact: bool | Minimization = False
    sharing: SecretSharing | None = None
    returned: Output | None = None

    def __post_init__(self) -> None:
        self.check_fields(
            sharing=SHARING,
            exact=EXACT,
            penalty=optional(POSITIVE),
            dual_step=optional(POSITIVE),
            step=optional(DIVISOR),
            randomness=_RANDOMNESS,
        )

    @property
    def requirements(self) -> Requirements:
        """Return the method's needs: convexity, a coupling, one release per agent and round."""
        query = Minimizer if self.exact else Step
        return Requirements(
            convex=True,
            exact=False,
            releases=1,
            queries=(query,),
            coupled=True,
            proximal=not self.exact,
        )

    def propose(self, facts: PublicFacts) -> ResourceADMM:
        """Return the method with omitted step and penalties chosen; refuse shared variables."""
        program = facts.program
        if program.size:
            holders = [a.name for a in program.agents if a.shared.size]
            raise ModelError(
                f"Agents {', '.join(repr(name) for name in holders[:3])} share a variable. Give "
                "each agent its own variable, and tie them by coupling=[x == y]. dp.ResourceADMM "
                "takes agents with variables of their own."
            )
        self.sums(program)  # raises here, before any data are read, if the sums are impossible
        step, penalty, output = self.step, self.penalty, self.returned
        # `weight` is the largest curvature that a unit of the penalty adds.
        norm = max(float(np.linalg.norm(A, 2)) for A in matrices(program))
        weight = (1 + self.randomness / 2) * len(program.agents) * norm**2
        if step is None:
            L = required_smoothness(program, "Write dp.ResourceADMM(step=...).")
            if self.exact and not facts.noisy:
                D = max(_balanced(program, facts.scale), (penalty or 0.0) * weight)
                penalty = D / weight if penalty is None else penalty
            else:
                D = 2 * (L or facts.scale) if penalty is None else L + penalty * weight
            largest = 1 / D if D > LEAST_DIVISOR else 1.0
            step, output = facts.constant_step(largest, output)
            check_argument("dp.ResourceADMM", "step", step, optional(DIVISOR))
        if penalty is None:
            penalty = 1 / (2 * step * weight)
        zeta = penalty if self.dual_step is None else self.dual_step
        exact = minimization(program, 1 / step, "dp.ResourceADMM") if self.exact else False
        return replace(
            self, penalty=penalty, step=step, dual_step=zeta, exact=exact, returned=output
        )

    def violated(self, program: Program) -> list[str]:
        """Return the violated parts of condition (48), or (43) for exact steps, as text.

        The condition is sufficient for a linear rate without noise; runs converge under much weaker
        conditions. In the paper's proof of (48), M is a smoothness constant L in one place and its
        square in another. The proof needs D > N sigma^2 / alpha + L, because a linearized step
        loses L/2 ||x+ - x||^2 of D/2 ||x+ - x||^2. With the square, some parameters for L < 1
        satisfy the condition and diverge.

        Parameters
        ----------
        program : Program
            Program of a plan whose algorithm has a number for every parameter.
        """
        assert self.step is not None and self.dual_step is not None and self.penalty is not None
        bounds, N = curvatures(program), len(program.agents)
        if isinstance(bounds, str):
            return [bounds]
        most, off = self.penalty * (1 + self.randomness / 2), self.penalty * self.randomness / 2
        squares = [float(np.linalg.norm(A, 2)) ** 2 for A in matrices(program)]
        # A linearized step uses up half of the strong convexity, and the part L of D.
        share = 2 if self.exact else 1
        alpha = min(
            share * m / ((N * most**2 + off**2) * s)
            for m, s in zip(bounds.moduli, squares, strict=True)
            if s > 0
        )
        need = max(
            max(most * s, N * s / alpha + (0.0 if self.exact else L))
            for s, L in zip(squares, bounds.constants, strict=True)
        )
        problems = []
        if not 1 / self.step > need:
            problems.append(f"step = {self.step:.6g} is not below 1/D = {1 / need:.6g}")
        if not self.penalty > N / (2 * alpha):
            problems.append(
                f"penalty = {self.penalty:.6g} is not above N / (2 alpha) = {N / (2 * alpha):.6g}"
            )
        if not self.dual_step < 2 * self.penalty - N / alpha:
            problems.append(
                f"dual_step = {self.dual_step:.6g} is not below 2 penalty - N / alpha = "
                f"{2 * self.penalty - N / alpha:.6g}"
            )
        return problems

    def coupling(self, program: Program) -> str:
        """Return a line for ``print(plan)`` with the number of coupling equalities."""
        assert program.coupling is not None
        size = program.coupling.right.size
        return f"{size} {'equality' if size == 1 else 'equalities'} over all agents"

    def rate(self, program: Program) -> str:
        """Return a line on whether condition (48) or (43) for a linear rate holds."""
        condition = f"{'(43)' if self.exact else '(48)'} of Xiao, Ye and Devadas"
        broken = self.violated(program)
        if broken:
            return f"no linear rate is known, since {condition} fails: {'; '.join(broken)}"
        return f"{condition} promises a linear rate without noise"

    def target(self, program: Program) -> Array:
        """Return c, the right side of the coupling."""
        assert program.coupling is not None
        return program.coupling.right

    def sent(self, local: LocalProgram, x: Array) -> Array:
        """Return the agent's summand ``A_i x_i`` in the coupling ``sum_i A_i x_i = c``."""
        return np.asarray(_columns(local) @ x)

    def advance(self, local: Local, state: Member, t: int, heard: Heard, oracle: Oracle) -> Member:
        """Update the multipliers from the coupling's last violation, and release the next x."""
        assert self.step is not None and self.dual_step is not None and self.penalty is not None
        A, r, lam = _columns(local.program), heard.residual, state.lam
        if t > 1:
            lam = lam - self.dual_step * r
        D = 1 / self.step
        rho = self.penalty * (1 + self.randomness * (oracle.uniform(r.size) - 0.5))
        center = state.x + A.T @ (lam - rho * r) / D
        state = replace(state, lam=lam)
        query = Step(state.x, center, self.step)
        if isinstance(self.exact, Minimization):
            query = Minimizer(center, self.exact)
        return projected_step(local, state, query, oracle)

    def __str__(self) -> str:
        how = ", exact steps" if self.exact else ""
        how += "" if self.sharing is None else ", sums by secret sharing"
        return f"ADMM of coupled agents{numbers(self, 'penalty', 'dual_step', 'step')}{how}"


def _balanced(program: Program, scale: float) -> float:
    """Return D for exact steps: the geometric mean of `scale` and the mean strong convexity.

    `scale` is a typical curvature; it is returned if no objective is strongly convex.
    """
    moduli = [strong_convexity(local.form) for local in program.agents]
    return math.sqrt(scale * math.fsum(moduli) / len(moduli)) or scale


def matrices(program: Program) -> list[Array]:
    """Return every agent's matrix A_i in the coupling ``sum_i A_i x_i = c``."""
    return [_columns(local).toarray() for local in program.agents]


def _columns(local: LocalProgram) -> sp.csr_array:
    assert local.coupling is not None
    return local.coupling
