"""What is public about a run before it starts, for the numbers that a method chooses itself."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..privacy.split_noise import SplitNoise


@dataclass(frozen=True)
class Conditions:
    """How long a run is, and how noisy.

    Attributes
    ----------
    rounds : int
    noise : tuple of float
        By agent, standard deviation of the noise in one entry of a gradient that leaves in the
        first round; 0 where steps are not noisy, or where their noise follows from the steps.
    slope : tuple of float
        By agent, about how far all its data move a gradient in l2, as far as that is public: half
        of what records can move it, or thirty changes of every entry; 0 where no change is derived.
    step_epsilon : float
        Budget per release that the papers' rules refer to; infinite without noise.
    split : SplitNoise or None
        Where all agents add a part of the noise to all entries of a sum.
    whole : tuple of float
        The slopes that records would have if they were not clipped; empty where none are.
    """

    rounds: int
    noise: tuple[float, ...]
    slope: tuple[float, ...]
    step_epsilon: float = math.inf
    split: SplitNoise | None = None
    whole: tuple[float, ...] = ()
