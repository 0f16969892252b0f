"""The short form of the campaign of tampered programs."""

from tests.campaigns.documents import campaign


def test_no_tampered_program_ends_the_process_or_moves_beyond_its_bound():
    found = campaign(600, 1)
    assert not found.faults, str(found)
    # Many of them are taken, or nothing would be shown.
    assert found.counts["holds"] >= 45
