"""The model: its objective, its optimum, its privacy."""

import numpy as np
import pytest
from sklearn.linear_model import ElasticNet as Reference

import dpcvx as dp
from dpcvx.privacy.last_iterate import profile
from problems.elastic_net.setting import C1, C2, Setting
from problems.elastic_net.study import DELTA, elastic_net, losses, optimum, regularizer
from problems.elastic_net.users import made_users

USERS = made_users(4, 6, seed=2)
SETTING = Setting(sigma=0.5)


def test_the_sum_of_the_agents_is_the_papers_objective():
    study = elastic_net(USERS)
    assert study.problem.names == ("user 0", "user 1", "user 2", "user 3", "regularizer")
    x, y = np.random.default_rng(0).normal(size=(2, 6))
    expected = np.mean((USERS.features @ x - USERS.targets) ** 2)
    expected += C1 * np.abs(y).sum() + C2 * y @ y
    central = dp.not_private.joint_problem(study.problem)
    study.x.value, study.y.value = x, y
    assert float(np.asarray(central.objective.value)) == pytest.approx(expected)
    assert losses(USERS, x) + regularizer(y) == pytest.approx(expected)
    assert len(study.problem.coupling) == 1


@pytest.mark.parametrize("count", [3, 60])
def test_the_optimum_is_scikit_learns(count):
    users = made_users(count, 10, seed=1)
    # Its objective is half of ours.
    reference = Reference(
        alpha=C1 / 2 + C2,
        l1_ratio=C1 / 2 / (C1 / 2 + C2),
        fit_intercept=False,
        tol=1e-12,
        max_iter=10**6,
    ).fit(users.features, users.targets)
    found, value = optimum(users)
    np.testing.assert_allclose(found, reference.coef_, atol=1e-6)
    assert value == pytest.approx(losses(users, found) + regularizer(found))


def test_clipped_gradients_are_those_of_huber_losses():
    users, radius, step = made_users(30, 6, seed=4), 1.0, 1e-6
    rng = np.random.default_rng(0)
    clipped = 0
    for x in 2 * rng.normal(size=(20, 6)):
        gradients = 2 * (users.features @ x - users.targets)[:, None] * users.features
        norms = np.linalg.norm(gradients, axis=1, keepdims=True)
        clipped += int((norms > radius).sum())
        expected = (gradients * np.minimum(1, radius / norms)).mean(axis=0)
        points = x + step * np.concatenate([np.eye(6), -np.eye(6)])
        up, down = losses(users, points, radius).reshape(2, 6)
        np.testing.assert_allclose((up - down) / (2 * step), expected, atol=1e-6)
    assert 100 < clipped < 590


def test_the_optimum_with_a_radius_minimizes_the_huber_losses():
    users = made_users(40, 6, seed=5)
    x, value = optimum(users, 0.3)
    assert value < optimum(users)[1]
    near = x + 1e-3 * np.random.default_rng(0).normal(size=(200, 6))
    assert (losses(users, near, 0.3) + regularizer(near) > value).all()
    # Beyond every gradient the two are the same.
    np.testing.assert_allclose(optimum(users, 1e3)[0], optimum(users)[0], atol=1e-6)


def test_clipping_is_proved_and_what_is_asserted_is_marked():
    proved, asserted = (
        elastic_net(USERS, clipped=clipped).plan(SETTING, 4) for clipped in (True, False)
    )
    assert (proved.guarantee.kind, asserted.guarantee.kind) == ("worst-case", "asserted")
    assert proved.guarantee.epsilon == pytest.approx(asserted.guarantee.epsilon)
    # Each user once: eta^2 Delta^2 / (2 sigma^2), of whose Delta = 2 C the x step leaves a part.
    moved = SETTING.eta * 2 * SETTING.radius / (1 + SETTING.eta * SETTING.beta)
    rho = (moved / SETTING.sigma) ** 2 / 2
    assert proved.guarantee.rho == pytest.approx(rho)
    assert dp.check_sensitivity(proved).passed
    assert elastic_net(USERS).plan(Setting(), 4).guarantee.kind == "none"


def test_plans_for_the_last_iterate_guarantee_what_the_formulas_say():
    plan = elastic_net(USERS).plan(SETTING, USERS.count, observer="last_iterate")
    found = plan.guarantee.amplification
    expected = profile(SETTING.block, 2 * SETTING.radius, SETTING.sigma, users=USERS.count)
    # A certificate proves no more; nothing hides the user of the last round.
    pairs = zip(found.by_agent.values(), expected.epsilons(DELTA), strict=True)
    assert all(proved <= paper * (1 + 1e-5) for proved, paper in pairs)
    assert max(found.by_agent.values()) == pytest.approx(max(expected.epsilons(DELTA)), rel=1e-5)
    # The gradients are clipped, and their smoothness follows from the bound of the features.
    assert plan.guarantee.kind == "worst-case"
    assert dp.check_sensitivity(plan).passed


def test_an_asserted_radius_that_does_not_hold_is_caught():
    study = elastic_net(USERS, radius=1e-3, clipped=False)
    assert not dp.check_sensitivity(study.plan(SETTING, 4)).passed
    assert not dp.check_sensitivity(elastic_net(USERS, radius=1e-3).plan(SETTING, 4)).faults


@pytest.mark.parametrize("radius", [0.0, -1.0, np.inf])
def test_broken_radii_are_refused(radius):
    with pytest.raises(dp.ModelError, match="radius"):
        elastic_net(USERS, radius=radius)
