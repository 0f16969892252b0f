"""An objective in two parts: a normal form with gradients, and public terms for proximal steps.

Terms whose atoms have no rule in `dpcvx.model.atoms`, such as ``cp.normNuc(X)`` or
``-cp.log_det(X)``, stay whole where they are convex and hold no private data: they are compiled
into a cone program, and steps minimize them exactly (`dpcvx.solvers.projector`).

So do public convex terms whose gradient has no Lipschitz constant, such as ``cp.norm1(x)``. A step
along the gradient of the other terms then has the length 1 / L of these, whatever the unit of the
objective. No length suits subgradients of such a term in all units.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import cvxpy as cp

from ..errors import ModelError
from .atoms import linear, supported
from .collapse import NoRule, normal_form
from .curvature import smoothness
from .layout import Layout
from .normal_form import NormalForm
from .private import Private


@dataclass(frozen=True, eq=False)
class Parts:
    """``form + rest``.

    Attributes
    ----------
    form : NormalForm
    rest : cvxpy expression or None
        Convex and public; None if all terms stay in the form.
    """

    form: NormalForm
    rest: cp.Expression | None


def parts_of(
    objective: cp.Expression,
    layout: Layout,
    private: Sequence[Private],
    owner: str,
    *,
    largest: float = math.inf,
    proximal: bool = True,
) -> Parts:
    """Sort the terms of a scalar objective; parameters as of `normal_form`.

    Parameters
    ----------
    objective, layout, private, owner, largest
        See `normal_form`.
    proximal : bool
        Whether convex public terms without a Lipschitz gradient go into `rest`. If not, only terms
        without any gradient do: for methods that follow gradients alone.

    Raises
    ------
    ModelError
        If a term has no gradient and either holds private data or is not known to be convex, or
        as `normal_form` does.
    """

    def form(expression: cp.Expression) -> NormalForm:
        return normal_form(expression, layout, private, owner, largest=largest)

    whole: NormalForm | None = None
    try:
        whole = form(objective)
    except NoRule:
        pass
    if whole is not None and (not proximal or smoothness(whole) is not None):
        return Parts(whole, None)
    kept: list[cp.Expression] = [cp.Constant(0.0)]
    rest: list[cp.Expression] = []
    for term in summands(objective):
        try:
            own = form(term)
        except NoRule as missing:
            _require_public(term, missing.atom, owner)
            rest.append(term)
            continue
        movable = proximal and not _private(term) and term.is_convex()
        (rest if movable and smoothness(own) is None else kept).append(term)
    if whole is not None and not rest:
        return Parts(whole, None)
    return Parts(form(_sum(kept)), _sum(rest))


def _require_public(term: cp.Expression, atom: str, owner: str) -> None:
    held = _private(term)
    if not held and term.is_convex():
        return
    *others, last = supported()
    why = f"together with private '{held[0]}'" if held else "in a term that is not convex"
    raise ModelError(
        f"The objective of agent '{owner}' uses {atom} {why}, and dpcvx knows no gradient of it. "
        f"Rewrite the term with {', '.join(others)} and {last}. Convex terms without private data "
        "may use every atom that cvxpy takes; give them a summand of their own."
    ) from None


def summands(expression: Any) -> list[cp.Expression]:
    """Return terms that add up to a scalar expression; factors are multiplied out."""
    return linear.terms(expression, lambda e: not e.variables() and not _private(e))


def _private(expression: cp.Expression) -> list[str]:
    return [p.name() for p in expression.parameters() if isinstance(p, Private)]


def _sum(terms: Sequence[cp.Expression]) -> cp.Expression:
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total
