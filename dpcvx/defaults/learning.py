"""Whether the scale of records is learned before the first step, by what is public."""

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
from ..model.declaration import Declaration
from ..model.normal_form import NormalForm
from ..plan.agent_plan import agents_of
from ..plan.asked import asked_of
from ..privacy.mechanism import Gaussian
from ..sensitivity.record_atoms import Unbounded
from ..solvers.projector import Extent
from .calibration import calibrated
from .clipping import beside_penalties, grows, with_clips
from .conditions import conditions
from .landscape import landscape
from .noisy_rounds import best_rounds
from .selection import Selection
from .study import Study

# Second derivatives of records are looked at in so many numbers at most, of so many variables.
_LARGEST, _WIDEST = 20_000_000, 1000

_WHY = (
    "{share:.3g} % of the budget learns how far records move gradients, and how much their losses "
    "bend: clip and steps follow from that, in place of declared bounds. One release has noise of "
    "{noise:.2g} % of the largest sum that records can have; above {loudest:.0f} % nothing is "
    "learned. scale='declared' goes by declared bounds alone"
)


_SHORT = "rounds={} leaves no step, as the first {} rounds learn. Raise rounds="
# Noise of one release next to the largest sum, where there is none.
_QUIET = 1e-3

_NO_LOSS = (
    "the private data of agent '{}' are not records (dp.Rows) in one loss of each record's scores "
    "X @ w"
)


class Learned(NamedTuple):
    """A request and a problem for a scale that is learned."""

    request: Selection
    known: Study


def refused(reason: str) -> PrivacyError:
    """Return what is raised where users ask for it and it is not possible."""
    return PrivacyError(
        f"scale=dp.LearnScale() cannot be used: {reason}. Or leave scale= out, to go by declared "
        "bounds."
    )


def with_learning(problem: Declaration, known: Study, request: Selection) -> Learned | None:
    """The request and the problem for a scale that is learned; None where it is not.

    By default it is not where noise is louder than a scale, where slopes jump, and where users
    give a clip, a step or a level of noise. Agents get clips for it.

    Parameters
    ----------
    problem : Declaration
    known : Study
    request : Selection
        With a method and a budget.

    Raises
    ------
    PrivacyError
        If users ask for it where it is not possible.
    """
    method = request.algorithm
    if not isinstance(method, FederatedGradient) or request.scale == "declared":
        return None
    asked = method.scale or (request.scale if isinstance(request.scale, LearnScale) else None)
    if asked is None and method != FederatedGradient():
        return None
    found = _learned(problem, known, request, method, asked or LearnScale())
    if asked is not None:
        if isinstance(found, str):
            raise refused(found)
        return found
    if isinstance(found, str) or not _smooth(known):
        return None
    chosen = found.request.algorithm
    assert isinstance(chosen, FederatedGradient)
    scale = chosen.scale
    assert scale is not None and scale.noise is not None
    if scale.noise > LOUDEST:
        return None
    words = {"share": 100 * scale.share, "noise": 100 * scale.noise, "loudest": 100 * LOUDEST}
    return Learned(found.request.chosen("scale", _WHY.format(**words)), found.known)


def _learned(
    problem: Declaration,
    known: Study,
    request: Selection,
    method: FederatedGradient,
    scale: LearnScale,
) -> Learned | str:
    """With the numbers of a scale that is learned; or why it is not possible."""
    if request.mechanism is None:
        return _exactly(known, request, method, scale)
    noise = "gaussian" if request.chooses_noise else request.mechanism
    gaussian = noise == "gaussian" or (isinstance(noise, Gaussian) and noise.per_step() is None)
    if not gaussian:
        return f"mechanism={show(noise)} is not dp.Gaussian() without a level of its own"
    if not request.delta or request.epsilon is None:
        return "it divides a budget of Gaussian noise. Give epsilon=, and delta= above 0"
    if request.observer != "everyone" or request.release == "once":
        return "it needs noise in every step. Leave observer= and release= out"
    reaching = _looked_at(known)
    if isinstance(reaching, str):
        return reaching
    if scale.most is None:
        scale = _in_range(problem, known, request, reaching, scale)
    program, T = reaching.program, 0
    for _ in range(2):  # how many rounds there are follows from the noise of one
        steps = replace(method, scale=scale)
        T, needs = request.rounds or scale.rounds, steps.requirements
        if T <= len(scale.parts):
            return _SHORT.format(T, len(scale.parts))
        agents = agents_of(problem, program, reaching.sensitivities, needs)
        noises = asked_of(problem, noise, request.epsilon)
        noisy = calibrated(agents, noises, needs, T, T, request.delta, False)
        public = conditions(program, noisy, T, noisy_steps=True)
        scale = replace(scale, noise=_rounded(scale.resolved(public, program).noise))
    steps = replace(method, scale=scale)
    return Learned(replace(request, algorithm=steps, rounds=T, mechanism=noise), reaching)


def _exactly(
    known: Study, request: Selection, method: FederatedGradient, scale: LearnScale
) -> Learned | str:
    """The same where noise is off: what is learned is exact, and so are the steps."""
    reaching = _looked_at(known)
    if isinstance(reaching, str):
        return reaching
    scale = replace(scale, noise=_QUIET if scale.noise is None else scale.noise)
    rounds = request.rounds or scale.rounds
    if rounds <= len(scale.parts):
        return _SHORT.format(rounds, len(scale.parts))
    steps = replace(method, scale=scale)
    return Learned(replace(request, algorithm=steps, rounds=rounds), reaching)


def _looked_at(known: Study) -> Study | str:
    """The problem with clips that reach as far as declared bounds; or what is in the way."""
    agents = known.program.agents
    reason = next(filter(None, once_per_kind(agents, partial(_obstacle, known))), "")
    reaching = None if reason else _reaching(known)
    return reaching or reason or _NO_LOSS.format(agents[0].name)


def _obstacle(known: Study, local: LocalProgram) -> str:
    """Why no scale is learned of an agent's records; empty if it can be, or nothing is private."""
    own, name = known.sensitivities[local.name], local.name
    if own is None and not local.form.private:
        return ""
    alone = own is not None and own.weights is None and own.asserted is None
    if own is None or not alone or len(own.records) != 1 or local.limits:
        return _NO_LOSS.format(name)
    reached = [atom for atom in local.form.atoms if all(map(bool, local.form.reach(atom)))]
    if all(atom.rule.product is not None for atom in reached):
        return f"the losses of agent '{name}' are linear in its variables, and have no curvature"
    if local.n != size_of(known.program):
        return f"agent '{name}' holds some of the variables only. Let all agents hold all of them"
    if local.n > _WIDEST or _scores(local.form) * local.n > _LARGEST:
        return (
            f"the records of agent '{name}' are too many for so many variables: their curvature "
            f"is looked at in {_LARGEST} numbers at most, of {_WIDEST} variables"
        )
    return ""


def _scores(form: NormalForm) -> int:
    """How many scores records have: each has a derivative by every variable."""
    products = (atom for atom in form.atoms if atom.rule.product == "matrix")
    return max((math.prod(atom.shape) for atom in products), default=0)


def _smooth(known: Study) -> bool:
    """Whether losses of records are smooth, and agents have no clips of their own."""
    return all(
        once_per_kind(
            known.program.agents, lambda local: local.clip is None and _is_smooth(local.form)
        )
    )


def _is_smooth(form: NormalForm) -> bool:
    """Whether second derivatives at the start tell of those nearby, of all that data reach.

    A square makes a kink smooth: that of squared hinges.
    """
    squared = {
        j for a in form.atoms if a.rule.of_squares(a.data) for u in a.args for j, _ in u.terms
    }
    return all(
        atom.rule.smooth or j in squared
        for j, atom in enumerate(form.atoms)
        if all(map(bool, form.reach(atom)))
    )


def _reaching(known: Study) -> Study | None:
    """The problem with clips at what declared bounds allow at the start; None if there is none."""

    def reach(local: LocalProgram) -> float | None:
        own = known.sensitivities[local.name]
        if own is None or not own.records:
            return None
        if local.clip is not None:
            return local.clip
        try:
            for task in own.records:
                task.clipping(1.0)
            found = max(task.largest(2, Extent.at(local.start)) for task in own.records)
            return _rounded(found)
        except Unbounded:
            return math.nan

    clips = once_per_kind(known.program.agents, reach)
    if not all(clip is None or 0 < clip < math.inf for clip in clips):
        return None
    found = known.clipped(clips)
    alone = (own is None or own.clips_alone for own in found.sensitivities.values())
    return found if all(alone) else None


def _in_range(
    problem: Declaration, known: Study, request: Selection, reaching: Study, scale: LearnScale
) -> LearnScale:
    """With the largest clip, and the smallest, as multiples of these.

    Where slopes of losses are bounded at all scores, the largest is the clip of declared steps, if
    these have one.
    Beside penalties, the smallest leaves records the stronger pull.
    """
    program = known.program
    agents = agents_of(problem, program, known.sensitivities, FederatedGradient().requirements)
    distance = landscape(program, conditions(program, agents, 1, noisy_steps=False)).distance
    lengths = [local.clip for local in reaching.program.agents]
    scale = replace(scale, least=_rounded(beside_penalties(known, lengths, distance)))
    plain = replace(request, algorithm=FederatedGradient(), rounds=None)
    steps = best_rounds(problem, known, plain)
    hides = steps is not None and steps.hides_clips
    declared = with_clips(known, distance) if hides else None
    if declared is None:
        return scale
    found = math.inf
    for local, clip in zip(declared.known.program.agents, lengths, strict=True):
        own = known.sensitivities[local.name]
        if own is not None and local.clip and clip and not grows(local, own):
            found = min(found, local.clip / clip)
    return replace(scale, most=_rounded(found)) if found < math.inf else scale


def _rounded(number: float | None) -> float:
    """To three digits: fingerprints name it, and processors round its last digits differently."""
    assert number is not None
    return float(f"{number:.3g}")
