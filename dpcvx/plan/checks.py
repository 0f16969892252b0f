"""Checks of a plan: contradictory arguments, and models without a privacy proof.

Each check takes earlier decisions of the plan, and returns nothing. It raises an error with the
name of the agent and a fix. No check reads private data.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._arguments import Kind, check_argument, choice, count, one_of, optional, show
from .._words import plural
from ..algorithms.base import Algorithm, Requirements
from ..algorithms.contract import require_requirements
from ..algorithms.federated_gradient import FederatedGradient
from ..algorithms.learned_scale import LearnScale
from ..algorithms.program import Program
from ..errors import ModelError, PrivacyError
from ..model.declaration import Declaration
from ..model.prior import Expectations
from ..model.quadratic import curved, is_quadratic_given_data
from ..sensitivity.certificate import Sensitivity
from ..sensitivity.queries.data import DataCurvature, MomentsTerm
from ..sensitivity.rehearsal import rehearse
from ..sensitivity.release_once import releasable
from .agent_plan import AgentPlan
from .request import Mechanisms, Noises, Request

Array = NDArray[np.float64]
_SCALE = optional(
    Kind(
        lambda value: isinstance(value, LearnScale) or one_of(value, "declared"),
        "dp.LearnScale() or 'declared', which goes by declared bounds",
    )
)
# Largest number of releases with different noise, whose losses are computed one by one.
_LISTED = 1_000_000


def check_request(request: Request) -> None:
    """Refuse arguments of wrong types or values; None means the default."""
    algorithm: object = request.algorithm
    rounds, release = request.rounds, request.release
    check_argument("", "rounds", rounds, optional(count()))
    if isinstance(algorithm, type) and issubclass(algorithm, Algorithm):
        name = algorithm.__name__
        raise ModelError(
            f"problem.plan(...) takes an algorithm object first, and {name} is a class. Call it: "
            f"{name}(), with its arguments if it needs any."
        )
    if algorithm is not None and not isinstance(algorithm, Algorithm):
        raise ModelError(
            f"problem.plan(...) takes an algorithm object first, got {type(algorithm).__name__}. "
            "Write for example problem.plan(dp.LinearizedADMM(), epsilon=1.0, delta=1e-6)."
        )
    if algorithm is not None:
        require_requirements(algorithm)
    fixed = None if algorithm is None else algorithm.fixed_rounds
    if rounds is not None and fixed is not None and rounds != fixed:
        raise ModelError(
            f"{type(algorithm).__name__} always runs {plural(fixed, 'round')}, so rounds={rounds} "
            "would change nothing. Leave out rounds=, or name a method with several rounds, such "
            "as dp.ADMM()."
        )
    check_argument("", "scale", request.scale, _SCALE)
    steps = isinstance(algorithm, (FederatedGradient, type(None)))
    if isinstance(request.scale, LearnScale) and not steps:
        raise ModelError(
            f"scale= applies to steps along sums of gradients, and {type(algorithm).__name__} "
            "takes other steps. Leave scale= out, or write algorithm=dp.FederatedGradient()."
        )
    check_argument(
        "",
        "release",
        release,
        optional(choice("each_step", "once")).because(
            "noise in every local step, or the data once, with noise, and any number of rounds on "
            "that"
        ),
    )


def check_once(release: str, needs: Requirements) -> None:
    """Refuse a method with queries that cannot be used if data are released once."""
    idle = next((query.once for query in needs.queries if query.once), "")
    if release == "once" and idle:
        raise ModelError(idle)


def check_expected(expected: Expectations, noisy: bool, once: bool) -> None:
    """Refuse priors if the plan has no noise, or adds noise in each step."""
    if not expected or once:
        return
    if not noisy:
        raise ModelError(
            "prior= has no effect on a plan without noise. Leave out prior=, or plan with "
            "epsilon= and delta=. Priors serve to estimate data from noisy releases."
        )
    raise ModelError(
        "prior= applies to data that are released once, but this plan adds noise in each step. "
        "Write release='once', which takes gradients that are affine in the data, or leave out "
        "prior=."
    )


def check_budget(problem: Declaration, request: Request) -> None:
    """Refuse a budget without private data, and a total epsilon without a delta."""
    epsilon, delta, mechanism = request.epsilon, request.delta, request.mechanism
    if not any(agent.private or agent.kept for agent in problem.agents):
        pairs = (("epsilon=", epsilon), ("delta=", delta))
        given = [name for name, value in pairs if value is not None]
        if _adds_noise(mechanism) and not request.chooses_noise:
            given.insert(0, "mechanism=")
        if given:
            raise PrivacyError(
                f"No agent has private data, so {' and '.join(given)} would protect nothing: the "
                "run would be exact. Declare the data to protect, such as load = dp.Private(load, "
                "adjacency=dp.Within(0.1)), and build the objectives from it. If all data are "
                "public, write problem.plan(mechanism=None), without a budget."
            )
    elif epsilon is not None and delta is None and _adds_noise(mechanism):
        budget = f"epsilon={_number(epsilon)}"
        raise PrivacyError(
            f"The plan has {budget} without delta=, and a total budget needs both. Write "
            f"problem.plan(..., {budget}, delta=0) for pure differential privacy. Or write "
            f"problem.plan(..., {budget}, delta=1e-6), which usually needs less noise: a delta "
            "above 0 is the probability with which the guarantee may fail."
        )


def _adds_noise(mechanism: Mechanisms) -> bool:
    """Return whether a request names noise for any agent, or lets the plan choose."""
    kinds = mechanism.values() if isinstance(mechanism, Mapping) else (mechanism,)
    return any(kind is not None for kind in kinds)


def _number(value: object) -> str:
    """Return a number as code; for a mapping, return ``{...}``."""
    return "{...}" if isinstance(value, Mapping) else show(value)


def check_switched_off(problem: Declaration, request: Request, noisy: bool) -> None:
    """Refuse a budget together with mechanism=None, which switches noise off."""
    private = any(agent.private for agent in problem.agents)
    budget = request.epsilon is not None or request.delta is not None
    if private and not noisy and budget:
        raise PrivacyError(
            "mechanism=None switches the noise off, so epsilon= and delta= have no effect. Leave "
            "them out, or name a mechanism, such as mechanism=dp.Gaussian()."
        )


def check_groups(problem: Declaration, asked: Noises) -> None:
    """Refuse different noise for one group's agents: no bound of their joint loss is proved."""
    private = {name for name, agent in problem.named.items() if agent.private}
    for group in problem.group_names:
        if len({asked[name] for name in group if name in private}) > 1:
            members = " and ".join(f"'{name}'" for name in group)
            raise PrivacyError(
                f"Agents {members} form a group, but their mechanisms or budgets differ. Give "
                "them the same mechanism= and epsilon=, or drop groups=. A group's joint privacy "
                "loss is known only if its agents have the same noise."
            )


def check_group_noise(problem: Declaration, multipliers: Mapping[str, float | None]) -> None:
    """Refuse different noise multipliers in one group: no bound of its joint loss is proved."""
    for group in problem.group_names:
        if len({multipliers[name] for name in group} - {None}) > 1:
            members = " and ".join(f"'{name}'" for name in group)
            raise PrivacyError(
                f"Agents {members} form a group, but their noise has different multipliers. Give "
                "them one noise multiplier. Only then is the group's joint privacy loss known."
            )


def check_coupling(problem: Declaration, algorithm: Algorithm[Any, Any]) -> None:
    """Refuse a coupling that the method does not support, or a missing one that it needs."""
    name, coupled = algorithm.called, algorithm.requirements.coupled
    if problem.conic and not algorithm.requirements.as_written:
        position = problem.conic[0][0]
        raise ModelError(
            f"Element {position} of coupling= is not affine, and {name} supports affine "
            "equalities and inequalities only. Write dp.OneShot(as_written=True), which solves "
            "the model as it is written, or give the constraint to one agent: "
            "dp.Agent(objective, [constraint])."
        )
    if problem.coupling and coupled is False:
        raise ModelError(
            f"{name} lets agents agree on shared variables, and takes no coupling= constraints. "
            f"Methods that take this coupling: {_coupled_methods(problem)}. Or drop coupling= "
            "and write one variable in all agents that it concerns."
        )
    if coupled and not problem.coupling:
        raise ModelError(
            f"{name} needs the equalities that tie its agents. Write dp.Problem(agents, "
            "coupling=[A @ x + B @ y == c])."
        )


def _coupled_methods(problem: Declaration) -> str:
    """Return a text on the methods that support a problem's coupling."""
    shared = any((count > 1).any() for count in problem.holders().values())
    public = sum(not agent.private for agent in problem.agents)
    methods = ["dp.OneShot(), if data enter by linear terms or are released once"]
    if public == 1 and (shared or len(problem.agents) == 2):
        methods.append(
            "dp.GradientADMM(), which takes f(x) + g(y) with A x + B y = c, g without private data"
        )
    if shared:
        methods.append(
            "dp.ResourceADMM() after giving each agent variables of its own, with copies tied by "
            "coupling=[x == y]"
        )
    else:
        methods.append("dp.ResourceADMM(), which ties agents that have variables of their own")
    return "; ".join(methods)


def check_terms(program: Program, algorithm: Algorithm[Any, Any]) -> None:
    """Refuse nonsmooth terms in objectives that the method's gradient steps would ignore."""
    needs, name = algorithm.requirements, algorithm.called
    held = next((local.name for local in program.agents if local.rest is not None), None)
    if held is not None and not (needs.exact or needs.proximal):
        raise ModelError(
            f"The objective of agent '{held}' has a term without a gradient in dpcvx, such as "
            f"cp.log_det or cp.normNuc, and {name}, with these options, uses gradients only. Use "
            "dp.LinearizedADMM() or dp.ADMM(), whose steps minimize them."
        )


def check_affine(
    agents: Sequence[AgentPlan], algorithm: Algorithm[Any, Any], noisy: bool, once: bool
) -> None:
    """Refuse exact minimization if private data enter the curvature, unless the method supports it.

    A method that queries the curvature uses data, or second moments of records, that are released
    once; without noise, it also uses quadratics.
    """
    method = algorithm.called
    if MomentsTerm in algorithm.requirements.queries:
        return  # sums of moments are for data in the curvature, and have checks of their own
    bends = DataCurvature in algorithm.requirements.queries
    for agent in agents:
        sensitivity, form = agent.sensitivity, agent.program.form
        if sensitivity is None or sensitivity.constant:
            continue
        # Private data then add a linear term, which a single gradient determines.
        if sensitivity.asserted is None and not once and not curved(form):
            continue
        if bends and not noisy and not sensitivity.clips and is_quadratic_given_data(form):
            continue
        squares = bends and releasable(sensitivity) and is_quadratic_given_data(form)
        if once and squares:
            continue
        raise PrivacyError(
            f"The exact steps of {method} need a gradient J d + h(x) that is affine in the "
            f"private data d, with a constant J. The gradient of agent '{agent.name}' is not "
            f"affine: {sensitivity.obstacle}. {_for_other_losses(algorithm, agent, squares)}"
        )


def _for_other_losses(algorithm: Algorithm[Any, Any], agent: AgentPlan, squares: bool) -> str:
    """Return the fix if exact steps are refused, as text for the error.

    `squares` tells whether second moments of the records could be released once.
    """
    if algorithm.requirements.secret is not None:
        if squares:
            return "Second moments of its records can be summed: write sums='moments' as well."
        if agent.program.coupling is None:
            return "Use dp.FederatedGradient(sharing=...), which needs gradients only."
    if squares:
        return (
            "Its data, or second moments of its records, can be released once: write "
            "release='once'."
        )
    return (
        "Use a method that needs gradients only: dp.LinearizedADMM, or dp.GradientADMM or "
        "dp.ResourceADMM with coupling=."
    )


def check_decay(asked: Noises, algorithm: Algorithm[Any, Any]) -> None:
    """Refuse noise with ``decay=`` if only one agent computes per round."""
    fading = any(noise is not None and noise.mechanism.decay < 1 for noise in asked.values())
    if fading and algorithm.requirements.in_turn:
        raise ModelError(
            f"{algorithm.called} has one user per round and cannot use noise with decay=. Drop "
            "decay=. Early users would lose less privacy than late ones, and dpcvx has no "
            "accounting for that."
        )


def check_long(rounds: int, weights: int) -> None:
    """Refuse too many releases whose noise differs; `weights` has one factor per release."""
    if rounds * weights > _LISTED:
        raise PrivacyError(
            f"rounds={rounds} is too many for noise that differs from release to release, as with "
            "decay= or with several values a round. Plan fewer rounds, or constant noise. dpcvx "
            f"accounts for each such release by itself, and for {_LISTED} releases at most."
        )


def check_queries(agents: Sequence[AgentPlan]) -> None:
    """Refuse queries to agents that have no sensitivity bound for the answer."""
    for agent in agents:
        for query in agent.queries if agent.sensitivity is not None else ():
            query.check(agent)


def check_start(agent: AgentPlan, once: bool) -> None:
    """Refuse an initial point without a gradient, and infinite or invalid sensitivities."""
    local, derived = agent.program, agent.sensitivity
    public = local.form.at_zero()
    if not np.isfinite(public.gradient(local.start)).all():
        raise ModelError(
            f"The objective of agent '{agent.name}' has no finite gradient at the starting point, "
            "the point of its set closest to 0. Start inside its domain, for example with "
            "dp.Problem(agents, start={x: 1.0})."
        )
    if agent.noise is None or derived is None:
        return
    p = agent.noise.mechanism.norm
    level = derived.bound(p).value
    if level == math.inf and not once:
        level = derived.bound(p, None, local.start).value
        if level == math.inf:
            raise PrivacyError(
                f"No sensitivity can be derived for agent '{agent.name}': {derived.obstacle}, and "
                "one change can move the gradient arbitrarily far, even at the starting point. "
                f"{_why_unbounded(derived)} Or write dp.Agent(..., clip_norm=1.0)."
            )
    rehearse(local.form, public, derived, p, level, local.start, agent.name)


def _why_unbounded(derived: Sensitivity) -> str:
    """Return a text on why the gradient's change is unbounded, and how to bound it."""
    for task in derived.records:
        names = ", ".join(f"'{derived.private[k].name}'" for k in task.members)
        atom = task.beyond_edge(derived.extent)
        if atom is not None and derived.adjacency_of(task).relation != "replace_one":
            return (
                f"An absent record counts as zeros, for which {atom} may have no finite slope. "
                "Write dp.Rows(..., relation='replace_one'), and declare the least entry, as in "
                "dp.Private(..., bounds=(0.5, 2))."
            )
        if atom is not None:
            return (
                f"For some admissible rows of {names} and points of the set, {atom} is evaluated "
                "where its slope is infinite or its domain ends. Keep its argument above 0: "
                "declare the least entry, as in dp.Private(..., bounds=(0.5, 2)), without "
                "clip_rows=True, and constrain the variables, as in w >= 0 with cp.sum(w) == 1."
            )
    return (
        "A term may leave its domain for some admissible data, or have an infinite slope. Bound "
        "the variables, or declare signs (nonneg=True)."
    )
