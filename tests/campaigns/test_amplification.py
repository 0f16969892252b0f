"""The short form of the campaign of amplification by iteration."""

import numpy as np

from tests.campaigns.amplification import AFTER, attacked, followed, repeated


def test_no_exact_loss_is_above_what_a_certificate_proves():
    # Losses of many rounds take longest: one problem in four has them.
    found = [attacked(seed, after=AFTER if seed % 4 == 0 else AFTER[:6]) for seed in range(68)]
    # Two problems in three have a norm that rounds contract.
    several = [one for one in found if one is not None]
    assert (np.sum([(one > 0).any(axis=0) for one in several], axis=0) >= [50, 50, 50]).all()
    largest = np.array(
        [
            np.max([one[k] for one in found if one is not None and len(one) > k], axis=0)
            for k in range(len(AFTER))
        ]
    )
    assert largest.max() <= 1
    # The exact losses come close to the claims, or they would show nothing.
    assert (largest[:, :2] > 0.98).all()
    assert largest[AFTER.index(1), 2] > 0.98


def test_shifts_of_nonlinear_users_hide_a_turn_and_are_no_larger_than_claimed():
    found = [one for one in map(followed, range(26)) if one is not None]
    assert len(found) >= 25
    shares, apart = np.array(found).T
    assert shares.max() <= 1 + 1e-9 and shares.max() > 0.5
    assert apart.max() <= 1e-8


def test_no_exact_loss_of_several_turns_is_above_what_is_claimed():
    found = np.array([one for one in map(repeated, range(20)) if one is not None])
    assert len(found) >= 19
    # By what plans claim, and by the joint bound, which is true and left out.
    assert found.max() <= 1
    assert found[:, 0].max() > 0.99
