"""Private distributed optimisation for models written in cvxpy.

State each agent's objective and constraints in cvxpy, mark what is private, and run a distributed
solver whose differential-privacy guarantee is derived from the model before any data are read.
"""

from importlib.metadata import version

from . import not_private as not_private
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
from .audit import Audit as Audit
from .audit import audit as audit
from .check import Check as Check
from .check import check as check
from .compare import Comparison as Comparison
from .convergence import ConvergenceBound as ConvergenceBound
from .errors import BudgetError as BudgetError
from .errors import DataError as DataError
from .errors import DpcvxError as DpcvxError
from .errors import LedgerError as LedgerError
from .errors import ModelError as ModelError
from .errors import PrivacyError as PrivacyError
from .errors import SolverError as SolverError
from .executors.processes import Processes as Processes
from .executors.serial import Serial as Serial
from .executors.threads import Threads as Threads
from .guarantee import Guarantee as Guarantee
from .ledger import Ledger as Ledger
from .mechanism import Gaussian as Gaussian
from .mechanism import Laplace as Laplace
from .model import Agent as Agent
from .model import Problem as Problem
from .plan import Plan as Plan
from .private import Private as Private
from .private import Rows as Rows
from .private import Within as Within
from .result import Result as Result
from .result import Solution as Solution
from .result import Status as Status
from .result import Transcript as Transcript
from .sensitivity import Asserted as Asserted

__version__ = version("dpcvx")
