"""Figure of the convergence of several methods over several runs: medians and quartiles."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

import dpcvx as dp

from ..pictures import TWO_COLUMNS, styled, whole_rounds

Floats = NDArray[np.float64]

_QUARTILES = (0.25, 0.5, 0.75)
_WIDTH = 120


def quartiles(curves: Sequence[Sequence[float]]) -> Floats:
    """Return lower quartile, median and upper quartile over runs, for each round.

    Parameters
    ----------
    curves : sequence of sequences of float
        One nonempty curve per run. A run that stopped early keeps its last value.

    Returns
    -------
    ndarray, shape (3, rounds)
    """
    rounds = max(len(curve) for curve in curves)
    padded = [[*curve, *[curve[-1]] * (rounds - len(curve))] for curve in curves]
    return np.quantile(np.array(padded, dtype=np.float64), _QUARTILES, axis=0)


def consensus(result: dp.Result) -> Sequence[float]:
    """Return the consensus residual ``||w - z||`` after each round, from released values.

    The history of a long run skips rounds; the residual is interpolated in these.
    """
    history, t = result.history, np.arange(1, result.rounds + 1)
    return np.interp(t, history.rounds, history.primal).tolist()


@styled
def convergence_bands(
    runs: Mapping[str, Sequence[dp.Result]],
    *,
    curve: Callable[[dp.Result], Sequence[float]] = consensus,
    quantity: str = r"distance from consensus  $\|w - z\|$",
) -> Figure:
    """Draw curves of convergence against the round, in one color per method.

    Parameters
    ----------
    runs : mapping from str to sequence of dp.Result
        Runs by method, for example one per seed. The legend shows the guarantee of a method's runs
        below its name.
    curve : callable
        Function of a run that returns one number per round. The axis is logarithmic unless no
        number is positive. A function that uses true data is not private; `quantity` should say so.
    quantity : str
        Name of the vertical axis.

    Returns
    -------
    Figure

    Raises
    ------
    dp.ModelError
        If a method has no run, or runs with different guarantees.
    """
    figure = Figure(figsize=(TWO_COLUMNS, 3.2 + 0.4 * len(runs)))
    axes = figure.subplots()
    positive = False  # the residual of a single zone is always 0
    for name, results in runs.items():
        low, middle, high = quartiles([curve(result) for result in _alike(name, results)])
        rounds = np.arange(1, len(middle) + 1)
        (line,) = axes.plot(rounds, middle, label=_label(name, results))
        positive |= bool(np.any(middle > 0))
        if len(results) > 1:
            axes.fill_between(rounds, low, high, color=line.get_color(), alpha=0.25, linewidth=0)
    axes.set(
        ylabel=quantity,
        title="median over the runs, band from lower to upper quartile",
    )
    if positive:
        axes.set_yscale("log")
    whole_rounds(axes)
    figure.legend(loc="outside lower left")
    return figure


def _alike(name: str, results: Sequence[dp.Result]) -> Sequence[dp.Result]:
    if not results:
        raise dp.ModelError(f"{name}: there is no run to draw. Give at least one result.")
    if len({result.guarantee.headline for result in results}) > 1:
        raise dp.ModelError(
            f"{name}: the runs have different guarantees, but the label states only one. Pass "
            "runs of one plan, and pass runs of another plan under another name."
        )
    return results


def _label(name: str, results: Sequence[dp.Result]) -> str:
    count = "1 run" if len(results) == 1 else f"{len(results)} runs, each"
    stated = f"{count}: {results[0].guarantee.headline}"
    return "\n".join([name, *textwrap.wrap(stated, _WIDTH)])
