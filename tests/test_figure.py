"""What a notebook shows of a figure."""

import copy
import pickle

import cvxpy as cp
import matplotlib
import matplotlib.pyplot as plt
import pytest
from matplotlib.figure import Figure

import dpcvx as dp
from dpcvx._figure import shows_itself
from tests.instances import power_line


def test_a_notebook_shows_the_picture_and_not_the_type():
    result = power_line().problem.solve(dp.LinearizedADMM(), mechanism=None, rounds=3)
    assert result.plot()._repr_png_().startswith(b"\x89PNG")


def test_a_figure_shows_what_was_drawn_last_and_can_be_copied():
    figure = shows_itself(Figure(figsize=(1, 1)))
    empty = figure._repr_png_()
    figure.subplots().plot([1, 2])
    assert figure._repr_png_() != empty
    for twin in (pickle.loads(pickle.dumps(figure)), copy.deepcopy(figure)):
        assert twin._repr_png_() == figure._repr_png_()
        twin.axes[0].clear()
        assert twin._repr_png_() != figure._repr_png_()


def odd_names():
    x, y = cp.Variable(2, name="_x"), cp.Variable(name="$x^$")
    agent = dp.Agent(cp.Minimize(cp.sum_squares(x - 1) + cp.square(y)), name="a")
    return dp.Problem([agent]).plan(dp.OneShot(), mechanism=None).run()


def test_legends_have_any_name():
    (axes,) = odd_names().plot().axes
    texts = axes.get_legend().get_texts()
    assert [text.get_text() for text in texts] == [r"$\_$x", r"\$x^\$"]
    axes.figure.canvas.draw()


def test_a_figure_is_drawn_on_the_axes_that_are_passed():
    _, ax = Figure(figsize=(4, 3)).subplots(1, 2)
    size = ax.xaxis.label.get_size()
    assert odd_names().plot(ax=ax) is ax.figure and len(ax.lines) == 2
    assert ax.xaxis.label.get_size() == size
    with pytest.raises(dp.ModelError, match=r"plot\(ax=3\) takes the axes"):
        odd_names().plot(ax=3)


def test_pyplot_reaches_a_figure_once_it_is_imported():
    figure = odd_names().plot()
    try:
        assert plt.gcf() is figure
        with pytest.raises(NotImplementedError):  # IPython shows it: no front end does
            figure._ipython_display_()
    finally:
        plt.close(figure)


def test_lines_of_a_grid_are_faint_on_a_dark_background():
    with plt.style.context("dark_background"):
        (axes,) = odd_names().plot().axes
    plt.close(axes.figure)
    (line, *_) = axes.get_xgridlines()
    assert matplotlib.colors.to_rgb(line.get_color()) == (1, 1, 1) and line.get_alpha() < 0.2
