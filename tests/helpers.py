"""Tools that several test modules use."""

import numpy as np

from dpcvx.run.report import Reporter
from dpcvx.testing.promises import contains as contains


def silent(plan):
    """A reporter that prints nothing."""
    return Reporter(plan, False, plan.guarantee)


class Words:
    """A source of given random words, then of all ones, for which both samplers draw 0.

    Attributes
    ----------
    drawn : int
        How many words were asked for.
    """

    def __init__(self, *given):
        self._given = list(given)
        self.drawn = 0

    def at(self, round, step):
        return self

    def words(self, size):
        taken = self._given[self.drawn : self.drawn + size]
        self.drawn += size
        return np.array([*taken, *[2**64 - 1] * (size - len(taken))], dtype=np.uint64)
