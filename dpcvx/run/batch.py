"""Batches: which agents of a plan take their turns in one worker, and how a run calls them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..plan.terms import Terms
from .executors.in_process import Executor
from .resume import Start


def batches(plan: Terms, start: Start) -> list[list[int]]:
    """Return the agents of each worker, by position: all of them, or each by itself.

    Every agent of a batch computes and releases what it would by itself, bit for bit.

    Parameters
    ----------
    plan : Terms
    start : Start
        State that the run starts from.
    """
    if is_batch(plan, start):
        return [[*range(len(plan.agents))]]
    return one_by_one(plan.agents)


def is_batch(plan: Terms, start: Start) -> bool:
    """Return whether one worker can take the turns of all agents of a plan.

    The agents are identical but for names and data, share all variables, and have spent alike so
    far. Method, queries and local steps say that they take several agents at once. Data that are
    released once, and noise that is split over agents, are released by each agent itself.

    Parameters
    ----------
    plan : Terms
    start : Start
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
    """Return a batch for each agent."""
    return [[k] for k in range(len(agents))]


class Agents:
    """The agents of a run, behind the workers that take their turns.

    Parameters
    ----------
    executor : Executor
    batches : sequence of sequence of int
        The agents of each worker, by position in the plan, in ascending order.
    workers : sequence of callables
        Make the worker of each batch where it lives.
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
        """Call a method of all workers, and return what it returned by agent.

        Parameters
        ----------
        method : str
        *common
            Arguments for all.
        each : sequence, optional
            A further argument of each agent, by position.
        """
        if self._whole:
            (answers,) = self._executor.map(method, *common, each=None if each is None else [each])
            return answers
        dealt = None if each is None else [[each[k] for k in agents] for agents in self._batches]
        answers = self._executor.map(method, *common, each=dealt)
        return [answer for part in answers for answer in part]
