"""The short form of the campaign of all methods on all engines: every method, on one engine each.

Engines do not know what they carry, and conformance tries every method with copies of its messages.
Methods on Dask are tried in `tests.run.test_executors_dask`, where a cluster is at hand.
"""

import pytest

from tests.campaigns.everywhere import METHODS, campaign

pytest.importorskip("mpi4py")


def test_methods_give_on_other_processes_what_they_give_in_one():
    found = campaign(1, 1, 3, ("Processes", "MPI"))
    assert not found.faults, str(found)
    assert [*found.counts.values()] == 2 * [len(METHODS) // 3]
