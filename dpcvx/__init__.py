"""Private distributed optimisation for models written in cvxpy.

State each agent's objective and constraints in cvxpy, mark what is private, and run a distributed
solver whose differential-privacy guarantee is derived from the model before any data are read.
"""

from importlib.metadata import version

from .algorithms.admm import ADMM as ADMM
from .algorithms.base import Algorithm as Algorithm
from .algorithms.decentralized_admm import DecentralizedADMM as DecentralizedADMM
from .algorithms.decentralized_gradient import DecentralizedGradient as DecentralizedGradient
from .algorithms.dpp2 import DPP2 as DPP2
from .algorithms.gradient_admm import GradientADMM as GradientADMM
from .algorithms.gradient_tracking import GradientTracking as GradientTracking
from .algorithms.linearized_admm import LinearizedADMM as LinearizedADMM
from .algorithms.mean_gradient import MeanGradient as MeanGradient
from .algorithms.penalty import ConstantPenalty as ConstantPenalty
from .algorithms.penalty import GrowingPenalty as GrowingPenalty
from .algorithms.penalty import ResidualBalancing as ResidualBalancing
from .algorithms.primal_dual import PrimalDual as PrimalDual
from .algorithms.resource_admm import ResourceADMM as ResourceADMM
from .algorithms.step_size import ConstantStep as ConstantStep
from .algorithms.step_size import GeometricStep as GeometricStep
from .algorithms.step_size import SmoothStep as SmoothStep
from .algorithms.step_size import SqrtStep as SqrtStep
from .algorithms.step_size import StronglyConvexStep as StronglyConvexStep
from .algorithms.summed import SecretSharing as SecretSharing
from .errors import BudgetError as BudgetError
from .errors import DataError as DataError
from .errors import DpcvxError as DpcvxError
from .errors import LedgerError as LedgerError
from .errors import ModelError as ModelError
from .errors import PrivacyError as PrivacyError
from .errors import SolverError as SolverError
from .model.declaration import Agent as Agent
from .model.private import Asserted as Asserted
from .model.private import Private as Private
from .model.private import Rows as Rows
from .model.private import Within as Within
from .plan.guarantee import Guarantee as Guarantee
from .privacy.ledger import Ledger as Ledger
from .privacy.mechanism import Gaussian as Gaussian
from .privacy.mechanism import Laplace as Laplace
from .problem import Plan as Plan
from .problem import Problem as Problem
from .run.executors.processes import Processes as Processes
from .run.executors.serial import Serial as Serial
from .run.executors.threads import Threads as Threads
from .run.result import Result as Result
from .run.result import Status as Status
from .run.result import Transcript as Transcript
from .run.solution import Solution as Solution
from .verify import not_private as not_private
from .verify.audit import Audit as Audit
from .verify.audit import audit as audit
from .verify.check import Check as Check
from .verify.check import check as check
from .verify.compare import Comparison as Comparison
from .verify.conformance import conformance as conformance

__version__ = version("dpcvx")
