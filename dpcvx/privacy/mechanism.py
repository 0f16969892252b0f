"""Noise mechanisms: their declaration, their calibration, and the drawing of noise.

A user declares a mechanism with a noise multiplier (noise scale over sensitivity), with a privacy
level per release, or with neither. In the last case, the plan's total budget determines the noise.
Calibration turns each declaration into a multiplier before any data are read.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from .._arguments import POSITIVE, Kind, check_fields, choice, finite, optional, positive_finite
from ..errors import PrivacyError
from ..guard import frameless
from .accounting import (
    Composition,
    check_delta,
    classical_gaussian_multiplier,
    gaussian_multiplier,
    laplace_multiplier,
)
from .linear_term import LinearTerm
from .noise import (
    Grid,
    Integers,
    Unrounded,
    finest_grid,
    grid_for,
    laplace_rows,
    normal_rows,
    on_grid,
    staircase_rows,
)
from .randomness import Alone, Randomness, Streams
from .split_noise import SplitNoise, residues
from .truncation import Truncation

Array = NDArray[np.float64]
# Relative tolerance for products of the same numbers in another order.
_ROUNDED = 1 + 1e-12
# Below epsilon = _FLAT, the half width of the first step of staircase noise is its series 1/2 -
# epsilon/12. It is never less than _NARROWEST, about the grid's width over the sensitivity.
_FLAT, _NARROWEST = 1e-2, 2.0**-18


@frameless
@dataclass(frozen=True)
class Gaussian:
    """Gaussian (normal) noise, scaled to the l2 sensitivity.

    Parameters
    ----------
    release_epsilon, release_delta : float, optional
        Privacy level of a single release (pass both). Omit both, and the noise is calibrated to the
        total budget of the plan.
    calibration : {"analytic", "classical"}
        Rule from `release_epsilon` and `release_delta` to a multiplier: exact (Balle and Wang,
        2018), or ``sqrt(2 ln(1.25/delta)) / epsilon`` as in the papers.
    noise_multiplier : float, optional
        Standard deviation of the noise over the l2 sensitivity, in place of a privacy level.
    decay : float
        Noise multiplier of a round divided by the multiplier of the round before, at most 1. All
        other arguments describe the first round.
    """

    release_epsilon: float | None = None
    release_delta: float | None = None
    calibration: Literal["analytic", "classical"] = "analytic"
    noise_multiplier: float | None = None
    decay: float = 1.0

    norm = 2
    single = False

    def __post_init__(self) -> None:
        if (self.release_epsilon is None) != (self.release_delta is None):
            raise PrivacyError(
                "dp.Gaussian needs release_epsilon and release_delta together: a Gaussian release "
                "has no epsilon without a delta. Write dp.Gaussian(release_epsilon=1, "
                "release_delta=1e-2), or leave both out and give plan(..., epsilon=, delta=)."
            )
        _check_level(self, calibration=choice("analytic", "classical"))
        if self.release_delta is not None:
            check_delta(self.release_delta)
        _make_floats(self, "release_epsilon", "release_delta", "noise_multiplier", "decay")
        if self.calibration == "classical" and self.release_epsilon is None:
            raise PrivacyError(
                "dp.Gaussian(calibration='classical') calibrates a single release: give it "
                "release_epsilon and release_delta. A total budget is always calibrated exactly."
            )

    def per_step(self) -> float | None:
        """Return the noise multiplier if the arguments fix it; None if a total budget does."""
        if self.release_epsilon is None or self.release_delta is None:
            return self.noise_multiplier
        if self.calibration == "classical":
            return classical_gaussian_multiplier(self.release_epsilon, self.release_delta)
        return gaussian_multiplier(1, self.release_epsilon, self.release_delta)

    def for_total(
        self, steps: int, epsilon: float, delta: float, ratios: Sequence[float] = (1.0,)
    ) -> float:
        """Return the multiplier that spends a budget in `steps` releases per entry of `ratios`."""
        return gaussian_multiplier(steps, epsilon, delta, ratios)

    def compose(self, composition: Composition, multiplier: float, count: int) -> Composition:
        """Return a composition with `count` further releases at this noise multiplier."""
        return composition.with_gaussian(multiplier, count)

    def drawn(self, grid: Grid, multiplier: float, size: int, streams: Streams) -> Integers:
        """Return exact Gaussian noise in units of the grid's width; a row per random stream."""
        return normal_rows(grid.scale / grid.width, size, streams)

    def variance(self, multiplier: float, sensitivity: float = 1.0) -> float:
        """Return the variance of the noise in one component of a release."""
        scale = multiplier * sensitivity
        return scale * scale

    def magnitudes(self, noise: Array, multiplier: float) -> Array:
        """Return ``|noise|`` divided by its standard deviation, for a sensitivity of 1."""
        return np.asarray(np.abs(noise) / multiplier)

    def simulated(self, uniform: Array, multiplier: float, deviation: float) -> Array:
        """Return simulated noise of this standard deviation, from numbers between 0 and 1."""
        return np.asarray(deviation * ndtri(uniform))

    def __str__(self) -> str:
        return "Gaussian"


@frameless
@dataclass(frozen=True)
class Laplace:
    """Laplace noise, scaled to the l1 sensitivity.

    Parameters
    ----------
    release_epsilon : float, optional
        Pure epsilon of a single release. If omitted, the noise is calibrated to the total budget of
        the plan.
    noise_multiplier : float, optional
        Scale of the noise over the l1 sensitivity, in place of `release_epsilon`.
    decay : float
        Noise multiplier of a round divided by the multiplier of the round before, at most 1. All
        other arguments describe the first round.
    """

    release_epsilon: float | None = None
    noise_multiplier: float | None = None
    decay: float = 1.0

    norm = 1
    single = False

    def __post_init__(self) -> None:
        _check_level(self)
        _make_floats(self, "release_epsilon", "noise_multiplier", "decay")

    def per_step(self) -> float | None:
        """Return the noise multiplier if the arguments fix it; None if a total budget does."""
        return self.noise_multiplier if self.release_epsilon is None else 1.0 / self.release_epsilon

    def for_total(
        self, steps: int, epsilon: float, delta: float, ratios: Sequence[float] = (1.0,)
    ) -> float:
        """Return the multiplier that spends a budget in `steps` releases per entry of `ratios`."""
        return laplace_multiplier(steps, epsilon, delta, ratios)

    def compose(self, composition: Composition, multiplier: float, count: int) -> Composition:
        """Return a composition with `count` further releases at this noise multiplier."""
        return composition.with_laplace(multiplier, count)

    def drawn(self, grid: Grid, multiplier: float, size: int, streams: Streams) -> Integers:
        """Return exact Laplace noise in units of the grid's width; a row per random stream."""
        return laplace_rows(grid.scale / grid.width, size, streams)

    def variance(self, multiplier: float, sensitivity: float = 1.0) -> float:
        """Return the variance of the noise in one component of a release."""
        scale = multiplier * sensitivity
        return 2.0 * scale * scale

    def magnitudes(self, noise: Array, multiplier: float) -> Array:
        """Return ``|noise|`` divided by its scale, for a sensitivity of 1."""
        return np.asarray(np.abs(noise) / multiplier)

    def simulated(self, uniform: Array, multiplier: float, deviation: float) -> Array:
        """Return simulated noise of this standard deviation, from numbers between 0 and 1."""
        away = np.abs(uniform - 0.5)
        return deviation / math.sqrt(2) * np.sign(0.5 - uniform) * np.log1p(-2 * away)

    def __str__(self) -> str:
        return "Laplace"


@frameless
@dataclass(frozen=True)
class Staircase:
    r"""Staircase noise, for one release; one change of the data may move one number only.

    In one number, no other noise with the same pure epsilon has a smaller expected error (Geng and
    Viswanath, 2016). Its density has steps as wide as the sensitivity, each :math:`e^{-\epsilon}`
    times as high as the step before, and a narrow first step. The mean square of Laplace noise is
    larger: 1.04 times at epsilon 1, 1.5 times at 3, and 25 times at 10.

    Parameters
    ----------
    release_epsilon : float, optional
        Pure epsilon of a single release. If omitted, the noise is calibrated to the total budget of
        the plan.
    noise_multiplier : float, optional
        Inverse of the pure epsilon of a release, in place of `release_epsilon`.
    error : {"squared", "absolute"}
        Expected error that the noise minimizes. Use "squared" if costs are smooth in the data, and
        "absolute" if they have kinks. With "absolute", the median magnitude is smaller, by a factor
        of 1.3 at epsilon 3 and of 4 at 10, but large noise is more frequent.

    Notes
    -----
    The noise protects releases in which one change moves one number. This holds for data with
    ``dp.Within(radius)``, released entry by entry or in sums without a common entry, and for a
    release of a single number. A plan refuses staircase noise for all other releases. The pure
    epsilons of several releases add up, so Laplace or Gaussian noise is better for them.
    """

    release_epsilon: float | None = None
    noise_multiplier: float | None = None
    error: Literal["squared", "absolute"] = "squared"

    decay: ClassVar[float] = 1.0
    norm = 1
    single = True

    def __post_init__(self) -> None:
        _check_level(self, error=choice("squared", "absolute"))
        _make_floats(self, "release_epsilon", "noise_multiplier")

    def per_step(self) -> float | None:
        """Return the noise multiplier if the arguments fix it; None if a total budget does."""
        return self.noise_multiplier if self.release_epsilon is None else 1.0 / self.release_epsilon

    def for_total(
        self, steps: int, epsilon: float, delta: float, ratios: Sequence[float] = (1.0,)
    ) -> float:
        """Return the multiplier that spends `epsilon` in `steps` releases per entry of `ratios`."""
        return laplace_multiplier(steps, epsilon, 0.0, ratios)

    def compose(self, composition: Composition, multiplier: float, count: int) -> Composition:
        """Return a composition with `count` further releases at this noise multiplier."""
        return composition.with_bounded(multiplier, count)

    def drawn(self, grid: Grid, multiplier: float, size: int, streams: Streams) -> Integers:
        """Return staircase noise in units of the grid's width; a row per random stream."""
        steps = self.steps(grid)
        narrow = min(max(1, round(self.first(multiplier) * steps)), steps)
        return staircase_rows(1.0 / multiplier, steps, narrow, size, streams)

    def steps(self, grid: Grid) -> int:
        """Return the largest change of a rounded number between neighbors, in grid steps (D).

        Two numbers at a distance s are rounded to integers at most s / width + 1 apart, and the
        grid's sensitivity is at least s + width. Division by a power of two is exact.
        """
        return math.ceil(grid.sensitivity / grid.width)

    def first(self, multiplier: float) -> float:
        """Return half of the width of the density's step around 0, for a sensitivity of 1."""
        epsilon = 1.0 / multiplier
        if self.error == "absolute":
            half = math.exp(-epsilon / 2)
            return max(half / (1 + half), _NARROWEST)
        if epsilon < _FLAT:
            return 0.5 - epsilon / 12
        b = math.exp(-epsilon)
        return max((math.cbrt(b * (1 + b) / 2) - b) / -math.expm1(-epsilon), _NARROWEST)

    def variance(self, multiplier: float, sensitivity: float = 1.0) -> float:
        """Return the variance of the noise in one component of a release."""
        epsilon, first = 1.0 / multiplier, self.first(multiplier)
        b, rest = math.exp(-epsilon), -math.expm1(-epsilon)
        height = first + b * (1 - first)
        linear = first**2 + b * (1 - first**2)
        inside = (first**3 + b * (1 - first**3)) / 3
        unit = b * (1 + b) / rest**2 + (b / rest * linear + inside) / height
        return unit * sensitivity * sensitivity

    def magnitudes(self, noise: Array, multiplier: float) -> Array:
        """Return -log of the probability that noise exceeds these magnitudes, at sensitivity 1.

        This value is exponentially distributed, like the magnitude of Laplace noise divided by its
        scale.
        """
        epsilon, first = 1.0 / multiplier, self.first(multiplier)
        away = np.abs(noise)
        whole = np.floor(away)
        part, b = away - whole, math.exp(-epsilon)
        below = np.minimum(part, first) + b * np.maximum(part - first, 0.0)
        share = below / (first + b * (1 - first))
        return whole * epsilon - np.log1p(math.expm1(-epsilon) * np.minimum(share, 1.0))

    def simulated(self, uniform: Array, multiplier: float, deviation: float) -> Array:
        """Return simulated noise of this standard deviation, from numbers between 0 and 1."""
        epsilon, first = 1.0 / multiplier, self.first(multiplier)
        b = math.exp(-epsilon)
        lost = -np.log1p(-2 * np.abs(uniform - 0.5))
        whole = np.floor(lost / epsilon)
        share = np.expm1(whole * epsilon - lost) / math.expm1(-epsilon)
        below = np.clip(share, 0.0, 1.0) * (first + b * (1 - first))
        # If rounding leaves the second part of a step without width, `below` never exceeds `first`.
        beyond = np.maximum(below - first, 0.0) / max(b, sys.float_info.min)
        part = np.minimum(np.minimum(below, first) + beyond, 1.0)
        scale = deviation / math.sqrt(self.variance(multiplier))
        return np.asarray(scale * np.sign(uniform - 0.5) * (whole + part))

    def __str__(self) -> str:
        return "Staircase"


Mechanism = Gaussian | Laplace | Staircase


@dataclass(frozen=True)
class Calibrated:
    """Noise mechanism with its multiplier; together with a sensitivity, it determines the noise.

    Agents, and requests to data owners, use it without a plan.
    """

    mechanism: Mechanism
    multiplier: float  # of a release in the first round
    # The k-th release of each round multiplies the multiplier by entry k, cyclically.
    weights: tuple[float, ...] = (1.0,)
    free: int = 0  # number of releases at the beginning that depend on no private data
    # Further factors of the multiplier in the first rounds, by round.
    first: tuple[float, ...] = ()
    # For runs that are charged as a whole before they begin: the sensitivity that all their noise
    # is scaled to, whatever the queries are. None if every release is charged by itself.
    # Fingerprints of plans omit it, because the other fields of a plan determine it.
    level: float | None = field(default=None, repr=False)
    # For secure aggregation: the part of the noise that each agent adds. The multiplier is then the
    # multiplier of the noise that a coalition cannot subtract. Fingerprints include this field only
    # if it is set, so that other plans keep their fingerprints.
    split: SplitNoise | None = field(default=None, repr=False)
    # For truncated noise: the limit, and the privacy loss of a release (in place of the
    # multiplier).
    truncation: Truncation | None = field(default=None, repr=False)
    # For objective perturbation: the random linear term, drawn before the minimizer is computed,
    # and the privacy loss of a release. The multiplier is then the multiplier of the noise on the
    # minimizer.
    linear: LinearTerm | None = field(default=None, repr=False)

    @property
    def norm(self) -> int:
        """Order (1 or 2) of the norm of the sensitivity of the values that receive noise."""
        return self.mechanism.norm if self.linear is None else self.linear.norm

    @cached_property
    def stated(self) -> tuple[float, float] | None:
        """The (epsilon, delta) of a release whose loss is bounded by this pair only; else None."""
        if self.linear is not None:
            return self.linear.epsilon, 0.0
        if self.truncation is not None:
            return self.truncation.epsilon, self.truncation.delta
        return None

    @property
    def requested(self) -> float:
        """Noise multiplier that a request states; objective perturbation derives its noise anew."""
        return self.multiplier if self.linear is None else 1 / self.linear.epsilon

    @property
    def alone(self) -> Calibrated:
        """The noise against all other parties, colluding; equals `self` unless distributed."""
        if self.split is None:
            return self
        return replace(self, multiplier=self.split.alone(self.multiplier), split=None)

    @property
    def prepaid(self) -> bool:
        """Return whether a run with this noise is charged as a whole before it begins."""
        return self.level is not None

    @property
    def steady(self) -> bool:
        """Return whether all releases have an equal noise multiplier."""
        even = set(self.weights) == {1.0} and not self.first
        return self.mechanism.decay == 1 and even and not self.free

    @property
    def as_written(self) -> str:
        """Code for a mechanism with this noise, to six digits; empty if no declaration gives it."""
        if not self.steady or self.split or self.stated or self.prepaid:
            return ""
        return f"dp.{type(self.mechanism).__name__}(noise_multiplier={self.multiplier:.6g})"

    def at(self, t: int, step: int = 1) -> Calibrated:
        """Return the noise of release `step` in round `t`, both from 1; round 0 comes first."""
        if self.steady:
            return self
        weight = self.weights[max(0, step - 1) % len(self.weights)]
        multiplier = self._times(max(0, t - 1), weight)
        split = None if self.split is None else self.split.times(multiplier / self.multiplier)
        return replace(
            self, multiplier=multiplier, split=split, weights=(1.0,), free=0, first=(), level=None
        )

    def _times(self, t: int, weight: float) -> float:
        """Return the noise multiplier of a release after `t` rounds, for its weight in a round."""
        scale = self.multiplier * (self.mechanism.decay**t * weight)
        return scale * self.first[t] if t < len(self.first) else scale

    def composed(self, count: int, each: int = 1) -> Composition:
        """Return the composition of the first `count` releases, `each` in every round."""
        compose = self.mechanism.compose
        if self.stated is not None:
            return Composition(stated=(self.stated,)).repeated(count)
        if self.steady:
            return compose(Composition(), self.multiplier, count)
        rounds, rest = divmod(count, each)
        charges: list[tuple[float, int]] = []
        for t in range(rounds + (rest > 0)):
            releases = each if t < rounds else rest
            for step, weight in enumerate(self.weights):
                like = len(range(step, releases, len(self.weights)))
                like -= t == 0 and step < self.free
                if like:
                    charges.append((self._times(t, weight), like))
        if isinstance(self.mechanism, Laplace):  # in a single call: multipliers may be many
            return Composition().with_laplaces(charges)
        return reduce(lambda total, part: compose(total, *part), charges, Composition())

    @property
    def release_epsilon(self) -> float:
        """Epsilon per release, which the step-size and penalty rules of the papers use.

        It is the declared `release_epsilon`. With a total budget or an explicit multiplier, it is
        1 / multiplier: the pure epsilon of a Laplace release with this multiplier.
        """
        declared = self.mechanism.release_epsilon
        return 1.0 / self.multiplier if declared is None else declared

    def variance(self, sensitivity: float) -> float:
        """Return the noise variance per component in a first-round release, without rounding."""
        if self.split is not None:
            return self.split.scale**2
        return self.mechanism.variance(self.multiplier, sensitivity)

    def simulated(self, uniform: Array, deviation: float) -> Array:
        """Return simulated noise of this standard deviation, from numbers between 0 and 1."""
        return self.mechanism.simulated(uniform, self.multiplier, deviation)

    def grid(self, sensitivity: float, size: int, floor: float = 0.0) -> Grid:
        """Return the grid, at least `floor` wide, and noise scale for `size` released numbers.

        The sensitivity is positive. With distributed noise it may be 0, because agents without
        private data also add noise.

        Raises
        ------
        PrivacyError
            If no grid fits, if distributed noise is too small for the sensitivity, or if truncated
            noise was planned for fewer components.
        """
        if self.truncation is not None and size > self.truncation.size:
            raise PrivacyError(
                f"Truncated noise was planned for {self.truncation.size} components, and a release "
                f"has {size}. Plan for releases of that size."
            )
        if self.split is not None:
            return self._split_grid(self.split, sensitivity, size, floor)
        return grid_for(sensitivity, size, self.mechanism.norm, self.multiplier, floor)

    def _noise(self, grid: Grid, size: int, streams: Streams) -> Integers:
        """Return noise for `size` numbers, as integers in grid widths; a row per stream.

        With truncated noise, a row with an entry beyond the limit is redrawn until none is beyond
        it.
        """
        # `grid.scale` contains the multiplier; only staircase noise needs it by itself.
        noise = self.mechanism.drawn(grid, self.multiplier, size, streams)
        if self.truncation is not None:
            limit = self.truncation.steps(grid)
            for i in np.flatnonzero((np.abs(noise) > limit).any(axis=1)).tolist():
                stream = Alone(streams.one(i))
                while np.abs(noise[i]).max() > limit:
                    noise[i] = self.mechanism.drawn(grid, self.multiplier, size, stream)[0]
        return noise

    def _split_grid(self, split: SplitNoise, sensitivity: float, size: int, floor: float) -> Grid:
        rounded = sensitivity + split.width * math.sqrt(size) if sensitivity > 0 else 0.0
        if floor > split.width or self.multiplier * rounded > split.together * _ROUNDED:
            raise PrivacyError(
                "The method's query does not fit the distributed noise of this plan: the "
                "query's values change more with the data, or have larger public terms. With "
                "secure aggregation, send queries for gradients or second moments only."
            )
        return Grid(split.width, rounded, split.scale)

    def hidden_grid(self, size: int) -> Grid:
        """Return the grid for `size` unreleased numbers of a run that is charged as a whole."""
        assert self.level is not None
        return finest_grid(self.level, size, self.multiplier)

    def release(self, value: Array, grid: Grid, stream: Randomness) -> Array:
        """Return the result of `release_rows` for a single value of shape (n,)."""
        return self.release_rows(value[np.newaxis], grid, Alone(stream))[0]

    def release_rows(self, values: Array | Unrounded, grid: Grid, streams: Streams) -> Array:
        """Apply the mechanism: round values to the grid and add noise from each value's stream.

        Parameters
        ----------
        values : ndarray or Unrounded, of shape (streams, n)
        grid : Grid
            Grid and noise scale, from `grid`.
        streams : Streams
            One random stream per row of `values`.

        Returns
        -------
        ndarray, shape (streams, n)
            Multiples of the grid's width; with distributed noise, reduced by
            `split_noise.residues`.
        """
        errors = None
        if isinstance(values, Unrounded):
            values, errors = values.values, values.errors
        noise = self._noise(grid, values.shape[1], streams)
        if self.split is not None:
            # Not clipped: any change to one agent's summand must be visible in the sum alone.
            with np.errstate(all="ignore"):  # a warning would reveal something about the values
                terms = residues(np.rint(values / grid.width))
            return np.asarray(grid.width * residues(terms + noise), dtype=np.float64)
        return np.asarray(grid.width * (on_grid(values, grid, errors) + noise), dtype=np.float64)


def _make_floats(mechanism: Mechanism, *names: str) -> None:
    """Store fields of a mechanism as floats: equal numbers of other types could change noise."""
    for name in names:
        value = getattr(mechanism, name)
        if finite(value):
            object.__setattr__(mechanism, name, float(value))


_LEVEL = optional(
    POSITIVE.because("a level of noise. To run without noise, plan with mechanism=None")
)
_DECAY = Kind(
    lambda value: positive_finite(value) and float(value) <= 1,  # type: ignore[arg-type]
    "above 0 and at most 1: by this factor the noise falls from round to round, and later rounds "
    "cost more. 1 keeps it constant",
)


def _check_level(mechanism: Mechanism, **kinds: Kind) -> None:
    name = f"dp.{type(mechanism).__name__}"
    if mechanism.release_epsilon is not None and mechanism.noise_multiplier is not None:
        raise PrivacyError(f"{name} takes release_epsilon or noise_multiplier, not both; drop one.")
    levels = {"release_epsilon": _LEVEL, "noise_multiplier": _LEVEL}
    if not mechanism.single:
        levels["decay"] = _DECAY
    check_fields(mechanism, name, PrivacyError, **levels, **kinds)


# Mechanisms by the names that ledger entries use.
MECHANISMS: dict[str, Mechanism] = {str(m): m for m in (Gaussian(), Laplace(), Staircase())}
