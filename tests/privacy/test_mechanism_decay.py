"""Noise that falls from round to round: its cost, its scale, and what goes on after a crash."""

import dataclasses
import math

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import dpcvx as dp
from dpcvx._words import at_most
from dpcvx.privacy.accounting import Composition, gaussian_multiplier, laplace_multiplier
from dpcvx.privacy.accounts import Account, Budget
from dpcvx.privacy.entries import Entry
from dpcvx.privacy.mechanism import Calibrated
from tests.instances import household_tariff
from tests.privacy.test_ledger_file import cut, ends, put
from tests.run.test_resume import book, full, planned, problem, same, same_ledger

KINDS = {"gaussian": dp.Gaussian, "laplace": dp.Laplace}
kinds = pytest.mark.parametrize("kind", KINDS)
METHODS = {
    "linearized": dp.LinearizedADMM(penalty=1.0),
    "E = 2": dp.LinearizedADMM(penalty=1.0, local_updates=2),
    "output": dp.LinearizedADMM(penalty=1.0, perturb="output"),
    "mixing": dp.DecentralizedGradient("path", 0.05),
}
methods = pytest.mark.parametrize("method", METHODS)


def fading(kind="gaussian", algorithm="linearized", decay=0.8, source=None, **arguments):
    source = problem() if source is None else source
    mechanism = KINDS[kind](decay=decay, **arguments.pop("noise", {}))
    defaults = {"rounds": 4, "delta": 1e-6 if kind == "gaussian" else 0.0}
    if mechanism.per_step() is None:
        defaults["epsilon"] = 1.0
    return source.plan(METHODS[algorithm], mechanism=mechanism, **(defaults | arguments))


# -- sums ------------------------------------------------------------------------------------------


def test_the_multiplier_of_a_round_falls_geometrically():
    calibrated = Calibrated(dp.Gaussian(decay=0.5), 8.0)
    assert [calibrated.at(t).multiplier for t in range(5)] == [8.0, 8.0, 4.0, 2.0, 1.0]
    assert calibrated.at(3).mechanism is calibrated.mechanism
    constant = Calibrated(dp.Gaussian(), 8.0)
    assert constant.at(7) is constant


def test_golden_sums():
    """1/8 + 1/4 + 1/2 + 1 for Laplace; 1/64 + 1/16 + 1/4 + 1 for the squares of Gaussian noise."""
    four = Calibrated(dp.Laplace(decay=0.5), 8.0).composed(4)
    assert four.laplace == ((1.0, 1), (2.0, 1), (4.0, 1), (8.0, 1))
    assert four.pure == 1.875
    assert Calibrated(dp.Gaussian(decay=0.5), 8.0).composed(4).mu2 == 1.328125


@pytest.mark.parametrize(
    ("count", "each", "expected"),
    [
        (0, 3, ()),
        (2, 3, ((8.0, 2),)),
        (3, 3, ((8.0, 3),)),
        (7, 3, ((2.0, 1), (4.0, 3), (8.0, 3))),
        (3, 1, ((2.0, 1), (4.0, 1), (8.0, 1))),
    ],
)
def test_the_first_releases_are_those_of_the_first_rounds(count, each, expected):
    assert Calibrated(dp.Laplace(decay=0.5), 8.0).composed(count, each).laplace == expected
    squares = math.fsum(n / m**2 for m, n in expected)
    assert Calibrated(dp.Gaussian(decay=0.5), 8.0).composed(count, each).mu2 == pytest.approx(
        squares, rel=1e-15
    )


def test_constant_noise_is_counted_as_before():
    assert Calibrated(dp.Gaussian(), 4.0).composed(7, 2) == Composition(7 / 16)
    assert Calibrated(dp.Laplace(), 4.0).composed(7, 2) == Composition(0.0, ((4.0, 7),))


def test_totals_of_the_paper_golden():
    """Laplace noise of multiplier 1.02^(1 - t) for 100 rounds: a geometric series."""
    plan = fading("laplace", decay=1 / 1.02, rounds=100, noise={"noise_multiplier": 50.0})
    assert plan.guarantee.epsilon == pytest.approx((1.02**100 - 1) / 0.02 / 50, rel=1e-12)
    plan = fading("gaussian", decay=1 / 1.02, rounds=100, noise={"noise_multiplier": 50.0})
    squares = (1.02**200 - 1) / (1.02**2 - 1) / 2500
    assert plan.guarantee.rho == pytest.approx(squares / 2, rel=1e-12)
    assert plan.guarantee.epsilon == pytest.approx(
        Composition(squares).price(1e-6).epsilon, rel=1e-12
    )


# -- calibration -----------------------------------------------------------------------------------

decays = st.floats(0.7, 1.0)


@settings(deadline=None, max_examples=25)
@given(st.integers(1, 5), st.integers(1, 40), st.floats(0.05, 20), decays)
def test_gaussian_calibration_inverts_pricing_and_never_exceeds(steps, rounds, epsilon, decay):
    ratios = [decay**t for t in range(rounds)]
    m = gaussian_multiplier(steps, epsilon, 1e-6, ratios)
    spent = Calibrated(dp.Gaussian(decay=decay), m).composed(steps * rounds, steps)
    assert spent.price(1e-6).epsilon <= epsilon * (1 + 1e-10)
    assert spent.price(1e-6).epsilon == pytest.approx(epsilon, rel=1e-6)
    if decay == 1.0:
        assert m == pytest.approx(gaussian_multiplier(steps * rounds, epsilon, 1e-6), rel=1e-12)


@settings(deadline=None, max_examples=25)
@given(st.integers(1, 5), st.integers(1, 40), st.floats(0.05, 20), decays)
def test_laplace_calibration_at_delta_zero_is_the_sum(steps, rounds, epsilon, decay):
    ratios = [decay**t for t in range(rounds)]
    m = laplace_multiplier(steps, epsilon, 0.0, ratios)
    assert m == pytest.approx(steps * math.fsum(1 / r for r in ratios) / epsilon, rel=1e-9)
    spent = Calibrated(dp.Laplace(decay=decay), m).composed(steps * rounds, steps)
    assert spent.price(0.0).epsilon <= epsilon


def laplace_price(m, steps, delta, ratios):
    total = Composition()
    for r in ratios:
        total = total.with_laplace(m * r, steps)
    return total.price(delta).epsilon


@pytest.mark.parametrize("ratios", [(1.0,), (1.0, 0.9, 0.81)], ids=len)
@pytest.mark.parametrize(
    ("steps", "epsilon", "delta"),
    [(1, 0.1, 1e-9), (1, 10.0, 1e-2), (30, 1.0, 1e-5), (1000, 0.1, 1e-9)],
)
def test_laplace_calibration_is_the_smallest_up_to_two_millionths(steps, epsilon, delta, ratios):
    m = laplace_multiplier(steps, epsilon, delta, ratios)
    assert laplace_price(m, steps, delta, ratios) <= epsilon
    assert laplace_price(m / (1 + 2e-6), steps, delta, ratios) > epsilon


# -- plans and ledgers -----------------------------------------------------------------------------


@kinds
@methods
def test_the_ledger_of_a_run_adds_up_to_the_plan(kind, method):
    plan = fading(kind, method)
    result = plan.run(seed=1, record=True)
    m, each = plan.agents[0].noise.multiplier, plan.algorithm.requirements.releases
    for account in result.ledger.values():
        assert len(account.entries) == 4 * each == plan.releases(4)
        for entry in account.entries:
            assert entry.multiplier == m * 0.8 ** (entry.round - 1)
            noise = plan.agents[0].noise.at(entry.round).grid(1.0, 2)
            assert noise.scale == pytest.approx(entry.multiplier, rel=1e-4)
        assert account.spent() == plan.price
    for loss in plan.composed(4).values():
        assert loss.rho == pytest.approx(plan.guarantee.rho, rel=1e-12)
    assert result.ledger.rho == pytest.approx(plan.guarantee.rho, rel=1e-12)
    assert plan.guarantee.epsilon <= 1.0 + 1e-9
    assert plan.guarantee.epsilon == pytest.approx(1.0, rel=1e-6)
    same(result, plan.replay(result.transcript))


def test_laplace_totals_at_a_delta():
    plan = fading("laplace", "E = 2", rounds=5, delta=1e-6, epsilon=0.2)
    result = plan.run(seed=1)
    assert plan.guarantee.epsilon == pytest.approx(0.2, rel=1e-5)
    assert plan.guarantee.epsilon <= 0.2
    assert result.ledger.spent() == pytest.approx(plan.guarantee.epsilon, rel=1e-9)


@kinds
def test_groups_count_every_release_for_each_member(kind):
    alone = fading(kind, noise={"noise_multiplier": 20.0})
    grouped = fading(kind, source=problem(groups=[["a", "b"]]), noise={"noise_multiplier": 20.0})
    assert grouped.composed(4) == {n: a.repeated(2) for n, a in alone.composed(4).items()}
    result = grouped.run(seed=1)
    for account in result.ledger.values():
        assert account.share == 2
        assert account.spent().epsilon == pytest.approx(grouped.guarantee.epsilon, rel=1e-12)
    total = fading(kind, source=problem(groups=[["a", "b"]]))
    assert total.guarantee.epsilon == pytest.approx(1.0, rel=1e-6)


@kinds
def test_a_level_per_step_is_that_of_the_first_round(kind):
    level = {"release_epsilon": 0.2} | ({"release_delta": 1e-3} if kind == "gaussian" else {})
    plan = fading(kind, noise=level)
    constant = fading(kind, decay=1.0, noise=level)
    assert plan.agents[0].noise.multiplier == constant.agents[0].noise.multiplier
    assert plan.agents[0].noise.release_epsilon == 0.2
    assert plan.guarantee.epsilon > constant.guarantee.epsilon
    assert plan.composed(1) == constant.composed(1)


def test_another_decay_is_another_plan():
    plans = [fading(decay=d, noise={"noise_multiplier": 9.0}) for d in (0.8, 0.9, 1.0)]
    assert len({plan.fingerprint for plan in plans}) == 3
    with pytest.raises(dp.PrivacyError, match="another plan"):
        plans[1].replay(plans[0].run(seed=1, record=True).transcript)


def test_the_odometer_shows_what_the_rounds_so_far_cost(capsys):
    plan = fading(noise={"noise_multiplier": 20.0})
    plan.run(seed=1, verbose=True)
    out = capsys.readouterr().out
    for t in range(1, 5):
        assert at_most(plan.composed(t)["a"].price(1e-6).epsilon) in out


def test_steps_that_follow_the_budget_follow_that_of_the_first_round():
    mechanism = dp.Gaussian(decay=0.8, noise_multiplier=20.0)
    method = dp.LinearizedADMM(step=dp.steps.Smooth())
    plan = problem().plan(method, mechanism=mechanism, rounds=4, delta=1e-6)
    assert plan.agents[0].noise.release_epsilon == 1 / 20 == plan.algorithm.step.c


# -- the noise itself ------------------------------------------------------------------------------

# 4000 numbers per round. Kolmogorov-Smirnov rejects noise of the right scale with probability
# 1e-6 per round; a scale of the round before or after, off by a quarter, moves the distribution
# function by 0.044 (Laplace) or 0.05 (normal), against a critical distance of 0.042.
SIZE, LEVEL = 4000, 1e-6
UNIT = {"gaussian": stats.norm(), "laplace": stats.laplace()}


def releases_less_gradients(kind, method, rounds=4):
    """Noise in units of the first round's scale, by round."""
    x = cp.Variable(SIZE, name="x")
    d = dp.Private(np.zeros(SIZE), name="d", adjacency=dp.Within(0.1))
    agents = [
        dp.Agent(cp.Minimize(cp.sum_squares(x - d) / 2), name="a"),
        dp.Agent(cp.Minimize(0 * cp.sum(x)), name="b"),
    ]
    plan = fading(
        kind, method, 0.75, dp.Problem(agents), noise={"noise_multiplier": 1e3}, rounds=rounds
    )  # fmt: skip
    result = plan.run(seed=6, record=True, iterates=True)
    public = plan.program.agents[0].form.at_zero()
    before, found = np.zeros((2, SIZE)), []
    for release, iterate in zip(
        (r for r in result.transcript.releases if r.agent == 0), result.iterates, strict=True
    ):
        expected, unit = np.zeros(SIZE), 0.1 * 1e3
        if method == "mixing":
            eta = 0.05
            unit *= eta
            expected = before.mean(axis=0) - eta * public.gradient(before[0])
        found.append((release.value - expected) / unit)
        before = np.array(iterate.last.vectors)
    return found


@kinds
@pytest.mark.parametrize("method", ["linearized", "mixing"])
def test_the_noise_of_a_round_has_the_scale_of_that_round(kind, method):
    """Of released gradients, of which the private part is 0 here, and of released points."""
    for t, noise in enumerate(releases_less_gradients(kind, method)):
        unit = UNIT[kind].cdf
        assert stats.kstest(noise / 0.75**t, unit).pvalue > LEVEL
        for other in (t - 1, t + 1):
            assert stats.kstest(noise / 0.75**other, unit).pvalue < LEVEL


# -- ledgers that go on ----------------------------------------------------------------------------


@pytest.fixture
def path(tmp_path, monkeypatch):
    monkeypatch.setattr("os.fsync", lambda file: None)
    return tmp_path / "ledger.jsonl"


@kinds
def test_a_killed_run_goes_on_with_the_noise_of_its_round(path, kind):
    plan = fading(kind, "E = 2", rounds=3)
    alone = dp.Serial()  # lines of agents that work at the same time come in any order
    result, raw = full(plan, path, seed=3, executor=alone)
    same(result, plan.run(seed=3, record=True))
    for size in ends(raw)[1:-1:3]:
        put(path, cut(raw, size))
        same(result, plan.run(ledger=path, seed=3, record=True, executor=alone))
        assert book(path.read_bytes()) == book(raw)
        same_ledger(dp.Ledger.load(path), result.ledger)


@pytest.mark.filterwarnings("ignore::dpcvx.RepeatWarning")
def test_a_killed_run_without_a_seed_spends_what_was_planned(path):
    plan = fading(rounds=3)
    _, raw = full(plan, path)
    for size in ends(raw)[1:-1:2]:
        put(path, cut(raw, size))
        again = plan.run(ledger=path)
        for account in again.ledger.values():
            expected = [plan.agents[0].noise.multiplier * 0.8**t for t in range(3)]
            assert [e.multiplier for e in account.entries] == expected
        assert again.ledger.spent() == pytest.approx(plan.guarantee.epsilon, rel=1e-12)
        same(again, plan.replay(path))


@kinds
def test_a_later_run_begins_with_the_noise_of_the_first_round(path, kind):
    plan = fading(kind, rounds=4, noise={"noise_multiplier": 50.0})
    first = plan.run(ledger=path, seed=3)
    ample = fading(kind, rounds=8, noise={"noise_multiplier": 50.0})
    result = ample.run(ledger=path, seed=4)
    assert 0 < result.rounds < 8
    entries = result.ledger["a"].entries
    assert entries[:4] == first.ledger["a"].entries
    later = [e.multiplier for e in entries[4:]]
    assert later == [50.0 * 0.8**t for t in range(result.rounds)]
    assert result.ledger.spent() <= ample.guarantee.epsilon * (1 + 1e-9)


@kinds
@pytest.mark.parametrize("each", [1, 2])
@pytest.mark.parametrize("share", [1, 2])
@pytest.mark.parametrize("spent", [0, 5])
def test_affordable_rounds_are_the_largest_that_fit(kind, each, share, spent):
    delta = 1e-6 if kind == "gaussian" else 0.0
    calibrated = Calibrated(KINDS[kind](decay=0.9), 40.0)
    planned = calibrated.composed(12 * each, each).repeated(share)
    budget = Budget(planned.price(delta).epsilon, delta, planned)
    account = Account("bob", {}, budget, share=share)
    for t in range(spent):
        entry = Entry(t, 1, str(calibrated.mechanism), 25.0, 0.5, 2.0**-20, "derived", "gradient")
        account.recall(entry)
    found = account.affordable(calibrated, 40 * each, each)
    before = calibrated.mechanism.compose(Composition(), 25.0, spent * share)

    def fits(count):
        total = before.joined(calibrated.composed(count, each).repeated(share))
        return total.price(delta).epsilon <= budget.epsilon * (1 + 1e-9)

    assert found == max(count for count in range(40 * each) if fits(count))
    assert (found == 12 * each) == (spent == 0)
    assert account.affordable(calibrated, 2, each) == min(2, found)


def test_continued_runs_make_as_many_rounds_as_fit(path):
    for updates, method in ((1, "linearized"), (2, "E = 2")):
        first = fading("laplace", method, rounds=3, noise={"noise_multiplier": 100.0})
        second = fading("laplace", method, rounds=10, noise={"noise_multiplier": 100.0})
        result = second.run(ledger=first.run(seed=1).ledger, seed=2)
        spent = first.composed(3)["a"]
        totals = [spent.joined(second.composed(t)["a"]).pure for t in range(1, 11)]
        expected = sum(total <= second.guarantee.epsilon * (1 + 1e-9) for total in totals)
        assert result.rounds == expected < 10
        assert len(result.ledger["a"].entries) == updates * (3 + expected)
        assert "10 planned rounds" in str(result.notes)


def test_a_budget_without_room_for_a_round_is_refused_with_its_numbers():
    plan = fading("laplace")
    ledger = plan.run(seed=1).ledger
    with pytest.raises(dp.BudgetError) as caught:
        plan.run(ledger=ledger, seed=2)
    error = caught.value
    assert error.spent == pytest.approx(1.0)
    assert error.requested == pytest.approx(1 + 1 / plan.agents[0].noise.multiplier)
    assert error.affordable == 0


# -- words -----------------------------------------------------------------------------------------


@kinds
def test_the_guarantee_says_how_the_noise_falls(kind):
    plan = fading(kind, "E = 2", noise={"noise_multiplier": 20.0})
    norm = plan.agents[0].noise.mechanism.norm
    name = kind.capitalize()
    assert plan.guarantee.mechanism == (
        f"{name} noise, scale 20 times the l{norm} sensitivity in the first round and 0.8 times "
        "that of the round before in all others; 8 releases per agent"
    )
    text = " ".join(str(plan).split())
    assert "in the first round and 0.8 times that of the round before in all others" in text
    constant = fading(kind, decay=1.0, noise={"noise_multiplier": 20.0})
    assert "first round" not in constant.guarantee.mechanism


def test_the_papers_claim_is_not_about_noise_that_falls():
    level = {"release_epsilon": 0.5, "release_delta": 1e-3}
    assert fading(noise=level, decay=1.0).guarantee.claimed_by_paper is not None
    plan = fading(noise=level)
    assert plan.guarantee.claimed_by_paper is None
    assert "Theorem 4.9" not in str(plan)


@kinds
def test_data_that_are_released_once_have_no_later_rounds(kind):
    once = fading(kind, release="once", rounds=6)
    constant = fading(kind, release="once", rounds=6, decay=1.0)
    assert once.agents[0].noise.multiplier == constant.agents[0].noise.multiplier
    assert once.guarantee.epsilon == constant.guarantee.epsilon
    assert once.guarantee.mechanism == constant.guarantee.mechanism
    one, other = (plan.run(seed=2, record=True) for plan in (once, constant))
    for account in one.ledger.values():
        (entry,) = account.entries
        assert (entry.round, entry.multiplier) == (0, once.agents[0].noise.multiplier)
    assert one.ledger.spent() == pytest.approx(once.guarantee.epsilon, rel=1e-12)
    assert [dataclasses.asdict(e) for a in one.ledger.values() for e in a.entries] == [
        dataclasses.asdict(e) for a in other.ledger.values() for e in a.entries
    ]
    same(one, once.replay(one.transcript))


@pytest.mark.parametrize("release", ["each_step", "once"])
@kinds
def test_users_who_take_turns_are_refused(kind, release):
    with pytest.raises(dp.ModelError, match=r"GradientADMM has one user per round.*Drop decay="):
        household_tariff().problem.plan(
            dp.GradientADMM(), mechanism=KINDS[kind](decay=0.9), rounds=6, epsilon=1.0,
            delta=1e-6, release=release,
        )  # fmt: skip


def test_hidden_iterates_are_refused_as_well():
    with pytest.raises(dp.ModelError, match="Drop decay="):
        household_tariff().problem.plan(
            dp.GradientADMM(), mechanism=dp.Gaussian(decay=0.9), rounds=6, epsilon=1.0,
            delta=1e-6, observer="last_iterate",
        )  # fmt: skip


@kinds
@pytest.mark.parametrize("decay", [0.0, -0.5, 1.0000001, 2.0, math.nan, math.inf, "1", None, True])
def test_a_decay_lies_above_0_and_at_most_at_1(kind, decay):
    with pytest.raises(dp.PrivacyError, match=rf"decay={decay!r}\) must be above 0 and at most 1"):
        KINDS[kind](decay=decay)


@kinds
def test_a_decay_of_one_changes_nothing(kind):
    assert KINDS[kind](decay=1.0) == KINDS[kind]()
    one, other = fading(kind, decay=1.0), planned(
        mechanism=KINDS[kind](), rounds=4, delta=1e-6 if kind == "gaussian" else 0.0
    )  # fmt: skip
    assert one.fingerprint == other.fingerprint
    assert one.price == other.price


@kinds
def test_noise_that_falls_beyond_all_numbers_is_refused(kind):
    """At a fixed multiplier; the last rounds would have none at all."""
    with pytest.raises(dp.PrivacyError, match="cannot be accounted for"):
        fading(kind, decay=0.1, rounds=400, noise={"noise_multiplier": 1.0})


@kinds
def test_noise_that_falls_beyond_all_numbers_is_refused_with_a_total_too(kind):
    with pytest.raises(dp.PrivacyError, match="too small to compute with"):
        fading(kind, decay=0.1, rounds=400)
