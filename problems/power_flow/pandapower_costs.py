"""Costs in pandapower nets: polynomials and piecewise linear functions of power."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .errors import CaseError

Floats = NDArray[np.float64]

# Tables of elements that may have a cost, and whether their power is consumption.
PRICED = {"ext_grid": False, "gen": False, "sgen": False, "load": True, "storage": True}
# Names in pandapower for the elements of these tables that its optimal power flow controls.
KINDS = {
    table: f"{table}_controllable" if table in ("sgen", "load", "storage") else table
    for table in PRICED
}
_COSTS = ("cp2_eur_per_mw2", "cp1_eur_per_mw", "cp0_eur")
_REACTIVE = ("cq2_eur_per_mvar2", "cq1_eur_per_mvar", "cq0_eur")
_SHOWN = 5
_PIECEWISE, _POLYNOMIAL = 1, 2


def in_service(net: Mapping[str, Any], table: str) -> list[int]:
    """Return indices of the elements in service; an empty list without such a table."""
    if table not in net or not len(net[table]):
        return []
    elements = net[table]
    if "in_service" not in elements:
        return elements.index.tolist()
    return elements.index[elements["in_service"].to_numpy(dtype=bool)].tolist()


def listed(rows: list[int]) -> str:
    """Return a text with the first of these indices, for messages."""
    more = f" and {len(rows) - _SHOWN} more" if len(rows) > _SHOWN else ""
    return ", ".join(str(row) for row in rows[:_SHOWN]) + more


def controlled(net: Any, table: str) -> list[int]:
    """Return indices of the elements that pandapower's conversion turned into generators."""
    used = net["_is_elements"].get(KINDS[table])
    return [] if used is None or not len(net[table]) else net[table].index[used].tolist()


def check_costs(net: Mapping[str, Any], name: str) -> None:
    """Refuse costs of elements in service that are not convex or ambiguous.

    Parameters
    ----------
    net : pandapowerNet
    name : str
        Name for messages.

    Raises
    ------
    CaseError
        If there is such a cost; the text names rows of the net's own tables.
    """
    poly, pwl = (_used(net, table) for table in ("poly_cost", "pwl_cost"))
    priced: dict[tuple[str, int, str], str] = {}
    for table, used in (("poly_cost", poly), ("pwl_cost", pwl)):
        for at, row in () if used is None else used.iterrows():
            kinds = ["p", *(["q"] if _polynomial(row, _REACTIVE).any() else [])]
            for kind in kinds if table == "poly_cost" else [str(row["power_type"])]:
                key = (str(row["et"]), int(row["element"]), kind)
                if key in priced:
                    raise CaseError(
                        f"{name}: net.{table} {at} gives an element a second cost, so it is "
                        "unclear which one holds. Keep one row for each element."
                    )
                priced[key] = table
    if poly is not None:
        _check_polynomials(poly, name)
    if pwl is not None:
        _check_pieces(pwl, name)


def _used(net: Mapping[str, Any], table: str) -> Any:
    """Return the cost rows of elements in service; None if there are none."""
    costs = net.get(table)
    if costs is None or not len(costs):
        return None
    chosen = [
        at
        for at, kind, element in zip(costs.index, costs["et"], costs["element"], strict=True)
        if kind in PRICED and element in in_service(net, kind)
    ]
    return costs.loc[chosen] if chosen else None


def _polynomial(row: Any, columns: tuple[str, ...]) -> Floats:
    """Return cost coefficients, the highest power first; 0 for a missing column."""
    return np.array([row.get(column, 0.0) for column in columns], dtype=np.float64)


def _check_polynomials(used: Any, name: str) -> None:
    for column in (*_COSTS, *_REACTIVE):
        values = used.get(column)
        if values is None:
            continue
        wrong = used.index[~np.isfinite(values.to_numpy(dtype=np.float64))].tolist()
        if wrong:
            raise CaseError(
                f"{name}: net.poly_cost {listed(wrong)} has a {column} that is not a finite "
                "number, so the cost is undefined. Write 0 for no cost."
            )
        concave = used.index[values.to_numpy(dtype=np.float64) < 0].tolist()
        if concave and column in (_COSTS[0], _REACTIVE[0]):
            raise CaseError(
                f"{name}: net.poly_cost {listed(concave)} has a negative {column}, so the cost "
                "is not convex. Write a number of at least 0, for loads and storage too."
            )


def _check_pieces(used: Any, name: str) -> None:
    for at, row in used.iterrows():
        where = f"{name}: net.pwl_cost {at}"
        if PRICED[row["et"]]:
            raise CaseError(
                f"{where} is for consumption, and pandapower then reads its points as generation "
                "but its slopes as consumption. Write pandapower.create_poly_cost(net, element, "
                "et, cp1_eur_per_mw=...) in its place."
            )
        try:
            points = np.array(row["points"], dtype=np.float64)
        except (TypeError, ValueError):
            points = np.zeros(0)
        good = (
            row["power_type"] in ("p", "q")
            and points.ndim == 2
            and points.shape[-1] == 3
            and bool(np.isfinite(points).all())
            and bool(np.all(points[:, 0] < points[:, 1]))
            and bool(np.all(points[1:, 0] == points[:-1, 1]))
        )
        if not good:
            raise CaseError(
                f"{where} is no list of pieces [from, to, slope] that follow on each other, or its "
                "power_type is neither 'p' nor 'q'. Write points=[[0, 20, 1.5], [20, 50, 2]]."
            )
        if np.any(np.diff(points[:, 2]) < 0):
            raise CaseError(
                f"{where} has a slope that is lower than the one before it; the problem would not "
                "be convex. Write pieces whose slopes increase."
            )


def cost_table(
    net: Mapping[str, Any], converted_net: Any, count: int, name: str
) -> tuple[Floats, tuple[str, ...]]:
    """Return ``gencost`` of the converted generators, and notes on elements that have no cost.

    pandapower's own conversion gives the last generator the costs of elements out of service, and
    the quadratic and constant costs of loads and storage the wrong sign.

    Parameters
    ----------
    net : pandapowerNet
    converted_net : pandapowerNet
        Converted copy of the net, with pandapower's lookups.
    count : int
        Number of converted generators.
    name : str
        Name for notes.
    """
    rows: dict[int, Floats] = {}
    notes, poly, pwl = [], _used(net, "poly_cost"), _used(net, "pwl_cost")
    for table, consumes in PRICED.items():
        free, lookup = [], converted_net["_pd2ppc_lookups"].get(KINDS[table])
        for element in controlled(converted_net, table):
            costs = {**_polynomials(poly, table, element, consumes), **_pieces(pwl, table, element)}
            rows |= {int(lookup[element]) + count * (kind == "q"): c for kind, c in costs.items()}
            if "p" not in costs:
                free.append(element)
        if free:
            notes.append(
                f"{name}: net.{table} {listed(free)} without a row in net.poly_cost: power there "
                "costs nothing, as in pandapower's own optimal power flow."
            )
    reactive = any(row >= count for row in rows)
    gencost = np.zeros((count * (1 + reactive), max([7, *map(len, rows.values())])))
    gencost[:, 0], gencost[:, 3] = _POLYNOMIAL, 3
    for row, numbers in rows.items():
        gencost[row, : len(numbers)] = numbers
    return gencost, tuple(notes)


def _polynomials(used: Any, table: str, element: int, consumes: bool) -> dict[str, Floats]:
    """Return an element's polynomial rows of gencost, by kind of power.

    For consumption, costs are converted to functions of the negative power.
    """
    if used is None:
        return {}
    rows = {}
    for _, row in used[(used["et"] == table) & (used["element"] == element)].iterrows():
        for kind, columns in (("p", _COSTS), ("q", _REACTIVE)):
            c2, c1, c0 = _polynomial(row, columns)
            if kind == "p" or c2 or c1 or c0:
                signed = -c1 if consumes else c1
                rows[kind] = np.array([_POLYNOMIAL, 0, 0, 3, c2, signed, c0])
    return rows


def _pieces(used: Any, table: str, element: int) -> dict[str, Floats]:
    """Return an element's piecewise linear rows of gencost, by kind of power.

    The first slope extended to power 0 gives a cost of 0.
    """
    if used is None:
        return {}
    rows = {}
    for _, row in used[(used["et"] == table) & (used["element"] == element)].iterrows():
        points = np.array(row["points"], dtype=np.float64)
        power = np.concatenate((points[:1, 0], points[:, 1]))
        rise = (points[:, 1] - points[:, 0]) * points[:, 2]
        cost = points[0, 0] * points[0, 2] + np.concatenate(([0.0], np.cumsum(rise)))
        pairs = np.column_stack((power, cost)).ravel()
        rows[str(row["power_type"])] = np.array([_PIECEWISE, 0, 0, len(power), *pairs])
    return rows


def line_costs(net: Mapping[str, Any], rows: list[int], name: str) -> Floats | None:
    """Return ``dclinecost`` of the DC lines in service: costs of the sent power.

    Parameters
    ----------
    net : pandapowerNet
    rows : list of int
        Indices of the lines.
    name : str
        Name for messages.

    Returns
    -------
    ndarray or None
        None if no line has a cost.
    """
    chosen = {
        table: net[table][(net[table]["et"] == "dcline") & net[table]["element"].isin(rows)]
        for table in ("poly_cost", "pwl_cost")
        if len(net.get(table, ()))
    }
    if len(chosen.get("pwl_cost", ())):
        raise CaseError(
            f"{name}: net.pwl_cost {listed(chosen['pwl_cost'].index.tolist())} belongs to a DC "
            "line, for which only polynomial costs are supported. Write "
            "pandapower.create_poly_cost(net, element, 'dcline', cp1_eur_per_mw=...)."
        )
    used = chosen.get("poly_cost")
    if used is None or not len(used):
        return None
    backward = net["dcline"].index[net["dcline"]["p_mw"] <= 0]
    wrong = used.index[used["element"].isin(backward)].tolist()
    if wrong:
        raise CaseError(
            f"{name}: net.poly_cost {listed(wrong)} belongs to a DC line with p_mw <= 0, whose "
            "power flows backward, and pandapower reverses the sign of its cost. Exchange "
            "from_bus and to_bus, and write a positive p_mw."
        )
    _check_polynomials(used, name)
    costs = np.zeros((len(rows), 7))
    costs[:, 0], costs[:, 3] = _POLYNOMIAL, 3
    for _, row in used.iterrows():
        costs[rows.index(int(row["element"])), 4:] += _polynomial(row, _COSTS)
    return costs
