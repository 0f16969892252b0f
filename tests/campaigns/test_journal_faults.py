"""The campaign of journal_faults.py, in short."""

import pytest

from tests.campaigns.journal_faults import campaign


# What a failed disk has lost of a ledger is no longer counted by it.
@pytest.mark.filterwarnings("ignore::dpcvx.RepeatWarning")
def test_no_fault_of_a_disk_loses_what_left():
    tally = campaign(20, 0)
    assert tally.counts.total() == 20 and len(tally.counts) > 4
    assert not tally.faults, tally
