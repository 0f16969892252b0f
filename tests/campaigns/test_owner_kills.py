"""The short form of the campaign of killed owners and coordinators."""

from tests.campaigns.owner_kills import campaign


def test_runs_go_on_after_kills_and_nothing_is_spent_twice():
    found = campaign(2, 5)
    assert not found.faults, str(found)
    assert sum(n for what, n in found.counts.items() if " killed" in what) == 2
