"""Plans say and derive what is recorded; see `tests.golden` for how to record them anew."""

import json

import pytest

from tests.golden.__main__ import recorded
from tests.golden.cases import METHODS, PROBLEMS, RELEASES, cases, selected
from tests.golden.record import equal, planned


@pytest.fixture(scope="module")
def known():
    return recorded()


def test_all_cases_are_recorded(known):
    assert [str(case) for case in cases()] == list(known)


def test_selected_cases_are_spread_over_all_choices():
    for choices, names in zip(
        zip(*selected(), strict=True), (METHODS, PROBLEMS, RELEASES), strict=True
    ):
        assert set(choices) == set(names)


@pytest.mark.parametrize("method", METHODS)
def test_plans_of_a_method_are_as_recorded(method, known):
    for case in selected():
        if case.method == method:
            said = json.loads(json.dumps(planned(case)))
            assert equal(said, known[str(case)]), str(case)


@pytest.mark.parametrize(
    ("other", "same"),
    [
        ("epsilon 1 of 2, noise 0.304", True),
        ("epsilon 1 of 2,\n  noise 0.305", True),
        ("epsilon 1 of 2, noise 0.306", False),
        ("epsilon 1 of 2, noises 0.304", False),
        ("epsilon 2 of 2, noise 0.304", False),
    ],
)
def test_texts_are_equal_up_to_the_last_printed_digit(other, same):
    assert equal({"text": "epsilon 1 of 2, noise 0.304"}, {"text": other}) == same


@pytest.mark.parametrize(
    ("other", "same"), [(0.1 + 1e-12, True), (0.1 + 1e-9, False), (None, False)]
)
def test_numbers_are_equal_up_to_rounding(other, same):
    assert equal([0.1], [other]) == same
