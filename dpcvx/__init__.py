"""Private distributed optimization for models written in cvxpy.

State each agent's objective and constraints in cvxpy, mark what is private, and run a distributed
solver whose differential-privacy guarantee is derived from the model, without any private data.
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

if _TYPE_CHECKING:  # for type checkers only; at run time a name is imported at its first use
    from . import testing as testing
    from .algorithms import networks as networks
    from .algorithms import penalties as penalties
    from .algorithms import steps as steps
    from .algorithms.admm import ADMM as ADMM
    from .algorithms.base import Algorithm as Algorithm
    from .algorithms.decentralized_admm import DecentralizedADMM as DecentralizedADMM
    from .algorithms.decentralized_gradient import DecentralizedGradient as DecentralizedGradient
    from .algorithms.dpp2 import DPP2 as DPP2
    from .algorithms.federated_averaging import FederatedAveraging as FederatedAveraging
    from .algorithms.federated_gradient import FederatedGradient as FederatedGradient
    from .algorithms.gradient_admm import GradientADMM as GradientADMM
    from .algorithms.gradient_tracking import GradientTracking as GradientTracking
    from .algorithms.learned_scale import LearnScale as LearnScale
    from .algorithms.linearized_admm import LinearizedADMM as LinearizedADMM
    from .algorithms.objective_perturbation import ObjectivePerturbation as ObjectivePerturbation
    from .algorithms.one_shot import OneShot as OneShot
    from .algorithms.primal_dual import PrimalDual as PrimalDual
    from .algorithms.resource_admm import ResourceADMM as ResourceADMM
    from .algorithms.summed import SecretSharing as SecretSharing
    from .errors import BudgetError as BudgetError
    from .errors import DataError as DataError
    from .errors import DpcvxError as DpcvxError
    from .errors import LedgerError as LedgerError
    from .errors import ModelError as ModelError
    from .errors import PrivacyError as PrivacyError
    from .errors import RefusedError as RefusedError
    from .errors import RepeatWarning as RepeatWarning
    from .errors import SolverError as SolverError
    from .errors import WorkerLostError as WorkerLostError
    from .model.adjacency import ByPerson as ByPerson
    from .model.adjacency import Rows as Rows
    from .model.adjacency import Within as Within
    from .model.agent import Agent as Agent
    from .model.prior import Prior as Prior
    from .model.private import Private as Private
    from .model.spec import Asserted as Asserted
    from .owners.loopback import LoopbackOwners as LoopbackOwners
    from .owners.owner import Owner as Owner
    from .owners.owner import RemoteOwners as RemoteOwners
    from .plan.guarantee import Guarantee as Guarantee
    from .privacy.ledger import Ledger as Ledger
    from .privacy.mechanism import Gaussian as Gaussian
    from .privacy.mechanism import Laplace as Laplace
    from .privacy.mechanism import Staircase as Staircase
    from .problem import Plan as Plan
    from .problem import Problem as Problem
    from .run.executors.cluster import MPI as MPI
    from .run.executors.cluster import Dask as Dask
    from .run.executors.in_process import Serial as Serial
    from .run.executors.in_process import Threads as Threads
    from .run.executors.processes import Processes as Processes
    from .run.recourse import RecourseSolution as RecourseSolution
    from .run.result import Result as Result
    from .run.result import Status as Status
    from .run.result import Transcript as Transcript
    from .run.solution import Solution as Solution
    from .testing import not_private as not_private
    from .testing.audit import Audit as Audit
    from .testing.audit import audit as audit
    from .testing.check import SensitivityCheck as SensitivityCheck
    from .testing.check import check_sensitivity as check_sensitivity
    from .testing.reconstruct import Reconstruction as Reconstruction
    from .testing.reconstruct import reconstruct as reconstruct
    from .tuning.tune import Comparison as Comparison
    from .tuning.tune import Tradeoff as Tradeoff
    from .tuning.tune import Tuned as Tuned

    __version__: str

# Public names, and the module of each.
_FILES = {
    "ADMM": "algorithms.admm",
    "DPP2": "algorithms.dpp2",
    "MPI": "run.executors.cluster",
    "Agent": "model.agent",
    "Algorithm": "algorithms.base",
    "Asserted": "model.spec",
    "Audit": "testing.audit",
    "BudgetError": "errors",
    "ByPerson": "model.adjacency",
    "Comparison": "tuning.tune",
    "Dask": "run.executors.cluster",
    "DataError": "errors",
    "DecentralizedADMM": "algorithms.decentralized_admm",
    "DecentralizedGradient": "algorithms.decentralized_gradient",
    "DpcvxError": "errors",
    "FederatedAveraging": "algorithms.federated_averaging",
    "FederatedGradient": "algorithms.federated_gradient",
    "Gaussian": "privacy.mechanism",
    "GradientADMM": "algorithms.gradient_admm",
    "GradientTracking": "algorithms.gradient_tracking",
    "Guarantee": "plan.guarantee",
    "Laplace": "privacy.mechanism",
    "LearnScale": "algorithms.learned_scale",
    "Ledger": "privacy.ledger",
    "LedgerError": "errors",
    "LinearizedADMM": "algorithms.linearized_admm",
    "LoopbackOwners": "owners.loopback",
    "ModelError": "errors",
    "ObjectivePerturbation": "algorithms.objective_perturbation",
    "OneShot": "algorithms.one_shot",
    "Owner": "owners.owner",
    "Plan": "problem",
    "PrimalDual": "algorithms.primal_dual",
    "Prior": "model.prior",
    "PrivacyError": "errors",
    "Private": "model.private",
    "Problem": "problem",
    "Processes": "run.executors.processes",
    "Reconstruction": "testing.reconstruct",
    "RecourseSolution": "run.recourse",
    "RefusedError": "errors",
    "RemoteOwners": "owners.owner",
    "RepeatWarning": "errors",
    "ResourceADMM": "algorithms.resource_admm",
    "Result": "run.result",
    "Rows": "model.adjacency",
    "SecretSharing": "algorithms.summed",
    "SensitivityCheck": "testing.check",
    "Serial": "run.executors.in_process",
    "Solution": "run.solution",
    "SolverError": "errors",
    "Staircase": "privacy.mechanism",
    "Status": "run.result",
    "Threads": "run.executors.in_process",
    "Tradeoff": "tuning.tune",
    "Transcript": "run.result",
    "Tuned": "tuning.tune",
    "Within": "model.adjacency",
    "WorkerLostError": "errors",
    "audit": "testing.audit",
    "check_sensitivity": "testing.check",
    "networks": "algorithms.networks",
    "not_private": "testing",
    "penalties": "algorithms.penalties",
    "reconstruct": "testing.reconstruct",
    "steps": "algorithms.steps",
    "testing": "testing",
}

__all__ = [*_FILES]  # pyright: ignore[reportUnsupportedDunderAll]


def __dir__() -> list[str]:
    return [*_FILES, "__version__"]


def __getattr__(name: str) -> _Any:
    if name == "__version__":
        from importlib.metadata import version  # reads the package's metadata

        return version("dpcvx")
    if name not in _FILES:
        raise AttributeError(f"module 'dpcvx' has no attribute {name!r}")
    try:
        file = _import_module(f".{_FILES[name]}", __name__)
        value = getattr(file, name, file)  # a few names are modules themselves
    except ModuleNotFoundError as error:  # a package of an extra, such as dpcvx[owners]
        missing = str(error)
    else:
        globals()[name] = value
        return value
    from .errors import ModelError

    raise ModelError(f"dp.{name} cannot be used. {missing}")
