"""The short form of the campaign of bounds."""

from tests.campaigns.bounds import campaign


def test_nothing_moves_farther_than_it_is_charged():
    found = campaign(27, 1)
    assert not found.faults, str(found)
    # The trials come close to the charges, or they would show nothing.
    assert found.counts["followed above 0.5"] + found.counts["replayed above 0.5"] >= 15
