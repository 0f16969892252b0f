"""Default clipping of records' contributions to gradients, if less noise outweighs the bias."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..algorithms.program import LocalProgram, once_per_kind
from ..model.normal_form import Atom, NormalForm
from ..model.quadratic import is_quadratic_given_data
from ..sensitivity.certificate import Sensitivity
from ..sensitivity.intervals import Unbounded
from ..solvers.projector import Extent
from .study import Study

# Default clip as a share of the largest possible contribution near the initial point. Only records
# at their bounds with the worst fit reach that contribution. A share of 1/2 would bias fits to
# noisy labels.
SHARE = 2 / 3
# The share at the initial point if derivatives of the loss grow with labels without bound, as for
# squares and Poisson losses. Most contributions are tens of times smaller than the largest one
# within the bounds. With such a clip, squares act like absolute values, and the minimum stays if
# errors are as often positive as negative.
LABELS = 0.05
# The share at the initial point if derivatives grow with scores without bound, and labels change
# the sign of records, as for squared hinges. Most contributions stay far below the largest one.
SCORES = 0.8
# A clip must lower the noise to less than this share, to be worth its bias.
_WORTH = 0.9
# Clips weaken the gradients of records and not the penalties. All clipped records together must be
# able to have a gradient of this many times the largest slope of the penalties.
_OUTPULLS = 3.0

_WHOLE = "dp.Agent(..., clip_norm=math.inf) switches clipping off"
_NEAR = (
    "each record's contribution to a gradient is clipped at two thirds of the largest possible "
    "one near the initial point: this needs less noise, and causes a small bias if many records "
    f"fit badly; {_WHOLE}"
)
_FAR = (
    "each record's contribution to a gradient is clipped at a twentieth of the largest possible "
    "one at the initial point: this needs far less noise, and outliers have less influence, as "
    f"they have on a median; {_WHOLE}"
)
_STEEP = (
    "each record's contribution to a gradient is clipped at four fifths of the largest possible "
    f"one at the initial point: this needs less noise, and outliers have less influence; {_WHOLE}"
)
_BESIDE = (
    "each record's contribution to a gradient is clipped as low as public terms allow that steps "
    f"minimize exactly: all records together can have three times their derivatives; {_WHOLE}"
)


class ClippedProblem(NamedTuple):
    """A problem with clips for records' contributions, and the reason for them.

    `known` is the compiled problem with clips, and `why` the reason for the clips as text.
    """

    known: Study
    why: str


class _Clip(NamedTuple):
    """Clipping norm of an agent's records' contributions, and the reason for it as text."""

    length: float
    why: str


def with_clips(study: Study, distance: float) -> ClippedProblem | None:
    """Return the problem with clips for records' contributions; None if no clip is worth its bias.

    Agents whose users set a clip or asserted a sensitivity stay unchanged.

    Parameters
    ----------
    study : Study
    distance : float
        Approximate distance from the initial point to the optimum.
    """
    by_agent = once_per_kind(
        study.program.agents,
        lambda local: _clipped(local, study.sensitivities[local.name], distance),
    )
    pairs = zip(study.program.agents, by_agent, strict=True)
    lengths = [local.clip if clip is None else clip.length for local, clip in pairs]
    longer = beside_penalties(study, lengths, distance)
    if longer > 1:
        by_agent = once_per_kind(
            study.program.agents,
            lambda local: _clipped(local, study.sensitivities[local.name], distance, longer),
        )
    if all(clip is None for clip in by_agent):
        return None
    pairs = zip(study.program.agents, by_agent, strict=True)
    clips = [local.clip if clip is None else clip.length for local, clip in pairs]
    said = {clip.why for clip in by_agent if clip is not None}
    return ClippedProblem(
        study.clipped(clips), next(why for why in (_BESIDE, _FAR, _STEEP, _NEAR) if why in said)
    )


def grows_with_labels(local: LocalProgram, sensitivity: Sensitivity) -> bool:
    """Return whether contributions grow with labels, and without a set would be unbounded.

    Contributions of ``cp.exp(X @ w) - cp.multiply(y, X @ w)`` do. Contributions of
    ``cp.exp(-cp.multiply(y, X @ w))``, where a label only changes a record's sign, do not; neither
    do contributions of ``cp.multiply(y, cp.exp(-X @ w))``.

    Parameters
    ----------
    local : LocalProgram
    sensitivity : Sensitivity
    """
    if is_quadratic_given_data(local.form):
        return True
    terms = [(task.form, term.atom) for task in sensitivity.records for term in task.terms]
    # A product with nothing inside, such as X @ w, has no label.
    if not any(any(u.terms for u in a.args) and _product(form, a) for form, a in terms):
        return False
    return grows(local, sensitivity)


def grows(local: LocalProgram, sensitivity: Sensitivity) -> bool:
    """Return whether records' contributions would be unbounded without the agent's set.

    Parameters
    ----------
    local : LocalProgram
    sensitivity : Sensitivity
    """
    free = np.full(local.n, math.inf)
    try:
        bounds = [task.bound(2, Extent(-free, free)) for task in sensitivity.records]
    except Unbounded:
        return True
    return not all(np.isfinite(bound).all() for bound in bounds)


def _product(form: NormalForm, atom: Atom) -> bool:
    """Return whether an atom is a product of data and a score, without other functions inside."""
    inner = [form.atoms[j] for argument in atom.args for j, _ in argument.terms]
    return atom.rule.product is not None and all(_product(form, each) for each in inner)


def beside_penalties(study: Study, lengths: Sequence[float | None], distance: float) -> float:
    r"""Return the factor on clips that makes records outweigh public terms; it may be 0.

    If the contributions of n records, clipped to C, have random directions in d dimensions, their
    sum is at most about :math:`n C \sqrt{2 / (\pi d)}` along any one direction. If a public term
    has a kink with larger slopes, such as ``cp.norm(w)`` at 0, the optimum stays there, whatever
    the data are.

    Parameters
    ----------
    study : Study
    lengths : sequence of (float or None)
        Clipping norms, by agent; None without a clip.
    distance : float
        Approximate distance from the initial point to the optimum.
    """
    agents = study.program.agents
    bounded = [
        sensitivity for sensitivity in study.sensitivities.values() if sensitivity is not None
    ]
    # Slopes are measured over a distance within the set.
    sizes = [
        sensitivity.extent.norm2(np.arange(sensitivity.extent.lower.size))
        for sensitivity in bounded
    ]
    reach = min([distance, *sizes])
    reach = reach if 0 < reach < math.inf else 1.0
    slope = sum(
        once_per_kind(
            agents,
            lambda local: 0.0 if local.rest is None else local.proximal().slope(local.start, reach),
        )
    )
    pull = 0.0
    for local, clip in zip(agents, lengths, strict=True):
        sensitivity = study.sensitivities[local.name]
        records = (
            0
            if sensitivity is None
            else max((task.count for task in sensitivity.records), default=0)
        )
        length = math.inf if clip is None else clip
        pull += records and records * length * math.sqrt(2 / (math.pi * local.n))
    return _OUTPULLS * slope / pull if pull > 0 else 0.0


def _clipped(
    local: LocalProgram, sensitivity: Sensitivity | None, distance: float, longer: float = 1.0
) -> _Clip | None:
    if (
        sensitivity is None
        or local.clip is not None
        or local.asserted is not None
        or not sensitivity.records
    ):
        return None
    share, why = SHARE, _NEAR
    if grows_with_labels(local, sensitivity):
        share, why = LABELS, _FAR
    elif grows(local, sensitivity):
        share, why = SCORES, _STEEP
    near = _near(sensitivity.extent, local, distance if why == _NEAR else 0.0)
    try:
        largest = max(float(task.bound(2, near).max()) for task in sensitivity.records)
        for task in sensitivity.records:
            task.clipping(1.0)
    except Unbounded:
        return None
    clip = min(longer * share, 1.0) * largest
    if not 0 < clip < math.inf or not 2 * clip < _WORTH * sensitivity.bound(2).value:
        return None
    clip = float(f"{clip:.3g}")
    said = _BESIDE if longer > 1 else why
    return _Clip(clip, said)


def _near(extent: Extent, local: LocalProgram, distance: float) -> Extent:
    """Return the extent of the part of an agent's set within `distance` of the initial point."""
    start = local.start
    reach = distance + float(np.linalg.norm(start))
    ball = (np.arange(start.size), reach)
    return extent.meeting(Extent(start - distance, start + distance, (ball,)))
