"""Load: memory stays where it was, in a short form."""

import pytest

from tests.campaigns import load


@pytest.mark.filterwarnings("ignore::dpcvx.RepeatWarning")
def test_load_in_a_short_form_leaves_nothing():
    found = load.campaign(6, seed=0)
    assert found.faults == [] and found.counts.total() == len(load.TRIALS)


def test_a_plan_that_stays_is_noticed(monkeypatch):
    kept, planned = [], load.planned
    monkeypatch.setattr(load, "planned", lambda *given: kept.append(planned(*given)) or kept[-1])
    assert load.plans(8).startswith("GROWN")
