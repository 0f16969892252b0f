"""DPP2 against the printed iteration, its secret points and their charge, its damping."""

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp
from dpcvx.algorithms.dpp2 import DPP2
from tests.algorithms.networks import (
    GRAPH,
    GRAPHS,
    MODELS,
    NAMES,
    ROUNDS,
    followed,
    graphs,
    mixing,
    overheard,
    planned,
)
from tests.algorithms.networks import study as uneven
from tests.algorithms.test_decentralized_admm import linear
from tests.algorithms.test_on_networks import noiseless, points, study

LAPLACE = dp.Laplace(noise_multiplier=3.0, decay=0.95)


def noisy(given, algorithm, rounds=6, mechanism=LAPLACE, **arguments):
    settings = {"delta": 1e-6} if isinstance(mechanism, dp.Gaussian) else {}
    return given.problem.plan(
        algorithm, mechanism=mechanism, rounds=rounds, **settings, **arguments
    )


# -- the printed algorithm -------------------------------------------------------------------------


def by_hand(given, alpha, beta, rho, eta, damping, left, said):
    """Lines 5 to 10 of Algorithm 1, which are (16) to (19); x is secret, what left is not.

    The damping is not the paper's. y and z of round t become ``said[t]``.
    """
    P, x = np.eye(4) - mixing(), given.start
    d, q = np.zeros_like(x), np.zeros_like(x)
    for t in range(1, ROUNDS + 1):
        g = given.gradients(x)
        w, e = left(t, 1, x) - x, left(t, 2, g) - g
        y = x + (1 - eta) * d + w  # (16)
        z = g + eta * q + rho * P @ y + e + damping * P @ (x + w)  # (17)
        said[t] = y, z
        yield x + w
        x = x + w - alpha * (z - e) + beta * P @ z  # (18)
        d, q = eta * d + y, eta * q + rho * P @ y  # (19)


@pytest.mark.parametrize("model", [m for m in MODELS if m.startswith("open")])
@pytest.mark.parametrize(("eta", "damping"), [(0.2, 0.0), (0.9, 0.0), (0.5, 0.7)])
@pytest.mark.parametrize("private", [False, True])
def test_a_run_is_algorithm_1(private, eta, damping, model):
    given, expected = uneven(**MODELS[model]), {}
    numbers = dict(alpha=0.2, beta=0.1, rho=1.5, eta=eta, damping=damping)
    method, _, said = overheard(DPP2(GRAPH, 0.2, 0.1, 1.5, eta, damping, ratio=0.5))
    followed(
        given,
        planned(given, method, private),
        lambda left: by_hand(given, left=left, said=expected, **numbers),
    )
    for t, messages in expected.items():
        for k, message in enumerate(messages):
            found = np.array([said[name, t, k] for name in NAMES])
            assert found == pytest.approx(message, abs=1e-11)


def test_points_do_not_depend_on_eta():
    given = study(6)
    runs = [
        points(noiseless(given, DPP2("ring", 0.2, 0.05, 1.5, eta), 40).run(iterates=True))
        for eta in (0.1, 0.5, 0.9)
    ]
    assert runs[1] == pytest.approx(runs[0], abs=1e-10)
    assert runs[2] == pytest.approx(runs[0], abs=1e-10)


def test_the_merged_variable_hides_nothing_from_who_knows_eta():
    """x + w from two messages in a row: the paper's first tier is no privacy."""
    eta = 0.3
    method, _, said = overheard(DPP2("ring", 0.2, 0.05, 1.5, eta))
    x = points(noisy(study(6), method, rounds=8).run(seed=3, iterates=True))
    ys = [np.array([said[name, t, 0] for name in "abcdef"]) for t in range(1, 9)]
    guess = ys[0]
    for k in range(1, 8):
        guess = eta * guess + ys[k] - ys[k - 1]
        assert guess == pytest.approx(x[k], abs=1e-9)
        assert k == 1 or np.abs(ys[k] - x[k]).max() > 1e-2  # d is zero at first


# -- what leaves, and its charge -------------------------------------------------------------------


def entries(plan, agent="a", **arguments):
    return plan.run(seed=0, **arguments).ledger[agent].entries


def moves(A, alpha, rounds):
    """What a change of each entry of b by 0.1 does to points, and to gradients at them.

    One entry moves the gradient by a column of A'. Points move along gradients that moved, and
    these with the points, by A'A: nothing is lost.
    """
    point = np.zeros_like(A.T)
    for _ in range(rounds):
        slope = 0.1 * A.T + A.T @ A @ point
        yield point, slope
        point = -alpha * slope


def largest(columns, p):
    return float(np.linalg.norm(columns, p, axis=0).max())


@pytest.mark.parametrize("ratio", [1.0, 0.2, 7.0])
@pytest.mark.parametrize(
    "mechanism", [LAPLACE, dp.Gaussian(noise_multiplier=3.0, decay=0.9)], ids=str
)
def test_noise_follows_what_one_change_does_to_point_and_gradient(mechanism, ratio):
    given = study(6)
    alpha, rounds = 0.2, 6
    plan = noisy(given, DPP2("ring", alpha, 0.05, 1.5, ratio=ratio), rounds, mechanism)
    found = entries(plan)
    expected = []
    for t, (point, slope) in enumerate(moves(given.A[0], alpha, rounds), 1):
        m = 3.0 * mechanism.decay ** (t - 1)
        if t > 1:
            expected.append((t, 1, m * ratio / alpha, largest(point, mechanism.norm)))
        expected.append((t, 2, m, largest(slope, mechanism.norm)))
    assert [(e.round, e.step) for e in found] == [(t, k) for t, k, _, _ in expected]
    assert [e.multiplier for e in found] == pytest.approx([m for *_, m, _ in expected], rel=1e-12)
    assert [e.sensitivity for e in found] == pytest.approx([s for *_, s in expected], rel=1e-4)
    # The paper's parameter: scale of w over that of e, a round before by the transient.
    scales = [e.multiplier * e.sensitivity for e in found]
    assert scales[1] / scales[0] == pytest.approx(ratio * mechanism.decay, rel=1e-4)


def steep():
    """f = -M x^2 / 2 + d x: the worst case, in which gradients push neighbors apart."""
    x = cp.Variable(name="x")
    agents = []
    for name in "abc":
        d = dp.Private(np.zeros(1), name=f"d{name}", adjacency=dp.Within(0.5))
        agents.append(
            dp.Agent(cp.Minimize(-2 * cp.square(x) + d @ cp.reshape(x, (1,), order="F")), name=name)
        )
    return dp.Problem(agents)


def test_the_charge_is_attained_where_curvature_is_negative():
    plan = steep().plan(DPP2("path", 0.2, 0.05), mechanism=LAPLACE, rounds=7)
    found = dp.check_sensitivity(plan)
    assert found.passed and min(agent.ratio for agent in found.agents) > 0.999


def test_steps_may_be_long():
    """alpha M = 2.4: reaches grow, and so does the noise; the total is the same."""
    given = study(6)
    plans = [noisy(given, DPP2("ring", alpha, 0.01)) for alpha in (0.02, 1.5)]
    for plan in plans:
        assert dp.check_sensitivity(plan).passed
    last = [entries(plan)[-1].sensitivity / entries(plan)[0].sensitivity for plan in plans]
    assert last[0] < 1.1 and last[1] > 20
    totals = [sum((1 + (a if t else 0)) / (3 * 0.95**t) for t in range(6)) for a in (0.02, 1.5)]
    assert [plan.guarantee.epsilon for plan in plans] == pytest.approx(totals, rel=1e-9)


def test_a_total_is_attained_and_huge_ones_are_shown():
    given = study(6)
    plan = given.problem.plan(
        DPP2("ring", 0.2, 0.05), mechanism=dp.Laplace(decay=0.9), epsilon=2.0, delta=0, rounds=40
    )
    # Both releases of a round, the first point is public.
    m = plan.agents[0].noise.multiplier
    total = sum((1 + 0.2) / (m * 0.9**t) for t in range(40)) - 0.2 / m
    assert plan.guarantee.epsilon == pytest.approx(total, rel=1e-9) == 2.0
    assert plan.run(seed=0).ledger.spent() == pytest.approx(total, rel=1e-9)
    long = given.problem.plan(
        DPP2("ring", 0.2, 0.05), mechanism=dp.Laplace(noise_multiplier=1.0, decay=0.9), rounds=300
    )
    assert long.guarantee.epsilon == pytest.approx(
        1.2 * (0.9**-300 - 1) / (0.9**-1 - 1) - 0.2, rel=1e-9
    )
    assert long.guarantee.epsilon == pytest.approx(5.7633e14, rel=1e-4)
    assert "(5.77e14, 0)-DP" in str(long)


def test_a_claimed_smoothness_marks_the_guarantee():
    x = cp.Variable(2, name="x")
    agents = []
    for name in "abc":
        d = dp.Private(np.zeros(2), name=f"d{name}", adjacency=dp.Within(0.1))
        smoothed = cp.norm(cp.hstack([x, [1.0]]))
        agents.append(dp.Agent(cp.Minimize(smoothed + d @ x), name=name))
    problem = dp.Problem(agents)
    with pytest.raises(dp.ModelError, match=r"smoothness=\.\.\."):
        problem.plan(DPP2(), mechanism=LAPLACE)
    plan = problem.plan(DPP2(smoothness=1.0), mechanism=LAPLACE, rounds=4)
    assert plan.guarantee.kind == "asserted"
    assert "The smoothness that the user asserted is true" in " ".join(str(plan.guarantee).split())
    # What is derived holds, whatever is claimed.
    derived = noisy(study(3), DPP2("ring", smoothness=100.0))
    assert derived.guarantee.kind == "worst-case"
    assert all(0 < M.value < 3 and not M.asserted for M in (a.smoothness for a in derived.agents))
    # In the ledger as well, and only for agents that need the claim.
    found = plan.run(seed=0).ledger
    assert {e.certificate for account in found.values() for e in account.entries} == {"asserted"}
    assert "smoothness 1, asserted" in plan.guarantee.agents[0].noise


def test_a_claim_stands_for_nothing_that_is_derived():
    """One agent's kink does not make another one's curvature smaller."""
    x = cp.Variable(1, name="x")
    d = dp.Private(np.zeros(1), name="d", adjacency=dp.Within(1.0))
    agents = [dp.Agent(cp.Minimize(50 * cp.sum_squares(x) + d @ x), name="a")]
    agents.append(dp.Agent(cp.Minimize(1e-3 * cp.sum(x**4)), name="b"))
    agents.append(dp.Agent(cp.Minimize(cp.sum_squares(x)), name="c"))
    for method in (
        DPP2("path", 0.1, 0.05, smoothness=0.01),
        dp.GradientTracking("path", smoothness=0.01),
    ):
        plan = dp.Problem(agents).plan(method, mechanism=LAPLACE, rounds=4)
        assert plan.agents[0].smoothness.value == pytest.approx(100)
        assert plan.guarantee.kind == "worst-case"
        assert dp.check_sensitivity(plan).passed
    # Nothing follows from the smoothness of agents without private data.
    given = DPP2("path", 0.1)
    assert dp.Problem(agents).plan(given, mechanism=LAPLACE, rounds=4).price is not None


# -- convergence without noise ---------------------------------------------------------------------


@graphs
@pytest.mark.parametrize("damping", [0.0, 1.0])
def test_convergence_is_linear_on_strongly_convex_objectives(graph, damping):
    given = study(6)
    algorithm = DPP2(GRAPHS[graph], 0.4, 0.1, 1.0, damping=damping)
    errors = np.abs(points(noiseless(given, algorithm, 220).run(iterates=True)) - given.optimum)
    assert linear(errors.max(axis=(1, 2)), 1e-9)


def straight():
    """Linear objectives that cancel: every common point is optimal."""
    x = cp.Variable(2, name="x")
    slopes = np.array([[1.0, 0.0], [-1.0, 1.0], [0.0, -1.0]])
    agents = [dp.Agent(cp.Minimize(c @ x), name=n) for c, n in zip(slopes, "abc", strict=True)]
    return dp.Problem(agents)


def test_as_printed_nothing_damps_disagreement_without_curvature():
    """A counterexample to the paper's Theorem 1; with damping the agents agree."""
    gaps = {}
    for damping in (0.0, 2.0):
        plan = straight().plan(
            DPP2("path", 0.1, 0.02, 1.0, damping=damping, smoothness=1e-3),
            mechanism=None,
            rounds=700,
        )
        gaps[damping] = np.array(plan.run(iterates=True).history.primal)
    assert gaps[0.0][-200:].max() > 0.5 * gaps[0.0][:200].max()
    assert gaps[2.0][-1] < 1e-9


# -- refusals --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"step": 0.0}, r"step=0\.0.*positive"),
        ({"neighbor_step": -1.0}, "neighbor_step=-1.0"),
        ({"penalty": np.inf}, "penalty=inf"),
        ({"ratio": None}, "ratio=None"),
        ({"memory": 1.0}, "memory=1.0.*between 0 and 1"),
        ({"memory": 0}, "memory=0"),
        ({"damping": -0.1}, "damping=-0.1.*at least 0"),
        ({"smoothness": 0.0}, "smoothness=0.0"),
        ({"returned": "best"}, "'average', 'last', 'tail' or 'weighted', or None"),
    ],
)
def test_parameters_are_checked(arguments, match):
    with pytest.raises(dp.ModelError, match=match):
        DPP2(**arguments)


def test_steps_that_point_the_wrong_way_are_refused():
    with pytest.raises(
        dp.ModelError, match=r"neighbor_step=0\.2\) is too large.*largest eigenvalue"
    ):
        noisy(study(6), DPP2("star", 0.1, 0.2))


def test_problems_of_another_form_are_refused():
    x, own = cp.Variable(2, name="x"), cp.Variable(name="own")
    d = dp.Private(np.zeros(2), name="d", adjacency=dp.Within(0.1))

    def refused(cost, match, limits=(), error=dp.ModelError, **arguments):
        agents = [dp.Agent(cp.Minimize(cost), list(limits), name="a", **arguments)]
        agents += [dp.Agent(cp.Minimize(cp.sum_squares(x)), name=n) for n in "bc"]
        with pytest.raises(error, match=match):
            dp.Problem(agents).plan(DPP2(), mechanism=LAPLACE)

    cost = cp.sum_squares(x - d)
    refused(cost + cp.square(own), "'a' has variables of its own")
    refused(cost, "'a' has constraints. Use dp.DecentralizedGradient", [x >= 0])
    rows = dp.Private(np.zeros((3, 2)), name="rows", adjacency=dp.Rows(1.0))
    refused(cp.sum_squares(rows @ x), "must be bounded at all points", error=dp.PrivacyError)
    w = cp.reshape(x, (2, 1), order="F") @ np.ones((1, 2))
    several = cp.sum(cp.log_sum_exp(rows @ w, axis=1))
    refused(several, "several scores", error=dp.PrivacyError, clip_norm=0.5)


# -- rounding and charges --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "method",
    [
        dp.DecentralizedGradient(step=5e-324),
        dp.FederatedAveraging(step=5e-324),
        dp.PrimalDual(step=5e-324, penalty=5.0, dual_step=1.0),
        dp.GradientTracking(step=5e-324, ratio=5e-324),
    ],
    ids=str,
)
def test_what_underflows_is_not_taken_for_public(method):
    x = cp.Variable(1, name="x")
    d = dp.Private(np.array([100.0]), name="d", adjacency=dp.Within(0.3))
    agents = [dp.Agent(cp.Minimize(d @ x), name="a")]
    agents += [dp.Agent(cp.Minimize(0 * cp.sum(x)), name=name) for name in "bc"]
    plan = dp.Problem(agents).plan(method, rounds=3, epsilon=1.0, delta=1e-6)
    with pytest.raises(dp.PrivacyError, match="agent 'a' is too small for a floating-point number"):
        plan.run(seed=0)


@pytest.mark.parametrize(
    "method",
    [
        dp.DecentralizedGradient("complete", 1.0),
        dp.FederatedAveraging(1.0),
        dp.DecentralizedADMM("complete", step=1 / 2, exact=True),
        DPP2("complete", 0.5, 0.1),
        dp.GradientTracking("complete", 0.5),
    ],
    ids=str,
)
def test_large_public_gradients_do_not_tell_by_their_rounding(method):
    x = cp.Variable(1, name="x")
    d = dp.Private(np.array([0.5]), name="d", adjacency=dp.Within(1e-11))
    agents = [dp.Agent(cp.Minimize(1e5 * cp.sum(x) + cp.sum_squares(x) + d @ x), name="a")]
    agents += [dp.Agent(cp.Minimize(cp.sum_squares(x)), name=name) for name in "bc"]
    problem = dp.Problem(agents, start={x: np.ones(1)})
    plan = problem.plan(method, rounds=3, epsilon=1.0, delta=1e-6)
    # So small a change is rounded away, and nothing else of it may show.
    assert dp.check_sensitivity(plan).status == "vacuous"


def test_every_agent_has_a_decay_and_a_scale_of_its_own():
    """The paper's r_i and u_i; losses by what the theory says of each agent's changes."""
    given, names = study(6), "abcdef"
    decays = np.linspace(0.8, 1.0, 6)
    mechanisms = {n: dp.Laplace(decay=float(r)) for n, r in zip(names, decays, strict=True)}
    budgets = {n: float(e) for n, e in zip(names, np.geomspace(0.5, 50, 6), strict=True)}
    plan = given.problem.plan(
        DPP2("ring", 0.2, 0.05), mechanism=mechanisms, epsilon=budgets, delta=0, rounds=9
    )
    ledger = plan.run(seed=0).ledger
    for i, (name, r) in enumerate(zip(names, decays, strict=True)):
        change = 0.1 * np.linalg.norm(given.A[i], axis=1).max()
        M = np.linalg.norm(given.A[i], 2) ** 2
        theory, reach = [], 0.0  # in l2, of points and gradients, at most
        for _ in range(9):
            theory.append((reach, change + M * reach))
            reach = 0.2 * theory[-1][1]
        exact = list(moves(given.A[i], 0.2, 9))
        losses, above = [], []
        for entry in ledger[name].entries:
            u = entry.sensitivity * entry.multiplier  # of the noise itself
            losses.append(largest(exact[entry.round - 1][entry.step - 1], 1) / u)
            above.append(np.sqrt(3) * theory[entry.round - 1][entry.step - 1] / u)
        assert np.sum(losses) == pytest.approx(budgets[name], rel=1e-3)
        assert np.sum(losses) < np.sum(above)
        assert np.sum(losses) <= plan.agent(name).price.epsilon == pytest.approx(budgets[name])
        assert losses[-1] / losses[0] == pytest.approx(r**-8, rel=1e-3)
    assert plan.guarantee.epsilon == pytest.approx(50)
    found = dp.check_sensitivity(plan)
    assert found.passed, str(found)
