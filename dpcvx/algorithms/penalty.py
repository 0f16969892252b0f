"""Penalty rules: rho_t as a constant, a schedule, or a function of released residuals."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from numbers import Real
from typing import Protocol, Self

from .._arguments import finite, is_int, positive_finite, show
from ..errors import ModelError
from ..guard import frameless


class PenaltyRule(Protocol):
    """rho_t, known to server and agents before round t."""

    def resolved(self, step_epsilon: float) -> Self:
        """The rule with its constants filled in."""
        ...

    def next(self, t: int, rho: float | None, primal: float, dual: float) -> float:
        """rho of round t from the previous one (None before round 1) and its residuals."""
        ...


@frameless
@dataclass(frozen=True)
class ConstantPenalty:
    """``rho_t = rho``."""

    rho: float

    def __post_init__(self) -> None:
        _positive("rho", self.rho)

    def resolved(self, step_epsilon: float) -> ConstantPenalty:
        """Nothing to fill in."""
        return self

    def next(self, t: int, rho: float | None, primal: float, dual: float) -> float:
        """The constant."""
        return self.rho

    def __str__(self) -> str:
        return f"rho = {self.rho:g}"


@frameless
@dataclass(frozen=True)
class GrowingPenalty:
    """``rho_t = min(1e9, c1 * 1.2^floor(t / Tc) + c2 / epsilon)``, Ryu and Kim (73).

    Parameters
    ----------
    c1, c2, Tc : float
        MNIST in the paper: (2, 5, 10000); FEMNIST: (0.005, 0.05, 2000).
    epsilon : float, optional
        Budget per release; the plan's if omitted.
    """

    c1: float
    c2: float
    Tc: int
    epsilon: float | None = None

    def __post_init__(self) -> None:
        _positive("c1", self.c1)
        if not is_int(self.Tc, 1):
            raise ModelError(f"dp.GrowingPenalty(Tc={show(self.Tc)}) must be an int of at least 1.")
        check_step_epsilon("dp.GrowingPenalty", self.epsilon)
        if not (finite(self.c2) and self.c2 >= 0):
            raise ModelError(
                f"dp.GrowingPenalty(c2={show(self.c2)}) must be finite and at least 0."
            )

    def resolved(self, step_epsilon: float) -> GrowingPenalty:
        """Fill in epsilon."""
        return replace(self, epsilon=step_epsilon) if self.epsilon is None else self

    def next(self, t: int, rho: float | None, primal: float, dual: float) -> float:
        """The schedule."""
        assert self.epsilon is not None
        return min(1e9, self.c1 * 1.2 ** (t // self.Tc) + self.c2 / self.epsilon)

    def __str__(self) -> str:
        epsilon = "epsilon" if self.epsilon is None else f"{self.epsilon:.4g}"
        return f"rho_t = {self.c1:g} * 1.2^floor(t / {self.Tc}) + {self.c2:g} / {epsilon}"


@frameless
@dataclass(frozen=True)
class ResidualBalancing:
    """Double or halve rho where primal and dual residual differ by more than a factor.

    Residuals of released values only, so the adaptation costs no privacy (Boyd et al., 2011,
    section 3.4.1).

    Parameters
    ----------
    rho : float
        Penalty of round 1.
    threshold : float
        Ratio of the residuals that triggers a change.
    factor : float
        By which rho changes.
    """

    rho: float
    threshold: float = 10.0
    factor: float = 2.0

    def __post_init__(self) -> None:
        _positive("rho", self.rho)
        for name, value in (("threshold", self.threshold), ("factor", self.factor)):
            if not (finite(value) and value > 1):
                raise ModelError(
                    f"dp.ResidualBalancing({name}={show(value)}) must be finite and above 1."
                )

    def resolved(self, step_epsilon: float) -> ResidualBalancing:
        """Nothing to fill in."""
        return self

    def next(self, t: int, rho: float | None, primal: float, dual: float) -> float:
        """Rho for round t."""
        if rho is None:
            return self.rho
        if primal > self.threshold * dual:
            return min(1e9, rho * self.factor)
        if dual > self.threshold * primal:
            return max(1e-9, rho / self.factor)
        return rho

    def __str__(self) -> str:
        return f"rho from {self.rho:g} by residual balancing"


def as_penalty(rho: float | PenaltyRule) -> PenaltyRule:
    """A number as a constant rule.

    Raises
    ------
    ModelError
        If it is neither a number nor a rule.
    """
    if finite(rho) and isinstance(rho, Real):
        return ConstantPenalty(float(rho))
    if isinstance(rho, (ConstantPenalty, GrowingPenalty, ResidualBalancing)):
        return rho
    raise ModelError(
        f"rho={show(rho)} is neither a number nor a penalty rule. Write for example rho=10, or "
        "rho=dp.ResidualBalancing(10)."
    )


def check_step_epsilon(name: str, epsilon: float | None) -> None:
    """Refuse an epsilon of a rule that is neither positive nor infinite (no noise)."""
    infinite = isinstance(epsilon, float) and epsilon == math.inf
    usable = positive_finite(epsilon) and float(epsilon or 0.0) >= 1e-100
    if epsilon is not None and not infinite and not usable:
        raise ModelError(
            f"{name}(epsilon={show(epsilon)}) must be positive, and large enough to divide by; "
            "leave it out for the plan's."
        )


def _positive(name: str, value: float) -> None:
    if not positive_finite(value):
        raise ModelError(
            f"The penalty parameter {name}={show(value)} must be a positive finite number: it "
            "weighs "
            "disagreement between agents. Write for example rho=10."
        )
