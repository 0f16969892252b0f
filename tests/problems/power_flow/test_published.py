"""Comparators for published private power flow, against formulations of the tests."""

import numpy as np
import pytest
from scipy.optimize import linprog

import dpcvx as dp
from problems.power_flow import CaseError, read_case
from problems.power_flow.published import (
    affine_policies,
    bus_agents,
    feeder_table,
    main,
    message_epsilon,
    private_feeder,
    read_feeder,
    read_load,
    static_noise,
)

# Root 0, then 1 - 2 - 3, and 4 at the root.
NODES = """index,d_P,d_Q,v_max,v_min
0,0,0,1.21,0.81
1,0.02,0.008,1.21,0.81
2,0.03,0.012,1.21,0.81
3,0.01,0.004,1.21,0.81
4,0.025,0.01,1.21,0.81
"""
LINES = """index,node_f,node_t,r,x,s_max
2,1,2,0.09,0.12,0.5
1,0,1,0.01,0.12,0.5
3,2,3,0.05,0.07,0.2
4,0,4,0.15,0.11,0.2
"""
UNITS = """index,node,p_max,q_max,cost
g1,0,1000,1000,20
g2,1,0.8,0.4,12
g3,2,0.8,0.4,9
g5,4,0.8,0.4,11
g4,3,0.8,0.4,10
"""


@pytest.fixture
def folder(tmp_path):
    for name, text in (("nodes", NODES), ("lines", LINES), ("generators", UNITS)):
        (tmp_path / f"{name}.csv").write_text("\ufeff" + text)
    return tmp_path


def test_feeder_is_read_by_bus_whatever_the_order_of_rows(folder):
    feeder = read_feeder(folder)
    assert feeder.price == pytest.approx([12, 9, 10, 11])
    assert np.array_equal(feeder.below[0], [1, 1, 1, 0])
    assert np.array_equal(feeder.below[:, 2], [1, 1, 1, 0])
    assert feeder.resistance[1, 2] == pytest.approx(0.10)
    assert feeder.reactance[2, 3] == 0
    assert feeder.rating == pytest.approx([0.5, 0.5, 0.2, 0.2])


def test_optimum_without_noise_is_that_of_a_linear_program(folder):
    """No limit on flows or voltages binds, so the root's reactive power alone does."""
    feeder = read_feeder(folder)
    saved = linprog(
        feeder.price - 20,
        np.array([[0.5] * 4, [1.0] * 4]),
        [feeder.reactive.sum(), feeder.active.sum()],
    )
    assert feeder.cheapest == pytest.approx(20 * feeder.active.sum() + saved.fun, rel=1e-6)


def test_policies_balance_the_noise_and_move_each_flow_by_as_much(folder):
    feeder = read_feeder(folder)
    noise = feeder.radius
    policies = affine_policies(feeder, noise)
    assert np.all(policies.flow >= noise * (1 - 1e-6))
    # What generators below a line take up is at least the line's own variable.
    taken = feeder.below @ policies.response
    assert np.diag(taken) == pytest.approx(-noise, rel=1e-6)
    assert policies.cost > feeder.cheapest
    averse = affine_policies(feeder, noise, averse=True)
    assert averse.worst <= policies.worst + 1e-6 and averse.cost >= policies.cost - 1e-6
    # Limits hold with their probabilities: counted for generation, at 1 % (4 standard errors).
    drawn = policies.power + np.random.default_rng(1).normal(size=(20_000, 4)) @ policies.response.T
    assert np.all(np.mean(drawn < -1e-9, axis=0) < 0.01 + 4 * np.sqrt(0.01 / 20_000))


def test_noise_that_no_limits_admit_is_named(folder):
    feeder = read_feeder(folder)
    with pytest.raises(dp.SolverError, match="No affine policies satisfy the limits"):
        affine_policies(feeder, 100 * feeder.radius)


def test_released_loads_keep_limits_and_cost_little(folder):
    feeder = read_feeder(folder)
    problem, power = private_feeder(feeder)
    plan = problem.plan(epsilon=1.0, delta=1 / 14, violation_probability=0.1)
    assert plan.guarantee.epsilon <= 1
    plan.run(seed=1)
    assert np.sum(feeder.reactive - 0.5 * power.value) >= -1e-9
    text = feeder_table(feeder, 1.0, 1 / 14, 2)
    assert "2.39 radii" in text and "(0.28, 0.0714)-DP" in text
    assert text.splitlines()[1].startswith("no noise")


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        ("lines", "r,x", "r,reactance", "lacks one of the columns"),
        ("nodes", "0.025", "a lot", "no number"),
        ("lines", "2,1,2", "2,3,2", "form a loop"),
        ("generators", "g5,4", "g5,3", "not a tree with a generator"),
    ],
)
def test_other_folders_are_refused(folder, name, old, new, message):
    path = folder / f"{name}.csv"
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(CaseError, match=message):
        read_feeder(folder)


def test_noise_that_is_drawn_once_leaves_loads_to_be_read():
    agents = bus_agents(read_case(14))
    trace = static_noise(agents, 1.0, rounds=400, seed=1)
    read = {int(bus): read_load(agents, trace, int(bus)) for bus in agents.loaded}
    known = {bus: load for bus, load in read.items() if load is not None}
    assert len(known) >= 5
    for bus, load in known.items():
        assert load == pytest.approx(agents.load[bus], abs=1e-6)


def test_updates_of_agents_minimize_what_they_are_said_to():
    """Against a grid of y, with the best angles for each."""
    agents = bus_agents(read_case(14))
    for bus in (1, 8, 13):
        target = np.linspace(-3, 2, len(agents.neighbors[bus]))
        load, b = float(agents.load[bus]), agents.coefficients[bus]
        angles, y = agents.update(bus, target, load, agents.most(bus, load))
        assert b @ angles == pytest.approx(y - load)
        grid = np.linspace(0, agents.most(bus, load), 20_001)
        apart = (grid - load - b @ target) / np.linalg.norm(b)
        costs = agents.quadratic[bus] * grid**2 + agents.linear[bus] * grid
        costs += agents.penalty / 2 * apart**2
        assert y == pytest.approx(grid[np.argmin(costs)], abs=2 * grid[1])


def test_one_message_loses_more_than_its_epsilon():
    agents = bus_agents(read_case(14))
    assert message_epsilon(agents, 13, 1.0) == pytest.approx(6.48, abs=0.01)
    assert all(message_epsilon(agents, int(bus), 1.0) > 3 for bus in agents.loaded)


def test_command_prints_both_tables(folder, capsys):
    main(["--feeder", str(folder), "--seeds", "1"])
    shown = capsys.readouterr().out
    assert "released loads" in shown and "9 of 11" in shown
