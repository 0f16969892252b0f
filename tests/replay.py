"""Forced replay: what neighbors' exact values are apart while everything that left is the same."""

from dataclasses import dataclass

import numpy as np

from dpcvx.privacy.entries import Entry
from dpcvx.privacy.randomness import source_for
from dpcvx.run.data import sources_of
from dpcvx.run.gate import PrivacyGate, Release
from dpcvx.run.loop import drive_silently
from dpcvx.run.part import oracle_of, parts_of
from dpcvx.run.resume import one_by_one
from tests.spies import gate_of_one


class Forced(PrivacyGate):
    """Keeps exact values of one agent; hands out given releases in place of its own."""

    def __init__(self, *args, frozen=None, **named):
        super().__init__(*args, record=True, **named)
        self.seen, self._frozen = {}, frozen

    def release(self, place, charges, compute, scale=None):
        values = compute()
        exact = values if scale is None else scale * values
        self.seen[place] = (charges[0].entry, exact[0])
        if self._frozen is None:
            return super().release(place, charges, lambda: values, scale)
        self._charge(place, charges)
        return self._frozen.get((self.agents[0], *place), values[0])[np.newaxis]


@dataclass(frozen=True)
class Compared:
    """One release of one agent.

    Attributes
    ----------
    entry : Entry
    moved : ndarray, shape (n,)
        Between neighbors, before noise and rounding to the grid.
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
        gate_of_one(
            plan.agents[k].noise,
            account,
            source_for(seed, (k,)),
            agent=k,
            kind=Forced,
            frozen=frozen,
        )
        for k, account in enumerate(plan.accounts())
    ]
    sources = sources_of(plan.problem, data)
    parts = parts_of(plan)
    oracles = [oracle_of([parts[k]], [sources[k]], e) for k, e in enumerate(exits)]
    drive_silently(plan, one_by_one(parts), oracles, plan.rounds, seed)
    return exits


def released(exits):
    """Everything that left, by agent and place."""
    out: list[Release] = [r for e in exits for r in e.releases]
    return {(r.agent, r.round, r.step): r.value for r in out}


def compared(plan, data, others, agent=0, seed=0):
    """For each neighbor, the releases of an agent against those on the data."""
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
