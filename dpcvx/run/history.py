"""Residuals of released values, round by round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import overload

from ..algorithms.base import Residuals
from ..solvers.conic import Outcome

# Rounds that a history keeps unless every round is asked for.
_KEPT = 128


@dataclass(frozen=True)
class Round:
    """What is known of a round after it.

    Attributes
    ----------
    t : int
        From 1.
    residuals : Residuals
        Of released values.
    inaccurate : int
        Agents whose last local solve of the round reached reduced accuracy only. In a history,
        these and failures include those of rounds left out just before.
    failed : int
        Agents whose last local solve of the round failed, so that they kept the previous point.
    """

    t: int
    residuals: Residuals
    inaccurate: int
    failed: int

    def after(self, earlier: Round) -> Round:
        """The same, with what went wrong in an earlier round that is left out."""
        return replace(
            self,
            inaccurate=self.inaccurate + earlier.inaccurate,
            failed=self.failed + earlier.failed,
        )


class History(Sequence[Round]):
    """Residuals of released values, and failed local solves, round by round.

    Memory does not grow with the rounds: of a long run, an even selection and the last round are
    kept. ``plan.run(iterates=True)`` keeps every round.

    Parameters
    ----------
    limit : int or None
        Rounds to keep at most; None for all.
    """

    def __init__(self, limit: int | None = _KEPT) -> None:
        self._limit = limit
        self._stride = 1
        self._kept: list[Round] = []

    def append(self, residuals: Residuals, outcomes: Sequence[Outcome]) -> Round:
        """Add a round."""
        answered = (Outcome.SOLVED, Outcome.INACCURATE, Outcome.FALLBACK)
        new = Round(
            t=self._kept[-1].t + 1 if self._kept else 1,
            residuals=residuals,
            inaccurate=sum(o in answered[1:] for o in outcomes),
            failed=sum(o not in answered for o in outcomes),
        )
        kept = self._thinned([*self._kept[-1:], new])
        self._kept[-1:] = kept
        if self._limit is not None and len(self._kept) > self._limit:
            self._stride *= 2
            self._kept = self._thinned(self._kept)
        return new

    def _thinned(self, rounds: Sequence[Round]) -> list[Round]:
        """Every so many rounds, and the last one."""
        kept: list[Round] = []
        pending: Round | None = None
        for each in rounds:
            merged = each if pending is None else each.after(pending)
            if (each.t - 1) % self._stride == 0 or each is rounds[-1]:
                kept.append(merged)
                pending = None
            else:
                pending = merged
        return kept

    @property
    def rounds(self) -> list[int]:
        """The rounds that the other lists are about."""
        return [r.t for r in self._kept]

    @property
    def primal(self) -> list[float]:
        """See `Residuals`."""
        return [r.residuals.primal for r in self._kept]

    @property
    def dual(self) -> list[float]:
        """See `Residuals`."""
        return [r.residuals.dual for r in self._kept]

    @property
    def mismatch(self) -> list[float]:
        """See `Residuals`."""
        return [r.residuals.mismatch for r in self._kept]

    @property
    def penalty(self) -> list[float]:
        """See `Residuals`."""
        return [r.residuals.penalty for r in self._kept]

    @property
    def inaccurate(self) -> int:
        """Local solves that ended a round of the run with reduced accuracy only."""
        return sum(r.inaccurate for r in self._kept)

    @property
    def failed(self) -> int:
        """Local solves that ended a round of the run without an answer."""
        return sum(r.failed for r in self._kept)

    def __repr__(self) -> str:
        if not self._kept:
            return "<History: empty>"
        last = self._kept[-1]
        residuals = f"primal {last.residuals.primal:.3g}, dual {last.residuals.dual:.3g}"
        return f"<History: {len(self)} of {last.t} rounds kept; at the end {residuals}>"

    @overload
    def __getitem__(self, index: int) -> Round: ...

    @overload
    def __getitem__(self, index: slice) -> list[Round]: ...

    def __getitem__(self, index: int | slice) -> Round | list[Round]:
        return self._kept[index]

    def __len__(self) -> int:
        return len(self._kept)
