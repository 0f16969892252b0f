"""The look of figures, what `figures.mplstyle` says in two widths, and how notebooks show them.

They appear once, where they are the last value of a cell, also where nobody has imported pyplot.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import partial, wraps
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:  # slow to import
    from matplotlib.figure import Figure

Given = ParamSpec("Given")
Drawn = TypeVar("Drawn", bound="Figure")

STYLE = "dpcvx.figures"
"""For `matplotlib.style.use`."""
ONE_COLUMN, TWO_COLUMNS = 3.5, 7.16
"""Inches: the width of one column of a paper, and of a page with two."""

# Dots per inch: sharp on screens, and no wider than a page.
_DPI = 130


def styled(draw: Callable[Given, Drawn]) -> Callable[Given, Drawn]:
    """Make a function draw its figure in the style, whatever settings are in force.

    Parameters
    ----------
    draw : callable
        Returns a figure.
    """

    @wraps(draw)
    def in_style(*args: Given.args, **kwargs: Given.kwargs) -> Drawn:
        from matplotlib import rcParams, style

        with style.context(STYLE):
            figure = draw(*args, **kwargs)
            # Ticks are made when a figure is shown, which may be after these settings.
            ticks = {
                "labelsize": rcParams["xtick.labelsize"],
                "grid_color": rcParams["grid.color"],
                "grid_linewidth": rcParams["grid.linewidth"],
            }
            for axes in figure.axes:
                axes.tick_params(which="both", **ticks)
        return shows_itself(figure)

    return in_style


def shows_itself(figure: Drawn) -> Drawn:
    """The figure, which now has a picture of itself for notebooks.

    A figure made by pyplot gets it from pyplot. These are made without, so that they appear where
    they are the last value of a cell, or are displayed, and nowhere else.
    """
    vars(figure)["_repr_png_"] = partial(_picture, figure)
    return figure


def _picture(figure: Figure) -> bytes:
    held = io.BytesIO()
    figure.savefig(held, format="png", dpi=_DPI)
    return held.getvalue()
