"""Runs on one ledger, each chosen by what the others released, stay within its budget together.

A random strategy looks at the likelihood ratio of all outputs so far and picks the next plan from a
menu, or stops; every plan goes as far as the ledger lets it. Of all strategies over a menu the best
is found by dynamic programming on a lattice of privacy losses, which gives the exact delta at the
budget's epsilon up to the width of the lattice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.signal import fftconvolve
from scipy.special import ndtr

import dpcvx as dp
from dpcvx.privacy.accounting import Composition
from dpcvx.privacy.accounts import Account, Budget
from dpcvx.privacy.entries import Entry
from dpcvx.privacy.mechanism import Calibrated
from tests.campaigns.tally import Tally

FULL = 400

EPSILON, DELTA = 1.0, 1e-4
# The lattice, and the relative error of a delta that it causes, at most.
WIDTH, REACH, ERROR = 5e-4, 8.0, 1e-3
LOSS = WIDTH * np.arange(-round(REACH / WIDTH), round(REACH / WIDTH) + 1)
KINDS = ("Gaussian", "Laplace", "few Laplace", "falling", "pair")
STOP = np.maximum(0.0, -np.expm1(LOSS))


@dataclass(frozen=True)
class Noise:
    """A plan of up to `count` releases."""

    calibrated: Calibrated
    count: int

    def taken(self, account: Account) -> tuple[Account, np.ndarray] | None:
        """The account after as many releases as it affords, and the law of their loss."""
        account = account.copy()
        times = account.affordable(self.calibrated, self.count)
        if times == 0:
            return None
        law = np.where(LOSS == 0, 1.0, 0.0)
        for k in range(times):
            one = self.calibrated.at(k + 1)
            account.charge(entry(one, k), one)
        composition = self.calibrated.composed(times)
        # The plan is the one of so many releases: a ledger goes on from what was planned.
        assert account.budget is not None
        account.budget = replace(account.budget, planned=composition)
        if composition.mu2 > 0:
            law = joined(
                law, on_lattice(lambda x: ndtr(x / np.sqrt(composition.mu2)), composition.mu2 / 2)
            )
        for multiplier, number in composition.laplace:
            law = joined(law, power(laplace(1 / multiplier), number))
        return account, law


@dataclass(frozen=True)
class Pair:
    """A run that is known by an (epsilon, delta) pair only, and loses exactly as much."""

    epsilon: float
    delta: float

    def taken(self, account: Account) -> tuple[Account, np.ndarray] | None:
        """The account after it, and the law of its loss; delta of it is certain to be caught."""
        account = account.copy()
        try:
            loss = Composition(stated=((self.epsilon, self.delta),))
            account.charge_run(entry(None, 0, (self.epsilon, self.delta)), loss)
        except dp.PrivacyError:
            return None
        likely = 1 / (1 + np.exp(-self.epsilon))
        law = np.zeros_like(LOSS)
        for loss, weight in ((self.epsilon, likely), (-self.epsilon, 1 - likely)):
            law[np.argmin(np.abs(LOSS - loss))] = (1 - self.delta) * weight
        return account, law


@dataclass(frozen=True)
class Filling:
    """A plan of `count` releases with the least noise that the ledger lets it have."""

    mechanism: dp.Gaussian | dp.Laplace
    count: int

    def taken(self, account: Account) -> tuple[Account, np.ndarray] | None:
        """The account after it, and the law of its loss."""
        low, high = 0.1, 300.0
        if account.affordable(Calibrated(self.mechanism, high), self.count) < self.count:
            return None
        while high / low > 1 + 1e-4:
            middle = np.sqrt(low * high)
            fits = account.affordable(Calibrated(self.mechanism, middle), self.count) == self.count
            low, high = (low, middle) if fits else (middle, high)
        found = on_points(Calibrated(self.mechanism, float(high)))
        return Noise(found, self.count).taken(account)


Plan = Noise | Pair | Filling


def entry(calibrated: Calibrated | None, k: int, stated=None) -> Entry:
    """A line of the ledger."""
    noise = "Gaussian" if calibrated is None else str(calibrated.mechanism)
    multiplier = 0.0 if calibrated is None else calibrated.multiplier
    return Entry(k + 1, 1, noise, multiplier, 1.0, 2.0**-20, "derived", "gradient", stated)


def on_lattice(cdf, mean: float) -> np.ndarray:
    """A law about a mean, each loss at the nearest point."""
    edges = np.append(LOSS, LOSS[-1] + WIDTH) - WIDTH / 2 - mean
    return np.diff(cdf(edges))


def laplace(epsilon: float) -> np.ndarray:
    """The loss of one Laplace release, whose ends have positive probability, not rounded up."""

    def between(x):
        return np.exp((np.clip(x, -epsilon, epsilon) - epsilon) / 2) / 2

    law = on_lattice(between, 0.0)
    for end, weight in ((epsilon, 0.5), (-epsilon, np.exp(-epsilon) / 2)):
        law[np.searchsorted(LOSS, end + 1e-9, side="right") - 1] += weight
    return law


def on_points(calibrated: Calibrated) -> Calibrated:
    """With a little more noise, so that the ends of Laplace losses are points of the lattice."""
    if not isinstance(calibrated.mechanism, dp.Laplace) or calibrated.multiplier * WIDTH > 1:
        return calibrated
    steps = np.floor(1 / calibrated.multiplier / WIDTH)
    return replace(calibrated, multiplier=float(1 / (steps * WIDTH)))


def joined(one: np.ndarray, two: np.ndarray) -> np.ndarray:
    """The law of a sum."""
    return np.maximum(fftconvolve(one, two, mode="same"), 0.0)


def power(law: np.ndarray, number: int) -> np.ndarray:
    """The law of the sum of so many."""
    found = np.where(LOSS == 0, 1.0, 0.0)
    while number:
        if number % 2:
            found = joined(found, law)
        law, number = joined(law, law), number // 2
    return found


def expected(value: np.ndarray, law: np.ndarray, caught: float = 0.0) -> np.ndarray:
    """The mean of what is reached, by the epsilon that is left before the loss."""
    # To the left of the lattice next to everything is lost, to the right nothing.
    n = len(LOSS)
    padded = np.concatenate([np.full(n, value[0]), value, np.zeros(n)])
    return caught + fftconvolve(padded, law, mode="same")[n : 2 * n]


def best(account: Account, menu: Sequence[Plan], runs: int) -> np.ndarray:
    """The largest delta, by the epsilon that is left, of up to so many further runs."""
    value = STOP
    for plan in menu if runs else ():
        assert account.budget is not None
        fresh = Account("bob", {}, replace(account.budget, planned=Composition()))
        taken = plan.taken(account.continued(fresh))
        if taken is not None:
            after, law = taken
            caught = plan.delta if isinstance(plan, Pair) else 0.0
            value = np.maximum(value, expected(best(after, menu, runs - 1), law, caught))
    return value


def largest_delta(
    first: Plan, menu: Sequence[Plan], runs: int, epsilon: float, delta: float
) -> float | None:
    """Of the best strategy that begins with a plan; None if the budget does not cover that."""
    taken = first.taken(Account("bob", {}, Budget(epsilon, delta, Composition())))
    if taken is None:
        return None
    after, law = taken
    caught = first.delta if isinstance(first, Pair) else 0.0
    found = expected(best(after, menu, runs - 1), law, caught)
    return float(np.interp(epsilon, LOSS, found))


def drawn(rng: np.random.Generator, kind: str) -> Plan:
    """A plan that by itself spends between a quarter of the budget and more than all."""
    share = rng.uniform(0.25, 1.1)
    if kind == "pair":
        epsilon = WIDTH * round(share * EPSILON / WIDTH / 2)
        return Pair(epsilon, DELTA * rng.choice([0.1, 0.5, 1.0]))
    if kind == "few Laplace":
        count = int(rng.integers(1, 4))
        return Noise(on_points(Calibrated(dp.Laplace(), count / share / (1.5 * EPSILON))), count)
    count = int(rng.integers(2, 20))
    multiplier = 3.4 * np.sqrt(count) / share / EPSILON
    if kind == "falling":
        falling = dp.Gaussian(decay=0.9) if rng.random() < 0.5 else dp.Laplace(decay=0.9)
        return Noise(Calibrated(falling, 1.5 * multiplier), count)
    mechanism = dp.Laplace() if kind == "Laplace" else dp.Gaussian()
    return Noise(on_points(Calibrated(mechanism, multiplier)), count)


def campaign(size: int, seed: int) -> Tally:
    """Random menus of two or three plans and two to four runs."""
    tally = Tally()
    for trial in range(size):
        rng = np.random.default_rng((seed, trial))
        kinds = rng.choice(KINDS, size=rng.integers(1, 3), replace=False)
        menu: list[Plan] = [drawn(rng, kind) for kind in kinds]
        first = menu[0]
        # The last choice is between plans that fill the budget, as far as it is not full.
        menu += [Filling(dp.Laplace(), int(rng.integers(1, 4))), Filling(dp.Gaussian(), 1)]
        runs = int(rng.integers(2, 5))
        found = largest_delta(first, menu, runs, EPSILON, DELTA)
        if found is None:
            tally.add("the first plan does not fit")
            continue
        broken = found > DELTA * (1 + ERROR)
        fault = f"trial {trial}, seed {seed}: delta {found:.4g} of {DELTA:g}: {menu}, {runs} runs"
        level = "more than half" if found > 0.5 * DELTA else "less"
        tally.add("broken" if broken else f"{level} of delta", fault if broken else None)
    return tally
