"""What a plan chooses where its user leaves a choice."""

import math
import re

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp
from tests.instances import power_line

BUDGET = {"epsilon": 1.0, "delta": 1e-6}
DECLARED = BUDGET | {"scale": "declared"}
RECORDS = 5000


def regression(loss):
    """Records of three features and an answer."""
    w = cp.Variable(3, name="w")
    rows = {"records": "person"}
    X = dp.Private(shape=(RECORDS, 3), name="X", adjacency=dp.Rows(1.0, **rows))
    y = dp.Private(shape=RECORDS, name="y", adjacency=dp.Rows(1.0, **rows))
    return dp.Problem([dp.Agent(cp.Minimize(loss(X, y, w)), [cp.norm(w) <= 1])])


def logistic(X, y, w):
    return cp.sum(cp.logistic(-cp.multiply(y, X @ w)))


def squares(X, y, w):
    return cp.sum_squares(X @ w - y)


def test_data_leave_once_where_gradients_are_affine_in_them():
    plan = power_line().problem.plan(**BUDGET)
    assert plan.published and plan.price.epsilon == pytest.approx(1.0)
    assert "once" in str(plan) and "depend linearly on the private data" in " ".join(
        str(plan).split()
    )


def test_second_moments_leave_once():
    assert regression(squares).plan(**DECLARED).published


def test_records_that_leave_once_are_put_into_the_model():
    """Steps along their noisy gradients ended near the start, 384 above the optimum."""
    X = np.random.default_rng(0).uniform(0.1, 1.0, (200, 4))
    counts = np.minimum(np.random.default_rng(1).poisson(X @ [1.0, 2.0, 0.5, 1.5]), 10.0)
    y = dp.Private(counts, bounds=(0, 10), name="y", adjacency=dp.Rows(10.0))
    w = cp.Variable(4, name="w")
    agent = dp.Agent(cp.Minimize(cp.sum(X @ w) - y @ cp.log(X @ w)), [w >= 0.1, w <= 5])
    plan = dp.Problem([agent]).plan(epsilon=10.0, delta=1e-6)
    assert plan.algorithm.as_written and plan.release == "once"

    def loss(at):
        return np.sum(X @ at) - counts @ np.log(X @ at)

    best = cp.Problem(cp.Minimize(cp.sum(X @ w) - counts @ cp.log(X @ w)), agent.constraints)
    gaps = [loss(plan.run(seed=seed)["w"]) - best.solve() for seed in range(3)]
    assert np.median(gaps) < 5


def test_other_losses_of_records_are_asked_in_each_step():
    plan = regression(logistic).plan(**BUDGET)
    assert plan.release == "each_step" and isinstance(plan.algorithm, dp.FederatedGradient)


def test_one_release_of_few_entries_has_laplace_noise_and_many_releases_gaussian_noise():
    once = power_line().problem.plan(**BUDGET)
    assert isinstance(once.agents[0].noise.mechanism, dp.Laplace)
    steps = regression(logistic).plan(**BUDGET)
    assert isinstance(steps.agents[0].noise.mechanism, dp.Gaussian)


def test_one_release_of_many_entries_that_change_together_has_gaussian_noise():
    x = cp.Variable(200, name="x")
    d = dp.Private(shape=200, name="d", adjacency=dp.Within(1.0, norm=2))
    problem = dp.Problem([dp.Agent(cp.Minimize(cp.sum_squares(x - d)))])
    assert isinstance(problem.plan(**BUDGET).agents[0].noise.mechanism, dp.Gaussian)


def one_number(adjacency, **agent):
    data = dp.Private([2.0, 3.0], name="d", adjacency=adjacency)
    x = cp.Variable(2, name="x")
    return dp.Problem([dp.Agent(cp.Minimize(cp.sum_squares(x - d)), **agent) for d in [data]])


@pytest.mark.parametrize("delta", [0, 1e-6])
@pytest.mark.parametrize(("epsilon", "kind"), [(0.5, "Laplace"), (1, "Laplace"), (3, "Staircase")])
def test_numbers_that_change_alone_have_staircase_noise_from_where_it_is_much_smaller(
    epsilon, delta, kind
):
    plan = one_number(dp.Within(0.1)).plan(epsilon=epsilon, delta=delta)
    assert str(plan.agents[0].noise.mechanism) == kind
    why = next(choice.why for choice in plan.choices if choice.what == "mechanism")
    assert why.startswith(kind)
    # Entries that change together are hidden by other noise.
    together = one_number(dp.Within(0.1, norm=1)).plan(epsilon=epsilon, delta=delta)
    assert str(together.agents[0].noise.mechanism) == "Laplace"


def test_at_delta_zero_noise_is_laplace():
    plan = power_line().problem.plan(epsilon=1.0, delta=0)
    assert plan.guarantee.delta == 0
    assert isinstance(plan.agents[0].noise.mechanism, dp.Laplace)


@pytest.mark.parametrize("delta", [np.array([1e-6, 1e-5]), np.array([1e-6]), "small", 1.0, -1e-6])
@pytest.mark.parametrize("release", [None, "once", "each_step"])
@pytest.mark.parametrize("algorithm", [None, dp.LinearizedADMM()])
@pytest.mark.parametrize("mechanism", ["auto", "laplace", dp.Laplace(release_epsilon=0.1)])
def test_deltas_that_are_none_are_refused_in_words(delta, release, algorithm, mechanism):
    with pytest.raises(dp.PrivacyError, match="delta must be at least 0 and below 1"):
        power_line().problem.plan(
            algorithm, mechanism=mechanism, release=release, epsilon=1.0, delta=delta
        )


def test_a_delta_that_is_none_is_refused_where_steps_are_noisy():
    with pytest.raises(dp.PrivacyError, match="delta must be .*, got <ndarray of shape"):
        regression(logistic).plan(epsilon=1.0, delta=np.array([1e-6, 1e-5]))


def test_what_is_given_is_kept():
    problem = power_line().problem
    plan = problem.plan(mechanism="gaussian", **BUDGET)
    assert isinstance(plan.agents[0].noise.mechanism, dp.Gaussian) and plan.published
    assert not problem.plan(release="each_step", **BUDGET).published
    assert problem.plan(rounds=7, **BUDGET).rounds == 7
    named = problem.plan(dp.LinearizedADMM(), **BUDGET)
    assert named.choices == () and not named.published and named.rounds == 100
    assert isinstance(named.agents[0].noise.mechanism, dp.Gaussian)


def test_a_plan_without_noise_says_where_noise_would_bring_another_method():
    problem = regression(logistic)
    plain = problem.plan(mechanism=None, rounds=30)
    (choice,) = plain.choices
    other = type(problem.plan(rounds=30, **BUDGET).algorithm).__name__
    assert choice.what == "algorithm" and choice.why in " ".join(str(plain).split())
    assert f"dp.{type(plain.algorithm).__name__}, " in choice.why and f"dp.{other}." in choice.why
    assert other != type(plain.algorithm).__name__
    assert problem.plan(dp.LinearizedADMM(), mechanism=None).choices == ()
    same = power_line().problem.plan(mechanism=None, rounds=30)  # ADMM, with noise and without
    assert same.choices == ()


def test_what_is_chosen_depends_on_nothing_private():
    w = cp.Variable(2, name="w")
    d = dp.Private(shape=2, name="d", adjacency=dp.Within(0.1))
    problem = dp.Problem([dp.Agent(cp.Minimize(cp.sum_squares(w - d)), [cp.abs(w) <= 1])])
    one = problem.plan(**BUDGET)
    for data in (np.zeros(2), np.ones(2)):
        problem.solve(**BUDGET, data={"d": data}, seed=1)
        assert problem.plan(**BUDGET).fingerprint == one.fingerprint


def test_a_coupling_chooses_a_method_that_takes_it():
    agents, variables = [], []
    for name in "ab":
        x = cp.Variable(2, name=f"x{name}")
        X = dp.Private(shape=(5, 2), name=f"X{name}", adjacency=dp.Rows(1.0, records=name))
        cost = cp.Minimize(cp.sum(cp.logistic(X @ x)))
        agents.append(dp.Agent(cost, [cp.abs(x) <= 1], name=name))
        variables.append(x)
    problem = dp.Problem(agents, coupling=[variables[0] + variables[1] == 1])
    assert isinstance(problem.plan(**BUDGET).algorithm, dp.ResourceADMM)


def test_penalty_without_a_gradient_does_not_change_the_method():
    for penalty in (lambda w: cp.normNuc(cp.diag(w)), cp.norm1, cp.tv):
        plan = regression(lambda X, y, w, p=penalty: logistic(X, y, w) + p(w)).plan(**BUDGET)
        assert isinstance(plan.algorithm, dp.FederatedGradient)


def test_rounds_follow_from_the_budget():
    """Little noise is worth many small steps; much noise is not."""
    problem = regression(logistic)
    rounds = [problem.plan(epsilon=epsilon, delta=1e-6).rounds for epsilon in (0.003, 3.0)]
    assert rounds[0] < rounds[1]
    assert problem.plan(rounds=17, **BUDGET).rounds == 17


def located(losses, unit=1.0):
    """Where on a line of 100 units most of 60 private places are."""
    x = cp.Variable(name="x", bounds=[0, 100 * unit])
    places = dp.Private(np.full(60, 30 * unit), name="places", adjacency=dp.Rows(100 * unit))
    return dp.Problem([dp.Agent(cp.Minimize(cp.sum(losses(x - places)) / 60), name="one")])


@pytest.mark.parametrize("unit", [1.0, 1e-3])
def test_noisy_steps_along_slopes_that_jump_fall_and_later_rounds_count_more(unit):
    plan = located(cp.abs, unit).plan(epsilon=1.0, delta=1e-6, rounds=50)
    assert isinstance(plan.algorithm.step, dp.steps.Sqrt)
    assert plan.reported == "weighted"
    usual = located(cp.abs).plan(epsilon=1.0, delta=1e-6, rounds=50).algorithm.step.first
    assert plan.algorithm.step.first == pytest.approx(unit * usual)
    said = " ".join(str(plan).split())
    assert "what is returned is the average in which later rounds count more: predicted to" in said


def test_what_is_asked_to_be_returned_is_no_choice_of_the_plan():
    named = located(cp.abs).plan(dp.FederatedGradient(returned="last"), epsilon=1.0, delta=1e-6)
    assert named.reported == "last" and "what is returned" not in str(named)


def test_noise_of_a_level_of_its_own_costs_more_with_more_rounds_so_none_are_chosen():
    plan = regression(logistic).plan(mechanism=dp.Gaussian(noise_multiplier=500.0), delta=1e-6)
    assert plan.rounds == 100


def test_the_scale_of_a_problem_changes_nothing_but_scales():
    """Objectives times 1000: the same rounds, noise and forecast, a step of a thousandth."""
    one, large = (
        regression(lambda X, y, w, c=c: c * logistic(X, y, w)).plan(**DECLARED) for c in (1.0, 1e3)
    )
    assert (one.rounds, one.choices) == (large.rounds, large.choices)
    # But for the gap that noise may leave, which is in units of the objective.
    said, louder = (re.split(r"up to about (\S+),", plan.remarks) for plan in (one, large))
    assert said[::2] == louder[::2]
    assert float(louder[1]) == pytest.approx(1e3 * float(said[1]), rel=0.05)  # two digits
    assert one.algorithm.step.step == pytest.approx(1e3 * large.algorithm.step.step, rel=1e-6)


@pytest.mark.parametrize("weighed", [cp.square, cp.abs])
@pytest.mark.parametrize("given", [{}, {"rounds": 20}, {"release": "each_step"}])
def test_private_weights_of_public_functions_are_planned(weighed, given):
    x = cp.Variable(2, name="x")
    d = dp.Private(shape=2, name="d", nonneg=True, adjacency=dp.Within(0.1))
    cost = d @ weighed(x - 1) + cp.sum_squares(x)
    plan = dp.Problem([dp.Agent(cp.Minimize(cost), [cp.abs(x) <= 3])]).plan(**BUDGET, **given)
    assert plan.published == ("release" not in given)
    assert plan.run(data={"d": np.ones(2)}, seed=1).status.solved


def hospital(records, bound=10.0, **arguments):
    """Least squares within generous bounds: days in hospital by five findings."""
    w = cp.Variable(5, name="w")
    rng = np.random.default_rng(4)
    X = np.clip(rng.normal(size=(records, 5)), -1.5, 1.5)
    y = np.clip(X @ [1.0, -0.5, 0.3, 0.0, 0.8] + rng.normal(size=records), -bound, bound)
    findings = dp.Private(X, name="findings", adjacency=dp.Rows(4.0))
    stay = dp.Private(y, name="days", adjacency=dp.Rows(bound))
    loss = cp.sum_squares(findings @ w - stay) / records
    agent = dp.Agent(cp.Minimize(loss), [cp.abs(w) <= 10], name="hospital", **arguments)
    return dp.Problem([agent])


def test_moments_that_would_drown_make_way_for_clipped_steps():
    plan = hospital(1000).plan(**DECLARED)
    assert isinstance(plan.algorithm, dp.FederatedGradient) and plan.release == "each_step"
    said = {choice.what: choice.why for choice in plan.choices}
    assert "second moments would have too much noise" in said["release"]
    assert "a twentieth of the largest" in said["clip_norm"]
    # The noise is as much smaller: at the start a record contributes at most 2 * 10 * 4 / 1000.
    (clip,) = [agent.program.clip for agent in plan.agents]
    assert clip == pytest.approx(0.05 * 0.08)
    assert plan.guarantee.epsilon <= 1.0


def test_moments_of_many_records_leave_once():
    plan = hospital(30_000).plan(**DECLARED)
    assert plan.release == "once" and isinstance(plan.algorithm, dp.OneShot)


def test_who_asks_for_one_release_or_for_whole_records_has_them():
    asked = hospital(1000).plan(release="once", epsilon=1.0, delta=1e-6)
    assert asked.release == "once"
    whole = hospital(1000, clip_norm=math.inf).plan(epsilon=1.0, delta=1e-6)
    assert whole.agents[0].program.clip == math.inf


def test_clipped_steps_end_nearer_than_moments_that_drown():
    """Of 12 groups of 5 runs each, the ratio was 50 in the worst and 160 in the middle."""
    problem = hospital(1000)
    central = dp.not_private.joint_problem(problem)
    central.solve()
    gaps = []
    for release in (None, "once"):
        plan = problem.plan(release=release, epsilon=1.0, delta=1e-6)
        runs = [plan.run(seed=k, verbose=False).solution for k in range(5)]
        values = [dp.not_private.objective(problem, run) for run in runs]
        gaps.append(float(np.median(values)) - central.value)
    assert 10 * gaps[0] < gaps[1]


def users(of):
    """Of something scarce, with private weights of what it is worth to them."""
    agents, scarce = [], []
    for k in range(3):
        x = cp.Variable(2, name=f"x{k}", nonneg=True)
        need = dp.Private([1.0, 4.0], name=f"need{k}", adjacency=dp.Within(0.01), nonneg=True)
        worth, constraints = of(x)
        agents.append(dp.Agent(cp.Maximize(need @ worth), [x <= 10, *constraints], f"user {k}"))
        scarce.append(x)
    return dp.Problem(agents, coupling=[sum(scarce) <= np.array([6.0, 9.0])])


def test_private_weights_of_functions_with_coupling_are_told_what_to_write():
    with pytest.raises(dp.ModelError, match="'need0' multiplies a function") as refusal:
        users(lambda x: (cp.log(1 + x), [])).solve(release="each_step", **BUDGET)
    for part in ("agent 'user 0'", "u = cp.Variable(2, bounds=[...])", "u <= f(x)", "maximized"):
        assert part in str(refusal.value)

    def named(x):
        u = cp.Variable(2, bounds=[0, 3])
        return u, [u <= cp.log(1 + x)]

    problem = users(named)
    plan = problem.plan(**BUDGET)
    assert plan.release == "once" and isinstance(plan.algorithm, dp.OneShot)
    solution = plan.run(seed=0, verbose=False).solution
    shares = np.array([solution[f"x{k}"] for k in range(3)])
    assert shares == pytest.approx(np.array([[2.0, 3.0]] * 3), abs=0.2)


def test_agents_that_differ_in_names_of_people_only_share_their_lines():
    w, agents = cp.Variable(2, name="w"), []
    for k in range(4):
        X = dp.Private(shape=(9, 2), name=f"X{k}", adjacency=dp.Rows(1.0, records=f"guest{k}"))
        agents.append(dp.Agent(cp.Minimize(cp.sum(cp.logistic(X @ w))), name=f"hotel {k}"))
    plan = dp.Problem(agents).plan(**BUDGET)
    said = " ".join(str(plan).split())
    assert said.count("one change moves the gradient by at most") == 1
    assert "hotel 0 to hotel 3, each: " in said
    derived = " ".join(plan.derivation.split())
    assert "'X0' to 'X3', one of guest0 to guest3 (a row" in derived


@pytest.mark.parametrize(("columns", "kind"), [(3, "Laplace"), (400, "Gaussian")])
def test_a_single_noisy_round_has_the_noise_that_is_smaller_in_so_many_columns(columns, kind):
    w = cp.Variable(columns, name="w")
    rows = {"records": "person"}
    X = dp.Private(shape=(200, columns), name="X", adjacency=dp.Rows(1.0, **rows))
    y = dp.Private(shape=200, name="y", adjacency=dp.Rows(1.0, **rows))
    loss = cp.sum(cp.logistic(-cp.multiply(y, X @ w))) / 200
    plan = dp.Problem([dp.Agent(cp.Minimize(loss), [cp.norm(w) <= 5])]).plan(
        epsilon=0.1, delta=1e-6
    )
    assert plan.rounds == 1 and str(plan.agents[0].noise.mechanism) == kind


# -- objectives that are not convex ----------------------------------------------------------------


BOUNDED = cp.Variable(2, name="x")
TARGET = dp.Private(np.ones(2), name="d", adjacency=dp.Within(0.1))
BENT = {
    "maximized": (
        cp.Maximize(cp.sum(cp.square(BOUNDED - TARGET))),
        r"cp\.Maximize takes a concave expression, and this one is convex",
    ),
    "minimized": (
        cp.Minimize(-cp.sum_squares(BOUNDED - TARGET)),
        r"cp\.Minimize takes a convex expression, and this one is concave",
    ),
    "unknown sign": (
        cp.Minimize(TARGET @ cp.square(BOUNDED)),
        "MulExpression of 'x' and 'd' is neither convex nor concave, and the sign of private 'd'",
    ),
    "difference": (
        cp.Minimize(cp.sum_squares(BOUNDED - TARGET) - 2 * cp.sum_squares(BOUNDED)),
        "its term AddExpression of 'x' and 'd' is neither convex nor concave",
    ),
}


def bent(name):
    agent = dp.Agent(BENT[name][0], [cp.abs(BOUNDED) <= 2], name="north")
    return dp.Problem([agent])


@pytest.mark.parametrize("settings", [BUDGET, {"mechanism": None}], ids=["noise", "no noise"])
@pytest.mark.parametrize("name", BENT)
def test_plan_without_a_method_refuses_objectives_that_are_not_convex(name, settings):
    words = (
        rf"^The objective of agent 'north' .*\(DCP\): .*{BENT[name][1]}.*dp\.FederatedAveraging\(\)"
    )
    for algorithm in (None, dp.ADMM()):
        with pytest.raises(dp.ModelError, match=words):
            bent(name).plan(algorithm, **settings)
    assert bent(name).plan(dp.FederatedAveraging(), rounds=2, **settings).rounds == 2


def test_plan_decides_convexity_without_values_of_private_data():
    """With d = -1 the first objective is convex; its declaration does not say so."""
    x = BOUNDED
    d = dp.Private(-np.ones(2), name="d", adjacency=dp.Within(0.1))
    problem = dp.Problem([dp.Agent(cp.Minimize(-d @ cp.square(x)), [cp.abs(x) <= 2])])
    with pytest.raises(dp.ModelError, match="sign of private 'd' is not declared"):
        problem.plan(**BUDGET)
    signed = dp.Private(np.ones(2), name="d", adjacency=dp.Within(0.1), nonneg=True)
    problem = dp.Problem([dp.Agent(cp.Minimize(signed @ cp.square(x)), [cp.abs(x) <= 2])])
    assert problem.plan(**BUDGET).noisy


@pytest.mark.parametrize(
    "cost",
    [
        BOUNDED @ (2 * np.eye(2) @ BOUNDED) - TARGET @ BOUNDED,
        2 * cp.sum_squares(BOUNDED - TARGET) - cp.sum_squares(BOUNDED),
        cp.multiply(BOUNDED[0], BOUNDED[1]) + cp.sum_squares(BOUNDED - TARGET),
    ],
    ids=["product", "difference", "mixed"],
)
def test_objectives_with_proved_curvature_need_no_method(cost):
    problem = dp.Problem([dp.Agent(cp.Minimize(cost), [cp.abs(BOUNDED) <= 2])])
    assert not problem.is_dcp() and problem.plan(**BUDGET).noisy


def test_sets_that_are_not_convex_are_named():
    agent = dp.Agent(cp.Minimize(cp.sum_squares(BOUNDED)), [BOUNDED <= 3, cp.norm(BOUNDED) >= 1])
    for algorithm in (None, dp.FederatedAveraging()):
        with pytest.raises(dp.ModelError, match=r"^Constraint 1 of agent 'agent 1' does not foll"):
            dp.Problem([agent]).plan(algorithm, mechanism=None)


# -- budgets that promise little -------------------------------------------------------------------


def counted(n, delta, adjacency=None):
    w = cp.Variable(2, name="w")
    rows = dp.Rows(1.0) if adjacency is None else adjacency
    X = dp.Private(shape=(n, 2), name="patients", adjacency=rows)
    agent = dp.Agent(cp.Minimize(cp.sum(cp.logistic(X @ w))), [cp.norm(w) <= 5], name="clinic")
    noise = dp.Gaussian(noise_multiplier=5.0)
    plan = dp.Problem([agent]).plan(
        dp.FederatedAveraging(step=0.1), mechanism=noise, delta=delta, rounds=1
    )
    return " ".join(str(plan).split())


@pytest.mark.parametrize("delta", [0.002, 0.02, 0.5])
def test_a_plan_remarks_on_a_delta_near_one_over_the_number_of_records(delta):
    said = counted(50, delta)
    words = f"delta {delta:g} is not small beside 1/n = 0.02, with n = 50 records in 'patients'."
    assert words in said and said.count("1/n") == 2 and "such as delta=0.0001 " in said


@pytest.mark.parametrize(("delta", "remarked"), [(0.5, True), (1e-6, False)])
def test_a_plan_remarks_on_a_large_delta_without_records(delta, remarked):
    said = str(power_line().problem.plan(epsilon=1.0, delta=delta))
    assert (f"delta      {delta:g} is large" in said) == remarked


def test_a_plan_says_nothing_of_a_small_delta():
    assert "1/n" not in counted(50, 1e-6) and "1/n" not in counted(1000, 1e-5)


@pytest.mark.parametrize("epsilon", [2999.0, 3000.0, 1e4, 1e6])
@pytest.mark.parametrize("algorithm", [None, dp.LinearizedADMM()])
def test_a_plan_can_be_made_with_next_to_no_noise(epsilon, algorithm):
    for mechanism in ("auto", "laplace"):
        rounds = {} if algorithm is None else {"rounds": 3}
        plan = power_line().problem.plan(
            algorithm, mechanism=mechanism, epsilon=epsilon, delta=1e-6, **rounds
        )
        assert 0.99 * epsilon < plan.guarantee.epsilon <= epsilon


def plant(rows=3, **agent):
    """A linear program with private right-hand sides."""
    rng = np.random.default_rng(1)
    x = cp.Variable(2, nonneg=True, name="x")
    b = dp.Private(rng.uniform(5, 9, rows), name="b", adjacency=dp.Within(0.05), nonneg=True)
    limits = [rng.uniform(0, 1, (rows, 2)) @ x <= b, cp.sum(x) <= cp.sum(b) / 2]
    return dp.Problem([dp.Agent(cp.Maximize(cp.sum(x)), limits, name="plant", **agent)])


def margins(plan):
    return [margin for kept in plan.program.kept for margin in kept.margins.values()]


@pytest.mark.parametrize("mechanism", ["auto", "laplace", "gaussian"])
def test_a_rarer_violation_never_has_larger_margins_than_none(mechanism):
    budget = dict(epsilon=1.0, delta=1e-6, mechanism=mechanism)
    surely = plant().plan(violation_probability=0, **budget)
    least = -np.inf
    for violation in (0.1, 1e-3, 1e-6, 1e-9, 1e-12, 1e-200):
        plan = plant().plan(violation_probability=violation, **budget)
        total = sum(map(np.log, margins(plan)))
        assert total <= sum(map(np.log, margins(surely))) + 1e-9
        assert total >= least - 1e-9
        least, limited = total, plan.agents[0].noise.truncation is not None
        assert limited == ("truncated noise: " in str(plan))
        assert limited == ("hold for the true data in every run" in " ".join(str(plan).split()))
    assert limited and margins(plan) == margins(surely)
    assert plan.fingerprint != surely.fingerprint
    assert plan.price.epsilon <= 1.0 + 1e-9 and plan.price.delta == 1e-6


def test_noise_with_a_level_or_without_a_delta_or_of_groups_gets_no_limit():
    problem = plant()
    level = problem.plan(
        mechanism=dp.Laplace(release_epsilon=1.0), delta=1e-6, violation_probability=1e-12
    )
    pure = problem.plan(epsilon=1.0, delta=0, violation_probability=1e-12)
    assert level.agents[0].noise.truncation is None and pure.agents[0].noise.truncation is None
    assert "Laplace noise: Gaussian noise has no guarantee at delta=0" in " ".join(
        choice.why for choice in pure.choices
    )
