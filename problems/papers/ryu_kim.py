"""Ryu and Kim: Figures 6 and 7, with the comparators of the text and of the authors' code.

`problems.logistic_regression.as_printed` runs Figure 5 of MNIST's size, which takes hours for all
curves.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import dpcvx as dp

from ..logistic_regression.as_printed import setting
from ..logistic_regression.dataset import Dataset
from ..logistic_regression.experiment import DELTA
from ..logistic_regression.kept import traced
from ..logistic_regression.printed import Curve, Noise, Setting
from ..logistic_regression.sources import read_dataset
from . import entry
from .rows import Row, row
from .studies import Panel, Scope, Study

__all__ = ["STUDIES"]

_PAPER = "ryu_kim"
_BUDGETS = entry(_PAPER, "budgets").numbers("epsilon")
_UPDATES = (1, 10)
_NAMES: dict[Noise, str] = {
    "ObjG": "ObjG",
    "OutG, text": "OutG of the text",
    "OutG": "OutG of the code",
}
_MEASURES = ("noise (32)", "cost", "test error")


def _rows(
    data: str, budgets: tuple[float, ...], updates: dict[int, int], scope: Scope
) -> list[Row]:
    """Return the rows of Figure 5 or 6; `updates` has the number of rounds for each E."""
    rows = []
    own = setting(read_dataset(data), entry(_PAPER, "MNIST").whole("P"))
    for E, most in updates.items():
        rounds = min(most, scope.rounds)
        for budget in budgets:
            for noise in _NAMES:
                curve = Curve(noise, budget, E)
                trace = traced(own, curve, rounds)
                values = (trace.magnitude, trace.cost, trace.error)
                for measure, found in zip(_MEASURES, values, strict=True):
                    rows.append(
                        row(
                            f"{measure}, {budget:g}", f"{_NAMES[noise]}: E = {E}", trace.rounds,
                            [found], curve.totals(rounds)[1], DELTA,
                        )
                    )  # fmt: skip
    return rows


def _total(budget: float, E: int, rounds: int) -> float:
    """Return the composed epsilon of all updates at the paper's delta."""
    return Curve("ObjG", budget, E).totals(rounds)[1]


def _panels(budgets: tuple[float, ...], updates: dict[int, int]) -> dict[str, Panel]:
    panels = {}
    for measure in _MEASURES:
        for budget in budgets:
            totals = ", ".join(
                f"{_total(budget, E, rounds):.3g} (E = {E})" for E, rounds in updates.items()
            )
            title = f"{budget:g} per update\ntotal {totals}" if measure == _MEASURES[0] else ""
            panels[f"{measure}, {budget:g}"] = Panel(
                "round" if measure == _MEASURES[-1] else "",
                measure if budget == budgets[0] else "",
                log_x=True,
                log_y=measure == _MEASURES[0],
                title=title,
            )
    return panels


_OUT: tuple[Noise, ...] = ("OutG, text", "OutG")


def _penalties(own: Setting) -> dict[str, dp.penalties.Growing]:
    figure = entry(_PAPER, "figure_7")
    by, schedule = figure.number("divided"), own.penalty
    fixed = {f"rho = {rho:g}": replace(schedule, c1=rho, c2=0.0) for rho in figure.numbers("rho")}
    # (73) with these constants stays at c_1 for T_c rounds, which a run must not exceed.
    small = replace(schedule, c1=schedule.c1 / by, c2=schedule.c2 / by)
    return {**fixed, "(73)": schedule, f"(73) / {by:g}": small}


def _figure_7(data: str, scope: Scope) -> list[Row]:
    rows = []
    dataset: Dataset = read_dataset(data)
    own = setting(dataset, entry(_PAPER, "MNIST").whole("P"))
    assert scope.rounds < own.penalty.Tc
    for budget in entry(_PAPER, "figure_7_budgets").numbers("epsilon"):
        for name, rule in _penalties(own).items():
            for noise in _OUT:
                curve = Curve(noise, budget, 1)
                trace = traced(replace(own, penalty=rule), curve, scope.rounds)
                rows.append(
                    row(
                        f"{budget:g} per update", f"{name}: {_NAMES[noise]}",
                        trace.rounds, [trace.error], curve.totals(scope.rounds)[1], DELTA,
                    )
                )  # fmt: skip
    return rows


_ASSUMES = (
    "totals hold if the largest change in the agent's own records were a sensitivity: no guarantee"
)
_COMMON = ("budgets", "rounds", "box", "comparator_of_the_text", "comparator_of_the_code")
# Number of rounds by E, since a round with E = 10 takes ten times as long.
_DIGITS = {1: 5000, 10: 500}
STUDIES = {
    "ryu_kim_figure_6": Study(
        _PAPER,
        "Figure 6",
        ("FEMNIST", "schedule_FEMNIST", "schedule", *_COMMON),
        _panels(_BUDGETS, _DIGITS),
        partial(_rows, "digits", _BUDGETS, _DIGITS),
        Scope(5000, 1),
        Scope(3, 1),
        "the text's comparator loses at small budgets, the code's at all",
        "scikit-learn's digits, 10 agents instead of 195 writers",
        columns=4,
        assumes=_ASSUMES,
    ),
    "ryu_kim_figure_7": Study(
        _PAPER,
        "Figure 7",
        ("figure_7", "figure_7_budgets", "schedule_FEMNIST", *_COMMON),
        {
            f"{budget:g} per update": Panel(
                "round",
                "test error",
                log_x=True,
                log_y=False,
                title=f"{budget:g} per update\ntotal {_total(budget, 1, 500):.3g}",
            )
            for budget in entry(_PAPER, "figure_7_budgets").numbers("epsilon")
        },
        partial(_figure_7, "digits"),
        Scope(500, 1),
        Scope(3, 1),
        "the penalty changes the comparator less than the budget does",
        "scikit-learn's digits, E = 1, 500 rounds",
        assumes=_ASSUMES,
    ),
}
