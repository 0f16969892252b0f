"""Problems whose agents hold the same variables and no constraints."""

from __future__ import annotations

from ..errors import ModelError
from ..program import Program
from ..projection import Projector


def require_open(program: Program, owner: str) -> None:
    """Refuse variables that one agent holds alone, and constraints.

    Raises
    ------
    ModelError
        Naming the agent.
    """
    for local in program.agents:
        if local.n > local.shared.size:
            raise ModelError(
                f"Agent '{local.name}' has variables of its own, and {owner} takes vectors that "
                "all agents share. Use dp.DecentralizedGradient, or share them."
            )
        if Projector(local.constraints, local.name).kinds.keys() - {"free"}:
            raise ModelError(
                f"Agent '{local.name}' has constraints, and {owner} takes none: its points go "
                "where gradients lead. Use dp.DecentralizedGradient, or put a smooth penalty in "
                "their place."
            )
