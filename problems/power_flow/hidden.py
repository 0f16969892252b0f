"""Protected change of the loads, in the terms of a grid."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

import dpcvx as dp

Hidden = Literal["entry", "customer", "load", "zone"]
Adjacency: TypeAlias = dp.Within | dp.Rows


def adjacency(hidden: Hidden | Adjacency, radius: float) -> Adjacency:
    """The change of one zone's loads that no observer may notice.

    Parameters
    ----------
    hidden : {"entry", "customer", "load", "zone"}, dp.Within or dp.Rows
        * ``"entry"``: the active or the reactive load of one bus changes by at most `radius`;
        * ``"customer"``: one customer connects, leaves or draws something else, so that the active
          and the reactive load of a bus change together, by at most the apparent power `radius`;
        * ``"load"``: the whole load of one bus is any other one; `radius` is the largest apparent
          power that a load may have, and larger ones are refused when they are read;
        * ``"zone"``: all loads of a zone change at once, each active and each reactive one by at
          most `radius`.

        Or an adjacency of your own, in per unit, such as ``dp.Within(0.01, norm=1)``.
    radius : float
        Positive, in per unit; not used with an adjacency of your own.

    Returns
    -------
    dp.Within or dp.Rows

    Raises
    ------
    dp.ModelError
        `hidden` is something else, or the radius is not positive.
    """
    if isinstance(hidden, (dp.Within, dp.Rows)):
        return hidden
    if hidden == "entry":
        return dp.Within(radius)
    if hidden == "customer":
        # Customers of one bus: whichever it is, the whole difference has at most that length.
        return dp.Within(radius, norm=2)
    if hidden == "load":
        return dp.Rows(radius)
    if hidden == "zone":
        return dp.Within(radius, norm="inf")
    raise dp.ModelError(
        f"hidden={str(hidden)[:30]!r} is not known, so it is not said which change of the loads "
        f"stays hidden. Write one of {', '.join(map(repr, get_args(Hidden)))}, or an adjacency "
        "such as dp.Within(0.01, norm=1)."
    )
