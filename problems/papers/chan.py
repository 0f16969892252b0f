"""Chan, Xie and Zhao: a user drawn in every turn, with the paper's and the package's bounds."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from dpcvx.privacy.last_iterate import sampled
from dpcvx.privacy.secret_draws import Draws
from dpcvx.privacy.two_block import TwoBlock, local_zcdp

from ..elastic_net.certified import certified
from ..elastic_net.printed import corollary_6_2
from ..elastic_net.privacy import epsilon_of
from ..elastic_net.setting import Setting
from ..elastic_net.simulation import drawn, gaps_of, iterate
from ..elastic_net.study import DELTA, elastic_net, losses, optimum, regularizer
from ..elastic_net.users import Users, made_users
from . import entry
from .rows import Row, row
from .studies import Panel, Scope, Study

__all__ = ["STUDIES"]

Floats = NDArray[np.float64]
_PAPER = "chan_xie_zhao"
_WEIGHTS = entry(_PAPER, "weights")
_SIGMAS = entry(_PAPER, "sigmas").numbers("sigma")
_BASE = Setting(_WEIGHTS.number("mu"), _WEIGHTS.number("beta"))
# Noise levels whose epsilons are shown; the paper's levels are the first ones.
_LOUD = (1.0, 2.0, 5.0, 10.0, 20.0)
_PACKAGE_SIGMA = 0.5
_GAP, _EPSILON = "gap at x_t", "epsilon"


def _rows(scope: Scope) -> list[Row]:
    """Return rows of Figure 1 (b) with sampled users, and rows of the runs' privacy loss."""
    full = scope.runs >= entry(_PAPER, "repetitions").whole("repetitions")
    users = made_users() if full else made_users(100)
    _, minimum = optimum(users)
    t, rows = np.arange(scope.rounds + 1), []
    # The search for a certificate does not depend on the noise.
    proved = certified(_BASE.block, scope.rounds)
    for sigma in _SIGMAS:
        setting = replace(_BASE, sigma=sigma)
        order, noise = drawn(users, sigma, scope.rounds, scope.runs, seed=0)
        for kind, radius in (("as printed", None), ("clipped, beneath it", setting.radius)):
            found = iterate(users, setting, order, noise, radius=radius)
            gaps = gaps_of(users, setting, found, minimum).at_x
            total = None if radius is None else ours(proved, setting, users.count, scope.rounds)
            name = f"sigma = {sigma:g}: {kind}"
            rows.append(row(_GAP, name, t, gaps.T, total, 0.0 if total is None else DELTA))
    if full:
        rows.append(_by_package(users, minimum, scope.rounds))
    levels = _SIGMAS + _LOUD
    for name, of in (
        ("Corollary 6.2's constants", papers),
        ("package, order='sampling'", partial(ours, proved)),
        ("one turn, all iterates seen", seen),
    ):
        values = [of(replace(_BASE, sigma=s), users.count, scope.rounds) for s in levels]
        rows.append(row(_EPSILON, name, levels, [values]))
    return rows


def _by_package(users: Users, minimum: float, rounds: int) -> Row:
    """Return the last gap of one run of `dp.GradientADMM` with sampled users, and its epsilon."""
    setting = replace(_BASE, sigma=_PACKAGE_SIGMA)
    study = elastic_net(users)
    plan = study.plan(setting, rounds, observer="last_iterate", order="sampling")
    x = plan.run(seed=0, verbose=False).last[study.x]
    gap = float(losses(users, x) + regularizer(x)) - minimum
    return row(
        _GAP, f"sigma = {_PACKAGE_SIGMA:g}: dp.GradientADMM, once", [rounds], [[gap]],
        plan.guarantee.epsilon, DELTA,
    )  # fmt: skip


def papers(setting: Setting, users: int, rounds: int) -> float:
    """Return epsilon composed over the draws, with Corollary 6.2's constants for each round.

    The corollary covers one turn per user in a public order, and the paper has no bound for its
    sampled runs. So the composition over draws is the package's, and the loss of a turn is bounded
    by the loss with a visible iterate.
    """
    block, change = setting.block, 2 * setting.radius
    own = sampled(block, change, setting.sigma, users=users, iterations=rounds)
    at_most = local_zcdp(block, change, setting.sigma)
    printed = [corollary_6_2(block, change, setting.sigma, k) for k in range(rounds)]
    return replace(own, rho=np.minimum(printed, at_most)).price(DELTA).epsilon


def ours(proved: TwoBlock, setting: Setting, users: int, rounds: int) -> float:
    """Return epsilon of a plan with ``order="sampling"`` for an observer of the last iterate.

    `proved` are the constants with the certificate that the plan searches.
    """
    change = 2 * setting.radius
    own = sampled(proved, change, setting.sigma, users=users, iterations=rounds)
    return own.price(DELTA).epsilon


def secret(proved: TwoBlock, setting: Setting, users: int, rounds: int) -> float:
    """Return epsilon with ``draws="secret"``: clipped gradients of all users are one change apart.

    `proved` is that of `ours`.
    """
    change = 2 * setting.radius
    turn = math.sqrt(2 * local_zcdp(proved, change, setting.sigma))
    step = proved.eta * change / setting.sigma
    norms = () if proved.proved is None else proved.proved.contractions
    return Draws(users, rounds, turn, 1.0, step, norms).price(DELTA).epsilon


def seen(setting: Setting, users: int, rounds: int) -> float:
    """Return epsilon of a single turn if every iterate is visible; several turns cost more."""
    return epsilon_of(local_zcdp(setting.block, 2 * setting.radius, setting.sigma), DELTA)


STUDIES = {
    "chan_sampling": Study(
        _PAPER,
        "Figure 1 (b), users sampled",
        (
            "sizes",
            "users",
            "order",
            "start",
            "weights",
            "sigmas",
            "iterations",
            "repetitions",
            "clipping",
        ),
        {
            _GAP: Panel("turn t", "gap at x_t"),
            _EPSILON: Panel("sigma", f"epsilon at {DELTA:g}", log_x=True),
        },
        _rows,
        Scope(
            entry(_PAPER, "iterations").whole("T"),
            entry(_PAPER, "repetitions").whole("repetitions"),
        ),
        Scope(12, 3),
        "at the paper's noise every bound of epsilon exceeds 40",
        "made-up users as in section 10",
    )
}
