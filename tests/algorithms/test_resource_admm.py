"""First-order ADMM of coupled agents against equation (13), its sums with and without secrets."""

import re

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp
from dpcvx.algorithms.resource_admm import ResourceADMM
from dpcvx.algorithms.summed import SummedMethod
from dpcvx.privacy.secret_sharing import Share
from tests.algorithms.networks import MODELS, NAMES, ROUNDS, Study, followed, overheard, planned
from tests.helpers import contains

DEMAND = np.array([3.0, 4.0])


def market(agents=5, bounded=True, seed=0):
    """Producers of two goods with private prices, who meet a demand."""
    rng = np.random.default_rng(seed)
    variables, parts = [], []
    for k in range(agents):
        p = cp.Variable(2, name=f"p{k}")
        price = dp.Private(
            rng.uniform(1, 3, size=2), name=f"price{k}", adjacency=dp.Within(0.1, norm=1)
        )
        cost = (0.5 + k / 5) * cp.sum_squares(p) + price @ p
        limits = [p >= 0, p <= 1.5] if bounded else []
        parts.append(dp.Agent(cp.Minimize(cost), limits, name=f"producer {k}"))
        variables.append(p)
    mix = [np.eye(2), np.array([[1.0, 0.5], [0.0, 1.0]])]
    supplied = sum(mix[k % 2] @ p for k, p in enumerate(variables))
    return dp.Problem(parts, coupling=[supplied == DEMAND]), variables


def private(name):
    return dp.Private(np.ones(2), name=name, adjacency=dp.Within(0.1))


def optimum(problem, variables):
    dp.not_private.joint_problem(problem).solve(
        cp.CLARABEL, tol_gap_abs=1e-12, tol_gap_rel=1e-12, tol_feas=1e-12
    )
    return np.concatenate([v.value for v in variables])


def values(solution, variables):
    return np.concatenate([solution[v] for v in variables])


def noiseless(problem, rounds=400, iterates=False, **arguments):
    plan = problem.plan(dp.ResourceADMM(**arguments), mechanism=None, rounds=rounds)
    return plan.run(seed=0, iterates=iterates)


@pytest.mark.parametrize("bounded", [True, False])
@pytest.mark.parametrize("randomness", [0.0, 0.2, 1.5])
def test_without_noise_it_converges_linearly_to_the_central_optimum(bounded, randomness):
    problem, variables = market(bounded=bounded)
    expected = optimum(problem, variables)
    result = noiseless(problem, rounds=120, iterates=True, randomness=randomness)
    after = (result.iterates[rounds - 1].last for rounds in (30, 60, 120))
    errors = [np.abs(values(last, variables) - expected).max() for last in after]
    assert errors[2] < 1e-9
    assert errors[1] < errors[0] / 100
    # The balance holds as well.
    assert result.history.primal[-1] < 1e-8


def tied(limits=None, bend=0.0):
    """Four agents with three entries each, in two equalities; their matrices and right side."""
    rng = np.random.default_rng(8)
    variables, agents, As, bs = [], [], [], []
    bounds = np.full(4, np.inf) if limits is None else limits
    for name, bound in zip(NAMES, bounds, strict=True):
        x = cp.Variable(3, name=f"x{name}")
        A, b = rng.normal(size=(4, 3)) / 2, rng.normal(size=4)
        d = dp.Private(b, name=f"d{name}", adjacency=dp.Within(0.1))
        cost = cp.sum_squares(A @ x - d) / 2 + (bend * cp.sum(cp.logistic(x)) if bend else 0)
        box = [cp.abs(x) <= bound] if np.isfinite(bound) else []
        agents.append(dp.Agent(cp.Minimize(cost), box, name=name))
        variables.append(x), As.append(A), bs.append(b)
    C, c = rng.normal(size=(4, 2, 3)), np.array([0.4, -0.3])
    supplied = sum(B @ x for B, x in zip(C, variables, strict=True))
    problem = dp.Problem(agents, coupling=[supplied == c])
    limits = bounds[:, np.newaxis]
    return Study(problem, tuple(variables), (), tuple(As), tuple(bs), bend, limits), C, c


def by_hand(given, C, c, numbers, penalties, exact, left, residuals):
    """(13), or (12) for exact steps, with Gamma = D I - C' rho C; then the multipliers."""
    rho, zeta, D = numbers
    x, lam = given.start, np.zeros(c.size)
    for t in range(1, ROUNDS + 1):
        step = np.empty_like(x)
        for i in range(len(x)):
            own = np.diag(rho * penalties(i, t))
            others = sum(C[j] @ x[j] for j in range(len(x)) if j != i)
            gamma = D * np.eye(3) - C[i].T @ own @ C[i]
            pull = C[i].T @ (lam - own @ (others - c)) + gamma @ x[i]
            # C' rho C + Gamma = D I, so (12) has one quadratic term, D/2 |x - pull / D|^2.
            step[i] = (
                given.minimizer(i, pull / D, D) if exact else (pull - given.gradient(i, x[i])) / D
            )
        x = given.projected(left(t, 1, step))
        yield x
        residual = sum(C[i] @ x[i] for i in range(len(x))) - c
        residuals.append(residual)
        lam = lam - zeta * residual


SECRET = dp.SecretSharing(limit=100.0, resolution=2.0**-40)


@pytest.mark.parametrize("model", ["squares", "boxes", "bent boxes"])
@pytest.mark.parametrize(
    ("randomness", "exact", "sharing"),
    [(0.0, False, None), (1.5, False, SECRET), (0.0, True, SECRET), (1.5, True, None)],
    ids=str,
)
@pytest.mark.parametrize("private", [False, True])
def test_a_run_is_that_of_equations_13_and_12(private, randomness, exact, sharing, model):
    given, C, c = tied(**MODELS[model])
    rho, zeta, D = numbers = 0.7, 0.4, 9.0
    method, drawn, _ = overheard(
        dp.ResourceADMM(
            penalty=rho,
            dual_step=zeta,
            step=1 / D,
            randomness=randomness,
            exact=exact,
            sharing=sharing,
        )
    )

    def penalties(i, t):
        return 1 + randomness * (drawn[NAMES[i], t, 0] - 0.5)

    residuals = []
    result = followed(
        given,
        planned(given, method, private),
        lambda left: by_hand(given, C, c, numbers, penalties, exact, left, residuals),
        1e-10 if exact or sharing else 1e-11,
    )
    if randomness:  # fresh ones for every agent, round and equality
        assert len({u for numbers in drawn.values() for u in numbers}) == ROUNDS * 4 * 2
    history = result.history
    assert history.primal == pytest.approx(np.linalg.norm(residuals, axis=1), abs=1e-9)
    assert history.mismatch == pytest.approx(np.abs(residuals).max(axis=1), abs=1e-9)
    moves = np.diff(residuals, axis=0, prepend=[-c])
    assert history.dual == pytest.approx(np.linalg.norm(moves, axis=1), abs=1e-9)


def test_with_secret_sums_nobody_else_receives_what_an_agent_sends(monkeypatch):
    problem, _ = market(4)
    sharing = dp.SecretSharing(limit=10.0, resolution=2.0**-30)
    method = dp.ResourceADMM(penalty=1.0, sharing=sharing)
    plan = problem.plan(method, mechanism=None, rounds=3)
    contributions, messages = [], []
    sent, forward = ResourceADMM.sent, SummedMethod.send

    def noted(self, local, x):
        out = sent(self, local, x)
        contributions.append(out.copy())
        return out

    def watched(self, server, t, k):
        server, boxes = forward(self, server, t, k)
        messages.append(boxes)
        return server, boxes

    monkeypatch.setattr(ResourceADMM, "sent", noted)
    monkeypatch.setattr(SummedMethod, "send", watched)
    plan.run(seed=0)
    shares = [share for boxes in messages[1::2] for _, box in boxes for share in box]
    assert len(shares) == 3 * 4 * 3 and all(isinstance(share, Share) for share in shares)
    moved = [value for value in contributions if np.abs(value).max() > 0]
    assert len(moved) >= 12
    for value in moved:
        assert not any(contains(boxes, value) for boxes in messages)
    # Every agent gets the shares that are for it, one from each of the others.
    for boxes in messages[1::2]:
        for name, (_, box) in zip(problem.names, boxes, strict=True):
            assert [share.receiver for share in box] == [name] * 3
            assert [share.sender for share in box] == [n for n in problem.names if n != name]


def test_a_value_beyond_the_limit_ends_the_run_and_is_not_shown():
    problem, _ = market()
    plan = problem.plan(
        dp.ResourceADMM(sharing=dp.SecretSharing(limit=2.0**-6)), mechanism=None, rounds=50
    )
    with pytest.raises(dp.DataError, match=r"In round 1 agent .* beyond 0\.015625") as caught:
        plan.run()
    assert "declare dp.SecretSharing(limit=...) with a larger limit" in str(caught.value)


@pytest.mark.parametrize("method", ["resource", "mean"])
def test_a_run_with_secret_sums_that_diverges_says_so_at_the_limit(method):
    sharing = dp.SecretSharing(limit=1e4)
    if method == "resource":
        problem, _ = market(bounded=False)
        plan = problem.plan(
            dp.ResourceADMM(step=1 / 0.1, sharing=sharing), mechanism=None, rounds=200
        )
    else:
        x = cp.Variable(name="x")
        agents = [dp.Agent(cp.Minimize(cp.square(x - k)), name=f"a{k}") for k in range(3)]
        plan = dp.Problem(agents).plan(
            dp.FederatedAveraging(3.0, sharing), mechanism=None, rounds=200
        )
    with pytest.raises(dp.DataError, match="the run diverges: take shorter steps") as caught:
        plan.run()
    where = r"In round \d+ agent '[^']+' would add a value beyond 10000, the limit"
    assert re.match(where, str(caught.value))


def test_sharing_that_cannot_work_is_refused_before_data_are_read():
    problem, _ = market()
    for sharing, reason in (
        (dp.SecretSharing(limit=-1.0), "limit=-1.0"),
        (dp.SecretSharing(limit=1.0, resolution=1e-6), "must be a power of two"),
        (dp.SecretSharing(limit=2.0**50), "wraps around"),
    ):
        with pytest.raises(dp.ModelError, match=reason):
            problem.plan(dp.ResourceADMM(sharing=sharing), mechanism=None)


@pytest.mark.parametrize("sharing", [None, dp.SecretSharing(100.0, 2.0**-30)], ids=str)
def test_private_runs_stay_within_their_charge_and_tell_no_prices(sharing):
    problem, _ = market()
    plan = problem.plan(
        dp.ResourceADMM(sharing=sharing), mechanism=dp.Laplace(decay=0.97), rounds=8, epsilon=2.0,
        delta=0.0,
    )  # fmt: skip
    result = plan.run(seed=1, record=True)
    assert result.ledger.spent() == pytest.approx(2.0)
    found = dp.check_sensitivity(plan)
    assert found.passed and min(agent.ratio for agent in found.agents) > 0.99
    for k, price in enumerate(np.random.default_rng(0).uniform(1, 3, size=(5, 2))):
        assert not contains((plan, result, result.transcript), price), k


def test_the_banner_says_which_conditions_of_48_fail():
    problem, _ = market(bounded=False)
    plan = problem.plan(dp.ResourceADMM(), mechanism=None, rounds=1)
    broken = plan.algorithm.violated(plan.program)
    assert [line.split(" ")[0] for line in broken] == ["step", "penalty", "dual_step"]
    assert "(48) of Xiao, Ye and Devadas fails: step =" in " ".join(str(plan).split())
    # One agent alone has admissible parameters: m = M = 2 * 5, A = 1.
    x, y = cp.Variable(name="x"), cp.Variable(name="y")
    strong = [dp.Agent(cp.Minimize(50 * cp.square(v)), name=v.name()) for v in (x, y)]
    pair = dp.Problem(strong, coupling=[0.01 * x + 0.01 * y == 1.0])
    fine = pair.plan(
        dp.ResourceADMM(penalty=1.0, dual_step=0.5, step=1 / 2e4, randomness=0.0),
        mechanism=None,
        rounds=1,
    )
    assert fine.algorithm.violated(fine.program) == []
    assert "(48) of Xiao, Ye and Devadas promises a linear rate" in " ".join(str(fine).split())


@pytest.mark.parametrize(
    ("cost", "limits", "right", "reason"),
    [
        (lambda x: cp.sum(cp.logistic(x)), [], 1.0, "not known to be strongly convex and smooth"),
        (cp.sum_squares, [0.0, 2.0], 1.0, "some agent has constraints"),
    ],
    ids=["flat", "bounded"],
)
def test_the_banner_says_where_48_has_nothing_to_say(cost, limits, right, reason):
    x, y = cp.Variable(name="x"), cp.Variable(name="y")
    box = [x >= limits[0], x <= limits[1]] if limits else []
    agents = [dp.Agent(cp.Minimize(cost(x)), box, name="a")]
    agents.append(dp.Agent(cp.Minimize(cp.sum_squares(y)), name="b"))
    coupling = [x + y == c for c in np.atleast_1d(right)]
    method = dp.ResourceADMM(penalty=1.0, step=1 / 50)
    plan = dp.Problem(agents, coupling=coupling).plan(method, mechanism=None, rounds=1)
    text = " ".join(str(plan).split())
    assert "(48) of Xiao, Ye and Devadas fails: " in text and reason in text


def test_equalities_that_contradict_each_other_are_refused():
    x, y = cp.Variable(name="x"), cp.Variable(name="y")
    agents = [dp.Agent(cp.Minimize(cp.square(v)), name=v.name()) for v in (x, y)]
    problem = dp.Problem(agents, coupling=[x + y == 1.0, x + y == 3.0])
    with pytest.raises(dp.ModelError, match="equalities in coupling= contradict each other"):
        problem.plan(dp.ResourceADMM(penalty=1.0, step=1 / 50), mechanism=None, rounds=1)


def test_48_promises_nothing_for_a_flat_objective_with_steps_that_lead_to_infinity():
    """L = 0.05: D = 0.0027 exceeds its square, and is far below L / 2, where steps stop."""
    x, y = cp.Variable(name="x"), cp.Variable(name="y")
    flat = [dp.Agent(cp.Minimize(0.025 * cp.square(v - 1)), name=v.name()) for v in (x, y)]
    pair = dp.Problem(flat, coupling=[0.01 * x + 0.01 * y == 0.1])

    def planned(D):
        method = dp.ResourceADMM(penalty=1.0, dual_step=0.5, step=1 / D, randomness=0.0)
        return pair.plan(method, mechanism=None, rounds=4000)

    plan = planned(0.0027)
    (broken,) = plan.algorithm.violated(plan.program)
    assert broken == "step = 370.37 is not below 1/D = 19.9997"
    assert "(48) of Xiao, Ye and Devadas promises" not in " ".join(str(plan).split())
    assert plan.run().status is dp.Status.DIVERGED
    # Where it promises, runs keep the promise: here the optimum is x = y = 5.
    fine = planned(0.051)
    assert "(48) of Xiao, Ye and Devadas promises a linear rate" in " ".join(str(fine).split())
    result = fine.run()
    assert result.status is dp.Status.COMPLETED
    assert [result.last[v] for v in (x, y)] == pytest.approx([5.0, 5.0], abs=1e-2)


def test_exact_steps_have_conditions_of_their_own():
    """(43): alpha may be twice as large, and D need not exceed the square of the smoothness."""
    x, y = cp.Variable(name="x"), cp.Variable(name="y")
    strong = [dp.Agent(cp.Minimize(50 * cp.square(v)), name=v.name()) for v in (x, y)]
    pair = dp.Problem(strong, coupling=[0.01 * x + 0.01 * y == 1.0])

    def broken(**arguments):
        method = dp.ResourceADMM(randomness=0.0, **arguments)
        plan = pair.plan(method, mechanism=None, rounds=1)
        text = " ".join(str(plan).split())
        number = "(43)" if method.exact else "(48)"
        assert (f"{number} of Xiao, Ye and Devadas promises" in text) == (
            plan.algorithm.violated(plan.program) == []
        )
        return [line.split(" ")[0] for line in plan.algorithm.violated(plan.program)]

    # alpha = 2 * 100 / (2 rho^2 1e-4): N / (2 alpha) = 1e-6 rho^2, D > max(1e-4 rho, 2e-10 rho^2).
    assert broken(penalty=1.0, dual_step=0.5, step=1.0, exact=True) == []
    assert broken(penalty=1.0, dual_step=0.5, step=1.0) == ["step"]
    assert broken(penalty=1.0, dual_step=0.5, step=1 / 0.9e-4, exact=True) == ["step"]
    assert broken(penalty=1.0, dual_step=2.0, step=1.0, exact=True) == ["dual_step"]
    assert broken(penalty=1.1e6, dual_step=1.0, step=1 / 500, exact=True) == [
        "penalty",
        "dual_step",
    ]
    assert broken(penalty=0.9e6, dual_step=1.0, step=1 / 500, exact=True) == []


def test_what_it_cannot_solve_is_refused():
    problem, variables = market(2)
    with pytest.raises(dp.ModelError, match="hides nothing between two agents"):
        problem.plan(dp.ResourceADMM(sharing=dp.SecretSharing(1.0)), mechanism=None)
    x = variables[0]
    both = [dp.Agent(cp.Minimize(cp.sum_squares(x - private(n))), name=n) for n in "ab"]
    shared = dp.Problem(both, coupling=[cp.sum(x) == 1])
    with pytest.raises(dp.ModelError, match=r"share a variable.*coupling=\[x == y\]"):
        shared.plan(dp.ResourceADMM(), mechanism=None)
    alone = dp.Problem(both)
    with pytest.raises(dp.ModelError, match="needs the equalities that tie its agents"):
        alone.plan(dp.ResourceADMM(), mechanism=None)
    for wrong in (
        {"penalty": 0.0},
        {"dual_step": -1.0},
        {"step": np.inf},
        {"step": 1e-101},
        {"randomness": 2.0},
    ):
        with pytest.raises(dp.ModelError, match=next(iter(wrong))):
            dp.ResourceADMM(**wrong)
    with pytest.raises(dp.ModelError, match="dp.SecretSharing"):
        dp.ResourceADMM(sharing=2.0)
    with pytest.raises(dp.ModelError, match="'average', 'last', 'tail' or 'weighted', or None"):
        dp.ResourceADMM(returned="first")
