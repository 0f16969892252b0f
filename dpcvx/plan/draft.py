"""Derivation of a plan from a request, in phases, before any data are read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from .._arguments import as_python_number
from ..algorithms.base import Algorithm, Requirements
from ..algorithms.data_terms import moment_sum
from ..algorithms.joint import size_of
from ..algorithms.learned_scale import Units
from ..algorithms.program import (
    Program,
    compile_problem,
    once_per_kind,
    require_convex,
    with_objectives,
)
from ..model.curvature import curvature, record_smoothness, smoothness
from ..model.declaration import Declaration
from ..model.prior import expectations
from ..privacy.contraction import Certificate
from ..privacy.last_iterate import LastIterate
from ..sensitivity.queries.data import LearnedSummand, MomentsTerm
from ..sensitivity.stored_vectors import Smoothness
from ..solvers.newton import kernel_for
from . import checks, last_iterate, limits
from .agent_plan import (
    AgentPlan,
    Agents,
    Compiled,
    agents_of,
    released,
    sensitivities,
    with_releases,
)
from .fingerprint import fingerprint_of, with_kernel
from .guarantee import Guarantee, no_guarantee
from .noise import budgeted, check_secret, perturbed, priced, split, truncated, with_noise
from .request import CompleteRequest, Noises, Request, asked_of
from .stated import make_guarantee
from .terms import Terms, releases_of

P = TypeVar("P", bound=Terms)
R = TypeVar("R", bound=Request)


@dataclass(frozen=True, eq=False)
class Draft:
    """Unfinished plan; each phase of planning returns a draft with more fields set."""

    problem: Declaration
    request: Request  # request without omitted arguments
    asked: Noises
    known: Compiled
    program: Program
    agents: Agents
    # Algorithm with numbers in place of all defaults, once all inputs of the defaults are known.
    algorithm: Algorithm[Any, Any]
    last: LastIterate | None = None  # constants of the loss, if less is observed

    @property
    def needs(self) -> Requirements:
        """Requirements of the plan's method, such as its queries."""
        return self.algorithm.requirements

    @property
    def noisy(self) -> bool:
        """Return whether noise is requested for any agent."""
        return any(noise is not None for noise in self.asked.values())

    @property
    def once(self) -> bool:
        """Return whether the data are released once, with noise."""
        return self.noisy and self.request.release == "once"

    @property
    def steps_first(self) -> bool:
        """Return whether step sizes must be chosen before the noise, whose scale needs them."""
        return self.request.observer != "everyone" or len(self.needs.weights) > 1

    @property
    def rounds(self) -> int:
        """Number of rounds of the run."""
        assert self.request.rounds is not None
        return self.request.rounds

    @property
    def releases(self) -> int:
        """Number of releases of an agent in the run."""
        assert self.request.release is not None
        return releases_of(self.algorithm, self.request.release, self.rounds, self.program)

    @property
    def delta(self) -> float:
        """Delta of computed totals; 0 if the request has no delta."""
        return self.request.delta or 0.0


def make_terms(
    kind: type[P], problem: Declaration, request: CompleteRequest, earlier: Compiled | None = None
) -> P:
    """Derive a plan of class `kind` from a complete request.

    Parameters
    ----------
    kind : type
        Class of the plan.
    problem : Declaration
        Problem to be solved.
    request : CompleteRequest
        All arguments and choices.
    earlier : Compiled, optional
        Compiled problem of an earlier plan, to be reused if it fits the request.

    Raises
    ------
    ModelError
        If the problem does not fit the algorithm.
    PrivacyError
        If no guarantee can be derived, or its privacy loss exceeds the requested budget.
    """
    request = checked(problem, request)
    draft = certified(before_noise(declared_draft(problem, request, earlier)), request.certificate)
    draft = noisy_draft(draft, [agent.multiplier for agent in request.agents])
    if draft.once:
        draft = _released_once(draft, request)
    once_per_kind(draft.agents, lambda agent: checks.check_start(agent, draft.once))
    draft, guarantee = _guaranteed(draft)
    steps = max(request.rounds, draft.algorithm.releases(request.rounds, draft.program))
    kernel = kernel_for(steps, (local.n for local in draft.program.agents if local.kernel))
    program, agents = with_kernel(draft.program, draft.agents, kernel)
    return kind(
        problem=problem,
        algorithm=request.algorithm,
        rounds=request.rounds,
        release=request.release,
        observer=request.observer,
        program=program,
        agents=agents,
        last=draft.last,
        guarantee=guarantee,
        fingerprint=fingerprint_of(problem, program, agents, draft.asked, request),
        violation_probability=request.violation_probability,
        parameters=draft.known.parameters,
    )


def checked(problem: Declaration, request: R) -> R:
    """Check a request's arguments before the model is compiled.

    Parameters
    ----------
    problem : Declaration
        Problem to be solved.
    request : Request
        Incomplete or complete request.

    Returns
    -------
    Request
        Request with Python's int and float in place of numpy's numbers, and with priors by agent.

    Raises
    ------
    ModelError, PrivacyError
    """
    checks.check_request(request)
    request = replace(
        request,
        delta=as_python_number(request.delta),
        rounds=None if request.rounds is None else int(request.rounds),
    )
    noisy = request.mechanism is not None and any(agent.private for agent in problem.agents)
    limits.check_violation(problem, request, noisy)
    checks.check_budget(problem, request)
    return replace(
        request,
        algorithm=as_python_number(request.algorithm),
        violation_probability=as_python_number(request.violation_probability),
        slack_penalty=as_python_number(request.slack_penalty),
        expectations=expectations(problem, request.prior),
    )


def declared_draft(problem: Declaration, request: Request, earlier: Compiled | None) -> Draft:
    """Return the draft with requested mechanisms and derived sensitivities, without noise.

    Parameters
    ----------
    problem : Declaration
        Problem to be solved.
    request : Request
        Request with method, release and mechanism.
    earlier : Compiled or None
        Compiled problem of an earlier plan, reused if it fits the request.
    """
    algorithm = request.algorithm
    assert algorithm is not None
    asked, needs = _asked(problem, request, algorithm), algorithm.requirements
    noisy = any(noise is not None for noise in asked.values())
    every = noisy or bool(needs.exact)
    if earlier is not None and not _compiled_for(earlier.program, needs):
        earlier = None
    earlier = earlier or _compiled(problem, request, every)
    if not needs.minimizes(earlier.program):
        earlier = _compiled(problem, request, every, proximal=False)
    if isinstance(request, CompleteRequest):
        earlier = earlier.clipped(request.clips)
    program = with_objectives(problem, earlier.program) if needs.exact else earlier.program
    checks.check_terms(program, algorithm)
    agents = agents_of(problem, program, earlier.sensitivities, needs, request.expectations)
    draft = Draft(problem, request, asked, earlier, program, agents, algorithm)
    if needs.exact:
        checks.check_affine(agents, algorithm, draft.noisy, draft.once)
    return draft


def _compiled_for(program: Program, needs: Requirements) -> bool:
    """Return whether a program was compiled for methods with these requirements."""
    model = program.model
    return (model is not None) is needs.as_written and (model is None or model.rules == needs.rules)


def _asked(problem: Declaration, request: Request, algorithm: Algorithm[Any, Any]) -> Noises:
    """Return the requested noise by agent, after all checks that need no compiled problem."""
    needs, release = algorithm.requirements, request.release
    assert release is not None
    if needs.convex:
        require_convex(problem, type(algorithm).__name__)
    checks.check_once(release, needs)
    asked = asked_of(problem, request.mechanism, request.epsilon)
    noisy = any(noise is not None for noise in asked.values())
    checks.check_expected(request.expectations, noisy, noisy and release == "once")
    last_iterate.check_observer(problem, request, asked)
    checks.check_groups(problem, asked)
    checks.check_switched_off(problem, request, noisy)
    checks.check_coupling(problem, algorithm)
    return asked


def _compiled(
    problem: Declaration, request: Request, every: bool, proximal: bool = True
) -> Compiled:
    assert request.algorithm is not None
    parameters, needs = problem.parameter_values(), request.algorithm.requirements
    program = compile_problem(problem, proximal=proximal, as_written=request.as_written)
    derived = sensitivities(program, every=every)
    if needs.exact:
        program = with_objectives(problem, program)
    return Compiled(problem, program, derived, parameters)


def before_noise(draft: Draft) -> Draft:
    """Return the draft with everything that, with the multiplier, determines the noise scale.

    Parameters
    ----------
    draft : Draft
        Result of `declared_draft`.
    """
    agents, needs, last = draft.agents, draft.needs, None
    checks.check_decay(draft.asked, draft.algorithm)
    if draft.noisy and not draft.once:
        agents = answering(agents, needs)
    if draft.noisy and (observer := draft.request.observer) != "everyone":
        last = last_iterate.constants(
            draft.algorithm, draft.program, agents, draft.rounds, observer
        )
    return replace(draft, agents=agents, last=last)


def certified(draft: Draft, certificate: Certificate | None) -> Draft:
    """Return the draft with a certificate of amplification by iteration, after verifying it.

    Parameters
    ----------
    draft : Draft
        Result of `before_noise`.
    certificate : Certificate or None
        Certificate from any source.

    Raises
    ------
    PrivacyError
        If the certificate does not prove its bounds, or required amplification has no proof.
    """
    if draft.last is None:
        return draft
    last = draft.last.certified(certificate)
    last.require_amplified()
    return replace(draft, last=last)


def noisy_draft(draft: Draft, multipliers: Sequence[float | None]) -> Draft:
    """Return the draft with noise of the given multipliers.

    Parameters
    ----------
    draft : Draft
        Result of `certified`.
    multipliers : sequence of (float or None)
        Noise multipliers in the order of the agents; None for agents without noise.
    """
    request, needs, last = draft.request, draft.needs, draft.last
    names = [agent.name for agent in draft.agents]
    checks.check_group_noise(draft.problem, dict(zip(names, multipliers, strict=True)))
    agents = with_noise(
        draft.agents, draft.asked, multipliers, needs, draft.rounds, request.delta, draft.once
    )
    if last is not None:
        agents = tuple(
            replace(a, noise=a.noise and replace(a.noise, level=last.level)) for a in agents
        )
    elif request.truncates and draft.noisy:
        agents = truncated(agents, draft.delta)
    if draft.noisy and needs.perturbed is not None and needs.perturbed >= 0:  # negative: not chosen
        agents = perturbed(agents, needs.perturbed)
    if draft.noisy:
        agents = split_over(agents, needs, draft.program, draft.rounds)
    return replace(draft, agents=agents)


def _released_once(draft: Draft, request: CompleteRequest) -> Draft:
    """Return the draft with one-time releases, and with constraint margins for their noise."""
    program, agents = draft.program, released(draft.agents, request.agents)
    if program.model is not None:
        program = replace(program, model=with_releases(program.model, agents))
    violation, share = request.violation_probability, limits.share_of_margins(program)
    if program.kept:
        assert violation is not None
        program = limits.with_margins(
            program, agents, violation * share, request.slack_penalty, request.shares
        )
    if program.corners:
        assert violation is not None
        program = limits.with_boxes(program, agents, violation * (1 - share))
    program = replace(program, noise=request.slope_noise)
    return replace(draft, program=program, agents=agents)


def _guaranteed(draft: Draft) -> tuple[Draft, Guarantee]:
    """Return the draft with every agent's privacy loss, and the plan's guarantee."""
    problem, request, last = draft.problem, draft.request, draft.last
    if not draft.noisy:
        return draft, no_guarantee(_why_none(problem))
    amplification = None
    if last is None:
        agents = priced(draft.agents, draft.releases, draft.delta)
    else:
        agents, amplification = last_iterate.priced(draft.agents, last, draft.delta)
    agents = budgeted(agents, draft.asked)
    guarantee = make_guarantee(
        agents, releases=draft.releases, once=draft.once, groups=problem.group_names
    )
    if draft.program.guarded and request.violation_probability is not None:
        # Constraints never fail with truncated noise, whatever violation_probability= allows.
        violation = 0.0 if request.truncates else request.violation_probability
        promise = limits.promise(violation, request.slack_penalty)
        guarantee = replace(guarantee, kept=promise)
    if request.constraints == "released":
        guarantee = replace(guarantee, kept=limits.FOR_RELEASED)
    if last is not None and amplification is not None:
        guarantee = last_iterate.guaranteed(guarantee, agents, last, amplification)
    return replace(draft, agents=agents), guarantee


def _why_none(problem: Declaration) -> str:
    """Return the reason why a plan without noise has no guarantee, as text."""
    if any(agent.private for agent in problem.agents):
        return "noise is off"
    if any(agent.kept for agent in problem.agents):
        return "none is needed: private data are in recourse= only, and are never released"
    return "the model declares nothing private"


def answering(agents: Agents, needs: Requirements) -> Agents:
    """Return the agents with the smoothness of their objectives, if a query needs it.

    Parameters
    ----------
    agents : tuple of AgentPlan
    needs : Requirements
        Requirements of the algorithm, with its queries.

    Raises
    ------
    PrivacyError
        If no sensitivity can be derived for the answer to a query.
    """
    if any(query.smooth for query in needs.queries):
        agents = tuple(
            agent
            if agent.sensitivity is None
            else replace(agent, smoothness=_smoothness(agent, needs))
            for agent in agents
        )
    checks.check_queries(agents)
    return agents


def _smoothness(agent: AgentPlan, needs: Requirements) -> Smoothness | None:
    """Return the derived smoothness of an agent's objective, or else the user's claim, if any."""
    form, claimed = agent.program.form, needs.smoothness
    derived = smoothness(form)
    if derived is None:
        return None if claimed is None else Smoothness(claimed, asserted=True)
    turn = record_smoothness(form)
    return Smoothness(derived, False, curvature(form), math.inf if turn is None else turn)


def split_over(agents: Agents, needs: Requirements, program: Program, rounds: int) -> Agents:
    """Return the agents with distributed noise, if the method uses secure aggregation.

    Parameters
    ----------
    agents : tuple of AgentPlan
        Agents with their noise.
    needs : Requirements
        Requirements of the method.
    program : Program
        Compiled program.
    rounds : int
        Number of rounds.

    Raises
    ------
    ModelError, PrivacyError
        If no proof covers secure aggregation for these agents.
    """
    secret = needs.secret
    if secret is None:
        return agents
    check_secret(agents, secret)
    moves, size = {agent.name: agent.bound for agent in agents}, size_of(program)
    if any(MomentsTerm in agent.queries for agent in agents):
        moments = moment_sum(program)
        size = moments.size
        moves = {
            agent.name: term.moved(agent.program.form.private)
            for agent, term in zip(agents, moments.terms, strict=True)
        }
    if any(LearnedSummand in agent.queries for agent in agents):
        units, size = Units.of(program, secret=True), size + 1
        moved = once_per_kind(program.agents, units.moves)
        moves = {agent.name: move for agent, move in zip(agents, moved, strict=True)}
    least = min(a.noise.mechanism.decay for a in agents if a.noise is not None) ** (rounds - 1)
    least *= min((1.0, *needs.factors(rounds)))
    return split(agents, secret, moves, size, least)
