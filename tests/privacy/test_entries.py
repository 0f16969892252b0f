"""Ledger entries, against a list that is appended to; runs of one kind take no memory."""

import dataclasses
import itertools
import json
import pickle
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpcvx._words import plural
from dpcvx.privacy.accounts import Account
from dpcvx.privacy.entries import Entries, Entry
from dpcvx.privacy.ledger import Ledger

FIRST = Entry(1, 1, "Gaussian", 10.0, 0.5, 2.0**-20, "derived", "gradient")
OTHERS = {
    "mechanism": "Laplace",
    "multiplier": 20.0,
    "sensitivity": 0.25,
    "grid": 2.0**-21,
    "certificate": "asserted",
    "released": "solution of a local step",
    "stated": (0.5, 1e-6),
    "colluders": 1,
    "alone": 2.5,
}


def at(t, step, entry=FIRST):
    return dataclasses.replace(entry, round=t, step=step)


def run(rounds, steps, entry=FIRST, first=1):
    """The entries of so many rounds."""
    places = itertools.product(range(first, first + rounds), range(1, steps + 1))
    return [at(t, step, entry) for t, step in places]


kinds = st.sampled_from([FIRST, *(dataclasses.replace(FIRST, **{k: v}) for k, v in OTHERS.items())])
runs = st.builds(
    lambda rounds, steps, entry, first, lost, torn: run(rounds, steps, entry, first)[lost:][:torn],
    st.integers(1, 4), st.integers(1, 5), kinds, st.integers(0, 4), st.integers(0, 6),
    st.integers(1, 20),
)  # fmt: skip
singles = st.builds(at, st.integers(0, 3), st.integers(1, 4), kinds).map(lambda entry: [entry])
books = st.lists(runs | singles, max_size=6).map(lambda parts: list(itertools.chain(*parts)))


@given(books)
def test_what_was_appended_is_what_is_read(book):
    entries, expected = Entries(), []
    for entry in book:
        entries.append(entry)
        expected.append(entry)
        assert entries[-1] == entry and len(entries) == len(expected)
    assert list(entries) == expected == list(Entries(book))


@given(books, st.data())
def test_entries_are_found_at_every_index_and_slice(book, data):
    entries, n = Entries(book), len(book)
    assert [entries[i] for i in range(-n, n)] == book + book
    chosen = data.draw(st.slices(n))
    assert entries[chosen] == book[chosen]
    for beyond in (n, -n - 1):
        with pytest.raises(IndexError):
            entries[beyond]


@given(books, books, books)
def test_a_copy_goes_on_without_the_first(book, more, others):
    entries = Entries(book)
    copy = entries.copy()
    for part, extra in ((entries, more), (copy, others)):
        for entry in extra:
            part.append(entry)
    assert (list(entries), list(copy)) == (book + more, book + others)
    assert (len(entries), len(copy)) == (len(book + more), len(book + others))


@given(books, books)
def test_entries_equal_the_sequences_that_hold_the_same(book, other):
    entries = Entries(book)
    assert entries == book and book == entries and entries == tuple(book)
    assert entries == Entries(book) and not entries != book
    assert (entries == other) is (Entries(other) == entries) is (book == other)
    assert entries != [*book, FIRST] and [FIRST, *book] != entries
    assert entries != len(book) and entries != dict.fromkeys(range(len(book)))


@given(books)
def test_entries_survive_a_pickle_and_tell_what_they_hold(book):
    entries = Entries(book)
    assert pickle.loads(pickle.dumps(entries)) == book
    assert repr(entries) == f"<Entries: {plural(len(book), 'release')}>"
    assert bool(entries) is bool(book)
    assert all(entry in entries for entry in book) and at(9, 9) not in entries


def moved(entry):
    """An entry wherever it stands."""
    return at(1, 1, entry)


@given(books, st.lists(st.integers(0, 5), max_size=4))
def test_kinds_are_all_entries_without_their_places(book, places):
    entries = Entries(book)
    picked = book[:6]
    places = [place for place in places if place < len(picked)]
    entries.pick(tuple(picked), np.array(places, dtype=int))
    expected = [*book, *(picked[place] for place in places)]
    found = [moved(entry) for entry, count in entries.kinds for _ in range(count)]
    assert found == [moved(entry) for entry in expected]
    assert all(entry in expected for entry, _ in entries.kinds)


def test_what_follows_in_rounds_is_one_kind_and_its_first_entry_is_kept_as_it_is():
    book = run(40, 3)
    assert list(Entries(book).kinds) == [(book[0], 120)]
    assert Entries(book)[0] is book[0]


@pytest.mark.parametrize("field", OTHERS)
@pytest.mark.parametrize("step", [1, 2, 3])
def test_a_change_in_the_middle_of_a_run_is_kept(field, step):
    book = run(6, 3)
    changed = dataclasses.replace(FIRST, **{field: OTHERS[field]})
    start = book.index(at(3, step))
    book[start:] = [at(e.round, e.step, changed) for e in book[start:]]
    assert list(Entries(book)) == book
    assert {getattr(e, field) for e in Entries(book)[start:]} == {OTHERS[field]}


@pytest.mark.parametrize(
    "places",
    [
        [(1, 1), (1, 2), (2, 1), (3, 1)],  # the second round was torn
        [(1, 1), (2, 1), (2, 2), (3, 1), (3, 2)],  # the first was
        [(1, 1), (1, 2), (3, 1), (3, 2)],  # a round was left out
        [(1, 1), (1, 2), (2, 1), (2, 2), (1, 1), (1, 2)],  # the next run of one ledger
        [(2, 1), (2, 1), (2, 1)],
        [(2, 2), (2, 1), (1, 2), (1, 1)],
        [(0, 1), (1, 1), (1, 2), (1, 3), (2, 1)],  # published before the first round
    ],
    ids=str,
)
def test_places_that_do_not_follow_on_each_other_are_kept(places):
    book = [at(*place) for place in places]
    assert [(e.round, e.step) for e in Entries(book)] == places


def kept(entries, places, entry=FIRST):
    """Bytes that entries keep of releases, each made when it is released."""
    tracemalloc.start()
    for t, step in places:
        entries.append(at(t, step, entry))
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return size


def places(first, last, steps=5):
    """Releases of these rounds."""
    return itertools.product(range(first, last + 1), range(1, steps + 1))


def test_ten_thousand_rounds_of_five_steps_take_less_than_a_kilobyte():
    entries = Entries()
    assert kept(entries, places(1, 10_000)) < 1000
    assert len(entries) == 50_000 and (entries[-1].round, entries[-1].step) == (10_000, 5)


def test_so_do_those_of_a_ledger_that_goes_on_amid_a_round():
    entries = Entries()
    assert kept(entries, itertools.islice(places(3, 1000), 3, None)) < 1000
    assert [(e.round, e.step) for e in entries[:3]] == [(3, 4), (3, 5), (4, 1)]


def test_a_release_of_another_kind_costs_memory_once():
    entries = Entries()
    kept(entries, places(1, 500))
    assert kept(entries, places(501, 1000), dataclasses.replace(FIRST, sensitivity=0.25)) < 1000
    assert (entries[2499].sensitivity, entries[2500].sensitivity) == (0.5, 0.25)


def test_accounts_keep_their_entries_in_little_memory():
    account = Account("bob", {}, None)
    tracemalloc.start()
    for t, step in places(1, 1000, 3):
        account.expose(at(t, step))
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # One by one they would take more than 500 kB; what else a process allocates is a few kB.
    assert size < 10_000 and len(account.entries) == 3000


def test_every_entry_is_written_as_json():
    account = Account("bob", {}, None)
    for entry in run(50, 3):
        account.expose(entry)
    lines = json.loads(Ledger((account,)).to_json())["bob"]
    assert lines == [dataclasses.asdict(entry) for entry in run(50, 3)]
