"""Runs on one ledger that are chosen by what earlier ones released."""

import math
from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp
from dpcvx.privacy import adaptive
from dpcvx.privacy.accounting import Composition, gaussian_multiplier
from dpcvx.privacy.accounts import Account, Budget
from dpcvx.privacy.gaussian import gaussian_epsilon, gaussian_mu, laplace_mu
from dpcvx.privacy.ledger import Ledger
from dpcvx.privacy.mechanism import Calibrated
from tests.campaigns.filter import ERROR, LOSS, STOP, Noise, entry, expected, laplace, largest_delta
from tests.campaigns.filter import power as sum_of

BUDGET = 1.0, 1e-5


def gaussian(multiplier, count=1):
    return Noise(Calibrated(dp.Gaussian(), multiplier), count)


def laplacian(multiplier, count=1):
    return Noise(Calibrated(dp.Laplace(), multiplier), count)


def account(*noise, epsilon=1.0, delta=1e-5, share=1):
    """After a first run of this noise."""
    planned = Composition()
    for one in noise:
        planned = planned.joined(one.calibrated.composed(one.count))
    book = Account("bob", {}, Budget(epsilon, delta, planned), share=share)
    for one in noise:
        charge(book, one)
    return book


def charge(book, noise):
    for k in range(noise.count):
        book.charge(entry(noise.calibrated, k), noise.calibrated)


def later(book, epsilon=1.0, delta=1e-5):
    """The account of a further run."""
    fresh = Account("bob", {}, Budget(epsilon, delta, Composition()), share=book.share)
    return book.continued(fresh)


# -- the attack

# Each of them with run 1 has an epsilon just below 1 at 1e-5, by the price of one plan.
FIRST = gaussian(6.72)
MENU = laplacian(1.9971211), gaussian(4.4853011)


def test_the_evaluator_finds_what_two_fitting_plans_give_who_chooses_by_the_output():
    """Each alone fits the budget; the better of the two for each output nearly doubles delta."""
    after = []
    for plan in MENU:
        total = Composition().with_gaussian(6.72).joined(plan.calibrated.composed(1))
        assert 0.999 < total.price(1e-5).epsilon <= 1
        _, law = plan.taken(Account("bob", {}, Budget(9.0, 1e-5, Composition())))
        after.append(expected(STOP, law))
    _, law = FIRST.taken(Account("bob", {}, Budget(9.0, 1e-5, Composition())))
    alone = [float(np.interp(1.0, LOSS, expected(value, law))) for value in after]
    chosen = float(np.interp(1.0, LOSS, expected(np.maximum(*after), law)))
    assert max(alone) <= 1e-5 * (1 + ERROR)
    assert chosen == pytest.approx(1.88e-5, rel=5e-3)


def test_the_ledger_leaves_no_choice_that_exceeds_its_delta():
    found = largest_delta(FIRST, MENU, 2, *BUDGET)
    assert 0.99e-5 < found <= 1e-5 * (1 + ERROR)


def test_a_rule_of_single_plans_would_be_found_to_exceed_it(monkeypatch):
    """With every run charged as if all plans had been fixed before the first output."""
    monkeypatch.setattr(
        Account, "continued", lambda self, fresh: replace(self.copy(), budget=fresh.budget)
    )
    assert largest_delta(FIRST, MENU, 2, *BUDGET) == pytest.approx(1.88e-5, rel=5e-3)


def test_the_evaluator_agrees_with_closed_forms():
    one = float(np.interp(0.3, LOSS, expected(STOP, laplace(0.7))))
    assert one == pytest.approx(1 - math.exp((0.3 - 0.7) / 2), rel=ERROR)
    pure = float(np.interp(3 * 0.7 - 1e-9, LOSS, expected(STOP, sum_of(laplace(0.7), 3))))
    assert pure == pytest.approx(0, abs=1e-4)


def plans(epsilon, path, seed, mechanism, rounds=40):
    x = cp.Variable(2, name="x")
    d = dp.Private(np.ones(2), name="d", adjacency=dp.Within(0.1, norm=1))
    problem = dp.Problem([dp.Agent(cp.Minimize(cp.sum_squares(x - d)), name="a")])
    plan = problem.plan(
        dp.LinearizedADMM(), mechanism=mechanism, rounds=rounds, epsilon=epsilon, delta=1e-5
    )
    return plan, plan.run(ledger=path, seed=seed)


# -- the rule


def test_the_first_run_has_its_own_price_and_a_later_one_that_of_the_filter():
    book = account(laplacian(30.0, 100))
    own = Composition().with_laplace(30.0, 100)
    assert book.spent() == own.price(1e-5)
    after = later(book, epsilon=3.0)
    mu2 = 100 * float(laplace_mu(1 / 30)) ** 2
    assert after.spent().epsilon == pytest.approx(gaussian_epsilon(math.sqrt(mu2), 1e-5))
    assert "planned one after the other" in after.spent().accountant
    assert after.spent().epsilon > book.spent().epsilon


def test_gaussian_runs_cost_together_what_one_run_of_all_does():
    book = later(account(gaussian(20.0, 5)))
    charge(book, gaussian(30.0, 7))
    whole = Composition().with_gaussian(20.0, 5).with_gaussian(30.0, 7)
    assert book.spent().epsilon == pytest.approx(whole.price(1e-5).epsilon, rel=1e-12)
    assert book.spent().accountant == "exact Gaussian composition"


@pytest.mark.parametrize("noise", [gaussian(9.0), laplacian(25.0), laplacian(70.0)])
def test_what_is_afforded_is_charged_to_its_end_and_no_release_more(noise):
    book = later(account(gaussian(9.0)))
    count = book.affordable(noise.calibrated, 500)
    assert 0 < count < 500
    charge(book, replace(noise, count=count))
    assert book.spent().epsilon <= 1 + 1e-9
    with pytest.raises(dp.BudgetError) as caught:
        charge(book, noise)
    assert caught.value.affordable == 0
    assert caught.value.spent == book.spent().epsilon
    assert caught.value.accountant == book.spent().accountant
    assert book.spent().accountant in str(caught.value)
    assert caught.value.requested > 1


def test_pure_losses_may_follow_whatever_the_first_run_was():
    """They use no delta; the sum is within the budget at every output."""
    book = later(account(laplacian(2.0)))
    assert book.affordable(Calibrated(dp.Laplace(), 4.0), 9) == 2
    assert book.affordable(Calibrated(dp.Gaussian(), 1e6), 9) == 0
    assert book.spent().accountant == "sum of pure epsilons"
    charge(book, laplacian(4.0, 2))
    assert book.spent().epsilon == pytest.approx(1.0)


def test_a_first_run_counts_as_planned_even_if_it_ended_early():
    """Its own price may use all of delta where it went to its end, and the filter where not."""
    planned = Composition().with_laplace(10.0, 13)
    assert planned.price(1e-5).epsilon <= 1.25 < planned.pure
    stopped = Account("bob", {}, Budget(1.25, 1e-5, planned))
    charge(stopped, laplacian(10.0, 1))
    after = later(stopped, epsilon=1.25)
    assert after.committed == pytest.approx(13 * float(laplace_mu(0.1)) ** 2)
    assert after.committed > gaussian_mu(1.25, 1e-5) ** 2
    assert after.affordable(Calibrated(dp.Gaussian(), 50.0), 9) == 0
    # A plan that was within the filter leaves what it did not use.
    small = Account("bob", {}, Budget(1.25, 1e-5, Composition().with_gaussian(10.0, 3)))
    charge(small, gaussian(10.0, 1))
    assert later(small, epsilon=1.25).affordable(Calibrated(dp.Gaussian(), 10.0), 9) >= 3


def test_an_account_without_entries_is_at_its_beginning():
    empty = later(Account("bob", {}, Budget(1.0, 1e-5, Composition())))
    assert empty.committed is None


def test_accounts_of_a_group_are_never_at_their_beginning_and_go_by_one_rule():
    """Others of the group may have released, and each account could go by a rule of its own."""
    empty = later(Account("bob", {}, Budget(1.0, 1e-5, Composition()), share=2))
    assert empty.committed == 0
    assert empty.affordable(Calibrated(dp.Laplace(), 4.0), 9) == 0  # 2 / 4 <= 1, but not Gaussian
    pure = later(Account("bob", {}, Budget(1.0, 0.0, Composition()), share=2), delta=0.0)
    assert pure.affordable(Calibrated(dp.Laplace(), 4.0), 9) == 2


def test_noise_after_a_pair_has_what_the_pair_left():
    pair = (0.25, 4e-6)
    book = Account("bob", {}, Budget(0.25, 4e-6, Composition(stated=(pair,))))
    book.charge_run(entry(None, 0, pair), Composition(stated=(pair,)))
    first = later(book)
    assert first.committed is None
    charge(first, gaussian(9.0))
    second = later(first)
    assert second.committed is not None
    noise = Calibrated(dp.Gaussian(), 9.0)
    limit = gaussian_mu(0.75, 6e-6) ** 2
    assert second.affordable(noise, 99) == math.floor(limit * 81 - 1)
    charge(second, replace(gaussian(9.0), count=second.affordable(noise, 99)))
    assert second.spent().epsilon <= 1 + 1e-9
    assert second.spent().accountant.startswith("sum of epsilons that were stated at a delta, plus")
    assert second.spent(3e-6).epsilon == math.inf


@pytest.mark.parametrize("pooled", [False, True])
@pytest.mark.parametrize("stated", [(), ((0.2, 3e-6),)])
def test_what_is_covered_is_what_has_a_price_within_the_budget(stated, pooled):
    rng = np.random.default_rng(5)
    seen = set()
    for _ in range(200):
        total = Composition(stated=stated)
        if rng.random() < 0.7:
            total = total.with_gaussian(rng.uniform(2, 40), int(rng.integers(1, 5)))
        if rng.random() < 0.7:
            total = total.with_laplace(rng.uniform(2, 40), int(rng.integers(1, 5)))
        committed = rng.choice([0.0, 0.01, 0.05])
        price = adaptive.price(total, committed, 1e-5, pooled=pooled)
        covered = adaptive.covers(total, committed, 1.0, 1e-5, pooled=pooled)
        assert covered == (price.epsilon <= 1.0)
        seen.add(covered)
    assert seen == {False, True}


def test_ledger_files_and_results_agree_on_what_two_runs_cost(tmp_path):
    path = tmp_path / "spent.jsonl"
    plan, first = plans(1.0, path, 0, "laplace")
    assert first.ledger.spent() == pytest.approx(plan.price.epsilon, rel=1e-9)
    assert dp.Ledger.load(path).spent() == first.ledger.spent()
    _, second = plans(2.0, path, 0, "gaussian")
    account = dp.Ledger.load(path)["a"]
    assert second.status is dp.Status.BUDGET and len(account.entries) > 40
    total = plan.agent("a").loss.joined(
        Composition().with_gaussian(account.entries[-1].multiplier, len(account.entries) - 40)
    )
    cost = gaussian_epsilon(math.sqrt(total.mu2_bound), 1e-5)
    for book in (second.ledger["a"], account):
        assert book.committed == pytest.approx(plan.agent("a").loss.mu2_bound, rel=1e-12)
        assert book.spent().epsilon == pytest.approx(cost, rel=1e-9)
        assert book.spent().epsilon <= 2 * (1 + 1e-9)
    assert "planned one after the other" in str(second.ledger)
    assert Ledger((account,)).prices() == {"a": account.spent()}


# -- names of rules


@pytest.mark.parametrize("rounds", [3, 7, 10, 41, 100])
def test_gaussian_ledgers_name_no_laplace_noise(rounds):
    """Nor where the planned sum and that of the releases differ by rounding."""
    first = gaussian(6.72 * math.sqrt(rounds), rounds)
    book = later(account(first))
    assert book.spent().accountant == "exact Gaussian composition"
    cut = account(first)
    planned = replace(cut.budget.planned, mu2=2 * cut.budget.planned.mu2)
    cut.budget = replace(cut.budget, planned=planned)
    assert later(cut).spent().accountant == "Gaussian composition, the first run as planned"
    mixed = later(account(laplacian(5.0, 100), first, epsilon=50.0))
    assert mixed.spent().accountant.startswith("Laplace noise counted as Gaussian")


def test_a_refusal_says_what_is_spent_and_not_of_which_budget():
    """More may be spent than the new budget allows, so it is not a part of it."""
    book = later(account(gaussian(6.72)), epsilon=0.5)
    with pytest.raises(
        dp.BudgetError, match=r"budget is \(0.5, 1e-05\), and epsilon \S+ is already"
    ):
        charge(book, gaussian(6.72))


# -- a further run on a ledger


def one_agent():
    x = cp.Variable(2, name="x")
    d = dp.Private(np.full(2, 0.3), name="d", adjacency=dp.Within(1.0))
    return dp.Problem([dp.Agent(cp.Minimize(cp.sum_squares(x - d)), [cp.abs(x) <= 5], name="a")])


@pytest.mark.parametrize("release", ["each_step", "once"])
@pytest.mark.parametrize("mechanism", [dp.Gaussian, dp.Laplace])
def test_a_further_run_has_a_noise_level_of_its_own_and_the_total_as_its_budget(release, mechanism):
    kind = {"rounds": 2, "delta": 1e-5, "release": release}
    first = (
        one_agent()
        .plan(dp.LinearizedADMM(), mechanism=mechanism(), epsilon=0.5, **kind)
        .run(seed=1)
    )
    noise = mechanism(noise_multiplier=20.0)
    alone = one_agent().plan(dp.LinearizedADMM(), mechanism=noise, **kind)
    with pytest.raises(dp.BudgetError, match="a fixed noise level"):
        alone.run(seed=2, ledger=first.ledger)
    plan = one_agent().plan(dp.LinearizedADMM(), mechanism=noise, epsilon=2.0, **kind)
    assert plan.guarantee.epsilon == alone.guarantee.epsilon < 2.0
    assert plan.fingerprint != alone.fingerprint
    ledger = first.ledger
    for k in range(2):
        result = plan.run(seed=k, ledger=ledger)
        assert result.rounds == 2 and ledger.spent() < result.ledger.spent() <= 2.0
        ledger = result.ledger
    small = one_agent().plan(
        dp.LinearizedADMM(), mechanism=noise, epsilon=alone.guarantee.epsilon, **kind
    )
    with pytest.raises(dp.BudgetError):
        small.run(seed=2, ledger=first.ledger)


def test_laplace_noise_next_to_gaussian_noise_costs_what_the_docs_say():
    first = Composition().with_gaussian(gaussian_multiplier(1, 1.0, 1e-6))
    others = {
        18.1: Composition().with_laplace(1 / 4),
        4.18: Composition().with_gaussian(gaussian_multiplier(1, 4.0, 1e-6)),
    }
    for epsilon, other in others.items():
        found = adaptive.price(first.joined(other), first.mu2_bound, 1e-6, pooled=False)
        assert found.epsilon == pytest.approx(epsilon, rel=5e-3)


def test_more_epsilon_alone_does_not_help_a_single_release():
    kind = {"rounds": 2, "delta": 1e-5, "release": "once"}
    first = one_agent().plan(dp.LinearizedADMM(), epsilon=0.5, **kind).run(seed=1)
    for epsilon in (0.5, 2.0, 50.0):
        with pytest.raises(dp.BudgetError, match="Raising `epsilon` alone recalibrates"):
            one_agent().plan(dp.LinearizedADMM(), epsilon=epsilon, **kind).run(
                seed=2, ledger=first.ledger
            )


def test_gaussian_noise_is_not_called_a_release_without_noise_at_delta_zero():
    first = one_agent().plan(dp.LinearizedADMM(), rounds=1, epsilon=0.5, delta=1e-5).run(seed=1)
    pure = one_agent().plan(
        dp.LinearizedADMM(), mechanism="laplace", rounds=1, epsilon=2.0, delta=0.0
    )
    with pytest.raises(dp.BudgetError, match="no guarantee at delta=0") as caught:
        pure.run(seed=2, ledger=first.ledger)
    assert "without noise" not in str(caught.value)
