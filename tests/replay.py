"""Forced replay: what neighbours' exact values are apart while everything that left is the same."""

from dataclasses import dataclass

import numpy as np

from dpcvx.privacy.entries import Entry
from dpcvx.privacy.randomness import source_for
from dpcvx.run.data import sources_of
from dpcvx.run.gate import Release, ReleaseGate
from dpcvx.run.loop import drive_silently
from dpcvx.run.part import parts_of


class Forced(ReleaseGate):
    """Keeps exact values; hands out given releases in place of its own."""

    def __init__(self, *args, frozen=None):
        super().__init__(*args, record=True)
        self.seen, self._frozen = {}, frozen

    def __call__(self, place, what, compute, grid, scale=None):
        value = compute()
        exact = value if scale is None else scale * value
        self.seen[place] = (what, exact)
        if self._frozen is None:
            return super().__call__(place, what, lambda: value, grid, scale)
        if what is not None:
            self._charge(what)
        return self._frozen.get((self.agent, *place), value)


@dataclass(frozen=True)
class Compared:
    """One release of one agent.

    Attributes
    ----------
    entry : Entry
    moved : ndarray, shape (n,)
        Between neighbours, before noise and rounding to the grid.
    norm : int
    """

    entry: Entry
    moved: np.ndarray
    norm: int

    @property
    def share(self):
        """Of what was charged."""
        return float(np.linalg.norm(self.moved, self.norm)) / self.entry.sensitivity


def observed(plan, data, seed=0, frozen=None):
    """Exits of a run on these data, by agent."""
    exits = [
        Forced(k, plan.agents[k].noise, account, source_for(seed, (k,)), frozen=frozen)
        for k, account in enumerate(plan.accounts())
    ]
    sources = sources_of(plan.problem, data)
    parts = parts_of(plan)
    oracles = [parts[k].oracle(sources[k], e) for k, e in enumerate(exits)]
    drive_silently(plan, oracles, plan.rounds, seed)
    return exits


def released(exits):
    """Everything that left, by agent and place."""
    out: list[Release] = [r for e in exits for r in e.releases]
    return {(r.agent, r.round, r.step): r.value for r in out}


def compared(plan, data, others, agent=0, seed=0):
    """For each neighbour, the releases of an agent against those on the data."""
    first = observed(plan, data, seed)
    frozen = released(first)
    for other in others:
        second = observed(plan, data | other, seed, frozen)
        one, two = first[agent], second[agent]
        assert one.seen.keys() == two.seen.keys()
        yield [
            Compared(entry, value - two.seen[place][1], plan.agents[agent].noise.mechanism.norm)
            for place, (entry, value) in one.seen.items()
            if entry is not None
        ]
