"""Why one change of the data moves a gradient so far and no farther, in words."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from .._words import at_most, number, together
from ..model.adjacency import Rows, Within
from .certificate import Sensitivity
from .norms import ball_norm, row_norms


def argument(sensitivities: Sequence[Sensitivity]) -> str:
    """Why these gradients' changes are bounded: every reason once, for all terms it covers."""
    parts = []
    derived = [found for found in sensitivities if found.asserted is None]
    if len(derived) < len(sensitivities):
        parts.append(
            "The bound is asserted by the user, not derived: the guarantee is as good as that "
            "claim."
        )
    if terms := _once(name for found in derived for name in found.terms):
        parts.append(
            f"Private data and variables meet in {terms} of affine arguments, so the gradient "
            "depends linearly on the data: grad = h(x) + J d. Changing the data moves it by J "
            "times the change, at every x."
        )
    weighing = (found.weights for found in derived if found.weights is not None)
    if terms := _once(name for weights in weighing for name in weights.names):
        parts.append(
            f"Private data weigh public functions of x ({terms}), so the gradient depends linearly "
            "on them: grad = h(x) + J(x) d. Changing them moves it by J(x) times the change, with "
            "J at the point of each step."
        )
    enters: dict[str, tuple[list[str], list[str]]] = {}  # what bounds a change: records, atoms
    once: dict[int, list[str]] = {}  # some take milliseconds: by what agents share that are alike
    for found in derived:
        if id(found.bounds) not in once:
            once[id(found.bounds)] = [_bounded_by(found, k) for k in range(len(found.records))]
        for reason, task in zip(once[id(found.bounds)], found.records, strict=True):
            labels, atoms = enters.setdefault(reason, ([], []))
            labels.append(found.adjacency_of(task).label)
            atoms.extend(task.names)
    for reason, (labels, atoms) in enters.items():
        each = "Each of" if len(set(labels)) > 1 else "Each"
        parts.append(f"{each} {_once(labels)} enters {_once(atoms)} by itself. {reason}")
    if names := _once((f"'{n}'" for found in derived for n in found.independent), "or"):
        parts.append(
            f"The gradient does not depend on {names}: no term of the objective holds it together "
            "with a variable."
        )
    return " ".join(parts) or "The objective holds nothing private."


def moved(known: Sensitivity, p: int, start: NDArray[np.float64]) -> str:
    """How far one change moves the gradient, in words.

    Parameters
    ----------
    known : Sensitivity
    p : {1, 2}
        The norm of the mechanism.
    start : ndarray, shape (n,)
        The point of the first step, where nothing bounds all points together.
    """
    bound = known.bound(p)
    if bound.value < math.inf:
        attained = " (attained)" if bound.tight else ""
        return f"one change moves the gradient by at most {number(bound.value)} in l{p}{attained}"
    return (
        f"one change moves the gradient by at most {at_most(known.near(p, start))} in l{p} at the "
        "start, and at each later point by a bound that is derived there"
    )


def _bounded_by(found: Sensitivity, k: int) -> str:
    adjacency = found.adjacency_of(found.records[k])
    rows = adjacency.moved_rows(found.records[k].count)
    several = "" if rows == 1 else f" One person has at most {rows} of them, whose moves add up."
    return _one_bounded_by(found, k) + several


def _one_bounded_by(found: Sensitivity, k: int) -> str:
    replaced = found.adjacency_of(found.records[k]).relation == "replace_one"
    verb = "replacing" if replaced else "adding or removing"
    if found.clips:
        task, clip = found.records[k], found.clips[k]
        alone = found.largest_contribution(task)
        length = min(alone, clip.bound)
        change = found.largest_change(task, 2)
        most = f"at most {'twice ' if change > 1.001 * length else ''}"
        if alone <= clip.bound:
            return (
                f"Its contribution to the gradient has an l2 norm of {alone:.6g} at most, of which "
                f"clip_norm={clip.bound:.6g} cuts nothing off, so {verb} one moves the gradient by "
                f"{most}that."
            )
        return (
            f"Its contribution to the gradient is clipped to l2 norm {clip.bound:.6g}, so {verb} "
            f"one moves the gradient by {most}that."
        )
    other = "another" if replaced else "a row of zeros"
    return (
        f"{verb[0].upper()}{verb[1:]} one moves the gradient by the difference between its "
        f"contribution and that of {other}, which interval arithmetic bounds for all admissible "
        "data."
    )


def figures(sensitivity: Sensitivity) -> str:
    """The bounds for each private object, in words."""
    if sensitivity.asserted is not None:
        return f"claimed: {sensitivity.asserted}"
    lines = []
    for spec, J in zip(sensitivity.private, sensitivity.jacobians, strict=True):
        if J.nnz == 0:
            continue
        adjacency = spec.adjacency
        words = (
            f"'{spec.name}', {adjacency}: J is {J.shape[0]} x {J.shape[1]} with {J.nnz} non-zeros"
        )
        if isinstance(adjacency, Rows):
            l1, l2 = (float(row_norms(J, spec, p).max()) for p in (1, 2))
            lines.append(
                f"{words}, its norm over the change of one row is at most {l1:.6g} in l1 and "
                f"{l2:.6g} in l2"
            )
            continue
        values = [ball_norm(J, adjacency.norm, p) for p in (1, 2)]
        l1, l2 = (
            f"{found.value * adjacency.radius:.6g} in l{p}{'' if found.tight else ' (upper bound)'}"
            for p, found in zip((1, 2), values, strict=True)
        )
        lines.append(f"{words}, {_norm_in_words(adjacency)} times the radius is {l1} and {l2}")
    for task in sensitivity.records:
        told: dict[str, list[str]] = {}  # members of one record may have bounds of their own
        for k in task.members:
            spec = sensitivity.private[k]
            told.setdefault(str(spec.adjacency), []).append(f"'{spec.name}'")
        records = " and ".join(f"{_once(names)}, {words}" for words, names in told.items())
        l1, l2 = (sensitivity.largest_change(task, p) for p in (1, 2))
        each = " each" if sensitivity.adjacency_of(task).moved_rows(task.count) > 1 else ""
        bounds = f"at most {l1:.6g} in l1 and {l2:.6g} in l2{each} over the agent's set"
        if not np.isfinite([l1, l2]).all():
            bounds = "each point of the agent's set has a bound of its own"
        lines.append(f"{records}: {task.count} records, {bounds}")
    return "; ".join(lines)


def _norm_in_words(adjacency: Within) -> str:
    if adjacency.norm in ("entry", 1):
        return "its largest column norm"
    if adjacency.norm == 2:
        return "its norm over the l2 ball"
    return "its norm over the box of worst signs"


def _once(names: Iterable[str], word: str = "and") -> str:
    """Each once, as in ``a, b and c``; empty where there are none."""
    found = list(dict.fromkeys(names))
    return together(found, word) if found else ""
