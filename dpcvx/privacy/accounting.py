r"""Composition of releases into one guarantee, and calibration of noise to a total budget.

Releases are counted by their noise multiplier: the noise scale divided by the sensitivity of the
released value, under the declared neighboring relation. All-Gaussian sequences compose exactly:
together they are one Gaussian mechanism of parameter :math:`\mu^2 = \sum_k m_k^{-2}`. Sequences
with Laplace noise are bounded by the sum of their pure epsilons and by the privacy loss
distribution of ``dp_accounting`` (Gaussians merged first); the smaller one is returned with its
name. If there are too many releases for a loss distribution, each counts as the Gaussian mechanism
that hides no more than it does (`gaussian.laplace_mu`).

Releases with staircase noise are counted by their pure epsilon alone, which is added to the
epsilon of all other releases; or each counts as the Gaussian mechanism that hides no more than any
release of that epsilon (`gaussian.pure_mu`).

A vector released with Laplace noise of multiplier m in l1 is counted as one scalar release of
multiplier m. This is an upper bound: for two coordinates that share the sensitivity as a + b, with
L the loss of the second, :math:`1 - \delta(\epsilon) = E[\min(1, e^{(\epsilon - L - a)/2})]
\ge e^{(\epsilon - a - b)/2}` for a >= b and epsilon in [0, a + b], because L <= b, and the right
side belongs to the scalar release; more coordinates follow by induction, since domination is kept
under composition.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from .._arguments import finite, positive_finite, show
from ..errors import PrivacyError
from .gaussian import (
    gaussian_epsilon,
    gaussian_mu,
    gaussian_sigma,
    laplace_mu,
    log_delta,
    pure_mu,
)

# Relative margin by which calibrated multipliers are rounded up.
_UP = 1 + 1e-11
# Relative bound of the rounding errors of a few operations.
_ROUNDED = 1 + 1e-15
# Multipliers and budgets below this value, or above its inverse, are refused.
_SMALLEST = 1e-100
# Relative accuracy of calibrated multipliers of Laplace noise.
_CLOSE = 1e-6
# Grid width for privacy loss distributions. Bounds hold for any width; finer is tighter and slower.
_GRID = 1e-4
# A wider grid has steps of more than a factor of e^100, so that a loss distribution is looser than
# a closed bound. Its numbers overflow from a factor of e^709 on.
_WIDEST = 100.0
# With more Laplace releases, or more distinct multipliers, a loss distribution takes too long.
_MANY, _DIFFERENT = 100_000, 10_000


@dataclass(frozen=True)
class Price:
    """Privacy loss of releases: an (epsilon, delta) pair and the composition rule that gave it."""

    epsilon: float
    delta: float
    accountant: str


@dataclass(frozen=True)
class Composition:
    """A multiset of releases, with the numbers of each kind that their composition depends on.

    Attributes
    ----------
    mu2 : float
        Sum of ``1 / m**2`` over the Gaussian releases.
    laplace : tuple of (multiplier, count)
        The Laplace releases, by increasing multiplier.
    exposed : bool
        Whether any value was released without noise.
    stated : tuple of (epsilon, delta)
        Pair (epsilon, delta) of each release without any other known bound; sums add up both
        numbers.
    bounded : tuple of (multiplier, count)
        Releases with staircase noise, by increasing multiplier. Each has the pure epsilon
        ``1 / multiplier``.
    """

    mu2: float = 0.0
    laplace: tuple[tuple[float, int], ...] = field(default=())
    exposed: bool = False
    stated: tuple[tuple[float, float], ...] = field(default=())
    bounded: tuple[tuple[float, int], ...] = field(default=())

    def with_exposure(self) -> Composition:
        """Return this composition with a release without noise, so that its epsilon is infinite."""
        return replace(self, exposed=True)

    def with_gaussian(self, multiplier: float, count: int = 1) -> Composition:
        """Return this composition with `count` more Gaussian releases of one noise multiplier."""
        multiplier = _checked(multiplier, count)
        return replace(self, mu2=self.mu2 + count / multiplier**2)

    def with_laplace(self, multiplier: float, count: int = 1) -> Composition:
        """Return this composition with `count` more Laplace releases of one noise multiplier."""
        return self.with_laplaces([(multiplier, count)])

    def with_laplaces(self, releases: Iterable[tuple[float, int]]) -> Composition:
        """Return this composition with more Laplace releases: pairs (noise multiplier, count)."""
        return replace(self, laplace=_added(self.laplace, releases))

    def with_bounded(self, multiplier: float, count: int = 1) -> Composition:
        """Return this composition with `count` more staircase releases of one noise multiplier."""
        return replace(self, bounded=_added(self.bounded, [(multiplier, count)]))

    def repeated(self, times: int) -> Composition:
        """Return the composition of these releases, each repeated `times` times."""
        laplace = tuple((m, times * count) for m, count in self.laplace)
        bounded = tuple((m, times * count) for m, count in self.bounded)
        mu2, stated = times * self.mu2, times * self.stated
        return Composition(mu2, laplace, self.exposed, stated, bounded)

    def joined(self, other: Composition) -> Composition:
        """Return the composition of the releases in this and another composition."""
        joined = replace(
            self,
            mu2=self.mu2 + other.mu2,
            exposed=self.exposed or other.exposed,
            stated=self.stated + other.stated,
            bounded=_added(self.bounded, other.bounded) if other.bounded else self.bounded,
        )
        return joined.with_laplaces(other.laplace) if other.laplace else joined

    @property
    def _pure(self) -> tuple[tuple[float, int], ...]:
        """Multiplier and count of the Laplace and staircase releases, which have a pure epsilon."""
        return self.laplace + self.bounded

    @property
    def rho(self) -> float:
        """Parameter of zero-concentrated differential privacy (Bun and Steinke, 2016).

        ``1 / (2 m^2)`` per Gaussian release, half the square of epsilon per other release.
        """
        if self.exposed or self.stated:
            return math.inf
        return self._squares / 2

    @property
    def pure(self) -> float:
        """Sum of the pure epsilons (delta = 0) of all releases; infinite if a release has none."""
        if self.mu2 > 0 or self.exposed or self.stated:
            return math.inf
        return math.fsum(count / m for m, count in self._pure)

    @property
    def mu2_bound(self) -> float:
        """Square mu^2 of a Gaussian mechanism that is at most as private as all releases."""
        if self.exposed or self.stated:
            return math.inf
        total = self.mu2
        for releases, mu in ((self.laplace, laplace_mu), (self.bounded, pure_mu)):
            losses = np.array([1 / m for m, _ in releases])
            counts = np.array([float(count) for _, count in releases])
            total += float(counts @ mu(losses) ** 2)
        return total

    def price(self, delta: float) -> Price:
        """Return the smallest epsilon that this package can prove for the releases at `delta`.

        The noise multipliers must not depend on earlier outputs, as within one plan. See
        `adaptive` for several runs that are planned one after the other.

        Raises
        ------
        PrivacyError
            If delta is outside [0, 1).
        """
        check_delta(delta)
        if self.exposed:
            return Price(math.inf, delta, "released without noise")
        if self.stated:
            return self._with_stated(delta)
        if self.bounded:
            return self._with_bounded(delta)
        if self.mu2 == 0:
            pure = Price(self.pure, delta, "sum of pure epsilons")
            if delta == 0 or not self.laplace:
                return pure
            return min(pure, self._with_losses(delta), key=lambda price: price.epsilon)
        if delta == 0:
            return Price(math.inf, 0.0, "Gaussian noise has no finite epsilon at delta = 0")
        if not self.laplace:
            epsilon = gaussian_epsilon(math.sqrt(self.mu2), delta)
            return Price(epsilon, delta, "exact Gaussian composition")
        losses = math.fsum(count / m for m, count in self.laplace)
        summed = gaussian_epsilon(math.sqrt(self.mu2), delta) + losses
        return min(
            Price(summed, delta, "exact Gaussian composition plus pure epsilons"),
            self._with_losses(delta),
            key=lambda price: price.epsilon,
        )

    def _with_stated(self, delta: float) -> Price:
        epsilon = math.fsum(e for e, _ in self.stated)
        left = delta - math.fsum(d for _, d in self.stated)
        pure = all(d == 0 for _, d in self.stated)
        name = "sum of pure epsilons" if pure else "sum of epsilons that were stated at a delta"
        if left < -1e-12 * delta:
            return Price(math.inf, delta, f"{name}, which together exceed this one")
        rest = replace(self, stated=())
        if rest == Composition():
            return Price(epsilon, delta, name)
        other = rest.price(max(left, 0.0))
        return Price(epsilon + other.epsilon, delta, f"{name}, plus {other.accountant}")

    def _with_bounded(self, delta: float) -> Price:
        """Return the privacy loss of releases that include staircase noise, by the better rule.

        One rule adds up pure epsilons. The other composes Gaussian mechanisms that are at most as
        private.
        """
        rest = replace(self, bounded=())
        losses = math.fsum(count / m for m, count in self.bounded)
        other = rest.price(delta)
        name = "sum of pure epsilons"
        if rest != Composition() and other.accountant != name:
            name += f", plus {other.accountant}"
        summed = Price(losses + other.epsilon, delta, name)
        if delta == 0 or self._releases == 1:
            return summed
        epsilon = gaussian_epsilon(math.sqrt(self.mu2_bound), delta)
        bound = Price(epsilon, delta, "Gaussian bound of staircase noise")
        return min(summed, bound, key=lambda price: price.epsilon)

    @property
    def _releases(self) -> float:
        """Number of releases; infinite with Gaussian noise, which is stored without a count."""
        return math.inf if self.mu2 > 0 else sum(count for _, count in self._pure)

    def _with_losses(self, delta: float) -> Price:
        """Return the releases' epsilon by their privacy loss distribution, or by a Gaussian bound.

        A single Laplace release has the closed form ``1 / m + 2 log(1 - delta)``: its loss is at
        most ``1 / m``, and delta is ``1 - exp((epsilon - 1 / m) / 2)`` for epsilon in [0, 1 / m].
        """
        if self.mu2 == 0 and len(self.laplace) == 1 and self.laplace[0][1] == 1:
            most = 1 / self.laplace[0][0]
            epsilon = max(0.0, most * _ROUNDED + 2 * math.log1p(-delta) / _ROUNDED)
            return Price(epsilon, delta, "privacy loss distribution")
        many = sum(count for _, count in self.laplace) > _MANY or len(self.laplace) > _DIFFERENT
        if many or self._width > _WIDEST:
            epsilon = gaussian_epsilon(math.sqrt(self.mu2_bound), delta)
            return Price(epsilon, delta, "Gaussian bound of Laplace noise")
        return Price(self._loss_distribution(delta), delta, "privacy loss distribution")

    @property
    def _squares(self) -> float:
        """Sum of ``1 / m^2`` over all releases, for noise multipliers m."""
        return self.mu2 + math.fsum(count / m**2 for m, count in self._pure)

    @property
    def _width(self) -> float:
        """Grid width of the privacy loss distribution; it grows with losses, to bound run time."""
        squares = self._squares
        return _GRID * max(1.0, math.sqrt(squares), squares)

    def _loss_distribution(self, delta: float) -> float:
        from dp_accounting import GaussianDpEvent, LaplaceDpEvent, pld

        accountant = pld.PLDAccountant(value_discretization_interval=self._width)
        if self.mu2 > 0:
            accountant.compose(GaussianDpEvent(1 / math.sqrt(self.mu2)))
        for multiplier, count in self.laplace:
            accountant.compose(LaplaceDpEvent(multiplier), count)
        return float(accountant.get_epsilon(delta))


def gaussian_multiplier(
    steps: int, epsilon: float, delta: float, ratios: Sequence[float] = (1.0,)
) -> float:
    """Return the least noise multiplier for (epsilon, delta)-DP of `steps` Gaussian releases.

    Parameters
    ----------
    steps : int
        Number of releases at each ratio.
    epsilon, delta : float
        Total privacy budget; both are positive.
    ratios : sequence of float
        Noise multipliers of the releases, relative to the returned multiplier.

    Returns
    -------
    float
        Standard deviation over l2 sensitivity, rounded up by about 1e-11.

    Raises
    ------
    PrivacyError
        If the budget is out of range, or delta is 0, which no Gaussian noise can give.
    """
    check_epsilon(epsilon)
    _check_ratios(ratios)
    if delta == 0:
        raise PrivacyError(
            "Gaussian noise cannot give delta = 0: its privacy loss is unbounded. State a delta "
            "such as 1e-6, or use mechanism=dp.Laplace()."
        )
    check_delta(delta)
    with np.errstate(all="ignore"):
        sigma = gaussian_sigma(epsilon, delta)
    widen, wanted = 1e-12, math.log(delta)
    # Rounding may put the root on the unsafe side, noticeably only for tiny epsilon.
    while not float(log_delta(epsilon / _UP, 1 / sigma)) <= wanted:
        if widen > 1e-10:
            sigma = _UP / gaussian_mu(epsilon, delta)
            break
        sigma *= 1 + widen
        widen *= 2
    return _checked(sigma * math.sqrt(steps * math.fsum(1 / r**2 for r in ratios)))


def laplace_multiplier(
    steps: int, epsilon: float, delta: float, ratios: Sequence[float] = (1.0,)
) -> float:
    """Return the least noise multiplier for (epsilon, delta)-DP of `steps` Laplace releases.

    Parameters
    ----------
    steps, epsilon, delta, ratios
        See `gaussian_multiplier`; here, delta may be 0.

    Returns
    -------
    float
        Noise scale over l1 sensitivity; at most 1e-6 too large (relative), exact for one release.

    Raises
    ------
    PrivacyError
        If the budget is out of range.
    """
    check_epsilon(epsilon)
    check_delta(delta)
    _check_ratios(ratios)
    pure = _checked(steps * math.fsum(1 / r for r in ratios) / epsilon * _UP)
    if delta == 0:
        return pure
    if steps == 1 and tuple(ratios) == (1.0,):
        return min(pure, _checked(_UP / (epsilon - 2 * math.log1p(-delta))))

    def spent(multiplier: float) -> float:
        counts = tuple(sorted((multiplier * r, steps) for r in ratios))
        return Composition(laplace=counts).price(delta).epsilon

    # The losses of many Laplace releases are nearly Gaussian with an equal multiplier.
    guess = min(pure, gaussian_multiplier(steps, epsilon, delta, ratios))
    return smallest_multiplier(spent, epsilon, guess, most=pure)


def smallest_multiplier(
    spent: Callable[[float], float],
    epsilon: float,
    guess: float,
    *,
    most: float = math.inf,
    close: float = _CLOSE,
) -> float:
    """Return the smallest noise multiplier that spends at most `epsilon`, by bisection.

    Parameters
    ----------
    spent : callable
        Function from a multiplier to the epsilon that it spends, which decreases.
    epsilon, guess : float
        Allowed epsilon, and a first guess of the multiplier.
    most : float
        A multiplier that spends at most `epsilon`, if a formula gives it.
    close : float
        Relative accuracy of the returned multiplier, which is rounded up.
    """
    high = guess
    while (least := spent(high)) > epsilon:
        high = min(1.25 * high, most)
    low = high / 1.25
    while (above := spent(low)) <= epsilon:
        low, high, least = low / 1.25, low, above
    while high / low > 1 + close:
        # log(spent) is nearly linear in log(multiplier). Two trial points around the interpolated
        # one move both ends of the bracket. If delta alone covers the loss, epsilon is 0 and has no
        # logarithm.
        bracketed = 0 < least < above < math.inf
        part = math.log(above / epsilon) / math.log(above / least) if bracketed else 0.5
        guess = low * (high / low) ** min(max(part, 0.05), 0.95)
        for middle in (guess * (1 + close / 3), guess / (1 + close / 3)):
            if not low < middle < high:
                continue
            value = spent(middle)
            if value <= epsilon:
                high, least = middle, value
            else:
                low, above = middle, value
    return high


def classical_gaussian_multiplier(epsilon: float, delta: float) -> float:
    """Return the textbook noise multiplier ``sqrt(2 ln(1.25/delta)) / epsilon`` of one release.

    Its proof covers epsilon <= 1 only (Dwork and Roth, 2014, Theorem A.1). The package uses it only
    to choose an amount of noise, and computes the privacy loss of this noise by exact composition.

    Parameters
    ----------
    epsilon, delta : float
        Privacy level of one release; both are positive.
    """
    check_epsilon(epsilon)
    check_delta(delta)
    if delta == 0:
        raise PrivacyError("The classical Gaussian calibration needs release_delta > 0.")
    return math.sqrt(2 * math.log(1.25 / delta)) / epsilon


def ryu_kim_claim(steps: int, epsilon: float, delta: float) -> float:
    """Return the total epsilon that Theorem 4.9 of Ryu and Kim claims for `steps` releases.

    The formula is ``sqrt(TE ln(1/delta) / ln(1.25/delta)) epsilon``. It is not a bound: the proof
    bounds ln(delta) from the wrong side, so the condition is necessary and not sufficient. For 100
    releases at (1, 1e-2) it gives 9.766, and the exact value is 11.918.

    Parameters
    ----------
    steps : int
        Number of releases T E: rounds times local updates.
    epsilon, delta : float
        Privacy level of each release.
    """
    return math.sqrt(steps * math.log(1 / delta) / math.log(1.25 / delta)) * epsilon


def _added(
    counted: tuple[tuple[float, int], ...], releases: Iterable[tuple[float, int]]
) -> tuple[tuple[float, int], ...]:
    """Return (multiplier, count) pairs with further releases added, by increasing multiplier."""
    counts = dict(counted)
    for given, count in releases:
        multiplier = _checked(given, count)
        counts[multiplier] = counts.get(multiplier, 0) + count
    return tuple(sorted(counts.items()))


def _check_ratios(ratios: Sequence[float]) -> None:
    if min(ratios) < _SMALLEST:
        raise PrivacyError(
            f"The noise would fall to {min(ratios):.3g} of what it is at first, which is too small "
            "to compute with. Use fewer rounds, or a decay= closer to 1."
        )


def check_delta(delta: float | None) -> None:
    """Raise an error for a delta outside [0, 1)."""
    if not (finite(delta) and 0 <= float(delta) < 1):  # pyright: ignore[reportArgumentType]
        raise PrivacyError(
            f"delta must be at least 0 and below 1, got {show(delta)}. It is the probability that "
            "the guarantee fails: choose it well below one over the number of people protected, "
            "for example delta=1e-6."
        )


def check_epsilon(epsilon: float | None) -> None:
    """Raise an error for an epsilon that is not a positive number between 1e-100 and 1e100."""
    number = float(epsilon) if epsilon is not None and positive_finite(epsilon) else math.nan
    if not _SMALLEST <= number <= 1 / _SMALLEST:
        raise PrivacyError(
            f"epsilon={show(epsilon)} is not a privacy budget: write a positive finite number "
            f"between {_SMALLEST:g} and {1 / _SMALLEST:g} that noise can be scaled to, for example "
            "epsilon=1.0."
        )


def _checked(multiplier: float, count: int = 1) -> float:
    multiplier = float(multiplier)  # numpy numbers of few bits overflow when squared
    # In this range, squares and sums of inverse squares do not overflow.
    if not (math.isfinite(multiplier) and _SMALLEST <= multiplier <= 1 / _SMALLEST):
        raise PrivacyError(
            f"A noise multiplier of {show(multiplier)} cannot be accounted for: it must be a "
            f"finite number between {_SMALLEST:g} and {1 / _SMALLEST:g} (noise scale over "
            "sensitivity)."
        )
    if count < 0:
        raise PrivacyError(f"A negative number of releases ({count}) cannot be accounted for.")
    return multiplier
