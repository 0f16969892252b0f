"""Certificates that are found, and what plans do with them."""

import time
from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp
from dpcvx.defaults.certificates import certificate
from dpcvx.defaults.proposal import propose
from dpcvx.plan.draft import make_terms
from dpcvx.plan.request import Request
from dpcvx.plan.terms import Terms
from dpcvx.privacy.contraction import Certificate, Iteration, prove

CHAN = Iteration(1.753 * 0.5, 1.753 * 0.5, 0.2 / 0.9, (1.753 * 0.9,), False)  # Table 1, first row
CONVEX = Iteration(1.0, 0.0, 0.0, (0.5,), False)
STRONG = Iteration(1.0, 0.3, 0.0, (0.5,), False)
FOUR = Iteration(1.0, 0.0, 0.0, (2.0, 1.28, 0.845, 0.5), False)
FLAT = Iteration(1.0, 0.0, 0.0, (0.5,), True)


def exact(k, iteration, slopes, shares):
    """The loss of a turn and k rounds of a scalar quadratic problem, from the iteration."""
    (h,), worst = iteration.gains, 0.0
    for slope in slopes:
        for share in shares:
            # (xi, omega) -> next, with e = slope xi and r = share omega.
            x = np.array([1 - slope, -h * (2 * share - 1)]) / (1 + h)
            move = np.stack([x, np.array([0, 1 - share]) - x])
            mean, noise = np.array([1.0, -1.0]) / (1 + h), np.array([[1.0], [-1.0]])
            for _ in range(k):
                mean, noise = move @ mean, np.hstack([move @ noise, [[1.0], [-1.0]]])
            worst = max(worst, mean[0] ** 2 / (noise[0] @ noise[0]))
    return worst


CASES = {
    "strongly convex f and g": (CHAN, (1.753 * 0.5,), np.linspace(0, 1 / (1 + 0.2 / 0.9), 9), 2.0),
    "strongly convex f": (STRONG, np.linspace(0.3, 1, 8), np.linspace(0, 1, 9), 2.1),
    "convex": (CONVEX, np.linspace(0, 1, 8), np.linspace(0, 1, 9), 1.25),
}


@pytest.mark.parametrize("case", CASES)
def test_losses_are_near_those_of_quadratic_problems(case):
    iteration, slopes, shares, ratio = CASES[case]
    proved = prove(certificate(iteration, 40), iteration)
    for k in (0, 1, 3, 9, 19, 39):
        least = exact(k, iteration, slopes, shares)
        assert least <= proved.of_last(np.array([k]))[0] <= ratio * least


def test_the_first_row_of_table_1_loses_little_after_nine_rounds():
    proved = prove(certificate(CHAN, 10), CHAN)
    assert proved.of_last(np.array([9]))[0] == pytest.approx(1.122e-5, rel=2e-3)
    # One norm contracts faster than the paper's, which has 0.947.
    assert min(rho for rho, _ in proved.contractions) < 0.5


def test_a_null_space_and_several_singular_values_are_covered():
    proved = prove(certificate(FLAT, 40), FLAT)
    # Users without curvature in the null space: exactly one over the number of noises.
    after = np.array([1, 3, 9, 19])
    assert proved.of_last(after) == pytest.approx(1 / (after + 1), rel=1e-4)
    several = prove(certificate(FOUR, 21), FOUR)
    alone = prove(certificate(CONVEX, 21), CONVEX)
    assert several.of_last(np.array([20]))[0] <= 1.1 * alone.of_last(np.array([20]))[0]


@pytest.mark.parametrize(
    ("iteration", "rounds"),
    [(CONVEX, 1), (replace(CONVEX, gains=()), 5), (replace(CONVEX, gains=(0.5,) * 17), 5)],
)
def test_nothing_is_searched_beyond_what_is_checked(iteration, rounds):
    assert certificate(iteration, rounds) is None


@pytest.mark.parametrize(
    "iteration",
    [
        replace(CONVEX, smooth=1e-300),  # linear users
        replace(CONVEX, gains=(1e8,)),
        replace(CONVEX, gains=(1e-8,), null=True),
        Iteration(0.01, 1e-8, 1e6, (5e8,), True),
        Iteration(1e8, 0.0, 0.0, (1.0,), False),
    ],
)
def test_extreme_constants_are_searched_without_warnings(iteration):
    found = certificate(iteration, 12)
    if found is not None:
        proved = prove(found, iteration)
        assert (proved.last <= proved.last[0] * (1 + 1e-5)).all()


def test_steps_that_expand_without_end_have_no_contraction():
    found = certificate(replace(CONVEX, smooth=3.0), 10)
    assert found is None or all(c.rho > 1 for c in found.contractions)


def test_the_effort_is_bounded_in_rounds():
    found = certificate(CONVEX, 100_000)
    assert max(len(chain.losses) for chain in (*found.last, *found.state)) <= 201


@pytest.mark.timed
@pytest.mark.parametrize("iteration", [CONVEX, STRONG, CHAN, FOUR, FLAT])
def test_a_search_takes_a_second(iteration):
    certificate(iteration, 3)  # imports
    began = time.process_time()
    certificate(iteration, 1000)
    assert time.process_time() - began < 1.0


# Plans --------------------------------------------------------------------------------------


def problem(users=20, pull=0.0):
    x, y = cp.Variable(name="x"), cp.Variable(name="y")
    agents = []
    for k in range(users):
        d = dp.Private(0.1 * k, name=f"d{k}", adjacency=dp.Within(1.0))
        loss = cp.logistic(x) / 10 + d * x / users + pull * cp.square(x)
        agents.append(dp.Agent(cp.Minimize(loss), name=f"user{k}"))
    agents.append(dp.Agent(cp.Minimize(cp.abs(y)), name="g"))
    return dp.Problem(agents, coupling=[x == y])


def request(order="fixed", rounds=200, **changes):
    method = dp.GradientADMM(order=order, returned="last", penalty=0.5, step=1.0)
    given = {"epsilon": 1.0, "delta": 1e-6, "observer": "last_iterate"} | changes
    return Request(algorithm=method, rounds=rounds, **given)


def test_a_plan_needs_less_noise_with_a_certificate():
    given = problem()
    proposal = propose(given, request())
    complete = proposal.request
    assert complete.certificate is not None
    plan = make_terms(Terms, given, complete)
    # As much noise as without it costs less, and the noise that it needs is smaller.
    bare = make_terms(Terms, given, replace(complete, certificate=None, epsilon=50.0))
    assert plan.price.epsilon <= 1.0 < bare.price.epsilon
    assert plan.guarantee.amplification.rule == "round-by-round"
    assert bare.guarantee.amplification.rule in ("local", "convex")
    assert "round-by-round bound" in str(plan.guarantee.amplification)


def test_a_plan_checks_the_certificate_of_whoever_requests_it():
    given = problem(4)
    complete = propose(given, request(rounds=4)).request
    chain = complete.certificate.last[0]
    lower = replace(chain, losses=tuple(0.5 * loss for loss in chain.losses))
    claimed = replace(complete.certificate, last=(lower,))
    with pytest.raises(dp.PrivacyError, match="it claims other losses than it proves"):
        make_terms(Terms, given, replace(complete, certificate=claimed))
    foreign = certificate(STRONG, 4)
    with pytest.raises(dp.PrivacyError, match="is refused"):
        make_terms(Terms, given, replace(complete, certificate=foreign))
    nothing = make_terms(Terms, given, replace(complete, certificate=Certificate((), ())))
    assert nothing.guarantee.amplification.rule in ("local", "convex")


def test_the_last_user_of_one_pass_gains_nothing():
    given, noise = problem(6), dp.Gaussian(noise_multiplier=3.0)
    plan = given.plan(**arguments(rounds=6, epsilon=None), mechanism=noise)
    values = list(plan.guarantee.amplification.by_agent.values())
    seen = given.plan(**arguments(rounds=6, epsilon=None, observer="everyone"), mechanism=noise)
    assert values == sorted(values) and values[0] < 0.5 * values[-1]
    assert values[-1] == pytest.approx(seen.price.epsilon, rel=1e-6)


def arguments(**changes):
    """The request's arguments of `Problem.plan`."""
    asked, names = request(**changes), ("algorithm", "rounds", "epsilon", "delta", "observer")
    found = {name: getattr(asked, name) for name in names}
    return {name: value for name, value in found.items() if value is not None}


def test_a_step_above_two_over_smoothness_needs_a_certificate():
    given = problem(4)  # 4 users of smoothness 1/40
    method = dp.GradientADMM(returned="last", penalty=0.05, step=25.0)
    options = {"rounds": 8, "delta": 1e-6, "mechanism": dp.Gaussian(noise_multiplier=3.0)}
    plan = given.plan(method, observer="last_iterate", **options)
    amplified = list(plan.guarantee.amplification.by_agent.values())
    assert amplified[0] < amplified[-1]
    wild = replace(method, step=1e4, penalty=1e-7)
    with pytest.raises(dp.PrivacyError, match="above 2 / smoothness"):
        given.plan(wild, observer="last_iterate", **options)
