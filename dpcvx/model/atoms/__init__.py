r"""Rules of cvxpy's atoms, one class per atom: values, derivatives, and bounds of both.

A rule maps argument values to the atom's value, and a cotangent of the value to the cotangent of an
argument. It works on the trailing axes of arrays, and leading axes are agents or points. At a kink
of an atom, the rule returns one stated subgradient:

=============================  =====================================================
atom                           subgradient at points without a derivative
=============================  =====================================================
``abs``, ``norm1``, ``huber``  0 at 0
``norm2``, ``pnorm``           0 at the origin
``norm_inf``, ``max``          the first entry that attains the maximum
``maximum``, ``pos``           the first argument that attains the maximum
``min``, ``minimum``           the first entry or argument that attains the minimum
``sum_largest``                the largest entries, ties in their order
=============================  =====================================================
"""

from __future__ import annotations

from typing import Any

import cvxpy as cp

from . import entrywise, pairs, reductions
from .pairs import interval_product
from .rule import ITSELF, Fitted, Rule

__all__ = [
    "ITSELF", "RULES", "Fitted", "Rule", "class_rule", "interval_product", "rule_named", "rule_of",
    "supported", "written",
]  # fmt: skip

RULES = {
    rule.name: rule
    for module in (entrywise, pairs, reductions, pairs)
    for rule in vars(module).values()
    if isinstance(rule, Rule)
}
_BY_CLASS = {name: rule for rule in RULES.values() for name in rule.classes}
# Functions of cvxpy by the classes of the atoms that they make, if the names differ.
_FUNCTIONS = {
    "GeoMean": "geo_mean",
    "MatrixFrac": "matrix_frac",
    "Pnorm": "pnorm",
    "Power": "power",
    "Prod": "prod",
    "SymbolicQuadForm": "quad_form",
    "Trace": "trace",
    **{name: f"nlp.{name}" for name in ("asinh", "atanh", "cos", "sin", "sinh", "tan", "tanh")},
}
# Functions that users write and that cvxpy turns into other atoms.
_MADE_OF_OTHERS = ("norm", "pos", "square", "sum_squares")


def class_rule(atom: cp.Expression) -> Rule | None:
    """Return the rule of the class of a cvxpy atom, or None if there is none."""
    return _BY_CLASS.get(type(atom).__name__)


def rule_of(atom: cp.Expression) -> tuple[Rule, tuple[Any, ...]] | None:
    """Return the rule of a cvxpy atom and its constants (such as p of a norm), or None."""
    rule = class_rule(atom)
    data = None if rule is None else rule.read(atom)
    return None if rule is None or data is None else (rule, data)


def rule_named(name: str) -> Rule:
    """Return the rule of the atom with a given name."""
    return RULES[name]


def written(atom: cp.Expression) -> str:
    """Return the name of a cvxpy atom as users write it, which may differ from its class."""
    name = type(atom).__name__.removesuffix("Approx")
    if name == "MulExpression":
        return "@"
    return f"cp.{_FUNCTIONS.get(name, name)}"


def supported() -> list[str]:
    """Return the names of the atoms that have a rule."""
    names = {*RULES, *_MADE_OF_OTHERS} - {"matmul", "pnorm"}
    return [*sorted(names), "@", "every affine atom"]
