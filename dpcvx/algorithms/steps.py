"""Step-size rules of linearized methods, with the weights of the averaged iterate.

Most rules are equations of Ryu and Kim, (25a), (26a) and (27a). Their convergence theorems hold for
these averages.

`too_long` finds constant steps that provably make a run diverge.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from numbers import Real

import numpy as np
import scipy.sparse as sp

from .._arguments import LEAST_DIVISOR, POSITIVE, check_fields, finite, number, optional, show
from ..errors import ModelError
from ..guard import frameless
from ..model.curvature import smoothness, strong_convexity
from ..model.matrices import spectral_norm
from ..model.quadratic import quadratic
from .facts import StepRule
from .penalties import STEP_BUDGET
from .program import Program

__all__ = ["Constant", "Geometric", "Smooth", "Sqrt", "StronglyConvex"]


def __dir__() -> list[str]:
    return __all__


class _Uniform:
    """Base class of step-size rules that weight all iterates equally in the average."""

    averages_new = True

    def weight(self, t: int) -> float:
        """Return 1, because all rounds have equal weight."""
        return 1.0


@frameless
@dataclass(frozen=True)
class Constant(_Uniform):
    """``eta_t = eta``, the same step size in every round.

    Parameters
    ----------
    step : float, optional
        The paper's eta; 1/L with the derived smoothness constant L if omitted.
    """

    step: float | None = None

    def __post_init__(self) -> None:
        check_fields(self, "dp.steps.Constant", step=optional(POSITIVE))

    def resolved(self, program: Program, release_epsilon: float) -> Constant:
        """Return the rule with 1/L in place of an omitted step size."""
        if self.step is not None:
            return self
        return Constant(1.0 / _largest_smoothness(program, "dp.steps.Constant(step)"))

    def eta(self, t: int) -> float:
        """Return the constant step size."""
        assert self.step is not None
        return self.step

    def __str__(self) -> str:
        return "step = 1/L" if self.step is None else f"step = {self.step:.3g}"


_RATIO = number(lambda v: LEAST_DIVISOR <= v < 1, "between 0 and 1").because(
    "each step size is that fraction of the one before. For steps that do not fall write "
    "dp.steps.Constant"
)


@frameless
@dataclass(frozen=True)
class Geometric(_Uniform):
    """``eta_t = first * ratio^(t - 1)``, a rule whose step sizes have a bounded sum.

    Parameters
    ----------
    ratio : float
        Ratio of consecutive step sizes, below 1.
    first : float, optional
        Step size of round 1; 1/L with the derived smoothness constant L if omitted.
    """

    ratio: float
    first: float | None = None

    def __post_init__(self) -> None:
        check_fields(self, "dp.steps.Geometric", ratio=_RATIO, first=optional(POSITIVE))

    def resolved(self, program: Program, release_epsilon: float) -> Geometric:
        """Return the rule with 1/L in place of an omitted first step size."""
        if self.first is not None:
            return self
        L = _largest_smoothness(program, "dp.steps.Geometric(ratio, first)")
        return Geometric(self.ratio, 1.0 / L)

    def eta(self, t: int) -> float:
        """Return the step size eta_t of round t."""
        assert self.first is not None
        return self.first * self.ratio ** (t - 1)

    def __str__(self) -> str:
        first = "1/L" if self.first is None else f"{self.first:.3g}"
        return f"step = {first} * {self.ratio:.3g}^(t - 1)"


@frameless
@dataclass(frozen=True)
class Smooth(_Uniform):
    """``eta_t = 1 / (L + sqrt(t) / c)`` for L-smooth objectives (25a).

    Parameters
    ----------
    L : float, optional
        Smoothness constant; derived from the model if omitted.
    c : float, optional
        The paper's epsilon, the budget per release; the plan's epsilon per release if omitted.
    """

    L: float | None = None
    c: float | None = None

    def __post_init__(self) -> None:
        check_fields(self, "dp.steps.Smooth", L=optional(POSITIVE), c=optional(STEP_BUDGET))

    def resolved(self, program: Program, release_epsilon: float) -> Smooth:
        """Return the rule with numbers for an omitted smoothness constant L and budget c."""
        L = _largest_smoothness(program, "dp.steps.Smooth(L=...)") if self.L is None else self.L
        return Smooth(L, release_epsilon if self.c is None else self.c)

    def eta(self, t: int) -> float:
        """Return the step size eta_t of round t."""
        assert self.L is not None and self.c is not None
        return 1.0 / (self.L + math.sqrt(t) / self.c)

    def __str__(self) -> str:
        values = [f"{n} = {v:.3g}" for n, v in (("L", self.L), ("c", self.c)) if v]
        return ", ".join(["step = 1 / (L + sqrt(t) / c)", *values])


@frameless
@dataclass(frozen=True)
class Sqrt(_Uniform):
    """``eta_t = first / sqrt(t)`` for objectives that need not be smooth (26a).

    Parameters
    ----------
    first : float
        Step size of round 1; the paper's is 1.
    """

    first: float = 1.0

    averages_new = False

    def __post_init__(self) -> None:
        check_fields(self, "dp.steps.Sqrt", first=POSITIVE)

    def resolved(self, program: Program, release_epsilon: float) -> Sqrt:
        """Return the rule itself, because all its constants are numbers."""
        return self

    def eta(self, t: int) -> float:
        """Return the step size eta_t of round t."""
        return self.first / math.sqrt(t)

    def __str__(self) -> str:
        return f"step = {self.first:.3g} / sqrt(t)"


@frameless
@dataclass(frozen=True)
class StronglyConvex:
    """``eta_t = 2 / (alpha (t + 2))`` for alpha-strongly convex objectives (27a).

    Parameters
    ----------
    alpha : float, optional
        Modulus of strong convexity; derived from the quadratic part if omitted.
    """

    alpha: float | None = None

    averages_new = False

    def __post_init__(self) -> None:
        check_fields(self, "dp.steps.StronglyConvex", alpha=optional(POSITIVE))

    def resolved(self, program: Program, release_epsilon: float) -> StronglyConvex:
        """Return the rule with alpha, the smallest modulus of all agents' objectives."""
        if self.alpha is not None:
            return self
        moduli = {local.name: strong_convexity(local.form) for local in program.agents}
        weakest = min(moduli, key=lambda name: moduli[name])
        if moduli[weakest] == 0:
            raise ModelError(
                f"The quadratic part of the objective of agent '{weakest}' is not strongly convex, "
                "so dp.steps.StronglyConvex() has no modulus. Write "
                "dp.steps.StronglyConvex(alpha=...) if you know one, or step=dp.steps.Smooth()."
            )
        return replace(self, alpha=moduli[weakest])

    def eta(self, t: int) -> float:
        """Return the step size eta_t of round t."""
        assert self.alpha is not None
        return 2.0 / (self.alpha * (t + 2))

    def weight(self, t: int) -> float:
        """Return the weight t of round t; over T rounds, normalized to ``2 t / (T (T + 1))``."""
        return float(t)

    def __str__(self) -> str:
        value = "" if self.alpha is None else f", alpha = {self.alpha:.3g}"
        return f"step = 2 / (alpha (t + 2)){value}"


RULES = (Constant, Geometric, Smooth, Sqrt, StronglyConvex)


def as_step(step: float | StepRule | None) -> StepRule | None:
    """Return the argument ``step=`` as a step-size rule; a number becomes a constant rule.

    Raises
    ------
    ModelError
        If the argument is neither a number nor a rule.
    """
    if finite(step) and isinstance(step, Real):
        return Constant(float(step))
    if step is None or isinstance(step, RULES):
        return step
    raise ModelError(
        f"step={show(step)} is neither a number nor a step-size rule. Write for example step=0.1, "
        "or "
        "step=dp.steps.Sqrt()."
    )


def step_said(step: float | StepRule | None) -> str:
    """Return words for the step-size rule, or for its absence, in the description of a method."""
    return "a step that the plan chooses" if step is None else str(as_step(step))


def smooth_constant(program: Program) -> float | None:
    """Return the largest smoothness constant of the agents; None if one cannot be derived."""
    constants = [smoothness(local.form) for local in program.agents]
    finite = [c for c in constants if c is not None]
    return max(finite) if len(finite) == len(constants) else None


def required_smoothness(program: Program, remedy: str) -> float:
    """Return the largest smoothness constant over the agents.

    Raises
    ------
    ModelError
        If a constant cannot be derived; `remedy` ends the message.
    """
    L = smooth_constant(program)
    if L is None:
        unknown = next(a.name for a in program.agents if smoothness(a.form) is None)
        raise ModelError(
            f"No smoothness constant can be derived for the objective of agent '{unknown}': it is "
            f"nonsmooth, or its curvature depends on private data. {remedy}"
        )
    return L


def one_over(program: Program, claimed: float | None, remedy: str) -> float:
    """Return 1 / L for the largest smoothness constant L; 1 if L is about 0.

    Agents without a derived constant have the constant `claimed`.

    Raises
    ------
    ModelError
        If a constant is neither derived nor claimed; `remedy` ends the message.
    """
    if claimed is None:
        L = required_smoothness(program, remedy)
    else:
        L = max(smoothness(local.form) or claimed for local in program.agents)
    return 1 / L if L > LEAST_DIVISOR else 1.0


def _largest_smoothness(program: Program, remedy: str) -> float:
    L = required_smoothness(
        program, f"Write {remedy} if you know one, or step=dp.steps.Sqrt(), which needs none."
    )
    # A linear objective has L = 0: every step size is admissible.
    return L if L > 0 else 1.0


@dataclass(frozen=True)
class Curvatures:
    """Bounds on the second derivatives of the agents' objectives, by agent."""

    moduli: tuple[float, ...]  # moduli of strong convexity, above 0
    constants: tuple[float, ...]  # smoothness constants


def curvatures(program: Program) -> Curvatures | str:
    """Return curvature bounds that hold for all admissible data, or why no linear rate is known."""
    moduli = tuple(strong_convexity(a.form) for a in program.agents)
    constants = tuple(L for a in program.agents if (L := smoothness(a.form)) is not None)
    if min(moduli) == 0 or len(constants) < len(moduli):
        return "some objective is not known to be strongly convex and smooth"
    if any(a.constraints.A.shape[0] for a in program.agents):
        return "some agent has constraints"
    return Curvatures(moduli, constants)


# Relative margin beyond the limit: the largest curvature has rounding errors.
_SURE = 1 + 1e-6


def too_long(program: Program, step: float | StepRule | None) -> str:
    r"""Return the reason why gradient descent at the mean must diverge; "" if none is known.

    Without constraints, and if all objectives are quadratics with public second derivatives H_i, a
    round maps the mean :math:`\bar x` of the agents' points to :math:`(I - \eta \bar H) \bar x`
    plus a constant, with :math:`\bar H` the mean of the H_i. Along an eigenvector of
    :math:`\bar H` with an eigenvalue above :math:`2 / \eta`, the distance from the optimum grows
    in every round.

    Parameters
    ----------
    program : Program
    step : float, step rule or None
        Step size; only constant steps are checked.
    """
    if not isinstance(step, Constant) or step.step is None:
        return ""
    total = sp.csr_array((program.size, program.size))
    for local in program.agents:
        parts = quadratic(local.form)
        bound = local.projector().kinds.keys() - {"free"}
        terms = parts.rest or parts.wide or local.rest is not None
        if terms or bound or local.shared.size < local.n:
            return ""
        columns = sp.csr_array(
            (np.ones(local.n), (local.slots, local.shared)), shape=(program.size, local.n)
        )
        total = total + columns @ parts.formed @ columns.T / len(program.agents)
    largest = spectral_norm(sp.csr_array(total))
    if not step.step * largest > 2 * _SURE:
        return ""
    return (
        f"step = {step.step:.6g} is too long. Write step={1 / largest:.3g}, or leave step= out. "
        f"Without constraints, steps above {2 / largest:.6g} move away from the optimum in every "
        "round: that is 2 over the largest curvature of the mean objective."
    )
