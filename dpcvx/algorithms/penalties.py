"""Penalty rules: rho_t as a constant, a schedule, or a function of released residuals."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from numbers import Real
from typing import Protocol, Self

from .._arguments import (
    DIVISOR,
    POSITIVE,
    Kind,
    check_fields,
    finite,
    integer,
    number,
    optional,
    show,
)
from ..errors import ModelError
from ..guard import frameless

__all__ = ["Fixed", "Growing", "ResidualBalancing", "Spectral"]


def __dir__() -> list[str]:
    return __all__


_PENALTY = POSITIVE.because("it weighs disagreement between agents. Write for example penalty=10")
# Kind of the epsilon per release that rules depend on; it is infinite without noise.
STEP_BUDGET = Kind(
    lambda value: (isinstance(value, float) and value == math.inf) or DIVISOR.fits(value),
    "positive, and large enough to divide by. Leave it out to take the plan's epsilon per release",
)


class PenaltyRule(Protocol):
    """Protocol of a penalty rule: all parties can compute the penalty rho_t before round t."""

    def resolved(self, release_epsilon: float) -> Self:
        """Return the penalty rule with a number for every omitted constant."""
        ...

    def next(self, t: int, rho: float | None, primal: float, dual: float) -> float:
        """Return rho_t from the previous rho (None before round 1) and the previous residuals."""
        ...


@frameless
@dataclass(frozen=True)
class Fixed:
    """``rho_t = rho``, the same penalty in every round.

    Parameters
    ----------
    penalty : float
        The paper's rho, the penalty.
    """

    penalty: float

    def __post_init__(self) -> None:
        check_fields(self, "dp.penalties.Fixed", penalty=_PENALTY)

    def resolved(self, release_epsilon: float) -> Fixed:
        """Return the rule itself, because all its constants are numbers."""
        return self

    def next(self, t: int, rho: float | None, primal: float, dual: float) -> float:
        """Return the constant penalty."""
        return self.penalty

    def __str__(self) -> str:
        return f"penalty = {self.penalty:g}"


@frameless
@dataclass(frozen=True)
class Growing:
    """``rho_t = min(1e9, c1 * 1.2^floor(t / Tc) + c2 / c)``, Ryu and Kim (73).

    Parameters
    ----------
    c1, c2, Tc : float
        Constants of the schedule. The paper uses (2, 5, 10000) for MNIST and (0.005, 0.05, 2000)
        for FEMNIST.
    c : float, optional
        The paper's epsilon, the budget per release; the plan's epsilon per release if omitted.
    """

    c1: float
    c2: float
    Tc: int
    c: float | None = None

    def __post_init__(self) -> None:
        check_fields(
            self,
            "dp.penalties.Growing",
            c1=_PENALTY,
            c2=number(lambda v: v >= 0, "of at least 0"),
            Tc=integer(1),
            c=optional(STEP_BUDGET),
        )

    def resolved(self, release_epsilon: float) -> Growing:
        """Return the rule with a number for c: the plan's epsilon per release if omitted."""
        return replace(self, c=release_epsilon) if self.c is None else self

    def next(self, t: int, rho: float | None, primal: float, dual: float) -> float:
        """Return the penalty rho_t that the schedule gives for round t."""
        assert self.c is not None
        return min(1e9, self.c1 * 1.2 ** (t // self.Tc) + self.c2 / self.c)

    def __str__(self) -> str:
        c = "c" if self.c is None else f"{self.c:.4g}"
        return f"penalty = {self.c1:g} * 1.2^floor(t / {self.Tc}) + {self.c2:g} / {c}"


@frameless
@dataclass(frozen=True)
class ResidualBalancing:
    """Change the penalty rho if primal and dual residual differ by more than a factor.

    This is the rule of Boyd et al. (2011), section 3.4.1. Residuals are computed from released
    values only, so the adaptation costs no privacy.

    Parameters
    ----------
    penalty : float
        Penalty rho of round 1.
    threshold : float
        Rho changes if the ratio of the residuals, or its inverse, exceeds this number.
    factor : float
        Factor by which rho is multiplied or divided.
    unit : float
        Number in the unit of rho, by which the dual residual is divided before the comparison. With
        1, as in the paper, the rule depends on the units of the problem.
    """

    penalty: float
    threshold: float = 10.0
    factor: float = 2.0
    unit: float = 1.0

    def __post_init__(self) -> None:
        above_one = number(lambda v: v > 1, "above 1")
        check_fields(
            self,
            "dp.penalties.ResidualBalancing",
            penalty=_PENALTY,
            threshold=above_one,
            factor=above_one,
            unit=POSITIVE,
        )

    def resolved(self, release_epsilon: float) -> ResidualBalancing:
        """Return the rule itself, because all its constants are numbers."""
        return self

    def next(self, t: int, rho: float | None, primal: float, dual: float) -> float:
        """Return rho_t, from the residuals of the previous round."""
        if rho is None:
            return self.penalty
        dual /= self.unit
        if primal > self.threshold * dual:
            return min(1e9 * self.penalty, rho * self.factor)
        if dual > self.threshold * primal:
            return max(1e-9 * self.penalty, rho / self.factor)
        return rho

    def __str__(self) -> str:
        return f"penalty from {self.penalty:g} by residual balancing"


# Largest factor of one change of rho: changes of the copies may be rounding errors.
_LARGEST_FACTOR = 100.0
# Largest factor of all changes of rho together.
_FARTHEST = 1e12


@frameless
@dataclass(frozen=True)
class Spectral:
    """Set the penalty rho to an estimate of the curvature of the local problems.

    After an exact local step, the multipliers are a gradient at the copies. So the norm of the
    change of the multipliers, divided by the norm of the change of the copies, is a curvature (Xu,
    Figueiredo and Goldstein, "Adaptive ADMM with spectral penalty parameter selection", 2017). This
    estimate has the unit of rho, and is well defined even if multipliers are near zero. Both
    changes are computed from released values, so the adaptation costs no privacy.

    The penalty may change after rounds 1, 2, 4, 7, 11 and so on, because convergence needs rare
    changes.

    Parameters
    ----------
    penalty : float
        Penalty rho of round 1.
    threshold : float
        Rho changes if the ratio of the curvature to rho, or its inverse, exceeds this number.
    """

    penalty: float
    threshold: float = 2.0

    def __post_init__(self) -> None:
        above_one = number(lambda v: v > 1, "above 1")
        check_fields(self, "dp.penalties.Spectral", penalty=_PENALTY, threshold=above_one)

    def resolved(self, release_epsilon: float) -> Spectral:
        """Return the rule itself, because all its constants are numbers."""
        return self

    def next(self, t: int, rho: float | None, primal: float, dual: float) -> float:
        """Return rho of round t.

        Parameters
        ----------
        t : int
        rho : float or None
            Penalty of the previous round; None before round 1.
        primal, dual : float
            Norms of the changes of copies and of multipliers in the previous round.
        """
        if rho is None:
            return self.penalty
        told = primal + dual > 0 and math.isfinite(primal) and math.isfinite(dual)
        if not _rarely(t - 1) or not told:
            return rho
        # Copies at a vertex do not move: rho is too small, by an unknown factor.
        ratio = dual / primal / rho if primal > 0 else math.inf
        if 1 / self.threshold <= ratio <= self.threshold:
            return rho
        rho *= min(max(ratio, 1 / _LARGEST_FACTOR), _LARGEST_FACTOR)
        return min(max(rho, self.penalty / _FARTHEST), self.penalty * _FARTHEST)

    def __str__(self) -> str:
        return f"penalty from {self.penalty:g} by curvature between rounds"


def _rarely(t: int) -> bool:
    """Return whether rho may change after round t, one of 1, 2, 4, 7, 11, ..."""
    return t >= 1 and math.isqrt(8 * t - 7) ** 2 == 8 * t - 7


def penalty_said(penalty: float | PenaltyRule | None) -> str:
    """Return words for the penalty rule, or for its absence, in the description of a method."""
    return "a penalty that the plan chooses" if penalty is None else str(as_penalty(penalty))


def as_penalty(penalty: float | PenaltyRule) -> PenaltyRule:
    """Return the argument ``penalty=`` as a penalty rule; a number becomes a constant rule.

    Raises
    ------
    ModelError
        If the argument is neither a number nor a rule.
    """
    if finite(penalty) and isinstance(penalty, Real):
        return Fixed(float(penalty))
    if isinstance(penalty, (Fixed, Growing, ResidualBalancing, Spectral)):
        return penalty
    raise ModelError(
        f"penalty={show(penalty)} is neither a number nor a penalty rule. Write for example "
        "penalty=10, or penalty=dp.penalties.ResidualBalancing(10)."
    )
