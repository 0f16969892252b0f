"""Studies behind a paper's figures: settings, panels, runs, and conclusions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import TYPE_CHECKING

import numpy as np

from ..pictures import ONE_COLUMN, TWO_COLUMNS, styled
from .rows import Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["Panel", "Scope", "Study", "draw"]

# Okabe and Ito's colors, in the order of the curves' first appearance.
_COLORS = ("#0072B2", "#D55E00", "#009E73", "#E69F00", "#CC79A7", "#56B4E9", "#000000", "#999999")
_LINES = ("-", "--", "-.", ":")
# Number of characters of a title per inch.
_CHARACTERS = 12
# Values below this are rounding errors.
_LEAST = 1e-32


@dataclass(frozen=True)
class Panel:
    """Axes of a panel.

    Attributes
    ----------
    x, y : str
        Labels of the axes.
    log_x, log_y : bool
        Whether an axis is logarithmic.
    level : tuple of (float, str), optional
        Height and name of a horizontal line.
    title : str, optional
        Title in place of the panel's key.
    """

    x: str
    y: str
    log_x: bool = False
    log_y: bool = True
    level: tuple[float, str] | None = None
    title: str | None = None


@dataclass(frozen=True)
class Scope:
    """Size of a run.

    Attributes
    ----------
    rounds, runs : int
        Number of rounds (K or T), and number of seeds of each curve.
    """

    rounds: int
    runs: int


@dataclass(frozen=True)
class Study:
    """Reproduction of a figure of a paper.

    Attributes
    ----------
    paper, figure : str
        Key in the table of values, and the paper's name of the figure.
    entries : tuple of str
        Entries of the table that the figure uses.
    panels : mapping of str to Panel
        Panels by name.
    run : callable
        Function of a scope that returns the rows.
    full, short : Scope
        Scopes of the stored rows, and of tests.
    teaches : str
        Conclusion, as one sentence.
    records : str
        Text on the data, since no paper publishes its own.
    columns : int, optional
        Number of columns of panels; one row of panels if omitted.
    assumes : str
        Assumption behind the totals, if that is not a derived sensitivity.
    """

    paper: str
    figure: str
    entries: tuple[str, ...]
    panels: Mapping[str, Panel]
    run: Callable[[Scope], list[Row]]
    full: Scope
    short: Scope
    teaches: str
    records: str
    columns: int | None = None
    assumes: str = ""


def total(row: Row) -> str:
    """Return a text with the total epsilon of a curve."""
    if row.epsilon is None:
        return "no guarantee"
    if math.isinf(row.epsilon):
        return "no finite bound"
    at = f" at {row.delta:g}" if row.delta > 0 else ""
    return f"epsilon {row.epsilon:.3g}{at}"


@styled
def draw(study: Study, rows: Sequence[Row]) -> Figure:
    """Draw a figure from its stored rows.

    Parameters
    ----------
    study : Study
    rows : sequence of Row
        Rows in the order of the legend.
    """
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    names = list(dict.fromkeys(_base(row.curve) for row in rows))
    kinds = [kind for kind in dict.fromkeys(_kind(row.curve) for row in rows) if kind]
    across = study.columns or len(study.panels)
    down = math.ceil(len(study.panels) / across)
    width = ONE_COLUMN + 2 if across == 1 else TWO_COLUMNS * max(1.0, across / 3)
    height = 2.3 * down + 1.2 + 0.16 * math.ceil((len(names) + len(kinds)) / 2)
    figure = Figure(figsize=(width, height))
    axes = figure.subplots(
        down, across, squeeze=False, sharex="col", sharey="row" if down > 1 else "none"
    ).flat
    for ax, (name, panel) in zip(axes, study.panels.items(), strict=True):
        for row in rows:
            if row.panel == name:
                color = _COLORS[names.index(_base(row.curve)) % len(_COLORS)]
                kind = _kind(row.curve)
                _curve(ax, row, color, _LINES[kinds.index(kind)] if kind else "-")
        _finished(ax, name, panel)
    colors = (_COLORS[k % len(_COLORS)] for k in range(len(names)))
    handles = [Line2D([], [], color=color) for color in colors]
    handles += [Line2D([], [], color="0.4", ls=_LINES[k]) for k in range(len(kinds))]
    labels = [_label(rows, name) for name in names] + kinds
    figure.legend(handles, labels, loc="outside lower center", ncols=2, fontsize=7)
    stated = (
        f"{study.figure}: {study.teaches}",
        f"{study.records}; computed in the open: not private",
        study.assumes,
    )
    wrapped = (line for each in stated for line in wrap(each, int(_CHARACTERS * width)))
    figure.suptitle("\n".join(wrapped))
    return figure


def _base(curve: str) -> str:
    """Return the part of a curve's name before a colon, which decides its color."""
    return curve.split(": ")[0]


def _kind(curve: str) -> str:
    """Return the part of a curve's name after a colon, which decides its line style."""
    return curve.partition(": ")[2]


def _label(rows: Sequence[Row], name: str) -> str:
    """Return the curve's name, with its total epsilon if all of its rows have one value."""
    totals = {total(row) for row in rows if _base(row.curve) == name and row.epsilon is not None}
    return f"{name}, total {totals.pop()}" if len(totals) == 1 else name


def _curve(ax: Axes, row: Row, color: str, line: str) -> None:
    x, y = np.array(row.x), np.maximum(np.array(row.y), _LEAST)
    marker = "o" if len(x) < 15 else None
    ax.plot(x, y, line, color=color, lw=1.2, marker=marker, ms=3)
    if row.low and len(x) > 1:
        low, high = (np.maximum(np.array(end), _LEAST) for end in (row.low, row.high))
        ax.fill_between(x, low, high, color=color, alpha=0.15, lw=0)


def _finished(ax: Axes, name: str, panel: Panel) -> None:
    ax.set(title=name if panel.title is None else panel.title, xlabel=panel.x, ylabel=panel.y)
    ax.set_xscale("log" if panel.log_x else "linear")
    ax.set_yscale("log" if panel.log_y else "linear")
    if panel.level is not None:
        value, words = panel.level
        ax.axhline(value, color="0.5", lw=0.8, ls="--")
        ax.annotate(
            words, (0, value), (4, 2), xycoords=("axes fraction", "data"),
            textcoords="offset points", color="0.4", fontsize=7,
        )  # fmt: skip
