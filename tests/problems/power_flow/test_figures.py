"""Bands are quartiles over runs; figures state guarantees; labels do not cover each other."""

import numpy as np
import pytest

import dpcvx as dp
from problems.power_flow.bands import convergence_bands, quartiles
from problems.power_flow.figures import network
from problems.power_flow.report import assess
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
