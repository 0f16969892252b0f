"""What stays hidden, in the terms of a grid, and that the noise is for exactly that."""

import numpy as np
import pytest

import dpcvx as dp
from problems.power_flow.hidden import adjacency
from problems.power_flow.study import power_flow


@pytest.mark.parametrize(
    ("hidden", "change", "kept"),
    [
        ("entry", [[0.01, 0.0], [0.0, 0.0]], True),
        ("entry", [[0.01, 0.01], [0.0, 0.0]], False),
        ("customer", [[0.006, 0.008], [0.0, 0.0]], True),
        ("customer", [[0.01, 0.008], [0.0, 0.0]], False),
        ("zone", [[0.01, -0.01], [0.01, 0.01]], True),
        ("zone", [[0.02, 0.0], [0.0, 0.0]], False),
        (dp.Within(0.03, norm=1), [[0.01, 0.01], [0.01, 0.0]], True),
    ],
)
def test_changes_that_stay_hidden(hidden, change, kept):
    loads = np.array([[0.5, 0.1], [0.2, 0.05]])
    assert adjacency(hidden, 0.01).allows(loads, loads + change) is kept


def test_a_whole_load_is_any_other_of_at_most_that_power():
    assert adjacency("load", 1.2) == dp.Rows(1.2)
    study = power_flow(14, hidden="load", radius=1.2)
    plan = study.problem.plan(epsilon=1.0, delta=1e-6)
    # One load of 1.2 for another on the other side, against one number that changes by 0.01.
    entry = power_flow(14).problem.plan(epsilon=1.0, delta=1e-6)
    ratio = plan.agents[0].sensitivity.bound(2).value / entry.agents[0].sensitivity.bound(2).value
    assert ratio == pytest.approx(2 * 1.2 / 0.01)
    assert dp.check_sensitivity(plan).passed
    # The largest load of the network is larger than half a unit.
    with pytest.raises(dp.DataError, match="exceeds the declared bound 0.5"):
        power_flow(14, hidden="load", radius=0.5)


def test_unknown_changes_are_refused_in_words():
    with pytest.raises(dp.ModelError, match="hidden='bus' is unknown.*'customer'"):
        power_flow(14, hidden="bus")
    with pytest.raises(dp.ModelError, match="radius"):
        power_flow(14, hidden="zone", radius=0.0)
