"""The convergence theorems as bounds: what they are computed from, that measured gaps keep to them.

The statistical tests compare a mean over seeds with a bound of the expectation; the smallest slack
is more than four standard errors, so that a correct bound fails with probability below 1e-4.
"""

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp
from problems.power_flow.convergence import convergence_bound

P, N, SEEDS = 4, 3, 12


def target(k):
    return np.sin(np.arange(N) + k)


def problem(curvature=1.0, start=None, local=False):
    x = cp.Variable(N, name="x")
    agents = []
    for k in range(P):
        d = dp.Private(target(k), name=f"d{k}", adjacency=dp.Within(0.05))
        cost, sets = curvature / 2 * cp.sum_squares(x - d), [x >= -1, x <= 1]
        if local:
            y = cp.Variable(name=f"y{k}")
            cost, sets = cost + curvature / 2 * cp.square(y - 1), [*sets, cp.abs(y) <= 2]
        agents.append(dp.Agent(cp.Minimize(cost), sets, name=f"a{k}"))
    return dp.Problem(agents, start={} if start is None else {x: start})


def planned(step, rho=2.0, E=1, rounds=20, mechanism=None, given=None, **arguments):
    return (given or problem()).plan(
        dp.LinearizedADMM(penalty=rho, step=step, local_updates=E),
        mechanism=mechanism,
        rounds=rounds,
        delta=None if mechanism is None else 1e-6,
        **arguments,
    )


def gaps(plan, seeds=(None,)):
    optimum = dp.not_private.joint_problem(plan.problem).solve(cp.CLARABEL)
    averages = [plan.run(seed=seed).average for seed in seeds]
    return [dp.not_private.objective(plan.problem, x) - optimum for x in averages]


NOISE = {"Gaussian": dp.Gaussian(noise_multiplier=3.0), "Laplace": dp.Laplace(noise_multiplier=1.0)}
# One entry changes the gradient by 0.05 in both norms; variance per component.
VARIANCE = {"Gaussian": 0.15**2, "Laplace": 2 * 0.05**2}


@pytest.mark.parametrize("E", [1, 3])
@pytest.mark.parametrize("noise", NOISE)
def test_the_smooth_bound_is_the_papers_with_the_diameter_of_all_agents(noise, E):
    plan = planned(dp.steps.Smooth(c=0.5), E=E, mechanism=NOISE[noise])
    bound = convergence_bound(plan, gamma=3.0)
    T, DD, total = np.arange(1, 21), P * N * 4.0, P * N * VARIANCE[noise]
    first = (total * 0.5 + DD / (2 * E * 0.5)) / np.sqrt(T)
    assert bound.values == pytest.approx(first + (DD * (2 + 1 / E) + 9 / 2) / (2 * T), rel=1e-3)
    one = (total * 0.5 + DD / P / (2 * E * 0.5)) / np.sqrt(T)
    claimed = one + (DD / P * (2 + 1 / E) + 9 / 2) / (2 * T)
    assert bound.claimed_by_paper == pytest.approx(claimed, rel=1e-3)
    assert bound.equation == "25b" and list(bound.rounds) == list(T)
    assert "(25b): expected gap at most" in str(bound) and "after 20 rounds" in str(bound)


def test_the_other_two_bounds_are_the_papers_with_the_diameter_of_all_agents():
    T, DD, total = np.arange(1, 21), P * N * 4.0, P * N * VARIANCE["Gaussian"]
    norms = {f"a{k}": 1.0 + k for k in range(P)}
    GG = sum(g**2 for g in norms.values())
    plan = planned(dp.steps.Sqrt(), E=2, mechanism=NOISE["Gaussian"])
    bound = convergence_bound(plan, gamma=3.0, gradient_norm=norms)
    expected = (total + GG + DD / 4) / np.sqrt(T) + (DD * 2 + 9 / 2 + 6 * np.sqrt(DD)) / (2 * T)
    assert bound.values == pytest.approx(expected, rel=1e-3)
    plan = planned(dp.steps.StronglyConvex(), E=2, mechanism=NOISE["Gaussian"])
    bound = convergence_bound(plan, gamma=3.0, gradient_norm=norms)
    fixed = 6 * np.sqrt(DD) + DD * 2 + 4 * 9 / 2 + DD / 4 + 2 * (GG + total)
    assert bound.values == pytest.approx(fixed / (T + 1), rel=1e-3)
    assert bound.equation == "27b"


def test_only_shared_components_count_for_the_penalty():
    plan = planned(dp.steps.Smooth(c=1.0), given=problem(local=True))
    bound = convergence_bound(plan)
    assert bound.constants["R"] ** 2 == pytest.approx(P * N * 4.0)
    assert bound.constants["D"] ** 2 == pytest.approx(P * (N * 4.0 + 16.0))


@pytest.mark.parametrize("E", [1, 4])
@pytest.mark.parametrize("noise", [None, *NOISE])
@pytest.mark.parametrize("rule", ["25b", "26b", "27b"])
def test_measured_gaps_keep_to_the_bounds(rule, noise, E):
    step = {"25b": dp.steps.Smooth(), "26b": dp.steps.Sqrt(), "27b": dp.steps.StronglyConvex()}[
        rule
    ]
    given = problem(start=-np.ones(N))
    norms = {f"a{k}": np.linalg.norm(1 + np.abs(target(k))) for k in range(P)}  # on the box
    for rounds in (1, 15):
        plan = planned(step, 1.0, E, rounds, NOISE.get(noise), given)
        bound = convergence_bound(plan, gamma=1e-9 if rule == "27b" else 0.0, gradient_norm=norms)
        assert bound.equation == rule
        found = gaps(plan, range(1 if noise is None else SEEDS))
        error = np.std(found) / np.sqrt(len(found))
        assert np.mean(found) + 4 * error <= bound.values[-1]


def test_the_papers_own_bound_is_none():
    # Twenty agents at 1 with objectives x^2 / 2: after one round all are at 1/2. Without noise
    # there is nothing random in it.
    x = cp.Variable(N, name="x")
    cost, box = cp.Minimize(cp.sum_squares(x) / 2), [x >= 0, x <= 1]
    agents = [dp.Agent(cost, box, name=f"a{k}") for k in range(20)]
    given = dp.Problem(agents, start={x: np.ones(N)})
    plan = planned(dp.steps.Smooth(), 1.0, 1, 1, None, given)
    bound = convergence_bound(plan)
    (measured,) = gaps(plan)
    assert measured == pytest.approx(20 * N / 8, rel=1e-6)
    assert bound.claimed_by_paper[0] == pytest.approx(N)
    assert bound.values[0] == pytest.approx(20 * N)
    assert bound.claimed_by_paper[0] < measured < bound.values[0]


def test_nothing_is_read():
    def fails():
        raise AssertionError

    x = cp.Variable(2, name="x")
    d = dp.Private(fails, shape=2, name="d", adjacency=dp.Within(0.1))
    agent = dp.Agent(cp.Minimize(cp.sum_squares(x - d)), [cp.abs(x) <= 1])
    plan = planned(dp.steps.Smooth(), mechanism=NOISE["Gaussian"], given=dp.Problem([agent]))
    assert np.isfinite(convergence_bound(plan).values).all()


def unbounded():
    x = cp.Variable(name="x")
    d = dp.Private(0.0, name="d", adjacency=dp.Within(0.1))
    return dp.Problem([dp.Agent(cp.Minimize(cp.square(x - d)), name="open")])


@pytest.mark.parametrize(
    ("plan", "arguments", "match"),
    [
        (lambda: planned(dp.steps.Smooth(), given=unbounded()), {}, "set of agent 'open'"),
        (lambda: planned(0.1), {}, "no convergence theorem for the step size"),
        (lambda: planned(dp.steps.Smooth(L=1e-3)), {}, "smoothness constants up to 1"),
        (
            lambda: planned(dp.steps.Smooth(), dp.penalties.ResidualBalancing(1.0)),
            {},
            "never falls",
        ),
        (lambda: planned(dp.steps.Sqrt()), {}, r"gradient_norm=\.\.\."),
        (lambda: planned(dp.steps.Sqrt()), {"gradient_norm": {"a0": 1.0}}, "a0, a1, a2, a3"),
        (lambda: planned(dp.steps.Smooth()), {"gamma": -1.0}, "gamma=-1.0"),
        (lambda: planned(dp.steps.StronglyConvex()), {"gradient_norm": 1.0}, "no multiplier"),
        (
            lambda: planned(dp.steps.StronglyConvex(), dp.penalties.Growing(1.0, 0.0, 10)),
            {"gradient_norm": 1.0, "gamma": 1.0},
            "constant penalty",
        ),
        (
            lambda: problem().plan(dp.ADMM(), mechanism=None, rounds=2),
            {},
            "about dp.LinearizedADMM with noise in the gradient",
        ),
        (
            lambda: problem().plan(
                dp.LinearizedADMM(step=dp.steps.Smooth(), perturb="output"), mechanism=None
            ),
            {},
            "about dp.LinearizedADMM with noise in the gradient",
        ),
        (
            lambda: planned(dp.steps.Smooth(), mechanism=NOISE["Gaussian"], release="once"),
            {},
            "release='each_step'",
        ),
    ],
)
def test_what_the_theorems_do_not_cover_is_refused(plan, arguments, match):
    with pytest.raises(dp.ModelError, match=match):
        convergence_bound(plan(), **arguments)


def test_a_penalty_that_grows_slowly_enough_is_covered():
    plan = planned(dp.steps.StronglyConvex(), dp.penalties.Growing(1.0, 0.0, 1000))
    assert convergence_bound(plan, gamma=1.0, gradient_norm=1.0).values[-1] > 0


def test_constants_that_are_the_users_word_are_named():
    assert convergence_bound(planned(dp.steps.Smooth())).asserted == ()
    assert "asserted" not in str(convergence_bound(planned(dp.steps.Smooth())))
    bound = convergence_bound(planned(dp.steps.Sqrt()), gradient_norm=1.0)
    assert bound.asserted == ("G",) and "asserted: G" in str(bound)
    for alpha, names in ((1.0, ("G", "gamma")), (2.0, ("G", "gamma", "alpha"))):
        plan = planned(dp.steps.StronglyConvex(alpha=alpha))
        assert convergence_bound(plan, gamma=1.0, gradient_norm=1.0).asserted == names
