"""Search for certificates of amplification by iteration; `dpcvx.privacy.contraction` checks them.

No proof rests on this search. The symbols are those of `dpcvx.privacy.contraction`, and a turn is
one user's step. A sweep finds the multipliers of all rounds, backward from the end. The first sweep
minimizes, at each round, the loss of a turn. Each later sweep minimizes the quadratic form
:math:`P_t` on average over differences of two runs, which follow from the shifts of the previous
sweep. Contracting norms are solutions of one small semidefinite program for each rate.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from ..errors import PrivacyError
from ..privacy.contraction import (
    MOST_ROUNDS,
    MOST_VALUES,
    Certificate,
    ContractingNorm,
    Form,
    HiddenRounds,
    Iteration,
    above,
    least,
    prove,
)
from ..privacy.last_iterate import LastIterate

Array = NDArray[np.float64]
Forms = list[tuple[Array, Array]]  # (W, P) of each round, from the end backward

# Largest number of rounds and number of sweeps if x alone is released; more rounds hide hardly more
# than if (x, lambda) is released. Last, the number of sweeps if (x, lambda) is released.
_ROUNDS_OF_LAST, _SWEEPS_OF_LAST, _SWEEPS = 48, 3, 2
# A sweep ends at losses below this, in units of a turn.
_NEGLIGIBLE = 1e-20
# In the first rounds, multipliers are searched in every round; then in about every (t / 10)-th.
_EACH = 16
# Exponent of the norm that replaces the maximum over components.
_POWER = 16
# Rates rho of contraction; the last is for users whose objectives are not strongly convex.
_RATES = (0.45, 0.65, 0.8, 0.9, 0.96, 0.99, 1 + 1e-6)
# Margin in the constraints of semidefinite programs, above the solver's error and the check's.
_MARGIN = 1e-6
# Least determinant of a two by two matrix, relative to the product of its diagonal.
_SINGULAR = 1e-6
# Number of digits that multipliers are rounded to: further digits depend on the processor.
_DIGITS = 6


def certificate(iteration: Iteration, rounds: int) -> Certificate | None:
    """Return a certificate that bounds the privacy loss of a user's step; None if none is found.

    The bounds depend on the number of rounds after the turn. The effort does not depend on the
    clock. The search covers at most 16 distinct singular values and 200 rounds.

    Parameters
    ----------
    iteration : Iteration
        Constants of the iteration, such as step size, smoothness and convexity.
    rounds : int
        Number of rounds of the run.
    """
    if not 0 < len(iteration.gains) <= MOST_VALUES or rounds < 2:
        return None
    form, count = Form(iteration), min(rounds - 1, MOST_ROUNDS)
    pair = _best_pair(form)
    start = None if pair is None else least(*form.last_pair(pair))
    if pair is None or start is None:
        return None
    try:
        with np.errstate(all="ignore"):  # the check refuses nan and infinity
            rounds = min(count, _ROUNDS_OF_LAST)
            last = _chains(form, iteration, form.end, rounds, _SWEEPS_OF_LAST)
            state = _chains(form, iteration, start, count - 1, _SWEEPS, pair)
        proposed = Certificate(last, state, tuple(_contractions(form, iteration)))
        prove(proposed, iteration)
    except (PrivacyError, np.linalg.LinAlgError):
        return None
    return proposed


def certificate_for(last: LastIterate) -> Certificate | None:
    """Return a certificate of amplification for a plan's constants; None if none is found.

    Parameters
    ----------
    last : LastIterate
    """
    iteration = None if last.block is None else last.block.iteration
    return None if iteration is None else certificate(iteration, last.rounds)


def _chains(
    form: Form, iteration: Iteration, end: Array, count: int, sweeps: int, pair: float = 0.0
) -> tuple[HiddenRounds, ...]:
    """Return the multipliers and privacy losses of all sweeps; each sweep uses the last one."""
    chains, goals, weights = [], None, None
    for _ in range(sweeps):
        chain, forms = _sweep(form, end, count, goals)
        chains.append(HiddenRounds(chain[0], chain[1], pair))
        count = min(count, len(forms))
        if count == 0:
            break
        sizes = np.maximum(_sizes(form, form.after_shift(forms[-1][1])), 1e-300)
        weights = sizes if weights is None else np.sqrt(weights * sizes)
        goals = _goals(form, iteration, forms, weights / weights.max())
    return tuple(chains)


def _sweep(
    form: Form, W: Array, count: int, goals: Sequence[Array] | None
) -> tuple[tuple[tuple[tuple[float, float], ...], tuple[float, ...]], Forms]:
    """Return the multipliers, privacy loss and form P of each round, until the search fails.

    `W` is the quadratic form at the end, and `goals` has the second moments of the difference of
    two runs, by round.
    """
    multipliers, losses, forms = [], [form.of_turn(W)], []
    z, size = np.zeros(2), float(np.abs(W).max())
    for t in range(count):
        if t < _EACH or t % (t // 10) == 0:
            z = _searched(form, W / size, z, size, None if goals is None else goals[t])
        users, public, P = _believed(form, W, np.exp(z) * size)
        if P is None:
            break
        after = form.after_shift(P)
        if not np.abs(after).max() < 1e6:
            break
        multipliers.append((users, public))
        forms.append((W, P))
        W, size = after, float(np.abs(after).max())
        losses.append(form.of_turn(W))
        if losses[-1] < _NEGLIGIBLE:
            break
    return (tuple(multipliers), tuple(losses)), forms


def _believed(form: Form, W: Array, multipliers: Array) -> tuple[float, float, Array | None]:
    """Return multipliers, rounded, and the form P that they prove; None if they prove none."""
    users = public = 0.0
    for factor in (1.0, 1.03, 1.3, 3.0):
        users, public = (float(f"{factor * v:.{_DIGITS}g}") for v in multipliers)
        right = form.round(W, (users, public))
        P = least(*right)
        if P is not None and above(P, *right):
            return users, public, P
    return users, public, None


def _searched(form: Form, W: Array, z: Array, size: float, goal: Array | None) -> Array:
    """Return logarithms of multipliers that minimize the form P, for a turn or on average.

    `goal` has the second moments to average over; None minimizes the loss of a turn at this round.
    The search starts at z with steps of `size`.
    """
    # Plain numbers: with few components, numpy would take ten times as long.
    fixed = (np.swapaxes(form.next, 1, 2) @ W @ form.next).tolist()
    aims = form.b[:, :, None] * form.b[:, None, :] if goal is None else goal
    parts = [*zip(fixed, form.F.tolist(), form.G.tolist(), aims.tolist(), strict=True)]
    squares = form.squares.tolist()

    def cost(z: Array) -> float:
        try:
            return finite_cost(z)
        except (ArithmeticError, ValueError):  # overflow if forms nearly vanish
            return math.inf

    def finite_cost(z: Array) -> float:
        users, public = np.exp(np.minimum(z, 40.0)).tolist()
        losses, traces = [], []
        for right, F, G, ((a00, a01), (a10, a11)) in parts:
            (p00, p01, e0, r0), (p10, p11, e1, r1), (_, _, e, b), (_, _, _, r) = right
            p00, p11 = p00 + users * F[0][0], p11 + users * F[1][1]
            r1 = r1 + public * G[1][3]
            a, b, c = -(e + users * F[2][2]), -b, -(r + public * G[3][3])
            det = a * c - b * b
            if not (a > 0 and det > _SINGULAR * a * c):
                return math.inf
            a, b, c = a / det, 2 * (b / det), c / det
            p00 = p00 + c * e0 * e0 - b * e0 * r0 + a * r0 * r0
            p01 = p01 + c * e0 * e1 - b * e0 * r1 + a * r0 * r1
            p10 = p10 + c * e1 * e0 - b * e1 * r0 + a * r1 * r0
            p11 = p11 + c * e1 * e1 - b * e1 * r1 + a * r1 * r1
            losses.append(a00 * p00 + a01 * p01 + a10 * p10 + a11 * p11)
            traces.append(p00 + p11)
        if goal is not None:
            return math.fsum(losses) + 1e-4 * math.fsum(traces)
        shares = [
            q * (loss / (1 + size * loss) + 1e-3 * trace)
            for q, loss, trace in zip(squares, losses, traces, strict=True)
        ]
        top = max(shares)
        root = math.fsum((share / top) ** _POWER for share in shares) ** (1 / _POWER)
        return top * root + 1e-3 * math.fsum(shares)

    while math.isinf(cost(z)) and z.max() < 30:
        z = z + 1.0
    first = z + np.array([[0.0, 0.0], [0.4, 0.1], [-0.1, 0.4]])
    return _simplex(cost, z, first)


def _simplex(cost: Callable[[Array], float], z: Array, first: Array) -> Array:
    """Return an approximate minimizer of `cost`, which may be infinite, by Nelder-Mead from z."""
    height = cost(z)
    if math.isinf(height):
        return z
    options = {"initial_simplex": first, "xatol": 1e-2, "fatol": 1e-6 * height, "maxiter": 60}
    with np.errstate(invalid="ignore"):
        return minimize(cost, z, method="Nelder-Mead", options=options).x


def _sizes(form: Form, W: Array) -> Array:
    return form.squares * np.einsum("ki,kij,kj->k", form.b, W, form.b)


def _goals(form: Form, iteration: Iteration, forms: Forms, weights: Array) -> list[Array]:
    """Return second moments of the difference of two runs, by round, for quadratic objectives."""
    size = len(form.b)
    ends = [
        np.array([[1.0, 0.0], [0.0, 1.0], [slope, 0.0], [0.0, share]])
        for slope in np.array([-0.5, 0.5]) * (iteration.smooth - iteration.convex)
        for share in (0.0, 0.5, 1 / (1 + iteration.public))
    ]
    moves = [form.next @ end for end in ends]
    M = form.squares[:, None, None] * form.b[:, :, None] * form.b[:, None, :]
    goals: list[Array] = []
    for _, P in reversed(forms):
        Pb = np.einsum("kij,kj->ki", P, form.b)
        gain = Pb / (1 + np.einsum("ki,ki->k", Pb, form.b))[:, None]
        left = np.eye(2) - form.b[:, :, None] * gain[:, None, :]
        moved = left @ M @ np.swapaxes(left, 1, 2)
        traces = weights**4 * np.einsum("kii->k", moved)
        top = max(float(traces.max()), 1e-300)
        even = 1e-3 * np.maximum(traces / top, 1e-2)
        goal = (weights**4 / top)[:, None, None] * moved + even[:, None, None] * np.eye(2)
        goals.append(goal)
        M = sum((m @ moved @ np.swapaxes(m, 1, 2) for m in moves), np.zeros((size, 2, 2))) / 6
        M = M / max(float(np.abs(M).max()), 1e-300)
    return goals[::-1]


def _best_pair(form: Form) -> float | None:
    """Return the multiplier for the last two rounds that makes an earlier step lose least.

    None if no multiplier is found.
    """

    def cost(z: Array) -> float:
        right, sums = form.last_pair(float(np.exp(z[0])))
        P = least(right, sums) if (right[:, 2, 2] < 0).all() else None
        return math.inf if P is None else form.of_turn(P) * (1 + 1e-3 * float(np.abs(P).max()))

    start = np.array([math.log(2.0 * form.squares.max())])
    if math.isinf(cost(start)):
        return None
    z = _simplex(cost, start, np.array([start, start + 0.5]))
    return float(f"{math.exp(z[0]):.{_DIGITS}g}")


def _contractions(form: Form, iteration: Iteration) -> Iterator[ContractingNorm]:
    """Yield, for each rate of contraction, the norm of least size (kappa) of a user's step."""
    search = _Norms(form)
    for rho in _RATES:
        norm = search.norm(rho)
        if norm is None:
            continue
        try:
            prove(Certificate((), (), (norm,)), iteration)
        except PrivacyError:
            continue
        yield norm


class _Norms:
    """Semidefinite program for a contracting norm, compiled once for all rates."""

    def __init__(self, form: Form) -> None:
        self._form, size = form, len(form.b)
        self._P = [cp.Variable((2, 2), symmetric=True) for _ in range(size)]
        self._multipliers, kappa = cp.Variable(3, nonneg=True), cp.Variable()
        self._rho = cp.Parameter(nonneg=True)
        wide, short = np.eye(2, 4), np.eye(2, 3)
        turns = [form.squares[k] * (form.b[k] @ P @ form.b[k]) for k, P in enumerate(self._P)]
        limits = [turn <= kappa for turn in turns]
        for k, P in enumerate(self._P):
            users, public, pair = (
                self._multipliers[i] * m[k] for i, m in enumerate((form.F, form.G, form.C))
            )
            step = self._rho * (wide.T @ P @ wide) - form.next[k].T @ P @ form.next[k]
            limits.append(step - users - public >> _MARGIN * np.eye(4))
            limits.append(short.T @ P @ short - form.pair[k] - pair >> _MARGIN * np.eye(3))
        self._problem = cp.Problem(cp.Minimize(kappa), limits)

    def norm(self, rho: float) -> ContractingNorm | None:
        """Return the contracting norm for a rate rho, unchecked; None if the solver finds none."""
        self._rho.value = rho
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # inaccurate solutions are checked later
                self._problem.solve(solver="CLARABEL")
        except cp.SolverError:
            return None
        values = [variable.value for variable in (self._multipliers, *self._P)]
        if any(value is None for value in values):
            return None
        t, *forms = (np.asarray(value, dtype=float) for value in values)
        users, public, pair = (max(float(f"{value:.{_DIGITS}g}"), 0.0) for value in t)
        rounded = [[float(f"{p[i]:.10g}") for i in ((0, 0), (0, 1), (1, 1))] for p in forms]
        turn = self._form.of_turn(np.array([[[a, b], [b, c]] for a, b, c in rounded]))
        norm = tuple((a, b, c) for a, b, c in rounded)
        return ContractingNorm(rho, norm, (users, public), pair, turn)
