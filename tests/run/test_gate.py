"""The gate refuses what would leave otherwise than it was charged."""

import numpy as np
import pytest

import dpcvx as dp
from dpcvx.privacy.accounts import Account
from dpcvx.privacy.mechanism import Calibrated
from dpcvx.run.gate import entry_for
from tests.helpers import Words
from tests.spies import gate_of_one, release
from tests.steps import AMPLE, GAUSS


def test_release_charged_as_noisy_without_a_grid_is_refused_before_it_is_computed():
    noise, account = Calibrated(GAUSS, 2.0), Account("bob", {}, AMPLE)
    gate = gate_of_one(noise, account, Words(), record=True)
    grid, entry = entry_for(noise, (1, 1), 0.5, 2, "gradient")
    with pytest.raises(dp.DataError, match="has no noise"):
        release(gate, (1, 1), entry, lambda: pytest.fail("computed"), None)
    assert not gate.releases and not account.entries
    assert release(gate, (1, 1), entry, lambda: np.zeros(2), grid).shape == (2,)
