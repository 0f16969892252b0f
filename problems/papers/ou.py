"""Ou, Wang, Liu and Lu: Figures 1 to 3 with all of their settings, including DiaDSP."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from ..nonconvex_classification import printed
from ..nonconvex_classification.experiment import FIGURE_3, PARAMETERS, Curve, Size
from ..nonconvex_classification.records import SMOOTHNESS
from ..nonconvex_classification.theory import LocalConvergence, local_convergence, log_epsilon
from ..nonconvex_classification.tuning import Arrays
from . import entry
from .rows import Row, row
from .studies import Panel, Scope, Study

__all__ = ["STUDIES", "convergence", "hessians"]

Floats = NDArray[np.float64]
_PAPER = "ou_wang_liu_lu"
_K = entry(_PAPER, "figure_3").whole("K")
_GAP, _END, _TOTAL = "gap (31)", "stationarity", "total"
# Number of rounds that are stored for a curve.
_SHOWN = 60


def _curves(figure: str, scope: Scope) -> list[Row]:
    """Return the rows of Figure 1, by r, or of Figure 2, by u."""
    stated, rows = entry(_PAPER, figure), []
    arrays = printed.drawn(Size(), 0)
    by_decay = figure == "figure_1"
    for value in stated.numbers("r" if by_decay else "u"):
        curve = Curve(
            value if by_decay else stated.number("r"),
            stated.number("u") if by_decay else value,
            scope.rounds + 1,
        )
        paths = [printed.points(arrays, curve, seed) for seed in range(scope.runs)]
        k = np.unique(np.linspace(0, scope.rounds, _SHOWN).astype(int))
        epsilon = None if curve.silent else printed.epsilons(arrays, curve)[1]
        gaps = [[arrays.gap(path[at]) for at in k] for path in paths]
        rows.append(row(_GAP, f"{'r' if by_decay else 'u'} = {value:g}", k, gaps, epsilon))
    return rows


_Method = tuple[Callable[[Arrays, Curve, int], Floats], Callable[[Arrays, Curve], float]]
_METHODS: dict[str, _Method] = {
    "DPP2": (
        lambda arrays, curve, seed: printed.points(arrays, curve, seed, FIGURE_3),
        lambda arrays, curve: log_epsilon(curve.schedule(arrays.study, SMOOTHNESS, FIGURE_3)),
    ),
    "PPDC": (
        lambda arrays, curve, seed: printed.primal_dual_points(arrays, curve, seed, kept=False),
        lambda arrays, curve: printed.primal_dual_log_total(arrays, curve, kept=False),
    ),
    "DiaDSP": (printed.tracking_points, printed.tracking_log_total),
}


def _figure_3(scope: Scope) -> list[Row]:
    """Return the rows of Figure 3: the measure at x^K by decay, and total epsilons of the runs."""
    arrays, decays, rows = printed.drawn(Size(), 0), entry(_PAPER, "figure_3").numbers("r"), []
    for name, (points, log_total) in _METHODS.items():
        curves = [Curve(r, 1.0, scope.rounds) for r in decays]
        ends = [
            [printed.stationarity(arrays, points(arrays, curve, seed)[-1]) for curve in curves]
            for seed in range(scope.runs)
        ]
        rows.append(row(_END, name, decays, ends))
        powers = [log_total(arrays, curve) / math.log(10) for curve in curves]
        rows.append(row(_TOTAL, name, decays, [powers]))
    return rows


def convergence(size: Size = Size()) -> LocalConvergence:  # noqa: B008
    """Return the local convergence of DPP2 on the records of Figure 1, near a stationary point.

    Theorems 1 and 2 do not cover these parameters, and are false; see `problems.refutations.ou`.

    Parameters
    ----------
    size : Size
        Size of the experiment; the paper's size if omitted.
    """
    arrays = printed.drawn(size, 0)
    x = np.zeros(arrays.signed.shape[2])
    count = len(arrays.P)
    for _ in range(30):  # Newton's method for the sum
        gradient = arrays.gradients(np.tile(x, (count, 1))).mean(axis=0)
        x = x - np.linalg.solve(hessians(arrays, x).mean(axis=0), gradient)
    gradient = arrays.gradients(np.tile(x, (count, 1))).mean(axis=0)
    return local_convergence(arrays.P, PARAMETERS, gradient, hessians(arrays, x))


def hessians(arrays: Arrays, x: Floats) -> Floats:
    """Return the Hessian of each agent's objective at one point, shape (N, d, d)."""
    odds = 1 / (1 + np.exp(arrays.signed @ x))
    weights = odds * (1 - odds) / arrays.signed.shape[1]
    own = np.einsum("imd,im,ime->ide", arrays.signed, weights, arrays.signed)
    return own + np.diag(arrays.study.penalty.curvature(x))


_COMMON = ("sizes", "smoothness", "network", "weights", "records")
_RECORDS = "made-up records with the paper's M = 5.03"
_ROUNDS = {_GAP: Panel("round k", "gap (31) at x^k")}
STUDIES = {
    "ou_figure_1": Study(
        _PAPER,
        "Figure 1",
        ("figure_1", "DPP2", *_COMMON),
        _ROUNDS,
        partial(_curves, "figure_1"),
        Scope(_K, 1),
        Scope(30, 1),
        "what converges has no privacy",
        _RECORDS,
    ),
    "ou_figure_2": Study(
        _PAPER,
        "Figure 2",
        ("figure_2", "DPP2", *_COMMON),
        _ROUNDS,
        partial(_curves, "figure_2"),
        Scope(_K, 1),
        Scope(30, 1),
        "less noise at first converges sooner and costs more",
        _RECORDS,
    ),
    "ou_figure_3": Study(
        _PAPER,
        "Figure 3",
        (
            "figure_3",
            "figure_3_measure",
            "figure_3_DPP2",
            "figure_3_DiaDSP",
            "figure_3_PPDC",
            *_COMMON,
        ),
        {
            _END: Panel("decay r", "squared mean gradient at x^500"),
            _TOTAL: Panel("decay r", "log10 of epsilon, 500 rounds", log_y=False),
        },
        _figure_3,
        Scope(_K, 3),
        Scope(40, 1),
        "DPP2 ends nearest, and one decay is not one privacy",
        _RECORDS,
    ),
}
