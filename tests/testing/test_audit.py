"""Audits: they stay below the ledger on correct code, and notice each way of getting it wrong.

Runs are seeded, so that nothing here is random from one test run to the next. Error rates are those
over the choice of the seed: an audit at confidence c fails on correct code with probability at most
2 (1 - c), once for each of its two bounds.
"""

import math
from dataclasses import replace
from functools import cache

import cvxpy as cp
import numpy as np
import pytest
from scipy import stats

import dpcvx as dp
from dpcvx.privacy import mechanism
from dpcvx.privacy.accounting import Composition
from dpcvx.privacy.mechanism import Calibrated
from dpcvx.privacy.noise import on_grid
from dpcvx.privacy.randomness import Seeded, source_for
from dpcvx.privacy.split_noise import SplitNoise
from dpcvx.run import report as display
from dpcvx.run.gate import PrivacyGate
from dpcvx.sensitivity.certificate import Sensitivity
from dpcvx.sensitivity.norms import Bound
from dpcvx.testing.views import ObserverView, _rates, lower_bounds
from tests.spies import change_charges

DELTA = 1e-5


@pytest.fixture(autouse=True)
def faster(monkeypatch):
    """Hundreds of runs need no banner that nobody sees, and the price of each only once."""
    monkeypatch.setattr(display, "banner", lambda plan: "")
    monkeypatch.setattr(Composition, "price", cache(Composition.price))


def means(agents=1):
    """Each agent pulls x towards its data: the Jacobian is constant."""
    x = cp.Variable(2, name="x")
    private = [
        dp.Private(np.zeros(2), name=f"d{k}", adjacency=dp.Within(1.0)) for k in range(agents)
    ]
    return dp.Problem(
        [dp.Agent(cp.Minimize(cp.sum_squares(x - d)), name=f"a{k}") for k, d in enumerate(private)]
    )


def classifier():
    """Two records, and a gradient whose Jacobian depends on the point."""
    w = cp.Variable(2, name="w")
    X = dp.Private(np.array([[1.0, 0.0], [0.6, -0.8]]), name="X", adjacency=dp.Rows(1.0))
    cost = cp.sum(cp.logistic(-(X @ w))) + 0.05 * cp.sum_squares(w)
    return dp.Problem([dp.Agent(cp.Minimize(cost), [cp.abs(w) <= 3], name="site")])


def planned(problem, mu, rounds, *, algorithm=None, noise=dp.Gaussian, **arguments):
    """A plan whose releases are together a Gaussian mechanism of parameter mu."""
    return problem.plan(
        dp.LinearizedADMM(penalty=1.0) if algorithm is None else algorithm,
        mechanism=noise(noise_multiplier=math.sqrt(rounds) / mu),
        rounds=rounds,
        delta=DELTA,
        **arguments,
    )


@cache
def healthy(name):
    return WHOLE[name]()


WHOLE = {
    "gradients": lambda: planned(means(), 3.0, 2),
    "records": lambda: planned(classifier(), 6.0, 2),
    "exact steps": lambda: planned(means(), 3.0, 2, algorithm=dp.ADMM(penalty=1.0)),
    "output": lambda: planned(
        means(), 3.0, 2, algorithm=dp.LinearizedADMM(penalty=1.0, perturb="output")
    ),
    "data once": lambda: planned(means(), 3.0, 1, release="once"),
    "two agents": lambda: planned(means(2), 3.0, 2),
}


def epsilon_of(mu, delta=DELTA):
    return Composition(mu2=mu**2).price(delta).epsilon


# The bound itself


def rates(zero, one, flip, risk):
    """Of the threshold 0.5."""
    (low,), (high,) = _rates(zero, one, np.array([0.5]), flip, risk)
    return low, high


def test_the_rates_are_those_of_clopper_and_pearson():
    # binom.test(10, 20)$conf.int in R: 0.2719578 0.7280422.
    zero, one = np.repeat([0.0, 1.0], 10), np.repeat([0.0, 1.0], 10)
    assert rates(zero, one, False, 0.05) == pytest.approx((0.2719578, 0.7280422), abs=1e-7)
    assert rates(zero, one, True, 0.05) == pytest.approx((0.2719578, 0.7280422), abs=1e-7)


def test_rates_without_hits_or_without_misses_stay_inside_the_unit_interval():
    zero, one = np.zeros(20), np.ones(20)
    # All 20 right: the bounds are (risk / 2)^(1/20) and its complement.
    edge = 0.025 ** (1 / 20)
    assert rates(zero, one, False, 0.05) == pytest.approx((edge, 1 - edge))
    assert rates(one, zero, False, 0.05) == (0.0, 1.0)


def test_scores_that_do_not_tell_give_no_bound():
    assert lower_bounds(np.zeros(40), np.zeros(40), 0.0, 0.05) == (0.0, 0.0)
    rng = np.random.default_rng(0)
    epsilon, mu = lower_bounds(rng.normal(size=100), rng.normal(size=100), 0.0, 0.05)
    assert epsilon < 0.3 and mu < 0.3


def test_scores_that_tell_for_sure_give_the_bound_of_so_many_runs():
    epsilon, mu = lower_bounds(np.zeros(200), np.ones(200), 0.0, 0.05)
    edge = 0.025 ** (1 / 100)
    assert epsilon == pytest.approx(math.log(edge / (1 - edge)))
    assert mu == pytest.approx(2 * stats.norm.ppf(edge))


def test_a_test_for_the_other_data_counts_as_well():
    # Half of the scores give the first data away, and none the second.
    epsilon, mu = lower_bounds(np.tile([0.0, 1.0], 100), np.ones(200), 0.0, 0.05)
    assert epsilon > 2 and mu > 1.5


def failures_allowed(repetitions, risk):
    """More occur with probability below 1e-6 if each occurs with probability at most `risk`."""
    return stats.binom.isf(1e-6, repetitions, risk)


@pytest.mark.parametrize("delta", [0.0, 0.05])
def test_the_lower_bound_of_epsilon_holds_as_often_as_it_says(delta):
    # Randomized response of epsilon 1, but for scores that give a run away with probability delta.
    rng = np.random.default_rng(1)
    size, risk, repetitions, found = 2000, 0.3, 150, []
    truth = 1 / (1 + math.exp(-1))
    for _ in range(repetitions):
        zero = (rng.uniform(size=size) > truth).astype(float)
        one = (rng.uniform(size=size) < truth).astype(float)
        one[rng.uniform(size=size) < delta] = 2.0
        zero[rng.uniform(size=size) < delta] = -1.0
        found.append(lower_bounds(zero, one, delta, risk)[0])
    assert np.sum(np.array(found) > 1) <= failures_allowed(repetitions, risk)
    # It is neither vacuous nor absurdly careful.
    assert 0.75 < np.mean(found) < 1
    assert np.max(found) > 0.9


def test_the_lower_bound_of_mu_holds_as_often_as_it_says():
    # Normal scores in coarse steps: each threshold between them has error rates of parameter 2.
    rng = np.random.default_rng(2)
    risk, repetitions = 0.3, 80
    found = [
        lower_bounds(
            np.rint(rng.normal(size=200)), np.floor(rng.normal(2.0, size=200) + 0.5), 0, risk
        )[1]
        for _ in range(repetitions)
    ]
    assert np.sum(np.array(found) > 2) <= failures_allowed(repetitions, risk)
    assert 1.4 < np.mean(found) < 2
    assert np.max(found) > 1.9


def test_runs_that_choose_the_threshold_do_not_count():
    # The first half tells for sure, the second not at all.
    rest = np.tile([0.0, 1.0], 25)
    zero, one = np.concatenate([np.zeros(50), rest]), np.concatenate([np.ones(50), rest])
    assert lower_bounds(zero, one, 0.0, 0.05) == (0.0, 0.0)


def test_both_rates_hold_together_as_often_as_they_say():
    rng = np.random.default_rng(3)
    risk, repetitions, wrong = 0.3, 400, 0
    for _ in range(repetitions):
        one, zero = (rng.uniform(size=50) < rate for rate in (0.7, 0.2))
        low, high = rates(zero.astype(float), one.astype(float), False, risk)
        wrong += low > 0.7 or high < 0.2
    # The intervals are discrete, so that they are right more often; but not always.
    assert 0.3 * risk * repetitions < wrong <= failures_allowed(repetitions, risk)


# Correct code


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("multiplier", [0.5, 2.0])
def test_gaussian_noise_stays_below_its_ledger(multiplier, seed):
    # On correct code one of these 4 tests fails with probability at most 4 * 0.002.
    found = dp.audit(
        dp.Gaussian(noise_multiplier=multiplier), runs=300, confidence=0.999, seed=seed
    )
    assert found.passed
    assert found.claimed == pytest.approx(epsilon_of(1 / multiplier), rel=1e-9)
    if multiplier == 0.5:
        assert 0.4 * found.claimed < found.lower_gaussian <= found.claimed
        assert 0 < found.lower <= found.claimed


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("multiplier", [0.5, 2.0])
def test_laplace_noise_stays_below_its_ledger(multiplier, seed):
    # On correct code one of these 4 tests fails with probability at most 4 * 0.001.
    found = dp.audit(
        dp.Laplace(noise_multiplier=multiplier), runs=600, delta=0.0, confidence=0.999, seed=seed
    )
    assert found.passed
    assert found.claimed == pytest.approx(1 / multiplier)
    assert math.isnan(found.lower_gaussian)
    if multiplier == 0.5:
        assert 0.5 * found.claimed < found.lower <= found.claimed


def test_a_level_per_release_is_audited_against_itself():
    found = dp.audit(dp.Gaussian(release_epsilon=3.0, release_delta=1e-5), runs=300)
    assert found.passed
    assert found.claimed == pytest.approx(3.0, rel=1e-6)
    assert found.lower_gaussian > 0.8


@pytest.mark.parametrize("name", WHOLE)
def test_whole_methods_stay_below_their_ledger_and_not_far(name):
    # On correct code one of these 6 tests fails with probability at most 6 * 0.02.
    plan = healthy(name)
    found = dp.audit(plan, runs=40 if name == "records" else 80, confidence=0.99, seed=1)
    assert found.passed
    assert found.claimed == pytest.approx(plan.price.epsilon, rel=1e-6)
    assert found.delta == plan.price.delta
    # The bound of a record's slope, over the whole box, is further from what any run attains.
    share = 0.05 if name == "records" else 0.2
    assert share * found.claimed < found.lower_gaussian <= found.claimed


def test_a_method_with_laplace_noise_stays_below_its_pure_ledger():
    # Fails on correct code with probability at most 0.05.
    plan = means().plan(
        dp.LinearizedADMM(penalty=1.0), mechanism=dp.Laplace(noise_multiplier=0.5), rounds=1
    )
    found = dp.audit(plan, runs=150)
    assert found.passed
    assert found.claimed == pytest.approx(2.0)
    assert found.lower > 0.9


def test_more_runs_bring_the_bound_closer():
    few, many = (dp.audit(dp.Gaussian(noise_multiplier=0.5), runs=r, seed=3) for r in (60, 1000))
    assert few.lower_gaussian < many.lower_gaussian <= many.claimed
    assert many.lower_gaussian > 0.75 * many.claimed


def test_an_audit_is_repeated_by_its_seed():
    noise = dp.Gaussian(noise_multiplier=1.0)
    assert dp.audit(noise, runs=60, seed=4) == dp.audit(noise, runs=60, seed=4)
    assert dp.audit(noise, runs=60, seed=4) != dp.audit(noise, runs=60, seed=5)


# Wrong code. Each control names the number of runs with which it is caught at 95 % confidence, and
# passes with the same number when nothing is patched.


def halve_released_noise(monkeypatch):
    release = Calibrated.release_rows

    def less(self, values, grid, streams):
        return release(self, values, replace(grid, scale=grid.scale / 2), streams)

    monkeypatch.setattr(Calibrated, "release_rows", less)


def halve_the_samplers(monkeypatch):
    for name in ("normal_rows", "laplace_rows"):
        draw = getattr(mechanism, name)
        monkeypatch.setattr(mechanism, name, lambda s, n, source, d=draw: d(s / 2, n, source))


def halve_the_sensitivity(monkeypatch):
    bound = Sensitivity.bound

    def half(self, p, scale=None, x=None):
        found = bound(self, p, scale, x)
        return Bound(found.value / 2, found.tight)

    monkeypatch.setattr(Sensitivity, "bound", half)


noise_faults = pytest.mark.parametrize("fault", [None, halve_released_noise, halve_the_samplers])


@noise_faults
@pytest.mark.parametrize("noise", [dp.Gaussian, dp.Laplace])
def test_half_the_noise_of_a_mechanism_is_caught_in_400_runs(monkeypatch, noise, fault):
    if fault is not None:
        fault(monkeypatch)
    found = dp.audit(
        noise(noise_multiplier=0.8), runs=400, delta=0.0 if noise is dp.Laplace else DELTA
    )
    assert found.passed == (fault is None)


@pytest.mark.parametrize("fault", [None, halve_released_noise, halve_the_sensitivity])
def test_half_the_noise_or_sensitivity_of_a_method_is_caught_in_150_runs(monkeypatch, fault):
    if fault is not None:
        fault(monkeypatch)
    assert dp.audit(planned(means(), 1.5, 1), runs=150).passed == (fault is None)


@pytest.mark.parametrize("wrong", [False, True])
def test_the_sensitivity_of_data_released_once_halved_is_caught_in_150_runs(wrong):
    plan = planned(means(), 1.5, 1, release="once")
    if wrong:
        (agent,) = plan.agents
        half = replace(agent.publication, sensitivity=agent.publication.sensitivity / 2)
        plan = replace(plan, agents=(replace(agent, publication=half),))
    assert dp.audit(plan, runs=150).passed != wrong


def test_a_sensitivity_asserted_too_small_is_caught_in_150_runs():
    x = cp.Variable(2, name="x")
    d = dp.Private(np.zeros(2), name="d", adjacency=dp.Within(1.0))
    for claimed, true in ((2.0, True), (1.0, False)):
        agent = dp.Agent(
            cp.Minimize(cp.sum_squares(x - d)), sensitivity=dp.Asserted(l2=claimed), name="solo"
        )
        plan = planned(dp.Problem([agent]), 1.5, 1)
        neighbors = {"d": np.array([1.0, 0.0])}
        assert dp.audit(plan, neighbors, runs=150).passed == true


def reuse_between_rounds(monkeypatch):
    at = Seeded.at
    monkeypatch.setattr(Seeded, "at", lambda self, round, step: at(self, 1, 1))


@pytest.mark.parametrize("wrong", [False, True])
def test_noise_reused_between_rounds_is_caught_in_40_runs(monkeypatch, wrong):
    plan = planned(classifier(), 0.8, 2)
    if wrong:
        reuse_between_rounds(monkeypatch)
    # An opposite row, the default, would move the gradient by the same vector at every point.
    other = np.array([[0.0, 1.0], [0.6, -0.8]])
    found = dp.audit(plan, {"X": other}, runs=40)
    assert found.passed != wrong
    if wrong:
        assert found.score == "contrast of rounds"


def test_where_the_jacobian_is_constant_reused_noise_reveals_no_more_than_one_release(monkeypatch):
    plan = planned(means(), 2.0, 4)
    reuse_between_rounds(monkeypatch)
    found = dp.audit(plan, runs=60)
    assert found.passed
    # Four equal copies of one release of parameter 1, where four releases of it were paid for.
    assert found.lower_gaussian < epsilon_of(1.0) < 0.5 * found.claimed


@pytest.mark.parametrize("wrong", [False, True])
def test_noise_shared_between_agents_is_caught_in_40_runs(monkeypatch, wrong):
    plan = planned(means(2), 0.8, 1)
    if wrong:
        monkeypatch.setattr(
            "dpcvx.testing.audit.source_for", lambda seed, key: source_for(seed, key[:-1])
        )
    found = dp.audit(plan, runs=40)
    assert found.passed != wrong
    if wrong:
        assert found.score == "contrast with agent 0"


@pytest.mark.parametrize("wrong", [False, True])
def test_releases_left_out_of_the_ledger_are_caught_in_150_runs(monkeypatch, wrong):
    # Three of four are left out, which halves mu.
    plan = means().plan(
        dp.LinearizedADMM(penalty=1.0, local_updates=4),
        mechanism=dp.Gaussian(noise_multiplier=math.sqrt(4) / 3),
        rounds=1,
        delta=DELTA,
    )
    if wrong:
        change_charges(monkeypatch, lambda charge: charge if charge.entry.step == 1 else None)
    assert dp.audit(plan, runs=150).passed != wrong


# What is attacked, and how the outcome reads


def test_the_agent_can_be_chosen_and_must_have_private_data():
    x = cp.Variable(2, name="x")
    wide = dp.Private(np.zeros(2), name="wide", adjacency=dp.Within(1.0))
    agents = [
        dp.Agent(cp.Minimize(cp.sum_squares(x - 1)), name="public"),
        dp.Agent(cp.Minimize(cp.sum_squares(x - wide)), name="private"),
    ]
    plan = planned(dp.Problem(agents), 1.0, 1)
    assert dp.audit(plan, runs=20).claimed == dp.audit(plan, agent="private", runs=20).claimed
    for name in ("public", "nobody"):
        with pytest.raises(dp.ModelError, match=f"'{name}' has no private data"):
            dp.audit(plan, agent=name, runs=20)


def test_neighbors_that_are_closer_than_the_adjacency_tell_less():
    plan = healthy("gradients")
    near = dp.audit(plan, {"d0": np.array([0.3, 0.0])}, runs=40)
    far = dp.audit(plan, {"d0": np.array([1.0, 0.0])}, runs=40)
    assert near.lower_gaussian < far.lower_gaussian
    with pytest.raises(dp.DataError, match="further from the data"):
        dp.audit(plan, {"d0": np.array([1.1, 0.0])}, runs=20)


def test_neighbors_that_are_the_same_tell_nothing_and_are_refused():
    with pytest.raises(dp.DataError, match="same data"):
        dp.audit(healthy("gradients"), {"d0": np.zeros(2)}, runs=20)


def test_an_audit_of_what_does_not_move_is_vacuous():
    x, d = cp.Variable(2), dp.Private(1.0, adjacency=dp.Within(0.1), name="d")
    e = dp.Private(np.ones(2), adjacency=dp.Within(0.1), name="e")
    apart = dp.Agent(cp.Minimize(cp.sum_squares(x) + cp.square(d)), name="apart")
    near = dp.Agent(cp.Minimize(cp.sum_squares(x - e)), name="near")
    plan = dp.Problem([apart, near]).plan(dp.LinearizedADMM(), rounds=2, epsilon=1.0, delta=1e-6)
    found = dp.audit(plan, runs=20)
    assert found.status == "vacuous" and not found.passed and not found
    assert "VACUOUS" in str(found) and "consistent" not in str(found)
    told = dp.audit(plan, agent="near", runs=20)
    assert told and told.status == "passed"


def test_a_group_is_audited_against_what_it_pays_for_together():
    # Only one member's data change, so that half of mu^2 is left unattacked.
    x = cp.Variable(2, name="x")
    members = [
        dp.Agent(
            cp.Minimize(
                cp.sum_squares(x - dp.Private(np.zeros(2), name=n, adjacency=dp.Within(1.0)))
            ),
            name=n,
        )
        for n in "ab"
    ]
    found = dp.audit(planned(dp.Problem(members, groups=[members]), 2.0, 1), runs=40)
    assert found.claimed == pytest.approx(epsilon_of(2.0 * math.sqrt(2)), rel=1e-6)
    assert found.lower_gaussian < epsilon_of(2.0)


def test_data_can_be_given_for_objects_declared_by_shape():
    x = cp.Variable(2, name="x")
    d = dp.Private(shape=2, name="d", adjacency=dp.Within(1.0))
    plan = planned(dp.Problem([dp.Agent(cp.Minimize(cp.sum_squares(x - d)))]), 2.0, 1)
    assert dp.audit(plan, data={"d": np.array([3.0, -1.0])}, runs=40).passed
    with pytest.raises(dp.DataError, match="'d' has no data"):
        dp.audit(plan, runs=20)


def test_the_outcome_says_what_was_compared_and_that_it_is_not_private():
    found = dp.audit(dp.Gaussian(noise_multiplier=1.0), runs=40)
    assert str(found).startswith("dpcvx audit: consistent with the ledger\nNot private: ")
    assert "40 on each of two neighboring data sets, confidence 0.95" in str(found)
    wrong = replace(found, lower=found.claimed + 0.1)
    assert not wrong.passed
    assert str(wrong).startswith("dpcvx audit: FAILED: above the ledger\nNot private")
    assert not replace(found, lower=0.0, lower_gaussian=found.claimed + 0.1).passed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"runs": 19}, "runs=19"),
        ({"runs": 20.5}, "runs=20.5"),
        ({"confidence": 0.0}, "confidence"),
        ({"confidence": 1.0}, "confidence"),
        ({"delta": 1.0}, "delta"),
        ({"delta": -1e-9}, "delta"),
        pytest.param({"seed": -1}, "seed"),
    ],
)
def test_arguments_without_meaning_are_refused(arguments, message):
    with pytest.raises(dp.DpcvxError, match=message):
        dp.audit(dp.Gaussian(noise_multiplier=1.0), **arguments)


def test_what_claims_nothing_cannot_be_audited():
    with pytest.raises(dp.PrivacyError, match="has no noise level"):
        dp.audit(dp.Gaussian())
    with pytest.raises(dp.PrivacyError, match="claims no epsilon"):
        dp.audit(means().plan(dp.LinearizedADMM(), mechanism=None, rounds=1))


# Noise that is split over agents, against coalitions


def secret(agents=6, colluders=1):
    method = dp.FederatedGradient(0.1, dp.SecretSharing(100.0), colluders)
    return planned(means(agents), 1.0, 1, algorithm=method)


def coalition_of(monkeypatch, size):
    own = ObserverView.of_coalition
    monkeypatch.setattr(ObserverView, "of_coalition", lambda view, colluders: own(view, size))


def without_noise(monkeypatch, omitting):
    own = PrivacyGate._noised

    def noised(self, place, charges, compute, scale):
        if self.agents[0] in omitting:
            return charges[0].grid.width * on_grid(compute(), charges[0].grid)
        return own(self, place, charges, compute, scale)

    monkeypatch.setattr(PrivacyGate, "_noised", noised)


def test_a_coalition_learns_no_more_than_its_figure():
    found = dp.audit(secret(), runs=60)
    assert found.status == "passed"
    assert found.claimed == pytest.approx(epsilon_of(1.0))
    assert found.moved


@pytest.mark.parametrize("fault", ["all others collude", "others add no noise"])
def test_more_than_was_trusted_is_noticed(monkeypatch, fault):
    # The noise is then too small by a factor of the root of 5.
    if fault == "all others collude":
        coalition_of(monkeypatch, 5)
    else:
        without_noise(monkeypatch, {1, 2, 3, 4})
    assert dp.audit(secret(), runs=100).status == "failed"


@cache
def secret_moments(agents=6):
    """One sum of second moments, and neighbors as far apart as records can be."""
    w, made = cp.Variable(1, name="w"), []
    for k in range(agents):
        person = dict(records=f"patient of {k}")
        X = dp.Private(np.ones((2, 1)), name=f"X{k}", adjacency=dp.Rows(1.0, **person))
        y = dp.Private(np.array([1.0, 0.5]), name=f"y{k}", adjacency=dp.Rows(1.0, **person))
        cost = cp.sum_squares(X @ w - y) + cp.sum_squares(w)
        made.append(dp.Agent(cp.Minimize(cost), name=f"a{k}"))
    method = dp.OneShot(dp.SecretSharing(1000.0), sums="moments")
    return planned(dp.Problem(made), 1.0, 1, algorithm=method), {"y0": np.array([-1.0, 0.5])}


def test_a_coalition_learns_no_more_than_its_figure_of_second_moments():
    plan, neighbors = secret_moments()
    found = dp.audit(plan, neighbors, runs=30)
    assert found.status == "passed"
    assert found.claimed == pytest.approx(epsilon_of(1.0))


@pytest.mark.parametrize(("agents", "colluders"), [(3, 1), (6, 3)])
@pytest.mark.parametrize("fault", ["none", "one more colludes", "one omits its noise"])
def test_one_more_or_one_less_is_noticed_in_many_releases(agents, colluders, fault):
    # Every entry is a release by itself. The bound of mu holds with a probability of 1 - 1e-6, and
    # faults move mu by a tenth or more, which is found as surely.
    size, honest = 200_000, agents - colluders
    split = SplitNoise(agents, colluders, 2.0**-12, 1 / math.sqrt(honest))
    calibrated = Calibrated(dp.Gaussian(), 1.0, split=split)
    adding = honest - (fault != "none")
    sums = [
        sum(
            calibrated.release(np.full(size, move), calibrated.grid(0.0, size), source.at(1, 1))
            for move, source in zip(
                [world * 0.9] + [0.0] * (adding - 1),
                [Seeded(5, (world, k)) for k in range(adding)],
                strict=True,
            )
        )
        for world in (0, 1)
    ]
    _, mu = lower_bounds(*sums, DELTA, 1e-6)
    assert (mu > 0.9) == (fault != "none")
