"""How a plan comes about: from a request to terms, phase by phase, before any data are read."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from .._arguments import as_python_number
from .._words import together
from ..algorithms.base import Algorithm, Requirements, SecretSums
from ..algorithms.joint import size_of
from ..algorithms.moment_sums import moment_sum
from ..algorithms.predicted import step_reasons
from ..algorithms.program import (
    Program,
    compile_problem,
    once_per_kind,
    require_convex,
    with_objectives,
)
from ..model.curvature import curvature, record_smoothness, smoothness
from ..model.declaration import Declaration
from ..model.expected import expectations
from ..privacy.last_iterate import LastIterate
from ..sensitivity.queries.data import MomentsTerm
from ..sensitivity.stored_vectors import Smoothness
from . import checks, last_iterate, limits
from .agent_terms import Agents, AgentTerms, Declared, composed, declared, sensitivities
from .asked import asked_of
from .calibration import budgeted, calibrated, truncated
from .choice import TOWARD_PROXY, choose
from .compiled import Compiled
from .conditions import conditions
from .fingerprint import fingerprint_of
from .forecast import bent, of_releases, of_steps
from .guarantee import Guarantee, no_guarantee
from .request import Request
from .responses import published, slope_noise, toward_proxy
from .split import check_secret, split
from .stakes import by_agent, by_price, stand_ins_of
from .stated import make_guarantee
from .terms import Terms, releases_of

P = TypeVar("P", bound=Terms)


@dataclass(frozen=True, eq=False)
class Draft:
    """A plan in the making.

    Attributes
    ----------
    problem : Declaration
    request : Request
        With nothing open.
    known : Compiled
    program : Program
    agents : tuple of AgentTerms
    algorithm : Algorithm
        With every default replaced by a number, once all that they follow from is known.
    last : LastIterate or None
        For an observer of the last iterate: what the guarantee follows from.
    """

    problem: Declaration
    request: Request
    known: Compiled
    program: Program
    agents: Agents
    algorithm: Algorithm[Any, Any]
    last: LastIterate | None = None

    @property
    def needs(self) -> Requirements:
        """Of the algorithm."""
        return self.algorithm.requirements

    @property
    def noisy(self) -> bool:
        """Whether noise is asked for."""
        return any(agent.asked is not None for agent in self.agents)

    @property
    def once(self) -> bool:
        """Whether the data leave once, with noise."""
        return self.noisy and self.request.release == "once"

    @property
    def steps_first(self) -> bool:
        """Whether the noise follows from the steps, and nothing in the steps from the noise."""
        return self.request.observer == "last iterate" or len(self.needs.weights) > 1

    @property
    def rounds(self) -> int:
        """Of the run."""
        assert self.request.rounds is not None
        return self.request.rounds

    @property
    def releases(self) -> int:
        """Of an agent in the run."""
        assert self.request.release is not None
        return releases_of(self.algorithm, self.request.release, self.rounds, self.program)

    @property
    def delta(self) -> float:
        """Where totals are stated."""
        return self.request.delta or 0.0


def make_terms(
    kind: type[P], problem: Declaration, request: Request, known: Compiled | None = None
) -> P:
    """A plan of this kind; see `Problem.plan`.

    Parameters
    ----------
    kind : type
    problem : Declaration
    request : Request
        As the user wrote it.
    known : Compiled, optional
        The same problem, compiled before: for plans that differ in other things.
    """
    request, known = choose(problem, _checked(problem, request), known)
    draft = _declared(problem, request, known)
    if draft.steps_first:
        draft = _with_steps(draft)
    draft = _with_noise(draft)
    if draft.once:
        draft = _left_once(draft)
    if not draft.steps_first:
        draft = _with_steps(draft)
    _check(draft)
    draft, guarantee = _guaranteed(draft)
    request, algorithm, program = draft.request, draft.algorithm, draft.program
    assert request.release is not None
    diverges = algorithm.diverges(program)
    return kind(
        problem=problem,
        algorithm=algorithm,
        rounds=draft.rounds,
        release=request.release,
        observer=request.observer,
        program=program,
        agents=draft.agents,
        last=draft.last,
        guarantee=guarantee,
        fingerprint=fingerprint_of(problem, program, draft.agents, request, algorithm),
        choices=request.choices,
        warnings=diverges or bent(problem, program),
        beside=request.forecast if not diverges else "",
        violation=request.violation,
        parameters=draft.known.parameters,
    )


def _checked(problem: Declaration, request: Request) -> Request:
    """The request with Python's own numbers, as far as it can be refused by itself."""
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
        violation=as_python_number(request.violation),
        slack_price=as_python_number(request.slack_price),
        expectations=expectations(problem, request.expected),
    )


def _declared(problem: Declaration, request: Request, known: Compiled | None) -> Draft:
    """What is asked for and what is derived, agent by agent; nothing is calibrated yet."""
    algorithm = request.algorithm
    assert algorithm is not None
    asked, needs = _asked(problem, request, algorithm), algorithm.requirements
    noisy = any(one is not None for one in asked.values())
    every = noisy or bool(needs.exact)
    known = known or _compiled(problem, needs, every)
    if not needs.minimises(known.program):
        known = _compiled(problem, needs, every, proximal=False)
    program = with_objectives(problem, known.program) if needs.exact else known.program
    checks.check_terms(program, algorithm)
    found = known.sensitivities
    agents = declared(problem, program, found, asked, needs, request.expectations)
    draft = Draft(problem, request, known, program, agents, algorithm)
    if needs.exact:
        checks.check_affine(agents, algorithm, draft.noisy, draft.once)
    return draft


def _asked(
    problem: Declaration, request: Request, algorithm: Algorithm[Any, Any]
) -> Mapping[str, Declared | None]:
    """The noise that is asked for by agent, as far as it can be refused without compiling."""
    needs, release = algorithm.requirements, request.release
    assert release is not None
    if needs.convex:
        require_convex(problem, type(algorithm).__name__)
    checks.check_once(release, needs)
    asked = asked_of(problem, request.mechanism, request.epsilon)
    noisy = any(one is not None for one in asked.values())
    checks.check_expected(request.expectations, noisy, noisy and release == "once")
    last_iterate.check_observer(problem, request, asked.values())
    checks.check_groups(problem, asked)
    checks.check_switched_off(problem, request, noisy)
    checks.check_coupling(problem, algorithm)
    return asked


def _compiled(
    problem: Declaration, needs: Requirements, every: bool, proximal: bool = True
) -> Compiled:
    parameters = problem.parameter_values()
    program = compile_problem(problem, proximal=proximal)
    found = sensitivities(program, every=every)
    if needs.exact:
        program = with_objectives(problem, program)
    return Compiled(problem, program, found, parameters)


def _with_steps(draft: Draft) -> Draft:
    """With the numbers of the method, and what is predicted of noisy steps."""
    program, agents, request = draft.program, draft.agents, draft.request
    noisy = draft.noisy and not draft.once and not draft.steps_first
    public = conditions(program, agents, draft.rounds, noisy_steps=noisy)
    algorithm = draft.algorithm.resolved(program, public)
    if getattr(draft.algorithm, "step", math.nan) is None:
        for why in step_reasons(program, public):
            request = request.chosen("step", why)
    if noisy and not request.forecast and MomentsTerm not in draft.needs.queries:
        forecast = of_steps(agents, public, draft.releases)
        request = replace(request, forecast=forecast)
    return replace(draft, request=request, algorithm=algorithm)


def _with_noise(draft: Draft) -> Draft:
    """With as little noise as the budget allows."""
    request, agents, needs, last = draft.request, draft.agents, draft.needs, None
    checks.check_decay(agents, draft.algorithm)
    if draft.noisy and not draft.once:
        agents = _smooth(agents, needs)
        checks.check_queries(agents)
    if draft.noisy and request.observer == "last iterate":
        last = last_iterate.constants(draft.algorithm, draft.program, agents, draft.rounds)
    if request.quiet:
        agents = tuple(
            replace(agent, noise=quiet.noise, publication=quiet.publication)
            for agent, quiet in zip(agents, request.quiet, strict=True)
        )
    elif last is not None:
        agents = last_iterate.calibrated(agents, last, request.delta)
    else:
        agents = calibrated(agents, needs, draft.rounds, draft.releases, request.delta, draft.once)
        if request.violation == 0:
            agents = truncated(agents, draft.delta)
    if draft.noisy and needs.secret is not None:
        agents = _split(agents, needs.secret, draft.program, draft.rounds)
    return replace(draft, agents=agents, last=last)


def _left_once(draft: Draft) -> Draft:
    """With what leaves once, and with margins for the noise in it."""
    request, program, agents = draft.request, draft.program, draft.agents
    stakes, around = draft.known.at_stand_ins.stakes, draft.known.responses
    if not request.quiet:
        agents = published(agents, around, by_agent(program, stakes))
    stand_ins = stand_ins_of(draft.problem)
    if program.kept:
        assert request.violation is not None
        program = limits.with_margins(
            program, agents, request.violation, request.slack_price, stakes
        )
        if by_price(stakes):
            request = request.chosen(
                "violation",
                "violation= is divided over constraints, and noise is shaped, by what margins "
                "cost for the stand-ins (like=); it holds for all data",
            )
    request = replace(request, forecast=of_releases(agents, stand_ins))
    if draft.algorithm.shrinks:
        agents = toward_proxy(agents, around, stand_ins)
        moved = [f"'{name}'" for agent in agents for name in agent.moved]
        if moved:
            request = request.chosen("shrink", TOWARD_PROXY.format(together(moved)))
    # Next to a proxy the data are moved, and never the solution.
    if draft.algorithm.weighs_noise and not _proxied(agents, stand_ins):
        program = replace(program, noise=slope_noise(program, agents, around))
    return replace(draft, request=request, program=program, agents=agents)


def _proxied(agents: Agents, proxies: Mapping[str, Sequence[Any]]) -> bool:
    """Whether all that is released once has public proxy data."""
    released = [agent.name for agent in agents if agent.publication is not None]
    return all(value is not None for name in released for value in proxies[name])


def _check(draft: Draft) -> None:
    """Refuse what nothing is proved for, now that all is known that a proof needs."""
    program, agents, noisy, once = draft.program, draft.agents, draft.noisy, draft.once
    checks.check_sets(program)
    once_per_kind(agents, lambda agent: checks.check_start(agent, once))
    if draft.needs.exact == "joint":
        checks.check_joint_minimiser(program, agents, noisy, once)
    elif draft.needs.exact:
        once_per_kind(agents, lambda agent: checks.check_minimiser(agent, noisy, once))
    checks.check_bounded(draft.problem, program, agents)


def _guaranteed(draft: Draft) -> tuple[Draft, Guarantee]:
    """With what the run costs every agent, and the guarantee that follows."""
    problem, request, last = draft.problem, draft.request, draft.last
    if not draft.noisy:
        return draft, no_guarantee(_why_none(problem))
    amplification = None
    if last is None:
        agents = _priced(draft.agents, draft.releases, draft.needs, draft.delta)
    else:
        agents, amplification = last_iterate.priced(draft.agents, last, draft.delta)
    agents = budgeted(agents)
    guarantee = make_guarantee(
        agents, releases=draft.releases, once=draft.once, groups=problem.group_names
    )
    if draft.program.kept and request.violation is not None:
        promise = limits.promise(request.violation, request.slack_price)
        guarantee = replace(guarantee, kept=promise)
    if last is not None and amplification is not None:
        guarantee = last_iterate.guaranteed(guarantee, agents, last, amplification)
    return replace(draft, agents=agents), guarantee


def _why_none(problem: Declaration) -> str:
    """Why a plan without noise has no guarantee."""
    if any(agent.private for agent in problem.agents):
        return "noise is off"
    if any(agent.kept for agent in problem.agents):
        return "none is needed, private data are in own= alone and nothing of them leaves"
    return "the model declares nothing private"


def _smooth(agents: Agents, needs: Requirements) -> Agents:
    """With the smoothness of objectives, where bounds follow from it."""
    if not any(query.smooth for query in needs.queries):
        return agents
    return tuple(
        agent
        if agent.sensitivity is None
        else replace(agent, facts=replace(agent.facts, smoothness=_smoothness(agent, needs)))
        for agent in agents
    )


def _smoothness(agent: AgentTerms, needs: Requirements) -> Smoothness | None:
    """What is derived, or else the user's claim."""
    form, claimed = agent.program.form, needs.smoothness
    derived = smoothness(form)
    if derived is None:
        return None if claimed is None else Smoothness(claimed, asserted=True)
    turn = record_smoothness(form)
    return Smoothness(derived, False, curvature(form), math.inf if turn is None else turn)


def _split(agents: Agents, secret: SecretSums, program: Program, rounds: int) -> Agents:
    """With parts of the noise in sums over all agents, of gradients or of second moments."""
    check_secret(agents, secret)
    moves, size = {agent.name: agent.bound for agent in agents}, size_of(program)
    if any(MomentsTerm in agent.facts.queries for agent in agents):
        found = moment_sum(program)
        size = found.size
        moves = {
            agent.name: term.moved(agent.program.form.private)
            for agent, term in zip(agents, found.terms, strict=True)
        }
    least = min(a.asked.mechanism.decay for a in agents if a.asked is not None) ** (rounds - 1)
    return split(agents, secret, moves, size, least)


def _priced(agents: Agents, steps: int, needs: Requirements, delta: float) -> Agents:
    """What the planned releases cost every agent."""
    losses = composed(agents, steps, needs)
    # Some prices take seconds, and agents often release alike.
    prices = {loss: loss.price(delta) for loss in dict.fromkeys(losses.values())}
    agents = tuple(replace(a, loss=losses[a.name], price=prices[losses[a.name]]) for a in agents)
    if all(agent.noise is None or agent.noise.split is None for agent in agents):
        return agents
    open_ = tuple(replace(a, noise=a.noise and a.noise.alone) for a in agents)
    alone = composed(open_, steps, needs)
    return tuple(replace(a, alone=alone[a.name].price(delta)) for a in agents)
