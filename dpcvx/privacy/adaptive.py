r"""Total privacy loss of runs on the same data, each planned after seeing the others' outputs.

Inside a plan, all noise multipliers are fixed in advance, so that the privacy loss is the loss of
their composition. The next plan may depend on earlier outputs, and then losses do not simply
compose. Two plans may each fit a budget, with tails of different shape: choosing between them by
the first run's output spends more than the budget's delta. All runs in one ledger are therefore
charged by one rule that is proved for every adaptive choice.

*Gaussian filter.* Every release counts as a Gaussian mechanism that hides no more than it does,
with :math:`\mu = 1 / m` for Gaussian noise of multiplier m, `gaussian.laplace_mu` for Laplace noise
and `gaussian.pure_mu` for staircase noise. If :math:`\sum \mu_i^2 \le \mu^2` whatever happens, all
releases together hide at least as much as one Gaussian mechanism of parameter mu. For the proof,
take a Brownian motion with drift b, where b is 0 or 1 by the data. Each release can be computed
from an interval of length :math:`\mu_i^2`, one interval after the other and within :math:`\mu^2` in
all, however the releases are chosen. Only the end of the motion depends on b (Smith and Thakurta,
2022, with another proof). For Laplace noise on a vector with shares :math:`a_j` of the multiplier's
epsilon, the privacy profile is at most the profile of scalar noise (`accounting`). This is a
statement about trade-off functions as well, since both are symmetric.

*Pure filter.* While the sum of pure epsilons stays within epsilon, no output is more than
:math:`e^\epsilon` times as likely under one data set, and no delta is used. So a run may also
continue if only this filter allows it. Outputs of such continuations add nothing to delta. All
other outputs belong to a strategy that stops when the Gaussian filter refuses.

*The first run* on an empty account is fixed before any output, so its own price holds for it alone.
This price may be lower than the Gaussian filter's. Outputs must not choose between two rules that
each use the full delta. A later run is therefore allowed only if the first run, as planned and not
as it ended, is within the Gaussian filter too: then every outcome is. Otherwise, which was certain
before any output, only pure losses may follow.

*Stated pairs.* A run whose loss is known as an (epsilon, delta) pair only may come before all
others. Later runs have the remaining budget, by basic composition, which holds for adaptive
choices. Such a run may not come later, because the share of delta would then depend on earlier
outputs.

*Groups.* If several agents may hold one person's data, each of their accounts counts every release
as if all members of the group made it. If every account's sum of :math:`\mu^2` is within the
budget, so is the group's sum, whether or not an agent releases in the next run. At delta = 0, sums
of pure epsilons behave alike. If one account could use one rule and another the other, only the
Gaussian rule is used. Before every run, each account of a group is therefore compared with the new
budget, by the rule for its delta. At delta = 0, an account with Gaussian noise stops its whole
group.

A filter's budget is fixed in advance. If you raise it after seeing outputs, you have spent the loss
that the filter states at the end. You may not quote the smaller loss of a moment that an output
chose.
"""

from __future__ import annotations

import math
from dataclasses import replace

from .accounting import Composition, Price, check_delta
from .gaussian import gaussian_epsilon, log_delta

# Relative tolerance for sums of equal terms in another order.
_SLACK = 1e-9


def noise_of(total: Composition) -> Composition:
    """Return a composition without its releases that are bounded by (epsilon, delta) only."""
    return replace(total, stated=())


def price(total: Composition, committed: float, delta: float, *, pooled: bool) -> Price:
    """Return the smallest epsilon proved for releases of runs that are planned one by one.

    Parameters
    ----------
    total : Composition
        All releases of all runs.
    committed : float
        Gaussian parameter mu^2 of the first run with noise, as it was planned.
    delta : float
        Delta at which epsilon is computed.
    pooled : bool
        Whether the account belongs to a group of agents that may hold one person's data.
    """
    check_delta(delta)
    if total.exposed:
        return Price(math.inf, delta, "released without noise")
    paid = math.fsum(e for e, _ in total.stated)
    left, noise = _left(total, delta), noise_of(total)
    name = "sum of epsilons that were stated at a delta, plus " if total.stated else ""
    if left < 0:
        return Price(math.inf, delta, f"{name}nothing: their deltas exceed this one")
    best = Price(math.inf, delta, f"{name}noise that needs a larger delta")
    if left > 0:
        mu2 = max(committed, noise.mu2_bound)
        epsilon = paid + (gaussian_epsilon(math.sqrt(mu2), left) if mu2 > 0 else 0.0)
        kind = "Staircase" if noise.bounded else "Laplace"
        rule = f"{kind} noise counted as Gaussian, over runs planned one after the other"
        if not (noise.laplace or noise.bounded):
            rule = "exact Gaussian composition"
            if committed > noise.mu2 * (1 + _SLACK):  # else equal up to rounding
                rule = "Gaussian composition, the first run as planned"
        best = Price(epsilon, delta, name + rule)
    if _counts_pure(left, pooled) and paid + noise.pure <= best.epsilon:
        best = Price(paid + noise.pure, delta, f"{name}sum of pure epsilons")
    return best


def covers(
    total: Composition, committed: float, epsilon: float, delta: float, *, pooled: bool
) -> bool:
    """Return whether a budget covers the releases of runs that are planned one by one.

    Parameters
    ----------
    total, committed, pooled
        See `price`.
    epsilon, delta : float
        Total privacy budget.
    """
    rest = epsilon - math.fsum(e for e, _ in total.stated)
    left, noise = _left(total, delta), noise_of(total)
    if total.exposed or rest < 0 or left < 0:
        return False
    if _counts_pure(left, pooled) and noise.pure <= rest:
        return True
    mu2 = max(committed, noise.mu2_bound)
    return left > 0 and (mu2 == 0 or float(log_delta(rest, math.sqrt(mu2))) <= math.log(left))


def _left(total: Composition, delta: float) -> float:
    """Return delta minus the deltas of releases that are bounded by (epsilon, delta) only."""
    left = delta - math.fsum(d for _, d in total.stated)
    return 0.0 if abs(left) <= 1e-12 * delta else left


def _counts_pure(left: float, pooled: bool) -> bool:
    return not (pooled and left > 0)
