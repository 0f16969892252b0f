"""Privacy units of loads, named as a grid operator would: entry, customer, load, zone."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

import dpcvx as dp

Hidden = Literal["entry", "customer", "load", "zone"]
Adjacency: TypeAlias = dp.Within | dp.Rows


def adjacency(hidden: Hidden | Adjacency, radius: float) -> Adjacency:
    """Return the adjacency for a protected change of one zone's loads.

    Parameters
    ----------
    hidden : {"entry", "customer", "load", "zone"}, dp.Within or dp.Rows
        * ``"entry"``: the active or the reactive load of one bus changes by at most `radius`;
        * ``"customer"``: one customer connects, disconnects or changes its load, so that the active
          and the reactive load of a bus change together, by at most the apparent power `radius`;
        * ``"load"``: the whole load of one bus is replaced by any other; `radius` is the largest
          apparent power of a load, and larger loads are refused when they are read;
        * ``"zone"``: all loads of a zone change at once, each active and each reactive one by at
          most `radius`.

        Or an adjacency of your own, in per unit, such as ``dp.Within(0.01, norm=1)``.
    radius : float
        Positive number in per unit; ignored with an adjacency of your own.

    Returns
    -------
    dp.Within or dp.Rows

    Raises
    ------
    dp.ModelError
        If `hidden` is invalid, or the radius is not positive.
    """
    if isinstance(hidden, (dp.Within, dp.Rows)):
        return hidden
    if hidden == "entry":
        return dp.Within(radius)
    if hidden == "customer":
        # Only one bus changes, so the l2 norm of the difference is an apparent power.
        return dp.Within(radius, norm=2)
    if hidden == "load":
        return dp.Rows(radius)
    if hidden == "zone":
        return dp.Within(radius, norm="inf")
    raise dp.ModelError(
        f"hidden={str(hidden)[:30]!r} is unknown, so the privacy unit of the loads is undefined. "
        f"Write one of {', '.join(map(repr, get_args(Hidden)))}, or an adjacency such as "
        "dp.Within(0.01, norm=1)."
    )
