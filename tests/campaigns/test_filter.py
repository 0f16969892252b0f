"""A short form; `tests/privacy/test_adaptive.py` shows that a wrong rule would be noticed."""

from tests.campaigns.filter import campaign


def test_no_strategy_over_random_menus_exceeds_the_budget():
    found = campaign(12, 1)
    assert not found.faults, str(found)
    assert found.counts["more than half of delta"] > 2
