"""The short form of the campaign of all methods on all engines: one instance of every method."""

import pytest

from tests.campaigns.everywhere import METHODS, campaign

pytest.importorskip("distributed")
pytest.importorskip("mpi4py")


def test_methods_give_on_clusters_what_they_give_in_one_process():
    found = campaign(1, 1)
    assert not found.faults, str(found)
    assert {*found.counts.values()} == {len(METHODS)} and len(found.counts) == 3
