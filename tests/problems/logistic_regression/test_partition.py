"""Who holds which records."""

import numpy as np
import pytest

from problems.logistic_regression.errors import DatasetError
from problems.logistic_regression.partition import Partition
from tests.problems.logistic_regression.instances import blobs

DATA = blobs(count=120, classes=4, writers=7)
KINDS = ("iid", "dirichlet", "imbalanced", "writer")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("agents", [1, 5, 29])
def test_parts_are_disjoint_and_none_is_empty(kind, agents):
    parts = Partition(kind, agents).of(DATA)
    assert len(parts) == agents
    together = np.concatenate(parts)
    assert np.unique(together).size == together.size
    assert all(part.size and (np.diff(part) > 0).all() for part in parts)
    if kind != "imbalanced":
        assert together.size == DATA.train.count


@pytest.mark.parametrize("kind", KINDS)
def test_seeds_fix_the_division(kind):
    one, same, other = (Partition(kind, 5, seed=s).of(DATA) for s in (0, 0, 1))
    assert all(np.array_equal(a, b) for a, b in zip(one, same, strict=True))
    differs = any(not np.array_equal(a, b) for a, b in zip(one, other, strict=True))
    assert differs == (kind != "writer")


def classes_per_agent(parts):
    return np.mean([np.unique(DATA.train.labels[part]).size for part in parts])


def test_small_concentrations_leave_few_classes():
    even = Partition("dirichlet", 5, concentration=1e6).of(DATA)
    skewed = Partition("dirichlet", 5, concentration=0.05).of(DATA)
    assert classes_per_agent(even) == 4
    assert classes_per_agent(skewed) < 2.5
    assert {part.size for part in even} <= {23, 24, 25}
    assert {part.size for part in Partition("iid", 5).of(DATA)} == {24}


def test_imbalance_thins_out_the_last_classes():
    kept = np.concatenate(Partition("imbalanced", 5, share=0.1).of(DATA))
    assert np.bincount(DATA.train.labels[kept]).tolist() == [30, 14, 6, 3]
    whole = np.concatenate(Partition("imbalanced", 5, share=1.0).of(DATA))
    assert whole.size == 120


def test_writers_stay_together():
    writer = DATA.train.writer
    assert writer is not None
    parts = Partition("writer", None).of(DATA)
    assert [np.unique(writer[part]).tolist() for part in parts] == [[k] for k in range(7)]
    fewer = Partition("writer", 3).of(DATA)
    assert [np.unique(writer[part]).tolist() for part in fewer] == [[0, 3, 6], [1, 4], [2, 5]]


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"kind": "alphabetic"}, "kind='alphabetic'"),
        ({"agents": 0}, "agents=0"),
        ({"agents": None}, "agents=None"),
        ({"kind": "writer", "agents": 2.5}, "agents=2.5"),
        ({"seed": -1}, "seed=-1"),
        ({"concentration": 0}, "concentration=0"),
        ({"share": 0.0}, "share=0.0"),
        ({"share": 1.1}, "share=1.1"),
    ],
)
def test_broken_partitions_are_refused(arguments, message):
    with pytest.raises(DatasetError) as error:
        Partition(**arguments)
    assert message in str(error.value)


def test_what_the_data_cannot_give_is_refused():
    with pytest.raises(DatasetError, match="121 agents cannot have a record each"):
        Partition("iid", 121).of(DATA)
    with pytest.raises(DatasetError, match="does not say who wrote"):
        Partition("writer", None).of(blobs())
