r"""Objective perturbation: each agent minimizes its objective with a random linear term, once.

.. math::
    x_i = \operatorname{argmin}_{x \in W_i} f_i(x) + r_i(x)
        + \tfrac{\Delta}{2} \|x - c_i\|^2 + \langle b_i, x \rangle

The random vector b_i hides the data from observers of x_i, at delta 0.
`dpcvx.privacy.linear_term` has the theorem, its proof, and the law of b_i. Several agents with
private data release their minimizers. The server takes the mean of each entry, weighted by the
number of records, and projects it onto all sets. If the data of the agents have one distribution,
the mean is close to the joint optimum.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from .._arguments import number, optional
from ..errors import ModelError
from ..guard import frameless
from ..model.adjacency import Rows
from ..model.curvature import smoothness, strong_convexity
from ..sensitivity.queries.solutions import PerturbedMinimizer
from ..solvers.conic import Outcome
from ..solvers.projector import Projector
from ..solvers.steps import CertifiedSearch
from .base import Algorithm, Iterates, Local, Oracle, Requirements, Residuals
from .facts import PublicFacts
from .federated_gradient import Moved
from .joint import joint_set
from .program import LocalProgram, Program

Array = NDArray[np.float64]
Index = NDArray[np.intp]

_WEIGHT = optional(number(lambda v: v >= 0, "that is finite and at least 0"))


@dataclass(frozen=True, eq=False)
class Minimize:
    """Query to an agent for the minimizer of its objective plus a random linear term."""


@dataclass(frozen=True, eq=False)
class Server:
    """State of the server side: the mean of released minimizers, projected onto all sets."""

    projector: Projector
    places: tuple[Index, ...]  # positions of each agent's components in x
    weights: tuple[float, ...]  # weight of each agent's minimizer; 0 without private data
    x: Array
    outcome: Outcome = Outcome.SOLVED


@frameless
@dataclass(frozen=True)
class ObjectivePerturbation(Algorithm[Server, Iterates]):
    """Objective perturbation: each agent minimizes its objective plus a random linear term.

    The method gives pure differential privacy (delta = 0) with one release per agent. Losses of
    records have to be smooth and convex functions of ``X @ w``, with the private records X.
    Constraints and penalties together need a closed-form projection. Boxes and balls around 0 have
    one, alone or with ``cp.norm1``. If several agents have private data, the result is the mean of
    their minimizers.

    The proof follows Chaudhuri, Monteleoni and Sarwate (2011). A determinant bounds the effect of
    one change of the data on the curvature; see `dpcvx.privacy.linear_term`.

    Parameters
    ----------
    regularization : float, optional
        Weight Delta of the quadratic ``Delta/2 ||x - c||^2`` that is added to each agent's
        objective, around its initial point c. Strongly convex objectives need a smaller weight. If
        omitted, the weight with the least predicted error is used.

    Raises
    ------
    ModelError
        If the weight is negative or not finite.
    """

    regularization: float | None = None

    fixed_rounds: ClassVar[int | None] = 1
    # There is one iterate.
    returned: ClassVar[None] = None
    exchanges: ClassVar[int] = 2

    def __post_init__(self) -> None:
        self.check_fields(regularization=_WEIGHT)

    @property
    def requirements(self) -> Requirements:
        """Return the method's requirements: each agent releases one perturbed minimizer."""
        weight = self.regularization
        return Requirements(
            convex=True,
            exact=False,
            releases=1,
            proximal=True,
            queries=(PerturbedMinimizer,),
            perturbed=math.nan if weight is None else float(weight),
        )

    def propose(self, facts: PublicFacts) -> ObjectivePerturbation:
        """Return the method with a weight, if omitted; refuse objectives of public agents.

        Raises
        ------
        ModelError
            If an agent without private data has an objective, or a loss is not smooth.
        """
        for local in facts.program.agents:
            if local.form.private and smoothness(local.form) is None:
                raise ModelError(
                    f"dp.ObjectivePerturbation needs smooth losses, and a term in the objective of "
                    f"agent '{local.name}' has no bound of its curvature. Write "
                    "problem.plan(dp.FederatedGradient(), mechanism='laplace', ...), or a smooth "
                    "loss such as cp.logistic."
                )
            if not local.form.private and has_objective(local):
                raise ModelError(
                    f"Agent '{local.name}' has an objective and no private data. Add its "
                    "objective to the objective of an agent with private data. "
                    "dp.ObjectivePerturbation minimizes only objectives of agents with private "
                    "data."
                )
        if self.regularization is not None:
            return self
        return replace(self, regularization=facts.regularization())

    def start_server(self, program: Program) -> Server:
        """Return the server's state, with the common point x at the public initial points."""
        whole = joint_set(program)
        projector = Projector(whole.data, "all agents")
        weights = tuple(_records(local) for local in program.agents)
        return Server(projector, whole.places, weights, whole.start)

    def start_agent(self, local: Local) -> Iterates:
        """Return the agent's state with x at the public initial point."""
        x = local.program.start
        return Iterates(x, np.zeros_like(x))

    def send(self, server: Server, t: int, k: int) -> tuple[Server, list[Any]]:
        """Request minimizers from agents with private data; in exchange 1, send the common x."""
        if k == 0:
            return server, [Minimize() if weight else None for weight in server.weights]
        return server, [Moved(server.x[columns], server.outcome) for columns in server.places]

    def act(
        self,
        local: Local,
        state: Iterates,
        t: int,
        k: int,
        message: Minimize | Moved,
        oracle: Oracle,
    ) -> tuple[Iterates, Array | None]:
        """Release the perturbed minimizer; in exchange 1, store the common point."""
        if isinstance(message, Moved):
            return state.after(message.x, message.outcome), None
        program, weight = local.program, self.regularization
        bend = smoothness(program.form)
        assert bend is not None and weight is not None  # the plan checked it
        convexity = strong_convexity(program.form)
        search = CertifiedSearch(local.projector, bend, convexity, weight, program.start)
        return state, oracle.release(PerturbedMinimizer(search))

    def receive(self, server: Server, t: int, k: int, replies: Sequence[Any]) -> Server:
        """Compute the weighted mean of the minimizers, and project it onto all sets."""
        if k > 0:
            return server
        total, counts = np.zeros(server.x.size), np.zeros(server.x.size)
        for columns, weight, reply in zip(server.places, server.weights, replies, strict=True):
            if weight:
                total[columns] += weight * reply
                counts[columns] += weight
        mean = np.where(counts > 0, total / np.where(counts > 0, counts, 1.0), server.x)
        ended = server.projector(mean, np.maximum(counts, 1e-6 * counts.max(initial=1.0)))
        return replace(server, x=server.x if ended.x is None else ended.x, outcome=ended.outcome)

    def residuals(self, server: Server) -> Residuals:
        """Return zero residuals, because all agents receive one point."""
        return Residuals(0.0, 0.0, 0.0, 0.0)

    def __str__(self) -> str:
        if self.regularization is None:
            return "objective perturbation: each agent's minimizer with a random linear term"
        return (
            "objective perturbation: each agent's minimizer with a random linear term, and with a "
            f"quadratic of weight {self.regularization:.3g}"
        )


def _records(local: LocalProgram) -> float:
    """Return the weight of an agent's minimizer in the mean of all minimizers.

    It is the number of records, or 1 for other private data, or 0 without private data.
    """
    rows = [spec.shape[0] for spec in local.form.private if isinstance(spec.adjacency, Rows)]
    return float(max(rows, default=1 if local.form.private else 0))


def has_objective(local: LocalProgram) -> bool:
    """Return whether an agent has an objective, not only constraints."""
    root = local.form.root
    return local.rest is not None or bool(root.terms) or root.F is not None
