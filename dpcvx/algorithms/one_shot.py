r"""One round: agents release the terms that their data add, and the server solves the problem.

Private data enter an objective through a linear term, or through squares of records that are
released once:

.. math:: f_p(x; d) = f_p(x; 0) + \langle c_p, x \rangle + \tfrac12 x' H_p x

up to a constant. Everything but c and H is public, so one release of c and H determines the problem

.. math::
    \operatorname{minimize} \sum_p f_p(S_p z; 0) + \langle c_p, S_p z \rangle
        + \tfrac12 (S_p z)' H_p S_p z
    \quad \text{subject to} \quad S_p z \in W_p, \quad \sum_p A_p S_p z = b,

and the server returns its optimum. The method needs no step size, no penalty and no iterations:
more rounds could only approach this point.

For all other convex models (``as_written=True``) agents release their data, or the weighted sums
through which the model depends on the data, and cvxpy solves the model as it is written; see
`dpcvx.algorithms.written_model`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from .._arguments import FLAG, TEXT, Kind, check_argument, choice, integer, optional, pairs
from .._words import plural, together
from ..errors import ModelError
from ..guard import frameless
from ..privacy.secret_sharing import Partial, SecretSum, Share
from ..sensitivity.queries.data import DataCurvature, MomentsTerm, ReleasedData
from ..sensitivity.queries.gradients import Gradient, Summand
from ..sensitivity.second_moments import Scaled
from ..solvers.conic import ConicProgram, Outcome
from .base import Algorithm, Iterates, Local, Oracle, Requirements, Residuals
from .data_terms import DataTerms, MomentSum, curvature_of_data, data_terms, moment_sum
from .facts import PublicFacts
from .joint import Joint, joint, missed, size_of, with_kept, with_slacks
from .program import Program
from .summed import (
    SHARING,
    Delivery,
    Pool,
    Question,
    SecretSharing,
    Shared,
    added,
    check_sharing,
    divided,
    proposed_sharing,
    require_all,
    secrecy,
    shared,
)
from .weighted_sums import followed
from .written_model import Decision, Rules, SolverChoice, WrittenModel

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class OneShotServer:
    """State of the server of `OneShot`.

    Attributes
    ----------
    program : Program
    joint : Joint
        Joint problem of all agents at zero data.
    x : ndarray or None
        Optimum of the joint problem; None until it is solved, and if solving fails.
    outcome : Outcome
        Outcome of solving the joint problem.
    pool : Pool or None
        Server side of secure aggregation of the linear coefficients; None without `sharing`.
    curvatures : tuple of csr_array
        Second derivatives that the data add, by agent, with `sharing`: secure aggregation sums the
        linear coefficients only, and the server side receives the second derivatives.
    moments : MomentSum or None
        Summands of second moments, and the objective that their sum determines; else None.
    missed : dict of str to ndarray
        Slack in constraints with private data, by the constraint's name, if there is a slack
        penalty.
    explained : float
        Share of the released linear coefficient that noise alone explains; 0 if the solution is
        not moved towards the initial point.
    """

    program: Program
    joint: Joint
    x: Array | None = None
    outcome: Outcome = Outcome.SOLVED
    pool: Pool | None = None
    curvatures: tuple[sp.csr_array, ...] = ()
    moments: MomentSum | None = None
    missed: Mapping[str, Array] = field(default_factory=dict)
    explained: float = 0.0
    decision: Decision | None = None  # solution of the model as written


@dataclass(frozen=True, eq=False)
class Left:
    """Reply of an agent with its released values.

    Attributes
    ----------
    terms : DataTerms or None
        Terms that the data add to the objective; None if the model is solved as written.
    data : ndarray or None
        Released private data, or released weighted sums of them if the model is solved as written;
        None if the server needs neither.
    """

    terms: DataTerms | None
    data: Array | None


@dataclass(frozen=True, eq=False)
class MomentsQuestion:
    """Query to an agent for its summand in the secure aggregation of second moments."""

    term: Scaled
    sums: SecretSum


@dataclass(frozen=True, eq=False)
class LeftInShares:
    """Reply of an agent with shares of its linear coefficients, for secure aggregation."""

    slope: Shared
    curvature: sp.csr_array  # shape (n, n); second derivatives that the data add


@dataclass(frozen=True, eq=False)
class OneShotMember(Iterates):
    """State of an agent: its point, and the secret share of its summand that it keeps itself."""

    kept: Share | None = None


@dataclass(frozen=True, eq=False)
class Found:
    """Last message to an agent, with its components of the solution.

    Attributes
    ----------
    x : ndarray, shape (n,), or None
        The agent's components of the optimum; None if there is no optimum.
    outcome : Outcome
    """

    x: Array | None
    outcome: Outcome


@frameless
@dataclass(frozen=True)
class OneShot(Algorithm[OneShotServer, OneShotMember]):
    """Solve the joint problem at the server, from one noisy release per agent.

    If gradients are affine in the private data, and for squares of records, agents release the
    terms of the objective that depend on data. For every other convex model, they release the data,
    or the weighted sums of data that the model uses. Then cvxpy solves the model as it is written:
    any atom, any cone, boolean and integer variables. The problem may have shared variables,
    ``coupling=``, and constraints with private data. A run has one round.

    Parameters
    ----------
    sharing : SecretSharing, optional
        Secure aggregation with distributed noise, as in `FederatedGradient`: the server sees only
        the sum of the agents' linear coefficients. Gradients have to be affine in the data. Do not
        pass ``release="once"`` with it.
    max_colluders : int
        Collusion threshold with ``sharing=``, at least 1: agents that may collude with the server.
    sums : {"slopes", "moments"}
        Summand with ``sharing=``: linear coefficients ("slopes"), or second moments of records. For
        moments, all agents need the same ``cp.sum_squares(X @ w - y)``, up to a factor. Rows are
        divided by the largest declared bound of all agents, so no entry exceeds the number of
        records.
    shrink : bool
        Move released data towards their public proxy ``dp.Private(proxy=...)``, as far as noise
        explains the distance (James and Stein). This applies if gradients are affine in the data,
        or the model is solved as written. Without a proxy, the solution stays near the initial
        point if noise explains more than half of the release and objectives have curvature in every
        direction of the noise; see `dpcvx.algorithms.weighted_sums`. The result has a note if this
        happens. With ``prior=``, or with private data in constraints, nothing is moved.
    as_written : bool, optional
        Whether to release the data and solve the model as written. If omitted, this is done only if
        agents cannot release the terms of their objectives.
    scenarios : int
        With ``as_written``, number of data sets that the server draws around the released data. If
        the cost is not affine in the data, it is averaged over these data sets. With 0, the
        released data alone are used; large problems use fewer data sets.
    solver : str, optional
        Solver for the model as written, such as ``cp.SCS``. If omitted, Clarabel, or cvxpy's choice
        for mixed-integer problems. A plan first tries the solver on synthetic data.
    solver_options : dict, optional
        Options that cvxpy's ``solve`` passes to this solver, such as ``{"max_iter": 500}``.
    gp, qcp : bool
        Solve a geometric program (DGP), or a quasiconvex one (DQCP), as written. Private data in a
        geometric program need ``bounds=(least, largest)`` above 0.

    Raises
    ------
    ModelError
        If a parameter is outside its range.
    """

    sharing: SecretSharing | None = None
    max_colluders: int = 1
    sums: Literal["slopes", "moments"] = "slopes"
    # At their defaults, fields marked "later" do not enter a plan's digest, which seeds its noise.
    shrink: bool = field(default=True, metadata={"later": True})
    as_written: bool | None = field(default=None, metadata={"later": True})
    scenarios: int = field(default=20, metadata={"later": True})
    solver: str | None = field(default=None, metadata={"later": True})
    solver_options: (
        Mapping[str, bool | int | float | str] | tuple[tuple[str, bool | int | float | str], ...]
    ) = field(default=(), metadata={"later": True})
    gp: bool = field(default=False, metadata={"later": True})
    qcp: bool = field(default=False, metadata={"later": True})

    fixed_rounds: ClassVar[int | None] = 1
    # There is one iterate.
    returned: ClassVar[None] = None

    def __post_init__(self) -> None:
        self.check_fields(
            sharing=SHARING,
            max_colluders=integer(1),
            sums=choice("slopes", "moments"),
            shrink=FLAG,
            as_written=optional(FLAG),
            scenarios=integer(0),
            solver=optional(TEXT),
            gp=FLAG,
            qcp=FLAG,
        )
        object.__setattr__(self, "solver_options", _options(self.solver_options))
        if self.gp and self.qcp:
            raise ModelError(
                "dp.OneShot(gp=True, qcp=True) names two kinds of programs. Keep one of the two "
                "arguments."
            )
        names = ("gp", "qcp", "solver", "solver_options")
        given = [name for name in names if getattr(self, name)]
        if given and self.as_written is False:
            raise ModelError(
                f"dp.OneShot({given[0]}=...) solves the model as it is written. Leave out "
                "as_written=False."
            )
        if given:
            object.__setattr__(self, "as_written", True)
        if self.as_written and self.sharing is not None:
            raise ModelError(
                "dp.OneShot(as_written=True) cannot be combined with sharing=. Leave one of the "
                "two out. as_written=True needs the released data of each agent, and sharing= "
                "releases only sums."
            )
        check_sharing(self.sharing, self.max_colluders)
        if self.sums == "moments" and self.sharing is None:
            raise ModelError(
                "dp.OneShot(sums='moments') needs secure aggregation. Write "
                "sharing=dp.SecretSharing(limit=...) next to it, or leave out sums=. With "
                "release='once' every agent's moments are released separately."
            )

    @property
    def exchanges(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Number of message exchanges in the round: 3 with secret shares, else 2."""
        return 2 if self.sharing is None else 3

    @property
    def requirements(self) -> Requirements:
        """Return the method's requirements: one release per agent, one problem for the server."""
        alone = self.sharing is None
        queries = (Gradient, DataCurvature, ReleasedData) if alone else (Summand, DataCurvature)
        return Requirements(
            convex=self.rules == "dcp",
            exact="joint",
            releases=1,
            queries=(MomentsTerm,) if self.sums == "moments" else queries,
            coupled=None,
            limits=alone,
            as_written=bool(self.as_written),
            rules=self.rules,
            secret=secrecy(self.sharing, self.max_colluders),
        )

    @property
    def rules(self) -> Rules:
        """cvxpy's rules that the model must follow: DCP, DGP or DQCP."""
        return "dgp" if self.gp else "dqcp" if self.qcp else "dcp"

    @property
    def choice(self) -> SolverChoice:
        """Solver and its options for solving the model as the user wrote it."""
        return SolverChoice(self.solver, tuple(self.solver_options))  # pyright: ignore[reportArgumentType]

    def propose(self, facts: PublicFacts) -> OneShot:
        """Return the method with limit and resolution of secure aggregation, if omitted.

        Refuse `sums` of second moments if agents' objectives differ, and a solver that cannot solve
        the model.
        """
        if self.sums == "moments":
            moment_sum(facts.program)
        if facts.program.model is not None:
            _require_solver(facts.program.model, self.choice)
        return replace(self, sharing=proposed_sharing(self.sharing, facts))

    def coupling(self, program: Program) -> str | None:
        """Return a line for ``print(plan)`` with the number of coupling equalities, or None."""
        if program.coupling is None:
            return None
        return (
            f"{plural(program.coupling.right.size, 'row')} of equalities over all agents, all kept"
        )

    def start_server(self, program: Program) -> OneShotServer:
        """Return the server's state with the joint problem at zero data."""
        if self.sums == "slopes":
            return OneShotServer(program, joint(program), pool=Pool.of(self.sharing, program))
        moments = moment_sum(program)
        pool = Pool.of(self.sharing, program, moments.size)
        return OneShotServer(program, joint(program), pool=pool, moments=moments)

    def start_agent(self, local: Local) -> OneShotMember:
        """Return the agent's state with x at the public initial point."""
        x = local.program.start
        return OneShotMember(x, np.zeros_like(x))

    def send(
        self, server: OneShotServer, t: int, k: int
    ) -> tuple[OneShotServer, list[Question | MomentsQuestion | Delivery | Found]]:
        """Request the agents' terms at the initial point; later, send shares and the solution.

        Exchange 0 requests terms. With `sharing`, the next exchange sends secret shares. The last
        one sends each agent its components of the solution.
        """
        places = server.joint.places
        if k == 0 and server.moments is not None:
            assert server.pool is not None
            pool = server.pool.begun(t)
            asks = [MomentsQuestion(term, pool.sums) for term in server.moments.terms]
            return replace(server, pool=pool), [*asks]
        if k == 0:
            pool, start = None if server.pool is None else server.pool.begun(t), server.joint.start
            sums, size = None if pool is None else pool.sums, size_of(server.program)
            asked = [Question(start[columns], columns, size, sums) for columns in places]
            return replace(server, pool=pool), [*asked]
        if k < self.exchanges - 1:
            assert server.pool is not None
            return server, [*server.pool.deliveries]
        x = server.x
        return server, [Found(None if x is None else x[p], server.outcome) for p in places]

    def act(
        self,
        local: Local,
        state: OneShotMember,
        t: int,
        k: int,
        message: Question | MomentsQuestion | Delivery | Found,
        oracle: Oracle,
    ) -> tuple[OneShotMember, Left | LeftInShares | Shared | Partial | None]:
        """Release terms of the objective, and data in constraints; last, store the solution."""
        name = local.program.name
        if isinstance(message, Found):
            return state.after(message.x, message.outcome), None
        if local.program.as_written:
            size = local.program.form.data_size
            return state, Left(None, oracle.release(ReleasedData(size)) if size else np.zeros(0))
        if isinstance(message, Delivery):
            return replace(state, kept=None), added(message, state.kept, name)
        if isinstance(message, MomentsQuestion):
            term = oracle.release(MomentsTerm(message.term))
            share, others = divided(message.sums, name, term)
            return replace(state, kept=share), Shared(others, np.zeros(term.size))
        if message.sums is not None:
            share, slope = shared(oracle, message, name)
            H, public = curvature_of_data(local, oracle), slope.public.copy()
            public[message.place] -= local.public_gradient(message.at) + H @ message.at
            return replace(state, kept=share), LeftInShares(Shared(slope.others, public), H)
        terms = data_terms(local, message.at, oracle)
        if not local.program.limits:
            return state, Left(terms, None)
        return state, Left(terms, oracle.release(ReleasedData(local.program.form.data_size)))

    def receive(
        self, server: OneShotServer, t: int, k: int, replies: Sequence[Any]
    ) -> OneShotServer:
        """Add up the replies and solve the joint problem; with `sharing`, collect shares first."""
        if k == self.exchanges - 1:
            return server
        pool, program = server.pool, server.program
        if pool is not None:
            require_all(pool.sums.agents, replies, t)
            if server.moments is not None:
                return self._of_moments(server, server.moments, pool, k, replies)
            if k == 0:
                passed = pool.taken([reply.slope for reply in replies])
                bent = tuple(reply.curvature for reply in replies)
                return replace(server, pool=passed, curvatures=bent)
            return self._solved(
                server, pool.total(replies), server.curvatures, [None] * len(replies)
            )
        if program.model is not None:
            return self._as_written(server, [reply.data for reply in replies])
        slope = np.zeros(size_of(program))
        for columns, reply in zip(server.joint.places, replies, strict=True):
            slope[columns] += reply.terms.slope
        bent = tuple(reply.terms.curvature for reply in replies)
        server, slope = self._toward_start(server, slope)
        return self._solved(server, slope, bent, [reply.data for reply in replies])

    def _as_written(self, server: OneShotServer, released: Sequence[Array]) -> OneShotServer:
        """Return the server's state with the solution of the users' model for released data."""
        program = server.program
        decision = program.decide(released, self.scenarios, self.choice)
        server = replace(server, decision=decision, outcome=decision.outcome)
        if decision.vectors is None:
            return server
        x = np.zeros(size_of(program))
        for columns, vector in zip(server.joint.places, decision.vectors, strict=True):
            x[columns] = vector
        slack = {**decision.slack, **missed(program, decision.extra)}
        return replace(server, x=with_slacks(program, x), missed=slack)

    def decision(self, server: OneShotServer) -> Decision | None:
        """Return the solution of the model as written; None without such a solution."""
        return server.decision

    def _toward_start(self, server: OneShotServer, slope: Array) -> tuple[OneShotServer, Array]:
        """Return the server's state, and the released linear coefficient after shrinkage."""
        program = server.program
        noise = program.noise
        if noise is None or not self.shrink:
            return server, slope
        whole = slope.copy()
        for local, columns in zip(program.agents, server.joint.places, strict=True):
            whole[columns] += local.form.at_zero().gradient(noise.start[columns])
        explained = noise.explains(whole)
        part = followed(explained)
        if part < 1:
            slope = slope - (1 - part) * whole
        return replace(server, explained=explained), slope

    def _of_moments(
        self, server: OneShotServer, moments: MomentSum, pool: Pool, k: int, replies: Sequence[Any]
    ) -> OneShotServer:
        """Return the server's state: with the agents' shares (k = 0), or the solution (k = 1)."""
        if k == 0:
            return replace(server, pool=pool.taken(replies))
        program, places = server.program, server.joint.places
        coefficient, H = moments.read(pool.total(replies))
        slope = np.zeros(size_of(program))
        slope[places[moments.reader]] = coefficient
        bent = [sp.csr_array((local.n, local.n)) for local in program.agents]
        bent[moments.reader] = H
        return self._solved(server, slope, bent, [None] * len(bent))

    def _solved(
        self,
        server: OneShotServer,
        slope: Array,
        curvatures: Sequence[sp.csr_array],
        data: Sequence[Array | None],
    ) -> OneShotServer:
        public = server.joint.with_terms(slope, curvatures)
        whole = with_kept(public, server.program, data)
        answer = ConicProgram(whole).solve(np.zeros(whole.n), None, server.joint.start)
        if answer.x is None:
            return replace(server, outcome=answer.outcome)
        added = answer.extra[public.q.size - public.n :]
        return replace(
            server, x=answer.x, outcome=answer.outcome, missed=missed(server.program, added)
        )

    def constraint_slack(self, server: OneShotServer) -> Mapping[str, Array]:
        """Return the solution's slack in constraints with private data."""
        return server.missed

    @property
    def shrinks(self) -> bool:
        """Return `shrink`: whether the server moves released data towards public proxy data."""
        return self.shrink

    @property
    def weighs_noise(self) -> bool:
        """Return `shrink`: noisy solutions are moved towards the initial point."""
        return self.shrink

    def notes(self, server: OneShotServer) -> tuple[str, ...]:
        """Return notes on shrinkage, or on the data that the model was solved for."""
        model, decision = server.program.model, server.decision
        if model is not None and decision is not None:
            return (*_repaired(decision), *_public(model))
        part = followed(server.explained)
        if part == 1:
            return ()
        return (
            f"noise alone explains {server.explained:.0%} of what was released, so the answer "
            f"follows {part:.0%} of its pull away from the public start; "
            "plan(dp.OneShot(shrink=False), release='once') follows all of it",
        )

    def residuals(self, server: OneShotServer) -> Residuals:
        """Return zero residuals; if no optimum was found, the initial points' disagreement."""
        if server.x is not None:
            return Residuals(0.0, 0.0, 0.0, 0.0)
        places, common = server.joint.places, server.joint.start
        pairs = zip(server.program.agents, places, strict=True)
        apart = np.concatenate([common[columns] - local.start for local, columns in pairs])
        return Residuals(float(np.linalg.norm(apart)), math.nan, float(np.abs(apart).max()), 0.0)

    def __repr__(self) -> str:
        # Seeded noise depends on this text, so options at their defaults are left out.
        what = "" if self.sums == "slopes" else f", sums={self.sums!r}"
        what += "" if self.shrink else ", shrink=False"
        if self.as_written:
            what += f", as_written=True, scenarios={self.scenarios}"
            what += "" if self.solver is None else f", solver={self.solver!r}"
            what += f", solver_options={dict(self.solver_options)!r}" if self.solver_options else ""
            what += ", gp=True" if self.gp else ", qcp=True" if self.qcp else ""
        return f"OneShot(sharing={self.sharing!r}, max_colluders={self.max_colluders!r}{what})"

    def __str__(self) -> str:
        if self.as_written:
            kind = "a geometric program" if self.gp else "a quasiconvex program" if self.qcp else ""
            as_kind = f", {kind}," if kind else ""
            return f"the server solves the model as written{as_kind} with released data"
        what = "second moments" if self.sums == "moments" else "slopes"
        how = "" if self.sharing is None else f", for a sum of {what} by secret sharing"
        return f"the server solves the whole problem once{how}"


def _options(given: object) -> tuple[tuple[str, bool | int | float | str], ...]:
    """Return a solver's options as pairs (name, value), sorted by name."""
    check_argument("dp.OneShot", "solver_options", given, _OPTIONS)
    items = pairs(given)
    return tuple(sorted(given if items is None else items))  # type: ignore[arg-type]


def _are_options(given: object) -> bool:
    items = pairs(given)
    if items is None and not (
        isinstance(given, tuple)
        and all(isinstance(item, tuple) and len(item) == 2 for item in given)
    ):
        return False
    chosen = given if items is None else items
    return all(
        isinstance(name, str) and name not in _TAKEN and isinstance(value, (bool, int, float, str))
        for name, value in chosen  # type: ignore[union-attr]
    )


# Arguments of ``cp.Problem.solve`` that are no solver options.
_TAKEN = {"solver", "gp", "qcp", "warm_start", "enforce_dpp", "ignore_dpp", "requires_grad"}
_OPTIONS = Kind(
    _are_options,
    "a dict of the solver's options, each a number or a text, such as {'max_iter': 500}",
)


def _require_solver(model: WrittenModel, choice: SolverChoice) -> None:
    """Refuse a solver that is not installed, or that does not take the model or the options."""
    error = model.rehearsed(choice)
    if error:
        raise ModelError(
            f"cvxpy does not solve the model for made-up data: {error} It has the solvers "
            f"{', '.join(cp.installed_solvers())}. Install or name another one, as in "
            'dp.OneShot(solver="SCIP"). Nothing was released.'
        )


def _repaired(decision: Decision) -> tuple[str, ...]:
    """Return a note if the model was solved for other data than the released data."""
    if not decision.repair:
        return ()
    return (
        "the constraints admit no point for the released data, so the model was solved for "
        f"{decision.repair}",
    )


def _public(model: WrittenModel) -> tuple[str, ...]:
    """Return a note on the use of the released data, and on data released as sums or moments."""
    if not any(model.published):
        return ()
    told = "result.released has the released data; every further use of them costs no privacy"
    for kind, what in _IN_PART.items():
        parts = [p for p in model.published if p is not None and p.kind == kind]
        names = [f"'{spec.name}'" for part in parts for spec in part.private]
        if names:
            told += (
                f". Of {together(names)} only {what} were released: single entries are made up to "
                "have these"
            )
    return (told,)


# Texts for statistics that do not determine the data, by kind.
_IN_PART = {
    "sums": "the weighted sums that the model reads",
    "second moments": "second moments",
}
