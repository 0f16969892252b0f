"""The short form."""

from tests.campaigns import solvers


def test_runs_survive_faulty_solvers():
    tally = solvers.campaign(22, 0)
    assert not tally.faults, str(tally)
    assert tally.counts["completed, faults"] >= 11
