"""The campaign of endings in short: a run of each method."""

from tests.campaigns.endings import campaign


def test_no_status_hides_what_is_no_number():
    found = campaign(22, seed=1)
    assert not found.faults, str(found)
    # The trials reach what they are about.
    assert found.counts["diverged"] >= 3
    assert found.counts["completed"] + found.counts["unsettled"] >= 5
