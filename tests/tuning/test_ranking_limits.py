"""Searches for problems with private constraints: what is tried, and what is said of it."""

import math

import cvxpy as cp
import pytest

import dpcvx as dp
from dpcvx.problem import planned
from dpcvx.tuning.settings import ways
from dpcvx.tuning.tune import compare, tune
from tests.tuning.trials import grid, picked, request

NAMES = (
    "release once, central, Laplace",
    "release once, central, Gaussian",
    "noisy gradients, Gaussian",
)


def asked(verb="problem.tune", **given):
    usual = dict(proxy=None, violation_probability=0.3, time_limit=120.0)
    return request(verb, **usual | given)


def test_each_kind_of_noise_is_tried_with_its_margins_and_counted():
    found = compare(grid(), planned, asked("problem.compare"), picked(*NAMES), 10)
    rows = {c.plan.agents[0].noise.mechanism: c for c in found.candidates}
    assert rows.keys() == {dp.Laplace(), dp.Gaussian()}
    margins = {
        kind: sum(sum(kept.margins.values()) for kept in row.plan.program.kept)
        for kind, row in rows.items()
    }
    assert margins[dp.Laplace()] < margins[dp.Gaussian()]
    assert all(c.plan.violation_probability == 0.3 for c in found.candidates)
    for row in found.candidates:
        assert row.broken == sum(gap < 0 for gap in row.gaps)
        assert f"broke a private constraint in {row.broken} of" in str(found)
    assert "promised: at most 0.3 of all" in str(found)
    assert "initial point, which breaks a private constraint" in str(found)
    assert found.start == math.inf and found.recommended in found.candidates
    assert "the data are released once" in found.refused["noisy gradients, Gaussian"]


def test_a_price_is_that_of_every_plan():
    found = tune(grid(), planned, asked(slack_penalty=4.0), picked(*NAMES[:2]))
    for candidate in found.candidates:
        assert {kept.price for kept in candidate.plan.program.kept} == {4.0}


def test_margins_that_leave_no_decision_are_named():
    def near(p, load):
        return cp.abs(cp.sum(p) - cp.sum(load)) <= 0.01

    found = tune(grid([near]), planned, asked(), picked(*NAMES[:2]))
    assert not found.worthwhile
    assert "margins leave no decision. Pass slack_penalty=" in " ".join(str(found).split())
    priced = tune(grid([near]), planned, asked(slack_penalty=50.0), picked(*NAMES[:2]))
    assert priced.worthwhile


def test_a_stand_in_that_nothing_suits_is_named():
    def above(p, load):
        return cp.sum(p) <= cp.sum(load) - 1

    def no_reserve(p, load):
        return p[0] >= load[0] + 2.5

    with pytest.raises(dp.ModelError, match="contradict each other, on the proxy data"):
        tune(grid([above, no_reserve]), planned, asked(), picked(*NAMES[:1]))


def test_sums_of_moments_are_tried_where_sharing_is_given():
    (moments,) = (
        way
        for way in ways(dp.SecretSharing(100.0), 2)
        if getattr(way.algorithm, "sums", None) == "moments"
    )
    assert moments.algorithm == dp.OneShot(dp.SecretSharing(100.0), 2, "moments")
