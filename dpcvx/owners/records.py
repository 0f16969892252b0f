"""The closed table of records that may be sent between owners, by their names on the wire.

A name stands for one class, with its fields in their order. If you change the fields or their
order, the format changes: raise the version in `dpcvx.owners.wire`.

A second table lists the methods that can run between owners, and the reasons why others cannot.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..algorithms import penalties, steps
from ..algorithms.admm import ADMM
from ..algorithms.base import Algorithm, Answer
from ..algorithms.consensus import Broadcast, LocalCopy
from ..algorithms.data_terms import DataTerms
from ..algorithms.decentralized_admm import DecentralizedADMM
from ..algorithms.decentralized_gradient import DecentralizedGradient
from ..algorithms.dpp2 import DPP2
from ..algorithms.facts import StepRule
from ..algorithms.federated_averaging import FederatedAveraging
from ..algorithms.federated_gradient import FederatedGradient, Moved
from ..algorithms.gradient_admm import GradientADMM
from ..algorithms.gradient_tracking import GradientTracking
from ..algorithms.learned_scale import LearnScale, ScaleQuestion
from ..algorithms.linearized_admm import LinearizedADMM
from ..algorithms.networks import Network
from ..algorithms.objective_perturbation import Minimize, ObjectivePerturbation
from ..algorithms.on_networks import Inbox
from ..algorithms.one_shot import Found, Left, LeftInShares, MomentsQuestion, OneShot
from ..algorithms.penalties import PenaltyRule
from ..algorithms.primal_dual import PrimalDual
from ..algorithms.program import LocalProgram
from ..algorithms.resource_admm import ResourceADMM
from ..algorithms.summed import Delivery, Heard, Question, SecretSharing, Shared, SplitSharing
from ..model.adjacency import ComplexWithin, MirroredWithin, Rows, Within
from ..model.canonical import ConeData, Cones
from ..model.layout import Layout, Piece
from ..model.matrices import Identity
from ..model.normal_form import Atom, Combination, NormalForm
from ..model.private_constraints import ConstraintRows, PrivateConstraint
from ..model.spec import Asserted, PrivateSpec
from ..plan.request import AgentRequest
from ..privacy.entries import Entry
from ..privacy.mechanism import Gaussian, Laplace, Staircase
from ..privacy.secret_sharing import Encoding, Partial, Residues, SecretSum, Share
from ..privacy.split_noise import SplitNoise
from ..sensitivity.estimates import Estimate, JamesStein
from ..sensitivity.queries.data import (
    CurvatureSums,
    DataCurvature,
    LearnedGradient,
    LearnedSummand,
    MomentsTerm,
    RecordsAbove,
    ReleasedData,
)
from ..sensitivity.queries.gradients import Gradient, Step, Summand
from ..sensitivity.queries.solutions import LocalSolution, PerturbedMinimizer
from ..sensitivity.release_once import Once
from ..sensitivity.second_moments import Scaled
from . import messages

# Methods that can run between owners, with the revision of their local updates. Raise it when a
# local update treats a message differently: parties of different revisions would not fit together.
REVISIONS: Mapping[type[Algorithm[Any, Any]], int] = {
    LinearizedADMM: 1,
    ADMM: 1,
    FederatedAveraging: 1,
    FederatedGradient: 1,
    ObjectivePerturbation: 1,
    OneShot: 1,
    DecentralizedGradient: 1,
    PrimalDual: 1,
}
# Kinds of queries whose sensitivity an owner can derive without the coordinator.
_QUERIES = {
    Gradient, Step, Summand, DataCurvature, MomentsTerm, LocalSolution, ReleasedData, RecordsAbove,
    CurvatureSums, LearnedGradient, LearnedSummand, PerturbedMinimizer,
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
    """Return the reason why a method cannot run between owners; empty if it can.

    Parameters
    ----------
    algorithm : Algorithm
    observer : str
        Observer of the plan.
    """
    kind = type(algorithm)
    if observer != "everyone":
        return (
            f"observer='{observer}' is a guarantee against those who do not see whose turn it was, "
            "and the coordinator sees every message"
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
    """Return whether a method uses secure aggregation, with distributed noise or without."""
    return getattr(algorithm, "sharing", None) is not None


RECORDS: Mapping[str, type] = {
    # A program.
    "program": LocalProgram,
    "layout": Layout,
    "piece": Piece,
    "form": NormalForm,
    "atom": Atom,
    "combination": Combination,
    "identity": Identity,
    "private": PrivateSpec,
    "within": Within,
    "mirrored": MirroredWithin,
    "complex within": ComplexWithin,
    "rows": Rows,
    "asserted": Asserted,
    "cone program": ConeData,
    "cones": Cones,
    "private constraint": PrivateConstraint,
    "part": ConstraintRows,
    # Noise.
    "gaussian": Gaussian,
    "laplace": Laplace,
    "staircase": Staircase,
    "split": SplitNoise,
    # Methods, and the types of their fields.
    "LinearizedADMM": LinearizedADMM,
    "ADMM": ADMM,
    "FederatedAveraging": FederatedAveraging,
    "FederatedGradient": FederatedGradient,
    "ObjectivePerturbation": ObjectivePerturbation,
    "OneShot": OneShot,
    "DecentralizedGradient": DecentralizedGradient,
    "PrimalDual": PrimalDual,
    "network": Network,
    "learned scale": LearnScale,
    "secret sharing": SecretSharing,
    "split sharing": SplitSharing,
    "constant step": steps.Constant,
    "geometric step": steps.Geometric,
    "smooth step": steps.Smooth,
    "square root step": steps.Sqrt,
    "strongly convex step": steps.StronglyConvex,
    "constant penalty": penalties.Fixed,
    "growing penalty": penalties.Growing,
    "residual balancing": penalties.ResidualBalancing,
    "spectral penalty": penalties.Spectral,
    # Messages and replies of methods.
    "broadcast": Broadcast,
    "local copy": LocalCopy,
    "heard": Heard,
    "inbox": Inbox,
    "question": Question,
    "scale question": ScaleQuestion,
    "moments question": MomentsQuestion,
    "scaled": Scaled,
    "minimize": Minimize,
    "moved": Moved,
    "found": Found,
    "left": Left,
    "data terms": DataTerms,
    "left in shares": LeftInShares,
    "shared": Shared,
    "delivery": Delivery,
    "secret sum": SecretSum,
    "encoding": Encoding,
    "residues": Residues,
    "share": Share,
    "partial": Partial,
    "answer": Answer,
    # Messages between coordinator and owners.
    "hello": messages.Hello,
    "offer": messages.Offer,
    "line": messages.Line,
    "request": AgentRequest,
    "once": Once,
    "estimate": JamesStein,
    "agreed": messages.Agreed,
    "key": messages.Key,
    "partners": messages.Partners,
    "refusal": messages.Refusal,
    "call": messages.Call,
    "reply": messages.AgentReply,
    "ask": messages.Ask,
    "told": messages.IterateAnswer,
    "end": messages.End,
    "account": messages.FinalAccount,
    "over": messages.RunOver,
    "entry": Entry,
    # Entries of a coordinator's log.
    "begun": messages.RunBegun,
    "exchange": messages.Exchange,
    "answers": messages.Answers,
    "ended": messages.Ended,
    "parted": messages.Parted,
}
KINDS: Mapping[type, str] = {kind: name for name, kind in RECORDS.items()}
# Protocols and base classes that fields declare as their types, with the records that fit them.
RULES: Mapping[Any, tuple[type, ...]] = {
    StepRule: (
        steps.Constant, steps.Geometric, steps.Smooth, steps.Sqrt, steps.StronglyConvex,
    ),
    Algorithm: tuple(REVISIONS),
    Estimate: (JamesStein,),
    PenaltyRule: (
        penalties.Fixed, penalties.Growing, penalties.ResidualBalancing, penalties.Spectral,
    ),
}  # fmt: skip
