"""The problem as plain arrays, the public input of plans and workers.

Nothing here is private. The objects that agents receive contain no cvxpy objects, so they can be
printed, pickled and sent.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, Protocol, TypeVar

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ..errors import ModelError, PrivacyError, UnsolvableError
from ..guard import understood
from ..model.agent import Agent, Model, not_dcp, require_real
from ..model.canonical import ConeData, Structures, cone_data, public_copy
from ..model.collapse import normal_form, parts_of
from ..model.constraints import CornerConstraint, Coupling, corner_constraint, coupling_of
from ..model.declaration import Declaration
from ..model.layout import Layout, gather
from ..model.normal_form import LARGEST, NormalForm
from ..model.private_constraints import PrivateConstraint, Tightened, private_constraint
from ..model.quadratic import quadratic
from ..sensitivity.certificate import Asserted, Sensitivity
from ..sensitivity.derivation import derive
from ..solvers.blocks import Blocks, blocks_of, empty_set, separable
from ..solvers.conic import Outcome
from ..solvers.newton import PLAIN
from ..solvers.projector import Projector
from .weighted_sums import SlopeNoise, reads_moments, weighted_sums
from .written_model import (
    Decision,
    Rules,
    SolverChoice,
    Tight,
    WrittenAgent,
    WrittenModel,
    integral,
    relaxed,
    written_model,
)

Array = NDArray[np.float64]
Index = NDArray[np.intp]
T = TypeVar("T")

# Largest number of nonzeros in a cone program of public terms that every step may solve, which
# takes tenths of a second.
_SOLVED = 50_000


@dataclass(frozen=True, eq=False)
class LocalProgram:
    """One agent's objective and constraints, as plain arrays.

    Attributes
    ----------
    name : str
    layout : Layout
        Positions of the agent's variables in its vector x, of length n.
    form : NormalForm
        Objective of the agent, without the terms in `rest`.
    rest : ConeData or None
        W together with the terms of the objective that proximal steps minimize: public convex terms
        without a gradient, or without a Lipschitz continuous one.
    constraints : ConeData
        W, the set that the agent's public constraints define.
    coupling : csr_array or None, shape (m, n)
        Matrix A_i of the coupling constraint ``sum_i A_i x_i = c``; None without a coupling.
    exact : ConeData or None
        W together with the objective at zero data, for methods that minimize the objective exactly.
    shared : ndarray of int
        Positions in x of the components that several agents share.
    slots : ndarray of int
        Positions of these components in the shared vector w.
    start : ndarray, shape (n,)
        Initial point, in W.
    clip : float or None
        Norm to which each record's contribution to the gradient is clipped.
    asserted : Asserted or None
        User-supplied sensitivity, used without proof in place of a derived one.
    set_description : str
        Text on the kinds of blocks that W consists of, with their numbers of components.
    limits : tuple of PrivateConstraint
        Constraints with private data, which W does not contain.
    kernel : str
        Code that computes projections onto W by Newton's method, "numpy" or "numba" (see
        `dpcvx.solvers.newton`); "" if projections need none. It does not affect any other choice of
        a plan.
    """

    name: str
    layout: Layout
    form: NormalForm
    rest: ConeData | None
    constraints: ConeData
    coupling: sp.csr_array | None
    exact: ConeData | None
    shared: Index
    slots: Index
    start: Array
    clip: float | None
    asserted: Asserted | None
    set_description: str
    limits: tuple[PrivateConstraint | CornerConstraint, ...] = ()
    kernel: str = ""
    as_written: bool = False  # whether the server solves the user's model, with released data
    # Then: weights of the sums through which alone the model depends on the data, a row per sum;
    # None if there are not fewer sums than data.
    sums: sp.csr_array | None = None

    @property
    def hands_over(self) -> bool:
        """Return whether all data are released with noise, even if no gradient depends on them."""
        return bool(self.limits) or self.as_written

    @property
    def kind(self) -> Hashable:
        """Key that is equal for agents that differ only in names, shared positions and data.

        It contains Python ids, so it is valid only while the agents exist.
        """
        parts = (self.form, self.constraints, self.rest, self.exact, self.start, self.shared)
        same = (self.form.derived, *parts[1:], self.coupling, *self.limits)
        sums = () if self.sums is None else (self.sums.indices.tobytes(), self.sums.data.tobytes())
        return (*map(id, same), *sums, self.clip, self.asserted, self.kernel)

    @cached_property
    def blocks(self) -> Blocks:
        """Independent blocks of the agent's feasible set W, computed once."""
        return blocks_of(self.constraints, self.name)

    def projector(self) -> Projector:
        """Return a new projector onto the feasible set W; it keeps the state of its last call."""
        return Projector(self.constraints, self.name, blocks=self.blocks)

    def proximal(self) -> Projector:
        """Return a new projector onto the set W that also minimizes the terms in `rest`."""
        return Projector(self.constraints, self.name, self.rest, blocks=self.blocks)

    def stepping_with(self, kernel: str) -> LocalProgram:
        """Return the agent with this kernel for projections; unchanged if it needs no kernel."""
        if self.kernel in ("", kernel):
            return self
        return _with_blocks(replace(self, kernel=kernel), self.blocks)

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def sensitivity(self) -> Sensitivity:
        """Return the sensitivity of the gradient to the data, derived or asserted.

        Raises
        ------
        PrivacyError
            If no sensitivity can be derived.
        """
        return derive(
            self.form,
            self.name,
            lambda: self.projector().extent(),
            clip=self.clip,
            asserted=self.asserted,
        )

    @property
    def n(self) -> int:
        """Length of the agent's vector x of variables."""
        return self.layout.size

    @property
    def decides(self) -> bool:
        """Return whether recourse can change the agent's local variables.

        It cannot if its shared variables and its share of the coupling determine them.
        """
        if self.shared.size == self.n:
            return False
        unshared = np.ones(self.n, dtype=bool)
        unshared[self.shared] = False
        free = np.flatnonzero(unshared)
        if self.coupling is None or not free.size:
            return free.size > 0
        tied = sp.csr_array(sp.csc_array(self.coupling)[:, free])
        tied = tied[np.flatnonzero(np.diff(tied.indptr))]
        return tied.shape[0] < free.size or bool(np.linalg.matrix_rank(tied.toarray()) < free.size)


@dataclass(frozen=True, eq=False)
class Corner:
    """A constraint of one agent that holds at the unsafe corner of a box around the data."""

    agent: int  # position of the agent
    constraint: CornerConstraint


@dataclass(frozen=True, eq=False)
class Program:
    """The whole problem as plain arrays: all agents, their shared variables, and the coupling.

    Attributes
    ----------
    agents : tuple of LocalProgram
    size : int
        Length m of the vector w of all shared variables.
    holders : ndarray, shape (m,)
        Number of agents that hold each component of w.
    coupling : Coupling or None
        Public affine equations between variables of several agents.
    kept : tuple of Tightened
        Constraints with private data. A plan chooses their margins, and they have none before.
    written : tuple of (bytes or None)
        Digest of each agent's objective and constraints as the user wrote them, independent of
        names; None if they contain objects of unknown classes.
    noise : SlopeNoise or None
        Noise in the linear coefficient of the total objective for released data; None if other
        coefficients have noise too.
    """

    agents: tuple[LocalProgram, ...]
    size: int
    holders: Array
    coupling: Coupling | None
    kept: tuple[Tightened, ...] = ()
    written: tuple[bytes | None, ...] = ()
    noise: SlopeNoise | None = None
    model: WrittenModel | None = None  # the user's model, if the server solves it as written
    corners: tuple[Corner, ...] = ()  # constraints of this model that hold at unsafe corners
    # By position of an agent with such constraints: largest noise in each entry of its data.
    reaches: Mapping[int, Array] = field(default_factory=dict)

    @property
    def guarded(self) -> bool:
        """Return whether constraints with private data have margins for the true data."""
        return bool(self.kept or self.corners)

    @property
    def limited(self) -> bool:
        """Return whether constraints contain private data, so the true data may violate them."""
        return self.guarded or (self.model is not None and self.model.limited)

    def decide(self, released: Sequence[Array], scenarios: int, solver: SolverChoice) -> Decision:
        """Return the solution of the user's model for the data that agents have released.

        Parameters
        ----------
        released : sequence of ndarray
            Released data of each agent, one object after the other, or weighted sums of the data.
        scenarios : int
            Number of simulated data sets, consistent with the release, to average the cost over.
        solver : SolverChoice
        """
        model = self.model
        assert model is not None
        margins = [
            Tight(limit.agent, limit.columns, limit.at(released[limit.agent]))
            for limit in self.kept
        ]
        drawn = model.scenarios(released, scenarios)
        boxes = {k: model.agents[k].box(released[k], self.reaches.get(k)) for k in self._cornered}
        decision = model.decide(model.restored(released), margins, drawn, solver, boxes)
        return replace(decision, scenarios=scenarios, solver=solver)

    @property
    def _cornered(self) -> list[int]:
        """Positions of the agents whose constraints hold at corners."""
        return sorted({corner.agent for corner in self.corners})

    @property
    def kernel(self) -> str:
        """Name of the kernel for projections by Newton's method; "" if no agent needs one."""
        return next((local.kernel for local in self.agents if local.kernel), "")


@dataclass(frozen=True)
class AsWritten:
    """Options for a server that solves the user's model as written."""

    margins: bool  # whether constraints with private data are tightened by margins
    penalty: float | None  # if not: cost per unit of their slack; None allows no slack
    rules: Rules = "dcp"  # cvxpy's rules that the problem must follow


def compile_problem(
    problem: Declaration,
    *,
    proximal: bool = True,
    as_written: AsWritten | None = None,
    check: Callable[[LocalProgram], object] | None = None,
) -> Program:
    """Return the problem as plain arrays, from public parameters and never from private data.

    Agents whose models differ only in names are compiled once. Objectives are not compiled into
    cone programs here, except for agents without private data in a problem with ``coupling=``; see
    `with_objectives`.

    Parameters
    ----------
    problem : Declaration
    proximal : bool
        Whether steps minimize convex public terms without a Lipschitz gradient; see `parts_of`.
    as_written : AsWritten, optional
        Options for a server that solves the user's model as written, without any gradient.
    check : callable, optional
        Function that is called with each compiled agent before the next one is compiled. It may
        raise an error.

    Raises
    ------
    ModelError
        If a set is empty, an atom has no gradient, or a public parameter has no value.
    """
    holders = problem.holders()
    slot: dict[int, Index] = {}
    size = 0
    for key, count in holders.items():
        shared = count > 1
        slot[key] = np.where(shared, size + np.cumsum(shared) - 1, -1)
        size += int(shared.sum())
    coupling = coupling_of(problem.equalities, problem.slacks)
    starts = {v.id: np.asarray(x) for v, x in problem.start.items()}
    models = [Model(*pair, slot, starts) for pair in problem.named.items()]
    if as_written is not None:
        _require_kept(problem, as_written)
    templates: dict[Hashable, LocalProgram] = {}
    sets: dict[Hashable, tuple[ConeData, Blocks]] = {}
    agents: list[LocalProgram] = []
    for model in models:
        key = model.key
        if key is None or key not in templates:
            if as_written is None or as_written.rules == "dcp":
                _require_convex_set(model.agent.public_constraints, model.name, model.agent)
            local = understood(
                lambda model=model: compile_agent(model, coupling, proximal, as_written, sets),
                model.name,
            )
            if check is not None:
                check(local)
            if key is not None:
                templates[key] = local
        else:
            local = _like(templates[key], model, coupling)
        agents.append(local)
    corners = tuple(
        Corner(k, limit)
        for k, local in enumerate(agents)
        for limit in local.limits
        if isinstance(limit, CornerConstraint)
    )
    whole = None
    if as_written is not None:
        guarded = {corner.constraint.number for corner in corners} if as_written.margins else None
        whole = written_model(
            problem, guarded=guarded, penalty=as_written.penalty, rules=as_written.rules
        )
        whole = replace(whole, agents=tuple(map(_by_moments, whole.agents)))
        sums = [weighted_sums(agent) for agent in whole.agents]
        pairs = zip(agents, sums, strict=True)
        agents = [
            local if read_sums is None else replace(local, sums=read_sums)
            for local, read_sums in pairs
        ]
    held = np.zeros(size)
    for local in agents:
        held[local.slots] += 1
    limits = tuple(
        Tightened(limit, k, local.layout.places(limit.layout))
        for k, local in enumerate(agents)
        for limit in local.limits
        if isinstance(limit, PrivateConstraint)
    )
    written = tuple(model.written for model in models)
    return Program(
        tuple(agents), size, held, coupling, limits, written, model=whole, corners=corners
    )


def _by_moments(agent: WrittenAgent) -> WrittenAgent:
    """Return the agent with `by_moments` set: whether only records' second moments enter it."""
    trees = (agent.cost, *agent.constraints)
    return replace(agent, by_moments=reads_moments(trees, agent.data, agent.specs))


def _like(template: LocalProgram, model: Model, coupling: Coupling | None) -> LocalProgram:
    """Return an agent's program, copied from an agent that differs only in names and positions."""
    layout, where = model.agent.layout, model.where
    local = replace(
        template,
        name=model.name,
        layout=layout,
        form=template.form.renamed(model.specs),
        coupling=None if coupling is None else coupling.of(layout),
        slots=where[template.shared],
    )
    return _with_blocks(local, template.blocks)


def _with_blocks(local: LocalProgram, blocks: Blocks) -> LocalProgram:
    """Return the agent with the independent blocks of its set, found for an equal set."""
    vars(local)["blocks"] = blocks
    return local


class OfKind(Protocol):
    """Object with a comparison key `kind`, such as an agent's program."""

    @property
    def kind(self) -> Hashable:
        """Key that is equal for objects that differ only in names."""
        ...


K = TypeVar("K", bound=OfKind)


def once_per_kind(agents: Sequence[K], derive: Callable[[K], T]) -> list[T]:
    """Return ``derive(agent)`` for each agent, computed once for agents with equal `kind`.

    Parameters
    ----------
    agents : sequence of LocalProgram or AgentPlan
    derive : callable
    """
    derived: dict[Hashable, T] = {}
    kinds = [agent.kind for agent in agents]
    for kind, agent in zip(kinds, agents, strict=True):
        if kind not in derived:
            derived[kind] = derive(agent)
    return [derived[kind] for kind in kinds]


def compile_agent(
    model: Model,
    coupling: Coupling | None,
    proximal: bool = True,
    as_written: AsWritten | None = None,
    sets: dict[Hashable, tuple[ConeData, Blocks]] | None = None,
) -> LocalProgram:
    """Return the program of one agent; see `compile_problem`.

    Parameters
    ----------
    model : Model
    coupling : Coupling or None
    proximal : bool
    as_written : AsWritten or None
    sets : dict of (ConeData, Blocks), optional
        Sets of the agents compiled so far and the blocks of these sets, by `Model.set_key`. This
        agent's set is added.
    """
    name, agent = model.name, model.agent
    layout, variables = agent.layout, agent.variables
    constraints = [public_copy(c, c.parameters()) for c in agent.public_constraints]
    geometric = as_written is not None and as_written.rules == "dgp"
    if as_written is None:
        _require_real(agent, name)
    else:  # the set of the convex constraints only, which contains all feasible points
        constraints = [c for c in constraints if c.is_dcp() and not isinstance(c, cp.FiniteSet)]
    key = None if sets is None else model.set_key
    if sets is None or key is None or key not in sets:
        constraint_data = _relaxed_set(constraints, variables, layout)
        blocks = None
    else:
        constraint_data, blocks = sets[key]

    def sorted_out(proximal: bool) -> tuple[NormalForm, ConeData | None]:
        terms = agent.cost, layout, agent.private, name
        form, rest = parts_of(*terms, largest=LARGEST, proximal=proximal)
        if rest is None:
            return form, None
        term = public_copy(rest, rest.parameters())
        return form, cone_data(term, constraints, variables, layout)

    if as_written is None:
        form, rest = sorted_out(proximal)
    else:  # the method uses no gradient
        form, rest = normal_form(cp.Constant(0.0), layout, agent.private, name), None
    if proximal and rest is not None and rest.A.nnz > _SOLVED and separable(rest) is None:
        form, rest = sorted_out(False)
    exact = None if as_written is None else constraint_data
    if as_written is None and coupling is not None and not agent.private:
        exact = _objective(agent, layout, Structures())
    shared = np.flatnonzero(model.where >= 0)
    # Objectives of geometric programs have no value at zero.
    values = {v.id: model.start.get(v.id, _no_start(v, geometric)) for v in variables}
    blocks = blocks or blocks_of(constraint_data, name)
    if sets is not None and key is not None:
        sets[key] = constraint_data, blocks
    projector = Projector(constraint_data, name, rest, blocks=blocks)
    ones = np.ones(layout.size)
    start = projector(gather(layout, values), ones)
    if start.x is not None and rest is not None:
        inside = projector(start.x, ones, 1.0)
        if inside.x is None and inside.outcome is Outcome.INFEASIBLE:
            raise UnsolvableError(
                f"No point of the constraints of agent '{name}' lies in the domain of its "
                "objective, such as the positive definite matrices of cp.log_det. Relax one of "
                "them."
            )
    if start.x is None and start.outcome is Outcome.INFEASIBLE:
        raise empty_set(name)
    if start.x is None:
        raise ModelError(
            f"No solver finds a point of the constraints of agent '{name}' ({projector}), so its "
            "steps could not be computed. If they admit one, scale them so that its numbers are "
            "near 1, or write cp.PowConeND and other power cones by cp.geo_mean."
        )
    local = LocalProgram(
        name=name,
        layout=layout,
        form=form,
        rest=rest,
        constraints=constraint_data,
        coupling=None if coupling is None else coupling.of(layout),
        exact=exact,
        shared=shared,
        slots=model.where[shared],
        start=start.x,
        clip=agent.clip_norm,
        asserted=agent.sensitivity,
        set_description=str(projector),
        limits=tuple(
            _private_constraint(c, agent, k, name, as_written)
            for k, c in agent.limits
            if as_written is None or as_written.margins
        ),
        kernel=PLAIN if projector.by_newton else "",
        as_written=as_written is not None,
    )
    return _with_blocks(local, blocks)


def _no_start(variable: cp.Variable, positive: bool) -> NDArray[Any]:
    """Return the initial value of a variable without a declared one, before projection onto W."""
    kind = complex if variable.is_complex() else float
    return np.full(variable.shape, float(positive), dtype=kind)


def with_objectives(problem: Declaration, program: Program) -> Program:
    """Return the program with `exact` set for every agent: W, with the objective for zero data."""
    named, structures = problem.named, Structures()

    def exact(local: LocalProgram) -> ConeData:
        if local.exact is not None:
            return local.exact
        separable_squares = _separable_squares(local)
        if separable_squares is not None:
            return separable_squares
        return understood(
            lambda: _objective(named[local.name], local.layout, structures), local.name
        )

    programs = once_per_kind(program.agents, exact)
    agents = [
        _with_blocks(replace(local, exact=data), local.blocks)
        for local, data in zip(program.agents, programs, strict=True)
    ]
    return replace(program, agents=tuple(agents))


def _separable_squares(local: LocalProgram) -> ConeData | None:
    """Return W with the objective at zero data; None if cvxpy has to compile the objective.

    For a quadratic objective with a diagonal Hessian, the matrices P and q follow from the normal
    form. They need no auxiliary columns, which cvxpy adds for the arguments of squares.
    """
    terms = quadratic(local.form)
    if local.rest is not None or terms.wide or terms.rest:
        return None
    H, data = sp.coo_array(terms.formed), local.constraints
    if (H.row != H.col).any() or H.data.min(initial=0.0) < 0:
        return None
    size = data.A.shape[1]
    P = sp.csc_array((H.data, (H.row, H.col)), shape=(size, size))
    q = np.zeros(size)
    q[: data.n] = local.form.at_zero().gradient(np.zeros(data.n))
    if not (np.isfinite(P.data).all() and np.isfinite(q).all()):
        return None
    return replace(data, P=P, q=q)


def _require_kept(problem: Declaration, as_written: AsWritten) -> None:
    """Refuse margins or slack penalties of private constraints that the rules do not allow."""
    rules, private = as_written.rules, any(agent.limits for agent in problem.agents)
    if rules == "dcp" or not private:
        return
    if as_written.penalty is not None:
        raise ModelError(
            "slack_penalty= cannot be used with a geometric or quasiconvex program. Leave it "
            "out, and write a slack variable in the model, with its penalty. dpcvx would add the "
            "penalty to the objective, and the sum is no geometric or quasiconvex program."
        )


def _require_real(agent: Agent, name: str) -> None:
    """Refuse complex numbers, integral variables and finite sets in an agent's model."""
    for tree in (agent.objective, *agent.constraints):
        require_real(tree, f"agent '{name}'")
    for variable in agent.variables:
        if integral(variable):
            raise ModelError(
                f"Variable '{variable.name()}' of agent '{name}' is boolean or integer. Use "
                "dp.OneShot(), which solves the model as it is written for released data. Or "
                "relax the variable, for example to bounds=[0, 1]. Local steps solve convex "
                "problems only."
            )
    for position, constraint in enumerate(agent.constraints):
        if isinstance(constraint, cp.FiniteSet):
            raise ModelError(
                f"Constraint {position} of agent '{name}' is a cp.FiniteSet, which is not convex. "
                "Use dp.OneShot(), which solves the model as it is written for released data. Or "
                "write its convex hull, such as [x >= 0, x <= 2], and round the solution. Local "
                "steps solve convex problems only."
            )


def _relaxed_set(
    constraints: Sequence[cp.Constraint], variables: Sequence[cp.Variable], layout: Layout
) -> ConeData:
    """Return the set of public constraints, with integrality relaxed."""
    twins = _relaxed(variables)
    if not twins:
        return cone_data(None, constraints, variables, layout)
    real = [twins.get(id(v), v) for v in variables]
    pieces = zip(layout.pieces, real, strict=True)
    moved = Layout(tuple(replace(piece, variable=v.id) for piece, v in pieces))
    return cone_data(None, [c.tree_copy(dict(twins)) for c in constraints], real, moved)


def _private_constraint(
    constraint: cp.Constraint, agent: Agent, position: int, name: str, as_written: AsWritten | None
) -> PrivateConstraint | CornerConstraint:
    """Return a constraint with private data in compiled form, or what its unsafe corner needs.

    Constraints of geometric programs have corners only. So do constraints of a model that is solved
    as it is written, if no margins of cone programs are known for them.
    """
    what = f"Constraint {position} of agent '{name}'"
    if as_written is None:
        return _with_margins(constraint, agent, what, name)
    if as_written.rules != "dgp":
        try:
            return _with_margins(constraint, agent, what, name)
        except PrivacyError:
            corner = corner_constraint(constraint, agent.specs(name), position, name)
            if corner is None:
                raise
            return corner
    corner = corner_constraint(constraint, agent.specs(name), position, name)
    if corner is None:
        raise PrivacyError(
            f"{what} of a geometric program has private data in an atom that cvxpy does not know "
            "to rise or fall with them. Write it by sums, products, quotients and powers, such as "
            "posynomial <= monomial. Or write constraints='released', which keeps it for the "
            "released data."
        )
    return corner


def _with_margins(
    constraint: cp.Constraint, agent: Agent, what: str, name: str
) -> PrivateConstraint:
    """Return a constraint with private data in compiled form, with integrality relaxed."""
    twins = _relaxed(constraint.variables())
    if not twins:
        return private_constraint(constraint, agent.private, what, name)
    numbers = {twins[id(v)].id: v.id for v in constraint.variables() if id(v) in twins}
    real = private_constraint(constraint.tree_copy(dict(twins)), agent.private, what, name)
    pieces = [replace(p, variable=numbers.get(p.variable, p.variable)) for p in real.layout.pieces]
    return replace(real, layout=Layout(tuple(pieces)))


def _relaxed(variables: Sequence[cp.Variable]) -> dict[int, cp.Variable]:
    """Return a relaxed copy of each integral variable, by the Python id of the original."""
    return {id(v): relaxed(v) for v in variables if integral(v)}


def _objective(agent: Agent, layout: Layout, structures: Structures) -> ConeData:
    """Return W together with the agent's objective at zero data, compiled by cvxpy."""
    constraints = [public_copy(c, c.parameters()) for c in agent.public_constraints]
    cost = public_copy(agent.cost, agent.cost.parameters())
    return structures.cone_data(cost, constraints, agent.variables, layout)


def require_convex(problem: Declaration, method: str, proved: Collection[str] = ()) -> None:
    """Refuse a problem that breaks cvxpy's convexity rules.

    Parameters
    ----------
    problem : Declaration
    method : str
        Name of the method that needs a convex problem, for messages.
    proved : collection of str
        Names of agents whose objectives are proved convex by other means.

    Raises
    ------
    ModelError
        If an objective or a constraint breaks the rules; the error names it and the agent.
    """
    for name, agent in problem.named.items():
        if name not in proved and not understood(agent.posed.is_dcp, name):
            raise ModelError(
                f"The objective of agent '{name}' does not follow cvxpy's convexity rules (DCP): "
                f"{not_dcp(agent)}. {method[:1].upper()}{method[1:]} needs a convex one. If it is "
                "convex, rewrite it with cvxpy's atoms (cp.sum_squares, cp.quad_form, ...); a "
                "private factor of known sign needs dp.Private(..., nonneg=True). If it is not, "
                "name a method for such objectives, such as dp.FederatedAveraging()."
            )
        _require_convex_set(agent.constraints, name, agent)


def _require_convex_set(constraints: Sequence[Any], name: str, agent: Agent) -> None:
    """Refuse an agent's constraints that break cvxpy's convexity rules."""
    for constraint in constraints:
        if not understood(constraint.is_dcp, name):
            position = next(k for k, other in enumerate(agent.constraints) if other is constraint)
            raise ModelError(
                f"Constraint {position} of agent '{name}' does not follow cvxpy's convexity "
                "rules (DCP), so there is no projection onto it. Rewrite it as convex <= "
                "concave, or as an affine equality."
            )
