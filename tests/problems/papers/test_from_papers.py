"""Runs as printed agree entry by entry with versions written from the papers' texts alone."""

import numpy as np
import pytest

import dpcvx as dp
from problems.census import printed as census
from problems.census.measures import Measures
from problems.census.records import made_records, shared_out
from problems.elastic_net.setting import C1, C2, Setting
from problems.elastic_net.simulation import drawn, iterate
from problems.elastic_net.users import made_users
from problems.logistic_regression import printed as images
from problems.logistic_regression.experiment import DELTA, FEMNIST_PENALTY
from problems.logistic_regression.partition import Partition
from problems.nonconvex_classification import printed as nonconvex
from problems.nonconvex_classification.experiment import FIGURE_1, FIGURE_3, Curve, Size
from tests.problems import from_papers
from tests.problems.logistic_regression.instances import blobs

# Sums are added up in another order: rounding errors of some hundred rounds.
NEAR = {"rtol": 1e-9, "atol": 1e-10}


@pytest.mark.parametrize("secret", [False, True])
def test_algorithm_1_of_xiao_ye_devadas(secret):
    """A random network of 10 agents with 20 edges, K = 30, the printed noise."""
    N, K, seed = 10, 30, 3
    names = [f"agent {k}" for k in range(N)]
    network = dp.networks.random(names, 20, seed)
    parts = shared_out(made_records(1500), N, 100, seed=seed).parts
    curve = census.secret(N, seed) if secret else census.ALGORITHM_1
    setting = census.Setting(
        Measures.of(shared_out(made_records(1500), N, 100, seed=seed)), network
    )
    found = census.run(setting, curve, K, seed).points

    def gradient(part):
        def at(x):
            scores = part.labels * (part.features @ x)
            return x - (part.labels / (1 + np.exp(scores))) @ part.features / part.count

        return at

    rng = np.random.default_rng(seed)
    shape = (N, parts[0].features.shape[1])
    draws = [
        (rng.uniform(size=shape), rng.laplace(scale=1.02**-k, size=shape)) for k in range(1, K + 1)
    ]
    fractions, noise = (np.array(column) for column in zip(*draws, strict=True))
    neighbors = [np.flatnonzero(row < 0) for row in network.laplacian]
    constants = 1 / curve.step(1, np.ones(N)) if secret else np.full(N, 10.0)
    own = from_papers.xiao_ye_devadas(
        [gradient(part) for part in parts], neighbors, np.zeros(shape), constants, 0.5, fractions,
        noise,
    )  # fmt: skip
    np.testing.assert_allclose(found[1:], own, **NEAR)


@pytest.mark.parametrize("scales", [FIGURE_1, FIGURE_3], ids=["figure 1", "figure 3"])
def test_algorithm_1_of_ou_wang_liu_lu(scales):
    """Random eta^k in (0, 1), of which the package's points do not depend; 40 rounds."""
    arrays, curve = nonconvex.drawn(Size(6, 20, 3, None, 0.9), 0), Curve(0.9, 1.0, 40)
    found = nonconvex.points(arrays, curve, 5, scales)
    rng = np.random.default_rng(5)
    decay = 0.9 ** np.arange(40)[:, None, None]
    w, e = rng.laplace(size=(40, 2, 6, 3)).transpose(1, 0, 2, 3) * decay

    def gradient(rows):  # labels times features
        def at(x):
            slope = -(rows / (1 + np.exp(rows @ x))[:, None]).mean(axis=0)
            return slope + 0.001 * 2 * x / (1 + x**2) ** 2

        return at

    own = from_papers.ou_wang_liu_lu(
        [gradient(rows) for rows in arrays.signed], arrays.P, np.zeros((6, 3)), scales.alpha,
        0.05, 10.0, rng.uniform(size=40), scales.u_w * w, scales.u_e * e,
    )  # fmt: skip
    np.testing.assert_allclose(found[1:], own, **NEAR)


@pytest.mark.parametrize(
    ("noise", "updates"), [("ObjG", 1), ("ObjG", 3), ("OutG", 2), ("OutG, text", 2)]
)
def test_algorithm_1_of_ryu_kim(noise, updates):
    """(10) and (12) on (30), 3 agents of 20 records, a small box, the schedule of FEMNIST."""
    dataset, rounds, seed = blobs(), 8, 4
    setting = images.Setting(dataset, Partition("iid", 3).of(dataset), 0.3, FEMNIST_PENALTY, seed)
    curve = images.Curve(noise, 0.5, updates)
    found = np.array([state.sent for state in images.run(setting, curve, rounds)])
    size = found[0, 0].shape
    draws = {}
    for t in range(1, rounds + 1):
        rng = np.random.default_rng([seed, t])
        for p in range(3):
            for e in range(updates):
                draws[t, e, p] = rng.normal(size=size)
    t = np.arange(1, rounds + 1)
    own = from_papers.ryu_kim(
        [(own.records.features, own.records.labels) for own in images.shares(setting)],
        dataset.classes,
        np.zeros(size),
        0.3,
        np.full(rounds, 0.005 + 0.05 / 0.5),
        np.full(rounds, 1 / np.prod(size)) if noise == "OutG" else 1 / np.sqrt(t),
        updates,
        (0.5, DELTA),
        lambda *key: draws[key],
        "objective" if noise == "ObjG" else "output",
    )
    np.testing.assert_allclose(found, own, **NEAR)


def test_algorithm_1_of_chan_xie_zhao():
    """The first row of Table 1, users sampled anew in every turn, sigma = 0.1, 60 turns."""
    users, setting = made_users(30, 12), Setting(0.25, 0.9, 0.1)
    order, noise = drawn(users, 0.1, 60, 2, seed=1)
    found = iterate(users, setting, order, noise)

    def gradient(i):
        a, b = users.features[i], users.targets[i]
        return lambda x: 2 * (a @ x - b) * a

    def prox(v):  # of 0.01 |y|_1 + 0.1 |y|^2 + 0.45 |y - v|^2
        return np.sign(v) * np.maximum(np.abs(0.9 * v) - 0.01, 0) / (0.2 + 0.9)

    assert (C1, C2) == (0.01, 0.1)
    least = max(4 / (1 + np.sqrt(1 + 8 / 4)), 2 - 2 * 0.2 / 0.81)  # (23), mu = nu = 0.5
    eta = (least + 2) / 2
    for r in range(2):
        x, y, _ = from_papers.chan_xie_zhao(
            [gradient(i) for i in order[:, r]], np.full(12, 3.0), prox, 0.9, eta, noise[:, r]
        )
        np.testing.assert_allclose(found.x[1:, r], x, **NEAR)
        np.testing.assert_allclose(found.y[:-1, r], y, **NEAR)
