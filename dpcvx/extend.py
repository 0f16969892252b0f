"""Imports for authors of methods, in one place; docs/guides/extending.md shows their use.

A method is a frozen dataclass of its parameters. It derives from `Algorithm`, from
`ConsensusMethod` if a server averages, or from `NetworkMethod` if agents receive messages of their
neighbors only. Its `act` sends queries to the oracle; all its other inputs are public.
"""

from ._arguments import POSITIVE, Kind, choice, integer, number, optional
from .algorithms.base import (
    Algorithm,
    Answer,
    Array,
    Batch,
    Coins,
    Iterates,
    Local,
    Oracle,
    Requirements,
    Residuals,
)
from .algorithms.consensus import Broadcast, ConsensusMethod, LocalCopy
from .algorithms.facts import Output, PublicFacts, StepRule
from .algorithms.on_networks import Graph, Inbox, Inboxes, NetworkMethod, mixed, shared, spread
from .algorithms.penalties import PenaltyRule, as_penalty
from .algorithms.program import LocalProgram, Program
from .algorithms.steps import as_step
from .model.curvature import smoothness, strong_convexity
from .sensitivity.queries.data import DataCurvature
from .sensitivity.queries.gradients import Gradient, GradientStep, Step, Stored, StoredGradient
from .sensitivity.queries.query import Known, Objective, Query, rounding_floor
from .sensitivity.queries.solutions import LocalSolution, Minimizer
from .sensitivity.stored_vectors import LinearCombination
from .solvers.conic import Outcome
from .testing.conformance import Conformance, ConformanceReport, MethodCheck, check_method
from .testing.instances import Instance

__all__ = [
    "POSITIVE",
    "Algorithm",
    "Answer",
    "Array",
    "Batch",
    "Broadcast",
    "Coins",
    "Conformance",
    "ConformanceReport",
    "ConsensusMethod",
    "DataCurvature",
    "Gradient",
    "GradientStep",
    "Graph",
    "Inbox",
    "Inboxes",
    "Instance",
    "Iterates",
    "Kind",
    "Known",
    "LinearCombination",
    "Local",
    "LocalCopy",
    "LocalProgram",
    "LocalSolution",
    "MethodCheck",
    "Minimizer",
    "NetworkMethod",
    "Objective",
    "Oracle",
    "Outcome",
    "Output",
    "PenaltyRule",
    "Program",
    "PublicFacts",
    "Query",
    "Requirements",
    "Residuals",
    "Step",
    "StepRule",
    "Stored",
    "StoredGradient",
    "as_penalty",
    "as_step",
    "check_method",
    "choice",
    "integer",
    "mixed",
    "number",
    "optional",
    "rounding_floor",
    "shared",
    "smoothness",
    "spread",
    "strong_convexity",
]
