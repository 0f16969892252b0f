"""Prices: money that balances, rents, and how firm prices are."""

from dataclasses import replace

import numpy as np
import pytest

import dpcvx as dp
from problems.power_flow.hours import Store
from problems.power_flow.prices import prices
from problems.power_flow.solution import central
from problems.power_flow.study import power_flow
from tests.problems.power_flow.networks import blind
from tests.problems.power_flow.test_dc import network


def settled(case, **options):
    """A study without noise, and its result."""
    study = power_flow(case, model="dc", **options)
    plan = study.problem.plan(constraints="released", mechanism=None)
    return study, plan.run()


def test_a_congested_line_earns_the_difference_of_its_prices():
    # 8 MW fit through the line; the generators cost 1 and 10 $/MWh.
    case = network(0, 20, branches=[(1, 2, 0.1, 8, 0, 0)], gens=((1, 100, 1), (2, 100, 10)))
    study, result = settled(case, zones=1)
    found = prices(study, result)
    np.testing.assert_allclose(found.price[:, 0], [1, 10], rtol=1e-5)
    np.testing.assert_allclose(found.paid, [0, 200], atol=1e-3)
    np.testing.assert_allclose(found.earned, [8, 120], rtol=1e-4)
    assert found.rent == pytest.approx(8 * 9, rel=1e-4)
    assert "congestion rent 72.00 $" in str(found)


def test_money_balances_by_lines_over_hours_with_storage():
    options = dict(horizon=3, profiles=np.array([0.5, 1.1, 0.9]), zones=2)
    study, result = settled(5, storage=[Store(bus=4, power=50, energy=100)], **options)
    found = prices(study, result)
    case, flow = study.case, np.array([study.state(hour).pf for hour in range(3)]).T
    across = found.price[case.branch.to_bus] - found.price[case.branch.from_bus]
    assert found.rent == pytest.approx(100 * (across * flow).sum(), rel=1e-4)
    assert found.rent > 1 and found.stored > 1


def test_prices_of_the_relaxation_are_slopes_too():
    options = dict(objective="cost", balance="exact", zones=1)
    study = power_flow(5, **options)
    found = prices(study, study.problem.plan(constraints="released", mechanism=None).run())
    bus = study.case.bus
    values = []
    for sign in (1, -1):
        pd = bus.pd.copy()
        pd[1] += sign * 1e-3
        values.append(central(replace(study.case, bus=replace(bus, pd=pd)), "cost").value)
    assert found.price[1, 0] == pytest.approx((values[0] - values[1]) / 0.2, rel=1e-2)


def test_prices_are_post_processing_and_say_how_firm_they_are():
    study = power_flow(5, model="dc", radius=0.3)
    plan = study.problem.plan(epsilon=1.0, delta=1e-6, constraints="released")
    result = plan.run(seed=1)
    found = prices(study, result, draws=4)
    assert found.stable is not None and found.stable.shape == found.price.shape
    assert (found.stable >= 0).all() and (found.stable <= 1).all()
    assert "of simulated releases keep a price to 1 %" in str(found)
    unknown = prices(blind(study), result)
    np.testing.assert_array_equal(unknown.price, found.price)
    np.testing.assert_array_equal(unknown.paid, found.paid)


def test_runs_without_prices_are_refused():
    study = power_flow(5, model="dc", objective="both")
    result = study.problem.plan(epsilon=1.0, delta=1e-6).run(seed=1)
    with pytest.raises(dp.ModelError, match="no exact power balance"):
        prices(study, result)
