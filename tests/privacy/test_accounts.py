"""Accounts: the budget filter in front of a release, and the record of what was released."""

import dataclasses
import json
import pickle
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpcvx as dp
from dpcvx.privacy import adaptive
from dpcvx.privacy.accounting import Composition
from dpcvx.privacy.accounts import Account, Budget
from dpcvx.privacy.ledger import Ledger
from dpcvx.privacy.ledger_file import Journal
from dpcvx.privacy.mechanism import Calibrated
from tests.privacy.books import NORMAL, TENTH, account, charged, entry


def test_ten_tenths_fit_into_one():
    assert len(charged(account(1.0), TENTH, 10).entries) == 10


def test_a_tenth_and_a_fifth_fit_into_three_tenths():
    book = charged(account(0.3), TENTH, 1)
    assert book.budget.epsilon < 0.1 + 0.2
    charged(book, Calibrated(dp.Laplace(), 5.0), 1)
    assert len(book.entries) == 2


@pytest.fixture
def exhausted():
    return charged(account(1.0), TENTH, 10)


def test_the_eleventh_tenth_is_refused_and_leaves_no_record(exhausted):
    before = list(exhausted.entries)
    with pytest.raises(dp.BudgetError):
        exhausted.charge(entry(11), TENTH)
    assert exhausted.entries == before
    assert exhausted.spent().epsilon == pytest.approx(1.0)


def test_the_refusal_states_spent_requested_allowed_and_affordable(exhausted):
    with pytest.raises(dp.BudgetError) as caught:
        exhausted.charge(entry(11), TENTH)
    error = caught.value
    assert (error.agent, error.allowed, error.affordable) == ("bob", 1.0, 0)
    assert error.spent == pytest.approx(1.0)
    assert error.requested == pytest.approx(1.1)
    assert "1.1" in str(error) and "'bob'" in str(error)


def test_an_exhausted_account_stays_readable(exhausted):
    with pytest.raises(dp.BudgetError):
        exhausted.charge(entry(11), TENTH)
    assert exhausted.spent().epsilon == pytest.approx(1.0)
    assert exhausted.spent(1e-6).epsilon <= 1.0 + 1e-12
    assert exhausted.affordable(TENTH, 99) == 0
    assert "10 releases" in str(Ledger((exhausted,)))


def test_a_smaller_release_still_fits_after_a_refusal():
    book = charged(account(1.0), TENTH, 9)
    half = Calibrated(dp.Laplace(), 5.0)
    with pytest.raises(dp.BudgetError):
        book.charge(entry(10, half), half)
    charged(book, TENTH, 1)
    assert len(book.entries) == 10


@settings(deadline=None, max_examples=25)
@given(st.floats(0.5, 20), st.floats(0.1, 5), st.sampled_from([1e-3, 1e-6]))
def test_gaussian_spending_never_exceeds_the_budget_and_affordable_is_exact(m, epsilon, delta):
    calibrated = Calibrated(dp.Gaussian(), m)
    book = account(epsilon, delta)
    count = book.affordable(calibrated, 50)
    charged(book, calibrated, count)
    assert book.spent().epsilon <= epsilon * (1 + 1e-8)
    if count < 50:
        with pytest.raises(dp.BudgetError):
            book.charge(entry(0, calibrated), calibrated)


def test_affordable_counts_what_charge_accepts():
    book = charged(account(1.0), TENTH, 3)
    assert book.affordable(TENTH, 99) == 7
    assert book.affordable(Calibrated(dp.Laplace(), 20.0), 99) == 14
    assert book.affordable(Calibrated(dp.Laplace(), 1.0), 99) == 0


def test_affordable_reads_only():
    book = charged(account(1.0), TENTH, 3)
    book.affordable(TENTH, 99)
    assert len(book.entries) == 3
    assert book.spent().epsilon == pytest.approx(0.3)


def test_without_a_budget_nothing_is_affordable_or_spent():
    book = Account("bob", {}, None)
    assert book.affordable(TENTH, 99) == 0
    assert book.spent().epsilon == 0.0


def test_releases_at_delta_are_priced_by_composition_not_by_addition():
    planned = Composition().with_gaussian(10.0, 100)
    book = charged(account(planned.price(1e-6).epsilon, 1e-6), NORMAL, 100)
    assert book.spent().epsilon == pytest.approx(planned.price(1e-6).epsilon)
    with pytest.raises(dp.BudgetError):
        charged(book, NORMAL, 1)


def test_mixed_releases_share_one_budget():
    book = account(1.2, 1e-6)
    charged(book, Calibrated(dp.Gaussian(), 5.0), 1)
    with pytest.raises(dp.BudgetError):
        charged(book, Calibrated(dp.Laplace(), 0.5), 1)
    assert len(book.entries) == 1


def test_a_continued_account_remembers_and_leaves_the_first_alone():
    first = charged(account(1.0), TENTH, 6)
    second = first.continued(
        Account("bob", {}, Budget(0.8, 0.0, Composition().with_laplace(10.0, 8)))
    )
    charged(second, TENTH, 2)
    with pytest.raises(dp.BudgetError) as caught:
        charged(second, TENTH, 1)
    assert caught.value.spent == pytest.approx(0.8)
    assert (len(first.entries), len(second.entries)) == (6, 8)
    assert first.spent().epsilon == pytest.approx(0.6)
    charged(first, TENTH, 4)
    assert len(second.entries) == 8


@pytest.mark.parametrize("calibrated", [TENTH, NORMAL], ids=lambda c: str(c.mechanism))
@pytest.mark.parametrize("share", [1, 3])
def test_recalled_entries_count_like_charged_ones(calibrated, share):
    budget = Budget(9.0, 1e-6, Composition())
    first, second = (Account("bob", {}, budget, share=share) for _ in range(2))
    charged(first, calibrated, 4)
    for line in first.entries:
        second.recall(line)
    assert second == first
    assert second.spent() == first.spent() and second.rho == first.rho
    assert second.affordable(calibrated, 500) == first.affordable(calibrated, 500)


def test_what_was_released_is_recalled_whatever_the_budget():
    book = charged(account(0.3), TENTH, 3)
    book.recall(entry(4))
    assert len(book.entries) == 4
    assert book.spent().epsilon == pytest.approx(0.4)
    with pytest.raises(dp.BudgetError):
        charged(book, TENTH, 1)


@pytest.mark.parametrize("mechanism", ["none", "Cauchy"])
def test_a_recalled_release_without_known_noise_ends_every_guarantee(mechanism):
    book = account(1.0, 1e-6)
    book.recall(dataclasses.replace(entry(), mechanism=mechanism))
    assert len(book.entries) == 1
    assert book.spent().epsilon == np.inf and book.rho == np.inf
    assert book.affordable(NORMAL, 9) == 0


@pytest.mark.parametrize("multiplier", [np.nan, 0.0, -1.0])
def test_an_entry_without_meaning_is_not_recalled(multiplier):
    book = account(1.0)
    with pytest.raises(dp.PrivacyError):
        book.recall(dataclasses.replace(entry(), multiplier=multiplier))
    assert not book.entries


# -- whole runs, charged before they begin

WHOLE = dataclasses.replace(entry(0, NORMAL), step=1, released="last iterate of 9 rounds")
DRAWN = dataclasses.replace(WHOLE, multiplier=0.0, stated=(0.25, 1e-6))
GAUSSIAN = Composition().with_gaussian(10.0)
STATED = Composition(stated=((0.25, 1e-6),))
runs = pytest.mark.parametrize(
    ("line", "loss"), [(WHOLE, GAUSSIAN), (DRAWN, STATED)], ids=["Gaussian", "stated"]
)


@runs
def test_a_run_is_charged_as_a_whole(line, loss):
    book = account(9.0, 3e-6)
    book.charge_run(line, loss)
    assert book.entries == [line]
    assert book.spent() == loss.price(3e-6)
    charged(book, NORMAL, 2)
    assert book.spent() == loss.joined(Composition().with_gaussian(10.0, 2)).price(3e-6)
    assert len(book.entries) == 3


@runs
def test_a_run_that_the_budget_does_not_cover_is_refused_and_leaves_no_record(line, loss):
    price = loss.price(1e-6)
    book = account(price.epsilon, 1e-6, loss)
    book.charge_run(line, loss)
    with pytest.raises(dp.BudgetError) as caught:
        book.charge_run(line, loss)
    error = caught.value
    assert error.spent == price.epsilon == error.allowed and error.affordable == 0
    assert error.requested == loss.joined(loss).price(1e-6).epsilon
    assert book.entries == [line] and book.spent() == price
    with pytest.raises(dp.BudgetError):
        charged(book, NORMAL, 1)
    small = account(price.epsilon * 0.999, 1e-6)
    with pytest.raises(dp.BudgetError):
        small.charge_run(line, loss)
    assert not small.entries and small.spent().epsilon == 0


def test_a_pair_comes_before_all_noise():
    """How it would share its delta with noise that came before could depend on that."""
    book = charged(account(9.0, 3e-6), NORMAL, 1)
    with pytest.raises(dp.PrivacyError, match="holds runs with noise.*first in its ledger"):
        book.charge_run(DRAWN, STATED)
    assert len(book.entries) == 1
    book.charge_run(WHOLE, GAUSSIAN)
    assert len(book.entries) == 2


def test_a_planned_pair_covers_itself_once_and_no_other():
    """The plan's own pair is within it; the same pair of an earlier run is not the plan's."""
    book = account(0.25, 1e-6, STATED)
    book.recall(DRAWN)
    with pytest.raises(dp.BudgetError):
        book.charge_run(DRAWN, STATED)
    other = Composition(stated=((0.3, 1e-6),))
    with pytest.raises(dp.BudgetError):
        account(0.25, 1e-6, STATED).charge_run(DRAWN, other)
    two = account(0.5, 2e-6)
    for _ in range(2):
        two.charge_run(DRAWN, STATED)
    assert two.spent().epsilon == pytest.approx(0.5)


@runs
def test_recalled_runs_count_like_charged_ones(line, loss):
    budget = Budget(9.0, 1e-5, Composition())
    first, second = (Account("bob", {}, budget) for _ in range(2))
    first.charge_run(line, loss)
    charged(first, TENTH, 2)
    charged(first, NORMAL, 2)
    for each in first.entries:
        second.recall(each)
    assert second.entries == first.entries
    assert second.spent().epsilon == pytest.approx(first.spent().epsilon, rel=1e-12)
    assert second.rho == pytest.approx(first.rho, rel=1e-12)
    third = first.continued(second)
    charged(third, NORMAL, 1)
    assert (len(third.entries), len(first.entries)) == (6, 5)


@runs
def test_runs_come_back_from_a_file_as_they_were(line, loss, tmp_path, monkeypatch):
    monkeypatch.setattr("os.fsync", lambda file: None)
    path = tmp_path / "ledger.jsonl"
    book = account(9.0, 1e-5)
    with Journal(path) as journal:
        journal.begin("f" * 64, seeded=False, accounts=[book])
        book.charge_run(line, loss)
        journal.charge(["bob"], line)
        charged(book, NORMAL, 1)
        journal.charge(["bob"], entry(0, NORMAL))
    kept = Ledger.load(path)["bob"]
    assert kept.entries == book.entries and kept.entries[0] == line
    assert type(kept.entries[0].stated) is type(line.stated)
    assert kept.spent().epsilon == pytest.approx(book.spent().epsilon, rel=1e-12)
    assert kept.spent(1e-7).epsilon == pytest.approx(book.spent(1e-7).epsilon, rel=1e-12)
    listed = json.loads(Ledger((kept,)).to_json())["bob"]
    assert listed[0]["stated"] == (None if line.stated is None else list(line.stated))


def test_a_file_from_before_pairs_were_stated_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr("os.fsync", lambda file: None)
    path = tmp_path / "ledger.jsonl"
    with Journal(path) as journal:
        journal.begin("f" * 64, seeded=False, accounts=[account(1.0)])
        facts = {k: v for k, v in vars(entry()).items() if k != "stated"}
        journal._append({"charge": "bob", **facts})
    assert "stated" not in path.read_text()
    assert Ledger.load(path)["bob"].entries == [entry()]


def test_a_copy_for_another_run_is_independent():
    first = charged(account(1.0), TENTH, 2)
    second = first.continued(first)
    second.recall(entry(3))
    assert (len(first.entries), len(second.entries)) == (2, 3)
    assert first.spent().epsilon == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"adjacency": {"d": "more"}}, "adjacency"), ({"share": 2}, "2 time|counts 2")],
    ids=["adjacency", "share"],
)
def test_an_account_goes_on_under_its_own_adjacency_and_share_only(changes, message):
    first = Account("bob", {"d": "little"}, None)
    with pytest.raises(dp.PrivacyError, match=message):
        first.continued(dataclasses.replace(first, **changes))


@pytest.mark.parametrize("multiplier", [np.nan, np.inf, 0.0, -1.0])
@pytest.mark.parametrize("mechanism", [dp.Gaussian(), dp.Laplace()])
def test_a_multiplier_without_meaning_is_refused_and_not_recorded(mechanism, multiplier):
    book = account(1.0, 1e-6)
    with pytest.raises(dp.PrivacyError):
        book.charge(entry(), Calibrated(mechanism, multiplier))
    assert not book.entries
    assert book.spent().epsilon == 0.0


@pytest.mark.parametrize(
    ("planned", "calibrated"),
    [
        (Composition().with_gaussian(10.0, 500), NORMAL),
        (Composition().with_laplace(50.0, 500), Calibrated(dp.Laplace(), 50.0)),
    ],
    ids=["Gaussian", "Laplace"],
)
def test_charges_within_the_plan_price_nothing(monkeypatch, planned, calibrated):
    epsilon = planned.price(1e-6).epsilon
    assert epsilon < planned.pure / 2
    calls = []
    monkeypatch.setattr(Composition, "price", lambda *a: calls.append(a))
    charged(account(epsilon, 1e-6, planned), calibrated, 500)
    assert not calls


def test_the_release_after_the_plan_is_priced_and_refused():
    planned = Composition().with_laplace(50.0, 500)
    calibrated = Calibrated(dp.Laplace(), 50.0)
    book = charged(account(planned.price(1e-6).epsilon, 1e-6, planned), calibrated, 500)
    with pytest.raises(dp.BudgetError):
        charged(book, calibrated, 1)


def test_budget_errors_pickle():
    error = dp.BudgetError(
        "bob", spent=1, requested=1, allowed=0.9, delta=0.0, affordable=0, idle=True
    )
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is dp.BudgetError
    assert str(copy) == str(error)
    assert vars(copy) == vars(error)


@pytest.mark.parametrize(
    ("requested", "allowed", "shown"),
    [(1.2, 0.999999, "(1, 1e-06)"), (1.0000004, 0.999999, "(0.999999, "), (2.0, 0.9995, "(0.9995")],
)
def test_a_budget_is_shown_as_it_was_asked_for_unless_that_hides_the_excess(
    requested, allowed, shown
):
    error = dp.BudgetError(
        "a", spent=0.5, requested=requested, allowed=allowed, delta=1e-6, affordable=0
    )
    assert f"its budget is {shown}" in str(error)


def test_accounts_are_equal_by_all_they_hold_but_not_by_whose_they_are():
    one = charged(account(3.0), TENTH, 2)
    assert one.equals(dataclasses.replace(one, agent="eve", adjacency={"X": "one row"}))
    for other in (
        charged(account(3.0), TENTH, 1),
        charged(account(2.0), TENTH, 2),
        charged(account(3.0, delta=1e-6), TENTH, 2),
        dataclasses.replace(one, share=2),
        dataclasses.replace(one, committed=0.1),
        dataclasses.replace(one, _total=Composition()),
    ):
        assert not one.equals(other) and not other.equals(one)


# -- noise that is distributed over agents


def distributed(k, multiplier, alone, colluders):
    """A release whose noise is smaller for who knows a part of it."""
    calibrated = Calibrated(dp.Gaussian(), multiplier)
    return dataclasses.replace(entry(k, calibrated), alone=alone, colluders=colluders), calibrated


def test_all_others_together_know_parts_of_the_noise():
    book = account(100.0, 1e-6)
    assert book.spent_against_all(1e-5) == book.spent(1e-5) and book.colluders is None
    book.charge(*distributed(1, 4.0, 2.0, 3))
    book.charge(*distributed(2, 6.0, 1.5, 2))
    charged(book, NORMAL, 3)
    stated = dataclasses.replace(entry(9, NORMAL), stated=(0.25, 0.0))
    book.entries.append(stated)
    assert book.colluders == 2
    total = Composition().with_gaussian(2.0).with_gaussian(1.5).with_gaussian(10.0, 3)
    for delta in (None, 1e-5):
        expected = total.price(delta or 1e-6).epsilon + 0.25
        assert book.spent_against_all(delta).epsilon == pytest.approx(expected, rel=1e-9)
        assert book.spent(delta).epsilon < expected - 0.25
    with pytest.raises(dp.PrivacyError, match="delta"):
        book.spent_against_all(-1.0)


def test_a_first_run_counts_by_what_all_others_know_of_its_noise():
    """mu^2 grows by the square of the largest multiplier over what remains of it."""
    book = dataclasses.replace(account(100.0, 1e-6), committed=0.5)
    release, calibrated = distributed(1, 6.0, 2.0, 3)
    book.charge(release, calibrated)
    total = Composition().with_gaussian(2.0)
    expected = adaptive.price(total, 9 * 0.5, 1e-6, pooled=False)
    assert book.spent_against_all() == expected
    assert expected.epsilon > adaptive.price(total, 0.5, 1e-6, pooled=False).epsilon


# -- further runs under a new budget


PLANNED = Composition().with_gaussian(10.0, 5)


def test_a_further_run_is_committed_to_the_first_one_as_planned():
    fresh = account(2.0, 1e-6, Composition().with_gaussian(3.0))
    empty = account(1.0, 1e-6, PLANNED)
    assert empty.continued(fresh).committed is None
    group = dataclasses.replace(empty, share=2)
    assert group.continued(dataclasses.replace(fresh, share=2)).committed == PLANNED.mu2_bound
    second = charged(empty, NORMAL, 1).continued(fresh)
    assert second.committed == PLANNED.mu2_bound and second.budget == fresh.budget
    assert charged(second, NORMAL, 1).continued(fresh).committed == PLANNED.mu2_bound


def test_accounts_of_a_group_are_within_the_budget_of_a_further_run():
    member = dataclasses.replace(
        charged(account(5.0, 1e-6), NORMAL, 3), share=2, committed=PLANNED.mu2_bound
    )
    less = Budget(1e-3, 1e-6, Composition())
    member.require_group()
    with pytest.raises(dp.BudgetError, match="'bob'"):
        dataclasses.replace(member, budget=less).require_group()
    for change in ({"share": 1}, {"committed": None}, {"budget": None}):
        dataclasses.replace(member, **{"budget": less, **change}).require_group()


@pytest.mark.parametrize("times", [1, 7, 40, 2000])
def test_a_refusal_writes_the_least_budget_that_covers_what_was_asked(times):
    """With three digits, rounded up."""
    book = account(1e-3, 1e-6)
    error = book.refusal(NORMAL, times)
    (written,) = re.findall(r"noise_multiplier=10\), epsilon=([^,]+), delta=1e-06\)", str(error))
    needed = Composition().with_gaussian(10.0, times).price(1e-6).epsilon
    assert needed <= float(written) <= 1.011 * needed
    assert float(f"{float(written):.3g}") == float(written)
    few = str(book.refusal(NORMAL, times, rounds=(2, 5)))
    assert "noise_multiplier=10), rounds=2, epsilon=0.001, delta=1e-06" in few
