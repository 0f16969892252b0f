"""Synthetic records of agents whose distributions may differ."""

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

# Smoothness constant M that the paper states.
SMOOTHNESS = entry("ou_wang_liu_lu", "smoothness").number("M")
# Slope of the odds of a label against the score of a row of length 1.
_CLARITY = 8.0


@dataclass(frozen=True, eq=False)
class Shares:
    """The records of all agents.

    Attributes
    ----------
    parts : tuple of Records
        Records of each agent, all of one length.
    bound : float
        Public bound of the l2 norm of a row of features; all rows drawn here have this norm.
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

    An agent's rows scatter about a common direction; labels follow the odds of a logistic model.
    Heterogeneous agents have directions and models of their own.

    Parameters
    ----------
    agents, each, size : int
        Number of agents N, of records per agent m, and of features d.
    smoothness : float
        Smoothness constant M, which determines the length of rows.
    of : {"all data", "these data"}
        Data that M bounds: all records of this length, as public step sizes require; or these
        agents' records, as in the paper, whose constant for all data is several times as large.
    penalty : Penalty, optional
        Penalty, whose smoothness is a part of M; the paper's if omitted.
    heterogeneity : float
        Difference between agents, from 0 for one distribution to 1 for nothing in common.
    common : float
        Part of a row's squared length in the common direction of an agent's rows, from 0 for
        uniform directions to less than 1.
    seed : int
        Seed of the draw.

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
            f"smoothness={smoothness!r} must be a number above {rest:g}, the penalty's own "
            "smoothness. Otherwise nothing would be left for the records."
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
        # Scores are centered, so that both labels are about equally frequent.
        scores = (rows - rows.mean(axis=0)) @ model
        drawn.append((rows, np.where(rng.random(each) < expit(_CLARITY * scores), 1.0, -1.0)))
    peak = (
        1.0 if of == "all data" else max(np.linalg.norm(rows, 2) ** 2 / each for rows, _ in drawn)
    )
    bound = math.sqrt(4 * (smoothness - rest) / peak)
    return Shares(tuple(Records(bound * rows, labels) for rows, labels in drawn), bound)


def _unit(rows: Floats) -> Floats:
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)
