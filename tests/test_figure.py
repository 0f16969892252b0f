"""What a notebook shows of a figure."""

import copy
import pickle

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
