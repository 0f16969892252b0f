"""Runs whose agents belong to others: no data, no noise and no ledger are on this side."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ..errors import ModelError
from ..plan.terms import Terms
from ..privacy.randomness import PublicCoins, source_for
from .batch import one_by_one
from .executors.in_process import Executor
from .loop import drive, whole_start
from .report import Reporter
from .result import Result
from .returned import returned
from .solution import Iterate, Solution, assign
from .watch import Watch
from .worker import Worker

Array = NDArray[np.float64]


@runtime_checkable
class RemoteExecutor(Executor, Protocol):
    """An executor whose agents live with owners that decide by themselves what they take part in.

    Answers hold what owners share; in place of all else they hold the public start.
    """

    def begin(self, plan: Terms) -> tuple[int, tuple[str, ...]]:
        """Have all owners agree: the rounds that all their ledgers cover, and notes.

        Raises
        ------
        RefusedError
            If one takes no part.
        """
        ...


def run_remote(
    plan: Terms,
    executor: RemoteExecutor,
    *,
    given: Sequence[str],
    tolerance: float | None,
    iterates: bool,
    verbose: bool | None,
) -> Result:
    """Run a plan with owners.

    Parameters
    ----------
    plan : Terms
    executor : RemoteExecutor
    given : sequence of str
        Arguments that were given and belong to owners.
    tolerance, iterates, verbose
        See `Plan.run`.

    Raises
    ------
    ModelError
        If something was given that belongs to owners.
    RefusedError
        If an owner takes no part, or does not go on.
    """
    if given:
        raise ModelError(
            f"plan.run({given[0]}, executor=...) has {given[0]} here, and owners keep data, "
            "noise and ledgers on their own side. Leave it out; each owner's owner.toml names them."
        )
    start = whole_start(plan.problem)
    rounds, notes = executor.begin(plan)
    with closing(executor):
        guarantee = plan.guarantee_for(seeded=False, counted=True)
        shown = Reporter(plan, verbose, guarantee, notes)
        coins = PublicCoins(source_for(None, ()).at(0, 0))
        result = drive(
            plan,
            start,
            one_by_one(plan.agents),
            [_nobody for _ in plan.agents],
            rounds,
            executor,
            Watch(plan, shown, tolerance=tolerance, iterates=iterates),
            guarantee,
            coins,
        )
    result = _shared_only(returned(replace(result, owners=True)))
    said = tuple(note for note in (plan.remarks, *notes, *result.notes) if note)
    result = replace(result, notes=said)
    solution = result.solution if result.status.solved else None
    assign(solution, plan.problem.variables(), plan.problem.constraints)
    shown.finish(result)
    return result


def _nobody() -> Worker:
    """No agent is built here: what is called like this is at fault."""
    raise NotImplementedError


def _shared_only(result: Result) -> Result:
    """The result without what owners keep: nan in its place."""

    def kept(solution: Solution) -> Solution:
        vectors = []
        for local, x in zip(solution.program.agents, solution.vectors, strict=True):
            own = np.full_like(x, np.nan)
            own[local.shared] = x[local.shared]
            vectors.append(own)
        return replace(solution, vectors=tuple(vectors))

    names = ("average", "last", "tail", "weighted", "solution")
    found = {name: kept(getattr(result, name)) for name in names}
    path = tuple(Iterate(kept(one.average), kept(one.last)) for one in result.iterates)
    return replace(result, iterates=path, **found)
