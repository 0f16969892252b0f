"""Hosts: the agents of one worker process, with one call per message round.

Calls are numbered. If its last call is repeated, a host returns the same bytes again; it refuses
every number except the next one. So if an engine repeats a call or restarts a host, no noise is
drawn twice and no run continues from an empty state. Ledger entries are sent with the agents'
answers, and the run's process writes all of them to disk before it uses any answer. If a process
dies before that, its noise was never released, and is redrawn.

The module also sends agents to workers that do not share this process's memory. Data passed as
arrays are sent; data from functions are read by the worker. All of them stay with one owner: an
executor is no trust boundary between parties.
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

# Number of agents per worker from which on workers' loads are about equal for any assignment.
_MANY = 16
# Answer of an agent, or the error that it raised.
Answer = tuple[Any, BaseException | None]


class Host:
    """Object that runs the agents of one worker, in the worker's process.

    Parameters
    ----------
    factories : mapping of int to callable
        Function that constructs each agent, by index.
    notes : Notes
        Notes for the ledger file, shared by the agents.
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
        """Pickled outcome of constructing the agents."""
        return self.call(0, "", (), ())

    def call(
        self, number: int, method: str, common: Sequence[Any], individual: Sequence[Any]
    ) -> bytes:
        """Return the agents' answers to one call, and their notes, pickled; see `heard`.

        Parameters
        ----------
        number : int
            Number of the call, from 1; 0 constructs the agents.
        method : str
            Name of the agents' method.
        common : sequence
            Arguments for all agents.
        individual : sequence of tuple
            Further arguments of each agent, in their order.

        Raises
        ------
        PrivacyError
            If the number is neither of the last call nor of the next one.
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
        if len(self._agents) == len(answers):  # all agents were constructed
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
    """Return the agents' answers, with summands replaced by sums over this host's agents."""
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
    # Equal replies become one object, which is sent once.
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
    """Return the indices of the agents of each worker; agents are dealt to workers in turn.

    If there are many agents, each worker gets a contiguous range, so that it can add up replies.

    Parameters
    ----------
    agents, workers : int
        Numbers of agents and workers.
    """
    workers = min(workers, agents)
    if agents >= _MANY * max(1, workers):
        ends = [agents * worker // workers for worker in range(workers + 1)]
        return [range(*pair) for pair in pairwise(ends)]
    return [range(first, agents, workers) for first in range(workers)]


def own_arguments(each: Sequence[Any] | None, agents: Iterable[int]) -> list[tuple[Any, ...]]:
    """Return the individual arguments of a host's agents.

    Parameters
    ----------
    each : sequence or None
        One argument for every agent of the run, or None without arguments.
    agents : iterable of int
        Indices of the host's agents.
    """
    return [() if each is None else (each[agent],) for agent in agents]


def heard(answers: Iterable[tuple[Sequence[int], bytes]], journal: Journal | None) -> list[Any]:
    """Unpickle all hosts' answers in the order of the agents; write their notes to the ledger file.

    Parameters
    ----------
    answers : iterable of (agents, bytes)
        Agents of each host, and the bytes that its call returned.
    journal : Journal or None
        Journal of the run.

    Raises
    ------
    DpcvxError
        If agents failed: the first agent's error, after all agents' notes were written.
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
    """Return the error for workers that were lost.

    Parameters
    ----------
    executor : str
        Name of the executor's class, for the log.
    what : str
        Event that ended the workers, as the first words of a sentence.
    workers : sequence of str
        Names of the lost workers.
    agents : iterable of int
        Indices of the lost agents.
    has_ledger : bool
        Whether the run keeps a ledger file.
    t : int
        Current round; 0 before the first.
    """
    event("lost", {"executor": executor, "workers": len(workers), "round": t})
    listed = tuple(sorted(agents))
    remedy = (
        "Count the data as spent; or give runs a ledger file, plan.run(ledger='spent.jsonl'), with "
        "which the next run resumes from there."
    )
    if has_ledger:
        where = f"resumes in round {t}" if t else "begins again"
        remedy = f"Run the plan again with the same ledger=: it {where}."
    return WorkerLostError(f"{what}. Nothing was repeated. {remedy}", tuple(workers), listed)


def named(agents: Iterable[int]) -> str:
    """Return a text that names agents by index."""
    listed = sorted(agents)
    noun = "agent" if len(listed) == 1 else "agents"
    return f"{noun} {together([str(agent) for agent in listed])}"


# Smaller arrays are pickled as they are.
_SHORT = 64


def required(module: str, extra: str) -> Any:
    """Import a module that an optional dependency of the package provides.

    Parameters
    ----------
    module, extra : str
        Names of the module, and of the package's extra that installs it.

    Raises
    ------
    ModelError
        If the module is not installed.
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
    """Return the pickled functions that construct a worker's agents, with their notes.

    Parameters
    ----------
    factories : sequence of callables
        One function for each agent of the run.
    agents : iterable of int
        Indices of the worker's agents.
    notes : Notes
        Notes for the ledger file.
    extra : str
        Name of the package's extra for the executor, for errors.
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
    """Return how to pickle an array: as a constant or as an arithmetic sequence, if it is one.

    Compiled problems with records contain such arrays (zeros, weights, positions), and each is as
    long as the data.
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
    """A `Host` in a process with other tasks: it limits BLAS to one thread only during calls.

    Parameters
    ----------
    blob : bytes
        Bytes from `packed`.
    """

    def __init__(self, blob: bytes) -> None:
        # The number of BLAS threads would change the rounding of results.
        self._blas = ThreadpoolController().select(user_api="blas")
        factories: Mapping[int, Callable[[], Any]]
        with self._blas.limit(limits=1):
            factories, notes = pickle.loads(blob)
            self._host = Host(factories, notes)

    def made(self) -> bytes:
        """Return the pickled outcome of constructing the agents."""
        return self._host.made

    def call(
        self, number: int, method: str, common: Sequence[Any], individual: Sequence[Any]
    ) -> bytes:
        """Call a method of the agents; see `Host.call`."""
        with self._blas.limit(limits=1):
            return self._host.call(number, method, common, individual)

    def called(self, told: bytes) -> bytes:
        """Return the result of `call` for pickled arguments."""
        return self.call(*pickle.loads(told))
