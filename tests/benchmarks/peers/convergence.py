"""How fast the peers reach the optimum of a common problem, without noise."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .environments import Peer, PeerFailed, Run, commands, installed, run
from .exchange import Instance
from .instances import optimum

TOLERANCE = 1e-3


@dataclass(frozen=True)
class Row:
    """One peer on one problem; `missing` says why there are no numbers.

    Attributes
    ----------
    rounds : int or None
        After which gap and violation of the agents' mean stay below the tolerance.
    seconds : float
        Until then, or until the last round; the model's declaration counts, imports do not.
    per_round : float
        Seconds, after the first round.
    ran : int
    gap, violation, spread : float
        After the last round: relative gap and violation of the mean, distance of copies from it.
    """

    peer: str
    rho: float = np.nan
    rounds: int | None = None
    seconds: float = np.nan
    per_round: float = np.nan
    ran: int = 0
    gap: float = np.nan
    violation: float = np.nan
    spread: float = np.nan
    versions: str = ""
    note: str = ""
    missing: str = ""


def judged(inst: Instance, best: float, found: Run, peer: str, rho: float) -> Row:
    """Compare a run with the optimum."""
    gaps = np.array([abs(inst.objective(x) - best) for x in found.points]) / abs(best)
    off = np.array([inst.violation(x) for x in found.points])
    outside = np.flatnonzero((gaps > TOLERANCE) | (off > TOLERANCE))
    ran = len(gaps)
    first = 0 if outside.size == 0 else int(outside[-1]) + 1
    each = np.diff(found.seconds)
    return Row(
        peer,
        rho,
        first + 1 if first < ran else None,
        float(found.seconds[min(first, ran - 1)]),
        float(np.median(each)) if each.size else np.nan,
        ran,
        float(gaps[-1]),
        float(off[-1]),
        float(found.spread[-1]),
        ", ".join(f"{name} {number}" for name, number in found.versions.items()),
        found.note,
    )


def faster(row: Row) -> tuple[float, float]:
    """Order of the penalties tried: fewest rounds, then smallest error."""
    return (np.inf if row.rounds is None else row.rounds, max(row.gap, row.violation))


def rows(
    inst: Instance,
    peers: Sequence[Peer],
    envs: Path | None,
    *,
    rounds: int,
    rhos: Sequence[float],
    repeats: int,
    timeout: float,
    progress: Callable[[str], None],
) -> list[Row]:
    """Choose each peer's penalty by the true gap, then time all of them in turns."""
    best, _ = optimum(inst)
    found: list[list[Row]] = []

    def once(peer: Peer, rho: float) -> Row:
        progress(f"{peer.label}, rho = {rho:g}")
        made = run(peer, inst, envs, rounds=rounds, rho=rho, timeout=timeout)
        return judged(inst, best, made, peer.label, rho if peer.penalized else np.nan)

    for peer in peers:
        if not installed(peer, envs):
            line = " && ".join(" ".join(c) for c in commands(peer, envs or Path("ENVS")))
            found.append([Row(peer.label, missing=f"not installed: {line}")])
            continue
        try:
            tried = rhos if peer.penalized else rhos[:1]
            found.append([min((once(peer, rho) for rho in tried), key=faster)])
        except PeerFailed as error:
            found.append([Row(peer.label, missing=str(error))])
    for _ in range(repeats - 1):
        for peer, own in zip(peers, found, strict=True):
            if not own[0].missing:
                own.append(once(peer, rhos[0] if np.isnan(own[0].rho) else own[0].rho))
    return [middle(own) for own in found]


def middle(own: Sequence[Row]) -> Row:
    """The repetition of median time."""
    if own[0].missing:
        return own[0]
    each = statistics.median_low(row.seconds for row in own)
    return next(row for row in own if row.seconds == each)
