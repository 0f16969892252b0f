"""The short form of the campaign in namespaces: an owner that finds nobody at a port."""

import pytest

from tests.campaigns.namespaces import FAULTS, campaign, forbidden, line_of


def test_an_owner_alone_in_a_namespace_says_what_it_found():
    why = forbidden()
    if why:
        pytest.skip(f"no namespaces here: {why}")
    tally = campaign(1, 0)
    assert not tally.faults and tally.counts == {"stopped": 1}, str(tally)


def test_every_fault_has_a_name_of_its_own():
    assert len({fault.says for fault in FAULTS}) == len(FAULTS)
    assert line_of("a\nb c\n", "b .") == "b c" and not line_of("a", "")
