"""Which methods can be run between owners, and why others cannot."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..algorithms.admm import ADMM
from ..algorithms.base import Algorithm
from ..algorithms.decentralized_admm import DecentralizedADMM
from ..algorithms.decentralized_gradient import DecentralizedGradient
from ..algorithms.dpp2 import DPP2
from ..algorithms.federated_averaging import FederatedAveraging
from ..algorithms.federated_gradient import FederatedGradient
from ..algorithms.gradient_admm import GradientADMM
from ..algorithms.gradient_tracking import GradientTracking
from ..algorithms.linearized_admm import LinearizedADMM
from ..algorithms.one_shot import OneShot
from ..algorithms.primal_dual import PrimalDual
from ..algorithms.resource_admm import ResourceADMM
from ..sensitivity.queries.data import DataCurvature, MomentsTerm, ReleasedData
from ..sensitivity.queries.gradients import Gradient, Step, Summand
from ..sensitivity.queries.scale import CurvatureSums, LearnedGradient, RecordsAbove
from ..sensitivity.queries.solutions import LocalSolution

# Methods that can be run between owners, with a number that is raised whenever what an agent's
# turn does with a message changes: parties of different numbers would compute different things.
REVISIONS: Mapping[type[Algorithm[Any, Any]], int] = {
    LinearizedADMM: 1,
    ADMM: 1,
    FederatedAveraging: 1,
    FederatedGradient: 1,
    OneShot: 1,
    DecentralizedGradient: 1,
    PrimalDual: 1,
}
# Of these an owner can derive by itself what one change does to the answer.
_QUERIES = {
    Gradient, Step, Summand, DataCurvature, MomentsTerm, LocalSolution, ReleasedData, RecordsAbove,
    CurvatureSums, LearnedGradient,
}  # fmt: skip
_SECRET = "its agents draw secret numbers, which no ledger keeps for a restart"
_CONVEX = "its guarantee rests on points that nobody sees, and a coordinator sees what it likes"
_WHY: Mapping[type[Algorithm[Any, Any]], str] = {
    GradientADMM: "the coordinator would choose the map that gradients leave through",
    ResourceADMM: _SECRET,
    DecentralizedADMM: _SECRET,
    DPP2: _CONVEX,
    GradientTracking: _CONVEX,
}


def obstacle(algorithm: Algorithm[Any, Any], observer: str) -> str:
    """Why a method cannot be run between owners; empty if it can.

    Parameters
    ----------
    algorithm : Algorithm
    observer : str
        Of its plan.
    """
    kind = type(algorithm)
    if observer != "everyone":
        return (
            "observer='last_iterate' is a guarantee against those who see the result only, and "
            "the coordinator sees every message"
        )
    if kind not in REVISIONS:
        return _WHY.get(kind, "no owner knows it: only methods of the package are run")
    needs = algorithm.requirements
    if needs.sensitivity is not None or needs.smoothness is not None:
        return "it is told a sensitivity or a smoothness constant, which no owner can check"
    if not set(needs.queries) <= _QUERIES:
        return "an owner cannot derive what one change does to what it is asked"
    return ""


def sums_in_secret(algorithm: Algorithm[Any, Any]) -> bool:
    """Whether a method forms sums in secret, with noise that is split or without."""
    return getattr(algorithm, "sharing", None) is not None
