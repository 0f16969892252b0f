"""The numpy iteration is that of `dp.GradientADMM`."""

import numpy as np
import pytest

from problems.elastic_net.setting import Setting
from problems.elastic_net.simulation import by_package, gaps_of, iterate
from problems.elastic_net.study import START, elastic_net, optimum
from problems.elastic_net.users import made_users

USERS = made_users(3, 6, seed=7)
RADIUS = 0.8


def gradient(i, x, radius):
    g = 2 * (USERS.features[i] @ x - USERS.targets[i]) * USERS.features[i]
    return g if radius is None else g * min(1.0, radius / np.linalg.norm(g))


@pytest.mark.parametrize("x_first", [False, True])
@pytest.mark.parametrize("clipped", [True, False])
@pytest.mark.parametrize("sigma", [0.0, 0.3])
def test_with_the_same_noise_the_iterates_are_the_packages(clipped, sigma, x_first):
    setting = Setting(0.25, 0.9, sigma)
    study = elastic_net(USERS, radius=RADIUS, clipped=clipped)
    plan = study.plan(setting, 8, x_first=x_first)
    assert ("x first" in str(plan)) == x_first
    result = plan.run(seed=1, record=True, iterates=True, verbose=False)
    x = np.array([np.full(6, START)] + [found.last[study.x] for found in result.iterates])
    y = np.array([found.last[study.y] for found in result.iterates])
    order = np.arange(8)[:, None] % 3
    noise = np.zeros((8, 1, 6))
    radius = RADIUS if clipped else None
    releases = sorted(result.transcript.releases, key=lambda release: release.round)
    assert [release.agent for release in releases] == order[:, 0].tolist()
    for t, release in enumerate(releases):
        # What a user releases, less the gradient behind the inverse of I + eta beta A'A.
        exact = gradient(t % 3, x[t], radius) / 3 / (1 + setting.eta * setting.beta)
        noise[t, 0] = -3 * setting.eta * (release.value - exact)
    if sigma > 0:
        assert 0.7 * sigma < noise.std() < 1.3 * sigma
    else:
        assert np.abs(noise).max() < 1e-12
    found = iterate(USERS, setting, order, noise, radius=radius, x_first=x_first)
    np.testing.assert_allclose(found.x[:, 0], x, atol=1e-9)
    np.testing.assert_allclose(found.y[1:, 0], y, atol=1e-9)


def test_repetitions_of_the_package_seat_the_users_anew():
    setting = Setting(sigma=0.1)
    study = elastic_net(USERS, radius=RADIUS)
    plan = study.plan(setting, 6)
    found = by_package(study, setting, plan, range(3))
    assert found.x.shape == found.y.shape == (7, 3, 6)
    assert (found.x[0] == START).all()
    again = by_package(study, setting, plan, range(2, 3))
    np.testing.assert_array_equal(found.x[:, 2:], again.x)
    order = np.random.default_rng(2).permutation(3)
    result = plan.run(data=study.seated(order), seed=2, verbose=False)
    np.testing.assert_array_equal(found.x[-1, 2], result.last[study.x])
    np.testing.assert_array_equal(found.y[-1, 2], result.last[study.y])


def test_without_noise_a_single_user_reaches_the_optimum_and_gaps_vanish():
    users = made_users(1, 6, seed=3)
    setting = Setting()
    study = elastic_net(users, radius=1e3)
    found = by_package(study, setting, study.plan(setting, 400), range(1))
    solution, minimum = optimum(users)
    np.testing.assert_allclose(found.x[-1, 0], solution, atol=1e-6)
    gaps = gaps_of(users, setting, found, minimum)
    assert gaps.at_x.shape == gaps.split.shape == (401, 1)
    assert gaps.at_x.min() > -1e-9
    assert abs(gaps.at_x[-1, 0]) < 1e-9 and abs(gaps.split[-1, 0]) < 1e-6
