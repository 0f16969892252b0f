"""Bounds of all agents' curvatures, for conditions under which a method has a linear rate."""

from __future__ import annotations

from dataclasses import dataclass

from ..model.curvature import smoothness, strong_convexity
from .program import Program


@dataclass(frozen=True)
class Curvatures:
    """Between which bounds second derivatives lie.

    Attributes
    ----------
    moduli : tuple of float
        Of each agent's strong convexity, above 0.
    constants : tuple of float
        Of each agent's smoothness.
    """

    moduli: tuple[float, ...]
    constants: tuple[float, ...]


def curvatures(program: Program) -> Curvatures | str:
    """Bounds for all admissible data, or why no linear rate can follow from any."""
    moduli = tuple(strong_convexity(a.form) for a in program.agents)
    constants = tuple(L for a in program.agents if (L := smoothness(a.form)) is not None)
    if min(moduli) == 0 or len(constants) < len(moduli):
        return "some objective is not known to be strongly convex and smooth"
    if any(a.constraints.A.shape[0] for a in program.agents):
        return "some agent has constraints"
    return Curvatures(moduli, constants)
