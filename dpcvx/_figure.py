"""Style of figures (`figures.mplstyle`), their widths, and display of objects in notebooks.

A figure that is the last value of a cell appears once, also without pyplot. If pyplot is imported,
the figure is its current one, so ``plt.savefig`` and ``plt.title`` apply to it. Other objects are
shown as a card with their main facts, and their full text folded.
"""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable, Sequence
from functools import partial, wraps
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from ._arguments import show
from .errors import ModelError

if TYPE_CHECKING:  # matplotlib is slow to import
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Given = ParamSpec("Given")
Drawn = TypeVar("Drawn", bound="Figure")

STYLE = "dpcvx.figures"
"""Name of the style, for `matplotlib.style.use`."""
ONE_COLUMN, TWO_COLUMNS = 3.5, 7.16
"""Widths in inches: one column of a paper, and a page with two columns."""

# Opacity of grid lines.
_FAINT = 0.15
# Color of the style that is invisible on a dark background.
_BLACK = "000000"
# Dots per inch for which figures are sharp on screens and fit on a page.
_DPI = 130


def canvas(width: float, height: float) -> Figure:
    """Return an empty figure of this size in inches, made by pyplot if pyplot is imported."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is not None:
        return pyplot.figure(figsize=(width, height))
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height))


def axes_on(ax: Axes | None, width: float, height: float) -> Axes:
    """Return the axes to draw on: the passed axes, or new axes on a figure of this size."""
    if ax is None:
        return canvas(width, height).subplots()
    from matplotlib.axes import Axes

    if not isinstance(ax, Axes):
        raise ModelError(
            f"plot(ax={show(ax)}) takes the axes of a matplotlib figure. Write figure, ax = "
            "plt.subplots(), then plot(ax=ax)."
        )
    return ax


def figure_of(axes: Axes) -> Figure:
    """Return the figure of axes; for axes on a subfigure, return the whole figure."""
    figure = axes.get_figure(root=True)
    assert figure is not None
    return figure


def label_of(name: str) -> str:
    """Return a legend's text for any name, with dollars and leading underscores escaped."""
    text = name.replace("$", r"\$")
    return re.sub("^_+", lambda match: rf"${match[0].replace('_', chr(92) + '_')}$", text)


def styled(draw: Callable[Given, Drawn]) -> Callable[Given, Drawn]:
    """Decorate a function so that it draws its figure in the style, on the current background.

    If it is called with axes, it draws on them in the style of their figure.

    Parameters
    ----------
    draw : callable
        Function that returns a figure.
    """

    @wraps(draw)
    def in_style(*args: Given.args, **kwargs: Given.kwargs) -> Drawn:
        from matplotlib import rcParams, rcsetup, style
        from matplotlib.axes import Axes

        if any(isinstance(part, Axes) for part in (*args, *kwargs.values())):
            return draw(*args, **kwargs)  # on the user's figure, in its style
        # Grid lines have the color of the axes, so that they are equally faint on any background.
        ink = {"grid.color": rcParams["axes.edgecolor"], "grid.alpha": _FAINT}
        text = rcParams["text.color"]
        with style.context([STYLE, ink]):
            cycle = rcParams["axes.prop_cycle"].by_key()
            cycle["color"] = [text if part == _BLACK else part for part in cycle["color"]]
            rcParams["axes.prop_cycle"] = rcsetup.cycler(**cycle)
            figure = draw(*args, **kwargs)
            # Ticks are made when a figure is shown, which may be after these settings.
            ticks = {
                "labelsize": rcParams["xtick.labelsize"],
                "grid_color": rcParams["grid.color"],
                "grid_alpha": rcParams["grid.alpha"],
                "grid_linewidth": rcParams["grid.linewidth"],
            }
            for axes in figure.axes:
                axes.tick_params(which="both", **ticks)
        return shows_itself(figure)

    return in_style


def shows_itself(figure: Drawn) -> Drawn:
    """Add the methods to a figure that show it in notebooks, and return the figure.

    Pyplot shows its open figures. Other figures need these methods, and appear only if they are the
    last value of a cell or are displayed.
    """
    vars(figure)["_repr_png_"] = partial(_picture, figure)
    vars(figure)["_ipython_display_"] = partial(_left_to_pyplot, figure)
    return figure


def _left_to_pyplot(figure: Figure) -> None:
    """Show nothing if the notebook shows the figure as one of pyplot's open figures."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is None or "inline" not in pyplot.get_backend().lower():
        raise NotImplementedError  # IPython shows the picture
    if getattr(figure, "number", None) not in pyplot.get_fignums():
        raise NotImplementedError


def _picture(figure: Figure) -> bytes:
    held = io.BytesIO()
    figure.savefig(held, format="png", dpi=_DPI)
    return held.getvalue()


_BOX = (
    "display: inline-block; max-width: 60em; padding: 0.5em 1em; border: 1px solid #8888; "
    "border-radius: 6px; text-align: left"
)
_CELL = "padding: 0.15em 1em 0.15em 0; vertical-align: top; text-align: left; border: none"
Rows = Sequence[tuple[str, str]]


def card(thing: object, rows: Rows = ()) -> str:
    """Return the HTML of an object's card: facts in its ``repr``, rows, and its ``str``, escaped.

    Parameters
    ----------
    thing : object
        Object whose ``repr`` has the form ``<Kind: fact, ...; fact, ...>``.
    rows : sequence of (str, str)
        Labels and texts of a table; ``str(thing)`` has this information too.
    """
    import html  # its table of entities is slow to import

    kind, _, facts = repr(thing).removeprefix("<").removesuffix(">").partition(": ")
    lines = [f"<b>{html.escape(kind)}</b>", *(html.escape(fact) for fact in facts.split("; "))]
    text = "" if type(thing).__str__ is object.__str__ else html.escape(str(thing))
    folded = f"<details><summary>in full</summary><pre>{text}</pre></details>" if text else ""
    cells = [
        f'<tr><td style="{_CELL}; opacity: 0.7">{html.escape(label)}</td>'
        f'<td style="{_CELL}">{html.escape(said)}</td></tr>'
        for label, said in rows
    ]
    table = f'<table style="margin: 0.4em 0">{"".join(cells)}</table>' if cells else ""
    return f'<div style="{_BOX}">{"<br>".join(lines)}{table}{folded}</div>'
