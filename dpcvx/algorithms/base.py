"""The class of algorithms: public code on both sides of a network, with oracles for the agents.

A round consists of `exchanges` exchanges. In each, the server side sends one message per agent
(None leaves the agent idle), the agents act, and the server side receives their replies. In
methods without a server, the server side only forwards what neighbors sent. An algorithm holds
neither data nor noise; whatever it learns about private data comes out of `Oracle`.

A method adds `HiddenIterates` to `Algorithm` to have a guarantee for its last iterate alone. An
observer of ``observer="last_iterate"`` learns the result and nothing else of a run. Such a plan
asks for two things: what the loss of the agents depends on, and results that follow from the last
iterate only.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Generic, Literal, Protocol, Self, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from .._arguments import Kind, check_fields, choice, of_package, optional
from ..errors import ModelError
from ..privacy.last_iterate import LastIterate
from ..sensitivity.queries.query import Query
from ..sensitivity.stored_vectors import LinearCombination
from ..solvers.conic import ConicProgram, Outcome
from ..solvers.projector import Projector
from .facts import Output, PublicFacts
from .program import LocalProgram, Program
from .written_model import Decision

Array = NDArray[np.float64]
S = TypeVar("S")
A = TypeVar("A")


class Oracle(Protocol):
    """Access of an agent's local update to its private data; `dpcvx.run` implements it."""

    def release(self, query: Query) -> Array:
        """Return the (noisy) answer to a query of a type that the requirements name."""
        ...

    def store(self, name: str, combination: LinearCombination) -> None:
        """Make a vector that stays with the agent, from what is known and from exact gradients.

        `Stored` and `StoredGradient` ask for it by its name.
        """
        ...

    def uniform(self, size: int) -> Array:
        """Return numbers between 0 and 1 that the agent draws in this round and keeps to itself."""
        ...


class Coins(Protocol):
    """Public randomness, independent of data and noise; answered by `dpcvx.privacy.randomness`."""

    def below(self, limit: int) -> int:
        """Return a uniform integer from 0 to ``limit - 1``."""
        ...

    def shuffled(self, size: int) -> list[int]:
        """Return a uniform permutation of ``0, ..., size - 1``."""
        ...


@dataclass(frozen=True, eq=False)
class Batch(Sequence[Any]):
    """Messages to a batch of identical agents, or their replies, as one object.

    Attributes
    ----------
    whole : Any
        The message to all agents, or their reply: arrays may have a row per agent.
    agents : int
        Number of agents.
    one : callable
        Returns the message or reply of the agent at a position.
    """

    whole: Any
    agents: int
    one: Callable[[int], Any] = field(repr=False)

    def __len__(self) -> int:
        return self.agents

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return [self.one(i) for i in range(self.agents)[index]]
        return self.one(range(self.agents)[index])


@dataclass(frozen=True, eq=False)
class Local:
    """Public tools of one agent.

    Attributes
    ----------
    program : LocalProgram
    projector : Projector
        Onto W, with what the objective has besides its gradient.
    exact : ConicProgram or None
        Objective at zero data and W, if the algorithm asked for it.
    public_gradient : callable
        Gradient of the objective at zero data.
    """

    program: LocalProgram
    projector: Projector
    exact: ConicProgram | None
    public_gradient: Callable[[Array], Array]


@dataclass(frozen=True, eq=False)
class Answer:
    """An agent's vectors, shape (n,): the last iterate and the theory's average.

    The weight is that of all iterates in the average together; None for one per round.
    """

    last: Array
    average: Array
    weight: float | None = None


@dataclass(frozen=True, eq=False)
class Iterates:
    """State that agents keep of their points; methods derive from it to remember more.

    Attributes
    ----------
    x, average : ndarray, shape (n,)
        The point, and the mean over the turns so far.
    turns : int
    outcome : Outcome
        Outcome of the last public solve.
    """

    x: Array
    average: Array
    turns: int = field(default=0, kw_only=True)
    outcome: Outcome = field(default=Outcome.SOLVED, kw_only=True)

    def after(self, x: Array | None, outcome: Outcome = Outcome.SOLVED) -> Self:
        """Return the state after a turn that ended at x.

        The budget of a failed solve (None) is spent: the point stays, and the run goes on.
        """
        x, n = self.x if x is None else x, self.turns + 1
        average = self.average + (x - self.average) / n
        return replace(self, x=x, average=average, turns=n, outcome=outcome)


@dataclass(frozen=True)
class Residuals:
    """Distance from consensus after a round, from released values only.

    Attributes
    ----------
    primal : float
        ``||w - z||`` over all agents' shared components.
    dual : float
        ``rho ||w - w_previous||`` over the same components; nan in round 1.
    mismatch : float
        Largest ``|w - z|``.
    penalty : float
        Penalty of the round; 0 in methods without.
    """

    primal: float
    dual: float
    mismatch: float
    penalty: float


@dataclass(frozen=True)
class SecretSums:
    """Parameters of the secure aggregation that a method's sums need.

    Attributes
    ----------
    colluders : int
        So many agents may pool what they see with the server.
    limit : float
        Largest magnitude of an entry of what an agent sends, but for its noise.
    resolution : float or None
        Spacing of the grid that entries are rounded to; None for the plan to choose.
    """

    colluders: int
    limit: float
    resolution: float | None


@dataclass(frozen=True)
class Requirements:
    """Requirements of an algorithm on the problem and on the guarantee.

    Attributes
    ----------
    convex : bool
        Objectives must follow cvxpy's convexity rules.
    exact : bool or "joint"
        Objectives are compiled into the local cone programs, and minimized by every agent, or by
        the server in one program; private data may then enter the gradient only through a term
        that does not depend on the point, unless they are released once.
    releases : int
        Releases per agent and round.
    queries : tuple of type
        The types of `Query` that agents are asked; no others are answered.
    weights : tuple of float
        Factors of the noise in the releases of a round, in their order.
    free : int
        Number of releases of the first round without privacy loss.
    first : tuple of float
        Parts of the budget that the releases of the first rounds have, round by round, as parts of
        the sum of squared inverse multipliers; the other rounds share the rest evenly.
    coupled : bool or None
        Takes problems with ``coupling=``, and no others; None for all problems. Objectives without
        private data are then compiled.
    in_turn : bool
        One agent is asked per round.
    proximal : bool, "public" or "server"
        Steps end in ``local.projector(v, D, weight)`` with the weight of the objective in them, so
        that public terms without a gradient count; "public" if only those of agents without
        private data do, "server" if the server takes these steps and no agent projects. Exact
        methods need not say so.
    smoothness : float or None
        The user's claim for agents whose objective has no derived one.
    sensitivity : float or None
        The user's claim for answers, in place of a derived bound.
    limits : bool
        Takes constraints with private data.
    as_written : bool
        The server solves the model as it is written, for released data: no gradient is asked for.
    rules : {"dcp", "dgp", "dqcp"}
        That the model has to follow then: of convex, geometric or quasiconvex programs.
    secret : SecretSums or None
        Secure sums, if agents send nothing but their summands, so that noise may be distributed.
    perturbed : float or None
        Agents minimize their objectives with a random linear term, and with a quadratic of this
        weight; see `dpcvx.privacy.linear_term`. None for other methods; not a number where it is
        open.
    """

    convex: bool
    exact: bool | Literal["joint"]
    releases: int
    queries: tuple[type[Query], ...]
    weights: tuple[float, ...] = (1.0,)
    free: int = 0
    first: tuple[float, ...] = ()
    coupled: bool | None = False
    in_turn: bool = False
    proximal: bool | Literal["public", "server"] = False
    smoothness: float | None = None
    sensitivity: float | None = None
    limits: bool = False
    as_written: bool = False
    rules: Literal["dcp", "dgp", "dqcp"] = "dcp"
    secret: SecretSums | None = None
    perturbed: float | None = None

    def factors(self, rounds: int) -> tuple[float, ...]:
        """Return the factors on the noise of the first rounds, relative to the other rounds.

        Parameters
        ----------
        rounds : int

        Raises
        ------
        ModelError
            If there are no others.
        """
        if not self.first:
            return ()
        if rounds <= len(self.first):
            raise ModelError(
                f"rounds={rounds} leaves no round to step in: the first {len(self.first)} learn "
                f"the scale of the data. Write rounds={len(self.first) + 1} or more, or leave "
                "rounds= out."
            )
        rest = (1 - math.fsum(self.first)) / (rounds - len(self.first))
        return tuple(math.sqrt(rest / part) for part in self.first)

    def minimizes(self, program: Program) -> bool:
        """Return whether steps minimize all that agents have besides what has a gradient.

        Parameters
        ----------
        program : Program
        """
        if self.exact or self.proximal in (True, "server"):
            return True
        public = self.proximal == "public"
        return all(a.rest is None or (public and not a.form.private) for a in program.agents)


# In words.
OUTPUTS: dict[str, str] = {
    "average": "average of the iterates",
    "last": "last iterate",
    "tail": "average of the last half of the rounds",
    "weighted": "average in which later rounds count more",
}
_OUTPUT = optional(choice(*OUTPUTS)).otherwise(
    "or None for the average under noise and the last iterate without"
)


class Algorithm(abc.ABC, Generic[S, A]):
    """Abstract; concrete algorithms are frozen dataclasses of their parameters.

    Attributes
    ----------
    returned : {"average", "last", "tail", "weighted", None}
        Returned iterate. "tail" averages the last half of the rounds, and "weighted" weights later
        rounds more, by eighths of the run. None takes the iterate with the smallest predicted error
        if the plan chooses the step size, else the average with noise and the last iterate without.
        A result has all four.
    fixed_rounds : int or None
        Number of rounds of a run; None if the plan chooses it.
    """

    exchanges: ClassVar[int] = 1
    fixed_rounds: ClassVar[int | None] = None
    returned: Output | None

    def check_fields(self, **kinds: Kind) -> None:
        """Refuse parameters that are not what they must be, `returned` among them.

        Parameters
        ----------
        **kinds : Kind
            Kind of each parameter, by name.

        Raises
        ------
        ModelError
        """
        check_fields(self, self.called, returned=_OUTPUT, **kinds)

    @property
    def called(self) -> str:
        """Name in errors: ``dp.ADMM``, or the class alone if it stands outside the package."""
        name = type(self).__name__
        return f"dp.{name}" if of_package(type(self)) else name

    @property
    @abc.abstractmethod
    def requirements(self) -> Requirements:
        """Return the method's requirements, which a plan checks and counts."""

    def propose(self, facts: PublicFacts) -> Self:
        """Return the algorithm with every default replaced by a number; itself if it has none.

        Only `dpcvx.defaults` calls it: a plan checks numbers, whoever proposed them.

        Parameters
        ----------
        facts : PublicFacts
            The program, rounds and noise of the run, and what follows from them.

        Raises
        ------
        ModelError
            If a constant is neither given nor derivable.
        """
        return self

    def coupling(self, program: Program) -> str | None:
        """Return a text on the treatment of ``coupling=``, for the banner."""
        return None

    def rate(self, program: Program) -> str | None:
        """Return a text on the resolved method's convergence without noise, for the banner."""
        return None

    def diverges(self, program: Program) -> str:
        """Return the reason why the resolved method's runs must diverge; empty if none is known."""
        return ""

    @property
    def tells_agreement(self) -> bool:
        """Return whether residuals measure the agents' disagreement, so that a run can converge."""
        return True

    @property
    def batched(self) -> bool:
        """Return whether one call of `act` can update all identical agents with equal variables.

        `send` returns the same object for all agents, or a `Batch`; `act` then gets its `whole`.
        The oracle then answers with a row per agent, so arrays of the state and of the reply may
        have rows. `receive` gets the replies as a `Batch`. Every row must have the bits that the
        agent computes alone; `dp.testing.check_method` compares them.
        """
        return False

    def releases(self, rounds: int, program: Program) -> int:
        """Return the number of releases of an agent in so many rounds, at most."""
        return rounds * self.requirements.releases

    def drawn(self, server: S, rounds: int, coins: Coins) -> tuple[S, int]:
        """Return the server's state and last round after public draws, such as an order."""
        return server, rounds

    def adds(self, k: int) -> bool:
        """Return whether replies of exchange k are arrays, and `receive` uses only their sum.

        `receive` then gets one reply, the sum. Workers add up the replies of their own agents.
        """
        return False

    @abc.abstractmethod
    def start_server(self, program: Program) -> S:
        """Return the state of the server side before round 1."""

    @abc.abstractmethod
    def start_agent(self, local: Local) -> A:
        """Return the state of an agent before round 1."""

    @abc.abstractmethod
    def send(self, server: S, t: int, k: int) -> tuple[S, list[Any]]:
        """Send one message per agent in exchange k (from 0) of round t (from 1); None: idle."""

    @abc.abstractmethod
    def act(
        self, local: Local, state: A, t: int, k: int, message: Any, oracle: Oracle
    ) -> tuple[A, Any]:
        """Make an agent's local update, and return its new state and its reply."""

    @abc.abstractmethod
    def receive(self, server: S, t: int, k: int, replies: Sequence[Any]) -> S:
        """Receive the replies (None from idle agents), or their sum; see `adds`."""

    @abc.abstractmethod
    def residuals(self, server: S) -> Residuals:
        """Return the residuals after a round."""

    def noise_floor(
        self, program: Program, noise: Sequence[float], t: int, penalty: float
    ) -> float | None:
        """Return the approximate residual that noise alone sustains; None if that is unknown.

        Parameters
        ----------
        program : Program
        noise : sequence of float
            Standard deviation of the noise in one entry of a gradient, by agent.
        t : int
            The round.
        penalty : float
            That of the round.

        Returns
        -------
        float or None
            An upper estimate of the root mean square of ``Residuals.primal``, and of
            ``dual / penalty``.
        """
        return None

    def conclude(self, server: S) -> list[Answer] | None:
        """Return the agents' results from the server side; None if agents know their own."""
        return None

    def constraint_slack(self, server: S) -> Mapping[str, Array]:
        """Return by how much constraints with private data may be missed by what was decided.

        Returns
        -------
        mapping of str to ndarray
            Row by row or cone by cone, by what the constraint is called, from released values;
            empty where nothing may be missed at a price.
        """
        return {}

    def decision(self, server: S) -> Decision | None:
        """Return the decision for released data; None if no model was solved as it is written."""
        return None

    @property
    def shrinks(self) -> bool:
        """Return whether data that were released once are moved towards public proxy data."""
        return True

    @property
    def weighs_noise(self) -> bool:
        """Return whether the server shrinks a one-time release according to `Program.noise`."""
        return False

    def notes(self, server: S) -> tuple[str, ...]:
        """Return notes for the user next to the result, from released values; one sentence each."""
        return ()

    def answer(self, state: A) -> Answer | None:
        """Return an agent's result so far, by its `Iterates`; None if only `conclude` knows it."""
        return Answer(state.x, state.average) if isinstance(state, Iterates) else None

    def outcome(self, state: A) -> Outcome:
        """Return the outcome of an agent's last public solve; solved if agents solve nothing."""
        return state.outcome if isinstance(state, Iterates) else Outcome.SOLVED


class HiddenIterates(Algorithm[S, A]):
    """A method whose steps do not expand differences, so that later noise covers earlier steps."""

    needs_last_iterate = False
    # Whether whose turn it is stays secret.
    secret_draws = False

    @abc.abstractmethod
    def amplification(
        self,
        program: Program,
        sensitivities: Sequence[float],
        clipped: bool,
        rounds: int,
        *,
        visible: bool = False,
    ) -> LastIterate:
        """Return the guarantee's constants against observers who learn the last iterate only.

        Parameters
        ----------
        program : Program
        sensitivities : sequence of float
            Sensitivities of the agents' gradients in l2.
        clipped : bool
            Whether gradients are clipped in a way that may leave those of convex functions.
        rounds : int
        visible : bool
            Whether all iterates are visible, but not which user computed each of them.

        Raises
        ------
        PrivacyError
            If no theorem covers the problem.
        """

    @abc.abstractmethod
    def conclude_hidden(self, server: S) -> list[Answer]:
        """Return the agents' results as functions of the last iterate alone."""
