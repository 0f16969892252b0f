"""Epsilons by position and by number of iterations agree with the formulas."""

import numpy as np
import pytest

from dpcvx.privacy.accounting import Composition
from dpcvx.privacy.last_iterate import permuted
from dpcvx.privacy.two_block import bounds, local_zcdp
from problems.elastic_net.privacy import by_iterations, by_position, epsilon_of
from problems.elastic_net.setting import Setting

SETTING, RADIUS, DELTA = Setting(sigma=0.5), 3.0, 1e-6


def test_positions_have_the_smaller_of_the_convex_and_the_plain_bound():
    found = by_position(SETTING, RADIUS, 200, DELTA)
    assert {0, 100, 199} <= set(found.positions) and (np.diff(found.positions) > 0).all()
    plain = local_zcdp(SETTING.block, 2 * RADIUS, SETTING.sigma)
    assert found.visible == pytest.approx(Composition(mu2=2 * plain).price(DELTA).epsilon)
    later = bounds(SETTING.block, 2 * RADIUS, SETTING.sigma, 199 - found.positions)[1]
    for convex, epsilon in zip(later, found.last_only, strict=True):
        assert epsilon == pytest.approx(epsilon_of(min(plain, convex), DELTA), rel=1e-6)
    assert (np.diff(found.last_only) >= -1e-9).all()
    assert found.at(199) == pytest.approx(found.visible, rel=1e-6)
    assert found.at(0) < found.visible / 3
    assert (found.printed > found.last_only).all()
    # As printed, and for losses that these are not.
    assert found.claimed[0] < found.last_only[0]
    assert found.permuted < found.visible and found.stopped < found.visible
    assert found.sampled > 0
    # A certificate for the same constants lowers all but the last user's.
    assert found.certified[-1] == pytest.approx(found.visible, rel=1e-6)
    assert (found.certified[:-2] < 0.75 * found.last_only[:-2]).all()


def test_iterations_after_a_turn_amplify_it_and_passes_add():
    found = by_iterations(SETTING, RADIUS, 60, [1, 30, 31, 60, 120], DELTA)
    assert set(found.last_only) == {0, 30, 59}
    first, middle, last = (found.last_only[k] for k in (0, 30, 59))
    assert first[0] == pytest.approx(found.visible[0]) and first[3] < first[1] < first[0]
    assert middle[1] == 0 < middle[2] and last[2] == 0
    assert last[3] == pytest.approx(found.visible[3])
    assert found.visible[4] > found.visible[3] == pytest.approx(found.visible[0])
    price = permuted(SETTING.block, 2 * RADIUS, 0.5, users=60, iterations=120).price(DELTA)
    assert found.permuted[4] == pytest.approx(price.epsilon)
    assert found.permuted[4] < found.visible[4]


def test_nothing_is_claimed_of_steps_that_can_expand():
    wide = Setting(sigma=0.5, step=5.0)
    found = by_iterations(wide, RADIUS, 10, [10], DELTA)
    assert found.last_only[0][0] == pytest.approx(found.visible[0])


def test_an_infinite_loss_has_no_epsilon():
    assert epsilon_of(np.inf, DELTA) == np.inf
    assert 0 < epsilon_of(0.1, DELTA) < epsilon_of(0.2, DELTA)
