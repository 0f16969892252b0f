"""Batches: groups of agents whose local updates one worker performs, and the calls of workers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..plan.terms import Terms
from .executors.in_process import Executor
from .resume import Start


def batches(plan: Terms, start: Start) -> list[list[int]]:
    """Return the agents of each worker, by index: one worker for all, or one for each.

    In a batch, every agent computes and releases exactly what it would by itself, bit for bit.

    Parameters
    ----------
    plan : Terms
        Plan of the run.
    start : Start
        State of the run at its beginning.
    """
    if is_batch(plan, start):
        return [[*range(len(plan.agents))]]
    return one_by_one(plan.agents)


def is_batch(plan: Terms, start: Start) -> bool:
    """Return whether one worker can perform the local updates of all agents of a plan.

    The agents must be identical apart from names and data, share all variables, and have equal
    accounts. The method, its queries and its local steps must declare support for batches. Data
    that are released once, and distributed noise, are released by each agent separately.

    Parameters
    ----------
    plan : Terms
        Plan of the run.
    start : Start
        State of the run at its beginning.
    """
    first, *others = plan.agents
    local, needs = first.program, plan.algorithm.requirements
    return (
        bool(others)
        and plan.algorithm.batched
        and all(query.batched for query in needs.queries)
        and (needs.proximal in (False, "server") or local.proximal().batched)
        and not (plan.published or plan.hidden)
        and (first.noise is None or first.noise.split is None)
        and local.shared.size == local.n
        and all(np.array_equal(agent.program.slots, local.slots) for agent in others)
        and len({agent.kind for agent in plan.agents}) == 1
        and all(begun.account.equals(start.agents[0].account) for begun in start.agents[1:])
    )


def one_by_one(agents: Sequence[object]) -> list[list[int]]:
    """Return batches of one agent each, by agent index."""
    return [[k] for k in range(len(agents))]


class Agents:
    """Interface to the agents of a run, through the workers that perform their updates.

    Parameters
    ----------
    executor : Executor
        Executor of the workers.
    batches : sequence of sequence of int
        Agents of each worker, by index in the plan, ascending.
    workers : sequence of callables
        Functions that construct the worker of each batch, called where it runs.
    """

    def __init__(
        self,
        executor: Executor,
        batches: Sequence[Sequence[int]],
        workers: Sequence[Callable[[], Any]],
    ) -> None:
        self._executor, self._batches = executor, batches
        self._whole = len(batches) == 1
        self.count = sum(map(len, batches))
        executor.start(workers)

    def map(self, method: str, *common: Any, each: Sequence[Any] | None = None) -> list[Any]:
        """Call a method of all workers, and return the results by agent.

        Parameters
        ----------
        method : str
            Name of the method of `Worker`.
        *common
            Arguments for all agents.
        each : sequence, optional
            A further argument for each agent, by index.
        """
        if self._whole:
            (answers,) = self._executor.map(method, *common, each=None if each is None else [each])
            return answers
        dealt = None if each is None else [[each[k] for k in agents] for agents in self._batches]
        answers = self._executor.map(method, *common, each=dealt)
        return [answer for part in answers for answer in part]
