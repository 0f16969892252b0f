r"""Certificates of amplification by iteration: numbers that prove a bound, verified here.

`two_block` describes the iteration, in the notation of Chan, Xie and Zhao, and derives its bounds
from one norm, which is fixed for all problems. This module takes numbers for one problem, from any
solver, and refuses them unless they prove exactly the bounds that they state. A user's *turn* is an
iteration with the user's gradient.

**Differences of two runs.** Write :math:`\xi = dx`, :math:`\omega = A^+ (d\lambda/\beta - A dx)`,
:math:`r = A^+ B\,dy` and :math:`e = \eta\, d\nabla f`, in the singular vectors of A, which has
full row rank. For one singular value s, with :math:`h = \eta \beta s^2`, an iteration before its
noise is

.. math::
    \xi^+ = \frac{\xi - e - h (2 r - \omega)}{1 + h}, \quad
    \omega^+ = \omega - r - \xi^+ , \quad (1)

and :math:`\xi^+ = \xi - e` alone in the null space of A. The functions enter by two inequalities,
which are sums over all components:

.. math::
    F = \langle e - \eta\mu\,\xi, \eta\nu\,\xi - e \rangle \ge 0, \quad
    G = \sum h \, r (\omega - (1 + \gamma) r) \ge 0, \quad
    \gamma = \frac{\mu_g}{\beta \|B\|^2}. \quad (2)

F is the interpolation inequality of a function with modulus :math:`\mu` and smoothness
:math:`\nu`. G: optimality of y says that :math:`B' \beta (w - B y)` is a subgradient of g, with
:math:`w = \lambda/\beta - A x + c`. Subgradients of g are monotone with modulus :math:`\mu_g`, so
:math:`\langle B\,dy, dw - B\,dy \rangle \ge \mu_g \|dy\|^2 / \beta \ge \gamma \|B\,dy\|^2`; and
:math:`s^2` in one component of it is h up to a common factor. Noise in x and the user's own turn
move :math:`(\xi, \omega)` along :math:`b = (1, -1)`, or b = 1 in the null space. A turn moves it by
:math:`b\,e / (1 + h)` with :math:`\|e\| \le \eta \Delta`.

**Hiding a shift round by round.** Let :math:`U_t = Y_t + N_t` be the run with the change. Its state
before the noise of round t is :math:`Y_t`, and t = 0 is the turn. Let :math:`\tilde U_t = \tilde
Y_t + v_t + N_t` take its turn with the *other* function, and all other rounds with the same
functions. It has equal noise, and additional shifts :math:`v_t` of x. A shift depends on :math:`D_t
= Y_t - \tilde Y_t` alone. The states agree before the turn, so U is a function of the past of
:math:`\tilde U`, and so is :math:`v_t`.

*Lemma.* Let :math:`O_t = h_t + v_t + N_t` under P and :math:`O_t = h_t + N_t` under Q, with
functions :math:`h_t` and :math:`v_t` of the past, and surely :math:`\sum_t \|v_t\|^2 \le W`. Then P
and Q are at least as hard to distinguish as :math:`N(\sqrt W, \sigma^2)` and :math:`N(0,
\sigma^2)`. Proof: append a round with the shift :math:`(W - \sum \|v_t\|^2)^{1/2}`; removing it is
post-processing. Under Q the log likelihood ratio is :math:`\sum \langle v_t, N_t \rangle / \sigma^2
- W / (2 \sigma^2)`. The mean of :math:`\exp(i \theta \sum_{t \le k} \langle v_t, N_t \rangle +
\theta^2 \sigma^2 \sum_{t \le k} \|v_t\|^2 / 2)` is 1 by induction over k. So the sum is Gaussian
with variance :math:`\sigma^2 W`. The distribution of the ratio under Q determines the trade-off
function.

Take quadratic forms backward from the end: :math:`P_t` with

.. math::
    P_t(\xi, \omega) \ge W_{t+1}(\xi^+, \omega^+) + t_F F + t_G G
        \quad\text{for all}\quad (\xi, \omega, e, r), \\
    W_t(D) = \min_v \|v\|^2 + P_t(D - b v) = P_t - \frac{P_t b\, (P_t b)'}{1 + b' P_t b}, \quad (3)

where the first inequality is a sum over components, so the multipliers :math:`t_F, t_G \ge 0` are
common to them. If v attains the minimum, then :math:`\|v_t\|^2 + W_{t+1}(D_{t+1}) \le W_t(D_t)` by
(2), for all functions. The sum telescopes. If x alone is released, :math:`W_K = \xi^2`: the last
shift is all of :math:`\xi`, and both runs end in one x. If (x, lambda) is released, the last two
rounds make both equal. The shift :math:`v = -\omega` leaves only the difference :math:`x_1 = \xi +
\omega`. Hence y and lambda agree in the next round, whose shift is the image of :math:`x_1` under
(1):

.. math::
    P_{K-1} \ge \omega^2 + \Bigl(\frac{x_1 - e}{1 + h}\Bigr)^2 + t_C \,
    (e - \eta\mu x_1)(\eta\nu x_1 - e). \quad (4)

By the lemma, a turn and K rounds lose at most :math:`g_K (\eta \Delta / \sigma)^2 / 2` with
:math:`g_K = \max_s W_0(1, -1) / (1 + h)^2`, as a Gaussian mechanism does. In the form (4) the bound
also holds after more than K rounds, since further rounds are post-processing of (x, lambda).
Neither users nor g need be strongly convex, and a step size is excluded only if (3) fails.

**Contraction.** Let :math:`\rho P \ge P(\xi^+, \omega^+) + t_F F + t_G G`, and let P satisfy (4).
Then :math:`|D|^2 = P(D)` is a squared norm, and every iteration contracts it by :math:`\rho`. A
turn changes the state by at most :math:`\sqrt\kappa\, \eta \Delta` in this norm, with :math:`\kappa
= \max_s P(1, -1) / (1 + h)^2`. Two shifts move :math:`\tilde Y` by D, as in (4): :math:`-\omega`
before one round, and the remaining difference after it. Their squares add up to at most
:math:`|D|^2`. T = (K + 1) // 2 pairs of rounds move :math:`\tilde U` to U in parts. Let part j
have the norm :math:`z_j` in units of the turn, so that :math:`\sum z_j \rho^{T-1-j} =
\rho^{T-1}`. The least sum of squares is :math:`1 / \sum_{j<T} \rho^{-2j}`. If K is even, one more
round contracts before these pairs. The loss is at most :math:`\kappa \rho^e / \sum_{j<T}
\rho^{-2j}`, with e = 1 for even K and 0 for odd K.

**Verification.** (3) and (4) are linear in the multipliers. The least P for given multipliers is a
Schur complement. It is computed here and slightly enlarged, and eigenvalues test the enlarged
matrix. The margin covers all rounding errors, and relative errors of h up to 1e-10. These errors
change a matrix by at most 6e-10 of the sum of the absolute values of its terms, and its least
eigenvalue by at most 6e-10 of the norm of this sum. A certificate also states its bounds. If its
numbers prove bounds that differ by more than 1e-9 (relative), it was altered or belongs to another
problem.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..errors import PrivacyError

Array = NDArray[np.float64]
Multipliers = tuple[tuple[float, float], ...]

# Relative error of the gains h that the tests below cover.
GAIN_ERROR = 1e-10
# Least eigenvalue that counts as positive, relative to the norm of the sums of absolute values.
_COVER = 1e-9
# Relative enlargement of the least matrices, above _COVER.
_SLACK = 1e-7
# Factor of a bound that is a product of a few numbers with relative errors up to GAIN_ERROR.
_UP = 1 + 1e-9
# Relative tolerance between stated and proved bounds.
_AGREE = 1e-9
# Larger numbers in a certificate are refused, since their products could overflow.
_HUGE = 1e100
# Largest numbers of distinct singular values, rounds, contractions and chains in a certificate.
MOST_VALUES = 16
MOST_ROUNDS = 200
MOST_CONTRACTIONS = 16
MOST_CHAINS = 4


@dataclass(frozen=True)
class Iteration:
    """Constants of a noisy ADMM iteration, times its step size eta, for the module's (1) to (4)."""

    smooth: float  # eta nu
    convex: float  # eta mu
    public: float  # gamma
    gains: tuple[float, ...]  # h of the distinct singular values of A, the largest first
    null: bool  # whether A has a null space


@dataclass(frozen=True)
class HiddenRounds:
    """Multipliers that prove how rounds hide the iteration of a user before them, last first."""

    multipliers: Multipliers  # (t_F, t_G) of each round
    losses: tuple[float, ...]  # g_K for increasing numbers K of rounds, starting at the end
    pair: float = 0.0  # t_C of (4) if (x, lambda) is released


@dataclass(frozen=True)
class ContractingNorm:
    """Norm of two runs' difference: iterations contract it, and two rounds can hide it."""

    rho: float  # contraction factor of the squared norm
    norm: tuple[tuple[float, float, float], ...]  # P by component: xi^2, xi omega, omega^2
    multipliers: tuple[float, float]  # (t_F, t_G) of the contraction
    pair: float  # t_C of (4)
    kappa: float  # stated bound of a turn's squared norm


@dataclass(frozen=True)
class Certificate:
    """Numbers that prove how far iterations hide an earlier use of a user's gradient; verified."""

    last: tuple[HiddenRounds, ...]  # x is released
    state: tuple[HiddenRounds, ...]  # (x, lambda) is released
    contractions: tuple[ContractingNorm, ...] = ()


@dataclass(frozen=True, eq=False)
class Proved:
    """Proved privacy losses of one use of a user's gradient.

    The unit is ``(eta Delta)^2 / (2 sigma^2)``, for step size eta, gradient sensitivity Delta and
    noise deviation sigma.
    """

    last: Array  # if x is released: bounds by the number of rounds after the turn, from 0
    state: Array  # if (x, lambda) is released: bounds by the number of rounds
    contractions: tuple[tuple[float, float], ...]  # rho and kappa

    def hides(self, after: int) -> bool:
        """Return whether `after` later rounds reduce this privacy loss by at least 1 %."""
        return bool(self.of_last(np.array([after]))[0] < 0.99 * self.last[0])

    def of_last(self, after: NDArray[np.int64]) -> Array:
        """Return bounds of the privacy loss if x alone is released, by number of later rounds."""
        losses = self.of_state(after)
        inside = after < len(self.last)
        losses[inside] = np.minimum(losses[inside], self.last[after[inside]])
        return losses

    def of_state(self, after: NDArray[np.int64]) -> Array:
        """Return bounds of the privacy loss if (x, lambda), or a function of it, is released."""
        return np.minimum.accumulate(self.state)[np.minimum(after, len(self.state) - 1)]

    def of_pairs(self, after: NDArray[np.int64]) -> Array:
        """Return bounds of the privacy loss by contraction; infinite for 0 later rounds."""
        losses = np.full(after.shape, math.inf)
        some = after > 0
        pairs = (after[some] + 1) // 2
        for rho, kappa in self.contractions:
            sums = powers(rho**-2.0, pairs)
            first = np.where(after[some] % 2 == 0, rho, 1.0)
            losses[some] = np.minimum(losses[some], kappa * first / sums * _UP)
        return losses


def powers(base: float, count: NDArray[np.int64]) -> Array:
    """Return the sum of ``base**j`` over j < count, rounded down, at most 1e290."""
    with np.errstate(over="ignore"):
        sums = np.expm1(count * math.log(base)) / math.expm1(math.log(base))
    return np.minimum(sums, 1e290) * (1 - 1e-9)


class Form:
    """The matrices of (1) to (4) by component, in coordinates ``(xi, omega, e - c xi, r)``.

    c is the mean of ``eta mu`` and ``eta nu``, so that F is ``half^2 xi^2 - (e - c xi)^2``. If A
    has a null space, it is the last component, with omega = r = 0. There, F and G contain the
    negative squares of omega and r, so that all components have matrices of one size.
    """

    def __init__(self, iteration: Iteration) -> None:
        h = np.array([*iteration.gains, *([0.0] if iteration.null else [])])
        ones, q = np.ones_like(h), 1 / (1 + h)
        c = (iteration.smooth + iteration.convex) / 2
        half = (iteration.smooth - iteration.convex) / 2
        size, weight = len(h), h / h[0]
        self.squares = q * q
        self.b = np.stack([ones, -ones], axis=1)
        self.next = np.zeros((size, 2, 4))
        self.next[:, 0] = np.stack([(1 - c) * q, h * q, -q, -2 * h * q], axis=1)
        self.next[:, 1] = -self.next[:, 0] + np.array([0.0, 1.0, 0.0, -1.0])
        self.next_sum = np.zeros((size, 2, 4))
        self.next_sum[:, 0] = np.stack([(1 + c) * q, h * q, q, 2 * h * q], axis=1)
        self.next_sum[:, 1] = self.next_sum[:, 0] + np.array([0.0, 1.0, 0.0, 1.0])
        self.F, self.G = np.zeros((size, 4, 4)), np.zeros((size, 4, 4))
        self.F[:, 0, 0], self.F[:, 2, 2] = half * half, -1.0
        self.G[:, 1, 3] = self.G[:, 3, 1] = weight / 2
        self.G[:, 3, 3] = -weight * (1 + iteration.public)
        # Matrices of (4), in coordinates (xi, omega, e - c x1).
        second = np.stack([(1 - c) * q, (1 - c) * q, -q], axis=1)
        second_sum = np.stack([(1 + c) * q, (1 + c) * q, q], axis=1)
        self.pair, self.C = np.zeros((size, 3, 3)), np.zeros((size, 3, 3))
        self.pair[:, 1, 1] = 1.0
        self.pair_sum = self.pair + second_sum[:, :, None] * second_sum[:, None, :]
        self.pair = self.pair + second[:, :, None] * second[:, None, :]
        self.C[:, :2, :2], self.C[:, 2, 2] = half * half, -1.0
        if iteration.null:
            self.b[-1] = 1.0, 0.0
            self.next[-1, 1] = self.next_sum[-1, 1] = 0.0
            self.F[-1, 1, 1] = self.G[-1, 3, 3] = -1.0
            for matrices in (self.pair, self.pair_sum, self.C):
                matrices[-1, 1, :] = matrices[-1, :, 1] = 0.0
            self.C[-1, 1, 1] = -1.0
        self.end = np.zeros((size, 2, 2))
        self.end[:, 0, 0] = 1.0  # x is released

    def round(self, W: Array, t: tuple[float, float]) -> tuple[Array, Array]:
        """Return the right side of the module's (3), and the sums of its terms' absolute values.

        `W` is the quadratic form after the round, and `t` holds the multipliers of F and G.
        """
        flipped = np.swapaxes(self.next, 1, 2), np.swapaxes(self.next_sum, 1, 2)
        return (
            flipped[0] @ W @ self.next + t[0] * self.F + t[1] * self.G,
            flipped[1] @ np.abs(W) @ self.next_sum + t[0] * np.abs(self.F) + t[1] * np.abs(self.G),
        )

    def last_pair(self, t: float) -> tuple[Array, Array]:
        """Return the right side of the module's (4) for the multiplier t, and its terms' sums.

        The sums are of the terms' absolute values.
        """
        return self.pair + t * self.C, self.pair_sum + t * np.abs(self.C)

    def after_shift(self, P: Array) -> Array:
        """Return W of the module's (3), rounded up: the form P after the best shift of x."""
        Pb = np.einsum("kij,kj->ki", P, self.b)
        scale = 1 + np.einsum("ki,ki->k", Pb, self.b)
        away = Pb[:, :, None] * Pb[:, None, :] / scale[:, None, None]
        rounding = 1e-14 * (np.abs(P) + np.abs(away)).sum(axis=2)
        return P - away + rounding[:, :, None] * np.eye(2)

    def of_turn(self, W: Array) -> float:
        """Return the bound of the privacy loss, ``max W(1, -1) / (1 + h)^2``, rounded up."""
        terms = self.b[:, :, None] * W * self.b[:, None, :]
        sizes = terms.sum(axis=(1, 2)) + 1e-14 * np.abs(terms).sum(axis=(1, 2))
        return float((sizes * self.squares).max()) * _UP


def least(right: Array, sums: Array) -> Array | None:
    """Return the smallest P in the module's (3) or (4), slightly enlarged; None without any.

    Parameters
    ----------
    right, sums : ndarray, shape (components, d, d)
        Matrices from `Form.round` or `Form.last_pair`; P refers to the first two coordinates.
    """
    try:
        solved = np.linalg.solve(-right[:, 2:, 2:], right[:, 2:, :2])
    except np.linalg.LinAlgError:
        return None
    P = right[:, :2, :2] + right[:, :2, 2:] @ solved
    P = (P + np.swapaxes(P, 1, 2)) / 2
    if not np.isfinite(P).all():
        return None
    total = np.einsum("kii->ki", sums[:, :2, :2] + np.abs(P))
    return P + _SLACK * total[:, :, None] * np.eye(2)


def above(P: Array, right: Array, sums: Array) -> bool:
    """Return whether P is proved to be above the right side of the module's (3) or (4).

    Parameters
    ----------
    P : ndarray, shape (components, 2, 2)
        Candidate matrices.
    right, sums : ndarray, shape (components, d, d)
        Matrices from `Form.round` or `Form.last_pair`.
    """
    gap, total = -right, sums.copy()
    gap[:, :2, :2] += P
    total[:, :2, :2] += np.abs(P)
    diagonal = np.einsum("kii->ki", total)
    if not (np.isfinite(total).all() and (diagonal > 0).all()):
        return False
    scale = 1 / np.sqrt(diagonal)
    both = scale[:, :, None] * scale[:, None, :]
    try:
        lowest = np.linalg.eigvalsh(gap * both)[:, 0]
    except np.linalg.LinAlgError:
        return False
    return bool((lowest > _COVER * np.linalg.norm(total * both, axis=(1, 2))).all())


def prove(certificate: Certificate, iteration: Iteration) -> Proved:
    """Return the privacy losses that a certificate proves for an iteration.

    Parameters
    ----------
    certificate : Certificate
        Numbers from any solver; they are verified.
    iteration : Iteration
        Constants of the iteration.

    Raises
    ------
    PrivacyError
        If the numbers do not prove exactly the bounds that the certificate states.
    """
    form = Form(iteration)
    _require(
        0 < len(iteration.gains) <= MOST_VALUES
        and len(certificate.contractions) <= MOST_CONTRACTIONS
        and max(len(certificate.last), len(certificate.state)) <= MOST_CHAINS,
        "it has too many parts",
    )
    with np.errstate(over="ignore", invalid="ignore"):  # non-finite numbers prove nothing
        last, state = [np.array([form.of_turn(form.end)])], [np.zeros(0)]
        for chain in certificate.last:
            said = "the last two rounds count together, though x alone is released"
            _require(chain.pair == 0, said)
            last.append(_chain(form, form.end, chain))
        for chain in certificate.state:
            pair = _least(form.last_pair(_multiplier(chain.pair)), "the last two rounds")
            state.append(_chain(form, pair, chain))
        pairs = tuple(_contraction(form, norm) for norm in certificate.contractions)
    return Proved(_smallest(last), np.concatenate([last[0], _smallest(state)]), pairs)


def _smallest(chains: list[Array]) -> Array:
    """Return, for each number of rounds, the smallest bound of all `chains`."""
    losses = np.full(max(map(len, chains)), math.inf)
    for values in chains:
        losses[: len(values)] = np.minimum(losses[: len(values)], values)
    return losses


def _chain(form: Form, W: Array, chain: HiddenRounds) -> Array:
    """Return bounds of the privacy loss for growing numbers of rounds, from the last form W."""
    _require(
        len(chain.losses) == len(chain.multipliers) + 1 <= MOST_ROUNDS + 1,
        "its numbers of rounds do not fit together",
    )
    losses = [form.of_turn(W)]
    for t, (users, public) in enumerate(chain.multipliers):
        right = form.round(W, (_multiplier(users), _multiplier(public)))
        W = form.after_shift(_least(right, f"round {t + 1} from the end"))
        losses.append(form.of_turn(W))
    values = np.array(losses)
    _require(_agree(values, np.array(chain.losses)), "it claims other losses than it proves")
    return values


def _least(right: tuple[Array, Array], where: str) -> Array:
    P = least(*right)
    _require(P is not None and above(P, *right), f"its numbers prove nothing for {where}")
    assert P is not None
    return P


def _contraction(form: Form, claimed: ContractingNorm) -> tuple[float, float]:
    """Return a norm's verified contraction factor rho, and bound kappa of a user's change."""
    rho, flat = _multiplier(claimed.rho), np.array(claimed.norm, dtype=float)
    _require(
        flat.shape == (len(form.b), 3) and bool((np.abs(flat) < _HUGE).all()),
        "its norm has another number of components, or numbers out of range",
    )
    P = np.stack([flat[:, :2], flat[:, 1:]], axis=1)
    t = _multiplier(claimed.multipliers[0]), _multiplier(claimed.multipliers[1])
    holds = above(rho * P, *form.round(P, t)) and above(
        P, *form.last_pair(_multiplier(claimed.pair))
    )
    _require(holds, f"its norm is not proved to contract by {rho:.6g}")
    kappa = form.of_turn(P)
    _require(_agree(kappa, claimed.kappa), "it claims another cost of a turn than it proves")
    return rho, kappa


def _agree(proved: Array | float, claimed: Array | float) -> bool:
    """Return whether proved and stated bounds agree up to rounding."""
    first, other = np.asarray(proved), np.asarray(claimed)
    return bool(
        first.shape == other.shape
        and np.isfinite(other).all()
        and (np.abs(first - other) <= _AGREE * np.abs(first)).all()
    )


def _multiplier(value: float) -> float:
    _require(isinstance(value, float) and 0 <= value < _HUGE, "a multiplier is out of range")
    return value


def _require(holds: bool, why: str) -> None:
    if not holds:
        raise PrivacyError(
            f"The certificate of amplification by iteration is refused: {why}. Make the plan "
            "again: planning searches for a certificate. A certificate is valid for one problem, "
            "one penalty and one step, without any change of its numbers."
        )
