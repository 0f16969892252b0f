"""How numbers, counts and lists are written."""

import math

import pytest

from dpcvx._words import Named, at_least, at_most, between, marked, named, number, plural, together


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1e-6, "1e-6"), (1.5e-100, "1.5e-100"), (1e6, "1e6"), (2e20, "2e20"),
        (0.28284271, "0.282843"), (0.0, "0"), (100.0, "100"), (math.inf, "inf"),
    ],
)  # fmt: skip
def test_numbers_have_six_digits_and_no_zeros_in_exponents(value, text):
    assert number(value) == text and float(text) == pytest.approx(value, rel=2e-6)


def test_one_is_singular():
    assert [plural(k, "round") for k in (0, 1, 2)] == ["0 rounds", "1 round", "2 rounds"]


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["a"], "a"),
        (["a", "b"], "a and b"),
        (["a0", "a1"], "a0 and a1"),
        (["a0", "a1", "a2", "b"], "a0 to a2 and b"),
        (["agent 9", "agent 10", "agent 11"], "agent 9 to agent 11"),
        (["'d1'", "'d2'", "'d3'"], "'d1' to 'd3'"),
        (["a1", "a3", "a5"], "a1, a3 and a5"),
        (["a1", "b2", "c3"], "a1, b2 and c3"),
        (["a3", "a2", "a1"], "a3, a2 and a1"),
        (["9" * 5000, "8" * 5000], f"{'9' * 5000} and {'8' * 5000}"),
    ],
)
def test_names_that_count_on_become_a_range(names, text):
    assert together(names) == text


def test_long_lists_are_cut_and_say_so():
    text = together([chr(ord("a") + k) for k in range(26)], "or")
    assert text == "a, b, c, d, e, f, g, h, i, j, k, l or 14 more"


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.9999993, "1"), (1.0, "1"), (1 + 1e-12, "1"), (3.5250001, "3.53"), (0.0, "0")],
)
def test_a_bound_is_never_written_smaller(value, text):
    assert at_most(value) == text


def test_a_lower_bound_is_never_written_larger():
    assert [at_least(v) for v in (0.9999993, 1 - 1e-12, 2.718281828)] == ["0.999", "1", "2.71"]
    assert between(1.0, 1.0000001) == "1" and between(0.1234, 5.678) == "0.123 to 5.67"


def test_a_text_that_is_true_of_several_names_all_of_them():
    def names(k):
        return [Named("", f"'X{k}'"), Named("one ", f"day {k}", " (", "of ")]

    said = {marked(f"one day {k} (a row) of 'X{k}' moves it by 1", names(k)) for k in (1, 2, 3)}
    (text,) = said
    assert named(text, [names(1)]) == "one day 1 (a row) of 'X1' moves it by 1"
    every = "one of day 1 to day 3 (a row) of 'X1' to 'X3' moves it by 1"
    assert named(text, [names(k) for k in (1, 2, 3)]) == every
    assert marked("one day 1 (a row) of 'X1' moves it by 2", names(1)) not in said
