"""Tables and the figure of the hours follow from the values of a run, and add up."""

import numpy as np
import pytest

import dpcvx as dp
from problems.power_flow.figures import hours
from problems.power_flow.hours import Flexible, Store
from problems.power_flow.measured import Run, measure
from problems.power_flow.report import ac_line
from problems.power_flow.schedule import hourly_tables, hourly_totals
from problems.power_flow.study import PowerFlow, power_flow
from problems.power_flow.tables import Table


def ran(**settings: object) -> tuple[PowerFlow, Run]:
    """A day of three hours with storage that pays, and its run without noise."""
    study = power_flow(
        5,
        horizon=3,
        profiles=np.array([0.6, 1.0, 0.9]),
        storage=[Store(bus=4, power=60, energy=100, efficiency=0.9, start=0.2)],
        **{"model": "dc", "private": None, "zones": 1, **settings},  # type: ignore[arg-type]
    )
    plan = study.problem.plan(dp.OneShot(as_written=True), epsilon=None)
    return study, measure(study, plan.run(), own=False)


def tables_of(study: PowerFlow, run: Run) -> dict[str, Table]:
    listed = hourly_tables(
        study, run.states, run.schedule, checks=run.outcome.ac, prices=run.prices
    )
    return {table.name: table for table in listed}


def test_hours_add_up():
    study, run = ran(flexible=[Flexible(bus=2, power=10, price=12)])
    tables = tables_of(study, run)
    assert list(tables) == ["hours", "storage", "flexible"]
    table = tables["hours"]
    load = 1000 * np.array([0.6, 1.0, 0.9])
    np.testing.assert_allclose(table["load"], load, atol=1e-3)
    given = table["generation"] + table["storage"] + table["flexible"]
    np.testing.assert_allclose(given, load, atol=1e-3)
    assert table["cost"].sum() + 12 * table["flexible"].sum() == pytest.approx(
        run.outcome.objective, rel=1e-6
    )
    # Energy: 90 % of what is taken, less what is given over 90 %.
    moved, energy = tables["storage"]["P"], tables["storage"]["energy"]
    assert np.abs(moved).max() > 1 and table["flexible"].max() > 1
    gained = np.where(moved < 0, -0.9 * moved, -moved / 0.9)
    np.testing.assert_allclose(energy, 20 + np.cumsum(gained), atol=1e-3)
    assert tables["storage"]["hour"].tolist() == [0, 1, 2]
    assert "losses" not in table.names and table["loading"].max() == pytest.approx(100, abs=0.01)


def test_prices_and_checks_of_hours_are_those_of_the_run():
    study, run = ran()
    table = tables_of(study, run)["hours"]
    assert run.prices is not None
    price, load = run.prices.price, run.prices.load
    np.testing.assert_allclose(table["price low"], price.min(axis=0))
    np.testing.assert_allclose(table["price high"], price.max(axis=0))
    np.testing.assert_allclose(table["price mean"] @ table["load"], (price * load).sum())
    assert f"losses {table['AC losses'].sum():.1f} MWh" in ac_line(run.outcome.ac)
    assert "flexible" not in table.names


def test_losses_are_in_the_hours_of_the_relaxation():
    study, run = ran(model="soc", objective="cost")
    table = tables_of(study, run)["hours"]
    assert np.all(table["losses"] > 0.1)
    served = table["generation"] + table["storage"] - table["losses"]
    np.testing.assert_allclose(served, table["load"], atol=1e-6)


def test_costs_that_follow_from_private_bids_are_marked():
    study = power_flow(5, model="dc", private="bids", horizon=2, profiles="day", radius=1e-3)
    result = study.problem.plan(epsilon=10.0, delta=1e-6).run(seed=1)
    (table,) = hourly_tables(study, measure(study, result, own=False).states)
    assert [column.name for column in table.columns if not column.private] == ["cost"]


def test_hours_are_drawn_with_their_prices():
    study, run = ran()
    totals = hourly_totals(study.case, run.states, run.schedule, run.prices)
    top, bottom = hours(study, totals).axes
    lines = {line.get_label(): np.asarray(line.get_ydata()) for line in top.lines}
    np.testing.assert_allclose(lines["served load"], totals["load"])
    np.testing.assert_allclose(lines["generation"], totals["generation"])
    heights = [bar.get_path().get_extents(bar.get_patch_transform()) for bar in top.patches]
    heights = [box.y1 if abs(box.y1) > abs(box.y0) else box.y0 for box in heights]
    np.testing.assert_allclose(heights, totals["storage"])
    (mean,) = bottom.lines
    np.testing.assert_allclose(np.asarray(mean.get_ydata()), totals["price mean"])
    without = {name: value for name, value in totals.items() if not name.startswith("price")}
    assert len(hours(study, without).axes) == 1
