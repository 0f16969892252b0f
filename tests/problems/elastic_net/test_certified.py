"""What certificates change, as the tables print it."""

import numpy as np
import pytest

from problems.elastic_net import certified
from problems.elastic_net.setting import Setting


def test_the_first_row_of_table_1_loses_what_the_documentation_says():
    found = certified.losses(Setting().claimed, (9,))
    assert found.paper[0] == pytest.approx(0.028, abs=5e-4)
    assert found.certified[0] == pytest.approx(1.1e-5, abs=5e-7)


def test_losses_are_never_larger_with_a_certificate():
    for block in certified.CASES.values():
        found = certified.losses(block, (1, 3, 9))
        assert (found.certified < found.paper).all()


def test_noise_falls_where_users_have_several_turns_and_stays_where_the_last_one_has_one():
    block = certified.CASES["modulus 0.3, g convex"]
    proved = certified.certified(block, 60)
    for passes, share in ((1, 1.0), (10, 0.5)):
        before, after = (certified.noise(one, 6, passes, "fixed") for one in (block, proved))
        assert after == pytest.approx(before, rel=1e-5) if share == 1 else after < 0.9 * before
    alone = certified.noise(block, 6, 1, "fixed")
    # One turn that everybody sees, at (1, 1e-6).
    assert alone == pytest.approx(4.224, rel=1e-3)


def test_tables_have_a_row_for_every_case(monkeypatch):
    monkeypatch.setattr(certified, "SIZES", ((3, 1), (3, 2)))
    monkeypatch.setattr(certified, "AFTER", (1, 2))
    monkeypatch.setattr(certified, "CASES", {"some": certified.scalar(0.3, beta=2.0)})
    rows = certified.noise_table().splitlines()
    assert len(rows) == 2 + 2 and all(len(row.split()) == 7 for row in rows[2:])
    values = np.array([[float(v) for v in row.split()[3:]] for row in rows[2:]])
    assert (values[:, 1] <= values[:, 0]).all() and (values[:, 3] <= values[:, 2]).all()
    assert len(certified.losses_table().splitlines()) == 2 + 2
    rows = certified.draws_table().splitlines()
    values = np.array([[float(v) for v in row.split()[3:]] for row in rows[2:]])
    assert values.shape == (2, 4) and (values[:, 1] <= values[:, 2]).all()
    assert (values[:, 1] < values[:, 3]).all()
