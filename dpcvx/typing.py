"""Types that signatures of public names show, in one place, for annotations in programs of users.

No name here has to be imported to write a model. `dpcvx.Problem` derives from ``Declaration``, and
`dpcvx.Plan` from ``Terms``. Types of methods are in `dpcvx.extend`.
"""

from .algorithms.decentralized_gradient import Aggregate
from .algorithms.facts import Conditions, Output, StepRule
from .algorithms.mixing import Around
from .algorithms.networks import Network
from .algorithms.on_networks import Graph
from .algorithms.penalties import PenaltyRule
from .algorithms.written_model import Decision
from .model.adjacency import Adjacency, Codes, Norm
from .model.declaration import Declaration, Values
from .model.matrices import Data
from .model.spec import PrivateSpec
from .plan.agent_plan import AgentPlan, Agents
from .plan.guarantee import AgentGuarantee, Claim
from .plan.request import Choice, Constraints, Mechanisms, Observer, Release, Scaling
from .plan.terms import Terms
from .privacy.accounting import Composition
from .privacy.accounts import Account
from .privacy.last_iterate import Amplification, LastIterate, Order, Secrecy
from .privacy.ledger_file import Journal
from .privacy.ledger_lines import Writer
from .privacy.secret_sharing import Encoding, Residues
from .run.data import DataSource
from .run.executors.in_process import Executor
from .run.history import History
from .run.solution import Iterate, Surrogates
from .solvers.steps import Minimization
from .testing.check import AgentCheck
from .testing.reconstruct import Guess
from .tuning.copies import Crossing
from .tuning.forecast import Forecast
from .tuning.ranking import Candidate

__all__ = [
    "Account",
    "Adjacency",
    "AgentCheck",
    "AgentGuarantee",
    "AgentPlan",
    "Agents",
    "Aggregate",
    "Amplification",
    "Around",
    "Candidate",
    "Choice",
    "Claim",
    "Codes",
    "Composition",
    "Conditions",
    "Constraints",
    "Crossing",
    "Data",
    "DataSource",
    "Decision",
    "Declaration",
    "Encoding",
    "Executor",
    "Forecast",
    "Graph",
    "Guess",
    "History",
    "Iterate",
    "Journal",
    "LastIterate",
    "Mechanisms",
    "Minimization",
    "Network",
    "Norm",
    "Observer",
    "Order",
    "Output",
    "PenaltyRule",
    "PrivateSpec",
    "Release",
    "Residues",
    "Scaling",
    "Secrecy",
    "StepRule",
    "Surrogates",
    "Terms",
    "Values",
    "Writer",
]
