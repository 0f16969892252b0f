"""Made records, shared among agents that may have little in common."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from dpcvx._arguments import finite, is_int, positive_finite

from ..labeled import Records
from ..papers import entry
from .errors import ClassificationError
from .penalty import Penalty

Floats = NDArray[np.float64]

# What the paper states.
SMOOTHNESS = entry("ou_wang_liu_lu", "smoothness").number("M")
# Slope of the odds of a label against the score of a row of length 1.
_CLARITY = 8.0


@dataclass(frozen=True, eq=False)
class Shares:
    """Records of all agents.

    Attributes
    ----------
    parts : tuple of Records
        One per agent, all of one length.
    bound : float
        Largest l2 norm of a row of features: public, and the one of each of these rows.
    """

    parts: tuple[Records, ...]
    bound: float


def made_shares(
    agents: int = 50,
    each: int = 200,
    size: int = 10,
    *,
    smoothness: float = SMOOTHNESS,
    of: Literal["all data", "these data"] = "all data",
    penalty: Penalty | None = None,
    heterogeneity: float = 0.0,
    common: float = 0.5,
    seed: int = 0,
) -> Shares:
    """Draw the records of all agents.

    Rows of an agent have a direction in common and scatter about it; labels follow the odds of a
    logistic model. Heterogeneous agents have directions and models of their own.

    Parameters
    ----------
    agents, each, size : int
        N, m and d.
    smoothness : float
        M, from which the rows have their length.
    of : {"all data", "these data"}
        M holds for every set of records of that length, as a step size must that is not to depend
        on private data; or it is the largest constant of these agents, as in the paper, and that
        for all data is several times as large.
    penalty : Penalty, optional
        Its share of M; the paper's if omitted.
    heterogeneity : float
        From 0, all agents draw alike, to 1, they have nothing in common.
    common : float
        Part of a row's squared length in the direction that an agent's rows have in common, from 0,
        rows point everywhere alike, to less than 1.
    seed : int

    Raises
    ------
    ClassificationError
        If a number is outside its range.
    """
    rest = (penalty or Penalty()).smoothness
    for name, value in (("agents", agents), ("each", each), ("size", size)):
        if not is_int(value, 1):
            raise ClassificationError(f"{name}={value!r} must be a whole number of at least 1.")
    if not positive_finite(smoothness) or smoothness <= rest:
        raise ClassificationError(
            f"smoothness={smoothness!r} must be a number above {rest:g}, that of the penalty: "
            "nothing would be left for the records."
        )
    if not finite(heterogeneity) or not 0 <= heterogeneity <= 1:
        raise ClassificationError(
            f"heterogeneity={heterogeneity!r} must be a number from 0 (all agents draw alike) to 1 "
            "(they have nothing in common)."
        )
    if not finite(common) or not 0 <= common < 1:
        raise ClassificationError(
            f"common={common!r} must be a number of at least 0 (rows point everywhere alike) and "
            "less than 1 (all rows of an agent are one)."
        )
    if of not in ("all data", "these data"):
        raise ClassificationError(
            f"of={of!r} is unknown: write 'all data' for a smoothness constant that is public, or "
            "'these data' for that of the records drawn."
        )
    rng = np.random.default_rng(seed)
    shared = rng.normal(size=(2, size))
    drawn = []
    for _ in range(agents):
        own = rng.normal(size=(2, size))
        center, model = _unit((1 - heterogeneity) * shared + heterogeneity * own)
        away = _unit(rng.normal(size=(each, size)))
        rows = _unit(math.sqrt(common) * center + math.sqrt(1 - common) * away)
        # Scores about their mean, so that either label is as frequent.
        scores = (rows - rows.mean(axis=0)) @ model
        drawn.append((rows, np.where(rng.random(each) < expit(_CLARITY * scores), 1.0, -1.0)))
    peak = (
        1.0 if of == "all data" else max(np.linalg.norm(rows, 2) ** 2 / each for rows, _ in drawn)
    )
    bound = math.sqrt(4 * (smoothness - rest) / peak)
    return Shares(tuple(Records(bound * rows, labels) for rows, labels in drawn), bound)


def _unit(rows: Floats) -> Floats:
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)
