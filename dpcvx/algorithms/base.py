"""Base class of the methods: public code for server and agents, with an oracle for private data.

A round consists of `exchanges` exchanges. In each, the server side sends one message per agent
(None leaves the agent idle), the agents act, and the server side receives their replies. In
methods without a server, the server side only forwards the messages of neighbors. An algorithm
holds neither data nor noise; it learns about private data only through `Oracle`.

A method adds `HiddenIterates` to `Algorithm` to have a guarantee for its last iterate alone. An
observer of ``observer="last_iterate"`` learns the result and nothing else of a run. A plan for
that observer calls two functions: `amplification` returns the constants of the agents' privacy
loss, and `conclude_hidden` returns results that are functions of the last iterate only.
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
    """Protocol of the access to private data: a local update calls it with queries."""

    def release(self, query: Query) -> Array:
        """Return the (noisy) answer to a query whose type is in `Requirements.queries`."""
        ...

    def store(self, name: str, combination: LinearCombination) -> None:
        """Compute an unreleased vector from public numbers, stored vectors and exact gradients.

        The queries `Stored` and `StoredGradient` refer to the vector by this name.
        """
        ...

    def uniform(self, size: int) -> Array:
        """Return uniform numbers between 0 and 1 that the agent draws now and never sends."""
        ...


class Coins(Protocol):
    """Protocol of a source of public random numbers, independent of data and noise.

    `dpcvx.privacy.randomness` implements it.
    """

    def below(self, limit: int) -> int:
        """Return a uniform integer from 0 to ``limit - 1``."""
        ...

    def shuffled(self, size: int) -> list[int]:
        """Return a uniform permutation of ``0, ..., size - 1``."""
        ...


@dataclass(frozen=True, eq=False)
class Batch(Sequence[Any]):
    """Messages to a batch of identical agents, or the agents' replies, as one object.

    Attributes
    ----------
    whole : Any
        All messages, or all replies, as one value: its arrays may have a row per agent.
    agents : int
        Number of agents.
    one : callable
        Function that returns the message or reply of one agent, by the agent's position.
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
    """Public part of one agent for local updates: its program, projector, solver and gradient.

    Attributes
    ----------
    program : LocalProgram
    projector : Projector
        Projector onto the feasible set W that also minimizes the terms of the objective in
        `program.rest`.
    exact : ConicProgram or None
        Solver that minimizes the objective at zero data over W; None if the method needs none.
    public_gradient : callable
        Gradient of the objective at zero data.
    """

    program: LocalProgram
    projector: Projector
    exact: ConicProgram | None
    public_gradient: Callable[[Array], Array]


@dataclass(frozen=True, eq=False)
class Answer:
    """An agent's results, of shape (n,): last iterate and average iterate.

    Convergence theorems hold for the average. `weight` is the total weight of the iterates in it;
    None if all rounds have equal weight.
    """

    last: Array
    average: Array
    weight: float | None = None


@dataclass(frozen=True, eq=False)
class Iterates:
    """State of an agent: its current point and average. Methods subclass it to store more.

    Attributes
    ----------
    x, average : ndarray, shape (n,)
        Current point, and the mean of the points after each local update.
    turns : int
        Number of local updates so far.
    outcome : Outcome
        Outcome of the agent's last projection or solve.
    """

    x: Array
    average: Array
    turns: int = field(default=0, kw_only=True)
    outcome: Outcome = field(default=Outcome.SOLVED, kw_only=True)

    def after(self, x: Array | None, outcome: Outcome = Outcome.SOLVED) -> Self:
        """Return the state after a local update that ended at x.

        After a failed solve (x is None), the point stays and the run continues. The update counts,
        because its release has been charged.
        """
        x, n = self.x if x is None else x, self.turns + 1
        average = self.average + (x - self.average) / n
        return replace(self, x=x, average=average, turns=n, outcome=outcome)


@dataclass(frozen=True)
class Residuals:
    """Distance from consensus after a round, computed from released values only.

    The vector w holds the shared values, and z each agent's copy of them.

    Attributes
    ----------
    primal : float
        Primal residual: ``||w - z||`` over all agents' shared components.
    dual : float
        Dual residual: ``rho ||w - w_previous||`` over all agents' shared components; nan in round
        1.
    mismatch : float
        Largest entry of ``|w - z|``.
    penalty : float
        Penalty rho of the round; 0 in methods without a penalty.
    """

    primal: float
    dual: float
    mismatch: float
    penalty: float


@dataclass(frozen=True)
class SecretSums:
    """Parameters of secure aggregation for the sums that a method computes.

    Attributes
    ----------
    colluders : int
        Largest number of agents that may collude with the server.
    limit : float
        Largest magnitude of an entry of an agent's summand, before noise is added.
    resolution : float or None
        Spacing of the grid that entries are rounded to; None if the plan chooses it.
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
        Whether objectives must follow cvxpy's convexity rules.
    exact : bool or "joint"
        True if every agent minimizes its objective as a cone program. "joint" if the server
        minimizes the sum of all objectives. Private data that are not released once may then enter
        the gradient only through a term that does not depend on the point.
    releases : int
        Number of releases per agent and round.
    queries : tuple of type
        Types of `Query` that the method uses; the oracle refuses all others.
    weights : tuple of float
        Factors on the noise of a round's releases, in the order of the releases.
    free : int
        Number of releases in round 1 that do not depend on private data, and cost no privacy.
    first : tuple of float
        Shares of the budget for the first rounds, one per round, measured in the sum of squared
        inverse noise multipliers; the other rounds share the rest evenly.
    coupled : bool or None
        True if the method solves only problems with ``coupling=``, False if only problems without
        it, None if both. With ``coupling=``, objectives without private data are compiled into cone
        programs.
    in_turn : bool
        Whether only one agent makes a local update per round.
    proximal : bool, "public" or "server"
        Whether steps end in ``local.projector(v, D, weight)``, which also minimizes public terms
        without a gradient, multiplied by `weight`. "public" if only agents without private data
        take such steps; "server" if only the server does. Methods with `exact` may leave it False.
    smoothness : float or None
        User-supplied smoothness constant, for objectives without a derived constant.
    sensitivity : float or None
        User-supplied sensitivity of the answers, in place of a derived bound.
    limits : bool
        Whether the method supports constraints with private data.
    as_written : bool
        Whether the server solves the user's cvxpy model for released data, without gradients.
    rules : {"dcp", "dgp", "dqcp"}
        cvxpy's rules that a model solved as written must follow: those for convex, geometric or
        quasiconvex programs.
    secret : SecretSums or None
        Parameters of secure aggregation, if agents send only summands, so that noise may be
        distributed; else None.
    perturbed : float or None
        Weight of the quadratic that objective perturbation adds, beside a random linear term; see
        `dpcvx.privacy.linear_term`. None for other methods; NaN until the weight is chosen.
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
        """Return the noise multipliers of the first rounds, divided by the other rounds' one.

        Parameters
        ----------
        rounds : int

        Raises
        ------
        ModelError
            If there are no other rounds.
        """
        if not self.first:
            return ()
        if rounds <= len(self.first):
            raise ModelError(
                f"rounds={rounds} leaves no round for steps, because the first {len(self.first)} "
                f"learn the scale of the data. Write rounds={len(self.first) + 1} or more, or "
                "leave rounds= out."
            )
        rest = (1 - math.fsum(self.first)) / (rounds - len(self.first))
        return tuple(math.sqrt(rest / part) for part in self.first)

    def minimizes(self, program: Program) -> bool:
        """Return whether the method's steps minimize all public terms in `LocalProgram.rest`.

        Parameters
        ----------
        program : Program
        """
        if self.exact or self.proximal in (True, "server"):
            return True
        public = self.proximal == "public"
        return all(a.rest is None or (public and not a.form.private) for a in program.agents)


# Texts for the values of `returned`.
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
    """Abstract base class of the methods, which are frozen dataclasses of their parameters.

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
        """Refuse parameters of a wrong type or range, and an invalid `returned` in any case.

        Parameters
        ----------
        **kinds : Kind
            Allowed type and range of each parameter, by name. `returned`, which every method has,
            names the iterate that a run returns, and needs no entry here.

        Raises
        ------
        ModelError
            If a parameter has a wrong type or is out of range.
        """
        check_fields(self, self.called, returned=_OUTPUT, **kinds)

    @property
    def called(self) -> str:
        """Method's name in errors: ``dp.ADMM``, or the bare class name for a user's class."""
        name = type(self).__name__
        return f"dp.{name}" if of_package(type(self)) else name

    @property
    @abc.abstractmethod
    def requirements(self) -> Requirements:
        """Return the method's requirements on problems and accounting; see `Requirements`."""

    def propose(self, facts: PublicFacts) -> Self:
        """Return the algorithm with a number for every parameter that was omitted.

        By default, return `self`. Only `dpcvx.defaults` calls this function. A plan checks all
        numbers, whoever proposed them.

        Parameters
        ----------
        facts : PublicFacts
            The program, rounds and noise of the run, and what follows from them.

        Raises
        ------
        ModelError
            If a constant is neither passed nor derivable.
        """
        return self

    def coupling(self, program: Program) -> str | None:
        """Return a line for ``print(plan)`` on how the method treats ``coupling=``, or None."""
        return None

    def rate(self, program: Program) -> str | None:
        """Return a line for ``print(plan)`` on convergence without noise, or None.

        It is called after `propose`, so that all parameters are numbers.
        """
        return None

    def diverges(self, program: Program) -> str:
        """Return the reason why runs must diverge with these parameters; "" if none is known."""
        return ""

    @property
    def tells_agreement(self) -> bool:
        """Return whether residuals measure the agents' disagreement, so that a run can converge."""
        return True

    @property
    def batched(self) -> bool:
        """Return whether one call of `act` can update all identical agents with equal variables.

        `send` returns one object for all agents, or a `Batch`, whose `whole` is passed to `act`.
        The oracle answers with a row per agent, so arrays of the state and of the reply may have
        rows. `receive` gets the replies as a `Batch`. Every row must equal, bit by bit, the agent's
        values without batching; `dp.testing.check_method` compares them.
        """
        return False

    def releases(self, rounds: int, program: Program) -> int:
        """Return the largest number of releases of an agent in a number of rounds."""
        return rounds * self.requirements.releases

    def drawn(self, server: S, rounds: int, coins: Coins) -> tuple[S, int]:
        """Draw public random numbers; return the server's state and the last round's number."""
        return server, rounds

    def adds(self, k: int) -> bool:
        """Return whether `receive` needs only the sum of the agents' replies in exchange k.

        If so, replies are arrays, and `receive` gets a single reply, their sum. Each worker adds up
        its agents' replies first.
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
        """Return the server's new state and one message per agent; None leaves an agent idle.

        The messages are those of exchange k (from 0) of round t (from 1).
        """

    @abc.abstractmethod
    def act(
        self, local: Local, state: A, t: int, k: int, message: Any, oracle: Oracle
    ) -> tuple[A, Any]:
        """Make an agent's local update, and return its new state and its reply."""

    @abc.abstractmethod
    def receive(self, server: S, t: int, k: int, replies: Sequence[Any]) -> S:
        """Return the server's state after it has received the agents' replies.

        The reply of an idle agent is None. If `adds` returns True, `replies` has one element, the
        sum.
        """

    @abc.abstractmethod
    def residuals(self, server: S) -> Residuals:
        """Return the residuals after a round."""

    def noise_floor(
        self, program: Program, noise: Sequence[float], t: int, penalty: float
    ) -> float | None:
        """Return the approximate primal residual that noise alone sustains; None if unknown.

        Parameters
        ----------
        program : Program
        noise : sequence of float
            Standard deviation of the noise in one entry of a gradient, by agent.
        t : int
            The round.
        penalty : float
            Penalty of the round.

        Returns
        -------
        float or None
            An upper estimate of the root mean square of ``Residuals.primal``, and of
            ``dual / penalty``.
        """
        return None

    def conclude(self, server: S) -> list[Answer] | None:
        """Return the agents' results if the server computes them; None if agents compute them."""
        return None

    def constraint_slack(self, server: S) -> Mapping[str, Array]:
        """Return the solution's slack in constraints with private data.

        Returns
        -------
        mapping of str to ndarray
            Slack of each row or cone, from released values, by the constraint's name in messages;
            empty without a slack penalty.
        """
        return {}

    def decision(self, server: S) -> Decision | None:
        """Return the solution if the server solved the model as written, else None."""
        return None

    @property
    def shrinks(self) -> bool:
        """Return whether the server moves data that are released once towards public proxy data."""
        return True

    @property
    def weighs_noise(self) -> bool:
        """Return whether the server shrinks a one-time release according to `Program.noise`."""
        return False

    def notes(self, server: S) -> tuple[str, ...]:
        """Return notes on the result for the user, from released values, one sentence each."""
        return ()

    def answer(self, state: A) -> Answer | None:
        """Return an agent's result so far; None if its state is not an `Iterates`.

        With None, `conclude` computes the result.
        """
        return Answer(state.x, state.average) if isinstance(state, Iterates) else None

    def outcome(self, state: A) -> Outcome:
        """Return the outcome of an agent's last projection or solve; SOLVED if there was none."""
        return state.outcome if isinstance(state, Iterates) else Outcome.SOLVED


class HiddenIterates(Algorithm[S, A]):
    """Abstract base class of methods whose later noise also hides earlier steps.

    Their steps never increase the distance between two runs on neighboring data. So a guarantee
    against an observer of the last iterate may be smaller (amplification by iteration).
    """

    needs_last_iterate = False
    # Whether the order in which agents make local updates stays secret.
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
        """Return the constants of the guarantee against an observer of the last iterate only.

        Parameters
        ----------
        program : Program
        sensitivities : sequence of float
            l2 sensitivities of the agents' gradients.
        clipped : bool
            Whether clipped gradients may be the gradients of no convex function.
        rounds : int
        visible : bool
            Whether the observer sees all iterates, but not which agent computed each of them.

        Raises
        ------
        PrivacyError
            If no theorem covers the problem.
        """

    @abc.abstractmethod
    def conclude_hidden(self, server: S) -> list[Answer]:
        """Return the agents' results as functions of the last iterate alone."""
