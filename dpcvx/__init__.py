"""Private distributed optimization for models written in cvxpy.

State each agent's objective and constraints in cvxpy, mark what is private, and run a distributed
solver whose differential-privacy guarantee is derived from the model, without any private data.
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from . import testing
from .algorithms import networks, penalties, steps
from .algorithms.admm import ADMM
from .algorithms.base import Algorithm
from .algorithms.decentralized_admm import DecentralizedADMM
from .algorithms.decentralized_gradient import DecentralizedGradient
from .algorithms.dpp2 import DPP2
from .algorithms.federated_averaging import FederatedAveraging
from .algorithms.federated_gradient import FederatedGradient
from .algorithms.gradient_admm import GradientADMM
from .algorithms.gradient_tracking import GradientTracking
from .algorithms.learned_scale import LearnScale
from .algorithms.linearized_admm import LinearizedADMM
from .algorithms.objective_perturbation import ObjectivePerturbation
from .algorithms.one_shot import OneShot
from .algorithms.primal_dual import PrimalDual
from .algorithms.resource_admm import ResourceADMM
from .algorithms.summed import SecretSharing
from .errors import (
    BudgetError,
    DataError,
    DpcvxError,
    LedgerError,
    ModelError,
    PrivacyError,
    RefusedError,
    RepeatWarning,
    SolverError,
    WorkerLostError,
)
from .model.adjacency import ByPerson, Rows, Within
from .model.agent import Agent
from .model.prior import Prior
from .model.private import Private
from .model.spec import Asserted
from .plan.guarantee import Guarantee
from .privacy.ledger import Ledger
from .privacy.mechanism import Gaussian, Laplace, Staircase
from .problem import Plan, Problem
from .run.executors.dask import Dask
from .run.executors.in_process import Serial, Threads
from .run.executors.mpi import MPI
from .run.executors.processes import Processes
from .run.recourse import RecourseSolution
from .run.result import Result, Status, Transcript
from .run.solution import Solution
from .testing import not_private
from .testing.audit import Audit, audit
from .testing.check import SensitivityCheck, check_sensitivity
from .testing.reconstruct import Reconstruction, reconstruct
from .tuning.tune import Comparison, Tradeoff, Tuned

if _TYPE_CHECKING:
    from .owners.loopback import LoopbackOwners
    from .owners.owner import Owner, RemoteOwners

    __version__: str

# Names that need the packages of an extra, dpcvx[owners], and where they are.
_OWNERS = {"Owner": "owner", "RemoteOwners": "owner", "LoopbackOwners": "loopback"}

__all__ = [
    "ADMM",
    "DPP2",
    "MPI",
    "Agent",
    "Algorithm",
    "Asserted",
    "Audit",
    "BudgetError",
    "ByPerson",
    "Comparison",
    "Dask",
    "DataError",
    "DecentralizedADMM",
    "DecentralizedGradient",
    "DpcvxError",
    "FederatedAveraging",
    "FederatedGradient",
    "Gaussian",
    "GradientADMM",
    "GradientTracking",
    "Guarantee",
    "Laplace",
    "LearnScale",
    "Ledger",
    "LedgerError",
    "LinearizedADMM",
    "LoopbackOwners",
    "ModelError",
    "ObjectivePerturbation",
    "OneShot",
    "Owner",
    "Plan",
    "PrimalDual",
    "Prior",
    "PrivacyError",
    "Private",
    "Problem",
    "Processes",
    "Reconstruction",
    "RecourseSolution",
    "RefusedError",
    "RemoteOwners",
    "RepeatWarning",
    "ResourceADMM",
    "Result",
    "Rows",
    "SecretSharing",
    "SensitivityCheck",
    "Serial",
    "Solution",
    "SolverError",
    "Staircase",
    "Status",
    "Threads",
    "Tradeoff",
    "Transcript",
    "Tuned",
    "Within",
    "WorkerLostError",
    "audit",
    "check_sensitivity",
    "networks",
    "not_private",
    "penalties",
    "reconstruct",
    "steps",
    "testing",
]


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


def __getattr__(name: str) -> _Any:
    if name == "__version__":
        from importlib.metadata import version  # reads the package's metadata

        return version("dpcvx")
    if name not in _OWNERS:
        raise AttributeError(f"module 'dpcvx' has no attribute {name!r}")
    try:
        return getattr(_import_module(f".owners.{_OWNERS[name]}", __name__), name)
    except ModuleNotFoundError as error:
        missing = str(error)
    raise ModelError(f"dp.{name} cannot be used. {missing}")
