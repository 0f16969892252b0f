"""Xiao, Ye and Devadas: Figures 2, B and C with privacy panels, and with secret constants D_i."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

import dpcvx as dp

from ..census import printed
from ..census.measures import Measures
from ..census.printed import ALGORITHM_1, CURVES, Curve, Setting, Trace
from ..census.records import made_records, shared_out
from . import entry
from .rows import Row, row
from .studies import Panel, Scope, Study

__all__ = ["STUDIES"]

_PAPER = "xiao_ye_devadas"
_ACCURACY, _LOSS = "accuracy", "privacy loss"
_APART = entry(_PAPER, "start_of_runs").number("scale")


def _traces(
    figure: str, curves: Sequence[tuple[str, Curve | None, float]], scope: Scope
) -> list[tuple[str, list[Trace]]]:
    """Return traces of every curve by run; for a curve of None, each run draws constants D_i."""
    sizes = entry(_PAPER, figure)
    agents, edges = sizes.whole("N"), sizes.whole("edges")
    each = entry(_PAPER, "records").whole("b")
    records = made_records(max(3000, agents * each + 2000))
    names = [f"agent {k}" for k in range(agents)]
    made: list[tuple[str, list[Trace]]] = [(name, []) for name, _, _ in curves]
    for seed in range(scope.runs):
        measures = Measures.of(shared_out(records, agents, each, seed=seed))
        setting = Setting(measures, dp.networks.random(names, edges, seed))
        for (_, curve, apart), (_, traces) in zip(curves, made, strict=True):
            own = printed.secret(agents, seed) if curve is None else curve
            traces.append(printed.run(setting, own, scope.rounds, seed, apart=apart))
    return made


def _rows(
    figure: str, curves: Sequence[tuple[str, Curve | None, float]], scope: Scope
) -> list[Row]:
    rows = []
    k = np.arange(scope.rounds + 1)
    for name, traces in _traces(figure, curves, scope):
        spent = float(np.mean([trace.spent for trace in traces]))
        distances = [trace.distance.mean(axis=1) for trace in traces]
        rows.append(row(_ACCURACY, name, k, distances, spent))
        claims = [trace.claims for trace in traces]
        rows.append(row(_LOSS, f"{name}: worst case", k[1:], claims))
        if any((trace.realized_losses != trace.claims).any() for trace in traces):
            realized = [trace.realized_losses for trace in traces]
            rows.append(row(_LOSS, f"{name}: realized, no guarantee", k[1:], realized))
    return rows


_FIXED, _GROWING = CURVES["Figures 2 and B"][1:]
_STARRED, _HUANG = CURVES["Figure C"][1:]
_ADMM = (
    ("Algorithm 1", ALGORITHM_1, 0.0),
    ("Algorithm 1, secret D_i", None, 0.0),
    ("fixed weights, as [42]", _FIXED, 0.0),
    ("growing penalties, [43]", _GROWING, 0.0),
)
_GRADIENTS = (
    ("Algorithm 1", ALGORITHM_1, 0.0),
    ("Algorithm 2*, apart at first", _STARRED, _APART),
    ("Algorithm 2*, from one point", _STARRED, 0.0),
    ("[45]", _HUANG, 0.0),
)
_PANELS = {
    _ACCURACY: Panel("round k", "mean of |x_i - x*| / d"),
    _LOSS: Panel("round k", "loss of the rounds so far, by the paper's B"),
}
_COMMON = ("records", "rounds", "start", "start_of_runs", "sensitivity", "noise", "admm")
_RECORDS = "made-up records like UCI Adult"


def _study(figure: str, entries: tuple[str, ...], run: str, full: Scope, teaches: str) -> Study:
    curves = _GRADIENTS if figure == "figure_C" else _ADMM
    return Study(
        _PAPER,
        run,
        (figure, *entries, *_COMMON),
        _PANELS,
        partial(_rows, figure, curves),
        full,
        Scope(20, 2),
        teaches,
        _RECORDS,
    )


_FULL = Scope(entry(_PAPER, "rounds").whole("K"), entry(_PAPER, "records").whole("runs"))
_WITH_ADMM = ("secret_constant", "secret_constant_of_runs", "fixed_weights", "growing_penalties")
STUDIES = {
    "xiao_figure_2": _study(
        "figure_2",
        ("figure_2b", *_WITH_ADMM),
        "Figure 2",
        _FULL,
        "secret weights lower the loss of the outputs by a quarter, and no guarantee",
    ),
    "xiao_figure_B": _study(
        "figure_B",
        _WITH_ADMM,
        "Figure B",
        Scope(_FULL.rounds, 3),
        "a hundred agents lose what ten lose: losses do not fall with N",
    ),
    "xiao_figure_C": _study(
        "figure_C",
        ("figure_C_loss", "steps"),
        "Figure C",
        _FULL,
        "wide intervals lose a third of [45] when realized, more in the worst case",
    ),
}
