"""The accounts of all agents: by name, in JSON, and what they cost together."""

import json

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp
from dpcvx.privacy.accounting import Composition
from dpcvx.privacy.accounts import Account, Budget
from dpcvx.privacy.ledger import Ledger
from tests.privacy.books import TENTH, account, charged


def test_ledger_is_a_mapping_by_agent_and_reports_the_largest_spending():
    books = (
        charged(Account("a", {}, Budget(1, 0, Composition())), TENTH, 2),
        Account("b", {}, None),
    )
    ledger = Ledger(books)
    assert list(ledger) == ["a", "b"] and len(ledger) == 2
    assert ledger["b"] is books[1]
    with pytest.raises(KeyError):
        ledger["c"]
    assert "b" in ledger and "c" not in ledger and 3 not in ledger
    assert ledger.get("b") is books[1] and ledger.get("c") is None and ledger.get("c", 3) == 3
    assert ledger.spent() == pytest.approx(0.2)
    assert Ledger(()).spent() == 0.0


def test_json_lists_every_entry_and_only_public_fields():
    book = charged(account(1.0), TENTH, 2)
    read = json.loads(Ledger((book,)).to_json())
    assert list(read) == ["bob"]
    assert [e["round"] for e in read["bob"]] == [0, 1]
    assert set(read["bob"][0]) == {
        "round", "step", "mechanism", "multiplier", "sensitivity", "grid", "certificate",
        "released", "stated", "colluders", "alone",
    }  # fmt: skip


def test_json_of_a_seeded_run_does_not_name_the_seed():
    x = cp.Variable(2)
    d = dp.Private(np.ones(2), adjacency=dp.Within(0.1), name="d")
    agents = [
        dp.Agent(cp.Minimize(cp.sum_squares(x - d)), name="a"),
        dp.Agent(cp.Minimize(cp.sum_squares(x)), name="b"),
    ]
    result = dp.Problem(agents).solve(
        dp.LinearizedADMM(), epsilon=1.0, delta=1e-6, rounds=2, seed=987654321
    )
    text = result.ledger.to_json()
    assert "987654321" not in text and "seed" not in text
    assert len(json.loads(text)["a"]) == 2


def test_releases_that_are_alike_are_priced_once(monkeypatch):
    book = Ledger(tuple(Account(name, {}, Budget(1.0, 0.0, Composition())) for name in "abc"))
    for one, times in zip(book.accounts, (2, 2, 3), strict=True):
        charged(one, TENTH, times)
    expected = {one.agent: one.spent() for one in book.accounts}
    counted, honest = [], Composition.price
    monkeypatch.setattr(Composition, "price", lambda c, d: counted.append(d) or honest(c, d))
    assert book.prices() == expected
    assert len(counted) == 2
