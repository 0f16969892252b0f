"""Zones with copies of what they share: the same optimum, in fewer rounds."""

from typing import Any

import numpy as np
import pytest

import dpcvx as dp
from problems.power_flow.case import read_case
from problems.power_flow.model import cost_scale
from problems.power_flow.physics import susceptances
from problems.power_flow.study import power_flow
from problems.power_flow.ties import (
    angle_coordinates,
    copied_pairs,
    crossing,
    seen_buses,
    views,
    voltage_coordinates,
)
from problems.power_flow.zones import read_zones

CASE14 = read_case(14)
PUBLIC: dict[str, Any] = dict(objective="cost", private=None)


def dollars(study, solution):
    return dp.not_private.objective(study.problem, solution) / cost_scale(study.case)


@pytest.mark.parametrize(
    ("model", "more"),
    [
        ("dc", {}),
        ("dc", dict(horizon=2, profiles=np.array([1.0, 0.8]), ramps=0.5)),
        ("soc", {}),
        ("soc", dict(cuts=True)),
    ],
)
def test_shared_ties_leave_the_optimum_and_its_point_unchanged(model, more):
    points = []
    for shared in ("voltage", "tie"):
        study = power_flow(14, model=model, zones=3, shared=shared, **PUBLIC, **more)
        solution = study.problem.plan(dp.OneShot(), mechanism=None).run().solution
        points.append((dollars(study, solution), study.state()))
    (best, state), (value, other) = points
    assert value == pytest.approx(best, rel=1e-6)
    for name in ("w", "wr", "wi", "pg", "pf", "pt"):
        np.testing.assert_allclose(getattr(other, name), getattr(state, name), atol=1e-4)


@pytest.mark.parametrize("shared", ["tie", "voltage"])
def test_zones_with_shared_ties_reach_the_optimum_in_a_hundred_rounds(shared):
    study = power_flow(118, model="dc", zones=3, shared=shared, **PUBLIC)
    plan = study.problem.plan(dp.ADMM(penalty=1.0), mechanism=None, rounds=100)
    error = dollars(study, plan.run().solution) / 93100.73 - 1  # optimum of pglib-opf
    assert (abs(error) < 2e-3) == (shared == "tie"), error


def test_views_take_copies_to_what_they_copy():
    zones = read_zones(3, CASE14)
    count, seen = views(14, seen_buses(zones), zones.neighbors)
    assert count == 14 + sum(map(len, zones.neighbors))
    values = np.full(count, np.nan)
    values[:14] = np.arange(14)
    values[14:] = np.concatenate(zones.neighbors) + 0.5
    for zone, view in enumerate(seen):
        taken = view.placed @ values[view.entries]
        np.testing.assert_array_equal(taken[zones.buses[zone]], zones.buses[zone])
        np.testing.assert_array_equal(taken[zones.neighbors[zone]], zones.neighbors[zone] + 0.5)
    every = np.concatenate([view.entries for view in seen])
    assert len(np.unique(every)) == len(every) == count  # nobody shares an entry


def test_every_crossing_pair_has_two_zones_and_one_copy():
    zones = read_zones(3, CASE14)
    cross = crossing(CASE14, zones)
    np.testing.assert_array_equal(np.sort(np.concatenate(copied_pairs(CASE14, zones))), cross)
    first = zones.of_bus[CASE14.pairs.first[cross]]
    assert (first != zones.of_bus[CASE14.pairs.second[cross]]).all() and len(cross) > 0


def test_quantities_of_ties_are_weighted_by_admittance():
    zones, case = read_zones(3, CASE14), CASE14
    pairs = crossing(case, zones)
    first, second = case.pairs.first[pairs], case.pairs.second[pairs]
    angle = np.random.default_rng(1).normal(size=(14, 2))
    size = np.zeros(len(case.pairs.first))
    np.add.at(size, case.pairs.of_branch, np.abs(susceptances(case)))
    y = size[pairs][:, None]
    across, level = angle_coordinates(case, pairs, angle)
    # The first penalty is twice the flow squared by y, and both are equal if one angle is 3 times
    # the other.
    np.testing.assert_allclose(across**2, 2 * (y * (angle[first] - angle[second])) ** 2 / y)
    np.testing.assert_allclose(level**2, y * ((angle[first] + angle[second]) / 2) ** 2 / 2)
    w, wr, wi = 2 * angle[:, 0], np.zeros(len(size)), np.zeros(len(size))
    wi[pairs], wr[pairs] = 0.3, (w[first] + w[second]) / 2
    active, reactive, losses, level = voltage_coordinates(case, pairs, w, wr, wi)
    y = np.zeros(len(size))
    np.add.at(y, case.pairs.of_branch, 1 / np.hypot(case.branch.r, case.branch.x))
    y = y[pairs]
    np.testing.assert_allclose(active, np.sqrt(2 * y) * 0.3)
    np.testing.assert_allclose(reactive, np.sqrt(2 * y) * (w[first] - w[second]) / 2)
    np.testing.assert_allclose(losses, 0, atol=1e-12)
    np.testing.assert_allclose(level, np.sqrt(y / 2) * (w[first] + w[second]) / 4)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (dict(model="dc", contingencies=[6]), "does not support contingencies="),
        (dict(model="dc", form="ptdf"), "no effect with form='ptdf'"),
        (dict(model="distflow"), "no effect with model='distflow'"),
    ],
)
def test_models_without_copies_refuse_shared_ties(options, reason):
    with pytest.raises(dp.ModelError, match=reason):
        power_flow(14, zones=3, shared="tie", **PUBLIC, **options)


def test_an_unknown_word_for_shared_is_refused_with_every_model():
    with pytest.raises(dp.ModelError, match="shared='ties' is not known"):
        power_flow(14, model="dc", shared="ties", **PUBLIC)  # pyright: ignore
