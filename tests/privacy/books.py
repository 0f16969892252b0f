"""Accounts of one agent, and releases to charge them with."""

import dpcvx as dp
from dpcvx.privacy.accounting import Composition
from dpcvx.privacy.accounts import Account, Budget
from dpcvx.privacy.entries import Entry
from dpcvx.privacy.mechanism import Calibrated

TENTH = Calibrated(dp.Laplace(), 10.0)
NORMAL = Calibrated(dp.Gaussian(), 10.0)


def entry(k=1, calibrated=TENTH):
    return Entry(
        k, 1, str(calibrated.mechanism), calibrated.multiplier, 0.5, 2.0**-20, "derived", "gradient"
    )


def account(epsilon, delta=0.0, planned=None):
    return Account("bob", {}, Budget(epsilon, delta, planned or Composition()))


def charged(book, calibrated, times):
    for k in range(times):
        book.charge(entry(k, calibrated), calibrated)
    return book
