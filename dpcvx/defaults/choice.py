"""Choices of settings that users omit, made from public facts, with reasons."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from .._arguments import is_int, one_of
from .._words import plural
from ..algorithms.admm import ADMM
from ..algorithms.base import Algorithm
from ..algorithms.federated_averaging import FederatedAveraging
from ..algorithms.federated_gradient import FederatedGradient
from ..algorithms.gradient_admm import GradientADMM
from ..algorithms.linearized_admm import LinearizedADMM
from ..algorithms.objective_perturbation import ObjectivePerturbation, has_objective
from ..algorithms.one_shot import OneShot
from ..algorithms.program import Program, compile_problem, require_convex
from ..algorithms.resource_admm import ResourceADMM
from ..algorithms.steps import smooth_constant
from ..algorithms.weighted_sums import reads_moments
from ..errors import ModelError, PrivacyError
from ..guard import understood
from ..model.adjacency import Rows, Within
from ..model.agent import Agent
from ..model.curvature import curvature
from ..model.declaration import Declaration
from ..plan.agent_plan import AgentPlan, Agents, agents_of
from ..plan.limits import with_margins
from ..plan.request import KINDS, Choice, Mechanisms, Request, asked_of
from ..privacy.accounting import check_delta
from ..privacy.mechanism import Laplace, Staircase
from ..sensitivity.queries.solutions import obstacle_to_perturbation, perturbation_bounds
from ..sensitivity.release_once import moves_one
from .clipping import with_clips
from .conditions import conditions
from .landscape import landscape
from .learning import asked_scale, may_learn, refused, with_learning
from .noisy_rounds import NoisyRounds, best_rounds, calibrated, calibrated_with_limit
from .predicted import regularization
from .remarks import SQUARED, noise_over_signal
from .response import Response
from .stakes import by_agent, margin_ratio, margin_shares, stand_ins_of
from .study import Selection, Study, predicted_gap, published, study

# Number of rounds of a method that does not choose it.
ROUNDS = 100
# Number of rounds of gradient steps on released data.
_PUBLIC_ROUNDS = 1000
# Largest predicted share of the initial suboptimality that noisy steps may leave, to be chosen.
_LOST = 0.5
# Text on the shrinkage of released values towards public proxy data.
TOWARD_PROXY = (
    "the released values of {} are moved towards their proxy (proxy=), at the level that fits "
    "them, as far as noise explains the distance (James and Stein)"
)
AS_WRITTEN = Choice(
    "algorithm",
    "1 round: the server solves the model as written, on the released data",
)
# Largest number of agents for objective perturbation: the mean of more agents' minimizers has a
# larger error than noisy steps.
_MOST = 4
# Largest random linear term for objective perturbation, relative to the largest gradient.
_LOUDEST = 0.1
_PERTURBED = (
    "objective perturbation: at delta=0, noise in one minimization costs less accuracy than noise "
    "in many steps"
)
# Two kinds of noise count as equal if the ratio of their errors is below this.
_ALIKE = 1.05
_PURE = "Laplace noise: Gaussian noise has no guarantee at delta=0"
# Staircase noise composes worse over runs. It is chosen only if its error is smaller by more than
# the factor _MUCH, which cannot be at an epsilon up to _SMALL.
_MUCH, _SMALL = 1.2, 1.0
# Subject of messages on the need for convex objectives.
_UNNAMED = "a plan without a named method"
# Relative rounding error of eigenvalues.
_ROUNDING = 1e-12


def choose(
    problem: Declaration, request: Selection, earlier: Study | None = None
) -> tuple[Selection, Study | None]:
    """Return the request with all omitted settings chosen: method, release, rounds, noise.

    A method that the user names runs as in its paper, with Gaussian noise in each step. Beside it,
    only the kind of noise for ``release="once"`` and the learned scale of records are chosen. No
    private data are read.

    Parameters
    ----------
    problem : Declaration
    request : Selection
    earlier : Study, optional
        Compiled problem with facts for defaults, if it has been compiled before.

    Returns
    -------
    request : Selection
        Request with a value for every setting.
    study : Study or None
        Compiled problem with facts for defaults; None if no choice needed it.

    Raises
    ------
    ModelError
        If the problem cannot be compiled.
    PrivacyError
        If no sensitivity can be derived, or the budget is incomplete.
    """
    named, learned = request.algorithm is not None, None
    noisy = request.mechanism is not None and any(agent.private for agent in problem.agents)
    if noisy and request.delta is not None:
        check_delta(request.delta)
    if request.as_written is not None:
        request, earlier = _as_written(problem, request, noisy)
    elif any(agent.limits for agent in problem.agents):
        request = _limited(request, noisy)
    elif isinstance(request.algorithm, ObjectivePerturbation):
        if request.chooses_noise:
            request = replace(request, mechanism="laplace")
    elif not named:
        given = request
        request, earlier = _method(problem, request, noisy, earlier)
        if request.mechanism is None and any(agent.private for agent in problem.agents):
            request = _without_noise(problem, given, request, earlier)
        at_once = isinstance(request.algorithm, OneShot) and request.release == "each_step"
        if noisy and earlier is not None and not earlier.linear and not at_once:
            pure = _with_perturbation(problem, earlier, given)
            if pure is not None:
                return _filled(replace(pure, release="each_step")), earlier
        if noisy and request.epsilon is not None and earlier is not None and not earlier.linear:
            if given.release != "once" and _summable(earlier.program) and not at_once:
                learned = with_learning(problem, earlier, _stepwise(problem, given, True))
            stepwise = learned or _drowned(problem, earlier, given, request)
            request, earlier = stepwise or (request, earlier)
    elif asked_scale(request) is not None or (noisy and may_learn(request)):
        earlier = earlier or study(problem)
        learned = with_learning(problem, earlier, request)
        request, earlier = learned or (request, earlier)
    if noisy and learned is None and asked_scale(request) is not None:
        raise refused("the problem leaves no choice of sums of gradients of records")
    request = replace(request, release=request.release or "each_step")
    settled = learned is not None or (named and request.release == "each_step")
    if noisy and request.epsilon is not None and not settled:
        earlier = earlier or study(problem)
        assert request.algorithm is not None
        if not named and request.release == "each_step" and not request.algorithm.fixed_rounds:
            steps = best_rounds(problem, earlier, request)
            clipped = None
            if steps is not None and steps.hides_clips:
                clipped = with_clips(earlier, steps.scene.distance)
            if clipped is not None:
                earlier = clipped.known
                request = request.chosen("clip_norm", clipped.why)
                steps = best_rounds(problem, earlier, request)
            if steps is not None:
                request = _as_tried(request, steps)
        request = _filled(request)
        if earlier.program.kept and request.violation_probability is not None:
            request = least_margins(problem, earlier, request)
        elif request.chooses_noise:
            request = quieter(problem, earlier, request)
    if request.chooses_noise:
        request = replace(request, mechanism="gaussian")
    return _filled(request), earlier


def _filled(request: Selection) -> Selection:
    assert request.algorithm is not None
    return replace(request, rounds=request.algorithm.fixed_rounds or request.rounds or ROUNDS)


def _method(
    problem: Declaration, request: Selection, noisy: bool, earlier: Study | None
) -> tuple[Selection, Study | None]:
    """Return the request with a method and a kind of release, and the compiled problem."""
    try:
        earlier = earlier or study(problem)
    except PrivacyError:
        if noisy:
            raise
        if not problem.is_dcp():
            require_convex(problem, _UNNAMED, _proved_convex(compile_problem(problem)))
        return _stepwise(problem, request, False), None
    convex = all(understood(agent.is_dcp, name) for name, agent in problem.named.items())
    if not convex:
        require_convex(problem, _UNNAMED, _proved_convex(earlier.program))
    once = noisy and earlier.releasable and request.release != "each_step"
    if convex and (earlier.constant or (earlier.solvable and (once or not noisy))):
        return _exact(request, earlier, noisy), earlier
    if convex and noisy and earlier.uniform and request.release != "once" and _plain(request):
        return _one_gradient(request), earlier
    if convex and noisy and substitutes(problem, request, by_moments=False):
        return _as_written(problem, request, True)
    if convex and once and not problem.coupling:
        # The data are released once in any case, and the server can solve the model exactly.
        if substitutes(problem, request, drowned=True):
            with suppress(ModelError, PrivacyError):
                return _as_written(problem, request, True)
        return _released(request), earlier
    chosen = _stepwise(problem, request, noisy and _summable(earlier.program))
    if isinstance(chosen.algorithm, ResourceADMM) and smooth_constant(earlier.program) is None:
        _check_weights(earlier)
    return chosen, earlier


def _plain(request: Selection) -> bool:
    """Return whether the user's settings allow a plan with a single round."""
    return request.rounds in (None, 1) and request.scale is None and request.observer == "everyone"


def _one_gradient(request: Selection) -> Selection:
    """Return the request for one released gradient, if that determines all that data add."""
    return replace(request, algorithm=OneShot(), release="each_step").chosen(
        "algorithm",
        "1 round: private data add a linear term to the objective, and one noisy gradient tells "
        "that term; the server then solves the joint problem",
    )


def _with_perturbation(problem: Declaration, study: Study, request: Selection) -> Selection | None:
    """Return the request with objective perturbation; None if not possible or not the default.

    Parameters
    ----------
    problem : Declaration
    study : Study
    request : Selection
        Request with the user's settings only.
    """
    # A mechanism with a noise level sets the noise of every release, which this method cannot use.
    pure = request.chooses_noise or one_of(request.mechanism, "laplace")
    free = request.algorithm is None and request.release is None and pure
    plain = request.rounds is None and request.observer == "everyone" and request.scale is None
    if not (free and plain and request.delta == 0 and study.program.coupling is None):
        return None
    method = ObjectivePerturbation()
    agents = agents_of(problem, study.program, study.sensitivities, method.requirements)
    for agent in agents:
        if agent.bound > 0 and (obstacle_to_perturbation(agent) or agent.program.limits):
            return None
        if not agent.bound > 0 and has_objective(agent.program):
            return None
    private = [agent for agent in agents if agent.bound > 0]
    if not 0 < len(private) <= _MOST or _is_loud(problem, study, request, private):
        return None
    return replace(request, algorithm=method, mechanism="laplace", rounds=1).chosen(
        "algorithm", _PERTURBED
    )


def _is_loud(
    problem: Declaration, study: Study, request: Selection, private: Sequence[AgentPlan]
) -> bool:
    """Return whether random linear terms are large relative to the gradients of the records.

    Parameters
    ----------
    problem, study, request
        See `_with_perturbation`.
    private : sequence of AgentPlan
        Agents with private data, before noise is added to them.
    """
    agents, noises = tuple(private), asked_of(problem, "laplace", request.epsilon)
    budgets = [(noise := noises[agent.name]) and noise.epsilon for agent in agents]
    if None in budgets:
        return True
    epsilon = min(
        budget / agent.share for budget, agent in zip(budgets, agents, strict=True) if budget
    )
    quiet = conditions(study.program, agents, 1, noisy_steps=False)
    held = replace(study.program, agents=tuple(agent.program for agent in agents))
    weight = regularization(agents, epsilon, landscape(held, quiet).distance)
    for agent in agents:
        term = perturbation_bounds(agent).term(epsilon, weight)
        rows = [s.shape[0] for s in agent.form.private if isinstance(s.adjacency, Rows)]
        largest = max(rows, default=1) * agent.bound
        if term is None or math.sqrt(term.variance) > _LOUDEST * largest:
            return True
    return False


def _proved_convex(program: Program) -> list[str]:
    """Return the names of agents whose Hessians are positive semidefinite for all data."""
    curvatures = [(local, curvature(local.form)) for local in program.agents if local.rest is None]
    return [
        local.name
        for local, bends in curvatures
        if bends is not None and bends.ends[0] >= -_ROUNDING * max(map(abs, bends.ends))
    ]


def _without_noise(
    problem: Declaration, given: Selection, request: Selection, study: Study | None
) -> Selection:
    """Return the request for a plan without noise.

    A remark is added if the plan with noise would take another method.
    """
    if study is None:  # a plan with noise would be refused
        return request
    noisy, _ = _method(problem, given, True, study)
    if type(noisy.algorithm) is type(request.algorithm):
        return request
    name, other = (type(each.algorithm).__name__ for each in (request, noisy))
    return request.chosen(
        "algorithm",
        f"dp.{name}, since noise is off: with noise, the plan would choose dp.{other}. Name one "
        "for both runs to see what noise alone does",
    )


def _check_weights(study: Study) -> None:
    """Refuse private weights of functions if no step size is known; suggest a one-time release."""
    for local in study.program.agents:
        sensitivity = study.sensitivities[local.name]
        if sensitivity is None or sensitivity.weights is None:
            continue
        spec = sensitivity.private[min(sensitivity.weights.members)]
        raise ModelError(
            f"Private '{spec.name}' multiplies a function of the variables of agent "
            f"'{local.name}' that is not affine, and with coupling= no step size is known for "
            f"that. Give the function f(x) a variable of its own: u = cp.Variable({spec.size}, "
            "bounds=[...]), the constraint u <= f(x) if its objective is maximized, or f(x) <= "
            "u if it is minimized, and u in place of f(x) in the objective. Then the gradient "
            f"is affine in '{spec.name}', which can be released once. Or write "
            "algorithm=dp.ResourceADMM(step=...)."
        )


def _summable(program: Program) -> bool:
    """Return whether there is no coupling, so that the server can sum gradients and make steps."""
    return program.coupling is None


def _drowned(
    problem: Declaration, study: Study, given: Selection, request: Selection
) -> tuple[Selection, Study] | None:
    """Return a request for steps along clipped gradients, if they are predicted to be better.

    The alternative is one release of the records' second moments, with too much noise. None if the
    moments are better, if the user chose a release, or if no prediction is possible.
    """
    free = given.release is None and request.release == "once" and not problem.coupling
    clipped = with_clips(study, math.inf) if free else None
    if clipped is None or not _summable(study.program):
        return None
    assert request.algorithm is not None
    ratios = []
    for kind in given.mechanisms:
        asked, needs = asked_of(problem, kind, given.epsilon), request.algorithm.requirements
        agents = agents_of(problem, study.program, study.sensitivities, needs)
        once = calibrated(agents, asked, needs, 1, 1, given.delta, True)
        ratio = noise_over_signal(
            published(study.program, once, study.responses), stand_ins_of(problem)
        )
        ratios.append(math.nan if ratio is None else ratio[0])
    stepwise = _stepwise(problem, given, True)
    steps = best_rounds(problem, clipped.known, stepwise)
    if steps is None or not steps.share() < min(_LOST, SQUARED * min(ratios) ** 2):
        return None
    why = (
        'release="each_step": one release of the records\' second moments would have too much noise'
    )
    stepwise = replace(stepwise, release="each_step").chosen("release", why)
    return stepwise.chosen("clip_norm", clipped.why), clipped.known


def _as_tried(request: Selection, steps: NoisyRounds) -> Selection:
    """Return the request with rounds and noise of `steps`, which have least predicted error."""
    noise = f" of {str(steps.mechanism).capitalize()} noise" if request.chooses_noise else ""
    if request.rounds is None or noise:
        request = request.chosen(
            "rounds",
            f"{plural(steps.rounds, 'round')}{noise}: predicted to end best for curvatures and "
            "distances that are typical of the bounds",
        )
    forecast = steps.forecast()
    return replace(request, rounds=steps.rounds, mechanism=steps.mechanism, forecast=forecast)


def _exact(request: Selection, study: Study, noisy: bool) -> Selection:
    """Return the request for exact minimization: one round, or ADMM if the user set the rounds.

    With noise, data or their terms of the objective are released once.
    """
    if request.release is None and noisy:
        why = (
            "gradients depend linearly on the private data"
            if study.linear
            else "the objective reads its records through their second moments only"
        )
        request = replace(request, release="once").chosen(
            "release", f'release="once": {why}; all that follows is post-processing'
        )
    if request.rounds is not None:
        return replace(request, algorithm=ADMM())
    return replace(request, algorithm=OneShot()).chosen(
        "algorithm", "1 round: on released data, the server alone can solve the joint problem"
    )


def substitutes(
    problem: Declaration, request: Request, by_moments: bool = True, drowned: bool = False
) -> bool:
    """Return whether a plan may release the data once and solve the model as written.

    The adjacency alone bounds the sensitivity of released data, whatever the model. For records,
    one change is as large as a record, so noise of that size hides all records, except in their
    second moments. The result is False if the user's settings exclude such a plan.

    Parameters
    ----------
    problem : Declaration
    request : Request
    by_moments : bool
        Whether records are allowed if the model depends only on their second moments.
    drowned : bool
        Whether records are allowed however large the noise is.
    """
    algorithm, noisy = request.algorithm, request.mechanism is not None
    method = algorithm is None
    if isinstance(algorithm, OneShot):
        method = algorithm.sharing is None and algorithm.as_written is None
    # The settings may have any type here: this also explains requests that were refused.
    once = request.rounds is None or (is_int(request.rounds, 1) and int(request.rounds) == 1)
    once = once and (request.release is None or one_of(request.release, "once"))
    plain = all(agent.clip_norm is None and agent.sensitivity is None for agent in problem.agents)
    small = drowned or all(_small(name, agent, by_moments) for name, agent in problem.named.items())
    return (
        method
        and once
        and plain
        and one_of(request.observer, "everyone")
        and (small or not noisy)
        and all(understood(agent.is_dcp, name) for name, agent in problem.named.items())
    )


def _small(name: str, agent: Agent, by_moments: bool) -> bool:
    """Return whether noise of the size of one change is small next to an agent's data.

    For records, with `by_moments`, it is compared with their second moments.
    """
    if all(isinstance(private.adjacency, Within) for private in agent.private):
        return True
    specs = [agent.specs(name)[private] for private in agent.private]
    return by_moments and reads_moments((agent.cost, *agent.constraints), agent.private, specs)


def _as_written(problem: Declaration, request: Selection, noisy: bool) -> tuple[Selection, Study]:
    """Return the request and compiled problem for a server that solves the model as written."""
    if request.algorithm is None:
        method = OneShot(as_written=True)
        request = replace(request, algorithm=method).chosen(AS_WRITTEN.what, AS_WRITTEN.why)
    if request.release is None and noisy:
        why = 'release="once": all that follows is post-processing'
        request = replace(request, release="once").chosen("release", why)
    return request, study(problem, request.as_written)


def _limited(request: Selection, noisy: bool) -> Selection:
    """Return the request for problems with private data in constraints, with release="once"."""
    if request.release is None and noisy:
        request = replace(request, release="once").chosen(
            "release", 'release="once": constraints contain private data'
        )
    if request.algorithm is not None:
        return request
    return replace(request, algorithm=OneShot()).chosen(
        "algorithm", "1 round: on released data, the server alone can solve the joint problem"
    )


def _released(request: Selection) -> Selection:
    """Return the request for gradient steps on data that are released once."""
    if request.release is None:
        request = replace(request, release="once").chosen(
            "release",
            'release="once": gradients depend linearly on the private data; all that follows is '
            "post-processing",
        )
    if request.rounds is None:
        request = replace(request, rounds=_PUBLIC_ROUNDS).chosen(
            "rounds", f"{_PUBLIC_ROUNDS} rounds: post-processing, which costs no privacy"
        )
    return replace(request, algorithm=LinearizedADMM())


def _stepwise(problem: Declaration, request: Selection, summed: bool) -> Selection:
    """Return the request for a method that releases in each step; `summed`: sums of gradients."""
    if summed:
        return replace(request, algorithm=FederatedGradient()).chosen(
            "algorithm",
            "the server sums the agents' noisy gradients, which averages the noise, and takes one "
            "step for all of them",
        )
    public = sum(not agent.private for agent in problem.agents)
    shared = any((count > 1).any() for count in problem.holders().values())
    method: Algorithm[Any, Any] = LinearizedADMM()
    if problem.coupling and not shared:
        method = ResourceADMM()
    elif problem.coupling and public == 1:
        method = GradientADMM()
    elif not problem.is_dcp():
        method = FederatedAveraging()
    return replace(request, algorithm=method)


def quieter(problem: Declaration, study: Study, request: Selection) -> Selection:
    """Return the request with the kind of noise that has the smallest expected error.

    Parameters
    ----------
    problem : Declaration
    study : Study
    request : Selection
        Request with all other settings chosen.

    Raises
    ------
    PrivacyError
        If noise cannot be scaled to the budget.
    """
    delta = request.delta
    if not delta:
        pure = replace(request, mechanism="laplace").chosen("mechanism", _PURE)
        return _stepped(problem, study, request, "laplace", None) or pure
    once = request.release == "once"
    quiet = {kind: _with_noise(problem, study, request, kind) for kind in KINDS}
    ratio, of = _ratio(*(_errors(study, quiet[kind], once) for kind in KINDS))
    best, other = ("laplace", "gaussian") if ratio > 1 else ("gaussian", "laplace")
    stepped = _stepped(problem, study, request, best, quiet[best])
    if stepped is not None:
        return stepped
    return _quieter(request, quiet[best], best, other, max(ratio, 1 / ratio), of)


@dataclass(frozen=True, eq=False)
class _Margins:
    """Kind of noise in data that constraints contain, and the margins of these constraints."""

    kind: Mechanisms
    limited: bool  # whether the noise is truncated
    agents: Agents  # agents with this noise
    program: Program  # program with these margins

    def times(self, other: _Margins, study: Study) -> float:
        """Return the cost of this noise's margins divided by the cost of the margins `other`."""
        return margin_ratio(self.program, other.program, study.at_stand_ins.stakes)


def least_margins(problem: Declaration, study: Study, request: Selection) -> Selection:
    """Return the request with the noise whose margins cost least: its kind and its truncation.

    The noise is in data that constraints contain. Truncated noise has smaller margins if the
    violation probability is so small that margins without truncation exceed the limit of the noise.
    Margins then cover all noise, so no constraint is violated.

    Parameters
    ----------
    problem : Declaration
    study : Study
    request : Selection
        Request with all other settings, and a `violation_probability`.

    Raises
    ------
    PrivacyError
        If noise cannot be scaled to the budget.
    """
    kinds = request.mechanisms
    limits = [False, True] if _may_limit(problem, request) else [False]
    if request.truncates:
        limits = [True]
    options: list[_Margins] = []
    for limited in limits:
        try:
            options += [_margins(problem, study, request, kind, limited) for kind in kinds]
        except PrivacyError:
            if not options:
                raise  # otherwise only truncated noise is impossible
    best = options[0]
    for option in options[1:]:
        best = option if best.times(option, study) > 1 else best
    if request.chooses_noise and request.delta:
        (other,) = (o for o in options if o.limited == best.limited and o is not best)
        given = str(best.kind), str(other.kind), other.times(best, study)
        request = _quieter(request, best.agents, *given, "margins")
    elif request.chooses_noise:
        request = replace(request, mechanism="laplace").chosen("mechanism", _PURE)
    if best.limited and not request.truncates:
        (free,) = (o for o in options if o.kind == best.kind and not o.limited)
        request = replace(request, limited=True).chosen(
            "violation_probability",
            f"truncated noise: without truncation, margins are {free.times(best, study):.2g} times "
            "as large at this violation_probability=",
        )
    return replace(request, quiet=best.agents)


def _may_limit(problem: Declaration, request: Selection) -> bool:
    """Return whether the request allows truncated noise, which costs a part of delta."""
    asked = asked_of(problem, request.mechanisms[0], request.epsilon).values()
    noises = [noise.mechanism for noise in asked if noise is not None]
    free = all(noise.per_step() is None for noise in noises)
    plain = not any(noise.single for noise in noises)
    return bool(request.delta) and free and plain and max(problem.shares(), default=1) == 1


def _margins(
    problem: Declaration, study: Study, request: Selection, kind: Mechanisms, limited: bool
) -> _Margins:
    agents = _with_noise(problem, study, replace(request, limited=limited), kind)
    violation = request.violation_probability
    assert violation is not None
    shares = margin_shares(study.program, agents, study.at_stand_ins.stakes)
    program = with_margins(study.program, agents, violation, None, shares)
    return _Margins(kind, limited, agents, program)


def _quieter(
    request: Selection, agents: Agents, best: str, other: str, less: float, of: str
) -> Selection:
    """Return the request with the better of two kinds of noise, `best`, and the reason.

    `of` names the compared error; with the noise `other`, it is `less` times as large.
    """
    more = f"{less:.2g} times" if less >= _ALIKE else "about"
    return replace(request, mechanism=best, quiet=agents).chosen(
        "mechanism",
        f"{best.capitalize()} noise: at the same guarantee, {other.capitalize()} noise has "
        f"{more} the {of}",
    )


def _with_noise(problem: Declaration, study: Study, request: Selection, kind: Mechanisms) -> Agents:
    """Return the agents with noise of this kind, and with the statistics of one-time releases."""
    assert request.algorithm is not None and request.rounds is not None
    once, needs, delta = request.release == "once", request.algorithm.requirements, request.delta
    steps = 1 if once else request.algorithm.releases(request.rounds, study.program)
    asked = asked_of(problem, kind, request.epsilon)
    agents = agents_of(problem, study.program, study.sensitivities, needs, request.expectations)
    agents = calibrated(agents, asked, needs, request.rounds, steps, delta, once)
    if request.truncates and delta:
        agents = calibrated_with_limit(agents, asked, delta)
    stakes = by_agent(study.program, study.at_stand_ins.stakes)
    return published(study.program, agents, study.responses, stakes) if once else agents


def _stepped(
    problem: Declaration, study: Study, request: Selection, other: str, quiet: Agents | None
) -> Selection | None:
    """Return the request with staircase noise if its error is much smaller; else None.

    This needs a large epsilon, and a one-time release of a statistic that changes in a single
    number. Staircase noise composes worse with later runs on the data, so a small advantage is not
    enough.

    Parameters
    ----------
    problem, study, request
        Arguments of `quieter`.
    other : str
        Kind of the best noise that is not staircase noise.
    quiet : tuple of AgentPlan or None
        Agents with that noise; computed if None.
    """
    if request.release != "once" or any(agent.limits for agent in study.program.agents):
        return None
    asked = [
        noise.epsilon for noise in asked_of(problem, "laplace", request.epsilon).values() if noise
    ]
    most = 1 / max((epsilon for epsilon in asked if epsilon), default=_SMALL)
    if Laplace().variance(most) < _MUCH * Staircase().variance(most):
        return None  # staircase noise has no advantage for any statistic
    agents = _with_noise(problem, study, request, "staircase")
    if not all(agent.publication is None or moves_one(agent.publication) for agent in agents):
        return None
    others = quiet or _with_noise(problem, study, request, other)
    ratio, of = _ratio(_errors(study, others, True), _errors(study, agents, True))
    if not ratio >= _MUCH:
        return None
    return _quieter(request, agents, "staircase", other, ratio, of)


@dataclass(frozen=True)
class Error:
    """Expected suboptimality that an agent's noise causes, and variance of this noise."""

    gap: float  # suboptimality, in units of the objective; nan or infinite if unknown
    variance: float  # variance of the noise, summed over the released components


def _errors(study: Study, agents: Agents, once: bool) -> list[Error | None]:
    """Return the expected error that each agent's noise causes; `once`: in a one-time release."""
    around = study.responses if once else [None] * len(agents)
    return [_error(*pair) for pair in zip(agents, around, strict=True)]


def _ratio(first: Sequence[Error | None], second: Sequence[Error | None]) -> tuple[float, str]:
    """Return the ratio of the errors of two kinds of noise, and the name of the compared error.

    The ratio is 1 if there is no noise.
    """
    both = zip(first, second, strict=True)
    pairs = [(a, b) for a, b in both if a is not None and b is not None]
    if not pairs:
        return 1.0, "variance"
    before, after = (sum(pair[k].gap for pair in pairs) for k in (0, 1))
    if math.isfinite(before + after):
        return (before / after if min(before, after) > 0 else 1.0), "predicted suboptimality"
    # Variances of different agents may have different units, so they are not added.
    ratios = [math.log(a.variance / b.variance) for a, b in pairs]
    return math.exp(statistics.fmean(ratios)), "variance"


def _error(agent: AgentPlan, response: Response | None) -> Error | None:
    """Return the expected error that an agent's noise causes; None without noise.

    Parameters
    ----------
    agent : AgentPlan
    response : Response or None
        Response of the problem to noise in the agent's data, if they are released once.
    """
    sensitivity, noise = agent.sensitivity, agent.noise
    if sensitivity is None or noise is None:
        return None
    if response is None:
        change = sensitivity.bound(noise.mechanism.norm).value
        if not 0 < change < math.inf:
            return None
        return Error(math.nan, agent.program.n * noise.variance(change))
    statistic = agent.publication
    if statistic is None:
        return None
    variance = statistic.size * noise.variance(statistic.sensitivity)
    return Error(predicted_gap(statistic, noise, response), variance)
