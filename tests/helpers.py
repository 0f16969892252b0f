"""Tools that several test modules use."""

import pickle

import numpy as np

from dpcvx.run.report import Reporter


def contains(thing, values):
    """Whether any private value shows in a text or in the pickled bytes of an object."""
    texts = [repr(thing), str(thing), pickle.dumps(thing).decode("latin-1")]
    for value in np.ravel(values):
        shown = [repr(float(value)), f"{value:.6f}", np.float64(value).tobytes().decode("latin-1")]
        if any(mark in text for mark in shown for text in texts):
            return True
    return False


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
