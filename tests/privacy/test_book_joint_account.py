"""One record for many accounts says what each of them would say by itself."""

import math
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpcvx as dp
from dpcvx.privacy.accounting import Composition
from dpcvx.privacy.accounts import Account, Budget
from dpcvx.privacy.book import JointAccount
from dpcvx.privacy.entries import Entry
from dpcvx.privacy.mechanism import Calibrated

MECHANISMS = {"laplace": Calibrated(dp.Laplace(), 10.0), "gaussian": Calibrated(dp.Gaussian(), 9.0)}


def entry(k, noise, sensitivity):
    return Entry(
        k, 1, str(noise.mechanism), noise.multiplier, sensitivity, 2.0**-20, "derived", "gradient"
    )


def accounts(count, epsilon=math.inf, delta=1e-6, before=()):
    budget = Budget(epsilon, delta, Composition())
    found = [Account(f"agent {k}", {f"X{k}": "one row"}, budget) for k in range(count)]
    for account in found:
        for one, noise in before:
            account.charge(one, noise)
    return found


@settings(max_examples=60, deadline=None)
@given(
    kind=st.sampled_from([*MECHANISMS]),
    begun=st.booleans(),
    exchanges=st.lists(
        # For each of four agents the entry that it has in an exchange, or none.
        st.lists(st.sampled_from([0.1, 0.2, 0.3, None]), min_size=4, max_size=4)
        | st.sampled_from([0.1, 0.2]).map(lambda bound: [bound] * 4),
        max_size=8,
    ),
)
def test_a_joint_account_is_its_accounts_one_by_one(kind, begun, exchanges):
    noise = MECHANISMS[kind]
    before = [(entry(0, noise, 0.7), noise)] if begun else []
    apart, joint = accounts(4, before=before), JointAccount(accounts(4, before=before))
    for k, bounds in enumerate(exchanges, 1):
        for account, bound in zip(apart, bounds, strict=True):
            if bound is not None:
                account.charge(entry(k, noise, bound), noise)
        kinds = sorted({bound for bound in bounds if bound is not None})
        charges = [
            (np.flatnonzero([own == bound for own in bounds]), entry(k, noise, bound))
            for bound in kinds
        ]
        joint.charge(charges, noise)
    found = pickle.loads(pickle.dumps(joint.accounts()))
    for one, other in zip(found, apart, strict=True):
        assert one == other and one.total == other.total and len(one.entries) == len(other.entries)
        # They go on as accounts do.
        for account in (one, other):
            account.charge(entry(99, noise, 0.5), noise)
        assert one == other and one.entries[-1].round == 99


def test_who_was_charged_more_often_is_the_one_that_is_refused():
    noise = Calibrated(dp.Laplace(), 10.0)
    given_to = accounts(4, epsilon=0.25, delta=0.0)
    joint = JointAccount(given_to)
    some = np.array([1, 3])
    joint.charge([(some, entry(1, noise, 0.1))], noise)
    joint.charge([(np.arange(4), entry(2, noise, 0.1))], noise)
    with pytest.raises(dp.BudgetError, match="agent 1"):
        joint.charge([(np.arange(4), entry(3, noise, 0.1))], noise)
    assert [len(account.entries) for account in given_to] == [0] * 4
    others = JointAccount(accounts(4, epsilon=0.25, delta=0.0))
    others.charge([(some, entry(1, noise, 0.1))], noise)
    for k in (2, 3):
        others.charge([(np.array([0, 2]), entry(k, noise, 0.2))], noise)
    assert [account.total.pure for account in others.accounts()] == pytest.approx([0.2, 0.1] * 2)


@pytest.mark.parametrize("poor", [0, 1])
def test_an_exchange_that_one_account_does_not_cover_leaves_no_trace(poor):
    noise = Calibrated(dp.Laplace(), 10.0)
    joint = JointAccount(accounts(2, epsilon=0.25, delta=0.0))
    joint.charge([(np.array([poor]), entry(1, noise, 0.1))], noise)
    joint.charge([(np.array([0, 1]), entry(2, noise, 0.1))], noise)
    before = [(account.total, list(account.entries)) for account in joint.accounts()]
    with pytest.raises(dp.BudgetError, match=f"agent {poor}"):
        joint.charge([(np.array([k]), entry(3, noise, 0.1 + k)) for k in (0, 1)], noise)
    assert [(account.total, list(account.entries)) for account in joint.accounts()] == before


def test_an_exchange_without_charges_leaves_no_trace():
    joint, noise = JointAccount(accounts(3)), MECHANISMS["laplace"]
    joint.charge([(np.arange(3), entry(1, noise, 0.1))], noise)
    joint.charge([], noise)
    joint.charge([(np.arange(3), entry(3, noise, 0.1))], noise)
    assert [[e.round for e in account.entries] for account in joint.accounts()] == [[1, 3]] * 3
