"""Gradient descent at the mean of all: the printed iteration, with sums in the open and secret."""

import numpy as np
import pytest

import dpcvx as dp
from dpcvx.algorithms.summed import SummedMethod
from tests.algorithms.networks import MODELS, ROUNDS, followed, planned
from tests.algorithms.networks import study as uneven
from tests.algorithms.test_on_networks import points, study
from tests.helpers import contains

SHARING = dp.SecretSharing(limit=100.0, resolution=2.0**-40)


def run(given, rounds=8, **arguments):
    plan = given.problem.plan(dp.FederatedAveraging(**arguments), mechanism=None, rounds=rounds)
    return points(plan.run(iterates=True))


def by_hand(given, eta, left):
    """Appendix J, the redefined step; entries of their own stay with the agents."""
    x, S = given.start, given.shared
    for t in range(1, ROUNDS + 1):
        mean = x.copy()
        mean[:, S] = x[:, S].mean(axis=0)
        x = given.projected(left(t, 1, mean - eta(t) * given.gradients(mean)))
        yield x


@pytest.mark.parametrize("sharing", [None, SHARING], ids=["open", "secret"])
@pytest.mark.parametrize("model", ["squares", "boxes", "nonconvex boxes"])
@pytest.mark.parametrize("private", [False, True])
def test_a_run_is_that_of_appendix_J(private, model, sharing):
    given = uneven(**MODELS[model])
    plan = planned(given, dp.FederatedAveraging(dp.steps.Geometric(0.9, 0.3), sharing), private)
    result = followed(
        given,
        plan,
        lambda left: by_hand(given, lambda t: 0.3 * 0.9 ** (t - 1), left),
        # Four roundings by half a resolution each.
        1e-11 if sharing is None else 1e-10,
    )
    path = np.array([given.points(r.last)[:, given.shared] for r in result.iterates])
    sums = path.sum(axis=1)
    moves = np.linalg.norm(np.diff(sums, axis=0, prepend=np.zeros((1, 3))), axis=1)
    gaps = path - path.mean(axis=1, keepdims=True)
    assert result.history.dual == pytest.approx(moves, abs=1e-10)
    primal = np.linalg.norm(gaps, axis=(1, 2)) if sharing is None else moves / 4
    assert result.history.primal == pytest.approx(primal, abs=1e-10)


def test_it_is_the_network_method_with_everyone_s_points():
    given = study(5)
    network = dp.DecentralizedGradient("complete", 0.2, "mean")
    plan = given.problem.plan(network, mechanism=None, rounds=8)
    assert run(given, step=0.2) == pytest.approx(points(plan.run(iterates=True)), abs=1e-12)


@pytest.mark.parametrize("sharing", [None, SHARING], ids=["open", "secret"])
def test_the_mean_converges_linearly_to_the_optimum(sharing):
    given = study(5)
    means = run(given, 120, step=0.5, sharing=sharing).mean(axis=1)
    errors = np.linalg.norm(means - given.optimum, axis=1)
    assert errors[60] < 1e-3 * errors[0]
    assert errors[-1] < 1e-9


def test_agents_get_the_sum_and_no_term_of_it(monkeypatch):
    given, messages = study(5), []
    forward = SummedMethod.send

    def watched(self, server, t, k):
        server, boxes = forward(self, server, t, k)
        messages.append(boxes)
        return server, boxes

    monkeypatch.setattr(SummedMethod, "send", watched)
    for sharing in (None, SHARING):
        messages.clear()
        path = run(given, 4, step=0.2, sharing=sharing)
        assert len(messages) == (4 if sharing is None else 8)
        for x in path[:-1].reshape(-1, 3):
            assert not any(contains(boxes, x) for boxes in messages)


def test_secret_sums_change_no_guarantee():
    given = study(4)
    plans = [
        given.problem.plan(
            dp.FederatedAveraging(0.2, sharing),
            mechanism=dp.Gaussian(noise_multiplier=3.0),
            delta=1e-6,
            rounds=5,
        )
        for sharing in (None, SHARING)
    ]
    assert plans[0].guarantee == plans[1].guarantee
    plain, secret = (" ".join(str(plan).split()) for plan in plans)
    assert "secret sharing" in secret and "secret sharing" not in plain


def test_what_it_cannot_solve_is_refused():
    with pytest.raises(dp.ModelError, match="hides nothing between two agents"):
        run(study(2), sharing=SHARING)
    with pytest.raises(dp.ModelError, match=r"dp\.FederatedAveraging\(sharing=3\)"):
        dp.FederatedAveraging(sharing=3)
    with pytest.raises(dp.ModelError, match="positive finite"):
        dp.FederatedAveraging(step=-1.0)
    with pytest.raises(dp.ModelError, match="returned="):
        dp.FederatedAveraging(returned="mean")
