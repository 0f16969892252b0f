"""Numbers of other types than Python's."""

from dataclasses import dataclass
from fractions import Fraction

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp
from dpcvx._arguments import (
    FLAG,
    POSITIVE,
    TEXT,
    as_python_number,
    check_argument,
    check_fields,
    choice,
    count,
    number,
    optional,
    show,
)
from dpcvx.privacy.accounting import Composition
from dpcvx.privacy.two_block import TwoBlock

NARROW = [np.float16, np.float32, np.float64, np.longdouble, np.int8, np.uint8, Fraction]


@pytest.mark.parametrize("kind", NARROW)
def test_numbers_become_pythons(kind):
    number = as_python_number(kind(3))
    assert number == 3 and type(number) in (int, float)


def test_everything_else_stays_what_it_is():
    for value in (
        True,
        None,
        "text",
        2,
        0.5,
        np.ones(2),
        dp.Gaussian,
        dp.Gaussian(noise_multiplier=3.0),
    ):
        assert as_python_number(value) is value
    graph = dp.networks.build("ring", list("abc"))
    assert as_python_number(graph) is graph


@pytest.mark.parametrize("kind", NARROW)
def test_fields_are_converted_at_any_depth(kind):
    @dataclass(frozen=True)
    class Thing:
        size: object

    outer = Thing(Thing(kind(3)))
    converted = as_python_number(outer)
    assert converted == Thing(Thing(3)) and type(converted.size.size) in (int, float)
    assert type(outer.size.size) is kind  # a copy


@pytest.mark.parametrize("kind", NARROW)
def test_declarations_keep_no_narrow_numbers(kind):
    declared = [
        (dp.Within(kind(3)), "radius"),
        (dp.Rows(kind(3)), "max_norm"),
        (dp.Asserted(l2=kind(3)), "l2"),
        (dp.Agent(cp.Minimize(cp.square(cp.Variable())), clip_norm=kind(3)), "clip_norm"),
        (dp.Gaussian(noise_multiplier=kind(3)), "noise_multiplier"),
        (dp.Laplace(decay=kind(1)), "decay"),
    ]
    for made, name in declared:
        assert type(getattr(made, name)) in (int, float)


def test_plans_do_not_round_with_the_numbers_of_the_method():
    """Products of a gradient's sensitivity with a narrow step size would be narrow."""
    x = cp.Variable(2)
    data = dp.Private(np.zeros(2), adjacency=dp.Within(0.1))
    costs = cp.Minimize(cp.sum_squares(x - data)), cp.Minimize(cp.sum_squares(x))
    model = dp.Problem([dp.Agent(cost, name=name) for cost, name in zip(costs, "ab", strict=True)])
    narrow, plain_number = (
        model.plan(dp.DecentralizedGradient("complete", step), epsilon=1.0, delta=1e-6, rounds=2)
        for step in (np.float16(0.25), 0.25)
    )
    assert narrow.fingerprint == plain_number.fingerprint
    ledgers = [plan.run(seed=1).ledger.to_json() for plan in (narrow, plain_number)]
    assert ledgers[0] == ledgers[1]


def test_narrow_multipliers_are_charged_as_what_they_are():
    for add in (Composition().with_gaussian, Composition().with_laplace):
        assert add(np.float16(300), 10) == add(300.0, 10)


def test_constants_of_bounds_are_not_narrow():
    block = TwoBlock(nu=np.float16(2), beta=np.float32(1), eta=np.float16(0.1), A_norm=1)
    assert {type(v) for v in (block.nu, block.beta, block.eta)} == {float}


SHARE = number(lambda v: 0 <= v <= 1, "from 0 to 1")


@pytest.mark.parametrize(
    ("kind", "fits", "refused", "words"),
    [
        (POSITIVE, [1, 0.5, np.float16(2)], [0, -1, np.inf, np.nan, True, "1", None, 10**400],
         "a positive finite number"),
        (SHARE, [0, 1, 0.5], [-0.1, 1.1, np.nan, True, "0"], "a number from 0 to 1"),
        (count(), [1, np.int8(3)], [0, 1.0, True, None, 10**10],
         "an int of at least 1 and at most 1e+09"),
        (FLAG, [True, np.bool_(False)], [0, 1, None, "yes"], "True or False"),
        (TEXT, ["", "name"], [3, None, "\ud800"], "text that can be written down"),
        (choice("a", "b", "c"), ["a", "c"], ["d", None, ["a"], np.array("a")], "'a', 'b' or 'c'"),
        (optional(choice("a")), ["a", None], ["b"], "'a'"),
        (POSITIVE.because("a size"), [1], [0], "a positive finite number: a size"),
    ],
)  # fmt: skip
def test_kinds_take_what_fits_and_refuse_the_rest_in_words(kind, fits, refused, words):
    for value in fits:
        check_argument("dp.Thing", "size", value, kind)
    for value in refused:
        with pytest.raises(dp.ModelError) as caught:
            check_argument("dp.Thing", "size", value, kind)
        assert str(caught.value) == f"dp.Thing(size={show(value)}) must be {words}."
    with pytest.raises(dp.PrivacyError, match=r"^size=.* must be"):
        check_argument("", "size", refused[0], kind, dp.PrivacyError)


@pytest.mark.parametrize("kind", NARROW)
def test_fields_that_are_checked_become_pythons(kind):
    @dataclass(frozen=True)
    class Thing:
        size: object

        def __post_init__(self):
            check_fields(self, "Thing", size=optional(POSITIVE))

    assert type(Thing(kind(3)).size) in (int, float) and Thing(None).size is None
    with pytest.raises(dp.ModelError, match=r"Thing\(size=0"):
        Thing(kind(0))


CANARY = 31415.92653


class Quoting:
    """Its text is a secret, and so is what it raises."""

    def __repr__(self):
        return str(CANARY)

    @property
    def shape(self):
        raise RuntimeError(str(CANARY))


class Number(Fraction):
    """A number whose conversion quotes it."""

    def __float__(self):
        raise ValueError(str(CANARY))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "None"),
        (np.bool_(True), "True"),
        (np.int8(-3), "-3"),
        (np.float32(0.5), "0.5"),
        (Fraction(1, 4), "0.25"),
        (1 + 2j, "(1+2j)"),
        (float("nan"), "nan"),
        (10**400, "<int>"),
        (np.str_("once"), "'once'"),
        ("x" * 1000, "<str of length 1000>"),
        (b"31415", "<bytes of length 5>"),
        ([CANARY], "<list of length 1>"),
        ({CANARY: CANARY}, "<dict of length 1>"),
        (np.full((2, 3), CANARY), "<ndarray of shape (2, 3)>"),
        (np.array(CANARY), "<ndarray of shape ()>"),
        (cp.Variable(2), "<Variable of shape (2,)>"),
        (dp.Gaussian, "<class Gaussian>"),
        (dp.Gaussian(), "<Gaussian>"),
        (Quoting(), "<Quoting>"),
        (Number(1, 4), "<Number>"),
    ],
    ids=repr,
)
def test_messages_show_numbers_short_text_and_types(value, text):
    assert show(value) == text


@pytest.mark.parametrize("value", [[CANARY], np.full(3, CANARY), Quoting(), str([CANARY] * 9)])
@pytest.mark.parametrize(
    "make",
    [
        dp.Within,
        dp.Rows,
        lambda value: dp.Asserted(l2=value),
        lambda value: dp.Gaussian(noise_multiplier=value),
        lambda value: dp.Private(shape=value, adjacency=dp.Within(1.0)),
        lambda value: dp.Agent(cp.Minimize(cp.square(cp.Variable())), clip_norm=value),
        lambda value: dp.LinearizedADMM(penalty=value),
        lambda value: dp.LinearizedADMM(step=value),
        dp.Threads,
    ],
)
def test_misplaced_values_are_not_quoted(make, value):
    with pytest.raises(dp.DpcvxError) as caught:
        make(value)
    assert str(CANARY) not in str(caught.value)
