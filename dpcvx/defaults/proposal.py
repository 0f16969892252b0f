"""Proposal of all settings that a request omits, with reasons; no private data are read."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

from cvxpy.constraints.nonpos import Inequality

from .._arguments import one_of
from .._words import plural, together
from ..algorithms.base import Requirements
from ..algorithms.contract import proposed_by
from ..algorithms.federated_gradient import FederatedGradient
from ..algorithms.one_shot import OneShot
from ..algorithms.written_model import other_rules
from ..errors import ModelError, PrivacyError, UnsolvableError
from ..model.declaration import Declaration
from ..model.defined import decided
from ..plan.agent_plan import Agents, Compiled
from ..plan.draft import (
    Draft,
    before_noise,
    certified,
    checked,
    declared_draft,
    make_terms,
    noisy_draft,
)
from ..plan.request import Choice, CompleteRequest, Request
from ..plan.terms import Terms
from .certificates import certificate_for
from .choice import AS_WRITTEN, TOWARD_PROXY, choose, substitutes
from .conditions import RunFacts, conditions
from .noisy_rounds import calibrated, calibrated_with_limit, multipliers_of_turns
from .predicted import step_reasons
from .remarks import Remark, bent, hidden_by_unit, in_secret, of_one_value, of_releases, of_steps
from .solvable import check_sets, check_solvable
from .stakes import by_agent, by_price, margin_shares, stand_ins_of
from .study import Selection, Study, published, slope_noise, toward_proxy

P = TypeVar("P", bound=Terms)


@dataclass(frozen=True, eq=False)
class Proposal:
    """A request with every setting chosen, the reasons of these choices, and a forecast."""

    request: CompleteRequest
    known: Compiled  # the compiled problem
    choices: tuple[Choice, ...]
    forecast: Remark


def planned(
    kind: type[P], problem: Declaration, request: Request, earlier: Compiled | None = None
) -> P:
    """Return the plan for a request whose omitted settings are proposed first.

    Parameters
    ----------
    kind : type
        Class of the plan.
    problem : Declaration
    request : Request
        Request as the user wrote it.
    earlier : Compiled, optional
        Compiled problem of an earlier plan for the problem.
    """
    given = request.algorithm
    if request.mechanism is not None and _margins_only(request):
        smaller, names = decided(problem, request.violation_probability)
        if names:
            plan = planned(kind, smaller, _by_names(problem, request))
            bounds = all(isinstance(c, Inequality) for a in problem.agents for _, c in a.limits)
            soft = bounds and request.violation_probability is None
            choice = Choice("variables", _computed(names, soft))
            return replace(plan, choices=(*plan.choices, choice))
    if not one_of(request.constraints, "released"):
        try:
            return _planned(kind, problem, request, earlier)
        except UnsolvableError:
            raise  # no method can solve the problem
        except (ModelError, PrivacyError):
            if not substitutes(problem, request):
                _explain(problem, request)
                raise
    if given is not None and not isinstance(given, OneShot):
        return _planned(kind, problem, request, earlier)  # raises the error of the named method
    method = replace(given or OneShot(), as_written=True)
    try:
        plan = _planned(kind, problem, replace(request, algorithm=method), None)
    except ModelError:
        _explain(problem, request)
        raise
    return plan if given is not None else replace(plan, choices=(AS_WRITTEN, *plan.choices))


def _margins_only(request: Request) -> bool:
    """Return whether a convex model's constraints are to hold for the true data."""
    convex = not isinstance(request.algorithm, OneShot) or request.algorithm.rules == "dcp"
    bare = request.slack_penalty is None or request.violation_probability is not None
    return convex and bare and not one_of(request.constraints, "released")


def _by_names(problem: Declaration, request: Request) -> Request:
    """Return the request with names in place of `Agent` objects as keys."""
    names = {id(agent): name for name, agent in problem.named.items()}

    def renamed(given: Any) -> Any:
        if not isinstance(given, Mapping):
            return given
        return {names.get(id(agent), agent): value for agent, value in given.items()}

    return replace(request, epsilon=renamed(request.epsilon), mechanism=renamed(request.mechanism))


def _computed(names: Sequence[str], soft: bool) -> str:
    """Return a sentence on variables that constraints define by the decision and private data.

    `soft` tells whether margins may decide these variables in their place.
    """
    one = len(names) == 1
    chosen = (
        f"; violation_probability=0.01 decides {'it' if one else 'them'} with a margin"
        if soft
        else ""
    )
    return (
        f"{plural(len(names), 'variable')} ({together(sorted(names))}) "
        f"{'follows' if one else 'follow'} from the decision and private data by a constraint: "
        f"{'its owner computes it' if one else 'their owner computes them'} by "
        f"result.recourse(...){chosen}"
    )


def _explain(problem: Declaration, request: Request) -> None:
    """Refuse a geometric or quasiconvex program with a message on the argument that it needs."""
    method = request.algorithm
    for_convex = method is None or (isinstance(method, OneShot) and method.rules == "dcp")
    budget = request.epsilon is not None or not request.chooses_noise
    if not (for_convex and budget) or problem.is_dcp():
        return
    fix = other_rules(problem)
    if fix:
        checked(problem, replace(request, algorithm=None))  # errors in the settings come first
        raise ModelError(fix)


def _planned(kind: type[P], problem: Declaration, request: Request, earlier: Compiled | None) -> P:
    """Return the plan for a request, without trying another method; see `planned`."""
    proposal = propose(problem, request, earlier)
    plan = make_terms(kind, problem, proposal.request, proposal.known)
    check_solvable(plan)
    diverges = plan.algorithm.diverges(plan.program)
    remark, small = proposal.forecast, hidden_by_unit(plan.agents, stand_ins_of(problem))
    if not remark and not plan.published and _once(plan.algorithm.requirements):
        remark = of_one_value(plan.agents, stand_ins_of(problem))
    return replace(
        plan,
        choices=(*proposal.choices, *_averaged(plan)),
        warnings=diverges or "; ".join(filter(None, (bent(problem, plan.program), small))),
        beside=remark.said if not diverges else "",
        advice=remark.advice if not diverges else "",
    )


def _once(needs: Requirements) -> bool:
    """Return whether agents release a single gradient or minimizer, instead of steps."""
    return needs.exact == "joint" or needs.perturbed is not None


def _averaged(plan: Terms) -> tuple[Choice, ...]:
    """Return the choice to average the objective over simulated data, if made; else ()."""
    method, model = plan.algorithm, plan.program.model
    if model is None or not plan.noisy or not isinstance(method, OneShot):
        return ()
    if method.scenarios < 2 or not model.bends:
        return ()
    why = (
        f"the mean of the objective over {method.scenarios} data sets that the released data are "
        "consistent with is minimized, since the objective bends in the data"
    )
    return (Choice("scenarios", why),)


def propose(problem: Declaration, request: Request, earlier: Compiled | None = None) -> Proposal:
    """Return the request with a proposed value for every omitted setting.

    Parameters
    ----------
    problem : Declaration
    request : Request
        Request as the user wrote it.
    earlier : Compiled, optional
        Compiled problem of an earlier plan.

    Raises
    ------
    ModelError
        If the problem does not fit the algorithm.
    PrivacyError
        If no noise fits the budget, or no sensitivity can be derived.
    """
    selection = Selection.of(checked(problem, request))
    selection, study = choose(problem, selection, None if earlier is None else Study.of(earlier))
    draft = declared_draft(problem, selection, study)
    compiled = replace(draft.known, program=draft.program)
    if draft.steps_first:
        draft, selection = _with_steps(draft, selection)
    draft = before_noise(draft)
    certificate = None if draft.last is None else certificate_for(draft.last)
    draft, multipliers = _with_noise(certified(draft, certificate), selection)
    shares = None
    if draft.once:
        draft, selection, shares = _released_once(draft, selection)
    if not draft.steps_first:
        draft, selection = _with_steps(draft, selection)
    check_sets(draft.program)
    assert selection.algorithm is not None
    private = any(agent.private for agent in problem.agents)
    given = {field.name: getattr(selection, field.name) for field in fields(Request)}
    given["algorithm"] = draft.algorithm
    given["mechanism"] = selection.mechanism if private else None
    complete = CompleteRequest(
        **given,
        given=selection.algorithm,
        clips=[local.clip for local in draft.program.agents],
        agents=[
            replace(agent.request, multiplier=multiplier)
            for agent, multiplier in zip(draft.agents, multipliers, strict=True)
        ],
        shares=shares,
        slope_noise=draft.program.noise,
        certificate=certificate,
    )
    return Proposal(complete, compiled, selection.choices, selection.forecast)


def _with_steps(draft: Draft, selection: Selection) -> tuple[Draft, Selection]:
    """Return the plan's draft with the method's parameters, and the request with a forecast."""
    program, agents, algorithm = draft.program, draft.agents, draft.algorithm
    noisy = draft.noisy and not draft.once and not draft.steps_first
    public = conditions(program, agents, draft.rounds, noisy_steps=noisy, releases=draft.releases)
    if getattr(algorithm, "step", math.nan) is None and not draft.needs.first:
        for why in step_reasons(program, public):
            selection = selection.chosen("step", why)
    if noisy and isinstance(algorithm, FederatedGradient) and algorithm.sharing is None:
        why = in_secret(agents, public, draft.releases)
        selection = selection.chosen("sharing", why) if why else selection
    if noisy and not selection.forecast and not _once(draft.needs):
        forecast = of_steps(agents, public, draft.releases)
        selection = replace(selection, forecast=forecast)
    facts = RunFacts(program, public, agents=agents)
    proposed = proposed_by(algorithm, algorithm.propose(facts))
    return replace(draft, algorithm=proposed), selection


def _with_noise(draft: Draft, selection: Selection) -> tuple[Draft, list[float | None]]:
    """Return the plan's draft with the least noise that budgets allow, and its multipliers."""
    agents, last, delta = draft.agents, draft.last, selection.delta
    if selection.quiet:
        agents = selection.quiet
    elif last is not None:
        by_turn = multipliers_of_turns(draft.asked, last, delta)
        return noisy_draft(draft, by_turn), list(by_turn)
    else:
        given = draft.needs, draft.rounds, draft.releases, delta, draft.once
        agents = calibrated(agents, draft.asked, *given)
        if selection.truncates and draft.noisy:
            agents = calibrated_with_limit(agents, draft.asked, draft.delta)
    multipliers = [agent.noise and agent.noise.multiplier for agent in agents]
    return noisy_draft(draft, multipliers), multipliers


def _released_once(
    draft: Draft, selection: Selection
) -> tuple[Draft, Selection, list[list[float]] | None]:
    """Return the draft with one-time releases, the selection, and the constraints' shares.

    The shares divide the violation probability over the constraints with private data.
    """
    study, program, agents = Study.of(draft.known), draft.program, draft.agents
    stakes, around, shares = study.at_stand_ins.stakes, study.responses, None
    if selection.quiet:
        pairs = zip(agents, selection.quiet, strict=True)
        agents = tuple(replace(agent, publication=q.publication) for agent, q in pairs)
    else:
        agents = published(program, agents, around, by_agent(program, stakes))
    stand_ins = stand_ins_of(draft.problem)
    if program.kept:
        shares = margin_shares(program, agents, stakes)
        if by_price(stakes):
            selection = selection.chosen(
                "violation_probability",
                "violation_probability= is divided over constraints, and noise is shaped, by the "
                "costs of margins for the proxy data; the probability holds for all data",
            )
    selection = replace(selection, forecast=of_releases(agents, stand_ins))
    if draft.algorithm.shrinks:
        agents = toward_proxy(agents, around, stand_ins)
        moved = [f"'{name}'" for agent in agents for name in agent.moved]
        if moved:
            selection = selection.chosen("shrink", TOWARD_PROXY.format(together(moved)))
    # With proxies for all released data, the data are shrunk towards them, and not the solution.
    if draft.algorithm.weighs_noise and not _proxied(agents, stand_ins):
        program = replace(program, noise=slope_noise(program, agents, around))
    return replace(draft, program=program, agents=agents), selection, shares


def _proxied(agents: Agents, proxies: Mapping[str, Sequence[Any]]) -> bool:
    """Return whether there are public proxy data for everything that is released once."""
    released = [agent.name for agent in agents if agent.publication is not None]
    return all(value is not None for name in released for value in proxies[name])
