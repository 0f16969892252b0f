"""What is believed of a certificate: what its numbers prove for the constants of the block."""

from dataclasses import replace

import numpy as np
import pytest

import dpcvx as dp
from dpcvx.privacy.contraction import (
    Certificate,
    ContractingNorm,
    Form,
    HiddenRounds,
    Iteration,
    Proved,
    above,
    least,
    powers,
    prove,
)
from dpcvx.privacy.last_iterate import stopped
from dpcvx.privacy.two_block import TwoBlock, bounds

# One singular value, eta nu = 1, eta beta = 1/2: users that are strongly convex, g is not.
ITERATION = Iteration(smooth=1.0, convex=0.3, public=0.0, gains=(0.5,), null=False)


# Of a search, with digits that are kept.
CONTRACTION = ContractingNorm(
    rho=0.8,
    norm=((1.02002467, 0.1469717546, 1.224028245),),
    multipliers=(2.738024, 0.9921933),
    pair=0.8888902,
    kappa=0.8667152923333932,
)


def chain(iteration=ITERATION, multipliers=((1.5, 1.0), (0.45, 0.25))):
    """Rounds with these multipliers, and what they leave of a turn."""
    form = Form(iteration)
    W, losses = form.end, [form.of_turn(form.end)]
    for t in multipliers:
        W = form.after_shift(least(*form.round(W, t)))
        losses.append(form.of_turn(W))
    return HiddenRounds(multipliers, tuple(losses))


def whole():
    return Certificate((chain(),), (), (CONTRACTION,))


def test_a_certificate_proves_what_it_claims():
    given = whole()
    found = prove(given, ITERATION)
    assert list(found.last) == list(given.last[0].losses)
    assert list(found.state) == [found.last[0]]
    assert found.last[2] < found.last[1] < found.last[0]
    assert found.contractions == ((0.8, CONTRACTION.kappa),)


def test_without_parts_nothing_but_the_plain_loss_is_proved():
    found = prove(Certificate((), ()), ITERATION)
    assert found.last == pytest.approx([1 / 1.5**2]) and list(found.state) == list(found.last)
    assert found.contractions == ()


def changed(value, factor):
    """Every declaration that differs in one number, which is multiplied."""
    if isinstance(value, float):
        yield value * factor
    elif isinstance(value, tuple):
        for k, part in enumerate(value):
            yield from ((*value[:k], other, *value[k + 1 :]) for other in changed(part, factor))
    else:
        for name in value.__dataclass_fields__:
            for other in changed(getattr(value, name), factor):
                yield replace(value, **{name: other})


# Two singular values and a null space, every constant another one.
SEVERAL = Iteration(smooth=1.1, convex=0.3, public=0.2, gains=(0.5, 0.125), null=True)


def form_of(vector, matrices):
    return np.einsum("ki,kij,kj->k", vector, matrices, vector)


def test_matrices_are_the_iteration_and_the_inequalities_that_are_derived():
    """Equations (1) to (4) with numbers, component by component; the last is the null space."""
    form, rng = Form(SEVERAL), np.random.default_rng(0)
    h = np.array([0.5, 0.125, 0.0])
    for _ in range(5):
        xi, omega, e, r = rng.normal(size=(4, 3))
        z = np.stack([xi, omega, e - 0.7 * xi, r], axis=1)
        new_xi = (xi - e - h * (2 * r - omega)) / (1 + h)
        new_omega = omega - r - new_xi
        moved = np.einsum("kij,kj->ki", form.next, z)
        assert moved[:, 0] == pytest.approx(new_xi)
        assert moved[:2, 1] == pytest.approx(new_omega[:2]) and moved[2, 1] == 0
        users = (e - 0.3 * xi) * (1.1 * xi - e) - [0, 0, omega[2] ** 2]
        assert form_of(z, form.F) == pytest.approx(users)
        public = h / 0.5 * r * (omega - 1.2 * r) - [0, 0, r[2] ** 2]
        assert form_of(z, form.G) == pytest.approx(public)
        x1 = xi + omega * [1, 1, 0]
        pair = (omega * [1, 1, 0]) ** 2 + ((x1 - e) / (1 + h)) ** 2
        z = np.stack([xi, omega, e - 0.7 * x1], axis=1)
        assert form_of(z, form.pair) == pytest.approx(pair)
        users = (e - 0.3 * x1) * (1.1 * x1 - e) - [0, 0, omega[2] ** 2]
        assert form_of(z, form.C) == pytest.approx(users)
        assert form_of(z[:, :2], form.end) == pytest.approx(xi**2)
    W = rng.normal(size=(3, 2, 2))
    W = W @ np.swapaxes(W, 1, 2)
    for right, sums in (form.round(W, (1.5, 0.7)), form.last_pair(0.4)):
        assert (np.abs(right) <= sums).all()
    # xi enters the third coordinate as well: |1| + |c| over 1 + h.
    assert form.next_sum[:, 0, 0] == pytest.approx(1.7 / (1 + h))
    assert form.pair_sum[:, 0, 0] == pytest.approx((1.7 / (1 + h)) ** 2)
    assert form.pair_sum[:2, 1, 1] == pytest.approx(1 + (1.7 / (1 + h[:2])) ** 2)


def test_a_shift_takes_the_least_sum_of_squares_and_a_turn_has_the_largest_size():
    form, rng = Form(SEVERAL), np.random.default_rng(0)
    b = np.array([[1.0, -1.0], [1.0, -1.0], [1.0, 0.0]])
    P = rng.normal(size=(3, 2, 2))
    P = P @ np.swapaxes(P, 1, 2)
    W = form.after_shift(P)
    for D in rng.normal(size=(20, 3, 2)):
        # A quadratic in v from three of its values.
        zero, plus, minus = (form_of(D - v * b, P) + v * v for v in (0.0, 1.0, -1.0))
        least_sum = zero - (plus - minus) ** 2 / 8 / (plus + minus - 2 * zero)
        excess = form_of(D, W) - least_sum
        # Rounded up, by more than the errors of this.
        assert (excess > -1e-15).all() and (excess < 1e-12 * (1 + np.abs(zero))).all()
    assert (np.linalg.eigvalsh(W - form.after_shift(P / 2)) > 0).all()
    # b' P b = 5, and P b is (1, -4).
    left = form.after_shift(np.tile(np.diag([1.0, 4.0]), (3, 1, 1)))[0]
    margin = left - np.array([[1 - 1 / 6, 4 / 6], [4 / 6, 4 - 16 / 6]])
    assert np.diag(margin) * 1e14 == pytest.approx([1 + 5 / 6, 4 + 20 / 6], rel=0.1)
    sizes = form_of(b, W) / np.array([1.5, 1.125, 1.0]) ** 2
    assert 0 < form.of_turn(W) / sizes.max() - 1 < 2e-9


def test_sums_of_powers_are_rounded_down_and_finite():
    counts = np.arange(1, 40)
    exact = np.cumsum(1.5 ** np.arange(39))
    low = powers(1.5, counts)
    assert (low < exact).all() and low == pytest.approx(exact, rel=2e-9)
    assert 0.9e290 < powers(4.0, np.array([10**6]))[0] <= 1e290


def test_a_certificate_has_up_to_four_chains_of_each_kind():
    pair = least(*Form(ITERATION).last_pair(2.0))
    left = Form(ITERATION).of_turn(pair)
    state = HiddenRounds((), (left,), 2.0)
    found = prove(Certificate((chain(),) * 4, (state,) * 4), ITERATION)
    assert list(found.state) == [found.last[0], left]
    for given in (Certificate((chain(),) * 5, ()), Certificate((), (state,) * 5)):
        with pytest.raises(dp.PrivacyError, match="too many parts"):
            prove(given, ITERATION)


@pytest.mark.parametrize("factor", [1 - 1e-3, 1 + 1e-3, -1.0, float("nan"), float("inf")])
def test_a_certificate_with_one_changed_number_is_refused(factor):
    given = whole()
    others = [one for one in changed(given, factor) if one != given]
    assert len(others) >= 12  # of those that are not zero
    for other in others:
        if other.contractions[0].rho > given.contractions[0].rho and factor > 1:
            continue  # a slower contraction, which is true
        if _same_proof(given, other):
            continue  # a multiplier with slack, and the same claims
        with pytest.raises(dp.PrivacyError, match="certificate of amplification.*is refused"):
            prove(other, ITERATION)


def _same_proof(given, other):
    """Whether claims are equal, so that nothing smaller is claimed than was proved before."""
    return given.contractions[0].kappa == other.contractions[0].kappa and (
        given.contractions[0].norm == other.contractions[0].norm
        and given.contractions[0].rho == other.contractions[0].rho
        and given.last == other.last
    )


@pytest.mark.parametrize(
    "other",
    [
        replace(ITERATION, smooth=1.5),
        replace(ITERATION, convex=0.1),
        replace(ITERATION, gains=(0.3,)),
        replace(ITERATION, gains=(0.5, 0.3)),
        replace(ITERATION, null=True),
    ],
)
def test_a_certificate_of_another_problem_is_refused(other):
    with pytest.raises(dp.PrivacyError, match="is refused"):
        prove(Certificate((chain(),), ()), other)
    with pytest.raises(dp.PrivacyError, match="is refused"):
        prove(Certificate((), (), (CONTRACTION,)), other)


@pytest.mark.parametrize(
    "given",
    [
        Certificate((HiddenRounds(((0.0, 0.0),), (0.4, 0.3)),), ()),
        Certificate((HiddenRounds(((1.5, 1.0),), (0.4,)),), ()),
        Certificate((), (HiddenRounds((), (0.4,), 0.0),)),
        Certificate((HiddenRounds((), (1 / 1.5**2,)),) * 9, ()),
        Certificate((), (), (ContractingNorm(0.1, ((1.0, 0.0, 1.0),), (1.0, 1.0), 1.0, 0.4),)),
        Certificate((), (), (ContractingNorm(0.9, (), (1.0, 1.0), 1.0, 0.4),)),
        Certificate((), (), (ContractingNorm(0.9, ((1.0, 0.0, 1.0),), (1, 1), 1.0, 0.4),)),  # pyright: ignore[reportArgumentType]
    ],
)
def test_nonsense_is_refused(given):
    with pytest.raises(dp.PrivacyError, match="is refused"):
        prove(given, ITERATION)


def test_matrices_above_others_are_told_from_those_that_are_not():
    rng = np.random.default_rng(0)
    for _ in range(200):
        M = rng.standard_normal((4, 4))
        right = -(M @ M.T)[None]
        right[0, 2:, 2:] -= 0.1 * np.eye(2)
        sums = np.abs(right)
        P = least(right, sums)
        assert above(P, right, sums)
        assert np.linalg.eigvalsh(np.pad(P[0], (0, 2)) - right[0])[0] > 0
        below = P - 1e-6 * np.abs(P).max() * np.eye(2)
        assert not above(below, right, sums)


def test_the_margin_covers_errors_of_singular_values():
    """What is proved for gains holds for gains that differ by the error that is covered."""
    form, rng = Form(ITERATION), np.random.default_rng(1)
    for _ in range(100):
        W = rng.standard_normal((1, 2, 2))
        W, t = W @ np.swapaxes(W, 1, 2), (5.0, 5.0 * (1 + 9 * rng.random()))
        W = W / np.abs(W).max()
        right, sums = form.round(W, t)
        P = least(right, sums)
        if P is None or not above(P, right, sums):
            continue
        for error in (-1e-10, 1e-10):
            moved = Form(replace(ITERATION, gains=(0.5 * (1 + error),)))
            gap = -moved.round(W, t)[0]
            gap[:, :2, :2] += P
            assert np.linalg.eigvalsh(gap)[0, 0] > 0


def test_bounds_after_more_rounds_than_are_proved_are_those_of_the_whole_state():
    proved = Proved(np.array([1.0, 0.4, 0.2]), np.array([1.0, 0.6, 0.7, 0.1]), ((0.5, 2.0),))
    after = np.array([0, 1, 2, 3, 50])
    assert list(proved.of_state(after)) == [1.0, 0.6, 0.6, 0.1, 0.1]
    assert list(proved.of_last(after)) == [1.0, 0.4, 0.2, 0.1, 0.1]
    # kappa rho^e over the sum of rho^-2j: one pair; one pair and a round; two pairs.
    assert proved.of_pairs(np.array([0, 1, 2, 3])) == pytest.approx([np.inf, 2.0, 1.0, 2.0 / 5.0])
    assert proved.hides(1) and not Proved(np.ones(2), np.ones(2), ()).hides(1)


# Blocks -------------------------------------------------------------------------------------


def block(**changes):
    arguments = {"nu": 1.0, "mu": 0.3, "beta": 0.5, "eta": 1.0} | changes
    return TwoBlock.of(np.eye(1), -np.eye(1), **arguments)


def test_a_block_takes_the_minimum_with_todays_rules():
    plain = block()
    iteration = plain.iteration
    assert iteration.gains == pytest.approx((0.5,)) and not iteration.null
    certified = replace(plain, certificate=Certificate((chain(iteration),), ()))
    after = np.arange(5)
    before, found = (bounds(b, 1.0, 1.0, after, x_alone=True) for b in (plain, certified))
    assert np.array_equal(before[:3], found[:3]) and np.isinf(before[3:]).all()
    assert found[4, :3] == pytest.approx(certified.proved.last / 2, rel=1e-8)
    state = bounds(certified, 1.0, 1.0, after)
    assert (state[4] == state[4, 0]).all()


def test_a_certificate_of_other_steps_is_no_part_of_a_block():
    certified = replace(block(), certificate=Certificate((chain(block().iteration),), ()))
    with pytest.raises(dp.PrivacyError, match="is refused"):
        replace(certified, eta=0.9)


def test_singular_values_that_are_close_count_once_and_ill_conditioned_ones_not():
    def spectrum(*values):
        return TwoBlock.of(np.diag(values), np.eye(len(values)), nu=1, beta=1, eta=1).spectrum

    assert spectrum(1.0, 1.0 + 1e-14, 2.0) == pytest.approx((2.0, 1.0))
    assert len(spectrum(1.0, 1.0 + 1e-9)) == 2
    assert spectrum(1.0, 1e3) == () and len(spectrum(*range(1, 18))) == 0
    given = Certificate((), ())
    with pytest.raises(dp.PrivacyError, match="needs the singular values of A"):
        replace(block(), spectrum=(), certificate=given)


def test_random_stopping_does_not_rely_on_bounds_that_fall():
    """Users further from the end may lose more by a bound for x alone than those nearer."""
    certified = replace(block(), certificate=Certificate((chain(block().iteration),), ()))
    uneven = Proved(np.array([0.4, 0.1, 0.3, 0.05]), np.array([0.4]), ())
    object.__setattr__(certified, "proved", uneven)
    found = stopped(certified, 1.0, 1.0, users=4)
    # Two rounds at most after user 3 of 4; user 2 may have two, and user 1 three.
    assert found.rho == pytest.approx(np.array([0.4, 0.3]) / 2, rel=1e-8)
    assert least_of(certified, np.arange(4)) == pytest.approx(uneven.last / 2, rel=1e-8)


def least_of(certified, after):
    return bounds(certified, 1.0, 1.0, after, x_alone=True)[4]
