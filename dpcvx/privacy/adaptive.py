r"""Total privacy loss of runs on the same data, each planned after seeing the others' outputs.

Inside a plan all multipliers are fixed in advance, and its price is that of their composition.
Which plan comes next may depend on what came before, and then prices do not simply compose: of two
plans that each fit a budget, by tails of different shape, whoever chooses by the first run's output
gets more than the budget's delta. The total loss of one ledger's runs is therefore charged by one
rule that is proved for every such choice.

*Gaussian filter.* Every release counts as a Gaussian mechanism that hides no more than it does,
with :math:`\mu = 1 / m` for Gaussian noise of multiplier m, `gaussian.laplace_mu` for Laplace noise
and `gaussian.pure_mu` for staircase noise. If :math:`\sum \mu_i^2 \le \mu^2` whatever happens, all
releases together hide at least as much as one Gaussian mechanism of parameter mu: each can be
computed from a Brownian motion with drift b over a time of :math:`\mu_i^2`, where b is 0 or 1 by
the data, one after the other and until :math:`\mu^2` at the latest, however they are chosen; and
the end of that motion is all that depends on b (Smith and Thakurta, 2022, with another proof). For
Laplace noise on a vector of shares :math:`a_j` of the multiplier's epsilon, the profile is at most
that of scalar noise (`accounting`), which is a statement about trade-off functions as well, since
both are symmetric.

*Pure filter.* Wherever the sum of pure epsilons stays within epsilon, no output is more than
:math:`e^\epsilon` times as likely under one data set, and no delta is used. So a run may also go on
where this holds and the Gaussian filter refuses: outputs that end there add nothing to delta, and
the others are those of a strategy that stops where the Gaussian filter does.

*The first run* on an empty account is fixed before any output, so its own price holds for it alone.
It may be lower than the Gaussian filter's. Two rules that each use the full delta may not be chosen
by the output, so a later run needs that the first one, as it was planned and not as it may have
ended, is within the Gaussian filter as well: then every outcome is; otherwise, which was known
before any output, only pure losses may follow.

*Stated pairs.* A run that is known by an (epsilon, delta) pair only may come before all others. The
runs after it have the budget that is left, by basic composition, which holds for adaptive choices.
Such a run may not come later: how delta is shared would then depend on what was seen.

One person's data in several agents (groups): accounts of the group count every release as if all
members released the same. Sums of :math:`\mu^2` are then within the budget for the group if they
are for each account, whether its agent releases in the next run or not, and so are sums of pure
epsilons at delta = 0; where one account could go by one rule and one by the other, only the first
is used. Before every run each account of a group is therefore held against the new budget, by the
rule for its delta: one that holds Gaussian noise stops all others of its group at delta = 0.

A filter's budget is fixed in advance. If you raise it after seeing outputs, you have spent what it
states at the end. You may not quote the smaller figure of a moment that was chosen by the output.
"""

from __future__ import annotations

import math
from dataclasses import replace

from .accounting import Composition, Price, check_delta
from .gaussian import gaussian_epsilon, log_delta

# Relative slack of sums of the same releases in another order.
_SLACK = 1e-9


def noise_of(total: Composition) -> Composition:
    """Return the composition without its stated pairs."""
    return replace(total, stated=())


def price(total: Composition, committed: float, delta: float, *, pooled: bool) -> Price:
    """Return the smallest epsilon that covers the releases of several runs by the rule.

    Parameters
    ----------
    total : Composition
        Everything that was released.
    committed : float
        mu^2 of the first run with noise, as it was planned.
    delta : float
    pooled : bool
        Whether the account is one of several that hold the same person's data.
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
            if committed > noise.mu2 * (1 + _SLACK):  # else it is the same sum, rounded otherwise
                rule = "Gaussian composition, the first run as planned"
        best = Price(epsilon, delta, name + rule)
    if _counts_pure(left, pooled) and paid + noise.pure <= best.epsilon:
        best = Price(paid + noise.pure, delta, f"{name}sum of pure epsilons")
    return best


def covers(
    total: Composition, committed: float, epsilon: float, delta: float, *, pooled: bool
) -> bool:
    """Return whether the rule allows the releases of several runs under a budget.

    Parameters
    ----------
    total, committed, pooled
        See `price`.
    epsilon, delta : float
        The budget.
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
    """Return the delta that stated pairs leave; rounding of their sum is forgiven."""
    left = delta - math.fsum(d for _, d in total.stated)
    return 0.0 if abs(left) <= 1e-12 * delta else left


def _counts_pure(left: float, pooled: bool) -> bool:
    return not (pooled and left > 0)
