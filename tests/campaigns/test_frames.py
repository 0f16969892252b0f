"""The short form of the campaign of tampered conversations."""

from tests.campaigns.frames import campaign


def test_no_tampered_frame_ends_a_process_or_costs_more_than_the_policy_says():
    found = campaign(60, 1)
    assert not found.faults, str(found)
    # Some are taken and some refused, on either side, or nothing would be shown.
    kinds = {what.split(":")[0] for what in found.counts}
    assert kinds == {"owner", "sum", "coordinator", "log"}
    assert found.counts["log: completed"] and found.counts["owner: order"]
