"""The agents of one worker behind one object, and how a run speaks to it: one call per exchange.

Calls are numbered. Asked again for its last call, a host gives the same bytes again; any number but
the next is refused. So nothing that an engine repeats, or starts anew, draws noise twice or goes on
from nothing. Ledger entries of agents travel with their answers, and the run's process has all of
them on disk, at once, before it takes up any answer. If a process dies before that, its noise was
never released, and is redrawn.

Agents on their way to workers that do not share this process's memory.

Data that were given as arrays travel; data from a callable are read at the worker. All of it stays
with one owner: an executor is no trust boundary between parties.
"""

from __future__ import annotations

import importlib
import io
import pickle
from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from ... import errors
from ..._events import event
from ..._words import together
from ...errors import ModelError, PrivacyError, WorkerLostError
from ...guard import line_of_user
from ...model.sealed import Sealed, handed_over
from ...privacy.ledger_file import Journal
from ...privacy.ledger_lines import Notes
from ..worker import Reply, partial_sums

# Agents to a worker from which on one of them is about as large as another.
_MANY = 16
# What one agent answered, or the error that it ended in.
Answer = tuple[Any, BaseException | None]


class Host:
    """Agents in the process where they live.

    Parameters
    ----------
    factories : mapping of int to callable
        One per agent, by its position.
    notes : Notes
        Notes of the agents, if the run keeps a ledger file.
    """

    def __init__(self, factories: Mapping[int, Callable[[], Any]], notes: Notes) -> None:
        self._notes = notes
        self._agents: dict[int, Any] = {}
        self._done = 0
        event("hosted", {"members": len(factories)})

        def built(agent: int) -> None:
            self._agents[agent] = factories[agent]()

        self._answer = self._answers({agent: (built, agent) for agent in factories})

    @property
    def made(self) -> bytes:
        """Outcome of making the agents."""
        return self.call(0, "", (), ())

    def call(
        self, number: int, method: str, common: Sequence[Any], individual: Sequence[Any]
    ) -> bytes:
        """Return all agents' answers to one call and their notes, pickled; see `heard`.

        Parameters
        ----------
        number : int
            Number of the call, from 1; 0 makes the agents.
        method : str
        common : sequence
            Arguments for all.
        individual : sequence of tuple
            Further arguments of each agent.

        Raises
        ------
        PrivacyError
            If another call than the last one or the next one is asked for.
        """
        if number == self._done:
            return self._answer
        if number != self._done + 1:
            event("out of order", {"call": number})
            raise PrivacyError(
                f"A worker has done call {self._done}, and call {number} is due: its state is not "
                "that of this run, and further calls would release other values. Run the plan "
                "again with the same ledger=."
            )
        calls = {
            agent: (getattr(worker, method), *common, *more)
            for (agent, worker), more in zip(self._agents.items(), individual, strict=True)
        }
        self._done, self._answer = number, self._answers(calls)
        return self._answer

    def _answers(self, calls: Mapping[int, tuple[Any, ...]]) -> bytes:
        answers = [_tried(agent, *call) for agent, call in calls.items()]
        if len(self._agents) == len(answers):  # all were made
            answers = _added(self._agents, answers)
        noted = self._notes.taken()
        try:
            return pickle.dumps((answers, noted), protocol=pickle.HIGHEST_PROTOCOL)
        except BaseException:
            sendable = zip(calls, answers, strict=True)
            return pickle.dumps(([_sendable(agent, answer) for agent, answer in sendable], noted))


def _tried(agent: int, call: Callable[..., Any], *arguments: Any) -> Answer:
    try:
        return call(*arguments), None
    except BaseException as error:
        ours = type(error).__module__ == errors.__name__
        return None, error if ours else _withheld(agent, error)


def _added(agents: Mapping[int, Any], answers: list[Answer]) -> list[Answer]:
    """Return the answers with partial sums in place of the summands of agents that live here."""
    replies = {
        agent: reply
        for worker, (replies, _) in zip(agents.values(), answers, strict=True)
        if isinstance(replies, list)
        for agent, reply in zip(worker.agents, replies, strict=True)
        if isinstance(reply, Reply) and reply.term
    }
    if not replies:
        return answers
    parts = partial_sums({agent: reply.message for agent, reply in replies.items()})
    # One object for replies that are equal: it is sent once.
    shared: dict[Any, Reply] = {}

    def sent(agent: int, reply: Any) -> Any:
        if agent not in replies:
            return reply
        if agent in parts:
            return replace(reply, message=parts[agent])
        empty = replace(reply, message=None)
        return shared.setdefault((empty.outcome, empty.diverged), empty)

    return [
        ([*map(sent, worker.agents, replies)] if isinstance(replies, list) else replies, error)
        for worker, (replies, error) in zip(agents.values(), answers, strict=True)
    ]


def _sendable(agent: int, answer: Answer) -> Answer:
    try:
        pickle.dumps(answer)
    except BaseException as error:
        return None, _withheld(agent, error)
    return answer


def _withheld(agent: int, error: BaseException) -> PrivacyError:
    return PrivacyError(
        f"Agent {agent} failed in its worker process with {type(error).__name__}"
        f"{line_of_user(error)}; the message is withheld, because it may quote the data. Where "
        "they may be seen, dp.Serial() shows it."
    )


def dealt(agents: int, workers: int) -> list[range]:
    """Return each worker's agents: dealt in turn, so that large agents are apart.

    If there are many, each worker gets a contiguous range, and adds up the replies of its agents.

    Parameters
    ----------
    agents, workers : int
    """
    workers = min(workers, agents)
    if agents >= _MANY * max(1, workers):
        ends = [agents * worker // workers for worker in range(workers + 1)]
        return [range(*pair) for pair in pairwise(ends)]
    return [range(first, agents, workers) for first in range(workers)]


def own_arguments(each: Sequence[Any] | None, agents: Iterable[int]) -> list[tuple[Any, ...]]:
    """Return the arguments of every agent of a host.

    Parameters
    ----------
    each : sequence or None
        Arguments by agent of the run; None for none.
    agents : iterable of int
        Those of the host.
    """
    return [() if each is None else (each[agent],) for agent in agents]


def heard(answers: Iterable[tuple[Sequence[int], bytes]], journal: Journal | None) -> list[Any]:
    """Return all agents' answers, in their order, and write their notes to the ledger file.

    Parameters
    ----------
    answers : iterable of (agents, bytes)
        Answers of every host.
    journal : Journal or None

    Raises
    ------
    DpcvxError
        The first agent's error; the others had their turns, and what they released is noted.
    """
    by_agent: dict[int, Answer] = {}
    for agents, answer in sorted(answers, key=lambda answer: answer[0][0]):
        told, noted = pickle.loads(answer)
        by_agent.update(zip(agents, told, strict=True))
        if journal is not None:
            journal.take(noted)
    ordered = [by_agent[agent] for agent in sorted(by_agent)]
    for _, error in ordered:
        if error is not None:
            raise error
    return [result for result, _ in ordered]


def lost(
    executor: str,
    what: str,
    workers: Sequence[str],
    agents: Iterable[int],
    has_ledger: bool,
    t: int,
) -> WorkerLostError:
    """Return the error for workers that are gone.

    Parameters
    ----------
    executor : str
        The name of its class, for the log.
    what : str
        Event that ended them, as the beginning of a sentence.
    workers : sequence of str
    agents : iterable of int
        That lived there.
    has_ledger : bool
        Whether the run keeps a ledger file.
    t : int
        The round; 0 before the first.
    """
    event("lost", {"executor": executor, "workers": len(workers), "round": t})
    listed = tuple(sorted(agents))
    remedy = (
        "Count the data as spent; or give runs a ledger file, plan.run(ledger='spent.jsonl'), with "
        "which the next one goes on from there."
    )
    if has_ledger:
        where = f"goes on in round {t}" if t else "begins again"
        remedy = f"Run the plan again with the same ledger=: it {where}."
    return WorkerLostError(f"{what}. Nothing was repeated. {remedy}", tuple(workers), listed)


def named(agents: Iterable[int]) -> str:
    """Return agents by position, in words."""
    listed = sorted(agents)
    noun = "agent" if len(listed) == 1 else "agents"
    return f"{noun} {together([str(agent) for agent in listed])}"


# Entries of an array from which on it is worth a look.
_SHORT = 64


def required(module: str, extra: str) -> Any:
    """Import a module that comes with an extra of the package.

    Parameters
    ----------
    module, extra : str

    Raises
    ------
    ModelError
        If it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError:
        raise ModelError(
            f"This executor needs the package '{module.split('.')[0]}', which is not installed: "
            f"pip install 'dpcvx[{extra}]'."
        ) from None


def packed(
    factories: Sequence[Callable[[], Any]], agents: Iterable[int], notes: Notes, extra: str
) -> bytes:
    """Return the pickled factories of a worker's agents.

    Parameters
    ----------
    factories : sequence of callables
        One per agent of the run.
    agents : iterable of int
        Those of the worker.
    notes : Notes
    extra : str
        Extra of the engine, for errors.
    """
    cloudpickle = required("cloudpickle", extra)  # for functions that fetch data
    reducers = {Sealed: handed_over, np.ndarray: thinned}
    table = ChainMap(reducers, cloudpickle.Pickler.dispatch_table)
    kind = type("Pickler", (cloudpickle.Pickler,), {"dispatch_table": table})
    file = io.BytesIO()
    pickler = kind(file, protocol=pickle.HIGHEST_PROTOCOL)
    try:
        pickler.dump(({agent: factories[agent] for agent in agents}, notes))
    except Exception as error:
        why = type(error).__name__
    else:
        return file.getvalue()
    raise ModelError(
        f"The agents cannot be sent to workers: {why}. Its message is withheld, because it may "
        "quote the data. Declare data by functions that can be pickled, such as "
        "dp.Private(functools.partial(numpy.load, 'load.npy'), shape=...)."
    )


def thinned(array: NDArray[Any]) -> Any:
    """Return how to pickle an array: by one number, or by a first number and a step, if possible.

    Programs on records hold zeros, weights and positions of that kind, as long as the data.
    """
    flat = array.reshape(-1) if array.flags.c_contiguous else None
    if array.size >= _SHORT and array.dtype.kind in "fiu":
        if not any(array.strides):
            return np.broadcast_to, (array[(0,) * array.ndim], array.shape)
        if flat is not None:
            words = flat.view(f"u{array.itemsize}")  # bits: zeros have signs
            if np.all(words == words[0]):
                return np.full, (array.shape, flat[0], array.dtype)
        if flat is not None and array.ndim == 1 and array.dtype.kind == "i":
            first, step = int(flat[0]), int(flat[1]) - int(flat[0])
            if np.all(np.diff(flat) == step):
                return np.arange, (first, first + step * array.size, step, array.dtype)
    return array.__reduce_ex__(pickle.HIGHEST_PROTOCOL)


class RemoteHost:
    """A `Host` in a process that serves others as well: it limits BLAS within its calls only.

    Parameters
    ----------
    blob : bytes
        See `packed`.
    """

    def __init__(self, blob: bytes) -> None:
        # One thread of BLAS: their number changes the rounding of results.
        self._blas = ThreadpoolController().select(user_api="blas")
        factories: Mapping[int, Callable[[], Any]]
        with self._blas.limit(limits=1):
            factories, notes = pickle.loads(blob)
            self._host = Host(factories, notes)

    def made(self) -> bytes:
        """Outcome of making the agents."""
        return self._host.made

    def call(
        self, number: int, method: str, common: Sequence[Any], individual: Sequence[Any]
    ) -> bytes:
        """See `Host.call`."""
        with self._blas.limit(limits=1):
            return self._host.call(number, method, common, individual)

    def called(self, told: bytes) -> bytes:
        """Return the result of `call`, with its arguments pickled."""
        return self.call(*pickle.loads(told))
