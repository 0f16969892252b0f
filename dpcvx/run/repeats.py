"""Warnings about several runs on one data set that no common ledger counts.

A run with a seed is a study, not for release, and does not count. Data passed by ``data=`` may
differ between runs, which only the user can tell: such runs count, and the text says "if".

Two runs use the same data if they use one private object, or if values are equal: then a digest
with a key of this process is equal. A notebook cell that is run again, or a loop, makes a new
object of an equal array. Equal values need not be the same data (zeros are zeros), so the text says
"if" here too. Whether values are equal depends on private data, so the warning is for the user
who runs the plan. Results and their notes count the runs of one private object alone.

A run counts from its first exchange of messages on, however it ends. A loop warns once, in the
second run; the notes of each result contain the total so far.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import reduce
from typing import Any

from .._words import at_most, number
from ..errors import RepeatWarning
from ..guard import warn_caller
from ..model.private import Private, Use
from ..model.sealed import Sealed, has_changed, mark, marked
from ..plan.agent_plan import AgentPlan
from ..plan.terms import Terms
from ..privacy.accounting import Composition, Price
from ..privacy.entries import Entry
from ..privacy.randomness import Secure
from .part import AgentPart
from .resume import Start

# Uses of data by the digest of the values, in this process: newly made objects have nothing else in
# common. It contains digests and losses only, and grows by one entry per run and private object.
_BY_VALUES: dict[bytes, list[Use]] = {}
_KEY = Secure().words(8).tobytes()
# For each agent, one source per private object.
Data = Sequence[Sequence[Sealed]]


def warn_of_repeats(
    plan: Terms, start: Start, given: Collection[Private], sources: Data, *, alone: bool
) -> str:
    """Return the joint loss of all runs of these objects; warn if no ledger counts some.

    The warning also counts runs on equal values, but the text does not: it is part of a result.
    Runs without noise have no guarantee, so they cause no text unless others had noise.

    Parameters
    ----------
    plan : Terms
        Plan of the run.
    start : Start
        State of the run at its beginning, with the losses in its ledger.
    given : collection of Private
        Private objects whose data were passed by ``data=``.
    sources : sequence of sequence of Sealed
        Sources of the data; functions among them are not called.
    alone : bool
        Whether the run has no ledger. Such runs of one plan warn only once.
    """
    marks = {source: mark(source, _KEY) for of_agent in sources for source in of_agent}
    _warn(plan, start, given, marks, sources, alone=alone)
    repeated, _ = _repeated(plan, start, given, {}, sources)
    return _total(plan.price, *max(repeated)) if repeated else ""


def _warn(
    plan: Terms,
    start: Start,
    given: Collection[Private],
    marks: Mapping[Sealed, bytes],
    sources: Data,
    run: tuple[object, ...] | None = None,
    *,
    alone: bool,
) -> None:
    """Warn of other runs on the same data, unless a run of this plan has warned."""
    repeated, warned = _repeated(plan, start, given, marks, sources, run)
    if repeated and not (alone and warned):
        warn_caller(_said(plan.price, *max(repeated)), RepeatWarning)


def _repeated(
    plan: Terms,
    start: Start,
    given: Collection[Private],
    marks: Mapping[Sealed, bytes],
    sources: Data,
    run: tuple[object, ...] | None = None,
) -> tuple[list[tuple[float, float, str, bool]], bool]:
    """Return joint loss, name, and `handed` of each agent whose ledger lacks a run on its data.

    The second result is whether an earlier run of this plan has warned of all of them. `marks` has
    the digests of data; without a digest, only runs of one private object use the same data.
    """
    certain = True
    repeated: list[tuple[float, float, str, bool]] = []
    for k, agent, private, source in _read(plan, sources):
        uses = [use for use in private.uses.runs if use.run != run]
        equal_uses = _alike(marks.get(source, b""), {use.run for use in uses} | {run}, agent)
        if run is not None and not equal_uses:
            continue  # the warning was given before the run
        uses += equal_uses
        losses = [use.loss for use in uses if use.loss is not None]
        count = sum(use.releases for use in uses)
        held = start.agents[k].held
        if count > held and (losses or agent.noise is not None):
            epsilon, delta = _together(agent, losses, len(losses) < len(uses))
            handed = any(use.handed for use in uses) or _among(private, given) or bool(equal_uses)
            repeated.append((epsilon, delta, agent.name, handed))
            # Some run after the first one on these data has warned.
            warned = any(use.run[1] == plan.fingerprint for use in uses[1:])
            certain = certain and warned and epsilon < math.inf
    return repeated, certain


def _total(price: Price | None, epsilon: float, delta: float, name: str, handed: bool) -> str:
    """Return a sentence on the joint guarantee of all runs so far, for a result's notes.

    `handed`: whether only the user can tell that these runs used the same data.
    """
    same = "if they used the same data, " if handed else ""
    words = f"({at_most(epsilon)}, {at_most(delta)})-DP if all were planned in advance"
    if price is None or math.isinf(epsilon):
        words = "without a guarantee"
    return f"with the runs before it on the data of agent '{name}', {same}together {words}"


def _alike(values: bytes, counted: Collection[Any], agent: AgentPlan) -> list[Use]:
    """Return other runs' uses of data with this digest: one use per run, with the largest loss."""
    by_run: dict[Any, Use] = {}
    for use in _BY_VALUES.get(values, ()) if values else ():
        if use.run not in counted:
            other = by_run.setdefault(use.run, use)
            if use.loss is None or (other.loss is not None and _more(use, other, agent)):
                by_run[use.run] = use
    return [*by_run.values()]


def _more(use: Use, other: Use, agent: AgentPlan) -> bool:
    delta = 0.0 if agent.price is None else agent.price.delta
    first, second = (each.loss.price(delta).epsilon for each in (use, other))
    return (first, use.releases) > (second, other.releases)


def _together(agent: AgentPlan, losses: Sequence[Any], exposed: bool) -> tuple[float, float]:
    """Return the joint privacy loss of this run and earlier ones; infinite if one has no noise."""
    if exposed or agent.price is None:
        return math.inf, 0.0
    total = reduce(Composition.joined, losses, agent.loss)
    delta = agent.price.delta
    if math.isinf(total.price(delta).epsilon):
        # Losses known as pairs only: their deltas add up, with rounding.
        delta *= (1 + len(losses)) * (1 + 1e-9)
    return total.price(delta).epsilon, delta


def _said(price: Price | None, epsilon: float, delta: float, name: str, handed: bool) -> str:
    """Return the warning about earlier runs on the same data that no ledger counts, with a fix.

    The loss of this plan is `price`, and the joint loss of all runs is `epsilon` at `delta`.
    `handed`: whether only the user can tell that these runs used the same data.
    """
    same, if_same = ("", "they are the same and ") if handed else ("the same ", "")
    other = "; for data of other people, run copy.deepcopy(plan)" if handed else ""
    if price is None or math.isinf(epsilon):
        return (
            f"Earlier runs used {same}data of agent '{name}', and one of all these runs has no "
            f"noise: {'if they are the same, ' if handed else ''}together they have no guarantee. "
            f"Release only what runs with noise return. In studies, give each run a seed={other}."
        )
    return (
        f"Earlier runs used {same}data of agent '{name}', and no ledger counts them with this one: "
        f"if {if_same}all were planned in advance, together they are ({at_most(epsilon)}, "
        f"{number(delta)})-DP, not ({at_most(price.epsilon)}, {number(price.delta)}). Pass one "
        "ledger to all of them, such as plan.run(ledger='spent.jsonl') or "
        "plan.run(ledger=result.ledger), to have them added up and refused beyond the budget. In "
        f"studies, give each run a seed={other}."
    )


def run_of(plan: Terms, start: Start, sources: Data, path: str) -> tuple[object, ...]:
    """Return a key that identifies this run; a resumed run has the key of its first part.

    Parameters
    ----------
    plan : Terms
        Plan of the run.
    start : Start
        State of the run at its beginning.
    sources : sequence of sequence of Sealed
        Data sources by agent.
    path : str
        Path of the ledger file, which may be deleted and created again; empty without one.
    """
    name = path, plan.fingerprint, tuple(begun.earlier for begun in start.agents)
    if start.resumed:
        for _, _, private, source in _read(plan, sources):
            uses = [*_BY_VALUES.get(marked(source), ()), *private.uses.runs]
            for use in reversed(uses):
                if use.run[:-1] == name:
                    return use.run
    return *name, object()


def remember(
    plan: Terms,
    start: Start,
    given: Collection[Private],
    sources: Data,
    run: tuple[object, ...],
    releases: Mapping[str, int],
    *,
    ended: bool,
    alone: bool,
) -> None:
    """Record the releases of a run, with its private objects and the digests of its data.

    Parameters
    ----------
    plan : Terms
        Plan of the run.
    start : Start
        State of the run at its beginning.
    given : collection of Private
        Private objects whose data were passed by ``data=``.
    sources : sequence of sequence of Sealed
        Data sources by agent.
    run : tuple
        Key of the run, from `run_of`.
    releases : mapping of str to int
        Number of releases of the run, by agent.
    ended : bool
        Whether the run has a result. Data from functions are then compared with data of earlier
        runs, since they were read during the run.
    alone : bool
        Whether the run has no ledger; see `warn_of_repeats`.
    """
    marks = {source: marked(source) for of_agent in sources for source in of_agent}
    if ended and any(source.fetches for source in marks):
        fetched = {s: values if s.fetches else b"" for s, values in marks.items()}
        _warn(plan, start, given, fetched, sources, run, alone=alone)
    for _, agent, private, source in _read(plan, sources):
        # Planned loss: the outputs may have decided when to stop.
        loss = None if agent.noise is None else agent.loss
        use = Use(run, loss, releases[agent.name], _among(private, given))
        private.uses.add(use)
        if marks[source]:
            _BY_VALUES.setdefault(marks[source], []).append(use)


def planned_entries(part: AgentPart) -> Iterator[Entry]:
    """Yield entries for all planned releases of an agent whose actual releases are unknown."""
    noise = part.agent.noise
    if part.agent.sensitivity is None or not part.agent.form.private:
        return
    if noise is not None and noise.prepaid:
        return  # charged before the run
    places = (
        [(0, 1)]
        if part.published
        else [
            (t, step + 1)
            for t in range(1, part.rounds + 1)
            for step in range(part.schedule[t] - part.schedule[t - 1])
        ]
    )
    for when in places:
        released = "not known: the run was interrupted"
        if noise is None:
            yield Entry(*when, "none", 0.0, math.inf, 0.0, "none", released)
            continue
        of, split = noise.at(*when), noise.split
        yield Entry(
            *when,
            str(noise.mechanism),
            of.multiplier,
            0.0,
            0.0,
            part.agent.sensitivity.certificate,
            released,
            stated=of.stated,
            colluders=None if split is None else split.max_colluders,
            alone=None if of.split is None else of.split.alone(of.multiplier),
        )


def warn_of_changes(plan: Terms, given: Collection[Private], sources: Data) -> None:
    """Warn if an array has changed since ``dp.Private(array)`` copied it."""
    for k, agent, private, source in _read(plan, sources):
        spec = plan.problem.agents[k].specs(agent.name)[private]
        if not _among(private, given) and has_changed(source, spec):
            warn_caller(
                f"The data that private '{spec.name}' was made from have changed since "
                "dp.Private(data) copied them, and the run uses the copy. For the new values, make "
                "the dp.Private and the plan again, or write plan.run(data={...}).",
                UserWarning,
            )


def _among(private: Private, given: Collection[Private]) -> bool:
    return any(private is other for other in given)  # == of cvxpy objects builds a constraint


def _read(plan: Terms, sources: Data) -> Iterator[tuple[int, AgentPlan, Private, Sealed]]:
    """Yield each agent's index, its private objects in the objective, and their sources."""
    for k, agent in enumerate(plan.agents):
        pairs = zip(plan.problem.agents[k].private, sources[k], strict=True)
        for private, source in pairs:
            yield k, agent, private, source
