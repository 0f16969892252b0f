"""Projections by Newton's method on random cone programs, next to the interior point behind it.

A trial is a program with some points. An answer by Newton's method has to lie in the set, and no
point that is known to lie there may be closer, nor the interior point's where that reached its full
accuracy; an empty set has none; where the method certifies nothing, what comes back is the interior
point's own answer, bit for bit.
"""

from dataclasses import replace

import numpy as np
import scipy.sparse as sp

from dpcvx.model.canonical import ConeData, Cones
from dpcvx.solvers.cones import ConeTest
from dpcvx.solvers.conic import ConicProgram, Outcome
from dpcvx.solvers.newton import PLAIN, Newton, best_kernel
from dpcvx.solvers.newton_layout import layout_of
from tests.campaigns.tally import Tally

FULL = 2_000
# Points per program.
_POINTS = 3
# Bounds with so much room, in units of the program's, bind nothing, and cost the interior point
# its accuracy.
_ROOM = 1e6


def campaign(size: int, seed: int, kernel: str | None = None) -> Tally:
    """`size` programs with three points each, by one kernel or by all that are installed."""
    tally = Tally()
    for one in dict.fromkeys((PLAIN, best_kernel())) if kernel is None else (kernel,):
        _run(tally, size, seed, one)
    return tally


def _run(tally: Tally, size: int, seed: int, kernel: str) -> None:
    for trial in range(size):
        rng = np.random.default_rng([seed, trial])
        kind = KINDS[trial % len(KINDS)]
        data, inside, scale = program(rng, kind)
        ours, interior, layout = ConicProgram(data), ConicProgram(data), layout_of(data)
        if layout is not None and layout.long.size and kernel != PLAIN:
            tally.add(f"{kind}: not compiled")
            continue
        # With all steps, also where few or none of them pay.
        ours._newton = None if layout is None else Newton(layout, kernel, 45)
        interior._newton = None
        reference = ConicProgram(without_distant(data, inside, scale))
        reference._newton = None
        for _ in range(_POINTS):
            D = 10.0 ** rng.uniform(-1, 1, data.n) ** rng.integers(0, 3)
            v = inside + scale * 10.0 ** rng.uniform(-3, 2) * rng.normal(size=data.n)
            outcome, fault = judged(data, ours, interior, reference, D, v, inside, kind == "empty")
            name = f"{kind}: {outcome}"
            tally.add(
                name, None if fault is None else f"{kernel}, {seed}, {trial}, {kind}: {fault}"
            )


KINDS = (
    "ordinary", "touching", "tips", "doubled", "thin", "empty", "dependent", "redundant", "steep",
    "boxes",
)  # fmt: skip


def program(rng, kind):
    """A program, a point of its set (which an empty one does not have), and its scale."""
    n = int(rng.integers(1, 31))
    q, m = int(rng.integers(0, n // 3 + 1)), int(rng.integers(0, 2 * n))
    sizes = [int(k) for k in rng.integers(2, 8, size=rng.integers(1, 6))]
    rows = q + m + sum(sizes)
    C = np.where(rng.random((rows, n)) < min(1.0, 4 / n), rng.normal(size=(rows, n)), 0.0)
    inside = rng.normal(size=n)
    room = rng.uniform(0, 0.5, size=m)
    if kind in ("touching", "thin"):
        room *= rng.random(m) < 0.3
    if kind == "boxes":  # with bounds that bind nothing, and some at infinity
        C[q : q + m] = np.eye(n)[rng.integers(n, size=m)] * rng.choice([-1.0, 1.0], (m, 1))
        room[rng.random(m) < 0.2] = rng.choice([1e3, 1e9, 1e12, np.inf])
    slack = [np.zeros(q), room]
    for k in sizes:
        s = 0.3 * rng.normal(size=k)
        s[0] = np.linalg.norm(s[1:]) + rng.uniform(0, 1) * (kind != "touching")
        slack.append(s * (rng.random() < 0.5 if kind == "tips" else 1.0))
    s = np.concatenate(slack)
    A, b = C, C @ inside + s
    cones = Cones(q, m, tuple(sizes))
    if kind == "steep":
        unit = 10.0 ** rng.uniform(-3, 3, q + m)
        A[: q + m] *= unit[:, None]
        b[: q + m] *= unit
    parts = np.split(np.arange(rows), [q, q + m])
    if kind == "doubled":
        order = np.concatenate([np.repeat(parts[0], 2), np.repeat(parts[1], 3), parts[2], parts[2]])
        A, b, cones = A[order], b[order], Cones(2 * q, 3 * m, tuple(sizes * 2))
    if kind in ("dependent", "redundant") and q:
        more, equal = rng.normal(size=(2, q)), 2 * (kind == "dependent")
        A = np.vstack([A[:q], more @ A[:q], A[q:]])
        b = np.concatenate([b[:q], more @ b[:q], b[q:]])
        cones = Cones(q + equal, m + 2 - equal, tuple(sizes))
    if kind in ("thin", "empty"):
        a = rng.normal(size=(2, n)) * (rng.random((2, n)) < 0.5)
        a[:, rng.integers(n)] += 1.0
        width = rng.choice([0.0, 1e-6, 1e-3]) if kind == "thin" else -rng.uniform(0.01, 1)
        at = cones.zero
        A = np.vstack([A[:at], a, -a, A[at:]])
        b = np.concatenate([b[:at], a @ inside + width, -a @ inside, b[at:]])
        cones = Cones(at, cones.nonneg + 4, cones.soc)
    scale = 10.0 ** rng.choice([0.0, 0.0, -6.0, -3.0, 3.0, 6.0, 8.0])
    data = ConeData(sp.csc_array((n, n)), np.zeros(n), sp.csc_array(A), scale * b, cones, n)
    return data, scale * inside, scale


def without_distant(data, inside, scale):
    """The program without rows that a point has far more room in than it may move."""
    first, last = data.cones.zero, data.cones.zero + data.cones.nonneg
    room = data.b - data.A @ inside
    kept = ~(room > _ROOM * scale * abs(data.A).max(axis=1).toarray().ravel())
    kept[:first] = kept[last:] = True
    cones = replace(data.cones, nonneg=int(kept[first:last].sum()))
    return replace(data, A=sp.csc_array(data.A.tocsr()[kept]), b=data.b[kept], cones=cones)


def judged(data, ours, interior, reference, D, v, inside, empty):
    """How a trial ended, and what was wrong with it.

    `interior` solves the same program, `reference` that without distant rows.
    """
    if ours._newton is None:
        return "not for Newton", None
    certified = ours._newton(D, v) is not None
    answer = ours.solve(D, None, v)
    if not certified:
        other = interior.solve(D, None, v)
        both = [np.zeros(0) if one.x is None else one.x for one in (answer, other)]
        same = answer.outcome is other.outcome and np.array_equal(*both)
        return "interior point", None if same else "not the interior point's answer"
    if answer.outcome is not Outcome.SOLVED or answer.x is None:
        return "Newton", f"certified, and then {answer.outcome.name}"
    x = answer.x
    if empty:
        return "Newton", "a point of an empty set"
    finite = np.isfinite(data.b)
    sizes = abs(data.A) @ np.abs(x) + np.where(finite, np.abs(data.b), 0.0)
    slack = np.where(finite, data.b, 1e300) - data.A @ x
    violation, terms = ConeTest(data.cones)(slack), float(sizes.max(initial=0.0))
    # A row of numbers above a thousand, or a cone of them, is rounded; see `Rules`.
    far = max(1.0, 1e-2 * terms, 1e-2 * float(abs(data.A).max()) * float(np.abs(v).max()))
    if violation > 1e-10 * far:
        return "Newton", f"violation {violation:.1e} of terms {terms:.1e}"
    # The stated error, and the last digits of the numbers that are divided by weights.
    size = max(np.abs(v).max(), np.abs(x).max())
    error = answer.error + 1e-12 * np.sqrt(D.max()) * size
    # At the projection, no point of the set lies in the direction of v. The known one lies in
    # it up to its last digits, which matter by the multipliers.
    ahead = float((D * (v - x)) @ (inside - x))
    allowed = error * (error + np.sqrt(D @ (inside - x) ** 2))
    allowed += 1e-13 * np.sqrt(D.max()) * size * np.sqrt(D @ (x - v) ** 2)
    if ahead > allowed:
        return "Newton", f"a point of the set is ahead by {ahead:.1e} of {allowed:.1e}"
    # The interior point's may lie outside by more, and is closer then.
    known = reference.solve(D, None, v)
    if known.outcome is not Outcome.SOLVED:
        return "Newton, without reference", None
    if known.x is not None:
        length, other = (np.sqrt(D @ (y - v) ** 2) for y in (x, known.x))
        outside = ConeTest(data.cones)(np.where(finite, data.b, 1e300) - data.A @ known.x)
        slack = 1e-6 * length + error + np.sqrt(D.max()) * 1e-6 * size
        if outside <= 1e-9 * terms and length > other + slack:
            return "Newton", f"{length - other:.1e} farther than the interior point's"
    return "Newton", None
