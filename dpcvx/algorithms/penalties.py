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

__all__ = ["Constant", "Growing", "ResidualBalancing"]


def __dir__() -> list[str]:
    return __all__


_PENALTY = POSITIVE.because("it weighs disagreement between agents. Write for example penalty=10")
# Infinite without noise.
STEP_BUDGET = Kind(
    lambda value: (isinstance(value, float) and value == math.inf) or DIVISOR.fits(value),
    "positive, and large enough to divide by. Leave it out to take the plan's epsilon per release",
)


class PenaltyRule(Protocol):
    """rho_t, known to server and agents before round t."""

    def resolved(self, release_epsilon: float) -> Self:
        """Return the rule with its constants filled in."""
        ...

    def next(self, t: int, rho: float | None, primal: float, dual: float) -> float:
        """Return rho of round t from the previous one (None before round 1) and its residuals."""
        ...


@frameless
@dataclass(frozen=True)
class Constant:
    """``rho_t = rho``, the same penalty in every round.

    Parameters
    ----------
    penalty : float
        The paper's rho.
    """

    penalty: float

    def __post_init__(self) -> None:
        check_fields(self, "dp.penalties.Constant", penalty=_PENALTY)

    def resolved(self, release_epsilon: float) -> Constant:
        """Return the rule itself: no constants are open."""
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
        MNIST in the paper: (2, 5, 10000); FEMNIST: (0.005, 0.05, 2000).
    c : float, optional
        The paper's epsilon, the budget per release; the plan's if omitted.
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
        """Return the rule with its constant c filled in."""
        return replace(self, c=release_epsilon) if self.c is None else self

    def next(self, t: int, rho: float | None, primal: float, dual: float) -> float:
        """Return the penalty of the schedule."""
        assert self.c is not None
        return min(1e9, self.c1 * 1.2 ** (t // self.Tc) + self.c2 / self.c)

    def __str__(self) -> str:
        c = "c" if self.c is None else f"{self.c:.4g}"
        return f"penalty = {self.c1:g} * 1.2^floor(t / {self.Tc}) + {self.c2:g} / {c}"


@frameless
@dataclass(frozen=True)
class ResidualBalancing:
    """Change rho where primal and dual residual differ by more than a factor.

    Residuals of released values only, so the adaptation costs no privacy (Boyd et al., 2011,
    section 3.4.1).

    Parameters
    ----------
    penalty : float
        rho of round 1.
    threshold : float
        Ratio of the residuals that triggers a change.
    factor : float or None
        By which rho changes. With None, rho changes by the square root of the ratio, after rounds
        1, 2, 4, 7, 11 and so on: a start that is far off is corrected soon, and changes become
        rare, as convergence asks for.
    unit : float or None
        Of rho: the dual residual is divided by it before the two are compared. The paper's is 1,
        and then a problem in other units may have another balance. None compares relative
        residuals: the primal one is divided by the size of the values, the dual one by that of the
        multipliers (Wohlberg, "ADMM penalty parameter selection by residual balancing", 2017).
    """

    penalty: float
    threshold: float = 10.0
    factor: float | None = 2.0
    unit: float | None = 1.0

    def __post_init__(self) -> None:
        above_one = number(lambda v: v > 1, "above 1")
        check_fields(
            self,
            "dp.penalties.ResidualBalancing",
            penalty=_PENALTY,
            threshold=above_one,
            factor=optional(above_one),
            unit=optional(POSITIVE),
        )

    @staticmethod
    def relative(penalty: float) -> ResidualBalancing:
        """Return the rule that plans choose where steps are not noisy."""
        return ResidualBalancing(penalty, threshold=4.0, factor=None, unit=None)

    def resolved(self, release_epsilon: float) -> ResidualBalancing:
        """Return the rule itself: no constants are open."""
        return self

    def next(self, t: int, rho: float | None, primal: float, dual: float) -> float:
        """Return rho of round t; without a unit, the residuals are relative."""
        if rho is None:
            return self.penalty
        dual /= 1.0 if self.unit is None else self.unit
        factor = self.factor
        if factor is None:
            factor = _root(primal, dual) if _rarely(t - 1) else 1.0
        if primal > self.threshold * dual:
            return min(1e9 * self.penalty, rho * factor)
        if dual > self.threshold * primal:
            return max(1e-9 * self.penalty, rho / factor)
        return rho

    def __str__(self) -> str:
        return f"penalty from {self.penalty:g} by residual balancing"


# Of one change: the first residuals may be rounding.
_LARGEST_FACTOR = 1e4


def _root(one: float, other: float) -> float:
    """Return the square root of the ratio of the larger to the smaller residual."""
    small, large = sorted((one, other))
    return min(math.sqrt(large / small), _LARGEST_FACTOR) if small > 0 else _LARGEST_FACTOR


def _rarely(t: int) -> bool:
    """Return whether t is one of 1, 2, 4, 7, 11, ..., one more than a triangular number."""
    return t >= 1 and math.isqrt(8 * t - 7) ** 2 == 8 * t - 7


def penalty_said(penalty: float | PenaltyRule | None) -> str:
    """Return a text on the penalty rule."""
    return "a penalty that the plan chooses" if penalty is None else str(as_penalty(penalty))


def as_penalty(penalty: float | PenaltyRule) -> PenaltyRule:
    """Return a number as a constant rule.

    Raises
    ------
    ModelError
        If it is neither a number nor a rule.
    """
    if finite(penalty) and isinstance(penalty, Real):
        return Constant(float(penalty))
    if isinstance(penalty, (Constant, Growing, ResidualBalancing)):
        return penalty
    raise ModelError(
        f"penalty={show(penalty)} is neither a number nor a penalty rule. Write for example "
        "penalty=10, or penalty=dp.penalties.ResidualBalancing(10)."
    )
