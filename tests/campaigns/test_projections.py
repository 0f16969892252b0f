"""The short form."""

from tests.campaigns import projections


def test_neighbors_on_random_sets_move_as_charged():
    tally = projections.campaign(60, 0, pairs=6)
    assert not tally.faults, str(tally)
    done = {name for name in projections.KINDS if tally.counts[name] == 6}
    assert done == set(projections.KINDS) - set(projections.UNPROVED)
    assert all(tally.counts[f"{name}: refused"] for name in projections.UNPROVED)
