r"""The convergence theorems of Ryu and Kim, evaluated for a plan before any data are read.

All three bound the expectation over the noise of

.. math:: F(z^{(T)}) - F(z^*) + \gamma \, \| A w^{(T)} - z^{(T)} \|

at the averaged iterate after T rounds, for any :math:`\gamma \ge 0` (their assumption
:math:`\gamma \ge 2 \|\lambda^*\|` is needed only to conclude that both parts vanish). With
:math:`\|\cdot\|` over all agents together,

.. math::
    \frac{N \bar\epsilon + D^2 / (2 E \bar\epsilon)}{\sqrt T}
        + \frac{R^2 \rho_T + D^2 L / E + \gamma^2 / \rho_1}{2 T} && (25b) \\
    \frac{N + G^2 + D^2 / (2 E)}{\sqrt T}
        + \frac{R^2 \rho_T + \gamma^2 / \rho_1 + 2 \gamma R}{2 T} && (26b) \\
    \frac{2 \gamma R + R^2 \rho_T + 4 \gamma^2 / \rho_1 + \alpha D^2 / (2 E)
        + 2 (N + G^2) / \alpha}{T + 1} && (27b)

where D is the diameter of the product of the agents' sets, R the diameter in their shared
components, N the expected squared norm of the noise of one step, and G bounds the norm of the
gradient. The paper writes the largest diameter of a single agent, :math:`U_2`, in place of D and R.
But its proof sums over agents; `claimed_by_paper` shows how far off these values can be.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

import dpcvx as dp
from dpcvx._arguments import finite, positive_finite, show
from dpcvx.algorithms.penalties import as_penalty
from dpcvx.algorithms.steps import smooth_constant
from dpcvx.model.curvature import strong_convexity
from dpcvx.solvers.projector import Extent, Projector

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ConvergenceBound:
    """Upper bounds of the expected gap at the averaged iterate, by number of rounds.

    Attributes
    ----------
    equation : str
        Number of Ryu and Kim's equation.
    rounds : ndarray of int, shape (T,)
        Numbers of rounds.
    values : ndarray, shape (T,)
        Bounds, in the unit of the objective.
    claimed_by_paper : ndarray, shape (T,)
        Values with the paper's U_2, the largest diameter of one agent's set; in general no bounds.
    constants : mapping
        Constants in the bounds, by their names in the module's formulas.
    asserted : tuple of str
        Names of user-supplied constants: the bounds hold only if these are right.
    """

    equation: str
    rounds: NDArray[np.int64]
    values: Array = field(repr=False)
    claimed_by_paper: Array = field(repr=False)
    constants: Mapping[str, float]
    asserted: tuple[str, ...] = ()

    def __str__(self) -> str:
        facts = ", ".join(f"{name} = {value:.4g}" for name, value in self.constants.items())
        return (
            f"({self.equation}): expected gap at most {self.values[-1]:.6g} after "
            f"{self.rounds[-1]} rounds ({facts})"
            + (f"; asserted: {', '.join(self.asserted)}" if self.asserted else "")
        )


def convergence_bound(
    plan: dp.Plan, *, gamma: float = 0.0, gradient_norm: float | Mapping[str, float] | None = None
) -> ConvergenceBound:
    """Return Ryu and Kim's bound (25b), (26b) or (27b), by the plan's rule of step sizes.

    The bound follows from public facts; no data are read.

    Parameters
    ----------
    plan : dp.Plan
    gamma : float
        Weight of the consensus residual in the bounded quantity; 0 for the objective alone. (27b)
        needs a positive weight that is at least as large as the multipliers.
    gradient_norm : float or mapping of agent to float, optional
        Bound for (26b) and (27b) on each agent's gradient norm over its set and over all
        admissible data.

    Raises
    ------
    dp.ModelError
        If the theorem does not cover the plan, or one of its constants is not known.
    """
    method = plan.algorithm
    if not isinstance(method, dp.LinearizedADMM) or method.perturb != "objective":
        raise dp.ModelError(
            "The convergence theorems are about dp.LinearizedADMM with noise in the gradient; this "
            f"plan runs {method}."
        )
    if plan.published:
        raise dp.ModelError(
            "release='once' replaces the objective by a noisy one, and the theorems bound the gap "
            "of the objective that is minimized. Use release='each_step'."
        )
    step = method.step
    if not isinstance(step, (dp.steps.Smooth, dp.steps.Sqrt, dp.steps.StronglyConvex)):
        raise dp.ModelError(
            f"There is no convergence theorem for the step size '{step}'. The paper's are about "
            "dp.steps.Smooth (25a), dp.steps.Sqrt (26a) and dp.steps.StronglyConvex (27a)."
        )
    if not (finite(gamma) and 0 <= float(gamma) <= 1e150):  # it is squared
        raise dp.ModelError(
            f"gamma={show(gamma)} must be a number of at least 0 and at most 1e150."
        )
    T = np.arange(1, plan.rounds + 1)
    E = method.local_updates
    rho = _penalties(method, plan.rounds)
    agents = range(len(plan.program.agents))
    diameters = np.array([_diameters(plan, k) for k in agents])
    N = math.fsum(_noise(plan, k) for k in agents)
    D, R = np.sqrt((diameters**2).sum(axis=0))
    known = {"D": D, "R": R, "N": N, "gamma": gamma, "rho_1": rho[0], "rho_T": rho[-1]}
    if isinstance(step, dp.steps.Smooth):
        assert step.L is not None and step.c is not None
        L, c = step.L, step.c
        derived = smooth_constant(plan.program)
        if derived is not None and derived * (1 - 1e-9) > L:
            raise dp.ModelError(
                f"The step size was given L = {L:g}, but the objectives have smoothness constants "
                f"up to {derived:g}, so (25b) says nothing. Leave out L=, or write a larger L=."
            )
        word = () if derived is not None else ("L",)
        noisy = 0.0 if N == 0 else N * c

        def smooth(D: float, R: float) -> Array:
            first = (noisy + D**2 / (2 * E * c)) / np.sqrt(T)
            return first + (R**2 * rho + D**2 * L / E + gamma**2 / rho[0]) / (2 * T)

        return _both("25b", T, smooth, diameters, {**known, "L": L, "c": c}, word)
    G = math.hypot(*_gradient_norms(plan, gradient_norm))
    constants = {**known, "G": G}
    if isinstance(step, dp.steps.Sqrt):

        def nonsmooth(D: float, R: float) -> Array:
            first = (N + G**2 + D**2 / (2 * E)) / np.sqrt(T)
            return first + (R**2 * rho + gamma**2 / rho[0] + 2 * gamma * R) / (2 * T)

        return _both("26b", T, nonsmooth, diameters, constants, ("G",))
    if gamma == 0:
        raise dp.ModelError(
            "(27b) assumes that no multiplier ever exceeds gamma, which only you can assert: write "
            "convergence_bound(plan, gamma=...) with a positive number."
        )
    if (T[1:] * rho[:-1] < (T[1:] - 1) * rho[1:] * (1 - 1e-12)).any():
        raise dp.ModelError(
            "(27b) needs rho_t <= t / (t - 1) rho_(t-1) in every round, which this penalty "
            "violates. Use a constant penalty."
        )
    alpha = step.alpha
    assert alpha is not None

    def strongly(D: float, R: float) -> Array:
        fixed = 2 * gamma * R + 4 * gamma**2 / rho[0] + alpha * D**2 / (2 * E)
        return (fixed + R**2 * rho + 2 * (N + G**2) / alpha) / (T + 1)

    proved = min(strong_convexity(local.form) for local in plan.program.agents)
    word = ("G", "gamma") if alpha <= proved * (1 + 1e-9) else ("G", "gamma", "alpha")
    return _both("27b", T, strongly, diameters, {**constants, "alpha": alpha}, word)


def _both(
    equation: str,
    T: NDArray[np.int64],
    bound: Callable[[float, float], Array],
    diameters: Array,
    constants: Mapping[str, float],
    asserted: tuple[str, ...],
) -> ConvergenceBound:
    """Return the bound with D and R, and the paper's values with the largest diameter U_2."""
    U2 = float(diameters[:, 0].max())
    constants = {name: float(value) for name, value in constants.items()}
    values = bound(constants["D"], constants["R"])
    return ConvergenceBound(equation, T, values, bound(U2, U2), constants, asserted)


def _penalties(method: dp.LinearizedADMM, rounds: int) -> Array:
    """Return the penalties rho_1 to rho_T."""
    assert method.penalty is not None  # the plan has resolved it
    rule = as_penalty(method.penalty)
    if not isinstance(rule, (dp.penalties.Fixed, dp.penalties.Growing)):
        raise dp.ModelError(
            f"The convergence theorems need a penalty that never falls, known in advance; '{rule}' "
            "is not. Use a number or dp.penalties.Growing."
        )
    return np.array([rule.next(t, None, 0.0, 0.0) for t in range(1, rounds + 1)])


def _diameters(plan: dp.Plan, k: int) -> tuple[float, float]:
    """Return bounds of the diameter of an agent's set, in all and in its shared components."""
    local = plan.program.agents[k]
    extent = Projector(local.constraints, local.name).extent()
    D, R = (_diameter(extent, columns) for columns in (np.arange(local.n), local.shared))
    if math.isinf(D):
        open_ends = np.isinf(extent.lower) | np.isinf(extent.upper)
        first = local.layout.labels()[int(np.flatnonzero(open_ends)[0])]
        raise dp.ModelError(
            f"The set of agent '{local.name}' is not bounded, or not known to be, in "
            f"{int(open_ends.sum())} of its {local.n} components, {first} for example, so its "
            "diameter, and with it the bound of Ryu and Kim, is infinite. Give all its variables "
            "bounds."
        )
    return D, R


def _diameter(extent: Extent, columns: NDArray[np.int64]) -> float:
    """Return a bound of the largest distance between two points in these components."""
    squares = (extent.upper - extent.lower) ** 2
    for own, r in extent.balls:
        if np.isin(own, columns).all() and squares[own].sum() > (2 * r) ** 2:
            squares[own] = (2 * r) ** 2 / own.size
    return math.sqrt(float(squares[columns].sum()))


def _noise(plan: dp.Plan, k: int) -> float:
    """Return the expected squared norm of an agent's noise in one local step."""
    sensitivity, noise = plan.agents[k].sensitivity, plan.agents[k].noise
    if sensitivity is None or noise is None:
        return 0.0
    local = plan.program.agents[k]
    bound = sensitivity.bound(noise.mechanism.norm).value
    if bound == 0:
        return 0.0
    if math.isinf(bound):
        raise dp.ModelError(
            f"The noise of agent '{local.name}' is scaled to the point of each step, and not "
            "bounded over its set, so no convergence bound is known in advance."
        )
    grid = noise.grid(bound, local.n)
    variance = (1 if isinstance(noise.mechanism, dp.Gaussian) else 2) * grid.scale**2
    return local.n * (variance + grid.width**2)


def _gradient_norms(plan: dp.Plan, given: float | Mapping[str, float] | None) -> list[float]:
    names = [local.name for local in plan.program.agents]
    found = given if isinstance(given, Mapping) else dict.fromkeys(names, given)
    values = [found.get(name) for name in names]
    if not all(positive_finite(v) or v == 0 for v in values):
        raise dp.ModelError(
            "(26b) and (27b) need a bound of every agent's gradient norm over its set, for all "
            "admissible data, which the model does not state: write "
            "convergence_bound(plan, gradient_norm=...) with a number, or one for each of the "
            f"agents {', '.join(names)}."
        )
    return [float(v) for v in values if v is not None]
