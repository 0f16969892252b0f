"""Runs that are too large for two cores, predicted from measured seconds and bytes per agent.

Everything that an agent costs is linear in their number: `growth` measures that, and `scale` shows
it up to 100,000 agents. A prediction adds what one more agent costs where it lives, which workers
share, and what it costs the coordinator, which they do not.
"""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

from . import clusters
from .measure import Effort, Row, shown
from .scale import equal_agents, measured

_AGENTS, _WORKERS = 1_000_000, (2, 64, 1024)


@dataclass(frozen=True)
class Costs:
    """What a further agent costs, in seconds of the processor and bytes."""

    planning: float  # model and plan, at the coordinator
    local: float  # its own share of a round
    memory: float  # of its model, plan and state
    alone: float  # seconds of an exchange, whatever the number of agents
    each: float  # seconds that an exchange takes for it, at the coordinator

    def round(self, agents: int, workers: int) -> float:
        """Seconds of a round with one exchange."""
        return self.alone + agents * (self.each + self.local / workers)


def predicted(effort: Effort) -> list[Row]:
    """A million equal agents on cluster executors, from two smaller sizes and one exchange."""
    few, many = (250, 1_000) if effort.quick else (1_000, 10_000)
    figures = []
    for count in (few, many):
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as fresh:
            figures.append(fresh.submit(measured, equal_agents, count).result())
    planning, local, _, memory = (
        max(high - low, 0.0) / (many - few) for low, high in zip(*figures, strict=True)
    )
    exchanges = [row for row in clusters.exchanges(effort) if row.measured is not None]
    rows = []
    for alone, each in zip(exchanges[::2], exchanges[1::2], strict=True):
        engine = alone.name.rsplit(maxsplit=1)[1]
        assert alone.measured is not None and each.measured is not None
        costs = Costs(planning, local, memory, 1e-6 * alone.measured, 1e-6 * each.measured)
        rounds = ", ".join(f"{n} workers {shown(costs.round(_AGENTS, n))}" for n in _WORKERS)
        note = f"a round: {rounds}; memory {memory * _AGENTS / 2**30:.2g} GiB"
        seconds, size = planning * _AGENTS, f"{_AGENTS:.0e} agents, from {few} and {many}"
        rows.append(Row(f"predicted, model and plan, {engine}", "", size, seconds, None, "s", note))
    return rows
