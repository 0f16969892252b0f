"""The short form of the campaign of all methods on all engines: every method, on one engine each.

Engines do not know what they carry, and conformance tries every method with copies of its messages.
"""

import pytest

from tests.campaigns.everywhere import METHODS, campaign

pytest.importorskip("distributed")
pytest.importorskip("mpi4py")


def test_methods_give_on_clusters_what_they_give_in_one_process():
    found = campaign(1, 1, share=3)
    assert not found.faults, str(found)
    assert {*found.counts.values()} == {len(METHODS) // 3} and len(found.counts) == 3
