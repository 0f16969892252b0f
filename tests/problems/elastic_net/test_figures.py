"""Figures are drawn, labeled, and say what is not private."""

from dataclasses import replace

import numpy as np

from problems.elastic_net import figures
from problems.elastic_net.privacy import by_iterations, by_position
from problems.elastic_net.setting import Setting
from problems.elastic_net.simulation import Gaps
from problems.elastic_net.utility import Utility

SETTING = Setting(sigma=0.5)


def texts(figure):
    parts = [figure.get_suptitle()]
    for axes in figure.axes:
        parts += [axes.get_title(), axes.get_xlabel(), axes.get_ylabel()]
        parts += [text.get_text() for text in axes.get_legend().get_texts()]
    return " ".join(parts)


def test_figure_1_has_a_line_and_a_band_for_each_setting(tmp_path):
    values = 1 + np.random.default_rng(0).uniform(size=(9, 4))
    gaps = {name: Gaps(SETTING, values, values) for name in ("one", "two")}
    figure = figures.convergence(gaps, {"three": gaps["one"]}, "made up")
    left, right = figure.axes
    assert (len(left.lines), len(left.collections), len(right.lines)) == (2, 2, 1)
    np.testing.assert_allclose(left.lines[0].get_ydata(), values.mean(axis=1))
    for part in ("one", "two", "three", "made up", "not private"):
        assert part in texts(figure)
    figure.savefig(tmp_path / "figure.png")


def test_the_privacy_figure_with_an_epsilon_of_zero_has_a_positive_scale():
    positions = by_position(SETTING, 3.0, 20, 1e-6)
    growth = by_iterations(SETTING, 3.0, 20, [1, 5, 20, 30], 1e-6)
    figure = figures.privacy(replace(positions, certified=0 * positions.certified), growth, "")
    low, high = figure.axes[0].get_ylim()
    assert 0 < low < high


def test_the_privacy_figure_says_whom_its_lines_are_of(tmp_path):
    positions = by_position(SETTING, 3.0, 20, 1e-6)
    growth = by_iterations(SETTING, 3.0, 20, [1, 5, 20, 30], 1e-6)
    figure = figures.privacy(positions, growth, "made up")
    assert [len(axes.lines) for axes in figure.axes] == [8, 5]
    for part in (
        "every iterate visible",
        "plans with observer",
        "does not apply",
        "with a certificate",
        "user 11",
        "iterations",
    ):
        assert part in texts(figure)
    # Users who had no turn yet have no point.
    assert np.isnan(figure.axes[1].lines[3].get_ydata()[0])
    figure.savefig(tmp_path / "figure.png")


def test_the_bound_is_dashed_over_the_measurement(tmp_path):
    found = Utility((10, 100), 1.0, np.array([5.0, 3.0]), np.array([[1.0, 2.0], [0.5, 0.7]]))
    figure = figures.bound({"rho = 1": found}, "made up")
    (axes,) = figure.axes
    assert [line.get_linestyle() for line in axes.lines] == ["--", "-"]
    assert "measured, rho = 1" in texts(figure) and "not private" in texts(figure)
    figure.savefig(tmp_path / "figure.png")
