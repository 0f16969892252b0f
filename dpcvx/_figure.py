"""Figures that a notebook shows by themselves, once, where nobody has imported pyplot."""

from __future__ import annotations

import io
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Dots per inch: sharp on screens, and no wider than a page.
_DPI = 130


def shows_itself(figure: Figure) -> Figure:
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
