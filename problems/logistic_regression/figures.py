"""Figures of measured runs: medians over the seeds, with bands between the quartiles."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from ..pictures import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PINK,
    RED,
    TWO_COLUMNS,
    legend_below,
    styled,
    whole_rounds,
)
from .experiment import Score, Trace
from .printed import Curve
from .printed import Trace as Printed

Floats = NDArray[np.float64]

_COLOURS = {"ObjG": BLUE, "OutG": GREEN, "OutG, paper": RED, "OutG, text": PINK}
_LINES = ("-", "--", ":")
# Widths of lines as printed, in the order in which they are drawn: equal curves stay visible.
_WIDTHS = {"no noise": 3.2, "OutG, text": 2.2, "OutG": 1.5, "ObjG": 1.0}
_NOT_PRIVATE = "computed on the records in the open: not private"


@styled
def comparison(columns: Mapping[float, Sequence[Sequence[Trace]]], title: str) -> Figure:
    """Draw noise magnitude, cost and test error against the round, like Ryu and Kim's Figures 5, 6.

    Parameters
    ----------
    columns : mapping of float to sequences of traces
        Traces of every method, one per seed, by the budget per local update.
    title : str
        Title of the figure.

    Returns
    -------
    Figure
        The figure.
    """
    figure = Figure(figsize=(max(TWO_COLUMNS, 2.2 * len(columns)), 6.2))
    panels = figure.subplots(3, len(columns), sharex=True, sharey="row", squeeze=False)
    updates = sorted({t.method.local_updates for found in columns.values() for (t, *_) in found})
    for column, (epsilon, found) in zip(panels.T, columns.items(), strict=True):
        for traces in found:
            method = traces[0].method
            style = _LINES[updates.index(method.local_updates) % len(_LINES)]
            color = "0.5" if _exact(traces[0]) else _COLOURS[method.noise]
            label = "no noise" if _exact(traces[0]) else method.noise
            label = f"{label}, E = {method.local_updates}"
            if not _exact(traces[0]):
                column[0].plot(traces[0].rounds, traces[0].noise, style, color=color, label=label)
            _band(column[1], traces, lambda s: s.cost, style, color, label)
            _band(column[2], traces, lambda s: s.error, style, color, label)
        spent = {t.method.local_updates: t.guarantee.epsilon for (t, *_) in found if not _exact(t)}
        totals = ", ".join(f"{value:.3g} (E = {e})" for e, value in sorted(spent.items()))
        column[0].set_title(f"{epsilon:g} per local update\ntotal: {totals}")
        column[0].set_yscale("log")
        whole_rounds(column[2])
    for row, name in zip(panels, ("expected noise (32)", "cost", "test error"), strict=True):
        row[0].set_ylabel(name)
    panels[2, 0].set_ylim(0, 1)
    legend_below(figure, [panels[1, 0]], 4)
    figure.suptitle(f"{title}\n{_NOT_PRIVATE}")
    return figure


@styled
def as_printed(curves: Mapping[Curve, Printed], title: str) -> Figure:
    """Draw Figures 5 and 6 after the paper's text and code, with every column's total epsilon.

    Parameters
    ----------
    curves : mapping of Curve to printed.Trace
        Measured curves. A column shows one budget per local update, and the curve without noise.
    title : str
        Title of the figure.

    Returns
    -------
    Figure
        The figure.
    """
    budgets = sorted({curve.epsilon for curve in curves if curve.epsilon is not None})
    figure = Figure(figsize=(max(TWO_COLUMNS, 2.2 * len(budgets)), 6.4))
    panels = figure.subplots(3, len(budgets), sharex=True, sharey="row", squeeze=False)
    updates = sorted({curve.updates for curve in curves})
    names = {curve: "no noise" if curve.epsilon is None else curve.noise for curve in curves}
    widths = [*_WIDTHS]
    order = sorted(curves, key=lambda curve: (curve.updates, widths.index(names[curve])))
    for column, budget in zip(panels.T, budgets, strict=True):
        for curve in order:
            if curve.epsilon not in (budget, None):
                continue
            trace, name, exact = curves[curve], names[curve], curve.epsilon is None
            style = _LINES[updates.index(curve.updates)]
            color = GREY if exact else _COLOURS[curve.noise]
            look = {"color": color, "lw": _WIDTHS[name], "alpha": 0.5 if exact else 1.0}
            if not exact:
                column[0].plot(trace.rounds, trace.magnitude, style, **look)
            label = f"{name}, E = {curve.updates}"
            column[1].plot(trace.rounds, trace.cost, style, label=label, **look)
            column[2].plot(trace.rounds, trace.error, style, **look)
        lines = [f"{budget:g} per local update"]
        for e in updates:
            last = {
                t.rounds[-1] for c, t in curves.items() if (c.epsilon, c.updates) == (budget, e)
            }
            if last:
                claimed, composed = Curve("ObjG", budget, e).totals(max(last))
                run = f"E = {e}, T = {max(last)}"
                lines.append(f"{run}: claimed {claimed:.3g}, composed {composed:.3g}")
        column[0].set_title("\n".join(lines))
        column[0].set_yscale("log")
        column[0].set_xscale("log")
        column[2].set_xlabel("round")
    for row, name in zip(panels, ("noise (32)", "cost", "test error"), strict=True):
        row[0].set_ylabel(name)
    panels[2, 0].set_ylim(0, 1)
    legend_below(figure, panels[1], 4)
    figure.suptitle(
        f"{title}, settings of text and code: noise scaled to the records, NO GUARANTEE\n"
        f"totals at 1e-6 are what the steps would cost if it were not; {_NOT_PRIVATE}"
    )
    return figure


@styled
def penalties(
    columns: Mapping[float, Sequence[Sequence[Trace]]], exact: Sequence[Trace], title: str
) -> Figure:
    """Draw test error against the round for every penalty rho, like Figure 7 of Ryu and Kim.

    Parameters
    ----------
    columns : mapping of float to sequences of traces
        Traces of every penalty, one per seed, by the budget per local update.
    exact : sequence of traces
        Traces without noise.
    title : str
        Title of the figure.

    Returns
    -------
    Figure
        The figure.
    """
    figure = Figure(figsize=(max(TWO_COLUMNS, 2.2 * len(columns)), 2.9))
    panels = figure.subplots(1, len(columns), sharex=True, sharey=True, squeeze=False)[0]
    looks = [(BLUE, "-"), (GREEN, "--"), (ORANGE, "-."), (RED, "-"), (PINK, ":")]
    for panel, (epsilon, found) in zip(panels, columns.items(), strict=True):
        for traces, (color, style) in zip(found, looks, strict=True):
            _band(panel, traces, lambda s: s.error, style, color, traces[0].method.note)
        _band(panel, exact, lambda s: s.error, "-", GREY, "no noise, ObjG")
        spent = found[0][0].guarantee
        panel.set_title(f"{epsilon:g} per local update\nclaimed in total: {spent.epsilon:.3g}")
        whole_rounds(panel)
    panels[0].set(ylabel="test error", ylim=(0, 1))
    legend_below(figure, [panels[0]], 6)
    figure.suptitle(f"{title}\n{_NOT_PRIVATE}")
    return figure


@styled
def divisions(columns: Mapping[str, Sequence[Sequence[Trace]]], title: str) -> Figure:
    """Draw cost and test error against the round, one column for each division of the records.

    Parameters
    ----------
    columns : mapping of str to sequences of traces
        Traces of every method, one per seed, by the name of the division.
    title : str
        Title of the figure.

    Returns
    -------
    Figure
        The figure.
    """
    figure = Figure(figsize=(max(TWO_COLUMNS, 2.2 * len(columns)), 4.4))
    panels = figure.subplots(2, len(columns), sharex=True, sharey="row", squeeze=False)
    for column, (name, found) in zip(panels.T, columns.items(), strict=True):
        for traces in found:
            exact = _exact(traces[0])
            color = "0.5" if exact else _COLOURS[traces[0].method.noise]
            label = "no noise" if exact else traces[0].method.noise
            style = "--" if exact else "-"
            _band(column[0], traces, lambda s: s.cost, style, color, label)
            _band(column[1], traces, lambda s: s.error, style, color, label)
        column[0].set_title(name)
        whole_rounds(column[1])
    panels[0, 0].set_ylabel("cost")
    panels[1, 0].set(ylabel="test error", ylim=(0, 1))
    legend_below(figure, [panels[0, 0]], 4)
    figure.suptitle(f"{title}\n{_NOT_PRIVATE}")
    return figure


@styled
def alternatives(
    rows: Sequence[Sequence[Trace]], exact: Sequence[Trace], guessing: float, title: str
) -> Figure:
    """Draw test errors of last and averaged iterates: dots are seeds, bars medians.

    Parameters
    ----------
    rows : sequence of sequences of traces
        Traces of each method, one per seed.
    exact : sequence of traces
        Traces without noise.
    guessing : float
        Test error without any data.
    title : str
        Title of the figure.

    Returns
    -------
    Figure
        The figure.
    """
    figure = Figure(figsize=(TWO_COLUMNS, 1.3 + 0.26 * len(rows)))
    axes = figure.subplots()
    kinds: dict[str, tuple[Callable[[Trace], Score], str, float]] = {
        "last_iterate": (lambda t: t.last, BLUE, -0.15),
        "average": (lambda t: t.average, RED, 0.15),
    }
    for name, (score, color, shift) in kinds.items():
        for height, traces in enumerate(rows):
            errors = [score(t).error for t in traces]
            at = np.full(len(errors), height + shift)
            axes.plot(errors, at, "o", ms=4, alpha=0.4, color=color)
            label = name if height == 0 else None
            axes.plot(np.median(errors), at[0], "|", ms=13, mew=2.5, color=color, label=label)
    without = float(np.median([t.last.error for t in exact]))
    for error, line, name in ((without, ":", "no noise"), (guessing, "--", "no data: guessing")):
        axes.axvline(error, color=GREY, lw=1, ls=line, label=name)
    axes.set_yticks(range(len(rows)), [str(t.method) for (t, *_) in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlabel(f"test error ({_NOT_PRIVATE})")
    axes.set_title(title)
    axes.grid(visible=False, axis="y")
    figure.legend(loc="outside lower center", ncols=4)
    return figure


def _band(
    axes: Axes,
    traces: Sequence[Trace],
    of: Callable[[Score], float],
    style: str,
    color: str,
    label: str,
) -> None:
    values = np.array([[of(score) for score in trace.released] for trace in traces])
    rounds = traces[0].rounds
    low, middle, high = np.quantile(values, (0.25, 0.5, 0.75), axis=0)
    axes.plot(rounds, middle, style, color=color, label=label)
    if len(traces) > 1:
        axes.fill_between(rounds, low, high, color=color, alpha=0.15, linewidth=0)


def _exact(trace: Trace) -> bool:
    return trace.guarantee.kind == "none"
