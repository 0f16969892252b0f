"""Constants of Table 1, and which theorem covers them."""

import pytest

from dpcvx.privacy.two_block import refusal
from problems.elastic_net.setting import PAIRS, PRINTED, Setting


def test_table_1_is_computed_with_its_erratum():
    found = [Setting(*pair) for pair in PAIRS]
    assert [s.eta for s in found] == pytest.approx([1.75309, 4.81125, 20.0, 43.3013], rel=1e-5)
    assert [s.claimed.contraction for s in found] == pytest.approx(
        [0.9474, 0.9149, 0.8571, 0.7992], abs=5e-5
    )
    printed = [eta for eta, _, _ in PRINTED]
    assert [s.eta for s in found[1:]] == pytest.approx(printed[1:], abs=0.005)
    assert found[0].eta / found[0].beta == pytest.approx(printed[0], abs=0.005)
    # Within 0.01: two of the printed factors are cut off rather than rounded.
    assert [s.claimed.contraction for s in found] == pytest.approx(
        [factor for _, factor, _ in PRINTED], abs=0.01
    )


@pytest.mark.parametrize("pair", PAIRS)
def test_losses_of_rank_one_have_the_convex_bound_only(pair):
    setting = Setting(*pair)
    assert refusal(setting.claimed) is None
    assert "not" in refusal(setting.block) and setting.block.mu == 0
    assert setting.eta <= 1 / setting.nu
    assert Setting(*pair, step=5.0).eta == 5.0
