"""The study of digits by client: rows of one kind, and a guarantee for whole clients in each."""

import numpy as np
import pytest

from tests.spies import add_up_without_shares

from .federated_digits import accuracy, images

pytest.importorskip("sklearn")


def test_clients_hold_images_of_their_own():
    pixels, marks, others, labels = images(5, 3)
    assert pixels.shape == (15, 16) and marks.shape == (15, 10) and len(others) == len(labels)
    assert np.linalg.norm(pixels, axis=1) == pytest.approx(1.0)
    assert (marks.sum(axis=1) == 1).all() and len(labels) == 1797 - 15


@pytest.mark.parametrize("who", ["local noise", "secure sum", "trusted server"])
def test_each_row_protects_a_whole_client(who):
    plan, found = accuracy(who, 3, 2, 8.0)
    unit = " ".join(str(plan.guarantee).split())
    assert "one person" in unit and ("all rows" in unit or "at most 2 rows" in unit)
    assert len(found) == 1 and 0 <= found[0] <= 1


def test_sums_without_shares_have_the_same_bits(monkeypatch):
    plan, _ = accuracy("secure sum", 3, 2, 8.0)
    shared = plan.run(seed=1, verbose=False)
    add_up_without_shares(monkeypatch)
    whole = plan.run(seed=1, verbose=False)
    x, y = (result.solution.vectors[0] for result in (shared, whole))
    assert x.tobytes() == y.tobytes()
