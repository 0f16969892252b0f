"""Identifiers next to data: which rows are used, what is refused, and that nothing shows them."""

import copy
import datetime
import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import dpcvx as dp
from dpcvx.model.adjacency import codes_of, first_rows
from dpcvx.model.private import source_of
from dpcvx.model.sealed import handed_over, has_changed, people_of, unseal

PEOPLE = ["ann", "bob", "ann", "ann", "bob", "cem"]


def visits(data=None, k=2, **arguments):
    arguments = {"shape": None if data is not None else (6, 2), **arguments}
    return dp.Private(data, name="X", adjacency=dp.Rows(9.0, max_rows_per_person=k), **arguments)


def values(rows=6):
    return np.arange(1.0, 2 * rows + 1).reshape(rows, 2) / 4


def read(private, data=None):
    return private.spec.shaped(unseal(source_of(private, data), private.spec))


@pytest.mark.parametrize("k, gone", [(1, [2, 3, 4]), (2, [3]), (3, []), (9, [])])
@pytest.mark.parametrize("people", [PEOPLE, np.array(PEOPLE), np.array(PEOPLE, dtype=object)])
def test_the_first_rows_of_each_person_are_used(k, gone, people):
    expected = values()
    expected[gone] = 0.0
    assert np.array_equal(read(visits(dp.ByPerson(values(), people), k)), expected)
    assert np.array_equal(read(visits(k=k), dp.ByPerson(values(), people)), expected)
    assert np.array_equal(read(visits(k=k), lambda: dp.ByPerson(values(), people)), expected)
    declared = visits(lambda: dp.ByPerson(values(), people), k, shape=(6, 2))
    assert np.array_equal(read(declared), expected)


def test_sparse_rows_and_entries_of_vectors_are_cut_as_well():
    sparse = visits(dp.ByPerson(sp.csr_array(values()), PEOPLE), 1)
    found = unseal(source_of(sparse), sparse.spec)
    assert sp.issparse(found) and found.nnz == 6
    assert np.array_equal(found.toarray(), read(visits(dp.ByPerson(values(), PEOPLE), 1)))
    y = dp.Private(dp.ByPerson(np.ones(6), PEOPLE), adjacency=dp.Rows(1.0, max_rows_per_person=1))
    assert read(y).tolist() == [1, 1, 0, 0, 0, 1]


@settings(max_examples=50)
@given(
    people=st.lists(st.integers(0, 3), min_size=1, max_size=9), k=st.integers(1, 4), data=st.data()
)
def test_one_person_moves_so_many_rows_and_no_choice_of_others(people, k, data):
    """All rows of one person change, those beyond k among them."""
    who, rng = data.draw(st.sampled_from(people)), np.random.default_rng(len(people))
    own = rng.uniform(0.1, 1.0, size=(len(people), 2))
    other = np.where(np.equal(people, who)[:, None], rng.uniform(-1, 0, own.shape), own)
    private = visits(shape=own.shape, k=k)
    one, two = (read(private, dp.ByPerson(d, people)) for d in (own, other))
    moved = np.flatnonzero((one != two).any(axis=1))
    assert set(np.asarray(people)[moved]) == {who}
    assert moved.size == min(k, people.count(who))
    assert private.adjacency.allows(one, two)
    for person in set(people):
        assert np.count_nonzero(one[np.equal(people, person), 0]) == min(k, people.count(person))


def test_identifiers_are_equal_or_not_whatever_they_are():
    assert codes_of(["b", 1, "b", 1.0, ("x", 2)]).tolist() == [0, 1, 0, 1, 4]
    assert codes_of(np.array([2**53, 2**53 + 1])).tolist() == [0, 1]
    assert first_rows(np.array([0, 1, 0, 0, 1]), 2).tolist() == [True, True, True, False, True]


def test_texts_that_look_equal_are_one_person():
    """Otherwise a person would take part with twice as many rows."""
    spellings = ["ann", " ann", "ann\t", "an\u200bn", "\ufeffann", "an\u00adn"]
    assert codes_of(spellings).tolist() == [0] * 6
    assert codes_of(np.array(spellings)).tolist() == [0] * 6
    assert codes_of([("ann", 1), ("ann ", 1), ("ann", 2)]).tolist() == [0, 0, 2]
    assert codes_of(["ren\u00e9", "rene\u0301", "rene"]).tolist() == [0, 0, 2]
    assert codes_of([b"ann", b"ann "]).tolist() == [0, 0]
    assert codes_of([("ann", ""), ("ann", None), ("ann", " ")]).tolist() == [0, 1, 0]
    private = visits(shape=(4, 1), k=1)
    rows = read(private, dp.ByPerson(np.ones((4, 1)), ["ann", "ann\u200b", "bob", " bob"]))
    assert rows.ravel().tolist() == [1, 0, 1, 0]


@pytest.mark.parametrize(
    "people, message",
    [
        (PEOPLE[:4], "6 rows and 4 identifiers"),
        ("abcdef", "no list or array"),
        (np.ones((6, 1)), "no list or array"),
        (np.array([datetime.date(2026, 1, 1)] * 6, "datetime64[D]"), "no list or array"),
        (dict.fromkeys(range(6)), "no list or array"),
        ([*PEOPLE[:5], None], "without an identifier"),
        ([*PEOPLE[:5], " "], "without an identifier"),
        ([*PEOPLE[:5], "\u200b"], "without an identifier"),
        ([*PEOPLE[:5], ()], "without an identifier"),
        ([*PEOPLE[:5], ("", None)], "without an identifier"),
        ([*PEOPLE[:5], ("dot", float("nan"))], "without an identifier"),
        ([*PEOPLE[:5], ("dot", (1, float("nan")))], "without an identifier"),
        ([1.0, 2.0, 3.0, 4.0, 5.0, np.nan], "without an identifier"),
        (np.ma.masked_array(range(6), [0, 0, 0, 0, 0, 1]), "without an identifier"),
        ([*PEOPLE[:5], ["dot"]], "TypeError"),
    ],
)
def test_identifiers_that_tell_no_people_are_refused(people, message):
    for refused in (
        lambda: visits(dp.ByPerson(values(), people)),
        lambda: read(visits(), dp.ByPerson(values(), people)),
        lambda: read(visits(), lambda: dp.ByPerson(values(), people)),
    ):
        with pytest.raises(dp.DataError, match=message) as caught:
            refused()
        assert "ann" not in str(caught.value) and caught.value.__cause__ is None


def test_data_without_identifiers_are_refused_where_rows_are_counted_by_person():
    for refused in (lambda: visits(values()), lambda: read(visits(), values())):
        with pytest.raises(
            dp.DataError, match=r"without identifiers.*dp\.ByPerson\(array, people\)"
        ):
            refused()


@pytest.mark.parametrize("adjacency", [dp.Rows(9.0), dp.Within(1.0)])
def test_identifiers_are_refused_where_no_rows_are_counted_by_person(adjacency):
    with pytest.raises(dp.DataError, match="max_rows_per_person=3"):
        dp.Private(dp.ByPerson(values(), PEOPLE), adjacency=adjacency)


@pytest.mark.parametrize("kind", [dict(simplex=True), dict(bounds=(1, 2)), dict(bounds=(-2, -1))])
def test_rows_that_cannot_be_zero_are_refused(kind):
    with pytest.raises(dp.ModelError, match="set to zero"):
        visits(**kind)
    visits(bounds=(-1, 1))


@pytest.mark.parametrize("k", [0, -1, 1.5, True, "3"])
def test_limits_that_are_no_count_are_refused(k):
    with pytest.raises(dp.ModelError, match="max_rows_per_person"):
        dp.Rows(1.0, max_rows_per_person=k)


def test_the_limit_in_words():
    three = dp.Rows(1.0, records="visit", max_rows_per_person=3)
    assert str(three) == (
        "one person (at most 3 rows of l2 norm at most 1, one per visit) is replaced"
    )
    one = dp.Rows(0.1, relation="add_or_remove_one", max_rows_per_person=1)
    assert "(at most 1 row of" in str(one) and "added or removed" in one.in_full
    assert three.in_full != dp.Rows(1.0, records="visit", max_rows_per_person=4).in_full


def test_all_rows_of_a_client_are_one_persons():
    client = dp.Rows(1.0, max_rows_per_person="all")
    assert str(client).startswith("one person (all rows of l2 norm at most 1, one per record)")
    assert client.moved_rows(6) == 6 and client.allows(values(), -values())
    private = visits(values(), "all")
    assert np.array_equal(read(private), values())
    with pytest.raises(dp.DataError, match="come with identifiers"):
        visits(dp.ByPerson(values(), PEOPLE), "all")


def test_numpy_counts_are_counts():
    assert type(dp.Rows(1.0, max_rows_per_person=np.int64(3)).max_rows_per_person) is int


def test_neighbors_of_people_are_added_or_removed_as_a_whole():
    two = dp.Rows(9.0, relation="add_or_remove_one", max_rows_per_person=2)
    full, gone, half = (values(3) for _ in range(3))
    gone[:2], half[0] = 0.0, 0.0
    assert two.allows(full, gone) and two.allows(gone, full)
    half[1] += 1
    assert not two.allows(full, half)  # one row is removed, another replaced
    assert not two.allows(full, np.zeros_like(full))
    replaced = dp.Rows(9.0, max_rows_per_person=2)
    assert replaced.allows(full, half) and not replaced.allows(full, np.zeros_like(full))


def test_nothing_shows_values_or_identifiers():
    held = dp.ByPerson(values(), PEOPLE)
    assert repr(held) == "ByPerson(<sealed>)" and dir(held) == []
    for leak in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError):
            leak(held)
    assert "ann" not in repr(visits(held))


def test_a_worker_of_the_same_owner_knows_the_people():
    private = visits(dp.ByPerson(values(), PEOPLE))
    make, parts = handed_over(source_of(private))
    twin = make(*parts)
    assert np.array_equal(people_of(twin), people_of(source_of(private)))
    assert np.array_equal(unseal(twin, private.spec), unseal(source_of(private), private.spec))


def test_data_that_changed_since_are_noticed():
    own, people = values(), np.array(PEOPLE)
    private = visits(dp.ByPerson(own, people))
    assert not has_changed(source_of(private), private.spec)
    own[3] = 1.0  # beyond the limit
    assert not has_changed(source_of(private), private.spec)
    own[0] = 1.0
    assert has_changed(source_of(private), private.spec)
    own[0] = values()[0]
    people[3] = "dot"
    assert has_changed(source_of(private), private.spec)


def test_public_proxy_data_need_no_identifiers():
    assert visits(dp.ByPerson(values(), PEOPLE), proxy=values()).proxy[3, 0] == values()[3, 0]
