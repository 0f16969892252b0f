"""Decentralized ADMM against the printed iteration, its sign, its limit."""

import re

import cvxpy as cp
import networkx as nx
import numpy as np
import pytest
from scipy.special import expit

import dpcvx as dp
from tests.algorithms.networks import (
    GRAPH,
    GRAPHS,
    MODELS,
    NAMES,
    NEAR,
    ROUNDS,
    followed,
    graphs,
    overheard,
    planned,
)
from tests.algorithms.networks import study as uneven
from tests.algorithms.test_on_networks import noiseless, noisy, points, study

# -- the printed algorithm -------------------------------------------------------------------------


def by_hand(given, D, zeta, weight, exact, left):
    """Algorithm 1 with the sign that converges, and D of every round; agents' points.

    Gamma / D is ``weight(i, t)``. The order is the paper's: x, then the multipliers with the new x.
    """
    x, S = given.start, given.shared
    lam = np.zeros_like(x)
    for t in range(1, ROUNDS + 1):
        v = x.copy()
        for i, around in enumerate(NEAR):
            share = weight(i, t)
            v[i, S] = share * x[i, S] + (1 - share) * x[around, S].mean(axis=0)
        v += lam / D(t)
        if exact:  # (3)
            step = np.array([given.minimizer(i, v[i], D(t)) for i in range(len(x))])
        else:  # (6)
            step = v - given.gradients(x) / D(t)
        x = given.projected(left(t, 1, step))
        yield x
        for i, around in enumerate(NEAR):
            lam[i, S] += zeta * (x[around, S] - x[i, S]).sum(axis=0)


@pytest.mark.parametrize("model", ["squares", "boxes", "bent boxes"])
@pytest.mark.parametrize(
    ("randomness", "growth", "exact"),
    [(0.0, 1.0, False), (1.0, 1.1, False), (0.4, 1.0, False), (0.0, 1.0, True), (1.0, 1.1, True)],
)
@pytest.mark.parametrize("private", [False, True])
def test_a_run_is_algorithm_1(private, randomness, growth, exact, model):
    given = uneven(**MODELS[model])
    method, drawn, _ = overheard(
        dp.DecentralizedADMM(
            GRAPH, step=1 / 7, penalty=0.6, randomness=randomness, growth=growth, exact=exact
        )
    )

    def weight(i, t):
        # Fixed weights need no random numbers.
        return 0.5 + (randomness * (drawn[NAMES[i], t, 0] - 0.5) if randomness else 0.0)

    result = followed(
        given,
        planned(given, method, private),
        lambda left: by_hand(given, lambda t: 7 * growth ** (t - 1), 0.6, weight, exact, left),
        1e-10 if exact else 1e-11,
    )
    if randomness:  # fresh ones for every agent, round and entry
        assert len({u for numbers in drawn.values() for u in numbers}) == ROUNDS * 4 * 3
    spread_like(given, result)


def spread_like(given, result):
    """The history is that of the points: how far from their mean, how far from the last ones."""
    path = [given.points(iterate.last)[:, given.shared] for iterate in result.iterates]
    gaps = [X - X.mean(axis=0) for X in path]
    moves = np.diff(path, axis=0, prepend=np.zeros_like(path[:1]))
    history = result.history
    assert history.primal == pytest.approx(np.linalg.norm(gaps, axis=(1, 2)), abs=1e-12)
    assert history.mismatch == pytest.approx(np.abs(gaps).max(axis=(1, 2)), abs=1e-12)
    assert history.dual == pytest.approx(np.linalg.norm(moves, axis=(1, 2)), abs=1e-12)


# -- the sign --------------------------------------------------------------------------------------


def logistic(agents=10, records=20, n=3):
    """Regularized logistic regression, and the gradient of an agent."""
    rng = np.random.default_rng(7)
    z, features, labels, made = cp.Variable(n, name="z"), [], [], []
    for k in range(agents):
        X = rng.normal(size=(records, n))
        X /= np.linalg.norm(X, axis=1, keepdims=True)
        y = np.sign(X @ np.ones(n) + rng.normal(size=records))
        features.append(X)
        labels.append(y)
        rows = dp.Private(y[:, None] * X, name=f"X{k}", adjacency=dp.Rows(1.0))
        loss = cp.sum(cp.logistic(-(rows @ z))) / records + cp.sum_squares(z) / 2
        made.append(dp.Agent(cp.Minimize(loss), name=f"a{k}"))

    def gradient(k, x):
        margins = labels[k] * (features[k] @ x)
        return x - features[k].T @ (labels[k] * expit(-margins)) / records

    return dp.Problem(made), gradient


def printed(gradient, neighbors, start, rounds, D, zeta, weight, sign):
    """Algorithm 1, where the paper's sign is -1. Iterates, shape (rounds, agents, n)."""
    x, path = np.array(start), []
    lam = np.zeros_like(x)
    for t in range(1, rounds + 1):
        before, x = x, np.empty_like(x)
        for i, around in enumerate(neighbors):
            share = weight(i, t)  # Gamma / D
            mean = sum(before[j] for j in around) / len(around)
            x[i] = share * before[i] + (1 - share) * mean
            x[i] += (lam[i] - gradient(i, before[i])) / D
        for i, around in enumerate(neighbors):
            lam[i] += sign * zeta * sum(x[j] - x[i] for j in around)
        path.append(x)
    return np.array(path)


def test_with_the_printed_sign_of_the_multipliers_iterates_diverge():
    """10 agents, 20 edges, D = 10, zeta = 1/2, as in the paper's Appendix E."""
    problem, gradient = logistic()
    net = dp.networks.random([f"a{k}" for k in range(10)], 20, seed=4)
    algorithm, drawn, _ = overheard(dp.DecentralizedADMM(net, step=1 / 10, penalty=0.5))
    plan = problem.plan(algorithm, mechanism=None, rounds=170)
    result = plan.run(seed=1, iterates=True)
    wrong, right = (
        printed(
            gradient, net.neighbors, np.zeros((10, 3)), 170, 10.0, 0.5,
            lambda i, t: drawn[f"a{i}", t, 0], sign,
        )
        for sign in (-1, 1)
    )  # fmt: skip
    assert np.abs(wrong[-1]).max() > 1e20
    assert points(result) == pytest.approx(right, abs=1e-11)
    for x in result.last.vectors:
        assert np.abs(sum(gradient(k, x) for k in range(10))).max() < 1e-7


# -- convergence without noise ---------------------------------------------------------------------


def linear(errors, floor):
    """Whether errors fall to the floor, and in the second half as fast as in the first, about."""
    logs = np.log(np.maximum(errors, floor))
    end = int(np.argmax(logs <= np.log(floor))) or len(logs) - 1
    first, second = logs[0] - logs[end // 2], logs[end // 2] - logs[end]
    return errors[-1] <= floor and second > 0.5 * first


@graphs
def test_convergence_is_linear_with_random_weights_and_to_the_central_optimum(graph):
    given = study(6)
    plan = noiseless(given, dp.DecentralizedADMM(GRAPHS[graph]), 260)
    result = plan.run(seed=5, iterates=True)
    errors = np.abs(points(result) - given.optimum).max(axis=(1, 2))
    assert linear(errors, 1e-9)
    assert result.reported == "last" and result.consensus_residual < 1e-9


def test_the_check_of_linear_convergence_knows_others():
    t = np.arange(1.0, 701.0)
    assert linear(0.9**t, 1e-9)
    assert not linear(1 / t, 1e-3) and not linear(1e-6 / t**2, 1e-9)
    assert not linear(0.99**t, 1e-9)


def test_with_cones_agents_meet_in_the_central_optimum():
    shapes = [
        lambda x: [cp.norm(x) <= 0.3],
        lambda x: [cp.sum(x) == 0.1],
        lambda x: [x[0] >= 0.05, cp.norm1(x) <= 0.6],
        lambda x: [],
    ]
    given = study(4, sets=lambda k, x: shapes[k](x))
    result = noiseless(given, dp.DecentralizedADMM("path"), 450).run(seed=5)
    dp.not_private.joint_problem(given.problem).solve(cp.CLARABEL)
    for x in result.last.vectors:
        assert x == pytest.approx(given.x.value, abs=1e-4)


# -- constants -------------------------------------------------------------------------------------


@pytest.mark.parametrize("graph", ["star", "random"])
def test_constants_follow_from_the_smoothness_and_the_network(graph):
    given = study(6)
    algorithm = noiseless(given, dp.DecentralizedADMM(GRAPHS[graph])).algorithm
    assert 1 / algorithm.step == pytest.approx(4 * given.smoothness)
    largest = np.linalg.eigvalsh(nx.laplacian_matrix(GRAPHS[graph]).toarray().astype(float))[-1]
    assert algorithm.penalty == pytest.approx(1 / (algorithm.step * 3 * largest))
    assert algorithm.graph.agents == tuple("abcdef")
    chosen = noiseless(given, dp.DecentralizedADMM(GRAPHS[graph], step=1 / 20)).algorithm
    assert (chosen.step, chosen.penalty) == (1 / 20, pytest.approx(20 / (3 * largest)))
    both = noiseless(given, dp.DecentralizedADMM(GRAPHS[graph], 1 / 20, 0.1)).algorithm
    assert (both.step, both.penalty, both.randomness) == (1 / 20, 0.1, 1.0)


def test_linear_objectives_have_a_D_that_leads_across_the_set():
    x = cp.Variable(2, name="x", bounds=[-1, 1])
    d = dp.Private([1.0, 2.0], name="d", adjacency=dp.Within(0.1))
    agents = [dp.Agent(cp.Minimize(d @ x), name="a"), dp.Agent(cp.Minimize(x[0]), name="b")]
    plan = dp.Problem(agents).plan(dp.DecentralizedADMM(), mechanism=None, rounds=300)
    assert plan.run(seed=0).last[x] == pytest.approx([-1.0, -1.0], abs=1e-9)


def test_without_a_smoothness_constant_D_is_asked_for():
    x = cp.Variable(2, name="x")
    X = dp.Private(np.eye(2), name="X", adjacency=dp.Rows(1.0))
    agents = [
        dp.Agent(cp.Minimize(cp.sum(cp.abs(X @ x - 1))), name="a"),
        dp.Agent(cp.Minimize(cp.sum_squares(x)), name="b"),
    ]
    problem = dp.Problem(agents)
    with pytest.raises(
        dp.ModelError,
        match=r"No smoothness constant.*step=1 / \(4 \* L\).*DecentralizedGradient\(\)",
    ):
        problem.plan(dp.DecentralizedADMM(), epsilon=1.0, delta=1e-6, rounds=2)
    plan = problem.plan(dp.DecentralizedADMM(step=1 / 5), epsilon=1.0, delta=1e-6, rounds=2)
    assert plan.run(seed=0).rounds == 2


@pytest.mark.parametrize("name", ["step", "penalty"])
@pytest.mark.parametrize("value", [0.0, -1.0, np.inf, np.nan, "1", True])
def test_constants_are_positive_finite_numbers(name, value):
    message = f"dp.DecentralizedADMM({name}={value!r}) must be a positive finite number"
    with pytest.raises(dp.ModelError, match=re.escape(message)):
        dp.DecentralizedADMM(**{name: value})


@pytest.mark.parametrize("value", [-0.1, 1.1, np.nan, np.inf, "1", None])
def test_randomness_lies_between_none_and_all(value):
    message = f"randomness={value!r}) must be a number from 0 (fixed weights) to 1"
    with pytest.raises(dp.ModelError, match=re.escape(message)):
        dp.DecentralizedADMM(randomness=value)
    for good in (0, 0.0, 0.5, 1):
        assert dp.DecentralizedADMM(randomness=good).randomness == good


def test_a_nonconvex_objective_is_refused():
    x = cp.Variable(2, name="x")
    agents = [
        dp.Agent(cp.Minimize(-cp.sum_squares(x)), [cp.abs(x) <= 1], name="a"),
        dp.Agent(cp.Minimize(cp.sum_squares(x)), name="b"),
    ]
    with pytest.raises(dp.ModelError, match="DecentralizedADMM"):
        dp.Problem(agents).plan(dp.DecentralizedADMM(step=1 / 5), mechanism=None, rounds=2)


def test_texts_name_the_method_its_network_and_its_constants():
    assert str(dp.DecentralizedADMM()) == "decentralized ADMM over complete"
    plan = noisy(study(), dp.DecentralizedADMM("ring", step=1 / 8, penalty=0.5))
    text = str(plan.algorithm)
    assert text.startswith("decentralized ADMM over 5 agents, 5 edges, metropolis weights")
    assert text.endswith("step = 0.125, penalty = 0.5")
    assert "decentralized ADMM over 5 agents" in str(plan)
    (noise,) = {a.noise for a in plan.guarantee.agents}
    assert "3 times the sensitivity of the new point" in noise


# -- exact steps, steps that become shorter --------------------------------------------------------


@graphs
def test_exact_steps_converge_linearly_to_the_central_optimum(graph):
    given = study(6)
    plan = noiseless(given, dp.DecentralizedADMM(GRAPHS[graph], exact=True), 250)
    errors = np.abs(points(plan.run(seed=5, iterates=True)) - given.optimum).max(axis=(1, 2))
    assert linear(errors, 1e-9)


def test_noise_on_exact_steps_is_smaller_than_that_on_first_order_steps():
    """They move by the change of the gradient over D plus the modulus of convexity."""
    given = study(5)
    plans = [
        noisy(given, dp.DecentralizedADMM("ring", 1 / 5, 0.5, exact=exact))
        for exact in (False, True)
    ]
    first, exact = (plan.run(seed=0).ledger["a"].entries[0].sensitivity for plan in plans)
    search = plans[1].algorithm.exact
    assert search.m > 0.4
    assert exact / first == pytest.approx(5.0 / (5.0 + search.m), rel=1e-4)
    found = dp.check_sensitivity(plans[1])
    assert found.passed and min(agent.ratio for agent in found.agents) > 0.7
    assert (
        "divided by 1/step plus the modulus of strong convexity"
        in plans[1].guarantee.agents[0].noise
    )


def test_a_D_that_grows_makes_less_of_later_noise():
    plan = noisy(study(5), dp.DecentralizedADMM("ring", 1 / 5, 0.5, growth=1.1))
    sensitivities = [e.sensitivity for e in plan.run(seed=0).ledger["a"].entries]
    ratios = np.array(sensitivities[1:]) / sensitivities[:-1]
    assert ratios == pytest.approx(np.full(4, 1 / 1.1), rel=1e-4)


def test_exact_steps_ask_for_what_their_proof_needs():
    x = cp.Variable(2, name="x")
    d = dp.Private(np.zeros(2), name="d", adjacency=dp.Within(0.1))
    rows = dp.Private(np.zeros((3, 2)), name="rows", adjacency=dp.Rows(1.0))

    def refused(cost, error, match, limits=(), **arguments):
        agents = [dp.Agent(cp.Minimize(cost), list(limits), name="a", **arguments)]
        agents.append(dp.Agent(cp.Minimize(cp.sum_squares(x)), name="b"))
        with pytest.raises(error, match=match):
            noisy(Given(dp.Problem(agents)), dp.DecentralizedADMM("path", step=1 / 4, exact=True))

    smooth = cp.sum_squares(x - d)
    refused(smooth + cp.norm1(x), dp.ModelError, "No smoothness constant.*agent 'a'")
    refused(smooth + cp.quad_over_lin(x, -0.5), dp.ModelError, "'a' is not convex")
    refused(smooth, dp.ModelError, "set of agent 'a' has no closed-form", [cp.norm(x) <= 1 - x[0]])
    refused(cp.sum_squares(rows @ x), dp.PrivacyError, "agent 'a'.* must be bounded at all points")
    w = cp.reshape(x, (2, 1), order="F") @ np.ones((1, 2))
    several = cp.sum(cp.log_sum_exp(rows @ w, axis=1))
    refused(several, dp.PrivacyError, "several scores, as in agent 'a'", clip_norm=0.5)
    # Bounded variables limit what a record can do, and one score may be clipped.
    limits = [cp.abs(x) <= 1]
    for cost, arguments in (
        (cp.sum_squares(rows @ x), {}),
        (cp.sum(cp.logistic(rows @ x)), {"clip_norm": 0.5}),
    ):
        agents = [dp.Agent(cp.Minimize(cost), limits, name="a", **arguments)]
        agents.append(dp.Agent(cp.Minimize(cp.sum_squares(x)), name="b"))
        plan = noisy(
            Given(dp.Problem(agents)), dp.DecentralizedADMM("path", step=1 / 4, exact=True)
        )
        assert dp.check_sensitivity(plan).passed


class Given:
    """A problem by itself."""

    def __init__(self, problem):
        self.problem = problem


@pytest.mark.parametrize("value", [0.9, 0.0, -1.0, np.nan, np.inf, True, "fast"])
def test_D_does_not_fall(value):
    with pytest.raises(dp.ModelError, match="growth=.*at least 1"):
        dp.DecentralizedADMM(growth=value)


def test_a_D_that_outgrows_the_steps_is_refused():
    with pytest.raises(dp.ModelError, match="growth=10.*closer to 1"):
        noisy(study(3), dp.DecentralizedADMM("path", growth=10.0), 30)
    noisy(study(3), dp.DecentralizedADMM("path", growth=10.0), 10)


@pytest.mark.parametrize("D", [1e-7, 1e-308])
def test_searches_without_end_are_refused(D):
    x = cp.Variable(2, name="x")
    d = dp.Private(np.zeros(2), name="d", adjacency=dp.Within(0.1))
    flat = cp.sum(cp.logistic(x)) + d @ x
    problem = dp.Problem(
        [dp.Agent(cp.Minimize(flat), name=name) for name in "a"]
        + [dp.Agent(cp.Minimize(cp.sum(cp.logistic(x))), name="b")]
    )
    with pytest.raises(dp.ModelError, match="gradient steps with D = .*too many"):
        problem.plan(dp.DecentralizedADMM("path", step=1 / D, exact=True), mechanism=None)


# -- the linear rate -------------------------------------------------------------------------------


def quadratics(curvatures, box=None, size=1):
    """Agents with ``h/2 (x - k)^2`` for their numbers k."""
    x = cp.Variable(size, name="x")
    limits = [] if box is None else [cp.abs(x) <= box]
    return dp.Problem(
        [
            dp.Agent(cp.Minimize(cp.sum_squares(x - k) * h / 2), limits, name=f"a{k}")
            for k, h in enumerate(curvatures)
        ]
    )


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("shape", ["complete", "ring", "star"])
def test_runs_within_the_conditions_fall_at_a_linear_rate(shape, exact):
    """V of the module, from round to round, with weights that vary as much as they may."""
    h = np.array([1.0, 1.3, 1.6, 2.0])
    problem = quadratics(h)
    wide = {"complete": 0.1, "ring": 0.1, "star": 0.0}[shape]
    method = dp.DecentralizedADMM(shape, step=1 / 6.5, penalty=0.5, randomness=wide, exact=exact)
    plan = problem.plan(method, mechanism=None, rounds=80)
    resolved = plan.algorithm
    if shape == "star":  # one neighbor or three: too different for these
        assert "vary too much" in " ".join(resolved.violated(plan.program))
        return
    assert resolved.violated(plan.program) == []
    assert "at a linear rate" in str(plan)
    best = float(h @ np.arange(4) / h.sum())
    result = plan.run(seed=0, iterates=True)
    graph = resolved.network_of(plan.program)
    inverse = np.linalg.pinv(graph.laplacian)
    lam, heights = np.zeros(4), []
    for iterate in result.iterates:
        x = np.concatenate(iterate.last.vectors)
        lam = lam - 0.5 * graph.laplacian @ x
        gap = lam - h * (best - np.arange(4))
        heights.append(6.5 * ((x - best) ** 2).sum() + gap @ inverse @ gap / 0.5)
    falls = np.array(heights[1:]) / np.array(heights[:-1])
    assert falls.max() < 1 and heights[-1] < 1e-3 * heights[0]


def test_steps_that_lead_to_infinity_are_not_promised_anything():
    problem = quadratics([2.0, 2.0, 2.0, 2.0])

    def planned(**arguments):
        return problem.plan(
            dp.DecentralizedADMM("ring", randomness=0.0, **arguments), mechanism=None, rounds=400
        )

    # r = D / 4 and l = 4: D > 2 + D / 2 + 2 zeta.
    far = planned(step=1 / 1.4, penalty=0.2)
    assert far.run(seed=0).status is dp.Status.DIVERGED
    (broken,) = far.algorithm.violated(far.program)
    assert broken == f"step = {1 / 1.4:.6g} is not below 1/D = {1 / 3.1:.6g}"
    assert "no linear rate is known: step" in " ".join(str(far).split())
    near = planned(step=1 / 5, penalty=0.2)
    assert near.algorithm.violated(near.program) == []
    (broken,) = planned(step=1 / 5, penalty=1.5).algorithm.violated(near.program)[:1]
    assert broken == "penalty = 1.5 is above 1.25"
    grown = planned(step=1 / 5, penalty=0.2, growth=1.01)
    assert grown.algorithm.violated(grown.program) == ["growth = 1.01 is above 1"]


def test_defaults_with_fixed_weights_keep_the_conditions():
    for shape in ("complete", "ring"):
        plan = quadratics([1.0, 2.0, 3.0, 1.0, 2.0, 3.0]).plan(
            dp.DecentralizedADMM(shape, randomness=0.0), mechanism=None, rounds=1
        )
        assert plan.algorithm.violated(plan.program) == []
    boxed = quadratics([1.0, 2.0], box=1.0).plan(
        dp.DecentralizedADMM(randomness=0.0), mechanism=None, rounds=1
    )
    assert boxed.algorithm.violated(boxed.program) == ["some agent has constraints"]


def test_multipliers_begin_with_values_that_left_and_not_with_starts():
    """Public starts differ where sets do: 1, 0 and 2. Round 1 by hand, with zero multipliers."""
    x = cp.Variable(name="x")
    wanted, least = (3.0, 0.0, 1.0), (1.0, -1.0, 2.0)
    agents = [
        dp.Agent(cp.Minimize(cp.square(x - c)), [x >= low, x <= 9], name=f"a{k}")
        for k, (c, low) in enumerate(zip(wanted, least, strict=True))
    ]
    method = dp.DecentralizedADMM("complete", step=0.1, penalty=0.5, randomness=0.0)
    result = dp.Problem(agents).plan(method, mechanism=None, rounds=1).run()
    assert np.concatenate(result.last.vectors) == pytest.approx([1.4, 0.75, 2.0], abs=1e-9)
