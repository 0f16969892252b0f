"""The whole problem solved once, held against its equations and against cvxpy on the surrogate."""

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp
from dpcvx.algorithms.joint import joint
from dpcvx.testing import instances
from problems.power_flow import solution as network
from problems.power_flow.study import power_flow
from tests.algorithms.consensus import HELD, study
from tests.benchmarks.utility.beyond import estimates
from tests.instances import INSTANCES, whole
from tests.sensitivity.test_release_once import surrogates

BUDGET = dict(epsilon=1.0, delta=1e-6)
ONCE = dict(release="once", **BUDGET)


def clinics(m=30, k=3, public=True, **agent):
    """Least squares over records of two agents and one without data, in a ball of l1."""
    rng = np.random.default_rng(2)
    w, u = cp.Variable(k, name="w"), cp.Variable(2, name="u")
    agents = []
    for name in ("north", "south"):
        X = rng.normal(size=(m, k))
        X /= np.linalg.norm(X, axis=1, keepdims=True)
        y = np.clip(X @ np.array([0.5, -0.3, 0.2])[:k], -1, 1)
        person = dict(records=f"patient of {name}")
        features = dp.Private(X, name=f"X {name}", adjacency=dp.Rows(1.0, **person))
        labels = dp.Private(y, name=f"y {name}", adjacency=dp.Rows(1.0, **person))
        cost = cp.sum_squares(features @ w - labels) / m + 0.01 * cp.sum_squares(w)
        agents.append(dp.Agent(cp.Minimize(cost), [cp.norm1(w) <= 2], name=name, **agent))
    if public:
        cost = 0.1 * cp.norm1(w - 0.1) + cp.sum_squares(w[0] - u)
        agents.append(dp.Agent(cp.Minimize(cost), name="registry"))
    return dp.Problem(agents)


def tied_and_shared():
    """Agents that share x and are tied by an equality in which x stands as well."""
    x, y, z = cp.Variable(2, name="x"), cp.Variable(2, name="y"), cp.Variable(name="z")
    d, e = (
        dp.Private(np.array(value), name=name, adjacency=dp.Within(0.1))
        for name, value in (("d", [1.0, -2.0]), ("e", [0.3, 0.4]))
    )
    first = dp.Agent(cp.Minimize(cp.sum_squares(x - d) + cp.square(z)), [x >= -3], name="first")
    second = dp.Agent(cp.Minimize(cp.sum_squares(x + y - e)), [cp.norm(y) <= 2], name="second")
    return dp.Problem([first, second], coupling=[x + 2 * y == cp.hstack([z, 1.0])])


MODELS = {
    **{name: lambda build=build: build().problem for name, build in INSTANCES.items()},
    **{
        name: lambda name=name: whole(instances.INSTANCES[name])().problem
        for name in ("sensors", "household tariff", "one household", "dispatch")
    },
    "records": clinics,
    "coupling of what is shared": tied_and_shared,
}


def together(problem, data):
    """All agents in one cvxpy problem, with these values in place of the private ones."""
    costs = []
    for agent in problem.agents:
        constants = {id(d): cp.Constant(data[d]) for d in agent.private}
        costs.append(agent.cost.tree_copy(constants) if constants else agent.cost)
    return cp.Problem(cp.Minimize(sum(costs)), problem.constraints)


def solved(problem, data):
    """The optimum of all agents together in cvxpy, by name, and its value."""
    whole = together(problem, data)
    whole.solve(cp.CLARABEL, tol_gap_abs=1e-9, tol_gap_rel=1e-9, tol_feas=1e-9)
    return {v.name(): np.array(v.value) for v in problem.variables()}, whole.value


@pytest.mark.parametrize("noisy", [False, True])
def test_a_run_solves_the_printed_equations(noisy):
    given = study()
    settings = BUDGET if noisy else dict(mechanism=None)
    result = given.problem.plan(dp.OneShot(), **settings).run(seed=4, record=True)
    # z = (w, u of a, u of b, u of c): the gradient of the sum is zero.
    H, c = np.zeros((10, 10)), np.zeros(10)
    for p, (held, A, b) in enumerate(zip(HELD, given.A, given.b, strict=True)):
        S = np.zeros((2 + len(held), 10))
        S[[0, 1], [4 + 2 * p, 5 + 2 * p]] = 1.0
        S[np.arange(2, 2 + len(held)), held] = 1.0
        H += S.T @ (2 * A.T @ A) @ S
        c += S.T @ (given.released(result, p)[0] if noisy else -2 * A.T @ b)
    z = np.linalg.solve(H, -c)
    for p, (held, x) in enumerate(zip(HELD, given.points(result.last), strict=True)):
        assert x == pytest.approx(np.append(z[4 + 2 * p : 6 + 2 * p], z[held]), rel=1e-8)
    assert result.rounds == 1 and result.consensus_residual == 0
    assert all(
        np.array_equal(x, y)
        for x, y in zip(result.last.vectors, result.average.vectors, strict=True)
    )


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
@pytest.mark.parametrize("model", MODELS)
def test_the_answer_is_the_optimum_of_what_was_released(model, mechanism):
    problem = MODELS[model]()
    delta = 1e-6 if mechanism == "gaussian" else 0
    plan = problem.plan(dp.OneShot(), mechanism=mechanism, release="once", epsilon=5.0, delta=delta)
    result = plan.run(seed=1, record=True)
    data = surrogates(plan, result.transcript)
    found = together(problem, data).objective.value
    assert found == pytest.approx(solved(problem, data)[1], rel=1e-7, abs=1e-7)
    assert result.solution.coupling_residual < 1e-7 and result.max_iterate_violation < 1e-7
    assert result.status is dp.Status.COMPLETED


@pytest.mark.parametrize("model", MODELS)
def test_without_noise_it_finds_the_optimum(model):
    problem = MODELS[model]()
    result = problem.solve(dp.OneShot(), mechanism=None)
    whole = dp.not_private.joint_problem(problem)
    found = whole.objective.value
    whole.solve(cp.CLARABEL, tol_gap_abs=1e-9, tol_gap_rel=1e-9, tol_feas=1e-9)
    assert found == pytest.approx(whole.value, rel=1e-7, abs=1e-7)
    for v in problem.variables():
        assert result.last[v] == pytest.approx(v.value, abs=1e-4)


def test_a_network_whose_loads_left_once_comes_close_to_the_optimum():
    # Of 300 runs the median gap is 0.0050; that of 15 runs is above 0.008 once in 4000 times.
    given, best = power_flow(14, load_scale=1.5), 0.0303068
    plan = given.problem.plan(dp.OneShot(), mechanism="laplace", **ONCE)
    results = [plan.run(seed=seed, record=True) for seed in range(15)]
    gaps = [dp.not_private.objective(given.problem, r.solution) - best for r in results]
    assert 0 < np.median(gaps) < 0.008
    data = surrogates(plan, results[-1].transcript)
    found = together(given.problem, data).objective.value
    assert found == pytest.approx(solved(given.problem, data)[1], abs=1e-6)
    assert network.central(given.case, "shed", 1.5).value == pytest.approx(best, abs=1e-6)


@pytest.mark.parametrize("release", ["each_step", "once"])
def test_there_is_one_round_with_one_release_and_more_are_refused(release):
    problem = INSTANCES["power line"]().problem
    plans = [problem.plan(dp.OneShot(), release=release, rounds=n, **BUDGET) for n in (1, None)]
    assert plans[0].fingerprint == plans[1].fingerprint
    with pytest.raises(
        dp.ModelError, match=r"OneShot always runs 1 round, so rounds=5 would change noth"
    ):
        problem.plan(dp.OneShot(), release=release, rounds=5, **BUDGET)
    result = plans[1].run(seed=1)
    assert plans[1].rounds == result.rounds == 1
    assert {len(account.entries) for account in result.ledger.values()} == {1}
    assert result.ledger.spent() == pytest.approx(1.0, rel=1e-6)


# Equal runs whatever the units


def scaled(objective=1.0, unit=1.0, records=False):
    """A model whose objective is multiplied, and whose variable is measured in another unit."""
    rng = np.random.default_rng(6)
    agents = []
    w = cp.Variable(3, name="w")
    for k in range(2):
        X = rng.normal(size=(12, 3)) / 4
        y = X @ np.array([1.0, -0.5, 0.25]) + 0.1 * rng.normal(size=12)
        if records:
            norm = 1.5
            person = dict(records=f"person {k}")
            X = dp.Private(X / unit, name=f"X{k}", adjacency=dp.Rows(norm / unit, **person))
            y = dp.Private(y, name=f"y{k}", adjacency=dp.Rows(3.0, **person))
        else:
            X, y = X / unit, dp.Private(y, name=f"y{k}", adjacency=dp.Within(0.1))
        cost = objective * (cp.sum_squares(X @ w - y) + 0.1 * cp.norm1(w / unit))
        agents.append(dp.Agent(cp.Minimize(cost), [cp.abs(w / unit) <= 1.5]))
    return dp.Problem(agents)


@pytest.mark.parametrize("records", [False, True])
@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
@pytest.mark.parametrize(
    ("objective", "unit"), [(1e3, 1.0), (1e-3, 1.0), (1.0, 1e-2), (1.0, 1e2), (1e3, 1e-2)]
)
def test_other_units_give_the_same_run(mechanism, objective, unit, records):
    # The noise of one seed differs between plans: what one released is taken over.
    def planned(*scales):
        budget = dict(epsilon=1.0, delta=1e-6 if mechanism == "gaussian" else 0)
        return scaled(*scales, records).plan(
            dp.OneShot(), mechanism=mechanism, release="once", **budget
        )

    one, other = planned(1.0, 1.0), planned(objective, unit)
    kinds = [[(a.publication.kind, a.publication.size) for a in p.agents] for p in (one, other)]
    assert kinds[0] == kinds[1]
    result = other.run(seed=3, record=True)
    given = {d.name(): v for d, v in surrogates(other, result.transcript).items()}
    back = {
        d: given[d.name()] * (unit if d.name().startswith("X") else 1.0)
        for agent in one.problem.agents
        for d in agent.private
    }
    expected, _ = solved(one.problem, back)
    assert result.last["w"] / unit == pytest.approx(expected["w"], abs=1e-5)


# Executors, ledgers, groups, budgets of each agent's own


def test_groups_and_budgets_of_each_agents_own():
    given = clinics()
    together = dp.Problem(given.agents, groups=[["north", "south"]])
    alone = given.plan(dp.OneShot(), **ONCE)
    grouped = together.plan(dp.OneShot(), **ONCE)
    assert grouped.agents[0].noise.multiplier > 1.3 * alone.agents[0].noise.multiplier
    assert grouped.run(seed=1).ledger.spent() == pytest.approx(1.0, rel=1e-6)
    own = given.plan(
        dp.OneShot(), release="once", delta=1e-6, epsilon={"north": 0.5, "south": 2.0},
        mechanism={"north": "gaussian", "south": "laplace"},
    )  # fmt: skip
    assert dp.check_sensitivity(own).passed
    assert {n: a.spent().epsilon for n, a in own.run(seed=1).ledger.items() if n != "registry"} == {
        "north": pytest.approx(0.5, rel=1e-6),
        "south": pytest.approx(2.0, rel=1e-6),
    }


# Refusals, and problems without an optimum


def one(cost, constraints=lambda x: [], shape=2, adjacency=None):
    x = cp.Variable(2, name="x")
    d = dp.Private(np.ones(shape), name="d", adjacency=adjacency or dp.Within(0.1))
    return dp.Problem([dp.Agent(cp.Minimize(cost(x, d)), constraints(x), name="solo")])


def test_squares_of_records_leave_once_or_are_told_to():
    with pytest.raises(dp.PrivacyError, match=r"exact steps of dp.ADMM.*'once'"):
        clinics().plan(dp.ADMM(), **BUDGET)
    plan = clinics().plan(dp.OneShot(), **BUDGET)
    assert (plan.release, plan.agents[0].publication.kind) == ("once", "second moments")


@pytest.mark.parametrize("release", ["each_step", "once"])
@pytest.mark.parametrize("settings", [BUDGET, dict(mechanism=None)], ids=["noisy", "exact"])
def test_other_losses_are_refused(settings, release):
    problem = one(lambda x, X: cp.sum(cp.logistic(X @ x)), adjacency=dp.Rows(2.0), shape=(3, 2))
    with pytest.raises(dp.PrivacyError, match=r"(exact steps of dp.OneShot|release='once' needs)"):
        problem.plan(dp.OneShot(as_written=False), release=release, **settings)


def test_what_secret_sums_cannot_do_is_done_by_sums_of_gradients_or_without_them():
    secret = dp.OneShot(dp.SecretSharing(100.0))
    w = cp.Variable(2, name="w")
    kept = dp.Private(np.ones(2), name="kept", adjacency=dp.Within(0.1))

    def planned(cost, constraints=(), algorithm=secret, **arguments):
        agents = []
        for k in range(3):
            d = dp.Private(np.ones((3, 2)), name=f"d{k}", adjacency=dp.Rows(2.0))
            limits = [cp.abs(w) <= 9, *(constraints if k == 0 else ())]
            agents.append(dp.Agent(cp.Minimize(cost(d @ w)), limits, name=f"a{k}"))
        return dp.Problem(agents).plan(algorithm, **BUDGET, **arguments)

    def losses(score):
        return cp.sum(cp.logistic(score))

    instead = r"Use dp\.FederatedGradient\(sharing=\.\.\.\), which needs gradients only\.$"
    with pytest.raises(dp.PrivacyError, match=instead):
        planned(losses)
    with pytest.raises(dp.PrivacyError, match="sums='moments' as well"):
        planned(cp.sum_squares)
    planned(losses, algorithm=dp.FederatedGradient(sharing=secret.sharing))
    planned(cp.sum_squares, algorithm=dp.OneShot(secret.sharing, sums="moments"))
    with pytest.raises(dp.ModelError, match=r"Drop sharing=.*dp\.OneShot\(\)"):
        planned(losses, [w >= kept - 5], violation_probability=0.1)


@pytest.mark.parametrize("clip", [{}, {"clip_norm": 0.5}])
def test_clipped_records_have_no_quadratic(clip):
    problem = clinics(**clip)
    if not clip:
        problem.plan(dp.OneShot(), mechanism=None)
        return
    for settings in (dict(mechanism=None), ONCE, BUDGET):
        with pytest.raises(dp.PrivacyError):
            problem.plan(dp.OneShot(), **settings)


def test_sets_that_do_not_meet_are_refused_before_anything_is_spent():
    x = cp.Variable(name="x")
    d = dp.Private(np.ones(()), name="d", adjacency=dp.Within(0.1))
    agents = [
        dp.Agent(cp.Minimize(cp.square(x - d)), [x >= 1], name="a"),
        dp.Agent(cp.Minimize(cp.square(x)), [x <= 0], name="b"),
    ]
    with pytest.raises(dp.ModelError, match="constraints of agents .* do not meet"):
        dp.Problem(agents).plan(dp.OneShot(), **BUDGET)


@pytest.mark.parametrize("release", ["each_step", "once"])
def test_what_noise_could_pull_without_end_is_refused(release):
    plan = dict(release=release, **BUDGET)
    flat = one(lambda x, d: cp.square(x[0] - d[0]) + d[1] * x[1], lambda x: [x[1] >= 0])
    with pytest.raises(dp.ModelError, match="no optimum for some values of the noise"):
        flat.plan(dp.OneShot(), **plan)
    bounded = one(lambda x, d: cp.square(x[0] - d[0]) + d[1] * x[1], lambda x: [cp.abs(x) <= 1])
    assert np.abs(bounded.plan(dp.OneShot(), **plan).run(seed=1).last["x"]).max() < 1 + 1e-7


def test_what_nobody_bounds_is_refused_without_noise():
    x = cp.Variable(2, name="x")
    problem = dp.Problem([dp.Agent(cp.Minimize(cp.sum(x)), [x[0] >= 0], name="solo")])
    with pytest.raises(dp.ModelError, match="The problem has no optimum: the joint"):
        problem.plan(dp.OneShot(), mechanism=None)


@pytest.mark.parametrize("coupled", [False, True])
def test_methods_that_take_no_coupling_are_not_advised_with_coupling(coupled):
    x, y = cp.Variable(name="x"), cp.Variable(name="y", bounds=[0, 9])
    d = dp.Private(1.0, name="d", adjacency=dp.Within(0.1))
    first = dp.Agent(cp.Minimize(d * x), name="a")
    second = dp.Agent(cp.Minimize(cp.square(y)), [] if coupled else [x >= y], name="b")
    problem = dp.Problem([first, second], coupling=[x + y >= 1] if coupled else [])
    with pytest.raises(dp.ModelError, match="no optimum for some values.*bounds to") as refusal:
        problem.plan(dp.OneShot(), release="once", **BUDGET)
    assert ("dp.LinearizedADMM" in str(refusal.value)) is not coupled


def test_data_that_leave_no_optimum_end_a_run_without_noise_in_words():
    # At zero data it is bounded; with the data it falls without end.
    problem = one(lambda x, d: d[0] * x[0] + cp.square(x[1] - d[1]), lambda x: [x[0] <= 0])
    result = problem.plan(dp.OneShot(), mechanism=None).run()
    assert result.status is dp.Status.UNBOUNDED
    assert problem.variables()[0].value is None


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("release", ["each_step", "once"])
def test_noise_far_above_the_data_leaves_a_point_of_the_sets(seed, release):
    plan = INSTANCES["power line"]().problem.plan(
        dp.OneShot(), release=release, mechanism=dp.Gaussian(noise_multiplier=1e9), delta=1e-6
    )
    result = plan.run(seed=seed)
    assert result.status is dp.Status.COMPLETED
    assert result.max_iterate_violation < 1e-6


def test_several_optima_are_one_for_one_release():
    # Nothing prefers a point of the segment x[0] + x[1] = const.
    problem = one(lambda x, d: cp.square(cp.sum(x) - cp.sum(d)), lambda x: [cp.abs(x) <= 3])
    plan = problem.plan(dp.OneShot(), **ONCE)
    runs = [plan.run(seed=1) for _ in range(2)]
    assert np.array_equal(runs[0].last["x"], runs[1].last["x"])
    # The solver leaves up to 3e-6, by seed, of a segment that is four long.
    assert runs[0].last["x"][0] == pytest.approx(runs[0].last["x"][1], abs=1e-4)


# The joint program


@pytest.mark.parametrize("model", MODELS)
def test_the_joint_program_has_every_component_and_every_row_once(model):
    plan = MODELS[model]().plan(dp.OneShot(), mechanism=None)
    program, found = plan.program, joint(plan.program)
    own = sum(local.n - local.shared.size for local in program.agents)
    tied = 0 if program.coupling is None else program.coupling.right.size
    assert found.data.n == program.size + own == found.start.size
    rows = sum(local.exact.b.size for local in program.agents) + tied
    assert found.data.A.shape[0] == found.data.b.size == rows
    assert sum(size for _, size in found.data.cones.blocks()) == rows
    for local, place in zip(program.agents, found.places, strict=True):
        assert np.array_equal(place[local.shared], local.slots)
        assert len(set(place)) == place.size


def test_every_cone_stands_in_its_place():
    x = cp.Variable(3, name="x")
    X = cp.Variable((2, 2), name="X", symmetric=True)
    d = dp.Private(np.full(3, 0.4), name="d", adjacency=dp.Within(0.1))
    first = [cp.norm(x) <= 2, cp.sum(cp.exp(x)) <= 9, X >> 0, cp.trace(X) == 1]
    second = [cp.geo_mean(x + 3) >= 1.0, cp.power(x[0] + 1, 1.5) <= 4, X[0, 1] == 0.2, x <= 1]
    agents = [
        dp.Agent(cp.Minimize(cp.sum_squares(x - d) + cp.norm1(X)), first, name="a"),
        dp.Agent(cp.Minimize(cp.square(X[0, 0] - 0.7) - cp.log(x[1] + 2)), second, name="b"),
    ]
    problem = dp.Problem(agents)
    plan = problem.plan(dp.OneShot(), **ONCE)
    cones = joint(plan.program).data.cones
    assert cones.zero and cones.nonneg and cones.soc and cones.psd and cones.exp
    result = plan.run(seed=2, record=True)
    data = surrogates(plan, result.transcript)
    found = together(problem, data).objective.value
    assert found == pytest.approx(solved(problem, data)[1], abs=1e-6)


def test_the_plan_says_what_is_solved_and_how():
    text = " ".join(str(tied_and_shared().plan(dp.OneShot(), **ONCE)).split())
    assert "the server solves the whole problem once" in text
    assert "2 rows of equalities over all agents, all kept" in text


# One sum in secret, and the noise split over the agents.


def test_the_optimum_is_that_of_the_sum_as_it_left():
    problem, A, b = estimates(4, bound=0.2)
    plan = problem.plan(dp.OneShot(dp.SecretSharing(100.0)), epsilon=1.0, delta=1e-6)
    assert plan.rounds == 1
    result = plan.run(seed=1, record=True)
    slope = sum(release.value for release in result.transcript.releases)
    exact = sum(-2 * M.T @ d for M, d in zip(A, b, strict=True))
    # Four parts of a third of the variance that the sum needs.
    assert 0.4 < np.std(slope - exact) / plan.agents[0].noise.split.together < 2.0
    x = cp.Variable(6)
    whole = 4 * cp.sum_squares(x) + slope @ x
    cp.Problem(cp.Minimize(whole), [cp.abs(x) <= 0.2]).solve(cp.CLARABEL)
    assert result.solution["x"] == pytest.approx(x.value, abs=1e-6)
    assert plan.guarantee.max_colluders == 1
    assert plan.guarantee.against_all_others > 1.5
    assert dp.check_sensitivity(plan).passed


def test_sums_that_the_server_cannot_use_are_refused():
    problem, *_ = estimates(4)
    with pytest.raises(dp.ModelError, match="sharing= hides gradients in sums"):
        problem.plan(dp.OneShot(dp.SecretSharing(100.0)), epsilon=1.0, delta=1e-6, release="once")
    with pytest.raises(dp.PrivacyError, match="sharing= needs Gaussian noise"):
        problem.plan(dp.OneShot(dp.SecretSharing(100.0)), mechanism="laplace", epsilon=1.0, delta=0)
    with pytest.raises(dp.ModelError, match=r"dp\.OneShot\(max_colluders=0\)"):
        dp.OneShot(max_colluders=0)
    # Noise is in the entries of all, and nothing keeps y from following it.
    x, y = cp.Variable(name="x"), cp.Variable(name="y")
    d = [dp.Private(1.0, name=f"d{k}", adjacency=dp.Within(0.1)) for k in range(3)]
    costs = [cp.square(x - d[0]), cp.square(x - d[1]), cp.square(x - d[2]) + 0 * y]
    flat = dp.Problem([dp.Agent(cp.Minimize(c), name=f"a{k}") for k, c in enumerate(costs)])
    flat.plan(dp.OneShot(), epsilon=1.0, delta=1e-6, release="once")
    with pytest.raises(dp.ModelError, match="no optimum for some values of the noise"):
        flat.plan(dp.OneShot(dp.SecretSharing(100.0)), epsilon=1.0, delta=1e-6)
