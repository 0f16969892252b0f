"""Decision, from public facts, whether a run learns the scale of records before its first step."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from .._arguments import show
from ..algorithms.federated_gradient import FederatedGradient
from ..algorithms.joint import size_of
from ..algorithms.learned_scale import LOUDEST, LearnScale
from ..algorithms.program import LocalProgram, once_per_kind
from ..errors import PrivacyError
from ..model.adjacency import Rows
from ..model.declaration import Declaration
from ..model.normal_form import NormalForm
from ..plan.agent_plan import agents_of
from ..plan.draft import split_over
from ..plan.request import asked_of
from ..privacy.mechanism import Gaussian
from ..sensitivity.intervals import Unbounded
from ..solvers.projector import Extent
from .clipping import beside_penalties, grows, with_clips
from .conditions import conditions
from .landscape import landscape
from .noisy_rounds import best_rounds, calibrated
from .study import Selection, Study

# Largest number of entries of second derivatives of records, and of variables, for learning.
_LARGEST, _WIDEST = 20_000_000, 1000

_WHY = (
    "{share:.3g} % of the budget is for learning how far records move gradients, and how large "
    "the curvatures of their losses are: clip and steps follow from these numbers, in place of "
    "declared bounds. One release has noise of {noise:.2g} % of the largest sum that records can "
    "have; above {loudest:.0f} % nothing is learned. scale='declared' goes by declared bounds "
    "alone"
)
# Noise p that is assumed for a run without noise.
_QUIET = 1e-3

_NO_RECORDS = (
    "agent '{}' has no loss of records. Pass adjacency=dp.Rows(...) to dp.Private for its data, "
    "and write a loss of each row's scores, such as cp.sum(cp.logistic(-X @ w)) / n"
)
_LABELS = (
    "agent '{}' has records with {} labels, and one clip cannot fit all of them. If a row of each "
    "belongs to the same person, pass the same records= to each dp.Rows(...). Else give each label "
    "an agent of its own"
)
_WEIGHTS = (
    "private data of agent '{}' weigh functions of variables, and no clip covers such terms. Make "
    "these weights public"
)
_ASSERTED = (
    "the sensitivity of agent '{}' is asserted, and says nothing about single records. Write "
    "dp.Agent(...) without sensitivity="
)
_LIMITS = "constraints of agent '{}' contain private data, so the plan releases its data once"
_OUTSIDE = (
    "agent '{}' has terms with private data outside of its loss of records, and no clip covers "
    "them. Write one sum over rows of data with dp.Rows(...)"
)
_AFFINE = (
    "the gradient of agent '{}' is affine in its private data, so there is no curvature of records "
    "to learn. Leave out the method as well, and one release suffices"
)
_UNBOUNDED = (
    "contributions of agent '{}' have no finite bound above 0 at the initial point. Pass another "
    "point to dp.Problem(..., start={{...}}), at which gradients of records exist and are not 0"
)


class Learned(NamedTuple):
    """Request, and compiled problem with clips, for a plan that learns the records' scale."""

    request: Selection
    study: Study


def refused(reason: str) -> PrivacyError:
    """Return the error, with its reason, for a learned scale that is requested but impossible."""
    return PrivacyError(
        f"scale=dp.LearnScale() cannot be used: {reason}. Or leave scale= out, to go by declared "
        "bounds."
    )


def asked_scale(request: Selection) -> LearnScale | None:
    """Return the user's `LearnScale`; None if the user passed none."""
    scale = getattr(request.algorithm, "scale", None) or request.scale
    return scale if isinstance(scale, LearnScale) else None


def may_learn(request: Selection) -> bool:
    """Return whether a run of the user's method may learn the scale by default.

    This holds for `FederatedGradient` with ``sharing=`` and without a step size. Users must name
    this method to get secure aggregation, so naming it says nothing about its step sizes.
    """
    method = request.algorithm
    if not isinstance(method, FederatedGradient) or method.sharing is None:
        return False
    budget = request.epsilon is not None and bool(request.delta) and request.chooses_noise
    return method == _plain(method) and budget and request.rounds is None


def with_learning(problem: Declaration, study: Study, request: Selection) -> Learned | None:
    """Return the request and compiled problem for a run that learns the scale, or None.

    By default the scale is not learned if the noise is too large, if losses are nonsmooth, or if
    the user sets a clip, a step size or a noise level. Agents get clips at their declared bounds.

    Parameters
    ----------
    problem : Declaration
    study : Study
    request : Selection
        Request with a method and a budget.

    Raises
    ------
    PrivacyError
        If the user requests a learned scale, and it is not possible.
    """
    method = request.algorithm
    if not isinstance(method, FederatedGradient) or request.scale == "declared":
        return None
    asked = asked_scale(request)
    if asked is None and (method != _plain(method) or not _smooth(study)):
        return None
    scale = asked or LearnScale()
    if request.mechanism is None:
        prepared = _quiet(study, request, method, scale)
    else:
        prepared = _noisy(problem, study, request, method, scale)
    if isinstance(prepared, str):
        if asked is not None:
            raise refused(prepared)
        return None
    scale, reaching = prepared
    p = scale.noise
    assert p is not None
    if asked is None and p > LOUDEST:
        return None
    if scale.most is None and request.mechanism is not None:
        scale = _in_range(problem, study, request, method, reaching, scale)
    rounds, algorithm = request.rounds or scale.rounds, replace(method, scale=scale)
    request = replace(request, algorithm=algorithm, rounds=rounds)
    if request.chooses_noise:
        request = replace(request, mechanism="gaussian")
    if asked is None:
        words = {"share": 100 * scale.share, "noise": 100 * p, "loudest": 100 * LOUDEST}
        request = request.chosen("scale", _WHY.format(**words))
    return Learned(request, reaching)


def _plain(method: FederatedGradient) -> FederatedGradient:
    """Return a new method with the same secret sharing, and default scale and step size."""
    return FederatedGradient(sharing=method.sharing, max_colluders=method.max_colluders)


def _noisy(
    problem: Declaration,
    study: Study,
    request: Selection,
    method: FederatedGradient,
    scale: LearnScale,
) -> tuple[LearnScale, Study] | str:
    """Return the rule with noise p and the compiled problem with clips; or the obstacle as text."""
    noise = "gaussian" if request.chooses_noise else request.mechanism
    gaussian = noise == "gaussian" or (isinstance(noise, Gaussian) and noise.per_step() is None)
    if not gaussian:
        return f"mechanism={show(noise)} is not dp.Gaussian() without a level of its own"
    if not request.delta or request.epsilon is None:
        return "it divides a budget of Gaussian noise. Give epsilon=, and delta= above 0"
    if request.observer != "everyone" or request.release == "once":
        return "it needs noise in every step. Leave observer= and release= out"
    reaching = _with_reach(study, request, scale)
    if isinstance(reaching, str):
        return reaching
    # p is the noise of a single release with the whole budget, so it does not depend on rounds.
    rounds, needs = request.rounds or scale.rounds, replace(method, scale=scale).requirements
    agents = agents_of(problem, reaching.program, reaching.sensitivities, needs)
    noises = asked_of(problem, noise, request.epsilon)
    noisy = calibrated(agents, noises, needs, rounds, rounds, request.delta, False)
    noisy = split_over(noisy, needs, reaching.program, rounds)
    public = conditions(reaching.program, noisy, rounds, noisy_steps=True)
    resolved = scale.resolved(public, reaching.program)
    assert resolved.noise is not None
    return replace(scale, noise=_rounded(resolved.noise)), reaching


def _quiet(
    study: Study, request: Selection, method: FederatedGradient, scale: LearnScale
) -> tuple[LearnScale, Study] | str:
    """Return the rule and compiled problem for a run without noise; or the obstacle as text."""
    if method.sharing is not None:
        return "noise is off, and secure sums without noise have a fixed range. Drop sharing="
    reaching = _with_reach(study, request, scale)
    if isinstance(reaching, str):
        return reaching
    return replace(scale, noise=_QUIET if scale.noise is None else scale.noise), reaching


def _with_reach(study: Study, request: Selection, scale: LearnScale) -> Study | str:
    """Return the compiled problem with clips at declared bounds; or the obstacle as text."""
    agents, learning = study.program.agents, len(scale.parts)
    obstacle = next(filter(None, once_per_kind(agents, partial(_obstacle, study))), "")
    if not obstacle and request.rounds is not None and request.rounds <= learning:
        obstacle = (
            f"rounds={request.rounds} leaves no step, as the first {learning} rounds learn. Raise "
            "rounds="
        )
    return obstacle or _reaching(study)


def _obstacle(study: Study, local: LocalProgram) -> str:
    """Return why the scale of an agent's records cannot be learned; "" if there is no obstacle."""
    sensitivity, name = study.sensitivities[local.name], local.name
    if sensitivity is None:
        return _NO_RECORDS.format(name) if local.form.private else ""
    if sensitivity.asserted is not None:
        return _ASSERTED.format(name)
    if local.limits:
        return _LIMITS.format(name)
    if sensitivity.weights is not None:
        return _WEIGHTS.format(name)
    if not sensitivity.records:
        rows = any(isinstance(spec.adjacency, Rows) for spec in sensitivity.private)
        return (_AFFINE if rows else _NO_RECORDS).format(name)
    if len(sensitivity.records) > 1:
        return _LABELS.format(name, len(sensitivity.records))
    reached = [atom for atom in local.form.atoms if all(map(bool, local.form.reach(atom)))]
    if all(atom.rule.product is not None for atom in reached):
        return f"the losses of agent '{name}' are linear in its variables, and have no curvature"
    if local.n != size_of(study.program):
        return f"agent '{name}' holds some of the variables only. Let all agents hold all of them"
    if local.n > _WIDEST or _scores(local.form) * local.n > _LARGEST:
        return (
            f"the records of agent '{name}' are too many for so many variables: their curvature "
            f"is looked at in {_LARGEST} numbers at most, of {_WIDEST} variables"
        )
    return ""


def _scores(form: NormalForm) -> int:
    """Return the number of scores of an agent's records, such as entries of ``X @ w``."""
    products = (atom for atom in form.atoms if atom.rule.product == "matrix")
    return max((math.prod(atom.shape) for atom in products), default=0)


def _smooth(study: Study) -> bool:
    """Return whether the scale may be learned: all losses are smooth, and no user set a clip."""
    return all(
        once_per_kind(
            study.program.agents, lambda local: local.clip is None and _is_smooth(local.form)
        )
    )


def _is_smooth(form: NormalForm) -> bool:
    """Return whether all terms with data are smooth, so that initial curvatures are typical.

    Squares of nonsmooth atoms count as smooth, such as squared hinges.
    """
    squared = {
        j for a in form.atoms if a.rule.of_squares(a.data) for u in a.args for j, _ in u.terms
    }
    return all(
        atom.rule.smooth or j in squared
        for j, atom in enumerate(form.atoms)
        if all(map(bool, form.reach(atom)))
    )


def _reaching(study: Study) -> Study | str:
    """Return the compiled problem with clips at records' largest contributions at the start.

    Return the obstacle if these are not finite and positive, or if clips alone do not bound the
    sensitivity.
    """

    def reach(local: LocalProgram) -> float | None:
        sensitivity = study.sensitivities[local.name]
        if sensitivity is None:
            return None
        if local.clip is not None:
            return local.clip
        (records,) = sensitivity.records
        try:
            records.clipping(1.0)
            return _rounded(records.largest(2, Extent.at(local.start)))
        except Unbounded:
            return math.nan

    agents = study.program.agents
    clips = once_per_kind(agents, reach)
    for local, clip in zip(agents, clips, strict=True):
        if clip is not None and not 0 < clip < math.inf:
            return _UNBOUNDED.format(local.name)
    reaching = study.clipped(clips)
    for local in agents:
        sensitivity = reaching.sensitivities[local.name]
        if sensitivity is not None and not sensitivity.clips_alone:
            return _OUTSIDE.format(local.name)
    return reaching


def _in_range(
    problem: Declaration,
    study: Study,
    request: Selection,
    method: FederatedGradient,
    reaching: Study,
    scale: LearnScale,
) -> LearnScale:
    """Return the scale with its largest and smallest clip, as multiples of the clips in `reaching`.

    If the losses' slopes are bounded, the largest clip is the one that a run with declared steps
    would choose, if any. The smallest clip lets records outweigh the penalties.
    """
    program, declared = study.program, _plain(method)
    agents = agents_of(problem, program, study.sensitivities, declared.requirements)
    distance = landscape(program, conditions(program, agents, 1, noisy_steps=False)).distance
    lengths = [local.clip for local in reaching.program.agents]
    scale = replace(scale, least=_rounded(beside_penalties(study, lengths, distance)))
    steps = best_rounds(problem, study, replace(request, algorithm=declared, rounds=None))
    clipped = None if steps is None or not steps.hides_clips else with_clips(study, distance)
    if clipped is None:
        return scale
    ratios = [
        local.clip / length
        for local, length in zip(clipped.known.program.agents, lengths, strict=True)
        if (sensitivity := study.sensitivities[local.name]) is not None
        and local.clip
        and length
        and not grows(local, sensitivity)
    ]
    return replace(scale, most=_rounded(min(ratios))) if ratios else scale


def _rounded(number: float) -> float:
    """Return a number rounded to three digits.

    A plan's fingerprint contains it, and processors differ in the last digits.
    """
    return float(f"{number:.3g}")
