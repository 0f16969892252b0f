"""The short form."""

import pytest

from tests.campaigns import newton
from tests.kernels import KERNELS


@pytest.mark.parametrize("kernel", KERNELS)
def test_what_newton_certifies_is_the_projection(kernel):
    tally = newton.campaign(90, 0, kernel)
    assert not tally.faults, str(tally)
    assert all(tally.counts[f"{kind}: Newton"] for kind in newton.KINDS if kind != "empty")
    assert tally.counts["empty: interior point"] == 30
