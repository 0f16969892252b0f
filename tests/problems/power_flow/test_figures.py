"""Bands are quartiles over runs; figures state guarantees; labels do not cover each other."""

from dataclasses import replace

import numpy as np
import pytest
from matplotlib.quiver import Quiver

import dpcvx as dp
from problems import pictures
from problems.power_flow.bands import convergence_bands, quartiles
from problems.power_flow.figures import convergence, flows, network, zone_bars
from problems.power_flow.measured import together
from problems.power_flow.report import assess, thermal_loading
from problems.power_flow.study import power_flow


@pytest.fixture(scope="module")
def results() -> dict[str, list[dp.Result]]:
    study = power_flow(5)
    found = {}
    for name, options in (("private", {"epsilon": 1.0, "delta": 1e-6}), ("plain", {})):
        options = options or {"mechanism": None}
        plan = study.problem.plan(dp.LinearizedADMM(penalty=100.0), rounds=4, **options)
        found[name] = [plan.run(seed=seed) for seed in range(3)]
    return found


def test_quartiles_hold_the_last_value_of_short_runs():
    found = quartiles([[4.0, 2.0], [0.0, 0.0, 8.0], [2.0]])
    np.testing.assert_allclose(found[1], [2, 2, 2])
    np.testing.assert_allclose(found[0], [1, 1, 2])
    np.testing.assert_allclose(found[2], [3, 2, 5])


def test_one_line_per_method_one_band_per_repeated_one(results):
    runs = {"private": results["private"], "plain": results["plain"][:1]}
    figure = convergence_bands(runs)
    (axes,) = figure.axes
    assert len(axes.lines) == 2
    assert len(axes.collections) == 1
    middle = np.median([run.history.primal for run in results["private"]], axis=0)
    np.testing.assert_allclose(axes.lines[0].get_ydata(), middle)
    (legend,) = figure.legends
    private, plain = (text.get_text() for text in legend.get_texts())
    assert private.startswith("private\n3 runs, each: (1, 1e-6)-DP")
    assert "not for release" in " ".join(private.split())
    assert plain == "plain\n1 run: no guarantee: noise is off"


def test_a_zone_alone_never_disagrees(tmp_path):
    plan = power_flow(5, zones=1).problem.plan(dp.LinearizedADMM(), mechanism=None, rounds=3)
    convergence_bands({"alone": [plan.run()]}).savefig(tmp_path / "bands.png")


def test_runs_that_one_label_cannot_describe(results):
    with pytest.raises(dp.ModelError, match="both: the runs have different guarantees"):
        convergence_bands({"both": [results["private"][0], results["plain"][0]]})
    with pytest.raises(dp.ModelError, match="neither: there is no run"):
        convergence_bands({"neither": []})


@pytest.mark.parametrize("case", [14, 118])
def test_labels_of_the_network(case):
    study = power_flow(case)
    outcome = assess(study, study.problem.plan(dp.LinearizedADMM(), mechanism=None, rounds=1).run())
    figure = network(study, outcome)
    figure.draw_without_rendering()
    (axes,) = figure.axes
    boxes = [text.get_window_extent() for text in axes.texts]
    shown = [text.get_text() for text in axes.texts]
    overlapping = sum(
        one.overlaps(other) for at, one in enumerate(boxes) for other in boxes[at + 1 :]
    )
    assert overlapping == 0
    assert len(shown) > 0.8 * case
    worst = max(outcome.imbalance, key=lambda bus: np.hypot(*outcome.imbalance[bus]))
    assert str(worst) in shown


def test_discs_have_one_scale_in_all_figures():
    """The disc of a bus depends on its share of the load alone, not on the run."""
    study = power_flow(5)
    result = study.problem.plan(dp.OneShot(), mechanism=None).run()
    quiet = assess(study, result)
    loud = replace(quiet, imbalance={bus: (3 * quiet.load / 100, 0.0) for bus in quiet.imbalance})
    drawn = [network(study, outcome) for outcome in (quiet, loud)]
    small, large = (figure.axes[0].collections[2].get_sizes() for figure in drawn)
    assert small.max() < 1.1 * small.min() < large.min()
    scales = [
        [handle.get_markersize() ** 2 for handle in f.legends[1].legend_handles] for f in drawn
    ]
    assert scales[0] == scales[1] == sorted(scales[0])
    # 3 % lies between the discs of the legend for 1 % and 10 %.
    assert scales[0][1] < large[0] < scales[0][2]
    texts = [text.get_text() for text in drawn[1].legends[1].get_texts()]
    assert texts == ["0.1 %", "1 %", "10 %"]
    assert "at most 3 % of the load" in drawn[1].axes[0].get_title()


def test_the_gap_stands_beside_the_residuals():
    study = power_flow(5)
    plan = study.problem.plan(dp.LinearizedADMM(penalty=100.0), mechanism=None, rounds=4)
    result = plan.run(iterates=True)
    figure = convergence(study, result, optimum=0.0)
    residuals, gaps = figure.axes
    last = dp.not_private.objective(study.problem, result.last)
    assert gaps.lines[0].get_ydata()[-1] == pytest.approx(last)
    assert "not private" in gaps.get_title() and "not private" not in residuals.get_title()
    assert len(convergence(study, plan.run()).axes) == 1


def test_bars_are_shares_of_the_load():
    study = power_flow(5)
    outcome = assess(study, study.problem.plan(dp.OneShot(), mechanism=None).run())
    zones = tuple(replace(zone, active=outcome.load / 4) for zone in outcome.zones)
    (axes,) = zone_bars(study, replace(outcome, zones=zones)).axes
    for title in (axes.get_title(), network(study, outcome).axes[0].get_title()):
        assert title.endswith("relaxation: not an AC power flow")
    assert [bar.get_height() for bar in axes.containers[0]] == pytest.approx([25.0] * len(zones))


def test_models_without_reactive_power_show_none():
    study = power_flow(5, model="dc", private=None)
    plan = study.problem.plan(dp.OneShot(as_written=True), mechanism=None)
    outcome = assess(study, plan.run())
    (axes,) = zone_bars(study, outcome).axes
    assert len(axes.containers) == 1 and "MVA" not in axes.get_title() + str(outcome.text)[:400]
    assert max(map(len, axes.get_title().splitlines())) <= 43


@pytest.mark.parametrize("model", ["dc", "soc"])
def test_flows_have_directions_loading_and_voltages(model, tmp_path):
    study = power_flow(14, model=model, objective="cost", private=None, zones=1)
    _, public = together(study)
    state = public.state()
    doubled = replace(state, pf=2 * state.pf, qf=2 * state.qf, pt=2 * state.pt, qt=2 * state.qt)
    figure = flows(public, [state, doubled])
    axes, *bars = figure.axes
    (arrows,) = [each for each in axes.collections if isinstance(each, Quiver)]
    moving = np.abs(doubled.pf - doubled.pt) > 1e-4
    assert len(arrows.U) == moving.sum() == 19  # nothing is generated at bus 8
    # Arrows point from where power enters.
    place = axes.collections[-1].get_offsets()
    along = place[study.case.branch.to_bus] - place[study.case.branch.from_bus]
    sense = np.sign(arrows.U * along[moving, 0] + arrows.V * along[moving, 1])
    np.testing.assert_array_equal(sense, np.sign(doubled.pf - doubled.pt)[moving])
    loading = thermal_loading(study.case, doubled)
    assert f"hour 1: branches are loaded up to {loading.max():.0f} %" in axes.get_title()
    assert f"{np.sum(loading > 100.01)} above their rating" in axes.get_title()
    labels = " ".join(bar.get_ylabel() for bar in bars)
    assert ("degrees" if model == "dc" else "voltage, p.u.") in labels
    (path,) = pictures.write({"flows": figure}, tmp_path, ["png"], "from a test")
    assert b"from a test" in path.read_bytes()
