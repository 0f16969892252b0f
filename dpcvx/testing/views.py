"""What an attacker sees of one run, and scores that tell two data sets apart by it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from .check import Observation

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ObserverView:
    """What is seen of a run, with what each of two data sets would have answered without noise.

    Attributes
    ----------
    seen : sequence of Observation
        Releases of the agent that is attacked.
    zero, one : sequence of Observation
        The same from either data.
    rest : sequence of sequence of Observation
        Releases of each other agent.
    """

    seen: Sequence[Observation]
    zero: Sequence[Observation]
    one: Sequence[Observation]
    rest: Sequence[Sequence[Observation]]

    def of_coalition(self, colluders: int) -> ObserverView:
        """As the last `colluders` of the other agents see it: sums of what honest ones sent."""
        honest = self.rest[: len(self.rest) - colluders]
        alike = [[terms[i] for terms in honest] for i in range(len(self.seen))]
        seen, zero, one = (
            [_summed(own, terms) for own, terms in zip(found, alike, strict=True)]
            for found in (self.seen, self.zero, self.one)
        )
        return ObserverView(seen, zero, one, self.rest[len(honest) :])

    def scores(self, norm: int) -> dict[str, float]:
        """Scores of the run, by name: the higher, the more the data look like the second ones."""
        noisy = [
            (o.outside, a.inside, b.inside, o.grid.scale)
            for o, a, b in zip(self.seen, self.zero, self.one, strict=True)
            if o.grid is not None
        ]
        if not noisy:
            return {"likelihood ratio": 0.0}
        scores = {"likelihood ratio": math.fsum(log_ratio(norm, *values) for values in noisy)}
        errors = [(out - a) / s for out, a, _, s in noisy]
        moves = [(b - a) / s for _, a, b, s in noisy]
        if len(noisy) > 1 and len({e.size for e in errors}) == 1:
            E, M = np.array(errors), np.array(moves)
            apart = (E - E.mean(axis=0)) * (M - M.mean(axis=0))
            scores["contrast of rounds"] = float(np.sum(apart))
        for index, others in enumerate(self.rest):
            theirs = [(o.outside - o.inside) / o.grid.scale for o in others if o.grid is not None]
            if [e.size for e in theirs] == [e.size for e in errors]:
                pairs = zip(errors, theirs, moves, strict=True)
                scores[f"contrast with agent {index}"] = math.fsum(
                    float((e - f) @ m) for e, f, m in pairs
                )
        return scores


def log_ratio(norm: int, out: Array, a: Array, b: Array, scale: float) -> float:
    """Log-likelihood ratio of b against a.

    Parameters
    ----------
    norm : {1, 2}
        1 for Laplace noise, 2 for Gaussian.
    out : ndarray
        What was released.
    a, b : ndarray
        The exact values on either data.
    scale : float
        Of the noise.
    """
    if norm == 1:
        return float(np.sum(np.abs(out - a) - np.abs(out - b)) / scale)
    return float(np.sum((out - (a + b) / 2) * (b - a)) / scale**2)


def _summed(own: Observation, others: Sequence[Observation]) -> Observation:
    """The sum of terms of one exchange, with the noise that it should have."""
    assert own.grid is not None
    grid = replace(own.grid, scale=own.grid.scale * math.sqrt(1 + len(others)))
    return Observation(
        own.place,
        own.entry,
        own.inside + sum(o.inside for o in others),
        own.outside + sum(o.outside for o in others),
        grid,
        own.released,
    )
